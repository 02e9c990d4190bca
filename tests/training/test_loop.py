"""One call trains, a loop of one's own computes the same, and own algorithms train too."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
from elites import presets
from elites.core import map_elites, variation
from elites.core.spec import Spec, Variation
from elites.training import stopping
from small import SMALL

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def run() -> elites.Run:
    seen = []
    run = elites.train(
        "point_omni",
        "dcg_me",
        seeds=(5, 6),
        evaluations=32 * 4,
        progress=lambda i, metrics: seen.append((i, float(metrics["evaluations"][0]))),
        **SMALL,
    )
    assert seen == [(1, 64.0), (2, 96.0), (3, 128.0)]
    return run


def test_metrics_are_named_and_shaped(run):
    assert set(run.metrics) == {
        "qd_score",
        "coverage",
        "max_fitness",
        "evaluations",
        "env_steps",
        "added.ga",
        "added.pg",
        "rejected",
        "critic_loss.conditioned",
        "actor_loss.conditioned",
        "seconds",
    }
    assert all(values.shape == (3, 2) for values in run.metrics.values())
    # 32 offspring and 32 actor rollouts of 25 steps each, at the start and in every iteration.
    np.testing.assert_array_equal(run.metrics["env_steps"][:, 0], [3200, 4800, 6400])


def test_training_equals_a_loop_of_ones_own():
    run = elites.train("point_omni", "me", seeds=(5, 6), evaluations=32 * 3, **SMALL)
    algorithm = elites.build("point_omni", "me", **SMALL)
    key = jax.random.key(5)
    state = jax.jit(algorithm.start)(jax.random.fold_in(key, 0))
    step = jax.jit(algorithm.step)
    for i in (1, 2):
        state, metrics = step(state, jax.random.fold_in(key, i))
    np.testing.assert_allclose(metrics.qd_score, run.metrics["qd_score"][1, 0], rtol=1e-4)


def test_own_algorithm_of_the_docs():
    path = DOCS / "examples" / "own_algorithm.py"
    assert path.read_text() in (DOCS / "your-own-algorithm.md").read_text()
    spec = importlib.util.spec_from_file_location("own_algorithm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.run(elites.Hyperparameters(**SMALL), evaluations=32 * 8)
    assert run.algorithm.offspring == {"ga": 16, "pg": 12, "crossover": 4}
    assert run.metrics["added.crossover"].sum() > 0
    assert "crossover" in {elite.origin for elite in run.archive}


def test_nothing_is_lost_on_the_way_to_names():
    """Two variations of one name would be counted as one: refused."""
    algorithm = elites.build("point_omni", "me", **SMALL)
    for origins in (("ga", "ga"), ("ga", "initial")):
        variations = tuple(Variation(origin, 4, variation.ga) for origin in origins)
        with pytest.raises(ValueError, match="the same origin twice"):
            Spec("twice", algorithm.problem, elites.Hyperparameters(), variations)


def test_hyperparameters_are_given_as_a_record_or_by_name():
    record = elites.Hyperparameters(**SMALL)
    for built in (
        elites.build("point_omni", "me", hp=record),
        elites.build("point_omni", "me", hp=record, cells=17),
        elites.build("point_omni", "me", **SMALL),
    ):
        assert built.batch == SMALL["batch_size"]
    assert elites.build("point_omni", "me", hp=record, cells=17).cells == 17


def test_an_algorithm_is_given_as_a_function():
    def own(problem, hp):
        variations = (Variation("mutation", hp.batch_size, variation.ga),)
        return map_elites.algorithm(Spec("own", problem, hp, variations))

    run = elites.train("point_omni", own, evaluations=32 * 2, **SMALL)
    assert run.algorithm.name == "own"
    assert run.metrics["added.mutation"].shape == (1, 1)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([0, 0], r"seeds must be different from each other, got \[0, 0\]"),
        ([2**32], "a seed must be between 0 and 2\\*\\*32 - 1, got 4294967296"),
        ([-1], "a seed must be between 0"),
        ([], "seeds must be at least 1"),
        (0, "seeds must be at least 1"),
        ([0.5], "seeds must be a whole number, got 0.5"),
    ],
)
def test_seeds_that_are_none_or_not_different_are_refused(seeds, message):
    with pytest.raises(ValueError, match=message):
        elites.train("point_omni", "me", seeds=seeds, evaluations=32 * 2, **SMALL)


# ----------------------------------------------------------------------------------------- presets


def test_a_preset_gives_budget_and_hyperparameters():
    run = elites.train("point_omni", "me", preset="smoke")
    assert run.algorithm.hp == presets.get("smoke").hp
    assert run.metrics["evaluations"][-1, 0] == presets.get("smoke").evaluations


def test_what_is_given_replaces_what_the_preset_says():
    smoke, demo = presets.get("smoke").hp, presets.get("demo").hp
    run = elites.train("point_omni", "me", preset="smoke", evaluations=64, cells=17)
    assert run.algorithm.hp == dataclasses.replace(smoke, cells=17)
    assert run.metrics["evaluations"][:, 0].tolist() == [64]
    assert elites.build("point_omni", "me", preset="demo").hp == demo
    # A record has all numbers, so that nothing is left to the preset.
    assert elites.build("point_omni", "me", preset="demo", hp=smoke, cells=5).hp.batch_size == 32
    assert elites.build("point_omni", "me").hp == elites.Hyperparameters()
    with pytest.raises(ValueError, match=r"unknown preset 'dmo'\. Did you mean 'demo'\?"):
        elites.train("point_omni", preset="dmo")


def test_values_are_judged_beside_those_of_the_preset():
    built = elites.build("point_omni", "dcg_me", preset="smoke", replay_size=50)
    assert (built.hp.replay_size, built.hp.td3_batch_size) == (50, 16)
    with pytest.raises(ValueError, match="replay_size must be at least td3_batch_size"):
        elites.build("point_omni", "dcg_me", preset="smoke", replay_size=15)


def test_hyperparameters_are_kept_as_they_were_given():
    """Also where an algorithm has a default of its own."""
    built = elites.build("ant_omni", "dcrl_me")
    assert built.hp.lengthscale is None
    assert built.main_td3.lengthscale == 0.1
    assert elites.build("ant_omni", "dcg_me", hp=built.hp).main_td3.lengthscale == 0.48
    linear = elites.build("point_omni", "pga_me", policy_hidden=())
    assert linear.policy.sizes == linear.main_td3.actor.sizes == (3, 2)


def test_a_task_is_given_as_a_function():
    made = elites.tasks.make("point_omni")
    assert elites.build(lambda: made, "me", **SMALL).problem.name == "point_omni"
    with pytest.raises(ValueError, match="a function that returns one, got None"):
        elites.build(lambda: None, "me", **SMALL)


# ------------------------------------------------------------------------- callbacks and progress


def test_callbacks_are_called_in_turn_and_may_keep_what_they_get():
    seen = []

    def first(iteration, metrics):
        seen.append(("first", iteration))
        metrics.clear()

    def second(iteration, metrics):
        seen.append(("second", iteration))
        assert metrics["qd_score"].shape == (1,)

    options = {**SMALL, "evaluations": 32 * 3}
    run = elites.train("point_omni", "me", callback=[first, second], **options)
    assert seen == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]
    assert run.metrics["qd_score"].shape == (2, 1)
    elites.train("point_omni", "me", callback=first, **options)
    assert seen[4:] == [("first", 1), ("first", 2)]
    with pytest.raises(
        ValueError, match=r"a callback is a function of \(iteration, metrics\), got 3"
    ):
        elites.train("point_omni", "me", callback=[3], **options)


def test_a_callback_stops_training():
    """By an exception: what tqdm and others return is not meant as an answer."""

    def enough(iteration, metrics):
        if iteration == 2:
            raise elites.StopTraining
        return True

    short = elites.train("point_omni", "me", callback=enough, preset="smoke")
    assert short.metrics["evaluations"][:, 0].tolist() == [64, 96]
    whole = elites.train("point_omni", "me", evaluations=96, preset="smoke")
    np.testing.assert_array_equal(short.archives.policies, whole.archives.policies)


def test_ctrl_c_raises_with_the_run_so_far():
    script = """
