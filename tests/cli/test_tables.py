"""Tables and pages on a terminal: aligned by cells, cut or wrapped only where a window is too narrow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.page import Cell, Column, Row, Section, Table, Tone, cells
from spark_tui.base.text import cell_width
from spark_tui.cli.output import labelled, page_lines, plain, table_lines

COLUMNS = (Column("NAME"), Column("SIZE", right=True), Column("WHAT", least=12))
TEXT = st.text(max_size=30)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT).map(lambda row: cells(*row)), max_size=6)


@given(ROWS, st.integers(min_value=90, max_value=200))
def test_columns_line_up_and_fit_the_window_whatever_the_cells_hold(rows: list[tuple[Cell, ...]], width: int) -> None:
    table = Table(COLUMNS, tuple(rows))
    lines = table_lines(table, None, plain)
    assert len(lines) == len(rows) + 1
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    assert all(cell_width(line) <= width for line in table_lines(table, width, plain))


def test_wide_characters_count_twice_and_a_tone_moves_nothing() -> None:
    table = Table((Column("A"), Column("B")), (cells(Cell("東京", Tone.BAD), "x"), cells("ab", "y")))
    assert table_lines(table, None, plain) == ["A     B", "東京  x", "ab    y"]
    painted = table_lines(table, None, lambda text, style: f"<{text}>" if style == "bold red" else text)
    assert painted[1] == "<東京>  x"


def test_only_the_flexible_column_is_cut() -> None:
    table = Table(COLUMNS, (cells("a" * 20, "123", "b" * 40),))
    (_, line) = table_lines(table, 50, plain)
    assert line == f"{'a' * 20}   123  {'b' * 21}…"


def test_an_extra_column_gives_way_where_that_keeps_another_whole() -> None:
    columns = (Column("NAME", least=4), Column("FITS", keep=8, least=4), Column("QUANT", keep=3))
    table = Table(columns, (cells("preset", "stop qwen3.6-35b", "NVFP4"),))
    assert table_lines(table, 24, plain)[1] == "preset  stop qwen3.6-35b"
    assert table_lines(table, 18, plain)[1] == "pres…  sto…  NVFP4", "it would be cut without the extra one too"


def test_in_a_narrow_window_columns_are_left_out_before_a_name_is_cut() -> None:
    columns = (Column("NAME", least=28), Column("A", keep=8), Column("B", keep=7))
    table = Table(columns, (cells("n" * 30, "a" * 8, "b" * 8),))
    assert table_lines(table, 50, plain)[0].split() == ["NAME", "A", "B"]
    assert table_lines(table, 47, plain) == ["NAME                            A", f"{'n' * 30}  {'a' * 8}"]
    assert table_lines(table, 37, plain) == ["NAME", "n" * 30]
    assert table_lines(table, 29, plain) == ["NAME", f"{'n' * 28}…"]
    assert len(table_lines(table, None, plain)[0].split()) == 3, "in a pipe nothing is left out"


def test_a_page_aligns_its_labels_wraps_its_rows_and_never_wraps_a_command() -> None:
    rows = (Row("one two three four five", "a"), Row("1", "long"), Row("item", "-"), Row("2", "a label"))
    page = (Section("Title", rows[1:]), Section(command="docker run \\\n  --name a-very-long-name-of-an-engine"))
    assert page_lines(page, 24, plain) == [
        "Title", "long     1", "  - item", "a label  2", "",
        "  docker run \\", "    --name a-very-long-name-of-an-engine",
    ]  # fmt: skip
    assert labelled((("aa", "1"), ("long", "2"), ("none", ""))) == ["aa    1", "long  2"]
    wrapped = page_lines((Section(rows=(Row("one two three four five six", "ab"),)),), 20, plain)
    assert wrapped == ["ab  one two three four", "    five six"]
