"""Measure how well recorded actors of `progress_me` hit the cells, before and after calibration.

    python benchmarks/calibration.py --rounds 16 --tasks ant_omni walker_uni

Reads `docs/results/progress_me/actors.npz`: for each task, the actor of the seed whose archive has
the highest QD-score. Prints one JSON line for each task.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import elites
from elites.core import archive as archives
from elites.core import distances
from elites.training import Batched, seed_keys
from elites.training.calibrating import calibrate

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "progress_me"
TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--rounds", type=int, default=16)
    options = parser.parse_args()
    actors = np.load(RESULTS / "actors.npz")
    for task in options.tasks:
        seed = int(actors[f"{task}.seed"])
        case = {"benchmark": "calibration", "task": task, "seed": seed, "rounds": options.rounds}
        print(json.dumps(case | measure(task, actors[task], seed, options.rounds)), flush=True)


def measure(task: str, actor: np.ndarray, seed: int, rounds: int) -> dict[str, float]:
    """Return the scores of an actor before and after calibration, and of its archive.

    The actor is asked for all cells, so every cell counts as filled.
    """
    algorithm = elites.build(task, "progress_me")
    archive = archives.empty(algorithm.centroids(), 0)
    archive = archive._replace(fitness=jnp.zeros(algorithm.cells))
    archive = jax.tree.map(lambda a: a[None], archive)
    found = calibrate(
        Batched(algorithm, 1), archive, jnp.asarray(actor)[None], seed_keys([seed]), rounds=rounds
    )
    stored = archive_score(task, seed)
    scores: dict[str, float] = {"archive_qd_score": stored}
    for name, part in (("plain", found.before), ("calibrated", found.after)):
        wanted = archive.centroids[0]
        errors = distances.between(part.descriptors[0], wanted, algorithm.problem.weights)
        scores |= {
            f"{name}_error_mean": round(float(part.descriptor_error[0]), 4),
            f"{name}_error_median": round(float(np.nanmedian(errors)), 4),
            f"{name}_rebinned_coverage": round(float(part.rebinned_coverage[0]), 4),
            f"{name}_rebinned_qd_score": round(float(part.rebinned_qd_score[0])),
            f"{name}_share_of_archive": round(float(part.rebinned_qd_score[0]) / stored, 4),
        }
    return scores


def archive_score(task: str, seed: int) -> float:
    """Return the QD-score of a seed's archive at the end of its recorded run."""
    rows = []
    for path in RESULTS.glob(f"{task}.progress_me.seeds_???-???.csv"):
        with path.open() as file:
            rows += [row for row in csv.DictReader(file) if int(row["seed"]) == seed]
    return float(max(rows, key=lambda row: int(row["iteration"]))["qd_score"])


if __name__ == "__main__":
    main()
