"""Characters that the terminal can really show.

The Linux console's font has box drawing and the full, light and medium shades, but no braille, eighth blocks or
check marks; ASCII is for terminals and fonts of which nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set. The five bar characters differ in shape, so that colour is never the only sign."""

    name: str
    engine: str
    apps: str
    kept: str
    cache: str
    free: str
    full: str
    empty: str
    cursor: str
    bullet: str
    separator: str
    ellipsis: str
    rule: str
    running: str
    done: str
    failed: str
    pending: str
    warning: str


UNICODE = Glyphs("unicode", "█", "▓", "▒", "░", "·", "━", "─", "▌", "•", "│", "…", "─", "▶", "✓", "✗", "·", "!")
CONSOLE = Glyphs("console", "█", "■", "▒", "░", ".", "█", "░", ">", "•", "│", "…", "─", "►", "+", "x", ".", "!")
ASCII = Glyphs("ascii", "#", "=", "%", ":", ".", "#", "-", ">", "*", "|", "~", "-", ">", "+", "x", ".", "!")


def locale_of(env: Mapping[str, str]) -> str:
    """The locale that the person has, by name; empty where none is set.

    In the C locale Python itself writes LC_CTYPE=C.UTF-8 into its environment (PEP 538): the terminal knows nothing
    of that.
    """
    lang, ctype = env.get("LANG", ""), env.get("LC_CTYPE", "")
    if ctype == "C.UTF-8" and lang in ("", "C", "POSIX"):
        ctype = ""
    return env.get("LC_ALL") or ctype or lang


def choose(wanted: str = "", environ: dict[str, str] | None = None) -> Glyphs:
    """The set asked for by name, else by TERM and the locale's encoding."""
    env = os.environ if environ is None else environ
    for glyphs in (UNICODE, CONSOLE, ASCII):
        if glyphs.name == wanted:
            return glyphs
    if env.get("TEXTUAL_DRIVER", "").endswith(":WebDriver"):
        return UNICODE  # a browser has every character, whatever this machine's locale is
    locale = locale_of(env)
    if env.get("TERM") in ("dumb", "vt100", "vt220"):
        return ASCII
    if "utf" not in locale.lower():
        return ASCII
    return CONSOLE if env.get("TERM") == "linux" else UNICODE
