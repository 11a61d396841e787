"""A located document becomes a Preset, or an error that says where and why not. Nothing is read from disk here."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, convert, toml
from msgspec.structs import replace

from spark_tui.base.engine.container import Gpus
from spark_tui.base.engine.docker_run import read_gpus, read_restart, read_ulimit
from spark_tui.base.engine.image import is_image_reference
from spark_tui.base.engine.invocation import CHECKED_IN_RECIPES, OPTIONS, TRUE
from spark_tui.base.engine.runtimes import (
    NOT_STATED,
    Scalar,
    family,
    published_facts,
    quantization_words,
    runtime_named,
)
from spark_tui.base.errors import PresetError
from spark_tui.base.quantities import parse_bytes
from spark_tui.base.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.base.text import clean, clean_line, lazy_pattern, truncate
from spark_tui.catalog.presets.model.preset import (
    NO_GPU,
    ContainerOptions,
    Entry,
    ListValue,
    MappingValue,
    Node,
    Origin,
    Preset,
    PresetFacts,
    PublishedSpeed,
    Reader,
    RecipeSource,
    RequiredFile,
    RequiredStep,
    ScalarValue,
    Tag,
    compact,
    describe,
    engine_of,
)

INCLUDE: Final = "include"
MAX_SIBLINGS: Final = 8
MAX_CHAIN: Final = 5
"""Longest chain of presets that include one another."""
_SIBLING = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SUFFIXES: Final = (".yaml", ".yml")
Find = Callable[[str, str], tuple[str, Node] | None]
"""Given a name and the file that includes it: the file and document of the preset so named, None where there is none.
Raises PresetError where that file cannot be read."""


def flattened(document: MappingValue, file: str, sibling: Callable[[str], MappingValue | None]) -> MappingValue:
    """A sparkrun recipe with everything that it includes. `sibling` gives the recipe of a file name in the same folder.

    Raises PresetError for a base that is not there, that is elsewhere, or that leads back to itself.
    """

    def base(name: str, entry: Entry, _: str) -> tuple[str, Node]:
        names = (name,) if name.endswith(_SUFFIXES) else tuple(name + suffix for suffix in _SUFFIXES)
        named = _SIBLING.fullmatch(name) is not None
        found = next((found for each in names if (found := sibling(each)) is not None), None) if named else None
        if name.startswith("@"):
            what = "names a recipe of another registry"
            remedy = "Export it whole first (sparkrun recipe export), and import that file."
        elif not named:
            what, remedy = "is no file of the same folder", "Name a recipe beside this one, without a path."
        elif found is None:
            what, remedy = "is not beside this recipe", "Put that recipe into the same folder."
        elif dialect_of(found) is not Dialect.SPARKRUN:
            what, remedy = f"is a {dialect_of(found)}", "Import that recipe first, and include the result."
        else:
            return name, found
        shown = truncate(clean_line(name), 60)
        raise PresetError(f"`include: {shown}` {what}.", remedy, file=file, line=entry.line)

    layers, _ = _layers(document, file, base, MAX_SIBLINGS)
    whole = _merged(layers, sparkrun=True)
    entries = whole.entries if isinstance(whole, MappingValue) else ()
    return MappingValue(tuple(entry for entry in entries if entry.key != INCLUDE), document.line)


def with_included(document: Node, file: str, find: Find, names: Collection[str]) -> tuple[Node, tuple[str, ...]]:
    """The whole document of a preset, and the names of the presets it includes, nearest first; the document itself when
    it includes nothing.

    `names` are the presets that can be named. Raises PresetError for a name that is none, for a circle, and for a
    chain longer than MAX_CHAIN.
    """

    def base(name: str, entry: Entry, including: str) -> tuple[str, Node]:
        found = find(name, including)
        if found is None:
            near = difflib.get_close_matches(name, names, n=1)
            summary = f"`include` names no preset: {truncate(clean_line(name), 60)}."
            remedy = f"Did you mean `{near[0]}`?" if near else "`spark-tui presets list` names them all."
            raise PresetError(summary, remedy, file=including, line=entry.line)
        return found

    layers, chain = _layers(document, file, base, MAX_CHAIN)
    return _merged(layers), chain


def _layers(
    document: Node, file: str, base: Callable[[str, Entry, str], tuple[str, Node]], most: int
) -> tuple[list[Node], tuple[str, ...]]:
    """The document and all that it includes, nearest first, and their names."""
    names: list[str] = []
    files, layers = [file], [document]
    while isinstance(layers[-1], MappingValue) and (entry := layers[-1].get(INCLUDE)) is not None:
        name = compact(entry.node).strip()
        found, node = base(name, entry, files[-1])
        if found in files or len(names) == most:
            shown = truncate(" -> ".join(map(clean_line, (*names, name))), 120)
            raise PresetError(
                f"`include` leads in a circle, or through more than {most} recipes: {shown}.",
                "Include a recipe that includes no other one.",
                file=files[-1],
                line=entry.line,
            )
        names.append(name)
        files.append(found)
        layers.append(node)
    return layers, tuple(names)


def _merged(layers: list[Node], *, sparkrun: bool = False) -> Node:
    whole = layers[-1]
    for layer in reversed(layers[:-1]):
        both = isinstance(whole, MappingValue) and isinstance(layer, MappingValue)
        whole = merge(whole, layer, sparkrun=sparkrun) if both else layer  # type: ignore[arg-type]
    return whole


def merge(base: MappingValue, outer: MappingValue, *, sparkrun: bool = False, deep: bool = True) -> MappingValue:
    """`outer` over `base`: mappings key by key, everything else replaces, an empty value removes. Keys keep the place
    that they have in `base`. `sparkrun`: that tool's rules for single keys; not `deep`: mappings within replace."""
    entries = {entry.key: entry for entry in base.entries if entry.key != INCLUDE}
    for entry in outer.entries:
        key, node, below = entry.key, entry.node, entries.get(entry.key)
        earlier = below.node if below is not None else None
        if key == INCLUDE:
            continue
        if isinstance(node, ScalarValue) and node.value is None:
            entries.pop(key, None)
        elif sparkrun and key == "overrides" and isinstance(node, ListValue) and isinstance(earlier, ListValue):
            entries[key] = Entry(key, entry.line, ListValue((*earlier.items, *node.items), node.line))
        elif deep and isinstance(node, MappingValue) and isinstance(earlier, MappingValue):
            whole = sparkrun and key in ("defaults", "env")
            entries[key] = Entry(key, entry.line, merge(earlier, node, deep=not whole))
        else:
            entries[key] = entry
    return MappingValue(tuple(entries.values()), outer.line)


