"""Speed of MAP-Elites of elites and of QDax on plain vectors, on the CPU or on a GPU.

    pip install qdax -c constraints.txt
    python benchmarks/speed_beside_qdax.py
    python benchmarks/speed_beside_qdax.py --quick

The problem is the linear projection of the sphere in 100 dimensions, one seed. Both libraries use
the same function, the same sizes of the mutation and the same centroids, the middles of a grid.

    elites           Voronoi cells around the centroids, one call of `Batched.step` an iteration
    elites_grid      the same cells as a grid, which finds them by arithmetic
    qdax_scan        `MAPElites.scan_update` in a compiled `lax.scan` over all iterations of a turn
    qdax_update      one call of a compiled `MAPElites.update` an iteration

QDax has no grid: it always compares with all centroids. Every side computes QD-score, coverage and
maximum fitness in each iteration. The sides take turns in this process. A turn is a number of
iterations, and ends when the last result is there.

Prints one JSON line for each number of cells and batch size: the median time of an iteration in
milliseconds, and how many times as fast elites is as the faster one of QDax's two. The coverage at
the end shows that all of them do the same work.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import elites
from elites import packages, tasks, training
from elites.core.cells import Cells
from elites.tasks import simulation

DIMENSIONS, ISO, LINE, SPREAD = 100, 0.5, 0.2, 0.5
GRIDS = {1_024: (32, 32), 10_000: (100, 100), 100_000: (400, 250)}
SIZES = ((10_000, 1_024), (100_000, 1_024), (1_024, 1_024), (10_000, 256))  # cells, batch
TASK = f"vectors:sphere,dimensions={DIMENSIONS}"


class Side(NamedTuple):
    """One way to run MAP-Elites. Both functions wait until their results are there."""

    advance: Callable[[], None]
    """Run the iterations of one turn."""
    coverage: Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two sizes and short turns")
    parser.add_argument("--turns", type=int, help="number of turns of each side")
    parser.add_argument("--each", type=int, help="number of iterations of a turn")
    given = parser.parse_args()
    if not packages.is_installed("qdax"):
        sys.exit("this benchmark needs the package qdax: pip install qdax -c constraints.txt")
    device = jax.devices()[0]
    about = {"device": device.device_kind, **packages.versions("qdax", "jax")}
    print(json.dumps(about), flush=True)
    each = given.each or (10 if given.quick or device.platform == "cpu" else 100)
    for cells, batch in SIZES[:: 2 if given.quick else 1]:
        turns = given.turns or (3 if given.quick else 7)
        print(json.dumps(compared(cells, batch, turns, each)), flush=True)


def made(cells: int, batch: int, each: int) -> dict[str, Side]:
    """Return the four sides, compiled. Prints how long each took, because that can be long."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "centroids.npy"
        np.save(file, np.asarray(centroids_of(cells)))
        own = {"cells": cells, "grid": (), "centroids_file": str(file)}
        makers: dict[str, Callable[[], Side]] = {
            "elites": lambda: of_elites(batch, each, **own),
            "elites_grid": lambda: of_elites(batch, each, grid=GRIDS[cells]),
            "qdax_scan": lambda: of_qdax(cells, batch, each, scan=True),
            "qdax_update": lambda: of_qdax(cells, batch, each, scan=False),
        }
        sides: dict[str, Side] = {}
        for name, make in makers.items():
            begun = time.perf_counter()
            sides[name] = make()
            sides[name].advance()
            seconds = time.perf_counter() - begun
            print(json.dumps({"compiled": name, "seconds": round(seconds, 1)}), flush=True)
    return sides


