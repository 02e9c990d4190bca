"""Plain vectors: benchmark functions against NumPy, `elites.optimize`, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites import tasks
from elites.core import evaluation
from elites.tasks import vectors
from elites.tasks.rollout import problem, rollout_policies
from elites.viewer import recording

SHIFT = 2.048


def projected(x):
    with np.errstate(divide="ignore"):
        y = np.where(np.abs(x) > 5.12, 5.12 / x, x)
    half = x.shape[1] // 2
    return np.stack([y[:, :half].sum(1), y[:, half:].sum(1)], 1)


def sphere(x):
    worst = x.shape[1] * (5.12 + SHIFT) ** 2
    return 100 * (1 - ((x - SHIFT) ** 2).sum(1) / worst), projected(x)


def rastrigin(x):
    def height(z):
        return (10 + z**2 - 10 * np.cos(2 * np.pi * z)).sum(1)

    corner = np.full((1, x.shape[1]), -5.12 - SHIFT)
    return 100 * (1 - height(x - SHIFT) / height(corner)), projected(x)


def arm(x):
    heading = np.cumsum(x, 1)
    hand = np.stack([np.cos(heading).sum(1), np.sin(heading).sum(1)], 1)
    return 100 * (1 - x.var(1) / np.pi**2), hand


@pytest.mark.parametrize("function", [sphere, rastrigin, arm])
def test_the_benchmark_functions_are_those_of_the_literature(function):
    task = tasks.make(f"vectors:{function.__name__},dimensions=20")
    x = np.random.default_rng(0).normal(size=(50, 20)) * 4
    fitness, descriptors = jax.vmap(task.vectors.evaluate)(jnp.asarray(x, jnp.float32))
    expected = function(x)
    np.testing.assert_allclose(fitness, expected[0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(descriptors, expected[1], rtol=1e-4, atol=2e-4)
    reach = 20.0 if function is arm else 51.2
    assert task.descriptor_high == (reach, reach)
    if function is not arm:  # the known optimum and the worst corner
        ends = jnp.stack([jnp.full(20, SHIFT), jnp.full(20, -5.12)])
        best = jax.vmap(task.vectors.evaluate)(ends)[0]
        np.testing.assert_allclose(best, [100.0, 0.0], atol=2e-3)


def test_the_jacobian_is_that_of_finite_differences():
    task = tasks.make("vectors:rastrigin,dimensions=6")
    x = np.random.default_rng(1).normal(size=(3, 6)) * 2
    found = evaluation.jacobian(problem(task), jnp.asarray(x, jnp.float32))
    assert found.shape == (3, 3, 6)
    step = 1e-6
    for i in range(6):
        ahead, behind = (rastrigin(x + sign * step * np.eye(6)[i]) for sign in (1, -1))
        slope = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
        np.testing.assert_allclose(found[:, 0, i], slope[0], rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(found[:, 1:, i], slope[1], rtol=1e-4, atol=1e-4)
    assert np.isfinite(evaluation.jacobian(problem(task), jnp.zeros((1, 6)))).all()


def test_an_episode_of_the_task_evaluates_the_vector():
    """The viewer and the checks run episodes, algorithms evaluate batches: both must agree."""
    task = tasks.make("vectors:arm,dimensions=5")
    on = problem(task)
    x = jax.random.normal(jax.random.key(0), (4, 5))
    episodes = rollout_policies(task, on.policy(()), x, jax.random.split(jax.random.key(1), 4))
    fitness, descriptors = jax.vmap(task.vectors.evaluate)(x)
    np.testing.assert_allclose(episodes.fitness, fitness, rtol=1e-6)
    np.testing.assert_allclose(episodes.descriptors, descriptors, rtol=1e-5)


def test_a_vector_of_a_numpy_function_can_be_shown():
    task = vectors.task("own", arm, 4, (-4.0, -4.0), (4.0, 4.0), is_numpy=True)
    x = np.random.default_rng(2).normal(size=4).astype(np.float32)
    asked = recording.RecordingRequest(problem(task).policy(()), x, np.zeros(2, np.float32))
    (found,) = recording.record(task, asked)
    fitness, reached = arm(x[None])
    assert found.fitness == pytest.approx(float(fitness[0]), rel=1e-5)
    assert found.reached == pytest.approx(reached[0].tolist(), rel=1e-5)
    assert (found.steps, found.poses) == (1, None)


def mirrored(x):
    """Fitness with a known best for every descriptor: the second half must be zero."""
    return -jnp.sum(jnp.square(x[1:])), x[:1]


@pytest.mark.parametrize("is_numpy", [False, True])
def test_optimize_finds_the_best_vector_of_every_cell(is_numpy):
    def in_numpy(rows):
        assert isinstance(rows, np.ndarray)
        return -np.square(rows[:, 1:]).sum(1), rows[:, :1]

    run = elites.optimize(
        in_numpy if is_numpy else mirrored, 3, (-1.0,), (1.0,), "me", is_numpy=is_numpy,
        grid=(20,), batch_size=64, evaluations=6400, iso_sigma=0.05, progress=False,
    )  # fmt: skip
    assert run.archive.coverage == 1.0
    assert (run.archive.fitness > -0.01).all()
    again = run.reevaluate()
    assert again.descriptor_error == 0
    assert again.qd_score == pytest.approx(run.archive.qd_score, abs=1e-5)
    best = run.archive.nearest([0.52])
    assert best.policy.shape == (3,)
    assert best.policy[0] == pytest.approx(0.52, abs=0.1)
    np.testing.assert_array_equal(best(np.zeros(0)), best.policy)


def test_the_default_archive_is_a_grid_of_about_ten_thousand_cells():
    def three(x):
        return jnp.sum(x), x[:3]

    run = elites.optimize(
        three, 4, (-1, -1, -1), (1, 1, 1), "me", batch_size=8, evaluations=16, progress=False
    )
    assert run.archives.fitness.shape == (1, 22**3)
    run = elites.optimize(
        three, 4, (-1, -1, -1), (1, 1, 1), "me", batch_size=8, evaluations=16, cells=7,
        progress=False,
    )  # fmt: skip
    assert run.archives.fitness.shape == (1, 7)


def test_vectors_start_where_they_are_told():
    run = elites.optimize(
        mirrored, 3, (-9.0,), (9.0,), "me", start=(5.0, 1.0, 2.0), spread=1e-3, iso_sigma=1e-3,
        grid=(5,), batch_size=8, evaluations=16, progress=False,
    )  # fmt: skip
    assert len(run.archive) == 1
    np.testing.assert_allclose(run.archive[0].policy, [5.0, 1.0, 2.0], atol=0.02)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda x: jnp.sum(x), {}, "must return a fitness of shape"),
        (lambda x: (x, x[:1]), {}, r"got \[\(3,\), \(1,\)\]"),
        (lambda x: (float(x[0]), x[:1]), {}, "cannot be compiled by JAX"),
        (lambda x: (x.sum(1), x[:, 0]), {"is_numpy": True}, r"descriptors of shape \(2, 1\)"),
        (lambda x: 1 / 0, {"is_numpy": True}, "raised ZeroDivisionError"),
        (mirrored, {"start": (1.0, 2.0)}, "start must be 3 finite numbers"),
        (mirrored, {"grid": (2, 2)}, "grid needs one number for each of the 1 descriptor axes"),
        (mirrored, {"algorithm": "dcg_me"}, "dcg_me learns from the steps of episodes"),
        (mirrored, {"normalise_observations": True}, "has no observations"),
    ],
)
def test_what_cannot_be_optimised_is_refused_in_one_line(function, options, message):
    options = {"algorithm": "me", "progress": False, **options}
    with pytest.raises(ValueError, match=message) as refused:
        elites.optimize(function, 3, (-1.0,), (1.0,), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vectors:ackley", "unknown function 'ackley'. Known: sphere, rastrigin, arm"),
        ("vectors:sphere,dimensions=1", "dimensions must be at least 2, got 1"),
        ("vectors:sphere,descriptor=x", "unknown option 'descriptor'"),
    ],
)
def test_a_bad_name_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name)


def test_plain_vectors_need_a_whole_number_of_dimensions():
    with pytest.raises(ValueError, match="dimensions must be a whole number"):
        vectors.task("x", mirrored, 2.5, (0.0,), (1.0,))
