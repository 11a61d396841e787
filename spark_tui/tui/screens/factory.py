"""Screens by mode. Each is imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen


def _home() -> Screen[Any]:
    from spark_tui.tui.screens.home import HomeScreen

    return HomeScreen()


def _presets() -> Screen[Any]:
    from spark_tui.tui.screens.presets import PresetsScreen

    return PresetsScreen()


def _logs() -> Screen[Any]:
    from spark_tui.tui.screens.logs import LogsScreen

    return LogsScreen()


def _chat() -> Screen[Any]:
    from spark_tui.tui.screens.chat import ChatScreen

    return ChatScreen()


def screen_factories() -> dict[str, str | Callable[[], Screen[Any]]]:
    """Mode name -> factory."""
    return {"home": _home, "presets": _presets, "logs": _logs, "chat": _chat}
