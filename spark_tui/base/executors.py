"""Threads for blocking work: a bounded pool for calls, and a bounded hand-over for streams; the ends
of tasks and of child processes. Pollers that cannot overrun: no overlap, a timeout, backoff after failures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar

import spark_tui
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import ShellResult

if TYPE_CHECKING:
    from spark_tui.base.ports import Clock

MOST_OUTPUT: Final = 4 * 1024 * 1024
"""Bytes of each output of a child process, or of one line of it."""
_CHUNK: Final = 64 * 1024
_END_SECONDS: Final = 1.0
_KILLED_SECONDS: Final = 10.0

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class CallPool:
    """Runs blocking calls on at most `workers` threads, which are made when first needed."""

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._limit = workers
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._hung: dict[Callable[..., object], Future[Any]] = {}  # still running, no longer awaited

    async def run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The call's result; it sees the caller's context variables. Cancelling drops a call that has not begun, and
        abandons the result of one that has. An abandoned call gets a thread more, so that others do not wait for it,
        and is not begun again before it has returned."""
        if (hung := self._hung.get(call)) is not None:
            await asyncio.wait((asyncio.wrap_future(hung),))
        future: Future[R] = Future()
        context = copy_context()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = context.run(call, *args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._closed:
                raise RuntimeError(f"the pool {self._name} is closed")
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1
            elif self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        try:
            return await asyncio.wrap_future(future)
        finally:
            if future.running():
                with self._lock:
                    self._limit += 1
                self._hung[call] = future
                future.add_done_callback(lambda _: self._returned(call))

    def _returned(self, call: Callable[..., object]) -> None:
        self._hung.pop(call, None)
        with self._lock:
            self._limit -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # an idle thread holds nothing of what it did: arguments, context variables, result
            with self._lock:
                if self._threads > self._limit:  # one more than wanted, since a call that was abandoned came back
                    self._threads -= 1
                    return
                if self._jobs.empty():
                    self._idle += 1

    def close(self) -> None:
        """Takes no more calls; threads end after what they do now and what waits."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._jobs.put(None)


_BLOCKING = CallPool("blocking", 4)


async def in_thread(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a blocking call that is short: reading a file, looking at processes. All such calls share four
    threads."""
    return await _BLOCKING.run(call, *args, **kwargs)


class Closed(Exception):
    """The consumer has gone: the producer stops."""


class ThreadQueue(Generic[T]):
    """Passes items from one thread to one coroutine, and holds the thread back while too much waits.

    Everything that waits is taken at once, at most `batch` items. `capacity` bounds the sum of the weights that wait
    (bytes, as a rule); one `put` may exceed it, so that a single large one gets through.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, capacity: int, batch: int) -> None:
        self._loop = loop
        self._capacity = capacity
        self._batch = batch
        self._items: deque[T] = deque()
        self._weights: deque[tuple[int, int]] = deque()  # items and weight of each put, oldest first
        self._weight = 0
        self._room = threading.Condition()
        self._ready = asyncio.Event()
        self._waiting = False
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None

    # --- the thread's side ----------------------------------------------------------------------------

    def put(self, items: list[T], weight: int) -> None:
        """Hands items over; blocks while the consumer is behind. Raises Closed once it has gone."""
        with self._room:
            while self._weight >= self._capacity and not self._closed:
                self._room.wait()
            if self._closed:
                raise Closed
            self._items.extend(items)
            self._weights.append((len(items), weight))
            self._weight += weight
            self._wake()

    def replace(self, item: T) -> None:
        """Hands over the latest state, in place of one that still waits. Never blocks; raises Closed as `put` does."""
        with self._room:
            if self._closed:
                raise Closed
            self._items.clear()
            self._weights.clear()
            self._weight = 0
            self._items.append(item)
            self._weights.append((1, 0))
            self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """No more items; the consumer gets what waits, then the error if there is one."""
        with self._room:
            self._ended, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        if not self._waiting:
            return
        self._waiting = False
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop has been closed in the meantime: nothing will be taken
            self._closed = True

    # --- the loop's side ------------------------------------------------------------------------------

    async def take(self) -> list[T]:
        """All that waits, at most `batch` items; an empty list at the end. Raises the producer's error."""
        while True:
            with self._room:
                if self._items:
                    taken = 0
                    while self._weights and taken < self._batch:
                        count, weight = self._weights.popleft()
                        taken += count
                        self._weight -= weight
                    items = [self._items.popleft() for _ in range(taken)]
                    self._room.notify()
                    return items
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return []
                self._waiting = True
                self._ready.clear()
            await self._ready.wait()

    def close(self) -> None:
        """The consumer goes: a producer that waits or puts again gets Closed."""
        with self._room:
            self._closed = self._ended = True
            self._items.clear()
            self._weights.clear()
            self._room.notify()
            self._wake()


class Producer(Protocol[T]):
    """What `stream` runs on a thread."""

    def run(self, handover: ThreadQueue[T]) -> None:
        """Blocks until there is nothing more, or until `cancel`; errors reach the consumer."""

    def cancel(self) -> None:
        """Makes `run` return at once; called from another thread, any number of times."""


class StreamThreads:
    """Runs producers on a thread each, and can end them all."""

    def __init__(self) -> None:
        self._active: dict[threading.Thread, Callable[[], None]] = {}

    async def read(self, producer: Producer[T], name: str) -> AsyncGenerator[list[T], None]:
        """Batches of what a producer finds. Closing the generator cancels the producer."""
        handover: ThreadQueue[T] = ThreadQueue(asyncio.get_running_loop(), capacity=4 * 1024**2, batch=4096)

        def cancel() -> None:
            handover.close()
            producer.cancel()

        def produce() -> None:
            try:
                producer.run(handover)
            except Closed:
                return
            except BaseException as error:  # noqa: BLE001 - raised where the stream is read
                handover.end(error)
            else:
                handover.end()

        thread = threading.Thread(target=produce, name=name, daemon=True)
        self._active[thread] = cancel
        thread.start()
        try:
            while items := await handover.take():
                yield items
        finally:
            cancel()
            del self._active[thread]

    def close(self) -> None:
        """Cancels what still runs and waits for it, no longer than a second."""
        active = dict(self._active)
        for cancel in active.values():
            cancel()
        deadline = time.monotonic() + 1.0
        for thread in active:
            thread.join(max(0.0, deadline - time.monotonic()))


def command(module: str) -> tuple[str, ...]:
    """The command that runs a module of ours."""
    # -P: a `json.py` in the folder where the program was started is not the helper's business.
    return (sys.executable, "-P", "-m", module)


def python_path() -> str:
    """For PYTHONPATH: the helper finds this package also where it runs from a checkout. Installed packages stay behind
    the standard library, where Python puts them."""
    home = Path(spark_tui.__file__).resolve().parents[1]
    own = "" if home.name in ("site-packages", "dist-packages") else str(home)
    return os.pathsep.join(path for path in (own, os.environ.get("PYTHONPATH", "")) if path)


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancels them, and returns when all have ended; how they ended is for who asks them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def end_group(child: asyncio.subprocess.Process, patience: float) -> None:
    """Ends a process that leads a group, with all that it started (ssh has children, rsync an ssh of its own):
    SIGTERM, then SIGKILL after `patience` seconds. A busy machine takes its time to end what is killed."""
    for sign, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, _KILLED_SECONDS)):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await child.wait()


