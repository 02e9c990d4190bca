"""Load scripts of benchmarks/ as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def benchmark(name: str) -> ModuleType:
    """Load the script of this name in benchmarks/, and return it as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
