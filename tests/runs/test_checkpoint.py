"""Checkpoints as files: what is written comes back, and no moment of a save loses the last one."""

from __future__ import annotations

import builtins
import errno
import json
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from elites.runs import checkpoint
from elites.runs.checkpoint import STATE, WEIGHTS, CheckpointError

PARTS = {
    WEIGHTS: {"archive.policies": np.arange(6, dtype=np.float32).reshape(2, 3)},
    STATE: {
        "iteration": np.int32(7).reshape(()),
        "evaluations": np.array([2**32 - 1], np.uint32),
        "learners.a.b": np.array([[np.nan, -0.0, np.inf]], np.float32),
        "nothing": np.zeros((0, 4), np.float32),
    },
}


def save(directory: Path, iteration: int) -> Path:
    parts = {
        name: {k: v + np.asarray(iteration, v.dtype) for k, v in part.items()}
        for name, part in PARTS.items()
    }
    return checkpoint.save(directory, iteration, parts, {"note": "x"})


def load(path: Path) -> checkpoint.Checkpoint:
    return checkpoint.load(path, (WEIGHTS, STATE))


def test_what_is_written_comes_back(tmp_path):
    loaded = load(save(tmp_path, 0))
    assert (loaded.iteration, loaded.information) == (0, {"note": "x"})
    expected = PARTS[WEIGHTS] | PARTS[STATE]
    assert set(loaded.arrays) == set(expected)
    for name, array in expected.items():
        assert loaded.arrays[name].dtype == array.dtype
        assert loaded.arrays[name].shape == array.shape
        assert loaded.arrays[name].tobytes() == (array + np.asarray(0, array.dtype)).tobytes()


def test_numpy_alone_reads_it(tmp_path):
    with np.load(save(tmp_path, 0) / "weights.npz", allow_pickle=False) as weights:
        np.testing.assert_array_equal(
            weights["archive.policies"], PARTS[WEIGHTS]["archive.policies"]
        )


def test_the_last_two_are_kept_and_the_link_follows(tmp_path):
    for i in (5, 10, 15):
        save(tmp_path, i)
    assert [p.name for p in checkpoint.complete(tmp_path)] == ["000000010", "000000015"]
    assert load(tmp_path / "last").iteration == 15
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000010", "000000015", "last"]


class Crash(BaseException):
    """The process ends here."""


def test_a_crash_at_any_call_leaves_a_whole_checkpoint(tmp_path, monkeypatch):
    """Every call that changes the disk is, in turn, the one that never happens."""
    calls = {
        "open": (builtins, "open"),
        "fsync": (os, "fsync"),
        "mkdir": (os, "mkdir"),
        "rename": (os, "rename"),
        "replace": (os, "replace"),
        "symlink": (os, "symlink"),
        "unlink": (os, "unlink"),
        "rmdir": (os, "rmdir"),
        "writestr": (zipfile.ZipFile, "open"),
    }
    originals = {name: getattr(owner, attribute) for name, (owner, attribute) in calls.items()}
    survived = set()
    for fatal in range(1, 200):
        directory = tmp_path / f"{fatal:03d}"
        save(directory, 1)
        save(directory, 2)
        count = 0

        def interrupted(name, fatal=fatal):
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count >= fatal:  # a dead process does not clean up either
                    raise Crash
                return originals[name](*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name, (owner, attribute) in calls.items():
                patch.setattr(owner, attribute, interrupted(name))
            try:
                save(directory, 3)
                crashed = False
            except Crash:
                crashed = True
        found = checkpoint.newest(directory, load, warn=pytest.fail)
        assert found is not None
        assert found.iteration in (2, 3)
        survived.add(found.iteration)
        assert load(directory / "last").iteration in (2, 3)
        checkpoint.sweep(directory)
        save(directory, 4)  # and the next process goes on
        assert load(directory / "last").iteration == 4
        if not crashed:
            break
    assert not crashed
    assert fatal > 15
    assert survived == {2, 3}


def test_an_error_while_saving_leaves_no_debris(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        save(tmp_path, 2)
    assert "weights.npz" in str(error.value.filename)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000001", "last"]


def test_a_damaged_checkpoint_can_be_written_again(tmp_path):
    path = save(tmp_path, 1)
    (path / "state.npz").write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)
    assert load(save(tmp_path, 1)).iteration == 1


def rewrite(path: Path, name: str, member: bytes) -> None:
    """Replace the bytes of one array in an .npz, zip checksums and all."""
    with zipfile.ZipFile(path) as file:
        members = {info.filename: file.read(info) for info in file.infolist()}
    members[f"{name}.npy"] = member
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for key, data in members.items():
            file.writestr(key, data)


def npy(shape: tuple, descr: str = "<f4", data: bytes = b"\0" * 24) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (npy((2, 3)), "checksum"),
        (npy((10**15,)), "manifest says"),
        (npy((2, 3), data=b"\0" * 20), "claims 24 bytes and has 20"),
        (npy((2, 3), "|O"), "not a plain array"),
        (b"cos\nsystem\n(S'true'\ntR.", "damaged"),
        (b"", "damaged"),
    ],
)
def test_a_strange_array_is_refused(tmp_path, member, words):
    path = save(tmp_path, 0)
    rewrite(path / WEIGHTS, "archive.policies", member)
    with pytest.raises(CheckpointError, match=words):
        load(path)


