"""Arithmetic on CUDA graphs and the KV cache. Figures are those of real GB10 starts where they are not round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.quantities import GIB
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.observe.explain.model.sizing import (
    GraphState,
    concurrency_of,
    context_that_fits,
    equivalent_utilization,
    graph_memory,
    kv_alternatives,
    kv_summary,
    utilization_of,
    utilization_that_holds,
)
from spark_tui.observe.explain.model.timeline import EngineFacts
from tests.engine_logs import banner, core, facts_of
from tests.log_fixtures import run_log

ENABLED = (
    "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.8200 is "
    "equivalent to --gpu-memory-utilization=0.8048 without CUDA graph memory profiling. To maintain the same effective "
    "KV cache size as before, increase --gpu-memory-utilization to 0.8352. To disable, set "
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0."
)
ENABLED_0_18 = (
    "CUDA graph memory profiling is enabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1). This will become the default "
    "in v0.19. The current --gpu-memory-utilization=0.9000 is equivalent to --gpu-memory-utilization=0.8800 without "
    "CUDA graph memory profiling. To maintain the same effective KV cache size as before, increase "
    "--gpu-memory-utilization to 0.9200."
)
ADVERTISED = (
    "In v0.19, CUDA graph memory profiling will be enabled by default (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), "
    "which more accurately accounts for CUDA graph memory during KV cache allocation. To try it now, set "
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase --gpu-memory-utilization from 0.8000 to 0.8027 to "
    "maintain the same effective KV cache size."
)
DISABLED = (
    "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA graph "
    "memory is not accounted for during KV cache allocation, which may require lowering --gpu-memory-utilization to "
    "avoid OOM. Consider re-enabling it (the default as of v0.21.0) and increasing --gpu-memory-utilization from "
    "0.8000 to 0.8120."
)


def start(
    estimated: float, available: float, actual: float | None = None, *more: str, version: str = "0.22.1",
    args: str = "'gpu_memory_utilization': 0.85",
) -> EngineFacts:  # fmt: skip
    """A start with these figures, as vLLM prints them."""
    lines = [
        f"Estimated CUDA graph memory: {estimated:.2f} GiB total",
        f"Available KV cache memory: {round(available, 2)} GiB",
        *more,
        "GPU KV cache size: 694,656 tokens",
        "Maximum concurrency for 262,144 tokens per request: 2.65x",
    ]
    if actual is not None:
        lines.append(f"Graph capturing finished in 4 secs, took {actual:.2f} GiB")
    return facts_of([*banner(version, args=args), *core(*lines)])


# --- graphs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimated", [0.26, -0.17, -0.81, -0.87, -0.90])
def test_estimates_of_healthy_gb10_starts_ask_for_nothing(estimated: float) -> None:
    graphs = graph_memory(start(estimated, 64.69, 0.37))
    assert graphs.state in (GraphState.SOUND, GraphState.HARMLESS)
    assert (graphs.remedy, graphs.change) == ("", ())
    assert (graphs.state is GraphState.HARMLESS) == (estimated < 0)


def test_a_negative_estimate_makes_the_kv_cache_larger_by_as_much_and_by_the_graphs_themselves() -> None:
    graphs = graph_memory(start(-2.24, 60.0, 0.4))
    assert (graphs.state, graphs.excess_gib, graphs.grave) == (GraphState.OVERCOMMITTED, 2.64, False)
    # 60 - 2.64 = 57.36, down to a tenth.
    assert graphs.pin_bytes == round(57.3 * GIB)
    assert graphs.change == (("kv_cache_memory_bytes", str(round(57.3 * GIB))), ("gpu_memory_utilization", "0.85"))


def test_the_absurd_estimate_that_froze_a_spark_is_pinned_to_what_memory_was_meant_for() -> None:
    # seeds: -35.63 GiB at 0.85 inflated the KV budget to 112 GiB of 121.7.
    graphs = graph_memory(start(-35.63, 112.0))
    assert graphs.state is GraphState.OVERCOMMITTED
    assert graphs.grave
    # 112 - 35.63 - 0.5 for graphs whose real size is not known yet = 75.87, down to a tenth.
    assert graphs.pin_bytes == round(75.8 * GIB)
    assert "35.63 GiB larger" in graphs.summary


def test_a_pin_is_never_proposed_without_the_utilization_beside_it() -> None:
    for version, args, said in (("0.22.1", "'port': 8000", "0.92"), ("0.22.1", "'gpu_memory_utilization': 0.7", "0.7")):
        override = dict(graph_memory(start(-20.0, 90.0, version=version, args=args)).change)
        assert override["gpu_memory_utilization"] == said
    unknown = graph_memory(replace(start(-20.0, 90.0), version="", gpu_memory_utilization=None))
    assert unknown.remedy
    assert unknown.change == ()


def test_memory_set_aside_for_graphs_that_never_took_it_is_named() -> None:
    graphs = graph_memory(start(9.0, 40.0, 0.4))
    assert graphs.state is GraphState.WASTEFUL
    # 40 + 8.6 - 0.5 = 48.1
    assert graphs.pin_bytes == round(48.1 * GIB)


def test_before_0_20_the_estimate_did_not_count_unless_it_was_asked_for() -> None:
    assert graph_memory(start(-5.0, 60.0, 0.4, version="0.19.1")).state is GraphState.HARMLESS
    assert graph_memory(start(-5.0, 60.0, 0.4, ENABLED_0_18, version="0.19.1")).state is GraphState.OVERCOMMITTED
    assert graph_memory(start(-5.0, 60.0, 0.4, DISABLED)).state is GraphState.HARMLESS


def test_a_kv_cache_that_is_pinned_already_is_left_alone() -> None:
    args = "'gpu_memory_utilization': 0.85, 'kv_cache_memory_bytes': 42949672960"
    assert graph_memory(start(-35.0, 40.0, args=args)).state is GraphState.HARMLESS


def test_the_real_starts() -> None:
    forum = graph_memory(facts_of(run_log("gb10-vllm-0.18-mtp-forum")))
    assert (forum.state, forum.estimated_gib, forum.actual_gib) == (GraphState.HARMLESS, 0.33, -0.1)
    qwen = graph_memory(facts_of(run_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp")))
    assert (qwen.state, qwen.excess_gib) == (GraphState.HARMLESS, 0.54)


def test_model_runner_v2_measures_by_capturing_and_only_the_last_capture_is_real() -> None:
    facts = facts_of(
        core(
            "Graph capturing finished in 3 secs, took 0.52 GiB",
            "Available KV cache memory: 40.1 GiB",
            "GPU KV cache size: 100,000 tokens, Maximum concurrency for 50,000 tokens per request: 2.00x",
            "Graph capturing finished in 3 secs, took 0.41 GiB",
        )
    )
    graphs = graph_memory(facts)
    assert (graphs.state, graphs.actual_gib, graphs.estimated_gib) == (GraphState.SOUND, 0.41, None)


def test_eager_has_no_graphs() -> None:
    assert graph_memory(EngineFacts(eager=True)).state is GraphState.NONE


# --- equivalent utilization -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "override"),
    [
        (ENABLED, {"gpu_memory_utilization": "0.8352"}),
        (ADVERTISED, {"env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1", "gpu_memory_utilization": "0.8027"}),
        (DISABLED, {"env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1", "gpu_memory_utilization": "0.812"}),
        (ENABLED_0_18, {}),  # 0.92 leaves too little of unified memory
    ],
)
def test_the_line_on_utilization_becomes_a_suggestion(line: str, override: dict[str, str]) -> None:
    suggestion = equivalent_utilization(facts_of(core(line)))
    assert suggestion is not None
    assert dict(suggestion.change) == override
    overrides_from_pairs(dict(suggestion.change))
    if not override:
        assert "too much for unified memory" in suggestion.text


def test_without_the_line_there_is_no_suggestion() -> None:
    assert equivalent_utilization(EngineFacts(gpu_memory_utilization=0.8)) is None


# --- the KV cache -----------------------------------------------------------------------------------------


def test_requests_that_fit_at_once_are_logged_or_tokens_over_context() -> None:
    assert concurrency_of(facts_of(run_log("gb10-vllm-0.18-mtp-forum"))) == 2.63
    assert concurrency_of(EngineFacts(kv_tokens=2_097_152, max_model_len=512)) == 4096.0
    assert concurrency_of(EngineFacts(kv_tokens=2_097_152)) is None


def test_what_would_fit_instead() -> None:
    facts = start(0.3, 18.04, 0.3, args="'gpu_memory_utilization': 0.8, 'max_num_seqs': 4")
    assert context_that_fits(facts, 4) == 173_056  # 2.65 * 262,144 / 4, down to 1,024
    # Four contexts need 18.04 * 4 / 2.65 = 27.23 GiB: 9.19 more, 7.6 % of 121.69.
    assert utilization_that_holds(facts, 4, 121.69) == 0.88
    assert utilization_that_holds(facts, 8, 121.69) is None  # more than a Spark should give
    choices = [dict(choice.change) for choice in kv_alternatives(facts, 121.69)]
    assert choices == [{"max_model_len": "173056"}, {"gpu_memory_utilization": "0.88"}, {"max_num_seqs": "2"}]
    for choice in choices:
        overrides_from_pairs(choice)


def test_nothing_is_proposed_where_everything_fits_or_nothing_is_known() -> None:
    facts = facts_of(run_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"))
    assert kv_alternatives(facts, 121.69) == ()
    assert kv_alternatives(EngineFacts()) == ()
    assert context_that_fits(EngineFacts(), 4) is None
    assert utilization_that_holds(EngineFacts(), 4, 121.69) is None


def test_kv_given_rather_than_measured() -> None:
    facts = facts_of(
        core(
            "Initial free memory 31.16 GiB, reserved 4.25 GiB memory for KV Cache as specified by "
            "kv_cache_memory_bytes config and skipped memory profiling. This does not respect the "
            "gpu_memory_utilization config.",
            "GPU KV cache size: 100,000 tokens, Maximum concurrency for 50,000 tokens per request: 2.00x",
        )
    )
    assert kv_summary(facts) == "100k tokens (4.2 GiB), room for 2 requests of 50k tokens"


READ = [
    (ENABLED, {"gpu_memory_utilization": 0.82, "utilization_without_estimate": 0.8048, "graph_estimate_applied": True}),
    (ADVERTISED, {"graph_estimate_applied": False}),
    (  # its absurd percentage is ignored
        "CUDA graph pool memory: -0.1 GiB (actual), 0.33 GiB (estimated), difference: 0.43 GiB (46398668800.0%).",
        {"graph_actual_gib": -0.1, "graph_estimated_gib": 0.33},
    ),
    (
        "Applying persisted startup plan (fingerprint ab12): kv_cache_memory_bytes=4563402752 (4.25 GiB), recorded "
        "free-memory baseline 31.16 GiB, current 33.00 GiB. Memory profiling will be skipped.",
        {"kv_gib": 4.25},
    ),
    (
        "Free memory on device cuda:0 (110.2/121.69 GiB) on startup. Desired GPU memory utilization is",
        {"device_gib": 121.69},
    ),
]


@pytest.mark.parametrize(("line", "fields"), READ, ids=[line[:24] for line, _ in READ])
def test_a_line_is_read(line: str, fields: dict[str, object]) -> None:
    facts = facts_of(core(line))
    assert {name: getattr(facts, name) for name in fields} == fields


def test_defaults_by_version() -> None:
    assert utilization_of(facts_of(banner("0.19.1"))) == 0.9
    assert utilization_of(facts_of(banner("0.20.2"))) == 0.92
    assert utilization_of(EngineFacts()) is None


# --- properties -------------------------------------------------------------------------------------------

sizes = st.none() | st.floats(-100, 200, allow_nan=False).map(lambda size: round(size, 2))


@given(
    st.builds(
        EngineFacts,
        version=st.sampled_from(["", "0.18.1", "0.22.1", "nonsense"]),
        graph_estimated_gib=sizes,
        graph_actual_gib=sizes,
        kv_gib=sizes,
        kv_tokens=st.none() | st.integers(0, 10**12),
        max_model_len=st.none() | st.integers(0, 10**9),
        max_concurrency=st.none() | st.floats(0, 1e6, allow_nan=False),
        gpu_memory_utilization=st.none() | st.floats(0.01, 1.0),
        max_num_seqs=st.none() | st.integers(0, 10**6),
        kv_cache_memory_bytes=st.none() | st.integers(0, 10**12),
        utilization_with_estimate=st.none() | st.floats(0, 2),
        utilization_without_estimate=st.none() | st.floats(0, 2),
        graph_estimate_applied=st.none() | st.booleans(),
    ),
    st.none() | st.floats(0, 1000),
)
def test_no_figures_break_the_arithmetic_and_what_is_proposed_can_be_applied(
    facts: EngineFacts, pool: float | None
) -> None:
    graphs = graph_memory(facts)
    kv_summary(facts)
    pairs = [graphs.change, *(choice.change for choice in kv_alternatives(facts, pool))]
    suggestion = equivalent_utilization(facts)
    pairs += [suggestion.change] if suggestion else []
    for override in pairs:
        overrides_from_pairs(dict(override))
    assert ("kv_cache_memory_bytes" in dict(graphs.change)) <= ("gpu_memory_utilization" in dict(graphs.change))
