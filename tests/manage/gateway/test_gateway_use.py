"""The gateway's routes and swaps: who is reached by a name, who ends for whom, and what those who wait are told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.app.wiring import build
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.metrics_page import MetricPage
from spark_tui.base.engine.state import Endpoint, Health, ServedModel, api_port
from spark_tui.base.errors import (
    ApiKeyRejected,
    EngineExited,
    EngineUnreachable,
    ModelNotServed,
    RefusedError,
    SparkError,
)
from spark_tui.base.finding import Ok
from spark_tui.base.gateway import KeysUnreadable
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.base.settings import defaults, folders_of
from spark_tui.catalog.presets.model.preset import Preset, PresetFacts
from spark_tui.machine.gateway import GatewayKeys, read_status
from spark_tui.manage.gateway.model import GatewayPolicy, NotServing, SwapRefused
from spark_tui.manage.gateway.use.gateway import Gateway, GatewayMissing
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.model.agents import AgentTurn, prompt_print
from spark_tui.observe.metrics.use.history import History
from tests import metric_fixtures as pages
from tests.fakes_api import FakeEngineApi
from tests.fakes_history import FakeHistory
from tests.fakes_host import EPOCH, IDLE_MEMORY
from tests.fakes_metrics import FakeMetrics
from tests.kit import PRESET, Kit, running

WEIGHS = 70 * GIB


def preset(name: str) -> Preset:
    """A model that needs more than half of the machine."""
    return replace(
        PRESET, name=name, file=f"{name}.yaml", model=f"org/{name}",
        command="vllm serve {model} --port {port} --max-model-len {max_model_len} --max-num-seqs 1 "
        "--gpu-memory-utilization {gpu_memory_utilization}",
        defaults=(*PRESET.defaults, ("gpu_memory_utilization", 0.85)),
        facts=PresetFacts(total_parameters=130e9, quantization="NVFP4"),
    )  # fmt: skip


class Servers(FakeEngineApi):
    """An EngineApi per port."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.clock)
        self.up: dict[str, str] = {}
        self.listed: dict[str, tuple[ServedModel, ...]] = {}
        """What other gateways list, by their addresses."""

    async def health(self, endpoint: Endpoint) -> Health:
        return Health.OK if endpoint.base_url in self.up else Health.NOT_LISTENING

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        if endpoint.base_url in self.listed:
            return self.listed[endpoint.base_url]
        if endpoint.base_url not in self.up:
            raise EngineUnreachable(f"{endpoint.base_url} does not answer.", "Start it.")
        return (ServedModel(self.up[endpoint.base_url], max_model_len=4096),)


