"""Bytes that are no text, and reports that cannot be: the control centre takes them for noise, and keeps answering."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from textual.app import App
from textual.events import Key, MouseEvent, Paste
from textual.message import Message

from spark_tui.app.control_centre import SparkApp
from spark_tui.tui.format import UNICODE
from spark_tui.tui.textual_private import TerminalDriver, TerminalParser
from tests.pty_app import PtyApp, spark_tui
from tests.tui.kit import kit_of

pytestmark = pytest.mark.timeout(300)

PATIENCE = 90.0
NOISE = {
    "a byte that begins nothing": b"\xff",
    "a character of Latin-1 in a paste": b"\x1b[200~caf\xe9\x1b[201~",
    "a click of the old kind, far right": b"\x1b[M \xf0 0",
    "half a surrogate pair": b"\xed\xa0\x80",
    "a key beyond Unicode": b"\x1b[4294967296u",
    "a key with its shifted form": b"\x1b[97:65;2u",
    "a click in pixels in a window without any": b"\x1b[48;36;120;0;0t\x1b[<0;5;5M\x1b[<0;5;5m",
    "a window of billions of cells": b"\x1b[48;999999999;999999999;1;1t",
    "reports of the window that never come": b"\x1b[?2048;1$y",
}
HELP = "\x1bOP"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A new user's home."""
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {"HOME": str(tmp_path), **folders, "TMUX": ""}


def test_at_a_terminal_the_program_lives_and_follows_the_window(environ: dict[str, str]) -> None:
    with PtyApp(spark_tui("--demo"), env=environ) as app:
        app.wait_for("1 Home", "qwen3.6-35b", timeout=PATIENCE)
        for what, data in NOISE.items():
            app.send_bytes(data)
            app.send(HELP)
            app.wait_for("Keys on ", timeout=PATIENCE)
            app.send("esc")
            app.wait_gone("Keys on ", PATIENCE)
            assert app.alive, what
        app.resize(40, 10)
        app.wait_for("40x10 is too small", timeout=PATIENCE)
        app.resize(120, 36)
        app.wait_for("qwen3.6-35b", timeout=PATIENCE)
        app.send("ctrl+q")
        assert app.wait_end(PATIENCE) == 0


class Tab:
    """The control centre as `serve` runs it for a tab of a browser: packets in and out, no terminal."""

    def __init__(self, environ: dict[str, str], columns: int, rows: int) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        size = {"COLUMNS": str(columns), "ROWS": str(rows)}
        driver = {"TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver", "TEXTUAL_COLOR_SYSTEM": "truecolor"}
        self.process = subprocess.Popen(
            spark_tui("--demo"), env={**os.environ, **environ, **driver, **size},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self) -> None:
        """The tab is closed."""
        self.process.kill()
        self._reader.join()
        with self.process:
            pass  # closes its pipes

    def _read(self) -> None:
        assert self.process.stdout is not None
        while self.process.stdout.readline() not in (b"__GANGLION__\n", b""):
            pass
        while head := self.process.stdout.read(5):
            payload = self.process.stdout.read(int.from_bytes(head[1:], "big"))
            if head[:1] == b"D":
                self._stream.feed(payload)

    def send(self, data: bytes) -> None:
        """Bytes as of the browser's keyboard."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"D" + len(data).to_bytes(4, "big") + data)
        self.process.stdin.flush()

    def wait_for(self, *texts: str) -> list[str]:
        """The lines of the screen once they have the texts."""
        end = time.monotonic() + PATIENCE
        while not all(text in "\n".join(self._screen.display) for text in texts):
            assert time.monotonic() < end, (texts, self._screen.display)
            time.sleep(0.05)
        return [line.rstrip() for line in self._screen.display]


@pytest.fixture
def tab(environ: dict[str, str]) -> Iterator[Tab]:
    """One of 150 columns."""
    tab = Tab(environ, 150, 40)
    yield tab
    tab.end()


def test_in_a_browser_the_program_lives_too(tab: Tab) -> None:
    tab.wait_for("1 Home", "qwen3.6-35b")
    for data in NOISE.values():
        text = data.decode("utf-8", "replace").encode()  # a browser sends text
        if not text.startswith(b"\x1b[48;"):  # nor does it report its size there
            tab.send(text)
    tab.send(HELP.encode())
    tab.wait_for("Keys on ")


def test_in_a_browser_the_screen_fills_the_window_from_the_first(tab: Tab) -> None:
    lines = tab.wait_for("1 Home", "qwen3.6-35b", "docker OK")
    assert len(lines[-1]) > 140, "the key bar ends at the right edge"


def messages(*pieces: str) -> list[Message]:
    parser = TerminalParser()
    return [message for piece in pieces for message in parser.feed(piece)]


@pytest.mark.parametrize("sequence", ["\x1b[4294967296u", "\x1b[97:65;2u", "\x1b[55296u", "\x1b[1;1;55296u"])
def test_a_key_that_cannot_be_is_no_key_and_the_next_one_is(sequence: str) -> None:
    assert [key.key for key in messages(sequence, "a") if isinstance(key, Key)] == ["a"]


def test_a_click_in_pixels_without_pixels_is_no_click() -> None:
    found = messages("\x1b[48;36;120;0;0t", "\x1b[<0;5;5M", "b")
    assert not any(isinstance(each, MouseEvent) for each in found)
    assert [key.key for key in found if isinstance(key, Key)] == ["b"]


def test_what_is_pasted_is_the_text_as_it_was() -> None:
    (paste,) = (each for each in messages("\x1b[200~é漢字🙂\x1b[201~.") if isinstance(each, Paste))
    assert paste.text == "é漢字🙂"


def test_the_driver_at_a_terminal_is_ours() -> None:
    assert App().driver_class is not TerminalDriver
    assert SparkApp(kit_of().context, UNICODE).driver_class is TerminalDriver


async def test_a_panic_is_never_exit_code_0() -> None:
    app = SparkApp(kit_of().context, UNICODE)
    async with app.run_test() as pilot:
        await pilot.pause()
        app.panic("the input failed")
    assert app.return_code == 1
