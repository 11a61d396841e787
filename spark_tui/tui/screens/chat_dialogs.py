"""Small dialogs of the Chat screen: one line of text, and a choice of some."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from spark_tui.core.actions import key_of
from spark_tui.core.chat import ChatTarget, Conversation
from spark_tui.core.context import Context
from spark_tui.core.conversations import Conversations
from spark_tui.domain.chat.conversation import ConversationSummary, Exchange, SearchHit
from spark_tui.domain.chat.message import (
    Answer,
    Band,
    ChancesSummary,
    TokenChances,
    ToolSpec,
    band,
    candidates,
    probability,
    summary_of,
    written_token,
)
from spark_tui.domain.chat.parameters import SETTINGS, ParameterError, written
from spark_tui.domain.chat.request import ChatSettings, Defaults
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import cell_width, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.page import told
from spark_tui.tui.widgets.row_list import Column, Row, RowList
from spark_tui.tui.widgets.token_map import STYLES, TokenMap
from spark_tui.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp


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


MOST_ROWS = 8
TEXT_CELLS = 24
BAR_CELLS = 30
LEGEND = Content.assemble(
    "at least 90 %",
    ("  50 %", STYLES[Band.LIKELY]),
    ("  10 %", STYLES[Band.DOUBTFUL]),
    "  ",
    ("less", STYLES[Band.RARE]),
)


class TokensSummary(Line):
    """How sure it was on the whole, and what the colours mean; on two lines where one is too narrow."""

    summary: ChancesSummary | None = None

    def say(self, width: int) -> Content:
        """`156 tokens   perplexity 1.28   below 50 %: 15   at least 90 %  50 %  10 %  less`."""
        if self.summary is None:
            return Content("")
        said = (
            f"{human_count(self.summary.tokens)} tokens   perplexity {self.summary.perplexity:.2f}   "
            f"below 50 %: {human_count(self.summary.below_even)}"
        )
        return Content("\n").join(packed((Content(said), LEGEND), Content("   "), width))


class TokenChoices(Line):
    """The candidates for one token, the likeliest first; the one that was taken is marked."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="token-choices")
        self._glyphs = glyphs
        self.token: TokenChances | None = None

    def say(self, width: int) -> Content:
        """A line for each."""
        if self.token is None:
            return Content("")
        rows = candidates(self.token)
        taken = next(number for number, row in enumerate(rows) if row[2])
        shown = [*rows[:MOST_ROWS]] if taken < MOST_ROWS else [*rows[: MOST_ROWS - 1], rows[taken]]
        return Content("\n").join(self._row(*row, rank=rows.index(row) + 1, width=width) for row in shown)

    def _row(self, text: str, logprob: float, taken: bool, *, rank: int, width: int) -> Content:
        """`> 1  " Paris"            92.1 %  ####`."""
        quoted = truncate(f'"{written_token(text)}"', TEXT_CELLS, self._glyphs.ellipsis)
        share = probability(logprob)
        room = max(0, min(BAR_CELLS, width - TEXT_CELLS - 20))
        mark = f"{self._glyphs.running} " if taken else "  "
        return Content.assemble(
            (mark, "$primary"), (f"{rank:>2}  ", "$dim"),
            fmt.safe(quoted, "bold" if taken else ""), " " * (TEXT_CELLS - cell_width(quoted)),
            f"{percent(share):>9}  ", (self._glyphs.engine * round(share * room), STYLES[band(logprob)] or "$primary"),
        )  # fmt: skip


