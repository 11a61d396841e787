"""What a failed connection to an engine means. An httpx error is never quoted whole: it may hold a header."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from spark_tui.domain.errors import EngineFailed, EngineUnreachable, ReplyCutOff, SparkError
from spark_tui.domain.quantities import human_duration

CONNECT_SECONDS: Final = 5.0


def unreachable(where: str, error: Exception, seconds: float) -> EngineUnreachable:
    """Before any answer of the engine at `where`; `seconds` is how long one was waited for."""
    import httpx

    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return EngineUnreachable(f"{where} is no address of an engine.", "Write it as http://127.0.0.1:8000.")
    if isinstance(error, httpx.ConnectTimeout):
        return EngineUnreachable(
            f"{where} did not accept a connection within {human_duration(CONNECT_SECONDS)}.",
            "Is the machine up, and does its firewall let you in?",
        )
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return EngineUnreachable(
            f"The engine at {where} accepts connections, and has not answered for {human_duration(seconds)}.",
            "It may hang: look at its log, and restart it.",
        )
    if isinstance(error, httpx.ConnectError) and not refused(error):
        return EngineUnreachable(f"Cannot connect to {where}.", "Check the address.", detail=str(error))
    if isinstance(error, httpx.ConnectError) or closed_at_once(error):
        return EngineUnreachable(
            f"Nothing answers at {where}.",
            "Is the engine running and ready? spark-tui ps shows it; a model can take minutes to load.",
            detail=type(error).__name__,
        )
    return EngineUnreachable(
        f"What answers at {where} does not speak HTTP as an engine does.",
        "Check the address and the port.",
        detail=type(error).__name__,
    )


def broke_off(error: Exception, seconds: float) -> SparkError:
    """In the middle of an answer; `seconds` is how long the next piece was waited for."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return EngineUnreachable(
            f"The engine fell silent in the middle of the answer: nothing came for {human_duration(seconds)}.",
            "What had come is kept. It may hang: look at its log, and restart it.",
        )
    return ReplyCutOff(
        "The connection to the engine broke in the middle of the answer.",
        "What had come is kept. Look at the engine's log, then ask again.",
        detail=type(error).__name__,
    )


def not_an_engine(where: str, what: str) -> EngineFailed:
    """Something answers, and it is not an engine."""
    return EngineFailed(
        f"{where} does not answer as an engine does: {what}.",
        "Check the address and the port: another program may listen there.",
    )


def closed_at_once(error: Exception) -> bool:
    """The connection was accepted and closed before a byte of an answer."""
    import httpx

    if isinstance(error, httpx.RemoteProtocolError):
        return str(error).startswith("Server disconnected")
    return isinstance(error, httpx.ReadError | httpx.WriteError)


def refused(error: BaseException) -> bool:
    """Nothing listens."""
    return any(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all behind it: a name with two addresses fails with a group."""
    seen, left = set[int](), [error]
    while left:
        cause = left.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        left += [behind for behind in (cause.__cause__, cause.__context__) if behind is not None]
        if isinstance(cause, BaseExceptionGroup):
            left += cause.exceptions
