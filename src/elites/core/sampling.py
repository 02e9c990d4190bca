"""Random numbers: indices of elites and transitions, normal numbers, and random policies.

`nth_true` and `normal` give the same bits as the plain way with functions of JAX, but sooner.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks
from elites.core.networks import MLP
from elites.core.types import Problem

Array = jax.Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of Threefry, in turns
_PARITY = 0x1BD11BDA  # makes the third word of a key


def uniform_index(key: Array, shape: tuple[int, ...], count: Array) -> Array:
    """Return random indices of this shape, drawn uniformly from 0 to `count` - 1.

    Returns zeros if `count` is 0. It takes the remainder of 32 random bits. This is cheaper than
    `jax.random.randint`, which draws twice to remove a bias of count / 2^32.
    """
    return (bits(key, shape) % jnp.maximum(count, 1).astype(jnp.uint32)).astype(jnp.int32)


def random_policies(problem: Problem, policy: MLP, key: Array, count: int) -> Array:
    """Return random policies [count, P] of a problem: networks, or vectors around its start."""
    vectors = problem.vectors
    if vectors is None:
        return jax.vmap(functools.partial(networks.init, policy))(jax.random.split(key, count))
    noise = jax.random.normal(key, (count, vectors.size))
    return jnp.array(vectors.start)[None] + vectors.spread * noise


_WORD = 32  # bits
_FEW = 512  # words up to which comparing a number with all of them beats a binary search


def nth_true(mask: Array, n: Array) -> Array:
    """Return the index of the n-th True entry of a mask [C], counted from 0, for all n [count].

    `n` must be less than the number of True entries. If there is none, the result is at least C.
    Finding an entry needs the counts of 32 entries each, so that only these are added up.
    """
    words = _words(mask)
    counts = jax.lax.population_count(words).astype(jnp.int32)
    ranks = jnp.cumsum(counts)
    method = "compare_all" if len(words) <= _FEW else "scan_unrolled"
    row = jnp.searchsorted(ranks, n, side="right", method=method)
    word, rest = words[row], n - (ranks - counts)[row]
    place = row * _WORD
    for width in (16, 8, 4, 2, 1):  # the entry is in the lower or in the upper half
        low = word & ((1 << width) - 1)
        below = jax.lax.population_count(low).astype(jnp.int32)
        upper = rest >= below
        place = place + jnp.where(upper, width, 0)
        rest = rest - jnp.where(upper, below, 0)
        word = jnp.where(upper, word >> width, low)
    return place


def count_true(mask: Array) -> Array:
    """Return the number of True entries of a mask [C]."""
    return jnp.sum(jax.lax.population_count(_words(mask)).astype(jnp.int32))


def _words(mask: Array) -> Array:
    """Return a mask [C] as the bits of words, uint32 [C / 32], of which the last may be padded."""
    size = -(-len(mask) // _WORD)
    rows = jnp.pad(mask, (0, size * _WORD - len(mask))).reshape(size, _WORD)
    return jnp.sum(rows.astype(jnp.uint32) << jnp.arange(_WORD, dtype=jnp.uint32)[None], 1)


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Return standard normal numbers of this shape, with the bits of `jax.random.normal`."""
    if not _is_usual(key, shape):
        return jax.random.normal(key, shape)
    low = np.nextafter(np.float32(-1), np.float32(0))
    mantissa = (bits(key, shape) >> 9) | np.float32(1).view(np.uint32)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)  # in [0, 1)
    uniform = jnp.maximum(low, unit * (np.float32(1) - low) + low)
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform)


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """Return random bits, uint32 of this shape: those of `jax.random.bits`, but sooner.

    They are Threefry-2x32 with 20 rounds (Salmon et al., 2011). The two words of the counter are 0
    and the number of an entry, and the two results are combined. On a CPU, JAX computes them in a
    loop that copies all of them in every round. Without a loop, the compiler makes one pass of
    everything, which takes half the time.
    """
    if not _is_usual(key, shape):
        return jax.random.bits(key, shape, jnp.uint32)
    first, second = jax.random.key_data(key)
    words = (first, second, first ^ second ^ np.uint32(_PARITY))
    x = jnp.broadcast_to(first, shape)
    y = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) + second
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            x = x + y
            y = x ^ ((y << turn) | (y >> (32 - turn)))
        x = x + words[(block + 1) % 3]
        y = y + words[(block + 2) % 3] + np.uint32(block + 1)
    return x ^ y


def _is_usual(key: Array, shape: tuple[int, ...]) -> bool:
    """Return whether JAX makes random bits of this key as `bits` does: by default it does."""
    default = jax.random.key_impl(key) == "threefry2x32" and math.prod(shape) < 2**32
    return default and getattr(jax.config, "jax_threefry_partitionable", True)
