"""Whether a launch fits: its figures, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.finding import Change, Finding, Reading, Severity
from spark_tui.base.host.memory import RESERVE_BYTES, MemInfo
from spark_tui.base.quantities import gib, human_bytes, short_tokens
from spark_tui.catalog.fit.model.fit import (
    FEW_SEQUENCES,
    SHORTEST,
    SLOW_TOKENS_PER_SECOND,
    Basis,
    Fit,
    FitChange,
    FitPart,
    FitWord,
    Needs,
    Neighbour,
    PartId,
    against,
)
from spark_tui.catalog.fit.model.request import FitRequest
from spark_tui.catalog.presets.model.overrides import SHARE, SHARE_ALONE
from spark_tui.catalog.presets.model.plan import LaunchPlan


class FitLine(Struct, frozen=True):
    """One row of figures: what, how much, and where the figure comes from."""

    label: str
    value: str
    note: str = ""


def fit_lines(fit: Fit) -> Iterator[FitLine]:
    """The figures, top to bottom: what it needs, what it takes, what the machine has. Unknown parts show `?`, and sums
    with them `at least`."""
    yield from map(_part_line, fit.parts)
    if fit.need is None:
        yield FitLine("Needs at least", _size(fit.at_least), "without the unknown parts")
    else:
        yield FitLine("Needs", _size(fit.need), "for one sequence of full length")
        if fit.need_all is not None and fit.sequences > 1:
            yield FitLine("Needs for all", _size(fit.need_all), f"{fit.sequences} sequences of full length")
    if fit.total is not None:
        yield FitLine("Available now", _size(fit.available), f"of {gib(fit.total)} GiB")
        for other in fit.neighbours:
            state = "running" if other.will_take == 0 else "still loading"
            yield FitLine(f"  {other.name}", _size(other.holds), state)
        if fit.claim is not None:
            share = "" if fit.utilization is None else f"{fit.utilization:g} of the memory"
            if share and fit.utilization_needed is not None and auto_share(fit) == fit.utilization_needed:
                share += f"; {fit.utilization_needed:.2f} would be enough"
            yield FitLine("Takes", _size(fit.claim), share)
        yield from map(_part_line, fit.outside)
        if fit.cache_to_drop:
            yield FitLine("Page cache to free", _size(fit.cache_to_drop), "before it starts")
        if fit.left is not None:
            yield FitLine("Left free", _size(fit.left))
    kv, decode = fit.kv, fit.decode
    if kv is not None:
        grows = f"{human_bytes(kv.bytes_per_token)} per token in {kv.dtype}" if kv.bytes_per_token else kv.dtype
        state = f", and {human_bytes(kv.state_bytes)} of state per sequence" if kv.state_bytes else ""
        yield FitLine("KV cache", _size(kv.room), grows + state)
        yield FitLine("Sequences", f"{kv.concurrency:.1f}", f"of {fit.context or 0:,} tokens at once")
    if decode is not None:
        read = f"{'at least ' if decode.bound else ''}{decode.reads / 1e9:.1f} GB read per token"
        yield FitLine("Decode", decode.text(fit.published), f"one stream, estimated: {read}")


def _part_line(part: FitPart) -> FitLine:
    basis = {Basis.RULE: "estimate", Basis.UNKNOWN: "unknown"}.get(part.basis, part.basis.value)
    note = f"{basis}: {part.note}" if part.note and part.basis is not Basis.UNKNOWN else part.note or basis
    return FitLine(part.label, _size(part.size), note)


def _size(size: int | None) -> str:
    return "?" if size is None else f"{gib(size)} GiB"


def pieces(fit: Fit) -> tuple[tuple[str, int], ...]:
    """What would be in use once this launch serves, in bytes: `others`, `weights`, `kv`, `overhead` (the rest of the
    engine). Empty when memory or what the engine takes is unknown."""
    if fit.total is None or fit.available is None or fit.claim is None:
        return ()
    sizes = {"weights": 0, "overhead": 0}
    for part in fit.parts:
        if part.id not in (PartId.KV, PartId.STATE):
            sizes["weights" if part.id in (PartId.WEIGHTS, PartId.DRAFTER) else "overhead"] += part.size or 0
    return (
        ("others", fit.total - fit.available),
        ("weights", sizes["weights"]),
        ("kv", max(0, fit.claim - sum(sizes.values()))),
        ("overhead", sizes["overhead"] + sum(part.size or 0 for part in fit.outside)),
    )


def slices(fit: Fit) -> tuple[tuple[str, int], ...]:
    """The same and what is `free`, which add up to the total exactly. What does not fit is cut off at the end."""
    found: list[tuple[str, int]] = []
    room, taken = fit.total or 0, pieces(fit)
    for name, size in taken:
        cut = min(size, room)
        room -= cut
        if cut:
            found.append((name, cut))
    return (*found, ("free", room)) if taken else ()


# --- verdict ---------------------------------------------------------------------------------------------


_MOST_STOPS: Final = 8


class LaunchVerdict(Struct, frozen=True):
    """One launch, judged: the plan with the memory share resolved, the fit, the findings of the rules."""

    plan: LaunchPlan
    fit: Fit
    findings: tuple[Finding, ...] = ()

    @property
    def word(self) -> FitWord:
        return self.fit.word

    @property
    def text(self) -> str:
        return self.fit.text


def auto_share(whole: Fit) -> float | None:
    """The memory share for a launch that leaves it open: what its context and users need, no more than fits now. Where
    not even one sequence fits now, no more than fits when all others are stopped. Of an unknown need
    the recipe's or the usual one, as far as that fits. None: nothing to set."""
    least, needed, most = whole.utilization_least, whole.utilization_needed, whole.utilization_most
    if most is None:
        return None
    if least is None or needed is None:  # the recipe's own, or the usual one, as far as it fits
        fits = whole.utilization is not None and whole.at_least < most * (whole.total or 0)
        return min(whole.utilization if whole.named and whole.utilization else SHARE_ALONE, most) if fits else None
    if least > 1:
        return None
    tight = least * (whole.total or 0) + _beside(whole) <= (whole.available or 0)
    return min(needed, max(least, most if tight else whole.utilization_alone or most))


