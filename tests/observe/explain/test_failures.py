"""Every known failure has its cause, its figures and its remedy: the tables are in tests/fixtures/failures."""

from __future__ import annotations

import re

import pytest

from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.timeline import StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import LogContext
from tests.cases import all_cases
from tests.failure_logs import FAILURES, Case, cases, explain

ALL = cases()
VLLM = pytest.mark.parametrize(
    "case", [case for case in ALL if case.version], ids=[case.name for case in ALL if case.version]
)
FLAGS = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
KNOWN_FLAGS = {"--gpus", "--ipc", "--mem-fraction-static", "--set"}
"""Docker's, SGLang's and spark-tui's own; vLLM's settings are named by their key, which `--set` takes."""


@all_cases("case", ALL, ids=[case.name for case in ALL])
def test_a_failure_has_its_cause(case: Case) -> None:
    cause = explain(case.log, case.exit_code)
    assert (cause.id, cause.guess, dict(cause.change)) == (case.cause, case.guess, case.override)
    assert [word for word in case.words if word not in cause.summary] == []
    assert case.remedy in cause.remedy
    assert case.component in (None, cause.subject)
    assert cause.evidence
    overrides_from_pairs(dict(cause.change))  # it can be applied
    text = f"{cause.summary} {cause.remedy}".replace("...", "")
    assert len(cause.summary) < 420
    assert re.search(r"  |\.\.|\bNone\b|\n|[{}]", text) is None, "whole sentences"
    assert set(FLAGS.findall(cause.remedy)) <= KNOWN_FLAGS, "no flag of the engine"
    after = explain(case.log, case.exit_code or 1)
    assert (after.id, after.change, after.evidence) == (cause.id, cause.change, cause.evidence), "as the log proves it"


@VLLM
def test_the_old_eras_prefix_on_every_line_does_not_change_the_cause(case: Case) -> None:
    old = [line if line.startswith("(") or not line else f"(APIServer pid=1) {line}" for line in case.log]
    assert explain(old, case.exit_code).id == case.cause


def test_every_cause_has_a_case() -> None:
    assert {case.cause for case in ALL} | {CauseId.STOPPED, CauseId.STOPPED_BY_GUARD} == set(CauseId)


# --- how an end is told -------------------------------------------------------------------------------------

LATE = (FAILURES / "vllm-0.32-tool-parser-does-not-fit.log").read_text(encoding="utf-8").splitlines()[1:]
"""Its API server fails late: it signals its own core, and only then says why."""
TRACEBACK = next(at for at, text in enumerate(LATE) if text.startswith("Traceback"))
SIGNALLED = LATE[:TRACEBACK]
INTERRUPTED = [*LATE[:-1], "KeyboardInterrupt: terminated"]
LLAMA = ("build: 9421 (ed7be1568) with GNU 13.3.0 for Linux aarch64", "srv    operator(): cleaning up before exit...")
ASKED = "(APIServer pid=1) INFO 11-28 00:51:25 [launcher.py:254] [shutdown] API server: shutdown triggered"


@pytest.mark.parametrize("exit_code", [None, 1])
def test_a_server_that_signals_its_own_core_has_failed_and_says_why(exit_code: int | None) -> None:
    cause = explain(LATE, exit_code)
    assert (cause.id, cause.guess) == (CauseId.BAD_PARSER, False)
    assert dict(cause.change) == {"tool_call_parser": "hermes"}
    assert "llama3_json" in cause.summary


@pytest.mark.parametrize(
    ("log", "exit_code", "outcome"),
    [
        pytest.param(SIGNALLED, None, StartOutcome.STOPPED, id="a text that ends with the signal"),
        pytest.param(SIGNALLED, 0, StartOutcome.STOPPED, id="docker stop"),
        pytest.param(SIGNALLED, 143, StartOutcome.STOPPED, id="docker stop while it loads"),
        pytest.param(SIGNALLED, 130, StartOutcome.STOPPED, id="Ctrl-C"),
        pytest.param(SIGNALLED, 1, StartOutcome.FAILED, id="it failed, and the reason is not in the log"),
        pytest.param(SIGNALLED, 137, StartOutcome.FAILED, id="the kernel"),
        pytest.param([*SIGNALLED, ASKED], 1, StartOutcome.STOPPED, id="its server was asked to end"),
        pytest.param([ASKED, *LATE], 137, StartOutcome.STOPPED, id="asked to end, and the grace time was over"),
        pytest.param(INTERRUPTED, None, StartOutcome.STOPPED, id="a pasted Ctrl-C"),
        pytest.param(INTERRUPTED, 1, StartOutcome.STOPPED, id="SIGTERM while it loads"),
        pytest.param(LLAMA, 0, StartOutcome.STOPPED, id="llama.cpp, asked to end"),
        pytest.param(LLAMA, 1, StartOutcome.FAILED, id="llama.cpp, by itself"),
    ],
)
def test_an_engine_was_stopped_only_by_a_signal_from_outside(
    log: list[str], exit_code: int | None, outcome: StartOutcome
) -> None:
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in log)
    if exit_code is None:
        tracker.text_ended()
    else:
        tracker.container_ended(exit_code)
    cause = explain_failure(tracker.timeline(), LogContext(exit_code=exit_code))
    assert tracker.timeline().outcome is outcome
    assert cause is not None
    assert (cause.id == CauseId.STOPPED) is (outcome is StartOutcome.STOPPED)


def test_an_end_without_an_error_that_nobody_asked_for_is_not_called_a_stop() -> None:
    said = explain(SIGNALLED, 0).summary
    assert explain(["usage: serve"], 0).summary != said
    assert explain(["usage: serve"], 143).summary == said


def test_for_an_engine_on_the_processor_no_page_cache_is_to_be_freed() -> None:
    """Only CUDA counts it as used."""
    killed = explain(SIGNALLED, 137)
    assert (killed.id, "cache" in killed.remedy) == (CauseId.KILLED, False)
    assert killed.remedy[:1].isupper()
    on_gpu = [line.replace("device_config=cpu", "device_config=cuda") for line in SIGNALLED]
    assert "page cache" in explain(on_gpu, 137).remedy
