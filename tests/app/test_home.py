"""Home and Logs on a whole core of fakes: what a person sees, and what keys do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.home.home_lines import LaunchSteps
from spark_tui.base.engine.container import LABEL_PRESET, PublishedPort
from spark_tui.base.engine.state import EngineState, Health, bare_engine
from spark_tui.base.errors import DaemonNotRunning, GpuDriverMissing
from spark_tui.base.finding import Missing, value_of
from spark_tui.base.gateway import GatewayStatus, GatewaySwap
from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.untrusted import encode
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.format import UNICODE
from spark_tui.tui.modals import ConfirmScreen, TextDialog
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.row_list import RowList
from tests.fakes_docker import EPOCH
from tests.kit import PRESET, Kit
from tests.log_fixtures import read_log
from tests.run.service.test_boot import FakeBoot
from tests.tui import quiet

PORT = (PublishedPort(8000, 8000),)
GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"


@asynccontextmanager
async def opened(kit: Kit, size: tuple[int, int] = (120, 36)) -> AsyncIterator[tuple[SparkApp, Pilot[None]]]:
    app = SparkApp(kit.context)
    async with app.run_test(size=size) as pilot:
        yield app, pilot


async def until(kit: Kit, pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    await quiet.until(pilot.app, condition, passes=lambda: kit.clock.advance(0.1))


def screen_text(app: SparkApp) -> str:
    size = app.size
    return "\n".join("".join(segment.text for segment in line) for line in app.screen._compositor.render_strips(size))


def state(app: SparkApp, name: str) -> EngineState | None:
    return next((view.state for view in app.world.known(ENGINES) if view.name == name), None)


async def test_an_engine_that_serves_is_shown_with_what_its_log_proved() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=read_log(GB10))
    kit.api.serve()
    async with opened(kit, (80, 24)) as (app, pilot):
        for size in ((80, 24), (120, 36), (200, 50), (300, 80)):
            await pilot.resize_terminal(*size)
            await until(kit, pilot, lambda: "5.46M tokens" in screen_text(app))
            for words in ("spark-test", "ready", ":8000", "LOCAL", "[1 Home]", "docker OK"):
                assert words in screen_text(app), size


async def test_a_box_without_engines_says_what_to_do() -> None:
    kit = Kit()
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: "No engine is running" in screen_text(app))
        assert "choose a preset" in screen_text(app)


async def test_without_docker_the_reason_and_the_remedy_are_on_screen() -> None:
    kit = Kit()
    kit.docker.go_down()
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: "docker UNREACHABLE" in screen_text(app))
        await until(kit, pilot, lambda: "Cannot list engines" in screen_text(app))
        text = screen_text(app)
        assert "no engine" not in text.lower(), "unknown is not none"
        assert [each.text for each in app.screen.yanks()] == ["sudo systemctl start docker"]  # type: ignore[attr-defined]
        assert "sudo systemctl start docker" in text


@pytest.mark.parametrize("size", [(80, 24), (100, 30)])
async def test_without_docker_reason_and_remedy_are_whole_where_there_is_no_command(size: tuple[int, int]) -> None:
    kit = Kit()
    reason = "Docker is not running: /run/user/1000/docker.sock does not exist (set by DOCKER_HOST)."
    remedy = "Check DOCKER_HOST: does that daemon run?"
    kit.docker.go_down(DaemonNotRunning(reason, remedy))
    async with opened(kit, size) as (app, pilot):
        await until(kit, pilot, lambda: "Cannot list engines" in screen_text(app))
        assert [word for word in f"{reason} {remedy}".split() if word not in screen_text(app)] == []


async def test_periodic_lines_of_a_log_are_folded() -> None:
    kit = Kit()
    stats = "INFO 11-20 08:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 0 reqs"
    kit.docker.add_container("qwen", ports=PORT, lines=[*read_log(GB10), *[stats] * 31])
    kit.api.serve()
    async with opened(kit, (160, 60)) as (app, pilot):
        await until(kit, pilot, lambda: "stats collapsed (x31)" in screen_text(app))


async def test_a_progress_bar_stands_once_and_a_log_too_after_the_window_was_resized() -> None:
    kit = Kit()
    bars = [
        f"Capturing CUDA graphs: {at:3}%|###       | {at}/100 [00:01<00:01, 8.21it/s]" for at in (0, 40, 100, 0, 60)
    ]
    kit.docker.add_container("qwen", ports=PORT, lines=[*read_log(GB10), *bars])
    kit.api.serve()
    async with opened(kit, (120, 50)) as (app, pilot):
        await until(kit, pilot, lambda: " 60/100" in screen_text(app))
        assert [figure for figure in ("  0%|", " 40%|", "100%|", " 60%|") if figure in screen_text(app)] == [
            "100%|",
            " 60%|",
        ]
        for width, height, wide in ((170, 60, True), (120, 50, False)):
            await pilot.resize_terminal(width, height)
            await until(
                kit,
                pilot,
                lambda wide=wide: app.screen.has_class("-wide") is wide and screen_text(app).count(" 60/100") == 1,
            )
            for _ in range(5):  # and no second one comes behind it
                await kit.clock.advance(0.1)
                await pilot.pause()
                assert screen_text(app).count(" 60/100") <= 1


async def test_memory_that_cannot_be_read_says_why() -> None:
    kit = Kit()
    kit.host.memory_value = Missing("no /proc/meminfo here")
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: "no /proc/meminfo here" in screen_text(app))


async def test_a_launch_is_seen_and_its_failure_has_a_remedy() -> None:
    kit = Kit()
    kit.docker.fail("start", GpuDriverMissing("Docker has no GPU driver.", "Install the NVIDIA Container Toolkit."))
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: value_of(app.world[ENGINES]) is not None)
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
        await until(kit, pilot, lambda: "NVIDIA Container Toolkit" in screen_text(app))
        assert "Docker has no GPU driver" in screen_text(app)


async def test_a_row_is_selected_with_its_key_whatever_comes_in_meanwhile() -> None:
    kit = Kit()
    for name in ("a", "b"):
        kit.docker.add_container(name, ports=PORT)
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: app.screen.query_one(RowList).ids == ("a", "b"))
        rows = app.screen.query_one(RowList)
        rows.action_move(1)
        assert app.selected == "b", "the next key is for that one"
        # The list is shown again before the list's message arrives.
        app.take(replace(app.world, jobs=(JobView("1", "c"),)))
        await pilot.pause()
        assert (app.selected, rows.key) == ("b", "b")
        app.selected = "a"
        assert rows.key == "a"


async def test_stop_asks_once_and_enter_alone_does_not_confirm() -> None:
    kit = Kit()
    async with opened(kit) as (app, pilot):
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
        await until(kit, pilot, lambda: state(app, "qwen") is EngineState.SERVING)
        await pilot.press("x", "enter")
        await pilot.pause()
        assert state(app, "qwen") is EngineState.SERVING
        await pilot.press("x")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(kit, pilot, lambda: state(app, "qwen") is EngineState.STOPPED)


async def test_a_foreign_engine_is_stopped_only_when_its_name_is_typed() -> None:
    kit = Kit()
    kit.docker.add_container("theirs", ports=PORT)
    kit.api.serve()
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "theirs") is EngineState.SERVING)
        await pilot.press("x", "y", "enter")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("backspace", *"theirs", "enter")
        await until(kit, pilot, lambda: state(app, "theirs") is EngineState.STOPPED)


async def test_how_long_a_server_outside_docker_starts_is_renewed_without_a_line_of_a_log() -> None:
    kit = Kit()
    bare = bare_engine(4711, ("vllm", "serve", "org/qwen", "--port", "8011"), (), kit.clock.now())
    assert bare is not None
    kit.host.processes = (bare,)
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "vllm-8011") is EngineState.STARTING)
        await until(kit, pilot, lambda: "starting   up" in screen_text(app))
        await kit.clock.advance(130.0)
        await until(kit, pilot, lambda: "starting   up 2m" in screen_text(app))


async def test_a_server_outside_docker_is_looked_at_and_its_keys_name_the_process() -> None:
    bare = bare_engine(4711, ("vllm", "serve", "org/qwen", "--port", "8011"), (), EPOCH)
    assert bare is not None
    kit = Kit()
    kit.host.processes = (bare,)
    kit.docker.go_down()
    kit.api.serve()
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "vllm-8011") is EngineState.SERVING)
        await until(kit, pilot, lambda: "outside Docker, process 4711" in screen_text(app))
        assert "No log here: it runs outside Docker" in screen_text(app)
        footer = screen_text(app).splitlines()[-1]
        assert [word for word in ("Stop", "Edit", "Restart") if word in footer] == []
        for key in ("x", "r", "e"):
            await pilot.press(key)
            await until(kit, pilot, lambda: any("kill 4711" in each.message for each in app._notifications))
            app.clear_notifications()
            assert not isinstance(app.screen, ConfirmScreen)
        await pilot.press("6")
        await until(kit, pilot, lambda: "on vllm-8011" in screen_text(app))


async def test_read_only_mode_has_no_dangerous_keys() -> None:
    kit = Kit()
    kit.context.settings = kit.context.settings.__class__(read_only=True)
    kit.docker.add_container("one", ports=PORT)
    kit.api.serve()
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "one") is EngineState.SERVING)
        await pilot.press("x", "r", "delete", "l")
        await pilot.pause()
        assert not isinstance(app.screen, ConfirmScreen)
        assert kit.docker.asked("stop") == []
        assert "READ ONLY" in screen_text(app)
        assert "Stop" not in screen_text(app).splitlines()[-1]


async def test_logs_show_the_selected_engine_and_its_keys_work() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=read_log(GB10))
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "qwen") is not None)
        await pilot.press("4")
        await until(kit, pilot, lambda: "following" in screen_text(app))
        view = app.screen.query_one(LogView)
        await until(kit, pilot, lambda: len(view.pager.buffer) > 50)
        await pilot.press("slash", *"q1234", "enter")
        await until(kit, pilot, lambda: view.pager.match_text == "no match")
        assert app.screen.__class__.__name__ == "LogsScreen", "letters and digits of a search are text"
        await pilot.press("exclamation_mark")
        await until(kit, pilot, lambda: "warnings and errors" in screen_text(app))
        assert 0 < len(view.pager.numbers) < len(view.pager.buffer)
        await pilot.press("W")
        await until(kit, pilot, lambda: bool(kit.archive.saved))
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert app.screen.__class__.__name__ == "HomeScreen"


async def test_a_terminal_that_is_too_small_gets_a_sentence_and_recovers() -> None:
    kit = Kit()
    async with opened(kit, (20, 5)) as (app, pilot):
        await kit.clock.advance(1)
        await pilot.pause()
        assert "too small" in screen_text(app)
        await pilot.resize_terminal(120, 36)
        await until(kit, pilot, lambda: "[1 Home]" in screen_text(app))
        assert "too small" not in screen_text(app)


async def test_what_had_the_keys_has_them_again_after_a_terminal_that_was_too_small() -> None:
    kit = Kit()
    async with opened(kit) as (app, pilot):
        before = app.focused
        assert before is not None
        for size in ((50, 10), (40, 9), (120, 36)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until(kit, pilot, lambda: app.focused is before)


def key_bar(app: SparkApp) -> str:
    return app.screen.query_one(KeyBar).say(200).plain


async def test_the_footer_names_only_keys_that_have_something_to_act_on() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=read_log(GB10))
    kit.api.serve()
    async with opened(kit) as (app, pilot):
        assert "x Stop" not in key_bar(app)
        await until(kit, pilot, lambda: "x Stop" in key_bar(app))
        assert "r Restart" in key_bar(app)
        assert "Cancel" not in key_bar(app), "nothing is being launched"
        await pilot.press("x", *"qwen", "enter")
        await until(kit, pilot, lambda: state(app, "qwen") is EngineState.STOPPED)
        await until(kit, pilot, lambda: "x Stop" not in key_bar(app))
        await pilot.press("x")
        await until(kit, pilot, lambda: any("No running engine" in each.message for each in app._notifications))


@pytest.mark.parametrize("width", [40, 62, 76, 120])
def test_a_step_under_way_tells_its_percentage_at_every_width(width: int) -> None:
    steps = LaunchSteps(UNICODE)
    pulling = Step("pull", "Pull image", StepState.RUNNING, "62.7 MiB of 8.9 GiB", 0.41)
    steps.job = JobView("1", "qwen", (pulling,))
    line = steps.say(width)
    assert " 41%" in line.plain
    assert all(row.cell_length <= width for row in line.split("\n"))


async def test_no_cursor_blinks() -> None:
    kit = Kit()
    async with opened(kit) as (app, pilot):
        await pilot.press("3", "slash")
        await until(kit, pilot, lambda: isinstance(app.focused, Input))
        assert isinstance(app.focused, Input)
        assert not app.focused.cursor_blink
        await pilot.press("escape", "ctrl+p")
        await until(kit, pilot, lambda: isinstance(app.focused, Input) and not app.focused.cursor_blink)


async def test_hidden_screens_catch_up_when_they_are_shown() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT)
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "one") is not None)
        await pilot.press("3")
        kit.docker.add_container("two", ports=(PublishedPort(8000, 8002),))
        kit.context[EngineSupervisor].wake()
        await until(kit, pilot, lambda: state(app, "two") is not None)
        await pilot.press("1")
        await until(kit, pilot, lambda: "two" in screen_text(app))


async def test_names_from_outside_are_text() -> None:
    kit = Kit()
    kit.docker.add_container("[/red][@click=app.quit]x", ports=PORT, lines=["[/bold] \x1b]0;t\x07 boom"])
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: "[/red]" in screen_text(app))
        for key in ("3", "4", "6", "1"):
            await pilot.press(key)
            await pilot.pause()
        assert app.is_running


async def test_quitting_says_what_goes_on() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT)
    kit.api.state = Health.OK
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "one") is not None)
        await pilot.press("q")
        await pilot.pause()
    assert kit.docker.named("one").running
    assert kit.docker.closed


async def test_b_and_y_start_the_selected_engine_with_the_machine_and_end_that() -> None:
    kit, port = Kit(), FakeBoot()
    kit.docker.add_container("qwen", ports=PORT, labels=((LABEL_PRESET, "qwen"),))
    kit.context.ports.boot = port  # type: ignore[assignment]
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "qwen") is not None)
        await pilot.press("B")
        await until(kit, pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(kit, pilot, lambda: "qwen" in port.units)
        await until(kit, pilot, lambda: re.search(r"LOCAL +boot", screen_text(app)) is not None)
        await pilot.press("B")
        await until(kit, pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("n", "B")
        await until(kit, pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(kit, pilot, lambda: not port.units)


async def test_z_asks_for_times_and_home_shows_them_until_none() -> None:
    kit, port = Kit(), FakeBoot()
    row = re.compile(r"schedule +stops 23:00, starts 07:00, mon-fri")
    kit.docker.add_container("qwen", ports=PORT, labels=((LABEL_PRESET, "qwen"),))
    kit.context.ports.boot = port  # type: ignore[assignment]
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: state(app, "qwen") is not None)
        for typed, timers in (("25:00-", 0), ("23:00-07:00 mon-fri", 1), ("none", 0)):
            await pilot.press("Z")
            await until(kit, pilot, lambda: isinstance(app.screen, TextDialog))
            app.screen.query_one(Input).value = typed
            await pilot.press("enter")
            await until(kit, pilot, lambda: not isinstance(app.screen, TextDialog))
            await until(kit, pilot, lambda wanted=timers: len(port.timers) == wanted)
            await until(kit, pilot, lambda wanted=timers: bool(row.search(screen_text(app))) == bool(wanted))


async def test_a_gateway_of_this_machine_is_shown_with_what_it_launches() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=read_log(GB10))
    kit.api.serve()
    swap = GatewaySwap("big-70b", "Boot", "", 3, ("qwen",), None)
    kit.state.claim("gateway")
    kit.state.write("gateway", encode(GatewayStatus("http://127.0.0.1:8080", 0.0, True, swaps=(swap,))).encode())
    async with opened(kit, (80, 24)) as (app, pilot):
        for size in ((80, 24), (120, 36), (160, 50)):
            await pilot.resize_terminal(*size)
            await until(kit, pilot, lambda: "http://127.0.0.1:8080/v1" in screen_text(app))
            assert "big-70b" in screen_text(app), size
            assert "3 waiting" in screen_text(app), size
        kit.state.remove("gateway")
        await until(kit, pilot, lambda: "http://127.0.0.1:8080" not in screen_text(app))
