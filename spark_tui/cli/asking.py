"""Yes or no, from a person at the keyboard."""

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
