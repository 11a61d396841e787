"""A conversation on the command line: answers as they come, and the prompt with its commands."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.message import Answer, Attachment
from spark_tui.base.engine.request import Defaults, check_taken, check_together
from spark_tui.base.engine.state import Health
from spark_tui.base.errors import ApiKeyRejected, SparkError, UsageError
from spark_tui.base.executors import pause
from spark_tui.base.ports import Clock
from spark_tui.base.quantities import human_duration
from spark_tui.base.settings import folders_of, suggestion
from spark_tui.base.text import clean, clean_line, truncate
from spark_tui.cli.names import find_container
from spark_tui.cli.output import Interrupted, table_lines
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.use.chat import show as chat
from spark_tui.use.chat.model.conversation import ContextRoom, Exchange
from spark_tui.use.chat.use.chat import ChatTarget, Conversation, advised, target_of
from spark_tui.use.chat.use.conversations import Conversations

HISTORY_LINES: Final = 2000
PROMPT, MORE, BLOCK = "> ", ". ", '"""'


class AnswerWriter:
    """Writes one answer from its snapshots: text to stdout, reasoning to stderr; with --json a line for each piece.
    `carried` is the answer as it begins: the text of one that continues was written before."""

    def __init__(self, session: Session, *, show_reasoning: bool, carried: Answer) -> None:
        self._session = session
        self._show_reasoning = show_reasoning
        self._content = len(carried.content)
        self._reasoning = len(carried.reasoning)
        self._last = carried.content[-1:]
        self._thinking = False

    def show(self, answer: Answer) -> None:
        session = self._session
        reasoning, content = answer.reasoning[self._reasoning :], answer.content[self._content :]
        self._reasoning, self._content = len(answer.reasoning), len(answer.content)
        if session.as_json:
            for kind, text in (("reasoning", reasoning), ("content", content)):
                if text:
                    session.out.json_line({"type": kind, "text": text})
            return
        if reasoning:
            self._thinking = True
            if self._show_reasoning:
                session.err.stream(clean(reasoning), "dim")
            else:
                session.err.standing(f"reasoning ... {len(answer.reasoning):,} characters")
        if content:
            self._end_reasoning(answer)
            # Blank lines at the beginning, a habit of models, would push the answer down.
            shown = clean(content) if self._last else clean(content).lstrip("\n")
            session.out.write(shown)
            self._last = shown or self._last

    def _end_reasoning(self, answer: Answer) -> None:
        if not self._thinking:
            return
        self._thinking = False
        self._session.err.settle()
        if self._show_reasoning:
            self._session.err.say()
        if answer.reasoning_seconds is not None and self._session.err.interactive:
            self._session.err.say(f"(reasoned for {human_duration(answer.reasoning_seconds)})", "dim")

    def end(self) -> None:
        self._session.err.settle()
        if self._last and not self._last.endswith("\n"):
            self._session.out.line()

    def result(self, exchange: Exchange, conversation: str = "") -> None:
        """Tool calls, figures and warnings; `conversation` is the id under which it is saved."""
        answer, err = exchange.answer, self._session.err
        if self._session.as_json:
            for call in answer.tool_calls:
                self._session.out.json_line({"type": "tool_call", **chat.tool_call_object(call)})
            self._session.out.json_line({"type": "answer", **chat.answered_object(exchange, conversation)})
            return
        self._end_reasoning(answer)
        for call in answer.tool_calls:
            err.say(f"tool call: {call.name}({call.arguments})")
        err.say("   ".join(chat.answer_figures(exchange)), "dim")
        if answer.finish_reason == "length":
            err.note("Answer cut at the token limit. Raise it with --max-tokens, or /continue.")
        elif not answer.content and not answer.tool_calls:
            err.note("The answer is empty" + (": only reasoning." if answer.reasoning else "."))


async def find_target(context: Context, name: str, model: str = "") -> tuple[ChatTarget, Defaults]:
    """The engine, and the defaults of its preset. Raises the error that says why it cannot be asked."""
    container = await find_container(context, name)
    watch = await context[EngineSupervisor].watch(container.id)
    endpoint, health = await watch.reach()
    served = watch.view().served_name
    if not served and health is Health.OK:
        try:
            models = await context.api.models(endpoint)
        except ApiKeyRejected as error:
            target = ChatTarget(container.name, endpoint, "")
            raise advised(error, target, context.secrets.path(container.name)) from error
        served = models[0].id if models else ""
    if not served or health is not Health.OK:
        raise watch.not_ready(health)
    view = watch.view()
    defaults = await context[Conversations].defaults(container.preset, served)
    target = target_of(view, endpoint, model=model or ("" if view.served_name else served))
    return replace(target, modalities=defaults.modalities), defaults


