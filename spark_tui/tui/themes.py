"""Colour tokens. Widgets name tokens, never colours."""

from __future__ import annotations

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
    boost="#1f2530",
    success="#76b900",
    warning="#e5b454",
    error="#f0716b",
    dark=True,
    variables={
        "mem-engine": "#76b900",
        "mem-apps": "#5fb3d4",
        "mem-cache": "#b08c3a",
        "mem-free": "#4a5261",
        "dim": "#8b93a3",
        "rule": "#2b323e",
        "cursor-row": "#23303a",
        "footer-key-foreground": "#9ccf3e",
        "input-selection-background": "#3a5a1a",
    },
)

SPARK_LIGHT = Theme(
    name="spark-light",
    primary="#3f7a00",
    secondary="#0b6a8f",
    accent="#3f7a00",
    foreground="#1d232b",
    background="#fbfbf8",
    surface="#fbfbf8",
    panel="#efefe9",
    boost="#e6e6df",
    success="#3f7a00",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
    variables={
        "mem-engine": "#3f7a00",
        "mem-apps": "#0b6a8f",
        "mem-cache": "#8a6a1f",
        "mem-free": "#9aa0a8",
        "dim": "#5b6470",
        "rule": "#c9ccc8",
        "cursor-row": "#dfe9cf",
        "footer-key-foreground": "#3f7a00",
        "input-selection-background": "#cfe3ae",
    },
)

THEMES = (SPARK_DARK, SPARK_LIGHT)
