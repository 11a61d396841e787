"""Freeing the cache on request: which way, when not, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.errors import DockerError, RefusedError, SparkError
from spark_tui.base.finding import Missing, Ok, Stale
from spark_tui.base.host.memory import TEE_COMPACT, TEE_DROP, Access, RouteKind
from spark_tui.base.host.vitals import GpuProcess, GpuReading
from spark_tui.base.quantities import GIB
from spark_tui.base.store import World
from spark_tui.observe.engines.use.collectors import BreakdownReader
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory.use.memory import CacheControl, NoWayToDrop
from tests.fakes_host import IDLE_MEMORY, FakeDropper
from tests.kit import Kit

LOADED = replace(IDLE_MEMORY, free=20 * GIB, available=100 * GIB, cached=82 * GIB)
GRANTED = Access(sudo=TEE_DROP, has_sudo=True)
SHELL = "acme/shell:1"
MEASURING = (
    "INFO 01-15 07:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 01-15 07:00:02 [gpu_model_runner.py:1] Starting to load model acme/tiny-1b...",
    "INFO 01-15 07:00:09 [default_loader.py:1] Loading weights took 6.10 seconds",
    "INFO 01-15 07:00:09 [gpu_model_runner.py:1] Model loading took 12.00 GiB memory and 7.1 seconds",
)
SIZED = "INFO 01-15 07:00:20 [gpu_worker.py:1] Available KV cache memory: 16.05 GiB"


class Spark:
    """The core on fakes, with a full cache and one image that has a shell."""

    def __init__(self, access: Access = GRANTED) -> None:
        self.kit = Kit()
        self.docker, core = self.kit.docker, self.kit.context
        self.kit.host.memory_value = Ok(LOADED)
        self.docker.add_image(SHELL)
        self.docker.script(SHELL, (), exit_code=0)
        self.dropper = FakeDropper(self.kit.host, access)
        self.control = CacheControl(
            self.dropper, self.docker, self.kit.host, core[EngineSupervisor], core.store, self.kit.clock
        )

    async def engine(self, *lines: str, serving: bool = True) -> None:
        """One engine runs, and the supervisor knows it."""
        self.docker.add_container("qwen", lines=lines, pid=77, ports=(PublishedPort(8000, 8000),))
        if serving:
            self.kit.api.serve()
        await self.kit.context[EngineSupervisor].look()

    @property
    def events(self) -> list[str]:
        return [event.text for event in self.kit.context.store.world.events]


# --- the drop -------------------------------------------------------------------------------------------


async def test_a_drop_reports_what_was_released_and_a_quiet_one_does_not() -> None:
    spark = Spark()
    result = await spark.control.drop()
    assert (result.route, result.released) == (RouteKind.SUDO, 81 * GIB)
    assert spark.events == [result.sentence]
    assert spark.kit.context.store.world.last_drop == result
    spark = Spark()
    quiet = await spark.control.drop_quietly()
    assert quiet is not None
    assert (quiet.released, spark.events) == (81 * GIB, [])
    assert await Spark(Access(has_sudo=True)).control.drop_quietly() is None


async def test_a_way_that_fails_is_followed_by_the_next() -> None:
    # sudo lists the command as allowed, and wants a password for it nevertheless.
    spark = Spark(Access(sudo=TEE_DROP, unit=True, has_sudo=True))
    spark.dropper.errors = [SparkError("no", "", detail="sudo: a password is required")]
    assert (await spark.control.drop()).route is RouteKind.UNIT


async def test_when_nothing_works_every_reason_is_given_and_the_command_to_type() -> None:
    spark = Spark()
    spark.dropper.errors = [SparkError("The cache could not be dropped (sudo).", "", detail="a password is required")]
    with pytest.raises(NoWayToDrop) as caught:
        await spark.control.drop()
    assert "a password is required" in caught.value.detail
    assert "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'" in caught.value.remedy
    assert spark.events == []
    with pytest.raises(NoWayToDrop, match="needs root"):
        await Spark(Access()).control.drop()


@pytest.mark.parametrize("code", [0, 1])
async def test_sudo_asks_on_the_terminal_that_the_front_end_gives(code: int) -> None:
    spark, ran = Spark(Access(has_sudo=True)), []

    async def terminal(argv: Sequence[str]) -> int:
        ran.append(tuple(argv))
        return code

    if code:
        with pytest.raises(NoWayToDrop) as caught:
            await spark.control.drop(on_terminal=terminal)
        assert "sudo ended with exit code 1" in caught.value.detail
    else:
        assert (await spark.control.drop(on_terminal=terminal)).route is RouteKind.TERMINAL
    assert ran == [("sudo", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")]


async def test_memory_that_cannot_be_read_is_an_error_before_anything_is_done() -> None:
    spark = Spark()
    spark.kit.host.memory_value = Missing("/proc/meminfo: permission denied")
    with pytest.raises(SparkError, match="permission denied"):
        await spark.control.drop()
    assert spark.dropper.dropped == []


async def test_two_drops_never_overlap() -> None:
    spark = Spark()
    spark.dropper.gate = asyncio.Event()
    first = asyncio.create_task(spark.control.drop())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await spark.control.drop_quietly() is None, "one is under way"
    spark.dropper.gate.set()
    await first
    assert len(spark.dropper.dropped) == 1


@pytest.mark.parametrize(
    ("access", "expected"),
    [(Access(root=True), True), (Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT), True), (GRANTED, False)],
    ids=["root", "granted", "not-granted"],
)
async def test_memory_is_compacted_where_that_is_granted(access: Access, expected: bool) -> None:
    spark = Spark(access)
    assert await spark.control.compact_quietly() is expected
    assert bool(spark.dropper.compacted) is expected


# --- the container --------------------------------------------------------------------------------------


async def test_a_container_is_used_only_with_consent_and_is_removed() -> None:
    spark = Spark(Access())
    with pytest.raises(NoWayToDrop):
        await spark.control.drop(image=SHELL)
    assert spark.docker.created == []
    spark.docker.add_container("spark-tui-drop-caches", image=SHELL)  # left by an interrupted drop
    result = await spark.control.drop(image=SHELL, consent=True)
    assert result.route is RouteKind.CONTAINER
    assert [spec.privileged for spec in spark.docker.created] == [False]
    assert await spark.docker.containers() == ()


async def test_where_the_one_file_is_refused_a_privileged_container_is_next() -> None:
    spark = Spark(Access())
    spark.docker.fail("start", DockerError("Docker cannot start it.", ""))
    result = await spark.control.drop(image=SHELL, consent=True)
    assert result.route is RouteKind.PRIVILEGED
    assert [spec.privileged for spec in spark.docker.created] == [False, True]
    assert await spark.docker.containers() == ()


async def test_a_container_that_fails_gives_its_last_lines() -> None:
    spark = Spark(Access())
    spark.docker.script(SHELL, ("sh: can't create /drop_caches: Permission denied",), exit_code=2)
    with pytest.raises(NoWayToDrop) as caught:
        await spark.control.drop(image=SHELL, consent=True)
    assert "Permission denied" in caught.value.detail
    assert await spark.docker.containers() == ()


async def test_the_image_of_an_engine_is_offered_and_a_named_one_must_be_downloaded() -> None:
    spark = Spark(Access())
    await spark.engine()
    plan = await spark.control.plan()
    assert plan.consent is not None
    assert plan.consent.image == "vllm/vllm-openai:nightly"
    with pytest.raises(RefusedError, match="is not downloaded"):
        await spark.control.plan("acme/absent:1")


# --- engines --------------------------------------------------------------------------------------------


async def test_it_warns_once_while_an_engine_serves() -> None:
    spark = Spark()
    await spark.engine()
    assert "qwen is serving" in (await spark.control.plan()).warning
    assert (await spark.control.plan()).warning, "until the person has seen it"
    spark.control.warned()
    assert (await spark.control.plan()).warning == ""
    await spark.control.drop()
    assert (await spark.control.plan()).warning == ""


@pytest.mark.parametrize(("lines", "refused"), [(MEASURING, True), ((*MEASURING, SIZED), False)], ids=["yes", "sized"])
async def test_a_drop_is_refused_while_an_engine_measures_memory(lines: tuple[str, ...], refused: bool) -> None:
    spark = Spark()
    await spark.engine(*lines, serving=False)
    if refused:
        for attempt in (spark.control.plan(), spark.control.drop()):
            with pytest.raises(RefusedError, match="qwen is measuring free memory"):
                await attempt
        assert await spark.control.drop_quietly() is None
    else:
        await spark.control.drop()
    assert len(spark.dropper.dropped) == (not refused)


# --- the breakdown --------------------------------------------------------------------------------------


def test_the_breakdown_of_a_world_names_its_engines() -> None:
    kit = Kit()
    facts = kit.docker.add_container("qwen", pid=77)
    kit.host.containers = {77: facts.id}
    gpu = GpuReading("NVIDIA GB10", unified=True, processes=(GpuProcess(77, 3 * GIB), GpuProcess(9, GIB)))
    reader = BreakdownReader(kit.host)
    found = reader.read(World(memory=Ok(replace(IDLE_MEMORY, free=100 * GIB), 5.0), gpu=Ok(gpu)))
    assert isinstance(found, Ok)
    assert [(share.container, share.memory) for share in found.value.engines or ()] == [(facts.id, 3 * GIB), ("", GIB)]
    assert reader.read(World()) == Missing("not read yet")
    stale = reader.read(World(memory=Stale(IDLE_MEMORY, 5.0, "late"), gpu=Missing("no NVIDIA GPU here")))
    assert isinstance(stale, Stale)
    assert stale.value.engines is None
