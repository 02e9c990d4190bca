"""The choice of seeds and of runs side by side: memory, completeness, order; the engine's rooms."""

import itertools
import os
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.study import devices, packing
from elites.study.engines import MEMORY_SHARES, LocalEngine
from elites.study.packing import Packing
from elites.study.plan import Plan
from elites.study.study import Item, first_items, open_study

COUNTS = st.integers(1, 60)
SIZES = st.integers(1, 3000)  # megabytes of a seed
MEMORY = st.integers(1000, 160_000)  # megabytes


@given(st.integers(0, 1000), COUNTS, COUNTS)
def test_seeds_are_divided_into_few_runs_of_similar_size(first, seeds, most):
    parts = packing.divided(range(first, first + seeds), most)
    assert list(itertools.chain(*parts)) == list(range(first, first + seeds))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-seeds // most)


@given(COUNTS, SIZES, MEMORY)
def test_as_many_seeds_are_one_run_as_fit(seeds, size, memory):
    most = packing.most_seeds(seeds, size, memory)
    assert 1 <= most <= seeds
    assert most == 1 or packing.fits(most * size, memory, 1)
    fewer = len(packing.divided(range(seeds), most)) - 1
    if fewer and most > 1:  # with one run less, the largest would not fit
        assert not packing.fits(-(-seeds // fewer) * size, memory, 1)
    assert packing.most_seeds(seeds, size, None) == seeds


class Case:
    """Runs of a study with sizes and with times that grow with the runs side by side."""

    def __init__(self, sizes, fixed, growing, memory, wanted):
        algorithms = [f"a{i}" for i in range(len(sizes))]
        self.items = [Item("t", name, 0, 4) for name in algorithms]
        self.size = dict(zip(algorithms, sizes, strict=True))
        self.memory = memory
        self.together = {}
        for item in self.items:
            size = self.size[item.algorithm]
            count = (
                packing.most_together(wanted, size, memory)
                if wanted
                else packing.choose_together(
                    len(sizes), size, memory, lambda k: fixed + growing * k
                )
            )
            self.together["t", item.algorithm] = count


CASES = st.builds(
    Case,
    st.lists(st.integers(1, 60_000), min_size=1, max_size=12),
    st.floats(0.0, 1.0),
    st.floats(0.01, 1.0),
    MEMORY,
    st.one_of(st.none(), st.integers(1, 8)),
)


@given(CASES)
@settings(max_examples=200)
def test_runs_side_by_side_fit_in_memory_and_each_runs_once(case):
    chosen = Packing(1, case.together)
    groups = packing.groups(case.items, chosen)
    assert sorted(item.name for group in groups for item in group) == sorted(
        item.name for item in case.items
    )
    for group in groups:
        if len(group) > 1:
            assert 2 * sum(case.size[item.algorithm] for item in group) <= 0.9 * case.memory
        shares = sum(packing.memory_fraction(chosen.count(item)) for item in group)
        assert shares <= 0.9 + 1e-9
        assert len(group) <= chosen.slots


@given(st.integers(1, 9), st.floats(0.0, 1.0), st.floats(0.001, 1.0))
def test_runs_share_a_gpu_only_if_that_saves_time(runs, fixed, growing):
    def seconds(count):
        return fixed + growing * count

    count = packing.choose_together(runs, 1, 10**6, seconds)
    assert 1 <= count <= min(runs, packing.MOST_TOGETHER)
    if count > 1:
        assert count * seconds(1) / seconds(count) >= 1.2
    else:
        assert runs == 1 or 2 * seconds(1) / seconds(2) < 1.2 or fixed < growing


@pytest.mark.parametrize(
    ("memory", "seconds"), [(None, lambda k: 1.0), (10**6, lambda k: None), (3, lambda k: 1.0)]
)
def test_without_known_memory_or_times_runs_follow_one_another(memory, seconds):
    assert packing.choose_together(8, 1, memory, seconds) == 1


def test_what_was_measured_pays_and_twenty_seeds_do_not():
    """Two runs of four seeds took 0.42 s for 0.27 alone. Forty seeds take twice as long as 20."""
    assert packing.choose_together(2, 1, 10**6, {1: 0.27, 2: 0.42}.get) == 2
    assert packing.choose_together(9, 1, 10**6, {1: 0.766, 2: 1.48, 3: 2.2, 4: 3.0}.get) == 1


# ------------------------------------------------------------------------------------------- cores


@given(COUNTS, SIZES, st.one_of(st.none(), MEMORY), COUNTS)
def test_runs_on_cores_fit_in_memory(runs, size, memory, cores):
    megabyte = 10**6
    found = packing.runs_on_cores(
        runs, size * megabyte, None if memory is None else memory * megabyte, cores
    )
    assert 1 <= found <= min(runs, cores)
    if memory is None:
        assert found == min(runs, cores)
    elif found > 1:  # with a gigabyte for each process
        assert found * (2 * size + 1000) <= 0.9 * memory


def test_the_cores_are_divided():
    def cores(count: int, numbers: tuple[int, ...]) -> list[list[int]]:
        return [devices.divided(numbers, count, device) for device in range(count)]

    assert cores(4, (0, 1, 2, 3)) == [[0], [1], [2], [3]]
    assert cores(2, (0, 1, 2, 4, 6)) == [[0, 2, 6], [1, 4]]
    assert cores(3, (5, 7)) == [[5], [7], [5]]  # more jobs than cores
    assert cores(2, ()) == [[], []]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="LEFT OUT: no choice of cores")
def test_a_worker_uses_the_cores_of_its_device(tmp_path, monkeypatch):
    """Start two real workers, look, and kill them."""
    cores = sorted(os.sched_getaffinity(0))
    made = open_study(tmp_path, Plan(("point_omni",), ("me", "pga_me"), seeds=1, preset="smoke"))
    engine = LocalEngine(Packing(2), cores=cores)
    handles = [engine.start(made, item, "train") for item in made.items()]
    try:
        found = [os.sched_getaffinity(handle._process.process.pid) for handle in handles]
    finally:
        for handle in handles:
            handle._process.kill()
    if len(cores) > 1:
        assert found[0] | found[1] == set(cores)
        assert not found[0] & found[1]
    assert not engine.has_room(made.items()[0])
    assert all(handle.poll() is not None for handle in handles)
    assert engine.has_room(made.items()[0])


def test_seeds_of_a_new_study_are_one_run_unless_told_otherwise():
    plan = Plan(("point_omni",), ("me", "pga_me"), seeds=5, first_seed=10, preset="smoke")
    assert [item.seeds for item in first_items(plan)] == [5, 5]
    split = first_items(plan, {("point_omni", "me"): 2, ("point_omni", "pga_me"): 9})
    assert [(item.algorithm, list(item.seed_numbers)) for item in split] == [
        ("me", [10]),
        ("me", [11, 12]),
        ("me", [13, 14]),
        ("pga_me", [10, 11, 12, 13, 14]),
    ]


def test_an_engine_fills_gpus_and_gives_each_worker_its_share(monkeypatch):
    for name in MEMORY_SHARES:
        monkeypatch.delenv(name, raising=False)
    large, small = Item("t", "large", 0, 4), [Item("t", "small", i, 1) for i in range(3)]
    chosen = Packing(2, {("t", "small"): 2})
    engine = LocalEngine(chosen, ("5", "7"), {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"})
    assert engine.slots == 4
    assert engine._device_for(large) == 0
    engine._running[0].append(large)
    assert not engine._packing.admits([large], small[0])
    for item in small[:2]:
        assert engine._device_for(item) == 1
        engine._running[1].append(item)
    assert not engine.has_room(small[2])
    environment = engine._environment_on(1, small[0])
    assert environment["CUDA_VISIBLE_DEVICES"] == "7"
    assert environment["XLA_CLIENT_MEM_FRACTION"] == "0.450"
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == "/pipes"
    assert "XLA_CLIENT_MEM_FRACTION" not in engine._environment_on(0, large)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.3")  # the user's, by its old name
    assert "XLA_CLIENT_MEM_FRACTION" not in engine._environment_on(1, small[0])
    assert sum(Fraction(1, chosen.count(item)) for item in small[:2]) == 1
