"""What a log means, as both front ends show it: rows, places in the log, sections."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.state import EngineState
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.page import Tone
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer, explain, explain_view
from spark_tui.observe.explain.model.findings import FindingId
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, PhaseId, StartOutcome
from spark_tui.observe.explain.show import (
    LEVELS,
    LandmarkKind,
    explanation_page,
    explanation_rows,
    finding_rows,
    landmarks,
    verdict_rows,
)
from tests.engine_logs import PRESSED, banner, core, drafts, samples_of, stats, track, view_of
from tests.log_fixtures import read_log, run_log

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
PORT = "vllm-0.32-cpu-f_port"


def explained(lines: list[str]) -> Explanation:
    return explain(track(lines), samples_of(lines))


def test_verdicts_of_the_real_gb10_start() -> None:
    rows = {row.label: row for row in verdict_rows(explained(run_log(GB10)))}
    assert list(rows) == [
        "FP4", "kernels", "attention", "KV cache", "KV dtype", "prefix", "drafting", "graphs", "mode", "schedule",
    ]  # fmt: skip
    assert rows["FP4"].tone is Tone.GOOD
    assert rows["KV cache"].text == "5.46M tokens (64.7 GiB), room for 20 requests of 262k tokens"
    assert rows["KV dtype"].text == "fp8"
    assert rows["drafting"].text == "mtp 3, no acceptance data yet"
    assert rows["graphs"].text.startswith("0.37 GiB (vLLM estimated -0.17: normal on unified memory)")


TILE = "[TensorRT-LLM][DEBUG] SM121: skipping tile M=128 N=128 K=64 stages=4: exceeds SMEM limit"
TACTIC = (
    "(EngineCore pid=94) 2026-04-01 17:57:14,490 - INFO - autotuner.py:817 - flashinfer.jit: [Autotuner]: Skipped 2 "
    "unsupported tactic(s) for trtllm::fused_moe::gemm2 (enable debug logs to see details)"
)
BLOCKS = (
    "(EngineCore pid=94) INFO 04-01 17:57:08 [kv_cache_utils.py:829] Overriding num_gpu_blocks=0 with "
    "num_gpu_blocks_override=120"
)
PIECEWISE = (
    "(EngineCore pid=94) WARNING 04-01 17:57:08 [gpu_model_runner.py:6377] CUDAGraphMode.FULL_AND_PIECEWISE is not "
    "supported with spec-decode for attention backend FlashInferBackend (support: "
    "AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE"
)
INIT = (
    "(EngineCore pid=94) INFO 04-01 17:57:29 [core.py:283] init engine (profile, create kv cache, warmup model) took "
    "54.93 seconds"
)


def test_lines_of_a_healthy_start_that_look_like_trouble_say_what_they_mean() -> None:
    told = explained([TILE, PIECEWISE, BLOCKS, TACTIC, TILE, INIT])
    rows = [row for row in verdict_rows(told) if row.label in ("mode", "harmless")]
    assert [(row.label, row.line) for row in rows] == [("mode", 1), ("harmless", 0), ("harmless", 3), ("harmless", 2)]
    assert all(row.tone is Tone.QUIET for row in rows)
    assert "spec-decode for attention backend FlashInferBackend" in rows[0].text
    assert told.timeline.phase(PhaseId.ENGINE_READY).detail == "init 54.93 s in all"
    assert told.findings == ()


def test_tiles_that_a_kernel_skips_name_no_engine() -> None:
    reader = LogExplainer()
    reader.feed_many([("", TILE)])
    assert (reader.explanation().engine, reader.explanation().outcome) == ("", StartOutcome.UNKNOWN)


def test_nccl_over_tcp_is_told_with_its_interface() -> None:
    head = "spark-1:212:212 [0] NCCL INFO"
    (found,) = explained([f"{head} NET/Socket : Using [0]enP7s7:192.168.1.20<0>", *core("x")]).findings[:1]
    assert found.id == FindingId.NCCL_SOCKET
    assert "enP7s7" in found.summary and "10 to 20 times slower" in found.summary
    fast = explained([f"{head} NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.1<0>"])
    assert FindingId.NCCL_SOCKET not in [each.id for each in fast.findings]


def test_verdicts_hold_live_figures_where_there_are_any() -> None:
    args = "'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}"
    lines = [*banner("0.32.0", args=args), stats(0, generation=41.8, running=1, kv=3.2)]
    rows = {row.label: row.text for row in verdict_rows(explained([*lines, drafts(0, 740, 1000, "0.9, 0.8")]))}
    assert rows["drafting"] == "mtp 2, 74% accepted, 2.7 tokens per step"


def test_unknown_verdicts_have_no_row() -> None:
    assert verdict_rows(explain(EMPTY_TIMELINE)) == ()
    eager = explained(core("Enforce eager set, disabling torch.compile and CUDAGraphs.", level="WARNING"))
    assert [(row.label, row.text) for row in verdict_rows(eager)] == [("graphs", "none (eager)")]


def test_a_full_cache_has_a_fix_and_a_line_in_the_buffer() -> None:
    lines = [*read_log(GB10), *PRESSED]
    explanation = explained(lines)
    proposal = explanation.proposal
    assert proposal is not None
    rows = finding_rows(explanation.findings, proposal.change)
    assert {row.label for row in rows} >= {"a applies", "fix", "warning"}
    found = [mark for mark in landmarks(explanation, first_line=1000) if mark.kind is LandmarkKind.FINDING]
    assert any("KV cache" in mark.text and "97.0%" in lines[mark.line - 1000] for mark in found)


def test_landmarks_are_in_order_and_the_gravest_of_a_line_wins() -> None:
    explanation = explain_view(view_of(run_log(PORT), EngineState.FAILED, 1), now=0.0)
    finding = Finding("waiting", Severity.WARNING, "3 requests waiting.", line=7)
    marks = landmarks(replace(explanation, findings=(finding,)), first_line=10, cause_line=17)
    assert [mark.line for mark in marks] == sorted({mark.line for mark in marks})
    assert next(mark for mark in marks if mark.line == 17).kind is LandmarkKind.CAUSE


@pytest.mark.parametrize("preset", [True, False])
def test_a_cause_is_shown_with_its_fix_and_its_line(preset: bool) -> None:
    explanation = explain_view(view_of(run_log(PORT), EngineState.FAILED, 1), now=0.0)
    rows = explanation_rows(explanation, preset=preset)
    assert [row.label for row in rows] == ["cause", "fix", "a applies", "evidence"]
    assert rows[0].tone is Tone.BAD
    assert rows[2].text.startswith("port=8131")


def test_severities_have_the_words_of_the_first_version() -> None:
    assert LEVELS == {Severity.ERROR: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}


def test_a_page_has_no_empty_section_and_numbers_lines_from_1() -> None:
    page = explanation_page(explained([*read_log(GB10), *PRESSED]))
    assert all(section.rows for section in page)
    assert [row.label for row in page[0].rows] == ["engine", "model", "outcome"]
    assert all(f"[line {row.line + 1}]" in row.text for section in page for row in section.rows if row.line is not None)
