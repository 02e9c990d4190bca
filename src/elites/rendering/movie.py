"""Write pictures as a GIF or MP4 file."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np

from elites import packages
from elites.files import RunError
from elites.rendering.film import Film
from elites.rendering.helpers import Team
from elites.writing import replacing

SUFFIXES = (".gif", ".mp4")
_BITS = 8  # of a pixel of a GIF; more do not look better on flat colours, but need more bytes
_SAME = 2**_BITS - 1  # number in place of a colour: the pixel of the picture before stays
_SAMPLES = 8  # pictures from which the colours of a GIF are chosen


def check(path: Path, replace: bool = False) -> None:
    """Raise a ValueError if a film cannot be written to a file of this name.

    `replace` allows a file that exists.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: the name of a film ends with .gif or .mp4")
    if path.exists() and not replace:
        raise ValueError(f"{path} exists already. Choose another name")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such directory to write {path.name} to")
    if not is_gif(path) and _encoder() is None:
        raise ValueError(
            "an MP4 file needs ffmpeg: install it, or pip install 'elites[video]'. "
            "A GIF needs neither"
        )


def is_gif(path: Path) -> bool:
    """Return whether a film of this name is a GIF. Otherwise it is an MP4 file."""
    return path.suffix.lower() == ".gif"


def write(path: Path, film: Film, team: Team) -> int:
    """Draw a film, write it to a file, and return the size of the file in bytes.

    The suffix of the file, .gif or .mp4, chooses the format.
    """
    with replacing(path) as temporary:
        if is_gif(path):
            temporary.write_bytes(gif(film, team))
        else:
            _write_mp4(temporary, film.pictures(), film.seconds)
    return path.stat().st_size


# --------------------------------------------------------------------------------------------- GIF


def gif(film: Film, team: Team) -> bytes:
    """Draw a film and return it as a GIF that repeats for ever.

    All pictures share one table of colours. Each process of the team draws a part of the film.
    """
    count = len(film.frames)
    some = film._replace(frames=film.frames[:: max(count // _SAMPLES, 1)])
    height, width, _ = (pictures := list(some.pictures()))[0].shape
    samples = np.concatenate([picture[::3, ::3] for picture in pictures])
    colours = _palette(samples)
    table = _nearest(colours, samples)
    ends = [count * (i + 1) // team.size for i in range(team.size)]
    jobs = [(film, table, start, end) for start, end in pairwise([0, *ends])]
    return b"".join(
        [
            b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80 | _BITS - 1, 0, 0),
            colours.tobytes(),
            b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0",  # repeat for ever
            *team.map(_gif_pictures, jobs),
            b";",
        ]
    )


def _gif_pictures(film: Film, table: np.ndarray, start: int, stop: int) -> bytes:
    """Return some pictures of a film in the format of a GIF, given the table of `_nearest`.

    A picture has the rectangle that differs from the picture before. Pixels that do not differ are
    transparent there, because long runs of one number take few bytes.
    """
    # The time of a picture is a multiple of 10 ms, and browsers slow down below 20 ms.
    hundredths = max(round(film.seconds * 100), 2)
    parts, before = [], None
    first = max(start - 1, 0)
    for number, picture in enumerate(film.pictures(first, stop), first):
        numbers = table.take(_shortened(picture))
        changed = numbers if before is None else np.where(numbers == before, _SAME, numbers)
        if number >= start:
            parts.append(_gif_picture(changed, hundredths))
        before = numbers
    return b"".join(parts)


def _gif_picture(numbers: np.ndarray, hundredths: int) -> bytes:
    """Return the bytes of one picture of a GIF, which is shown for hundredths of a second.

    `numbers` [height, width] are those of its colours, with `_SAME` where nothing changes.
    """
    from PIL import Image

    changed = numbers != _SAME
    rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
    top, bottom = (rows[0], rows[-1] + 1) if len(rows) else (0, 1)
    left, right = (columns[0], columns[-1] + 1) if len(columns) else (0, 1)
    part = Image.fromarray(np.ascontiguousarray(numbers[top:bottom, left:right]), "P")
    return b"".join(
        [
            b"\x21\xf9\x04" + struct.pack("<BHBB", 0b101, hundredths, _SAME, 0),
            b"," + struct.pack("<HHHHB", left, top, right - left, bottom - top, 0),
            bytes([_BITS]) + part.tobytes("gif", "P", _BITS, 0) + b"\0",
        ]
    )


def _palette(samples: np.ndarray) -> np.ndarray:
    """Return the colours [2 ** _BITS, 3] that suit a picture best. The last stands for `_SAME`."""
    from PIL import Image

    found = Image.fromarray(samples).quantize(_SAME, dither=Image.Dither.NONE).getpalette() or []
    colours = np.array(found, np.uint8).reshape(-1, 3)[:_SAME]
    return np.pad(colours, ((0, 2**_BITS - len(colours)), (0, 0)), "edge")


def _nearest(colours: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return the number of the nearest of some colours [n, 3] for each colour of 15 bits.

    A colour of 15 bits stands for 512 others: for the mean of those that occur in a picture or, if
    none does, for the middle one. The last of the colours stands for `_SAME` and is left out.
    """
    place = _shortened(samples).reshape(-1)
    counts = np.bincount(place, minlength=2**15)
    middles = np.stack(np.unravel_index(np.arange(2**15), (32, 32, 32)), 1) * 8.0 + 4
    sums = [np.bincount(place, plane.reshape(-1), 2**15) for plane in np.moveaxis(samples, -1, 0)]
    means = np.stack(sums, 1) / np.maximum(counts, 1)[:, None]
    every = np.where(counts[:, None] > 0, means, middles).astype(np.float32)
    known = colours[:-1].astype(np.float32)
    squared = (known**2).sum(1) - 2 * every @ known.T
    return squared.argmin(1).astype(np.uint8)


def _shortened(picture: np.ndarray) -> np.ndarray:
    """Return the colours of a picture [height, width, 3] in 15 bits, as numbers [height, width]."""
    red, green, blue = np.moveaxis(picture >> 3, -1, 0)
    found = red.astype(np.int16)
    for plane in (green, blue):
        found <<= 5
        found |= plane
    return found


# --------------------------------------------------------------------------------------------- MP4


def _write_mp4(path: Path, pictures: Iterable[np.ndarray], seconds: float) -> None:
    """Write an MP4 file (H.264) with ffmpeg. Raises a RunError with its message if it fails."""
    encoder, process = _encoder(), None
    with tempfile.TemporaryFile() as errors:
        for picture in pictures:
            height, width, _ = picture.shape
            if process is None:
                command = [
                    str(encoder), "-y", "-loglevel", "error", "-f", "rawvideo",
                    "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{1 / seconds:.4f}",
                    "-i", "-", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p",
                    "-movflags", "+faststart", "-f", "mp4", str(path),
                ]  # fmt: skip
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)
            assert process.stdin is not None
            try:
                process.stdin.write(picture.tobytes())
            except BrokenPipeError:
                break  # ffmpeg has ended: its message says why
        assert process is not None, "a film has at least one picture"
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.wait():
            errors.seek(0)
            raise RunError(f"ffmpeg failed: {errors.read().decode(errors='replace').strip()}")


def _encoder() -> str | None:
    """Return the path of ffmpeg, or None if it is not installed.

    It is found on the PATH or in the package imageio-ffmpeg.
    """
    found = shutil.which("ffmpeg")
    if found is None and packages.is_installed("imageio_ffmpeg"):
        import imageio_ffmpeg

        found = imageio_ffmpeg.get_ffmpeg_exe()
    return found
