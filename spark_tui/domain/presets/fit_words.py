"""A fit as rows and as slices of the pool: what every front end shows, without colours."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.presets.fit_types import Basis, Fit, Part, PartId
from spark_tui.domain.quantities import gib, human_bytes

_UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class FitLine:
    """One row: what, how much, and where the figure comes from."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the pool as it would be, in bytes. `id` is a PartId's value, or `others` or `left`."""

    id: str
    label: str
    size: int


def fit_lines(fit: Fit) -> tuple[FitLine, ...]:
    """The figures, top to bottom: what it needs, what it takes, what the machine has. A part that is not known says
    so, and sums with it say `at least`."""
    return (*map(_part_line, fit.parts), *_need_lines(fit), *_machine_lines(fit), *_cache_lines(fit), *_decode(fit))


def _part_line(part: Part) -> FitLine:
    note = f"{part.basis}: {part.note}" if part.note and part.basis is not Basis.UNKNOWN else part.note or part.basis
    return FitLine(part.label, _size(part.size), str(note))


def _size(size: int | None) -> str:
    return _UNKNOWN if size is None else f"{gib(size)} GiB"


def _need_lines(fit: Fit) -> list[FitLine]:
    if fit.need is None:
        return [FitLine("Needs at least", _size(fit.at_least), "what is not known comes on top")]
    lines = [FitLine("Needs", _size(fit.need), "for one sequence of full length")]
    if fit.need_all is not None and fit.sequences > 1:
        lines.append(FitLine("Needs for all", _size(fit.need_all), f"{fit.sequences} sequences of full length"))
    return lines


def _machine_lines(fit: Fit) -> list[FitLine]:
    if fit.total is None:
        return []
    lines = [FitLine("Available now", _size(fit.available), f"of {gib(fit.total)} GiB")]
    lines += [
        FitLine(f"  {other.name}", _size(other.holds), "already taken" if other.will_take == 0 else "still loads")
        for other in fit.neighbours
    ]
    if fit.claim is not None:
        share = "" if fit.utilization is None else f"{fit.utilization:g} of the pool"
        if fit.utilization is not None and fit.utilization_needed is not None and fit.utilization_needed <= 1:
            share += f"; {fit.utilization_needed:.2f} would do"
        lines.append(FitLine("It takes", _size(fit.claim), share))
    lines += map(_part_line, fit.outside)
    if fit.cache_to_drop:
        lines.append(FitLine("Page cache to drop", _size(fit.cache_to_drop), "before it starts"))
    if fit.left is not None:
        lines.append(FitLine("Leaves", _size(fit.left), ""))
    return lines


def _cache_lines(fit: Fit) -> list[FitLine]:
    kv = fit.kv
    if kv is None:
        return []
    grows = f"{human_bytes(kv.bytes_per_token)} per token in {kv.dtype}" if kv.bytes_per_token else kv.dtype
    if kv.state_bytes:
        grows += f", and {human_bytes(kv.state_bytes)} of state per sequence"
    return [
        FitLine("KV cache", _size(kv.room), grows),
        FitLine("Sequences", f"{kv.concurrency:.1f}", f"of {fit.context or 0:,} tokens at once"),
    ]


def _decode(fit: Fit) -> list[FitLine]:
    decode = fit.decode
    if decode is None:
        return []
    least = "at least " if decode.bound else ""
    note = f"each token reads {least}{decode.reads / 1e9:.1f} GB; {decode.paper:.0f} by the data sheet"
    return [FitLine("Decodes at most", f"{decode.measured:.0f} tok/s", note)]


def slices(fit: Fit) -> tuple[Slice, ...]:
    """The whole pool as it would be once this launch serves, cut so that the sizes add up to the total exactly; empty
    when memory or what the engine takes is not known. What does not fit is cut off at the end."""
    if fit.total is None or fit.available is None or fit.claim is None:
        return ()
    pieces = [("others", "In use now", fit.total - fit.available)]
    inside = 0
    for part in fit.parts:
        if part.size and part.id not in (PartId.KV, PartId.STATE):
            pieces.append((part.id.value, part.label, part.size))
            inside += part.size
    pieces.append((PartId.KV.value, "KV cache", max(0, fit.claim - inside)))
    pieces += [(part.id.value, part.label, part.size) for part in fit.outside if part.size]
    found: list[Slice] = []
    room = fit.total
    for name, label, size in pieces:
        cut = min(size, room)
        room -= cut
        if cut:
            found.append(Slice(name, label, cut))
    return (*found, Slice("left", "Left", room))
