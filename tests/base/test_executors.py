"""Threads for blocking work: bounded, cancellable, never in the way of the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from spark_tui.base.executors import CallPool, Closed, StreamThreads, ThreadQueue


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


# --- calls --------------------------------------------------------------------------------------------


async def test_results_and_errors_come_back_until_the_pool_is_closed() -> None:
    pool = CallPool("pool-a", 2)
    assert await pool.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 1, 0)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        await pool.run(int)


async def test_no_more_threads_than_workers_and_none_before_the_first_call() -> None:
    pool = CallPool("pool-b", 3)
    assert not threads("pool-b")
    await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(20)))
    assert len(threads("pool-b")) == 3
    pool.close()
    await until(lambda: not threads("pool-b"))


async def test_one_thread_serves_calls_that_follow_each_other() -> None:
    pool = CallPool("pool-c", 5)
    for _ in range(20):
        await pool.run(int)
        await asyncio.sleep(0.002)
    assert len(threads("pool-c")) <= 2
    pool.close()


async def test_a_cancelled_call_that_waits_is_dropped() -> None:
    pool = CallPool("pool-d", 1)
    gate, ran = threading.Event(), []
    blocking = asyncio.create_task(pool.run(gate.wait))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(pool.run(ran.append, 1))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    await blocking
    await pool.run(int)
    assert ran == []
    pool.close()


def test_a_call_that_hangs_does_not_keep_the_program_alive() -> None:
    script = """
import asyncio, threading
from spark_tui.base.executors import CallPool
async def main():
    pool = CallPool("x", 1)
    try:
        await asyncio.wait_for(pool.run(threading.Event().wait), 0.1)
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "gave up\n"
    assert time.monotonic() - began < 10


async def test_an_idle_thread_keeps_nothing_of_the_call_before() -> None:
    class Large:
        pass

    pool, large = CallPool("pool-k", 1), Large()
    kept = weakref.ref(large)
    assert await pool.run(bool, large)
    del large
    await until(lambda: kept() is None)
    pool.close()


async def test_a_thread_for_an_abandoned_call_ends_once_that_call_is_back() -> None:
    pool, gate = CallPool("pool-m", 1), threading.Event()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.run(lambda: gate.wait(20))
    assert len(threads("pool-m")) == 5
    gate.set()
    await until(lambda: len(threads("pool-m")) == 1)
    assert await pool.run(divmod, 7, 2) == (3, 1)
    pool.close()


# --- hand-over ----------------------------------------------------------------------------------------


async def test_everything_that_waits_is_taken_at_once_in_order() -> None:
    handover: ThreadQueue[int] = ThreadQueue(asyncio.get_running_loop(), capacity=100, batch=5)
    handover.put([1, 2], 2)
    handover.put([3, 4], 2)
    handover.put([5, 6, 7], 3)
    handover.put([8], 1)
    handover.end()
    assert await handover.take() == [1, 2, 3, 4, 5, 6, 7]
    assert await handover.take() == [8]
    assert await handover.take() == []


async def test_a_producer_is_held_back_and_let_go() -> None:
    handover: ThreadQueue[int] = ThreadQueue(asyncio.get_running_loop(), capacity=10, batch=1)
    passed: list[int] = []

    def produce() -> None:
        for i in range(100):
            handover.put([i], 4)
            passed.append(i)
        handover.end()

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    await until(lambda: len(passed) == 3)
    await asyncio.sleep(0.02)
    assert len(passed) == 3
    got: list[int] = []
    while batch := await handover.take():
        got += batch
        assert len(passed) <= len(got) + 4
    assert got == list(range(100))


async def test_the_latest_state_replaces_one_that_waits_and_an_error_comes_after_it() -> None:
    handover: ThreadQueue[str] = ThreadQueue(asyncio.get_running_loop(), capacity=1, batch=10)
    for state in ("a", "b", "c"):
        handover.replace(state)
    handover.end(OSError("broken"))
    assert await handover.take() == ["c"]
    with pytest.raises(OSError, match="broken"):
        await handover.take()


async def test_a_producer_without_a_consumer_is_stopped() -> None:
    handover: ThreadQueue[int] = ThreadQueue(asyncio.get_running_loop(), capacity=1, batch=1)
    handover.close()
    for hand_over in (lambda: handover.put([1], 1), lambda: handover.replace(1)):
        with pytest.raises(Closed):
            hand_over()


async def test_calls_that_hang_keep_no_other_waiting_and_are_not_begun_again() -> None:
    pool, gate, begun = CallPool("pool-h", 2), threading.Event(), []

    def hang() -> int:
        begun.append(1)
        gate.wait(20)
        return len(begun)

    def other() -> None:
        gate.wait(20)

    for call in (hang, other, hang, hang, other, hang):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.run(call)
    async with asyncio.timeout(5):
        assert await pool.run(divmod, 7, 2) == (3, 1)
    assert len(begun) == 1
    assert len(threads("pool-h")) <= 4
    again = asyncio.create_task(pool.run(hang))
    await asyncio.sleep(0.02)
    gate.set()
    assert await again == 2, "begun anew, so that what it reads is not from before"
    pool.close()
    await until(lambda: not threads("pool-h"))


# --- streams ------------------------------------------------------------------------------------------


class Ticking:
    """Hands over numbers until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def run(self, handover: ThreadQueue[int]) -> None:
        number = 0
        while not self.cancelled.wait(0.001):
            handover.put([number], 1)
            number += 1

    def cancel(self) -> None:
        self.cancelled.set()


async def test_closing_the_stream_cancels_its_producer() -> None:
    streams, ticking = StreamThreads(), Ticking()
    numbers = streams.read(ticking, "ticking")
    first = await anext(numbers)
    assert first[0] == 0
    await numbers.aclose()
    assert ticking.cancelled.is_set()
    await until(lambda: not threads("ticking"))


async def test_closing_all_streams_ends_their_readers() -> None:
    streams = StreamThreads()
    running = [streams.read(Ticking(), "ticking") for _ in range(3)]

    async def drain(numbers: object) -> bool:
        async for _ in numbers:  # type: ignore[attr-defined]
            pass
        return True

    tasks = [asyncio.create_task(drain(numbers)) for numbers in running]
    await until(lambda: len(threads("ticking")) == 3)
    streams.close()
    assert not threads("ticking")
    assert await asyncio.gather(*tasks) == [True, True, True]


async def test_an_error_of_the_producer_is_raised_where_the_stream_is_read() -> None:
    class Failing:
        def run(self, handover: ThreadQueue[int]) -> None:
            handover.put([1], 1)
            raise ValueError("no")

        def cancel(self) -> None:
            """Nothing runs."""

    numbers = StreamThreads().read(Failing(), "failing")
    assert await anext(numbers) == [1]
    with pytest.raises(ValueError, match="no"):
        await anext(numbers)
