"""Lines by their times: the order of several logs together, and the moments that a person writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

from spark_tui.base.errors import UsageError

MOMENTS: Final = "14:05, 14:05:30, -10m"
"""What is taken for a moment."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def by_time(logs: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[int, int]]:
    """The lines of several logs, `(stamp, text)` each, ordered by their RFC 3339 stamps in UTC: which log, and which of
    its lines, both from 0. Lines of one log keep their order, also where a stamp is missing or earlier than the one
    before; of lines at the same time those of the earlier log come first.
    """
    keyed = []
    for log, lines in enumerate(logs):
        latest = ""
        for at, (stamp, _) in enumerate(lines):
            latest = max(latest, stamp.rstrip("Z"))  # without it, a stamp of fewer decimals is the smaller text
            keyed.append((latest, log, at))
    keyed.sort()
    return [(log, at) for _, log, at in keyed]


def moment_of(text: str, now: float, zone: tzinfo | None = None) -> float:
    """`14:05`, `14:05:30`, `-10m` (s, m, h, d) or RFC 3339 as seconds since the epoch; a time of day that is still to
    come was yesterday's. `zone` None is the local one. Raises UsageError."""
    text = text.strip()
    if ago := re.fullmatch(r"-(\d{1,6})([smhd])", text):
        return now - int(ago[1]) * _UNITS[ago[2]]
    today = datetime.fromtimestamp(now, zone)
    try:
        if clock := re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", text):
            hour, minute, second = (int(part or 0) for part in clock.groups())
            at = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (at if at <= today else at - timedelta(days=1)).timestamp()
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time.", f"Write it as one of: {MOMENTS}.") from error