def compared(cells: int, batch: int, turns: int, each: int) -> dict[str, Any]:
    """Return the median time of an iteration of each side, and the ratios."""
    sides = made(cells, batch, each)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            begun = time.perf_counter()
            side.advance()
            times[name].append(1000 * (time.perf_counter() - begun) / each)
    medians = {name: statistics.median(some) for name, some in times.items()}
    theirs = min(medians["qdax_scan"], medians["qdax_update"])
    return {
        "cells": cells, "batch": batch, "iterations": (turns + 1) * each,
        "ms": {name: round(value, 3) for name, value in medians.items()},
        "times_as_fast": {
            name: round(theirs / medians[name], 2) for name in ("elites", "elites_grid")
        },
        "coverage": {name: round(side.coverage(), 4) for name, side in sides.items()},
    }  # fmt: skip


@functools.cache
def centroids_of(cells: int) -> jax.Array:
    """Return the centroids [cells, 2] that all sides use."""
    task = tasks.make(TASK)
    return Cells(task.descriptor_low, task.descriptor_high, cells, GRIDS[cells]).centroids()


def of_elites(batch: int, each: int, **cells: Any) -> Side:
    """Return MAP-Elites of elites. `cells` are the hyperparameters of the archive's cells."""
    options = {"batch_size": batch, "iso_sigma": ISO, "line_sigma": LINE, **cells}
    batched = training.Batched(elites.build(TASK, "me", **options), 1)
    keys, done = training.seed_keys([0]), 0
    state, metrics = batched.start(training.iteration_keys(keys, 0)), None

    def advance() -> None:
        nonlocal state, metrics, done
        for _ in range(each):
            done += 1
            state, metrics = batched.step(state, training.iteration_keys(keys, done))
        jax.block_until_ready((state, metrics))

    return Side(advance, lambda: float(metrics.coverage[0]) if metrics else 0.0)


def of_qdax(cells: int, batch: int, each: int, *, scan: bool) -> Side:
    """Return MAP-Elites of QDax, as its examples run it: by scan, or one update a call."""
    search = search_of_qdax(batch)
    policy_key, key = jax.random.split(jax.random.key(0))
    first = SPREAD * jax.random.normal(policy_key, (batch, DIMENSIONS))
    repertoire, emitter, metrics = jax.jit(search.init)(first, centroids_of(cells), key)
    update = jax.jit(search.update)

    @jax.jit
    def scanned(carry: Any) -> Any:
        return jax.lax.scan(search.scan_update, carry, (), length=each)

    def advance() -> None:
        nonlocal repertoire, emitter, metrics, key
        if scan:
            (repertoire, emitter, key), metrics = scanned((repertoire, emitter, key))
        else:
            for _ in range(each):
                key, own = jax.random.split(key)
                repertoire, emitter, metrics = update(repertoire, emitter, own)
        jax.block_until_ready((repertoire, metrics))

    return Side(advance, lambda: float(np.ravel(metrics["coverage"])[-1]) / 100)


def search_of_qdax(batch: int) -> Any:
    """Return QDax's MAP-Elites on the function of elites, with QDax's usual metrics."""
    vectors = tasks.make(TASK).vectors
    assert vectors is not None
    assert vectors.evaluate is not None
    function = vectors.evaluate

    def score(vectors: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, dict[str, Any]]:
        del key
        fitness, descriptors = jax.vmap(function)(vectors)
        return fitness[:, None], descriptors, {}

    operators = simulation.load("qdax.core.emitters.mutation_operators")
    vary = functools.partial(operators.isoline_variation, iso_sigma=ISO, line_sigma=LINE)
    emitter = simulation.load("qdax.core.emitters.standard_emitters").MixingEmitter(
        mutation_fn=lambda vectors, key: vectors,
        variation_fn=vary,
        variation_percentage=1.0,
        batch_size=batch,
    )
    metrics = simulation.load("qdax.utils.metrics").default_qd_metrics
    return simulation.load("qdax.core.map_elites").MAPElites(
        scoring_function=score,
        emitter=emitter,
        metrics_function=functools.partial(metrics, qd_offset=0.0),
    )


if __name__ == "__main__":
    main()
