"""A document as plain values that remember their lines, and a reader that says what is wrong with it, and where."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.domain.text import clean_line, truncate

SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar. `line` is 1-based, as everywhere here."""

    value: Scalar
    line: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping."""

    key: str
    line: int
    node: Node


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in the order of the file; keys are unique."""

    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        """The entry of that key; None when it is absent or empty (`key:` and nothing)."""
        for entry in self.entries:
            if entry.key == key:
                return None if isinstance(entry.node, Leaf) and entry.node.value is None else entry
        return None


Node: TypeAlias = Leaf | Items | Table


def plain(node: Node) -> object:
    """The node as dicts, lists and scalars."""
    if isinstance(node, Leaf):
        return node.value
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.node) for entry in node.entries}


def compact(node: Node) -> str:
    """A scalar as text, anything else as JSON without blanks: what a JSON-valued flag wants."""
    if isinstance(node, Leaf):
        return "" if node.value is None else str(node.value)
    return json.dumps(plain(node), separators=(",", ":"), ensure_ascii=False)


def showable(key: str, node: Node) -> str:
    """A value as one short line for the screen; what may be a key or a token is masked."""
    return truncate(clean_line(compact(masked(key, node))), SHOWN_CHARS)


def masked(key: str, node: Node) -> Node:
    """The value with every key and token in it masked."""
    match node:
        case Table():
            return Table(tuple(Entry(e.key, e.line, masked(e.key, e.node)) for e in node.entries), node.line)
        case Items():
            return Items(tuple(masked(key, item) for item in node.items), node.line)
        case Leaf(value=str() as value) if value and (is_secret_name(key) or holds_secret(value)):
            return Leaf(SECRET_MASK, node.line)
        case _:
            return node


