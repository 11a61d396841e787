"""What the Metrics screen shows and says: its graphs, its table of latencies, its two lines of words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Final

from textual.content import Content

from spark_tui.core.key_words import key_of
from spark_tui.domain.engine.metric_quantiles import Latency, Quantile
from spark_tui.domain.engine.metric_series import MetricId
from spark_tui.domain.engine.metrics import EngineMetrics
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.graph_curve import Curve
from spark_tui.domain.graph_scale import seconds_text
from spark_tui.domain.graph_time import WINDOWS, clock_text, window_text
from spark_tui.domain.quantities import GIB, human_duration
from spark_tui.domain.reading import Missing, Reading, Stale, value_of
from spark_tui.domain.text import clean_line
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.graph_grid import Chart
from spark_tui.tui.widgets.graph_picture import Subject

Read = Callable[[MetricId], Curve]
"""What is known of a series; the name is the graph's to give."""

KV_FULL_PERCENT: Final = 90.0
"""Near its end the KV cache preempts requests."""
HOT_CELSIUS: Final = 90.0
"""Loaded GB10s were seen at up to 86 C; the board trips at 104.8 C."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph of the screen: its series, and the name of each where there are two."""

    title: str
    metrics: tuple[MetricId, ...]
    names: tuple[str, ...] = ("",)
    alarm: float | None = None
    domain: tuple[float, float | None] | None = None

    @property
    def subject(self) -> Subject:
        """What the graph is about."""
        first = self.metrics[0]
        return Subject(self.title, first.unit, self.domain or first.domain, first.decimals, self.alarm)


PANELS: Final = (
    Panel("decode", (MetricId.DECODE_RATE,)),
    Panel("TTFT", (MetricId.TTFT_P50, MetricId.TTFT_P95), ("p50", "p95")),
    Panel("requests", (MetricId.RUNNING, MetricId.WAITING), ("running", "waiting")),
    Panel("KV cache", (MetricId.KV_USAGE,), alarm=KV_FULL_PERCENT),
    Panel("prefill", (MetricId.PREFILL_RATE,)),
    Panel("inter-token", (MetricId.ITL_P50, MetricId.ITL_P95), ("p50", "p95")),
    Panel("memory", (MetricId.MEMORY_IN_USE, MetricId.MEMORY_ENGINES), ("used", "engines")),
    Panel("GPU", (MetricId.GPU_UTILIZATION,)),
    Panel("power", (MetricId.GPU_POWER,)),
    Panel("SM clock", (MetricId.GPU_CLOCK,)),
    Panel("temperature", (MetricId.GPU_TEMPERATURE,), alarm=HOT_CELSIUS, domain=(0.0, 100.0)),
    Panel("drafts accepted", (MetricId.ACCEPTANCE,)),
    Panel("accepted length", (MetricId.ACCEPTED_LENGTH,)),
    Panel("prefix hits", (MetricId.PREFIX_HITS,)),
    Panel("end to end", (MetricId.E2E_P50, MetricId.E2E_P95), ("p50", "p95")),
    Panel("queue", (MetricId.QUEUE_P50, MetricId.QUEUE_P95), ("p50", "p95")),
    Panel("finished/min", (MetricId.FINISHED_RATE, MetricId.FAILED_RATE), ("all", "failed")),
    Panel("preemptions", (MetricId.PREEMPTION_RATE,)),
    Panel("waiting", (MetricId.WAITING_CAPACITY, MetricId.WAITING_DEFERRED), ("capacity", "deferred")),
    Panel("energy", (MetricId.ENERGY,)),
)
"""In the order of a person's questions: is it fast, does it queue, does it fit, what does the box do, why."""


def panels_with(memory_total: int | None, floor_bytes: int) -> tuple[Panel, ...]:
    """The panels, the memory's drawn to the whole pool with an alarm where the guard's floor begins."""
    if memory_total is None:
        return PANELS
    total = memory_total / GIB
    alarm = total - floor_bytes / GIB
    return tuple(
        replace(panel, domain=(0.0, total), alarm=alarm) if panel.title == "memory" else panel for panel in PANELS
    )


def existing(panels: Sequence[Panel], read: Read) -> tuple[Panel, ...]:
    """The panels of which there is something to draw; a curve without any value is left out of its graph."""
    found = []
    for panel in panels:
        pairs = [pair for pair in zip(panel.metrics, panel.names, strict=True) if read(pair[0]).has_values]
        if pairs and pairs[0][0] is panel.metrics[0]:
            found.append(replace(panel, metrics=tuple(m for m, _ in pairs), names=tuple(n for _, n in pairs)))
    return tuple(found)


def chart(panel: Panel, read: Read) -> Chart:
    """A panel with what is known now."""
    pairs = zip(panel.names, panel.metrics, strict=True)
    return Chart(panel.subject, tuple(replace(read(metric), name=name) for name, metric in pairs))


