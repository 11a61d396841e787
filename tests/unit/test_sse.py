"""Server-sent events come out the same wherever the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.sse import EventTooLong, SseDecoder


def decode(*chunks: bytes) -> list[str]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b": ping\n\nevent: x\nid: 7\ndata:a\n\n", ["a"]),
        (b"data:  two blanks\n\n", [" two blanks"]),
        (b"data\n\n", [""]),
        (b"\n\n\n", []),
        (b"data: cut off\n", []),
        (b"data: \xff\n\n", ["\ufffd"]),
    ],
)
def test_an_event_is_what_the_standard_says(raw: bytes, events: list[str]) -> None:
    assert decode(raw) == events
    assert decode(*(raw[i : i + 1] for i in range(len(raw)))) == events


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_cuts_make_no_difference(noise: bytes, cuts: list[int]) -> None:
    raw = b"data: x\r\n\r\n" + noise.replace(b"n", b"\n").replace(b"r", b"\r").replace(b"d", b"data: ") + b"\n\n"
    places = sorted({0, *(cut for cut in cuts if cut < len(raw)), len(raw)})
    pieces = [raw[a:b] for a, b in pairwise(places)]
    assert decode(*pieces) == decode(raw)


def test_an_endless_event_is_refused_and_not_kept() -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    with pytest.raises(EventTooLong):
        for _ in range(100):
            list(decoder.feed(b"x" * 100))
    decoder = SseDecoder(max_event_bytes=1000)
    with pytest.raises(EventTooLong):
        for _ in range(100):
            list(decoder.feed(b"data: " + b"x" * 100 + b"\n"))
