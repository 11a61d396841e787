"""memory: who holds the pool, once or line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.asking import confirm
from spark_tui.cli.session import Session
from spark_tui.core.cache import OnTerminal, Prospect
from spark_tui.core.context import Context
from spark_tui.core.store import World
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.host.breakdown import EngineShare, Ledger
from spark_tui.domain.host.drop_caches import (
    GRANT_FILE,
    RULE_FILE,
    UNIT_FILE,
    DropResult,
    SystemFile,
    sudoers_grant,
    unit_files,
)
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import engine_memory
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import Missing, Ok, Reading, reason_of, value_of

# --- drop ---------------------------------------------------------------------------------------------


def drop_caches(session: Session, *, image: str, yes: bool) -> None:
    """Drops the cache by the best way that is open, asking where a person has to decide."""
    prospect = session.run(lambda context: _prospect(session, context, image))
    if prospect.warning:
        session.err.note(prospect.warning)
        if not confirm(session, "Drop the cache now?", yes=yes):
            raise RefusedError("Nothing was dropped.", "With --yes it is done without asking.")
    consent = prospect.route is None and prospect.consent is not None and _consents(session, prospect, yes)

    async def work(context: Context) -> DropResult:
        context.cache.warned()
        return await context.cache.drop(image=image, consent=consent, on_terminal=_terminal(session, context))

    result = session.run(work)
    if session.as_json:
        session.out.json(_result(result))
    else:
        session.out.line(result.sentence)


async def _prospect(session: Session, context: Context, image: str) -> Prospect:
    session.refuse_if_read_only(context)
    try:
        await context.supervisor.look()
    except SparkError as error:
        session.err.note(f"Whether an engine is starting is not known: {error.summary}")
    return await context.cache.prospect(image)


def _consents(session: Session, prospect: Prospect, yes: bool) -> bool:
    """A container that acts on the kernel is root in all but name: a person says yes to it, each time."""
    route = prospect.consent
    if route is None:
        return False
    if not yes and not _at_terminal(session):
        return False
    session.err.note(
        f"Nothing allows this without a password. A container of {route.image} can do it: given that one file of the "
        "kernel, or should that be refused, with all privileges. It lives for one command."
    )
    return confirm(session, "Run it?", yes=yes)


def _at_terminal(session: Session) -> bool:
    return session.stdin is not None and session.stdin.isatty() and not session.as_json


def _terminal(session: Session, context: Context) -> OnTerminal | None:
    """sudo asks by itself where a person sits at the keyboard."""
    if not _at_terminal(session):
        return None

    async def run(argv: Sequence[str]) -> int:
        session.err.say(f"$ {' '.join(argv[:2])} ...")
        return context.cache.dropper.on_terminal(argv)

    return run


def _result(result: DropResult) -> dict[str, object]:
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


# --- the grant ----------------------------------------------------------------------------------------


def install_grant(session: Session, *, yes: bool) -> None:
    """Shows the grant, has it checked, and writes it through sudo."""

    async def prepare(context: Context) -> tuple[Context, str]:
        session.refuse_if_read_only(context)
        name, uid = context.cache.dropper.user()
        if uid == 0:
            raise UsageError("root needs no grant.", "Run it as the user who shall have it; sudo asks when it must.")
        text = sudoers_grant(name, uid)
        problem = await context.cache.dropper.check_grant(text)
        if problem:
            raise SparkError("visudo refuses the grant.", "Nothing was written.", detail=problem)
        return context, text

    context, text = session.run(prepare)
    session.err.say(f"{GRANT_FILE}, 0440, root's:")
    for line in text.splitlines():
        session.err.say(f"    {line}")
    if not confirm(session, "Write it?", yes=yes):
        raise RefusedError("Nothing was written.", "With --yes it is written without asking.")
    code = context.cache.dropper.write_grant(text)
    if code != 0:
        raise SparkError(f"The grant was not written: sudo ended with {code}.", "May you use sudo? Ask: sudo -v")
    _told(session, installed=True)


def remove_grant(session: Session) -> None:
    """Removes the grant through sudo."""

    async def open_(context: Context) -> Context:
        session.refuse_if_read_only(context)
        return context

    code = session.run(open_).cache.dropper.remove_grant()
    if code != 0:
        raise SparkError(f"The grant was not removed: sudo ended with {code}.", f"By hand: sudo rm {GRANT_FILE}")
    _told(session, installed=False)


# --- the unit -----------------------------------------------------------------------------------------


def install_unit(session: Session, *, yes: bool) -> None:
    """Shows the systemd unit and the polkit rule for this user, and writes both through sudo."""

    async def prepare(context: Context) -> tuple[Context, tuple[SystemFile, ...]]:
        session.refuse_if_read_only(context)
        name, uid = context.cache.dropper.user()
        if uid == 0:
            raise UsageError("root needs no grant.", "Run it as the user who shall have it; sudo asks when it must.")
        try:
            return context, unit_files(name)
        except ValueError as error:
            raise UsageError(
                f"A polkit rule cannot name this user: {error}.", "Take the sudo rule: spark-tui drop-caches --install"
            ) from error

    context, files = session.run(prepare)
    for file in files:
        session.err.say(f"{file.path}, 0644, root's:")
        for line in file.text.splitlines():
            session.err.say(f"    {line}")
    if not confirm(session, "Write both?", yes=yes):
        raise RefusedError("Nothing was written.", "With --yes it is written without asking.")
    code = context.cache.dropper.write_files(files)
    if code != 0:
        raise SparkError(
            f"The unit was not written: it ended with {code}.",
            "May you use sudo? Ask: sudo -v. The way back: spark-tui drop-caches --uninstall --polkit",
        )
    _told_unit(session, installed=True)


def remove_unit(session: Session) -> None:
    """Removes unit and rule through sudo."""

    async def open_(context: Context) -> Context:
        session.refuse_if_read_only(context)
        return context

    paths = (RULE_FILE, UNIT_FILE)
    code = session.run(open_).cache.dropper.remove_files(paths)
    if code != 0:
        raise SparkError(f"The unit was not removed: it ended with {code}.", f"By hand: sudo rm {' '.join(paths)}")
    _told_unit(session, installed=False)


def _told_unit(session: Session, *, installed: bool) -> None:
    if session.as_json:
        session.out.json({"id": "drop-caches-unit", "files": [UNIT_FILE, RULE_FILE], "installed": installed})
    elif installed:
        session.err.say("Written. From now on `spark-tui drop-caches` and the key D start that unit, without sudo.")
    else:
        session.err.say(f"{UNIT_FILE} and its polkit rule are gone.")


def _told(session: Session, *, installed: bool) -> None:
    if session.as_json:
        session.out.json({"id": "drop-caches-grant", "file": GRANT_FILE, "installed": installed})
    elif installed:
        session.err.say("Written. From now on `spark-tui drop-caches` and the key D need no password.")
    else:
        session.err.say(f"{GRANT_FILE} is gone.")


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
