"""Logs and starts: `logs`, `explain`, `history`."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, name_argument
from spark_tui.cli.session import Session


@command("logs", "  spark-tui logs gpt-oss-120b -f\n  spark-tui logs gpt-oss-120b --tail 50 > boot.log")
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the engine ends.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", help="The last N lines only.")
@click.option("-t", "--timestamps", is_flag=True, help="Docker's time before each line.")
@click.option("--raw", is_flag=True, help="Leave colours and other control codes in.")
def logs(session: Session, name: str, follow: bool, tail: int | None, timestamps: bool, raw: bool) -> None:
    """A container's log. Keys and tokens are masked, always."""
    from spark_tui.cli.engines import logs as work

    work(session, name, follow=follow, tail=tail, stamps=timestamps, raw=raw)


_EXPLAIN_EXAMPLES = """\
  spark-tui explain gpt-oss-120b                a container's last start
  spark-tui explain boot.log                    a file (also .gz, and Docker's own JSON)
  docker logs vllm 2>&1 | spark-tui explain -
"""


@command("explain", _EXPLAIN_EXAMPLES)
@click.argument("what", metavar="NAME|FILE|-")
def explain(session: Session, what: str) -> None:
    """Read a start-up log: phases, kernels, memory, root cause, remedy.

    Says where the time went, whether FP4 runs natively, why it failed, and which setting helps.
    """
    from spark_tui.cli.explain import explain as work

    work(session, what)


_HISTORY_EXAMPLES = """\
  spark-tui history                             the latest starts
  spark-tui history gpt-oss-120b       one engine or preset, the newest in full
  spark-tui history --failed --json | jq -r '.[].failure'
"""


@command("history", _HISTORY_EXAMPLES)
@click.argument("name", required=False)
@click.option("--failed", is_flag=True, help="Only those that did not come to serve.")
@click.option("-n", "--limit", type=click.IntRange(1, 5000), default=20, metavar="N", help="At most so many.  [20]")
def history(session: Session, name: str | None, failed: bool, limit: int) -> None:
    """Earlier starts: what they took, what they measured, why they failed.

    Kept while spark-tui is open, and by `up`: ~/.local/share/spark-tui/history.
    """
    from spark_tui.cli.history import history as work

    work(session, name, failed=failed, limit=limit)
