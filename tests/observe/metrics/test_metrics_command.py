"""metrics: one look, a line each second, data; and why there is none."""

from __future__ import annotations

import json
import re

import pytest

from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.gateway import ClientCosts, GatewayStatus
from spark_tui.base.untrusted import encode
from tests import metric_fixtures as pages
from tests.cli.world import World, example
from tests.fakes_metrics import FakeMetrics
from tests.use.bench.test_bench import nulls_without_reason


@pytest.fixture
def world() -> World:
    found = example()
    found.metrics = FakeMetrics(found.clock)
    found.drive = True
    return found


def source(world: World) -> FakeMetrics:
    assert isinstance(world.metrics, FakeMetrics)
    return world.metrics


# --- one look -----------------------------------------------------------------------------------------


def test_a_look_tells_speed_queue_and_cache(world: World) -> None:
    result = world.run("metrics", "tiny-1b")
    assert result.code == 0, result.err
    lines = dict(line.split(maxsplit=1) for line in result.out.splitlines() if line and not line.startswith(" "))
    assert lines["decode"] == "40.0 tok/s"
    assert lines["prefill"] == "n/a: not reported by the server: prompt tokens"
    assert lines["requests"] == "1 running, 0 waiting"
    assert lines["KV"] == "cache     25.0%"
    assert lines["GPU"].startswith("96 %  47 W  2411 MHz  62 C")
    assert "Measuring for 5 s" in result.err


def test_latencies_stand_beside_the_bucket_that_they_lie_in(world: World) -> None:
    source(world).page = lambda _: pages.page("tiny-after")
    result = world.run("metrics", "tiny-1b")
    rows = result.out.partition("since start  ")[2].splitlines()
    assert rows[0].split() == ["p50", "p95", "p99", "mean", "count"]
    ttft = next(row for row in rows if row.startswith("TTFT"))
    assert ttft.count("±") == 3
    assert ttft.rstrip().endswith("81")
    assert "81 finished since start" in result.out
    assert re.search(r"^prefix hits +n/a: .* \(mean since start \d", result.out, re.MULTILINE)


def test_a_look_as_data(world: World) -> None:
    found = world.run("metrics", "tiny-1b", "--json", "--seconds", "3").json
    assert found["id"] == "tiny-1b"
    assert found["decode_tokens_per_second"] == 40.0
    assert found["kv_usage_percent"] == 25.0
    assert found["prefill_tokens_per_second"] is None
    assert found["prefill_tokens_per_second_reason"] == "not reported by the server: prompt tokens"
    assert found["ttft"] is None
    assert found["speculation_reason"] == "no speculative decoding"
    assert found["gpu"]["power_watts"] == 47.2
    assert found["since_start"]["generated_tokens_since_start"] >= 1000
    assert 3 <= found["window_seconds"] <= 4.5


def test_a_quantile_as_data_has_its_bounds(world: World) -> None:
    source(world).page = lambda _: pages.page("tiny-after")
    ttft = world.run("metrics", "tiny-1b", "--json").json["since_start"]["ttft"]
    assert ttft["count"] == 81
    assert ttft["p50_low_seconds"] <= ttft["p50_seconds"] <= ttft["p50_high_seconds"]


def test_the_time_of_a_single_request_as_data_is_its_own_bound(world: World) -> None:
    name = "vllm:time_to_first_token_seconds"
    series = {'_bucket{le="0.08"}': 1, '_bucket{le="+Inf"}': 1, "_count": 1, "_sum": 0.06998294830322266}
    only = pages.page_of_text("".join(f"{name}{suffix} {value}\n" for suffix, value in series.items()))
    source(world).page = lambda _: only
    ttft = world.run("metrics", "tiny-1b", "--json").json["since_start"]["ttft"]
    assert ttft["p50_low_seconds"] == ttft["p50_seconds"] == ttft["p50_high_seconds"] == 0.069983


def test_what_agents_cost_is_shown_by_client(world: World) -> None:
    shown = world.run("metrics", "tiny-1b", "--agents")
    assert (shown.code, "prefix hits" in shown.out, "read again" in shown.out) == (0, True, True)
    found = world.run("metrics", "tiny-1b", "--agents", "--json").json
    assert (found["id"], nulls_without_reason(found)) == ("tiny-1b", [])
    assert found["clients"] == []
    assert found["gateway_clients"] == []
    assert world.run("metrics", "tiny-1b", "--agents", "--watch").code == 2


