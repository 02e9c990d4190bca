"""Parts of the report page as HTML: text, tables and figures. All text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from elites.words import plain


def escaped(text: str) -> str:
    """Return a text as one line of HTML, with special characters escaped."""
    return html.escape(plain(text))


def figure(svg: str, what: str) -> str:
    """Return the HTML of a figure, given as SVG, with a description for screen readers."""
    return f'<figure role="img" aria-label="{escaped(what)}">{svg}</figure>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    """Return the HTML of a table. The first cell of each row is the row's heading.

    With `words`, the second column is aligned as text.
    """
    top = "".join(f"<th scope='col'>{escaped(cell)}</th>" for cell in header)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{escaped(cell)}</td>" for cell in rest)
        lines.append(f"<tr><th scope='row'>{escaped(first)}</th>{cells}</tr>")
    head = f"<thead><tr>{top}</tr></thead>" if header else ""
    kind = " class='words'" if words else ""
    return f"<div class='wide'><table{kind}>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def p_text(value: float) -> str:
    """Return a p-value as text: four decimals, an exponent below 0.0001, or a dash for NaN."""
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"
