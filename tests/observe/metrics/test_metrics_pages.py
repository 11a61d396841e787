"""What is read from metrics pages: real ones of vLLM, older names, other servers, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from spark_tui.base.engine.metrics_page import Change, Family, MetricPage, SeriesPart, Slot, Snapshot, page_of
from spark_tui.base.finding import Missing, Ok, value_of
from spark_tui.machine.engine_api import MAX_SERIES, NotMetrics, PageReader
from spark_tui.observe.metrics.model.serving import (
    AT_END_NOTE,
    AT_MOST_NOTE,
    TPOT_NOTE,
    EngineMetrics,
    measure,
    token_sample,
)
from tests import metric_fixtures as pages
from tests.cases import all_cases


def since_start(page: MetricPage, seconds: float | None = None) -> EngineMetrics:
    return measure(Change(None, Snapshot(0.0, page), seconds))


def told(page: MetricPage, family: Family) -> float | None:
    return page.total(family)


# --- real pages ---------------------------------------------------------------------------------------


@all_cases("name", pages.PAGES)
def test_every_wanted_figure_of_a_real_page_is_the_one_that_the_whole_parser_reads(name: str) -> None:
    plain = {
        "vllm:prompt_tokens_total": Family.PROMPT,
        "vllm:generation_tokens_total": Family.GENERATED,
        "vllm:num_requests_running": Family.RUNNING,
        "vllm:num_requests_waiting": Family.WAITING,
        "vllm:num_preemptions_total": Family.PREEMPTIONS,
        "vllm:prefix_cache_queries_total": Family.PREFIX_QUERIES,
        "vllm:prefix_cache_hits_total": Family.PREFIX_HITS,
        "vllm:request_success_total": Family.FINISHED,
        "vllm:num_requests_waiting_by_reason": Family.WAITING_BY_REASON,
    }
    expected = dict.fromkeys(plain.values(), 0.0)
    for metric in text_string_to_metric_families(pages.text(name).decode()):
        for sample in metric.samples:
            if sample.name in plain:
                expected[plain[sample.name]] += sample.value
    assert {family: pages.page(name).total(family) for family in expected} == expected


@all_cases("name", pages.PAGES)
def test_a_page_read_again_is_the_same_page(name: str) -> None:
    reader = PageReader()
    first = reader.read(pages.text(name))
    assert reader.read(pages.text(name)) == first == PageReader().read(pages.text(name))


def test_a_run_of_81_requests() -> None:
    metrics = measure(pages.between(pages.page("tiny-before"), pages.page("tiny-after"), 60.0))
    assert metrics.decode_rate == Ok(14700 / 60)
    assert metrics.finished_count == Ok(81.0)
    assert metrics.failed_count == Ok(0.0)
    assert dict(metrics.finished)["length"] + dict(metrics.finished)["stop"] == 81
    assert isinstance(metrics.ttft, Ok)
    assert metrics.ttft.value.count == 81
    assert metrics.drafting == Missing("no speculative decoding")


def test_capacity_is_what_the_server_says_and_not_blocks_times_size() -> None:
    page = pages.page("tiny-data-parallel-2")
    metrics = since_start(page)
    assert metrics.kv_capacity_tokens == Ok(2 * 2_097_152)  # kv_cache_size_tokens; blocks would give 4,194,304 each
    assert page.engines == ("0", "1")
    assert since_start(page.of_engine("1")).kv_capacity_tokens == Ok(2_097_152)


def test_engines_of_one_server_are_added_up_and_told_apart() -> None:
    page = pages.page("tiny-data-parallel-2")
    both, one = since_start(page), since_start(page.of_engine("0"))
    assert (both.prompt_tokens, one.prompt_tokens) == (Ok(264.0), Ok(132.0))


def test_speculation_is_read_from_counters() -> None:
    metrics = since_start(pages.page("tiny-ngram"))
    assert isinstance(metrics.drafting, Ok)
    drafting = metrics.drafting.value
    assert drafting.acceptance == pytest.approx(342 / 576)
    assert drafting.length == pytest.approx(1 + 342 / 213)
    assert drafting.positions == pytest.approx((153 / 213, 102 / 213, 87 / 213))


def test_requests_that_wait_for_room_and_are_put_back() -> None:
    middle = measure(pages.between(pages.page("kv-pressure-1"), pages.page("kv-pressure-4")))
    assert (middle.running, middle.waiting) == (Ok(4.0), Ok(4.0))
    assert sum(count for _, count in middle.waiting_by_reason) == 4
    assert value_of(middle.kv_usage) == pytest.approx(12 / 13)
    end = measure(pages.between(pages.page("kv-pressure-4"), pages.page("kv-pressure-8")))
    assert end.preemptions == Ok(4.0)


def test_several_api_servers_share_one_page_without_a_process_start() -> None:
    page = pages.page("tiny-api-servers-2")
    assert not page.has(Family.STARTED)
    assert page.has(Family.GENERATED)


# --- names that have changed --------------------------------------------------------------------------


def test_before_0_16_prompt_tokens_include_the_cached_ones() -> None:
    older = pages.between(pages.vllm(prompt_tokens_total=0), pages.vllm(prompt_tokens_total=500))
    assert measure(older).prefill_rate == Ok(50.0)


def test_since_0_16_prefill_is_what_was_computed() -> None:
    body = 'vllm:prompt_tokens_total{{engine="0"}} {0}\n' + "".join(
        f'vllm:prompt_tokens_by_source_total{{{{engine="0",source="{source}"}}}} {{{index}}}\n'
        for index, source in enumerate(("local_compute", "local_cache_hit", "external_kv_transfer"), 1)
    )
    before, after = pages.page_of_text(body.format(0, 0, 0, 0)), pages.page_of_text(body.format(500, 120, 380, 0))
    metrics = measure(pages.between(before, after))
    assert metrics.prefill_rate == Ok(12.0)
    assert metrics.prompt_tokens == Ok(500.0)


def test_the_deprecated_twin_of_inter_token_latency_is_not_counted_twice() -> None:
    rows = "".join(
        f'vllm:{name}_seconds_{part}{{engine="0"{le}}} 4\n'
        for name in ("inter_token_latency", "time_per_output_token")
        for part, le in (("bucket", ',le="0.1"'), ("bucket", ',le="+Inf"'), ("count", ""))
    )
    metrics = since_start(pages.page_of_text(rows))
    assert isinstance(metrics.itl, Ok)
    assert metrics.itl.value.count == 4
    assert TPOT_NOTE not in metrics.notes


def test_before_0_25_capacity_is_blocks_times_size_and_says_so() -> None:
    row = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0\n'
    metrics = since_start(pages.page_of_text(row))
    assert metrics.kv_capacity_tokens == Ok(16_000)
    assert AT_MOST_NOTE in metrics.notes


def test_a_capacity_that_is_not_known_yet_is_not_zero() -> None:
    row = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="None"} 1.0\nvllm:num_requests_running 0\n'
    assert isinstance(since_start(pages.page_of_text(row)).kv_capacity_tokens, Missing)


def test_waiting_reasons_are_absent_before_0_20() -> None:
    metrics = since_start(pages.vllm(num_requests_waiting=3))
    assert (metrics.waiting, metrics.waiting_by_reason) == (Ok(3.0), ())


# --- other servers ------------------------------------------------------------------------------------


def test_sglang() -> None:
    metrics = since_start(pages.page_of_text(pages.SGLANG))
    assert (metrics.running, metrics.waiting) == (Ok(3.0), Ok(2.0))  # a rank of the same engine counts once
    assert (metrics.kv_usage, metrics.kv_capacity_tokens) == (Ok(0.25), Ok(383_872))
    assert metrics.decode_rate == Ok(50.5)
    assert metrics.prefix_hits == Ok(0.25)
    assert metrics.preemptions_ever == Ok(4.0)
    assert isinstance(metrics.drafting, Ok)
    assert (metrics.drafting.value.length, metrics.drafting.value.acceptance) == (2.4, 0.7)
    assert isinstance(metrics.ttft, Ok)
    assert metrics.ttft.value.p50.high == 0.4
    assert metrics.finished_count == Ok(12.0)
    assert isinstance(metrics.failed_count, Missing)


def test_sglang_that_counts_as_it_goes() -> None:
    before = pages.page_of_text(pages.SGLANG + pages.SGLANG_LIVE)
    after = pages.page_of_text(pages.SGLANG + pages.SGLANG_LIVE.replace("900.0", "1400.0").replace("750.0", "1750.0"))
    metrics = measure(pages.between(before, after))
    assert (metrics.decode_rate, metrics.prefill_rate) == (Ok(50.0), Ok(100.0))
    assert AT_END_NOTE not in metrics.notes


def test_the_last_speed_of_an_idle_sglang_is_not_its_speed() -> None:
    idle = pages.page_of_text(pages.SGLANG.replace("} 3.0", "} 0.0"))
    assert since_start(idle).decode_rate == Ok(0.0)


def test_llama_cpp() -> None:
    before, after = pages.page_of_text(pages.LLAMA_CPP), pages.page_of_text(pages.LLAMA_CPP.replace(" 600", " 1200"))
    metrics = measure(pages.between(before, after, 60.0), pages.between(before, after, 5.0))
    assert (metrics.running, metrics.waiting) == (Ok(1.0), Ok(2.0))
    assert metrics.decode_rate == Ok(10.0)  # over the window: its tokens are counted when a request ends
    assert AT_END_NOTE in metrics.notes
    assert since_start(after).prefix_hits == Ok(0.25)
    for reading in (metrics.kv_usage, metrics.kv_capacity_tokens, metrics.ttft, metrics.preemptions):
        assert isinstance(reading, Missing)


def test_tensorrt_llm() -> None:
    metrics = since_start(pages.page_of_text(pages.TRTLLM))
    assert (metrics.running, metrics.waiting, metrics.kv_usage) == (Ok(2.0), Ok(1.0), Ok(0.5))
    assert metrics.kv_capacity_tokens == Ok(32_000)
    assert metrics.prefix_hits == Ok(0.75)
    assert isinstance(metrics.itl, Ok)
    assert TPOT_NOTE in metrics.notes
    assert metrics.failed_count == Ok(1.0)
    assert dict(metrics.finished) == {"end_id": 7.0, "500": 1.0}


@pytest.mark.parametrize(
    ("body", "generated"),
    [(pages.SGLANG, None), (pages.TRTLLM, None), (pages.LLAMA_CPP, 640.0), (pages.SGLANG + pages.SGLANG_LIVE, 900.0)],
)
def test_only_counters_that_move_during_a_request_can_show_a_wedge(body: str, generated: float | None) -> None:
    sample = token_sample(pages.page_of_text(body), 5.0)
    assert (sample.generated if sample else None) == generated


# --- garbage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["NaN", "+Inf", "-Inf", "-1", "soon", "", "0x10"])
def test_a_figure_that_is_none_is_absent_and_not_zero(figure: str) -> None:
    body = f'vllm:generation_tokens_total{{engine="0"}} {figure}\nvllm:num_requests_running{{engine="0"}} 1\n'
    reader = PageReader()
    for _ in range(2):  # met for the first time, and known
        page = reader.read(body.encode())
        assert not page.has(Family.GENERATED)
        assert told(page, Family.RUNNING) == 1
    good = reader.read(body.replace(f"}} {figure}\n", "} 7\n", 1).encode())
    assert told(good, Family.GENERATED) == 7


def test_a_time_behind_a_figure_is_not_the_figure() -> None:
    reader = PageReader()
    for value in ("5.0", "6.0", "6.0"):
        page = reader.read(f'vllm:generation_tokens_total{{engine="0"}} {value} 1795227401000\n'.encode())
        assert told(page, Family.GENERATED) == float(value)


def test_labels_may_hold_anything() -> None:
    body = 'vllm:num_requests_running{engine="0",model_name="a } b\\"c\\" 9, le=\\\\"} 2\r\n'
    reader = PageReader()
    assert [told(reader.read(body.encode()), Family.RUNNING) for _ in range(2)] == [2.0, 2.0]


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>no</html>", b'[{"iter": 1}]', b"# only a comment\n", b"\x00\xff"])
def test_what_is_no_metrics_page_is_refused(body: bytes) -> None:
    with pytest.raises(NotMetrics, match="no engine metrics"):
        PageReader().read(body)


def test_a_page_of_too_many_series_is_refused() -> None:
    body = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(MAX_SERIES + 1))
    with pytest.raises(NotMetrics, match="engine series"):
        PageReader().read(body.encode())


@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_raise_anything_else(junk: bytes) -> None:
    body = junk + b'\nvllm:num_requests_running{engine="0"} 1\n' + b"vllm:num_requests_waiting" + junk
    page = PageReader().read(body)
    assert page.has(Family.RUNNING)


@given(st.text(alphabet='{}",=\\ \n01e+-.NaIinf:_vlm', max_size=120))
def test_no_labels_or_figures_do(junk: str) -> None:
    body = f"vllm:num_requests_running 1\nvllm:generation_tokens_total{junk}\nvllm:cache_config_info{{{junk}}} 1\n"
    page = PageReader().read(body.encode())
    measure(Change(None, Snapshot(0.0, page), 1.0))


@given(st.lists(st.tuples(st.sampled_from(tuple(Family)), st.floats(allow_nan=True)), max_size=30))
def test_a_page_holds_finite_values_from_zero_up(samples: list[tuple[Family, float]]) -> None:
    page = page_of((Slot(family, SeriesPart.VALUE), value) for family, value in samples)
    for group in page.groups.values():
        assert all(0 <= value < float("inf") for value in group.values())
    measure(Change(None, Snapshot(0.0, page), 1.0))
