"""node: what the spark-tui of another machine asks of this one."""

from __future__ import annotations

import asyncio
import select
import signal
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click

from spark_tui import __version__
from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.executors import end_tasks
from spark_tui.base.protocol import COMMAND, Hello, NodeError
from spark_tui.base.untrusted import decode, encode
from spark_tui.cli.command import command
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session
from spark_tui.manage.cluster.use.node import Node

T = TypeVar("T")

_MOST_CHARS: Final = 16 * 1024 * 1024
"""Of a request: a longer one is cut, and not understood."""
_READS: Final = ("look", "canary", "inventory", "facts", "probe")


@command(COMMAND)
@click.argument("verb")
def node(session: Session, verb: str) -> None:
    """Work as a node of a cluster: one request on stdin, the answer on stdout, as JSON. For spark-tui itself.

    First who answers, with protocol and version; lines of `progress` from what takes long; then `result` or `error`.
    """

    def say(progress: object) -> None:
        session.out.line(encode({"progress": progress}))

    async def work(context: Context) -> object:
        known = quick = context[Node].verbs()
        if verb not in quick:  # asked for once, not again and again
            from spark_tui.manage.cluster.use.copying import NodeCopier
            from spark_tui.manage.cluster.use.doctor import NodeExaminer

            if context.ports.has("fabric"):
                known = known | context[NodeExaminer].verbs()
            if context.ports.has("transfers"):
                known = known | context[NodeCopier].verbs(say)
        if verb not in known:
            raise UsageError(f"Unknown verb {verb[:40]!r}.", f"Known: {', '.join(known)}")
        kind, do = known[verb]
        try:
            request = decode(session.stdin.read(_MOST_CHARS) if session.stdin is not None else "", kind)
        except ValueError as error:
            raise UsageError(f"The request is not understood: {error}.", "Use the same version on both.") from None
        return await (_while_read(session.out.terminal.descriptor, do, request) if verb not in quick else do(request))

    session.out.line(encode(Hello(version=__version__)))
    try:
        session.out.line(encode({"result": session.run(work, changes=verb not in _READS)}))
    except SparkError as error:
        told = NodeError(error.summary, error.remedy, error.detail, error.id, error.exit_code)
        session.out.line(encode({"error": told}))
        raise


async def _while_read(output: int | None, do: Callable[[T], Awaitable[object]], request: T) -> object:
    """What `do` returns. It is cancelled when nothing reads `output` any more, or on SIGTERM or SIGHUP: without a
    terminal, ssh sends no signal when the one who asked has gone. Raises Interrupted then."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(do(request))
    signals = (signal.SIGTERM, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, task.cancel)
    with select.epoll() as hangup:
        loop.add_reader(hangup, task.cancel)
        try:
            if output is not None:
                hangup.register(output, 0)  # errors and hang-ups are always reported
        except PermissionError:  # a file has no reader
            pass
        try:
            await asyncio.wait((task,))
            if task.cancelled():
                raise Interrupted("The other side has gone.", "Repeat the command there.")
            return task.result()
        finally:
            loop.remove_reader(hangup)
            for each in signals:
                loop.remove_signal_handler(each)
            await end_tasks(task)
