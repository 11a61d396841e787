"""From a preset's template to the words of its command, with one launch's changes applied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spark_tui.domain.engine.container import ALL_INTERFACES, LOOPBACK
from spark_tui.domain.engine.runtimes import is_known
from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.image import whole
from spark_tui.domain.presets.options import METHOD, OFF, SPECULATION_KEYS, TOKENS, changed, compact, speculation_of
from spark_tui.domain.presets.overrides import Overrides, Reach, unknown_key
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.shell import is_shell, join_lines, shell_construct, split_words, words_of

MAX_DEPTH = 10
"""How deep values may name each other; sparkrun 0.4.2 makes as many passes. Legitimate nesting is two or three."""

MAX_CHARS = 262_144
MAX_VALUES = 10_000
"""Values that multiply each other are cut off there; no command line comes near it (Linux allows 128 KiB a word)."""

_SPAN = re.compile(r"\{([^{}]*)\}")
# Within a value a span ends at the first closing brace, wherever it begins: a name within JSON stays text there.
_SPAN_IN_VALUE = re.compile(r"\{.*?\}")
_PLAIN = re.compile(r"[^{}]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ENV_TOKEN = re.compile(r"(?<![{$])\{(config|launch)\.([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered template. `missing` are placeholders that have no value, in the order in which they appear;
    `settled` is False when values refer to each other in a circle, or multiply beyond `MAX_CHARS`."""

    text: str
    missing: tuple[str, ...] = ()
    settled: bool = True


def render(template: str, values: Mapping[str, Scalar]) -> Rendered:
    """Fills in `values`, literally: nothing is quoted. A value of None counts as absent."""
    filling = _Filling(values)
    text = "".join(filling.key(part[1:-1]) if placeholder else part for part, placeholder in parts(template))
    return Rendered(text, tuple(dict.fromkeys(filling.missing)), filling.settled)


def collapse_doubled(value: str) -> str:
    """A value (not a template) in the older doubled spelling, with single braces; other values stay as they are."""
    return value.replace("{{", "{").replace("}}", "}") if "{{" in value else value


def placeholders(template: str) -> tuple[str, ...]:
    """The keys that a template names, each once, in order. Keys inside its values are not followed."""
    keys = (part[1:-1] for part, placeholder in parts(template) if placeholder)
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


def placeholders_in_value(value: str) -> tuple[str, ...]:
    """The keys that a value names, each once, in order; names within JSON are none."""
    keys = (span.strip("{}") for span in _SPAN_IN_VALUE.findall(value))
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


def render_env(value: str, values: Mapping[str, Scalar], launch: Mapping[str, Scalar]) -> Rendered:
    """An environment value: literal, except `{config.NAME}` (a template value) and `{launch.NAME}`."""
    missing: list[str] = []

    def fill(match: re.Match[str]) -> str:
        found = (values if match[1] == "config" else launch).get(match[2])
        if found is None:
            missing.append(f"{match[1]}.{match[2]}")
            return match[0]
        return str(found)

    return Rendered(_ENV_TOKEN.sub(fill, value), tuple(dict.fromkeys(missing)))


@dataclass(slots=True)
class _Filling:
    """One rendering: what is missing so far, and what is left of its bounds."""

    values: Mapping[str, Scalar]
    missing: list[str] = field(default_factory=list)
    settled: bool = True
    chars_left: int = MAX_CHARS
    values_left: int = MAX_VALUES

    def key(self, key: str, depth: int = 0) -> str:
        """What stands for `{key}`."""
        span = "{" + key + "}"
        value = self.values.get(key)
        if value is None:
            self.missing += [key] if _KEY.fullmatch(key) else []
            return span
        text = str(value)
        if text == span:
            return span
        self.chars_left -= len(text)
        self.values_left -= 1
        if depth >= MAX_DEPTH or self.chars_left < 0 or self.values_left < 0:
            self.settled = False
            return span
        return _SPAN_IN_VALUE.sub(lambda match: self.key_in_value(match[0], depth + 1), text)

    def key_in_value(self, span: str, depth: int) -> str:
        """What stands for a span within a value; one that names nothing stays as it is."""
        key = span.strip("{}")
        return span if self.values.get(key) is None and _KEY.fullmatch(key) is None else self.key(key, depth)


