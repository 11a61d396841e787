"""A menu that is searched by typing: each row is something to do, with its key; Enter or a click does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, ClassVar, Final

from msgspec import Struct
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.widget import Widget
from textual.widgets import Input

from spark_tui.base.page import Cell, Column, Table, Tone
from spark_tui.base.text import cell_width, clean_line, truncate
from spark_tui.tui.format import key_hints
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.row_list import RowList

MENU_CSS = Path(__file__).with_name("menu.tcss")  # absolute: a room may derive a dialog
MOST_LABEL: Final = 40
LEAST_DETAIL: Final = 24
BESIDE: Final = 16
"""Cells of the dialog's width that labels and details do not have: frame, cursor, gaps, scroll bar."""


class MenuEntry(Struct, frozen=True):
    """One row. `id` stays the same from run to run; `run` does it. `cli` is the command that does the same, `words`
    are others by which it is looked for."""

    id: str
    group: str
    label: str
    detail: str
    key: str
    run: Callable[[], object]
    cli: str = ""
    words: str = ""

    def start(self, app: App[Any]) -> None:
        """Does it; what takes its time in a worker."""
        done = self.run()
        if isawaitable(done):
            app.run_worker(done, exit_on_error=False, group="menu")


def rank(found: Sequence[MenuEntry], typed: str, recent: Sequence[str]) -> list[MenuEntry]:
    """Those that every typed word finds, the best first; what was used lately before its equals. Without words: what
    was used lately, then all in their order."""
    words, late = typed.lower().split(), {id_: len(recent) - at for at, id_ in enumerate(recent)}
    if not words:
        return sorted(found, key=lambda each: -late.get(each.id, 0))
    scored = []
    for each in found:
        label = each.label.lower()
        rest = f"{each.detail} {each.group} {each.id} {each.words} {each.cli}".lower()
        points = [max(2 * _likeness(word, label), _likeness(word, rest, whole=True)) for word in words]
        if all(points):
            scored.append((sum(points) + late.get(each.id, 0) / 10, each))
    return [each for _, each in sorted(scored, key=lambda pair: -pair[0])]


def _likeness(word: str, text: str, *, whole: bool = False) -> float:
    """How well a word is found in a text: at the start of a word, inside one, or letter by letter; 0 not at all.
    `whole`: not letter by letter, which finds something in every long text."""
    begun = re.search(rf"(?<![^\W_]){re.escape(word)}", text)
    if begun is not None:
        return 30.0 - min(begun.start(), 20) / 10
    at = text.rfind(word)
    if at >= 0:
        return 20.0 - min(at, 20) / 10
    if whole:
        return 0.0
    place, gaps = -1, 0
    for letter in word:
        here = text.find(letter, place + 1)
        if here < 0:
            return 0.0
        gaps += here - place - 1 if place >= 0 else 0
        place = here
    return max(1.0, 10.0 - gaps)


class MenuRows(RowList, can_focus=False):
    """The field keeps the focus; a click on a row does it."""

    async def on_click(self, event: Click) -> None:
        event.prevent_default()  # the list's own comes first, not after this
        await super().on_click(event)
        if isinstance(self._line_at(event.y), int):
            self.screen.action_choose()  # type: ignore[attr-defined]


class Menu(QuietModal[MenuEntry | None]):
    """A field, and below it what the typed words find. Answers what was chosen, None when the person went back.

    `recent` are the ids of what was chosen last, which come first.
    """

    CSS_PATH: ClassVar = [MENU_CSS]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "cancel", "Close", priority=True),
        Binding("up", "list('move', -1)", "Up", show=False, priority=True),
        Binding("down", "list('move', 1)", "Down", show=False, priority=True),
        Binding("pageup", "list('page', -1)", "Page up", show=False, priority=True),
        Binding("pagedown", "list('page', 1)", "Page down", show=False, priority=True),
    ]
    MOST_WIDTH: ClassVar[int] = 100
    """Cells of the dialog."""

    def __init__(
        self,
        title: str,
        found: Iterable[MenuEntry],
        *,
        placeholder: str = "",
        recent: Sequence[str] = (),
        name: str = "menu",
    ) -> None:
        super().__init__(name)
        self._title, self._placeholder, self._recent = title, placeholder, tuple(recent)
        self._found = {each.id: each for each in found}
        self._room = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = self._title
            dialog.border_subtitle = key_hints(self.hints())
            yield Input(placeholder=self._placeholder, compact=True)
            yield MenuRows(id="entries")
            yield from self.foot()

    def hints(self) -> str:
        """The keys on the frame."""
        return "Enter run  Esc close"

    def foot(self) -> Iterable[Widget]:
        """What stands below the list."""
        return ()

    def on_resize(self) -> None:
        self._room = max(20, min(self.MOST_WIDTH, self.app.size.width * 96 // 100) - BESIDE)
        self._show(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, typed: str) -> None:
        every = self._found.values()
        found = rank(tuple(every), typed, self._recent)
        groups = tuple("Recent" if each.id in self._recent else each.group for each in found) if not typed else ()
        key = max((len(each.key) for each in every), default=0)
        label = min(MOST_LABEL, self._room // 2, max((cell_width(each.label) for each in every), default=0))
        cli = max((cell_width(each.cli) for each in every), default=0)
        detail = max((cell_width(each.detail) for each in every), default=0)
        if key + label + detail + cli > self._room:  # a command is whole, or it is not there
            cli = cli if key + label + LEAST_DETAIL + cli <= self._room else 0
        detail = self._room - key - label - cli
        rows = tuple(  # padded: the columns stay where they are while somebody types
            (
                Cell(each.key.ljust(key), Tone.GOOD),
                Cell(truncate(each.label, label).ljust(label), Tone.STRONG),
                Cell(truncate(clean_line(each.detail), detail).ljust(detail), Tone.QUIET),
                Cell(each.cli if cli else ""),
            )
            for each in found
        )
        columns = (Column(""), Column("", least=8), Column("", keep=1, least=8), Column("", keep=1))
        rows_list = self.query_one(MenuRows)
        rows_list.show_table(Table(columns, rows, tuple(each.id for each in found), "No matches.", groups))
        rows_list.action_edge(-1)

    def action_list(self, what: str, step: int) -> None:
        rows = self.query_one(MenuRows)
        (rows.action_move if what == "move" else rows.action_page)(step)

    def on_input_submitted(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        self.dismiss(self._found.get(self.query_one(MenuRows).key))
