"""Chat: talk to the selected engine, and see what each answer cost."""

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

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.chat import ChatTarget, Conversation, target_of
from spark_tui.domain.chat.conversation import ContextUse, Room
from spark_tui.domain.chat.message import Answer, Attachment, ToolCall
from spark_tui.domain.chat.request import NO_DEFAULTS, NO_SETTINGS, Defaults, check_taken, check_together
from spark_tui.domain.engine.state import Endpoint, EngineState
from spark_tui.domain.errors import EngineUnreachable, SparkError
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import human_count
from spark_tui.domain.reading import reason_of
from spark_tui.domain.text import clean
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.screens.chat_dialogs import (
    ChatSettingsPanel,
    ChoiceDialog,
    CompareScreen,
    ConversationsDialog,
    TextDialog,
    TokensScreen,
)
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.markdown import code_blocks
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


class ChatScreen(ChatGround):
    """What a person can do in a conversation, key by key."""

    _code_back = 0
    _code_of: tuple[int, int] = (0, 0)

    def action_stop_answer(self) -> None:
        """Stops the answer; else leaves tool calls unanswered; else leaves the prompt; else goes Home."""
        if self._stop():
            return
        if self._editing and self._prompt.has_focus:
            self._editing = 0
            self._prompt.load_text("")
            self._show_all()
            return
        if self._open_calls and self._prompt.has_focus and self._conversation.last is not None:
            self._calls_left = self._conversation.last.number
            self._results = []
            self._show_all()
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
            self._stop()
            self._begin(lambda: self._conversation.regenerate(target))

    def action_go_on(self) -> None:
        """Lets a stopped or cut answer go on."""
        last = self._conversation.last
        if last is None or not last.unfinished:
            self._say("The last answer came to its end." if last is not None else "Nothing was asked yet.")
        elif target := self._target():
            self._begin(lambda: self._conversation.go_on(target))

    # --- edit, fork, make room ------------------------------------------------------------------------

    def action_edit_question(self) -> None:
        """The last question comes back into the prompt; again, the one before. Sent, it takes back what followed."""
        asked = [each for each in self._conversation.exchanges if not each.tool_answers]
        asked = [each for each in asked if each.number < self._editing or not self._editing]
        if not asked:
            self._say("This is the first question." if self._editing else "Nothing was asked yet.")
            return
        self._stop()
        self._editing = asked[-1].number
        self._prompt.load_text(asked[-1].question)
        self._prompt.move_cursor(self._prompt.document.end)
        self._prompt.focus()
        self._show_all()

    @work(exit_on_error=False, group="conversation")
    async def action_fork_chat(self) -> None:
        """Goes on in a copy, which ends with the last answer or with one that the person chooses."""
        told = [each for each in reversed(self._conversation.exchanges) if not each.live]
        if self._conversation.live or not told:
            self._say("A fork begins with an answer.")
            return
        number = str(told[0].number)
        if len(told) > 1:
            choices = [(str(each.number), f"after {words.asked(each)}") for each in told]
            chosen = await self.app.push_screen_wait(ChoiceDialog("Go on in a copy", choices))
            if chosen is None:
                return
            number = chosen
        try:
            fork = await self.context.conversations.fork(self._conversation.thread(), int(number))
        except SparkError as error:
            self.spark.report(error)
            return
        self._go_over(fork)
        self._say("This is the copy now; the other one stays as it was.")

    @work(exit_on_error=False, group="conversation")
    async def action_make_room(self) -> None:
        """Proposals, of which the person chooses one; nothing is left out by itself."""
        use = self._use()
        trims = self._conversation.trims(use) if use is not None else ()
        choices = [(str(trim.sent_from), trim.sentence) for trim in trims]
        if self._conversation.sent_from:
            choices.append(("0", "send all of it again"))
        if not choices:
            self._say("There is room enough, or nothing that could be left out.")
            return
        chosen = await self.app.push_screen_wait(ChoiceDialog("Make room", choices))
        if chosen is not None:
            self._conversation.trim(int(chosen))
            self._show_all()

    # --- conversations --------------------------------------------------------------------------------

    def action_new_chat(self) -> None:
        """Begins anew; with nothing said yet, brings the last conversation back."""
        self._stop()
        if self._conversation.last is not None:
            self._let_go(self._previous)
            self._previous, self._conversation = self._conversation, self._new_conversation()
        elif self._previous is not None:
            self._conversation, self._previous = self._previous, None
        self._begin_at_the_end()

    def _go_over(self, conversation: Conversation) -> None:
        """To another conversation; the one that was shown is closed."""
        self._stop()
        self._let_go(self._conversation)
        self._conversation, self._chosen = conversation, conversation.settings
        self._begin_at_the_end()

    def _begin_at_the_end(self) -> None:
        self._results, self._calls_left, self._editing = [], 0, 0
        self._transcript.set_reasoning(None)
        self._transcript.action_follow()
        self._show_all()

    @work(exit_on_error=False, group="conversation")
    async def action_open_conversation(self) -> None:
        """Another conversation, from the list."""
        chosen = await self.app.push_screen_wait(ConversationsDialog(self.context.conversations, self._conversation.id))
        if chosen is None or chosen == self._conversation.id:
            return
        try:
            self._go_over(await self.context.conversations.open(chosen))
        except SparkError as error:
            self.spark.report(error)

    @work(exit_on_error=False, group="conversation")
    async def action_save_chat(self) -> None:
        """Writes it to a file."""
        if self._conversation.last is None:
            self._say("Nothing was said yet.")
            return
        dialog = TextDialog(
            "Save the conversation", "NAME.md is for reading, NAME.json can be imported again.",
            placeholder="~/talk.md",
        )  # fmt: skip
        path = await self.app.push_screen_wait(dialog)
        if path is None:
            return
        try:
            written = await self.context.conversations.put_out(self._conversation.thread(), path)
        except SparkError as error:
            self.spark.report(error)
        else:
            self._say(f"Written: {written}")

    # --- what is sent ---------------------------------------------------------------------------------

    @work(exit_on_error=False, group="conversation")
    async def action_chat_settings(self) -> None:
        """Everything that holds for the next question."""
        panel = ChatSettingsPanel(self.context.conversations, self._chosen, self._defaults_here)
        chosen = await self.app.push_screen_wait(panel)
        if chosen is not None:
            self._chosen = chosen
            count = len(chosen.parameters.told()) + bool(chosen.system) + bool(chosen.tools)
            self._say(f"For the next question: {count} settings of yours." if count else "The defaults hold again.")

    @work(exit_on_error=False, group="conversation")
    async def action_attach(self) -> None:
        """A picture or a sound by its path; once more adds another, an empty path takes them all away."""
        dialog = TextDialog("Attach", "A picture or a sound for the next question.", placeholder="~/photo.jpg")
        path = await self.app.push_screen_wait(dialog)
        if path is None:
            self._attached = ()
            self._show_keys()
            return
        try:
            attached = (*self._attached, await self.context.conversations.attachment(path))
            check_together(attached)
            check_taken(attached, self._defaults_here.modalities, words.name_of(self.selected_engine))
        except SparkError as error:
            self.spark.report(error)
            return
        self._attached = attached
        self._show_keys()

    # --- look and copy --------------------------------------------------------------------------------

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

    def action_copy_code(self) -> None:
        """The last code block of the conversation; pressed again, the one before it."""
        blocks = [code for each in self._conversation.exchanges for code in code_blocks(each.answer.content)]
        if not blocks:
            self._say("There is no code here.")
            return
        now = (len(blocks), self._conversation.exchanges[-1].number)
        self._code_back = self._code_back + 1 if now == self._code_of else 1
        self._code_of = now
        back = (self._code_back - 1) % len(blocks) + 1
        code = clean(blocks[-back])
        self.app.copy_to_clipboard(code)
        lines = code.count("\n") + 1
        which = f" {len(blocks) - back + 1} of {len(blocks)}" if len(blocks) > 1 else ""
        again = " Again: the one before." if len(blocks) > 1 else ""
        self._say(f"Copied code{which}: {lines} line{'s' if lines > 1 else ''}.{again}")

    def action_token_chances(self) -> None:
        """How sure the model was of each token."""
        if any(exchange.answer.chances for exchange in self._conversation.exchanges):
            self.app.push_screen(TokensScreen(self._conversation.exchanges, self.spark.glyphs))
        else:
            self._say(words.no_chances(self._chosen.over(self._defaults_here.settings)))

    @work(exit_on_error=False, group="conversation")
    async def action_compare(self) -> None:
        """The last question to another engine, side by side."""
        last, here = self._conversation.last, self._target()
        others = [view for view in self.engines() if view.state is EngineState.SERVING and view.served_name]
        others = [view for view in others if self.spark.selected != view.name]
        if last is None or not last.question or here is None:
            self._say("Ask something first: then two engines can be compared.")
            return
        if not others:
            self._say("No other engine serves here.")
            return
        name = others[0].name
        if len(others) > 1:
            choices = [(view.name, f"{view.served_name} on {view.name}") for view in others]
            chosen = await self.app.push_screen_wait(ChoiceDialog("Compare with", choices))
            if chosen is None:
                return
            name = chosen
        view = next(each for each in others if each.name == name)
        watch = self.context.supervisor.find(name)
        if watch is None or watch.endpoint is None:
            self._say(f"{name} is gone.")
            return
        settings = self._chosen.over(self._defaults_here.settings)
        targets = (here, target_of(view, watch.endpoint))
        self.app.push_screen(CompareScreen(self.context, last, settings, targets))

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
