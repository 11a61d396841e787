"""Files that a command writes for the person: never over one that is there."""

from __future__ import annotations

import os
from pathlib import Path

from spark_tui.domain.errors import RefusedError, SparkError

PRIVATE = 0o600
ORDINARY = 0o666
"""Less what the person's umask takes away."""


def write_new(path: str, text: str, option: str, *, mode: int = ORDINARY) -> Path:
    """Writes `text` into a new file and returns its path; `~` is the person's home.

    Raises RefusedError where there is a file already, SparkError where none can be; both name `option`.
    """
    place = Path(path).expanduser()
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RefusedError(f"{place} is there already.", f"Remove it, or name another file: {option} FILE") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise SparkError(f"{place} cannot be written: {reason}.", f"Name another place: {option} FILE") from error
    return place
