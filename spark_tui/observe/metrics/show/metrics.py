"""How fast an engine serves, for both front ends: graphs, latencies, totals."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.engine.metrics_page import Latency, Quantile
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import NOT_READ_YET, Finding, Missing, Ok, Reading, Stale, reason_of, value_of
from spark_tui.base.gateway import PEER_MARK, ClientCosts
from spark_tui.base.graph import Curve, Panel, TimeAxis, seconds_text, totals, value_text
from spark_tui.base.host.series import MetricId, Sample
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.launches import ClusterRecord
from spark_tui.base.page import (
    TONES,
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
    read,
    rounded,
)
from spark_tui.base.protocol import NodeLook, NodeVitals
from spark_tui.base.quantities import GIB, human_count, human_duration, short_tokens
from spark_tui.base.text import clean_line
from spark_tui.observe.engines.show.engines import gpu_object
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.agents import agent_costs, clients_of, read_again, repeated_prompts
from spark_tui.observe.metrics.model.serving import ONE_LOOK, Drafting, EngineMetrics, percent
from spark_tui.observe.metrics.model.slow import limits, request_time

Read = Callable[[MetricId], Curve]
"""What is known of a series; the name is the graph's to give."""

LATENCIES: Final = (("TTFT", "ttft"), ("inter-token", "itl"), ("end to end", "e2e"), ("queue", "queue"))
KV_FULL_PERCENT: Final = 90.0
"""Near its end the KV cache preempts requests."""
BY_POSITION: Final = "drafts by position"
HOT_CELSIUS: Final = 90.0
"""Loaded GB10s were seen at up to 86 C; the board trips at 104.8 C."""


# --- graphs -----------------------------------------------------------------------------------------------


PANELS: Final = (
    Panel("decode", (MetricId.DECODE_RATE,)),
    Panel("TTFT", (MetricId.TTFT_P50, MetricId.TTFT_P95), ("p50", "p95")),
    Panel("requests", (MetricId.RUNNING, MetricId.WAITING), ("running", "waiting")),
    Panel("KV cache", (MetricId.KV_USAGE,), alarm=KV_FULL_PERCENT, domain=(0.0, None)),
    Panel("prefill", (MetricId.PREFILL_RATE,)),
    Panel("inter-token", (MetricId.ITL_P50, MetricId.ITL_P95), ("p50", "p95")),
    Panel("memory", (MetricId.MEMORY_IN_USE, MetricId.MEMORY_ENGINES), ("used", "engines")),
    Panel("GPU", (MetricId.GPU_UTILIZATION,)),
    Panel("power", (MetricId.GPU_POWER,)),
    Panel("SM clock", (MetricId.GPU_CLOCK,)),
    Panel("temperature", (MetricId.GPU_TEMPERATURE,), alarm=HOT_CELSIUS, domain=(0.0, 100.0)),
    Panel("acceptance rate", (MetricId.ACCEPTANCE,)),
    Panel("accepted length", (MetricId.ACCEPTED_LENGTH,)),
    Panel("prefix hits", (MetricId.PREFIX_HITS,)),
    Panel("end to end", (MetricId.E2E_P50, MetricId.E2E_P95), ("p50", "p95")),
    Panel("queue", (MetricId.QUEUE_P50, MetricId.QUEUE_P95), ("p50", "p95")),
    Panel("finished/min", (MetricId.FINISHED_RATE, MetricId.FAILED_RATE), ("all", "failed")),
    Panel("preemptions", (MetricId.PREEMPTION_RATE,)),
    Panel("waiting", (MetricId.WAITING_CAPACITY, MetricId.WAITING_DEFERRED), ("capacity", "deferred")),
    Panel("energy", (MetricId.ENERGY,)),
    Panel("CPU", (MetricId.CPU_UTILIZATION,)),
    Panel("disk", (MetricId.DISK_RATE,)),
    Panel("network", (MetricId.NETWORK_RATE,)),
)
"""In the order of a person's questions: is it fast, does it queue, does it fit, what does the machine do, why."""

