"""Findings: what is worth a word, and above all what is not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.state import Health
from spark_tui.base.finding import Finding, Severity
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.observe.explain.model.findings import FindingId, findings, single_stream_rate
from spark_tui.observe.explain.model.serving import KEPT, ServingSample, drafting
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE
from spark_tui.observe.explain.model.view import Baseline, LogContext
from tests.cases import all_cases
from tests.engine_logs import banner, core, drafts, samples_of, stats, track
from tests.log_fixtures import log_names, run_log, toml_cases


def found_in(lines: list[str], **around: Any) -> tuple[Finding, ...]:
    return findings(track(lines), samples_of(lines), LogContext(**around))


def ids(lines: list[str], **around: Any) -> list[str]:
    return [finding.id for finding in found_in(lines, **around)]


def up(version: str = "0.32.0", args: str = "'max_num_seqs': 4", kv: str = "694,656") -> list[str]:
    """A server that came up with room for 2.65 requests of 262,144 tokens."""
    return [
        *banner(version, args=args),
        *core(
            "Available KV cache memory: 18.04 GiB",
            f"GPU KV cache size: {kv} tokens, Maximum concurrency for 262,144 tokens per request: 2.65x",
        ),
    ]


# --- silence ----------------------------------------------------------------------------------------------

RUNS = sorted({name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()})
NOTES = {
    # `Add 3 padding layers, may waste at most 10.00%`, and 12.5 % with five of them.
    "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp": ["padding_waste"],
    "gb10-vllm-0.18-mtp-forum": ["padding_waste"],
}


@all_cases("name", RUNS)
def test_real_logs_hold_nothing_but_these_notes(name: str) -> None:
    found = found_in(run_log(name), now=None)
    assert [finding.id for finding in found] == NOTES.get(name, [])
    assert all(finding.severity is Severity.INFO for finding in found)


# --- how it was started -----------------------------------------------------------------------------------


CASES = toml_cases("findings")


@all_cases("case", CASES, ids=[f"{case['finding']}-{case['lines'][0][:20]}" for case in CASES])
def test_a_line_that_proves_a_finding_is_found_and_pointed_at(case: dict[str, Any]) -> None:
    args = case.get("args", "'max_num_seqs': 16")
    lines = [*banner(case.get("version", "0.32.0"), args=args), *core(*case["lines"])]
    (finding,) = found_in(lines)
    assert (finding.id, finding.severity) == (case["finding"], case["severity"])
    assert finding.line is not None
    assert finding.evidence[0].startswith(case["proof"])
    assert finding.evidence[0][:60] in lines[finding.line]
    assert case.get("words", "") in finding.summary
    assert finding.remedy
    assert case.get("remedy", "") in finding.remedy
    assert dict(finding.change) == case.get("override", {})
    overrides_from_pairs(dict(finding.change))


# --- how it serves ----------------------------------------------------------------------------------------


def test_drafts_that_are_never_accepted() -> None:
    lines = [*up(), *(drafts(at, 3, 120, "0.03, 0.01, 0.0") for at in range(0, 60, 10))]
    (finding,) = found_in(lines)
    assert (finding.id, finding.severity) == (FindingId.ACCEPTANCE_NEAR_ZERO, Severity.WARNING)
    assert "2% (720 tokens drafted)" in finding.summary
    assert dict(finding.change) == {"without": "speculative_config"}
    assert finding.line == len(lines) - 1


def test_the_real_ngram_run_accepts_enough() -> None:
    samples = samples_of(run_log("vllm-0.32-cpu-spec"))
    told = drafting(samples)
    assert told is not None
    # Two lines: 228 of 384 and 114 of 192, positions 0.718, 0.479, 0.408.
    assert (told.accepted, told.drafted, told.rate) == (342, 576, 0.59375)
    assert told.tokens_per_step == pytest.approx(2.605)


def test_a_last_position_that_is_seldom_accepted_asks_for_shorter_drafts() -> None:
    lines = [*up(), *(drafts(at, 90, 200, "0.81, 0.42, 0.09") for at in range(0, 60, 10))]
    (finding,) = found_in(lines)
    assert (finding.id, finding.severity) == (FindingId.DRAFTS_TOO_LONG, Severity.INFO)
    assert "num_speculative_tokens=2" in finding.remedy
    assert finding.change == (("num_speculative_tokens", "2"),)


def test_preemptions_are_counted_and_the_setting_that_helps_is_named() -> None:
    lines = [
        *up(),
        stats(0, running=4, kv=99.0, more=", Preemptions: 3"),
        stats(10, running=2, kv=50.0, generation=9.0),
    ]
    (finding,) = found_in(lines, pool_gib=121.69)
    assert finding.id is FindingId.PREEMPTIONS
    assert finding.summary.startswith("3 requests preempted")
    assert dict(finding.change) == {"max_num_seqs": "2"}
    assert "max_model_len" not in dict(finding.change)
    assert "max_model_len=173056 fits 4 requests" in finding.remedy
    assert "Preemptions: 3" in finding.evidence[0]


def test_a_kv_cache_that_is_nearly_full_now_and_not_one_that_was() -> None:
    full, empty = stats(10, running=4, generation=30.0, kv=97.2), stats(20, running=1, generation=30.0, kv=12.0)
    assert ids([*up(), full]) == ["kv_nearly_full"]
    assert ids([*up(), full, empty]) == []


def test_requests_that_wait_three_times_in_a_row() -> None:
    queue = [stats(at, running=4, waiting=2, generation=30.0, kv=20.0) for at in (0, 10, 20)]
    (finding,) = found_in([*up(), *queue])
    assert finding.id is FindingId.WAITING
    assert dict(finding.change) == {"max_num_seqs": "8"}
    assert "KV cache has room" in finding.remedy


def test_a_queue_for_want_of_kv_cache_is_not_told_to_raise_the_limit() -> None:
    queue = [stats(at, running=2, waiting=2, generation=30.0, kv=92.3) for at in (0, 10, 20)]
    (finding,) = found_in([*up(), *queue])
    assert dict(finding.change) == {"max_num_seqs": "2"}


def test_a_prefix_cache_that_never_hits_is_told_after_many_tokens_only() -> None:
    busy = [stats(at, prompt=500, generation=20, running=1) for at in range(0, 60, 10)]
    (finding,) = found_in([*up(), *core("Setting attention block size to 2144 tokens to ensure that ..."), *busy])
    assert (finding.id, finding.severity) == (FindingId.PREFIX_CACHE_NEVER_HIT, Severity.INFO)
    assert "30,000 prompt tokens" in finding.summary
    assert "2,144" in finding.summary
    assert ids([*up(), *busy[:5]]) == []
    assert ids([*up(), *busy, stats(70, prompt=10, running=1, prefix=0.4)]) == []
    off = banner("0.32.0", args="'enable_prefix_caching': False")
    assert ids([*off, *busy]) == []


# --- hang -------------------------------------------------------------------------------------------------

FROZEN = [*up(), stats(0, generation=41.0, running=2), stats(10, running=2), stats(20, running=2)]


def last_at(lines: list[str]) -> float:
    at = samples_of(lines)[-1].at
    assert at is not None
    return at


def test_requests_that_run_without_a_token_while_health_is_fine_are_a_hang() -> None:
    (finding,) = found_in(FROZEN, health=Health.OK, now=last_at(FROZEN) + 170)
    assert (finding.id, finding.severity) == (FindingId.HANG, Severity.ERROR)
    assert "no tokens for 3m00s" in finding.summary
    assert finding.line == len(FROZEN) - 2


IDLE = [*up(), stats(0, generation=12.0), stats(10)]
BUSY = [
    *up(),
    *(stats(at, prompt=900, generation=41.8, running=2, kv=31.5, prefix=74.2) for at in range(0, 600, 10)),
    *(drafts(at, 74, 100) for at in range(0, 600, 10)),
]
QUEUE = [*up(), stats(0, waiting=5, running=4), stats(10, running=4), stats(20, waiting=2, running=4), stats(30)]
SILENT = {
    "busy and healthy": (BUSY, {"health": Health.OK, "baseline": Baseline(41.0), "pool_gib": 121.69}),
    "idle lines and a moment of queue": (QUEUE, {"health": Health.OK}),
    "padding of a hundredth": (core("Padding mamba page size by 0.02% to ensure that mamba page size and ..."), {}),
    "a failed start that was eager": (banner("0.32.0", args="'enforce_eager': True"), {}),
    "a handful of drafts": ([*up(), drafts(0, 0, 40, "0.0")], {}),
    "nan as acceptance": ([*up(), drafts(0, 0, 0, "nan")], {}),
    "a long prefill": (FROZEN, {"health": Health.OK, "now": last_at(FROZEN) + 60}),
    "a dead server": (FROZEN, {"health": Health.NOT_LISTENING, "now": last_at(FROZEN) + 600}),
    "an unknown health": (FROZEN, {"health": Health.UNKNOWN, "now": last_at(FROZEN) + 600}),
    "a log of another time": (FROZEN, {"health": Health.OK}),
    "an idle server": (IDLE, {"health": Health.OK, "now": last_at(IDLE) + 9_999}),
}


@all_cases("name", SILENT)
def test_no_finding(name: str) -> None:
    lines, around = SILENT[name]
    assert ids(lines, **around) == []


# --- baseline ---------------------------------------------------------------------------------------------


def test_one_stream_far_below_this_box_s_own_past() -> None:
    slow = [stats(at, generation=13.1, running=1) for at in range(0, 60, 10)]
    (finding,) = found_in([*up(), *slow], baseline=Baseline(41.8, 5))
    assert finding.id is FindingId.BELOW_BASELINE
    assert "13.1 tok/s" in finding.summary
    assert "down from 41.8 (5 runs)" in finding.summary
    assert ids([*up(), *slow], baseline=Baseline(14.0)) == []
    assert ids([*up(), *slow]) == []


def test_intervals_that_a_request_did_not_fill_are_no_measure_of_speed() -> None:
    broken = [stats(at, generation=3.0, running=at // 10 % 2) for at in range(0, 90, 10)]
    assert single_stream_rate(samples_of(broken)) is None


# --- metrics ----------------------------------------------------------------------------------------------

# Eight readings, four seconds apart, of a vLLM 0.32.0 with 104 KV blocks and eight long requests (CPU, tiny model).
PRESSURE = [
    (8, 0, 0.6153846153846154, 0, 425),
    (6, 2, 0.9230769230769231, 0, 877),
    (6, 2, 0.9230769230769231, 0, 1255),
    (4, 4, 0.9230769230769231, 0, 1597),
    (1, 3, 0.23076923076923073, 1, 1817),
    (4, 0, 0.7692307692307692, 4, 2085),
    (2, 0, 0.46153846153846156, 4, 2258),
    (0, 0, 0.0, 4, 2400),
]


def pressed(until: int) -> tuple[ServingSample, ...]:
    return tuple(
        ServingSample(
            at=7.0, generation_rate=(now[4] - then[4]) / 4, running=now[0], waiting=now[1], kv_percent=100 * now[2],
            preemptions=now[3] - then[3],
        )
        for then, now in pairwise(PRESSURE[:until])
    )  # fmt: skip


def test_a_real_run_under_kv_pressure_waits_then_preempts() -> None:
    assert [finding.id for finding in findings(EMPTY_TIMELINE, pressed(4))] == ["waiting"]
    assert [finding.id for finding in findings(EMPTY_TIMELINE, pressed(8))] == ["preemptions"]
    sample = pressed(2)[0]
    assert (sample.at, sample.generation_rate, sample.running, sample.preemptions) == (7.0, 113.0, 6, 0)
    assert sample.kv_percent == pytest.approx(92.3, abs=0.1)


# --- lines by version -------------------------------------------------------------------------------------

STATS = [
    # 0.14
    ("Engine 000: Avg prompt throughput: 2.3 tokens/s, Avg generation throughput: 8.1 tokens/s, Running: 1 reqs, "
     "Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit rate: 40.2%", (2.3, 8.1, 1, 0, None, 0.1, 40.2)),
    # 0.20 and later, every optional part
    ("Engine 003: Avg prompt throughput: 2.3 tokens/s, Avg generation throughput: 8.1 tokens/s, Running: 4 reqs, "
     "Waiting: 3 reqs, Deferred: 1 reqs, KV fetch: 0 waiting to start, 0 in progress, 2 completed waiting, "
     "Preemptions: 2, XPU KV cache usage: 99.9%, Prefix cache hit rate: 1.0%, Corrupted: 0 reqs, External prefix cache "
     "hit rate: 55.0%, MM cache hit rate: 3.0%", (2.3, 8.1, 4, 3, 2, 99.9, 1.0)),
    # 0.31: prefix caching off; an external cache is not it
    ("2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 8.1 tokens/s, Running: 1 "
     "reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%, External prefix cache hit rate: 55.0%",
     (0.0, 8.1, 1, 0, None, 5.0, None)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "figures"), STATS)
def test_periodic_lines_of_all_versions(line: str, figures: tuple[object, ...]) -> None:
    (sample,) = samples_of([f"(APIServer pid=1) INFO 04-01 18:00:00 [loggers.py:1] {line}"])
    assert figures == (
        sample.prompt_rate, sample.generation_rate, sample.running, sample.waiting, sample.preemptions,
        sample.kv_percent, sample.prefix_hit_percent,
    )  # fmt: skip


def test_json_lines_are_read_too() -> None:
    told = samples_of(run_log("vllm-0.32-cpu-json"))
    assert all(sample.generation_rate is not None for sample in told)


def test_an_hour_is_kept_and_no_more() -> None:
    samples = samples_of([stats(at % 3600, running=1) for at in range(KEPT + 100)])
    assert len(samples) == KEPT
    assert samples[-1].line == KEPT + 99


# --- properties -------------------------------------------------------------------------------------------

numbers = st.none() | st.integers(0, 10**9)
rates = st.none() | st.floats(0, 1e6, allow_nan=False)
shares = st.none() | st.floats(0, 100)


@given(
    st.lists(
        st.builds(
            ServingSample, at=rates, prompt_rate=rates, generation_rate=rates, running=numbers, waiting=numbers,
            preemptions=numbers, kv_percent=shares, prefix_hit_percent=shares,
            accepted=numbers, drafted=numbers, positions=st.lists(st.floats(0, 1), max_size=5).map(tuple),
        ),
        max_size=12,
    ),
    st.sampled_from(Health),
    rates,
    st.none() | st.builds(Baseline, st.floats(0.1, 1000)),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_samples_break_the_rules_and_what_they_propose_can_be_applied(
    samples: list[ServingSample], health: Health, now: float | None, baseline: Baseline | None
) -> None:
    around = LogContext(health=health, now=now, baseline=baseline, pool_gib=121.69)
    found = findings(track(up()), samples, around)
    assert len({finding.id for finding in found}) == len(found)
    for finding in found:
        assert finding.summary.rstrip()[-1] in ".)"
        overrides_from_pairs(dict(finding.change))


@given(st.lists(st.text(max_size=60) | st.sampled_from(STATS).map(lambda pair: pair[0]), max_size=10))
def test_no_line_breaks_the_reader(lines: list[str]) -> None:
    assert len(samples_of(lines)) <= len(lines)
