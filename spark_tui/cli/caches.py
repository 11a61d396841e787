"""drop-caches: give up the page cache, and the grant that allows it without a password."""

from __future__ import annotations

from collections.abc import Sequence

from spark_tui.cli.asking import confirm
from spark_tui.cli.session import Session
from spark_tui.core.cache import OnTerminal, Prospect
from spark_tui.core.context import Context
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.host.drop_caches import GRANT_FILE, DropResult, sudoers_grant
from spark_tui.domain.host.drop_unit import RULE_FILE, UNIT_FILE, SystemFile, unit_files

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
