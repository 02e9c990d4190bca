"""Copy a file from a path or an address, and compute its SHA-256 on the way.

A copy is written in full before anybody reads it. Whoever asks for it compares the checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from elites import files
from elites.files import RunError
from elites.words import amount
from elites.writing import path_in_errors

_SECONDS = 60  # without a byte, before a server counts as silent
_BLOCK = 1 << 16


def is_address(text: str) -> bool:
    """Return whether a text is an address, such as https://host/file.zip, and not a path."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text))


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal text. Follows a symbolic link."""
    with files.open_file(path, follow=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def copy(source: str, target: Path, most: int) -> str:
    """Copy a file of at most `most` bytes to the new file `target`, and return its SHA-256.

    `source` is a path, or an address that begins with http:// or https://. Raises a RunError if the
    server does not answer, sends less than it announced, or sends more than `most` bytes.
    """
    digest, count = hashlib.sha256(), 0
    with _opened(source) as (stream, announced), path_in_errors(target), open(target, "xb") as out:
        while block := stream.read(_BLOCK):
            count += len(block)
            if count > most:
                raise RunError(f"{source}: refused, it has more than {amount(most)}")
            digest.update(block)
            out.write(block)
    if announced is not None and count != announced:
        raise RunError(
            f"{source}: the connection ended after {count:,} of {announced:,} bytes. Try again"
        )
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(source: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open a path or an address for reading, and yield the stream and the announced size.

    The size is None if the server announces none. Raises a RunError if the server fails.
    """
    if not is_address(source):
        with files.open_file(Path(source), follow=True) as file:
            yield file, None
        return
    request = urllib.request.Request(source, headers={"User-Agent": "elites"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            length = response.headers.get("Content-Length") or ""
            yield response, int(length) if length.isascii() and length.isdigit() else None
    except urllib.error.HTTPError as error:
        error.close()
        raise RunError(f"{source}: the server answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise RunError(f"{source}: {error.reason}. {_REMEDY}") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = str(error) or type(error).__name__
        raise RunError(f"{source}: the connection failed: {reason}. {_REMEDY}") from None


_REMEDY = "Try again, or download the file by other means and give its path"
