"""The key that opens another box: a choice, then the terminal is lent to ssh until it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from spark_tui.core.hosts import Hosts
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.remote import RemoteHost
from spark_tui.domain.text import clean_line

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp


async def open_other_host(app: SparkApp) -> None:
    """Asks which, and opens it. What runs here goes on meanwhile."""
    from spark_tui.tui.screens.hosts import HostsDialog

    try:
        hosts = app.context.hosts
        host = await app.push_screen_wait(HostsDialog(hosts))
        if host is not None:
            await _lend(app, hosts, host)
    except SparkError as error:
        app.report(error)


async def _lend(app: SparkApp, hosts: Hosts, host: RemoteHost) -> None:
    """The terminal is ssh's. Nothing is painted meanwhile (the batch): the core goes on, and so would the screens.

    Raises what `Hosts.open` raises once the screen is back: an error that left the block would leave it suspended.
    """
    problem: SparkError | None = None
    try:
        with app.batch_update(), app.suspend():
            sys.stdout.write(
                f"{clean_line(host.name)}: ssh {clean_line(host.destination)} ... (its q comes back here)\n"
            )
            sys.stdout.flush()
            try:
                await hosts.open(host)
            except SparkError as error:
                problem = error
    except SuspendNotSupported:
        raise RefusedError(
            "This terminal cannot be lent to ssh.", f"Run it in a shell: spark-tui --host {host.name}"
        ) from None
    if problem is not None:
        raise problem
