"""The scheduler with an engine that does as it is told: failures, splits, waiting, stopping."""

import dataclasses
import io
import signal

import numpy as np
import pytest

from elites.runs import checkpoint
from elites.runs.directory import RunError
from elites.runs.signals import Signals
from elites.study import scheduler, worker
from elites.study.plan import Part, Plan
from elites.study.scheduler import Scheduler
from elites.study.study import Study, open_study, split_for
from elites.study.table import Live
from elites.study.worker import Ending, read_ending
from program import complaint, contents, edit_json, elites

PLAN = Plan(("point_omni",), ("me", "dcg_me", "pga_me"), seeds=4, preset="smoke")


class Script:
    """Endings or exit codes by the name of a run, one for each time it is started.

    A run without any is done.
    """

    def __init__(self, study: Study, codes: dict[str, list], slots: int = 2):
        self.study, self.codes, self.slots = study, codes, slots
        self.started: list[str] = []
        self.most = self.now = 0

    def has_room(self, item):
        return True

    def start(self, study, item, work):
        self.started.append(item.name)
        self.now += 1
        self.most = max(self.most, self.now)
        codes = self.codes.get(item.name, [])
        told = codes.pop(0) if codes else worker.DONE
        return Told(self, item, told if isinstance(told, Ending) else Ending(told))


class Told:
    def __init__(self, script: Script, item, ending: Ending):
        self.script, self.item, self.ending, self.polls = script, item, ending, 0
        self.stopped = False

    def poll(self):
        self.polls += 1
        if self.polls < 3 and not self.stopped:
            return None
        self.script.now -= 1
        if self.stopped:
            return Ending(worker.STOPPED)
        if self.ending.code == worker.DONE:
            path = self.script.study.run(self.item).path
            path.mkdir(parents=True, exist_ok=True)
            (path / "summary.md").write_text("done")
        return self.ending

    def stop(self):
        self.stopped = True


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study"
    path.mkdir()
    return open_study(path, PLAN)


def work(study, codes, slots: int = 2):
    engine, out = Script(study, codes, slots), io.StringIO()
    live = Live(study, out, every=0.0)
    result = Scheduler(study, engine, live, pause=0.0).run(Signals())
    return result, engine, out.getvalue()


ME, DCG, PGA = (f"point_omni-{name}-seeds-0-3" for name in ("me", "dcg_me", "pga_me"))


def test_all_are_done_and_nothing_twice(study):
    result, engine, out = work(study, {})
    assert (result.done, result.failed, result.stopped) == (3, [], False)
    assert engine.started == [ME, DCG, PGA]
    assert engine.most == 2
    assert f"{DCG}: running" in out
    assert f"{DCG}: done" in out
    result, engine, _ = work(study, {})
    assert engine.started == []
    assert result.done == 3


def test_a_failed_run_is_tried_once_more(study):
    result, engine, out = work(study, {ME: [Ending(worker.FAILED, "it broke")]})
    assert result.failed == []
    assert engine.started.count(ME) == 2
    assert f"{ME} failed: it broke; trying again" in out


@pytest.mark.parametrize(
    ("report", "status", "ending"),
    [
        (b'{"code": 4, "reason": "too large"}', 4, Ending(4, "too large")),
        (b"", -9, Ending(1, "killed by SIGKILL (signal 9)", False)),
        (b"", -250, Ending(1, "killed by a signal (signal 250)", False)),
        # An exit code of the task's own is not taken for one of a worker.
        (b"", 4, Ending(1, "ended with exit code 4 and gave no reason", False)),
        (b'{"code": 4, "rea', -6, Ending(1, "killed by SIGABRT (signal 6)", False)),
    ],
)
def test_the_reason_is_what_the_worker_reported(report, status, ending):
    assert read_ending(report, status) == ending


def test_a_log_of_an_earlier_day_is_no_reason(study):
    study.logs.mkdir()
    log = study.logs / f"{ME}.log"
    log.write_text("elites: the disk is full\nelites: recovered the lock left by process 1\n")
    killed = read_ending(b"", -9)
    result, _, _ = work(study, {ME: [killed, killed]})
    assert [item.error for item in result.failed] == [f"killed by SIGKILL (signal 9); see {log}"]


