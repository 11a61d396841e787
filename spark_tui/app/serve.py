"""serve: the control centre in a browser, on this machine, behind a token."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys

import click

from spark_tui.base.errors import RefusedError
from spark_tui.base.optional import install_command
from spark_tui.base.remote import LOOPBACK_NAMES
from spark_tui.base.secret import Secret
from spark_tui.cli.command import command
from spark_tui.cli.session import Options, Session

_EXAMPLES = """\
  spark-tui serve
  ssh -L 8765:127.0.0.1:8765 my-spark spark-tui serve     from a laptop
"""


class WebMissing(RefusedError, id="web_missing"):
    pass


@command("serve", _EXAMPLES)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, metavar="PORT", help="[8765]; 0: any.")
@click.option("--to-network", is_flag=True, help="Allow an address that other machines can reach.")
def serve(session: Session, host: str, port: int, to_network: bool) -> None:
    """Open the control centre in a browser, behind a token.

    Where its optional package is not installed, the command that installs it is shown.
    """
    if host not in LOOPBACK_NAMES and not to_network:
        raise RefusedError(
            f"{host} is reachable by others, who could start and stop engines with a stolen token.",
            f"From a laptop use a tunnel: ssh -L {port}:127.0.0.1:{port} SPARK. To allow it: --to-network",
        )
    try:
        from spark_tui.app.web import serve_web
    except ImportError as error:
        raise WebMissing(
            "The control centre in the browser needs an optional part that is not installed.",
            f"Install it: {install_command('web')}",
            detail=str(error),
        ) from error
    token = Secret(secrets.token_urlsafe(24))

    def ready(bound: int) -> None:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{bound}/?token={token.reveal()}"
        session.out.json_line({"id": "serve", "url": url, "host": host, "port": bound})
        session.out.line(url)
        session.err.say("Open that address; anyone who has it can use the control centre. Ctrl-C stops it.")
        if host not in LOOPBACK_NAMES:
            session.err.note("The connection is not encrypted: the token can be read on the network.")

    try:
        asyncio.run(serve_web(control_centre(session.options), host, port, token, ready))
    except KeyboardInterrupt:
        session.err.say("Stopped serving. Engines keep running.")


def control_centre(options: Options) -> str:
    """The command that opens the control centre with the same options."""
    words = [sys.executable, "-m", "spark_tui"]
    words += ["--demo"] * options.demo + ["--read-only"] * options.read_only
    for name, value in (
        ("--store", options.store),
        ("--docker-host", options.docker_host),
        ("--config", options.config),
    ):
        words += [name, value] if value else []
    return shlex.join(words)