SILENT_SECONDS: Final = 10.0


class ReplSession(Struct, eq=False):
    """One conversation with one engine. Its coroutines run on the core's loop; `read` reads the user's next line,
    `attachments` go with the next question."""

    session: Session
    clock: Clock
    conversation: Conversation
    target: ChatTarget
    defaults: Defaults
    read: Callable[[str], str]
    show_reasoning: bool
    attachments: tuple[Attachment, ...]

    def say(self, text: str) -> None:
        self.session.err.say(text, "dim")

    async def ask(self, question: str, _: Context) -> None:
        """Asks, with what is attached, and writes the answer as it comes. Raises the error that ended it."""
        use = self.conversation.use(self.target, question, self.attachments)
        if use.room in (ContextRoom.NEAR, ContextRoom.OVER) and use.limit is not None:
            trims = "; or ".join(trim.sentence for trim in self.conversation.trims(use))
            hint = f" /trim to {trims}." if trims else ""
            self.session.err.note(f"With this question: {chat.context_gauge(use).text}.{hint}")
        attachments, self.attachments = self.attachments, ()
        await self.write(lambda: self.conversation.ask(question, self.target, attachments))

    async def write(self, begin: Callable[[], AsyncGenerator[Answer, None]], _: Context | None = None) -> None:
        """Writes an answer as it comes. Raises the error that ended it; its text is kept."""
        answers = begin()
        carried = self.conversation.exchanges[-1].answer
        writer = AnswerWriter(self.session, show_reasoning=self.show_reasoning, carried=carried)
        heard = asyncio.Event()
        listening = asyncio.ensure_future(self._note_silence(heard))
        try:
            async with aclosing(answers):
                async for answer in answers:
                    heard.set()
                    writer.show(answer)
        finally:
            listening.cancel()
            writer.show(self.conversation.exchanges[-1].answer)  # text since the last snapshot, when it was stopped
            writer.end()
            await self.flush()
        writer.result(self.conversation.exchanges[-1], self.conversation.id)

    async def _note_silence(self, heard: asyncio.Event) -> None:
        """Says once that nothing has come for some time: an engine that prefills, or one that hangs."""
        while True:
            heard.clear()
            await pause(self.clock, SILENT_SECONDS, heard)
            if not heard.is_set():
                break
        self.session.err.note(
            f"Nothing from {self.target.engine} for {SILENT_SECONDS:.0f} s: a long prompt, a queue, or it hangs. "
            f"Ctrl-C stops the answer; spark-tui metrics {self.target.engine} shows what it does."
        )

    async def flush(self) -> None:
        """Waits until all is saved; a note says when that fails."""
        journal = self.conversation.journal
        moved = journal.moved_from if journal is not None else ""
        await self.conversation.settle()
        if journal is None:
            return
        if journal.moved_from and not moved:
            self.session.err.note(f"{journal.moved_from} is open elsewhere: continuing in a copy, {journal.id}.")
        if journal.error is not None:
            self.session.err.note(f"{journal.error.summary} {journal.error.remedy}")

    async def switch_to(self, conversation: Conversation) -> None:
        await self.conversation.close()
        self.conversation = conversation


# --- commands ---------------------------------------------------------------------------------------------


class QuitPrompt(Exception):
    """Ends the prompt."""


class PromptCommand(Struct, frozen=True):
    """`work` takes the talk, the text after the name, and the context. One that is no coroutine works outside the
    core's loop, without the context: it reads more lines, or leaves."""

    name: str
    usage: str
    help: str
    work: Callable[..., Any]


COMMANDS: Final[dict[str, PromptCommand]] = {}
Work = TypeVar("Work", bound=Callable[..., Any])


def command(name: str, usage: str, text: str) -> Callable[[Work], Work]:
    def register(work: Work) -> Work:
        COMMANDS[name] = PromptCommand(name, usage, text, work)
        return work

    return register


