"""Recipe files of other people: gathered from a file, a folder or a git checkout, and presets written for the person.

What is gathered is a stranger's: links are never followed, folders are bounded in depth and number, files in size,
and nothing outside the named folder and its registry is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import PresetError, RefusedError, SparkError, UsageError
from spark_tui.domain.presets.dialects.importing import FoundFile, Gathered, is_recipe
from spark_tui.domain.presets.dialects.provenance import Registry
from spark_tui.domain.text import clean_line
from spark_tui.services.recipe_registry import (
    MAX_SCRIPT_BYTES,
    MOD_FOLDER,
    RECIPE_FOLDER,
    described,
    is_within,
    manifest_of,
    read_bytes,
    registry_root,
)
from spark_tui.services.recipe_yaml import MAX_BYTES, SUFFIXES, decoded, parse, read_text

MAX_DEPTH: Final = 8
MAX_RECIPES: Final = 2_000
MAX_ENTRIES: Final = 50_000
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
FILE_MODE: Final = 0o644

_SCRIPT: Final = "run.sh"


class FolderRecipeShelf:
    """The RecipeShelf port. `own` is the person's preset folder; None where nothing may be written."""

    def __init__(self, own: Path | None) -> None:
        self._own = own

    # --- reading --------------------------------------------------------------------------------------

    def gather(self, source: Path) -> Gathered:
        """Every recipe in a file or folder. Raises UsageError for a path that is neither, PresetError for a file that
        cannot be read, or for a folder that is too large."""
        try:
            found = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{clean_line(str(source))} cannot be read: {getattr(error, 'strerror', None) or error}.",
                "Name a recipe file, or a folder of them: a registry that you have cloned with git, for example.",
            ) from None
        root = registry_root(found)
        manifest = manifest_of(root)
        mods = tuple(dict.fromkeys((*manifest.mods, MOD_FOLDER)))
        walk = _Walk(root)
        if found.is_dir():
            starts = [root / path for path in manifest.recipes] if found == root else []
            if found == root and not starts and is_within(root / RECIPE_FOLDER, root):
                starts = [root / RECIPE_FOLDER]
            for start in starts or [found]:
                walk.folder(start)
        else:
            walk.beside(found)
        for folder in mods:
            walk.scripts_in(root / folder)
        registry = described(root, mods, walk.scripts)
        return Gathered(registry, *walk.result(found), tuple(walk.passed_over))

    def given(self, text: str, called: str) -> Gathered:
        """A text in place of a file. Raises PresetError for one that is too large."""
        if len(text) > MAX_BYTES:
            raise PresetError(f"The text is longer than {MAX_BYTES:,} characters.", "Give the part that matters.")
        return Gathered(Registry(""), (_read_text(called, text, called),))

    def recipe(self, file: str) -> FoundFile:
        """A preset's file, as it is written. Raises PresetError."""
        try:
            text = read_text(Path(file))
        except OSError as error:
            raise PresetError(
                f"The preset's file cannot be read: {error.strerror or error}.", "Restore it.", file=file
            ) from None
        return FoundFile(file, text, parse(text, file))

    # --- writing --------------------------------------------------------------------------------------

    def own_text(self, name: str) -> str | None:
        """What the person's own file of that name holds, None where there is none. Raises PresetError."""
        path = self._path(name)
        if path is None or not os.path.lexists(path):
            return None
        try:
            return read_text(path)
        except OSError as error:
            raise PresetError(f"Your file of that name cannot be read: {error.strerror}.", "", file=str(path)) from None

    def write(self, name: str, text: str, *, replace: bool = False) -> Path:
        """Puts a preset into the person's folder in one step, mode 0644, and returns its path.

        Raises RefusedError when there is a file of that name and `replace` is false, SparkError when it cannot be
        written; then nothing has changed.
        """
        path = self._path(name)
        if path is None or self._own is None:
            raise RefusedError("The demo writes no presets.", "Leave out --demo.")
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            _put(path, text.encode("utf-8"), replace=replace)
        except FileExistsError:
            raise RefusedError(f"{path} is there already.", "Replace it with --force, or give a --name.") from None
        except OSError as error:
            raise SparkError(
                f"{path} cannot be written: {error.strerror or error}.", f"See who may write to {self._own}."
            ) from error
        return path

    def _path(self, name: str) -> Path | None:
        if self._own is None:
            return None
        paths = [self._own / (name + suffix) for suffix in SUFFIXES]
        return next((path for path in paths if os.path.lexists(path)), paths[0])


def _read_text(name: str, text: str, place: str) -> FoundFile:
    try:
        return FoundFile(name, text, parse(text, place))
    except PresetError as error:
        return FoundFile(name, text, problem=error)


