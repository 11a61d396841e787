"""The history on real files: what comes back, how it thins, who writes, and what happens to a file or disk in ruins."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host.series import Gap, HistoryOff, MetricId, Record, Sample, SeriesKey, SeriesSlice
from spark_tui.observe.explain.model.starts import MOST_GOOD, StartBackends, StartRecord, StartSizes
from spark_tui.observe.explain.model.timeline import PhaseId, StartOutcome
from spark_tui.observe.metrics.adapter.db import MOST_STARTS, STARTS_BETWEEN, HistoryDb, trim_starts
from tests import TESTS
from tests.ordinary_user import ordinary_user

T0 = 1_800_000_000
"""A whole hour: 2027-01-15 08:00:00 UTC."""
DECODE = SeriesKey("qwen", MetricId.DECODE_RATE)
TTFT = SeriesKey("qwen", MetricId.TTFT_P50)
POWER = SeriesKey("", MetricId.GPU_POWER)
HOUR, DAY = 3600, 86_400
START = StartRecord(
    "c0ffee",
    T0 + 0.25,
    "qwen",
    preset="qwen-preset",
    image="vllm/vllm-openai:nightly",
    image_id="sha256:1",
    settings="abc",
    model="org/qwen",
    runtime="vllm",
    version="0.32.0",
    ready=True,
    outcome=StartOutcome.READY,
    warm=False,
    seconds=91.5,
    phases=((PhaseId.WEIGHTS, 60.5), (PhaseId.COMPILE, 20.0)),
    sizes=StartSizes(weights_gib=21.4, kv_gib=30.0, kv_tokens=1000, graphs_gib=-0.1, eager=True),
    line="café ☕",
)


class Now:
    """A clock for the ledger."""

    def __init__(self) -> None:
        self.at = float(T0)

    def __call__(self) -> float:
        return self.at


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[HistoryDb]:
    found = HistoryDb(folder, **options)
    try:
        yield found
    finally:
        await found.close()


def decode(at: float, value: float, **changes: Any) -> Sample:
    return replace(Sample("qwen", at, {MetricId.DECODE_RATE: value}), **changes)


def ok(reading: Reading[Any]) -> Any:
    assert isinstance(reading, Ok), reading
    return reading.value


async def one(history: HistoryDb, key: SeriesKey, since: float, until: float, buckets: int = 10_000) -> SeriesSlice:
    [found] = ok(await history.series([key], since, until, buckets))
    assert isinstance(found, SeriesSlice)
    return found


def known(stretch: SeriesSlice) -> dict[float, tuple[float, float, float]]:
    rows = zip(stretch.times, stretch.least, stretch.mean, stretch.greatest, strict=True)
    return {at: (least, mean, most) for at, least, mean, most in rows if not math.isnan(mean)}


# --- what comes back ------------------------------------------------------------------------------------------


async def test_a_start_comes_back_as_it_was_and_a_later_word_on_it_takes_its_place(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        history.add_start(replace(START, at=START.at + 500, engine="other", ready=False, outcome=StartOutcome.FAILED))
        history.add_start(replace(START, outcome=StartOutcome.STOPPED, ended_at=T0 + 100.0))
        await history.flush()
        newest, first = ok(await history.starts())
        assert first == replace(START, outcome=StartOutcome.STOPPED, ended_at=T0 + 100.0)
        assert newest.engine == "other"
        assert [s.engine for s in ok(await history.starts(engine="qwen"))] == ["qwen"]
        assert [s.engine for s in ok(await history.starts(failed=True))] == ["other"]
        assert len(ok(await history.starts(preset="qwen-preset", limit=1))) == 1
        assert ok(await history.starts(preset="nobody's")) == ()


async def test_records_are_json_and_come_back_newest_first(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for number in range(5):
            await history.add_record(Record("bench", "qwen", T0 + number, {"run": number, "rows": [1.5, None, "é"]}))
        await history.add_record(Record("bench", "gemma", T0 + 9, []))
        await history.add_record(Record("event", "info", T0, "x"))
        await history.add_record(Record("bench", "qwen", T0, {"run": "again"}))
        found = ok(await history.records("bench", key="qwen", limit=3))
        assert [record.body["run"] for record in found] == [4, 3, 2]
        assert found[0].body["rows"] == [1.5, None, "é"]
        assert [r.key for r in ok(await history.records("bench", since=T0 + 4))] == ["gemma", "qwen"]
        assert ok(await history.records("bench", key="qwen"))[-1].body == {"run": "again"}


@pytest.mark.parametrize("body", [math.nan, {1, 2}, "x" * 2_000_000])
async def test_a_record_that_cannot_be_kept_is_refused_and_not_lost_in_silence(tmp_path: Path, body: object) -> None:
    async with opened(tmp_path / "h") as history:
        with pytest.raises(HistoryOff, match="cannot be stored"):
            await history.add_record(Record("bench", "qwen", T0, body))


async def test_a_caller_that_is_cancelled_does_not_end_the_writer(tmp_path: Path) -> None:
    async with opened(tmp_path) as history:
        for number in range(20):
            record = Record("bench", f"r{number}", T0 + number, {})
            waiting = [asyncio.create_task(history.add_record(record)), asyncio.create_task(history.flush())]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        await history.flush()
        assert history.state.reason == ""
        assert len(ok(await history.records("bench"))) == 20, "what was handed over is kept"


async def test_everything_is_there_when_the_program_is_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "h", flush_seconds=1000) as history:
        history.add_start(START)
        history.add_sample(decode(T0 + 5, 70.0))
    async with opened(tmp_path / "h") as history:
        assert ok(await history.starts()) == (START,)
        assert known(await one(history, DECODE, T0, T0 + 60)) == {T0 + 5: (70.0, 70.0, 70.0)}


async def test_a_box_without_a_history_has_an_empty_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        assert ok(await history.starts()) == ()
        assert known(await one(history, DECODE, T0, T0 + 60)) == {}
        assert history.state.reason == ""


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    history = HistoryDb(tmp_path / "h")
    asyncio.run(history.flush())
    asyncio.run(history.close())
    assert not (tmp_path / "h").exists()


async def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(tmp_path / "deep" / "h") as history:
            history.add_start(START)
            await history.flush()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep" / "h").iterdir()}
            assert stat.S_IMODE((tmp_path / "deep" / "h").stat().st_mode) == 0o700
            assert {"history.db", "history.db-wal"} <= set(modes)
            assert set(modes.values()) == {0o600}
    finally:
        os.umask(before)


# --- series ---------------------------------------------------------------------------------------------------


async def test_samples_of_the_last_hour_come_second_by_second(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second in range(120):
            history.add_sample(decode(T0 + second + 0.3, float(second)))
            history.add_sample(Sample("", T0 + second + 0.7, {MetricId.GPU_POWER: 40.0 + second % 2}))
        await history.flush()
        found, power = ok(await history.series([DECODE, POWER], T0, T0 + 120, 1000))
        assert found.step == 1.0
        assert list(found.times) == [float(T0 + second) for second in range(120)]
        assert list(found.mean) == [float(second) for second in range(120)]
        assert set(power.mean) == {40.0, 41.0}


async def test_fewer_buckets_keep_least_and_greatest(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second in range(600):
            history.add_sample(decode(T0 + second, 500.0 if second == 77 else 10.0))
        await history.flush()
        found = await one(history, DECODE, T0, T0 + 600, 10)
        assert (found.step, len(found.times)) == (60.0, 10)
        assert (found.least[1], found.greatest[1]) == (10.0, 500.0)
        assert found.mean[1] == pytest.approx((59 * 10 + 500) / 60)
        assert set(found.greatest) == {10.0, 500.0}


async def test_a_failed_look_is_a_gap_with_its_reason_and_never_a_zero(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second in range(60):
            gap = "connection refused" if 20 <= second < 30 else ""
            history.add_sample(Sample("qwen", T0 + second, {} if gap else {MetricId.DECODE_RATE: 9.0}, gap))
        await history.flush()
        found = await one(history, DECODE, T0, T0 + 60)
        assert all(math.isnan(value) for value in found.mean[20:30])
        assert not any(math.isnan(value) for value in (*found.mean[:20], *found.mean[30:]))
        assert found.gaps == (Gap(T0 + 20, T0 + 30, "connection refused"),)
        assert [gap.reason for gap in found.view.gaps if gap.begin <= T0 + 25 <= gap.end] == ["connection refused"]


async def test_a_gap_that_has_not_ended_reaches_to_the_end_and_another_reason_is_another_gap(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for sample in (decode(T0, 1.0), decode(T0 + 5, 1.0)):
            history.add_sample(sample)
        history.add_sample(Sample("qwen", T0 + 10, gap="connection refused"))
        history.add_sample(Sample("qwen", T0 + 15, gap="the engine has ended with exit code 1"))
        history.add_sample(Sample("", T0 + 100, {MetricId.GPU_POWER: 40.0}))
        await history.flush()
        found = await one(history, DECODE, T0, T0 + 600)
        assert found.gaps == (
            Gap(T0 + 10, T0 + 15, "connection refused"),
            Gap(T0 + 15, T0 + 600, "the engine has ended with exit code 1"),
        )


async def test_a_metric_without_a_value_is_empty_while_the_others_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second in range(30):
            values = {MetricId.DECODE_RATE: 5.0} | ({MetricId.TTFT_P50: 0.2} if second in (3, 4, 6) else {})
            history.add_sample(Sample("qwen", T0 + second, values))
        await history.flush()
        rate, ttft = ok(await history.series([DECODE, TTFT], T0, T0 + 30, 100))
        assert len(known(rate)) == 30
        assert sorted(known(ttft)) == [T0 + 3, T0 + 4, T0 + 6], "asked for at second 5, and it had none"


@pytest.mark.parametrize("cadence", [1.02, 2.03, 5.04])
async def test_reading_a_little_slower_than_once_a_bucket_leaves_no_holes(tmp_path: Path, cadence: float) -> None:
    async with opened(tmp_path / "h") as history:
        at = T0 + 0.5
        while at < T0 + 300:
            history.add_sample(decode(at, 3.0))
            at += cadence
        await history.flush()
        found = known(await one(history, DECODE, T0, T0 + 290))
        assert sorted(found) == [float(second) for second in range(T0, int(max(found)) + 1)]
        assert max(found) > T0 + 280


async def test_a_pause_of_the_program_is_a_gap(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second in [*range(100), *range(160, 260)]:
            history.add_sample(decode(T0 + second, 3.0))
        await history.flush()
        found = await one(history, DECODE, T0, T0 + 260)
        assert [at - T0 for at, value in zip(found.times, found.mean, strict=True) if math.isnan(value)] == list(
            range(100, 160)
        )


async def test_a_new_start_is_marked(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_sample(decode(T0 + 1, 3.0))
        history.add_sample(decode(T0 + 30, 3.0, restarted=True))
        await history.flush()
        assert (await one(history, DECODE, T0, T0 + 60)).restarts == (T0 + 30,)


async def test_numbers_that_are_none_are_gaps_and_huge_ones_survive(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for second, value in enumerate((math.nan, math.inf, -math.inf, 1e300, -1e300, 7.0)):
            history.add_sample(decode(T0 + second, value))
        await history.flush()
        assert sorted(known(await one(history, DECODE, T0, T0 + 10))) == [T0 + 3, T0 + 4, T0 + 5]


# --- age ------------------------------------------------------------------------------------------------------


def fill(history: HistoryDb, begin: int, seconds: int, value: Callable[[int], float]) -> None:
    for second in range(begin, begin + seconds):
        history.add_sample(decode(second, value(second)))


async def grow(history: HistoryDb, now: Now, begin: int, seconds: int, value: Callable[[int], float]) -> None:
    """A long stretch in portions, with the clock beside it."""
    for part in range(begin, begin + seconds, 1800):
        fill(history, part, min(1800, begin + seconds - part), value)
        now.at = part + 1800.0
        await history.flush()


def wave(second: int) -> float:
    return 50.0 + second % 7


async def test_after_an_hour_ten_seconds_are_one_and_nothing_is_lost_of_their_bounds(tmp_path: Path) -> None:
    now = Now()
    async with opened(tmp_path / "h", now=now) as history:
        await grow(history, now, T0, 3 * HOUR, wave)
        recent = await one(history, DECODE, T0 + 2 * HOUR, T0 + 3 * HOUR)
        assert recent.step == 1.0
        assert len(known(recent)) == HOUR
        found = await one(history, DECODE, T0, T0 + 3 * HOUR)
        assert found.step == 10.0
        assert list(found.least) == [50.0] * 1080
        assert list(found.greatest) == [56.0] * 1080
        for at, mean in zip(found.times, found.mean, strict=True):
            assert mean == pytest.approx(sum(map(wave, range(int(at), int(at) + 10))) / 10, rel=1e-6)


async def test_after_a_day_minutes_are_kept_and_after_a_month_nothing(tmp_path: Path) -> None:
    now = Now()
    async with opened(tmp_path / "h", now=now) as history:
        await grow(history, now, T0, 2 * HOUR, wave)
        now.at = float(T0 + 2 * DAY)
        fill(history, int(now.at), 700, wave)
        now.at += 700
        await history.flush()
        old = await one(history, DECODE, T0, T0 + 2 * HOUR)
        assert old.step == 60.0
        assert (list(old.least), list(old.greatest)) == ([50.0] * 120, [56.0] * 120)
        assert list(old.mean) == pytest.approx(
            [sum(map(wave, range(T0 + m * 60, T0 + m * 60 + 60))) / 60 for m in range(120)]
        )
        both = await one(history, DECODE, T0, T0 + 2 * DAY + 700, 200)
        assert max(both.greatest[-1], both.greatest[-2]) == 56.0, "the newest are among them"
        now.at = float(T0 + 40 * DAY)
        fill(history, int(now.at), 10, wave)
        await history.flush()
        assert known(await one(history, DECODE, T0, T0 + 30 * DAY)) == {}


async def test_thinning_does_not_depend_on_who_did_it_and_when(tmp_path: Path) -> None:
    """One process for three hours, and one after the other every few minutes, keep the same."""
    for name, portion in (("one", 3 * HOUR), ("many", 700)):
        now = Now()
        for part in range(T0, T0 + 3 * HOUR, portion):
            async with opened(tmp_path / name, now=now) as history:
                await grow(history, now, part, min(portion, T0 + 3 * HOUR - part), wave)
    found = []
    for name in ("one", "many"):
        async with opened(tmp_path / name) as history:
            found.append(await one(history, DECODE, T0, T0 + 3 * HOUR))
    assert found[0] == found[1]


async def test_a_clock_that_is_set_back_neither_stops_the_history_nor_breaks_it(tmp_path: Path) -> None:
    now = Now()
    async with opened(tmp_path / "h", now=now) as history:
        await grow(history, now, T0, 2 * HOUR, lambda _: 1.0)
        now.at = T0 + 600.0
        await grow(history, now, T0 + 600, 1200, lambda _: 3.0)
        found = await one(history, DECODE, T0, T0 + 2 * HOUR)
        again = [index for index, at in enumerate(found.times) if T0 + 600 <= at < T0 + 1800]
        assert {found.greatest[index] for index in again} == {3.0}
        assert {found.least[index] for index in again} == {1.0}


async def test_the_file_stays_within_its_bound_and_the_oldest_go_first(tmp_path: Path) -> None:
    now, most = Now(), 300_000
    async with opened(tmp_path / "h", now=now, most_bytes=most) as history:
        for day in range(12):
            for part in range(4):
                begin = T0 + day * DAY + part * 6 * HOUR
                for second in range(begin, begin + 6 * HOUR, 60):
                    values = {metric: math.sin(second * (1 + n)) for n, metric in enumerate(list(MetricId)[:6])}
                    history.add_sample(Sample("qwen", second, values))
                now.at = begin + 6.0 * HOUR
                await history.flush()
        newest = await one(history, DECODE, T0 + 11 * DAY, T0 + 12 * DAY, 100)
        assert len(known(newest)) > 80
        oldest = await one(history, DECODE, T0, T0 + DAY, 100)
        assert len(known(oldest)) == 0
    with sqlite3.connect(tmp_path / "h" / "history.db") as db:
        pages, free = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
    db.close()
    assert (pages - free) * 4096 < most * 1.3


# --- several processes ----------------------------------------------------------------------------------------


async def test_two_keep_starts_and_one_keeps_samples_until_it_ends(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as second:
        async with opened(tmp_path / "h") as first:
            first.add_sample(decode(T0, 1.0))
            await first.flush()
            second.add_sample(decode(T0, 2.0))
            second.add_start(START)
            await second.flush()
            assert second.state.samples_elsewhere
            assert not first.state.samples_elsewhere
            assert ok(await first.starts()) == (START,)
            assert known(await one(second, DECODE, T0, T0 + 1)) == {T0: (1.0, 1.0, 1.0)}
        second.add_sample(decode(T0 + 1, 3.0))
        await second.flush()
        assert not second.state.samples_elsewhere
        assert sorted(known(await one(second, DECODE, T0, T0 + 5))) == [T0, T0 + 1]


async def test_a_writer_that_must_wait_holds_up_neither_the_loop_nor_a_reader(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.flush()
        other = sqlite3.connect(tmp_path / "h" / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        before = asyncio.get_running_loop().time()
        history.add_start(replace(START, at=2.0))
        for second in range(100):
            history.add_sample(decode(T0 + second, 1.0))
        written = asyncio.ensure_future(history.add_record(Record("bench", "k", T0, 1)))
        assert ok(await history.starts()) == (START,)
        assert asyncio.get_running_loop().time() - before < 1.0
        assert not written.done()
        other.execute("COMMIT")
        other.close()
        await written
        assert len(ok(await history.starts())) == 2


CHILD = textwrap.dedent(
    """
    import sys, time
    from msgspec.structs import replace
    from pathlib import Path
    from spark_tui.base.host.series import MetricId, Sample
    from spark_tui.base.host.series import Record
    from spark_tui.observe.metrics.adapter.db import MOST_STARTS, HistoryDb
    from tests.observe.metrics.test_history_db import START, T0
    import asyncio

    async def main():
        history = HistoryDb(Path(sys.argv[1]), flush_seconds=0.01)
        number = int(sys.argv[2])
        while True:
            number += 1
            history.add_start(replace(START, at=float(number)))
            history.add_sample(Sample("qwen", T0 + number, {metric: float(number) for metric in MetricId}))
            await history.add_record(Record("bench", "k", float(number), {"number": number, "pad": "x" * 500}))
            print(number, flush=True)

    asyncio.run(main())
    """
)


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for round_ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "h"), str(acknowledged)],
            stdout=subprocess.PIPE, text=True, cwd=TESTS.parent,
        )  # fmt: skip
        assert child.stdout is not None
        for _ in range(20 + 17 * round_):
            acknowledged = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        for line in child.stdout.read().splitlines():
            acknowledged = int(line)
        child.wait()
        child.stdout.close()
        async with opened(tmp_path / "h") as history:
            numbers = {record.body["number"] for record in ok(await history.records("bench", limit=100_000))}
            assert set(range(1, acknowledged + 1)) <= numbers
            assert len(ok(await history.starts(limit=100_000))) >= acknowledged
            found = await one(history, DECODE, T0, T0 + acknowledged + 1)
            assert len(known(found)) >= acknowledged - 1, "samples are written with the start that follows them"
            assert history.state.notes == ()
        acknowledged = max(numbers)
    db = sqlite3.connect(tmp_path / "h" / "history.db")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


# --- a file in ruins ------------------------------------------------------------------------------------------


def other_program(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()


def newer(path: Path) -> None:
    asyncio.run(filled(path.parent))
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=7")
    db.close()


def older(path: Path) -> None:
    asyncio.run(filled(path.parent))
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=2")
    db.close()


def without_a_table(path: Path) -> None:
    asyncio.run(filled(path.parent))
    db = sqlite3.connect(path)
    db.execute("DROP TABLE starts")
    db.commit()
    db.close()


def unreadable_schema(path: Path) -> None:
    """A column's name that is no text: SQLite finds nothing wrong with it, Python does."""
    asyncio.run(filled(path.parent))
    data = path.read_bytes()
    assert data.count(b"sources (id INTEGER PRIMARY KEY, name TEXT") == 1
    path.write_bytes(data.replace(b"PRIMARY KEY, name TEXT", b"PRIMARY KEY, nam\xff TEXT"))


