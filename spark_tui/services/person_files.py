"""Files that a person names: what they hand to a model, and what they want exported."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.executors import CallPool
from spark_tui.services.files import FILE_MODE


class SystemPersonFiles:
    """The PersonFiles port. Relative paths start in the working directory, `~` is `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._pool = CallPool("person-files", 1)

    async def read(self, path: str, most: int) -> bytes:
        """See the port."""
        return await self._pool.run(self._read, path, most)

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        """See the port."""
        return await self._pool.run(self._write, path, text, replace)

    async def close(self) -> None:
        """See the port."""
        self._pool.close()

    def _read(self, path: str, most: int) -> bytes:
        place, shown = self._place(path), truncate(clean_line(path), 200)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hang us
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UsageError(f"{shown} is no file.", "Name a file.")
                data = file.read(most + 1)
        except OSError as error:
            raise UsageError(f"{shown} cannot be read: {error.strerror or error}.", "Check its name.") from error
        if len(data) > most:
            raise RefusedError(f"{shown} has more than {human_bytes(most)}.", "Choose a smaller file.")
        return data

    def _write(self, path: str, text: str, replace: bool) -> str:
        place, shown = self._place(path), truncate(clean_line(path), 200)
        if place.is_dir():
            raise UsageError(f"{shown} is a folder.", "Name a file in it.")
        beside = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
        try:
            with beside.open("x", encoding="utf-8", errors="replace") as file:
                os.fchmod(file.fileno(), FILE_MODE)
                file.write(text)
            if replace:
                beside.replace(place)
            else:
                os.link(beside, place)  # fails where there is a file, with no moment in between
        except FileExistsError:
            raise RefusedError(f"There is a file {shown} already.", "Choose another name.") from None
        except OSError as error:
            raise SparkError(f"Cannot write {shown}: {error.strerror or error}.", "Choose another place.") from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return str(place)

    def _place(self, text: str) -> Path:
        path = Path(text)
        return self._home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else Path.cwd() / path
