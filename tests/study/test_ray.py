"""Studies on a real Ray cluster: two machines (processes of Ray's), one of them killed mid-run."""

import contextlib
import dataclasses
import io
import os
import re
import signal
import socket
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from clocks import TrainingClock, newest_checkpoints
from program import environment, rows, started

pytest.importorskip("ray", reason="LEFT OUT: needs ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

from ray.exceptions import NodeDiedError, RayTaskError  # noqa: E402

from elites.runs import checkpoint, evaluation  # noqa: E402
from elites.runs.environment import read_sessions  # noqa: E402
from elites.study import on_ray, ray_cluster, scheduler  # noqa: E402
from elites.study.engines import LocalEngine  # noqa: E402
from elites.study.plan import Plan  # noqa: E402
from elites.study.study import open_study  # noqa: E402
from elites.study.table import Live  # noqa: E402

PLAN = Plan(
    ("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke", evaluations=32 * 300,
    checkpoint_every=10, keep_elites=3,
)  # fmt: skip
TABLES = ("metrics.csv", "evaluation/metrics.csv", "evaluation/cells.csv")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same study, undisturbed, on this machine."""
    path = tmp_path_factory.mktemp("alone")
    study = open_study(path, PLAN)
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        result = scheduler.run_unfinished(study, LocalEngine(), Live(study, io.StringIO()))
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert result.done == 2
    return study


@pytest.fixture
def cluster(monkeypatch):
    import ray
    from ray.cluster_utils import Cluster

    for name, value in environment(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0").items():
        monkeypatch.setenv(name, value)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.add_node(wait=False, num_cpus=1)
    made.add_node(wait=False, num_cpus=1)
    made.wait_for_nodes(timeout=300)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


def weights_of(model: Path) -> bytes:
    """The file of a packed model with the policies of its elites and its actor."""
    with zipfile.ZipFile(model) as file:
        (name,) = [name for name in file.namelist() if name.endswith("/weights.npz")]
        return file.read(name)


def machine_of(cluster, run: str):
    """The node whose Ray process is the grandparent of a run's worker."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = place.read_bytes()
            if b"elites.study.worker" in command and run.encode() in command:
                above = parent(parent(int(place.parent.name)))
                for node in cluster.worker_nodes:
                    if node.all_processes["raylet"][0].process.pid == above:
                        return node
    raise AssertionError(f"no machine runs {run}")


@pytest.mark.parametrize("in_place", [True, False], ids=["shared directory", "files are sent"])
def test_a_lost_machines_run_goes_on_elsewhere(cluster, alone, tmp_path, in_place):
    study = open_study(tmp_path, PLAN)
    out = io.StringIO()
    killed = []

    def kill() -> None:
        """Once a run has saved something, the machine it is on dies."""
        slow = study.items()[1]
        while not (study.run(slow).checkpoints / "last").exists():
            time.sleep(0.05)
        machine = machine_of(cluster, slow.name)
        cluster.remove_node(machine, allow_graceful=False)
        killed.append(machine)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    engine = on_ray.RayEngine(in_place=in_place)
    assert engine.slots == 2
    result = scheduler.run_unfinished(study, engine, Live(study, out, every=0.2))
    killer.join(timeout=10)
    assert not killer.is_alive()
    assert killed, "the run was done before its machine could be killed"
    assert (result.done, result.failed) == (2, []), out.getvalue()
    assert "lost its machine; restarting on another" in out.getvalue()
    assert [item.error for item in study.items()] == ["", ""]
    assert all(item.attempts == 0 for item in study.items())
    for item in study.items():
        for table in TABLES:
            assert rows(study.run(item).path / table) == rows(alone.run(item).path / table)
        assert {session["command"] for session in read_sessions(study.run(item))} == {
            f"elites study {study.path} --only point_omni {item.algorithm} 0-1"
        }
        # The models differ in the time of training alone, which is in their tables.
        assert evaluation.error_in_new_process(study.run(item)) == 0
        ours, theirs = (weights_of(some.model(item)) for some in (study, alone))
        assert ours == theirs


def test_models_of_unfinished_runs_arrive_when_the_time_is_over(cluster, tmp_path, monkeypatch):
    endless = dataclasses.replace(PLAN, evaluations=10**9)
    study, out = open_study(tmp_path, endless), io.StringIO()
    monkeypatch.setattr(scheduler, "time", TrainingClock(study))
    engine, live = on_ray.RayEngine(in_place=False), Live(study, out, every=0.2)
    result = scheduler.run_unfinished(study, engine, live, stop_after=60.0)
    assert (result.done, result.failed, result.stopped) == (0, [], True), out.getvalue()
    expected = [
        study.model(item, iteration)
        for item, iteration in zip(study.items(), newest_checkpoints(study), strict=True)
    ]
    assert study.models() == expected, out.getvalue()
    for item, model in zip(study.items(), expected, strict=True):
        assert weights_of(model)
        assert evaluation.error_in_new_process(study.run(item)) == 0


def test_only_models_of_a_run_are_stored(tmp_path):
    study = open_study(tmp_path, PLAN)
    one, other = study.items()
    collector = on_ray._Collector(str(study.path))
    for iteration in (20, 40, None):
        file = study.model(one, iteration)
        collector.store_model(one.name, 1, file.name, b"its bytes")
        assert study.models() == [file]  # it replaces that of an earlier iteration
    for name in (study.model(other).name, "../plan.json", f"{one.name}.iteration-2.zip/x", ""):
        with pytest.raises(ValueError, match="is not a model of point_omni-me-seeds-0-1"):
            collector.store_model(one.name, 1, name, b"x")
    assert study.models() == [study.model(one)]


def test_a_request_no_machine_can_meet_is_refused(cluster):
    ray_cluster._refuse_unreachable(cluster.address)  # a cluster that is there
    with pytest.raises(ValueError, match="no machine of the cluster has 4 CPUs and 1 GPUs"):
        on_ray.RayEngine(cpus=4, gpus=1)


def test_files_of_a_run_arrive_whole_or_not_at_all(alone, tmp_path):
    source = alone.run(alone.items()[0]).path
    sent: set[str] = set()
    files = on_ray.new_files(source, sent)
    again = on_ray.new_files(source, sent)
    assert "metrics.csv" in again  # it may have grown
    assert not any(name.startswith(("checkpoints/", "snapshots/")) for name in again)
    half = {name: data for name, data in files.items() if not name.endswith("manifest.json")}
    on_ray.write_files(tmp_path / "half", half)
    assert not list((tmp_path / "half").glob("checkpoints/*"))
    on_ray.write_files(tmp_path / "whole", files)
    for name, data in files.items():
        assert (tmp_path / "whole" / name).read_bytes() == data
    assert (tmp_path / "whole" / "checkpoints" / "last").resolve().name == "000000299"
    with pytest.raises(ValueError, match="is not a file of a run"):
        on_ray.write_files(tmp_path / "evil", {"../escape.py": b"x"})


def test_files_are_found_while_the_run_saves(tmp_path):
    """Checkpoints are renamed and dropped under the reader."""
    run = tmp_path / "run"
    parts = {
        name: {"x": np.zeros(3, np.float32)} for name in (checkpoint.WEIGHTS, checkpoint.STATE)
    }
    checkpoint.save(run / "checkpoints", 0, parts, {})

    def save() -> None:
        for iteration in range(1, 150):
            checkpoint.save(run / "checkpoints", iteration, parts, {})

    saving = threading.Thread(target=save)
    saving.start()
    while saving.is_alive():
        on_ray.new_files(run, set())
    saving.join()
    found = {name.split("/")[1] for name in on_ray.new_files(run, set())}
    assert found == {"000000148", "000000149"}


def test_a_machine_that_was_given_up_writes_no_more(alone, tmp_path):
    study = open_study(tmp_path, PLAN)
    name = study.items()[0].name
    collector = on_ray._Collector(str(study.path))
    collector.store(name, 1, {"config.json": b"{}"})
    assert collector.fetch(name, 3) == {"config.json": b"{}"}
    with pytest.raises(ValueError, match="was restarted on another machine"):
        collector.store(name, 1, {"config.json": b"old"})
    collector.store(name, 3, {"metrics.csv": b"new"})
    assert collector.fetch(name, 3) == {"config.json": b"{}", "metrics.csv": b"new"}
    with pytest.raises(ValueError, match="is not a run of this study"):
        collector.fetch("../elsewhere", 4)


def test_what_counts_as_lost():
    """A failure of the cluster is no failure of the run, wherever it is noticed."""

    def raised(cause: Exception) -> RayTaskError:
        return RayTaskError("compute", "its traceback", cause)

    full = OSError("disk full")
    assert on_ray.error_of_task(NodeDiedError("gone")) is None
    assert on_ray.error_of_task(raised(NodeDiedError("gone"))) is None
    assert on_ray.error_of_task(raised(full)) is full
    assert on_ray.error_of_task(raised(raised(full))) is full  # where files are collected


def test_no_cluster_at_an_address_is_one_line(monkeypatch):
    with pytest.raises(
        ValueError, match=r"no Ray cluster at '127\.0\.0\.1:1'.*leave out --address"
    ):
        on_ray.RayEngine("127.0.0.1:1")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match=r"the address of RAY_ADDRESS: .*or unset RAY_ADDRESS"):
        on_ray.RayEngine()
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(ValueError, match=r"no Ray cluster at 'nonsense'.*unset RAY_ADDRESS"):
        on_ray.RayEngine()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "another program"),
        (b"", "another program"),
        (None, "nothing"),
    ],
    ids=["a page", "closed at once", "silent"],
)
def test_another_program_at_the_address_is_noticed(monkeypatch, answer, said):
    """Ray would wait for it for minutes. A stopped cluster is as silent."""
    monkeypatch.setattr(ray_cluster, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if answer is not None:
                    connection.recv(100)
                    connection.sendall(answer)
                else:
                    done.wait(60)

        done = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = "{}:{}".format(*server.getsockname())
        with pytest.raises(ValueError, match=rf"no Ray cluster at '{address}'.*: {said}.* answer"):
            on_ray.RayEngine(address)
        done.set()
        thread.join(60)


def listening(process: int) -> dict[str, str]:
    """Return the addresses on which a process and its descendants listen, by their programs."""
    found, before = {process}, set()
    while found != before:
        before = set(found)
        for place in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(place.read_text().rpartition(")")[2].split()[1]) in found:
                    found.add(int(place.parent.name))
    sockets = {}
    for number in found:
        for place in Path(f"/proc/{number}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets[os.readlink(place)] = Path(f"/proc/{number}/comm").read_text().strip()
    addresses = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = columns = line.split()
            if state == "0A" and (owner := sockets.get(f"socket:[{columns[9]}]")):
                addresses[f"{owner} {local}"] = local.partition(":")[0]
    return addresses


def test_a_cluster_of_its_own_is_for_this_machine_alone(tmp_path):
    plan, path = tmp_path / "slow.toml", tmp_path / "study"
    plan.write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 1\npreset = "smoke"\n'
        "evaluations = 1_000_000_000\ncheckpoint_every = 2\n"
    )
    ray = ("--engine", "ray", "--cpus", "0.5")
    environ = environment(RAY_USAGE_STATS_ENABLED="0", RAY_ADDRESS="")
    # As in the background, where a shell lets processes ignore Ctrl-C.
    arguments = ("study", plan, "--output", path, *ray)
    process = started(*arguments, environ=environ, ignored=signal.SIGINT)
    while not list(path.glob("runs/*/checkpoints/last")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    addresses = listening(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert len(addresses) > 3
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert {name: a for name, a in addresses.items() if a not in loopback} == {}
    assert "Ray runs on this machine only: it listens on 127.0.0.1 and has no dashboard" in err
    assert process.returncode == 3, (out, err)
    again = rf"Continue with: .* study {plan} --output {path} --engine ray --cpus 0.5 --gpus 0\n"
    assert re.search(again, out), out
