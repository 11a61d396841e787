"""Keys and tokens in logs, recipes, errors and variables: on no screen, in no copy, no saved log, no crash trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import TabbedContent

from spark_tui.app.control_centre import SparkApp
from spark_tui.base.engine.container import ContainerStatus, PublishedPort
from spark_tui.base.engine.state import Exposure
from spark_tui.base.errors import EngineFailed, EngineUnreachable, GpuDriverMissing
from spark_tui.base.finding import value_of
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.modals import ConfirmScreen
from tests.app.test_home import GB10, screen_text, until
from tests.app.test_no_secret_leaves import BEARER, KEY, LINES, NEEDLES, TOKEN
from tests.kit import IMAGE, PRESET, Kit
from tests.log_fixtures import read_log
from tests.tui.chat_kit import chatting

LEAKY = replace(PRESET, name="leaky", env=(("HF_TOKEN", TOKEN), ("NGC_API_KEY", KEY)))


def clean_of_secrets(*texts: str) -> None:
    for text in texts:
        assert [line for line in text.splitlines() if any(needle in line for needle in NEEDLES)] == []


@asynccontextmanager
async def opened(kit: Kit, size: tuple[int, int] = (120, 36)) -> AsyncIterator[tuple[SparkApp, Pilot[None]]]:
    app = SparkApp(kit.context)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield app, pilot


def crashed() -> RuntimeError:
    def fails() -> None:
        raise RuntimeError(f"Bearer {BEARER} was refused")

    try:
        fails()
    except RuntimeError as error:
        return error
    raise AssertionError


async def pressed(app: SparkApp, kit: Kit, pilot: Pilot[None], *keys: str) -> str:
    for key in keys:
        await pilot.press(key)
        await kit.clock.advance(1)
        await pilot.pause()
    return screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_home_logs_presets_and_the_launch_form_show_none(size: tuple[int, int]) -> None:
    kit = Kit(LEAKY)
    kit.docker.add_container(
        "theirs",
        image=IMAGE,
        argv=("vllm", "serve", "x/y", "--api-key", KEY),
        ports=(PublishedPort(8000, 8000, "0.0.0.0"),),
        lines=(*read_log(GB10), *LINES),
    )
    kit.docker.add_container(
        "ended", image=IMAGE, status=ContainerStatus.EXITED, exit_code=1, lines=(*LINES, LINES[-1])
    )
    kit.api.serve()
    async with opened(kit, size) as (app, pilot):
        await until(kit, pilot, lambda: "theirs" in screen_text(app) and "ended" in screen_text(app))
        for keys in (("1",), ("down",), ("4",), ("w",), ("right_square_bracket",), ("1", "up"), ("4", "w")):
            clean_of_secrets(await pressed(app, kit, pilot, *keys))
        await pilot.press("W")
        await until(kit, pilot, lambda: bool(kit.archive.saved))
        copied = []
        for _ in range(len(LINES)):
            await pressed(app, kit, pilot, "y", "up")
            copied.append(app.clipboard)
        clean_of_secrets(*copied, screen_text(app))
        assert any("***" in text for text in copied), "the masked line itself was copied"
        await pressed(app, kit, pilot, "3")
        await until(kit, pilot, lambda: "leaky" in screen_text(app))
        for _ in range(len(app.screen.query_one(TabbedContent).query("TabPane"))):
            clean_of_secrets(await pressed(app, kit, pilot, "right"))
        clean_of_secrets(await pressed(app, kit, pilot, "y", "c"), app.clipboard)
        assert "docker run" in app.clipboard
        clean_of_secrets(await pressed(app, kit, pilot, "l"), await pressed(app, kit, pilot, "pagedown"))


async def test_an_error_that_quotes_a_key_is_masked_where_it_is_told() -> None:
    kit = Kit()
    kit.docker.fail(
        "start", GpuDriverMissing(f"Docker refused: HF_TOKEN={TOKEN}.", "Ask again.", detail=f"Bearer {BEARER}")
    )
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: value_of(app.world[ENGINES]) is not None)
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
        await until(kit, pilot, lambda: "Docker refused" in screen_text(app))
        clean_of_secrets(screen_text(app))
        app.report(EngineUnreachable(f"401: Incorrect API key provided: {KEY}", "Ask again."))
        await pilot.pause()
        assert "401" in screen_text(app)
        clean_of_secrets(screen_text(app))


async def test_the_chat_masks_what_an_engine_says_about_keys() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.fail(
            EngineFailed(
                f"Incorrect API key provided: {KEY}.", "See its log.", detail=f"Authorization: Bearer {BEARER}"
            )
        )
        await kit.until_seen("Incorrect API key")
        clean_of_secrets(kit.seen())


async def test_a_crash_tells_where_and_no_value_of_a_variable() -> None:
    kept = f"prompt of a person {TOKEN}"
    text = SparkApp(Kit().context).crash_report(crashed()).plain
    assert "RuntimeError: Bearer *** was refused" in text
    assert "doctor --report" in text
    assert kept not in text
    app, told = SparkApp(Kit().context), []
    app._print_error_renderables = lambda: told.extend(map(str, app._exit_renderables))  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        async with app.run_test() as pilot:
            app.call_later(lambda: 1 // 0)
            await pilot.pause()
    assert "ZeroDivisionError" in told[0]
    assert "doctor --report" in told[0]
    assert "locals" not in told[0]


async def test_an_open_engine_gets_a_key_from_home_after_a_question() -> None:
    kit = Kit()
    async with opened(kit) as (app, pilot):
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides(exposure=ExposureChoice.LAN, max_model_len=2048)))
        await until(
            kit, pilot, lambda: "LAN NO KEY" in screen_text(app) and kit.context[JobRunner].running("qwen") is None
        )
        await pilot.press("K")
        await until(kit, pilot, lambda: isinstance(app.screen, ConfirmScreen) and "never shown" in screen_text(app))
        await pilot.press("y")
        await until(
            kit,
            pilot,
            lambda: [view.exposure for view in app.world.known(ENGINES) if view.container.running] == [Exposure.LAN],
        )
        assert app.clipboard == "/home/test/.config/spark-tui/secrets/qwen.env"
        assert "2048" in kit.docker.created[-1].command
        assert "key-1" not in screen_text(app) + app.clipboard
        await until(kit, pilot, lambda: kit.context[JobRunner].running("qwen") is None)
        await pilot.press("K")
        await until(kit, pilot, lambda: "asks for a key already" in screen_text(app))


async def test_in_read_only_mode_there_is_no_such_key() -> None:
    kit = Kit()
    kit.docker.add_container("open", image=IMAGE, ports=(PublishedPort(8000, 8000, "0.0.0.0"),))
    kit.context.settings = replace(kit.context.settings, read_only=True)
    async with opened(kit) as (app, pilot):
        await until(kit, pilot, lambda: "LAN NO KEY" in screen_text(app))
        before = await kit.docker.containers()
        assert "Read-only mode: Make a key is disabled." in await pressed(app, kit, pilot, "K")
        assert len(app.screen_stack) == 1, "it does not even ask"
        assert await kit.docker.containers() == before
