"""Trained models: made from a run, installed from a file or an address, used like any run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import elites as package
from elites.cli.pretrained import with_model
from elites.runs import lock, pretrained, rounding, snapshots
from elites.runs.directory import RunDirectory, RunError
from page import serving_here
from program import arrays as all_arrays
from program import complaint, contents, elites, newest, rows, succeed

KEPT = 5


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "elites" / "pretrained"


@pytest.fixture(scope="module")
def packed(conditioned, tmp_path_factory) -> Path:
    """A model made of the run with an actor. Read only."""
    path = tmp_path_factory.mktemp("models") / "small.zip"
    succeed("pack", conditioned, "--elites", KEPT, "--output", path)
    return path


@pytest.fixture(scope="module")
def model(packed, tmp_path_factory) -> Path:
    """The run directory of that model. Read only."""
    path = tmp_path_factory.mktemp("models") / "model"
    succeed("unpack", packed, "--output", path)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(run: Path) -> dict[str, np.ndarray]:
    return dict(np.load(newest(run) / "weights.npz"))


# --------------------------------------------------------------------------------- making a model


def test_a_model_holds_some_elites_of_the_best_seed_and_the_whole_map(conditioned, model):
    whole, kept = all_arrays(newest(conditioned)), weights(model)
    scores = np.where(np.isfinite(whole["archive.fitness"]), whole["archive.fitness"], 0).sum(1)
    best = int(scores.argmax())
    filled = np.isfinite(kept["archive.fitness"][0])
    assert filled.sum() == KEPT
    for name, array in kept.items():
        expected = whole[name][best]
        rows_kept = filled if name.startswith("archive.") else slice(None)
        assert np.array_equal(array[0][rows_kept], expected[rows_kept]), name
    assert not kept["archive.policies"][0][~filled].any()
    assert int(np.argmax(whole["archive.fitness"][best])) in np.flatnonzero(filled)
    snapshot = snapshots.newest(RunDirectory(model))
    assert snapshot is not None
    assert np.array_equal(snapshot["fitness"][0], whole["archive.fitness"][best])
    seed = str(range(2)[best])
    for name in ("metrics.csv", "evaluation/cells.csv", "evaluation/metrics.csv"):
        theirs = [row for row in rows(conditioned / name) if row["seed"] == seed]
        assert rows(model / name) == theirs, name
    assert json.loads((model / "config.json").read_text())["seeds"] == 1
    assert "--output" not in (model / "environment.json").read_text()


def test_packing_twice_gives_the_same_bytes_and_names_their_checksum(
    conditioned, packed, model, tmp_path
):
    again = succeed("pack", conditioned, "--elites", KEPT, "--output", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()
    assert f"sha256={digest(packed)}" in again.stdout
    # A model is a run, so it can be reduced again.
    smaller = tmp_path / "smaller"
    succeed("pack", model, "--elites", 2, "--output", tmp_path / "smaller.zip")
    succeed("unpack", tmp_path / "smaller.zip", "--output", smaller)
    assert np.isfinite(weights(smaller)["archive.fitness"]).sum() == 2
    whole = np.load(next((model / "snapshots").iterdir()))["fitness"]
    assert np.array_equal(np.load(next((smaller / "snapshots").iterdir()))["fitness"], whole)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--seed", 1), "--seed is for --elites"),
        (("--half-precision",), "--half-precision is for --elites"),
        (("--elites", 0), "--elites must be at least 1, got 0"),
        (("--elites", 3, "--seed", 7), "the run has no seed 7"),
    ],
)
def test_wrong_options_of_pack_are_refused(conditioned, tmp_path, options, reason):
    done = elites("pack", conditioned, *options, "--output", tmp_path / "no.zip")
    assert reason in complaint(done, 2)
    assert not list(tmp_path.iterdir())


def test_a_model_has_no_training_state_so_leaving_it_out_changes_nothing(
    conditioned, packed, tmp_path
):
    options = ("--elites", KEPT, "--no-training-state", "--output", tmp_path / "again.zip")
    succeed("pack", conditioned, *options)
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()
    told = re.sub("[│\\s]+", " ", elites("pack", "--help", apart=True).stdout)
    assert "With --elites, the file never has them." in told


def test_rounded_elites_have_the_results_of_their_rounded_policies(conditioned, tmp_path):
    file, model = tmp_path / "half.zip", tmp_path / "half"
    options = ("--elites", 90, "--half-precision", "--seed", 1)
    said = succeed("pack", conditioned, *options, "--output", file).stdout
    succeed("unpack", file, "--output", model)
    whole, kept = all_arrays(newest(conditioned)), weights(model)
    filled = np.isfinite(kept["archive.fitness"][0])
    had = whole["archive.fitness"][1]
    assert f"{filled.sum()} elites of seed 1" in said  # all that remain: 90 are too many
    policies = whole["archive.policies"][1].astype(np.float16).astype(np.float32)
    assert np.array_equal(kept["archive.policies"][0][filled], policies[filled])
    # Their episodes are others than before, and the stored results are those of a new process.
    assert (kept["archive.fitness"][0][filled] != had[filled]).any()
    assert (kept["archive.fitness"][0][filled] >= had[filled] - 0.05 * abs(had[filled])).all()
    folder = model / next(iter(re.findall(r"evaluation_\d+", succeed("evaluate", model).stdout)))
    for row in rows(folder / "cells.csv"):
        assert float(row["descriptor_error"]) == 0
        assert float(row["reevaluated_fitness"]) == float(row["fitness"])
    # The tables and the map are those of the run, and so is the actor.
    assert rows(model / "metrics.csv") == [
        row for row in rows(conditioned / "metrics.csv") if row["seed"] == "1"
    ]
    snapshot = snapshots.newest(RunDirectory(model))
    assert snapshot is not None
    assert np.array_equal(snapshot["fitness"][0], had)
    [actor] = [name for name in kept if name.startswith("learners.")]
    assert np.array_equal(kept[actor][0], whole[actor][1])
    assert f"{filled.sum()} elites, these in half precision" in succeed("info", model).stdout


def test_elites_that_rounding_changes_too_much_are_lost(conditioned):
    run = RunDirectory(conditioned)
    whole = {name: array[1:] for name, array in all_arrays(newest(conditioned)).items()
             if name.startswith("archive.")}  # fmt: skip
    kept = rounding.rounded(run, whole, 1, 9)["archive.fitness"][0]
    remain = np.flatnonzero(np.isfinite(kept))
    first, second, less, little = map(int, remain[:4])
    # Two elites have changed places, one had a tenth more fitness, and one a hundredth more.
    changed = {name: array.copy() for name, array in whole.items()}
    changed["archive.policies"][0, [first, second]] = whole["archive.policies"][0, [second, first]]
    changed["archive.fitness"][0, less] = kept[less] * 1.1
    changed["archive.fitness"][0, little] = kept[little] * 1.01
    found = rounding.rounded(run, changed, 1, 9)
    left = np.flatnonzero(np.isfinite(found["archive.fitness"][0]))
    assert left.tolist() == [cell for cell in remain if cell not in (first, second, less)]
    assert found["archive.fitness"][0, little] == kept[little]
    # A weight that half precision cannot hold gives no result, and nothing may remain.
    changed["archive.policies"][:] = 1e6
    with pytest.raises(ValueError, match="no elite reaches its cell any more"):
        rounding.rounded(run, changed, 1, 9)


def test_half_precision_needs_episodes_that_repeat(tmp_path):
    run = tmp_path / "run"
    succeed("train", "noisy_point_omni", "me", "--preset", "smoke", "--output", run)
    done = elites("pack", run, "--elites", 4, "--half-precision", "--output", tmp_path / "no.zip")
    assert "the episodes of this task differ. Leave it out" in complaint(done, 2)
    assert not (tmp_path / "no.zip").exists()


# ----------------------------------------------------------------------------------- using a model


def test_every_command_that_reads_runs_takes_a_model(packed, model, cache, tmp_path):
    assert f"{KEPT} elites" in succeed("info", "--pretrained", packed).stdout
    (installed,) = cache.iterdir()
    before = rows(installed / "evaluation" / "metrics.csv")
    told = succeed("evaluate", f"--pretrained={packed}").stdout
    assert f"figures of the {KEPT} elites that this run has kept" in told
    assert re.search(r"descriptor error of the archive +0\n", told)
    assert rows(installed / "evaluation" / "metrics.csv") == before
    (again,) = installed.glob("evaluation_*")
    assert len(rows(again / "cells.csv")) == KEPT
    target = tmp_path / "actor.safetensors"
    succeed("export", "--pretrained", packed, target, "--actor")
    assert "the actor, conditioned" in target.read_bytes()[:2000].decode("latin1")
    loaded = package.load(package.pretrained(str(packed)))
    assert len(loaded.archive) == KEPT
    assert np.array_equal(
        loaded.archive.policies, weights(model)["archive.policies"][0, loaded.archive.cells]
    )
    assert "has no training state" in complaint(elites("resume", installed), 1)


@pytest.mark.parametrize("tables", ["none", "of another iteration", "of this iteration"])
def test_figures_of_kept_elites_are_never_stored_as_those_of_the_run(conditioned, tmp_path, tables):
    """A stopped run may have no tables, or those of an evaluation before it was resumed."""
    run = Path(shutil.copytree(conditioned, tmp_path / "run", symlinks=True))
    (run / "summary.md").unlink()
    if tables == "none":
        shutil.rmtree(run / "evaluation")
    elif tables == "of another iteration":
        for file in (run / "evaluation").iterdir():
            file.write_text(re.sub(r"(?m)^(\d+),9,", r"\1,4,", file.read_text()))
    succeed("pack", run, "--elites", KEPT, "--output", tmp_path / "model.zip")
    model = tmp_path / "model"
    succeed("unpack", tmp_path / "model.zip", "--output", model)
    before = contents(model / "evaluation")
    told = succeed("evaluate", model).stdout
    assert contents(model / "evaluation") == before
    assert (model / "evaluation").exists() == (tables != "none")
    assert len(rows(model / "evaluation_000000009" / "cells.csv")) == KEPT
    note = f"These are figures of the {KEPT} elites that this run has kept"
    whole = f". Those of the whole archive, from {{}}: {model / 'evaluation' / 'metrics.csv'}"
    expected = {
        "none": note,
        "of another iteration": note + whole.format("iteration 4"),
        "of this iteration": note + whole.format("training"),
    }
    assert told.splitlines()[-1] == expected[tables]


def test_a_model_warns_of_cells_whose_elite_it_has_not_kept(packed, model, conditioned, tmp_path):
    kept, whole = package.load(model).archive, package.load(conditioned).archive
    for cell in (kept.cells[0], next(cell for cell in whole.cells if cell not in kept.cells)):
        wanted = whole.arrays.descriptors[cell]
        target = tmp_path / f"{cell}.safetensors"
        done = elites("export", "--pretrained", packed, target, "--descriptor", *wanted)
        assert done.returncode == 0, done.stderr
        warned = "this run has kept no elite in the cell of --descriptor" in done.stderr
        assert warned == (cell not in kept.cells)


def test_the_option_takes_one_model_of_commands_that_read_runs(packed):
    assert "takes one model" in complaint(elites("info", "--pretrained"), 2)
    assert "takes one model" in complaint(elites("view", "--pretrained", "--no-browser"), 2)
    done = elites("unpack", packed, "--pretrained", packed)
    assert "'unpack' does not take --pretrained" in complaint(done, 2)
    done = elites("info", "--pretrained", "ant_omny")
    assert "no trained model 'ant_omny'" in complaint(done, 2)
    assert "Did you mean 'ant_omni'?" in done.stderr


# -------------------------------------------------------------------------------------- installing


class Files(BaseHTTPRequestHandler):
    """Sends `answers[path]`: bytes, and how many bytes the header announces."""

    answers: ClassVar[dict[str, tuple[bytes, int]]] = {}

    def do_GET(self):
        if self.path not in self.answers:
            return self.send_error(404)
        body, announced = self.answers[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving_files() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def host() -> Iterator[str]:
    Files.answers = {}
    with serving_files() as address:
        yield address


def test_a_model_is_installed_from_an_address(packed, model, cache, host):
    body = packed.read_bytes()
    Files.answers["/models/mine.zip"] = (body, len(body))
    address = f"{host}/models/mine.zip#sha256={digest(packed)}"
    told = succeed("pretrained", address).stdout
    (installed,) = cache.iterdir()
    assert installed.name == f"mine-{digest(packed)[:12]}"
    assert str(installed) in told
    assert contents(installed) == {
        name: body for name, body in contents(model).items() if name != "run.lock"
    }
    Files.answers = {}  # what is installed needs no server
    succeed("info", "--pretrained", address)
    assert str(installed) in succeed("pretrained").stdout


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body: (body[:-7], len(body)), "of {size:,} bytes. Try again"),
        (lambda body: (body[:-7], len(body) - 7), "its SHA-256 is"),
        (lambda body: (body[:99] + bytes([body[99] ^ 1]) + body[100:], len(body)), "its SHA-256"),
        (lambda body: None, "the server answers 404"),
    ],
    ids=["broken off", "truncated", "one bit", "missing"],
)
def test_a_failed_download_changes_nothing_that_is_installed(packed, cache, host, change, reason):
    body = packed.read_bytes()
    Files.answers["/mine.zip"] = (body, len(body))
    address = f"{host}/mine.zip#sha256={digest(packed)}"
    directory = pretrained.pretrained(address)
    (directory / "notes.txt").write_text("mine")
    before = contents(cache)
    Files.answers = {"/mine.zip": change(body)} if change(body) else {}
    line = complaint(elites("pretrained", address, "--reinstall"), 1)
    assert f"{host}/mine.zip: " in line
    assert reason.format(size=len(body)) in line
    assert contents(cache) == before
    assert [path.name for path in cache.iterdir()] == [directory.name]
    Files.answers = {"/mine.zip": (body, len(body))}
    succeed("pretrained", address, "--reinstall")
    assert "notes.txt" not in contents(directory)


def test_a_server_that_is_gone_is_named_with_what_to_do(packed):
    with serving_files() as address:
        pass
    done = elites("pretrained", f"{address}/mine.zip#sha256={digest(packed)}")
    line = complaint(done, 1)
    assert f"{address}/mine.zip: " in line
    assert "give its path" in line


def test_addresses_need_a_checksum_and_a_web_server(tmp_path):
    done = elites("pretrained", "https://example.org/a.zip")
    assert "needs a checksum" in complaint(done, 2)
    assert "#sha256=" in done.stderr
    short = elites("pretrained", "https://example.org/a.zip#sha256=12")
    assert "needs a checksum" in complaint(short, 2)
    assert "begins with https://" in complaint(elites("pretrained", "file:///etc/passwd"), 2)
    assert "--reinstall needs a model" in complaint(elites("pretrained", "--reinstall"), 2)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (None, ": not a zip file that can be read"),
        ({"metrics.csv": "iteration"}, ": not a run, it has no config.json"),
        ({"config.json": "{}"}, "/config.json: not a configuration"),
        ({"config.json": "[["}, "/config.json: "),
        ({"code.py": ""}, ": refused, 'code.py' is not a file of a run"),
    ],
)
def test_a_file_that_is_no_model_is_called_by_the_name_that_was_given(
    contents, reason, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if contents is None:
        Path("bad.zip").write_text("no zip file")
    else:
        with zipfile.ZipFile("bad.zip", "w") as file:
            for name, text in contents.items():
                file.writestr(name, text)
    for command in (("pretrained", "bad.zip"), ("info", "--pretrained", "bad.zip")):
        assert complaint(elites(*command), 1).startswith(f"elites: bad.zip{reason}")
    assert complaint(elites("unpack", "bad.zip"), 1).startswith(f"elites: bad.zip{reason}")


def test_a_run_and_a_model_are_shown_in_the_order_given(conditioned, model, packed, tmp_path):
    output = ("--output", tmp_path / "figures")
    told = succeed("plot", model, "--pretrained", packed, *output)
    assert "curves" in told.stdout
    given = with_model("view", ["a", "--pretrained", str(packed), "--port", "1"])[0]
    assert given == ["a", str(pretrained.place(str(packed))), "--port", "1"]
    given = with_model("view", ["--port", "1", "--pretrained", str(packed), "a"])[0]
    assert given == [str(pretrained.place(str(packed))), "--port", "1", "a"]


def test_what_a_killed_process_left_is_removed(packed, cache):
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = cache / f".installing-{platform.node()}-{ended.pid}-abc"
    left.mkdir(parents=True)
    (left / "model.zip").write_bytes(b"half")
    directory = pretrained.pretrained(str(packed))
    assert list(cache.iterdir()) == [directory]


# ------------------------------------------------------------------------------------------ damage


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)


AGAIN = "Install the model again with 'elites pretrained {} --reinstall'"
ELSEWHERE = f"{AGAIN.format('MODEL')}, where MODEL is the file or address that it came from"


@pytest.mark.parametrize(
    "command",
    [("export", "policy.c"), ("evaluate",), ("calibrate",), ("view", "--no-browser")],
    ids=lambda words: words[0],
)
def test_a_changed_array_of_a_model_is_named_with_how_to_replace_it(
    command, packed, cache, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    name, *rest = command
    directory = pretrained.pretrained(str(packed))
    file = newest(directory) / "weights.npz"
    flip(file, file.stat().st_size // 2)
    for done in (elites(name, "--pretrained", packed, *rest), elites(name, directory, *rest)):
        line = complaint(done, 1)
        assert line.startswith(f"elites: {file}: archive.")
        assert "damaged: its checksum does not match" in line
        assert line.endswith(f". {ELSEWHERE}")
        assert "trying the one before" not in done.stderr
        assert "Start again" not in done.stderr
    with pytest.raises(RunError, match=r"came from$"):
        package.load(directory)
    succeed("pretrained", packed, "--reinstall")
    assert len(package.load(directory).archive) == KEPT


def cut(path: Path) -> None:
    """Remove the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (cut, "config.json"),
        (cut, "facts.json"),
        (cut, "manifest.json"),
        (cut, "weights.npz"),
        (Path.unlink, "config.json"),
        (Path.unlink, "manifest.json"),
        (Path.unlink, "weights.npz"),
    ],
)
def test_files_that_are_cut_or_missing_are_found_without_reading_arrays(
    change, name, packed, cache
):
    directory = pretrained.pretrained(str(packed))
    assert pretrained.damage(directory) is None
    assert f"\n{directory}\n" in succeed("pretrained").stdout
    (file,) = (path for path in directory.rglob(name) if "last" not in path.parts)
    change(file)
    assert f"\n{directory}: damaged\n" in succeed("pretrained").stdout
    for command in (("pretrained", packed), ("info", "--pretrained", packed)):
        line = complaint(elites(*command), 1)
        assert line.startswith("elites: the installed model is damaged: ")
        assert str(file.parent) in line
        assert line.endswith(f". {ELSEWHERE}")
    assert complaint(elites("evaluate", directory), 1).endswith(f". {ELSEWHERE}")
    succeed("pretrained", packed, "--reinstall")
    assert pretrained.damage(directory) is None
    assert succeed("info", "--pretrained", packed).stdout


