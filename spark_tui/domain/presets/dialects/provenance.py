"""Where a recipe came from: the registry it was found in, the licence stated there, what its mods do."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.text import clean, clean_line, truncate

MAX_SHOWN_LINES: Final = 12
_LINE_CHARS: Final = 160
_USER_IN_ADDRESS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/@\s]*@")
_REMOTE = re.compile(r'\[remote "origin"\](?P<body>[^\[]*)')
_ADDRESS = re.compile(r"^\s*url\s*=\s*(\S+)\s*$", re.MULTILINE)
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_LICENCES: Final = (
    ("GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL-3.0"),
    ("GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"),
    ("GNU GENERAL PUBLIC LICENSE", "GPL"),
    ("Apache License", "Apache-2.0"),
    ("Mozilla Public License", "MPL-2.0"),
    ("MIT License", "MIT"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Redistribution and use in source and binary forms", "BSD"),
    ("Creative Commons", "Creative Commons"),
)


@dataclass(frozen=True, slots=True)
class Registry:
    """A folder of recipes. `address` is its git remote, `commit` what is checked out, `licence` what its licence
    files say; each empty where it is not stated. `scripts` are the mods' scripts by their path within it."""

    root: str
    address: str = ""
    commit: str = ""
    licence: str = ""
    mod_folders: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModNote:
    """A mod that a recipe wants: its name, the script's path within the registry, and the script's first lines.

    Empty where the registry does not have it. It is shown, never run.
    """

    name: str
    script: str = ""
    lines: tuple[str, ...] = ()
    more_lines: int = 0


def licence_of(text: str) -> str:
    """The licence that a text is, by its telling words; empty when it is none of the usual ones."""
    return next((name for words, name in _LICENCES if words.lower() in text.lower()), "")


def remote_of(git_config: str) -> str:
    """The address of `origin` in a git configuration, without the name and token that it may carry."""
    section = _REMOTE.search(git_config)
    address = _ADDRESS.search(section["body"]) if section else None
    return clean_line(_USER_IN_ADDRESS.sub(r"\1", address[1])) if address else ""


def mod_note(mod: str, recipe: str, registry: Registry) -> ModNote:
    """What is known of a mod. `recipe` is the recipe's path within the registry.

    Looked for where sparkrun 0.4.2 does: beside the recipe, then in the registry's folders of mods.
    """
    for folder in _places(mod, posixpath.dirname(recipe), registry.mod_folders):
        script = posixpath.normpath(posixpath.join(folder, "run.sh"))
        if script in registry.scripts:
            return _described(clean_line(mod), script, registry.scripts[script])
    return ModNote(clean_line(mod))


def _places(mod: str, beside: str, folders: tuple[str, ...]) -> list[str]:
    parts = [part for part in mod.removeprefix("./").split("/") if part]
    if parts and parts[0].startswith("@"):
        parts = parts[1:]
    if not parts or mod.startswith(("/", "~")) or not all(_SAFE_NAME.fullmatch(part) for part in parts):
        return []
    name = "/".join(parts)
    bare = name.removeprefix("mods/")
    near = [posixpath.join(beside, name), posixpath.join(beside, "mods", bare)]
    return [*near, *(posixpath.join(folder, bare) for folder in folders), name, posixpath.join("mods", bare)]


def _described(name: str, script: str, text: str) -> ModNote:
    """The script without its first line and its switches: what a person needs to see what it does."""
    lines = [line.rstrip() for line in mask_secrets(clean(text)).splitlines()]
    told = [line for line in lines if line.strip() and not line.startswith("#!") and not line.startswith("set -")]
    shown = tuple(truncate(line, _LINE_CHARS) for line in told[:MAX_SHOWN_LINES])
    return ModNote(name, script, shown, max(0, len(told) - MAX_SHOWN_LINES))
