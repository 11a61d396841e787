"""A located document becomes a Preset, or an error that says where and why not. Nothing is read from disk here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_tui.domain.engine.container import Gpus, RestartPolicy, Ulimit
from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.image import is_image_reference
from spark_tui.domain.presets.located import Complaint, Entry, Items, Leaf, Node, Reader, T, Table, compact, describe
from spark_tui.domain.presets.options import CHECKED_IN_RECIPES, OPTIONS
from spark_tui.domain.presets.preset import (
    NO_GPU,
    ContainerOptions,
    Origin,
    Preset,
    PresetFacts,
    PublishedSpeed,
    RequiredFile,
    RequiredStep,
    Scalar,
    engine_of,
)
from spark_tui.domain.quantities import parse_bytes
from spark_tui.domain.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.domain.text import clean

OWN_KEY: Final = "spark_tui"
IMPORTED_KEY: Final = "imported"
"""What an imported recipe was before, for the way back."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_COUNT_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_FILE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9._/+-]*")
_URL = re.compile(r"https://[A-Za-z0-9.-]+/[A-Za-z0-9._~/%+-]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The facts, the extra mounts that the same block states, and the keys that we do not use."""

    facts: PresetFacts
    mounts: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


def metadata_from(metadata: Reader, description: str, name: str) -> Metadata:
    """Reads the block. `name` and `description` are the recipe's own top-level keys, empty when absent."""
    own = metadata.sub(OWN_KEY)
    own.entry(IMPORTED_KEY)
    quantization, dtype = _label(metadata, "quantization"), _label(metadata, "model_dtype")
    facts = PresetFacts(
        title=_text(own, "title") or clean(name),
        description=clean(description) or _label(metadata, "description"),
        category=_label(metadata, "category"),
        family=_text(own, "family"),
        publisher=_text(own, "publisher"),
        licence=_text(own, "licence"),
        gated=own.boolean("gated"),
        architecture=_text(own, "architecture"),
        total_parameters=_first(
            own.parsed("total_parameters", _required(parse_count), "a parameter count", "35B"),
            parse_count(_label(metadata, "model_params")),
        ),
        active_parameters=own.parsed("active_parameters", _required(parse_count), "a parameter count", "35B"),
        weights_bytes=own.parsed("weights", _required(parse_size), "a size", "19GB"),
        context_tokens=own.integer("context", 1, 1_000_000_000),
        modalities=_texts(own, "modalities"),
        quantization=_text(own, "quantization") or quantization or dtype,
        source=_text(own, "source"),
        notes=_texts(own, "notes"),
        cautions=_texts(own, "cautions"),
        sampling=_scalars(own.sub("sampling")),
        published=tuple(filter(None, map(_published, own.subs("published")))),
        required_files=tuple(filter(None, map(_required_file, own.subs("required_files")))),
        required_steps=tuple(filter(None, map(_required_step, own.subs("required_steps")))),
        image_digest=own.parsed("image_digest", _digest, "a digest", "sha256:...") or "",
        runs_as_is=bool(own.boolean("runs_as_is")),
        wants_key=bool(own.boolean("wants_key")),
    )
    mounts = own.texts("mounts")
    return Metadata(facts, mounts, (*metadata.unused(), *own.unused()))


def parse_count(text: str) -> float | None:
    """Parameter counts as people write them: `35B`, `0.26 M`. None when it is none."""
    match = _COUNT.fullmatch(text.strip())
    return float(round(float(match[1]) * _COUNT_FACTORS[match[2].upper()])) if match else None


def parse_size(text: str) -> int | None:
    """Sizes as model cards write them: `19GB` is 19 * 1000^3 bytes, `18 GiB` is 18 * 1024^3. None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].upper()
    power = " KMGT".index(unit[0]) if len(unit) > 1 else 0
    return int(float(match[1]) * float((1024 if "I" in unit else 1000) ** power))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _label(metadata: Reader, key: str) -> str:
    """A key of sparkrun's. Published recipes hold prose in them: what cannot be read is absent, never a mistake."""
    entry = metadata.entry(key)
    return clean(compact(entry.node)) if entry is not None and isinstance(entry.node, Leaf) else ""


def _text(reader: Reader, key: str) -> str:
    return clean(reader.text(key, numbers=True))


def _texts(reader: Reader, key: str) -> tuple[str, ...]:
    return tuple(clean(text) for text in reader.texts(key))


def _required(parse: Callable[[str], T | None]) -> Callable[[str], T]:
    """A parser that raises ValueError where the other finds nothing."""

    def parsed(text: str) -> T:
        found = parse(text)
        if found is None:
            raise ValueError(text)
        return found

    return parsed


def _scalars(reader: Reader) -> tuple[tuple[str, Scalar], ...]:
    pairs: list[tuple[str, Scalar]] = []
    for entry in reader.table.entries:
        if isinstance(entry.node, Leaf):
            pairs.append((entry.key, entry.node.value))
        else:
            reader.expected(entry.key, entry, "a plain value", f"{entry.key}: 1.0")
    return tuple(pairs)


def _published(reader: Reader) -> PublishedSpeed | None:
    speed = reader.number("tokens_per_second", positive=True)
    conditions, source = _text(reader, "conditions"), _text(reader, "source")
    if speed is None or not source:
        _needs(reader, "tokens_per_second", "source")
        return None
    return PublishedSpeed(speed, conditions, source)


def _required_file(reader: Reader) -> RequiredFile | None:
    target, repo, file, url = (_text(reader, key) for key in ("target", "repo", "file", "url"))
    for_chat = bool(reader.boolean("for_chat"))
    if not target or bool(repo) == bool(url):
        _needs(reader, "target", *(() if url else ("repo",)))
        if repo and url:
            reader.complain(reader.line("url"), "A required file is on the Hub or elsewhere, not both.", "Keep one.")
        return None
    if target.startswith("/") or ".." in target.split("/"):
        reader.complain(
            reader.line("target"),
            f"`{reader.name('target')}` leaves the model store.",
            "Name a place below the store's root.",
        )
        return None
    named = (("repo", repo, _REPO), ("file", file, _FILE), ("target", target, _FILE), ("url", url, _URL))
    wrong = next((key for key, text, pattern in named if text and pattern.fullmatch(text) is None), "")
    if wrong:
        reader.complain(
            reader.line(wrong),
            f"`{reader.name(wrong)}` cannot be used in the command that fetches it.",
            "Write a plain name, or an https address, without blanks or shell characters.",
        )
        return None
    return RequiredFile(target, repo, file, url, for_chat)


def _required_step(reader: Reader) -> RequiredStep | None:
    summary, command = _text(reader, "summary"), _text(reader, "command")
    if not (summary and command):
        _needs(reader, "summary", "command")
        return None
    return RequiredStep(summary, command)


def _digest(text: str) -> str:
    """`sha256:` and 64 hexadecimal digits, as docker images --digests shows it."""
    if _DIGEST.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _needs(reader: Reader, *keys: str) -> None:
    for key in keys:
        if reader.table.get(key) is None:
            reader.complain(
                reader.table.line, f"`{reader.name(key)}` is missing.", "Add it, or remove the whole entry."
            )


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/=-]*")
_MOUNT = re.compile(r"(?P<source>[^:\s]+):(?P<target>/[^:\s]*)(?::(?P<mode>ro|rw))?")
_CONTROL_OR_BLANK = re.compile("[\x00-\x20\x7f]")
_DEVICE_ID = re.compile(r"[A-Za-z0-9-]+")
_RESTART_NAMES: Final = ("no", "always", "unless-stopped", "on-failure")