def test_a_manifest_that_claims_what_the_file_cannot_hold_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path, 0)
    huge = (10**9, 10**5)
    rewrite(path / WEIGHTS, "archive.policies", npy(huge))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["arrays"][WEIGHTS]["archive.policies"]["shape"] = list(huge)
    manifest["sha256"] = checkpoint._manifest_digest(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr(np, "empty", lambda *a, **k: pytest.fail("allocated"))
    with pytest.raises(CheckpointError, match=r"claims 400,000,000,000,000 bytes and has 24"):
        load(path)


def test_a_compressed_member_is_refused(tmp_path):
    path = save(tmp_path, 0)
    with zipfile.ZipFile(path / WEIGHTS) as file:
        data = file.read("archive.policies.npy")
    with zipfile.ZipFile(path / WEIGHTS, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive.policies.npy", data)
    with pytest.raises(CheckpointError, match="compressed"):
        load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "damaged"),
        ("[]", "not a table of named fields"),
        ('{"format": true}', "'format' is True, not a whole number"),
        ('{"format": 1}', "'iteration' is missing"),
        ('{"format": 1, "iteration": 0, "information": {}, "arrays": {}}', "'sha256' is missing"),
        (
            '{"format": 1, "iteration": 0, "information": {}, "arrays": {"a": 1}, "sha256": ""}',
            "checksum",
        ),
    ],
)
def test_a_strange_manifest_is_refused(tmp_path, text, words):
    path = save(tmp_path, 0)
    (path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=words):
        load(path)


def test_a_changed_digit_in_the_manifest_is_noticed(tmp_path):
    path = save(tmp_path, 3)
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"iteration": 3', '"iteration": 4'))
    with pytest.raises(CheckpointError, match="checksum"):
        load(path)


def test_a_checkpoint_under_another_name_is_noticed(tmp_path):
    path = save(tmp_path, 3)
    with pytest.raises(CheckpointError, match="it is of iteration 3"):
        load(path.rename(tmp_path / "000000007"))


def test_a_damaged_one_is_set_aside_and_the_link_follows(tmp_path):
    save(tmp_path, 3)
    checkpoint.set_aside(save(tmp_path, 4))
    assert load(tmp_path / "last").iteration == 3
    assert len(list(tmp_path.glob("damaged-000000004-*"))) == 1


def test_the_newest_is_read_while_others_come(tmp_path):
    """A reader beside a run that saves fast finds its checkpoints dropped, and takes newer ones."""
    save(tmp_path, 0)

    def saving() -> None:
        for iteration in range(1, 120):
            save(tmp_path, iteration)

    saver = threading.Thread(target=saving)
    saver.start()
    seen = []
    while saver.is_alive():
        found = checkpoint.newest(tmp_path, load, warn=pytest.fail)
        assert found is not None
        seen.append(found.iteration)
    saver.join()
    assert seen
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", [WEIGHTS, "manifest.json"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_one_that_cannot_be_opened_is_not_called_damaged(tmp_path, monkeypatch, name, number):
    """Its contents may be intact: nothing older is used in its place."""
    save(tmp_path, 1)
    path, opened = save(tmp_path, 2) / name, os.open

    def refused(file, *arguments, **options):
        if Path(file) == path:
            raise OSError(number, os.strerror(number), str(file))
        return opened(file, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(OSError, match=os.strerror(number)):
        checkpoint.newest(tmp_path, load, warn=pytest.fail)
