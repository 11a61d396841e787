"""What the Bench screen says of runs: rows of the list, what happens just now, the tables of levels, the curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.content import Content

from spark_tui.core.actions import key_of
from spark_tui.core.bench import BenchProgress, BenchStep
from spark_tui.core.bench_ab import Side, starts_of
from spark_tui.domain.bench.conditions import quantization_words
from spark_tui.domain.bench.export import knee_words, milliseconds, rate
from spark_tui.domain.bench.plan import BenchPlan, Segment
from spark_tui.domain.bench.run import KNEE_EFFICIENCY, BenchRun, Ending, Level, Result, Scaling, Status, efficiency
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import human_count, human_duration
from spark_tui.domain.text import clean_line
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.bench_curve import Curves
from spark_tui.tui.widgets.line import Head
from spark_tui.tui.widgets.page import Part, told
from spark_tui.tui.widgets.row_list import Column, Row

NOT_KNOWN = "unknown"
LIVE = "live "
"""Keys of rows that are being measured begin so; an id has no blank."""

QUANT_CELLS = 9
COLUMNS = (
    Column("", width=1),
    Column("when", width=4),
    Column("model", minimum=10),
    Column("quant", width=QUANT_CELLS, hide_below=68),
    Column("single", width=6, right=True),
    Column("best", width=5, right=True),
    Column("knee", width=4, right=True, hide_below=58),
    Column("status", width=9),
)
STYLES = {
    "done": "$success",
    "cancelled": "$warning",
    "stopped": "$warning",
    "failed": "$error",
    "working": "",
    "pending": "$dim",
}
WHAT = (
    "Real streaming requests with uncached prompts of exact length: one stream, then more, until throughput stops "
    "growing. Latencies as `vllm bench serve` defines them. Failed and short requests are reported separately. Every "
    "run is saved with its conditions."
)


# --- the list -------------------------------------------------------------------------------------------


def short_model(name: str) -> str:
    """Without its publisher: `Qwen3.6-35B-A3B-NVFP4`."""
    return clean_line(name).rpartition("/")[2] or NOT_KNOWN


def since(seconds: float) -> str:
    """`now`, `5m`, `3h`, `2d`: so coarse that a list of runs is seldom repainted."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def ago(seconds: float) -> str:
    """`a moment ago`, `5m ago`."""
    return f"{since(seconds)} ago" if seconds >= 60 else "a moment ago"


def status_word(result: Result) -> str:
    """`done` for a measurement that came to its end; else how it ended, or what was said of it."""
    if result.run is None or result.status is not Status.BENCHMARKED:
        return result.status.value
    return "done" if result.run.ending is Ending.COMPLETED else result.run.ending.value


def quant_word(model: str, quantization: str) -> str:
    """The format where its bits are known: its owner alone (`compressed-tensors`) tells nothing in so few cells."""
    found = quantization_words(model, quantization)
    return found if 0 < len(found) <= QUANT_CELLS else "-"


def result_row(result: Result, now: float, mark: str) -> Row:
    """One entry: when, what, single stream, the most of all, the knee, how it ended; `!` where a caveat belongs to
    it, `sim` for the demo's."""
    run, word = result.run, status_word(result)
    warned = " !" if run is not None and run.caveats and word == "done" else ""
    cells = (
        Content.styled(mark, "bold $accent"),
        Content.styled(since(now - result.at), "$dim"),
        fmt.safe(short_model(result.model)),
        fmt.safe(quant_word(result.model, result.quantization), "$dim"),
        Content(rate(run.single if run else None)),
        Content.styled(rate(_best(run)), "bold"),
        Content.styled(knee_words(run), "$dim"),
        Content.assemble((word, STYLES[word]), (warned, "$warning")),
    )
    return Row(result.id, cells)


