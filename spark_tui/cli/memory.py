"""memory: who holds the pool, once or line by line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.store import World
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.gpu import engine_memory
from spark_tui.domain.host.ledger import EngineShare, Ledger
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import Missing, Ok, Reading, reason_of, value_of

HEADING_EVERY: Final = 20
"""Lines of `--watch` between two headings."""
_COLUMNS: Final = ("time", "avail", "engines", "apps", "driver", "cache", "free", "swap", "PSI", "level")


def memory(session: Session, *, watch: bool) -> None:
    """The ledger of the unified memory, now or once a second. Raises SparkError when it cannot be read."""
    if watch:
        session.run(lambda context: _watch(session, context))
        return

    async def look(context: Context) -> tuple[World, Ledger]:
        await context.collectors.collect_once()
        return context.store.world, await _ledger(context)

    world, found = session.run(look)
    mem = _read(world)
    if session.as_json:
        session.out.json({"id": "memory", **_shape(world, mem, found)})
    else:
        session.out.lines(_lines(mem, found, world))


def _read(world: World) -> MemInfo:
    mem = value_of(world.memory)
    if mem is None:
        raise SparkError(f"Memory cannot be read: {reason_of(world.memory)}.", "Is /proc mounted? Only Linux has it.")
    return mem


async def _ledger(context: Context) -> Ledger:
    """The ledger with the names of containers that hold GPU memory, as far as Docker tells them."""
    world = context.store.world
    _read(world)
    found = value_of(context.ledger.read(world))
    if found is not None and any(share.container for share in found.engines or ()):
        try:
            names = {each.id: each.name for each in await context.docker.containers()}
        except SparkError:  # then their ids have to do
            names = {}
        found = value_of(context.ledger.read(world, names))
    if found is None:
        raise SparkError("The ledger cannot be cut.", "Try again.")
    return found


# --- once ---------------------------------------------------------------------------------------------


def _lines(mem: MemInfo, found: Ledger, world: World) -> Iterator[str]:
    droppable = "the kernel does not tell how much can be dropped"
    if mem.droppable is not None:
        droppable = f"{gib(mem.droppable)} GiB of it can be dropped at once"
    yield _row("total", mem.total, "one pool for CPU and GPU" if world.identity.is_spark else "")
    yield _row("  in use", mem.in_use, "processes, shared memory, kernel, GPU driver")
    yield _row("    engines", found.engine_memory, found.no_engines or "what CUDA processes hold, by NVML")
    for share in found.engines or ():
        yield _row("", share.memory, _who(share))
    yield _row("    apps", found.apps, "processes, shared memory, kernel")
    yield _row("    driver", found.driver, found.no_driver or "the GPU driver beyond its live processes")
    yield _row("  cache", mem.cache, f"page cache; {droppable}")
    yield _row("  free", mem.free, "")
    yield _row("available", mem.available, "what a new engine can count on")
    yield _row("swap used", mem.swap_used, f"of {gib(mem.swap_total)} GiB")
    yield _pressure_row(world.pressure)
    judgement = world.judgement
    if judgement.reason:
        yield f"{'level':<12}{judgement.level.value}: {judgement.reason}"


def _who(share: EngineShare) -> str:
    pids = f"pid {', '.join(map(str, share.pids))}"
    return f"  {share.name}, {pids}" if share.name else f"  {pids}, in no container"


def _row(label: str, size: int | None, words: str) -> str:
    figure = f"{'n/a':>6}    " if size is None else f"{gib(size):>6} GiB"
    return f"{label:<12}{figure}  {words}".rstrip()


def _pressure_row(pressure: Reading[float]) -> str:
    value = value_of(pressure)
    if value is None:
        return f"{'pressure':<12}{'n/a':>6}      {reason_of(pressure)}"
    return f"{'pressure':<12}{value:>6.1f} %    of the last 10 s was spent waiting for memory"


# --- again and again ----------------------------------------------------------------------------------


async def _watch(session: Session, context: Context) -> None:
    """One line, or one object, per reading until Ctrl-C. It rolls, as a log does: nothing is painted over."""
    count = 0
    while True:
        await context.collectors.collect_once()
        world, found = context.store.world, await _ledger(context)
        mem = _read(world)
        if session.as_json:
            stamp = shapes.moment(context.clock.now())
            session.out.json_line({"id": "memory", "at": stamp, **_shape(world, mem, found)})
        else:
            if count % HEADING_EVERY == 0:
                session.out.line(_cells(_COLUMNS))
            session.out.line(_watched(world, mem, found, context.clock.now()))
        count += 1
        await context.clock.sleep(context.settings.refresh_seconds)


def _watched(world: World, mem: MemInfo, found: Ledger, now: float) -> str:
    pressure = value_of(world.pressure)
    sizes = (mem.available, found.engine_memory, found.apps, found.driver, mem.cache, mem.free, mem.swap_used)
    figures = ["n/a" if size is None else gib(size) for size in sizes]
    psi = "n/a" if pressure is None else f"{pressure:.1f}"
    clock = datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S")
    level = world.judgement.level.value
    words = f"{level}: {world.judgement.reason}" if world.judgement.reason else level
    return _cells((clock, *figures, psi, words))


def _cells(words: tuple[str, ...]) -> str:
    first, *middle, last = words
    return f"{first:<8}" + "".join(f"{word:>9}" for word in middle) + f"  {last}"


# --- as data ------------------------------------------------------------------------------------------


def _shape(world: World, mem: MemInfo, found: Ledger) -> shapes.Object:
    """`in_use` + `cache` + `free` is `total`, and `engines` + `apps` + `driver` is `in_use`."""
    engines: Reading[int] = engine_memory(world.gpu)
    if found.engine_memory is not None:
        engines = Ok(found.engine_memory)
    elif not isinstance(engines, Missing):
        engines = Missing(found.no_engines)
    listed = None if found.engines is None else [_share(share) for share in found.engines]
    return {
        **shapes.memory(mem, engines),
        **shapes.maybe("engines", listed, found.no_engines),
        "apps_bytes": found.apps,
        **shapes.maybe("driver_bytes", found.driver, found.no_driver),
        "driver_orphaned_bytes": found.orphaned,
        **shapes.read("pressure_percent", world.pressure, float),
        "level": world.judgement.level.value,
        **shapes.maybe("level_cause", world.judgement.reason, "all is well"),
    }


def _share(share: EngineShare) -> shapes.Object:
    return {
        "id": share.name or f"pid {share.pids[0]}",
        "bytes": share.memory,
        "pids": list(share.pids),
        **shapes.maybe("container_id", share.container, "it runs in no container"),
    }
