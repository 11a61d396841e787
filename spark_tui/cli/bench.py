"""bench: measures an engine, or two in turn. results: what was measured, compared, exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from spark_tui.cli.command import command, complete, engine_argument, group, yes_option
from spark_tui.cli.engines import find_container
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session, confirm
from spark_tui.core.bench import BenchProgress, BenchStep
from spark_tui.core.bench_ab import Side, running_engine, starts_of
from spark_tui.core.context import Context
from spark_tui.domain.bench.compare import Comparison, Difference, Row, Verdict, compare
from spark_tui.domain.bench.conditions import Conditions, quantization_words
from spark_tui.domain.bench.export import knee_words, latencies, load_words, milliseconds, rate
from spark_tui.domain.bench.plan import BenchPlan, Content, PlanError, PromptCache, PromptForm, Segment, check_plan
from spark_tui.domain.bench.published import Beside
from spark_tui.domain.bench.run import BenchRun, Ending, Level, Result, Status, efficiency
from spark_tui.domain.bench.server_side import Check
from spark_tui.domain.bench.statistics import Distribution, Interval
from spark_tui.domain.errors import ExitCode, RefusedError, UsageError
from spark_tui.domain.quantities import gib, human_count, human_duration
from spark_tui.present.engines import ago
from spark_tui.present.json import Object, maybe, moment
from spark_tui.present.page import Cell, Column, Table, Tone, cells

NOT_MEASURED: Final = "not measured"
NOT_KNOWN: Final = "not known"


def shapes_run(found: BenchRun) -> Object:
    """One run with everything that decides its numbers."""
    curve, box = found.scaling, found.box
    alone = "one stream alone was not measured"
    silent = "the driver does not report it"
    return {
        "id": found.id,
        "at": moment(found.at),
        "ending": found.ending.value,
        **maybe("ending_cause", found.reason, "it ran to its end"),
        "seconds": round(found.seconds, 2),
        "simulated": found.conditions.simulated,
        **maybe("paired_with", found.pair, "it was measured alone"),
        **_number("single_stream_tokens_per_second", found.single, alone),
        **_number("batched_tokens_per_second", found.batched, "several streams were not measured"),
        **_number("scaling_efficiency", curve.efficiency if curve else None, alone, 4),
        **maybe("knee_streams", curve.knee_streams if curve else None, alone),
        **_number("knee_tokens_per_second", curve.knee_throughput if curve else None, alone),
        "knee_may_lie_beyond": bool(curve and curve.knee_is_last),
        "caveats": list(found.caveats),
        "plan": plan(found.plan),
        "conditions": conditions(found.conditions),
        "levels": [level(each) for each in found.levels],
        "box": {
            "samples": box.samples,
            **maybe("memory_used_bytes_most", box.used_bytes_most, NOT_KNOWN),
            **maybe("memory_usable_bytes_least", box.usable_bytes_least, NOT_KNOWN),
            **_number("power_watts_mean", box.power_watts_mean, silent),
            **_number("power_watts_most", box.power_watts_most, silent),
            **maybe("temperature_celsius_most", box.temperature_c_most, silent),
            **_number("sm_clock_mhz_mean", box.sm_clock_mhz_mean, silent),
            **maybe("sm_clock_mhz_least", box.sm_clock_mhz_least, silent),
            **_number("utilization_percent_mean", box.utilization_percent_mean, silent),
            **_number("joules_per_output_token", box.joules_per_token, silent, 4),
        },
        **maybe("clock_lateness_seconds", _spread(found.lateness), "time is simulated"),
        "server_checks": [check(each) for each in found.checks],
    }


def plan(found: BenchPlan) -> Object:
    """The load."""
    return {
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "concurrency": list(found.concurrency),
        "depth_tokens": list(found.depths),
        "passes": found.passes,
        "rounds": found.rounds,
        "warmup": found.warmup,
        "content": found.content.value,
        "prompt_cache": found.prompt_cache.value,
        "prompts_sent_as": found.form.value,
        **maybe("temperature", found.temperature, "the server's own"),
        "seed": found.seed,
    }


def conditions(found: Conditions) -> Object:
    """Engine and box. Lengths in tokens, ages in seconds."""
    names = (
        "served_name", "revision", "quantization", "runtime", "version", "image", "image_id", "image_digest", "preset",
        "context_tokens", "most_sequences", "kv_tokens", "kv_cache_dtype", "speculation", "attention", "linear_kernel",
        "moe_kernel", "eager", "prefix_caching", "platform", "hostname", "kernel", "gpu", "driver", "tool_version",
        "python",
    )  # fmt: skip
    told: Object = {"engine": found.engine, "model": found.model}
    for name in names:
        told |= maybe(name, getattr(found, name), NOT_KNOWN)
    told |= _number("engine_seconds", found.engine_seconds, NOT_KNOWN)
    return told | {"flags": list(found.flags), "environment": list(found.environment)}


def level(found: Level) -> Object:
    """One level of the sweep, or one prefill depth."""
    none = "no request was complete"
    few = "it takes two finished passes"
    told: Object = {
        "id": f"depth-{found.input_tokens}" if found.depth else f"streams-{found.streams}",
        "streams": found.streams,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "depth": found.depth,
        "passes": found.passes,
        "seconds": round(found.seconds, 3),
        "requests": {
            "complete": found.counts.complete,
            "short": found.counts.short,
            "truncated": found.counts.truncated,
            "failed": found.counts.failed,
            "cancelled": found.counts.cancelled,
        },
        **_number("output_tokens_per_second", found.output_rate, none),
        **maybe("output_tokens_per_second_interval", _interval(found.output_interval), few),
        "pass_tokens_per_second": [round(each, 3) for each in found.pass_rates],
        **_number("total_tokens_per_second", found.total_rate, none),
        **_number("requests_per_second", found.request_rate, none, 4),
        **_number("peak_tokens_per_second", found.peak_rate, none),
        **_number("tokens_per_chunk", found.tokens_per_chunk, none),
    }
    for name, key in (
        ("ttft", "ttft_seconds"), ("itl", "itl_seconds"), ("tpot", "tpot_seconds"), ("e2e", "e2e_seconds"),
        ("decode_rate", "decode_tokens_per_second"), ("stream_rate", "stream_tokens_per_second"),
        ("prefill_rate", "prefill_tokens_per_second"),
    ):  # fmt: skip
        told |= maybe(key, _spread(getattr(found, name)), none)
    told |= {"errors": [{"message": text, "count": count} for text, count in found.errors]}
    told |= {"prompts_of_another_length": found.wrong_lengths}
    return told | maybe("cached_tokens", found.cached_tokens, "the server does not report it")


def check(found: Check) -> Object:
    """A figure from both sides; the server's is a range where it is known no finer than a bucket."""
    return {
        "id": found.what,
        "ours": round(found.ours, 6),
        "server_low": round(found.low, 6),
        "server_high": "infinity" if found.high == float("inf") else round(found.high, 6),
        **maybe("agrees", found.agrees, "it cannot be judged"),
    }


