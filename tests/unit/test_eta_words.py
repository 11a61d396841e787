"""What is left, in words that hold still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.logs.eta import Basis, Eta, eta_words, rough_duration
from spark_tui.domain.logs.timeline import PhaseId


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Eta(), ""),
        (Eta(131.0, Basis.HISTORY, starts=3), "about 2 min 10 s left (from 3 earlier starts)"),
        (Eta(131.0, Basis.HISTORY, starts=1), "about 2 min 10 s left (from 1 earlier start)"),
        (Eta(3.0, Basis.HISTORY, starts=2), "a few seconds left (from 2 earlier starts)"),
        (
            Eta(40.0, Basis.HISTORY, starts=2, overdue=True),
            "takes longer than usual; then about 40 s (from 2 earlier starts)",
        ),
        (Eta(0.0, Basis.HISTORY, starts=2, overdue=True), "takes longer than usual (from 2 earlier starts)"),
        (Eta(95.0, Basis.PROGRESS, PhaseId.WEIGHTS), "Weights: about 1 min 40 s left, by its own progress"),
    ],
)
def test_the_words(found: Eta, words: str) -> None:
    assert eta_words(found) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "a few seconds"),
        (7.4, "a few seconds"),
        (8.0, "about 10 s"),
        (44.0, "about 45 s"),
        (59.0, "about 1 min"),
        (64.0, "about 1 min"),
        (130.0, "about 2 min 10 s"),
        (599.0, "about 10 min"),
        (840.0, "about 14 min"),
        (7200.0, "about 120 min"),
    ],
)
def test_rounding(seconds: float, words: str) -> None:
    assert rough_duration(seconds) == words


@given(st.floats(0, 86_400), st.floats(0, 4.9))
def test_it_changes_at_most_every_few_seconds(seconds: float, later: float) -> None:
    """Within any five seconds there are at most two texts."""
    between = {rough_duration(max(0.0, seconds - later * part / 20)) for part in range(21)}
    assert len(between) <= 2
