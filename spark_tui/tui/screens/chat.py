"""Chat: talk to the selected engine, and see what each answer cost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.events import DescendantBlur, DescendantFocus
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from spark_tui.core.actions import Scope
from spark_tui.core.conversation import ChatTarget, Conversation
from spark_tui.domain.chat import Answer
from spark_tui.domain.engine.view import EngineState
from spark_tui.domain.errors import EngineUnreachable, SparkError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.reading import reason_of
from spark_tui.domain.text import clean
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import chat_words as words
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
        self._conversation = self._new_conversation()
        self._previous: Conversation | None = None
        self._ended_at: float | None = None
        self._shown = False
        self._may_focus = True
        self._note = ""
        self._note_timer: Timer | None = None
        self._frames = self.set_interval(FRAME_SECONDS, self._frame, pause=True)
        for name in ("engines", "selected"):
            self.bind_slice(name, lambda _: self._show_engine())

    async def on_unmount(self) -> None:
        """Closes the connection of an answer that is still coming."""
        await self._conversation.close()

    def on_screen_suspend(self) -> None:
        """Nothing is painted on a hidden screen; the answer goes on."""
        self._frames.pause()
        if self not in self.app.screen_stack:  # another screen, not a dialog over this one
            self._may_focus = True

    def on_screen_resume(self) -> None:
        """Shows what has come meanwhile, and is ready to write."""
        if self._conversation.live:
            self._frames.resume()
        self._shown = True
        self._show_all()
        self._focus_prompt()

    def _focus_prompt(self) -> None:
        """The prompt has the focus once there is someone to talk to, once per visit; until then digits are keys."""
        if not self._shown:
            return
        if self._may_focus and words.problem_with(self.selected_engine) is None:
            self._may_focus = False
            self.set_focus(self._prompt)  # at once: `focus()` comes later, and both branches may be asked in a row
        elif self.focused is None:
            self.set_focus(self._transcript)

    # --- parts ----------------------------------------------------------------------------------------

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def _new_conversation(self) -> Conversation:
        return Conversation(self.context.api, self.context.clock)

    # --- show -----------------------------------------------------------------------------------------

    def _show_all(self) -> None:
        why = reason_of(self.spark.engines)
        empty = words.empty(self.selected_engine, why, has_previous=self._previous is not None)
        self._transcript.show(words.turns(self._conversation.exchanges), empty)
        self._show_status()
        self._show_keys()

    def _frame(self) -> None:
        """Ten times a second while an answer comes."""
        self._transcript.show(words.turns(self._conversation.exchanges))
        self._show_status()

    def _show_engine(self) -> None:
        self.query_one("#prompt-pane").border_title = words.title(self.selected_engine)
        self._prompt.say(words.placeholder(self.selected_engine, reason_of(self.spark.engines)))
        self._show_all()
        self._focus_prompt()

    def _show_status(self) -> None:
        status, last = self.query_one(words.ChatStatus), self._conversation.last
        if self._note:
            status.left = words.note(self._note)
        elif last is not None and last.live:
            status.left = words.doing(last, self.context.clock.monotonic())
        else:
            status.left = words.room_used(last, self.selected_engine)
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
        last = self._conversation.last
        bar.actions = words.footer(live=self._conversation.live, writing=writing, started=last is not None)
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
        if self._conversation.live:
            self._say("An answer is coming: Esc stops it.")
        elif target := self._target():
            self._prompt.accept()
            self._ask(event.text.strip("\n"), target)

    def _target(self) -> ChatTarget | None:
        """Whom to ask; tells why when there is nobody."""
        view, problem = self.selected_engine, words.problem_with(self.selected_engine)
        watch = self.context.supervisor.find(view.name) if view is not None else None
        endpoint = watch.endpoint if watch is not None else None
        if view is not None and endpoint is not None and problem is None:
            return ChatTarget(view.name, endpoint, view.served_name)
        problem = problem or EngineUnreachable("The engine is gone.", "1 shows what runs.")
        self.notify(f"{problem.summary}\n{problem.remedy}", severity="warning", markup=False)
        return None

    def _ask(self, question: str, target: ChatTarget) -> None:
        self._read(self._conversation.ask(question, target))
        self._previous = None
        self._transcript.action_follow()
        self._frames.resume()
        self._show_all()

    @work(exit_on_error=False, group="answer")
    async def _read(self, answers: AsyncGenerator[Answer, None]) -> None:
        """Waits for the end of an answer, wherever the person is; the frames show what has come."""
        with suppress(SparkError):  # it stands in the transcript, where it happened
            async with aclosing(answers):
                async for _ in answers:
                    pass
        self._over()

    def _over(self) -> None:
        """The answer ended, failed or was stopped."""
        if self._conversation.live:  # the next one is coming already
            return
        self._ended_at = self.context.clock.monotonic()
        self._frames.pause()
        if self.is_current:
            self._show_all()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A failure that nobody foresaw stands in the transcript too; here it goes to the log."""
        if event.worker.group == "answer" and event.state is WorkerState.ERROR:
            self.log.error(event.worker.error)
            self._over()

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
        stopped = self._conversation.stop()
        if stopped:
            self._over()
        return stopped

    def action_write(self) -> None:
        """To the prompt."""
        self._prompt.focus()

    def action_regenerate(self) -> None:
        """Asks the last question again; what was answered is replaced."""
        if self._conversation.last is None:
            self._say("Nothing was asked yet.")
        elif target := self._target():
            self._ask(self._conversation.take_back(), target)

    def action_new_chat(self) -> None:
        """Begins anew; with nothing said yet, brings the last conversation back."""
        self._stop()
        if self._conversation.last is not None:
            self._previous, self._conversation = self._conversation, self._new_conversation()
        elif self._previous is not None:
            self._conversation, self._previous = self._previous, None
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
        text = next((e.answer.content for e in reversed(self._conversation.exchanges) if e.answer.content.strip()), "")
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