def lying_schema(path: Path) -> None:
    """Tables with the right columns that cannot be written as they should be."""
    asyncio.run(filled(path.parent))
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE other AS SELECT * FROM starts; DROP TABLE starts;"
                     "CREATE VIEW starts AS SELECT * FROM other")  # fmt: skip
    db.close()


def torn(path: Path) -> None:
    """Zeros where the tables were: the header is whole."""
    asyncio.run(filled(path.parent))
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))


async def filled(folder: Path) -> None:
    async with opened(folder) as history:
        history.add_start(START)
        history.add_sample(decode(T0, 1.0))


@pytest.mark.parametrize(
    ("ruin", "word"),
    [
        (lambda path: path.write_bytes(b"not a database, but long enough to have a header\n" * 50), "unreadable"),
        (lambda path: path.write_bytes(os.urandom(70_000)), "unreadable"),
        (torn, "unreadable"),
        (without_a_table, "unreadable"),
        (unreadable_schema, "unreadable"),
        (other_program, "unreadable"),
        (newer, "newer"),
        (older, "older"),
    ],
    ids=["text", "noise", "torn", "without-a-table", "unreadable-schema", "another-program", "newer", "older"],
)
@pytest.mark.parametrize("reads_first", [True, False])
def test_a_file_that_cannot_be_used_is_set_aside_whole_and_told_of(
    tmp_path: Path, ruin: Callable[[Path], object], word: str, reads_first: bool
) -> None:
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    ruin(folder / "history.db")
    before = (folder / "history.db").read_bytes()

    async def use() -> None:
        async with opened(folder, now=Now()) as history:
            if reads_first:
                assert ok(await history.starts()) == ()
            history.add_start(START)
            await history.flush()
            assert ok(await history.starts()) == (START,)
            assert history.state.reason == ""
            [note] = history.state.notes
            assert f"history-{word}-20270115T080000Z.db" in note
        kept = folder / f"history-{word}-20270115T080000Z.db"
        assert kept.read_bytes() == before

    asyncio.run(use())


