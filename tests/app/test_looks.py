"""Themes and a person's own keys, on the running app."""

from __future__ import annotations

import gc
import inspect
import re
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
import rich.color
from msgspec.structs import replace
from textual.color import Color
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.theme import Theme
from textual.widgets import Input

import spark_tui
from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.actions import action, use_keys
from spark_tui.base.page import Cell, Column, Table, Tone
from spark_tui.base.ports import LogLine
from spark_tui.base.settings import AUTO, GLYPH_NAMES, THEME_NAMES, Folders, Settings, folders_of
from spark_tui.base.theme import BASES, ROLES, UserTheme
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.explain.use import LogBuffer
from spark_tui.tui.format import ASCII, CONSOLE, UNICODE, Glyphs, choose
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.themes import (
    SPARK_ANSI,
    SPARK_CONTRAST,
    SPARK_DARK,
    SPARK_LIGHT,
    THEMES,
    TOKENS,
    in_console_colours,
    own_theme,
    theme_for,
)
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
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
    folder = Path(spark_tui.__file__).parent
    code = (path.read_text() for path in folder.rglob("*.py"))
    styles = (path.read_text() for path in folder.rglob("*.tcss"))
    text = "\n".join([*styles, *(each for each in code if "from textual" in each)])
    tokens = set(re.findall(r"\$([a-z][a-z-]*[a-z])", text))
    assert {"dim", "mem-free", "cursor-row", "field"} <= tokens
    assert "boost" not in tokens, (
        "the toolkit leaves a theme's boost out where there is a panel: fields would be unseen"
    )
    for theme in THEMES:
        assert tokens - set(colours(theme)) == set(), theme.name


@pytest.mark.parametrize("theme", [theme for theme in THEMES if not theme.ansi], ids=lambda theme: theme.name)
def test_text_can_be_read_on_everything_that_it_stands_on(theme: Theme) -> None:
    found = colours(theme)
    for text, under in product((*TEXT, *MEMORY), UNDER_TEXT):
        ratio = contrast(Color.parse(found[text]), Color.parse(found[under]))
        assert ratio >= ENOUGH, f"${text} on ${under}: {ratio:.2f}"


SIXTEEN = {
    "linux": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa 555555 ff5555 55ff55 ffff55 5555ff ff55ff "
    "55ffff ffffff",
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff "
    "00ffff ffffff",
    "tango": "2e3436 cc0000 4e9a06 c4a000 3465a4 75507b 06989a d3d7cf 555753 ef2929 8ae234 fce94f 729fcf ad7fa8 "
    "34e2e2 eeeeec",
    "solarized": "073642 dc322f 859900 b58900 268bd2 d33682 2aa198 eee8d5 002b36 cb4b16 586e75 657b83 839496 6c71c4 "
    "93a1a1 fdf6e3",
}
"""What terminals make of sixteen colours: of Solarized's bright ones most are greys."""


def seen_colour(colour: rich.color.Color | None, palette: str) -> Color:
    assert colour is not None
    if colour.number is not None:
        return Color.parse(f"#{SIXTEEN[palette].split()[colour.number]}")
    return Color(*colour.get_truecolor())


def least_contrast(strip: Strip, palette: str) -> float:
    styles = [style for text, style, _ in strip if text.strip() and style is not None]
    return min(contrast(seen_colour(each.color, palette), seen_colour(each.bgcolor, palette)) for each in styles)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
async def test_a_row_under_the_cursor_can_be_read_in_every_tone(theme: Theme) -> None:
    app = SparkApp(kit_of(PRESET).context, UNICODE, theme)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        rows = app.screen.query_one(RowList)
        cells = tuple(Cell(tone.name, tone) for tone in Tone)
        rows.show_table(Table(tuple(Column("") for _ in cells), (cells,), ("row",)))
        assert rows.has_focus
        strip = rows.render_line(0)
        assert all(tone.name in strip.text for tone in Tone)
        for palette in SIXTEEN if theme.ansi else ["linux"]:
            assert least_contrast(strip, palette) >= ENOUGH, palette


