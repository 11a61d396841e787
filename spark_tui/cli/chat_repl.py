"""Commands of the chat's prompt about answers: again, go on, edit, fork, make room."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from spark_tui.cli.chat import FILE_MARK, Talk, find_target
from spark_tui.cli.output import Interrupted, table_lines
from spark_tui.cli.session import Session
from spark_tui.core.chat import Conversation
from spark_tui.core.context import Context
from spark_tui.domain.chat.conversation import Room
from spark_tui.domain.chat.parameters import SETTINGS, written
from spark_tui.domain.chat.request import check_taken, check_together
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.quantities import human_count
from spark_tui.domain.settings import folders_of, suggestion
from spark_tui.domain.text import clean, clean_line, truncate
from spark_tui.present.page import Table

MOST_LINES = 2000


@contextlib.contextmanager
def prompt_history(session: Session, words: Sequence[str]) -> Iterator[None]:
    """History and completion for as long as a conversation lasts. Not in the demo, and not where nobody types: readline
    edits the process's own input and no other."""
    stdin = session.stdin
    if session.options.demo or stdin is None or stdin is not sys.stdin or not stdin.isatty():
        yield
        return
    import readline

    home = Path(session.environment.get("HOME") or Path.home())
    path = folders_of(session.environment, home).chat_history
    with contextlib.suppress(OSError):  # none yet, or not ours to read: one begins without
        readline.read_history_file(path)
    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(lambda text, state: _completion(words, text, state))
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.set_history_length(MOST_LINES)
        _write(session, path)


def _write(session: Session, path: Path) -> None:
    import readline

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        readline.write_history_file(path)
    except OSError as error:
        session.err.note(f"The history of what you typed is not kept: {path}: {error.strerror or error}.")


def _completion(words: Sequence[str], text: str, state: int) -> str | None:
    found = [word for word in words if text.startswith("/") and word.startswith(text)]
    return f"{found[state]} " if state < len(found) else None


@contextlib.contextmanager
def prefilled(text: str) -> Iterator[None]:
    """The next prompt begins with `text`, to be edited."""
    import readline

    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        yield
    finally:
        readline.set_startup_hook(None)


SHOWN_CELLS: Final = 70


class Leave(Exception):
    """The person is done."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as it was typed: in which talk, the rest of the line, and how to ask for another line."""

    talk: Talk
    rest: str
    ask: Callable[[str], str]


async def go_over(talk: Talk, conversation: Conversation) -> None:
    """To another conversation; the old one is closed."""
    await talk.conversation.close()
    talk.conversation = conversation


def new(entry: Entry) -> None:
    """A new conversation with the same settings."""

    async def new(context: Context) -> None:
        kept = entry.talk.conversation.journal is not None
        await go_over(entry.talk, context.conversations.new(entry.talk.conversation.settings, keep=kept))

    entry.talk.session.run(new)
    entry.talk.session.err.say("A new conversation, with the same settings.", "dim")


def list_(entry: Entry) -> None:
    """The conversations that are kept."""
    from spark_tui.cli.conversations import table_of

    async def look(context: Context) -> Table:
        return table_of(await context.conversations.summaries())

    err = entry.talk.session.err
    for line in table_lines(entry.talk.session.run(look), err.terminal.width, err.terminal.paint):
        err.stream(f"{line}\n")


def load(entry: Entry) -> None:
    """Goes over to another conversation, by id or from a file."""
    if not entry.rest:
        raise UsageError("/load needs an id or a file.", "/list shows the ids.")

    async def load(context: Context) -> None:
        conversations = context.conversations
        known = {each.id for each in await conversations.summaries()} if conversations.kept else set()
        is_file = (
            "/" in entry.rest
            or entry.rest.lower().endswith((".json", ".md"))
            or (entry.rest not in known and "." in entry.rest)
        )
        await go_over(
            entry.talk, await (conversations.take_in(entry.rest) if is_file else conversations.open(entry.rest))
        )

    entry.talk.session.run(load)
    entry.talk.session.err.say(
        f"{entry.talk.conversation.title}: {len(entry.talk.conversation.exchanges)} exchanges.", "dim"
    )


def save(entry: Entry) -> None:
    """Writes the conversation to a file."""
    if not entry.rest:
        kept = f"It is kept as {entry.talk.conversation.id}." if entry.talk.conversation.id else "It is not kept."
        raise UsageError("/save needs a file name.", f"NAME.md to be read, NAME.json to be imported again. {kept}")

    async def save(context: Context) -> str:
        return await context.conversations.put_out(entry.talk.conversation.thread(), entry.rest)

    entry.talk.session.err.say(f"Written: {entry.talk.session.run(save)}", "dim")


