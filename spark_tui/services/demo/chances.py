"""How sure the simulated model was of each token: made up from the text alone, so that the same answer has the same."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Final

from spark_tui.domain.chat import Chances, TokenChances

_BANDS: Final = ((0.72, 0.93, 0.999), (0.88, 0.5, 0.9), (0.97, 0.12, 0.5), (1.0, 0.02, 0.1))
"""Of all tokens up to this share, the least and the greatest probability: mostly sure, now and then not at all."""
_SPLIT: Final = 0.7
"""Share of what is left that the next likeliest token has."""


def chances_of(tokens: Sequence[str], number: int, likeliest: int) -> Chances:
    """Of token `number` of an answer's tokens, with so many of the likeliest in its place."""
    token = tokens[number]
    told = [(token, _probability(token, number))]
    left = 1.0 - told[0][1]
    for other in _others(tokens, number)[: max(0, likeliest)]:
        told.append((other, left * _SPLIT))
        left *= 1.0 - _SPLIT
    ordered = sorted(told, key=lambda each: -each[1])[: max(0, likeliest)]
    return Chances((TokenChances(token, math.log(told[0][1]), tuple((text, math.log(p)) for text, p in ordered)),))


def _probability(token: str, number: int) -> float:
    drawn = zlib.crc32(f"{number}:{token}".encode("utf-8", "replace")) / 2**32
    before = 0.0
    for upto, least, most in _BANDS:
        if drawn < upto:
            return least + (most - least) * (drawn - before) / (upto - before)
        before = upto
    return _BANDS[-1][2]


def _others(tokens: Sequence[str], number: int) -> list[str]:
    """What else could stand there: the answer's other tokens of the same shape, from this place on."""
    shape = _shape(tokens[number])
    around = (*tokens[number + 1 :], *tokens[:number])
    return [each for each in dict.fromkeys(around) if _shape(each) == shape and each != tokens[number]]


def _shape(token: str) -> tuple[bool, bool, bool]:
    return token[:1].isspace(), token.strip().isalpha(), token.strip().isdecimal()
