"""Themes and a person's own keys, on the running app."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import rich.color
from textual.color import Color
from textual.theme import Theme
from textual.widgets import Input

import spark_tui.tui
from spark_tui.core.actions import action, use_keys
from spark_tui.domain.settings import AUTO, GLYPH_NAMES, THEME_NAMES, Settings
from spark_tui.tui.app import SparkApp
from spark_tui.tui.format import ASCII, CONSOLE, UNICODE, Glyphs, choose
from spark_tui.tui.screens.modals import ConfirmScreen
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
    colours = {name: value for name, value in SPARK_ANSI.variables.items() if not name.endswith("text-style")}
    named = {name: Color.parse(value) for name, value in colours.items()}
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


@pytest.mark.parametrize(
    ("environ", "glyphs"),
    [
        ({"TERM": "xterm", "LANG": "en_US.UTF-8"}, UNICODE),
        ({"TERM": "xterm", "LANG": "C.UTF-8", "LC_CTYPE": "C.UTF-8"}, UNICODE),
        ({"TERM": "xterm", "LC_ALL": "C.UTF-8", "LANG": "C"}, UNICODE),
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, ASCII),  # so it is in Python's own environment
        ({"TERM": "xterm", "LANG": "C"}, ASCII),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, CONSOLE),
    ],
)
def test_the_characters_are_those_of_the_persons_locale(environ: dict[str, str], glyphs: Glyphs) -> None:
    assert choose("", environ) is glyphs


async def test_with_sixteen_colours_nothing_is_left_to_a_terminal_that_may_be_black_on_white() -> None:
    kit = kit_of(PRESET)
    app = SparkApp(kit.context, ASCII, SPARK_ANSI)
    async with app.run_test(size=(120, 36)) as pilot:
        while not app.presets.presets:
            await pilot.pause()
        for keys in (("3", "slash", "x"), ("escape", "enter", "1"), ("escape", "2", "s"), ("escape", "3", "i")):
            await pilot.press(*keys)
            await pilot.pause()
            assert not left_to_the_terminal(app), keys
        app.push_screen(ConfirmScreen("Do it?", "All of it.", verb="Do", type_to_confirm="name"))
        await pilot.press("x")
        await pilot.pause()
        assert not left_to_the_terminal(app)
        assert cursor_of(app) == ("ansi_black", "ansi_white")


def left_to_the_terminal(app: SparkApp) -> list[str]:
    """Texts without a colour or a background of their own."""
    segments = [each for strip in app.screen._compositor.render_strips(app.size) for each in strip]
    return [text for text, style, _ in segments if text.strip() and not (style and _own(style.color, style.bgcolor))]


def _own(*colours: rich.color.Color | None) -> bool:
    return all(colour is not None and not colour.is_default for colour in colours)


def cursor_of(app: SparkApp) -> tuple[str, str]:
    """Colours, as they are seen, of the cell behind what was typed into the field that has the focus."""
    field = app.focused
    assert isinstance(field, Input)
    area = field.content_region
    strip = app.screen._compositor.render_strips(app.size)[area.y].crop(
        area.x + len(field.value), area.x + len(field.value) + 1
    )
    style = next(iter(strip)).style
    assert style is not None
    assert style.color is not None
    assert style.bgcolor is not None
    names = (f"ansi_{_ANSI[style.color.number or 0]}", f"ansi_{_ANSI[style.bgcolor.number or 0]}")
    return (names[1], names[0]) if style.reverse else names


_ANSI = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


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
