"""The unified memory, held against every memory reading of real GB10 machines that we have."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.finding import Missing, Ok, Reading, Stale
from spark_tui.base.host.memory import (
    IDLE_DRIVER_BYTES,
    EngineShare,
    MemInfo,
    container_id,
    memory_breakdown,
    parse_meminfo,
    steady,
)
from spark_tui.base.host.vitals import GpuProcess, GpuReading, engine_memory
from spark_tui.base.quantities import GIB, KIB, MIB
from tests.cases import all_cases
from tests.gb10_fixtures import GB10, TOTAL_KB, rows, snapshot

IDLE = Ok(GpuReading("NVIDIA GB10", unified=True, processes=()))
A_ID, B_ID = "a" * 64, "b" * 64


def gpu(*processes: GpuProcess, unified: bool = True) -> Ok[GpuReading]:
    return Ok(GpuReading("NVIDIA GB10", unified=unified, processes=processes))


# --- reading --------------------------------------------------------------------------------------------


def test_a_loaded_spark_is_read_to_the_byte() -> None:
    mem = parse_meminfo(snapshot("A"))
    assert mem.total == 127_535_224 * KIB
    assert mem.free == 4_510_768 * KIB
    assert mem.available == 23_135_528 * KIB
    assert mem.cache == (77_328 + 20_448_480 + 231_480 - 755_460) * KIB, (
        "shared memory is counted in Cached and is none"
    )
    assert mem.in_use == mem.total - mem.free - mem.cache
    assert mem.used == mem.total - mem.available
    assert mem.swap_used == (16_777_212 - 16_723_228) * KIB
    assert mem.droppable is None, "without Active(file) nobody knows"


def test_kreclaimable_counts_before_sreclaimable() -> None:
    both = snapshot("C") + "SReclaimable: 1 kB\n"
    assert parse_meminfo(both).reclaimable == 1_500_000 * KIB
    assert parse_meminfo(snapshot("A")).reclaimable == 231_480 * KIB


def test_a_whole_file_of_a_real_kernel_is_read() -> None:
    mem = parse_meminfo((GB10 / "meminfo_whole_x86.txt").read_text(encoding="utf-8"))
    assert mem.droppable is not None
    assert 0 < mem.droppable <= mem.cache + (mem.shmem or 0)
    assert mem.allocatable == mem.available, "no huge pages are reserved there"
    assert mem.huge_page == 2 * MIB


def test_reserved_huge_pages_are_all_that_cuda_can_get() -> None:
    text = snapshot("A") + "HugePages_Total:      100\nHugePages_Free:        40\nHugepagesize:       2048 kB\n"
    mem = parse_meminfo(text)
    assert mem.allocatable == 40 * 2 * MIB
    assert mem.available == 23_135_528 * KIB, "the kernel's own figure stays what it is"


@pytest.mark.parametrize("absent", ["MemTotal", "MemFree", "MemAvailable"])
def test_without_a_needed_field_it_says_which(absent: str) -> None:
    text = "\n".join(line for line in snapshot("A").splitlines() if not line.startswith(absent))
    with pytest.raises(ValueError, match=absent):
        parse_meminfo(text)


@all_cases(
    "line",
    [
        "MemFree: 999",  # no unit: nothing is guessed
        "MemFree: 999 MB",
        "MemFree: -5 kB",
        "MemFree: ² kB",
        "MemFree: " + "9" * 5000 + " kB",
        "MemFree:",
        "MemFree",
        "MemFree: 1 kB kB",
        "MemFree: 0x10 kB",
        "memfree: 1 kB",
        ": 1 kB",
        "\x00\xff garbage",
    ],
)
def test_a_line_that_is_no_size_changes_nothing(line: str) -> None:
    assert parse_meminfo(snapshot("A") + line + "\n") == parse_meminfo(snapshot("A"))
    assert parse_meminfo(line + "\n" + snapshot("A")) == parse_meminfo(snapshot("A"))


def test_a_container_that_says_more_is_free_than_there_is_is_cut_to_the_total() -> None:
    mem = parse_meminfo("MemTotal: 1000 kB\nMemFree: 5000 kB\nMemAvailable: 9000 kB\n")
    assert (mem.free, mem.available, mem.in_use) == (mem.total, mem.total, 0)


_FIELD = st.sampled_from(["MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem", "Active(file)", "Inactive(file)"])
_LINE = st.builds("{}: {}{}".format, _FIELD, st.integers(-5, 10**30), st.sampled_from([" kB", "", " MB", "kB"]))


@given(st.text() | st.lists(_LINE).map("\n".join))
def test_no_text_raises_anything_but_a_sentence(text: str) -> None:
    try:
        parse_meminfo(text)
    except ValueError as error:
        assert "/proc/meminfo has no" in str(error)


# --- who holds it: the samples ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A capture, and what its breakdown must be, kB as read by a person; None: not told apart."""

    letter: str
    nvml_mib: int | None
    free: int
    cache: int
    engines: int | None
    apps: int
    driver: int | None
    usable: int


