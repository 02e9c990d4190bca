"""Exported policies: equal to those in JAX, usable without JAX, descriptors in task units."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import elites
from elites.cli import common
from program import complaint, succeed
from program import elites as command

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def loaded(conditioned) -> elites.Run:
    return elites.load(conditioned)


def run_file(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        assert [i.name for i in session.get_inputs()] == list(inputs)
        return np.asarray(session.run(None, inputs)[0])
    from safetensors.numpy import load_file

    tensors = load_file(path)
    x = np.concatenate(list(inputs.values()), axis=1).astype(np.float64)
    count = len(tensors) // 2
    for i in range(count):
        x = x @ tensors[f"layers.{i}.kernel"] + tensors[f"layers.{i}.bias"]
        x = np.tanh(x) if i == count - 1 else np.maximum(x, 0)
    return x


@pytest.mark.parametrize("suffix", ["onnx", "safetensors"])
@pytest.mark.parametrize("which", ["best", "cell", "nearest", "actor"])
def test_an_exported_policy_equals_the_one_in_jax(loaded, conditioned, tmp_path, suffix, which):
    path = tmp_path / f"policy.{suffix}"
    archive = loaded.archive
    asked = np.array([0.3, -0.4], np.float32)
    policy = {
        "best": archive.best(),
        "cell": archive[-1],
        "nearest": archive.nearest(asked),
        "actor": loaded.actor,
    }[which]
    options = {
        "best": (),
        "cell": ("--cell", archive[-1].cell),
        "nearest": ("--descriptor", *asked),
        "actor": ("--actor",),
    }[which]
    done = succeed("export", conditioned, path, *options)
    told = float(re.search(r"differs from JAX by (\S+)", done.stdout)[1])
    assert told <= 1e-5
    observations = np.random.default_rng(1).normal(size=(1000, 3)).astype(np.float32)
    inputs = {"observation": observations}
    if which == "actor":
        descriptors = np.random.default_rng(2).uniform(-1, 1, (1000, 2)).astype(np.float32)
        inputs["descriptor"] = descriptors
        expected = policy(observations, descriptors)
    else:
        expected = policy(observations)
    np.testing.assert_allclose(run_file(path, inputs), expected, atol=1e-5)


def test_descriptors_are_in_task_units(tmp_path):
    """On a task whose bounds are not [-1, 1] the exported actor scales by itself."""
    from elites.runs import export
    from small import SMALL

    built = elites.build("walker_uni", "dcg_me", **SMALL)
    assert built.main_td3 is not None
    generator = np.random.default_rng(0)
    parameters = generator.normal(size=built.main_td3.actor.size).astype(np.float32) / 4
    actor = elites.training.Actor(parameters, built)
    error = export.export(actor, tmp_path / "actor.onnx", {"task": "walker_uni"})
    assert error <= 1e-5
    observations = generator.normal(size=(50, 19)).astype(np.float32)
    asked = generator.uniform(0, 1, (50, 2)).astype(np.float32)
    out = run_file(tmp_path / "actor.onnx", {"observation": observations, "descriptor": asked})
    np.testing.assert_allclose(out, actor(observations, asked), atol=1e-5)
    assert np.abs(out - actor(observations, 1 - asked)).max() > 0.01


def test_the_example_of_the_docs_needs_no_jax(conditioned, tmp_path):
    """The file under docs/examples, run where JAX cannot be imported."""
    example = DOCS / "examples" / "run_exported.py"
    succeed("export", conditioned, tmp_path / "actor.safetensors", "--actor")
    script = "import sys; sys.modules['jax'] = None\n" + example.read_text()
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "actor.safetensors", "0.5", "-0.5"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    action, latency = done.stdout.splitlines()
    assert re.fullmatch(r"\d+\.\d microseconds for one action", latency)
    loaded = elites.load(conditioned)
    assert loaded.actor is not None
    np.testing.assert_allclose(
        json.loads(action), loaded.actor(np.zeros(3), [0.5, -0.5]), atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("policy.txt",), "must end in .onnx, .safetensors, .c or .h"),
        (("p.onnx", "--actor", "--cell", 3), "--cell names an elite"),
        (("p.onnx", "--cell", 99), "does not exist. Cells have the numbers 0 to 31"),
        (("p.onnx", "--seed", 9), "the run has no seed 9. Its seeds are 0, 1"),
        (("p.onnx", "--descriptor", 1, 2, 3), "a descriptor has 2 entries, got 3"),
        (("p.onnx", "--checkpoint", 5), "no checkpoint of iteration 5; kept: 8, 9"),
    ],
)
def test_bad_choices_are_refused(conditioned, tmp_path, options, words):
    name, *rest = options
    line = complaint(command("export", conditioned, tmp_path / name, *rest), 2)
    assert words in line
    assert list(tmp_path.iterdir()) == []


def test_a_descriptor_outside_the_bounds_is_warned_of(conditioned, tmp_path):
    for number, value in enumerate((1.0, 7)):
        done = command("export", conditioned, tmp_path / f"{number}.onnx", "--descriptor", 0, value)
        assert done.returncode == 0, done.stderr
        warned = "--descriptor 0 7 lies outside the bounds of point_omni, -1 to 1 and -1 to 1."
        assert (warned in done.stderr) == (value == 7)


def test_a_cell_without_an_elite_is_warned_of_with_the_distance(conditioned, finished, tmp_path):
    for name, run in (("dcg_me", conditioned), ("me", finished)):
        archive = elites.load(run).archive
        empty = next(cell for cell in range(32) if cell not in archive.cells)
        wanted = np.round(archive.arrays.centroids[empty], 3)
        assert archive.cell_of(wanted) == empty
        target = tmp_path / f"{name}.safetensors"
        done = command("export", run, target, "--descriptor", *wanted)
        assert done.returncode == 0, done.stderr
        nearest = archive.nearest(wanted)
        far = f"{np.linalg.norm(nearest.descriptor - wanted):.4g}"
        option = f"--descriptor {wanted[0]:g} {wanted[1]:g}"
        hint = f". '--actor {option}' takes the distilled policy for this descriptor"
        assert done.stderr == (
            f"elites: warning: the archive has no elite in the cell of {option}. The nearest one, "
            f"of cell {nearest.cell}, has a distance of {far}{hint if name == 'dcg_me' else ''}\n"
        )
        assert f", at a distance of {far}; differs from JAX" in done.stdout


def test_a_nearer_elite_of_a_neighbouring_cell_causes_no_warning(conditioned, loaded, tmp_path):
    archive = loaded.archive
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 2)).round(3)
    cells = [archive.cell_of(point) for point in points]
    wanted = next(
        point
        for point, cell in zip(points, cells, strict=True)
        if cell in archive.cells and archive.nearest(point).cell != cell
    )
    assert not succeed("export", conditioned, tmp_path / "p.c", "--descriptor", *wanted).stderr


@pytest.mark.parametrize(
    ("weights", "units", "text"),
    [
        ((1.0, 1.0), ("m", "m"), "5 m"),
        ((1.0, 1.0), ("share of time",) * 2, "5 (share of time)"),
        ((1.0, 1.0), ("m", "rad"), "5"),
        ((1.0, 1.0), (), "5"),
        ((1.0, 2.0), ("m", "m"), "8.544"),  # one axis is half as long
    ],
)
def test_a_distance_has_the_unit_that_all_axes_share(monkeypatch, weights, units, text):
    facts = {"descriptor_low": [0, 0], "descriptor_units": units}
    monkeypatch.setattr(common.directories, "read_facts", lambda run: facts)
    result, elite = mock.Mock(), mock.Mock(descriptor=np.array([3.0, 0.0], np.float32))
    result.archive.algorithm.problem.weights = weights
    assert common.distance(mock.Mock(), result, elite, (0.0, 4.0)) == text


def test_an_empty_cell_names_cells_with_an_elite(conditioned, tmp_path):
    filled = [elite.cell for elite in elites.load(conditioned).archive]
    empty = next(cell for cell in range(32) if cell not in filled)
    line = complaint(command("export", conditioned, tmp_path / "p.c", "--cell", empty), 2)
    said, _, rest = line.partition(f"cell {empty} is empty. These have an elite: ")
    numbers = [int(number) for number in re.findall(r"\d+", rest)]
    assert said == "elites: "
    assert set(numbers[:-1]) < set(filled)
    assert numbers[:-1] == sorted(filled)[:8]
    assert rest.endswith(f" and {len(filled) - 8} others")


def test_the_cpu_is_used_because_a_gpu_may_be_training(finished, tmp_path):
    with mock.patch("elites.runs.job.choose_device") as chosen:
        succeed("export", finished, tmp_path / "policy.safetensors")
    chosen.assert_called_once_with("cpu")


def test_an_algorithm_without_actor_says_so(finished, tmp_path):
    line = complaint(command("export", finished, tmp_path / "p.onnx", "--actor"), 2)
    assert "me trains no actor" in line
