"""Settings every test shares.

The suite runs on the CPU, where its bounds were measured and where every machine can run it; set
JAX_PLATFORMS to override. Property tests draw the same examples in every run.
"""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Many tests build the same algorithm anew: what one compiled, the next need not.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="elites-tests-"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest
from hypothesis import HealthCheck, settings

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
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
