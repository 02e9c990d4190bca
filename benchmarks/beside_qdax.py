"""CVT-MAP-Elites and PGA-MAP-Elites of elites and of QDax, on one task of brax.

    pip install qdax -c constraints.txt
    python benchmarks/beside_qdax.py
    python benchmarks/beside_qdax.py --algorithms pga_me --seeds 3 --iterations 40

The task is brax's halfcheetah with the spring back end, 100 steps, and the descriptor feet_contact.
One compiled program evaluates the policies of both libraries, so that only the algorithms differ.
QDax's own `halfcheetah_uni` is not used. Its descriptor is the mean over the states before the
steps, ours over those after. The halfcheetah never falls, so every episode has all its steps.

Centroids, batch, layers, learning rates and numbers of steps are the same. Initial policies,
mutation, emitters, replay buffer, losses, optimisers and repertoire of QDax are its own.

The emitter of PGA-MAP-Elites in QDax 0.5.0 cannot be imported beside brax 0.14: it takes a type
from a module that needs brax.v1. The type is an annotation only, and an empty class stands in.
PGA-MAP-Elites differs in these points:

    training       QDax trains after it has evaluated a batch, elites before it makes one. The first
                   PG offspring of QDax therefore ascend an untrained critic.
    actor step     QDax takes it after the critic steps of a turn, on a minibatch of its own. elites
                   takes it on the first minibatch, and on the critic as it was before that step.
    first actor    QDax starts from the first policy of the first batch, elites from another one.

Random numbers are drawn in another order, so seeds of the same number are not related. Equal parts
are the GA, the share of GA offspring, the one greedy offspring, the losses, the initialisers of the
networks, minibatches that all PG parents share, the unscaled reward, and the rules of the archive.
`beside_qdax_parts.py` compares some of these.

Prints one JSON line for each library, algorithm and seed. `seconds` is the time of all iterations
of all seeds together, without compilation. Then there is one line for each algorithm and metric,
with medians, ranges and the two-sided rank-sum p.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import elites
from elites import packages, tasks
from elites.core import networks
from elites.core.centroids import box_centroids
from elites.core.hyperparameters import Hyperparameters
from elites.core.types import Evaluation
from elites.study.statistics import rank_sum, smallest_p
from elites.tasks import simulation
from elites.tasks.rollout import problem, rollout_policies
from elites.tasks.task import Task

Array = jax.Array

TASK = "brax:halfcheetah,backend=spring,descriptor=feet_contact,episode_length=100"
OFFSET = -200.0  # of QD-scores; below the fitness of every elite of these runs
HP = Hyperparameters(
    cells=256,
    batch_size=64,
    policy_hidden=(64, 64),
    critic_hidden=(64, 64),
    critic_steps=100,
    pg_steps=20,
    replay_size=100_000,
)
METRICS = ("qd_score", "coverage", "max_fitness")


class Search(NamedTuple):
    """An algorithm of one of the libraries, for one seed. Policies are vectors of elites."""

    start: Callable[[Array], tuple[Any, Array, Any]]
    """(key) -> state, first policies [n, P], and what `fill` needs besides"""
    fill: Callable[[Any, Any, Evaluation], Any]
    """(state, what `start` returned last, results) -> state"""
    ask: Callable[[Any, Array], tuple[Any, Array, Any]]
    """(state, key) -> state, policies [n, P], and what `tell` needs besides"""
    tell: Callable[[Any, Any, Evaluation], Any]
    """(state, what `ask` returned last, results) -> state"""
    fitness: Callable[[Any], Array]
    """(state) -> [cells], -inf where a cell is empty"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", choices=["me", "pga_me"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    given = parser.parse_args()
    require_qdax()

    task = tasks.make(TASK)
    print(json.dumps({"task": TASK, **packages.versions("qdax", "jax", "brax")}), flush=True)
    for name in given.algorithms or ["me", "pga_me"]:
        found = {}
        for library, build in (("elites", of_elites), ("qdax", of_qdax)):
            found[library] = run(task, build(name, task), given.seeds, given.iterations)
            for seed, line in enumerate(found[library]):
                line = {"library": library, "algorithm": name, "seed": seed, **line}
                print(json.dumps(line), flush=True)
        for metric in METRICS:
            print(json.dumps({"algorithm": name, **summary(metric, found)}), flush=True)


def require_qdax() -> None:
    """End the program with one line if QDax is not installed."""
    if not packages.is_installed("qdax"):
        sys.exit("this benchmark needs the package qdax: pip install qdax -c constraints.txt")


def run(task: Task, search: Search, seeds: int, iterations: int) -> list[dict[str, float]]:
    """Run a search with several seeds at once and return the metrics at the end of each seed."""
    start, ask = jax.jit(jax.vmap(search.start)), jax.jit(jax.vmap(search.ask))
    fill = jax.jit(jax.vmap(search.fill), donate_argnums=0)
    tell = jax.jit(jax.vmap(search.tell), donate_argnums=0)
    keys = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed), iterations + 1))(
        jnp.arange(seeds)
    )
    state, policies, asked = start(keys[:, 0])
    state = fill(state, asked, _simulate(task, policies))
    begun = time.perf_counter()
    for i in range(1, iterations + 1):
        state, policies, asked = ask(state, keys[:, i])
        state = jax.block_until_ready(tell(state, asked, _simulate(task, policies)))
        if i == 1:  # the first one compiles
            begun = time.perf_counter()
    seconds = time.perf_counter() - begun
    evaluations = HP.batch_size * (iterations + 1)
    fitness = np.asarray(jax.vmap(search.fitness)(state))
    return [_line(row, evaluations, seconds) for row in fitness]


