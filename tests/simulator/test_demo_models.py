"""The simulated store, Hub and downloads answer like real ones, move by the clock, and touch nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spark_tui.app.wiring import build_demo
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.finding import value_of
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadRequest, Limits
from spark_tui.catalog.models.model.hub import HubRepoMissing
from spark_tui.catalog.models.model.store import Completeness, DeleteExtent
from spark_tui.catalog.models.use.downloads import Downloads
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.use.launch_downloads import launch_downloads
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.simulator.downloads import PAUSED_AT_START, RATE, DemoDownloads
from spark_tui.simulator.machine import SimulatedHost
from spark_tui.simulator.models import DemoModels
from tests.fakes_host import FakeClock

SMALL = DownloadRequest("openai/gpt-oss-20b")
LARGE = DownloadRequest("nvidia/Llama-3.3-70B-Instruct-NVFP4")


class Line:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.models = DemoModels(self.clock)
        self.downloads = DemoDownloads(self.clock, self.models)

    async def of(self, request: DownloadRequest) -> Download:
        return next(each for each in await self.downloads.all() if each.id == request.id)


@pytest.fixture
def line() -> Line:
    return Line()


async def test_one_stands_there_paused_and_going_on_completes_the_model(line: Line) -> None:
    paused = await line.of(PAUSED_AT_START)
    assert paused.phase is DownloadPhase.PAUSED
    assert 0 < paused.done < (paused.total or 0)
    await line.downloads.start(PAUSED_AT_START)
    assert (await line.of(PAUSED_AT_START)).eta == pytest.approx((paused.total - paused.done) / RATE, rel=0.01)  # type: ignore[operator]
    await line.clock.advance(60.0)
    ended = await line.of(PAUSED_AT_START)
    assert (ended.phase, ended.fraction, ended.files_done) == (DownloadPhase.DONE, 1.0, len(ended.files))
    found = (await line.models.scan()).find(PAUSED_AT_START.repo)
    assert found is not None
    assert found.completeness is Completeness.COMPLETE


async def test_what_runs_shares_the_line_and_the_rest_waits_for_its_turn(line: Line) -> None:
    for request in (SMALL, LARGE, PAUSED_AT_START):
        await line.downloads.start(request)
    phases = [(await line.of(request)).phase for request in (SMALL, LARGE, PAUSED_AT_START)]
    assert sorted(phases) == [DownloadPhase.DOWNLOADING, DownloadPhase.DOWNLOADING, DownloadPhase.QUEUED]
    await line.downloads.set_limits(Limits(RATE / 10, at_once=3))
    speeds = [each.speed for each in await line.downloads.all()]
    assert sum(speed for speed in speeds if speed) == pytest.approx(RATE / 10)
    assert None not in speeds


async def test_pausing_keeps_what_has_arrived_and_cancelling_can_discard_it(line: Line) -> None:
    await line.downloads.start(SMALL)
    await line.clock.advance(50.0)
    await line.downloads.pause(SMALL.id)
    before = (await line.of(SMALL)).done
    assert before == pytest.approx(50 * RATE, rel=0.01)
    await line.clock.advance(50.0)
    assert (await line.of(SMALL)).done == before
    assert await line.downloads.cancel(SMALL.id, discard=True) > 0
    with pytest.raises(UsageError):
        await line.downloads.pause(SMALL.id)


async def test_what_is_not_on_the_hub_is_not_fetched(line: Line) -> None:
    with pytest.raises(HubRepoMissing):
        await line.downloads.start(DownloadRequest("no/such"))


async def test_the_demo_plans_with_files_and_sizes_and_leaves_copies_out() -> None:
    clock = FakeClock()
    context = build_demo(clock=clock)
    work = asyncio.ensure_future(context[Downloads].plan(SMALL))
    await clock.until(work.done)
    plan = work.result()
    assert plan.left
    assert plan.refusal is None
    assert [each.path for each in plan.left_out] == ["metal/model.bin", "original/model.safetensors"]
    await context.close()


async def test_every_shipped_presets_model_is_in_the_demos_store_or_on_its_hub() -> None:
    """The launch form's own look: a newcomer's first Enter meets no error."""
    clock = FakeClock()
    context = build_demo(clock=clock)
    assert context.once(launch_downloads) is not None
    catalogue = context[PresetSource].load()
    assert len(catalogue.presets) > 20
    wanted: dict[str, str] = {}
    for preset in (each for each in catalogue.presets if each.min_nodes == 1):  # the form plans one machine
        plan = context[Preflight].dry_plan(preset, Overrides())
        work = asyncio.ensure_future(context.once(launch_downloads).look(plan))
        await clock.until(work.done)
        assert work.result().refusal is None, preset.name
        wanted[preset.name] = work.result().words
    assert "13.0 GiB to download" in wanted["diffusiongemma-26b-a4b-nvfp4"]
    assert wanted["qwen3.6-35b-a3b-nvfp4"] == "", "what is here is not fetched"
    await context.close()


async def test_the_demo_has_one_figure_of_what_is_free_on_its_disk(line: Line) -> None:
    contents = await line.models.scan()
    assert value_of(SimulatedHost().free_disk(Path(contents.root))) == contents.free


# --- the store --------------------------------------------------------------------------------------------


async def test_it_has_every_state_and_counts_like_a_disk() -> None:
    contents = await DemoModels(FakeClock()).scan()
    states = {model.completeness for model in contents.models}
    assert states == {Completeness.COMPLETE, Completeness.PARTIAL, Completeness.CORRUPT}
    assert contents.disk == sum(model.disk for model in contents.models)
    assert contents.others


async def test_a_verification_takes_its_time_and_finds_the_damaged_one() -> None:
    clock = FakeClock()
    models = DemoModels(clock)

    async def verdicts(name: str) -> tuple[int, int]:
        async for progress in models.verify(name):
            last = progress
        assert last.over
        assert last.done > 0
        return last.matching, len(last.wrong)

    for name, expected in (("openai/gpt-oss-120b", (15, 0)), ("unsloth/Qwen3.6-27B-NVFP4", (3, 1))):
        work = asyncio.ensure_future(verdicts(name))
        await clock.until(work.done)
        assert await work == expected


async def test_what_was_deleted_is_gone_and_leftovers_go_alone() -> None:
    models = DemoModels(FakeClock())
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
    plan = await models.plan_delete(name, DeleteExtent.LEFTOVERS)
    await models.delete(plan)
    with pytest.raises(RefusedError):
        await models.delete(await models.plan_delete(name, DeleteExtent.LEFTOVERS))
    await models.delete(await models.plan_delete(name, DeleteExtent.MODEL))
    with pytest.raises(UsageError):
        await models.files(name)


async def test_in_the_demo_the_engine_that_runs_keeps_its_model() -> None:
    context = build_demo(clock=FakeClock())
    view = value_of(await context[Library].refresh())
    assert view is not None
    used = [entry for entry in view.entries if entry.engines]
    assert used
    assert (await context[Library].plan_delete(used[0].model.id)).obstacles
    await context.close()