def title(entry: Entry) -> None:
    """Names the conversation."""

    async def rename(_: Context) -> None:
        entry.talk.conversation.rename(entry.rest)
        await entry.talk.flush()

    if entry.rest:
        entry.talk.session.run(rename)
    entry.talk.session.err.say(entry.talk.conversation.title or "It has no title yet.", "dim")


def engine(entry: Entry) -> None:
    """Talks to another engine from now on."""

    async def change(context: Context) -> None:
        entry.talk.target, entry.talk.defaults = await find_target(context, entry.rest)

    if entry.rest:
        entry.talk.session.run(change)
    entry.talk.session.err.say(f"{entry.talk.target.model} at {entry.talk.target.engine}", "dim")


def model(entry: Entry) -> None:
    """Talks to another model of the engine."""

    async def change(context: Context) -> None:
        entry.talk.target, entry.talk.defaults = await find_target(context, entry.talk.target.engine, entry.rest)

    if entry.rest:
        entry.talk.session.run(change)
    entry.talk.session.err.say(f"{entry.talk.target.model} at {entry.talk.target.engine}", "dim")


def quit_(_entry: Entry) -> None:
    """Leaves."""
    raise Leave


def retry(entry: Entry) -> None:
    """Asks the last question again, in the place of its answer."""

    async def again(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.regenerate(entry.talk.target))

    entry.talk.session.run(again)


def let_go_on(entry: Entry) -> None:
    """Lets a stopped or cut answer go on."""

    async def go_on(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.go_on(entry.talk.target))

    entry.talk.session.run(go_on)


def edit(entry: Entry) -> None:
    """Another question in the place of one: typed after the command, or edited at the prompt."""
    number, text = _number_and_text(entry.talk.conversation, entry.rest)
    question = next((each.question for each in entry.talk.conversation.exchanges if each.number == number), "")
    if not text:
        with prefilled(question):
            text = entry.ask("edit> ")
    if not text.strip():
        entry.talk.session.err.say("Nothing was changed.", "dim")
        return

    async def edit(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.edit(number, text, entry.talk.target))

    entry.talk.session.run(edit)


def _number_and_text(conversation: Conversation, rest: str) -> tuple[int, str]:
    """`3 New question`, `3`, `New question`, or nothing: the last one that has a question."""
    first, _, text = rest.partition(" ")
    numbers = [each.number for each in conversation.exchanges]
    if first.isdecimal() and len(first) < 10 and int(first) in numbers:
        return int(first), text.strip()
    asked = [each.number for each in conversation.exchanges if not each.tool_answers]
    return (asked[-1] if asked else 0), rest


def fork(entry: Entry) -> None:
    """Goes over to a copy that ends at an exchange."""
    number = _number_and_text(entry.talk.conversation, entry.rest)[0] if entry.rest else 0
    last = entry.talk.conversation.last

    async def fork(context: Context) -> None:
        thread = entry.talk.conversation.thread()
        made = await context.conversations.fork(thread, number or (last.number if last else 0))
        await go_over(entry.talk, made)

    entry.talk.session.run(fork)
    entry.talk.session.err.say(f"This is {entry.talk.conversation.id} now; the other one stays as it was.", "dim")


def past(entry: Entry) -> None:
    """What was asked, with the numbers that other commands take."""
    for each in entry.talk.conversation.exchanges:
        said = each.question or ", ".join(f"result of {answer.name}" for answer in each.tool_answers)
        unsent = "   not sent any more" if each.number < entry.talk.conversation.sent_from else ""
        shown = truncate(" ".join(clean_line(said).split()), SHOWN_CELLS)
        entry.talk.session.err.say(f"  {each.number:>3}  {shown}   ({each.model}, {each.outcome.value}){unsent}")


def context(entry: Entry) -> None:
    """How full the context is, and what could be left out."""
    use = entry.talk.conversation.use(entry.talk.target)
    limit = f" of {human_count(use.limit)}" if use.limit else ""
    entry.talk.session.err.say(f"About {human_count(use.tokens)}{limit} tokens are sent with the next question.")
    _list_trims(entry.talk)


def _list_trims(talk: Talk) -> None:
    use = talk.conversation.use(talk.target)
    for place, trim in enumerate(talk.conversation.trims(use), 1):
        talk.session.err.say(f"  /trim {place}  {trim.sentence}")


