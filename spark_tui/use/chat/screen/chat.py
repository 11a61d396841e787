"""Chat with the selected engine, and see what each answer cost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import ClassVar, cast

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from spark_tui.base.actions import Action, Scope, action, key_of, of_scope, screen_keys
from spark_tui.base.context import Context
from spark_tui.base.engine import request
from spark_tui.base.engine.message import Answer, Attachment
from spark_tui.base.engine.state import Endpoint, EngineState, Health
from spark_tui.base.errors import EngineUnreachable, ModelNotServed, SparkError
from spark_tui.base.finding import NOT_READ_YET, reason_of, value_of
from spark_tui.base.quantities import short_tokens
from spark_tui.base.text import clean
from spark_tui.observe.engines.show.engines import engine_status
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameApp, FrameScreen, acting, bindings
from spark_tui.tui.modals import ChoiceDialog, TextDialog
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.line import Line, entitle, spread
from spark_tui.tui.widgets.markdown import code_blocks
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.yank import Yank
from spark_tui.use.chat.model.conversation import ContextRoom, ContextUse, Exchange
from spark_tui.use.chat.screen.dialogs import ChatSettingsPanel, ConversationsDialog
from spark_tui.use.chat.screen.prompt import Prompt
from spark_tui.use.chat.screen.transcript import Transcript
from spark_tui.use.chat.screen.turn import Turn
from spark_tui.use.chat.show import brief, context_gauge, phase, progress, rail_page
from spark_tui.use.chat.use.chat import ChatTarget, Conversation, target_of
from spark_tui.use.chat.use.conversations import Conversations

RAIL_COLUMNS = 160
"""Columns of a terminal on which the engine's and the answer's figures stand beside the conversation."""
FRAME_SECONDS = 0.1
FIGURES_SECONDS = 0.5
NOTE_SECONDS = 4.0
LATE_ESC_SECONDS = 1.0
"""Esc pressed to stop an answer that has just ended must not leave the prompt: what is typed next would be keys."""
KEY = "bold $footer-key-foreground"


class StatusLine(Line):
    left = Content("")
    right = Content("")

    def say(self, width: int) -> Content:
        return spread(self.left, self.right, width)


async def read_to_end(answers: AsyncGenerator[Answer, None]) -> None:
    """Reads an answer; its exchange holds the text and the error that ends it."""
    with suppress(SparkError):
        async with aclosing(answers):
            async for _ in answers:
                pass


class ChatScreen(FrameScreen):
    """One conversation with the selected engine."""

    SCOPE = Scope.CHAT
    TAB = "show_chat"
    OF_ENGINE = True
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.CHAT)
    AUTO_FOCUS = ""

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="chat-body"):
            yield Transcript(self.spark.glyphs, id="transcript")
            with VerticalScroll(id="chat-rail", classes="pane", can_focus=False) as rail:
                rail.border_title = "Conversation"
                yield Page(10, id="rail")
        yield StatusLine(id="chat-status")
        with Container(id="prompt-pane", classes="pane"):
            yield Prompt(id="prompt")

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.named(ENGINES, self.spark.selected)

    def on_mount(self) -> None:
        self._chosen = request.NO_SETTINGS
        self._defaults: dict[str, request.Defaults] = {}
        self._conversation = self.context[Conversations].new(self._chosen)
        self._previous: Conversation | None = None
        self._attached: tuple[Attachment, ...] = ()
        self._editing = 0
        """The number of the question that is edited; 0: none."""
        self._last_use: ContextUse | None = None
        """The context before the answer that is coming."""
        self._ended_at: float | None = None
        self._phase = ""
        self._figures_at = 0.0
        self._arrives = True
        self._note = ""
        self._note_timer: Timer | None = None
        self._code_back = 0
        self._code_of: tuple[int, int] = (0, 0)
        self._frames = self.set_interval(FRAME_SECONDS, self._frame, pause=True)
        self.bind_slices((ENGINES, "selected"), self._show_engine)

    async def on_unmount(self) -> None:
        for conversation in (self._conversation, self._previous):
            if conversation is not None:
                await conversation.close()

    def on_screen_suspend(self) -> None:
        """Nothing is painted on a hidden screen; the answer continues."""
        self._frames.pause()
        if self not in self.app.screen_stack:  # another screen, not a dialog over this one
            self._arrives = True

    def on_screen_resume(self) -> None:
        """A launch that has no engine yet cannot be asked: the chat is then with the first engine that serves."""
        if self.selected_engine is None:
            serving = (view.name for view in self.world.known(ENGINES) if view.state is EngineState.SERVING)
            self.spark.selected = next(serving, self.spark.selected)
        if self._conversation.live:
            self._frames.resume()
        self._show_all()
        if self._arrives:
            self._arrives = False
            self.action_write()

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one(Prompt)

    # --- show -----------------------------------------------------------------------------------------

    def _show_all(self) -> None:
        text = empty(self.selected_engine, reason_of(self.world[ENGINES]), has_previous=self._previous is not None)
        self._show_turns(text)
        self._show_prompt()
        self._show_status()
        self.name_keys()

    def _show_turns(self, text: Content | None = None) -> None:
        self._transcript.show(self._conversation.exchanges, text, sent_from=self._conversation.sent_from)

    def _frame(self) -> None:
        """Paints the text ten times a second, its figures twice: faster cannot be read."""
        self._show_turns()
        last, now = self._conversation.last, self.context.clock.monotonic()
        doing = phase(last.answer) if last is not None else ""
        if doing != self._phase or now - self._figures_at >= FIGURES_SECONDS:
            self._phase, self._figures_at = doing, now
            self._show_status()

    def _show_engine(self) -> None:
        view = self.selected_engine
        if view is not None and view.served_name and view.name not in self._defaults:
            self._defaults[view.name] = request.NO_DEFAULTS
            self._load_defaults(view)
        self._show_all()

    @work(exit_on_error=False, group="defaults")
    async def _load_defaults(self, view: EngineView) -> None:
        self._defaults[view.name] = await self.context[Conversations].defaults(view.container.preset, view.served_name)

    def _show_prompt(self) -> None:
        pane = self.query_one("#prompt-pane")
        if self._editing:
            numbers = [each.number for each in self._conversation.exchanges]
            several = self._editing in numbers and len(numbers) > 1
            place = f" {numbers.index(self._editing) + 1} of {len(numbers)}" if several else ""
            entitle(pane, f"edit question{place}: later messages will be removed")
        else:
            entitle(pane, title(self.selected_engine))
            self._prompt.say(placeholder(self.selected_engine, reason_of(self.world[ENGINES])))

    def _show_status(self) -> None:
        status, last = self.query_one("#chat-status", StatusLine), self._conversation.last
        if self._note:
            status.left = Content(f" {self._note}")
        elif last is not None and last.live:
            status.left = live_state(last, self.context.clock.monotonic())
        else:
            self._last_use = use = self._use() if last is not None else None
            gauge = context_gauge(use)
            status.left = Content.styled(f" {gauge.text}".rstrip(), fmt.TONE_STYLES[gauge.tone])
            if use is not None and use.room in (ContextRoom.NEAR, ContextRoom.OVER):
                hint = ((key_of("make_room"), KEY), (" make room", "$dim"))
                status.left = Content.assemble(status.left, "   ", *hint)
        below = 0 if self._transcript.following else self._transcript.below
        key = key_of("follow_answer") if self._prompt.has_focus and self._prompt.text else "End"
        status.right = Content("")
        if below:
            count = f"{below:,} line{'s' if below > 1 else ''} below   "
            status.right = Content.assemble((count, "$warning"), (key, KEY), (" follow ", "$dim"))
        status.renew()
        self._show_rail()

    def _show_rail(self) -> None:
        """What the conversation costs and leaves, on wide windows."""
        if self.app.size.width < RAIL_COLUMNS:
            return
        last, glyphs = self._conversation.last, self.spark.glyphs
        metrics = value_of(self.context[EngineMetricsCollector].current(self.spark.selected))
        found = rail_page(
            self.selected_engine, last, self._last_use, metrics, self._chosen, (glyphs.full, glyphs.empty)
        )
        self.query_one("#rail", Page).show(found)

    def _use(self, question: str = "") -> ContextUse | None:
        view = self.selected_engine
        if view is None or not view.served_name:
            return None
        return self._conversation.use(target_of(view, Endpoint(view.base_url)), question, self._attached)

    def _say(self, note: str) -> None:
        """A short message in the status line; a toast would cover the prompt."""
        if self._note_timer is not None:
            self._note_timer.stop()
        self._note, self._note_timer = note, self.set_timer(NOTE_SECONDS, self._clear_note)
        self._show_status()

    def _clear_note(self) -> None:
        self._note = ""
        self._show_status()

    def name_keys(self) -> None:
        writing, bar = self._prompt.has_focus, self.query_one(KeyBar)
        bar.actions = footer(live=self._conversation.live, writing=writing, started=self._conversation.last is not None)
        bar.renew()
        files = tuple(each.name for each in self._attached)
        view = self.selected_engine
        waits_for = "" if problem_with(view) is None else view.name if view is not None else "an engine"
        keys = hint(writing=writing, files=files, waits_for=waits_for)
        entitle(self.query_one("#prompt-pane"), keys, below=True)

    def on_transcript_moved(self) -> None:
        self._show_status()

    # --- ask ------------------------------------------------------------------------------------------

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Sends, when an engine can be asked; else the text stays in the prompt."""
        if self._conversation.live:
            self._say(f"The model is still answering: {key_of('stop_answer')} to stop.")
            return
        target, text = self._target(), event.text.strip("\n")
        if target is None:
            return
        if number := self._editing:
            if self._begin(lambda: self._conversation.edit(number, text, target)):
                self._editing = 0
                self._prompt.accept()
                self._show_all()
        else:
            self._ask(text, target)

    def _target(self) -> ChatTarget | None:
        """The engine to ask; else says why there is none."""
        view, problem = self.selected_engine, problem_with(self.selected_engine)
        watch = self.context[EngineSupervisor].find(view.name) if view is not None else None
        endpoint = watch.endpoint if watch is not None else None
        if view is not None and endpoint is not None and problem is None:
            return target_of(view, endpoint, modalities=self._defaults_here.modalities)
        problem = problem or EngineUnreachable("The engine is gone.", f"{key_of('show_home')} shows running engines.")
        self._say(fmt.safe(f"{problem.summary} {problem.remedy}").plain)
        return None

    @property
    def _defaults_here(self) -> request.Defaults:
        view = self.selected_engine
        return self._defaults.get(view.name, request.NO_DEFAULTS) if view is not None else request.NO_DEFAULTS

    def _ask(self, question: str, target: ChatTarget) -> None:
        use = self._use(question)
        if self._begin(lambda: self._conversation.ask(question, target, self._attached)):
            self._prompt.accept()
            self._attached = ()
            self._close(self._previous)
            self._previous = None
            if use is not None and use.room is ContextRoom.OVER:
                self._say(f"Context full. If the engine refuses: {key_of('make_room')} make room.")
            self.name_keys()

    def _begin(self, begin: Callable[[], AsyncGenerator[Answer, None]]) -> bool:
        """False when the answer could not be started."""
        self._clear_note()
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

    def _close(self, conversation: Conversation | None) -> None:
        if conversation is not None:
            self.run_worker(conversation.close(), group="closing", exit_on_error=False)

    @work(exit_on_error=False, group="answer")
    async def _read(self, answers: AsyncGenerator[Answer, None]) -> None:
        """Waits for the end of an answer, whatever screen is shown; the frames show what has come."""
        await read_to_end(answers)
        self._over()

    def _over(self) -> None:
        if self._conversation.live:  # the next one is coming already
            return
        self._ended_at = self.context.clock.monotonic()
        self._frames.pause()
        journal = self._conversation.journal
        if journal is not None and journal.error is not None:
            self._say(f"Not saved: {journal.error.summary}")
        elif journal is not None and journal.moved_from:
            journal.moved_from = ""
            self._say("This conversation is open elsewhere: continuing in a copy.")
        if self.is_current:
            self._show_all()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """An unexpected failure is in the transcript too; here it goes to the log."""
        if event.worker.group == "answer" and event.state is WorkerState.ERROR:
            self.log.error(event.worker.error)
            self._over()

    # --- keys: answers --------------------------------------------------------------------------------

    def action_stop_answer(self) -> None:
        """Stops the answer, else cancels the edit, leaves the prompt, and then the screen."""
        if self._stop():
            return
        if not self._prompt.has_focus:
            self.spark.switch_mode("home")
        elif self._editing:
            self._editing = 0
            self._prompt.load_text("")
            self._show_all()
        elif self._ended_at is None or self.context.clock.monotonic() - self._ended_at > LATE_ESC_SECONDS:
            self._transcript.focus()

    def _stop(self) -> bool:
        if not self._conversation.stop():
            return False
        self._over()
        return True

    def action_write(self) -> None:
        """Whatever the engine does: what is typed here is text until Esc leaves the prompt."""
        self.set_focus(self._prompt)  # at once: the next key may be under way

    chosen_again = action_write

    def action_regenerate(self) -> None:
        if self._conversation.last is None:
            self._say("No question yet.")
        elif target := self._target():
            self._stop()
            self._begin(lambda: self._conversation.regenerate(target))

    def action_go_on(self) -> None:
        last = self._conversation.last
        if last is None or not last.unfinished:
            self._say("The last answer is complete." if last is not None else "No question yet.")
        elif target := self._target():
            self._begin(lambda: self._conversation.go_on(target))

    def action_edit_question(self) -> None:
        """Brings the last question back into the prompt; pressed again, the one before it."""
        exchanges = self._conversation.exchanges
        asked = [each for each in exchanges if each.number < self._editing or not self._editing]
        if not asked:
            self._say("This is the first question." if self._editing else "No question yet.")
            return
        self._stop()
        self._editing = asked[-1].number
        self._prompt.load_text(asked[-1].question)
        self._prompt.move_cursor(self._prompt.document.end)
        self._prompt.focus()
        self._show_all()

    @acting("conversation", exclusive=False)
    async def action_make_room(self) -> None:
        """Offers trims; nothing is left out without a choice."""
        use = self._use()
        trims = self._conversation.trims(use) if use is not None else ()
        choices = [(str(trim.sent_from), trim.sentence) for trim in trims]
        if self._conversation.sent_from:
            choices.append(("0", "send all messages again"))
        if not choices:
            self._say("Nothing to leave out: the context has room, or the rest is needed.")
            return
        chosen = await self.app.push_screen_wait(ChoiceDialog("Make room", choices))
        if chosen is not None:
            self._conversation.trim(int(chosen))
            self._show_all()

    # --- keys: conversations --------------------------------------------------------------------------

    def action_new_chat(self) -> None:
        """Starts a new conversation; before its first question, brings the last one back."""
        self._stop()
        if self._conversation.last is not None:
            self._close(self._previous)
            self._previous, self._conversation = self._conversation, self.context[Conversations].new(self._chosen)
        elif self._previous is not None:
            self._conversation, self._previous = self._previous, None
        self._show_conversation()

    def _show_conversation(self) -> None:
        self._editing = 0
        self._transcript.set_reasoning(None)
        self._transcript.action_follow()
        self._show_all()

    @acting("conversation", exclusive=False)
    async def action_open_conversation(self) -> None:
        chosen = await self.app.push_screen_wait(
            ConversationsDialog(self.context[Conversations], self._conversation.id)
        )
        if chosen is not None and chosen != self._conversation.id:
            conversation = await self.context[Conversations].open(chosen)
            self._stop()
            self._close(self._conversation)
            self._conversation, self._chosen = conversation, conversation.settings
            self._show_conversation()

    @acting("conversation", exclusive=False)
    async def action_save_chat(self) -> None:
        if self._conversation.last is None:
            self._say("Nothing to save yet.")
            return
        hint = "NAME.md to read it, NAME.json to import it again."
        path = await self.app.push_screen_wait(TextDialog("Save the conversation", hint, placeholder="~/talk.md"))
        if path is not None:
            written = await self.context[Conversations].export(self._conversation.thread(), path)
            self._say(f"Saved: {written}")

    @acting("conversation", exclusive=False)
    async def action_chat_settings(self) -> None:
        panel = ChatSettingsPanel(self.context[Conversations], self._chosen, self._defaults_here)
        chosen = await self.app.push_screen_wait(panel)
        if chosen is not None:
            self._chosen = chosen
            count = len(chosen.parameters.given()) + bool(chosen.system) + bool(chosen.tools)
            self._say(f"Changed settings for the next question: {count}." if count else "Default settings.")

    @acting("conversation", exclusive=False)
    async def action_attach(self) -> None:
        """Adds an image or a sound by its path; an empty path removes all."""
        prompt = TextDialog("Attach", "An image or a sound file for the next question.", placeholder="~/photo.jpg")
        path = await self.app.push_screen_wait(prompt)
        attached = () if path is None else (*self._attached, await self.context[Conversations].attachment(path))
        request.check_together(attached)
        request.check_taken(attached, self._defaults_here.modalities, name_of(self.selected_engine))
        self._attached = attached
        self.name_keys()

    # --- keys: look and copy --------------------------------------------------------------------------

    def action_toggle_reasoning(self) -> None:
        """Shows all reasoning, from the last one's headline on; or hides it, and follows the end again."""
        turn = self._last_reasoning()
        if turn is None:
            self._say("No reasoning in this conversation.")
        elif self._transcript.is_open(turn):
            self._transcript.set_reasoning(False if turn.reasons_now else None)
            self._transcript.action_follow()
        else:
            self._transcript.set_reasoning(True)
            if not turn.reasons_now:
                self._transcript.reveal_reasoning()

    def on_transcript_reasoning_clicked(self) -> None:
        turn = self._last_reasoning()
        if turn is not None:
            self._transcript.follow(False)
            self._transcript.set_reasoning(None if self._transcript.is_open(turn) else True)

    def _last_reasoning(self) -> Turn | None:
        return next((turn for turn in reversed(self._transcript.turns) if turn.reasoning), None)

    def yanks(self) -> tuple[Yank, ...]:
        """The last answer, its question, and the last block of code."""
        exchanges, code = self._conversation.exchanges, self._code()
        answered = next((each for each in reversed(exchanges) if each.answer.content.strip()), None)
        if answered is None:
            return ()
        answer = Yank("Answer", "a", clean(answered.answer.content).strip("\n"))
        question = Yank("Question", "q", clean(answered.question))
        return (answer, question, *([Yank("Code", "c", clean(code[-1]))] if code else ()))

    def _code(self) -> list[str]:
        """The blocks of code of the conversation."""
        return [code for each in self._conversation.exchanges for code in code_blocks(each.answer.content)]

    def action_copy_answer(self) -> None:
        if entries := self.yanks():
            self.spark.copy(entries[0])
        else:
            self._say("No answer to copy.")

    def action_copy_code(self) -> None:
        """The last code block of the conversation; pressed again, the one before it."""
        blocks = self._code()
        if not blocks:
            self._say("No code in this conversation.")
            return
        now = (len(blocks), self._conversation.exchanges[-1].number)
        self._code_back = self._code_back + 1 if now == self._code_of else 1
        self._code_of = now
        back = (self._code_back - 1) % len(blocks) + 1
        code = clean(blocks[-back])
        which = f" {len(blocks) - back + 1} of {len(blocks)}" if len(blocks) > 1 else ""
        self.spark.copy(Yank(f"Code{which}", "c", code))

    @acting("conversation", exclusive=False)
    async def action_compare(self) -> None:
        """The last question to another engine too, side by side."""
        last, here = self._conversation.last, self._target()
        others = {
            view.name: view
            for view in self.world.known(ENGINES)
            if view.state is EngineState.SERVING and view.served_name
        }
        others.pop(self.spark.selected, None)
        if last is None or not last.question or here is None:
            self._say("Ask a question first.")
            return
        if not others:
            self._say("No other engine is serving.")
            return
        name: str | None = next(iter(others))
        if len(others) > 1:
            choices = [(view.name, f"{view.served_name} on {view.name}") for view in others.values()]
            name = await self.app.push_screen_wait(ChoiceDialog("Compare with", choices))
        watch = self.context[EngineSupervisor].find(name) if name else None
        if name and watch is not None and watch.endpoint is not None:
            settings = self._chosen.over(self._defaults_here.settings)
            targets = (here, target_of(others[name], watch.endpoint))
            self.app.push_screen(CompareAnswersScreen(self.context, last, settings, targets))
        elif name:
            self._say(f"{name} is gone.")

    def on_prompt_edge(self, event: Prompt.Edge) -> None:
        """Home and End in an empty prompt are meant for the transcript."""
        if event.step < 0:
            self._transcript.action_top()
        else:
            self._transcript.action_follow()

    def action_follow_answer(self) -> None:
        self._transcript.action_follow()

    def action_older_lines(self) -> None:
        self._transcript.action_page(-1)

    def action_newer_lines(self) -> None:
        self._transcript.action_page(1)

    def engine_choices(self) -> list[str]:
        return [view.name for view in self.world.known(ENGINES) if view.state is EngineState.SERVING]

    @acting("conversation", exclusive=False)
    async def action_choose_engine(self) -> None:
        """Asks which serving engine to talk to."""
        ready = [view for view in self.world.known(ENGINES) if problem_with(view) is None]
        choices = [(view.name, f"{view.name}   {view.served_name}") for view in ready]
        if not choices:
            self._say("No engine is serving.")
        elif chosen := await self.app.push_screen_wait(ChoiceDialog("Chat with", choices)):
            self.spark.selected = chosen


