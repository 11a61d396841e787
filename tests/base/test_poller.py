"""Pollers never overlap, back off, and hand failures on."""

from __future__ import annotations

import asyncio

from spark_tui.base.errors import SparkError
from spark_tui.base.executors import MAX_BACKOFF_SECONDS, Poller
from tests.fakes_host import FakeClock


def _poller(clock: FakeClock, probe, values: list, errors: list) -> Poller:
    return Poller("the probe", probe, values.append, errors.append, clock=clock, interval=1.0, timeout=0.05)


async def test_a_failure_is_handed_on_and_the_pause_doubles_until_it_succeeds() -> None:
    clock, values, errors = FakeClock(), [], []
    outcomes = [SparkError("no", "wait"), SparkError("no", "wait"), 7]

    async def probe() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    poller = _poller(clock, probe, values, errors)
    pauses = []
    for _ in range(3):
        await poller.poll()
        pauses.append(poller.interval)
    assert [str(error) for error in errors] == ["no wait", "no wait"]
    assert pauses == [2.0, 4.0, 1.0]
    assert values == [7]


async def test_the_pause_is_bounded() -> None:
    clock, errors = FakeClock(), []

    async def probe() -> int:
        raise OSError(5, "gone")

    poller = _poller(clock, probe, [], errors)
    for _ in range(30):
        await poller.poll()
    assert poller.interval == MAX_BACKOFF_SECONDS
    assert "gone" in errors[0].summary


async def test_a_probe_that_hangs_is_a_failure_and_is_cancelled() -> None:
    clock, errors = FakeClock(), []
    cancelled = asyncio.Event()

    async def probe() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return 1

    await _poller(clock, probe, [], errors).poll()
    assert cancelled.is_set()
    assert "did not answer" in errors[0].summary


async def test_wake_cuts_the_pause_short() -> None:
    clock, values = FakeClock(), []

    async def probe() -> int:
        return len(values)

    poller = _poller(clock, probe, values, [])
    task = asyncio.create_task(poller.run())
    while len(values) < 1:
        await asyncio.sleep(0)
    poller.wake()
    while len(values) < 2:
        await asyncio.sleep(0)
    task.cancel()
