"""Image names, the vLLM that an image can hold, which words of a command its entrypoint already has, and what the
start scripts of images take: a file in `start_scripts` describes each; another image is another file. And what people
patch in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field

from spark_tui.base.engine.runtimes import is_server_program
from spark_tui.base.shell import SHELLS
from spark_tui.base.text import lazy_pattern

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = lazy_pattern(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
MAX_NAME_CHARS = 255


def is_image_reference(text: str) -> bool:
    """Whether Docker would take `text` as the name of an image."""
    if len(text) > 2 * MAX_NAME_CHARS:
        return False
    match = _REFERENCE.fullmatch(text)
    return match is not None and len(match["name"]) <= MAX_NAME_CHARS


def repository(reference: str) -> str:
    """The name without tag and digest: `nvcr.io/nvidia/vllm`. The text itself when it is no reference."""
    match = _REFERENCE.fullmatch(reference) if len(reference) <= 2 * MAX_NAME_CHARS else None
    return match["name"] if match else reference


def digest_of(reference: str) -> str:
    """`sha256:...` of `NAME@sha256:...`; empty where a reference has none."""
    return reference.partition("@")[2]


def short_digest(reference: str) -> str:
    """Its first 12 digits: `sha256:0123456789ab`; of an image's id alike."""
    return (digest_of(reference) or reference)[: len("sha256:") + 12]


DOCKER_HUB: Final = "docker.io"


def registry_of(image: str) -> str:
    """The registry that an image name means: `nvcr.io`, `127.0.0.1:5000`, or docker.io."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return DOCKER_HUB


def familiar(reference: str) -> str:
    """A reference as Docker lists it: without its default registry, with its default tag. `repo:tag@digest` is known by
    its digest alone."""
    name = reference.removeprefix("docker.io/").removeprefix("library/")
    name, at, digest = name.partition("@")
    if at:
        return f"{repository(name)}@{digest}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


_SERVE: Final = ("vllm", "serve")
_API_SERVER: Final = ("-m", "vllm.entrypoints.openai.api_server")
_PYTHON = re.compile(r"python[0-9.]*")
# Programs that run the words after them: init processes and set-up scripts that end in `exec "$@"`.
_LAUNCHERS: Final = frozenset(
    ("tini", "dumb-init", "docker-init", "catatonit", "s6-overlay", "entrypoint", "env", "nice")
)
_NVIDIA_SCRIPT: Final = ("/opt/nvidia/nvidia_entrypoint.sh",)
_BY_NAME: Final = (
    (re.compile(r"(?:docker\.io/)?vllm/vllm-openai(?:-[a-z]+)?"), _SERVE),
    (re.compile(r"(?:.*/)?vllm-cpu"), _SERVE),
    (re.compile(r"nvcr\.io/nvidia/.+"), _NVIDIA_SCRIPT),
    (re.compile(r"(?:docker\.io/)?lmsysorg/sglang"), _NVIDIA_SCRIPT),
    (re.compile(r"ghcr\.io/ggml-org/llama\.cpp"), ("/app/llama-server",)),
    (re.compile(r"(?:docker\.io/)?ollama/ollama"), ("/bin/ollama",)),
)


class ContainerStart(Struct, frozen=True):
    """How the container is started. `entrypoint` None keeps the image's own, an empty tuple clears it."""

    command: tuple[str, ...]
    entrypoint: tuple[str, ...] | None = None
    note: str = ""


def assumed_entrypoint(image: str) -> tuple[str, ...]:
    """The entrypoint that images of that name have; empty for unknown names."""
    name, script = repository(image), start_script(image)
    known = script.entrypoint if script is not None else ()
    return next((words for pattern, words in _BY_NAME if pattern.fullmatch(name)), known)


def with_program(argv: tuple[str, ...], model: str) -> tuple[str, ...]:
    """A vLLM command that begins with the program: recipes may give the model or the options alone."""
    if argv and (argv[0] == model or argv[0].startswith("-")):
        return (*_SERVE, *argv)
    return argv


