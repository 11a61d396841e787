"""Pollers that cannot overrun: no overlap, a timeout, backoff after failures, and a failure is an event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from spark_tui.base.errors import SparkError

if TYPE_CHECKING:
    from spark_tui.base.ports import Clock


T = TypeVar("T")

MAX_BACKOFF_SECONDS = 60.0


async def pause(clock: Clock, seconds: float, wake: asyncio.Event) -> None:
    """Returns after `seconds` by the clock, or as soon as `wake` is set."""
    sleep = asyncio.ensure_future(clock.sleep(seconds))
    waiting = asyncio.ensure_future(wake.wait())
    try:
        await asyncio.wait((sleep, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleep.cancel()
        waiting.cancel()


def failure_of(name: str, error: Exception) -> SparkError:
    """Why `name` failed, by the first error of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, SparkError):
        return error
    why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return SparkError(f"{name}: {why}.", "It is tried again.", detail=repr(error))


async def keep(name: str, work: Callable[[], Awaitable[T]], clock: Clock, failed: Callable[[SparkError], object]) -> T:
    """Does the work to its end, and again whenever it fails: after a second, then after twice as long, up to a minute.

    No failure gets out, so that one part of the program never ends another. `failed` gets each one, but for one that
    repeats itself.
    """
    seconds, told = 1.0, ""
    while True:
        began = clock.monotonic()
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - see above
            failure = failure_of(name, error)
        if clock.monotonic() - began > MAX_BACKOFF_SECONDS:
            seconds, told = 1.0, ""
        if told != str(failure):
            failed(failure)
        told = str(failure)
        await clock.sleep(seconds)
        seconds = min(2 * seconds, MAX_BACKOFF_SECONDS)


class Poller(Generic[T]):
    """Calls `probe` every `interval` seconds, never twice at once.

    A value goes to `on_value`. Whatever fails, or a probe that takes longer than `timeout`, goes to `on_error` as a
    SparkError, and the pause doubles up to a minute until the probe succeeds again. `wake()` cuts a pause
    short.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], Awaitable[T]],
        on_value: Callable[[T], object],
        on_error: Callable[[SparkError], object],
        *,
        clock: Clock,
        interval: float,
        timeout: float = 10.0,
    ) -> None:
        self.name = name
        self._probe = probe
        self._on_value = on_value
        self._on_error = on_error
        self._clock = clock
        self._interval = interval
        self._timeout = timeout
        self._failures = 0
        self._wake = asyncio.Event()

    @property
    def interval(self) -> float:
        """Seconds until the next call: the interval, doubled for every failure in a row."""
        return min(self._interval * float(2**self._failures), max(MAX_BACKOFF_SECONDS, self._interval))

    def pace(self, interval: float) -> None:
        """From the next pause on, `interval` seconds. A pause that has begun is not cut short."""
        self._interval = interval

    def wake(self) -> None:
        """Poll now rather than at the end of the pause."""
        self._wake.set()

    async def poll(self) -> None:
        """One call, its outcome handed on."""
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the answer.
            async with asyncio.timeout(self._timeout):
                value = await self._probe()
            self._on_value(value)
        except TimeoutError:
            self._fail(SparkError(f"{self.name} did not answer within {self._timeout:g} s.", "It is asked again."))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other pollers go on
            self._fail(failure_of(self.name, error))
        else:
            self._failures = 0

    def _fail(self, error: SparkError) -> None:
        self._failures = min(self._failures + 1, 16)
        self._on_error(error)

    async def run(self, after: float = 0.0) -> None:
        """Polls until cancelled, first after `after` seconds."""
        if after:
            await self._clock.sleep(after)
        while True:
            self._wake.clear()
            await self.poll()
            await pause(self._clock, self.interval, self._wake)
