"""From a preset's template to the words of its command, with one launch's changes applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.address import HOST_NETWORK, LOOPBACK_NAMES, port_of, refuse_shell, with_address
from spark_tui.domain.presets.command_changes import of_environment, used_in, with_changes, without
from spark_tui.domain.presets.container_spec import ALL_INTERFACES, LOOPBACK
from spark_tui.domain.presets.entrypoint import whole
from spark_tui.domain.presets.json_option import compact
from spark_tui.domain.presets.overrides import Overrides, Reach, unknown_key
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.shell_words import join_lines, shell_construct, split_words, words_of
from spark_tui.domain.presets.speculation import KEYS, OFF, TOKENS, changed, speculation_of
from spark_tui.domain.presets.template import render

__all__ = ("HOST_NETWORK", "Command", "command_of", "missing_values")

# What a placeholder means where the recipe gives it no value. 0.80 is sparkrun's value for a DGX Spark.
_FALLBACKS: Final[Mapping[str, Scalar]] = {
    "host": ALL_INTERFACES,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "gpu_memory_utilization": 0.8,
}


@dataclass(frozen=True, slots=True)
class Command:
    """The whole command, program first; empty for an image that runs as it is. `port` is where the server listens
    within its network."""

    argv: tuple[str, ...]
    port: int
    served_name: str
    values: dict[str, Scalar]
    notes: tuple[str, ...] = ()


def command_of(preset: Preset, overrides: Overrides, model: str) -> Command:
    """Renders and splits the command. `model` is the model as the container sees it.

    Raises PresetError for what is wrong with the recipe, UsageError for what is wrong with the overrides.
    """
    return _command(preset, settled(preset, overrides, model), model)


def settled(preset: Preset, overrides: Overrides, model: str) -> Overrides:
    """The same changes with how to draft said as the template or the server takes it: in place of a method and a
    number, a whole config, or the options to leave out.

    Raises what `command_of` raises.
    """
    method, tokens = overrides.speculation, overrides.num_speculative_tokens
    plain = replace(overrides, speculation=None, num_speculative_tokens=None)
    if tokens is not None and TOKENS in used_in(preset.command, dict(preset.defaults)) | of_environment(preset):
        plain = replace(plain, values=(*plain.values, (TOKENS, str(tokens))))
        tokens = None
    if method is None and tokens is None:
        return plain
    _check_drafting(preset)
    words = words_of(_command(preset, plain, model).argv)
    short = tuple(key for key in KEYS[1:] if vllm.option(words, "--" + key.replace("_", "-")) is not None)
    if method == OFF:
        asked_for = vllm.without_key(words, KEYS[0]) != words
        return replace(plain, without=(*plain.without, *(KEYS[:1] if asked_for else ()), *short))
    config = changed(speculation_of(words, {}), method, tokens)
    others = tuple(pair for pair in plain.values if pair[0] != KEYS[0])
    wanted = replace(plain, values=(*others, (KEYS[0], compact(config))), without=(*plain.without, *short))
    found = speculation_of(words_of(_command(preset, wanted, model).argv), {})
    if found is None or dict(found.config) != config:
        raise UsageError(
            "How this command drafts cannot be changed by a setting: its text has a way of its own.",
            "Change its --speculative-config in a copy of the preset, or in your extra arguments.",
        )
    return wanted


def _check_drafting(preset: Preset) -> None:
    if preset.facts.runs_as_is:
        raise UsageError(
            "This preset's image decides by itself how it drafts.",
            "The Command tab and --dry-run show the variables that it reads; change one with env.NAME=value.",
        )
    if preset.engine != "vllm":
        raise UsageError(
            f"How to draft is set for vLLM alone; this preset's server is {preset.server.title}.",
            "Give its own options as extra_args.",
        )


def _command(preset: Preset, overrides: Overrides, model: str) -> Command:
    """The command, with how to draft as the preset or a whole `speculative_config` has it."""
    notes: list[str] = []
    changes = overrides.template_values()
    values = _values(preset, overrides, model, notes)
    if preset.facts.runs_as_is:
        return _as_is(preset, overrides, model, values, tuple(notes))
    argv = _rendered(preset, values, changes, notes) if preset.command else _built(preset, values, model, notes)
    argv = whole(argv, model) if preset.engine == "vllm" else argv
    argv = with_changes(argv, preset, values, changes)
    argv = with_address(argv, preset, overrides, notes)
    if overrides.extra_args:
        refuse_shell(argv, preset, "extra_args")
        argv = (*argv, *overrides.extra_args)
    argv = without(argv, preset, overrides)
    words = words_of(argv)
    if vllm.option(words, "--api-key") is not None:
        raise PresetError(
            "The command passes the API key as an argument, where every process list shows it.",
            "Take it out, and launch with api_key=true: spark-tui keeps the key in a private file.",
            file=preset.file,
        )
    port = port_of(vllm.option(words, "--port"), preset, values)
    served = vllm.option_in(words, preset.server.spellings("served_model_name")) or model
    return Command(argv, port, served, values, tuple(notes))


def _as_is(
    preset: Preset, overrides: Overrides, model: str, values: dict[str, Scalar], notes: tuple[str, ...]
) -> Command:
    """No command of ours: the image's own start script takes what it needs from the environment."""
    if overrides.extra_args or overrides.without:
        raise UsageError(
            "This preset's image runs as it is: it has no command to add to or take from.",
            "Change its environment instead: env.NAME=value. The Command tab and --dry-run show what it has.",
        )
    used = of_environment(preset)
    unusable = next((key for key in overrides.template_values() if key not in used), None)
    if unusable is not None:
        raise unknown_key(unusable, used, preset.name)
    if preset.options.network == HOST_NETWORK:
        raise PresetError(
            "An image that runs as it is cannot be kept to this machine on the host's network.",
            "Take `network: host` out of the recipe: its port is then published as far as the exposure allows.",
            file=preset.file,
        )
    port, served = preset.default("port"), values.get("served_model_name")
    return Command((), port if isinstance(port, int) else preset.server.port, str(served or model), values, notes)


