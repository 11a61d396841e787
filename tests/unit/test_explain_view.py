"""An engine under watch explained: what it proposes, and which lines of its log are worth a jump."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_tui.domain.engine.container import ContainerFacts, ContainerStatus
from spark_tui.domain.engine.state import EngineState, Exposure
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.logs.causes.diagnosis import CauseId
from spark_tui.domain.logs.explain import LandmarkKind, explain_view, finding_rows, landmarks, proposal
from spark_tui.domain.logs.findings import FindingId, Level
from spark_tui.domain.logs.serving import ServingReader
from spark_tui.domain.logs.tracker import BootTracker
from tests.log_fixtures import read_log, run_log

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
PORT = "vllm-0.32-cpu-f_port"
BUSY = (
    "(APIServer pid=1) INFO 05-21 21:1{n}:31 [loggers.py:271] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg "
    "generation throughput: 9.0 tokens/s, Running: 2 reqs, Waiting: 3 reqs, GPU KV cache usage: 97.0%, Prefix cache "
    "hit rate: 0.0%"
)


def view_of(
    lines: list[str], state: EngineState = EngineState.SERVING, exit_code: int | None = None, first_line: int = 0
) -> EngineView:
    tracker, serving = BootTracker(), ServingReader()
    pairs = [("", line) for line in lines]
    tracker.feed_many(pairs)
    serving.feed_many(pairs)
    status = ContainerStatus.RUNNING if exit_code is None else ContainerStatus.EXITED
    if exit_code is not None:
        tracker.container_ended(exit_code)
    container = ContainerFacts("a" * 64, "qwen", "vllm/vllm-openai:x", "", status, exit_code=exit_code)
    return EngineView(
        container, state, "vllm", Exposure.LOCAL, timeline=tracker.timeline(), samples=serving.samples,
        first_line=first_line,
    )  # fmt: skip


def test_a_failed_start_proposes_what_its_cause_proposes() -> None:
    explanation = explain_view(view_of(run_log(PORT), EngineState.FAILED, 1))
    assert explanation.cause is not None
    assert explanation.cause.id is CauseId.PORT_IN_USE
    found = proposal(explanation)
    assert found is not None
    assert found.changes == (("port", "8131"),)


def test_a_port_that_another_engine_has_is_not_proposed() -> None:
    found = proposal(explain_view(view_of(run_log(PORT), EngineState.FAILED, 1), taken_ports={8131}))
    assert found is not None
    assert dict(found.changes)["port"] not in ("8130", "8131")


@pytest.mark.parametrize("state", [EngineState.SERVING, EngineState.STOPPED])
def test_an_engine_that_serves_or_was_stopped_has_no_cause(state: EngineState) -> None:
    view = view_of(read_log(GB10), state, 137 if state is EngineState.STOPPED else None)
    assert explain_view(view).cause is None


def test_a_full_cache_is_a_finding_with_a_change_and_a_line_in_the_buffer() -> None:
    lines = [*read_log(GB10), *(BUSY.format(n=n) for n in range(4))]
    explanation = explain_view(view_of(lines))
    assert {FindingId.KV_NEARLY_FULL, FindingId.WAITING} <= {found.id for found in explanation.findings}
    found = proposal(explanation)
    assert found is not None
    rows = finding_rows(explanation.findings, found.changes)
    assert {row.label for row in rows} >= {"a applies", "do", "warning"}
    marked = landmarks(explanation, first_line=1000)
    told = [mark for mark in marked if mark.kind is LandmarkKind.FINDING]
    assert told
    assert all(lines[mark.line - 1000] for mark in told)
    assert any("KV cache" in mark.text and "97.0%" in lines[mark.line - 1000] for mark in told)


def test_landmarks_are_in_order_and_the_gravest_of_a_line_is_told() -> None:
    explanation = explain_view(view_of(run_log(PORT), EngineState.FAILED, 1))
    finding = replace(explain_view(view_of([*read_log(GB10), BUSY.format(n=1)])).findings[0], line=7)
    both = replace(explanation, findings=(finding,))
    marks = landmarks(both, first_line=10, cause_line=17)
    assert [mark.line for mark in marks] == sorted({mark.line for mark in marks})
    assert next(mark for mark in marks if mark.line == 17).kind is LandmarkKind.CAUSE


def test_labels_tell_how_grave_a_finding_is() -> None:
    lines = [*read_log(GB10), *(BUSY.format(n=n) for n in range(4))]
    for found in explain_view(view_of(lines)).findings:
        label = finding_rows((found,))[0].label
        assert label == {Level.CRITICAL: "urgent", Level.WARNING: "warning", Level.INFO: "advice"}[found.level]
