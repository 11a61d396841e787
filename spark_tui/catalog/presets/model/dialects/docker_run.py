"""A `docker run` command as a recipe of ours: its server, model, mounts and words."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.container import (
    HUB_SETTINGS,
    HUB_TARGET,
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_PREFIX,
    LABEL_PRESET,
    LABEL_RANK,
    STORE_TARGET,
    ContainerSpec,
    Mount,
    PublishedPort,
)
from spark_tui.base.engine.docker_run import gpus_value, read_argv, restart_value, split_text, ulimit_value
from spark_tui.base.engine.image import (
    ScriptStep,
    StartScript,
    assumed_entrypoint,
    is_image_reference,
    start_script,
    start_scripts,
)
from spark_tui.base.engine.invocation import OPTIONS, SETTABLE, key_of, parse, spellings
from spark_tui.base.engine.runtimes import (
    LAUNCHED,
    OLLAMA,
    TRTLLM,
    VLLM,
    KeyDelivery,
    Runtime,
    Scalar,
    is_server_program,
    recognised,
)
from spark_tui.base.errors import UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import docker_size
from spark_tui.base.secret import holds_secret, is_secret_name, mask_secrets
from spark_tui.base.shell import (
    fill_in,
    first_variable,
    is_shell,
    join_lines,
    shell_construct,
    split_words,
    words_of,
)
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.command import HOST_NETWORK, render
from spark_tui.catalog.presets.model.dialects.recipe_files import ConvertedRecipe, Value, table_of
from spark_tui.catalog.presets.model.overrides import speculation_of
from spark_tui.catalog.presets.model.plan import COMPILE_CACHES, KEY_FILE
from spark_tui.catalog.presets.model.preset import DOCKER_COMMAND, NO_GPU
from spark_tui.catalog.presets.model.recipe import HUB_TOKENS, is_system_folder

HOME: Final = "/~"
"""What `~` and `$HOME` stand for in a command that was found: a folder of no machine."""
VOLUMES: Final = "/~volumes/"
"""What a named volume is read as: a folder of no machine."""
_NAMED_VOLUME = re.compile(r"(--?v(?:olume)?=?)?([A-Za-z0-9][\w.-]*:/.*)")
_VOLUME_SOURCE = re.compile(r"((?:^|[,=])(?:source|src)=)([^/,])")
_CACHE_FOLDER = re.compile(r"(?:/root|/home/[^/]+)?/\.cache(?P<hub>|/huggingface|/huggingface/hub)")
"""Where an image keeps its caches, of any user: that of the Hub, and all of them."""
_COMPILED = re.compile(r"(?:/root|/home/[^/]+)/(?:\.cache/(?!huggingface(?:/|\Z)).+|\.triton.*|\.tilelang.*|\.nv.*)")
HUB_CACHE: Final = "/root/.cache/huggingface"
CACHE_VARIABLES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")

_PLACEHOLDERS: Final = (
    "port", "tensor_parallel", "served_model_name", "gpu_memory_utilization", "kv_cache_dtype", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens",
)  # fmt: skip
_MODEL_VARIABLES: Final = ("MODEL", "MODEL_PATH", "MODEL_ID", "MODEL_NAME", "MODEL_HANDLE", "HF_MODEL")
_OOM_SCORE_ADJ: Final = 800  # what every launch sets
_GPU_DEVICE: Final = "nvidia.com/gpu="
_PYTHON = re.compile(r"python[0-9.]*")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_ARGUMENTS = re.compile(r"\"?\$(?:[@*]|\{[@*]\})\"?")
_PULLED = re.compile(r"\bollama\s+(?:run|pull)\s+(?![-$])([^\s;&|'\"]+)")
_VALUE: Final = r"[A-Za-z0-9_./:@+-]+"
# What may stand after a value: the next option, the end of a script, or of the whole command.
_END: Final = r"(?=\s*\\?\s*(?:-|['\";&|]|\Z))"
_OWN_ID = re.compile(r"\$\(id -([ug])\)|`id -([ug])`")
_JSON_WITHOUT_QUOTES = re.compile(r"(?:(?<=')|\A)\{[A-Za-z_]\w*: ?[\w./+-]+(?:, ?[A-Za-z_]\w*: ?[\w./+-]+)*\}(?='|\Z)")
"""What a shell leaves of JSON within double quotes."""
_BARE_WORD = re.compile(r"[\w./+-]+")
_JSON_VALUE = re.compile(r"-?\d+(?:\.\d+)?|true|false|null")
_CUT: Final = ("...", "\N{HORIZONTAL ELLIPSIS}")
_LEFT_TO_FILL = re.compile(r"<[A-Za-z][A-Za-z0-9_ -]*>")
_ONLY_TO_FILL = re.compile(r"(?:^|=)<(?!think>|s>|reasoning>)[A-Za-z][A-Za-z0-9_ -]*>$")
"""A word or value that is nothing but a placeholder: quoted, a shell would take it."""
_REPOSITORY_FOLDER = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")
SNAPSHOT_PATH = re.compile(
    r"(?:/[^\s'\"]*)?/models--(?P<owner>[^/\s]+?)--(?P<name>[^/\s]+)/snapshots/(?P<commit>[0-9a-f]{7,40})/?"
)
"""A model by its place in a cache of the Hub."""
_OF_RANK: Final = ("nnodes", "node_rank", "master_addr", "master_port", "dist_init_addr", "headless")
_OF_DATA_RANK: Final = (
    "data_parallel_address", "data_parallel_rpc_port", "data_parallel_size_local", "data_parallel_start_rank",
    "api_server_count",
)  # fmt: skip
"""Options by which one of several nodes finds the others: vLLM's and SGLang's, and vLLM's where data is spread."""
_HARMLESS: Final = ("/dev/shm", "/etc/localtime", "/etc/timezone")  # noqa: S108 - mounts that are left out
_SNAPSHOT = re.compile(r"/?snapshots/(?P<commit>[0-9a-f]{7,40})/?")
_TYPESET = re.compile("(?:^|\\s)[\u2012-\u2015]+[A-Za-z]|(?:^|[\\s=])[\u2018\u2019\u201c\u201d]")