# --- recipe ----------------------------------------------------------------------------------------------


OWN_KEY: Final = "spark_tui"
IMPORTED_KEY: Final = "imported"
"""What an imported recipe was before, for the way back."""
COPY_KEY: Final = "copy_of"
"""Where a copy of a registry's recipe is from: `registry`, `address`, `recipe`, `commit`, `sha256`."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_API_KEY_ARGUMENT = re.compile(r"--api[-_]key(?![\w-])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_RUNTIME_BY_COMMAND: Final = (
    (re.compile(r"vllm\s+serve\b"), "vllm"),
    (re.compile(r"(?:sglang\s+serve|python3?\s+-m\s+sglang\.launch_server)\b"), "sglang"),
    (re.compile(r"llama-server\b"), "llama-cpp"),
    (re.compile(r"(?:trtllm-serve|mpirun\b.*trtllm)"), "trtllm"),
)
# sparkrun waits for the port, then for /health; its own defaults where a recipe sets only one of the two.
_VERSIONS: Final = ("2", "3", "4")
"""Recipes call themselves 3 and 4 as well: eugr's launcher warns of the number and runs them."""
_PORT_TIMEOUT_SECONDS: Final = 1800.0
_HEALTH_TIMEOUT_SECONDS: Final = 900.0
_KEY_REMEDY: Final = (
    "Remove it from the file. spark-tui passes the Hugging Face token and the API key from a private file."
)


HUB_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_OWN_REFERENCE: Final = re.compile(r"\$(?:\{[A-Za-z_]\w*(?::?-)?\}|[A-Za-z_]\w*)")


class Dialect(StrEnum):
    """What a file is: whose recipe, or what else starts an engine."""

    SPARKRUN = "sparkrun recipe (version 2)"
    EUGR = "eugr recipe (version 1)"
    SPARK_PULSE = "spark-pulse recipe (version 2)"
    VLLM = "vLLM recipe"
    DOCKER_RUN = "docker run command"
    COMPOSE = "Compose file"
    UNIT = "systemd unit"
    QUADLET = "Podman quadlet"
    KUBERNETES = "Kubernetes manifest"
    SCRIPT = "shell script"
    LLAMA_SWAP = "llama-swap configuration"
    ENV_FILE = ".env file"


