"""boot: which engines start with the machine."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.units import BootStatus
from spark_tui.cli.command import engine_argument, group
from spark_tui.cli.session import Session
from spark_tui.observe.engines.show.engines import boot_object, boot_text
from spark_tui.run.service.use import BootUnits


@group("boot")
def boot(session: Session) -> None:
    """Start engines with the machine."""
    _print(session, session.run(_statuses))


async def _statuses(context: Context) -> tuple[BootStatus, ...]:
    return tuple((await context[BootUnits].look()).values())


def _print(session: Session, found: tuple[BootStatus, ...]) -> None:
    session.out.json([boot_object(each) for each in found])
    session.out.lines(f"{each.name}  {boot_text(each)}" for each in found)
    if not found:
        session.err.say("No engine starts at boot.")


@boot.sub("status", "  spark-tui boot status\n  spark-tui boot status qwen3.6-35b --json")
@click.argument("name", metavar="[ENGINE]", required=False)
def status(session: Session, name: str | None) -> None:
    """Show which engines start at boot, and which failed."""
    if name is None:
        _print(session, session.run(_statuses))
        return
    found = session.run(lambda context: context[BootUnits].status(name))
    session.out.answer(boot_object(found), f"{found.name}  {boot_text(found)}")


@boot.sub("on", "  spark-tui boot on qwen3.6-35b")
@engine_argument
@click.option("--system", is_flag=True, help="A system unit, written through sudo: where there is no user manager.")
def on(session: Session, name: str, system: bool) -> None:
    """Start an engine at boot, with the settings of its last launch."""

    _done(session, session.run(lambda context: context[BootUnits].enable(name, system=system), changes=True))


@boot.sub("off", "  spark-tui boot off qwen3.6-35b")
@engine_argument
def off(session: Session, name: str) -> None:
    """Do not start an engine at boot. The engine keeps running."""

    _done(session, session.run(lambda context: context[BootUnits].disable(name), changes=True))


def _done(session: Session, found: BootStatus) -> None:
    session.done(boot_object(found), f"{found.name}: {boot_text(found)}.")
