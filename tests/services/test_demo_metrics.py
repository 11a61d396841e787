"""The simulated server's metrics: they agree with its log and with what its chats deliver."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from spark_tui.domain.chat.message import ChatRequest, Message, Role, Usage
from spark_tui.domain.engine.state import Endpoint
from spark_tui.domain.errors import EngineUnreachable
from spark_tui.domain.logs.tracker import LogTracker
from spark_tui.domain.metrics.page import Change, Family, Snapshot
from spark_tui.domain.metrics.serving import measure
from spark_tui.domain.reading import Ok, value_of
from spark_tui.services.demo.api import DemoApi
from spark_tui.services.demo.metrics import DemoMetrics
from spark_tui.services.demo.world import CROWD, SERVING_NAME, SERVING_PORT, DemoWorld
from tests.core.kit import running
from tests.fakes_host import FakeClock

ENDPOINT = Endpoint(f"http://127.0.0.1:{SERVING_PORT}")


@pytest.fixture
def world() -> DemoWorld:
    return DemoWorld(FakeClock())


async def look(world: DemoWorld) -> Snapshot:
    return Snapshot(world.clock.monotonic(), await DemoMetrics(world).read(ENDPOINT))


async def over(world: DemoWorld, seconds: float) -> Change:
    before = await look(world)
    assert isinstance(world.clock, FakeClock)
    await world.clock.advance(seconds)
    return Change.between(before, await look(world))


async def test_speeds_are_those_that_its_log_reports(world: DemoWorld) -> None:
    run = world.named(SERVING_NAME).run
    assert run is not None
    assert isinstance(world.clock, FakeClock)
    await world.clock.advance(10 - (world.clock.now() - run.ready_at) % 10)  # to the end of an interval
    metrics = measure(await over(world, 10.0))
    world.settle()
    reader = LogTracker()
    reader.feed_many(world.named(SERVING_NAME).log.lines)
    line = [sample for sample in reader.samples if sample.generation_rate is not None][-1]
    assert value_of(metrics.decode_rate) == pytest.approx(line.generation_rate, rel=0.01)
    assert value_of(metrics.prefill_rate) == pytest.approx(line.prompt_rate, rel=0.01)
    assert metrics.running == Ok(float(line.running or 0))
    assert value_of(metrics.prefix_hits) == pytest.approx(0.714, abs=0.001)


async def test_it_has_counted_since_it_began_to_serve(world: DemoWorld) -> None:
    metrics = measure(Change(None, await look(world), None))
    tokens = value_of(metrics.generated_tokens)
    assert tokens is not None
    crowd = len(CROWD) * 10
    assert 3 * 3600 * 36 + crowd * 50 < tokens < 3.2 * 3600 * 55 + crowd * 130
    finished = value_of(metrics.finished_count)
    assert finished is not None
    assert 320 + len(CROWD) < finished < 460 + 2 * len(CROWD)


async def test_looking_often_counts_nothing_twice() -> None:
    seldom, often = DemoWorld(FakeClock()), DemoWorld(FakeClock())
    once, many = await over(seldom, 65.0), await look(often)
    for _ in range(130):
        last = (await over(often, 0.5)).after
    for family in (Family.GENERATED, Family.PROMPT, Family.FINISHED, Family.DRAFTS):
        grown = (last.page.total(family) or 0) - (many.page.total(family) or 0)
        assert grown == pytest.approx(once.grown(family), rel=1e-6)


async def test_a_chat_is_counted_as_it_streams(world: DemoWorld) -> None:
    clock = world.clock
    assert isinstance(clock, FakeClock)
    api = DemoApi(world)  # its engine is warm, for it has had traffic
    for run in world.runs:
        run.traffic = False
    before = await look(world)
    usage: list[Usage] = []

    async def chat() -> None:
        request = ChatRequest(SERVING_NAME, (Message(Role.USER, "Hello"),))
        async with aclosing(api.chat(ENDPOINT, request)) as events:
            async for event in events:
                if isinstance(event, Usage):
                    usage.append(event)

    async with running(chat()):
        await clock.advance(2.0)
        middle = measure(Change.between(before, await look(world)))
        await clock.advance(120)
    after = measure(Change.between(before, await look(world)))
    assert middle.running == Ok(1.0)
    assert 40 < (value_of(middle.decode_rate) or 0) * 2 < 90
    assert after.running == Ok(0.0)
    assert usage
    assert value_of(after.finished_count) == 1
    assert Change.between(before, await look(world)).grown(Family.GENERATED) == usage[0].completion_tokens
    assert isinstance(after.ttft, Ok)
    assert after.ttft.value.count == 1


async def test_a_server_that_is_not_up_has_none(world: DemoWorld) -> None:
    with pytest.raises(EngineUnreachable):
        await DemoMetrics(world).read(Endpoint("http://127.0.0.1:8000"))
    container = world.named(SERVING_NAME)
    world.end(container, world.clock.now(), 0)
    with pytest.raises(EngineUnreachable):
        await DemoMetrics(world).read(ENDPOINT)