import os, signal, elites
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if started by 'command &'
def press(iteration, metrics):
    if iteration == 2:
        os.kill(os.getpid(), signal.SIGINT)
try:
    elites.train("point_omni", "me", preset="smoke", callback=press)
except KeyboardInterrupt as stopped:
    assert isinstance(stopped, elites.TrainingInterrupted)
    print(len(stopped.run.metrics["qd_score"]), len(stopped.run.archive) > 0, stopped)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    raise
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "TrainingInterrupted: training stopped" in done.stderr.splitlines()[-1]
    assert done.stdout.startswith("2 True training stopped after iteration 2 of 9")
    assert "stopping after this iteration; Ctrl-C again to stop now" in done.stderr


def test_a_second_ctrl_c_does_not_wait():
    with stopping.Interrupts() as interrupts:
        interrupts._hold()
        assert interrupts.received
        with pytest.raises(KeyboardInterrupt):
            interrupts._hold()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "lines"),
    [
        (Terminal, None, 1),
        (Terminal, False, 0),
        (Terminal, True, 1),
        (io.StringIO, None, 0),
        (io.StringIO, True, 2),  # the first iteration and the last
    ],
)
def test_progress_is_one_line_on_a_terminal(stream, progress, lines, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setenv("COLUMNS", "200")
    elites.train("point_omni", "me", progress=progress, preset="smoke")
    text = sys.stderr.getvalue()
    assert text.count("\n") == lines
    assert ("9/9" in text) == (lines > 0)
    assert ("\r" in text) == (stream is Terminal and lines > 0)
    assert "320 evaluations" in text or not lines
