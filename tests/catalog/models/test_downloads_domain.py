"""Downloads as values: ids, sums, time left, caps."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok
from spark_tui.catalog.models.adapter.downloads import ID, DownloadFolder, Order, WorkerState
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    FileProgress,
    FileState,
    PlannedFile,
    SpeedMeter,
    TokenBucket,
    room_refusal,
)
from spark_tui.catalog.models.model.hub import KEEP_FREE, DiskFull

REQUEST = DownloadRequest("acme/tiny")


def test_the_same_thing_has_the_same_id_and_another_has_another() -> None:
    assert REQUEST.id == DownloadRequest("acme/tiny", preset="p", again=True).id
    others = [
        DownloadRequest("acme/tiny", "v2"), DownloadRequest("acme/tiny", files=("a",)),
        DownloadRequest("acme/tiny", target="tiny"), DownloadRequest("acme/tiny", everything=True),
    ]  # fmt: skip
    assert len({REQUEST.id, *(each.id for each in others)}) == 5


@given(st.text(max_size=200), st.text(max_size=200))
def test_an_id_is_always_a_plain_file_name(repo: str, target: str) -> None:
    assert ID.fullmatch(DownloadRequest(repo, target=target).id)


def progress(*parts: tuple[int | None, int]) -> Download:
    files = tuple(FileProgress(str(at), size, done) for at, (size, done) in enumerate(parts))
    return Download(DownloadPhase.DOWNLOADING, files, id="a", request=REQUEST, speed=10.0)


def test_sums_and_time_left() -> None:
    found = progress((100, 40), (100, 10))
    assert (found.done, found.total, found.fraction, found.eta) == (50, 200, 0.25, 15.0)


def test_what_is_not_known_is_not_zero() -> None:
    found = progress((None, 40), (100, 10))
    assert (found.done, found.total, found.fraction, found.eta) == (50, None, None, None)
    assert [replace(progress((9, 5)), speed=speed).eta for speed in (None, 0.0)] == [None, None]
    assert replace(progress((9, 9)), speed=None).eta == 0.0
    assert Download(id="a", request=REQUEST).total is None


def plan(left: int, free: int) -> DownloadPlan:
    return DownloadPlan(REQUEST, None, (PlannedFile("a", left + 5, 5),), free=Ok(free))


def test_room_is_what_is_left_to_fetch_and_some_that_stays_free() -> None:
    assert plan(100, KEEP_FREE + 100).short == 0
    assert plan(100, KEEP_FREE + 40).short == 60
    assert DownloadPlan(REQUEST, None, (PlannedFile("a", 9),), free=Missing("?")).short is None
    whole = DownloadPlan(REQUEST, None, (PlannedFile("a", 5, 5),), free=Ok(0))
    assert (whole.whole, whole.short) == (True, 0)


def test_two_that_fit_alone_may_not_fit_together() -> None:
    free = KEEP_FREE + 150
    assert room_refusal([plan(100, free)], "/store") is None
    assert isinstance(room_refusal([plan(100, free), plan(100, free)], "/store"), DiskFull)


# --- rates ------------------------------------------------------------------------------------------------


def test_speed_is_of_the_last_ten_seconds() -> None:
    meter = SpeedMeter()
    assert meter.speed(0.0) is None
    for second in range(31):
        meter.feed(float(second), second * 100 if second < 20 else 2000)
    assert meter.speed(30.0) == pytest.approx(0.0)
    meter.feed(31.0, 3000)
    assert meter.speed(31.0) == pytest.approx(100.0)


def test_a_file_begun_anew_is_no_negative_speed() -> None:
    meter = SpeedMeter()
    meter.feed(0.0, 1000)
    meter.feed(5.0, 100)
    meter.feed(7.0, 300)
    assert meter.speed(7.0) == pytest.approx(100.0)


@given(st.lists(st.integers(1, 1 << 20), min_size=20, max_size=60), st.integers(1 << 10, 1 << 24))
def test_a_cap_holds_over_any_chunks(chunks: list[int], rate: int) -> None:
    bucket, now = TokenBucket(), 100.0
    bucket.limit(rate)
    for chunk in chunks:
        now += bucket.take(now, chunk)
    assert now - 100.0 >= sum(chunks) / rate - 0.26


def test_without_a_cap_nobody_waits_and_a_new_cap_forgives_old_debts() -> None:
    bucket = TokenBucket()
    assert bucket.take(0.0, 10**12) == 0.0
    bucket.limit(1.0)
    assert bucket.take(0.0, 1000) > 900
    bucket.limit(1000.0)
    assert bucket.take(0.0, 1000) < 1.1


# --- records ----------------------------------------------------------------------------------------------


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = DownloadFolder(tmp_path / "d")
    request = DownloadRequest("acme/ti\x1bny", "v1", ("a", "b*"), True, "mistral", "t", preset="p")
    order = Order(request, "/store", "https://hub", 12.5, stopped=True)
    state = WorkerState(
        DownloadPhase.WAITING, (FileProgress("a\nb", None, 5, FileState.CHECKING),), "c" * 40, "why", 1.5, 2.5,
        left_out=3, pid=77, born=88,
    )  # fmt: skip
    folder.put_order("x", order)
    folder.put_state("x", state)
    assert (folder.order("x"), folder.state("x"), folder.ids()) == (order, state, ["x"])


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"request": 5}', b"\xff\xfe", b'{"request": {}, "created": "x"}', b"{}" * 5]
)
def test_a_damaged_record_is_none_and_no_crash(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.request.json").write_bytes(text)
    (tmp_path / "x.state.json").write_bytes(text)
    folder = DownloadFolder(tmp_path)
    assert folder.order("x") is None
    assert folder.state("x") is None or not folder.state("x").files  # type: ignore[union-attr]


KEYS = st.sampled_from(["phase", "files", "pid", "failure", "speed", "path"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_json_is_a_state_or_none(value: object) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = DownloadFolder(Path(path))
        (Path(path) / "x.state.json").write_text(json.dumps({"files": [value], "failure": value, "phase": value}))
        (Path(path) / "x.request.json").write_text(json.dumps(value))
        state, download = folder.state("x"), folder.download("x")
    assert state is None or isinstance(state, WorkerState)
    assert download.id == "x"
