"""Small files of /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 65_536


def read(path: str) -> str:
    """In one read: half the cost of open(), and the kernel's table is of one moment. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def text_or_empty(path: Path) -> str:
    """A text that may be absent, barred or broken: empty then, which its readers take for `not told`."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
