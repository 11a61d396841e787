"""chat: one question, or a conversation, with an engine that serves."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from spark_tui.cli.command import F, command, engine_argument
from spark_tui.cli.engines import find_container
from spark_tui.cli.session import Session
from spark_tui.core.chat import ChatTarget, Conversation, advised, target_of
from spark_tui.core.context import Context
from spark_tui.domain.chat.conversation import ChatThread, ConversationSummary, EngineSide, Exchange, Room
from spark_tui.domain.chat.message import Answer, Attachment
from spark_tui.domain.chat.request import NO_SETTINGS, ChatSettings, Defaults, check_together, settings_json
from spark_tui.domain.engine.state import Endpoint, Health
from spark_tui.domain.errors import ApiKeyRejected, EngineDead, EngineUnreachable, UsageError
from spark_tui.domain.quantities import human_count, human_duration
from spark_tui.domain.text import clean
from spark_tui.present.chat import answer_object, tool_call_object
from spark_tui.present.json import Object, maybe, moment

NO_METRICS = "the engine's metrics do not tell"
NOT_KEPT = "this conversation is not kept"


def answered(exchange: Exchange, conversation: str = "") -> Object:
    """An answer with its timings, and what holds for it: how it ended, parameters, context."""
    found = exchange.answer
    rate = found.prefill_tokens_per_second
    usage = found.usage
    used = usage.prompt_tokens + usage.completion_tokens if usage is not None else None
    return {
        **answer_object(found, exchange.engine, exchange.model),
        **maybe("conversation", conversation, NOT_KEPT),
        "number": exchange.number,
        "outcome": exchange.outcome.value,
        **maybe(
            "prefill_tokens_per_second", None if rate is None else round(rate, 1), "too few tokens, or not reported"
        ),
        **maybe("context_used_tokens", used, "the server did not report it"),
        **maybe("context_limit_tokens", exchange.limit, "the engine does not tell"),
        "parameters": settings_of(exchange.settings),
        **engine_side(exchange.engine_side),
        **maybe(
            "logprobs",
            [{"token": each.token, "logprob": each.logprob, "top": dict(each.likeliest)} for each in found.logprobs]
            or None,
            "they were not asked for",
        ),
    }


def engine_side(side: EngineSide | None) -> Object:
    """What the engine's metrics say of an answer."""
    shared = {"shared_with_other_requests": True} if side is not None and side.shared else {}
    return {
        **maybe("queue_seconds", None if side is None else side.queue_seconds, NO_METRICS),
        **maybe("speculation_acceptance", None if side is None else side.acceptance, NO_METRICS),
        **shared,
    }


def settings_of(settings: ChatSettings) -> Object:
    """What was set; tools by name."""
    told = settings_json(settings)
    if settings.tools:
        told["tools"] = [tool.name for tool in settings.tools]
    return told


def summary(found: ConversationSummary) -> Object:
    """One conversation in a list."""
    return {
        "id": found.id,
        "title": found.title,
        "created_at": moment(found.created_at),
        "changed_at": moment(found.changed_at),
        "exchanges": found.exchanges,
        "models": list(found.models),
        "engines": list(found.engines),
        "size_bytes": found.size,
        "damaged_lines": found.damaged,
        "in_use": found.in_use,
    }


def thread(found: ChatThread) -> Object:
    """A whole conversation."""
    return {
        "id": found.id,
        "title": found.title,
        "created_at": moment(found.created_at),
        "settings": settings_of(found.settings),
        "sent_from": found.sent_from,
        "damaged_lines": found.damaged,
        "exchanges": [exchange(each) for each in found.exchanges],
    }


def exchange(found: Exchange) -> Object:
    """A question and its answer."""
    error = found.error
    return {
        "question": found.question,
        "attachments": [{"kind": each.kind.value, "name": each.name} for each in found.attachments],
        "tool_answers": [
            {"call_id": each.call_id, "name": each.name, "content": each.content} for each in found.tool_answers
        ],
        "asked_at": moment(found.asked_at),
        "error": None if error is None else {"id": error.id, "summary": error.summary, "remedy": error.remedy},
        "open_tool_calls": [tool_call_object(call) for call in found.open_calls],
        **answered(found),
    }


UNSURE_TOKENS = 5


