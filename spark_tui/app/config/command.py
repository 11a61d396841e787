"""config: the settings, where each comes from, and changing them."""

from __future__ import annotations

import click

from spark_tui.app.config import show
from spark_tui.base.actions import use_keys
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.files import ScreenFolder
from spark_tui.base.settings import SettingSource, folders_for
from spark_tui.cli.command import command, group, setting_argument
from spark_tui.cli.session import Session
from spark_tui.machine.settings import Config

LAST_COPY = "last-copy"
"""The control centre's file in the state folder."""

_SET_EXAMPLES = """\
  spark-tui config set theme spark-light
  spark-tui config set keymap.stop ctrl+x       your own key; ids: spark-tui config keys
  spark-tui config set read_only true
"""


def _config(session: Session) -> Config:
    return Config(folders_for(session.options.config, session.environment), session.environment)


def _list(session: Session) -> None:
    entries = _config(session).entries()
    session.out.answer([show.setting_object(entry) for entry in entries], show.settings_table(entries))
    session.err.say("Change one: spark-tui config set SETTING VALUE", "dim")


@group("config")
def config(session: Session) -> None:
    """Show and change settings. Without a command: all of them."""
    _list(session)


@config.sub("list", "  spark-tui config list --json | jq '.[] | select(.origin != \"default\")'")
def config_list(session: Session) -> None:
    """List settings: defaults, then the file, then SPARK_TUI_* variables; the last one wins."""
    _list(session)


@config.sub("get", "  spark-tui config get store\n  spark-tui config get keymap.stop")
@setting_argument
def config_get(session: Session, key: str) -> None:
    """Print one value on stdout, its origin on stderr."""
    entry = _config(session).entry(key)
    session.out.answer(show.setting_object(entry), show.value_text(entry.value))
    session.err.say(f"from {entry.origin.where or 'the defaults'}", "dim")


@config.sub("set", _SET_EXAMPLES)
@setting_argument
@click.argument("value")
def config_set(session: Session, key: str, value: str) -> None:
    """Write a value into the settings file. Comments and order are kept."""
    _change(session, key, value)


@config.sub("unset", "  spark-tui config unset theme")
@setting_argument
def config_unset(session: Session, key: str) -> None:
    """Remove a value from the settings file, back to the default."""
    _change(session, key, None)


def _change(session: Session, key: str, value: str | None) -> None:
    if session.options.demo:
        raise RefusedError("A demo changes nothing: the settings are your own.", "Leave out --demo.")
    settings = _config(session)
    entry = settings.change(key, value)
    session.out.json(show.setting_object(entry))
    where = entry.origin.where or "the defaults"
    session.err.say(f"{key} is now {show.value_text(entry.value) or 'empty'} (from {where}).")
    if entry.origin.source is SettingSource.ENVIRONMENT:
        session.err.note(f"{entry.variable} overrides the file: unset it to use {settings.path}.")


@config.sub("keys", "  spark-tui config keys | grep Home")
def config_keys(session: Session) -> None:
    """List actions of the control centre: id for `keymap`, keys, screen."""
    use_keys(dict(_config(session).current().keymap))
    session.out.answer(show.keys_object(), show.keys_table())


@config.sub("path", "  $EDITOR $(spark-tui config path)")
def config_path(session: Session) -> None:
    """Print the path of the settings file, which need not exist."""
    path = _config(session).path
    session.out.answer({"id": str(path), "exists": path.exists()}, str(path))


@command("last-copy", "  spark-tui last-copy | xclip")
def last_copy(session: Session) -> None:
    """Print what was copied last on the screen.

    For terminals that drop a copy (OSC 52).
    """
    files = ScreenFolder(folders_for(session.options.config, session.environment).state)
    try:
        text = files.read(LAST_COPY)
    except OSError as error:
        raise SparkError(f"The last copy cannot be read: {error.strerror or error}.", "Copy again with y.") from error
    if text is None:
        raise SparkError("Nothing copied yet.", "Copy on the screen with y. A key is never kept.")
    session.out.json({"id": LAST_COPY, "text": text})
    session.out.write(text if text.endswith("\n") else f"{text}\n")
