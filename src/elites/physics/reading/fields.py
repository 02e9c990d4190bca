"""Read single fields of a body model and check them.

A node is a JSON object of the model file. `where` is the beginning of every error message: it names
the model and the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elites.files import shown

# Single precision runs out of range above this number and below its inverse.
_LARGEST = 1e30


class ModelError(ValueError):
    """Error in a body model. The message names the entry and the field that are wrong."""


def check_fields(node: Any, known: str, where: str) -> None:
    """Raise a ModelError if `node` is not a JSON object, or has a field that is not in `known`.

    `known` holds the names of the allowed fields, separated by spaces.
    """
    if not isinstance(node, Mapping):
        raise ModelError(f"{where}: expected an object with named fields, got {shown(node)}")
    for field in node:
        if field not in known.split():
            raise ModelError(f"{where}: unknown field '{field}'; known: {known or 'none'}")


def read_list(node: Mapping[str, Any], field: str, where: str, required: bool = True) -> list[Any]:
    """Return the list in a field of the JSON object `node`.

    A missing list is a ModelError if it is `required`, and otherwise empty.
    """
    if field not in node and not required:
        return []
    value = node.get(field)
    if not isinstance(value, list):
        raise ModelError(f"{where}: {field} must be a list, got {shown(value)}")
    return value


def read_object(node: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    """Return the JSON object in a field of `node`, or an empty one if the field is missing."""
    value = node.get(field, {})
    if not isinstance(value, Mapping):
        raise ModelError(f"{where}: {field} must be an object, got {shown(value)}")
    return value


def read_number(
    node: Mapping[str, Any],
    field: str,
    where: str,
    default: float | None = None,
    above: float | None = None,
) -> float:
    """Return the number in a field of the JSON object `node`, or `default` if it is missing.

    Raises a ModelError if there is no number, if it is outside the range of single precision, or if
    it is not greater than `above`.
    """
    value = node.get(field, default)
    # The comparison comes before the conversion: a whole number of 400 digits is not a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ModelError(
            f"{where}: {field} must be a number below {_LARGEST:g}, got {shown(value)}"
        )
    if above is not None and value <= above:
        raise ModelError(f"{where}: {field} must be greater than {above:g}, got {shown(value)}")
    if value != 0 and abs(value) < 1 / _LARGEST:
        raise ModelError(f"{where}: {field} is too small for single precision, got {shown(value)}")
    return float(value)


def read_nonnegative(node: Mapping[str, Any], field: str, where: str) -> float:
    """Return the number in a field of the JSON object `node`, or 0 if it is missing.

    Raises a ModelError if the number is negative.
    """
    value = read_number(node, field, where, default=0.0)
    if value < 0:
        raise ModelError(f"{where}: {field} must not be negative, got {shown(value)}")
    return value


def read_vector(
    node: Mapping[str, Any], field: str, where: str, above: float | None = None
) -> list[float]:
    """Return the numbers [x, y, z] in a field of the JSON object `node`. A missing axis is 0.

    Each must be greater than `above` if that is given.
    """
    value = read_object(node, field, where)
    check_fields(value, "x y z", f"{where}, {field}")
    return [read_number(value, axis, f"{where}, {field}", 0.0, above) for axis in "xyz"]


def read_reference(node: Any, field: str, index: Mapping[str, int], where: str, kind: str) -> int:
    """Read a name from a field of the JSON object `node`, and return the index that it has.

    `index` maps names to indices. Raises a ValueError for an unknown name, whose message calls the
    named thing by `kind`, such as "body".
    """
    value = node.get(field) if isinstance(node, Mapping) else None
    if not isinstance(value, str) or value not in index:
        raise ModelError(
            f"{where}: {field}: no {kind} named {shown(value)}; known: {', '.join(index)}"
        )
    return index[value]


def label_of(entry: Any, i: int, kind: str, where: str) -> str:
    """Return the text that names an entry in error messages, such as "ant: body 'torso'".

    Raises a ModelError if the entry has no name. `i` is its position in the list of its kind.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ModelError(f"{where}: {kind} {i}: name must be a string")
    return f"{where}: {kind} '{entry['name']}'"


def unique_labels(entries: list[Any], kind: str, where: str) -> list[str]:
    """Return the texts that name the entries in error messages, see `label_of`.

    Raises a ModelError if two entries have the same name.
    """
    labels = [label_of(entry, i, kind, where) for i, entry in enumerate(entries)]
    for label in labels:
        if labels.count(label) > 1:
            raise ModelError(f"{label}: the name is used twice")
    return labels
