"""config: the settings, where each comes from, and changing them."""

from __future__ import annotations

from spark_tui.cli import shapes
from spark_tui.cli.output import Cell, Column, Table
from spark_tui.cli.session import Session, folders_for
from spark_tui.core.actions import ACTIONS, use_keys
from spark_tui.core.config import Config, Entry
from spark_tui.core.context import open_config
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.settings import Source


def list_settings(session: Session) -> None:
    """Every setting with its origin. Raises SettingsError where the file or a variable is wrong."""
    entries = _config(session).entries()
    if session.as_json:
        session.out.json([_shape(entry) for entry in entries])
        return
    columns = (Column("SETTING"), Column("VALUE", flexible=True), Column("FROM", flexible=True))
    session.out.table(Table(columns, tuple(_row(entry) for entry in entries)))
    session.err.say("Change one: spark-tui config set SETTING VALUE", "dim")


def get_setting(session: Session, key: str) -> None:
    """One value. Raises SettingsError."""
    entry = _config(session).entry(key)
    if session.as_json:
        session.out.json(_shape(entry))
        return
    session.out.line(shown(entry.value))
    session.err.say(f"from {_origin(entry)}", "dim")


def change_setting(session: Session, key: str, value: str | None) -> None:
    """Writes or removes a value; tells it when a variable is stronger. Raises SettingsError; RefusedError in a demo."""
    if session.options.demo:
        raise RefusedError("The settings are this person's own, and a demo changes nothing.", "Leave out --demo.")
    config = _config(session)
    entry = config.change(key, value)
    if session.as_json:
        session.out.json(_shape(entry))
        return
    session.err.say(f"{key} is now {shown(entry.value) or 'empty'} (from {_origin(entry)}).")
    if entry.origin.source is Source.ENVIRONMENT:
        session.err.note(f"{entry.variable} is stronger than the file: unset it, and {config.path} counts.")


def list_keys(session: Session) -> None:
    """The registry of actions with the keys that they have. Raises SettingsError."""
    use_keys(dict(_config(session).keymap))
    if session.as_json:
        found = (
            {"id": each.id, "keys": list(each.keys), "default_keys": list(each.default_keys),
             "label": each.label, "where": each.scope.value}
            for each in ACTIONS
        )  # fmt: skip
        session.out.json(list(found))
        return
    columns = (Column("WHERE"), Column("ID"), Column("KEYS"), Column("WHAT", flexible=True, spare=1))
    rows = tuple((each.scope.value, each.id, " ".join(each.keys), each.help) for each in ACTIONS)
    session.out.table(Table(columns, rows))


def tell_path(session: Session) -> None:
    """The file's path, whether it exists or not."""
    path = _config(session).path
    if session.as_json:
        session.out.json({"id": str(path), "exists": path.exists()})
        return
    session.out.line(str(path))


def shown(value: bool | float | str) -> str:
    """As it stands in the file, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _config(session: Session) -> Config:
    return open_config(folders_for(session.options, session.environment), session.environment)


def _origin(entry: Entry) -> str:
    return entry.origin.where or "the defaults"


def _row(entry: Entry) -> tuple[Cell | str, ...]:
    own = entry.origin.source is not Source.DEFAULT
    return (
        entry.key,
        Cell(shown(entry.value) or "-", "bold" if own else ""),
        Cell(entry.origin.where or "default", "dim"),
    )


def _shape(entry: Entry) -> shapes.Object:
    return {
        "id": entry.key,
        "value": entry.value,
        "default": entry.default,
        "origin": entry.origin.source.value,
        **shapes.maybe("where", entry.origin.where or None, "it is the default"),
        "variable": entry.variable,
    }
