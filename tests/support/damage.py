"""Damage files at random: bytes, JSON values, cells of tables, arrays, members of zip files.

`damage(path, random, outside)` changes the file at a path in one of the ways that suit its suffix
and returns what it did. The same state of `random` damages the same file in the same way.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from elites.runs import checkpoint

Change = Callable[[bytes, Random], bytes]
DEEP = 100_000


def _to_link(path: Path, random: Random, outside: Path) -> None:
    target = random.choice([outside / "kept.txt", outside, path, path.parent / "nowhere"])
    path.symlink_to(target)


def _to_pipe(path: Path, random: Random, outside: Path) -> None:
    os.mkfifo(path)


def _to_directory(path: Path, random: Random, outside: Path) -> None:
    path.mkdir()
    if random.random() < 0.5:
        (path / "inside.txt").write_text("inside")


def _to_nothing(path: Path, random: Random, outside: Path) -> None:
    pass


def _to_file(path: Path, random: Random, outside: Path) -> None:
    path.write_text("{}")


def _to_huge(path: Path, random: Random, outside: Path) -> None:
    path.touch()
    os.truncate(path, 1 << random.choice([33, 40]))  # takes no space


KINDS = (_to_link, _to_pipe, _to_directory, _to_nothing, _to_file, _to_huge)


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 3, 20])):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _without_middle(data: bytes, random: Random) -> bytes:
    first, last = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:]


def _doubled(data: bytes, random: Random) -> bytes:
    return data + data


def _with_noise(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.choice([1, 8, 300])) + data[place:]


def _recoded(data: bytes, random: Random) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(random.choice(["utf-8-sig", "utf-16", "utf-32-le", "cp037"]), "replace")


def _replaced(data: bytes, random: Random) -> bytes:
    return random.choice(
        [b"", b"\n", b"\0" * 100, b"null", b"[]", b"{}", b"0", b'"text"', b"NaN", b"\xff\xfe",
         b"[" * DEEP, b'{"a":' * DEEP, b"a = " + b"[" * DEEP, b"a" * 200_000, b",,,\n,,,\n",
         b"a." * DEEP + b"b = 1", b"9" * 10_000, b'"' + b"a" * 200_000]
    )  # fmt: skip


BYTES: tuple[Change, ...] = (
    _flipped, _cut, _without_middle, _doubled, _with_noise, _recoded, _replaced,
)  # fmt: skip


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 0.5, "", "0", "text", [], {}, [0], {"a": 0}, 2**31, 2**63,
    10**30, 10**400, 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"), "NaN",
    "a\nb", "\ud800", "\0", "$x$", "../../outside", "/etc/passwd", "a" * 5000, _deep(60),
    _deep(900),
    ["a", None, {}], [float("nan")] * 2, [10**400, 1], [[1, 2], [3, 4]], [True, False], "<script>",
    "cpu", "point_omni", 9, 10, 8,
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all nodes below a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in entries:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += _places(inner, (*path, key))
    return found


def _swapped(value: Any, random: Random) -> Any:
    """Return a value of another type that resembles `value`."""
    others = [str(value), [value], {"value": value}, None]
    if isinstance(value, int | float):
        others += [float(value), value + 1, -value, value * 1000, bool(value)]
    if isinstance(value, str):
        others += [value.encode().hex(), value[:-1], value.upper(), len(value)]
    if isinstance(value, list):
        others += [dict(enumerate(value)), value[:-1], [*value, *value], tuple(reversed(value))]
    if isinstance(value, dict):
        others += [list(value), list(value.items())]
    return random.choice(others)


def changed_json(data: bytes, random: Random) -> bytes:
    """Change, remove or add a value of a JSON text."""
    root = [json.loads(data)]
    *path, key = random.choice(_places(root))
    node: Any = root
    for step in path:
        node = node[step]
    what = random.choice(["value", "value", "value", "swap", "swap", "remove", "add"])
    if what == "value":
        node[key] = random.choice(VALUES)
    elif what == "swap":
        node[key] = _swapped(node[key], random)
    elif what == "remove" and node is not root:
        del node[key]
    elif isinstance(node, dict):
        node[random.choice(["extra", "", "format", "é"])] = random.choice(VALUES)
    else:
        node.insert(0, random.choice(VALUES))
    text = json.dumps(root[0])
    return (text[:1] + '"format": 1, ' + text[1:] if what == "add" else text).encode()


def changed_manifest(data: bytes, random: Random) -> bytes:
    """Change a value of a checkpoint's manifest, and its checksum so that it matches."""
    manifest = json.loads(changed_json(data, random).replace(b'"format": 1, ', b""))
    if isinstance(manifest, dict) and "sha256" in manifest:
        manifest["sha256"] = checkpoint._manifest_digest(manifest)
    return json.dumps(manifest).encode()


def changed_toml(data: bytes, random: Random) -> bytes:
    """Change one line of a TOML text."""
    lines = data.decode().splitlines()
    i = random.randrange(len(lines))
    name = lines[i].partition("=")[0]
    lines[i] = random.choice(
        [f"{name} = {json.dumps(random.choice(VALUES))}", lines[i] * 2, "", "[hp]", "[[hp]]",
         f"{name} = nan", f"{name} = 1979-05-27", f"{name}.x = 1", "x = " + "[" * 3000,
         f"{name} = {'9' * 5000}", f"{name} = -1", f"{name} = 0", f"{name} = inf",
         "hp.cells = 0", f"unknown = {i}", f"{name} = [1, 'a']", f"{name} = {{a = 1}}"]
    )  # fmt: skip
    return "\n".join(lines).encode("utf-8", "replace")


