"""Episodes of Gymnasium environments in worker processes: real processes, which tests also kill."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="LEFT OUT: needs gymnasium")

import own_environments
from elites.core.networks import MLP
from elites.tasks import geoms
from elites.tasks import gymnasium_tasks as family
from elites.tasks.workers import pool
from elites.tasks.workers.descriptors import Choice
from elites.tasks.workers.environment import Environment, Spec

OWN = str(Path(own_environments.__file__).resolve())
BOUNDS = {"low": (-1.0, -1.0), "high": (1.0, 1.0)}
HOPPER = Spec("Hopper-v5", Choice("final_position"), 30)


def own(
    function: str, length: int | None = own_environments.LENGTH, file: str | Path = OWN
) -> Spec:
    sources = ((str(file), Path(file).read_bytes()),)
    return Spec(f"{file}:{function}", Choice(f"{file}:place", over="final"), length, sources)


@pytest.fixture(autouse=True)
def two_workers(monkeypatch):
    monkeypatch.setenv(pool.VARIABLE, "2")


@pytest.fixture(scope="module", autouse=True)
def no_worker_left():
    yield
    pool.close()


def drawn(workers: family.Workers, n: int, hidden: int = 8) -> list[tuple[MLP, np.ndarray]]:
    network = MLP((workers.observation_size, hidden, workers.action_size))
    rows = np.random.default_rng(0).normal(size=(n, network.size)).astype(np.float32)
    return [(network, row) for row in rows]


def workers_of(spec: Spec, **bounds: tuple[float, ...]) -> family.Workers:
    found = family.build("gymnasium:test", spec, bounds or BOUNDS).outside
    assert isinstance(found, family.Workers)
    return found


def arrays(evaluation) -> dict[str, bytes]:
    parts = {**evaluation._asdict(), **evaluation.transitions._asdict()}
    return {name: part.tobytes() for name, part in parts.items() if name != "transitions"}


def act(network: MLP, parameters: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """Return the action of a policy, computed from its definition."""
    x, start = observation.astype(np.float64), 0
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(network.sizes)):
        kernel = parameters[start : start + inputs * outputs].reshape(inputs, outputs)
        start += inputs * outputs
        x = x @ kernel + parameters[start : start + outputs]
        start += outputs
        x = np.tanh(x) if layer == len(network.sizes) - 2 else np.maximum(x, 0)
    return x


# ------------------------------------------------------------------------------- what is computed


def test_an_episode_is_that_of_plain_gymnasium():
    import gymnasium

    workers = workers_of(HOPPER, low=(-1.0,), high=(1.0,))
    [(network, policy)] = drawn(workers, 1)
    found = workers.run([(network, policy)], np.zeros(1), record=True)
    env = gymnasium.make("Hopper-v5", max_episode_steps=30, disable_env_checker=True)
    seen, _ = env.reset(seed=0)
    rewards, places, ended, cut = [], [], False, False
    while not (ended or cut):
        steps = len(rewards)
        places.append(env.unwrapped.data.xpos[1][0])
        recorded = found.transitions
        np.testing.assert_allclose(recorded.observation[steps, 0], seen, rtol=1e-4, atol=1e-5)
        seen, reward, ended, cut, _ = env.step(act(network, policy, seen).astype(np.float32))
        np.testing.assert_allclose(recorded.next_observation[steps, 0], seen, rtol=1e-3, atol=1e-4)
        assert (recorded.done[steps, 0], recorded.truncation[steps, 0]) == (
            ended,
            cut and not ended,
        )
        rewards.append(reward)
    steps = len(rewards)
    assert found.steps[0] == steps
    assert found.transitions.mask[:, 0].tolist() == [True] * steps + [False] * (30 - steps)
    np.testing.assert_allclose(found.fitness[0], sum(rewards), rtol=1e-4)
    np.testing.assert_allclose(found.descriptors[0], env.unwrapped.data.xpos[1][:1], rtol=1e-3)
    np.testing.assert_allclose(
        found.transitions.state_descriptor[:steps, 0, 0], places, rtol=1e-3, atol=1e-5
    )
    assert not found.transitions.observation[steps:].any()


def test_a_recorded_robot_is_where_plain_gymnasium_has_it():
    import gymnasium

    workers = workers_of(HOPPER, low=(-1.0,), high=(1.0,))
    rows = drawn(workers, 2)
    found, poses = workers.record(rows, np.zeros(2))
    assert poses is not None
    assert poses.shape == (31, 2, 4, 7)
    env = gymnasium.make("Hopper-v5", disable_env_checker=True)
    for row, (network, policy) in enumerate(rows):
        seen, _ = env.reset(seed=0)
        model, data = env.unwrapped.model, env.unwrapped.data
        expected = [geoms.poses_of(model, data)]
        for _ in range(found.steps[row]):
            seen, *_ = env.step(act(network, policy, seen).astype(np.float32))
            expected.append(geoms.poses_of(model, data))
        recorded = poses[: found.steps[row] + 1, row]
        np.testing.assert_allclose(recorded, expected, rtol=1e-3, atol=1e-4)
        assert np.ptp(recorded[:, 0, 2]) > 0.01, "the torso moves"
    scene = workers.scene()
    assert scene is not None
    assert scene.to_json() == geoms.scene(model, 0.008, act).to_json()
    assert workers.scene() is scene


def test_robots_are_only_recorded_for_drawing(monkeypatch):
    """A recording changes no result, and training shares no memory for robots."""
    monkeypatch.setenv(pool.VARIABLE, "1")
    workers = workers_of(HOPPER, low=(-1.0,), high=(1.0,))
    rows = drawn(workers, 2)
    recorded, _ = workers.record(rows, np.zeros(2))
    assert workers.scene() is not None
    assert arrays(workers.run(rows, np.zeros(2), record=True)) == arrays(recorded)
    with pool.shared("gymnasium:test", HOPPER) as workers_now:
        [block] = [worker.block for worker in workers_now._workers]
    assert block is not None
    assert block.steps.reward.shape == (30,)
    assert (block.poses.size, block.model.size) == (0, 0)


def test_an_environment_without_a_model_has_nothing_to_draw():
    workers = workers_of(own("point"))
    found, poses = workers.record(drawn(workers, 1), np.zeros(1))
    assert workers.scene() is None
    assert poses is None
    assert found.transitions.mask.all()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice("feet_contact"), ["contact of foot_geom"]),
        (Choice("mean_height"), ["mean height"]),
        (Choice("mean_velocity"), ["mean velocity x"]),
        (Choice("joint_range", joints=("leg_joint",)), ["range of leg_joint"]),
    ],
)
def test_descriptors_by_name_are_those_of_the_simulation(choice, expected):
    """In one process, where the simulation can be looked at between two steps."""
    from elites.tasks.workers import episode

    environment = Environment(Spec("Hopper-v5", choice, 40))
    network = MLP((11, 3))
    policy = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
    data, model = environment.made.unwrapped.data, environment.made.unwrapped.model
    leg, foot = model.joint("leg_joint").qposadr[0], model.geom("foot_geom").id
    seen: list[tuple[float, float, bool, float]] = []

    def acting(observation: np.ndarray) -> np.ndarray:
        touches = any(foot in contact.geom for contact in data.contact if contact.dist <= 0)
        seen.append((data.xpos[1][0], data.xpos[1][2], touches, data.qpos[leg]))
        return act(network, policy, observation).astype(np.float32)

    outcome = episode.run(environment, acting, 0, 40, None)
    acting(np.zeros(11))
    x, height, touches, angle = np.array(seen, float).T
    assert outcome.steps == len(x) - 1 > 5
    values = {
        "feet_contact": touches[1:].mean(),
        "mean_height": height[1:].mean(),
        "mean_velocity": (x[-1] - x[0]) / (outcome.steps * environment.made.unwrapped.dt),
        "joint_range": np.ptp(angle),
    }
    facts = environment.facts()["descriptor"]
    assert list(facts["names"]) == expected
    np.testing.assert_allclose(outcome.descriptor, [values[choice.descriptor]], rtol=1e-6)
    if choice.descriptor == "feet_contact":
        assert 0 < outcome.descriptor[0] < 1
    if choice.descriptor == "joint_range":
        assert (facts["low"], facts["high"]) == ((0.0,), (2.617994,)), "those of its limits"


@pytest.mark.parametrize("name", ["Hopper-v5", "InvertedPendulum-v5", "Reacher-v5"])
def test_joints_are_those_of_other_simulators(name):
    from elites.tasks import descriptors

    environment = Environment(Spec(name, Choice("joint_range"), 5))
    robot: Any = SimpleNamespace(model=environment.made.unwrapped.model)
    expected = descriptors.make("test", robot, {"descriptor": "joint_range"}, None)
    facts = environment.facts()["descriptor"]
    assert (facts["names"], facts["units"]) == (expected.names, expected.units)
    if name == "InvertedPendulum-v5":
        assert facts["names"] == ("range of hinge",), "the cart is the place of the robot"


def test_a_seed_starts_the_episode():
    workers = workers_of(own("seeded_point"))
    policies = drawn(workers, 1) * 3
    found = workers.run(policies, np.array([5, 6, 5], np.uint32), record=True)
    starts = found.transitions.observation[0]
    assert np.array_equal(starts[0], starts[2])
    assert not np.array_equal(starts[0], starts[1])


def test_numbers_that_are_not_finite_make_an_episode_invalid():
    workers = workers_of(own("diverging"))
    policies = drawn(workers, 12)
    found = workers.run(policies, np.zeros(12), record=True)
    assert 0 < found.valid.sum() < 12
    assert np.isfinite(found.fitness).all()
    assert found.steps[~found.valid].max() < own_environments.LENGTH
    for part in found.transitions:
        assert not part[:, ~found.valid].any(), "nobody learns from such episodes"
    assert found.transitions.mask[:, found.valid].all()
    harmless = workers_of(own("point")).run(policies, np.zeros(12), record=True)
    assert np.array_equal(harmless.fitness[found.valid], found.fitness[found.valid])


# --------------------------------------------------------------------------------------- processes


def test_workers_do_not_load_jax():
    code = "import sys, elites.tasks.workers.worker; print([m for m in sys.modules if 'jax' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_results_do_not_depend_on_the_workers(monkeypatch):
    """One worker, two, and two of which three are killed in the middle: the same bits."""
    workers = workers_of(HOPPER, low=(-1.0,), high=(1.0,))
    policies = drawn(workers, 24)
    two = arrays(workers.run(policies, np.zeros(24), record=True))
    monkeypatch.setenv(pool.VARIABLE, "1")
    assert arrays(workers.run(policies, np.zeros(24), record=True)) == two
    with pool.shared("", HOPPER) as shared:
        assert len(shared._workers) == 1
    monkeypatch.setenv(pool.VARIABLE, "2")
    order, orders, killed = pool._order, itertools.count(), []

    def order_and_kill(worker, *arguments):
        sent = order(worker, *arguments)
        if next(orders) in (3, 4, 17):
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGKILL)
        return sent

    monkeypatch.setattr(pool, "_order", order_and_kill)
    assert arrays(workers.run(policies, np.zeros(24), record=True)) == two
    assert len(set(killed)) == 3
    for pid in killed:
        assert not is_alive(pid)


def test_a_worker_that_died_while_idle_is_replaced(tmp_path):
    """By one that runs the same code, even if its file has changed."""
    file = tmp_path / "env.py"
    file.write_bytes("# -*- coding: latin-1 -*-\nNAME = 'é'\n".encode("latin-1"))
    with file.open("ab") as stream:
        stream.write(Path(OWN).read_bytes())
    workers = workers_of(own("point", file=file))
    policies = drawn(workers, 6)
    before = arrays(workers.run(policies, np.zeros(6), record=False))
    file.write_text("raise RuntimeError('this is not what the run started with')")
    with pool.shared("", workers.spec) as shared:
        for worker in shared._workers:
            worker.process.kill()
            worker.process.wait()
    assert arrays(workers.run(policies, np.zeros(6), record=False)) == before


@pytest.mark.parametrize("deadly", [2, 3])
def test_the_third_death_on_one_row_is_an_error(deadly, monkeypatch, tmp_path):
    monkeypatch.setenv(own_environments.DEATHS, str(tmp_path / "deaths"))
    monkeypatch.setenv(own_environments.DEADLY, str(deadly))
    (tmp_path / "deaths").touch()
    workers = workers_of(own("dying"))
    policies = drawn(workers, 1)
    if deadly == 2:
        found = workers.run(policies, np.zeros(1), record=True)
        expected = workers_of(own("point")).run(policies, np.zeros(1), record=True)
        assert arrays(found) == arrays(expected)
        return
    with pytest.raises(ValueError, match="ended 3 times in the same episode") as caught:
        workers.run(policies, np.zeros(1), record=True)
    assert "killed by SIGKILL" in str(caught.value)
    assert "the last words of the simulator" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_environment_whose_process_ends_at_once_is_an_error():
    with pytest.raises(ValueError, match="ended 3 times while making the environment") as caught:
        workers_of(own("dying_at_start"))
    assert "exit status 7; its last lines: cannot open the simulator" in str(caught.value)


def test_a_hung_episode_is_named_and_counts_as_a_death(monkeypatch, capsys):
    workers = workers_of(own("hanging"))
    monkeypatch.setattr(pool, "QUIET", 0.5)
    monkeypatch.setenv(pool.LIMIT, "1")
    message = "3 times in the same episode \\(took longer than ELITES_EPISODE_SECONDS=1\\)$"
    with pytest.raises(ValueError, match=message):
        workers.run(drawn(workers, 3), np.array([0, own_environments.HANGING, 0]), record=False)
    [warning] = capsys.readouterr().err.splitlines()
    assert re.match(
        r"elites: warning: task 'gymnasium:test': no answer for 0.5 seconds, still waiting "
        r"for \d episodes?\. A step of the environment may hang\. ELITES_EPISODE_SECONDS=SECONDS ",
        warning,
    )


@pytest.mark.parametrize("value", ["0", "soon", "nan"])
def test_the_limit_of_an_episode_is_checked(value, monkeypatch):
    monkeypatch.setenv(pool.LIMIT, value)
    with pytest.raises(ValueError, match=f"ELITES_EPISODE_SECONDS must be .* got '{value}'"):
        pool.limit()


def test_what_an_environment_starts_ends_with_its_worker(monkeypatch, tmp_path):
    """A worker that dies, and workers that are closed while a process has their output open."""
    monkeypatch.setenv(own_environments.WAITING, str(tmp_path))
    workers = workers_of(own("starting"))
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 1
    assert is_alive(started[0])
    with pool.shared("", workers.spec) as shared:
        shared._workers[0].process.kill()
    workers.run(drawn(workers, 2), np.zeros(2), record=False)
    until(lambda: not is_alive(started[0]))
    others = [int(path.name) for path in tmp_path.iterdir() if int(path.name) not in started]
    assert any(map(is_alive, others))
    shared.close()
    until(lambda: not any(map(is_alive, others)))


def test_an_error_of_the_environment_is_reported():
    workers = workers_of(own("failing"))
    with pytest.raises(ValueError, match="RuntimeError: the motor is broken") as caught:
        workers.run(drawn(workers, 4), np.zeros(4), record=True)
    assert f"({OWN}, line " in str(caught.value)
    assert "\n" not in str(caught.value)


PARENT = """
import numpy as np
import test_workers
workers = test_workers.workers_of(test_workers.own("waiting"))
workers.run(test_workers.drawn(workers, 2), np.zeros(2), record=False)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """Even in the middle of a step that never ends, and with what environments have started."""
    support = Path(OWN).parent
    environ = os.environ | {
        own_environments.WAITING: str(tmp_path),
        pool.VARIABLE: "2",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(support), str(Path(__file__).parent)]),
    }
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=environ)
    until(lambda: len(list(tmp_path.iterdir())) == 4 or parent.poll() is not None)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 4
    assert all(map(is_alive, workers))
    parent.kill()
    parent.wait()
    until(lambda: not any(map(is_alive, workers)))