def test_a_damaged_table_of_a_model_is_named_with_how_to_replace_it(packed, cache):
    directory = pretrained.pretrained(str(packed))
    (directory / "metrics.csv").write_text("iteration,iteration\n1,1\n")
    (snapshot,) = (directory / "snapshots").iterdir()
    line = complaint(elites("info", directory), 1)
    assert line.startswith(f"elites: {directory / 'metrics.csv'}: damaged: it has 2 columns")
    assert line.endswith(f". {ELSEWHERE}")
    with serving_here(directory) as server:
        cut(snapshot)
        about = server.json("/api/run")
        (iteration,), (seed,) = about["playable"], about["seeds"]
        answer = server.get(f"/api/archive?iteration={iteration}&seed={seed}")
    assert answer[0] == 409
    assert json.loads(answer[2])["error"].endswith(ELSEWHERE)


def test_errors_about_an_intact_model_do_not_advise_to_replace_it(packed, cache, tmp_path):
    directory = pretrained.pretrained(str(packed))
    empty = next(cell for cell in range(32) if cell not in package.load(directory).archive.cells)
    line = complaint(elites("export", directory, tmp_path / "policy.c", "--cell", empty), 2)
    assert str(directory) in line
    assert "--reinstall" not in line
    assert "--reinstall" not in complaint(elites("resume", directory), 1)
    with lock.locked(directory):
        done = elites("pack", directory, "--output", tmp_path / "again.zip")
        assert "--reinstall" not in complaint(done, 1)


