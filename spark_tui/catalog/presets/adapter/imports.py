"""Recipes of other people: from a file, a folder or a git checkout, and what the registry says of itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.errors import PresetError, RefusedError, SparkError, UsageError
from spark_tui.base.files import write_whole
from spark_tui.base.shell import unquoted
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.adapter.store import MAX_BYTES, SUFFIXES, decoded, parse, read_text
from spark_tui.catalog.presets.model.dialects.compose_files import has_engine, is_compose
from spark_tui.catalog.presets.model.dialects.docker_run import HOME
from spark_tui.catalog.presets.model.dialects.found_files import blocks_within, launcher_of
from spark_tui.catalog.presets.model.dialects.importing import (
    CollectedFiles,
    FoundFile,
    Registry,
    is_recipe,
    licence_of,
    remote_of,
)
from spark_tui.catalog.presets.model.dialects.launchers import Beside, NothingBeside
from spark_tui.catalog.presets.model.dialects.recipe_files import with_store
from spark_tui.catalog.presets.model.preset import ListValue, MappingValue, Node, compact
from spark_tui.catalog.presets.model.recipe import Dialect

MAX_SCRIPT_BYTES: Final = 64 * 1024
MOD_FOLDER: Final = "mods"
RECIPE_FOLDER: Final = "recipes"
MODEL_FOLDER: Final = "models"
"""Of vLLM's recipes, beside their taxonomy."""
_TAXONOMY: Final = "taxonomy.yaml"

_MANIFEST: Final = Path(".sparkrun/registry.yaml")
_DOCUMENT = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_CONTENT = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
_ETC: Final = Path("/etc")
_LICENCE_FILES: Final = ("LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE", "COPYING")
_LEVELS_UP: Final = 6
_LEVELS_TO_MODS: Final = 3


def read_bytes(path: Path, most: int) -> bytes:
    """At most one byte more than `most`, of a regular file and of no link. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is not a regular file", str(path))
        return file.read(most + 1)


def registry_root(found: Path) -> Path:
    """The registry that a file or folder is part of: the folder itself where it looks like one, else the nearest
    that has a manifest, is a checkout, or has a folder of mods."""
    start = found if found.is_dir() else found.parent
    if found.is_dir() and any((found / name).is_dir() for name in (RECIPE_FOLDER, MOD_FOLDER)):
        return found
    above = (start, *start.parents[:_LEVELS_UP])
    registry = next((folder for folder in above if (folder / _MANIFEST).is_file() or _is_checkout(folder)), None)
    with_mods = (folder for folder in above[:_LEVELS_TO_MODS] if (folder / MOD_FOLDER).is_dir())
    return registry or next(with_mods, start)


def _is_checkout(folder: Path) -> bool:
    git = folder / ".git"
    return git.is_dir() and not git.is_symlink()


def manifest_of(root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders of recipes and of mods that `.sparkrun/registry.yaml` names, relative to it; names that lead out of it
    are no folders of it. Nothing where there is no manifest, or a broken one: then the recipes are found by looking."""
    text = _small_text(root / _MANIFEST)
    try:
        node = parse(text, str(root / _MANIFEST)) if text else None
    except PresetError:
        node = None
    entry = node.get("registries") if isinstance(node, MappingValue) else None
    listed = entry.node.items if entry is not None and isinstance(entry.node, ListValue) else ()
    found: dict[str, list[str]] = {"recipes": [], "mods": []}
    for key, names in found.items():
        for table in listed:
            folder = table.get(key) if isinstance(table, MappingValue) else None
            name = compact(folder.node) if folder is not None else ""
            inside = not name.startswith("/") and ".." not in name.split("/")
            name = name.strip("/")
            if name and inside and name not in names and is_within(root / name, root):
                names.append(name)
    return tuple(found["recipes"]), tuple(found["mods"])


def is_within(path: Path, root: Path) -> bool:
    """Whether a folder is there, and within the registry once its links are followed."""
    return path.is_dir() and path.resolve().is_relative_to(root)


