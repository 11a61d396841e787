"""From a stranger's recipe file to a preset of our own, with a report of what became of every part of it.

A sparkrun recipe is kept as it is written, comments and all. An eugr recipe, and one that includes another, are
rewritten. Nothing is run: hooks and mods are reported only.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean, clean_line, truncate
from spark_tui.catalog.presets.model.command import missing_values
from spark_tui.catalog.presets.model.dialects.docker_run import HOME, from_docker_run
from spark_tui.catalog.presets.model.dialects.recipe_files import (
    EMPTY,
    ConvertedRecipe,
    comment,
    from_eugr,
    scalar,
    sub_table,
    with_value,
    yaml_text,
)
from spark_tui.catalog.presets.model.dialects.vllm_recipes import from_vllm, names_spark
from spark_tui.catalog.presets.model.preset import MappingValue, Node, Origin, Preset, RecipeSource
from spark_tui.catalog.presets.model.recipe import COPY_KEY, OWN_KEY, Dialect, dialect_of, flattened, preset_from

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


class Registry(Struct, frozen=True):
    """A folder of recipes. `address` is its git remote, `commit` what is checked out, `licence` what its licence
    files say; each empty where it is not stated. `scripts` are the mods' scripts by their path within it."""

    root: str
    address: str = ""
    commit: str = ""
    licence: str = ""
    mod_folders: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)


class ModSummary(Struct, frozen=True):
    """A mod that a recipe wants: its name, the script's path within the registry, and the script's first lines.

    Empty where the registry does not have it. It is shown, never run.
    """

    name: str
    script: str = ""
    lines: tuple[str, ...] = ()
    more_lines: int = 0


def licence_of(text: str) -> str:
    """The licence that a text is, by its typical words; empty when it is none of the usual ones."""
    return next((name for words, name in _LICENCES if words.lower() in text.lower()), "")


def remote_of(git_config: str) -> str:
    """The address of `origin` in a git configuration, without the name and token that it may carry."""
    section = _REMOTE.search(git_config)
    address = _ADDRESS.search(section["body"]) if section else None
    return clean_line(_USER_IN_ADDRESS.sub(r"\1", address[1])) if address else ""


def mod_note(mod: str, recipe: str, registry: Registry) -> ModSummary:
    """What is known of a mod: its script without its first line and its switches. `recipe` is the recipe's path.

    Looked for where sparkrun 0.4.2 does: beside the recipe, then in the registry's folders of mods.
    """
    beside = posixpath.dirname(recipe)
    parts = [part for part in mod.removeprefix("./").split("/") if part]
    parts = parts[1:] if parts and parts[0].startswith("@") else parts
    if not parts or mod.startswith(("/", "~")) or not all(_SAFE_NAME.fullmatch(part) for part in parts):
        return ModSummary(clean_line(mod))
    name = "/".join(parts)
    bare = name.removeprefix("mods/")
    in_folders = (posixpath.join(folder, bare) for folder in registry.mod_folders)
    for folder in (
        posixpath.join(beside, name),
        posixpath.join(beside, "mods", bare),
        *in_folders,
        name,
        f"mods/{bare}",
    ):
        script = posixpath.normpath(posixpath.join(folder, "run.sh"))
        if script in registry.scripts:
            lines = [line.rstrip() for line in mask_secrets(clean(registry.scripts[script])).splitlines()]
            kept = [line for line in lines if line.strip() and not line.startswith(("#!", "set -"))]
            shown = tuple(truncate(line, _LINE_CHARS) for line in kept[:MAX_SHOWN_LINES])
            return ModSummary(clean_line(mod), script, shown, max(0, len(kept) - MAX_SHOWN_LINES))
    return ModSummary(clean_line(mod))


_BARE_METADATA: Final = re.compile(r"metadata:\s*(#.*)?")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_NAMING: Final = ("model", "name")
_SERVING: Final = ("container", "containers", "runtime", "command", "engines", "params")


class FoundFile(Struct, frozen=True):
    """One file, or one `docker run` of it. `path` is relative to the registry; `problem` says why there is no document.

    `dialect` is what kind of launcher it is, None for a recipe or a text. `command` is a `docker run` command that was
    found in it, which begins at `line`, `changes` what that does without; `variant` the one of a vLLM recipe that is
    meant. `within` are the recipes that a text holds which is none itself; `line` is where each begins.
    """

    path: str
    text: str = ""
    document: Node | None = None
    problem: PresetError | None = None
    command: str = ""
    line: int = 0
    variant: str = ""
    within: tuple[FoundFile, ...] = ()
    dialect: Dialect | None = None
    changes: tuple[str, ...] = ()


