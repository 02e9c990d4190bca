"""The notebooks of the documentation: every cell runs, in order, in a process of its own."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from program import environment

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# A cell is compiled under its number, so that the traceback of an error says where it is.
RUN = """
import json, sys
names = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
print("reached the end")
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """The notebooks beside the files that they read, where they may write."""
    place = tmp_path_factory.mktemp("docs")
    for name in ("notebooks", "examples", "results/vectors"):
        shutil.copytree(DOCS / name, place / name)
    return place / "notebooks"


@named
def test_a_notebook_runs_from_top_to_bottom(path, copied):
    if path.stem == "deploying":
        reason = "LEFT OUT: needs safetensors, pip install 'elites[export]'"
        pytest.importorskip("safetensors", reason=reason)
    done = subprocess.run(
        [sys.executable, "-c", RUN, path.name],
        cwd=copied, env=environment(MPLBACKEND="Agg"), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("reached the end\n")
    if "this part was left out" in done.stdout:
        pytest.skip("LEFT OUT: the part of deploying.ipynb that needs a C compiler")


@named
def test_a_notebook_is_committed_without_outputs(path):
    book = json.loads(path.read_text("utf-8"))
    assert (book["nbformat"], book["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert book["cells"][0]["cell_type"] == "markdown"
    assert "".join(book["cells"][0]["source"]).startswith("# ")
    for cell in book["cells"]:
        text = "".join(cell["source"])
        assert max(map(len, text.splitlines())) <= 115
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            ast.parse(text)
        else:
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                assert target.startswith("https:") or (path.parent / target).is_file(), target


def test_the_index_links_to_every_notebook():
    names = {"first_steps", "own_task", "own_algorithm", "compare_curves", "deploying"}
    assert {path.stem for path in NOTEBOOKS} == names
    index = (DOCS / "index.md").read_text("utf-8")
    assert all(f"(notebooks/{name}.ipynb)" in index for name in names)
