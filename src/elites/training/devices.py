"""Devices that the seeds of a run are spread over.

On a GPU, all seeds are one batch. On a CPU, they are computed at the same time instead, each on a
device of its own, because most operations of a batch are too small to divide between cores. A seed
with a device of its own has the same bits whatever the number of seeds and of cores.

JAX takes the whole CPU as one device, unless it is told otherwise before it computes anything.
`provide` tells it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")

MOST = 64
"""Largest number of devices that the CPU is divided into. More seeds share them."""

_OPTION = "jax_num_cpu_devices"  # of JAX; -1 if it is not set
_FLAG = "xla_force_host_platform_device_count"  # of XLA_FLAGS


def provide(seeds: int) -> None:
    """Let JAX divide the CPU into as many devices as that many seeds can use.

    Changes nothing if JAX has already started, or if the user has set the number of devices, by
    JAX's option `jax_num_cpu_devices` or in XLA_FLAGS.
    """
    chosen = getattr(jax.config, _OPTION, -1) != -1 or _FLAG in os.environ.get("XLA_FLAGS", "")
    count = _largest_divisor(seeds, MOST)
    if count > 1 and not chosen:
        with contextlib.suppress(RuntimeError):  # JAX has started
            jax.config.update(_OPTION, count)


def devices_for(seeds: int, wanted: int | None = None) -> int:
    """Return the number of local devices that the seeds are spread over, the same for each.

    This is `wanted` if there are so many devices and they divide the seeds evenly, otherwise the
    largest number that does.
    """
    available = jax.local_device_count()
    if wanted is not None and 1 <= wanted <= available and seeds % wanted == 0:
        return wanted
    return _largest_divisor(seeds, available)


def on_one_device(arrays: T, devices: int) -> T:
    """Return a pytree of arrays that are spread over some devices as arrays that are on one.

    They are not bound to it. So arrays of runs with different numbers of seeds can be used in one
    computation, and a computation that is spread over devices can use them too.
    """
    if devices == 1:
        return arrays
    return jax.tree.map(lambda array: jnp.asarray(np.asarray(array)), arrays)


def _largest_divisor(number: int, most: int) -> int:
    """Return the largest divisor of a number that is at most `most`."""
    return next(d for d in range(min(number, most), 0, -1) if number % d == 0)