def number_for(whole: Fit) -> float | None:
    """The number that a launch which leaves its share open is given; None where it has that already, or needs none."""
    share = auto_share(whole)
    return None if share == whole.utilization else share


# --- the word ---------------------------------------------------------------------------------------------


def judged(
    needs: Needs,
    memory: Reading[MemInfo],
    neighbours: Sequence[Neighbour] = (),
    returns: int = 0,
    share: float | None = None,
) -> Fit:
    """What is needed `against` the memory now, with its word, its reasons, and what would help; only the figures where
    memory could not be read. `share`: the number of an automatic memory share."""
    asked = needs.asked
    if share is not None:
        asked = replace(asked, utilization=share)
        needs = replace(needs, asked=asked, whole=replace(needs.whole, utilization=share, auto=True))
    whole = against(needs, memory, neighbours, returns)
    if whole.total is None:
        return whole
    findings = (*_blocking(whole, asked), *_slowing(whole, asked))
    unknown = tuple(
        Finding("fit_unknown", Severity.UNKNOWN, f"{part.label}: unknown ({part.note}).", subject=part.id.value)
        for part in whole.unknown
    )
    blocked = any(finding.severity is Severity.ERROR for finding in findings)
    share = _other_share(whole, asked)
    stops = _stops(whole) if blocked else ()
    shorter = _shorter(whole, asked) if blocked else ()
    change: Change = ()
    if not blocked and unknown:
        word = FitWord.UNKNOWN
        least = Finding("fit_at_least", Severity.UNKNOWN, f"Needs at least {gib(whole.at_least)} GiB.")
        findings = (*unknown, least, *findings)
    elif not blocked:
        word, share = (FitWord.FITS_WITH, whole.utilization) if whole.auto else (FitWord.FITS, share)
        findings = findings or (_fits(whole),)
    elif share is not None:
        word = FitWord.UNKNOWN if whole.utilization_least is None else FitWord.FITS_WITH
        change = _setting(asked, SHARE, f"{share:.2f}")
    else:
        word, change = FitWord.FITS_WHEN_STOPPED if stops else FitWord.DOES_NOT_FIT, shorter
    found = replace(whole, word=word, findings=findings, share=share, change=change, stops=stops)
    if found.blocked or found.slow or whole.cache_to_drop:
        found = replace(found, changes=tuple(_changes(found, asked, shorter)))
    return found


