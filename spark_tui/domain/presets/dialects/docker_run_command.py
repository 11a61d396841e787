"""What a container of a `docker run` command starts: which server, which model, and the words as a preset's template.

Values that a preset's settings know become placeholders with defaults, so that a launch can change them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from spark_tui.domain.engine.runtimes import OLLAMA, RUNTIMES, VLLM, Runtime, is_server_program, recognised
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.address import HOST_NETWORK
from spark_tui.domain.presets.container_spec import LABEL_API_KEY_FILE, LABEL_MODEL, ContainerSpec
from spark_tui.domain.presets.entrypoint import assumed_entrypoint
from spark_tui.domain.presets.knobs import KNOBS
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.presets.secret_names import is_secret_name
from spark_tui.domain.presets.shell_words import is_shell, join_lines, shell_construct, split_words, words_of
from spark_tui.domain.presets.template import render
from spark_tui.domain.text import clean_line, truncate

_SETTABLE: Final = (
    "port", "tensor_parallel", "served_model_name", "gpu_memory_utilization", "kv_cache_dtype", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens",
)  # fmt: skip
_SHORT: Final = {"tensor_parallel": ("-tp",)}
_IN_ENVIRONMENT: Final = ("MODEL", "MODEL_PATH", "MODEL_ID", "MODEL_NAME", "MODEL_HANDLE", "HF_MODEL")
_PYTHON = re.compile(r"python[0-9.]*")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_PULLED = re.compile(r"\bollama\s+(?:run|pull)\s+(?![-$])([^\s;&|'\"]+)")
_VALUE: Final = r"[A-Za-z0-9_./:@+-]+"
# What may stand after a value: the next option, the end of a script, or of the whole command.
_END: Final = r"(?=\s*\\?\s*(?:-|['\";&|]|\Z))"


@dataclass(frozen=True, slots=True)
class Served:
    """What a container starts. `template` is empty where the image's own start script decides; `model` is as the
    container sees it. `keys` are the options of keys that were taken out, `keyed` says that it has a key; `opened` that
    its script was given an address to listen on."""

    runtime: Runtime
    model: str
    template: str = ""
    defaults: Mapping[str, Scalar] = field(default_factory=dict)
    port: int = 0
    keys: tuple[str, ...] = ()
    keyed: bool = False
    opened: bool = False


def served(spec: ContainerSpec, env: Mapping[str, str]) -> Served:
    """The server of a container with these variables. Raises UsageError where a preset cannot start it."""
    runtime, words = _server(spec)
    if not words:
        return _as_is(spec, runtime, env)
    argv, keys = _without_keys(_without_wrapper(spec, words))
    model = spec.label(LABEL_MODEL) or _model(argv, runtime, env)
    template, defaults = _template(argv, runtime, model)
    if mask_secrets(template) != template:
        raise UsageError(
            "The command holds what looks like a key or token.",
            "Take it out: spark-tui passes the Hugging Face token and an API key from a private file.",
        )
    opened = False
    if is_shell(argv):
        template, opened = _with_host(template, runtime, on_host=spec.network == HOST_NETWORK)
    port = defaults.get("port", runtime.port)
    keyed = bool(keys) or bool(spec.label(LABEL_API_KEY_FILE))
    return Served(runtime, model, template, defaults, port if isinstance(port, int) else 0, keys, keyed, opened)


# --- server -------------------------------------------------------------------------------------------


def _server(spec: ContainerSpec) -> tuple[Runtime, tuple[str, ...]]:
    """The runtime, and the whole command with the program first; no words where the image runs as it is."""
    given = (*(spec.entrypoint or ()), *spec.command)
    runtime = next((each for each in RUNTIMES if _starts(given, each)), None) or recognised(spec.image, given)
    if runtime is None:
        known = ", ".join(each.title for each in RUNTIMES)
        raise UsageError(
            f"{_shown((spec.image, *given))} starts no server that spark-tui knows.",
            f"A preset is for {known}: the command has to start one of them.",
        )
    if not given:
        if assumed_entrypoint(spec.image)[:1] in (("vllm",), ("/app/llama-server",)):
            raise _no_model(runtime)
        return runtime, ()
    words = given if _starts(given, runtime) else _completed(spec, runtime)
    if not _starts(words, runtime):
        raise UsageError(
            f"The container gets the words {_shown(given)}, which start no {runtime.title} that spark-tui knows.",
            f"Write the server's own command after the image: {' '.join(runtime.programs[0])} ... What a start script "
            "of the image makes of such words is not known here.",
        )
    return runtime, words


def _completed(spec: ContainerSpec, runtime: Runtime) -> tuple[str, ...]:
    """The command with the program that the image puts in front of it."""
    given = spec.command
    if spec.entrypoint is not None or is_shell(given) or is_server_program(given[0]):
        return given
    if given[0].startswith("-"):
        return (*runtime.programs[0], *given)
    assumed = assumed_entrypoint(spec.image)
    if assumed == VLLM.programs[0] and ("/" in given[0] or given[1:2] == () or given[1].startswith("-")):
        return (*assumed, *given)
    return (OLLAMA.id, *given) if runtime is OLLAMA else given


def _starts(argv: tuple[str, ...], runtime: Runtime) -> bool:
    return _after_program(words_of(argv), runtime) is not None


def _after_program(words: tuple[str, ...], runtime: Runtime) -> int | None:
    """Where the words after the server's program begin; the longest spelling counts."""
    plain = tuple(_program(word) for word in words)
    found = [
        at + len(program)
        for program in runtime.programs
        for at in range(len(plain) - len(program) + 1)
        if plain[at : at + len(program)] == program
    ]
    return max(found, default=None)


