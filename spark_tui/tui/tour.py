"""The screen in one look: what a newcomer sees while nothing serves, and anyone by its key."""

from __future__ import annotations

from textual.content import Content

from spark_tui.core.actions import key_of, screen_keys
from spark_tui.tui.widgets.line import hanging, packed

KEY = "bold $footer-key-foreground"
SIGN_WIDTH = 7
ONE_COLUMN_BELOW = 60
"""Cells under which a key of the three stands on a line of its own anyway: the gaps shrink."""


def tour(width: int) -> Content:
    """Three keys to a served model; then what each part of the screen is for, wrapped for the width."""
    lines = [Content.styled("Serve a model in three keys.", "bold"), Content(""), *_three_keys(width), Content("")]
    for sign, words in _parts():
        lines += hanging(Content.styled(sign, KEY), Content(words), SIGN_WIDTH, width)
    return Content("\n").join(lines)


def _three_keys(width: int) -> list[Content]:
    steps = (
        (key_of("show_presets"), "choose a preset"),
        ("Enter", "check and launch it"),
        (key_of("show_chat"), "talk to it"),
    )
    gap = Content("   " if width < ONE_COLUMN_BELOW else "      ")
    return packed((Content.assemble((key, KEY), "  ", words) for key, words in steps), gap, width)


def _parts() -> tuple[tuple[str, str], ...]:
    cache, memory = key_of("drop_cache"), key_of("open_memory")
    help_, palette, again = key_of("help"), key_of("command_palette"), key_of("tour")
    return (
        ("MEM", f"CPU, GPU and page cache share it. {cache} frees the cache, {memory} tells more."),
        (
            screen_keys() if len(screen_keys()) < SIGN_WIDTH else "tabs",
            "Home: engines. Models: the store. Presets: recipes. Logs, Metrics, Chat, Bench: the selected engine."
            " Doctor: what is wrong here.",
        ),
        (help_, f"All keys of a screen. {palette} finds everything by name, {again} shows this."),
        (key_of("quit"), "Leaves. Containers go on; the next start finds them again."),
    )
