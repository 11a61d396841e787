"""The side panel of the Chat screen: everything that holds for the next question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from spark_tui.core.conversations import Conversations
from spark_tui.domain.chat import ToolSpec
from spark_tui.domain.chat_parameters import SETTINGS, ParameterError, written
from spark_tui.domain.chat_settings import ChatSettings, Defaults
from spark_tui.domain.errors import SparkError
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.page import told

LABEL_WIDTH = 14
SYSTEM = "system"
TOOLS = "tools"
FILE_MARK = "@"
HINTS = {
    SYSTEM: "the system prompt; `@FILE` reads one",
    TOOLS: "a JSON file of tools; you type their results; `off` offers none",
}


@dataclass(frozen=True, slots=True)
class _Field:
    """A line of the panel: its key, its label, what is set, and what holds when nothing is."""

    key: str
    label: str
    value: str
    silent: str


class ChatSettingsPanel(ModalScreen[ChatSettings | None]):
    """Answers the settings; None when the person leaves without saving. `chosen` are the person's own, which count over
    `defaults`, the preset's."""

    CSS_PATH = "chat_settings.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("ctrl+o,ctrl+s", "save", "Save", priority=True),
        # Priority: what is typed right after them is meant for the field that they lead to.
        Binding("up,shift+tab", "walk(-1)", "Previous", show=False, priority=True),
        Binding("down,tab", "walk(1)", "Next", show=False, priority=True),
    ]

    def __init__(self, conversations: Conversations, chosen: ChatSettings, defaults: Defaults) -> None:
        super().__init__()
        self._conversations = conversations
        self._chosen = chosen
        self._defaults = defaults
        self._wrong = ""
        """The field that the hint line complains about."""

    def compose(self) -> ComposeResult:
        """The system prompt, then a line for each setting."""
        with Vertical(classes="dialog", id="chat-settings") as dialog:
            dialog.border_title = "For the next question"
            dialog.border_subtitle = "^o saves  Esc leaves"
            yield Static(Content.styled("system prompt", "$dim"))
            system = TextArea(
                self._chosen.system, id=f"field-{SYSTEM}", compact=True, highlight_cursor_line=False,
                placeholder=told(self._defaults.settings.system or "none"), tab_behavior="focus",
            )  # fmt: skip
            system.cursor_blink = False
            yield system
            with VerticalScroll(can_focus=False, id="chat-fields"):
                for field in self._fields():
                    with Horizontal(classes="chat-field"):
                        yield Static(Content.styled(field.label, "$dim"), classes="chat-label")
                        yield Input(
                            field.value, placeholder=field.silent, id=f"field-{field.key}", compact=True,
                            select_on_focus=False,
                        )  # fmt: skip
            yield Static("", id="chat-settings-hint")

    def _fields(self) -> Iterator[_Field]:
        chosen, preset = self._chosen.parameters.told(), self._defaults.settings.parameters.told()
        for setting in SETTINGS:
            silent = written(preset.get(setting.name))
            yield _Field(
                setting.name,
                setting.label,
                written(chosen.get(setting.name)),
                f"{silent} (the preset's)" if silent else "the server's own",
            )
        yield _Field(TOOLS, "tools", ", ".join(tool.name for tool in self._chosen.tools), "none; a JSON file")
        yield _Field("tool_choice", "tool choice", self._chosen.tool_choice, "auto")

    def on_mount(self) -> None:
        """The setting that is changed most has the focus."""
        self.query_one("#field-temperature", Input).focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """What the field under the cursor does and may be."""
        key = (event.widget.id or "").removeprefix("field-")
        if key == self._wrong:
            return
        self._wrong = ""
        setting = next((each for each in SETTINGS if each.name == key), None)
        self._say(Content.styled(f"{setting.help}: {setting.range}" if setting else HINTS.get(key, ""), "$dim"))

    def _say(self, text: Content) -> None:
        self.query_one("#chat-settings-hint", Static).update(text)

    def on_input_submitted(self) -> None:
        """Enter in a field saves."""
        self.action_save()

    def action_walk(self, step: int) -> None:
        """To the field before or after; within the system prompt to the line before or after, where there is one."""
        here = self.focused
        if isinstance(here, TextArea) and 0 <= here.cursor_location[0] + step < here.document.line_count:
            here.move_cursor_relative(rows=step)
        elif step < 0:
            self.focus_previous()
        else:
            self.focus_next()

    def action_leave(self) -> None:
        """Nothing is changed."""
        self.dismiss(None)

    @work(exit_on_error=False, exclusive=True, group="save")
    async def action_save(self) -> None:
        """Everything is read; the first field that cannot be used gets the focus and says why."""
        try:
            settings = await self._read()
        except SparkError as error:
            self._say(fmt.safe(f"{error.summary} {error.remedy}", "$error"))
            self._wrong = error.field if isinstance(error, ParameterError) else TOOLS
            for field in self.query(f"#field-{self._wrong}"):
                field.focus()
            return
        self.dismiss(settings)

    async def _read(self) -> ChatSettings:
        settings = ChatSettings(tools=await self._tools())
        for key in (*(setting.name for setting in SETTINGS), "tool_choice"):
            text = self.query_one(f"#field-{key}", Input).value.strip()
            if text.startswith(FILE_MARK) and key == "schema":
                text = await self._conversations.text(text.removeprefix(FILE_MARK))
            settings = settings.with_setting(key, text)
        system = self.query_one(f"#field-{SYSTEM}", TextArea).text
        if system.startswith(FILE_MARK) and "\n" not in system:
            system = await self._conversations.text(system.removeprefix(FILE_MARK).strip())
        return replace(settings, system=system)

    async def _tools(self) -> tuple[ToolSpec, ...]:
        text = self.query_one(f"#field-{TOOLS}", Input).value.strip()
        if text == ", ".join(tool.name for tool in self._chosen.tools):
            return self._chosen.tools
        return () if text in ("", "off", "none") else await self._conversations.tools(text)