HOME_PANELS: Final = (
    Panel("decode", (MetricId.DECODE_RATE,)),
    Panel("TTFT", (MetricId.TTFT_P50, MetricId.TTFT_P95), ("", "p95")),
    Panel("prefill", (MetricId.PREFILL_RATE,)),
    Panel("drafts", (MetricId.ACCEPTANCE,)),
    Panel("requests", (MetricId.RUNNING, MetricId.WAITING), ("", "queued")),
    Panel("KV cache", (MetricId.KV_USAGE,), alarm=KV_FULL_PERCENT, domain=(0.0, None)),
    Panel("prefix hits", (MetricId.PREFIX_HITS,)),
    Panel("inter-token", (MetricId.ITL_P50, MetricId.ITL_P95), ("", "p95")),
)
"""Home's small graphs of an engine that serves: where there is room for few of them, the first ones."""
HOST_TITLES: Final = ("GPU", "memory", "power", "temperature", "SM clock", "CPU", "disk", "network")
"""Home's graphs of the machine, in the order in which there is room for them."""


def panels_with(memory_total: int | None, floor_bytes: int) -> tuple[Panel, ...]:
    """The panels; memory is drawn to all of it, with an alarm at the guard's floor."""
    if memory_total is None:
        return PANELS
    total = memory_total / GIB
    alarm = total - floor_bytes / GIB
    return tuple(
        replace(panel, domain=(0.0, total), alarm=alarm) if panel.title == "memory" else panel for panel in PANELS
    )


def existing(panels: Sequence[Panel], read_series: Read) -> tuple[Panel, ...]:
    """The panels that have values; a curve without any is left out of its graph."""
    found = []
    for panel in panels:
        pairs = [pair for pair in zip(panel.metrics, panel.names, strict=True) if read_series(pair[0]).has_values]
        if pairs and pairs[0][0] is panel.metrics[0]:
            found.append(replace(panel, metrics=tuple(m for m, _ in pairs), names=tuple(n for _, n in pairs)))
    return tuple(found)


def spark_table(panels: Sequence[Panel], read_series: Read, line: Callable[[Curve, int], str], width: int) -> Table:
    """Panels without room for a graph: the values, and the first series as a `line` of the cells that are left."""
    texts = []
    for panel in panels:
        last = [(metric, read_series(metric).last) for metric in panel.metrics]
        values = ["-" if each is None else value_text(each, metric.unit, metric.decimals) for metric, each in last]
        texts.append("  ".join(f"{name} {value}".strip() for name, value in zip(panel.names, values, strict=True)))
    used = sum(max(map(len, column), default=0) + 2 for column in ([each.title for each in panels], texts))
    rows = []
    for panel, text in zip(panels, texts, strict=True):
        drawn = line(read_series(panel.metrics[0]), max(1, width - used))
        rows.append(cells(Cell(panel.title, Tone.QUIET), Cell(text, Tone.STRONG), Cell(drawn, Tone.GOOD)))
    return Table((Column(""), Column(""), Column("", least=1)), tuple(rows))


def not_drawn(panels: Sequence[Panel], shown: Sequence[Panel], read_series: Read) -> tuple[Row, ...]:
    """The graphs without values, by reason."""
    titles = {panel.title for panel in shown}
    by_reason: dict[str, list[str]] = {}
    for panel in panels:
        if panel.title not in titles:
            reason = read_series(panel.metrics[0]).series.reason or "no value in the last six hours"
            by_reason.setdefault(reason, []).append(panel.title)
    return tuple(Row(f"{', '.join(names)}: {reason}", "not drawn") for reason, names in by_reason.items())


def copied(name: str, at: float, panels: Sequence[Panel], read_series: Read) -> str:
    """Values at a time as lines of `name<TAB>value`, named as `--json` names them, under a line that says of what.

    Unknown values are left out.
    """
    lines = [f"# {clean_line(name) or 'host'} {datetime.fromtimestamp(at).astimezone().isoformat(timespec='seconds')}"]
    for metric in dict.fromkeys(metric for panel in panels for metric in panel.metrics):
        value = read_series(metric).at(at)
        if value is not None and math.isfinite(value):
            lines.append(f"{metric.value}\t{value:.6g}")
    return "\n".join(lines)


