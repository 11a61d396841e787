"""Templates of recipes, and from a preset's template to its command, with one launch's changes applied.

Templates follow sparkrun's rules for recipes of version 2: `{key}` is a placeholder only when nothing but its name
stands between the braces; every other brace is text, so that JSON needs no escapes. Values may hold placeholders
themselves, though not within JSON: they are resolved in passes, a bounded number of times. A key without a value
stays as it is written. `{{` anywhere in the template says that it uses the older doubled spelling: then `{{` and `}}`
mean single braces. `str.format` does none of this and fails on JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import ALL_INTERFACES, LOOPBACK
from spark_tui.base.engine.image import start_script, with_program
from spark_tui.base.engine.invocation import (
    METHOD,
    OFF,
    OPTIONS,
    SETTABLE,
    TOKENS,
    TOOLS,
    VLLM_KEYS,
    Invocation,
    compact_json,
    key_of,
    keys_of,
    parse,
    spellings,
)
from spark_tui.base.engine.runtimes import Scalar, parsers_of
from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.settings import ExposureChoice
from spark_tui.base.shell import join_lines, shell_construct, split_words
from spark_tui.catalog.presets.model.overrides import CONFIG, SPELLED, Overrides, changed, speculation_of, unknown_key
from spark_tui.catalog.presets.model.preset import Origin, Preset

MAX_DEPTH = 10
"""Nesting of values in one another; sparkrun 0.4.2 makes as many passes. Two or three is normal."""
MAX_CHARS = 262_144
MAX_VALUES = 10_000
"""Values that multiply each other are cut off there; Linux allows 128 KiB a word."""
HOST_NETWORK: Final = "host"
LOOPBACK_NAMES: Final = (LOOPBACK, "localhost", "::1")

_SPAN = re.compile(r"\{([^{}]*)\}")
# Within a value a span ends at the first closing brace, wherever it begins: a name within JSON stays text there.
_SPAN_IN_VALUE = re.compile(r"\{.*?\}")
_PLAIN = re.compile(r"[^{}]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ENV_TOKEN = re.compile(r"(?<![{$])\{(config|launch)\.([A-Za-z_][A-Za-z0-9_]*)\}")
_BOTH_STREAMS = re.compile(r"\s2>&1\Z")
_OF_ENVIRONMENT = re.compile(r"\{config\.([A-Za-z_][A-Za-z0-9_]*)\}")


# --- templates --------------------------------------------------------------------------------------------


class Rendered(Struct, frozen=True):
    """A rendered template. `missing` are placeholders without a value, in order; `settled` is False when values refer
    to each other in a circle, or multiply beyond `MAX_CHARS`."""

    text: str
    missing: tuple[str, ...] = ()
    settled: bool = True


def render(template: str, values: Mapping[str, Scalar]) -> Rendered:
    """Fills in `values`, literally: nothing is quoted. A value of None counts as absent."""
    missing: dict[str, None] = {}
    chars_left, values_left, settled = MAX_CHARS, MAX_VALUES, True

    def fill(key: str, depth: int) -> str:
        nonlocal chars_left, values_left, settled
        span = "{" + key + "}"
        value = values.get(key)
        if value is None:
            missing.update({key: None} if _KEY.fullmatch(key) else {})
            return span
        text = str(value)
        if text == span:
            return span
        chars_left -= len(text)
        values_left -= 1
        if depth >= MAX_DEPTH or chars_left < 0 or values_left < 0:
            settled = False
            return span
        return _SPAN_IN_VALUE.sub(lambda match: within_value(match[0], depth + 1), text)

    def within_value(span: str, depth: int) -> str:
        key = span.strip("{}")
        return span if values.get(key) is None and _KEY.fullmatch(key) is None else fill(key, depth)

    text = "".join(fill(part[1:-1], 0) if placeholder else part for part, placeholder in parts(template))
    return Rendered(text, tuple(missing), settled)


def render_env(value: str, values: Mapping[str, Scalar], launch: Mapping[str, Scalar]) -> Rendered:
    """An environment value: literal, except `{config.NAME}` (a template value) and `{launch.NAME}`."""
    missing: dict[str, None] = {}

    def fill(match: re.Match[str]) -> str:
        found = (values if match[1] == "config" else launch).get(match[2])
        if found is None:
            missing[f"{match[1]}.{match[2]}"] = None
        return match[0] if found is None else str(found)

    return Rendered(_ENV_TOKEN.sub(fill, value), tuple(missing))


def placeholders(template: str) -> tuple[str, ...]:
    """The keys that a template names, each once, in order. Keys inside its values are not followed."""
    keys = (part[1:-1] for part, placeholder in parts(template) if placeholder)
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


def placeholders_in_value(value: Scalar) -> tuple[str, ...]:
    """The keys that a value names, each once, in order; names within JSON are none."""
    keys = (span.strip("{}") for span in _SPAN_IN_VALUE.findall(value)) if isinstance(value, str) else ()
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


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


# --- the command ------------------------------------------------------------------------------------------


class Command(Struct, frozen=True):
    """The whole command, program first; no words for an image that runs as it is. `port` is where the server listens
    within its network, `asked` the command of the recipe and the person alone."""

    invocation: Invocation
    port: int
    served_name: str
    values: Mapping[str, Scalar]
    notes: tuple[str, ...] = ()
    asked: Invocation = Invocation()

    @property
    def argv(self) -> tuple[str, ...]:
        return self.invocation.argv


def command_of(preset: Preset, overrides: Overrides, model: str) -> Command:
    """Renders and reads the command. `model` is the model as the container sees it.

    Raises PresetError for what is wrong with the recipe, UsageError for what is wrong with the overrides.
    """
    return _command(preset, settled(preset, overrides, model), model)


def places_in(preset: Preset) -> set[str]:
    """The values that the preset's command or environment has a place for, those within other values included."""
    values = dict(preset.defaults)
    used = {key for _, text in preset.env for key in _OF_ENVIRONMENT.findall(text)}
    waiting = list(placeholders(preset.command))
    while waiting:
        key = waiting.pop()
        if key not in used:
            used.add(key)
            waiting += placeholders_in_value(values.get(key))
    return used


