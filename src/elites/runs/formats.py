"""File formats of exported policies: ONNX and safetensors. Needs neither JAX nor the run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from elites import packages

_PACKAGES = {".onnx": ("onnx", "onnxruntime"), ".safetensors": ("safetensors",)}


@dataclasses.dataclass(frozen=True)
class Network:
    """A policy for export: dense layers with ReLU between them, tanh at the end, and metadata."""

    layers: list[tuple[np.ndarray, np.ndarray]]  # kernel [inputs, outputs], bias [outputs]
    observation_size: int
    descriptor_size: int  # 0 if the network takes no descriptor
    information: dict[str, Any]


def check(path: Path) -> None:
    """Raise a ValueError if a policy cannot be exported to `path`.

    The reason is an unknown suffix, a missing package, or a file that already exists.
    """
    if path.suffix not in _PACKAGES:
        raise ValueError(f"the file must end in .onnx or .safetensors, got '{path}'")
    if path.exists():
        raise ValueError(f"{path} exists already. Choose another name")
    packages.require(*_PACKAGES[path.suffix], extra="export", purpose=f"exporting {path.suffix}")


def write(network: Network, path: Path) -> None:
    """Write a network to `path`, in the format of its suffix: .onnx or .safetensors."""
    {".onnx": _write_onnx, ".safetensors": _write_safetensors}[path.suffix](network, path)


def run(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in a file and return its actions [N, A].

    `inputs` has the array `observation` [N, ...] and, if the network takes one, `descriptor` [N,
    ...].
    """
    return {".onnx": _run_onnx, ".safetensors": _run_safetensors}[path.suffix](path, inputs)


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
    save_file(tensors, path, metadata=information)


def _run_safetensors(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in a safetensors file with NumPy and return its actions [N, A]."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    x = np.concatenate(list(inputs.values()), axis=1)
    for i in range(len(tensors) // 2):
        x = (np.maximum(x, 0) if i else x) @ tensors[f"layers.{i}.kernel"]
        x = x + tensors[f"layers.{i}.bias"]
    return np.tanh(x)


# ------------------------------------------------------------------------------------------- ONNX


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
        nodes.append(helper.make_node("Tanh" if last else "Relu", [f"dense_{i}"], [value]))
    outputs = [number("action", len(network.layers[-1][1]))]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    # Old versions of the format, which every recent runtime reads.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="elites"
    )
    helper.set_model_props(model, {k: str(v) for k, v in network.information.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _run_onnx(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Run the network in an ONNX file with onnxruntime and return its actions [N, A]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["action"], inputs)[0])
