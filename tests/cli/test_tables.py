"""Tables: aligned by terminal cells, cut only where a window is too narrow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.cli.output import Cell, Column, Table, labelled
from spark_tui.domain.text import cell_width

COLUMNS = (Column("NAME"), Column("SIZE", right=True), Column("WHAT", flexible=True))
TEXT = st.text(max_size=30)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6)


def plain(text: str, style: str) -> str:
    return text


@given(ROWS)
def test_columns_line_up_whatever_the_cells_hold(rows: list[tuple[str, str, str]]) -> None:
    lines = Table(COLUMNS, tuple(rows)).render(None, lambda text, style: f"<{text}>" if style == "mark" else text)
    assert len(lines) == len(rows) + 1
    assert all("\n" not in line and "\x1b" not in line for line in lines)


@given(ROWS, st.integers(min_value=90, max_value=200))
def test_a_table_fits_its_window(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = Table(COLUMNS, tuple(rows)).render(width, plain)
    assert all(cell_width(line) <= width for line in lines)


def test_wide_characters_count_twice() -> None:
    table = Table((Column("A"), Column("B")), (("東京", "x"), ("ab", "y")))
    assert table.render(None, plain) == ["A     B", "東京  x", "ab    y"]


def test_only_the_flexible_column_is_cut() -> None:
    table = Table(COLUMNS, (("a" * 20, "123", "b" * 40),))
    (_, line) = table.render(50, plain)
    assert line == f"{'a' * 20}   123  {'b' * 21}…"


def test_in_a_narrow_window_spare_columns_go_before_a_name_is_cut() -> None:
    columns = (Column("NAME", flexible=True, name=True), Column("A", spare=1), Column("B", spare=2))
    table = Table(columns, (("n" * 30, "a" * 8, "b" * 8),))
    assert table.render(50, plain)[0].split() == ["NAME", "A", "B"]
    assert table.render(49, plain) == ["NAME                            A", f"{'n' * 30}  {'a' * 8}"]
    assert table.render(39, plain) == ["NAME", "n" * 30]
    assert table.render(20, plain) == ["NAME", f"{'n' * 19}…"]
    assert len(table.render(None, plain)[0].split()) == 3, "in a pipe nothing is left out"


def test_a_style_does_not_move_the_columns() -> None:
    table = Table((Column("A"), Column("B")), ((Cell("x", "red"), "1"), ("long", "2")))
    lines = table.render(None, lambda text, style: f"\x1b[31m{text}\x1b[0m" if style == "red" else text)
    assert lines[1] == "\x1b[31mx\x1b[0m     1"


def test_labels_are_aligned_and_empty_values_left_out() -> None:
    assert labelled((("a", "1"), ("long", "2"), ("none", ""))) == ["a     1", "long  2"]
