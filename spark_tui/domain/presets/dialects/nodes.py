"""Documents made and changed by us: the same nodes that a file is read into, without lines of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from spark_tui.domain.presets.located import Entry, Items, Leaf, Node, Table
from spark_tui.domain.presets.preset import Scalar

Value: TypeAlias = "Scalar | Node | Sequence[Value] | Mapping[str, Value]"
"""What a node can be made of; nodes that stand in it stay as they are."""

EMPTY: Final = Table((), 0)


def node_of(value: Value, line: int = 0) -> Node:
    """Plain values as a document. `line` is where they stand, as far as they stand anywhere."""
    if isinstance(value, (Leaf, Items, Table)):
        return value
    if isinstance(value, Mapping):
        return Table(tuple(Entry(key, line, node_of(item, line)) for key, item in value.items()), line)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Items(tuple(node_of(item, line) for item in value), line)
    return Leaf(value, line)


def table_of(values: Mapping[str, Value], like: Table = EMPTY) -> Table:
    """Plain values as a mapping; a key that `like` has too keeps its line, so that mistakes are found there."""
    lines = {entry.key: (entry.line, entry.node.line) for entry in like.entries}
    found = ((key, *lines.get(key, (0, 0)), item) for key, item in values.items())
    return Table(tuple(Entry(key, line, node_of(item, below)) for key, line, below, item in found), like.line)


def with_value(table: Table, key: str, value: Value) -> Table:
    """The mapping with a key set: in its place, and on its line, where it is there, else at the end."""
    earlier = next((each for each in table.entries if each.key == key), None)
    if earlier is None:
        return Table((*table.entries, Entry(key, table.line, node_of(value, table.line))), table.line)
    entry = Entry(key, earlier.line, node_of(value, earlier.node.line))
    return Table(tuple(entry if each is earlier else each for each in table.entries), table.line)


def without_keys(table: Table, *keys: str) -> Table:
    """The mapping without some of its keys."""
    return Table(tuple(entry for entry in table.entries if entry.key not in keys), table.line)


def sub_table(table: Table, key: str) -> Table:
    """The mapping under a key, an empty one where there is none."""
    entry = table.get(key)
    return entry.node if entry is not None and isinstance(entry.node, Table) else EMPTY


def scalar(table: Table, key: str) -> Scalar:
    """The plain value under a key, None where there is none."""
    entry = table.get(key)
    return entry.node.value if entry is not None and isinstance(entry.node, Leaf) else None


def is_true(table: Table, key: str) -> bool:
    """Whether a switch is on."""
    return scalar(table, key) is True
