"""A launch brings its model, drafter and plugin files into the store first: seen, paused, gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import EventKind, Ok
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.jobs import JobView, StepState
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadPhase
from spark_tui.catalog.models.model.hub import Gating
from spark_tui.catalog.models.use.downloads import Downloads
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Preset, PresetFacts, RequiredFile
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, LaunchResult
from spark_tui.run.launch.use.runner import JobRunner
from tests.fakes_hub import FakeDownloader, FakeHub, card
from tests.kit import PRESET, Kit
from tests.store_kit import cached, files

MODEL = (("config.json", 100), ("model.safetensors", 18 * GIB))
DRAFTED = replace(
    PRESET,
    command=PRESET.command + """ --speculative-config '{"method": "dflash", "model": "org/drafter"}'""",
    facts=PresetFacts(required_files=(RequiredFile("parser.py", "org/qwen", "parser.py"),)),
)


class Shop(Kit):
    """A Kit with a Hub that has the preset's model, and a store in a folder."""

    def __init__(self, root: Path, preset: Preset = PRESET) -> None:
        super().__init__(preset)
        self.preset = preset
        self.hub, self.downloader = FakeHub(), FakeDownloader()
        self.hub.add(card("org/qwen", *MODEL, ("parser.py", 5)))
        self.hub.add(card("org/drafter", *MODEL))
        self.host.free = Ok(400 * GIB)
        self.store = root
        self.models = FolderModelStore(root)
        ports = self.context.ports.changed(models=self.models, hub=self.hub, downloader=self.downloader)
        self.context = Context(Settings(), ports, HostPaths(str(root), "/caches", "/home/test"))

    def begin(self, **changes: object) -> asyncio.Task[LaunchResult]:
        request = LaunchRequest(self.preset, Overrides(), **changes)  # type: ignore[arg-type]
        return asyncio.create_task(self.context[Launcher].launch(request, self.report))

    async def launched(self, **changes: object) -> LaunchResult:
        task = self.begin(**changes)
        await self.until(task.done)
        return task.result()

    async def fetches(self, task: asyncio.Task[LaunchResult]) -> None:
        """Until it waits for downloads."""
        await self.until(lambda: bool(self.downloader.started) or task.done())
        await self.until(lambda: self.step("fetch").progress is not None or task.done())

    def details(self) -> list[str]:
        """What the step said, in order."""
        return [step.detail for step in self.reports if step.id == "fetch"]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path)
    yield made
    await made.models.close()


async def test_what_is_missing_is_fetched_before_a_container_is_made(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    assert "org/qwen: 18.0 GiB to download, 400 GiB free" in shop.details(), "the size and the room come first"
    assert shop.step("fetch").detail == "250 B of 1000 B, 250 B/s, 3s left"
    assert shop.step("fetch").progress == 0.25
    assert not shop.docker.created
    assert shop.downloader.tokens == [shop.secrets.hf_token()]
    shop.downloader.finish(next(iter(shop.downloader.known)))
    await shop.until(task.done)
    assert task.result().container_id
    assert (shop.step("fetch").state, shop.step("fetch").detail) == (StepState.DONE, "downloaded org/qwen, 18.0 GiB")


async def test_what_is_here_is_not_asked_for(shop: Shop) -> None:
    cached(shop.store, "org/qwen", files(seed=1))
    await shop.launched()
    assert (shop.step("fetch").state, shop.step("fetch").detail) == (StepState.SKIPPED, "model downloaded")
    assert shop.hub.tokens == [], "the Hub was not asked: a launch works without a network"


@pytest.mark.parametrize("here", [True, False])
async def test_a_fetch_is_an_event_where_something_is_fetched(shop: Shop, here: bool) -> None:
    if here:
        cached(shop.store, "org/qwen", files(seed=1))
    job = shop.context[JobRunner].launch(LaunchRequest(shop.preset, Overrides()))

    def view() -> JobView:
        return next(each for each in shop.context.store.world.jobs if each.id == job)

    if not here:
        await shop.until(lambda: bool(shop.downloader.known))
        [step] = [step for step in view().steps if step.id == "fetch"]
        assert step.downloads == tuple(shop.downloader.known)
        shop.downloader.finish(next(iter(shop.downloader.known)))
    await shop.until(lambda: view().state is StepState.DONE)
    events = [
        each for each in shop.context.store.world.events if (each.kind, each.subject) == (EventKind.FETCH, "qwen")
    ]
    assert len(events) == (0 if here else 2)  # its beginning and its end


async def test_it_can_be_left_to_the_engine(shop: Shop) -> None:
    await shop.launched(fetch=False)
    assert (shop.step("fetch").state, shop.step("fetch").detail) == (StepState.SKIPPED, "left to the engine")
    assert (shop.hub.tokens, shop.downloader.started) == ([], [])


async def test_drafter_and_plugin_files_come_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path, DRAFTED)
    shop.host.all_folders = False
    task = shop.begin()
    await shop.fetches(task)
    assert [(each.repo, each.target) for each in shop.downloader.started] == [
        ("org/qwen", "parser.py"), ("org/qwen", ""), ("org/drafter", ""),
    ]  # fmt: skip
    assert "org/qwen, org/drafter: 36.0 GiB to download, 400 GiB free" in shop.details()
    for id_ in tuple(shop.downloader.known):
        shop.downloader.finish(id_)
    shop.host.files = {tmp_path / "parser.py"}
    await shop.until(task.done)
    assert task.result().container_id
    await shop.models.close()


