"""chat: one question, or a conversation, with an engine that serves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from spark_tui.cli.answers import AnswerWriter
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.engines import find_container
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.conversation import ChatTarget, Conversation
from spark_tui.domain.chat import ChatParameters
from spark_tui.domain.engine.endpoint import Endpoint, Health
from spark_tui.domain.errors import ApiKeyRejected, EngineDead, EngineUnreachable, SparkError, UsageError

_Turn: TypeAlias = Callable[[str, Context], Coroutine[Any, Any, None]]

PROMPT = "> "


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What was typed after `chat`. `reasoning` shows the model's reasoning on standard error."""

    message: str | None = None
    system: str = ""
    parameters: ChatParameters = field(default_factory=ChatParameters)
    reasoning: bool = False


def chat(session: Session, name: str, options: ChatOptions, *, ask: Callable[[str], str] | None = None) -> None:
    """One question from `-m` and standard input, else a conversation; `ask` reads a person's next line."""
    message = _message(session, options)
    conversation, target = session.run(partial(_open, options, name))
    turn = partial(_turn, session, conversation, target, options.reasoning)
    if message is not None:
        session.run(partial(turn, message))
    else:
        _converse(session, target, turn, ask or session.out.ask)


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


async def _open(options: ChatOptions, name: str, context: Context) -> tuple[Conversation, ChatTarget]:
    """A conversation with that engine, which is made sure to serve."""
    target = await _target(context, name)
    return Conversation(context.api, context.clock, system=options.system, parameters=options.parameters), target


async def _target(context: Context, name: str) -> ChatTarget:
    """Finds the engine. Raises the error that says why it cannot be talked to."""
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
    return ChatTarget(container.name, endpoint, served)


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


def _converse(session: Session, target: ChatTarget, turn: _Turn, ask: Callable[[str], str]) -> None:
    """Question and answer until end of file. Ctrl-C stops an answer; at the prompt it leaves."""
    session.err.say(f"{target.model} at {target.engine}. Ctrl-C stops an answer, Ctrl-D leaves.", "dim")
    while True:
        try:
            question = ask(PROMPT)
        except EOFError:
            session.err.say()
            return
        if not question.strip():
            continue
        try:
            session.run(partial(turn, question))
        except Interrupted:
            session.err.say("(stopped)", "dim")
        except SparkError as error:
            session.err.error(error)


async def _turn(
    session: Session, conversation: Conversation, target: ChatTarget, show_reasoning: bool, question: str, _: Context
) -> None:
    """Asks, and writes the answer as it comes. Raises the error that ended it; what had come is kept."""
    writer = AnswerWriter(session, show_reasoning=show_reasoning)
    try:
        async with aclosing(conversation.ask(question, target)) as answers:
            async for answer in answers:
                writer.show(answer)
    finally:
        answer = conversation.exchanges[-1].answer
        writer.show(answer)  # what came after the last look, when it was stopped
        writer.end()
    writer.result(answer, target)
