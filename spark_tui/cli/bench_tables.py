"""Benchmarks as text: the table of levels, the ledger, a comparison, what others published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spark_tui.cli.engines import ago
from spark_tui.cli.tables import Cell, Column, Table
from spark_tui.domain.bench.compare import Comparison, Row, Verdict
from spark_tui.domain.bench.conditions import quantization_words
from spark_tui.domain.bench.export import knee_words, latencies, milliseconds, rate
from spark_tui.domain.bench.level import Level
from spark_tui.domain.bench.references import Beside
from spark_tui.domain.bench.result import Result, Status
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.bench.scaling import efficiency
from spark_tui.domain.quantities import gib, human_count

_STYLES: Final = {
    Status.BENCHMARKED: "green",
    Status.WORKING: "",
    Status.PENDING: "dim",
    Status.FAILED: "red",
}
_VERDICTS: Final = {Verdict.FASTER: "green", Verdict.SLOWER: "red"}

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
    Column("RUNTIME"), Column("MODEL", flexible=True), Column("WHY", flexible=True),
)  # fmt: skip
_COMPARED: Final = (
    Column("LEVEL"), Column("FIRST TOK/S", right=True), Column("SECOND TOK/S", right=True),
    Column("RATIO", right=True), Column("95 %"), Column("VERDICT"),
)  # fmt: skip
_BESIDE: Final = (
    Column("STREAMS", right=True), Column("OURS", right=True), Column("THEIRS", right=True),
    Column("RATIO", right=True), Column("SOURCE", flexible=True), Column("DIFFERS", flexible=True),
)  # fmt: skip


def sweep(run: BenchRun) -> Table:
    """The levels by number of streams."""
    return Table(_SWEEP, tuple(_level(run, level) for level in run.sweep))


def _level(run: BenchRun, level: Level) -> tuple[Cell | str, ...]:
    share, spread = efficiency(run.throughput, level.streams), level.output_interval
    return (
        str(level.streams),
        Cell(rate(level.output_rate), "bold"),
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
        (
            human_count(level.input_tokens),
            Cell(rate(level.prefill_rate.p50 if level.prefill_rate else None), "bold"),
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
    return Cell(str(bad), "bold red" if level.counts.bad else "")


def headline(run: BenchRun) -> str:
    """`single 41.3 tok/s, most 156 tok/s at 8 streams, scaling 54 %, knee at 8 or beyond`."""
    curve, parts = run.scaling, []
    if run.single is not None:
        parts.append(f"single {rate(run.single)} tok/s")
    if curve is not None and curve.most_streams > 1:
        parts.append(f"most {rate(curve.most_throughput)} tok/s at {curve.most_streams} streams")
    if curve is not None and curve.efficiency is not None and len(run.sweep) > 1:
        parts.append(f"scaling {curve.efficiency:.0%}")
        parts.append(f"knee at {curve.knee_streams} streams{' or beyond' if curve.knee_is_last else ''}")
    return ", ".join(parts)


def ledger(results: Iterable[Result], now: float) -> Table:
    """One row per result, as they come."""
    return Table(_LEDGER, tuple(_result(result, now) for result in results))


def _result(result: Result, now: float) -> tuple[Cell | str, ...]:
    run = result.run
    used = run.box.used_bytes_most if run else None
    return (
        Cell(result.id, "bold"),
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


def _row(row: Row) -> tuple[Cell | str, ...]:
    spread = row.interval
    return (
        f"depth {human_count(row.input_tokens)}" if row.depth else f"{row.streams} streams",
        rate(row.first.output_rate),
        rate(row.second.output_rate),
        Cell("-" if row.ratio is None else f"{row.ratio:.3f}", "bold"),
        "-" if spread is None else f"{spread.low:.3f} to {spread.high:.3f}",
        Cell(row.verdict.value, _VERDICTS.get(row.verdict, "dim")),
    )


def beside(found: Sequence[Beside]) -> Table:
    """Published figures beside ours."""
    return Table(
        _BESIDE,
        tuple(
            (
                str(each.reference.streams),
                rate(each.ours),
                rate(each.theirs),
                Cell(f"{each.ratio:.2f}", "" if each.within_scatter else "yellow"),
                f"{each.source.title}, {each.reference.date} ({each.source.licence})",
                "; ".join(each.differs) or "nothing that is known",
            )
            for each in found
        ),
    )
