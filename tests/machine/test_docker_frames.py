"""The daemon's log bytes as lines, wherever they are cut; after a break every line once."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.ports import MAX_LINE_CHARS, LogLine
from spark_tui.machine.docker.wire import (
    DaemonReported,
    Damaged,
    FrameDecoder,
    ReplayFilter,
    TerminalDecoder,
    canonical_stamp,
    nanoseconds,
    since_query,
    stamp_of,
    utc_stamp,
)
from tests.machine.fake_docker import frame, stamp

PART = 16 * 1024


def stored(text: bytes, at: str, stream: int = 1) -> bytes:
    """A line as the daemon stores and sends it: in parts of 16 KiB, each with the stamp of the first."""
    body = text + b"\n"
    parts = [body[i : i + PART] for i in range(0, len(text), PART)] or [body]
    if len(text) and len(text) % PART == 0:
        parts.append(b"\n")
    return b"".join(frame(at, part, stream) for part in parts)


def on_terminal(text: bytes, at: str) -> bytes:
    body = text + b"\r\n"
    parts = [body[i : i + PART] for i in range(0, len(body), PART)]
    return b"".join(at.encode() + b" " + part for part in parts)


def feed_in(decoder: FrameDecoder | TerminalDecoder, data: bytes, cuts: list[int]) -> list[LogLine]:
    lines: list[LogLine] = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        lines += decoder.feed(data[at:cut])
        at = max(at, cut)
    return lines + decoder.finish()


texts = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b""))
lengths = st.sampled_from((PART - 1, PART, PART + 1, 2 * PART - 2, 2 * PART - 1, 2 * PART, 3 * PART + 7))
long_texts = st.builds(lambda length, char: (char * length)[:length], lengths, st.sampled_from((b"a", "ä€".encode())))
cuts_of = st.lists(st.integers(0, 120_000), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(texts | long_texts, st.sampled_from((1, 2))), max_size=6), cuts_of)
def test_frames_cut_anywhere_give_the_same_lines(written: list[tuple[bytes, int]], cuts: list[int]) -> None:
    data = b"".join(stored(text, stamp(i), stream) for i, (text, stream) in enumerate(written))
    cuts = [min(cut, len(data)) for cut in cuts]
    assert feed_in(FrameDecoder(), data, cuts) == [
        LogLine(stamp(i), text.decode("utf-8", "replace")) for i, (text, _) in enumerate(written)
    ]


@settings(deadline=None)
@given(st.lists(texts.filter(lambda text: not text.endswith(b"\r")) | long_texts, max_size=6), cuts_of)
def test_a_terminal_cut_anywhere_gives_the_same_lines(written: list[bytes], cuts: list[int]) -> None:
    data = b"".join(on_terminal(text, stamp(i)) for i, text in enumerate(written))
    cuts = [min(cut, len(data)) for cut in cuts]
    assert feed_in(TerminalDecoder(), data, cuts) == [
        LogLine(stamp(i), text.decode("utf-8", "replace")) for i, text in enumerate(written)
    ]


@settings(deadline=None)
@given(st.binary(max_size=200), cuts_of)
def test_garbage_is_damage_and_nothing_worse(data: bytes, cuts: list[int]) -> None:
    for decoder in (FrameDecoder(), TerminalDecoder()):
        try:
            feed_in(decoder, data, [min(cut, len(data)) for cut in cuts])
        except (Damaged, DaemonReported):
            continue


BARE = b"\x01\0\0\0\0\0\0\x04two\n"


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        (frame(stamp(1), b"a" * PART) + frame(stamp(2), b"err\n", 2) + frame(stamp(1), b"b\n"),
         [(2, "err"), (1, "a" * PART + "b")], []),
        (frame(stamp(1), b"the end") + frame(stamp(2), b"next start\n"), [(1, "the end"), (2, "next start")], []),
        (frame(stamp(1), b"a\nb\nc"), [(1, "a"), (1, "b")], [(1, "c")]),
        (frame(stamp(1), b"one ") + BARE, [(1, "one two")], []),
        (frame(stamp(1), b"a\xff\xfeb\n"), [(1, "a\ufffd\ufffdb")], []),
        (stored(b"x" * MAX_LINE_CHARS, stamp(1)), [(1, "x" * MAX_LINE_CHARS)], []),
    ],
    ids=["stdout and stderr", "no newline at the end", "lines of one frame", "no repeated stamp", "no UTF-8", "limit"],
)  # fmt: skip
def test_frames_that_are_not_one_line(data: bytes, lines: list[tuple[int, str]], rest: list[tuple[int, str]]) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(data) == [LogLine(stamp(at), text) for at, text in lines]
    assert decoder.finish() == [LogLine(stamp(at), text) for at, text in rest]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_line_is_cut_and_says_how_long_it_was(terminal: bool) -> None:
    text = "ä€".encode() * 200_000
    data = on_terminal(text, stamp(1)) if terminal else stored(text, stamp(1))
    lines = (TerminalDecoder() if terminal else FrameDecoder()).feed(data)
    assert [len(line.text) for line in lines] == [MAX_LINE_CHARS]
    assert lines[0].text.startswith("ä€ä€")
    assert "1,000,00" in lines[0].text[-30:]


def test_a_line_without_end_takes_no_more_memory_than_one_that_is_shown() -> None:
    decoder = FrameDecoder()
    part = frame(stamp(1), b"x" * PART)
    tracemalloc.start()
    for _ in range(640):  # 10 MB
        assert decoder.feed(part) == []
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held <= 5 * MAX_LINE_CHARS
    (line,) = decoder.finish()
    assert "10,485,760 bytes" in line.text


@pytest.mark.parametrize(
    ("written", "utc"),
    [
        ("2026-11-21T12:00:00.000000001Z", "2026-11-21T12:00:00.000000001Z"),
        ("2026-11-21T13:30:00.000000001+01:30", "2026-11-21T12:00:00.000000001Z"),
        ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00.000000000Z"),
        ("2026-11-21T12:00:00.25Z", "2026-11-21T12:00:00.250000000Z"),
    ],
)
def test_stamps_are_utc_with_nine_decimals(written: str, utc: str) -> None:
    assert utc_stamp(written.encode()) == utc
    assert FrameDecoder().feed(frame(written, b"x\n")) == [LogLine(utc, "x")]


def test_the_daemons_own_complaint_is_told_apart() -> None:
    with pytest.raises(DaemonReported, match="invalid character"):
        FrameDecoder().feed(b"\x03\0\0\0\0\0\0\x11invalid character")


def test_a_flood_is_decoded_well_within_its_share() -> None:
    data = b"".join(
        frame(stamp(i), b"INFO 05-21 21:03:31 [core.py:109] " + b"word " * 14 + b"\n") for i in range(40_000)
    )
    decoder, lines = FrameDecoder(), 0
    began = time.process_time()
    for at in range(0, len(data), 16_384):
        lines += len(decoder.feed(data[at : at + 16_384]))
    assert lines == 40_000
    assert time.process_time() - began < 0.6  # 20,000 lines a second at less than 30 % of a core, on a slow machine


# --- resuming ----------------------------------------------------------------------------------------

MS = 1_000_000


def what_the_daemon_sends(entries: list[tuple[int, bytes]], since: str) -> bytes:
    """The lines of that moment and later, in the order of the log."""
    wanted = [entry for entry in entries if not since or since_query(stamp(entry[0])) >= since_query(since)]
    return b"".join(frame(stamp(at), text + b"\n") for at, text in wanted)


# Time goes on, and lines stand up to 60 ms out of order: two processes write at once.
moments = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), min_size=1, max_size=20)


@settings(max_examples=400, deadline=None)
@given(moments, st.lists(st.integers(0, 900), max_size=6), st.booleans(), st.integers(1, 300))
def test_breaks_anywhere_lose_and_repeat_nothing(
    written: list[tuple[int, int]], breaks: list[int], same_text: bool, chunk: int
) -> None:
    now, entries = 100, []
    for i, (step, early) in enumerate(written):
        now += step
        entries.append(((now - early) * MS, b"same" if same_text else b"line %d" % i))
    resume, lines = ReplayFilter(), []
    for length in (*breaks, None):
        data = what_the_daemon_sends(entries, resume.since)[:length]
        decoder = FrameDecoder()
        resume.reconnect()
        for at in range(0, len(data), chunk):
            lines += resume.fresh(decoder.feed(data[at : at + chunk]))
    assert lines == [LogLine(stamp(at), text.decode()) for at, text in entries]


@given(moments, st.integers(0, 19), st.integers(0, 900))
def test_since_is_kept_through_a_break(written: list[tuple[int, int]], index: int, length: int) -> None:
    now, entries = 0, []
    for i, (step, _) in enumerate(written):
        now += step
        entries.append((now * MS, b"line %d" % i))
    floor = stamp(entries[index % len(entries)][0])
    resume, lines = ReplayFilter(floor), []
    for end in (length, None):
        resume.reconnect()
        lines += resume.fresh(FrameDecoder().feed(what_the_daemon_sends(entries, resume.since)[:end]))
    assert lines == [LogLine(stamp(at), text.decode()) for at, text in entries if stamp(at) > floor]


def test_only_the_last_moments_are_remembered() -> None:
    resume = ReplayFilter()
    for i in range(1000):
        resume.fresh([LogLine(stamp(i * 10 * MS), "x")])
    assert resume.since == stamp(9990 * MS - 100 * MS)
    assert sum(map(len, resume._recent)) <= 22


@given(st.integers(0, 4 * 10**18))
def test_stamps_and_nanoseconds_are_the_same_thing(ns: int) -> None:
    assert nanoseconds(stamp_of(ns)) == ns
    assert canonical_stamp(stamp_of(ns)) == stamp_of(ns)
