"""Loggers of other services and callbacks: what they get, and that training survives them.

Stand-ins with the same calls as the services' packages write down what they are told. One test
runs the real packages without a network, and reads back what they have recorded.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elites
import logged
from elites import loggers, packages
from elites.runs import services
from elites.runs.config import Config, preset
from elites.runs.directory import RunDirectory
from program import POINT, complaint, forget, rows, succeed
from program import elites as command
from small import SMALL

FIVE = (
    *POINT, "--hp.policy-hidden", 8, "--evaluations", 160, "--hp.batch-size", 32
)  # four iterations  # fmt: skip

TELL = """
import json, os
def tell(kind, **facts):
    if kind == os.environ.get("STAND_IN_FAILS"):
        raise ConnectionError("the server\\nis away")
    with open(os.environ["STAND_IN_FILE"], "a") as file:
        file.write(json.dumps({"kind": kind, **facts}) + "\\n")
"""
WANDB = f"""{TELL}
class Run:
    def __init__(self, id):
        self.id = id or "first-id"
    def define_metric(self, name, step_metric=None):
        tell("wandb.define", name=name, step_metric=step_metric)
    def log(self, data, step=None, commit=None):
        tell("wandb.log", data=data, step=step)
    def finish(self, exit_code=None):
        tell("wandb.finish", id=self.id)
def init(*, project=None, name=None, config=None, id=None, resume=None, reinit=None,
         allow_val_change=None):
    tell("wandb.init", project=project, name=name, config=config, id=id, resume=resume)
    return Run(id)
"""
MLFLOW = f"""{TELL}
from types import SimpleNamespace as Some
class Metric:
    def __init__(self, key, value, timestamp, step): self.data = [key, value, step]
class Param:
    def __init__(self, key, value): self.data = [key, value]
entities = Some(Metric=Metric, Param=Param)
class MlflowClient:
    def get_experiment_by_name(self, name):
        tell("mlflow.experiment", name=name)
    def create_experiment(self, name, artifact_location=None, tags=None):
        return "7"
    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        tell("mlflow.create", experiment=experiment_id, name=run_name)
        return Some(info=Some(run_id="run-1"))
    def update_run(self, run_id, status=None, name=None):
        tell("mlflow.update", run=run_id, status=status)
    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        assert len(metrics) <= 1000 and len(params) <= 100
        tell("mlflow.log", run=run_id, metrics=[m.data for m in metrics],
             params=[p.data for p in params])
    def set_terminated(self, run_id, status=None, end_time=None):
        tell("mlflow.terminated", run=run_id)
"""


class Told:
    """What the stand-ins were told so far, since the last call."""

    def __init__(self, path: Path):
        self.path = path

    def __call__(self) -> list[dict]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Stand-ins for both packages, on the path of this process alone."""
    place = tmp_path / "stand_ins"
    place.mkdir()
    (place / "wandb.py").write_text(WANDB)
    (place / "mlflow.py").write_text(MLFLOW)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("STAND_IN_FILE", str(tmp_path / "told"))
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "STAND_IN_FAILS"):
        monkeypatch.delenv(name, raising=False)
    for name in loggers.NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield Told(tmp_path / "told")
    for name in loggers.NAMES:
        sys.modules.pop(name, None)


def of(kind: str, entries: list[dict]) -> list[dict]:
    return [entry for entry in entries if entry["kind"] == kind]


