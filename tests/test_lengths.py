"""A function fits on a screen."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST = 60  # lines of a function, with its docstring
LONGER = {"update", "export"}
"""Functions that are longer: a GPU kernel, and a command with many options and their help."""


def test_no_function_is_longer_than_a_screen():
    long = {
        node.name: f"{path.relative_to(SOURCE)}, line {node.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST
    }
    assert {name: where for name, where in long.items() if name not in LONGER} == {}
