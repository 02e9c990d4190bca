"""Text for people: numbers, amounts of memory, durations, counted nouns, aligned columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence


def warn(text: str) -> None:
    """Print a warning with this text."""
    print(f"elites: warning: {text}", file=sys.stderr, flush=True)


def number(value: float) -> str:
    """Return a number as text with about four digits, and NaN as a dash."""
    if value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural as text: "1 seed", "8 seeds"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(texts: Sequence[str]) -> str:
    """Return texts as one text, an enumeration: "a, b and c"."""
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

    Numbers beyond `most` ranges are only counted.
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
    """Return a text cut between two words to at most `width` characters.

    An ellipsis marks the cut.
    """
    if len(text) <= width:
        return text
    whole, space, _ = text[:width].rpartition(" ")
    return f"{whole.rstrip() if space else text[: width - 1]}…"


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return the rows of a table as lines of text with aligned columns.

    The columns whose numbers are in `right` are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
