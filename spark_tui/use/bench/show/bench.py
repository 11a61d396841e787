"""What benchmarks show in both front ends: runs, levels, conditions, comparisons, published figures, A/B, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.engine.runtimes import Reference, family, published_words, quantization_words
from spark_tui.base.engine.state import EngineState
from spark_tui.base.finding import NOT_READ_YET, Reading, reason_of, value_of
from spark_tui.base.page import Cell, Column, Page, Row, Section, Table, Tone, cells, labelled, titled
from spark_tui.base.quantities import ago as since_moment
from spark_tui.base.quantities import gib, human_count, human_duration
from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.results.model.compare import (
    Comparison,
    Difference,
    PublishedComparison,
    SpeedVerdict,
    why_none,
    why_not_beside,
)
from spark_tui.observe.results.model.plan import BenchPlan, Conditions, LevelKey
from spark_tui.observe.results.model.record import Distribution, ServerCheck
from spark_tui.observe.results.model.run import (
    KNEE_EFFICIENCY,
    BenchRun,
    Level,
    Result,
    RunOutcome,
    Scaling,
    Status,
    efficiency,
)
from spark_tui.observe.results.use import earlier_runs
from spark_tui.use.bench.use.ab import Variant, starts_of
from spark_tui.use.bench.use.bench import BenchProgress, BenchStep

UNKNOWN = "unknown"
LIVE = "live "
"""Ids of rows that are being measured begin so; a result's id has no blank."""
QUANT_CELLS = 9
DIGEST_CHARACTERS = len("sha256:") + 12
MOST_EARLIER = 6
MOST_COMPARED = 40
MOST_PUBLISHED = 8
MOST_DIFFERENCES = 12
FEW_DIFFERENCES = 2
"""This many are shown with A and B themselves, for then they are what distinguishes them."""
TONES = {
    "done": Tone.GOOD, "cancelled": Tone.WARNING, "stopped": Tone.WARNING, "failed": Tone.BAD, "pending": Tone.QUIET,
    SpeedVerdict.FASTER: Tone.GOOD, SpeedVerdict.SLOWER: Tone.BAD,
}  # fmt: skip
"""Of status words and verdicts; the others are plain or quiet."""
INTRODUCTION = (
    "Real streaming requests with uncached prompts of exact length: one stream, then more, until throughput stops "
    "growing. Latencies as `vllm bench serve` defines them. Failed and short requests are reported separately. Every "
    "run is saved with its conditions."
)
SIMULATED = "Simulated Spark: figures are not real."
NOT_ALTERNATED = "Not alternated: changes of the machine in between affect the ratio."


def sentence(text: str, tone: Tone = Tone.QUIET) -> Page:
    return (Section(rows=(Row(text, tone=tone),)),)


# --- words ------------------------------------------------------------------------------------------------


def short_model(name: str) -> str:
    """Without its publisher: `Qwen3.6-35B-A3B-NVFP4`."""
    return clean_line(name).rpartition("/")[2] or UNKNOWN


def since(seconds: float) -> str:
    """`now`, `5m`, `3h`, `2d`: a list of runs is seldom repainted for it."""
    return "now" if seconds < 60 else since_moment(seconds).removesuffix(" ago")


def ago(seconds: float) -> str:
    return "a moment ago" if seconds < 60 else since_moment(seconds)


def rate(value: float | None) -> str:
    """Three significant figures: `41.3`; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(found: Distribution | None, figure: str) -> str:
    """A figure of a distribution of seconds, in milliseconds; a dash where there is none."""
    return rate(None if found is None else float(getattr(found, figure)) * 1000)


def seconds(found: Distribution | None, figure: str) -> str:
    """A figure of a distribution of seconds; a dash where there is none."""
    return "-" if found is None else f"{getattr(found, figure):.2f}"


def latencies(level: Level) -> tuple[str, ...]:
    """TTFT p50 and p95, ITL p50 and p95, TPOT p50, each in ms, and E2E p50 in s."""
    return (
        milliseconds(level.ttft, "p50"),
        milliseconds(level.ttft, "p95"),
        milliseconds(level.itl, "p50"),
        milliseconds(level.itl, "p95"),
        milliseconds(level.tpot, "p50"),
        seconds(level.e2e, "p50"),
    )


def spread(level: Level) -> str:
    """Half of the 95 % interval of its throughput."""
    found = level.output_interval
    return "-" if found is None else rate((found.high - found.low) / 2)


def level_name(key: LevelKey) -> str:
    """`8 streams`, `prompt 16,384`."""
    depth, streams, tokens = key
    return f"prompt {human_count(tokens)}" if depth else f"{streams} stream{'s' if streams > 1 else ''}"


def status_word(result: Result) -> str:
    """`done` for a measurement that came to its end; else how it ended, or the verdict."""
    if result.run is None or result.status is not Status.BENCHMARKED:
        return result.status.value
    return "done" if result.run.ending is RunOutcome.COMPLETED else result.run.ending.value


def quant_word(model: str, quantization: str) -> str:
    """The format where it is short: a long one is only its owner's name (`compressed-tensors`)."""
    found = quantization_words(model, quantization)
    return found if 0 < len(found) <= QUANT_CELLS else "-"