def trouble(
    view: EngineView | None,
    current: Reading[EngineMetrics],
    engines: Reading[tuple[EngineView, ...]],
    launch: str = "",
) -> Row | None:
    """Why an engine has no values now; None when it has. `launch` is what has no engine yet: `qwen fetching 16%`."""
    if view is None and isinstance(engines, Missing) and engines != NOT_READ_YET:
        return Row(f"Cannot list engines. {key_of('show_home')} Home: cause and fix", tone=Tone.WARNING)
    if view is None:
        return Row(f"{launch}: metrics follow once it serves." if launch else "No engine selected.", tone=Tone.QUIET)
    if isinstance(current, Stale):
        return Row(f"No response: {current.error}", tone=Tone.WARNING)
    if not isinstance(current, Missing):
        return None
    if view.state is EngineState.STARTING:
        return Row(f"{view.name} is starting: metrics follow once it serves.", tone=Tone.QUIET)
    return Row(f"{view.name} has no metrics: {current.reason}", tone=Tone.WARNING)


# --- figures ----------------------------------------------------------------------------------------------


def quantile_text(quantile: Quantile, sign: str = "±") -> str:
    """`320 ±12 ms`, `1.83 s ±825 ms`: the estimate and how far off it can be; in the last, open bucket `over 80 s`."""
    if math.isinf(quantile.high):
        return f"over {seconds_text(quantile.low)}"
    value, error = seconds_text(quantile.value), seconds_text(quantile.error)
    unit = f" {error.rpartition(' ')[2]}"
    return f"{value.removesuffix(unit) if value.endswith(unit) else value} {sign}{error}"


def latency_table(
    title: str, reading: Reading[EngineMetrics], sign: str = "±", *, since: Reading[EngineMetrics] | None = None
) -> Table:
    """A row for each kind of latency: its quantiles, each with its error, the mean and the count. What is unknown over
    the window is shown `since` the start, where that is given, and says so."""
    metrics, ever = value_of(reading), value_of(since) if since is not None else None
    rows = []
    for name, field in LATENCIES:
        label = name
        found: Reading[Latency] = Missing("") if metrics is None else getattr(metrics, field)
        if value_of(found) is None and ever is not None and value_of(getattr(ever, field)) is not None:
            found, label = getattr(ever, field), f"{label} *"
        latency = value_of(found)
        if latency is None:
            rows.append(cells(Cell(label, Tone.QUIET), "-", "", "", "", "", Cell(reason_of(found), Tone.QUIET)))
            continue
        quantiles = (quantile_text(each, sign) for each in (latency.p50, latency.p95, latency.p99))
        mean = Cell("-" if latency.mean is None else seconds_text(latency.mean), Tone.QUIET)
        rows.append(cells(Cell(label, Tone.QUIET), *quantiles, mean, Cell(f"{latency.count:,}", Tone.QUIET), ""))
    title += " * since start" if any(row[0].text.endswith("*") for row in rows) else ""
    names = ("p50", "p95", "p99", "mean", "count")
    return Table((Column(title), *(Column(name, right=True) for name in names), Column("", least=12)), tuple(rows))


class Figure(Struct, frozen=True):
    """A value in large digits: `number` in `unit`, and what else is known of it: a second series, or its mean."""

    title: str
    number: str
    unit: str
    note: str


FIGURES: Final = (
    "decode", "TTFT", "requests", "KV cache", "prefill", "GPU", "power", "CPU", "temperature", "prefix hits",
    "acceptance rate",
)  # fmt: skip


def figure_text(metric: MetricId, value: float | None) -> str:
    """`41.8 tok/s`; a dash for what is unknown."""
    return "-" if value is None or not math.isfinite(value) else value_text(value, metric.unit, metric.decimals)


def figures(panels: Sequence[Panel], read_series: Read, axis: TimeAxis, cursor: float | None = None) -> list[Figure]:
    """The values that a person looks for first, now or at the cursor: each with its second series, else with its mean
    in what the graphs have settled."""
    by_title, found = {panel.title: panel for panel in panels}, []
    for panel in filter(None, map(by_title.get, FIGURES)):
        metric, *others = panel.metrics
        curves = [read_series(each) for each in panel.metrics]
        values = [curve.last if cursor is None else curve.at(cursor) for curve in curves]
        number, _, unit = figure_text(metric, values[0]).partition(" ")
        known = totals(curves[0].buckets(axis)[: -axis.live * axis.parts])
        note = f"avg {figure_text(metric, known.mean)}" if known is not None else ""
        if others:
            note = f"{panel.names[1]} {figure_text(others[0], values[1])}"
        note = note.removesuffix(f" {unit}") if unit else note
        found.append(Figure(panel.title, number, f"{unit} {panel.names[0]}".strip(), note))
    return found


