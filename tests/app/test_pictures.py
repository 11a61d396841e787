"""Layout of the screens that belong to no other test, at the sizes and in the themes that people have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from textual.theme import Theme

from spark_tui.app.control_centre import SparkApp
from spark_tui.base.engine.state import EngineState
from spark_tui.tui.format import ASCII, UNICODE, Glyphs
from spark_tui.tui.themes import SPARK_ANSI, SPARK_DARK, SPARK_LIGHT
from tests.app.test_home import GB10, PORT, state, until
from tests.kit import Kit
from tests.log_fixtures import read_log

SIZES = ((80, 24), (120, 36), (200, 50))
SCREENS = {"home": "1", "logs": "4", "memory": "m", "help": "question_mark"}
LOOKS = (
    *((name, size, SPARK_DARK, UNICODE) for name in SCREENS for size in SIZES),
    *((name, (120, 36), SPARK_LIGHT, UNICODE) for name in ("home", "memory")),
    ("home", (80, 24), SPARK_ANSI, ASCII),
)


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def _named(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return value if isinstance(value, str) else value.name  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "size", "theme", "glyphs"), LOOKS, ids=_named)
async def test_layout(name: str, size: tuple[int, int], theme: Theme, glyphs: Glyphs, snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=read_log(GB10))
    kit.api.serve()
    app = SparkApp(kit.context, glyphs, theme)
    async with app.run_test(size=size) as pilot:
        await until(kit, pilot, lambda: state(app, "qwen") is EngineState.SERVING)
        await pilot.press(SCREENS[name])
        for _ in range(20):
            await kit.clock.advance(0.25)
            await pilot.pause()
        picture = app.export_screenshot(title=name, simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
