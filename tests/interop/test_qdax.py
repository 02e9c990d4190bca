"""Repertoires of QDax: files, networks, and live ones where the package is installed.

`tests/data/qdax.npz` was recorded with QDax 0.5.0 by `tests/support/record_qdax.py`, in an
environment of its own. It has the arrays of a repertoire and the actions of its policies.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import archives
from elites import packages
from elites.core import numpy_networks
from elites.interop import qdax, reading, writing

RECORDED = dict(np.load(Path(__file__).parents[1] / "data" / "qdax.npz"))
LAYERS, DEEP = (3, 8, 8, 2), (3, *[4] * 11, 2)
FULL = RECORDED["fitnesses"][:, 0] != -np.inf


def saved(folder: Path, **changed) -> Path:
    """Write the recorded repertoire as QDax did up to version 0.4, with some arrays changed."""
    folder.mkdir()
    for name in qdax.FILES:
        array = changed.get(name, RECORDED[name])
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    return folder


def actions(layers: tuple[int, ...], policy: np.ndarray) -> np.ndarray:
    pairs = numpy_networks.unflatten(layers, policy)
    return numpy_networks.forward(pairs, RECORDED["observations"], "relu")


def test_a_policy_of_qdax_acts_the_same_here(tmp_path):
    found = reading.read(saved(tmp_path / "repertoire"))
    assert found.kind == "qdax"
    assert len(found.fitness) == FULL.sum() == 13
    np.testing.assert_array_equal(found.fitness, RECORDED["fitnesses"][FULL, 0])
    np.testing.assert_array_equal(found.descriptors, RECORDED["descriptors"][FULL])
    for policy, expected in zip(found.policies(LAYERS), RECORDED["actions"][FULL], strict=True):
        np.testing.assert_allclose(actions(LAYERS, policy), expected, atol=1e-6)


def test_layers_are_in_the_order_of_their_names():
    """Dense_10 comes before Dense_2."""
    policy = qdax.from_flax(DEEP, RECORDED["deep_genotype"][None])[0]
    np.testing.assert_allclose(actions(DEEP, policy), RECORDED["deep_actions"], atol=1e-6)
    np.testing.assert_array_equal(qdax.to_flax(DEEP, policy[None])[0], RECORDED["deep_genotype"])


def test_what_is_written_is_read_back(tmp_path):
    """With the arrays and shapes that QDax saved, one row for every cell."""
    data = archives.archive()
    written = writing.write(data, tmp_path / "made" / "repertoire", "qdax")
    assert [path.name for path in written] == [f"{name}.npy" for name in qdax.FILES]
    genotypes, fitnesses, descriptors, centroids = map(np.load, written)
    assert genotypes.shape == (12, 26)
    assert fitnesses.tolist() == data.fitness.tolist()
    np.testing.assert_array_equal(descriptors, data.descriptors)
    np.testing.assert_array_equal(centroids, data.centroids)
    found = reading.read(tmp_path / "made" / "repertoire")
    np.testing.assert_array_equal(found.policies(data.layers), data.policies[data.cells])
    with pytest.raises(ValueError, match="repertoire exists already"):
        writing.write(data, tmp_path / "made" / "repertoire", "qdax")


def test_genotypes_are_the_tree_of_a_flax_network():
    """Its leaves, bias before kernel, make the vector that QDax saves."""
    data = archives.archive()
    named = qdax.tree(data.layers, data.policies)["params"]
    assert [list(layer) for layer in named.values()] == [["kernel", "bias"]] * 2
    assert named["Dense_0"]["kernel"].shape == (12, 3, 4)
    parts = [
        named[f"Dense_{i}"][part].reshape(12, -1) for i in (0, 1) for part in ("bias", "kernel")
    ]
    np.testing.assert_array_equal(np.concatenate(parts, 1), qdax.to_flax((3, 4, 2), data.policies))


def test_plain_vectors_stay_as_they_are():
    vectors = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(qdax.to_flax((0, 4), vectors), vectors)
    assert qdax.tree((0, 4), vectors) is vectors


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fitnesses": None}, "repertoire: not a repertoire of QDax: it has no file fitnesses.npy"),
        (
            {"fitnesses": np.zeros(3)},
            r"do not fit together: genotypes \[16, 122\], fitnesses \[3\]",
        ),
        ({"fitnesses": np.zeros((16, 2))}, r"do not fit together: .* fitnesses \[16, 2\]"),
        ({"genotypes": np.zeros((16, 3, 3))}, r"do not fit together: genotypes \[16, 3, 3\]"),
        (
            {"fitnesses": np.full(16, np.nan)},
            "fitnesses.npy: an elite has a number that is not fin",
        ),
        ({"fitnesses": np.full(16, -np.inf)}, "repertoire: the archive is empty"),
        ({"descriptors": np.array(["a"] * 16)}, "descriptors.npy: has .*, not numbers"),
        ({"descriptors": np.array([None] * 16)}, "descriptors.npy is not a plain array of numbers"),
    ],
)
def test_a_damaged_repertoire_is_refused_in_one_line(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message) as error:
        reading.read(saved(tmp_path / "repertoire", **changed))
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_refused_before_memory_is_allocated(tmp_path):
    path = saved(tmp_path / "repertoire") / "genotypes.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match=r"damaged: it claims 7,808 bytes and has 7,800"):
        reading.read(path.parent)
    for shape, message in ((b"(9999999)", "damaged"), (b"(9, 9999)", "it claims 359,964 bytes")):
        path.write_bytes(whole.replace(b"(16, 122)", shape))
        with pytest.raises(ValueError, match=message):
            reading.read(path.parent)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"genotypes.npy: damaged: "):
        reading.read(path.parent)


def test_arrays_in_column_order_are_read(tmp_path):
    folder = saved(tmp_path / "repertoire", genotypes=np.asfortranarray(RECORDED["genotypes"]))
    np.testing.assert_array_equal(reading.read(folder).solutions, RECORDED["genotypes"][FULL])


def test_a_path_without_an_archive_is_refused(tmp_path):
    with pytest.raises(ValueError, match="neither a CSV file of pyribs nor a folder of QDax"):
        reading.read(tmp_path)


def test_a_missing_package_is_named():
    missing = mock.patch.object(packages, "is_installed", return_value=False)
    with (
        missing,
        pytest.raises(ValueError, match=r"needs the package qdax: pip install qdax$"),
    ):
        qdax.to_qdax(archives.archive())


@pytest.mark.skipif(
    importlib.util.find_spec("qdax") is None,
    reason="LEFT OUT: needs QDax 0.5.0, which needs an environment of its own",
)
def test_a_live_repertoire_acts_as_the_archive_does():
    import jax
    from jax.flatten_util import ravel_pytree

    import record_qdax

    data = archives.archive()
    found = qdax.to_qdax(data)
    np.testing.assert_array_equal(np.ravel(found.fitnesses), data.fitness)
    np.testing.assert_array_equal(found.descriptors, data.descriptors)
    np.testing.assert_array_equal(found.centroids, data.centroids)
    flat = jax.vmap(lambda genotype: ravel_pytree(genotype)[0])(found.genotypes)
    np.testing.assert_array_equal(flat, qdax.to_flax(data.layers, data.policies))
    policy = record_qdax.network(data.layers)
    theirs = jax.vmap(policy.apply, (0, None))(found.genotypes, RECORDED["observations"])
    for i in range(12):
        np.testing.assert_allclose(theirs[i], actions(data.layers, data.policies[i]), atol=1e-6)
    better = found.add(found.genotypes, found.descriptors, found.fitnesses + 1.0)
    assert better.fitnesses[1] == found.fitnesses[1] + 1.0  # it goes on
