"""The canary: measures what is idle, keeps it, and shows on Home what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_tui.base.finding import AlarmId
from spark_tui.base.host.series import Record
from spark_tui.base.ports import MEASURES
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.use.bench.use.bench import Benchmark
from spark_tui.use.prove.model.canary import KIND
from spark_tui.use.prove.use.canary import CanaryRunner, show_changes, verdicts_of
from spark_tui.use.prove.use.prove import Prover
from tests.fakes_files import MemoryState
from tests.fakes_history import FakeHistory
from tests.kit import IMAGE, Kit
from tests.prove_server import ProveServer
from tests.use.prove.test_prove_use import Lab, compiles


def runner(lab: Lab, history: FakeHistory, in_flight: int | None = 0, busy: bool = False) -> CanaryRunner:
    state = MemoryState()
    if busy:
        state.claim(MEASURES + "qwen")

    async def requests(_: str) -> int | None:
        return in_flight

    c = lab.context
    return CanaryRunner(c[Benchmark], c[Prover], c[EngineSupervisor], history, state, c.clock, requests)


async def test_an_idle_engine_is_measured_and_kept() -> None:
    async with ProveServer("").running() as server:
        lab, history = Lab(server), FakeHistory()
        try:
            [result] = await runner(lab, history).run(lambda _: None)
        finally:
            await lab.context.close()
    assert (result.engine, result.skipped) == ("qwen", "")
    [record] = history.noted
    assert (record.kind, record.key, record.body["failed"]) == (KIND, "qwen", [])
    assert record.body["rate"] > 0 and record.body["conditions"]["preset"] == "qwen"
    assert result.verdict is not None and not result.verdict.differs


@pytest.mark.parametrize("in_flight", [2, None])
async def test_one_that_is_busy_or_may_be_is_left_alone(in_flight: int | None) -> None:
    async with ProveServer("").running() as server:
        lab, history = Lab(server), FakeHistory()
        [result] = await runner(lab, history, in_flight).run(lambda _: None)
        assert (bool(result.skipped), result.verdict, history.noted) == (True, None, [])
        [result] = await runner(lab, history, busy=True).run(lambda _: None)
        assert (bool(result.skipped), history.noted) == (True, [])
        await lab.context.close()


async def test_a_night_that_an_engine_does_not_survive_is_void_and_the_engine_runs_again() -> None:
    async with ProveServer("").running() as server:
        lab, history = Lab(server), FakeHistory()
        facts = lab.docker.named("qwen")
        assert facts is not None
        lab.docker.add_container("small", image=IMAGE, labels=facts.labels, argv=facts.argv)
        asked = server.requests

        class Deadly(list[Any]):
            def append(self, request: Any) -> None:
                super().append(request)
                if len(self) == 20:
                    lab.docker.end("qwen", 137)

        server.requests = Deadly(asked)
        try:
            first, second = await runner(lab, history).run(lambda _: None)
        finally:
            await lab.context.close()
        assert (first.engine, first.verdict, bool(first.void)) == ("qwen", None, True)
        assert (second.engine, bool(second.skipped), second.void) == ("small", True, None), "another one boots"
        assert history.noted == [] and lab.context[Prover].kept() == ()
        now = lab.docker.named("qwen")
        assert now is not None and now.running


async def test_a_night_asks_nothing_that_may_make_an_engine_compile() -> None:
    async with ProveServer("").running() as server:
        lab = Lab(server)
        await runner(lab, FakeHistory()).run(lambda _: None)
        assert server.requests and not any(compiles(body) for _, body in server.requests)
        await lab.context.close()


def night(kit: Kit, days: float, rate: float, driver: str = "580") -> Record:
    body = {"rate": rate, "failed": [], "model": "org/qwen", "conditions": {"driver": driver}}
    return Record(KIND, "qwen", kit.clock.now() - days * 86_400, body)


async def test_home_shows_what_differs_with_what_changed_until_it_is_over() -> None:
    kit, history = Kit(), FakeHistory()
    alarms: Callable[[], int] = lambda: len(kit.context.alarms.current(AlarmId.CANARY))  # noqa: E731
    history.noted = [night(kit, days, 47.0 + days % 3 / 10) for days in range(12, 2, -1)]
    await show_changes(history, kit.clock, kit.context.alarms)
    assert alarms() == 0
    history.noted.append(night(kit, 1, 40.0, "590"))
    await show_changes(history, kit.clock, kit.context.alarms)
    [alarm] = kit.context.alarms.current(AlarmId.CANARY)
    assert alarm.subject == "qwen" and "driver 580 -> 590" in alarm.summary
    history.noted.append(night(kit, 0, 47.0))
    await show_changes(history, kit.clock, kit.context.alarms)
    assert alarms() == 0


async def test_a_history_that_is_off_shows_nothing() -> None:
    history = FakeHistory()
    history.switch_off("disk full")
    assert await verdicts_of(history, 0.0) == ()
