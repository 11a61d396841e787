"""How sure a model was of each token: what the log probabilities of an answer say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.chat import TokenChances
from spark_tui.domain.text import clean

SURE: Final = 0.9
EVEN: Final = 0.5
DOUBTFUL: Final = 0.1


class Band(StrEnum):
    """How probable a token was: 90 % and more, 50 %, 10 %, less."""

    SURE = "sure"
    LIKELY = "likely"
    DOUBTFUL = "doubtful"
    RARE = "rare"


def probability(logprob: float) -> float:
    """From 0 to 1; vLLM writes -9999 for a token that could not be."""
    return math.exp(min(0.0, logprob)) if not math.isnan(logprob) else 0.0


def band(logprob: float) -> Band:
    """Where a token's probability lies."""
    share = probability(logprob)
    if share >= SURE:
        return Band.SURE
    if share >= EVEN:
        return Band.LIKELY
    return Band.DOUBTFUL if share >= DOUBTFUL else Band.RARE


@dataclass(frozen=True, slots=True)
class ChancesSummary:
    """`tokens` in all, those `below_even`, and the perplexity: e to the mean of the negative log probabilities."""

    tokens: int
    below_even: int
    perplexity: float


def summary_of(tokens: Sequence[TokenChances]) -> ChancesSummary:
    """Of at least one token."""
    below = sum(probability(token.logprob) < EVEN for token in tokens)
    mean = sum(min(0.0, token.logprob) for token in tokens if not math.isnan(token.logprob)) / max(1, len(tokens))
    return ChancesSummary(len(tokens), below, math.exp(min(-mean, 700.0)))


def candidates(token: TokenChances) -> tuple[tuple[str, float, bool], ...]:
    """The tokens in that place, the likeliest first: text, log probability, and whether it is the one that was taken.

    The one that was taken is always among them; servers tell it beside the likeliest ones or instead of the last.
    """
    told = {text: logprob for text, logprob in token.likeliest if text != token.token}
    rows = [(token.token, token.logprob, True), *((text, logprob, False) for text, logprob in told.items())]
    return tuple(sorted(rows, key=lambda row: (-row[1], not row[2])))


def next_doubt(tokens: Sequence[TokenChances], place: int, step: int) -> int:
    """The next token below even odds from `place` in the direction of `step` (1 or -1); `place` when there is none."""
    here = place + step
    while 0 <= here < len(tokens):
        if probability(tokens[here].logprob) < EVEN:
            return here
        here += step
    return place


def written_token(text: str) -> str:
    """A token as it can be read on one line: line ends and tabs written out, control codes removed."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t") or "(nothing to see)"
