"""What stands below the log on the Logs screen: why the engine ended and what to do, and the line of status."""

from __future__ import annotations

from textual.content import Content

from spark_tui.domain.engine.failures_cause import Cause
from spark_tui.tui.widgets.fact_rows import cause_rows, fact_lines
from spark_tui.tui.widgets.line import Line, spread

MOST_LINES = 3
"""Of a sentence of the cause: the log is why one is here."""


class LogCause(Line):
    """Why the engine ended, and what to do; away while there is no cause.

    `preset`: it was launched from a preset that is here, so that the change can be made by a key.
    """

    def __init__(self) -> None:
        super().__init__(id="log-cause")
        self.display = False
        self._cause: Cause | None = None
        self._preset = False

    def tell(self, cause: Cause | None, *, preset: bool) -> None:
        """Shows this one."""
        self._cause, self._preset = cause, preset
        self.display = cause is not None
        self.renew()

    def say(self, width: int) -> Content:
        """The cause, the remedy, the change."""
        if self._cause is None:
            return Content("")
        return Content("\n").join(fact_lines(cause_rows(self._cause, preset=self._preset), width, MOST_LINES))


class LogStatus(Line):
    """Under the log: what is shown of what there is, and whether the end is followed."""

    def __init__(self) -> None:
        super().__init__(id="log-status")
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return spread(self.left, self.right, width)
