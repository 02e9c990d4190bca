"""Archives without a run, for the exchange with other programs."""

from __future__ import annotations

import numpy as np

from elites.interop.record import ArchiveData

LAYERS = (3, 4, 2)  # 26 parameters


def archive(
    cells: int = 12,
    low: tuple[float, ...] = (-1.0, 0.0),
    high: tuple[float, ...] = (1.0, 20.0),
    empty: tuple[int, ...] = (0, 7),
    **more,
) -> ArchiveData:
    """Return an archive of random policies. Every elite lies in its own Voronoi cell."""
    generator = np.random.default_rng(cells)
    extent = np.subtract(high, low)
    weights = extent.max() / extent
    centroids = generator.uniform(low, high, (cells, len(low))).astype(np.float32)
    descriptors = centroids + 0.2 * extent.astype(np.float32) * generator.uniform(
        -1, 1, centroids.shape
    )
    distances = np.linalg.norm((descriptors[:, None] - centroids[None]) * weights, axis=-1)
    own = distances.argmin(1) == np.arange(cells)
    fitness = generator.normal(size=cells).astype(np.float32)
    fitness[list(empty)] = -np.inf
    return ArchiveData(
        policies=generator.normal(size=(cells, 26)).astype(np.float32),
        fitness=fitness,
        descriptors=np.where(own[:, None], descriptors, centroids).astype(np.float32),
        centroids=centroids,
        origin=np.where(np.isfinite(fitness), np.arange(cells) % 2, -1),
        born=np.arange(cells),
        origins=("initial", "ga"),
        layers=LAYERS,
        low=low,
        high=high,
        weights=tuple(weights.tolist()),
        **more,
    )
