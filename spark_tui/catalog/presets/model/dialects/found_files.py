"""What a file is, by what it holds, and what of it can be imported: recipes, launchers, commands within a text."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from textwrap import dedent
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.docker_run import read_argv
from spark_tui.base.engine.runtimes import recognised
from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.shell import find_commands
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.dialects.compose_files import compose_launches, is_compose
from spark_tui.catalog.presets.model.dialects.docker_run import HOME
from spark_tui.catalog.presets.model.dialects.importing import FoundFile, is_recipe, names_recipe
from spark_tui.catalog.presets.model.dialects.launchers import (
    Beside,
    Launch,
    NothingBeside,
    open_values,
    with_files,
)
from spark_tui.catalog.presets.model.dialects.manifests import is_llama_swap, llama_swap_launches, manifest_launches
from spark_tui.catalog.presets.model.dialects.scripts import script_launches
from spark_tui.catalog.presets.model.dialects.unit_files import quadlet_launches, unit_launches
from spark_tui.catalog.presets.model.dialects.vllm_recipes import variants_of
from spark_tui.catalog.presets.model.preset import MappingValue, plain
from spark_tui.catalog.presets.model.recipe import Dialect, dialect_of


def with_commands(
    found: FoundFile, place: str = "", beside: Beside | None = None, values: Mapping[str, str] | None = None
) -> tuple[FoundFile, ...]:
    """A file as it is, each variant of a vLLM recipe that one Spark can hold, each engine of a launcher, or, where it
    is no recipe, each recipe and each `docker run` command within it, in their order.

    `place` is the file's path on this machine, `beside` the files that it may name, `values` those of variables.
    """
    if isinstance(found.document, MappingValue) and dialect_of(found.document) is Dialect.VLLM:
        stem, suffix = posixpath.splitext(found.path)
        variants = variants_of(found.document) if found.document.get("recommended_command") is None else ()
        paths = {each: found.path if each == "default" else f"{stem} ({each}){suffix}" for each in variants}
        return tuple(replace(found, path=path, variant=each) for each, path in paths.items()) or (found,)
    if isinstance(found.document, MappingValue) and is_compose(found.document):
        found = replace(found, dialect=Dialect.COMPOSE)
    elif is_llama_swap(found.document):
        found = replace(found, dialect=Dialect.LLAMA_SWAP)
    if found.dialect is not None and found.problem is None:
        if found.dialect is Dialect.ENV_FILE:
            return (replace(found, problem=_only_variables(found)),)
        try:
            launches = _launches(found, place or found.path, beside or NothingBeside(), values or {})
        except PresetError as problem:
            if found.dialect is not Dialect.SCRIPT or not find_commands(found.text):
                return (replace(found, problem=problem),)
            launches = ()  # a text that only begins as a script
        if launches:
            return tuple(_of_launch(found, each, place, len(launches) > 1) for each in launches)
    if is_recipe(found.document):
        return (found,)
    if isinstance(found.document, MappingValue) and not names_recipe(found.document):
        return (replace(found, problem=_other_yaml(found, found.document)),)
    taken = [range(each.line, each.line + each.text.count("\n")) for each in found.within]
    commands = [each for each in find_commands(found.text) if not any(each.line in lines for lines in taken)]
    parts = [*found.within, *(FoundFile(found.path, command=each.text, line=each.line) for each in commands)]
    if len(parts) > 1:
        parts = [replace(each, path=f"{found.path}:{each.line}") for each in sorted(parts, key=attrgetter("line"))]
    read = (((each,) if each.command else with_commands(each, place, beside, values)) for each in parts)
    return tuple(part for each in read for part in each) or (found,)


def _launches(found: FoundFile, place: str, beside: Beside, values: Mapping[str, str]) -> tuple[Launch, ...]:
    """The launches of a file that starts engines. Raises PresetError for one that holds none."""
    launches: tuple[Launch, ...] = ()
    known = {"HOME": HOME, **values}
    if isinstance(found.document, MappingValue):
        read_document = compose_launches if found.dialect is Dialect.COMPOSE else llama_swap_launches
        launches = read_document(found.document, place, beside, known)
    elif found.document is not None:
        launches = manifest_launches(plain(found.document), place)
    elif (read := _READERS.get(found.dialect or Dialect.DOCKER_RUN)) is not None:
        launches = read(found.text, place, beside, known)
    launches = tuple(with_files(each, posixpath.dirname(place), beside) for each in launches)
    launches = tuple(each for each in launches if each.problem or each.missing or _serves(each))
    if not launches:
        raise _no_engine(found)
    chosen = tuple(each for each in launches if each.choices)
    missing = {name: why for each in chosen for name, why in each.missing.items()}
    return (replace(chosen[0], missing=missing),) if chosen else launches


_READERS: Final = {Dialect.SCRIPT: script_launches, Dialect.UNIT: unit_launches, Dialect.QUADLET: quadlet_launches}


def _serves(launch: Launch) -> bool:
    """Whether a launch runs an engine, as far as that can be read; others of a file are its helpers."""
    with suppress(UsageError):
        spec, _ = read_argv(launch.words)
        return bool(recognised(spec.image, (*(spec.entrypoint or ()), *spec.command)))
    return True


def _of_launch(found: FoundFile, launch: Launch, place: str, several: bool) -> FoundFile:
    """One launch of a file; what it cannot start without is its problem."""
    problem = launch.problem
    if problem is None and (launch.missing or launch.choices):
        of = f"{launch.name or f'Line {launch.line}'} of the " if several else "The "
        env = found.dialect is Dialect.COMPOSE
        problem = open_values(launch, f"{of}{found.dialect}", place or found.path, env=env)
    path = f"{found.path} ({launch.name})" if launch.name else f"{found.path}:{launch.line}"
    path = path if several else found.path
    command = shlex.join(launch.words)
    return FoundFile(
        path, problem=problem, command=command, line=launch.line, dialect=found.dialect, changes=launch.changes
    )


_SHEBANG = re.compile(r"#![^\n]*\b(?:ba|da|k|z|a)?sh\b")
_FIRST = re.compile(r"(?:[ \t]*(?:[#;][^\n]*)?\n)*(?P<line>[^\n]*)")
"""The first line that is neither blank nor a comment."""
_YAML = re.compile(r"---|[A-Za-z]\w*:")
_MANIFEST = re.compile(r"^apiVersion:[ \t]*\S", re.MULTILINE)
_KIND = re.compile(r"^kind:[ \t]*\S", re.MULTILINE)
_UNIT_SECTION = re.compile(r"^\[(Container|Unit|Service|Install)\][ \t]*$", re.MULTILINE)
_ASSIGNED = re.compile(r"(?:\s*(?:#[^\n]*)?\n)*[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=|[ \t]*set -")
_ENV_FILE = re.compile(r"(?:[ \t]*(?:#[^\n]*|(?:export[ \t]+)?[A-Za-z_][\w.-]*=(?!\()[^\n]*)?(?:\n|\Z))+")


def launcher_of(text: str) -> Dialect | None:
    """What kind of launcher a text is, by what it holds; None for a recipe, Compose's YAML, or anything else."""
    first = _FIRST.match(text)
    begins = first["line"] if first else ""
    if _YAML.match(begins) and _MANIFEST.search(text) and _KIND.search(text):
        return Dialect.KUBERNETES
    sections = set(_UNIT_SECTION.findall(text)) if begins.startswith("[") else set[str]()
    if sections:
        return Dialect.QUADLET if "Container" in sections else Dialect.UNIT
    if _ENV_FILE.fullmatch(text) and "=" in text and not _SHEBANG.match(text):
        return Dialect.ENV_FILE
    if _SHEBANG.match(text) or (_ASSIGNED.match(text) and find_commands(text)):
        return Dialect.SCRIPT
    return None


