"""The list of rooms. What a room brings, it says in its `feature.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_tui.base.feature import Feature, named

_HELP: Final = """
status memory presets registries recommend from-ollama models images draft fit up ps logs explain history events chat
connect metrics conversations bench tune results references prove canary edit update restart secure down boot schedule
gateway drop-caches guard doctor config serve hosts cluster last-copy completion man
"""
"""The way through a day: the order in which `--help` lists commands. Others come after them."""


class Rooms(tuple[str, ...]):
    """The packages of the rooms that a program has. A feature is read when it is its turn."""

    __slots__ = ()

    def features(self) -> Iterator[Feature]:
        return (named(f"{room}.feature:FEATURE") for room in self)

    def commands(self) -> dict[str, str]:
        """The first sentence of each command that is listed, in the order of the help."""
        found = {name: summary for each in self.features() for name, (_, summary) in each.commands.items()}
        return {name: found[name] for name in dict.fromkeys((*_HELP.split(), *found)) if name in found}

    def actions(self) -> Iterator[tuple[str, str, str, str, str, str, str]]:
        """Of all features."""
        return (row for each in self.features() for row in each.actions)

    def module_of(self, command: str) -> str:
        """The module of a command, empty for what is none."""
        for each in self.features():
            if command in each.commands:
                return each.commands[command][0]
            if command in each.unlisted:
                return each.unlisted[command]
        return ""


ROOMS: Final = Rooms((
    "spark_tui.observe.explain",
    "spark_tui.observe.results",
    "spark_tui.observe.engines",
    "spark_tui.observe.metrics",
    "spark_tui.observe.memory",
    "spark_tui.catalog.models",
    "spark_tui.catalog.presets",
    "spark_tui.catalog.fit",
    "spark_tui.catalog.library",
    "spark_tui.run.launch",
    "spark_tui.run.service",
    "spark_tui.use.chat",
    "spark_tui.use.bench",
    "spark_tui.use.prove",
    "spark_tui.use.connect",
    "spark_tui.manage.images",
    "spark_tui.manage.tune",
    "spark_tui.manage.gateway",
    "spark_tui.manage.cluster",
    "spark_tui.manage.doctor",
    "spark_tui.app",
))  # fmt: skip
