"""A preset, the catalogue of presets, and a pin of one to what was measured."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.image import repository, tag_of
from spark_tui.base.engine.runtimes import Runtime, Scalar, runtime_named
from spark_tui.base.errors import PresetError
from spark_tui.base.feature import Slice
from spark_tui.catalog.presets.model.located import MappingValue, Node, plain

NO_GPU = "none"


def engine_of(runtime: str) -> str:
    """The serving engine behind a sparkrun runtime name: its vLLM has four names."""
    return "vllm" if "vllm" in runtime.split("-") else runtime


class Origin(StrEnum):
    BUILTIN = "built in"
    USER = "yours"
    REGISTRY = "registry"


class Tag(StrEnum):
    """What a preset is good for. `long-context`: it starts with 128k tokens or more; `small`: up to 16 GB of weights;
    `fast`: 40 tokens a second or more are published for one stream on one Spark."""

    CODING = "coding"
    AGENT = "agent"
    CHAT = "chat"
    REASONING = "reasoning"
    VISION = "vision"
    AUDIO = "audio"
    LONG_CONTEXT = "long-context"
    SMALL = "small"
    FAST = "fast"


class PublishedSpeed(Struct, frozen=True):
    """A published decode speed: tokens per second, under which conditions, and who says so."""

    tokens_per_second: float
    conditions: str
    source: str


class RequiredFile(Struct, frozen=True):
    """A file or folder of the store that must be there before the start, and is not fetched by the engine itself.

    `target` is its place in the store, relative to the store's root. `repo` and `file` say where on the Hub it is;
    without `file` it is the whole repository. `url` is where a file is that is not on the Hub. `for_chat`: the
    server starts without it, and the chat needs it.
    """

    target: str
    repo: str = ""
    file: str = ""
    url: str = ""
    for_chat: bool = False

    @property
    def is_folder(self) -> bool:
        return bool(self.repo) and not self.file


def fetch_command(file: RequiredFile, store: str) -> str:
    """The words to type on the host. `store` is the model store's path there."""
    place = posixpath.join(store, file.target)
    if file.url:
        return shlex.join(("curl", "-fL", "--create-dirs", "-o", place, file.url))
    if file.is_folder:
        return shlex.join(("hf", "download", file.repo, "--local-dir", place))
    folder = place.removesuffix(file.file).rstrip("/") if place.endswith("/" + file.file) else posixpath.dirname(place)
    fetched = posixpath.join(folder, file.file)
    download = shlex.join(("hf", "download", file.repo, file.file, "--local-dir", folder))
    return download if fetched == place else f"{download} && {shlex.join(('mv', fetched, place))}"


class RequiredStep(Struct, frozen=True):
    """What the container does by itself at each start before its server runs: why, and the words that do it."""

    summary: str
    command: str


class RecipeSource(Struct, frozen=True):
    """Which recipe a preset was copied from: a registry's at a commit. `digest` is that of the pin then."""

    registry: str
    address: str
    path: str
    commit: str
    digest: str


class PresetFacts(Struct, frozen=True):
    """What is known about the model, from the recipe's `metadata`. Empty or None: not stated.

    `category` is "cpu" for presets that need no GPU. `sampling` are the request parameters that the model's
    makers recommend. `weights_bytes` is the size on disk. `image_digest` pins the image (`sha256:...`); empty while
    none is known. `runs_as_is`: the image's own start script is run, without a command of ours.
    `wants_key`: it is never started without an API key. `copy_of`: the registry's recipe that it was copied from.
    """

    title: str = ""
    description: str = ""
    category: str = ""
    family: str = ""
    publisher: str = ""
    licence: str = ""
    gated: bool | None = None
    architecture: str = ""
    total_parameters: float | None = None
    active_parameters: float | None = None
    weights_bytes: int | None = None
    context_tokens: int | None = None
    modalities: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    quantization: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    sampling: tuple[tuple[str, Scalar], ...] = ()
    published: tuple[PublishedSpeed, ...] = ()
    required_files: tuple[RequiredFile, ...] = ()
    required_steps: tuple[RequiredStep, ...] = ()
    image_digest: str = ""
    runs_as_is: bool = False
    wants_key: bool = False
    copy_of: RecipeSource | None = None