def window_title(metrics: Reading[EngineMetrics]) -> str:
    """`last 60s`."""
    known = value_of(metrics)
    return "last look" if known is None or not known.seconds else f"last {human_duration(known.seconds)}"


def counted(current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> list[tuple[str, str]]:
    """What the server has counted, as label and value."""
    now, ever = value_of(current), value_of(lifetime)
    pairs = []
    if ever is not None and (total := value_of(ever.finished_count)) is not None:
        reasons = ", ".join(f"{clean_line(reason)} {count:,.0f}" for reason, count in ever.finished if count)
        pairs.append(("finished", f"{total:,.0f}" + (f" ({reasons})" if reasons else "")))
    drafting = value_of(now.drafting) if now is not None else None
    if drafting is not None and drafting.positions:
        pairs.append((BY_POSITION, " ".join(f"{share:.0%}" for share in drafting.positions)))
    if now is not None and (capacity := value_of(now.kv_capacity_tokens)) is not None:
        pairs.append(("KV cache", f"{capacity:,} tokens"))
    if ever is not None and (preempted := value_of(ever.preemptions_ever)) is not None:
        pairs.append(("preemptions", f"{preempted:,.0f}"))
    return pairs


def token_counts(lifetime: Reading[EngineMetrics]) -> list[tuple[str, str]]:
    """Tokens since the server's start, as label and value."""
    ever = value_of(lifetime)
    if ever is None:
        return []
    counts = (("prompts", value_of(ever.prompt_tokens)), ("answers", value_of(ever.generated_tokens)))
    return [(label, short_tokens(int(count))) for label, count in counts if count is not None]


SHARE_CELLS: Final = 10
"""Of a bar that stands for a whole request, where the page is narrow."""
SHARE_BESIDE: Final = 26
"""Cells left of that bar."""


def request_page(
    current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics], bar: str = "#", bar_cells: int = SHARE_CELLS
) -> Page:
    """Where the mean request's time goes: over the window, else since the start. Empty where that is unknown."""
    metrics, ever = value_of(current), value_of(lifetime)
    now = request_time(metrics) if metrics is not None else None
    time = now or (request_time(ever) if ever is not None else None)
    if time is None or time.whole <= 0:
        return ()
    rows = []
    parts = (("queue", time.queue), ("prefill", time.prefill), ("decode", time.decode), ("in all", time.whole))
    for label, seconds in parts:
        share = time.share(seconds)
        drawn = Cell(bar * round(share * bar_cells), Tone.QUIET)
        rows.append(cells(Cell(label, Tone.QUIET), seconds_text(seconds), f"{share:.0%}", drawn))
    columns = (Column(""), Column("", right=True), Column("", right=True), Column("", least=1))
    title = f"Mean request, {window_title(current) if now is not None else 'since start'}"
    return (Section(title, table=Table(columns, tuple(rows))),)


def slow_page(
    current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics], gpu: Reading[GpuReading], bar: str = "#"
) -> Page:
    """What holds the engine back: every limit with its remedy, then where a request's time goes. Empty without
    metrics."""
    metrics, ever = value_of(current), value_of(lifetime)
    if metrics is None:
        return ()
    repeated = repeated_prompts(agent_costs(ever), (), ever, caching=None) if ever is not None else None
    rows = _with_remedies((*limits(metrics, gpu, ever), *((repeated,) if repeated else ())))
    slow = Section("What is slow", tuple(rows))
    return (slow, *request_page(current, lifetime, bar), Section("Since start", _since_start(metrics, ever)))


def _with_remedies(findings: Iterable[Finding]) -> list[Row]:
    """A row for each, and below it one for its remedy, if it has one."""
    rows = []
    for each in findings:
        rows.append(Row(each.summary, tone=TONES[each.severity]))
        rows += [Row(each.remedy, tone=Tone.QUIET)] if each.remedy else []
    return rows


