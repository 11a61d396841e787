"""YAML text of recipe files as located documents, by PyYAML's rules and with bounds on what a file can cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.errors import PresetError
from spark_tui.base.files import open_plain
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.yaml_nodes import YamlProblem, compose_yaml, not_of_its_kind
from spark_tui.catalog.presets.model.located import Entry, ListValue, MappingValue, Node, ScalarValue, plain

MAX_BYTES: Final = 1024 * 1024
"""A recipe is a few kilobytes. What is larger is something else, and is not even parsed."""

SUFFIXES: Final = (".yaml", ".yml")

_TAGS: Final = "tag:yaml.org,2002:"
_TYPED: Final = ("null", "bool", "int", "float")
# Dates and binary data stay as they are written: a recipe has no use for either.
_TEXTUAL: Final = ("str", "timestamp", "binary", "merge", "value")


def read_text(path: Path) -> str:
    """The text of a file, UTF-8 or UTF-16. Raises OSError, or PresetError for what is too large or no text."""
    with open_plain(path) as file:
        return decoded(file.read(MAX_BYTES + 1), path)


def decoded(raw: bytes, path: Path) -> str:
    """The text that a file's bytes are. Raises PresetError for what is too large or no text."""
    if len(raw) > MAX_BYTES:
        raise too_large(path, len(raw))
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise PresetError(
            f"The file is not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}.",
            "Save it as UTF-8.",
            file=str(path),
            line=raw.count(b"\n", 0, error.start) + 1,
        ) from None


def too_large(path: Path, size: int) -> PresetError:
    return PresetError(
        f"The file is {human_bytes(size)}; a recipe is at most {human_bytes(MAX_BYTES)}.",
        "Move it out of the preset folder.",
        file=str(path),
    )


def parse(text: str, file: str) -> Node:
    """The document in `text`, with the semantics of PyYAML's safe loader, which sparkrun uses.

    Mappings merge by `<<` as in YAML 1.1: keys of the mapping itself count more, then those of the earlier merged one.
    Raises PresetError with file and line for anything that is not one sound document.
    """
    try:
        root = compose_yaml(text)
        if root is None:
            raise YamlProblem(1, "The file is empty.", "Write a recipe into it, or remove it.")  # noqa: TRY301
        return _Documents().node(root)
    except YamlProblem as error:
        raise PresetError(error.summary, error.remedy, file=file, line=error.line, detail=error.detail) from None


class _Documents:
    """Composed nodes as located ones. Raises YamlProblem."""

    def __init__(self) -> None:
        import yaml

        self._mapping, self._scalar = yaml.MappingNode, yaml.ScalarNode
        self._constructor: Any = yaml.constructor.SafeConstructor()

    def node(self, found: Any) -> Node:
        """The node; scalars by the safe loader's rules: `yes` is true, `1_000` a number, the rest text."""
        line = _line(found)
        if isinstance(found, self._scalar):
            return ScalarValue(self._value(found), line)
        mapping = isinstance(found, self._mapping)
        if found.tag != _TAGS + ("map" if mapping else "seq"):
            raise self._bad_tag(found)
        if mapping:
            return self._table(found)
        return ListValue(tuple(self.node(item) for item in found.value), line)

    def _table(self, found: Any) -> MappingValue:
        entries: dict[str, Entry] = {}
        merged: list[Entry] = []
        for key, value in found.value:
            line, name = _line(key), key.value
            if not isinstance(key, self._scalar):
                raise YamlProblem(line, "A key must be a word, not a list or mapping.", "Write `key: value`.")
            if key.tag == _TAGS + "merge":
                node = self.node(value)
                for each in node.items if isinstance(node, ListValue) else (node,):
                    if not isinstance(each, MappingValue):
                        summary = "`<<` takes a mapping, or a list of mappings."
                        raise YamlProblem(node.line, summary, "For example: <<: *base")
                    merged += each.entries
                continue
            node = self.node(value)
            if name in entries and plain(entries[name].node) != plain(node):
                raise YamlProblem(
                    line,
                    f"`{truncate(clean_line(name), 60)}` is given twice (first on line {entries[name].line}).",
                    "Keep one of the two: YAML would silently take the last.",
                )
            entries.setdefault(name, Entry(name, line, node))
        for entry in merged:
            entries.setdefault(entry.key, entry)
        return MappingValue(tuple(entries.values()), _line(found))

    def _value(self, found: Any) -> Scalar:
        kind = found.tag.removeprefix(_TAGS)
        if kind in _TEXTUAL:
            return str(found.value)
        if kind not in _TYPED:
            raise self._bad_tag(found)
        try:
            value: Scalar = getattr(self._constructor, f"construct_yaml_{kind}")(found)
        except (ArithmeticError, ValueError, KeyError):
            raise not_of_its_kind(found.value, _line(found)) from None
        return value

    def _bad_tag(self, found: Any) -> YamlProblem:
        summary = f"The tag {truncate(clean_line(found.tag), 60)} is not for recipes."
        return YamlProblem(_line(found), summary, "Remove the tag: plain values are enough.")


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