class Machine:
    """A Spark with presets a, b and c that do not fit in pairs, and a gateway on it."""

    def __init__(self, *names: str) -> None:
        self.kit = Kit(*(preset(name) for name in names or ("a", "b", "c")))
        self.kit.history = None
        self.metrics = FakeMetrics(self.kit.clock, page=self._page)
        self.kit.metrics = self.metrics
        self.kit.api = self.servers = Servers(self.kit)
        self.kit.context = self.kit.opened()
        self.kit.docker.on_start = self._started
        self.busy: dict[str, float] = {}
        self.slow: set[str] = set()
        self.broken: set[str] = set()
        self.same_name = False
        self.most_at_once = 0
        self.weighs = WEIGHS

    def _page(self, endpoint: Endpoint) -> MetricPage:
        name = self.servers.up.get(endpoint.base_url, "")
        return pages.vllm(num_requests_running=self.busy.get(name, 0.0), generation_tokens_total=0.0)

    def _started(self, container: ContainerFacts) -> None:
        self.measure()
        if container.name in self.broken:
            self.kit.docker.end(container.id, 1)
            self.measure()
        elif container.name not in self.slow:
            self.serve(container.name)

    def serve(self, name: str) -> None:
        """It is up."""
        container = self.kit.docker.named(name)
        assert container is not None
        self.servers.up[f"http://127.0.0.1:{api_port(container)}"] = "same" if self.same_name else name

    def running(self) -> list[str]:
        return sorted(one.facts.name for one in self.kit.docker.all_containers.values() if one.facts.running)

    def measure(self) -> None:
        """What the engines that run now leave of the memory."""
        held = self.weighs * len(self.running())
        self.most_at_once = max(self.most_at_once, len(self.running()))
        left = replace(IDLE_MEMORY, available=IDLE_MEMORY.available - held, free=IDLE_MEMORY.free - held)
        self.kit.host.memory_value = Ok(left, EPOCH)
        for address, name in tuple(self.servers.up.items()):
            if name not in self.running() and not self.same_name:
                del self.servers.up[address]

    @asynccontextmanager
    async def gateway(self, **policy: Any) -> AsyncIterator[Gateway]:
        stop = self.kit.docker.stop

        async def stopped(container: str, grace_seconds: int = 30) -> None:
            await stop(container, grace_seconds)
            self.measure()

        self.kit.docker.stop = stopped  # type: ignore[method-assign]
        given = {"presets": tuple(each.name for each in self.kit.presets.catalogue.presets), "stay_seconds": 0.0}
        made = Gateway(self.kit.context, GatewayPolicy(**(given | policy)))
        ready: list[str] = []

        class Server:
            async def serve(self, router: object, host: str, port: int, on_ready: Callable[[int], None]) -> None:
                on_ready(8080)
                await asyncio.Event().wait()

        vars(self.kit.context.ports)["gateway_server"] = Server()
        serving = made.run("127.0.0.1", 0, keyed=False, on_ready=ready.append)
        async with running(self.kit.context[EngineSupervisor].run()), running(serving):
            await self.kit.until(lambda: bool(ready))
            yield made

    async def served(self, gateway: Gateway, model: str) -> str:
        """Waits as a streaming client does, and returns the engine that it gets."""
        task = asyncio.ensure_future(self._ask(gateway, model))
        await self.kit.clock.until(task.done, most=3000)
        return task.result()

    async def _ask(self, gateway: Gateway, model: str) -> str:
        while True:
            try:
                with gateway.lease(model) as upstream:
                    return upstream.engine
            except NotServing:
                await gateway.ready(model)


async def fails(machine: Machine, gateway: Gateway, model: str, kind: type[SparkError]) -> SparkError:
    with pytest.raises(kind) as caught:
        await machine.served(gateway, model)
    return caught.value


async def test_a_request_launches_what_does_not_run() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        with pytest.raises(NotServing), gateway.lease("a"):
            pass
        assert await machine.served(gateway, "a") == "a"
        assert machine.running() == ["a"]


async def test_what_serves_already_is_served_from_the_first_request() -> None:
    machine, found = Machine(), list[str]()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
    context = machine.kit.context
    await context[EngineSupervisor].look()
    second = Gateway(context, GatewayPolicy(presets=("a", "b")))

    def ready(_: str) -> None:
        found.extend(each.id for each in second.models() if each.serving)

    async with running(second.run("127.0.0.1", 0, keyed=False, on_ready=ready)):
        await machine.kit.until(lambda: bool(found))
    assert "a" in found and "b" not in found


