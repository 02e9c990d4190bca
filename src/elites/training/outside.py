"""The stage `evaluate` of a batch of seeds whose episodes run outside of JAX."""

from __future__ import annotations

from collections.abc import Callable

from elites.core import outside
from elites.core.algorithm import Algorithm
from elites.core.outside import Rows
from elites.core.types import Evaluation, Request


class EvaluateOutside:
    """Evaluates requests of all seeds by `Problem.outside`.

    `rows` is the compiled part of the stage: it makes plain policies of a request.
    """

    def __init__(self, algorithm: Algorithm, rows: Callable[[Request], Rows]):
        self.rows, self._algorithm = rows, algorithm
        self._observes = algorithm.hp.normalise_observations

    def __call__(self, request: Request) -> Evaluation:
        algorithm = self._algorithm
        return outside.evaluate(
            algorithm.problem, algorithm.policy, algorithm.main_td3, self.rows(request),
            observes=self._observes,
        )  # fmt: skip

    def shapes(self, rows: Rows) -> Evaluation:
        """Return the results of `rows` with shapes and types in place of arrays."""
        algorithm = self._algorithm
        return outside.shapes(algorithm.problem, algorithm.main_td3, rows, observes=self._observes)
