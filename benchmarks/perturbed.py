"""Evaluate an archive again with slightly different policies, as another simulator would.

    python benchmarks/perturbed.py RUN [--noise 0 1e-7 1e-3]

Every weight w of a policy becomes w (1 + noise x), where x is a normal random number. A noise of
1e-7 is about the last bit of single precision: so small a difference grows during an episode, as
the different rounding of another device does. Prints the descriptor error and the QD-score, for the
seed with the highest QD-score.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import elites
from elites.files import RunError
from elites.words import one_line

NOISE = (0.0, 1e-7, 1e-5, 1e-3, 1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE)
    options = parser.parse_args()
    try:
        run = elites.load(options.run)
    except (ValueError, RunError, OSError) as error:
        sys.exit(f"perturbed.py: {one_line(error)}")
    print("| noise | descriptor error: mean | median | QD-score, share of the stored one |")
    print("|---|---|---|---|")
    for noise in options.noise:
        mean, median, share = perturbed(run, noise)
        print(f"| {noise:g} | {mean:.3g} | {median:.3g} | {100 * share:.1f} % |", flush=True)


def perturbed(run: elites.Run, noise: float) -> tuple[float, float, float]:
    """Return mean and median descriptor error of a perturbed archive, and the share of QD-score.

    The share is its QD-score divided by the stored one. The archive is that of the best seed.
    """
    index, random = run.best, np.random.default_rng(0)
    archives = run.archives
    policies = np.array(archives.policies)
    factors = 1 + noise * random.standard_normal(policies.shape[1:])
    policies[index] = (policies[index] * factors).astype(policies.dtype)
    changed = dataclasses.replace(run, archives=archives._replace(policies=jnp.asarray(policies)))
    again = changed.reevaluate()
    stored = run.seed(index).archive
    reached = again.descriptors[index][stored.cells]
    errors = np.linalg.norm((reached - stored.descriptors) * run.algorithm.problem.weights, axis=-1)
    share = float(again.qd_score[index] / stored.qd_score)
    return float(np.nanmean(errors)), float(np.nanmedian(errors)), share


if __name__ == "__main__":
    main()
