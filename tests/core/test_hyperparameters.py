"""The paper's numbers: its table of hyperparameters, entry by entry, and where each number goes.

The table is repeated here, by column. An algorithm is built at the paper's size and its functions
are traced; nothing is compiled or run. The arguments of its parts are noted, so an entry is
compared with the number that reaches the part, not with the field that declares it.
"""

import dataclasses
import functools
import inspect
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
import sharing
from elites.core import algorithms, cells, es, map_elites, networks, novelty, td3, variation
from elites.core import archive as archives
from elites.core.algorithms import ALGORITHMS
from elites.core.spec import Spec
from elites.tasks.rollout import problem

TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")

_LEARNING = {
    "GA variation param. 1": 0.005,
    "GA variation param. 2": 0.05,
    "Actor network": (256, 256),
    "Critic network": (256, 256, 1),
    "TD3 batch size": 100,
    "Quality critic training steps": 3000,
    "PG training steps": 150,
    "Policy learning rate": 5e-3,
    "Actor learning rate": 3e-4,
    "Critic learning rate": 3e-4,
    "Replay buffer size": 1_000_000,
    "Discount factor": 0.99,
    "Actor delay": 2,
    "Target update rate": 0.005,
    "Smoothing noise var.": 0.2,
    "Smoothing noise clip": 0.5,
}
_SHARED = {"Number of centroids": 1024, "Policy networks": (128, 128)}
PAPER = {
    "me": {
        **_SHARED,
        "Evaluation batch size": 256,
        "Number of GA variations": 256,
        "GA variation param. 1": 0.005,
        "GA variation param. 2": 0.05,
    },
    "me_es": {
        **_SHARED,
        "Evaluation batch size": 1050,
        "Number of GA variations": 0,
        "Sample number": 1000,
        "Sample sigma": 0.02,
    },
    "pga_me": {
        **_SHARED, **_LEARNING, "Evaluation batch size": 256, "Number of GA variations": 128,
    },
    "qd_pg": {
        **_SHARED, **_LEARNING, "Evaluation batch size": 256, "Number of GA variations": 86,
        "Diversity critic training steps": 300,
    },
    "dcg_me": {
        **_SHARED, **_LEARNING, "Evaluation batch size": 256, "Number of GA variations": 128,
        "lengthscale": 0.008, "Descriptor sigma": 0.0004,
    },
}  # fmt: skip
# Where the definition departs from the table, and why.
DEPARTURES = {
    # Greedy actors are archived, so they have the policies' layers.
    ("pga_me", "Actor network"): (128, 128),
    ("qd_pg", "Actor network"): (128, 128),
    # Its actual number: 1000 copies, and the offspring once on a deterministic task.
    ("me_es", "Evaluation batch size"): 1001,
    # A value for each task on [-1, 1], see below; a task without one has 0.1.
    ("dcg_me", "lengthscale"): 0.1,
}


@functools.cache
def parts_of(name: str) -> dict:
    """Return an algorithm at the paper's size, its state, and the calls of its parts by name."""
    calls: dict[str, list[dict]] = {}
    # A shared algorithm may have been built before its parts were observed.
    with pytest.MonkeyPatch.context() as patch, sharing.paused():

        def note(module, function_name):
            function = getattr(module, function_name)

            def noted(*args, **kwargs):
                bound = inspect.signature(function).bind(*args, **kwargs)
                bound.apply_defaults()
                calls.setdefault(function_name, []).append(dict(bound.arguments))
                return function(*args, **kwargs)

            patch.setattr(module, function_name, noted)

        # Finding 1024 centroids takes seconds, and only their number matters here.
        patch.setattr(cells, "box_centroids", lambda low, high, n: jnp.zeros((n, len(low))))
        for module, function_name in [
            (variation, "iso_line"), (variation, "ascend"), (td3, "train"),
            (novelty, "insert_distant"), (novelty, "mean_distance"), (es, "population"),
            (es, "gradient"), (networks, "descend"), (map_elites, "algorithm"),
        ]:  # fmt: skip
            note(module, function_name)
        algorithm = elites.build("point_omni", name)
        key = jax.random.key(0)
        state = jax.eval_shape(algorithm.start, key)
        jax.eval_shape(algorithm.step, state, key)
    return {"built": algorithm, "state": state, **calls}


def spec_of(name: str) -> Spec:
    (call,) = parts_of(name)["algorithm"]
    return call["spec"]


