"""Draws the pictures in assets/ from the demo, and says how much of each screen's body is blank.

python scripts/screenshots.py [FOLDER] [--sizes 80x24,120x36,160x50,200x50] [--themes dark,light,ascii] [--only home]
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from textual.pilot import Pilot

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.settings import Settings

THEMES = {
    "dark": Settings(theme="spark-dark"),
    "light": Settings(theme="spark-light"),
    "ascii": Settings(theme="spark-ansi", glyphs="ascii"),  # the Linux console: 16 colours
}
HEAD_ROWS = 3
"""Status bar and tabs, above the body; the footer is one row."""
BORDERS = frozenset(" │┃─━╭╮╰╯┌┐└┘├┤┬┴┼▏▕|+-=#")
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
    "events": "E",
}
DIALOGS = {
    "launch": "3 enter",
    "edit": "1 e",
    "compare": "3 space down space C",
    "import": "3 i",
    "judge": "3 greater_than_sign",
    "draft": "2 down down down down down enter",
    "hub": "2 h",
    "delete": "2 delete",
    "measure": "7 b",
    "palette": "1 ctrl+p",
    "settings": "1 ctrl+p s e t t i n g",
    "themes": "1 ctrl+p t h e m e enter",
    "yank": "1 y",
    "connect": "1 o",
    "restart": "1 r",
    "boot": "1 B",
    "secure": "1 K",
    "hosts": "1 H",
    "cluster": "1 J",
    "filter": "3 slash c o d",
    "update": "3 u",
    "pin": "3 X",
    "images": "2 9",
    "prove": "7 I",
    "help": "1 question_mark",
    "tour": "1 f12",
    "stop": "1 x",
    "drop": "1 D",
    "chat-settings": "6 ctrl+o",
    "history": "6 ctrl+l",
}
"""The keys that open each, from wherever one is."""


async def settle(pilot: Pilot[None], seconds: float = 1.0) -> None:
    """Lets the demo's clock and the screen come to rest."""
    await asyncio.sleep(seconds)
    await pilot.pause()


async def draw(folder: Path, width: int, height: int, suffix: str, look: Settings, only: frozenset[str]) -> None:
    """One picture per screen at one size and in one look."""
    app = SparkApp(build_demo(look))
    async with app.run_test(size=(width, height)) as pilot:
        await settle(pilot, 8.0)  # the history is read behind the first frame
        for name, key in SCREENS.items():
            if only and name not in only:
                continue
            await pilot.press(key)
            await settle(pilot)
            if name == "models":
                await settle(pilot, 3.0)  # how the model would be served is worked out behind the page
            if name == "chat":
                await ask(pilot)
                await settle(pilot, 0.2)
            if name == "bench":
                await measure(app, pilot)
            save(app, folder / f"{name}{suffix}.svg")
            if name in ("chat", "memory", "events"):
                await pilot.press("escape")
        for name, keys in DIALOGS.items():
            if not (name in only if only else name in ("launch", "help")):
                continue
            await pilot.press(*keys.split())
            await settle(pilot)
            save(app, folder / f"{name}{suffix}.svg")
            for _ in range(2 + len(app.screen_stack)):
                await pilot.press("escape")


async def measure(app: SparkApp, pilot: Pilot[None]) -> None:
    """A short benchmark to its end: the demo's clock is quick."""
    await pilot.press("b")
    await settle(pilot)
    await pilot.press("ctrl+l")
    for _ in range(60):
        await settle(pilot)
        if app.measurement is None:
            break
    await settle(pilot)


def blank_share(app: SparkApp) -> float:
    """The share of the body's cells that show nothing; borders count as blank."""
    rows = ["".join(segment.text for segment in row) for row in app.screen._compositor.render_strips(app.size)]
    body = "".join(rows[HEAD_ROWS:-1])
    return sum(letter in BORDERS for letter in body) / max(1, len(body))


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
    print(f"{path}  {blank_share(app):.0%} blank")


def main() -> None:
    """Draws all sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent / "assets")
    parser.add_argument("--sizes", default="120x36")
    parser.add_argument("--themes", default="dark", help=f"of {', '.join(THEMES)}")
    parser.add_argument("--only", default="", help="screens, such as home,launch")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes, themes = options.sizes.split(","), options.themes.split(",")
    only = frozenset(filter(None, options.only.split(",")))
    for size in sizes:
        width, height = (int(number) for number in size.split("x"))
        for theme in themes:
            suffix = (f"-{size}" if len(sizes) > 1 else "") + (f"-{theme}" if len(themes) > 1 else "")
            asyncio.run(draw(options.folder, width, height, suffix, THEMES[theme], only))


if __name__ == "__main__":
    main()
