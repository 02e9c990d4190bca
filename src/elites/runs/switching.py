"""Behaviour switchers of saved runs: what their tables know, and files for other programs.

evaluation/cells.csv        what the elites reached, and the actor asked for their descriptors
calibration/requests.csv    what the actor reached at calibrated requests
interpolation/requests.csv  what it reached at requests all over the descriptor space

An exported switcher is one safetensors file with these tensors. n behaviours are known, of m elites
and of the actor:

reached [n, D], fitness [n]        results of the episodes, descriptors in task units
elite [n]                          row of `elites.I.*`, -1 for the actor
request [n, D]                     what the actor is asked for, 0 for elites
weights [D]                        of the distances between descriptors
elites.I.kernel, elites.I.bias     [m, inputs, outputs] and [m, outputs] of layer I
actor.I.kernel, actor.I.bias       the actor, which takes (observation, descriptor in task units)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from elites.core import numpy_networks
from elites.runs import calibrating, evaluation, export
from elites.runs.directory import RunDirectory, RunError, replacing
from elites.training import Elites, Run
from elites.training.switching import ACTOR, Known, Switcher, joined, known_elites, known_requests


def known_behaviours(run: Run, index: int) -> Known | None:
    """Return what the tables of a loaded run know about the seed at position `index`.

    Returns None if the run was not loaded, or was not evaluated at the iteration that was loaded.
    """
    if run.place is None:
        return None
    directory, iteration = RunDirectory(run.place.directory), run.place.iteration
    folders = (directory.evaluation, evaluation.apart(directory, iteration))
    found = [folder for folder in folders if evaluation.iteration_of(folder) == iteration]
    if not found:
        return None
    seed, archive = run.seeds[index], run.seed(index).archive
    parts = _evaluated(found[0], archive, seed)
    if archive.algorithm.conditioned:
        size = archive.algorithm.problem.descriptor_size
        for folder in (directory.calibration, directory.interpolation):
            table = calibrating.read_requests(folder, seed, iteration, size)
            parts += [] if table is None else [known_requests(*table)]
    return joined(*parts)


def _evaluated(folder: Path, archive: Elites, seed: int) -> list[Known]:
    """Return what cells.csv in a folder knows about elites and actor of a seed."""
    size, cells = archive.algorithm.problem.descriptor_size, len(archive.arrays.fitness)
    table = evaluation.read_cells(folder, cells, size)
    again = evaluation.numbered("reevaluated_descriptor", size)
    for name in ("reevaluated_fitness", *again):
        if name not in table:
            raise RunError(f"{folder / 'cells.csv'} lacks '{name}': run 'elites evaluate' again")
    rows = table["seed"] == seed

    def columns(name: str) -> np.ndarray:
        return np.stack([table[column][rows] for column in evaluation.numbered(name, size)], -1)

    filled, described = table["cell"][rows].astype(int), columns("descriptor")
    kept = np.isin(filled, archive.cells)  # a run may have been reduced to some of its elites
    stored = archive.arrays.descriptors[filled[kept]]
    if kept.sum() != len(archive) or not np.allclose(described[kept], stored, rtol=1e-5, atol=1e-6):
        raise RunError(f"{folder / 'cells.csv'} is of another archive: run 'elites evaluate' again")
    reached, fitness = columns("reevaluated_descriptor"), table["reevaluated_fitness"][rows]
    parts = [known_elites(filled[kept], reached[kept], fitness[kept])]
    if archive.algorithm.conditioned:
        reached, fitness = columns("actor_descriptor"), table["actor_fitness"][rows]
        parts.append(known_requests(described, reached, fitness))
    return parts


# ------------------------------------------------------------------------------------------ files


def write(switcher: Switcher, path: Path, information: dict[str, Any]) -> float:
    """Write a switcher to a file and return the largest error of its actions.

    The error is the difference from the actions that JAX computes, on 1,000 observations. Raises a
    RunError if it is larger than rounding explains, see `export.allowed`.
    """
    from safetensors.numpy import save_file

    archive, actor = switcher.archive, switcher.actor
    facts = {"activation": archive.algorithm.policy.activation, **information}
    tensors = _tensors(switcher)
    if actor is not None and actor.conditioned:
        network = export.network_of(actor, {})
        facts["actor_activation"] = network.activation
        tensors |= _layers("actor", network.layers)
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=texts)
        return _compared(switcher, temporary)


def _tensors(switcher: Switcher) -> dict[str, np.ndarray]:
    """Return the table of behaviours and the elites' networks as tensors."""
    known, archive = switcher.known, switcher.archive
    rows = np.searchsorted(archive.cells, known.cells).astype(np.int32)
    layers = numpy_networks.unflatten(archive.algorithm.policy.sizes, archive.policies)
    return {
        "reached": known.reached,
        "fitness": known.fitness,
        "elite": np.where(known.cells == ACTOR, ACTOR, rows).astype(np.int32),
        "request": known.requests,
        "weights": np.array(archive.algorithm.problem.weights, np.float32),
        **_layers("elites", layers),
    }