def knee_word(run: BenchRun | None) -> str:
    """`8`, `32+` where the knee may lie beyond the levels measured, a dash where there is none."""
    curve = run.scaling if run else None
    return "-" if curve is None or curve.knee_streams is None else f"{curve.knee_streams}{'+' * curve.knee_is_last}"


def knee_text(curve: Scaling) -> str:
    """`knee 8`, `knee 8 or beyond` where it may lie beyond the levels measured."""
    return f"knee {curve.knee_streams}{' or beyond' if curve.knee_is_last else ''}"


def headline(run: BenchRun) -> str:
    """`1 stream 41.3 tok/s, peak 156 at 8 streams, 54 % of linear, knee 8 or beyond`."""
    curve, parts = run.scaling, []
    if run.single is not None:
        parts.append(f"1 stream decodes {rate(run.single)} tok/s")
    if curve is not None and curve.most_streams > 1:
        parts.append(f"peak throughput {rate(curve.most_throughput)} at {curve.most_streams} streams")
    if curve is not None and curve.efficiency is not None and len(run.sweep) > 1:
        parts += [f"{100 * curve.efficiency:.0f} % of linear", knee_text(curve)]
    return ", ".join(parts)


def load_text(run: BenchRun) -> str:
    plan = run.plan
    sampling = "default temperature" if plan.temperature is None else f"temperature {plan.temperature:g}"
    return (
        f"{plan.input_tokens} prompt tokens ({plan.content.value}, {plan.prompt_cache.value} cache), "
        f"{plan.output_tokens} output tokens, {plan.passes} passes of {plan.rounds} requests per stream, {sampling}"
    )


def host_text(run: BenchRun) -> str:
    """Memory, power, clock and temperature during the measurement, as far as they are reported."""
    host, words = run.host, []
    if host.used_bytes_most is not None:
        words.append(f"memory {gib(host.used_bytes_most)} GiB used at most")
    if host.usable_bytes_least is not None:
        words.append(f"{gib(host.usable_bytes_least)} GiB available at least")
    if host.power_watts_mean is not None:
        most = "" if host.power_watts_most is None else f" (most {host.power_watts_most:.0f})"
        words.append(f"GPU {host.power_watts_mean:.0f} W{most}")
    if host.sm_clock_mhz_mean is not None:
        words.append(f"{host.sm_clock_mhz_mean:,.0f} MHz")
    if host.temperature_c_most is not None:
        words.append(f"{host.temperature_c_most} C")
    if host.joules_per_token is not None:
        words.append(f"{host.joules_per_token:.2f} J per token")
    return ", ".join(words)


def error_texts(run: BenchRun) -> list[str]:
    """`3 x the answer broke off (8 streams)`."""
    return [f"{count} x {text} ({level_name(level.key)})" for level in run.levels for text, count in level.errors]


def agreement_row(checks: Sequence[ServerCheck]) -> Row | None:
    """Which of the server's own figures agree with ours; None where none can be judged."""
    agreeing, others = ([each.what for each in checks if each.agrees is wanted] for wanted in (True, False))
    parts = [f"the same for {', '.join(agreeing)}"] if agreeing else []
    parts += [f"something else for {', '.join(others)}"] if others else []
    return Row("; ".join(parts), "server says", Tone.WARNING if others else Tone.PLAIN) if parts else None


def result_line(result: Result, now: float) -> str:
    """`qwen, 2h ago: 1 stream 41.3 tok/s, peak 156 at 8 streams`: which one it is, before it is deleted."""
    about = headline(result.run) if result.run is not None else result.reason
    return f"{result.engine or result.model}, {ago(now - result.at)}: {about or status_word(result)}"


def ended_text(run: BenchRun) -> str:
    """How a measurement ended and what it gave, for a notice."""
    answered = headline(run) or f"{run.counts.complete} requests answered"
    figures = answered if run.counts.complete else "no request completed"
    if run.ending is RunOutcome.COMPLETED:
        return f"{run.conditions.engine}: {figures}"
    return f"{run.conditions.engine}: {run.ending.value}, {run.reason}. Kept: {figures}"


# --- lists of results -------------------------------------------------------------------------------------

_RUNS = (
    Column(""), Column("when"), Column("model", least=18), Column("quant", keep=1), Column("decode", right=True),
    Column("peak", right=True), Column("knee", right=True, keep=2), Column("status"),
)  # fmt: skip
_RESULTS = (
    Column("ID"), Column("WHEN", right=True), Column("STATUS"), Column("SINGLE", right=True),
    Column("BATCHED", right=True), Column("KNEE", right=True, keep=2), Column("GIB", right=True, keep=1),
    Column("QUANT", keep=4), Column("RUNTIME", keep=3), Column("MODEL", least=12), Column("WHY", least=12),
)  # fmt: skip


def _best(run: BenchRun | None) -> float | None:
    curve = run.scaling if run is not None else None
    return curve.most_throughput if curve is not None else None