def test_both_get_every_metric_and_a_resumed_run_continues_theirs(told, tmp_path):
    run = tmp_path / "run"
    succeed("train", *FIVE, "--output", run, "--log", "wandb", "mlflow")
    said, table = told(), rows(run / "metrics.csv")
    (init,) = of("wandb.init", said)
    assert (init["project"], init["name"], init["id"]) == ("elites", "point_omni-me", None)
    assert (init["config"]["hp.batch_size"], init["config"]["seeds"]) == (32, 1)
    logged = [entry["data"] for entry in of("wandb.log", said)]
    assert [data["iteration"] for data in logged] == [1, 2, 3, 4, 4]  # the last is re-evaluated
    scores = [float(row["qd_score"]) for row in table]
    for score, data in zip(scores, logged, strict=False):
        assert data["qd_score"] == pytest.approx(score, rel=1e-6)
        assert "added/ga" in data
    assert logged[4]["reevaluation/qd_score"] == pytest.approx(logged[3]["qd_score"])
    assert of("wandb.finish", said) == [{"kind": "wandb.finish", "id": "first-id"}]
    assert of("mlflow.create", said)[0]["name"] == "point_omni-me"
    params = [p for entry in of("mlflow.log", said) for p in entry["params"]]
    assert ["hp.batch_size", "32"] in params
    metrics = [m for entry in of("mlflow.log", said) for m in entry["metrics"]]
    found = [value for name, value, _ in metrics if name == "qd_score"]
    assert found == pytest.approx(scores, rel=1e-6)
    assert json.loads((run / "loggers.json").read_text()) == {
        "wandb": "first-id",
        "mlflow": "run-1",
    }

    succeed("resume", run, "--evaluations", 192)
    said = told()
    assert of("wandb.init", said)[0]["id"] == "first-id"
    assert of("mlflow.update", said) == [
        {"kind": "mlflow.update", "run": "run-1", "status": "RUNNING"}
    ]
    assert not of("mlflow.create", said)
    assert [entry["data"]["iteration"] for entry in of("wandb.log", said)] == [5, 5]

    succeed("resume", run, "--evaluations", 224, "--log", "none")
    assert told() == []
    assert "log" not in json.loads((run / "config.json").read_text())


def test_a_logger_that_fails_warns_once_and_training_goes_on(told, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAILS", "wandb.log")
    done = succeed("train", *FIVE, "--output", tmp_path / "run", "--log", "wandb", "mlflow")
    (line,) = [line for line in done.stderr.splitlines() if "no more logging" in line]
    assert line.endswith("no more logging to Weights & Biases: ConnectionError: the server is away")
    assert len(rows(tmp_path / "run" / "metrics.csv")) == 4
    assert len([e for e in of("mlflow.log", told()) if e["metrics"]]) >= 5
    # Without the package, it can be resumed without the logger.
    monkeypatch.setattr(packages, "is_installed", lambda name: name != "mlflow")
    line = complaint(command("resume", tmp_path / "run"), 2)
    assert line.endswith("pip install 'elites[mlflow]'. To continue without, add --log none")
    done = succeed("resume", tmp_path / "run", "--log", "none")
    assert "finished already" in done.stdout


@pytest.mark.parametrize("fails", ["wandb.init", "wandb.finish", "mlflow.create", "mlflow.log"])
def test_no_failure_of_a_logger_is_an_error(told, monkeypatch, capsys, fails):
    monkeypatch.setenv("STAND_IN_FAILS", fails)
    with loggers.Loggers(loggers.NAMES, loggers.Subject("run", {"a": 1}, (0,))) as opened:
        for iteration in (1, 2, 3):
            opened.log(iteration, {"x": [1.0]})
    title = "Weights & Biases" if fails.startswith("wandb") else "MLflow"
    assert capsys.readouterr().err.count(f"no more logging to {title}: ") == 1
    said = told()
    if title == "MLflow":
        assert len(of("wandb.log", said)) == 3
    else:
        assert len(of("mlflow.log", said)) == 4  # the settings, and three iterations


def test_python_logs_and_a_saved_run_is_continued(told, tmp_path):
    sizes = SMALL | {"batch_size": 32}
    run = elites.train("point_omni", "me", evaluations=96, log="wandb", **sizes)
    said = told()
    assert [entry["data"]["iteration"] for entry in of("wandb.log", said)] == [1, 2]
    assert of("wandb.init", said)[0]["name"] == "point_omni-me"
    assert of("wandb.init", said)[0]["config"]["hp.cells"] == SMALL["cells"]
    assert not of("mlflow.create", said)
    run.save(tmp_path / "run")
    succeed("resume", tmp_path / "run", "--evaluations", 128)
    assert of("wandb.init", told())[0]["id"] == "first-id"
    with pytest.raises(ValueError, match="log must be wandb or mlflow, got 'tensorbord'"):
        elites.train("point_omni", "me", evaluations=96, log="tensorbord", **sizes)


def test_a_damaged_record_begins_new_runs(told, tmp_path, capsys):
    config = dataclasses.replace(preset("smoke", "point_omni"), log=("wandb",))
    (tmp_path / "loggers.json").write_text('{"wandb": 3}')
    services.open_loggers(RunDirectory(tmp_path), config, (0,)).close()
    assert "'wandb' is 3, not text. The loggers begin new runs" in capsys.readouterr().err
    assert of("wandb.init", told())[0]["id"] is None
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"wandb": "first-id"}


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "is_installed", lambda name: False)
    done = command("train", *FIVE, "--output", tmp_path / "run", "--log", "mlflow")
    assert complaint(done, 2).endswith(
        "logging to MLflow needs the package mlflow: pip install 'elites[mlflow]'"
    )
    assert not (tmp_path / "run").exists()


