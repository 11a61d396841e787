"""schedule: engines that stop and start at set times."""

from __future__ import annotations

from contextlib import suppress

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.units import ScheduleStatus, schedule_of
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.cli.command import command, complete, run_command
from spark_tui.cli.names import find_container
from spark_tui.cli.session import Session
from spark_tui.observe.engines.show.engines import schedule_object, schedule_text
from spark_tui.run.launch.use.service import await_docker
from spark_tui.run.service.use import BootUnits

_EXAMPLES = """\
  spark-tui schedule qwen3.6-35b --stop 23:00 --start 07:00
  spark-tui schedule qwen3.6-35b --stop 18:30 --start 08:00 --days mon-fri
  spark-tui schedule                            every schedule, with its next time
  spark-tui schedule qwen3.6-35b --remove
"""


@command("schedule", _EXAMPLES)
@click.argument("name", metavar="[ENGINE]", required=False, shell_complete=complete("engines"))
@click.option("--stop", default="", metavar="HH:MM", help="When to stop it, by this machine's clock.")
@click.option("--start", default="", metavar="HH:MM", help="When to start it, with the settings of its last launch.")
@click.option("--days", default="", metavar="DAYS", help="On which days, such as mon-fri or sat,sun.  [daily]")
@click.option("--system", is_flag=True, help="System units, written through sudo: where there is no user manager.")
@click.option("--remove", is_flag=True, help="Remove the schedule. The engine stays as it is.")
@click.option("--apply", "apply_now", is_flag=True, hidden=True)
def schedule(
    session: Session, name: str | None, stop: str, start: str, days: str, system: bool, remove: bool, apply_now: bool
) -> None:
    """Stop and start an engine at set times, by a systemd timer.

    Without options: what is scheduled. A start is checked as by `up`; a stop spares an engine that is being measured. A
    time that passed while the machine was off counts when it is on again.
    """
    times = bool(stop or start or days or system)
    if times + remove + apply_now > 1 or (name is None and times + remove + apply_now):
        raise UsageError("Name one engine, and its times or --remove.", "See: spark-tui schedule --help")
    if name is None or not (times or remove or apply_now):
        _show(session, name)
    elif apply_now:
        _apply(session, name)
    elif remove:
        session.run(lambda context: context[BootUnits].unschedule(name), changes=True)
        session.done({"id": name, "removed": True}, f"{name} has no schedule any more.")
    else:
        wanted = schedule_of(f"{stop}-{start} {days}")

        async def write(context: Context) -> ScheduleStatus:
            container = await find_container(context, name)
            return await context[BootUnits].schedule(container.name, wanted, system=system)

        made = session.run(write, changes=True)
        session.done(schedule_object(made, True), f"{made.name} {schedule_text(made)}.")


def _show(session: Session, name: str | None) -> None:
    async def look(context: Context) -> tuple[list[ScheduleStatus], dict[str, str] | None, set[str]]:
        known = [each for each in (await context[BootUnits].look_at_schedules()).values() if name in (None, each.name)]
        engines = None
        with suppress(SparkError):  # without Docker the engines are unknown
            engines = {each.name: each.preset for each in await context.docker.containers()} if known else None
        return known, engines, {preset.name for preset in context[PresetSource].glance().presets} if known else set()

    found, engines, presets = session.run(look)
    session.out.json([schedule_object(each, None if engines is None else each.name in engines) for each in found])
    for each in found:
        session.out.line(f"{each.name}  {schedule_text(each)}")
        if engines is not None and engines.get(each.name) not in presets:
            gone = f"its preset {engines[each.name]}" if each.name in engines else "the engine"
            session.err.note(
                f"{each.name} cannot start: {gone} was removed. See: spark-tui schedule {each.name} --remove"
            )
    if not found:
        session.err.say(f"{name} has no schedule." if name else "No engine has a schedule.")


def _apply(session: Session, name: str) -> None:
    """Run by the timer: what its schedule asks for now."""

    async def look(context: Context) -> tuple[str, ...]:
        await await_docker(context.docker, context.clock)
        return await context[BootUnits].due_command(name)

    words = session.run(look)
    if words:
        run_command(*words)
    else:
        session.err.say(f"{name}: nothing to do.")
