"""hosts: other machines, and what each serves."""

from __future__ import annotations

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode
from spark_tui.base.page import Cell, Column, Object, Table, Tone, cells, maybe, read
from spark_tui.base.remote import RemoteEngine, memory_words, serving_words
from spark_tui.cli.command import command
from spark_tui.cli.output import error_object
from spark_tui.cli.session import Session
from spark_tui.machine.nodes import Hosts, HostView

_EXAMPLES = """\
  spark-tui config set hosts.lab nv@spark-2     name a machine as ssh reaches it
  spark-tui hosts                               what each serves
  spark-tui --host lab                          its control centre
  spark-tui --host lab up gpt-oss-120b          any command there
  spark-tui --host nv@spark-3 ps                one without a name
"""


@command("hosts", _EXAMPLES)
def hosts(session: Session) -> int:
    """List other machines: reachable, serving, available memory.

    Queried in parallel through your own ssh, 5 s at most; spark-tui must be installed there. Machines that ask for a
    password are skipped. Exit code 3: one cannot be reached.
    """

    async def look(context: Context) -> list[HostView]:
        return sorted([view async for view in context[Hosts].look()], key=lambda view: view.host.name)

    views = session.run(look)
    session.out.json([_host_object(view) for view in views])
    if views:
        columns = (
            Column("NAME", least=28),
            Column("HOST", keep=7, least=12),
            Column("AVAILABLE", right=True),
            Column("SERVES", keep=8, least=12),
        )
        session.out.table(Table(columns, tuple(_row(view) for view in views)))
        for view in views:
            if view.problem is not None:
                session.err.problem(view.problem)
    else:
        session.err.say("No hosts configured. Add one: spark-tui config set hosts.NAME USER@ADDRESS")
    return ExitCode.UNREACHABLE if any(view.problem for view in views) else ExitCode.DONE


def _row(view: HostView) -> tuple[Cell, ...]:
    host, status = view.host, view.status
    if status is None:
        summary = view.problem.summary if view.problem else ""
        return cells(host.name, host.destination, "n/a", Cell(summary.removeprefix(host.name).lstrip(": "), Tone.BAD))
    return cells(host.name, status.hostname or host.destination, memory_words(status), serving_words(status))


def _host_object(view: HostView) -> Object:
    host, status, problem = view.host, view.status, view.problem
    found = {"id": host.name, "ssh": host.destination, "command": host.command, "reachable": status is not None}
    if status is None:
        why = problem.summary if problem else ""
        nothing = dict.fromkeys(("hostname", "available_bytes", "total_bytes", "engines"))
        reasons = {f"{key}_reason": why for key in nothing}
        return found | nothing | reasons | {"error": error_object(problem) if problem else None}

    def engine(each: RemoteEngine) -> Object:
        return {
            "id": each.name,
            "state": each.state,
            **maybe("model", each.model, "not reported"),
            **maybe("port", each.port, "no port is published"),
        }

    return {
        **found,
        **maybe("hostname", status.hostname, "not reported"),
        **read("available_bytes", status.available, int),
        **read("total_bytes", status.total, int),
        **read("engines", status.engines, lambda engines: [engine(each) for each in engines]),
    }
