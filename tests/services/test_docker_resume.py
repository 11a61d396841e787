"""Where a log goes on after a break: every line once, whatever the stamps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.services.docker.logs import FrameDecoder, Resume, canonical_stamp, nanoseconds, since_query, stamp_of
from spark_tui.services.ports import LogLine
from tests.services.fake_docker import frame, stamp

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
    resume, lines = Resume(), []
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
    resume, lines = Resume(floor), []
    for end in (length, None):
        resume.reconnect()
        lines += resume.fresh(FrameDecoder().feed(what_the_daemon_sends(entries, resume.since)[:end]))
    assert lines == [LogLine(stamp(at), text.decode()) for at, text in entries if stamp(at) > floor]


def test_only_the_last_moments_are_remembered() -> None:
    resume = Resume()
    for i in range(1000):
        resume.fresh([LogLine(stamp(i * 10 * MS), "x")])
    assert resume.since == stamp(9990 * MS - 100 * MS)
    assert sum(map(len, resume._recent)) <= 22


@given(st.integers(0, 4 * 10**18))
def test_stamps_and_nanoseconds_are_the_same_thing(ns: int) -> None:
    assert nanoseconds(stamp_of(ns)) == ns
    assert canonical_stamp(stamp_of(ns)) == stamp_of(ns)
