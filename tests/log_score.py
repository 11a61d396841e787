"""How well logs are explained: excerpts of tests/fixtures/logs/excerpts against their expected facts, by facet."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final

from spark_tui.observe.engines.command.explain import lines_of
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.model.timeline import StartOutcome
from tests.log_fixtures import LOGS

EXCERPTS: Final = LOGS / "excerpts"
FACETS: Final = ("outcome", "phase", "verdict", "cause", "line", "remedy", "findings")
EXPECTED: Final[dict[str, dict[str, Any]]] = tomllib.loads((EXCERPTS / "expected.toml").read_text("utf-8"))
HELD: Final = tuple(name for name, facts in EXPECTED.items() if facts.get("held"))
"""A third, chosen by a seed before the reader first ran on them."""


def excerpt(name: str) -> bytes:
    """As it was pasted: without its first line, which names the thread."""
    return (EXCERPTS / f"{name}.log").read_bytes().partition(b"\n")[2]


@cache
def explained(name: str) -> Explanation:
    """An excerpt as `spark-tui explain FILE` reads it."""
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines_of(BytesIO(excerpt(name))))
    return reader.explanation()


@dataclass(frozen=True, slots=True)
class Mark:
    """Whether one facet of one excerpt is as expected."""

    name: str
    facet: str
    right: bool
    expected: object
    found: object


def marks(name: str) -> Iterator[Mark]:
    """One for each facet that is labelled; outcome, verdict, cause and deciding line always are."""
    want, told = EXPECTED[name], explained(name)
    found = _facts(told)
    for facet in FACETS:
        if facet not in want and facet != "verdict":
            continue
        expected, got = want.get(facet, "unknown"), found[facet]
        if facet == "line":
            right = expected in got if expected else not got
        elif facet == "remedy":
            right = all(_words(word) in _words(got) for word in expected)
        elif facet == "findings":
            right = set(expected) == set(got)
        else:
            right = expected in ("any", got)
        yield Mark(name, facet, right, expected, got)


def _words(text: str) -> str:
    """An option's name is one however its words are joined."""
    return text.lower().replace("-", "_")


def _facts(told: Explanation) -> dict[str, Any]:
    timeline, cause = told.timeline, told.cause
    failure = timeline.failure if cause is not None else None
    failed, current = timeline.failed, timeline.current
    phase = (failure.phase if failure else None) or (failed.id if failed else None) or (current.id if current else None)
    remedies = [cause.remedy] if cause is not None else [finding.remedy for finding in told.findings]
    unknown = told.outcome is StartOutcome.UNKNOWN
    return {
        "outcome": "" if unknown else told.outcome.value,
        "phase": "ready" if timeline.ready and failure is None else str(phase or ""),
        "verdict": told.fp4.verdict.value,
        "cause": str(cause.id) if cause is not None else "",
        "line": failure.line if failure is not None else "".join(cause.evidence[-1:]) if cause is not None else "",
        "remedy": " ".join(remedies),
        "findings": [str(finding.id) for finding in told.findings],
    }


def shares(found: list[Mark]) -> dict[str, tuple[int, int]]:
    """For each facet how many are right, and of how many."""
    return {
        facet: (sum(mark.right for mark in found if mark.facet == facet), sum(mark.facet == facet for mark in found))
        for facet in FACETS
    }
