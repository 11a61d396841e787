"""A remedy is one key away: the launch form opens with the change written into it."""

from __future__ import annotations

from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET, ContainerStatus
from spark_tui.catalog.fit.screen.draft import DraftDialog
from spark_tui.catalog.presets.model.preset import ContainerOptions
from spark_tui.run.launch.screen import LaunchForm
from tests.log_fixtures import run_log
from tests.tui.kit import QWEN, SMOL, kit_of, seen

GREEDY = replace(
    QWEN,
    name="greedy",
    command="vllm serve {model} --gpu-memory-utilization {gpu_memory_utilization}",
    defaults=(("gpu_memory_utilization", 0.92),),
)
FAILED = {"status": ContainerStatus.EXITED, "exit_code": 1}


async def test_the_fixes_of_the_checks_open_the_form_with_them() -> None:
    async with seen(kit_of(GREEDY), (120, 36), "right", "right") as sight:
        await sight.until(lambda: "a Fix" in sight.text)
        await sight.press("a")
        assert ("quantization", "modelopt") in sight.on(LaunchForm).overrides.values


async def test_where_the_checks_propose_nothing_the_key_says_so() -> None:
    async with seen(kit_of(replace(SMOL, options=ContainerOptions(gpus="none"))), (120, 36)) as sight:
        await sight.until(lambda: " unknown " in sight.text)
        assert "a Fix" not in sight.text
        await sight.press("a")
        assert not isinstance(sight.app.screen, LaunchForm)
        assert any("suggest no change" in notice.message for notice in sight.app._notifications)


async def test_home_launches_again_with_the_change_that_the_cause_proposes() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container(
        "qwen", lines=run_log("vllm-0.32-cpu-f_port"), labels=((LABEL_PRESET, QWEN.name),), **FAILED
    )
    async with seen(kit, (120, 36), "1") as sight:
        await sight.until(lambda: "a applies" in sight.text)
        await sight.press("a")
        form = sight.on(LaunchForm)
        assert form.overrides.port == 8131, "the log names port 8130 as taken"


async def test_an_engine_that_another_program_started_gets_a_draft_in_place_of_a_form() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("foreign", lines=run_log("vllm-0.32-cpu-f_port"), **FAILED)
    async with seen(kit, (120, 36), "1") as sight:
        await sight.until(lambda: "cause" in sight.text)
        await sight.press("a")
        sight.on(DraftDialog)