LAUNCHERS: Final = tuple(Dialect)[tuple(Dialect).index(Dialect.COMPOSE) :]
"""What starts engines, and is no recipe."""


def dialect_of(document: MappingValue) -> Dialect:
    """spark-pulse has sparkrun's version number and other keys; eugr's old files may have no version. vLLM's have other
    keys: those of its repository, of a published command, of a model's published page."""
    if document.get("engines") or document.get("params"):
        return Dialect.SPARK_PULSE
    parts = (("meta", "variants"), ("docker_image", "deploy_type"), ("hf_id", "recommended_command"))
    if any(all(document.get(key) for key in keys) for keys in parts):
        return Dialect.VLLM
    version, command = document.get("recipe_version"), document.get("command")
    number = compact(version.node).removesuffix(".0") if version is not None else ""
    if number in ("1", "2"):
        return Dialect.EUGR if number == "1" else Dialect.SPARKRUN
    doubled = command is not None and "{{" in compact(command.node)
    return Dialect.EUGR if doubled and document.get("name") and document.get("container") else Dialect.SPARKRUN


def preset_from(document: Node, *, name: str, origin: Origin, file: str) -> Preset:
    """The preset that a recipe file describes. `name` is the file's stem.

    Raises PresetError for the first mistake in the file; its detail lists all of them.
    """
    if not isinstance(document, MappingValue):
        raise PresetError(
            f"A recipe is a mapping of keys to values; this file holds {describe(document)}.",
            "Start with: model: OWNER/NAME",
            file=file,
            line=document.line,
        )
    dialect = dialect_of(document)
    if dialect is not Dialect.SPARKRUN:
        mark = document.get("engines") or document.get("params") or document.get("recipe_version")
        importable = dialect in (Dialect.EUGR, Dialect.VLLM)
        way = "Import it: spark-tui presets import FILE" if importable else "Move it out of the folder"
        raise PresetError(
            f"This is a {dialect}; spark-tui reads sparkrun recipes of version 2.",
            f"{way}, or rewrite it with `model`, `container`, `defaults` and `command`.",
            file=file,
            line=mark.line if mark else document.line,
        )
    reader = Reader(document)
    preset = with_known(_read(reader, name, origin, file))
    if reader.complaints:
        first, *others = sorted(reader.complaints, key=lambda complaint: complaint.line)
        more = f" ({len(others)} more in this file)" if others else ""
        detail = "\n".join(f"{file}:{c.line}: {c.summary} {c.remedy}" for c in (first, *others)) if others else ""
        raise PresetError(first.summary + more, first.remedy, file=file, line=first.line, detail=detail)
    return preset


def _read(reader: Reader, name: str, origin: Origin, file: str) -> Preset:
    version, include, executor = (reader.entry(key) for key in ("recipe_version", "include", "executor"))
    if version is not None and compact(version.node).removesuffix(".0") not in _VERSIONS:
        reader.expected("recipe_version", version, "2, 3 or 4", 'recipe_version: "2"')
    if include is not None:
        reader.complain(
            include.line,
            f"It builds on another recipe (include: {compact(include.node)}), which is only followed among presets.",
            "Put it into your preset folder and include a preset by its name, or export it whole first.",
        )
    if executor is not None and compact(executor.node) not in ("", "docker"):
        reader.expected("executor", executor, "docker", "executor: docker")
    command = _command(reader)
    least, most = _nodes(reader)
    metadata, executor_config, readiness = (reader.sub(key) for key in ("metadata", "executor_config", "readiness"))
    own = metadata.sub(OWN_KEY)
    defaults, env = reader.sub("defaults"), reader.sub("env")
    facts = _facts(metadata, own, reader.text("description"), reader.text("name", numbers=True), origin)
    runtime = _runtime(reader, command)
    values = tuple((entry.key, _default(defaults, entry)) for entry in defaults.table.entries)
    return Preset(
        name=name,
        origin=origin,
        file=file,
        model=_model(reader),
        image=_needed(reader, "container", _image, "the name of an image", "vllm/vllm-openai:nightly"),
        runtime=runtime,
        model_revision=reader.parsed("model_revision", _REVISION, "a branch, tag or commit", "main") or "",
        command=command or ("" if facts.runs_as_is else _made(engine_of(runtime), dict(values))),
        defaults=values,
        env=tuple((each.key, value) for each in env.table.entries if (value := _variable(env, each)) is not None),
        options=_options(executor_config),
        facts=facts,
        mounts=(*map(_volume, executor_config.texts("volumes", _volume, "notes:/notes:ro")), *own.texts("mounts")),
        min_nodes=least,
        max_nodes=most,
        ready_timeout_seconds=_ready_timeout(readiness),
        hooks=tuple(hook for key in ("pre_exec", "post_exec", "post_commands") for hook in _hooks(reader, key)),
        mods=reader.texts("mods"),
        unknown=tuple(pair for each in (reader, readiness, executor_config, metadata, own) for pair in each.unused()),
    )


