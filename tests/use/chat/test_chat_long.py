"""A long conversation: what nobody looks at is not laid out, and nobody notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from spark_tui.base.engine.message import Answer
from spark_tui.tui.format import UNICODE
from spark_tui.use.chat.model.conversation import AnswerOutcome, Exchange
from spark_tui.use.chat.screen.transcript import RIGHT_MARGIN, RULE_CELLS, Transcript
from spark_tui.use.chat.screen.turn import TurnLines, turns

SIZE = (80, 24)


class Said(App[None]):
    """A transcript, and nothing else."""

    def compose(self) -> ComposeResult:
        yield Transcript(UNICODE)


def said(number: int, *, live: bool = False) -> Exchange:
    """An exchange whose length and form depend on its number; each line of it is found nowhere else."""
    lines = [f"{number}.{line} {'word ' * (number * 7 % 40)}" for line in range(number * 5 % 23)]
    text = "\n\n".join(lines) if number % 3 else f"```\n{chr(10).join(lines)}\n```"
    answer = Answer(0.0, text, reasoning=f"reason {number}\n" * (number % 4))
    return Exchange(
        number, f"question {number}", "e", "m", 1.0, answer, AnswerOutcome.LIVE if live else AnswerOutcome.COMPLETE
    )


PAST = tuple(said(number) for number in range(1, 51))


@asynccontextmanager
async def long_talk() -> AsyncIterator[tuple[Transcript, Pilot[None]]]:
    """All of it on screen, at its end."""
    app = Said()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.query_one(Transcript)
        transcript.focus()
        transcript.show(PAST)
        await pilot.pause()
        yield transcript, pilot


def seen(transcript: Transcript) -> list[str]:
    """The lines on screen."""
    return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]


def whole(transcript: Transcript) -> list[str]:
    """All lines, laid out one turn after the other."""
    layout = TurnLines(transcript.size.width - RULE_CELLS - RIGHT_MARGIN, UNICODE)
    lines: list[str] = []
    for turn in turns(PAST):
        lines += [*(f"│ {line.plain}".rstrip() for line in layout.lay(turn, open_=False).lines), ""]
    return lines[:-1]


def at(lines: list[str], part: list[str]) -> list[int]:
    """Where the part stands in the lines."""
    return [y for y in range(len(lines)) if lines[y : y + len(part)] == part]


async def test_only_the_end_is_laid_out_when_a_conversation_is_opened() -> None:
    async with long_talk() as (transcript, _):
        assert seen(transcript) == whole(transcript)[-SIZE[1] :]
        known = [laid for laid in transcript._stack.laid if not laid.rough]
        assert len(known) < 20


@pytest.mark.parametrize("key", ["pageup", "up"])
async def test_going_up_misses_and_repeats_nothing(key: str) -> None:
    async with long_talk() as (transcript, pilot):
        lines, height = whole(transcript), SIZE[1]
        place = len(lines) - height
        step = height - 1 if key == "pageup" else 1
        for _ in range(len(lines) if key == "pageup" else 60):
            if place == 0:
                break
            await pilot.press(key)
            place = max(0, place - step)
            assert place in at(lines, seen(transcript)), f"line {place}"
        assert key == "up" or place == 0


async def test_the_beginning_is_one_key_away_and_the_way_down_misses_nothing() -> None:
    async with long_talk() as (transcript, pilot):
        lines, height = whole(transcript), SIZE[1]
        await pilot.press("home")
        assert seen(transcript) == lines[:height]
        place = 0
        while place < len(lines) - height:
            await pilot.press("pagedown")
            place = min(len(lines) - height, place + height - 1)
            assert place in at(lines, seen(transcript)), f"line {place}"
        assert transcript.following


async def test_what_is_read_stays_when_an_answer_grows_and_when_the_window_changes() -> None:
    async with long_talk() as (transcript, pilot):
        for _ in range(15):
            await pilot.press("pageup")
        before = seen(transcript)
        for length in (5, 50, 500):
            growing = Exchange(500, "new", "e", "m", 1.0, Answer(0.0, "more\n\n" * length))
            transcript.show((*PAST, growing))
            await pilot.pause()
            assert seen(transcript) == before
        top = next(line for line in before if "." in line).split()[1]
        await pilot.resize_terminal(60, 30)
        await pilot.pause()
        assert any(top in line for line in seen(transcript)[:8])


async def test_all_of_it_can_be_copied() -> None:
    async with long_talk() as (transcript, pilot):
        transcript.text_select_all()
        await pilot.pause()
        text = transcript.screen.get_selected_text()
        assert text is not None
        assert [line.removeprefix("│").strip() for line in whole(transcript)] == [
            line.strip() for line in text.split("\n")
        ]


async def test_the_last_reasoning_is_found_far_above() -> None:
    async with long_talk() as (transcript, pilot):
        transcript.show((PAST[2], *(said(4 * number) for number in range(1, 40))))
        await pilot.pause()
        transcript.set_reasoning(True)
        transcript.reveal_reasoning()
        await pilot.pause()
        assert any("reason 3" in line for line in seen(transcript))


async def test_nothing_of_a_conversation_stays_when_another_is_shown() -> None:
    async with long_talk() as (transcript, pilot):
        transcript.show(PAST[:1])
        await pilot.pause()
        assert seen(transcript)[-1] == ""
        transcript.show(())
        await pilot.pause()
        assert not any(seen(transcript))
