"""What is under way: one list, from which every question about it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.files import StateFolder
from spark_tui.base.jobs import BenchStatus, JobView, StepState
from spark_tui.base.store import World
from spark_tui.base.under_way import Measurement, disturbed, under_way
from tests.fakes_files import MemoryState

EDIT = JobView("1", "gemma", what="edit")
AB = Measurement("A/B", ("qwen", "coder"), asyncio.Event(), asyncio.Event(), restored="qwen")


@pytest.mark.parametrize(
    ("job", "asks"),
    [
        (EDIT, True),
        (replace(EDIT, what="update"), True),
        (replace(EDIT, what="launch"), False),
        (replace(EDIT, state=StepState.DONE), False),
    ],
)
def test_leaving_asks_while_what_runs_is_replaced_and_not_while_it_starts(job: JobView, *, asks: bool) -> None:
    assert bool(under_way(World(jobs=(job,)), None)) is asks


def test_a_measurement_says_how_far_it_is_and_what_becomes_of_it() -> None:
    first, second = under_way(World(jobs=(EDIT,), bench=BenchStatus("qwen", "measuring", 3, 24)), AB)
    assert (first.engines, first.what) == (("qwen", "coder"), "A/B of qwen and coder, 3 of 24")
    assert "qwen is started again" in first.end
    assert second.engines == ("gemma",)


@pytest.mark.parametrize(
    ("then", "name", "count"),
    [("Launch", "new", 3), ("Restart", "gemma", 3), ("Stop", "new", 0), ("Stop", "coder", 1), ("Remove", "other", 1)],
)
def test_what_starts_disturbs_all_and_what_stops_disturbs_itself(then: str, name: str, count: int) -> None:
    own, state = under_way(World(jobs=(EDIT,)), AB), MemoryState()
    for claim in ("bench-qwen", "bench-coder", "edit-qwen", "edit-gemma", "bench-other"):  # all but the last are ours
        assert state.claim(claim)
    assert len(disturbed(then, name, own, state)) == count


def test_claims_of_another_program_are_seen_and_those_of_a_dead_one_are_not(tmp_path: Path) -> None:
    there, here = StateFolder(tmp_path), StateFolder(tmp_path)
    assert there.claim("bench-qwen")
    (tmp_path / "bench-dead.lock").touch()
    assert here.claimed("bench-") == ("bench-qwen",)
    assert here.claimed("edit-") == ()
    there.release("bench-qwen")
    assert here.claimed("bench-") == ()
