"""Every screen and dialog by name. Each is imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

from textual.screen import Screen

MODES: Final = {
    "home": "spark_tui.app.home.screen:HomeScreen",
    "models": "spark_tui.catalog.library.screen.models:ModelsScreen",
    "presets": "spark_tui.manage.images.screen:UpdatablePresets",
    "logs": "spark_tui.observe.engines.screen.logs:LogsScreen",
    "metrics": "spark_tui.observe.metrics.screen.metrics:MetricsScreen",
    "memory": "spark_tui.observe.memory.screen:MemoryScreen",
    "events": "spark_tui.observe.metrics.screen.events:EventsScreen",
    "cluster": "spark_tui.manage.cluster.screen.cluster:ClusterScreen",
    "cluster_doctor": "spark_tui.manage.cluster.screen.doctor:ClusterDoctorScreen",
    "connect": "spark_tui.use.connect.screen:ConnectScreen",
    "chat": "spark_tui.use.chat.screen.chat:ChatScreen",
    "bench": "spark_tui.use.prove.screen.bench:BenchScreen",
    "doctor": "spark_tui.manage.doctor.screen:DoctorScreen",
    "images": "spark_tui.manage.images.screen:ImagesScreen",
}
DIALOGS: Final = {
    "compare_presets": "spark_tui.catalog.fit.screen.presets:CompareScreen",
    "confirm": "spark_tui.tui.modals:ConfirmScreen",
    "draft": "spark_tui.catalog.fit.screen.draft:DraftDialog",
    "help": "spark_tui.tui.help:HelpScreen",
    "hosts": "spark_tui.manage.cluster.screen.hosts:HostsDialog",
    "judge_form": "spark_tui.catalog.fit.screen.presets:JudgeForm",
    "import_form": "spark_tui.catalog.fit.screen.import_form:ImportForm",
    "launch_form": "spark_tui.manage.cluster.screen.launch_form:PlacedLaunchForm",
    "tour": "spark_tui.tui.help:TourScreen",
    "yank": "spark_tui.tui.modals:YankMenu",
}


def make_screen(name: str, *arguments: Any, **options: Any) -> Screen[Any]:
    """A new screen of that name. Raises KeyError for a name that is in neither table."""
    module, _, class_ = {**MODES, **DIALOGS}[name].partition(":")
    screen: Screen[Any] = getattr(import_module(module), class_)(*arguments, **options)
    return screen


def modes() -> dict[str, str | Callable[[], Screen[Any]]]:
    """For `App.MODES`: a factory by the mode's name."""
    return {name: partial(make_screen, name) for name in MODES}
