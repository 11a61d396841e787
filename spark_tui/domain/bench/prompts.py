"""Prompts of an exact number of tokens, made from a pool of ordinary token ids of the model's own vocabulary."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.bench.plan import BenchPlan, Content, PromptCache, Segment

LEAST_POOL: Final = 64
"""Fewer different ids than this would make prompts that resemble each other."""

PROSE: Final = (
    "The lamp at the end of the pier had been lit for an hour when the ferry turned into the wind and began to slow. "
    "On deck the passengers gathered their bags, counted their children, and looked for the faces of those who had "
    "come to meet them. An old carpenter, who had crossed this water every Friday for thirty years, stayed on his "
    "bench and finished his letter. He described the new roof of the school, the price of oak, and the storm that had "
    "taken the orchard's fence; then he asked whether the workshop in the city still needed a man with patience. "
    "A memory bus moves a fixed number of bytes in a second, and a model that reads all of its weights for every word "
    "cannot speak faster than that. Engineers therefore make the weights smaller, read them once for many readers, or "
    "guess several words ahead and check the guess in one go. Each of these tricks has its price, and only a "
    "measurement under known conditions can say whether it was worth paying. In the morning the baker measures flour, "
    "water and salt by weight, because a cup is never the same cup twice. He writes down the temperature of the room, "
    "the hour at which the dough was folded, and how long it rested, and when a loaf fails he can say why. The river "
    "rose in March, fell in April, and by June one could walk across it on stones that nobody had seen for a decade. "
    "Seven boys found an anchor there, green with age, and carried it to the museum, where a clerk gave it a number "
    "and a shelf. Letters to the council followed: some wanted it polished, others wanted it left exactly as it was."
)
"""What prose prompts are cut from, and what the pool of ordinary ids comes from."""


def pool_text() -> str:
    """A text whose tokens are ordinary words, numbers and signs of any vocabulary."""
    numbers = " ".join(str(number) for number in range(0, 2000, 7))
    pairs = [f"{chr(97 + first)}{chr(97 + second)}" for first in range(26) for second in range(26)]
    words = sorted(set(PROSE.replace(",", "").replace(".", "").replace(";", "").split()))
    return f"{PROSE} {' '.join(words)} {numbers} {' '.join(pairs)} {' '.join(pair.upper() for pair in pairs[::5])}"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids of one model: `pool` those of ordinary text, each once; `prose` those of a text in its order."""

    pool: tuple[int, ...]
    prose: tuple[int, ...]


def prompt_ids(plan: BenchPlan, salt: int, segment: Segment, request: int, words: Vocabulary) -> list[int]:
    """The token ids of one request's prompt, exactly as many as the segment asks for.

    The same plan and salt give the same prompts; a salt of its own keeps a run's prompts out of what an earlier run
    left in the prefix cache. Cold prompts share no first token block: each begins with a draw of its own. Warm ones
    of one length are all the same.
    """
    draw = _draw(plan, salt, segment, request)
    if plan.content is Content.RANDOM:
        return draw.choices(words.pool, k=segment.input_tokens)
    mark = draw.choices(words.pool, k=min(8, segment.input_tokens))
    begin = draw.randrange(len(words.prose))
    turned = [*words.prose[begin:], *words.prose[:begin]]
    repeated = turned * (segment.input_tokens // len(turned) + 1)
    return (mark + repeated)[: segment.input_tokens]


def prompt_text(plan: BenchPlan, salt: int, segment: Segment, request: int, words_per_token: float) -> str:
    """A prompt of about as many tokens, for a server that takes no token ids; cold and warm as above."""
    draw = _draw(plan, salt, segment, request)
    words, count = PROSE.split(), max(1, round(segment.input_tokens * words_per_token))
    if plan.content is Content.RANDOM:
        return " ".join(draw.choices(words, k=count))
    begin = draw.randrange(len(words))
    turned = (words[begin:] + words[:begin]) * (count // len(words) + 1)
    return " ".join([str(draw.randrange(10**6)), *turned][:count])


def _draw(plan: BenchPlan, salt: int, segment: Segment, request: int) -> random.Random:
    warm = plan.prompt_cache is PromptCache.WARM
    place = (segment.input_tokens,) if warm else (segment.number, segment.streams, segment.input_tokens, request)
    return random.Random(_seed(plan.seed, salt, *place))  # noqa: S311 - repeatable on purpose


def _seed(*parts: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
