"""Test the films of robots, and the files that they are written to."""

from __future__ import annotations

import functools
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from elites import tasks
from elites.files import RunError
from elites.physics import Shape
from elites.rendering import film, movie, shapes
from elites.rendering.film import Film, Take
from elites.rendering.helpers import Team
from elites.tasks.axes import make_axes
from elites.tasks.scenes import Scene, scene_of
from elites.viewer import filming

SIZE = (96, 72)


def ball(camera="follow") -> Scene:
    plane = Shape(None, "plane", (0, 0, 0), (1, 0, 0, 0), ())
    body = Shape(0, "sphere", (0, 0, 0), (1, 0, 0, 0), (0.5,))
    return Scene(("ball",), (plane, body), 0.05, lambda state: state, camera)


def rolling(scene: Scene, direction=(1.0, 0.0), frames=10, title="") -> Take:
    """Return a ball that rolls two metres."""
    poses = np.zeros((frames, 1, 7))
    poses[:, 0, :2] = np.linspace(0, 2, frames)[:, None] * np.array(direction)
    poses[:, 0, 2:4] = 0.5, 1.0
    return Take(title, poses, shapes.body_colours(scene))


def blue(picture: np.ndarray) -> np.ndarray:
    """Return the places [n, 2] of the pixels that show the trunk."""
    high = picture.astype(int)
    return np.argwhere((high[..., 2] > high[..., 0] + 60) & (high[..., 2] > 90))[:, ::-1]


def test_a_robot_that_is_followed_stays_in_the_middle():
    scene = ball()
    setting = shapes.setting(scene)
    pictures = list(film.following(setting, rolling(scene), range(10), SIZE))
    middles = np.array([blue(picture).mean(0) for picture in pictures])
    assert len(pictures) == 10
    assert np.abs(middles - np.array(SIZE) / 2).max() < 16
    assert all(picture.dtype == np.uint8 for picture in pictures)
    assert (pictures[0] != pictures[-1]).any()  # the floor has moved


@pytest.mark.parametrize("camera", ["follow", "fixed"])
def test_the_title_says_how_a_robot_ended_once_it_has(camera):
    scene = ball(camera)
    take = rolling(scene, title="a robot")

    def pictures(ending: str) -> list[np.ndarray]:
        told = take._replace(ending=ending)
        return list(film.following(shapes.setting(scene), told, range(11), (240, 72)))

    pairs = list(zip(pictures("fell at step 9"), pictures(""), strict=True))
    changed = [int((told != untold).any(-1).sum()) for told, untold in pairs]
    assert changed[:9] == [0] * 9  # frame 9 is the last pose, which is kept
    assert changed[9] == changed[10] > 100


def test_the_default_film_shows_a_robot_that_moves():
    """The fittest elite of a task whose descriptor is a place may stand still."""
    still, away, near = (
        SimpleNamespace(fitness=fitness, descriptor=np.array(place))
        for fitness, place in [(9.0, (0.0, 1.0)), (5.0, (-8.0, 3.0)), (7.0, (2.0, 2.0))]
    )
    place = SimpleNamespace(descriptor_axes=make_axes(2, ("x", "y"), ("m", "m")))
    share = SimpleNamespace(descriptor_axes=make_axes(2, ("left", "right"), ("s", "s")))

    class Archive(list):
        def best(self):
            return max(self, key=lambda elite: elite.fitness)

    elites = Archive([near, still, away])
    assert filming.default_elite(place, elites) is away
    assert filming.default_elite(share, elites) is still


def test_a_robot_that_jumps_stays_in_the_picture():
    scene = ball()
    take = rolling(scene)
    take.poses[:, :, 2] += np.linspace(0.0, 2.0, len(take.poses))[:, None]
    for picture in film.following(shapes.setting(scene), take, range(10), SIZE):
        assert blue(picture)[:, 1].min() > 0  # its top; the path on the floor may leave the picture


@pytest.mark.parametrize(
    ("panels", "columns"), [(2, 2), (3, 3), (4, 2), (9, 3), (10, 5), (16, 4), (30, 6)]
)
def test_panels_leave_few_places_empty(panels, columns):
    assert filming._columns(panels) == columns


