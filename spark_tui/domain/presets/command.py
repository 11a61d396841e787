"""From a preset's template to the words of its command, with one launch's changes applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.container_spec import ALL_INTERFACES, LOOPBACK
from spark_tui.domain.presets.entrypoint import whole
from spark_tui.domain.presets.overrides import Overrides, Reach, unknown_key
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.shell_words import is_shell, join_lines, shell_construct, split_words, words_of
from spark_tui.domain.presets.template import placeholders, render

HOST_NETWORK: Final = "host"

# What a placeholder means where the recipe gives it no value. 0.80 is sparkrun's value for a DGX Spark.
_FALLBACKS: Final[Mapping[str, Scalar]] = {
    "host": ALL_INTERFACES,
    "port": 8000,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "gpu_memory_utilization": 0.8,
}
_LOOPBACK_NAMES: Final = (LOOPBACK, "localhost", "::1")
_OWN_PORT: Final = {"vllm": 8000, "sglang": 30000, "llama-cpp": 8080, "trtllm": 8000, "ollama": 11434}


@dataclass(frozen=True, slots=True)
class Command:
    """The whole command, program first. `port` is where the server listens within its network."""

    argv: tuple[str, ...]
    port: int
    served_name: str
    values: dict[str, Scalar]
    notes: tuple[str, ...] = ()


def command_of(preset: Preset, overrides: Overrides, model: str) -> Command:
    """Renders and splits the command. `model` is the model as the container sees it.

    Raises PresetError for what is wrong with the recipe, UsageError for what is wrong with the overrides.
    """
    notes: list[str] = []
    changes = overrides.template_values()
    values = _values(preset, overrides, model, notes)
    argv = _rendered(preset, values, changes, notes) if preset.command else _built(preset, values, model, notes)
    argv = whole(argv, model) if preset.engine == "vllm" else argv
    argv = _with_changes(argv, preset, values, changes)
    argv = _with_address(argv, preset, overrides, notes)
    if overrides.extra_args:
        _refuse_shell(argv, preset, "extra_args")
        argv = (*argv, *overrides.extra_args)
    words = words_of(argv)
    if vllm.option(words, "--api-key") is not None:
        raise PresetError(
            "The command passes the API key as an argument, where every process list shows it.",
            "Take it out, and launch with api_key=true: spark-tui keeps the key in a private file.",
            file=preset.file,
        )
    port = _port(vllm.option(words, "--port"), preset)
    served = vllm.option(words, "--served-model-name") or model
    return Command(argv, port, served, values, tuple(notes))


def missing_values(preset: Preset) -> tuple[str, ...]:
    """Placeholders of the command for which the recipe has no value: they must be given with `--set`."""
    return render(preset.command, {**_FALLBACKS, **dict(preset.defaults), **_identity(preset, preset.model)}).missing


def _identity(preset: Preset, model: str) -> dict[str, Scalar]:
    """What sparkrun injects into every template. The revision only where the recipe pins one."""
    pinned: dict[str, Scalar] = {"model_revision": preset.model_revision} if preset.model_revision else {}
    return {"model": model, "resolved_model_path": model, **pinned}


def _values(preset: Preset, overrides: Overrides, model: str, notes: list[str]) -> dict[str, Scalar]:
    values = {**_FALLBACKS, **{key: value for key, value in preset.defaults if value is not None}}
    values |= _identity(preset, model)
    if preset.options.network == HOST_NETWORK:
        values["host"] = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
        values["port"] = overrides.port or values["port"]
    elif str(values["host"]) in _LOOPBACK_NAMES:
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


# --- changes ----------------------------------------------------------------------------------------------


def _with_changes(
    argv: tuple[str, ...], preset: Preset, values: Mapping[str, Scalar], changes: Mapping[str, Scalar]
) -> tuple[str, ...]:
    """Sets what the template has no place for: as vLLM options, and the name and revision that the recipe states."""
    used = _used(preset.command, values)
    for key, value in changes.items():
        if key in used:
            continue
        if preset.engine != "vllm" or vllm.option_of(key) is None:
            raise unknown_key(key, (*used, *(vllm.KEYS if preset.engine == "vllm" else ())))
        _refuse_shell(argv, preset, key)
        argv = _with_option(argv, key, value)
    if preset.engine != "vllm" or is_shell(argv):
        return argv
    for key, stated in (
        ("served_model_name", preset.default("served_model_name")),
        ("revision", preset.model_revision),
    ):
        name = vllm.option_of(key)
        if stated and name is not None and vllm.option(argv, name) is None:
            argv = vllm.with_option(argv, key, stated)
    return argv


def _with_option(argv: tuple[str, ...], key: str, value: Scalar) -> tuple[str, ...]:
    try:
        return vllm.with_option(argv, key, value)
    except ValueError:
        raise UsageError(f"`{key}` is on or off; you gave {str(value)[:40]!r}.", f"Write: {key}=true") from None


def _used(template: str, values: Mapping[str, Scalar]) -> set[str]:
    """The keys that a template uses, those within its values included."""
    used: set[str] = set()
    waiting = list(placeholders(template))
    while waiting:
        key = waiting.pop()
        if key not in used:
            used.add(key)
            value = values.get(key)
            waiting += placeholders(value) if isinstance(value, str) else ()
    return used


def _refuse_shell(argv: tuple[str, ...], preset: Preset, key: str) -> None:
    if is_shell(argv):
        raise UsageError(
            f"`{key}` cannot be set: this preset's command is a shell script with no place for it.",
            f"Copy {preset.file} to your preset folder and add the option to its command.",
        )


# --- address ----------------------------------------------------------------------------------------------


def _with_address(argv: tuple[str, ...], preset: Preset, overrides: Overrides, notes: list[str]) -> tuple[str, ...]:
    """The address that the server listens on: all of the container's, or just what the exposure allows."""
    host = vllm.option(words_of(argv), "--host")
    if preset.options.network != HOST_NETWORK:
        if host not in _LOOPBACK_NAMES:
            return argv
        notes.append(f"--host {host} within the container would not be reached: it becomes {ALL_INTERFACES}.")
        return _with_host(argv, ALL_INTERFACES, preset)
    wanted = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
    if host != wanted:
        argv = _with_host(argv, wanted, preset)
    if overrides.port and vllm.option(words_of(argv), "--port") != str(overrides.port):
        _refuse_shell(argv, preset, "port")
        argv = vllm.with_option(argv, "port", overrides.port)
    return argv


def _with_host(argv: tuple[str, ...], host: str, preset: Preset) -> tuple[str, ...]:
    if is_shell(argv):
        raise PresetError(
            f"The server must listen on {host}, and the command is a shell script that says otherwise.",
            f"Write --host {host} in its `command`, or --host {{host}}.",
            file=preset.file,
        )
    return vllm.with_option(argv, "host", host)


def _port(text: str | None, preset: Preset) -> int:
    if text is None:
        return _OWN_PORT.get(preset.engine, 8000)
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise PresetError(f"--port {text[:40]} is not a port.", "Correct it in the recipe.", file=preset.file)