def from_docker_run(text: str, paths: HostPaths | None = None) -> ConvertedRecipe:
    """The recipe of one command, as `find_commands` gives it. Without `paths` any folder may be mounted.

    Raises UsageError for what a preset cannot hold, and for what posts and guides do to commands.
    """
    known = {"HOME": HOME, **ids_of(paths)}
    if "UID" in known:
        user, group = known["UID"], known["GID"]
        text = _OWN_ID.sub(lambda asked: user if (asked[1] or asked[2]) == "u" else group, text)
    text = fill_in(text, known)
    if unknown := first_variable(text):
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
        words = split_text(text, home=HOME)
    except UsageError:
        if left := _LEFT_TO_FILL.search(text):
            raise _to_be_filled(left[0]) from None
        raise
    if paths is not None and paths.home:
        words = tuple(word.replace(f"{HOME}/", f"{paths.home}/") for word in words)
    if unfilled := next((word for word in words if _ONLY_TO_FILL.search(word)), ""):
        raise _to_be_filled(unfilled)
    whole = tuple(_JSON_WITHOUT_QUOTES.sub(_with_quotes, word) for word in words)
    spec, left_out = read_argv(tuple(map(_with_volume, ("", *whole), whole)))
    if whole != words:
        left_out = (*left_out, "JSON within double quotes loses its own in a shell: they are put back.")
    if spec.image in _CUT and spec.command:
        image, *after = spec.command
        if script := start_script(image):
            _serving_word(script, tuple(after))
        raise UsageError(
            f"The command is not whole: {spec.image} stands for options that are missing.",
            "Write them out, or import the page's whole command.",
        )
    return from_spec(spec, paths, left_out)


def _with_volume(before: str, word: str) -> str:
    """A mount of a named volume as one of a folder of no machine."""
    named = _NAMED_VOLUME.fullmatch(word) if before in ("-v", "--volume") or word.startswith(("-v", "--v")) else None
    if named is None and (before == "--mount" or word.startswith("--mount=")) and "type=volume" in word:
        return _VOLUME_SOURCE.sub(rf"\1{VOLUMES}\2", word.replace("type=volume", "type=bind"))
    return word if named is None else f"{named[1] or ''}{VOLUMES}{named[2]}"


def ids_of(paths: HostPaths | None) -> dict[str, str]:
    """The person's UID and GID as variables, where they are known."""
    owner = paths.owner if paths is not None else None
    return {} if owner is None else {"UID": str(owner[0]), "GID": str(owner[1])}


def _with_quotes(found: re.Match[str]) -> str:
    return _BARE_WORD.sub(lambda word: word[0] if _JSON_VALUE.fullmatch(word[0]) else f'"{word[0]}"', found[0])


def _to_be_filled(left: str) -> UsageError:
    return UsageError(f"The command still has {clean_line(left)} to be filled in.", "Replace it by a value.")


def from_spec(spec: ContainerSpec, paths: HostPaths | None = None, left_out: tuple[str, ...] = ()) -> ConvertedRecipe:
    """The recipe of a container as it is asked of Docker; `left_out` says what of its command that does not hold.

    Raises UsageError for what a preset cannot hold.
    """
    if not is_image_reference(spec.image):
        raise UsageError(
            f"{truncate(clean_line(spec.image), 60)} is not the name of an image.",
            "The image comes after the options: docker run -d ... IMAGE",
        )
    return _Import(spec, paths, left_out).recipe()


# --- the server -------------------------------------------------------------------------------------------


