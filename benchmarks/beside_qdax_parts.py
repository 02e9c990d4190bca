"""Parts of elites and of QDax on the same inputs: how far their results differ.

    pip install qdax -c constraints.txt
    python benchmarks/beside_qdax_parts.py

Prints one JSON line. `addition` is the number of cells that differ after the same candidates were
added to an archive of each library. The others are the largest difference as a share of the largest
value: of the critics' loss, of its gradient, and of a policy after ten PG steps.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import optax

from beside_qdax import (
    HP,
    TASK,
    as_vector,
    centroids,
    policy_of_qdax,
    require_qdax,
    transitions_of_qdax,
)
from elites import packages, tasks
from elites.core import archive as archives
from elites.core import networks, td3
from elites.core.algorithms import make_td3
from elites.core.cells import Cells
from elites.core.variation import ascend
from elites.tasks import simulation
from elites.tasks.rollout import problem
from elites.tasks.task import Task

Array = jax.Array


def main() -> None:
    require_qdax()
    task = tasks.make(TASK)
    keys = jax.random.split(jax.random.key(0), 2)
    found = {"addition": _compare_addition(task, keys[0]), **_compare_learning(task, keys[1])}
    print(json.dumps({**found, **packages.versions("qdax", "jax", "brax")}))


def _compare_addition(task: Task, key: Array) -> int:
    """Add three batches to an archive of each library. Returns how many cells differ."""
    repertoires = simulation.load("qdax.core.containers.mapelites_repertoire")
    ours = archives.empty(centroids(task), 1)
    theirs = repertoires.MapElitesRepertoire.init_default(jnp.zeros(1), centroids(task))
    size = len(task.descriptor_low)
    cells = Cells(task.descriptor_low, task.descriptor_high, len(ours.fitness))
    for i in range(3):
        batch_key = jax.random.fold_in(key, i)
        drawn = jax.random.uniform(batch_key, (500, size + 2))
        policies, fitness, descriptors = drawn[:, :1], drawn[:, 1], drawn[:, 2:]
        valid, origin = jnp.ones(500, bool), jnp.zeros(500, jnp.int32)
        ours = archives.add(
            ours, policies, fitness, descriptors, valid, origin, jnp.int32(i), cells
        ).archive
        theirs = theirs.add(policies, descriptors, fitness)
    equal = [
        ours.fitness == theirs.fitnesses[:, 0],
        (ours.policies == theirs.genotypes).all(-1),
        (ours.descriptors == theirs.descriptors).all(-1),
    ]
    return int((~jnp.stack(equal).all(0)).sum())


def _compare_learning(task: Task, key: Array) -> dict[str, float]:
    """Return the differences of the critics' loss, of its gradient, and of PG steps."""
    learner = make_td3(problem(task), HP, actor_hidden=HP.policy_hidden)
    init_key, batch_key, noise_key = jax.random.split(key, 3)
    state = td3.init(learner, init_key)
    columns = _random_columns(task, batch_key, (10, HP.td3_batch_size))
    batches = td3.Batch.of_columns(columns, conditioned=False)
    batch = jax.tree.map(lambda a: a[0], batches)
    noise = jax.random.normal(noise_key, batch.action.shape)
    y = td3.critic_target(learner, state, batch, noise)
    loss = functools.partial(td3.critic_loss, learner, batch=batch, y=y)
    ours = jax.value_and_grad(lambda critics: loss(critics))(state.critics)

    theirs = _losses_of_qdax(task)
    actor, critics = _flax(learner.actor, state.actor), _flax_critics(learner, state.critics)
    rows = [_row(columns, i) for i in range(10)]
    found, slope = jax.value_and_grad(theirs[1])(critics, actor, critics, rows[0], noise_key)
    slopes = [as_vector(slope["params"][name]) for name in ("MLP_0", "MLP_1")]

    child = ascend(
        learner.actor, state.actor[None], jnp.zeros((1, 0)), learner.critic, state.critics[0],
        batches.observation, HP.policy_learning_rate,
    )[0]  # fmt: skip
    adam: Any = optax.adam(HP.policy_learning_rate)
    moments = adam.init(actor)
    for row in rows:
        change, moments = adam.update(jax.grad(theirs[0])(actor, critics, row), moments)
        actor = jax.tree.map(jnp.add, actor, change)
    return {
        "critic_loss": _difference(ours[0], found),
        "critic_gradient": _difference(ours[1], jnp.stack(slopes)),
        "pg_steps": _difference(child, as_vector(actor["params"])),
    }


def _losses_of_qdax(task: Task) -> tuple[Any, Any]:
    """Return QDax's loss of a policy and its loss of the critics."""
    module = simulation.load("qdax.core.neuroevolution.networks.networks")
    return simulation.load("qdax.core.neuroevolution.losses.td3_loss").make_td3_loss_fn(
        policy_fn=policy_of_qdax(task).apply,
        critic_fn=module.QModule(n_critics=2, hidden_layer_sizes=HP.critic_hidden).apply,
        reward_scaling=1.0,
        discount=HP.discount,
        noise_clip=HP.smoothing_clip,
        policy_noise=HP.smoothing_noise,
    )


def _random_columns(task: Task, key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return random transitions, by column. A fifth of them end by themselves or are cut."""
    widths = {
        "observation": task.observation_size,
        "next_observation": task.observation_size,
        "action": task.action_size,
        "state_descriptor": task.descriptor_size,
        "reward": 1,
        "done": 1,
        "truncation": 1,
    }
    keys = jax.random.split(key, len(widths))
    drawn = {
        name: jax.random.uniform(keys[i], (*shape, width), minval=-1.0)
        for i, (name, width) in enumerate(widths.items())
    }
    ends = {name: (drawn[name] > 0.8).astype(jnp.float32) for name in ("done", "truncation")}
    return drawn | ends


def _row(columns: dict[str, Array], i: int) -> Any:
    """Return minibatch i of transitions, by column, as transitions of QDax."""
    single = ("reward", "done", "truncation")
    return transitions_of_qdax({n: a[i, :, 0] if n in single else a[i] for n, a in columns.items()})


def _flax(network: networks.MLP, parameters: Array) -> Any:
    """Return the parameters [P] of a network as parameters of QDax's network."""
    layers = networks.unflatten(network, parameters)
    return {"params": {f"Dense_{i}": {"kernel": k, "bias": b} for i, (k, b) in enumerate(layers)}}


def _flax_critics(learner: td3.TD3, critics: Array) -> Any:
    """Return the parameters [2, P] of twin critics as those of QDax's critics."""
    each = [_flax(learner.critic, critic)["params"] for critic in critics]
    return {"params": {f"MLP_{i}": parameters for i, parameters in enumerate(each)}}


def _difference(ours: Array, theirs: Array) -> float:
    """Return the largest difference of two arrays, divided by the largest value."""
    return float(f"{float(jnp.abs(ours - theirs).max() / jnp.abs(ours).max()):.1e}")


if __name__ == "__main__":
    main()
