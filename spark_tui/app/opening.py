"""The settings of one command: the user's own, under the typed options; and the core built with them."""

from __future__ import annotations

from collections.abc import Mapping

from spark_tui.app.rooms import ROOMS, Rooms
from spark_tui.app.wiring import build, build_demo
from spark_tui.base.actions import use_actions
from spark_tui.base.context import Context
from spark_tui.base.settings import (
    DEMO_HOME,
    LOOKS,
    SettingOrigin,
    Settings,
    SettingsError,
    SettingSource,
    defaults,
    folders_for,
    folders_of,
    typed_path,
    variable_of,
)
from spark_tui.cli.session import Options
from spark_tui.machine.settings import checked_keys, load_settings


def _changed(settings: Settings, key: str, value: str | bool, origin: SettingOrigin | None = None) -> Settings:
    origin = origin or SettingOrigin(SettingSource.OPTION, f"--{key.replace('_', '-')}")
    try:
        return settings.changed(origin, **{key: value})
    except ValueError as error:
        raise SettingsError(f"{origin.where} {error}.", "See: spark-tui --help") from None


def open_context(options: Options, environment: Mapping[str, str], rooms: Rooms = ROOMS) -> Context:
    """The core with the user's settings, this command's options over them. Raises SettingsError."""
    use_actions(rooms.actions)
    if options.demo:  # defaults, except for the variables that say how the screen looks
        settings = defaults(folders_of({}, DEMO_HOME))
        for name, key in ((variable_of(key), key) for key in LOOKS):
            if name in environment:
                settings = _changed(settings, key, environment[name], SettingOrigin(SettingSource.ENVIRONMENT, name))
        checked_keys(settings)
        settings = _changed(settings, "read_only", True) if options.read_only else settings
        return build_demo(settings, folders_for(options.config, environment), rooms=rooms)
    folders = folders_for(options.config, environment)
    settings = load_settings(environment, folders)
    store = str(typed_path(options.store, folders.home)) if options.store else ""
    for key, value in (("store", store), ("docker_host", options.docker_host), ("read_only", options.read_only)):
        if value:
            settings = _changed(settings, key, value)
    return build(settings.resolved(folders.home), folders, environment, rooms)
