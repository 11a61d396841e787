"""Other boxes: `hosts`."""

from __future__ import annotations

from spark_tui.cli.commands.frame import command
from spark_tui.cli.session import Session

_EXAMPLES = """\
  spark-tui config set hosts.lab nv@spark-2     name a box as ssh reaches it
  spark-tui hosts                               what each serves
  spark-tui --host lab                          its control centre
  spark-tui --host lab up gpt-oss-120b          any command there
  spark-tui --host nv@spark-3 ps                one that has no name
"""


@command("hosts", _EXAMPLES)
def hosts(session: Session) -> int:
    """Other boxes: whether each answers, what it serves, and how much memory is usable.

    Asked all at once through your own ssh, 5 s at most; spark-tui must be installed there. One that asks for a
    password is not asked. Exit code 3: one cannot be reached.
    """
    from spark_tui.cli.remote import list_hosts

    return list_hosts(session)