def descriptor_noise(spec: Spec) -> float:
    """Return the noise on the actor's targets as a share of the range, from the drawn targets."""
    archive = archives.empty(jnp.zeros((4, spec.problem.descriptor_size)), spec.policy.size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", lambda key, shape: jnp.ones(shape))
        targets = map_elites.draw_targets(spec, archive, jax.random.key(0))
    shares = np.asarray(targets) / np.array(spec.problem.ranges)  # the archive's descriptors are 0
    assert len(np.unique(shares)) == 1
    return round(float(shares[0, 0]), 9)  # to the seven digits of 32 bits


def observed(name: str, entry: str):
    """Return the value of an entry of the table as the algorithm uses it."""
    parts = parts_of(name)
    algorithm, state = parts["built"], parts["state"]

    def learners() -> list[td3.TD3]:
        return [call["td3"] for call in parts["train"]]

    def common(values):
        """Return the one value that all learners, or all calls, have."""
        values = list(values)
        assert len(set(values)) == 1
        return values[0]

    read = {
        "Number of centroids": lambda: state.archive.fitness.shape[0],
        "Policy networks": lambda: algorithm.policy.sizes[1:-1],
        "Evaluation batch size": lambda: algorithm.evaluations_per_iteration,
        "Number of GA variations": lambda: algorithm.offspring.get("ga", 0),
        "GA variation param. 1": lambda: parts["iso_line"][0]["iso_sigma"],
        "GA variation param. 2": lambda: parts["iso_line"][0]["line_sigma"],
        "Actor network": lambda: common(t.actor.sizes[1:-1] for t in learners()),
        "Critic network": lambda: common(t.critic.sizes[1:] for t in learners()),
        "TD3 batch size": lambda: common(c["batches"].reward.shape[1] for c in parts["train"]),
        "Quality critic training steps": lambda: parts["train"][0]["batches"].reward.shape[0],
        "Diversity critic training steps": lambda: parts["train"][1]["batches"].reward.shape[0],
        "PG training steps": lambda: common(
            call["observations"].shape[0] for call in parts["ascend"]
        ),
        "Policy learning rate": lambda: common(call["rate"] for call in parts["ascend"]),
        "Actor learning rate": lambda: common(t.actor_rate for t in learners()),
        "Critic learning rate": lambda: common(t.critic_rate for t in learners()),
        "Replay buffer size": lambda: state.replay.rows.shape[0],
        "Discount factor": lambda: common(t.discount for t in learners()),
        "Actor delay": lambda: common(t.delay for t in learners()),
        "Target update rate": lambda: common(t.target_rate for t in learners()),
        "Smoothing noise var.": lambda: common(t.smoothing_noise for t in learners()),
        "Smoothing noise clip": lambda: common(t.smoothing_clip for t in learners()),
        "Sample number": lambda: parts["gradient"][0]["scores"].shape[0],
        "Sample sigma": lambda: common(
            [parts["population"][0]["sigma"], parts["gradient"][0]["sigma"]]
        ),
        "lengthscale": lambda: common(t.lengthscale for t in learners()),
        "Descriptor sigma": lambda: descriptor_noise(spec_of(name)),
    }
    return read[entry]()


@pytest.mark.parametrize("name", PAPER)
def test_every_entry_of_the_papers_table(name):
    for entry, value in PAPER[name].items():
        expected = DEPARTURES.get((name, entry), value)
        assert observed(name, entry) == expected, f"{name}: {entry}"


def test_the_table_is_whole():
    """Entries by column, as the paper prints them: blanks are entries that do not apply."""
    assert {name: len(column) for name, column in PAPER.items()} == {
        "me": 6, "me_es": 6, "pga_me": 20, "qd_pg": 21, "dcg_me": 22,
    }  # fmt: skip


def test_numbers_that_the_paper_leaves_to_its_code():
    qd_pg = parts_of("qd_pg")
    assert qd_pg["state"].memory.points.shape[0] == 10_000
    assert {call["threshold"] for call in qd_pg["insert_distant"]} == {0.1}
    assert {(c["neighbours"], c["squared"]) for c in qd_pg["mean_distance"]} == {(5, True)}
    hp = elites.Hyperparameters()
    assert (hp.es_learning_rate, hp.es_l2, hp.es_generations) == (0.01, 0.02, 10)
    assert (hp.es_neighbours, hp.es_repeats) == (10, 30)
    me_es = parts_of("me_es")
    assert {(c["neighbours"], c["squared"]) for c in me_es["mean_distance"]} == {(10, False)}
    assert {call["rate"] for call in me_es["descend"]} == {0.01}
    assert me_es["state"].memory.points.shape[0] == 10_000


def test_conditioned_networks_see_the_descriptor():
    """point_omni: 3 observations, 2 actions, 2 descriptors."""
    others = ("me", "cma_", "pbt_", "dns")
    learning = [name for name in ALGORITHMS if not name.startswith(others)]
    first = {name: parts_of(name)["train"][0]["td3"] for name in learning}
    assert {name: (t.actor.sizes[0], t.critic.sizes[0]) for name, t in first.items()} == {
        "pga_me": (3, 5),
        "qd_pg": (3, 5),
        "dcg_me": (5, 7),
        "dcg_me_no_actor_evaluation": (5, 7),
        "dcg_me_sampled_negatives": (5, 7),
        "dcg_me_unconditioned_actor": (3, 7),
        "dcrl_me": (5, 7),
        "progress_me": (5, 7),
    }
    assert first["dcrl_me"].actor.sizes[1:] == (128, 128, 2)  # it folds into policies
    assert first["dcg_me_unconditioned_actor"].actor.sizes[1:] == (256, 256, 2)


# -------------------------------------------------------------------------------- compositions

_DCG = {"ga": 128, "pg": 128}
OFFSPRING = {
    "me": {"ga": 256},
    "pga_me": {"ga": 128, "pg": 127, "greedy": 1},
    "qd_pg": {
        "ga": 86, "quality_pg": 84, "quality_greedy": 1, "diversity_pg": 84, "diversity_greedy": 1,
    },
    "dcg_me": _DCG,
    "dcg_me_no_actor_evaluation": _DCG,
    "dcg_me_sampled_negatives": _DCG,
    "dcg_me_unconditioned_actor": _DCG,
    "dcrl_me": {"ga": 128, "pg": 64, "injection": 64},
    "progress_me": {"ga": 128, "pg": 64, "injection": 64},
    "dns": {"ga": 256},
}  # fmt: skip
PADDED_BATCH = {
    **dict.fromkeys(OFFSPRING, 256),
    "dcg_me": 512,  # 256 actor rollouts beside the offspring
    "dcg_me_unconditioned_actor": 288,  # one more trajectory, padded to a multiple of 32
}


@pytest.mark.parametrize("name", OFFSPRING)
def test_offspring_by_origin(name):
    parts = parts_of(name)
    algorithm = parts["built"]
    assert algorithm.offspring == OFFSPRING[name]
    assert algorithm.origins == ("initial", *OFFSPRING[name])
    assert algorithm.initial_evaluations == algorithm.evaluations_per_iteration == 256
    assert algorithm.padded_batch == PADDED_BATCH[name]
    # The variations make that many.
    made = [len(call["first"]) for call in parts["iso_line"]]
    made += [len(call["parents"]) for call in parts.get("ascend", [])]
    expected = [n for origin, n in OFFSPRING[name].items() if origin == "ga" or "pg" in origin]
    assert made == expected
    request = jax.eval_shape(algorithm.rounds[-1].ask, parts["state"], jax.random.key(0))
    assert len(request.policies) == algorithm.batch == 256
    actor_rollouts = {"dcg_me": 256, "dcg_me_unconditioned_actor": 256}.get(name, 0)
    assert len(request.actor_targets) == algorithm.actor_rollouts == actor_rollouts
    assert spec_of(name).actor_rollouts == actor_rollouts


def test_map_elites_es_spends_its_copies_and_its_offspring():
    deterministic, noisy = (elites.build(t, "me_es") for t in ("point_omni", "noisy_point_omni"))
    assert deterministic.initial_evaluations == 1
    assert deterministic.evaluations_per_iteration == 1000 + 1
    assert noisy.initial_evaluations == 30
    assert noisy.evaluations_per_iteration == 1000 + 30


def test_pbt_map_elites_counts_the_episodes_with_noise():
    algorithm = elites.build("point_omni", "pbt_me")
    assert algorithm.offspring == {"agent": 10, "ga": 10}
    assert algorithm.initial_evaluations == algorithm.batch == 20
    assert algorithm.evaluations_per_iteration == 10 * 20 + 20
    td3 = algorithm.main_td3
    assert td3.actor.sizes == algorithm.policy.sizes == (3, 128, 128, 2)
    assert (td3.critic.sizes, td3.steps, td3.batch_size) == ((5, 256, 256, 1), 5000, 100)


def test_on_a_stochastic_task_every_target_has_its_own_trajectory():
    assert elites.build("noisy_point_omni", "dcg_me_unconditioned_actor").padded_batch == 512


def test_sampled_negatives_fill_a_batch_from_half_as_many_transitions():
    call = parts_of("dcg_me_sampled_negatives")["train"][0]
    assert call["td3"].sampled_negatives
    assert call["batches"].reward.shape == (3000, 50)
    assert not parts_of("dcg_me")["train"][0]["td3"].sampled_negatives


# ---------------------------------------------------------------------------------------- tasks


def test_the_papers_table_of_tasks():
    def row(task):
        parameters = elites.build(task, "me").policy.size
        return task.observation_size, task.action_size, task.episode_length, parameters

    assert {name: row(elites.tasks.make(name)) for name in TASKS} == {
        "ant_omni": (29, 8, 250, 21_384),
        "anttrap_omni": (29, 8, 250, 21_384),
        "hexapod_omni": (48, 18, 250, 25_106),
        "walker_uni": (19, 6, 1000, 19_846),
    }


@pytest.mark.parametrize(
    ("task", "lengthscale"),
    [("ant_omni", 0.48), ("anttrap_omni", 0.48), ("hexapod_omni", 0.032), ("walker_uni", 0.016)],
)
def test_lengthscales_reach_the_learner(task, lengthscale):
    for name in ALGORITHMS:
        if name.startswith("dcg_me"):
            assert elites.build(task, name).main_td3.lengthscale == lengthscale
            assert elites.build(task, name, lengthscale=0.3).main_td3.lengthscale == 0.3
    assert elites.build(task, "dcrl_me").main_td3.lengthscale == 0.1
    assert elites.build(task, "dcrl_me", lengthscale=0.3).main_td3.lengthscale == 0.3


def test_building_at_the_papers_size_compiles_and_allocates_nothing(caplog):
    made = problem(elites.tasks.make("ant_omni"))
    before = {id(a) for a in jax.live_arrays()}

    def compilations():
        return [record for record in caplog.records if "ompil" in record.getMessage()]

    with jax.log_compiles(), caplog.at_level(logging.DEBUG):
        exact = ("cma_mega", "cma_maega")  # which need a function that can be differentiated
        built = [algorithms.make(name, made) for name in ALGORITHMS if name not in exact]
        assert len(built) == len(ALGORITHMS) - len(exact)
        assert not compilations()
        assert sum(a.nbytes for a in jax.live_arrays() if id(a) not in before) < 1000
        jax.jit(lambda: jnp.zeros(12))()
        assert compilations()  # they would have been seen


# ------------------------------------------------------------------------------------ bad values


def refusal(function, *args, **kwargs) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("me", {"cells": 0}, ["cells", "at least 1", "0"]),
        ("me", {"cells": 64.0}, ["cells", "whole number", "64.0"]),
        ("me", {"cells": True}, ["cells", "whole number"]),
        ("me", {"cells": 10**9}, ["cells", "at most 1000000"]),
        ("dcg_me", {"replay_size": 1}, ["replay_size", "td3_batch_size", "1 and 100"]),
        ("dcg_me", {"td3_batch_size": 2_000_000}, ["replay_size", "td3_batch_size", "2000000"]),
        ("me", {"batch_size": -5}, ["batch_size", "at least 1", "-5"]),
        ("me", {"policy_hidden": (0,)}, ["policy_hidden"]),
        ("me", {"policy_hidden": 128}, ["policy_hidden"]),
        ("me", {"iso_sigma": -0.1}, ["iso_sigma", "negative"]),
        ("me", {"iso_sigma": float("nan")}, ["iso_sigma", "finite"]),
        ("pga_me", {"batch_size": 255}, ["batch_size", "multiple of 2", "pga_me", "255"]),
        ("dcg_me", {"batch_size": 255}, ["batch_size", "multiple of 2", "dcg_me", "255"]),
        ("dcrl_me", {"batch_size": 254}, ["batch_size", "multiple of 4", "dcrl_me", "254"]),
        ("qd_pg", {"batch_size": 5}, ["batch_size", "at least 6", "qd_pg", "5"]),
        ("dcg_me", {"actor_learning_rate": -1e-3}, ["actor_learning_rate", "greater than 0"]),
        ("dcg_me", {"critic_learning_rate": 0.0}, ["critic_learning_rate", "greater than 0"]),
        ("dcg_me", {"policy_learning_rate": "fast"}, ["policy_learning_rate", "number", "fast"]),
        ("dcg_me", {"discount": 1.5}, ["discount", "between 0 and 1", "1.5"]),
        ("dcg_me", {"critic_steps": 3001}, ["critic_steps", "multiple", "actor_delay", "3001"]),
        ("qd_pg", {"diversity_critic_steps": 31}, ["diversity_critic_steps", "31"]),
        ("dcg_me", {"lengthscale": 0.0}, ["lengthscale", "greater than 0"]),
        ("dcg_me_sampled_negatives", {"td3_batch_size": 99}, ["td3_batch_size", "even", "99"]),
        ("me_es", {"es_samples": 999}, ["es_samples", "even", "999"]),
    ],
)
def test_bad_values_are_refused_by_name(name, values, words):
    message = refusal(elites.build, "point_omni", name, **values)
    assert message.startswith(words[0])
    for word in words:
        assert word in message