def trim(entry: Entry) -> None:
    """Leaves out what was proposed; without a number it proposes."""
    talk, say = entry.talk, entry.talk.session.err.say
    use = talk.conversation.use(talk.target)
    trims = talk.conversation.trims(use)
    place = int(entry.rest) if entry.rest.isdecimal() and len(entry.rest) < 6 else 0
    if entry.rest == "off":
        _send_from(talk, 0)
        say("All of it is sent again.", "dim")
    elif 1 <= place <= len(trims):
        _send_from(talk, trims[place - 1].sent_from)
        say(f"Done: {trims[place - 1].sentence}. /trim off sends them again.", "dim")
    elif trims:
        _list_trims(talk)
    else:
        enough = use.room in (Room.ENOUGH, Room.UNKNOWN)
        say("There is room enough." if enough else "There is nothing that could be left out.", "dim")


def _send_from(talk: Talk, number: int) -> None:
    async def send_from(_: Context) -> None:
        talk.conversation.trim(number)
        await talk.flush()

    talk.session.run(send_from)


def system(entry: Entry) -> None:
    """Shows or sets the system prompt."""
    if not entry.rest:
        entry.talk.session.err.say(clean(entry.talk.conversation.settings.system) or "There is no system prompt.")
        return
    _change(entry.talk, "system", None if entry.rest == "off" else entry.rest)


def set_(entry: Entry) -> None:
    """Shows all settings, or sets one."""
    name, _, value = entry.rest.replace("=", " ", 1).partition(" ")
    if not name:
        _show_settings(entry.talk)
    elif not value.strip():
        raise UsageError(
            f"/set {clean_line(name)} needs a value.", "Give one, or `default`; /set alone shows them all."
        )
    else:
        _change(entry.talk, name, value.strip())


def _show_settings(talk: Talk) -> None:
    told = talk.conversation.settings.parameters.given()
    for each in SETTINGS:
        value = truncate(written(told.get(each.name)), SHOWN_CELLS) or "(the server's own)"
        talk.session.err.say(f"  {each.name:<19} {value:<20}  {each.help}")


def think(entry: Entry) -> None:
    """Turns reasoning on or off, or its display."""
    if entry.rest in ("show", "hide"):
        entry.talk.show_reasoning = entry.rest == "show"
        entry.talk.session.err.say(f"Reasoning is {'shown' if entry.talk.show_reasoning else 'not shown'}.", "dim")
    else:
        now = entry.talk.conversation.settings.parameters.thinking
        _change(entry.talk, "thinking", entry.rest or ("off" if now is not False else "on"))


def _change(talk: Talk, name: str, told: str | None) -> None:
    async def change(context: Context) -> None:
        text = told
        if name in ("system", "schema") and text is not None and text.startswith(FILE_MARK):
            text = await context.conversations.text(text.removeprefix(FILE_MARK))
        talk.conversation.settings = talk.conversation.settings.with_setting(name, text)

    talk.session.run(change)
    if name == "system":
        talk.session.err.say(f"System prompt: {len(talk.conversation.settings.system):,} characters.", "dim")
    else:
        talk.session.err.say(f"{name}: {told or 'default'}", "dim")


def tools(entry: Entry) -> None:
    """Offers the tools of a file, or none."""

    async def read(context: Context) -> None:
        tools = () if entry.rest == "off" else await context.conversations.tools(entry.rest)
        entry.talk.conversation.settings = replace(entry.talk.conversation.settings, tools=tools, tool_choice="")

    if entry.rest:
        entry.talk.session.run(read)
    tools = entry.talk.conversation.settings.tools
    for tool in tools:
        entry.talk.session.err.say(f"  {tool.name}  {truncate(tool.description, SHOWN_CELLS)}")
    if not tools:
        entry.talk.session.err.say("No tools are offered. /tools FILE reads them; you type their results.", "dim")


def attach(entry: Entry) -> None:
    """A picture or a sound for the next question."""

    async def read(context: Context) -> None:
        found = (*entry.talk.attachments, await context.conversations.attachment(entry.rest))
        check_together(found)
        check_taken(found, entry.talk.target.modalities, entry.talk.target.model)
        entry.talk.attachments = found

    if entry.rest == "off":
        entry.talk.attachments = ()
    elif entry.rest:
        entry.talk.session.run(read)
    names = ", ".join(each.name for each in entry.talk.attachments)
    entry.talk.session.err.say(f"With the next question: {names}" if names else "Nothing is attached.", "dim")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, what may follow it, what it does."""

    name: str
    usage: str
    help: str
    run: Callable[[Entry], None]


def command_named(name: str) -> Command:
    """The command of that name, or the only one that begins so. Raises UsageError."""
    found = [each for each in COMMANDS if each.name == name] or [
        each for each in COMMANDS if each.name.startswith(name)
    ]
    if len(found) == 1 and name:
        return found[0]
    shown = truncate(clean_line(name), 40)
    near = suggestion(name, [each.name for each in COMMANDS])
    raise UsageError(
        f"There is no command /{shown}.",
        f"{f'Did you mean /{near}? ' if near else ''}/help lists them. To say it to the model, begin with //.",
    )


def help_(entry: Entry) -> None:
    """Lists the commands."""
    width = max(len(f"/{each.name} {each.usage}") for each in COMMANDS)
    for each in COMMANDS:
        entry.talk.session.err.say(f"  {f'/{each.name} {each.usage}':<{width}}  {each.help}")
    entry.talk.session.err.say('A line that ends in \\ goes on; """ begins and ends a text of several lines.', "dim")


