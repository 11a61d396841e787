"""The engines that are known: a file of facts each, in `engines`. The models that are known: parsers and layers
(`models.toml`), published checkpoints and figures (`published.toml`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.text import lazy_pattern

Scalar: TypeAlias = str | int | float | bool | None
"""A value of a server's option."""
CHAT_PATH: Final = "/v1/chat/completions"


class KeyDelivery(StrEnum):
    """How a server takes its API key without any process list showing it: from a variable that it reads, from a file
    that the container writes from a variable before the server starts, or not at all."""

    VARIABLE = "variable"
    CONFIG_FILE = "config file"
    NONE = "none"


class ModelName(StrEnum):
    """What names a server's model: a Hub repository or a folder, a GGUF file, or a tag of Ollama's library."""

    HUB = "hub"
    GGUF = "gguf"
    TAG = "tag"


class Runtime(Struct, frozen=True, forbid_unknown_fields=True):
    """One serving runtime, as its file in `engines` describes it. Nothing else is needed for one that runs already.

    `rank` is its place in lists; what is `launched` by spark-tui has presets, and rules for its log.
    `marks` identify it by an image's or a program's name. `programs` are the words that start its server, the first as
    spark-tui writes them. `port` is where it listens by default, `loopback`: and then only within its
    container; `host_option` or else `host_variable` (ADDRESS:PORT) changes that.
    `health_path` answers 200 once it is ready; `health_seconds` is how long to wait for that answer. `loading_503`: a
    503 there means that it is not ready yet; otherwise that its engine died.
    `version_paths` are tried in turn, `version_key` is the answer's key; no paths: not reported. `metrics_path` is
    empty where there is no Prometheus page, `metrics_option` what turns it on.
    A series of that page is `series_prefix` with a name of `series`: its family in lower case, then the label that is
    kept, and the only value of it that counts; of `histograms` all parts. `name_options` are the options that name the
    model for requests, `text_key` is what /tokenize calls its text.
    `lists_more`: its model list has more than it serves; `owners` are what that list says owns them, in lower case.
    `caches` are the compile caches that it fills. `first_request` is what the warm-up pays for, and
    `first_request_seconds` how long it is waited for: vLLM compiles for 25 to 60 s, Ollama reads all weights.
    """

    id: str
    title: str
    port: int
    marks: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    key_way: KeyDelivery
    rank: int = 100
    launched: bool = False
    key_variable: str = ""
    loopback: bool = False
    host_option: str = "--host"
    host_variable: str = ""
    health_path: str = "/health"
    health_seconds: float = 2.0
    loading_503: bool = False
    models_path: str = "/v1/models"
    chat_path: str = CHAT_PATH
    version_paths: tuple[str, ...] = ()
    version_key: str = "version"
    metrics_path: str = ""
    metrics_option: str = ""
    series_prefix: str = ""
    series: tuple[tuple[str, ...], ...] = ()
    histograms: tuple[tuple[str, str], ...] = ()
    name_options: tuple[str, ...] = ("--served-model-name",)
    text_key: str = "prompt"
    model_name: ModelName = ModelName.HUB
    model_options: tuple[str, ...] = ()
    lists_more: bool = False
    owners: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    first_request: str = "compiles kernels"
    first_request_seconds: float = 300.0


