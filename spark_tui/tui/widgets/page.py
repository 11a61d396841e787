"""A page of sections: labelled values, sentences, tables and commands, wrapped for the width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from textual.content import Content

from spark_tui.base.page import Cell, Row, Section, Table, Tone, column_widths
from spark_tui.base.text import cell_width, cells_left, clean, clean_line, truncate
from spark_tui.tui.format import LOUD, TONE_STYLES, UNICODE, Glyphs, cell, column_titles
from spark_tui.tui.widgets.line import Line, hanging

MAX_VALUE = 2_000
"""Cells of one value that are shown: a file must not fill the screen."""
MAX_LABEL = 16
MAX_COMMAND_LINES = 500
SIGN_STYLES = {"●": "$success", "!": "bold $warning"}
OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*(?=\s|=|$)")
DENSE_INDENT = 2
BREAK, DENSE_BREAK = 2 / 3, 0.8
"""The share of a line from which on it may be broken after a blank or a separator."""
CONTINUATION = 4
"""Cells by which the rest of a long command line is indented."""


def one_line(text: str, style: str = "") -> Content:
    """Text from outside, on one line and bounded."""
    return Content.styled(truncate(clean_line(text), MAX_VALUE), style)


class Page(Line):
    """Sections one under the other, a blank line between two. `most` bounds the lines of a row; 0: all of them.
    `dense`: as much as fits on a line, for a page beside a list."""

    def __init__(
        self,
        indent: int = 0,
        *,
        most: int = 0,
        dense: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._indent = indent
        self.most = most
        self._dense = dense
        self._sections: tuple[Section, ...] = ()

    def show(self, sections: Iterable[Section]) -> None:
        """Replaces what the page shows."""
        self._sections = tuple(sections)
        self.renew()

    def say(self, width: int) -> Content:
        """Everything, wrapped."""
        if self._dense:
            glyphs: Glyphs = getattr(self.app, "glyphs", UNICODE)
            return Content("\n").join(dense_lines(self._sections, width, glyphs.separator))
        return Content("\n").join(page_lines(self._sections, width, self.most, self._indent))


def page_lines(sections: Sequence[Section], width: int, most: int = 0, indent: int = 0) -> list[Content]:
    """The lines of a page; its labels have one column, at least `indent` wide. Of a row at most `most` lines, of a loud
    one and of a fix twice as many; 0: all of them."""
    labels = [cell_width(row.label) for section in sections for row in section.rows]
    indent = max(indent, min(MAX_LABEL, max(labels, default=0)) + 2)
    lines: list[Content] = []
    for number, section in enumerate(sections):
        if number:
            lines.append(Content(""))
        if section.title:
            lines += one_line(section.title, "bold").wrap(max(8, width))
        for row in section.rows:
            style = TONE_STYLES[row.tone]
            bullet = cell_width(row.label) == 1
            loud = row.tone in LOUD and not bullet
            quiet = SIGN_STYLES.get(row.label, "$dim")
            label = Content.styled(clean_line(row.label) + " " * bullet, f"bold {style}" if loud else quiet)
            lead, text = 2 if bullet else indent if row.label else 0, one_line(row.text, style)
            if most == 1 and not (loud or row.label == "fix"):
                text = text.truncate(max(8, width - lead), ellipsis=True)
            found = hanging(label, text, lead, width)
            limit = 2 * most if most > 1 and (loud or row.label == "fix") else most
            if limit and len(found) > limit:
                found = [*found[: limit - 1], Content.assemble(found[limit - 1].truncate(max(1, width - 1)), "…")]
            lines += found
        if section.table is not None:
            lines += table_lines(section.table, width)
        lines += command_lines(section.command, width)
    return lines


def dense_lines(sections: Sequence[Section], width: int, separator: str) -> list[Content]:
    """The lines of a page without columns: sentences follow one another (the first one its title), and labelled values
    share lines, none broken that fits one; notes and warnings have lines of their own."""
    lines: list[Content] = []
    between = Content.styled(f" {separator} ", "$rule")
    for section in sections:
        flow = one_line(section.title, "bold")
        if flow and not (section.rows and not section.rows[0].label):
            lines += flow.wrap(max(8, width))
            flow = Content("")
        for kind, rows in groupby(section.rows, _dense_kind):
            if kind == "sentence":
                texts = [one_line(row.text, TONE_STYLES[row.tone]) for row in rows]
                lines += Content(" ").join([flow, *texts] if flow else texts).wrap(max(8, width))
                flow = Content("")
            elif kind == "value":
                pairs = [
                    Content.assemble((f"{clean_line(row.label)} ", "$dim"), one_line(row.text, TONE_STYLES[row.tone]))
                    for row in rows
                ]
                lines += _shelved(pairs, between, width)
            else:
                lines += page_lines((Section(rows=tuple(rows)),), width)
        if section.table is not None:
            lines += table_lines(section.table, width)
        if section.command:
            lines += dense_command(section.command, width)
    return lines


def _dense_kind(row: Row) -> str:
    if not row.label:
        return "sentence"
    return "own" if row.tone in LOUD or cell_width(row.label) == 1 else "value"


def _shelved(pairs: Iterable[Content], between: Content, width: int) -> list[Content]:
    """The labelled values in few lines: each ends the first line that has room for it, or begins one. A value that is
    too long for a line leaves its last one open to others."""
    lines: list[Content] = []
    open_: list[int] = []
    for pair in pairs:
        at = next((at for at in open_ if lines[at].cell_length + between.cell_length + pair.cell_length <= width), None)
        if at is None:
            lines += pair.wrap(max(8, width))
            open_.append(len(lines) - 1)
        else:
            lines[at] = Content.assemble(lines[at], between, pair)
    return lines


def dense_command(text: str, width: int) -> list[Content]:
    """A shell command with as many options on a line as there is room for; a longer one continues indented."""
    lines: list[str] = []
    for line in clean(text).split(" \\\n") if text else ():
        option = truncate(" ".join(line.split()), MAX_VALUE)
        if lines and cell_width(lines[-1]) + 1 + cell_width(option) <= width:
            lines[-1] += f" {option}"
        else:
            first, *more = _broken(option, max(8, width), max(8, width - DENSE_INDENT), DENSE_BREAK)
            lines += [first, *(" " * DENSE_INDENT + part for part in more)]
    return [_options(line) for line in lines[:MAX_COMMAND_LINES]]


def table_lines(table: Table, width: int) -> list[Content]:
    """Titles and rows, each at most `width` cells. Columns stand closer before one is left out."""
    if not table.rows:
        return one_line(table.empty, "$dim").wrap(max(8, width)) if table.empty else []
    gap = 2 if len(column_widths(table, width, 2)) == len(table.columns) else 1
    widths = column_widths(table, width, gap)
    titles = tuple(Cell(title, Tone.QUIET) for title in column_titles(table))
    *before, last = widths
    indent = sum(widths[at] + gap for at in before)
    lines: list[Content] = []
    for row in (titles, *table.rows) if any(column.title for column in table.columns) else table.rows:
        lead = Content.assemble(
            *(Content.assemble(cell(row[at], widths[at], right=table.columns[at].right), " " * gap) for at in before)
        )
        text = one_line(row[last].text, TONE_STYLES[row[last].tone])
        if table.columns[last].right:
            text = Content.assemble(" " * cells_left(widths[last], text.cell_length), text)
        lines += hanging(lead, text, indent, width)
    return lines


def command_lines(text: str, width: int) -> Sequence[Content]:
    """A shell command for reading: long lines continue indented. For copying, take the text itself."""
    if not text:
        return ()
    lines: list[Content] = []
    for line in clean(text).split("\n")[:MAX_COMMAND_LINES]:
        body = truncate(line.replace("\t", " ").lstrip(" "), MAX_VALUE)
        lead = min(len(line) - len(line.lstrip(" ")), 20)
        end = " \\" if body.endswith(" \\") else ""
        room = width - lead - len(end)
        first, *more = _broken(body.removesuffix(end), max(8, room), max(8, room - CONTINUATION))
        if more:
            more[-1] += end
        else:
            first += end
        lines.append(_options(" " * lead + first))
        lines += [_options(" " * (lead + CONTINUATION) + part) for part in more]
    return lines


def _options(line: str) -> Content:
    """A line of a command, its options coloured."""
    content = Content(line)
    for found in OPTION.finditer(line):
        content = content.stylize("$secondary", *found.span())
    return content


def _broken(text: str, first: int, later: int, least: float = BREAK) -> list[str]:
    """`text` in lines of at most that many cells, broken after a blank or a separator near the end, else anywhere."""
    lines: list[str] = []
    room = first
    while cell_width(text) > room:
        cut = truncate(text, room, "")
        near = max(cut.rfind(mark) for mark in " /,:=") + 1
        at = near if near > len(cut) * least else max(1, len(cut))
        lines.append(text[:at].rstrip(" "))
        text = text[at:]
        room = later
    return [*lines, text]