class CollectedFiles(Struct, frozen=True):
    """What was found in a file or folder. `files` are those asked for, `beside` the others that they may include,
    `passed_over` what was not even read, with the reason."""

    registry: Registry
    files: tuple[FoundFile, ...] = ()
    beside: tuple[FoundFile, ...] = ()
    passed_over: tuple[PresetError, ...] = ()


class ExaminedRecipe(Struct, frozen=True):
    """One recipe, read. Either `preset` and `text` (the file to be written), or `problem`.

    `changes` are in words what had to become something else, `kept` the keys that stay in the file and that
    spark-tui does not use, `needs` the values that a launch must give.
    """

    path: str
    name: str
    dialect: Dialect | None = None
    preset: Preset | None = None
    text: str = ""
    changes: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    hooks: tuple[str, ...] = ()
    mods: tuple[ModSummary, ...] = ()
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    problem: PresetError | None = None


def names_recipe(document: MappingValue) -> bool:
    """Whether a YAML file has a key of a recipe, whole or not."""
    return any(entry.key in (*_NAMING, *_SERVING, "recipe_version", "include") for entry in document.entries)


def is_recipe(document: Node | None) -> bool:
    """Whether a YAML file is a recipe at all: registries hold other ones beside them."""
    if not isinstance(document, MappingValue):
        return False
    has = {entry.key for entry in document.entries}
    serves = bool(has.intersection(_NAMING) and has.intersection(_SERVING))
    known = serves or "recipe_version" in has or "include" in has
    return names_spark(document) if dialect_of(document) is Dialect.VLLM else known


def plain_name(path: str) -> str:
    """A preset's name from a file's: its stem, with what no container's name can hold left out."""
    stem = posixpath.basename(path)
    for suffix in (".yaml", ".yml", ".json", ".v1", ".v2"):
        stem = stem.removesuffix(suffix)
    return _NOT_IN_NAMES.sub("-", stem).strip("-_.")[:63].rstrip("-_.") or "recipe"


def own_name(found: FoundFile) -> str:
    """A preset's name for a recipe that has no file of its own: its own, or its model's."""
    document = found.document if isinstance(found.document, MappingValue) else EMPTY
    return plain_name(str(scalar(document, "name") or scalar(document, "model") or "recipe"))


