"""Settings every test shares.

The suite runs on the CPU, where its bounds were measured and where every machine can run it; set
JAX_PLATFORMS to override. Property tests draw the same examples in every run.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

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


def pytest_collection_modifyitems(items):
    """Keep together, on one worker, the tests that share compiled functions.

    These are the tests of a file, or of the files that step the recorded tasks; where a file walks
    the registry, those of one algorithm or task.
    """
    recorded = (
        "test_reference.py",
        "test_compiled_step.py",
        "test_recordings.py",
        "test_task_table.py",
    )
    for item in items:
        callspec = getattr(item, "callspec", None)
        parameters = callspec.params if callspec else {}
        group = "recordings" if item.path.name in recorded else str(item.path)
        if item.path.name == "test_registry.py":
            group += f":{parameters.get('name') or parameters.get('task')}"
        item.add_marker(pytest.mark.xdist_group(group))
