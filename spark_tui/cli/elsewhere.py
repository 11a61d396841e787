"""`--host NAME`: the same command line on another box."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from spark_tui.domain.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from spark_tui.cli.session import Session

HOST: Final = "--host"
BEFORE_COMMAND: Final = f"It stands before the command: spark-tui {HOST} NAME ps"


def host_asked(arguments: Sequence[str], with_value: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
    """The host, and the arguments for it; None where `--host` does not stand before the command.

    `with_value` are the options there that take a value. Raises UsageError when it was given twice, RefusedError for a
    demo.
    """
    rest: list[str] = []
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            rest.append(word)
            break
        taken = None if equals or name not in with_value else next(words, None)
        if name != HOST or (not equals and taken is None):  # without a value it is for click to say so
            rest += [word] if taken is None else [word, taken]
        else:
            found.append(value if equals else taken or "")
    rest += words
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(f"{HOST} was given twice.", "Name one host: one box after the other.")
    if "--demo" in rest:
        raise RefusedError("A demo is simulated here, and leads to no other box.", f"Leave out --demo, or {HOST}.")
    return found[0], tuple(rest)


def go_there(session: Session, name: str, arguments: tuple[str, ...]) -> None:
    """This process becomes the command on that host; its exit code is ours. Raises UsageError for a host that is not
    known, UnreachableError without ssh."""
    session.err.as_json = "--json" in arguments
    typed = session.stdin is not None and session.stdin.isatty()
    context = session.opened()  # for the settings and ssh: nothing else of it is made
    context.hosts.become(name, arguments, terminal=typed and session.out.terminal.interactive)