def missing_values(preset: Preset) -> tuple[str, ...]:
    """Placeholders of the command for which the recipe has no value: they must be given with `--set`."""
    values = {**_fallbacks(preset), **dict(preset.defaults), **_identity(preset, preset.model)}
    return render(preset.command, values).missing


def _fallbacks(preset: Preset) -> dict[str, Scalar]:
    return {**_FALLBACKS, "port": preset.server.port}


def _identity(preset: Preset, model: str) -> dict[str, Scalar]:
    """What sparkrun injects into every template. The revision only where the recipe pins one."""
    pinned: dict[str, Scalar] = {"model_revision": preset.model_revision} if preset.model_revision else {}
    return {"model": model, "resolved_model_path": model, **pinned}


def _values(preset: Preset, overrides: Overrides, model: str, notes: list[str]) -> dict[str, Scalar]:
    values = {**_fallbacks(preset), **{key: value for key, value in preset.defaults if value is not None}}
    values |= _identity(preset, model)
    if preset.options.network == HOST_NETWORK:
        values["host"] = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
        values["port"] = overrides.port or values["port"]
    elif str(values["host"]) in LOOPBACK_NAMES:
        notes.append(f"host {values['host']} within the container would not be reached: it becomes {ALL_INTERFACES}.")
        values["host"] = ALL_INTERFACES
    return {**values, **overrides.template_values()}


# --- template ---------------------------------------------------------------------------------------------


def _rendered(
    preset: Preset, values: Mapping[str, Scalar], changes: Mapping[str, Scalar], notes: list[str]
) -> tuple[str, ...]:
    text = _filled(preset, values)
    construct = shell_construct(text)
    if not construct:
        return _split(preset, text)
    own = _filled(preset, {**values, **{key: preset.default(key) for key in changes}}, checked=False)
    if not shell_construct(own):
        raise UsageError(
            f"A value that you set would be read by the shell ({construct}).",
            "Values go into the command as they are: leave out characters such as ; & | $ < >.",
        )
    notes.append(f"The command needs a shell ({construct}): it runs as bash -c.")
    return ("bash", "-c", text)


def _filled(preset: Preset, values: Mapping[str, Scalar], *, checked: bool = True) -> str:
    filled = render(preset.command, values)
    if checked and filled.missing:
        names = ", ".join(filled.missing)
        raise PresetError(
            f"The command needs a value for {names}, and the recipe has none.",
            f"Give it for this launch (--set {filled.missing[0]}=...), or under `defaults` in the file.",
            file=preset.file,
        )
    if checked and not filled.settled:
        raise PresetError(
            "The recipe's values refer to each other in a circle.",
            "Look in `defaults` for a value that names itself in braces.",
            file=preset.file,
        )
    return join_lines(filled.text)


def _split(preset: Preset, text: str) -> tuple[str, ...]:
    try:
        argv = split_words(text)
    except ValueError:
        raise PresetError("A quote in the command is not closed.", "Close it in `command`.", file=preset.file) from None
    if not argv:
        raise PresetError("The command is empty.", "Add `command: vllm serve {model}`.", file=preset.file)
    return argv


def _built(preset: Preset, values: Mapping[str, Scalar], model: str, notes: list[str]) -> tuple[str, ...]:
    stated = {key: values[key] for key in ("host", "port")} | {
        key: values[key] for key, _ in preset.defaults if key in values
    }
    dropped = sorted(key for key, _ in preset.defaults if vllm.option_of(key) is None)
    if dropped:
        notes.append(f"Not options of vLLM, left out: {', '.join(dropped)}.")
    try:
        return vllm.build(model, stated)
    except ValueError as error:
        raise PresetError(
            f"An option that is on or off has the value {error}.",
            "Write true or false in `defaults`.",
            file=preset.file,
        ) from None
