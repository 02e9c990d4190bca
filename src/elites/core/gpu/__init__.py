"""Hand-written GPU kernels, and the functions that choose what runs on a GPU.

    td3.py       TD3 training as a few kernels per step
    kernels.py   the kernels themselves, written in Pallas

The rest of `core` calls the two functions below and runs on any device. Importing this package does
not import Pallas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from elites.core.td3 import TD3, Losses, TD3State

    Training = Callable[..., tuple[TD3State, Losses]]
    """From state, batches, noise and, optionally, a factor of the learning rates."""


def td3_training(td3: TD3) -> Training | None:
    """Return a function that trains this learner with GPU kernels, or None.

    The function takes the same arguments as `td3.train_plain` and returns the same result, up to
    rounding.

    Returns None when this process has no suitable GPU, when this JAX lacks the Pallas compiler, or
    when the kernels do not support the learner's networks.
    """
    if jax.default_backend() != "gpu":
        return None
    try:
        from elites.core.gpu import td3 as kernel_td3
    except ImportError:  # this JAX lacks the Pallas compiler for Triton
        return None
    return functools.partial(kernel_td3.train, td3) if kernel_td3.supported(td3) else None


def product_dtype() -> jnp.dtype | type:
    """Return the type of the matrix products in `action_gradients`: float16 on a GPU, else float32.

    GPUs multiply float32 in TF32, which has ten bits of mantissa. Float16 has the same ten bits and
    needs half the memory traffic.
    """
    return jnp.float16 if jax.default_backend() == "gpu" else jnp.float32
