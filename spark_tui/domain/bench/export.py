"""Results for other programs and other people: Markdown, CSV. JSON is the codec's."""

from __future__ import annotations

import csv
import io
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from spark_tui.domain.bench.conditions import quantization_words
from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.bench.run import BenchRun, Level, Result, Status
from spark_tui.domain.bench.statistics import Distribution
from spark_tui.domain.quantities import gib
from spark_tui.domain.text import clean_line

_MARKED: Final = str.maketrans({"|": "\\|", "<": "&lt;", "`": "'"})
_FORMULA: Final = ("=", "+", "-", "@")


def markdown(results: Sequence[Result]) -> str:
    """The ledger as tables by status, as deployment registries have them, and every measured run in full."""
    parts = ["# Benchmarks", ""]
    for status in Status:
        rows = [result for result in results if result.status is status]
        if rows:
            parts += [f"## {status.value.capitalize()} ({len(rows)})", "", *_ledger(status, rows), ""]
    for result in results:
        if result.run is not None:
            parts += [*_run(result.run), ""]
    return "\n".join(parts).rstrip() + "\n"


def _ledger(status: Status, results: Sequence[Result]) -> list[str]:
    if status is not Status.BENCHMARKED:
        rows = [(r.model, r.quantization, r.runtime, r.platform, r.reason, _day(r.at)) for r in results]
        return _table(("Model", "Quant", "Runtime", "Platform", "Reason", "Date"), rows, ())
    ordered = sorted(results, key=lambda result: -((result.run.single if result.run else None) or 0))
    heads = ("Single TPS", "Batched TPS", "Scaling eff", "Knee", "Model", "Quant", "Runtime", "Platform", "Memory GiB")
    return _table((*heads, "Date", "Id"), [_ledger_row(result) for result in ordered], (0, 1, 2, 3, 8))


def _ledger_row(result: Result) -> tuple[str, ...]:
    run = result.run
    curve = run.scaling if run else None
    used = run.box.used_bytes_most if run else None
    efficiency = curve.efficiency if curve else None
    return (
        rate(run.single if run else None),
        rate(run.batched if run else None),
        "-" if efficiency is None else f"{efficiency:.0%}",
        knee_words(run),
        result.model + (" (simulated)" if result.simulated else ""),
        quantization_words(result.model, result.quantization),
        result.runtime,
        result.platform,
        "-" if used is None else gib(used),
        _day(result.at),
        result.id,
    )


def knee_words(run: BenchRun | None) -> str:
    """`8`, `32+` where the knee may lie beyond the levels measured, a dash where there is none."""
    curve = run.scaling if run else None
    if curve is None or curve.knee_streams is None:
        return "-"
    return f"{curve.knee_streams}{'+' if curve.knee_is_last else ''}"


def _run(run: BenchRun) -> list[str]:
    plan, conditions = run.plan, run.conditions
    lines = [f"## {_text(conditions.engine)}, {_day(run.at)} ({run.id})", ""]
    told = (
        ("Model", conditions.model),
        ("Revision", conditions.revision),
        ("Quantization", quantization_words(conditions.model, conditions.quantization)),
        ("Runtime", f"{conditions.runtime} {conditions.version}".strip()),
        ("Image", conditions.image_digest or f"{conditions.image} ({conditions.image_id[:19]})"),
        ("Flags", " ".join(conditions.flags)),
        ("Platform", f"{conditions.platform} {conditions.gpu} {conditions.driver}".strip()),
        ("Load", load_words(run)),
        ("Ended", f"{run.ending.value}{': ' if run.reason else ''}{run.reason}"),
    )
    lines += [f"- {label}: {_text(value)}" for label, value in told if value.strip()]
    lines += ["", *_table(LEVEL_HEADS, [level_row(level) for level in run.levels], tuple(range(len(LEVEL_HEADS))))]
    lines += ["", *(f"- {_text(caveat)}" for caveat in run.caveats)] if run.caveats else []
    lines += ["", f"Prompt {plan.form.value}, seed {plan.seed}, spark-tui {conditions.tool_version}."]
    return lines


def load_words(run: BenchRun) -> str:
    """The load in one line."""
    plan = run.plan
    heat = "default temperature" if plan.temperature is None else f"temperature {plan.temperature:g}"
    return (
        f"{plan.input_tokens} prompt tokens ({plan.content.value}, {plan.prompt_cache.value} cache), "
        f"{plan.output_tokens} output tokens, {plan.passes} passes of {plan.rounds} requests per stream, {heat}"
    )


