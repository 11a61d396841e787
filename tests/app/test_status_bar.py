"""The status bar: the memory to scale, the machine's figures by worth, what is under way, and only changed cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from textual.content import Content

from spark_tui.app.engines_frame import activities
from spark_tui.base.finding import AlarmId, Finding, Missing, Ok, Severity
from spark_tui.base.host.memory import EngineShare, MemoryBreakdown
from spark_tui.base.host.vitals import ClusterLoad, DiskRate, GpuReading, HostIdentity, Throttle, Throttled, Vitals
from spark_tui.base.jobs import Activity, JobView, Step, StepState
from spark_tui.base.quantities import GIB
from spark_tui.base.store import World
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadRequest, FileProgress
from spark_tui.observe.engines.show.activity import engine_counts, engine_statuses
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.format import ASCII, UNICODE
from spark_tui.tui.widgets.bars import ActivityLine, TopBar
from spark_tui.tui.widgets.line import changed_cells
from spark_tui.tui.widgets.memory_strip import MemoryStrip, apportion
from tests.fakes_host import IDLE_MEMORY
from tests.tui.kit import QWEN, kit_of, seen

HOSTILE = "[red]qwen[/]\x1b[31m"


@given(st.lists(st.integers(0, 2**40), max_size=6), st.integers(0, 400))
def test_the_cells_always_sum_to_the_width(sizes: list[int], cells: int) -> None:
    counts = apportion(sizes, cells)
    assert sum(counts) == (cells if sum(sizes) else 0)
    assert all(count >= 0 for count in counts)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_what_is_there_is_seen(sizes: list[int], cells: int) -> None:
    assert all(count >= 1 for count in apportion(sizes, cells))


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_a_part_is_off_by_no_more_than_the_cells_lent_to_small_ones(sizes: list[int], cells: int) -> None:
    total = sum(sizes)
    for size, count in zip(sizes, apportion(sizes, cells), strict=True):
        if total:
            assert abs(count - size * cells / total) <= len(sizes)


# --- memory ---------------------------------------------------------------------------------------------

PARTS = MemoryBreakdown(
    122 * GIB,
    (EngineShare(HOSTILE, 56 * GIB, (1,), "a"), EngineShare("gpt-oss-20b", 29 * GIB, (2,), "b")),
    apps=9 * GIB, driver=None, cache=GIB, droppable=6 * GIB, free=21 * GIB,
)  # fmt: skip


def strip(severity: Severity = Severity.OK, parts: MemoryBreakdown = PARTS) -> MemoryStrip:
    made = MemoryStrip(ASCII)
    made.memory = Ok(IDLE_MEMORY)
    made.breakdown = Ok(parts)
    made.memory_state = Finding("memory", severity, "")
    return made


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_strip_is_one_line_with_the_engines_by_name_and_the_guards_floor(width: int) -> None:
    line = strip().say(width)
    assert "\n" not in line.plain
    assert line.cell_length == width
    assert "[red]qwen[/]" in line.plain or width < 80, "text from outside is never markup"
    assert "\x1b" not in line.plain
    assert line.plain.index("#") < line.plain.index("=") < line.plain.index(":"), "parts differ in shape"
    assert "!" in line.plain[-60:]
    for words in {200: ("gpt-oss-20b 29.0", "apps 9.0", "cache 7", "free 21.0"), 80: ("29.0", "free")}.get(width, ()):
        assert words in line.plain


def test_what_the_driver_does_not_report_is_in_use_and_belongs_to_no_engine() -> None:
    said = strip(parts=replace(PARTS, engines=None, apps=94 * GIB)).say(200).plain
    assert "in use 94.0" in said
    assert "apps" not in said


def test_memory_that_cannot_be_read_says_why() -> None:
    made = strip()
    made.memory = made.breakdown = Missing("/proc/meminfo: permission denied")
    assert "n/a: /proc/meminfo: permission denied" in made.say(80).plain


def test_the_colour_of_what_is_available_follows_the_judgement_and_not_a_percentage() -> None:
    styles = {}
    for severity in (Severity.OK, Severity.WARNING, Severity.ERROR):
        said = strip(severity).say(100)
        [span] = [span for span in said.spans if said.plain[span.start : span.end] == "116.0"]
        styles[severity] = str(span.style)
    assert (styles[Severity.OK], "error" in styles[Severity.ERROR]) == ("bold", True)
    assert len(set(styles.values())) == 3


async def test_the_frame_takes_three_lines_with_the_tabs_at_every_size_that_a_terminal_takes_on() -> None:
    async with seen(kit_of(QWEN), (120, 36)) as sight:
        for size in ((80, 24), (200, 50), (100, 30), (80, 24), (120, 36)):
            await sight.pilot.resize_terminal(*size)
            await sight.pilot.pause()
            assert sight.app.screen.query_one("#body").region.y == 3, size


# --- the machine ----------------------------------------------------------------------------------------


def top() -> TopBar:
    bar = TopBar(UNICODE, demo=False, read_only=False)
    bar.identity = HostIdentity("spark-7f3a", "DGX Spark")
    bar.gpu = Ok(GpuReading("NVIDIA GB10", 96, 45.4, 71, 2418, unified=True))
    load = (ClusterLoad("X925", 10, 20.0), ClusterLoad("A725", 10, 4.0))
    bar.vitals = Ok(Vitals(clusters=Ok(load), disks=Ok((DiskRate("nvme0n1", 1.3e9, 0.1e9, 50.0),))))
    bar.counts = engine_counts(World(slices={ENGINES: Ok(())}), {})
    return bar


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [
        (160, ("DGX Spark", "GPU 96%", "━", "45 W", "71 C", "2.4 GHz", "CPU 12%", "disk 1.4 GB/s"), ()),
        (80, ("spark-7f3a", "GPU 96%", "45 W", "71 C", "CPU 12%"), ("DGX Spark", "GHz")),
        (60, ("spark-7f3a", "GPU 96%", "no engine"), ("disk",)),
    ],
)
def test_what_goes_first_where_it_is_narrow_is_worth_least(
    width: int, there: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    line = top().say(width)
    assert line.cell_length <= width
    assert all(word in line.plain for word in there), line.plain
    assert not any(word in line.plain for word in gone), line.plain


def test_noise_of_a_quiet_machine_is_not_shown() -> None:
    bar = top()
    before = bar.say(160).plain
    bar.gpu = Ok(GpuReading("NVIDIA GB10", 96, 46.1, 71, 2441, unified=True))
    bar.vitals = Ok(Vitals(clusters=Ok((ClusterLoad("CPU", 20, 14.0),)), disks=Ok((DiskRate("a", 1.41e9, 0, 9.0),))))
    assert bar.say(160).plain == before


def test_what_holds_the_clock_down_is_beside_it() -> None:
    held = (Throttled(Throttle.THERMAL, 0.8), Throttled(Throttle.POWER_CAP, 0.2))
    for throttled, words in ((None, False), ((), False), (held, True)):
        bar = top()
        bar.gpu = Ok(GpuReading("NVIDIA GB10", 96, 45.0, 88, 1400, unified=True, throttled=throttled))
        assert ("clock: thermal" in bar.say(120).plain) is words


def test_a_gpu_that_cannot_be_read_says_why() -> None:
    bar = top()
    bar.gpu = Missing("NVML: driver not loaded")
    assert "GPU n/a" in bar.say(80).plain
    assert "NVML: driver not loaded" in bar.say(160).plain


# --- what is under way ----------------------------------------------------------------------------------


def world_of(*jobs: JobView, downloads: tuple[Download, ...] = ()) -> World:
    return World(jobs=jobs, slices={DOWNLOADS: Ok(downloads)})


def download(repo: str, preset: str = "", phase: DownloadPhase = DownloadPhase.DOWNLOADING) -> Download:
    files = (FileProgress("a", 100 * GIB, 16 * GIB),)
    return Download(phase, files, id=repo, request=DownloadRequest(repo, preset=preset), speed=GIB)


FETCH = Step("fetch", "Fetch model", StepState.RUNNING, "", 0.16, downloads=("org/model", "org/drafter"))
FETCHING = JobView("1", "gpt-oss", (FETCH,))
LOADING = JobView("2", "qwen", (Step("pull", "Pull image", StepState.RUNNING, "", 0.41),))


def test_launches_and_downloads_stand_with_their_screen_percentage_and_time_left() -> None:
    world = world_of(LOADING, downloads=(download("org/Qwen3-8B"), download("org/done", phase=DownloadPhase.DONE)))
    found = activities(world, lambda _: None)
    assert [(each.show, each.words) for each in found] == [
        ("show_home", "qwen pulling 41%"),
        ("show_models", "download Qwen3-8B 16% ~1m20s"),
    ]


def test_what_a_launch_downloads_is_not_said_twice() -> None:
    world = world_of(FETCHING, downloads=(download("org/model", preset="gpt-oss"), download("org/other")))
    words = [each.words for each in activities(world, lambda _: None)]
    assert words == ["gpt-oss fetching 16% ~1m20s", "download other 16% ~1m20s"]


def test_of_two_launches_that_download_each_has_its_own_and_one_that_both_need_is_of_both() -> None:
    second = JobView("2", "coder", (replace(FETCH, progress=0.5, downloads=("org/coder", "org/drafter")),))
    slow = replace(download("org/coder"), speed=GIB / 2)
    fetched = (download("org/model", preset="gpt-oss"), slow, download("org/third", preset="third"))
    words = [each.words for each in activities(world_of(FETCHING, second, downloads=fetched), lambda _: None)]
    assert words == ["gpt-oss fetching 16% ~1m20s", "coder fetching 50% ~2m50s", "download third 16% ~1m20s"]
    both = world_of(FETCHING, second, downloads=(download("org/drafter"),))
    words = [each.words for each in activities(both, lambda _: None)]
    assert words == ["gpt-oss fetching 16% ~1m20s", "coder fetching 50% ~1m20s"]


def test_nothing_under_way_is_nothing() -> None:
    done = JobView("1", "gpt-oss", state=StepState.DONE)
    assert activities(world_of(done), lambda _: None) == ()


def test_engines_are_counted_by_their_words() -> None:
    failed = JobView("3", "broken", state=StepState.FAILED)
    world = world_of(LOADING, replace(LOADING, title="other"), failed)
    counts = engine_counts(world, engine_statuses(world))
    assert [cell.text for cell in counts] == ["2 pulling", "1 failed"]
    alone = world_of(LOADING)
    assert [cell.text for cell in engine_counts(alone, engine_statuses(alone))] == ["qwen pulling 41%"]


def line_of(*found: Activity, alarms: tuple[Finding, ...] = ()) -> ActivityLine:
    line = ActivityLine(ASCII)
    line.activities, line.alarms = found, alarms
    return line


MANY = tuple(Activity("show_models", f"m{n}", f"download model-{n} 16%", 70.0) for n in range(9))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_worst_alarm_comes_first_and_what_has_no_room_is_counted(width: int) -> None:
    worst = Finding(AlarmId.STALL, Severity.ERROR, "no token for 2m", remedy="Restart it.", subject=HOSTILE)
    other = Finding(AlarmId.LEAK, Severity.WARNING, "2.0 GiB in 1 file", remedy="Remove it.")
    alone, both = line_of(alarms=(worst, other)).say(width), line_of(*MANY, alarms=(worst,)).say(width)
    assert alone.plain.startswith(" ! [red]qwen[/]: no token for 2m  Restart it.")
    assert alone.plain.endswith("+1 more")
    assert both.plain.endswith("more")
    assert max(alone.cell_length, both.cell_length) <= width
    assert "\x1b" not in alone.plain + both.plain


async def test_the_activity_line_is_there_while_something_is_under_way() -> None:
    async with seen(kit_of(QWEN)) as sight:
        assert not sight.app.screen.query_one(ActivityLine).display
        sight.kit.context.store.update(jobs=(LOADING,))
        await sight.until_seen("1 qwen pulling 41%")
        await sight.pilot.click(ActivityLine, offset=(5, 0))
        assert sight.app.current_mode == "home", "a click leads to the details"
        sight.kit.context.store.update(jobs=())
        await sight.until(lambda: not sight.app.screen.query_one(ActivityLine).display)


# --- what is repainted ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "cells"),
    [
        ("GPU 96%  51 W", "GPU 96%  52 W", (10, 1)),
        ("GPU 96%  51 W", "GPU 6%  51 W", (4, 9)),
        ("GPU", "GPU 96%", (3, 4)),
        ("weights 1 GiB", "weights 2 GiB", (8, 1)),
    ],
)
def test_only_changed_cells_are_repainted(old: str, new: str, cells: tuple[int, int]) -> None:
    region = changed_cells(Content(new), Content(old), 3)
    assert (region.x, region.width, region.y, region.height) == (*cells, 3, 1)


@given(st.text("ab ", max_size=12), st.text("ab ", max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_every_cell_that_differs_is_repainted(old: str, new: str, one: int, other: int) -> None:
    """Colours count too."""
    first, second = Content(old).stylize("red", 0, one), Content(new).stylize("red", 0, other)
    region = changed_cells(second, first, 0)
    for x in range(max(len(old), len(new))):
        before, after = first[x : x + 1], second[x : x + 1]
        if not before.is_same(after):
            assert region.x <= x < region.right
