"""Keep freed memory in the process, so that the next iteration can use it at once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of the options in malloc.h
_MOST = 64 * 2**20  # bytes that stay in the process after they are freed


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 64 MB of freed memory. Returns whether it does.

    A compiled program allocates its temporary arrays whenever it starts. The C library of Linux may
    return them to the system each time. To clear new pages again then takes up to a fifth of an
    iteration on plain vectors. Other C libraries are left as they are, and so are the options of a
    user who sets one by an environment variable (MALLOC_TRIM_THRESHOLD_, for example).
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return all([mallopt(_TRIM_THRESHOLD, _MOST), mallopt(_MMAP_THRESHOLD, _MOST // 2)])
    return False
