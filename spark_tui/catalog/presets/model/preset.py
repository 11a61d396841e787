"""A preset as its recipe file has it, with the line of each value; the catalogue of presets, and pins."""

from __future__ import annotations

import json
import math
import posixpath
import re
import shlex
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct, field

from spark_tui.base.engine.container import STORE_TARGET
from spark_tui.base.engine.image import repository, tag_of
from spark_tui.base.engine.runtimes import Runtime, Scalar, runtime_named
from spark_tui.base.errors import PresetError
from spark_tui.base.feature import Slice
from spark_tui.base.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.base.text import clean_line, truncate

SHOWN_CHARS = 200
T = TypeVar("T")


class ScalarValue(Struct, frozen=True):
    """A scalar. `line` is 1-based, as everywhere here. `word` is what is written where YAML 1.1 alone reads a word as
    true or false: `yes`, `off`."""

    value: Scalar
    line: int
    word: str = ""


class ListValue(Struct, frozen=True):
    items: tuple[Node, ...]
    line: int


class Entry(Struct, frozen=True):
    """One key of a mapping."""

    key: str
    line: int
    node: Node


class MappingValue(Struct, frozen=True):
    """A mapping, in the order of the file; keys are unique."""

    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        """The entry of that key; None when it is absent or empty (`key:` and nothing)."""
        for entry in self.entries:
            if entry.key == key:
                return None if isinstance(entry.node, ScalarValue) and entry.node.value is None else entry
        return None


Node: TypeAlias = ScalarValue | ListValue | MappingValue


def plain(node: Node, *, words: bool = False) -> object:
    """The node as dicts, lists and scalars; `words`: as YAML 1.2 reads it, where `yes` and `off` are texts."""
    if isinstance(node, ScalarValue):
        return node.word if words and node.word else node.value
    if isinstance(node, ListValue):
        return [plain(item, words=words) for item in node.items]
    return {entry.key: plain(entry.node, words=words) for entry in node.entries}


def compact(node: Node) -> str:
    """A scalar as text, anything else as JSON without blanks: what a JSON-valued flag wants."""
    if isinstance(node, ScalarValue):
        return "" if node.value is None else str(node.value)
    return json.dumps(plain(node), separators=(",", ":"), ensure_ascii=False)


def showable(key: str, node: Node) -> str:
    """A value as one short line for the screen; what may be a key or a token is masked."""
    return truncate(clean_line(compact(masked(key, node))), SHOWN_CHARS)


def masked(key: str, node: Node) -> Node:
    match node:
        case MappingValue():
            return MappingValue(tuple(Entry(e.key, e.line, masked(e.key, e.node)) for e in node.entries), node.line)
        case ListValue():
            return ListValue(tuple(masked(key, item) for item in node.items), node.line)
        case ScalarValue(value=str() as value) if value and (is_secret_name(key) or holds_secret(value)):
            return ScalarValue(SECRET_MASK, node.line)
        case _:
            return node


def describe(node: Node) -> str:
    """What was found, for an error: `the text "abc"`, `the number 7`, `a list`."""
    match node:
        case ListValue():
            return "a list"
        case MappingValue():
            return "a mapping"
        case ScalarValue(value=None):
            return "nothing"
        case ScalarValue(value=bool() as value):
            return "true" if value else "false"
        case ScalarValue(value=str() as value):
            return f'the text "{truncate(clean_line(value), 40)}"'
        case ScalarValue(value=value):
            return f"the number {truncate(str(value), 40)}"


class DocumentProblem(Struct, frozen=True):
    """One thing that is wrong with a document."""

    line: int
    summary: str
    remedy: str


