"""The rules of causes that `causes.toml` holds, in its order."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.finding import Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes import host, memory, model, network, settings
from spark_tui.observe.explain.model.causes.cause import MAX_QUOTED, CauseId, FailureContext, first_group, fix
from spark_tui.observe.explain.model.causes.llama_cpp import ABORT
from spark_tui.observe.explain.model.line import NUMBER

_REPO: Final = lazy_pattern(r"[\w.-]{1,100}/[\w.-]{1,100}")
_PIECE: Final = lazy_pattern(r"\{\{(\w+)\}\}")
_FILE: Final = Path(__file__).with_name("causes.toml")
_PIECES: Final[Mapping[str, str]] = {
    "NUMBER": NUMBER,
    "ABORT": ABORT,
    "RAYLET": host.RAYLET,
    "NO_PROGRAM": host.NO_PROGRAM,
    "OUT_OF_MEMORY": memory.OUT_OF_MEMORY,
    "CLIENT_SOCKET": network.CLIENT_SOCKET,
    "COLLECTIVE": network.COLLECTIVE,
    "MESH": network.MESH,
}
"""Parts of patterns that the reader, or who reads the logs of several nodes, knows too."""
_SUBJECTS: Final = {"host": host, "memory": memory, "model": model, "network": network, "settings": settings}


class CauseRule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of the file. `pattern` may be a list: alternatives. Either `explain` names a function, or `fault` words
    that the logs of several nodes share, or `summary` and `remedy` are the words. `sure` is False where the words only
    suggest it. `by_phase`: the id depends on what the engine was doing (out of memory has two names). `vague`: a line
    beside it that another rule knows says more."""

    id: CauseId
    pattern: str | tuple[str, ...] = ""
    summary: str = ""
    remedy: str = ""
    change: dict[str, str] = field(default_factory=dict)
    explain: str = ""
    fault: str = ""
    sure: bool = True
    by_phase: bool = False
    vague: bool = False
    source: str = ""
    """Where the sentence is from, of a rule that no recorded log shows."""

    def told(self, match: re.Match[str], context: FailureContext) -> Finding:
        """What the words mean in their context: by the function, or the sentences with their fields filled in."""
        if self.explain:
            subject, _, name = self.explain.partition(".")
            compute: Callable[[re.Match[str], FailureContext], Finding] = getattr(_SUBJECTS[subject], name)
            return compute(match, context)
        groups = tuple(truncate(group.strip(), MAX_QUOTED) if group else "-" for group in match.groups())
        fields = {
            "any": first_group(match).strip("\"' "),
            "match": truncate(match[0], 120),
            "name": context.model if _REPO.fullmatch(context.model) else "NAME",
            "model": context.model,
            "version": context.version,
            **context.names._asdict(),
        }
        phrased = read_table().phrased
        summary = " ".join(phrased(self.summary).format(*groups, **fields).split())
        return fix(summary, phrased(self.remedy).format(*groups, **fields), tuple(self.change.items()))


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The file: parts of patterns, phrases of several remedies, and the rules by subject, in the order in which they
    are tried."""

    pieces: dict[str, str]
    phrases: dict[str, str]
    causes: dict[str, tuple[CauseRule, ...]]

    def phrased(self, text: str) -> str:
        for name, words in self.phrases.items():
            text = text.replace(f"{{{name}}}", words)
        return text


@functools.cache
def read_table() -> Table:
    return msgspec.toml.decode(_FILE.read_bytes(), type=Table)


@functools.cache
def rules() -> tuple[tuple[re.Pattern[str], CauseRule], ...]:
    """In their order, each with its pattern. Read with the first line that is to be recognised: most programs start
    without a failure to explain."""
    table, found = read_table(), []
    pieces = {**_PIECES, **table.pieces}
    for row in (row for rows in table.causes.values() for row in rows):
        text, known = row.pattern if isinstance(row.pattern, str) else "|".join(row.pattern), row
        if row.fault:
            text, summary, remedy, change = getattr(network, row.fault)
            known = replace(row, summary=summary, remedy=remedy, change=dict(change))
        elif "{{" in text:
            text = _PIECE.sub(lambda piece: pieces[piece[1]], text)
        found.append((lazy_pattern(text), known))
    return tuple(found)