def _since_start(now: EngineMetrics, ever: EngineMetrics | None) -> tuple[Row, ...]:
    """Means and sums of a server's whole life, but for what `counted` and `token_counts` have."""
    shapes = (
        ("decode", "decode_rate", "{:,.1f} tok/s mean"),
        ("prefill", "prefill_rate", "{:,.0f} tok/s mean"),
        ("prefix hits", "prefix_hits", "{:.1%}"),
        ("energy", "energy", "{:.2f} J per token"),
    )
    pairs: list[tuple[str, str]] = []
    for label, field, shape in shapes if ever is not None else ():
        value = value_of(getattr(ever, field))
        pairs += [] if value is None else [(label, shape.format(value))]
    return labelled((*pairs, ("drafts", _speculation(now, ever))))


def slow_rows(
    current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics], gpu: Reading[GpuReading], *, brief: bool
) -> tuple[Row, ...]:
    """What holds the engine back, without a table; `brief`: the weightiest limit alone. Empty without metrics."""
    metrics, ever = value_of(current), value_of(lifetime)
    if metrics is None:
        return ()
    first, *more = limits(metrics, gpu, ever)
    if brief:
        return (Row(first.summary, "speed", TONES[first.severity]),)
    rows = _with_remedies((first, *more))
    time = request_time(metrics) or (request_time(ever) if ever is not None else None)
    if time is not None and time.whole > 0:
        parts = (("queue", time.queue), ("prefill", time.prefill), ("decode", time.decode))
        shares = ", ".join(f"{name} {time.share(seconds):.0%}" for name, seconds in parts)
        rows.append(Row(f"{seconds_text(time.whole)}: {shares}", "request"))
    return (*rows, *figure_rows(metrics, ever))


class MetricsSnapshot(Struct, frozen=True):
    """An engine's metrics over one window (`now`), since its start (`ever`) and by rank (`parts`)."""

    view: EngineView
    now: EngineMetrics
    ever: EngineMetrics | None
    parts: dict[str, EngineMetrics]
    gpu: Reading[GpuReading]
    at: float


def metrics_page(look: MetricsSnapshot) -> Page:
    """Speed, queue, cache and GPU; what is slow; then latencies over the window and since the start."""
    now, ever, gpu, energy = look.now, look.ever, value_of(look.gpu), value_of(look.now.energy)
    engine = "  ".join(filter(None, (look.view.name, look.view.model, look.view.version)))
    spent = () if energy is None else (f"{energy:.2f} J per token",)
    silicon = f"n/a: {reason_of(look.gpu)}" if gpu is None else "  ".join((*gpu.figures, *spent)) or "n/a"
    rows = (*labelled((("engine", engine),)), *figure_rows(now, ever), *labelled((("GPU", silicon),)))
    found = limits(now, look.gpu, ever)
    slow = Section("What is slow", tuple(_with_remedies(found)))
    tables = [Section(table=latency_table(window_title(Ok(now, look.at)), Ok(now, look.at)))]
    if ever is not None:
        tables.append(Section(table=latency_table("since start", Ok(ever, look.at))))
    return (Section(rows=rows), slow, *tables)


def figure_rows(now: EngineMetrics, ever: EngineMetrics | None) -> tuple[Row, ...]:
    """Speed, requests, cache and speculation now, with means since the start."""

    def text(reading: Reading[Any], shape: str) -> str:
        value = value_of(reading)
        return f"n/a: {reason_of(reading)}" if value is None else shape.format(value)

    def with_mean(name: str, shape: str, unit: str = "") -> str:
        mean = value_of(getattr(ever, name)) if ever is not None else None
        if getattr(now, name) == ONE_LOOK and mean is not None:
            return f"{shape.format(mean)}{unit} since start"
        found = text(getattr(now, name), f"{shape}{unit}")
        return found if mean is None else f"{found} (mean since start {shape.format(mean)})"

    capacity = value_of(now.kv_capacity_tokens)
    kv = text(now.kv_usage, "{:.1%}") + (f" of {human_count(capacity)} tokens" if capacity else "")
    pairs = (
        ("decode", with_mean("decode_rate", "{:,.1f}", " tok/s")),
        ("prefill", with_mean("prefill_rate", "{:,.0f}", " tok/s")),
        ("requests", _requests(now, ever, text)),
        ("KV cache", kv),
        ("prefix hits", with_mean("prefix_hits", "{:.1%}")),
        ("preemptions", text(now.preemptions_ever, "{:,.0f} since start")),
        ("speculation", _speculation(now, ever)),
    )
    return labelled(pairs)


