"""The simulated Spark behaves like one, by its clock alone."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import spark_tui.simulator
from spark_tui.app.wiring import build_demo, demo_ports
from spark_tui.base.engine.container import (
    ContainerSpec,
    ContainerStatus,
    EnvVar,
    PublishedPort,
    PullProgress,
)
from spark_tui.base.engine.message import (
    Answer,
    AnswerBuilder,
    ChatParameters,
    ChatRequest,
    Message,
    ReasoningDelta,
    Role,
)
from spark_tui.base.engine.state import Endpoint, Exposure, Health, api_port, exposure_of, runtime_of
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContainerNotFound,
    DockerError,
    EngineUnreachable,
    ImageNotFound,
    ModelNotServed,
    NameInUse,
    PortInUse,
    RefusedError,
    ReplyCutOff,
)
from spark_tui.base.finding import Missing, Ok, value_of
from spark_tui.base.host.memory import MemInfo, memory_breakdown
from spark_tui.base.host.vitals import GpuReading, engine_memory
from spark_tui.base.ports import ContainerEngine, LogLine
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.use.imports import ImportOutcome, RecipeStore, import_recipes
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.observe.explain.model.timeline import BootTimeline, StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.run.launch.use.launch import launched_with
from spark_tui.simulator.docker import PULL_SECONDS
from spark_tui.simulator.engine import canned_answer, tokens_of
from spark_tui.simulator.engines import EngineProfile, vllm_start
from spark_tui.simulator.folder import DemoFolder
from spark_tui.simulator.folders import SAMPLES
from spark_tui.simulator.world import (
    FAILED_NAME,
    FAILED_OURS,
    SERVING_MODEL,
    SERVING_NAME,
    SERVING_PORT,
    SERVING_PRESET,
    VLLM_IMAGE,
    DemoWorld,
)
from spark_tui.use.chat.use.chat import ConversationStore
from spark_tui.use.prove.use.prove import Prover
from tests.fakes_host import FakeClock, begun, settle

BOOT_SECONDS = vllm_start(EngineProfile("vllm", "nvidia/Some-Model"))[1].ready / 20
STANDING = Endpoint(f"http://127.0.0.1:{SERVING_PORT}")
NEW = Endpoint("http://127.0.0.1:8000")


class Spark:
    """All the demo's ports on one clock."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = FakeClock()
        self.world = DemoWorld(self.clock, seed)
        self.ports = ports = demo_ports(clock=self.clock, world=self.world)
        self.docker, self.api, self.host, self.gpu = ports.docker, ports.api, ports.host, ports.gpu

    async def close(self) -> None:
        await self.docker.close()
        await self.api.close()

    async def launch(self, name: str = "new", port: int = 8000, **labels: str) -> str:
        """Creates and starts a container."""
        container = await self.docker.create(spec(name, port, **labels))
        await self.docker.start(container)
        return container

    async def log(self, name: str, **what: Any) -> list[LogLine]:
        """The whole log as it is now."""
        async with aclosing(self.docker.logs(name, follow=False, **what)) as batches:
            return [line async for batch in batches for line in batch]

    async def text(self, name: str) -> str:
        return "\n".join(line.text for line in await self.log(name))

    async def spend(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Lets it run while so much time passes, after which it is over."""
        task = await begun(self.clock, work)
        await self.clock.advance(seconds)
        await task

    def memory(self) -> MemInfo:
        memory = value_of(self.host.memory())
        assert memory is not None
        return memory

    async def gpu_now(self) -> GpuReading:
        reading = value_of(await self.gpu.read())
        assert reading is not None
        return reading

    async def engine_bytes(self) -> int:
        held = value_of(engine_memory(await self.gpu.read()))
        assert held is not None
        return held

    async def ask(
        self, text: str, endpoint: Endpoint = STANDING, model: str = SERVING_NAME, **parameters: object
    ) -> Answer:
        """A question and its whole answer, with the times of this clock."""

        async def talk() -> Answer:
            builder = AnswerBuilder(self.clock.monotonic())
            request = ChatRequest(model, (Message(Role.USER, text),), ChatParameters(**parameters))  # type: ignore[arg-type]
            async with aclosing(self.api.chat(endpoint, request)) as events:
                async for event in events:
                    builder.add(event, self.clock.monotonic())
            return builder.snapshot()

        task = asyncio.create_task(talk())
        await self.clock.until(task.done, step=0.05)
        return await task


def spec(name: str, port: int = 8000, image: str = VLLM_IMAGE, **labels: str) -> ContainerSpec:
    return ContainerSpec(
        name,
        image,
        (
            "nvidia/Some-Model",
            "--served-model-name",
            name,
            "--max-model-len",
            "131072",
            "--gpu-memory-utilization",
            "0.4",
        ),
        ports=(PublishedPort(8000, port),),
        labels=tuple(labels.items()),
    )


@pytest.fixture
async def spark() -> AsyncIterator[Spark]:
    spark = Spark()
    yield spark
    await spark.close()


def story(lines: list[LogLine], started_at: float | None) -> LogTracker:
    tracker = LogTracker(started_at)
    tracker.feed_many(lines)
    return tracker


# --- what is there at the beginning ---------------------------------------------------------------------


async def test_it_opens_with_an_engine_that_has_served_for_hours(spark: Spark) -> None:
    facts = await spark.docker.inspect(SERVING_NAME)
    assert (facts.status, facts.ours, runtime_of(facts)) == (ContainerStatus.RUNNING, True, "vllm")
    assert facts.started_at is not None
    assert spark.clock.now() - facts.started_at > 3 * 3600
    assert api_port(facts) == SERVING_PORT
    assert exposure_of(facts, SERVING_PORT) is Exposure.LOCAL
    assert await spark.api.health(STANDING) is Health.OK
    [model] = await spark.api.models(STANDING)
    assert (model.id, model.max_model_len) == (SERVING_NAME, 262_144)
    timeline = story(await spark.log(SERVING_NAME), facts.started_at).timeline()
    assert timeline.ready
    assert timeline.seconds == pytest.approx(409, abs=2), "as the recorded one, but for the download"
    assert timeline.facts.version == await spark.api.version(STANDING)


async def test_and_with_a_foreign_start_that_failed_for_a_reason(spark: Spark) -> None:
    facts = await spark.docker.inspect(FAILED_NAME)
    assert (facts.status, facts.exit_code, facts.ours) == (ContainerStatus.EXITED, 1, False)
    tracker = story(await spark.log(FAILED_NAME), facts.started_at)
    tracker.container_ended(1)
    timeline = tracker.timeline()
    assert timeline.outcome is StartOutcome.FAILED
    assert timeline.failure is not None
    for words in ("Free memory on device cuda:0 (109.53/121.69 GiB)", "(0.91, 110.74 GiB)"):
        assert words in timeline.failure.line


async def test_it_is_a_spark_and_its_pool_is_cut_without_a_remainder(spark: Spark) -> None:
    assert spark.host.identity().is_spark
    assert spark.host.identity().hostname == "spark-demo"
    memory = spark.memory()
    assert round(memory.total / GIB, 1) == 121.6
    parts = memory_breakdown(memory, await spark.gpu.read())
    assert sum(parts.sizes) == memory.total
    assert parts.engine_memory is not None
    assert 40 * GIB < parts.engine_memory < 80 * GIB
    assert 4 * GIB < parts.apps + (parts.driver or 0) < 12 * GIB
    gpu = await spark.gpu_now()
    assert (gpu.name, gpu.unified, gpu.memory_used, gpu.memory_total) == ("NVIDIA GB10", True, None, None)


# --- a launch -------------------------------------------------------------------------------------------


async def test_a_new_engine_boots_like_the_recorded_one_and_listens_when_its_log_says_so(spark: Spark) -> None:
    await spark.launch()
    facts = await spark.docker.inspect("new")
    assert await spark.api.health(NEW) is Health.NOT_LISTENING
    await spark.clock.advance(BOOT_SECONDS - 0.2)
    assert await spark.api.health(NEW) is Health.NOT_LISTENING
    assert not story(await spark.log("new"), facts.started_at).timeline().ready
    await spark.clock.advance(0.3)
    assert await spark.api.health(NEW) is Health.OK
    timeline = story(await spark.log("new"), facts.started_at).timeline()
    assert timeline.ready
    assert timeline.seconds == pytest.approx(BOOT_SECONDS, abs=0.2)
    assert timeline.facts.model == "nvidia/Some-Model"
    measured = [phase.seconds for phase in timeline.phases if phase.seconds]
    assert len(measured) >= 9
    assert sum(measured) == pytest.approx(BOOT_SECONDS, abs=0.5), "what it says it measured fits what passed"
    [model] = await spark.api.models(NEW)
    assert (model.id, model.root, model.max_model_len) == ("new", "nvidia/Some-Model", 131_072)


async def test_a_replay_has_the_dates_of_its_own_day_and_no_mark_is_left(spark: Spark) -> None:
    await spark.launch()
    await spark.clock.advance(60)
    lines, text = await spark.log("new"), await spark.text("new")
    assert "Some-Model" in text
    for absent in ("<<", "05-21", "2026-05-21", "dummy-key"):
        assert absent not in text
    assert "01-15 08:00:" in text
    assert any("\rLoading safetensors" in line.text for line in lines), "a progress bar overwrites itself"
    assert all(a.stamp < b.stamp for a, b in itertools.pairwise(lines)), "stamps distinguish lines"
    assert all(re.fullmatch(r"2027-01-15T08:0\d:\d\d\.\d{9}Z", line.stamp) for line in lines)


async def test_memory_follows_the_start_cache_first_then_weights_then_the_kv_cache(spark: Spark) -> None:
    before, held = spark.memory(), await spark.engine_bytes()
    await spark.launch()
    await spark.clock.advance(15)
    loading, loading_held = spark.memory(), await spark.engine_bytes()
    assert loading.cache > before.cache + 10 * GIB, "weights pass through the page cache"
    assert held + 5 * GIB < loading_held < held + 23 * GIB
    await spark.clock.advance(20)
    assert await spark.engine_bytes() > loading_held + 10 * GIB
    assert spark.memory().free > GIB
    await spark.docker.start("new")  # a running one is no error
    await spark.spend(2, spark.docker.stop("new"))
    assert await spark.engine_bytes() > held + 5 * GIB, "memory comes back late"
    await spark.clock.advance(10)
    assert await spark.engine_bytes() == pytest.approx(held, abs=GIB)


async def test_an_engine_for_which_nothing_is_left_fails_as_vllm_does(spark: Spark) -> None:
    await spark.launch("second", 8000)
    await spark.clock.advance(60)
    async with aclosing(spark.docker.events()) as events:
        pending = asyncio.ensure_future(anext(events))
        while not spark.world.waiters:
            await asyncio.sleep(0.001)
        await spark.launch("third", 8002)
        seen = [await pending, await anext(events)]
        await spark.clock.advance(60)
        seen.append(await anext(events))
    assert [(event.action, event.name) for event in seen] == [(a, "third") for a in ("create", "start", "die")]
    assert seen[-1].exit_code == 1
    facts = await spark.docker.inspect("third")
    assert (facts.status, facts.exit_code) == (ContainerStatus.EXITED, 1)
    failure = story(await spark.log("third"), facts.started_at).timeline().failure
    assert failure is not None
    assert re.search(r"Free memory on device cuda:0 \([\d.]+/121.69 GiB\)", failure.line)
    assert spark.memory().free > GIB


async def test_after_the_first_engine_has_stopped_there_is_room_again(spark: Spark) -> None:
    await spark.spend(20, spark.docker.stop(SERVING_NAME))
    assert (await spark.gpu_now()).utilization_percent == 0
    assert (await spark.gpu_now()).sm_clock_mhz == 208
    await spark.launch()
    await spark.clock.advance(60)
    assert "Available KV cache memory: 28." in await spark.text("new")
    gpu = await spark.gpu_now()
    assert (gpu.utilization_percent, gpu.sm_clock_mhz) == (0, 2411), "loaded, and nobody asks"


async def launched(preset_name: str, **pairs: str) -> tuple[BootTimeline, str]:
    """What the log of a preset's start says, with the engine that serves stopped first; and its text."""
    clock = FakeClock()
    context = build_demo(clock=clock)
    docker, overrides = context.docker, overrides_from_pairs({"port": "9000", **pairs})
    preset = context[PresetSource].load().get(preset_name)
    assert preset is not None
    plan = context[Preflight].dry_plan(preset, overrides)
    for work in (docker.stop(SERVING_NAME), _pulled(docker, plan.spec.image)):
        task = await begun(clock, work)
        await clock.advance(20)
        await task
    await docker.start(await docker.create(plan.spec))
    await clock.advance(150)
    facts = await docker.inspect(plan.spec.name)
    async with aclosing(docker.logs(plan.spec.name, follow=False)) as batches:
        lines = [line async for batch in batches for line in batch]
    await context.close()
    tracker = story(lines, facts.started_at)
    if facts.exit_code is not None:
        tracker.container_ended(facts.exit_code)
    return tracker.timeline(), "\n".join(line.text for line in lines)


async def _pulled(docker: ContainerEngine, image: str) -> None:
    async with aclosing(docker.pull(image)) as progress:
        async for _ in progress:
            pass


STARTS = {  # preset: weights in GiB, and what the kernels and the quantization are
    "gpt-oss-20b": (12.86, {"fp4_moe": "TRITON", "fp4_linear": "", "quantization": "mxfp4", "speculation": ""}),
    "gpt-oss-120b": (61.1, {"fp4_moe": "TRITON", "max_model_len": 131072}),
    "llama-3.3-70b-instruct-nvfp4": (40.0, {"fp4_moe": "", "architecture": "LlamaForCausalLM"}),
    "qwen3.6-35b-a3b-nvfp4-tools": (21.51, {"fp4_moe": "MARLIN", "speculation": "mtp 3", "kv_cache_dtype": "fp8"}),
    "qwen3-8b-nvfp4-sglang": (6.5, {"quantization": "modelopt_fp4"}),
    "qwen3-30b-a3b-gguf-llama-cpp": (17.3, {"quantization": "Q4_K - Medium", "kv_tokens": 32768}),
    "qwen3-32b-ollama": (18.6, {"version": "0.12.6"}),
    "qwen3-30b-a3b-nvfp4-trtllm": (15.7, {"version": "1.2.0rc6"}),
    "cpu-smollm2": (0.3, {"eager": True}),
}


@pytest.mark.parametrize("preset", STARTS)
async def test_a_start_has_the_figures_and_kernels_of_its_own_model(preset: str) -> None:
    weights, expected = STARTS[preset]
    timeline, text = await launched(preset)
    assert timeline.ready
    assert timeline.facts.load_gib == weights
    assert {name: getattr(timeline.facts, name) for name in expected} == expected
    assert "<<" not in text


REFUSALS = {
    "more than is free": ("0.99", "65536", "Free memory on device"),
    "no room beside the weights": ("0.1", "65536", "No available memory for the cache blocks"),
    "too little for the context": ("0.153", "131072", "To serve at least one request"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_settings_that_cannot_fit_fail_in_the_engine_s_own_words(case: str) -> None:
    share, context, words = REFUSALS[case]
    timeline, _ = await launched("gpt-oss-20b", gpu_memory_utilization=share, max_model_len=context)
    assert timeline.outcome is StartOutcome.FAILED
    assert timeline.failure is not None
    assert words in timeline.failure.line


async def test_more_memory_and_a_smaller_cache_type_hold_more_tokens() -> None:
    tokens = []
    for settings_ in ({"gpu_memory_utilization": "0.3"}, {"gpu_memory_utilization": "0.5"},
                      {"gpu_memory_utilization": "0.5", "kv_cache_dtype": "fp8"}):  # fmt: skip
        timeline, _ = await launched("gpt-oss-20b", **settings_)
        tokens.append(timeline.facts.kv_tokens or 0)
    assert tokens == sorted(tokens)
    assert tokens[2] > 1.8 * tokens[1] > 3 * tokens[0] > 0


async def test_what_serves_was_launched_from_a_preset_of_the_catalogue() -> None:
    context = build_demo(clock=FakeClock())
    facts = await context.docker.inspect(SERVING_NAME)
    await context.close()
    preset = context[PresetSource].load().get(facts.preset)
    assert preset is not None
    assert (preset.name, preset.model) == (SERVING_PRESET, SERVING_MODEL)
    overrides = overrides_from_pairs({**launched_with(facts), "name": SERVING_NAME, "port": str(SERVING_PORT)})
    spec = context[Preflight].dry_plan(preset, overrides).spec
    assert spec.command == facts.argv
    assert spec.image == facts.image


# --- Docker's manners -----------------------------------------------------------------------------------


async def test_what_docker_would_refuse_is_refused(spark: Spark) -> None:
    with pytest.raises(NameInUse):
        await spark.docker.create(spec(SERVING_NAME))
    with pytest.raises(ImageNotFound):
        await spark.docker.create(spec("new", image="vllm/vllm-openai:v9"))
    taken = await spark.docker.create(spec("taken", SERVING_PORT))
    with pytest.raises(PortInUse, match=SERVING_NAME):
        await spark.docker.start(taken)
    with pytest.raises(DockerError, match="running"):
        await spark.docker.remove(SERVING_NAME)
    for call in (spark.docker.inspect, spark.docker.start, spark.docker.stop, spark.docker.remove):
        with pytest.raises(ContainerNotFound):
            await call("nobody")
    assert await spark.docker.stop(FAILED_NAME) is None, "a stopped one is no error"


async def test_a_container_is_found_by_name_id_and_the_beginning_of_its_id(spark: Spark) -> None:
    facts = await spark.docker.inspect(SERVING_NAME)
    assert await spark.docker.inspect(facts.id) == facts
    assert await spark.docker.inspect(facts.id[:12]) == facts
    assert [each.name for each in await spark.docker.containers()] == sorted([SERVING_NAME, FAILED_NAME, FAILED_OURS])


async def test_a_restart_begins_a_new_story_in_the_same_log(spark: Spark) -> None:
    before = await spark.log(SERVING_NAME)
    await spark.spend(3, spark.docker.restart(SERVING_NAME))
    facts = await spark.docker.inspect(SERVING_NAME)
    assert facts.running
    assert facts.finished_at is not None, "its history holds an earlier end"
    assert await spark.api.health(STANDING) is Health.NOT_LISTENING
    await spark.clock.advance(30)
    assert await spark.api.health(STANDING) is Health.OK
    lines = await spark.log(SERVING_NAME)
    assert lines[: len(before)] == before
    assert any("Shutting down FastAPI HTTP server." in line.text for line in lines[len(before) :])


async def test_removing_takes_the_log_along(spark: Spark) -> None:
    await spark.docker.remove(FAILED_NAME)
    with pytest.raises(ContainerNotFound):
        await spark.log(FAILED_NAME)
    await spark.docker.remove(FAILED_OURS)
    await spark.docker.remove(SERVING_NAME, force=True)
    assert await spark.docker.containers() == ()


async def test_a_pull_takes_five_seconds_and_then_the_image_is_here(spark: Spark) -> None:
    reference = "nvcr.io/nvidia/vllm:26.05.post1-py3"
    assert await spark.docker.image(reference) is None

    async def pull() -> list[PullProgress]:
        async with aclosing(spark.docker.pull(reference)) as progress:
            return [step async for step in progress]

    task = await begun(spark.clock, pull())
    await spark.clock.advance(PULL_SECONDS - 0.2)
    assert await spark.docker.image(reference) is None
    await spark.clock.advance(0.3)
    seen = await task
    sizes = [step.current_bytes for step in seen]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, seen[-1].total_bytes)
    assert {layer.status for layer in seen[-1].layers} == {"Pull complete"}
    image = await spark.docker.image(reference)
    assert image is not None
    assert (image.entrypoint, image.architecture) == (("/opt/nvidia/nvidia_entrypoint.sh",), "arm64")
    assert image.digest.startswith("nvcr.io/nvidia/vllm@sha256:")


async def test_a_pull_that_is_given_up_leaves_no_image(spark: Spark) -> None:
    async with aclosing(spark.docker.pull("vllm/vllm-openai")) as progress:
        assert not (await begun(spark.clock, anext(progress))).result().current_bytes  # type: ignore[arg-type]
        while not (await anext(progress)).layers:
            pass
    await spark.clock.advance(2 * PULL_SECONDS)
    assert await spark.docker.image("vllm/vllm-openai:latest") is None


# --- the log stream -------------------------------------------------------------------------------------


async def test_a_follower_gets_every_line_once_and_ends_with_the_container(spark: Spark) -> None:
    await spark.launch()
    await spark.clock.advance(10)
    head = await spark.log("new")
    got: list[LogLine] = []

    async def follow() -> None:
        async with aclosing(spark.docker.logs("new", since=head[-1].stamp)) as batches:
            async for batch in batches:
                got.extend(batch)

    task = await begun(spark.clock, follow())
    await spark.clock.advance(BOOT_SECONDS)
    assert not task.done(), "it goes on while the engine serves"
    await spark.spend(3, spark.docker.stop("new"))
    await task
    assert [*head, *got] == await spark.log("new")


async def test_tail_and_since(spark: Spark) -> None:
    everything = await spark.log(SERVING_NAME)
    stamp = everything[50].stamp
    assert await spark.log(SERVING_NAME, tail=7) == everything[-7:]
    assert await spark.log(SERVING_NAME, since=stamp) == everything[51:]
    assert await spark.log(SERVING_NAME, since=stamp[:-4] + "Z", tail=10_000) == everything[51:], "microseconds too"


# --- the chat -------------------------------------------------------------------------------------------


async def test_an_answer_streams_at_a_real_engines_pace_and_says_what_it_is(spark: Spark) -> None:
    answer = await spark.ask("Why does one memory pool matter on a Spark?")
    assert "This is a demo" in answer.content
    assert "pool" in answer.content
    assert answer.reasoning
    assert answer.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.ttft == pytest.approx(0.35, abs=0.1)
    assert answer.decode_tokens_per_second == pytest.approx(41.8, rel=0.02)
    assert answer.usage.completion_tokens > answer.usage.reasoning_tokens > 0
    assert answer.usage.prompt_tokens >= (answer.usage.cached_tokens or 0)


async def test_thinking_can_be_switched_off_and_length_limited(spark: Spark) -> None:
    assert not (await spark.ask("Hello", thinking=False)).reasoning
    short = await spark.ask("Hello", max_tokens=3)
    assert short.finish_reason == "length"
    assert short.usage is not None
    assert short.usage.completion_tokens == 3


async def test_the_first_request_of_a_new_engine_waits_for_its_kernels(spark: Spark) -> None:
    await spark.launch()
    await spark.clock.advance(BOOT_SECONDS + 1)
    cold = await spark.ask("ping", NEW, "new", max_tokens=3)
    warm = await spark.ask("ping", NEW, "new", max_tokens=3)
    assert cold.ttft is not None
    assert warm.ttft is not None
    assert cold.ttft > warm.ttft + 2
    await spark.clock.advance(5)
    text = await spark.text("new")
    assert '"POST /v1/chat/completions HTTP/1.1" 200 OK' in text[-1000:]


async def test_a_chat_makes_the_gpu_work(spark: Spark) -> None:
    await spark.spend(20, spark.docker.stop(SERVING_NAME))
    await spark.launch()
    await spark.clock.advance(60)
    async with aclosing(spark.api.chat(NEW, ChatRequest("new", (Message(Role.USER, "Hello"),)))) as stream:
        first = await begun(spark.clock, anext(stream))  # type: ignore[arg-type]
        await spark.clock.advance(4.0)
        assert isinstance(await first, ReasoningDelta)
        assert (await spark.gpu_now()).utilization_percent == 96
    await settle()
    assert (await spark.gpu_now()).utilization_percent == 0, "closing the stream frees the slot"


async def test_an_engine_that_ends_while_it_answers_cuts_the_reply_off(spark: Spark) -> None:
    task = asyncio.create_task(spark.ask("Hello"))
    await spark.clock.advance(2)
    await spark.docker.remove(SERVING_NAME, force=True)
    with pytest.raises(ReplyCutOff):
        await task


async def test_what_a_server_would_refuse_is_refused(spark: Spark) -> None:
    with pytest.raises(EngineUnreachable):
        await spark.ask("Hello", NEW)
    with pytest.raises(ModelNotServed, match=SERVING_NAME):
        await spark.ask("Hello", model="gpt")
    locked = replace(spec("locked"), env=(EnvVar("VLLM_API_KEY", "k"),))
    await spark.docker.start(await spark.docker.create(locked))
    await spark.clock.advance(60)
    assert await spark.api.health(NEW) is Health.OK, "health needs no key"
    with pytest.raises(ApiKeyRejected):
        await spark.api.models(NEW)
    assert await spark.api.models(Endpoint(NEW.base_url, Secret("k")))


async def test_canned_answers_prove_nothing() -> None:
    context = build_demo()
    with pytest.raises(RefusedError, match="simulated"):
        await context[Prover].run(SERVING_NAME, lambda progress: None)
    await context.close()


@given(st.text())
def test_every_question_has_an_answer_that_is_honest_and_whole(prompt: str) -> None:
    answer = canned_answer(prompt)
    assert answer == canned_answer(prompt)
    assert "demo" in answer.content
    assert "".join(tokens_of(answer.content)) == answer.content
    assert "".join(tokens_of(prompt)) == prompt


# --- determinism ----------------------------------------------------------------------------------------


async def snapshot(spark: Spark) -> object:
    return (
        spark.host.memory(),
        spark.host.memory_pressure(),
        spark.host.uptime(),
        await spark.gpu.read(),
        await spark.docker.containers(),
        [await spark.log(each.name) for each in await spark.docker.containers()],
    )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.01, 40), min_size=1, max_size=12))
