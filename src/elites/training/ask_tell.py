"""Run an algorithm whose policies another simulator or a real robot evaluates.

    search = elites.ask_tell(task, "dcg_me", seed=0)
    while search.archive.coverage < 0.5:
        asked = search.ask()
        ...                                   # run an episode for every row of `asked`
        search.tell(fitness, descriptors, episodes=episodes)
        search.save("search.npz")             # between any two calls

`ask` and `tell` call those of `Algorithm`, for one seed. The initial policies are asked for in the
same way. If the algorithm has actor rollouts, the start takes two requests: first the random
policies, then the untrained actor at the descriptors that they reached.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core.algorithm import Algorithm, Round, S
from elites.core.evaluation import acting, actor_rows, noisy, take
from elites.core.hyperparameters import Hyperparameters, Value
from elites.core.td3 import Losses
from elites.core.types import Array, Evaluation, Problem, Request
from elites.tasks.rollout import problem
from elites.tasks.task import Task
from elites.training import searches
from elites.training.builders import Builder, build_algorithm, hyperparameters_of, preset_for
from elites.training.episodes import Episode, numbers, transitions
from elites.training.loop import checked_seeds, task_of
from elites.training.results import Elites, named
from elites.training.searches import Saved


@dataclasses.dataclass(frozen=True)
class ExternalTask:
    """Sizes and bounds of a task that another program or a robot evaluates."""

    name: str
    observation_size: int
    action_size: int
    episode_length: int
    """Largest number of steps of an episode."""
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    deterministic: bool = False
    """Whether evaluating a policy again gives exactly the same result."""
    lengthscale: float = 0.1
    """Lengthscale of the descriptor similarity, on descriptors scaled to [-1, 1]."""
    final_descriptor: bool = True
    """Whether the descriptor of an episode is that of its final state."""
    observation_ranges: tuple[tuple[int, float, float], ...] = ()
    """Entries of the observation whose range is known: index, lowest and highest value."""
    qd_offset: float = 0.0
    """Fitness that counts as 0 in QD-scores."""

    def problem(self) -> Problem:
        """Return the task as a `Problem`, the record that algorithms use.

        Its rollout function raises an error, because the policies are evaluated elsewhere.
        """
        if not isinstance(self.episode_length, int) or self.episode_length < 1:
            raise ValueError(
                f"task '{self.name}': episode_length must be at least 1, got "
                f"{self.episode_length!r}"
            )
        sizes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del sizes["episode_length"]
        return Problem(**sizes, rollout=_evaluated_outside)


def _evaluated_outside(*_: object) -> Evaluation:
    raise RuntimeError("this task is evaluated outside: use ask and tell")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Asked:
    """Request for episodes: one for each policy, then one for each target of the actor.

    A target is a descriptor that the actor is asked to reach.
    """

    number: int
    """Number of requests before this one."""
    policies: np.ndarray
    """[n, P] policies to evaluate"""
    actor_targets: np.ndarray
    """[m, D] descriptors that the actor is asked for, in task units"""
    act: Callable[[ArrayLike], np.ndarray]
    """Observations [n + m, O] -> actions [n + m, A], in the order of the rows.

    In requests for exploration it adds noise, which is different in every call.
    """

    def __len__(self) -> int:
        """Return the number of episodes that the request asks for."""
        return len(self.policies) + len(self.actor_targets)

    def __repr__(self) -> str:
        return (
            f"<request {self.number}: {len(self.policies)} policies, "
            f"{len(self.actor_targets)} actor rollouts>"
        )


class AskTell(Generic[S]):
    """A search whose policies are evaluated outside of elites, by a simulator or a robot.

    If it is told the results that `train` computes, it takes the same steps as `train` with this
    seed.
    """

    def __init__(self, algorithm: Algorithm[S], episode_length: int, seed: int = 0):
        self.algorithm, self.episode_length, self.seed = algorithm, episode_length, seed
        self._key = jax.random.key(seed)
        self._centroids = algorithm.centroids()
        self._init, self._first = jax.jit(algorithm.init), jax.jit(algorithm.first)
        self._train = jax.jit(algorithm.train, donate_argnums=0)
        self._rounds = [
            Round(jax.jit(ask), jax.jit(tell, donate_argnums=0), evaluations)
            for ask, tell, evaluations in algorithm.rounds
        ]
        self._act = jax.jit(self._actions)
        self._at = searches.Position()
        self._state: S = self._init(self._iteration_key(), self._centroids)
        self._request: Request | None = None
        self._started: Evaluation | None = None  # results of the initial policies
        self._losses: dict[str, Losses] = {}
        self.metrics: dict[str, np.ndarray] = {}
        """Metrics of the last complete iteration."""

    @property
    def state(self) -> S:
        """State of the algorithm. Do not change it: use `save` and `load` to continue elsewhere."""
        return self._state

    @property
    def archive(self) -> Elites:
        """Archive of the search so far, as a sequence of elites."""
        return Elites(self._state.archive, self.algorithm)

    @property
    def iteration(self) -> int:
        """Index of the iteration in progress. Iteration 0 evaluates the initial policies."""
        return self._at.iteration

    def _iteration_key(self) -> Array:
        return jax.random.fold_in(self._key, self._at.iteration)

    # ----------------------------------------------------------------------------------------- ask

    def ask(self) -> Asked:
        """Return the next request: policies to evaluate, and descriptors to request of the actor.

        Raises a ValueError if `tell` was not called since the last request.
        """
        if self._request is not None:
            raise ValueError("ask was called twice: tell the results of the first request first")
        key = self._iteration_key()
        if self._at.iteration == 0:
            self._request = self._first(self._seen_state(), key)
        else:
            if self._at.round == 0:
                self._state, self._losses = self._train(self._state, key)
            self._request = self._rounds[self._at.round].ask(self._state, key)
        return self.asked()

    def asked(self) -> Asked:
        """Return the last request again while it waits for its results, for instance after `load`.

        Raises a ValueError if no request is waiting.
        """
        part = self._part(self._pending())
        n, m = self._rows()
        calls = itertools.count()

        def act(observations: ArrayLike) -> np.ndarray:
            seen = numbers(observations, "observations")
            expected = (n + m, self.algorithm.problem.observation_size)
            if seen.shape != expected:
                raise ValueError(f"observations must have shape {expected}, got {seen.shape}")
            return np.asarray(self._act(part, seen, next(calls)))

        targets = np.asarray(part.actor_targets)[:m]
        return Asked(self._at.told, np.asarray(part.policies), targets, act)

    def _pending(self) -> Request:
        if self._request is None:
            raise ValueError(
                f"no request is waiting for results: call ask before tell (requests told so far: "
                f"{self._at.told})"
            )
        return self._request

    def _rows(self) -> tuple[int, int]:
        """Return how many policies and how many actor rollouts the user must evaluate now.

        Other rows of the pending request are padding, or belong to the other round of the start.
        """
        round_ = self._rounds[-1 if self._at.iteration == 0 else self._at.round]
        algorithm = self.algorithm
        m = actor_rows(algorithm.problem, algorithm.main_td3, algorithm.actor_rollouts)
        if self._at.iteration == 0 and algorithm.actor_rollouts:
            return (round_.evaluations, 0) if self._at.round == 0 else (0, m)
        return round_.evaluations, m

    def _part(self, request: Request) -> Request:
        """Return the request without the rows that need no evaluation now, see `_rows`."""
        n, m = self._rows()
        targets = request.actor_targets if m else request.actor_targets[:0]
        return request._replace(policies=request.policies[:n], actor_targets=targets)

    def _actions(self, request: Request, observations: Array, call: Array) -> Array:
        """Return the actions [rows, A] of a request's rows. `call` numbers the calls for noise."""
        algorithm, rows = self.algorithm, len(observations)
        act = acting(algorithm.problem, algorithm.policy, algorithm.main_td3, request, rows)
        if request.action_noise is None:
            return act(observations)
        keys = jax.random.split(jax.random.fold_in(request.key, call), rows)
        deviations = jnp.pad(request.action_noise, (0, rows - len(request.action_noise)))
        return noisy(act(observations), deviations, keys)

    def _seen_state(self) -> S:
        """Return the state whose archive the initial request draws the actor's descriptors from.

        In the second round of the start, its archive holds the initial policies. Everything else in
        it is still blank.
        """
        if self._at.round == 0 or self._started is None:
            return self._state
        key = self._iteration_key()
        blank = self._init(key, self._centroids)
        told, _ = self._rounds[-1].tell(blank, self._first(blank, key), self._started)
        return self._state._replace(archive=told.archive)

    # ---------------------------------------------------------------------------------------- tell

    def tell(
        self,
        fitness: ArrayLike,
        descriptors: ArrayLike,
        valid: ArrayLike | None = None,
        episodes: Sequence[Episode | None] | None = None,
        asked: Asked | None = None,
    ) -> None:
        """Report the results of the last request of `ask`: one for each of its rows, in order.

        `fitness` [rows] and `descriptors` [rows, D] in task units are needed by all algorithms,
        `episodes` by those that learn from transitions. Mark a failed evaluation with NaN, with
        False in `valid`, or with None in `episodes`.

        If `asked` is given and is not the pending request, a ValueError is raised.
        """
        request = self._pending()
        if asked is not None and asked.number != self._at.told:
            raise ValueError(
                f"these are results of request {asked.number}, but request {self._at.told} is "
                "waiting for its results"
            )
        results = self._checked(fitness, descriptors, valid, episodes)
        starting = self._at.iteration == 0
        if starting and self.algorithm.actor_rollouts and self._at.round == 0:
            self._started = self._with_actor_rows(results)
            self._advance(rounds=2)
            return
        if starting and self._started is not None:
            evaluation = _joined(self._started, results, len(request.policies))
        else:
            evaluation = _padded(results, request, self._rows()[0])
        round_ = self._rounds[-1 if starting else self._at.round]
        self._state, metrics = round_.tell(self._state, request, evaluation)
        self._started = None
        if metrics is not None and not starting:
            self.metrics = named(metrics.with_losses(self._losses))
        self._advance(rounds=self._at.round + 1 if starting else len(self._rounds))

    def _advance(self, rounds: int) -> None:
        """Move on to the next round, or to the next iteration after the last of `rounds` rounds."""
        self._request = None
        self._at = self._at.next(rounds)

    def _checked(
        self,
        fitness: ArrayLike,
        descriptors: ArrayLike,
        valid: ArrayLike | None,
        episodes: Sequence[Episode | None] | None,
    ) -> Evaluation:
        """Return the reported results as an `Evaluation`.

        Raises a ValueError if a shape or a type is wrong, or if episodes are missing. Descriptors
        are clipped to the bounds of the task.
        """
        on, rows = self.algorithm.problem, sum(self._rows())
        given = {
            "fitness": numbers(fitness, "fitness"),
            "descriptors": numbers(descriptors, "descriptors"),
            "valid": np.ones(rows, bool) if valid is None else _flags(valid),
        }
        expected = {
            "fitness": (rows,), "descriptors": (rows, on.descriptor_size), "valid": (rows,),
        }  # fmt: skip
        for name, shape in expected.items():
            if given[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {given[name].shape}")
        places = given["descriptors"]
        # An infinite descriptor is a failed evaluation, not a value beyond the bounds.
        known = np.isfinite(places)
        places = np.where(known, np.clip(places, on.descriptor_low, on.descriptor_high), np.nan)
        succeeded = given["valid"] & np.isfinite(given["fitness"]) & known.all(1)
        needed = self.algorithm.needs_transitions
        if episodes is None and needed:
            why = "learns from" if self.algorithm.main_td3 is not None else "normalises by"
            raise ValueError(
                f"{self.algorithm.name} {why} transitions: give episodes, a list of {rows}"
            )
        if episodes is not None and len(episodes) != rows:
            raise ValueError(f"episodes must have {rows} entries, got {len(episodes)}")
        given_episodes = [None] * rows if episodes is None else list(episodes)
        if episodes is not None:
            succeeded &= np.array([episode is not None for episode in given_episodes])
        length = self.episode_length if needed else 0
        steps = transitions(given_episodes, succeeded, on, length)
        self._refuse_missing_descriptors(given_episodes)
        return Evaluation(
            jnp.asarray(given["fitness"]), jnp.asarray(places, jnp.float32),
            jnp.asarray(succeeded), jnp.sum(steps.mask, axis=0).astype(jnp.int32), steps,
        )  # fmt: skip

    def _refuse_missing_descriptors(self, episodes: Sequence[Episode | None]) -> None:
        """Raise a ValueError if the algorithm needs state descriptors and an episode has none."""
        layout = self.algorithm.replay_layout
        if layout is None or "state_descriptor" not in layout:
            return
        for row, episode in enumerate(episodes):
            if episode is not None and episode.state_descriptors is None:
                raise ValueError(
                    f"episode {row}: {self.algorithm.name} rewards states and needs "
                    "state_descriptors"
                )

    def _with_actor_rows(self, results: Evaluation) -> Evaluation:
        """Return the results of the policies, then a failed result for each actor rollout."""
        algorithm = self.algorithm
        m = actor_rows(algorithm.problem, algorithm.main_td3, algorithm.actor_rollouts)

        def extended(array: Array, axis: int = 0) -> Array:
            shape = (*array.shape[:axis], m, *array.shape[axis + 1 :])
            return jnp.concatenate([array, jnp.zeros(shape, array.dtype)], axis)

        return Evaluation(
            extended(results.fitness),
            extended(results.descriptors),
            extended(results.valid),
            extended(results.steps),
            jax.tree.map(lambda a: extended(a, axis=1), results.transitions),
        )

    # ------------------------------------------------------------------------------- save and load

    def save(self, path: str | Path) -> None:
        """Write the search to a file. It may be called at any time between other calls.

        An existing file is replaced atomically.
        """
        saved = Saved(
            self._at, self._state, self._request, self._started, self._losses, self.metrics
        )
        searches.save(Path(path), self._facts(), saved)

    def load(self, path: str | Path) -> None:
        """Replace the state of this search with the one that `save` wrote to a file.

        Both searches must have the same task, algorithm, hyperparameters and seed. Otherwise, a
        ValueError is raised.
        """
        shapes = jax.eval_shape(self.algorithm.init, self._key, self._centroids)
        saved = searches.load(Path(path), self._facts(), shapes)
        self._at, self._state, self._request = saved.position, saved.state, saved.request
        self._started, self._losses, self.metrics = saved.started, saved.losses, saved.metrics

    def _facts(self) -> dict[str, str | int]:
        """Return, by name, the values that must be equal when a saved search is loaded."""
        problem = self.algorithm.problem
        hyperparameters = {
            f"hyperparameter {k}": str(v) for k, v in vars(self.algorithm.hp).items()
        }
        return {
            "algorithm": self.algorithm.name,
            "task": problem.name,
            "seed": self.seed,
            "episode_length": self.episode_length,
            **_task_facts(problem),
            **hyperparameters,
        }


def _task_facts(problem: Problem) -> dict[str, str]:
    """Return the values of a task that decide how a search goes on, by name."""
    fields = (field.name for field in dataclasses.fields(problem))
    return {
        f"task's {name}": str(getattr(problem, name))
        for name in fields
        if name not in ("name", "rollout", "outside")
    }


def ask_tell(
    task: str | Task | Callable[[], Task] | ExternalTask,
    algorithm: str | Builder | Algorithm = "dcg_me",
    *,
    seed: int = 0,
    preset: str | None = None,
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> AskTell:
    """Return a new search whose policies are evaluated outside of elites.

    `task` gives the sizes and bounds: what `elites.build` accepts, or an `ExternalTask` for your
    own robot. `algorithm` is what `elites.build` accepts, or the `Algorithm` that it returned. The
    other arguments are those of `elites.build`.
    """
    if not isinstance(task, ExternalTask):
        task = task_of(task)
    on = task.problem() if isinstance(task, ExternalTask) else problem(task)
    if not isinstance(algorithm, Algorithm):
        arguments = ("seed", "preset", "hp")
        preset = preset or preset_for(on)
        values = hyperparameters_of(algorithm, preset, hp, hyperparameters, arguments)
        algorithm = build_algorithm(algorithm, on, values)
    elif hyperparameters or hp is not None or preset is not None:
        raise ValueError("an algorithm that is built already takes no hyperparameters")
    same = dataclasses.replace(algorithm.problem, rollout=on.rollout, outside=on.outside)
    if same != on:
        raise ValueError(
            f"{algorithm.name} was built for task '{algorithm.problem.name}', not for '{on.name}' "
            "with these sizes and bounds"
        )
    return AskTell(algorithm, task.episode_length, *checked_seeds([seed]))


def _flags(valid: ArrayLike) -> np.ndarray:
    """Return validity flags [rows] as booleans. 0 and 1 are accepted too.

    Raises a ValueError for any other value.
    """
    array = np.asarray(valid)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError("valid must be True or False for every row")
    return array.astype(bool)


def _padded(results: Evaluation, request: Request, n: int) -> Evaluation:
    """Return results for all rows of a request, given those of its first n policies and its actor.

    Further policies of the request are padding: they get the result of policy n - 1.
    """
    policies = jnp.minimum(jnp.arange(len(request.policies)), n - 1)
    actors = jnp.arange(n, len(results.fitness))
    return take(results, jnp.concatenate([policies, actors]))


def _joined(started: Evaluation, results: Evaluation, n: int) -> Evaluation:
    """Return one evaluation: the first n rows of `started`, then all rows of `results`.

    The first are the initial policies, the others the actor rollouts of the start.
    """
    policies = take(started, jnp.arange(n))
    return Evaluation(
        jnp.concatenate([policies.fitness, results.fitness]),
        jnp.concatenate([policies.descriptors, results.descriptors]),
        jnp.concatenate([policies.valid, results.valid]),
        jnp.concatenate([policies.steps, results.steps]),
        jax.tree.map(
            lambda a, b: jnp.concatenate([a, b], axis=1), policies.transitions, results.transitions
        ),
    )
