"""What `bench --json` and `results --json` print: units in the key names, and beside every null a `<key>_reason`."""

from __future__ import annotations

from typing import Any, Final

from spark_tui.cli.shapes import Object, maybe, moment
from spark_tui.core.bench_progress import BenchProgress
from spark_tui.domain.bench.compare import Comparison, Difference, Row
from spark_tui.domain.bench.conditions import Conditions
from spark_tui.domain.bench.level import Level
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.bench.references import Beside
from spark_tui.domain.bench.result import Result
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.bench.server_side import Check
from spark_tui.domain.bench.statistics import Distribution, Interval

NOT_MEASURED: Final = "not measured"
NOT_KNOWN: Final = "not known"


def run(found: BenchRun) -> Object:
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


def result(found: Result, *, whole: bool = False) -> Object:
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
    return told | maybe("run", run(measured) if measured else None, NOT_MEASURED) if whole else told


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
