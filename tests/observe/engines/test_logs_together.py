"""Logs of all running engines by time, and the jump to a moment."""

from __future__ import annotations

import pytest

from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.explain.use import MergedLog
from tests.log_fixtures import read_log
from tests.tui.kit import QWEN, Sight, kit_of, seen

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"


def pager(sight: Sight) -> LogView:
    return sight.app.screen.query_one(LogView)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_all_engines_in_one_log_each_line_with_its_engine(size: tuple[int, int]) -> None:
    kit = kit_of(QWEN)
    for name in ("qwen", "gemma"):
        kit.docker.add_container(name)
    kit.docker.write("qwen", "first")
    kit.docker.write("gemma", "[b]second[/b]\x1b[2J")
    kit.docker.write("qwen", "third")
    async with seen(kit, size, "4") as sight:
        await sight.press("A")
        await sight.until_seen("first", "second", "third")
        rows = [row for row in sight.text.splitlines() if any(word in row for word in ("first", "second", "third"))]
        assert [row.split()[1] for row in rows] == ["qwen", "gemma", "qwen"]
        assert "[b]second[/b]" in rows[1]
        kit.docker.write("gemma", "fourth")
        await sight.until_seen("fourth")
        await sight.press("A")
        assert not isinstance(pager(sight).pager.buffer, MergedLog)


async def test_findings_of_each_engine_are_visited() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=read_log(GB10))
    kit.docker.add_container("gemma", lines=("hello", "world"))
    kit.api.serve()
    async with seen(kit, (120, 36), "4") as sight:
        await sight.press("A")
        await sight.until_seen("engines by time", "finding")
        await sight.press("N")
        buffer, cursor = pager(sight).pager.buffer, pager(sight).pager.cursor
        assert isinstance(buffer, MergedLog)
        assert cursor is not None
        assert buffer.names[buffer.owner(cursor)] == "qwen"
        headings = pager(sight)._painter.headers
        assert all(text.startswith(f"{buffer.names[buffer.owner(line)]}  ") for line, text in headings.items())
        assert "qwen  Config  0.0s" in headings.values()


async def test_with_one_engine_the_key_says_so() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=("hello",))
    async with seen(kit, (80, 24), "4") as sight:
        await sight.until_seen("hello")
        await sight.press("A")
        assert [notice.severity for notice in sight.app._notifications] == ["information"]
        assert not isinstance(pager(sight).pager.buffer, MergedLog)


async def test_a_moment_is_gone_to_and_a_bad_one_is_refused() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=read_log(GB10))
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until(lambda: len(pager(sight).pager.buffer) > 100)
        await sight.press("at")
        await sight.type("soon")
        await sight.press("enter")
        assert [notice.severity for notice in sight.app._notifications] == ["warning"]
        assert pager(sight).pager.following
        await sight.press(*["backspace"] * 4)
        await sight.type("start")
        await sight.press("enter")
        assert pager(sight).pager.cursor == 0
        assert pager(sight).has_focus
        await sight.press("at")
        await sight.type("-1s")
        await sight.press("enter")
        assert (pager(sight).pager.cursor or 0) > 0
