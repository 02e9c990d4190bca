"""Make the trained models that come with elites, and measure them on this machine.

    elites pack RUN --elites 64 --half-precision --output NAME.zip    # from a run directory
    python benchmarks/pretrained.py assemble ELITES.npz TABLES NAME.zip --elites 16
    python benchmarks/pretrained.py precision NAME.zip     # half against single precision
    python benchmarks/pretrained.py index                  # writes the index of all shipped models

`assemble` is for a run whose checkpoint is gone. `TABLES` has its other files, such as config.json.
`ELITES.npz` has n elites in the order of their choice, as arrays:

    seed                  number of the seed
    cells                 [n] numbers of their cells
    policies              [n, P] parameters of their networks
    fitness, descriptors  [n], [n, D] as in the table of cells, which they are compared with
    actor                 parameters of the actor

`precision` prints a JSON line, and `index` re-evaluates every model.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import elites
from elites import files
from elites.core import archive as archives
from elites.core import distances, networks
from elites.core.algorithm import Algorithm
from elites.runs import directory as directories
from elites.runs import downloading, environment, evaluation, job, logs, reducing, sharing
from elites.runs.directory import CONFIG, FACTS, RunDirectory
from elites.runs.pretrained import INDEX, SHIPPED
from elites.runs.reducing import Excerpt
from elites.words import listed, one_line

ELITES = 16
"""Number of elites that the shipped models keep."""
ARRAYS = ("seed", "cells", "policies", "fitness", "descriptors", "actor")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("assemble")
    made.add_argument("elites", type=Path)
    made.add_argument("tables", type=Path)
    made.add_argument("output", type=Path)
    made.add_argument("--elites", type=int, default=ELITES, dest="count")
    commands.add_parser("precision").add_argument("model", type=Path)
    commands.add_parser("index")
    options = parser.parse_args()
    try:
        execute(options)
    except (ValueError, OSError, files.RunError) as error:
        sys.exit(f"pretrained.py: {one_line(error)}")


def execute(options: argparse.Namespace) -> None:
    """Execute the command that the options name. Raises an error if a file does not fit."""
    if options.command == "assemble":
        assemble(options.elites, options.tables, options.output, options.count)
    elif options.command == "precision":
        print(json.dumps(precision(options.model)))
    else:
        found = {path.stem: described(path) for path in sorted(SHIPPED.glob("*.zip"))}
        directories.write_json(SHIPPED / INDEX, {"format": 1, "models": found})


# ---------------------------------------------------------------------------------------- assemble


def assemble(elites_file: Path, tables: Path, output: Path, count: int) -> None:
    """Write a packed model from some elites, an actor and the tables of their run.

    Raises a ValueError if the elites are not those of the tables.
    """
    run, kept = RunDirectory(tables), read_elites(elites_file)
    seed = int(kept["seed"])
    built = job.build(run.config(), run)
    weights = archive_of(run, built.algorithm, seed)
    for name in ("fitness", "descriptors"):
        known = weights[f"archive.{name}"][0]
        fits = np.all(np.isin(kept["cells"], np.arange(len(known))))
        if not fits or not np.array_equal(known[kept["cells"]], kept[name].astype(np.float32)):
            raise ValueError(
                f"{elites_file}: the array {name} differs from {run.evaluation / 'cells.csv'}. "
                "Give the tables of the run that the elites come from"
            )
    actors = [n for n in built.names if job.is_weight(n) and n.startswith("learners.")]
    if len(actors) != 1:
        raise ValueError(f"{run / CONFIG}: {built.algorithm.name} has {len(actors)} actors, not 1")
    weights[actors[0]] = kept["actor"][None]
    policies = np.zeros((1, built.algorithm.cells, built.algorithm.policy.size), np.float32)
    chosen = slice(count)
    policies[0, kept["cells"][chosen]] = kept["policies"][chosen]
    weights["archive.policies"] = policies
    iteration = evaluation.iteration_of(run.evaluation)
    if iteration is None:
        raise ValueError(f"{run.evaluation / 'metrics.csv'}: does not name its iteration")
    cells = sorted(map(int, kept["cells"][chosen]))
    with tempfile.TemporaryDirectory() as folder:
        place = RunDirectory(Path(folder))
        reducing.write(run, Excerpt(seed, iteration, weights, cells), place, information(run))
        sharing.pack_small(place, output)


def read_elites(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file of elites. Raises a ValueError if one is missing."""
    with np.load(path) as file:
        if missing := [name for name in ARRAYS if name not in file.files]:
            raise ValueError(f"{path}: lacks {listed(missing)}. It needs {listed(ARRAYS)}")
        return {name: file[name] for name in ARRAYS}