def run_table(
    results: Iterable[Result], now: float, marked: Sequence[str] = (), live: Sequence[tuple[str, tuple[Cell, ...]]] = ()
) -> Table:
    """The list on the screen: rows of what is being measured (`live`), then the results. `marked` are the ids of A and
    B; `!` stands where a caveat belongs to a run."""
    rows = list(live)
    for result in results:
        run, word = result.run, status_word(result)
        caveat = " !" if run is not None and run.caveats and word == "done" else ""
        mark = "AB"[marked.index(result.id)] if result.id in marked else ""
        row = cells(
            Cell(mark, Tone.STRONG),
            Cell(since(now - result.at), Tone.QUIET),
            short_model(result.model),
            Cell(quant_word(result.model, result.quantization), Tone.QUIET),
            rate(run.single if run else None),
            Cell(rate(_best(run)), Tone.STRONG),
            Cell(knee_word(run), Tone.QUIET),
            Cell(word + caveat, Tone.WARNING if caveat else TONES.get(word, Tone.PLAIN)),
        )
        rows.append((result.id, row))
    return Table(_RUNS, tuple(row for _, row in rows), tuple(id_ for id_, _ in rows))


def live_row(
    name: str, view: EngineView | None, progress: BenchProgress | None, signs: tuple[str, str]
) -> tuple[str, tuple[Cell, ...]]:
    """An engine that is being measured; `signs` are those of the active one and of one that waits."""
    run = progress.run_of(name) if progress is not None else None
    model = run.conditions.model if run is not None else view.model if view is not None else name
    active = progress is not None and progress.engine == name
    return LIVE + name, cells(
        signs[not active],
        Cell("now", Tone.STRONG),
        Cell(short_model(model), Tone.STRONG),
        Cell(quant_word(model, run.conditions.quantization if run is not None else ""), Tone.QUIET),
        rate(run.single if run else None),
        Cell(rate(_best(run)), Tone.STRONG),
        Cell("-", Tone.QUIET),
        Cell("measuring", Tone.STRONG) if active else Cell("waits", Tone.QUIET),
    )


def result_table(results: Iterable[Result], now: float) -> Table:
    rows = []
    for result in results:
        run = result.run
        used = run.host.used_bytes_most if run else None
        row = cells(
            Cell(result.id, Tone.STRONG),
            ago(now - result.at),
            Cell(result.status.value, TONES.get(result.status.value, Tone.GOOD if run else Tone.PLAIN)),
            rate(run.single if run else None),
            rate(run.batched if run else None),
            knee_word(run),
            "-" if used is None else gib(used),
            quantization_words(result.model, result.quantization) or "-",
            result.runtime or "-",
            result.model + (" (simulated)" if result.simulated else ""),
            result.reason,
        )
        rows.append(row)
    return Table(_RESULTS, tuple(rows))


def matches(result: Result, words: Sequence[str]) -> bool:
    """Whether every word is in its names, formats, status or platform."""
    quant = quantization_words(result.model, result.quantization)
    fields = (result.id, result.model, result.engine, quant, result.runtime, result.platform, status_word(result))
    text = " ".join(fields).lower()
    return all(word in text for word in words)


def serving(engines: Sequence[EngineView]) -> tuple[EngineView, ...]:
    return tuple(view for view in engines if view.state is EngineState.SERVING and view.port is not None)


def no_engine(found: Reading[tuple[EngineView, ...]]) -> str:
    """Why nothing can be measured, and the keys that help."""
    engines = value_of(found)
    if found == NOT_READ_YET:
        return "Finding engines ..."
    if engines is None:
        return f"Cannot list engines: {reason_of(found)}"
    starting = next((view.name for view in engines if view.state is EngineState.STARTING), "")
    if starting:
        return f"{clean_line(starting)} is starting. Wait until it is ready."
    home, presets = key_of("show_home"), key_of("show_presets")
    return f"No engine is serving. Launch one: {home} Home, then {key_of('launch')}; or {presets} Presets."


# --- levels -----------------------------------------------------------------------------------------------

_SWEEP = (
    Column("streams", right=True), Column("total", right=True), Column("± 95 %", right=True, keep=6),
    Column("decode", right=True, keep=8), Column("scaling", right=True, keep=4), Column("TTFT ms", right=True),
    Column("p95", right=True, keep=7), Column("ITL ms", right=True, keep=8), Column("p95", right=True, keep=5),
    Column("TPOT ms", right=True, keep=3), Column("E2E s", right=True, keep=2), Column("ok", right=True),
    Column("short", right=True), Column("failed", right=True), Column("cut", right=True, keep=1),
)  # fmt: skip
_DEPTHS = (
    Column("prompt", right=True), Column("prefill tok/s", right=True), Column("TTFT ms", right=True),
    Column("p95", right=True, keep=7), Column("decode tok/s", right=True), Column("TPOT ms", right=True, keep=8),
    Column("ok", right=True), Column("short", right=True), Column("failed", right=True),
)  # fmt: skip


