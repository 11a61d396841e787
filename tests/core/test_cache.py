"""Dropping the cache on a person's wish: which way, when not, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from spark_tui.core.cache import CacheControl, NoWayToDrop
from spark_tui.core.memory import BreakdownReader
from spark_tui.core.store import World
from spark_tui.domain.engine.container import PublishedPort
from spark_tui.domain.errors import DockerError, RefusedError, SparkError
from spark_tui.domain.host.drop_caches import TEE_COMPACT, TEE_DROP, Access, Route, RouteKind
from spark_tui.domain.host.vitals import GpuProcess, GpuReading
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Stale
from tests.core.kit import Kit
from tests.fakes_host import IDLE_MEMORY, FakeHost
from tests.fakes_ports import NoDropper

LOADED = replace(IDLE_MEMORY, free=20 * GIB, available=100 * GIB, cached=82 * GIB)
GRANTED = Access(sudo=TEE_DROP, has_sudo=True)
MEASURING = (
    "INFO 01-15 07:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 01-15 07:00:02 [gpu_model_runner.py:1] Starting to load model acme/tiny-1b...",
    "INFO 01-15 07:00:09 [default_loader.py:1] Loading weights took 6.10 seconds",
    "INFO 01-15 07:00:09 [gpu_model_runner.py:1] Model loading took 12.00 GiB memory and 7.1 seconds",
)


@dataclass
class FakeDropper(NoDropper):
    """A CacheDropper that empties the fake host's cache."""

    host: FakeHost
    allowed: Access = field(default_factory=Access)
    errors: list[SparkError] = field(default_factory=list)
    dropped: list[Route] = field(default_factory=list)
    compacted: list[Route] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def access(self) -> Access:
        return self.allowed

    async def drop(self, route: Route) -> bool:
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.dropped.append(route)
        self.empty()
        return True

    def empty(self) -> None:
        self.host.memory_value = Ok(replace(LOADED, free=101 * GIB, cached=GIB))

    async def compact(self, route: Route) -> None:
        self.compacted.append(route)


class Box:
    """The core on fakes, with a cache that is full."""

    def __init__(self, access: Access = GRANTED) -> None:
        self.kit = Kit()
        self.kit.host.memory_value = Ok(LOADED)
        self.dropper = FakeDropper(self.kit.host, access)
        core = self.kit.context
        self.control = CacheControl(
            self.dropper, self.kit.docker, self.kit.host, core.supervisor, core.store, self.kit.clock
        )

    async def engine(self, *lines: str, serving: bool = True) -> None:
        """One engine runs, and the supervisor knows it."""
        self.kit.docker.add_container("qwen", lines=lines, pid=77, ports=(PublishedPort(8000, 8000),))
        if serving:
            self.kit.api.serve()
        await self.kit.context.supervisor.look()

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.kit.context.store.world.events]


# --- the drop -------------------------------------------------------------------------------------------


async def test_a_drop_tells_what_was_released_and_that_usable_memory_is_the_same() -> None:
    box = Box()
    result = await box.control.drop()
    assert result.route is RouteKind.SUDO
    assert result.released == 81 * GIB
    assert box.told == [result.sentence]
    assert "Freed 81.0 GiB of page cache" in result.sentence
    assert "Available memory is unchanged" in result.sentence


async def test_a_way_that_fails_is_followed_by_the_next() -> None:
    # sudo lists the command as allowed, and wants a password for it all the same.
    box = Box(Access(sudo=TEE_DROP, unit=True, has_sudo=True))
    box.dropper.errors = [SparkError("no", "", detail="sudo: a password is required")]
    assert (await box.control.drop()).route is RouteKind.UNIT


async def test_when_nothing_works_every_reason_is_told_and_the_command_to_type() -> None:
    box = Box()
    box.dropper.errors = [SparkError("The cache could not be dropped (sudo).", "", detail="a password is required")]
    with pytest.raises(NoWayToDrop) as caught:
        await box.control.drop()
    assert "a password is required" in caught.value.detail
    assert "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'" in caught.value.remedy
    assert "--install" in caught.value.remedy
    assert box.told == []


async def test_without_any_permission_it_says_so() -> None:
    with pytest.raises(NoWayToDrop, match="needs root"):
        await Box(Access()).control.drop()


