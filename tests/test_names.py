"""Names of tasks of other simulators, before any simulator is loaded."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import program
from elites import names, packages, tasks, trust
from elites.runs.config import Config, preset
from elites.study import plan as plans
from elites.study import study as studies
from elites.tasks import families


def test_a_name_is_taken_apart_and_put_together_with_its_options_in_order():
    name = names.parse("brax:hopper,descriptor=mean_height,backend=spring,low=-1/0.5")
    assert (name.family, name.environment) == ("brax", "hopper")
    assert dict(name.options) == {
        "descriptor": "mean_height",
        "backend": "spring",
        "low": "-1/0.5",
    }
    assert str(name) == "brax:hopper,backend=spring,descriptor=mean_height,low=-1/0.5"
    assert str(name.replace(low=None, high="1")) == (
        "brax:hopper,backend=spring,descriptor=mean_height,high=1"
    )


@pytest.mark.parametrize(
    ("name", "short", "title"),
    [
        ("brax:hopper", "brax-hopper", "brax:hopper"),
        (
            "brax:ant,low=0/0,high=1/1,descriptor=mean_velocity,backend=mjx",
            "brax-ant-mean_velocity-backend_mjx",
            "brax:ant,backend=mjx,descriptor=mean_velocity",
        ),
        (
            "mjx:/robots/two legs.xml,descriptor=/x/y.py:mine,feet=a/b",
            "mjx-two_legs-mine-feet_a_b",
            "mjx:two legs.xml,descriptor=mine,feet=a/b",
        ),
        ("/x/own.py:paid", "paid", "paid"),
        ("ant_omni", "ant_omni", "ant_omni"),
    ],
)
def test_short_names_are_those_of_files(name, short, title):
    assert names.short_name(name) == short
    assert names.title(name) == title
    assert preset("smoke", name).name == f"{short}-dcg_me"


def test_paths_become_absolute_and_the_files_with_code_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "mjx:robot.xml,reward=own.py:reward,descriptor=other.py:place"
    assert names.absolute(name) == (
        f"mjx:{tmp_path}/robot.xml,descriptor={tmp_path}/other.py:place,"
        f"reward={tmp_path}/own.py:reward"
    )
    assert trust.files(name, "ant_omni", "dcg_me", "own.py:task") == [
        tmp_path / "other.py", tmp_path / "own.py",
    ]  # fmt: skip
    assert names.absolute("ant_omni") == "ant_omni"


def test_paths_with_commas_keep_their_options(tmp_path, monkeypatch):
    """A comma of a path is written twice, also before the comma of an option."""
    folder = tmp_path / "x,y,,"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("robot.xml").touch()
    Path("own.py").touch()
    full = names.absolute("mjx:robot.xml,feet=foot,reward=own.py:paid")
    parsed = names.parse(full)
    assert parsed.environment == f"{folder}/robot.xml"
    assert dict(parsed.options) == {"feet": "foot", "reward": f"{folder}/own.py:paid"}
    assert str(parsed) == names.absolute(full) == full
    assert all(Path(path).is_file() for path in names.paths(full))
    assert names.short_name(full) == "mjx-robot-feet_foot-reward_paid"
    assert names.parse("brax:a,,,b=c").environment == "a,"
    with pytest.raises(ValueError, match="A comma inside of a path is written twice"):
        names.parse("mjx:/x,y/robot.xml,feet=foot")


def test_a_saved_run_that_names_a_relative_file_is_refused(tmp_path):
    data = preset("smoke", "brax:hopper,descriptor=own.py:place").to_json()
    with pytest.raises(ValueError, match=r"config\.json: the file of task .* has no absolute path"):
        Config.from_json(data, "config.json")
    data["task"] = f"brax:hopper,descriptor={tmp_path}/own.py:place"
    assert Config.from_json(data, "config.json").task == data["task"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("brax:", "name an environment after the colon: brax:NAME"),
        ("brx:hopper", "unknown simulator 'brx'. Did you mean 'brax'?"),
        ("brax:hopper,backend", "an option is written option=value, got 'backend'"),
        ("brax:hopper,backend=a,backend=b", "the option backend is given twice"),
        ("brax:hopper,bakend=mjx", "unknown option 'bakend'. Did you mean 'backend'?"),
        ("brax:hopper,backend=warp", "backend must be one of spring, positional, generalized, mjx"),
        ("brax:hopper,descriptor=height", "descriptor 'height' is unknown. Did you mean"),
        ("brax:hopper,descriptor=no.py:place", "there is no file no.py"),
        ("brax:hopper,descriptor=no.txt:place", "descriptor must be FILE.py:FUNCTION"),
        ("brax:hopper,low=a/b", "low must be numbers separated by '/'"),
        ("brax:hopper,high=1/inf", "high must be numbers separated by '/'"),
        ("brax:hopper,episode_length=0", "episode_length must be a whole number of at least 1"),
        ("brax:hopper,feet=a//b", "feet must be different names separated by '/'"),
        ("brax:hopper,random_start=maybe", "random_start must be yes or no, got 'maybe'"),
    ],
)
def test_wrong_names_are_refused_in_one_line_that_says_why(name, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        tasks.check(name)
    assert f"task '{name}'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_name_is_refused_on_the_command_line_without_loading_jax():
    done = program.watched("train", "brax:hopper,bakend=mjx")
    assert done.returncode == 2
    assert done.stderr.startswith("elites: task 'brax:hopper,bakend=mjx': unknown option 'bakend'.")
    assert len(done.stderr.splitlines()) == 1
    assert "jax" not in done.stdout


@pytest.mark.parametrize("family", [f for f in families.FAMILIES if f != "vectors"])
def test_a_missing_package_is_refused_with_the_command_that_installs_it(monkeypatch, family):
    monkeypatch.setattr(packages, "is_installed", lambda name: False)
    known = families.FAMILIES[family]
    name = "mjx:FILE.xml" if known.needs_file else known.example
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    message = f"needs the package {known.packages[0]}: pip install 'elites[{known.extra}]'"
    with pytest.raises(ValueError, match=re.escape(message)):
        tasks.check(name)


def test_a_subpackage_is_found_without_importing_anything():
    assert packages.is_installed("xml.sax")
    assert not packages.is_installed("xml.nothing")
    assert not packages.is_installed("no_such_package.part")
    assert "xml.nothing" not in sys.modules


def test_files_of_the_users_own_are_not_taken_for_a_simulator(tmp_path):
    folder = tmp_path / "brax:old"
    folder.mkdir()
    own = folder / "own.py"
    own.write_text("def paid(): ...")
    assert tasks.check(f"{own}:paid") == f"{own}:paid"


def test_bounds_that_a_run_has_recorded_need_not_be_given_again():
    saved = "brax:hopper,descriptor=mean_height,high=2,low=1"
    assert tasks.with_bounds_of(saved, "brax:hopper,descriptor=mean_height") == saved
    assert tasks.with_bounds_of(saved, "brax:hopper,low=1,descriptor=mean_height") == saved
    for other in (
        "brax:hopper,descriptor=mean_height,low=0",
        "brax:hopper,descriptor=mean_velocity",
        "brax:ant,descriptor=mean_height",
        "ant_omni",
    ):
        assert tasks.with_bounds_of(saved, other) == other


def test_the_option_descriptor_becomes_part_of_the_name():
    assert tasks.with_option("brax:ant,backend=mjx", "descriptor", "mean_height") == (
        "brax:ant,backend=mjx,descriptor=mean_height"
    )
    with pytest.raises(ValueError, match="descriptor is given twice"):
        tasks.with_option("brax:ant,descriptor=joint_range", "descriptor", "mean_height")
    with pytest.raises(ValueError, match="tasks of other simulators only"):
        tasks.with_option("ant_omni", "descriptor", "mean_height")


def test_a_study_takes_names_with_commas_and_keeps_recorded_bounds(tmp_path):
    file, place = tmp_path / "plan.toml", tmp_path / "study"
    place.mkdir()
    file.write_text(
        'tasks = ["brax:hopper,low=1,high=2,descriptor=mean_height", "point_omni"]\n'
        'algorithms = ["me"]\npreset = "smoke"\n'
    )
    plan = plans.read(str(file))
    full = "brax:hopper,descriptor=mean_height,high=2,low=1"
    assert plan.tasks == (full, "point_omni")
    study = studies.open_study(place, plan)
    assert [item.name for item in study.items()] == [
        "brax-hopper-mean_height-me-seeds-0-19", "point_omni-me-seeds-0-19",
    ]  # fmt: skip
    assert json.loads((place / studies.PLAN).read_text())["tasks"] == [full, "point_omni"]
    file.write_text(file.read_text().replace("low=1,high=2,", ""))
    studies.refuse_other(place, plans.read(str(file)))  # the same study: bounds are recorded
    file.write_text(file.read_text().replace("mean_height", "mean_velocity"))
    with pytest.raises(ValueError, match="holds another study"):
        studies.refuse_other(place, plans.read(str(file)))
