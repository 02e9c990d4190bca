"""Links inside of a run, and zip files that are larger than they look, change nothing elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from elites.runs import directory as directories
from program import POINT, complaint, contents, elites, environment, succeed


@pytest.fixture
def outside(tmp_path) -> Path:
    """A folder that belongs to somebody else."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / ".hidden").write_text("precious")
    (folder / "figures.png").write_text("precious")
    return folder


def replace_by_link(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


COMMANDS = (
    ("resume", "--evaluations", 32 * 12),
    ("plot",),
    ("evaluate",),
    ("info",),
    ("pack", "--output", "packed.zip"),
)


@pytest.mark.parametrize(
    "name",
    ["snapshots", "run.lock", "evaluation", "figures", "checkpoints", "events/seed_0",
     "metrics.csv", "config.json", "figures/archive.png"],
)  # fmt: skip
def test_links_inside_of_a_run_are_refused(run, outside, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    is_file = Path(name).suffix != ""
    replace_by_link(run / name, outside / "figures.png" if is_file else outside)
    before = contents(outside)
    for command, *options in COMMANDS:
        done = elites(command, run, *options)
        assert done.returncode != 0
        assert f"{name} is a symbolic link" in done.stderr, (command, done.stderr)
    assert contents(outside) == before
    assert not (tmp_path / "packed.zip").exists()


def test_a_run_that_is_reached_by_a_link_is_a_run(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    succeed("info", tmp_path / "link")
    succeed("resume", tmp_path / "link", "--evaluations", 32 * 11)


def test_other_things_of_the_user_beside_a_run_stay(run, outside):
    (run / "notes").symlink_to(outside)
    (run / ".mine").write_text("mine")
    (run / "snapshots" / ".mine").write_text("mine")
    succeed("resume", run, "--evaluations", 32 * 11)
    assert (run / ".mine").read_text() == (run / "snapshots" / ".mine").read_text() == "mine"
    assert (outside / ".hidden").read_text() == "precious"


@pytest.fixture
def bomb(finished, tmp_path) -> Path:
    """A packed run with a file of two gigabytes of zeros."""
    path = tmp_path / "bomb.zip"
    succeed("pack", finished, "--output", path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
        file.open("kernels/zeros", "w", force_zip64=True) as member,
    ):
        for _ in range(2000):
            member.write(bytes(10**6))
    return path


def test_a_small_zip_of_a_large_run_is_refused_unless_allowed(bomb, tmp_path):
    line = complaint(elites("unpack", bomb, "--output", tmp_path / "unpacked"), 1)
    assert "would unpack to 2.00 GB" in line
    assert "--max-size 2.0" in line
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "run") == ["bomb.zip"]
    assert "must be above 0" in complaint(elites("unpack", bomb, "--max-size", 0), 2)


def test_unpacking_leaves_folders_of_others_alone(finished, tmp_path):
    packed = tmp_path / "run.zip"
    succeed("pack", finished, "--output", packed)
    theirs = tmp_path / ".new.unpacking"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("precious")
    succeed("unpack", packed, "--output", tmp_path / "new")
    assert (theirs / "thesis.txt").read_text() == "precious"
    assert os.stat(tmp_path / "new").st_mode == os.stat(theirs).st_mode


def test_a_run_can_be_unpacked_into_the_folder_one_is_in(finished, tmp_path, monkeypatch):
    packed = tmp_path / "run.zip"
    succeed("pack", finished, "--output", packed)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    succeed("unpack", packed, "--output", ".")
    succeed("info", ".")
    assert "holds a run already" in complaint(elites("unpack", packed, "--output", "."), 2)


def test_the_folder_one_is_in_can_be_packed(run, monkeypatch):
    monkeypatch.chdir(run)
    assert str(run.with_name("run.zip")) in succeed("pack", ".").stdout
    assert run.with_name("run.zip").is_file()


def test_a_file_is_no_directory_for_a_run(finished, tmp_path):
    file = tmp_path / "packed"
    succeed("pack", finished, "--output", file)
    before = contents(tmp_path)
    for command in (("unpack", file), ("train", *POINT, "--output", file)):
        line = complaint(elites(*command), 2)
        assert f"{file} exists already, and is not a directory. Choose another --output" in line
    assert contents(tmp_path) == before


def test_of_two_that_unpack_at_once_one_wins(finished, tmp_path):
    from elites.runs import sharing

    packed = tmp_path / "run.zip"
    succeed("pack", finished, "--output", packed)
    results: list[object] = []

    def unpack() -> None:
        try:
            results.append(sharing.unpack(packed, tmp_path / "new"))
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=unpack) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [result for result in results if isinstance(result, Exception)]
    assert len(failed) == 3
    assert all("holds a run already" in str(e) or "in use" in str(e) for e in failed), failed
    expected = {k: v for k, v in contents(finished).items() if k != "run.lock"}
    assert {k: v for k, v in contents(tmp_path / "new").items() if k != "run.lock"} == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "run.zip"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fitness", lambda a: a[:1]),
        ("descriptors", lambda a: a[..., :1]),
        ("origin", lambda a: a.astype(np.float32)),
        ("born", lambda a: a[:, :-1]),
        ("centroids", lambda a: a[None]),
    ],
)
def test_a_snapshot_of_another_shape_is_refused(run, name, change):
    path = max((run / "snapshots").glob("*.npz"))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, name: change(arrays[name])})
    line = complaint(elites("plot", run), 1)
    assert path.name in line
    assert f"damaged: {name} is" in line


