"""The boot timeline: the list while it loads, one line afterwards; words as well as colours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from msgspec.structs import replace
from textual.app import App, ComposeResult
from textual.screen import Screen

from spark_tui.observe.engines.screen.boot_timeline import BootTimelineView
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, BootTimeline, PhaseId, StartFailure
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.tui.format import ASCII
from spark_tui.tui.themes import SPARK_DARK
from tests.fakes_host import FakeClock
from tests.log_fixtures import read_log, run_log

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
WIDTHS = [40, 60, 80, 120, 200]
NOW = FakeClock().now()


def tracked(until: str = "", name: str = GB10) -> LogTracker:
    tracker = LogTracker()
    for line in run_log(name):
        tracker.feed(None, line)
        if until and until in line:
            break
    return tracker


class TimelineApp(App[None]):
    """A timeline and nothing else."""

    def __init__(self, fold_lines: int = 1) -> None:
        super().__init__()
        self.fold_lines = fold_lines
        self.clock = FakeClock()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name

    def compose(self) -> ComposeResult:
        yield BootTimelineView(self.clock, ASCII, fold_lines=self.fold_lines)

    @property
    def view(self) -> BootTimelineView:
        return self.query_one(BootTimelineView)


def texts(app: TimelineApp, width: int) -> list[str]:
    return [line.plain for line in app.view.lines(width)]


@asynccontextmanager
async def shown(
    timeline: BootTimeline, size: tuple[int, int] = (80, 30), past: Sequence[StartRecord] = ()
) -> AsyncIterator[TimelineApp]:
    app = TimelineApp()
    async with app.run_test(size=size) as pilot:
        app.view.show(timeline, folded=False, past=past)
        await pilot.pause()
        yield app


async def said(timeline: BootTimeline, width: int, *, folded: bool, fold_lines: int = 1, height: int = 30) -> list[str]:
    """What is really painted."""
    app = TimelineApp(fold_lines)
    async with app.run_test(size=(width, height)) as pilot:
        app.view.show(timeline, folded=folded)
        await pilot.pause()
        await pilot.pause()
        painted = [app.view.render_line(y) for y in range(app.view.size.height)]
        assert all(strip.cell_length == width for strip in painted)
        return [strip.text.rstrip() for strip in painted]


def row(lines: list[str], label: str) -> str:
    return next(line for line in lines if line[2:].startswith(label))


@pytest.mark.parametrize("width", WIDTHS)
async def test_while_it_loads_every_phase_has_its_line(width: int) -> None:
    lines = await said(tracked("17% Completed").timeline(), width, folded=False)
    assert row(lines, "Weights").startswith(ASCII.running)
    assert "17%" in row(lines, "Weights")
    assert row(lines, "Config").startswith(ASCII.done)
    assert "30s" in row(lines, "Config")
    assert row(lines, "Compile").startswith(ASCII.pending)
    assert lines[-1].startswith("Auto-prefetch is disabled"), "the last telling line stands below"


async def test_on_a_short_screen_what_is_to_come_is_one_line() -> None:
    lines = await said(tracked("17% Completed").timeline(), 80, folded=False, height=24)
    assert ". then compile, KV, autotune, graphs, engine, server, ready, warm" in lines
    assert len(lines) == 8


async def test_phases_that_will_not_happen_are_not_listed() -> None:
    lines = await said(tracked("Starting to load model", "vllm-0.32-cpu-dbg").timeline(), 80, folded=False)
    assert not any("Compile" in line or "CUDA graphs" in line for line in lines)


async def test_afterwards_the_phases_that_took_time_stand_on_one_line() -> None:
    timeline = tracked(name="vllm-0.32-cpu-r1").timeline()
    [line] = await said(replace(timeline, failure=None), 120, folded=True)
    assert line == "started in 1m00s  config 14s | init 7s | weights 1s | compile 36s | engine 1s | server 1s"


async def test_where_they_do_not_fit_the_longest_phases_stay() -> None:
    [line] = await said(tracked().timeline(), 60, folded=True)
    assert line.startswith("boot  weights 3m18s | compile 1m57s | server ...")
    assert line.endswith("~")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("until", ["", "17% Completed", "Autotuning process starts"])
async def test_the_one_line_is_one_line(width: int, until: str) -> None:
    assert len(await said(tracked(until).timeline(), width, folded=True)) == 1


async def test_beside_other_facts_it_may_take_a_few_lines_and_a_phase_stays_with_its_time() -> None:
    lines = await said(tracked().timeline(), 60, folded=True, fold_lines=3)
    assert lines == [
        "boot       config 30s | init 11s | download 1m19s",
        "           weights 3m18s | compile 1m57s | KV 7s",
        "           autotune 15s | graphs 2s | server ...",
    ]


@pytest.mark.parametrize("folded", [True, False])
async def test_a_failure_is_a_word_and_has_its_reason(folded: bool) -> None:
    timeline = tracked(name="vllm-0.32-cpu-f_missing").timeline()
    lines = await said(timeline, 120, folded=folded)
    assert any("FAILED" in line for line in lines)
    assert any("FileNotFoundError: Weight files referenced in index but missing" in line for line in lines)
    assert not any(line.startswith(ASCII.pending) for line in lines), "what never came is not waited for"


async def test_a_guess_is_called_one() -> None:
    tracker = tracked("17% Completed")
    tracker.container_ended(137)
    lines = await said(tracker.timeline(), 120, folded=False)
    assert row(lines, "Weights").startswith(ASCII.failed)
    assert lines[-1].startswith("probably: killed (exit code 137)")


async def test_hostile_text_is_text() -> None:
    timeline = replace(
        EMPTY_TIMELINE, news="[/red] [@click=app.quit]\x1b[31m x", failure=StartFailure("[bold]no[/nope] \x1b]0;t\x07")
    )
    lines = await said(timeline, 80, folded=False)
    assert lines[-1] == "[bold]no[/nope]"
    lines = await said(replace(timeline, failure=None), 80, folded=False)
    assert lines[-1] == "[/red] [@click=app.quit] x"


async def test_nothing_known_takes_no_room() -> None:
    assert await said(EMPTY_TIMELINE, 80, folded=True) == []


def running_since(at: float) -> BootTimeline:
    tracker = LogTracker()
    tracker.feed(at, "(EngineCore pid=1) INFO 05-21 21:00:00 [x.py:1] Starting to load model x...")
    return tracker.timeline()


async def test_the_elapsed_time_moves_with_the_clock_and_paints_its_line_only() -> None:
    async with shown(running_since(NOW - 61)) as app:
        painted: list[object] = []
        refresh = app.view.refresh
        app.view.refresh = lambda *regions, **how: (painted.append((regions, how)), refresh(*regions, **how))[1]  # type: ignore[method-assign]
        app.view.renew()
        assert painted == []
        app.clock.tick(2)
        app.view.renew()
        [(regions, how)] = painted
        assert [(region.y, region.height) for region in regions] == [(1, 1)]
        assert how == {}
        assert "1m03s" in app.view.render_line(1).text


async def test_its_timer_rests_when_nothing_runs_or_nobody_looks() -> None:
    app = TimelineApp()
    async with app.run_test(size=(80, 30)) as pilot:
        timer = app.view._timer
        assert timer is not None
        assert not timer._active.is_set()
        app.view.show(running_since(app.clock.now()), folded=False)
        assert timer._active.is_set()
        await app.push_screen(Screen())
        await pilot.pause()
        assert not timer._active.is_set()
        app.pop_screen()
        await pilot.pause()
        assert timer._active.is_set()
        app.view.show(tracked(name="vllm-0.32-cpu-dbg").timeline(), folded=True)
        assert not timer._active.is_set()


def test_reading_the_log_line_by_line_or_at_once_tells_the_same() -> None:
    whole = LogTracker()
    whole.feed_many(("", line) for line in read_log(GB10))
    assert whole.timeline() == tracked().timeline()


# --- what is left -------------------------------------------------------------------------------------------------


PAST = tuple(StartRecord("c", 0.0, "e", phases=((PhaseId.WEIGHTS, 100.0), (PhaseId.COMPILE, 90.0))) for _ in range(3))


async def test_earlier_starts_tell_what_is_left_in_the_line_above_the_log() -> None:
    async with shown(running_since(NOW - 60), past=PAST) as app:
        lines = texts(app, 80)
        assert lines[-2] == "about 2 min 10 s left (from 3 earlier starts)"
        assert lines[-1].startswith("Starting to load model")


async def test_without_earlier_starts_the_line_is_empty_and_takes_no_more_room() -> None:
    async with shown(running_since(NOW - 60)) as app:
        without = texts(app, 80)
        app.view.show(running_since(NOW - 60), folded=False, past=PAST)
        assert without[-2] == ""
        assert len(texts(app, 80)) == len(without)


async def test_the_words_about_what_is_left_stand_still_for_some_seconds() -> None:
    async with shown(running_since(NOW - 60), past=PAST) as app:
        said = []
        for _ in range(100):
            app.clock.tick(1)
            app.view.renew()
            said.append(texts(app, 80)[-2])
        changes = sum(before != after for before, after in pairwise(said))
        assert 5 <= changes <= 20
        assert said[-1] == "takes longer than usual; then about 1 min 30 s (from 3 earlier starts)"


async def test_on_a_short_screen_what_is_left_stands_before_what_is_to_come() -> None:
    async with shown(running_since(NOW - 60), (80, 24), past=PAST) as app:
        lines = texts(app, 80)
        assert lines[2].startswith(". about 2 min 10 s left (from 3 earlier starts); then compile, KV")
        app.view.show(running_since(NOW - 60), folded=False)
        assert len(texts(app, 80)) == len(lines)


async def test_a_failed_start_has_nothing_left() -> None:
    timeline = tracked(name="vllm-0.32-cpu-f_missing").timeline()
    async with shown(timeline, (120, 30), past=PAST) as app:
        assert "left" not in " ".join(texts(app, 120))
