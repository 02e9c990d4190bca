"""Signals at every moment of a command, from its first line to its last, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from program import POINT, SMOKE, environment, rows, started, succeed

# Python runs this file when it starts. It sends a signal to its own process when a module is
# imported, so that the moment does not depend on the speed of the machine.
HOOK = """
import os, sys

class Moment:
    def find_spec(name, path=None, target=None):
        if name == os.environ["MOMENT"]:
            sys.meta_path.remove(Moment)
            open(os.environ["REACHED"], "x").close()
            for number in os.environ["SIGNALS"].split():
                os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Moment)
"""


@pytest.fixture(scope="module")
def hook(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hook")
    (folder / "sitecustomize.py").write_text(HOOK)
    return folder


def hooked(hook: Path, reached: Path, moment: str, *numbers: int) -> dict[str, str]:
    """Return the environment of a process that gets signals when it imports a module."""
    given = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(hook), os.environ.get("PYTHONPATH")])),
        "MOMENT": moment,
        "REACHED": str(reached),
        "SIGNALS": " ".join(str(int(number)) for number in numbers),
    }
    return environment(**given)


def train(path: Path, environ: dict[str, str], *options: object) -> subprocess.Popen[str]:
    return started("train", *(options or POINT), "--output", path, environ=environ,
                   handled=signal.SIGINT)  # fmt: skip


def check_interrupted(process: subprocess.Popen[str], path: Path) -> None:
    """Check that a process ended with its message, its exit code and nothing left on disk."""
    out, err = process.communicate()
    assert process.returncode in (130, 143), (process.returncode, out, err)
    assert err.splitlines()[-1] == "elites: interrupted"
    assert "Traceback" not in err
    assert "finished" not in out
    assert not path.exists()


BEFORE = ["elites.output", "elites.words", "elites.runs.signals", "elites.cli", "tyro",
          "jax", "jaxlib", "jax.numpy", "elites.runs.job",
          "elites.tasks.analytic"]  # fmt: skip


@pytest.mark.parametrize("place", range(len(BEFORE)))
def test_a_signal_while_modules_load_ends_the_command(place, hook, tmp_path):
    moment, reached, path = BEFORE[place], tmp_path / "reached", tmp_path / "run"
    number = (signal.SIGINT, signal.SIGTERM)[place % 2]
    process = train(path, hooked(hook, reached, moment, number))
    check_interrupted(process, path)
    assert process.returncode == 128 + number
    assert reached.exists()


def test_a_second_signal_while_modules_load_leaves_at_once(hook, tmp_path):
    reached = tmp_path / "reached"
    numbers = (signal.SIGTERM, signal.SIGINT)
    process = train(tmp_path / "run", hooked(hook, reached, "jax", *numbers))
    _, err = process.communicate()
    assert process.returncode in (130, 143)
    assert "Traceback" not in err


@pytest.mark.parametrize("delay", [0.5, 1.0, 2.0])
def test_a_signal_from_outside_is_never_swallowed(delay, hook, tmp_path):
    """Training would take hours: whether it ends at all is what is tested."""
    reached, path = tmp_path / "reached", tmp_path / "run"
    endless = (*POINT, "--evaluations", 10**7)
    process = train(path, hooked(hook, reached, "elites.cli"), *endless)
    while not reached.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert "Traceback" not in err
    if process.returncode == 3:
        assert "everything is saved" in out
        assert f"resume {path}" in out
        assert (path / "checkpoints" / "last").exists()
    else:
        assert process.returncode == 130, (process.returncode, out, err)
        assert err.splitlines()[-1] == "elites: interrupted"
        assert not path.exists()


def test_a_signal_after_the_last_iteration_stops_the_rest(hook, tmp_path):
    """Figures are drawn by `resume` then."""
    reached, path = tmp_path / "reached", tmp_path / "run"
    environ = hooked(hook, reached, "matplotlib", signal.SIGTERM)
    process = train(path, environ, *POINT[:2], *SMOKE[:2])
    out, err = process.communicate()
    assert process.returncode == 3, err
    assert "stopping after this step" in err
    assert "stopped after iteration 9 of 9; everything is saved" in out
    assert not (path / "summary.md").exists()
    done = succeed("resume", path)
    assert "finished after 9 iterations" in done.stdout
    assert (path / "figures" / "archive.png").exists()
    assert [int(row["iteration"]) for row in rows(path / "metrics.csv")] == [*range(1, 10)]


def test_other_commands_end_with_a_signal(hook, tmp_path):
    environ = hooked(hook, tmp_path / "reached", "jax", signal.SIGTERM)
    process = started("tasks", "ant_omni", environ=environ)
    _, err = process.communicate()
    assert (process.returncode, err) == (143, "elites: interrupted\n")


# ------------------------------------------------------------------------- at the end of a command

# Runs the command `elites` as its script does. It sends a signal to its own process at a moment
# before or after the work, so that the moment does not depend on the speed of the machine.
ENDING = """
import atexit, os, signal, sys
from elites import cli, output
from elites.__main__ import main
from elites.cli import study, train

