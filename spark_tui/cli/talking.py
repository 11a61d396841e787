"""chat: one question, or a conversation, with an engine that serves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from spark_tui.cli import shapes
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.engines import find_container
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.domain.chat import (
    Answer,
    ChatEvent,
    ChatParameters,
    ChatRequest,
    ContentDelta,
    Finished,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
    Usage,
    advance,
)
from spark_tui.domain.engine.endpoint import Endpoint, Health
from spark_tui.domain.errors import ApiKeyRejected, EngineDead, EngineUnreachable, SparkError, UsageError
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.text import clean

PROMPT = "> "


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What was typed after `chat`. `reasoning` shows the model's reasoning on standard error."""

    message: str | None = None
    system: str = ""
    parameters: ChatParameters = field(default_factory=ChatParameters)
    reasoning: bool = False


@dataclass(slots=True)
class _Talk:
    """Whom we talk to, and what was said."""

    engine: str
    endpoint: Endpoint
    model: str
    messages: list[Message] = field(default_factory=list)


def chat(session: Session, name: str, options: ChatOptions, *, ask: Callable[[str], str] | None = None) -> None:
    """One question from `-m` and standard input, else a conversation; `ask` reads a person's next line."""
    message = _message(session, options)
    talk = session.run(lambda context: _open(context, name))
    if options.system:
        talk.messages.append(Message(Role.SYSTEM, options.system))
    if message is not None:
        session.run(partial(_turn, session, talk, options, message))
    else:
        _converse(session, talk, options, ask or session.out.ask)


def _message(session: Session, options: ChatOptions) -> str | None:
    """What to ask; None for a conversation. Text that is piped in stands below the message."""
    interactive = session.stdin is None or session.stdin.isatty()
    if interactive and options.message is None:
        if session.as_json:
            raise UsageError("With --json there is nothing to ask yet.", "Give the question with -m, or pipe it in.")
        return None
    piped = "" if interactive or session.stdin is None else session.stdin.read()
    parts = [part for part in (options.message or "", piped.rstrip("\n")) if part.strip()]
    if not parts:
        raise UsageError("The message is empty.", 'Give it with -m "...", or pipe it in.')
    return "\n\n".join(parts)


async def _open(context: Context, name: str) -> _Talk:
    """Finds the engine and makes sure that it serves. Raises the error that says why not."""
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
    return _Talk(container.name, endpoint, served)


async def _first_model(context: Context, endpoint: Endpoint, name: str) -> str:
    try:
        models = await context.api.models(endpoint)
    except ApiKeyRejected as error:
        raise ApiKeyRejected(
            f"{name} wants an API key that spark-tui does not have.",
            "It was launched elsewhere. Launch it from a preset with --api-key, and the key is kept for you.",
            detail=error.detail,
        ) from error
    return models[0].id if models else ""


# --- a conversation -----------------------------------------------------------------------------------


def _converse(session: Session, talk: _Talk, options: ChatOptions, ask: Callable[[str], str]) -> None:
    """Question and answer until end of file. Ctrl-C stops an answer; at the prompt it leaves."""
    session.err.say(f"{talk.model} at {talk.engine}. Ctrl-C stops an answer, Ctrl-D leaves.", "dim")
    while True:
        try:
            question = ask(PROMPT)
        except EOFError:
            session.err.say()
            return
        if not question.strip():
            continue
        try:
            session.run(partial(_turn, session, talk, options, question))
        except Interrupted:
            session.err.say("(stopped)", "dim")
        except SparkError as error:
            session.err.error(error)


async def _turn(session: Session, talk: _Talk, options: ChatOptions, question: str, context: Context) -> None:
    """Asks, and writes the answer as it comes. What had come when it was stopped is kept as the answer."""
    talk.messages.append(Message(Role.USER, question))
    request = ChatRequest(talk.model, tuple(talk.messages), options.parameters)
    answer = Answer(context.clock.monotonic())
    writer = _Writer(session, show_reasoning=options.reasoning)
    try:
        async with aclosing(context.api.chat(talk.endpoint, request)) as events:
            async for event in events:
                answer = advance(answer, event, context.clock.monotonic())
                writer.event(event, answer)
    finally:
        writer.end()
        if answer.content.strip():
            talk.messages.append(Message(Role.ASSISTANT, answer.content))
        else:
            talk.messages.pop()  # a question without an answer: many templates refuse two turns of one speaker
    writer.result(answer, talk)


