"""Runs a program in a pseudo-terminal as a person would: keys in, a screen out, bytes and CPU time counted."""

from __future__ import annotations

import base64
import codecs
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil
import pyte
from ptyprocess import PtyProcess

KEYS = {
    "enter": "\r",
    "esc": "\x1b",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "end": "\x1b[F",
    "delete": "\x1b[3~",
    "backspace": "\x7f",
}


CONFIRMS, READS_S = ("y", "enter", "ctrl+l"), 1.0
"""A key that comes in the moments after a dialog's first picture does not confirm it: a person reads first."""

_OSC_52 = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)(?:\x07|\x1b\\\\)")
"""What a program asks the terminal to put into its clipboard."""


class PtyApp:
    """One program on one emulated terminal."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 36,
        env: Mapping[str, str] | None = None,
        recording: Path | None = None,
    ) -> None:
        self.columns, self.rows = columns, rows
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.bytes_read = 0
        self.clipboard = ""
        self._unfinished = b""
        self.last_output_at = 0.0
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        environment = {**os.environ, **terminal, **(env or {})}
        self._process = PtyProcess.spawn(list(argv), dimensions=(rows, columns), env=environment)
        self.started_at = time.monotonic()
        self._recording = _Recording(recording, columns, rows) if recording is not None else None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> PtyApp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return bool(self._process.isalive())

    def _read(self) -> None:
        while True:
            try:
                data = self._process.read(65536)
            except (EOFError, OSError, ValueError):  # ended, or closed by us
                return
            with self._lock:
                self.bytes_read += len(data)
                self.last_output_at = time.monotonic()
                self._stream.feed(data)
                self._copy(data)
                if self._recording is not None:
                    self._recording.add(time.monotonic() - self.started_at, data)

    def _copy(self, data: bytes) -> None:
        """Takes what the terminal was asked to copy; a request may come in several pieces."""
        self._unfinished += data
        for found in _OSC_52.finditer(self._unfinished):
            self.clipboard = base64.b64decode(found[1]).decode()
        last = self._unfinished.rfind(b"\x1b")
        self._unfinished = self._unfinished[last:] if last >= 0 else b""

    def text(self) -> str:
        """What the screen shows, trailing spaces removed."""
        with self._lock:
            rows = (self._screen.buffer[y] for y in range(self._screen.lines))
            columns = range(self._screen.columns)  # pyte's own fails at half a wide character
            return "\n".join("".join(row[x].data for x in columns).rstrip() for row in rows)

    def send(self, *keys: str) -> None:
        """Key names of `KEYS`, `ctrl+x`, or literal text. What may confirm comes after a look at the screen."""
        for key in keys:
            if key in CONFIRMS:
                time.sleep(READS_S)
            data = chr(ord(key[-1].lower()) - 96) if key.startswith("ctrl+") else KEYS.get(key, key)
            self._process.write(data.encode())
            # An escape and the key after it are read as one key when they come close together.
            time.sleep(0.25 if key == "esc" else 0.02)

    def send_bytes(self, data: bytes) -> None:
        """Any bytes; dropped where the program has ended."""
        with suppress(OSError):
            self._process.write(data)

    def wait_for(self, *texts: str, timeout: float = 20.0) -> str:
        """The screen once it shows all the texts; AssertionError with the screen when it does not in time."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            shown = self.text()
            if all(text in shown for text in texts):
                return shown
            if not self.alive:
                self._reader.join(5.0)  # its last words may still be on their way
                break
            time.sleep(0.02)
        shown = self.text()
        missing = [text for text in texts if text not in shown]
        if not missing:
            return shown
        raise AssertionError(f"never shown: {missing}; alive: {self.alive}; the screen:\n{shown}")

    def wait_until(self, condition: Callable[[PtyApp], bool], timeout: float = 20.0) -> None:
        """Returns once it is so; AssertionError with the screen when it is not in time."""
        deadline = time.monotonic() + timeout
        while not condition(self):
            if time.monotonic() > deadline or not self.alive:
                raise AssertionError(f"never so; copied: {self.clipboard!r}; the screen:\n{self.text()}")
            time.sleep(0.02)

    def wait_gone(self, text: str, timeout: float = 20.0) -> None:
        """Returns once the screen no longer shows the text."""
        deadline = time.monotonic() + timeout
        while text in self.text():
            if time.monotonic() > deadline:
                raise AssertionError(f"still shown: {text!r}; the screen:\n{self.text()}")
            time.sleep(0.02)

    def wait_end(self, timeout: float = 10.0) -> int | None:
        """Waits until the program has ended and all that it wrote is read; its exit status."""
        deadline = time.monotonic() + timeout
        while self.alive:
            if time.monotonic() > deadline:
                raise AssertionError(f"still running; the screen:\n{self.text()}")
            time.sleep(0.02)
        self._reader.join(max(5.0, deadline - time.monotonic()))
        status: int | None = self._process.exitstatus
        return status

    def press_until(self, key: str, text: str, most: int = 20) -> str:
        """Presses the key until the screen shows the text, which a moving screen may take a moment for."""
        for _ in range(most):
            try:
                return self.wait_for(text, timeout=2.0)
            except AssertionError:
                self.send(key)
        return self.wait_for(text)

    def wait_quiet(self, seconds: float = 1.0, timeout: float = 30.0) -> None:
        """Returns once nothing was written for `seconds`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() - self.last_output_at < seconds:
            if time.monotonic() > deadline:
                raise AssertionError("never quiet")
            time.sleep(0.05)

    def resize(self, columns: int, rows: int) -> None:
        """Another window size."""
        with self._lock:
            self._screen.resize(rows, columns)
        self._process.setwinsize(rows, columns)

    def cpu_seconds(self) -> float:
        """User and system time so far, of the program alone."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def rss(self) -> int:
        """Resident bytes of the program alone."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def hang_up(self) -> None:
        """The terminal goes away, as when a connection is lost; the program is left to itself."""
        self._process.fileobj.close()

    def kill(self) -> None:
        """Ends the program at once."""
        if self.alive:
            self._process.kill(9)
        self._process.close(force=True)


class _Recording:
    """What the terminal received, as an asciicast (version 2) that any player shows."""

    def __init__(self, path: Path, columns: int, rows: int) -> None:
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        path.write_text(json.dumps({"version": 2, "width": columns, "height": rows}) + "\n", encoding="utf-8")

    def add(self, at: float, data: bytes) -> None:
        text = self._decoder.decode(data)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([round(at, 3), "o", text]) + "\n")


def spark_tui(*arguments: str) -> list[str]:
    """The command line that runs this checkout."""
    return [sys.executable, "-m", "spark_tui", *arguments]


REPOSITORY = Path(__file__).resolve().parent.parent
