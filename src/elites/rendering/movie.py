"""Write pictures as a GIF or MP4 file."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from elites import packages
from elites.files import RunError
from elites.writing import replacing

SUFFIXES = (".gif", ".mp4")
_COLOURS = 128  # of a GIF; more do not look better on flat colours, but need more bytes
_SAMPLES = 12  # pictures from which the colours of a GIF are chosen


def check(path: Path, replace: bool = False) -> None:
    """Raise a ValueError if a film cannot be written to a file of this name.

    `replace` allows a file that exists.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: the name of a film ends with .gif or .mp4")
    if path.exists() and not replace:
        raise ValueError(f"{path} exists already. Choose another name")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such directory to write {path.name} to")
    if path.suffix == ".mp4" and _encoder() is None:
        raise ValueError(
            "an MP4 file needs ffmpeg: install it, or pip install 'elites[video]'. "
            "A GIF needs neither"
        )


def write(path: Path, pictures: Iterable[np.ndarray], seconds: float) -> int:
    """Write pictures [height, width, 3] to a file, and return its size in bytes.

    Each picture is shown for `seconds`. The suffix of the file, .gif or .mp4, chooses the format.
    """
    with replacing(path) as temporary:
        if path.suffix == ".gif":
            temporary.write_bytes(gif(pictures, seconds))
        else:
            _write_mp4(temporary, pictures, seconds)
    return path.stat().st_size


def gif(pictures: Iterable[np.ndarray], seconds: float) -> bytes:
    """Return a GIF that repeats for ever. All pictures share one table of colours."""
    from PIL import Image

    frames = list(pictures)
    chosen = frames[:: max(len(frames) // _SAMPLES, 1)]
    palette = Image.fromarray(np.concatenate(chosen)).quantize(_COLOURS, dither=Image.Dither.NONE)
    colours = palette.getpalette() or []
    table = _nearest(np.array(colours, np.int32).reshape(-1, 3)[:_COLOURS])
    images = [Image.fromarray(_indexed(frame, table), "P") for frame in frames]
    for image in images:
        image.putpalette(colours)
    # The time of a picture is a multiple of 10 ms, and browsers slow down below 20 ms.
    duration = max(round(seconds * 100), 2) * 10
    written = io.BytesIO()
    images[0].save(
        written,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=duration,
        loop=0,
        optimize=False,
    )
    return written.getvalue()


def _indexed(frame: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the numbers [height, width] of a picture's colours, given the table of `_nearest`."""
    red, green, blue = (frame[..., i].astype(np.uint16) >> 3 for i in range(3))
    return table[(red << 10) | (green << 5) | blue]


def _nearest(colours: np.ndarray) -> np.ndarray:
    """Return the number of the nearest of some colours [n, 3] for each colour of 15 bits."""
    steps = np.arange(32) * 8 + 4
    red, green, blue = np.meshgrid(steps, steps, steps, indexing="ij")
    every = np.stack([red, green, blue], -1).reshape(-1, 3).astype(np.float32)
    known = colours.astype(np.float32)
    squared = (known**2).sum(1) - 2 * every @ known.T
    return squared.argmin(1).astype(np.uint8)


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
    """Return the path of ffmpeg, on the PATH or of the package imageio-ffmpeg, or None."""
    found = shutil.which("ffmpeg")
    if found is None and packages.is_installed("imageio_ffmpeg"):
        import imageio_ffmpeg

        found = imageio_ffmpeg.get_ffmpeg_exe()
    return found
