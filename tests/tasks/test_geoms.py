"""Test that shapes and poses of MuJoCo models are where MuJoCo itself has them."""

import subprocess
import sys

import numpy as np
import pytest

import brax_models
from elites.tasks import geoms

mujoco = pytest.importorskip("mujoco", reason="LEFT OUT: needs mujoco, elites[mjx]")

EVERYTHING = """
<mujoco>
  <asset>
    <mesh name="wedge" vertex="0 0 0  2 0 0  0 1 0  0 0 3"/>
    <hfield name="hills" nrow="2" ncol="2" size="3 2 1 0.5" elevation="0 1 1 0"/>
    <material name="glass" rgba="1 1 1 0"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 0 1" pos="0 0 -0.25"/>
    <geom type="hfield" hfield="hills" pos="9 0 0"/>
    <body name="post" pos="1 2 3" euler="0 0 90">
      <body pos="0.5 0 0" euler="90 0 0"><geom type="box" size="1 2 3" pos="0 0 0.5"/></body>
    </body>
    <body name="target" mocap="true"><geom type="sphere" size="0.3"/></body>
    <body name="trunk" pos="0 0 1" euler="10 20 30">
      <freejoint/>
      <geom type="cylinder" size="0.2 0.4" pos="0.1 0 0" euler="0 90 0"/>
      <geom type="ellipsoid" size="0.1 0.2 0.3"/>
      <geom type="sphere" size="0.1" group="3"/>
      <geom type="sphere" size="0.1" rgba="1 0 0 0"/>
      <geom type="sphere" size="0.1" material="glass"/>
      <body><joint/><geom type="mesh" mesh="wedge" pos="0 1 0"/></body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def everything():
    return mujoco.MjModel.from_xml_string(EVERYTHING)


def posed(model, seed=3):
    """Return the data of a model in a random pose."""
    data = mujoco.MjData(model)
    noise = np.random.default_rng(seed).normal(size=model.nv)
    mujoco.mj_integratePos(model, data.qpos, noise, 0.3)
    mujoco.mj_forward(model, data)
    return data


def matrix(quaternion):
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, np.asarray(quaternion, float))
    return found.reshape(3, 3)


def placed(shape, poses):
    """Return the centre [3] and the rotation [3, 3] of a shape in the world."""
    if shape.body is None:
        return np.array(shape.position), matrix(shape.rotation)
    turn = matrix(poses[shape.body, 3:])
    return poses[shape.body, :3] + turn @ shape.position, turn @ matrix(shape.rotation)


def reach(shape):
    """Return the largest distance of a point of a shape from its centre."""
    size = np.array(shape.size)
    return {
        "sphere": lambda: size[0],
        "capsule": lambda: size[1] / 2,
        "cylinder": lambda: np.hypot(size[0], size[1] / 2),
        "ellipsoid": size.max,
        "box": lambda: np.linalg.norm(size),
        "plane": lambda: 0.0,  # MuJoCo's sign of an infinite one
        "mesh": lambda: np.abs(shape.mesh.vertices).max(),
    }[shape.kind]()


@pytest.mark.parametrize("name", brax_models.ROBOTS)
def test_shapes_of_brax_robots_are_where_mujoco_has_them(name):
    model = brax_models.load(name)
    data, found = posed(model), geoms.shapes(model)
    poses = geoms.poses_of(model, data)
    visible = [g for g in range(model.ngeom) if model.geom_rgba[g, 3] > 0]
    assert len(found) == len(visible)
    for geom, shape in zip(visible, found, strict=True):
        centre, turn = placed(shape, poses)
        np.testing.assert_allclose(centre, data.geom_xpos[geom], atol=1e-6)
        np.testing.assert_allclose(turn, data.geom_xmat[geom].reshape(3, 3), atol=1e-6)
        assert reach(shape) == pytest.approx(model.geom_rbound[geom], rel=1e-6)


def test_every_kind_of_geometry_has_its_extent(everything):
    found = geoms.shapes(everything)
    data = posed(everything)
    poses = geoms.poses_of(everything, data)
    kinds = ["plane", "box", "box", "sphere", "cylinder", "ellipsoid", "mesh"]
    assert [shape.kind for shape in found] == kinds  # without those that MuJoCo hides
    assert [shape.body for shape in found] == [None, None, None, 0, 1, 1, 2]
    plane, hills, post, target, cylinder, ellipsoid, mesh = found
    assert plane.position == (0.0, 0.0, -0.25)
    np.testing.assert_allclose(hills.position, (9, 0, 0.25))  # from -0.5 to 1 m high
    np.testing.assert_allclose(hills.size, (3, 2, 0.75))
    # Half a metre along the post's x, which is y of the world. Up is then the body's -z.
    np.testing.assert_allclose(post.position, (1.5, 2.5, 3), atol=1e-9)
    assert target.size == (0.3,)
    assert cylinder.size == pytest.approx((0.2, 0.8))
    assert ellipsoid.size == pytest.approx((0.1, 0.2, 0.3))
    geom = np.flatnonzero(everything.geom_bodyid == 2)[0]
    np.testing.assert_allclose(placed(post, poses)[1], data.geom_xmat[geom].reshape(3, 3))
    # The corners of the wedge, which the compiler of MuJoCo has moved to its centre and turned.
    centre, turn = placed(mesh, poses)
    own = poses[2]
    corners = (centre + mesh.mesh.vertices @ turn.T - own[:3]) @ matrix(own[3:])
    expected = [[0, 1, 0], [0, 1, 3], [0, 2, 0], [2, 1, 0]]  # the geometry is at y = 1
    np.testing.assert_allclose(sorted(np.round(corners, 5).tolist()), expected, atol=1e-5)
    assert mesh.mesh.faces.shape == (4, 3)


def test_moving_bodies_are_named_and_fixed_ones_are_scenery(everything):
    scene = geoms.scene(everything, 0.02, lambda state: state)
    assert scene.bodies == ("target", "trunk", "body 5")
    every = np.arange(5 * 7.0).reshape(5, 7)  # post, its child, target, trunk, child
    np.testing.assert_array_equal(scene.poses(every), every[2:])
    data = posed(everything)
    assert geoms.poses_of(everything, data).shape == (3, 7)
    written = scene.to_json()
    assert written["dt"] == 0.02
    assert len(written["shapes"][-1]["vertices"]) == 12
    assert len(written["shapes"][-1]["faces"]) == 12
    assert "vertices" not in written["shapes"][0]


def test_a_robot_whose_geometries_are_all_hidden_is_drawn_all_the_same():
    text = (
        "<mujoco><worldbody><geom type='plane' size='1 1 1'/><body><freejoint/>"
        "<geom type='sphere' size='0.5' group='3'/></body></worldbody></mujoco>"
    )
    model = mujoco.MjModel.from_xml_string(text)
    assert [shape.kind for shape in geoms.shapes(model)] == ["plane", "sphere"]


def test_meshes_with_too_many_vertices_become_boxes(everything, monkeypatch):
    monkeypatch.setattr(geoms, "_MOST_VERTICES", 3)
    data, box = posed(everything), geoms.shapes(everything)[-1]
    assert box.kind == "box"
    centre, turn = placed(box, geoms.poses_of(everything, data))
    geom = everything.ngeom - 1
    corners = everything.mesh_vert @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
    inside = np.abs((corners - centre) @ turn)
    assert (inside <= np.array(box.size) + 1e-5).all()
    np.testing.assert_allclose(inside.max(axis=0), box.size, atol=1e-5)


def test_a_worker_needs_neither_jax_nor_mujoco_for_poses():
    code = (
        "import sys; from elites.tasks import geoms\n"
        "assert 'jax' not in sys.modules and 'mujoco' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