def settable(preset: Preset, key: str) -> bool:
    """Whether a launch can set that value at all: the preset's text has a place for it, or its server an option."""
    if key in places_in(preset):
        return True
    if key in (METHOD, TOKENS):
        return preset.engine == "vllm" and not preset.facts.runs_as_is
    if key == TOOLS:
        return tool_calls_of(preset).settable
    return not preset.facts.runs_as_is and key in keys_of(preset.engine)


def _unknown(preset: Preset, key: str) -> UsageError:
    """The error for a key that the preset does not take; what it proposes, it takes."""
    own = filter(partial(settable, preset), (*SETTABLE, *keys_of(preset.engine)))
    return unknown_key(key, (*places_in(preset), *own), preset.name)


def missing_values(preset: Preset) -> tuple[str, ...]:
    """Placeholders of the command for which the recipe has no value: they must be given with `--set`."""
    return render(preset.command, _defaults(preset, preset.model)).missing


def settled(preset: Preset, overrides: Overrides, model: str) -> Overrides:
    """The same changes with speculation as the template or the server takes it: in place of a method and a number, a
    whole config, or the options to leave out. Raises what `command_of` raises."""
    method, tokens = overrides.speculation, overrides.num_speculative_tokens
    plain = replace(overrides, speculation=None, num_speculative_tokens=None)
    if tokens is not None and TOKENS in places_in(preset):
        plain = replace(plain, values=(*plain.values, (TOKENS, str(tokens))))
        tokens = None
    if method is None and tokens is None:
        return plain
    if preset.facts.runs_as_is:
        raise UsageError(
            "This preset's image sets speculation itself.",
            "--dry-run shows the variables that it reads; change one with env.NAME=value.",
        )
    if preset.engine != "vllm":
        raise UsageError(
            f"Speculation can be set for vLLM only; this preset's server is {preset.server.title}.",
            "Give its own options as extra_args.",
        )
    before = _command(preset, plain, model).invocation
    short = tuple(key for key in SPELLED if before.has(key))
    if method == OFF:
        return replace(plain, without=(*plain.without, *((CONFIG,) if before.has(CONFIG) else ()), *short))
    config = changed(speculation_of(before, {}), method, tokens)
    others = tuple(pair for pair in plain.values if pair[0] != CONFIG)
    wanted = replace(plain, values=(*others, (CONFIG, compact_json(config))), without=(*plain.without, *short))
    found = speculation_of(_command(preset, wanted, model).invocation, {})
    if found is None or dict(found.config) != config:
        raise UsageError(
            "The speculation of this command cannot be changed by a setting.",
            "Change its --speculative-config in a copy of the preset, or in your extra arguments.",
        )
    return wanted


