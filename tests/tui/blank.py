"""How much of a screen says nothing: the share of blank cells in its body, borders counted as blank.

python -m tests.tui.blank 120x36 160x50      Home, Presets, Models and Metrics of the demo
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from textual.app import App

BORDERS = frozenset("╭╮╰╯─│├┤┬┴┼┌┐└┘ ")
KEYS = {"Home": "1", "Presets": "3", "Models": "2", "Metrics": "5"}


def blank_share(app: App[Any], top: int = 3, foot: int = 1) -> float:
    """From 0 to 1, without `top` rows of bars and the keys at the foot."""
    lines = app.screen._compositor.render_strips(app.size)[top : app.size.height - foot]
    text = "".join(segment.text for line in lines for segment in line)
    return sum(char in BORDERS for char in text) / max(1, len(text))


async def main(sizes: list[str]) -> None:
    from spark_tui.app.control_centre import SparkApp
    from spark_tui.app.wiring import build_demo

    for size in sizes:
        width, height = map(int, size.split("x"))
        app = SparkApp(build_demo())
        async with app.run_test(size=(width, height)) as pilot:
            await pilot.pause(8)
            for name, key in KEYS.items():
                await pilot.press(key)
                await pilot.pause(2)
                sys.stdout.write(f"{size} {name:<8} {blank_share(app):.0%} blank\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["120x36", "160x50"]))