def test_a_damaged_model_is_not_installed(packed, cache, tmp_path):
    """The same check that calls an installed model damaged refuses to install it."""
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(bad, "w") as target:
        for info in source.infolist():
            body = source.read(info)
            half = info.filename.endswith("weights.npz")
            target.writestr(info.filename, body[: len(body) // 2] if half else body)
    line = complaint(elites("pretrained", bad), 1)
    assert re.match(rf"elites: {bad}/checkpoints/\d+/weights.npz: damaged", line)
    assert not list(cache.iterdir())


# ----------------------------------------------------------------------------------- shipped models

SHIPPED = sorted(pretrained.models())


def test_the_index_names_every_shipped_file_and_its_checksum():
    known = pretrained.models()
    assert {"ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni"} <= set(known)
    assert {m.file for m in known.values()} == {p.name for p in pretrained.SHIPPED.glob("*.zip")}
    for found in known.values():
        path = pretrained.SHIPPED / found.file
        assert (digest(path), path.stat().st_size) == (found.sha256, found.bytes)
        assert found.bytes < 2e6  # the package stays small
    listing = succeed("pretrained").stdout
    assert all(name in listing for name in known)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_what_the_index_says(name, cache):
    said = pretrained.models()[name]
    directory = pretrained.pretrained(name)
    told = succeed("info", directory).stdout
    assert f"{said.algorithm} on {said.task}, 1 seed" in told
    stored = weights(directory)["archive.fitness"]
    assert np.isfinite(stored).sum() == said.elites
    text = "".join(p.read_text() for p in directory.glob("*.json"))
    assert "/tmp" not in text
    assert "/root" not in text


def test_a_damaged_shipped_file_is_refused(cache, tmp_path, monkeypatch):
    name, found = next(iter(pretrained.models().items()))
    shutil.copytree(pretrained.SHIPPED, tmp_path / "trained")
    path = tmp_path / "trained" / found.file
    path.write_bytes(path.read_bytes()[:-100])
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "trained")
    line = complaint(elites("info", "--pretrained", name), 1)
    assert f"{path}: damaged" in line
    assert "Install elites again" in line
    assert not list(cache.iterdir())


def test_a_damaged_shipped_model_is_listed_and_named_with_how_to_replace_it(cache, tmp_path):
    directory = pretrained.pretrained("walker_uni")
    assert re.search(r"\nwalker_uni .* installed\n", succeed("pretrained").stdout)
    file = newest(directory) / "weights.npz"
    flip(file, file.stat().st_size // 2)
    target = tmp_path / "policy.c"
    line = complaint(elites("export", "--pretrained", "walker_uni", target), 1)
    assert line.startswith(f"elites: {file}: ")
    assert line.endswith(AGAIN.format("walker_uni"))
    (directory / "config.json").write_text("[[")
    assert re.search(r"\nwalker_uni .* damaged\n", succeed("pretrained").stdout)
    line = complaint(elites("pretrained", "walker_uni"), 1)
    assert f"damaged: {directory / 'config.json'}: " in line
    assert line.endswith(AGAIN.format("walker_uni"))
    succeed("pretrained", "walker_uni", "--reinstall")
    assert "differs from JAX" in succeed("export", "--pretrained", "walker_uni", target).stdout


def test_a_shipped_actor_is_loaded_called_and_exported(tmp_path):
    run = package.load(package.pretrained("walker_uni"))
    assert run.actor is not None
    action = np.asarray(run.actor(np.zeros(run.algorithm.problem.observation_size), [0.5, 0.5]))
    assert action.shape == (6,)
    assert np.abs(action).max() <= 1
    place = ("--descriptor", 0.7, 0.3)
    done = elites("export", "--pretrained", "walker_uni", tmp_path / "elite.onnx", *place)
    assert re.search(r"has a distance of 0\.\d+ \(share of time\)\. '--actor", done.stderr)
    target = tmp_path / "walker.onnx"
    told = succeed("export", "--pretrained", "walker_uni", target, "--actor").stdout
    assert "differs from JAX by" in told
    assert target.stat().st_size > 50_000