def test_robots_in_one_world_move_apart():
    scene = ball()
    takes = [rolling(scene, direction) for direction in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    pictures = list(film.together(shapes.setting(scene), takes, range(10), SIZE))
    spread = [np.ptp(blue(picture), axis=0) for picture in (pictures[0], pictures[-1])]
    assert (spread[1] > 1.5 * spread[0]).all()
    assert (spread[1] < SIZE).all()


def test_a_robot_that_has_fallen_keeps_its_last_pose():
    scene = ball("fixed")
    takes = [rolling(scene, (0, 1), 4), rolling(scene, (1, 0), 10)]
    pictures = list(film.together(shapes.setting(scene), takes, range(10), SIZE))
    assert len(pictures) == 10
    assert (pictures[5] != pictures[9]).any()


def test_panels_show_each_robot_with_its_title():
    scene = ball()
    takes = [rolling(scene, (1, 0), title="one"), rolling(scene, (0, 1)), rolling(scene)]
    sheet = next(film.side_by_side(shapes.setting(scene), takes, [0], SIZE, 2))
    assert sheet.shape == (144, 192, 3)
    panels = [sheet[:72, :96], sheet[:72, 96:], sheet[72:, :96]]
    assert all(len(blue(panel)) > 100 for panel in panels)
    assert (sheet[72:, 96:] == 255).all()
    corner = [panel[:12, :40].astype(int).min() for panel in panels]
    assert corner[0] < 120 < corner[1]  # ink of the title


@pytest.mark.parametrize(
    ("name", "limbs"),
    [("walker_uni", [0, 1, 1, 1, 2, 2, 2]), ("ant_omni", [0, 1, 1, 2, 2, 3, 3, 4, 4])],
)
def test_limbs_and_feet_have_colours_of_their_own(name, limbs):
    scene = scene_of(tasks.make(name))
    assert scene.limbs() == limbs
    colours = shapes.body_colours(scene)
    assert len(np.unique(colours[np.array(scene.limb_ends())], axis=0)) == max(limbs)
    foot = scene.limb_ends().index(True)
    assert (colours[foot] < colours[foot - 1]).any()


def test_a_limb_begins_where_a_body_carries_several():
    names = ("torso", "waist", "pelvis", "left", "right", "arm")
    scene = Scene(names, (), 0.1, lambda s: s, parents=(None, 0, 1, 2, 2, 0))
    assert scene.limbs() == [0, 1, 1, 2, 3, 4]
    assert scene.limb_ends() == [False, False, False, True, True, True]


def make(layout="following", count=6) -> Film:
    """Return a film of a ball, or of four."""
    scene = ball()
    setting = shapes.setting(scene)
    takes = [rolling(scene, d, count) for d in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    draw = {
        "following": functools.partial(film.following, setting, takes[0], size=SIZE),
        "together": functools.partial(film.together, setting, takes, size=SIZE),
        "side by side": functools.partial(film.side_by_side, setting, takes, size=SIZE, columns=2),
    }
    return Film(draw[layout], range(count), 0.05)


@pytest.mark.parametrize("layout", ["following", "together", "side by side"])
def test_a_part_of_a_film_has_the_pictures_of_the_whole(layout):
    made = make(layout)
    parts = [*made.pictures(0, 2), *made.pictures(2, 5), *made.pictures(5)]
    np.testing.assert_array_equal(parts, list(made.pictures()))


@pytest.mark.parametrize("helpers", [0, 1])
def test_a_gif_has_the_pictures_and_their_time(tmp_path, helpers):
    path, made = tmp_path / "film.gif", make()
    with Team(helpers) as team:
        assert movie.write(path, made, team) == path.stat().st_size
    with Image.open(path) as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (6, SIZE, 50)
        assert image.info["loop"] == 0  # for ever
        for i, frame in enumerate(made.pictures()):
            image.seek(i)
            error = np.abs(np.asarray(image.convert("RGB")).astype(int) - frame)
            assert error.mean() < 4
            assert error.max() < 90  # at the edges, whose mixed colours are rounded


@pytest.mark.parametrize("layout", ["following", "together", "side by side"])
def test_helpers_draw_what_one_process_draws(layout):
    made = make(layout)
    with Team(0) as alone, Team(2) as team:
        assert movie.gif(made, team) == movie.gif(made, alone)


def blinking(frames, skipped):
    """Draw pictures of two colours. Every second one is that before it."""
    colours = [0, 0, 200, 200, 0]
    return (np.full((4, 5, 3), colours[i], np.uint8) for i in frames[skipped:])


def test_pictures_that_do_not_change_are_part_of_a_gif(tmp_path):
    with Team(0) as team:
        movie.write(tmp_path / "film.gif", Film(blinking, range(5), 0.1), team)
    with Image.open(tmp_path / "film.gif") as image:
        assert image.n_frames == 5
        seen = []
        for i in range(5):
            image.seek(i)
            seen.append(int(np.asarray(image.convert("RGB"))[2, 2, 0]))
    assert seen == [0, 0, 200, 200, 0]


def test_an_mp4_file_has_the_pictures(tmp_path):
    if movie._encoder() is None:
        pytest.skip("LEFT OUT: needs ffmpeg, elites[video]")
    path, made = tmp_path / "film.mp4", make()
    frames = list(made.pictures())

    def odd(numbers, skipped):
        return (frames[i][:, :95] for i in numbers[skipped:])

    with Team(0) as team:
        movie.write(path, made._replace(draw=odd), team)
    command = [movie._encoder(), "-loglevel", "error", "-i", path, "-f", "rawvideo"]
    raw = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    decoded = np.frombuffer(raw.stdout, np.uint8).reshape(-1, 72, 96, 3)
    assert len(decoded) == 6
    assert np.abs(decoded[3][:, :95].astype(int) - frames[3][:, :95]).mean() < 8


def test_a_failure_of_ffmpeg_is_told_and_leaves_no_file(tmp_path, monkeypatch):
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(movie, "_encoder", lambda: str(broken))
    with Team(0) as team, pytest.raises(RunError, match="ffmpeg failed: no such codec"):
        movie.write(tmp_path / "film.mp4", make(count=2), team)
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]


def test_without_ffmpeg_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(movie, "_encoder", lambda: None)
    with pytest.raises(ValueError, match=r"needs ffmpeg: .*elites\[video\]"):
        movie.check(tmp_path / "film.mp4")