def shapes_result(found: Result, *, whole: bool = False) -> Object:
    """One entry of the ledger; with `whole` the run with it."""
    measured = found.run
    told: Object = {
        "id": found.id,
        "at": moment(found.at),
        "status": found.status.value,
        "model": found.model,
        **maybe("quantization", found.quantization, NOT_KNOWN),
        **maybe("runtime", found.runtime, NOT_KNOWN),
        **maybe("platform", found.platform, NOT_KNOWN),
        **maybe("engine", found.engine, NOT_KNOWN),
        **maybe("cause", found.reason, "there is nothing to say"),
        "simulated": found.simulated,
        **_number("single_stream_tokens_per_second", measured.single if measured else None, NOT_MEASURED),
        **_number("batched_tokens_per_second", measured.batched if measured else None, NOT_MEASURED),
        **maybe("memory_used_bytes_most", measured.box.used_bytes_most if measured else None, NOT_MEASURED),
    }
    return told | maybe("run", shapes_run(measured) if measured else None, NOT_MEASURED) if whole else told


def comparison(found: Comparison) -> Object:
    """Two runs, the second beside the first."""
    return {
        "first": found.first.id,
        "second": found.second.id,
        "comparable": found.comparable,
        "paired": found.paired,
        "obstacles": [difference(each) for each in found.obstacles],
        "differences": [difference(each) for each in found.differences],
        "levels": [row(each) for each in found.rows],
    }


def difference(found: Difference) -> Object:
    """A condition that is not the same."""
    return {
        "id": found.what,
        **maybe("first", found.first, NOT_KNOWN),
        **maybe("second", found.second, NOT_KNOWN),
    }


def row(found: Row) -> Object:
    """One level of both."""
    return {
        "id": f"depth-{found.input_tokens}" if found.depth else f"streams-{found.streams}",
        "streams": found.streams,
        "input_tokens": found.input_tokens,
        **_number("first_tokens_per_second", found.first.output_rate, NOT_MEASURED),
        **_number("second_tokens_per_second", found.second.output_rate, NOT_MEASURED),
        **_number("ratio", found.ratio, NOT_MEASURED, 4),
        **maybe("ratio_interval", _interval(found.interval), "it takes two finished passes of both"),
        "verdict": found.verdict.value,
    }


