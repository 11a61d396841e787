"""A preset as a sparkrun recipe (version 2): its own file with every key, and one launch's changes in their places."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.command import command_of, missing_values, settled
from spark_tui.domain.presets.dialects.yaml_text import scalar, sub_table, with_value
from spark_tui.domain.presets.invocation import Invocation
from spark_tui.domain.presets.located import Table, masked, plain
from spark_tui.domain.presets.options import OPTIONS, spellings
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.template import placeholders, placeholders_in_value
from spark_tui.domain.secret import SECRET_MASK
from spark_tui.domain.shell import join_lines, shell_construct

_AT_LAUNCH: Final = "Who may reach the port, its API key and the container's name are said at launch: not in a recipe."


@dataclass(frozen=True, slots=True)
class ExportedRecipe:
    """A recipe for another tool, and what a person should know about it."""

    document: Table
    notes: tuple[str, ...] = ()


def to_sparkrun(preset: Preset, recipe: Table, overrides: Overrides) -> ExportedRecipe:
    """The preset's recipe with the changes in it. `recipe` is its file, as it is written.

    Raises UsageError for a change that a recipe has no place for, and what planning the launch would raise.
    """
    overrides = _checked(preset, overrides)
    if overrides.without:
        raise UsageError("A recipe file cannot remove options from its command.", f"Edit a copy of {preset.file}.")
    document = _with_values(preset, recipe, overrides)
    if overrides.extra_env:
        env = sub_table(document, "env")
        for name, text in overrides.extra_env:
            env = with_value(env, name, text)
        document = with_value(document, "env", env)
    notes = [_AT_LAUNCH] if overrides.api_key or overrides.name or overrides.exposure.value != "local" else []
    hidden = masked("", document)
    if isinstance(hidden, Table) and plain(hidden) != plain(document):
        document = hidden
        notes.append(f"Keys and tokens are left out: {SECRET_MASK} marks their places.")
    return ExportedRecipe(document, tuple(notes))


def _checked(preset: Preset, overrides: Overrides) -> Overrides:
    """The changes as the recipe takes them, with the same errors as a launch for those that cannot be; what the
    recipe leaves open stays open."""
    if overrides == Overrides():
        return overrides
    opened = tuple((key, "x") for key in missing_values(preset))
    whole = replace(preset, defaults=(*preset.defaults, *opened))
    command_of(whole, overrides, preset.model)
    return settled(whole, overrides, preset.model)


def _with_values(preset: Preset, document: Table, overrides: Overrides) -> Table:
    changes = dict(overrides.template_values())
    if overrides.port is not None:
        changes["port"] = overrides.port
    if not changes and not overrides.extra_args:
        return document
    defaults = sub_table(document, "defaults")
    for key, value in changes.items():
        defaults = with_value(defaults, key, value)
    if defaults.entries:
        document = with_value(document, "defaults", defaults)
    command = scalar(document, "command")
    template = command if isinstance(command, str) else ""
    if not template:
        if overrides.extra_args:
            raise UsageError(
                "`extra_args` have no place in this recipe: it has no command of its own.",
                "Set them by name instead: --set KEY=VALUE",
            )
        return document
    added = [*_options(preset, template, changes), *(_literal(template, word) for word in overrides.extra_args)]
    return with_value(document, "command", _with_words(preset, template, added)) if added else document


def _options(preset: Preset, template: str, changes: dict[str, Scalar]) -> list[str]:
    """Options for what the template has no placeholder for; of one that comes twice vLLM takes the last."""
    named = set(placeholders(template)) | {
        inner for _, value in preset.defaults if isinstance(value, str) for inner in placeholders_in_value(value)
    }
    words: list[str] = []
    for key, value in changes.items():
        option = next(iter(spellings(key, "vllm")), "")
        if key in named or not option:
            continue
        if OPTIONS[key].switch:
            words += Invocation().with_option(key, value).words
        else:
            words += [option, f"'{{{key}}}'" if set(str(value)) & set(' {}"') else f"{{{key}}}"]
    return words


def _literal(template: str, word: str) -> str:
    """A word for the shell, with its braces spelt as the template spells its own."""
    text = shlex.quote(word)
    if "{{" in template:
        return text.replace("{", "{{").replace("}", "}}")
    return text


def _with_words(preset: Preset, template: str, words: list[str]) -> str:
    if shell_construct(join_lines(template)):
        raise UsageError(
            "The preset's command is a shell script, with no place for further options.",
            f"Edit a copy of {preset.file}.",
        )
    return template.rstrip().rstrip("\\").rstrip() + " \\\n  " + " ".join(words) + "\n"
