"""A bar of a few text lines that repaints only when what it says has changed."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.events import Resize
from textual.widgets import Static


class Line(Static):
    """Subclasses say what stands there at a given width; `renew` repaints when that differs."""

    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(Content(""), id=id, classes=classes)
        self._said: Content | None = None

    def say(self, width: int) -> Content:
        """The content for a width in cells; newlines between lines."""
        raise NotImplementedError

    def renew(self) -> None:
        """Repaints if the content has changed."""
        width = self.size.width
        if not width:
            return
        content = self.say(width)
        if self._said is None or not content.is_same(self._said):
            taller = self._said is None or content.plain.count("\n") != self._said.plain.count("\n")
            self._said = content
            self.update(content, layout=taller and self.styles.auto_dimensions)

    def on_resize(self, event: Resize) -> None:
        """Another width may need other words."""
        self.renew()


def spread(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line; the left one is cut when they do not both fit."""
    room = width - right.cell_length
    if room <= 1:
        return left.truncate(width, ellipsis=True)
    left = left.truncate(room - 1, ellipsis=True)
    return Content.assemble(left, " " * (room - left.cell_length), right)


def packed(parts: Iterable[Content], gap: Content, width: int) -> list[Content]:
    """The parts in lines of that width, `gap` between two on one line; no part is broken."""
    lines: list[Content] = []
    for part in parts:
        if lines and lines[-1].cell_length + gap.cell_length + part.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], gap, part)
        else:
            lines.append(part)
    return lines


def hanging(label: Content, value: Content, indent: int, width: int) -> list[Content]:
    """`label` padded to `indent` cells, then `value` wrapped beside it."""
    room = max(8, width - indent)
    lines = value.wrap(room) or [Content("")]
    head = Content.assemble(label.truncate(indent), " " * max(0, indent - label.cell_length))
    return [Content.assemble(head if number == 0 else " " * indent, line) for number, line in enumerate(lines)]
