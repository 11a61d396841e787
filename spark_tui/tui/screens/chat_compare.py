"""One question to two engines at once, side by side: text, speed, and what it took."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen

from spark_tui.core.chat_target import ChatTarget
from spark_tui.core.context import Context
from spark_tui.core.conversation import Conversation
from spark_tui.domain.chat import Answer
from spark_tui.domain.chat_settings import ChatSettings
from spark_tui.domain.conversation import Exchange
from spark_tui.domain.errors import SparkError
from spark_tui.tui import format as fmt
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp

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
