"""YAML text of recipe files as located documents, by PyYAML's rules and with bounds on what a file can cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.located import MERGE_KEY, DocumentBuilder, Node
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line, truncate

if TYPE_CHECKING:
    import yaml

MAX_BYTES: Final = 1024 * 1024
"""A recipe is a few kilobytes. What is larger is something else, and is not even parsed."""

SUFFIXES: Final = (".yaml", ".yml")

_TAGS: Final = "tag:yaml.org,2002:"
_TYPED: Final = ("null", "bool", "int", "float")
# Dates and binary data stay as they are written: a recipe has no use for either.
_TEXTUAL: Final = ("str", "timestamp", "binary", "merge", "value")


def read_text(path: Path) -> str:
    """The text of a file, UTF-8 or UTF-16. Raises OSError, or PresetError for what is too large or no text."""
    with path.open("rb") as file:
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
    """The error for a file that no recipe is."""
    return PresetError(
        f"The file is {human_bytes(size)}; a recipe is at most {human_bytes(MAX_BYTES)}.",
        "Move it out of the preset folder.",
        file=str(path),
    )


def parse(text: str, file: str) -> Node:
    """The document in `text`, with the semantics of PyYAML's safe loader, which sparkrun uses.

    Raises PresetError with file and line for anything that is not one sound document.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = DocumentBuilder(file)
    scalars = _Scalars(file)
    try:
        documents = 0
        for event in yaml.parse(text, Loader=loader):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _error(event, "The file holds more than one document.", "Keep one recipe in one file.", file)
            _take(event, builder, scalars, file)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, file) from None
    except yaml.reader.ReaderError:
        raise _forbidden_character(text, file) from None
    except UnicodeError:
        raise PresetError("The file holds half a character.", "Save it as UTF-8.", file=file) from None
    if builder.root is None:
        raise PresetError("The file is empty.", "Write a recipe into it, or remove it.", file=file, line=1)
    return builder.root


def _take(event: yaml.Event, builder: DocumentBuilder, scalars: _Scalars, file: str) -> None:
    import yaml

    line = _line(event)
    match event:
        case yaml.ScalarEvent() if builder.wants_key:
            plain = event.tag is None and event.implicit[0]
            builder.key(event.value, line, anchor=event.anchor, merge=plain and event.value == MERGE_KEY)
        case yaml.ScalarEvent():
            builder.scalar(scalars.value(event), line, anchor=event.anchor)
        case yaml.AliasEvent():
            builder.alias(str(event.anchor), line)
        case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
            mapping = isinstance(event, yaml.MappingStartEvent)
            if event.tag not in (None, "!", _TAGS + ("map" if mapping else "seq")):
                raise _bad_tag(event, file)
            builder.begin(line, mapping=mapping, anchor=event.anchor)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            builder.end()
        case _:
            pass


class _Scalars:
    """Scalars by the safe loader's rules: `yes` is true, `1_000` a number, `0.85` a number, the rest text."""

    def __init__(self, file: str) -> None:
        import yaml

        self._file = file
        self._node: Any = yaml.ScalarNode
        self._resolver: Any = yaml.resolver.Resolver()
        self._constructor: Any = yaml.constructor.SafeConstructor()

    def value(self, event: Any) -> Scalar:
        tag = event.tag
        if tag in (None, "!"):
            tag = self._resolver.resolve(self._node, event.value, event.implicit)
        kind = tag.removeprefix(_TAGS)
        if kind in _TEXTUAL:
            return str(event.value)
        if kind not in _TYPED:
            raise _bad_tag(event, self._file)
        try:
            value: Scalar = getattr(self._constructor, f"construct_yaml_{kind}")(self._node(tag, event.value))
        except (ValueError, KeyError):
            shown = truncate(clean_line(event.value), 40)
            raise _error(
                event, f"`{shown}` is not a value of its kind.", "Put quotes around a text.", self._file
            ) from None
        return value


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _error(event: Any, summary: str, remedy: str, file: str) -> PresetError:
    return PresetError(summary, remedy, file=file, line=_line(event))


def _bad_tag(event: Any, file: str) -> PresetError:
    tag = truncate(clean_line(event.tag), 60)
    return _error(event, f"The tag {tag} is not for recipes.", "Remove the tag: plain values are enough.", file)


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


def _forbidden_character(text: str, file: str) -> PresetError:
    from yaml.reader import Reader

    found = Reader.NON_PRINTABLE.search(text)
    which = f"the control character {ord(found[0]):#06x}" if found else "a control character"
    return PresetError(
        f"The file holds {which}, which YAML does not allow.",
        "Remove it, or write it as an escape within double quotes.",
        file=file,
        line=text.count("\n", 0, found.start()) + 1 if found else 0,
    )
