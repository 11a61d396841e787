"""An engine that everyone can use gets a key, with the settings that it has."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_OVERRIDES, PublishedPort
from spark_tui.base.engine.state import Exposure
from spark_tui.base.errors import RefusedError
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.fit.use.fit import share_of
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.run.launch.use.secure import Secured, Securing
from tests.kit import IMAGE, PRESET, Kit

OPEN = overrides_from_pairs(
    pairs_from(
        (
            "exposure=lan", "api_key=no", "name=mine", "port=8123", "max_model_len=2048", "enforce_eager=true",
            "extra_args=--seed '1 2'", "without=quantization,dtype", "env.NAME=a b",
        )
    )
)  # fmt: skip


async def launched(kit: Kit, request: LaunchRequest) -> None:
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    task.result()


async def the_view(kit: Kit, name: str = "mine") -> EngineView:
    return next(view for view in await kit.context[EngineSupervisor].look() if view.name == name)


async def refused(kit: Kit, name: str = "mine") -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await kit.context[Securing].plan(await the_view(kit, name))
    assert caught.value.remedy
    return caught.value


async def secured(kit: Kit) -> Secured:
    return await kit.context[Securing].plan(await the_view(kit))


async def test_it_is_launched_again_with_everything_that_it_had_and_a_key() -> None:
    kit = Kit()
    await launched(kit, LaunchRequest(PRESET, OPEN))
    before = await the_view(kit)
    assert before.exposure is Exposure.LAN_NO_KEY
    plan = await secured(kit)
    share = plan.request.overrides.gpu_memory_utilization
    assert share == share_of(before.container, before.runtime)
    assert plan.request.overrides == replace(OPEN, api_key=True, auto_share=True, gpu_memory_utilization=share)
    assert "has changed" not in plan.what
    assert "port 8123" in plan.what
    await launched(kit, plan.request)
    after = await the_view(kit)
    assert (after.exposure, after.port) == (Exposure.LAN, 8123)
    assert after.container.argv == before.container.argv
    [(path, values)] = kit.secrets.files.items()
    assert str(path) == plan.key_file == after.container.api_key_file
    assert plan.key_variable in values
    assert values[plan.key_variable].reveal() not in plan.what
    assert "asks for a key already" in str(await refused(kit))


async def test_one_whose_preset_has_changed_since_says_so() -> None:
    kit = Kit()
    await launched(kit, LaunchRequest(PRESET, OPEN))
    kit.presets.catalogue = replace(
        kit.presets.catalogue, presets=(replace(PRESET, defaults=(("port", 8000), ("max_model_len", 8192), ("x", 1))),)
    )
    kit.presets.catalogue = replace(kit.presets.catalogue, presets=(replace(PRESET, env=(("OMP_NUM_THREADS", "4"),)),))
    assert "has changed" in (await secured(kit)).what


async def test_local_and_foreign_engines_are_refused_with_the_way_out() -> None:
    kit = Kit()
    await launched(kit, LaunchRequest(PRESET, replace(OPEN, exposure=ExposureChoice.LOCAL)))
    error = await refused(kit)
    assert "it needs no key" in error.summary
    assert "exposure=lan" in error.remedy
    plan = await kit.context[Securing].plan(await the_view(kit), publish=True)
    assert (plan.request.overrides.exposure, plan.request.overrides.api_key) == (ExposureChoice.LAN, True)
    assert "still open" not in plan.what and "has changed" not in plan.what
    kit.docker.add_container(
        "theirs", image=IMAGE, argv=("vllm", "serve", "x"), ports=(PublishedPort(8000, 8000, "0.0.0.0"),)
    )
    error = await refused(kit, "theirs")
    assert "did not start theirs" in error.summary
    assert "127.0.0.1:8000" in error.remedy


async def test_without_its_preset_or_with_a_foreign_label_nothing_is_guessed() -> None:
    kit = Kit()
    await launched(kit, LaunchRequest(PRESET, OPEN))
    view = await the_view(kit)
    for text in ("[", "[1]", '{"a": 1}', '{"host": "x"}', '{"max_model_len": "-1"}'):
        labels = tuple((name, text if name == LABEL_OVERRIDES else value) for name, value in view.container.labels)
        with pytest.raises(RefusedError, match="cannot be read"):
            await kit.context[Securing].plan(replace(view, container=replace(view.container, labels=labels)))
    kit.presets.catalogue = replace(kit.presets.catalogue, presets=())
    assert "is not available" in str(await refused(kit))


def test_a_launch_without_changes_has_no_label_for_them() -> None:
    plan = Kit().context[Preflight].dry_plan(PRESET, Overrides(name="other", port=8005))
    assert plan.spec.label(LABEL_OVERRIDES) == ""
