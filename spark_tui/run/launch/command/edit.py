"""edit: other settings for an engine that runs."""

from __future__ import annotations

from functools import partial

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import UsageError
from spark_tui.catalog.fit.show.launch import deviations_page
from spark_tui.catalog.presets.model.overrides import pairs_from
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.cli.command import command, engine_argument, settings_option, yes_option
from spark_tui.cli.names import find_container
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session, confirm
from spark_tui.observe.engines.show.engines import engine_object
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import view_of
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.history import History
from spark_tui.run.launch.show.edit import edit_object, edit_page
from spark_tui.run.launch.show.progress import followed, may
from spark_tui.run.launch.use.edit import Editor, EditPlan

_EXAMPLES = """\
  spark-tui edit gpt-oss-120b --set max_model_len=64k
  spark-tui edit gpt-oss-120b --set exposure=lan --set max_num_seqs=  the preset's
  spark-tui edit gpt-oss-120b --set max_model_len=64k --dry-run --json
  spark-tui edit gpt-oss-120b                             finish an interrupted edit
"""


@command("edit", _EXAMPLES)
@engine_argument
@settings_option("A setting to change; empty: the preset's value. May be repeated.")
@click.option(
    "--rollback/--no-rollback",
    default=True,
    help="Go back to the current settings if the new ones fail.  [--rollback]",
)
@click.option("--force", is_flag=True, help="Start even if it does not fit in memory.")
@click.option("--dry-run", is_flag=True, help="Show what differs and change nothing.")
@yes_option
def edit(
    session: Session, name: str, settings: tuple[str, ...], rollback: bool, force: bool, dry_run: bool, yes: bool
) -> None:
    """Change the settings of a running engine.

    Stops it and starts it with the new settings. If they fail, the current settings are restored. An interrupted edit
    is finished by the same command without --set, or when spark-tui opens.
    """
    changes = pairs_from(settings)
    if not changes:
        _finish(session, name)
        return

    async def look(context: Context) -> EditPlan:
        container = await find_container(context, name)
        await context[History].load()
        await context[Collectors].collect_once()
        return await context[Editor].plan(await view_of(context, container), changes)

    plan = session.run(look, changes=True)
    page = (*deviations_page(plan.launch), *edit_page(plan))  # the changes stand by the question
    if session.as_json and (dry_run or not plan.differences):
        session.out.json_line({"type": "plan", **edit_object(plan)})
    elif not plan.differences:
        session.err.say(f"{plan.name} already runs with these settings.")
    elif dry_run:
        session.out.page(page)
    if dry_run or not plan.differences:
        return
    session.err.page(page)
    sure = confirm(session, f"Restart {plan.name} with these changes?", yes=yes)
    if not (sure and may(session, "Restart", plan.name, yes=yes)):
        session.err.say("Nothing was changed.")
        return

    async def work(context: Context) -> None:
        running = partial(context[Editor].run, plan, rollback=rollback, force=force)
        view = await followed(session, context, plan.name, running)
        session.err.note(*context[LastLaunches].keep(plan.after.preset, plan.after.overrides))
        _show(session, context, view)

    session.run(work, on_interrupt=lambda: _interrupted(plan.name))


def _finish(session: Session, name: str) -> None:
    async def work(context: Context) -> None:
        if name not in [entry.name for entry in context[Editor].interrupted()]:
            session.err.note(*(f"{problem.summary} {problem.remedy}" for problem in context[Editor].unreadable()))
            raise UsageError("No change given.", f"For example: spark-tui edit {name} --set max_model_len=64k")
        view = await followed(session, context, name, partial(context[Editor].finish, name))
        if view is None:
            session.err.say(f"{name} still runs as before: the edit had changed nothing.")
        else:
            _show(session, context, view)

    session.run(work, changes=True, on_interrupt=lambda: _interrupted(name))


def _show(session: Session, context: Context, view: EngineView) -> None:
    session.out.json_line({"type": "result", **engine_object(view, context.clock.now())})
    session.out.line(view.base_url)


def _interrupted(name: str) -> Interrupted:
    return Interrupted(f"The edit of {name} is not finished.", f"Finish it: spark-tui edit {name}")