# --- what is known of the model ---------------------------------------------------------------------------


def with_known(preset: Preset) -> Preset:
    """The preset with what is known of its model where its file says nothing. What ships says all of it itself."""
    if preset.origin is Origin.BUILTIN:
        return preset
    values = (f"{name}={value}" for name, value in (*preset.defaults, *preset.env))
    text = " ".join((preset.model, preset.image, preset.command, *values))
    known = next((each for each in published_facts().checkpoint if preset.model.lower() in each.names), None)
    parts = (known.facts, *(each for each in known.when if re.search(each["has"], text))) if known is not None else ()
    found = [preset.facts, *(convert(part, PresetFacts) for part in parts)]
    stated: dict[str, Any] = {
        name: next(
            (value for each in found if (value := getattr(each, name)) not in ("", None, ())),
            getattr(preset.facts, name),
        )
        for name in PresetFacts.__struct_fields__
    }
    for name in ("notes", "cautions"):
        stated[name] = tuple(dict.fromkeys(line for each in found for line in getattr(each, name)))
    stated["source"] = "; of the model: ".join(each.source for each in found if each.source)
    stated["published"] = stated["published"] or _published_by_others(preset, stated["quantization"], text)
    return replace(preset, facts=PresetFacts(**stated))


def _published_by_others(preset: Preset, quantization: str, text: str) -> tuple[PublishedSpeed, ...]:
    """Undisputed speeds of one stream on one Spark, of this model in this format, drafted as `text` says or without
    drafting; of other engines only where there is none of the preset's."""
    bits, mine = quantization_words(preset.model, quantization) or "BF16", family(preset.model)
    found = [
        each
        for each in published_facts().figure
        if each.alone
        and each.quantization == bits
        and (not each.drafting or re.search(rf'"method"\s*:\s*"{each.drafting}"|(?i:{each.drafting})_DRAFTER', text))
        and family(each.model) == mine
    ]
    speeds = []
    for each in [each for each in found if each.runtime == preset.engine] or found:
        source, title = published_facts().source[each.source], runtime_named(each.runtime).title
        words = (
            "" if each.model.rpartition("/")[2] == preset.model.rpartition("/")[2] else each.model,
            f"{title} {each.version}".strip()
            if each.runtime == preset.engine
            else f"{title} instead of {preset.server.title}",
            f"drafting with {each.drafting}" if each.drafting else "",
            "without drafting" if not each.drafting and re.search("speculative|_DRAFTER", text) else "",
            each.conditions,
            " and ".join(f"{n} {way}" for n, way in ((each.input_tokens, "in"), (each.output_tokens, "out")) if n),
            "one stream",
        )
        licence = "" if source.licence == NOT_STATED else f" ({source.licence})"
        speeds.append(
            PublishedSpeed(each.decode_rate, ", ".join(filter(None, words)), f"{source.title}{licence}, {each.date}")
        )
    return tuple(speeds)


# --- single values ----------------------------------------------------------------------------------------


