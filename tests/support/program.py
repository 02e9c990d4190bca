"""The real command line, and what its runs look like on disk.

A command runs in this process, which has loaded JAX already, unless what is tested is the process:
that it is killed, gets a signal, does not load JAX, or knows no more than what is on disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

import quick
from elites import references, tasks
from elites.cli import main
from elites.runs import checkpoint

HERE = Path(__file__).parent
SMOKE = ("--preset", "smoke", "--no-figures")
POINT = ("point_omni", "me", *SMOKE)  # compiles fast, saves often
# Networks that compile sooner than the two layers of the preset.
ONE_LAYER = ("--hp.policy-hidden", 8, "--hp.actor-hidden", 8, "--hp.critic-hidden", 8)


def environment(cache: bool = True, **more: str) -> dict[str, str]:
    """Of a process that compiles as this one does."""
    kept = {**os.environ, "JAX_PLATFORMS": "cpu", **more}
    if not cache:
        del kept["JAX_COMPILATION_CACHE_DIR"]
    return kept


def usual_environment() -> dict[str, str]:
    """Of a process with the compiler that users have, not the faster one of the tests."""
    kept = environment()
    for name in ("XLA_FLAGS", quick.OFF):
        kept.pop(name, None)
    return kept


def computed(script: str, *arguments: str, **changes: str) -> str:
    """Run a Python script in a process of its own, and return the last line that it prints.

    The process has the compiler that users have, and environment variables are changed.
    """
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=usual_environment() | changes, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "elites", *map(str, arguments)]


def elites(
    *arguments: object, apart: bool = False, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: here, or apart, in a process of its own."""
    if not apart:
        assert environ is None
        return _here([str(argument) for argument in arguments])
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env=environ or environment(),
        check=False,
    )


def _here(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["elites", *arguments]),
    ):
        code = main()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def forget() -> None:
    """Make this process read files of the user's own again, as another process would."""
    for cached in (references.source, references._module, tasks._from_file):
        cached.cache_clear()


def watched(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that prints, at its end, whether it loaded JAX."""
    script = (
        "import atexit, sys; atexit.register(lambda: print('jax' if 'jax' in sys.modules else ''));"
        "from elites.cli import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


def started(
    *arguments: object,
    environ: dict[str, str] | None = None,
    handled: signal.Signals | None = None,
    ignored: signal.Signals | None = None,
    most_files: int | None = None,
) -> subprocess.Popen[str]:
    """A process that goes on; it begins with one signal handled or ignored, as a parent decides.

    It can have at most `most_files` files open, and cannot raise that limit.
    """
    limit = ("sh", "-c", f'ulimit -n {most_files}; exec "$@"', "sh") if most_files else ()
    how = {handled: signal.SIG_DFL, ignored: signal.SIG_IGN}
    before = {number: signal.signal(number, what) for number, what in how.items() if number}
    try:
        return subprocess.Popen(
            [*limit, *command(*arguments)],
            env=environ or environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def succeed(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    done = elites(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line a failed command ends with; the lines before are those of its progress."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("elites: "), done.stderr
    return last


# ----------------------------------------------------------------------------------------- on disk


def checkpoints(run: Path) -> list[int]:
    return [int(path.name) for path in checkpoint.complete(run / "checkpoints")]


def newest(run: Path) -> Path:
    return checkpoint.complete(run / "checkpoints")[-1]


def arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, every checksum compared."""
    return checkpoint.load(path, (checkpoint.WEIGHTS, checkpoint.STATE)).arrays


def bits(path: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays(path).items()}


def rows(path: Path, without: tuple[str, ...] = ("seconds",)) -> list[dict[str, str]]:
    """The rows of a table, time columns aside."""
    header, *lines = path.read_text().splitlines()
    names = header.split(",")
    table = [dict(zip(names, line.split(","), strict=True)) for line in lines]
    return [{k: v for k, v in row.items() if k not in without} for row in table]


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, and what is in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def edit_json(path: Path, change: Callable[[dict], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
