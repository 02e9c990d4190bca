"""References to functions of the user's own, as FILE.py:FUNCTION.

A task or an algorithm of one's own is named this way on the command line and in a saved run. Only
`load` runs code of the file. The module `trust` decides whether the file of a saved run may run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from elites import files

_MOST = 16 * files.MEGABYTE  # of a Python file
_PREFIX = "elites_own_"  # of the names of modules


def is_reference(name: str) -> bool:
    """Return whether a name has a colon and is therefore a reference, FILE.py:FUNCTION.

    The file is not read.
    """
    return ":" in name


def check(kind: str, name: str) -> str:
    """Return the reference FILE.py:FUNCTION unchanged, or raise a ValueError.

    It raises if the form is wrong or the file is missing. `kind` is what the function returns,
    "task" or "algorithm", for the message.
    """
    where = check_form(kind, name).rpartition(":")[0]
    if not Path(where).is_file():
        raise ValueError(f"{kind} '{name}': there is no file {where}")
    return name


def check_form(kind: str, name: str) -> str:
    """Return the reference unchanged, or raise a ValueError if it is not FILE.py:FUNCTION.

    The file need not exist.
    """
    where, _, function = name.rpartition(":")
    if not where.endswith(".py") or not function.isidentifier():
        article = "an" if kind[0] in "aeiou" else "a"
        raise ValueError(f"{article} {kind} of your own is given as FILE.py:FUNCTION, got '{name}'")
    return name


def absolute(name: str) -> str:
    """Return a reference FILE.py:FUNCTION with the absolute path of its file.

    A name without a colon is returned unchanged.
    """
    where, colon, function = name.rpartition(":")
    return f"{Path(where).resolve()}:{function}" if colon else name


def short_name(name: str) -> str:
    """Return the function's name from a reference FILE.py:FUNCTION, for use in file names.

    A name without a colon is returned unchanged.
    """
    return name.rpartition(":")[2]


def load(name: str) -> Any:
    """Return the object that a reference FILE.py:FUNCTION names.

    Returns None if the file defines no such name. A process runs the file only once.
    """
    where, _, function = absolute(name).rpartition(":")
    return getattr(_module(where), function, None)


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function that a reference FILE.py:FUNCTION names.

    Raises a ValueError if the file has no such function. `what` says in its message what the
    function is for, for example "a callback is a function of (iteration, metrics)".
    """
    found = load(name)
    if not callable(found):
        where, _, wanted = name.rpartition(":")
        have = "nothing of that name" if found is None else kind(found)
        raise ValueError(f"{what}, but {where} has {have} for '{wanted}'")
    return found


_given: dict[str, bytes] = {}


def give(where: str, contents: bytes) -> None:
    """Make `contents` the contents of the Python file at the path `where`, for this process.

    Another process has read the file. It must not have been loaded here before.
    """
    _given[where] = contents


@functools.cache
def source(where: str) -> bytes:
    """Return the contents of the Python file at the path `where`, as this process runs it.

    The file is read once. So what was checked is what runs, even if the file changes later.
    """
    if where in _given:
        return _given[where]
    return files.read_bytes(Path(where), _MOST, ValueError, follow=True)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loader that runs the contents of `source`, never compiled code from `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled contents of the file."""
        del fullname
        return self.source_to_code(source(self.path), self.path)


@functools.cache
def _module(where: str) -> ModuleType:
    """Run a Python file and return it as a module.

    Files with the same name in different folders become different modules.
    """
    number = hashlib.sha256(where.encode()).hexdigest()[:8]
    name = f"{_PREFIX}{Path(where).stem}_{number}"
    spec = importlib.util.spec_from_file_location(name, where, loader=_Loader(name, where))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise ValueError(f"{where} cannot be loaded: {described(error)}") from error
    return module


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` with `arguments` and return its result.

    `name` is the reference FILE.py:FUNCTION that the function was loaded from. An error inside the
    function is raised as a ValueError that names the file, the function and the line. A ValueError
    of elites itself, for example about a field of a `Task`, keeps its text.
    """
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and is_raised_here(error):
            if type(error) is not ValueError:  # such as an UntrustedError
                raise
            raise ValueError(f"{error}{place(error)}") from error
        where, _, called = name.rpartition(":")
        raise ValueError(f"{where}: '{called}' failed: {described(error)}") from error


# ------------------------------------------------------------------------- errors of user's code

_HERE = str(Path(__file__).parent)


def described(error: BaseException) -> str:
    """Return an error of the user's code in words: its type, its message and its place."""
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"it calls sys.exit({code}){place(error)}, which would end elites. Remove that call"
    message = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}{f': {message}' if message else ''}{place(error)}"


def place(error: BaseException) -> str:
    """Return the file and line of the user's code that raised an error: " (FILE, line 12)".

    Code of elites, of Python and of installed packages is not the user's. Returns "" if no other
    code was running.
    """
    own = {module.__file__ for name, module in [*sys.modules.items()] if name.startswith(_PREFIX)}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in own or not _is_installed(frame.filename):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def _is_installed(path: str) -> bool:
    """Return whether a path is that of code of elites, of Python or of an installed package."""
    packages = {"site-packages", "dist-packages"} & set(Path(path).parts)
    return bool(packages) or path.startswith((_HERE, sysconfig.get_paths()["stdlib"], "<"))


def is_raised_here(error: BaseException) -> bool:
    """Return whether code of elites raised an error, and not the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    return len(frames) > 1 and frames[-1].filename.startswith(_HERE)


def kind(value: Any) -> str:
    """Return the type of a value as words for a message: "an int", "a Task", "None"."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def of(function: Callable[..., Any]) -> str | None:
    """Return the reference FILE.py:FUNCTION to a function, or None if it has none.

    A function has a reference if it is defined at the top level of a Python file and can be found
    there under its own name.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    if module is None or getattr(module, name, None) is not function:
        return None
    try:
        where = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None
    if where is None or not where.endswith(".py") or not Path(where).is_file():
        return None
    return f"{Path(where).resolve()}:{name}"


def lasting(kind: str, function: Any) -> str:
    """Return the reference FILE.py:FUNCTION to a function, or raise a ValueError if it has none.

    See `of` for which functions have a reference. `kind` is what the function returns, "task" or
    "algorithm", for the message.
    """
    reference = of(function)
    if reference is None:
        name = getattr(function, "__qualname__", repr(function))
        raise ValueError(
            f"the {kind} was given as {name}, which another process cannot find: it is no function "
            f"at the top level of a file. Save it to a file, and name it: "
            f"save(..., {kind}='FILE.py:FUNCTION')"
        )
    return reference