class ContainerOptions(Struct, frozen=True):
    """`executor_config` of the recipe, as far as a container can carry it. None: our default applies.

    `entrypoint` "" clears the image's own. `gpus` is Docker's word (`all`, a number, `device=0,1`), or `none`.
    """

    entrypoint: str | None = None
    shm_size: int | None = None
    ipc: str | None = None
    network: str | None = None
    gpus: str | None = None
    user: str | None = None
    privileged: bool | None = None
    restart_policy: str | None = None
    ulimits: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()


class Preset(Struct, frozen=True):
    """One usable recipe. `name` is the file's stem and the container's name.

    `command` is the template, empty when the flags come from `defaults` alone or the image runs as it is; `defaults`
    are its values; `env`
    is literal environment. `mounts` are extra `source:target[:ro]` lines, their source within the store.
    `unknown` keeps keys that we do not use, with their values as text, so that they are shown. `hooks` and
    `mods` are shown and never run. `includes` are the presets that it includes, nearest first. One copy
    runs on `min_nodes` to `max_nodes` machines. `allowed` are the names of the rights that the person allowed it; no
    file can say so.
    """

    name: str
    origin: Origin
    file: str
    model: str
    image: str
    runtime: str = "vllm"
    model_revision: str = ""
    command: str = ""
    defaults: tuple[tuple[str, Scalar], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    options: ContainerOptions = ContainerOptions()
    facts: PresetFacts = PresetFacts()
    mounts: tuple[str, ...] = ()
    min_nodes: int = 1
    max_nodes: int | None = None
    ready_timeout_seconds: float | None = None
    hooks: tuple[str, ...] = ()
    mods: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    includes: tuple[str, ...] = ()
    trial: str = ""
    allowed: tuple[str, ...] = ()

    def default(self, key: str) -> Scalar:
        return next((value for name, value in self.defaults if name == key), None)

    @property
    def cpu_only(self) -> bool:
        """Runs without a GPU: it asks for none."""
        return self.options.gpus == NO_GPU

    @property
    def reference(self) -> str:
        """The image as Docker is asked for it: the trial's, else with its digest where one is pinned."""
        if self.trial:
            return self.trial
        digest = self.facts.image_digest
        return f"{self.image}@{digest}" if digest and "@" not in self.image else self.image

    @property
    def server(self) -> Runtime:
        return runtime_named(self.engine)

    @property
    def engine(self) -> str:
        """The serving engine behind the runtime: `vllm-ray` -> `vllm`."""
        return engine_of(self.runtime)


class PresetCatalogue(Struct, frozen=True):
    """Everything found, in name order, and what could not be read."""

    presets: tuple[Preset, ...] = ()
    problems: tuple[PresetError, ...] = ()

    def get(self, name: str) -> Preset | None:
        return next((preset for preset in self.presets if preset.name == name), None)


PRESETS: Final = Slice(PresetCatalogue())


# --- pin -------------------------------------------------------------------------------------------------


_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LINE: Final = re.compile(
    r"""((?:container|"container"|'container')[ \t]*:[ \t]+)"""
    r"""("[^"\\]*"|'[^']*'|[A-Za-z0-9][^\s#]*)([ \t]*(?:[ \t]#.*)?)"""
)
"""A plain entry of the top level: key, value, comment."""


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def pinned_reference(image: str, digest: str) -> str:
    """`NAME:TAG@sha256:...`. Docker goes by the digest alone; the tag says what it was, and is the way back."""
    tag = tag_of(image)
    return f"{repository(image)}{f':{tag}' if tag else ''}@{digest}"


def with_image(text: str, document: Node | None, image: str, read: Callable[[str], Node | None]) -> str | None:
    """A recipe's text with another image; None where its `container` is not a plain line of the top level. `document`
    is what the text holds, `read` reads a text again: nothing but the image may differ then."""
    if not isinstance(document, MappingValue):
        return None
    lines, entry = text.splitlines(keepends=True), document.get("container")
    if entry is not None:
        at = entry.line - 1
        line = lines[at].rstrip("\r\n") if at < len(lines) else ""
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        lines[at] = match[1] + image + match[3] + lines[at][len(line) :]
    else:  # what it includes names the image
        first = document.entries[0].line - 1 if document.entries else 0
        lines.insert(first, f"container: {image}\n")
    changed = "".join(lines)
    wanted = {each.key: plain(each.node) for each in document.entries} | {"container": image}
    return changed if _holds(read(changed), wanted) else None


def _holds(document: Node | None, wanted: dict[str, object]) -> bool:
    return isinstance(document, MappingValue) and plain(document) == wanted
