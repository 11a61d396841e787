"""Presets from YAML files: the built-in folder and the person's own. Whatever the files hold, loading never raises."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.document import MERGE_KEY, DocumentBuilder
from spark_tui.domain.presets.knobs import KNOBS
from spark_tui.domain.presets.located import Node
from spark_tui.domain.presets.preset import Origin, Preset, PresetCatalogue, Scalar
from spark_tui.domain.presets.recipe import preset_from
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


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What a file looked like when it was read: the same stamp gives the same result."""

    path: str
    inode: int
    size: int
    modified_ns: int


def builtin_directory() -> Path:
    """The presets that come with the program: in a wheel beside the code, in a checkout at its top."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "_presets"
    return shipped if shipped.is_dir() else package.parent / "presets"


class PresetFiles:
    """Reads both folders. A file of the person's own takes the place of a built-in preset of the same name."""

    def __init__(self, builtin: Path, user: Path | None = None) -> None:
        self._builtin = builtin
        self._user = user
        self._read: dict[_Stamp, Preset | PresetError] = {}
        self._reported: dict[str, PresetError] = {}

    def load(self) -> PresetCatalogue:
        """Every preset that can be read, and a problem for every file that cannot. Never raises.

        Files that have not changed since the last call are not read again, and an unchanged folder gives an equal
        catalogue.
        """
        read: dict[_Stamp, Preset | PresetError] = {}
        presets: dict[str, Preset] = {}
        problems: list[PresetError] = []
        for found in self._everything(read):
            earlier = presets.get(found.name if isinstance(found, Preset) else Path(found.file).stem)
            if isinstance(found, PresetError):
                problems.append(_standing_in(found, earlier) if earlier else found)
            elif earlier is not None and earlier.origin is found.origin:
                problems.append(_same_name(found, earlier))
            else:
                presets[found.name] = found
        self._read = read
        self._reported = {str(problem): self._reported.get(str(problem), problem) for problem in problems}
        return PresetCatalogue(tuple(presets[name] for name in sorted(presets)), tuple(self._reported.values()))

    def _everything(self, read: dict[_Stamp, Preset | PresetError]) -> Iterator[Preset | PresetError]:
        yield from self._folder(self._builtin, Origin.BUILTIN, read)
        if self._user is not None and (self._user.exists() or self._user.is_symlink()):
            yield from self._folder(self._user, Origin.USER, read)

    def _folder(
        self, folder: Path, origin: Origin, read: dict[_Stamp, Preset | PresetError]
    ) -> Iterator[Preset | PresetError]:
        try:
            # Editors leave lock files, and dangling links, that begin with a dot.
            files = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
        except OSError as error:
            yield _unreadable(folder, "The preset folder", error)
            return
        for path in files:
            yield self._file(path, origin, read)

    def _file(self, path: Path, origin: Origin, read: dict[_Stamp, Preset | PresetError]) -> Preset | PresetError:
        try:
            stamp = _stamp(path)
            found = self._read.get(stamp) or _preset(path, origin)
        except PresetError as error:
            return error
        except OSError as error:
            return _unreadable(path, "The file", error)
        read[stamp] = found
        return found


# --- files ------------------------------------------------------------------------------------------------


def _preset(path: Path, origin: Origin) -> Preset | PresetError:
    """Raises OSError when the file cannot be read now; a mistake within it is a result, and is kept."""
    try:
        _check_name(path)
        return preset_from(parse(_text(path), str(path)), name=path.stem, origin=origin, file=str(path))
    except PresetError as error:
        return error


def _stamp(path: Path) -> _Stamp:
    """Follows links. Raises OSError for a dangling one, PresetError for what is no file, or too large."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise PresetError(
            "This is a folder, not a recipe.", "Rename it, or move it out of the preset folder.", file=str(path)
        )
    if not stat.S_ISREG(status.st_mode):
        # Opening a pipe would wait for a writer for ever.
        raise PresetError("This is not a regular file.", "Move it out of the preset folder.", file=str(path))
    if status.st_size > MAX_BYTES:
        raise _too_large(path, status.st_size)
    return _Stamp(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise _too_large(path, len(raw))
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise PresetError(
            f"The file is not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}.",
            "Save it as UTF-8.",
            file=str(path),
            line=raw.count(b"\n", 0, error.start) + 1,
        ) from None


def _check_name(path: Path) -> None:
    try:
        KNOBS["name"].read(path.stem)
    except ValueError:
        raise PresetError(
            f"The file's name cannot be a preset's name: {truncate(ascii(path.stem), 80)}.",
            "Rename it with letters, digits, `_`, `.` and `-`, at most 63, the first a letter or digit.",
            file=ascii(str(path))[1:-1],
        ) from None


def _too_large(path: Path, size: int) -> PresetError:
    return PresetError(
        f"The file is {human_bytes(size)}; a recipe is at most {human_bytes(MAX_BYTES)}.",
        "Move it out of the preset folder.",
        file=str(path),
    )


def _same_name(preset: Preset, earlier: Preset) -> PresetError:
    return PresetError(
        f"{Path(earlier.file).name} gives a preset of this name too, and that one is used.",
        "Rename or remove one of the two files.",
        file=preset.file,
    )


def _standing_in(problem: PresetError, earlier: Preset) -> PresetError:
    """The problem of a file that was to replace another preset: the person must know which one they have now."""
    which = "built-in preset of this name" if earlier.origin is Origin.BUILTIN else Path(earlier.file).name
    summary = f"{problem.summary} Until then the {which} is used."
    return PresetError(summary, problem.remedy, file=problem.file, line=problem.line, detail=problem.detail)


def _unreadable(path: Path, what: str, error: OSError) -> PresetError:
    match error:
        case PermissionError():
            remedy = "Make it readable: chmod u+rX."
        case FileNotFoundError() | NotADirectoryError():
            remedy = "It is gone, or a link to something that is: restore or remove it."
        case _:
            remedy = "Mend or remove it."
    shown = ascii(str(path))[1:-1] if not str(path).isprintable() else str(path)
    return PresetError(f"{what} cannot be read: {error.strerror or error}.", remedy, file=shown)


# --- YAML -------------------------------------------------------------------------------------------------


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
