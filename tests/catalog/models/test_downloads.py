"""Planning, starting, following and going on with downloads."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Ok, Severity, Stale
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.store import Store
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadPhase, DownloadRequest
from spark_tui.catalog.models.model.hub import Gating
from spark_tui.catalog.models.use.downloads import Downloads, Hub, combined
from spark_tui.catalog.presets.model.fetching import downloads_of
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.plan import plan as launch_plan
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts, RequiredFile
from tests.fakes_host import FakeClock, FakeHost, FakeSecrets
from tests.fakes_hub import FakeDownloader, FakeHub, card

TINY = DownloadRequest("acme/tiny")
FILES = (("config.json", 100), ("model.safetensors", 10 * GIB), ("original/model.pth", 10 * GIB))
PATHS = HostPaths("/store", "/caches", "/home/test")


class Kit:
    def __init__(self) -> None:
        self.clock, self.host, self.secrets = FakeClock(), FakeHost(), FakeSecrets()
        self.hub, self.downloader = FakeHub(), FakeDownloader()
        self.store = Store(self.clock)
        self.downloads = Downloads(
            Hub(self.hub, self.secrets, self.host), self.downloader, self.host, self.store, self.clock, Path("/store")
        )
        self.hub.add(card("acme/tiny", *FILES))


@pytest.fixture
def kit() -> Kit:
    return Kit()


# --- plans ------------------------------------------------------------------------------------------------


async def test_a_plan_tells_files_sizes_room_and_what_is_left_out(kit: Kit) -> None:
    kit.host.free = Ok(50 * GIB)
    kit.downloader.held = {"config.json": 100}
    plan = await kit.downloads.plan(TINY)
    assert [(file.path, file.left) for file in plan.files] == [("config.json", 0), ("model.safetensors", 10 * GIB)]
    assert [each.path for each in plan.left_out] == ["original/model.pth"]
    assert (plan.total, plan.left, plan.short, plan.refusal) == (10 * GIB + 100, 10 * GIB, 0, None)
    assert not plan.whole


async def test_what_is_whole_and_named_needs_nothing(kit: Kit) -> None:
    kit.downloader.held = dict(FILES)
    assert not (await kit.downloads.plan(TINY)).whole, "no name leads to it"
    kit.downloader.named = True
    assert (await kit.downloads.plan(TINY)).whole


async def test_no_room_or_no_access_refuses_before_a_byte_is_fetched(kit: Kit) -> None:
    gated = DownloadRequest("acme/gated")
    kit.hub.add(card("acme/gated", *FILES, gating=Gating.AUTO))
    kit.hub.refused["acme/gated"] = hub_errors.gated("https://hub", "acme/gated", known=False)
    assert isinstance((await kit.downloads.plan(gated)).refusal, hub_errors.HubGated)
    del kit.hub.refused["acme/gated"]
    assert (await kit.downloads.plan(gated)).refusal is None
    kit.host.free = Ok(10 * GIB)
    plan = await kit.downloads.plan(TINY)
    assert isinstance(plan.refusal, hub_errors.DiskFull)
    assert plan.short == GIB + 100


async def test_gguf_has_to_be_chosen(kit: Kit) -> None:
    kit.hub.add(card("acme/gguf", ("a-Q4.gguf", 4), ("a-Q8.gguf", 8)))
    plan = await kit.downloads.plan(DownloadRequest("acme/gguf"))
    assert plan.choices == (("a-Q4.gguf", 4), ("a-Q8.gguf", 8))
    assert isinstance(plan.refusal, hub_errors.HubFileMissing)
    chosen = await kit.downloads.plan(DownloadRequest("acme/gguf", files=("a-Q4.gguf",)))
    assert (chosen.refusal, chosen.total) == (None, 4)


@pytest.mark.parametrize(
    "request_", [DownloadRequest("acme/tiny", files=("no.py",)), DownloadRequest("acme/empty")], ids=["file", "empty"]
)
async def test_nothing_to_fetch_is_an_error(kit: Kit, request_: DownloadRequest) -> None:
    kit.hub.add(card("acme/empty"))
    with pytest.raises(hub_errors.HubFileMissing):
        await kit.downloads.plan(request_)


# --- presets ----------------------------------------------------------------------------------------------

PRESET = Preset(
    name="both",
    origin=Origin.BUILTIN,
    file="/presets/both.yaml",
    model="acme/tiny",
    image="acme/vllm:1",
    command="vllm serve {model} --port {port} --load-format mistral "
    """--speculative-config '{"method": "dflash", "model": "acme/drafter"}'""",
    defaults=(("port", 8000),),
    facts=PresetFacts(
        required_files=(
            RequiredFile("parser.py", repo="acme/tiny", file="plugins/parser.py"),
            RequiredFile("fix.py", url="https://elsewhere/fix.py"),
            RequiredFile("local", repo="acme/folder"),
        )
    ),
)


def planned(preset: Preset, overrides: Overrides | None = None) -> tuple[DownloadRequest, ...]:
    return downloads_of(launch_plan(preset, overrides or Overrides(), PATHS, image=None))


def test_a_preset_brings_its_drafter_and_plugin_files() -> None:
    assert planned(PRESET) == (
        DownloadRequest("acme/tiny", files=("plugins/parser.py",), target="parser.py", single=True, preset="both"),
        DownloadRequest(target="fix.py", single=True, url="https://elsewhere/fix.py", preset="both"),
        DownloadRequest("acme/folder", target="local", preset="both"),
        DownloadRequest("acme/tiny", load_format="mistral", preset="both"),
        DownloadRequest("acme/drafter", preset="both"),
    )


def test_a_model_of_the_store_is_not_fetched_and_the_launch_s_own_settings_count() -> None:
    local = replace(PRESET, model="/models/local", command="vllm serve {model}", facts=PresetFacts())
    assert planned(local) == ()
    plain = replace(PRESET, command="vllm serve {model} --load-format {load_format}", facts=PresetFacts())
    changed = overrides_from_pairs(pairs_from(("load_format=safetensors",)))
    assert planned(plain, changed)[0].load_format == "safetensors"


# --- running ----------------------------------------------------------------------------------------------


async def test_the_token_is_handed_over_and_the_world_knows(kit: Kit) -> None:
    id_ = await kit.downloads.start(TINY)
    assert kit.downloader.tokens == [kit.secrets.hf_token()]
    world = kit.store.world[DOWNLOADS]
    assert isinstance(world, Ok)
    assert [each.id for each in world.value] == [id_]


async def test_pause_resume_and_cancel_by_id_or_an_unambiguous_name(kit: Kit) -> None:
    id_ = await kit.downloads.start(TINY)
    await kit.downloads.pause(id_)
    assert (await kit.downloads.get("acme/tiny")).phase is DownloadPhase.PAUSED
    await kit.downloads.resume(id_)
    assert (await kit.downloads.get(id_)).phase is DownloadPhase.DOWNLOADING
    await kit.downloads.start(replace(TINY, target="folder"))
    with pytest.raises(UsageError, match="Several"):
        await kit.downloads.get("acme/tiny")
    assert await kit.downloads.cancel(id_, discard=True) == 250
    with pytest.raises(UsageError):
        await kit.downloads.get(id_)


async def test_watching_ends_with_the_last_of_them(kit: Kit) -> None:
    ids = [await kit.downloads.start(TINY), await kit.downloads.start(DownloadRequest("acme/drafter"))]
    seen = []

    async def watch() -> None:
        async with aclosing(kit.downloads.watch(ids)) as looks:
            async for found in looks:
                seen.append(tuple(each.phase for each in found))

    task = asyncio.create_task(watch())
    await kit.clock.advance(1.0)
    kit.downloader.finish(ids[0])
    await kit.clock.advance(1.0)
    assert not task.done()
    kit.downloader.finish(ids[1])
    await kit.clock.advance(1.0)
    await task
    assert seen[-1] == (DownloadPhase.DONE, DownloadPhase.DONE)


async def test_ends_are_told_in_the_feed(kit: Kit) -> None:
    done, failed = await kit.downloads.start(TINY), await kit.downloads.start(DownloadRequest("acme/b"))
    kit.downloader.finish(done)
    kit.downloader.fail(failed, hub_errors.disk_full("/store"))
    await kit.downloads.refresh()
    await kit.downloads.refresh()
    assert [(event.text, event.severity) for event in kit.store.world.events] == [
        ("acme/b: download started", Severity.INFO),
        ("acme/tiny: downloaded, 1000 B", Severity.INFO),
        ("acme/b: The disk of /store is full; the data so far is kept.", Severity.ERROR),
    ]


async def test_what_a_restart_ended_goes_on_and_what_a_person_paused_does_not(kit: Kit) -> None:
    interrupted, paused = await kit.downloads.start(TINY), await kit.downloads.start(DownloadRequest("acme/b"))
    kit.downloader.interrupt(interrupted)
    await kit.downloads.pause(paused)
    assert await kit.downloads.resume_interrupted() == (interrupted,)
    assert (await kit.downloads.get(interrupted)).phase is DownloadPhase.DOWNLOADING
    assert (await kit.downloads.get(paused)).phase is DownloadPhase.PAUSED


async def test_records_that_cannot_be_read_age_what_is_known(kit: Kit) -> None:
    await kit.downloads.start(TINY)
    task = asyncio.create_task(kit.downloads.run())
    await kit.clock.advance(1.0)
    kit.downloader.broken = hub_errors.not_writable("/state", "Permission denied")
    await kit.clock.advance(5.0)
    world = kit.store.world[DOWNLOADS]
    assert isinstance(world, Stale)
    assert "/state" in world.error
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_several_add_up_for_one_line(kit: Kit) -> None:
    await kit.downloads.start(TINY)
    await kit.downloads.start(DownloadRequest("acme/b"))
    assert combined(await kit.downloads.refresh()) == (500, 2000, 500.0)
    assert combined(()) == (0, 0, None)