def published(found: Beside) -> Object:
    """A published figure beside ours."""
    reference = found.reference
    return {
        "id": f"{found.source.id}-{reference.date}-{reference.streams}",
        "source": found.source.title,
        "licence": found.source.licence,
        **maybe("url", found.source.url, "not stated"),
        "model": reference.model,
        "date": reference.date,
        "streams": reference.streams,
        "ours_tokens_per_second": round(found.ours, 3),
        "theirs_tokens_per_second": found.theirs,
        "ratio": round(found.ratio, 4),
        "within_scatter": found.within_scatter,
        "differs": list(found.differs),
    }


def progress(found: BenchProgress) -> Object:
    """How far a benchmark is."""
    segment = found.segment
    return {
        "type": "progress",
        "engine": found.engine,
        "step": found.step.value,
        "segments_done": found.done,
        "segments_total": found.total,
        **maybe("streams", segment.streams if segment else None, "nothing is measured yet"),
        **maybe("input_tokens", segment.input_tokens if segment else None, "nothing is measured yet"),
        "requests_done": found.requests_done,
        "requests_total": found.requests_total,
        **_number("seconds_left", found.seconds_left, "not known yet", 1),
    }


def _number(key: str, value: float | None, why: str, digits: int = 3) -> Object:
    return maybe(key, None if value is None else round(value, digits), why)


def _interval(found: Interval | None) -> list[float] | None:
    return None if found is None else [round(found.low, 4), round(found.high, 4)]


def _spread(found: Distribution | None) -> dict[str, Any] | None:
    if found is None:
        return None
    told: dict[str, Any] = {
        "count": found.count,
        **{name: round(getattr(found, name), 6) for name in ("mean", "std", "p50", "p90", "p95", "p99")},
        "min": round(found.least, 6),
        "max": round(found.most, 6),
    }
    return told | maybe("p50_interval", _interval(found.median_interval), "it takes six values")


_STYLES: Final = {
    Status.BENCHMARKED: Tone.GOOD,
    Status.WORKING: Tone.PLAIN,
    Status.PENDING: Tone.QUIET,
    Status.FAILED: Tone.BAD,
}
_VERDICTS: Final = {Verdict.FASTER: Tone.GOOD, Verdict.SLOWER: Tone.BAD}

_SWEEP: Final = tuple(
    Column(title, right=True)
    for title in (
        "STREAMS", "TOK/S", "±", "PER STREAM", "SCALING", "TTFT MS", "P95", "ITL MS", "P95", "TPOT MS", "E2E S", "OK",
        "NOT",
    )
)  # fmt: skip
_DEPTHS: Final = tuple(
    Column(title, right=True)
    for title in ("DEPTH", "PREFILL TOK/S", "TTFT MS", "P95", "DECODE TOK/S", "TPOT MS", "OK", "NOT")
)
_LEDGER: Final = (
    Column("ID"), Column("WHEN", right=True), Column("STATUS"), Column("SINGLE", right=True),
    Column("BATCHED", right=True), Column("KNEE", right=True), Column("GIB", right=True), Column("QUANT"),
    Column("RUNTIME"), Column("MODEL", least=12), Column("WHY", least=12),
)  # fmt: skip
_COMPARED: Final = (
    Column("LEVEL"), Column("FIRST TOK/S", right=True), Column("SECOND TOK/S", right=True),
    Column("RATIO", right=True), Column("95 %"), Column("VERDICT"),
)  # fmt: skip
_BESIDE: Final = (
    Column("STREAMS", right=True), Column("OURS", right=True), Column("THEIRS", right=True),
    Column("RATIO", right=True), Column("SOURCE", least=12), Column("DIFFERS", least=12),
)  # fmt: skip


def sweep(run: BenchRun) -> Table:
    """The levels by number of streams."""
    return Table(_SWEEP, tuple(_level(run, level) for level in run.sweep))


def _level(run: BenchRun, level: Level) -> tuple[Cell, ...]:
    share, spread = efficiency(run.throughput, level.streams), level.output_interval
    return cells(
        str(level.streams),
        Cell(rate(level.output_rate), Tone.STRONG),
        "-" if spread is None else rate((spread.high - spread.low) / 2),
        rate(level.decode_rate.p50 if level.decode_rate else None),
        "-" if share is None else f"{share:.0%}",
        *latencies(level),
        str(level.counts.complete),
        _not(level),
    )


