"""All rules in the order in which they are tried, and the search for the first one that knows a line."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.logs.causes.cause import CauseId, Rule, fix, rule, says
from spark_tui.domain.logs.causes.host import HOST_RULES
from spark_tui.domain.logs.causes.memory import MEMORY_RULES
from spark_tui.domain.logs.causes.model import MODEL_RULES
from spark_tui.domain.logs.causes.settings import GENERAL_RULES, SETTINGS_RULES

# Recognised although no stable id was given to them: their sentences are sure, their id is `unknown`.
_UNNAMED_RULES: Final[tuple[Rule, ...]] = (
    rule(
        CauseId.UNKNOWN,
        r"No space left on device(?:: '([^']{1,200})')?",
        lambda match, _context: fix(
            f"The disk is full{f' ({match[1]})' if match[1] else ''}.",
            "Give the container more shared memory (`--ipc=host`, or a larger shm_size)."
            if "/shm" in (match[1] or "")
            else "Free disk space: `spark-tui models` shows the model store, `docker system df` what Docker uses.",
        ),
    ),
    rule(
        CauseId.UNKNOWN,
        r"PermissionError: .{0,60}Permission denied(?:: '([^']{1,300})')?",
        says(
            "The container's user has no access to {0}.",
            "Files downloaded by an earlier container may belong to root: `sudo chown -R $USER` the host folder.",
        ),
    ),
)
RULES: Final[tuple[Rule, ...]] = (
    *SETTINGS_RULES,
    *MODEL_RULES,
    *_UNNAMED_RULES,
    *MEMORY_RULES,
    *HOST_RULES,
    *GENERAL_RULES,
)


def recognise(line: str) -> tuple[Rule, re.Match[str]] | None:
    """The first rule that knows the line, with its match."""
    for known in RULES:
        match = known.pattern.search(line)
        if match:
            return known, match
    return None
