"""Talking to an engine: `chat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from spark_tui.cli.commands.frame import F, command, name_argument
from spark_tui.cli.session import Session

_CHAT_EXAMPLES = """\
  spark-tui chat gpt-oss-120b                   a conversation; /help in it
  spark-tui chat gpt-oss-120b --continue        the last one again
  spark-tui chat gpt-oss-120b -m "Why is the sky blue?"
  git diff | spark-tui chat gpt-oss-120b -m "Review this:"
  spark-tui chat qwen3.6-27b -m "What is this?" --image photo.jpg
"""


def _setting(*names: str, metavar: str, help: str, **attributes: Any) -> Callable[[F], F]:  # noqa: A002 - click's name
    """A chat setting, read and ranged by the domain: its errors name it."""
    return click.option(*names, metavar=metavar, help=help, **attributes)


def _chat_settings(function: F) -> F:
    """Everything that can be set for an answer."""
    options = (
        _setting("--system", metavar="TEXT|@FILE", help="The system prompt.  [the preset's]"),
        _setting("--temperature", metavar="T", help="Sampling temperature, 0 to 2."),
        _setting("--top-p", metavar="P", help="Nucleus sampling."),
        _setting("--top-k", metavar="N", help="Only the N likeliest tokens; 0 is all."),
        _setting("--min-p", metavar="P", help="Only tokens with this share of the likeliest one's probability."),
        _setting("--max-tokens", metavar="N", help="At most so many tokens, reasoning included."),
        _setting("--seed", metavar="N", help="The same seed, the same answer, as far as the engine can."),
        _setting("--stop", metavar="TEXT", multiple=True, help="End before this text; may be repeated."),
        _setting("--presence-penalty", metavar="X", help="-2 to 2; above 0 speaks of new things."),
        _setting("--frequency-penalty", metavar="X", help="-2 to 2; above 0 repeats words less."),
        _setting("--repetition-penalty", metavar="X", help="Above 1 repeats less, of the prompt too."),
        click.option("--thinking/--no-thinking", default=None, help="Let a reasoning model reason, or not."),
        click.option("--keep-thinking", "preserve_thinking", is_flag=True, default=None,
                     help="Send the reasoning of earlier answers too."),
        _setting("--effort", "reasoning_effort", metavar="WORD", help="none, minimal, low, medium, high, xhigh, max."),
        _setting("--budget", "thinking_budget", metavar="N", help="At most so many tokens of reasoning."),
        _setting("--schema", metavar="JSON|@FILE", help="The answer is JSON of this schema."),
        _setting("--logprobs", metavar="N", help="Tell the N likeliest tokens for each; 0 to 20."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@command("chat", _CHAT_EXAMPLES)
@name_argument
@click.option("-m", "--message", metavar="TEXT", help="The question; text that is piped in is put below it.")
@click.option("--image", "images", multiple=True, metavar="FILE", help="A picture with it; may be repeated.")
@click.option("--audio", "sounds", multiple=True, metavar="FILE", help="A sound with it; may be repeated.")
@click.option(
    "--continue",
    "goes_on",
    is_flag=False,
    flag_value="last",
    default="",
    metavar="[ID]",
    help="Go on with a conversation that is kept.  [the last one]",
)
@click.option("--save/--no-save", "keep", default=None, help="Keep it.  [conversations yes, single questions no]")
@click.option("--model", default="", metavar="NAME", help="Another name that the engine serves (a LoRA).")
@click.option("--tools", default="", metavar="FILE", help="Tools in JSON; in a conversation you type their results.")
@click.option("--tool-choice", metavar="WORD", help="auto, none, required, or a tool's name.")
@_chat_settings
@click.option("--show-reasoning", is_flag=True, help="Show the reasoning, on standard error.")
def chat(session: Session, name: str, images: tuple[str, ...], sounds: tuple[str, ...], **typed: Any) -> None:
    """Talk to an engine. The answer goes to standard output, its figures to standard error.

    Without -m on a terminal: a conversation, line by line, which is kept in ~/.local/share/spark-tui/conversations.
    With --json every piece of the answer is an object on a line, and the last one is all of it.
    """
    from spark_tui.cli.chat import ChatOptions
    from spark_tui.cli.chat import chat as work

    message, goes_on, keep, model, tools = (typed.pop(key) for key in ("message", "goes_on", "keep", "model", "tools"))
    reasoning = typed.pop("show_reasoning")
    typed["stop"] = list(typed["stop"]) or None
    choice = typed.pop("tool_choice")
    settings = tuple((key, value) for key, value in typed.items() if value is not None)
    options = ChatOptions(
        message, settings, tools, (*images, *sounds), model, goes_on, keep, reasoning, tool_choice=choice or ""
    )
    work(session, name, options)
