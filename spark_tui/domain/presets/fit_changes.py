"""What would make a launch fit, each with its figure, and as the setting that does it where there is one."""

from __future__ import annotations

import math
from typing import Final

from spark_tui.domain.models.kv import KvLayout
from spark_tui.domain.presets.fit_ask import Ask
from spark_tui.domain.presets.fit_types import FEW_SEQUENCES, RESERVE_BYTES, Change, Fit
from spark_tui.domain.quantities import gib


def changes_of(whole: Fit, ask: Ask, layout: KvLayout | None) -> tuple[Change, ...]:
    """Changes that help, the least intrusive first."""
    found: list[Change] = []
    if whole.cache_to_drop and (whole.left or 0) >= 0:
        size = whole.cache_to_drop
        found.append(Change(f"Free the page cache: {gib(size)} GiB of it are in the way.", gains=size))
    if _short(whole):
        found += _lower_share(whole, ask, layout)
    else:
        found += _raise_share(whole, ask)
        found += _length(whole, ask, layout)
        found += _sequences(whole, ask)
    found += _neighbours(whole)
    return tuple(found)


def _short(whole: Fit) -> bool:
    """The machine has less memory than would be taken."""
    return whole.left is not None and whole.left < RESERVE_BYTES


SHORTEST: Final = 1024
"""A shorter context is of no use to anybody."""


def _setting(ask: Ask, key: str, value: str) -> tuple[tuple[str, str], ...]:
    return ask.case.setting(key, value) if ask.engine == "vllm" else ()


def _lower_share(whole: Fit, ask: Ask, layout: KvLayout | None) -> list[Change]:
    """A share that the machine has room for, with a shorter context where the one asked for would not fit into it."""
    most, total = whole.utilization_most, whole.total or 0
    if ask.utilization is None or ask.kv_bytes is not None or most is None or not 0 < most < ask.utilization:
        return []
    gains = int((ask.utilization - most) * total)
    if whole.need is None:
        return (
            [Change(f"Lower the share to {most:.2f}.", _share(ask, most), gains)]
            if whole.at_least < most * total
            else []
        )
    if whole.need <= most * total:
        return [Change(f"Lower the share to {most:.2f}.", _share(ask, most), gains)]
    if layout is None or ask.context is None:
        return []
    base = whole.need - layout.sequence_bytes(ask.context)
    length = _rounded(layout.longest(int(most * total) - base, ask.context))
    if length < SHORTEST:
        return []
    pairs = (*_share(ask, most), *_setting(ask, "max_model_len", str(length)))
    return [Change(f"Lower the share to {most:.2f}, and the context to {length:,} tokens.", pairs, gains)]


def _raise_share(whole: Fit, ask: Ask) -> list[Change]:
    """A larger share, where the cache has no room in this one and the machine has."""
    most, wanted, total = whole.utilization_most, whole.utilization_needed, whole.total or 0
    if ask.utilization is None or whole.need is None or most is None or wanted is None or ask.kv_bytes is not None:
        return []
    least = math.ceil(whole.need / total * 100) / 100 if total else 2.0
    better = min(most, wanted)
    if better <= ask.utilization or least > most or (least <= ask.utilization and wanted > most):
        return []
    gains = int((better - ask.utilization) * total)
    return [
        Change(f"Raise the share to {better:.2f}: {gib(gains)} GiB more for the cache.", _share(ask, better), gains)
    ]


def _share(ask: Ask, value: float) -> tuple[tuple[str, str], ...]:
    return _setting(ask, "gpu_memory_utilization", f"{value:.2f}")


def _length(whole: Fit, ask: Ask, layout: KvLayout | None) -> list[Change]:
    """A shorter context: of which one sequence fits, or all that are asked for."""
    kv = whole.kv
    if kv is None or layout is None or ask.context is None:
        return []
    found = []
    if kv.concurrency < 1:
        one = _rounded(kv.longest)
        if one:
            found.append(Change(f"Shorten the context to {one:,} tokens.", _setting(ask, "max_model_len", str(one))))
    elif kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        each = _rounded(layout.longest(kv.room // ask.sequences, ask.context))
        if each:
            words = f"Shorten the context to {each:,} tokens: {ask.sequences} sequences of it fit."
            found.append(Change(words, _setting(ask, "max_model_len", str(each))))
    return found


def _rounded(tokens: int) -> int:
    """Whole thousands of tokens, as people write lengths; short ones as they are."""
    return tokens // 1024 * 1024 or tokens


def _sequences(whole: Fit, ask: Ask) -> list[Change]:
    kv = whole.kv
    if kv is None or not 1 <= kv.concurrency < min(ask.sequences, FEW_SEQUENCES):
        return []
    fewer = int(kv.concurrency)
    words = "one sequence" if fewer == 1 else f"{fewer} sequences"
    return [Change(f"Allow {words} at once.", _setting(ask, "max_num_seqs", str(fewer)))]


def _neighbours(whole: Fit) -> list[Change]:
    """Stopping another engine, when memory is short and it is known to hold some."""
    if not _short(whole):
        return []
    holding = sorted((n for n in whole.neighbours if n.holds), key=lambda n: -(n.holds or 0))
    return [Change(f"Stop {n.name}: {gib(n.holds or 0)} GiB come back.", gains=n.holds) for n in holding]