def live_row(name: str, view: EngineView | None, progress: BenchProgress | None, glyphs: Glyphs) -> Row:
    """An engine that is being measured."""
    run = live_run(progress, name)
    model = run.conditions.model if run is not None else view.model if view is not None else name
    active = progress is not None and progress.engine == name
    cells = (
        Content.styled(glyphs.running if active else glyphs.pending, "$primary"),
        Content.styled("now", "bold $primary"),
        fmt.safe(short_model(model), "bold"),
        fmt.safe(quant_word(model, run.conditions.quantization if run is not None else ""), "$dim"),
        Content(rate(run.single if run else None)),
        Content.styled(rate(_best(run)), "bold"),
        Content.styled("-", "$dim"),
        Content.styled("measuring" if active else "waits", "$primary" if active else "$dim"),
    )
    return Row(LIVE + name, cells)


def live_run(progress: BenchProgress | None, name: str) -> BenchRun | None:
    """What an engine has so far; of one that is measured in turn with itself, the side that was measured last."""
    runs = [run for run in (progress.runs if progress is not None else ()) if run.conditions.engine == name]
    return max(runs, key=lambda run: (sum(level.passes for level in run.levels), run is runs[0]), default=None)


def _best(run: BenchRun | None) -> float | None:
    curve = run.scaling if run is not None else None
    return curve.most_throughput if curve is not None else None


def matches(result: Result, words: Sequence[str]) -> bool:
    """Whether every word is in its names, formats, status or platform."""
    quant = quantization_words(result.model, result.quantization)
    told_of = (result.id, result.model, result.engine, quant, result.runtime, result.platform, status_word(result))
    text = " ".join(told_of).lower()
    return all(word in text for word in words)


def serving(engines: Sequence[EngineView]) -> tuple[EngineView, ...]:
    """The engines that can be measured."""
    return tuple(view for view in engines if view.state is EngineState.SERVING and view.port is not None)


def no_engine(engines: Sequence[EngineView] = ()) -> str:
    """Why nothing can be measured, and the keys that lead out of it."""
    starting = next((view.name for view in engines if view.state is EngineState.STARTING), "")
    if starting:
        return f"{clean_line(starting)} is starting. Wait until it is SERVING."
    home, presets = key_of("show_home"), key_of("show_presets")
    return f"No engine is serving. Launch one: {home} Home, then {key_of('launch')}; or {presets} Presets."


def empty_text(engines: Sequence[EngineView], *, filtered: bool) -> Content:
    """What to do when there is nothing in the list."""
    if filtered:
        return Content.styled("No matching runs. Esc clears the filter.", "$dim")
    names = [view.name for view in serving(engines)]
    nothing = Content("No runs yet.\n\n")
    if not names:
        return Content.assemble(nothing, (no_engine(engines), "$dim"))
    return Content.assemble(
        nothing, (key_of("start_bench"), "bold $primary"), " or ", (key_of("open_run"), "bold $primary"),
        " to start a benchmark of ", fmt.safe(" or ".join(names), "bold"),
    )  # fmt: skip


def headline(run: BenchRun) -> str:
    """`1 stream 41.3 tok/s, peak 156 at 8 streams, 54 % of linear, knee 8 or beyond`."""
    curve, parts = run.scaling, []
    if run.single is not None:
        parts.append(f"1 stream {rate(run.single)} tok/s")
    if curve is not None and curve.most_streams > 1:
        parts.append(f"peak {rate(curve.most_throughput)} at {curve.most_streams} streams")
    if curve is not None and curve.efficiency is not None and len(run.sweep) > 1:
        parts += [f"{100 * curve.efficiency:.0f} % of linear", knee_text(curve)]
    return ", ".join(parts)


def knee_text(curve: Scaling) -> str:
    """`knee 8`, `knee 8 or beyond` where it may lie beyond the levels measured."""
    return f"knee {curve.knee_streams}{' or beyond' if curve.knee_is_last else ''}"


# --- what happens just now ------------------------------------------------------------------------------