def test_one_that_fails_twice_is_reported_and_the_rest_goes_on(study):
    result, engine, _ = work(study, {DCG: [1, read_ending(b"", -9), 1]})
    assert [item.name for item in result.failed] == [DCG]
    assert "killed by SIGKILL" in result.failed[0].error
    assert result.done == 2
    assert engine.started.count(DCG) == 2
    # Started again, it is tried again: what was wrong may have been mended.
    result, engine, _ = work(study, {})
    assert result.failed == []
    assert engine.started == [DCG]


def test_a_second_worker_takes_the_place_of_one_that_has_trained_a_run(study):
    """It starts before any other run, in the slot that is free, and is no second attempt."""
    trained = [worker.TRAINED, worker.FAILED]
    result, engine, out = work(study, {ME: trained}, slots=1)
    assert (result.done, result.failed) == (3, [])
    assert engine.started == [ME, ME, ME, DCG, PGA]
    assert engine.most == 1
    assert f"{ME} failed: ended with exit code 1, but is not finished; see " in out
    assert f"{ME}: queued" not in out.partition("failed")[0]


def test_no_second_worker_starts_after_a_signal(study):
    class Finishing(Told):
        def poll(self):
            return Ending(worker.TRAINED) if self.stopped else None

    class Kept(Script):
        def start(self, study, item, work):
            super().start(study, item, work)
            return Finishing(self, item, Ending(worker.TRAINED))

    engine, signals = Kept(study, {}, slots=3), Signals()
    live = Live(study, io.StringIO(), every=0.0)
    live.show = lambda *_: setattr(signals, "received", 15)
    result = Scheduler(study, engine, live, pause=0.0).run(signals)
    assert result.stopped
    assert engine.started == [ME, DCG, PGA]


