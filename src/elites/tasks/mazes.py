"""Point-Maze and Ant-Maze: reach every position of a maze, and a goal that walls hide.

The reward is minus the distance to the goal. It is deceptive: the straight way to the goal ends at
a wall. The descriptor is the final position. Both tasks follow QDax, which made them for QD-PG
(Pierrot et al., 2022): walls, goal, reward and sizes. They differ in three points. Episodes start
in a fixed state. The point moves along x first and then along y, and stops at every side of a wall.
The ant's episode does not end when it falls, because every step costs, so falling early would
pay.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from elites import physics
from elites.physics import Shape
from elites.tasks.models import model_data
from elites.tasks.omni import motion, motion_layout
from elites.tasks.scenes import Scene
from elites.tasks.task import Array, Task, TaskState

# ------------------------------------------------------------------------------------------- point


class Wall(NamedTuple):
    """Rectangle that the point cannot enter: its lower left and its upper right corner."""

    low: tuple[float, float]
    high: tuple[float, float]


POINT_WALLS = (Wall((-0.5, -0.5), (1.1, -0.49)), Wall((-1.1, 0.2), (0.5, 0.21)))
"""Walls of `point_maze`, in a square from -1 to 1. The way to the goal is an S.

They end outside of the square, so that nothing passes between a wall and the border.
"""
POINT_START, POINT_GOAL, POINT_GOAL_SIDE = (0.0, -0.85), (-0.5, 0.8), 0.1
_POINT_SPEED = 0.1  # distance that the point moves in one step at a full action
_POINT_LENGTH = 200
_POINT_RADIUS = 0.04  # for drawing


@functools.cache
def point_maze() -> Task:
    """Return the task `point_maze`: a point in a square with two walls."""
    farthest = math.hypot(*(abs(c) + 1.0 for c in POINT_GOAL))  # from the goal, within the square

    def reset(key: Array) -> TaskState:
        del key  # the initial position is fixed
        return state_of(jnp.array(POINT_START), jnp.float32(0.0))

    def step(state: TaskState, action: Array) -> TaskState:
        place = _moved(state.inner, _POINT_SPEED * action)
        return state_of(place, -jnp.linalg.norm(place - jnp.array(POINT_GOAL)))

    def state_of(place: Array, reward: Array) -> TaskState:
        offset = jnp.abs(place - jnp.array(POINT_GOAL))
        return TaskState(place, place, reward, jnp.all(offset <= POINT_GOAL_SIDE / 2), place)

    return Task(
        name="point_maze",
        observation_size=2,
        action_size=2,
        episode_length=_POINT_LENGTH,
        descriptor_low=(-1.0, -1.0),
        descriptor_high=(1.0, 1.0),
        reset=reset,
        step=step,
        scene=_point_scene(),
        qd_offset=-farthest * _POINT_LENGTH,
        summary="A point that must reach every position of a maze, and a goal behind two walls",
        observation_layout=(("position x, y", 2),),
        observation_ranges=((0, -1.0, 1.0), (1, -1.0, 1.0)),
        reward_text=f"- distance to the goal at {POINT_GOAL}, at least -{farthest:.4g}",
        termination_text=f"at the goal, a square with sides of {POINT_GOAL_SIDE:g}",
        descriptor_text="final position x, y",
        descriptor_names=("final x", "final y"),
    )


def _moved(place: Array, move: Array) -> Array:
    """Return the place [2] of the point after a move [2], along x first and then along y."""
    x, y = place
    x = _slide(x, move[0], y, axis=0)
    y = _slide(y, move[1], x, axis=1)
    return jnp.stack([x, y])


def _slide(start: Array, move: Array, other: Array, axis: int) -> Array:
    """Return a coordinate of the point after a move along one axis.

    The point stops at the border of the square and at walls. `other` is its coordinate on the other
    axis.
    """
    end = jnp.clip(start + move, -1.0, 1.0)
    for wall in POINT_WALLS:
        low, high = wall.low[axis], wall.high[axis]
        across = (other > wall.low[1 - axis]) & (other < wall.high[1 - axis])
        end = jnp.where(across & (start <= low), jnp.minimum(end, low), end)
        end = jnp.where(across & (start >= high), jnp.maximum(end, high), end)
    return end


def _point_scene() -> Scene:
    """Return the scene of `point_maze`: the point, the walls, the border and the goal."""
    border = 0.01
    sides = [
        Wall((-1 - border, -1 - border), (1 + border, -1)),
        Wall((-1 - border, 1), (1 + border, 1 + border)),
        Wall((-1 - border, -1), (-1, 1)),
        Wall((1, -1), (1 + border, 1)),
    ]
    inside = [Wall(*np.clip(wall, -1.0, 1.0).tolist()) for wall in POINT_WALLS]
    boxes = [_box(wall.low, wall.high, 2 * _POINT_RADIUS) for wall in (*inside, *sides)]
    half = POINT_GOAL_SIDE / 2
    low, high = ((c - half for c in POINT_GOAL), (c + half for c in POINT_GOAL))
    goal = _box(tuple(low), tuple(high), 0.004)
    point = Shape(0, "sphere", (0.0, 0.0, 0.0), _STRAIGHT, (_POINT_RADIUS,))

    def poses(state: TaskState) -> Array:
        return jnp.concatenate([state.inner, jnp.array([_POINT_RADIUS, *_STRAIGHT])])[None]

    return Scene(("point",), (point, *boxes, goal), 0.05, poses, camera="fixed")


_STRAIGHT = (1.0, 0.0, 0.0, 0.0)


def _box(low: tuple[float, ...], high: tuple[float, ...], height: float) -> Shape:
    """Return a box on the ground with these corners."""
    x, y = ((a + b) / 2 for a, b in zip(low, high, strict=True))
    half = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    return Shape(None, "box", (x, y, height / 2), _STRAIGHT, (*half, height / 2))


# --------------------------------------------------------------------------------------------- ant


class Capsule(NamedTuple):
    """Wall of `ant_maze`, a capsule on the ground: its middle, its length and its direction."""

    x: float
    y: float
    length: float  # from tip to tip, in m
    along: str  # "x" or "y"


ANT_WALLS = (
    Capsule(17.5, -5.0, 46.0, "x"),
    Capsule(17.5, 40.0, 46.0, "x"),
    Capsule(-5.0, 17.5, 44.0, "y"),
    Capsule(40.0, 17.5, 44.0, "y"),
    Capsule(20.0, 7.5, 24.0, "y"),
    Capsule(15.0, 7.5, 9.0, "x"),
    Capsule(10.0, 30.0, 19.5, "y"),
)
"""Walls of `ant_maze`: the four sides of a square from -5 to 40 m, and three inside."""
ANT_WALL_RADIUS, ANT_GOAL = 0.5, (35.0, 0.0)
_ANT_LOW, _ANT_HIGH = -5.0, 40.0  # descriptors lie in this range in x and y
_ANT_LENGTH = 1000
_COLLIDING = ("$ Torso", "$ Body 4", "$ Body 7", "$ Body 10", "$ Body 13")


@functools.cache
def ant_maze() -> Task:
    """Return the task `ant_maze`: the robot of `ant_omni` in a maze of 45 by 45 m."""
    model = _ant_model()
    middle, half = (_ANT_LOW + _ANT_HIGH) / 2, (_ANT_HIGH - _ANT_LOW) / 2
    farthest = math.hypot(*(max(c - _ANT_LOW, _ANT_HIGH - c) for c in ANT_GOAL))
    layout = (
        (f"torso x, y, clipped to the bounds, minus {middle:g} m, over {half:g} m", 2),
        ("torso z in m", 1),
        ("torso quaternion w, x, y, z", 4),
        *motion_layout(model),
    )

    def reset(key: Array) -> TaskState:
        del key  # the initial pose is fixed
        bodies, sensors = physics.reset(model)
        return state_of(bodies, sensors, jnp.float32(0.0))

    def step(state: TaskState, action: Array) -> TaskState:
        bodies, sensors = physics.step(model, state.inner, action)
        return state_of(bodies, sensors, -jnp.linalg.norm(bodies[:2, 0] - jnp.array(ANT_GOAL)))

    def state_of(bodies: Array, sensors: physics.Sensors, reward: Array) -> TaskState:
        torso = physics.unpack(bodies[:, 0])
        place = jnp.stack(torso.pos[:2])
        seen = (jnp.clip(place, _ANT_LOW, _ANT_HIGH) - middle) / half
        posture = jnp.stack([torso.pos.z, *torso.rot])
        observation = jnp.concatenate([seen, posture, *motion(torso, sensors)])
        return TaskState(bodies, observation, reward, jnp.bool_(False), place)

    return Task(
        name="ant_maze",
        observation_size=sum(size for _, size in layout),
        action_size=model.action_size,
        episode_length=_ANT_LENGTH,
        descriptor_low=(_ANT_LOW, _ANT_LOW),
        descriptor_high=(_ANT_HIGH, _ANT_HIGH),
        reset=reset,
        step=step,
        body_model=model,
        bodies=lambda state: state.inner,
        summary="The ant in a maze, with a goal that walls hide",
        observation_layout=layout,
        observation_ranges=((0, -1.0, 1.0), (1, -1.0, 1.0)),
        qd_offset=-farthest * _ANT_LENGTH,
        reward_text=f"- distance of the torso to the goal at {ANT_GOAL} in m",
        descriptor_text="final torso x, y in m",
        descriptor_names=("final x", "final y"),
        descriptor_units=("m", "m"),
    )


def _ant_model() -> physics.Model:
    """Return the body model of the ant with the walls of the maze and a mark at the goal."""
    data = model_data("ant")
    material = {"friction": 1.0}
    walls = [
        {
            "position": {"x": wall.x, "y": wall.y, "z": ANT_WALL_RADIUS},
            "rotation": {"y": 90.0} if wall.along == "x" else {"x": 90.0},
            "capsule": {"radius": ANT_WALL_RADIUS, "length": wall.length},
            "material": material,
        }
        for wall in ANT_WALLS
    ]
    x, y = ANT_GOAL
    goal = {"position": {"x": x, "y": y, "z": 0.5}, "sphere": {"radius": 0.5}}
    data["bodies"] += [
        {"name": "Maze", "frozen": {"all": True}, "colliders": walls},
        {"name": "Goal", "frozen": {"all": True}, "colliders": [goal]},  # collides with nothing
    ]
    data["collide_include"] += [{"first": body, "second": "Maze"} for body in _COLLIDING]
    return physics.build(data, "ant_maze")
