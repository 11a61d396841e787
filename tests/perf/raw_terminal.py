"""A program on a terminal that only counts bytes: no emulator's time is in the figures."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Self

import psutil
from ptyprocess import PtyProcess

from tests.pty_app import REPOSITORY

_KEPT = 200_000


class RawTerminal:
    """`bytes` were written so far; what was written since the last key is kept."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, columns: int, rows: int) -> None:
        self._pty = PtyProcess.spawn(list(argv), dimensions=(rows, columns), env=dict(env), cwd=str(REPOSITORY))
        self._process = psutil.Process(self._pty.pid)
        self._arrived = threading.Condition()
        self._tail = b""
        self.bytes = 0
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pty.kill(9)
        self._pty.close(force=True)

    def _read(self) -> None:
        while True:
            try:
                data = self._pty.read(65_536)
            except (EOFError, OSError, ValueError):
                return
            with self._arrived:
                self.bytes += len(data)
                self._tail = (self._tail + data)[-_KEPT:]
                self._arrived.notify_all()

    def send(self, keys: str) -> None:
        """Types."""
        with self._arrived:
            self._tail = b""
            self._pty.write(keys.encode())

    def wait_for(self, *texts: str, timeout: float = 30.0) -> None:
        """Returns once all of these were written, since the last key."""
        wanted = [text.encode() for text in texts]
        with self._arrived:
            found = self._arrived.wait_for(lambda: all(text in self._tail for text in wanted), timeout)
        assert found, f"never written: {texts}; the last: {self._tail[-600:]!r}"

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> int:
        """Resident bytes."""
        return int(self._process.memory_info().rss)
