"""Every known failure has its cause, its figures and its remedy: the tables are in tests/fixtures/failures."""

from __future__ import annotations

import re

import pytest

from spark_tui.domain.logs.causes.cause import CauseId
from spark_tui.domain.presets.overrides import overrides_from_pairs
from tests.failure_logs import Case, cases, explain

ALL = cases()
VLLM = pytest.mark.parametrize(
    "case", [case for case in ALL if case.version], ids=[case.name for case in ALL if case.version]
)
FLAGS = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
KNOWN_FLAGS = {"--gpus", "--ipc", "--mem-fraction-static", "--set"}
"""Docker's, SGLang's and spark-tui's own; vLLM's settings are named by their key, which `--set` takes."""


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_a_failure_has_its_cause(case: Case) -> None:
    cause = explain(case.log, case.exit_code)
    assert (cause.id, cause.guess, dict(cause.change)) == (case.cause, case.guess, case.override)
    assert [word for word in case.words if word not in cause.summary] == []
    assert case.remedy in cause.remedy
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
