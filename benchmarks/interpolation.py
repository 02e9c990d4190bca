"""Measure a trained actor between the elites of its archive, from recorded files.

    python benchmarks/interpolation.py ant_omni progress_me ACTOR.npz CELLS.csv --figure FILE.png

`elites evaluate RUN --interpolate` does the same for a run that is there as a whole. ACTOR.npz has
the parameters of an actor under the name `actor`, and the seed under `seed`. CELLS.csv is the table
`evaluation/cells.csv` of the run, of which the rows of that seed are used. Prints the table, and
one JSON line with all its numbers.
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
from elites.runs import interpolating as tables
from elites.runs.drawing import plt, styled
from elites.runs.interpolation_drawing import interpolation_figure
from elites.training import Batched, seed_keys
from elites.training.interpolating import interpolate
from elites.words import columns


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task")
    parser.add_argument("algorithm")
    parser.add_argument("actor", type=Path)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--points", type=int, default=2500)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    kept = np.load(given.actor)
    seed, task = int(kept["seed"]), elites.tasks.make(given.task)
    algorithm = elites.build(task, given.algorithm)
    archive = jax.tree.map(lambda a: a[None], archive_of(algorithm, given.cells, seed))
    found = interpolate(
        Batched(algorithm, 1), archive, jnp.asarray(kept["actor"])[None], seed_keys([seed]),
        given.points,
    )  # fmt: skip
    rows = tables.table(found)
    print("\n".join(columns(rows, right=(1, 2, 3, 4))))
    case = {"task": given.task, "algorithm": given.algorithm, "seed": seed}
    print(
        json.dumps(
            case | {"spacing": round(found.spacing, 4), "rows": rows[1:]}, ensure_ascii=False
        )
    )
    if given.figure:
        facts = {
            "descriptor_low": task.descriptor_low,
            "descriptor_high": task.descriptor_high,
            "descriptor_names": [axis.name for axis in task.descriptor_axes],
            "descriptor_units": [axis.unit for axis in task.descriptor_axes],
        }
        snapshot = {
            "fitness": np.asarray(archive.fitness),
            "descriptors": np.asarray(archive.descriptors),
        }
        known = found.valid[0]
        shown = {
            "distance": found.distance[0][known],
            "error": found.error[0][known],
            "fitness": found.fitness[0][known],
            **{f"request_{i}": found.requests[known, i] for i in range(found.requests.shape[1])},
        }
        with styled():
            figure = interpolation_figure(facts, snapshot, 0, shown)
            figure.savefig(given.figure, dpi=90)
            plt.close(figure)


def archive_of(algorithm: elites.Algorithm, path: Path, seed: int) -> archives.Archive:
    """Return fitness and descriptors of the elites in a table of cells, without their policies."""
    fitness = np.full(algorithm.cells, -np.inf, np.float32)
    descriptors = np.zeros((algorithm.cells, algorithm.problem.descriptor_size), np.float32)
    with path.open() as file:
        for row in csv.DictReader(file):
            if int(row["seed"]) == seed:
                cell = int(row["cell"])
                fitness[cell] = float(row["fitness"])
                descriptors[cell] = [
                    float(row[f"descriptor_{i}"]) for i in range(descriptors.shape[1])
                ]
    empty = archives.empty(algorithm.centroids(), 0)
    return empty._replace(fitness=jnp.asarray(fitness), descriptors=jnp.asarray(descriptors))


if __name__ == "__main__":
    main()
