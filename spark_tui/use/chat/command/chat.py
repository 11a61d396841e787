"""chat: one question, or a conversation, with a serving engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.request import NO_SETTINGS, check_together
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.cli.command import F, command, optional_engine_argument
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.session import Session
from spark_tui.use.chat.command.repl import ReplSession, converse, find_target
from spark_tui.use.chat.use.conversations import Conversations

MOST_PIPED = 16 * MIB


class ChatOptions(Struct, frozen=True):
    """What was typed after `chat`. `settings` are name and text of each parameter; `goes_on` is the id of a
    conversation to continue. `keep`: None saves conversations, and single questions only when they continue one.
    `reasoning` shows the model's reasoning on standard error."""

    message: str | None = None
    settings: tuple[tuple[str, object], ...] = ()
    tools: str = ""
    files: tuple[str, ...] = ()
    model: str = ""
    goes_on: str = ""
    keep: bool | None = None
    reasoning: bool = False
    tool_choice: str = ""


_CHAT_EXAMPLES = """\
  spark-tui chat gpt-oss-120b                   a conversation; /help in it
  spark-tui chat gpt-oss-120b --continue        resume the last one
  spark-tui chat gpt-oss-120b -m "Why is the sky blue?"
  git diff | spark-tui chat gpt-oss-120b -m "Review this:"
  spark-tui chat qwen3.6-27b -m "What is this?" --image photo.jpg
"""

_SETTINGS = (
    # Read and ranged by the domain: its errors name the option.
    click.option("--system", metavar="TEXT|@FILE", help="The system prompt.  [the preset's]"),
    click.option("--temperature", metavar="T", help="Sampling temperature, 0 to 2."),
    click.option("--top-p", metavar="P", help="Nucleus sampling."),
    click.option("--top-k", metavar="N", help="Only the N likeliest tokens; 0 is all."),
    click.option("--min-p", metavar="P", help="Minimum probability, relative to the likeliest token."),
    click.option("--max-tokens", metavar="N", help="Maximum tokens, reasoning included."),
    click.option("--seed", metavar="N", help="The same seed gives the same answer, as far as the engine can."),
    click.option("--stop", metavar="TEXT", multiple=True, help="Stop before this text; may be repeated."),
    click.option("--presence-penalty", metavar="X", help="-2 to 2; above 0 encourages new topics."),
    click.option("--frequency-penalty", metavar="X", help="-2 to 2; above 0 repeats words less."),
    click.option("--repetition-penalty", metavar="X", help="Above 1 repeats less, also of the prompt."),
    click.option("--thinking/--no-thinking", default=None, help="Enable or disable reasoning."),
    click.option("--keep-thinking", "preserve_thinking", is_flag=True, default=None,
                 help="Send the reasoning of earlier answers too."),
    click.option("--effort", "reasoning_effort", metavar="WORD", help="none, minimal, low, medium, high, xhigh, max."),
    click.option("--budget", "thinking_budget", metavar="N", help="Maximum reasoning tokens."),
    click.option("--schema", metavar="JSON|@FILE", help="Answer in JSON of this schema."),
)  # fmt: skip


def _settings(function: F) -> F:
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@command("chat", _CHAT_EXAMPLES)
@optional_engine_argument
@click.option("-m", "--message", metavar="TEXT", help="The question; piped text is added below it.")
@click.option("--image", "images", multiple=True, metavar="FILE", help="Attach an image; may be repeated.")
@click.option("--audio", "sounds", multiple=True, metavar="FILE", help="Attach audio; may be repeated.")
@click.option(
    "--continue",
    "goes_on",
    is_flag=False,
    flag_value="last",
    default="",
    metavar="[ID]",
    help="Continue a saved conversation.  [the last one]",
)
@click.option("--save/--no-save", "keep", default=None, help="Save it.  [conversations yes, single questions no]")
@click.option("--model", default="", metavar="NAME", help="Another name that the engine serves (a LoRA).")
@click.option("--tools", default="", metavar="FILE", help="Tools in JSON; calls are shown, not run.")
@click.option("--tool-choice", metavar="WORD", help="auto, none, required, or a tool's name.")
@_settings
@click.option("--show-reasoning", is_flag=True, help="Show the reasoning, on stderr.")
def chat(
    session: Session,
    name: str,
    message: str | None,
    images: tuple[str, ...],
    sounds: tuple[str, ...],
    goes_on: str,
    keep: bool | None,
    model: str,
    tools: str,
    tool_choice: str | None,
    show_reasoning: bool,
    **typed: Any,
) -> None:
    """Chat with an engine. The answer goes to stdout, its figures to stderr.

    Without NAME: the engine that runs, if it is the only one. Without -m on a terminal: a conversation, line by line,
    saved in ~/.local/share/spark-tui/conversations.
    With --json every piece of the answer is an object on a line; the last one is the whole answer.
    """
    typed["stop"] = list(typed["stop"]) or None
    settings = tuple((key, value) for key, value in typed.items() if value is not None)
    options = ChatOptions(
        message, settings, tools, (*images, *sounds), model, goes_on, keep, show_reasoning, tool_choice or ""
    )
    start_chat(session, engine_name(session, name), options)


def start_chat(session: Session, name: str, options: ChatOptions, *, ask: Callable[[str], str] | None = None) -> None:
    """One question from `-m` and standard input, piped text below the message; else a conversation, for which `ask`
    reads the next line."""
    typing = session.stdin is not None and session.stdin.isatty()
    message = None
    if not typing or options.message is not None:
        piped = "" if typing or session.stdin is None else session.stdin.read(MOST_PIPED + 1)
        if len(piped) > MOST_PIPED:
            raise RefusedError(f"The piped text has more than {human_bytes(MOST_PIPED)}.", "Pipe in less.")
        parts = [part for part in (options.message or "", piped.rstrip("\n")) if part.strip()]
        if not parts:
            session.run(lambda context: find_container(context, name))  # a wrong name is the first thing to say
            raise UsageError("The message is empty.", 'Give it with -m "...", or pipe it in.')
        message = "\n\n".join(parts)
    elif session.as_json:
        raise UsageError("With --json a question is required.", "Give it with -m, or pipe it in.")
    talk = session.run(partial(_open, session, options, name, ask or session.out.ask, single=message is not None))
    try:
        if message is not None:
            session.run(partial(talk.ask, message))
        else:
            converse(talk)
    finally:
        session.run(lambda _: talk.conversation.close())


async def _open(
    session: Session, options: ChatOptions, name: str, ask: Callable[[str], str], context: Context, *, single: bool
) -> ReplSession:
    """A conversation with that engine, which must be serving."""
    conversations = context[Conversations]
    target, defaults = await find_target(context, name, options.model)
    typed = NO_SETTINGS
    for key, value in options.settings:
        typed = await conversations.with_setting(typed, key, value)
    if options.tools:
        typed = replace(typed, tools=await conversations.tools(options.tools))
    typed = typed.with_setting("tool_choice", options.tool_choice)
    if options.goes_on:
        conversation = await conversations.open(options.goes_on)
        conversation.settings = typed.over(conversation.settings)
    else:
        keep = options.keep if options.keep is not None else not single
        conversation = conversations.new(typed.over(defaults.settings), keep=keep)
    attachments = tuple([await conversations.attachment(path) for path in options.files])
    check_together(attachments)
    if not conversation.settings.system:
        for problem in defaults.problems:
            session.err.note(problem)
    return ReplSession(session, context.clock, conversation, target, defaults, ask, options.reasoning, attachments)