def test_the_same_clock_gives_the_same_world_however_often_it_is_looked_at(pauses: list[float]) -> None:
    async def look(often: bool) -> object:
        spark = Spark(seed=3)
        await spark.launch()
        for pause in pauses:
            spark.clock.tick(pause)
            if often:
                await spark.docker.containers()
                await spark.log("new", tail=3)
                await spark.gpu.read()
                spark.memory()
        found = await snapshot(spark)
        await spark.close()
        return found

    assert asyncio.run(look(True)) == asyncio.run(look(False))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["launch", "stop", "wait"]), st.floats(0.1, 30)), max_size=8))
def test_whatever_is_done_the_pool_never_overflows(deeds: list[tuple[str, float]]) -> None:
    async def live() -> None:
        spark, made = Spark(), 0
        for deed, pause in deeds:
            if deed == "launch":
                made += 1
                await spark.launch(f"engine-{made}", 8100 + made)
            elif deed == "stop":
                await spark.spend(2, spark.docker.stop(f"engine-{made}" if made else SERVING_NAME))
            spark.clock.tick(pause)
            memory = spark.memory()
            parts = memory_breakdown(memory, await spark.gpu.read())
            assert sum(parts.sizes) == memory.total
            assert memory.free > GIB
            assert 0 < memory.available <= memory.total
            assert parts.engine_memory is not None
        await spark.close()

    asyncio.run(live())


