"""The launch form tells what will be fetched, and the launch shows how it comes; by keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadPhase
from spark_tui.catalog.models.model.hub import Gating
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.modals import ChoiceDialog
from tests.fakes_hub import card
from tests.store_kit import cached, files
from tests.tui.kit import PRESET, SIZES, Sight, seen
from tests.tui.models_kit import Stock

MODEL = (("config.json", 100), ("model.safetensors", 18 * GIB))


@pytest.fixture
async def stock(tmp_path: Path) -> AsyncIterator[Stock]:
    made = Stock(tmp_path, PRESET)
    made.hub.add(card("org/qwen", *MODEL))
    made.host.free = Ok(400 * GIB)
    yield made
    await made.context.close()


async def form(sight: Sight) -> None:
    """Opens the launch form, and waits until everything about it is known."""
    await sight.press("3")
    await sight.until(lambda: isinstance(sight.app.screen, PresetsScreen))
    await sight.press("l")
    await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))
    await sight.until(lambda: sight.on(LaunchForm).judgement is not None)
    await sight.pilot.pause()


async def test_the_form_tells_size_and_room_of_what_is_fetched_first(stock: Stock) -> None:
    async with seen(stock, SIZES[0]) as sight:
        await form(sight)
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen("18.0 GiB to download", "400")


async def test_a_model_that_is_here_needs_no_word(stock: Stock, tmp_path: Path) -> None:
    cached(tmp_path, "org/qwen", files(seed=1))
    async with seen(stock) as sight:
        await form(sight)
        assert "to download" not in sight.text
        assert stock.hub.tokens == []


async def test_terms_to_accept_are_told_before_the_launch(stock: Stock) -> None:
    stock.hub.add(card("org/qwen", *MODEL, gating=Gating.MANUAL))
    stock.hub.refused["org/qwen"] = hub_errors.gated("https://hub", "org/qwen", known=True)
    async with seen(stock, (200, 50)) as sight:
        await form(sight)
        await sight.until_seen("https://hub/org/qwen")


async def test_a_key_leaves_it_to_the_engine_and_takes_it_back(stock: Stock) -> None:
    async with seen(stock) as sight:
        await form(sight)
        await sight.until_seen("to download")
        await sight.press("ctrl+f")
        await sight.until_seen("left to the engine")
        await sight.press("ctrl+f")
        await sight.until_seen("downloaded first")
        await sight.press("ctrl+f", "ctrl+l")
        await sight.until(lambda: bool(stock.docker.created))
        assert stock.downloader.started == []


async def test_the_launch_shows_how_it_comes_and_cancelling_pauses_it(stock: Stock) -> None:
    async with seen(stock) as sight:
        await form(sight)
        await sight.press("ctrl+l")
        await sight.until_seen("Fetch model", "250 B of 1000 B")
        assert not stock.docker.created
        await stock.context[JobRunner].cancel("qwen")
        assert [each.phase for each in stock.downloader.known.values()] == [DownloadPhase.PAUSED]


async def test_a_launch_without_an_engine_yet_is_named_on_every_screen_and_chat_is_with_what_serves(
    stock: Stock,
) -> None:
    stock.docker.add_container("other", ports=(PublishedPort(8000, 8001),))
    stock.api.serve()
    async with seen(stock) as sight:
        await form(sight)
        await sight.press("ctrl+l")
        await sight.until_seen("Fetch model", "250 B of 1000 B")
        for key, words in (("4", "its log begins"), ("5", "metrics follow")):
            await sight.press(key)
            await sight.until_seen("qwen fetching", words)
        await sight.press("6")
        await sight.until(lambda: sight.app.selected == "other")
        await sight.until_seen(" on other")


async def test_the_hub_is_not_asked_again_for_the_same_files(stock: Stock) -> None:
    async with seen(stock) as sight:
        await form(sight)
        await sight.until_seen("to download")
        asked = len(stock.hub.tokens)
        await sight.type("80")  # another port
        await sight.until(lambda: sight.on(LaunchForm).judgement is not None)
        assert len(stock.hub.tokens) == asked


async def test_where_downloads_go_is_asked_once_and_another_folder_counts_from_the_next_start(tmp_path: Path) -> None:
    older, store = tmp_path / "older", tmp_path / "vllm"
    cached(older, "org/old", files(seed=1))
    for keys, kept in ((("enter",), older), (("down", "enter"), store)):
        stock = Stock(store, PRESET, hubs=(f"{older}/hub",), home=tmp_path / kept.name / "home")
        stock.hub.add(card("org/qwen", *MODEL))
        stock.host.free = Ok(400 * GIB)
        async with seen(stock) as sight:
            await form(sight)
            await sight.until_seen("to download")
            await sight.press("ctrl+l")
            await sight.until(lambda at=sight: isinstance(at.app.screen, ChoiceDialog))
            await sight.press(*keys)
            if kept == store:
                await sight.until(lambda to=stock: bool(to.downloader.started))
            else:
                await sight.until(lambda at=sight: isinstance(at.app.screen, LaunchForm))
                await sight.press("ctrl+l")  # not asked again, and not downloaded to where it is not to go
                await sight.until_seen("next start")
                assert stock.downloader.started == []
                assert isinstance(sight.app.screen, LaunchForm)
        assert stock.config.current().store == kept
        await stock.context.close()