def described(root: Path, mods: tuple[str, ...], scripts: dict[str, str]) -> Registry:
    """The registry with what its licence files and its git directory say."""
    git = next((folder / ".git" for folder in (root, *root.parents[:_LEVELS_UP]) if _is_checkout(folder)), None)
    more = root / "licenses"
    texts = sorted(more.iterdir())[:5] if more.is_dir() and not more.is_symlink() else []
    licences = (licence_of(_small_text(path)) for path in (*(root / name for name in _LICENCE_FILES), *texts))
    return Registry(
        root=str(root),
        address=truncate(remote_of(_small_text(git / "config")), 200) if git else "",
        commit=_commit(git) if git else "",
        licence=next(filter(None, licences), ""),
        mod_folders=mods,
        scripts=scripts,
    )


def _commit(git: Path) -> str:
    """What is checked out: HEAD, a branch's file, or its line among the packed ones."""
    head = _small_text(git / "HEAD").strip()
    reference = head.removeprefix("ref: ").strip()
    found = [head]
    if head != reference:
        outside = ".." in reference.split("/") or reference.startswith("/")
        packed = (line.partition(" ") for line in _small_text(git / "packed-refs").splitlines())
        found = [_small_text(git / reference).strip(), *(text for text, _, name in packed if name == reference)]
        found = [] if outside else found
    return next((text for text in found if re.fullmatch(r"[0-9a-f]{40}", text)), "")


def _small_text(path: Path) -> str:
    """A small file's text, empty where there is none: its facts are then unknown."""
    try:
        return read_bytes(path, MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


MAX_DEPTH: Final = 8
MAX_RECIPES: Final = 2_000
MAX_WITHIN: Final = 200
"""Parts of one text that are read as a recipe."""
MAX_ENTRIES: Final = 50_000
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
FILE_MODE: Final = 0o644

_SCRIPT: Final = "run.sh"


class FolderFiles:
    """The Beside port: regular files below a folder, and, with the person's `home`, those below it and in /etc."""

    def __init__(self, root: Path, home: Path | None) -> None:
        self._home = home
        self._roots = (root,) if home is None else (root, home.resolve(), _ETC)

    def text(self, path: str) -> str | None:
        place = self._roots[0] / path
        if path.startswith(f"{HOME}/") and self._home is not None:
            place = self._home / path[len(HOME) + 1 :]
        if not any((place.parent.resolve() / place.name).is_relative_to(root) for root in self._roots):
            return None
        try:
            return decoded(read_bytes(place, MAX_BYTES), place)
        except FileNotFoundError:
            return None
        except OSError as error:
            link = " It is a link, and links are not followed." if place.is_symlink() else ""
            raise PresetError(
                f"The file names {clean_line(path)}, which cannot be read: {error.strerror or error}.{link}",
                "Put a regular file there.",
            ) from None

    def document(self, path: str) -> Node | None:
        text = self.text(path)
        return None if text is None else parse(text, path)


class FolderRecipeStore:
    """The RecipeStore port. `own` is the person's preset folder; None where nothing may be written."""

    def __init__(self, own: Path | None) -> None:
        self._own = own

    def gather(self, source: Path) -> CollectedFiles:
        try:
            found = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{clean_line(str(source))} cannot be read: {getattr(error, 'strerror', None) or error}.",
                "Name a recipe file, or a folder of them: a registry that you have cloned with git, for example.",
            ) from None
        root = registry_root(found)
        recipes, named_mods = manifest_of(root)
        mods = tuple(dict.fromkeys((*named_mods, MOD_FOLDER)))
        walk = _Walk(root)
        if found.is_dir():
            starts = [root / path for path in recipes] if found == root else []
            if found == root and not starts and is_within(root / RECIPE_FOLDER, root):
                starts = [root / RECIPE_FOLDER]
            if found == root and not starts and (root / _TAXONOMY).is_file() and is_within(root / MODEL_FOLDER, root):
                starts = [root / MODEL_FOLDER]
            for start in starts or [found]:
                walk.folder(start)
        else:
            walk.beside(found)
        for folder in mods:
            walk.scripts_in(root / folder)
        registry = described(root, mods, walk.scripts)
        return CollectedFiles(registry, *walk.result(found), tuple(walk.passed_over))

    def beside(self, root: str, home: str) -> Beside:
        return FolderFiles(Path(root), Path(home) if home else None) if root else NothingBeside()

    def given(self, text: str, called: str) -> CollectedFiles:
        if len(text) > MAX_BYTES:
            raise PresetError(f"The text is longer than {MAX_BYTES:,} characters.", "Give the part that matters.")
        return CollectedFiles(Registry(""), (_read_text(called, text, called),))

    def recipe(self, file: str) -> FoundFile:
        try:
            text = read_text(Path(file))
        except OSError as error:
            raise PresetError(
                f"The preset's file cannot be read: {error.strerror or error}.", "Restore it.", file=file
            ) from None
        return FoundFile(file, text, parse(text, file))

    def own_text(self, name: str) -> str | None:
        path = self._path(name)
        if path is None or not os.path.lexists(path):
            return None
        try:
            return read_text(path)
        except OSError as error:
            raise PresetError(f"Your file of that name cannot be read: {error.strerror}.", "", file=str(path)) from None

    def write(self, name: str, text: str, *, replace: bool = False) -> Path:
        path = self._path(name)
        if path is None or self._own is None:
            raise RefusedError("The demo writes no presets.", "Leave out --demo.")
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            write_whole(path, (text.encode("utf-8"),), mode=FILE_MODE, replace=replace)
        except FileExistsError:
            raise RefusedError(f"{path} is there already.", "Rename one of the two.") from None
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
    text = unquoted(text) if text.startswith(">") else text
    dialect = launcher_of(text)
    try:
        if dialect is Dialect.KUBERNETES:
            parts = tuple(parse(each, place) for each in _DOCUMENT.split(text) if _CONTENT.search(each))
            return FoundFile(name, text, ListValue(parts, 1), dialect=dialect)
        if dialect is not None:
            return FoundFile(name, text, dialect=dialect)
        found = FoundFile(name, text, parse(text, place))
        if is_recipe(found.document) and (changed := with_store(text))[1]:
            found = FoundFile(name, changed[0], parse(changed[0], place), changes=changed[1])
    except PresetError as error:
        found = FoundFile(name, text, problem=error)
    if isinstance(found.document, MappingValue):
        return found
    within = []
    for line, block in islice(blocks_within(unquoted(text)), MAX_WITHIN):
        with suppress(PresetError):  # prose, or a part of another program's file
            each = FoundFile(name, block, parse("\n" * (line - 1) + block, place), line=line)
            within += [each] if _is_known(each.document) else []
    if found.problem is not None and not within and Path(name).suffix not in ("", *SUFFIXES):
        missing = "It holds no recipe, no Compose file and no command that starts an engine."
        found = replace(found, problem=PresetError(missing, "Name the page or file that has one.", file=place))
    return replace(found, within=tuple(within))


