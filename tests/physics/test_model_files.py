"""Test body models: the error of a malformed one names the entry and the field."""

import json
import math

import numpy as np
import pytest

from elites import physics
from handmade import body, hinge, motor, sphere, world, xyz


def arm() -> dict:
    """Return a valid model: a box, a capsule that is attached to it, and the ground."""
    return world(
        body("parent", {"box": {"halfsize": xyz(0.2, 0.2, 0.1)}}),
        body("child", {"capsule": {"radius": 0.05, "length": 0.5}, "position": xyz(x=0.25)}),
        joints=[hinge(angle_limit=[{"min": -20.0, "max": 40.0}])],
        actuators=[motor()],
    )


def changed(path: str, value) -> dict:
    """Return the valid model with one entry replaced, or removed if the value is `...`."""
    data = arm()
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    node = data
    for key in parents:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return data


PARENT, CHILD, HINGE, MOTOR = "body 'parent'", "body 'child'", "joint 'hinge'", "actuator 'motor'"
CAPSULE, BOX = (CHILD, "collider 0", "capsule"), (PARENT, "collider 0", "box")

MALFORMED = [
    # path, value, what the message must name
    ("bodies", [], ("bodies",)),
    ("bodies", ..., ("bodies", "list")),
    ("bodies", {"parent": {}}, ("bodies", "list")),
    ("bodies/1", "child", ("body 1", "name")),
    ("bodies/1/name", ..., ("body 1", "name")),
    ("bodies/1/name", 3, ("body 1", "name")),
    ("bodies/1/name", "parent", (PARENT, "twice")),
    ("bodies/1/mass", ..., (CHILD, "mass", "None")),
    ("bodies/1/mass", 0, (CHILD, "mass", "greater than 0")),
    ("bodies/1/mass", -1.5, (CHILD, "mass", "-1.5")),
    ("bodies/1/mass", "heavy", (CHILD, "mass", "'heavy'")),
    ("bodies/1/mass", True, (CHILD, "mass", "True")),
    ("bodies/1/mass", math.nan, (CHILD, "mass", "number", "nan")),
    ("bodies/1/mass", math.inf, (CHILD, "mass", "number", "inf")),
    ("bodies/1/mass", 1e30, (CHILD, "mass", "below 1e+30")),
    ("bodies/1/mass", 10**400, (CHILD, "mass", "below 1e+30")),
    ("bodies/1/mass", 1e-31, (CHILD, "mass", "too small", "1e-31")),
    ("bodies/1/inertia", ..., (CHILD, "inertia", "greater than 0")),
    ("bodies/1/inertia", 1.0, (CHILD, "inertia", "object")),
    ("bodies/1/inertia/y", 0.0, (CHILD, "inertia", "y")),
    ("bodies/1/inertia/w", 1.0, (CHILD, "inertia", "'w'", "x y z")),
    ("bodies/1/weight", 1.0, (CHILD, "'weight'")),
    ("bodies/1/frozen", "yes", (CHILD, "frozen", "object")),
    ("bodies/1/frozen", {"axes": {}}, (CHILD, "frozen", "'axes'")),
    ("bodies/1/frozen", {"all": "no"}, (CHILD, "frozen", "all", "'no'")),
    ("bodies/2/frozen", {"all": True, "axes": {}}, ("'ground'", "frozen", "'axes'")),
    ("bodies/1/frozen", {"position": {"x": "1"}}, (CHILD, "frozen", "position", "x")),
    ("bodies/1/colliders", {}, (CHILD, "colliders", "list")),
    ("bodies/1/colliders/0", 7, (CHILD, "collider 0")),
    ("bodies/1/colliders/0/sphere", {"radius": 1.0}, (CHILD, "collider 0", "exactly one")),
    ("bodies/1/colliders/0/capsule", ..., (CHILD, "collider 0", "exactly one")),
    ("bodies/1/colliders/0/capsule", 0.5, (CHILD, "collider 0", "capsule", "object")),
    ("bodies/1/colliders/0/cylinder", {}, (CHILD, "collider 0", "'cylinder'")),
    ("bodies/1/colliders/0/position", [0, 0, 0], (CHILD, "collider 0", "position", "object")),
    ("bodies/1/colliders/0/rotation", {"x": None}, (CHILD, "collider 0", "rotation", "x")),
    ("bodies/1/colliders/0/capsule/radius", ..., (*CAPSULE, "radius")),
    ("bodies/1/colliders/0/capsule/radius", -0.1, (*CAPSULE, "radius", "-0.1")),
    ("bodies/1/colliders/0/capsule/length", 0.09, (*CAPSULE, "length", "0.09", "radius")),
    ("bodies/1/colliders/0/capsule/end", 2, (*CAPSULE, "end", "2")),
    ("bodies/1/colliders/0/capsule/end", True, (*CAPSULE, "end", "True")),
    ("bodies/1/colliders/0/capsule/end", "up", (*CAPSULE, "end", "'up'")),
    ("bodies/1/colliders/0/capsule/width", 2, (*CAPSULE, "'width'", "radius length end")),
    ("bodies/0/colliders/0/box/halfsize", ..., (*BOX, "halfsize", "x")),
    ("bodies/0/colliders/0/box/halfsize/z", -1.0, (*BOX, "halfsize", "z", "-1.0")),
    ("bodies/0/colliders/0/material", 0.5, (PARENT, "collider 0", "material", "object")),
    ("bodies/0/colliders/0/material", {"friction": "ice"}, (PARENT, "material", "friction")),
    ("bodies/0/colliders/0/material", {"friction": -0.1}, (PARENT, "material", "friction", "-0.1")),
    ("bodies/0/colliders/0/material", {"elasticity": -1}, (PARENT, "material", "elasticity", "-1")),
    ("bodies/0/colliders/0/material", {"rubber": 1}, (PARENT, "material", "'rubber'")),
    ("bodies/2/colliders/0/position", xyz(z=1.0), ("'ground'", "plane", "position")),
    ("bodies/2/colliders/0/plane", {"height": 1.0}, ("'ground'", "plane", "'height'")),
    ("bodies/0/colliders/0", {"plane": {}}, (PARENT, "collider 0", "plane", "frozen")),
    ("joints", {}, ("joints", "list")),
    ("joints/0/name", ..., ("joint 0", "name")),
    ("joints/0/parent", ..., (HINGE, "parent", "None", "parent, child")),
    ("joints/0/parent", "torso", (HINGE, "parent", "'torso'", "parent, child")),
    ("joints/0/child", "ground", (HINGE, "child", "'ground'")),
    ("joints/0/child", ["child"], (HINGE, "child", "['child']")),
    ("joints/0/child", "parent", (HINGE, "loop")),
    ("joints/0/stiffness", ..., (HINGE, "stiffness")),
    ("joints/0/stiffness", 0, (HINGE, "stiffness", "greater than 0")),
    ("joints/0/spring_damping", "soft", (HINGE, "spring_damping")),
    ("joints/0/limit_strength", None, (HINGE, "limit_strength")),
    ("joints/0/angular_damping", [], (HINGE, "angular_damping")),
    ("joints/0/rotation", 90.0, (HINGE, "rotation", "object")),
    ("joints/0/reference_rotation", {"q": 1}, (HINGE, "reference_rotation", "'q'")),
    ("joints/0/parent_offset", {"x": "0.1"}, (HINGE, "parent_offset", "x")),
    ("joints/0/angle_limit", ..., (HINGE, "angle_limit", "list")),
    ("joints/0/angle_limit", [], (HINGE, "angle_limit", "0")),
    ("joints/0/angle_limit", [{}, {}], (HINGE, "angle_limit", "2")),
    ("joints/0/angle_limit/0", {"min": 5.0, "max": -5.0}, (HINGE, "angle_limit", "5.0", "-5.0")),
    ("joints/0/angle_limit/0/low", 1.0, (HINGE, "angle_limit", "'low'")),
    ("joints/0/motor", 1.0, (HINGE, "'motor'")),
    ("actuators", ..., ("actuators", "list")),
    ("actuators/0/name", ..., ("actuator 0", "name")),
    ("actuators/0/joint", "knee", (MOTOR, "joint", "'knee'", "hinge")),
    ("actuators/0/joint", {}, (MOTOR, "joint", "{}")),
    ("actuators/0/strength", ..., (MOTOR, "strength")),
    ("actuators/0/gear", 2, (MOTOR, "'gear'")),
    ("collide_include/0", ["parent", "ground"], ("collide_include 0",)),
    ("collide_include/0/first", "wheel", ("collide_include 0", "'wheel'", "parent, child, ground")),
    ("collide_include/1/second", ..., ("collide_include 1", "None")),
    ("collide_include/1/second", ["ground"], ("collide_include 1", "['ground']")),
    ("collide_include/0/second", "child", ("collide_include 0", "'parent'", "'child'", "move")),
    ("collide_include/0/third", "x", ("collide_include 0", "'third'")),
    ("dt", ..., ("dt",)),
    ("dt", 0, ("dt", "greater than 0")),
    ("substeps", ..., ("substeps", "None")),
    ("substeps", 0, ("substeps", "at least 1")),
    ("substeps", 2.5, ("substeps", "2.5")),
    ("substeps", True, ("substeps", "True")),
    ("gravity", -9.8, ("gravity", "object")),
    ("gravity", {"up": -9.8}, ("gravity", "'up'")),
    ("velocity_damping", "none", ("velocity_damping",)),
    ("angular_damping", None, ("angular_damping",)),
    ("baumgarte_erp", math.nan, ("baumgarte_erp",)),
    ("colour", "red", ("'colour'", "bodies joints")),
    ("defaults", {}, ("defaults", "list")),
    ("defaults", [{"angle": []}], ("defaults", "'angle'")),
    ("defaults", [{"angles": [{"name": "knee"}]}], ("defaults", "name", "'knee'", "hinge")),
    ("defaults", [{"angles": [{"name": "hinge", "angle": 3}]}], ("defaults", "angle", "object")),
    ("defaults", [{"angles": [{"name": "hinge", "degrees": 3}]}], ("defaults", "'degrees'")),
    ("defaults", [{"qps": [{"name": "ground"}]}], ("defaults", "name", "'ground'")),
    ("defaults", [{"qps": [{"name": "child", "pos": 1.0}]}], ("defaults", "pos", "object")),
    ("defaults", [{"qps": [{"name": "child", "place": {}}]}], ("defaults", "'place'")),
    ("defaults", [{"qps": ["child"]}], ("defaults",)),
]


