"""Counts how often a launch is planned and its fit is measured, by the interpreter's profile: nothing is patched.

As a program it prints both figures of each of STEPS as JSON: python -m tests.launch_counts
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

from spark_tui.base.finding import value_of
from spark_tui.catalog.fit.model.fit import measure
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.run.launch.screen import LaunchForm
from tests.golden.record import Machine
from tests.run.launch.test_launch_form import full_kit, judged, reach
from tests.tui.kit import seen

PLAN: Final = plan
"""What plans a launch."""
FIT: Final = measure
"""What measures whether one fits."""
COMMANDS: Final = (
    "up gpt-oss-20b --dry-run",
    "up gpt-oss-20b --no-fetch",
    "up gpt-oss-20b --no-fetch --set gpu_memory_utilization=0.35",
    "fit gpt-oss-20b",
    "presets list",
)
"""Each on a simulated Spark of its own."""
OPENED, TYPED = "launch form: opened", "launch form: five digits typed"


class Calls:
    """Counts the calls of these functions on the thread that enters, and on all threads that start before the exit."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._names: dict[CodeType, str] = {each.__code__: each.__name__ for each in functions}
        self._found: Counter[str] = Counter()

    def __enter__(self) -> Calls:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in self._names:
            self._found[self._names[frame.f_code]] += 1

    def take(self) -> list[int]:
        """How often each was called since the last time, in the order of the functions."""
        found = [self._found[name] for name in self._names.values()]
        self._found.clear()
        return found


async def _in_the_form(calls: Calls) -> dict[str, list[int]]:
    async with seen(full_kit()) as sight:
        await sight.until(lambda: value_of(sight.app.world.memory) is not None)
        calls.take()
        await sight.press("enter")
        await judged(sight)
        found = {OPENED: calls.take()}
        await reach(sight, "max_model_len")
        for digit in "32768":
            await sight.type(digit)
            await judged(sight)
        shown = sight.app.screen
        assert isinstance(shown, LaunchForm) and shown.overrides.max_model_len == 32768
        return {**found, TYPED: calls.take()}


def counted() -> dict[str, list[int]]:
    """Plans and fits of each command, and in the form. In a new interpreter no call on a thread is missed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, Calls(PLAN, FIT) as calls:
        for number, line in enumerate(COMMANDS):
            code, *_ = Machine(Path(folder) / str(number), demo=True).answer(line)
            assert code == "exit 0", f"{line}: {code}"
            found[line] = calls.take()
        return found | asyncio.run(_in_the_form(calls))


if __name__ == "__main__":
    print(json.dumps(counted()))