class Proxy(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that passes requests on and lists the models of others: no engine. The fields are as of `Runtime`."""

    title: str
    programs: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class _Proxies(Struct, frozen=True, forbid_unknown_fields=True):
    """What `proxies.toml` holds."""

    proxy: tuple[Proxy, ...]


_HERE: Final = Path(__file__).parent
RUNTIMES: Final = tuple(
    sorted(
        (msgspec.toml.decode(path.read_bytes(), type=Runtime) for path in _HERE.glob("engines/*.toml")),
        key=lambda each: (each.rank, each.id),
    )
)
LAUNCHED: Final = tuple(each for each in RUNTIMES if each.launched)
VLLM, SGLANG, TRTLLM, LLAMA_CPP, OLLAMA = LAUNCHED
ANY: Final = next(each for each in RUNTIMES if each.id == "openai")
"""A server that is known by its API alone."""
PROXIES: Final = msgspec.toml.decode((_HERE / "proxies.toml").read_bytes(), type=_Proxies).proxy
KEY_VARIABLES: Final = tuple(runtime.key_variable for runtime in RUNTIMES if runtime.key_variable)
"""Every variable under which a key that we made may stand in a container's env file."""

_PROGRAM_NAMES: Final = frozenset(
    words[0] for runtime in RUNTIMES for words in runtime.programs if words[0] != "python3"
)


def runtime_named(name: str) -> Runtime:
    """The runtime of that id; vLLM's for any other, because its API is what an unknown server is asked by."""
    return next((runtime for runtime in RUNTIMES if runtime.id == name), VLLM)


def is_known(name: str) -> bool:
    """Whether spark-tui launches it."""
    return any(runtime.id == name for runtime in LAUNCHED)


def is_server_program(word: str) -> bool:
    """Whether a program is one of the servers themselves, which would take any words as its own."""
    return PurePosixPath(word).name in _PROGRAM_NAMES


_PYTHON: Final = re.compile(r"python[\d.]*")


def _program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without the folder of its program, and without the Python that runs a script."""
    words = (PurePosixPath(argv[0]).name, *argv[1:]) if argv else ()
    if words and _PYTHON.fullmatch(words[0]):
        rest = words[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest = rest[1:]
        words = ("python3", *rest) if rest[:1] == ("-m",) else (PurePosixPath(rest[0]).name, *rest[1:]) if rest else ()
    return words


def server_of(argv: tuple[str, ...]) -> Runtime | None:
    """The runtime whose server a process is by its command line; None where it only names one, as a shell, an editor or
    `docker run` do."""
    words = _program(argv)
    return next((each for each in RUNTIMES for program in each.programs if words[: len(program)] == program), None)


_NOT_NAME: Final = re.compile(r"[^a-z0-9._-]+")


def program_of(argv: tuple[str, ...]) -> str:
    """The name of the program, or of the script or module that Python runs, in lower case; empty where it has none."""
    words = _program(argv)
    name = words[2].rpartition(".")[2] if words[:2] == ("python3", "-m") and len(words) > 2 else "".join(words[:1])
    return _NOT_NAME.sub("", PurePosixPath(name.lower()).name.removesuffix(".py"))[:40]


def is_proxy(argv: tuple[str, ...]) -> bool:
    """Whether a process passes requests on, by its command line."""
    return program_of(argv) in [program for each in PROXIES for program in each.programs]


_MOST_WRAPPERS: Final = 8
"""Words before the program: `tini --`, an image's entrypoint script, `env NAME=VALUE`."""
_NEXT_COMMAND: Final = lazy_pattern(r"&&|\|\||[;&\n]|\b(?:do|done|then|else|fi)\b")
_CLIENT: Final = lazy_pattern(
    r"(?:vllm (?:bench|chat|complete|run-batch|collect-env)|ollama (?:run|pull|push|create|cp|rm|list|ls|ps|show)|"
    r"python3 -m (?:sglang\.bench_\w+|vllm\.benchmarks\S*|lm_eval|pip|evalscope|guidellm|huggingface_hub\S*)|"
    r"lm[-_]eval|genai-perf|aiperf|guidellm|evalscope|trtllm-(?:bench|build|eval)|llama-(?:cli|bench|quantize)|"
    r"\S*bench\w*\.py|bench_serving|curl|wget|huggingface-cli|hf (?:download|upload|auth|cache))(?: |$)"
)
"""Programs that ask, measure or prepare, in an engine's image too."""


def _commands(argv: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The command lines that a container may run, behind wrappers and within a shell's text; and whether it is the last
    one there, which stays."""
    for at, word in enumerate(argv[:_MOST_WRAPPERS]):
        if " " not in word:
            yield argv[at:], True
            continue
        texts = [tuple(text.partition("|")[0].split()) for text in _NEXT_COMMAND.split(word) if text.strip()]
        for words in texts:
            for start in range(min(len(words), _MOST_WRAPPERS)):
                yield words[start:], words is texts[-1]


@lru_cache(maxsize=256)
def recognised(image: str, argv: tuple[str, ...], labelled: str = "") -> str:
    """The id of the runtime that a container serves with; empty for one that runs no engine.

    The program that it runs comes first; only where that says nothing the runtime that our label names, or the
    image's name.
    """
    commands = tuple(_commands(argv))
    if server := next(filter(None, (server_of(words) for words, _ in commands)), None):
        return server.id
    if any(last and _CLIENT.match(" ".join(_program(words)[:4])) for words, last in commands):
        return ""
    programs = [PurePosixPath(word).name.lower() for word in argv[:4] if " " not in word]
    words = [image.lower(), *programs]
    marked = (found.id for found in RUNTIMES if any(mark in word for mark in found.marks for word in words))
    return labelled or next(marked, "")


_POOLING: Final = lazy_pattern(
    r"(?:^| )--(?:runner[ =]pooling|convert[ =](?:embed|classify)|task[ =](?:embed|score|classify)\w*|is-embedding|"
    r"embeddings?|rerank(?:ing)?)(?= |$)"
)


def is_pooling(words: Iterable[str]) -> bool:
    """Whether a server's options make it answer with vectors or scores instead of text. (vLLM, SGLang, llama.cpp)"""
    return _POOLING.search(" ".join(words)) is not None


def with_tag(model: str) -> str:
    """An Ollama model with its tag, as Ollama lists it: `qwen3` -> `qwen3:latest`."""
    return model if ":" in model.rpartition("/")[2] else f"{model}:latest"


# --- models ----------------------------------------------------------------------------------------------


class Parsers(NamedTuple):
    """The names as a server's options take them; an empty one is not needed."""

    tool: str
    reasoning: str = ""


class ModelFamily(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to write calls and thoughts; a maker may have several. The parsers are vLLM's; `others` are those of
    other servers, by runtime. `implied`: vLLM sets the reasoning parser by itself. `since` is the first vLLM that has
    both.
    """

    name: str
    names: str
    tool: str
    reasoning: str = ""
    implied: bool = False
    since: tuple[int, int] = (0, 14)
    others: dict[str, Parsers] = field(default_factory=dict)

    def on(self, runtime: str) -> Parsers | None:
        """Its parsers on that server; None where they are not known."""
        return Parsers(self.tool, self.reasoning) if runtime == "vllm" else self.others.get(runtime)


class KnownBytes(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of the weights, and what says so; of checkpoints with `names` in their name."""

    size: int
    source: str
    names: str = ""


class Architecture(Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """A public config, as far as it matters here, and the log that it was held against. `loaded` is what the weights
    took once loaded, `read` what one token reads of them."""

    names: str
    config: dict[str, Any]
    checked: str = ""
    loaded: tuple[KnownBytes, ...] = ()
    read: tuple[KnownBytes, ...] = ()


NOT_STATED: Final = "not stated; figures alone are taken"


class PublishedSource(Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures come from. `licence` is that of the data; of those without one, figures alone are taken."""

    title: str
    licence: str = NOT_STATED
    url: str = ""


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is published of one model in one format. `date` is as the source dates it; `machine` another one than a
    Spark."""

    model: str
    source: str
    date: str
    quantization: str = field(name="format", default="")
    runtime: str = VLLM.id
    machine: str = ""
    conditions: str = ""


class Reference(Published, frozen=True, kw_only=True):
    """One published measurement. `decode_rate` is output tokens per second of all `streams` together after prefill
    (per stream where there is one), `prefill_rate` prompt tokens per second; lengths in tokens, None: not stated.
    `machines` is how many Sparks served together. `drafting` is the method that drafted (`unknown`: one may have),
    `dispute` why the figure is doubted; `scaling` is in percent of linear."""

    decode_rate: float = field(name="output")
    version: str = ""
    streams: int = 1
    prefill_rate: float | None = field(name="prefill", default=None)
    input_tokens: int | None = field(name="prompt", default=None)
    output_tokens: int | None = field(name="answer", default=None)
    machines: int = 1
    drafting: str = ""
    dispute: str = ""
    knee: bool = False
    scaling: float | None = None

    @property
    def alone(self) -> bool:
        """Undisputed, of one stream on one Spark."""
        return (self.machine, self.machines, self.streams, self.dispute) == ("", 1, 1, "")

    @property
    def first_token(self) -> float | None:
        """Seconds until the first token of one stream, by its prompt and prefill; None where either is not stated."""
        if self.streams != 1 or not self.prefill_rate or not self.input_tokens:
            return None
        return self.input_tokens / self.prefill_rate


class KvRates(Published, frozen=True, kw_only=True):
    """Tokens per second of one stream on a Spark by the type of the KV cache, `depth` tokens into the context; `what`
    is the output or the prefill."""

    rates: dict[str, float]
    depth: int
    what: str = "output"

    def slower(self, kv: str) -> float | None:
        """By how many percent of f16 that type is slower; None where either is not known."""
        whole, rate = self.rates.get("f16"), self.rates.get(kv)
        return None if whole is None or rate is None else 100 * (1 - rate / whole)


class Accuracy(Published, frozen=True, kw_only=True):
    """Results of tests, in percent: of the model in its format, then of the full precision where that is stated."""

    scores: dict[str, tuple[float, ...]]


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """What a source says of `models`, and what contradicts it."""

    says: str
    dispute: str
    source: str
    models: tuple[str, ...]


class KnownCheckpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """One published checkpoint by its `names`, in full and in lower case. `facts`, and each of
    `when` beside its pattern `has`, are fields of a preset's facts."""

    names: tuple[str, ...]
    facts: dict[str, Any]
    when: tuple[dict[str, Any], ...] = ()


class KnownFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """Which `engines` (ids) read weights whose config has a method that fits `names`, and which `others` do."""

    names: str
    engines: tuple[str, ...]
    source: str
    others: str = ""


class KnownModels(Struct, frozen=True, forbid_unknown_fields=True):
    """What `models.toml` or `published.toml` holds; their heads say what the keys are. Sources are by their id."""

    mark: dict[str, str] = field(default_factory=dict)
    environment: tuple[dict[str, Any], ...] = ()
    failure: tuple[dict[str, str], ...] = ()
    since: tuple[dict[str, str], ...] = ()
    family: tuple[ModelFamily, ...] = ()
    alias: dict[str, dict[str, str]] = field(default_factory=dict)
    architecture: tuple[Architecture, ...] = ()
    drafter: tuple[KnownBytes, ...] = ()
    format: tuple[KnownFormat, ...] = ()
    checkpoint: tuple[KnownCheckpoint, ...] = ()
    figure: tuple[Reference, ...] = ()
    kv: tuple[KvRates, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    claim: tuple[Claim, ...] = ()
    source: dict[str, PublishedSource] = field(default_factory=dict)


@cache
def known_models() -> KnownModels:
    """All but what is published of checkpoints."""
    return msgspec.toml.decode(Path(__file__).with_name("models.toml").read_bytes(), type=KnownModels)


@cache
def published_facts() -> KnownModels:
    """Checkpoints, figures and their sources; larger, and seldom asked for."""
    return msgspec.toml.decode(Path(__file__).with_name("published.toml").read_bytes(), type=KnownModels)


@lru_cache(maxsize=1024)
def family_of(name: str) -> ModelFamily | None:
    """The first family that the name fits, in any case and with `-` for `_`."""
    text = name.lower().replace("_", "-")
    return next((each for each in known_models().family if re.search(each.names, text)), None)


def format_readers(method: str) -> KnownFormat | None:
    """What reads the weights of a `quant_method`; None where nothing that is known does."""
    return next((known for known in known_models().format if re.fullmatch(known.names, method.lower())), None)


def parser_named(name: str, runtime: str) -> str:
    """The name that the families have for a parser of that server, which may have two."""
    return known_models().alias.get(runtime, {}).get(name, name)


def makers_of(parser: str, runtime: str = "vllm") -> tuple[str, ...]:
    """The families that have a parser of that name on that server; none where it is not known."""
    families, named = known_models().family, parser_named(parser, runtime)
    return tuple(dict.fromkeys(each.name for each in families if named and named in (each.on(runtime) or ())))


def parsers_of(name: str, runtime: str = "vllm") -> Parsers | None:
    """What to write into a command of that server for a model of that name; None where no parser is known."""
    family = family_of(name)
    found = family.on(runtime) if family is not None else None
    if found is not None and family is not None and family.implied and runtime == "vllm":
        return found._replace(reasoning="")
    return found


# --- figures ---------------------------------------------------------------------------------------------


_WORDS: Final = re.compile(r"[a-z0-9.]+")
_FORMATS: Final = frozenset(
    ("nvfp4", "mxfp4", "mxfp8", "fp8", "fp4", "bf16", "w4a16", "w4a4", "w8a8", "awq", "gptq", "int4", "int8", "gguf")
)


def family(model: str) -> frozenset[str]:
    """A model's name as a set of words, without its publisher, its format and what only decorates it:
    `nvidia/Qwen3.6-35B-A3B-NVFP4` and `RedHatAI/Qwen3.6-35B-A3B-FP8` are of one family."""
    words = _WORDS.findall(model.rpartition("/")[2].lower())
    return frozenset(words) - _FORMATS - {"nvidia", "instruct", "it", "hf", "vllm", "spec", "reasoning"}


def quantization_words(name: str, config: str) -> str:
    """The usual name of a quantization, from the engine's word for it and from the model's name: `NVFP4`, `4.75-bit`.

    The engine names the format's owner (`modelopt`, `compressed-tensors`), which says nothing of the bits: then the
    name of the checkpoint decides.
    """
    for text in (config, name):
        found = _QUANTIZATIONS.search(text)
        if found:
            return found[0].upper().replace("BFLOAT16", "BF16")
    bits = _BITS.search(name)
    if bits and config != "none":
        return f"{bits[1]}-bit"
    return "BF16" if config == "none" else config


def published_of(model: str) -> KnownModels:
    """All of that model in any format; a name of a published checkpoint stands for its other names too."""
    others = (each.names for each in published_facts().checkpoint if model.lower() in each.names)
    families = {family(name) for name in (model, *next(others, ()))}
    return published_where(lambda name: family(name) in families)


def published_where(keep: Callable[[str], bool], engine: str = "") -> KnownModels:
    """All of the models that are kept by their names; of one engine where it is named by its id, which is not stated of
    accuracy. The figures of Sparks first, each machine's by model."""
    known = published_facts()
    figures = [each for each in known.figure if keep(each.model) and engine in ("", each.runtime)]
    families = {family(each.model) for each in figures}
    return replace(
        known,
        figure=tuple(sorted(figures, key=lambda each: (each.machine, each.model.rpartition("/")[2].lower()))),
        kv=tuple(each for each in known.kv if keep(each.model) and engine in ("", each.runtime)),
        accuracy=() if engine else tuple(each for each in known.accuracy if keep(each.model)),
        claim=tuple(each for each in known.claim if families & {family(name) for name in each.models}),
    )


def published_words(model: str) -> tuple[tuple[str, str], ...]:
    """What is published of a model, in a few rows of label and text: speeds of one stream on one Spark, accuracy, and
    what is disputed."""
    known = published_of(model)
    rates: dict[str, list[float]] = {}
    for each in known.figure:
        if each.alone:
            rates.setdefault(f"{each.quantization}{' drafted' if each.drafting else ''}", []).append(each.decode_rate)
    speeds = (
        f"{bits} {' to '.join(f'{end:g}' for end in sorted({min(found), max(found)}))}" for bits, found in rates.items()
    )
    return (
        *((("published", f"{', '.join(speeds)} tok/s with one stream on one Spark"),) if rates else ()),
        *(("accuracy", accuracy_text(each)) for each in known.accuracy),
        *(("disputed", text) for text in disputes(known)),
    )


def accuracy_text(found: Accuracy) -> str:
    """`NVFP4 of full precision: MMLU Pro 85 of 85.6, ... %`, with where it is from."""
    beside = " of full precision" if max(map(len, found.scores.values())) > 1 else ""
    scores = (f"{name} {' of '.join(f'{value:.4g}' for value in values)}" for name, values in found.scores.items())
    return f"{found.quantization}{beside}: {', '.join(scores)} % ({found.conditions})"


def disputes(known: KnownModels) -> tuple[str, ...]:
    """What sources say and what contradicts it: claims, then figures, those of one reason together."""
    doubted: dict[tuple[str, str], list[str]] = {}
    for each in known.figure:
        if each.dispute:
            doubted.setdefault((f"{each.model} ({each.source}, {each.date})", each.dispute), []).append(
                f"{each.decode_rate:g}"
            )
    return (
        *(f"{each.says} ({each.source}): {each.dispute}" for each in known.claim),
        *(f"{', '.join(rates)} tok/s of {of}: {why}" for (of, why), rates in doubted.items()),
    )


_QUANTIZATIONS: Final = lazy_pattern(
    r"nvfp4|mxfp4|mxfp8|w4a16|w8a8|fp8|awq|gptq(?:-int4)?|int4|int8|bfloat16|bf16|q\d_k_[msl]|q8_0", re.IGNORECASE
)
_BITS: Final = lazy_pattern(r"(?<![\d.])(\d(?:\.\d+)?)-?bit", re.IGNORECASE)
