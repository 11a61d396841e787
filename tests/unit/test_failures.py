"""Every known failure has its cause, its figures and its remedy: the tables are in tests/fixtures/failures."""

from __future__ import annotations

import re

import pytest

from spark_tui.domain.logs.causes.cause import CauseId
from spark_tui.domain.presets.overrides import overrides_from_pairs
from tests.failure_logs import Case, cases, explain

ALL = cases()
EVERY = pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
VLLM = pytest.mark.parametrize(
    "case", [case for case in ALL if case.version], ids=[case.name for case in ALL if case.version]
)
FLAGS = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
KNOWN_FLAGS = {"--gpus", "--ipc", "--mem-fraction-static", "--set"}
"""Docker's, SGLang's and spark-tui's own; vLLM's settings are named by their key, which `--set` takes."""


@EVERY
def test_a_failure_has_its_cause(case: Case) -> None:
    cause = explain(case.log, case.exit_code)
    assert cause.id == case.cause
    assert [word for word in case.words if word not in cause.summary] == []
    assert dict(cause.change) == case.override
    assert cause.guess is case.guess
    assert case.remedy in cause.remedy
    assert cause.evidence


@EVERY
def test_what_it_would_apply_can_be_applied(case: Case) -> None:
    overrides_from_pairs(dict(explain(case.log, case.exit_code).change))


@EVERY
def test_a_remedy_is_whole_and_names_no_flag_of_the_engine(case: Case) -> None:
    cause = explain(case.log, case.exit_code)
    told = f"{cause.summary} {cause.remedy}".replace("...", "")
    assert len(cause.summary) < 420
    assert re.search(r"  |\.\.|\bNone\b|\n|[{}]", told) is None
    assert set(FLAGS.findall(cause.remedy)) <= KNOWN_FLAGS


@EVERY
def test_the_end_of_the_container_does_not_change_what_the_log_proves(case: Case) -> None:
    before = explain(case.log, case.exit_code)
    after = explain(case.log, case.exit_code or 1)
    assert (after.id, after.change, after.evidence) == (before.id, before.change, before.evidence)


@VLLM
def test_the_old_eras_prefix_on_every_line_does_not_change_the_cause(case: Case) -> None:
    old = [line if line.startswith("(") or not line else f"(APIServer pid=1) {line}" for line in case.log]
    assert explain(old, case.exit_code).id == case.cause


def test_every_cause_has_a_case() -> None:
    assert {case.cause for case in ALL} | {CauseId.STOPPED} == set(CauseId)