def test_several_seeds_have_a_median_unless_one_is_not_finite():
    found = loggers.scalars({"x": [1.0, 5.0, 2.0]}, (3, 5, 7))
    assert found == {"x": 2.0, "seed_3/x": 1.0, "seed_5/x": 5.0, "seed_7/x": 2.0}
    found = loggers.scalars({"a.b": [1.0, np.nan]}, (3, 5), "group/")
    assert found["seed_3/group/a/b"] == 1.0
    assert np.isnan(found["group/a/b"])
    assert loggers.scalars({"x": [2.0]}, (0,)) == {"x": 2.0}


def test_configurations_without_loggers_and_callbacks_are_as_before():
    saved = preset("smoke", "point_omni").to_json()
    assert not {"log", "callback"} & set(saved)
    assert Config.from_json(saved, "x").log == ()
    more = {**saved, "log": ["wandb"], "callback": ["/a.py:f"]}
    assert Config.from_json(more, "x").to_json() == {
        **more, "log": ("wandb",), "callback": ("/a.py:f",)
    }  # fmt: skip
    for change, words in (
        ({"log": ["x"]}, "log must be wandb or mlflow, got 'x'"),
        ({"log": 3}, "'log' must be a list of names"),
        ({"callback": [3]}, "'callback' must be a list of names"),
        ({"callback": ["a.py:f"]}, "the file of callback 'a.py:f' has no absolute path"),
    ):
        with pytest.raises(ValueError, match=words):
            Config.from_json({**saved, **change}, "x")


@pytest.fixture
def without_network(tmp_path, monkeypatch):
    """The services' own settings by which they write to files here, and never to a network."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",  # the database needs packages that take a minute more
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),  # nobody answers
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def recorded(run: Path) -> dict:
    """Return what the services have recorded, see `logged`."""
    script = Path(logged.__file__)
    done = subprocess.run(
        [sys.executable, script, run / "loggers.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_real_packages_record_a_resumed_run(without_network, tmp_path):
    run = tmp_path / "run"
    both = ("--output", run, "--seeds", 2, "--log", *loggers.NAMES)
    done = succeed("train", *FIVE, *both, apart=True)
    assert "warning" not in done.stderr
    done = succeed("resume", run, "--evaluations", 192, apart=True)
    assert "warning" not in done.stderr
    found, table = recorded(run), rows(run / "metrics.csv")
    assert found["wandb"]["sessions"] == 2
    assert (found["wandb"]["status"], found["mlflow"]["status"]) == (0, "FINISHED")
    assert found["wandb"]["settings"]["evaluations"] == 192
    for name in loggers.NAMES:
        service = found[name]
        assert (service["name"], service["group"]) == ("point_omni-me", "elites")
        assert str(service["settings"]["hp.batch_size"]) == "32"
        metrics = service["metrics"]
        for seed in (0, 1):
            scores = [[int(row["iteration"]), float(row["qd_score"])] for row in table
                      if row["seed"] == str(seed)]  # fmt: skip
            assert len(scores) == 5
            assert metrics[f"seed_{seed}/qd_score"] == [
                [iteration, pytest.approx(score, rel=1e-6)] for iteration, score in scores
            ]
        assert [iteration for iteration, _ in metrics["added/ga"]] == [1, 2, 3, 4, 5]
        assert [iteration for iteration, _ in metrics["reevaluation/qd_score"]] == [4, 5]


# ------------------------------------------------------------------------------------- callbacks

CALLBACKS = """
import json
from pathlib import Path
import elites

