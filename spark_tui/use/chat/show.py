"""What chat shows in both front ends: questions, the state of an answer, the context, settings, saved conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from spark_tui.base.engine.message import SETTINGS, Answer, ToolCall, written
from spark_tui.base.engine.request import NO_DEFAULTS, ChatSettings, Defaults, settings_json
from spark_tui.base.finding import value_of
from spark_tui.base.page import (
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    labelled,
    maybe,
    moment,
    rounded,
)
from spark_tui.base.quantities import human_count
from spark_tui.base.text import clean_line, truncate
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.serving import EngineMetrics
from spark_tui.use.chat.model.conversation import (
    ChatThread,
    ContextRoom,
    ContextUse,
    ConversationHit,
    ConversationSummary,
    Exchange,
)
from spark_tui.use.chat.model.formats import ending, figures, tokens

BRIEF_CELLS = 60
NO_METRICS = "not in the engine's metrics"
VALUE_CELLS = 70
_ROOM = {ContextRoom.NEAR: "nearly full", ContextRoom.OVER: "does not fit"}


def brief(exchange: Exchange) -> str:
    """The question on one short line."""
    return truncate(" ".join(clean_line(exchange.question).split()), BRIEF_CELLS)


def phase(answer: Answer) -> str:
    """What the model does: `waiting for the first token`, `reasoning`, `answering`."""
    if answer.first_token_at is None:
        return "waiting for the first token"
    return "answering" if answer.tool_calls or answer.content.strip() else "reasoning"


def progress(exchange: Exchange, now: float) -> str:
    """`2 s   85 tokens   42.0 tok/s` of an answer that is coming; counts only where the server reports them early."""
    answer = exchange.answer
    figures = [f"{int(now - answer.started_at)} s"]
    if answer.usage is not None:
        figures.append(tokens(answer.usage.completion_tokens))
    if answer.decode_tokens_per_second is not None:
        figures.append(f"{answer.decode_tokens_per_second:.1f} tok/s")
    return "   ".join(figures)


def answer_figures(exchange: Exchange) -> tuple[str, ...]:
    """How the answer ended, what it cost, and the share of the context that it leaves taken."""
    usage = exchange.answer.usage
    share = (usage.prompt_tokens + usage.completion_tokens) / exchange.limit if usage and exchange.limit else None
    context = "" if share is None else f"context {100 * share:.0f} %"
    return tuple(filter(None, (ending(exchange), *figures(exchange), context)))


def context_gauge(use: ContextUse | None) -> Cell:
    """`context 185 of 262,144 tokens`, with a word when it is nearly full; empty while it is unknown."""
    if use is None or not use.tokens:
        return Cell("")
    limit = f" of {human_count(use.limit)}" if use.limit else ""
    text = f"context {'' if use.counted else 'about '}{human_count(use.tokens)}{limit} tokens"
    word = _ROOM.get(use.room)
    return Cell(f"{text}: {word}", Tone.WARNING) if word else Cell(text, Tone.QUIET)


GAUGE_CELLS = 20


def rail_page(
    view: EngineView | None,
    exchange: Exchange | None,
    use: ContextUse | None,
    metrics: EngineMetrics | None,
    chosen: ChatSettings,
    marks: tuple[str, str] = ("#", "."),
) -> Page:
    """Beside a conversation: the engine now, the last answer's figures, the context as a bar, what was set. `marks`
    draw the bar's taken and free part."""
    sections = []
    if view is not None:
        rows = [Row(clean_line(view.name), "name", Tone.STRONG), Row(clean_line(view.model), "model", Tone.QUIET)]
        if metrics is not None:
            decode, running = value_of(metrics.decode_rate), value_of(metrics.running)
            usage, hits = value_of(metrics.kv_usage), value_of(metrics.prefix_hits)
            drafts = value_of(metrics.drafting)
            accepted = drafts.acceptance if drafts is not None else None
            rows += labelled(
                (
                    ("now", None if decode is None else f"{decode:.1f} tok/s, {running or 0:.0f} running"),
                    ("KV cache", None if usage is None else f"{usage:.1%} used"),
                    ("prefix", None if hits is None else f"{hits:.0%} hits"),
                    ("drafts", None if accepted is None else f"{accepted:.0%} accepted"),
                )
            )
        sections.append(Section("Engine", tuple(rows)))
    if exchange is not None:
        title = "Answer" if exchange.live else "Last answer"
        found = figures(exchange) if exchange.answer.first_token_at is not None else [phase(exchange.answer)]
        sections.append(Section(title, tuple(Row(text) for text in found)))
    if use is not None and use.tokens and use.limit:
        share = min(1.0, use.tokens / use.limit)
        full = max(1, round(share * GAUGE_CELLS))
        tone = Tone.WARNING if use.room in _ROOM else Tone.PLAIN
        bar = Row(f"{marks[0] * full}{marks[1] * (GAUGE_CELLS - full)} {share:.0%}", tone=tone)
        sections.append(Section("Context", (bar, Row(context_gauge(use).text.removeprefix("context ")))))
    given = [Row(row.value, row.label) for row in setting_rows(chosen) if row.value]
    given += [Row(clean_line(chosen.system), "system", Tone.QUIET)] if chosen.system else []
    return (*sections, *((Section("Settings", tuple(given)),) if given else ()))


