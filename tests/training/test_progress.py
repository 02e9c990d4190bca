"""What the terminal shows: a line that changes, or plain lines where there is none."""

from __future__ import annotations

import io
import re

from elites.training import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_changes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    shown = progress.Progress(10, stream=stream)
    with shown.compiling():
        pass
    shown.update(10, 5000, 123456.0, 0.5)
    shown.close()
    text = stream.getvalue()
    assert re.search(r"compiled in \d+\.\d s", text)
    last = text.splitlines()[-1].rpartition("\x1b[K")[2]
    assert last.startswith("[####################] 10/10")
    for words in ("5,000 evaluations", "QD-score 123,456", "coverage 50.0 %", "0 s left"):
        assert words in last
    assert text.endswith("\n")


def test_a_narrow_terminal_is_not_overflown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress.Progress(10, stream=stream).update(3, 5000, 123456.0, 0.5)
    assert len(stream.getvalue().rpartition("\x1b[K")[2]) < 30


def test_a_notebook_overwrites_what_it_cannot_erase():
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    assert progress.can_overwrite(stream)
    shown = progress.Progress(10, stream=stream)
    shown._show("a long line")
    shown._show("short")
    shown.say("told")
    assert stream.getvalue() == "\ra long line\rshort      \r     \rtold\n"


def test_elsewhere_there_are_plain_lines():
    stream = io.StringIO()
    shown = progress.Progress(3, stream=stream)
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
    shown = progress.Progress(3, stream=stream)
    stream.close()
    shown.say("x")
    shown.update(3, 1, 1.0, 0.1)
    shown.close()


def test_slow_iterations_are_told_in_seconds():
    assert progress._speed(0.4) == "2.5 s/iteration"
    assert progress._speed(12.34) == "12.3 iterations/s"
