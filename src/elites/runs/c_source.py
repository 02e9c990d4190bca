"""Exported policies as C: one C99 file without dependencies, with the weights in it.

    void policy(const float *observation, float *action);

A policy that takes a descriptor has it as its second argument, in task units. A file that ends in
.h is for `#include`: its function is static. One that ends in .c is a translation unit of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elites.core.hyperparameters import Activation
from elites.files import RunError

if TYPE_CHECKING:
    from elites.runs.formats import Network

ACTIVATIONS: dict[Activation, str] = {
    "relu": "x > 0.0f ? x : 0.0f",
    "tanh": "tanhf(x)",
    "elu": "x > 0.0f ? x : expm1f(x)",
    "gelu": "0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)))",
    "silu": "0.5f * x * (1.0f + tanhf(0.5f * x))",
}
"""Hidden activations of `numpy_networks`, as expressions of x in C."""

_ON_A_LINE = 8  # weights


def source(network: Network, header: bool) -> str:
    """Return the text of the C file of a network, as a header for `#include` or as a unit.

    Raises a ValueError for a network without observations, which C has no arrays for.
    """
    if not network.observation_size:
        raise ValueError("C needs a policy with observations: this task is a plain vector")
    guard = (("#ifndef ELITES_POLICY_H", "#define ELITES_POLICY_H"), ("#endif",))
    opening, closing = guard if header else ((), ())
    lines = [*_comment(network), *opening, "#include <math.h>", "", *_sizes(network), ""]
    lines += _function(network, "static " if header else "")
    return "\n".join([*lines, *closing, ""])


def _comment(network: Network) -> list[str]:
    """Return the comment at the beginning of the file: what the policy is and how to call it."""
    facts = [f"{k}: {json.dumps(v)}" for k, v in network.information.items()]
    text = [
        "Policy exported by elites. C99; link with -lm.",
        *facts,
        "Observations and descriptors are in the units of the task. Actions lie in [-1, 1].",
    ]
    shown = (line.replace("*/", "* /").replace("/*", "/ *").rstrip("\\") for line in text)
    return ["/*", *(f" * {line}" for line in shown), " */"]


def _sizes(network: Network) -> list[str]:
    """Return definitions of the array sizes."""
    sizes = {
        "OBSERVATION": network.observation_size,
        "DESCRIPTOR": network.descriptor_size,
        "ACTION": len(network.layers[-1][1]),
    }
    return [f"#define POLICY_{name}_SIZE {size}" for name, size in sizes.items() if size]


def _function(network: Network, linkage: str) -> list[str]:
    """Return the lines of the function `policy`. Its weights are constants inside of it."""
    asked = "const float *descriptor, " if network.descriptor_size else ""
    inputs = len(network.layers[0][0])
    lines = [f"{linkage}void policy(const float *observation, {asked}float *action)", "{"]
    for i, (kernel, bias) in enumerate(network.layers):
        lines += [*_constant(f"kernel_{i}", kernel), *_constant(f"bias_{i}", bias)]
    widths = [len(bias) for _, bias in network.layers]
    names = ["x0", *(f"x{i + 1}" for i in range(len(widths) - 1)), "action"]
    arrays = [f"{name}[{size}]" for name, size in zip(names, [inputs, *widths[:-1]], strict=False)]
    lines += [f"    float {', '.join(arrays)};"]
    lines += _copied("observation", 0, network.observation_size)
    if network.descriptor_size:
        lines += _copied("descriptor", network.observation_size, network.descriptor_size)
    for i, (kernel, _) in enumerate(network.layers):
        last = i == len(widths) - 1
        activation = ACTIVATIONS["tanh" if last else network.activation]
        lines += _layer(i, names[i], names[i + 1], kernel, activation)
    return [*lines, "}"]


def _copied(name: str, start: int, size: int) -> list[str]:
    """Return the loop that copies an argument of the function to the inputs of the network."""
    return [f"    for (int i = 0; i < {size}; i++) x0[{start} + i] = {name}[i];"]


def _layer(i: int, given: str, out: str, kernel: np.ndarray, activation: str) -> list[str]:
    """Return the loops of the i-th layer, from the array `given` to the array `out`."""
    inputs, outputs = kernel.shape
    return [
        f"    for (int o = 0; o < {outputs}; o++) {out}[o] = bias_{i}[o];",
        f"    for (int i = 0; i < {inputs}; i++)",
        f"        for (int o = 0; o < {outputs}; o++)",
        f"            {out}[o] += {given}[i] * kernel_{i}[i * {outputs} + o];",
        f"    for (int o = 0; o < {outputs}; o++) {{",
        f"        const float x = {out}[o];",
        f"        {out}[o] = {activation};",
        "    }",
    ]


def _constant(name: str, values: np.ndarray) -> Iterator[str]:
    """Yield the lines that define a constant array, in the order of the memory."""
    numbers = [_number(value) for value in values.reshape(-1).tolist()]
    yield f"    static const float {name}[{len(numbers)}] = {{"
    for start in range(0, len(numbers), _ON_A_LINE):
        yield f"        {', '.join(numbers[start : start + _ON_A_LINE])},"
    yield "    };"


def _number(value: float) -> str:
    """Return a float32 as a constant of C, from which a compiler reads the same bits."""
    if not np.isfinite(value):
        raise RunError(f"the policy has a weight that is {value}, which C has no constant for")
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


# ------------------------------------------------------------------------------------- running it

_BATCH = """#include "policy.h"
int action_size(void);
int action_size(void) {{ return POLICY_ACTION_SIZE; }}
void run_batch(const float *observation, const float *descriptor, float *action, int count);
void run_batch(const float *observation, const float *descriptor, float *action, int count)
{{
    (void)descriptor;
    for (int i = 0; i < count; i++)
        policy(observation + i * POLICY_OBSERVATION_SIZE, {asked}action + i * POLICY_ACTION_SIZE);
}}
"""


def compiler() -> list[str]:
    """Return the command of the C compiler, `$CC` or cc. Empty if there is none."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    return command if shutil.which(command[0]) else []


def run(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Compile a C file as a library, run its policy, and return its actions [N, A].

    `inputs` has the array `observation` [N, ...] and, if the policy takes one, `descriptor` [N,
    ...]. Raises a RunError if the file cannot be compiled.
    """
    asked = "descriptor + i * POLICY_DESCRIPTOR_SIZE, " if "descriptor" in inputs else ""
    with tempfile.TemporaryDirectory() as folder:
        unit, library = Path(folder, "batch.c"), Path(folder, "batch.so")
        unit.write_text(_BATCH.format(asked=asked), "ascii")
        shutil.copyfile(path, Path(folder, "policy.h"))  # its own name may need quoting in C
        options = ["-std=c99", "-O1", "-shared", "-fPIC", "-o", str(library), str(unit), "-lm"]
        done = subprocess.run(
            [*compiler(), *options], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["nothing was said"])[0]
            raise RunError(f"{compiler()[0]} cannot compile the exported C file: {said}")
        return _call(ctypes.CDLL(str(library)), inputs)


def _call(library: ctypes.CDLL, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the actions [N, A] of a compiled policy."""
    pointer = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    library.run_batch.argtypes = [pointer, pointer, pointer, ctypes.c_int]
    library.run_batch.restype = None
    seen = np.ascontiguousarray(inputs["observation"], np.float32)
    asked = np.ascontiguousarray(inputs.get("descriptor", np.zeros((1, 1))), np.float32)
    action = np.zeros((len(seen), library.action_size()), np.float32)
    library.run_batch(seen, asked, action, len(seen))
    return action