def _layers(name: str, layers: numpy_networks.Layers) -> dict[str, np.ndarray]:
    """Return layers as tensors with names such as "actor.0.kernel"."""
    tensors = {}
    for i, (kernel, bias) in enumerate(layers):
        tensors[f"{name}.{i}.kernel"] = np.ascontiguousarray(kernel)
        tensors[f"{name}.{i}.bias"] = np.ascontiguousarray(bias)
    return tensors


def _compared(switcher: Switcher, path: Path) -> float:
    """Run a file with NumPy at 20 observations and 50 descriptors, and compare it with JAX."""
    problem = switcher.archive.algorithm.problem
    generator = np.random.default_rng(0)
    seen = generator.normal(size=(20, problem.observation_size)).astype(np.float32)
    shape = (50, problem.descriptor_size)
    asked = generator.uniform(problem.descriptor_low, problem.descriptor_high, shape)
    tensors, facts = read(path)
    error = rounding = 0.0
    with jax.default_matmul_precision("highest"):
        for descriptor in asked.astype(np.float32):
            chosen = switcher(descriptor)
            expected = np.asarray(chosen(seen))
            request = None if chosen.request is None else np.tile(chosen.request, (len(seen), 1))
            exact = export.exact(chosen.policy, seen, request)
            found = act(tensors, facts, descriptor, seen)
            error = max(error, float(np.max(np.abs(found - expected))))
            rounding = max(rounding, float(np.max(np.abs(exact - expected))))
    if not error <= export.allowed(rounding):
        raise RunError(f"{path.name}: the exported switcher differs from JAX by {error:.2g}")
    return error


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the metadata of an exported switcher."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name) for name in names}, file.metadata()


def act(
    tensors: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    descriptor: np.ndarray,
    observations: np.ndarray,
) -> np.ndarray:
    """Return the actions [N, A] of an exported switcher for one descriptor [D], with NumPy."""
    missed = (tensors["reached"] - descriptor) * tensors["weights"]
    row = int(np.argmin(np.linalg.norm(missed, axis=-1)))
    elite = int(tensors["elite"][row])
    if elite != ACTOR:
        layers = [(kernel[elite], bias[elite]) for kernel, bias in _read_layers(tensors, "elites")]
        return numpy_networks.forward(layers, observations, facts["activation"])
    request = np.broadcast_to(tensors["request"][row], (len(observations), len(descriptor)))
    seen = np.concatenate([observations, request], axis=1)
    activation = facts["actor_activation"]
    return numpy_networks.forward(_read_layers(tensors, "actor"), seen, activation)


def _read_layers(tensors: Mapping[str, np.ndarray], name: str) -> numpy_networks.Layers:
    """Return the layers whose tensors begin with a name, as pairs (kernel, bias)."""
    count = sum(key.startswith(f"{name}.") for key in tensors) // 2
    return [(tensors[f"{name}.{i}.kernel"], tensors[f"{name}.{i}.bias"]) for i in range(count)]
