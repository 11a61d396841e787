"""A page of sections: labelled values, sentences, tables and commands, wrapped for the width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content

from spark_tui.domain.text import cell_width, clean, clean_line, truncate
from spark_tui.present.page import Cell, Section, Table, Tone, column_widths
from spark_tui.tui.format import LOUD, TONE_STYLES, cell
from spark_tui.tui.widgets.line import Line, hanging

MAX_VALUE = 2_000
"""Cells of one value that are shown: a file must not fill the screen."""
MAX_LABEL = 16
MAX_COMMAND_LINES = 500
CONTINUATION = 4
"""Cells by which the rest of a long command line is indented."""


def one_line(text: str, style: str = "") -> Content:
    """Text from outside, on one line and bounded."""
    return Content.styled(truncate(clean_line(text), MAX_VALUE), style)


class Page(Line):
    """Sections one under the other, a blank line between two. `most` bounds the lines of a row; 0: all of them."""

    def __init__(
        self,
        indent: int = 0,
        *,
        most: int = 0,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._indent = indent
        self._most = most
        self._sections: tuple[Section, ...] = ()

    def show(self, sections: Iterable[Section]) -> None:
        """Replaces what the page shows."""
        self._sections = tuple(sections)
        self.renew()

    def say(self, width: int) -> Content:
        """Everything, wrapped."""
        return Content("\n").join(page_lines(self._sections, width, self._most, self._indent))


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
            label = Content.styled(clean_line(row.label) + " " * bullet, f"bold {style}" if loud else "$dim")
            found = hanging(label, one_line(row.text, style), 2 if bullet else indent if row.label else 0, width)
            limit = 2 * most if most > 1 and (loud or row.label == "fix") else most
            if limit and len(found) > limit:
                found = [*found[: limit - 1], Content.assemble(found[limit - 1].truncate(max(1, width - 1)), "…")]
            lines += found
        if section.table is not None:
            lines += table_lines(section.table, width)
        lines += command_lines(section.command, width)
    return lines


def table_lines(table: Table, width: int) -> list[Content]:
    """Titles and rows, each at most `width` cells. Columns stand closer before one is left out."""
    if not table.rows:
        return one_line(table.empty, "$dim").wrap(max(8, width)) if table.empty else []
    gap = 2 if len(column_widths(table, width, 2)) == len(table.columns) else 1
    widths = column_widths(table, width, gap)
    titles = tuple(Cell(column.title, Tone.QUIET) for column in table.columns)
    *before, last = widths
    indent = sum(widths[at] + gap for at in before)
    lines: list[Content] = []
    for row in (titles, *table.rows) if any(column.title for column in table.columns) else table.rows:
        lead = Content.assemble(
            *(Content.assemble(cell(row[at], widths[at], right=table.columns[at].right), " " * gap) for at in before)
        )
        text = one_line(row[last].text, TONE_STYLES[row[last].tone])
        if table.columns[last].right:
            text = Content.assemble(" " * max(0, widths[last] - text.cell_length), text)
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
        option = body.partition(" ")[0] if body.startswith("-") else ""
        end = " \\" if body.endswith(" \\") else ""
        room = width - lead - len(end)
        first, *more = _broken(body.removesuffix(end), max(8, room), max(8, room - CONTINUATION))
        if more:
            more[-1] += end
        else:
            first += end
        lines.append(Content.assemble(" " * lead, (first[: len(option)], "$secondary"), first[len(option) :]))
        lines += [Content(" " * (lead + CONTINUATION) + part) for part in more]
    return lines


def _broken(text: str, first: int, later: int) -> list[str]:
    """`text` in lines of at most that many cells, broken after a blank or a separator near the end, else anywhere."""
    lines: list[str] = []
    room = first
    while cell_width(text) > room:
        cut = truncate(text, room, "")
        near = max(cut.rfind(mark) for mark in " /,:=") + 1
        at = near if near > len(cut) * 2 // 3 else max(1, len(cut))
        lines.append(text[:at].rstrip(" "))
        text = text[at:]
        room = later
    return [*lines, text]
