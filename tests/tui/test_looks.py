"""Themes and a person's own keys, on the running app."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

import spark_tui.tui
from spark_tui.core.actions import action, use_keys
from spark_tui.domain.settings import AUTO, GLYPH_NAMES, THEME_NAMES, Settings
from spark_tui.tui.app import SparkApp
from spark_tui.tui.glyphs import ASCII, CONSOLE, UNICODE
from spark_tui.tui.themes import SPARK_ANSI, SPARK_CONTRAST, SPARK_DARK, SPARK_LIGHT, THEMES, theme_for
from tests.tui.kit import PRESET, kit_of

TEXT = ("foreground", "dim", "primary", "secondary", "accent", "success", "warning", "error", "footer-key-foreground")
MEMORY = ("mem-engine", "mem-apps", "mem-cache")
UNDER_TEXT = ("background", "panel", "cursor-row", "field")
ENOUGH = 4.5  # WCAG 2.2, 1.4.3: contrast of text, level AA


@pytest.fixture(autouse=True)
def _default_keys_afterwards() -> object:
    yield
    use_keys({})


def colours(theme: Theme) -> dict[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def luminance(colour: Color) -> float:
    """WCAG 2.2, relative luminance of sRGB."""
    parts = [value / 255 for value in (colour.r, colour.g, colour.b)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# --- themes ---------------------------------------------------------------------------------------------


def test_every_theme_has_every_token_that_a_style_names() -> None:
    folder = Path(spark_tui.tui.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*") if path.suffix in (".tcss", ".py"))
    tokens = set(re.findall(r"\$([a-z][a-z-]*[a-z])", text))
    assert {"dim", "mem-free", "cursor-row", "field"} <= tokens
    assert "boost" not in tokens, (
        "the toolkit leaves a theme's boost out where there is a panel: fields would be unseen"
    )
    for theme in THEMES:
        assert tokens - set(colours(theme)) == set(), theme.name


@pytest.mark.parametrize("theme", [SPARK_DARK, SPARK_LIGHT, SPARK_CONTRAST], ids=lambda theme: theme.name)
def test_text_can_be_read_on_everything_that_it_stands_on(theme: Theme) -> None:
    found = colours(theme)
    for text, under in product((*TEXT, *MEMORY), UNDER_TEXT):
        ratio = contrast(Color.parse(found[text]), Color.parse(found[under]))
        assert ratio >= ENOUGH, f"${text} on ${under}: {ratio:.2f}"


def test_high_contrast_is_higher_and_its_lines_are_seen() -> None:
    found = colours(SPARK_CONTRAST)
    for text in TEXT:
        assert contrast(Color.parse(found[text]), Color.parse(found["background"])) >= 7
    assert contrast(Color.parse(found["rule"]), Color.parse(found["background"])) >= ENOUGH


def test_the_theme_of_sixteen_colours_has_no_other_and_dark_ones_below() -> None:
    named = {name: Color.parse(value) for name, value in SPARK_ANSI.variables.items()}
    named |= {name: Color.parse(getattr(SPARK_ANSI, name)) for name in ("primary", "background", "panel")}
    assert all(colour.ansi is not None and 0 <= colour.ansi < 16 for colour in named.values())
    for name, colour in named.items():
        if name.endswith("background") or name in ("panel", "field", "cursor-row"):
            assert colour.ansi is not None
            assert colour.ansi < 8, f"the Linux console has no bright background for {name}"


@pytest.mark.parametrize(
    ("environ", "theme"),
    [
        ({"TERM": "linux"}, SPARK_ANSI),
        ({"TERM": "xterm"}, SPARK_ANSI),
        ({"TERM": "screen"}, SPARK_ANSI),
        ({}, SPARK_ANSI),
        ({"TERM": "xterm-256color"}, SPARK_DARK),
        ({"TERM": "tmux-256color"}, SPARK_DARK),
        ({"TERM": "xterm-kitty"}, SPARK_DARK),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, SPARK_DARK),
        ({"TERM": "linux", "COLORTERM": "24bit"}, SPARK_DARK),
    ],
)
def test_sixteen_colours_are_used_where_the_terminal_has_no_more(environ: dict[str, str], theme: Theme) -> None:
    assert theme_for(AUTO, environ) is theme
    assert theme_for("spark-light", environ) is SPARK_LIGHT, "what a person chose counts"


def test_the_names_in_the_settings_are_those_that_exist() -> None:
    assert (AUTO, *(theme.name for theme in THEMES)) == THEME_NAMES
    assert (AUTO, *(glyphs.name for glyphs in (UNICODE, CONSOLE, ASCII))) == GLYPH_NAMES


# --- settings take effect -------------------------------------------------------------------------------


async def test_theme_glyphs_and_keys_of_the_settings_take_effect() -> None:
    kit = kit_of(PRESET)
    kit.context.settings = replace(
        Settings(), theme="spark-light", glyphs="ascii", keymap=(("show_presets", ("P", "f3")), ("launch", ("n",)))
    )
    app = SparkApp(kit.context)
    async with app.run_test(size=(120, 36)) as pilot:
        assert app.theme == "spark-light"
        assert app.glyphs is ASCII
        strips = app.screen._compositor.render_strips(app.size)
        text = "\n".join("".join(segment.text for segment in strip) for strip in strips)
        assert "P Presets" in text
        assert "n Launch" in text
        await pilot.press("3")
        assert app.current_mode == "home", "the key that it had is free"
        await pilot.press("P")
        assert app.current_mode == "presets"
        await pilot.press("1", "f3")
        assert app.current_mode == "presets"
        await pilot.press("1", "n")
        assert app.current_mode == "presets", "launch goes there too"


async def test_the_next_app_has_its_own_keys() -> None:
    use_keys({"show_presets": ("P",)})
    app = SparkApp(kit_of(PRESET).context, UNICODE)
    async with app.run_test() as pilot:
        assert action("show_presets").keys == ("3",)
        await pilot.press("3")
        assert app.current_mode == "presets"


async def test_two_actions_change_places() -> None:
    kit = kit_of(PRESET)
    kit.context.settings = replace(Settings(), keymap=(("show_logs", ("3",)), ("show_presets", ("4",))))
    app = SparkApp(kit.context, UNICODE)
    async with app.run_test() as pilot:
        await pilot.press("3")
        assert app.current_mode == "logs"
        await pilot.press("4")
        assert app.current_mode == "presets"


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
async def test_every_screen_is_painted_in_every_theme(theme: Theme) -> None:
    app = SparkApp(kit_of(PRESET).context, UNICODE, theme)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("3", "4", "6", "1", "question_mark", "escape"):
            await pilot.press(key)
            await pilot.pause()
        assert app.theme == theme.name
