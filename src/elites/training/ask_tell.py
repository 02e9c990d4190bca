"""Drive an algorithm from outside: its policies are evaluated by another simulator or a robot."""

from __future__ import annotations

from typing import Generic

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core.td3 import Losses
from elites.core.types import (
    Algorithm,
    Array,
    Evaluation,
    Request,
    Round,
    S,
    Transitions,
)
from elites.training.results import Elites, named


class AskTell(Generic[S]):
    """An algorithm whose policies are evaluated elsewhere.

        search = AskTell(elites.build(task, "me"), seed=0)
        while ...:
            policies = search.ask()                    # [n, P]
            search.tell(fitness, descriptors)          # [n], [n, D] in task units

    For algorithms that learn from results alone (`me`, `me_es`). n may differ between calls. Told
    what training would have measured, a search takes the steps of a training with the same seed.
    """

    def __init__(self, algorithm: Algorithm[S], seed: int = 0):
        if algorithm.main_td3 is not None:
            raise ValueError(
                f"{algorithm.name} learns from the transitions of its own rollouts and cannot be "
                "driven by ask and tell; me and me_es can"
            )
        self.algorithm = algorithm
        self._key = jax.random.key(seed)
        self._iteration = self._round = 0  # where the search is
        self._losses: dict[str, Losses] = {}
        self._request: Request | None = None
        self._first, self._train = jax.jit(algorithm.first), jax.jit(algorithm.train)
        self._rounds = [
            Round(jax.jit(ask), jax.jit(tell), evaluations)
            for ask, tell, evaluations in algorithm.rounds
        ]
        self.state: S = jax.jit(algorithm.init)(self._iteration_key(), algorithm.centroids())
        self.metrics: dict[str, np.ndarray] = {}
        """Metrics of the last complete iteration."""

    @property
    def archive(self) -> Elites:
        """The elites so far."""
        return Elites(self.state.archive, self.algorithm)

    def _iteration_key(self) -> Array:
        return jax.random.fold_in(self._key, self._iteration)

    @property
    def _current(self) -> Round[S]:
        """The round to ask and tell. The start is told to the last one."""
        return self._rounds[self._round if self._iteration else -1]

    def ask(self) -> np.ndarray:
        """Return the policies [n, P] to evaluate."""
        if self._request is not None:
            raise ValueError("ask was called twice: tell the results of the first batch first")
        key = self._iteration_key()
        if self._iteration == 0:
            request = self._first(self.state, key)
        else:
            if self._round == 0:
                self.state, self._losses = self._train(self.state, key)
            request = self._current.ask(self.state, key)
        self._request = request
        return np.asarray(request.policies[: self._current.evaluations])

    def tell(
        self, fitness: ArrayLike, descriptors: ArrayLike, valid: ArrayLike | None = None
    ) -> None:
        """Report the results of the last `ask`, in its order.

        Mark an evaluation that failed by NaN, or by False in `valid`.
        """
        if self._request is None:
            raise ValueError("tell was called before ask")
        n = self._current.evaluations
        evaluation = self._evaluation(n, fitness, descriptors, valid)
        # Rows beyond the evaluations that count only pad the batch.
        rows = jnp.minimum(jnp.arange(len(self._request.policies)), n - 1)
        evaluation = evaluation._replace(**{name: getattr(evaluation, name)[rows]
            for name in ("fitness", "descriptors", "valid", "steps")})  # fmt: skip
        self.state, metrics = self._current.tell(self.state, self._request, evaluation)
        self._request = None
        starting = self._iteration == 0
        self._round += 1
        if starting or self._round == len(self._rounds):
            self._iteration, self._round = self._iteration + 1, 0
        if metrics is not None and not starting:
            self.metrics = named(metrics.with_losses(self._losses))

    def _evaluation(
        self, n: int, fitness: ArrayLike, descriptors: ArrayLike, valid: ArrayLike | None
    ) -> Evaluation:
        """Check results from outside and clip descriptors to the bounds."""
        problem = self.algorithm.problem
        given = {
            "fitness": jnp.asarray(fitness, jnp.float32),
            "descriptors": jnp.asarray(descriptors, jnp.float32),
            "valid": jnp.ones(n, bool) if valid is None else jnp.asarray(valid, bool),
        }
        expected = {"fitness": (n,), "descriptors": (n, problem.descriptor_size), "valid": (n,)}
        for name, shape in expected.items():
            if given[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {given[name].shape}")
        low, high = (jnp.array(b)[None] for b in (problem.descriptor_low, problem.descriptor_high))
        # An infinite descriptor is a failure, not a place beyond the bounds.
        places = given["descriptors"]
        places = jnp.where(jnp.isfinite(places), jnp.clip(places, low, high), jnp.nan)
        nothing = Transitions(*(jnp.zeros((0, n)) for _ in Transitions._fields))
        return Evaluation(given["fitness"], places, given["valid"], jnp.zeros(n, int), nothing)
