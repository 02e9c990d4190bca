"""Metrics on disk: the CSV table and TensorBoard's event files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from elites.runs import logs
from elites.runs.directory import RunError

COLUMNS = ("iteration", "seed", "value")


def table_of(path: Path, last: int) -> None:
    table = logs.Table(path, COLUMNS)
    for i in range(1, last + 1):
        table.append([{"iteration": i, "seed": s, "value": np.float32(i / 10)} for s in (0, 1)])
    table.close()


def test_numbers_have_the_digits_they_need(tmp_path):
    table_of(tmp_path / "t.csv", 3)
    text = (tmp_path / "t.csv").read_text()
    assert text == "iteration,seed,value\n1,0,0.1\n1,1,0.1\n2,0,0.2\n2,1,0.2\n3,0,0.3\n3,1,0.3\n"
    values = logs.read_table(tmp_path / "t.csv")["value"].astype(np.float32)
    np.testing.assert_array_equal(values, np.repeat(np.float32([0.1, 0.2, 0.3]), 2))


def test_going_on_drops_what_came_after(tmp_path):
    path = tmp_path / "t.csv"
    table_of(path, 5)
    table = logs.Table(path, COLUMNS, through=2)
    table.append([{"iteration": 3, "seed": 0, "value": 9}])
    table.close()
    assert path.read_text().splitlines()[-2:] == ["2,1,0.2", "3,0,9"]


@pytest.mark.parametrize("cut", range(1, 8))
def test_half_a_last_line_is_passed_over(tmp_path, cut):
    path = tmp_path / "t.csv"
    table_of(path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    table = logs.read_table(path)
    assert table["iteration"].tolist() == [1, 1, 2, 2, 3]
    assert logs.by_seed(table, 2)["value"].tolist() == [[0.1, 0.1], [0.2, 0.2]]


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_half_a_first_iteration_is_no_smaller_number_of_seeds(tmp_path, rows):
    path = tmp_path / "t.csv"
    table_of(path, 1)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 1 + rows]))
    assert logs.by_seed(logs.read_table(path), 2)["value"].shape == (rows // 2, 2)


def test_rows_are_found_by_iteration_and_seed():
    rows = [(3, 1, 31), (1, 0, 10), (2, 1, 99), (3, 0, 30), (1, 1, 11), (2, 1, 21), (4, 0, 40)]
    iteration, seed, value = np.array(rows, float).T
    table = logs.by_seed({"iteration": iteration, "seed": seed, "value": value}, 2)
    assert table["iteration"].tolist() == [[1, 1], [3, 3]]  # 2 and 4 are not there of both seeds
    assert table["value"].tolist() == [[10, 11], [30, 31]]
    both = {"iteration": iteration, "seed": np.zeros(7), "value": value}
    assert logs.by_seed(both, 1)["value"][:, 0].tolist() == [11, 21, 30, 40]  # the later counts


def test_other_damage_names_the_line(tmp_path):
    path = tmp_path / "t.csv"
    table_of(path, 3)
    lines = path.read_text().splitlines()
    lines[2] = "1,1"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match=r"line 3 has 2 fields, the header 3"):
        logs.read_table(path)


def test_other_columns_are_refused(tmp_path):
    table_of(tmp_path / "t.csv", 1)
    with pytest.raises(RunError, match="its columns are iteration, seed, value"):
        logs.Table(tmp_path / "t.csv", ("iteration", "seed", "other"), through=1)


def test_crc32c_has_the_published_check_value():
    assert logs.crc32c(b"123456789") == 0xE3069283
    assert logs.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


# A reader of event files of its own: what TensorBoard would see.


def records(data: bytes) -> list[bytes]:
    found = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert data[8:12] == masked(data[:8])
        message = data[12 : 12 + length]
        assert data[12 + length : 16 + length] == masked(message)
        found.append(message)
        data = data[16 + length :]
    return found


def masked(data: bytes) -> bytes:
    crc = logs.crc32c(data)
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def fields(message: bytes) -> list[tuple[int, object]]:
    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not byte & 0x80:
                return value, at

    found, at = [], 0
    while at < len(message):
        tag, at = varint(at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", message, at)[0], at + 4
        else:
            length, at = varint(at)
            value, at = message[at : at + length], at + length
        found.append((tag >> 3, value))
    return found


def test_events_hold_the_scalars(tmp_path):
    events = logs.Events(tmp_path, 300, pytest.fail)
    events.scalars(301, {"qd_score": 1.5, "added/ga": float("nan")})
    events.close()
    version, start, scalars = map(dict, map(fields, records(events.path.read_bytes())))
    assert version[3] == b"brain.Event:2"
    assert (start[2], fields(start[7])) == (301, [(1, 1)])  # a session starts at this step
    assert scalars[2] == 301
    values = [dict(fields(value)) for _, value in fields(scalars[5])]
    assert [v[1] for v in values] == [b"qd_score", b"added/ga"]
    assert values[0][2] == 1.5
    assert np.isnan(values[1][2])