def _put(path: Path, content: bytes, *, replace: bool) -> None:
    """A link in the file's place is replaced, never followed."""
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)  # fails where there is a file, which a rename would silently replace
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


# --- walking ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Walk:
    """One look through a registry, with what is left of its bounds."""

    root: Path
    files: dict[str, FoundFile] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    passed_over: list[PresetError] = field(default_factory=list)
    entries_left: int = MAX_ENTRIES
    bytes_left: int = MAX_TOTAL_BYTES

    def folder(self, top: Path) -> None:
        """Every YAML file below a folder, and the scripts of the mods that lie there."""
        for path in self._files(top, MAX_DEPTH):
            if path.suffix in SUFFIXES:
                self._recipe(path)
            elif path.name == _SCRIPT:
                self._script(path)

    def beside(self, file: Path) -> None:
        """A file, and those of its folder: it may include them. What lies there besides is nobody's concern."""
        self._recipe(file)
        told = len(self.passed_over)
        for path in self._files(file.parent, 0):
            if path.suffix in SUFFIXES and path != file:
                self._recipe(path)
        self.scripts_in(file.parent, 1)
        self.scripts_in(file.parent / MOD_FOLDER)
        del self.passed_over[told:]

    def scripts_in(self, top: Path, depth: int = 2) -> None:
        """The scripts of mods below a folder; none where there is no such folder."""
        if top.is_dir() and not top.is_symlink():
            for path in self._files(top, depth):
                if path.name == _SCRIPT:
                    self._script(path)

    def result(self, asked: Path) -> tuple[tuple[FoundFile, ...], tuple[FoundFile, ...]]:
        """What was asked for, and what lies beside it. In a folder only recipes count; a named file always does."""
        if asked.is_dir():
            found = tuple(f for f in self.files.values() if f.problem is not None or is_recipe(f.document))
            return tuple(sorted(found, key=lambda each: each.path)), ()
        name = self._relative(asked)
        return (self.files[name],), tuple(f for f in self.files.values() if f.path != name)

    def _files(self, top: Path, depth: int) -> Iterator[Path]:
        waiting = [(top, 0)]
        while waiting:
            folder, level = waiting.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError as error:
                self._pass(folder, f"The folder cannot be read: {error.strerror or error}.", "Make it readable.")
                continue
            for entry in entries:
                self._spend(entry.path)
                path = Path(entry.path)
                if entry.name.startswith("."):
                    continue
                if entry.is_symlink():
                    if path.suffix in SUFFIXES or path.is_dir():
                        self._pass(path, "This is a link, and links are not followed.", "Name what it points to.")
                elif entry.is_dir(follow_symlinks=False):
                    if level < depth:
                        waiting.append((path, level + 1))
                elif entry.is_file(follow_symlinks=False):
                    yield path

    def _spend(self, path: str) -> None:
        self.entries_left -= 1
        if self.entries_left < 0:
            raise PresetError(
                f"The folder holds more than {MAX_ENTRIES:,} files.",
                "Name the folder that holds the recipes.",
                file=path,
            )

    def _recipe(self, path: Path) -> None:
        name = self._relative(path)
        if name in self.files:
            return
        if len(self.files) >= MAX_RECIPES:
            raise PresetError(
                f"The folder holds more than {MAX_RECIPES:,} YAML files.", "Name a smaller folder.", file=str(path)
            )
        try:
            text = decoded(self._read(path, MAX_BYTES), path)
            found = _read_text(name, text, str(path))
            # A broken recipe is told as one; in any other text there may be commands.
            self.files[name] = replace(found, text="") if path.suffix in SUFFIXES and found.problem else found
        except PresetError as error:
            self.files[name] = FoundFile(name, problem=error)
        except OSError as error:
            said = f"The file cannot be read: {error.strerror or error}."
            self.files[name] = FoundFile(name, problem=PresetError(said, "Make it readable.", file=str(path)))

    def _script(self, path: Path) -> None:
        try:
            self.scripts[self._relative(path)] = self._read(path, MAX_SCRIPT_BYTES).decode("utf-8", "replace")
        except OSError as error:
            self._pass(path, f"The mod's script cannot be read: {error.strerror or error}.", "Make it readable.")

    def _read(self, path: Path, most: int) -> bytes:
        content = read_bytes(path, most)
        self.bytes_left -= len(content)
        if self.bytes_left < 0:
            raise PresetError(
                f"The folder's recipes are more than {MAX_TOTAL_BYTES // 1024**2} MiB.",
                "Name a smaller folder.",
                file=str(path),
            )
        return content

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _pass(self, path: Path, summary: str, remedy: str) -> None:
        self.passed_over.append(PresetError(summary, remedy, file=clean_line(str(path))))
