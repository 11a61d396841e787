"""The update key on Presets: the tag, the trial as a job, and the decision."""

from __future__ import annotations

import pytest

from spark_tui.manage.images.use.update import UpdateStage
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.modals import ConfirmScreen
from tests.manage.images.test_update_use import NEW_ID, OLD_ID, Bench
from tests.tui.kit import SIZES, Sight, seen


async def asked(sight: Sight, *keys: str) -> None:
    await sight.press(*keys)
    await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))


@pytest.mark.parametrize(("size", "keep"), [(SIZES[0], True), (SIZES[1], False), (SIZES[2], True)])
async def test_a_newer_image_is_tried_and_kept_or_not(size: tuple[int, int], *, keep: bool) -> None:
    kit = Bench()
    await kit.started()
    async with seen(kit, size) as sight:
        await asked(sight, "u")
        await sight.until_seen("moved", "93.1 GiB")
        await sight.press("n")
        assert kit.docker.asked("pull") == []
        await asked(sight, "u")
        await sight.press("y")
        await sight.until(lambda: kit.stage is UpdateStage.DECIDE)
        assert (kit.runs, kit.tagged) == (NEW_ID, OLD_ID)
        await sight.until(lambda: not kit.context[JobRunner].running("qwen"))
        await asked(sight, "u")
        await sight.until_seen("old image", "new image")
        await sight.press("y" if keep else "b")
        await sight.until(lambda: kit.stage is (UpdateStage.KEPT if keep else None))
        await sight.until(lambda: not kit.context[JobRunner].running("qwen"))
        expected = NEW_ID if keep else OLD_ID
        assert (kit.runs, kit.tagged) == (expected, expected)
        if keep:
            await asked(sight, "u")
            await sight.press("y")
            await sight.until(lambda: kit.stage is None)
            assert kit.tagged == OLD_ID


async def test_a_cancelled_trial_leaves_the_old_engine_alone() -> None:
    kit = Bench()
    await kit.started()
    kit.docker.hold("pull_stage")
    async with seen(kit, (120, 36)) as sight:
        await asked(sight, "u")
        await sight.press("y")
        await sight.until(lambda: bool(kit.docker.asked("pull_stage")))
        await kit.context[JobRunner].cancel("qwen")
        assert (kit.runs, kit.stage) == (OLD_ID, UpdateStage.PULL)


async def test_a_registry_that_is_away_is_an_error_and_not_a_question() -> None:
    kit = Bench()
    kit.docker.digests.clear()
    async with seen(kit, (120, 36), "u") as sight:
        await sight.until_seen("No image vllm/vllm-openai:nightly there.")
