"""READY, SLOW, BLOCKED or UNKNOWN, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from spark_tui.domain.models.kv import KvLayout
from spark_tui.domain.presets.fit_ask import Ask
from spark_tui.domain.presets.fit_changes import changes_of
from spark_tui.domain.presets.fit_types import FEW_SEQUENCES, RESERVE_BYTES, Fit, Verdict
from spark_tui.domain.quantities import gib, short_tokens

SLOW_TOKENS_PER_SECOND: Final = 10.0
"""About the speed at which people read."""


def judged(whole: Fit, ask: Ask, layout: KvLayout | None) -> Fit:
    """The fit with its verdict, its reasons, and what would help."""
    blocked, slow = _blocking(whole, ask), _slowing(whole, ask)
    unknown = [f"{part.label}: not known ({part.note})." for part in whole.unknown]
    changes = changes_of(whole, ask, layout) if blocked or slow or whole.cache_to_drop else ()
    if blocked:
        return replace(whole, verdict=Verdict.BLOCKED, reasons=(*blocked, *slow), changes=changes)
    if unknown:
        least = f"It needs at least {gib(whole.at_least)} GiB."
        return replace(whole, verdict=Verdict.UNKNOWN, reasons=(*unknown, least, *slow), changes=changes)
    if slow:
        return replace(whole, verdict=Verdict.SLOW, reasons=tuple(slow), changes=changes)
    return replace(whole, verdict=Verdict.READY, reasons=(_ready(whole),), changes=changes)


def _ready(whole: Fit) -> str:
    words = f"It fits, and leaves {gib(whole.left or 0)} GiB."
    if whole.kv is None:
        return words
    return f"{words} The cache holds {whole.kv.concurrency:.1f} sequences of {short_tokens(whole.context or 0)} tokens."


def _blocking(whole: Fit, ask: Ask) -> list[str]:
    found: list[str] = []
    available, total = whole.available or 0, whole.total or 0
    start = math.ceil(total * ask.utilization) if ask.utilization is not None and ask.is_vllm else None
    if start is not None and start > available:
        found.append(
            f"vLLM would refuse to start: it asks for {gib(start)} GiB ({ask.utilization:g} of {gib(total)}), "
            f"and {gib(available)} GiB are available."
        )
    elif whole.left is not None and whole.left < 0:
        found.append(
            f"It would take the machine down: with its processes it takes {gib(available - whole.left)} GiB, and "
            f"{gib(available)} GiB are available."
        )
    elif whole.claim is None and whole.at_least > available:
        found.append(f"It needs at least {gib(whole.at_least)} GiB, and {gib(available)} GiB are available.")
    if (ask.utilization is not None or ask.free_share is not None) and whole.claim is not None:
        found += _no_room(whole)
    elif ask.kv_bytes is not None and whole.kv is not None and whole.kv.concurrency < 1:
        found += _too_long(whole)
    return found


def _no_room(whole: Fit) -> list[str]:
    """The share is too small for what must be in it."""
    claim = whole.claim or 0
    if whole.kv is None:
        if whole.at_least <= claim:
            return []
        return [f"The share of {gib(claim)} GiB is too small: it needs at least {gib(whole.at_least)} GiB."]
    return _too_long(whole) if whole.kv.concurrency < 1 else []


def _too_long(whole: Fit) -> list[str]:
    kv = whole.kv
    if kv is None:
        return []
    return [
        f"The KV cache is too small: one sequence of {whole.context or 0:,} tokens takes {gib(kv.each)} GiB, and "
        f"{gib(kv.room)} GiB are left for it."
    ]


def _slowing(whole: Fit, ask: Ask) -> list[str]:
    found: list[str] = []
    if whole.left is not None and 0 <= whole.left < RESERVE_BYTES:
        found.append(f"It leaves {gib(whole.left)} GiB to the system; {gib(RESERVE_BYTES, 0)} should stay free.")
    if whole.kv is not None and 1 <= whole.kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        found.append(
            f"The cache holds {whole.kv.concurrency:.1f} sequences of full length, and {ask.sequences} are allowed: "
            "more than that wait, or are computed again."
        )
    decode = whole.decode
    if decode is not None and decode.measured < SLOW_TOKENS_PER_SECOND and not ask.kv.draft_tokens:
        found.append(
            f"One stream decodes at most {decode.measured:.1f} tokens per second: each token reads "
            f"{decode.reads / 1e9:.1f} GB of weights."
        )
    return found