class CompareAnswersScreen(QuietModal[None]):
    """One question to two engines, side by side; nothing is saved. Going back stops what still comes."""

    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Back"),
        Binding("tab,left,right", "app.focus_next", "Other side", show=False),
        Binding("ctrl+g", "again", "Retry"),
        Binding("ctrl+t", "reasoning", "Reasoning"),
    ]

    def __init__(
        self, context: Context, asked: Exchange, settings: request.ChatSettings, targets: tuple[ChatTarget, ChatTarget]
    ) -> None:
        super().__init__()
        self._core = context
        self._asked = asked
        self._settings = settings
        self._targets = targets
        self._sides: list[Conversation] = []

    def compose(self) -> ComposeResult:
        glyphs = cast("FrameApp", self.app).glyphs
        with Vertical(classes="dialog", id="compare") as dialog:
            dialog.border_title = fmt.safe(f"Two engines: {brief(self._asked)}")
            dialog.border_subtitle = fmt.key_hints("Tab other side  ^g retry  Esc back")
            with Horizontal(id="compare-sides"):
                for place, target in enumerate(self._targets):
                    with Vertical(classes="compare-side") as side:
                        side.border_title = fmt.safe(f"{target.model} on {target.engine}")
                        yield Transcript(glyphs, id=f"side-{place}")
                        yield StatusLine(id=f"doing-{place}", classes="doing")

    def on_mount(self) -> None:
        self._frames = self.set_interval(FRAME_SECONDS, self._frame)
        self._ask()
        self.query_one("#side-0").focus()

    async def on_unmount(self) -> None:
        for side in self._sides:
            await side.close()

    def _ask(self) -> None:
        self._sides = [self._core[Conversations].new(self._settings, keep=False) for _ in self._targets]
        for side, target in zip(self._sides, self._targets, strict=True):
            try:
                answers = side.ask(self._asked.question, target, self._asked.attachments)
            except SparkError as error:
                cast("FrameApp", self.app).report(error)
            else:
                self.run_worker(read_to_end(answers), group="compare", exit_on_error=False)
        self._frames.resume()

    def _frame(self) -> None:
        now = self._core.clock.monotonic()
        for place, side in enumerate(self._sides):
            self.query_one(f"#side-{place}", Transcript).show(side.exchanges)
            line, last = self.query_one(f"#doing-{place}", StatusLine), side.last
            line.left = live_state(last, now) if last is not None and last.live else Content("")
            line.renew()
        if not any(side.live for side in self._sides):
            self._frames.pause()

    @work(exit_on_error=False, exclusive=True, group="again")
    async def action_again(self) -> None:
        for side in self._sides:
            await side.close()
        self._ask()

    def action_reasoning(self) -> None:
        for transcript in self.query(Transcript):
            transcript.set_reasoning(None if transcript.reasoning else True)


