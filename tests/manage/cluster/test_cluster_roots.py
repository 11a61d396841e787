"""A launch over several nodes reads a model on each of them where that node has all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec, Mount
from spark_tui.base.errors import RefusedError
from spark_tui.base.launches import ClusterRecord, Stage
from spark_tui.base.remote import Spread
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.manage.cluster.model.copying import InventoryRequest
from spark_tui.manage.cluster.model.plan import plan_cluster, record_of
from spark_tui.manage.cluster.use.copying import NodeCopier
from spark_tui.manage.cluster.use.node import Node
from tests.manage.cluster.test_cluster_plan import PATHS, cluster_of, preset
from tests.sparks import HEAD, WORKER, Sparks
from tests.store_kit import OLDER, cached, files

DRAFTED = """\
command: |
  vllm serve {model} --speculative-config '{"method": "eagle3", "model": "org/drafter"}'
"""


class Homes(Sparks):
    """Two nodes, each with a store and another Hub cache of its user on the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.store = {node: folder / node / "vllm" for node in self.kits}
        self.cache = {node: folder / node / ".cache/huggingface" for node in self.kits}
        for node, kit in self.kits.items():
            kit.context[Node]._paths = replace(PATHS, store=str(self.store[node]))
            self.models[node] = FolderModelStore(self.store[node], hubs=(f"{self.cache[node]}/hub",))  # type: ignore[assignment]

    async def launched(self, record: ClusterRecord | None = None) -> ClusterRecord:
        work = asyncio.ensure_future(self.launcher().launch(record or self.record(), lambda _: None))
        for _ in range(2000):  # stores look into folders on threads of their own
            if work.done():
                break
            await asyncio.sleep(0.002)
            await self.clock.advance(0.1)
        return work.result()

    def created(self, node: str) -> ContainerSpec:
        return self[node].docker.created[-1]


@pytest.fixture
async def homes(tmp_path: Path) -> AsyncIterator[Homes]:
    made = Homes(tmp_path)
    yield made
    for model in made.models.values():
        await model.close()  # type: ignore[attr-defined]


def env(spec: ContainerSpec) -> dict[str, str]:
    return {each.name: each.value for each in spec.env}


def mounted(spec: ContainerSpec) -> dict[str, Mount]:
    return {each.target.removeprefix("/hub-cache/"): each for each in spec.mounts if "/hub-cache/" in each.target}


async def test_each_node_reads_the_model_where_it_has_all_of_it(homes: Homes) -> None:
    base = cached(homes.cache[HEAD], "org/m", files())
    cached(homes.store[WORKER], "org/m", files())
    assert (await homes.launched()).stage is Stage.READY
    head, worker = homes.created(HEAD), homes.created(WORKER)
    target = "/hub-cache/models--org--m"
    assert mounted(head) == {"models--org--m": Mount(str(base), target, read_only=True)}
    assert (env(head)["HF_HUB_CACHE"], env(head)["HF_HUB_OFFLINE"]) == ("/hub-cache", "1"), "nothing is downloaded"
    assert base not in homes[HEAD].host.made
    assert (mounted(worker), "HF_HUB_CACHE" in env(worker)) == ({}, False), "its store has it"


async def test_a_model_that_one_node_has_in_any_cache_is_missing_on_the_other(homes: Homes) -> None:
    cached(homes.cache[HEAD], "org/m", files())
    with pytest.raises(RefusedError) as refused:
        await homes.launched()
    assert "spark-2" in refused.value.summary
    assert "cluster copy model org/m lab" in refused.value.remedy
    assert homes.containers() == []


async def test_other_files_in_another_cache_are_found_before_anything_starts(homes: Homes) -> None:
    cached(homes.cache[HEAD], "org/m", files())
    cached(homes.cache[WORKER], "org/m", files(seed=1))
    with pytest.raises(RefusedError) as refused:
        await homes.launched()
    assert "differs" in refused.value.summary
    assert homes.containers() == []


async def test_a_cache_that_an_engine_would_not_read_from_is_no_reason_to_start(homes: Homes) -> None:
    cached(homes.store[HEAD], "org/m", files())
    cached(homes.cache[WORKER], "org/m", files(), commit=OLDER, refs=())  # an engine asks for `main`
    with pytest.raises(RefusedError) as refused:
        await homes.launched()
    assert "cluster copy model org/m lab" in refused.value.remedy


async def test_a_cache_with_another_revision_is_not_read(homes: Homes) -> None:
    for node in homes.kits:
        cached(homes.store[node], "org/m", files())
        cached(homes.cache[node], "org/m", files(seed=1), commit=OLDER, refs=("v1",))
    await homes.launched()
    assert [mounted(homes.created(node)) for node in homes.kits] == [{}, {}]


@pytest.mark.parametrize("way", ["mp", "ray", "replicas"])
async def test_a_drafter_is_read_from_the_store_beside_a_model_of_another_cache(homes: Homes, way: str) -> None:
    overrides = Overrides(values=(("distributed_executor_backend", way),) if way == "ray" else ())
    spread = Spread(way) if way == "replicas" else None
    plan = plan_cluster(preset(DRAFTED), overrides, PATHS, cluster_of(2), launch_id="l1", spread=spread)
    for node in homes.kits:
        cached(homes.cache[node], "org/m", files())
        cached(homes.store[node], "org/drafter", files(seed=1))
        homes[node].docker.on_start = lambda _, node=node: homes[node].api.serve()  # type: ignore[misc]
    await homes.launched(record_of(plan, patience=600))
    for node in homes.kits:
        sources = {name: (each.source, each.read_only) for name, each in mounted(homes.created(node)).items()}
        drafter = str(homes.store[node] / "hub/models--org--drafter")
        assert sources == {
            "models--org--m": (str(homes.cache[node] / "hub/models--org--m"), True),
            "models--org--drafter": (drafter, False),
        }
        assert Path(drafter) in homes[node].host.made, "a folder that Docker would make as root"


async def test_a_copy_says_where_the_model_lies_and_how_it_comes_into_the_store(homes: Homes) -> None:
    class Sending:
        def user(self) -> str:
            return "nv"

        def has_rsync(self) -> bool:
            return True

    base = cached(homes.cache[HEAD], "org/m", files())
    kit, store = homes[HEAD], homes.store[HEAD]
    copier = NodeCopier(kit.docker, kit.host, homes.models[HEAD], Sending(), kit.clock, store)  # type: ignore[arg-type]
    found = await copier.inventory(InventoryRequest(model="org/m"))
    assert (found.found, str(base.parent) in found.problem) == (False, True)
