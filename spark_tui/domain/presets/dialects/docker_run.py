"""A `docker run` command as a recipe of ours: its server, model, mounts and words."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from spark_tui.domain.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_PREFIX,
    LABEL_PRESET,
    ContainerSpec,
    Mount,
    PublishedPort,
)
from spark_tui.domain.engine.docker_run import gpus_value, read_argv, restart_value, split_text, ulimit_value
from spark_tui.domain.engine.runtimes import OLLAMA, RUNTIMES, VLLM, KeyWay, Runtime, is_server_program, recognised
from spark_tui.domain.errors import UsageError
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.presets.command import HOST_NETWORK
from spark_tui.domain.presets.dialects.yaml_text import Value, table_of
from spark_tui.domain.presets.image import assumed_entrypoint, is_image_reference
from spark_tui.domain.presets.invocation import parse
from spark_tui.domain.presets.located import Table
from spark_tui.domain.presets.options import OPTIONS, SETTABLE, key_of, spellings
from spark_tui.domain.presets.plan import COMPILE_CACHES, STORE_TARGET
from spark_tui.domain.presets.preset import NO_GPU, Scalar
from spark_tui.domain.presets.template import render
from spark_tui.domain.quantities import docker_size
from spark_tui.domain.secret import SECRET_MASK, holds_secret, is_secret_name, mask_secrets
from spark_tui.domain.shell import is_shell, join_lines, shell_construct, split_words, words_of
from spark_tui.domain.text import clean_line, truncate

_SETTABLE: Final = (
    "port", "tensor_parallel", "served_model_name", "gpu_memory_utilization", "kv_cache_dtype", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens",
)  # fmt: skip
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
            "Remove it: spark-tui passes the Hugging Face token and an API key from a private file.",
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
            f"Write the server's own command after the image: {' '.join(runtime.programs[0])} ... What the image's "
            "start script makes of such words is unknown.",
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
    model = named or _model_option(words[start:], runtime)
    reference = _REFERENCE.fullmatch(model)
    model = env.get(reference[1], "") if reference else model
    if not model or model.startswith("-"):
        raise _no_model(runtime)
    return model


def _model_option(words: tuple[str, ...], runtime: Runtime) -> str:
    invocation = parse(words, runtime.id)
    keys = dict.fromkeys(key_of(name, runtime.id) for name in runtime.model_options)
    return next((value for key in keys if (value := invocation.value(key))), "")


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
        named, found = _with_placeholder(named, key, spellings(key, runtime.id))
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
        value = OPTIONS[key].read(match[2]) if key in SETTABLE else int(match[2])
    except ValueError:
        return text, None
    return f"{text[: match.start(2)]}{{{key}}}{text[match.end(2) :]}", value


def _with_host(script: str, runtime: Runtime, *, on_host: bool) -> tuple[str, bool]:
    """A script that listens where a launch says, and whether the option was added: that is not possible later."""
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


HOME: Final = "/~"
"""What `~` and `$HOME` stand for in a command that was found: a folder of no machine."""

_START = re.compile(
    r"[ \t]*(?:[$>%][ \t]+)?(?:[A-Za-z_]\w*=(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"]*)[ \t]+)*"
    r"(?:sudo[ \t]+(?:-[A-Za-z]+[ \t]+)*)?(?P<command>(?:/\S*/)?docker[ \t]+(?:container[ \t]+)?run(?=[ \t\\]|$))"
)
_ASSIGNMENT = re.compile(
    r"[ \t]*(?:[$>%][ \t]+)?(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?:'(?P<single>[^'\n]*)'|\"(?P<double>[^\"\n$`\\]*)\"|(?P<plain>[^\s'\"$`\\;&|<>()]*))[ \t]*(?:#.*)?$"
)
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<otherwise>[^{}$`'\"\\]*))?\})")
_FILLED_IN = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}\n]{0,60}\}?|\([^)\n]{0,60}\)?)")
_MADE_KEY = re.compile(r"(?P<name>[A-Za-z_-][\w-]*)(?P<between>[= ]\"?)(?:\$\([^()]*\)|`[^`]*`)")
_IN_QUOTES = re.compile(r'[\\"$`]')
# A backslash that stands alone was the end of a line, before the lines were put into one.
_LOST_LINE_END = re.compile(r"(?<=\s)\\[ \t]+(?=\S)")
_TRAILING_BLANKS = re.compile(r"\\[ \t]+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundCommand:
    """One command: its text from `docker` on, in one line as far as its quotes allow, and the line where it begins."""

    text: str
    line: int


def find_commands(text: str) -> tuple[FoundCommand, ...]:
    """Every `docker run` in a text, in order."""
    return tuple(_commands(with_newlines(text).replace("\N{NO-BREAK SPACE}", " ")))


def with_newlines(text: str) -> str:
    """The text with one kind of line end: terminals paste a carriage return, other systems write both."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _commands(text: str) -> Iterator[FoundCommand]:
    text = _LOST_LINE_END.sub(" ", _TRAILING_BLANKS.sub(lambda match: match[0].rstrip(), text))
    variables: dict[str, str] = {}
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)
        start = _START.match(text, at, end)
        if start is not None:
            variables |= _assigned(text[at : start.start("command")])
            written, end = _whole(text, start.start("command"))
            yield FoundCommand(_filled(join_lines(written), variables), line)
        elif assignment := _ASSIGNMENT.match(text, at, end):
            variables[assignment["name"]] = assignment["single"] or assignment["double"] or assignment["plain"] or ""
        line += text.count("\n", at, end) + 1
        at = end + 1