def archive_of(run: RunDirectory, algorithm: Algorithm, seed: int) -> dict[str, np.ndarray]:
    """Return the arrays [1, ...] of a seed's archive, except policies, from the table of cells.

    Raises a ValueError if the table is not of the run's archive.
    """
    size = algorithm.problem.descriptor_size
    table = evaluation.read_cells(run.evaluation, algorithm.cells, size)
    rows = table["seed"] == seed
    cells = table["cell"][rows].astype(int)
    empty = jax.tree.map(np.array, archives.empty(algorithm.centroids(), 0))

    def columns(name: str) -> np.ndarray:
        """Return columns of the table that belong together as an array [n, D]."""
        numbered = evaluation.numbered(name, size)
        return np.stack([table[column][rows] for column in numbered], -1).astype(np.float32)

    if not len(cells):
        raise ValueError(f"{run.evaluation / 'cells.csv'}: has no elites of seed {seed}")
    if not np.array_equal(columns("centroid"), empty.centroids[cells]):
        raise ValueError(
            f"{run.evaluation / 'cells.csv'}: its centroids are not those of {run / CONFIG}. Give "
            "the configuration of the same run"
        )
    origins = files.read_record(run / FACTS, {})["origins"]
    filled = {
        "fitness": table["fitness"][rows],
        "descriptors": columns("descriptor"),
        "origin": [origins.index(name) for name in table["origin"][rows]],
        "born": table["born"][rows],
        "centroids": empty.centroids[cells],
    }
    arrays = {}
    for name, values in filled.items():
        array = getattr(empty, name)
        array[cells] = values
        arrays[f"archive.{name}"] = array[None]
    return arrays


def information(run: RunDirectory) -> dict[str, Any]:
    """Return what the run saved with its checkpoint: its time, and when it was re-evaluated."""
    seconds = float(logs.metrics(run)["seconds"][-1, 0])
    again = logs.read_table(run / directories.REEVALUATIONS, ("iteration",))["iteration"]
    return {"seconds": seconds, "reevaluated": sorted(set(map(int, again)))}


# ----------------------------------------------------------------------------------------- measure


def unpacked(model: Path, folder: str) -> tuple[RunDirectory, elites.Run]:
    """Unpack a model below a folder, and return its run directory and the loaded run."""
    run = sharing.unpack(model, Path(folder) / "run")
    return run, elites.load(run.path)


def described(model: Path) -> dict[str, Any]:
    """Return the entry of a packed model in the index."""
    with tempfile.TemporaryDirectory() as folder:
        run, loaded = unpacked(model, folder)
        config, metrics = run.config(), evaluation.read_metrics(run.evaluation)
        total = {name: float(values[0]) for name, values in metrics.items()}
        evaluations = int(logs.metrics(run)["evaluations"][-1, 0])
        device = environment.read_sessions(run)[-1]["device"]
        cells = int((np.isfinite(recorded(run)["fitness"])).sum())
        figures = scores(loaded, *rollouts(loaded))
        before = scores(loaded, *recorded_rollouts(run, loaded))
    return {
        "file": model.name,
        "sha256": downloading.checksum(model),
        "bytes": model.stat().st_size,
        "task": config.task,
        "algorithm": config.algorithm,
        "evaluations": evaluations,
        "seed": config.first_seed,
        "elites": len(loaded.archive),
        "cells": cells,
        "device": device,
        "recorded": {"qd_score": total["qd_score"], "coverage": total["coverage"], **before},
        "on_cpu": figures,
    }


def precision(model: Path) -> dict[str, Any]:
    """Return scores of a model as it is and rounded to half precision, beside the recorded ones.

    Also returns how far apart the two precisions are, elite by elite.
    """
    with tempfile.TemporaryDirectory() as folder:
        run, loaded = unpacked(model, folder)
        single, half = rollouts(loaded), rollouts(loaded, rounded=True)
        before = recorded_rollouts(run, loaded)
    weights = loaded.algorithm.problem.weights
    apart = {
        name: spread(distances.between(jnp.asarray(a[1]), jnp.asarray(b[1]), weights))
        for name, a, b in zip(("elites", "actor"), single, half, strict=True)
    }
    return {
        "benchmark": "precision",
        "model": model.stem,
        "device": jax.local_devices()[0].device_kind,
        "recorded": scores(loaded, *before),
        "float32": scores(loaded, *single),
        "float16": scores(loaded, *half),
        "float16_from_float32": apart,
    }