def test_an_unknown_algorithm_lists_the_known_and_the_nearest():
    message = refusal(elites.build, "point_omni", "dgc_me")
    assert "'dgc_me'" in message
    assert "Did you mean 'dcg_me'?" in message
    for name in ALGORITHMS:
        assert name in message
    assert "Did you mean" not in refusal(algorithms.make, "zzz", None)


def test_an_unknown_hyperparameter_lists_the_known_and_the_nearest():
    message = refusal(elites.train, "point_omni", "me", evaluations=1000, batchsize=8)
    assert "'batchsize'" in message
    assert "Did you mean 'batch_size'?" in message
    for field in dataclasses.fields(elites.Hyperparameters):
        assert field.name in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("evals", "Did you mean 'evaluations'?"),
        ("num_evaluations", "Did you mean 'evaluations'?"),
        ("iterations", "'evaluations'? One iteration is 'batch_size' evaluations"),
        ("critic_lr", "Did you mean 'critic_learning_rate'?"),
        ("gamma", "Did you mean 'discount'?"),
        ("batch", "Did you mean 'batch_size' or 'td3_batch_size'?"),
        ("num_centroids", "Did you mean 'cells'?"),
        ("buffer_size", "Did you mean 'replay_size'?"),
        ("seed", "seeds=[3] trains the seed of that number"),
    ],
)
def test_a_word_of_another_library_leads_to_ours(name, words):
    message = refusal(elites.train, "point_omni", "me", **{name: 3})
    assert message.startswith(f"unknown argument '{name}'. ")
    assert words in message


