"""Screens by mode. Each is imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen


def _home() -> Screen[Any]:
    from spark_tui.tui.screens.home import HomeScreen

    return HomeScreen()


def _models() -> Screen[Any]:
    from spark_tui.tui.screens.models import ModelsScreen

    return ModelsScreen()


def _presets() -> Screen[Any]:
    from spark_tui.tui.screens.presets import PresetsScreen

    return PresetsScreen()


def _logs() -> Screen[Any]:
    from spark_tui.tui.screens.logs import LogsScreen

    return LogsScreen()


def _metrics() -> Screen[Any]:
    from spark_tui.tui.screens.metrics import MetricsScreen

    return MetricsScreen()


def _memory() -> Screen[Any]:
    from spark_tui.tui.screens.memory import MemoryScreen

    return MemoryScreen()


def _chat() -> Screen[Any]:
    from spark_tui.tui.screens.chat import ChatScreen

    return ChatScreen()


def _bench() -> Screen[Any]:
    from spark_tui.tui.screens.bench import BenchScreen

    return BenchScreen()


def _doctor() -> Screen[Any]:
    from spark_tui.tui.screens.doctor import DoctorScreen

    return DoctorScreen()


def screen_factories() -> dict[str, str | Callable[[], Screen[Any]]]:
    """Mode name -> factory."""
    return {
        "home": _home,
        "models": _models,
        "presets": _presets,
        "logs": _logs,
        "metrics": _metrics,
        "memory": _memory,
        "chat": _chat,
        "bench": _bench,
        "doctor": _doctor,
    }
