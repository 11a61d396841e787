"""Presets from YAML files: the built-in folder and the person's own. Whatever the files hold, loading never raises."""

from __future__ import annotations

import hashlib
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import spark_tui
from spark_tui import __version__
from spark_tui.base.engine import runtimes
from spark_tui.base.engine.invocation import OPTIONS
from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.errors import PresetError
from spark_tui.base.files import PrivateFolder, open_plain
from spark_tui.base.quantities import human_bytes
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.yaml_nodes import YamlProblem, compose_yaml, not_of_its_kind
from spark_tui.catalog.presets.model import preset as read_as
from spark_tui.catalog.presets.model.preset import (
    Entry,
    ListValue,
    MappingValue,
    Node,
    Origin,
    Preset,
    PresetCatalogue,
    ScalarValue,
    plain,
)
from spark_tui.catalog.presets.model.recipe import preset_from, with_included
from spark_tui.catalog.presets.use.rights import AllowedPresets

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
            value = self._value(found)
            word = found.value if isinstance(value, bool) and found.value.lower() not in ("true", "false") else ""
            return ScalarValue(value, line, word)
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


# --- kept ------------------------------------------------------------------------------------------------


_MOST_BYTES: Final = 64 << 20
_DIGEST: Final = 32
_SETTLED_SECONDS: Final = 2.0
"""A file that changed less than two seconds before it was read may change again within the clock's step."""


class Stamp(Struct, frozen=True):
    """What a file looked like when it was read: the same stamp gives the same result."""

    path: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class _Saved(msgspec.Struct, frozen=True):
    version: str
    presets: list[tuple[Stamp, Preset]]


class KeptPresets:
    """Presets by their files' stamps. `of` are the folders that are read: each set has a file of its own."""

    def __init__(self, files: PrivateFolder, *of: Path | None, now: Callable[[], float] = time.time) -> None:
        self._files = files
        self._now = now
        name = hashlib.sha256("\0".join(map(str, of)).encode("utf-8", "surrogateescape")).hexdigest()
        self._path = files.file(f"presets-{name[:16]}", ".msgpack")

    def load(self) -> dict[Stamp, Preset]:
        """Nothing where the file is another version's, damaged, or cannot be read."""
        with suppress(OSError, msgspec.MsgspecError, RecursionError, ValueError):
            data = self._files.read(self._path, _MOST_BYTES) or b""
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                found = msgspec.msgpack.decode(data[_DIGEST:], type=_Saved)
                return dict(found.presets) if found.version == _version() else {}
        return {}

    def save(self, presets: Mapping[Stamp, Preset]) -> None:
        """Keeps those alone whose files have settled. A folder that cannot be written is passed over."""
        latest = (self._now() - _SETTLED_SECONDS) * 1e9
        settled = [pair for pair in presets.items() if max(pair[0].modified_ns, pair[0].changed_ns) < latest]
        with suppress(OSError, OverflowError, UnicodeError):  # a whole number, or a name, that the format cannot hold
            data = msgspec.msgpack.encode(_Saved(_version(), settled))
            self._files.write(self._path, [hashlib.sha256(data).digest(), data])


def _version() -> str:
    """Of the code that reads recipes, and of what it knows of models: in a checkout they change under one version."""
    folders = [Path(str(place)).parent for place in (read_as.__file__, runtimes.__file__, __file__)]
    code = (path for folder in folders for path in folder.iterdir() if path.suffix in (".py", ".toml"))
    return f"{__version__} {max(path.stat().st_mtime_ns for path in code)}"


# --- store -----------------------------------------------------------------------------------------------


__all__ = ["MAX_BYTES", "SUFFIXES", "PresetFiles", "builtin_directory", "parse"]


_Read: TypeAlias = dict[tuple[Stamp, ...], Preset | PresetError]
"""Results by the stamps of the file and of those that it includes."""


def builtin_directory() -> Path:
    """The presets that come with the program: in a wheel beside the code, in a checkout at its top."""
    package = Path(spark_tui.__file__).resolve().parent
    shipped = package / "_presets"
    return shipped if shipped.is_dir() else package.parent / "presets"


def allowed_presets(ports: Any, user: Path, registries: Path | None = None, kept: Path | None = None) -> AllowedPresets:
    """Those of the folders, with what the person allowed them."""
    folder = PrivateFolder(kept) if kept is not None else None
    return AllowedPresets(PresetFiles(ports.builtin_presets, user, registries, folder), ports.state)


