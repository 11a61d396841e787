"""What is left of hostile text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.text import cell_width, clean, clean_line, last_overwrite, strip_sequences, truncate
from tests.cases import all_cases

ANY = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=200)
NASTY = st.text(alphabet="\x1b\x07\x9c\x9d\x9b\x90[]()\\;0m \r\n\tabX\u202e", max_size=200)


@all_cases(
    ("raw", "left"),
    [
        ("\x1b[0;36m(APIServer pid=1)\x1b[0;0m ok", "(APIServer pid=1) ok"),
        ("\x1b]0;owned\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1bcreset", "reset"),
        ("\x1b(0lqk", "lqk"),
        ("a\x00b\x08c\x7fd\x85e", "abcde"),
        ("abc\u202etxt.exe", "abctxt.exe"),
        ("tag\U000e0041\U000e0042s", "tags"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("[/red] [@click=app.quit]x[/]", "[/red] [@click=app.quit]x[/]"),
        ("tab\tand\nnewline", "tab\tand\nnewline"),
        ("日本語 ok", "日本語 ok"),
    ],
)
def test_control_codes_go_and_text_stays(raw: str, left: str) -> None:
    assert clean(raw) == left


def test_a_string_sequence_that_never_ends_does_not_swallow_the_line() -> None:
    assert clean("\x1b]0;ERROR: disk full") == "0;ERROR: disk full"
    assert clean("\x9dERROR: disk full") == "ERROR: disk full"


@given(ANY | NASTY)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for char in clean(text):
        assert char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")


@given(ANY | NASTY)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(ANY | NASTY)
def test_a_cleaned_line_is_one_encodable_line(text: str) -> None:
    line = clean_line(text)
    assert len(line.splitlines()) <= 1
    line.encode()


@given(st.text(max_size=100))
def test_printable_text_is_left_alone(text: str) -> None:
    if text.isprintable():
        assert clean_line(text) == text


def test_stripping_sequences_keeps_carriage_returns() -> None:
    assert strip_sequences("\x1b[32mINFO\x1b[0m x\r") == "INFO x\r"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("ended\r", "ended"),
        ("ended\r\r", "ended"),
        ("\r 10%\r 50%\r100%", "100%"),
        ("\r\r", ""),
    ],
)
def test_the_last_overwrite_is_what_a_terminal_shows(line: str, shown: str) -> None:
    assert last_overwrite(line) == shown


@pytest.mark.parametrize(
    ("text", "cells", "cut"),
    [
        ("short", 10, "short"),
        ("exactly", 7, "exactly"),
        ("too long", 5, "too …"),
        ("日本語です", 10, "日本語です"),
        ("日本語です", 6, "日本…"),
        ("日本語です", 5, "日本…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_truncate_counts_cells(text: str, cells: int, cut: str) -> None:
    assert truncate(text, cells) == cut


@given(st.text(max_size=80), st.integers(0, 60))
def test_truncated_text_fits(text: str, cells: int) -> None:
    assert cell_width(truncate(text, cells)) <= cells


@pytest.mark.parametrize("unit", ["\x1b]", "\x9d", "\x1b[", "\x9b", "\x1b", "\x90x", "\x1b]x\x9d", "\x1b[;", "\r"])
def test_a_megabyte_of_introducers_is_cleaned_in_one_pass(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    clean_line(text)
    last_overwrite(text)
    assert time.process_time() - start < 2
