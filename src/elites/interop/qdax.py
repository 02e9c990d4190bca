"""Repertoires of QDax: live ones, the arrays of their files, and the parameters of networks.

A `MapElitesRepertoire` has genotypes, fitnesses, descriptors and centroids, with one row per cell.
The fitness of an empty cell is minus infinity. The genotypes of policies are the parameters of a
flax network, a tree of named arrays. Until version 0.4, QDax saved a repertoire as four .npy files,
in which the tree is one vector: layers in the order of their names, and of each layer first the
bias and then the kernel. elites has the kernel first. With ten layers and more, the orders of the
layers differ too, because Dense_10 comes before Dense_2.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from elites import packages
from elites.core import numpy_networks
from elites.interop.record import ArchiveData

FILES = ("genotypes", "fitnesses", "descriptors", "centroids")
"""Names of the files of a repertoire, without .npy."""

_MODULE = "qdax.core.containers.mapelites_repertoire"


def flax_order(layers: Sequence[int]) -> np.ndarray:
    """Return, for each parameter [P] of a flax network as a vector, its index in ours.

    `layers` are the sizes of the layers: inputs, hidden layers, outputs.
    """
    size = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(layers))
    pairs = numpy_networks.unflatten(layers, np.arange(size))
    order = sorted(range(len(pairs)), key="Dense_{}".format)
    parts = [part for i in order for part in reversed(pairs[i])]
    return np.concatenate([part.reshape(-1) for part in parts])


def to_flax(layers: Sequence[int], policies: np.ndarray) -> np.ndarray:
    """Return policies [n, P] of elites in the order of flax."""
    return policies[:, flax_order(layers)]


def from_flax(layers: Sequence[int], genotypes: np.ndarray) -> np.ndarray:
    """Return flat genotypes [n, P] of a flax network in the order of elites."""
    policies = np.empty_like(genotypes)
    policies[:, flax_order(layers)] = genotypes
    return policies


def tree(layers: Sequence[int], policies: np.ndarray) -> Any:
    """Return policies [n, P] as genotypes of QDax: the parameters of its network `MLP`.

    The tree has kernels [n, inputs, outputs] and biases [n, outputs]. Plain vectors, which have no
    inputs, are returned as they are.
    """
    if not layers[0]:
        return policies
    pairs = numpy_networks.unflatten(layers, policies)
    named = {
        f"Dense_{i}": {"kernel": kernel, "bias": bias} for i, (kernel, bias) in enumerate(pairs)
    }
    return {"params": named}


def arrays(data: ArchiveData) -> dict[str, np.ndarray]:
    """Return the arrays of the files of a repertoire, keyed by name."""
    return {
        "genotypes": to_flax(data.layers, data.policies),
        "fitnesses": _fitnesses(data),
        "descriptors": data.descriptors,
        "centroids": data.centroids,
    }


def to_qdax(data: ArchiveData) -> Any:
    """Return a `MapElitesRepertoire` of QDax with the elites, one row per cell.

    Its genotypes are the parameters of QDax's network `MLP` with tanh as last activation.
    """
    packages.require("qdax", purpose="a repertoire of QDax")
    import jax
    import jax.numpy as jnp

    repertoire = importlib.import_module(_MODULE).MapElitesRepertoire
    genotypes = jax.tree.map(jnp.asarray, tree(data.layers, data.policies))
    first = jax.tree.map(lambda leaf: leaf[0], genotypes)
    empty = repertoire.init_default(first, jnp.asarray(data.centroids))
    fitnesses = _fitnesses(data).reshape(empty.fitnesses.shape)  # versions differ: [C] or [C, 1]
    return empty.replace(
        genotypes=genotypes,
        fitnesses=jnp.asarray(fitnesses),
        descriptors=jnp.asarray(data.descriptors),
    )


def _fitnesses(data: ArchiveData) -> np.ndarray:
    """Return the fitness [C] of the cells, minus infinity where a cell is empty."""
    return np.where(np.isfinite(data.fitness), data.fitness, -np.inf).astype(np.float32)