def arrange(argv: tuple[str, ...], option: str | None, image_entrypoint: tuple[str, ...]) -> ContainerStart:
    """Fits a whole command to an image.

    `option` is the recipe's `entrypoint`: "" clears the image's, a word replaces it, None leaves it.
    """
    if option is not None:
        entrypoint = (option,) if option else ()
        return ContainerStart(argv[len(entrypoint) :] if _begins(argv, entrypoint) else argv, entrypoint)
    if not image_entrypoint or _runs_its_arguments(image_entrypoint):
        return ContainerStart(argv)
    arguments = _server_arguments(argv)
    starts = _server_arguments(image_entrypoint)
    if starts is not None and arguments is not None:
        return ContainerStart(_with_model(arguments, named=not _is_serve(image_entrypoint)))
    if _begins(argv, image_entrypoint):
        return ContainerStart(argv[len(image_entrypoint) :])
    shown, name = " ".join(image_entrypoint), _base(image_entrypoint[0])
    # A shell or an interpreter by itself would take the first word of the command as a file to run.
    interprets = name in SHELLS or _PYTHON.fullmatch(name) is not None
    if starts is not None or is_server_program(image_entrypoint[0]) or interprets:
        return ContainerStart(
            argv, (), f"The image's entrypoint ({shown}) would take the command as its own words: it is cleared."
        )
    return ContainerStart(
        argv,
        None,
        f"The image's entrypoint ({shown}) is not one that we know. If it does not run its arguments, "
        'set executor_config.entrypoint: "" in the recipe.',
    )


def _base(word: str) -> str:
    return PurePosixPath(word).name


def _is_serve(words: tuple[str, ...]) -> bool:
    return len(words) > 1 and (_base(words[0]), words[1]) == _SERVE