def _requests(now: EngineMetrics, ever: EngineMetrics | None, text: Callable[[Reading[Any], str], str]) -> str:
    waits = ", ".join(f"{count:.0f} {reason}" for reason, count in now.waiting_by_reason if count)
    found = f"{text(now.running, '{:.0f} running')}, {text(now.waiting, '{:.0f} waiting')}"
    found += f" ({waits})" if waits else ""
    total = value_of(ever.finished_count) if ever else None
    if total is None or ever is None:
        return found
    reasons = ", ".join(f"{count:,.0f} {reason}" for reason, count in ever.finished if count)
    return f"{found}; {total:,.0f} finished since start" + (f" ({reasons})" if reasons else "")


def _speculation(now: EngineMetrics, ever: EngineMetrics | None) -> str:
    drafting, since = value_of(now.drafting), ""
    if drafting is None and ever is not None:
        drafting, since = value_of(ever.drafting), " since start"
    if drafting is None:
        return f"n/a: {reason_of(now.drafting)}"
    parts = [] if drafting.acceptance is None else [f"{drafting.acceptance:.0%} accepted"]
    parts += [] if drafting.length is None else [f"{drafting.length:.2f} tokens per step"]
    parts += ["by position " + " ".join(f"{share:.0%}" for share in drafting.positions)] if drafting.positions else []
    return ", ".join(parts) + since


# --- as data ----------------------------------------------------------------------------------------------


def look_object(look: MetricsSnapshot) -> Object:
    return {
        "id": look.view.name,
        "at": moment(look.at),
        **metrics_object(look.now),
        "since_start": metrics_object(look.ever) if look.ever else None,
        "engines": {rank: metrics_object(part) for rank, part in look.parts.items()},
        **read("gpu", look.gpu, gpu_object),
        "limits": [
            {"id": each.id, "severity": each.severity.value, "summary": each.summary, "remedy": each.remedy}
            for each in limits(look.now, look.gpu, look.ever)
        ],
    }


def metrics_object(metrics: EngineMetrics) -> Object:
    """Metrics over a window. A quantile has the bounds of its bucket: the true value is between them."""
    silent = "start time not reported by the server"
    return {
        **maybe("window_seconds", rounded(metrics.seconds, 4), silent),
        **maybe("rate_seconds", rounded(metrics.rate_seconds, 4), silent),
        **read("decode_tokens_per_second", metrics.decode_rate, _number),
        **read("prefill_tokens_per_second", metrics.prefill_rate, _number),
        **read("running_requests", metrics.running, int),
        **read("waiting_requests", metrics.waiting, int),
        "waiting_by_reason": {reason: int(count) for reason, count in metrics.waiting_by_reason},
        **read("finished_requests", metrics.finished_count, int),
        **read("failed_requests", metrics.failed_count, int),
        "finished_by_reason": {reason: int(count) for reason, count in metrics.finished},
        **read("ttft", metrics.ttft, _latency_object),
        **read("itl", metrics.itl, _latency_object),
        **read("e2e", metrics.e2e, _latency_object),
        **read("queue", metrics.queue, _latency_object),
        **read("kv_usage_percent", percent(metrics.kv_usage), _number),
        **read("kv_capacity_tokens", metrics.kv_capacity_tokens, int),
        **read("prefix_hit_percent", percent(metrics.prefix_hits), _number),
        **read("preemptions", metrics.preemptions, int),
        **read("speculation", metrics.drafting, _drafting_object),
        **read("energy_joules_per_token", metrics.energy, _number),
        **read("prompt_tokens_since_start", metrics.prompt_tokens, int),
        **read("generated_tokens_since_start", metrics.generated_tokens, int),
        "notes": list(metrics.notes),
    }


def _number(value: float) -> float:
    return round(value, 4)


def _latency_object(latency: Latency) -> Object:
    found: Object = {"count": latency.count}
    for name in ("p50", "p95", "p99"):
        quantile: Quantile = getattr(latency, name)
        high = None if math.isinf(quantile.high) else round(quantile.high, 6)
        found[f"{name}_seconds"] = round(quantile.value, 6)
        found[f"{name}_low_seconds"] = round(quantile.low, 6)
        found |= maybe(f"{name}_high_seconds", high, "it is in the last bucket, which has no end")
    return found | maybe("mean_seconds", rounded(latency.mean, 4), "the server keeps no sum")