@pytest.mark.parametrize(
    ("path", "value", "named"), MALFORMED, ids=[f"{p}={v!r:.30}" for p, v, _ in MALFORMED]
)
def test_a_malformed_model_is_refused(path, value, named):
    with pytest.raises(physics.ModelError) as refusal:
        physics.build(changed(path, value), "robot")
    message = str(refusal.value)
    assert message.startswith("robot")
    for part in named:
        assert part in message


def test_the_sound_model_is_accepted():
    model = physics.build(arm(), "robot")
    assert model.bodies == ("parent", "child")
    assert model.action_size == 1


def test_two_joints_may_not_hold_one_body():
    data = arm()
    data["joints"].append(hinge(name="second"))
    with pytest.raises(
        physics.ModelError, match=r"joint 'hinge': body 'child' is the child of two joints"
    ):
        physics.build(data)


def test_joints_of_one_name_are_refused():
    data = arm()
    data["joints"].append(hinge())
    with pytest.raises(physics.ModelError, match=r"joint 'hinge': the name is used twice"):
        physics.build(data)


def test_a_ring_of_joints_is_refused():
    joints = [
        hinge(name=f"{a}-{b}", parent=a, child=b) for a, b in (("a", "b"), ("b", "c"), ("c", "a"))
    ]
    with pytest.raises(physics.ModelError, match=r"joint '\w-\w' closes a loop"):
        physics.build(world(*(body(name) for name in "abc"), joints=joints))


