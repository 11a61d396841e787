"""The history of this machine: how long samples are kept, records, and whether it is kept at all."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from spark_tui.base.errors import SparkError

RAW_SECONDS: Final = 3600
"""Samples are kept as they came, one a second, for an hour."""
FINE_STEP: Final = 10
FINE_SECONDS: Final = 86_400
"""Then as least, mean and greatest of each ten seconds, for a day."""
COARSE_STEP: Final = 60
COARSE_SECONDS: Final = 30 * 86_400
"""Then of each minute, for a month; then they go."""
MOST_BYTES: Final = 128 * 1024**2
"""What the history may take on disk, its write-ahead log of some MiB apart: the oldest samples go first."""


class HistoryOff(SparkError, id="history_off"):
    """The history cannot be read or written now."""


class Record(Struct, frozen=True):
    """Anything else worth keeping: `kind` says what (`bench`, `event`), `key` of what (a preset, an engine), `at`
    when, seconds since the epoch. Kind, key and time name it: one more of the same name takes its place. `body` is
    whatever JSON can hold."""

    kind: str
    key: str
    at: float
    body: Any


class HistoryState(Struct, frozen=True):
    """Whether the history is kept. `reason` is empty while it is, else says why not, and `remedy` what to do.

    `samples_elsewhere`: another spark-tui of this user records the samples; this one reads them. `notes` are what a
    person should know once: a file that was quarantined, and where it is. `file` is where the history is.
    """

    reason: str = ""
    remedy: str = ""
    samples_elsewhere: bool = False
    notes: tuple[str, ...] = ()
    file: str = ""