def _drafting_object(drafting: Drafting) -> Object:
    silent = "not reported by the server"
    share = None if drafting.acceptance is None else _number(drafting.acceptance * 100)
    return {
        **maybe("acceptance_percent", share, silent),
        **maybe("accepted_length_tokens", rounded(drafting.length, 4), silent),
        "acceptance_by_position_percent": [_number(each * 100) for each in drafting.positions],
        **maybe("drafted_tokens", None if drafting.drafted is None else int(drafting.drafted), silent),
    }


def sample_object(sample: Sample, values: Mapping[MetricId, float]) -> Object:
    """One line of `--watch`: the series that have a value now."""
    return {
        "id": sample.engine,
        "at": moment(sample.at),
        "restarted": sample.restarted,
        **{metric.value: _number(value) for metric, value in values.items()},
    }


# --- the nodes of a launch on several machines ---------------------------------------------------------


Looks: TypeAlias = Mapping[str, NodeLook | SparkError]
"""What each node answered last, by its ssh host; a node that was not asked yet is absent."""
_VITALS: Final = (
    MetricId.GPU_UTILIZATION, MetricId.GPU_POWER, MetricId.GPU_TEMPERATURE, MetricId.MEMORY_IN_USE,
    MetricId.MEMORY_AVAILABLE, MetricId.LINK_RATE,
)  # fmt: skip


def vitals_section(record: ClusterRecord, looks: Looks) -> Section:
    """What each node of a launch does now; a dash for what is unknown, and why a node does not answer."""
    shown = [each for each in _VITALS if each is not MetricId.MEMORY_AVAILABLE]
    names = ("temp" if each is MetricId.GPU_TEMPERATURE else each.label for each in shown)
    columns = (Column("Nodes now"), *(Column(name, right=True) for name in names))
    rows, silent = [], []
    for rank in record.ranks:
        look = looks.get(rank.node.host)
        known = node_values(look) if isinstance(look, NodeLook) else {}
        texts = (
            value_text(known[each], each.unit, each.decimals) if each in known else Cell("-", Tone.QUIET)
            for each in shown
        )
        rows.append(cells(Cell(rank.node.name, Tone.STRONG), *texts))
        if isinstance(look, SparkError):
            silent.append(Row(look.summary, "problem", Tone.BAD))
    return Section(rows=tuple(silent), table=Table(columns, tuple(rows)))


def vitals_objects(record: ClusterRecord, looks: Looks) -> tuple[Object, ...]:
    """What each node does now; null with a reason for what is unknown."""
    found: list[Object] = []
    for number, rank in enumerate(record.ranks):
        look = looks.get(rank.node.host)
        known = node_values(look) if isinstance(look, NodeLook) else {}
        why = look.summary if isinstance(look, SparkError) else "not reported by the node"
        values = (maybe(each.value, rounded(known.get(each), 4), why) for each in _VITALS)
        found.append(dict(ChainMap({"id": rank.node.name, "rank": number}, *values)))
    return tuple(found)


def node_values(look: NodeLook) -> dict[MetricId, float]:
    """The series of one node; those that are unknown are left out."""
    found, used = look.vitals or NodeVitals(), None
    if look.available is not None and look.total is not None:
        used = (look.total - look.available) / GIB
    traffic = None if found.received is None or found.sent is None else (found.received + found.sent) / 1e6
    values = {
        MetricId.GPU_UTILIZATION: found.gpu,
        MetricId.GPU_POWER: found.power,
        MetricId.GPU_TEMPERATURE: found.temperature,
        MetricId.MEMORY_AVAILABLE: None if look.available is None else look.available / GIB,
        MetricId.MEMORY_IN_USE: used,
        MetricId.LINK_RATE: traffic,
    }
    return {metric: value for metric, value in values.items() if value is not None}


# --- what agents cost an engine ------------------------------------------------------------------------


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
        Column("client", least=8),
        *([Column("engine", least=6)] if engines else []),
        Column("asked", right=True),
        Column("prompt", right=True, keep=2),
        Column("cached", right=True, keep=3),
        Column("first token", right=True, keep=1),
    )
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
    notes = _with_remedies(filter(None, (read_again(each, caching=caching) for each in clients)))
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
