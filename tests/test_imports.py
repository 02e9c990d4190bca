"""Imports point one way: cli -> (study, viewer) -> runs -> training -> (core, tasks) -> physics."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "elites"
FILES = [
    "files", "arrays", "words", "writing", "output", "packages", "loggers", "references", "names",
    "trust", "presets",
]  # fmt: skip
FOLDERS = [
    "physics", "core", "interop", "tasks", "training", "runs", "study", "rendering", "viewer", "cli"
]  # fmt: skip
ORDER = [*FILES[:-1], "physics", "core", "presets", *FOLDERS[2:]]


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


READERS = ("files.py", "arrays.py")
ELSEWHERE = {  # (file, what it calls): files that elites does not write, or that it creates
    ("runs/job.py", "read_text"),  # files of the system about memory
    ("runs/kept.py", "read_text"),  # a file of the system about the processor
    ("study/report.py", "read_text"),  # a file of the package
    ("viewer/api.py", "read_bytes"),  # files of the package
    ("writing.py", "open"),  # the file that was just written, to flush it
}


def test_files_are_read_in_one_place():
    """Every other module asks `elites.files` or `elites.arrays`, which check what they read."""
    found = set()
    for path in (p for p in SOURCE.rglob("*.py") if str(p.relative_to(SOURCE)) not in READERS):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and (name := _reads(node)):
                found.add((path.relative_to(SOURCE).as_posix(), name))
    assert found == ELSEWHERE


def _reads(call: ast.Call) -> str | None:
    """Return the name of the function by which a call reads a file, or None if it reads none."""
    function = call.func
    if isinstance(function, ast.Name):
        modes = [a.value for a in call.args[1:2] if isinstance(a, ast.Constant)]
        return "open" if function.id == "open" and not any(m[0] in "xaw" for m in modes) else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner in ("files", "arrays"):
        return None
    full = f"{owner}.{function.attr}"
    if full in (
        "json.load",
        "np.load",
        "np.loadtxt",
        "csv.reader",
        "csv.DictReader",
        "tomllib.load",
    ):
        return full
    return function.attr if function.attr in ("read_text", "read_bytes") else None
