"""The palette: actions, engines, presets, models and settings by name, each with its key; and the choice of a theme."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import ClassVar, Final

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from spark_tui.app.config.show import value_text
from spark_tui.base.actions import Scope, action, allowed, key_of, known_actions
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import value_of
from spark_tui.base.page import Cell, Column, Row, Section, Table, Tone, cells
from spark_tui.base.settings import KEYS, THEME_NAMES
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.machine.settings import config_of, user_themes
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.frame import FrameApp, FrameScreen
from spark_tui.tui.list_screen import go
from spark_tui.tui.modals import TextDialog
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.themes import own_theme
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList

NOT_LISTED: Final = ("command_palette", "help_anywhere")
"""The palette itself; and the help a second time."""
RECENT_FILE: Final = "palette-recent"
MOST_RECENT: Final = 8
MOST_LABEL: Final = 40
MOST_WIDTH: Final = 100
BESIDE: Final = 16
"""Cells of the dialog's width that labels and details do not have: frame, cursor, gaps, key, scroll bar."""
IN_TABLES: Final = ("keymap", "hosts", "clusters")
"""Settings with many values, which have commands of their own."""
ENGINE_VERBS: Final = (
    # verb, mode, action there, whether it needs a running engine
    ("open", "home", "", False),
    ("logs", "logs", "", False),
    ("metrics", "metrics", "", True),
    ("chat", "chat", "", True),
    ("bench", "bench", "start_bench", True),
    ("edit", "home", "edit_engine", True),
    ("stop", "home", "stop", True),
    ("restart", "home", "restart", False),
)


class PaletteEntry(Struct, frozen=True):
    """One row. `id` stays the same from run to run; `run` does it."""

    id: str
    group: str
    label: str
    detail: str
    key: str
    run: Callable[[], object]


def entries(app: FrameApp) -> Iterator[PaletteEntry]:
    """All that can be done now: on this screen, everywhere, and to each thing by its name."""
    yield from _actions(app)
    yield from _engines(app)
    yield from _presets(app)
    library = value_of(app.world[LIBRARY])
    for each in library.entries if library is not None else ():
        id_, detail = each.model.id, each.model.completeness.value
        yield PaletteEntry(f"model {id_}", "Models", clean_line(id_), detail, "", partial(go, app, "models", row=id_))
    yield PaletteEntry("theme", "Settings", "theme", "choose with a preview", "", partial(choose_theme, app))
    for key in KEYS:
        if key not in (*IN_TABLES, "theme"):
            value = value_text(getattr(app.context.settings, key))
            yield PaletteEntry(
                f"setting {key}", "Settings", key, value or "not set", "", partial(change_setting, app, key)
            )


def _actions(app: FrameApp) -> Iterator[PaletteEntry]:
    screen, named = app.screen, set[str]()
    scope = getattr(screen, "SCOPE", Scope.GLOBAL)
    known = allowed(known_actions(), read_only=app.context.settings.read_only)
    for each in sorted(known, key=lambda each: each.scope == Scope.GLOBAL):
        offered = not isinstance(screen, FrameScreen) or screen.offers(each.id)
        if each.scope in (scope, Scope.GLOBAL) and each.id not in NOT_LISTED and each.label not in named and offered:
            named.add(each.label)  # of two with the same label, the screen's own does it
            name = each.id if hasattr(screen, f"action_{each.id}") else f"app.{each.id}"
            group = "Everywhere" if each.scope == Scope.GLOBAL else str(each.scope)
            yield PaletteEntry(each.id, group, each.label, each.help, key_of(each.id), partial(screen.run_action, name))


def _engines(app: FrameApp) -> Iterator[PaletteEntry]:
    for view in app.world.known(ENGINES):
        name = clean_line(view.name)
        for verb, mode, id_, running in ENGINE_VERBS:
            if running and not view.container.running:
                continue
            if id_ and action(id_).dangerous and app.context.settings.read_only:
                continue
            run = partial(go, app, mode, id_, engine=view.name)
            yield PaletteEntry(
                f"{verb} {view.name}", "Engines", f"{name}  {verb}", "", key_of(id_ or f"show_{mode}"), run
            )