@lru_cache(maxsize=8)  # a launch is planned, shared and looked at for tool calls by the same command
def _command(preset: Preset, overrides: Overrides, model: str) -> Command:
    """The command, with speculation as the preset or a whole `speculative_config` has it."""
    notes: list[str] = []
    changes, used = overrides.template_values(), places_in(preset)
    values = _values(preset, overrides, model, notes)
    if preset.facts.runs_as_is:
        return _as_is(preset, overrides, model, values, tuple(notes))
    start = _rendered(preset, values, changes, notes) if preset.command else _built(preset, values, model, notes)
    found = parse(with_program(start, model) if preset.engine == "vllm" else start, preset.server.id)
    for key, value in changes.items():
        if key in used:
            continue
        if key not in keys_of(preset.engine):
            raise _unknown(preset, key)
        found = _editable(found, preset, key)
        try:
            found = found.with_option(key, value)
        except ValueError:
            raise UsageError(f"`{key}` is on or off; got {str(value)[:40]!r}.", f"For example: {key}=true") from None
    given = (("served_model_name", preset.default("served_model_name")), ("revision", preset.model_revision))
    for key, default in given if not found.script else ():
        if default and key not in used and spellings(key, preset.server.id) and found.value(key) is None:
            found = found.with_option(key, default)
    asked = found
    found = _listening(found, preset, overrides, notes)
    if overrides.extra_args:
        found = _editable(found, preset, "extra_args").with_words(overrides.extra_args)
    found = _with_tool_calls(found, preset, overrides.tool_calls)
    for word in overrides.without:
        key = key_of("--" + word, preset.server.id)
        if found.has(key):
            found = _editable(found, preset, word).without(key)
    if found.value("api_key") is not None:
        raise PresetError(
            "The command passes the API key as an argument, visible in every process list.",
            "Remove it, and launch with api_key=true: spark-tui keeps the key in a private file.",
            file=preset.file,
        )
    text = found.value("port")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) < 65536):
        raise PresetError(f"--port {text[:40]} is not a port.", "Correct it in the recipe.", file=preset.file)
    wanted = values["port"]
    # Where the address goes into a variable, the plan passes the wanted port on.
    default = wanted if isinstance(wanted, int) and not preset.server.host_option else preset.server.port
    port = default if text is None else int(text)
    return Command(found, port, found.value("served_model_name") or model, values, tuple(notes), asked)


# --- tool calls -------------------------------------------------------------------------------------------

_LLAMA_TEMPLATES: Final = "jinja"
"""llama.cpp reads calls with the model's own template, which this switch turns on."""


class ToolCalls(Struct, frozen=True):
    """Whether a launch of a preset, unchanged, answers requests with tools. `known`: the parser for its model is."""

    on: bool = False
    settable: bool = False
    known: bool = False
    parser: str = ""


def tool_calls_of(preset: Preset) -> ToolCalls:
    """By the command as the recipe has it, with what `on by default` adds."""
    known = preset.engine == "llama-cpp" or parsers_of(_family_name(preset), preset.engine) is not None
    if preset.engine == "ollama":
        return ToolCalls(on=True, known=True)
    if preset.facts.runs_as_is:
        given = any("--enable-auto-tool-choice" in text for _, text in preset.env)
        return ToolCalls(on=given, known=known)
    try:
        found = _command(preset, Overrides(), preset.model).invocation
    except (PresetError, UsageError):
        return ToolCalls(known=known)
    on = calls_tools(found, preset.engine)
    return ToolCalls(on, (known or on) and not found.script, known, found.value("tool_call_parser") or "")


def calls_tools(found: Invocation, engine: str) -> bool:
    """Whether a server that is started so answers requests with tools."""
    if engine == "ollama":
        return True
    if engine == "llama-cpp":
        return found.switch(_LLAMA_TEMPLATES) is not False
    return bool(found.switch("enable_auto_tool_choice") if engine == "vllm" else found.value("tool_call_parser"))


def _family_name(preset: Preset) -> str:
    """The Hub's name of the model; of a folder in the store, what the recipe calls it too."""
    local = preset.model.startswith(("/", "~"))
    return f"{preset.model} {preset.name} {preset.facts.title}" if local else preset.model


