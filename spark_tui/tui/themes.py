"""Colour tokens. Widgets name tokens, never colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from textual.theme import Theme

if TYPE_CHECKING:
    from spark_tui.base.theme import UserTheme

_COLOURS: Final = """
                           dark     light    contrast nord     gruvbox  paper
primary                    #76b900  #386e00  #a6f000  #a3be8c  #b8bb26  #2f6b00
secondary                  #5fb3d4  #0b6a8f  #7fdcff  #88c0d0  #8fb3a5  #00587a
accent                     #9ccf3e  #386e00  #c8ff4d  #b7d3a0  #d0d33f  #2f6b00
foreground                 #d7dae0  #1d232b  #ffffff  #e5e9f0  #ebdbb2  #2b2a27
background                 #0e1116  #fbfbf8  #000000  #242933  #1d2021  #f4ecd8
panel                      #171b22  #efefe9  #000000  #2b313d  #282828  #ebe2cb
warning                    #e5b454  #8a5a00  #ffd23f  #ebcb8b  #fabd2f  #754a00
error                      #f0716b  #b3261e  #ff9a94  #f2a0a6  #ff7a66  #9c1f17
field                      #1f2530  #e6e6df  #262626  #343b49  #32302f  #e3d9bf
mem-cache                  #b8933e  #77590f  #ffd23f  #d8ae8e  #e09a4f  #664a00
mem-free                   #4a5261  #868c95  #9a9a9a  #5f6b80  #665c54  #8c8468
dim                        #9098a8  #5b6470  #d6d6d6  #b0b9ca  #bdae93  #57523f
rule                       #2b323e  #c9ccc8  #a0a0a0  #434c5e  #504945  #cfc4a5
cursor-row                 #23303a  #dfe9cf  #00344d  #3b4456  #3c3836  #d9dcb6
footer-key-foreground      #9ccf3e  #386e00  #ffd23f  #b7d3a0  #d0d33f  #2f6b00
input-selection-background #3a5a1a  #cfe3ae  #00558a  #4c6a4a  #5a5a1c  #cdd8a0
"""
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "primary": ("primary", "success", "mem-engine"),
    "secondary": ("secondary", "mem-apps"),
    "background": ("background", "surface"),
}


def _theme(name: str, colours: Mapping[str, str], *, dark: bool = True, ansi: bool = False) -> Theme:
    """A theme of these colours by role; those of `_SAME` colour several tokens."""
    tokens = {token: colour for role, colour in colours.items() for token in _SAME.get(role, (role,))}
    known = {each.name for each in fields(Theme)} & tokens.keys()
    variables = {token: colour for token, colour in tokens.items() if token not in known}
    named: dict[str, Any] = {token: tokens[token] for token in known}
    return Theme(name=f"spark-{name}", dark=dark, ansi=ansi, variables=variables, **named)


def _in_true_colour() -> Iterator[Theme]:
    names, *rows = (row.split() for row in _COLOURS.strip().splitlines())
    for at, name in enumerate(names, 1):
        yield _theme(name, {row[0]: row[at] for row in rows}, dark=name not in ("light", "paper"))


SPARK_DARK, SPARK_LIGHT, SPARK_CONTRAST, SPARK_NORD, SPARK_GRUVBOX, SPARK_PAPER = _in_true_colour()

# On black that is painted, not assumed: what a terminal calls its default may be any colour. Backgrounds are of the
# eight dark colours, the only ones that the Linux console has for them.
SPARK_ANSI = _theme(
    "ansi",
    {
        "primary": "ansi_bright_green",
        "secondary": "ansi_bright_cyan",
        "accent": "ansi_bright_green",
        "foreground": "ansi_bright_white",
        "background": "ansi_black",
        "panel": "ansi_black",
        "warning": "ansi_bright_yellow",
        "error": "ansi_bright_red",
        "field": "ansi_black",
        "mem-cache": "ansi_bright_yellow",
        "mem-free": "ansi_white",
        "dim": "ansi_white",
        "rule": "ansi_white",
        "cursor-row": "ansi_blue",
        "footer-key-foreground": "ansi_bright_yellow",
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_bright_white",
        "border": "ansi_white",
        "border-blurred": "ansi_white",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_green",
        "block-hover-background": "ansi_blue",
        # A cursor is black on white. Textual paints that of a text area in these two and then turns them round; that
        # of an input has white and black of its own, and would be turned round into nothing by the style's default.
        "input-cursor-background": "ansi_black",
        "input-cursor-foreground": "ansi_white",
        "input-cursor-text-style": "none",
        "input-selection-background": "ansi_blue",
        "input-selection-foreground": "ansi_bright_white",
        "screen-selection-background": "ansi_blue",
        "screen-selection-foreground": "ansi_bright_white",
        "scrollbar": "ansi_white",
        "scrollbar-hover": "ansi_bright_white",
        "scrollbar-active": "ansi_bright_white",
        "scrollbar-background": "ansi_black",
        "scrollbar-background-hover": "ansi_black",
        "scrollbar-background-active": "ansi_black",
        "scrollbar-corner-color": "ansi_black",
    },
    ansi=True,
)

_CONSOLE_COLOURS: Final = "000 a00 0a0 a50 00a a0a 0aa aaa 555 f55 5f5 ff5 55f f5f 5ff fff"


def in_console_colours(picture: str) -> str:
    """An SVG of a screen in sixteen colours as the Linux console has them: green is dark on grey in Rich's own."""
    from rich.terminal_theme import SVG_EXPORT_THEME

    colours = {SVG_EXPORT_THEME.ansi_colors[at].hex: f"#{colour}" for at, colour in enumerate(_CONSOLE_COLOURS.split())}
    return re.sub("|".join(colours), lambda found: colours[found[0]], picture)


