"""The control centre in a browser: nobody gets in without the token. Over real loopback sockets."""

from __future__ import annotations

import asyncio
import gc
import shlex
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import ClientSession, CookieJar, WSMsgType, WSServerHandshakeError

from spark_tui.app.web import PortUnusable, serve_web
from spark_tui.base.secret import Secret

TOKEN = "right-token"
COMMAND = shlex.join((sys.executable, "-m", "spark_tui", "--demo"))


@pytest.fixture(autouse=True)
def programs_that_were_served_are_let_go() -> Iterator[None]:
    """textual-serve does not wait for the end of what it has started; the interpreter says so whenever it notices."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        noticed, sys.unraisablehook = sys.unraisablehook, lambda _: None
        gc.collect()
        sys.unraisablehook = noticed


@dataclass
class Site:
    """A served control centre, and a browser."""

    browser: ClientSession
    port: int

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def status(self, path: str, **headers: str) -> int:
        async with self.browser.get(f"{self.base}{path}", headers=headers, allow_redirects=True) as answer:
            return answer.status


@asynccontextmanager
async def served(host: str = "127.0.0.1") -> AsyncIterator[Site]:
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_web(COMMAND, host, 0, Secret(TOKEN), bound.set_result))
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            yield Site(browser, await bound)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_without_the_token_everything_is_forbidden() -> None:
    async with served() as site:
        for path in ("/", "/?token=", "/?token=wrong", "/?token=%00", "/ws", "/static/js/textual.js", "/x"):
            assert await site.status(path) == 403, path


async def test_with_the_token_the_page_opens_and_the_token_leaves_the_address() -> None:
    async with served() as site:
        async with site.browser.get(f"{site.base}/?token={TOKEN}") as answer:
            page = await answer.text()
            assert answer.status == 200
            assert str(answer.url) == f"{site.base}/"
            assert TOKEN not in page
            assert f"ws://127.0.0.1:{site.port}/ws" in page
            assert page.count("</head>") == 1
            assert "focus()" in page, "the first key is heard without a click"
            assert f"{site.base}/static/css/xterm.css" in page
            assert "https://" not in page, "nothing is asked of anybody else"
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"], "no font from elsewhere"
        assert await site.status("/static/js/textual.js") == 200
        [cookie] = site.browser.cookie_jar
        assert cookie["httponly"]
        assert cookie["samesite"] == "Strict"


async def test_through_a_tunnel_the_page_speaks_to_the_tunnel() -> None:
    async with served() as site:
        async with site.browser.get(
            f"{site.base}/?token={TOKEN}", headers={"Host": "localhost:9000"}, allow_redirects=False
        ) as answer:
            assert answer.status == 302
            assert "spark_tui_9000=" in answer.headers["Set-Cookie"]
        async with site.browser.get(
            f"{site.base}/", headers={"Host": "localhost:9000", "Cookie": f"spark_tui_9000={TOKEN}"}
        ) as answer:
            assert "ws://localhost:9000/ws" in await answer.text()


async def test_another_name_and_another_site_are_refused_even_with_the_token() -> None:
    async with served() as site:
        assert await site.status(f"/?token={TOKEN}", Host="evil.example") == 403
        assert await site.status(f"/?token={TOKEN}") == 200
        with pytest.raises(WSServerHandshakeError) as caught:
            await site.browser.ws_connect(f"{site.base}/ws", origin="http://evil.example")
        assert caught.value.status == 403


async def test_the_control_centre_runs_in_the_page() -> None:
    async with served() as site:
        assert await site.status(f"/?token={TOKEN}") == 200
        seen = b""
        async with asyncio.timeout(60), site.browser.ws_connect(f"{site.base}/ws?width=120&height=36") as socket:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    seen += message.data
                if b"DEMO" in seen and b"Home" in seen:
                    break
        assert b"Presets" in seen


async def test_a_port_that_is_taken_is_an_error_with_a_remedy() -> None:
    async with served() as site:
        with pytest.raises(PortUnusable) as caught:
            await serve_web(COMMAND, "127.0.0.1", site.port, Secret(TOKEN), lambda port: None)
        assert "--port" in caught.value.remedy
