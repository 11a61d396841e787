"""What holds an engine back, from its counters and the GPU's clock."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.metrics_page import Latency, Quantile
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import GpuReading, Throttle, Throttled
from spark_tui.observe.metrics.model.serving import Drafting, EngineMetrics, measure
from spark_tui.observe.metrics.model.slow import limits, request_time
from tests.cases import all_cases
from tests.metric_fixtures import PAGES, between, page

IDLE = measure(between(page("tiny-before"), page("tiny-after")))
HEALTHY = GpuReading("NVIDIA GB10", 96, 51.0, 71, 2480, throttled=(Throttled(Throttle.POWER_CAP, 0.6),))


def lasting(seconds: float) -> Ok[Latency]:
    edge = Quantile(seconds, 0.0, 2 * seconds)
    return Ok(Latency(edge, edge, edge, 10, seconds))


def metrics(queue: float = 0.0, prefill: float = 2.0, decode: float = 5.0, **changes: Any) -> EngineMetrics:
    """A busy engine whose mean request took these seconds in each part."""
    usual = {
        "ttft": lasting(queue + prefill),
        "e2e": lasting(queue + prefill + decode),
        "queue": lasting(queue),
        "running": Ok(1.0),
        "waiting": Ok(0.0),
        "preemptions": Ok(0.0),
        "kv_usage": Ok(0.1),
        "prefix_hits": Ok(0.7),
        "drafting": Missing("no speculative decoding"),
    }
    return replace(IDLE, **{**usual, **changes})


@all_cases(
    ("found", "gpu", "ids"),
    [
        (metrics(), HEALTHY, ["decode", "prefill"]),
        (metrics(prefill=9.0), HEALTHY, ["prefill", "decode"]),
        (metrics(queue=3.0), HEALTHY, ["queue", "decode", "prefill"]),
        (metrics(waiting=Ok(6.0)), HEALTHY, ["queue", "decode", "prefill"]),
        (metrics(prefill=0.5), HEALTHY, ["decode"]),
        (metrics(preemptions=Ok(3.0), waiting=Ok(2.0)), HEALTHY, ["preemption", "queue", "decode", "prefill"]),
        (metrics(drafting=Ok(Drafting(0.2, 1.4))), HEALTHY, ["drafts", "decode", "prefill"]),
        (metrics(drafting=Ok(Drafting(0.6, 2.4))), HEALTHY, ["decode", "prefill"]),
        (metrics(), replace(HEALTHY, sm_clock_mhz=650, power_watts=15.0), ["low_power", "decode", "prefill"]),
        (metrics(), replace(HEALTHY, sm_clock_mhz=1900), ["clock", "decode", "prefill"]),
        (metrics(), replace(HEALTHY, throttled=(Throttled(Throttle.THERMAL, 0.4),)), ["clock", "decode", "prefill"]),
        (metrics(), GpuReading("silent"), ["decode", "prefill"]),
        (metrics(ttft=Missing("none"), e2e=Missing("none")), HEALTHY, ["decode"]),
    ],
    ids=[
        "healthy", "long prompts", "queue", "waiting now", "short prompts", "preempted", "bad drafts", "good drafts",
        "stuck clock", "power cap", "hot", "silent driver", "none finished",
    ],
)  # fmt: skip
def test_weightiest_limit_comes_first(found: EngineMetrics, gpu: GpuReading, ids: list[str]) -> None:
    assert [finding.id for finding in limits(found, Ok(gpu))] == ids


def test_engine_without_requests_is_idle() -> None:
    idle = metrics(ttft=Missing("none"), e2e=Missing("none"), running=Ok(0.0))
    assert [finding.id for finding in limits(idle, Missing("no driver"), metrics())] == ["idle"]


def test_time_since_start_stands_in_while_none_has_finished() -> None:
    now = metrics(ttft=Missing("none"), e2e=Missing("none"))
    assert [finding.id for finding in limits(now, Ok(HEALTHY), metrics(prefill=9.0))] == ["prefill", "decode"]


def test_parts_of_a_request_add_up() -> None:
    time = request_time(metrics(queue=1.0, prefill=2.0, decode=7.0))
    assert time is not None
    assert (time.queue, time.prefill, time.decode) == pytest.approx((1.0, 2.0, 7.0))
    assert time.share(time.decode) == pytest.approx(0.7)


@all_cases("name", PAGES)
def test_every_page_has_a_verdict(name: str) -> None:
    found = limits(measure(between(page(name), page(name))), Missing("no driver"))
    assert found and all(finding.summary.endswith(".") for finding in found)