# --- levels ---------------------------------------------------------------------------------------------

LEVEL_HEADS: Final = (
    "Streams", "Prompt", "tok/s", "± 95 %", "tok/s per stream", "Prefill tok/s", "TTFT p50 ms", "p95",
    "ITL p50 ms", "p95", "TPOT p50 ms", "E2E p50 s", "Complete", "Not",
)  # fmt: skip


def latencies(level: Level) -> tuple[str, ...]:
    """TTFT p50 and p95, ITL p50 and p95, TPOT p50, each in ms, and E2E p50 in s."""
    return (
        milliseconds(level.ttft, "p50"),
        milliseconds(level.ttft, "p95"),
        milliseconds(level.itl, "p50"),
        milliseconds(level.itl, "p95"),
        milliseconds(level.tpot, "p50"),
        "-" if level.e2e is None else f"{level.e2e.p50:.2f}",
    )


def level_row(level: Level) -> tuple[str, ...]:
    """One level in the order of LEVEL_HEADS."""
    spread = level.output_interval
    return (
        str(level.streams),
        str(level.input_tokens),
        rate(level.output_rate),
        "-" if spread is None else rate((spread.high - spread.low) / 2),
        rate(level.decode_rate.p50 if level.decode_rate else None),
        rate(level.prefill_rate.p50 if level.prefill_rate else None),
        *latencies(level),
        str(level.counts.complete),
        str(level.counts.bad + level.counts.cancelled),
    )


def rate(value: float | None) -> str:
    """Tokens per second with three telling figures."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(found: Distribution | None, figure: str) -> str:
    """A figure of a distribution of seconds, in milliseconds; a dash where there is none."""
    if found is None:
        return "-"
    value = float(getattr(found, figure)) * 1000
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# --- CSV ------------------------------------------------------------------------------------------------

_CSV: Final[tuple[tuple[str, Callable[[Result, BenchRun, Level], object]], ...]] = (
    ("id", lambda result, _, __: result.id),
    ("at", lambda result, _, __: _moment(result.at)),
    ("status", lambda result, _, __: result.status.value),
    ("ending", lambda _, run, __: run.ending.value),
    ("simulated", lambda result, _, __: result.simulated),
    ("model", lambda result, _, __: result.model),
    ("revision", lambda _, run, __: run.conditions.revision),
    ("quantization", lambda result, _, __: result.quantization),
    ("runtime", lambda result, _, __: result.runtime),
    ("version", lambda _, run, __: run.conditions.version),
    ("image", lambda _, run, __: run.conditions.image),
    ("image_id", lambda _, run, __: run.conditions.image_id),
    ("flags", lambda _, run, __: " ".join(run.conditions.flags)),
    ("platform", lambda result, _, __: result.platform),
    ("driver", lambda _, run, __: run.conditions.driver),
    ("content", lambda _, run, __: run.plan.content.value),
    ("prompt_cache", lambda _, run, __: run.plan.prompt_cache.value),
    ("depth", lambda _, __, level: level.depth),
    ("streams", lambda _, __, level: level.streams),
    ("input_tokens", lambda _, __, level: level.input_tokens),
    ("output_tokens", lambda _, __, level: level.output_tokens),
    ("passes", lambda _, __, level: level.passes),
    ("complete", lambda _, __, level: level.counts.complete),
    ("short", lambda _, __, level: level.counts.short),
    ("truncated", lambda _, __, level: level.counts.truncated),
    ("failed", lambda _, __, level: level.counts.failed),
    ("cancelled", lambda _, __, level: level.counts.cancelled),
    ("output_tokens_per_second", lambda _, __, level: level.output_rate),
    ("total_tokens_per_second", lambda _, __, level: level.total_rate),
    ("requests_per_second", lambda _, __, level: level.request_rate),
    *(
        (f"{name}_{figure}_{unit}", lambda _, __, level, name=name, figure=figure: _figure(level, name, figure))
        for name, unit in (
            ("ttft", "seconds"), ("itl", "seconds"), ("tpot", "seconds"), ("e2e", "seconds"),
            ("decode_rate", "tokens_per_second"), ("prefill_rate", "tokens_per_second"),
        )
        for figure in ("mean", "p50", "p95", "p99")
    ),
    ("power_watts_mean", lambda _, run, __: run.box.power_watts_mean),
    ("memory_used_bytes_most", lambda _, run, __: run.box.used_bytes_most),
    ("sm_clock_mhz_mean", lambda _, run, __: run.box.sm_clock_mhz_mean),
)  # fmt: skip


def csv_text(results: Iterable[Result]) -> str:
    """One line per measured level, units in the headings; an empty cell is not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in _CSV])
    for result in results:
        run = result.run
        for level in run.levels if run is not None else ():
            if run is not None:
                writer.writerow([_cell(value(result, run, level)) for _, value in _CSV])
    return text.getvalue()


