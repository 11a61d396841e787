"""Follows a container's log on a thread, through restarts of the daemon, without losing or repeating a line."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.errors import ContainerNotFound, DockerError, SparkError, StreamBroken, UnreachableError
from spark_tui.services.docker.daemon import Daemon
from spark_tui.services.docker.errors import Request, broken
from spark_tui.services.docker.frames import (
    DaemonReported,
    Damaged,
    FrameDecoder,
    Resume,
    TerminalDecoder,
    canonical_stamp,
    since_query,
)
from spark_tui.services.executors import Handover
from spark_tui.services.ports import LogLine

if TYPE_CHECKING:
    from spark_tui.services.docker.client import StreamClient

AWAY_SECONDS: Final = 60.0
"""How long the daemon may be away before the stream is given up; a restart takes a few seconds."""

Decoder = FrameDecoder | TerminalDecoder
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_LINE_OVERHEAD: Final = 200
"""Bytes that a line takes in memory beside its text, about."""

# The daemon writes every line to the socket by itself. Reading at once would wake this thread for each; a short
# pause lets lines gather. A unix socket holds some 200 such writes, so in a flood the pause has to shrink.
_LONGEST_PAUSE, _SHORTEST_PAUSE = 0.01, 0.0003
_NEARLY_FULL, _NEARLY_EMPTY = 16 * 1024, 8 * 1024


@dataclass(slots=True)
class _Pass:
    """What one connection brought: whether there was anything new, and the error that it ended with."""

    new: bool = False
    error: Exception | None = None


class LogReader:
    """Producer of one container's lines."""

    def __init__(
        self,
        daemon: Daemon,
        container: str,
        *,
        tail: int | None = None,
        follow: bool = True,
        since: str = "",
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self._daemon = daemon
        self._container = container
        self._tail = tail
        self._follow = follow
        self._away_seconds = away_seconds
        self._resume = Resume(canonical_stamp(since) if since else "", tail=tail is not None)
        self._cancelled = threading.Event()
        self._stream: StreamClient | None = None
        self._passes = 0
        self._request = Request(f"read the log of {container}", container=container)

    def cancel(self) -> None:
        """Ends `run` at once."""
        self._cancelled.set()
        stream = self._stream
        if stream is not None:
            stream.abort()

    def run(self, handover: Handover[LogLine]) -> None:
        """Reads until the container has ended, or without `follow` to the end of what is there now.

        Raises ContainerNotFound, DaemonNotRunning ... when it cannot begin, and StreamBroken when the daemon stays
        away for longer than a restart takes.
        """
        facts = self._daemon.inspect(self._container)
        fruitless, good = 0, time.monotonic()
        while not self._cancelled.is_set():
            decoder = TerminalDecoder() if facts.tty else FrameDecoder()
            outcome = self._read(facts, decoder, handover)
            alive = self._follow and facts.running
            now = self._after(facts, outcome)
            if now is None or (outcome.error is None and not alive):
                self._hand_over(decoder.finish(), 0, handover)
                return
            # Alive as this pass began, or cut off: there may be more. What it said last as it ended, what it says
            # since it was started again, what was written while the daemon was away.
            if outcome.new or outcome.error is None:
                good = time.monotonic()
            elif time.monotonic() - good > self._away_seconds:
                raise self._given_up(outcome.error)
            fruitless = 0 if outcome.new else fruitless + 1
            if now.running or outcome.error is not None:
                self._cancelled.wait(min(_FIRST_WAIT * 2 ** min(fruitless, 10), _LONGEST_WAIT))
            facts = now

    def _given_up(self, cause: BaseException) -> StreamBroken:
        found = cause if isinstance(cause, SparkError) else self._daemon.translated(cause, self._request)
        return broken(f"The log of {self._container}", self._away_seconds, found)

    # --- one connection -------------------------------------------------------------------------------

    def _read(self, facts: ContainerFacts, decoder: Decoder, handover: Handover[LogLine]) -> _Pass:
        """Hands over lines until the connection ends."""
        from spark_tui.services.docker.client import FAILURES

        outcome = _Pass()
        self._passes += 1
        self._resume.reconnect()
        try:
            stream = self._stream = self._daemon.stream()
        except UnreachableError as error:
            outcome.error = error
            return outcome
        try:
            if not self._cancelled.is_set():
                stream.open_log(facts.id, self._query(facts))
                self._pump(stream, decoder, handover, outcome)
        except DaemonReported as error:
            raise DockerError(
                f"Docker cannot read the log of {self._container}.",
                "Its log file is damaged. Recreate the container to start a new one.",
                detail=str(error),
            ) from error
        except (*FAILURES, Damaged) as error:
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if getattr(error, "explanation", None) is None:
                outcome.error = error
            elif self._passes == 1 or status not in (404, 409):  # else it is removed: its log has ended
                raise self._daemon.translated(error, self._request) from error
        finally:
            stream.close()
        return outcome

    def _pump(self, stream: StreamClient, decoder: Decoder, handover: Handover[LogLine], outcome: _Pass) -> None:
        pause = _LONGEST_PAUSE
        while data := stream.read():
            size = len(data)
            if self._hand_over(decoder.feed(data), size, handover):
                outcome.new = True
            if size >= _NEARLY_FULL:
                pause = max(pause / 2, _SHORTEST_PAUSE)
                continue
            time.sleep(pause)
            if size < _NEARLY_EMPTY:
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _hand_over(self, lines: list[LogLine], size: int, handover: Handover[LogLine]) -> bool:
        fresh = self._resume.fresh(lines)
        if fresh:
            handover.put(fresh, size + _LINE_OVERHEAD * len(fresh))
        return bool(fresh)

    def _query(self, facts: ContainerFacts) -> dict[str, str | int]:
        query: dict[str, str | int] = {"stdout": 1, "stderr": 1, "timestamps": 1}
        if self._follow and facts.running:
            query["follow"] = 1
        if self._resume.since:
            query["since"] = since_query(self._resume.since)
        if self._tail is not None and not self._resume.begun:
            query["tail"] = self._tail
        return query

    # --- between connections --------------------------------------------------------------------------

    def _after(self, facts: ContainerFacts, outcome: _Pass) -> ContainerFacts | None:
        """The container as it is now, once the daemon is there; None when it is gone. Raises StreamBroken.

        By its id: another one may have been made under its name.
        """
        deadline = time.monotonic() + self._away_seconds
        wait = _FIRST_WAIT
        while not self._cancelled.is_set():
            try:
                return self._daemon.inspect(facts.id)
            except ContainerNotFound:
                return None
            except UnreachableError as error:
                outcome.error = outcome.error or error
                if time.monotonic() > deadline:
                    raise self._given_up(error) from error
            self._cancelled.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        return None