def command_named(name: str) -> PromptCommand:
    """The command of that name, or the only one that begins so. Raises UsageError."""
    found = [COMMANDS[name]] if name in COMMANDS else [each for each in COMMANDS.values() if each.name.startswith(name)]
    if len(found) == 1 and name:
        return found[0]
    near = suggestion(name, list(COMMANDS))
    raise UsageError(
        f"Unknown command /{truncate(clean_line(name), 40)}.",
        f"{f'Did you mean /{near}? ' if near else ''}/help lists them. To send it to the model, begin with //.",
    )


@command("help", "", "these commands")
def _help(talk: ReplSession, _: str) -> None:
    width = max(len(f"/{each.name} {each.usage}") for each in COMMANDS.values())
    for each in COMMANDS.values():
        talk.session.err.say(f"  {f'/{each.name} {each.usage}':<{width}}  {each.help}")
    talk.say('A line that ends in \\ continues; """ begins and ends a text of several lines.')


@command("system", "[TEXT|@FILE|off]", "show or set the system prompt")
async def _system(talk: ReplSession, rest: str, context: Context) -> None:
    if rest:
        await _change(talk, context, "system", None if rest == "off" else rest)
    else:
        talk.session.err.say(clean(talk.conversation.settings.system) or "No system prompt.")


@command("set", "[NAME VALUE]", "show the settings, or set one; `default` unsets it")
async def _set(talk: ReplSession, rest: str, context: Context) -> None:
    name, _, value = rest.replace("=", " ", 1).partition(" ")
    if not name:
        for row in chat.setting_rows(talk.conversation.settings):
            value = truncate(row.value, chat.VALUE_CELLS) or f"({row.default})"
            talk.session.err.say(f"  {row.key:<19} {value:<20}  {row.help}")
    elif value.strip():
        await _change(talk, context, name, value.strip())
    else:
        raise UsageError(f"/set {clean_line(name)} needs a value.", "Give one, or `default`; /set lists all settings.")


async def _change(talk: ReplSession, context: Context, name: str, text: str | None) -> None:
    settings = await context[Conversations].with_setting(talk.conversation.settings, name, text)
    talk.conversation.settings = settings
    talk.say(
        f"System prompt: {len(settings.system):,} characters." if name == "system" else f"{name}: {text or 'default'}"
    )


@command("think", "[on|off|show|hide]", "enable or disable reasoning; show or hide it")
async def _think(talk: ReplSession, rest: str, context: Context) -> None:
    if rest in ("show", "hide"):
        talk.show_reasoning = rest == "show"
        talk.say(f"Reasoning is {'shown' if talk.show_reasoning else 'hidden'}.")
    else:
        now = talk.conversation.settings.parameters.thinking
        await _change(talk, context, "thinking", rest or ("off" if now is not False else "on"))


@command("tools", "[FILE|off]", "offer the tools of a JSON file; calls are shown, not run")
async def _tools(talk: ReplSession, rest: str, context: Context) -> None:
    if rest:
        tools = () if rest == "off" else await context[Conversations].tools(rest)
        talk.conversation.settings = replace(talk.conversation.settings, tools=tools, tool_choice="")
    for tool in talk.conversation.settings.tools:
        talk.session.err.say(f"  {tool.name}  {truncate(tool.description, chat.VALUE_CELLS)}")
    if not talk.conversation.settings.tools:
        talk.say("No tools. /tools FILE reads them; calls are shown, not run.")


@command("image", "FILE|off", "attach an image to the next question")
@command("audio", "FILE|off", "attach audio to the next question")
async def _attach(talk: ReplSession, rest: str, context: Context) -> None:
    if rest == "off":
        talk.attachments = ()
    elif rest:
        found = (*talk.attachments, await context[Conversations].attachment(rest))
        check_together(found)
        check_taken(found, talk.target.modalities, talk.target.model)
        talk.attachments = found
    names = ", ".join(each.name for each in talk.attachments)
    talk.say(f"Attached: {names}" if names else "Nothing attached.")


@command("retry", "", "ask the last question again; the answer is replaced")
async def _retry(talk: ReplSession, _: str, __: Context) -> None:
    await talk.write(lambda: talk.conversation.regenerate(talk.target))


