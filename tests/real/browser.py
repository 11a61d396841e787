"""A headless Chromium of the distribution's, driven over its own DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, ClientWSTimeout

from tests.real.lab.debian import MERGED, download, known, require_machine, unpack, update_lists
from tests.real.lab.support import LabUnavailable, Say, locked

INSTALLED = ("chromium", "google-chrome-stable", "google-chrome")
PACKAGE = "chromium"
FONT = "fonts-dejavu-core"
FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root}/fonts</cachedir>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias></fontconfig>
"""
START_SECONDS = 90.0
POLL_SECONDS = 0.1
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # it is root here, and opens our own page alone
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--window-size=1280,800",
)


class Chromium:
    """The program: the machine's own, or the distribution's packages unpacked into `root`. Nothing is installed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ensure(self, say: Say) -> None:
        """Fetches it where it is missing: half a minute, once. Raises LabUnavailable."""
        if self._installed() or self._whole.exists():
            return
        require_machine()
        with locked(self._root.with_name(f"{self._root.name}.lock")):
            if self._whole.exists():
                return
            if not known(PACKAGE):
                update_lists(say)
            if not known(PACKAGE):
                raise LabUnavailable(f"this distribution has no package {PACKAGE}; install a Chromium or Chrome")
            say(f"fetching {PACKAGE} out of Debian packages; nothing is installed")
            archives = download([PACKAGE, FONT], self._root / "packages", say)
            unpack(archives, self._root, c_library=False)
            shutil.rmtree(self._root / "packages")
            self._fonts.write_text(FONTS.format(root=self._root), encoding="utf-8")
            self._whole.touch()

    def command(self) -> list[str]:
        """The program's words."""
        own = self._installed()
        return [str(own or self._root / "usr" / "lib" / "chromium" / "chromium"), *FLAGS]

    def environ(self) -> dict[str, str]:
        """Its environment: libraries and fonts from its own root where it is unpacked."""
        if self._installed():
            return dict(os.environ)
        folders = {str(path.parent) for name in MERGED for path in (self._root / "usr" / name).glob("**/*.so*")}
        return {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(sorted(folders)),
            "FONTCONFIG_FILE": str(self._fonts),
        }

    @property
    def _whole(self) -> Path:
        return self._root / "whole"

    @property
    def _fonts(self) -> Path:
        return self._root / "fonts.conf"

    def _installed(self) -> Path | None:
        return next((Path(found) for name in INSTALLED if (found := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.answered: list[str] = []
        """Every address that something was loaded from."""

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the protocol and its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            if message.get("method") == "Network.responseReceived":
                self.answered.append(message["params"]["response"]["url"])
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result

    async def evaluate(self, script: str) -> Any:
        """The value of a script in the page; it may be a promise."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    async def go(self, url: str) -> None:
        """Opens an address."""
        await self.call("Page.navigate", url=url)

    async def press(self, key: str) -> None:
        """One key of a letter or digit, down and up."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def wait_for(self, script: str, *texts: str, seconds: float = START_SECONDS) -> str:
        """The script's text once it has all of `texts`; AssertionError with the last one when it never has."""
        found = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    found = str(await self.evaluate(script) or "")
                    if all(text in found for text in texts):
                        return found
                    await asyncio.sleep(POLL_SECONDS)
        raise AssertionError(f"never seen: {[text for text in texts if text not in found]} in:\n{found}")


@asynccontextmanager
async def opened(chromium: Chromium, profile: Path, *, at_start: str = "") -> AsyncIterator[Page]:
    """A browser with one empty tab, and `at_start` run in every page before the page's own scripts."""
    program = await asyncio.create_subprocess_exec(
        *chromium.command(), f"--user-data-dir={profile}", "about:blank",
        env=chromium.environ(), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await _port(program, profile / "DevToolsActivePort")
        async with ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tab = next(each for each in await answer.json() if each["type"] == "page")
            waits = ClientWSTimeout(ws_close=1.0)
            async with http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0, timeout=waits) as socket:
                page = Page(socket)
                for domain in ("Page", "Network", "Runtime"):
                    await page.call(f"{domain}.enable")
                await page.call("Page.addScriptToEvaluateOnNewDocument", source=at_start)
                yield page
    finally:
        with suppress(ProcessLookupError):
            program.kill()
        await program.wait()


async def _port(program: asyncio.subprocess.Process, file: Path) -> int:
    """The port that the browser has chosen."""
    async with asyncio.timeout(START_SECONDS):
        while not (file.exists() and file.read_text().strip()):
            assert program.returncode is None, f"the browser has ended with {program.returncode}"
            await asyncio.sleep(POLL_SECONDS)
    return int(file.read_text().splitlines()[0])