SAMPLES = (
    # Three services, NVML sum 84713 MiB. Cache: Buffers + Cached + SReclaimable - Shmem.
    Sample("A", 84_713, 4_510_768, 20_001_828, 86_746_112, 16_276_516, None, 23_135_528),
    # Engine loaded; neither Cached nor AnonPages published: all but free is in use. CmaFree 69320 is not usable.
    Sample("B", None, 1_234_567, 0, None, 126_300_517, None, 14_316_772),
    # Desktop only: 127535084 - 126120000 = 1415084 kB that only the driver can hold (the facts say 1.35 GiB).
    Sample("C", 0, 102_000_000, 18_510_000, 0, 5_610_000, 1_415_084, 120_000_000),
    # Idle, warm cache; only Buffers published.
    Sample("D", None, 66_684_848, 1_690_660, None, 59_159_576, None, 102_010_424),
    # Free is almost all CMA: of 9 GiB available half a GiB is usable.
    Sample("F", None, 9_437_184, 0, None, 118_069_248, None, 524_288),
    # Older firmware, idle.
    Sample("H", 0, 118_621_120, 0, 0, 6_892_600, None, 120_425_308),
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.letter)
def test_the_breakdown_of_every_captured_meminfo(sample: Sample) -> None:
    mem = parse_meminfo(snapshot(sample.letter))
    told: Reading[GpuReading] = Missing("not captured")
    if sample.nvml_mib is not None:
        told = gpu(GpuProcess(7, sample.nvml_mib * MIB)) if sample.nvml_mib else IDLE
    found = memory_breakdown(mem, told)
    whole = (found.free, found.cache + (found.droppable or 0), found.engine_memory, found.apps, found.driver)
    wanted = (sample.free, sample.cache, sample.engines, sample.apps, sample.driver)
    assert [size and size / KIB for size in whole] == [size and float(size) for size in wanted]
    assert mem.usable == sample.usable * KIB
    assert sum(found.sizes) == found.total


@pytest.mark.parametrize("letter", ["E", "G"])
def test_a_capture_without_memfree_is_no_breakdown_and_says_so(letter: str) -> None:
    with pytest.raises(ValueError, match="MemFree"):
        parse_meminfo(snapshot(letter))


def test_the_watchdog_incident_has_its_driver_memory_when_it_is_completed() -> None:
    # Capture E lacks MemFree, MemAvailable and Cached; its heading gives 1270 MiB, 8342 MiB and 5.7 GiB of file pages.
    file_pages = int(5.7 * GIB) // KIB
    rest = f"MemFree: {1270 * 1024} kB\nMemAvailable: {8342 * 1024} kB\nCached: {file_pages + 187_392} kB\n"
    mem = parse_meminfo(snapshot("E") + rest + "SReclaimable: 2158744 kB\n")
    assert mem.unaccounted is not None
    assert 92 * GIB < mem.unaccounted < 97 * GIB, "what no category accounts for is CUDA's"
    assert memory_breakdown(mem, IDLE).driver == mem.unaccounted, "nobody lives who holds it: dead contexts"
    assert memory_breakdown(mem, IDLE).orphaned == mem.unaccounted - IDLE_DRIVER_BYTES