def progress_lines(
    progress: BenchProgress | None, glyphs: Glyphs, width: int, *, stopping: bool, simulated: bool
) -> list[Content]:
    """How far it is: a bar over all segments, then what is being sent. Simulated time is not the clock's: the rate by
    the clock then means nothing."""
    if progress is None:
        return [Content.styled("Checking the engine...", "$dim")]
    if stopping:
        return [Content.styled("Stopping. Measured levels are saved...", "$warning")]
    segment = progress.segment
    if progress.step is not BenchStep.MEASURING or segment is None:
        what = f"  {progress.detail}" if progress.detail else " ..."
        return [fmt.safe(f"{progress.engine}: {progress.step.value}{what}", "$primary")]
    left = "" if progress.seconds_left is None else f"  {human_duration(progress.seconds_left)} left"
    count = f"  {progress.done} of {progress.total}{left}"
    room = max(4, min(40, width - len(count)))
    full = round(room * progress.done / max(1, progress.total))
    bar = Content.assemble((glyphs.full * full, "$primary"), (glyphs.empty * (room - full), "$rule"))
    sent = f"{progress.requests_done}/{progress.requests_total} requests" if progress.requests_total else ""
    speed = "" if progress.rate is None or simulated else f"{progress.rate:,.0f} tok/s"
    told_of = [progress.engine, f"pass {segment.number}", segment_words(segment), sent, speed]
    return [Content.assemble(bar, (count, "bold")), fmt.safe("  ".join(part for part in told_of if part))]


def segment_words(segment: Segment) -> str:
    """`4 streams`, `prompt of 16,384`."""
    if segment.depth:
        return f"prompt of {human_count(segment.input_tokens)}"
    return f"{segment.streams} stream{'s' if segment.streams > 1 else ''}"


# --- the tables -----------------------------------------------------------------------------------------