def _fits(whole: Fit) -> Finding:
    text = f"Leaves {gib(whole.left or 0)} GiB."
    if whole.kv is not None:
        length = short_tokens(whole.context or 0)
        text += f" The KV cache holds {whole.kv.concurrency:.1f} sequences of {length} tokens."
    return Finding("fit_ready", Severity.OK, text)


def _blocking(whole: Fit, asked: FitRequest) -> Iterator[Finding]:
    """Why it would not start, or would take the machine down: the memory, then the share within it."""
    available, claim, kv = whole.available or 0, whole.claim, whole.kv
    share = asked.utilization if asked.launch.is_vllm else None
    start = math.ceil((whole.total or 0) * share) if share is not None else 0
    id_, text = "fit_memory", ""
    if start > available:
        id_, of = "fit_share_unavailable", f"({share:g} of {gib(whole.total or 0)})"
        text = f"vLLM will refuse to start: it needs {gib(start)} GiB free {of}, {gib(available)} GiB are available."
    elif whole.left is not None and whole.left < 0:
        takes = f"it takes {gib(available - whole.left)} GiB with its processes"
        text = f"It may freeze the machine: {takes}, {gib(available)} GiB are available."
    elif claim is None and whole.at_least > available:
        text = f"Needs at least {gib(whole.at_least)} GiB; {gib(available)} GiB are available."
    if text:
        yield Finding(id_, Severity.ERROR, text)
    has_share = (asked.utilization is not None or asked.free_share is not None) and claim is not None
    if has_share and kv is None and whole.at_least > (claim or 0):
        text = f"The share of {gib(claim or 0)} GiB is too small: it needs at least {gib(whole.at_least)} GiB."
        yield Finding("fit_share_small", Severity.ERROR, text)
    elif (has_share or asked.kv_bytes is not None) and kv is not None and kv.concurrency < 1:
        one = f"one sequence of {whole.context or 0:,} tokens takes {gib(kv.each)} GiB"
        text = f"The KV cache is too small: {one}, {gib(kv.room)} GiB are left for it."
        yield Finding("fit_context", Severity.ERROR, text)


def _slowing(whole: Fit, asked: FitRequest) -> Iterator[Finding]:
    kv, decode = whole.kv, whole.decode
    if whole.left is not None and 0 <= whole.left < RESERVE_BYTES:
        text = f"Leaves {gib(whole.left)} GiB to the system; {gib(RESERVE_BYTES, 0)} should stay free."
        yield Finding("fit_reserve", Severity.WARNING, text)
    if kv is not None and 1 <= kv.concurrency < min(asked.sequences, FEW_SEQUENCES):
        held = f"The KV cache holds {kv.concurrency:.1f} sequences of full length"
        text = f"{held}, {asked.sequences} are allowed: more wait or are preempted."
        yield Finding("fit_sequences", Severity.WARNING, text)
    slow = decode is not None and max(decode.measured, whole.published) < SLOW_TOKENS_PER_SECOND
    if decode is not None and slow and not asked.kv.draft_tokens:
        text = f"Slow for one stream ({decode.text(whole.published)}): {decode.reads / 1e9:.1f} GB read per token."
        yield Finding("fit_decode", Severity.WARNING, text)


