"""The key that frees the page cache."""

from __future__ import annotations

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.finding import value_of
from spark_tui.base.host.memory import Route, RouteKind
from spark_tui.base.settings import Settings
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.memory.screen import free_cache_question
from spark_tui.observe.memory.use.memory import DropPlan
from spark_tui.tui.modals import ConfirmScreen
from tests.fakes_host import FakeClock


def test_an_allowed_way_without_a_warning_asks_nothing() -> None:
    assert free_cache_question(DropPlan(route=Route(RouteKind.ROOT, ()))) is None


def test_a_container_and_sudo_are_reported_before_they_are_used() -> None:
    container = Route(RouteKind.CONTAINER, (), image="some/image")
    assert "container of some/image" in str(free_cache_question(DropPlan(consent=container))._what)  # type: ignore[union-attr]
    terminal = free_cache_question(DropPlan(terminal=Route(RouteKind.TERMINAL, ())))
    assert terminal is not None
    assert "spark-tui never sees it" in terminal._what


async def test_one_key_frees_the_cache_after_one_warning_while_an_engine_serves() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(clock=clock))
    async with app.run_test(size=(120, 36)) as pilot:
        await clock.until(lambda: bool(value_of(app.world[ENGINES])))
        before = app.context.host.memory()
        await pilot.press("D")
        await clock.advance(1)
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen), "an engine serves: it is told once"
        await pilot.press("y")
        await clock.advance(2)
        await pilot.pause()
        after = app.context.host.memory()
        assert value_of(after).free > value_of(before).free  # type: ignore[union-attr]

        await pilot.press("D")
        await clock.advance(2)
        await pilot.pause()
        assert not isinstance(app.screen, ConfirmScreen), "it was told already"


async def test_read_only_has_no_such_key_and_says_so() -> None:
    clock = FakeClock()
    app = SparkApp(build_demo(Settings(read_only=True), clock=clock))
    async with app.run_test(size=(120, 36)) as pilot:
        await clock.until(lambda: bool(value_of(app.world[ENGINES])))
        free = value_of(app.context.host.memory()).free  # type: ignore[union-attr]
        await pilot.press("D")
        await pilot.pause()
        assert not isinstance(app.screen, ConfirmScreen)
        assert value_of(app.context.host.memory()).free == free  # type: ignore[union-attr]
        [said] = [each.message for each in app._notifications]
        assert said.startswith("Read-only mode: Free cache is disabled.")
