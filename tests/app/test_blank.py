"""Screens are full of what matters: less than 45 % of a body is blank on the demo, at two sizes."""

from __future__ import annotations

from textual.pilot import Pilot

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.engine.state import EngineState
from spark_tui.base.finding import value_of
from spark_tui.catalog.fit.screen.bar import FitBar
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.engines.screen.boot_timeline import BootTimelineView
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.results.use import Results
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.format import UNICODE
from spark_tui.tui.widgets.page import Page
from spark_tui.use.prove.screen.form import BenchForm
from tests.app.test_goals import judged, until
from tests.fakes_host import FakeClock
from tests.tui import quiet
from tests.tui.blank import blank_share

MOST_BLANK = 0.45
"""The scenes have 41.0 to 43.9 %; what is read in the background meanwhile moves them by half a percent."""
SIZES = ((120, 36), (160, 50))


async def measured(app: SparkApp, pilot: Pilot[None], clock: FakeClock) -> None:
    """The demo's engine, benchmarked once with what the form proposes."""

    def serves() -> bool:
        views = value_of(app.context.store.world[ENGINES]) or ()
        return bool(app.selected) and views[0].state is EngineState.SERVING

    await clock.until(serves)
    await pilot.press("7", "b")
    await clock.until(lambda: isinstance(app.screen, BenchForm))
    await pilot.pause()
    await pilot.press("ctrl+l")
    await clock.until(lambda: bool(app.context[Results].all()) and app.measurement is None)
    await clock.advance(2.0)
    await pilot.pause()


async def launched(app: SparkApp, pilot: Pilot[None], clock: FakeClock, name: str) -> None:
    """Home some seconds after a launch of the demo's preset of that name, which is selected."""
    await clock.until(lambda: bool(app.world[PRESETS].presets) and bool(app.selected))
    for _ in range(20):  # the graphs have their past
        await clock.advance(1.0)
        await pilot.pause()
    preset = app.world[PRESETS].get(name)
    assert preset is not None
    app.context[JobRunner].launch(LaunchRequest(preset, Overrides()))
    await clock.advance(0.5)
    app.selected = name
    for _ in range(24):
        await clock.advance(0.25)
        await pilot.pause()


async def test_home_is_full_while_an_engine_serves() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(clock=clock), UNICODE)
    async with app.run_test(size=SIZES[0]) as pilot:
        await quiet.until(app, lambda: len(app.screen.query("GraphGrid")) == 2, passes=lambda: clock.advance(0.25))
        for _ in range(20):  # the graphs have their past
            await clock.advance(1.0)
            await pilot.pause()
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await quiet.until(app, lambda: blank_share(app) < MOST_BLANK, size, passes=lambda: clock.advance(0.25))


async def test_home_is_full_while_an_engine_loads() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(clock=clock), UNICODE)
    async with app.run_test(size=SIZES[0]) as pilot:
        await launched(app, pilot, clock, "gemma-4-26b-a4b-nvfp4")
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await quiet.until(app, lambda: blank_share(app) < MOST_BLANK, size, passes=lambda: clock.advance(0.25))
            assert app.screen.query_one(BootTimelineView).size.height, size


async def test_home_shows_files_and_preset_while_a_model_is_downloaded() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(clock=clock), UNICODE)
    async with app.run_test(size=SIZES[0]) as pilot:
        await launched(app, pilot, clock, "gpt-oss-20b")
        for size, pages in (
            (SIZES[0], {"fetch", "preset"}),
            (SIZES[1], {"rail-fetch-files", "rail-preset", "rail-command", "preset"}),
        ):
            await pilot.resize_terminal(*size)
            await clock.advance(0.5)  # what stands beside comes with the next figures of the download
            await pilot.pause()
            assert {page.id for page in app.screen.query(Page) if page.size.height} >= pages, size
            assert blank_share(app) < MOST_BLANK, size
        assert app.screen.query_one(FitBar).size.height, "where there is room"


async def test_presets_are_full() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=SIZES[0]) as pilot:
        await pilot.press("3")
        await until(app, judged)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            assert blank_share(app) < MOST_BLANK, size


async def test_bench_with_one_run_is_full() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(clock=clock), UNICODE)
    async with app.run_test(size=SIZES[0]) as pilot:
        await measured(app, pilot, clock)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            assert blank_share(app) < MOST_BLANK, size
