"""A conversation keeps what was said, shows answers at a bearable pace, and loses nothing however they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from spark_tui.base.engine.message import (
    Answer,
    AnswerFinished,
    ChatEvent,
    ChatParameters,
    ContentDelta,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
    Usage,
)
from spark_tui.base.engine.request import ChatSettings
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ContextOverflow, EngineFailed, ReplyCutOff, SparkError, UsageError
from spark_tui.use.chat.model.conversation import AnswerOutcome
from spark_tui.use.chat.model.formats import to_markdown
from spark_tui.use.chat.use.chat import FRAMES_PER_SECOND, ChatTarget, Conversation
from tests.fakes_api import FakeEngineApi, Script
from tests.fakes_host import FakeClock, settle

TARGET = ChatTarget("qwen", Endpoint("http://127.0.0.1:8000"), "qwen36")


class Talk:
    """A conversation on a scripted engine, and the snapshots of its latest answer."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeEngineApi(self.clock)
        self.conversation = Conversation(self.api, self.clock)
        self.seen: list[tuple[float, Answer]] = []
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    def ask(self, question: str = "Hello?", *script: Script, target: ChatTarget = TARGET) -> None:
        """Asks, and reads the answer in the background."""
        self.api.scripts.extend(script)
        self.seen, self.error = [], None
        self.task = asyncio.create_task(self._read(self.conversation.ask(question, target)))

    async def _read(self, answers: AsyncGenerator[Answer, None]) -> None:
        try:
            async with aclosing(answers):
                async for answer in answers:
                    self.seen.append((self.clock.monotonic(), answer))
        except SparkError as error:
            self.error = error

    async def asked(self, question: str = "Hello?", *script: Script, target: ChatTarget = TARGET) -> Answer:
        """Asks, and lets the answer come to its end."""
        self.ask(question, *script, target=target)
        await self.clock.until(lambda: not self.conversation.live)
        await settle()
        return self.seen[-1][1]

    def sent(self) -> tuple[Message, ...]:
        """The messages of the latest request."""
        return self.api.requests[-1][1].messages


def words(count: int, pause: float) -> list[ChatEvent | float]:
    """A script: a word every `pause` seconds."""
    return [part for number in range(count) for part in (pause, ContentDelta(f"w{number} "))]


# --- an answer ------------------------------------------------------------------------------------------


async def test_an_answer_comes_with_its_times_and_counts() -> None:
    talk = Talk()
    script = [0.5, ContentDelta("Hi"), 0.25, ContentDelta("!"), 0.25, AnswerFinished("stop"), Usage(9, 21)]
    answer = await talk.asked("Hello?", script)
    assert answer.content == "Hi!"
    assert answer.ttft == pytest.approx(0.5)
    assert answer.decode_tokens_per_second == pytest.approx(20 / 0.5)
    exchange = talk.conversation.last
    assert exchange is not None
    assert (exchange.question, exchange.engine, exchange.model) == ("Hello?", "qwen", "qwen36")
    assert exchange.outcome is AnswerOutcome.COMPLETE
    assert exchange.answer == answer
    assert talk.error is None
    assert talk.conversation.exchanges[0] is exchange, "a finished exchange is the same object each time"


async def test_snapshots_come_at_a_bearable_pace_and_the_last_one_is_whole() -> None:
    talk = Talk()
    answer = await talk.asked("Count", [*words(300, 0.01), AnswerFinished("stop"), Usage(9, 300)])  # 100 tok/s for 3 s
    seconds = 3.0
    assert len(talk.seen) <= seconds * FRAMES_PER_SECOND + 2
    assert len(talk.seen) >= seconds * FRAMES_PER_SECOND * 0.7
    assert answer.content.split() == [f"w{number}" for number in range(300)]
    assert answer.usage == Usage(9, 300)


@pytest.mark.parametrize(
    ("script", "at", "seen"),
    [
        ([2.0, ContentDelta("Hi"), 60.0, AnswerFinished("stop")], 2.0, "Hi"),
        ([ContentDelta("a"), 0.001, ContentDelta("b"), 600.0, ContentDelta("c")], 0.2, "ab"),
    ],
    ids=["the first token", "before a silence"],
)
async def test_what_came_is_shown_at_once(script: Script, at: float, seen: str) -> None:
    talk = Talk()
    talk.ask("Hello?", script)
    assert talk.conversation.exchanges[-1].question == "Hello?"
    assert talk.conversation.live
    with pytest.raises(UsageError):  # one answer at a time
        talk.conversation.ask("And?", TARGET)
    await talk.clock.advance(at)
    assert talk.seen[-1][1].content == seen
    await talk.conversation.close()