def _with_tool_calls(found: Invocation, preset: Preset, asked: str | None) -> Invocation:
    """The command with tool calls on or off. Where neither the launch nor the recipe says anything, a built-in preset
    gets the parsers of its model family; a recipe that names a parser keeps it."""
    stated = preset.default(TOOLS)
    wanted = asked or (None if stated is None else str(OPTIONS[TOOLS].read(stated)))
    own = found.has("tool_call_parser") or found.has("enable_auto_tool_choice")
    if wanted is None and (own or found.script or preset.origin is not Origin.BUILTIN):
        return found
    if preset.engine == "ollama":
        if wanted == OFF:
            raise UsageError("Ollama decides on tool calls by the model's template.", "Leave out tool_calls.")
        return found
    if preset.engine == "llama-cpp":
        if wanted is None or (wanted != OFF and found.switch(_LLAMA_TEMPLATES) is not False):
            return found
        words = ("--no-jinja",) if wanted == OFF else ("--jinja",)
        return _editable(found, preset, TOOLS).without(_LLAMA_TEMPLATES).with_words(words)
    if wanted == OFF:
        found = _editable(found, preset, TOOLS) if own else found
        return found.without("enable_auto_tool_choice").without("tool_call_parser")
    parsers = parsers_of(_family_name(preset), preset.engine)
    if not own and parsers is None:
        if wanted is None:
            return found
        raise UsageError(
            f"No tool-call parser is known for {preset.model} on {preset.server.title}.",
            "Set the one of the model card: tool_call_parser=NAME"
            + (" enable_auto_tool_choice=true" if preset.engine == "vllm" else ""),
        )
    found = found if own and found.script else _editable(found, preset, TOOLS)
    pairs = (("tool_call_parser", parsers.tool), ("reasoning_parser", parsers.reasoning)) if parsers else ()
    for key, parser in pairs:
        if parser and not found.has(key):
            found = found.with_option(key, parser)
    if preset.engine == "vllm" and not found.switch("enable_auto_tool_choice"):
        found = found.with_option("enable_auto_tool_choice", True)
    return found


def _as_is(
    preset: Preset, overrides: Overrides, model: str, values: Mapping[str, Scalar], notes: tuple[str, ...]
) -> Command:
    """No command of ours: the image's own start script takes what it needs from the environment."""
    if overrides.extra_args or overrides.without or overrides.tool_calls:
        raise UsageError(
            "This preset's image runs as it is, without a command to change.",
            "Change its environment instead: env.NAME=value. Its command shows what it has.",
        )
    used = places_in(preset)
    unusable = next((key for key in overrides.template_values() if key not in used), None)
    script = start_script(preset.image)
    if unusable is not None and script is not None and (variable := script.options.get(unusable)):
        raise UsageError(f"This preset's image reads {unusable} from a variable.", f"Set it: env.{variable}=VALUE")
    if unusable is not None:
        raise _unknown(preset, unusable)
    if preset.options.network == HOST_NETWORK:
        raise PresetError(
            "An image that runs as it is cannot be kept to this machine on the host's network.",
            "Remove `network: host` from the recipe: its port is then published as the exposure allows.",
            file=preset.file,
        )
    port, served = preset.default("port"), values.get("served_model_name")
    listens = port if isinstance(port, int) else preset.server.port
    return Command(Invocation(runtime=preset.server.id), listens, str(served or model), values, notes)


def _editable(found: Invocation, preset: Preset, key: str) -> Invocation:
    """The command, where a setting can be put into it. Raises UsageError for a shell script."""
    if found.script:
        raise UsageError(
            f"`{key}` cannot be set: this preset's command is a shell script with no place for it.",
            f"Copy {preset.file} to your preset folder and add the option to its command.",
        )
    return found


def _defaults(preset: Preset, model: str) -> dict[str, Scalar]:
    """The recipe's values between what a placeholder means without one (0.80 is sparkrun's share for a DGX Spark) and
    what sparkrun injects into every template; the revision only where the recipe pins one."""
    pinned: dict[str, Scalar] = {"model_revision": preset.model_revision} if preset.model_revision else {}
    return {
        "host": ALL_INTERFACES,
        "port": preset.server.port,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "gpu_memory_utilization": 0.8,
        **{key: value for key, value in preset.defaults if value is not None},
        "model": model,
        "resolved_model_path": model,
        **pinned,
    }


