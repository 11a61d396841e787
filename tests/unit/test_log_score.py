"""Excerpts from public threads are explained at least as well as before: scripts/score_logs.py shows what is missed."""

from __future__ import annotations

import pytest

from tests.log_score import EXPECTED, FACETS, marks, shares

FLOORS = {"outcome": 87, "phase": 13, "verdict": 87, "cause": 87, "line": 87, "remedy": 62, "findings": 16}
"""How many of each facet are right: may rise, never fall."""


@pytest.fixture(scope="module")
def right() -> dict[str, int]:
    return {facet: count for facet, (count, _) in shares([m for name in EXPECTED for m in marks(name)]).items()}


@pytest.mark.parametrize("facet", FACETS)
def test_the_score_does_not_fall(right: dict[str, int], facet: str) -> None:
    assert right[facet] >= FLOORS[facet]
