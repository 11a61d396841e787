"""The GPU by way of a helper process: a hanging driver never blocks the control centre."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from typing import IO, Any, Final

from msgspec import ValidationError, convert
from msgspec.structs import replace

from spark_tui.base import executors
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host.vitals import GpuReading, Throttle, Throttled, throttled_between, throttled_now
from spark_tui.base.ports import Clock
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json

CALL_SECONDS: Final = 0.8
"""A call waits this long, and with the end of a hanging helper never longer than a second."""
FIRST_ANSWER_SECONDS: Final = 15.0
"""Starting an interpreter on a busy machine and waking a sleeping driver may take longer than one call."""
BACKOFF_SECONDS: Final = (2.0, 60.0)
"""After a driver that did not answer: this pause, doubled up to that one."""
RETRY_SECONDS: Final = 300.0
"""Where there is no GPU, one may appear (a driver is installed): asked seldom."""
KILL_SECONDS: Final = 0.2
ENDED_SECONDS: Final = 0.01
"""Between two looks whether it has ended."""
_MOST_BYTES: Final = 1 << 20


class NvmlGpu:
    """The GpuProbe port. `environment` adds to the helper's environment."""

    def __init__(self, clock: Clock, *, environment: Mapping[str, str] | None = None) -> None:
        self._clock = clock
        self._environment = environment or {}
        self._helper: _Helper | None = None
        self._failures = 0
        self._not_before = 0.0
        self._why = Missing("not read yet")
        self._counted: tuple[float, Mapping[Throttle, int]] = (0.0, {})

    @property
    def helper_pid(self) -> int | None:
        """The helper's process id while there is one."""
        return None if self._helper is None else self._helper.pid

    def start(self) -> None:
        """Starts the helper, which reads the GPU at once: the first `read` has its answer. Needs no event loop."""
        with contextlib.suppress(OSError):  # the first reading tries again, and says why
            self._helper = self._helper or _Helper(self._environment, self._clock)

    async def read(self) -> Reading[GpuReading]:
        """Never raises and never blocks for longer than a second."""
        if self._helper is None and self._clock.monotonic() < self._not_before:
            return self._why
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._ask()
        except TimeoutError:
            return await self._late()
        except OSError as error:
            return await self._give_up(f"the GPU helper cannot start: {error.strerror or error}", self._backoff())

    async def close(self) -> None:
        """Ends the helper process, if any."""
        helper, self._helper = self._helper, None
        if helper is not None:
            await helper.end()

    # --- one call -------------------------------------------------------------------------------------

    async def _ask(self) -> Reading[GpuReading]:
        if self._helper is None:
            self._helper = _Helper(self._environment, self._clock)
        answer = await self._helper.ask()
        if answer is None:
            return await self._give_up(await self._helper.last_words(), self._backoff())
        if isinstance(answer.get("missing"), str):
            return await self._give_up(clean_line(answer["missing"]), RETRY_SECONDS)
        reading = reading_of(answer.get("gpu"))
        if reading is None:
            return await self._give_up("the GPU helper gave no sensible answer", self._backoff())
        self._failures = 0
        return Ok(replace(reading, throttled=self._throttled(answer["gpu"])), self._clock.now())

    def _throttled(self, given: Mapping[str, Any]) -> tuple[Throttled, ...] | None:
        """By the counters since the last answer; by the momentary bits where there are no counters."""
        counters, now = convert(given["throttle_ns"] or {}, dict[Throttle, int]), self._clock.monotonic()
        before, self._counted = self._counted, (now, counters)
        if counters:
            return throttled_between(before[1], counters, now - before[0]) if before[1] else None
        bits = given["throttle_bits"]
        return None if bits is None else throttled_now(bits)

    async def _late(self) -> Missing:
        """Nothing within the time of a call. A helper that has not answered yet gets some more; another is ended."""
        helper = self._helper
        waited = 0.0 if helper is None else self._clock.monotonic() - helper.asked_at
        if helper is not None and not helper.has_answered and waited < FIRST_ANSWER_SECONDS:
            what = "driver does not answer yet" if helper.is_up else "the GPU helper is starting"
            return Missing(f"{what} ({waited:.0f} s)")
        return await self._give_up(
            f"driver does not answer (waited {max(waited, CALL_SECONDS):.0f} s)", self._backoff()
        )

    def _backoff(self) -> float:
        first, most = BACKOFF_SECONDS
        return min(first * 2.0 ** min(self._failures, 10), most)

    async def _give_up(self, reason: str, pause: float) -> Missing:
        """Ends the helper; the next one starts after the pause."""
        self._failures += 1
        self._not_before = self._clock.monotonic() + pause
        self._why = Missing(reason)
        self._counted = (0.0, {})
        await self.close()
        return self._why


class _Helper:
    """One helper process and the request that it works on. It starts without an event loop, and is read on one. Raises
    OSError where it cannot start."""

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._process = subprocess.Popen(
            executors.command("spark_tui.machine.nvml_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": executors.python_path(), **environment},
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )
        self._clock = clock
        self._lines: asyncio.StreamReader | None = None
        self._transports: list[asyncio.ReadTransport] = []
        self._answer: asyncio.Task[dict[str, Any] | None] | None = None
        self.asked_at = clock.monotonic()
        self.is_up = False
        """It runs, and has nothing left between it and the driver."""
        self.has_answered = False
        self._put()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self) -> dict[str, Any] | None:
        """The answer to one request; None when the helper has ended. The first request was put at its start. Cancelled,
        the request stays and is waited for by the next call."""
        if self._answer is None:
            if self._lines is not None:
                self.asked_at = self._clock.monotonic()
                self._put()
            self._answer = asyncio.create_task(self._read_answer())
        answer = await asyncio.shield(self._answer)
        self._answer = None
        self.has_answered = self.has_answered or answer is not None
        return answer

    def _put(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended: its answer, or none, says why
                os.write(self._process.stdin.fileno(), b"\n")

    async def _read_answer(self) -> dict[str, Any] | None:
        if self._lines is None:
            self._lines = await self._reader(self._process.stdout)
        message = await self._line(self._lines)
        if message is not None and "hello" in message:
            self.is_up = True
            message = await self._line(self._lines)
        return message

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=_MOST_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        self._transports.append(transport)
        return reader

    @staticmethod
    async def _line(lines: asyncio.StreamReader) -> dict[str, Any] | None:
        try:
            line = await lines.readline()
            message = load_json(line) if line else None
        except ValueError:  # too long, or no JSON: not our helper's words
            return {}
        return message if isinstance(message, dict) else None if message is None else {}

    async def last_words(self) -> str:
        """Why it ended, from the last line that it wrote to its standard error."""
        words = await (await self._reader(self._process.stderr)).read(_MOST_BYTES)
        code = await self._ended()
        last = clean_line((words.decode("utf-8", "replace").strip().splitlines() or [""])[-1])
        return f"the GPU helper ended (exit code {code}){': ' if last else ''}{last}"

    async def end(self) -> None:
        """Kills it. One that hangs inside the driver cannot be waited for: it is left to the kernel."""
        if self._answer is not None:
            await executors.end_tasks(self._answer)
            self._answer = None
        for transport in self._transports:
            transport.close()
        self._process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                await self._ended()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    async def _ended(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - a process is no Event
            await asyncio.sleep(ENDED_SECONDS)
        return code


def reading_of(given: object) -> GpuReading | None:
    """The helper's JSON as a value; None for anything else."""
    try:
        found = convert(given, GpuReading)
    except ValidationError:
        return None
    return replace(found, name=clean_line(found.name), driver=clean_line(found.driver))