@dataclass(frozen=True, slots=True)
class Options:
    """The options, the volumes, and the keys that we do not use."""

    container: ContainerOptions
    volumes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


def options_from(reader: Reader) -> Options:
    """Reads the block; complaints go to the reader."""
    restart = reader.entry("restart_policy")
    if restart is not None and isinstance(restart.node, Leaf) and restart.node.value is False:
        policy: str | None = "no"  # YAML reads a bare `no` as false
    else:
        expected = "no, on-failure:3, unless-stopped or always"
        policy = reader.parsed("restart_policy", _checked(parse_restart), expected, "no")
    cpu = reader.text("accelerator_vendor", example="cpu") == "cpu"
    gpus = reader.parsed("gpus", _checked(parse_gpus), "all, none, a number of GPUs, or device=0", "all")
    no_gpu = cpu or ((given := reader.entry("gpus")) is not None and compact(given.node) == "")
    container = ContainerOptions(
        entrypoint=None if reader.entry("entrypoint") is None else reader.text("entrypoint", example='""'),
        shm_size=reader.parsed("shm_size", parse_bytes, "a size", "10g"),
        ipc=reader.parsed("ipc", _word, "one word", "host"),
        network=reader.parsed("network", _word, "one word", "host"),
        gpus=NO_GPU if no_gpu else gpus,
        user=reader.parsed("user", _word, "one word", '"1000:1000"'),
        privileged=reader.boolean("privileged"),
        restart_policy=policy,
        ulimits=reader.texts("ulimit", _accepts(parse_ulimit), "memlock=-1"),
        cap_add=reader.texts("cap_add", _is_word, "IPC_LOCK"),
        devices=reader.texts("devices", _is_word, "/dev/infiniband"),
        security_opt=reader.texts("security_opt", _is_word, "seccomp=unconfined"),
    )
    volumes = reader.texts("volumes", lambda text: _accepts(parse_mount)(_both_sides(text)), "notes:/notes:ro")
    return Options(container, tuple(map(_both_sides, volumes)), reader.unused())


