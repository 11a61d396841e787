"""What was typed at the chat's prompt, kept in a private file, and the names of commands behind the tab key."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_tui.cli.session import Session
from spark_tui.domain.settings import folders_of

MOST_LINES = 2000


@contextlib.contextmanager
def prompt_history(session: Session, words: Sequence[str]) -> Iterator[None]:
    """History and completion for as long as a conversation lasts. Not in the demo, and not where nobody types: readline
    edits the process's own input and no other."""
    stdin = session.stdin
    if session.options.demo or stdin is None or stdin is not sys.stdin or not stdin.isatty():
        yield
        return
    import readline

    home = Path(session.environment.get("HOME") or Path.home())
    path = folders_of(session.environment, home).chat_history
    with contextlib.suppress(OSError):  # none yet, or not ours to read: one begins without
        readline.read_history_file(path)
    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(lambda text, state: _completion(words, text, state))
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.set_history_length(MOST_LINES)
        _write(session, path)


def _write(session: Session, path: Path) -> None:
    import readline

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        readline.write_history_file(path)
    except OSError as error:
        session.err.note(f"The history of what you typed is not kept: {path}: {error.strerror or error}.")


def _completion(words: Sequence[str], text: str, state: int) -> str | None:
    found = [word for word in words if text.startswith("/") and word.startswith(text)]
    return f"{found[state]} " if state < len(found) else None


@contextlib.contextmanager
def prefilled(text: str) -> Iterator[None]:
    """The next prompt begins with `text`, to be edited."""
    import readline

    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        yield
    finally:
        readline.set_startup_hook(None)