def describe(node: Node) -> str:
    """What was found, for an error: `the text "abc"`, `the number 7`, `a list`."""
    match node:
        case Items():
            return "a list"
        case Table():
            return "a mapping"
        case Leaf(value=None):
            return "nothing"
        case Leaf(value=bool() as value):
            return "true" if value else "false"
        case Leaf(value=str() as value):
            return f'the text "{truncate(clean_line(value), 40)}"'
        case Leaf(value=value):
            return f"the number {truncate(str(value), 40)}"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong with a document."""

    line: int
    summary: str
    remedy: str


@dataclass(slots=True)
class Reader:
    """Takes typed values out of a mapping. A wrong type becomes a complaint and reads as absent, so that all of a
    file's mistakes are found at once; what was never asked for is left over for `unused`."""

    table: Table
    path: str = ""
    complaints: list[Complaint] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)

    def name(self, key: str) -> str:
        """The key with the path that leads to it: `defaults.port`."""
        return clean_line(f"{self.path}.{key}" if self.path else key)

    def entry(self, key: str) -> Entry | None:
        """The entry, whatever its type."""
        self._asked.add(key)
        return self.table.get(key)

    def line(self, key: str) -> int:
        """The key's line, or the mapping's own."""
        entry = self.table.get(key)
        return entry.line if entry else self.table.line

    def complain(self, line: int, summary: str, remedy: str) -> None:
        """Records a mistake."""
        self.complaints.append(Complaint(line, summary, remedy))

    def expected(self, key: str, entry: Entry, what: str, example: str) -> None:
        """Records a value of the wrong type or outside its range."""
        found = describe(masked(key, entry.node))
        self.complain(
            entry.node.line, f"`{self.name(key)}` must be {what}; found {found}.", f"Write for example: {example}"
        )

    def text(self, key: str, *, example: str = "", numbers: bool = False) -> str:
        """A text, empty when absent. `numbers`: a bare number is taken as the text that it is."""
        entry = self.entry(key)
        if entry is None:
            return ""
        value = entry.node.value if isinstance(entry.node, Leaf) else None
        if isinstance(value, str):
            return value
        if numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        self.expected(key, entry, "text", example or f'{key}: "..."')
        return ""

    def integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number within its range, None when absent."""
        entry = self.entry(key)
        if entry is None:
            return None
        value = entry.node.value if isinstance(entry.node, Leaf) else None
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.expected(key, entry, f"a whole number from {low} to {high}", f"{key}: {low}")
        return None

    def number(self, key: str, *, positive: bool = False) -> float | None:
        """A finite number, None when absent."""
        entry = self.entry(key)
        if entry is None:
            return None
        value = entry.node.value if isinstance(entry.node, Leaf) else None
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if good and _finite(value) and (not positive or float(value or 0) > 0):
            return float(value or 0)
        self.expected(key, entry, "a number above 0" if positive else "a number", f"{key}: 1.5")
        return None

    def boolean(self, key: str) -> bool | None:
        """true or false, None when absent."""
        entry = self.entry(key)
        if entry is None:
            return None
        if isinstance(entry.node, Leaf) and isinstance(entry.node.value, bool):
            return entry.node.value
        self.expected(key, entry, "true or false", f"{key}: true")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text is taken as a list of one."""
        entry = self.entry(key)
        if entry is None:
            return ()
        nodes = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
        values = [str(node.value) for node in nodes if isinstance(node, Leaf) and _is_word(node.value)]
        if len(values) == len(nodes):
            return tuple(values)
        self.expected(key, entry, "a list of texts", f'{key}: ["..."]')
        return ()

    def sub(self, key: str) -> Reader:
        """The mapping under `key`; an empty one when it is absent or not a mapping."""
        entry = self.entry(key)
        if entry is not None and isinstance(entry.node, Table):
            return Reader(entry.node, self.name(key), self.complaints)
        if entry is not None:
            self.expected(key, entry, "a mapping", f"{key}: {{name: value}}")
        return Reader(Table((), self.line(key)), self.name(key), self.complaints)

    def subs(self, key: str) -> tuple[Reader, ...]:
        """A list of mappings."""
        entry = self.entry(key)
        if entry is None:
            return ()
        if isinstance(entry.node, Items) and all(isinstance(item, Table) for item in entry.node.items):
            tables = [item for item in entry.node.items if isinstance(item, Table)]
            return tuple(Reader(table, f"{self.name(key)}[{i}]", self.complaints) for i, table in enumerate(tables))
        self.expected(key, entry, "a list of mappings", f"{key}: [{{name: value}}]")
        return ()

    def unused(self) -> tuple[tuple[str, str], ...]:
        """Keys that nobody asked for, with their values as text for showing."""
        return tuple(
            (self.name(entry.key), showable(entry.key, entry.node))
            for entry in self.table.entries
            if entry.key not in self._asked
        )


def _is_word(value: Scalar) -> bool:
    return value is not None and not isinstance(value, bool)


def _finite(value: Scalar) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(float(value))
    except OverflowError:
        return False


MAX_DEPTH: Final = 24
MAX_NODES: Final = 20_000
"""Counted with aliases expanded. The largest published recipe has some hundred."""

MERGE_KEY: Final = "<<"


@dataclass(frozen=True, slots=True)
class _Measured:
    """A node with its expanded size in nodes, and its depth."""

    node: Node
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    line: int
    anchor: str | None
    mapping: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    merged: list[Table] = field(default_factory=list)
    key: str | None = None
    key_line: int = 0
    merging: bool = False
    size: int = 1
    depth: int = 0