class AnswerWriter:
    """Writes one answer. It is shown snapshots, and writes what is new in each."""

    def __init__(self, session: Session, *, show_reasoning: bool, carried: Answer | None = None) -> None:
        """`carried` is an answer that goes on: what it has by now was written before."""
        self._session = session
        self._show_reasoning = show_reasoning
        self._content = len(carried.content) if carried is not None else 0
        self._reasoning = len(carried.reasoning) if carried is not None else 0
        self._last = carried.content[-1:] if carried is not None else ""
        self._thinking = False

    # --- while it grows -------------------------------------------------------------------------------

    def show(self, answer: Answer) -> None:
        """What has come since the last time."""
        reasoning, content = answer.reasoning[self._reasoning :], answer.content[self._content :]
        self._reasoning, self._content = len(answer.reasoning), len(answer.content)
        if reasoning:
            self._write_reasoning(reasoning, answer)
        if content:
            self._write_content(content, answer)

    def _write_reasoning(self, text: str, answer: Answer) -> None:
        if self._session.as_json:
            self._session.out.json_line({"type": "reasoning", "text": text})
            return
        self._thinking = True
        if self._show_reasoning:
            self._session.err.stream(clean(text), "dim")
        else:
            self._session.err.standing(f"reasoning ... {len(answer.reasoning):,} characters")

    def _write_content(self, text: str, answer: Answer) -> None:
        if self._session.as_json:
            self._session.out.json_line({"type": "content", "text": text})
            return
        self._end_reasoning(answer)
        # A model's habit of opening with blank lines would push the answer down.
        shown = clean(text) if self._last else clean(text).lstrip("\n")
        self._session.out.write(shown)
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

    # --- its end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """No more comes, for whatever reason: the line is closed."""
        self._session.err.settle()
        if self._last and not self._last.endswith("\n"):
            self._session.out.line()

    def result(self, exchange: Exchange, conversation: str = "") -> None:
        """What came, and how fast; `conversation` is the id under which it is kept."""
        answer, err = exchange.answer, self._session.err
        if self._session.as_json:
            for call in answer.tool_calls:
                self._session.out.json_line({"type": "tool_call", **tool_call_object(call)})
            self._session.out.json_line({"type": "answer", **answered(exchange, conversation)})
            return
        self._end_reasoning(answer)
        for call in answer.tool_calls:
            err.say(f"tool call: {call.name}({call.arguments})")
        err.say(figures(exchange), "dim")
        for line in unsure(answer):
            err.say(line, "dim")
        if answer.finish_reason == "length":
            err.note("The answer was cut off at the token limit; raise it with --max-tokens, or /continue.")
        elif not answer.content and not answer.tool_calls:
            err.note("The model gave no answer" + (", only reasoning." if answer.reasoning else "."))


def figures(exchange: Exchange) -> str:
    """`ttft 0.41 s   41.8 tok/s   312 tokens   prompt 20`: what the server and the clock told."""
    answer, side = exchange.answer, exchange.engine_side
    prefill, speed, usage = answer.prefill_tokens_per_second, answer.decode_tokens_per_second, answer.usage
    used = None if usage is None else usage.prompt_tokens + usage.completion_tokens
    parts = [
        "stopped" if exchange.stopped else "",
        "" if answer.ttft is None else f"ttft {answer.ttft:.2f} s",
        "" if side is None or side.queued is None else f"queued {side.queued:.2f} s",
        "" if prefill is None else f"prefill {prefill:,.0f} tok/s",
        "" if speed is None else f"{speed:.1f} tok/s",
        "" if usage is None else f"{usage.completion_tokens} tokens",
        "" if usage is None or usage.reasoning_tokens is None else f"{usage.reasoning_tokens} of them reasoning",
        "" if usage is None else f"prompt {usage.prompt_tokens}",
        "" if usage is None or usage.cached_tokens is None else f"{usage.cached_tokens} of it cached",
        "" if side is None or side.acceptance is None else f"drafts {side.acceptance:.0%} accepted",
        "" if used is None or not exchange.limit else f"context {used / exchange.limit:.0%}",
    ]
    return "   ".join(filter(None, parts))


def unsure(answer: Answer) -> list[str]:
    """The tokens of which the model was least sure, with what else was likely; empty without log probabilities."""
    tokens = sorted(answer.logprobs, key=lambda each: each.logprob)[:UNSURE_TOKENS]
    lines = []
    for each in tokens:
        others = ", ".join(f"{_quoted(name)} {_percent(at)}" for name, at in each.likeliest if name != each.token)
        lines.append(f"  {_quoted(each.token)} {_percent(each.logprob)}{f'   else {others}' if others else ''}")
    return ["least sure of:", *lines] if lines else []


def _quoted(token: str) -> str:
    return repr(clean(token))