def parts(template: str) -> Iterator[tuple[str, bool]]:
    """What a template is made of, in order: text, and `{...}` spans without inner braces (True).

    Doubled braces come as the text that they mean.
    """
    doubled = "{{" in template
    at = 0
    while at < len(template):
        pair = template[at : at + 2]
        span = _SPAN.match(template, at)
        if pair in ("{{", "}}"):
            yield (pair[0] if doubled else pair), False
            at += 2
        elif span is not None:
            yield span[0], True
            at = span.end()
        else:
            plain = _PLAIN.match(template, at)
            text = plain[0] if plain else template[at]
            yield text, False
            at += len(text)


HOST_NETWORK: Final = "host"
LOOPBACK_NAMES: Final = (LOOPBACK, "localhost", "::1")


def refuse_shell(argv: tuple[str, ...], preset: Preset, key: str) -> None:
    """Raises UsageError where a setting would have to go into a script."""
    if is_shell(argv):
        raise UsageError(
            f"`{key}` cannot be set: this preset's command is a shell script with no place for it.",
            f"Copy {preset.file} to your preset folder and add the option to its command.",
        )


def with_address(argv: tuple[str, ...], preset: Preset, overrides: Overrides, notes: list[str]) -> tuple[str, ...]:
    """The address that the server listens on: all of the container's, or just what the exposure allows."""
    if not preset.server.host_option:
        return argv  # the plan says it in a variable
    host = vllm.option_value(words_of(argv), "--host")
    if preset.options.network != HOST_NETWORK:
        if host is None and preset.server.loopback and not preset.server.host_variable:
            return _opened(argv, preset, notes)
        if host not in LOOPBACK_NAMES:
            return argv
        notes.append(f"--host {host} within the container would not be reached: it becomes {ALL_INTERFACES}.")
        return _with_host(argv, ALL_INTERFACES, preset)
    wanted = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
    if host != wanted:
        argv = _with_host(argv, wanted, preset)
    if overrides.port and vllm.option_value(words_of(argv), "--port") != str(overrides.port):
        refuse_shell(argv, preset, "port")
        argv = vllm.with_option(argv, "port", overrides.port)
    return argv


def _opened(argv: tuple[str, ...], preset: Preset, notes: list[str]) -> tuple[str, ...]:
    """A server that would listen within its container alone, opened; a script is left, and that is said."""
    if is_shell(argv):
        notes.append(
            f"{preset.server.title} listens within its container alone unless its command has --host {{host}}."
        )
        return argv
    return vllm.with_option(argv, "host", ALL_INTERFACES)


def _with_host(argv: tuple[str, ...], host: str, preset: Preset) -> tuple[str, ...]:
    if is_shell(argv):
        raise PresetError(
            f"The server must listen on {host}, and the command is a shell script that says otherwise.",
            f"Write --host {host} in its `command`, or --host {{host}}.",
            file=preset.file,
        )
    return vllm.with_option(argv, "host", host)


def port_of(text: str | None, preset: Preset, values: Mapping[str, Scalar]) -> int:
    """The port that the server listens on. `text` is what the command says, None when it says nothing.

    Raises PresetError for what is none.
    """
    if text is None:
        wanted = values["port"]
        # Where the address goes into a variable, the plan passes the wanted port on.
        return wanted if isinstance(wanted, int) and not preset.server.host_option else preset.server.port
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise PresetError(f"--port {text[:40]} is not a port.", "Correct it in the recipe.", file=preset.file)


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
    short = tuple(
        key for key in SPECULATION_KEYS[1:] if vllm.option_value(words, "--" + key.replace("_", "-")) is not None
    )
    if method == OFF:
        asked_for = vllm.without_key(words, SPECULATION_KEYS[0]) != words
        return replace(plain, without=(*plain.without, *(SPECULATION_KEYS[:1] if asked_for else ()), *short))
    config = changed(speculation_of(words, {}), method, tokens)
    others = tuple(pair for pair in plain.values if pair[0] != SPECULATION_KEYS[0])
    wanted = replace(plain, values=(*others, (SPECULATION_KEYS[0], compact(config))), without=(*plain.without, *short))
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
    if vllm.option_value(words, "--api-key") is not None:
        raise PresetError(
            "The command passes the API key as an argument, where every process list shows it.",
            "Take it out, and launch with api_key=true: spark-tui keeps the key in a private file.",
            file=preset.file,
        )
    port = port_of(vllm.option_value(words, "--port"), preset, values)
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
