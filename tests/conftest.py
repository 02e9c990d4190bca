"""Settings that all tests share.

The tests run on the CPU, where their tolerances were measured. Set JAX_PLATFORMS to override this.
Property tests draw the same examples in every run.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

import quick

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
# `program.usual_environment` or `quick.usual`.
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

settings.register_profile(
    "suite",
    deadline=None,  # the first example of a test compiles
    derandomize=True,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


# The files that take longest. They start first, so that none of them runs alone at the end.
# `make test-fast` leaves them out.
LONGEST = (
    "test_ask_tell.py",
    "test_view.py",
    "test_algorithms.py",
    "test_kills.py",
    "test_reevaluation.py",
    "test_study.py",
    "test_bad_input.py",
    "test_page.py",
    "test_map_elites.py",
    "test_fuzz.py",
    "test_resume.py",
    "test_gpu_td3.py",
    "test_faults.py",
    "core/test_progress.py",
    "test_server.py",
    "test_determinism.py",
    "test_ray.py",
    "test_output.py",
    "test_docs.py",
    "test_distillation.py",
    "test_distilling.py",
    "test_signals.py",
    "test_action_gradients.py",
    "test_standardisation.py",
    "test_task_table.py",
    "test_saving.py",
    "test_trust.py",
    "test_endings.py",
    "test_finishing.py",
    "test_connections.py",
    "test_export.py",
    "test_fingerprints.py",
    "test_own_algorithms.py",
    "test_gaps.py",
)


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out the files that take longest")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: place_in_order(item.path))
    if config.getoption("--fast"):
        left_out = [item for item in items if place_in_order(item.path) < len(LONGEST)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if place_in_order(item.path) == len(LONGEST)]


def place_in_order(path):
    """Return the index in LONGEST of the file, or the length of LONGEST."""
    matches = (i for i, name in enumerate(LONGEST) if path.match(name))
    return next(matches, len(LONGEST))


@pytest.fixture
def quick_compiler():
    """Compile in less than half the time to slower code, where little is computed."""
    with quick.compiling():
        yield
