"""What can be typed at the chat's prompt with a slash in front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_tui.cli import chat_commands_answers as answers
from spark_tui.cli import chat_commands_kept as kept
from spark_tui.cli import chat_commands_settings as settings
from spark_tui.cli.chat_entry import Entry
from spark_tui.domain.errors import UsageError
from spark_tui.domain.settings import suggestion
from spark_tui.domain.text import clean_line, truncate


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
    Command("system", "[TEXT|@FILE|off]", "show or set the system prompt", settings.system),
    Command("set", "[NAME VALUE]", "show the settings, or set one; `default` leaves it to the server", settings.set_),
    Command("think", "[on|off|show|hide]", "let the model reason, or not; show its reasoning", settings.think),
    Command("tools", "[FILE|off]", "offer the tools of a JSON file; you type their results", settings.tools),
    Command("image", "FILE|off", "a picture with the next question", settings.attach),
    Command("audio", "FILE|off", "a sound with the next question", settings.attach),
    Command("retry", "", "ask the last question again, in the place of its answer", answers.retry),
    Command("continue", "", "let a stopped or cut answer go on", answers.let_go_on),
    Command("edit", "[N] [TEXT]", "ask another question in the place of the last, or of number N", answers.edit),
    Command("past", "", "what was asked, with numbers", answers.past),
    Command("fork", "[N]", "go on in a copy that ends at the last exchange, or at number N", answers.fork),
    Command("context", "", "how full the context is", answers.context),
    Command("trim", "[N|off]", "leave older exchanges out of what is sent", answers.trim),
    Command("engine", "[NAME]", "talk to another engine", kept.engine),
    Command("model", "[NAME]", "talk to another model of this engine", kept.model),
    Command("new", "", "a new conversation", kept.new),
    Command("list", "", "the conversations that are kept", kept.list_),
    Command("load", "ID|FILE", "go on with another conversation", kept.load),
    Command("save", "FILE", "write this one to NAME.md or NAME.json", kept.save),
    Command("title", "[TEXT]", "call this conversation so", kept.title),
    Command("quit", "", "leave", kept.quit_),
)
