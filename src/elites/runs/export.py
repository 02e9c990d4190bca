"""Export a policy of a run to a file for other programs.

A file holds a plain network: dense layers, the run's activation between them and tanh at the end. A
descriptor-conditioned actor takes (observation, descriptor in task units): the scaling of the
descriptor to [-1, 1] is folded into the first layer. Observations are those of the task: where a
run normalises them, that is part of its networks already (`core/normalisation.py`). Every file is
read back, and its actions are compared with those of JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks, numpy_networks
from elites.runs import calibrating, formats
from elites.runs.config import seed_index
from elites.runs.directory import RunDirectory, RunError, replacing
from elites.runs.formats import Network
from elites.training import Actor, Elite, Run, SeedResult

TOLERANCE, LARGEST = 1e-5, 1e-3
"""Allowed difference between the actions of an exported file and those of JAX.

The larger the weights of a network, the more its actions depend on the order of the sums. So ten
times the rounding error of JAX is allowed if that is more, up to the second number.
"""


def choose(
    run: Run, actor: bool, cell: int | None, descriptor: Sequence[float], seed: int | None
) -> tuple[Elite | Actor, dict[str, Any]]:
    """Return the requested policy of a run, and a dictionary of metadata for its file.

    The policy is the actor, the elite of a cell, or the elite nearest to a descriptor. If none of
    these is requested, it is the fittest elite. If `seed` is None, the seed with the highest
    QD-score is used.
    """
    index = run.best if seed is None else seed_index(run.seeds, seed)
    result, problem = run.seed(index), run.algorithm.problem
    information: dict[str, Any] = {
        "task": problem.name,
        "algorithm": run.algorithm.name,
        "seed": run.seeds[index],
    }
    if actor:
        if result.actor is None:
            raise ValueError(f"{run.algorithm.name} trains no actor. Export an elite instead")
        information["what"] = "the actor"
        if result.actor.conditioned:
            information["what"] = "the actor, conditioned on a descriptor in task units"
            information["descriptor_low"] = list(problem.descriptor_low)
            information["descriptor_high"] = list(problem.descriptor_high)
        return result.actor, information
    elite = choose_elite(result, cell, descriptor)
    reached = [round(float(value), 6) for value in elite.descriptor]
    known = f"fitness {elite.fitness:.6g}, descriptor {reached}"
    information |= {
        "what": f"the elite of cell {elite.cell}, {known}",
        "cell": elite.cell,
        "fitness": elite.fitness,
        "descriptor": reached,
    }
    return elite, information


def choose_elite(result: SeedResult, cell: int | None, descriptor: Sequence[float]) -> Elite:
    """Return the elite of a cell, the one nearest to a descriptor, or else the fittest."""
    if cell is not None:
        return result.archive.at(cell)
    return result.archive.nearest(descriptor) if descriptor else result.archive.best()


def actor_at(
    directory: RunDirectory,
    run: Run,
    iteration: int,
    descriptor: Sequence[float],
    seed: int | None,
) -> tuple[Elite, dict[str, Any]]:
    """Return the actor for one descriptor as a policy of observations alone, and its metadata.

    If the run in `directory` has been calibrated at this iteration, the actor is asked for the
    calibrated request. If `seed` is None, the seed with the highest QD-score is used.
    """
    index = run.best if seed is None else seed_index(run.seeds, seed)
    actor, problem = run.seed(index).actor, run.algorithm.problem
    if actor is None or not actor.conditioned:
        raise ValueError(f"{run.algorithm.name} trains no actor that takes a descriptor")
    wanted = np.array(descriptor, np.float32)
    if wanted.shape != (problem.descriptor_size,) or not np.isfinite(wanted).all():
        raise ValueError(
            f"--descriptor needs {problem.descriptor_size} finite numbers for "
            f"'{problem.name}', got {' '.join(map(str, descriptor))}"
        )
    found = calibrating.request(directory, run.seeds[index], iteration, wanted, problem.weights)
    asked = wanted if found is None else found
    note = "(calibrated)" if found is not None else "(not calibrated)"
    policy, information = _folded(run, index, wanted, asked, note)
    return policy, information | {"calibrated": found is not None}


def switched(
    run: Run, descriptor: Sequence[float], seed: int | None
) -> tuple[Elite, dict[str, Any]]:
    """Return the policy that a run's switcher chooses for a descriptor, and its metadata.

    It is an elite, or the actor for one request as a policy of observations alone.
    """
    index = run.best if seed is None else seed_index(run.seeds, seed)
    chosen = run.switcher(index)(descriptor)
    known = f"known error {chosen.error:.4g}"
    if isinstance(chosen.policy, Elite):
        _, information = choose(run, False, chosen.policy.cell, (), run.seeds[index])
        information["what"] += f"; {known}"
        return chosen.policy, information | {"known_error": chosen.error}
    assert chosen.request is not None
    wanted = np.array(descriptor, np.float32)
    policy, information = _folded(run, index, wanted, chosen.request, f"({known})")
    return policy, information | {"known_error": chosen.error}


def _folded(
    run: Run, index: int, wanted: np.ndarray, asked: np.ndarray, note: str
) -> tuple[Elite, dict[str, Any]]:
    """Return the actor at the request `asked` [D] as a policy of observations, and its metadata.

    `wanted` [D] is the descriptor that the request is to reach. `note` ends the description.
    """
    actor, problem, td3 = run.seed(index).actor, run.algorithm.problem, run.algorithm.main_td3
    assert actor is not None
    assert td3 is not None
    target = problem.normalise(jnp.asarray(asked, jnp.float32)[None])
    policy = networks.fold(td3.actor, jnp.asarray(actor.parameters), target)[0]
    network = networks.folded(td3.actor, problem.descriptor_size)
    shown = [round(float(value), 6) for value in asked]
    goal = list(map(float, wanted))
    information = {
        "task": problem.name,
        "algorithm": run.algorithm.name,
        "seed": run.seeds[index],
        "what": f"the actor for the descriptor {goal}, asked for {shown} {note}",
        "descriptor": goal,
        "request": shown,
    }
    elite = Elite(np.asarray(policy), float("nan"), wanted, -1, "actor", 0, network)
    return elite, information


def network_of(policy: Elite | Actor, information: dict[str, Any]) -> Network:
    """Return the network of an elite or of an actor, with `information` as its metadata.

    The scaling of descriptors is folded into the first layer.
    """
    if isinstance(policy, Elite):
        layers = networks.unflatten(policy.network, jnp.asarray(policy.policy))
        shape = policy.network
        return Network(_numbers(layers), shape.sizes[0], 0, shape.activation, information)
    learner, problem = policy.algorithm.main_td3, policy.algorithm.problem
    assert learner is not None
    layers = networks.unflatten(learner.actor, jnp.asarray(policy.parameters))
    (kernel, bias), *rest = _numbers(layers)
    size = problem.descriptor_size if policy.conditioned else 0
    if size:
        low, high = np.array(problem.descriptor_low), np.array(problem.descriptor_high)
        asked = kernel[-size:].astype(np.float64)
        bias = bias - asked.T @ ((high + low) / (high - low))
        kernel = np.concatenate([kernel[:-size], asked * (2 / (high - low))[:, None]])
    first = (kernel.astype(np.float32), bias.astype(np.float32))
    activation = learner.actor.activation
    return Network([first, *rest], problem.observation_size, size, activation, information)


def _numbers(layers) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return layers of JAX arrays as a list of NumPy pairs (kernel, bias)."""
    return [(np.asarray(kernel), np.asarray(bias)) for kernel, bias in layers]


