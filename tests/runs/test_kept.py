"""Test what is kept for later processes, and when it is computed anew."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import tasks
from elites.runs import kept
from program import environment, succeed


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return an empty folder in which things are kept during a test."""
    monkeypatch.setattr(kept, "_chosen", lambda: str(tmp_path))
    with kept.keeping():
        yield tmp_path


@pytest.fixture
def task():
    return tasks.make("point_omni")


class Counted:
    """A function that counts its calls. JAX calls a function to trace it."""

    def __init__(self, result=1):
        self.calls, self.result = 0, result
        self.__name__ = "counted"

    def __call__(self, *arguments):
        self.calls += 1
        return jnp.sin(arguments[0]) * 3 if arguments else self.result


def test_a_value_is_computed_once(folder, task):
    compute = Counted({"constants": [[0.1, -2.5]], "digest": None})
    found = [kept.value(task, "code", compute) for _ in range(3)]
    assert found == [compute.result] * 3
    assert compute.calls == 1
    assert kept.value(task, "probe", Counted(7)) == 7  # another value
    assert kept.value(tasks.make("arm_reach"), "code", Counted(8)) == 8  # of another task


def test_a_program_is_traced_once_and_computes_the_same_bits(folder, task):
    numbers = np.linspace(-9, 9, 1000, dtype=np.float32)
    trace = Counted()
    shape = jax.ShapeDtypeStruct(numbers.shape, numbers.dtype)
    first, second = (kept.program(task, "sine", trace, shape)(numbers) for _ in range(2))
    assert trace.calls == 1
    np.testing.assert_array_equal(first, jax.jit(Counted())(numbers))
    np.testing.assert_array_equal(first, second)


def test_damaged_files_are_replaced(folder, task):
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)

    def use() -> tuple[int, int]:
        """Return how often the value and the program had to be made."""
        compute, trace = Counted(), Counted()
        assert kept.value(task, "code", compute) == 1
        assert kept.program(task, "sine", trace, shape)(np.zeros(3, np.float32))[0] == 0
        return compute.calls, trace.calls

    assert [use(), use()] == [(1, 1), (0, 0)]
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert len(paths) == 2
    for path in paths:
        path.write_bytes(path.read_bytes()[:-3])
    assert [use(), use()] == [(1, 1), (0, 0)]


def test_nothing_is_kept_of_other_tasks(folder, task):
    own = dataclasses.replace(task)  # the same name, but possibly other code
    compute = Counted()
    for _ in range(2):
        kept.value(own, "code", compute)
    assert compute.calls == 2
    assert not list(folder.iterdir())


def test_nothing_is_kept_outside_of_the_block(tmp_path, monkeypatch, task):
    monkeypatch.setattr(kept, "_chosen", lambda: str(tmp_path))
    kept.value(task, "code", Counted())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("changed", ["sources", "settings", "XLA_FLAGS"])
def test_another_state_of_the_code_is_kept_apart(folder, task, monkeypatch, request, changed):
    assert kept.value(task, "code", Counted("before")) == "before"
    if changed == "sources":
        monkeypatch.setattr(kept, "_sources", lambda: "other files")
    elif changed == "XLA_FLAGS":
        monkeypatch.setenv("XLA_FLAGS", "--xla_another")
    else:
        request.addfinalizer(lambda: jax.config.update("jax_default_matmul_precision", None))
        jax.config.update("jax_default_matmul_precision", "highest")
    assert kept.value(task, "code", Counted("after")) == "after"
    assert len(list(folder.iterdir())) == 2


def test_the_digest_depends_on_every_source_file(tmp_path, monkeypatch):
    package = tmp_path / "elites"
    for name in ("runs/kept.py", "tasks/omni.py", "tasks/models/ant.json"):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1")
    monkeypatch.setattr(kept, "__file__", str(package / "runs" / "kept.py"))
    digest = kept._sources.__wrapped__
    found = {digest()}
    for path in sorted(package.rglob("*.*")):
        path.write_text("x = 2")
        found.add(digest())
    (package / "tasks" / "omni.py").rename(package / "tasks" / "ant.py")
    assert len({*found, digest()}) == 5


def test_only_recent_folders_stay(folder, task, monkeypatch):
    for i in range(6):
        monkeypatch.setattr(kept, "_sources", lambda i=i: f"version {i}")
        kept.value(task, "code", Counted(i))
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert len(list(folder.iterdir())) == 4
    assert kept.value(task, "code", Counted("new")) == 5


def test_a_film_of_a_task_of_elites_is_the_same_from_the_second_time_on(tmp_path):
    run, cache = tmp_path / "run", tmp_path / "cache"
    small = ("--preset", "smoke", "--no-figures", "--evaluations", 64, "--hp.policy-hidden", 8)
    succeed("train", "point_maze", "me", *small, "--output", run)
    environ = environment(cache=False, XDG_CACHE_HOME=str(cache))
    films = []
    for i in range(2):
        films.append(tmp_path / f"{i}.gif")
        options = ("--size", 64, 48, "--speed", 4, "--output", films[-1])
        succeed("render", run, *options, apart=True, environ=environ)
        files = {path for path in cache.rglob("elites-*/*") if path.suffix == ".program"}
        assert len(files) == 1
    assert films[0].read_bytes() == films[1].read_bytes()