def test_what_the_gateway_saw_of_an_engine_s_clients_is_shown(world: World) -> None:
    mine = ClientCosts("claude-cli", "tiny-1b", "/v1/messages", 9, 9, 90_000, 90_000, 45_000, 9, 4.5)
    status = GatewayStatus("http://x", 0.0, True, clients=(mine, ClientCosts("aider", "another", "", 3)))
    assert world.state.claim("gateway")
    world.state.write("gateway", encode(status).encode())
    found = world.run("metrics", "tiny-1b", "--agents", "--json").json
    assert [(each["id"], each["prefix_hit_percent"]) for each in found["gateway_clients"]] == [("claude-cli", 50.0)]
    assert nulls_without_reason(found) == []
    shown = world.run("metrics", "tiny-1b", "--agents").out
    assert ("claude-cli" in shown, "aider" in shown) == (True, False)


def test_data_has_no_null_without_a_reason(world: World) -> None:
    def check(value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert item is not None or value[f"{key}_reason"], key
                check(item)

    check(world.run("metrics", "tiny-1b", "--json").json)
    source(world).page = lambda _: pages.page_of_text(pages.LLAMA_CPP)
    check(world.run("metrics", "tiny-1b", "--json").json)


# --- second by second ---------------------------------------------------------------------------------


def test_a_line_each_second(world: World) -> None:
    result = world.run("metrics", "tiny-1b", "--watch", "-n", "4")
    heading, *rows = result.out.splitlines()
    assert " ".join(heading.split()) == "TIME DECODE PREFILL RUN WAIT TTFT95 ITL50 KV% HIT% ACC% GPU% W"
    assert len(rows) == 4
    assert rows[-1].split()[1:5] == ["40.0", "-", "1", "0"]
    assert all(len(row) == len(heading) for row in rows)


def test_lines_as_data(world: World) -> None:
    lines = world.run("metrics", "tiny-1b", "--watch", "-n", "3", "--json").json_lines
    assert len(lines) == 3
    assert lines[-1]["decode_tokens_per_second"] == 40.0
    assert lines[-1]["gpu_power_watts"] == 47.2
    assert "ttft_p95_seconds" not in lines[-1]


def test_watching_ends_with_ctrl_c(world: World) -> None:
    world.interrupt_when(lambda: len(source(world).asked) > 2)
    result = world.run("metrics", "tiny-1b", "--watch")
    assert result.code == 130
    assert result.out.startswith("TIME")


def test_an_engine_that_dies_ends_the_watch_with_its_error(world: World) -> None:
    def die() -> None:
        source(world).error = EngineUnreachable("Nothing answers at http://127.0.0.1:8000.", "Look at its log.")

    world.when(lambda: len(source(world).asked) > 2, die)
    result = world.run("metrics", "tiny-1b", "--watch", "--json")
    assert result.code == 3
    assert result.error["summary"] == "Nothing answers at http://127.0.0.1:8000."


# --- why there is none --------------------------------------------------------------------------------


def test_an_engine_that_has_ended_has_no_metrics(world: World) -> None:
    result = world.run("metrics", "broken-8b")
    assert result.code == 3
    assert "broken-8b is not serving: failed (exit 1)" in result.err
    assert "spark-tui logs broken-8b" in result.err


def test_a_name_that_is_none(world: World) -> None:
    assert "There is no engine named tini" in world.run("metrics", "tini").err
    assert world.run("metrics", "db").code == 2


def test_a_server_without_a_metrics_page(world: World) -> None:
    world.metrics = None
    result = world.run("metrics", "tiny-1b", "--json")
    assert result.code == 1
    assert result.error["id"] == "metrics_unavailable"


@pytest.mark.parametrize("words", [("--watch", "--seconds", "3"), ("-n", "3"), ("--seconds", "0"), ("-w", "-n", "0")])
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], world: World) -> None:
    assert world.run("metrics", "tiny-1b", *words).code == 2


def test_nothing_is_asked_after_the_command(world: World) -> None:
    json.loads(world.run("metrics", "tiny-1b", "--json").out)
    count = len(source(world).asked)
    world.run("ps")
    assert len(source(world).asked) == count
