"""The settings of one command: the person's own, with what was typed over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from spark_tui.cli.session import Options
from spark_tui.core.context import read_settings
from spark_tui.domain.settings import Folders, Origin, Settings, SettingsError, Source, defaults, folders_of

DEMO_HOME = Path("/home/spark")


def settings_of(options: Options, environment: Mapping[str, str]) -> tuple[Settings, Folders]:
    """Settings and folders. A relative path that was typed starts in the working directory. Raises SettingsError."""
    home = Path(environment.get("HOME") or Path.home())
    folders = folders_of(environment, home)
    if options.config:
        folders = replace(folders, config=_typed(options.config, home))
    settings = read_settings(folders, environment)
    if options.store:
        settings = _changed(settings, "store", str(_typed(options.store, home)))
    if options.docker_host:
        settings = _changed(settings, "docker_host", options.docker_host)
    if options.read_only:
        settings = _changed(settings, "read_only", True)
    return settings.resolved(home), folders


def demo_settings(options: Options) -> Settings:
    """The simulated Spark's person has set nothing."""
    settings = defaults(folders_of({}, DEMO_HOME))
    return _changed(settings, "read_only", True) if options.read_only else settings


def _typed(text: str, home: Path) -> Path:
    path = Path(text)
    inside = path.parts[1:] if path.parts[:1] == ("~",) else None  # `--store=~/x`: no shell expands that
    return Path.cwd() / path if inside is None else home.joinpath(*inside)


def _changed(settings: Settings, key: str, value: str | bool) -> Settings:
    option = f"--{key.replace('_', '-')}"
    try:
        return settings.changed(Origin(Source.OPTION, option), **{key: value})
    except ValueError as error:
        raise SettingsError(f"{option} {error}.", "See: spark-tui --help") from None
