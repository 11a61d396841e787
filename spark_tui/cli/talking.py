"""chat: one question, or a conversation, with an engine that serves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from spark_tui.cli.answers import AnswerWriter
from spark_tui.cli.chat_engine import find_target
from spark_tui.cli.session import Session
from spark_tui.core.chat_target import ChatTarget
from spark_tui.core.context import Context
from spark_tui.core.conversation import Conversation
from spark_tui.domain.chat import Answer, Attachment
from spark_tui.domain.chat_context import Room
from spark_tui.domain.chat_media import check_together
from spark_tui.domain.chat_settings import NO_SETTINGS, ChatSettings, Defaults
from spark_tui.domain.errors import UsageError
from spark_tui.domain.quantities import human_count

FILE_MARK = "@"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What was typed after `chat`. `settings` are name and text of each parameter; a text that begins with `@` names a
    file, for `system` and `schema`. `reasoning` shows the model's reasoning on standard error. `goes_on` is the id of
    a conversation to go on with. `keep`: None keeps conversations, and single questions only when they go on with one.
    """

    message: str | None = None
    settings: tuple[tuple[str, object], ...] = ()
    tools: str = ""
    files: tuple[str, ...] = ()
    model: str = ""
    goes_on: str = ""
    keep: bool | None = None
    reasoning: bool = False
    tool_choice: str = ""


class Talk:
    """One conversation with one engine, as the command line holds it. Its coroutines run on the core's loop."""

    def __init__(self, session: Session, conversation: Conversation, target: ChatTarget, defaults: Defaults) -> None:
        self.session = session
        self.conversation = conversation
        self.target = target
        self.defaults = defaults
        self.show_reasoning = False
        self.attachments: tuple[Attachment, ...] = ()

    async def ask(self, question: str, _: Context) -> None:
        """Asks, with what was attached, and writes the answer as it comes. Raises the error that ended it."""
        self.say_room(question)
        attachments, self.attachments = self.attachments, ()
        await self.write(lambda: self.conversation.ask(question, self.target, attachments))

    async def write(self, begin: Callable[[], AsyncGenerator[Answer, None]]) -> None:
        """Writes an answer as it comes; what had come is kept whatever ends it."""
        answers = begin()
        last = self.conversation.last
        writer = AnswerWriter(self.session, show_reasoning=self.show_reasoning, carried=last.answer if last else None)
        try:
            async with aclosing(answers):
                async for answer in answers:
                    writer.show(answer)
        finally:
            exchange = self.conversation.exchanges[-1]
            writer.show(exchange.answer)  # what came after the last look, when it was stopped
            writer.end()
            await self.flush()
        writer.result(self.conversation.exchanges[-1], self.conversation.id)

    async def flush(self) -> None:
        """What was said is on the disk, or the person knows that it is not."""
        journal = self.conversation.journal
        moved = journal.moved_from if journal is not None else ""
        await self.conversation.settle()
        if journal is None:
            return
        if journal.moved_from and not moved:
            self.session.err.note(
                f"Another program writes in {journal.moved_from}: this goes on in a copy, {journal.id}."
            )
        if journal.error is not None:
            self.session.err.note(f"{journal.error.summary} {journal.error.remedy}")

    def say_room(self, question: str = "") -> None:
        """Tells when the context is nearly full, and what could be left out."""
        use = self.conversation.use(self.target, question, self.attachments)
        if use.room not in (Room.NEAR, Room.OVER) or use.limit is None:
            return
        trims = self.conversation.trims(use)
        what = f" {'; or '.join(trim.sentence for trim in trims)}. /trim does it." if trims else ""
        state = "cannot hold this" if use.room is Room.OVER else "is nearly full"
        self.session.err.note(
            f"The context {state}: about {human_count(use.tokens + use.reserved)} of {human_count(use.limit)} "
            f"tokens with this question.{' You can' if what else ''}{what}"
        )


def chat(session: Session, name: str, options: ChatOptions, *, ask: Callable[[str], str] | None = None) -> None:
    """One question from `-m` and standard input, else a conversation; `ask` reads a person's next line."""
    message = _message(session, options)
    talk = session.run(partial(_open, session, options, name, single=message is not None))
    try:
        if message is not None:
            session.run(partial(talk.ask, message))
        else:
            from spark_tui.cli.chat_loop import converse

            converse(talk, ask or session.out.ask)
    finally:
        session.run(partial(_close, talk))


async def _close(talk: Talk, _: Context) -> None:
    await talk.conversation.close()


def _message(session: Session, options: ChatOptions) -> str | None:
    """What to ask; None for a conversation. Text that is piped in stands below the message."""
    typing = session.stdin is not None and session.stdin.isatty()
    if typing and options.message is None:
        if session.as_json:
            raise UsageError("With --json there is nothing to ask yet.", "Give the question with -m, or pipe it in.")
        return None
    piped = "" if typing or session.stdin is None else session.stdin.read()
    parts = [part for part in (options.message or "", piped.rstrip("\n")) if part.strip()]
    if not parts:
        raise UsageError("The message is empty.", 'Give it with -m "...", or pipe it in.')
    return "\n\n".join(parts)


async def _open(session: Session, options: ChatOptions, name: str, context: Context, *, single: bool) -> Talk:
    """A conversation with that engine, which is made sure to serve."""
    target, defaults = await find_target(context, name, options.model)
    typed = await typed_settings(context, options)
    conversations = context.conversations
    keep = options.keep if options.keep is not None else not single
    if options.goes_on:
        conversation = await conversations.open(options.goes_on)
        conversation.settings = typed.over(conversation.settings)
    else:
        conversation = conversations.new(typed.over(defaults.settings), keep=keep)
    talk = Talk(session, conversation, target, defaults)
    talk.show_reasoning = options.reasoning
    talk.attachments = tuple([await conversations.attachment(path) for path in options.files])
    check_together(talk.attachments)
    for problem in defaults.problems:
        if not conversation.settings.system:
            session.err.note(problem)
    return talk


async def typed_settings(context: Context, options: ChatOptions) -> ChatSettings:
    """What was typed, its files read. Raises ParameterError, UsageError."""
    settings = NO_SETTINGS
    for name, told in options.settings:
        settings = settings.with_setting(name, await _told(context, name, told))
    if options.tools:
        tools = await context.conversations.tools(options.tools)
        settings = ChatSettings(settings.system, settings.parameters, tools)
    return settings.with_setting("tool_choice", options.tool_choice)


async def _told(context: Context, name: str, told: object) -> object:
    if name in ("system", "schema") and isinstance(told, str) and told.startswith(FILE_MARK):
        return await context.conversations.text(told.removeprefix(FILE_MARK))
    return told