def _figure(level: Level, name: str, figure: str) -> float | None:
    found = getattr(level, name)
    return None if found is None else float(getattr(found, figure))


def _cell(value: object) -> str:
    """A value for a spreadsheet, in which text must not become a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = clean_line(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


# --- words ----------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> list[str]:
    rule = " | ".join("---:" if at in right else "---" for at in range(len(heads)))
    lines = [f"| {' | '.join(heads)} |", f"| {rule} |"]
    return lines + [f"| {' | '.join(_text(cell) or '-' for cell in row)} |" for row in rows]


def _text(text: str) -> str:
    """Text from outside in a Markdown table or list: one line, no markup."""
    return clean_line(text).translate(_MARKED)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


VERSION: Final = 1
T = TypeVar("T")


class Unreadable(ValueError):
    """It is none of ours, damaged, or of a newer version."""


def result_to_json(result: Result) -> dict[str, Any]:
    """A JSON object."""
    return {"version": VERSION, **cast("dict[str, Any]", plain(result))}


def result_from_json(told: object) -> Result:
    """The result in a JSON object. Raises Unreadable. Unknown keys are left out; absent ones have their default."""
    if not isinstance(told, Mapping):
        raise Unreadable("it is no JSON object")
    version = told.get("version")
    if not isinstance(version, int) or version < 1:
        raise Unreadable("it has no version")
    if version > VERSION:
        raise Unreadable(f"it is of version {version}, and this program knows {VERSION}: it is newer")
    return cast("Result", _typed(Result, told, "result"))


def record_to_json(record: RequestRecord) -> list[Any]:
    """A compact form for a pipe: the values in the fields' order."""
    return [getattr(record, each.name) for each in fields(RequestRecord)]


def record_from_json(told: list[Any]) -> RequestRecord:
    """The other way round."""
    values = dict(zip((each.name for each in fields(RequestRecord)), told, strict=True))
    return RequestRecord(**{**values, "chunks": tuple(values["chunks"])})


def plain(value: object) -> object:
    """Dataclasses as objects, tuples as arrays, enumerations as their values; None is left out of objects."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return value


def _typed(kind: Any, told: Any, where: str) -> Any:
    """`told` as the annotation `kind` wants it. Raises Unreadable."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        return None if told is None else _typed(inner[0], told, where)
    if origin is tuple:
        return _tuple(get_args(kind), told, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(told)
        except ValueError:
            raise Unreadable(f"{where} is {told!r}") from None
    if is_dataclass(kind):
        return _object(kind, told, where)
    if kind is float and told == "inf":
        return float("inf")
    wanted = (int, float) if kind is float else kind
    if not isinstance(told, wanted) or (isinstance(told, bool) and kind is not bool):
        raise Unreadable(f"{where} is {told!r}")
    return float(told) if kind is float else told


def _tuple(inner: tuple[Any, ...], told: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(told, list | tuple):
        raise Unreadable(f"{where} is no list")
    kinds = [inner[0]] * len(told) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(told):
        raise Unreadable(f"{where} has {len(told)} parts")
    return tuple(_typed(kind, item, where) for kind, item in zip(kinds, told, strict=True))


def _object(kind: Any, told: Any, where: str) -> Any:
    if not isinstance(told, Mapping):
        raise Unreadable(f"{where} is no object")
    hints = _hints(kind)
    values = {name: _typed(hint, told[name], f"{where}.{name}") for name, hint in hints.items() if name in told}
    try:
        return kind(**_with_none(hints, values))
    except TypeError:
        raise Unreadable(f"{where} is incomplete") from None


def _with_none(hints: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """What may be None and was left out is None."""
    optional = [name for name, hint in hints.items() if type(None) in get_args(hint)]
    return {**dict.fromkeys(optional), **values}


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