def depths(run: BenchRun) -> Table:
    """Prefill and decode by prompt length."""
    rows = tuple(
        cells(
            human_count(level.input_tokens),
            Cell(rate(level.prefill_rate.p50 if level.prefill_rate else None), Tone.STRONG),
            milliseconds(level.ttft, "p50"),
            milliseconds(level.ttft, "p95"),
            rate(level.decode_rate.p50 if level.decode_rate else None),
            milliseconds(level.tpot, "p50"),
            str(level.counts.complete),
            _not(level),
        )
        for level in run.depths
    )
    return Table(_DEPTHS, rows)


def _not(level: Level) -> Cell:
    bad = level.counts.bad + level.counts.cancelled
    return Cell(str(bad), Tone.BAD if level.counts.bad else Tone.PLAIN)


def headline(run: BenchRun) -> str:
    """`1 stream 41.3 tok/s, peak 156 tok/s at 8 streams, 54 % of linear, knee at 8 or beyond`."""
    curve, parts = run.scaling, []
    if run.single is not None:
        parts.append(f"1 stream {rate(run.single)} tok/s")
    if curve is not None and curve.most_streams > 1:
        parts.append(f"peak {rate(curve.most_throughput)} tok/s at {curve.most_streams} streams")
    if curve is not None and curve.efficiency is not None and len(run.sweep) > 1:
        parts.append(f"{100 * curve.efficiency:.0f} % of linear")
        parts.append(f"knee at {curve.knee_streams} streams{' or beyond' if curve.knee_is_last else ''}")
    return ", ".join(parts)


def ledger(results: Iterable[Result], now: float) -> Table:
    """One row per result, as they come."""
    return Table(_LEDGER, tuple(_result(result, now) for result in results))


def _result(result: Result, now: float) -> tuple[Cell, ...]:
    run = result.run
    used = run.box.used_bytes_most if run else None
    return cells(
        Cell(result.id, Tone.STRONG),
        ago(now - result.at),
        Cell(result.status.value, _STYLES[result.status]),
        rate(run.single if run else None),
        rate(run.batched if run else None),
        knee_words(run),
        "-" if used is None else gib(used),
        quantization_words(result.model, result.quantization) or "-",
        result.runtime or "-",
        result.model + (" (simulated)" if result.simulated else ""),
        result.reason,
    )


def compared(found: Comparison) -> Table:
    """The levels that both have."""
    return Table(_COMPARED, tuple(_row(row) for row in found.rows))


def _row(row: Row) -> tuple[Cell, ...]:
    spread = row.interval
    return cells(
        f"depth {human_count(row.input_tokens)}" if row.depth else f"{row.streams} streams",
        rate(row.first.output_rate),
        rate(row.second.output_rate),
        Cell("-" if row.ratio is None else f"{row.ratio:.3f}", Tone.STRONG),
        "-" if spread is None else f"{spread.low:.3f} to {spread.high:.3f}",
        Cell(row.verdict.value, _VERDICTS.get(row.verdict, Tone.QUIET)),
    )


def beside(found: Sequence[Beside]) -> Table:
    """Published figures beside ours."""
    return Table(
        _BESIDE,
        tuple(
            cells(
                str(each.reference.streams),
                rate(each.ours),
                rate(each.theirs),
                Cell(f"{each.ratio:.2f}", Tone.PLAIN if each.within_scatter else Tone.WARNING),
                f"{each.source.title}, {each.reference.date} ({each.source.licence})",
                "; ".join(each.differs) or "nothing that is known",
            )
            for each in found
        ),
    )


def sides_of(session: Session, name: str, other: str, plan: BenchPlan, *, yes: bool) -> tuple[Side, Side] | None:
    """The two launches that `--ab` means, once a person agreed to what they cost; None where `other` runs already.

    Raises RefusedError when they did not, and what `ABPlanner.plan` raises.
    """
    sides = session.run(partial(_sides, name, other))
    if sides is None:
        return None
    first, second = sides
    session.err.say(f"A: {first.name}, {first.what}. B: {second.what}.")
    session.err.say(f"{first.name} restarts {starts_of(plan)} times; its current settings are restored at the end.")
    if not confirm(session, f"{first.name} is unavailable meanwhile. Continue?", yes=yes):
        raise RefusedError("Not started.", f"To compare with a running engine: spark-tui bench {name} --ab NAME")
    return sides


async def _sides(name: str, other: str, context: Context) -> tuple[Side, Side] | None:
    container = await find_container(context, name)
    if "=" not in other:
        running = [each for each in await context.docker.containers() if each.running]
        if any(other == each.name or (len(other) >= 12 and each.id.startswith(other)) for each in running):
            return None
    watch = await context.supervisor.watch(container.id)
    await watch.settled()
    return context.ab_runner.sides(watch.view(), other)