async def test_a_log_line_under_the_cursor_can_be_read_in_sixteen_colours() -> None:
    buffer = LogBuffer()
    stamp = "2026-05-21T21:02:50.123456789Z"
    buffer.extend([LogLine(stamp, f"{level} 05-21 21:02:50 [a.py:1] text") for level in ("WARNING", "ERROR", "INFO")])
    app = SparkApp(kit_of(PRESET).context, UNICODE, SPARK_ANSI)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("4")
        await pilot.pause()
        view = app.screen.query_one(LogView)
        view.show(buffer)
        view.focus()
        await pilot.press("shift+up", "shift+up")
        await pilot.pause()
        marked = [y for y, shown in enumerate(view._shown) if shown.marked]
        assert len(marked) > 1
        for y, palette in product(marked, SIXTEEN):
            assert least_contrast(view.render_lines(Region(0, y, view.size.width, 1))[0], palette) >= ENOUGH


def test_a_picture_of_sixteen_colours_has_those_of_the_console() -> None:
    assert in_console_colours('<text fill="#00823d">') == '<text fill="#5f5">'


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
        while not app.world[PRESETS].presets:
            await kit.clock.advance(1)
            await pilot.pause()
        for keys in (("3", "slash", "x"), ("escape", "enter", "1"), ("escape", "2", "h"), ("escape", "3", "i")):
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


async def test_the_theme_under_the_cursor_is_shown_at_once_and_escape_goes_back_to_the_one_before() -> None:
    app = SparkApp(kit_of(PRESET).context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        for last, theme in (("escape", "spark-dark"), ("enter", "spark-light")):
            await pilot.press("colon", *"theme", "enter")
            await pilot.pause()
            await pilot.press("down")
            await pilot.pause()
            assert app.theme == "spark-light"
            await pilot.press(last)
            await pilot.pause()
            assert app.theme == theme


# --- a user's own theme ---------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    found = folders_of({}, tmp_path)
    found.themes.mkdir(parents=True)
    return found


@pytest.mark.parametrize("base", BASES)
def test_each_role_colours_its_tokens_and_nothing_else(base: str) -> None:
    before = colours(next(theme for theme in THEMES if theme.name == base))
    for role in ROLES:
        found = own_theme(UserTheme("mine", base, ((role, "#123456"),)))
        for token in TOKENS.get(role, (role,)):
            assert {**vars(found), **found.variables}[token] == "#123456"
        assert found.variables.keys() == next(theme for theme in THEMES if theme.name == base).variables.keys()
        assert colours(found).keys() == before.keys()


async def test_the_setting_names_a_theme_of_the_users_own(folders: Folders) -> None:
    (folders.themes / "mine.toml").write_text('base = "spark-light"\n[colours]\nbackground = "#fff1e8"\n')
    app = SparkApp(build_demo(Settings(theme="mine"), folders), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert (app.theme, app.screen.styles.background) == ("mine", Color.parse("#fff1e8"))


async def test_a_broken_theme_is_reported_at_the_start_and_the_screen_opens(folders: Folders) -> None:
    (folders.themes / "mine.toml").write_text('[colours]\nbackgrund = "#fff1e8"\n')
    app = SparkApp(build_demo(Settings(theme="mine"), folders), UNICODE)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.pause()
        assert app.theme == "spark-dark"
        said = app.context.store.world.events[-1]
        assert f"{folders.themes}/mine.toml:2" in said.text


async def test_the_preview_lists_own_themes_and_what_is_wrong_with_the_others(folders: Folders) -> None:
    (folders.themes / "mine.toml").write_text("")
    (folders.themes / "torn.toml").write_text("base = [red]")
    app = SparkApp(build_demo(Settings(), folders), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("colon", *"theme", "enter")
        await pilot.pause()
        await pilot.press("end")
        await pilot.pause()
        assert app.theme == "mine"
        assert "torn.toml:1" in app.screen.query_one("#theme-problems", Page).say(200).plain
        await pilot.press("enter")


def test_every_screen_finds_its_styles_where_it_is_derived_too() -> None:
    folder = Path(spark_tui.__file__).parent
    for path in folder.rglob("*.py"):
        if "from textual" in path.read_text("utf-8"):
            import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    found = {each for each in gc.get_objects() if isinstance(each, type) and issubclass(each, Screen)}
    ours = [each for each in found if each.__module__.startswith("spark_tui.") and each.CSS_PATH]
    assert len(ours) > 30
    for each in ours:
        beside = Path(inspect.getfile(each)).parent
        styles = [each.CSS_PATH] if isinstance(each.CSS_PATH, str | Path) else each.CSS_PATH
        assert all((beside / style).is_file() for style in styles or ()), each
