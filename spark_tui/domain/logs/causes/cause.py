"""The names of causes, what is known about a failure, and the shape of a rule that recognises one."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from spark_tui.domain.finding import Change, Finding, Severity
from spark_tui.domain.logs.timeline import EngineFacts, PhaseId
from spark_tui.domain.text import truncate

MAX_QUOTED = 200
_HUB_NAME = re.compile(r"https?://(?!registry\.)[\w.\-]{1,100}/(?:api/models/)?([\w.\-]{1,100}/[\w.\-]{1,100})")
_RESTRICTED = re.compile(r"Access to model ([\w.\-]{1,100}/[\w.\-]{1,100}) is restricted")


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
    DISK_FULL = "disk_full"
    PERMISSION_DENIED = "permission_denied"
    IMAGE_UNAVAILABLE = "image_unavailable"
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
    STOPPED_BY_GUARD = "stopped_by_guard"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FailureContext:
    """All that is known about a failure. `text` holds its lines; `engine` is the runtime (`vllm`, `sglang` ...), empty
    when unknown; `asked` the engine's settings as it was given them; `pool_gib` is the machine's memory in GiB, None
    when unknown; `taken_ports` are not to be proposed."""

    text: str = ""
    engine: str = ""
    phase: PhaseId | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    asked: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False
    exit_code: int | None = None
    pool_gib: float | None = None
    taken_ports: frozenset[int] = frozenset()
    module: str = ""
    """The file that raised the exception, by the innermost frame above it."""

    @property
    def version(self) -> str:
        """` (0.32.0)`, to stand behind the engine's name; empty when the log does not say."""
        return f" ({self.facts.version})" if self.facts.version else ""

    @property
    def model(self) -> str:
        """The model as the Hub's address or the engine names it."""
        found = _RESTRICTED.search(self.text) or _HUB_NAME.search(self.text)
        return (found[1] if found else self.facts.model) or "the model"


Explain: TypeAlias = Callable[[re.Match[str], FailureContext], Finding]


@dataclass(frozen=True, slots=True)
class CauseRule:
    """`pattern` is searched in one line; `explain` gets its match. `sure` is False where the words only suggest it.

    `by_phase`: the id depends on what the engine was doing (out of memory has two names). `vague`: a line beside it
    that another rule knows says more.
    """

    id: CauseId
    pattern: str
    explain: Explain
    sure: bool = True
    by_phase: bool = False
    vague: bool = False

    def match(self, line: str) -> re.Match[str] | None:
        return _compiled(self.pattern).search(line)


_compiled = functools.cache(re.compile)
"""With the first line that is to be recognised: most programs start without a failure to explain."""


def rule(
    cause: CauseId,
    pattern: str,
    explain: Explain | str,
    remedy: str = "",
    *,
    change: Change = (),
    sure: bool = True,
    vague: bool = False,
) -> CauseRule:
    """A rule from the pattern's text. `explain` is a function, or the summary; summary and remedy may hold fields.

    `{0}` is the first group (`-` where it is absent), `{any}` the first one that is not empty, `{match}` the whole
    match, `{model}` and `{version}` the engine's.
    """
    if not isinstance(explain, str):
        return CauseRule(cause, pattern, explain, sure, vague=vague)
    summary = explain

    def filled(match: re.Match[str], context: FailureContext) -> Finding:
        groups = tuple(truncate(group.strip(), MAX_QUOTED) if group else "-" for group in match.groups())
        fields = {
            "any": first_group(match).strip("\"' "),
            "match": truncate(match[0], 120),
            "model": context.model,
            "version": context.version,
        }
        return fix(" ".join(summary.format(*groups, **fields).split()), remedy.format(*groups, **fields), change)

    return CauseRule(cause, pattern, filled, sure, vague=vague)


def fix(summary: str, remedy: str, change: Change = ()) -> Finding:
    """A cause whose id, evidence and certainty the diagnosis fills in."""
    return Finding(CauseId.UNKNOWN, Severity.ERROR, summary, remedy=remedy, change=change)


def setting(summary: str, remedy: str, key: str, value: object) -> Finding:
    return fix(summary, remedy, ((key, f"{value:g}" if isinstance(value, float) else str(value)),))


def first_group(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), "")


def nearest(word: str, known: str) -> str:
    """The name in a list as an error prints it that `word` most likely meant; empty when none is near."""
    names = re.findall(r"[\w.\-]+", known)
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.5)), "")