async def test_sudo_asks_on_the_terminal_that_the_front_end_gives() -> None:
    box, ran = Box(Access(has_sudo=True)), []

    async def terminal(argv: Sequence[str]) -> int:
        ran.append(tuple(argv))
        box.dropper.empty()
        return 0

    assert (await box.control.drop(on_terminal=terminal)).route is RouteKind.TERMINAL
    assert ran == [("sudo", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")]


async def test_a_person_who_gives_no_password_gets_no_drop() -> None:
    async def terminal(argv: Sequence[str]) -> int:
        return 1

    with pytest.raises(NoWayToDrop) as caught:
        await Box(Access(has_sudo=True)).control.drop(on_terminal=terminal)
    assert "sudo ended with exit code 1" in caught.value.detail


async def test_memory_that_cannot_be_read_is_an_error_before_anything_is_done() -> None:
    box = Box()
    box.kit.host.memory_value = Missing("/proc/meminfo: permission denied")
    with pytest.raises(SparkError, match="permission denied"):
        await box.control.drop()
    assert box.dropper.dropped == []


# --- the container --------------------------------------------------------------------------------------


async def test_a_container_is_used_only_with_consent_and_is_removed() -> None:
    box = Box(Access())
    box.kit.docker.add_image("acme/shell:1")
    with pytest.raises(NoWayToDrop):
        await box.control.drop(image="acme/shell:1")
    assert box.kit.docker.created == []
    box.kit.docker.script("acme/shell:1", (), exit_code=0)
    result = await box.control.drop(image="acme/shell:1", consent=True)
    assert result.route is RouteKind.CONTAINER
    [spec] = box.kit.docker.created
    assert not spec.privileged
    assert await box.kit.docker.containers() == ()


async def test_where_the_one_file_is_refused_a_privileged_container_is_next() -> None:
    box = Box(Access())
    box.kit.docker.add_image("acme/shell:1")
    box.kit.docker.script("acme/shell:1", ("sh: permission denied",), exit_code=0)
    box.kit.docker.fail("start", DockerError("Docker cannot start it.", ""))
    result = await box.control.drop(image="acme/shell:1", consent=True)
    assert result.route is RouteKind.PRIVILEGED
    assert [spec.privileged for spec in box.kit.docker.created] == [False, True]
    assert await box.kit.docker.containers() == ()


async def test_a_container_that_fails_tells_its_last_words() -> None:
    box = Box(Access())
    box.kit.docker.add_image("acme/none:1")
    box.kit.docker.script("acme/none:1", ("sh: can't create /drop_caches: Permission denied",), exit_code=2)
    with pytest.raises(NoWayToDrop) as caught:
        await box.control.drop(image="acme/none:1", consent=True)
    assert "Permission denied" in caught.value.detail
    assert await box.kit.docker.containers() == ()


async def test_what_an_interrupted_drop_left_is_cleared_away() -> None:
    box = Box(Access())
    box.kit.docker.add_image("acme/shell:1")
    box.kit.docker.script("acme/shell:1", (), exit_code=0)
    box.kit.docker.add_container("spark-tui-drop-caches", image="acme/shell:1")
    await box.control.drop(image="acme/shell:1", consent=True)
    assert await box.kit.docker.containers() == ()


async def test_the_image_of_an_engine_is_offered_and_a_named_one_must_be_here() -> None:
    box = Box(Access())
    await box.engine()
    plan = await box.control.plan()
    assert plan.consent is not None
    assert plan.consent.image == "vllm/vllm-openai:nightly"
    with pytest.raises(RefusedError, match="is not downloaded"):
        await box.control.plan("acme/absent:1")


# --- engines --------------------------------------------------------------------------------------------


async def test_it_warns_once_while_an_engine_serves() -> None:
    box = Box()
    await box.engine()
    assert "qwen is serving" in (await box.control.plan()).warning
    assert (await box.control.plan()).warning, "until the person has seen it"
    box.control.warned()
    assert (await box.control.plan()).warning == ""
    await box.control.drop()
    assert (await box.control.plan()).warning == ""


async def test_a_drop_is_refused_while_an_engine_measures_memory() -> None:
    box = Box()
    await box.engine(*MEASURING, serving=False)
    for attempt in (box.control.plan(), box.control.drop()):
        with pytest.raises(RefusedError, match="qwen is measuring free memory"):
            await attempt
    assert await box.control.drop_quietly() is None
    assert box.dropper.dropped == []


async def test_it_is_allowed_again_once_the_kv_cache_is_sized() -> None:
    box = Box()
    await box.engine(
        *MEASURING, "INFO 01-15 07:00:20 [gpu_worker.py:1] Available KV cache memory: 16.05 GiB", serving=False
    )
    await box.control.drop()
    assert len(box.dropper.dropped) == 1


# --- quietly --------------------------------------------------------------------------------------------


async def test_the_quiet_drop_asks_nobody_and_says_nothing() -> None:
    box = Box()
    result = await box.control.drop_quietly()
    assert result is not None
    assert result.released == 81 * GIB
    assert box.told == []
    assert await Box(Access(has_sudo=True)).control.drop_quietly() is None


async def test_two_drops_never_overlap() -> None:
    box = Box()
    box.dropper.gate = asyncio.Event()
    first = asyncio.create_task(box.control.drop())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await box.control.drop_quietly() is None, "one is under way"
    box.dropper.gate.set()
    await first
    assert len(box.dropper.dropped) == 1


@pytest.mark.parametrize(
    ("access", "expected"),
    [(Access(root=True), True), (Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT), True), (GRANTED, False)],
)
async def test_memory_is_compacted_where_that_is_granted(access: Access, expected: bool) -> None:
    box = Box(access)
    assert await box.control.compact_quietly() is expected
    assert bool(box.dropper.compacted) is expected


# --- the ledger -----------------------------------------------------------------------------------------


def test_the_ledger_of_a_world_names_its_engines() -> None:
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
