"""Settings: `config` and its commands."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, group
from spark_tui.cli.session import Session


@group("config")
def config(session: Session) -> None:
    """Settings: each value, and where it comes from. Without a command: all of them."""
    from spark_tui.cli.config import list_settings

    list_settings(session)


_key = click.argument("key")


@command("list", "  spark-tui config list --json | jq '.[] | select(.origin != \"default\")'")
def config_list(session: Session) -> None:
    """All settings: the defaults, then the file, then SPARK_TUI_* variables; the later counts."""
    from spark_tui.cli.config import list_settings

    list_settings(session)


@command("get", "  spark-tui config get store\n  spark-tui config get keymap.stop")
@_key
def config_get(session: Session, key: str) -> None:
    """One value, on standard output; where it comes from, on standard error."""
    from spark_tui.cli.config import get_setting

    get_setting(session, key)


_SET_EXAMPLES = """\
  spark-tui config set theme spark-light
  spark-tui config set keymap.stop ctrl+x       your own key; ids: spark-tui config keys
  spark-tui config set read_only true
"""


@command("set", _SET_EXAMPLES)
@_key
@click.argument("value")
def config_set(session: Session, key: str, value: str) -> None:
    """Write a value into the settings file. Comments and order in it stay."""
    from spark_tui.cli.config import change_setting

    change_setting(session, key, value)


@command("unset", "  spark-tui config unset theme")
@_key
def config_unset(session: Session, key: str) -> None:
    """Take a value out of the settings file: the default counts again."""
    from spark_tui.cli.config import change_setting

    change_setting(session, key, None)


@command("keys", "  spark-tui config keys | grep Home")
def config_keys(session: Session) -> None:
    """Every action of the control centre: its id for `keymap`, its keys, where it applies."""
    from spark_tui.cli.config import list_keys

    list_keys(session)


@command("path", "  $EDITOR $(spark-tui config path)")
def config_path(session: Session) -> None:
    """Where the settings file is, or would be."""
    from spark_tui.cli.config import tell_path

    tell_path(session)


config.add(config_list, config_get, config_set, config_unset, config_keys, config_path)
