"""What a server does not report is unknown, never zero; what stands still while requests run is no idle engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.metrics_page import Change, Family, MetricPage, Slot, Snapshot
from spark_tui.base.finding import Missing, value_of
from spark_tui.observe.metrics.model.serving import measure
from spark_tui.observe.metrics.model.slow import limits
from tests.process_engines import Series, process_engine, without_docker

NAME = '{model_name="q"}'
OLD_SGLANG: tuple[Series, ...] = (
    ("sglang:prompt_tokens_total", NAME, 884120.0, 0.0),
    ("sglang:generation_tokens_total", NAME, 301440.0, 61.0),
    ("sglang:token_usage", NAME, 0.07, None),
    ("sglang:gen_throughput", NAME, 40.0, None),
)
FROZEN: tuple[Series, ...] = (
    ("vllm:num_requests_running", NAME, 3.0, None),
    ("vllm:num_requests_waiting", NAME, 0.0, None),
    ("vllm:prompt_tokens_total", NAME, 812345.0, 0.0),
    ("vllm:generation_tokens_total", NAME, 1983221.0, 0.0),
    ("vllm:request_success_total", '{finished_reason="stop"}', 12763.0, 0.0),
)
SGLANG = ("python3", "-m", "sglang.launch_server")
VLLM = ("vllm", "serve")


@pytest.mark.parametrize(
    ("words", "series", "limit", "running", "speed"),
    [(SGLANG, OLD_SGLANG, "working", None, (55.0, 67.0)), (VLLM, FROZEN, "stalled", 3, (0.0, 0.0))],
    ids=["no running gauge", "frozen"],
)
def test_a_look_says_what_the_page_proves(
    tmp_path: Path, words: tuple[str, ...], series: tuple[Series, ...], limit: str, running: int | None, speed: Any
) -> None:
    with process_engine(tmp_path, *words, metrics=series) as engine:
        done = without_docker(tmp_path, "--json", "metrics", f"{'vllm' if words is VLLM else 'sglang'}-{engine.port}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["id"] for each in found["limits"]] == [limit]
    assert found["running_requests"] == running
    assert speed[0] <= found["decode_tokens_per_second"] <= speed[1]
    assert ("restart" in found["limits"][0]["remedy"].lower()) == (limit == "stalled")


def change(before: dict[Family, float], after: dict[Family, float], seconds: float = 5.0) -> Change:
    pages = [MetricPage({family: {Slot(family): value} for family, value in each.items()}) for each in (before, after)]
    return Change.between(Snapshot(0.0, pages[0]), Snapshot(seconds, pages[1]))


F = Family


@pytest.mark.parametrize(
    ("before", "after", "limit"),
    [
        ({F.RUNNING: 0, F.GENERATED: 9}, {F.RUNNING: 0, F.GENERATED: 9}, "idle"),
        ({F.RUNNING: 0, F.GENERATED: 9}, {F.RUNNING: 0, F.GENERATED: 90}, "idle"),
        ({F.GENERATED: 9}, {F.GENERATED: 9}, "idle"),
        ({F.GENERATED: 9}, {F.GENERATED: 90}, "working"),
        ({F.GENERATED_AT_END: 9}, {F.GENERATED_AT_END: 9}, "unknown"),
        ({F.KV_USAGE: 0}, {F.KV_USAGE: 0}, "unknown"),
        ({F.RUNNING: 3, F.GENERATED: 9, F.PROMPT: 5}, {F.RUNNING: 3, F.GENERATED: 9, F.PROMPT: 5}, "stalled"),
        ({F.RUNNING: 3, F.GENERATED: 9, F.PROMPT: 5}, {F.RUNNING: 3, F.GENERATED: 9, F.PROMPT: 6}, "decode"),
        ({F.RUNNING: 0, F.GENERATED: 9}, {F.RUNNING: 3, F.GENERATED: 9}, "decode"),
        ({F.RUNNING: 1, F.GENERATED_AT_END: 9}, {F.RUNNING: 1, F.GENERATED_AT_END: 9}, "decode"),
    ],
    ids=[
        "gauge", "gauge after work", "counter stands", "counter moves", "counts at the end", "no counter", "frozen",
        "reads a prompt", "has just begun", "one long answer",
    ],
)  # fmt: skip
def test_idle_and_stalled_need_proof(before: dict[Family, float], after: dict[Family, float], limit: str) -> None:
    assert [each.id for each in limits(measure(change(before, after)), Missing("no driver"))] == [limit]


def test_one_look_alone_proves_nothing() -> None:
    page = change({F.GENERATED: 9}, {F.GENERATED: 9}, seconds=0.0)
    assert [each.id for each in limits(measure(page), Missing("no driver"))] == ["unknown"]


def test_the_servers_own_hit_rate_stands_where_it_counts_no_hits() -> None:
    found = measure(change({F.PREFIX_SHARE: 0.2}, {F.PREFIX_SHARE: 0.4}))
    assert value_of(found.prefix_hits) == 0.4
    counted = {F.PREFIX_HITS: 9.0, F.PREFIX_QUERIES: 10.0, F.PREFIX_SHARE: 0.4}
    assert value_of(measure(change({F.PREFIX_HITS: 0.0, F.PREFIX_QUERIES: 0.0}, counted)).prefix_hits) == 0.9


def test_none_finished_is_said_of_the_window_alone() -> None:
    steady = {F.RUNNING: 3.0, F.GENERATED: 9.0, F.FINISHED: 12763.0}
    (found,) = limits(measure(change(steady, steady | {F.GENERATED: 90.0})), Missing("no driver"))
    assert "yet" not in found.summary
    assert "0 finished in the last 5s" in found.summary