def test_the_fleet_probe_of_an_idle_spark() -> None:
    # MemTotal 127532364, MemAvailable 123000000 kB, no MemFree in that probe.
    text = (GB10 / "hosts_probe_full.txt").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="MemFree"):
        parse_meminfo(text)
    mem = parse_meminfo(text + "MemFree: 120000000 kB\n")
    assert mem.used == (127_532_364 - 123_000_000) * KIB


@pytest.mark.parametrize(
    ("line", "in_use_gib", "cache_gib"),
    [  # total, used, free, shared, buff/cache, available as `free -h` prints them; used is total - available there
        ("idle", 2.2, 2.4),
        ("after downloads", 3.0, 91.0),
        ("loaded", 71.0, 25.0),
    ],
)
def test_free_h_of_three_machines_agrees(line: str, in_use_gib: float, cache_gib: float) -> None:
    text = (GB10 / "free_h.txt").read_text(encoding="utf-8").replace(",", ".")
    index = ("idle", "after downloads", "loaded").index(line)
    words = [found.split()[1:] for found in text.splitlines() if found.startswith("Mem:")][index]
    units = {"Gi": GIB, "Mi": MIB}
    total, _, free, _, cached, available = (int(float(word[:-2]) * units[word[-2:]]) for word in words)
    found = memory_breakdown(MemInfo(total=total, free=free, available=available, cached=cached), IDLE)
    assert found.apps / GIB == pytest.approx(in_use_gib, abs=1.1), "free rounds to whole GiB"
    assert (found.cache + (found.droppable or 0)) / GIB == pytest.approx(cache_gib, abs=0.1)


def test_what_a_load_adds_is_what_memavailable_loses() -> None:
    # nvtop #449: a load of 34.37 GiB; used by the pool's breakdown is what nvtop shows within 0.06 GiB.
    for row in rows("nvtop_vs_meminfo.csv"):
        available = TOTAL_KB * KIB - int(float(row["memtotal_minus_available_gib"]) * GIB)
        mem = MemInfo(total=TOTAL_KB * KIB, free=available, available=available)
        assert mem.used / GIB == pytest.approx(float(row["nvtop_used_gib"]), abs=0.06)


def test_gpud_and_sparkstat_agree() -> None:
    text = (GB10 / "gpud_log.txt").read_text(encoding="utf-8")
    keys = ("total_bytes", "used_bytes", "free_bytes")
    total, used, free = (int(re.search(rf'"{key}":(\d+)', text)[1]) for key in keys)  # type: ignore[index]
    mem = MemInfo(total=total, free=free, available=total - used, cached=total - used - free)
    assert (memory_breakdown(mem, IDLE).apps, mem.used) == (used, used)
    # sparkstat: 65.5 of 121.7 GiB used, one engine of 62.2 GiB.
    text = (GB10 / "sparkstat_output.txt").read_text(encoding="utf-8")
    in_use, whole = map(float, re.search(r"([\d.]+)GiB / ([\d.]+)GiB", text).groups())  # type: ignore[union-attr]
    engine = int(float(re.search(r"VLLM::EngineCore\s+([\d.]+)GiB", text)[1]) * GIB)  # type: ignore[index]
    left = int((whole - in_use) * GIB)
    found = memory_breakdown(
        MemInfo(total=int(whole * GIB), free=left, available=left), gpu(GpuProcess(62_928, engine))
    )
    assert (found.engine_memory or 0) / GIB == pytest.approx(62.2, abs=0.01)
    assert found.apps / GIB == pytest.approx(3.3, abs=0.01)


def test_a_container_s_cgroup_is_never_part_of_the_breakdown() -> None:
    # gb10-services: cgroup and NVML of one container overlap nowhere, and 40.5 GiB of CUDA stand in no cgroup.
    table = [row for row in rows("cgroup_vs_nvml.csv") if row["cgroup_memory_current_gib"] != "not found"]
    processes = [GpuProcess(pid, int(float(row["nvml_gib"]) * GIB)) for pid, row in enumerate(table, 1)]
    mem = parse_meminfo(snapshot("A"))
    found = memory_breakdown(mem, gpu(*processes))
    assert (found.engine_memory or 0) / GIB == pytest.approx(40.5 + 21.9, abs=0.01)
    assert found.apps > (8.2 + 2.2) * GIB, "what the cgroups count is in the applications"


