"""Imports point one way: cli -> (study, viewer) -> runs -> training -> (core, tasks) -> physics."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "elites"
FILES = ["words", "output", "references", "trust", "presets"]
FOLDERS = ["physics", "core", "tasks", "training", "runs", "study", "viewer", "cli"]
ORDER = ["words", "output", "references", "trust", "physics", "core", "presets", *FOLDERS[2:]]


def test_nothing_imports_upwards():
    for path in (p for p in SOURCE.rglob("*.py") if p.name not in ("__main__.py",)):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":  # its imports are for users, and lazy
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for other in (name.split(".")[1] for name in names if name.startswith("elites.")):
                message = f"{path}, line {node.lineno}: {part} imports {other}"
                assert ORDER.index(other) <= ORDER.index(part), message
                assert (part, other) != ("viewer", "study"), message


def test_every_part_has_its_place():
    assert {path.parent.name for path in SOURCE.glob("*/*.py")} == set(FOLDERS)
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "__main__", *FILES}
