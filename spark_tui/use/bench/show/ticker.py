"""Progress of a benchmark on the command line."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session
from spark_tui.use.bench.show import bench as present
from spark_tui.use.bench.use.bench import BenchProgress, BenchStep

_LINE_SECONDS: Final = 0.2
"""How often the line moves at most, where a person watches."""


class Ticker(Struct, eq=False):
    """Shows a benchmark's progress: one moving line where a person watches, a line per segment in a pipe."""

    _session: Session
    _step: tuple[str, BenchStep] | None = None
    _at: float = float("-inf")
    _last: BenchProgress | None = None

    def __call__(self, progress: BenchProgress) -> None:
        before, self._last = self._last, progress
        err = self._session.err
        if self._session.as_json:
            return
        if (before is None or progress.done > before.done) and (text := present.segment_text(progress)):
            err.say(text)
        if not err.interactive:
            if self._step != (progress.engine, progress.step) and progress.step is not BenchStep.DONE:
                self._step = (progress.engine, progress.step)
                err.say(f"{progress.engine}: {progress.step.value}", "dim")
        elif not progress.requests_running or progress.seconds - self._at >= _LINE_SECONDS:
            self._at = progress.seconds
            count = f"   {present.progress_count(progress)}" if progress.step is BenchStep.MEASURING else ""
            err.standing(f"{present.progress_text(progress)}{count}")

    def interrupted(self) -> Interrupted:
        """Ctrl-C: what was measured by then is kept."""
        runs = self._last.runs if self._last is not None else ()
        if not any(run.levels for run in runs):
            return Interrupted("", "")
        if any(run.conditions.simulated for run in runs):
            return Interrupted("The measurement was stopped.", "Simulated results are not saved.")
        ids = " ".join(run.id for run in runs)
        return Interrupted("The measurement was stopped.", f"Measured levels are saved: spark-tui results show {ids}")
