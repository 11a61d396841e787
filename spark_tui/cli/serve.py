"""serve: the control centre in a browser, on this machine, behind a token."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys

from spark_tui.cli.session import Options, Session
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.secret import Secret
from spark_tui.services.web import LOOPBACK_NAMES, serve_web

_TOKEN_BYTES = 24


def serve(session: Session, *, host: str, port: int, to_network: bool) -> None:
    """Serves until Ctrl-C; the address, with its token, goes to standard output. Raises RefusedError for an address
    that others can reach, unless that is meant."""
    if host not in LOOPBACK_NAMES and not to_network:
        raise RefusedError(
            f"{host} can be reached by others, who could start and stop engines with a stolen token.",
            f"From a laptop use a tunnel: ssh -L {port}:127.0.0.1:{port} SPARK. If you mean it: --to-network",
        )
    token = Secret(secrets.token_urlsafe(_TOKEN_BYTES))

    def ready(bound: int) -> None:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{bound}/?token={token.reveal()}"
        if session.as_json:
            session.out.json_line({"id": "serve", "url": url, "host": host, "port": bound})
            return
        session.out.line(url)
        session.err.say("Open that address; who has it has the control centre. Ctrl-C ends it.")
        if host not in LOOPBACK_NAMES:
            session.err.note("The connection is not encrypted: whoever listens in the network can read the token.")

    try:
        asyncio.run(serve_web(control_centre(session.options), host, port, token, ready))
    except KeyboardInterrupt:
        session.err.say("No longer served; engines go on.")


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
