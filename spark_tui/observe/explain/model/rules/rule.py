"""What a rule is: a function of one log line and of what is known so far that returns facts. It changes nothing.

There is one table of rules for each runtime, by the first word of the message, so that a new rule for one engine
never sees a line of another. Rules that several runtimes share follow below: bars of Python engines, tracebacks,
native programs that end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, lazy_pattern, truncate
from spark_tui.observe.explain.model.line import BAR, LogRecord, bar_left, parse_line, share
from spark_tui.observe.explain.model.timeline import EngineFacts, LogEvidence, PhaseId, Topic

MAX_EVIDENCE: Final = 400
MAX_PER_TOPIC: Final = 8


class RuleContext(Struct):
    """What a rule may look at beside the message. Rules only read it."""

    record: LogRecord = field(default_factory=lambda: parse_line(""))
    line: int = -1
    """Number of the line, from 0."""
    at: float | None = None
    """When the line was written; None without a clock."""
    facts: EngineFacts = field(default_factory=EngineFacts)
    phase: PhaseId | None = None
    shards_begun: bool = False
    drafter: bool = False
    own_ready_line: bool = False
    """The engine has a line of its own for being ready: uvicorn's is not it."""
    serving: bool = False


# --- facts ------------------------------------------------------------------------------------------------


class EnterPhase(NamedTuple):
    """A phase runs now."""

    phase: PhaseId


class FinishPhase(NamedTuple):
    """A phase has ended; `then` is the likely next one. `proven`: it is certain."""

    phase: PhaseId
    then: PhaseId
    detail: str = ""
    proven: bool = False


class Report(NamedTuple):
    """How far the running phase is: 0..1, and the seconds left by its own bar."""

    phase: PhaseId
    detail: str | None = None
    progress: float | None = None
    left: float | None = None


class DescribePhase(NamedTuple):
    """A later line knows a phase's detail better."""

    phase: PhaseId
    detail: str


class SilentPhase(NamedTuple):
    """A phase was silent while it ran: it took `seconds` of the time counted for `within` so far."""

    phase: PhaseId
    seconds: float
    within: PhaseId


class SkipPhase(NamedTuple):
    """The phase will not happen."""

    phase: PhaseId


class Downloading(NamedTuple):
    """Weights are downloading. `progress` 1: done."""

    detail: str
    progress: float | None
    left: float | None


class Compiled(NamedTuple):
    """torch.compile is done, or the run that measures after it (`seconds` None)."""

    seconds: float | None


class UpdateFacts(NamedTuple):
    """Fields of EngineFacts, replacing what was known."""

    fields: Mapping[str, Any]


class KeepEvidence(NamedTuple):
    """The line proves something about a topic."""

    evidence: LogEvidence


class StartSettings(NamedTuple):
    """Settings that the engine was started with, for remedies."""

    settings: Mapping[str, str]


class NewStart(NamedTuple):
    """An engine prints this once, when it starts. `runtime` is whose line it is; empty where that is not certain."""

    runtime: str
    first: bool = True
    """False: it only names the runtime."""


class Interval(NamedTuple):
    """A line of the periodic serving statistics."""

    message: str


class Warm(NamedTuple):
    """The first request was answered after `seconds`."""

    seconds: float


class Signal(StrEnum):
    """Facts without a value."""

    READY = auto()
    ANSWERS = auto()
    """It serves, whether or not its ready line was seen."""
    RUNNER_ENDED = auto()
    """A server says that its child ended: it lives, but whether it answers, other lines say."""
    STOPPED = auto()
    SIGNALLED = auto()
    """It ends; whether by a signal from outside or by its own failure, other lines or the exit code say."""
    WOUND_DOWN = auto()
    """uvicorn has ended: what for, other lines say."""
    OWN_READY_LINE = auto()
    SHARDS = auto()
    DRAFTER = auto()
    COMPILED_BEFORE = auto()
    """The compile cache had the work."""
    COMPILED_AGAIN = auto()


class Broken(StrEnum):
    """Lines around a failure, for the FailureReader."""

    START_FAILED = auto()
    FATAL = auto()
    WORKER_FAILED = auto()
    PROCESS_DIED = auto()
    ENGINE_GONE = auto()
    NATIVE = auto()
    CHILD_DIED = auto()
    EXCEPTION = auto()
    USAGE = auto()
    """argparse refused the arguments."""
    TRACEBACK = auto()
    FRAME = auto()
    DETAIL = auto()


Fact: TypeAlias = (
    EnterPhase
    | FinishPhase
    | Report
    | DescribePhase
    | SilentPhase
    | SkipPhase
    | Downloading
    | Compiled
    | UpdateFacts
    | KeepEvidence
    | StartSettings
    | NewStart
    | Interval
    | Warm
    | Signal
    | Broken
)
Rule: TypeAlias = Callable[[str, RuleContext], Iterable[Fact]]
"""Called with the message without leading `[tags]`, and what is known."""
Table: TypeAlias = dict[str, tuple[Rule, ...]]
"""Rules by the first word of a message, in the order in which they run. `#` stands for any whole number."""