def _assigned(before: str) -> dict[str, str]:
    try:
        words = shlex.split(before)
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _whole(text: str, at: int) -> tuple[str, int]:
    """A command from `at` to the end of its last line, without comments, and where that is."""
    out: list[str] = []
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            out.append(text[at : at + 2])
            at += 2
            continue
        if not quote and char == "#" and (at == 0 or text[at - 1].isspace()):
            alone = "".join(out).rstrip(" \t").endswith(("\\\n", "\n"))
            at = text.find("\n", at) % (len(text) + 1)
            at += int(alone)  # a line of comment within a command; after words it ends with its line
            continue
        if char == "\n" and not quote:
            break
        if char in "'\"":
            quote = "" if quote == char else quote or char
        out.append(char)
        at += 1
    return "".join(out), min(at, len(text))


def _filled(command: str, variables: Mapping[str, str]) -> str:
    """The command with the variables that are known. Of one that holds a key the name stays, as plain text; what is
    not known stays as it is, and is refused where the command is read."""
    command = _MADE_KEY.sub(_without_made_key, command)
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        found = _VARIABLE.match(command, at) if char == "$" and quote != "'" else None
        value = _value(found, variables) if found else None
        if found is not None and value is not None:
            out.append(_IN_QUOTES.sub(r"\\\g<0>", value) if quote else shlex.quote(value))
            at = found.end()
            continue
        if char == "\\" and quote != "'":
            out.append(command[at : at + 2])
            at += 2
            continue
        if char in "'\"":
            quote = "" if quote == char else quote or char
        if quote or char not in " \t" or out[-1:] != [" "]:
            out.append(" " if char == "\t" and not quote else char)
        at += 1
    return "".join(out).strip()


def with_home(command: str) -> str:
    """A found command with `$HOME` filled in."""
    return _filled(command, {"HOME": HOME})


def _without_made_key(match: re.Match[str]) -> str:
    """`HF_TOKEN=$(cat token)`: what it gives is a key, whatever it runs."""
    return match["name"] + match["between"] + SECRET_MASK if is_secret_name(match["name"].lstrip("-")) else match[0]


def unknown_variable(command: str) -> str:
    """The first thing in a found command that only a shell can fill in: `$MODEL`, `$(id -u)`; empty for none."""
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        if char == "$" and quote != "'" and (found := _FILLED_IN.match(command, at)):
            return found[0]
        if char == "\\" and quote != "'":
            at += 1
        elif char in "'\"":
            quote = "" if quote == char else quote or char
        at += 1
    return ""


def _value(variable: re.Match[str], variables: Mapping[str, str]) -> str | None:
    name = variable["name"] or variable["braced"]
    return f"${name}" if is_secret_name(name) else variables.get(name, variable["otherwise"])


HUB_CACHE: Final = "/root/.cache/huggingface"
CACHE_VARIABLES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")


@dataclass(frozen=True, slots=True)
class SortedMounts:
    """The model as a preset names it, the recipe's `volumes`, and what became of the other mounts, in words."""

    model: str
    volumes: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(slots=True)
