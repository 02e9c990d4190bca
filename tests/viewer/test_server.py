"""Test the server through its socket: access, files, endpoints and errors."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import threading
import time

import pytest

from browser import browsing, errors, needs_browser
from elites.runs.checkpoint import complete
from elites.runs.directory import RunDirectory, RunError
from elites.viewer.player import Player
from page import SCENES, ready, serving, serving_here
from program import SMOKE, complaint, elites, rows, started, succeed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "run"
    succeed("train", "point_omni", "dcg_me", *SMOKE, "--output", path)
    return path


@pytest.fixture(scope="module")
def server(run):
    with serving(run) as served:
        yield served


def error_of(answer) -> str:
    return json.loads(answer[2])["error"]


# -------------------------------------------------------------------------------------- address


def test_it_listens_on_this_machine_alone(server):
    assert server.host == "127.0.0.1"
    assert server.get("/")[0] == 200
    with pytest.raises(ConnectionRefusedError):  # another address, although of the same machine
        socket.create_connection(("127.0.0.3", int(server.port)), timeout=10)


def test_another_host_needs_a_token(run):
    with serving(run, "--host", "127.0.0.2") as server:
        assert server.host == "127.0.0.2"
        path, _, token = server.address.partition("?token=")
        assert len(token) >= 20
        assert path.endswith("/")
        for asked in ("/", "/api/run", "/static/main.js", "/?token=guessed"):
            answer = server.get(asked)
            assert answer[0] == 401
            assert "token" in error_of(answer)
        status, headers, _ = server.get(f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()
        assert server.get("/api/run", Cookie=cookie.partition(";")[0])[0] == 200
        assert server.get("/api/run", Cookie=f"elites_token_{server.port}=guessed")[0] == 401
        named = {"Cookie": cookie.partition(";")[0], "Host": f"evil.example:{server.port}"}
        assert server.get("/api/run", **named)[0] == 403


def test_a_port_that_is_taken(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = complaint(elites("view", run, "--no-browser", "--port", port), 2)
        assert f"port {port}" in said
        assert "taken" in said
    with serving(run) as first, serving(run) as second:  # by default, the next free port
        assert first.port != second.port
        assert first.get("/api/run")[0] == second.get("/api/run")[0] == 200


# --------------------------------------------------------------------------------------- access


def test_a_foreign_host_or_origin_is_refused(server):
    port = server.port
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{int(port) + 1}", "", "[", "::1"):
        assert server.get("/api/run", Host=host)[0] == 403, host
    for origin in ("http://evil.example", f"https://127.0.0.1:{port}", "null", "http://127.0.0.1"):
        assert server.get("/api/run", Origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert server.get("/api/run", Sec_Fetch_Site=site)[0] == 403
        assert server.get("/", Sec_Fetch_Site=site, Sec_Fetch_Dest="iframe")[0] == 403
        assert server.get("/", Sec_Fetch_Site=site, Sec_Fetch_Dest="document")[0] == 200  # a link
    assert server.get("/api/run", Host=f"localhost:{port}")[0] == 200
    own = f"http://127.0.0.1:{port}"
    assert server.get("/api/run", Host=f"127.0.0.1:{port}", Origin=own)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../", "/..", "/static/../page.html", "/static/../../data.py", "/static/..%2fdata.py",
        "/static/%2e%2e/data.py", "/static/%2e%2e%2fdata.py", "/static/..%5cdata.py",
        "/static//etc/passwd", "/static/%2fetc%2fpasswd", "//etc/passwd", "/static/",
        "/config.json", "/static/three", "/snapshots/000000001.npz", "/%00", "/static/main.js%00",
    ],
)  # fmt: skip
def test_nothing_is_found_by_its_path(server, path):
    assert server.get(path)[0] == 404


def test_a_link_out_of_the_run_is_not_followed(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    first = sorted((copy / "snapshots").iterdir())[0]
    outside = tmp_path / "elsewhere.npz"
    with serving_here(copy) as server:
        # A run with links is not served at all; these come while it is.
        first.rename(outside)
        first.symlink_to(outside)
        for name in ("metrics.csv", "evaluation"):
            (copy / name).rename(tmp_path / name)
            (copy / name).symlink_to(tmp_path / name)
        about = server.json("/api/run")
        assert int(first.stem) not in about["iterations"]
        assert about["evaluated_at"] is None
        assert server.get(f"/api/archive?iteration={int(first.stem)}&seed=0")[0] == 404
        assert server.json("/api/metrics?after=0") == {}
        assert "error" not in server.json(f"/api/archive?iteration={about['playable'][-1]}&seed=0")


def test_every_answer_says_what_a_page_may_do(server):
    for path in ("/", "/static/main.js", "/api/run", "/nowhere"):
        _, headers, _ = server.get(path)
        rules = headers["content-security-policy"]
        assert "default-src 'none'" in rules
        assert "script-src 'self'" in rules
        assert "unsafe" not in rules
        assert headers["x-content-type-options"] == "nosniff"


# ------------------------------------------------------------------------------------ endpoints


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("watch?iteration={i}&seed=0&cell=-1", 404, "no cell -1"),
        ("watch?iteration={i}&seed=0&cell=1000000000", 404, "no cell 1000000000"),
        ("watch?iteration={i}&seed=0&cell=abc", 400, "cell must be a whole number, got 'abc'"),
        ("watch?iteration={i}&seed=0&cell=nan", 400, "got 'nan'"),
        ("watch?iteration={i}&seed=0&cell=1.5", 400, "got '1.5'"),
        ("watch?iteration={i}&seed=0", 400, "cell must be a whole number"),
        ("watch?iteration={i}&seed=9&cell=0", 404, "the run has no seed 9. Its seeds are 0"),
        ("watch?iteration=99999&seed=0&cell=0", 404, "policies of iteration 99999 are not kept"),
        ("archive?iteration=99999&seed=0", 404, "no snapshot of iteration 99999"),
        ("archive?iteration=1e400&seed=0", 400, "iteration must be a whole number"),
        ("archive?iteration={nines}&seed=0", 400, "iteration must be a whole number"),
        ("request?iteration={i}&seed=0&descriptor=nan,0", 400, "finite"),
        ("request?iteration={i}&seed=0&descriptor=inf,0", 400, "finite"),
        ("request?iteration={i}&seed=0&descriptor=0", 400, "has 2 numbers, got 1"),
        ("request?iteration={i}&seed=0&descriptor=a,b", 400, "must be numbers"),
        ("request?iteration={i}&seed=0&descriptor=1e9,0", 400, "lies between"),
        ("metrics?after=abc", 400, "after must be a whole number"),
    ],
)
def test_nonsense_is_refused_in_words(server, query, code, said):
    last = server.json("/api/run")["playable"][-1]
    answer = server.get(f"/api/{query.format(i=last, nines='9' * 5000)}")
    assert answer[0] == code
    assert said in error_of(answer)


def test_an_empty_cell_is_refused_in_words(server):
    about = server.json("/api/run")
    archive = server.json(f"/api/archive?iteration={about['playable'][-1]}&seed=0")
    cell = archive["fitness"].index(None)
    answer = server.get(f"/api/watch?iteration={about['playable'][-1]}&seed=0&cell={cell}")
    assert answer[0] == 404
    assert error_of(answer) == f"cell {cell} is empty: it has no elite"


def test_a_superseded_request_is_not_computed(run):
    player = Player(RunDirectory(run))
    fitness = player._loaded[player.newest].archives.fitness[0]
    cell = int(fitness.argmax())
    said: dict[int, object] = {}

    def watch(count: int) -> None:
        try:
            said[count] = player.watch(player.newest, 0, cell, "a page", count)["elite"]["cell"]
        except RunError as error:
            said[count] = str(error)

    with player._rollout_lock:  # a rollout is under way
        asking = [threading.Thread(target=watch, args=(count,)) for count in (1, 2)]
        for thread in asking:
            thread.start()
        while player._latest.get("a page") != 2:
            time.sleep(0.01)
    for thread in asking:
        thread.join()
    # The first request is dropped even if it was sent after the second.
    assert said == {1: "the page has sent a newer request", 2: cell}


def test_the_axes_have_the_names_of_the_task(server, run, tmp_path):
    named = [{"name": "final x", "unit": ""}, {"name": "final y", "unit": ""}]
    assert server.json("/api/run")["axes"] == named
    # Runs of earlier versions have no names.
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    facts = json.loads((copy / "facts.json").read_text())
    del facts["descriptor_names"], facts["descriptor_units"]
    (copy / "facts.json").write_text(json.dumps(facts))
    with serving_here(copy) as old:
        names = [axis["name"] for axis in old.json("/api/run")["axes"]]
        assert names == ["descriptor 1", "descriptor 2"]


def test_a_page_of_another_run_is_told_so(server):
    about = server.json("/api/run")
    assert server.get(f"/api/cells?run={about['id']}")[0] == 200
    answer = server.get("/api/cells?run=another")
    assert answer[0] == 409
    assert "this server shows another run now" in error_of(answer)


def test_errors_of_an_evaluation_beside_training_are_shown(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    number = complete(copy / "checkpoints")[-1].name
    (copy / "evaluation").rename(copy / f"evaluation_{number}")
    with serving_here(copy) as server:
        assert server.json("/api/run")["evaluated_at"] == int(number)
        archive = server.json(f"/api/archive?iteration={int(number)}&seed=0")
        assert any(value is not None for value in archive["actor_error"])
        rebinned = [value for value in archive["actor_rebinned"] if value is not None]
        table = rows(copy / f"evaluation_{number}" / "metrics.csv")[0]
        assert sum(rebinned) == pytest.approx(float(table["actor_rebinned_qd_score"]), rel=1e-4)


def test_only_reading_is_possible(server):
    with socket.create_connection((server.host, int(server.port)), timeout=60) as line:
        line.sendall(
            f"POST /api/run HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        assert line.recv(100).startswith(b"HTTP/1.1 405")


# ----------------------------------------------------------------------------------- in a browser


@needs_browser
def test_a_run_with_an_evil_name_is_text(run, tmp_path):
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>".replace("/", "\u2215")
    quoted = "'single' \"double\" $dollar$ &amp; </script>"
    copy = tmp_path / evil
    shutil.copytree(run, copy, symlinks=True)
    facts = json.loads((copy / "facts.json").read_text())
    facts |= {"descriptor_names": [evil, quoted], "descriptor_units": [quoted, evil]}
    (copy / "facts.json").write_text(json.dumps(facts))
    page_file = tmp_path / "page.html"
    succeed("view", copy, "--export", page_file, "--rollouts", 1)
    with serving_here(copy) as server:
        for address in (server.address, page_file.as_uri()):
            with browsing() as (page, asked, complaints):
                page.goto(address)
                ready(page)
                assert page.locator("h1").inner_text() == evil
                assert page.locator("img, h1 *").count() == 0
                labels = page.locator("#request-numbers label")
                assert labels.all_text_contents() == [f"{evil} ", f"{quoted} "]
                named = [
                    label.get_attribute("aria-label")
                    for label in page.locator("#request-numbers input").all()
                ]
                assert named == [f"{evil} ({quoted})", f"{quoted} ({evil})"]
                assert page.locator("#request-numbers label > :not(input)").count() == 0
                page.locator("#map").focus()
                page.keyboard.press("ArrowRight")
                assert page.locator("#tooltip *").count() == 0
                assert all(url.startswith((address, server.address, "data:")) for url in asked)
                assert errors(complaints) == []


@needs_browser
def test_an_empty_archive_is_explained(tmp_path):
    path = tmp_path / "run"
    done = elites("train", f"{SCENES}:nowhere", "me", *SMOKE, "--evaluations", 96, "--output", path)
    assert "every evaluation was rejected" in complaint(done, 1)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        assert "the archive is empty" in page.locator("#status").inner_text()
        assert errors(complaints) == []


# -------------------------------------------------------------------- runs that cannot be served


def test_what_is_not_a_run_is_not_served(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no such directory" in complaint(elites("view", tmp_path / "none"), 2)
    assert "not a run" in complaint(elites("view", tmp_path / "empty"), 2)


def test_a_run_without_a_checkpoint_is_not_served(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "checkpoints")
    done = elites("view", copy, "--no-browser")
    assert "has no checkpoint yet" in complaint(done, 1)
    assert done.stdout == ""


@pytest.mark.parametrize("which", ["the newest", "all", "missing"])
def test_a_damaged_checkpoint_is_not_served(run, tmp_path, which):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    for place in complete(copy / "checkpoints")[0 if which == "all" else -1 :]:
        data = bytearray((place / "weights.npz").read_bytes())
        data[len(data) // 2] ^= 1
        (place / "weights.npz").write_bytes(data)
        if which == "missing":
            (place / "weights.npz").unlink()
    done = elites("view", copy, "--no-browser")
    assert str(place) in complaint(done, 1)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_weights_outside_of_the_run_are_not_served(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    weights = complete(copy / "checkpoints")[-1] / "weights.npz"
    weights.rename(tmp_path / "weights.npz")
    weights.symlink_to(tmp_path / "weights.npz")
    assert "is a symbolic link" in complaint(elites("view", copy, "--no-browser"), 1)


@pytest.mark.parametrize(
    ("text", "said"), [("{}", "'task' is missing"), ("[]", "not a table"), ("{", "")]
)
def test_damaged_facts_are_not_served(run, tmp_path, text, said):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    (copy / "facts.json").write_text(text)
    line = complaint(elites("view", copy, "--no-browser"), 1)
    assert str(copy / "facts.json") in line
    assert said in line


def test_a_task_that_has_changed_is_not_served(tmp_path):
    """Its rollouts would differ from those of the archive."""
    task = tmp_path / "mine.py"
    task.write_text(
        "import dataclasses\nfrom elites import tasks\n\ndef shorter():\n"
        "    return dataclasses.replace(tasks.make('point_omni'), episode_length=9)\n"
    )
    path = tmp_path / "run"
    succeed("train", f"{task}:shorter", "me", *SMOKE, "--output", path)
    task.write_text(task.read_text().replace("=9", "=8"))
    for command in (("view", path, "--no-browser"), ("evaluate", path)):
        line = complaint(elites(*command, "--trust-task", apart=True), 2)
        assert "episode_length was 9, is 8" in line


@pytest.mark.parametrize("kind", [TypeError, KeyError, RuntimeError])
def test_an_error_of_the_task_is_told_as_such(run, kind):
    """It is no damage of a file, and the thread that compiles first prints nothing about it."""

    def step(state, action):
        raise kind("wheels")

    player = Player(RunDirectory(run))
    player.task = dataclasses.replace(player.task, step=step)
    player.compile()
    expected = f"the rollout failed: {kind.__name__}.*wheels.*, line "
    with pytest.raises(RunError, match=expected) as told:
        player.request(player.newest, 0, [0.0, 0.0])
    assert __file__ in str(told.value)


def test_another_run_in_its_place_is_noticed(run, tmp_path):
    """The policies of one run must not be shown with the archive of another."""
    copy, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(run, copy, symlinks=True)
    succeed("train", "point_omni", "dcg_me", *SMOKE, "--output", other)
    with serving_here(copy) as server:
        about = server.json("/api/run")
        assert server.get("/api/metrics?after=0")[0] == 200
        copy.rename(tmp_path / "away")
        answer = server.get("/api/run")
        assert (answer[0], error_of(answer)) == (404, f"the run at {copy} does not exist any more")
        other.rename(copy)
        for path in ("/api/run", f"/api/watch?iteration={about['playable'][-1]}&seed=0&cell=0"):
            answer = server.get(path)
            assert answer[0] == 409
            assert "contains another run now" in error_of(answer)
        copy.rename(other)
        (tmp_path / "away").rename(copy)
        assert server.json("/api/run") == about


def test_a_run_that_saves_all_the_time_is_served(tmp_path):
    """Training removes checkpoints while the server reads them."""
    path = tmp_path / "run"
    endless = ("--evaluations", 10**7, "--checkpoint-every", 1)
    training = started("train", "point_omni", "me", *SMOKE, *endless, "--output", path)
    try:
        while len(complete(path / "checkpoints")) < 2:
            assert training.poll() is None, training.communicate()
            time.sleep(0.01)
        with serving_here(path) as server:
            for _ in range(5):
                about = server.json("/api/run")
                archive = server.json(f"/api/archive?iteration={about['iterations'][-1]}&seed=0")
                assert len(archive["fitness"]) == 32
                query = f"iteration={about['playable'][-1]}&seed=0&cell=0"
                answer = server.get(f"/api/watch?{query}")
                if answer[0] != 200:  # it is empty, or was dropped in between
                    assert answer[0] == 404
                    assert any(words in error_of(answer) for words in ("is empty", "are not kept"))
            assert training.poll() is None
    finally:
        training.terminate()
        training.communicate()


def test_bad_options_are_one_line(run, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "exists already" in complaint(elites("view", run, "--export", page), 2)
    assert page.read_text() == "mine"
    new = tmp_path / "new.html"
    said = complaint(elites("view", run, "--export", new, "--cells", 10**9), 2)
    assert "there is no cell 1000000000" in said
    assert "--seed" in complaint(elites("view", run, "--seed", 0), 2)
    assert "seed 7" in complaint(elites("view", run, "--export", new, "--seed", 7), 2)
    assert "--rollouts" in complaint(elites("view", run, "--export", new, "--rollouts", 0), 2)
    assert "--rollouts" in complaint(elites("view", run, "--rollouts", 3), 2)
    both = ("--export", new, "--rollouts", 3, "--cells", 1)
    assert "--cells" in complaint(elites("view", run, *both), 2)
    assert "--port" in complaint(elites("view", run, "--port", 70000), 2)
    assert "--port" in complaint(elites("view", run, "--export", new, "--port", 8000), 2)
    assert "--host" in complaint(elites("view", run, "--host", ""), 2)
    nowhere = tmp_path / "none" / "page.html"
    assert "no such directory" in complaint(elites("view", run, "--export", nowhere), 2)
    assert not new.exists()