# --- texts ------------------------------------------------------------------------------------------------


def _to_presets() -> str:
    return f"{key_of('stop_answer')}, then {key_of('show_presets')}"


def problem_with(view: EngineView | None) -> SparkError | None:
    """Why an engine cannot be asked now; None when it can."""
    if view is None:
        return EngineUnreachable("No engine is serving.", f"{_to_presets()} to launch one.")
    if view.state in (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING):
        return EngineUnreachable(f"{view.name} is not ready: {engine_status(view).text}.", "Wait until it is ready.")
    if view.state is EngineState.PAUSED:
        return EngineUnreachable(f"{view.name} is paused in Docker.", f"Resume it: docker unpause {view.name}")
    if view.state is EngineState.NOT_ANSWERING and view.health is Health.FAILING:
        return EngineUnreachable(f"{view.name} is {view.health.value}.", "Read its log, or restart it.")
    if view.state not in (EngineState.SERVING, EngineState.NOT_ANSWERING):
        remedy = "Select another engine on Home, or start this one."
        return EngineUnreachable(f"{view.name} is not serving: {engine_status(view).text}.", remedy)
    if not view.base_url:
        return EngineUnreachable(f"{view.name} publishes no port.", "Start it with a published port.")
    if not view.served_name:
        remedy = "Its API needs a key that spark-tui does not have, or the engine has just started."
        return ModelNotServed(f"The served model name of {view.name} is unknown.", remedy)
    return None


