"""Unified memory and what holds it, the page cache and the guard, for both front ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.finding import Finding, Missing, Ok, Reading, Severity, reason_of, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.memory import RESERVE_BYTES, DropResult, MemInfo, MemoryBreakdown
from spark_tui.base.host.vitals import Vitals, engine_memory
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe, moment, read
from spark_tui.base.quantities import GIB, gib, human_bytes
from spark_tui.base.store import World
from spark_tui.observe.engines.show.engines import meminfo_object
from spark_tui.observe.memory.use.memory import ContainerShare, GuardStatus, MemoryDetail

LEVELS: Final = {Severity.OK: "ok", Severity.WARNING: "tight", Severity.ERROR: "critical"}
"""The words on screen and in JSON."""


class BreakdownRow(Struct, frozen=True):
    """A line of the memory breakdown. `size` in bytes, None where it is unknown; `note` says what it is, or why not."""

    name: str
    size: int | None
    total: int
    note: str = ""

    @property
    def figure(self) -> str:
        """` 78.2 GiB  64%`; `n/a` where it is unknown, `none` of nothing."""
        if self.size is None or not self.total:
            return f"{'n/a' if self.size is None else 'none':>5}"
        return f"{gib(self.size):>5} GiB {self.size / self.total:>4.0%}"


def memory_parts(
    found: MemoryBreakdown, mem: MemInfo, pressure: Reading[float], *, drop_key: str = ""
) -> tuple[BreakdownRow, ...]:
    """The parts of the bar in the order of `MemoryBreakdown.sizes`, then available memory, then swap. `drop_key`
    drops."""
    leaked = f"; {gib(found.orphaned)} GiB leaked (no owner)" if found.orphaned >= GIB // 4 else ""
    droppable = "cache (droppable)" + (f"  {drop_key} free" if drop_key else "")
    holders = [
        f"{share.name or 'pid ' + ', '.join(map(str, share.pids))} {gib(share.memory)}" for share in found.engines or ()
    ]
    notes = (
        found.no_engines or ", ".join(holders) or "no process computes on the GPU",
        "processes, shared memory, kernel",
        found.no_driver or f"GPU driver{leaked}",
        "cache (not droppable)",
        droppable if found.droppable is not None else "unknown (not reported by the kernel)",
        "",
    )
    unknown = (found.engines is None, False, found.driver is None, False, False, False)
    names = ("engines", "apps", "driver", "cache", "droppable", "free")
    parts = [
        BreakdownRow(name, None if missing else size, found.total, note)
        for name, size, note, missing in zip(names, found.sizes, notes, unknown, strict=True)
    ]
    waiting, room = value_of(pressure), gib(max(0, mem.available - RESERVE_BYTES))
    psi = f"PSI {reason_of(pressure) if waiting is None else f'{waiting:.1f} % of 10 s waited'}"
    swap = f"of {gib(mem.swap_total)} GiB; {psi}" if mem.swap_total else psi
    return (
        *parts,
        BreakdownRow("available", mem.available, mem.total, f"an engine of up to {room} GiB fits"),
        BreakdownRow("swap", mem.swap_used, mem.swap_total, swap),
    )


def state_text(state: Finding) -> str:
    """`OK: floor, trend and pressure are fine`, or `TIGHT: 3.0 GiB available, close to the floor of 2.0`."""
    return f"{LEVELS[state.severity].upper()}: {state.summary}"


def memory_page(found: MemoryBreakdown, mem: MemInfo, world: World) -> Page:
    """The breakdown, with a line for each engine and the level."""
    parts = [
        BreakdownRow("total", mem.total, mem.total, "unified memory of CPU and GPU" if world.identity.is_spark else "")
    ]
    parts += memory_parts(found, mem, world.pressure)
    rows = [Row(f"{part.figure:<14}  {part.note}".rstrip(), part.name) for part in parts]
    for share in reversed(found.engines or ()):
        pids = f"pid {', '.join(map(str, share.pids))}"
        who = f"{share.name}, {pids}" if share.name else f"{pids}, in no container"
        rows.insert(2, Row(f"{gib(share.memory):>5} GiB       {who}", "  "))
    state = world.memory_state
    rows.append(Row(state_text(state), "level", TONES[state.severity]))
    return (Section(rows=tuple(rows)),)


def processes_table(detail: MemoryDetail) -> Table:
    """A row for each process, the largest first. An unknown size is a dash, never zero."""

    def size(found: int | None) -> str:
        return human_bytes(found) if found else "-"

    names = {share.id: share.name for share in value_of(detail.containers) or ()}
    columns = (
        Column("process", least=12),
        Column("pid", right=True, keep=7),
        Column("PSS", right=True),
        Column("RSS", right=True, keep=6),
        Column("GPU", right=True),
        Column("container", keep=8, least=12),
    )
    found = value_of(detail.processes) or ()
    rows = tuple(
        cells(
            each.name,
            Cell(str(each.pid), Tone.QUIET),
            size(each.pss),
            Cell(size(each.rss), Tone.QUIET),
            size(each.gpu),
            names.get(each.container, each.container[:12]),
        )
        for each in found
    )
    why = reason_of(detail.processes)
    empty = "Scanning processes..." if why in ("", "not read yet") else why
    return Table(columns, rows, tuple(str(each.pid) for each in found), empty)


# --- beside it --------------------------------------------------------------------------------------------


def detail_page(detail: MemoryDetail, drop: DropResult | None, *, drop_key: str) -> Page:
    """Containers, the guard, the last drop, the machine."""
    known = value_of(detail.containers)
    none = "No engine is running." if known is not None else f"unknown: {reason_of(detail.containers)}"
    containers = tuple(map(_container_row, known or ())) or (Row(none, tone=Tone.QUIET),)
    guard, rows = value_of(detail.guard), [guard_row(detail.guard)]
    if guard is not None and guard.entries:
        rows.append(Row(guard_text(guard.entries[-1]), "last action"))
    if drop is None:
        rows.append(Row(f"none yet  {drop_key} free the page cache", "last drop", Tone.QUIET))
    else:
        pairs = (("free", drop.before.free, drop.after.free), ("cache", drop.before.cache, drop.after.cache))
        figures = ", ".join(f"{name} {gib(before)} -> {gib(after)} GiB" for name, before, after in pairs)
        rows += [Row(drop.sentence, "last drop"), Row(figures, "  ", Tone.QUIET)]
    return (
        Section("Containers", containers),
        Section(rows=tuple(rows)),
        Section("Machine", _machine_rows(detail.vitals or Vitals())),
    )


def guard_row(status: Reading[GuardStatus]) -> Row:
    """What the guard does, or why that is unknown."""
    guard = value_of(status)
    if guard is None:
        return Row(reason_of(status), "guard", Tone.QUIET)
    if guard.running:
        return Row("watching: stops an engine before memory runs out", "guard", Tone.GOOD)
    return Row("not running: starts with the next launch", "guard", Tone.WARNING)


def _container_row(share: ContainerShare) -> Row:
    found = value_of(share.cpu)
    gpu = "GPU n/a" if share.gpu is None else f"GPU {gib(share.gpu)} GiB"
    if found is None:
        cpu = f"CPU n/a: {reason_of(share.cpu)}"
    else:
        cache = f" ({human_bytes(found.file)} page cache)" if found.file else ""
        cpu = f"CPU {human_bytes(found.current)}{cache}" + (f", swap {human_bytes(found.swap)}" if found.swap else "")
    return Row(f"{share.name}: {gpu}, {cpu}{'' if share.ours else '  (not started by spark-tui)'}", "-")


def guard_text(entry: GuardEntry) -> str:
    """`2026-11-21 18:40:02  stopped: qwen36: 1.9 GiB available (kill)`."""
    at = datetime.fromtimestamp(entry.at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    how = f" ({entry.how})" if entry.how else ""
    return f"{at}  {entry.act}{f': {entry.engine}' if entry.engine else ''}: {entry.reason}{how}"


def _machine_rows(vitals: Vitals) -> tuple[Row, ...]:
    def rate(bytes_: float) -> str:
        """Coarse: small changes of a quiet machine are not repainted each time."""
        return "0" if bytes_ < 10_240 else f"{human_bytes(bytes_)}/s"

    loads = (f"{each.name} {each.percent:.0f} % of {each.cpus}" for each in value_of(vitals.clusters) or ())
    heat = (
        f"{each.name} {each.celsius:.0f} C" + (f" (off at {each.limit:.0f})" if each.limit else "")
        for each in value_of(vitals.temperatures) or ()
    )
    disks = (
        f"{each.name} reads {rate(each.read)}, writes {rate(each.written)}, busy {each.busy_percent:.0f} %"
        for each in value_of(vitals.disks) or ()
    )
    links = (
        f"{each.name} in {rate(each.received)}, out {rate(each.sent)}"
        for each in value_of(vitals.links) or ()
        if each.up
    )
    swaps, faults = "", value_of(vitals.faults)
    if faults is not None:
        killed = f", {faults.oom_kills} killed by the kernel for memory since boot" if faults.oom_kills else ""
        swaps = f"{faults.major:.0f} major/s, swap in {faults.swapped_in:.0f}/s, out {faults.swapped_out:.0f}/s{killed}"
    found: tuple[tuple[str, str, Reading[Any]], ...] = (
        ("processors", "  ".join(loads), vitals.clusters),
        ("heat", "  ".join(heat), vitals.temperatures),
        ("disk", "  ".join(disks), vitals.disks),
        ("network", "  ".join(links) or "no link is up", vitals.links),
        ("faults", swaps, vitals.faults),
    )
    return tuple(
        Row(f"n/a: {reading.reason}", label, Tone.QUIET) if isinstance(reading, Missing) else Row(text, label)
        for label, text, reading in found
    )


# --- as data ----------------------------------------------------------------------------------------------


def memory_object(found: MemoryBreakdown, mem: MemInfo, world: World) -> Object:
    """The breakdown as data: `engines` + `apps` + `driver` is `in_use`."""
    engines: Reading[int] = engine_memory(world.gpu)
    if found.engine_memory is not None:
        engines = Ok(found.engine_memory)
    elif not isinstance(engines, Missing):
        engines = Missing(found.no_engines)
    listed = None
    if found.engines is not None:
        listed = [
            {
                "id": share.name or f"pid {share.pids[0]}",
                "bytes": share.memory,
                "pids": list(share.pids),
                **maybe("container_id", share.container, "it runs in no container"),
            }
            for share in found.engines
        ]
    state = world.memory_state
    return {
        **meminfo_object(mem, engines),
        **maybe("engines", listed, found.no_engines),
        "apps_bytes": found.apps,
        **maybe("driver_bytes", found.driver, found.no_driver),
        "driver_orphaned_bytes": found.orphaned,
        **read("pressure_percent", world.pressure, float),
        "level": LEVELS[state.severity],
        **maybe("level_cause", "" if state.severity is Severity.OK else state.summary, "all is well"),
    }


def drop_object(result: DropResult) -> Object:
    """A drop of the page cache as data."""
    return {
        "id": "drop-caches",
        "route": result.route.value,
        "released_bytes": result.released,
        "free_before_bytes": result.before.free,
        "free_after_bytes": result.after.free,
        "available_before_bytes": result.before.available,
        "available_after_bytes": result.after.available,
        "seconds": round(result.seconds, 3),
        "synced": result.synced,
        "sentence": result.sentence,
    }


def guard_entry_object(entry: GuardEntry) -> Object:
    """An act of the guard as data."""
    return {
        "at": moment(entry.at),
        "at_seconds": round(entry.at, 3),
        "act": entry.act,
        **maybe("engine", entry.engine, "it concerns no engine"),
        "reason": entry.reason,
        **maybe("how", entry.how, "nothing to report"),
    }