def _program(word: str) -> str:
    name = PurePosixPath(word).name if not word.startswith("-") else word
    return "python3" if _PYTHON.fullmatch(name) else name


def _as_is(spec: ContainerSpec, runtime: Runtime, env: Mapping[str, str]) -> Served:
    """An image whose start script takes everything from the environment."""
    model = spec.label(LABEL_MODEL) or next((env[name] for name in _IN_ENVIRONMENT if env.get(name)), "")
    if not model:
        raise _no_model(runtime)
    ports = [port.container_port for port in spec.ports]
    stated = env.get("PORT", "")
    port = int(stated) if stated.isascii() and stated.isdigit() else ports[0] if len(ports) == 1 else runtime.port
    return Served(runtime, model, defaults={"port": port}, port=port, keyed=bool(spec.label(LABEL_API_KEY_FILE)))


# --- keys ---------------------------------------------------------------------------------------------


def _without_wrapper(spec: ContainerSpec, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command of ours without the shell that puts the key into a file."""
    ours = spec.label(LABEL_API_KEY_FILE) and argv[:2] == ("sh", "-c") and argv[3:4] == ("sh",)
    return argv[4:-2] if ours and argv[-2] == "--config" else argv


def _without_keys(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command without its keys, and the options that they stood after. An option may take several."""
    kept: list[str] = []
    taken: list[str] = []
    within = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if word.startswith("-") and is_secret_name(name.lstrip("-")):
            taken.append(name)
            within = not equals
        elif not within or word.startswith("-"):
            within = False
            kept.append(word)
    return tuple(kept), tuple(dict.fromkeys(taken))


# --- model --------------------------------------------------------------------------------------------


def _model(argv: tuple[str, ...], runtime: Runtime, env: Mapping[str, str]) -> str:
    words = words_of(argv)
    start = _after_program(words, runtime) or 0
    first = words[start] if start < len(words) and runtime in (VLLM, _TRTLLM) else ""
    named = "" if first.startswith("-") else first
    if runtime is OLLAMA:
        pulled = _PULLED.search(" ".join(words))
        named = pulled[1] if pulled else ""
    model = named or vllm.option_in(words[start:], runtime.model_options) or ""
    reference = _REFERENCE.fullmatch(model)
    model = env.get(reference[1], "") if reference else model
    if not model or model.startswith("-"):
        raise _no_model(runtime)
    return model


def _no_model(runtime: Runtime) -> UsageError:
    if runtime is OLLAMA:
        return UsageError(
            "The command names no model: Ollama loads the one that a request names.",
            "Import one that pulls it (ollama pull qwen3:32b), or copy qwen3-32b-ollama and change its model.",
        )
    example = f"{runtime.model_options[0]} OWNER/NAME" if runtime.model_options else "OWNER/NAME"
    words = ("vllm", "serve", "OWNER/NAME") if runtime is VLLM else (*runtime.programs[0], example)
    return UsageError("The command names no model.", f"Name it after the image: {' '.join(words)}")


_TRTLLM: Final = next(runtime for runtime in RUNTIMES if runtime.id == "trtllm")


# --- template -----------------------------------------------------------------------------------------


def _template(argv: tuple[str, ...], runtime: Runtime, model: str) -> tuple[str, dict[str, Scalar]]:
    """The command as a recipe writes it, and the values of its placeholders. Rendered, it is the same command."""
    script = argv[2].strip() if argv[:2] == ("bash", "-c") and len(argv) == 3 else ""
    script = script if shell_construct(join_lines(script)) else ""
    text = script or " \\\n  ".join(shlex.join(line) for line in _lines(argv))
    named = re.sub(rf"(?<![\w./:-]){re.escape(model)}(?![\w./:-])", "{model}", text)
    values: dict[str, Scalar] = {"model": model}
    for key in _SETTABLE:
        named, found = _with_placeholder(named, key, _spellings(key, runtime))
        if found is not None:
            values[key] = found
    for template in (named, text):
        if _renders(template, values, argv, script):
            values.pop("model")
            return template, values if template is named else {}
    raise UsageError(
        "The command holds braces or blanks that a preset would read otherwise.",
        "Write it without words in single braces, such as {name}.",
    )


def _lines(argv: tuple[str, ...]) -> Iterator[list[str]]:
    line: list[str] = []
    for word in argv:
        if line and word.startswith("--") and not is_shell(argv):
            yield line
            line = []
        line.append(word)
    yield line


def _spellings(key: str, runtime: Runtime) -> tuple[str, ...]:
    if key == "port":
        return ("--port",)
    if runtime is VLLM:
        return (vllm.option_of(key) or "", *_SHORT.get(key, ()))
    return runtime.spellings(key)


def _with_placeholder(text: str, key: str, names: tuple[str, ...]) -> tuple[str, Scalar]:
    """The text with an option's value as a placeholder, and the value; as it was where it stands there twice."""
    spelled = "|".join(re.escape(name[:2]) + re.escape(name[2:]).replace(r"\-", "[-_]") for name in names if name)
    pattern = re.compile(rf"(?<!\S)((?:{spelled})(?:=|\s+))({_VALUE}){_END}") if spelled else None
    found = list(pattern.finditer(text)) if pattern else []
    if len(found) != 1:
        return text, None
    match = found[0]
    value: Scalar = match[2]
    try:
        value = KNOBS[key].read(match[2]) if key in KNOBS else int(match[2])
    except ValueError:
        return text, None
    return f"{text[: match.start(2)]}{{{key}}}{text[match.end(2) :]}", value


def _with_host(script: str, runtime: Runtime, *, on_host: bool) -> tuple[str, bool]:
    """A script that listens where a launch says, and whether it had to be told: an option cannot be added later."""
    if not runtime.host_option:
        return script, False
    stated = re.compile(rf"(?<!\S)(--host(?:=|\s+)){_VALUE}(?=[\s\"'\\]|\Z)")
    if stated.search(script):
        return stated.sub(r"\1{host}", script), False
    program = re.escape(runtime.programs[0][-1])
    server = re.compile(rf"((?:^|[\s/\"';&|]){program}\b[^\n;&|\\]*?)(\s+(?:\\\n\s*)?-)", re.MULTILINE)
    found = list(server.finditer(script))
    if not found or not (on_host or runtime.loopback):
        return script, False
    at = found[-1].end(1)
    return f"{script[:at]} --host {{host}}{script[at:]}", True


def _renders(template: str, values: Mapping[str, Scalar], argv: tuple[str, ...], script: str) -> bool:
    rendered = render(template, values)
    text = join_lines(rendered.text)
    if rendered.missing or (shell_construct(text) != "") != bool(script):
        return False
    got, wanted = (text.split(" "), join_lines(script).split(" ")) if script else (list(split_words(text)), list(argv))
    return len(got) == len(wanted) and all(map(_same, got, wanted))


def _same(left: str, right: str) -> bool:
    """Whether two words say the same: `0.90` is 0.9."""
    if left == right:
        return True
    try:
        return float(left) == float(right)
    except ValueError:
        return False


def _shown(words: tuple[str, ...]) -> str:
    return truncate(clean_line(shlex.join(words)), 100)
