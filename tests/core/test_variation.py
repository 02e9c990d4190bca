"""Variations: the GA's distribution, the PG's Adam steps, and actors that become policies.

The arithmetic is tested on matrices of policies. The variations themselves are tested on `probe`:
which parents they draw from the archive, and which targets and parameters they hand on.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import probe
from elites.core import map_elites, networks, td3, variation
from elites.core import replay as replays
from elites.core.networks import MLP
from td3_reference import Adam, Network, ascend_value

S, A, D = 3, 2, 2
ISO, LINE = 0.005, 0.05


def learner(critic: MLP, actor: MLP | None = None, conditioned=True) -> td3.TD3:
    """Return a learner with these networks. Its other values play no part here."""
    return td3.TD3(
        actor=actor or MLP((S + D, 8, A)), critic=critic, actor_conditioned=conditioned,
        critic_conditioned=conditioned, actor_rate=1e-3, critic_rate=1e-3, discount=0.9,
        target_rate=0.1, smoothing_noise=0.2, smoothing_clip=0.5, delay=2, steps=2, batch_size=4,
        lengthscale=0.1,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- GA

iso_line = jax.jit(variation.iso_line)


def children_of(first, second, iso, line, n=40_000, seed=0):
    first, second = (np.tile(np.float32(p), (n, 1)) for p in (first, second))
    return np.float64(iso_line(first, second, jax.random.key(seed), iso, line))


def test_iso_line_has_its_mean_and_covariance():
    first, second = np.array([0.5, -1.0, 2.0]), np.array([1.5, 1.0, 0.0])
    n = 40_000
    children = children_of(first, second, ISO, LINE, n)
    along = second - first
    covariance = ISO**2 * np.eye(3) + LINE**2 * np.outer(along, along)
    deviation = np.sqrt(np.diag(covariance))
    assert (abs(children.mean(0) - first) < 5 * deviation / n**0.5).all()
    # Off the diagonal too: the line noise is one number for all parameters of a child.
    error = np.cov(children.T) - covariance
    assert (abs(error) < 5 * np.outer(deviation, deviation) * (2 / n) ** 0.5).all()


def test_line_noise_is_one_number_a_child():
    first, second = np.array([0.0, 0.0, 0.0]), np.array([1.0, 2.0, -4.0])
    steps = children_of(first, second, 0.0, LINE) / second
    np.testing.assert_allclose(steps[:, 1], steps[:, 0], rtol=1e-5)
    np.testing.assert_allclose(steps[:, 2], steps[:, 0], rtol=1e-5)
    assert len(np.unique(steps[:, 0])) > 30_000  # but another for each child
    assert abs(steps[:, 0].std() / LINE - 1) < 0.02
    assert abs(steps[:, 0].mean()) < 5 * LINE / 200


def test_equal_parents_leave_the_isotropic_noise():
    parent = np.array([0.3, -0.7, 0.1])
    children = children_of(parent, parent, ISO, 100.0)
    covariance = np.cov(children.T)
    np.testing.assert_allclose(np.diag(covariance), ISO**2, rtol=0.04)
    assert (abs(covariance - np.diag(np.diag(covariance))) < 0.04 * ISO**2).all()
    assert (abs(children - parent).max(0) > 3.5 * ISO).all()  # no clipping


def test_children_of_different_pairs_do_not_mix():
    first = np.float32([[0, 0, 0], [10, 10, 10]])
    second = np.float32([[1, 0, 0], [10, 11, 10]])
    children = np.asarray(iso_line(first, second, jax.random.key(1), 0.0, 0.5))
    assert children[0, 0] != 0
    assert children[1, 1] != 10
    np.testing.assert_array_equal(children[0, 1:], 0)
    np.testing.assert_array_equal(children[1, [0, 2]], 10)


# --------------------------------------------------------------------------------------------- PG


ascend = jax.jit(
    variation.ascend,
    static_argnums=(0, 3, 6, 7),
    compiler_options={"xla_backend_optimization_level": 0},  # compiling is most of the cost
)


@pytest.mark.parametrize("conditioned", [True, False])
def test_ascent_equals_adam_on_each_parent_alone(conditioned):
    rng = np.random.default_rng(0)
    width = D if conditioned else 0
    policy, critic = MLP((S, 7, A)), MLP((S + A + width, 9, 1), output="linear")
    parents = 0.6 * rng.normal(size=(3, policy.size)).astype(np.float32)
    targets = rng.uniform(-1, 1, (3, width)).astype(np.float32)
    q = 0.6 * rng.normal(size=critic.size).astype(np.float32)
    observations = rng.normal(size=(12, 10, S)).astype(np.float32)
    rate = 5e-3
    children = ascend(policy, parents, targets, critic, q, observations, rate)

    def reference(parent, target):
        parameters, adam = np.float64(parent), Adam(rate)
        for observation in np.float64(observations):
            condition = np.tile(np.float64(target), (len(observation), 1))
            gradient = ascend_value(
                Network(policy.sizes, "tanh"), parameters, Network(critic.sizes, "linear"),
                np.float64(q), observation, condition, seen=False,
            )  # fmt: skip
            parameters = parameters + adam.step(gradient)
        return parameters

    expected = np.stack([reference(p, t) for p, t in zip(parents, targets, strict=True)])
    change = np.linalg.norm(expected - parents)
    assert change > 0.4
    assert np.linalg.norm(children - expected) < 1e-4 * change
    if conditioned:  # another descriptor leads elsewhere
        swapped = reference(parents[0], targets[1])
        assert np.linalg.norm(children[0] - swapped) > 0.05 * change


def test_proximity_keeps_children_near_their_parents():
    """In every step the slope is scaled to size 1, and a force towards the parent is added."""
    rng = np.random.default_rng(3)
    policy, critic = MLP((S, 7, A)), MLP((S + A + D, 9, 1), output="linear")
    parents = 0.6 * rng.normal(size=(3, policy.size)).astype(np.float32)
    targets = rng.uniform(-1, 1, (3, D)).astype(np.float32)
    q = 0.6 * rng.normal(size=critic.size).astype(np.float32)
    observations = rng.normal(size=(12, 10, S)).astype(np.float32)
    rate, proximity = 5e-3, 2.0
    children = ascend(policy, parents, targets, critic, q, observations, rate, proximity)
    acting, judging = Network(policy.sizes, "tanh"), Network(critic.sizes, "linear")

    def reference(parent, target, strength):
        parent = np.float64(parent)
        parameters, adam = parent, Adam(rate)
        for observation in np.float64(observations):
            n = len(observation)
            action, activations = acting.forward(parameters, observation)
            inputs = np.concatenate([observation, action, np.tile(target, (n, 1))], 1)
            _, judged = judging.forward(np.float64(q), inputs)
            slope = judging.backward(np.float64(q), judged, np.ones((n, 1)))[1][:, S : S + A]
            slope = slope / np.abs(slope).mean() - strength * (action - acting(parent, observation))
            gradient, _ = acting.backward(parameters, activations, -slope / n)
            parameters = parameters + adam.step(gradient)
        return parameters

    strengths = [0.2, 2.0, 20.0]
    expected = np.stack(
        [reference(p, t, s) for p, t, s in zip(parents, targets, strengths, strict=True)]
    )
    change = np.linalg.norm(expected - parents)
    assert change > 0.1
    assert np.linalg.norm(children - expected) < 1e-3 * change
    free = ascend(policy, parents, targets, critic, q, observations, rate)

    def moved(policies):
        seen = observations[0]
        pairs = zip(np.float64(policies), np.float64(parents), strict=True)
        return np.array([np.abs(acting(c, seen) - acting(p, seen)).mean() for c, p in pairs])

    assert moved(children)[2] < 0.5 * moved(free)[2]


def sign_critic(observations: int, actions: int) -> tuple[MLP, np.ndarray]:
    """Q(s, a | d) = relu(a_0 + 9 d_0) - relu(a_0 - 9 d_0): at d_0 = 1, a_0 + 9; at -1, -a_0 - 9."""
    network = MLP((observations + actions + D, 2, 1), output="linear")
    first = np.zeros((observations + actions + D, 2))
    first[observations] = 1.0, 1.0
    first[observations + actions] = 9.0, -9.0
    return network, np.float32([*first.reshape(-1), 0, 0, 1, -1, 0])


def test_each_parent_ascends_at_its_own_descriptor():
    policy = MLP((S, 6, A))
    critic, q = sign_critic(S, A)
    rng = np.random.default_rng(0)
    parents = 0.5 * rng.normal(size=(4, policy.size)).astype(np.float32)
    targets = np.float32([[1, 0], [-1, 0], [1, 0.5], [-1, -0.5]])
    observations = rng.normal(size=(40, 8, S)).astype(np.float32)
    children = ascend(policy, parents, targets, critic, q, observations, 5e-3)

    def mean_action(policies):
        network = Network(policy.sizes, "tanh")
        return np.array([network(p, observations[0])[:, 0].mean() for p in np.float64(policies)])

    gain = mean_action(children) - mean_action(parents)
    assert (gain[[0, 2]] > 0.1).all()
    assert (gain[[1, 3]] < -0.1).all()


# ------------------------------------------------------------------------- actors become policies


@pytest.mark.parametrize("hidden", [(9, 5), (12,)])
def test_a_folded_policy_acts_like_the_conditioned_actor(hidden):
    actor = MLP((S + D, *hidden, A))
    policy = MLP((S, *hidden, A))
    config = learner(MLP((S + A + D, 1), output="linear"), actor)
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=actor.size).astype(np.float32)  # no bias is zero
    targets = rng.uniform(-1, 1, (6, D)).astype(np.float32)
    policies = jax.jit(networks.fold, static_argnums=0)(actor, parameters, targets)
    assert policies.shape == (6, policy.size)
    observations = rng.normal(size=(50, S)).astype(np.float32)
    for vector, target in zip(np.float64(policies), np.float64(targets), strict=True):
        seen = np.concatenate([observations, np.tile(target, (50, 1))], 1)
        expected = Network(actor.sizes, "tanh")(np.float64(parameters), seen)
        folded = Network(policy.sizes, "tanh")(vector, np.float64(observations))
        np.testing.assert_allclose(folded, expected, atol=1e-6)
    # The same in the package's own arithmetic.
    apply = jax.jit(lambda p, x: networks.apply(policy, networks.unflatten(policy, p), x))
    act = jax.jit(td3.act, static_argnums=0)
    for i in range(6):
        asked = np.tile(targets[i], (50, 1))
        np.testing.assert_allclose(
            apply(policies[i], observations), act(config, parameters, observations, asked),
            atol=2e-6,
        )  # fmt: skip


# ------------------------------------------------------------------ variations on a small archive

LEARNER = "conditioned"


@functools.cache
def started(actor_conditioned: bool = True):
    """Return the specification of `probe` and a state whose cells hold some elites."""
    hp = dataclasses.replace(probe.HP, batch_size=12, iso_sigma=0.0)
    spec = probe.spec(hp=hp, actor_conditioned=actor_conditioned)
    algorithm = map_elites.algorithm(spec)
    state = jax.jit(algorithm.start)(jax.random.key(0), probe.centroids())
    assert 3 < np.isfinite(state.archive.fitness).sum() < 12
    return spec, state


def make(variation_, count, key=5, **choices):
    """Return the specification, the state and the offspring of a variation."""
    spec, state = started()
    offspring = variation_(spec, state, jax.random.key(key), count, **choices)
    assert offspring.policies.shape == (count, spec.policy.size)
    assert offspring.targets.shape == (count, 2)
    return spec, state, offspring


def cells_reaching(archive, targets) -> np.ndarray:
    """Return the filled cell [n] whose elite reached each target, to the bit."""
    equal = (np.asarray(targets)[:, None] == np.asarray(archive.descriptors)[None]).all(-1)
    equal &= np.isfinite(archive.fitness)[None]
    assert (equal.sum(1) == 1).all()
    return equal.argmax(1)


def test_ga_mixes_pairs_of_elites_and_targets_the_first():
    """Without isotropic noise, a child lies on the line through two elites."""
    _, state, offspring = make(variation.ga, 40)
    cells = cells_reaching(state.archive, offspring.targets)
    assert len(set(cells)) > 3
    elites = np.asarray(state.archive.policies)[np.isfinite(state.archive.fitness)]
    seconds = set()
    for child, parent in zip(offspring.policies, state.archive.policies[cells], strict=True):
        along = elites - np.asarray(parent)
        away = np.asarray(child - parent)
        length = np.maximum((along**2).sum(1), 1e-12)
        off_line = np.linalg.norm(away - (along @ away / length)[:, None] * along, axis=1)
        assert off_line.min() < 1e-5
        seconds.add(int(off_line.argmin()))
    assert len(seconds) > 3


def test_policy_gradient_improves_parents_at_the_descriptors_they_reached():
    """Ascending the same replayed observations from those parents gives the same children."""
    spec, state, offspring = make(variation.policy_gradient, 6, learner=LEARNER)
    cells = cells_reaching(state.archive, offspring.targets)
    assert len(set(cells)) > 1
    _, replay_key = jax.random.split(jax.random.key(5))
    rows = replays.sample(state.replay, replay_key, (spec.hp.pg_steps, spec.hp.td3_batch_size))
    low, high = np.float32(probe.LOW), np.float32(probe.HIGH)
    scaled = 2 * (np.asarray(offspring.targets) - low) / (high - low) - 1
    expected = ascend(
        spec.policy, state.archive.policies[cells], scaled, spec.td3_of(LEARNER).critic,
        state.learners[LEARNER].critics[0], replays.columns(spec.layout, rows)["observation"],
        spec.hp.policy_learning_rate,
    )  # fmt: skip
    np.testing.assert_allclose(offspring.policies, expected, atol=1e-5)
    assert np.abs(offspring.policies - state.archive.policies[cells]).max() > 1e-3


def test_empty_cells_are_aimed_at_in_their_share():
    _, state = started()
    archive = state.archive
    targets = archive.descriptors[np.zeros(4000, int)]
    made = variation.replace_by_empty_cells(archive, targets, jax.random.key(0), 0.3)
    moved = (np.asarray(made) != np.asarray(targets)).any(1)
    np.testing.assert_allclose(moved.mean(), 0.3, atol=0.03)
    empty = np.asarray(archive.centroids)[~np.isfinite(archive.fitness)]
    found = (np.asarray(made)[moved][:, None] == empty[None]).all(-1)
    assert (found.sum(1) == 1).all()
    assert found.any(0).all()  # every empty cell is aimed at
    full = archive._replace(fitness=np.zeros_like(archive.fitness))
    same = variation.replace_by_empty_cells(full, targets, jax.random.key(0), 1.0)
    np.testing.assert_array_equal(same, targets)


@pytest.mark.parametrize("make_offspring", [variation.policy_gradient, variation.injection])
def test_offspring_can_aim_at_empty_cells(make_offspring):
    _, state, offspring = make(make_offspring, 24, learner=LEARNER, empty=0.5)
    empty = np.asarray(state.archive.centroids)[~np.isfinite(state.archive.fitness)]
    at_empty = (np.asarray(offspring.targets)[:, None] == empty[None]).all(-1).any(1)
    assert 4 < at_empty.sum() < 20
    cells_reaching(state.archive, offspring.targets[~at_empty])


def test_the_greedy_actor_is_one_policy():
    spec, state = started(actor_conditioned=False)
    made = variation.greedy(spec, state, jax.random.key(0), 1, learner=LEARNER)
    assert made.policies.shape == (1, spec.policy.size)
    np.testing.assert_array_equal(made.policies[0], state.learners[LEARNER].actor)
    np.testing.assert_array_equal(made.targets, np.zeros((1, 2)))


@pytest.mark.parametrize("count", [0, 2])
def test_the_greedy_actor_cannot_be_several_offspring(count):
    spec, state = started(actor_conditioned=False)
    with pytest.raises(ValueError, match=f"one offspring, not {count}"):
        variation.greedy(spec, state, jax.random.key(0), count, learner=LEARNER)


def test_injected_policies_act_like_the_actor_at_descriptors_of_the_archive():
    spec, state, offspring = make(variation.injection, 9, learner=LEARNER)
    assert len(set(cells_reaching(state.archive, offspring.targets))) > 1
    config, actor = spec.td3_of(LEARNER), state.learners[LEARNER].actor
    observations = np.random.default_rng(0).normal(size=(9, S)).astype(np.float32)
    expected = td3.act(config, actor, observations, spec.problem.normalise(offspring.targets))
    layers = networks.unflatten(spec.policy, offspring.policies)
    found = networks.apply_each(spec.policy, layers, observations)
    np.testing.assert_allclose(found, expected, atol=1e-5)
