"""The documentation: its examples run, it shows the code of the files, its links lead somewhere."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import physics, tasks
from elites.core import networks
from elites.tasks.rollout import evaluate

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))])


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


# ------------------------------------------------------------------------------ your own task


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_task", DOCS / "examples" / "own_task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policies_with_constant_action(network: networks.MLP, actions: list[float]) -> jax.Array:
    """Networks whose weights are all zero but for the bias of the output."""
    rows = np.zeros((len(actions), network.size), np.float32)
    rows[:, -1] = np.arctanh(actions)
    return jnp.asarray(rows)


def test_own_task_page_shows_the_file():
    first = code_blocks(DOCS / "your-own-task.md", "python")[0]
    assert first == (DOCS / "examples" / "own_task.py").read_text("utf-8")


def test_own_task_has_known_outcomes(example):
    task = example.pendulum()
    network = networks.policy(task.observation_size, task.action_size, hidden=(8,))
    policies = policies_with_constant_action(network, [0.0, 0.25, -0.25])
    evaluation = evaluate(task, network, policies, jax.random.key(0), batch=32)

    assert evaluation.valid.all()
    assert (evaluation.steps == task.episode_length).all()
    # Without torque it hangs still for the whole episode, at no cost.
    assert evaluation.fitness[0] == task.episode_length
    np.testing.assert_allclose(evaluation.descriptors[0], [-1.0, 0.0], atol=1e-6)
    # A constant action a costs a^2 a step, lifts the pendulum and moves it, alike on both sides.
    np.testing.assert_allclose(
        evaluation.fitness[1:], task.episode_length * (1 - 0.25**2), rtol=1e-4
    )
    np.testing.assert_allclose(evaluation.descriptors[1], evaluation.descriptors[2], rtol=1e-3)
    assert (evaluation.descriptors[1] > evaluation.descriptors[0] + 1e-3).all()


def test_own_task_obeys_the_work_theorem(example):
    """Energy gained under a constant torque is torque times angle, up to the integrator's error."""
    task = example.pendulum()
    state = task.reset(jax.random.key(0))
    action = jnp.array([0.3])
    step = jax.jit(task.step)
    for _ in range(task.episode_length):
        state = step(state, action)
        angle, speed = (float(value) for value in state.inner)
        energy = speed**2 / 2 + 9.81 * (1 - math.cos(angle))
        assert energy == pytest.approx(5.0 * 0.3 * angle, abs=0.2)


def test_own_task_page_can_be_followed(example, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "_FACTORIES", dict(tasks._FACTORIES))
    names = {"pendulum": example.pendulum}
    for block in code_blocks(DOCS / "your-own-task.md", "python")[1:]:
        exec(block, names)
    assert tasks.make("pendulum") is example.pendulum()
    assert names["evaluation"].fitness.shape == (100,)
    assert "(100, 2)" in capsys.readouterr().out


# ------------------------------------------------------------------------------ body models


@pytest.fixture(scope="module")
def two_links() -> physics.Model:
    return physics.load(DOCS / "examples" / "two_links.json")


def test_body_model_page_shows_the_file():
    (block,) = code_blocks(DOCS / "body-models.md", "json")
    assert block == (DOCS / "examples" / "two_links.json").read_text("utf-8")


def test_body_model_page_can_be_followed(monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    (block,) = code_blocks(DOCS / "body-models.md", "python")
    exec(block, names)
    assert names["sensors"].angles[0] == pytest.approx(math.pi / 2, abs=0.03)


def test_example_model_rests_on_the_ground(two_links):
    # Joints start at the middle of their limits, the lowest collider touches z = 0.
    _, sensors = physics.reset(two_links)
    assert math.degrees(sensors.angles[0]) == pytest.approx(35.0, abs=1e-3)
    assert two_links.rest[2, 0] == pytest.approx(0.1, abs=1e-6)


@pytest.fixture(scope="module")
def moved(two_links):
    """200 steps with one action, from rest."""

    def move(action: jax.Array):
        def body(_, carry):
            return physics.step(two_links, carry[0], action)

        return jax.lax.fori_loop(0, 200, body, physics.reset(two_links))

    return jax.jit(move)


@pytest.mark.parametrize(("action", "degrees"), [(0.0, -20.0), (1.0, 90.0), (-1.0, -20.0)])
def test_example_model_moves_to_its_limits(moved, action, degrees):
    state, sensors = moved(jnp.array([action]))
    assert math.degrees(sensors.angles[0]) == pytest.approx(degrees, abs=2.0)
    assert state[2, 0] == pytest.approx(0.1, abs=0.02)  # the trunk stays on the ground
    assert abs(float(state[1, 0])) < 0.01


def test_joint_velocity_has_the_documented_sign(two_links):
    state, before = physics.reset(two_links)
    step = jax.jit(lambda state, action: physics.step(two_links, state, action))
    state, now = step(state, jnp.array([1.0]))
    assert now.angles[0] > before.angles[0]
    assert now.velocities[0] < 0


@pytest.mark.parametrize(
    ("where", "entry"),
    [
        ("model", {"bodies": [], "nonsense": 0}),
        ("body", {"bodies": [{"name": "a", "nonsense": 0}]}),
        ("collider", {"bodies": [{"name": "a", "colliders": [{"nonsense": 0}]}]}),
        ("joint", {"joints": [{"name": "j", "nonsense": 0}]}),
        ("actuator", {"joints": [], "actuators": [{"name": "m", "nonsense": 0}]}),
    ],
)
def test_body_model_page_names_every_field(where, entry):
    """The fields a reader of the page knows are those that the loader knows."""
    mass = {"mass": 1.0, "inertia": {"x": 1.0, "y": 1.0, "z": 1.0}}
    with pytest.raises(physics.ModelError, match="unknown field 'nonsense'; known: ") as error:
        physics.build({"bodies": [{"name": "a", **mass}], **entry})
    known = str(error.value).partition("known: ")[2].split()
    assert known
    page = (DOCS / "body-models.md").read_text("utf-8")
    documented = {
        word for row in re.findall(r"^\| (`.*?) \|", page, re.M) for word in re.findall(r"\w+", row)
    }
    assert not set(known) - documented, f"{where} fields missing in body-models.md"


# ------------------------------------------------------------------------------ runs and faults


def test_every_fault_names_tests_that_exist():
    page = (DOCS / "faults.md").read_text("utf-8")
    references = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(references) > 30
    for file, name in references:
        (source,) = (ROOT / "tests").glob(f"*/{file}")
        assert f"def {name}(" in source.read_text("utf-8"), f"{file}::{name}"
    numbers = [int(n) for n in re.findall(r"^\| (\d+)\. ", page, re.M)]
    assert numbers == list(range(1, 31))


def test_runs_page_shows_the_file():
    example = (DOCS / "examples" / "run_exported.py").read_text("utf-8")
    assert example in code_blocks(DOCS / "runs.md", "python")


# ------------------------------------------------------------------------------ pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", t).lower().replace(" ", "-") for t in titles}
            assert anchor in anchors, f"{page.name} links to {target}"


def test_index_lists_every_page():
    index = (DOCS / "index.md").read_text("utf-8")
    missing = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert not {name for name in missing if f"({name})" not in index}


def test_readme_example_runs(capsys):
    # The training example is for a GPU; tests/core covers what it calls.
    (block,) = (b for b in code_blocks(ROOT / "README.md", "python") if "evaluate(" in b)
    names = {}
    exec(block, names)
    assert names["evaluation"].valid.all()
    assert capsys.readouterr().out.strip()