class _Sorting:
    spec: ContainerSpec
    model: str
    env: Mapping[str, str]
    paths: HostPaths | None
    volumes: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def sorted_mounts(spec: ContainerSpec, model: str, env: Mapping[str, str], paths: HostPaths | None) -> SortedMounts:
    """What becomes of every mount. `model` is as the container sees it; without `paths` any folder may be mounted.

    Raises UsageError for a folder or model outside the store.
    """
    work = _Sorting(spec, model, env, paths)
    caches = {posixpath.normpath(env[name]) for name in CACHE_VARIABLES if env.get(name, "").startswith("/")}
    for mount in spec.mounts:
        target = posixpath.normpath(mount.target)
        if target in {HUB_CACHE, f"{HUB_CACHE}/hub", STORE_TARGET, *caches}:
            _replace_by_store(work, mount, target)
        elif target in COMPILE_CACHES:
            said = f"-v {_written(mount)} is left out: spark-tui keeps the compile caches of every image itself."
            work.changes.append(said)
        else:
            _keep(work, mount, target)
    if work.model.startswith("/") and not _lies_in(work.model, STORE_TARGET):
        raise UsageError(
            f"The model {work.model} lies in no folder of the model store.",
            f"Put it into the store and name it as {STORE_TARGET}/FOLDER, or name it as it is called on the Hub.",
        )
    return SortedMounts(work.model, tuple(work.volumes), tuple(work.changes))


def _replace_by_store(work: _Sorting, mount: Mount, target: str) -> None:
    """The place of models: theirs becomes ours. Raises UsageError where the command names files by its old place."""
    source = _on_host(mount.source, work.paths)
    store = posixpath.normpath(work.paths.store) if work.paths else ""
    others = (text for name, text in work.env.items() if name not in CACHE_VARIABLES)
    if target != STORE_TARGET and any(f"{target}/" in text for text in (*work.spec.command, *others)):
        raise UsageError(
            f"The command names a file below {target}, and models lie in {STORE_TARGET} here.",
            f"Put that file into the model store and name it below {STORE_TARGET}, or name a model as on the Hub.",
        )
    if (source, target) != (store, STORE_TARGET):
        where = f" ({store})" if store else ""
        work.changes.append(
            f"{_short(source, work.paths)} is replaced by spark-tui's model store{where}, which is {STORE_TARGET} "
            "there: what is not in it yet is fetched at the launch."
        )


def _keep(work: _Sorting, mount: Mount, target: str) -> None:
    """Keeps a folder of the store; a model in it is named by its place there."""
    inside = _on_host(mount.source, work.paths)
    if work.paths:
        store = posixpath.normpath(work.paths.store)
        if not _lies_in(inside, store):
            raise UsageError(
                f"-v {_written(mount)} lies outside the model store ({store}).",
                "Put those files into the store and mount them from there, or leave the mount out.",
            )
        inside = inside[len(store) :].strip("/") or "."
    if any(mark in inside + target for mark in ": "):
        raise UsageError(f"-v {_written(mount)} has a colon or blank in a path.", "Rename the folder.")
    work.volumes.append(f"{inside}:{target}{':ro' if mount.read_only else ''}")
    if _lies_in(work.model, target):
        below = work.model[len(target) :].strip("/")
        work.model = posixpath.normpath(posixpath.join(STORE_TARGET, inside, below))


