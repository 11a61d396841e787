"""A conversation line by line: questions, tool results, and commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from spark_tui.cli.chat_commands import COMMANDS, command_named
from spark_tui.cli.chat_entry import Entry, Leave
from spark_tui.cli.chat_history import prompt_history
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.talking import Talk
from spark_tui.core.context import Context
from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean_line, truncate

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
