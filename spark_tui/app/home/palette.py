"""The palette: actions, engines, presets, models and settings by name, each with its key; and the choice of a theme."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from spark_tui.app.config.show import value_text
from spark_tui.base.actions import LOOKED_FOR_AS, Scope, action, allowed, key_of, known_actions
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import value_of
from spark_tui.base.page import Column, Row, Section, Table, cells
from spark_tui.base.settings import KEYS, THEME_NAMES
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.machine.settings import config_of, user_themes
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.format import key_hints
from spark_tui.tui.frame import FrameApp, FrameScreen
from spark_tui.tui.list_screen import go
from spark_tui.tui.menu import Menu, MenuEntry
from spark_tui.tui.modals import TextDialog
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.themes import own_theme
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList

NOT_LISTED: Final = ("command_palette", "help_anywhere")
"""The palette itself; and the help a second time."""
RECENT_FILE: Final = "palette-recent"
MOST_RECENT: Final = 8
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


def entries(app: FrameApp) -> Iterator[MenuEntry]:
    """All that can be done now: on this screen, everywhere, and to each thing by its name."""
    yield from _actions(app)
    yield from _engines(app)
    yield from _presets(app)
    library = value_of(app.world[LIBRARY])
    for each in library.entries if library is not None else ():
        id_, detail = each.model.id, each.model.completeness.value
        yield MenuEntry(f"model {id_}", "Models", clean_line(id_), detail, "", partial(go, app, "models", row=id_))
    yield MenuEntry("theme", "Settings", "theme", "choose with a preview", "", partial(choose_theme, app))
    for key in KEYS:
        if key not in (*IN_TABLES, "theme"):
            value = value_text(getattr(app.context.settings, key))
            yield MenuEntry(
                f"setting {key}", "Settings", key, value or "not set", "", partial(change_setting, app, key)
            )


def _actions(app: FrameApp) -> Iterator[MenuEntry]:
    """Those of this screen and of every screen; of other screens what is a command too: it goes there first."""
    screen, named = app.screen, set[str]()
    scope = getattr(screen, "SCOPE", Scope.GLOBAL)
    known = [a for a in allowed(known_actions(), read_only=app.context.settings.read_only) if a.id not in NOT_LISTED]
    for each in sorted(known, key=lambda each: each.scope == Scope.GLOBAL):
        offered = not isinstance(screen, FrameScreen) or screen.offers(each.id)
        if each.scope in (scope, Scope.GLOBAL) and each.label not in named and offered:
            named.add(each.label)  # of two with the same label, the screen's own does it
            name = each.id if hasattr(screen, f"action_{each.id}") else f"app.{each.id}"
            group = "Everywhere" if each.scope == Scope.GLOBAL else str(each.scope)
            run, words = partial(screen.run_action, name), LOOKED_FOR_AS.get(each.id, "")
            yield MenuEntry(each.id, group, each.label, each.help, key_of(each.id), run, words=words)
    for each in known:
        mode = each.scope.lower().replace(" ", "_")
        shown = any(hasattr(app, f"action_{verb}_{mode}") for verb in ("show", "open"))
        if each.scope not in (scope, Scope.GLOBAL) and each.cli and shown:
            run, words = partial(go, app, mode, each.id), LOOKED_FOR_AS.get(each.id, "")
            yield MenuEntry(each.id, "Other screens", f"{each.scope}: {each.label}", each.help, "", run, words=words)


def _engines(app: FrameApp) -> Iterator[MenuEntry]:
    for view in app.world.known(ENGINES):
        name = clean_line(view.name)
        for verb, mode, id_, running in ENGINE_VERBS:
            if running and not view.container.running:
                continue
            if id_ and action(id_).dangerous and app.context.settings.read_only:
                continue
            run = partial(go, app, mode, id_, engine=view.name)
            yield MenuEntry(f"{verb} {view.name}", "Engines", f"{name}  {verb}", "", key_of(id_ or f"show_{mode}"), run)


def _presets(app: FrameApp) -> Iterator[MenuEntry]:
    may_launch = not app.context.settings.read_only
    for preset in app.world[PRESETS].presets:
        name, title = clean_line(preset.name), clean_line(preset.facts.title)
        if may_launch:
            run = partial(launch, app, preset)
            yield MenuEntry(f"launch {name}", "Presets", f"{name}  launch", title, key_of("launch_preset"), run)
        show = partial(go, app, "presets", row=preset.name)
        yield MenuEntry(f"preset {name}", "Presets", f"{name}  open", title, key_of("show_presets"), show)


# --- what was chosen --------------------------------------------------------------------------------------


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

    def chosen(entry: MenuEntry | None) -> None:
        if entry is not None:
            recent.add(entry.id)
            entry.start(app)

    about = "action, engine, preset, model, setting"
    app.push_screen(Menu("Palette", entries(app), placeholder=about, recent=recent.ids), chosen)


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
            dialog.border_subtitle = key_hints("Enter choose  Esc cancel")
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
