"""Film the behaviours of a run: choose policies, roll them out, and draw them.

choose -> Casting (who is shown)  ->  recordings (poses)  ->  pictures  ->  GIF or MP4 file
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from elites import references
from elites.rendering import film, shapes
from elites.rendering.film import Film, Take
from elites.runs import reducing
from elites.runs.directory import RunError
from elites.tasks.scenes import Scene, scene_of
from elites.tasks.task import Task
from elites.training import Elite, Elites, SeedResult
from elites.viewer.recording import Recording, RecordingRequest, actor_request, record

# Pixels of a film of one robot, of each of two, of each of more, and of robots in one world.
SIZE, HALF, PANEL, WORLD = (400, 300), (280, 210), (192, 144), (640, 480)
_RATE, _PANEL_RATE = 20, 10  # pictures a second, rounded to whole steps; fewer for many robots
_COLUMNS = 6  # most panels in a row
_HELD = 1.5  # seconds for which the last picture stays if a robot fell, so that its title is read

Layout = Literal["auto", "together", "panels"]


class Casting(NamedTuple):
    """Policies to film: for each, its title and the request to record its episode."""

    titles: list[str]
    requests: list[RecordingRequest]


def of_elite(elite: Elite) -> tuple[str, RecordingRequest]:
    """Return the title of an elite, and the request to record it."""
    return f"elite of cell {elite.cell}", _request(elite)


def of_actor(result: SeedResult, descriptor: ArrayLike) -> tuple[str, RecordingRequest]:
    """Return the title of a seed's actor at a descriptor, and the request to record it."""
    requested = np.asarray(descriptor, np.float32)
    request = actor_request(result, requested)
    if request is None:
        raise ValueError(
            f"{result.archive.algorithm.name} trains no policy that takes a descriptor. "
            "Render an elite instead"
        )
    asked = ", ".join(f"{v:.3g}" for v in requested)
    return f"actor, asked for {asked}", request


def _request(elite: Elite) -> RecordingRequest:
    """Return the request to record an elite."""
    return RecordingRequest(elite.network, elite.policy, np.asarray(elite.descriptor))


def cast(
    result: SeedResult,
    elites: Sequence[Elite],
    descriptor: Sequence[float] = (),
    with_elite: bool = True,
    actor: bool = False,
) -> Casting:
    """Return the policies to film for each of some elites: itself, the actor, or both.

    The actor is asked for the descriptor or, without one, for that of the elite.
    """
    casting = Casting([], [])
    for elite in elites:
        chosen = [of_elite(elite)] if with_elite else []
        chosen += [of_actor(result, descriptor or elite.descriptor)] if actor else []
        for title, request in chosen:
            casting.titles.append(title)
            casting.requests.append(request)
    return casting


def default_elite(task: Task, elites: Elites) -> Elite:
    """Return the elite that a film shows by default. Raises a ValueError if there are none.

    It is the one that ends farthest from the origin, if its descriptor is a place. There, the
    fittest elite often stands still, because moving costs energy. Otherwise it is the fittest.
    """
    fittest = elites.best()
    if [axis.unit for axis in task.descriptor_axes] != ["m", "m"]:
        return fittest
    return max(elites, key=lambda elite: float(np.linalg.norm(elite.descriptor)))


def spread(elites: Sequence[Elite], count: int) -> list[Elite]:
    """Return up to `count` elites that are far apart. The first is the fittest.

    See `reducing.spread`.
    """
    fitness = np.array([elite.fitness for elite in elites])
    descriptors = np.array([elite.descriptor for elite in elites])
    return [elites[i] for i in reducing.spread(fitness, descriptors, count)]


def of(
    task: Task,
    casting: Casting,
    layout: Layout = "auto",
    size: tuple[int, int] | None = None,
    speed: float = 1.0,
) -> Film:
    """Record policies and return a film of them, which has not been drawn yet.

    `size` is the width and height in pixels, of each panel if there are several. At `speed` 2, the
    film runs twice as fast as the robot.
    """
    scene = drawable(task)
    recordings = _recordings(task, casting)
    kind = layout if layout != "auto" else _layout(task, recordings)
    most = max(len(recording.poses) for recording in recordings if recording.poses is not None)
    rate = _RATE if len(recordings) < 3 else _PANEL_RATE
    every = max(round(speed / rate / scene.dt), 1)
    frames = [*range(0, most - 1, every), most - 1]
    seconds = every * scene.dt / speed
    if any(recording.ending for recording in recordings):
        frames += [most - 1] * round(_HELD / seconds)
    takes = _takes(scene, casting, recordings, kind)
    return Film(_draw(scene, takes, kind, size), frames, seconds, _summary(casting, recordings))


