"""How the stages of an algorithm are compiled: separately, or an iteration as one program.

Most algorithms have each of their stages compiled separately. An iteration on plain vectors takes
only milliseconds. To start its stages one after another would be a large part of that, so all of
them are one program.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core.algorithm import Algorithm, Round, S
from elites.core.types import Array, Evaluation, Request

CompilerOptions = dict[str, bool | int | float | str]


class Stage(NamedTuple):
    """Compilation options of one stage of an algorithm, such as `train` or `evaluate`."""

    donate: bool = False
    """Donate the state, its first argument: the replay buffer is then updated in place."""
    concurrent: bool = False
    """On a GPU, run independent kernels at the same time.

    This speeds up training, which consists of thousands of small kernels.
    """


STAGES = {
    "init": Stage(),
    "first": Stage(),
    "train": Stage(donate=True, concurrent=True),
    "ask": Stage(),
    "evaluate": Stage(),
    "tell": Stage(donate=True),
    "step": Stage(donate=True),  # all of an iteration, see `is_one_program`
}


def is_one_program(algorithm: Algorithm) -> bool:
    """Return whether an iteration is one compiled program.

    It is for plain vectors that a function of JAX evaluates, unless a learner is trained.
    """
    vectors = algorithm.problem.vectors
    return vectors is not None and vectors.evaluate is not None and algorithm.main_td3 is None


def separated(algorithm: Algorithm[S]) -> Algorithm[S]:
    """Return an algorithm whose stages the compiler does not fuse with each other.

    In one program, they then compute the same bits as each on its own. An elite that is evaluated
    again gives the same bits too.
    """

    def evaluate(request: Request) -> Evaluation:
        return jax.lax.optimization_barrier(algorithm.evaluate(request))

    def apart(ask: Callable[[S, Array], Request]) -> Callable[[S, Array], Request]:
        def asked(state: S, key: Array) -> Request:
            request = ask(state, key)
            policies = jax.lax.optimization_barrier(request.policies)
            return request._replace(policies=policies)

        return asked

    rounds = tuple(Round(apart(each.ask), each.tell, each.evaluations) for each in algorithm.rounds)
    return dataclasses.replace(algorithm, evaluate=evaluate, rounds=rounds)


@functools.cache
def concurrent_options() -> CompilerOptions:
    """Return the compiler options that let GPU kernels run concurrently.

    Returns an empty dictionary without a GPU, or if the compiler does not know the options.
    """
    options: CompilerOptions = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if jax.default_backend() != "gpu":
        return {}
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return options