def name_of(view: EngineView | None) -> str:
    return (view.served_name or view.name) if view is not None else "the model"


def title(view: EngineView | None) -> Content:
    """The addressee: `to qwen36-35b`, with the container's name and the state where they add something."""
    if view is None:
        return Content("no engine")
    parts = [Content("to "), fmt.safe(name_of(view), "bold")]
    if name_of(view) != view.name:
        parts.append(fmt.safe(f" on {view.name}"))
    if view.state is not EngineState.SERVING:
        parts += [Content("  "), fmt.styled(engine_status(view).cell)]
    return Content.assemble(*parts)


def placeholder(view: EngineView | None, engines_reason: str) -> Content:
    problem = problem_with(view)
    if view is None:
        if engines_reason == NOT_READ_YET.reason:
            return Content("Finding engines...")
        none = f"No engine is serving: {_to_presets()} to launch one"
        return Content("Cannot list engines" if engines_reason else none)
    if problem is None:
        return fmt.safe(f"Message to {view.served_name}")
    return fmt.safe(f"{problem.summary} Your draft is kept.")


def empty(view: EngineView | None, engines_reason: str, *, has_previous: bool) -> Content:
    """What an empty transcript shows. `engines_reason` is why the engines are unknown, if they are."""
    problem = problem_with(view)
    leaves = f"Digits typed in the prompt are text: {key_of('stop_answer')} leaves it."
    if view is None and engines_reason == NOT_READ_YET.reason:
        text = Content.styled("Finding engines...", "$dim")
    elif view is None and engines_reason:
        text = Content.assemble(("Cannot list engines.", "bold $error"), "\n\n", fmt.safe(engines_reason))
    elif view is None:
        text = Content.assemble(
            ("No engine is serving.", "bold"),
            "\n\n",
            (key_of("show_presets"), KEY),
            "  choose a preset and launch it\n",
            (key_of("show_home"), KEY),
            "  running engines\n\n",
            (leaves, "$dim"),
        )
    elif problem is not None:
        text = Content.assemble(
            fmt.safe(problem.summary, "bold"),
            "\n",
            fmt.safe(problem.remedy),
            "\n\n",
            (key_of("show_home"), KEY),
            "  state and next step\n",
            (key_of("show_logs"), KEY),
            "  log\n\n",
            (leaves, "$dim"),
        )
    else:
        window = view.models[0].max_model_len if view.models else None
        text = Content.assemble(
            "Chatting with ",
            fmt.safe(view.served_name, "bold"),
            (f"   {short_tokens(window)} tokens of context" if window else "", "$dim"),
            "\n\n",
            ("Enter", KEY),
            "  send\n",
            ("^j   ", KEY),
            "  new line ",
            ("(in some terminals shift+enter and alt+enter too)\n", "$dim"),
            (f"{key_of('stop_answer'):5}", KEY),
            "  stop answer, or leave the prompt; then ",
            (screen_keys(), KEY),
            " change the screen\n",
            (f"{key_of('chat_settings'):5}", KEY),
            "  system prompt, sampling, reasoning, tools\n",
            (f"{key_of('open_conversation'):5}", KEY),
            "  saved conversations",
        )
    if not has_previous:
        return text
    return Content.assemble(text, "\n\n", (key_of("new_chat"), KEY), ("  back to the last conversation", "$dim"))


