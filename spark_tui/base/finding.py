"""The one shape of advice: log findings, causes of failure, preset rules, doctor checks, alarms, store verdicts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

Change: TypeAlias = tuple[tuple[str, str], ...]
"""Settings as `(key, value)` pairs, as `--set` takes them; empty where no setting helps."""


def pairs_text(change: Change) -> str:
    """`max_model_len=90112 kv_cache_dtype=fp8`."""
    return " ".join(f"{key}={value}" for key, value in change)


def set_options(change: Change) -> str:
    """`--set port=8001 --set max_model_len=65536`, quoted for the shell; empty without a change."""
    return shlex.join(word for key, value in change for word in ("--set", f"{key}={value}"))


class Severity(StrEnum):
    """How much a finding matters, the worst first. OK: checked and fine. UNKNOWN: could not be checked."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """0 for the worst, so that findings sort by it."""
        return _RANKS[self]

    def worse_than(self, other: Severity) -> bool:
        """Whether this matters more than `other`."""
        return self.rank < other.rank


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(Struct, frozen=True):
    """One piece of advice.

    `id` is stable: scripts may rely on it. `summary` is one sentence: what is the matter. `evidence` is what was seen:
    log lines (cleaned and masked), values, paths. `remedy` says what to do, `change` the settings that do it. `line`
    is the number, from 0, of the log line that proves it. `guess`: the evidence suggests it and does not prove it.
    `subject` names what it is about where that is not clear from the place: an engine, a file, a model.
    """

    id: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    change: Change = ()
    line: int | None = None
    guess: bool = False
    subject: str = ""


class AlarmId(StrEnum):
    """Ids of alarms, the most urgent first."""

    MEMORY = "memory"
    STALL = "wedge"
    LOW_POWER = "low power"
    CRASH_LOOP = "crash loop"
    LEAK = "leaked shared memory"
    CANARY = "changed figures"


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity among findings; OK where there are none."""
    return min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)


VERDICTS: Final = {
    Severity.ERROR: "FAIL",
    Severity.WARNING: "WARN",
    Severity.INFO: "PASS",
    Severity.OK: "PASS",
    Severity.UNKNOWN: "SKIP",
}
"""The words on screen and in JSON."""


def counts(findings: Iterable[Finding]) -> str:
    """`2 failed, 1 warning, 18 passed, 3 skipped`."""
    words = [VERDICTS[each.severity] for each in findings]
    names = {"FAIL": "failed", "WARN": "warning", "PASS": "passed", "SKIP": "skipped"}
    found = ((name, words.count(word)) for word, name in names.items())
    return ", ".join(f"{count} {name}{'s' * (name == 'warning' and count > 1)}" for name, count in found if count)