class SettingRow(NamedTuple):
    """A setting: its key and label, the value that was set, the default, and its help."""

    key: str
    label: str
    value: str
    default: str
    help: str


def setting_rows(chosen: ChatSettings, defaults: Defaults = NO_DEFAULTS) -> tuple[SettingRow, ...]:
    """All sampling and template settings; `defaults` are the preset's."""
    mine, preset = chosen.parameters.given(), defaults.settings.parameters.given()
    rows = []
    for each in SETTINGS:
        default = written(preset.get(each.name))
        value, help_ = written(mine.get(each.name)), f"{each.help}: {each.range}"
        rows.append(SettingRow(each.name, each.label, value, f"{default} (preset)" if default else "default", help_))
    return tuple(rows)


def conversation_table(
    found: Sequence[ConversationSummary], here: str = "", hits: Mapping[str, ConversationHit] | None = None
) -> Table:
    """Saved conversations. `here` is the id of the one that is open, `hits` the search's first finding in each."""
    rows = []
    for each in found:
        mark = " (open)" if each.id == here else "" if not each.in_use else " (open elsewhere)" if here else " (open)"
        hit = (hits or {}).get(each.id)
        excerpt = f"   {hit.excerpt}" if hit is not None and hit.number else ""
        changed = f"{datetime.fromtimestamp(each.changed_at).astimezone():%Y-%m-%d %H:%M}"
        rows.append(
            cells(
                Cell(each.id, Tone.QUIET),
                f"{each.title}{mark}{excerpt}",
                Cell(changed, Tone.QUIET),
                str(each.exchanges),
                Cell(", ".join(each.models), Tone.QUIET),
            )
        )
    columns = (
        Column("ID"),
        Column("TITLE", least=16),
        Column("CHANGED"),
        Column("N", right=True),
        Column("MODEL", least=12),
    )
    return Table(columns, tuple(rows), tuple(each.id for each in found), "No saved conversations.")


def hit_table(hits: Iterable[ConversationHit]) -> Table:
    columns = (Column("ID"), Column("N", right=True), Column("TITLE", least=12), Column("TEXT", least=12))
    return Table(columns, tuple(cells(hit.id, str(hit.number or ""), hit.title, hit.excerpt) for hit in hits))


# --- JSON -------------------------------------------------------------------------------------------------


def tool_call_object(call: ToolCall) -> Object:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def answered_object(exchange: Exchange, conversation: str = "") -> Object:
    """An answer with its timings and counts, how it ended, its parameters, and the engine's own figures."""
    found, usage, side = exchange.answer, exchange.answer.usage, exchange.engine_side
    silent, few = "the server did not report it", "too few tokens, or not reported"
    counts: Object = {}
    for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"):
        counts |= maybe(name, None if usage is None else getattr(usage, name), silent)
    used = usage.prompt_tokens + usage.completion_tokens if usage is not None else None
    return {
        "id": exchange.engine,
        "model": exchange.model,
        "content": found.content,
        "reasoning": found.reasoning,
        "tool_calls": [tool_call_object(call) for call in found.tool_calls],
        **maybe("finish_reason", found.finish_reason, silent),
        **maybe("ttft_seconds", rounded(found.ttft, 4), "no token came"),
        **maybe("decode_tokens_per_second", rounded(found.decode_tokens_per_second, 2), few),
        **maybe("reasoning_seconds", rounded(found.reasoning_seconds, 3), "there was no reasoning"),
        **counts,
        **maybe("conversation", conversation, "this conversation is not saved"),
        "number": exchange.number,
        "outcome": exchange.outcome.value,
        **maybe("prefill_tokens_per_second", rounded(found.prefill_tokens_per_second, 1), few),
        **maybe("context_used_tokens", used, silent),
        **maybe("context_limit_tokens", exchange.limit, "unknown"),
        "parameters": _settings_object(exchange.settings),
        **maybe("queue_seconds", None if side is None else side.queue_seconds, NO_METRICS),
        **maybe("speculation_acceptance", None if side is None else side.acceptance, NO_METRICS),
        **({"shared_with_other_requests": True} if side is not None and side.shared else {}),
    }


def _settings_object(settings: ChatSettings) -> Object:
    found = settings_json(settings)
    if settings.tools:
        found["tools"] = [tool.name for tool in settings.tools]
    return found


def summary_object(found: ConversationSummary) -> Object:
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


def thread_object(found: ChatThread) -> Object:
    return {
        "id": found.id,
        "title": found.title,
        "created_at": moment(found.created_at),
        "settings": _settings_object(found.settings),
        "sent_from": found.sent_from,
        "damaged_lines": found.damaged,
        "exchanges": [_exchange_object(each) for each in found.exchanges],
    }


def _exchange_object(found: Exchange) -> Object:
    error = found.error
    return {
        "question": found.question,
        "attachments": [{"kind": each.kind.value, "name": each.name} for each in found.attachments],
        "asked_at": moment(found.asked_at),
        "error": None if error is None else {"id": error.id, "summary": error.summary, "remedy": error.remedy},
        **answered_object(found),
    }