def _matching(pattern: str) -> Callable[[str], str]:
    """A parser that takes the texts which the pattern matches as a whole, and raises ValueError for all others."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return parse


_WORD: Final = _matching(r"[A-Za-z0-9][A-Za-z0-9_.:/=-]*")
_UNBROKEN: Final = _matching("[^\x00-\x20\x7f]+")
_MODEL: Final = _matching(r"[A-Za-z0-9~/][A-Za-z0-9._/:@+~-]{0,500}")
_REVISION: Final = _matching(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")
_DIGEST: Final = _matching(r"sha256:[0-9a-f]{64}")
_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_FILE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9._/+-]*")
_URL: Final = re.compile(r"https://[A-Za-z0-9.-]+/[A-Za-z0-9._~/%+-]+")
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_COUNT_FACTORS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B)", re.IGNORECASE)
_SYSTEM_FOLDER: Final = lazy_pattern(
    r"/|~|/(bin|boot|dev|etc|lib|proc|run|sbin|sys|usr|var/lib/docker|var/run)(/.*)?|/home(/[^/]+)?|/root|/var"
    r"|(~|/root|/home/[^/]+)/\.(aws|config|docker|gnupg|kube|ssh)(/.*)?"
)
_MOUNT: Final = re.compile(r"(?P<source>[^:\s]+):(?P<target>/[^:\s]*)(?::(?P<mode>ro|rw))?")


def parse_count(text: str) -> float:
    """Parameter counts as people write them: `35B`, `0.26 M`. Raises ValueError."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(round(float(match[1]) * _COUNT_FACTORS[match[2].upper()]))


def parse_size(text: str) -> int:
    """Sizes as model cards write them: `19GB` is 19 * 1000^3 bytes, `18 GiB` is 18 * 1024^3. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    unit = match[2].upper()
    power = " KMGT".index(unit[0]) if len(unit) > 1 else 0
    return int(float(match[1]) * float((1024 if "I" in unit else 1000) ** power))


def parse_gpus(text: str) -> Gpus | None:
    """As `--gpus`, or `none`. Raises ValueError."""
    if text in (NO_GPU, ""):
        return None
    gpus = read_gpus(text)
    if gpus.count == 0:
        raise ValueError(text)
    return gpus


def parse_mount(text: str) -> tuple[str, str, bool]:
    """`source:target[:ro]` -> source, target, read only. Raises ValueError."""
    match = _MOUNT.fullmatch(text)
    if match is None or ".." in (match["source"] + "/" + match["target"]).split("/"):
        raise ValueError(text)
    return match["source"], match["target"], match["mode"] == "ro"


def is_system_folder(path: str) -> bool:
    """Whether a folder of the machine holds its system, or a person's keys: no launch mounts it."""
    return _SYSTEM_FOLDER.fullmatch(path) is not None


def _volume(text: str) -> str:
    """sparkrun's mount: a path alone is the same path on both sides. Raises ValueError."""
    both = text if ":" in text else f"{text}:{text}"
    parse_mount(both)
    return both


# --- top level --------------------------------------------------------------------------------------------


def _needed(reader: Reader, key: str, parse: Callable[[str], str], expected: str, example: str) -> str:
    """A text that must not be missing; empty where it is a mistake."""
    entry = reader.entry(key)
    if entry is None:
        reader.complain(reader.table.line, f"`{key}` is missing.", f"Add for example: {key}: {example}")
    elif text := reader.text(key, example=example):
        with contextlib.suppress(ValueError):
            return parse(text)
        reader.expected(key, entry, expected, f"{key}: {example}")
    return ""


def _image(text: str) -> str:
    if not is_image_reference(text):
        raise ValueError(text)
    return text


def _model(reader: Reader) -> str:
    model = _needed(reader, "model", _MODEL, "a Hugging Face repository or a folder of the store", "Qwen/Qwen3-8B")
    if ".." in model.split("/"):
        reader.complain(reader.line("model"), "`model` leaves the model store.", "Name a folder below /models.")
    return model


def _command(reader: Reader) -> str:
    command = reader.text("command", example="vllm serve {model}").strip()
    line = reader.line("command")
    if _CONTROL.search(command):
        reader.complain(line, "`command` holds control characters.", "Remove them from the file.")
    if _API_KEY_ARGUMENT.search(command):
        summary = "`command` passes the API key as an argument, where every process list shows it."
        reader.complain(line, summary, _KEY_REMEDY)
    if holds_secret(command):
        reader.complain(line, "`command` holds a token.", _KEY_REMEDY)
    return command


