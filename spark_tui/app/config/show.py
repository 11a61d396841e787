"""Settings and keys, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable

from spark_tui.base.actions import known_actions
from spark_tui.base.page import Cell, Column, Object, Table, Tone, cells, maybe
from spark_tui.base.settings import SettingSource
from spark_tui.machine.settings import SettingEntry


def value_text(value: object) -> str:
    """As written in the file, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_table(entries: Iterable[SettingEntry]) -> Table:
    columns = (Column("SETTING"), Column("VALUE", least=12), Column("FROM", least=12))
    rows = (
        cells(
            entry.key,
            Cell(
                value_text(entry.value) or "-",
                Tone.PLAIN if entry.origin.source is SettingSource.DEFAULT else Tone.STRONG,
            ),
            Cell(entry.origin.where or "default", Tone.QUIET),
        )
        for entry in entries
    )
    return Table(columns, tuple(rows))


def setting_object(entry: SettingEntry) -> Object:
    return {
        "id": entry.key,
        "value": entry.value,
        "default": entry.default,
        "origin": entry.origin.source.value,
        **maybe("where", entry.origin.where or None, "it is the default"),
        "variable": entry.variable,
    }


def keys_table() -> Table:
    columns = (Column("WHERE"), Column("ID"), Column("KEYS"), Column("WHAT", keep=8, least=12))
    return Table(
        columns, tuple(cells(str(each.scope), each.id, " ".join(each.keys), each.help) for each in known_actions())
    )


def keys_object() -> list[Object]:
    return [
        {
            "id": each.id,
            "keys": list(each.keys),
            "default_keys": list(each.default_keys),
            "label": each.label,
            "where": str(each.scope),
        }
        for each in known_actions()
    ]
