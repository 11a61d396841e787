"""Chat: talk to the selected engine, and see what each answer cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.events import DescendantBlur, DescendantFocus
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from spark_tui.core.actions import Scope
from spark_tui.domain.chat import Answer, ChatRequest, advance
from spark_tui.domain.engine.view import EngineState
from spark_tui.domain.errors import EngineUnreachable, SparkError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.reading import reason_of
from spark_tui.domain.text import clean
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.screens.chat_session import Exchange, Session
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.prompt import Prompt
from spark_tui.tui.widgets.transcript import Transcript
from spark_tui.tui.widgets.turn import Turn

FRAME_SECONDS = 0.1
NOTE_SECONDS = 4.0
LATE_ESC_SECONDS = 1.0
"""Esc pressed to stop an answer that has just ended must not leave the prompt: what is typed next would be keys."""


class ChatScreen(FrameScreen):
    """One conversation with whatever engine is selected."""

    SCOPE = Scope.CHAT
    TAB = "show_chat"
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.CHAT)
    AUTO_FOCUS = ""

    def compose_body(self) -> ComposeResult:
        """The transcript, one line of status, the prompt."""
        yield Transcript(self.spark.glyphs, id="transcript")
        yield words.ChatStatus()
        with Container(id="prompt-pane", classes="pane"):
            yield Prompt(id="prompt")

    def on_mount(self) -> None:
        """Binds the screen to the selected engine."""
        self._session = Session()
        self._previous: Session | None = None
        self._answering: Worker[None] | None = None
        self._ended_at: float | None = None
        self._may_focus = True
        self._note = ""
        self._note_timer: Timer | None = None
        self._frames = self.set_interval(FRAME_SECONDS, self._frame, pause=True)
        for name in ("engines", "selected"):
            self.bind_slice(name, lambda _: self._show_engine())

    def on_screen_suspend(self) -> None:
        """Nothing is painted on a hidden screen; the answer goes on."""
        self._frames.pause()
        if self not in self.app.screen_stack:  # another screen, not a dialog over this one
            self._may_focus = True

    def on_screen_resume(self) -> None:
        """Shows what has come meanwhile, and is ready to write."""
        if self._live is not None:
            self._frames.resume()
        self._show_all()
        self._focus_prompt()

    def _focus_prompt(self) -> None:
        """The prompt has the focus once there is someone to talk to, once per visit; until then digits are keys."""
        if self._may_focus and words.problem_with(self.selected_engine) is None:
            self._may_focus = False
            self._prompt.focus()
        elif self.focused is None:
            self._transcript.focus()

    # --- parts ----------------------------------------------------------------------------------------

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def _live(self) -> Exchange | None:
        last = self._session.last
        return last if last is not None and last.live else None

    # --- show -----------------------------------------------------------------------------------------

    def _show_all(self) -> None:
        why = reason_of(self.spark.engines)
        empty = words.empty(self.selected_engine, why, has_previous=self._previous is not None)
        self._transcript.show(self._session.turns(), empty)
        self._show_status()
        self._show_keys()

    def _frame(self) -> None:
        """Ten times a second while an answer comes."""
        self._transcript.show(self._session.turns())
        self._show_status()

    def _show_engine(self) -> None:
        self.query_one("#prompt-pane").border_title = words.title(self.selected_engine)
        self._prompt.say(words.placeholder(self.selected_engine, reason_of(self.spark.engines)))
        self._show_all()
        self._focus_prompt()

    def _show_status(self) -> None:
        status, live = self.query_one(words.ChatStatus), self._live
        if self._note:
            status.left = words.note(self._note)
        elif live is not None:
            status.left = words.doing(live, self.context.clock.monotonic())
        else:
            status.left = words.room_used(self._session.last, self.selected_engine)
        key = "^End" if self._prompt.has_focus and self._prompt.text else "End"
        status.right = words.below(0 if self._transcript.following else self._transcript.below, key)
        status.renew()

    def _say(self, note: str) -> None:
        """A word in the status line for some seconds: a toast would lie over the prompt."""
        if self._note_timer is not None:
            self._note_timer.stop()
        self._note, self._note_timer = note, self.set_timer(NOTE_SECONDS, self._unsay)
        self._show_status()

    def _unsay(self) -> None:
        self._note = ""
        self._show_status()

    def _show_keys(self) -> None:
        writing = self._prompt.has_focus
        bar, pane = self.query_one(KeyBar), self.query_one("#prompt-pane")
        started = bool(self._session.exchanges)
        bar.actions = words.footer(live=self._live is not None, writing=writing, started=started)
        bar.renew()
        hint = "Enter sends  ^j new line" if writing else "Enter or Tab to write"
        if pane.border_subtitle != hint:
            pane.border_subtitle = hint

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Other keys work in the prompt."""
        self._show_keys()

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        """Other keys work outside the prompt."""
        self._show_keys()

    def on_transcript_moved(self) -> None:
        """What lies below is on screen at once."""
        self._show_status()

    # --- ask ------------------------------------------------------------------------------------------

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Sends, when there is someone to send to; else the text stays in the prompt."""
        if self._live is not None:
            self._say("An answer is coming: Esc stops it.")
        elif self._can_ask():
            self._prompt.accept()
            self._ask(event.text.strip("\n"))

    def _can_ask(self) -> bool:
        problem = words.problem_with(self.selected_engine)
        if problem is not None:
            self.notify(f"{problem.summary}\n{problem.remedy}", severity="warning", markup=False)
        return problem is None

    def _ask(self, question: str) -> None:
        view = self.selected_engine
        assert view is not None  # noqa: S101 - `_can_ask` has looked
        exchange = self._session.begin(question, view.name, view.served_name, self.context.clock.monotonic())
        self._previous = None
        self._transcript.action_follow()
        self._answering = self._answer(exchange)
        self._frames.resume()
        self._show_all()

    @work(exit_on_error=False, group="answer")
    async def _answer(self, exchange: Exchange) -> None:
        try:
            async for answer in self._stream(exchange):
                exchange.answer = answer
        except SparkError as error:
            exchange.error = error
        self._finish(exchange)

    async def _stream(self, exchange: Exchange) -> AsyncIterator[Answer]:
        watch = self.context.supervisor.find(exchange.engine)
        endpoint = watch.endpoint if watch is not None else None
        if endpoint is None:
            raise EngineUnreachable(f"{exchange.engine} is gone.", "1 shows what runs; ^g asks again.")
        answer = exchange.answer
        request = ChatRequest(exchange.model, self._session.messages())
        async with aclosing(self.context.api.chat(endpoint, request)) as events:
            async for event in events:
                answer = advance(answer, event, self.context.clock.monotonic())
                yield answer

    def _finish(self, exchange: Exchange) -> None:
        """The answer is over: it ended, failed or was stopped."""
        exchange.live = False
        self._ended_at = self.context.clock.monotonic()
        if self._live is None:
            self._frames.pause()
        if self.is_current:
            self._show_all()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A failure that nobody foresaw is told where it happened, too."""
        live = self._live
        if event.worker is self._answering and event.state is WorkerState.ERROR and live is not None:
            self.log.error(event.worker.error)
            what = repr(event.worker.error)
            live.error = SparkError("spark-tui failed to read the answer.", "^g asks again.", detail=what)
            self._finish(live)

    # --- keys -----------------------------------------------------------------------------------------

    def action_stop_answer(self) -> None:
        """Stops the answer; else leaves the prompt; else goes Home."""
        if self._stop():
            return
        if not self._prompt.has_focus:
            self.spark.switch_mode("home")
        elif self._ended_at is None or self.context.clock.monotonic() - self._ended_at > LATE_ESC_SECONDS:
            self._transcript.focus()

    def _stop(self) -> bool:
        live = self._live
        if live is None:
            return False
        live.stopped = True
        self._finish(live)
        if self._answering is not None:
            self._answering.cancel()  # closes the connection, which frees the engine's slot
        return True

    def action_write(self) -> None:
        """To the prompt."""
        self._prompt.focus()

    def action_regenerate(self) -> None:
        """Asks the last question again; what was answered is replaced."""
        if self._session.last is None:
            self._say("Nothing was asked yet.")
        elif self._can_ask():
            self._stop()
            self._ask(self._session.take_back())

    def action_new_chat(self) -> None:
        """Begins anew; with nothing said yet, brings the last conversation back."""
        self._stop()
        if self._session.exchanges:
            self._previous, self._session = self._session, Session()
        elif self._previous is not None:
            self._session, self._previous = self._previous, None
        self._transcript.set_reasoning(None)
        self._transcript.action_follow()
        self._show_all()

    def action_toggle_reasoning(self) -> None:
        """Shows all reasoning, from the last one's headline on; or folds it, and follows the end again."""
        thinking = self._thinking()
        if thinking is None:
            self._say("No answer here has reasoning.")
        elif self._transcript.is_open(thinking):
            self._transcript.set_reasoning(False if thinking.reasons_now else None)
            self._transcript.action_follow()
        else:
            self._transcript.set_reasoning(True)
            if not thinking.reasons_now:
                self._transcript.reveal_reasoning()

    def on_transcript_reasoning_clicked(self) -> None:
        """The mouse shows or folds it where it is."""
        thinking = self._thinking()
        if thinking is not None:
            self._transcript.stay()
            self._transcript.set_reasoning(None if self._transcript.is_open(thinking) else True)

    def _thinking(self) -> Turn | None:
        """The last turn that has reasoning."""
        turns = reversed(self._transcript.turns)
        return next((turn for turn in turns if turn.answer is not None and turn.answer.reasoning), None)

    def action_copy_answer(self) -> None:
        """The last answer's text, as the model wrote it, without control codes."""
        text = next((e.answer.content for e in reversed(self._session.exchanges) if e.answer.content.strip()), "")
        if not text:
            self._say("There is no answer to copy yet.")
            return
        text = clean(text).strip("\n")
        self.app.copy_to_clipboard(text)
        self._say(f"Copied the last answer: {human_count(len(text))} characters.")

    def on_prompt_edge(self, event: Prompt.Edge) -> None:
        """Home and End in an empty prompt are meant for the transcript."""
        if event.step < 0:
            self._transcript.action_top()
        else:
            self.action_follow_answer()

    def action_follow_answer(self) -> None:
        """To the end, and stay there."""
        self._transcript.action_follow()

    def action_older_lines(self) -> None:
        """A page up."""
        self._transcript.action_page(-1)

    def action_newer_lines(self) -> None:
        """A page down."""
        self._transcript.action_page(1)

    def action_talk_to_next(self) -> None:
        """Selects the next engine that serves."""
        names = [view.name for view in self.engines() if view.state is EngineState.SERVING]
        if names:
            here = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(here + 1) % len(names)]