def _runtime(reader: Reader, command: str) -> str:
    runtime = reader.text("runtime", example="vllm")
    if not runtime:
        runtime = next((name for start, name in _RUNTIME_BY_COMMAND if start.match(command)), "vllm")
    if not command and engine_of(runtime) not in ("vllm", *made_commands()):
        known = ", ".join(("vLLM", *made_commands()))
        reader.complain(
            reader.line("runtime"),
            f"`command` is missing: it can be made from `defaults` for {known}, and this recipe is for {runtime}.",
            "Add the command that starts the server.",
        )
    return runtime


class MadeCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """How a runtime's command is made where the recipe has none: an entry of `sparkrun.toml`."""

    start: str
    options: tuple[str, ...]
    switches: tuple[str, ...]


@lru_cache(1)
def made_commands() -> Mapping[str, MadeCommand]:
    """By runtime, without vLLM."""
    return toml.decode(Path(__file__).with_name("sparkrun.toml").read_bytes(), type=dict[str, MadeCommand])


def _made(engine: str, values: Mapping[str, Scalar]) -> str:
    """The template of the command that sparkrun makes of these defaults; empty for vLLM, whose options are ours."""
    if (table := made_commands().get(engine)) is None:
        return ""
    words = [table.start]
    for each in table.options:
        key, _, option = each.partition(" ")
        value, option = values.get(key), option or f"--{key.replace('_', '-')}"
        if key in table.switches:
            words += [option] if str(value).lower() in TRUE else []
        elif isinstance(value, bool):
            words.append(f"{option} {str(value).lower()}")
        elif value is not None:
            words.append(f"{option} '{{{key}}}'" if str(value)[:1] in ("{", "[") else f"{option} {{{key}}}")
    return " \\\n  ".join(words)


def _is_safe(reader: Reader, key: str, text: str, line: int) -> bool:
    """Whether a value holds neither a key nor control characters; else it is a complaint."""
    if text and (is_secret_name(key) or holds_secret(text)):
        reader.complain(line, f"`{reader.name(key)}` holds a key or token.", _KEY_REMEDY)
    elif _CONTROL.search(text):
        reader.complain(line, f"`{reader.name(key)}` holds control characters.", "Remove them from the file.")
    else:
        return True
    return False


def _default(reader: Reader, entry: Entry) -> Scalar:
    node, key = entry.node, entry.key
    value = node.value if isinstance(node, ScalarValue) else compact(node)
    if value is None or not _is_safe(reader, key, str(value), node.line):
        return None
    if key in CHECKED_IN_RECIPES:
        try:
            return OPTIONS[key].read(value)
        except ValueError:
            reader.expected(key, entry, OPTIONS[key].expected, f"{key}: {OPTIONS[key].example}")
    if isinstance(value, str) and "{{" in value:  # the older doubled spelling
        return value.replace("{{", "{").replace("}}", "}")
    return value


def _variable(reader: Reader, entry: Entry) -> str | None:
    """The value as text, a YAML boolean as Python spells it, as in sparkrun: `true` becomes `True`."""
    node, key = entry.node, entry.key
    if _ENV_NAME.fullmatch(key) is None:
        summary = f"`{reader.name(key)}` is not the name of an environment variable."
        reader.complain(entry.line, summary, "Correct the name.")
    elif not isinstance(node, ScalarValue) or node.value is None:
        reader.expected(key, entry, "text", f'{key}: "1"')
    elif key in HUB_TOKENS and _OWN_REFERENCE.fullmatch(str(node.value)):
        return None  # the shell's token: a launch passes it from a private file
    elif _is_safe(reader, key, str(node.value), node.line) and not is_secret_name(key):
        return str(node.value)
    return None


def _nodes(reader: Reader) -> tuple[int, int | None]:
    """The fewest and the most machines of one copy, by sparkrun's rules: `cluster_only` means two at least,
    `solo_only` and `mode: solo` one. None: no limit is stated."""
    least, most = reader.integer("min_nodes", 1, 64) or 1, reader.integer("max_nodes", 1, 64)
    solo, cluster = reader.boolean("solo_only"), reader.boolean("cluster_only")
    mode = reader.text("mode", example="auto")
    if mode == "solo" or solo:
        return 1, 1
    least = max(least, 2) if cluster or mode == "cluster" else least
    if most is not None and most < least:
        reader.complain(reader.line("max_nodes"), f"`max_nodes` is less than the {least} nodes needed.", "Raise it.")
    return least, most


