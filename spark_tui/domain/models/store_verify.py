"""What comes of comparing files with what the Hub says of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.models.store import Algorithm, Layout, StoredModel
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.domain.settings import Settings, Source


class Verdict(StrEnum):
    """Of one file. Words for the screen, after its name."""

    MATCHES = "matches"
    DIFFERS = "differs from what the Hub has"
    SIZE = "has another size"
    ABSENT = "is not here"
    UNREADABLE = "cannot be read"
    CHANGED = "changed while it was read"
    UNTOLD = "cannot be compared: nothing here tells its digest"
    DAMAGED = "is damaged"

    @property
    def wrong(self) -> bool:
        """It is to be fetched again."""
        return self in (Verdict.DIFFERS, Verdict.SIZE, Verdict.ABSENT, Verdict.DAMAGED)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file compared. `size` in bytes; `detail` is the evidence: digests, sizes, the system's words."""

    name: str
    verdict: Verdict
    size: int = 0
    algorithm: Algorithm = Algorithm.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """A verification so far: bytes hashed of all that are to be hashed, and the files that are done, in the order in
    which they ended. `name` is a file that is being read. `over` with the last one."""

    model: str
    revision: str
    done: int
    total: int
    name: str = ""
    checks: tuple[FileCheck, ...] = ()
    seconds: float = 0.0
    over: bool = False

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return 1.0 if self.over else self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float | None:
        """Bytes per second so far; None before there is a figure."""
        return self.done / self.seconds if self.seconds > 0.05 and self.done else None

    @property
    def left_seconds(self) -> float | None:
        """Time to go at that rate; None before there is a figure."""
        return (self.total - self.done) / self.rate if self.rate else None

    @property
    def wrong(self) -> tuple[FileCheck, ...]:
        """Files to fetch again."""
        return tuple(check for check in self.checks if check.verdict.wrong)

    @property
    def unsure(self) -> tuple[FileCheck, ...]:
        """Files of which nothing can be said: not readable, changed meanwhile, or without a digest to compare."""
        return tuple(check for check in self.checks if not check.verdict.wrong and check.verdict is not Verdict.MATCHES)

    @property
    def matching(self) -> int:
        """How many files are as the Hub has them."""
        return sum(check.verdict is Verdict.MATCHES for check in self.checks)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        many = len(self.checks)
        took = f" ({human_bytes(self.done)} in {human_duration(self.seconds)})" if self.done else ""
        if self.wrong:
            return f"{len(self.wrong)} of {many} files are not as the Hub has them{took}."
        if not many:
            return "There is nothing to compare."
        if all(check.verdict is Verdict.UNTOLD for check in self.checks):
            return f"Nothing here tells what the Hub has: of {many} files only the form was looked at, and it is sound."
        if self.unsure:
            return f"{self.matching} of {many} files match; of {len(self.unsure)} nothing can be said{took}."
        return f"All {many} files are as the Hub has them{took}."


def fetch_again(model: StoredModel, names: Sequence[str], settings: Settings, *, revision: str = "") -> str:
    """The command that fetches these files again; `revision` empty is the current one. It names the store where that
    was typed as an option.

    Empty where it is not known which repository they are from.
    """
    if not names or model.layout is not Layout.CACHE:
        return ""
    store = ("--store", str(settings.store)) if settings.origin("store").source is Source.OPTION else ()
    files = (word for name in names for word in ("--file", name))
    commit = revision or model.commit
    pinned = ("--revision", commit) if commit else ()
    return shlex.join(("spark-tui", *store, "models", "pull", model.id, *pinned, *files, "--again"))
