"""A conversation sends what templates can take, knows its size, and survives files and crashes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.message import (
    Answer,
    Attachment,
    ChatParameters,
    MediaKind,
    ToolCall,
    Usage,
)
from spark_tui.base.engine.request import ChatSettings
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.use.chat.model import records
from spark_tui.use.chat.model.conversation import (
    AnswerOutcome,
    ChatThread,
    ContextRoom,
    EngineSide,
    Exchange,
    UserInput,
    context_use,
    estimated_tokens,
    history,
    proposals,
    title_of,
)
from spark_tui.use.chat.model.formats import exported, imported
from spark_tui.use.chat.model.records import ThreadReader

PLAIN = ChatSettings()
PICTURE = Attachment(MediaKind.IMAGE, "image/png", "a.png", b"\x89PNG")
CALL = ToolCall("c1", "weather", '{"city": "Bern"}')


def exchange(number: int, question: str = "", content: str = "", **more: Any) -> Exchange:
    answer = Answer(
        0.0,
        content,
        more.pop("reasoning", ""),
        more.pop("calls", ()),
        more.pop("finish", "stop"),
        more.pop("usage", None),
    )
    return Exchange(
        number, question, more.pop("engine", "e"), more.pop("model", "m"), 1.0, answer,
        **{"outcome": AnswerOutcome.COMPLETE, **more},
    )  # fmt: skip


# --- what is sent -------------------------------------------------------------------------------------------


def test_reasoning_is_sent_where_it_is_asked_for() -> None:
    exchanges = [exchange(1, "Weather?", "Sunny.", reasoning="hm")]
    assert not any(m.reasoning for m in history(exchanges, PLAIN, UserInput("Thanks")))
    kept = history(exchanges, ChatSettings(parameters=ChatParameters(preserve_thinking=True)), UserInput("Thanks"))
    assert kept[1].reasoning == "hm"


SPOKEN = 'weather({"city": "Bern"})'
ASKED = exchange(1, "Weather?", "Let me look.", calls=(CALL,))
TALK = [exchange(1, "a", "b"), exchange(2, "Tell", "Once upon", outcome=AnswerOutcome.STOPPED, reasoning="hm")]


@pytest.mark.parametrize(
    ("exchanges", "say", "sent_from", "sent"),
    [
        ([exchange(1, "Weather?", calls=(CALL,))], UserInput("22 C"), 0,
         ["user Weather?", f"assistant {SPOKEN}", "user 22 C"]),
        ([ASKED, exchange(2, "x", outcome=AnswerOutcome.FAILED)], UserInput("And?"), 0,
         ["user Weather?", f"assistant Let me look.\n\n{SPOKEN}", "user And?"]),
        ([exchange(1, "Weather?", calls=(CALL,), outcome=AnswerOutcome.FAILED)], UserInput("And?"), 0, ["user And?"]),
        (TALK, None, 0, ["user a", "assistant b", "user Tell", "assistant Once upon"]),
        (TALK, UserInput("e"), 2, ["user Tell", "assistant Once upon", "user e"]),
        (
            [],
            UserInput("What?", (replace(PICTURE, data=b""), PICTURE)),
            0,
            ["user (image a.png is no longer there)\nWhat?"],
        ),
    ],
    ids=["a call", "a call and text", "a call that broke off", "continued", "trimmed", "an attachment that is gone"],
)  # fmt: skip
def test_what_is_sent(exchanges: list[Exchange], say: UserInput | None, sent_from: int, sent: list[str]) -> None:
    messages = history(exchanges, ChatSettings("sys"), say, sent_from=sent_from)
    assert [f"{each.role.value} {each.content}" for each in messages] == ["system sys", *sent]
    assert all(attachment.data for each in messages for attachment in each.attachments)


TEXT = st.sampled_from(["", " ", "x", "yes"])
EXCHANGES = st.lists(
    st.builds(
        lambda q, c, calls, outcome: (q, c, calls, outcome),
        TEXT, TEXT, st.booleans(), st.sampled_from(list(AnswerOutcome)[1:]),
    ),
    max_size=7,
)  # fmt: skip


@given(EXCHANGES, st.integers(0, 8))
def test_speakers_always_take_turns(told: list[tuple[str, str, bool, AnswerOutcome]], sent_from: int) -> None:
    exchanges = [
        exchange(number, question, content, calls=(CALL,) if calls else (), outcome=outcome)
        for number, (question, content, calls, outcome) in enumerate(told, 1)
    ]
    roles = [m.role.value for m in history(exchanges, PLAIN, UserInput("now"), sent_from=sent_from)]
    assert roles[0] == "user"
    assert roles[-1] == "user"
    after = {"user": {"assistant"}, "assistant": {"user"}}
    assert all(second in after[first] for first, second in pairwise(roles))


# --- room ---------------------------------------------------------------------------------------------------


def _long(count: int) -> list[Exchange]:
    return [exchange(n, "q" * 360, "a" * 3600, usage=Usage(1100 * n, 1000)) for n in range(1, count + 1)]


REASONED = exchange(1, "q", "a", usage=Usage(100, 500, 400))
KEPT = replace(REASONED, settings=ChatSettings(parameters=ChatParameters(preserve_thinking=True)))


@pytest.mark.parametrize(
    ("exchanges", "say", "limit", "model", "tokens", "room", "counted"),
    [
        (_long(3), UserInput("x" * 36), 8192, "m", 4300 + 10 + 8, ContextRoom.ENOUGH, False),
        (_long(3), UserInput(), None, "m", 4300, ContextRoom.UNKNOWN, True),
        ([REASONED], UserInput(), 9000, "m", 200, ContextRoom.ENOUGH, True),
        ([KEPT], UserInput(), 9000, "m", 600, ContextRoom.ENOUGH, True),
        (_long(1), UserInput(), 9000, "other", estimated_tokens("x" * 3960) + 16, ContextRoom.ENOUGH, False),
    ],
    ids=["counted, then estimated", "no limit", "without reasoning", "reasoning is sent", "another model's count"],
)
def test_the_engines_own_count_is_what_counts(
    exchanges: list[Exchange],
    say: UserInput,
    limit: int | None,
    model: str,
    tokens: int,
    room: ContextRoom,
    counted: bool,
) -> None:
    use = context_use(exchanges, PLAIN, say, limit=limit, model=model)
    assert (use.tokens, use.room, use.counted) == (tokens, room, counted)


@pytest.mark.parametrize(
    ("limit", "max_tokens", "room"),
    [
        (4400, None, ContextRoom.NEAR),
        (4200, None, ContextRoom.OVER),
        (8192, 4000, ContextRoom.OVER),
        (8192, 100, ContextRoom.ENOUGH),
    ],
)
def test_a_warning_comes_before_the_context_is_full(limit: int, max_tokens: int | None, room: ContextRoom) -> None:
    settings = ChatSettings(parameters=ChatParameters(max_tokens=max_tokens))
    assert context_use(_long(3), settings, UserInput(), limit=limit, model="m").room is room


def test_after_a_trim_the_estimate_keeps_the_measure_of_the_last_count() -> None:
    exchanges = [exchange(n, "q", "a" * 3600, usage=Usage(9000 * n, 1000)) for n in range(1, 4)]
    whole = context_use(exchanges, PLAIN, UserInput(), limit=32768, model="m")
    trimmed = context_use(exchanges, PLAIN, UserInput(), limit=32768, model="m", sent_from=3)
    assert (whole.tokens, whole.counted) == (28_000, True)
    assert 28_000 / 3 * 0.9 < trimmed.tokens < 28_000 / 3 * 1.1
    assert not trimmed.counted


def test_proposals_leave_out_the_oldest_and_keep_the_last() -> None:
    exchanges = _long(5)
    use = context_use(exchanges, PLAIN, UserInput("x"), limit=6500, model="m")
    mild, roomy = proposals(exchanges, use)
    assert (mild.sent_from, mild.left_out) == (2, 1)
    assert (roomy.sent_from, roomy.left_out) == (4, 3)
    assert mild.sentence == "leave out the oldest exchange: about 1,301 tokens"
    assert proposals(exchanges[:1], use) == ()
    after = context_use(exchanges, PLAIN, UserInput("x"), limit=6500, model="m", sent_from=roomy.sent_from)
    assert after.room is ContextRoom.ENOUGH


# --- files --------------------------------------------------------------------------------------------------

FULL = ChatThread(
    "20260101-000000-abc", "Kernel hunt", 12.5,
    ChatSettings("Be brief.", ChatParameters(temperature=0.5)),
    (
        Exchange(
            1, "What \x1b[31mis\ud800 it?", "spark", "qwen", 13.0,
            Answer(0.0, "A cat", "I see.", (), "length", Usage(10, 5, 2, 8), 0.4, 1.5, 1.0, 1),
            AnswerOutcome.COMPLETE, None, (PICTURE,), ChatSettings("Be brief."), 4096,
            engine_side=EngineSide(0.25, 30, 20, shared=True),
        ),
        Exchange(
            2, "Result of f:\n42", "spark", "qwen", 14.0, Answer(0.0, "So it is", carried=5), AnswerOutcome.FAILED,
            SparkError("It broke.", "Again."), (),
            ChatSettings("Be brief.", ChatParameters(temperature=0.5)), None, 2,
        ),
    ),
    2, "", 2,
)  # fmt: skip


def read_back(lines: list[Any]) -> ChatThread:
    reader = ThreadReader({"kept": PICTURE.data}.get)  # type: ignore[arg-type]
    for line in lines:
        reader.read(line)
    return reader.thread()


def same(one: ChatThread, other: ChatThread) -> bool:
    def plain(thread: ChatThread) -> ChatThread:
        exchanges = tuple(replace(each, error=None) for each in thread.exchanges)
        return replace(thread, exchanges=exchanges)

    return plain(one) == plain(other) and [str(e.error) for e in one.exchanges] == [
        str(e.error) for e in other.exchanges
    ]


def test_a_conversation_survives_its_file_and_its_export_with_all_it_knows() -> None:
    lines = [json.loads(json.dumps(line)) for line in records.records_of(FULL, lambda _: "kept")]
    assert same(read_back(lines), FULL)
    assert same(replace(imported(exported(FULL, "json"), "x", 0.0), id=FULL.id), FULL)


@pytest.mark.parametrize("old", [True, False], ids=["export", "file"])
def test_files_of_earlier_versions_still_load(old: bool) -> None:
    """Written by the code of version 1: a saved file with everything in it, and an export."""
    path = Path("tests/fixtures/chat") / ("conversation-v1.json" if old else "conversation-v1.jsonl")
    if old:
        assert same(replace(imported(path.read_text(), "x", 0.0), id=FULL.id), FULL)
        return
    thread = read_back([json.loads(line) for line in path.read_text().splitlines()])
    assert thread.damaged == 0
    assert (thread.title, thread.last_number) == ("Renamed", 4)
    *whole, looked = thread.exchanges
    assert same(replace(thread, title=FULL.title, exchanges=tuple(whole), last_number=2), FULL)
    assert (looked.answer.content, looked.answer.reasoning, looked.answer.tool_calls) == ("Let me look.", "hm", (CALL,))


def test_a_setting_that_earlier_versions_had_is_read_without_damage_to_the_others() -> None:
    line = {"type": "settings", "settings": {"system": "Be brief.", "logprobs": 5, "temperature": 0.5}}
    thread = read_back([line])
    assert (thread.settings, thread.damaged) == (FULL.settings, 0)


def test_a_copy_of_a_conversation_that_an_earlier_version_made_is_read_whole() -> None:
    lines = records.records_of(
        replace(FULL, title="Kernel hunt (fork)", parent="20251231-235959-abc"), lambda _: "kept"
    )
    thread = read_back(lines)
    assert (thread.title, thread.parent, thread.damaged) == ("Kernel hunt (fork)", "20251231-235959-abc", 0)
    assert [each.question for each in thread.exchanges] == [each.question for each in FULL.exchanges]


def test_parts_of_an_answer_that_was_killed_are_kept_and_it_says_so() -> None:
    begun = exchange(1, "q", outcome=AnswerOutcome.LIVE)
    lines = [
        records.header(ChatThread("x")),
        records.asked(begun, ()),
        records.part(1, "Half ", ""),
        records.part(1, "an", "r"),
    ]
    [found] = read_back(lines).exchanges
    assert (found.answer.content, found.answer.reasoning, found.outcome) == ("Half an", "r", AnswerOutcome.FAILED)
    assert found.error is not None
    assert "ended while this answer came" in found.error.summary
    assert found.unfinished


def test_what_was_taken_back_is_gone_and_its_number_is_not_used_again() -> None:
    lines = [records.asked(exchange(n, f"q{n}"), ()) for n in (1, 2, 3)]
    thread = read_back([*lines, records.cut(2), records.answered(exchange(3, "q3", "late"))])
    assert [each.number for each in thread.exchanges] == [1]
    assert thread.last_number == 3


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({"tool_answers", *(key for line in records.records_of(FULL, lambda _: "kept") for key in line)})


@given(
    st.lists(
        st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=8).map(
            lambda d: {"type": "answered", "number": 1, **d} if len(d) % 2 else {"type": "asked", **d}
        )
        | JUNK,
        max_size=6,
    )
)
def test_no_file_makes_reading_fail_and_what_is_sound_in_it_is_kept(junk: list[Any]) -> None:
    lines = records.records_of(FULL, lambda _: "kept")
    thread = read_back([*lines[:1], *junk, *lines[1:]])
    assert thread.title == FULL.title
    assert [each.number for each in thread.exchanges if each.number <= 2] == [1, 2]


@given(JUNK)
def test_any_json_is_imported_or_refused_with_a_remedy(told: Any) -> None:
    for text in (json.dumps(told), json.dumps({"format": records.FORMAT, "exchanges": [told]}), json.dumps([told])):
        try:
            imported(text, "x", 0.0)
        except UsageError as error:
            assert error.remedy


# --- Markdown and messages ----------------------------------------------------------------------------------


def test_markdown_comes_back_with_its_speakers_code_and_reasoning() -> None:
    code = "Look:\n\n```md\n## You\nnot a heading\n```"
    thread = ChatThread(
        title="T", settings=ChatSettings("Be brief."),
        exchanges=(
            exchange(1, code, "## You\n\nis a heading of mine", reasoning="hm\n\nso", usage=Usage(3, 4)),
            exchange(2, "Bye", "", outcome=AnswerOutcome.FAILED, error=SparkError("It broke.", "Again.")),
        ),
    )  # fmt: skip
    back = imported(exported(thread, "markdown"), "x.md", 7.0)
    assert (back.title, back.settings.system) == ("T", "Be brief.")
    assert [(e.question, e.answer.content, e.answer.reasoning, e.model) for e in back.exchanges] == [
        (code, "## You\n\nis a heading of mine", "hm\n\nso", "m"), ("Bye", "", "", "m"),
    ]  # fmt: skip


SAID = st.text(alphabet="ab #`~\\\n*>You", max_size=30)


@given(st.lists(st.tuples(SAID, SAID), min_size=1, max_size=3))
def test_no_text_escapes_its_place_in_markdown(told: list[tuple[str, str]]) -> None:
    thread = ChatThread(exchanges=tuple(exchange(n, q, a) for n, (q, a) in enumerate(told, 1)))
    back = imported(exported(thread, "markdown"), "x.md", 0.0)
    assert len(back.exchanges) == len(told)


def test_a_list_of_messages_is_a_conversation() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": "Ho", "reasoning_content": "hm"},
        {"role": "user", "content": "Bye"},
    ]
    for told in (messages, {"model": "gpt", "messages": messages}):
        back = imported(json.dumps(told), "x.json", 7.0)
        assert back.settings.system == "Be brief."
        assert [(e.question, e.answer.content) for e in back.exchanges] == [("Hi", "Ho"), ("Bye", "")]
    assert back.exchanges[0].model == "gpt"
    assert back.title == "Hi"


@pytest.mark.parametrize("text", ["", "hello", "{}", "[]", "[1]", "{", '{"format": "spark-tui-conversation"}'])
def test_what_is_no_conversation_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        imported(text, "x", 0.0)


def test_a_title_is_the_first_line_that_says_something() -> None:
    assert title_of("\n \x1b[2J\n  Why  is\tit so? \nBecause") == "Why is it so?"
    assert title_of("", (PICTURE,)) == "a.png"
    assert len(title_of("x" * 500)) == 60
