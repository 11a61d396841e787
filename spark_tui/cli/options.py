"""The settings of one command: the person's own, with what was typed over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from spark_tui.cli.session import Options
from spark_tui.core.context import read_settings
from spark_tui.domain.settings import (
    LOOKS,
    Folders,
    Origin,
    Settings,
    SettingsError,
    Source,
    defaults,
    folders_of,
    variable_of,
)

DEMO_HOME = Path("/home/spark")


def folders_for(options: Options, environment: Mapping[str, str]) -> Folders:
    """The person's folders."""
    home = Path(environment.get("HOME") or Path.home())
    folders = folders_of(environment, home)
    return replace(folders, config=_typed(options.config, home)) if options.config else folders


def settings_of(options: Options, environment: Mapping[str, str]) -> tuple[Settings, Folders]:
    """Settings and folders. A relative path that was typed starts in the working directory. Raises SettingsError."""
    folders = folders_for(options, environment)
    home = folders.home
    settings = read_settings(folders, environment)
    if options.store:
        settings = _changed(settings, "store", str(_typed(options.store, home)))
    if options.docker_host:
        settings = _changed(settings, "docker_host", options.docker_host)
    if options.read_only:
        settings = _changed(settings, "read_only", True)
    return settings.resolved(home), folders


def demo_settings(options: Options, environment: Mapping[str, str]) -> Settings:
    """The simulated Spark's person has set nothing; only how it looks is by the variables of who sits before it."""
    settings = defaults(folders_of({}, DEMO_HOME))
    for name, key in ((variable_of(key), key) for key in LOOKS):
        if name in environment:
            settings = _changed(settings, key, environment[name], Origin(Source.ENVIRONMENT, name))
    if settings.keymap:
        from spark_tui.core.config import checked_keys

        checked_keys(settings)
    return _changed(settings, "read_only", True) if options.read_only else settings


def _typed(text: str, home: Path) -> Path:
    path = Path(text)
    inside = path.parts[1:] if path.parts[:1] == ("~",) else None  # `--store=~/x`: no shell expands that
    return Path.cwd() / path if inside is None else home.joinpath(*inside)


def _changed(settings: Settings, key: str, value: str | bool, origin: Origin | None = None) -> Settings:
    origin = origin or Origin(Source.OPTION, f"--{key.replace('_', '-')}")
    try:
        return settings.changed(origin, **{key: value})
    except ValueError as error:
        raise SettingsError(f"{origin.where} {error}.", "See: spark-tui --help") from None