def until(condition) -> None:
    """Wait for a condition. Fails if it does not come true in several minutes."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("this should have happened")


def is_alive(pid: int) -> bool:
    """Return whether a process exists that is not only waited for by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Spec("Hoper-v5", Choice("feet_contact")), "'Hoper' doesn't exist. Did you mean: 'Hopper'"),
        (Spec("CartPole-v1", Choice("feet_contact")), "its actions are a Discrete"),
        (Spec("Pendulum-v1", Choice("mean_height")), "it has no MuJoCo model, so it needs a desc"),
        (Spec("Hopper-v5", Choice("feet_contact", ("fot_geom",))), "no geom 'fot_geom' for feet="),
        (Spec("Swimmer-v5", Choice("feet_contact")), "its feet are not known: add feet=NAME/NAME"),
        (Spec("Reacher-v5", Choice("final_position")), "its first body cannot move in the ground"),
        (own("dictionary"), "its observations are a Dict, and elites needs a Box"),
        (own("unbounded"), "its actions have no bounds"),
        (own("point", length=None), "it has no time limit: add ,episode_length=STEPS"),
        (own("nothing"), "must return a gymnasium.Env, got None"),
        (own("absent"), "must be a function, found None"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(spec, message):
    """Here, as a worker would. `test_an_environment_that_is_not_there` asks a worker."""
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        Environment(spec)
    assert "\n" not in str(caught.value)


def test_an_environment_that_is_not_there():
    with pytest.raises(ValueError, match=r"^task 'gymnasium:test': Environment 'Hoper' doe"):
        family.build("gymnasium:test", Spec("Hoper-v5", Choice("feet_contact")), {})


@pytest.mark.parametrize("value", ["0", "two", "-1"])
def test_the_number_of_workers_is_checked(value, monkeypatch):
    monkeypatch.setenv(pool.VARIABLE, value)
    with pytest.raises(ValueError, match=f"ELITES_WORKERS must be .* got '{value}'"):
        pool.count()


def test_the_default_is_a_worker_for_each_core(monkeypatch):
    monkeypatch.delenv(pool.VARIABLE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert pool.count() == 3
