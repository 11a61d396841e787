"""The program put together: on this machine or on a simulated one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from spark_tui.core.context import Context
from spark_tui.core.wiring import demo_ports, real_ports
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.settings import Folders, Settings, defaults, folders_of
from spark_tui.services.ports import Clock

DEMO_HOME: Final = Path("/home/spark")
"""The home of the simulated Spark's user."""


def build(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Context:
    """This machine."""
    return Context(settings, real_ports(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Of `settings` only the looks count, and read-only. Uses no
    Docker; a saved log is a real file."""
    simulated, given = folders_of({}, DEMO_HOME), settings or Settings()
    shown = replace(
        defaults(simulated), read_only=given.read_only, refresh_seconds=given.refresh_seconds,
        theme=given.theme, glyphs=given.glyphs, keymap=given.keymap, notify=given.notify,
    )  # fmt: skip
    return Context(shown, demo_ports(folders, clock), _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
