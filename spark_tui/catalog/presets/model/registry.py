"""Registries of recipes: git repositories pinned to a commit, and what differs between two commits of one."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import dropwhile
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from spark_tui.base.errors import PresetError, RefusedError, UnreachableError, UsageError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean, clean_line, quoted, truncate
from spark_tui.catalog.presets.model.dialects.importing import ExaminedRecipe
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rights import findings_of

SEPARATOR: Final = "."
"""Between a registry's name and a recipe's: together the preset's name."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
MAX_PART_LINES: Final = 200


class KnownRegistry(Struct, frozen=True):
    address: str
    content: str


KNOWN: Final[Mapping[str, KnownRegistry]] = {
    "official": KnownRegistry("https://github.com/spark-arena/recipe-registry.git", "sparkrun's own recipes"),
    "community": KnownRegistry(
        "https://github.com/spark-arena/community-recipe-registry.git", "recipes that owners sent in"
    ),
    "eugr": KnownRegistry("https://github.com/spark-arena/eugr-recipes.git", "eugr's recipes, one to eight Sparks"),
    "vllm": KnownRegistry(
        "https://github.com/vllm-project/recipes.git", "vLLM's own recipes, those that name the DGX Spark"
    ),
}
"""Public registries by name. None is used before a person adds it."""


class GitUnreachable(UnreachableError, id="git_unreachable"):
    """A git server does not answer, or not in time."""


class RegistryTooLarge(RefusedError, id="registry_too_large"):
    """A repository exceeds the bounds of what is fetched."""


class NotReviewed(RefusedError, id="recipe_not_reviewed"):
    """A recipe of a registry was not approved for launching with its present content."""


class RegistryRecipe(Struct, frozen=True):
    """A recipe of a registry at its pin. `name` is the preset's, `digest` that of `digest_of`, `problem` why it is no
    preset."""

    name: str
    path: str
    digest: str
    problem: str = ""


class PinnedRegistry(Struct, frozen=True):
    """`commit` is the whole hash. `fetched` is a Unix time. `trusted` are digests of recipes that may be launched."""

    name: str
    address: str
    commit: str = ""
    fetched: float = 0.0
    recipes: tuple[RegistryRecipe, ...] = ()
    trusted: tuple[str, ...] = ()

    def recipe(self, preset: str) -> RegistryRecipe | None:
        return next((each for each in self.recipes if each.name == preset), None)


def drift(preset: Preset, pins: Iterable[PinnedRegistry]) -> Finding | None:
    """That the recipe which a preset was copied from is another one now; None for no copy and for an unchanged one."""
    source = preset.facts.copy_of
    if source is None:
        return None
    pinned = next((each for each in pins if each.address == source.address), None)
    recipe = next((each for each in pinned.recipes if each.path == source.path), None) if pinned is not None else None
    what = f"{preset.name} is a copy of {source.path} of {source.registry}"
    now = f", now {pinned.commit[:12]}" if pinned is not None else ""
    evidence = (f"{source.address} {source.path}", f"copied at {source.commit[:12]}{now}")
    if pinned is None:
        remedy = f"Use it again: spark-tui registries add {quoted(source.registry)} {quoted(source.address)}"
        summary = f"{what}, which is not used: changes there are unknown."
        return Finding("copy_unknown", Severity.UNKNOWN, summary, evidence, remedy, subject=preset.name)
    if recipe is None:
        summary, remedy = f"{what}, which has no such recipe any more.", "Keep the copy, or delete its file."
        return Finding("copy_removed", Severity.WARNING, summary, evidence, remedy, subject=preset.name)
    if recipe.digest == source.digest:
        return None
    remedy = (
        f"Read it: spark-tui presets show {recipe.name}, then take it: "
        f"spark-tui presets import {recipe.name} --name {preset.name} --force"
    )
    summary = f"{what}, and that recipe has changed since."
    return Finding("copy_outdated", Severity.WARNING, summary, evidence, remedy, subject=preset.name)


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class ChangedPart(Struct, frozen=True):
    """A part of a recipe before and after; empty where it is absent."""

    part: str
    before: str
    after: str


class RecipeChange(Struct, frozen=True):
    """`parts` are ordered by what can do harm: command, image, environment, hooks and mods before the rest. `findings`
    say what the recipe takes of the machine now."""

    name: str
    kind: ChangeKind
    parts: tuple[ChangedPart, ...] = ()
    findings: tuple[Finding, ...] = ()


