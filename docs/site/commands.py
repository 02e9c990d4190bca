"""Write docs/commands.md, the reference of all commands, from their own --help.

    python docs/site/commands.py             # write the page
    python docs/site/commands.py --check     # exit with 1 if the page is not current

`make docs` writes it. The help is printed by the real command in a process of its own, so this
script does not depend on how the command line is built.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "commands.md"
TITLES = {"positional arguments": "argument", "options": "option", "hp options": "hyperparameter"}
RULE = "─"  # of the frames that help is printed in

# Prints one JSON list with the help of each command line it is given, without loading elites anew.
PRINTER = """
import contextlib, io, json, runpy, sys
pages = []
for line in json.load(sys.stdin):
    sys.argv, out = ["elites", *line, "--help"], io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        runpy.run_module("elites", run_name="__main__")
    out.flush()
    pages.append(out.buffer.getvalue().decode())
print(json.dumps(pages))
"""

INTRODUCTION = """\
# Commands

`elites COMMAND --help` prints the options of a command. This page is generated from that help.

| command | what it does |
|---|---|
"""


def help_of(*commands: list[str]) -> list[str]:
    """Return what each command line prints with --help."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRINTER], input=json.dumps(commands), env=environment,
        capture_output=True, text=True, check=True, encoding="utf-8",
    )  # fmt: skip
    return json.loads(done.stdout)


def page() -> str:
    """Return the whole page."""
    (overview,) = help_of([])
    listed = overview.partition("commands:\n")[2].partition("\n\n")[0]
    summaries = dict(line.split(maxsplit=1) for line in listed.splitlines())
    text = INTRODUCTION
    text += "".join(f"| [`{name}`](#{name}) | {escaped(s)} |\n" for name, s in summaries.items())
    names = list(summaries)
    for name, printed in zip(names, help_of(*([name] for name in names)), strict=True):
        text += "\n" + section(name, printed)
    return text


def section(name: str, printed: str) -> str:
    """Return the section of one command."""
    lines = printed.splitlines()
    usage = lines[0].removeprefix("usage: ")
    head = itertools.takewhile(lambda line: not line.startswith("╭"), lines[1:])
    summary = "\n".join(line.strip() for line in head).strip()
    text = f"## {name}\n\n{summary}\n\n```text\n{usage}\n```\n"
    for title, entries in boxes(lines):
        rows = [row(entry) for entry in entries if not entry.startswith("-h, --help")]
        if rows:
            head = f"| {TITLES.get(title, title)} | default | meaning |"
            text += f"\n{head}\n|---|---|---|\n{''.join(rows)}"
    return text


def boxes(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Find the framed parts of a help: a title, and entries of one line each."""
    title, entries = "", []
    for line in lines:
        if line.startswith("╭"):
            title, entries = line.strip(f"╭╮{RULE} "), []
        elif line.startswith("╰"):
            yield title, entries
        elif line.startswith("│"):
            inside = line.strip("│").removeprefix(" ").rstrip()
            if inside.startswith(RULE):
                entries.clear()  # what stood above the rule describes the part
            elif inside.startswith(" "):
                entries[-1] += "  " + inside.strip()
            elif inside:
                entries.append(inside)


def row(entry: str) -> str:
    """Return the row of one option: its name and what it takes, its default, its meaning."""
    name, _, meaning = re.sub(r"  +", "\0", entry).replace("\0", "\n", 1).partition("\n")
    meaning = re.sub(r"\s+", " ", meaning.replace("\0", " "))
    default = re.search(r" ?\((?:default: (?P<value>.*?)|(?P<required>required))\)$", meaning)
    stated = ""
    if default:
        meaning = meaning[: default.start()]
        stated = "required" if default["required"] else default["value"]
    name = name.replace("{None}|", "").replace("{None,", "{")
    if re.fullmatch(r"\S+( [\d.]+)*", stated) and stated != "required":
        stated = "" if stated == "None" else f"`{stated}`"  # a value, not words
    return f"| `{escaped(name)}` | {stated} | {escaped(meaning)} |\n"


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv:
        current = PAGE.read_text("utf-8") == text
        print("current" if current else f"{PAGE} is not current: run python {sys.argv[0]}")
        return 0 if current else 1
    if not PAGE.exists() or PAGE.read_text("utf-8") != text:
        PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
