"""A launch: its steps, its refusals, and what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus, PublishedPort
from spark_tui.base.engine.message import ContentDelta
from spark_tui.base.engine.state import EngineState, Health
from spark_tui.base.errors import (
    DaemonNotRunning,
    EngineExited,
    EngineFailed,
    GpuDriverMissing,
    NameInUse,
    NoSpaceLeft,
    NoSuchPath,
    PortInUse,
    RefusedError,
    RegistryUnreachable,
    SparkError,
    WrongArchitecture,
)
from spark_tui.base.finding import Ok
from spark_tui.base.jobs import StepState
from spark_tui.base.secret import Secret
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.run.launch.use.launch import STEPS, Launcher, LaunchRequest
from tests.kit import IMAGE, PRESET, Kit

STOPPED_LINES = ("one line", "the last line")


async def launch(kit: Kit, overrides: Overrides | None = None, **changes: object) -> object:
    request = LaunchRequest(PRESET, overrides or Overrides(), **changes)  # type: ignore[arg-type]
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    return task.result()


async def fails(kit: Kit, kind: type[SparkError], overrides: Overrides | None = None, **changes: object) -> SparkError:
    with pytest.raises(kind) as caught:
        await launch(kit, overrides, **changes)
    assert caught.value.remedy, "every error says what to do next"
    return caught.value


async def test_every_step_is_reported_and_the_first_request_warms_the_engine() -> None:
    kit = Kit()
    launched = await launch(kit)
    assert [step.id for step in kit.steps] == [id_ for id_, _ in STEPS]
    states = {step.id: step.state for step in kit.steps}
    assert states.pop("pull") is StepState.SKIPPED
    assert states.pop("fetch") is StepState.SKIPPED, "there is no Hub here"
    assert set(states.values()) == {StepState.DONE}
    assert launched.view.state is EngineState.SERVING
    [(_, request)] = kit.api.requests
    assert request.parameters.max_tokens == 3
    assert kit.api.open_streams == 0


@pytest.mark.parametrize("survives", [True, False])
async def test_docker_that_goes_away_in_a_boot_is_named_at_once_and_waited_for(survives: bool) -> None:
    kit = Kit()
    kit.docker.on_start = None
    patient = replace(PRESET, ready_timeout_seconds=300.0)
    async with kit.supervised():
        task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(patient, Overrides()), kit.report))
        await kit.until(lambda: any(step.id == "follow" for step in kit.steps))
        kit.docker.go_down()
        await kit.clock.advance(5)
        assert kit.step("docker").state is StepState.RUNNING
        assert "Docker" in kit.step("docker").detail
        await kit.clock.advance(1200)
        assert not task.done(), "the time without Docker is not the engine's"
        if not survives:
            kit.docker.end("qwen", 137)
        kit.docker.come_back()
        await kit.clock.advance(10)
        if survives:
            assert kit.step("docker").state is StepState.DONE
            kit.api.serve()
            await kit.until(task.done)
            assert task.result().view.state is EngineState.SERVING
            return
        await kit.until(task.done)
        with pytest.raises(EngineExited, match="when Docker went away") as caught:
            task.result()
        assert "journalctl" in caught.value.remedy


async def test_a_running_container_alone_is_not_ready() -> None:
    kit = Kit()
    kit.docker.on_start = None
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), kit.report))
    await kit.until(lambda: any(step.id == "follow" for step in kit.steps))
    await kit.clock.advance(120)
    assert kit.step("follow").state is StepState.RUNNING
    kit.api.state = Health.OK
    kit.api.served, models = (), kit.api.served
    await kit.clock.advance(60)
    assert not task.done(), "health without a model is not ready either"
    kit.api.served = models
    await kit.until(task.done)
    assert kit.step("ready").state is StepState.DONE


async def test_an_absent_image_is_pulled_with_progress() -> None:
    kit = Kit()
    kit.docker._images.clear()
    kit.docker.add_remote_image(IMAGE)
    await launch(kit)
    progress = [step.progress for step in kit.reports if step.id == "pull" and step.progress is not None]
    assert progress == sorted(progress)
    assert 0.5 in progress
    assert kit.step("pull").state is StepState.DONE


@pytest.mark.parametrize(
    "changes",
    [
        {"image": "vllm/vllm-openai:v0.31.0"},
        {"argv": ("vllm", "serve", "org/other")},
        {"ports": (PublishedPort(8000, 9000),)},
    ],
    ids=["image", "command", "port"],
)
async def test_a_container_that_has_our_labels_and_another_command_is_not_the_same(changes: dict[str, Any]) -> None:
    """As an exported `docker run` that somebody changed: its labels are those of the launch that it came from."""
    kit = Kit()
    first = await launch(kit)
    facts = kit.docker.named(PRESET.name)
    assert facts is not None
    await kit.docker.remove(first.container_id, force=True)
    kit.docker.add_container(
        PRESET.name, **({"image": IMAGE, "ports": facts.ports, "argv": facts.argv} | changes), labels=facts.labels
    )
    with pytest.raises(NameInUse):
        await launch(kit)


async def test_the_same_launch_twice_is_one_container() -> None:
    kit = Kit()
    first = await launch(kit)
    again = await launch(kit)
    assert again.already_running
    assert again.container_id == first.container_id
    assert len(kit.docker.created) == 1
    assert kit.step("create").state is StepState.SKIPPED
    await kit.docker.stop(first.container_id)
    stopped = await launch(kit)
    assert stopped.container_id == first.container_id, "a stopped one is started again"
    assert len(kit.docker.created) == 1


async def test_other_settings_replace_a_stopped_container_and_keep_its_log() -> None:
    kit = Kit()
    first = await launch(kit)
    kit.docker.write(first.container_id, *STOPPED_LINES)
    await kit.docker.stop(first.container_id)
    second = await launch(kit, Overrides(max_model_len=8192))
    assert second.container_id != first.container_id
    [saved] = kit.archive.saved.values()
    assert [line.text for line in saved][-2:] == list(STOPPED_LINES)


async def test_other_settings_do_not_stop_a_running_engine_unless_asked() -> None:
    kit = Kit()
    await launch(kit)
    error = await fails(kit, NameInUse, Overrides(max_model_len=8192))
    assert "edit qwen" in error.remedy
    assert len(kit.docker.created) == 1
    await launch(kit, Overrides(max_model_len=8192), replace_running=True)
    assert len(kit.docker.created) == 2


async def test_a_full_disk_is_known_before_a_running_engine_is_stopped() -> None:
    kit = Kit()
    await launch(kit)
    kit.host.free = Ok(1024, 0.0)
    error = await fails(kit, NoSpaceLeft, Overrides(max_model_len=8192), replace_running=True)
    assert "1.0 KiB free" in error.summary
    assert not kit.docker.asked("stop")


@pytest.mark.parametrize("method", ["create", "start", "rename"])
async def test_an_engine_whose_successor_cannot_start_runs_again(method: str) -> None:
    kit = Kit()
    first = await launch(kit)
    kit.docker.fail(method, NoSpaceLeft("no space left on device", "Free space."))
    await fails(kit, NoSpaceLeft, Overrides(max_model_len=8192), replace_running=True)
    [left] = await kit.docker.containers()
    assert (left.id, left.name, left.running) == (first.container_id, "qwen", True)
    assert kit.step("restore").state is StepState.DONE


async def test_an_old_log_that_cannot_be_saved_stays_in_its_container() -> None:
    kit = Kit()
    first = await launch(kit)
    kit.docker.write(first.container_id, *STOPPED_LINES)
    kit.archive.error = OSError(errno.ENOSPC, "No space left on device")
    second = await launch(kit, Overrides(max_model_len=8192), replace_running=True)
    left = {each.id: (each.name, each.running) for each in await kit.docker.containers()}
    assert left == {first.container_id: ("qwen-former", False), second.container_id: ("qwen", True)}
    kit.archive.error = None
    await launch(kit, Overrides(max_model_len=1024), replace_running=True)
    assert [each.name for each in await kit.docker.containers()] == ["qwen"]
    assert len(kit.archive.saved) == 1, "the second one wrote nothing"


async def test_a_foreign_container_of_that_name_is_left_alone() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", image="postgres:17")
    await fails(kit, NameInUse)
    assert not kit.docker.asked("remove")
    assert not kit.docker.created


async def test_a_port_taken_by_a_container_or_a_process_names_it() -> None:
    kit = Kit()
    kit.docker.add_container("llama", ports=(PublishedPort(8000, 8000),))
    error = await fails(kit, PortInUse)
    assert "llama" in error.summary
    assert "for example 8001" in error.remedy
    await launch(kit, Overrides(port=8001))
    kit.host.ports[8002] = "nginx (pid 7)"
    assert "nginx" in (await fails(kit, PortInUse, Overrides(port=8002, name="other"))).summary


async def test_an_image_for_another_processor_is_refused_before_anything_is_made() -> None:
    kit = Kit()
    kit.docker.add_image(IMAGE, architecture="s390x")
    await fails(kit, WrongArchitecture)
    assert not kit.docker.created


async def test_a_model_folder_that_is_absent_is_named() -> None:
    kit = Kit()
    kit.host.all_folders = False
    request = LaunchRequest(replace(PRESET, model="/models/absent"), Overrides())
    with pytest.raises(RefusedError, match="/store/absent"):
        await kit.context[Launcher].launch(request, kit.report)


@pytest.mark.parametrize(
    ("method", "error", "step"),
    [
        ("daemon", DaemonNotRunning("No Docker.", "Start it."), "preflight"),
        ("create", GpuDriverMissing("No GPU driver.", "Install the toolkit."), "create"),
        ("start", PortInUse("Port 8000 is taken.", "Choose another."), "start"),
    ],
)
async def test_the_step_that_fails_is_the_one_reported(method: str, error: SparkError, step: str) -> None:
    kit = Kit()
    kit.docker.fail(method, error)
    assert await fails(kit, type(error)) is error
    assert kit.step(step).state is StepState.FAILED
    assert kit.step(step).detail == error.summary
    assert kit.docker.named("qwen") is None, "what could not start does not keep the name"


async def test_a_pull_that_fails_leaves_nothing() -> None:
    kit = Kit()
    kit.docker._images.clear()
    kit.docker.fail("pull", RegistryUnreachable("No registry.", "Check the network."))
    await fails(kit, RegistryUnreachable)
    assert kit.docker.named("qwen") is None


async def test_an_engine_that_dies_while_it_boots_ends_the_launch_with_its_reason() -> None:
    kit = Kit()
    kit.docker.on_start = None
    reason = "ValueError: Free memory on device cuda:0 (52.81/121.69 GiB) on startup is less than desired"
    kit.docker.script(IMAGE, [f"(EngineCore pid=9) ERROR 05-21 21:02:50 [core.py:1] {reason}"], exit_code=1)
    async with kit.supervised():
        error = await fails(kit, EngineExited)
    assert "Free memory on device" in error.summary
    assert kit.docker.named("qwen") is not None, "its log must survive"


async def test_an_engine_that_is_never_ready_is_given_up_and_left_running() -> None:
    kit = Kit()
    kit.docker.on_start = None
    request = LaunchRequest(replace(PRESET, ready_timeout_seconds=60.0), Overrides())
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    with pytest.raises(EngineExited, match="1m00s"):
        task.result()
    facts = kit.docker.named("qwen")
    assert facts is not None
    assert facts.status is ContainerStatus.RUNNING


async def test_a_failed_first_request_is_told_and_does_not_undo_the_launch() -> None:
    kit = Kit()
    kit.api.answer = (ContentDelta("a"), EngineFailed("It broke.", "Look at the log."))
    launched = await launch(kit)
    assert kit.step("warm").state is StepState.FAILED
    assert "It broke" in kit.step("warm").detail
    assert launched.view.state is EngineState.SERVING


async def test_a_model_without_chat_is_asked_no_first_request() -> None:
    kit = Kit()
    kit.api.answer = (EngineFailed("It broke.", "Look at the log."),)
    pooling = replace(PRESET, command=f"{PRESET.command} --runner pooling --convert embed")
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(pooling, Overrides()), kit.report))
    await kit.until(task.done)
    assert task.result().view.state is EngineState.SERVING
    assert kit.step("warm").state is StepState.SKIPPED


async def test_an_engine_that_has_no_chat_after_all_is_no_failure() -> None:
    kit = Kit()
    kit.api.answer = (NoSuchPath("There is no /v1/chat/completions.", ""),)
    await launch(kit)
    assert kit.step("warm").state is StepState.SKIPPED


async def test_without_waiting_the_launch_ends_once_the_container_runs() -> None:
    kit = Kit()
    kit.docker.on_start = None
    await launch(kit, wait=False)
    assert kit.step("start").state is StepState.DONE
    assert "follow" not in {step.id for step in kit.steps}


async def test_a_token_travels_in_a_private_file_and_never_in_the_spec() -> None:
    kit = Kit()
    kit.secrets.token = Secret("hf_planted")
    await launch(kit, Overrides(exposure=ExposureChoice.LAN, api_key=True))
    [spec] = kit.docker.created
    [path] = spec.env_files
    values = kit.secrets.files[kit.secrets.path("qwen")]
    assert str(kit.secrets.path("qwen")) == path
    assert {name: value.reveal() for name, value in values.items()} == {
        "HF_TOKEN": "hf_planted",
        "VLLM_API_KEY": "key-1" if kit.secrets.keys_made == 1 else values["VLLM_API_KEY"].reveal(),
    }
    assert "hf_planted" not in repr(spec)
    assert values["VLLM_API_KEY"].reveal() not in repr(spec)


async def test_a_second_launch_keeps_the_key_that_was_made() -> None:
    kit = Kit()
    lan = Overrides(exposure=ExposureChoice.LAN, api_key=True)
    await launch(kit, lan)
    before = kit.secrets.files[kit.secrets.path("qwen")]["VLLM_API_KEY"]
    await kit.docker.stop("qwen")
    await launch(kit, lan)
    assert kit.secrets.files[kit.secrets.path("qwen")]["VLLM_API_KEY"] == before


async def test_the_store_and_cache_folders_are_made_before_docker_would_make_them_as_root() -> None:
    kit = Kit()
    await launch(kit)
    assert {str(path) for path in kit.host.made} >= {"/store"}


async def test_a_cancellation_is_heard_at_any_moment() -> None:
    for turns in range(120):
        kit = Kit()
        kit.docker.hold("start")
        task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), kit.report))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled(), f"after {turns} turns of the loop"


@pytest.mark.parametrize(
    ("held", "step"), [("daemon", "preflight"), ("pull_stage", "pull"), ("create", "create"), ("start", "start")]
)
async def test_a_launch_can_be_cancelled_at_any_step(held: str, step: str) -> None:
    kit = Kit()
    if held == "pull_stage":
        kit.docker._images.clear()
        kit.docker.add_remote_image(IMAGE)
    kit.docker.hold(held)
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), kit.report))
    await kit.until(lambda: bool(kit.steps) and (kit.steps[-1].id, kit.steps[-1].state) == (step, StepState.RUNNING))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.steps[-1].state is StepState.CANCELLED
