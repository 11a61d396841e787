"""The keys of a screen, from the registry of actions; and a quick tour of the screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.base.actions import Action, Scope, allowed, key_of, of_scope, screen_keys, shown
from spark_tui.tui.format import key_hints
from spark_tui.tui.menu import MENU_CSS, Menu, MenuEntry
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.line import Line, hanging, packed

_CSS = Path(__file__).with_name("help.tcss")  # absolute: a room may derive a dialog

TAB_KEYS = ("tab", "shift+tab")
"""Textual's own in every dialog: a sentence names them."""
IN_LISTS = "In lists: arrows or j k, PgUp PgDn, Home End.  Tab moves between panes, Esc goes one step back."
IN_FIELDS = "While you type, letters and digits are text: Esc leaves the field first. F1 opens this everywhere."


class HelpScreen(Menu):
    """What can be done here, and everywhere: what is typed filters it, Enter or a click does it."""

    CSS_PATH: ClassVar = [MENU_CSS, _CSS]
    MOST_WIDTH = 130
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "cancel", "Close", show=False, priority=True),
        Binding("f12", "tour", "Tour", id="tour"),
    ]

    def __init__(self, of: Screen[Any], *, read_only: bool) -> None:
        scope: str | None = getattr(of, "SCOPE", None)
        title = f"Keys on {scope}" if scope else "Keys in this dialog"
        super().__init__(title, key_entries(of, read_only=read_only), placeholder="type to filter", name="help")

    def hints(self) -> str:
        return f"{key_of('tour')} quick tour  Enter run  Esc close"

    def foot(self) -> Iterable[Widget]:
        yield Static(f"{IN_LISTS}\n{IN_FIELDS}", classes="help-foot", markup=False)

    def action_tour(self) -> None:
        self.app.switch_screen(TourScreen())


def key_entries(of: Screen[Any], *, read_only: bool) -> Iterator[MenuEntry]:
    """The keys of a screen and those that work everywhere; of a dialog its own."""
    scope: str | None = getattr(of, "SCOPE", None)
    groups = ((str(scope), of_scope(scope)), ("Everywhere", of_scope(Scope.GLOBAL))) if scope else ()
    for group, actions in groups or (("", dialog_keys(of)),):
        for each in allowed(actions, read_only=read_only):
            keys, cli = " ".join(map(shown, each.keys)), f"spark-tui {each.cli}" if each.cli else ""
            run = partial(of.run_action, each.id if not scope or hasattr(of, f"action_{each.id}") else f"app.{each.id}")
            yield MenuEntry(each.id, group, each.label, each.help, keys, run, cli)


def dialog_keys(dialog: Screen[Any]) -> tuple[Action, ...]:
    """A dialog's own keys, from its bindings: those of the field in it are any field's."""
    keys: dict[tuple[str, str], list[str]] = {}
    for key, active in dialog.active_bindings.items():
        if active.node is dialog and active.enabled and active.binding.description and key not in TAB_KEYS:
            keys.setdefault((active.binding.action, active.binding.description), []).append(key)
    return tuple(Action(id_, tuple(of), label, "") for (id_, label), of in keys.items())


# --- tour -------------------------------------------------------------------------------------------------

KEY = "bold $footer-key-foreground"
SIGN_WIDTH = 7
NARROW_BELOW = 80
"""Cells under which the gaps between the first keys shrink: they stay on one line in a terminal of 80 columns."""


def tour(width: int) -> Content:
    """The keys to a served model; then what each part of the screen is for, wrapped for the width."""
    lines = [Content.styled("Serve a model in four keys.", "bold"), *_first_keys(width), Content("")]
    for sign, words in _parts():
        lines += hanging(Content.styled(sign, KEY), Content(words), SIGN_WIDTH, width)
    return Content("\n").join(lines)


def _first_keys(width: int) -> list[Content]:
    steps = (
        (key_of("show_presets"), "choose a preset"),
        ("Enter", "check it"),
        ("^l", "launch it"),
        (key_of("show_chat"), "chat with it"),
    )
    gap = Content("   " if width < NARROW_BELOW else "      ")
    return packed((Content.assemble((key, KEY), "  ", words) for key, words in steps), gap, width)


def _parts() -> tuple[tuple[str, str], ...]:
    cache, memory = key_of("drop_cache"), key_of("open_memory")
    connect, cluster, hosts = key_of("open_connect"), key_of("open_cluster"), key_of("open_hosts")
    help_, palette, again = key_of("help"), key_of("command_palette"), key_of("tour")
    return (
        ("MEM", f"Shared by CPU, GPU and page cache. {cache} frees the cache, {memory} shows more."),
        (
            screen_keys() if len(screen_keys()) < SIGN_WIDTH else "tabs",
            "Home: engines. Models: the store. Presets: recipes. Logs, Metrics, Chat, Bench: the selected engine."
            " Doctor: problems of this machine.",
        ),
        (connect, f"On Home: connects a coding agent. {cluster} shows clusters, {hosts} other hosts."),
        (help_, f"All keys of a screen. {palette} finds everything by name, {again} shows this."),
        (key_of("quit"), "Quit. Containers keep running."),
    )


class TourText(Line):
    def say(self, width: int) -> Content:
        return tour(width)


class TourScreen(QuietModal[None]):
    """What the parts of the screen are, over any screen."""

    CSS_PATH = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,space,q,f12,question_mark", "cancel", "Close")]

    def __init__(self) -> None:
        super().__init__("tour")

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="tour") as dialog:
            dialog.border_title = "Quick tour"
            dialog.border_subtitle = key_hints("Esc close")
            yield TourText()
