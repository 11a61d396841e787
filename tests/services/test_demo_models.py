"""The simulated store answers like a real one, and touches nothing."""

from __future__ import annotations

import asyncio

import pytest

from spark_tui.core.context import Context, build_demo
from spark_tui.domain.errors import RefusedError, UsageError
from spark_tui.domain.models.store import Completeness, Extent
from spark_tui.domain.reading import value_of
from spark_tui.services.demo.models import DemoModels
from tests.fakes_host import FakeClock


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
    plan = await models.plan_delete(name, Extent.LEFTOVERS)
    await models.delete(plan)
    with pytest.raises(RefusedError):
        await models.delete(await models.plan_delete(name, Extent.LEFTOVERS))
    await models.delete(await models.plan_delete(name, Extent.MODEL))
    with pytest.raises(UsageError):
        await models.files(name)


async def test_in_the_demo_the_engine_that_runs_keeps_its_model() -> None:
    context: Context = build_demo(clock=FakeClock())
    view = value_of(await context.library.refresh())
    assert view is not None
    used = [entry for entry in view.entries if entry.engines]
    assert used
    assert (await context.library.plan_delete(used[0].model.id)).obstacles
    await context.close()
