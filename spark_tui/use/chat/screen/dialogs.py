"""The chat's dialogs: saved conversations, and the settings of the next question."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Input, Static, TextArea

from spark_tui.base.actions import key_of
from spark_tui.base.engine.message import SETTINGS, ParameterError
from spark_tui.base.engine.request import ChatSettings, Defaults
from spark_tui.base.errors import SparkError
from spark_tui.base.page import Column
from spark_tui.base.text import truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.modals import ConfirmScreen, TextDialog
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.use.chat.model.conversation import ConversationHit, ConversationSummary
from spark_tui.use.chat.show import SettingRow, conversation_table, setting_rows
from spark_tui.use.chat.use.conversations import Conversations

EMPTY = Content.styled("No saved conversations. Questions are saved as you ask them.", "$dim")
KEYS = "Enter open  type to search  F2 rename  Del delete  Esc back"
KEYS_OF_NONE = "type to search  Esc back"
NOT_FOUND = Content.styled("No matches in titles and messages.", "$dim")


class ConversationsDialog(QuietModal[str | None]):
    """Answers the id of the conversation to open; None when cancelled. `here` is the one that is open."""

    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Back"),
        Binding("f2", "rename", "Rename"),
        Binding("delete", "delete", "Delete"),
        Binding("down", "into_list", "List", show=False),
        Binding("up", "into_list", "List", show=False),
        Binding("enter", "open", "Open"),
    ]

    def __init__(self, conversations: Conversations, here: str) -> None:
        super().__init__()
        self._conversations = conversations
        self._here = here
        self._found: tuple[ConversationSummary, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="conversations") as dialog:
            dialog.border_title = "Saved conversations"
            dialog.border_subtitle = fmt.key_hints(KEYS_OF_NONE)
            yield Input(placeholder="search titles and messages", compact=True, select_on_focus=False)
            yield RowList(EMPTY, titles=True, id="kept")
            yield Static("", id="kept-problem")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._search("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._search(event.value)

    @work(exit_on_error=False, exclusive=True, group="search")
    async def _search(self, text: str) -> None:
        try:
            found = await self._conversations.summaries()
            hits = await self._conversations.search(text) if text.strip() else ()
        except SparkError as error:
            self._say(str(error))
            return
        first: dict[str, ConversationHit] = {hit.id: hit for hit in reversed(hits)}
        self._found = tuple(each for each in found if not text.strip() or each.id in first)
        self._say("  ".join(self._conversations.problems))
        table = conversation_table(self._found, self._here, first)
        columns = (Column("title", least=16), Column("changed"), Column("asked", right=True), Column("model", keep=1))
        shown = replace(table, columns=columns, rows=tuple(cells[1:] for cells in table.rows))
        self.query_one(RowList).show_table(shown, NOT_FOUND if text.strip() else EMPTY)
        self.query_one("#conversations").border_subtitle = fmt.key_hints(KEYS if self._found else KEYS_OF_NONE)

    def _say(self, text: str) -> None:
        self.query_one("#kept-problem", Static).update(fmt.safe(text, "$warning"))

    def action_into_list(self) -> None:
        self.query_one(RowList).focus()

    def on_input_submitted(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if self.query_one(RowList).key:
            self.dismiss(self.query_one(RowList).key)

    @work(exit_on_error=False, group="change")
    async def action_rename(self) -> None:
        kept = self._selected()
        if kept is None:
            return
        title = await self.app.push_screen_wait(TextDialog("Rename", "New title.", value=kept.title))
        if title:
            await self._change(self._conversations.rename(kept.id, title))

    @work(exit_on_error=False, group="change")
    async def action_delete(self) -> None:
        kept = self._selected()
        if kept is None:
            return
        if kept.id == self._here:
            self._say(f"This conversation is open. Start another one first (Esc, then {key_of('new_chat')}).")
            return
        what = f"{kept.exchanges} messages and images. This cannot be undone."
        if await self.app.push_screen_wait(ConfirmScreen(f"Delete {kept.title!r}?", what, verb="Delete")):
            await self._change(self._conversations.delete(kept.id))

    async def _change(self, change: Awaitable[str]) -> None:
        try:
            await change
        except SparkError as error:
            self._say(str(error))
        else:
            self._search(self.query_one(Input).value)

    def _selected(self) -> ConversationSummary | None:
        key = self.query_one(RowList).key
        return next((each for each in self._found if each.id == key), None)


PROMPT_CELLS = 500
HELP = {
    "system": "the system prompt; `@FILE` reads one",
    "tools": "a JSON file of tools; calls are shown, not run; `off` for none",
}


class ChatSettingsPanel(QuietModal[ChatSettings | None]):
    """Answers the settings (`chosen`, which override the preset's `defaults`); None when cancelled."""

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
            dialog.border_subtitle = fmt.key_hints("^o save  Esc cancel")
            yield Static(Content.styled("system prompt", "$dim"))
            system = TextArea(
                self._chosen.system,
                id="field-system",
                compact=True,
                highlight_cursor_line=False,
                placeholder=fmt.safe(truncate(self._defaults.settings.system or "none", PROMPT_CELLS)),
                tab_behavior="focus",
            )
            system.cursor_blink = False
            yield system
            with VerticalScroll(can_focus=False, id="chat-fields"):
                for row in rows:
                    with Horizontal(classes="chat-field"):
                        yield Static(Content.styled(row.label, "$dim"), classes="chat-label")
                        yield Input(
                            row.value,
                            placeholder=row.default,
                            id=f"field-{row.key}",
                            compact=True,
                            select_on_focus=False,
                        )
            yield Static("", id="chat-settings-hint")

    def on_mount(self) -> None:
        self.query_one("#field-temperature", Input).focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The hint line explains the focused field; an error about it stays."""
        key = (event.widget.id or "").removeprefix("field-")
        if key != self._wrong:
            self._wrong = ""
            self.query_one("#chat-settings-hint", Static).update(fmt.safe(self._help.get(key, ""), "$dim"))

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_walk(self, step: int) -> None:
        """To the field before or after; within the system prompt to the line before or after."""
        here = self.focused
        if isinstance(here, TextArea) and 0 <= here.cursor_location[0] + step < here.document.line_count:
            here.move_cursor_relative(rows=step)
        elif step < 0:
            self.focus_previous()
        else:
            self.focus_next()

    @work(exit_on_error=False, exclusive=True, group="save")
    async def action_save(self) -> None:
        """Reads all fields; focuses the first wrong one, and shows its error."""
        conversations = self._conversations
        try:
            tools, tool_text = self._chosen.tools, self.query_one("#field-tools", Input).value.strip()
            if tool_text != self._tool_names:
                tools = () if tool_text in ("", "off", "none") else await conversations.tools(tool_text)
            settings = ChatSettings(tools=tools)
            for key in (*(setting.name for setting in SETTINGS), "tool_choice"):
                text = self.query_one(f"#field-{key}", Input).value.strip()
                settings = await conversations.with_setting(settings, key, text)
            system = self.query_one("#field-system", TextArea).text
            settings = await conversations.with_setting(settings, "system", system)
        except SparkError as error:
            self.query_one("#chat-settings-hint", Static).update(fmt.safe(f"{error.summary} {error.remedy}", "$error"))
            self._wrong = error.field if isinstance(error, ParameterError) else "tools"
            for field in self.query(f"#field-{self._wrong}"):
                field.focus()
            return
        self.dismiss(settings)
