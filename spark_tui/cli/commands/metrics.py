"""How fast an engine serves: `metrics`."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, name_argument
from spark_tui.cli.session import Session

_METRICS_EXAMPLES = """\
  spark-tui metrics gpt-oss-120b              speed, queue, latency, KV cache
  spark-tui metrics gpt-oss-120b --watch        a line each second
  spark-tui metrics gpt-oss-120b --json | jq .ttft.p95_seconds
"""


@command("metrics", _METRICS_EXAMPLES)
@name_argument
@click.option("-w", "--watch", is_flag=True, help="A line each second, until Ctrl-C.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="With --watch: so many lines.")
@click.option("--seconds", type=click.FloatRange(1, 60), metavar="S", help="How long to look.  [5]")
def metrics(session: Session, name: str, watch: bool, count: int | None, seconds: float | None) -> None:
    """How fast an engine serves, by its own counters.

    Quantiles come from histograms: beside each stands the bucket that the true value is in.
    """
    from spark_tui.cli import metrics as work

    if watch and seconds is not None:
        raise click.UsageError("--watch looks until you stop it: leave out --seconds.")
    if count is not None and not watch:
        raise click.UsageError("--count goes with --watch.")
    if watch:
        work.watch_metrics(session, name, count)
    else:
        work.metrics(session, name, seconds or 5.0)
