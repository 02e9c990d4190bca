"""Names and units of descriptor axes: defaults, checks, and reading them from saved facts."""

import dataclasses

import pytest

from elites import tasks
from elites.tasks.axes import axes_of_facts, make_axes


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("ant_omni", ["final x (m)", "final y (m)"]),
        ("anttrap_omni", ["final x (m)", "final y (m)"]),
        ("hexapod_omni", ["final x (m)", "final y (m)"]),
        (
            "walker_uni",
            ["right foot contact (share of time)", "left foot contact (share of time)"],
        ),
        ("point_omni", ["final x", "final y"]),
        ("arm_reach", ["hand x (arm lengths)", "hand y (arm lengths)"]),
    ],
)
def test_the_axes_of_the_tasks_have_names_and_units(name, labels):
    assert [axis.label for axis in tasks.make(name).descriptor_axes] == labels


def test_axes_without_names_are_numbered():
    assert [axis.label for axis in make_axes(1)] == ["descriptor"]
    assert [axis.label for axis in make_axes(2, units=("m", ""))] == [
        "descriptor 1 (m)",
        "descriptor 2",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"descriptor_names": ("x",)}, r"descriptor_names must be a tuple of 2 texts .* \('x',\)"),
        ({"descriptor_names": ("x", "y", "z")}, "descriptor_names must be a tuple of 2 texts"),
        ({"descriptor_names": "xy"}, "descriptor_names must be a tuple of 2 texts"),
        ({"descriptor_names": ["x", "y"]}, "descriptor_names must be a tuple of 2 texts"),
        ({"descriptor_names": ("x", 2)}, "descriptor_names must be a tuple of 2 texts"),
        (
            {"descriptor_names": ("x", "two\nlines")},
            "descriptor_names must be a tuple of 2 texts of one line",
        ),
        ({"descriptor_names": ("x", " ")}, "descriptor_names must not have an empty text"),
        ({"descriptor_units": ("m",)}, "descriptor_units must be a tuple of 2 texts"),
    ],
)
def test_wrong_names_and_units_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"task 'point_omni': {message}"):
        dataclasses.replace(tasks.make("point_omni"), **fields)


def test_names_may_contain_any_character():
    names = ("<b>x</b> & $y$", "\"quoted\" and 'quoted'")
    task = dataclasses.replace(tasks.make("point_omni"), descriptor_names=names)
    assert tuple(axis.name for axis in task.descriptor_axes) == names


@pytest.mark.parametrize(
    "names",
    [None, [], "xy", ["x"], ["x", 3], {"x": 1}, 7],
    ids=["missing", "empty", "text", "too few", "a number", "an object", "no list"],
)
def test_facts_without_usable_names_give_default_names(names):
    facts = {"descriptor_low": [0.0, 0.0]} | ({} if names is None else {"descriptor_names": names})
    assert [axis.name for axis in axes_of_facts(facts)] == ["descriptor 1", "descriptor 2"]


def test_names_and_units_are_read_from_facts():
    facts = {
        "descriptor_low": [0.0, 0.0],
        "descriptor_names": ["final x", "height"],
        "descriptor_units": ["m", ""],
    }
    assert [axis.label for axis in axes_of_facts(facts)] == ["final x (m)", "height"]