def _ready_timeout(readiness: Reader) -> float | None:
    """Seconds until the engine must be ready; None where the recipe does not say, or says that it may take forever."""
    port, health = readiness.number("port_timeout_s"), readiness.number("health_timeout_s")
    if (port is None and health is None) or (port or 1) <= 0 or (health or 1) <= 0:
        return None
    return (_PORT_TIMEOUT_SECONDS if port is None else port) + (_HEALTH_TIMEOUT_SECONDS if health is None else health)


def _hooks(reader: Reader, key: str) -> list[str]:
    entry = reader.entry(key)
    nodes = () if entry is None else entry.node.items if isinstance(entry.node, ListValue) else (entry.node,)
    texts = [clean(compact(node)).strip() for node in nodes]
    return [f"{key}: {SECRET_MASK if holds_secret(text) else text}" for text in texts]


def _options(reader: Reader) -> ContainerOptions:
    """Reads `executor_config`; complaints go to the reader."""

    def checked(key: str, check: Callable[[str], object], expected: str, example: str) -> str | None:
        found = reader.parsed(key, lambda text: (text, check(text))[0], expected, example)
        return found if isinstance(found, str) else None

    restart, gpus = reader.entry("restart_policy"), reader.entry("gpus")
    if restart is not None and isinstance(restart.node, ScalarValue) and restart.node.value is False:
        policy: str | None = "no"  # YAML reads a bare `no` as false
    else:
        policy = checked("restart_policy", read_restart, "no, on-failure:3, unless-stopped or always", "no")
    some_gpus = checked("gpus", parse_gpus, "all, none, a number of GPUs, or device=0", "all")
    no_gpu = reader.text("accelerator_vendor", example="cpu") == "cpu" or (gpus and compact(gpus.node) == "")
    return ContainerOptions(
        entrypoint=None if reader.entry("entrypoint") is None else reader.text("entrypoint", example='""'),
        shm_size=reader.parsed("shm_size", parse_bytes, "a size", "10g"),
        ipc=reader.parsed("ipc", _WORD, "one word", "host"),
        network=reader.parsed("network", _WORD, "one word", "host"),
        gpus=NO_GPU if no_gpu else some_gpus,
        user=reader.parsed("user", _WORD, "one word", '"1000:1000"'),
        privileged=reader.boolean("privileged"),
        restart_policy=policy,
        ulimits=reader.texts("ulimit", read_ulimit, "memlock=-1"),
        cap_add=reader.texts("cap_add", _UNBROKEN, "IPC_LOCK"),
        devices=reader.texts("devices", _UNBROKEN, "/dev/infiniband"),
        security_opt=reader.texts("security_opt", _UNBROKEN, "seccomp=unconfined"),
    )


# --- metadata ---------------------------------------------------------------------------------------------


def _facts(metadata: Reader, own: Reader, description: str, name: str, origin: Origin) -> PresetFacts:
    """`own` is our block within the metadata; `name` and `description` are top-level keys, empty when absent."""

    def label(key: str) -> str:
        # Published recipes hold prose in sparkrun's keys: what cannot be read is absent, never a mistake.
        entry = metadata.entry(key)
        return clean(compact(entry.node)) if entry is not None and isinstance(entry.node, ScalarValue) else ""

    def text(key: str) -> str:
        return clean(own.text(key, numbers=True))

    def texts(key: str) -> tuple[str, ...]:
        return tuple(map(clean, own.texts(key)))

    own.entry(IMPORTED_KEY)
    quantization, dtype, params = label("quantization"), label("model_dtype"), label("model_params")
    total = own.parsed("total_parameters", parse_count, "a parameter count", "35B")
    if total is None:
        with contextlib.suppress(ValueError):
            total = parse_count(params)
    return PresetFacts(
        title=text("title") or clean(name),
        description=clean(description) or label("description"),
        category=label("category"),
        family=text("family"),
        publisher=text("publisher"),
        licence=text("licence"),
        gated=own.boolean("gated"),
        architecture=text("architecture"),
        total_parameters=total,
        active_parameters=own.parsed("active_parameters", parse_count, "a parameter count", "35B"),
        weights_bytes=own.parsed("weights", parse_size, "a size", "19GB"),
        context_tokens=own.integer("context", 1, 1_000_000_000),
        modalities=texts("modalities"),
        tags=_tags(own),
        quantization=text("quantization") or quantization or dtype,
        source=text("source"),
        checked=texts("checked"),
        notes=texts("notes"),
        cautions=texts("cautions"),
        sampling=_scalars(own.sub("sampling")),
        published=tuple(filter(None, map(_published, own.subs("published")))),
        required_files=tuple(filter(None, map(_required_file, own.subs("required_files")))),
        required_steps=tuple(filter(None, map(_required_step, own.subs("required_steps")))),
        image_digest=own.parsed("image_digest", _DIGEST, "a digest", "sha256:...") or "",
        runs_as_is=bool(own.boolean("runs_as_is")),
        wants_key=bool(own.boolean("wants_key")),
        copy_of=_copied(own.sub(COPY_KEY)) if origin is Origin.USER else None,
    )


