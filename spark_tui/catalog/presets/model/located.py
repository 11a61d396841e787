"""A document as plain values that remember their lines, and a reader that says what is wrong with it, and where."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from msgspec import Struct, field

from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.base.text import clean_line, truncate

SHOWN_CHARS = 200
T = TypeVar("T")


class ScalarValue(Struct, frozen=True):
    """A scalar. `line` is 1-based, as everywhere here."""

    value: Scalar
    line: int


class ListValue(Struct, frozen=True):
    items: tuple[Node, ...]
    line: int


class Entry(Struct, frozen=True):
    """One key of a mapping."""

    key: str
    line: int
    node: Node


class MappingValue(Struct, frozen=True):
    """A mapping, in the order of the file; keys are unique."""

    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        """The entry of that key; None when it is absent or empty (`key:` and nothing)."""
        for entry in self.entries:
            if entry.key == key:
                return None if isinstance(entry.node, ScalarValue) and entry.node.value is None else entry
        return None


Node: TypeAlias = ScalarValue | ListValue | MappingValue


def plain(node: Node) -> object:
    """The node as dicts, lists and scalars."""
    if isinstance(node, ScalarValue):
        return node.value
    if isinstance(node, ListValue):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.node) for entry in node.entries}


def compact(node: Node) -> str:
    """A scalar as text, anything else as JSON without blanks: what a JSON-valued flag wants."""
    if isinstance(node, ScalarValue):
        return "" if node.value is None else str(node.value)
    return json.dumps(plain(node), separators=(",", ":"), ensure_ascii=False)


def showable(key: str, node: Node) -> str:
    """A value as one short line for the screen; what may be a key or a token is masked."""
    return truncate(clean_line(compact(masked(key, node))), SHOWN_CHARS)


def masked(key: str, node: Node) -> Node:
    match node:
        case MappingValue():
            return MappingValue(tuple(Entry(e.key, e.line, masked(e.key, e.node)) for e in node.entries), node.line)
        case ListValue():
            return ListValue(tuple(masked(key, item) for item in node.items), node.line)
        case ScalarValue(value=str() as value) if value and (is_secret_name(key) or holds_secret(value)):
            return ScalarValue(SECRET_MASK, node.line)
        case _:
            return node


def describe(node: Node) -> str:
    """What was found, for an error: `the text "abc"`, `the number 7`, `a list`."""
    match node:
        case ListValue():
            return "a list"
        case MappingValue():
            return "a mapping"
        case ScalarValue(value=None):
            return "nothing"
        case ScalarValue(value=bool() as value):
            return "true" if value else "false"
        case ScalarValue(value=str() as value):
            return f'the text "{truncate(clean_line(value), 40)}"'
        case ScalarValue(value=value):
            return f"the number {truncate(str(value), 40)}"


class DocumentProblem(Struct, frozen=True):
    """One thing that is wrong with a document."""

    line: int
    summary: str
    remedy: str


class Reader(Struct):
    """Takes typed values out of a mapping. A wrong type becomes a complaint and reads as absent, so that all of a
    file's mistakes are found at once; what was never asked for is left over for `unused`."""

    table: MappingValue
    path: str = ""
    complaints: list[DocumentProblem] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)

    def name(self, key: str) -> str:
        """The key with the path that leads to it: `defaults.port`."""
        return clean_line(f"{self.path}.{key}" if self.path else key)

    def entry(self, key: str) -> Entry | None:
        self._asked.add(key)
        return self.table.get(key)

    def line(self, key: str) -> int:
        """The key's line, or the mapping's own."""
        entry = self.table.get(key)
        return entry.line if entry else self.table.line

    def complain(self, line: int, summary: str, remedy: str) -> None:
        self.complaints.append(DocumentProblem(line, summary, remedy))

    def expected(self, key: str, entry: Entry, what: str, example: str) -> None:
        found = describe(masked(key, entry.node))
        self.complain(entry.node.line, f"`{self.name(key)}` must be {what}; found {found}.", f"For example: {example}")

    def scalar(self, key: str, accepts: Callable[[Scalar], bool], expected: str, example: str) -> Scalar:
        """The plain value where it is accepted; None where the key is absent, or its value a mistake."""
        entry = self.entry(key)
        if entry is None:
            return None
        if isinstance(entry.node, ScalarValue) and accepts(entry.node.value):
            return entry.node.value
        self.expected(key, entry, expected, f"{key}: {example}")
        return None

    def text(self, key: str, *, example: str = '"..."', numbers: bool = False) -> str:
        """A text, empty when absent. `numbers`: a bare number is taken as the text that it is."""
        kinds = (str, int, float) if numbers else (str,)
        value = self.scalar(key, lambda value: isinstance(value, kinds) and _is_word(value), "text", example)
        return "" if value is None else str(value)

    def parsed(self, key: str, parse: Callable[[str], T], expected: str, example: str) -> T | None:
        """What `parse` makes of a text; None when it is absent, or where that raises ValueError."""
        text, entry = self.text(key, numbers=True, example=example), self.entry(key)
        if entry is None or not text:
            return None
        try:
            return parse(text)
        except (ValueError, OverflowError):
            self.expected(key, entry, expected, f"{key}: {example}")
            return None

    def integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number within its range, None when absent."""

        def fits(value: Scalar) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

        value = self.scalar(key, fits, f"a whole number from {low} to {high}", str(low))
        return value if isinstance(value, int) else None

    def number(self, key: str, *, positive: bool = False) -> float | None:
        """A finite number, None when absent."""

        def fits(value: Scalar) -> bool:
            finite = not isinstance(value, bool) and _finite(value)
            return finite and (not positive or float(value or 0) > 0)

        value = self.scalar(key, fits, "a number above 0" if positive else "a number", "1.5")
        return None if value is None else float(value)

    def boolean(self, key: str) -> bool | None:
        value = self.scalar(key, lambda value: isinstance(value, bool), "true or false", "true")
        return value if isinstance(value, bool) else None

    def texts(self, key: str, check: Callable[[str], object] = str, example: str = '"..."') -> tuple[str, ...]:
        """A list of texts, none of them empty, for which `check` raises no ValueError; a single text is taken as a list
        of one."""
        entry = self.entry(key)
        if entry is None:
            return ()
        nodes = entry.node.items if isinstance(entry.node, ListValue) else (entry.node,)
        values = tuple(str(node.value) for node in nodes if isinstance(node, ScalarValue) and _is_word(node.value))
        if len(values) < len(nodes):
            self.expected(key, entry, "a list of texts", f"{key}: [{example}]")
            return ()
        for text in values:
            try:
                usable = bool(text) and check(text) is not None
            except ValueError:
                usable = False
            if not usable:
                summary = f'`{self.name(key)}` holds "{truncate(clean_line(text), 40)}", which cannot be used.'
                self.complain(entry.line, summary, f"For example: {key}: [{example}]")
                return ()
        return values

    def sub(self, key: str) -> Reader:
        """The mapping under `key`; an empty one when it is absent or not a mapping."""
        entry = self.entry(key)
        if entry is not None and isinstance(entry.node, MappingValue):
            return Reader(entry.node, self.name(key), self.complaints)
        if entry is not None:
            self.expected(key, entry, "a mapping", f"{key}: {{name: value}}")
        return Reader(MappingValue((), self.line(key)), self.name(key), self.complaints)

    def subs(self, key: str) -> tuple[Reader, ...]:
        entry = self.entry(key)
        if entry is None:
            return ()
        if isinstance(entry.node, ListValue) and all(isinstance(item, MappingValue) for item in entry.node.items):
            tables = [item for item in entry.node.items if isinstance(item, MappingValue)]
            return tuple(Reader(table, f"{self.name(key)}[{i}]", self.complaints) for i, table in enumerate(tables))
        self.expected(key, entry, "a list of mappings", f"{key}: [{{name: value}}]")
        return ()

    def unused(self) -> tuple[tuple[str, str], ...]:
        """Keys that were not asked for, with their values as text for showing."""
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