def export(policy: Elite | Actor, path: Path, information: dict[str, Any]) -> float | None:
    """Write a policy to a file and return the largest error of its actions.

    The error is the difference from the actions that JAX computes. Raises a RunError if it is
    larger than rounding explains, see `TOLERANCE`. Returns None if this machine cannot run the
    file, see `formats.can_run`.
    """
    network = network_of(policy, information)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        formats.write(network, temporary)
        return check(policy, network, temporary) if formats.can_run(temporary) else None


def check(policy: Elite | Actor, network: Network, path: Path) -> float:
    """Compare an exported file with JAX and return the largest difference between their actions.

    The inputs are 1,000 random observations, with random descriptors if the policy takes them.
    Raises a RunError if the difference is larger than rounding explains, see `TOLERANCE`.
    """
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(1000, network.observation_size)).astype(np.float32)
    asked = None
    if network.descriptor_size:
        assert isinstance(policy, Actor)
        problem = policy.algorithm.problem
        asked = generator.uniform(
            problem.descriptor_low, problem.descriptor_high, (1000, network.descriptor_size)
        ).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        if isinstance(policy, Actor):
            expected = policy(observations, asked)
        else:
            expected = policy(observations)
    inputs = {"observation": observations} | ({} if asked is None else {"descriptor": asked})
    error = float(np.max(np.abs(formats.run(path, inputs) - np.asarray(expected))))
    rounding = float(np.max(np.abs(exact(policy, observations, asked) - np.asarray(expected))))
    if not error <= allowed(rounding):
        raise RunError(f"{path.name}: the exported policy differs from JAX by {error:.2g}")
    return error


def allowed(rounding: float) -> float:
    """Return the largest allowed difference from JAX, whose own rounding errors are `rounding`."""
    return min(max(TOLERANCE, 10 * rounding), LARGEST)


def exact(policy: Elite | Actor, observations: np.ndarray, asked: np.ndarray | None) -> np.ndarray:
    """Return the actions of a policy, computed from its own parameters in double precision."""
    inputs = observations.astype(np.float64)
    if isinstance(policy, Elite):
        network, parameters = policy.network, policy.policy
    else:
        learner, problem = policy.algorithm.main_td3, policy.algorithm.problem
        assert learner is not None
        network, parameters = learner.actor, policy.parameters
        if asked is not None:
            low, high = np.array(problem.descriptor_low), np.array(problem.descriptor_high)
            scaled = 2 * (asked.astype(np.float64) - low) / (high - low) - 1
            inputs = np.concatenate([inputs, scaled], axis=1)
    layers = numpy_networks.unflatten(network.sizes, np.asarray(parameters, np.float64))
    return numpy_networks.forward(layers, inputs, network.activation)
