"""Excerpts from public threads are explained as well as before: scripts/score_logs.py shows what is missed."""

from __future__ import annotations

import pytest

from tests.log_score import EXCERPTS, EXPECTED, FACETS, marks, shares

SCORE = {"outcome": 402, "phase": 130, "verdict": 405, "cause": 395, "line": 397, "remedy": 152, "findings": 78}
"""How many of each facet are right. A higher number is written here too, so that it cannot fall again."""


@pytest.fixture(scope="module")
def right() -> dict[str, int]:
    return {facet: count for facet, (count, _) in shares([m for name in EXPECTED for m in marks(name)]).items()}


@pytest.mark.parametrize("facet", FACETS)
def test_the_score_does_not_fall(right: dict[str, int], facet: str) -> None:
    assert right[facet] == SCORE[facet]


def test_each_excerpt_names_its_thread_and_is_labelled() -> None:
    files = {path.stem: path.read_bytes() for path in EXCERPTS.glob("*.log")}
    assert files.keys() == EXPECTED.keys()
    assert all(text.startswith(b"SOURCE: https://") for text in files.values())
    assert all({"outcome", "cause", "line"} <= facts.keys() for facts in EXPECTED.values())