def drawable(task: Task) -> Scene:
    """Return the scene of a task. Raises a ValueError if there is nothing to draw."""
    scene = scene_of(task)
    if scene is None:
        raise ValueError(
            f"task '{task.name}' has nothing to draw: it has no body model and no scene"
        )
    return scene


def _recordings(task: Task, casting: Casting) -> list[Recording]:
    """Return the recordings of all policies. Raises a RunError if the rollout fails."""
    try:
        found = record(task, *casting.requests)
    except Exception as error:
        raise RunError(f"the rollout failed: {references.described(error)}") from error
    recordings = [recording for recording in found if recording is not None]
    if any(recording.poses is None for recording in recordings):
        raise RunError(f"task '{task.name}' reports no poses of its robot")
    return recordings


def _layout(task: Task, recordings: list[Recording]) -> Layout:
    """Return how to show robots: in one world if their descriptor says where in it they end."""
    is_place = task.descriptor_size == 2 and all(_ends_at_descriptor(r) for r in recordings)
    return "together" if len(recordings) > 2 and is_place else "panels"


def _ends_at_descriptor(recording: Recording) -> bool:
    """Return whether the descriptors of a recording follow the robot's first body."""
    if recording.path is None or recording.poses is None:
        return False
    places = recording.poses[:, 0, :2]
    inside = np.abs(places - recording.path).max(1)
    return bool(np.median(inside) < 0.05 + 0.01 * np.abs(places).max())


def _takes(scene: Scene, casting: Casting, recordings: list[Recording], kind: Layout) -> list[Take]:
    """Return the recordings with their titles and colours.

    Robots in one world have the colour of the direction in which they end.
    """
    takes = []
    for title, recording in zip(casting.titles, recordings, strict=True):
        assert recording.poses is not None
        if kind == "together" and len(recordings) > 1:
            x, y = recording.poses[-1, 0, :2] - recording.poses[0, 0, :2]
            colours = shapes.tinted(scene, float(np.arctan2(y, x) / (2 * np.pi)) % 1.0)
        else:
            colours = shapes.body_colours(scene)
        takes.append(Take(title, recording.poses, colours, _ending(recording)))
    return takes


def _ending(recording: Recording) -> str:
    """Return how and when an episode ended early, such as "fell at step 705", or ""."""
    return "" if recording.ending is None else f"{recording.ending} at step {recording.steps}"


def _summary(casting: Casting, recordings: list[Recording]) -> list[str]:
    """Return what each robot does as a line of text."""
    lines = []
    for title, recording in zip(casting.titles, recordings, strict=True):
        if not recording.valid:
            lines.append(f"{title}: the simulation diverged")
            continue
        facts = [
            f"fitness {recording.fitness:.4g}",
            f"reached {', '.join(f'{value:.3g}' for value in recording.reached)}",
            f"error {recording.error:.2g}",
            _ending(recording),
        ]
        lines.append(f"{title}: {', '.join(filter(None, facts))}")
    return lines


def _draw(
    scene: Scene, takes: list[Take], kind: Layout, size: tuple[int, int] | None
) -> Callable[..., Iterator[np.ndarray]]:
    """Return the function that draws frames of a film, see `Film.draw`."""
    setting = shapes.setting(scene)
    if kind == "together":
        return partial(film.together, setting, takes, size=size or WORLD)
    if len(takes) == 1:
        return partial(film.following, setting, takes[0], size=size or SIZE)
    default = HALF if len(takes) == 2 else PANEL
    columns = _columns(len(takes))
    return partial(film.side_by_side, setting, takes, size=size or default, columns=columns)


def _columns(panels: int) -> int:
    """Return the number of columns for some panels: a wide picture with few empty places."""
    if panels == 2:
        return 2
    least, most = math.ceil(math.sqrt(panels)), math.ceil(math.sqrt(1.7 * panels))
    choices = range(min(least, _COLUMNS), min(most, _COLUMNS) + 1)
    return min(choices, key=lambda columns: -panels % columns)