async def test_damage_that_shows_later_sets_the_file_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "h" / "history.db"
    async with opened(tmp_path / "h") as history:
        for number in range(300):
            history.add_start(replace(START, at=float(number), line="x" * 1000))
            await history.flush()
    data = bytearray(path.read_bytes())
    for page in range(12, len(data) // 4096):
        data[page * 4096 : page * 4096 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    async with opened(tmp_path / "h") as history:
        assert ok(await history.starts()) == ()
        history.add_start(START)
        await history.flush()
        assert ok(await history.starts()) == (START,)
        assert "Moved it to" in history.state.notes[0]
    assert [p.read_bytes() for p in (tmp_path / "h").glob("history-unreadable-*.db")] == [bytes(data)]


def test_a_schema_that_lies_is_found_when_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    lying_schema(folder / "history.db")

    async def use() -> None:
        async with opened(folder) as history:
            history.add_start(START)
            await history.flush()
            assert ok(await history.starts()) == (START,)
            assert (history.state.reason, len(history.state.notes)) == ("", 1)

    asyncio.run(use())


@pytest.fixture(scope="module")
def well_filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A history with all that it can hold, on some 80 pages."""
    folder = tmp_path_factory.mktemp("filled") / "h"

    async def fill() -> None:
        async with opened(folder, now=Now()) as history:
            for number in range(150):
                history.add_start(replace(START, container=f"c{number}", at=float(T0 + number), line="x" * 200))
            for number in range(200):
                await history.add_record(Record("event", f"event {number}", T0 + number, {"subject": "qwen"}))
            for number in range(600):
                sample = decode(T0 - 2 * HOUR + 4 * number, 50.0 + number % 7)
                history.add_sample(replace(sample, gap="down", values={}) if number % 200 == 0 else sample)
            await history.flush()

    asyncio.run(fill())
    return (folder / "history.db").read_bytes()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Some bytes behind the header are others: in the schema's page, or anywhere."""
    found, end = bytearray(data), 4096 if chance.random() < 0.2 else len(data)
    for _ in range(chance.choice((1, 8, 40, 400))):
        found[chance.randrange(100, end)] = chance.randrange(256)
    return bytes(found)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_bytes_are_damaged_the_history_goes_on(tmp_path: Path, well_filled: bytes, seed: int) -> None:
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    (folder / "history.db").write_bytes(damaged(well_filled, random.Random(seed)))
    now = Now()
    now.at = T0 + HOUR + 600.0

    async def use() -> None:
        async with opened(folder, now=now) as history:
            assert isinstance(await history.starts(ready=True), Ok)
            assert isinstance(await history.records("event"), Ok)
            assert isinstance(await history.series([DECODE, TTFT], T0 - 2 * HOUR, now.at, 200), Ok)
            history.add_start(replace(START, container="new", at=now.at))
            history.add_sample(decode(now.at, 1.0))
            await history.flush()
            await history.add_record(Record("event", "new", now.at, {}))
            assert [each.key for each in ok(await history.records("event", limit=1))] == ["new"]
            assert isinstance(await history.starts(), Ok)
            assert history.state.reason == ""
            assert len(history.state.notes) == len(list(folder.glob("history-unreadable-*.db"))) <= 1

    asyncio.run(use())


async def test_a_value_that_cannot_be_stored_is_no_damage(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.flush()

        with pytest.raises(HistoryOff):
            await history.add_record(Record("event", "\ud800", T0, {}))
        assert ok(await history.starts()) == (START,)
        assert history.state.notes == ()
    assert not list((tmp_path / "h").glob("history-*"))


async def test_a_file_that_another_process_uses_is_not_taken_from_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as other:
        other.add_start(START)
        await other.flush()
        db = sqlite3.connect(tmp_path / "h" / "history.db")
        db.execute("PRAGMA user_version=7")
        db.close()
        async with opened(tmp_path / "h") as history:
            reading = await history.starts()
            assert isinstance(reading, Missing)
            assert "another spark-tui has it open" in reading.reason
            with pytest.raises(HistoryOff, match="another spark-tui"):
                await history.add_record(Record("bench", "k", T0, 1))
    assert not list((tmp_path / "h").glob("history-*"))


async def test_damaged_rows_are_passed_over_and_those_of_another_version_are_read(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        history.add_start(replace(START, at=1.0))
        await history.add_record(Record("bench", "k", T0, 1))
        db = sqlite3.connect(tmp_path / "h" / "history.db")
        db.execute("UPDATE starts SET body = '{' WHERE at = 1")
        newer = json.loads(db.execute("SELECT body FROM starts WHERE at > 1").fetchone()[0])
        newer |= {"phases": [["weights", 60.5], ["from_the_future", 1]], "more": 7}
        db.execute("UPDATE starts SET body = ? WHERE at > 1", (json.dumps(newer),))
        db.execute("INSERT INTO records (kind, key, at, body) VALUES ('bench', 'k', 5, 'nonsense')")
        db.commit()
        db.close()
        assert ok(await history.starts()) == (replace(START, phases=((PhaseId.WEIGHTS, 60.5),)),)
        assert [record.body for record in ok(await history.records("bench"))] == [1]


@pytest.mark.parametrize("at", ["1e300", "-1e300", "9e999", "253402300800", "1e17", "'x'", "x'ff'"])
async def test_a_time_that_no_calendar_has_is_passed_over(tmp_path: Path, at: str) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.add_record(Record("event", "old", T0, {}))
    db = sqlite3.connect(tmp_path / "h" / "history.db")
    db.execute(f"UPDATE starts SET at={at}")
    db.execute(f"UPDATE records SET at={at}")
    db.commit()
    db.close()
    async with opened(tmp_path / "h") as history:
        assert ok(await history.starts()) == ok(await history.records("event")) == ()
        assert history.state.notes == ()


async def test_what_a_start_ran_with_comes_back(tmp_path: Path) -> None:
    start = replace(
        START, image_digest="vllm/vllm-openai@sha256:2", flags=("--max-model-len 4096",), kernel="6.14.0", driver="580",
        backends=StartBackends(("FLASHINFER",), (("NVFP4", "moe", "cutlass"),), "FULL",
        (("CUDA", "13.0.2"), ("NCCL", "2.28.9"))),
    )  # fmt: skip
    async with opened(tmp_path / "h") as history:
        history.add_start(start)
        await history.flush()
        assert ok(await history.starts()) == (start,)


async def test_good_starts_of_a_preset_outlive_a_crash_loop(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        for number in range(MOST_GOOD + 2):
            history.add_start(replace(START, at=float(number)))
        history.add_start(replace(START, at=0.5, preset="rare"))
        failed = replace(START, ready=False, outcome=StartOutcome.FAILED)
        await history.flush()
        db = sqlite3.connect(tmp_path / "h/history.db")
        row = db.execute("SELECT body FROM starts WHERE preset = 'rare'").fetchone()
        body = row[0].replace('"ready":true', '"ready":false')
        loop = [("x", 100.0 + number, body) for number in range(MOST_STARTS)]
        db.executemany("INSERT INTO starts VALUES (?, ?, 'loop', 'loop', 1, ?)", loop)
        db.commit()
        db.close()
        history.add_start(replace(failed, at=T0 + 1.0))
        await history.flush()
        found = ok(await history.starts(ready=True))
        assert {start.preset for start in found} == {"rare", START.preset}
        assert len(found) == MOST_GOOD + 1
        assert len(ok(await history.starts(limit=10_000))) == MOST_STARTS + MOST_GOOD + 1


async def test_a_start_costs_the_same_work_however_many_were_written(tmp_path: Path) -> None:
    """In steps of SQLite's machine: each start used to read every other one, so that 10,000 took two minutes."""
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.flush()
    db = sqlite3.connect(tmp_path / "h/history.db")
    body = db.execute("SELECT body FROM starts").fetchone()[0]
    steps, work, most = [0], [], MOST_STARTS
    db.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 1)
    for number in range(3 * MOST_STARTS):
        if number % 1000 == 0:
            work.append(0)
        row = ("x", float(number), "qwen", f"p{number % 7}", False, body)
        steps[0] = 0
        db.execute("INSERT INTO starts VALUES (?, ?, ?, ?, ?, ?)", row)
        most = trim_starts(db, most)
        work[-1] += steps[0]
    assert work[1] < 1.1 * work[0]
    assert work[-1] < 1.1 * work[-5]
    assert work[-1] < 1000 * MOST_STARTS  # a thousand starts; each that reads all others takes 50 times as much
    assert db.execute("SELECT count(*) FROM starts").fetchone()[0] <= MOST_STARTS + STARTS_BETWEEN
    db.close()


async def test_a_file_that_somebody_removes_is_begun_anew(tmp_path: Path) -> None:
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.flush()
        for path in (tmp_path / "h").glob("history.db*"):
            path.unlink()
        history.add_start(replace(START, at=2.0))
        await history.flush()
        assert [start.at for start in ok(await history.starts())] == [2.0]


# --- a disk in ruins ------------------------------------------------------------------------------------------


async def test_a_home_that_cannot_be_written_turns_the_history_off_and_says_why(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with ordinary_user(tmp_path):
        async with opened(tmp_path / "h") as history:
            history.add_start(START)
            history.add_sample(decode(T0, 1.0))
            await history.flush()
            assert "Permission denied" in history.state.reason
            assert str(tmp_path / "h") in history.state.remedy
            reading = await history.starts()
            assert isinstance(reading, Missing)
            assert "Permission denied" in reading.reason
            with pytest.raises(HistoryOff, match="Permission denied"):
                await history.add_record(Record("bench", "k", T0, 1))
    tmp_path.chmod(0o755)


async def test_a_link_or_a_folder_in_the_file_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "h" / "history.db").symlink_to(tmp_path / "elsewhere")
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        await history.flush()
        assert "not a regular file" in history.state.reason
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


async def test_what_could_not_be_written_is_written_when_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("a file where the folder should be")
    async with opened(tmp_path / "h") as history:
        history.add_start(START)
        history.add_sample(decode(T0, 4.0))
        await history.flush()
        assert history.state.reason
        (tmp_path / "h").unlink()
        await history.flush()
        assert history.state.reason == ""
        assert ok(await history.starts()) == (START,)
        assert known(await one(history, DECODE, T0, T0 + 1)) == {T0: (4.0, 4.0, 4.0)}


FULL = textwrap.dedent(
    """
    import asyncio, resource, sys
    from msgspec.structs import replace
    from pathlib import Path
    from spark_tui.base.host.series import HistoryOff, Record
    from spark_tui.base.finding import Ok
    from spark_tui.observe.metrics.adapter.db import MOST_STARTS, HistoryDb
    from tests.observe.metrics.test_history_db import START, T0

    async def main():
        history = HistoryDb(Path(sys.argv[1]))
        limit = len(sys.argv) > 2
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        kept = 0
        try:
            for number in range(2000):
                await history.add_record(Record("bench", "k", float(number), "x" * 5000))
                kept += 1
        except HistoryOff as error:
            print("OFF", error.summary)
        assert history.state.reason, "it says why"
        print("STATE", history.state.reason)
        found = await history.records("bench", limit=100000)
        assert isinstance(found, Ok) and len(found.value) == kept, (len(found.value), kept)
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            Path(sys.argv[1]).with_name("ballast").unlink()
        await history.add_record(Record("bench", "k", 5000.0, "after"))
        assert history.state.reason == ""
        await history.close()
        print("DONE", kept)

    asyncio.run(main())
    """
)


def full(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FULL, *arguments], cwd=TESTS.parent, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_file_that_may_not_grow_turns_the_history_off_until_it_may(tmp_path: Path) -> None:
    told = full(str(tmp_path / "h"), "300000")
    assert "OFF The history is off" in told
    assert "DONE" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_turns_the_history_off_until_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "ballast").write_bytes(bytes(700_000))
        told = full(str(disk / "h"))
        assert f"STATE the disk of {disk / 'h'} is full" in told
    finally:
        subprocess.run(["umount", str(disk)], check=True)
