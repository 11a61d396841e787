"""Every screen and dialog by name. Each is imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

from textual.screen import Screen

MODES: Final = {
    "home": "home:HomeScreen",
    "models": "models:ModelsScreen",
    "presets": "presets:PresetsScreen",
    "logs": "logs:LogsScreen",
    "metrics": "metrics:MetricsScreen",
    "memory": "memory:MemoryScreen",
    "events": "events:EventsScreen",
    "cluster": "cluster:ClusterScreen",
    "cluster_doctor": "cluster_doctor:ClusterDoctorScreen",
    "connect": "connect:ConnectScreen",
    "chat": "chat:ChatScreen",
    "bench": "bench:BenchScreen",
    "doctor": "doctor:DoctorScreen",
    "images": "images:ImagesScreen",
}
DIALOGS: Final = {
    "compare_presets": "presets:CompareScreen",
    "confirm": "modals:ConfirmScreen",
    "draft": "draft:DraftDialog",
    "help": "help:HelpScreen",
    "hosts": "hosts:HostsDialog",
    "judge_form": "presets:JudgeForm",
    "import_form": "import_form:ImportForm",
    "launch_form": "launch_form:LaunchForm",
    "tour": "help:TourScreen",
    "yank": "modals:YankMenu",
}


def make_screen(name: str, *arguments: Any, **options: Any) -> Screen[Any]:
    """A new screen of that name. Raises KeyError for a name that is in neither table."""
    module, _, class_ = {**MODES, **DIALOGS}[name].partition(":")
    screen: Screen[Any] = getattr(import_module(f"spark_tui.tui.screens.{module}"), class_)(*arguments, **options)
    return screen


def modes() -> dict[str, str | Callable[[], Screen[Any]]]:
    """For `App.MODES`: a factory by the mode's name."""
    return {name: partial(make_screen, name) for name in MODES}
