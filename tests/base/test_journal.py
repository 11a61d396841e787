"""What is about to be done is written down before it is, and belongs to one program at a time."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.files import StateFolder
from spark_tui.base.journal import Journal


class Move(Struct, frozen=True):
    name: str
    stage: str
    who: str = "us"


def journal(folder: Path) -> Journal[Move]:
    """Of a program of its own."""
    damaged = "{name} is unknown: {path} is damaged.", "rm {path}"
    busy = "{name} is moved by {who}.", "Wait."
    return Journal(StateFolder(folder), Move, "move-", attrgetter("name"), damaged=damaged, busy=busy)


def test_what_a_program_leaves_is_found_by_the_next_one_and_not_before(tmp_path: Path) -> None:
    one, other = journal(tmp_path), journal(tmp_path)
    with one.claimed("a"):
        begun = one.write(Move("a", "begun"))
        assert other.read("a") == begun
        assert other.is_claimed("a") and one.is_claimed("a")
        assert not list(other.left())
        with pytest.raises(RefusedError, match="a is moved by us"), other.claimed("a"):
            pass
        one.write(replace(begun, stage="taken"))
    assert [each.stage for each in other.left() if isinstance(each, Move)] == ["taken"]
    with other.claimed("a"):
        other.drop("a")
    assert (one.read("a"), one.names(), list(one.left())) == (None, (), [])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"name": "a"}', b'{"name": "b", "stage": "begun"}', b"\xff\xfe"]
)
def test_a_damaged_record_is_named_and_hides_no_other(content: bytes, tmp_path: Path) -> None:
    moves = journal(tmp_path)
    moves.write(Move("b", "begun"))
    StateFolder(tmp_path).write("move-a", content)
    with pytest.raises(RefusedError, match=r"a is unknown: .*move-a.json is damaged"):
        moves.read("a")
    problem, left = moves.left()
    assert isinstance(problem, SparkError)
    assert left == Move("b", "begun")
    with (
        moves.claimed("a"),
        pytest.raises(RefusedError, match="moved by another spark-tui"),
        journal(tmp_path).claimed("a"),
    ):
        pass


def test_a_record_of_another_version_is_read(tmp_path: Path) -> None:
    StateFolder(tmp_path).write("move-a", b'{"name": "a", "stage": "begun", "later": [1]}')
    assert journal(tmp_path).read("a") == Move("a", "begun")
