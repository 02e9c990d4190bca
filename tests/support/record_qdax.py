"""Record a repertoire of the real QDax: python tests/support/record_qdax.py tests/data/qdax.npz

It runs where QDax 0.5.0 is installed, which needs an environment of its own. The file has the
arrays that QDax up to version 0.4 saved (genotypes as `ravel_pytree` makes them flat), and the
actions of its policies at some observations. `deep_genotype` and `deep_actions` are those of a
network with twelve layers, whose names are not in the order of the layers.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from qdax.core.containers.mapelites_repertoire import (
    MapElitesRepertoire,
    compute_cvt_centroids,
)
from qdax.core.neuroevolution.networks.networks import MLP

LAYERS = (3, 8, 8, 2)
DEEP = (3, *[4] * 11, 2)


def network(layers: tuple[int, ...]) -> MLP:
    """Return the network of a policy as QDax's examples make it."""
    return MLP(layer_sizes=layers[1:], final_activation=jnp.tanh)


def parameters(layers: tuple[int, ...], seed: int, count: int):
    """Return random parameters of `count` policies, biases included."""
    keys = jax.random.split(jax.random.key(seed), count)
    made = jax.vmap(lambda key: network(layers).init(key, jnp.zeros(layers[0])))(keys)
    flat, rebuild = ravel_pytree(made)
    return rebuild(flat + 0.3 * jax.random.normal(jax.random.key(seed + 1), flat.shape))


def record() -> dict[str, np.ndarray]:
    """Return the arrays of the recording, keyed by name."""
    centroids = compute_cvt_centroids(2, 1000, 16, -1.0, 1.0, jax.random.key(0))
    genotypes = parameters(LAYERS, 1, 20)
    fitnesses = jax.random.normal(jax.random.key(3), (20, 1))
    descriptors = jax.random.uniform(jax.random.key(4), (20, 2), minval=-1.0, maxval=1.0)
    found = MapElitesRepertoire.init(genotypes, fitnesses, descriptors, centroids)
    observations = jax.random.normal(jax.random.key(5), (5, LAYERS[0]))
    deep = jax.tree.map(lambda leaf: leaf[0], parameters(DEEP, 6, 1))
    recorded = {
        "genotypes": jax.vmap(lambda genotype: ravel_pytree(genotype)[0])(found.genotypes),
        "fitnesses": found.fitnesses,
        "descriptors": found.descriptors,
        "centroids": found.centroids,
        "observations": observations,
        "actions": jax.vmap(network(LAYERS).apply, (0, None))(found.genotypes, observations),
        "deep_genotype": ravel_pytree(deep)[0],
        "deep_actions": network(DEEP).apply(deep, observations),
    }
    return {name: np.asarray(value) for name, value in recorded.items()}


if __name__ == "__main__":
    np.savez(sys.argv[1], **record())