class _Writer:
    """The answer to standard output, all about it to standard error; as JSON one object per event."""

    def __init__(self, session: Session, *, show_reasoning: bool) -> None:
        self._session = session
        self._show_reasoning = show_reasoning
        self._last = ""
        self._reasoned = False

    def event(self, event: ChatEvent, answer: Answer) -> None:
        """One event; `answer` is the answer with it."""
        if self._session.as_json:
            self._session.out.json_line(_event_object(event))
            return
        match event:
            case ContentDelta(text) if text:
                self._end_reasoning(answer)
                # A model's habit of opening with blank lines would push the answer down.
                shown = clean(text) if self._last else clean(text).lstrip("\n")
                self._session.out.write(shown)
                self._last = shown or self._last
            case ReasoningDelta(text) if text:
                self._reason(clean(text), answer)
            case _:
                pass

    def _reason(self, text: str, answer: Answer) -> None:
        if self._show_reasoning:
            self._session.err.stream(text, "dim")
        else:
            self._session.err.standing(f"reasoning ... {len(answer.reasoning):,} characters")
        self._reasoned = True

    def _end_reasoning(self, answer: Answer) -> None:
        if not self._reasoned:
            return
        self._reasoned = False
        self._session.err.settle()
        if self._show_reasoning:
            self._session.err.say()
        if answer.reasoning_seconds is not None and self._session.err.interactive:
            self._session.err.say(f"(reasoned for {human_duration(answer.reasoning_seconds)})", "dim")

    def end(self) -> None:
        """The answer is over, however it ended: the line is closed."""
        self._session.err.settle()
        if not self._session.as_json and self._last and not self._last.endswith("\n"):
            self._session.out.line()

    def result(self, answer: Answer, talk: _Talk) -> None:
        """What came, and how fast."""
        if self._session.as_json:
            self._session.out.json_line({"type": "answer", **shapes.answer(answer, talk.engine, talk.model)})
            return
        self._end_reasoning(answer)
        for call in answer.tool_calls:
            self._session.err.say(f"tool call: {call.name}({call.arguments})")
        self._session.err.say(_figures(answer), "dim")
        if answer.finish_reason == "length":
            self._session.err.note("The answer was cut off at the token limit; raise it with --max-tokens.")
        elif not answer.content and not answer.tool_calls:
            self._session.err.note("The model gave no answer" + (", only reasoning." if answer.reasoning else "."))


def _figures(answer: Answer) -> str:
    speed, usage = answer.decode_tokens_per_second, answer.usage
    parts = [
        "" if answer.ttft is None else f"ttft {answer.ttft:.2f} s",
        "" if speed is None else f"{speed:.1f} tok/s",
        "" if usage is None else f"{usage.completion_tokens} tokens",
        "" if usage is None or usage.reasoning_tokens is None else f"{usage.reasoning_tokens} of them reasoning",
        "" if usage is None else f"prompt {usage.prompt_tokens}",
        "" if usage is None or usage.cached_tokens is None else f"{usage.cached_tokens} of it cached",
    ]
    return "   ".join(filter(None, parts))


def _event_object(event: ChatEvent) -> shapes.Object:
    match event:
        case ContentDelta(text):
            return {"type": "content", "text": text}
        case ReasoningDelta(text):
            return {"type": "reasoning", "text": text}
        case ToolCallDelta(index, call_id, name, arguments):
            return {"type": "tool_call", "index": index, "id": call_id, "name": name, "arguments": arguments}
        case Finished(reason):
            return {"type": "finished", "reason": reason}
        case Usage():
            return {"type": "usage", **shapes.usage(event)}