COMMANDS: Final = (
    Command("help", "", "these commands", help_),
    Command("system", "[TEXT|@FILE|off]", "show or set the system prompt", system),
    Command("set", "[NAME VALUE]", "show the settings, or set one; `default` leaves it to the server", set_),
    Command("think", "[on|off|show|hide]", "let the model reason, or not; show its reasoning", think),
    Command("tools", "[FILE|off]", "offer the tools of a JSON file; you type their results", tools),
    Command("image", "FILE|off", "a picture with the next question", attach),
    Command("audio", "FILE|off", "a sound with the next question", attach),
    Command("retry", "", "ask the last question again, in the place of its answer", retry),
    Command("continue", "", "let a stopped or cut answer go on", let_go_on),
    Command("edit", "[N] [TEXT]", "ask another question in the place of the last, or of number N", edit),
    Command("past", "", "what was asked, with numbers", past),
    Command("fork", "[N]", "go on in a copy that ends at the last exchange, or at number N", fork),
    Command("context", "", "how full the context is", context),
    Command("trim", "[N|off]", "leave older exchanges out of what is sent", trim),
    Command("engine", "[NAME]", "talk to another engine", engine),
    Command("model", "[NAME]", "talk to another model of this engine", model),
    Command("new", "", "a new conversation", new),
    Command("list", "", "the conversations that are kept", list_),
    Command("load", "ID|FILE", "go on with another conversation", load),
    Command("save", "FILE", "write this one to NAME.md or NAME.json", save),
    Command("title", "[TEXT]", "call this conversation so", title),
    Command("quit", "", "leave", quit_),
)


PROMPT = "> "
MORE = ". "
BLOCK = '"""'


def converse(talk: Talk, ask: Callable[[str], str]) -> None:
    """Question and answer until end of file. Ctrl-C stops an answer; at the prompt it leaves."""
    session, target = talk.session, talk.target
    session.err.say(f"{target.model} at {target.engine}. Ctrl-C stops an answer, Ctrl-D leaves, /help.", "dim")
    if talk.conversation.exchanges:
        count = len(talk.conversation.exchanges)
        session.err.say(f"{talk.conversation.title}: {count} exchange{'' if count == 1 else 's'}.", "dim")
    with prompt_history(session, [f"/{command.name}" for command in COMMANDS]):
        while True:
            try:
                line = read_lines(ask)
                if line.strip():
                    _take(talk, line, ask)
            except (EOFError, Leave):
                session.err.say()
                return
            except Interrupted:
                session.err.say("(stopped)", "dim")
            except SparkError as error:
                session.err.error(error)


def read_lines(ask: Callable[[str], str]) -> str:
    """A person's next entry: one line; more where one ends in a backslash, or between two lines of `\"\"\"`."""
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


def _take(talk: Talk, line: str, ask: Callable[[str], str]) -> None:
    """A command, or a question; then whatever tool calls the answer leaves open."""
    if line.startswith("/") and not line.startswith("//"):
        name, _, rest = line[1:].partition(" ")
        command_named(name).run(Entry(talk, rest.strip(), ask))
    else:
        talk.session.run(partial(talk.ask, line[1:] if line.startswith("//") else line))
    _answer_tools(talk, ask)


def _answer_tools(talk: Talk, ask: Callable[[str], str]) -> None:
    """The person types the results of tool calls: nothing is run. An empty first line leaves them unanswered."""
    while talk.conversation.last is not None and (calls := talk.conversation.last.open_calls):
        results: list[str] = []
        for call in calls:
            shown = truncate(clean_line(f"{call.name}({call.arguments})"), 200)
            talk.session.err.say(f"Its result, which you type (nothing is run; empty leaves it): {shown}", "dim")
            result = read_lines(ask)
            if not result.strip():
                return
            results.append(result)

        async def send(_: Context, results: list[str] = results) -> None:
            await talk.write(lambda: talk.conversation.answer_tools(results, talk.target))

        talk.session.run(send)
