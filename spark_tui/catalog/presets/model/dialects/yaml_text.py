"""A document as YAML text that reads back the same, in the way in which people write recipes.

Text is plain where nothing in it means anything to YAML 1.1, in single quotes where a person can read it so, and in
double quotes with escapes otherwise; several lines stand as a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.text import lazy_pattern
from spark_tui.catalog.presets.model.located import Entry, ListValue, MappingValue, Node, ScalarValue

_INDENT: Final = "  "
_PLAIN = lazy_pattern(r"(?:--?)?[A-Za-z_/](?:[A-Za-z0-9_./@+()%=,-]|:(?=[A-Za-z0-9_./@+-])| (?=[A-Za-z0-9_./@+(%=-]))*")
# Words that YAML 1.1 reads as something else than text.
_WORDS: Final = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"))
_READABLE = lazy_pattern("[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_IN_BLOCK = lazy_pattern("[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff\n]*")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MAX_IMPLICIT_KEY: Final = 1000
"""YAML ends a key without its question mark at 1,024 characters."""


def yaml_text(document: Node) -> str:
    """The whole document, with an end of line."""
    if isinstance(document, ScalarValue):
        return _scalar(document.value) + "\n"
    return "".join(f"{line}\n" for line in _lines(document, ""))


def comment(lines: Iterator[str] | tuple[str, ...]) -> str:
    """Lines of comment, cleaned of whatever could end one."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _lines(node: MappingValue | ListValue, indent: str) -> Iterator[str]:
    if isinstance(node, MappingValue):
        if not node.entries:
            yield indent + "{}"
        for entry in node.entries:
            key = _text(entry.key)
            if len(key) > _MAX_IMPLICIT_KEY:
                yield f"{indent}? {key}"
                key = ""
            yield from _after(f"{indent}{key}:", entry.node, indent)
        return
    if not node.items:
        yield indent + "[]"
    for item in node.items:
        yield from _item(item, indent)


def _after(head: str, node: Node, indent: str) -> Iterator[str]:
    """A value after its key or dash: on the same line, or below it."""
    if isinstance(node, ScalarValue):
        if isinstance(node.value, str) and _is_block(node.value):
            yield from _block(head, node.value, indent + _INDENT)
        else:
            yield f"{head} {_scalar(node.value)}"
    elif (node.entries if isinstance(node, MappingValue) else node.items) == ():
        yield f"{head} {'{}' if isinstance(node, MappingValue) else '[]'}"
    else:
        yield head
        yield from _lines(node, indent + _INDENT)


def _item(item: Node, indent: str) -> Iterator[str]:
    if isinstance(item, ScalarValue):
        yield from _after(f"{indent}-", item, indent)
        return
    first, *rest = _lines(item, indent + _INDENT)
    yield f"{indent}- {first[len(indent) + len(_INDENT) :]}"
    yield from rest


def _scalar(value: Scalar) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _text(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    # YAML 1.1 wants a dot before the exponent and a sign within it: 1e-05 would be a text.
    sign = "" if exponent.startswith("-") else "+"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+')}"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if _READABLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if _READABLE.fullmatch(char):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_block(text: str) -> bool:
    """Whether a text reads well, and back the same, as a block of lines."""
    body = text.rstrip("\n")
    return "\n" in text and bool(body) and not body.startswith((" ", "\n")) and _IN_BLOCK.fullmatch(text) is not None


def _block(head: str, text: str, indent: str) -> Iterator[str]:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    yield f"{head} |{'-' if ends == 0 else '' if ends == 1 else '+'}"
    for line in body.split("\n"):
        yield indent + line if line else ""
    for _ in range(ends - 1):
        yield ""


Value: TypeAlias = "Scalar | Node | Sequence[Value] | Mapping[str, Value]"
"""What a node can be made of; nodes that stand in it stay as they are."""

EMPTY: Final = MappingValue((), 0)


def node_of(value: Value, line: int = 0) -> Node:
    """Plain values as a document. `line` is where they stand, as far as they stand anywhere."""
    if isinstance(value, (ScalarValue, ListValue, MappingValue)):
        return value
    if isinstance(value, Mapping):
        return MappingValue(tuple(Entry(key, line, node_of(item, line)) for key, item in value.items()), line)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ListValue(tuple(node_of(item, line) for item in value), line)
    return ScalarValue(value, line)


def table_of(values: Mapping[str, Value], like: MappingValue = EMPTY) -> MappingValue:
    """Plain values as a mapping; a key that `like` has too keeps its line, so that mistakes are found there."""
    lines = {entry.key: (entry.line, entry.node.line) for entry in like.entries}
    found = ((key, *lines.get(key, (0, 0)), item) for key, item in values.items())
    return MappingValue(tuple(Entry(key, line, node_of(item, below)) for key, line, below, item in found), like.line)


def with_value(table: MappingValue, key: str, value: Value) -> MappingValue:
    """The mapping with a key set: in its place, and on its line, where it is there, else at the end."""
    earlier = next((each for each in table.entries if each.key == key), None)
    if earlier is None:
        return MappingValue((*table.entries, Entry(key, table.line, node_of(value, table.line))), table.line)
    entry = Entry(key, earlier.line, node_of(value, earlier.node.line))
    return MappingValue(tuple(entry if each is earlier else each for each in table.entries), table.line)


def without_keys(table: MappingValue, *keys: str) -> MappingValue:
    return MappingValue(tuple(entry for entry in table.entries if entry.key not in keys), table.line)


def sub_table(table: MappingValue, key: str) -> MappingValue:
    """The mapping under a key, an empty one where there is none."""
    entry = table.get(key)
    return entry.node if entry is not None and isinstance(entry.node, MappingValue) else EMPTY


def scalar(table: MappingValue, key: str) -> Scalar:
    """The plain value under a key, None where there is none."""
    entry = table.get(key)
    return entry.node.value if entry is not None and isinstance(entry.node, ScalarValue) else None


def is_true(table: MappingValue, key: str) -> bool:
    return scalar(table, key) is True
