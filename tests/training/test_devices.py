"""The devices that seeds are spread over: as many as divide them, and one for each on a CPU."""

from __future__ import annotations

import json

import jax
import pytest

from elites.training import devices
from program import computed
from small import SMALL

COUNT = "import jax; from elites.training import devices; devices.provide(int({})); print({})"


@pytest.mark.parametrize(
    ("seeds", "expected"), [(1, 1), (3, 3), (64, 64), (65, 13), (67, 1), (10_000, 50)]
)
def test_the_cpu_has_a_device_for_each_of_up_to_64_seeds(seeds, expected):
    script = COUNT.format("sys.argv[1]", "jax.local_device_count()")
    assert int(computed(f"import sys; {script}", str(seeds))) == expected


def test_settings_of_the_user_are_kept():
    script = COUNT.format(4, "jax.local_device_count()")
    assert computed(script) == "4"
    assert computed(script, JAX_NUM_CPU_DEVICES="2") == "2"
    assert computed(script, XLA_FLAGS="--xla_force_host_platform_device_count=3") == "3"
    assert computed(f"import jax; jax.devices(); {script}") == "1", "JAX had started"


def test_an_algorithm_that_is_built_before_training_has_a_device_for_each_seed():
    script = """
import elites
from elites.training import train_algorithm
algorithm = elites.build("point_omni", "me", batch_size=8, policy_hidden=(4,), cells=8)
print(train_algorithm(algorithm, seeds=3, evaluations=20, progress=False).devices)
"""
    assert computed(script) == "3"


@pytest.mark.parametrize(
    ("seeds", "available", "wanted", "expected"),
    [
        (4, 1, None, 1),
        (4, 8, None, 4),
        (6, 4, None, 3),
        (7, 4, None, 1),
        (20, 8, None, 5),
        (4, 8, 2, 2),
        (4, 2, 4, 2),  # there are not so many
        (4, 8, 3, 4),  # they do not divide the seeds
        (4, 8, 0, 4),  # of a damaged file
    ],
)
def test_the_seeds_are_spread_evenly(monkeypatch, seeds, available, wanted, expected):
    monkeypatch.setattr(jax, "local_device_count", lambda: available)
    assert devices.devices_for(seeds, wanted) == expected


ALONE = """
import json, sys, jax, numpy as np, elites
from elites import training
from elites.training import devices

name, hp, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
devices.provide(count)
algorithm = elites.build("point_omni", name, **hp)

def trained(seeds):
    batched, keys = training.Batched(algorithm, len(seeds)), training.seed_keys(seeds)
    assert batched.devices == min(len(seeds), count)
    state = batched.start(training.iteration_keys(keys, 0))
    for iteration in (1, 2):
        state, _ = batched.step(state, training.iteration_keys(keys, iteration))
    again = batched.reevaluate(state.archive, algorithm.actor(state), keys)
    return jax.tree.map(np.asarray, (state, again))

together = trained([5, 6, 7])
differing = sum(
    not np.array_equal(many[i], one[0], equal_nan=True)
    for i, alone in enumerate(map(trained, ([5], [6], [7])))
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True)
)
print(json.dumps({"differing": differing, "error": together[1].descriptor_error.tolist()}))
"""


@pytest.mark.parametrize("name", ["dcg_me", "qd_pg", "me_es", "cma_mae"])
def test_on_a_cpu_a_seed_has_the_same_bits_alone_and_among_others(name):
    """The whole state after two iterations, and its re-evaluation."""
    hp = SMALL | {"cma_form": "separable"}  # without linear algebra
    found = json.loads(computed(ALONE, name, json.dumps(hp), "3"))
    assert found == {"differing": 0, "error": [0.0, 0.0, 0.0]}


def test_as_one_batch_the_bits_may_differ_but_an_archive_repeats():
    """If they never differed, the test above would show nothing."""
    found = json.loads(computed(ALONE, "dcg_me", json.dumps(SMALL), "1"))
    assert found["differing"] > 0
    assert found["error"] == [0.0, 0.0, 0.0]


COMBINED = """
import json, sys, warnings
import elites
import jax.numpy as jnp

warnings.simplefilter("ignore")
hp = json.loads(sys.argv[1])
many, few = (
    elites.train("point_omni", "pga_me", seeds=seeds, evaluations=200, progress=False, **hp)
    for seeds in (4, 2)
)
assert (many.devices, few.devices) == (4, 2)
differing = [float(jnp.abs(a[:2] - b).max()) for a, b in (
    (many.archives.descriptors, few.archives.descriptors), (many.actors, few.actors))]
again = many.reevaluate()
elite = next(iter(many.archive))
found = many.rollout(elite)
print(json.dumps({"differing": differing, "errors": again.descriptor_error.tolist(),
                  "rollout": found.fitness - elite.fitness}))
"""


def test_arrays_of_runs_with_different_numbers_of_seeds_can_be_combined():
    """The first two seeds are the same in both. The arrays can still be used by the run."""
    found = json.loads(computed(COMBINED, json.dumps(SMALL)))
    assert found == {"differing": [0.0, 0.0], "errors": [0.0] * 4, "rollout": 0.0}


COMPILED = """
import json, logging, sys, jax, elites
from elites import training
from elites.training import devices

devices.provide(2)
batched = training.Batched(elites.build("point_omni", "dcg_me", **json.loads(sys.argv[1])), 2)
keys, lines = training.seed_keys(range(2)), []
needed = batched.compile(batched.shapes(keys), keys)
state = batched.start(training.iteration_keys(keys, 0))
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("jax").addHandler(handler)
state = batched.placed(jax.device_get(state))  # as when it is read from a checkpoint
with jax.log_compiles():
    for iteration in (1, 2):
        state, _ = batched.step(state, training.iteration_keys(keys, iteration))
held = training.size_in_bytes(state)
compiled = [line for line in lines if line.startswith("Compiling")]
print(json.dumps({"compiled": compiled, "needed": needed, "held": held}))
"""


def test_on_several_devices_too_nothing_is_compiled_during_training():
    found = json.loads(computed(COMPILED, json.dumps(SMALL)))
    assert found["compiled"] == []
    assert found["held"] < found["needed"] < 20 * found["held"], "of both devices together"


def test_memory_of_a_cpu_is_not_divided(monkeypatch):
    from elites.runs import config, job
    from elites.runs.directory import TooLargeError

    asked = config.preset("smoke", "point_omni")
    monkeypatch.setattr(job, "available_memory", lambda: 1000)
    job.refuse_too_much(1000, 4, asked)
    with pytest.raises(TooLargeError, match="on cpu, which has"):
        job.refuse_too_much(1001, 4, asked)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    job.refuse_too_much(4000, 4, asked)
    with pytest.raises(TooLargeError):
        job.refuse_too_much(4004, 4, asked)
