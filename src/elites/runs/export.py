"""A policy of a run as a file for other programs: ONNX or safetensors.

What is written is a plain network: input, dense layers with ReLU between them, tanh at the end. A
descriptor-conditioned actor takes (observation, descriptor in task units): its scaling to [-1, 1]
is folded into the weights of the first layer. Every file is read back and compared with JAX.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks
from elites.runs.directory import RunError, replacing
from elites.training import Actor, Elite, Run

TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Network:
    """Layers as numbers, and what goes in."""

    layers: list[tuple[np.ndarray, np.ndarray]]  # kernel [inputs, outputs], bias [outputs]
    observation_size: int
    descriptor_size: int  # 0 where the network takes none
    information: dict[str, Any]


def choose(
    run: Run, actor: bool, cell: int | None, descriptor: Sequence[float], seed: int | None
) -> tuple[Elite | Actor, dict[str, Any]]:
    """Return the requested policy, by default the fittest elite, and facts to write beside it."""
    if seed is not None and seed not in run.seeds:
        raise ValueError(
            f"--seed {seed} is not one of this run's: {', '.join(map(str, run.seeds))}"
        )
    index = run.best if seed is None else run.seeds.index(seed)
    result, problem = run.seed(index), run.algorithm.problem
    information: dict[str, Any] = {
        "task": problem.name,
        "algorithm": run.algorithm.name,
        "seed": run.seeds[index],
    }
    if actor:
        if result.actor is None:
            raise ValueError(f"{run.algorithm.name} trains no actor; export an elite instead")
        information["what"] = "the actor"
        if result.actor.conditioned:
            information["what"] = "the actor, conditioned on a descriptor in task units"
            information["descriptor_low"] = list(problem.descriptor_low)
            information["descriptor_high"] = list(problem.descriptor_high)
        return result.actor, information
    if cell is not None:
        elites = {elite.cell: elite for elite in result.archive}
        if cell not in elites:
            total = len(result.archive.arrays.fitness)
            why = "is empty" if 0 <= cell < total else f"does not exist: there are {total}"
            raise ValueError(f"--cell {cell} {why}")
        elite = elites[cell]
    elif descriptor:
        elite = result.archive.nearest(descriptor)
    else:
        elite = result.archive.best()
    reached = [round(float(value), 6) for value in elite.descriptor]
    known = f"fitness {elite.fitness:.6g}, descriptor {reached}"
    information |= {
        "what": f"the elite of cell {elite.cell}, {known}",
        "cell": elite.cell,
        "fitness": elite.fitness,
        "descriptor": reached,
    }
    return elite, information


def network_of(policy: Elite | Actor, information: dict[str, Any]) -> Network:
    """The layers of an elite or of an actor, the scaling of descriptors folded in."""
    if isinstance(policy, Elite):
        layers = networks.unflatten(policy.network, jnp.asarray(policy.policy))
        return Network(_numbers(layers), policy.network.sizes[0], 0, information)
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
    return Network([first, *rest], problem.observation_size, size, information)


def _numbers(layers) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(kernel), np.asarray(bias)) for kernel, bias in layers]


def export(policy: Elite | Actor, path: Path, information: dict[str, Any]) -> float:
    """Write a policy, read it back, compare it with JAX: the largest difference of an action."""
    network = network_of(policy, information)
    write = {".onnx": _write_onnx, ".safetensors": _write_safetensors}[path.suffix]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write(network, temporary)
        return check(policy, network, temporary)


def check(policy: Elite | Actor, network: Network, path: Path) -> float:
    """Compare a file with JAX on 1,000 observations, and descriptors where it takes them."""
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
    run = {".onnx": _run_onnx, ".safetensors": _run_safetensors}[path.suffix]
    error = float(np.max(np.abs(run(path, inputs) - np.asarray(expected))))
    if not error <= TOLERANCE:
        raise RunError(f"{path.name}: the exported policy differs from JAX by {error:.2g}")
    return error


# ------------------------------------------------------------------------------------ safetensors


def _write_safetensors(network: Network, path: Path) -> None:
    from safetensors.numpy import save_file

    tensors = {}
    for i, (kernel, bias) in enumerate(network.layers):
        tensors[f"layers.{i}.kernel"] = np.ascontiguousarray(kernel)
        tensors[f"layers.{i}.bias"] = np.ascontiguousarray(bias)
    information = {
        k: v if isinstance(v, str) else json.dumps(v) for k, v in network.information.items()
    }
    save_file(tensors, path, metadata=information)


def _run_safetensors(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    from safetensors.numpy import load_file

    tensors = load_file(path)
    x = np.concatenate(list(inputs.values()), axis=1)
    for i in range(len(tensors) // 2):
        x = (np.maximum(x, 0) if i else x) @ tensors[f"layers.{i}.kernel"]
        x = x + tensors[f"layers.{i}.bias"]
    return np.tanh(x)


# ------------------------------------------------------------------------------------------- ONNX


def _write_onnx(network: Network, path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def number(name: str, size: int):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])

    inputs = [number("observation", network.observation_size)]
    nodes, value = [], "observation"
    if network.descriptor_size:
        inputs.append(number("descriptor", network.descriptor_size))
        nodes.append(helper.make_node("Concat", ["observation", "descriptor"], ["input"], axis=1))
        value = "input"
    constants = []
    for i, (kernel, bias) in enumerate(network.layers):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(kernel), f"kernel_{i}"))
        constants.append(numpy_helper.from_array(np.ascontiguousarray(bias), f"bias_{i}"))
        nodes.append(helper.make_node("Gemm", [value, f"kernel_{i}", f"bias_{i}"], [f"dense_{i}"]))
        last = i == len(network.layers) - 1
        value = "action" if last else f"hidden_{i}"
        nodes.append(helper.make_node("Tanh" if last else "Relu", [f"dense_{i}"], [value]))
    outputs = [number("action", len(network.layers[-1][1]))]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    # Old versions on purpose: every runtime of recent years reads them.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="elites"
    )
    helper.set_model_props(model, {k: str(v) for k, v in network.information.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _run_onnx(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["action"], inputs)[0])