# --- making rules -----------------------------------------------------------------------------------------


def table(*entries: tuple[str, Rule]) -> Table:
    """Rules by word; an entry names its words with spaces between them."""
    found: Table = {}
    for words, rule in entries:
        for word in words.split():
            found[word] = (*found.get(word, ()), rule)
    return found


def joined(*tables: Table) -> Table:
    """The rules of all tables, those of the first one first."""
    return table(*((word, rule) for one in tables for word, rules in one.items() for rule in rules))


def when(beginnings: str | tuple[str, ...], *facts: Fact) -> Rule:
    """The same facts for every message that begins so."""
    return lambda message, _known: facts if message.startswith(beginnings) else ()


def found(pattern: str, facts: Callable[[re.Match[str], RuleContext], Iterable[Fact]]) -> Rule:
    """Facts from the match of a pattern at the beginning of the message."""
    compiled = lazy_pattern(pattern)

    def rule(message: str, known: RuleContext) -> Iterable[Fact]:
        match = compiled.match(message)
        return () if match is None else facts(match, known)

    return rule


def keeps(topic: Topic, pattern: str) -> Rule:
    return found(pattern, lambda match, known: keep(topic, match.string, known))


def keep(topic: Topic, message: str, known: RuleContext) -> tuple[KeepEvidence, ...]:
    """The line as evidence, cleaned, masked and cut; empty where the same is kept already, or enough of it."""
    before, text = known.facts.proof(topic), shown(message)
    if len(before) >= MAX_PER_TOPIC or any(kept.text == text for kept in before):
        return ()
    return (KeepEvidence(LogEvidence(topic, text, known.line)),)


def wait(topic: Topic, message: str, known: RuleContext, seconds: float = 0.0, *, more: bool = False) -> UpdateFacts:
    """A process waits: `seconds` in all, or more than before."""
    others = tuple(each for each in known.facts.waits if each.topic is not topic)
    before = next((each for each in known.facts.waits if each not in others), None)
    first = before or LogEvidence(topic, shown(message), known.line, at=known.at)
    span = 0.0 if first.at is None or known.at is None else known.at - first.at  # where lines between are left out
    return learn(waits=(*others, replace(first, seconds=max(span, first.seconds + seconds if more else seconds))))


def shown(message: str) -> str:
    return truncate(mask_secrets(clean_line(message[: MAX_EVIDENCE * 2])).strip(), MAX_EVIDENCE)


def learn(**fields: Any) -> UpdateFacts:
    return UpdateFacts(fields)


def fields_in(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, str]:
    """The first group of every pattern that is found, without `None` and `auto`."""
    matches = {name: match[1] for name, pattern in patterns.items() if (match := pattern.search(text))}
    return {name: value for name, value in matches.items() if value not in ("None", "auto")}


# --- rules that several runtimes share -------------------------------------------------------------------


def weights(message: str, known: RuleContext) -> Iterator[Fact]:
    """A bar of shards (`17% Completed | 1/6 [`), a drafter's too, or only the word that weights are loading."""
    if message.startswith("Loading drafter model"):
        yield EnterPhase(PhaseId.WEIGHTS)
        yield Signal.DRAFTER  # a drafter of its own may have to be downloaded first
        yield Report(PhaseId.WEIGHTS)
        return
    parallel = message.startswith(("Loading weights", "Loading safetensors weights in parallel"))
    if "% Completed |" not in message and not parallel and not message.startswith("Multi-thread"):
        return
    yield EnterPhase(PhaseId.WEIGHTS)
    yield Signal.SHARDS
    if bar := BAR.match(message):
        done, total = int(bar[3]), int(bar[4])
        unit = "shards" if "shards" in bar[1] or "Completed" in bar[0] else "weights"
        detail = f"{'drafter ' * known.drafter}{done}/{total} {unit}"
        yield Report(PhaseId.WEIGHTS, detail, share(done, total), bar_left(message, bar.end()))


def fetching(message: str, known: RuleContext) -> Iterator[Fact]:
    """The Hub's bar, where an engine shows it: `Fetching 7 files:  29%|██▊       | 2/7 [00:10<00:25,  5.1s/it]`."""
    bar = BAR.match(message)
    if bar and not known.shards_begun:
        done, total = int(bar[3]), int(bar[4])
        progress = share(done, total) if done < total else 1.0
        yield Downloading(f"{done}/{total} files", progress, bar_left(message, bar.end()))


def capturing(message: str, known: RuleContext) -> Iterator[Fact]:
    """A bar of CUDA graphs. vLLM's Model Runner V2 captures once to measure, before the KV cache has its size."""
    phase = PhaseId.KV_CACHE if known.facts.kv_tokens is None else PhaseId.CAPTURE
    yield EnterPhase(phase)
    if bar := BAR.match(message):
        done, total = int(bar[3]), int(bar[4])
        yield Report(phase, f"{done}/{total} graphs", share(done, total), bar_left(message, bar.end()))


