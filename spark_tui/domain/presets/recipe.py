"""A located document becomes a Preset, or an error that says where and why not. Nothing is read from disk here."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.image_reference import is_image_reference
from spark_tui.domain.presets.knobs import IN_RECIPES, KNOBS
from spark_tui.domain.presets.located import Complaint, Entry, Items, Leaf, Node, Reader, Table, compact, describe
from spark_tui.domain.presets.preset import Origin, Preset, Scalar, engine_of
from spark_tui.domain.presets.recipe_facts import metadata_from
from spark_tui.domain.presets.recipe_options import options_from
from spark_tui.domain.presets.secret_names import holds_secret, is_secret_name
from spark_tui.domain.presets.template import collapse_doubled
from spark_tui.domain.secret import MASK
from spark_tui.domain.text import clean

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_API_KEY_ARGUMENT = re.compile(r"--api[-_]key(?![\w-])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_MODEL = re.compile(r"[A-Za-z0-9~/][A-Za-z0-9._/:@+~-]{0,500}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")
_RUNTIME_BY_COMMAND: Final = (
    (re.compile(r"vllm\s+serve\b"), "vllm"),
    (re.compile(r"(?:sglang\s+serve|python3?\s+-m\s+sglang\.launch_server)\b"), "sglang"),
    (re.compile(r"llama-server\b"), "llama-cpp"),
    (re.compile(r"(?:trtllm-serve|mpirun\b.*trtllm)"), "trtllm"),
)
# sparkrun waits for the port, then for /health; its own defaults where a recipe sets only one of the two.
_PORT_TIMEOUT_SECONDS: Final = 1800.0
_HEALTH_TIMEOUT_SECONDS: Final = 900.0
_KEY_REMEDY: Final = (
    "Remove it from the file. spark-tui passes the Hugging Face token and the API key from a private file."
)


class Dialect(StrEnum):
    """Whose recipe a file is."""

    SPARKRUN = "sparkrun recipe (version 2)"
    EUGR = "eugr recipe (version 1)"
    SPARK_PULSE = "spark-pulse recipe (version 2)"
    DOCKER_RUN = "docker run command"


def dialect_of(document: Table) -> Dialect:
    """spark-pulse has sparkrun's version number and other keys; eugr's old files may lack a version."""
    if document.get("engines") or document.get("params"):
        return Dialect.SPARK_PULSE
    version, command = document.get("recipe_version"), document.get("command")
    if version is not None:
        return Dialect.EUGR if compact(version.node) == "1" else Dialect.SPARKRUN
    doubled = command is not None and "{{" in compact(command.node)
    return Dialect.EUGR if doubled and document.get("name") and document.get("container") else Dialect.SPARKRUN


def preset_from(document: Node, *, name: str, origin: Origin, file: str) -> Preset:
    """The preset that a recipe file describes. `name` is the file's stem.

    Raises PresetError for the first mistake in the file; its detail lists all of them.
    """
    if not isinstance(document, Table):
        raise PresetError(
            f"A recipe is a mapping of keys to values; this file holds {describe(document)}.",
            "Start with: model: OWNER/NAME",
            file=file,
            line=document.line,
        )
    _refuse_other_dialects(document, file)
    reader = Reader(document)
    preset = _read(reader, name, origin, file)
    if reader.complaints:
        raise _as_error(reader.complaints, file)
    return preset


def _refuse_other_dialects(document: Table, file: str) -> None:
    dialect = dialect_of(document)
    if dialect is Dialect.SPARKRUN:
        return
    telling = document.get("engines") or document.get("params") or document.get("recipe_version")
    raise PresetError(
        f"This is a {dialect}; spark-tui reads sparkrun recipes of version 2.",
        ("Import it: spark-tui presets import FILE" if dialect is Dialect.EUGR else "Keep it out of the preset folder")
        + ", or rewrite it with `model`, `container`, `defaults` and `command`.",
        file=file,
        line=telling.line if telling else document.line,
    )


def _as_error(complaints: list[Complaint], file: str) -> PresetError:
    first, *others = sorted(complaints, key=lambda complaint: complaint.line)
    more = f" ({len(others)} more in this file)" if others else ""
    detail = "\n".join(f"{file}:{c.line}: {c.summary} {c.remedy}" for c in (first, *others)) if others else ""
    return PresetError(first.summary + more, first.remedy, file=file, line=first.line, detail=detail)


def _read(reader: Reader, name: str, origin: Origin, file: str) -> Preset:
    _check_version(reader)
    _check_supported(reader)
    command = _command(reader)
    metadata = metadata_from(reader.sub("metadata"), reader.text("description"), reader.text("name", numbers=True))
    options = options_from(reader.sub("executor_config"))
    readiness = reader.sub("readiness")
    return Preset(
        name=name,
        origin=origin,
        file=file,
        model=_model(reader),
        image=_image(reader),
        runtime=_runtime(reader, command),
        model_revision=_pattern(reader, "model_revision", _REVISION, "a branch, tag or commit", "main"),
        command=command,
        defaults=_defaults(reader.sub("defaults")),
        env=_env(reader.sub("env")),
        options=options.container,
        facts=metadata.facts,
        mounts=(*options.volumes, *metadata.mounts),
        min_nodes=_min_nodes(reader),
        ready_timeout_seconds=_ready_timeout(readiness),
        hooks=_hooks(reader),
        mods=reader.texts("mods"),
        unknown=(*reader.unused(), *readiness.unused(), *options.unknown, *metadata.unknown),
    )


def _check_version(reader: Reader) -> None:
    entry = reader.entry("recipe_version")
    if entry is not None and compact(entry.node) not in ("2", "2.0"):
        reader.expected("recipe_version", entry, "2", 'recipe_version: "2"')


def _check_supported(reader: Reader) -> None:
    if (include := reader.entry("include")) is not None:
        reader.complain(
            include.line,
            f"It builds on another recipe (include: {compact(include.node)}), which is only followed among presets.",
            "Put it into your preset folder and include a preset by its name, or export it whole first.",
        )
    if (executor := reader.entry("executor")) is not None and compact(executor.node) not in ("", "docker"):
        reader.expected("executor", executor, "docker", "executor: docker")


def _model(reader: Reader) -> str:
    model = _pattern(reader, "model", _MODEL, "a Hugging Face repository or a folder of the store", "Qwen/Qwen3-8B")
    if not model and reader.table.get("model") is None:
        reader.complain(reader.table.line, "`model` is missing.", "Add for example: model: Qwen/Qwen3-8B")
    if ".." in model.split("/"):
        reader.complain(reader.line("model"), "`model` leaves the model store.", "Name a folder below /models.")
    return model


def _image(reader: Reader) -> str:
    image = reader.text("container", example="container: vllm/vllm-openai:nightly")
    if not image and reader.table.get("container") is None:
        reader.complain(
            reader.table.line, "`container` is missing.", "Add for example: container: vllm/vllm-openai:nightly"
        )
    elif image and not is_image_reference(image):
        entry = reader.entry("container")
        if entry is not None:
            reader.expected("container", entry, "the name of an image", "container: vllm/vllm-openai:nightly")
    return image


def _pattern(reader: Reader, key: str, pattern: re.Pattern[str], what: str, example: str) -> str:
    text = reader.text(key, example=f"{key}: {example}", numbers=key != "model")
    entry = reader.entry(key)
    if entry is not None and text and pattern.fullmatch(text) is None:
        reader.expected(key, entry, what, f"{key}: {example}")
        return ""
    return text


def _command(reader: Reader) -> str:
    command = reader.text("command", example="command: vllm serve {model}").strip()
    line = reader.line("command")
    if _CONTROL.search(command):
        reader.complain(line, "`command` holds control characters.", "Remove them from the file.")
    if _API_KEY_ARGUMENT.search(command):
        reader.complain(
            line, "`command` passes the API key as an argument, where every process list shows it.", _KEY_REMEDY
        )
    if holds_secret(command):
        reader.complain(line, "`command` holds a token.", _KEY_REMEDY)
    return command


def _runtime(reader: Reader, command: str) -> str:
    runtime = reader.text("runtime", example="runtime: vllm")
    if not runtime:
        runtime = next((name for start, name in _RUNTIME_BY_COMMAND if start.match(command)), "vllm")
    if not command and engine_of(runtime) != "vllm":
        reader.complain(
            reader.line("runtime"),
            f"`command` is missing; only for vLLM can it be built from `defaults`, and this recipe is for {runtime}.",
            "Add the command that starts the server.",
        )
    return runtime


def _defaults(reader: Reader) -> tuple[tuple[str, Scalar], ...]:
    return tuple((entry.key, _default(reader, entry)) for entry in reader.table.entries)


def _default(reader: Reader, entry: Entry) -> Scalar:
    node, key = entry.node, entry.key
    value = node.value if isinstance(node, Leaf) else compact(node)
    if value is not None and (is_secret_name(key) or holds_secret(str(value))):
        reader.complain(node.line, f"`{reader.name(key)}` holds a key or token.", _KEY_REMEDY)
        return None
    if isinstance(value, str) and _CONTROL.search(value):
        reader.complain(node.line, f"`{reader.name(key)}` holds control characters.", "Remove them from the file.")
    if key in IN_RECIPES and value is not None:
        try:
            return KNOBS[key].read(value)
        except ValueError:
            reader.expected(key, entry, KNOBS[key].what, f"{key}: {KNOBS[key].example}")
    return collapse_doubled(value) if isinstance(value, str) else value


def _env(reader: Reader) -> tuple[tuple[str, str], ...]:
    return tuple(
        (entry.key, value) for entry in reader.table.entries if (value := _variable(reader, entry)) is not None
    )


def _variable(reader: Reader, entry: Entry) -> str | None:
    """The value as text, a YAML boolean as Python spells it, as in sparkrun: `true` becomes `True`."""
    node, key = entry.node, entry.key
    if _ENV_NAME.fullmatch(key) is None:
        reader.complain(
            entry.line, f"`{reader.name(key)}` is not the name of an environment variable.", "Correct the name."
        )
    elif not isinstance(node, Leaf) or node.value is None:
        reader.expected(key, entry, "text", f'{key}: "1"')
    elif str(node.value) and (is_secret_name(key) or holds_secret(str(node.value))):
        reader.complain(node.line, f"`{reader.name(key)}` holds a key or token.", _KEY_REMEDY)
    elif _CONTROL.search(str(node.value)):
        reader.complain(node.line, f"`{reader.name(key)}` holds control characters.", "Remove them from the file.")
    else:
        return None if is_secret_name(key) else str(node.value)
    return None


def _min_nodes(reader: Reader) -> int:
    """How many machines it needs, by sparkrun's rules: `cluster_only` means two, `solo_only` and `mode: solo` one."""
    nodes = reader.integer("min_nodes", 1, 64) or 1
    reader.integer("max_nodes", 1, 64)
    solo, cluster = reader.boolean("solo_only"), reader.boolean("cluster_only")
    mode = reader.text("mode", example="mode: auto")
    if mode == "solo" or solo:
        return 1
    return max(nodes, 2) if cluster or mode == "cluster" else nodes


def _ready_timeout(readiness: Reader) -> float | None:
    """Seconds until the engine must be ready; None where the recipe does not say, or says that it may take forever."""
    port, health = readiness.number("port_timeout_s"), readiness.number("health_timeout_s")
    if (port is None and health is None) or (port or 1) <= 0 or (health or 1) <= 0:
        return None
    return (_PORT_TIMEOUT_SECONDS if port is None else port) + (_HEALTH_TIMEOUT_SECONDS if health is None else health)


def _hooks(reader: Reader) -> tuple[str, ...]:
    hooks: list[str] = []
    for key in ("pre_exec", "post_exec", "post_commands"):
        entry = reader.entry(key)
        if entry is not None:
            nodes = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
            hooks += [f"{key}: {_hook(node)}" for node in nodes]
    return tuple(hooks)


def _hook(node: Node) -> str:
    text = clean(compact(node)).strip()
    return MASK if holds_secret(text) else text