async def test_an_answer_that_nobody_reads_comes_all_the_same() -> None:
    talk = Talk()
    talk.api.scripts.append([1.0, ContentDelta("Hi"), AnswerFinished("stop")])
    unread = talk.conversation.ask("Hello?", TARGET)
    await talk.clock.until(lambda: not talk.conversation.live)
    assert talk.conversation.exchanges[-1].answer.content == "Hi"
    assert [answer.content async for answer in unread] == ["Hi"]


# --- the end of an answer -------------------------------------------------------------------------------


async def test_stop_is_immediate_keeps_the_part_that_came_and_closes_the_connection() -> None:
    talk = Talk()
    talk.ask("Count", [*words(100, 0.1)])
    await talk.clock.advance(1.05)
    assert talk.api.open_streams == 1
    assert talk.conversation.stop()
    exchange = talk.conversation.exchanges[-1]
    assert exchange.stopped
    assert exchange.answer.content.split()[-1] == "w9"
    await settle()
    assert talk.api.open_streams == 0
    assert talk.task is not None
    assert talk.task.done()
    assert talk.error is None
    assert talk.seen[-1][1] == exchange.answer
    await talk.clock.advance(60.0)
    assert talk.conversation.exchanges[-1] is exchange
    assert not talk.conversation.stop()


@pytest.mark.parametrize("how", ["reader cancelled", "conversation closed", "before the first token"])
async def test_an_answer_is_stopped_and_its_connection_closed(how: str) -> None:
    talk = Talk()
    talk.ask("Count", [1.0, ContentDelta("a"), Usage(9, 1), 1.0, ContentDelta("b"), Usage(9, 4), 90.0])
    if how == "before the first token":
        talk.conversation.stop()  # not even the request is on its way
    else:
        await talk.clock.advance(5.0)
    if how == "reader cancelled" and talk.task is not None:
        talk.task.cancel()
    await settle()
    await talk.conversation.close()
    assert talk.api.open_streams == 0
    exchange = talk.conversation.exchanges[-1]
    assert exchange.stopped
    if how != "before the first token":
        assert (exchange.answer.content, exchange.answer.usage) == ("ab", Usage(9, 4))
        assert exchange.answer.decode_tokens_per_second == pytest.approx(3.0)


async def test_closing_the_generator_stops_the_answer() -> None:
    talk = Talk()
    talk.api.scripts.append([ContentDelta("a"), 60.0, ContentDelta("b")])
    async with aclosing(talk.conversation.ask("Hello?", TARGET)) as answers:
        assert (await anext(answers)).content == "a"
    assert talk.conversation.exchanges[-1].stopped
    assert talk.api.open_streams == 0


@pytest.mark.parametrize(
    "failure", [ReplyCutOff("cut", "again"), EngineFailed("boom", "log"), ContextOverflow("long", "new")]
)
async def test_an_error_keeps_what_arrived_and_is_raised_after_it(failure: SparkError) -> None:
    talk = Talk()
    answer = await talk.asked("Hello?", [0.1, ContentDelta("Half an ans"), failure])
    assert answer.content == "Half an ans"
    assert talk.error is failure
    exchange = talk.conversation.exchanges[-1]
    assert exchange.outcome is AnswerOutcome.FAILED
    assert exchange.error is failure
    assert exchange.answer == answer


async def test_a_fault_of_ours_is_raised_as_it_is_and_ends_the_answer() -> None:
    talk = Talk()
    talk.api.scripts.append([ContentDelta("a"), ZeroDivisionError("ours")])
    with pytest.raises(ZeroDivisionError):
        [answer async for answer in talk.conversation.ask("Hello?", TARGET)]
    exchange = talk.conversation.exchanges[-1]
    assert exchange.outcome is AnswerOutcome.FAILED
    assert exchange.error is not None
    assert "ours" in exchange.error.detail


async def test_an_answer_without_end_does_not_fill_the_memory() -> None:
    talk = Talk()
    talk.conversation = Conversation(talk.api, talk.clock, max_answer_chars=1000)
    answer = await talk.asked("Go on", [ContentDelta("x" * 300)] * 10)
    assert len(answer.content) == 1200
    assert isinstance(talk.error, EngineFailed)
    assert "max tokens" in talk.error.remedy


# --- what is sent ---------------------------------------------------------------------------------------


