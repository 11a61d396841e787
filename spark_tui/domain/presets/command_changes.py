"""What one launch changes in a rendered command: options set, added, and taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_tui.domain.engine.runtimes import is_known
from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.address import refuse_shell
from spark_tui.domain.presets.overrides import Overrides, unknown_key
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.shell_words import is_shell, words_of
from spark_tui.domain.presets.speculation import METHOD, TOKENS
from spark_tui.domain.presets.template import placeholders, placeholders_in_value

_OF_ENVIRONMENT = re.compile(r"\{config\.([A-Za-z_][A-Za-z0-9_]*)\}")


def with_changes(
    argv: tuple[str, ...], preset: Preset, values: Mapping[str, Scalar], changes: Mapping[str, Scalar]
) -> tuple[str, ...]:
    """Sets what the template has no place for: as the server's options, and the name and revision that the recipe
    states."""
    used = used_in(preset.command, values) | of_environment(preset)
    for key, value in changes.items():
        if key in used:
            continue
        if not _is_option(preset, key):
            raise unknown_key(key, (*used, *_option_keys(preset)), preset.name)
        refuse_shell(argv, preset, key)
        argv = _with_option(argv, preset, key, value)
    if is_shell(argv):
        return argv
    for key, stated in (
        ("served_model_name", preset.default("served_model_name")),
        ("revision", preset.model_revision),
    ):
        names = (vllm.option_of(key) or "",) if preset.engine == "vllm" else preset.server.spellings(key)
        if stated and key not in used and names and vllm.option_in(argv, names) is None:
            argv = _with_option(argv, preset, key, stated)
    return argv


def settable(preset: Preset, key: str) -> bool:
    """Whether a launch can set that value at all: the preset's text has a place for it, or its server an option."""
    places = used_in(preset.command, dict(preset.defaults)) | of_environment(preset)
    if key in (METHOD, TOKENS):
        return key in places or (preset.engine == "vllm" and not preset.facts.runs_as_is)
    return key in places or (not preset.facts.runs_as_is and _is_option(preset, key))


def _is_option(preset: Preset, key: str) -> bool:
    return key in vllm.KEYS if preset.engine == "vllm" else bool(preset.server.spellings(key) and _in_table(preset))


def _option_keys(preset: Preset) -> tuple[str, ...]:
    if preset.engine == "vllm":
        return vllm.KEYS
    return tuple(key for key, _ in preset.server.options) if _in_table(preset) else ()


def _in_table(preset: Preset) -> bool:
    return is_known(preset.engine)


def of_environment(preset: Preset) -> set[str]:
    """The template values that the recipe's environment names, as `{config.NAME}`."""
    return {key for _, text in preset.env for key in _OF_ENVIRONMENT.findall(text)}


def _with_option(argv: tuple[str, ...], preset: Preset, key: str, value: Scalar) -> tuple[str, ...]:
    if preset.engine != "vllm":
        return vllm.set_option(argv, preset.server.spellings(key), str(value))
    try:
        return vllm.with_option(argv, key, value)
    except ValueError:
        raise UsageError(f"`{key}` is on or off; you gave {str(value)[:40]!r}.", f"Write: {key}=true") from None


def without(argv: tuple[str, ...], preset: Preset, overrides: Overrides) -> tuple[str, ...]:
    """The command less what the person takes out of it."""
    for key in overrides.without:
        if vllm.without_key(words_of(argv), key) == words_of(argv):
            continue
        refuse_shell(argv, preset, key)
        argv = vllm.without_key(argv, key)
    return argv


def used_in(template: str, values: Mapping[str, Scalar]) -> set[str]:
    """The keys that a template uses, those within its values included."""
    used: set[str] = set()
    waiting = list(placeholders(template))
    while waiting:
        key = waiting.pop()
        if key not in used:
            used.add(key)
            value = values.get(key)
            waiting += placeholders_in_value(value) if isinstance(value, str) else ()
    return used
