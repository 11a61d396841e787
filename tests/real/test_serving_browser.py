"""`spark-tui serve` in a real browser: with the token a screen that obeys keys, without it nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.pty_app import spark_tui
from tests.real.browser import Chromium, opened
from tests.real.lab import LabUnavailable
from tests.real.lab.lab import default_root
from tests.real.lab.support import Say

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

# The page keeps its terminal to itself: this sees it being kept.
FIND_TERMINAL = """
Object.defineProperty(Object.prototype, "terminal", {configurable: true, set(found) {
  Object.defineProperty(this, "terminal", {value: found, writable: true, configurable: true, enumerable: true});
  if (found && found.buffer) window.seenTerminal = found;
}});
"""
SCREEN = """(() => {
  const terminal = window.seenTerminal;
  if (!terminal) return "";
  const lines = [];
  for (let at = 0; at < terminal.rows; at++)
    lines.push(terminal.buffer.active.getLine(at)?.translateToString(true) ?? "");
  return lines.join("\\n");
})()"""
FITS = """document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight
  && getComputedStyle(document.querySelector(".xterm-helper-textarea")).opacity === "0" """
EVERYTHING = "document.body ? document.body.innerText : ''"
SOCKET_REFUSED = """new Promise(done => {
  const socket = new WebSocket(`ws://${location.host}/ws?width=80&height=24`);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""


@pytest.fixture(scope="module")
def chromium(say: Say) -> Chromium:
    """The browser."""
    found = Chromium(default_root() / "chromium")
    try:
        found.ensure(say)
    except LabUnavailable as error:
        if os.environ.get("SPARK_TUI_REAL") == "required":
            pytest.fail(f"SPARK_TUI_REAL=required, but there is no browser: {error}", pytrace=False)
        pytest.skip(str(error))
    return found


@dataclass(frozen=True)
class Served:
    """The control centre of the demo, served."""

    url: str
    process: subprocess.Popen[str]

    @property
    def base(self) -> str:
        """Without the token."""
        split = urlsplit(self.url)
        return f"{split.scheme}://{split.netloc}"

    @property
    def screens(self) -> list[psutil.Process]:
        """The control centres that run now, one for each tab."""
        return psutil.Process(self.process.pid).children()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Served on a port of its own."""
    environ = {**os.environ, "HOME": str(tmp_path), **{f"XDG_{name}_HOME": str(tmp_path / name) for name in
               ("CONFIG", "STATE", "CACHE", "DATA")}}  # fmt: skip
    with subprocess.Popen(
        spark_tui("--demo", "serve", "--port", "0", "--json"),
        env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield Served(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.kill()


async def test_with_the_token_the_screen_is_drawn_and_obeys_keys(
    chromium: Chromium, served: Served, tmp_path: Path
) -> None:
    async with opened(chromium, tmp_path / "profile", at_start=FIND_TERMINAL) as page:
        await page.go(served.url)
        await page.wait_for(SCREEN, "DEMO", "MEM", "1 Home", "Engines")
        assert await page.evaluate("location.href") == f"{served.base}/", "the token has left the address"
        assert await page.evaluate("document.cookie") == "", "no script of a page can read the token"
        columns = await page.evaluate("window.seenTerminal.cols")
        assert columns > 80, "the terminal fills the window"
        shown = await page.wait_for(SCREEN, "qwen3.6-35b", "docker OK")
        ends = [len(line.rstrip()) for line in shown.splitlines() if line.rstrip().endswith("docker OK")]
        assert ends and ends[0] > columns - 3, "and the screen the terminal, also once there are data"
        assert await page.evaluate(FITS), "and nothing of it lies outside"
        home = await page.picture()

        await page.press("3")
        await page.wait_for(SCREEN, "Overview", "gpt-oss-120b")
        assert await page.picture() != home, "what is seen has changed too"

        await page.press("8")
        await page.wait_for(SCREEN, "WARN")
        assert {urlsplit(url).netloc for url in page.answered} == {urlsplit(served.base).netloc}, (
            "nothing from elsewhere"
        )

        [screen] = served.screens
        await page.go("about:blank")
        await asyncio.to_thread(screen.wait, 30)
        assert served.screens == [], "a tab that is closed leaves no control centre behind"

    served.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(served.process.wait, 30) == 0


async def test_without_the_token_there_is_nothing(chromium: Chromium, served: Served, tmp_path: Path) -> None:
    async with opened(chromium, tmp_path / "profile", at_start=FIND_TERMINAL) as page:
        for path in ("/", "/?token=guessed", "/static/js/textual.js"):
            await page.go(served.base + path)
            said = await page.wait_for(EVERYTHING, "Open the address that spark-tui serve has printed")
            assert "Home" not in said
            assert await page.evaluate("window.seenTerminal === undefined")
        assert await page.evaluate(SOCKET_REFUSED) == "refused"
        assert served.screens == [], "no control centre was started for it"