def _percent(logprob: float) -> str:
    return f"{math.exp(min(0.0, logprob)):.0%}"


async def find_target(context: Context, name: str, model: str = "") -> tuple[ChatTarget, Defaults]:
    """The engine, and what its preset's chats begin with. Raises the error that says why it cannot be talked to."""
    container = await find_container(context, name)
    watch = await context.supervisor.watch(container.id)
    endpoint = watch.endpoint
    if not container.running:
        raise EngineUnreachable(
            f"{container.name} does not run ({container.status.value}).",
            f"Start it: spark-tui restart {container.name}",
        )
    if endpoint is None:
        raise EngineUnreachable(
            f"{container.name} publishes no port.", "Launch it from a preset, or publish its port: docker run -p ..."
        )
    health = await watch.check_health()
    if health is Health.DEAD:
        raise EngineDead(
            f"The engine of {container.name} is dead, only its web server answers.",
            f"Read why: spark-tui logs {container.name}\nStart it again: spark-tui restart {container.name}",
        )
    served = watch.view().served_name
    if not served and health is Health.OK:
        served = await _first_model(context, endpoint, container.name)
    if not served or health is not Health.OK:
        raise EngineUnreachable(
            f"{container.name} is not ready yet: its port {watch.view().port} says {health.value}.",
            f"Follow its start: spark-tui logs {container.name} -f",
        )
    defaults = await context.conversations.defaults(container.preset, served)
    view = watch.view()
    target = target_of(view, endpoint, model=model or ("" if view.served_name else served))
    return ChatTarget(target.engine, endpoint, target.model, target.limit, defaults.modalities), defaults


async def _first_model(context: Context, endpoint: Endpoint, name: str) -> str:
    try:
        models = await context.api.models(endpoint)
    except ApiKeyRejected as error:
        target = ChatTarget(name, endpoint, "")
        raise advised(error, target, context.secrets.path(name)) from error
    return models[0].id if models else ""


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
    click.option("--logprobs", metavar="N", help="Return the top N tokens for each token; 0 to 20."),
)  # fmt: skip


def _settings(function: F) -> F:
    """Everything that can be set for an answer."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@command("chat", _CHAT_EXAMPLES)
@engine_argument
@click.option("-m", "--message", metavar="TEXT", help="The question; piped text is added below it.")
@click.option("--image", "images", multiple=True, metavar="FILE", help="Attach an image; may be repeated.")
@click.option("--audio", "sounds", multiple=True, metavar="FILE", help="Attach audio; may be repeated.")
@click.option(
    "--continue", "goes_on", is_flag=False, flag_value="last", default="", metavar="[ID]",
    help="Continue a saved conversation.  [the last one]",
)  # fmt: skip
@click.option("--save/--no-save", "keep", default=None, help="Save it.  [conversations yes, single questions no]")
@click.option("--model", default="", metavar="NAME", help="Another name that the engine serves (a LoRA).")
@click.option("--tools", default="", metavar="FILE", help="Tools in JSON; in a conversation you type their results.")
@click.option("--tool-choice", metavar="WORD", help="auto, none, required, or a tool's name.")
@_settings
@click.option("--show-reasoning", is_flag=True, help="Show the reasoning, on stderr.")
def chat(session: Session, name: str, images: tuple[str, ...], sounds: tuple[str, ...], **typed: Any) -> None:
    """Chat with an engine. The answer goes to stdout, its figures to stderr.

    Without -m on a terminal: a conversation, line by line, saved in ~/.local/share/spark-tui/conversations.
    With --json every piece of the answer is an object on a line; the last one is the whole answer.
    """
    message, goes_on, keep, model, tools = (typed.pop(key) for key in ("message", "goes_on", "keep", "model", "tools"))
    reasoning = typed.pop("show_reasoning")
    typed["stop"] = list(typed["stop"]) or None
    choice = typed.pop("tool_choice")
    settings = tuple((key, value) for key, value in typed.items() if value is not None)
    options = ChatOptions(
        message, settings, tools, (*images, *sounds), model, goes_on, keep, reasoning, tool_choice=choice or ""
    )
    start_chat(session, name, options)


def start_chat(session: Session, name: str, options: ChatOptions, *, ask: Callable[[str], str] | None = None) -> None:
    """One question from `-m` and standard input, else a conversation; `ask` reads a person's next line."""
    message = _message(session, options)
    talk = session.run(partial(_open, session, options, name, single=message is not None))
    try:
        if message is not None:
            session.run(partial(talk.ask, message))
        else:
            from spark_tui.cli.chat_repl import converse

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
