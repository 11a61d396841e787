"""The control centre in a browser: textual-serve, behind a token. Imported when it serves: it is an optional
part."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp_jinja2
import jinja2
from aiohttp import web
from textual_serve.server import Server

from spark_tui.base.errors import SparkError
from spark_tui.base.remote import LOOPBACK_NAMES
from spark_tui.base.secret import Secret

_SHUTDOWN_SECONDS: Final = 1.0
# The page loads nothing from elsewhere (textual-serve names a font of Google's), and sends no referrer.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_STYLE: Final = re.compile(r'<link\b[^>]*?href="([^"]*)"[^>]*>')
_READY_FOR_KEYS: Final = """<title>spark-tui</title>
<script>
  new MutationObserver((_, page) => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (keys) { page.disconnect(); keys.focus(); }
  }).observe(document, {childList: true, subtree: true});
</script>
</head>"""
"""Without it the first key goes nowhere until a click into the terminal."""


class PortUnusable(SparkError, id="port_unusable"):
    pass


def web_application(command: str, host: str, token: Secret) -> web.Application:
    """textual-serve's application, which runs `command` once for each browser tab, behind the token.

    A request with `?token=` gets a cookie and is redirected without it; one with neither gets 403. Pages for
    another name than this server's (DNS rebinding), and sockets that another site opens, are refused.
    """
    server = Server(command, host=host, title="spark-tui")

    @web.middleware
    async def behind_token(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not _named(request.host, host):
            raise web.HTTPForbidden(text="This address is not served here.\n")
        given = request.query.get("token", "")
        if request.path == "/" and _same(given, token):
            fresh = web.Response(status=302, headers={**_HEADERS, "Location": "/"})
            fresh.set_cookie(_cookie(request), given, httponly=True, samesite="Strict", path="/")
            return fresh
        if not _same(request.cookies.get(_cookie(request), ""), token):
            raise web.HTTPForbidden(text="Open the address that spark-tui serve has printed, token and all.\n")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="Another site may not use this one.\n")
        server.public_url = f"{request.scheme}://{request.host}"  # as the browser came: through a tunnel, too
        response = await handler(request)
        if request.path == "/" and isinstance(response, web.Response):
            response.text = page(response.text or "", server.public_url)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    app = web.Application(middlewares=[behind_token])
    aiohttp_jinja2.setup(app, loader=jinja2.FileSystemLoader(server.templates_path))
    app.add_routes(
        [
            web.get("/", server.handle_index, name="index"),
            web.get("/ws", server.handle_websocket, name="websocket"),
            web.get("/download/{key}", server.handle_download, name="download"),
            web.static("/static", server.statics_path, name="static"),
        ]
    )
    return app


def page(text: str, own: str) -> str:
    """textual-serve's page with a title and the keyboard in the terminal, and with no style from elsewhere than
    `own`."""
    styled = _STYLE.sub(lambda link: link[0] if link[1].startswith(f"{own}/") else "", text)
    return styled.replace("</head>", _READY_FOR_KEYS, 1)


async def serve_web(command: str, host: str, port: int, token: Secret, ready: Callable[[int], None]) -> None:
    """Serves until cancelled; `ready` gets the port. Raises PortUnusable.

    There is no access log: addresses hold the token.
    """
    app = web_application(command, host, token)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise PortUnusable(
                f"Nothing can listen on {host}:{port}: {error.strerror or error}.", "Choose another: --port 8766"
            ) from error
        ready(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _same(given: str, token: Secret) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.reveal().encode())


def _cookie(request: web.Request) -> str:
    """Cookies are of a host, not of a port: two servers on one host have two names."""
    return f"spark_tui_{urlsplit(f'//{request.host}').port or 80}"


def _named(asked: str, host: str) -> bool:
    """Whether the Host header names this server: loopback, or the address that it listens on."""
    try:
        name = urlsplit(f"//{asked}").hostname or ""
    except ValueError:
        return False
    return host not in LOOPBACK_NAMES or name in LOOPBACK_NAMES