# --- what would help --------------------------------------------------------------------------------------


def _other_share(whole: Fit, asked: FitRequest) -> float | None:
    """The share that fits now, where the launch has another one."""
    least, share = whole.utilization_least, auto_share(whole)
    fits = least is None or least * (whole.total or 0) + _beside(whole) <= (whole.available or 0)
    return share if fits and share != asked.utilization else None


def _beside(whole: Fit) -> int:
    """What the engine takes beside its share."""
    return sum(part.size or 0 for part in whole.outside)


def _setting(asked: FitRequest, key: str, value: object) -> Change:
    return asked.launch.setting(key, value) if asked.launch.preset.engine == "vllm" else ()


def _stops(whole: Fit) -> tuple[str, ...]:
    """The fewest other engines whose memory is enough for this launch as it is, of those the smallest."""
    short = -(whole.left or 0)
    if whole.left is None or short <= 0 or (whole.kv is not None and whole.kv.concurrency < 1):
        return ()
    others = [(each.name, (each.holds or 0) + (each.will_take or 0)) for each in whole.neighbours if each.holds]
    others = sorted(others, key=lambda each: -each[1])[:_MOST_STOPS]
    for count in range(1, len(others) + 1):
        enough = [few for few in combinations(others, count) if sum(size for _, size in few) >= short]
        if enough:
            return tuple(name for name, _ in min(enough, key=lambda few: sum(size for _, size in few)))
    return ()


def _shorter(whole: Fit, asked: FitRequest) -> Change:
    """The longest context that fits now for the wanted users; before it the share, where the launch names another."""
    context = whole.reach.context_now if whole.reach is not None else 0
    if context < SHORTEST or context >= (asked.context or 0) or whole.utilization_most is None:
        return ()
    share = () if whole.auto else _setting(asked, SHARE, f"{whole.utilization_most:.2f}")
    return (*share, *_setting(asked, "max_model_len", context))


def _changes(whole: Fit, asked: FitRequest, shorter: Change) -> Iterator[FitChange]:
    """Changes that help, the least intrusive first."""
    total, share, used = whole.total or 0, whole.share, asked.utilization or 0.0
    if whole.cache_to_drop and not whole.blocked:
        yield FitChange(f"Free page cache: {gib(whole.cache_to_drop)} GiB needed.", gains=whole.cache_to_drop)
    kv, users, left = whole.kv, whole.users, whole.left or 0
    waits = kv is not None and kv.concurrency < users and share == whole.utilization_needed
    if share is not None and (whole.blocked or (left < RESERVE_BYTES if share < used else waits)):
        verb, gains = ("Lower" if share < used else "Raise"), int(abs(used - share) * total)
        yield FitChange(f"{verb} the memory share to {share:.2f}.", _setting(asked, SHARE, f"{share:.2f}"), gains)
    if whole.stops:
        freed = sum(each.holds or 0 for each in whole.neighbours if each.name in whole.stops)
        yield FitChange(f"Stop {' and '.join(whole.stops)} (frees {gib(freed)} GiB).", gains=freed)
    if whole.blocked and shorter:
        context = int(shorter[-1][1])
        yield FitChange(f"Shorten the context to {context:,} tokens.", shorter)
    elif not whole.blocked and kv is not None and 1 <= kv.concurrency < users and whole.reach is not None:
        if SHORTEST <= whole.reach.context_now < (whole.context or 0):
            context = whole.reach.context_now
            text = f"Shorten the context to {context:,} tokens: {users} such sequences fit."
            yield FitChange(text, _setting(asked, "max_model_len", context))
        fewer = int(kv.concurrency)
        text = f"Allow {fewer} sequence{'s' if fewer > 1 else ''} at once."
        yield FitChange(text, _setting(asked, "max_num_seqs", fewer))