class LevelsLeft(Struct, frozen=True):
    """What a measurement has still to do: the `planned` levels, the `current` one, and the sign that marks it."""

    planned: tuple[LevelKey, ...] = ()
    current: LevelKey | None = None
    sign: str = ""

    def label(self, key: LevelKey, text: str) -> str:
        return f"{self.sign} {text}" if key == self.current else text


NOTHING_LEFT = LevelsLeft()


def sweep_table(run: BenchRun | None, left: LevelsLeft = NOTHING_LEFT) -> Table:
    """A row per number of streams; those still to come have dashes."""
    known = {level.key: level for level in run.sweep} if run is not None else {}
    throughput = run.throughput if run is not None else {}
    rows = []
    for key in sorted({*known, *(key for key in left.planned if not key[0])}):
        level, share = known.get(key), efficiency(throughput, key[1])
        label = left.label(key, str(key[1]))
        if level is None:
            rows.append(cells(label, *[Cell("-", Tone.QUIET)] * (len(_SWEEP) - 1)))
            continue
        ttft, ttft95, itl, itl95, tpot, e2e = latencies(level)
        scaled = "-" if share is None else f"{share:.0%}"
        row = cells(
            label,
            Cell(rate(level.output_rate), Tone.STRONG),
            Cell(spread(level), Tone.QUIET),
            rate(level.decode_rate.p50 if level.decode_rate else None),
            Cell(scaled, Tone.QUIET if (share or 1) >= KNEE_EFFICIENCY else Tone.PLAIN),
            ttft,
            Cell(ttft95, Tone.QUIET),
            itl,
            Cell(itl95, Tone.QUIET),
            tpot,
            e2e,
            *_counts(level),
            Cell(str(level.counts.cancelled), Tone.QUIET),
        )
        rows.append(row)
    return Table(_SWEEP, tuple(rows))


def depth_table(run: BenchRun | None, left: LevelsLeft = NOTHING_LEFT) -> Table:
    """A row per prompt length of one stream; those still to come have dashes."""
    known = {level.key: level for level in run.depths} if run is not None else {}
    rows = []
    for key in sorted({*known, *(key for key in left.planned if key[0])}):
        level, label = known.get(key), left.label(key, human_count(key[2]))
        if level is None:
            rows.append(cells(label, *[Cell("-", Tone.QUIET)] * (len(_DEPTHS) - 1)))
            continue
        ttft, ttft95, _, _, tpot, _ = latencies(level)
        prefill, decode = (each.p50 if each else None for each in (level.prefill_rate, level.decode_rate))
        strong = Cell(rate(prefill), Tone.STRONG)
        rows.append(cells(label, strong, ttft, Cell(ttft95, Tone.QUIET), rate(decode), tpot, *_counts(level)))
    return Table(_DEPTHS, tuple(rows))


def _counts(level: Level) -> tuple[Cell, Cell, Cell]:
    """Complete, short, failed or broken off."""
    short, failed = level.counts.short, level.counts.failed + level.counts.truncated
    return (
        Cell(str(level.counts.complete)),
        Cell(str(short), Tone.WARNING if short else Tone.QUIET),
        Cell(str(failed), Tone.BAD if failed else Tone.QUIET),
    )


class LevelBar(Struct, frozen=True):
    """A level in a panel: where the parts of its bar end, rising, as shares of the whole bar; no parts where
    nothing was measured. `low`: below what a knee needs."""

    streams: int
    ends: tuple[float, ...] = ()
    text: str = "-"
    low: bool = False


class LevelPanel(Struct, frozen=True):
    """Bars of one figure, a level each. `parts` names the parts of a bar; `of_whole`: what is missing to the end of a
    bar was lost."""

    title: str
    bars: tuple[LevelBar, ...]
    parts: tuple[str, ...] = ()
    of_whole: bool = False


def level_panels(run: BenchRun) -> tuple[LevelPanel, ...]:
    """By level: throughput against linear scaling, each stream's speed against one alone, TTFT, ITL, the time of an
    answer, and how steady the passes were. Empty with fewer than two levels; without a panel for what no level has."""
    levels = sorted(run.sweep, key=lambda level: level.key)
    if len(levels) < 2:
        return ()
    each = {level: None if level.decode_rate is None else level.decode_rate.p50 for level in levels}
    alone = next((speed for level, speed in each.items() if level.streams == 1), None)
    panels = (
        _share_panel("throughput, of linear", {level: efficiency(run.throughput, level.streams) for level in levels}),
        _share_panel(
            "decode, of one stream alone",
            {level: speed / alone if speed is not None and alone else None for level, speed in each.items()},
        ),
        _latency_panel("TTFT ms", {level: level.ttft for level in levels}),
        _latency_panel("ITL ms", {level: level.itl for level in levels}),
        _latency_panel("E2E s", {level: level.e2e for level in levels}, seconds),
        _share_panel(
            "slowest pass, of the fastest",
            {
                level: min(level.pass_rates) / max(level.pass_rates) if len(level.pass_rates) > 1 else None
                for level in levels
            },
        ),
    )
    return tuple(panel for panel in panels if any(bar.ends for bar in panel.bars))


