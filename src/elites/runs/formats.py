"""File formats of exported policies: ONNX, safetensors and C. Needs neither JAX nor the run."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from elites import packages
from elites.core import numpy_networks
from elites.core.hyperparameters import Activation
from elites.runs import c_source

_PACKAGES: dict[str, tuple[str, ...]] = {
    ".onnx": ("onnx", "onnxruntime"),
    ".safetensors": ("safetensors",),
    ".c": (),
    ".h": (),
}
"""Endings of file names, and the packages that each format needs."""


@dataclasses.dataclass(frozen=True)
class Network:
    """A policy for export: dense layers, an activation between them, tanh at the end, metadata."""

    layers: list[tuple[np.ndarray, np.ndarray]]  # kernel [inputs, outputs], bias [outputs]
    observation_size: int
    descriptor_size: int  # 0 if the network takes no descriptor
    activation: Activation
    information: dict[str, Any]


def check(path: Path) -> None:
    """Raise a ValueError if a policy cannot be exported to `path`.

    The reason is an unknown suffix, a missing package, or a file that already exists.
    """
    if path.suffix not in _PACKAGES:
        raise ValueError(f"the file must end in .onnx, .safetensors, .c or .h, got '{path}'")
    if path.exists():
        raise ValueError(f"{path} exists already. Choose another name")
    packages.require(*_PACKAGES[path.suffix], extra="export", purpose=f"exporting {path.suffix}")


def write(network: Network, path: Path) -> None:
    """Write a network to `path`, in the format of its suffix: .onnx, .safetensors, .c or .h."""
    writers = {".onnx": _write_onnx, ".safetensors": _write_safetensors}
    writers.get(path.suffix, _write_c)(network, path)


def can_run(path: Path) -> bool:
    """Return whether this machine can run a file: C needs a compiler."""
    return path.suffix not in (".c", ".h") or bool(c_source.compiler())


def run(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in a file and return its actions [N, A].

    `inputs` has the array `observation` [N, ...] and, if the network takes one, `descriptor` [N,
    ...].
    """
    runners = {".onnx": _run_onnx, ".safetensors": _run_safetensors}
    return runners.get(path.suffix, c_source.run)(path, inputs)


def _write_c(network: Network, path: Path) -> None:
    """Write a network as a C file, see `c_source`."""
    path.write_text(c_source.source(network, header=path.suffix == ".h"), "ascii")


# ------------------------------------------------------------------------------------ safetensors


def _write_safetensors(network: Network, path: Path) -> None:
    """Write a network as a safetensors file. Its tensors have names such as `layers.0.kernel`."""
    from safetensors.numpy import save_file

    tensors = {}
    for i, (kernel, bias) in enumerate(network.layers):
        tensors[f"layers.{i}.kernel"] = np.ascontiguousarray(kernel)
        tensors[f"layers.{i}.bias"] = np.ascontiguousarray(bias)
    information = {
        k: v if isinstance(v, str) else json.dumps(v) for k, v in network.information.items()
    }
    save_file(tensors, path, metadata=information | {"activation": network.activation})


def _run_safetensors(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in a safetensors file with NumPy and return its actions [N, A]."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        activation = file.metadata()["activation"]
    count = len(tensors) // 2
    layers = [(tensors[f"layers.{i}.kernel"], tensors[f"layers.{i}.bias"]) for i in range(count)]
    x = np.concatenate(list(inputs.values()), axis=1)
    return numpy_networks.forward(layers, x, activation)


# ------------------------------------------------------------------------------------------- ONNX

_ONNX: dict[str, list[tuple[str, ...]]] = {
    "relu": [("Relu", "{x}")],
    "tanh": [("Tanh", "{x}")],
    "elu": [("Elu", "{x}")],
    "silu": [("Sigmoid", "{x}"), ("Mul", "{x}", "{step}0")],
    "gelu": [  # x (1 + tanh(a (x + b x^3))) / 2
        ("Mul", "{x}", "{x}"), ("Mul", "{step}0", "{x}"), ("Mul", "{step}1", "gelu_b"),
        ("Add", "{step}2", "{x}"), ("Mul", "{step}3", "gelu_a"), ("Tanh", "{step}4"),
        ("Add", "{step}5", "one"), ("Mul", "{step}6", "{x}"), ("Mul", "{step}7", "half"),
    ],
}  # fmt: skip
"""Operators of each activation, and the names of their operands.

{x} is the activation's input, {step}0 the result of the first operator, and so on.
"""
_CONSTANTS = {"one": 1.0, "half": 0.5, "gelu_a": math.sqrt(2 / math.pi), "gelu_b": 0.044715}


def _write_onnx(network: Network, path: Path) -> None:
    """Write a network as an ONNX file, with inputs `observation` and, if needed, `descriptor`."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def number(name: str, size: int):
        """Return the ONNX declaration of an input or output: floats of shape [n, size]."""
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
        steps = _ONNX["tanh" if last else network.activation]
        for j, (operator, *operands) in enumerate(steps):
            names = [name.format(x=f"dense_{i}", step=f"step_{i}_") for name in operands]
            result = value if j == len(steps) - 1 else f"step_{i}_{j}"
            nodes.append(helper.make_node(operator, names, [result]))
    used = {name for node in nodes for name in node.input}
    constants += [
        numpy_helper.from_array(np.array(number, np.float32), name)
        for name, number in _CONSTANTS.items()
        if name in used
    ]
    outputs = [number("action", len(network.layers[-1][1]))]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    # Old versions of the format, which every recent runtime reads.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="elites"
    )
    properties = network.information | {"activation": network.activation}
    helper.set_model_props(model, {k: str(v) for k, v in properties.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _run_onnx(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in an ONNX file with onnxruntime and return its actions [N, A]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["action"], inputs)[0])