async def test_the_conversation_so_far_is_sent_with_the_system_prompt_first() -> None:
    talk = Talk()
    talk.conversation.settings = ChatSettings("Be brief.")
    await talk.asked("One", [ReasoningDelta("hm"), ContentDelta("1"), ReplyCutOff("cut", "again")])
    talk.conversation.settings = ChatSettings("Be brief.", ChatParameters(temperature=0.1))
    await talk.asked("Two")
    assert [request.parameters.temperature for _, request in talk.api.requests] == [None, 0.1]
    assert talk.sent() == (
        Message(Role.SYSTEM, "Be brief."),
        Message(Role.USER, "One"),
        Message(Role.ASSISTANT, "1"),
        Message(Role.USER, "Two"),
    )


async def test_each_question_goes_to_the_engine_of_its_time() -> None:
    talk = Talk()
    await talk.asked("One")
    await talk.asked("Two", target=ChatTarget("gpt", Endpoint("http://127.0.0.1:9000"), "gpt-oss"))
    assert [(endpoint.base_url, request.model) for endpoint, request in talk.api.requests] == [
        ("http://127.0.0.1:8000", "qwen36"),
        ("http://127.0.0.1:9000", "gpt-oss"),
    ]
    assert [exchange.engine for exchange in talk.conversation.exchanges] == ["qwen", "gpt"]


@pytest.mark.parametrize(
    "script",
    [
        [EngineFailed("boom", "log")],
        [ReasoningDelta("only thoughts"), AnswerFinished("length")],
        [ToolCallDelta(0, "c", "f", "{"), EngineFailed("boom", "log")],
        [ContentDelta(" \n"), AnswerFinished("stop")],
    ],
    ids=["error", "reasoning", "broken tool call", "blank"],
)
async def test_a_question_without_an_answer_is_not_sent_again(script: Script) -> None:
    talk = Talk()
    await talk.asked("One", script)
    await talk.asked("Two")
    assert talk.sent() == (Message(Role.USER, "Two"),)


async def test_the_last_question_is_taken_back_to_ask_it_again() -> None:
    talk = Talk()
    await talk.asked("One")
    talk.ask("Two", [*words(100, 0.1)])
    await talk.clock.advance(1.0)
    first_numbers = [exchange.number for exchange in talk.conversation.exchanges]
    assert talk.conversation.cut(first_numbers[-1]) == "Two"
    assert [exchange.question for exchange in talk.conversation.exchanges] == ["One"]
    await talk.asked("Two")
    assert talk.conversation.exchanges[-1].number not in first_numbers
    assert talk.api.open_streams == 0
    assert talk.conversation.cut(first_numbers[-1]) == "", "it is not there any more"


# --- on paper -------------------------------------------------------------------------------------------


async def test_a_conversation_becomes_a_document() -> None:
    talk = Talk()
    talk.conversation.settings = ChatSettings("Be brief.")
    script = [0.5, ReasoningDelta("Let me\nsee."), 1.0, ContentDelta("**42**"), 0.5, AnswerFinished("stop")]
    await talk.asked("What is it?", [*script, Usage(9, 31, 20, 8)])
    await talk.asked("Sure?", [ContentDelta("Ye"), ReplyCutOff("The answer broke off.", "Ask again.")])
    assert to_markdown(talk.conversation.exchanges, system=talk.conversation.settings.system) == (
        "# Conversation with `qwen36` on `qwen`\n\n"
        "Begun 2027-01-15 08:00 UTC.\n\n"
        "## System\n\nBe brief.\n\n"
        "## You\n\nWhat is it?\n\n"
        "## `qwen36`\n\n"
        "> *Reasoned for 1.0 s, 20 tokens*\n>\n> Let me\n> see.\n\n"
        "**42**\n\n"
        "*ttft 0.50 s, 20.0 tok/s, 31 tokens (20 reasoning), prompt 9 (8 cached)*\n\n"
        "## You\n\nSure?\n\n"
        "## `qwen36`\n\n"
        "Ye\n\n"
        "**Error:** The answer broke off. Ask again.\n\n"
        "*failed, ttft 0.00 s*\n"
    )


async def test_hostile_text_on_paper_is_only_text() -> None:
    talk = Talk()
    await talk.asked("```py\nopen", [ContentDelta("\x1b]0;owned\x07~~~~\ncode \ud800"), AnswerFinished("length")])
    await talk.asked("Tool?", [ToolCallDelta(0, "c", "f`\x1b[2J", '{"a": "```"}'), AnswerFinished("tool_calls")])
    await talk.asked("Hello?", [AnswerFinished("stop")])
    text = to_markdown(talk.conversation.exchanges)
    assert "*(no answer)*" in text
    assert "\x1b" not in text
    assert text.encode()
    assert "```py\nopen\n```\n" in text
    assert "~~~~\ncode \ufffd\n~~~~\n" in text
    assert "cut at the token limit" in text
    assert "Asks for tool `f'`:" in text
    assert '````json\n{\n  "a": "```"\n}\n````' in text
