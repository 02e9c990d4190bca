"""Run the command in a process of its own, and see which heavy packages it loads."""

from __future__ import annotations

import subprocess
import sys

# The last line of stderr names the heavy packages that the command loaded.
WATCHED = """
import atexit, sys
heavy = ("jax", "jaxlib", "matplotlib", "numpy")
atexit.register(lambda: print("loaded:", *[m for m in heavy if m in sys.modules], file=sys.stderr))
from elites.cli import main
sys.exit(main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elites", *arguments], capture_output=True, text=True
    )


def run_watched(*arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a command and also return the heavy packages that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments], capture_output=True, text=True
    )
    *stderr, last = done.stderr.splitlines()
    assert last.startswith("loaded:")
    done.stderr = "\n".join(stderr)
    return done, last.split()[1:]