def test_two_motors_on_one_joint_are_refused():
    data = arm()
    data["actuators"].append({**motor(), "name": "second"})
    with pytest.raises(physics.ModelError, match="two actuators drive the same joint"):
        physics.build(data)


def test_a_model_in_which_nothing_moves_is_refused():
    with pytest.raises(physics.ModelError, match="nothing can move"):
        physics.build(world())


def test_a_box_against_a_wall_is_refused():
    data = arm()
    data["bodies"][2]["colliders"] = [sphere(1.0)]
    with pytest.raises(physics.ModelError, match="a box of 'parent' against a sphere of 'ground'"):
        physics.build(data)


@pytest.mark.parametrize("content", [b"", b"{", b'{"bodies": [}', b"[1, 2", b'{"\xff": 1}'])
def test_a_file_that_is_not_json_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "robot.json"
    path.write_bytes(content)
    with pytest.raises(
        physics.ModelError, match=r"robot\.json: damaged: (not valid JSON|byte 2 is not UTF-8)"
    ):
        physics.load(path)


@pytest.mark.parametrize("value", [[], 3, "robot", None])
def test_a_file_that_holds_no_object_is_refused(tmp_path, value):
    path = tmp_path / "robot.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(physics.ModelError, match="robot: expected an object"):
        physics.load(path)


