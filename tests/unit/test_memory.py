"""The unified-memory ledger: what the kernel says, cut into parts that never add up to more than there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.host.memory import MemInfo, parse_meminfo, steady
from spark_tui.domain.host.vitals import GpuProcess, GpuReading, engine_memory
from spark_tui.domain.quantities import GIB, KIB, MIB
from spark_tui.domain.reading import Missing, Ok

GB10 = Path(__file__).parent.parent / "fixtures" / "gb10"


def snapshot(letter: str) -> str:
    """One block of the captures: `A` to `H`."""
    text = (GB10 / "meminfo_snapshots.txt").read_text(encoding="utf-8")
    block = re.search(rf"^## {letter}\..*\n((?:[^#\n].*\n)+)", text, re.MULTILINE)
    assert block is not None
    return block[1]


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


def test_dropping_the_cache_frees_memory_without_making_more_available() -> None:
    # A 60 GiB file written and deleted on a GB10: MemAvailable stays, what CUDA calls free moves by the file.
    readings = re.findall(
        r"MemFree=\s*([\d.]+)\s+MemAvailable=\s*([\d.]+)\s+Cached=\s*([\d.]+)",
        (GB10 / "uma_experiment_pagecache.txt").read_text(encoding="utf-8"),
    )
    before, after, _ = (
        MemInfo(
            total=int(121.69 * GIB), free=int(float(f) * GIB), available=int(float(a) * GIB), cached=int(float(c) * GIB)
        )
        for f, a, c in readings
    )
    assert after.cache - before.cache == pytest.approx(60 * GIB, rel=0.01)
    assert abs(after.used - before.used) < GIB // 2
    assert abs(after.in_use - before.in_use) < 2 * GIB


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


@pytest.mark.parametrize(
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


@given(st.text())
def test_no_text_raises_anything_but_a_sentence(text: str) -> None:
    try:
        parse_meminfo(text)
    except ValueError as error:
        assert "/proc/meminfo has no" in str(error)


_FIELD = st.sampled_from(["MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem", "Active(file)", "Inactive(file)"])


@given(st.lists(st.tuples(_FIELD, st.integers(-5, 10**30), st.sampled_from([" kB", "", " MB", "kB"]))))
def test_no_numbers_raise_anything_but_a_sentence(lines: list[tuple[str, int, str]]) -> None:
    try:
        parse_meminfo("\n".join(f"{name}: {number}{unit}" for name, number, unit in lines))
    except ValueError as error:
        assert "/proc/meminfo has no" in str(error)


# --- the strip ------------------------------------------------------------------------------------------

_SIZE = st.integers(0, 2**44)
_MAYBE = st.none() | _SIZE
_MEMINFO = st.builds(
    MemInfo,
    total=_SIZE,
    free=_SIZE,
    available=_SIZE,
    buffers=_SIZE,
    cached=_SIZE,
    shmem=_SIZE,
    reclaimable=_SIZE,
    mapped=_MAYBE,
    dirty=_MAYBE,
    writeback=_MAYBE,
    active_file=_MAYBE,
    inactive_file=_MAYBE,
)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (None, Missing("the driver does not list GPU processes")),
        ((), Ok(0)),
        ((GpuProcess(1, 5), GpuProcess(2, 7)), Ok(12)),
        ((GpuProcess(1, 5), GpuProcess(2, 7, compute=False)), Ok(5)),
        ((GpuProcess(1, 5), GpuProcess(2, None)), Missing("NVML process memory not reported")),
        ((GpuProcess(1, 5), GpuProcess(2, None, compute=False)), Ok(5)),
    ],
)
def test_the_engines_part_is_what_cuda_processes_hold(
    processes: tuple[GpuProcess, ...] | None, expected: Ok[int] | Missing
) -> None:
    assert engine_memory(Ok(GpuReading("NVIDIA GB10", processes=processes))) == expected


def test_a_gpu_that_cannot_be_read_gives_its_own_reason() -> None:
    assert engine_memory(Missing("no NVIDIA GPU here")) == Missing("no NVIDIA GPU here")


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