@pytest.fixture(scope="module")
def packed(finished, tmp_path_factory) -> Path:
    """A packed run with a kernel, as a GPU's compiler leaves one. Read only."""
    path = tmp_path_factory.mktemp("packed") / "my run.zip"
    succeed("pack", finished, "--output", path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("kernels/fusion_1.textproto", "best")
    return path


def test_a_folder_with_the_name_of_one_of_ours_is_refused_and_kept(packed, tmp_path):
    (tmp_path / "mine" / "kernels").mkdir(parents=True)
    (tmp_path / "mine" / "kernels" / "thesis.cu").write_text("precious")
    before = contents(tmp_path)
    for command in (("train", *POINT), ("unpack", packed)):
        line = complaint(elites(*command, "--output", tmp_path / "mine"), 2)
        assert "mine is not empty and not a run" in line
        assert contents(tmp_path) == before
        assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["kernels"]


def test_an_unpacking_that_fails_in_the_middle_leaves_nothing(packed, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    rename, count = Path.rename, iter(range(100))

    def failing(path: Path, target: Path) -> Path:
        if next(count) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    assert "No space left" in complaint(elites("unpack", packed, "--output", tmp_path / "new"), 1)
    assert [p.name for p in (tmp_path / "new").iterdir()] in ([], ["run.lock"])


def test_what_a_killed_unpacking_left_is_removed_by_the_next(packed, tmp_path):
    script = (
        "import os, signal; from pathlib import Path; from elites.runs import sharing\n"
        "sharing._extract = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"sharing.unpack(Path({str(packed)!r}), Path({str(tmp_path / 'new')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".unpacking-*"))) == 1
    other = tmp_path / f".unpacking-{directories.this_process()}-running"  # this process is alive
    theirs = tmp_path / ".unpacking-the-boxes"
    for folder in (other, theirs):
        folder.mkdir()
    succeed("unpack", packed, "--output", tmp_path / "new")
    assert sorted(tmp_path.glob(".unpacking-*")) == sorted([other, theirs])


def test_a_run_is_packed_once_and_into_a_directory_that_exists(run, tmp_path):
    target = tmp_path / "packed.zip"
    succeed("pack", run, "--output", target)
    before = target.read_bytes()
    line = complaint(elites("pack", run, "--output", target), 2)
    assert line == f"elites: {target} exists already. Choose another --output"
    assert target.read_bytes() == before
    line = complaint(elites("pack", run, "--output", tmp_path / "away" / "packed.zip"), 2)
    assert line == f"elites: {tmp_path / 'away'}: no such directory to write packed.zip to"


def test_errors_of_the_system_name_the_file_that_was_asked_for(run, tmp_path, monkeypatch):
    """Not the temporary file that is written first."""

    def refusing(path, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(zipfile, "ZipFile", refusing)
    line = complaint(elites("pack", run, "--output", tmp_path / "packed.zip"), 1)
    assert line == f"elites: {tmp_path / 'packed.zip'}: Permission denied"


def test_the_command_after_unpacking_works_in_a_shell(packed, tmp_path):
    done = succeed("unpack", packed, "--output", tmp_path / "my run")
    assert f"info '{tmp_path / 'my run'}'" in done.stdout
    refused = complaint(elites("unpack", packed, "--output", tmp_path / "my run"), 2)
    assert f"elites resume '{tmp_path / 'my run'}'" in refused
    described = succeed("info", tmp_path / "my run").stdout
    assert "2 seeds\n" in described
    assert "; 1 session\n" in described
