"""Presets from YAML files: the built-in folder and the person's own. Whatever the files hold, loading never raises."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

import spark_tui
from spark_tui.base.engine.invocation import OPTIONS
from spark_tui.base.errors import PresetError
from spark_tui.base.files import PrivateFolder
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import truncate
from spark_tui.catalog.presets.adapter.kept import KeptPresets, Stamp
from spark_tui.catalog.presets.adapter.recipe_yaml import MAX_BYTES, SUFFIXES, parse, read_text, too_large
from spark_tui.catalog.presets.model.include import with_included
from spark_tui.catalog.presets.model.located import Node
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetCatalogue
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.use.rights import AllowedPresets

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
