"""The Chat screen's ground: the conversation on screen, the prompt, and how a question is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import DescendantBlur, DescendantFocus
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from spark_tui.core.actions import Scope
from spark_tui.core.chat_target import ChatTarget, target_of
from spark_tui.core.conversation import Conversation
from spark_tui.core.key_words import key_of
from spark_tui.domain.chat import Answer, Attachment, ToolCall
from spark_tui.domain.chat_context import ContextUse, Room
from spark_tui.domain.chat_settings import NO_DEFAULTS, NO_SETTINGS, Defaults
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import EngineUnreachable, SparkError
from spark_tui.domain.reading import reason_of
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.prompt import Prompt
from spark_tui.tui.widgets.transcript import Transcript
from spark_tui.tui.widgets.turn import Turn

FRAME_SECONDS = 0.1
FIGURES_SECONDS = 0.5
NOTE_SECONDS = 4.0
LATE_ESC_SECONDS = 1.0
"""Esc pressed to stop an answer that has just ended must not leave the prompt: what is typed next would be keys."""


class ChatGround(FrameScreen):
    """One conversation with whatever engine is selected. What the keys do stands in ChatScreen."""

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
        self._chosen = NO_SETTINGS
        self._defaults: dict[str, Defaults] = {}
        self._conversation = self._new_conversation()
        self._kept_turns = words.KeptTurns()
        self._previous: Conversation | None = None
        self._attached: tuple[Attachment, ...] = ()
        self._results: list[str] = []
        self._calls_left = 0
        self._editing = 0
        self._ended_at: float | None = None
        self._phase = ""
        self._figures_at = 0.0
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
        if self._previous is not None:
            await self._previous.close()

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
        return self.context.conversations.new(self._chosen)

    # --- show -----------------------------------------------------------------------------------------

    def _show_all(self) -> None:
        why = reason_of(self.spark.engines)
        empty = words.empty(self.selected_engine, why, has_previous=self._previous is not None)
        self._transcript.show(self._turns(), empty)
        self._show_prompt()
        self._show_status()
        self._show_keys()

    def _turns(self) -> tuple[Turn, ...]:
        return self._kept_turns.of(self._conversation.exchanges, self._conversation.sent_from)

    def _frame(self) -> None:
        """Ten times a second while an answer comes; its figures twice, which is as fast as they can be read."""
        self._transcript.show(self._turns())
        last, now = self._conversation.last, self.context.clock.monotonic()
        phase = words.phase(last.answer) if last is not None else ""
        if phase != self._phase or now - self._figures_at >= FIGURES_SECONDS:
            self._phase, self._figures_at = phase, now
            self._show_status()

    def _show_engine(self) -> None:
        view = self.selected_engine
        if view is not None and view.served_name and view.name not in self._defaults:
            self._defaults[view.name] = NO_DEFAULTS
            self._learn_defaults(view)
        self._show_all()
        self._focus_prompt()

    @work(exit_on_error=False, group="defaults")
    async def _learn_defaults(self, view: EngineView) -> None:
        """What the engine's preset recommends, and what its model takes."""
        self._defaults[view.name] = await self.context.conversations.defaults(view.container.preset, view.served_name)

    def _show_prompt(self) -> None:
        """To whom one writes: the model, or a tool call of it whose result is typed."""
        calls, pane = self._open_calls, self.query_one("#prompt-pane")
        if self._editing:
            entitle(pane, words.edits(self._conversation.exchanges, self._editing))
        elif calls:
            place = len(self._results)
            entitle(pane, words.result_title(calls[place], place + 1, len(calls)))
            self._prompt.say(Content("What the tool returned: you type it, nothing is run"))
        else:
            entitle(pane, words.title(self.selected_engine))
            self._prompt.say(words.placeholder(self.selected_engine, reason_of(self.spark.engines)))

    @property
    def _open_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that wait for results; none when the person left them."""
        last = self._conversation.last
        return last.open_calls if last is not None and last.number != self._calls_left else ()

    def _show_status(self) -> None:
        status, last = self.query_one(words.ChatStatus), self._conversation.last
        if self._note:
            status.left = words.note(self._note)
        elif last is not None and last.live:
            status.left = words.doing(last, self.context.clock.monotonic())
        else:
            status.left = words.room_used(self._use() if last is not None else None)
        key = key_of("follow_answer") if self._prompt.has_focus and self._prompt.text else "End"
        status.right = words.below(0 if self._transcript.following else self._transcript.below, key)
        status.renew()

    def _use(self, question: str = "") -> ContextUse | None:
        """How much of the selected engine's context the conversation takes."""
        view = self.selected_engine
        if view is None or not view.served_name:
            return None
        target = target_of(view, Endpoint(view.base_url))
        return self._conversation.use(target, question, self._attached)

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
        files = tuple(each.name for each in self._attached)
        entitle(pane, words.hint(writing=writing, files=files, call=bool(self._open_calls)), below=True)

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
            self._say(f"An answer is coming: {key_of('stop_answer')} stops it.")
        elif target := self._target():
            if self._editing:
                self._send_edited(event.text.strip("\n"), target)
            elif self._open_calls:
                self._prompt.accept()
                self._give_result(event.text.strip("\n"), target)
            else:
                self._ask(event.text.strip("\n"), target)

    def _send_edited(self, text: str, target: ChatTarget) -> None:
        """The edited question takes the place of the old one, and of what followed."""
        number = self._editing
        if self._begin(lambda: self._conversation.edit(number, text, target)):
            self._editing = 0
            self._prompt.accept()
            self._show_all()

    def _give_result(self, text: str, target: ChatTarget) -> None:
        """A tool call's result; with the last one they are sent."""
        self._results.append(text)
        if len(self._results) < len(self._open_calls):
            self._show_all()
            return
        results, self._results = self._results, []
        self._begin(lambda: self._conversation.answer_tools(results, target))

    def _target(self) -> ChatTarget | None:
        """Whom to ask; tells why when there is nobody."""
        view, problem = self.selected_engine, words.problem_with(self.selected_engine)
        watch = self.context.supervisor.find(view.name) if view is not None else None
        endpoint = watch.endpoint if watch is not None else None
        if view is not None and endpoint is not None and problem is None:
            return target_of(view, endpoint, modalities=self._defaults_here.modalities)
        problem = problem or EngineUnreachable("The engine is gone.", "1 shows what runs.")
        self.notify(f"{problem.summary}\n{problem.remedy}", severity="warning", markup=False)
        return None

    @property
    def _defaults_here(self) -> Defaults:
        """What the selected engine's preset recommends."""
        view = self.selected_engine
        return self._defaults.get(view.name, NO_DEFAULTS) if view is not None else NO_DEFAULTS

    def _ask(self, question: str, target: ChatTarget) -> None:
        """A question, with what is attached; it stays in the prompt when it cannot be sent."""
        use = self._use(question)
        if self._begin(lambda: self._conversation.ask(question, target, self._attached)):
            self._prompt.accept()
            self._attached = ()
            self._let_go(self._previous)
            self._previous = None
            if use is not None and use.room is Room.OVER:
                self._say(f"The context is full: if the engine refuses, {key_of('make_room')} makes room.")
            self._show_keys()

    def _begin(self, begin: Callable[[], AsyncGenerator[Answer, None]]) -> bool:
        """Lets an answer begin; whether it did."""
        self._unsay()
        self._conversation.settings = self._chosen.over(self._defaults_here.settings)
        try:
            answers = begin()
        except SparkError as error:
            self.spark.report(error)
            return False
        self._read(answers)
        self._transcript.action_follow()
        self._frames.resume()
        self._show_all()
        return True

    def _let_go(self, conversation: Conversation | None) -> None:
        """Closes a conversation that is no longer shown."""
        if conversation is not None:
            self.run_worker(conversation.close(), group="closing", exit_on_error=False)

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
        self._results = []
        self._frames.pause()
        self._tell_journal()
        if self.is_current:
            self._show_all()

    def _tell_journal(self) -> None:
        """What was said is on the disk, or the person knows that it is not."""
        journal = self._conversation.journal
        if journal is not None and journal.error is not None:
            self._say(f"Not kept: {journal.error.summary}")
        elif journal is not None and journal.moved_from:
            journal.moved_from = ""
            self._say("Another program writes in that conversation: this goes on in a copy.")

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A failure that nobody foresaw stands in the transcript too; here it goes to the log."""
        if event.worker.group == "answer" and event.state is WorkerState.ERROR:
            self.log.error(event.worker.error)
            self._over()