_BLOCK: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?:recipe_version|name|model|container|runtime|services|include):(?:[ \t][^\n]*)?\n"
    r"(?:(?P=indent)(?:[ \t#]|-[ \t]|[A-Za-z_][\w.-]*:[ \t])[^\n]*\n|(?P=indent)[A-Za-z_][\w.-]*:\n|[ \t]*\n)*",
    re.MULTILINE,
)


def blocks_within(text: str) -> Iterator[tuple[int, str]]:
    """The parts of a text that may be recipes, each from a line with a key of recipes to the last one that can belong
    to it, with the number of the first. A post says other things before and behind."""
    for found in _BLOCK.finditer(f"{text}\n"):
        yield text.count("\n", 0, found.start()) + 1, dedent(found[0])


def _other_yaml(found: FoundFile, document: MappingValue) -> PresetError:
    keys = truncate(clean_line(", ".join(each.key for each in document.entries)), 80)
    summary = f"This is YAML of another kind ({keys}): no recipe, and nothing that starts an engine."
    remedy = "Name a recipe, a Compose file, a unit, a script or a docker run command."
    return PresetError(summary, remedy, file=found.path, line=1)


def _only_variables(found: FoundFile) -> PresetError:
    summary = "This is an .env file: it holds variables, and starts nothing."
    remedy = "Import what reads it: the Compose file, script or unit beside it."
    return PresetError(summary, remedy, file=found.path, line=1)


def _no_engine(found: FoundFile) -> PresetError:
    what = "No service of this" if found.dialect is Dialect.COMPOSE else "Nothing in this"
    summary = f"{what} {found.dialect} runs an engine that spark-tui knows."
    return PresetError(summary, "Name a file that starts vLLM, SGLang, llama.cpp or Ollama.", file=found.path, line=1)
