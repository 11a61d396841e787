"""How sure the model was: the probabilities of an answer's tokens, on screen and by keys."""

from __future__ import annotations

import math

import pytest

from spark_tui.domain.chat.message import (
    ContentDelta,
    Logprobs,
    ProbabilityBand,
    TokenLogprobs,
    band,
    candidates,
    next_doubt,
    probability,
    summary_of,
    written_token,
)
from spark_tui.tui.screens.chat_tokens import TokenMap, TokensScreen
from tests.tui.chat_kit import Kit, chatting

PARIS = (
    TokenLogprobs("The", math.log(0.97), (("The", math.log(0.97)), ("It", math.log(0.02)))),
    TokenLogprobs(" capital", math.log(0.6), ((" capital", math.log(0.6)), (" answer", math.log(0.3)))),
    TokenLogprobs(" is", math.log(0.95), ((" is", math.log(0.95)), (" of", math.log(0.04)))),
    TokenLogprobs(" Lyon", math.log(0.03), ((" Paris", math.log(0.9)), (" Nice", math.log(0.05)))),
    TokenLogprobs(".\n", math.log(0.8), ((".\n", math.log(0.8)),)),
)


async def told(kit: Kit, tokens: tuple[TokenLogprobs, ...] = PARIS, question: str = "Hello") -> None:
    """An answer with its probabilities."""
    reply = await kit.ask(question)
    for token in tokens:
        reply.send(ContentDelta(token.token), Logprobs((token,)))
    reply.end()
    await kit.until(lambda: not kit.transcript.turns[-1].live, "answered")


async def test_a_key_shows_the_tokens_and_what_else_could_have_stood_there() -> None:
    async with chatting() as kit:
        await told(kit)
        await kit.pilot.press("f10")
        await kit.until_seen("Tokens of the answer to: Hello", "5 tokens", "below 50 %: 1", "The capital is Lyon.")
        await kit.until_seen("token 1 of 5", '"The"', "97.0 %", '"It"', "2.0 %")
        await kit.pilot.press("n")
        await kit.until_seen("token 4 of 5", '" Paris"', "90.0 %", '" Lyon"', "3.0 %")
        lines = [line for line in kit.seen().split("\n") if "%" in line and '"' in line]
        assert [line.split('"')[1] for line in lines] == [" Paris", " Nice", " Lyon"], "the likeliest first"
        assert "▶" in lines[2], "the one that was taken is marked"
        await kit.pilot.press("left", "left")
        await kit.until_seen("token 2 of 5", '" answer"')
        await kit.pilot.press("end")
        await kit.until_seen("token 5 of 5", '".\\n"')
        await kit.pilot.press("escape")
        assert kit.chat.query_one("#prompt").has_focus


async def test_what_the_colours_mean_is_told_whole_at_every_size() -> None:
    for size in ((80, 24), (120, 36)):
        async with chatting(size=size) as kit:
            await told(kit)
            await kit.pilot.press("f10")
            await kit.until_seen("5 tokens", "below 50 %: 1", "at least 90 %  50 %  10 %  less")
            await kit.pilot.press("escape")
            await told(kit, PARIS * 30)
            await kit.pilot.press("f10")
            await kit.until_seen("150 tokens", "below 50 %: 30", "at least 90 %  50 %  10 %  less")


async def test_each_answer_has_its_own_tokens() -> None:
    async with chatting() as kit:
        await told(kit, PARIS[:1], "First")
        await told(kit, PARIS[1:3], "Second")
        await kit.pilot.press("f10")
        await kit.until_seen("Second  2 of 2", "token 1 of 2")
        await kit.pilot.press("left_square_bracket")
        await kit.until_seen("First  1 of 2", "token 1 of 1")
        await kit.pilot.press("left_square_bracket", "right_square_bracket")
        await kit.until_seen("Second  2 of 2")


async def test_hostile_tokens_are_text_and_long_ones_are_broken() -> None:
    hostile = (
        TokenLogprobs("\x1b]52;c;AAAA\x07[bold]", -0.1, (("\x1b[31m[/]", -2.0),)),
        TokenLogprobs("x" * 5000, -0.1),
        TokenLogprobs("", -9999.0),
        TokenLogprobs("汉" * 300, -3.0),
        TokenLogprobs("\n\n\n", float("nan")),
    )
    async with chatting(size=(80, 24)) as kit:
        await told(kit, hostile)
        await kit.pilot.press("f10")
        await kit.until_seen('"[bold]"', '"[/]"')
        for key in ("right", "right", "down", "up", "pagedown", "end", "home", "N", "n", "G", "k", "j", "h", "l"):
            await kit.pilot.press(key)
        assert "\x1b" not in kit.seen()
        token_map = kit.app.screen.query_one(TokenMap)
        assert all(strip.cell_length == token_map.size.width for strip in map(token_map.render_line, range(8)))


async def test_the_cursor_walks_over_all_tokens_in_any_width() -> None:
    tokens = tuple(TokenLogprobs(f" w{n}" if n % 7 else "\n", -0.01 * n) for n in range(300))
    async with chatting(size=(80, 24)) as kit:
        await told(kit, tokens)
        await kit.pilot.press("f10")
        await kit.until(lambda: isinstance(kit.app.screen, TokensScreen))
        token_map = kit.app.screen.query_one(TokenMap)
        await kit.pilot.press("down", "down", "down")
        third = token_map.place
        assert 0 < third < 100
        await kit.pilot.press("up", "up", "up")
        assert token_map.place == 0
        await kit.pilot.press("end")
        assert token_map.place == 299
        await kit.pilot.resize_terminal(120, 36)
        await kit.pilot.pause()
        assert token_map.place == 299
        line = token_map._line_of[299] - round(token_map.scroll_y)
        assert 0 <= line < token_map.size.height, "the cursor is in view"


def test_probabilities_have_four_bands_and_a_summary() -> None:
    shares = {
        1.0: ProbabilityBand.SURE,
        0.9: ProbabilityBand.SURE,
        0.6: ProbabilityBand.LIKELY,
        0.2: ProbabilityBand.DOUBTFUL,
        0.0: ProbabilityBand.RARE,
    }
    assert {share: band(math.log(share) if share else -9999.0) for share in shares} == shares
    summary = summary_of(PARIS)
    assert (summary.tokens, summary.below_even) == (5, 1)
    product = math.prod(probability(token.logprob) for token in PARIS)
    assert summary.perplexity == pytest.approx(product ** (-1 / 5))
    assert summary_of((TokenLogprobs("x", -9999.0),)).perplexity < math.inf


def test_candidates_hold_the_sampled_token_once_and_doubtful_tokens_are_found() -> None:
    assert [row[0] for row in candidates(PARIS[3])] == [" Paris", " Nice", " Lyon"]
    assert [row[2] for row in candidates(PARIS[0])] == [True, False]
    assert candidates(TokenLogprobs("x", -1.0)) == (("x", -1.0, True),)
    assert [next_doubt(PARIS, place, step) for place, step in ((0, 1), (4, -1), (3, 1))] == [3, 3, 3]
    assert [written_token(text) for text in ("a\n\tb\x1b[0m", "\x00")] == ["a\\n\\tb", "(nothing to see)"]
