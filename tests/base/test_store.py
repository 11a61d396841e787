"""The World: equal values are dropped, the latest wins."""

from __future__ import annotations

import asyncio

import pytest

from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import HostIdentity
from spark_tui.base.store import Store, World
from spark_tui.observe.explain.feature import ENGINES
from tests.fakes_host import FakeClock


async def test_an_equal_value_is_no_change() -> None:
    store = Store(FakeClock())
    assert store.update(pressure=Ok(1.0, 5.0))
    assert not store.update(pressure=Ok(1.0, 9.0)), "a reading's time alone is nothing to repaint"
    assert store.update(pressure=Missing("gone"))


async def test_a_burst_of_updates_is_one_push_with_the_last_value() -> None:
    clock = FakeClock()
    store = Store(clock)
    changes = store.changes(min_interval=0.1)
    assert (await anext(changes)).identity.hostname == ""
    for number in range(1000):
        store.update(identity=HostIdentity(f"spark-{number}"))
    assert (await anext(changes)).identity.hostname == "spark-999"
    pending = asyncio.ensure_future(anext(changes))
    await clock.advance(1.0)
    assert not pending.done(), "nothing changed since"
    pending.cancel()


async def test_an_unknown_slice_is_a_mistake_at_once() -> None:
    with pytest.raises(AttributeError):
        Store(FakeClock()).update(colour="red")


def test_the_empty_world_is_a_world() -> None:
    assert World()[ENGINES] == World()[ENGINES]
