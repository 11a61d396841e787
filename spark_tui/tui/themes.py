"""Colour tokens. Widgets name tokens, never colours."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

SPARK_DARK = Theme(
    name="spark-dark",
    primary="#76b900",
    secondary="#5fb3d4",
    accent="#9ccf3e",
    foreground="#d7dae0",
    background="#0e1116",
    surface="#0e1116",
    panel="#171b22",
    success="#76b900",
    warning="#e5b454",
    error="#f0716b",
    dark=True,
    variables={
        "field": "#1f2530",
        "mem-engine": "#76b900",
        "mem-apps": "#5fb3d4",
        "mem-cache": "#b8933e",
        "mem-free": "#4a5261",
        "dim": "#9098a8",
        "rule": "#2b323e",
        "cursor-row": "#23303a",
        "footer-key-foreground": "#9ccf3e",
        "input-selection-background": "#3a5a1a",
    },
)

SPARK_LIGHT = Theme(
    name="spark-light",
    primary="#386e00",
    secondary="#0b6a8f",
    accent="#386e00",
    foreground="#1d232b",
    background="#fbfbf8",
    surface="#fbfbf8",
    panel="#efefe9",
    success="#386e00",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
    variables={
        "field": "#e6e6df",
        "mem-engine": "#386e00",
        "mem-apps": "#0b6a8f",
        "mem-cache": "#77590f",
        "mem-free": "#868c95",
        "dim": "#5b6470",
        "rule": "#c9ccc8",
        "cursor-row": "#dfe9cf",
        "footer-key-foreground": "#386e00",
        "input-selection-background": "#cfe3ae",
    },
)

SPARK_CONTRAST = Theme(
    name="spark-contrast",
    primary="#a6f000",
    secondary="#7fdcff",
    accent="#c8ff4d",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    success="#a6f000",
    warning="#ffd23f",
    error="#ff9a94",
    dark=True,
    variables={
        "field": "#262626",
        "mem-engine": "#a6f000",
        "mem-apps": "#7fdcff",
        "mem-cache": "#ffd23f",
        "mem-free": "#9a9a9a",
        "dim": "#d6d6d6",
        "rule": "#a0a0a0",
        "cursor-row": "#00344d",
        "footer-key-foreground": "#ffd23f",
        "input-selection-background": "#00558a",
    },
)

# On black that is painted, not assumed: what a terminal calls its default may be any colour. Backgrounds are of the
# eight dark colours, the only ones that the Linux console has for them.
SPARK_ANSI = Theme(
    name="spark-ansi",
    primary="ansi_bright_green",
    secondary="ansi_bright_cyan",
    accent="ansi_bright_green",
    foreground="ansi_bright_white",
    background="ansi_black",
    surface="ansi_black",
    panel="ansi_black",
    success="ansi_bright_green",
    warning="ansi_bright_yellow",
    error="ansi_bright_red",
    dark=True,
    ansi=True,
    variables={
        "field": "ansi_black",
        "mem-engine": "ansi_bright_green",
        "mem-apps": "ansi_bright_cyan",
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
)

THEMES = (SPARK_DARK, SPARK_LIGHT, SPARK_CONTRAST, SPARK_ANSI)
_NAMES_OF_MORE = ("256color", "kitty", "direct")


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