def _share_panel(title: str, shares: Mapping[Level, float | None]) -> LevelPanel:
    bars = (
        LevelBar(level.streams)
        if share is None
        else LevelBar(level.streams, (share,), f"{share:.0%}", low=share < KNEE_EFFICIENCY)
        for level, share in shares.items()
    )
    return LevelPanel(title, tuple(bars), of_whole=True)


def _latency_panel(
    title: str, found: Mapping[Level, Distribution | None], text: Callable[[Distribution, str], str] = milliseconds
) -> LevelPanel:
    """On a scale to the greatest p95."""
    known = [each for each in found.values() if each is not None]
    most = max((each.p95 for each in known), default=0.0) or 1.0
    wide = max((len(text(each, "p95")) for each in known), default=0)
    bars = (
        LevelBar(level.streams)
        if each is None
        else LevelBar(
            level.streams, (each.p50 / most, each.p95 / most), f"{text(each, 'p50')} {text(each, 'p95'):>{wide}}"
        )
        for level, each in found.items()
    )
    return LevelPanel(title, tuple(bars), ("p50", "p95"))


# --- a run ------------------------------------------------------------------------------------------------


def head_page(result: Result, now: float) -> Page:
    """How it ended and its main figures, in two or three lines."""
    run, word = result.run, status_word(result)
    tone = TONES.get(word, Tone.PLAIN)
    when = ago(now - result.at)
    if run is None:
        rows = [Row(f"{word}  {when}", tone=tone), *([Row(result.reason)] if result.reason else [])]
        return (Section(rows=tuple(rows)),)
    simulated = "  simulated" if run.conditions.simulated else ""
    rows = [Row(f"{word}  {when}, in {human_duration(run.seconds)}{simulated}", tone=tone)]
    if reason := run.reason if run.ending is not RunOutcome.COMPLETED else result.reason:
        rows.append(Row(reason, tone=tone))
    if words := headline(run):
        rows.append(Row(words, tone=Tone.STRONG))
    return (Section(rows=tuple(rows)),)


def foot_page(run: BenchRun, *, beside: bool = False) -> Page:
    """What to measure next, errors and caveats; then the load and the machine, unless the conditions are `beside` it,
    and what the server says."""
    rows = [Row(next_step(run), "next", Tone.STRONG)]
    rows += [Row(text, "error", Tone.BAD) for text in error_texts(run)]
    rows += [Row(caveat, "note", Tone.WARNING) for caveat in run.caveats]
    rows += () if beside else labelled([("workload", load_text(run)), ("machine", host_text(run))])
    judged = agreement_row(run.checks)
    return (Section(rows=(*rows, judged) if judged else tuple(rows)),)


def next_step(run: BenchRun) -> str:
    """What to measure next, with its key."""
    key, curve = key_of("start_bench"), run.scaling
    if run.ending is not RunOutcome.COMPLETED:
        return f"{key} measure again: this run is incomplete."
    if curve is not None and curve.knee_is_last:
        return f"{key} measure more than {curve.most_streams} streams: the knee may be beyond."
    if run.plan.passes < 3:
        return f"{key} measure with 3 passes or more: then differences have an interval."
    return f"{key} compare a changed setting (A/B)."


def conditions_page(run: BenchRun) -> Page:
    """Everything that decides the numbers; what is unknown says so."""
    found, plan = run.conditions, run.plan
    depths = ", ".join(human_count(depth) for depth in plan.depths)
    load = [
        ("prompts", f"{human_count(plan.input_tokens)} tokens, {plan.content.value}, sent as {plan.form.value}"),
        ("answers", f"{human_count(plan.output_tokens)} tokens each, whatever the model would say (ignore_eos)"),
        ("streams", ", ".join(map(str, plan.concurrency)) or "none"),
        *([("prefill at", depths)] if depths else []),
        ("passes", f"{plan.passes}, {plan.rounds} requests per stream in each, {plan.warmup} warm-up"),
        ("sampling", "default" if plan.temperature is None else f"temperature {plan.temperature:g}"),
        ("seed", str(plan.seed)),
    ]
    flags = [("flags", " ".join(found.flags) or "none known")]
    variables = [("variables", " ".join(found.environment))] if found.environment else []
    return (
        Section("Load", _known(load)),
        Section("Model and engine", _known([*_engine_pairs(found), *flags, *variables])),
        Section("Cache", _known(_cache_pairs(run))),
        Section("Machine", _known(_host_pairs(run))),
    )


def brief(page: Page) -> Page:
    """What is known of it, digests cut; the names of all that is unknown stand in one row at the end."""
    known = [
        replace(
            each,
            rows=tuple(
                replace(row, text=row.text.rpartition("@")[2][:DIGEST_CHARACTERS]) if row.label == "digest" else row
                for row in each.rows
                if row.text != UNKNOWN
            ),
        )
        for each in page
    ]
    missing = [row.label for each in page for row in each.rows if row.text == UNKNOWN]
    rows = (Row(", ".join(missing), UNKNOWN, Tone.QUIET),) if missing else ()
    return (*(each for each in known if each.rows), *((Section(rows=rows),) if rows else ()))


