"""What is sent with the next question: system prompt, sampling, reasoning, tools."""

from __future__ import annotations

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
from spark_tui.domain.chat.message import ToolSpec
from spark_tui.domain.chat.parameters import SETTINGS, ParameterError
from spark_tui.domain.chat.request import ChatSettings, Defaults
from spark_tui.domain.errors import SparkError
from spark_tui.present.chat import SettingRow, setting_rows
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.page import told

HELP = {
    "system": "the system prompt; `@FILE` reads one",
    "tools": "a JSON file of tools; you type their results; `off` for none",
}


class ChatSettingsPanel(ModalScreen[ChatSettings | None]):
    """Answers the person's settings (`chosen`, which override the preset's `defaults`); None when they are left as
    they were."""

    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Back"),
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
        self._tool_names = ", ".join(tool.name for tool in chosen.tools)
        self._wrong = ""
        """The field that the hint line complains about."""

    def compose(self) -> ComposeResult:
        rows = (
            *setting_rows(self._chosen, self._defaults),
            SettingRow("tools", "tools", self._tool_names, "none; a JSON file", HELP["tools"]),
            SettingRow("tool_choice", "tool choice", self._chosen.tool_choice, "auto", ""),
        )
        self._help = HELP | {row.key: row.help for row in rows}
        with Vertical(classes="dialog", id="chat-settings") as dialog:
            dialog.border_title = "For the next question"
            dialog.border_subtitle = "^o save  Esc cancel"
            yield Static(Content.styled("system prompt", "$dim"))
            system = TextArea(
                self._chosen.system, id="field-system", compact=True, highlight_cursor_line=False,
                placeholder=told(self._defaults.settings.system or "none"), tab_behavior="focus",
            )  # fmt: skip
            system.cursor_blink = False
            yield system
            with VerticalScroll(can_focus=False, id="chat-fields"):
                for row in rows:
                    with Horizontal(classes="chat-field"):
                        yield Static(Content.styled(row.label, "$dim"), classes="chat-label")
                        yield Input(
                            row.value, placeholder=row.default, id=f"field-{row.key}", compact=True,
                            select_on_focus=False,
                        )  # fmt: skip
            yield Static("", id="chat-settings-hint")

    def on_mount(self) -> None:
        self.query_one("#field-temperature", Input).focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The hint line explains the field that has the focus; a complaint about it stays."""
        key = (event.widget.id or "").removeprefix("field-")
        if key != self._wrong:
            self._wrong = ""
            self.query_one("#chat-settings-hint", Static).update(told(self._help.get(key, ""), "$dim"))

    def on_input_submitted(self) -> None:
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

    def action_cancel(self) -> None:
        self.dismiss(None)

    @work(exit_on_error=False, exclusive=True, group="save")
    async def action_save(self) -> None:
        """Reads all fields; the first one that is wrong gets the focus and says why."""
        try:
            settings = await self._read()
        except SparkError as error:
            self.query_one("#chat-settings-hint", Static).update(fmt.safe(f"{error.summary} {error.remedy}", "$error"))
            self._wrong = error.field if isinstance(error, ParameterError) else "tools"
            for field in self.query(f"#field-{self._wrong}"):
                field.focus()
            return
        self.dismiss(settings)

    async def _read(self) -> ChatSettings:
        settings = ChatSettings(tools=await self._tools())
        for key in (*(setting.name for setting in SETTINGS), "tool_choice"):
            text = self.query_one(f"#field-{key}", Input).value.strip()
            settings = await self._conversations.with_setting(settings, key, text)
        system = self.query_one("#field-system", TextArea).text
        return await self._conversations.with_setting(settings, "system", system)

    async def _tools(self) -> tuple[ToolSpec, ...]:
        text = self.query_one("#field-tools", Input).value.strip()
        if text == self._tool_names:
            return self._chosen.tools
        return () if text in ("", "off", "none") else await self._conversations.tools(text)