async def give(child: asyncio.subprocess.Process, data: bytes) -> None:
    """All of its standard input, where it has one. A command that ends before it has read all of it is no failure
    here: its exit code says more."""
    if child.stdin is None:
        return
    with contextlib.suppress(ConnectionError):
        child.stdin.write(data)
        await child.stdin.drain()
    child.stdin.close()


class NotStarted(Exception):
    """The system's reason why a child process could not be started."""


class OutputTooLong(Exception):
    """A child process wrote more than it may."""


async def run_child(
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    seconds: float,
    given: bytes = b"",
    on_line: Callable[[str], None] | None = None,
    cwd: str | None = None,
) -> ShellResult:
    """Runs a command to its end, in a session of its own; nothing that it started there outlives this call.

    Each output may have MOST_OUTPUT bytes. With `on_line` only each line of standard output may, and goes there
    instead. `seconds`: 0 for no limit. Raises NotStarted, TimeoutError, OutputTooLong, and what `on_line`
    raises. A process that has left the session and keeps an output open is not waited for.
    """
    out, out_transport, out_end = await _output_pipe()
    err, err_transport, err_end = await _output_pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=out_end,
            stderr=err_end,
            env=environ,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        out_transport.close()
        err_transport.close()
        raise NotStarted(error.strerror or str(error)) from error
    finally:
        os.close(out_end)
        os.close(err_end)
    reading = asyncio.gather(_whole(out) if on_line is None else _by_line(out, on_line), _whole(err))
    feeding, ending = asyncio.ensure_future(give(child, given)), asyncio.ensure_future(child.wait())
    try:
        async with asyncio.timeout(seconds or None):
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading
                await ending
            else:
                await asyncio.wait((reading,), timeout=_END_SECONDS)
    finally:
        await end_group(child, _END_SECONDS)
        if not reading.done():  # something that it started still holds an output
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            await asyncio.wait((reading,), timeout=_END_SECONDS)
        out_transport.close()
        err_transport.close()
        await asyncio.gather(reading, return_exceptions=True)
        await end_tasks(feeding, ending)
    return ShellResult(child.returncode or 0, *await reading)


async def _output_pipe() -> tuple[asyncio.StreamReader, asyncio.ReadTransport, int]:
    """A reader, its transport, and the end for the child. Of our own, because asyncio's cannot be closed before the
    last process that holds the other end has gone."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader(MOST_OUTPUT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
    )
    return reader, transport, theirs


async def _whole(stream: asyncio.StreamReader) -> str:
    kept = bytearray()
    while chunk := await stream.read(_CHUNK):
        kept += chunk
        if len(kept) > MOST_OUTPUT:
            raise OutputTooLong
    return kept.decode("utf-8", "replace")


async def _by_line(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> str:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            raise OutputTooLong from None
        if not line:
            return ""
        on_line(line.decode("utf-8", "replace"))


class SystemClock:
    """The Clock port on the machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def born(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None when there is none (a zombie is none). Pid and
    birth together are never used twice. Not psutil: its create_time moves with the wall clock."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    parts = text.rpartition(")")[2].split()
    if len(parts) < 20 or parts[0] in ("Z", "X"):
        return None
    return int(parts[19])


# --- poller ----------------------------------------------------------------------------------------------


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