def _known(pairs: Iterable[tuple[str, str]]) -> tuple[Row, ...]:
    return tuple(Row(text, label) if text else Row(UNKNOWN, label, Tone.QUIET) for label, text in pairs)


def _engine_pairs(found: Conditions) -> list[tuple[str, str]]:
    context, cache = (
        "" if count is None else f"{human_count(count)} tokens" for count in (found.context_tokens, found.kv_tokens)
    )
    pairs = [
        ("model", found.model),
        ("revision", found.revision),
        ("quantization", quantization_words(found.model, found.quantization)),
        ("runtime", f"{found.runtime} {found.version}".strip()),
        ("image", found.image),
        ("digest", found.image_digest or found.image_id),
        ("preset", found.preset or "none: launched otherwise"),
        ("context", context),
        ("sequences", "" if found.most_sequences is None else f"{found.most_sequences} at once"),
        ("KV cache", ", ".join(part for part in (cache, found.kv_cache_dtype) if part)),
        ("uptime", "" if found.engine_seconds is None else human_duration(found.engine_seconds)),
    ]
    optional = [
        ("speculation", found.speculation),
        ("attention", found.attention),
        ("FP4 linear", found.linear_kernel),
        ("FP4 MoE", found.moe_kernel),
        ("CUDA graphs", "" if found.eager is None else "off: the engine runs eager" if found.eager else "on"),
    ]
    return [*pairs[:-1], *(pair for pair in optional if pair[1]), pairs[-1]]


def _cache_pairs(run: BenchRun) -> list[tuple[str, str]]:
    caching, share = run.conditions.prefix_caching, run.server.cache_hit_share if run.server is not None else None
    cached = sum(level.cached_tokens or 0 for level in run.levels)
    by_server = "" if share is None else f"{share:.1%} of the prompt tokens found there, by the server"
    by_usage = f"{human_count(cached)} prompt tokens cached, by the answers' usage" if cached else ""
    cache = run.plan.prompt_cache.value
    meant = "each prompt new to the engine" if cache == "cold" else "the same prompt again and again"
    return [
        ("prompts", f"{cache}: {meant}"),
        ("prefix cache", "" if caching is None else "on" if caching else "off"),
        ("hits", "; ".join(part for part in (by_server, by_usage) if part)),
    ]


def _host_pairs(run: BenchRun) -> list[tuple[str, str]]:
    found, host, late = run.conditions, run.host, run.lateness
    clock = [] if host.sm_clock_mhz_mean is None else [f"{host.sm_clock_mhz_mean:,.0f} MHz in the mean"]
    clock += [] if host.sm_clock_mhz_least is None else [f"{host.sm_clock_mhz_least:,} at least"]
    return [
        ("platform", " ".join(part for part in (found.platform, found.hostname) if part)),
        ("GPU", found.gpu),
        ("driver", found.driver),
        ("kernel", found.kernel),
        ("clock", ", ".join(clock)),
        *(
            [
                ("nodes", ", ".join(found.nodes)),
                ("rails", ", ".join(found.rails)),
                ("NCCL", found.nccl),
                ("bandwidth", found.bandwidth),
            ]
            if found.nodes
            else []
        ),
        ("meanwhile", host_text(run)),
        ("timing error", "" if late is None else f"{late.p99 * 1000:.1f} ms (p99 of the clock's own lateness)"),
        ("measured by", f"spark-tui {found.tool_version}, Python {found.python}".removesuffix(", Python ")),
    ]


# --- compared ---------------------------------------------------------------------------------------------


def difference_text(difference: Difference) -> str:
    """`version: 0.32.0 -> 0.33.0`."""
    return f"{difference.what}: {difference.first or 'not set'} -> {difference.second or 'not set'}"


def pair_table(found: Comparison, first: str = "A", second: str = "B") -> Table:
    columns = (
        Column("tok/s at"),
        Column(first, right=True),
        Column(second, right=True),
        Column(f"{second}/{first}", right=True),
        Column("95 %", right=True, keep=1),
        Column("difference", keep=2),
    )
    rows = []
    for pair in found.rows:
        interval = pair.interval
        words = {SpeedVerdict.NOT_SHOWN: "none shown", SpeedVerdict.UNKNOWN: "too few passes"}
        row = cells(
            level_name(pair.second.key),
            rate(pair.first.output_rate),
            rate(pair.second.output_rate),
            Cell("-" if pair.ratio is None else f"{pair.ratio:.3f}", Tone.STRONG),
            Cell("-" if interval is None else f"{interval.low:.3f}-{interval.high:.3f}", Tone.QUIET),
            Cell(words.get(pair.verdict, pair.verdict.value), TONES.get(pair.verdict, Tone.QUIET)),
        )
        rows.append(row)
    return Table(columns, tuple(rows))


def how_to_compare() -> str:
    mark = key_of("mark_run")
    return (
        f"Mark A and B with {mark} to compare. A/B ({key_of('start_bench')}) alternates both engines to cancel drift."
    )


