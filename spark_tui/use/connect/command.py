"""connect: a client's settings for an engine."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, UsageError
from spark_tui.base.finding import Severity
from spark_tui.base.page import Section
from spark_tui.cli.command import command, complete
from spark_tui.cli.session import Session
from spark_tui.machine.gateway import read_status
from spark_tui.observe.engines.use.engines import engines_here
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.use.connect import show
from spark_tui.use.connect.model import CLIENTS, Client
from spark_tui.use.connect.use import Connection, Connector, Place, engine_meant

_EXAMPLES = """\
  spark-tui connect                              list clients
  spark-tui connect claude-code                  show what would be written
  spark-tui connect codex gpt-oss-120b --write --check
  spark-tui connect opencode qwen3.6-35b --gateway --write
  spark-tui connect opencode --undo
  spark-tui connect claude-code --for laptop     a line to run there
"""


@command("connect", _EXAMPLES)
@click.argument("client", required=False, type=click.Choice(list(CLIENTS), case_sensitive=False))
@click.argument("engine", required=False, default="", shell_complete=complete("engines"))
@click.option("--write", is_flag=True, help="Write the files; a backup is kept.")
@click.option("--undo", is_flag=True, help="Restore the files as they were before.")
@click.option("--check", is_flag=True, help="Send one request with a tool call, as the client would.")
@click.option(
    "--for",
    "place",
    type=click.Choice([each.value for each in Place]),
    default=Place.HERE.value,
    help="Where the client runs; elsewhere: print a line to run there.  [here]",
)
@click.option("--gateway", is_flag=True, help="Use the gateway's address: it launches the engine on request.")
@click.option("--show-key", is_flag=True, help="Show the API key.")
@click.option("--force", is_flag=True, help="Write despite errors.")
def connect(
    session: Session,
    client: str | None,
    engine: str,
    write: bool,
    undo: bool,
    check: bool,
    place: str,
    gateway: bool,
    show_key: bool,
    force: bool,
) -> int:
    """Connect a coding agent or a chat front end to an engine.

    Without --write the change is shown as a diff and nothing is written. Keys of the client's files that are not ours
    stay as they are, with comments and order.
    """
    if not client:
        return _list(session, engine)
    chosen, where = CLIENTS[client], Place(place)
    if undo and (write or check):
        raise UsageError("--undo stands alone.", "Leave out --write and --check.")
    if where is not Place.HERE and (write or undo or check):
        raise UsageError(f"--for {place} prints a line to run there.", "Leave out --write, --undo and --check.")
    if gateway and (undo or where is not Place.HERE):
        raise UsageError("--gateway is for a client on this machine.", "Leave out --for and --undo.")
    if undo:
        return _undo(session, chosen)

    async def look(context: Context) -> tuple[EngineView, Connection]:
        status = await context.in_thread(read_status, context.ports.state) if gateway else None
        if gateway and status is None:
            raise UsageError("No gateway is running.", "Start it: spark-tui gateway")
        address, keyed = (status.local_address, status.keyed) if status is not None else ("", False)
        view = engine_meant(await engines_here(context, engine), engine)
        return view, await context.in_thread(context[Connector].plan, view, chosen, where, address, keyed=keyed)

    view, plan = session.run(look)
    if plan.problem is not None:
        raise plan.problem
    if where is not Place.HERE:
        return _elsewhere(session, plan, show_key=show_key, force=force)
    written = plan
    if write:
        written = session.run(
            lambda context: context.in_thread(context[Connector].write, plan, force=force), changes=True
        )
    _show(session, plan, written=write, show_key=show_key, options=" --gateway" * gateway)
    if check:
        return _check(session, view, written)
    return ExitCode.DONE


def _list(session: Session, engine: str) -> int:
    async def look(context: Context) -> list[Connection]:
        views = await engines_here(context, engine)
        serving = [] if engine else [view for view in views if view.word.serves]
        return await context.in_thread(context[Connector].plans, serving or [engine_meant(views, engine)])

    plans = session.run(look)
    session.out.answer([show.connection_object(each) for each in plans], show.clients_table(plans))
    return ExitCode.DONE


def _show(session: Session, plan: Connection, *, written: bool, show_key: bool, options: str) -> None:
    session.out.json({**show.connection_object(plan, show_key=show_key), "written": written})
    if not written:
        _note(session, plan)
        session.out.lines(show.diff_lines(plan, show_key=show_key))
    session.out.page(show.steps_page(plan)[:-1] if plan.client.start else show.steps_page(plan))
    command = f"spark-tui connect {plan.client.id} {plan.engine}{options}"
    if written:
        session.err.say(f"{plan.client.title} is connected to {plan.engine}. Start it: {plan.client.start}")
        session.err.say(f"Check it: {command} --check   Undo: spark-tui connect {plan.client.id} --undo")
    elif plan.changed:
        session.err.say(f"Nothing was written. Write it: {command} --write")
    elif plan.files:
        session.err.say(f"{plan.client.title} is connected to {plan.engine} already.")


def _note(session: Session, plan: Connection) -> None:
    if plan.findings:
        session.err.page((Section(rows=tuple(row for each in plan.findings for row in show.finding_rows(each))),))
    if plan.edit_command:
        session.err.say(f"Apply: {plan.edit_command}")


def _elsewhere(session: Session, plan: Connection, *, show_key: bool, force: bool) -> int:
    for finding in plan.errors if not force else ():
        raise RefusedError(finding.summary, plan.edit_command or finding.remedy)

    script = ""
    if plan.files:
        script = session.run(lambda context: context.in_thread(context[Connector].script, plan, show_key=show_key))
    session.out.json({**show.connection_object(plan, show_key=show_key), "script": script})
    if script:
        session.err.say("Run this line there:")
        session.out.line(script)
    else:
        session.out.page(show.steps_page(plan))
    return ExitCode.DONE


def _undo(session: Session, client: Client) -> int:
    paths = session.run(lambda context: context.in_thread(context[Connector].undo, client), changes=True)
    session.done({"id": client.id, "restored": list(paths)}, f"{client.title} is as before: {', '.join(paths)}")
    return ExitCode.DONE


def _check(session: Session, view: EngineView, plan: Connection) -> int:
    session.err.say(f"Asking {plan.engine} ...")
    found = session.run(lambda context: context[Connector].check(view, plan))
    session.out.json(show.finding_object(found))
    session.err.page((Section(rows=tuple(show.finding_rows(found))),))
    return ExitCode.DONE if found.severity is Severity.OK or not plan.client.agent else ExitCode.FAILED
