"""Measure how much one has to read to follow an iteration of DCG-MAP-Elites. Prints one JSON line.

    python benchmarks/reading.py [--source DIRECTORY]

Counts the lines of the files that an iteration passes through, finds the longest functions of
`core/`, and counts `Any` in the signatures of `core/` and `training/`. The GPU kernels are left
out, and so is the checking of configuration values. `--source` measures another version.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path

FILES = (
    "types.py", "algorithms.py", "map_elites.py", "variation.py", "td3.py", "archive.py",
    "replay.py", "networks.py", "problem.py", "algorithm.py", "spec.py", "evaluation.py",
    "action_gradients.py",
)  # fmt: skip
LEFT_OUT = ("gpu", "fused.py", "kernels.py", "hyperparameters.py")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions of a file, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def uses_any(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the signature of a function mentions `Any`."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [a for a in (arguments.vararg, arguments.kwarg) if a]
    annotations = [a.annotation for a in named] + [function.returns]
    return any(
        isinstance(node, ast.Name) and node.id == "Any"
        for annotation in annotations
        if annotation is not None
        for node in ast.walk(annotation)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = Path(__file__).parents[1] / "src" / "elites"
    parser.add_argument("--source", type=Path, default=default, help="the package's directory")
    source = parser.parse_args().source
    lines = {
        name: len((source / "core" / name).read_text().splitlines())
        for name in FILES
        if (source / "core" / name).exists()
    }
    core = [p for p in sorted((source / "core").rglob("*.py")) if not set(LEFT_OUT) & set(p.parts)]
    training = sorted((source / "training").rglob("*.py")) or [source / "training.py"]
    sizes = {
        f"{path.name}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in core
        for function in functions(path)
    }
    longest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    with_any = [
        f"{path.name}:{function.name}"
        for path in [*core, *training]
        for function in functions(path)
        if uses_any(function)
    ]
    result = {
        "benchmark": "reading",
        "lines": lines,
        "total": sum(lines.values()),
        "longest_functions": {name: sizes[name] for name in longest},
        "any_in_signatures": len(with_any),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
