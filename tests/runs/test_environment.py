"""What a session records of its machine, and what another machine means for a run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import elites as package
from elites.runs import environment as environments
from elites.runs.directory import RunDirectory
from program import complaint, edit_json, elites, environment, succeed

PACKAGE = Path(package.__file__).parent


def test_seeds_on_another_number_of_devices_may_differ_in_their_last_bits(run):
    edit_json(run / "environment.json", lambda sessions: sessions[-1].update(seed_devices=2))
    one = environment(JAX_NUM_CPU_DEVICES="1")
    done = succeed("resume", run, "--evaluations", 352, apart=True, environ=one)
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert f"{run} was trained on 2 devices (cpu) and continues on 1 device (cpu): " in warning
    assert "the last bits of its results may differ" in warning


def test_a_run_continues_on_as_many_devices_as_before(run):
    """Two could be had, but the run was trained on one."""
    done = succeed("resume", run, "--evaluations", 352, apart=True, environ=environment())
    assert "warning" not in done.stderr
    sessions = json.loads((run / "environment.json").read_text())
    assert [session["seed_devices"] for session in sessions] == [1, 1]


def test_the_same_devices_are_not_mentioned(run):
    path, note = run / "environment.json", environments.note_on_devices
    assert note(RunDirectory(run), 2, 1) is None
    edit_json(path, lambda sessions: sessions[-1].update(seed_devices=2))
    assert "was trained on 2 devices" in note(RunDirectory(run), 2, 1)
    assert note(RunDirectory(run), 2, 2) is None
    assert note(RunDirectory(run), 1, 1) is None, "2 devices are not those of one seed"


def test_older_versions_used_all_devices_or_one(run):
    """They recorded the number of devices that there were, not of those that they used."""
    path, directory = run / "environment.json", RunDirectory(run)
    edit_json(path, lambda sessions: sessions[-1].update(devices=8))
    edit_json(path, lambda sessions: sessions[-1].pop("seed_devices"))
    assert environments.seed_devices(directory, 8) == 8
    assert environments.seed_devices(directory, 2) == 1
    assert "was trained on 8 devices" in environments.note_on_devices(directory, 8, 1)
    edit_json(path, lambda sessions: sessions[-1].update(backend="gpu"))
    assert environments.seed_devices(directory, 8) is None


@pytest.mark.parametrize("text", ["[]", "3", "[{}]", '[{"devices": 0, "device": 1}]', "[", "[1]"])
def test_a_damaged_record_says_nothing(run, text):
    (run / "environment.json").write_text(text)
    assert environments.note_on_devices(RunDirectory(run), 2, 1) is None
    assert environments.seed_devices(RunDirectory(run), 2) is None


# ---------------------------------------------------------------------------------------- source


def source_line(run: Path) -> str | None:
    """Return what `elites info` says about the source of a run, or None."""
    found = re.search(r"^source +(.*)$", succeed("info", run).stdout, re.MULTILINE)
    return found and found[1]


def test_a_copy_without_git_records_the_digest_of_its_source(tmp_path):
    copy = tmp_path / "elites"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "trained"))
    (copy / ".#draft.py").symlink_to("nowhere")  # as editors leave
    script = "from elites.runs import environment as e; print(e.commit(), e.source_digest())"

    def recorded() -> list[str]:
        environ = environment(PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
        command = [sys.executable, "-c", script]
        return subprocess.check_output(command, env=environ, text=True, cwd=tmp_path).split()

    ours = environments.source_digest()
    assert recorded() == ["None", ours]
    # The same digest by hand: the names and contents of all files, in the order of the names.
    names = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    texts = {name: (PACKAGE / name).read_bytes() for name in names}
    joined = b"".join(b"%s\0%d\0%s" % (n.encode(), len(t), t) for n, t in texts.items())
    assert ours == hashlib.sha256(joined).hexdigest()[:16]
    (copy / "core" / "td3.py").rename(copy / "core" / "td4.py")
    assert recorded()[1] != ours
    (copy / "core" / "td4.py").rename(copy / "core" / "td3.py")
    assert recorded()[1] == ours
    with (copy / "core" / "td3.py").open("a") as file:
        file.write("# changed\n")
    assert recorded()[1] != ours


def test_every_session_records_its_source_and_info_shows_all_of_them(run):
    succeed("resume", run, "--evaluations", 352)
    sessions = json.loads((run / "environment.json").read_text())
    now = environments.source_digest()
    assert [session["source"] for session in sessions] == [now, now]
    path = run / "environment.json"
    edit_json(path, lambda s: [entry.update(commit=None) for entry in s])
    assert source_line(run) == now
    edit_json(path, lambda s: s[0].update(source="0123456789abcdef", commit="a" * 40 + "+"))
    assert source_line(run) == f"0123456789abcdef (commit aaaaaaaaaaaa+), then {now}"


def test_a_run_of_an_older_version_has_no_source(run):
    path = run / "environment.json"
    edit_json(path, lambda s: s[0].update(commit=None) or s[0].pop("source"))
    assert source_line(run) is None
    edit_json(path, lambda s: s[0].update(commit="b" * 40))
    assert source_line(run) == "commit bbbbbbbbbbbb"
    edit_json(path, lambda s: s[0].update(source=3))
    assert "'source' is 3, not text or null" in complaint(elites("info", run), 1)
