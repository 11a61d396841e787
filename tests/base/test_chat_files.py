"""Tools, pictures and sounds that a person hands over: read strictly, refused with a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.message import Attachment, MediaKind, ToolSpec
from spark_tui.base.engine.request import (
    MOST_BYTES,
    attachment_of,
    check_taken,
    check_together,
    kind_of,
    tools_from,
)
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from tests.cases import all_cases

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": {"type": "object"}},
}
SPEC = ToolSpec("weather", "of a city", '{"type": "object"}')
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.mark.parametrize(
    "told",
    [[WEATHER], {"tools": [WEATHER]}, WEATHER, [WEATHER["function"]]],
    ids=["list", "request", "single", "bare"],
)
def test_tools_are_read_as_people_keep_them(told: object) -> None:
    assert tools_from(json.dumps(told)) == (SPEC,)


@all_cases(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[]", "no tools"),
        ("3", "no tools"),
        ("[3]", "tool 1 is not an object"),
        ('[{"name": "a b"}]', "no name of a tool"),
        ('[{"name": 3}]', "no name of a tool"),
        ('[{"name": "a", "parameters": "x"}]', "not a JSON schema"),
        ('[{"name": "a", "description": 1}]', "`description`"),
        ('[{"function": 1}]', "`function`"),
        ('[{"name": "a"}, {"name": "a"}]', "two tools are called a"),
        (json.dumps([{"name": f"t{n}"} for n in range(200)]), "200 tools"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_tools_that_cannot_be_used_are_named(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        tools_from(text, "tools.json")
    assert caught.value.summary.startswith("tools.json")


@given(st.text(max_size=60))
def test_any_text_gives_tools_or_a_usage_error(text: str) -> None:
    try:
        tools_from(text)
    except UsageError as error:
        assert error.remedy


@pytest.mark.parametrize(
    ("data", "kind", "media_type"),
    [
        (PNG, MediaKind.IMAGE, "image/png"),
        (b"\xff\xd8\xff\xe0", MediaKind.IMAGE, "image/jpeg"),
        (b"GIF89a..", MediaKind.IMAGE, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", MediaKind.IMAGE, "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", MediaKind.AUDIO, "audio/wav"),
        (b"ID3\x03", MediaKind.AUDIO, "audio/mp3"),
        (b"fLaC....", MediaKind.AUDIO, "audio/flac"),
        (b"OggS....", MediaKind.AUDIO, "audio/ogg"),
    ],
)
def test_a_file_is_known_by_its_bytes_and_not_by_its_name(data: bytes, kind: MediaKind, media_type: str) -> None:
    assert attachment_of(data, "x.txt") == Attachment(kind, media_type, "x.txt", data)


@pytest.mark.parametrize("data", [b"", b"hello", b"RIFF\0\0\0\0AVI ", b"%PDF-1.7", b"<svg/>"])
def test_other_files_are_refused_with_what_can_be_sent(data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        attachment_of(data, "a\x1b[2Jb.png")
    assert "PNG" in caught.value.remedy
    assert "\x1b" not in caught.value.summary


@given(st.binary(max_size=40))
def test_no_bytes_break_the_look(data: bytes) -> None:
    kind_of(data)


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"20\.0 MiB are the most for an image"):
        attachment_of(PNG + bytes(MOST_BYTES[MediaKind.IMAGE]), "big.png")


def test_many_files_are_refused_together() -> None:
    picture = attachment_of(PNG, "a.png")
    check_together((picture,) * 16)
    with pytest.raises(RefusedError, match="too many"):
        check_together((picture,) * 17)
    big = Attachment(MediaKind.IMAGE, "image/png", "b", bytes(20 * 1024**2))
    with pytest.raises(RefusedError, match="together"):
        check_together((big,) * 4)


def test_a_model_that_takes_no_pictures_is_not_sent_any() -> None:
    picture = attachment_of(PNG, "a.png")
    check_taken((picture,), ("text", "image"), "m")
    check_taken((picture,), (), "nobody knows")
    with pytest.raises(SparkError, match="m does not take images: it takes text") as caught:
        check_taken((picture,), ("text",), "m")
    assert "Nothing was sent" in caught.value.remedy