def names_of(paths: tuple[str, ...]) -> dict[str, str]:
    """A name for each file, by path; where two files have one stem, their folder's name comes first."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path in sorted(paths, key=lambda each: (each.count("/"), each)):
        name = plain_name(path)
        folder = posixpath.dirname(path)
        while name in taken and folder:
            name = plain_name(f"{posixpath.basename(folder)}-{name}")
            folder = posixpath.dirname(folder)
        number, first = 1, name
        while name in taken:
            number += 1
            name = f"{first[:58]}-{number}"
        taken.add(name)
        names[path] = name
    return names


def examine(
    found: FoundFile, gathered: CollectedFiles, name: str, *, paths: HostPaths | None = None, chosen: bool = False
) -> ExaminedRecipe:
    """Reads one recipe. Never raises: what cannot be used is the result's `problem`, with file and line.

    `name` is the preset's name to be, one that `names_of` gave or that OPTIONS["name"] has read. A command has a name
    of its own, which counts unless the person has `chosen` one; its mounts are held against `paths`.
    """
    registry, document = gathered.registry, found.document
    place = posixpath.join(registry.root, found.path)
    if (problem := found.problem) is not None:
        problem.summary, problem.remedy = (each.replace(f"{HOME}/", "~/") for each in (problem.summary, problem.remedy))
        return ExaminedRecipe(found.path, name, found.dialect, problem=problem)
    if not found.command and not isinstance(document, MappingValue):
        problem = PresetError(
            "This is no recipe: a recipe is a mapping of keys to values.",
            "Give a recipe file, or a docker run command.",
            file=place,
            line=1,
        )
        return ExaminedRecipe(found.path, name, problem=problem)
    dialect = dialect_of(document) if isinstance(document, MappingValue) else found.dialect or Dialect.DOCKER_RUN
    published = dialect is Dialect.VLLM and not found.variant
    name = "" if (found.command or published) and not chosen else name
    try:
        if isinstance(document, MappingValue):
            converted = _converted(found, document, dialect, gathered, place)
        else:
            converted = from_docker_run(found.command, paths)
        changes = tuple(each.replace(f"{HOME}/", "~/") for each in found.changes)
        converted = replace(converted, changes=(*changes, *converted.changes))
        name = name or plain_name(converted.name)
        preset = preset_from(converted.document, name=name, origin=Origin.USER, file=place)
    except (UsageError, PresetError) as error:
        placed = PresetError(error.summary, error.remedy, file=place, line=found.line, detail=error.detail)
        problem = error if isinstance(error, PresetError) and not found.command else placed
        return ExaminedRecipe(found.path, name or found.path, dialect, problem=problem)
    mods = tuple(mod_note(mod, found.path, registry) for mod in preset.mods)
    as_written = dialect is Dialect.SPARKRUN and isinstance(document, MappingValue) and document.get("include") is None
    where = registry.address or registry.root
    where += f" ({registry.commit[:12]})" if registry.commit else ""
    about = [
        f"Imported by spark-tui: {found.path}" + (f" of {where}" if where else ""),
        f"There it is an {dialect}." if dialect is Dialect.EUGR else f"It is a {dialect}.",
        f"Licence there: {registry.licence or 'not stated'}.",
        *([] if as_written else ["Rewritten, without its comments."]),
    ]
    if found.command:
        about = [f"Imported by spark-tui from a {dialect}: {found.path}"]
    about += [f"Changed: {change}" for change in converted.changes]
    about += [f"Not applied: {mod.name}" + (f" ({mod.script})" if mod.script else "") for mod in mods]
    header = comment(tuple(truncate(clean_line(line), 300) for line in about))
    return ExaminedRecipe(
        path=found.path,
        name=name,
        dialect=dialect,
        preset=preset,
        text=header + (found.text if as_written else yaml_text(converted.document)),
        changes=converted.changes,
        kept=preset.unknown,
        hooks=preset.hooks,
        mods=mods,
        needs=missing_values(preset),
        notes=preset.facts.cautions if dialect is Dialect.EUGR else (),
    )


def _converted(
    found: FoundFile, document: MappingValue, dialect: Dialect, gathered: CollectedFiles, place: str
) -> ConvertedRecipe:
    if dialect is Dialect.VLLM:
        return from_vllm(document, found.variant)
    if dialect is Dialect.EUGR:
        return from_eugr(document, file=place, folder=posixpath.dirname(found.path))
    if dialect is Dialect.SPARKRUN and document.get("include") is not None:
        folder = posixpath.dirname(found.path)
        known = {each.path: each.document for each in (*gathered.files, *gathered.beside)}

        def sibling(name: str) -> MappingValue | None:
            beside = known.get(posixpath.join(folder, name))
            return beside if isinstance(beside, MappingValue) else None

        return ConvertedRecipe(flattened(document, place, sibling), ("What it includes is written into it.",))
    return ConvertedRecipe(document)


def with_source(text: str, document: MappingValue, source: RecipeSource) -> str:
    """A recipe's text, of which `document` was read, with where it was copied from.

    The lines stay as they are, with their comments, where the metadata can be added to by a line; else the document is
    written out.
    """
    values = {
        "registry": source.registry,
        "address": source.address,
        "recipe": source.path,
        "commit": source.commit,
        "sha256": source.digest,
    }
    lines, entry = text.split("\n"), document.get("metadata")
    metadata = sub_table(document, "metadata")
    own = with_value(sub_table(metadata, OWN_KEY), COPY_KEY, values)
    first = metadata.entries[0] if metadata.entries else None
    if entry is not None and first is not None and metadata.get(OWN_KEY) is None and first.line > entry.line:
        below = lines[first.line - 1]
        indent = below[: len(below) - len(below.lstrip())]
        if _BARE_METADATA.fullmatch(lines[entry.line - 1]) and indent and below.startswith(f"{indent}{first.key}:"):
            added = yaml_text(with_value(EMPTY, OWN_KEY, own)).splitlines()
            return "\n".join((*lines[: entry.line], *(indent + line for line in added), *lines[entry.line :]))
    absent = all(each.key != "metadata" for each in document.entries)
    plain = absent and text.endswith("\n") and lines[document.entries[0].line - 1].startswith(document.entries[0].key)
    if plain and not any(line.startswith(("...", "---")) for line in lines):
        return text + yaml_text(with_value(EMPTY, "metadata", with_value(EMPTY, OWN_KEY, own)))
    about = "".join(f"{line}\n" for line in takewhile(lambda line: line.startswith("#"), lines))
    return about + yaml_text(with_value(document, "metadata", with_value(metadata, OWN_KEY, own)))