class Clock:
    """The module `time` as the scheduler sees it, whose clock the test sets."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0


class Training:
    """A worker that trains until it is told to stop, or writes a model during three polls."""

    def __init__(self, work: str, ending: Ending, on_poll, stopping: Ending):
        self.work, self.ending, self.on_poll = work, ending, on_poll
        self.stopping, self.stopped, self.polls = stopping, False, 0

    def poll(self):
        self.polls += 1
        self.on_poll(self)
        if self.stopped:
            return self.stopping
        return self.ending if self.work == "keep" and self.polls > 2 else None

    def stop(self):
        self.stopped = True


class Patient:
    """An engine of such workers.

    `endings` has those of workers that write a model, and `stopping` those of workers that are told
    to stop, by run.
    """

    def __init__(self, endings, stopping, slots: int, on_poll):
        self.endings, self.stopping = dict(endings), dict(stopping)
        self.slots, self.on_poll = slots, on_poll
        self.started: list[tuple[str, str]] = []
        self.handles: list[Training] = []

    def has_room(self, item):
        return True

    def start(self, study, item, work):
        self.started.append((item.name, work))
        ending = self.endings.get(item.name, Ending(worker.DONE))
        stopping = self.stopping.get(item.name, Ending(worker.STOPPED))
        self.handles.append(Training(work, ending, self.on_poll, stopping))
        return self.handles[-1]


def late(
    study,
    monkeypatch,
    saved,
    endings=(),
    stopping=(),
    keep_elites=3,
    slots=2,
    on_poll=lambda *_: None,
):
    """Compute a study that is stopped after ten ticks of the clock.

    The runs `saved` have a checkpoint. `on_poll` is called with each worker that is polled, and
    with the signals of the study.
    """
    monkeypatch.setattr(scheduler, "time", Clock())
    study.write_plan(dataclasses.replace(PLAN, keep_elites=keep_elites))
    study = Study(study.path)
    for name in saved:
        parts = {part: {"x": np.zeros(1)} for part in (checkpoint.WEIGHTS, checkpoint.STATE)}
        checkpoint.save(study.path / "runs" / name / "checkpoints", 4, parts, {})
        (study.path / "runs" / name / "config.json").write_text("{}")
    signals, out = Signals(), io.StringIO()
    engine = Patient(endings, stopping, slots, lambda handle: on_poll(handle, signals))
    live = Live(study, out, every=0.0)
    result = Scheduler(study, engine, live, stop_after=10.0).run(signals)
    assert all(item.attempts == 0 for item in study.items())
    return result, engine, out.getvalue()


def test_when_the_time_is_over_runs_save_and_no_other_starts(study, monkeypatch):
    result, engine, out = late(study, monkeypatch, saved=[ME, DCG], keep_elites=0)
    assert (result.done, result.failed, result.stopped) == (0, [], True)
    assert engine.started == [(ME, "train"), (DCG, "train")]
    assert [handle.stopped for handle in engine.handles] == [True, True]
    assert [handle.polls for handle in engine.handles] == [11, 11]  # once the time was over
    assert "stopping after 10 s: running runs save and end" in out


def test_models_of_unfinished_runs_are_kept_when_the_time_is_over(study, monkeypatch):
    result, engine, out = late(study, monkeypatch, saved=[DCG])
    assert (result.done, result.failed, result.stopped) == (0, [], True)
    # The other one has not saved anything, so there is nothing to keep.
    assert engine.started == [(ME, "train"), (DCG, "train"), (DCG, "keep")]
    assert [handle.stopped for handle in engine.handles] == [True, True, False]
    assert "has no model" not in out


def test_a_model_that_cannot_be_kept_is_no_failed_run(study, monkeypatch):
    full = {ME: Ending(worker.FAILED, "the disk is full")}
    result, engine, out = late(study, monkeypatch, saved=[ME, DCG], endings=full)
    assert (result.done, result.failed, result.stopped) == (0, [], True)
    assert f"{ME} has no model: the disk is full" in out
    assert f"{DCG} has no model" not in out
    assert engine.started[2:] == [(ME, "keep"), (DCG, "keep")]


def test_a_signal_stops_workers_that_write_models_of_unfinished_runs(study, monkeypatch):
    def interrupt(handle: Training, signals: Signals) -> None:
        if handle.work == "keep":
            signals.received = signal.SIGTERM

    result, engine, out = late(study, monkeypatch, saved=[ME], slots=1, on_poll=interrupt)
    assert result.stopped
    assert engine.started == [(ME, "train"), (ME, "keep")]
    assert [handle.stopped for handle in engine.handles] == [True, True]
    assert "has no model" not in out


def test_a_run_that_fails_when_it_is_stopped_is_named(study, monkeypatch):
    full = Ending(worker.FAILED, "the disk is full")
    stopping = {ME: full, DCG: read_ending(b"", -signal.SIGTERM)}
    result, engine, out = late(study, monkeypatch, saved=[ME], stopping=stopping)
    assert (result.done, result.failed, result.stopped) == (0, [], True)
    assert f"{ME} ended with an error: the disk is full" in out
    assert f"{DCG} ended" not in out  # told to stop while it was still loading
    assert engine.started[2:] == [(ME, "keep")]  # of its last checkpoint


def test_the_model_of_a_run_that_was_deleted_no_longer_counts_when_it_is_trained_again(
    study, monkeypatch
):
    """Otherwise it would count as the model of the new run, if the study is killed before."""
    study.kept.mkdir()
    for item in study.items()[:2]:
        study.model(item).write_bytes(b"of the run that was deleted")
    full = {DCG: Ending(worker.FAILED, "no space")}
    _, _, out = late(study, monkeypatch, saved=[DCG], endings=full)
    assert [path.name for path in study.models()] == [f"{DCG}.zip"]  # that run is still there
    old = study.kept / f"{ME}.zip.old"
    assert old.read_bytes() == b"of the run that was deleted"
    assert f"{ME}: its directory was deleted, so its model is now {old}" in out


def test_a_study_that_ends_in_time_was_not_stopped(study):
    live = Live(study, io.StringIO(), every=0.0)
    result = Scheduler(study, Script(study, {}), live, pause=0.0, stop_after=1e9).run(Signals())
    assert (result.done, result.stopped) == (3, False)


def test_what_does_not_fit_is_split_by_seeds(study):
    result, _, out = work(study, {DCG: [4], "point_omni-dcg_me-seeds-0-1": [4]})
    assert result.done == 5
    assert "does not fit in memory" in out
    names = [item.name for item in study.items() if item.algorithm == "dcg_me"]
    assert names == [f"point_omni-dcg_me-seeds-{s}" for s in ("0-0", "1-1", "2-3")]
    seeds = [s for item in study.items() if item.algorithm == "dcg_me" for s in item.seed_numbers]
    assert seeds == [0, 1, 2, 3]


def test_half_a_checkpoint_does_not_prevent_a_split(study):
    for name in (".writing-1", "damaged-000000002"):
        (study.path / "runs" / DCG / "checkpoints" / name).mkdir(parents=True)
    result, _, _ = work(study, {DCG: [4]})
    assert (result.done, result.failed) == (4, [])


def test_one_seed_that_does_not_fit_has_failed(tmp_path):
    path = tmp_path / "one"
    path.mkdir()
    study = open_study(path, Plan(("point_omni",), ("me",), seeds=1, preset="smoke"))
    result, _, _ = work(study, {"point_omni-me-seeds-0-0": [4, 4]})
    assert len(result.failed) == 1


def test_a_run_that_another_process_still_holds_is_waited_for(study):
    result, engine, _ = work(study, {ME: [5, 5, 5]})
    assert result.done == 3
    assert engine.started.count(ME) == 4
    assert all(item.attempts == 0 for item in study.items())


def test_but_not_for_ever(study, monkeypatch):
    monkeypatch.setattr(scheduler, "LOCK_TIMEOUT", 0.0)
    result, _, _ = work(study, {ME: [5] * 9})
    assert [item.name for item in result.failed] == [ME]


def test_a_signal_stops_all_and_loses_none(study):
    engine = Script(study, {}, slots=2)
    signals = Signals()
    signals.received = 15
    result = Scheduler(study, engine, Live(study, io.StringIO()), pause=0.0).run(signals)
    assert result.stopped
    assert engine.started == []
    assert work(study, {})[0].done == 3


def test_an_error_of_the_scheduler_lets_all_runs_save(study, monkeypatch):
    class Failing(Told):
        def stop(self):
            super().stop()
            raise OSError("no such process")

    class Kept(Script):
        def start(self, study, item, work):
            handle = super().start(study, item, work)
            handles.append(Failing(self, item, handle.ending) if item.name == DCG else handle)
            return handles[-1]

    def write(*_):
        raise OSError(28, "No space left on device", "index.json")

    handles, out = [], io.StringIO()
    engine = Kept(study, {ME: [Ending(worker.FAILED, "it broke")]}, slots=3)
    started = Scheduler(study, engine, Live(study, out), pause=0.0)
    monkeypatch.setattr(Study, "write_items", write)
    with pytest.raises(OSError, match="No space left on device"):
        started.run(Signals())
    assert engine.now == 0  # every worker has ended
    assert [handle.stopped for handle in handles] == [False, True, True]
    assert "No space left on device" in out.getvalue()


def test_no_worker_is_told_to_stop_twice(study):
    """Told twice, it would end without saving: after a signal, and after an error that follows."""

    class Counting(Told):
        stops = 0

        def stop(self):
            self.stops += 1

        def poll(self):
            self.polls += 1
            if self.polls < 5:
                signals.received = 15
                return None
            if self.item.name == ME:
                raise OSError("the log cannot be written")
            return Ending(worker.STOPPED)

    class Kept(Script):
        def start(self, study, item, work):
            handles.append(Counting(self, item, Ending(worker.DONE)))
            return handles[-1]

    handles, signals = [], Signals()
    live = Live(study, io.StringIO())
    with pytest.raises(OSError, match="the log cannot be written"):
        Scheduler(study, Kept(study, {}, slots=2), live, pause=0.0).run(signals)
    assert [handle.stops for handle in handles] == [1, 1]


def test_however_a_run_ends_when_told_to_stop_it_has_not_failed(study):
    class Abrupt(Script):
        def start(self, study, item, work):
            signals.received = 15  # told to stop while it still loads
            return Told(self, item, read_ending(b"", -15))

    signals = Signals()
    live = Live(study, io.StringIO())
    result = Scheduler(study, Abrupt(study, {}, slots=1), live, pause=0.0).run(signals)
    assert result.stopped
    assert all(item.attempts == 0 for item in study.items())


def test_a_kill_after_the_plan_was_written_loses_nothing(study):
    (study.path / "index.json").unlink()
    again = open_study(study.path, PLAN)
    assert [item.name for item in again.items()] == [ME, DCG, PGA]


def test_an_index_with_a_run_that_the_plan_has_not_is_refused(study):
    edit_json(study.path / "index.json", lambda data: data["runs"][0].update(task="/evil.py:f"))
    with pytest.raises(RunError, match=r"index\.json: damaged: the plan has no run of me on /evil"):
        open_study(study.path, PLAN)


def test_an_index_of_another_format_is_refused(study):
    edit_json(study.path / "index.json", lambda data: data.update(format=2))
    with pytest.raises(RunError, match=r"index\.json: not an index that this version"):
        study.items()


def test_a_directory_that_is_refused_is_left_as_it_was(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    line = complaint(elites("study", "smoke", "--output", tmp_path), 2)
    assert "is not empty and not a study" in line
    assert list(contents(tmp_path)) == ["thesis.tex"]


def test_a_directory_with_another_study_a_run_or_files_is_refused(study, tmp_path):
    other = Plan(("point_omni",), ("me", "dcg_me", "pga_me"), seeds=5, preset="smoke")
    with pytest.raises(ValueError, match="holds another study: seeds is 4, not 5"):
        open_study(study.path, other)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds a run"):
        open_study(run, PLAN)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty and not a study"):
        open_study(tmp_path / "files", PLAN)


# ------------------------------------------------------------------------------- part of a plan


def work_on(study, part: Part):
    """Compute a part of a study, and return the result and the names of the started runs."""
    split_for(study, part)
    engine = Script(study, {})
    live = Live(study, io.StringIO(), every=0.0)
    result = Scheduler(study, engine, live, pause=0.0, part=part).run(Signals())
    return result, engine.started


def test_only_a_part_is_computed_and_the_rest_later(study):
    part = Part(algorithms=("me",), seeds=(range(1, 3),))
    result, started = work_on(study, part)
    assert started == ["point_omni-me-seeds-1-2"]
    assert (result.done, result.failed, result.stopped) == (1, [], False)
    assert [item.name for item in study.items()] == [
        "point_omni-me-seeds-0-0",
        "point_omni-me-seeds-1-2",
        "point_omni-me-seeds-3-3",
        "point_omni-dcg_me-seeds-0-3",
        "point_omni-pga_me-seeds-0-3",
    ]
    result, started = work_on(study, Part(algorithms=("me", "pga_me")))
    assert started == [
        "point_omni-me-seeds-0-0",
        "point_omni-me-seeds-3-3",
        "point_omni-pga_me-seeds-0-3",
    ]
    assert result.done == 4


def test_a_run_that_has_begun_is_not_divided(study):
    (study.run(study.items()[0]).path).mkdir(parents=True)
    (study.run(study.items()[0]) / "config.json").write_text("{}")
    before = study.items()
    with pytest.raises(ValueError, match="is one run and has begun"):
        split_for(study, Part(algorithms=("me",), seeds=(range(2),)))
    assert study.items() == before
    split_for(study, Part(algorithms=("me",), seeds=(range(4),)))
    assert study.items() == before


def test_words_that_are_not_in_the_plan_are_refused(tmp_path):
    said = complaint(elites("study", "smoke", "--output", tmp_path / "s", "--only", "ant_omni"), 2)
    assert "--only ant_omni: the plan has no such task or algorithm" in said
    assert not (tmp_path / "s").exists()