def _server_arguments(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What follows `vllm serve` or `python3 -m vllm.entrypoints.openai.api_server`; None for other programs."""
    if _is_serve(words):
        return words[2:]
    is_module = len(words) > 2 and _PYTHON.fullmatch(_base(words[0])) and words[1:3] == _API_SERVER
    return words[3:] if is_module else None


def _with_model(arguments: tuple[str, ...], *, named: bool) -> tuple[str, ...]:
    """The module takes the model as `--model`; `vllm serve` wants it first, and warns about `--model`."""
    if arguments and not arguments[0].startswith("-"):
        return ("--model", *arguments) if named else arguments
    if named or "--model" not in arguments[:-1]:
        return arguments
    at = arguments.index("--model")
    return (arguments[at + 1], *arguments[:at], *arguments[at + 2 :])


def _begins(argv: tuple[str, ...], words: tuple[str, ...]) -> bool:
    head = argv[: len(words)]
    return bool(words) and len(head) == len(words) and _base(head[0]) == _base(words[0]) and head[1:] == words[1:]


def _runs_its_arguments(entrypoint: tuple[str, ...]) -> bool:
    name = _base(entrypoint[0])
    if name in SHELLS and len(entrypoint) == 2:
        return entrypoint[1].endswith(".sh")
    return name.endswith(".sh") or name in _LAUNCHERS or "entrypoint" in name


Version: TypeAlias = tuple[int, int, int]

_VERSION = lazy_pattern(r"(?:^|[^0-9.])v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?![0-9.]*\d)")
_NGC_TAG = re.compile(r"(\d{2})\.(\d{2})")
NGC: Final = "nvcr.io/nvidia/vllm"
OFFICIAL: Final = "vllm/vllm-openai"
# NVIDIA's 26.04 holds vLLM 0.19.0 (the guide, sections 6 and 13); what came before holds that or older.
_RELEASED: Final = {"sglang": "lmsysorg/sglang", "trtllm": "nvcr.io/nvidia/tensorrt-llm/release"}
"""Images whose tags begin with the release of the server; vLLM's have more to them."""
_NGC_AT_MOST: Final = ((26, 4), (0, 19, 0))
# Their own builds include DFlash, whatever the version number.
OWN_DFLASH: Final = ("aeon-7/vllm-dflash", "z-lab/vllm-openai")


def tag_of(image: str) -> str:
    """The tag of an image, `latest` where none is given; empty when it is named by digest alone."""
    name, _, digest = image.partition("@")
    head, _, tag = name.rpartition(":")
    if head and "/" not in tag:
        return tag
    return "" if digest else "latest"


def name_of(image: str) -> str:
    """The repository in lower case, without default registries: `vllm/vllm-openai`."""
    return repository(image).lower().removeprefix("docker.io/").removeprefix("ghcr.io/")


def ngc_release(image: str) -> tuple[int, int] | None:
    """Year and month of an image of NVIDIA's catalogue: `nvcr.io/nvidia/vllm:26.04-py3` -> (26, 4)."""
    if name_of(image) != NGC:
        return None
    match = _NGC_TAG.match(tag_of(image))
    return (int(match[1]), int(match[2])) if match else None


def parse_version(text: str) -> Version | None:
    """`v0.20.2-cu130` -> (0, 20, 2), None where there is no version."""
    match = _VERSION.search(text[:200])
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def newest_possible(image: str, said: str = "") -> Version | None:
    """The newest vLLM that an image can hold; None when nothing says it. `said` is what the engine called itself."""
    if said:
        return parse_version(said)
    name, script = name_of(image), start_script(image)
    known = parse_version(script.vllm) if script is not None else None
    if known is not None or name in OWN_DFLASH:
        return known
    release = ngc_release(image)
    if release is not None:
        return _NGC_AT_MOST[1] if release <= _NGC_AT_MOST[0] else None
    tag = tag_of(image)
    if name.startswith("nvcr.io/") or "nightly" in tag or "vllm" not in name:
        return None
    return parse_version(tag)


def newest_server(engine: str, image: str, said: str = "") -> Version | None:
    """The newest release of any server that an image can hold; None when nothing says it."""
    if engine == "vllm" or said:
        return newest_possible(image, said)
    tag = tag_of(image)
    return parse_version(tag) if name_of(image) == _RELEASED.get(engine) and re.match(r"v?\d+\.\d+", tag) else None


def shown_version(version: Version) -> str:
    return ".".join(map(str, version))


# --- start scripts ----------------------------------------------------------------------------------------

_SCRIPTS: Final = Path(__file__).with_name("start_scripts")


class ScriptWord(Struct, frozen=True, forbid_unknown_fields=True):
    """A word that the script takes after the image. `nodes`: for several machines."""

    about: str
    nodes: bool = False


class ScriptVariable(Struct, frozen=True, forbid_unknown_fields=True):
    """A variable that the script or its server reads.

    `option` is the key of the server's option that the script makes of it, `unless` it has that value. `default` is
    what holds where it is not set, None: not stated. `wanted` is the value of the published speed. `needs` is a
    pattern of the command without which it does nothing. `nodes`: for several machines.
    """

    about: str
    option: str = ""
    default: str | None = None
    unless: str = ""
    wanted: str | None = None
    needs: str = ""
    nodes: bool = False


class ScriptStep(Struct, frozen=True, forbid_unknown_fields=True):
    """What has to run in the container before a server that drafts by `method` with a model of that pattern: `program`
    with a `file` from `url`."""

    method: str
    model: str
    summary: str
    file: str
    url: str
    program: str


class StartScript(Struct, frozen=True, forbid_unknown_fields=True):
    """An image with a start script.

    `vllm` is the version that it holds. `default` is the word that serves, also where none is given. `server` is the
    command that it runs then, where that is all it does; `model` and `extra` are the variables of the model and of
    further options. `programs` are written in place of `vllm`, and set what it wants themselves.
    """

    names: tuple[str, ...]
    source: str
    model: str
    extra: str
    variables: dict[str, ScriptVariable]
    vllm: str = ""
    entrypoint: tuple[str, ...] = ()
    default: str = ""
    server: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    words: dict[str, ScriptWord] = field(default_factory=dict)
    steps: tuple[ScriptStep, ...] = ()

    @property
    def options(self) -> dict[str, str]:
        """The variables that become an option of the server, by the option's key."""
        return {each.option: name for name, each in self.variables.items() if each.option}

    def is_own(self, name: str) -> bool:
        """Whether the script alone reads that variable: without the script it does nothing."""
        each = self.variables.get(name)
        return name in (self.model, self.extra) or (each is not None and bool(each.option or each.nodes))

    def is_without(self, words: Iterable[str]) -> bool:
        """Whether a command starts the server without the script."""
        return any(_base(word) in ("vllm", *self.programs) for word in words)

    def arguments(self, env: Mapping[str, str]) -> dict[str, str]:
        """The options that the script writes, by key: a variable's value, or its default."""
        found: dict[str, str] = {}
        for name, each in self.variables.items():
            value = env.get(name) or each.default
            if each.option and value and value != each.unless:
                found[each.option] = value
        return found

    def near(self, name: str) -> str:
        """The variable that a misspelled one means; empty for a known one, and for one that is like none of them."""
        if name in self.variables:
            return ""
        return next(iter(difflib.get_close_matches(name, self.variables, n=1, cutoff=0.85)), "")

    def step(self, method: str, model: str) -> ScriptStep | None:
        """What has to run before a server that drafts by that method."""
        fits = (each for each in self.steps if method.endswith(each.method) and re.search(each.model, model.lower()))
        return next(fits, None)


@cache
def start_scripts() -> tuple[StartScript, ...]:
    """Every description, read with the first image that is asked for."""
    return tuple(msgspec.toml.decode(file.read_bytes(), type=StartScript) for file in sorted(_SCRIPTS.glob("*.toml")))


def start_script(image: str) -> StartScript | None:
    """What is known of an image whose own script starts the server; None for images that have none, or are not
    described."""
    name = name_of(image)
    return next((each for each in start_scripts() if name in each.names), None)


# --- patches ----------------------------------------------------------------------------------------------

PRESENT: Final = "present"
"""Of a patch in an image; else `absent`, or the other version of its package."""


class Patch(Struct, frozen=True, forbid_unknown_fields=True):
    """One change of an image's files. `step` is how a person makes it, `needs` the variable, with its value, that asks
    for it. An image has it with `pattern` in `file`, a path below site-packages (with no pattern: where that file is),
    or with `package` in `version`; with neither it cannot be seen. `since` is the first vLLM that has it, empty where
    none is known; `instead` what takes its place."""

    about: str
    source: str
    step: str = ""
    needs: str = ""
    file: str = ""
    pattern: str = ""
    package: str = ""
    version: str = ""
    since: str = ""
    instead: str = ""

    def held_by(self, image: str) -> bool | None:
        """Whether that image's vLLM has it, by the image's name; None where the name does not say it."""
        since, newest = parse_version(self.since), newest_possible(image)
        if since is None or newest is None or (newest >= since and ngc_release(image)):
            return None
        return newest >= since


@cache
def patches() -> dict[str, Patch]:
    """What is known of patches of images, by id: `b12x/dsl`, `mods/drop-caches`."""
    return msgspec.toml.decode(_SCRIPTS.with_name("patches.toml").read_bytes(), type=dict[str, Patch])


def visible_patches() -> dict[str, Patch]:
    """Those that can be seen in an image."""
    return {id_: each for id_, each in patches().items() if each.file or each.package}


def patches_for(env: Iterable[tuple[str, str]], mods: Iterable[str] = ()) -> dict[str, Patch]:
    """Those that a recipe asks for, by its variables and the mods that it names (`@eugr/mods/x`, `mods/x`, `x`)."""
    given = {f"{name}={value}" for name, value in env} | {f"mods/{_base(name)}" for name in mods}
    return {id_: each for id_, each in patches().items() if id_ in given or each.needs in given}


def mod_words(name: str, image: str) -> str:
    """`mods/drop-caches: drops the page cache ...`: what a mod changes, and whether that image has it already; the name
    alone where it is unknown."""
    mod, newest = patches().get(f"mods/{_base(name)}"), newest_possible(image)
    if mod is None:
        return name
    held, here = mod.held_by(image), f"the image's vLLM {shown_version(newest)}" if newest is not None else ""
    has = {
        None: f"vLLM has it since {mod.since}; to see whether this image does: spark-tui images --inspect {image}",
        True: f"not needed: {here} has it (since {mod.since})",
        False: f"needed: {here} is older than {mod.since}",
    }[held]
    instead = f"in its place: {mod.instead}" if mod.instead and held is not False else ""
    return f"{name}: {'; '.join(filter(None, (mod.about, mod.since and has, instead)))}"


LOOK: Final = """\
def seen(package, version, file, pattern):
    if package:
        called = ((str(each.metadata["Name"]).lower().replace("_", "-"), each) for each in metadata.distributions())
        found = [each.version for name, each in called if name == package]
        return "absent" if not found else "present" if version in found else found[0]
    for folder in sys.path:
        try:
            with open(os.path.join(folder, file), errors="replace") as text:
                return "present" if re.search(pattern, text.read(4194304)) else "absent"
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return "absent"
"""
"""Python, for a container of the image, that says PRESENT of a patch or what is there instead, None where a file cannot
be read. Needs `metadata`, `os`, `re` and `sys`."""