Rollouts = tuple[np.ndarray, np.ndarray]  # fitness [n], descriptors [n, D]


def rollouts(run: elites.Run, rounded: bool = False) -> tuple[Rollouts, Rollouts]:
    """Return an episode of every elite, and of the actor at every elite's descriptor."""
    algorithm, actor, problem = run.algorithm, run.actor, run.algorithm.problem
    if actor is None or algorithm.main_td3 is None or not actor.conditioned:
        raise ValueError(f"{algorithm.name} trains no actor that takes a descriptor")

    def change(parameters: np.ndarray) -> np.ndarray:
        return parameters.astype(np.float16).astype(np.float32) if rounded else parameters

    condition = problem.normalise(jnp.asarray(run.archive.descriptors))
    parameters = jnp.asarray(change(actor.parameters))
    conditioned = algorithm.main_td3.actor
    asked = networks.fold(conditioned, parameters, condition)
    # The actor may have larger layers than the policies of the archive.
    network = networks.folded(conditioned, problem.descriptor_size)

    @functools.partial(jax.jit, static_argnums=0)
    def episodes(network: networks.MLP, policies):
        layers = networks.unflatten(network, policies)
        keys = jax.random.split(jax.random.key(0), len(policies))
        found = problem.rollout(lambda o: networks.apply_each(network, layers, o), keys)
        return found.fitness, found.descriptors

    def run_all(network: networks.MLP, policies) -> Rollouts:
        fitness, descriptors = episodes(network, jnp.asarray(policies))
        return np.asarray(fitness), np.asarray(descriptors)

    return run_all(algorithm.policy, change(run.archive.policies)), run_all(network, asked)


def recorded(run: RunDirectory) -> dict[str, np.ndarray]:
    """Return the table of all cells that training wrote."""
    config, facts = run.config(), directories.read_facts(run)
    return evaluation.read_cells(run.evaluation, config.hp.cell_count, len(facts["descriptor_low"]))


def recorded_rollouts(run: RunDirectory, loaded: elites.Run) -> tuple[Rollouts, Rollouts]:
    """Return the results of `rollouts` as training recorded them.

    Those of rounded policies were measured when they were packed, and are not in the tables.
    """
    table, size = recorded(run), loaded.algorithm.problem.descriptor_size
    rows = np.searchsorted(table["cell"], loaded.archive.cells)

    def of(kind: str) -> Rollouts:
        columns = [table[name][rows] for name in evaluation.numbered(f"{kind}descriptor", size)]
        return table[f"{kind}fitness"][rows], np.stack(columns, -1).astype(np.float32)

    archive = loaded.archive
    if directories.has_half_precision(run):
        return (archive.fitness, archive.descriptors), of("actor_")
    return of("reevaluated_"), of("actor_")


def scores(run: elites.Run, elite: Rollouts, actor: Rollouts) -> dict[str, float]:
    """Return mean fitness, mean and median descriptor error, and hit cells, of both."""
    wanted, algorithm = run.archive.descriptors, run.algorithm
    found: dict[str, float] = {}
    for name, (fitness, descriptors) in (("elite", elite), ("actor", actor)):
        reached = jnp.asarray(descriptors)
        errors = distances.between(reached, jnp.asarray(wanted), algorithm.problem.weights)
        hit = algorithm.division.index(algorithm.centroids(), reached) == run.archive.cells
        found |= {
            f"{name}_fitness": round(float(fitness.mean()), 2),
            f"{name}_error": round(float(errors.mean()), 4),
            f"{name}_median_error": round(float(np.median(errors)), 4),
            f"{name}_hits": round(float(hit.mean()), 4),
        }
    return found


def spread(values: Any) -> dict[str, float]:
    """Return the mean, median and largest of some numbers."""
    return {
        "mean": round(float(np.mean(values)), 4),
        "median": round(float(np.median(values)), 4),
        "largest": round(float(np.max(values)), 4),
    }


if __name__ == "__main__":
    main()