# --- the line on top --------------------------------------------------------------------------------------


def heading(view: EngineView | None, window: float, page: int, pages: int) -> Content:
    """` qwen36  SERVING   1 m [5 m] 15 m 1 h 6 h   page 1/3`: the window in use is in brackets."""
    who = (
        Content.assemble(fmt.safe(f" {view.name}", "bold"), "  ", fmt.state(view))
        if view is not None
        else Content.styled(" no engine: the box alone", "$dim")
    )
    parts: list[Content | tuple[str, str]] = [who, ("   ", "")]
    for seconds in WINDOWS:
        here = seconds == window
        text = f"[{window_text(seconds)}]" if here else f" {window_text(seconds)} "
        parts.append((text, "bold $primary" if here else "$dim"))
    if pages > 1:
        parts.append((f"   page {page + 1}/{pages}", "$dim"))
    return Content.assemble(*parts)


def pace(paused_at: float | None, zone: tzinfo | None = None, *, simulated: bool = False) -> Content:
    """Whether what is seen is now; of a demo, that it and all before it is made up."""
    if paused_at is None:
        return Content.styled("simulated, live " if simulated else "live ", "$warning" if simulated else "$success")
    on = f"{key_of('pause_metrics')} goes on"
    return Content.styled(f"PAUSED at {clock_text(paused_at, zone)}, {on} ", "bold $warning")


# --- the line below ---------------------------------------------------------------------------------------


def cursor_words(cursor: float, now: float, gap: str, zone: tzinfo | None = None) -> Content:
    """The time that is read, and why there is nothing to read where nothing is."""
    line = Content.assemble(
        (f" at {clock_text(cursor, zone)}", "bold"), (f"   {fmt.ago(now - cursor)}   Esc goes back to now", "$dim")
    )
    return Content.assemble(line, "   ", fmt.safe(f"no values: {gap}", "$warning")) if gap else line


def gap_words(curves: Iterable[Curve], begin: float, zone: tzinfo | None = None) -> Content:
    """The latest gap and the latest new start in view, in words; else how to read values."""
    curves = tuple(curves)
    shown = {(gap.begin, gap.reason): gap for curve in curves for gap in curve.gaps if gap.end >= begin}
    anew = {time for curve in curves for time in curve.restarts if time >= begin}
    parts = []
    if shown:
        gap = max(shown.values(), key=lambda gap: gap.end)
        more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        lasted = human_duration(max(1.0, gap.end - gap.begin))
        parts.append(fmt.safe(f" no values at {clock_text(gap.begin, zone)} for {lasted}: {gap.reason}{more}", "$dim"))
    if anew:
        parts.append(Content.styled(f" R: the engine started anew at {clock_text(max(anew), zone)}", "$dim"))
    return Content.assemble(*parts) if parts else Content.styled(" Left and Right read the values at a time", "$dim")


def trouble_words(view: EngineView | None, current: Reading[EngineMetrics]) -> Content | None:
    """Why an engine's own graphs stand still or are not there; None when they move."""
    if view is None:
        return Content.styled(" No engine is selected: 3 chooses a preset, 1 shows what runs.", "$dim")
    if isinstance(current, Stale):
        return fmt.safe(f" No answer: {current.error}", "$warning")
    if not isinstance(current, Missing):
        return None
    if view.state is EngineState.STARTING:
        return fmt.safe(f" {view.name} is starting: its metrics come when it serves.", "$dim")
    return fmt.safe(f" {view.name} has no metrics: {current.reason}", "$warning")


def nothing(view: EngineView | None) -> Content:
    """Stands where the graphs would be while there are no values at all."""
    if view is None:
        do = f"{key_of('show_presets')} chooses a preset to launch; {key_of('show_home')} shows what runs."
    elif view.state is EngineState.STARTING:
        do = f"Wait until it serves; {key_of('show_logs')} shows its log."
    else:
        do = f"{key_of('show_logs')} shows its log; {key_of('restart')} on Home starts it again."
    return Content.assemble(("Nothing is measured yet.", "bold"), "\n\n", (do, "$dim"))


# --- the table --------------------------------------------------------------------------------------------

LATENCIES: Final = (("TTFT", "ttft"), ("inter-token", "itl"), ("end to end", "e2e"), ("queue", "queue"))
LABEL: Final = 13
_CELL, _MEAN, _COUNT = 15, 10, 9
TABLE_WIDTH: Final = LABEL + 3 * _CELL + _MEAN + _COUNT