class DocumentBuilder:
    """Takes the events of one file in their order; `root` is the document afterwards, None for an empty file.

    Every method raises PresetError, with the line, for what no recipe can hold: a key twice, an alias that names
    nothing or itself, too many values, too deep a nesting. Mappings merge by `<<` as in YAML 1.1: keys of the
    mapping itself count more, then those of the earlier merged one.
    """

    def __init__(self, file: str) -> None:
        self.root: Node | None = None
        self._file = file
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Measured | None] = {}
        self._size = 0

    @property
    def wants_key(self) -> bool:
        """Whether the next scalar is a mapping's key."""
        return bool(self._stack) and self._stack[-1].mapping and self._stack[-1].key is None

    def key(self, text: str, line: int, *, anchor: str | None = None, merge: bool = False) -> None:
        """A key, as it is written. `merge`: it is the merge key and not the text `<<` in quotes."""
        top = self._stack[-1]
        if text in top.entries and not merge:
            raise self._error(
                line,
                f"`{truncate(clean_line(text), 60)}` is given twice (first on line {top.entries[text].line}).",
                "Keep one of the two: YAML would silently take the last.",
            )
        top.key, top.key_line, top.merging = text, line, merge
        self._name(anchor, _Measured(Leaf(text, line)))

    def scalar(self, value: Scalar, line: int, *, anchor: str | None = None) -> None:
        """A value."""
        measured = _Measured(Leaf(value, line))
        self._count(measured, line)
        self._attach(measured)
        self._name(anchor, measured)

    def alias(self, name: str, line: int) -> None:
        """Another use of what was anchored before, as a value or as a key."""
        if name not in self._anchors:
            raise self._error(line, f"The alias *{name} names nothing above it.", f"Define it first: &{name}")
        measured = self._anchors[name]
        if measured is None:
            raise self._error(line, f"The alias *{name} is part of what it names.", "Write the values out.")
        if self.wants_key and isinstance(measured.node, Leaf):
            self.key(str(measured.node.value), line)
            return
        self._require_key(line)
        self._count(measured, line)
        self._attach(measured)

    def begin(self, line: int, *, mapping: bool, anchor: str | None = None) -> None:
        """The start of a list or mapping."""
        self._require_key(line)
        if len(self._stack) >= MAX_DEPTH:
            raise self._too_deep(line)
        if anchor:
            self._anchors[anchor] = None
        self._stack.append(_Open(line, anchor, mapping))
        self._count(_Measured(Leaf(None, line), depth=0), line)

    def end(self) -> None:
        """The end of the innermost list or mapping."""
        done = self._stack.pop()
        measured = _Measured(_closed(done), done.size, done.depth + 1)
        self._attach(measured)
        self._name(done.anchor, measured)

    # --- building -------------------------------------------------------------------------------------

    def _name(self, anchor: str | None, measured: _Measured) -> None:
        if anchor:
            self._anchors[anchor] = measured

    def _require_key(self, line: int) -> None:
        if self.wants_key:
            raise self._error(line, "A key must be a word, not a list or mapping.", "Write `key: value`.")

    def _count(self, measured: _Measured, line: int) -> None:
        self._size += measured.size
        if self._size > MAX_NODES:
            raise self._error(
                line,
                f"The file holds more than {MAX_NODES:,} values, aliases counted in full.",
                "A recipe has some hundred.",
            )
        if len(self._stack) + measured.depth > MAX_DEPTH:
            raise self._too_deep(line)

    def _attach(self, measured: _Measured) -> None:
        if not self._stack:
            self.root = measured.node
            return
        top = self._stack[-1]
        top.size += measured.size
        top.depth = max(top.depth, measured.depth)
        if not top.mapping:
            top.items.append(measured.node)
        elif top.merging:
            top.merged += self._mergeable(measured.node)
        elif top.key is not None:
            top.entries[top.key] = Entry(top.key, top.key_line, measured.node)
        top.key, top.merging = None, False

    def _mergeable(self, node: Node) -> list[Table]:
        if isinstance(node, Table):
            return [node]
        tables = [item for item in node.items if isinstance(item, Table)] if isinstance(node, Items) else []
        if not isinstance(node, Items) or len(tables) != len(node.items):
            raise self._error(node.line, "`<<` takes a mapping, or a list of mappings.", "Write for example: <<: *base")
        return tables

    def _error(self, line: int, summary: str, remedy: str) -> PresetError:
        return PresetError(summary, remedy, file=self._file, line=line)

    def _too_deep(self, line: int) -> PresetError:
        return self._error(
            line, f"The file is nested deeper than {MAX_DEPTH} levels.", "A recipe needs no more than six."
        )


def _closed(done: _Open) -> Node:
    if not done.mapping:
        return Items(tuple(done.items), done.line)
    for table in done.merged:
        for entry in table.entries:
            done.entries.setdefault(entry.key, entry)
    return Table(tuple(done.entries.values()), done.line)