def pair_verdict(found: Comparison, second: str = "B") -> Row | None:
    """The answer in one sentence, by the level whose difference is surest: `B is 18 % faster at 8 streams (95 %: 12 to
    24 %).` None where the runs cannot be compared."""
    measured = [(pair, pair.ratio, pair.interval) for pair in found.rows if pair.ratio is not None]
    if not measured:
        return None
    known = [(pair, ratio, interval) for pair, ratio, interval in measured if interval is not None]
    if not known:
        return Row("Too few passes to compare. Measure both again with 5 passes.", tone=Tone.WARNING)
    # The surest: an interval of which the nearer end is furthest from 1.
    pair, ratio, interval = max(known, key=lambda each: max(each[2].low - 1, 1 - each[2].high))
    low, high = sorted(100 * abs(end - 1) for end in (interval.low, interval.high))
    at = f"at {level_name(pair.second.key)}"
    if pair.verdict in (SpeedVerdict.FASTER, SpeedVerdict.SLOWER):
        percent = f"{100 * abs(ratio - 1):.0f} %"
        text = f"{second} is {percent} {pair.verdict.value} {at} (95 %: {low:.0f} to {high:.0f} %)."
        return Row(text, tone=TONES[pair.verdict])
    change, least, most = (100 * (each - 1) for each in (ratio, interval.low, interval.high))
    text = f"No significant difference {at}: {second} {change:+.0f} % (95 %: {least:+.0f} to {most:+.0f} %)."
    return Row(text, tone=Tone.STRONG)


def pair_head(found: Comparison, now: float) -> Page:
    """The verdict; which runs A and B are, and whether they can be compared at all."""
    verdict = pair_verdict(found)
    rows = [] if verdict is None else [verdict]
    for mark, run in (("A", found.first), ("B", found.second)):
        model = short_model(run.conditions.model)
        rows.append(Row(f"{run.conditions.engine}  {ago(now - run.at)}  {run.id}  {model}", mark, Tone.STRONG))
    if found.comparable:
        few = found.differences if len(found.differences) <= FEW_DIFFERENCES else ()
        return (Section(rows=(*rows, *(Row(difference_text(each), " ") for each in few))),)
    why = Row("Not compared: with another load the numbers measure different things.", tone=Tone.WARNING)
    obstacles = (Row(difference_text(each)) for each in found.obstacles)
    return (Section(rows=tuple(rows)), Section(rows=(why, *obstacles)))


def pair_foot(found: Comparison) -> Page:
    """How they were measured, and the differences that are too many for the head: each may be the cause."""
    rows = [Row(NOT_ALTERNATED, tone=Tone.WARNING)]
    if found.paired:
        rows = [Row("Alternated pass by pass: drift of the machine cancels out.", tone=Tone.QUIET)]
    if any(pair.verdict is SpeedVerdict.NOT_SHOWN for pair in found.rows):
        rows.append(Row("No significant difference. More passes may show one.", tone=Tone.QUIET))
    if not found.differences:
        return (Section(rows=(*rows, Row("No other known difference.", tone=Tone.QUIET))),)
    page = (Section(rows=tuple(rows)),)
    if found.comparable and len(found.differences) <= FEW_DIFFERENCES:
        return page
    return (*page, Section("What differs, A -> B", tuple(Row(difference_text(each)) for each in found.differences)))


def history_page(run: BenchRun, results: Sequence[Result], now: float) -> Page:
    """Earlier runs of the model on this machine, like with like; then those of another load."""
    found = earlier_runs(run, results)[:MOST_COMPARED]
    like = [each for each in found if each.comparable]
    page = [Section("Earlier runs here")]
    for each in like[:MOST_EARLIER]:
        shown = "; ".join(map(difference_text, each.differences[:MOST_DIFFERENCES]))
        more = len(each.differences) - MOST_DIFFERENCES
        text = f"differs: {shown}{f'; and {more} more' if more > 0 else ''}" if shown else "No other known difference."
        before = each.first
        title = f"{ago(now - before.at)}  {before.id}"
        page.append(Section(title, (Row(text, tone=Tone.QUIET),), pair_table(each, "then", "now")))
    if not like:
        page[0] = Section(rows=(Row("none of this model with this load", "earlier", Tone.QUIET),))
    if len(like) > MOST_EARLIER:
        page += sentence(f"and {len(like) - MOST_EARLIER} more before.")
    unlike = [
        Row(
            f"{ago(now - each.first.at)}  {each.first.id}  {'; '.join(map(difference_text, each.obstacles))}",
            tone=Tone.QUIET,
        )
        for each in found
        if not each.comparable
    ]
    if unlike:
        page.append(Section("Not compared: another load", tuple(unlike[:MOST_EARLIER])))
    others = len({result.model for result in results if result.run is not None} - {run.conditions.model})
    if others:
        what = "one other model" if others == 1 else f"{others} other models"
        page += sentence(f"Runs of {what} are not compared here; {key_of('mark_run')} puts any two side by side.")
    return tuple(page)