async def test_the_seed_changes_names_and_phase_but_not_the_story() -> None:
    one, other = Spark(1), Spark(2)
    assert (await one.docker.inspect(SERVING_NAME)).id != (await other.docker.inspect(SERVING_NAME)).id
    assert await one.gpu.read() != await other.gpu.read()
    await one.close()
    await other.close()


# --- the rest -------------------------------------------------------------------------------------------


def test_ports_and_folders_of_the_simulated_host(spark: Spark) -> None:
    for port in (22, SERVING_PORT):
        assert spark.host.port_owner(port) == "another process", "an ordinary user cannot look into it"
    assert spark.host.port_owner(8000) is None
    assert spark.host.has_folder(Path("/home/spark/vllm/x"))
    spark.host.make_folders([Path("/nowhere/at/all")])
    assert not Path("/nowhere").exists(), "a demo writes nothing"
    assert isinstance(spark.host.free_disk(Path("/")), Ok)


async def test_the_real_readers_see_the_machine_and_the_processes_of_its_engines() -> None:
    clock = FakeClock()
    context = build_demo(clock=clock)
    host, vitals, doctor = context.host, context.ports.vitals, context.ports.doctor_probe
    facts = await context.docker.inspect(SERVING_NAME)
    gpu = value_of(await context.ports.gpu.read())
    assert gpu is not None
    assert gpu.processes is not None
    vitals.look()
    clock.tick(10)
    look = vitals.look()
    loads, links = value_of(look.clusters), value_of(look.links)
    assert loads is not None
    assert links is not None
    assert [(each.name, each.cpus, round(each.percent)) for each in loads] == [("X925", 10, 12), ("A725", 10, 4)]
    assert [each.name for each in links if each.up] == ["enP7s7"]
    assert host.container_of(facts.pid) == facts.id
    heaviest = value_of(vitals.processes(gpu.processes, 3))
    assert heaviest is not None
    assert (heaviest[0].pid, heaviest[0].container) == (facts.pid, facts.id)
    assert host.bare_engines() == ()
    assert (value_of(doctor.driver()), value_of(doctor.engine_processes())) == (gpu.driver, ())
    assert "--prefer" in (value_of(doctor.earlyoom()) or "")
    task = asyncio.create_task(context.docker.stop(SERVING_NAME))
    await clock.advance(20)
    await task
    assert host.container_of(facts.pid) == ""
    assert isinstance(vitals.container_memory(facts.pid), Missing)
    await context.close()


