"""Benchmarks for other programs and people: the objects of `--json`, Markdown, and result files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import asdict

from spark_tui.base.engine.runtimes import quantization_words
from spark_tui.base.page import Object, maybe, moment, rounded
from spark_tui.base.quantities import gib
from spark_tui.base.text import clean_line
from spark_tui.observe.results.model.compare import Comparison, Difference
from spark_tui.observe.results.model.plan import Conditions
from spark_tui.observe.results.model.record import ConfidenceInterval, Distribution
from spark_tui.observe.results.model.run import BenchRun, Level, Result, Status, result_to_json
from spark_tui.use.bench.show.bench import knee_word, latencies, load_text, rate, spread

NOT_MEASURED: Final = "not measured"
NOT_KNOWN: Final = "not known"
ALONE: Final = "one stream alone was not measured"
NOT_REPORTED: Final = "the driver does not report it"
_PLAN: Final = (
    ("input_tokens", "input_tokens"), ("output_tokens", "output_tokens"), ("concurrency", "concurrency"),
    ("depth_tokens", "depths"), ("passes", "passes"), ("rounds", "rounds"), ("warmup", "warmup"),
    ("content", "content"), ("prompt_cache", "prompt_cache"), ("prompts_sent_as", "form"),
)  # fmt: skip
_CONDITIONS: Final = (
    "served_name", "revision", "quantization", "runtime", "version", "image", "image_id", "image_digest", "preset",
    "context_tokens", "most_sequences", "kv_tokens", "kv_cache_dtype", "speculation", "attention", "linear_kernel",
    "moe_kernel", "eager", "prefix_caching", "platform", "hostname", "kernel", "gpu", "driver", "tool_version",
    "python", "nccl", "bandwidth",
)  # fmt: skip
_HOST: Final = (
    ("memory_used_bytes_most", "used_bytes_most", NOT_KNOWN, 0),
    ("memory_usable_bytes_least", "usable_bytes_least", NOT_KNOWN, 0),
    ("power_watts_mean", "power_watts_mean", NOT_REPORTED, 3),
    ("power_watts_most", "power_watts_most", NOT_REPORTED, 3),
    ("temperature_celsius_most", "temperature_c_most", NOT_REPORTED, 0),
    ("sm_clock_mhz_mean", "sm_clock_mhz_mean", NOT_REPORTED, 3),
    ("sm_clock_mhz_least", "sm_clock_mhz_least", NOT_REPORTED, 0),
    ("utilization_percent_mean", "utilization_percent_mean", NOT_REPORTED, 3),
    ("joules_per_output_token", "joules_per_token", NOT_REPORTED, 4),
)
_RATES: Final = (
    ("total_tokens_per_second", "total_rate", 3),
    ("requests_per_second", "request_rate", 4),
    ("peak_tokens_per_second", "peak_rate", 3),
    ("tokens_per_chunk", "tokens_per_chunk", 3),
)
_DISTRIBUTIONS: Final = (
    ("ttft_seconds", "ttft"), ("itl_seconds", "itl"), ("tpot_seconds", "tpot"), ("e2e_seconds", "e2e"),
    ("decode_tokens_per_second", "decode_rate"), ("stream_tokens_per_second", "stream_rate"),
    ("prefill_tokens_per_second", "prefill_rate"),
)  # fmt: skip


# --- objects ----------------------------------------------------------------------------------------------


def runs_object(runs: Sequence[BenchRun], found: Comparison | None) -> Object:
    if found is None:
        return run_object(runs[0])
    return {
        "id": f"{runs[0].id}-{runs[1].id}",
        "runs": [run_object(run) for run in runs],
        "comparison": comparison_object(found),
    }


def run_object(run: BenchRun) -> Object:
    """One run with everything that decides its numbers."""
    curve, plan, host = run.scaling, run.plan, run.host
    return {
        "id": run.id,
        "at": moment(run.at),
        "ending": run.ending.value,
        **maybe("ending_cause", run.reason, "it ran to its end"),
        "seconds": round(run.seconds, 2),
        "simulated": run.conditions.simulated,
        **maybe("paired_with", run.pair, "it was measured alone"),
        **maybe("single_stream_tokens_per_second", rounded(run.single), ALONE),
        **maybe("batched_tokens_per_second", rounded(run.batched), "several streams were not measured"),
        **maybe("scaling_efficiency", rounded(curve.efficiency if curve else None, 4), ALONE),
        **maybe("knee_streams", curve.knee_streams if curve else None, ALONE),
        **maybe("knee_tokens_per_second", rounded(curve.knee_throughput if curve else None), ALONE),
        "knee_may_lie_beyond": bool(curve and curve.knee_is_last),
        "caveats": list(run.caveats),
        "plan": {
            **{key: getattr(plan, name) for key, name in _PLAN},
            **maybe("temperature", plan.temperature, "the server's own"),
            "seed": plan.seed,
        },
        "conditions": _conditions(run.conditions),
        "levels": [_level(each) for each in run.levels],
        "box": {
            "samples": host.samples,
            **_merged(maybe(key, _exact(getattr(host, name), digits), why) for key, name, why, digits in _HOST),
        },
        **maybe("clock_lateness_seconds", _distribution(run.lateness), "time is simulated"),
        "server_checks": [
            {
                "id": check.what,
                "ours": round(check.ours, 6),
                "server_low": round(check.low, 6),
                "server_high": "infinity" if check.high == float("inf") else round(check.high, 6),
                **maybe("agrees", check.agrees, "it cannot be judged"),
            }
            for check in run.checks
        ],
    }


def _merged(objects: Iterable[Object]) -> Object:
    return {key: value for each in objects for key, value in each.items()}


def _exact(value: float | None, digits: int) -> float | None:
    return rounded(value, digits) if digits else value


def _conditions(found: Conditions) -> Object:
    return {
        "engine": found.engine,
        "model": found.model,
        **_merged(maybe(name, getattr(found, name), NOT_KNOWN) for name in _CONDITIONS),
        **maybe("engine_seconds", rounded(found.engine_seconds), NOT_KNOWN),
        "flags": list(found.flags),
        "environment": list(found.environment),
        "nodes": list(found.nodes),
        "rails": list(found.rails),
    }


def _level_id(level: Level) -> str:
    return f"depth-{level.input_tokens}" if level.depth else f"streams-{level.streams}"


def _level(level: Level) -> Object:
    none = "no request was complete"
    return {
        "id": _level_id(level),
        "streams": level.streams,
        "input_tokens": level.input_tokens,
        "output_tokens": level.output_tokens,
        "depth": level.depth,
        "passes": level.passes,
        "seconds": round(level.seconds, 3),
        "requests": asdict(level.counts),
        **maybe("output_tokens_per_second", rounded(level.output_rate), none),
        **maybe("output_tokens_per_second_interval", _interval(level.output_interval), "it takes two finished passes"),
        "pass_tokens_per_second": [round(each, 3) for each in level.pass_rates],
        **_merged(maybe(key, rounded(getattr(level, name), digits), none) for key, name, digits in _RATES),
        **_merged(maybe(key, _distribution(getattr(level, name)), none) for key, name in _DISTRIBUTIONS),
        "errors": [{"message": text, "count": count} for text, count in level.errors],
        "prompts_of_another_length": level.wrong_lengths,
        **maybe("cached_tokens", level.cached_tokens, "the server does not report it"),
    }


def result_object(result: Result, *, whole: bool = False) -> Object:
    """One entry; with `whole` the run with it."""
    run = result.run
    found: Object = {
        "id": result.id,
        "at": moment(result.at),
        "status": result.status.value,
        "model": result.model,
        **maybe("quantization", result.quantization, NOT_KNOWN),
        **maybe("runtime", result.runtime, NOT_KNOWN),
        **maybe("platform", result.platform, NOT_KNOWN),
        **maybe("engine", result.engine, NOT_KNOWN),
        **maybe("cause", result.reason, "there is nothing to say"),
        "simulated": result.simulated,
        **maybe("single_stream_tokens_per_second", rounded(run.single if run else None), NOT_MEASURED),
        **maybe("batched_tokens_per_second", rounded(run.batched if run else None), NOT_MEASURED),
        **maybe("memory_used_bytes_most", run.host.used_bytes_most if run else None, NOT_MEASURED),
    }
    return found | maybe("run", run_object(run) if run else None, NOT_MEASURED) if whole else found


def comparison_object(found: Comparison) -> Object:
    return {
        "first": found.first.id,
        "second": found.second.id,
        "comparable": found.comparable,
        "paired": found.paired,
        "obstacles": [_difference(each) for each in found.obstacles],
        "differences": [_difference(each) for each in found.differences],
        "levels": [
            {
                "id": _level_id(pair.second),
                "streams": pair.second.streams,
                "input_tokens": pair.second.input_tokens,
                **maybe("first_tokens_per_second", rounded(pair.first.output_rate), NOT_MEASURED),
                **maybe("second_tokens_per_second", rounded(pair.second.output_rate), NOT_MEASURED),
                **maybe("ratio", rounded(pair.ratio, 4), NOT_MEASURED),
                **maybe("ratio_interval", _interval(pair.interval), "it takes two finished passes of both"),
                "verdict": pair.verdict.value,
            }
            for pair in found.rows
        ],
    }


def _difference(found: Difference) -> Object:
    first, second = maybe("first", found.first, NOT_KNOWN), maybe("second", found.second, NOT_KNOWN)
    return {"id": found.what, **first, **second}


def _interval(found: ConfidenceInterval | None) -> list[float] | None:
    return None if found is None else [round(found.low, 4), round(found.high, 4)]


def _distribution(found: Distribution | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "count": found.count,
        **{name: round(getattr(found, name), 6) for name in ("mean", "std", "p50", "p90", "p95", "p99")},
        "min": round(found.least, 6),
        "max": round(found.most, 6),
        **maybe("p50_interval", _interval(found.median_interval), "it takes six values"),
    }


# --- files ------------------------------------------------------------------------------------------------


def exported(results: Sequence[Result], format_: str) -> str:
    """Results as `markdown` (to read) or `json` (everything)."""
    if format_ == "json":
        return json.dumps([result_to_json(result) for result in results], indent=2) + "\n"
    return markdown(results)


_MARKED: Final = str.maketrans({"|": "\\|", "<": "&lt;", "`": "'"})
_VERDICTS: Final = ("Model", "Quant", "Runtime", "Platform", "Reason", "Date")
_BENCHMARKED: Final = (
    "Single TPS", "Batched TPS", "Scaling eff", "Knee", "Model", "Quant", "Runtime", "Platform", "Memory GiB", "Date",
    "Id",
)  # fmt: skip
_LEVELS: Final = (
    "Streams", "Prompt", "tok/s", "± 95 %", "tok/s per stream", "Prefill tok/s", "TTFT p50 ms", "p95",
    "ITL p50 ms", "p95", "TPOT p50 ms", "E2E p50 s", "Complete", "Not",
)  # fmt: skip


def markdown(results: Sequence[Result]) -> str:
    """The results as tables by status, as deployment registries have them, and every measured run in full."""
    parts = ["# Benchmarks", ""]
    for status in Status:
        rows = [result for result in results if result.status is status]
        if rows:
            parts += [f"## {status.value.capitalize()} ({len(rows)})", "", *_status_table(status, rows), ""]
    for result in results:
        if result.run is not None:
            parts += [*_run_markdown(result.run), ""]
    return "\n".join(parts).rstrip() + "\n"


def _status_table(status: Status, results: Sequence[Result]) -> list[str]:
    if status is not Status.BENCHMARKED:
        verdicts = [(r.model, r.quantization, r.runtime, r.platform, r.reason, _day(r.at)) for r in results]
        return _markdown_table(_VERDICTS, verdicts, ())
    rows = []
    for result in sorted(results, key=lambda result: -((result.run.single if result.run else None) or 0)):
        run = result.run
        share = run.scaling.efficiency if run and run.scaling else None
        used = run.host.used_bytes_most if run else None
        row = (
            rate(run.single if run else None),
            rate(run.batched if run else None),
            "-" if share is None else f"{share:.0%}",
            knee_word(run),
            result.model + (" (simulated)" if result.simulated else ""),
            quantization_words(result.model, result.quantization),
            result.runtime,
            result.platform,
            "-" if used is None else gib(used),
            _day(result.at),
            result.id,
        )
        rows.append(row)
    return _markdown_table(_BENCHMARKED, rows, (0, 1, 2, 3, 8))


def _run_markdown(run: BenchRun) -> list[str]:
    plan, found = run.plan, run.conditions
    pairs = (
        ("Model", found.model),
        ("Revision", found.revision),
        ("Quantization", quantization_words(found.model, found.quantization)),
        ("Runtime", f"{found.runtime} {found.version}".strip()),
        ("Image", found.image_digest or f"{found.image} ({found.image_id[:19]})"),
        ("Flags", " ".join(found.flags)),
        ("Platform", f"{found.platform} {found.gpu} {found.driver}".strip()),
        ("Load", load_text(run)),
        ("Ended", f"{run.ending.value}{': ' if run.reason else ''}{run.reason}"),
    )
    rows = [
        (
            str(level.streams),
            str(level.input_tokens),
            rate(level.output_rate),
            spread(level),
            rate(level.decode_rate.p50 if level.decode_rate else None),
            rate(level.prefill_rate.p50 if level.prefill_rate else None),
            *latencies(level),
            str(level.counts.complete),
            str(level.counts.bad + level.counts.cancelled),
        )
        for level in run.levels
    ]
    lines = [f"## {_plain(found.engine)}, {_day(run.at)} ({run.id})", ""]
    lines += [f"- {label}: {_plain(value)}" for label, value in pairs if value.strip()]
    lines += ["", *_markdown_table(_LEVELS, rows, range(len(_LEVELS)))]
    lines += ["", *(f"- {_plain(caveat)}" for caveat in run.caveats)] if run.caveats else []
    return [*lines, "", f"Prompt {plan.form.value}, seed {plan.seed}, spark-tui {found.tool_version}."]


def _markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> list[str]:
    rule = " | ".join("---:" if at in right else "---" for at in range(len(titles)))
    lines = [f"| {' | '.join(titles)} |", f"| {rule} |"]
    return lines + [f"| {' | '.join(_plain(cell) or '-' for cell in row)} |" for row in rows]


def _plain(text: str) -> str:
    """Text from outside in a Markdown table or list: one line, no markup."""
    return clean_line(text).translate(_MARKED)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
