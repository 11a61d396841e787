"""The figures of a fit: lines for people, and the parts of the bar."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from spark_tui.base.quantities import gib, human_bytes
from spark_tui.catalog.fit.model.fit import Basis, Fit, FitPart, PartId


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
            if share and fit.utilization_needed is not None and fit.utilization_needed <= 1:
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
