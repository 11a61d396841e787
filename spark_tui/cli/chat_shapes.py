"""What `--json` prints of conversations: units in the key names, and beside every null a `<key>_reason`."""

from __future__ import annotations

from spark_tui.cli.shapes import Object, answer, maybe, moment, tool_call
from spark_tui.domain.chat_settings import ChatSettings, settings_json
from spark_tui.domain.conversation import ChatThread, ConversationSummary, EngineSide, Exchange

NO_METRICS = "the engine's metrics do not tell"
NOT_KEPT = "this conversation is not kept"


def answered(exchange: Exchange, conversation: str = "") -> Object:
    """An answer with its timings, and what holds for it: how it ended, parameters, context."""
    found = exchange.answer
    rate = found.prefill_tokens_per_second
    usage = found.usage
    used = usage.prompt_tokens + usage.completion_tokens if usage is not None else None
    return {
        **answer(found, exchange.engine, exchange.model),
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
            [{"token": each.token, "logprob": each.logprob, "top": dict(each.likeliest)} for each in found.chances]
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
        "open_tool_calls": [tool_call(call) for call in found.open_calls],
        **answered(found),
    }
