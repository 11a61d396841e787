"""Presets as an earlier run of this version read them, in one file of the cache folder: only for what is shown."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spark_tui import __version__
from spark_tui.base.files import PrivateFolder
from spark_tui.catalog.presets.model import preset as read_as
from spark_tui.catalog.presets.model.preset import Preset

_MOST_BYTES: Final = 64 << 20
_DIGEST: Final = 32
_SETTLED_SECONDS: Final = 2.0
"""A file that changed less than two seconds before it was read may change again within the clock's step."""


class Stamp(Struct, frozen=True):
    """What a file looked like when it was read: the same stamp gives the same result."""

    path: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class _Saved(msgspec.Struct, frozen=True):
    version: str
    presets: list[tuple[Stamp, Preset]]


class KeptPresets:
    """Presets by their files' stamps. `of` are the folders that are read: each set has a file of its own."""

    def __init__(self, files: PrivateFolder, *of: Path | None, now: Callable[[], float] = time.time) -> None:
        self._files = files
        self._now = now
        name = hashlib.sha256("\0".join(map(str, of)).encode("utf-8", "surrogateescape")).hexdigest()
        self._path = files.file(f"presets-{name[:16]}", ".msgpack")

    def load(self) -> dict[Stamp, Preset]:
        """Nothing where the file is another version's, damaged, or cannot be read."""
        with suppress(OSError, msgspec.MsgspecError, RecursionError, ValueError):
            data = self._files.read(self._path, _MOST_BYTES) or b""
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                found = msgspec.msgpack.decode(data[_DIGEST:], type=_Saved)
                return dict(found.presets) if found.version == _version() else {}
        return {}

    def save(self, presets: Mapping[Stamp, Preset]) -> None:
        """Keeps those alone whose files have settled. A folder that cannot be written is passed over."""
        latest = (self._now() - _SETTLED_SECONDS) * 1e9
        settled = [pair for pair in presets.items() if max(pair[0].modified_ns, pair[0].changed_ns) < latest]
        with suppress(OSError, OverflowError, UnicodeError):  # a whole number, or a name, that the format cannot hold
            data = msgspec.msgpack.encode(_Saved(_version(), settled))
            self._files.write(self._path, [hashlib.sha256(data).digest(), data])


def _version() -> str:
    """Of the code that reads recipes: in a checkout it changes under one version."""
    code = (path for folder in (Path(read_as.__file__), Path(__file__)) for path in folder.parent.glob("*.py"))
    return f"{__version__} {max(path.stat().st_mtime_ns for path in code)}"
