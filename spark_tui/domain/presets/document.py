"""Builds a located document from a parser's events, with bounds on what a stranger's file can cost.

Nothing recurses on the depth of the input. Aliases share what they name instead of copying it, and their expanded
size is counted before anything walks it, so that a few lines cannot stand for a billion values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.located import Entry, Items, Leaf, Node, Table
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.text import clean_line, truncate

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