_LINE_SECONDS: Final = 0.2
"""Where a person watches, the line moves at most so often."""


def _counts(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """`1,2,4,8` as whole numbers."""
    words = [word.strip().replace("_", "") for word in value.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of whole numbers, like 1,2,4,8.", ctx, parameter)
    return tuple(int(word) for word in words)


_BENCH_EXAMPLES = """\
  spark-tui bench gpt-oss-120b
  spark-tui bench gpt-oss-120b --concurrency 1,2,4,8,16 --input 2048
  spark-tui bench gpt-oss-120b --concurrency "" --prefill-depths 1024,16384
  spark-tui bench qwen-a --ab qwen-b                 two running engines, in turn
  spark-tui bench qwen-a --ab max_num_seqs=8         current settings, then a change
  spark-tui bench qwen-a --ab nemotron-30b           two presets, started in turn
  spark-tui bench qwen-a --ab image=vllm/vllm-openai:nightly
  spark-tui bench gpt-oss-120b --json > run.json
"""


@command("bench", _BENCH_EXAMPLES)
@engine_argument
@click.option("--concurrency", default="1,2,4,8", callback=_counts, metavar="N,N", help="Streams.  [1,2,4,8]")
@click.option("--input", "input_tokens", type=int, default=1024, metavar="N", help="Prompt tokens.  [1024]")
@click.option("--output", "output_tokens", type=int, default=128, metavar="N", help="Answer tokens.  [128]")
@click.option(
    "--prefill-depths", "depths", default="", callback=_counts, metavar="N,N", help="Prompt lengths, one stream."
)
@click.option("--passes", type=int, default=3, metavar="N", help="Repetitions of everything.  [3]")
@click.option("--rounds", type=int, default=2, metavar="N", help="Requests per stream and pass.  [2]")
@click.option("--warmup", type=int, default=2, metavar="N", help="Warm-up requests per stream, not counted.  [2]")
@click.option("--content", type=click.Choice(["random", "prose"]), default="random", help="Prompt text.  [random]")
@click.option("--warm-cache", is_flag=True, help="The same prompt each time: measures the prefix cache.")
@click.option("--as-text", is_flag=True, help="Send prompts as text and not as token ids.")
@click.option("--temperature", type=click.FloatRange(0, 10), default=0.0, metavar="T", help="Sampling.  [0]")
@click.option("--seed", type=int, default=1, metavar="N", help="Seed of the prompts.  [1]")
@click.option(
    "--ab",
    "other",
    default="",
    metavar="OTHER",
    help="A/B with a preset, ENGINE, container=NAME, image=IMAGE or KEY=VALUE.",
)
@yes_option
def bench(
    session: Session, name: str, other: str, content: str, warm_cache: bool, as_text: bool, yes: bool, **load: Any
) -> int:
    """Measure how fast an engine is: one stream, several, long prompts.

    Real streaming requests with uncached prompts of exact length. Latencies as `vllm bench serve` defines them. Failed
    and short requests are reported separately. The result is saved: see `results`.
    """
    plan = BenchPlan(
        **load,
        content=Content(content),
        prompt_cache=PromptCache.WARM if warm_cache else PromptCache.COLD,
        form=PromptForm.TEXT if as_text else PromptForm.TOKENS,
    )
    # The options by the plan's fields: `input_tokens` is `--input`.
    options = {each.name: each.opts[0] for each in click.get_current_context().command.params if each.name}
    return _bench(session, name, plan, other=other, options=options, yes=yes)


def _bench(
    session: Session, name: str, plan: BenchPlan, *, other: str = "", options: Mapping[str, str] | None = None,
    yes: bool = False,
) -> int:  # fmt: skip
    """Measures, prints, keeps. Exit code 1 when the measurement failed or was stopped. `options` are the command
    line's names for the plan's fields."""
    try:
        check_plan(plan)
    except PlanError as error:
        named = [word for field in error.fields if (word := (options or {}).get(field))]
        raise UsageError(error.summary, f"{error.remedy.rstrip('.')}: {', '.join(named)}.") from None
    ticker = _Ticker(session)
    running = running_engine(other)
    sides = sides_of(session, name, other, plan, yes=yes) if other and not running else None
    other = running or other
    work = (
        partial(_measure, session, name, other, plan, ticker)
        if sides is None
        else partial(_in_turns, session, sides, plan, ticker)
    )
    runs = session.run(work, on_interrupt=ticker.interrupted)
    session.err.settle()
    found = compare(*runs) if len(runs) == 2 else None
    if session.as_json:
        session.out.json(_as_data(runs, found))
    else:
        session.run(partial(_show, session, runs, found))
    return ExitCode.DONE if all(run.ending is Ending.COMPLETED for run in runs) else ExitCode.FAILED


async def _measure(
    session: Session, name: str, other: str, plan: BenchPlan, ticker: _Ticker, context: Context
) -> tuple[BenchRun, ...]:
    names = [(await find_container(context, each)).id for each in (name, other) if each]
    if context.demo:
        session.err.say("Simulated Spark: figures are not real.", "dim")
    if not other:
        return (await context.benchmark.run(names[0], plan, ticker),)
    return await context.benchmark.versus(names[0], names[1], plan, ticker)


async def _in_turns(
    session: Session, sides: tuple[Side, Side], plan: BenchPlan, ticker: _Ticker, context: Context
) -> tuple[BenchRun, ...]:
    if context.demo:
        session.err.say("Simulated Spark: figures are not real.", "dim")
    return await context.ab_runner.run(sides, plan, ticker)


def _as_data(runs: tuple[BenchRun, ...], found: Comparison | None) -> object:
    """One run as an object; two as an object of both and their comparison."""
    if found is None:
        return shapes_run(runs[0])
    return {
        "id": f"{runs[0].id}-{runs[1].id}",
        "runs": [shapes_run(run) for run in runs],
        "comparison": comparison(found),
    }


class _Ticker:
    """Tells a benchmark as it goes: one moving line where a person watches, a line per level in a pipe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told: dict[str, int] = {}
        self._step: tuple[str, BenchStep] | None = None
        self._at = float("-inf")
        self._last: BenchProgress | None = None

    def __call__(self, progress: BenchProgress) -> None:
        before, self._last = self._last, progress
        if self._session.as_json:
            return
        if before is None or progress.done > before.done:
            self._segment(progress)
        if self._session.err.interactive:
            self._moving(progress)
        elif self._step != (progress.engine, progress.step) and progress.step is not BenchStep.DONE:
            self._step = (progress.engine, progress.step)
            self._session.err.say(f"{progress.engine}: {progress.step.value}", "dim")

    def _segment(self, progress: BenchProgress) -> None:
        """A segment has ended: one line for it."""
        segment = progress.segment
        if segment is None or progress.step is not BenchStep.MEASURING:
            return
        run = next((each for each in progress.runs if each.conditions.engine == progress.engine), None)
        wanted = (segment.depth, segment.streams, segment.input_tokens)
        level = next((each for each in run.levels if each.key == wanted), None) if run else None
        if level is None or not level.pass_rates:
            return
        what = _what(segment)
        self._session.err.say(
            f"{progress.engine}  pass {segment.number}  {what:<12} {rate(level.pass_rates[-1]):>7} tok/s   "
            f"{progress.done}/{progress.total}{_left(progress)}"
        )

    def _moving(self, progress: BenchProgress) -> None:
        now = progress.seconds
        if progress.requests_running and now - self._at < _LINE_SECONDS:
            return
        self._at = now
        segment = progress.segment
        if progress.step is not BenchStep.MEASURING or segment is None:
            self._session.err.standing(f"{progress.engine}: {progress.step.value} {progress.detail or '...'}")
            return
        speed = "" if progress.rate is None else f"  {progress.rate:,.0f} tok/s"
        what = _what(segment)
        self._session.err.standing(
            f"{progress.engine}  pass {segment.number}  {what}  "
            f"{progress.requests_done}/{progress.requests_total} requests{speed}   "
            f"{progress.done}/{progress.total}{_left(progress)}"
        )

    def interrupted(self) -> Interrupted:
        """Ctrl-C: what was measured by then is kept."""
        runs = self._last.runs if self._last is not None else ()
        if not any(run.levels for run in runs):
            return Interrupted("", "")
        if any(run.conditions.simulated for run in runs):
            return Interrupted("The measurement was stopped.", "Simulated results are not saved.")
        ids = " ".join(run.id for run in runs)
        return Interrupted("The measurement was stopped.", f"Measured levels are saved: spark-tui results show {ids}")


def _what(segment: Segment) -> str:
    if segment.depth:
        return f"depth {segment.input_tokens}"
    return f"{segment.streams} stream{'s' if segment.streams > 1 else ''}"


def _left(progress: BenchProgress) -> str:
    return "" if progress.seconds_left is None else f"   {human_duration(progress.seconds_left)} left"


# --- showing --------------------------------------------------------------------------------------------


async def _show(session: Session, runs: tuple[BenchRun, ...], found: Comparison | None, context: Context) -> None:
    for run in runs:
        show_run(session, context, run)
    if found is not None:
        show_comparison(session, found)


def show_run(session: Session, context: Context, run: BenchRun) -> None:
    """A run: its tables, what has to be known, what the box did, what others published."""
    out, conditions = session.out, run.conditions
    out.line(f"{conditions.engine}  {conditions.model}  {conditions.runtime} {conditions.version}".rstrip())
    session.err.say(load_words(run), "dim")
    if run.sweep:
        out.table(sweep(run))
    if run.depths:
        out.table(depths(run))
    if words := headline(run):
        out.line(words)
    _box(session, run)
    for text, count in (each for level in run.levels for each in level.errors):
        session.err.say(f"{count} x {text}", "red")
    if run.ending is not Ending.COMPLETED:
        session.err.say(f"{run.ending.value}: {run.reason}", "yellow")
    for caveat in run.caveats:
        session.err.note(caveat)
    published = context.results.published(run)
    if published:
        out.line("published, like with like:")
        out.table(beside(published))
    _checks(session, run)
    if not context.demo:
        told = f"saved as {run.id}: spark-tui results show {run.id}" if run.levels else "not saved"
        session.err.say(told, "dim")


def _checks(session: Session, run: BenchRun) -> None:
    """Whether the server's own figures say the same."""
    judged = [check for check in run.checks if check.agrees is not None]
    agreeing = [check.what for check in judged if check.agrees]
    if judged:
        session.err.say(
            f"the server's own figures agree in {len(agreeing)} of {len(judged)}: {', '.join(agreeing)}", "dim"
        )


def _box(session: Session, run: BenchRun) -> None:
    box, parts = run.box, []
    if box.used_bytes_most is not None:
        parts.append(f"memory {gib(box.used_bytes_most)} GiB used at most")
    if box.power_watts_mean is not None:
        parts.append(f"GPU {box.power_watts_mean:.0f} W")
    if box.sm_clock_mhz_mean is not None:
        parts.append(f"{box.sm_clock_mhz_mean:.0f} MHz")
    if box.temperature_c_most is not None:
        parts.append(f"{box.temperature_c_most} C")
    if box.joules_per_token is not None:
        parts.append(f"{box.joules_per_token:.2f} J per token")
    if parts:
        session.out.line(", ".join(parts))


def show_comparison(session: Session, found: Comparison) -> None:
    """What two runs say about each other."""
    first, second = found.first, found.second
    session.out.line(f"{second.conditions.engine} ({second.id}) beside {first.conditions.engine} ({first.id})")
    if not found.comparable:
        session.out.lines(f"  not comparable: {_words(each)}" for each in found.obstacles)
        return
    session.out.table(compared(found))
    session.out.lines(f"  {_words(each)}" for each in found.differences)
    if not found.paired:
        session.err.note("Not alternated: the ratio includes any change of the machine in between.")


def _words(difference: object) -> str:
    what, first, second = (getattr(difference, name) for name in ("what", "first", "second"))
    return f"{what}: {first or 'not set'} -> {second or 'not set'}"


# --- results --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What was typed after `results list`."""

    model: str = ""
    status: str = ""


EVERYTHING: Final = ListOptions()


_STATUSES = ("benchmarked", "working", "pending", "failed")


@group("results")
def results(session: Session) -> None:
    """List, show, compare and export benchmark results. Without a command: the list."""
    list_results(session)


@results.sub("list", "  spark-tui results list --model qwen\n  spark-tui results --json | jq -r '.[].id'")
@click.option("--model", default="", metavar="TEXT", help="Only models and engines with this in their name.")
@click.option("--status", type=click.Choice(_STATUSES), default=None, help="Only results with this status.")
def results_list(session: Session, model: str, status: str | None) -> None:
    """List results, the newest first."""
    list_results(session, ListOptions(model, status or ""))


def list_results(session: Session, options: ListOptions = EVERYTHING) -> None:
    """The ledger, the newest first."""

    async def work(context: Context) -> None:
        kept = [
            result
            for result in context.results.all()
            if options.model.lower() in f"{result.model} {result.engine}".lower()
            and options.status in ("", result.status.value)
        ]
        for problem in context.results.problems():
            session.err.note(problem)
        if session.as_json:
            session.out.json([shapes_result(result) for result in kept])
        elif kept:
            session.out.table(ledger(kept, context.clock.now()))
        else:
            session.err.say("No results yet: spark-tui bench NAME")

    session.run(work)


@results.sub("show", "  spark-tui results show last")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
def show_results(session: Session, keys: tuple[str, ...]) -> None:
    """Show a result in full, with published results for its model."""

    async def work(context: Context) -> None:
        found = [context.results.find(key) for key in keys or ("last",)]
        if session.as_json:
            told = [shapes_result(result, whole=True) for result in found]
            session.out.json(told[0] if len(told) == 1 else told)
            return
        for result in found:
            if result.run is not None:
                show_run(session, context, result.run)
            else:
                session.out.table(ledger((result,), context.clock.now()))

    session.run(work)


@results.sub("compare", "  spark-tui results compare 3f2a 9c1b\n  spark-tui results compare last")
@click.argument("first", metavar="ID|ENGINE")
@click.argument("second", required=False, default="", metavar="[ID|ENGINE]")
def compare_results(session: Session, first: str, second: str) -> int:
    """Compare two results, or one with the last result of the same model and load.

    Refuses to compare different loads; every other difference is named. Exit code 1: not comparable.
    """

    async def work(context: Context) -> Comparison:
        if second:
            return context.results.compare(first, second)
        run = context.results.measured(first)
        before = context.results.history(run)
        if not before:
            raise UsageError(
                f"There is no earlier result of {run.conditions.model} with this load.", "Name two results."
            )
        return compare(before[0], run)

    found = session.run(work)
    if session.as_json:
        session.out.json(comparison(found))
    else:
        show_comparison(session, found)
    return ExitCode.DONE if found.comparable else ExitCode.FAILED


@results.sub("export", "  spark-tui results export --format markdown > RESULTS.md")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
@click.option(
    "--format", "format_", type=click.Choice(["markdown", "csv", "json"]), default="markdown", help="[markdown]"
)
def export_results(session: Session, keys: tuple[str, ...], format_: str) -> None:
    """Export results on stdout; all of them when none is named."""
    from spark_tui.domain.bench.export import csv_text, markdown, result_to_json

    async def work(context: Context) -> None:
        kept = context.results.all()
        for problem in context.results.problems():
            session.err.note(problem)
        found = tuple(context.results.find(key) for key in keys) if keys else kept
        if format_ == "json" or session.as_json:
            session.out.json([result_to_json(result) for result in found])
        else:
            session.out.write(markdown(found) if format_ == "markdown" else csv_text(found))

    session.run(work)


@results.sub("mark", '  spark-tui results mark acme/big-70b failed "CUDA driver error 35"')
@click.argument("model", shell_complete=complete("models"))
@click.argument("status", type=click.Choice(_STATUSES[1:]))
@click.argument("reason", required=False, default="")
@click.option("--quantization", default="", metavar="TEXT", help="NVFP4, FP8 ...")
@click.option("--runtime", default="", metavar="TEXT", help="vllm, sglang ...")
def mark_result(session: Session, model: str, status: str, reason: str, quantization: str, runtime: str) -> None:
    """Record that a model works, failed, or is still to be tried."""

    async def work(context: Context) -> None:
        host = context.host.identity()
        result = context.results.mark(
            model,
            Status(status),
            quantization=quantization,
            runtime=runtime,
            platform=host.product or host.hostname,
            reason=reason,
        )
        if session.as_json:
            session.out.json(shapes_result(result))
        else:
            session.err.say(f"saved as {result.id}")

    session.run(work)


@results.sub("rm", "  spark-tui results rm 3f2a\n  spark-tui results rm 3f2a 9c1b --yes")
@click.argument("keys", nargs=-1, required=True, metavar="ID|ENGINE|last...")
@yes_option
def remove_results(session: Session, keys: tuple[str, ...], yes: bool) -> None:
    """Delete results for good; asks first."""

    async def find(context: Context) -> tuple[tuple[Result, ...], float]:
        found = {result.id: result for result in (context.results.find(key) for key in keys)}
        return tuple(found.values()), context.clock.now()

    found, now = session.run(find)
    if not session.as_json:
        for result in found:
            session.err.say(_line(result, now))
    what = "this result" if len(found) == 1 else f"these {len(found)} results"
    if not confirm(session, f"Delete {what} for good?", yes=yes):
        session.err.say("Nothing was deleted.")
        return

    async def delete(context: Context) -> int:
        return context.results.delete(found)

    count = session.run(delete)
    if session.as_json:
        session.out.json({"id": " ".join(result.id for result in found), "deleted": count})
    else:
        session.err.say(f"Deleted: {count} of {len(found)}.")


def _line(result: Result, now: float) -> str:
    """`3f2a91c04b  2 h ago  benchmarked  qwen  nvidia/Qwen3.6-35B-A3B-NVFP4`."""
    words = (result.id, ago(now - result.at), result.status.value, result.engine, result.model)
    return "  ".join(word for word in words if word)
