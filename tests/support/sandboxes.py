"""A directory with one of every file that elites reads, and how to restore it after damage."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import elites
import written
from elites import physics
from elites.cli import main
from elites.study import plan as plans

IN_STUDY = "study/runs/point_omni-me-seeds-0-1"


def prepare(base: Path, run: Path) -> None:
    """Fill a directory with one of every file that elites reads."""
    base.mkdir()
    left_out = shutil.ignore_patterns("figures", "events", "000000008", "kernels")
    shutil.copytree(run, base / "run", symlinks=True, ignore=left_out)
    assert main(["pack", str(base / "run"), "--output", str(base / "packed.zip")]) == 0
    (base / "plan.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me", "dcg_me"]\nseeds = 2\npreset = "smoke"\n'
        "evaluations = 320\n\n[hp]\ncells = 16\n"
    )
    plan = plans.read(str(base / "plan.toml"))
    written.study(base / "study", plan, lambda item, seed, i: float(i + seed))
    shutil.copy(run / "environment.json", base / IN_STUDY)
    (base / "study" / "imported").mkdir()
    rows = "evaluations,metric,value,label,seed\n" + "".join(
        f"{evaluations},qd_score,{evaluations / 10},NAME,{seed}\n"
        for evaluations in (32, 160, 320)
        for seed in (0, 1)
    )
    (base / "study" / "imported" / "other.csv").write_text(rows.replace("NAME", "other"))
    tables = base / "tables" / "point_omni"
    tables.mkdir(parents=True)
    shutil.copy(base / "plan.toml", base / "tables")
    for kind, file in (("", "metrics"), (".reevaluations", "reevaluations")):
        shutil.copy(run / f"{file}.csv", tables / f"me.seeds_0-1{kind}.csv")
    shutil.copy(run / "evaluation" / "cells.csv", tables / "me.seeds_0-1.cells.csv")
    (base / "foreign.csv").write_text(rows.replace("NAME", "foreign"))
    walker = Path(physics.__file__).parents[1] / "tasks" / "models" / "walker.json"
    shutil.copy(walker, base / "body.json")
    elites.ask_tell("point_omni", "me", preset="smoke").save(base / "search.npz")


def restore(base: Path, box: Path) -> None:
    """Make a directory equal to another one, with as little copying as possible."""
    for path in sorted(box.rglob("*"), reverse=True):
        twin = base / path.relative_to(box)
        if not _alike(path, twin):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in sorted(base.rglob("*")):
        twin = box / path.relative_to(base)
        if path.is_symlink():
            if not twin.is_symlink():
                twin.symlink_to(os.readlink(path))
        elif path.is_dir():
            twin.mkdir(exist_ok=True)
        elif not twin.exists():
            shutil.copy2(path, twin)


def _alike(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and os.readlink(one) == os.readlink(other)
    if one.is_dir() or other.is_dir():
        return one.is_dir() and other.is_dir()
    if not (one.is_file() and other.is_file()):
        return False
    a, b = one.stat(), other.stat()
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def digest(folder: Path) -> str:
    """Return a digest of the names and contents of everything in a folder."""
    parts = [
        f"{path.relative_to(folder)} {path.read_bytes() if path.is_file() else ''}"
        for path in sorted(folder.rglob("*"))
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
