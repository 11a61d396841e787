"""Server-sent events come out the same wherever the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.answer import EventTooLong, SseDecoder
from tests.cases import all_cases


def decode(*chunks: bytes, limit: int = 10_000) -> list[str]:
    """The events, and `too long` where the decoder refused to go on."""
    decoder, events = SseDecoder(limit), list[str]()
    try:
        for chunk in chunks:
            events.extend(decoder.feed(chunk))  # what came before the refusal is kept
    except EventTooLong:
        events.append("too long")
    return events


def pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, *(cut for cut in cuts if cut < len(raw)), len(raw)})
    return [raw[a:b] for a, b in pairwise(places)]


@all_cases(
    ("raw", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\r\n\ndata: b\n\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", ["a"]),
        (b": ping\n\nevent: x\nid: 7\ndata:a\n\n", ["a"]),
        (b"data:  two blanks\n\n", [" two blanks"]),
        (b"data\n\n", [""]),
        (b"\n\n\n", []),
        (b"data: cut off\n", []),
        (b"data: \xff\n\n", ["\ufffd"]),
        ("data: a\u2028b\x0bc\x1cd\u0085e\n\n".encode(), ["a\u2028b\x0bc\x1cd\u0085e"]),
        (b'error: {"code":500}\n\n', ['{"error":{"code":500}}']),
    ],
)
def test_an_event_is_what_the_standard_says(raw: bytes, events: list[str]) -> None:
    assert decode(raw) == events
    assert decode(*(raw[i : i + 1] for i in range(len(raw)))) == events


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_cuts_make_no_difference(noise: bytes, cuts: list[int]) -> None:
    raw = b"data: x\r\n\r\n" + noise.replace(b"n", b"\n").replace(b"r", b"\r").replace(b"d", b"data: ") + b"\n\n"
    assert decode(*pieces(raw, cuts)) == decode(raw)


@given(
    st.lists(st.tuples(st.sampled_from([b"data: ", b": ", b"data:"]), st.integers(0, 30)), max_size=12),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_the_limit_does_not_depend_on_the_cuts(lines: list[tuple[bytes, int]], cuts: list[int]) -> None:
    raw = b"".join(name + b"x" * size + (b"\n\n" if size % 2 else b"\n") for name, size in lines) + b"\n"
    assert decode(*pieces(raw, cuts), limit=40) == decode(raw, limit=40)


@pytest.mark.parametrize("chunk", [b"x" * 100, b"data: " + b"x" * 100 + b"\n", b"data\n" * 20])
def test_an_endless_event_is_refused(chunk: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    with pytest.raises(EventTooLong, match="1000 B"):
        for _ in range(100):
            list(decoder.feed(chunk))


def test_what_came_before_the_endless_event_is_kept() -> None:
    assert decode(b"data: a\n\n" + b"x" * 20_000) == ["a", "too long"]


def test_many_short_events_are_no_long_event() -> None:
    assert decode(*[b"data: " + b"x" * 90 + b"\n\n"] * 100, limit=100) == ["x" * 90] * 100