async def test_a_file_that_did_not_come_is_told_before_a_container_is_made(tmp_path: Path) -> None:
    shop = Shop(tmp_path, DRAFTED)
    shop.host.all_folders = False
    shop.downloader.at_once = True
    with pytest.raises(RefusedError, match=r"needs parser\.py"):
        await shop.launched()
    assert not shop.docker.created
    await shop.models.close()


async def test_an_engine_with_a_cache_of_its_own_fetches_by_itself(tmp_path: Path) -> None:
    shop = Shop(tmp_path, replace(PRESET, env=(("HF_HOME", "/own"),), mounts=("own:/own",)))
    await shop.launched()
    assert (shop.step("fetch").state, shop.step("fetch").detail) == (StepState.SKIPPED, "nothing to download")
    await shop.models.close()


async def test_one_of_many_sizes_is_the_engines_own_choice(shop: Shop) -> None:
    shop.hub.add(card("org/qwen", ("a-Q4.gguf", 4), ("a-Q8.gguf", 8)))
    await shop.launched()
    assert (shop.step("fetch").state, shop.downloader.started) == (StepState.SKIPPED, [])


# --- refusals ---------------------------------------------------------------------------------------------


async def test_a_gated_model_is_refused_before_anything_is_fetched_or_pulled(shop: Shop) -> None:
    shop.docker._images.clear()
    shop.hub.add(card("org/qwen", *MODEL, gating=Gating.MANUAL))
    shop.hub.refused["org/qwen"] = hub_errors.gated("https://hub", "org/qwen", known=False)
    with pytest.raises(hub_errors.HubGated, match="org/qwen"):
        await shop.launched()
    assert shop.step("fetch").state is StepState.FAILED
    assert not shop.downloader.started
    assert not shop.docker.asked("pull")


async def test_all_of_it_together_has_to_fit(tmp_path: Path) -> None:
    shop = Shop(tmp_path, DRAFTED)
    shop.host.all_folders = False
    shop.host.free = Ok(30 * GIB)
    with pytest.raises(hub_errors.DiskFull):
        await shop.launched()
    assert not shop.downloader.started
    await shop.models.close()


async def test_without_the_hub_the_way_around_is_told(shop: Shop) -> None:
    shop.hub.broken = hub_errors.offline("https://hub", "no route")
    with pytest.raises(hub_errors.HubOffline) as raised:
        await shop.launched()
    assert raised.value.remedy.endswith("let the engine download it (--no-fetch).")
    assert shop.step("fetch").state is StepState.FAILED


async def test_with_the_hub_switched_off_nothing_is_fetched_by_anyone(shop: Shop) -> None:
    shop.hub.broken = hub_errors.switched_off()
    with pytest.raises(hub_errors.HubSwitchedOff) as raised:
        await shop.launched()
    assert "HF_HUB_OFFLINE" in raised.value.remedy
    assert "--no-fetch" not in raised.value.remedy
    assert (shop.downloader.started, shop.docker.created) == ([], [])


async def test_a_download_that_fails_ends_the_launch_with_its_own_error(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    shop.downloader.fail(next(iter(shop.downloader.known)), hub_errors.no_room("/store", 5, 1))
    await shop.until(task.done)
    with pytest.raises(hub_errors.DiskFull):
        task.result()
    assert not shop.docker.created


# --- pausing, cancelling, going on ------------------------------------------------------------------------


async def test_a_cancelled_launch_pauses_what_it_fetches(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.phase for each in shop.downloader.known.values()] == [DownloadPhase.PAUSED]
    assert shop.step("fetch").state is StepState.CANCELLED

    again = shop.begin()
    await shop.until(lambda: len(shop.downloader.started) == 2)
    shop.downloader.finish(next(iter(shop.downloader.known)))
    await shop.until(again.done)
    assert again.result().container_id, "the same launch goes on where it stopped"


async def test_a_launch_is_cancelled_as_a_job_and_pauses(shop: Shop) -> None:
    shop.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await shop.until(lambda: bool(shop.downloader.known))
    await shop.context[JobRunner].cancel("qwen")
    assert [each.phase for each in shop.downloader.known.values()] == [DownloadPhase.PAUSED]


async def test_closing_the_program_lets_the_download_go_on(shop: Shop) -> None:
    shop.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await shop.until(lambda: bool(shop.downloader.known))
    await shop.context[JobRunner].close()
    assert [each.phase for each in shop.downloader.known.values()] == [DownloadPhase.DOWNLOADING]


async def test_paused_by_a_person_it_waits_and_says_so(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    [id_] = shop.downloader.known
    await shop.context[Downloads].pause(id_)
    await shop.until(lambda: "org/qwen is paused: resume it in Models" in shop.step("fetch").detail)
    await shop.clock.advance(60)
    assert not task.done()
    await shop.context[Downloads].resume(id_)
    shop.downloader.finish(id_)
    await shop.until(task.done)
    assert task.result().container_id


async def test_a_download_whose_process_died_goes_on(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    [id_] = shop.downloader.known
    shop.downloader.interrupt(id_)
    await shop.until(lambda: len(shop.downloader.started) == 2)
    shop.downloader.finish(id_)
    await shop.until(task.done)
    assert task.result().container_id


async def test_a_download_taken_off_the_list_ends_the_launch(shop: Shop) -> None:
    task = shop.begin()
    await shop.fetches(task)
    [id_] = shop.downloader.known
    await shop.context[Downloads].cancel(id_)
    await shop.until(task.done)
    with pytest.raises(RefusedError, match="was cancelled"):
        task.result()