def test_the_page_cache_experiment_moves_cache_and_nothing_else() -> None:
    # A 60 GiB file written and deleted on a GB10: MemAvailable stays, what CUDA calls free moves by the file.
    readings = re.findall(
        r"MemFree=\s*([\d.]+)\s+MemAvailable=\s*([\d.]+)\s+Cached=\s*([\d.]+)",
        (GB10 / "uma_experiment_pagecache.txt").read_text(encoding="utf-8"),
    )
    sizes = [[int(float(word) * GIB) for word in words] for words in readings]
    mems = [MemInfo(total=int(121.69 * GIB), free=f, available=a, cached=c) for f, a, c in sizes]
    before, after, later = (memory_breakdown(mem, IDLE) for mem in mems)
    assert (after.cache - before.cache) / GIB == pytest.approx(60.0, abs=0.01)
    assert abs(mems[1].used - mems[0].used) < GIB // 2
    assert abs(after.apps - before.apps) < 2 * GIB
    assert abs(later.apps - before.apps) < GIB // 10


# --- engines --------------------------------------------------------------------------------------------


def test_processes_are_mapped_to_their_containers() -> None:
    mem = MemInfo(total=100 * GIB, free=20 * GIB, available=30 * GIB)
    found = memory_breakdown(
        mem,
        gpu(GpuProcess(11, 30 * GIB), GpuProcess(12, 10 * GIB), GpuProcess(13, 5 * GIB), GpuProcess(14, GIB)),
        {11: A_ID, 12: A_ID, 13: B_ID},
        {A_ID: "qwen36"},
    )
    assert found.engines == (
        EngineShare("qwen36", 40 * GIB, (11, 12), A_ID),
        EngineShare("b" * 12, 5 * GIB, (13,), B_ID),
        EngineShare("", GIB, (14,)),
    )
    assert found.apps == 34 * GIB


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"0::/system.slice/docker-{A_ID}.scope\n", A_ID),
        (f"0::/docker/{A_ID}\n", A_ID),
        (f"0::/../../docker/{A_ID}\n", A_ID),
        (f"12:memory:/docker/{A_ID}\n11:cpu:/\n", A_ID),
        (f"0::/user.slice/user-1000.slice/user@1000.service/docker-{A_ID}.scope/init\n", A_ID),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        (f"0::/system.slice/{A_ID[:63]}\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_container_of_a_process_is_in_its_cgroup(cgroup: str, expected: str) -> None:
    assert container_id(cgroup) == expected


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (gpu(GpuProcess(1, 30), GpuProcess(2, None)), "NVML process memory not reported"),
        (gpu(GpuProcess(1, 30), unified=False), "this GPU has its own memory: its processes use none of this"),
        (Ok(GpuReading("NVIDIA GB10", unified=True)), "the driver does not list GPU processes"),
        (Missing("no NVIDIA GPU here"), "no NVIDIA GPU here"),
    ],
    ids=["one-unknown", "own-memory", "not-listed", "no-gpu"],
)
def test_engines_that_are_unknown_say_why_and_are_part_of_the_applications(
    reading: Reading[GpuReading], why: str
) -> None:
    found = memory_breakdown(MemInfo(total=100, free=20, available=50), reading)
    assert (found.engines, found.no_engines, found.apps) == (None, why, 80)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (gpu(), Ok(0)),
        (gpu(GpuProcess(1, 5), GpuProcess(2, 7)), Ok(12)),
        (gpu(GpuProcess(1, 5), GpuProcess(2, None, compute=False)), Ok(5)),
        (gpu(GpuProcess(1, 5), GpuProcess(2, None)), Missing("NVML process memory not reported")),
        (Missing("no NVIDIA GPU here"), Missing("no NVIDIA GPU here")),
    ],
)
def test_the_engines_part_is_what_cuda_processes_hold(reading: Reading[GpuReading], expected: Reading[int]) -> None:
    assert engine_memory(reading) == expected


# --- the driver -----------------------------------------------------------------------------------------


