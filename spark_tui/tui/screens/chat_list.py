"""The conversations that are kept: open one, find one, rename or delete it."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from spark_tui.core.conversations import Conversations
from spark_tui.core.key_words import key_of
from spark_tui.domain.conversation import ConversationSummary, SearchHit
from spark_tui.domain.errors import SparkError
from spark_tui.tui import format as fmt
from spark_tui.tui.screens.chat_dialogs import TextDialog
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.widgets.row_list import Column, Row, RowList

EMPTY = Content.styled("Nothing is kept yet: what you ask is, from now on.", "$dim")
NOT_FOUND = Content.styled("Nobody said that, and no title has it.", "$dim")


class ConversationsDialog(ModalScreen[str | None]):
    """Answers the id of the conversation to open; None when the person leaves. `here` is the one that is open."""

    CSS_PATH = "chat_list.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
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
        self._hits: dict[str, SearchHit] = {}

    def compose(self) -> ComposeResult:
        """What to look for, and the list."""
        with Vertical(classes="dialog", id="conversations") as dialog:
            dialog.border_title = "Conversations"
            dialog.border_subtitle = "Enter opens  type to search  F2 renames  Del deletes  Esc back"
            yield Input(placeholder="search in titles and in what was said", compact=True, select_on_focus=False)
            yield RowList(
                (Column("changed", 16), Column("title", minimum=16), Column("asked", 5, right=True),
                 Column("model", 22, hide_below=80)),
                EMPTY,
                titles=True,
                id="kept",
            )  # fmt: skip
            yield Static("", id="kept-problem")

    def on_mount(self) -> None:
        """All of them."""
        self.query_one(Input).focus()
        self._look("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Those that say so."""
        self._look(event.value)

    @work(exit_on_error=False, exclusive=True, group="look")
    async def _look(self, text: str) -> None:
        try:
            found = await self._conversations.summaries()
            hits = await self._conversations.search(text) if text.strip() else ()
        except SparkError as error:
            self._say(str(error))
            return
        self._hits = {hit.id: hit for hit in reversed(hits)}
        self._found = tuple(each for each in found if not text.strip() or each.id in self._hits)
        self._say("  ".join(self._conversations.problems))
        rows = self.query_one(RowList)
        rows.show([self._row(each) for each in self._found], NOT_FOUND if text.strip() else EMPTY)

    def _say(self, text: str) -> None:
        self.query_one("#kept-problem", Static).update(fmt.safe(text, "$warning"))

    def _row(self, kept: ConversationSummary) -> Row:
        mark = "(here)  " if kept.id == self._here else "(open elsewhere)  " if kept.in_use else ""
        hit = self._hits.get(kept.id)
        title = Content.assemble((mark, "$dim"), fmt.safe(kept.title))
        if hit is not None and hit.number:
            title = Content.assemble(title, "   ", fmt.safe(hit.excerpt, "$dim"))
        changed = f"{datetime.fromtimestamp(kept.changed_at).astimezone():%Y-%m-%d %H:%M}"
        return Row(
            kept.id,
            (
                Content.styled(changed, "$dim"),
                title,
                Content(str(kept.exchanges)),
                fmt.safe(", ".join(kept.models), "$dim"),
            ),
        )

    # --- keys -----------------------------------------------------------------------------------------

    def action_into_list(self) -> None:
        """From the search into the list."""
        self.query_one(RowList).focus()

    def on_input_submitted(self) -> None:
        """Enter in the search opens what is under the cursor."""
        self.action_open()

    def action_open(self) -> None:
        """The one under the cursor."""
        if self.query_one(RowList).key:
            self.dismiss(self.query_one(RowList).key)

    def action_leave(self) -> None:
        """Back."""
        self.dismiss(None)

    @work(exit_on_error=False, group="change")
    async def action_rename(self) -> None:
        """Another title."""
        kept = self._chosen()
        if kept is None:
            return
        title = await self.app.push_screen_wait(
            TextDialog("Rename", "What it is called from now on.", value=kept.title)
        )
        if title:
            await self._change(self._conversations.rename(kept.id, title))

    @work(exit_on_error=False, group="change")
    async def action_delete(self) -> None:
        """For good; asks once."""
        kept = self._chosen()
        if kept is None:
            return
        if kept.id == self._here:
            self._say(f"This one is open: begin another one first (Esc, then {key_of('new_chat')}).")
            return
        question = ConfirmScreen(
            f"Delete {kept.title!r}?",
            f"{kept.exchanges} exchanges, with their pictures. There is no way back.",
            verb="Delete",
        )
        if await self.app.push_screen_wait(question):
            await self._change(self._conversations.delete(kept.id))

    async def _change(self, change: Awaitable[str]) -> None:
        try:
            await change
        except SparkError as error:
            self._say(str(error))
        else:
            self._look(self.query_one(Input).value)

    def _chosen(self) -> ConversationSummary | None:
        key = self.query_one(RowList).key
        return next((each for each in self._found if each.id == key), None)