def live_state(exchange: Exchange, now: float) -> Content:
    return Content.assemble(
        (f" {phase(exchange.answer)}", "$warning"),
        (f"  {progress(exchange, now)}   ", "$dim"),
        (key_of("stop_answer"), KEY),
        (" stop", "$dim"),
    )


def hint(*, writing: bool, files: tuple[str, ...], waits_for: str = "") -> Content:
    send = f"Enter sends when {clean(waits_for)} is ready" if waits_for else "Enter send"
    keys = f"{send}  ^j new line" if writing else f"{key_of('write')} or Tab to write"
    if not files:
        return Content(keys)
    return Content.assemble(("with ", "$dim"), fmt.safe(", ".join(files), "$secondary"), f"   {keys}")


def footer(*, live: bool, writing: bool, started: bool) -> tuple[Action, ...]:
    stop, write = action("stop_answer"), action("write")
    first = [stop] if live else []
    if writing and not live:  # digits are text in the prompt: it says how to leave it
        first.append(replace(stop, label=f"Leave prompt, then {screen_keys()}"))
    if not writing:
        first.append(write)
    here = [entry for entry in of_scope(Scope.CHAT) if started and entry.footer and entry not in (stop, write)]
    everywhere = [entry for entry in of_scope(Scope.GLOBAL) if entry.footer]
    return (*first, *(each for each in (*here, *everywhere) if not (writing and each.typed)))
