"""The progress display: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from elites.training import display
from program import POINT, environment

# Every field of the progress line, whole or left out.
LINE = re.compile(
    r"(\[[#.]+\]  )?\d+/\d+(  \d+\.\d (iterations/s|s/iteration))?(  [\d,]+ evaluations)?"
    r"(  QD-score -?[\d,]+)?(  coverage \d+\.\d %)?(  (\d+ (h|min|s) ?)+ left)?"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_changes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    shown = display.Display(10, stream=stream)
    with shown.compiling():
        pass
    shown.update(10, 5000, 123456.0, 0.5)
    shown.close()
    text = stream.getvalue()
    assert re.search(r"compiled in \d+\.\d s", text)
    last = text.splitlines()[-1].rpartition("\x1b[K")[2]
    assert last.startswith("[##########]  10/10")
    for words in ("5,000 evaluations", "QD-score 123,456", "coverage 50.0 %", "0 s left"):
        assert words in last
    assert text.endswith("\n")


def shown_at(width: int, monkeypatch, **metrics: float) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    display.Display(3906, stream=stream).update(1234, **metrics)
    return stream.getvalue().rpartition("\x1b[K")[2]


def test_a_narrow_terminal_gets_fewer_fields_but_whole_ones(monkeypatch):
    for width in range(20, 121):
        line = shown_at(width, monkeypatch, evaluations=315904, qd_score=1234567.0, coverage=0.5)
        assert len(line) < width
        assert LINE.fullmatch(line), line
        assert "1234/3906" in line


def test_eighty_columns_show_what_matters_most(monkeypatch):
    line = shown_at(80, monkeypatch, evaluations=315904, qd_score=1234567.0, coverage=0.5)
    assert line.startswith("[###.......]  1234/3906  QD-score 1,234,567  coverage 50.0 %  ")
    assert line.endswith(" left")


def run_on_terminal(columns: int, *arguments: object) -> str:
    """Run the command with its stderr on a terminal of that width; return what it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "elites", *map(str, arguments)]
    environ = {k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": theirs}
    with subprocess.Popen(command, env=environ, **quiet) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while part := os.read(ours, 4096):
                written += part
    os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


def test_the_command_never_cuts_a_number(tmp_path):
    text = run_on_terminal(80, "train", *POINT, "--output", tmp_path / "run")
    shown = [state.splitlines()[0] for state in text.split("\r\x1b[K") if state.strip()]
    states = [state for state in shown if re.search(r"\d/9", state)]
    assert "9/9" in states[-1]
    for state in states:
        assert LINE.fullmatch(state), state
        assert len(state) < 80


def test_a_notebook_overwrites_what_it_cannot_erase():
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    assert display.can_overwrite(stream)
    shown = display.Display(10, stream=stream)
    shown._show("a long line")
    shown._show("short")
    shown.say("told")
    assert stream.getvalue() == "\ra long line\rshort      \r     \rtold\n"


def test_elsewhere_there_are_plain_lines():
    stream = io.StringIO()
    shown = display.Display(3, stream=stream)
    with shown.compiling():
        pass
    for i in (1, 2, 3):
        shown.update(i, 10 * i, 1.0, 0.1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "compiling"
    assert lines[1].startswith("compiled in")
    # the first, and the last; those between come too soon after each other
    assert [line.split()[0] for line in lines[2:]] == ["1/3", "3/3"]
    assert "\x1b" not in stream.getvalue()


def test_a_closed_stream_is_no_reason_to_stop():
    stream = io.StringIO()
    shown = display.Display(3, stream=stream)
    stream.close()
    shown.say("x")
    shown.update(3, 1, 1.0, 0.1)
    shown.close()


def test_slow_iterations_are_told_in_seconds():
    assert display._speed(0.4) == "2.5 s/iteration"
    assert display._speed(12.34) == "12.3 iterations/s"