moment, number, *sys.argv[1:] = sys.argv[1:]
command, over = cli.main, False

def send(kill=os.kill, process=os.getpid(), number=int(number)):
    kill(process, number)

def watched():
    global over
    code = command()
    over = True
    if moment == "return":
        send()
    return code

def before(place, name):
    real = getattr(place, name)
    def call(*given):
        if over:
            setattr(place, name, real)
            send()
        return real(*given)
    setattr(place, name, call)

def said(text):
    output.say(text)
    study.say = train.say = output.say
    send()

class Last:
    def __del__(self, send=send):
        send()

cli.main = watched
if moment == "start":
    over = True
    before(output, "prepare")
elif moment == "last line":
    study.say = train.say = said
elif moment == "output":
    before(output, "finish")
elif moment == "handlers":
    before(signal, "signal")
elif moment == "exit functions":
    atexit.register(send)
elif moment == "modules":  # they are removed after Python has removed its handlers
    last = Last()
sys.exit(main())
"""


def ended(moment: str, number: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Return how a command ends that gets a signal at a moment before or after its work."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a terminal starts it
    try:
        words = [moment, str(int(number)), *map(str, arguments)]
        return subprocess.run([sys.executable, "-c", ENDING, *words], env=environment(),
                              capture_output=True, text=True, check=False)  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


AFTER = ["output", "handlers", "exit functions", "modules"]


@pytest.mark.parametrize("place", range(len(AFTER)))
def test_a_signal_after_a_command_does_not_change_its_exit_code(place):
    moment, number = AFTER[place], (signal.SIGINT, signal.SIGTERM)[place % 2]
    done = ended(moment, number, "algorithms")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dcg_me" in done.stdout
    failed = ended(moment, number, "algorithms", "nothing")
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("elites: ")


def test_a_signal_just_before_a_command_ends_it():
    done = ended("start", signal.SIGTERM, "algorithms")
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "elites: interrupted\n")


PLAN = """
tasks = ["point_omni"]
algorithms = ["me"]
seeds = 1
preset = "smoke"
"""


def test_a_signal_after_the_last_line_of_a_study_comes_too_late(tmp_path):
    plan, path = tmp_path / "plan.toml", tmp_path / "study"
    plan.write_text(PLAN)
    succeed("study", plan, "--output", path, apart=True)
    for moment in ("last line", "return", *AFTER):
        done = ended(moment, signal.SIGINT, "study", plan, "--output", path)
        assert done.returncode == 0, (moment, done.returncode, done.stderr)
        assert done.stderr == "point_omni-me-seeds-0-0: done (100 % done)\n", moment
        assert done.stdout.splitlines()[-1].startswith("1 run done: ")


def test_a_signal_after_the_first_line_about_a_trained_run_comes_too_late(tmp_path):
    path = tmp_path / "run"
    done = ended("last line", signal.SIGTERM, "train", *POINT, "--output", path)
    assert done.returncode == 0, done.stderr
    assert "interrupted" not in done.stderr
    assert "finished after" in done.stdout
    assert "QD-score, re-evaluated" in done.stdout
