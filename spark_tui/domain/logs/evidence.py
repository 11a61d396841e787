"""Keeps the lines that prove something, cleaned, masked and cut: a few for each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_tui.domain.logs.timeline import LogEvidence, Topic
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

MAX_TEXT: Final = 400
MAX_PER_TOPIC: Final = 8


def shown(message: str) -> str:
    """A message as it may be shown."""
    return truncate(mask_secrets(clean_line(message[: MAX_TEXT * 2])).strip(), MAX_TEXT)


def keep(boot: BootTracker, topic: Topic, message: str) -> None:
    """Keeps the line that a rule looks at as evidence: not twice the same, and not without end."""
    known = boot.facts.proof(topic)
    text = shown(message)
    if len(known) < MAX_PER_TOPIC and all(kept.text != text for kept in known):
        boot.learn(evidence=(*boot.facts.evidence, LogEvidence(topic, text, boot.line)))
