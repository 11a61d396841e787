"""YAML text of recipe files as located documents, by PyYAML's rules and with bounds on what a file can cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.located import Entry, ListValue, MappingValue, Node, ScalarValue, plain
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.files import open_plain

if TYPE_CHECKING:
    import yaml

MAX_BYTES: Final = 1024 * 1024
"""A recipe is a few kilobytes. What is larger is something else, and is not even parsed."""

MAX_DEPTH: Final = 24
MAX_NODES: Final = 20_000
"""Counted with aliases expanded. The largest published recipe has some hundred."""

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

    Nothing is composed before its events have been counted: `compose` recurses, and aliases stand for more than they
    are. Mappings merge by `<<` as in YAML 1.1: keys of the mapping itself count more, then those of the earlier merged
    one. Raises PresetError with file and line for anything that is not one sound document.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(text, loader, file)
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, file) from None
    except yaml.reader.ReaderError:
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        which = f"the control character {ord(found[0]):#06x}" if found else "a control character"
        raise PresetError(
            f"The file holds {which}, which YAML does not allow.",
            "Remove it, or write it as an escape within double quotes.",
            file=file,
            line=text.count("\n", 0, found.start()) + 1 if found else 0,
        ) from None
    except UnicodeError:
        raise PresetError("The file holds half a character.", "Save it as UTF-8.", file=file) from None
    if root is None:
        raise PresetError("The file is empty.", "Write a recipe into it, or remove it.", file=file, line=1)
    return _Documents(file).node(root)


def _check_events(text: str, loader: Any, file: str) -> None:
    """Raises PresetError for a second document, for deep nesting, and for aliases of nothing or of themselves."""
    import yaml

    opened: list[str | None] = []
    anchors: set[str] = set()
    documents = 0
    event: Any
    for event in yaml.parse(text, Loader=loader):
        line = int(event.start_mark.line) + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _error(line, "The file holds more than one document.", "Keep one recipe in one file.", file)
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append(event.anchor)
            if len(opened) > MAX_DEPTH:
                raise _too_deep(line, file)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor = opened.pop()
            if anchor:
                anchors.add(anchor)
        elif isinstance(event, yaml.AliasEvent) and event.anchor in opened:
            summary = f"The alias *{event.anchor} is part of what it names."
            raise _error(line, summary, "Write the values out.", file)
        elif isinstance(event, yaml.AliasEvent) and event.anchor not in anchors:
            summary = f"The alias *{event.anchor} names nothing above it."
            raise _error(line, summary, f"Define it first: &{event.anchor}", file)
        elif isinstance(event, yaml.ScalarEvent) and event.anchor:
            anchors.add(event.anchor)


class _Documents:
    """Composed nodes as located ones, with what is left of the bounds. Aliases are counted in full."""

    def __init__(self, file: str) -> None:
        import yaml

        self._file = file
        self._left = MAX_NODES
        self._line = 0
        self._mapping, self._scalar = yaml.MappingNode, yaml.ScalarNode
        self._constructor: Any = yaml.constructor.SafeConstructor()

    def node(self, found: Any, depth: int = 0) -> Node:
        """The node; scalars by the safe loader's rules: `yes` is true, `1_000` a number, the rest text."""
        line = _line(found)
        self._line = max(self._line, line)
        self._left -= 1
        if self._left < 0:
            summary = f"The file holds more than {MAX_NODES:,} values, aliases counted in full."
            raise _error(self._line, summary, "A recipe has some hundred.", self._file)
        if isinstance(found, self._scalar):
            return ScalarValue(self._value(found), line)
        if depth >= MAX_DEPTH:
            raise _too_deep(self._line, self._file)
        mapping = isinstance(found, self._mapping)
        if found.tag != _TAGS + ("map" if mapping else "seq"):
            raise self._bad_tag(found)
        if mapping:
            return self._table(found, depth)
        return ListValue(tuple(self.node(item, depth + 1) for item in found.value), line)

    def _table(self, found: Any, depth: int) -> MappingValue:
        entries: dict[str, Entry] = {}
        merged: list[Entry] = []
        for key, value in found.value:
            line, name = _line(key), key.value
            self._line = max(self._line, line)
            if not isinstance(key, self._scalar):
                raise _error(line, "A key must be a word, not a list or mapping.", "Write `key: value`.", self._file)
            if key.tag == _TAGS + "merge":
                node = self.node(value, depth + 1)
                for each in node.items if isinstance(node, ListValue) else (node,):
                    if not isinstance(each, MappingValue):
                        summary = "`<<` takes a mapping, or a list of mappings."
                        raise _error(node.line, summary, "For example: <<: *base", self._file)
                    merged += each.entries
                continue
            node = self.node(value, depth + 1)
            if name in entries and plain(entries[name].node) != plain(node):
                raise _error(
                    line,
                    f"`{truncate(clean_line(name), 60)}` is given twice (first on line {entries[name].line}).",
                    "Keep one of the two: YAML would silently take the last.",
                    self._file,
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
        except (ValueError, KeyError):
            summary = f"`{truncate(clean_line(found.value), 40)}` is not a value of its kind."
            raise _error(_line(found), summary, "Put quotes around a text.", self._file) from None
        return value

    def _bad_tag(self, found: Any) -> PresetError:
        summary = f"The tag {truncate(clean_line(found.tag), 60)} is not for recipes."
        return _error(_line(found), summary, "Remove the tag: plain values are enough.", self._file)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _error(line: int, summary: str, remedy: str, file: str) -> PresetError:
    return PresetError(summary, remedy, file=file, line=line)


def _too_deep(line: int, file: str) -> PresetError:
    return _error(line, f"The file is nested deeper than {MAX_DEPTH} levels.", "A recipe needs no more than six.", file)


def _syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> PresetError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    lines = text.splitlines()
    excerpt = lines[line - 1] if 0 < line <= len(lines) else ""
    problem = clean_line(str(error.problem or error.context or "unreadable"))
    indented_by_tab = "\t" in excerpt[: len(excerpt) - len(excerpt.lstrip())]
    remedy = "Indent with spaces: YAML allows no tabs." if indented_by_tab else "Correct it there, or just above."
    detail = truncate(clean_line(excerpt), 200)
    return PresetError(f"The file is not valid YAML: {problem}.", remedy, file=file, line=line, detail=detail)
