"""Settings that all tests share.

The tests run on the CPU, where their tolerances were measured. Set JAX_PLATFORMS to override this.
Property tests draw the same examples in every run.
"""

import atexit
import collections
import contextlib
import gc
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import quick
import sharing

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.pop("ELITES_DEBUG", None)  # it shows tracebacks instead of messages
# Many tests compile the same programs. All workers, and the processes that tests start, inherit
# this directory, so that each program is compiled once. The first process removes it at its end.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="elites-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
# Files that tests trust are recorded here, not in the home of who runs them.
if "ELITES_TESTS_STATE" not in os.environ:
    os.environ["ELITES_TESTS_STATE"] = tempfile.mkdtemp(prefix="elites-tests-")
    atexit.register(shutil.rmtree, os.environ["ELITES_TESTS_STATE"], ignore_errors=True)
os.environ["XDG_STATE_HOME"] = os.environ["ELITES_TESTS_STATE"]
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")  # inherited by processes of tests

# Most of the time of the tests is spent in XLA's compiler. It takes half as long without its newer
# code generator for fused loops, and without splitting its work. Tests that need the default use
# `program.usual_environment` or `quick.usual`. It takes a fifth of the rest without LLVM's
# optimisations. Tests that need those, or that compute much, use the fixture `optimised`.
os.environ.setdefault(quick.OFF, "1")
QUICK_XLA = f"--{quick.FLAG}=false --xla_cpu_parallel_codegen_split_count=1"


def accepted_by_xla(flags: str) -> bool:
    """Return whether this version of XLA knows the flags. With unknown flags it aborts."""
    script = "import jax; jax.devices()"
    environ = os.environ | {"XLA_FLAGS": flags}
    return not subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, check=False
    ).returncode


if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = QUICK_XLA if accepted_by_xla(QUICK_XLA) else ""

# Processes that tests start write compiled Python files, so that the next one starts sooner.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tracing makes many objects that live long. Looking for garbage among them takes a twentieth of
# the time with Python's own thresholds.
gc.set_threshold(50_000, 20, 100)

settings.register_profile(
    "suite",
    deadline=None,  # the first example of a test compiles
    derandomize=True,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


# ------------------------------------------------------------------------------- order and choice

# Seconds of each test file, as `pytest --write-durations` measured them. Files that take longest
# start first, so that none of them runs alone at the end.
DURATIONS = Path(__file__).parent / "data" / "durations.json"
FAST = 90  # seconds of all files of `make test-fast` together, on one core


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out the files that take longest")
    parser.addoption(
        "--write-durations", action="store_true", help=f"measure the files into {DURATIONS.name}"
    )


def pytest_configure(config):
    if config.getoption("--write-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


def pytest_collection_modifyitems(config, items):
    seconds = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0))
    if config.getoption("--fast"):
        kept = fast_files({file_of(item.nodeid) for item in items}, seconds)
        left_out = [item for item in items if file_of(item.nodeid) not in kept]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if file_of(item.nodeid) in kept]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def fast_files(files: set[str], seconds: dict[str, float]) -> set[str]:
    """Return the files that take least, which together take at most FAST seconds."""
    order = sorted(files, key=lambda file: (seconds.get(file, 0), file))
    totals = itertools.accumulate(seconds.get(file, 0) for file in order)
    return {file for file, total in zip(order, totals, strict=True) if total <= FAST}


class Stopwatch:
    """Plugin that measures how long each test file takes."""

    def __init__(self):
        self.seconds = collections.Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self):
        rounded = {file: round(value, 1) for file, value in sorted(self.seconds.items())}
        DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")


@pytest.fixture(scope="session", autouse=True)
def _shared():
    """Compile each algorithm once, see tests/support/sharing.py.

    The CPU is one device in this process, whichever test asks first. Processes that tests start
    have a device for each seed, as users do.
    """
    import jax

    with contextlib.suppress(RuntimeError):  # started while the tests were collected
        jax.config.update("jax_num_cpu_devices", 1)
    sharing.install()


@pytest.fixture
def unshared():
    """Compile anew what this test builds: for tests of what is compiled when."""
    with sharing.paused():
        yield


@pytest.fixture
def optimised():
    """Compile with LLVM's optimisations: for bits as users see them, or for much to compute."""
    with quick.optimising():
        yield
