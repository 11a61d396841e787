"""`logs` with several engines, and with moments."""

from __future__ import annotations

import pytest

from spark_tui.base.errors import ExitCode
from tests.cli.world import World, example


def two() -> World:
    world = example()
    world.docker.add_container("gemma", lines=("one",))
    world.docker.write("tiny-1b", "two")
    world.docker.write("gemma", "\x1b[31mthree api_key=abcdef123456")
    return world


def test_the_lines_of_several_engines_come_by_time_with_their_names() -> None:
    rows = two().run("logs", "tiny-1b", "gemma", "GEMMA").out.splitlines()
    assert [row.split(" | ")[0].strip() for row in rows[-3:]] == ["gemma", "tiny-1b", "gemma"]
    assert [row.split(" | ")[1] for row in rows[-3:]] == ["one", "two", "three api_key=***"]


def test_json_names_the_engine_where_there_are_several() -> None:
    world = two()
    assert [line["engine"] for line in world.run("logs", "gemma", "tiny-1b", "--json").json_lines[-3:]] == [
        "gemma", "tiny-1b", "gemma"
    ]  # fmt: skip
    assert set(world.run("logs", "gemma", "--json").json_lines[0]) == {"stamp", "text"}


def test_followed_to_the_end_of_each() -> None:
    world = example()
    world.docker.add_container("gemma", lines=("one",))
    world.interrupt_when(lambda: bool(world.docker.asked("logs")))
    assert world.run("logs", "tiny-1b", "gemma", "-f").code == ExitCode.INTERRUPTED


def test_since_and_until() -> None:
    world = two()
    assert world.run("logs", "gemma", "--until", "2001-01-01T00:00:00Z").out == ""
    assert len(world.run("logs", "gemma", "--since", "start").out.splitlines()) == 2
    assert len(world.run("logs", "gemma", "--since", "2001-01-01T00:00:00Z").out.splitlines()) == 2
    assert world.run("logs", "gemma", "--since", "2999-01-01T00:00:00Z").out == ""


def test_since_ready_begins_where_it_became_ready() -> None:
    world = example()
    world.docker.write("tiny-1b", "after")
    since = world.run("logs", "tiny-1b", "--since", "ready").out.splitlines()
    assert since == ["INFO:     Application startup complete.", "after"]
    never = world.run("logs", "db", "--since", "ready")
    assert never.code == ExitCode.USAGE
    assert "--since start" in never.err


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_bad_time_says_what_is_taken(option: str) -> None:
    result = two().run("logs", "gemma", option, "soon")
    assert result.code == ExitCode.USAGE
    assert "14:05" in result.err
