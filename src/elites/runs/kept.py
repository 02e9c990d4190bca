"""Keep compiled rollouts and fingerprints of tasks for later processes.

Tracing a task and compiling its rollouts takes seconds, and gives the same every time. There are
two caches below the user's cache:

    compiled/0123456789abcdef/              programs that JAX keeps, for one kind of processor
    compiled/0123456789abcdef/elites-.../   results of `value` and `program`

JAX has to trace a function to find its program. `value` and `program` need not, because they serve
tasks that come with elites alone. Such a task is determined by the source files of elites, so the
name of the folder is a digest of these files, of versions and of settings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np
from jax import export

from elites import files, tasks, writing
from elites.files import RunError
from elites.tasks.task import Task

_FOLDERS = 4  # kept for different versions of elites; the least recent ones are removed
_LARGEST = 256 * files.MEGABYTE
_CHECKSUM = 32  # bytes at the beginning of a program's file
_active: list[bool] = []  # not empty inside of `keeping`


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Keep what is compiled inside the `with` block for later processes.

    Films and pages of a task then start seconds earlier from the second time on. The folder is the
    one that the user has chosen for JAX, by default one in the user's cache. Nothing is kept if the
    user has no home directory.
    """
    folder = files.user_cache()
    if folder is not None and not _chosen():
        name = _digest(_processor(), jax.__version__)
        jax.config.update("jax_compilation_cache_dir", str(folder / "compiled" / name))
    _active.append(True)
    try:
        yield
    finally:
        _active.pop()


def _chosen() -> str | None:
    """Return the folder in which JAX keeps compiled programs, or None if it keeps none."""
    return getattr(jax.config, "jax_compilation_cache_dir", None)


def value(task: Task, name: str, compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns for a task, from the cache if it is there.

    `name` says what it is. It must be representable in JSON.
    """
    place = _place(task, name, ".json")
    if place is None:
        return compute()
    with contextlib.suppress(OSError, RunError):
        return files.read_json(place)
    found = compute()
    with contextlib.suppress(OSError):
        writing.write_json(place, found)
    return found


def program(
    task: Task, name: str, function: Callable[..., Any], *shapes: Any
) -> Callable[..., Any]:
    """Return a function on a task, for arguments of some shapes, compiled on first use.

    It does not have to be traced if it is in the cache. `name` says what the function is. The
    arguments and results are arrays, or tuples of arrays.
    """
    place = _place(task, name, ".program")
    if place is None:
        return jax.jit(function)
    with contextlib.suppress(OSError, RunError):
        contents = files.read_bytes(place, _LARGEST)
        if hashlib.sha256(contents[_CHECKSUM:]).digest() == contents[:_CHECKSUM]:
            return jax.jit(export.deserialize(bytearray(contents[_CHECKSUM:])).call)
    exported = export.export(jax.jit(function))(*shapes)
    with contextlib.suppress(OSError), writing.replacing(place) as temporary:
        data = exported.serialize()
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
    return jax.jit(exported.call)


# ------------------------------------------------------------------------------------------ folders


def _place(task: Task, name: str, suffix: str) -> Path | None:
    """Return the file in which a result for a task is kept, or None if it cannot be kept."""
    chosen, sources = _chosen(), _sources()
    if not (_active and chosen and sources) or "://" in chosen:
        return None
    if not tasks.comes_with_elites(task):
        return None
    folder = Path(chosen) / f"elites-{_digest(sources, _settings())}"
    if not folder.is_dir():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True)
            _remove_old(folder.parent)
    return folder / f"{task.name}-{_digest(name)}{suffix}"


def _remove_old(parent: Path) -> None:
    """Remove all but the most recent folders of results."""
    folders = sorted(parent.glob("elites-*"), key=lambda folder: folder.stat().st_mtime)
    for folder in folders[:-_FOLDERS]:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _sources() -> str:
    """Return a digest of the source files of elites, or an empty text if they cannot be read."""
    package = Path(__file__).parents[1]
    paths = sorted([*package.rglob("*.py"), *package.glob("tasks/models/*.json")])
    names = [path.relative_to(package).as_posix() for path in paths]
    with contextlib.suppress(OSError, RunError):
        contents = [files.read_bytes(path, follow=True) for path in paths]
        return _digest(*names, *contents) if paths else ""
    return ""


def _settings() -> str:
    """Return a text about all else that compiled programs depend on."""
    versions = [
        sys.version,
        jax.__version__,
        jaxlib.version.__version__,
        np.__version__,
        _processor(),
    ]
    values = getattr(jax.config, "values", {})
    options = {name: value for name, value in values.items() if "cache" not in name}
    return repr([versions, os.environ.get("XLA_FLAGS"), sorted(options.items(), key=str)])


@functools.cache
def _processor() -> str:
    """Return a text about the processor. Compiled programs run on processors with the same text."""
    found = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        first = {line.partition(":")[0].strip(): line for line in reversed(lines)}
        found += [first.get(name, "") for name in ("model name", "flags", "Features")]
    return " ".join(found)


def _digest(*parts: str | bytes) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of some texts and bytes."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(b"%d:" % len(data) + data)
    return found.hexdigest()[:16]