CELLS = ("", "nan", "inf", "-inf", "-1", "0", "0.5", "1e400", "1e18", "-1e18", "9" * 400, "x", "é",
         "1_000", "0x10", "1,2", '"', "\0", "True", "3", "10", "1000000", "a" * 200_000, " 1 ",
         "2147483648")  # fmt: skip


def changed_csv(data: bytes, random: Random) -> bytes:
    """Change cells, rows or columns of a table."""
    table = list(csv.reader(io.StringIO(data.decode())))
    row, column = random.randrange(len(table)), random.randrange(len(table[0]))
    what = random.choice(
        ["cell", "cell", "cell", "cells", "header", "rows", "column", "order", "row", "shape"]
    )
    if what == "cell":
        table[row][column] = random.choice(CELLS)
    elif what == "cells":
        value = random.choice(CELLS)
        for cells in table[1:]:
            cells[column] = value
    elif what == "header":
        table[0][column] = random.choice(["", "iteration", "seed", "x", *table[0]])
    elif what == "rows":
        del table[random.choice([0, 1]) :]
    elif what == "column":
        for cells in table:
            del cells[column]
    elif what == "order":
        random.shuffle(table)
    elif what == "row":
        table.insert(row, random.choice(table))
    else:
        table[row] += ["1"] * random.choice([1, 40])
    text = io.StringIO()
    csv.writer(text, lineterminator=random.choice(["\n", "\r\n", "\r"])).writerows(table)
    return text.getvalue().encode()


def changed_arrays(data: bytes, random: Random) -> bytes:
    """Change an array of an .npz file, or the header of one, with checksums that match."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = random.choice(list(members))
    array = np.load(io.BytesIO(members[name]), allow_pickle=False)
    what = random.choice(["type", "shape", "values", "header", "name", "remove", "add", "object"])
    if what == "type":
        kinds = ["f2", "f8", "i8", "u1", "c16", "?", "M8[s]", "S4", "U2", ">f4", "V8"]
        members[name] = _npy(np.zeros(array.shape, random.choice(kinds)))
    elif what == "shape":
        shapes = [(), (0,), (1,), (2, 0), (*array.shape, 1), array.shape[1:], array.shape[::-1]]
        members[name] = _npy(np.zeros(random.choice(shapes), array.dtype))
    elif what == "values":
        values = [np.nan, np.inf, -np.inf, -1e30, 1e30, 0, -1, 127, 1e9]
        with np.errstate(all="ignore"):
            members[name] = _npy(np.full(array.shape, random.choice(values)).astype(array.dtype))
    elif what == "header":
        header = random.choice(
            [b"{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000, 4), }",
             b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", b"{" * 5000,
             b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }", b"(" * 9000,
             b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4), }", b"",
             b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"]
        )  # fmt: skip
        members[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    elif what == "name":
        members[random.choice(["x", "x.npy", "../x.npy", "/x.npy", "é.npy"])] = members.pop(name)
    elif what == "remove":
        del members[name]
    elif what == "add":
        members["more.npy"] = members[name]
    else:
        members[name] = members[name][: random.randrange(len(members[name]))]
    return _zipped(members, random.choice([zipfile.ZIP_STORED] * 5 + [zipfile.ZIP_DEFLATED]))


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def _zipped(members: dict[str, bytes], how: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def changed_zip(data: bytes, random: Random) -> bytes:
    """Change the members of a packed run: contents, names, kinds, sizes."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = random.choice(list(members))
    names = ["../kept.txt", "/kept.txt", "a/../../kept.txt", "x.py", "config.json/x", "é", "a\\b",
             "checkpoints/last", "config.json", "CONFIG.JSON", "snapshots/000000001.npz", "a" * 300,
             "checkpoints/000000009", "run.lock", "evaluation/cells.csv/metrics.csv"]  # fmt: skip
    what = random.choice(["member", "member", "rename", "add", "remove", "link", "long", "double"])
    if what == "member":
        members[name] = random.choice([*BYTES, _changer(name)])(members[name], random)
    elif what == "rename":
        members[random.choice(names)] = members.pop(name)
    elif what == "remove":
        del members[name]
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # two members may have the same name
        for each, content in members.items():
            info = zipfile.ZipInfo(each)
            if what == "link" and each == name:
                info.external_attr, content = (stat.S_IFLNK | 0o777) << 16, b"../outside/kept.txt"
            archive.writestr(info, content)
        if what == "add":
            archive.writestr(random.choice(names), b"added")
        if what == "long":
            archive.writestr("snapshots/000000002.npz", bytes(30_000_000))
    changed = file.getvalue()
    return changed + changed if what == "double" else changed


def _changer(name: str) -> Change:
    """Return the function that changes what a file of this name holds."""
    changers = {".json": changed_json, ".toml": changed_toml, ".csv": changed_csv,
                ".npz": changed_arrays, ".zip": changed_zip}  # fmt: skip
    return changers.get(Path(name).suffix, _flipped)


def damage(path: Path, random: Random, outside: Path) -> str:
    """Damage the file or folder at a path, and return in words what was done."""
    share = random.random()
    if path.is_dir() or share < 0.12:
        change = random.choice(KINDS)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        change(path, random, outside)
        return change.__name__
    before = path.read_bytes()
    if share < 0.4:
        how = random.choice(BYTES)
    elif path.name == "manifest.json":
        how = random.choice([changed_json, changed_manifest, changed_manifest, changed_manifest])
    else:
        how = _changer(path.name)
    path.write_bytes(how(before, random))
    return how.__name__
