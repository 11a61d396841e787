"""Conversations are written down while they go on, and can be edited, gone on with and trimmed."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.message import (
    Answer,
    AnswerFinished,
    Attachment,
    ChatParameters,
    ContentDelta,
    MediaKind,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
    Usage,
)
from spark_tui.base.engine.metrics_page import Family, MetricPage, SeriesPart, Slot, page_of
from spark_tui.base.engine.request import ChatSettings
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ApiKeyRejected, EngineUnreachable, RefusedError, ReplyCutOff, SparkError, UsageError
from spark_tui.base.secret import Secret
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts, RequiredFile
from spark_tui.use.chat.adapter import FileConversations
from spark_tui.use.chat.model import records
from spark_tui.use.chat.model.conversation import AnswerOutcome, EngineSide, Exchange, UserInput, history
from spark_tui.use.chat.use.chat import ChatTarget, Conversation, advised, engine_side
from spark_tui.use.chat.use.conversations import Conversations
from tests.fakes_api import FakeEngineApi, MemoryFiles, Script
from tests.fakes_files import OwnConversations
from tests.fakes_host import FakeClock, settle
from tests.kit import FixedPresets

ENDPOINT = Endpoint("http://127.0.0.1:8000")
TARGET = ChatTarget("spark", ENDPOINT, "qwen", 4096)
PICTURE = Attachment(MediaKind.IMAGE, "image/png", "a.png", b"\x89PNG\r\n\x1a\n")
CALL = (ToolCallDelta(0, "c1", "weather", '{"city": "Bern"}'), AnswerFinished("tool_calls"))


class Kept:
    """Conversations on fakes."""

    def __init__(self, *presets: Preset) -> None:
        self.clock = FakeClock()
        self.api = FakeEngineApi(self.clock)
        self.store = OwnConversations()
        self.files = MemoryFiles()
        self.conversations = self.opened(*presets)

    def opened(self, *presets: Preset) -> Conversations:
        """As when the program is opened once more."""
        return Conversations(
            self.api, self.clock, FixedPresets(*presets), Path("/store"), store=self.store, files=self.files
        )

    async def run(self, answers: Any) -> SparkError | None:
        """Reads an answer to its end."""
        try:
            async with aclosing(answers):
                async for _ in answers:
                    pass
        except SparkError as error:
            return error
        return None

    async def ask(self, conversation: Conversation, question: str, *script: Script, **more: Any) -> SparkError | None:
        self.api.scripts.extend(script)
        error = await self.run(conversation.ask(question, TARGET, **more))
        await conversation.journal.flush() if conversation.journal else None
        return error

    def sent(self) -> list[tuple[str, str]]:
        return [(m.role.value, m.content) for m in self.api.requests[-1][1].messages]


def said(conversation: Conversation) -> list[tuple[str, str]]:
    return [(each.question, each.answer.content) for each in conversation.exchanges]


def same(one: tuple[Exchange, ...], other: tuple[Exchange, ...]) -> bool:
    """But for the clock that times are told on."""
    return [(e.question, e.answer.content, e.answer.usage, e.answer.ttft, e.outcome, e.settings) for e in one] == [
        (e.question, e.answer.content, e.answer.usage, e.answer.ttft, e.outcome, e.settings) for e in other
    ]


# --- written down -------------------------------------------------------------------------------------------


async def test_a_conversation_comes_back_with_answers_settings_timings_and_pictures() -> None:
    kept = Kept()
    conversation = kept.conversations.new(ChatSettings("Be brief.", ChatParameters(temperature=0.5)))
    await kept.ask(
        conversation, "Why?", [ContentDelta("So."), AnswerFinished("stop"), Usage(9, 3)], attachments=(PICTURE,)
    )
    conversation.settings = ChatSettings("Be long.")
    await kept.ask(conversation, "And?", [ContentDelta("Half"), ReplyCutOff("It broke.", "Again.")])
    await conversation.close()
    back = await kept.opened().open("last")
    assert same(back.exchanges, conversation.exchanges)
    assert back.exchanges[0].attachments == (PICTURE,)
    assert back.exchanges[0].settings.parameters.temperature == 0.5
    assert back.exchanges[1].limit == 4096
    assert str(back.exchanges[1].error) == "It broke. Again."
    assert (back.title, back.settings.system) == ("Why?", "Be long.")
    [summary] = await kept.conversations.summaries()
    assert await FileConversations(kept.store.place).claim(summary.id), "it is free again"


async def test_nothing_is_written_before_something_is_said() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    await conversation.close()
    assert kept.store.ids == set()
    private = kept.conversations.new(keep=False)
    await kept.ask(private, "Secret?")
    assert kept.store.ids == set()
    assert private.id == ""


async def test_an_answer_is_written_while_it_comes() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    script = [part for n in range(10) for part in (1.0, ReasoningDelta("r") if n < 4 else ContentDelta(f"w{n} "))]
    kept.api.scripts.append([*script, 600.0])
    conversation.ask("Count", TARGET)
    await kept.clock.advance(9.5)
    await settle()
    [thread_id] = kept.store.ids
    killed = await kept.store.read(thread_id)
    assert killed.exchanges[0].answer.content.startswith("w4 w5")
    assert killed.exchanges[0].answer.reasoning == "rrrr"
    assert killed.exchanges[0].outcome is AnswerOutcome.FAILED
    conversation.stop()
    await conversation.close()
    whole = (await kept.store.read(thread_id)).exchanges[0]
    assert whole.answer.content == conversation.exchanges[0].answer.content
    assert whole.outcome is AnswerOutcome.STOPPED


async def test_a_disk_that_is_full_stops_nothing_and_is_caught_up_with() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    assert conversation.journal is not None
    with kept.store.barred():
        await kept.ask(conversation, "One")
        assert conversation.journal.error is not None
        await kept.ask(conversation, "Two")
    await kept.ask(conversation, "Three")
    assert conversation.journal.error is None
    assert same((await kept.store.read(conversation.id)).exchanges, conversation.exchanges)


async def test_where_another_process_writes_a_copy_is_begun() -> None:
    kept = Kept()
    first = kept.conversations.new()
    await kept.ask(first, "One", [ContentDelta("1"), AnswerFinished("stop")], attachments=(PICTURE,))
    await first.close()
    assert await FileConversations(kept.store.place).claim(first.id)
    second = await kept.opened().open(first.id)
    await kept.ask(second, "Two")
    assert second.journal is not None
    assert second.journal.moved_from == first.id
    assert second.id != first.id
    assert len((await kept.store.read(first.id)).exchanges) == 1
    copy = await kept.store.read(second.id)
    assert [each.question for each in copy.exchanges] == ["One", "Two"]
    assert (copy.title, copy.parent) == ("One (copy)", first.id)
    assert copy.exchanges[0].attachments == (PICTURE,)


# --- change -------------------------------------------------------------------------------------------------


async def test_a_question_is_edited_in_its_place_and_what_followed_is_taken_back() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    for question in ("One", "Two", "Three"):
        await kept.ask(conversation, question, [ContentDelta(question.lower()), AnswerFinished("stop")])
    kept.api.scripts.append([ContentDelta("zwei"), AnswerFinished("stop")])
    await kept.run(conversation.edit(2, "Zwei", TARGET))
    assert said(conversation) == [("One", "one"), ("Zwei", "zwei")]
    assert kept.sent() == [("user", "One"), ("assistant", "one"), ("user", "Zwei")]
    await conversation.close()
    assert said(await kept.opened().open("last")) == said(conversation)
    with pytest.raises(UsageError, match="no exchange 2"):
        conversation.edit(2, "x", TARGET)


async def test_a_retry_after_a_lost_connection_is_no_second_turn() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    error = await kept.ask(conversation, "Why?", [ContentDelta("Ha"), EngineUnreachable("Gone.", "Start it.")])
    assert isinstance(error, EngineUnreachable)
    kept.api.scripts.append([EngineUnreachable("Gone.", "Start it.")])
    assert await kept.run(conversation.regenerate(TARGET)) is not None
    kept.api.scripts.append([ContentDelta("Because."), AnswerFinished("stop")])
    assert await kept.run(conversation.regenerate(TARGET)) is None
    assert said(conversation) == [("Why?", "Because.")]
    assert kept.sent() == [("user", "Why?")]
    await conversation.close()
    assert said(await kept.opened().open("last")) == [("Why?", "Because.")]


@pytest.mark.parametrize("how", ["stopped", "cut", "broken"])
async def test_an_answer_goes_on_where_it_ended(how: str) -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    ends: dict[str, list[Any]] = {
        "stopped": [600.0],
        "cut": [AnswerFinished("length")],
        "broken": [ReplyCutOff("x", "y")],
    }
    kept.api.scripts.append([1.0, ReasoningDelta("hm"), ContentDelta("Once upon"), *ends[how]])
    conversation.ask("Tell", TARGET)
    await kept.clock.advance(2.0)
    conversation.stop()
    kept.api.scripts.append([1.0, ContentDelta(" a time"), AnswerFinished("stop"), Usage(20, 3)])
    answers = conversation.go_on(TARGET)
    await kept.clock.advance(2.0)
    await kept.run(answers)
    request = kept.api.requests[-1][1]
    assert request.go_on
    assert request.messages == (Message(Role.USER, "Tell"), Message(Role.ASSISTANT, "Once upon", "hm"))
    assert request.parameters.thinking is False
    [exchange] = conversation.exchanges
    assert (exchange.answer.content, exchange.answer.reasoning) == ("Once upon a time", "hm")
    assert exchange.answer.ttft == pytest.approx(1.0)
    assert exchange.settings.parameters.thinking is None
    await conversation.close()
    [back] = (await kept.opened().open("last")).exchanges
    assert (back.answer.content, back.answer.carried) == ("Once upon a time", 9)
    with pytest.raises(UsageError, match="came to its end"):
        conversation.go_on(TARGET)


async def test_a_failed_continuation_loses_nothing_and_reasoning_alone_cannot_continue() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    await kept.ask(conversation, "Tell", [ContentDelta("Once"), AnswerFinished("length")])
    kept.api.scripts.append([EngineUnreachable("Gone.", "Start it.")])
    await kept.run(conversation.go_on(TARGET))
    assert said(conversation) == [("Tell", "Once")]
    assert conversation.exchanges[0].unfinished
    await kept.ask(conversation, "Other", [ReasoningDelta("only"), AnswerFinished("length")])
    with pytest.raises(UsageError, match="only reasoning"):
        conversation.go_on(TARGET)


async def test_tool_calls_are_kept_and_sent_as_text_with_the_next_question() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    await kept.ask(conversation, "Weather?", list(CALL))
    await kept.ask(conversation, "22 C")
    assert kept.sent() == [("user", "Weather?"), ("assistant", 'weather({"city": "Bern"})'), ("user", "22 C")]
    await conversation.close()
    [call] = (await kept.opened().open("last")).exchanges[0].answer.tool_calls
    assert (call.name, call.arguments) == ("weather", '{"city": "Bern"}')


async def test_tool_results_of_an_earlier_version_are_sent_asked_again_and_left_in_their_file() -> None:
    kept = Kept()
    first = kept.conversations.new()
    await kept.ask(first, "Weather?", list(CALL))
    await first.close()
    answered = Exchange(2, "", "spark", "qwen", 1.0, Answer(0.0, "Sunny."), AnswerOutcome.COMPLETE)
    results = {"tool_answers": [{"call_id": "c1", "name": "weather", "content": "22 C"}]}
    await kept.store.append(first.id, [records.asked(answered, ()) | results, records.answered(answered)])
    file = kept.store.place / f"{first.id}.jsonl"
    before = file.read_bytes()
    conversation = await kept.opened().open(first.id)
    assert said(conversation) == [("Weather?", ""), ("Result of weather:\n22 C", "Sunny.")]
    assert file.read_bytes() == before
    await kept.ask(conversation, "Thanks")
    assert file.read_bytes().startswith(before)
    assert [role for role, _ in kept.sent()] == ["user", "assistant", "user", "assistant", "user"]
    await conversation.close()
    back = await kept.opened().open("last")
    sent = [history(each.exchanges, each.settings, UserInput("x")) for each in (conversation, back)]
    assert sent[0] == sent[1]
    kept.api.scripts.append([ContentDelta("Again."), AnswerFinished("stop")])
    conversation.cut(3)
    await kept.run(conversation.regenerate(TARGET))
    assert kept.sent()[-1] == ("user", "Result of weather:\n22 C")


async def test_pictures_are_not_sent_to_a_model_that_takes_none() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    text_only = ChatTarget("spark", ENDPOINT, "qwen", modalities=("text",))
    with pytest.raises(RefusedError, match="qwen does not take images: it takes text"):
        conversation.ask("What?", text_only, (PICTURE,))
    assert conversation.exchanges == ()
    await kept.ask(conversation, "What?", [ContentDelta("A cat"), AnswerFinished("stop")], attachments=(PICTURE,))
    assert kept.api.requests[-1][1].messages[0].attachments == (PICTURE,)
    with pytest.raises(RefusedError):
        conversation.regenerate(text_only)
    assert said(conversation) == [("What?", "A cat")]


async def test_a_trim_is_chosen_kept_and_taken_back() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    for number in range(1, 5):
        script = [ContentDelta("a" * 3600), AnswerFinished("stop"), Usage(1000 * number, 900)]
        await kept.ask(conversation, f"q{number}", script)
    trims = conversation.trims(conversation.use(TARGET))
    conversation.trim(trims[-1].sent_from)
    await kept.ask(conversation, "last")
    assert [content for role, content in kept.sent() if role == "user"] == ["q3", "q4", "last"]
    await conversation.close()
    back = await kept.opened().open("last")
    assert back.sent_from == 3
    back.trim(0)
    await kept.ask(back, "all")
    assert kept.sent()[0] == ("user", "q1")


# --- the list -----------------------------------------------------------------------------------------------


async def test_conversations_are_found_renamed_exported_imported_and_deleted() -> None:
    kept = Kept()
    conversation = kept.conversations.new()
    await kept.ask(conversation, "Why is it so?", [ContentDelta("CUDA graphs."), AnswerFinished("stop")])
    await conversation.close()
    name = conversation.id
    assert await kept.conversations.rename(name[-2:], "  Kernel   hunt ") == name
    [hit] = await kept.conversations.search("cuda")
    assert (hit.id, hit.title) == (name, "Kernel hunt")
    for path in ("/out/talk.json", "/out/talk.md"):
        await kept.conversations.export(await kept.conversations.read("last"), path)
        made = await kept.conversations.import_file(path)
        assert said(made) == [("Why is it so?", "CUDA graphs.")]
        assert made.title == "Kernel hunt"
    assert len(await kept.conversations.summaries()) == 3
    await kept.conversations.delete(name)
    with pytest.raises(UsageError, match="There is no conversation"):
        await kept.conversations.open(name)
    with pytest.raises(UsageError, match="2 conversations are called 2027"):
        await kept.conversations.open("2027")


async def test_without_a_store_talking_works_and_the_list_says_why_it_is_not_there() -> None:
    kept = Kept()
    conversations = Conversations(kept.api, kept.clock, FixedPresets(), Path("/store"))
    conversation = conversations.new()
    await kept.ask(conversation, "Hello")
    assert conversation.exchanges[0].outcome is AnswerOutcome.COMPLETE
    with pytest.raises(RefusedError):
        await conversations.summaries()


# --- what the preset knows ----------------------------------------------------------------------------------

MISTRAL = Preset(
    "mistral", Origin.BUILTIN, "mistral.yaml", "org/m", "image",
    facts=PresetFacts(
        sampling=(("temperature", 0.7),), modalities=("text", "image"),
        required_files=(RequiredFile("m/SYSTEM_PROMPT.txt", "org/m", "SYSTEM_PROMPT.txt", for_chat=True),),
    ),
)  # fmt: skip


async def test_a_recipes_system_prompt_is_read_from_the_store() -> None:
    kept = Kept(MISTRAL)
    missing = await kept.conversations.defaults("mistral", "Mistral")
    assert missing.settings.system == ""
    assert "/store/m/SYSTEM_PROMPT.txt is not there" in missing.problems[0]
    kept.files.files["/store/m/SYSTEM_PROMPT.txt"] = b"You are {name}; it is {today}.\n"
    defaults = await kept.conversations.defaults("mistral", "Mistral")
    assert defaults.settings == ChatSettings("You are Mistral; it is 2027-01-15.", ChatParameters(temperature=0.7))
    assert defaults.modalities == ("text", "image")
    assert (await kept.conversations.defaults("", "x")).settings == ChatSettings()


# --- what the engine did ------------------------------------------------------------------------------------

SLOTS = (
    Slot(Family.QUEUE, SeriesPart.SUM), Slot(Family.QUEUE, SeriesPart.COUNT),
    Slot(Family.DRAFT_TOKENS), Slot(Family.ACCEPTED),
)  # fmt: skip


def _page(*values: float | None) -> MetricPage:
    """Seconds in the queue, requests, drafted and accepted tokens; None: not published."""
    return page_of((slot, value) for slot, value in zip(SLOTS, values, strict=False) if value is not None)


@pytest.mark.parametrize(
    ("before", "after", "side"),
    [
        (_page(1, 4, 100, 60), _page(1.5, 5, 130, 80), EngineSide(0.5, 30, 20)),
        (_page(1, 4), _page(3, 6), EngineSide(1.0, shared=True)),
        (_page(1, 4), _page(0.1, 1), None),
        (_page(), _page(), None),
        (_page(), _page(1, 4, 100, 60), None),
        (_page(1, 4, 0, 0), _page(1, 5, 0, 0), EngineSide(0.0)),
        (_page(None, None, 100, 60), _page(None, None, 130, 60), EngineSide(None, 30, 0)),
    ],
)
def test_what_lies_between_two_readings_is_the_answers(
    before: MetricPage, after: MetricPage, side: EngineSide | None
) -> None:
    assert engine_side(before, after) == side


class Pages:
    """A MetricsSource: a page for each reading, or the error that it raises."""

    def __init__(self, *pages: MetricPage | SparkError) -> None:
        self.pages = list(pages)

    async def read(self, endpoint: Endpoint) -> MetricPage:
        page = self.pages.pop(0)
        if isinstance(page, SparkError):
            raise page
        return page

    async def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("pages", "side"),
    [
        ((_page(1, 4, 100, 60), _page(1.5, 5, 130, 80)), EngineSide(0.5, 30, 20)),
        ((SparkError("No metrics.", "x"), _page(1.5, 5, 130, 80)), None),
        ((_page(1, 4, 100, 60), SparkError("No metrics.", "x")), None),
    ],
    ids=["measured", "not before", "not after"],
)
async def test_metrics_pages_measure_an_answer_and_their_failure_is_nobodys(
    pages: tuple[MetricPage | SparkError, ...], side: EngineSide | None
) -> None:
    kept = Kept()
    source = Pages(*pages)
    conversations = Conversations(kept.api, kept.clock, FixedPresets(), Path("/"), store=kept.store, metrics=source)
    conversation = conversations.new()
    assert await kept.run(conversation.ask("Why?", TARGET)) is None
    await conversation.settle()
    assert conversation.exchanges[0].engine_side == side
    await conversation.close()
    assert (await kept.store.read(conversation.id)).exchanges[0].engine_side == side


# --- errors -------------------------------------------------------------------------------------------------


def test_a_rejected_key_says_where_the_key_is() -> None:
    refused = ApiKeyRejected("The engine wants another API key.", "Set it.")
    ours = ChatTarget("spark", Endpoint("http://x", Secret("planted")), "m")
    told = advised(refused, ours, Path("/cfg/secrets/spark.env"))
    assert "/cfg/secrets/spark.env" in told.remedy
    assert "planted" not in str(told)
    foreign = advised(refused, TARGET, Path("/cfg/secrets/spark.env"))
    assert "launched elsewhere" in foreign.remedy
