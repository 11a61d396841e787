"""The figures of a fit: its rows, and the machine's memory cut into slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_tui.domain.models.weights import MEASURED_BANDWIDTH, PAPER_BANDWIDTH
from spark_tui.domain.presets.fit import Basis, Fit, Part, PartId
from spark_tui.domain.quantities import gib, human_bytes

_BASIS = {Basis.RULE: "estimate", Basis.UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class FitLine:
    """One row: what, how much, and where the figure comes from."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the memory as it would be, in bytes. `id` is a PartId's value, or `others` or `left`."""

    id: str
    label: str
    size: int


def fit_lines(fit: Fit) -> tuple[FitLine, ...]:
    """The figures, top to bottom: what it needs, what it takes, what the machine has. Unknown parts show `?`, and sums
    with them `at least`."""
    return (*map(_part_line, fit.parts), *_needs(fit), *_machine(fit), *_cache(fit))


def _part_line(part: Part) -> FitLine:
    basis = _BASIS.get(part.basis, part.basis.value)
    note = f"{basis}: {part.note}" if part.note and part.basis is not Basis.UNKNOWN else part.note or basis
    return FitLine(part.label, _size(part.size), note)


def _size(size: int | None) -> str:
    return "?" if size is None else f"{gib(size)} GiB"


def _needs(fit: Fit) -> Iterator[FitLine]:
    if fit.need is None:
        yield FitLine("Needs at least", _size(fit.at_least), "without the unknown parts")
        return
    yield FitLine("Needs", _size(fit.need), "for one sequence of full length")
    if fit.need_all is not None and fit.sequences > 1:
        yield FitLine("Needs for all", _size(fit.need_all), f"{fit.sequences} sequences of full length")


def _machine(fit: Fit) -> Iterator[FitLine]:
    if fit.total is None:
        return
    yield FitLine("Available now", _size(fit.available), f"of {gib(fit.total)} GiB")
    for other in fit.neighbours:
        yield FitLine(f"  {other.name}", _size(other.holds), "running" if other.will_take == 0 else "still loading")
    if fit.claim is not None:
        share = "" if fit.utilization is None else f"{fit.utilization:g} of the memory"
        if fit.utilization is not None and fit.utilization_needed is not None and fit.utilization_needed <= 1:
            share += f"; {fit.utilization_needed:.2f} would be enough"
        yield FitLine("Takes", _size(fit.claim), share)
    yield from map(_part_line, fit.outside)
    if fit.cache_to_drop:
        yield FitLine("Page cache to free", _size(fit.cache_to_drop), "before it starts")
    if fit.left is not None:
        yield FitLine("Left free", _size(fit.left))


def _cache(fit: Fit) -> Iterator[FitLine]:
    kv, decode = fit.kv, fit.decode
    if kv is not None:
        grows = f"{human_bytes(kv.bytes_per_token)} per token in {kv.dtype}" if kv.bytes_per_token else kv.dtype
        state = f", and {human_bytes(kv.state_bytes)} of state per sequence" if kv.state_bytes else ""
        yield FitLine("KV cache", _size(kv.room), grows + state)
        yield FitLine("Sequences", f"{kv.concurrency:.1f}", f"of {fit.context or 0:,} tokens at once")
    if decode is not None:
        least = "at least " if decode.bound else ""
        yield FitLine(
            "Decode ceiling",
            f"{decode.measured:.0f} tok/s",
            f"one stream at {MEASURED_BANDWIDTH / 1e9:.0f} GB/s (measured), {decode.paper:.0f} at "
            f"{PAPER_BANDWIDTH / 1e9:.0f} (data sheet): {least}{decode.reads / 1e9:.1f} GB read per token",
        )


def slices(fit: Fit) -> tuple[Slice, ...]:
    """The whole memory as it would be once this launch serves, cut so that the sizes add up to the total exactly; empty
    when memory or what the engine takes is not known. What does not fit is cut off at the end."""
    if fit.total is None or fit.available is None or fit.claim is None:
        return ()
    inside = [part for part in fit.parts if part.size and part.id not in (PartId.KV, PartId.STATE)]
    cache = max(0, fit.claim - sum(part.size or 0 for part in inside))
    pieces = [
        ("others", "In use now", fit.total - fit.available),
        *((part.id.value, part.label, part.size or 0) for part in inside),
        (PartId.KV.value, "KV cache", cache),
        *((part.id.value, part.label, part.size or 0) for part in fit.outside),
    ]
    found: list[Slice] = []
    room = fit.total
    for name, label, size in pieces:
        cut = min(size, room)
        room -= cut
        if cut:
            found.append(Slice(name, label, cut))
    return (*found, Slice("left", "Left", room))
