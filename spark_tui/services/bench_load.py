"""The closed loop: streams that each send their next request when the last one has ended.

Time is only as good as the scheduler is prompt: on a machine whose cores are all taken, pieces wait in the kernel until
this process is let run, and a whole answer can seem to arrive at once. So the loop measures its own lateness beside the
load, and asks for real-time priority while it lasts, where this user may have it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from spark_tui.domain.bench.stream import COMPLETIONS_PATH, Exchange
from spark_tui.services.bench_wire import Wire
from spark_tui.services.ports_bench import Load, Shot, Tick

CONNECT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 1.0
_PULSE_SECONDS: Final = 0.02
_PRIORITY: Final = 1
"""The lowest of the real-time ones: above everything ordinary, below what the kernel needs."""


class ClosedLoop:
    """One load on its way. `tick` can be asked at any time."""

    def __init__(self, base_url: str, authorization: str, load: Load) -> None:
        parts = urlsplit(base_url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/") + COMPLETIONS_PATH
        self._authorization = authorization
        self._load = load
        self._requests = [(shot, self._request(shot)) for shot in load.shots]
        self._wires: list[Wire | None] = [None] * load.streams
        self._exchanges: list[Exchange] = []
        self._next = 0
        self._stopping = False
        self._running = 0
        self.lateness: list[float] = []
        """By how many seconds each beat of a steady pulse came late."""

    def tick(self) -> Tick:
        """How far it is."""
        under_way = sum(len(wire.pieces) for wire in self._wires if wire is not None)
        ended = sum(len(exchange.pieces) for exchange in self._exchanges)
        return Tick(len(self._exchanges), self._running, under_way + ended)

    def stop(self) -> None:
        """No further request; those under way are cut off."""
        self._stopping = True
        for wire in self._wires:
            if wire is not None:
                wire.close()

    async def run(self) -> list[Exchange]:
        """All exchanges in the order of their numbers. Never raises for what a server does."""
        with _without_collector(), _prompt_scheduling():
            beside = [asyncio.create_task(self._watch_silence()), asyncio.create_task(self._pulse())]
            try:
                await asyncio.gather(*(self._stream(index) for index in range(self._load.streams)))
            finally:
                for task in beside:
                    task.cancel()
                for wire in self._wires:
                    if wire is not None:
                        wire.close()
        return sorted(self._exchanges, key=lambda exchange: exchange.number)

    # --- one stream -----------------------------------------------------------------------------------

    async def _stream(self, index: int) -> None:
        while self._next < len(self._requests) and not self._stopping:
            shot, request = self._requests[self._next]
            self._next += 1
            self._running += 1
            try:
                self._exchanges.append(await self._exchange(index, shot, request))
            finally:
                self._running -= 1
                wire = self._wires[index]
                if wire is not None:
                    wire.pieces = []

    async def _exchange(self, index: int, shot: Shot, request: bytes) -> Exchange:
        """One request and its answer. The connection is open before the clock starts."""
        wire = self._wires[index]
        begun = time.monotonic()
        if wire is None or not wire.usable or not wire.framing.keep or wire.framing.left_over:
            if wire is not None:
                wire.close()
            try:
                wire = self._wires[index] = await self._connect()
            except (OSError, TimeoutError) as error:
                return self._told(index, shot, begun, None, _connect_words(error))
        sent, answer = wire.send(request)
        await answer
        return self._told(index, shot, sent, wire, "" if self._stopping else wire.broken)

    def _told(self, index: int, shot: Shot, sent: float, wire: Wire | None, broken: str) -> Exchange:
        whole = wire is not None and wire.framing.ended
        return Exchange(
            number=shot.number,
            stream=index,
            sent=sent,
            ended=time.monotonic(),
            asked_input=shot.input_tokens,
            asked_output=shot.output_tokens,
            status=wire.framing.status if wire is not None else 0,
            pieces=tuple(wire.pieces) if wire is not None else (),
            broken=broken,
            cancelled=self._stopping and not whole,
        )

    async def _connect(self) -> Wire:
        context = None
        if self._secure:
            import ssl

            context = ssl.create_default_context()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, wire = await loop.create_connection(Wire, self._host, self._port, ssl=context)
        return wire

    async def _watch_silence(self) -> None:
        """Cuts a stream off from which nothing has come for too long."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            for wire in self._wires:
                if wire is not None and wire.usable and now - wire.received > self._load.silence_seconds:
                    wire.broken = f"nothing came for {self._load.silence_seconds:.0f} s"
                    wire.close()

    async def _pulse(self) -> None:
        """How late this process comes when it wants to run now."""
        while True:
            due = time.monotonic() + _PULSE_SECONDS
            await asyncio.sleep(_PULSE_SECONDS)
            self.lateness.append(time.monotonic() - due)

    # --- the request ----------------------------------------------------------------------------------

    def _request(self, shot: Shot) -> bytes:
        body: dict[str, object] = {
            "model": self._load.model,
            "prompt": shot.prompt if isinstance(shot.prompt, str) else list(shot.prompt),
            "max_tokens": shot.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._load.temperature is not None:
            body["temperature"] = self._load.temperature
        content = json.dumps(body, separators=(",", ":")).encode()
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {host}:{self._port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            f"Content-Length: {len(content)}",
        ]
        if self._authorization:
            head.append(f"Authorization: {self._authorization}")
        return "\r\n".join((*head, "", "")).encode("latin-1") + content


def _connect_words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    return f"cannot connect: {getattr(error, 'strerror', None) or type(error).__name__}"


@contextmanager
def _without_collector() -> Iterator[None]:
    """Python's garbage collector stops everything for as long as it takes: not while time is measured."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _prompt_scheduling() -> Iterator[None]:
    """Real-time priority for as long as time is taken. Root and CAP_SYS_NICE may; for all others nothing changes."""
    try:
        before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameters)
