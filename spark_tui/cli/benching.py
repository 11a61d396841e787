"""bench: measures an engine, or two in turn. results: what was measured, compared, exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from spark_tui.cli import bench_shapes, bench_tables
from spark_tui.cli.bench_sides import sides_of
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.engines import find_container
from spark_tui.cli.session import Session
from spark_tui.core.bench_progress import BenchProgress, BenchStep
from spark_tui.core.bench_sides import Side
from spark_tui.core.context import Context
from spark_tui.domain.bench.compare import Comparison, compare
from spark_tui.domain.bench.export import load_words, rate
from spark_tui.domain.bench.plan import BenchPlan, PlanError, Segment, check_plan
from spark_tui.domain.bench.result import Status
from spark_tui.domain.bench.run import BenchRun, Ending
from spark_tui.domain.errors import ExitCode, UsageError
from spark_tui.domain.quantities import gib, human_duration

_LINE_SECONDS: Final = 0.2
"""Where a person watches, the line moves at most so often."""


def bench(
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
    sides = sides_of(session, name, other, plan, yes=yes) if other else None
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
        session.err.say("Figures are simulated, and compared with nothing real.", "dim")
    if not other:
        return (await context.benchmark.run(names[0], plan, ticker),)
    return await context.benchmark.versus(names[0], names[1], plan, ticker)


async def _in_turns(
    session: Session, sides: tuple[Side, Side], plan: BenchPlan, ticker: _Ticker, context: Context
) -> tuple[BenchRun, ...]:
    if context.demo:
        session.err.say("Figures are simulated, and compared with nothing real.", "dim")
    return await context.bench_turns.run(sides, plan, ticker)


def _as_data(runs: tuple[BenchRun, ...], found: Comparison | None) -> object:
    """One run as an object; two as an object of both and their comparison."""
    if found is None:
        return bench_shapes.run(runs[0])
    return {
        "id": f"{runs[0].id}-{runs[1].id}",
        "runs": [bench_shapes.run(run) for run in runs],
        "comparison": bench_shapes.comparison(found),
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
            return Interrupted("The measurement was stopped.", "Nothing is kept of a simulated one.")
        ids = " ".join(run.id for run in runs)
        return Interrupted("The measurement was stopped.", f"What it had is kept: spark-tui results show {ids}")


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
        out.table(bench_tables.sweep(run))
    if run.depths:
        out.table(bench_tables.depths(run))
    if words := bench_tables.headline(run):
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
        out.table(bench_tables.beside(published))
    _checks(session, run)
    if not context.demo:
        told = f"kept as {run.id}: spark-tui results show {run.id}" if run.levels else "nothing was kept"
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
    session.out.table(bench_tables.compared(found))
    session.out.lines(f"  {_words(each)}" for each in found.differences)
    if not found.paired:
        session.err.note("They were not measured in turn: what changed on the box in between is in the ratio.")


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
            session.out.json([bench_shapes.result(result) for result in kept])
        elif kept:
            session.out.table(bench_tables.ledger(kept, context.clock.now()))
        else:
            session.err.say("There are no results yet. Measure an engine: spark-tui bench NAME")

    session.run(work)


def show_results(session: Session, keys: tuple[str, ...]) -> None:
    """Results in full, by id, by the beginning of one, by engine or model; `last`."""

    async def work(context: Context) -> None:
        found = [context.results.find(key) for key in keys or ("last",)]
        if session.as_json:
            told = [bench_shapes.result(result, whole=True) for result in found]
            session.out.json(told[0] if len(told) == 1 else told)
            return
        for result in found:
            if result.run is not None:
                show_run(session, context, result.run)
            else:
                session.out.table(bench_tables.ledger((result,), context.clock.now()))

    session.run(work)


def compare_results(session: Session, first: str, second: str) -> int:
    """The second beside the first. Exit code 1 when they cannot be compared."""

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
        session.out.json(bench_shapes.comparison(found))
    else:
        show_comparison(session, found)
    return ExitCode.DONE if found.comparable else ExitCode.FAILED


def export_results(session: Session, keys: tuple[str, ...], format_: str) -> None:
    """Results as Markdown, CSV or JSON on standard output; all of them without a key."""
    from spark_tui.domain.bench.codec import result_to_json
    from spark_tui.domain.bench.export import csv_text, markdown

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


def mark_result(session: Session, model: str, status: str, reason: str, *, quantization: str, runtime: str) -> None:
    """Keeps a verdict without a measurement."""

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
            session.out.json(bench_shapes.result(result))
        else:
            session.err.say(f"kept as {result.id}")

    session.run(work)
