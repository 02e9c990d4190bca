"""Read which bodies collide, and list every point or pair that can touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elites.files import shown
from elites.physics.reading.bodies import Body
from elites.physics.reading.fields import ModelError, check_fields, read_list
from elites.physics.tables import GroundContacts, WallContacts, column, columns, indices


def contact_tables(
    data: Mapping[str, Any], bodies: Sequence[Body], index: Mapping[str, int], name: str
) -> tuple[GroundContacts | None, WallContacts | None]:
    """Return two tables: contacts of a model's bodies with the ground, and with the walls.

    They list the contacts of all pairs in the model's field `collide_include`. A table is None if
    it would be empty. `index` gives the row of each moving body by its name.
    """
    named = {body.name: body for body in bodies}
    ground: list[tuple] = []
    walls: list[tuple] = []
    for i, entry in enumerate(read_list(data, "collide_include", name, required=False)):
        where = f"{name}: collide_include {i}"
        pair = _read_pair(entry, named, where)
        if pair is not None:
            _add_pair(*pair, index, ground, walls, where)
    return _ground_table(ground), _wall_table(walls)


def _read_pair(entry: Any, bodies: Mapping[str, Body], where: str) -> tuple[Body, Body] | None:
    """Return the moving and the fixed body of an entry of `collide_include`.

    Returns None if both are fixed. Raises a ModelError if both move. `bodies` are all bodies by
    name.
    """
    check_fields(entry, "first second", where)
    names = [entry.get("first"), entry.get("second")]
    for name in names:
        if not isinstance(name, str) or name not in bodies:
            raise ModelError(f"{where}: no body named {shown(name)}; known: {', '.join(bodies)}")
    robot, scenery = sorted((bodies[name] for name in names), key=lambda body: body.fixed)
    if robot.fixed:
        return None
    if not scenery.fixed:
        raise ModelError(
            f"{where}: '{robot.name}' and '{scenery.name}' both move; only contacts with frozen "
            "bodies are supported"
        )
    return robot, scenery


def _add_pair(
    robot: Body,
    scenery: Body,
    index: Mapping[str, int],
    ground: list[tuple],
    walls: list[tuple],
    where: str,
) -> None:
    """Append rows for the contacts between two bodies to the lists `ground` and `walls`.

    Every collider of `robot` can touch every collider of `scenery`. Raises a ModelError for a pair
    of shapes that is not supported.
    """
    body = index[robot.name]
    for a in robot.colliders:
        for b in scenery.colliders:
            material = (a.friction * b.friction, a.elasticity * b.elasticity)
            if b.kind == "plane":
                points, radius = a.points()
                kind = int(a.kind == "box")
                ground += [(body, kind, point, radius, *material) for point in points]
            elif a.kind != "box" and b.kind != "box":
                own = (body, a.position, a.half_axis(), a.size[0])
                walls.append((*own, b.position, b.half_axis(), b.size[0], *material))
            else:
                raise ModelError(
                    f"{where}: a {a.kind} of '{robot.name}' against a {b.kind} of "
                    f"'{scenery.name}' is not supported; boxes collide with planes only"
                )


def _ground_table(rows: list[tuple]) -> GroundContacts | None:
    if not rows:
        return None
    body, kind, offset, *rest = zip(*rows, strict=True)
    return GroundContacts(indices(body), indices(kind), columns(offset), *map(column, rest))


def _wall_table(rows: list[tuple]) -> WallContacts | None:
    if not rows:
        return None
    body, centre, half, radius, wall_centre, wall_half, *rest = zip(*rows, strict=True)
    return WallContacts(
        indices(body), columns(centre), columns(half), column(radius),
        columns(wall_centre), columns(wall_half), *map(column, rest),
    )  # fmt: skip
