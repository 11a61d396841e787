"""What `spark-tui metrics --json` prints: units in the key names, and beside every null a `<key>_reason`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.shapes import Object
from spark_tui.domain.engine.metric_quantiles import Latency, Quantile
from spark_tui.domain.engine.metric_series import MetricId, Sample
from spark_tui.domain.engine.metrics import Drafting, EngineMetrics
from spark_tui.domain.reading import Missing, Ok, Reading

_DIGITS: Final = 4


def _number(value: float) -> float:
    return round(value, _DIGITS)


def _percent(share: Reading[float]) -> Reading[float]:
    return share if isinstance(share, Missing) else Ok(share.value * 100)


def engine_object(metrics: EngineMetrics) -> Object:
    """Measured metrics over a window. A quantile has the bounds of its bucket: the true value is between them."""
    return {
        **shapes.maybe("window_seconds", _rounded(metrics.seconds), "the server does not tell when it began"),
        **shapes.maybe("rate_seconds", _rounded(metrics.rate_seconds), "the server does not tell when it began"),
        **shapes.read("decode_tokens_per_second", metrics.decode_rate, _number),
        **shapes.read("prefill_tokens_per_second", metrics.prefill_rate, _number),
        **shapes.read("running_requests", metrics.running, int),
        **shapes.read("waiting_requests", metrics.waiting, int),
        "waiting_by_reason": {reason: int(count) for reason, count in metrics.waiting_by_reason},
        **shapes.read("finished_requests", metrics.finished_count, int),
        **shapes.read("failed_requests", metrics.failed_count, int),
        "finished_by_reason": {reason: int(count) for reason, count in metrics.finished},
        **shapes.read("ttft", metrics.ttft, _latency),
        **shapes.read("itl", metrics.itl, _latency),
        **shapes.read("e2e", metrics.e2e, _latency),
        **shapes.read("queue", metrics.queue, _latency),
        **shapes.read("kv_usage_percent", _percent(metrics.kv_usage), _number),
        **shapes.read("kv_capacity_tokens", metrics.kv_capacity_tokens, int),
        **shapes.read("prefix_hit_percent", _percent(metrics.prefix_hits), _number),
        **shapes.read("preemptions", metrics.preemptions, int),
        **shapes.read("speculation", metrics.drafting, _drafting),
        **shapes.read("energy_joules_per_token", metrics.energy, _number),
        **shapes.read("prompt_tokens_since_start", metrics.prompt_tokens, int),
        **shapes.read("generated_tokens_since_start", metrics.generated_tokens, int),
        "notes": list(metrics.notes),
    }


def _latency(latency: Latency) -> Object:
    found: Object = {"count": latency.count}
    for name in ("p50", "p95", "p99"):
        found |= _quantile(name, getattr(latency, name))
    return found | shapes.maybe("mean_seconds", _rounded(latency.mean), "the server keeps no sum")


def _quantile(name: str, quantile: Quantile) -> Object:
    high = None if quantile.high == float("inf") else quantile.high
    return {
        f"{name}_seconds": round(quantile.value, 6),
        f"{name}_low_seconds": quantile.low,
        **shapes.maybe(f"{name}_high_seconds", high, "it is in the last bucket, which has no end"),
    }


def _drafting(drafting: Drafting) -> Object:
    silent = "the server does not tell"
    share = None if drafting.acceptance is None else _number(drafting.acceptance * 100)
    return {
        **shapes.maybe("acceptance_percent", share, silent),
        **shapes.maybe("accepted_length_tokens", _rounded(drafting.length), silent),
        "acceptance_by_position_percent": [_number(each * 100) for each in drafting.positions],
        **shapes.maybe("drafted_tokens", None if drafting.drafted is None else int(drafting.drafted), silent),
    }


def sample_object(sample: Sample, values: Mapping[MetricId, float]) -> Object:
    """One line of `--watch`: the series that have a value now."""
    return {
        "id": sample.engine,
        "at": shapes.moment(sample.at),
        "restarted": sample.restarted,
        **{metric.value: _number(value) for metric, value in values.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
