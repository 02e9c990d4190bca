"""TD3: similarity and target by hand, ten steps against a NumPy implementation of the equations.

The reference (`td3_reference.py`) works in 64 bits with its own back-propagation and Adam, on the
same batches and noise. Rates are larger than the paper's, so that ten steps change the networks.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import td3
from elites.core.networks import MLP
from td3_reference import Learner

S, A, D, N, TURNS = 4, 2, 2, 16, 5


def learner(conditioned=True, actor_conditioned=True, **changes) -> td3.TD3:
    return td3.TD3(
        **{
            "actor": MLP((S + D * actor_conditioned, 8, A)),
            "critic": MLP((S + A + D * conditioned, 9, 1), output="linear"),
            "actor_conditioned": actor_conditioned,
            "critic_conditioned": conditioned,
            "actor_rate": 1e-2,
            "critic_rate": 1e-2,
            "discount": 0.9,
            "target_rate": 0.1,
            "smoothing_noise": 0.3,
            "smoothing_clip": 0.4,
            "delay": 2,
            "steps": 2 * TURNS,
            "batch_size": N,
            "lengthscale": 0.5,
            **changes,
        }
    )


# ------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("d", "target", "lengthscale", "expected"),
    [
        # |(0, 0) - (0.3, -0.4)| = 0.5, so exp(-0.5 / 0.1) = exp(-5) = 0.006737947
        ((0.0, 0.0), (0.3, -0.4), 0.1, 0.006737947),
        # the same distance with l = 0.5: exp(-1) = 0.367879441
        ((0.1, 0.1), (0.4, -0.3), 0.5, 0.367879441),
        # |(-1, -1) - (1, 1)| = sqrt(8) = 2.828427; exp(-2.828427 / 0.48) = exp(-5.892557)
        ((-1.0, -1.0), (1.0, 1.0), 0.48, 0.002759887),
        ((0.25, -0.5), (0.25, -0.5), 0.008, 1.0),
        # no descriptor at all: the distance is an empty sum
        ((), (), 0.1, 1.0),
    ],
)
def test_similarity_by_hand(d, target, lengthscale, expected):
    value = td3.similarity(jnp.array([d]), jnp.array([target]), lengthscale)
    assert value.shape == (1,)
    np.testing.assert_allclose(value[0], expected, rtol=1e-5)


def test_similarity_is_symmetric_and_falls_with_distance():
    a, b = np.float32([[0.2, 0.1]]), np.float32([[0.2, 0.4]])
    assert td3.similarity(a, b, 0.1) == td3.similarity(b, a, 0.1)
    assert td3.similarity(a, b, 0.1) > td3.similarity(a, b + 0.1, 0.1)


def hand_made(conditioned: bool):
    """One observation, one action; the actor is tanh(wide s), saturated at s = +-1 and 0 at s = 0.

    Q'_1(s, a | d') = s + 2 a + 3 d'_x + 0.5        Q'_2(s, a | d') = 4 a + 2
    """
    config = learner(
        conditioned,
        actor_conditioned=False,
        actor=MLP((1, 1)),
        critic=MLP((2 + D * conditioned, 1), output="linear"),
        discount=0.9,
        smoothing_noise=0.2,
        smoothing_clip=0.5,
        lengthscale=0.5,
    )
    extra = [3.0, 0.0] * conditioned, [0.0, 0.0] * conditioned
    critics = jnp.array([[1.0, 2.0, *extra[0], 0.5], [0.0, 4.0, *extra[1], 2.0]])
    state = td3.TD3State(
        actor=jnp.full(2, jnp.nan),  # only targets may be used
        target_actor=jnp.array([100.0, 0.0]),
        critics=jnp.full_like(critics, jnp.nan),
        target_critics=critics,
        actor_moments=(),
        critic_moments=(),
    )
    return config, state


def test_target_by_hand():
    # columns: next observation, standard noise, reward, done, d, d', y
    rows = [
        # a = 0 + 0.2 * 1 = 0.2; Q1 = 0 + 0.4 + 0.3 + 0.5 = 1.2, Q2 = 0.8 + 2 = 2.8, min 1.2
        # S = exp(-0.5 / 0.5) = 0.36787944; y = 0.36787944 * 2 + 0.9 * 1.2 = 1.81575888
        (0.0, 1.0, 2.0, 0.0, (0.4, 0.4), (0.1, 0.0), 1.81575888),
        # noise 0.2 * 10 = 2 is cut at 0.5: a = 0.5; Q1 = 1 + 0.5 = 1.5, Q2 = 4, min 1.5
        # S = 1; y = 1 + 0.9 * 1.5 = 2.35
        (0.0, 10.0, 1.0, 0.0, (0.0, 0.7), (0.0, 0.7), 2.35),
        # the same with noise -10: a = -0.5; Q1 = -1 + 0.5 = -0.5, Q2 = -2 + 2 = 0, min -0.5
        # y = 1 - 0.45 = 0.55
        (0.0, -10.0, 1.0, 0.0, (0.0, 0.7), (0.0, 0.7), 0.55),
        # a = tanh(100) + 0.4 is cut at 1: Q1 = 1 + 2 + 3 + 0.5 = 6.5, Q2 = 6, min 6 (the second)
        # S = exp(-1 / 0.5) = 0.13533528; y = 0.13533528 * -3 + 0.9 * 6 = 4.99399415
        (1.0, 2.0, -3.0, 0.0, (1.0, 1.0), (1.0, 0.0), 4.99399415),
        # a = tanh(-100) - 0.4 is cut at -1: Q1 = -1 - 2 + 0 + 0.5 = -2.5, Q2 = -4 + 2 = -2,
        # min -2.5; y = 5 - 2.25 = 2.75
        (-1.0, -2.0, 5.0, 0.0, (0.0, 0.0), (0.0, 0.0), 2.75),
        # a = tanh(-100) + 0.2 = -0.8, inside: Q1 = -1 - 1.6 + 0.3 + 0.5 = -1.8,
        # Q2 = -3.2 + 2 = -1.2, min -1.8; y = 1 - 1.62 = -0.62
        (-1.0, 1.0, 1.0, 0.0, (0.1, 0.2), (0.1, 0.2), -0.62),
        # done: nothing follows; S = exp(-0.1 / 0.5) = 0.81873075; y = 4 * 0.81873075
        (1.0, 0.0, 4.0, 1.0, (0.0, 0.0), (0.0, 0.1), 3.27492301),
    ]
    observation, noise, reward, done, d, target, expected = (
        np.float32(column) for column in zip(*rows, strict=True)
    )
    config, state = hand_made(conditioned=True)
    batch = td3.Batch(
        observation=np.full((len(rows), 1), np.nan, np.float32),
        action=np.full((len(rows), 1), np.nan, np.float32),
        reward=reward,
        next_observation=observation[:, None],
        done=done,
        truncation=np.zeros(len(rows), np.float32),
        descriptor=d,
        target=target,
    )
    y = jax.jit(td3.critic_target, static_argnums=0)(config, state, batch, noise[:, None])
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_target_without_descriptors_is_that_of_plain_td3():
    """Width 0: the similarity is 1. a = 0.2; Q1 = 0.4 + 0.5 = 0.9, Q2 = 2.8; y = 2 + 0.81"""
    config, state = hand_made(conditioned=False)
    batch = td3.Batch(
        observation=jnp.zeros((1, 1)),
        action=jnp.zeros((1, 1)),
        reward=jnp.array([2.0]),
        next_observation=jnp.zeros((1, 1)),
        done=jnp.zeros(1),
        truncation=jnp.zeros(1),
        descriptor=jnp.zeros((1, 0)),
        target=jnp.zeros((1, 0)),
    )
    y = jax.jit(td3.critic_target, static_argnums=0)(config, state, batch, jnp.array([[1.0]]))
    np.testing.assert_allclose(y, [2.81], rtol=1e-6)


def test_a_transition_cut_by_the_time_limit_is_no_error():
    """Q1 = s + 2 a + 0.5 and Q2 = 4 a + 2 at (1, 0.5): 2.5 and 4; at (0, 0): 0.5 and 2.

    With y = (2, 1): squares (0.25, 0.25) and (4, 1), means 0.25 and 2.5, sum 2.75. With the first
    row cut, (0, 0.25) and (0, 1) over the same two rows: 0.125 + 0.5 = 0.625.
    """
    config, state = hand_made(conditioned=False)
    batch = td3.Batch(
        observation=jnp.array([[1.0], [0.0]]),
        action=jnp.array([[0.5], [0.0]]),
        reward=jnp.zeros(2),
        next_observation=jnp.zeros((2, 1)),
        done=jnp.zeros(2),
        truncation=jnp.zeros(2),
        descriptor=jnp.zeros((2, 0)),
        target=jnp.zeros((2, 0)),
    )
    loss = jax.jit(td3.critic_loss, static_argnums=0)
    y = jnp.array([2.0, 1.0])
    np.testing.assert_allclose(loss(config, state.target_critics, batch, y), 2.75, rtol=1e-6)
    cut = batch._replace(truncation=jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(loss(config, state.target_critics, cut, y), 0.625, rtol=1e-6)


def test_sampled_negatives_by_hand():
    """Three transitions become six: for their own d, then for those in reverse order."""
    d = np.float32([[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]])
    number = np.arange(6, dtype=np.float32).reshape(2, 3)
    batches = td3.Batch(
        observation=number[..., None],
        action=number[..., None] + 10,
        reward=number + 20,
        next_observation=number[..., None] + 30,
        done=number + 40,
        truncation=number + 50,
        descriptor=d,
        target=np.full_like(d, np.nan),  # what was stored as target plays no part
    )
    made = td3.with_negatives(batches)
    np.testing.assert_array_equal(
        made.target,
        [
            [[1, 2], [3, 4], [5, 6], [5, 6], [3, 4], [1, 2]],
            [[7, 8], [9, 10], [11, 12], [11, 12], [9, 10], [7, 8]],
        ],
    )
    np.testing.assert_array_equal(made.reward, [[20, 21, 22] * 2, [23, 24, 25] * 2])
    for field in ("observation", "action", "next_observation", "done", "truncation", "descriptor"):
        once = getattr(batches, field)
        np.testing.assert_array_equal(getattr(made, field), np.concatenate([once, once], 1))


def test_a_batch_is_built_from_columns_by_name():
    """Columns of width 1 lose their axis. Without descriptors their width is 0."""
    rng = np.random.default_rng(0)
    widths = {
        "target": D, "observation": S, "done": 1, "action": A, "truncation": 1, "reward": 1,
        "next_observation": S, "descriptor": D, "state_descriptor": D,
    }  # fmt: skip
    columns = {name: rng.normal(size=(3, N, width)) for name, width in widths.items()}
    batch = td3.Batch.of_columns(columns, conditioned=True)
    for name, values in batch._asdict().items():
        expected = columns[name][..., 0] if widths[name] == 1 else columns[name]
        np.testing.assert_array_equal(values, expected)
    # A learner that is not conditioned gets none, even if another one's are stored.
    batch = td3.Batch.of_columns(columns, conditioned=False)
    assert batch.descriptor.shape == batch.target.shape == (3, N, 0)
    np.testing.assert_array_equal(batch.observation, columns["observation"])


def test_sampled_negatives_halve_the_rows_to_sample():
    assert learner().sampled_rows == N
    assert learner(sampled_negatives=True).sampled_rows == N // 2


# ------------------------------------------------------------------------------- many steps


def random_batches(config, steps, n=N, seed=0):
    """Return batches [steps, n, ...] and noise. A third of the rows is done, a third truncated."""
    rng = np.random.default_rng(seed)
    d = rng.uniform(-1, 1, (steps, n, D if config.critic_conditioned else 0))
    kind = rng.integers(0, 3, (steps, n))
    assert len(set(kind.reshape(-1))) == 3
    batches = {
        "observation": rng.normal(size=(steps, n, S)),
        "action": rng.uniform(-1, 1, (steps, n, A)),
        "reward": rng.normal(size=(steps, n)),
        "next_observation": rng.normal(size=(steps, n, S)),
        "done": (kind == 1).astype(float),
        "truncation": (kind == 2).astype(float),
        "descriptor": d,
        # half of them asked for what they reached
        "target": np.where(rng.random((steps, n, 1)) < 0.5, d, d + 0.3 * rng.normal(size=d.shape)),
    }
    return {k: np.float32(v) for k, v in batches.items()}, np.float32(
        rng.normal(size=(steps, n, A))
    )


def reference_of(config, state):
    return Learner(config, np.float64(state.actor), np.float64(state.critics))


def assert_same_learner(state, reference, start):
    """Assert equal parameters, and equal changes since the start, which are much smaller."""
    for field in ("actor", "target_actor", "critics", "target_critics"):
        ours, theirs = np.float64(getattr(state, field)), getattr(reference, field)
        scale = np.linalg.norm(theirs)
        assert np.linalg.norm(ours - theirs) < 1e-5 * scale, field
        way = np.linalg.norm(theirs - np.float64(getattr(start, field)))
        assert way > 0.005 * scale, f"{field} hardly moved: the comparison would prove little"
        assert np.linalg.norm(ours - theirs) < 5e-5 * way, field


VARIANTS = {
    "conditioned": {
        "actor": MLP((S + D, 8, 6, A)),
        "critic": MLP((S + A + D, 9, 7, 1), output="linear"),
    },
    "unconditioned": {"conditioned": False, "actor_conditioned": False},
    "unconditioned actor": {"actor_conditioned": False},
}
# Compiling is all the cost here, and optimising would be most of it.
jit = functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)
init, turn, train = jit(td3.init), jit(td3.update), jit(td3.train)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ten_steps_equal_the_reference(variant):
    config = learner(**VARIANTS[variant])
    start = state = init(config, jax.random.key(0))
    reference = reference_of(config, state)
    late = reference_of(config, state)
    batches, noise = random_batches(config, 2 * TURNS)
    for first in range(0, 2 * TURNS, 2):
        both = td3.Batch(**{k: v[first : first + 2] for k, v in batches.items()})
        state, losses = turn(config, state, both, noise[first : first + 2])
        for i in (first, first + 1):
            row = {k: np.float64(v[i]) for k, v in batches.items()}
            for other in (reference, late):
                other.step(row, noise[i], with_actor=i == first, critic_after=other is late)
    assert np.isfinite(losses.critic)
    assert_same_learner(state, reference, start)
    # The comparison is sharp enough to see which critic the actor ascended.
    assert np.linalg.norm(np.float64(state.actor) - late.actor) > 100 * np.linalg.norm(
        np.float64(state.actor) - reference.actor
    )


def test_training_is_its_steps_one_after_the_other():
    """No delay, sampled negatives, losses that are means; without noise the key plays no part."""
    config = learner(smoothing_noise=0.0, steps=4, delay=1, sampled_negatives=True)
    start = init(config, jax.random.key(1))
    batches, _ = random_batches(config, 4, n=N // 2, seed=1)
    state, losses = train(config, start, td3.Batch(**batches), jax.random.key(9))
    reference = reference_of(config, start)
    critic_losses, actor_losses = [], []
    for i in range(4):
        row = {k: np.concatenate([v[i], v[i]]).astype(np.float64) for k, v in batches.items()}
        row["target"] = np.concatenate([batches["descriptor"][i], batches["descriptor"][i][::-1]])
        y = reference.target(row, 0.0)
        inputs = np.concatenate([row["observation"], row["action"], row["target"]], 1)
        values = [reference.critic_network(q, inputs)[:, 0] for q in reference.critics]
        kept = 1 - row["truncation"]
        critic_losses.append(sum(np.mean((kept * (v - y)) ** 2) for v in values))
        seen = np.concatenate([row["observation"], row["target"]], 1)
        action = reference.actor_network(reference.actor, seen)
        inputs = np.concatenate([row["observation"], action, row["target"]], 1)
        actor_losses.append(-reference.critic_network(reference.critics[0], inputs).mean())
        reference.step(row, 0.0, with_actor=True)
    assert_same_learner(state, reference, start)
    np.testing.assert_allclose(losses.critic, np.mean(critic_losses), rtol=1e-5)
    np.testing.assert_allclose(losses.actor, np.mean(actor_losses), rtol=1e-4, atol=1e-6)


def test_smoothing_noise_has_its_deviation_and_its_clip():
    """With a critic Q = a and an actor 0, a target is the noise: look at its distribution."""
    config = learner(
        False, False, actor=MLP((1, 1)), critic=MLP((2, 1), output="linear"), discount=1.0,
        smoothing_noise=0.2, smoothing_clip=0.5,
    )  # fmt: skip
    _, state = hand_made(conditioned=False)
    noisy = state._replace(target_actor=jnp.zeros(2), target_critics=jnp.array([[0, 1.0, 0]] * 2))
    zero = jnp.zeros((20_000, 1))
    nothing = jnp.zeros(20_000)
    batch = td3.Batch(zero, zero, nothing, zero, nothing, nothing, zero[:, :0], zero[:, :0])
    noise = jax.random.normal(jax.random.key(0), (20_000, 1))
    y = np.asarray(jax.jit(td3.critic_target, static_argnums=0)(config, noisy, batch, noise))
    assert abs(y.std() - 0.2) < 0.01
    assert y.max() == pytest.approx(0.5)  # 2.5 deviations: one draw in 160 is cut
    assert y.min() == pytest.approx(-0.5)
    cut = np.mean(abs(y) > 0.4999)
    assert abs(cut - math.erfc(2.5 / math.sqrt(2))) < 0.003


def test_a_learner_starts_with_its_targets_and_two_different_critics():
    config = learner()
    state = init(config, jax.random.key(3))
    np.testing.assert_array_equal(state.actor, state.target_actor)
    np.testing.assert_array_equal(state.critics, state.target_critics)
    assert (np.asarray(state.critics[0]) != np.asarray(state.critics[1])).mean() > 0.8
    other = init(config, jax.random.key(4))
    assert (np.asarray(state.actor) != np.asarray(other.actor)).mean() > 0.8


def test_a_conditioned_actor_needs_conditioned_critics():
    with pytest.raises(ValueError, match="needs critics that see it"):
        learner(conditioned=False, actor_conditioned=True)
