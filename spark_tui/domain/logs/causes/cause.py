"""What a failure is called, and what a person is told about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark_tui.domain.logs.timeline import EngineFacts, PhaseId
from spark_tui.domain.text import truncate


class CauseId(StrEnum):
    """Stable names of causes: scripts may rely on them."""

    FREE_MEMORY_BELOW_UTILIZATION = "free_memory_below_utilization"
    MEMORY_CHANGED_WHILE_PROFILING = "memory_changed_while_profiling"
    NO_KV_ROOM = "no_kv_room"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    OUT_OF_MEMORY_LOADING = "out_of_memory_loading"
    OUT_OF_MEMORY_WARMUP = "out_of_memory_warmup"
    MAX_MODEL_LEN_TOO_LONG = "max_model_len_too_long"
    UNKNOWN_ARCHITECTURE = "unknown_architecture"
    UNKNOWN_QUANTIZATION = "unknown_quantization"
    QUANTIZATION_MISMATCH = "quantization_mismatch"
    GATED_REPO = "gated_repo"
    REPO_NOT_FOUND = "repo_not_found"
    HUB_OFFLINE = "hub_offline"
    WEIGHTS_CORRUPT = "weights_corrupt"
    WEIGHTS_MISSING = "weights_missing"
    PORT_IN_USE = "port_in_use"
    NO_GPU = "no_gpu"
    DRIVER_TOO_OLD = "driver_too_old"
    ARCH_NOT_COMPILED = "arch_not_compiled"
    NCCL = "nccl"
    READY_TIMEOUT = "ready_timeout"
    MISSING_MODULE = "missing_module"
    MISSING_FILE = "missing_file"
    UNSUPPORTED_MODEL_FEATURE = "unsupported_model_feature"
    KERNEL_FAILURE = "kernel_failure"
    BAD_ARGUMENT = "bad_argument"
    BAD_PARSER = "bad_parser"
    TOO_MANY_RANKS = "too_many_ranks"
    ENGINE_DIED = "engine_died"
    KILLED = "killed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an engine ended, in one sentence, and what to do about it.

    `lines` are the log's lines that decide, in order, cleaned and masked; `override` are `(key, value)` pairs as
    `overrides_from_pairs` takes them, empty where no setting helps. `guess`: the log does not prove it.
    """

    id: CauseId
    summary: str
    remedy: str
    lines: tuple[str, ...] = ()
    override: tuple[tuple[str, str], ...] = ()
    guess: bool = False
    notes: tuple[str, ...] = ()
    """What the kernel said at the time: information, never proof."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a rule says: the parts of a cause that depend on the line."""

    summary: str
    remedy: str
    override: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about a failure. `text` holds its lines; `asked` the engine's settings as it was given them;
    `pool_gib` is the machine's memory in GiB, None when unknown; `taken_ports` are not to be proposed."""

    text: str = ""
    phase: PhaseId | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    asked: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False
    exit_code: int | None = None
    pool_gib: float | None = None
    taken_ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` is searched in one line; `advise` gets its match. `sure` is False where the words only suggest it.

    `by_phase`: the id depends on what the engine was doing (out of memory has three names).
    """

    id: CauseId
    pattern: re.Pattern[str]
    advise: Callable[[re.Match[str], Evidence], Advice]
    sure: bool = True
    by_phase: bool = False


def rule(cause: CauseId, pattern: str, advise: Callable[[re.Match[str], Evidence], Advice], sure: bool = True) -> Rule:
    """A rule from the pattern's text."""
    return Rule(cause, re.compile(pattern), advise, sure)


def says(summary: str, remedy: str) -> Callable[[re.Match[str], Evidence], Advice]:
    """Advice that does not depend on the line, but for its groups: `{0}` is the first one, `-` where it is absent."""

    def advise(match: re.Match[str], _evidence: Evidence) -> Advice:
        groups = tuple(truncate(group, 120) if group else "-" for group in match.groups())
        return Advice(summary.format(*groups), remedy.format(*groups))

    return advise


def version_of(evidence: Evidence) -> tuple[int, int] | None:
    """vLLM's version as (0, 20), None when the log does not say."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", evidence.facts.version)
    return (int(match[1]), int(match[2])) if match else None


def nearest(word: str, known: str) -> str:
    """The name in a list as an error prints it that `word` most likely meant; empty when none is near."""
    names = re.findall(r"[\w.\-]+", known)
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.5)), "")
