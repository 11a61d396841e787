"""Why a start ended that Docker has followed by another: from the log between the two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from spark_tui.domain.engine.boot import BootTracker
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.failures import Cause, CauseId, explain_failure
from spark_tui.services.ports import LogLine

MOST_LINES: Final = 50_000
UNKNOWN: Final = Cause(CauseId.UNKNOWN, "Its log does not say why.", "Read its log.")
_FAILED: Final = 1
"""The exit code of a start that Docker has followed by another: it no longer tells the real one."""


class EndedStart:
    """A start that began at `since` (seconds; None: not known) and ended before the one that `facts` show."""

    def __init__(self, facts: ContainerFacts, since: float | None) -> None:
        self._facts = facts
        self._tracker = BootTracker(since)
        self._count = 0
        self.stamp = "" if since is None else _stamp(since - 0.001)
        """From where its log is to be read; empty: from the beginning."""

    def feed(self, batch: Sequence[LogLine]) -> bool:
        """Takes lines as they come. False once no more are needed."""
        until = self._facts.started_at
        self._tracker.feed_many([line for line in batch if until is None or _before(line, until)])
        self._count += len(batch)
        return self._count <= MOST_LINES and (until is None or not batch or _before(batch[-1], until))

    def cause(self) -> Cause:
        """Why it ended, as far as the lines tell."""
        facts = self._facts
        code = _FAILED if facts.exit_code is None else facts.exit_code
        self._tracker.container_ended(code)
        timeline = self._tracker.timeline()
        found = explain_failure(timeline, exit_code=code, oom_killed=facts.oom_killed, error=facts.error)
        return found or UNKNOWN


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _before(line: LogLine, moment: float) -> bool:
    """Whether it was written before that moment; a line without a time counts as before."""
    try:
        return datetime.fromisoformat(line.stamp).timestamp() < moment
    except ValueError:
        return True