def published_page(run: BenchRun, found: Sequence[PublishedComparison], references: Sequence[Reference]) -> Page:
    """Published figures beside ours, with their source and what differs; then those that are not comparable."""
    rows = [row for each in found[:MOST_PUBLISHED] for row in beside_rows(each)]
    page = [Section("Published by others", tuple(rows))]
    if not rows:
        model = any(family(each.model) == family(run.conditions.model) for each in references)
        unlike = "None of the published figures is of the same format, runtime and number of streams."
        why = why_none(run) or (unlike if model else "No published results for this model.")
        page = [Section(rows=(Row(why, "published", Tone.QUIET),))]
    if found:
        page += sentence("Identical machines differ by 15 % from day to day.")
    compared = {id(each.reference) for each in found}
    excluded = []
    for each in references:
        if family(each.model) == family(run.conditions.model) and id(each) not in compared:
            why = why_not_beside(run, each) or "another number of streams than was measured"
            level = level_name((False, each.streams, 0)) if each.streams else "many streams"
            figure = f"{rate(each.decode_rate)} tok/s, {level}"
            excluded.append(f"{figure}, {each.source} {each.date}: {why}")
    if excluded and not run.conditions.simulated:
        texts = list(dict.fromkeys(excluded))[:MOST_PUBLISHED]
        page.append(Section("Published, not compared", tuple(Row(text, tone=Tone.QUIET) for text in texts)))
    return (*page, *of_model(run))


def of_model(run: BenchRun) -> Page:
    """What is published of its model in any format; empty for a simulated run."""
    model = run.conditions.model
    return titled("Published of this model", () if run.conditions.simulated else published_words(model))


def beside_rows(each: PublishedComparison) -> tuple[Row, ...]:
    """One published figure: the ratio, its source, what differs."""
    reference = each.reference
    scatter = "similar" if each.within_scatter else "differs"
    figures = f"{rate(each.ours):>4} here, {rate(each.theirs):>4} there x{each.ratio:.2f} {scatter}"
    rows = [
        Row(
            f"{level_name((False, reference.streams, 0)):<10}{figures}",
            tone=Tone.PLAIN if each.within_scatter else Tone.WARNING,
        ),
        Row(f"{each.source.title}, {reference.date} ({each.source.licence})", " ", Tone.QUIET),
    ]
    if each.differs:
        rows.append(Row(f"differs: {'; '.join(each.differs)}", " ", Tone.QUIET))
    return tuple(rows)


# --- A/B --------------------------------------------------------------------------------------------------


def ab_pairs(variants: tuple[Variant, Variant], plan: BenchPlan) -> list[tuple[str, str]]:
    """Both variants, and how often the engine is unavailable for others."""
    first, second = variants
    return [
        ("A", f"{first.name}, {first.what}"),
        ("B", second.what if second.name == first.name else f"{second.what}, while {first.name} is stopped"),
        ("starts", f"{starts_of(plan)}; {first.name} is unavailable meanwhile, current settings are restored"),
    ]


def ab_question(variants: tuple[Variant, Variant], plan: BenchPlan) -> tuple[str, str]:
    """What is asked before an engine that serves is stopped: the question, and what will happen."""
    first, second = variants
    return (
        "Run an A/B?",
        f"A: {first.name}, {first.what}. B: {second.what}. {first.name} restarts {starts_of(plan)} times and is "
        "unavailable meanwhile; running requests are cut off. The current settings are restored at the end, also "
        "after a cancel.",
    )


# --- progress ---------------------------------------------------------------------------------------------


def progress_count(progress: BenchProgress) -> str:
    """`3 of 24  1m20s left`, counting segments."""
    left = "" if progress.seconds_left is None else f"  {human_duration(progress.seconds_left)} left"
    return f"{progress.done} of {progress.total}{left}"


def progress_text(progress: BenchProgress, *, simulated: bool = False) -> str:
    """`qwen  pass 1  4 streams  3/8 requests  120 tok/s`; simulated time has no rate by the clock."""
    segment = progress.segment
    if progress.step is not BenchStep.MEASURING or segment is None:
        return f"{progress.engine}: {progress.step.value}{f'  {progress.detail}' if progress.detail else ' ...'}"
    sent = f"{progress.requests_done}/{progress.requests_total} requests" if progress.requests_total else ""
    speed = "" if progress.rate is None or simulated else f"{progress.rate:,.0f} tok/s"
    parts = (progress.engine, f"pass {segment.number}", level_name(segment.key), sent, speed)
    return "  ".join(part for part in parts if part)


def segment_text(progress: BenchProgress) -> str:
    """`qwen  pass 1  4 streams  120 tok/s   3 of 24`: the segment that has just ended; empty where it gave no rate."""
    segment, run = progress.segment, progress.run_of(progress.engine)
    if segment is None or run is None or progress.step is not BenchStep.MEASURING:
        return ""
    level = next((each for each in run.levels if each.key == segment.key), None)
    if level is None or not level.pass_rates:
        return ""
    figures = f"{level_name(segment.key):<12} {rate(level.pass_rates[-1]):>7} tok/s"
    return f"{progress.engine}  pass {segment.number}  {figures}   {progress_count(progress)}"
