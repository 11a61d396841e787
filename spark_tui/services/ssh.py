"""Other machines through the user's own ssh program: its keys, its agent, its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NoReturn

from spark_tui.domain.errors import SparkError, UnreachableError
from spark_tui.domain.remote import RemoteHost, too_slow
from spark_tui.services.ports import ShellResult

ASK_SECONDS: Final = 5.0
_END_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024
# A forward of the user's configuration may be taken by a session that is open: asking needs none.
_QUIET: Final = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ClearAllForwardings=yes")


class SshHosts:
    """The RemoteShell port. `seconds` is how long one question may take."""

    def __init__(self, environ: Mapping[str, str], seconds: float = ASK_SECONDS) -> None:
        self._environ = dict(environ)
        self._seconds = seconds

    async def ask(self, host: RemoteHost, arguments: Sequence[str]) -> ShellResult:
        """In a session of its own, so that nothing can ask on the terminal."""
        try:
            child = await asyncio.create_subprocess_exec(
                *host.ssh(arguments, *_QUIET),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            raise _no_ssh(error) from error
        try:
            async with asyncio.timeout(self._seconds):
                out, err, code = await asyncio.gather(_beginning(child.stdout), _beginning(child.stderr), child.wait())
        except TimeoutError:
            raise too_slow(host, self._seconds) from None
        finally:
            await _end(child)
        return ShellResult(code, out, err)

    async def on_terminal(self, host: RemoteHost, arguments: Sequence[str]) -> int:
        """A Ctrl-C is for ssh alone."""
        with _interrupts_ignored():
            try:
                child = await asyncio.create_subprocess_exec(*host.ssh(arguments, "-t"), env=self._environ)
            except OSError as error:
                raise _no_ssh(error) from error
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
            raise _no_ssh(error) from error


async def _beginning(stream: asyncio.StreamReader | None) -> str:
    """The text up to a limit; the rest is read and dropped."""
    kept = bytearray()
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept += chunk[: _MOST_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ends the whole session: ssh may have children, which connect to further hosts."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await child.wait()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A handler that does nothing, rather than SIG_IGN, which the child would inherit."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _no_ssh(error: OSError) -> SparkError:
    return UnreachableError(
        f"ssh cannot be started: {error.strerror or error}.",
        "Install it: sudo apt install openssh-client",
    )