def _presets(app: FrameApp) -> Iterator[PaletteEntry]:
    may_launch = not app.context.settings.read_only
    for preset in app.world[PRESETS].presets:
        name, title = clean_line(preset.name), clean_line(preset.facts.title)
        if may_launch:
            run = partial(launch, app, preset)
            yield PaletteEntry(f"launch {name}", "Presets", f"{name}  launch", title, key_of("launch_preset"), run)
        show = partial(go, app, "presets", row=preset.name)
        yield PaletteEntry(f"preset {name}", "Presets", f"{name}  open", title, key_of("show_presets"), show)


# --- search -----------------------------------------------------------------------------------------------


def rank(found: Sequence[PaletteEntry], typed: str, recent: Sequence[str]) -> list[PaletteEntry]:
    """Those that every typed word finds, the best first; what was used lately before its equals. Without words: what
    was used lately, then all in their order."""
    words, late = typed.lower().split(), {id_: len(recent) - at for at, id_ in enumerate(recent)}
    if not words:
        return sorted(found, key=lambda each: -late.get(each.id, 0))
    scored = []
    for each in found:
        label = each.label.lower()
        rest = f"{each.detail} {each.group} {each.id}".lower()
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


class Recent:
    """What was chosen last, newest first, kept in the state folder."""

    def __init__(self, app: FrameApp) -> None:
        self._files = app.context.ports.get("screen_files")
        try:
            known = load_json((self._files.read(RECENT_FILE) if self._files is not None else None) or "[]")
        except (OSError, ValueError):
            known = []  # a list of conveniences: without it nothing is lost
        self.ids = [each for each in known if isinstance(each, str)] if isinstance(known, list) else []

    def add(self, id_: str) -> None:
        self.ids = [id_, *(each for each in self.ids if each != id_)][:MOST_RECENT]
        if self._files is not None:
            with suppress(OSError):  # as above
                self._files.write(RECENT_FILE, json.dumps(self.ids))


# --- what an entry does -----------------------------------------------------------------------------------


def open_palette(app: FrameApp) -> None:
    """Asks, remembers what was chosen, and does it."""
    recent = Recent(app)

    def chosen(entry: PaletteEntry | None) -> None:
        if entry is not None:
            recent.add(entry.id)
            done = entry.run()
            if isawaitable(done):
                app.run_worker(done, exit_on_error=False, group="palette")

    app.push_screen(Palette(entries(app), recent.ids), chosen)


def launch(app: FrameApp, preset: Preset) -> None:
    app.push_screen(app.make_screen("launch_form", app.context, preset), app.launched)


def choose_theme(app: FrameApp) -> None:
    def chosen(name: str | None) -> None:
        if name is not None:
            _keep(app, "theme", name)

    async def choose() -> None:
        """Files are read now: one that was changed is previewed as it is."""
        found = await app.context.in_thread(user_themes, app.context)
        for each in found.themes:
            app.available_themes[each.name] = own_theme(each)
        app.push_screen(ThemeChooser([*THEME_NAMES[1:], *(each.name for each in found.themes)], found.problems), chosen)

    app.run_worker(choose(), name="themes", exit_on_error=False)


def change_setting(app: FrameApp, key: str) -> None:
    def typed(text: str | None) -> None:
        if text is not None:
            _keep(app, key, text)

    value = value_text(getattr(app.context.settings, key))
    app.push_screen(TextDialog(key, "Takes effect at the next start.", value=value), typed)


