"""Lines of text of which only those are repainted that have changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from textual.content import Content
from textual.events import Hide, Resize, Show
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.base.text import cells_left


class Line(Static):
    """Subclasses give the content for a width; `renew` repaints what differs."""

    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(Content(""), id=id, classes=classes)
        self.set_reactive(Line.auto_links, False)  # nothing is underlined, or repainted under the mouse
        self._said: Content | None = None

    def say(self, width: int) -> Content:
        """The content for a width in cells; newlines between lines."""
        raise NotImplementedError

    def render(self) -> Content:
        return self._said if self._said is not None else Content("")

    def renew(self) -> None:
        width = self.size.width
        if not width:
            return
        content, before = self.say(width), self._said
        if before is not None and content.is_same(before):
            return
        self._said = content
        now, then = content.split("\n"), () if before is None else before.split("\n")
        if len(now) != len(then):
            self.refresh(layout=self.styles.auto_dimensions)
        elif any(line.cell_length > width for line in (*now, *then)):
            # a wrapped line's number is not its row, and the old ones may have been wrapped
            self.refresh()
            if self.styles.auto_dimensions and _height(now, width) != _height(then, width):
                self.call_after_refresh(self.refresh, layout=True)  # a layout that is under way would swallow it
        else:
            pairs = enumerate(zip(now, then, strict=True))
            self.refresh(*(changed_cells(new, old, row) for row, (new, old) in pairs if not new.is_same(old)))

    def on_resize(self, event: Resize) -> None:
        """Another width may need other words, and another number of lines."""
        self.renew()
        if self.styles.auto_dimensions:
            self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Asks for its height once more: a layout that was under way has swallowed the first time."""
        width = self.size.width
        if width and self._said is not None and _height(self._said.split("\n"), width) != self.size.height:
            self.refresh(layout=True)


def changed_cells(new: Content, old: Content, row: int) -> Region:
    """From the first to the last cell in which two versions of a line differ: over SSH a figure is a few bytes, and a
    line some hundreds."""
    most = min(len(new), len(old))
    same = bisect_left(range(most), 1, key=lambda end: not new[: end + 1].is_same(old[: end + 1]))
    begin = new[:same].cell_length
    end = max(new.cell_length, old.cell_length)
    if new.cell_length == old.cell_length and len(new) == len(old):
        tail = bisect_left(
            range(most - same), 1, key=lambda back: not new[most - back - 1 :].is_same(old[most - back - 1 :])
        )
        end -= new[most - tail :].cell_length if tail else 0
    return Region(begin, row, max(1, end - begin), 1)


def _height(lines: Iterable[Content], width: int) -> int:
    """Rows that they take where long ones are broken."""
    return sum(max(1, len(line.wrap(width))) for line in lines)


def entitle(pane: Widget, title: Content | str, *, below: bool = False) -> None:
    """Puts a title on a pane's border, at its foot when it goes `below`.

    Setting it repaints all that is inside, even when it is the title it has.
    """
    content = title if isinstance(title, Content) else Content(title)
    name = "border_subtitle" if below else "border_title"
    if getattr(pane, name) != content.markup:
        setattr(pane, name, content)


def spread(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line; the left one is cut when they do not both fit."""
    room = cells_left(width, right.cell_length)
    if room <= 1:
        return left.truncate(width, ellipsis=True)
    left = left.truncate(room - 1, ellipsis=True)
    return Content.assemble(left, " " * cells_left(room, left.cell_length), right)


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
    head = Content.assemble(label.truncate(indent), " " * cells_left(indent, label.cell_length))
    return [Content.assemble(head if number == 0 else " " * indent, line) for number, line in enumerate(lines)]


def strip_of(widget: Widget, content: Content, width: int, style: Style | None = None) -> Strip:
    """One line of text in at most `width` cells, in the widget's own style unless another is given. For a width of none
    Textual gives no strip at all."""
    strips = Visual.to_strips(widget, content, width, 1, style or widget.visual_style, apply_selection=False)
    return strips[0] if strips else Strip.blank(0)


class VisibilityWidget(Widget):
    """Learns when it comes into view and when it leaves it, so that no timer runs for a hidden one."""

    def on_mount(self) -> None:
        self.app.screen_change_signal.subscribe(self, lambda _: self.visibility_changed(self.seen))

    def on_show(self, _: Show) -> None:
        self.visibility_changed(self.seen)

    def on_hide(self, _: Hide) -> None:
        self.visibility_changed(self.seen)

    def visibility_changed(self, seen: bool) -> None:
        """Starts or pauses timers."""

    @property
    def seen(self) -> bool:
        """Its screen is shown, with nothing but dialogs in front, and it is displayed."""
        stack = self.app.screen_stack
        if self.screen not in stack or not self.display:
            return False
        return all(isinstance(screen, ModalScreen) for screen in stack[stack.index(self.screen) + 1 :])