class PresetFiles:
    """Reads all folders. A file of the person's own takes the place of another preset of the same name. `registries`
    holds a folder for each registry. `kept` is where `glance` keeps what it read."""

    def __init__(
        self,
        builtin: Path,
        user: Path | None = None,
        registries: Path | None = None,
        kept: PrivateFolder | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._builtin = builtin
        self._user = user
        self._registries = registries
        self._kept = KeptPresets(kept, builtin, user, registries, now=now) if kept is not None else None
        self._read: _Read = {}
        self._known: dict[Stamp, list[tuple[tuple[Stamp, ...], Preset | PresetError]]] = {}
        self._names: tuple[str, ...] | None = None
        """Of the folders' presets, as they were when this load first wanted them."""
        self._reported: dict[str, PresetError] = {}

    def load(self) -> PresetCatalogue:
        """Files that have not changed since the last call are not read again, and an unchanged folder gives an equal
        catalogue."""
        catalogue, self._read = self._catalogue(self._read)
        return catalogue

    def glance(self) -> PresetCatalogue:
        """As `load`, for what is only shown: a file that has not changed is taken as an earlier run of this version
        read it. `load` trusts none of it."""
        if self._kept is None or self._read:
            return self.load()
        kept = self._kept.load()
        catalogue, read = self._catalogue({(stamp,): preset for stamp, preset in kept.items()})
        now = {
            stamps[0]: found
            for stamps, found in read.items()
            if len(stamps) == 1 and isinstance(found, Preset) and (stamps[0] in kept or not _holds_secret(found))
        }
        if now.keys() != kept.keys():
            self._kept.save(now)
        return catalogue

    def _catalogue(self, before: _Read) -> tuple[PresetCatalogue, _Read]:
        read: _Read = {}
        self._known, self._names = {}, None
        for pair in before.items():
            self._known.setdefault(pair[0][0], []).append(pair)
        presets: dict[str, Preset] = {}
        problems: list[PresetError] = []
        everything = self._folder(self._builtin, Origin.BUILTIN, read)
        if self._registries is not None and self._registries.is_dir():
            for folder in sorted(self._registries.iterdir()):
                everything += self._folder(folder, Origin.REGISTRY, read) if not folder.name.startswith(".") else []
        if self._user is not None and (self._user.exists() or self._user.is_symlink()):
            everything += self._folder(self._user, Origin.USER, read)
        for found in everything:
            earlier = presets.get(found.name if isinstance(found, Preset) else Path(found.file).stem)
            if isinstance(found, PresetError):
                problems.append(_beside(found, earlier) if earlier else found)
            elif earlier is not None and earlier.origin is found.origin:
                summary = f"{Path(earlier.file).name} gives a preset of this name too, and that one is used."
                problems.append(PresetError(summary, "Rename or remove one of the two files.", file=found.file))
            else:
                presets[found.name] = found
        self._reported = {str(problem): self._reported.get(str(problem), problem) for problem in problems}
        found_all = tuple(presets[name] for name in sorted(presets))
        return PresetCatalogue(found_all, tuple(self._reported.values())), read

    def _folder(self, folder: Path, origin: Origin, read: _Read) -> list[Preset | PresetError]:
        try:
            # Editors leave lock files, and dangling links, that begin with a dot.
            files = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
        except OSError as error:
            return [_unreadable(folder, "The preset folder", error)]
        return [self._file(path, origin, read) for path in files]

    def _file(self, path: Path, origin: Origin, read: _Read) -> Preset | PresetError:
        try:
            stamp = _stamp(path)
            unchanged = (pair for pair in self._known.get(stamp, ()) if all(_is_still(other) for other in pair[0][1:]))
            stamps, found = next(unchanged, None) or self._new(path, origin, stamp)
        except PresetError as error:
            return error
        except OSError as error:
            return _unreadable(path, "The file", error)
        read[stamps] = found
        return found

    def _new(self, path: Path, origin: Origin, stamp: Stamp) -> tuple[tuple[Stamp, ...], Preset | PresetError]:
        """Raises OSError when a file cannot be read now; a mistake within it is a result, and is kept."""
        stamps = [stamp]
        folders = [folder for folder in (self._user, self._builtin) if folder is not None]

        def find(name: str, file: str) -> tuple[str, Node] | None:
            """A preset by its name: the person's own first, but for one that includes its own name."""
            if Path(name).name != name or name in ("", ".", ".."):
                return None
            for base in (folder / f"{name}{suffix}" for folder in folders for suffix in SUFFIXES):
                if base.is_file() and str(base) != file:
                    stamps.append(_stamp(base))
                    return str(base), parse(read_text(base), str(base))
            return None

        try:
            _check_name(path)
            document = parse(read_text(path), str(path))
            chain: tuple[str, ...] = ()
            if origin is Origin.USER:
                if self._names is None:
                    found = (each for folder in folders for each in folder.glob("*"))
                    self._names = tuple(each.stem for each in found if each.suffix in SUFFIXES)
                document, chain = with_included(document, str(path), find, self._names)
            preset = preset_from(document, name=path.stem, origin=origin, file=str(path))
            return tuple(stamps), replace(preset, includes=chain)
        except PresetError as error:
            return tuple(stamps), error


def _is_still(stamp: Stamp) -> bool:
    try:
        return _stamp(Path(stamp.path)) == stamp
    except (OSError, PresetError):
        return False


def _stamp(path: Path) -> Stamp:
    """Follows links. Raises OSError for a dangling one, PresetError for what is no file, or too large."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        remedy = "Rename it, or move it out of the preset folder."
        raise PresetError("This is a folder, not a recipe.", remedy, file=str(path))
    if not stat.S_ISREG(status.st_mode):
        # Opening a pipe would wait for a writer for ever.
        raise PresetError("This is not a regular file.", "Move it out of the preset folder.", file=str(path))
    if status.st_size > MAX_BYTES:
        raise too_large(path, status.st_size)
    return Stamp(str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _holds_secret(preset: Preset) -> bool:
    """Whether a recipe may hold a key or token itself, which is copied nowhere."""
    named = (*preset.env, *preset.defaults, *preset.unknown)
    text = "\n".join((preset.command, *preset.hooks, *preset.mods, *(f"{name}={value}" for name, value in named)))
    return mask_secrets(text) != text


def _check_name(path: Path) -> None:
    try:
        OPTIONS["name"].read(path.stem)
    except ValueError:
        raise PresetError(
            f"The file's name cannot be a preset's name: {truncate(ascii(path.stem), 80)}.",
            "Rename it with letters, digits, `_`, `.` and `-`, at most 63, the first a letter or digit.",
            file=ascii(str(path))[1:-1],
        ) from None


def _beside(problem: PresetError, earlier: Preset) -> PresetError:
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
            remedy = "Correct or remove it."
    shown = ascii(str(path))[1:-1] if not str(path).isprintable() else str(path)
    return PresetError(f"{what} cannot be read: {error.strerror or error}.", remedy, file=shown)