def latency_table(title: str, reading: Reading[EngineMetrics], sign: str = "±") -> list[Content]:
    """One line of titles, one per kind of latency: `320 ±12 ms`, for the bucket tells how far off it can be."""
    head = f"{title:<{LABEL}}" + "".join(f"{name:>{_CELL}}" for name in ("p50", "p95", "p99"))
    lines = [Content.styled(head + f"{'mean':>{_MEAN}}{'count':>{_COUNT}}", "$dim")]
    metrics = value_of(reading)
    for label, field in LATENCIES:
        found: Reading[Latency] = Missing("") if metrics is None else getattr(metrics, field)
        if isinstance(found, Missing):
            lines.append(Content.assemble((f"{label:<{LABEL}}", "$dim"), fmt.safe(found.reason or "-", "$dim")))
        else:
            lines.append(_latency_line(label, found.value, sign))
    return lines


def _latency_line(label: str, latency: Latency, sign: str) -> Content:
    cells = "".join(f"{quantile_text(q, sign):>{_CELL}}" for q in (latency.p50, latency.p95, latency.p99))
    mean = "-" if latency.mean is None else seconds_text(latency.mean)
    return Content.assemble(
        (f"{label:<{LABEL}}", "$dim"), cells, (f"{mean:>{_MEAN}}{latency.count:>{_COUNT},}", "$dim")
    )


def quantile_text(quantile: Quantile, sign: str = "±") -> str:
    """`320 ±12 ms`, `1.83 s ±825 ms`; in the last, open bucket only its foot is known: `over 80 s`."""
    if math.isinf(quantile.high):
        return f"over {seconds_text(quantile.low)}"
    value, error = seconds_text(quantile.value), seconds_text(quantile.error)
    unit = f" {error.rpartition(' ')[2]}"
    return f"{value.removesuffix(unit) if value.endswith(unit) else value} {sign}{error}"


def totals(current: Reading[EngineMetrics], lifetime: Reading[EngineMetrics]) -> list[Content]:
    """What the server has counted: how requests ended, how far guesses are right, what the cache holds."""
    now, ever = value_of(current), value_of(lifetime)
    parts = []
    if ever is not None and (total := value_of(ever.finished_count)) is not None:
        reasons = ", ".join(f"{clean_line(reason)} {count:,.0f}" for reason, count in ever.finished if count)
        parts.append(("finished", f"{total:,.0f}" + (f" ({reasons})" if reasons else "")))
    drafting = value_of(now.drafting) if now is not None else None
    if drafting is not None and drafting.positions:
        parts.append(("drafts by position", " ".join(f"{share:.0%}" for share in drafting.positions)))
    if now is not None and (capacity := value_of(now.kv_capacity_tokens)) is not None:
        parts.append(("KV cache", f"{capacity:,} tokens"))
    if ever is not None and (preempted := value_of(ever.preemptions_ever)) is not None:
        parts.append(("preemptions", f"{preempted:,.0f}"))
    return [Content.assemble((f"{label} ", "$dim"), fmt.safe(value)) for label, value in parts]


def window_title(metrics: Reading[EngineMetrics]) -> str:
    """`last 60s`."""
    known = value_of(metrics)
    return "last look" if known is None or not known.seconds else f"last {human_duration(known.seconds)}"


def not_drawn(panels: Sequence[Panel], shown: Sequence[Panel], read: Read) -> list[tuple[Content, Content]]:
    """The graphs that are not there, and why: a label, and what is told of one reason."""
    titles = {panel.title for panel in shown}
    by_reason: dict[str, list[str]] = {}
    for panel in panels:
        if panel.title not in titles:
            reason = read(panel.metrics[0]).series.reason or "no value in the last six hours"
            by_reason.setdefault(reason, []).append(panel.title)
    return [
        (
            Content.styled("not drawn", "$dim"),
            Content.assemble(fmt.safe(", ".join(names)), fmt.safe(f": {reason}", "$dim")),
        )
        for reason, names in by_reason.items()
    ]


def notes(reading: Reading[EngineMetrics]) -> list[tuple[Content, Content]]:
    """What the figures are not."""
    metrics = value_of(reading)
    return [(Content.styled("note", "$dim"), fmt.safe(note, "$dim")) for note in metrics.notes] if metrics else []


# --- copying ----------------------------------------------------------------------------------------------


def copied(name: str, at: float, panels: Sequence[Panel], read: Read) -> str:
    """Values at a time as lines of `name<TAB>value`, named as `--json` names them; a first line says of what.

    What was not known then is left out.
    """
    lines = [f"# {clean_line(name) or 'host'} {datetime.fromtimestamp(at).astimezone().isoformat(timespec='seconds')}"]
    for metric in dict.fromkeys(metric for panel in panels for metric in panel.metrics):
        value = read(metric).at(at)
        if value is not None and math.isfinite(value):
            lines.append(f"{metric.value}\t{value:.6g}")
    return "\n".join(lines)