def _values(preset: Preset, overrides: Overrides, model: str, notes: list[str]) -> dict[str, Scalar]:
    values = _defaults(preset, model)
    if preset.options.network == HOST_NETWORK:
        values["host"] = ALL_INTERFACES if overrides.exposure is ExposureChoice.LAN else LOOPBACK
        values["port"] = overrides.port or values["port"]
    elif str(values["host"]) in LOOPBACK_NAMES:
        notes.append(f"host {values['host']} is not reachable from outside the container: set to {ALL_INTERFACES}.")
        values["host"] = ALL_INTERFACES
    return values | overrides.template_values()


def _rendered(
    preset: Preset, values: Mapping[str, Scalar], changes: Mapping[str, Scalar], notes: list[str]
) -> tuple[str, ...]:
    filled = render(preset.command, values)
    if filled.missing:
        raise PresetError(
            f"Missing value: {', '.join(filled.missing)}.",
            f"Set it for this launch ({filled.missing[0]}=...), or in the recipe under `defaults`.",
            file=preset.file,
        )
    if not filled.settled:
        raise PresetError(
            "The recipe's values refer to each other in a circle.",
            "Check `defaults` for a value that names itself in braces.",
            file=preset.file,
        )
    text = join_lines(filled.text)
    plain = _BOTH_STREAMS.sub("", text)
    if plain != text and not shell_construct(plain):
        text = plain
        notes.append("2>&1 is left out: a container's log holds both streams.")
    construct = shell_construct(text)
    if construct:
        own = render(preset.command, {**values, **{key: preset.default(key) for key in changes}}).text
        if not shell_construct(join_lines(own)):
            raise UsageError(
                f"A value that you set would be read by the shell ({construct}).",
                "Remove characters such as ; & | $ < > from it.",
            )
        notes.append(f"The command needs a shell ({construct}): it runs as bash -c.")
        return ("bash", "-c", text)
    try:
        argv = split_words(text)
    except ValueError:
        raise PresetError("A quote in the command is not closed.", "Close it in `command`.", file=preset.file) from None
    if not argv:
        raise PresetError("The command is empty.", "Add `command: vllm serve {model}`.", file=preset.file)
    return argv


def _built(preset: Preset, values: Mapping[str, Scalar], model: str, notes: list[str]) -> tuple[str, ...]:
    """`vllm serve MODEL --option value ...` from the recipe's values, as sparkrun does where `command` is absent."""
    own = {"host", "port", *(key for key, _ in preset.defaults if key != TOOLS)}
    dropped = sorted(own - set(VLLM_KEYS))
    if dropped:
        notes.append(f"Not options of vLLM, ignored: {', '.join(dropped)}.")
    found = parse(("vllm", "serve", model))
    for key in VLLM_KEYS:
        value = values.get(key) if key in own else None
        try:
            found = found if value is None else found.with_option(key, value)
        except ValueError as error:
            raise PresetError(
                f"An option that is on or off has the value {error}.",
                "Write true or false in `defaults`.",
                file=preset.file,
            ) from None
    return found.argv


def _listening(found: Invocation, preset: Preset, overrides: Overrides, notes: list[str]) -> Invocation:
    """The command with the address that it listens on: all of the container's, or as far as the exposure allows."""
    server = preset.server
    if not server.host_option:
        return found  # the plan says it in a variable
    host = found.value("host")
    if preset.options.network != HOST_NETWORK:
        if host is None and server.loopback and not server.host_variable:
            if not found.script:
                return found.with_option("host", ALL_INTERFACES)
            notes.append(f"{server.title} is not reachable unless its script has --host {{host}}.")
            return found
        if host not in LOOPBACK_NAMES:
            return found
        notes.append(f"--host {host} is not reachable from outside the container: set to {ALL_INTERFACES}.")
        return _with_host(found, ALL_INTERFACES, preset)
    wanted = ALL_INTERFACES if overrides.exposure is ExposureChoice.LAN else LOOPBACK
    found = found if host == wanted else _with_host(found, wanted, preset)
    if overrides.port and found.value("port") != str(overrides.port):
        found = _editable(found, preset, "port").with_option("port", overrides.port)
    return found


def _with_host(found: Invocation, host: str, preset: Preset) -> Invocation:
    if found.script:
        raise PresetError(
            f"The server must listen on {host}, and the command is a shell script with another address.",
            f"Write --host {host} in its `command`, or --host {{host}}.",
            file=preset.file,
        )
    return found.with_option("host", host)
