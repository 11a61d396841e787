"""What a folder of recipes says of itself: where its recipes and mods are, where it is from, under which licence.

Nothing outside the folder is read, whatever its files name.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.dialects.provenance import Registry, licence_of, remote_of
from spark_tui.domain.presets.located import Items, Table, compact
from spark_tui.domain.text import truncate
from spark_tui.services.recipe_yaml import parse

MAX_SCRIPT_BYTES: Final = 64 * 1024
MOD_FOLDER: Final = "mods"
RECIPE_FOLDER: Final = "recipes"

_MANIFEST: Final = Path(".sparkrun/registry.yaml")
_LICENCE_FILES: Final = ("LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE", "COPYING")
_LEVELS_UP: Final = 6
_LEVELS_TO_MODS: Final = 3
_FULL_COMMIT: Final = 40


def read_bytes(path: Path, most: int) -> bytes:
    """At most one byte more than `most`, of a regular file and of no link. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is not a regular file", str(path))
        return file.read(most + 1)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Folders that `.sparkrun/registry.yaml` names, relative to it."""

    recipes: tuple[str, ...] = ()
    mods: tuple[str, ...] = ()


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


def _checkout(root: Path) -> Path | None:
    """The git directory that a registry lies in."""
    return next((folder / ".git" for folder in (root, *root.parents[:_LEVELS_UP]) if _is_checkout(folder)), None)


def _is_checkout(folder: Path) -> bool:
    git = folder / ".git"
    return git.is_dir() and not git.is_symlink()


def manifest_of(root: Path) -> Manifest:
    """What the registry's manifest names; nothing where there is none, or a broken one."""
    text = _small_text(root / _MANIFEST)
    if not text:
        return Manifest()
    try:
        node = parse(text, str(root / _MANIFEST))
    except PresetError:
        return Manifest()  # a broken manifest says nothing; the recipes are found by looking
    entry = node.get("registries") if isinstance(node, Table) else None
    listed = entry.node.items if entry is not None and isinstance(entry.node, Items) else ()
    tables = [item for item in listed if isinstance(item, Table)]
    return Manifest(_folders(root, tables, "recipes"), _folders(root, tables, "mods"))


def _folders(root: Path, tables: list[Table], key: str) -> tuple[str, ...]:
    """Folders within the registry; names that lead out of it are no folders of it."""
    named = [compact(entry.node) for table in tables if (entry := table.get(key)) is not None]
    inside = [name.strip("/") for name in named if not name.startswith("/") and ".." not in name.split("/")]
    return tuple(dict.fromkeys(name for name in inside if name and is_within(root / name, root)))


def is_within(path: Path, root: Path) -> bool:
    """Whether a folder is there, and within the registry once its links are followed."""
    return path.is_dir() and path.resolve().is_relative_to(root)


def described(root: Path, mods: tuple[str, ...], scripts: dict[str, str]) -> Registry:
    """The registry with what its licence files and its git directory tell."""
    git = _checkout(root)
    return Registry(
        root=str(root),
        address=truncate(remote_of(_small_text(git / "config")), 200) if git else "",
        commit=_commit(git) if git else "",
        licence=_licence(root),
        mod_folders=mods,
        scripts=scripts,
    )


def _licence(root: Path) -> str:
    folder = root / "licenses"
    more = sorted(folder.iterdir())[:5] if folder.is_dir() and not folder.is_symlink() else []
    found = (licence_of(_small_text(path)) for path in (*(root / name for name in _LICENCE_FILES), *more))
    return next(filter(None, found), "")


def _commit(git: Path) -> str:
    """What is checked out: HEAD, a branch's file, or its line among the packed ones."""
    head = _small_text(git / "HEAD").strip()
    reference = head.removeprefix("ref: ").strip()
    if head == reference:
        return _hash(head)
    if ".." in reference.split("/") or reference.startswith("/"):
        return ""
    packed = (line.partition(" ") for line in _small_text(git / "packed-refs").splitlines())
    return _hash(_small_text(git / reference).strip()) or next(
        (_hash(h) for h, _, name in packed if name == reference), ""
    )


def _hash(text: str) -> str:
    return text if len(text) == _FULL_COMMIT and all(c in "0123456789abcdef" for c in text) else ""


def _small_text(path: Path) -> str:
    """A small file's text, empty where there is none: what it would tell is then not stated."""
    try:
        return read_bytes(path, MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