SWEEP_HEADS = (
    Head("streams"), Head("tok/s"), Head("± 95 %", 4), Head("each", 2), Head("scaling", 6), Head("TTFT ms"),
    Head("p95", 3), Head("ITL ms", 1), Head("p95", 5), Head("TPOT ms", 7), Head("E2E s", 8), Head("ok"), Head("short"),
    Head("failed"), Head("cut", 9),
)  # fmt: skip
DEPTH_HEADS = (
    Head("prompt"), Head("prefill tok/s"), Head("TTFT ms"), Head("p95", 3), Head("decode tok/s"), Head("TPOT ms", 2),
    Head("ok"), Head("short"), Head("failed"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Now:
    """Whether the run goes on, and then which level is being measured, with the sign for it."""

    live: bool = False
    key: tuple[bool, int, int] | None = None
    sign: str = ""


def now_of(progress: BenchProgress | None, name: str, glyphs: Glyphs) -> Now:
    """Where the measurement of an engine that is being measured is."""
    if progress is None or progress.engine != name or progress.segment is None:
        return Now(live=True)
    segment = progress.segment
    return Now(True, (segment.depth, segment.streams, segment.input_tokens), glyphs.running)


def sweep_rows(run: BenchRun | None, plan: BenchPlan, now: Now) -> list[tuple[Content, ...]]:
    """A row per number of streams; those still to come have dashes."""
    known = {level.streams: level for level in run.sweep} if run is not None else {}
    throughput = run.throughput if run is not None else {}
    wanted = plan.concurrency if now.live else ()
    return [
        _sweep_row(streams, known.get(streams), throughput, _sign((False, streams, plan.input_tokens), now))
        for streams in sorted({*known, *wanted})
    ]


def _sign(key: tuple[bool, int, int], now: Now) -> str:
    return f"{now.sign} " if key == now.key else ""


def _sweep_row(streams: int, level: Level | None, rates: Mapping[int, float], sign: str) -> tuple[Content, ...]:
    label = Content.assemble((sign, "$primary"), str(streams))
    if level is None:
        return (label, *[Content.styled("-", "$dim")] * (len(SWEEP_HEADS) - 1))
    spread, share = level.output_interval, efficiency(rates, streams)
    return (
        label,
        Content.styled(rate(level.output_rate), "bold"),
        Content.styled("-" if spread is None else rate((spread.high - spread.low) / 2), "$dim"),
        Content(rate(level.decode_rate.p50 if level.decode_rate else None)),
        Content.styled("-" if share is None else f"{share:.0%}", "$dim" if (share or 1) >= KNEE_EFFICIENCY else ""),
        Content(milliseconds(level.ttft, "p50")),
        Content.styled(milliseconds(level.ttft, "p95"), "$dim"),
        Content(milliseconds(level.itl, "p50")),
        Content.styled(milliseconds(level.itl, "p95"), "$dim"),
        Content(milliseconds(level.tpot, "p50")),
        Content("-" if level.e2e is None else f"{level.e2e.p50:.2f}"),
        *_counts(level),
        Content.styled(str(level.counts.cancelled), "$dim"),
    )


def _counts(level: Level) -> tuple[Content, Content, Content]:
    """Complete, short, failed or broken off."""
    short, failed = level.counts.short, level.counts.failed + level.counts.truncated
    return (
        Content(str(level.counts.complete)),
        Content.styled(str(short), "bold $warning" if short else "$dim"),
        Content.styled(str(failed), "bold $error" if failed else "$dim"),
    )


def depth_rows(run: BenchRun | None, plan: BenchPlan, now: Now) -> list[tuple[Content, ...]]:
    """A row per prompt length; those still to come have dashes."""
    known = {level.input_tokens: level for level in run.depths} if run is not None else {}
    wanted = plan.depths if now.live else ()
    return [
        _depth_row(tokens, known.get(tokens), _sign((True, 1, tokens), now)) for tokens in sorted({*known, *wanted})
    ]


def _depth_row(tokens: int, level: Level | None, sign: str) -> tuple[Content, ...]:
    label = Content.assemble((sign, "$primary"), human_count(tokens))
    if level is None:
        return (label, *[Content.styled("-", "$dim")] * (len(DEPTH_HEADS) - 1))
    return (
        label,
        Content.styled(rate(level.prefill_rate.p50 if level.prefill_rate else None), "bold"),
        Content(milliseconds(level.ttft, "p50")),
        Content.styled(milliseconds(level.ttft, "p95"), "$dim"),
        Content(rate(level.decode_rate.p50 if level.decode_rate else None)),
        Content(milliseconds(level.tpot, "p50")),
        *_counts(level),
    )


def curves_of(run: BenchRun | None) -> Curves:
    """The sweep as a picture, against half of what perfect scaling would give: where they cross is the knee."""
    rates = tuple(sorted(run.throughput.items())) if run is not None else ()
    curve = run.scaling if run is not None else None
    one = dict(rates).get(1)
    half = tuple((streams, streams * one * KNEE_EFFICIENCY) for streams, _ in rates) if one else ()
    knee = curve.knee_streams if curve is not None else None
    return Curves("", rates, "", half, knee, knee_text(curve) if curve is not None and knee is not None else "")


def turn_parts(sides: tuple[Side, Side], plan: BenchPlan, label_width: int) -> list[Part]:
    """Both sides, and how often the engine is away for others."""
    first, second = sides
    rows = (
        ("A", f"{first.name}, {first.what}"),
        ("B", second.what if second.name == first.name else f"{second.what}, while {first.name} is stopped"),
        ("starts", f"{starts_of(plan)}; {first.name} is unavailable meanwhile, current settings are restored"),
    )
    return [(Content.styled(f"{name:<{label_width}}", "$dim"), told(text)) for name, text in rows]


def question(sides: tuple[Side, Side], plan: BenchPlan) -> tuple[str, str]:
    """What is asked before an engine that serves is stopped: the question, and what will happen."""
    first, second = sides
    return (
        "Run an A/B?",
        f"A: {first.name}, {first.what}. B: {second.what}. {first.name} restarts {starts_of(plan)} times and is "
        "unavailable meanwhile; running requests are cut off. The current settings are restored at the end, also "
        "after a cancel (c).",
    )