@pytest.mark.parametrize("name", ["colour", "x"])
def test_only_a_close_name_is_suggested(name):
    assert "Did you mean" not in refusal(elites.build, "point_omni", "me", **{name: 3})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"evaluations": 511}, ["evaluations", "256 + 256", "me", "511"]),
        ({"evaluations": 0}, ["evaluations", "256 + 256", "0"]),
        ({"seeds": 0}, ["seeds", "at least 1"]),
        ({"seeds": []}, ["seeds", "at least 1"]),
        ({"seeds": 2**32}, ["seeds", "at most 10000", "4294967296"]),
    ],
)
def test_training_refuses_a_budget_or_seeds_of_nothing(arguments, words):
    message = refusal(elites.train, "point_omni", "me", **arguments)
    for word in words:
        assert word in message


def test_a_run_stops_at_the_first_iteration_that_reaches_its_budget():
    """The evaluations of the start count too: 256 + 256 k >= budget."""
    me = elites.build("point_omni", "me")
    for evaluations, iterations in [(512, 1), (513, 2), (768, 2), (1_000_000, 3906)]:
        assert elites.training.iterations_for(me, evaluations) == iterations
    es_ = elites.build("point_omni", "me_es")
    assert elites.training.iterations_for(es_, 1 + 1001 * 7) == 7


def test_replay_rows_hold_descriptors_only_where_a_critic_sees_them():
    """point_omni: 3 + 2 + 1 + 3 + 1 + 1 = 11 columns, 4 more with d and d', 2 with a state's."""
    names = ("pga_me", "qd_pg", "dcg_me")
    widths = {name: parts_of(name)["state"].replay.rows.shape[1] for name in names}
    assert widths == {"pga_me": 11, "qd_pg": 13, "dcg_me": 15}
    described = {"descriptor", "target", "state_descriptor"}
    assert {name: described & set(spec_of(name).layout) for name in names} == {
        "pga_me": set(),
        "qd_pg": {"state_descriptor"},
        "dcg_me": {"descriptor", "target"},
    }


def test_a_critic_without_a_hidden_layer_is_refused():
    with pytest.raises(ValueError, match="critic_hidden must have at least one layer"):
        elites.Hyperparameters(critic_hidden=())