class Reader(Struct):
    """Takes typed values out of a mapping. A wrong type becomes a complaint and reads as absent, so that all of a
    file's mistakes are found at once; what was never asked for is left over for `unused`."""

    table: MappingValue
    path: str = ""
    complaints: list[DocumentProblem] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)

    def name(self, key: str) -> str:
        """The key with the path that leads to it: `defaults.port`."""
        return clean_line(f"{self.path}.{key}" if self.path else key)

    def entry(self, key: str) -> Entry | None:
        self._asked.add(key)
        return self.table.get(key)

    def line(self, key: str) -> int:
        """The key's line, or the mapping's own."""
        entry = self.table.get(key)
        return entry.line if entry else self.table.line

    def complain(self, line: int, summary: str, remedy: str) -> None:
        self.complaints.append(DocumentProblem(line, summary, remedy))

    def expected(self, key: str, entry: Entry, what: str, example: str) -> None:
        found = describe(masked(key, entry.node))
        self.complain(entry.node.line, f"`{self.name(key)}` must be {what}; found {found}.", f"For example: {example}")

    def scalar(self, key: str, accepts: Callable[[Scalar], bool], expected: str, example: str) -> Scalar:
        """The plain value where it is accepted; None where the key is absent, or its value a mistake."""
        entry = self.entry(key)
        if entry is None:
            return None
        if isinstance(entry.node, ScalarValue) and accepts(entry.node.value):
            return entry.node.value
        self.expected(key, entry, expected, f"{key}: {example}")
        return None

    def text(self, key: str, *, example: str = '"..."', numbers: bool = False) -> str:
        """A text, empty when absent. `numbers`: a bare number is taken as the text that it is."""
        kinds = (str, int, float) if numbers else (str,)
        value = self.scalar(key, lambda value: isinstance(value, kinds) and _is_word(value), "text", example)
        return "" if value is None else str(value)

    def parsed(self, key: str, parse: Callable[[str], T], expected: str, example: str) -> T | None:
        """What `parse` makes of a text; None when it is absent, or where that raises ValueError."""
        text, entry = self.text(key, numbers=True, example=example), self.entry(key)
        if entry is None or not text:
            return None
        try:
            return parse(text)
        except (ValueError, OverflowError):
            self.expected(key, entry, expected, f"{key}: {example}")
            return None

    def integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number within its range, None when absent."""

        def fits(value: Scalar) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

        value = self.scalar(key, fits, f"a whole number from {low} to {high}", str(low))
        return value if isinstance(value, int) else None

    def number(self, key: str, *, positive: bool = False) -> float | None:
        """A finite number, None when absent."""

        def fits(value: Scalar) -> bool:
            finite = not isinstance(value, bool) and _finite(value)
            return finite and (not positive or float(value or 0) > 0)

        value = self.scalar(key, fits, "a number above 0" if positive else "a number", "1.5")
        return None if value is None else float(value)

    def boolean(self, key: str) -> bool | None:
        value = self.scalar(key, lambda value: isinstance(value, bool), "true or false", "true")
        return value if isinstance(value, bool) else None

    def texts(self, key: str, check: Callable[[str], object] = str, example: str = '"..."') -> tuple[str, ...]:
        """A list of texts, none of them empty, for which `check` raises no ValueError; a single text is taken as a list
        of one."""
        entry = self.entry(key)
        if entry is None:
            return ()
        nodes = entry.node.items if isinstance(entry.node, ListValue) else (entry.node,)
        values = tuple(str(node.value) for node in nodes if isinstance(node, ScalarValue) and _is_word(node.value))
        if len(values) < len(nodes):
            self.expected(key, entry, "a list of texts", f"{key}: [{example}]")
            return ()
        for text in values:
            try:
                usable = bool(text) and check(text) is not None
            except ValueError:
                usable = False
            if not usable:
                summary = f'`{self.name(key)}` holds "{truncate(clean_line(text), 40)}", which cannot be used.'
                self.complain(entry.line, summary, f"For example: {key}: [{example}]")
                return ()
        return values

    def sub(self, key: str) -> Reader:
        """The mapping under `key`; an empty one when it is absent or not a mapping."""
        entry = self.entry(key)
        if entry is not None and isinstance(entry.node, MappingValue):
            return Reader(entry.node, self.name(key), self.complaints)
        if entry is not None:
            self.expected(key, entry, "a mapping", f"{key}: {{name: value}}")
        return Reader(MappingValue((), self.line(key)), self.name(key), self.complaints)

    def subs(self, key: str) -> tuple[Reader, ...]:
        entry = self.entry(key)
        if entry is None:
            return ()
        if isinstance(entry.node, ListValue) and all(isinstance(item, MappingValue) for item in entry.node.items):
            tables = [item for item in entry.node.items if isinstance(item, MappingValue)]
            return tuple(Reader(table, f"{self.name(key)}[{i}]", self.complaints) for i, table in enumerate(tables))
        self.expected(key, entry, "a list of mappings", f"{key}: [{{name: value}}]")
        return ()

    def unused(self) -> tuple[tuple[str, str], ...]:
        """Keys that were not asked for, with their values as text for showing."""
        return tuple(
            (self.name(entry.key), showable(entry.key, entry.node))
            for entry in self.table.entries
            if entry.key not in self._asked
        )


def _is_word(value: Scalar) -> bool:
    return value is not None and not isinstance(value, bool)


def _finite(value: Scalar) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(float(value))
    except OverflowError:
        return False


# --- preset ----------------------------------------------------------------------------------------------


NO_GPU = "none"
DOCKER_COMMAND: Final = "a docker run command"
"""The source of a recipe that has all options of its command."""


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
    `checked`: independent public sources that served it on a Spark; from two on, the recipe is called checked.
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
    checked: tuple[str, ...] = ()
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
    def mounted_model(self) -> str:
        """Where a model by a path lies that is in a mount of the recipe's own: on this machine, or below /models, which
        is the store; empty for every other model."""
        model, pairs = posixpath.normpath(self.model), (each.split(":")[:2] for each in self.mounts)
        over = [each for each in pairs if len(each) == 2 and f"{model}/".startswith(f"{each[1].rstrip('/')}/")]
        source, target = max(over, key=lambda each: len(each[1]), default=("", ""))
        return (
            posixpath.normpath(posixpath.join(STORE_TARGET, source, posixpath.relpath(model, target))) if target else ""
        )

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
    again = read(changed)
    wanted = {each.key: plain(each.node) for each in document.entries} | {"container": image}
    return changed if isinstance(again, MappingValue) and plain(again) == wanted else None