def test_keys_and_conversations_of_the_demo_are_real_files_that_end_with_it() -> None:
    context = build_demo(clock=FakeClock())
    secrets, folder = context.secrets, context.ports.get("demo_folder").path
    assert secrets.hf_token() is None
    key = secrets.new_key()
    path = secrets.env_file("new", {"VLLM_API_KEY": key})
    assert secrets.api_key(str(path)) == key
    assert str(path).startswith("/home/spark/")
    assert not path.exists()
    assert secrets.api_key("/other") is secrets.api_key(f"{path.parent}/none.env") is None
    asyncio.run(context[ConversationStore].append("one", [{"type": "began"}]))
    assert {each.name for each in folder.rglob("*.env")} == {path.name}
    assert {each.name for each in folder.rglob("*.jsonl")} == {"one.jsonl"}
    del context, secrets
    gc.collect()
    assert not folder.exists()


def test_what_a_demo_that_was_killed_has_left_is_removed_by_the_next() -> None:
    kept = DemoFolder()
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = kept.path.with_name(f"spark-tui-demo-{int(ended.stdout)}-x")
    left.mkdir()
    DemoFolder()
    assert kept.path.exists()
    assert not left.exists()


async def test_keys_of_the_demo_stay_in_memory_and_its_docker_has_them(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_person")
    secrets = spark.ports.secrets
    assert secrets.hf_token() is None
    key = secrets.new_key()
    path = secrets.env_file("new", {"VLLM_API_KEY": key})
    assert secrets.api_key(str(path))
    assert not path.exists()
    assert secrets.api_key("/other") is None
    made = await spark.docker.create(replace(spec("new"), env_files=(str(path),)))
    assert spark.world.containers[made].key == key.reveal()
    with pytest.raises(DockerError, match="cannot be read"):
        await spark.docker.create(replace(spec("other"), env_files=("/other",)))


def test_the_demos_docker_is_behind_a_socket_of_its_own_and_reads_nobodys_settings(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    environ = build_demo().ports.get("simulator").docker_environ
    folder = Path(environ["DOCKER_CONFIG"])
    assert environ["DOCKER_HOST"].startswith(f"unix://{folder}/")
    for each in (spark.ports.get("simulator").docker_environ["HOME"], spark.ports.get("demo_folder").path):
        assert not Path(each).stat().st_mode & 0o077


def test_the_data_is_small_and_its_sources_are_named() -> None:
    folder = Path(spark_tui.simulator.__file__).parent / "data"
    files = list(folder.iterdir())
    assert sum(path.stat().st_size for path in files) < 200_000
    sources = (folder / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert all(path.name in sources for path in files if path.name != "ATTRIBUTION.md")
    assert "CC BY 4.0" in sources
    assert "Django de Vreng" in sources


def test_recipes_can_be_imported_and_the_real_folders_stay_as_they_are() -> None:
    context = build_demo(clock=FakeClock())
    report = import_recipes(context[RecipeStore], SAMPLES)
    assert [each.outcome for each in report.recipes] == [ImportOutcome.IMPORTED]
    preset = context[PresetSource].load().get("qwen3.6-35b-agent")
    assert preset is not None
    assert preset.model == SERVING_MODEL
    script = import_recipes(context[RecipeStore], SAMPLES / "gemma-4-26b-shared.sh")
    assert [each.outcome for each in script.recipes] == [ImportOutcome.IMPORTED]
    assert build_demo(clock=FakeClock())[PresetSource].load().get("qwen3.6-35b-agent") is None
