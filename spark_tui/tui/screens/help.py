"""The keys of a screen, from the registry of actions; and a quick tour of the screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from spark_tui.core.actions import Action, Scope, allowed, key_of, of_scope, screen_keys, shown
from spark_tui.tui.widgets.line import Line, hanging, packed

KEYS_WIDTH = 11
LABEL_WIDTH = 14
HELP_WIDTH = 46
CLI_FROM = 90
"""Cells from which the command that does the same has room beside the help."""
IN_LISTS = "In lists: arrows or j k, PgUp PgDn, Home End.  Tab moves between panes, Esc goes one step back."
IN_FIELDS = "While you type, letters and digits are text: Esc leaves the field first."


class KeyTable(Line):
    """Key, name and help of each action, wrapped for the width."""

    def __init__(self, scope: Scope, *, read_only: bool) -> None:
        super().__init__(classes="keys")
        self._groups = (
            ("", allowed(of_scope(scope), read_only=read_only)),
            ("Everywhere", allowed(of_scope(Scope.GLOBAL), read_only=read_only)),
        )

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


class HelpScreen(ModalScreen[None]):
    """What can be done here, and everywhere."""

    CSS_PATH = "help.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "close", "Close")]

    def __init__(self, scope: Scope, *, read_only: bool) -> None:
        super().__init__()
        self._scope = scope
        self._read_only = read_only

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="help") as dialog:
            dialog.border_title = f"Keys on {self._scope.value}"
            dialog.border_subtitle = "arrows scroll   Esc close"
            yield KeyTable(self._scope, read_only=self._read_only)

    def action_close(self) -> None:
        self.dismiss(None)


def _lines(action: Action, width: int) -> list[Content]:
    label = Content.assemble(
        (f"{' '.join(shown(key) for key in action.keys):<{KEYS_WIDTH}} ", "bold $footer-key-foreground"),
        f"{action.label:<{LABEL_WIDTH}}",
    )
    indent = KEYS_WIDTH + 1 + LABEL_WIDTH
    room, words = width - indent, Content.styled(action.help, "$dim")
    if not action.cli:
        return hanging(label, words, indent, width)
    cli = Content.styled(f"spark-tui {action.cli}", "$secondary")
    beside = room - 2 - cli.cell_length  # what a command leaves to the help on one line
    column = max(0, min(HELP_WIDTH, beside)) if width >= CLI_FROM else 0
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
ONE_COLUMN_BELOW = 60
"""Cells under which a key of the three stands on a line of its own anyway: the gaps shrink."""


def tour(width: int) -> Content:
    """Three keys to a served model; then what each part of the screen is for, wrapped for the width."""
    lines = [Content.styled("Serve a model in three keys.", "bold"), Content(""), *_three_keys(width), Content("")]
    for sign, words in _parts():
        lines += hanging(Content.styled(sign, KEY), Content(words), SIGN_WIDTH, width)
    return Content("\n").join(lines)


def _three_keys(width: int) -> list[Content]:
    steps = (
        (key_of("show_presets"), "choose a preset"),
        ("Enter", "check and launch it"),
        (key_of("show_chat"), "chat with it"),
    )
    gap = Content("   " if width < ONE_COLUMN_BELOW else "      ")
    return packed((Content.assemble((key, KEY), "  ", words) for key, words in steps), gap, width)


def _parts() -> tuple[tuple[str, str], ...]:
    cache, memory = key_of("drop_cache"), key_of("open_memory")
    help_, palette, again = key_of("help"), key_of("command_palette"), key_of("tour")
    return (
        ("MEM", f"CPU, GPU and page cache share it. {cache} frees the cache, {memory} shows more."),
        (
            screen_keys() if len(screen_keys()) < SIGN_WIDTH else "tabs",
            "Home: engines. Models: the store. Presets: recipes. Logs, Metrics, Chat, Bench: the selected engine."
            " Doctor: problems of this machine.",
        ),
        (help_, f"All keys of a screen. {palette} finds everything by name, {again} shows this."),
        (key_of("quit"), "Quit. Containers keep running."),
    )


class TourText(Line):
    def say(self, width: int) -> Content:
        return tour(width)


class TourScreen(ModalScreen[None]):
    """What the parts of the screen are, over any screen."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,space,q,f1,question_mark", "close", "Close")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="tour") as dialog:
            dialog.border_title = "Quick tour"
            dialog.border_subtitle = "Esc close"
            yield TourText()

    def action_close(self) -> None:
        self.dismiss(None)
