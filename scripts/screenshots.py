"""Draws the pictures in assets/ from the demo: python scripts/screenshots.py [FOLDER] [--sizes 80x24,120x36,200x50]."""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from textual.pilot import Pilot

from spark_tui.core.context import build_demo
from spark_tui.tui.app import SparkApp

SCREENS = {
    "home": "1",
    "models": "2",
    "presets": "3",
    "logs": "4",
    "metrics": "5",
    "chat": "6",
    "bench": "7",
    "doctor": "8",
    "memory": "m",
}


async def settle(pilot: Pilot[None], seconds: float = 1.0) -> None:
    """Lets the demo's clock and the screen come to rest."""
    await asyncio.sleep(seconds)
    await pilot.pause()


async def draw(folder: Path, width: int, height: int, suffix: str) -> None:
    """One picture per screen at one size."""
    app = SparkApp(build_demo())
    async with app.run_test(size=(width, height)) as pilot:
        await settle(pilot, 2.0)
        for name, key in SCREENS.items():
            await pilot.press(key)
            await settle(pilot)
            if name == "chat":
                await ask(pilot)
                await settle(pilot, 0.2)
            save(app, folder / f"{name}{suffix}.svg")
            if name == "chat":
                await pilot.press("escape")
            if name == "presets":
                await pilot.press("enter")
                await settle(pilot)
                save(app, folder / f"launch{suffix}.svg")
                await pilot.press("escape")
        await pilot.press("1", "question_mark")
        await settle(pilot)
        save(app, folder / f"help{suffix}.svg")


async def ask(pilot: Pilot[None]) -> None:
    """A question, and the time for its answer."""
    for letter in "Why does one memory pool matter on a Spark?":
        await pilot.press("space" if letter == " " else "question_mark" if letter == "?" else letter)
    await pilot.press("enter")
    await settle(pilot, 12.0)


def save(app: SparkApp, path: Path) -> None:
    """The picture, its fonts named and not fetched from anywhere."""
    svg = app.export_screenshot(title="spark-tui", simplify=True)
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    # Renderers other than browsers drop the blanks at the ends of a span unless they are told to keep them.
    svg = svg.replace("<text ", '<text xml:space="preserve" ').replace("Fira Code", "DejaVu Sans Mono")
    path.write_text(svg, encoding="utf-8")
    print(path)


def main() -> None:
    """Draws all sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent / "assets")
    parser.add_argument("--sizes", default="120x36")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes = options.sizes.split(",")
    for size in sizes:
        width, height = (int(number) for number in size.split("x"))
        asyncio.run(draw(options.folder, width, height, "" if len(sizes) == 1 else f"-{size}"))


if __name__ == "__main__":
    main()
