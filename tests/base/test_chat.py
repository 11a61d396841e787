"""An answer grows by events, and knows its own times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.message import (
    Answer,
    AnswerBuilder,
    AnswerFinished,
    ChatEvent,
    ContentDelta,
    ReasoningDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)

Timed = tuple[float, ChatEvent]


def answer(*events: Timed) -> Answer:
    builder = AnswerBuilder(0.0)
    for at, event in events:
        builder.add(event, at)
    return builder.snapshot()


TEXT = st.text(max_size=5)
EVENTS = st.one_of(
    st.builds(ContentDelta, TEXT),
    st.builds(ReasoningDelta, TEXT),
    st.builds(ToolCallDelta, st.integers(-2, 4), TEXT, TEXT, TEXT),
    st.builds(AnswerFinished, st.sampled_from(["stop", "length"])),
    st.builds(Usage, st.integers(0, 99), st.integers(0, 99)),
)
STREAM = st.lists(st.tuples(st.integers(0, 3), EVENTS), max_size=20)


@given(STREAM, st.sets(st.integers(0, 20)))
def test_snapshots_taken_on_the_way_change_nothing_and_the_size_is_what_was_collected(
    stream: list[tuple[int, ChatEvent]], looks: set[int]
) -> None:
    builder = AnswerBuilder(0.0)
    for number, (at, event) in enumerate(stream):
        builder.add(event, at)
        if number in looks:
            assert builder.snapshot() == answer(*stream[: number + 1])
    whole = builder.snapshot()
    assert whole == answer(*stream)
    assert builder.size >= len(whole.content) + len(whole.reasoning)


@given(STREAM)
def test_an_answer_never_loses_text(stream: list[tuple[int, ChatEvent]]) -> None:
    told = answer(*((float(at), event) for at, event in stream))
    assert told.content == "".join(event.text for _, event in stream if isinstance(event, ContentDelta))
    assert told.reasoning == "".join(event.text for _, event in stream if isinstance(event, ReasoningDelta))
    arguments = sorted("".join(event.arguments for _, event in stream if isinstance(event, ToolCallDelta)))
    assert sorted("".join(call.arguments for call in told.tool_calls)) == arguments


def test_a_snapshot_is_the_same_object_while_nothing_came() -> None:
    builder = AnswerBuilder(0.0)
    builder.add(ContentDelta("a"), 1.0)
    first = builder.snapshot()
    assert builder.snapshot() is first
    builder.add(ContentDelta("b"), 2.0)
    assert builder.snapshot().content == "ab"
    assert first.content == "a"


A, B, STOP = ContentDelta("a"), ContentDelta("b"), AnswerFinished("stop")


@pytest.mark.parametrize(
    ("events", "speed"),
    [
        ((), None),
        (((1.0, Usage(5, 0)),), None),
        (((1.0, A), (1.0, STOP), (1.0, Usage(5, 1))), None),
        (((1.0, A), (2.0, STOP)), None),
        (((1.0, A), (3.0, B), (3.0, STOP), (3.1, Usage(5, 41))), 20.0),
        (((1.0, A), (1.5, B), (2.0, STOP), (2.0, Usage(5, 3))), 2.0),
        (((1.0, Usage(5, 0)), (4.0, ToolCallDelta(0, "c", "f", "{")), (4.0, Usage(5, 30)),
          (5.0, ToolCallDelta(0, "", "", "}")), (5.0, Usage(5, 40)), (5.0, STOP), (5.0, Usage(5, 40))), 10.0),
        (((1.0, A), (1.0, Usage(5, 1)), (2.0, B), (2.0, Usage(5, 9))), 8.0),
    ],
    ids=["nothing", "no token", "one token", "no usage", "counted by the server", "the end-of-text token counts",
         "held back by a parser", "before the end"],
)  # fmt: skip
def test_speed_is_the_servers_count_over_the_time_after_the_first_token(
    events: tuple[Timed, ...], speed: float | None
) -> None:
    assert answer(*events).decode_tokens_per_second == (None if speed is None else pytest.approx(speed))


def test_the_opening_delta_is_no_token() -> None:
    assert answer((1.0, ContentDelta(""))).ttft is None
    assert answer((1.0, ContentDelta("")), (2.5, A)).ttft == 2.5


@pytest.mark.parametrize(
    ("usage", "speed"),
    [(Usage(4000, 9), 2000.0), (Usage(4000, 9, None, 3000), 500.0), (Usage(4000, 9, None, 3900), None)],
)
def test_prefill_is_what_was_not_cached_over_the_time_to_the_first_token(usage: Usage, speed: float | None) -> None:
    told = answer((2.0, ContentDelta("a")), (3.0, AnswerFinished("stop")), (3.0, usage))
    assert told.prefill_tokens_per_second == speed


def test_reasoning_ends_where_the_answer_begins() -> None:
    begun = ((1.0, ReasoningDelta("a")), (4.0, ReasoningDelta("b")), (5.0, ContentDelta("")), (6.0, ContentDelta("c")))
    assert answer(*begun, (9.0, ContentDelta("d"))).reasoning_seconds == 5.0
    told = answer((1.0, ReasoningDelta("hm")), (3.0, ReasoningDelta("so")))
    assert told.reasoning_seconds == 2.0
    assert answer((1.0, ReasoningDelta("hm")), (3.0, ContentDelta("Yes")), (9.0, ContentDelta("."))).answer_at == 3.0
    assert answer((1.0, ContentDelta("Yes"))).reasoning_seconds is None


def test_a_tool_call_is_put_together_and_keeps_its_first_id() -> None:
    told = answer(
        (1.0, ToolCallDelta(0, "call-1", "weather", "")),
        (1.1, ToolCallDelta(0, "call-2", "weather", '{"city"')),
        (1.2, ToolCallDelta(1, "other", "time", "{}")),
        (1.3, ToolCallDelta(0, "", "", ': "Bern"}')),
    )
    assert told.tool_calls == (ToolCall("call-1", "weather", '{"city": "Bern"}'), ToolCall("other", "time", "{}"))