class TokensScreen(ModalScreen[None]):
    """The answers whose log probabilities were asked for; `[` and `]` go from one to the other."""

    CSS_PATH = "chat_tokens.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("left_square_bracket", "answer(-1)", "Answer before"),
        Binding("right_square_bracket", "answer(1)", "Answer after"),
    ]

    def __init__(self, exchanges: Sequence[Exchange], glyphs: Glyphs) -> None:
        super().__init__()
        self._told = [exchange for exchange in exchanges if exchange.answer.chances]
        self._shown = len(self._told) - 1
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The tokens, and the candidates for the one under the cursor."""
        with Vertical(classes="dialog", id="tokens"):
            yield TokensSummary(id="tokens-summary")
            yield TokenMap(id="token-map")
            yield Static("", id="token-here")
            yield TokenChoices(self._glyphs)

    def on_mount(self) -> None:
        """The last answer."""
        self.query_one(TokenMap).focus()
        self._show()

    def _show(self) -> None:
        exchange = self._told[self._shown]
        dialog = self.query_one("#tokens")
        which = f"  {self._shown + 1} of {len(self._told)}" if len(self._told) > 1 else ""
        dialog.border_title = fmt.safe(f"Tokens of the answer to: {words.brief(exchange.question)}{which}")
        more = "  [ ] other answer" if len(self._told) > 1 else ""
        dialog.border_subtitle = Content(f"arrows walk  n p doubtful ones{more}  Esc back")
        said = self.query_one(TokensSummary)
        said.summary = summary_of(exchange.answer.chances)
        said.renew()
        self.query_one(TokenMap).show(exchange.answer.chances)

    def on_token_map_moved(self) -> None:
        """The candidates for the token under the cursor."""
        tokens = self.query_one(TokenMap)
        here = tokens.tokens[tokens.place]
        told = len(candidates(here)) - 1
        others = "" if told else "   only the token itself was told: ask for more with logprobs above 0"
        self.query_one("#token-here", Static).update(
            Content.assemble(
                f"token {human_count(tokens.place + 1)} of {human_count(len(tokens.tokens))}   ",
                (f"logprob {here.logprob:.3f}", "$dim"), (others, "$dim"),
            )
        )  # fmt: skip
        choices = self.query_one(TokenChoices)
        choices.token = here
        choices.renew()

    def action_answer(self, step: int) -> None:
        """Another answer."""
        if 0 <= self._shown + step < len(self._told):
            self._shown += step
            self._show()

    def action_leave(self) -> None:
        """Back to the conversation."""
        self.dismiss(None)


def percent(share: float) -> str:
    """`92.1 %`; `< 0.1 %` for what is less."""
    return f"{share:.1%}".replace("%", " %") if share >= 0.001 else "< 0.1 %"


FRAME_SECONDS = 0.1


class _Doing(Line):
    """What one side does."""

    said = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return self.said.truncate(width, ellipsis=True)


class CompareScreen(ModalScreen[None]):
    """Asks at once when it is shown; nothing of it is kept. Leaving it stops what still comes."""

    CSS_PATH = "chat_compare.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("tab,left,right", "app.focus_next", "Other side", show=False),
        Binding("ctrl+g", "again", "Again"),
        Binding("ctrl+t", "reasoning", "Reasoning"),
    ]

    def __init__(
        self, context: Context, asked: Exchange, settings: ChatSettings, targets: tuple[ChatTarget, ChatTarget]
    ) -> None:
        super().__init__()
        self._core = context
        self._asked = asked
        self._settings = settings
        self._targets = targets
        self._sides: list[Conversation] = []

    def compose(self) -> ComposeResult:
        """Two transcripts."""
        glyphs = cast("SparkApp", self.app).glyphs
        with Vertical(classes="dialog", id="compare") as dialog:
            dialog.border_title = fmt.safe(f"One question, two engines: {words.brief(self._asked.question)}")
            dialog.border_subtitle = "Tab other side  ^g again  Esc back"
            with Horizontal(id="compare-sides"):
                for place, target in enumerate(self._targets):
                    with Vertical(classes="compare-side") as side:
                        side.border_title = fmt.safe(f"{target.model} on {target.engine}")
                        yield Transcript(glyphs, id=f"side-{place}")
                        yield _Doing(id=f"doing-{place}", classes="doing")

    def on_mount(self) -> None:
        """Asks both, one beside the other."""
        self._frames = self.set_interval(FRAME_SECONDS, self._frame)
        self._ask()
        self.query_one("#side-0").focus()

    async def on_unmount(self) -> None:
        """Closes both connections."""
        for side in self._sides:
            await side.close()

    def _ask(self) -> None:
        conversations = self._core.conversations
        self._sides = [conversations.new(self._settings, keep=False) for _ in self._targets]
        for side, target in zip(self._sides, self._targets, strict=True):
            try:
                self._read(side.ask(self._asked.question, target, self._asked.attachments))
            except SparkError as error:
                cast("SparkApp", self.app).report(error)
        self._frames.resume()

    @work(exit_on_error=False, group="compare")
    async def _read(self, answers: AsyncGenerator[Answer, None]) -> None:
        with suppress(SparkError):  # it stands in its transcript
            async with aclosing(answers):
                async for _ in answers:
                    pass

    def _frame(self) -> None:
        now = self._core.clock.monotonic()
        for place, side in enumerate(self._sides):
            self.query_one(f"#side-{place}", Transcript).show(words.turns(side.exchanges))
            line, last = self.query_one(f"#doing-{place}", _Doing), side.last
            line.said = words.doing(last, now) if last is not None and last.live else Content("")
            line.renew()
        if not any(side.live for side in self._sides):
            self._frames.pause()

    @work(exit_on_error=False, exclusive=True, group="again")
    async def action_again(self) -> None:
        """Both once more."""
        for side in self._sides:
            await side.close()
        self._ask()

    def action_reasoning(self) -> None:
        """Shows or folds the reasoning of both."""
        for transcript in self.query(Transcript):
            transcript.set_reasoning(None if transcript.reasoning else True)

    def action_leave(self) -> None:
        """Back to the conversation."""
        self.dismiss(None)


FRAME_LINES = 8
"""What a dialog and the room around it take."""


class TextDialog(ModalScreen[str | None]):
    """Asks for one line; None when the person leaves."""

    CSS_PATH = "chat_dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, title: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._value = value
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        """The line, and what may stand there."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = told(self._title)
            dialog.border_subtitle = "Enter  Esc back"
            yield Static(told(self._hint, "$dim"), classes="chat-hint")
            yield Input(self._value, placeholder=self._placeholder, compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What was written; nothing is nothing."""
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)


class ChoiceDialog(ModalScreen[str | None]):
    """One of some sentences; answers its key, None when the person leaves."""

    CSS_PATH = "chat_dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back"), Binding("enter", "choose", "Choose")]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        """The sentences."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = told(self._title)
            dialog.border_subtitle = "Enter chooses  Esc back"
            yield RowList((Column(""),), Content(""), id="choices")

    def on_mount(self) -> None:
        """As many lines as there are choices."""
        rows = self.query_one(RowList)
        rows.styles.height = min(len(self._choices), max(1, self.app.size.height - FRAME_LINES))
        rows.show([Row(key, (told(text),)) for key, text in self._choices])
        rows.focus()

    def action_choose(self) -> None:
        """The one under the cursor."""
        self.dismiss(self.query_one(RowList).key or None)

    def action_leave(self) -> None:
        """None of them."""
        self.dismiss(None)


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