# ------------------------------------------------------------------------------------ the pose


def test_a_tree_stands_on_its_lowest_collider():
    """At the middle of its limits, the tip of the capsule is lower than the box."""
    data = changed("joints/0", hinge(rotation=xyz(z=90.0), angle_limit=[{"min": 0.0, "max": 60.0}]))
    data["bodies"][1]["colliders"][0]["rotation"] = xyz(y=90.0)
    rest = physics.build(data).rest
    # The hinge is y; 30 degrees about it point the capsule (from 0 to 0.5 along x) downwards.
    tip = -0.45 * math.sin(math.radians(30.0)) - 0.05
    np.testing.assert_allclose(rest[0:3], [[0, 0], [0, 0], [-tip, -tip]], atol=1e-6)
    half = math.radians(15.0)
    np.testing.assert_allclose(rest[3:7, 1], [math.cos(half), 0, math.sin(half), 0], atol=1e-6)
    np.testing.assert_allclose(rest[3:7, 0], [1, 0, 0, 0])
    assert not rest[7:].any()


def test_defaults_set_angles_and_places():
    data = arm()
    data["joints"][0].update(parent_offset=xyz(y=0.3), child_offset=xyz(y=-0.1))
    data["defaults"] = [
        {
            "angles": [{"name": "hinge", "angle": {"x": 40.0}}],
            "qps": [{"name": "parent", "pos": xyz(1.0, 2.0, 3.0), "rot": xyz(z=90.0)}],
        }
    ]
    rest = physics.build(data).rest
    np.testing.assert_allclose(rest[0:3, 0], [1, 2, 3])  # a given position is not changed
    # The hinge lies at x = 1 - 0.3 (y turned to -x), and along y; the child is 0.1 beyond it.
    bent = math.radians(40.0)
    child = [1 - 0.3 - 0.1 * math.cos(bent), 2.0, 3.0 + 0.1 * math.sin(bent)]
    np.testing.assert_allclose(rest[0:3, 1], child, atol=1e-6)


@pytest.mark.parametrize("end", [-1, 0, 1])
def test_a_capsule_is_set_down_whole_even_if_one_end_touches(end):
    post = {"capsule": {"radius": 0.1, "length": 1.0, "end": end}}
    model = physics.build(world(body("post", post)))
    np.testing.assert_allclose(model.rest[2], [0.5], atol=1e-7)
    assert model.ground is not None
    ends = model.ground.offset.z.ravel()
    np.testing.assert_allclose(np.sort(ends), sorted([-0.4, 0.4] if end == 0 else [0.4 * end]))


def test_trees_are_set_down_one_by_one():
    far = sphere(0.2)
    data = world(body("a", sphere(0.1)), body("b", far), body("c"))
    np.testing.assert_allclose(physics.build(data).rest[2], [0.1, 0.2, 0.0], atol=1e-7)


def test_shapes_for_drawing_are_all_colliders():
    shapes = physics.build(arm()).shapes
    assert [(s.body, s.kind) for s in shapes] == [(0, "box"), (1, "capsule"), (None, "plane")]
    assert shapes[1].size == (0.05, 0.5)
    assert shapes[1].position == (0.25, 0.0, 0.0)
    np.testing.assert_allclose(shapes[1].rotation, [1, 0, 0, 0])


def test_frozen_bodies_have_no_state_and_colliding_them_is_no_contact():
    data = arm()
    data["bodies"].append({**data["bodies"][2], "name": "second ground"})
    data["collide_include"].append({"first": "ground", "second": "second ground"})
    model = physics.build(data)
    assert model.bodies == ("parent", "child")
    assert model.rest.shape == (13, 2)
    assert model.ground is not None
    assert model.ground.kind.tolist() == [1] * 8 + [0] * 2


def test_models_are_told_apart_by_identity():
    """A model is a constant of compiled code, so it is hashed by identity."""
    first, second = physics.build(arm()), physics.build(arm())
    assert hash(first) == hash(first)
    assert first == first
    assert first != second
