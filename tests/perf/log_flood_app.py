"""A log view under a flood: `RATE` lines a second of real ones into a buffer and a boot tracker. `x` counts up."""

from __future__ import annotations

import asyncio
import sys
from itertools import cycle, islice

from textual.app import App, ComposeResult
from textual.widgets import Static

from spark_tui.base.ports import LogLine
from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.use import LogBuffer
from spark_tui.tui.format import UNICODE
from spark_tui.tui.themes import SPARK_DARK
from tests.log_fixtures import log_names, run_log

BATCHES_PER_SECOND = 50
STAMP = "2026-05-21T21:02:50.123456789Z"


class FloodApp(App[None]):
    """What the Logs screen is at its heart."""

    BINDINGS = [("x", "count", "Count")]  # noqa: RUF012 - Textual's shape

    def __init__(self, rate: int) -> None:
        super().__init__()
        self.register_theme(SPARK_DARK)
        self.theme = SPARK_DARK.name
        self.rate = rate
        self.buffer = LogBuffer()
        self.tracker = LogTracker()
        self.count = 0

    def compose(self) -> ComposeResult:
        yield Static("count 0", id="count")
        yield LogView(glyphs=UNICODE)

    def on_mount(self) -> None:
        view = self.query_one(LogView)
        view.show(self.buffer)
        view.focus()
        self.run_worker(self.flood())

    async def flood(self) -> None:
        names = {name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()}
        real = cycle([LogLine(STAMP, text) for name in sorted(names) for text in run_log(name)])
        loop = asyncio.get_running_loop()
        begun, sent = loop.time(), 0
        while True:
            due = int((loop.time() - begun) * self.rate)
            batch = list(islice(real, due - sent))
            sent = due
            self.buffer.extend(batch)
            self.tracker.feed_many(batch)
            self.tracker.timeline()
            await asyncio.sleep(1 / BATCHES_PER_SECOND)

    def action_count(self) -> None:
        self.count += 1
        self.query_one("#count", Static).update(f"count {self.count}")


if __name__ == "__main__":
    FloodApp(int(sys.argv[1])).run()
