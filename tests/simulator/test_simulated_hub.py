"""The real client of the Hub against the simulated one: cards, refusals and files over HTTP on a private socket, by the
world's clock. Run as a program it records what the demo knows of the checkpoints there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from spark_tui.app.wiring import demo_ports
from spark_tui.base.checkpoint import CheckpointFacts, CheckpointProblem, WeightFormat
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.adapter.hub_client import RemoteFiles
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.hub import Fits, FormatBasis, Gating, RepoFile, SearchQuery, Sort
from spark_tui.catalog.models.use.ports import HubClient
from spark_tui.simulator import facts as facts_module
from spark_tui.simulator.facts import FACTS, SHELF
from spark_tui.simulator.hub import GATED
from spark_tui.simulator.shelf import files_on
from tests.fakes_host import FakeClock

T = TypeVar("T")
TOKEN = Secret("hf_" + "a" * 34)
PARTIAL = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
"""The store has only three of its four files of weights."""
RECORD = ".venv/bin/python -m tests.simulator.test_simulated_hub"
LOOKED_INTO = tuple(repo for repo, *_ in SHELF if "config.json" in files_on(repo))


class Asked:
    """The demo's Hub on a clock of its own."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._ports = demo_ports(clock=self.clock)
        self.client: HubClient = self._ports.get("hub")

    async def answer(self, asked: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(asked)
        await self.clock.until(task.done)
        return task.result()

    async def names(self, query: SearchQuery) -> list[str]:
        return [hit.repo for hit in await self.answer(self.client.search(query))]

    async def inspected(self, repo: str) -> CheckpointFacts:
        found = await self.answer(self.client.inspect(await self.answer(self.client.repo(repo))))
        assert isinstance(found, Ok)
        return found.value


@pytest.fixture
async def hub() -> AsyncIterator[Asked]:
    asked = Asked()
    yield asked
    await asked.client.close()


# --- cards ------------------------------------------------------------------------------------------------


async def test_the_shelf_can_be_searched_and_tells_what_is_too_large(hub: Asked) -> None:
    [hit] = await hub.answer(hub.client.search(SearchQuery("gpt oss-20b")))
    assert (hit.repo, hit.fits, hit.formats.found) == ("openai/gpt-oss-20b", Fits.YES, (WeightFormat.MXFP4,))
    assert (hit.publisher, hit.task, hit.licence, hit.gating) == (
        "openai", "text-generation", "apache-2.0", Gating.OPEN
    )  # fmt: skip
    assert await hub.names(SearchQuery("deepseek", fits=True)) == []
    [large] = await hub.answer(hub.client.search(SearchQuery("deepseek")))
    assert large.fits is Fits.NO
    assert await hub.names(SearchQuery("no such model")) == []


async def test_every_card_has_its_format_and_size_by_its_config(hub: Asked) -> None:
    hits = await hub.answer(hub.client.search(SearchQuery(limit=len(SHELF))))
    forms = {repo: () if form is WeightFormat.OTHER else (form,) for repo, _, _, form, *_ in SHELF}
    assert {hit.repo: hit.formats.found for hit in hits} == forms
    told = {(hit.formats.basis, hit.formats.doubt) for hit in hits if forms[hit.repo]}
    assert told == {(FormatBasis.CONFIG, "")}
    assert {hit.repo: round((hit.weights or 0) / GIB, 1) for hit in hits} == {card[0]: card[1] for card in SHELF}
    now = hub.clock.now()
    assert {hit.repo: round((now - (hit.modified or 0)) / 86_400) for hit in hits} == {
        card[0]: card[6] for card in SHELF
    }


async def test_filters_and_orders_are_those_of_the_query(hub: Asked) -> None:
    nvfp4 = await hub.names(SearchQuery(formats=(WeightFormat.NVFP4,), limit=99))
    assert set(nvfp4) == {repo for repo, _, _, form, *_ in SHELF if form.startswith("NVFP4")}
    assert set(await hub.names(SearchQuery(formats=(WeightFormat.BF16,), limit=99))) == {
        repo for repo, _, _, form, *_ in SHELF if form is WeightFormat.BF16
    }
    openai = ["openai/gpt-oss-20b", "openai/gpt-oss-120b"]
    assert await hub.names(SearchQuery(publisher="OpenAI")) == openai
    assert await hub.names(SearchQuery(limit=2)) == openai
    latest = min(SHELF, key=lambda card: card[6])
    assert await hub.names(SearchQuery(sort=Sort.UPDATED, limit=1)) == [latest[0]]


async def test_a_card_has_the_files_that_a_download_fetches(hub: Asked) -> None:
    for repo in ("openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3.2"):
        card = await hub.answer(hub.client.repo(repo))
        assert {file.path: file.size for file in card.files} == {
            path: file.size for path, file in files_on(repo).items()
        }
        assert card.page == f"https://hub.invalid/{repo}"
        assert len(card.commit) == 40


# --- refusals ---------------------------------------------------------------------------------------------


async def test_what_is_gated_or_missing_is_refused_as_the_hub_does_it(hub: Asked) -> None:
    [gated] = GATED
    card = await hub.answer(hub.client.repo(gated))
    assert card.gating is Gating.AUTO
    for token, words in ((None, "log in"), (TOKEN, "your token's account")):
        with pytest.raises(hub_errors.HubGated) as refused:
            await hub.answer(hub.client.access(gated, token))
        assert f"https://hub.invalid/{gated}" in refused.value.remedy
        assert words in refused.value.remedy
    with pytest.raises(hub_errors.HubGated):
        await hub.answer(hub.client.inspect(replace(card, files=(RepoFile("config.json", 9),))))
    await hub.answer(hub.client.access("openai/gpt-oss-20b"))
    for name in ("no/such", "such"):
        for token in (None, TOKEN):
            with pytest.raises(hub_errors.HubRepoMissing):
                await hub.answer(hub.client.repo(name, token=token))


async def test_a_file_that_is_not_there_is_named(hub: Asked) -> None:
    card = await hub.answer(hub.client.repo("deepseek-ai/DeepSeek-V3.2"))
    assert isinstance(await hub.answer(hub.client.inspect(card)), Missing)
    with pytest.raises(hub_errors.HubFileMissing):
        await hub.answer(hub.client.inspect(replace(card, files=(RepoFile("config.json", 9),))))


# --- files ------------------------------------------------------------------------------------------------


async def as_read(hub: Asked, repo: str) -> CheckpointFacts:
    """What the demo is to know of a checkpoint: what the client reads of it, with what the store and its card say."""
    found, known = await hub.inspected(repo), FACTS[repo]
    assert (found.findings, found.weights is not None and found.weights.complete) == ((), True), repo
    here = found.weights if repo != PARTIAL or found.weights is None else replace(found.weights, complete=False)
    return replace(found, weights=here, findings=known.findings, source=known.source, licence=known.licence)


async def test_the_demo_knows_of_a_checkpoint_what_is_read_from_its_files(hub: Asked) -> None:
    assert len(LOOKED_INTO) > 10
    for repo in LOOKED_INTO:
        assert await as_read(hub, repo) == FACTS[repo], f"{repo}. Record it again: {RECORD}"


async def test_of_a_model_that_is_known_by_its_card_no_file_begins(hub: Asked) -> None:
    card = await hub.answer(hub.client.repo("deepseek-ai/DeepSeek-V3.2"))
    weights = next(file.path for file in card.files if file.path.endswith(".safetensors"))
    files = RemoteFiles(card, "https://hub.invalid", None)
    assert isinstance(await hub.answer(in_thread(files.header, weights)), CheckpointProblem)


async def test_an_answer_takes_its_time_once_for_each_question(hub: Asked) -> None:
    async def seconds(asked: Coroutine[Any, Any, object]) -> float:
        began = hub.clock.now()
        await hub.answer(asked)
        return round(hub.clock.now() - began, 1)

    card = await hub.answer(hub.client.repo("openai/gpt-oss-120b"))
    for asked in (hub.client.search(SearchQuery("qwen")), hub.client.repo(card.repo), hub.client.inspect(card)):
        assert await seconds(asked) == 0.4
    assert await seconds(hub.client.access(card.repo)) == 0


# --- this machine alone -----------------------------------------------------------------------------------


async def test_nothing_leaves_the_machine_whatever_the_environment_says(
    hub: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert await hub.names(SearchQuery("gpt-oss-20b")) == ["openai/gpt-oss-20b"]


async def test_what_the_library_asks_for_itself_stays_here_and_is_not_kept(
    hub: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With its first request of a process it asks huggingface.co for a list, and keeps that in the person's cache."""
    monkeypatch.setattr("huggingface_hub.utils._detect_agent._registry", None)
    monkeypatch.setattr("huggingface_hub.constants.AGENT_HARNESSES_PATH", str(tmp_path / "kept.json"))
    began = hub.clock.now()
    assert await hub.names(SearchQuery("gpt-oss-20b")) == ["openai/gpt-oss-20b"]
    assert round(hub.clock.now() - began, 1) == 0.4
    assert not (tmp_path / "kept.json").exists()


async def test_two_simulated_hubs_are_asked_each_on_its_own_socket(hub: Asked) -> None:
    other = Asked()
    for asked in (hub, other, hub):
        assert len(await asked.names(SearchQuery("gpt-oss"))) == 2
    await other.client.close()


async def record() -> None:
    """Writes simulator/data/facts.json again."""
    hub = Asked()
    found = FACTS | {repo: await as_read(hub, repo) for repo in LOOKED_INTO}
    lines = (f"{encode(name).decode()}: {encode(facts).decode()}" for name, facts in found.items())
    (Path(facts_module.__file__).parent / "data/facts.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(record())
