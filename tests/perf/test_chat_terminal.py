"""What a streamed answer costs on a terminal: the whole program, a scripted server, and a pty that counts bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from spark_tui.app.main import SSH_DEFAULTS
from tests.perf.raw_terminal import RawTerminal
from tests.pty_app import REPOSITORY

KEYS = "абвгдежзийклмнопрстуфхцчшщъыьэюяαβγδεζηθικλμνξοπρστυφχψω"
"""Letters that stand nowhere else on the screen."""
KEY_SECONDS = 0.083
RATE = 1000
SSH = {"SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22", **dict(SSH_DEFAULTS)}
"""What the launcher sets over SSH, before Textual is imported."""


@contextmanager
def scripted(rate: int, tokens: int) -> Iterator[int]:
    """The server in a process of its own; its port."""
    argv = [sys.executable, "-m", "tests.perf.chat_server", str(rate), str(tokens)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class ChatTerminal(RawTerminal):
    """The program, and a person at its keys."""

    def __init__(self, port: int, home: Path, *, ssh: bool = False) -> None:
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(home), "COLORTERM": "truecolor"}
        env.pop("SSH_CONNECTION", None)
        env |= SSH if ssh else {}
        super().__init__([sys.executable, "-m", "tests.perf.chat_app", str(port)], env, columns=120, rows=36)

    def key_to_frame(self, letter: str) -> float:
        """Seconds from a letter typed in the prompt to the bytes that show it."""
        began = time.perf_counter()
        self.send(letter)
        self.wait_for(letter)
        return time.perf_counter() - began

    def tokens_told(self) -> int:
        """Tokens of the answer, as the line below it tells."""
        with self._arrived:
            plain = re.sub(rb"\x1b\[[\d;?]*[A-Za-z]", b"", self._tail)
        return int(re.findall(rb"tok/s\s+([\d,]+) tokens", plain)[-1].replace(b",", b""))

    def go(self) -> None:
        """To the Chat screen, and into its prompt."""
        self.wait_for("scripted", timeout=60)
        self.send("6")
        self.wait_for("essage to scripted")  # the cursor stands on the M

    def ask(self) -> None:
        """A question; returns when the answer has begun."""
        self.send("Go")
        self.wait_for("Go")
        self.send("\r")
        self.wait_for("answering")

    def waits(self, count: int) -> list[float]:
        """Seconds from key to frame of so many keys, shortest first."""
        found = []
        for number in range(count):
            found.append(self.key_to_frame(KEYS[number % len(KEYS)]))
            time.sleep(KEY_SECONDS)
        self.send("\x15")  # Ctrl-U: nothing is left in the prompt
        time.sleep(0.5)
        return sorted(found)


def p99(waits: list[float]) -> float:
    return waits[int(len(waits) * 0.99)]


def test_a_thousand_tokens_per_second_keep_up_under_half_a_core_and_keys_are_shown_at_once(tmp_path: Path) -> None:
    seconds = 10
    with scripted(RATE, RATE * 60) as port, ChatTerminal(port, tmp_path) as terminal:
        terminal.go()
        quiet = terminal.waits(40)
        terminal.ask()
        began, cpu, sent = time.perf_counter(), terminal.cpu_seconds(), terminal.bytes
        time.sleep(seconds)
        took = time.perf_counter() - began
        share, sent = (terminal.cpu_seconds() - cpu) / took, terminal.bytes - sent
        psutil.cpu_percent()
        waits = terminal.waits(100)
        idle_cores = (1 - psutil.cpu_percent() / 100) * (psutil.cpu_count() or 1)
        terminal.send("\x1b")
        terminal.wait_for("stopped")
        kept_up = terminal.tokens_told() / (time.perf_counter() - began)
    print(
        f"\n{RATE} tok/s: {share:.1%} of a core, {sent / took / 1000:.1f} kB/s, {kept_up:.0f} tok/s are read;", end=" "
    )
    print(f"key to frame p50 {waits[len(waits) // 2] * 1e3:.1f} ms, p99 {p99(waits) * 1e3:.1f} ms;", end=" ")
    print(
        f"with no answer {quiet[len(quiet) // 2] * 1e3:.1f} and {p99(quiet) * 1e3:.1f} ms; cores free: {idle_cores:.1f}"
    )
    assert share < 0.5
    assert kept_up > 0.9 * RATE
    if idle_cores < 0.5:
        pytest.skip(f"others use this machine: keys wait for a core ({p99(waits) * 1e3:.0f} ms), not for the program")
    assert p99(waits) < 0.06


def test_over_ssh_a_stream_takes_less_than_20_kilobytes_a_second(tmp_path: Path) -> None:
    seconds = 15
    with scripted(60, 6000) as port, ChatTerminal(port, tmp_path, ssh=True) as terminal:
        terminal.go()
        terminal.ask()
        began, sent, cpu = time.perf_counter(), terminal.bytes, terminal.cpu_seconds()
        time.sleep(seconds)
        took = time.perf_counter() - began
        share, sent = (terminal.cpu_seconds() - cpu) / took, terminal.bytes - sent
    print(f"\n60 tok/s over SSH: {sent / took / 1000:.1f} kB/s, {share:.1%} of a core")
    assert sent / took < 20_000
