"""The simulated server's metrics: they agree with its log and with what its chats deliver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from spark_tui.app.wiring import demo_ports
from spark_tui.base.context import Ports
from spark_tui.base.engine.message import ChatRequest, Message, Role, Usage
from spark_tui.base.engine.metrics_page import Change, Family, Snapshot
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.finding import Ok, value_of
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.metrics.model.serving import measure
from spark_tui.simulator.world import CROWD, SERVING_NAME, SERVING_PORT, DemoWorld
from tests.fakes_host import FakeClock
from tests.kit import running

ENDPOINT = Endpoint(f"http://127.0.0.1:{SERVING_PORT}")


class Look:
    """The simulated Spark and its pages of metrics, read as those of a real one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ports: Ports = demo_ports(clock=self.clock)
        self.world: DemoWorld = self.ports.get("world")

    async def now(self) -> Snapshot:
        return Snapshot(self.clock.monotonic(), await self.ports.metrics.read(ENDPOINT))

    async def over(self, seconds: float) -> Change:
        before = await self.now()
        await self.clock.advance(seconds)
        return Change.between(before, await self.now())


@pytest.fixture
async def look() -> AsyncIterator[Look]:
    look = Look()
    yield look
    await look.ports.metrics.close()
    await look.ports.api.close()


async def test_speeds_are_those_that_its_log_reports(look: Look) -> None:
    world = look.world
    run = world.named(SERVING_NAME).run
    assert run is not None
    await look.clock.advance(10 - (world.clock.now() - run.ready_at) % 10)  # to the end of an interval
    metrics = measure(await look.over(10.0))
    world.settle()
    reader = LogTracker()
    reader.feed_many(world.named(SERVING_NAME).log.lines)
    line = [sample for sample in reader.samples if sample.generation_rate is not None][-1]
    assert value_of(metrics.decode_rate) == pytest.approx(line.generation_rate, rel=0.01)
    assert value_of(metrics.prefill_rate) == pytest.approx(line.prompt_rate, rel=0.01)
    assert metrics.running == Ok(float(line.running or 0))
    assert value_of(metrics.prefix_hits) == pytest.approx(0.714, abs=0.001)


async def test_it_has_counted_since_it_began_to_serve(look: Look) -> None:
    metrics = measure(Change(None, await look.now(), None))
    tokens = value_of(metrics.generated_tokens)
    assert tokens is not None
    crowd = len(CROWD) * 10
    assert 3 * 3600 * 36 + crowd * 50 < tokens < 3.2 * 3600 * 55 + crowd * 130
    finished = value_of(metrics.finished_count)
    assert finished is not None
    assert 320 + len(CROWD) < finished < 460 + 2 * len(CROWD)


async def test_looking_often_counts_nothing_twice(look: Look) -> None:
    seldom = Look()
    once, many = await seldom.over(65.0), await look.now()
    await seldom.ports.metrics.close()
    for _ in range(130):
        last = (await look.over(0.5)).after
    for family in (Family.GENERATED, Family.PROMPT, Family.FINISHED, Family.DRAFTS):
        grown = (last.page.total(family) or 0) - (many.page.total(family) or 0)
        assert grown == pytest.approx(once.grown(family), rel=1e-6)


async def test_a_chat_is_counted_as_it_streams(look: Look) -> None:
    world, clock, api = look.world, look.clock, look.ports.api  # its engine is warm, for it has had traffic
    for run in world.runs:
        run.traffic = False
    before = await look.now()
    usage: list[Usage] = []

    async def chat() -> None:
        request = ChatRequest(SERVING_NAME, (Message(Role.USER, "Hello"),))
        async with aclosing(api.chat(ENDPOINT, request)) as events:
            async for event in events:
                if isinstance(event, Usage):
                    usage.append(event)

    async with running(chat()):
        await clock.advance(2.0)
        middle = measure(Change.between(before, await look.now()))
        await clock.advance(120)
    after = measure(Change.between(before, await look.now()))
    assert middle.running == Ok(1.0)
    assert 40 < (value_of(middle.decode_rate) or 0) * 2 < 90
    assert after.running == Ok(0.0)
    assert usage
    assert value_of(after.finished_count) == 1
    assert Change.between(before, await look.now()).grown(Family.GENERATED) == usage[0].completion_tokens
    assert isinstance(after.ttft, Ok)
    assert after.ttft.value.count == 1


async def test_a_server_that_is_not_up_has_none(look: Look) -> None:
    with pytest.raises(EngineUnreachable):
        await look.ports.metrics.read(Endpoint("http://127.0.0.1:8000"))
    look.world.end(look.world.named(SERVING_NAME), look.clock.now(), 0)
    with pytest.raises(EngineUnreachable):
        await look.now()
