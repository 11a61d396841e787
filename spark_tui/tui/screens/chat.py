"""Chat: talk to the selected engine, and see what each answer cost."""

from __future__ import annotations

from textual import work

from spark_tui.core.chat_target import target_of
from spark_tui.core.conversation import Conversation
from spark_tui.domain.chat_media import check_taken, check_together
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import clean
from spark_tui.tui.screens import chat_words as words
from spark_tui.tui.screens.chat_compare import CompareScreen
from spark_tui.tui.screens.chat_dialogs import ChoiceDialog, TextDialog
from spark_tui.tui.screens.chat_ground import LATE_ESC_SECONDS, ChatGround
from spark_tui.tui.screens.chat_list import ConversationsDialog
from spark_tui.tui.screens.chat_settings import ChatSettingsPanel
from spark_tui.tui.screens.chat_tokens import TokensScreen
from spark_tui.tui.widgets.markdown import code_blocks
from spark_tui.tui.widgets.prompt import Prompt
from spark_tui.tui.widgets.turn import Turn


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
