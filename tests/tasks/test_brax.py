"""Tasks of brax, against the real package: a run from its start to its export, and refusals."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import program
from elites import names, packages, tasks
from elites.runs import evaluation
from elites.tasks import bounds, brax_tasks, simulation

pytest.importorskip("brax", reason="LEFT OUT: needs brax, pip install 'elites[brax]'")

HOPPER = "brax:hopper,episode_length=8"
SMALL = (
    "--preset", "smoke", "--no-figures", "--hp.batch-size", 32, "--hp.cells", 16,
    "--checkpoint-every", 1,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two iterations that was planned for one and resumed."""
    path = tmp_path_factory.mktemp("brax") / "run"
    program.succeed("train", HOPPER, *SMALL, "--evaluations", 64, "--output", path)
    program.edit_json(path / "environment.json", _of_an_older_brax)
    resumed = program.succeed("resume", path, "--evaluations", 96)
    assert "another version of its simulator: brax was 0.1, is" in resumed.stderr
    return path


def _of_an_older_brax(sessions):
    sessions[0]["simulator"]["brax"] = "0.1"


def test_a_run_records_the_simulator_and_resumes(run):
    assert program.checkpoints(run) == [1, 2]
    facts = json.loads((run / "facts.json").read_text())
    assert facts["task"] == HOPPER
    assert facts["repeatable"] is True
    assert facts["descriptor_names"] == ["contact of foot_geom"]
    versions = tasks.versions(tasks.make(HOPPER))
    assert list(versions) == ["brax", "mujoco", "mujoco-mjx"]
    sessions = json.loads((run / "environment.json").read_text())
    assert sessions[1]["simulator"] == versions
    assert facts["fingerprint"]["task"]["simulator"] == versions
    assert f"brax {versions['brax']}, mujoco" in program.succeed("info", run).stdout


def test_re_evaluation_reproduces_the_archive_in_other_rows_of_the_batch(run):
    done = program.succeed("evaluate", run)
    assert evaluation.NOT_REPEATABLE not in done.stdout
    (row,) = program.rows(run / "evaluation" / "metrics.csv")
    assert float(row["descriptor_error"]) == 0.0
    assert row["reevaluated_qd_score"] == row["qd_score"]
    assert float(row["coverage"]) > 1 / 16  # policies lift the foot for different shares of time


def test_a_policy_is_exported(run, tmp_path):
    done = program.succeed("export", run, tmp_path / "hopper.safetensors")
    assert "differs from JAX by" in done.stdout
    assert (tmp_path / "hopper.safetensors").stat().st_size > 0


def test_a_run_of_other_code_is_not_resumed(run):
    def change(facts):
        facts["fingerprint"]["task"]["code"]["step"]["digest"] = "other"

    kept = (run / "facts.json").read_text()
    program.edit_json(run / "facts.json", change)
    try:
        message = program.complaint(program.elites("resume", run), 2)
    finally:
        (run / "facts.json").write_text(kept)
    assert "the code of the task's step is different" in message


# ------------------------------------------------------------------------------------ descriptors


@pytest.mark.parametrize("robot", ["halfcheetah", "humanoid"])  # capsules, spheres
def test_distances_of_feet_are_those_of_brax(robot):
    """Feet in random poses are as far from the ground as brax's own contacts say."""
    sys = brax_tasks._environment(names.parse(f"brax:{robot}"), "spring").sys
    model = sys.mj_model
    feet = [model.geom(name).id for name in brax_tasks.FEET[robot]]
    assert all(brax_tasks._touches_planes_only(model, foot) for foot in feet)
    numbers = np.random.default_rng(0)
    rotation = numbers.normal(size=(sys.num_links(), 4))
    rotation /= np.linalg.norm(rotation, axis=-1, keepdims=True)
    place = numbers.normal(size=(sys.num_links(), 3))

    @jax.jit
    def distances(place, rotation):
        with simulation.in_simulator():
            x = simulation.load("brax.base").Transform(pos=place, rot=rotation)
            contact = simulation.load("brax.contact").get(sys, x)
            of_brax = [
                jnp.where((contact.geom == foot).any(-1), contact.dist, jnp.inf).min()
                for foot in feet
            ]
            return of_brax, [brax_tasks._height(model, foot, x) for foot in feet]

    of_brax, ours = distances(np.float32(place), np.float32(rotation))
    np.testing.assert_allclose(ours, of_brax, atol=1e-5)
    assert np.isfinite(ours).all()


