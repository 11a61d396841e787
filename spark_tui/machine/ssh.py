"""Other machines through the user's own ssh program: its keys, its agent, its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from spark_tui.base.errors import SparkError, UnreachableError
from spark_tui.base.executors import MOST_OUTPUT, NotStarted, OutputTooLong, run_child
from spark_tui.base.ports import ShellResult
from spark_tui.base.remote import DEFAULT_COMMAND, RemoteHost, too_long, too_slow

ASK_SECONDS: Final = 5.0
# A forward of the user's configuration may be taken by a session that is open: asking needs none.
_QUIET: Final = (
    "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ClearAllForwardings=yes",
    "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
)  # fmt: skip
_PERSIST_SECONDS: Final = 60
_LONGEST_FOLDER: Final = 107 - len("/") - 40 - 17
"""A socket's path has at most 107 bytes; its name is a hash, and while ssh makes it a suffix."""


class SshHosts:
    """The RemoteShell port. `seconds` is how long one question may take."""

    def __init__(self, environ: Mapping[str, str], seconds: float = ASK_SECONDS) -> None:
        self._environ = dict(environ)
        self._seconds = seconds

    async def ask(
        self,
        host: RemoteHost,
        arguments: Sequence[str],
        *,
        given: str | bytes = "",
        seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:
        """In a session of its own, so that nothing can ask on the terminal."""
        limit = self._seconds if seconds is None else seconds
        data = given if isinstance(given, bytes) else given.encode()
        words = self._words(host, arguments)
        try:
            return await run_child(words, self._environ, seconds=limit, given=data, on_line=on_line)
        except TimeoutError:
            raise too_slow(host, limit) from None
        except OutputTooLong:
            raise too_long(host, MOST_OUTPUT) from None
        except NotStarted as error:
            raise _no_ssh(str(error)) from error

    def _words(self, host: RemoteHost, arguments: Sequence[str]) -> tuple[str, ...]:
        """This machine is worked without ssh; others over one connection each, which stays open for a while."""
        if host.here:
            own = (sys.executable, "-m", "spark_tui") if host.command == DEFAULT_COMMAND else shlex.split(host.command)
            return (*own, *arguments)
        return host.ssh(arguments, *_QUIET, *_shared(self._environ))

    async def on_terminal(self, host: RemoteHost, arguments: Sequence[str]) -> int:
        """A Ctrl-C is for ssh alone."""
        with _interrupts_ignored():
            try:
                child = await asyncio.create_subprocess_exec(*host.ssh(arguments, "-t"), env=self._environ)
            except OSError as error:
                raise _no_ssh(error.strerror or str(error)) from error
            try:
                code = await child.wait()
            finally:
                if child.returncode is None:
                    child.terminate()
        return code if code >= 0 else 128 - code

    def become(self, host: RemoteHost, arguments: Sequence[str], *, terminal: bool) -> NoReturn:
        words = host.ssh(arguments, *(("-t",) if terminal else ()))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and ssh would inherit that
        try:
            os.execvpe(words[0], words, self._environ)  # noqa: S606 - no shell is wanted
        except OSError as error:
            raise _no_ssh(error.strerror or str(error)) from error


def _shared(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options for one connection per host, where there is a private folder for its socket (a path of at most 107
    bytes)."""
    folder = Path(environ.get("XDG_RUNTIME_DIR") or "", "spark-tui-ssh")
    if not folder.is_absolute() or len(str(folder)) > _LONGEST_FOLDER:
        return ()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return ()
    return ("-o", "ControlMaster=auto", "-o", f"ControlPath={folder}/%C", "-o", f"ControlPersist={_PERSIST_SECONDS}")


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A handler that does nothing, rather than SIG_IGN, which the child would inherit."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _no_ssh(why: str) -> SparkError:
    return UnreachableError(f"ssh cannot be started: {why}.", "Install it: sudo apt install openssh-client")
