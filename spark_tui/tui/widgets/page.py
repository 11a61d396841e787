"""A text of labelled values, sentences and commands, wrapped anew for every width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from textual.content import Content

from spark_tui.domain.text import cell_width, clean, clean_line, truncate
from spark_tui.tui.widgets.line import Line, hanging

MAX_VALUE = 2_000
"""Cells of one value that are shown: longer ones are cut, so that a file cannot fill the screen for ever."""
MAX_COMMAND_LINES = 500
CONTINUATION = 4
"""Cells by which the rest of a long line stands further in than its beginning."""

Part: TypeAlias = tuple[Content, Content]
"""What stands on the left (a label, a bullet, nothing), and the text that is wrapped beside it."""


def told(text: str, style: str = "") -> Content:
    """Text from outside, on one line and bounded."""
    return Content.styled(truncate(clean_line(text), MAX_VALUE), style)


def sentence(text: str, style: str = "", *, bullet: str = "") -> Part:
    """A sentence that uses the whole width, with a bullet or without."""
    return Content(bullet), told(text, style)


BLANK: Part = (Content(""), Content(""))


class Page(Line):
    """Parts one under the other, with their continuation lines indented; then a command, if there is one.

    `indent` is the width of the labels; a part whose label is empty or a bullet is indented only by that.
    """

    def __init__(self, indent: int, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._indent = indent
        self._parts: tuple[Part, ...] = ()
        self._command = ""

    def tell(self, parts: Iterable[Part], command: str = "") -> None:
        """Replaces what it says."""
        self._parts, self._command = tuple(parts), command
        self.renew()

    def say(self, width: int) -> Content:
        """Everything, wrapped."""
        lines: list[Content] = []
        for label, value in self._parts:
            own = label.cell_length
            lines += hanging(label, value, own if own <= 2 else self._indent, width)
        return Content("\n").join([*lines, *command_lines(self._command, width)])


def command_lines(text: str, width: int) -> Sequence[Content]:
    """A shell command for reading: long lines go on further in. For copying, take the text itself."""
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
