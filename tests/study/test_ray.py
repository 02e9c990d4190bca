"""Studies on a real Ray cluster: two machines (processes of Ray's), one of them killed mid-run."""

import contextlib
import io
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from program import environment, rows

pytest.importorskip("ray", reason="LEFT OUT: needs ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

from ray.exceptions import NodeDiedError, RayTaskError  # noqa: E402

from elites.runs import checkpoint  # noqa: E402
from elites.study import on_ray, scheduler  # noqa: E402
from elites.study.engines import LocalEngine  # noqa: E402
from elites.study.plan import Plan  # noqa: E402
from elites.study.study import open_study  # noqa: E402
from elites.study.table import Live  # noqa: E402

PLAN = Plan(
    ("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke", evaluations=32 * 300,
    checkpoint_every=10,
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
        result = scheduler.run_unfinished(study, LocalEngine(1), Live(study, io.StringIO()))
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


def test_a_request_no_machine_can_meet_is_refused(cluster):
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


def test_no_cluster_at_an_address_is_one_line():
    with pytest.raises(ValueError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        on_ray.RayEngine("127.0.0.1:1")
