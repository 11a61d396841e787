"""What is asked: plans and their limits, prompts, the order of measurements; and the answers as bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import ContextOverflow
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import decode, encode
from spark_tui.observe.results.model.plan import (
    BenchPlan,
    Content,
    PlanError,
    PromptCache,
    Segment,
    Vocabulary,
    check_context,
    check_plan,
    prompt_ids,
    prompt_text,
    segments,
)
from spark_tui.observe.results.model.record import RequestOutcome, RequestRecord, WireExchange, record_of
from spark_tui.use.bench.adapter.load import Framing, NotHttp
from tests.api_fixtures import FOLDER
from tests.cases import all_cases

WORDS = Vocabulary(tuple(range(100, 400)), tuple(range(500, 900)))
ONE = Segment(1, 2, 4, 64, 16)

# --- plans ---------------------------------------------------------------------------------------------


@all_cases(
    ("plan", "fields"),
    [
        (BenchPlan(concurrency=(), depths=()), ("concurrency", "depths")),
        (BenchPlan(concurrency=(0,)), ("concurrency",)),
        (BenchPlan(concurrency=(2, 2)), ("concurrency",)),
        (BenchPlan(depths=(8, 8)), ("depths",)),
        (BenchPlan(concurrency=(5000,)), ("concurrency",)),
        (BenchPlan(depths=(0,)), ("depths",)),
        (BenchPlan(input_tokens=0), ("input_tokens",)),
        (BenchPlan(output_tokens=1), ("output_tokens",)),
        (BenchPlan(passes=0), ("passes",)),
        (BenchPlan(rounds=0), ("rounds",)),
        (BenchPlan(warmup=-1), ("warmup",)),
        (BenchPlan(concurrency=(1024,), rounds=1000, passes=100), ("concurrency", "passes", "rounds")),
    ],
)
def test_a_senseless_load_is_refused_in_words_for_every_screen(plan: BenchPlan, fields: tuple[str, ...]) -> None:
    with pytest.raises(PlanError) as caught:
        check_plan(plan)
    assert caught.value.fields == fields
    assert "--" not in str(caught.value)


def test_a_request_longer_than_the_context_is_refused_before_it_is_sent() -> None:
    plan = BenchPlan(input_tokens=1000, output_tokens=100, depths=(4000,))
    check_plan(plan)
    check_context(plan, 4100)
    check_context(plan, None)
    with pytest.raises(ContextOverflow, match="4,100 tokens, the engine's context 4,099") as caught:
        check_context(plan, 4099)
    assert "At most 3,999 prompt tokens fit" in caught.value.remedy


def test_every_second_pass_goes_the_other_way_round() -> None:
    plan = BenchPlan(concurrency=(1, 2, 4), depths=(8000,), passes=3)
    order = [(each.number, each.streams, each.depth) for each in segments(plan)]
    one = [(1, False), (2, False), (4, False), (1, True)]
    assert [(streams, depth) for number, streams, depth in order if number == 1] == one
    assert [(streams, depth) for number, streams, depth in order if number == 2] == one[::-1]
    assert [(streams, depth) for number, streams, depth in order if number == 3] == one
    assert sum(each.requests for each in segments(plan)) == plan.total_requests


# --- prompts -------------------------------------------------------------------------------------------


@given(
    st.sampled_from(Content), st.sampled_from(PromptCache), st.integers(1, 3000), st.integers(0, 50), st.integers(0, 99)
)
def test_a_prompt_has_exactly_as_many_tokens_as_asked_for(
    content: Content, cache: PromptCache, length: int, request: int, salt: int
) -> None:
    plan = BenchPlan(content=content, prompt_cache=cache)
    ids = prompt_ids(plan, salt, Segment(1, 1, 1, length, 8), request, WORDS)
    assert len(ids) == length
    assert set(ids) <= {*WORDS.pool, *WORDS.prose}
    assert ids == prompt_ids(plan, salt, Segment(1, 1, 1, length, 8), request, WORDS), "the same once more"


@pytest.mark.parametrize("content", Content)
def test_cold_prompts_share_no_first_block_with_any_other(content: Content) -> None:
    plan = BenchPlan(content=content)
    places = [(salt, Segment(number, streams, 4, 64, 8), request) for salt in (1, 2) for number in (1, 2)
              for streams in (1, 4) for request in range(4)]  # fmt: skip
    firsts = {tuple(prompt_ids(plan, salt, segment, request, WORDS)[:8]) for salt, segment, request in places}
    assert len(firsts) == len(places)


def test_warm_prompts_of_one_length_are_all_the_same() -> None:
    plan = BenchPlan(prompt_cache=PromptCache.WARM)
    prompts = {tuple(prompt_ids(plan, 1, Segment(number, streams, 4, 64, 8), request, WORDS))
               for number in (0, 1, 2) for streams in (1, 4) for request in range(4)}  # fmt: skip
    assert len(prompts) == 1


def test_a_server_that_cannot_tokenize_is_asked_with_words() -> None:
    for content in Content:
        plan = BenchPlan(content=content)
        assert len(prompt_text(plan, 1, ONE, 0, 0.75).split()) == 48
        assert prompt_text(plan, 1, ONE, 0, 0.75) != prompt_text(plan, 1, ONE, 1, 0.75)


# --- answers -------------------------------------------------------------------------------------------

TOKEN = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": null}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 64, "completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def _exchange(*pieces: bytes, status: int = 200, broken: str = "", cancelled: bool = False) -> WireExchange:
    timed = tuple((10.0 + number, piece) for number, piece in enumerate(pieces, 1))
    return WireExchange(0, 0, 10.0, 20.0, 64, 3, status, timed, broken, cancelled)


def test_a_whole_answer() -> None:
    record = record_of(_exchange(TOKEN, TOKEN, LAST + USAGE + DONE))
    assert record.outcome is RequestOutcome.COMPLETE
    assert record.chunks == (11.0, 12.0, 13.0)
    assert (record.prompt_tokens, record.completion_tokens, record.finish_reason) == (64, 3, "length")


def test_the_usage_chunk_and_the_end_take_no_time() -> None:
    record = record_of(_exchange(TOKEN, TOKEN, LAST, USAGE, DONE))
    assert record.e2e == 3.0


@all_cases(
    ("exchange", "outcome", "words"),
    [
        (_exchange(TOKEN, TOKEN), RequestOutcome.TRUNCATED, "broke off"),
        (_exchange(TOKEN, broken="the connection broke"), RequestOutcome.TRUNCATED, "the connection broke"),
        (_exchange(TOKEN, LAST, DONE), RequestOutcome.TRUNCATED, "no usage"),
        (_exchange(TOKEN, TOKEN, broken="", cancelled=True), RequestOutcome.CANCELLED, ""),
        (_exchange(b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n' + DONE),
         RequestOutcome.FAILED, ""),
        (_exchange(TOKEN, b'data: {"choices": [{"text": "", "finish_reason": "abort"}]}\n\n' + USAGE + DONE),
         RequestOutcome.TRUNCATED, "aborted"),
        (_exchange(b"data: {oops\n\n"), RequestOutcome.FAILED, "not JSON"),
        (_exchange(b'{"error": {"message": "no such model", "code": 404}}', status=404), RequestOutcome.FAILED, ""),
        (_exchange(status=0, broken="cannot connect: refused"), RequestOutcome.FAILED, "cannot connect"),
        (_exchange(b": ping\n\n", USAGE, DONE), RequestOutcome.FAILED, ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_whole_says_why(exchange: WireExchange, outcome: RequestOutcome, words: str) -> None:
    record = record_of(exchange)
    assert record.outcome is outcome
    assert words in record.error


@given(st.lists(st.binary(max_size=60), max_size=12), st.sampled_from([200, 404, 500, 0]))
def test_no_bytes_make_reading_fail(pieces: list[bytes], status: int) -> None:
    record = record_of(_exchange(*pieces, status=status))
    assert record.outcome in RequestOutcome
    assert record.error == clean_line(record.error)


def test_a_recorded_stream_of_vllm_is_read() -> None:
    body = (FOLDER / "chat-stream-nothink.sse").read_bytes().partition(b"\n\n")[2]
    record = record_of(WireExchange(0, 0, 0.0, 1.0, 1, 1, 200, ((0.5, body),)))
    assert record.chunks
    assert not record.error or "usage" in record.error


# --- framing -------------------------------------------------------------------------------------------

BODY = b"".join((TOKEN, TOKEN, LAST, USAGE, DONE))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def _chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x;x=y\r\n%b\r\n" % (len(part), part) for part in parts)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\nX-Trailer: 1\r\n\r\n"


@given(st.integers(1, 200), st.lists(st.integers(0, 2000), max_size=20))
def test_a_chunked_answer_is_the_same_wherever_it_is_cut(size: int, cuts: list[int]) -> None:
    wire = _chunked(BODY, size)
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    framing = Framing()
    got = b"".join(framing.feed(wire[low:high]) for low, high in pairwise(edges))
    assert (got, framing.ended, framing.status, framing.keep, framing.left_over) == (BODY, True, 200, True, False)


def test_answers_with_a_length_and_those_that_end_with_the_connection() -> None:
    framing = Framing()
    assert framing.feed(HEAD + b"Content-Length: 5\r\n\r\nhello and more") == b"hello"
    assert (framing.ended, framing.left_over) == (True, True)
    open_ended = Framing()
    assert open_ended.feed(HEAD + b"\r\nhel") + open_ended.feed(b"lo") == b"hello"
    assert (open_ended.ended, open_ended.keep) == (False, False)
    assert open_ended.closed()
    cut = Framing()
    cut.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel")
    assert not cut.closed()


def test_a_hundred_comes_before_the_answer() -> None:
    framing = Framing()
    assert framing.feed(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok") == b"ok"
    assert framing.status == 200


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_bytes_that_are_no_http_are_refused_and_nothing_worse(pieces: list[bytes]) -> None:
    framing = Framing()
    for prefix in (b"", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"):
        try:
            framing.feed(prefix)
            for piece in pieces:
                framing.feed(piece)
        except NotHttp:
            return


def test_a_record_survives_the_pipe_between_two_processes() -> None:
    record = record_of(_exchange(TOKEN, TOKEN, LAST + USAGE + DONE))
    assert decode(encode(record), RequestRecord) == record