def test_memory_of_dead_contexts_is_named_and_live_ones_are_not_counted_twice() -> None:
    # C is an idle desktop; 30 GiB more in no category and no process: an engine that died without giving it back.
    lost = 30 * GIB // KIB
    text = snapshot("C").replace("102000000", str(102_000_000 - lost)).replace("120000000", str(120_000_000 - lost))
    mem = parse_meminfo(text)
    dead = memory_breakdown(mem, IDLE)
    assert dead.driver == (1_415_084 + lost) * KIB
    assert dead.orphaned / GIB == pytest.approx(30 - 0.15, abs=0.01)
    live = memory_breakdown(mem, gpu(GpuProcess(1, 30 * GIB)))
    assert live.engine_memory == 30 * GIB
    assert live.driver == 1_415_084 * KIB
    assert live.orphaned == 0, "1.35 GiB is what an idle driver takes"


def test_what_only_draws_is_live_and_without_every_category_the_driver_is_unknown_and_not_zero() -> None:
    drawn = memory_breakdown(parse_meminfo(snapshot("C")), gpu(GpuProcess(1, 100 * MIB, compute=False)))
    assert drawn.driver == 1_415_084 * KIB - 100 * MIB
    found = memory_breakdown(parse_meminfo(snapshot("A")), IDLE)
    assert (found.driver, found.no_driver) == (None, "the kernel does not print every category")


# --- never more than there is ---------------------------------------------------------------------------

_SIZE = st.integers(0, 2**44)
_MAYBE = st.none() | _SIZE
_MEMINFO = st.builds(
    MemInfo,
    total=_SIZE, free=_SIZE, available=_SIZE, buffers=_SIZE, cached=_SIZE, shmem=_SIZE, reclaimable=_SIZE,
    mapped=_MAYBE, dirty=_MAYBE, writeback=_MAYBE, active_file=_MAYBE, inactive_file=_MAYBE,
    swap_cached=_SIZE, anon=_MAYBE, slab_unreclaimable=_MAYBE, kernel_stack=_MAYBE, page_tables=_MAYBE,
    per_cpu=_SIZE, cma_free=_SIZE,
)  # fmt: skip
_PROCESS = st.builds(GpuProcess, st.integers(1, 9), _MAYBE, st.booleans())
_READING = st.builds(
    GpuReading, st.just("NVIDIA GB10"), unified=st.booleans(), processes=st.none() | st.lists(_PROCESS).map(tuple)
)
_GPU = (
    st.builds(Ok, _READING)
    | st.builds(Stale, _READING, st.just(0.0), st.just("old"))
    | st.just(Missing("no NVIDIA GPU here"))
)


@given(_MEMINFO, _GPU, st.dictionaries(st.integers(1, 9), st.sampled_from([A_ID, B_ID, ""])))
def test_the_parts_add_up_to_the_pool_exactly(
    mem: MemInfo, reading: Reading[GpuReading], containers: dict[int, str]
) -> None:
    found = memory_breakdown(mem, reading, containers)
    assert sum(found.sizes) == mem.total
    assert all(size >= 0 for size in found.sizes)
    assert all(share.memory >= 0 for share in found.engines or ())
    assert (found.engines is None) == bool(found.no_engines)
    assert (found.driver is None) == bool(found.no_driver)


# --- steadiness -----------------------------------------------------------------------------------------


def test_small_drift_is_nothing_to_repaint_and_a_real_move_is() -> None:
    shown = parse_meminfo(snapshot("A"))
    drift = parse_meminfo(snapshot("A").replace("4510768", "4520768").replace("23135528", "23136528"))
    assert steady(shown, drift) == shown
    moved = parse_meminfo(snapshot("A").replace("4510768", "3510768"))
    assert steady(shown, moved).free == moved.free
    assert steady(None, moved) == moved


@given(_MEMINFO, _MEMINFO)
def test_what_is_shown_is_never_further_off_than_the_step(shown: MemInfo, read: MemInfo) -> None:
    kept = steady(shown, read, step=MIB)
    for name in ("total", "free", "available", "cached", "shmem"):
        assert abs(getattr(kept, name) - getattr(read, name)) < MIB
    assert (kept.mapped is None) == (read.mapped is None)
