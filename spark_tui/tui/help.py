"""The keys of a screen, from the registry of actions; and a quick tour of the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen

from spark_tui.base.actions import Action, Scope, allowed, key_of, of_scope, screen_keys, shown
from spark_tui.base.text import cells_left
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.line import Line, hanging, packed

_CSS = Path(__file__).with_name("help.tcss")  # absolute: a room may derive a dialog

KEYS_WIDTH = 11
LABEL_WIDTH = 14
HELP_WIDTH, MOST_HELP_WIDTH, CLI_WIDTH = 46, 60, 40
CLI_FROM = 90
"""Cells from which the command that does the same has room beside the help."""
TAB_KEYS = ("tab", "shift+tab")
"""Textual's own in every dialog: a sentence names them."""
IN_LISTS = "In lists: arrows or j k, PgUp PgDn, Home End.  Tab moves between panes, Esc goes one step back."
IN_FIELDS = "While you type, letters and digits are text: Esc leaves the field first. F1 opens this everywhere."


class KeyTable(Line):
    """Key, name and help of each action, wrapped for the width."""

    def __init__(self, scope: str | None, *, read_only: bool, dialog: tuple[Action, ...] = ()) -> None:
        """Of a screen, or (`scope` None) of a dialog."""
        super().__init__(classes="keys")
        self._groups: tuple[tuple[str, tuple[Action, ...]], ...] = (("", dialog),)
        if scope is not None:
            everywhere = allowed(of_scope(Scope.GLOBAL), read_only=read_only)
            self._groups = (("", allowed(of_scope(scope), read_only=read_only)), ("Everywhere", everywhere))

    def say(self, width: int) -> Content:
        lines: list[Content] = []
        for title, actions in self._groups:
            if title:
                lines += [Content(""), Content.styled(title, "bold")]
            for action in actions:
                lines += _lines(action, width)
        for text in (IN_LISTS, IN_FIELDS):
            lines += [Content(""), *Content.styled(text, "$dim").wrap(width)]
        return Content("\n").join(lines)


class HelpScreen(QuietModal[None]):
    """What can be done here, and everywhere."""

    CSS_PATH = _CSS
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "cancel", "Close"),
        Binding("f12", "tour", "Tour", id="tour"),
    ]

    def __init__(self, of: Screen[Any], *, read_only: bool) -> None:
        super().__init__("help")
        self._scope: str | None = getattr(of, "SCOPE", None)
        self._dialog = () if self._scope else dialog_keys(of)
        self._read_only = read_only

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="help") as dialog:
            dialog.border_title = f"Keys on {self._scope}" if self._scope else "Keys in this dialog"
            dialog.border_subtitle = f"{key_of('tour')} quick tour   arrows scroll   Esc close"
            yield KeyTable(self._scope, read_only=self._read_only, dialog=self._dialog)

    def action_tour(self) -> None:
        self.app.switch_screen(TourScreen())


def dialog_keys(dialog: Screen[Any]) -> tuple[Action, ...]:
    """A dialog's own keys, from its bindings: those of the field in it are any field's."""
    keys: dict[tuple[str, str], list[str]] = {}
    for key, active in dialog.active_bindings.items():
        if active.node is dialog and active.enabled and active.binding.description and key not in TAB_KEYS:
            keys.setdefault((active.binding.action, active.binding.description), []).append(key)
    return tuple(Action(id_, tuple(of), label, "") for (id_, label), of in keys.items())


def _lines(action: Action, width: int) -> list[Content]:
    keys = (f"{' '.join(shown(key) for key in action.keys):<{KEYS_WIDTH}} ", "bold $footer-key-foreground")
    if not action.help:  # of a dialog: the label says it all, and may be long
        return hanging(Content.assemble(keys), Content(action.label), KEYS_WIDTH + 1, width)
    label = Content.assemble(keys, f"{action.label:<{LABEL_WIDTH}}")
    indent = KEYS_WIDTH + 1 + LABEL_WIDTH
    room, words = cells_left(width, indent), Content.styled(action.help, "$dim")
    if not action.cli:
        return hanging(label, words, indent, width)
    cli = Content.styled(f"spark-tui {action.cli}", "$secondary")
    beside = cells_left(room, 2, cli.cell_length)  # what a command leaves to the help on one line
    wanted = max(HELP_WIDTH, min(MOST_HELP_WIDTH, room - 2 - CLI_WIDTH))
    column = min(wanted, beside) if width >= CLI_FROM else 0
    if words.cell_length <= (column or beside):
        gap = " " * max(2, (column or beside) + 2 - words.cell_length)
        return hanging(label, Content.assemble(words, gap, cli), indent, width)
    # A command is not broken: where it has no room beside the help it stands below, in the same column; on a narrow
    # screen they all end at the right edge.
    below = indent + column + 2 if column else max(indent, width - cli.cell_length)
    return [*hanging(label, words, indent, width), *hanging(Content(""), cli, below, width)]


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
            dialog.border_subtitle = "Esc close"
            yield TourText()