def _keep(app: FrameApp, key: str, text: str) -> None:
    """Writes the setting into the person's file; a demo has none."""
    config = config_of(app.context)
    if config is None:
        app.notify("Not saved: a demo changes no settings.", markup=False)
        return
    try:
        entry = config.change(key, text)
    except SparkError as error:
        app.report(error)
    else:
        app.notify(f"{key} = {value_text(entry.value)} saved in {config.path}.", markup=False)


# --- screens ----------------------------------------------------------------------------------------------


class Palette(QuietModal[PaletteEntry | None]):
    """A field, and below it what the typed words find."""

    CSS_PATH = "palette.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "cancel", "Close", priority=True),
        Binding("up", "list('move', -1)", "Up", show=False, priority=True),
        Binding("down", "list('move', 1)", "Down", show=False, priority=True),
        Binding("pageup", "list('page', -1)", "Page up", show=False, priority=True),
        Binding("pagedown", "list('page', 1)", "Page down", show=False, priority=True),
    ]

    def __init__(self, found: Iterable[PaletteEntry], recent: Sequence[str]) -> None:
        super().__init__()
        self._recent = tuple(recent)
        self._found = {each.id: each for each in found}
        self._room = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Palette"
            dialog.border_subtitle = "Enter run  Esc close"
            yield Input(placeholder="action, engine, preset, model, setting", compact=True)
            yield RowList(id="entries")

    def on_resize(self) -> None:
        self._room = max(20, min(MOST_WIDTH, self.app.size.width * 96 // 100) - BESIDE)
        self._show(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, typed: str) -> None:
        found = rank(tuple(self._found.values()), typed, self._recent)
        groups = tuple("Recent" if each.id in self._recent else each.group for each in found) if not typed else ()
        label = min(MOST_LABEL, self._room // 2, max((len(each.label) for each in self._found.values()), default=0))
        detail = self._room - label
        rows = tuple(  # padded: the columns stay where they are while somebody types
            (
                Cell(truncate(each.label, label).ljust(label), Tone.STRONG),
                Cell(truncate(clean_line(each.detail), detail).ljust(detail), Tone.QUIET),
                Cell(each.key, Tone.GOOD),
            )
            for each in found
        )
        columns = (Column("", least=8), Column("", keep=1, least=8), Column("", right=True))
        rows_list = self.query_one(RowList)
        rows_list.show_table(Table(columns, rows, tuple(each.id for each in found), "No matches.", groups))
        rows_list.action_edge(-1)

    def action_list(self, what: str, step: int) -> None:
        rows = self.query_one(RowList)
        (rows.action_move if what == "move" else rows.action_page)(step)

    def on_input_submitted(self) -> None:
        self.dismiss(self._found.get(self.query_one(RowList).key))


class ThemeChooser(QuietModal[str | None]):
    """The themes; the one under the cursor is shown at once. Esc goes back to the one before."""

    CSS_PATH = "palette.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Back"), Binding("enter", "choose", "Choose")]

    def __init__(self, names: Sequence[str], problems: Sequence[SparkError] = ()) -> None:
        super().__init__()
        self._names, self._problems = tuple(names), tuple(problems)
        self._before = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Theme"
            dialog.border_subtitle = "Enter choose  Esc cancel"
            yield RowList(id="themes")
            yield Page(id="theme-problems")

    def on_mount(self) -> None:
        rows, self._before = self.query_one(RowList), self.app.theme
        rows.styles.height = min(len(self._names), self.app.size.height // 2)
        page = self.query_one(Page)
        page.display = bool(self._problems)
        self.set_class(page.display, "-problems")
        page.show(Section(rows=(Row(each.summary, "!"), Row(each.remedy, "fix"))) for each in self._problems)
        rows.show_table(Table((Column("", least=1),), tuple(cells(name) for name in self._names), self._names))
        rows.select(self._before)
        rows.focus()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        if message.key:
            self.app.theme = message.key

    def action_choose(self) -> None:
        self.dismiss(self.query_one(RowList).key)

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss(None)