def _accepts(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return accepts


def _checked(parse: Callable[[str], object]) -> Callable[[str], str]:
    def checked(text: str) -> str:
        parse(text)
        return text

    return checked


def _word(text: str) -> str:
    if _WORD.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _is_word(text: str) -> bool:
    return bool(text) and _CONTROL_OR_BLANK.search(text) is None


def parse_gpus(text: str) -> Gpus | None:
    """`all`, `2`, `device=0,1`, or `none`. Raises ValueError."""
    if text in (NO_GPU, ""):
        return None
    if text == "all":
        return Gpus()
    if text.isascii() and text.isdigit() and int(text) > 0:
        return Gpus(count=int(text))
    kind, _, ids = text.strip("'\"").partition("=")
    names = tuple(ids.split(","))
    if kind == "device" and all(_DEVICE_ID.fullmatch(name) for name in names):
        return Gpus(count=0, device_ids=names)
    raise ValueError(text)


def parse_restart(text: str) -> RestartPolicy:
    """`no`, `always`, `unless-stopped`, `on-failure`, `on-failure:3`. Raises ValueError."""
    name, colon, retries = text.partition(":")
    if name not in _RESTART_NAMES or (
        colon and (name != "on-failure" or not retries.isascii() or not retries.isdigit())
    ):
        raise ValueError(text)
    return RestartPolicy(name, int(retries) if retries else 0)


def parse_ulimit(text: str) -> Ulimit:
    """`nofile=1024`, `nofile=1024:2048`, `memlock=-1`. Raises ValueError."""
    name, _, limits = text.partition("=")
    soft, _, hard = limits.partition(":")
    if not re.fullmatch(r"[a-z]+", name):
        raise ValueError(text)
    return Ulimit(name, int(soft), int(hard or soft))


def parse_mount(text: str) -> tuple[str, str, bool]:
    """`source:target[:ro]` -> source, target, read only. Raises ValueError."""
    match = _MOUNT.fullmatch(text)
    if match is None or ".." in (match["source"] + "/" + match["target"]).split("/"):
        raise ValueError(text)
    return match["source"], match["target"], match["mode"] == "ro"


def _both_sides(text: str) -> str:
    """sparkrun takes a path alone as the same path on both sides."""
    return f"{text}:{text}" if ":" not in text else text


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
    image = reader.text("container", example="vllm/vllm-openai:nightly")
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
    text = reader.text(key, example=example, numbers=key != "model")
    entry = reader.entry(key)
    if entry is not None and text and pattern.fullmatch(text) is None:
        reader.expected(key, entry, what, f"{key}: {example}")
        return ""
    return text


def _command(reader: Reader) -> str:
    command = reader.text("command", example="vllm serve {model}").strip()
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
    runtime = reader.text("runtime", example="vllm")
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
    if key in CHECKED_IN_RECIPES and value is not None:
        try:
            return OPTIONS[key].read(value)
        except ValueError:
            reader.expected(key, entry, OPTIONS[key].expected, f"{key}: {OPTIONS[key].example}")
    if isinstance(value, str) and "{{" in value:  # the older doubled spelling
        return value.replace("{{", "{").replace("}}", "}")
    return value


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
    mode = reader.text("mode", example="auto")
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
    return SECRET_MASK if holds_secret(text) else text
