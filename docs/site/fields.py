"""Extension of the API reference: the fields of a record as one table.

A field is described by a docstring below it or by a comment behind it:

    fitness: Array  # [C], -inf where a cell is empty
    discount: float = 0.99
    \"\"\"Discount of future rewards.\"\"\"

Without this extension, every field would be a section of its own, and comments would be lost.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Fields(griffe.Extension):
    """Moves the fields of every class into the description of the class."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all classes of a package."""
        self._visit(pkg)

    def _visit(self, parent: griffe.Object) -> None:
        for member in parent.members.values():
            if isinstance(member, griffe.Module | griffe.Class):
                self._visit(member)
            if isinstance(member, griffe.Class) and member.docstring:
                fields = [f for f in member.members.values() if is_field(f)]
                entries = [entry(field) for field in fields]
                for field in fields:
                    field.docstring = None  # no section of its own
                if entries:
                    section = griffe.DocstringSectionAttributes(entries, title="Fields:")
                    member.docstring.parsed.append(section)


def is_field(member: griffe.Object | griffe.Alias) -> bool:
    """Return whether a member is a public field: annotated in the class, and not a property."""
    return (
        isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "property" not in member.labels
        and not member.name.startswith("_")
        and member.lineno is not None
    )


def entry(field: griffe.Attribute) -> griffe.DocstringAttribute:
    """Return the row of a field."""
    text = field.docstring.value if field.docstring else comment_behind(field)
    text = re.sub(r"^\[[^\]]*\]", r"`\g<0>`", text)  # a shape
    value = str(field.value) if field.value is not None else ""
    if value and value != "None" and "(" not in value.removeprefix("("):
        text = f"{text} Default `{value}`.".strip()
    return griffe.DocstringAttribute(field.name, description=text, annotation=field.annotation)


def comment_behind(field: griffe.Attribute) -> str:
    """Return the comment on the last line of a field."""
    lines = field.lines_collection[field.filepath]
    line = lines[(field.endlineno or field.lineno or 1) - 1]
    _, _, comment = line.partition("#")
    comment = comment.strip()
    return "" if comment.startswith(("fmt:", "noqa", "pyright:")) else comment
