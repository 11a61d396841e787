"""Yes or no, or a name typed in full, from a person at the keyboard."""

from __future__ import annotations

from spark_tui.cli.session import Session
from spark_tui.domain.errors import RefusedError


def confirm(session: Session, question: str, *, yes: bool) -> bool:
    """The person's answer; no is the default. `yes` answers for them. Raises RefusedError where nobody can answer."""
    if yes:
        return True
    if session.as_json or session.stdin is None or not session.stdin.isatty():
        raise RefusedError(f"Nobody is there to answer: {question}", "Say so with --yes.")
    session.err.stream(f"{question} [y/N] ")
    return session.stdin.readline().strip().lower() in ("y", "yes")


def typed(session: Session, question: str, wanted: str) -> bool:
    """Whether the person types exactly that; false where nobody can answer."""
    if session.as_json or session.stdin is None or not session.stdin.isatty():
        return False
    session.err.stream(question)
    return session.stdin.readline().strip() == wanted