@command("continue", "", "continue a stopped or cut answer")
async def _continue(talk: ReplSession, _: str, __: Context) -> None:
    await talk.write(lambda: talk.conversation.go_on(talk.target))


@command("edit", "[N] [TEXT]", "edit and resend the last question, or number N")
def _edit(talk: ReplSession, rest: str) -> None:
    number, text = _number_and_text(talk.conversation, rest)
    if not text:
        question = next((each.question for each in talk.conversation.exchanges if each.number == number), "")
        with prefilled(question):
            text = talk.read("edit> ")
    if not text.strip():
        talk.say("Not changed.")
        return

    talk.session.run(partial(talk.write, partial(talk.conversation.edit, number, text, talk.target)))


def _number_and_text(conversation: Conversation, rest: str) -> tuple[int, str]:
    """`3 New question`, `3`, `New question`, or nothing: the last one."""
    first, _, text = rest.partition(" ")
    numbers = [each.number for each in conversation.exchanges]
    if first.isdecimal() and len(first) < 10 and int(first) in numbers:
        return int(first), text.strip()
    return (numbers[-1] if numbers else 0), rest


@command("past", "", "the questions, with their numbers")
async def _past(talk: ReplSession, _: str, __: Context) -> None:
    for each in talk.conversation.exchanges:
        unsent = "   no longer sent" if each.number < talk.conversation.sent_from else ""
        talk.session.err.say(f"  {each.number:>3}  {chat.brief(each)}   ({each.model}, {each.outcome.value}){unsent}")


@command("context", "", "how full the context is")
async def _context(talk: ReplSession, _: str, __: Context) -> None:
    use = talk.conversation.use(talk.target)
    talk.session.err.say(chat.context_gauge(use).text or "context empty")
    _list_trims(talk)


def _list_trims(talk: ReplSession) -> None:
    for place, trim in enumerate(talk.conversation.trims(talk.conversation.use(talk.target)), 1):
        talk.session.err.say(f"  /trim {place}  {trim.sentence}")


@command("trim", "[N|off]", "leave older messages out of what is sent")
async def _trim(talk: ReplSession, rest: str, _: Context) -> None:
    use = talk.conversation.use(talk.target)
    trims = talk.conversation.trims(use)
    place = int(rest) if rest.isdecimal() and len(rest) < 6 else 0
    if rest == "off":
        talk.conversation.trim(0)
        await talk.flush()
        talk.say("All messages are sent again.")
    elif 1 <= place <= len(trims):
        talk.conversation.trim(trims[place - 1].sent_from)
        await talk.flush()
        talk.say(f"Done: {trims[place - 1].sentence}. /trim off sends them again.")
    elif trims:
        _list_trims(talk)
    else:
        talk.say(
            "The context has room."
            if use.room in (ContextRoom.ENOUGH, ContextRoom.UNKNOWN)
            else "Nothing can be left out."
        )


@command("engine", "[NAME]", "switch to another engine")
async def _engine(talk: ReplSession, rest: str, context: Context) -> None:
    if rest:
        talk.target, talk.defaults = await find_target(context, rest)
    talk.say(f"{talk.target.model} at {talk.target.engine}")


@command("model", "[NAME]", "switch to another model of this engine")
async def _model(talk: ReplSession, rest: str, context: Context) -> None:
    if rest:
        talk.target, talk.defaults = await find_target(context, talk.target.engine, rest)
    talk.say(f"{talk.target.model} at {talk.target.engine}")


@command("new", "", "start a new conversation")
async def _new(talk: ReplSession, _: str, context: Context) -> None:
    kept = talk.conversation.journal is not None
    await talk.switch_to(context[Conversations].new(talk.conversation.settings, keep=kept))
    talk.say("New conversation, with the same settings.")


@command("list", "", "the saved conversations")
async def _list(talk: ReplSession, _: str, context: Context) -> None:
    table, err = chat.conversation_table(await context[Conversations].summaries()), talk.session.err
    for line in table_lines(table, err.terminal.width, err.terminal.paint):
        err.stream(f"{line}\n")


@command("load", "ID|FILE", "continue another conversation")
async def _load(talk: ReplSession, rest: str, context: Context) -> None:
    if not rest:
        raise UsageError("/load needs an id or a file.", "/list shows the ids.")
    conversations = context[Conversations]
    known = {each.id for each in await conversations.summaries()} if conversations.kept else set()
    is_file = "/" in rest or rest.lower().endswith((".json", ".md")) or (rest not in known and "." in rest)
    await talk.switch_to(await (conversations.import_file(rest) if is_file else conversations.open(rest)))
    talk.say(_headline(talk.conversation))