HERE = Path(__file__).parent

def note(iteration, metrics):
    with open(HERE / "noted", "a") as file:
        row = {name: values.tolist() for name, values in metrics.items()}
        file.write(json.dumps({"iteration": iteration, **row}) + "\\n")
    metrics.clear()

def stop(iteration, metrics):
    if iteration >= 2 and metrics["qd_score"].shape == (1,):
        raise elites.StopTraining

def short(iteration):
    pass

def fail(iteration, metrics):
    return metrics["no such metric"]

number = 3
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "callbacks.py"
    path.write_text(CALLBACKS)
    return path


def noted(file: Path) -> list[dict]:
    lines = (file.parent / "noted").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_callbacks_get_the_metrics_and_end_training(file, tmp_path):
    run = tmp_path / "run"
    both = ("--callback", f"{file}:note", f"{file}:stop")
    done = succeed("train", *FIVE, "--output", run, *both)
    assert "finished after 2 iterations" in done.stdout
    table = rows(run / "metrics.csv")
    assert [row["iteration"] for row in noted(file)] == [1, 2]
    for row, written in zip(noted(file), table, strict=True):
        assert row["qd_score"] == [pytest.approx(float(written["qd_score"]), rel=1e-6)]
        assert row["seconds"][0] > 0
    config = json.loads((run / "config.json").read_text())
    assert (config["evaluations"], len(config["callback"])) == (96, 2)
    assert (run / "summary.md").exists()
    assert json.loads((run / "facts.json").read_text())["iterations"] == 2
    # The run is as finished as any other, and can be continued.
    succeed("resume", run, "--evaluations", 160, "--callback", f"{file}:note")
    assert [row["iteration"] for row in noted(file)] == [1, 2, 3, 4]
    succeed("resume", run, "--evaluations", 192, "--callback", "none")
    assert len(noted(file)) == 4


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("FILE:fail", 1, "callback 'fail' failed: KeyError: 'no such metric' (FILE, line 22)"),
        ("FILE:short", 2, "but 'short' of FILE is not: too many positional arguments"),
        ("FILE:number", 2, "must be a function of (iteration, metrics), but FILE has an"),
        ("FILE:none", 2, "but FILE has nothing of that name for 'none'"),
        ("FILE", 2, "a callback of your own is given as FILE.py:FUNCTION, got 'FILE'"),
        ("away.py:f", 2, "callback 'away.py:f': there is no file away.py"),
    ],
)
def test_bad_callbacks_are_one_line(file, tmp_path, name, code, words):
    given, said = (text.replace("FILE", str(file)) for text in (name, words))
    said = said.replace(f"as {file}.py", "as FILE.py")
    done = command("train", *FIVE, "--output", tmp_path / "run", "--callback", given)
    assert said in complaint(done, code)


def test_callbacks_of_other_people_need_trust_to_resume_alone(file, tmp_path, monkeypatch):
    run = tmp_path / "run"
    succeed("train", *FIVE, "--output", run, "--callback", f"{file}:note")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "someone"))
    file.write_text(CALLBACKS + "# changed\n")
    forget()
    line = complaint(command("resume", run, "--evaluations", 192), 2)
    assert f"needs to run the code in {file}" in line
    succeed("evaluate", run)
    succeed("resume", run, "--evaluations", 192, "--trust-task")
    assert noted(file)[-1]["iteration"] == 5
    file.unlink()
    forget()
    line = complaint(command("resume", run, "--evaluations", 224), 2)
    assert f"there is no file {file}. To continue without, add --callback none" in line


def test_a_distilled_run_has_neither(file, tmp_path):
    config = preset("smoke", "point_omni")
    config = Config.from_json(
        {**config.to_json(), "log": ["wandb"], "callback": [f"{file}:note"]}, "x"
    )
    assert config.for_distillation("/run", 3).log == ()
    assert config.for_distillation("/run", 3).callback == ()