def _copied(reader: Reader) -> RecipeSource | None:
    """None where a part is missing: such a copy is a preset like any other."""
    keys = ("registry", "address", "recipe", "commit", "sha256")
    texts = [truncate(clean(reader.text(key, numbers=True)), 300) for key in keys]
    return RecipeSource(*texts) if all(texts) else None


def _tags(own: Reader) -> tuple[Tag, ...]:
    """In the order of the enum; others are complaints."""
    texts = own.texts("tags")
    unknown = [text for text in texts if text not in tuple(Tag)]
    if unknown:
        summary = f"`{own.name('tags')}` holds {truncate(clean(unknown[0]), 40)}, which is no tag."
        own.complain(own.line("tags"), summary, f"Choose from: {', '.join(Tag)}")
    return tuple(tag for tag in Tag if tag in texts)


def _scalars(reader: Reader) -> tuple[tuple[str, Scalar], ...]:
    pairs: list[tuple[str, Scalar]] = []
    for entry in reader.table.entries:
        if isinstance(entry.node, ScalarValue):
            pairs.append((entry.key, entry.node.value))
        else:
            reader.expected(entry.key, entry, "a plain value", f"{entry.key}: 1.0")
    return tuple(pairs)


def _has_all(reader: Reader, *keys: str) -> bool:
    """Whether an entry has these keys; those that it has not are complaints."""
    missing = [key for key in keys if reader.table.get(key) is None]
    for key in missing:
        reader.complain(reader.table.line, f"`{reader.name(key)}` is missing.", "Add it, or remove the whole entry.")
    return not missing


def _published(reader: Reader) -> PublishedSpeed | None:
    speed = reader.number("tokens_per_second", positive=True)
    conditions, source = (clean(reader.text(key, numbers=True)) for key in ("conditions", "source"))
    complete = _has_all(reader, "tokens_per_second", "source")
    return PublishedSpeed(speed, conditions, source) if complete and speed is not None and source else None


def _required_file(reader: Reader) -> RequiredFile | None:
    target, repo, file, url = (clean(reader.text(key, numbers=True)) for key in ("target", "repo", "file", "url"))
    for_chat = bool(reader.boolean("for_chat"))
    complete = _has_all(reader, "target", *(() if url else ("repo",)))
    named = (("repo", repo, _REPO), ("file", file, _FILE), ("target", target, _FILE), ("url", url, _URL))
    wrong = next((key for key, text, pattern in named if text and pattern.fullmatch(text) is None), "")
    if repo and url:
        reader.complain(reader.line("url"), "A required file is on the Hub or elsewhere, not both.", "Keep one.")
    elif target.startswith("/") or ".." in target.split("/"):
        summary = f"`{reader.name('target')}` leaves the model store."
        reader.complain(reader.line("target"), summary, "Name a place below the store's root.")
    elif wrong:
        reader.complain(
            reader.line(wrong),
            f"`{reader.name(wrong)}` cannot be used in the command that fetches it.",
            "Write a plain name, or an https address, without blanks or shell characters.",
        )
    elif complete and target and (repo or url):
        return RequiredFile(target, repo, file, url, for_chat)
    return None


def _required_step(reader: Reader) -> RequiredStep | None:
    summary, command = (clean(reader.text(key, numbers=True)) for key in ("summary", "command"))
    complete = _has_all(reader, "summary", "command")
    return RequiredStep(summary, command) if complete and summary and command else None