@pytest.mark.parametrize(
    ("name", "axes", "low", "high"),
    [
        ("walker2d", "contact of foot_geom, contact of foot_left_geom", (0, 0), (1, 1)),
        ("hopper,descriptor=final_position", "final x (m)", None, None),
        (
            "ant,descriptor=mean_velocity",
            "mean velocity x (m/s), mean velocity y (m/s)",
            None,
            None,
        ),
        ("hopper,descriptor=mean_height,low=0.5,high=2", "mean height (m)", (0.5,), (2,)),
        (
            "hopper,descriptor=joint_range,joints=leg_joint/foot_joint",
            "range of leg_joint (rad), range of foot_joint (rad)",
            (0, 0),
            (2.61799, 1.570796),
        ),
    ],
)
def test_descriptors_by_name_have_axes_and_bounds(name, axes, low, high):
    task = tasks._simulated(f"brax:{name}")
    assert ", ".join(axis.label for axis in task.descriptor_axes) == axes
    assert bounds.are_known(task) == (low is not None)
    if low is not None:
        np.testing.assert_allclose(task.descriptor_low, low, rtol=1e-5)
        np.testing.assert_allclose(task.descriptor_high, high, rtol=1e-5)


def test_only_the_spring_back_end_promises_to_repeat():
    assert tasks.make("brax:inverted_pendulum,descriptor=joint_range,high=3").repeatable
    other = tasks.make("brax:inverted_pendulum,backend=generalized,descriptor=joint_range,high=3")
    assert not other.repeatable
    assert not tasks.make("brax:inverted_pendulum,random_start=yes,descriptor=joint_range,high=3"
                          ).deterministic  # fmt: skip


def test_unknown_bounds_are_estimated_and_recorded_in_the_name(monkeypatch):
    monkeypatch.setattr(bounds, "POLICIES", 32)
    name = "brax:inverted_pendulum,descriptor=mean_velocity,episode_length=3"
    said = []
    resolved = tasks.resolve(name, said.append)
    found = re.fullmatch(rf"{re.escape(name)},high=([-\d.e]+),low=([-\d.e]+)", resolved)
    assert found, resolved
    assert float(found[2]) < 0 < float(found[1])  # the cart is pushed to either side
    assert said == [
        f"descriptor bounds estimated from 32 random policies: mean velocity x (m/s) {found[2]} to "
        f"{found[1]} (low= and high= in the name of the task choose others)"
    ]
    task = tasks.make(name)
    assert task is tasks.make(resolved)
    assert task.descriptor_high == (float(found[1]),)
    assert task.name == name
    assert tasks.lasting_name(task) == resolved
    assert tasks.is_built_in(task)


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hoper", "brax has no environment 'hoper'. Did you mean 'hopper'?"),
        ("hopper,feet=foot_geom/hand", "there is no geom 'hand'. Geoms: floor, torso_geom, thigh_"),
        ("hopper,descriptor=joint_range,joints=rootx", "there is no joint 'rootx'. Joints: thigh_"),
        ("reacher", "feet_contact needs to know which geoms are feet: add feet=GEOM/GEOM"),
        ("reacher,descriptor=mean_velocity", "first body cannot move in the ground plane"),
        ("hopper,low=0/0", "low has 2 numbers, the descriptor has 1 axes"),
        ("hopper,over=final", "over= is for a descriptor of your own"),
    ],
)
def test_what_brax_does_not_have_is_refused_in_one_line(name, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        tasks.make(f"brax:{name}")
    assert "\n" not in str(refused.value)


def test_a_function_of_ones_own_must_return_a_vector(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "def flat(state): return state.obs[0]\ndef wrong(state): return state.nothing\n"
    )
    with pytest.raises(ValueError, match=r"own\.py:flat must return a vector, got the shape \(\)"):
        tasks.make(f"brax:hopper,descriptor={file}:flat")
    with pytest.raises(ValueError, match=r"own\.py:wrong raised AttributeError: .* line 2\)"):
        tasks.make(f"brax:hopper,descriptor={file}:wrong")
    with pytest.raises(ValueError, match=r"must be a function, but .* has nothing of that name"):
        tasks.make(f"brax:hopper,descriptor={file}:missing")


def test_versions_are_those_that_are_installed():
    assert packages.versions("brax", "no-such-thing").keys() == {"brax"}
    assert packages.changes({"brax": "1", "a": "1"}, {"brax": "2", "b": "1"}) == [
        "brax was 1, is 2"
    ]