THEMES = (SPARK_DARK, SPARK_LIGHT, SPARK_CONTRAST, SPARK_NORD, SPARK_GRUVBOX, SPARK_PAPER, SPARK_ANSI)
_NAMES_OF_MORE = ("256color", "kitty", "direct")


TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("foreground",),
    "background": ("background", "surface"),
    "accent": ("primary", "accent", "success", "mem-engine", "footer-key-foreground"),
    "info": ("secondary", "mem-apps"),
    "cursor": ("cursor-row",),
    "selection": ("input-selection-background",),
    "cache": ("mem-cache",),
    "free": ("mem-free",),
}
"""What a role of a user's theme colours; all other roles are tokens of the same name."""


def own_theme(own: UserTheme) -> Theme:
    """A user's theme for the toolkit."""
    base = next(theme for theme in THEMES if theme.name == own.base)
    colours = {token: colour for role, colour in own.colours for token in TOKENS.get(role, (role,))}
    fields: dict[str, Any] = {token: colour for token, colour in colours.items() if token not in base.variables}
    variables = base.variables | {token: colour for token, colour in colours.items() if token not in fields}
    return replace(base, name=own.name, variables=variables, **fields)


def theme_for(wanted: str, environ: Mapping[str, str] | None = None) -> Theme:
    """The theme of that name. Else dark, or the one of sixteen colours where `environ` says that the terminal has no
    more: colours that are only approximated can become unreadable."""
    named = next((theme for theme in THEMES if theme.name == wanted), None)
    if named is not None:
        return named
    return SPARK_ANSI if environ is not None and has_sixteen_colours(environ) else SPARK_DARK


def has_sixteen_colours(environ: Mapping[str, str]) -> bool:
    """By TERM and COLORTERM, as the library that writes the colours judges; a browser says so itself."""
    if environ.get("TEXTUAL_COLOR_SYSTEM", "auto") in ("truecolor", "256"):
        return False
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return False
    return environ.get("TERM", "").strip().lower().rpartition("-")[2] not in _NAMES_OF_MORE
