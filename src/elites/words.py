"""Text for people: numbers, amounts of memory, durations, counted nouns, aligned columns.

Names and labels come from users, and from runs of others. `plain` makes them safe to show.
"""

from __future__ import annotations

import os
import re
import shlex
import string
from collections.abc import Iterable, Sequence

# Control characters, marks that change the direction of writing, and halves of surrogate pairs.
_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def plain(text: str, most: int = 10_000) -> str:
    r"""Return a text as one line of at most `most` characters that can be shown anywhere.

    Tabs and line breaks become a space. Characters that would control a terminal, or that cannot be
    encoded, become escape sequences such as \x1b.
    """
    text = re.sub(r"[\t-\r\u2028\u2029]+", " ", text[: most + 1])
    return shortened(_UNSHOWN.sub(lambda match: _escaped(match[0]), text), most)


def _escaped(character: str) -> str:
    r"""Return the escape sequence of a character, such as \x1b or \u202e."""
    return character.encode("unicode_escape").decode("ascii")


def in_markdown(text: str) -> str:
    """Return a text as one line of Markdown that shows it as it is, without markup of its own."""
    return re.sub(r"([\\`*<>\[\]|])", r"\\\1", plain(text, 200))


def file_name(text: str) -> str:
    """Return a text as part of a file name: an underscore for all but letters and digits."""
    return "".join(c if c.isalnum() else "_" for c in text[:100])


def quoted(path: object) -> str:
    r"""Return a path as a word of a shell command, such as 'my run'.

    Characters that cannot be shown are written as Bash and Zsh read them: $'run\xff'.
    """
    text = str(path)
    if not _UNSHOWN.search(text):
        return shlex.quote(text)
    kept = set(string.ascii_letters.encode() + string.digits.encode() + b"/._- ")
    data = os.fsencode(text)
    return "$'" + "".join(chr(byte) if byte in kept else f"\\x{byte:02x}" for byte in data) + "'"


def one_line(error: BaseException) -> str:
    """Return the message of an exception in one line, or its type if it has no message."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return plain(f"{os.fsdecode(error.filename)}: {error.strerror}", 1500)
    return plain(str(error), 1500) or type(error).__name__


def number(value: float) -> str:
    """Return a number as text with about four significant digits. NaN becomes a dash."""
    if value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """Return a number followed by its noun in the singular or plural: "1 seed", "8 seeds"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(texts: Sequence[str]) -> str:
    """Join texts with commas and a final "and": "a, b and c"."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def ranges(numbers: Iterable[int]) -> list[range]:
    """Return whole numbers as sorted ranges of numbers that follow each other."""
    found: list[range] = []
    for number in sorted(numbers):
        if found and number == found[-1].stop:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def spans(found: Sequence[range], most: int = 4) -> str:
    """Return ranges of whole numbers as text: "4 to 7 and 9".

    After the first `most` ranges, only the count of the remaining integers is given: "12 more".
    """
    texts = [f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in found]
    if len(found) > most:
        texts[most:] = [f"{sum(map(len, found[most:]))} more"]
    return listed(texts)


def amount(count: float) -> str:
    """Return a number of bytes as text with a unit: "4.1 kB", "383 MB"."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.0f} TB" if value >= 1000 else f"{value:.3g} TB"


def duration(seconds: float) -> str:
    """Return a duration in seconds as text with units: "45 s", "3 min 20 s", "2 h 5 min"."""
    if seconds == float("inf"):
        return "unknown time"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def shortened(text: str, width: int) -> str:
    """Return a text cut to at most `width` characters, between two words if possible.

    An ellipsis marks the cut. A text that fits is returned unchanged.
    """
    if len(text) <= width:
        return text
    whole, space, _ = text[:width].rpartition(" ")
    return f"{whole.rstrip() if space else text[: width - 1]}…"


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return one line of text for each row of a table, with aligned columns.

    `right` holds the indices of the columns to align to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def policy_text(layers: Sequence[int], parameters: int) -> str:
    """Return a text about the policies of a run: their layers, or that they are plain vectors."""
    if layers and layers[0] == 0:
        return f"plain vectors of {counted(parameters, 'number')}"
    return f"{'-'.join(map(str, layers)) or '?'}, {parameters:,} parameters"