async def test_without_its_packages_it_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "door"):
        monkeypatch.delitem(sys.modules, f"spark_tui.manage.gateway.adapter.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    folders = folders_of({}, tmp_path)
    gateway = Gateway(build(defaults(folders), folders, {}), GatewayPolicy())
    with pytest.raises(GatewayMissing) as caught:
        await gateway.run("127.0.0.1", 0, keyed=False, on_ready=lambda _: None)
    assert "uvicorn" in caught.value.remedy


async def test_another_model_takes_the_place_of_an_idle_one() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        assert await machine.served(gateway, "b") == "b"
        assert machine.running() == ["b"]
        assert machine.most_at_once == 1, "the first one has ended before the second one starts"


async def test_what_fits_runs_beside() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        machine.kit.presets.catalogue = replace(
            machine.kit.presets.catalogue,
            presets=(
                *machine.kit.presets.catalogue.presets[:1],
                replace(preset("b"), facts=PresetFacts(total_parameters=4e9, quantization="NVFP4")),
            ),
        )
        await gateway.load()
        await machine.served(gateway, "b")
        assert machine.running() == ["a", "b"]
        ports = [api_port(container) for name in ("a", "b") if (container := machine.kit.docker.named(name))]
        assert len(set(ports)) == 2


@pytest.mark.parametrize("where", ["through the gateway", "past it"])
async def test_an_engine_that_answers_is_never_ended(where: str) -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        lease = gateway.lease("a")
        if where == "past it":
            machine.busy["a"] = 1.0
        else:
            lease.__enter__()
        task = asyncio.ensure_future(machine._ask(gateway, "b"))
        await machine.kit.clock.advance(120)
        assert machine.running() == ["a"]
        assert not task.done()
        if where == "past it":
            machine.busy["a"] = 0.0
        else:
            lease.__exit__(None, None, None)
        await machine.kit.until(task.done)
        assert machine.running() == ["b"]


async def test_an_engine_that_does_not_say_whether_it_answers_stays() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        machine.metrics.page = lambda _: MetricPage()
        error = await fails(machine, gateway, "b", SwapRefused)
        assert "a" in error.remedy
        assert machine.running() == ["a"]


async def test_a_model_that_waits_long_gets_its_turn() -> None:
    """One that is always busy takes no new requests then, and comes back after the other one was served."""
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        first = gateway.lease("a")
        first.__enter__()
        task = asyncio.ensure_future(machine._ask(gateway, "b"))
        await machine.kit.clock.advance(30)
        with gateway.lease("a"):
            pass
        await machine.kit.clock.advance(60)
        with pytest.raises(NotServing), gateway.lease("a"):
            pass
        first.__exit__(None, None, None)
        await machine.kit.until(task.done)
        assert await machine.served(gateway, "a") == "a"


async def test_the_least_recently_used_one_ends() -> None:
    machine = Machine()
    machine.weighs = 48 * GIB  # two fit
    facts = PresetFacts(total_parameters=70e9, quantization="NVFP4")
    presets = tuple(replace(preset(name), facts=facts) for name in "abc")
    machine.kit.presets.catalogue = replace(machine.kit.presets.catalogue, presets=presets)
    async with machine.gateway() as gateway:
        for name in "aba":
            await machine.kit.clock.advance(1)
            await machine.served(gateway, name)
        assert machine.running() == ["a", "b"]
        await machine.served(gateway, "c")
        assert machine.running() == ["a", "c"]


async def test_a_pinned_engine_stays_and_the_refusal_names_it() -> None:
    machine = Machine()
    async with machine.gateway(pinned=("a",)) as gateway:
        await machine.served(gateway, "a")
        error = await fails(machine, gateway, "b", SwapRefused)
        assert "a: pinned" in error.remedy
        assert machine.running() == ["a"]


async def test_a_hundred_requests_for_three_models_are_three_launches() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        asked = [asyncio.ensure_future(machine._ask(gateway, "abc"[number % 3])) for number in range(100)]
        await machine.kit.clock.until(lambda: all(task.done() for task in asked), most=3000)
        assert [task.result() for task in asked] == ["abc"[number % 3] for number in range(100)]
        assert len(machine.kit.docker.asked("start")) == 3
        assert machine.most_at_once == 1


async def test_a_swap_that_fails_brings_the_former_engine_back_and_tells_the_cause() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        machine.broken.add("b")
        error = await fails(machine, gateway, "b", EngineExited)
        assert "b" in error.summary
        await machine.kit.until(lambda: machine.running() == ["a"])
        assert await machine.served(gateway, "a") == "a"
        with pytest.raises(EngineExited), gateway.lease("b"):  # those who ask again are told too
            pass


async def test_a_preset_that_fails_often_is_not_launched_again_within_the_hour() -> None:
    machine = Machine()
    machine.broken.add("a")
    async with machine.gateway(failures=2) as gateway:
        for _ in range(2):
            await fails(machine, gateway, "a", EngineExited)
            await machine.kit.clock.advance(60)
        await fails(machine, gateway, "a", RefusedError)
        assert len(machine.kit.docker.asked("start")) == 2
        machine.kit.clock.tick(3600)
        machine.broken.clear()
        assert await machine.served(gateway, "a") == "a"


async def test_an_engine_that_dies_is_launched_again() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        for _ in range(2):
            machine.kit.docker.end("a", 1)
            machine.measure()
            for _ in range(16):  # one death breaks every answer
                gateway.broken("a")
            await machine.kit.until(lambda: machine.running() == ["a"])
            await machine.kit.clock.advance(30)
        machine.kit.docker.end("a", 1)
        gateway.broken("a")
        await machine.kit.clock.advance(60)
        assert machine.running() == [], "three deaths within an hour are enough"


async def test_one_that_is_only_slow_is_left_alone() -> None:
    machine = Machine()
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        gateway.broken("a")
        await machine.kit.clock.advance(30)
        assert len(machine.kit.docker.asked("start")) == 1


async def test_an_engine_that_starts_already_is_awaited_not_launched() -> None:
    machine = Machine()
    machine.slow.add("a")
    async with machine.gateway() as gateway:
        first = asyncio.ensure_future(machine._ask(gateway, "a"))
        await machine.kit.until(lambda: machine.running() == ["a"])
        second = asyncio.ensure_future(machine._ask(gateway, "a"))
        await machine.kit.clock.advance(20)
        machine.serve("a")
        await machine.kit.until(lambda: first.done() and second.done())
        assert len(machine.kit.docker.asked("start")) == 1


async def test_engines_that_may_not_run_together_take_turns_though_they_would_fit() -> None:
    machine = Machine()
    small = PresetFacts(total_parameters=2e9, quantization="NVFP4")
    presets = tuple(replace(preset(name), facts=small) for name in "abc")
    machine.kit.presets.catalogue = replace(machine.kit.presets.catalogue, presets=presets)
    async with machine.gateway(together=(frozenset("ab"),)) as gateway:
        await machine.served(gateway, "a")
        await machine.served(gateway, "b")
        assert machine.running() == ["a", "b"]
        await machine.served(gateway, "c")
        assert machine.running() == ["c"]


async def test_names_aliases_and_served_names_lead_to_the_engine() -> None:
    machine = Machine()
    async with machine.gateway(aliases=(("gpt-4o", "a"),)) as gateway:
        for name in ("a", "org/a", "gpt-4o"):
            assert await machine.served(gateway, name) == "a"
        assert {"a", "b", "c", "gpt-4o"} <= {each.id for each in gateway.models()}
        with pytest.raises(ModelNotServed), gateway.lease("nothing"):
            pass


async def test_two_engines_with_one_served_name_share_its_requests() -> None:
    machine = Machine("a", "b")
    small = PresetFacts(total_parameters=2e9, quantization="NVFP4")
    presets = tuple(replace(preset(name), facts=small) for name in "ab")
    machine.kit.presets.catalogue = replace(machine.kit.presets.catalogue, presets=presets)
    machine.same_name = True
    async with machine.gateway() as gateway:
        await machine.served(gateway, "a")
        await machine.served(gateway, "b")
        with gateway.lease("same") as first, gateway.lease("same") as second:
            assert {first.engine, second.engine} == {"a", "b"}
            assert first.model == second.model == "same"
        with gateway.lease("b") as own:
            assert own.engine == "b"


async def test_an_idle_engine_ends_after_its_time() -> None:
    machine = Machine()
    async with machine.gateway(ttl_seconds=120.0) as gateway:
        await machine.served(gateway, "a")
        machine.busy["a"] = 1.0
        await machine.kit.clock.advance(300)
        assert machine.running() == ["a"]
        machine.busy["a"] = 0.0
        await machine.kit.clock.advance(150)
        assert machine.running() == []


async def test_the_estimate_is_that_of_earlier_starts_and_of_those_in_front() -> None:
    machine = Machine()
    earlier = (StartRecord(f"id-{name}", 1.0, name, preset=name, ready=True, seconds=60.0) for name in "ab")
    machine.kit.history = FakeHistory(*earlier)
    machine.kit.context = machine.kit.opened()
    await machine.kit.context[History].load()
    machine.slow.update("abc")
    async with machine.gateway() as gateway:
        asked = [asyncio.ensure_future(machine._ask(gateway, name)) for name in "abc"]
        await machine.kit.clock.advance(10)
        assert [gateway.eta(name) for name in "ab"] == [pytest.approx(50.0, abs=2), pytest.approx(110.0, abs=2)]
        assert gateway.eta("c") is None, "it never started before"
        for task in asked:
            task.cancel()


async def test_the_status_is_read_by_another_program_and_ends_with_the_gateway() -> None:
    machine = Machine()
    machine.slow.add("a")
    state = machine.kit.state
    async with machine.gateway() as gateway:
        task = asyncio.ensure_future(machine._ask(gateway, "a"))
        await machine.kit.clock.advance(10)
        status = read_status(state)
        assert status is not None
        [swap] = status.swaps
        assert (swap.target, swap.waiting, swap.ready_at) == ("a", 1, None)
        with pytest.raises(RefusedError):
            other = Gateway(machine.kit.context, GatewayPolicy())
            again = asyncio.ensure_future(other.run("127.0.0.1", 0, keyed=False, on_ready=print))
            await machine.kit.until(again.done)
            again.result()
        task.cancel()
    assert read_status(state) is None


# --- keys -------------------------------------------------------------------------------------------------


async def test_a_key_counts_until_it_is_revoked_and_is_kept_as_a_digest_only() -> None:
    machine = Machine()
    keys = GatewayKeys(machine.kit.state, machine.kit.clock)
    keys.add("laptop", Secret("secret-of-the-laptop"))
    assert b"secret-of-the-laptop" not in (machine.kit.state.read("gateway-keys") or b"")
    async with machine.gateway() as gateway:
        assert gateway.authorize("secret-of-the-laptop") == "laptop"
        with pytest.raises(ApiKeyRejected):
            gateway.authorize("another")
        keys.revoke("laptop")
        await machine.kit.clock.advance(1)
        with pytest.raises(ApiKeyRejected):  # without any key left it is not open either
            gateway.authorize("secret-of-the-laptop")


async def test_keys_that_cannot_be_read_admit_nobody_and_a_stranger_is_told_no_path() -> None:
    machine = Machine()
    state = machine.kit.state
    GatewayKeys(state, machine.kit.clock).add("laptop", Secret("k" * 48))
    async with machine.gateway() as gateway:
        whole = state.read("gateway-keys") or b""
        state.write("gateway-keys", b"{broken")
        await machine.kit.clock.advance(1)
        for key in ("k" * 48, ""):
            with pytest.raises(KeysUnreadable) as caught:
                gateway.authorize(key)
            assert state.path("gateway-keys") not in str(caught.value)
            assert state.path("gateway-keys") in caught.value.detail
        state.write("gateway-keys", whole)
        await machine.kit.clock.advance(1)
        assert gateway.authorize("k" * 48) == "laptop"


async def test_who_asked_which_engine_is_in_the_status_without_a_word_of_the_prompt() -> None:
    machine = Machine()
    secret = prompt_print(b"a secret plan " * 4000, b"", [b"hello"])
    async with machine.gateway() as gateway:
        assert gateway.authorize("") == "", "without keys a program has its own name"
        for _ in range(5):
            gateway.answered(AgentTurn("claude-cli", "a", "/v1/messages", secret, 14_000, 0, 2.0))
        (found,) = gateway.status().clients
        assert (found.client, found.engine, found.requests, found.hits) == ("claude-cli", "a", 5, 0.0)
        assert found.evicted == 4
        await machine.kit.clock.advance(3)
        kept = machine.kit.state.read("gateway") or b""
        assert b"claude-cli" in kept
        assert not any(head.encode() in kept for head in (*secret.heads, *secret.kin, "secret plan"))


def test_a_client_has_one_key() -> None:
    kit = Kit()
    keys = GatewayKeys(kit.state, kit.clock)
    keys.add("laptop", Secret("x" * 48))
    with pytest.raises(RefusedError):
        keys.add("laptop", Secret("y" * 48))
    kit.state.write("gateway-keys", b"{broken")
    with pytest.raises(RefusedError):
        keys.all()


# --- other machines ---------------------------------------------------------------------------------------

PEER = "http://spark-2:8080"


@asynccontextmanager
async def beside(machine: Machine, *listed: ServedModel) -> AsyncIterator[Gateway]:
    """A gateway with that of spark-2 behind it, which lists these."""
    machine.servers.listed[PEER] = listed
    async with machine.gateway(peers=(("spark-2", PEER),)) as gateway:
        await machine.kit.until(lambda: not gateway.status().peers[0].problem)
        yield gateway


async def test_a_model_of_another_machine_is_served_by_its_gateway() -> None:
    machine = Machine()
    async with beside(machine, ServedModel("far", max_model_len=8192)) as gateway:
        assert await machine.served(gateway, "far") == "peer:spark-2"
        with gateway.lease("far") as upstream:
            assert (upstream.endpoint.base_url, upstream.model) == (PEER, "far")
        assert next(each for each in gateway.models() if each.id == "far").context == 8192
        assert gateway.status().peers[0].answered == 2
        assert machine.running() == []


async def test_replicas_on_two_machines_share_requests_the_least_busy_first() -> None:
    machine = Machine()
    async with beside(machine, ServedModel("a")) as gateway:
        assert await machine.served(gateway, "a") == "peer:spark-2", "it serves there, and nothing is launched here"
        machine.servers.listed[PEER] = ()
        await machine.kit.until(lambda: gateway.status().peers[0].serves == ())
        assert await machine.served(gateway, "a") == "a"
        machine.servers.listed[PEER] = (ServedModel("a"),)
        await machine.kit.until(lambda: gateway.status().peers[0].serves == ("a",))
        with gateway.lease("a") as first, gateway.lease("a") as second, gateway.lease("a") as third:
            assert [first.engine, second.engine, third.engine] == ["a", "peer:spark-2", "a"]


async def test_what_only_another_machine_could_launch_is_left_to_it_and_ours_is_launched_here() -> None:
    machine = Machine()
    async with beside(machine, ServedModel("far", serving=False), ServedModel("b", serving=False)) as gateway:
        assert await machine.served(gateway, "far") == "peer:spark-2"
        assert await machine.served(gateway, "b") == "b"


async def test_models_that_a_peer_has_from_others_are_not_asked_of_it() -> None:
    machine = Machine()
    async with beside(machine, ServedModel("far", "peer:spark-1"), ServedModel("own", "own")) as gateway:
        assert {each.id for each in gateway.models()} >= {"own"}
        await fails(machine, gateway, "far", ModelNotServed)


async def test_a_peer_that_is_lost_serves_nothing_until_it_answers_again() -> None:
    machine = Machine()
    async with beside(machine, ServedModel("far")) as gateway:
        gateway.broken("peer:spark-2")
        assert gateway.status().peers[0].problem
        await fails(machine, gateway, "far", ModelNotServed)
        await machine.kit.until(lambda: not gateway.status().peers[0].problem)
        assert await machine.served(gateway, "far") == "peer:spark-2"
        del machine.servers.listed[PEER]
        await machine.kit.until(lambda: bool(gateway.status().peers[0].problem))
        await fails(machine, gateway, "far", ModelNotServed)