def _line(fitness: np.ndarray, evaluations: int, seconds: float) -> dict[str, float]:
    """Return the metrics of an archive, given the fitness of its cells."""
    elite = fitness[np.isfinite(fitness)]
    return {
        "evaluations": evaluations,
        "qd_score": round(float((elite - OFFSET).sum()), 1),
        "coverage": round(elite.size / fitness.size, 4),
        "max_fitness": round(float(elite.max()), 2),
        "min_fitness": round(float(elite.min()), 2),
        "seconds": round(seconds, 1),
    }


def summary(metric: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians and ranges of a metric over seeds by library, and the rank-sum p."""
    values = {library: [line[metric] for line in lines] for library, lines in found.items()}
    ours, theirs = values["elites"], values["qdax"]
    described = {
        library: {"median": statistics.median(each), "range": [min(each), max(each)]}
        for library, each in values.items()
    }
    p = {"p": rank_sum(ours, theirs)[0], "smallest_p": smallest_p(ours, theirs)}
    return {"metric": metric, **described, **{name: round(value, 4) for name, value in p.items()}}


@functools.partial(jax.jit, static_argnums=0)
def _simulate(task: Task, policies: Array) -> Evaluation:
    """Run one episode of each policy [seeds, n, P]. The results have the leading axis `seeds`."""
    seeds, n, size = policies.shape
    keys = jax.random.split(jax.random.key(0), seeds * n)  # the task is deterministic
    network = problem(task).policy(HP.policy_hidden)
    found = rollout_policies(task, network, policies.reshape(seeds * n, size), keys)
    steps = jax.tree.map(
        lambda a: a.reshape(len(a), seeds, n, *a.shape[2:]).swapaxes(0, 1), found.transitions
    )
    results = jax.tree.map(
        lambda a: a.reshape(seeds, n, *a.shape[1:]), found._replace(transitions=())
    )
    return results._replace(transitions=steps)


# --------------------------------------------------------------------------------------- searches


def of_elites(name: str, task: Task) -> Search:
    """Return the algorithm of elites that has this name."""
    algorithm = elites.build(task, name, hp=HP)
    (exchange,) = algorithm.rounds

    def start(key: Array) -> tuple[Any, Array, Any]:
        state = algorithm.init(key, centroids(task))
        request = algorithm.first(state, key)
        return state, request.policies, request

    def ask(state: Any, key: Array) -> tuple[Any, Array, Any]:
        state, _ = algorithm.train(state, key)
        request = exchange.ask(state, key)
        return state, request.policies, request

    def tell(state: Any, request: Any, evaluation: Evaluation) -> Any:
        return exchange.tell(state, request, evaluation)[0]

    return Search(start, tell, ask, tell, lambda state: state.archive.fitness)


def of_qdax(name: str, task: Task) -> Search:
    """Return QDax's algorithm of the same name. Its state is a repertoire and an emitter state."""
    policy = policy_of_qdax(task)
    search = simulation.load("qdax.core.map_elites").MAPElites(
        scoring_function=None,
        emitter={"me": _mutation, "pga_me": _gradients}[name](task, policy),
        metrics_function=lambda repertoire: {},
    )

    def start(key: Array) -> tuple[Any, Array, Any]:
        policy_key, search_key = jax.random.split(key)
        keys = jax.random.split(policy_key, HP.batch_size)
        policies = jax.vmap(policy.init, in_axes=(0, None))(keys, jnp.zeros(task.observation_size))
        return None, as_vector(policies["params"]), (policies, search_key)

    def fill(state: Any, asked: Any, evaluation: Evaluation) -> Any:
        policies, key = asked
        fitness, descriptors, extra = _scores(evaluation)
        return search.init_ask_tell(
            policies, fitness, descriptors, centroids(task), key, extra_scores=extra
        )[:2]

    def ask(state: Any, key: Array) -> tuple[Any, Array, Any]:
        policies, info = search.ask(*state, key)
        return state, as_vector(policies["params"]), (policies, info)

    def tell(state: Any, asked: Any, evaluation: Evaluation) -> Any:
        policies, info = asked
        fitness, descriptors, extra = _scores(evaluation)
        return search.tell(policies, fitness, descriptors, *state, extra, info)[:2]

    return Search(start, fill, ask, tell, lambda state: state[0].fitnesses[:, 0])


def centroids(task: Task) -> Array:
    """Return the centroids that both libraries use."""
    return box_centroids(task.descriptor_low, task.descriptor_high, HP.cells)


def policy_of_qdax(task: Task) -> Any:
    """Return QDax's network of a policy."""
    mlp = simulation.load("qdax.core.neuroevolution.networks.networks").MLP
    return mlp((*HP.policy_hidden, task.action_size), final_activation=jnp.tanh)


def as_vector(parameters: Any) -> Array:
    """Return parameters of a network of QDax as a vector of elites. Leading axes are kept."""
    layers = [parameters[f"Dense_{i}"] for i in range(len(parameters))]
    return networks.flatten([(layer["kernel"], layer["bias"]) for layer in layers])


def _vary(first: Any, second: Any, key: Array) -> Any:
    """Return QDax's children of two batches of parents."""
    operators = simulation.load("qdax.core.emitters.mutation_operators")
    return operators.isoline_variation(first, second, key, HP.iso_sigma, HP.line_sigma)


def _mutation(task: Task, policy: Any) -> Any:
    """Return QDax's emitter of CVT-MAP-Elites."""
    del task, policy
    emitters = simulation.load("qdax.core.emitters.standard_emitters")
    return emitters.MixingEmitter(
        mutation_fn=lambda policies, key: policies,
        variation_fn=_vary,
        variation_percentage=1.0,
        batch_size=HP.batch_size,
    )


def _gradients(task: Task, policy: Any) -> Any:
    """Return QDax's emitter of PGA-MAP-Elites."""
    # QDax 0.5.0 imports a module of brax.v1 here, for a type only. brax 0.14 has no brax.v1.
    absent = types.ModuleType("qdax.tasks.brax.v1.envs.base_env")
    absent.__dict__["QDEnv"] = object
    sys.modules.setdefault(absent.__name__, absent)
    emitters = simulation.load("qdax.core.emitters.pga_me_emitter")
    config = emitters.PGAMEConfig(
        env_batch_size=HP.batch_size,
        proportion_mutation_ga=0.5,
        num_critic_training_steps=HP.critic_steps,
        num_pg_training_steps=HP.pg_steps,
        replay_buffer_size=HP.replay_size,
        critic_hidden_layer_size=HP.critic_hidden,
        critic_learning_rate=HP.critic_learning_rate,
        greedy_learning_rate=HP.actor_learning_rate,
        policy_learning_rate=HP.policy_learning_rate,
        noise_clip=HP.smoothing_clip,
        policy_noise=HP.smoothing_noise,
        discount=HP.discount,
        batch_size=HP.td3_batch_size,
        soft_tau_update=HP.target_update_rate,
        policy_delay=HP.actor_delay,
    )
    sizes = types.SimpleNamespace(  # all that the emitter reads of an environment
        observation_size=task.observation_size,
        action_size=task.action_size,
        state_descriptor_length=task.descriptor_size,
    )
    return emitters.PGAMEEmitter(config, policy, sizes, _vary)


def _scores(evaluation: Evaluation) -> tuple[Array, Array, Any]:
    """Return results as QDax takes them: fitness, descriptors and extra scores."""
    columns = {
        name: column.swapaxes(0, 1).astype(jnp.float32)
        for name, column in evaluation.transitions._asdict().items()
    }
    fitness = jnp.where(evaluation.valid, evaluation.fitness, -jnp.inf)
    return fitness, evaluation.descriptors, {"transitions": transitions_of_qdax(columns)}


def transitions_of_qdax(columns: dict[str, Array]) -> Any:
    """Return transitions of elites, by column, as transitions of QDax."""
    described = columns["state_descriptor"]
    return simulation.load("qdax.core.neuroevolution.buffers.buffer").QDTransition(
        obs=columns["observation"],
        next_obs=columns["next_observation"],
        rewards=columns["reward"],
        dones=columns["done"],
        truncations=columns["truncation"],
        actions=columns["action"],
        state_desc=described,  # PGA-MAP-Elites reads neither of the two
        next_state_desc=described,
    )


if __name__ == "__main__":
    main()
