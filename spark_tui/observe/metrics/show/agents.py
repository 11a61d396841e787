"""What agents cost an engine: its means, its clients by the gateway and by the access log, and why prompts are read
again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.base.gateway import PEER_MARK, ClientCosts
from spark_tui.base.graph import seconds_text
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe, rounded
from spark_tui.base.quantities import short_tokens
from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.agents import agent_costs, clients_of, read_again, repeated_prompts
from spark_tui.observe.metrics.model.serving import EngineMetrics

_UNREPORTED: Final = "the engine does not report it"
_REPORT_IT: Final = (
    "-: not reported. vLLM: set enable_prompt_tokens_details and enable_force_include_usage. "
    "SGLang: set enable_cache_report."
)


def agents_page(
    view: EngineView, metrics: EngineMetrics, lines: Sequence[str], clients: Sequence[ClientCosts] = ()
) -> tuple[Page, Object]:
    """What agents' prompts cost since the start, as a page and as JSON; `lines` are the end of the engine's log,
    `clients` those that a gateway saw."""
    costs, logged = agent_costs(metrics), clients_of(lines)
    caching, seen = view.timeline.facts.prefix_caching, clients_at(clients, view.name)
    cause = repeated_prompts(costs, logged, metrics, caching=caching)
    figures = (
        ("turns", f"{costs.turns:,.0f} finished"),
        ("prompt", None if costs.prompt_tokens is None else f"{costs.prompt_tokens:,.0f} tokens per turn"),
        ("prefix hits", None if costs.hits is None else f"{costs.hits:.0%}"),
        ("read again", None if costs.prefilled_tokens is None else f"{costs.prefilled_tokens:,.0f} tokens per turn"),
        ("prefill", None if costs.seconds is None else f"{seconds_text(costs.seconds)} per turn"),
    )
    rows = [Row(text or "not reported", label) for label, text in figures]
    rows += [Row(cause.summary, "cause", Tone.WARNING), Row(cause.remedy, "fix")] if cause else []
    columns = (Column("ADDRESS"), Column("API"), Column("REQUESTS", right=True))
    shown = tuple(cells(clean_line(each.host), each.path, str(each.requests)) for each in logged)
    by_address = Section(table=Table(columns, shown)) if shown else Section(rows=(Row("no access log", "clients"),))
    shape = {
        "id": view.name,
        "turns": costs.turns,
        **maybe("prompt_tokens_per_turn", rounded(costs.prompt_tokens, 1), _UNREPORTED),
        **maybe("prefix_hit_percent", None if costs.hits is None else round(costs.hits * 100, 1), _UNREPORTED),
        **maybe("prefilled_tokens_per_turn", rounded(costs.prefilled_tokens, 1), _UNREPORTED),
        **maybe("prefill_seconds_per_turn", rounded(costs.seconds), _UNREPORTED),
        **maybe("cause", cause.summary if cause else None, "no long prompt repeats without hits"),
        **maybe("remedy", cause.remedy if cause else None, "nothing to do"),
        "clients": [{"host": each.host, "path": each.path, "requests": each.requests} for each in logged],
        "gateway_clients": [client_object(each, caching=caching) for each in seen],
    }
    return (Section(rows=tuple(rows)), *clients_page(seen, caching=caching), by_address), shape


def clients_at(clients: Sequence[ClientCosts], engine: str) -> tuple[ClientCosts, ...]:
    return tuple(each for each in clients if each.engine == engine)


def clients_page(clients: Sequence[ClientCosts], *, engines: bool = False, caching: bool | None = None) -> Page:
    """Clients as a gateway saw them, and why their prompts are read again; with the engine that each asked. Empty
    without clients. `caching`: the engine's prefix caching, where it is one engine's."""
    if not clients:
        return ()
    columns = (
        Column("client", least=8), *([Column("engine", least=6)] if engines else []), Column("asked", right=True),
        Column("prompt", right=True, keep=2), Column("cached", right=True, keep=3),
        Column("first token", right=True, keep=1),
    )  # fmt: skip
    rows = tuple(
        cells(
            Cell(each.client, Tone.STRONG),
            *([Cell(each.engine.removeprefix(PEER_MARK), Tone.QUIET)] if engines else []),
            str(each.requests),
            "-" if each.prompt_mean is None else short_tokens(round(each.prompt_mean)),
            "-" if each.hits is None else f"{each.hits:.0%}",
            "-" if each.first_mean is None else seconds_text(each.first_mean),
        )
        for each in clients
    )
    notes: list[Row] = []
    for found in filter(None, (read_again(each, caching=caching) for each in clients)):
        notes += [Row(found.summary, tone=TONES[found.severity]), Row(found.remedy, tone=Tone.QUIET)]
    if any(each.hits is None for each in clients):
        notes.append(Row(_REPORT_IT, tone=Tone.QUIET))
    return (
        Section("Clients of the gateway", table=Table(columns, rows)),
        *([Section(rows=tuple(notes))] if notes else []),
    )


def client_object(each: ClientCosts, *, caching: bool | None = None) -> Object:
    found = read_again(each, caching=caching)
    return {
        "id": each.client,
        "engine": each.engine,
        "path": each.path,
        "requests": each.requests,
        **maybe("prompt_tokens", each.prompt_tokens if each.counted_prompts else None, _UNREPORTED),
        **maybe("prompt_tokens_per_turn", rounded(each.prompt_mean, 1), _UNREPORTED),
        **maybe("cached_prompt_tokens", each.cached_tokens if each.cache_known_tokens else None, _UNREPORTED),
        **maybe("prefix_hit_percent", None if each.hits is None else round(each.hits * 100, 1), _UNREPORTED),
        **maybe("first_token_seconds", rounded(each.first_mean), "no stream was answered"),
        "repeated_prompts": each.repeats,
        "read_again": {"changed": each.changed, "crowded": each.crowded, "evicted": each.evicted},
        **maybe("cause", found.summary if found else None, "the most repeated prompts are not read again"),
        **maybe("remedy", found.remedy if found else None, "nothing to do"),
    }