def _lies_in(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def _on_host(source: str, paths: HostPaths | None) -> str:
    home = (paths.home if paths else "") or "~"
    return posixpath.normpath(home + source[len(HOME) :] if _lies_in(source, HOME) else source)


def _written(mount: Mount) -> str:
    source = "~" + mount.source[len(HOME) :] if _lies_in(mount.source, HOME) else mount.source
    return f"{source}:{mount.target}"


def _short(path: str, paths: HostPaths | None) -> str:
    home = paths.home if paths else ""
    return "~" + path[len(home) :] if home and _lies_in(path, home) else path


HOST: Final = "host"
_HUB_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_OOM_SCORE_ADJ: Final = 800  # what every launch sets
_GPU_DEVICE: Final = "nvidia.com/gpu="
_LEFT_TO_FILL = re.compile(r"<[A-Za-z][A-Za-z0-9_ -]*>")
_TYPESET = re.compile("(?:^|\\s)[\u2012-\u2015]+[A-Za-z]|(?:^|[\\s=])[\u2018\u2019\u201c\u201d]")


@dataclass(frozen=True, slots=True)
class CommandRecipe:
    """A command as a recipe of version 2. `name` is what its container or model is called."""

    document: Table
    name: str
    changes: tuple[str, ...]


@dataclass(slots=True)
class _Work:
    """One import. `paths` None: where the store lies is not known, and mounts are not held against it."""

    spec: ContainerSpec
    paths: HostPaths | None
    changes: list[str] = field(default_factory=list)
    keyed: bool = False

    @property
    def ours(self) -> bool:
        """Made by spark-tui: what it adds to every launch is no news."""
        return bool(self.spec.label(LABEL_PRESET))

    def tell(self, change: str) -> None:
        if not self.ours:
            self.changes.append(truncate(clean_line(change), 300))


def from_docker_run(text: str, paths: HostPaths | None = None) -> CommandRecipe:
    """The recipe of one command, as `find_commands` gives it. Raises UsageError for what a preset cannot hold."""
    read = read_argv(_words(text))
    work = _Work(read.spec, paths)
    for why in read.left_out:
        work.tell(why)
    return _recipe(work)


def _words(text: str) -> tuple[str, ...]:
    """The words of a command. Raises UsageError, with what posts and guides do to commands in words of its own."""
    text = with_home(text)
    if unknown := unknown_variable(text):
        above = "" if unknown.startswith("$(") else f", or put {unknown.strip('${}')}=VALUE on a line above the command"
        raise UsageError(
            f"The command uses {unknown}, which only your shell can fill in.", f"Write its value out{above}."
        )
    if _TYPESET.search(text):
        raise UsageError(
            "The command has long dashes or curly quotes, which a post made of -- and of straight quotes.",
            "Write them as they were: -- before an option, ' and \" around words.",
        )
    try:
        return split_text(text, home=HOME)
    except UsageError:
        if left := _LEFT_TO_FILL.search(text):
            raise UsageError(f"The command still has {left[0]} to be filled in.", "Replace it by a value.") from None
        raise


def _recipe(work: _Work) -> CommandRecipe:
    spec = work.spec
    if not is_image_reference(spec.image):
        raise UsageError(
            f"{_clip(spec.image)} is not the name of an image.",
            "The image stands after the options: docker run -d ... IMAGE",
        )
    every = {variable.name: variable.value for variable in spec.env}
    start = served(spec, every)
    env = _env(work, every, start)
    if start.opened:
        work.tell("--host {host} is added to its script: a launch says there how far the server can be reached.")
    for option in start.keys:
        _tell_key(work, option, start)
    network = _network(work, start)
    defaults = {"port": _port(work, start, every), **{k: v for k, v in start.defaults.items() if k != "port"}}
    found = sorted_mounts(spec, start.model, every, work.paths)
    for change in found.changes:
        work.tell(change)
    _tell_the_rest(work)
    own: dict[str, Value] = {"source": "a docker run command"}
    if not start.template:
        own["runs_as_is"] = True
    if (work.keyed or start.keyed) and start.runtime.key_way is not KeyWay.NONE:
        own["wants_key"] = True
    made: dict[str, Value] = {
        "recipe_version": "2",
        "model": found.model,
        "runtime": start.runtime.id,
        "container": spec.image,
        "executor_config": _options(work, network, found.volumes),
        "metadata": {"spark_tui": own},
        "defaults": defaults,
        "env": env,
        "command": start.template,
    }
    kept = {key: value for key, value in made.items() if value not in ("", {})}
    name = spec.name or posixpath.basename(found.model.rstrip("/")).lower().removesuffix(".gguf")
    return CommandRecipe(table_of(kept), name, tuple(dict.fromkeys(work.changes)))


# --- environment --------------------------------------------------------------------------------------


def _env(work: _Work, every: Mapping[str, str], start: Served) -> dict[str, Value]:
    """The variables that may stand in a file; the store's place and the server's address are a launch's to say."""
    kept: dict[str, Value] = {}
    for name, text in every.items():
        if _is_secret(name, text):
            _tell_key(work, name, start)
        elif name in CACHE_VARIABLES and posixpath.normpath(text).startswith((STORE_TARGET, HUB_CACHE)):
            if text != STORE_TARGET:
                work.tell(f"{name} is left out: models lie in spark-tui's store, which is {STORE_TARGET} there.")
        elif name == start.runtime.host_variable and not start.runtime.host_option:
            work.tell(f"{name} is left out: a launch sets it from its port.")
        else:
            kept[name] = text
    return kept


def _is_secret(name: str, text: str) -> bool:
    reference = text[1:] if text.startswith("$") else ""
    return is_secret_name(name) or holds_secret(text) or mask_secrets(text) != text or is_secret_name(reference)


def _tell_key(work: _Work, name: str, start: Served) -> None:
    """Says where a key belongs that was taken out."""
    way = start.runtime.key_way
    if name in _HUB_TOKENS or name.lstrip("-").replace("-", "_").lower() in ("hf_token", "hft"):
        work.tell(
            f"`{name}` is not kept in the file: set HF_TOKEN in your shell or log in with `hf auth login`; spark-tui "
            "passes it on from a private file."
        )
    elif name == start.runtime.key_variable or name.endswith(("api-key", "api_key")):
        if way is KeyWay.NONE:
            work.tell(f"`{name}` is left out: {start.runtime.title} knows no keys.")
            return
        work.keyed = True
        work.tell(
            f"`{name}` is not kept in the file: spark-tui makes a key of its own at the first launch, "
            "and keeps it in a private file."
        )
    else:
        work.tell(f"`{name}` is left out: a preset holds no keys; the Hub's token and the API key alone are passed on.")


# --- network ------------------------------------------------------------------------------------------


def _network(work: _Work, start: Served) -> str:
    network = {"bridge": "", "default": ""}.get(work.spec.network, work.spec.network)
    if network == HOST and not start.template:
        work.tell("--network host is left out: this image runs as it is, and its port is published instead.")
        return ""
    if network == HOST:
        work.tell("On the host's network it listens to this machine alone; launch it with exposure=lan to open it.")
    return network


def _port(work: _Work, start: Served, env: Mapping[str, str]) -> int:
    """The port on this machine. Raises UsageError for ports that a preset has no place for."""
    port = start.port
    if not start.runtime.host_option:
        stated = env.get(start.runtime.host_variable, "").rpartition(":")[2]
        port = int(stated) if stated.isascii() and stated.isdigit() else port
    if work.spec.network == HOST:
        return port
    chosen: PublishedPort | None = None
    for published in work.spec.ports:
        if published.container_port != port or published.protocol != "tcp" or chosen:
            raise UsageError(
                f"-p {published.host_port or ''}:{published.container_port} is not the server's port, which is {port}.",
                f"A preset publishes one port. Leave it out, or let the server listen there: --port "
                f"{published.container_port}",
            )
        chosen = published
    if chosen is None:
        work.tell(f"It publishes no port: a launch publishes {port} on this machine.")
        return port
    if not chosen.host_ip.startswith("127."):
        work.tell(
            f"Port {chosen.host_port or port} is open to this machine alone; launch it with exposure=lan to open it."
        )
    if not start.template and chosen.host_port not in (0, port):
        raise UsageError(
            f"-p {chosen.host_port}:{port}: this image runs as it is, with one port on both sides.",
            f"Write -p {port}:{port}, and change the port at the launch.",
        )
    return chosen.host_port or port


def _clip(text: str) -> str:
    return truncate(clean_line(text), 60)


# --- the rest -----------------------------------------------------------------------------------------


def _options(work: _Work, network: str, volumes: tuple[str, ...]) -> dict[str, Value]:
    """`executor_config`: what the container is made with, in the words of Docker."""
    spec = work.spec
    on_gpu = tuple(device for device in spec.devices if device.startswith(_GPU_DEVICE))
    if on_gpu:
        work.tell(f"--device {on_gpu[0]} is --gpus all here.")
    if spec.gpus is None and not on_gpu:
        work.tell("It asks for no GPU (--gpus all), so its preset runs on the CPU.")
    options: dict[str, Value] = {
        "entrypoint": None if spec.entrypoint is None else "".join(spec.entrypoint[:1]),
        "gpus": gpus_value(spec.gpus).strip('"') if spec.gpus else "all" if on_gpu else NO_GPU,
        "ipc": spec.ipc,
        "shm_size": docker_size(spec.shm_size) if spec.shm_size else None,
        "network": network,
        "user": spec.user,
        "restart_policy": restart_value(spec.restart) if spec.restart.name != "no" else None,
        "ulimit": [ulimit_value(limit) for limit in spec.ulimits],
        "cap_add": list(spec.cap_add),
        "devices": [device for device in spec.devices if device not in on_gpu],
        "security_opt": list(spec.security_opt),
        "privileged": True if spec.privileged else None,
        "volumes": list(volumes),
    }
    usual = {"gpus": "all"}
    return {
        key: value
        for key, value in options.items()
        if value not in (None, []) and (value != "" or key == "entrypoint") and usual.get(key) != value
    }


def _tell_the_rest(work: _Work) -> None:
    """What every launch decides, and what a preset has no place for. Raises UsageError for files of variables."""
    spec = work.spec
    if spec.env_files and not work.ours:
        raise UsageError(
            f"--env-file {spec.env_files[0].replace(HOME, '~')} is not read by a preset.",
            "Write its variables out with -e NAME=VALUE, but no keys: spark-tui passes the Hub's token and an API key.",
        )
    labels = [key for key, _ in spec.labels if not key.startswith(LABEL_PREFIX)]
    if labels:
        work.tell(f"Labels are left out: {', '.join(labels)}.")
    if spec.init:
        work.tell("--init is left out: the server is the container's first process, and gets the signal that stops it.")
    if spec.oom_score_adj not in (0, _OOM_SCORE_ADJ):
        work.tell(f"--oom-score-adj {spec.oom_score_adj} is left out: every launch has {_OOM_SCORE_ADJ}.")
