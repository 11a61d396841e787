"""Headers of safetensors files: what they say, and what hostile ones do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.checkpoint import CheckpointProblem
from spark_tui.catalog.models.model.weights import MOST_HEADER_BYTES, SafetensorsHeader, header_length, parse_header
from tests.cases import all_cases


def packed(header: dict[str, Any] | str) -> bytes:
    body = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(body).to_bytes(8, "little") + body


def tensor(begin: int, end: int, shape: list[int], dtype: str = "BF16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {"a.weight": tensor(0, 8, [2, 2]), "b.weight": tensor(8, 12, [4], "U8"), "__metadata__": {"format": "pt"}}


def test_a_good_header() -> None:
    data = packed(GOOD)
    found = parse_header(data + b"\0" * 12, file_size=len(data) + 12)
    assert isinstance(found, SafetensorsHeader)
    assert [(t.name, t.dtype, t.shape, t.size, t.elements) for t in found.tensors] == [
        ("a.weight", "BF16", (2, 2), 8, 4),
        ("b.weight", "U8", (4,), 4, 4),
    ]
    assert found.size == 12


def test_an_unknown_dtype_is_taken_by_its_size() -> None:
    found = parse_header(packed({"a": tensor(0, 5, [2], "F99")}))
    assert isinstance(found, SafetensorsHeader)
    assert found.size == 5


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "eight bytes"),
    "length 2^63": ((2**63).to_bytes(8, "little") + b"{}", "claims 9,223,372,036,854,775,808 bytes"),
    "length of all ones": (b"\xff" * 8, "claims"),
    "truncated": (packed(GOOD)[:-5], "truncated"),
    "no JSON": (packed("not json"), "not JSON"),
    "a list": (packed("[]"), "not a JSON object"),
    "a key twice": (packed('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}'), "is no tensor"),
    "overlapping": (packed({"a": tensor(0, 8, [4]), "b": tensor(4, 12, [4])}), "overlaps"),
    "a gap": (packed({"a": tensor(0, 8, [4]), "b": tensor(10, 18, [4])}), "gap"),
    "offsets backwards": (packed({"a": tensor(8, 0, [4])}), "data_offsets"),
    "negative": (packed({"a": tensor(-8, 0, [4])}), "data_offsets"),
    "huge offsets": (packed({"a": tensor(0, 2**80, [4])}), "is no tensor"),
    "a shape that is not its size": (packed({"a": tensor(0, 8, [2**40, 2**40])}), "do not give"),
    "a shape of booleans": (packed({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}), "$.shape"),
    "a hundred dimensions": (packed({"a": tensor(0, 2, [1] * 100)}), "$.shape"),
    "`dtype`": (packed({"a": {"shape": [], "data_offsets": [0, 0]}}), "`dtype`"),
    "a tensor that is a number": (packed({"a": 1}), "is no tensor"),
    "metadata of numbers": (packed({"__metadata__": {"a": 1}}), "metadata"),
    "escape codes in a name": (packed({"\x1b[2Ja": 1}), "is no tensor"),
    "deep": (packed('{"a":' * 50_000), "nested too deeply"),
}


@all_cases("case", HOSTILE)
def test_a_hostile_header_is_a_problem_with_its_reason(case: str) -> None:
    data, says = HOSTILE[case]
    found = parse_header(data, file="x.safetensors")
    assert isinstance(found, CheckpointProblem)
    assert found.file == "x.safetensors"
    assert says in found.reason
    assert "\x1b" not in found.reason


@pytest.mark.parametrize(("missing", "says"), [(-4, "truncated"), (4, "longer")])
def test_a_file_that_its_tensors_do_not_fill_is_damaged(missing: int, says: str) -> None:
    data = packed(GOOD)
    found = parse_header(data, file_size=len(data) + 12 + missing)
    assert isinstance(found, CheckpointProblem)
    assert says in found.reason


def test_no_more_is_asked_for_than_the_bound() -> None:
    assert header_length(MOST_HEADER_BYTES.to_bytes(8, "little")) == MOST_HEADER_BYTES
    assert isinstance(header_length((MOST_HEADER_BYTES + 1).to_bytes(8, "little")), CheckpointProblem)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    assert isinstance(parse_header(data), (SafetensorsHeader, CheckpointProblem))
    assert isinstance(parse_header(len(data).to_bytes(8, "little") + data), (SafetensorsHeader, CheckpointProblem))


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 64)), unique_by=lambda item: item[0], max_size=8))
def test_tensors_without_gaps_are_taken_whatever_their_names(sizes: list[tuple[str, int]]) -> None:
    header, at = {}, 0
    for name, size in sizes:
        if name == "__metadata__":
            continue
        header[name] = tensor(at, at + size, [size], "U8")
        at += size
    data = packed(header)
    found = parse_header(data, file_size=len(data) + at)
    assert isinstance(found, SafetensorsHeader)
    assert found.size == at
