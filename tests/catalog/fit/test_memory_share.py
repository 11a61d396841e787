"""The memory share of a launch: what it needs, the same for the same launch, and judged alike while others load."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.state import EngineState, Exposure
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import GpuProcess, GpuReading
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.model.fit import HOST_BYTES, FitWord
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides, overrides_from_pairs, pairs_of
from spark_tui.catalog.presets.model.preset import Preset, PresetFacts
from spark_tui.catalog.presets.use.comparing import preset_diff
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.edit import Editor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from tests.catalog.fit.test_budget import available
from tests.fakes_host import IDLE_MEMORY
from tests.kit import PRESET, Kit

LLAMA = replace(
    PRESET,
    model="meta-llama/Llama-3.1-8B-Instruct",
    command="vllm serve {model} --port {port} --max-model-len {max_model_len} --max-num-seqs 2 "
    "--gpu-memory-utilization {gpu_memory_utilization}",
    defaults=(("port", 8000), ("max_model_len", 65536), ("gpu_memory_utilization", 0.85)),
    facts=PresetFacts(total_parameters=8e9, quantization="NVFP4"),
)


async def launch(kit: Kit, **pairs: str) -> bool:
    """Launches it; whether it was running already."""
    request = LaunchRequest(LLAMA, overrides_from_pairs(pairs))
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    return task.result().already_running


def share(kit: Kit) -> float | None:
    return parse(kit.docker.created[-1].command).number(SHARE)


async def test_a_launch_gets_the_share_that_it_needs_and_the_label_keeps_that_it_follows() -> None:
    kit = Kit(LLAMA)
    available(kit, 110)
    await launch(kit)
    need = share(kit)
    assert need is not None
    assert 0.2 < need < 0.3, "not the preset's 0.85"
    assert json.loads(kit.docker.created[-1].label("io.spark-tui.overrides")) == {SHARE: "auto"}
    containers = [view.container for view in await kit.context[EngineSupervisor].look()]
    image = await kit.docker.image(LLAMA.reference)
    differing = preset_diff(kit.context[Preflight], LLAMA, Overrides(), image, containers).differing
    assert "--gpu-memory-utilization" not in {row.setting for row in differing}


async def test_the_same_launch_again_is_already_running_though_memory_is_another() -> None:
    kit = Kit(LLAMA)
    available(kit, 33)
    await launch(kit)
    available(kit, 12)
    assert await launch(kit)
    assert await launch(kit, gpu_memory_utilization="auto")
    assert len(kit.docker.created) == 1
    view = next(view for view in await kit.context[EngineSupervisor].look())
    assert kit.context[Editor].running(view).overrides.gpu_memory_utilization == share(kit), (
        "the number that it runs with"
    )


@pytest.mark.parametrize("pairs", [{SHARE: "0.5"}, {"extra_args": "--gpu-memory-utilization 0.5"}])
async def test_a_share_that_is_named_is_left_alone(pairs: dict[str, str]) -> None:
    kit = Kit(LLAMA)
    available(kit, 110)
    await launch(kit, **pairs)
    assert share(kit) == 0.5


async def test_a_command_without_a_place_for_it_and_another_engine_keep_theirs() -> None:
    kit = Kit()
    available(kit, 110)
    await kit.context[Collectors].collect_once()
    for preset in (
        replace(LLAMA, command="cd /tmp && vllm serve {model} --gpu-memory-utilization 0.85"),
        replace(LLAMA, runtime="sglang", command="python3 -m sglang.launch_server --model {model}"),
    ):
        found = await kit.context[LaunchChecks].judge(preset, Overrides())
        assert (found.plan.overrides, found.word is FitWord.FITS_WITH) == (Overrides(), False)


@pytest.mark.parametrize("preset", [LLAMA, replace(LLAMA, model="acme/new", facts=PresetFacts())], ids=["known", "new"])
async def test_an_automatic_launch_the_fix_and_the_rule_have_one_number(preset: Preset) -> None:
    kit = Kit(preset)
    available(kit, 60)
    await kit.context[Collectors].collect_once()
    judge = kit.context[LaunchChecks].judge
    auto = (await judge(preset, overrides_from_pairs({SHARE: "auto"}))).fit
    named = await judge(preset, overrides_from_pairs({SHARE: "0.95"}))
    rule = next(each for each in named.findings if each.id == "utilization_high")
    assert {float(dict(change)[SHARE]) for change in (named.fit.change, rule.change)} == {auto.utilization}


@pytest.mark.parametrize("room", [60, 117])
async def test_where_nothing_is_known_and_named_the_fix_and_the_rule_have_one_number_too(room: int) -> None:
    kit = Kit(LLAMA)
    available(kit, room)
    await kit.context[Collectors].collect_once()
    preset = replace(LLAMA, model="acme/new", facts=PresetFacts(), command="vllm serve {model}", defaults=())
    automatic = await kit.context[LaunchChecks].judge(preset, Overrides())
    kit.context[LaunchChecks].auto = False
    found = await kit.context[LaunchChecks].judge(preset, Overrides())
    rule = next(each for each in found.findings if each.id == "utilization_unset")
    numbers = {dict(each.pairs)[SHARE] for each in found.fit.changes if SHARE in dict(each.pairs)}
    assert {*map(float, numbers)} == {float(dict(rule.change)[SHARE])} == {automatic.fit.utilization}
    assert not [each for each in automatic.findings if each.id == "utilization_unset"], "the launch has that number"


def test_auto_is_read_and_written_and_a_number_ends_it() -> None:
    auto = overrides_from_pairs({SHARE: "Auto"})
    resolved = replace(auto, gpu_memory_utilization=0.24)
    assert (auto.auto_share, auto.gpu_memory_utilization) == (True, None)
    assert pairs_of(resolved) == pairs_of(auto) == {SHARE: "auto"}
    assert not overrides_from_pairs({SHARE: "0.3"}).auto_share


# --- while another engine loads ---------------------------------------------------------------------------


@pytest.mark.parametrize("context", [8192, 65536, 131072])
async def test_the_verdict_is_the_same_before_while_and_after_another_engine_loads(context: int) -> None:
    """The readings of a load, step by step: the engine takes its share, its processes their memory beside it."""
    kit = Kit(LLAMA)
    total, claim, steps = IDLE_MEMORY.total, int(IDLE_MEMORY.total * 0.5), 20
    facts = kit.docker.add_container("other", argv=("vllm", "serve", "o/o", "--gpu-memory-utilization", "0.5"))
    kit.host.containers[77] = facts.id
    await kit.context[Collectors].collect_once()
    seen = []
    for step in range(steps + 1):
        holds, host = claim * step // steps, HOST_BYTES * step // steps
        room = 105 * GIB - holds - host
        state = EngineState.SERVING if step == steps else EngineState.STARTING
        kit.context.store.update(
            {ENGINES: Ok((EngineView(facts, state, "vllm", Exposure.LOCAL),))},
            memory=Ok(replace(IDLE_MEMORY, total=total, available=room, free=room)),
            gpu=Ok(GpuReading("NVIDIA GB10", unified=True, processes=(GpuProcess(77, holds),) if step else ())),
        )
        found = await kit.context[LaunchChecks].judge(LLAMA, overrides_from_pairs({"max_model_len": str(context)}))
        seen.append((found.word, found.text))
    assert len(set(seen)) == 1, seen


async def test_a_launch_that_has_not_started_yet_counts_too() -> None:
    kit = Kit(LLAMA)
    available(kit, 110)
    await kit.context[Collectors].collect_once()
    kit.context[LaunchChecks].claims["other"] = 90 * GIB
    assert (await kit.context[LaunchChecks].judge(LLAMA, Overrides())).word is FitWord.FITS_WITH
    kit.context[JobRunner].launch(LaunchRequest(LLAMA, Overrides(name="other")))
    found = await kit.context[LaunchChecks].judge(LLAMA, Overrides())
    assert found.fit.available == 20 * GIB
    await kit.context.close()


async def test_a_later_launch_asks_again_what_the_gpus_processes_hold() -> None:
    kit = Kit()
    await kit.context[Collectors].collect_ready()
    await kit.context[Collectors].collect_ready()
    assert kit.gpu.reads == 1
    kit.clock.tick(60.0)
    await kit.context[Collectors].collect_ready()
    assert kit.gpu.reads == 2