def _server(spec: ContainerSpec) -> tuple[Runtime, tuple[str, ...]]:
    """The runtime, and the whole command with the program first; no words where the image runs as it is."""
    given = spec.command if is_shell(spec.command) else (*(spec.entrypoint or ()), *spec.command)
    named = recognised(spec.image, given)
    runtime = next((each for each in LAUNCHED if _after_program(given, each)), None)
    runtime = runtime or next((each for each in LAUNCHED if each.id == named), None)
    if runtime is None:
        known = ", ".join(each.title for each in LAUNCHED)
        raise UsageError(
            f"{_shown((spec.image, *given))} starts no server that spark-tui knows.",
            f"A preset is for {known}: the command has to start one of them.",
        )
    assumed = assumed_entrypoint(spec.image)
    if not given:
        if assumed[:1] in (("vllm",), ("/app/llama-server",)):
            raise _no_model(runtime)
        return runtime, ()
    words = given
    if not (_after_program(given, runtime) or spec.entrypoint is not None or is_shell(given)):
        # The program that the image puts in front of its command.
        if given[0].startswith("-"):
            words = (*runtime.programs[0], *given)
        elif is_server_program(given[0]):
            words = given
        elif assumed == VLLM.programs[0] and ("/" in given[0] or not given[1:] or given[1].startswith("-")):
            words = (*assumed, *given)
        elif runtime is OLLAMA:
            words = (OLLAMA.id, *given)
    if not _after_program(words, runtime):
        script = start_script(spec.image)
        known = ", ".join(script.words) if script is not None else ""
        takes = f"takes is {known}" if known else "makes of such words is unknown"
        raise UsageError(
            f"The container gets the words {_shown(given)}, which start no {runtime.title} that spark-tui knows.",
            f"Write the server's own command after the image: {' '.join(runtime.programs[0])} ... What the image's "
            f"start script {takes}.",
        )
    return runtime, words


def _without_launch(spec: ContainerSpec) -> tuple[ContainerSpec, int]:
    """The container without the shell that a launch of ours puts before its server, and without its place among several
    nodes, which a launch gives each of them itself; and how many these are, 1 for one by itself. Raises UsageError for
    a worker's."""
    argv = (*(spec.entrypoint or ()), *spec.command)
    while spec.label(LABEL_PRESET) and "".join(argv[2:3]).endswith('"$@"'):  # it writes the key, or joins the ranks
        argv = argv[4:]
        spec = replace(spec, entrypoint=None, command=argv)
    joined = spec.network == HOST_NETWORK  # replicas are numbered too, and have ports of their own
    number, _, count = spec.label(LABEL_RANK).partition("/") if joined else ("", "", "")
    found = parse(spec.command)
    rank, nodes = (int(found.number(key) or 0) for key in ("node_rank", "nnodes"))
    rank, nodes = _digits(number) or rank, _digits(count) or nodes
    if (found.script and not count) or nodes < 2:
        return spec, 1
    if rank > 0:
        raise UsageError(
            f"This is a worker, rank {rank} of {nodes}: it has no API of its own.",
            "Import the command of rank 0. A launch makes the workers' itself: spark-tui up NAME --nodes CLUSTER",
        )
    for key in (*_OF_RANK, *(_OF_DATA_RANK if found.has(_OF_DATA_RANK[0]) else ())):
        found = found.without(key)
    mounts = tuple(each for each in spec.mounts if posixpath.basename(each.source) != ".ssh")  # MPI's, made at a launch
    return replace(spec, command=found.argv, mounts=mounts), nodes


def _with_arguments(spec: ContainerSpec) -> ContainerSpec:
    """A shell's script with its arguments in the place of `"$@"`."""
    before = len(spec.entrypoint or ())
    words = (*(spec.entrypoint or ()), *spec.command)
    if not is_shell(words) or before > 2:
        return spec
    script = _ARGUMENTS.sub(lambda _: shlex.join(words[4:]), words[2])
    return spec if script == words[2] else replace(spec, command=(*words[before:2], script))


def _after_program(argv: tuple[str, ...], runtime: Runtime) -> int:
    """Where the words after the server's program begin, by its longest spelling; 0 where it is not started."""
    names = (PurePosixPath(word).name if not word.startswith("-") else word for word in words_of(argv))
    plain = tuple("python3" if _PYTHON.fullmatch(name) else name for name in names)
    in_place = ((name, "serve") for script in start_scripts() for name in script.programs) if runtime is VLLM else ()
    found = [
        at + len(program)
        for program in (*runtime.programs, *in_place)
        for at in range(len(plain) - len(program) + 1)
        if plain[at : at + len(program)] == program
    ]
    return max(found, default=0)