_AUTOTUNE: Final = (
    "[AutoTuner]: ", "[Autotuner]: ", "Autotuning FlashInfer", "Autotuning process starts", "Running FlashInfer",
    "Running autotuner warmup", "JIT kernel warmup starting",
)  # fmt: skip


def autotune(message: str, known: RuleContext) -> Iterator[Fact]:
    if message.startswith(("[Autotuner]: Autotuning process ends", "JIT kernel warmup f")):
        if known.facts.kv_tokens is not None:
            yield FinishPhase(PhaseId.AUTOTUNE, PhaseId.ENGINE_READY)
    elif message.startswith(_AUTOTUNE):
        yield tuning(known)
        if bar := BAR.match(message):
            name = bar[1].rpartition("Tuning ")[2]
            yield Report(PhaseId.AUTOTUNE, name[:40], share(int(bar[3]), int(bar[4])))


def tuning(known: RuleContext) -> EnterPhase:
    """Kernels are tuned or warmed up. Before the KV cache has its size that is part of measuring memory."""
    return EnterPhase(PhaseId.KV_CACHE if known.facts.kv_tokens is None else PhaseId.AUTOTUNE)


def application(message: str, known: RuleContext) -> Iterator[Fact]:
    """uvicorn is up: ready, unless the engine has a line of its own for that."""
    if message.startswith("Application startup complete") and not known.own_ready_line:
        yield Signal.READY
    elif message.startswith("Application shutdown complete"):
        yield Signal.WOUND_DOWN


_ENDS: Final = lazy_pattern(
    # llama.cpp
    r"main: exiting due to|"
    r"(?:srv +)?(?:load_model|start|operator\(\)|main): (?:couldn't bind|failed to load (?:draft |multimodal )?model)|"
    r"llama_model_load: error loading model|common_init_from_params: failed to load model|error: invalid argument|"
    r"error while handling argument|error: unexpected argument"
    # Ollama and other Go and Rust programs
    r"|Error: (?:listen |could not|model requires more |unable to|No such option|Invalid value|Got unexpected)|"
    r"thread '[^']{1,60}'(?: \(\d+\))? panicked at|panic: |fatal error: "
    # C++, libc, the interpreter
    r"|terminate called (?:after|without)|Fatal Python error: |Segmentation fault|Illegal instruction|Bus error|"
    r"!!!!!!! Segfault encountered"
    # what replaces the container's command; a shell's complaint is left to the exit code: scripts continue after it
    r"|exec \S{1,200}: (?:exec format error|no such file or directory)"
)


def ends(message: str, known: RuleContext) -> Iterator[Fact]:
    """A program that is not Python says why it ends. While it serves, that is not the end."""
    if not known.serving and _ENDS.match(message):
        yield Broken.NATIVE


ENDINGS: Final = (
    "main: srv start: llama_model_load: common_init_from_params: error: error Error: thread panic: fatal terminate "
    "Fatal Segmentation Illegal Bus !!!!!!! exec"
)
"""First words of the lines for `ends`."""

COMMON: Final[Table] = table(
    (ENDINGS, ends),
    ("Traceback", when("Traceback (most recent call last)", Broken.TRACEBACK)),
    ("File", lambda _message, _known: (Broken.FRAME,)),
    ("Value Assertion", lambda _message, _known: (Broken.DETAIL,)),
    ("Fetching", fetching),
    # NVIDIA's entrypoint
    ("The", keeps(Topic.NO_DRIVER, "The NVIDIA Driver was not detected")),
)
"""For every runtime, and for a log of an unknown one."""

PYTHON_ENGINE: Final[Table] = table(
    ("Loading Multi-thread", weights),
    ("Capturing", capturing),
    ("[AutoTuner]: [Autotuner]: Autotuning Running JIT", autotune),
    # of kernels that engines share: what a GPU cannot run is left out, and another one chosen
    ("[AutoTuner]: [Autotuner]:", keeps(Topic.TACTICS, r"\[Auto[Tt]uner\]: Skipped \d{1,6} unsupported tactic")),
    ("SM90: SM100: SM120: SM121:", keeps(Topic.TILES, r"SM\d{2,3}: skipping .{0,60}tile .{0,80}exceeds SMEM limit")),
    ("Application", application),
    ("Finished", when("Finished server process", Signal.WOUND_DOWN)),
    (
        "Prefetching",
        found(
            r"Prefetching checkpoint files: \d{1,3}% \((\d{1,7})/(\d{1,7})\)",  # into the page cache
            lambda m, known: (
                ()
                if known.shards_begun
                else (Report(PhaseId.WEIGHTS, f"page cache {m[1]}/{m[2]}", share(int(m[1]), int(m[2]))),)
            ),
        ),
    ),
)
"""For vLLM, SGLang and TensorRT-LLM, which share loaders, FlashInfer and uvicorn."""