def registry_name(text: str) -> str:
    """Raises UsageError for what cannot be one."""
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"{clean_line(text)[:40]!r} cannot be a registry's name.",
            "Small letters, digits, `-` and `_`, at most 31, the first a letter or digit.",
        )
    return text


def registry_address(text: str) -> str:
    """An address that is fetched from: https, or http on this machine. Raises UsageError."""
    parts = urlsplit(text)
    host = parts.hostname or ""
    if parts.username or parts.password:
        raise UsageError("The address holds a user or a password.", "Leave it out: git asks its credential helper.")
    if (
        not host
        or text != clean_line(text)
        or not (parts.scheme == "https" or (parts.scheme == "http" and _local(host)))
    ):
        raise UsageError(f"{clean_line(text)[:80]!r} is no https address.", "For example: https://HOST/OWNER/REPO.git")
    return text


def _local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def same_commit(commit: str, wanted: str) -> bool:
    """Whether a commit is the one that is named by its beginning."""
    return bool(_COMMIT.fullmatch(wanted)) and commit.startswith(wanted)


def changes_between(
    before: Mapping[str, ExaminedRecipe], after: Mapping[str, ExaminedRecipe]
) -> tuple[RecipeChange, ...]:
    """What changed, by preset name. A recipe whose file is another in what is not used only has no parts."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and digest_of(old) == digest_of(new):
            continue
        kind = ChangeKind.ADDED if old is None else ChangeKind.REMOVED if new is None else ChangeKind.CHANGED
        parts = _changed(*((_parts(each) if each else {}) for each in (old, new)))
        found.append(RecipeChange(name, kind, parts, review_of(new) if new is not None else ()))
    return tuple(found)


def review_of(recipe: ExaminedRecipe) -> tuple[Finding, ...]:
    """What a recipe takes of the machine; nothing for one that is no preset."""
    return () if recipe.preset is None else findings_of(recipe.preset, ("\n".join(mod.lines) for mod in recipe.mods))


def digest_of(recipe: ExaminedRecipe) -> str:
    """SHA-256 of what would run: the recipe below the comments at its top, its mods, or why it is none."""
    lines = recipe.text.splitlines()
    body = dropwhile(lambda line: line.startswith("#"), lines)
    return hashlib.sha256("\n".join((*body, *map(repr, recipe.mods), problem_of(recipe))).encode()).hexdigest()


def problem_of(recipe: ExaminedRecipe) -> str:
    """Why a file is no recipe, named as in its registry and not by where its commit is kept; empty for a recipe."""
    if recipe.problem is None:
        return ""
    return str(PresetError(recipe.problem.summary, recipe.problem.remedy, file=recipe.path, line=recipe.problem.line))


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ChangedPart, ...]:
    keys = dict.fromkeys((*after, *before))
    pairs = ((key, before.get(key, ""), after.get(key, "")) for key in keys)
    return tuple(ChangedPart(key, old, new) for key, old, new in pairs if old != new)


def _parts(recipe: ExaminedRecipe) -> dict[str, str]:
    """The texts of a recipe that a person reviews, those that run first."""
    if recipe.preset is None:
        return {"problem": problem_of(recipe) or "unreadable"}
    preset: Preset = recipe.preset
    mods = (f"{mod.name} {mod.script}\n" + "\n".join(mod.lines) for mod in recipe.mods)
    parts = {
        "command": preset.command,
        "image": preset.reference,
        "env": "\n".join(f"{name}={value}" for name, value in preset.env),
        "mounts": "\n".join(preset.mounts),
        "hooks": "\n".join(preset.hooks),
        "mods": "\n".join(mods),
        "model": f"{preset.model} {preset.model_revision}".strip(),
        "settings": "\n".join(f"{name}: {value}" for name, value in preset.defaults),
        "options": str(preset.options),
        "nodes": f"{preset.min_nodes} to {preset.max_nodes or 'any'}",
    }
    return {name: _shown(text) for name, text in parts.items() if text}


def _shown(text: str) -> str:
    lines = mask_secrets(clean(text)).strip().splitlines()
    return "\n".join(truncate(line, 400) for line in lines[:MAX_PART_LINES])