def _without_keys(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command without its keys, and the options that they stood after. An option may take several."""
    argv = argv[:-2] if argv[-2:] == ("--config", KEY_FILE) else argv
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


def _model(argv: tuple[str, ...], runtime: Runtime, env: Mapping[str, str]) -> str:
    words = words_of(argv)
    options = words[_after_program(argv, runtime) :]
    named = options[0] if options and runtime in (VLLM, TRTLLM) and not options[0].startswith("-") else ""
    if runtime is OLLAMA and (pulled := _PULLED.search(" ".join(words))):
        named = pulled[1]
    if not named:
        invocation = parse(options, runtime.id)
        keys = dict.fromkeys(key_of(name, runtime.id) for name in runtime.model_options)
        named = next((value for key in keys if (value := invocation.value(key))), "")
    if reference := _VARIABLE.fullmatch(named):
        named = env.get(reference[1], "")
    if not named or named.startswith("-"):
        raise _no_model(runtime)
    return named


def _no_model(runtime: Runtime) -> UsageError:
    if runtime is OLLAMA:
        return UsageError(
            "The command names no model: Ollama loads the one that a request names.",
            "Import one that pulls it (ollama pull qwen3:32b), or copy qwen3-32b-ollama and change its model.",
        )
    example = f"{runtime.model_options[0]} OWNER/NAME" if runtime.model_options else "OWNER/NAME"
    words = ("vllm", "serve", "OWNER/NAME") if runtime is VLLM else (*runtime.programs[0], example)
    return UsageError("The command names no model.", f"Name it after the image: {' '.join(words)}")


# --- images with a start script ---------------------------------------------------------------------------


def _serving_word(script: StartScript, command: tuple[str, ...]) -> tuple[str, str]:
    """The word with which a start script serves, and the text that it does not read; no word for another command.

    A page without line ends puts its next sentence right behind the word. Raises UsageError for other words.
    """
    first, *rest = command or (script.default,)
    glued = re.match(rf"({'|'.join(map(re.escape, script.words))})(?=[A-Z])", first) if script.words else None
    word = glued[1] if glued else first
    if word not in script.words or is_shell(command):
        return "", ""
    known = script.words[word]
    if known.nodes:
        raise UsageError(
            f"`{word}` starts {known.about}.",
            "spark-tui starts vLLM on each node itself. Import the image's serving command, then: spark-tui up NAME "
            "--nodes CLUSTER",
        )
    if word != script.default:
        raise UsageError(f"`{word}` starts {known.about}, and no server.", f"Write {script.default} after the image.")
    return word, " ".join((first[len(word) :], *rest)).strip()


def _written_out(spec: ContainerSpec, script: StartScript) -> tuple[ContainerSpec, ScriptStep | None]:
    """The container with the command that its start script makes of variables, and what has to run before it."""
    env = {variable.name: variable.value for variable in spec.env}
    model = env.get(script.model, "")
    if not model:
        raise UsageError("The command names no model.", f"The image reads it from {script.model}: -e NAME=OWNER/NAME")
    try:
        more = parse(tuple(shlex.split(env.get(script.extra, ""))))
    except ValueError:
        raise UsageError(f"A quote in {script.extra} is not closed.", "Close it.") from None
    found = parse((*script.server, model))
    for key, value in script.arguments(env).items():
        if not more.has(key):  # of two the last one counts
            found = found.with_option(key, value)
    found = found.with_words(more.argv)
    asked = speculation_of(found, {})
    step = script.step(asked.method, model) if asked is not None else None
    before = f"{step.program} {STORE_TARGET}/{step.file} && " if step is not None else ""
    command = ("bash", "-c", before + shlex.join(found.argv)) if before else found.argv
    kept = tuple(each for each in spec.env if not script.is_own(each.name))
    return replace(spec, entrypoint=(), command=command, env=kept), step


# --- its command as a template ----------------------------------------------------------------------------


def _template(argv: tuple[str, ...], runtime: Runtime, model: str) -> tuple[str, dict[str, Scalar]]:
    """The command as a recipe writes it, and the values of its placeholders. Rendered, it is the same command."""
    script = argv[2].strip() if argv[:2] == ("bash", "-c") and len(argv) == 3 else ""
    script = script if shell_construct(join_lines(script)) else ""
    lines: list[list[str]] = [[]]
    for word in argv:
        if lines[-1] and word.startswith("--") and not is_shell(argv):
            lines.append([])
        lines[-1].append(word)
    text = script or " \\\n  ".join(map(shlex.join, lines))
    named = re.sub(rf"(?<![\w./:-]){re.escape(model)}(?![\w./:-])", "{model}", text)
    values: dict[str, Scalar] = {"model": model}
    for key in _PLACEHOLDERS:
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


def _with_placeholder(text: str, key: str, names: tuple[str, ...]) -> tuple[str, Scalar]:
    """The text with an option's value as a placeholder, and the value; unchanged, and None, where the option is absent
    or given twice."""
    spelled = "|".join(re.escape(name[:2]) + re.escape(name[2:]).replace(r"\-", "[-_]") for name in names if name)
    found = list(re.finditer(rf"(?<!\S)((?:{spelled})(?:=|\s+))({_VALUE}){_END}", text)) if spelled else []
    if len(found) != 1:
        return text, None
    match = found[0]
    try:
        value: Scalar = OPTIONS[key].read(match[2]) if key in SETTABLE else int(match[2])
    except ValueError:
        return text, None
    return f"{text[: match.start(2)]}{{{key}}}{text[match.end(2) :]}", value


def _renders(template: str, values: Mapping[str, Scalar], argv: tuple[str, ...], script: str) -> bool:
    """Whether a template gives the command again, `0.90` being 0.9."""

    def same(left: str, right: str) -> bool:
        try:
            return left == right or float(left) == float(right)
        except ValueError:
            return False

    rendered = render(template, values)
    text = join_lines(rendered.text)
    if rendered.missing or (shell_construct(text) != "") != bool(script):
        return False
    got, wanted = (text.split(" "), join_lines(script).split(" ")) if script else (list(split_words(text)), list(argv))
    return len(got) == len(wanted) and all(map(same, got, wanted))


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


def _shown(words: tuple[str, ...]) -> str:
    return truncate(clean_line(shlex.join(words)), 100)


# --- the recipe -------------------------------------------------------------------------------------------


class _Import:
    """One command on its way to a recipe. `template` is empty where the image's own start script decides."""

    def __init__(self, spec: ContainerSpec, paths: HostPaths | None, left_out: tuple[str, ...]) -> None:
        self.spec, self.paths = spec, paths
        self.env = {variable.name: variable.value for variable in spec.env}
        self.changes: list[str] = []
        for why in left_out:
            self.tell(why)
        found, self.nodes = _without_launch(spec)
        self.spec = _with_arguments(found)
        if self.nodes > 1:
            self.changes.append(
                f"It is rank 0 of {self.nodes}. Its place among them is left out: spark-tui up NAME --nodes CLUSTER "
                "writes that for each node."
            )
        self.script = start_script(spec.image) if spec.entrypoint is None else None
        self.step: ScriptStep | None = None
        if self.script is not None:
            self._read_script(self.script)
        spec = self.spec
        self.runtime, words = _server(spec)
        self.template, self.defaults, self.keys = "", dict[str, Scalar](), tuple[str, ...]()
        self.opened, self.revision, self.called = False, "", ""
        if words:
            argv, self.keys = _without_keys(words)
            self.model = spec.label(LABEL_MODEL) or _model(argv, self.runtime, self.env)
            self.template, self.defaults = _template(argv, self.runtime, self.model)
            if mask_secrets(self.template) != self.template:
                raise UsageError(
                    "The command holds what looks like a key or token.",
                    "Remove it: spark-tui passes the Hugging Face token and an API key from a private file.",
                )
            if is_shell(argv):
                on_host = spec.network == HOST_NETWORK
                self.template, self.opened = _with_host(self.template, self.runtime, on_host=on_host)
            given = self.defaults.pop("port", self.runtime.port)
            self.port = given if isinstance(given, int) else 0
        else:  # the image's start script takes everything from the environment
            named = next((self.env[name] for name in _MODEL_VARIABLES if self.env.get(name)), "")
            self.model = spec.label(LABEL_MODEL) or named
            if not self.model:
                raise _no_model(self.runtime)
            ports = [port.container_port for port in spec.ports]
            self.port = _digits(self.env.get("PORT", "")) or (ports[0] if len(ports) == 1 else self.runtime.port)
        self.keyed = bool(self.keys) or bool(spec.label(LABEL_API_KEY_FILE))

    def _read_script(self, script: StartScript) -> None:
        """What the image's start script takes: its word is left out, or its command written out."""
        word, unread = _serving_word(script, self.spec.command)
        if unread:
            self.tell(f"{unread} is left out: the image's start script reads {word} alone.")
        if not word:
            if script.words:  # the script refuses other words
                self.spec = replace(self.spec, entrypoint=())
            self.script = None if self.spec.command else script
            return
        if not script.server:
            self.spec = replace(self.spec, command=())
            return
        self.spec, self.step = _written_out(self.spec, script)
        own = [name for name in self.env if script.is_own(name)]
        several = [name for name in own if script.variables[name].nodes]
        settings = ", ".join(option for name in own if (option := script.variables[name].option))
        self.tell(
            f"{', '.join(name for name in own if name not in several)}: written as {' '.join(script.server)} and its "
            f"options, as the image's start script does. Settings change them{settings and f': {settings}'}."
        )
        if several:
            self.tell(f"{', '.join(several)}: left out. For several Sparks: spark-tui up NAME --nodes CLUSTER")
        if self.step is not None:
            self.tell(f"Before the server runs {self.step.file}, fetched into the model store: {self.step.summary}.")
        self.env = {variable.name: variable.value for variable in self.spec.env}
        self.script = None

    def tell(self, change: str) -> None:
        """Notes a change. What spark-tui itself adds to every launch is no news."""
        if not self.spec.label(LABEL_PRESET):
            self.changes.append(truncate(clean_line(change), 300))

    def recipe(self) -> ConvertedRecipe:
        """The whole recipe. Raises UsageError for what a preset has no place for."""
        spec = self.spec
        env = self._environment()
        if self.opened:
            self.tell("--host {host} is added to its script: a launch says there how far the server can be reached.")
        for option in self.keys:
            self._tell_key(option)
        network = {"bridge": "", "default": ""}.get(spec.network, spec.network)
        if network == HOST_NETWORK and not self.template:
            self.tell("--network host is left out: this image runs as it is, and its port is published instead.")
            network = ""
        elif network == HOST_NETWORK:
            self.tell("On the host's network it listens to this machine alone; launch it with exposure=lan to open it.")
        defaults: dict[str, Scalar] = {"port": self._host_port(), **self.defaults}
        volumes = self._volumes()
        if any(each.split(":")[1] == STORE_TARGET for each in volumes):
            env["HF_HOME"] = HUB_CACHE  # the store's own place is taken
        self._tell_the_rest()
        own: dict[str, Value] = {"source": DOCKER_COMMAND}
        if not self.template:
            own["runs_as_is"] = True
        if self.keyed and self.runtime.key_way is not KeyDelivery.NONE:
            own["wants_key"] = True
        if (step := self.step) is not None:
            command = f"{step.program} {STORE_TARGET}/{step.file}"
            own["required_files"] = [{"target": step.file, "url": step.url}]
            own["required_steps"] = [{"summary": step.summary, "command": command}]
        made: dict[str, Value] = {
            "recipe_version": "2",
            "model": self.model,
            "model_revision": self.revision,
            "runtime": self.runtime.id,
            "min_nodes": self.nodes if self.nodes > 1 else "",
            "container": spec.image,
            "executor_config": self._options(network, volumes),
            "metadata": {"spark_tui": own},
            "defaults": defaults,
            "env": env,
            "command": self.template,
        }
        kept = {key: value for key, value in made.items() if value not in ("", {})}
        named = self.called or posixpath.basename(self.model.rstrip("/"))
        name = spec.name or named.lower().removesuffix(".gguf")
        return ConvertedRecipe(table_of(kept), tuple(dict.fromkeys(self.changes)), name)

    def _environment(self) -> dict[str, Value]:
        """The variables that may stand in a file; the store's place and the server's address are a launch's to say."""
        kept: dict[str, Value] = {}
        for name, text in self.env.items():
            reference = text[1:] if text.startswith("$") else ""
            secret = is_secret_name(name) or is_secret_name(reference)
            if secret or holds_secret(text) or mask_secrets(text) != text:
                self._tell_key(name)
            elif self.env.get("HF_HUB_CACHE") == HUB_TARGET and name in HUB_SETTINGS:
                continue  # a launch of ours that read models where they were complete: the next one finds them itself
            elif name in CACHE_VARIABLES:
                if text != STORE_TARGET:
                    self.tell(f"{name} is left out: models lie in spark-tui's store, which is {STORE_TARGET} there.")
            elif name == self.runtime.host_variable and not self.runtime.host_option:
                self.tell(f"{name} is left out: a launch sets it from its port.")
            elif self.script is not None and (key := self._setting_of(name, text, self.script)):
                kept[name] = f"{{config.{key}}}"
            else:
                kept[name] = text
        return kept

    def _setting_of(self, name: str, text: str, script: StartScript) -> str:
        """The option that a start script makes of a variable, with its value among the defaults: a launch can set it.
        Empty for other variables, and for a value that is none."""
        key = script.variables[name].option if name in script.variables else ""
        if key not in SETTABLE:
            return ""
        try:
            self.defaults[key] = OPTIONS[key].read(text)
        except ValueError:
            return ""
        return key

    def _tell_key(self, name: str) -> None:
        """Says where a key belongs that was taken out."""
        runtime = self.runtime
        if name in HUB_TOKENS or name.lstrip("-").replace("-", "_").lower() in ("hf_token", "hft"):
            self.tell(
                f"`{name}` is not kept in the file: set HF_TOKEN in your shell or log in with `hf auth login`; "
                "spark-tui passes it on from a private file."
            )
        elif name != runtime.key_variable and not name.endswith(("api-key", "api_key")):
            self.tell(
                f"`{name}` is left out: a preset holds no keys; the Hub's token and the API key alone are passed on."
            )
        elif runtime.key_way is KeyDelivery.NONE:
            self.tell(f"`{name}` is left out: {runtime.title} knows no keys.")
        else:
            self.keyed = True
            self.tell(
                f"`{name}` is not kept in the file: spark-tui makes a key of its own at the first launch, "
                "and keeps it in a private file."
            )

    def _host_port(self) -> int:
        """The port on this machine. Raises UsageError for ports that a preset has no place for."""
        port = self.port
        if not self.runtime.host_option:
            port = _digits(self.env.get(self.runtime.host_variable, "").rpartition(":")[2]) or port
        if self.spec.network == HOST_NETWORK:
            return port
        chosen: PublishedPort | None = None
        for published in self.spec.ports:
            if published.container_port != port or published.protocol != "tcp" or chosen:
                written = f"{published.host_port or ''}:{published.container_port}"
                raise UsageError(
                    f"-p {written} is not the server's port, which is {port}.",
                    "A preset publishes one port. Leave it out, or let the server listen there: --port "
                    f"{published.container_port}",
                )
            chosen = published
        if chosen is None:
            self.tell(f"It publishes no port: a launch publishes {port} on this machine.")
            return port
        host_port = chosen.host_port or port
        if not chosen.host_ip.startswith("127."):
            self.tell(f"Port {host_port} is open to this machine alone; launch it with exposure=lan to open it.")
        if not self.template and host_port != port:
            raise UsageError(
                f"-p {host_port}:{port}: this image runs as it is, with one port on both sides.",
                f"Write -p {port}:{port}, and change the port at the launch.",
            )
        return host_port

    def _volumes(self) -> tuple[str, ...]:
        """The recipe's `volumes`, with a model of the store named by its place there.

        Raises UsageError for a folder of the system, and for a model that no mount has.
        """
        volumes: list[str] = []
        written = self.model
        if snapshot := SNAPSHOT_PATH.fullmatch(written):
            self.model, self.revision = f"{snapshot['owner']}/{snapshot['name']}", snapshot["commit"]
            self.tell(f"The model's folder is {self.model} on the Hub, at {self.revision[:12]}: it is named so.")
        places = {self.env.get(name, "") for name in CACHE_VARIABLES} | {HUB_CACHE, f"{HUB_CACHE}/hub", STORE_TARGET}
        caches = {posixpath.normpath(place) for place in places if place.startswith("/")}
        store = posixpath.normpath(self.paths.store) if self.paths else ""
        for mount in self.spec.mounts:
            target = posixpath.normpath(mount.target)
            if self._is_repository(mount, target) or posixpath.dirname(target) == HUB_TARGET:
                continue
            place = target in caches or _CACHE_FOLDER.fullmatch(target)
            if place and not self._is_named(mount, target, store, written):
                self._replace_by_store(mount, target, store)
            elif (target in COMPILE_CACHES or _COMPILED.fullmatch(target)) and not _lies_in(self.model, target):
                self.tell(
                    f"-v {self._written(mount)} is left out: spark-tui keeps the compile caches of every image itself."
                )
            elif mount.source.startswith(VOLUMES) or mount.source in _HARMLESS:
                self.tell(f"-v {self._written(mount)} is left out: a preset mounts folders of yours alone.")
            elif self._is_of_system(mount) and not any(target in text for text in self.spec.command):
                self.tell(f"-v {self._written(mount)} is left out: no launch mounts folders of the system.")
            else:
                volumes.append(self._volume(mount, target, store))
        held = (STORE_TARGET, *(each.split(":")[1] for each in volumes))
        if self.model.startswith("/") and not any(_lies_in(self.model, each) for each in held):
            raise UsageError(
                f"The model {self.model} lies in no folder that is mounted.",
                "Mount it (-v FOLDER:FOLDER:ro), put it into the model store and name it as "
                f"{STORE_TARGET}/FOLDER, or name it as it is called on the Hub.",
            )
        return tuple(volumes)

    def _is_repository(self, mount: Mount, target: str) -> bool:
        """Whether the model is a snapshot in this mount of one repository's folder of the Hub's cache. It is named as
        on the Hub then, with its commit: that folder has no place in the store."""
        folder = _REPOSITORY_FOLDER.fullmatch(posixpath.basename(posixpath.normpath(mount.source)))
        snapshot = _SNAPSHOT.fullmatch(self.model.removeprefix(target)) if _lies_in(self.model, target) else None
        if folder is None or snapshot is None:
            return False
        self.model, self.revision = f"{folder['owner']}/{folder['name']}", snapshot["commit"]
        self.tell(f"The model's folder is {self.model} on the Hub, at {self.revision[:12]}: it is named so.")
        return True

    def _on_host(self, source: str) -> str:
        home = (self.paths.home if self.paths else "") or "~"
        return posixpath.normpath(home + source[len(HOME) :] if _lies_in(source, HOME) else source)

    def _is_of_system(self, mount: Mount) -> bool:
        return self.paths is not None and is_system_folder(self._on_host(mount.source))

    def _is_named(self, mount: Mount, target: str, store: str, written: str) -> bool:
        """Whether the command names its model, or another file, by a path in this place of models: then it stays."""
        unknown = self.paths is None or mount.source.startswith(VOLUMES)
        if target == STORE_TARGET and (unknown or self._on_host(mount.source) == store):
            return False
        others = (text for name, text in self.env.items() if name not in CACHE_VARIABLES)
        named = (text.replace(written, "") if self.revision else text for text in (*self.spec.command, *others))
        return _lies_in(self.model, target) or any(f"{target}/" in text for text in named)

    def _replace_by_store(self, mount: Mount, target: str, store: str) -> None:
        """A place of models: spark-tui's takes it."""
        source, where = self._on_host(mount.source), f" ({store})" if store else ""
        if (source, target) == (store, STORE_TARGET):
            return
        shown = self._shown(mount)
        if source.startswith(VOLUMES):
            shown = f"The volume {shown} at {target}"
        self.tell(
            f"{shown} is replaced by spark-tui's model store{where}, which is {STORE_TARGET} there: what is not in it "
            "yet is fetched at the launch."
        )

    def _shown(self, mount: Mount) -> str:
        """A mount's source as a person writes it."""
        home, source = (self.paths.home if self.paths else "") or HOME, mount.source.removeprefix(VOLUMES)
        return f"~{source[len(home) :]}" if _lies_in(source, home) else source

    def _written(self, mount: Mount) -> str:
        return f"{self._shown(mount)}:{mount.target}"

    def _volume(self, mount: Mount, target: str, store: str) -> str:
        """A folder as a volume: of the store, where a model in it is named by its place there, or another one."""
        inside = self._on_host(mount.source)
        if self.paths and not _lies_in(inside, store):
            if self._is_of_system(mount):
                raise UsageError(
                    f"-v {self._written(mount)} lies outside the model store ({store}).",
                    "Mount the one folder that the command needs: a launch mounts no system folder, and no whole home.",
                )
            self.tell(f"-v {self._written(mount)} is kept: allow it before the first launch.")
            if _lies_in(self.model, target):
                place = posixpath.normpath(posixpath.join(inside, posixpath.relpath(self.model, target)))
                root, self.called = posixpath.split(place)
                self.tell(f"The model is read there. Add {root} to the setting model_roots to have its fit worked out.")
        elif self.paths:
            inside = inside[len(store) :].strip("/") or "."
        if any(mark in inside + target for mark in ": "):
            raise UsageError(f"-v {self._written(mount)} has a colon or blank in a path.", "Rename the folder.")
        if _lies_in(self.model, target) and target != STORE_TARGET and not inside.startswith("/"):
            below = self.model[len(target) :].strip("/")
            self.model = posixpath.normpath(posixpath.join(STORE_TARGET, inside, below))
        return f"{inside}:{target}{':ro' if mount.read_only else ''}"

    def _options(self, network: str, volumes: tuple[str, ...]) -> dict[str, Value]:
        """`executor_config`: what the container is made with, in the words of Docker."""
        spec = self.spec
        on_gpu = tuple(device for device in spec.devices if device.startswith(_GPU_DEVICE))
        if on_gpu:
            self.tell(f"--device {on_gpu[0]} is --gpus all here.")
        if spec.gpus is None and not on_gpu:
            self.tell("It asks for no GPU (--gpus all), so its preset runs on the CPU.")
        gpus = gpus_value(spec.gpus).strip('"') if spec.gpus else "all" if on_gpu else NO_GPU
        options: dict[str, Value] = {
            "gpus": gpus if gpus != "all" else None,
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
        entrypoint: dict[str, Value] = {}
        if spec.entrypoint is not None:
            entrypoint["entrypoint"] = "".join(spec.entrypoint[:1])
        return entrypoint | {key: value for key, value in options.items() if value not in (None, [], "")}

    def _tell_the_rest(self) -> None:
        """What every launch decides, and what a preset has no place for. Raises UsageError for files of variables."""
        spec = self.spec
        if spec.env_files and not spec.label(LABEL_PRESET):
            raise UsageError(
                f"--env-file {spec.env_files[0].replace(HOME, '~')} is not read by a preset.",
                "Write its variables out with -e NAME=VALUE, but no keys: spark-tui passes the Hub's token and an API "
                "key.",
            )
        labels = [key for key, _ in spec.labels if not key.startswith(LABEL_PREFIX)]
        if labels:
            self.tell(f"Labels are left out: {', '.join(labels)}.")
        if spec.init:
            self.tell(
                "--init is left out: the server is the container's first process, and gets the signal that stops it."
            )
        if spec.oom_score_adj not in (0, _OOM_SCORE_ADJ):
            self.tell(f"--oom-score-adj {spec.oom_score_adj} is left out: every launch has {_OOM_SCORE_ADJ}.")


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0


def _lies_in(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")
