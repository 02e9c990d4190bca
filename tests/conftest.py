"""Settings every test shares.

The suite runs on the CPU, where its bounds were measured and where every machine can run it; set
JAX_PLATFORMS to override. Property tests draw the same examples in every run.
"""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Many tests build the same algorithm anew: what one compiled, no other need, be it in another
# worker or in a process that a test starts. They all inherit this from the process that comes first
# and removes it at its end.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="elites-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest
from hypothesis import HealthCheck, settings

import quick

settings.register_profile(
    "suite",
    deadline=None,  # the first example of a test compiles
    derandomize=True,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.fixture
def quick_compiler():
    """Compile in less than half the time to slower code, where little is computed."""
    with quick.compiling():
        yield