@command("save", "FILE", "write this conversation to NAME.md or NAME.json")
async def _save(talk: ReplSession, rest: str, context: Context) -> None:
    if not rest:
        kept = f"It is saved as {talk.conversation.id}." if talk.conversation.id else "It is not saved."
        raise UsageError("/save needs a file name.", f"NAME.md to read it, NAME.json to import it again. {kept}")
    talk.say(f"Saved: {await context[Conversations].export(talk.conversation.thread(), rest)}")


@command("title", "[TEXT]", "show or set the title")
async def _title(talk: ReplSession, rest: str, _: Context) -> None:
    if rest:
        talk.conversation.rename(rest)
        await talk.flush()
    talk.say(talk.conversation.title or "No title yet.")


@command("quit", "", "leave")
def _quit(_: ReplSession, __: str) -> None:
    raise QuitPrompt


# --- the prompt -------------------------------------------------------------------------------------------


def _headline(conversation: Conversation) -> str:
    count = len(conversation.exchanges)
    return f"{conversation.title}: {count} exchange{'' if count == 1 else 's'}."


def converse(talk: ReplSession) -> None:
    """Question and answer until end of file. Ctrl-C stops an answer; at the prompt it leaves."""
    session, target = talk.session, talk.target
    talk.say(f"{target.model} at {target.engine}. Ctrl-C stops an answer, Ctrl-D leaves, /help.")
    if talk.conversation.exchanges:
        talk.say(_headline(talk.conversation))
    with prompt_history(session, [f"/{name}" for name in COMMANDS]):
        while True:
            try:
                line = read_lines(talk.read)
                if line.strip():
                    _take(talk, line)
            except (EOFError, QuitPrompt):
                session.err.say()
                return
            except Interrupted:
                talk.say("(stopped)")
            except SparkError as error:
                session.err.error(error)


def read_lines(ask: Callable[[str], str]) -> str:
    """The user's next entry: one line; more where one ends in a backslash, or between two lines of `\"\"\"`."""
    line = ask(PROMPT)
    if line.strip().startswith(BLOCK):
        lines = [line.strip().removeprefix(BLOCK)]
        while not lines[-1].rstrip().endswith(BLOCK):
            lines.append(ask(MORE))
        lines[-1] = lines[-1].rstrip().removesuffix(BLOCK)
        return "\n".join(lines).strip("\n")
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(ask(MORE))
    return "\n".join(lines)


def _take(talk: ReplSession, line: str) -> None:
    """A command, or a question."""
    if line.startswith("/") and not line.startswith("//"):
        name, _, rest = line[1:].partition(" ")
        work = command_named(name).work
        if inspect.iscoroutinefunction(work):
            talk.session.run(partial(work, talk, rest.strip()))
        else:
            work(talk, rest.strip())
    else:
        talk.session.run(partial(talk.ask, line[1:] if line.startswith("//") else line))


@contextlib.contextmanager
def prompt_history(session: Session, words: Sequence[str]) -> Iterator[None]:
    """History and completion while a conversation lasts. Not in the demo, and only on the process's own terminal:
    readline edits no other."""
    stdin = session.stdin
    if session.options.demo or stdin is None or stdin is not sys.stdin or not stdin.isatty():
        yield
        return
    import readline

    def completion(text: str, state: int) -> str | None:
        found = [word for word in words if text.startswith("/") and word.startswith(text)]
        return f"{found[state]} " if state < len(found) else None

    home = Path(session.environment.get("HOME") or Path.home())
    path = folders_of(session.environment, home).chat_history
    with contextlib.suppress(OSError):  # none yet, or not readable: start without
        readline.read_history_file(path)
    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(completion)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.set_history_length(HISTORY_LINES)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
            readline.write_history_file(path)
        except OSError as error:
            session.err.note(f"Prompt history not saved: {path}: {error.strerror or error}.")


@contextlib.contextmanager
def prefilled(text: str) -> Iterator[None]:
    """The next prompt begins with `text`, to be edited."""
    import readline

    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        yield
    finally:
        readline.set_startup_hook(None)