def _is_known(document: Node | None) -> bool:
    """Whether it is a recipe, or a Compose file with an engine."""
    return is_recipe(document) or (isinstance(document, MappingValue) and is_compose(document) and has_engine(document))


# --- walking ----------------------------------------------------------------------------------------------


class _Walk(Struct):
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
        """A file, and those of its folder: it may include them. Other entries there are ignored."""
        self._recipe(file)
        before = len(self.passed_over)
        for path in self._files(file.parent, 0):
            if path.suffix in SUFFIXES and path != file:
                self._recipe(path)
        self.scripts_in(file.parent, 1)
        self.scripts_in(file.parent / MOD_FOLDER)
        del self.passed_over[before:]

    def scripts_in(self, top: Path, depth: int = 2) -> None:
        """The scripts of mods below a folder; none where there is no such folder."""
        if top.is_dir() and not top.is_symlink():
            for path in self._files(top, depth):
                if path.name == _SCRIPT:
                    self._script(path)

    def result(self, asked: Path) -> tuple[tuple[FoundFile, ...], tuple[FoundFile, ...]]:
        """What was asked for, and what lies beside it. In a folder only recipes count; a named file always does."""
        if asked.is_dir():
            found = tuple(f for f in self.files.values() if f.problem is not None or _is_known(f.document))
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
                self.entries_left -= 1
                if self.entries_left < 0:
                    raise PresetError(
                        f"The folder holds more than {MAX_ENTRIES:,} files.",
                        "Name the folder that holds the recipes.",
                        file=entry.path,
                    )
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
            # A broken recipe is reported as one; in any other text there may be commands and recipes.
            broken = path.suffix in SUFFIXES and found.problem is not None
            self.files[name] = replace(found, text="", within=()) if broken else found
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
