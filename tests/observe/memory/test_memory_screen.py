"""The Memory screen: everything on it at every size, kept quiet, and safe against names from outside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.home.screen import HomeScreen
from spark_tui.app.wiring import build_demo
from spark_tui.base.finding import Missing, Ok, Reading, Severity, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.memory import DropResult, MemoryBreakdown, RouteKind
from spark_tui.base.host.vitals import ContainerMemory, GpuProcess, GpuReading, HostProcess, Vitals
from spark_tui.base.quantities import GIB, MIB
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory import show as present
from spark_tui.observe.memory.screen import Breakdown, MemoryScreen
from spark_tui.observe.memory.use.memory import ContainerShare, GuardStatus, MemoryDetail
from spark_tui.tui.format import UNICODE
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.graph import Graph
from tests.fakes_host import IDLE_MEMORY
from tests.kit import Kit
from tests.tui.kit import ESCAPE, MARKUP, PRESET, SIZES, Sight, kit_of, seen
from tests.tui.quiet import until

GONE = Missing("not here")


class FixedVitals:
    """A VitalsProbe of given processes."""

    def __init__(self, *found: HostProcess) -> None:
        self.found = found
        self.looks = 0

    def look(self) -> Vitals:
        return Vitals(GONE, GONE, GONE, GONE, GONE)

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        self.looks += 1
        return Ok(self.found)

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        return Ok(ContainerMemory(8 * GIB, file=3 * GIB))


ENGINE = HostProcess(77, "VLLM::EngineCor", 6 * GIB, 5 * GIB, 0, 60 * GIB)


def memory_kit(*processes: HostProcess, name: str = "qwen") -> tuple[Kit, FixedVitals]:
    """An engine that holds 60 GiB of a Spark, and these processes."""
    kit = kit_of(PRESET)
    facts = kit.docker.add_container(name, argv=("vllm", "serve", "m"), pid=77)
    kit.host.containers[77] = facts.id
    kit.host.memory_value = Ok(replace(IDLE_MEMORY, free=30 * GIB, available=40 * GIB), kit.clock.now())
    kit.gpu.value = Ok(GpuReading("NVIDIA GB10", unified=True, processes=(GpuProcess(77, 60 * GIB),)))
    vitals = FixedVitals(*(processes or (replace(ENGINE, container=facts.id),)))
    vars(kit.context.ports)["vitals"] = vitals
    return kit, vitals


async def opened(sight: Sight) -> None:
    """Memory, with its closer look."""
    await sight.until(
        lambda: value_of(sight.app.world.breakdown) is not None and bool(sight.kit.context[EngineSupervisor].views())
    )
    await sight.press("m")
    sight.on(MemoryScreen)
    await sight.until_seen("Memory by owner", "VLLM::Engine")


async def test_the_breakdown_adds_up_and_names_who_holds_what_at_every_size() -> None:
    kit, _ = memory_kit()
    async with seen(kit, SIZES[0]) as sight:
        await opened(sight)
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen("qwen 60.0")
            for word in ("engines", "apps", "driver", "droppable", "free", "available", "swap", "PSI", "60.0 GiB"):
                assert word in sight.text, size


async def test_escape_and_the_same_key_go_back_to_where_it_was_opened() -> None:
    kit, _ = memory_kit()
    async with seen(kit) as sight:
        sight.on(PresetsScreen)
        await opened(sight)
        await sight.press("escape")
        sight.on(PresetsScreen)
        await sight.press("m", "m")
        sight.on(PresetsScreen)
        await sight.press("1", "m", "escape")
        sight.on(HomeScreen)


async def test_nothing_is_read_while_it_is_hidden() -> None:
    kit, vitals = memory_kit()
    async with seen(kit) as sight:
        await opened(sight)
        await sight.press("escape")
        before = vitals.looks
        for _ in range(5):
            await kit.clock.advance(10)
            await sight.pilot.pause()
        assert vitals.looks == before


async def test_at_eighty_columns_everything_is_reached_by_scrolling() -> None:
    kit, _ = memory_kit()
    async with seen(kit, (80, 24)) as sight:
        await opened(sight)
        view = sight.app.screen.query_one(Breakdown)
        await sight.until(lambda: view.size.height == view.render().plain.count("\n") + 1)
        assert "Containers, guard" not in sight.text
        await sight.press("pagedown", "pagedown")
        await sight.until_seen("Containers, guard")
        await sight.until_seen("CPU 8.0 GiB (3.0 GiB page cache)")


async def test_the_arrows_move_in_the_processes_and_bring_them_into_view() -> None:
    kit, _ = memory_kit(*(replace(ENGINE, pid=4000 + number, name=f"worker-{number:02}") for number in range(9)))
    async with seen(kit, (80, 24)) as sight:
        await sight.until(lambda: value_of(sight.app.world.breakdown) is not None)
        await sight.press("m")
        await sight.until_seen("> worker-00".replace(">", UNICODE.cursor))
        await sight.press(*["down"] * 8)
        await sight.until_seen(f"{UNICODE.cursor} worker-08")


def test_a_machine_without_swap_says_none_and_no_zero() -> None:
    memory = replace(IDLE_MEMORY, swap_total=0, swap_free=0)
    found = MemoryBreakdown(memory.total, None, memory.total - memory.free, None, 0, None, memory.free, "n/a", "n/a")
    swap = present.memory_parts(found, memory, Ok(0.0))[-1]
    assert (swap.name, swap.figure.strip(), swap.note[:3]) == ("swap", "none", "PSI")


async def test_x_stops_the_engine_of_a_process_after_asking() -> None:
    kit, vitals = memory_kit()
    vitals.found += (replace(ENGINE, pid=5, name="Xorg", container=""),)
    async with seen(kit) as sight:
        await opened(sight)
        await sight.until_seen("Xorg")
        await sight.press("down", "x")
        sight.on(MemoryScreen)
        await sight.press("up", "x")
        sight.on(ConfirmScreen)
        assert all(each.running for each in await kit.docker.containers())


async def test_names_from_outside_are_never_markup() -> None:
    kit, _ = memory_kit(replace(ENGINE, name=f"VLLM::Engine {MARKUP}"), replace(ENGINE, pid=78, name=ESCAPE))
    async with seen(kit, (200, 50)) as sight:
        await opened(sight)
        assert "[/red][bold]not markup" in sight.text
        assert "\x1b" not in sight.text


async def test_a_driver_that_shows_nothing_is_n_a_with_its_reason_and_not_zero() -> None:
    kit, _ = memory_kit()
    kit.gpu.value = Missing("no NVIDIA driver here")
    async with seen(kit) as sight:
        await opened(sight)
        lines = [line for line in sight.text.splitlines() if "engines" in line and "n/a" in line]
        assert lines
        assert "no NVIDIA driver here" in lines[0]


async def test_the_window_of_the_history_grows_and_comes_round() -> None:
    kit, _ = memory_kit()
    async with seen(kit) as sight:
        await opened(sight)
        for name in ("Last 1 h", "Last 6 h", "Last 15 min"):
            await sight.press("minus")
            assert name in sight.text


async def test_danger_shows_on_the_strip_and_in_the_ledger() -> None:
    kit, _ = memory_kit()
    async with seen(kit) as sight:
        await opened(sight)
        kit.host.memory_value = Ok(replace(IDLE_MEMORY, free=GIB, available=GIB), kit.clock.now())
        await sight.until(lambda: sight.app.world.memory_state.severity is Severity.ERROR)
        await sight.until_seen("CRITICAL", "below the floor of 3.0", "Stop an engine")


# --- words ----------------------------------------------------------------------------------------------

STOPPED = GuardEntry(9_400.0, "stop the engine", "qwen", "1.2 GiB usable", "docker stop")
DROPPED = DropResult(
    RouteKind.SUDO,
    replace(IDLE_MEMORY, free=10 * GIB, cached=30 * GIB),
    replace(IDLE_MEMORY, free=38 * GIB, cached=2 * GIB),
    1.2,
)


@pytest.mark.parametrize(
    ("guard", "drop", "words"),
    [
        (Ok(GuardStatus(True)), None, "watching: stops an engine before memory runs out"),
        (Ok(GuardStatus(True, (STOPPED,))), None, "stop the engine: qwen: 1.2 GiB usable (docker stop)"),
        (Ok(GuardStatus(False)), None, "not running: starts with the next launch"),
        (Missing("nothing to guard"), DROPPED, "Freed 28.0 GiB"),
        (Missing("nothing to guard"), DROPPED, "free 10.0 -> 38.0 GiB, cache 30.0 -> 2.0 GiB"),
    ],
)
def test_the_guard_and_the_last_drop_in_words(guard: Reading[GuardStatus], drop: DropResult | None, words: str) -> None:
    page = present.detail_page(MemoryDetail(guard=guard), drop, drop_key="D")
    assert any(words in row.text for section in page for row in section.rows)


@pytest.mark.parametrize(
    ("known", "words"), [(Missing("Docker is not running"), "Docker is not running"), (Ok(()), "No engine")]
)
def test_engines_that_cannot_be_listed_are_unknown_and_not_none(
    known: Reading[tuple[ContainerShare, ...]], words: str
) -> None:
    first, *_ = present.detail_page(MemoryDetail(containers=known), None, drop_key="D")
    [row] = first.rows
    assert words in row.text


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    [row] = present.processes_table(MemoryDetail(processes=Ok((HostProcess(9, "x", 12 * MIB),)))).rows
    assert [cell.text for cell in row[2:5]] == ["-", "12.0 MiB", "-"]


async def test_the_history_of_before_this_program_was_opened_is_drawn() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("m")

        def drawn() -> int:
            rows = app.screen.query_one("#history", Graph).rows if app.screen.query("#history") else ()
            return sum("\u2801" <= mark <= "\u28ff" for row in rows for mark in row.text)

        # A program that has just been opened has measured two or three columns at most.
        await until(app, lambda: drawn() > 30)
