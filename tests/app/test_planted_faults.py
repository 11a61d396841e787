"""Faults of the machine, planted one by one: a clock that jumps, sixty engines, a Docker that says nothing."""

from __future__ import annotations

import re

import pytest

from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.engine.state import EngineState
from spark_tui.base.finding import Stale, value_of
from spark_tui.base.jobs import StepState
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.engines.show.engines import engine_object, engine_page, engine_table
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from tests.kit import PRESET, Kit
from tests.log_fixtures import read_log

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
DAY = 86_400.0
JUMPS = (-400 * DAY, -3600.0, -1.0, 1.0, 3600.0, 400 * DAY)


def views(kit: Kit) -> dict[str, EngineView]:
    return {view.name: view for view in value_of(kit.context.store.world[ENGINES]) or ()}


def shown(kit: Kit, name: str) -> str:
    """All that is shown of an engine, as text."""
    view, now = views(kit)[name], kit.clock.now()
    page, table = engine_page(view, now), engine_table([view], now)
    rows = [row.text for section in page for row in section.rows]
    return " ".join([*rows, *(cell.text for row in table.rows for cell in row)])


# --- the clock ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", JUMPS)
async def test_a_clock_that_jumps_in_a_boot_changes_no_outcome_and_no_duration_is_negative(seconds: float) -> None:
    kit, lines = Kit(), read_log(GB10)
    kit.docker.on_start = None
    kit.api.refuse()
    async with kit.whole():
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
        await kit.until(lambda: "qwen" in views(kit))
        kit.docker.write("qwen", *lines[: len(lines) // 2])
        await kit.clock.advance(5)
        kit.clock.jump(seconds)
        await kit.clock.advance(5)
        assert views(kit)["qwen"].state is EngineState.STARTING
        assert not re.search(r"-\d+\s?(?:s|m|h|d)\b", shown(kit, "qwen"))
        kit.docker.write("qwen", *lines[len(lines) // 2 :])
        kit.api.serve()
        await kit.until(lambda: kit.context.store.world.jobs[0].state.over)
        (job,) = kit.context.store.world.jobs
        assert job.state is StepState.DONE
        assert views(kit)["qwen"].state is EngineState.SERVING
        assert all(step.seconds is None or 0 <= step.seconds < 120 for step in job.steps)
        found = engine_object(views(kit)["qwen"], kit.clock.now())
        assert found["up_seconds"] is None or found["up_seconds"] >= 0


@pytest.mark.parametrize("seconds", JUMPS)
async def test_a_clock_that_jumps_while_an_engine_serves_is_no_event_of_the_engine(seconds: float) -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=(PublishedPort(8000, 8000),), lines=read_log(GB10))
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: "one" in views(kit) and views(kit)["one"].state is EngineState.SERVING)
        before = [event for event in kit.context.store.world.events if event.subject == "one"]
        kit.clock.jump(seconds)
        await kit.clock.advance(120)
        assert views(kit)["one"].state is EngineState.SERVING
        assert [event for event in kit.context.store.world.events if event.subject == "one"] == before


# --- many engines -------------------------------------------------------------------------------------------


async def test_sixty_engines_are_watched_and_docker_is_asked_for_the_list_once_a_look() -> None:
    kit = Kit()
    names = [f"engine-{number:02}" for number in range(60)]
    for number, name in enumerate(names):
        kit.docker.add_container(name, ports=(PublishedPort(9000 + number, 8000),), lines=read_log(GB10)[-5:])
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: sum(view.state is EngineState.SERVING for view in views(kit).values()) == 60)
        assert list(views(kit)) == names
        asked = len(kit.docker.asked("containers"))
        await kit.clock.advance(300)
        assert len(kit.docker.asked("containers")) - asked <= 11
        kit.docker.end("engine-31", 1)
        await kit.until(lambda: views(kit)["engine-31"].state is EngineState.FAILED)
        assert sum(view.state is EngineState.SERVING for view in views(kit).values()) == 59


# --- a Docker that is silent ----------------------------------------------------------------------------------


async def test_a_docker_that_stops_answering_leaves_engines_as_they_were_and_the_rest_at_work() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=(PublishedPort(8000, 8000),), lines=read_log(GB10))
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: "one" in views(kit) and views(kit)["one"].state is EngineState.SERVING)
        reads = kit.host.memory_reads
        kit.docker.hold("containers")
        await kit.clock.advance(120)
        assert views(kit)["one"].state is EngineState.SERVING
        assert kit.host.memory_reads >= reads + 60
        kit.docker.release()
        kit.docker.end("one", 1)
        await kit.until(lambda: views(kit)["one"].state is EngineState.FAILED)
        assert not isinstance(kit.context.store.world[ENGINES], Stale)
