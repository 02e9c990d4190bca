"""Text for people."""

import pytest

from elites import words


@pytest.mark.parametrize(
    ("count", "text"),
    [(3, "3 B"), (4096, "4.1 kB"), (383e6, "383 MB"), (2.5e13, "25 TB"), (3e18, "3,000,000 TB")],
)
def test_amounts_can_be_read(count, text):
    assert words.amount(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_times_can_be_read(seconds, text):
    assert words.duration(seconds) == text


def test_counted_things():
    assert words.counted(1, "seed") == "1 seed"
    assert words.counted(0, "seed") == "0 seeds"
    assert words.counted(8, "seed") == "8 seeds"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([7, 5, 4, 6], "4 to 7"),
        ([4, 5, 6, 7, 9], "4 to 7 and 9"),
        ([1, 3, 5, 7], "1, 3, 5 and 7"),
        ([1, 3, 5, 7, 9, 10], "1, 3, 5, 7 and 2 more"),
    ],
)
def test_many_numbers_are_few_ranges(numbers, text):
    assert words.spans(words.ranges(numbers)) == text


def test_columns_are_aligned():
    assert words.columns([["a", "1"], ["bcd", "100"]], right=(1,)) == ["a      1", "bcd  100"]


def test_a_text_is_cut_between_words():
    text = "me-0  running  1234/3906, 3 min 20 s left"
    assert words.shortened(text, len(text)) == text
    for width in range(5, len(text)):
        cut = words.shortened(text, width)
        assert len(cut) <= width
        assert cut.endswith("…")
        assert text.startswith(cut.removesuffix("…"))
        assert text[len(cut) - 1] == " " or " " not in text[:width]
