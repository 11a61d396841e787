"""The real huggingface_hub client against a Hub on this machine: answers, refusals, bad days, hostile files."""

from __future__ import annotations

import itertools
import json
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.adapter.hub_client import HuggingFaceHub
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.hub import Fits, FormatBasis, Gating, SearchQuery
from tests.api_fixtures import packed_blanks
from tests.hub_server import COMMIT, CONFIG, TOKEN, Content, Fault, Flood, HubServer, Repo, add_checkpoint, header_of

GOOD = Secret(TOKEN)


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
async def hub(server: HubServer) -> AsyncIterator[HuggingFaceHub]:
    client = HuggingFaceHub({**os.environ, "HF_ENDPOINT": server.url})
    yield client
    await client.close()


@pytest.fixture
def tiny(server: HubServer, tmp_path: Path) -> Repo:
    repo = server.repo("acme/tiny")
    add_checkpoint(repo, tmp_path / "source", shards=2, shard_bytes=1 << 16)
    return repo


# --- looking ----------------------------------------------------------------------------------------------


async def test_a_card_with_its_files(hub: HuggingFaceHub, server: HubServer, tiny: Repo) -> None:
    tiny.info = {
        "downloads": 1234, "likes": 7, "lastModified": "2026-03-01T00:00:00.000Z", "pipeline_tag": "text-generation",
        "safetensors": {"parameters": {"BF16": 10**9, "U8": 10**10}, "total": 11 * 10**9},
        "cardData": {"license": "other", "license_name": "acme-open", "license_link": "LICENSE",
                     "base_model": "acme/b"},
        "config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "usedStorage": 5,
    }  # fmt: skip
    facts = await hub.repo("acme/tiny")
    assert (facts.commit, facts.publisher, facts.downloads, facts.gating) == (COMMIT, "acme", 1234, Gating.OPEN)
    assert (facts.licence, facts.licence_link) == ("acme-open", f"{server.url}/acme/tiny/blob/main/LICENSE")
    assert (facts.formats.found, facts.formats.basis) == ((WeightFormat.NVFP4,), FormatBasis.CONFIG)
    assert (facts.weights, facts.fits, facts.base_models) == (12 * 10**9, Fits.YES, ("acme/b",))
    sizes = {file.path: file.size for file in facts.files}
    assert sizes["model-00001-of-00002.safetensors"] == tiny.files["model-00001-of-00002.safetensors"].size
    assert facts.size == sum(content.size for content in tiny.files.values())
    large = next(file for file in facts.files if file.sha256)
    assert large.digest == tiny.files[large.path].sha256


async def test_search_filters_by_format_size_and_publisher(hub: HuggingFaceHub, server: HubServer) -> None:
    def model(name: str, **info: object) -> None:
        server.repo(name, info=info)

    def weights(count: int) -> dict[str, object]:
        return {"parameters": {"U8": count}, "total": count}

    model("nvidia/Big-NVFP4", downloads=5, safetensors=weights(200 * 10**9))
    model("nvidia/Small-NVFP4", downloads=9, safetensors=weights(20 * 10**9))
    model("fan/small-quant", downloads=99, tags=["nvfp4"], safetensors=weights(10**9))
    model("fan/small-FP8", downloads=50, safetensors={"parameters": {"F8_E4M3": 10}, "total": 10})
    found = await hub.search(SearchQuery(formats=(WeightFormat.NVFP4,)))
    assert [each.repo for each in found] == ["fan/small-quant", "nvidia/Small-NVFP4", "nvidia/Big-NVFP4"]
    found = await hub.search(SearchQuery(formats=(WeightFormat.NVFP4,), publisher="nvidia", fits=True))
    assert [each.repo for each in found] == ["nvidia/Small-NVFP4"]
    assert await hub.search(SearchQuery("nothing of that name")) == ()


async def test_odd_shapes_count_as_not_told(hub: HuggingFaceHub, server: HubServer) -> None:
    server.repo("acme/odd", info={
        "downloads": "many", "likes": -3, "tags": [1, "fp8", "\x1b[31mred"], "gguf": [], "config": "none",
        "safetensors": {"parameters": {"BF16": "x", "F32": True}, "total": 0}, "pipeline_tag": {"a": 1}, "gated": "odd",
    })  # fmt: skip
    (found,) = await hub.search(SearchQuery("odd"))
    assert (found.downloads, found.likes, found.weights, found.task) == (None, None, None, "")
    assert found.formats.found == (WeightFormat.FP8,)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repo", "revision", "token", "expected"),
    [
        ("acme/none", "main", None, hub_errors.HubRepoMissing),
        ("acme/none", "main", GOOD, hub_errors.HubRepoMissing),
        ("acme/private", "main", None, hub_errors.HubRepoMissing),
        ("acme/tiny", "v9", None, hub_errors.HubRevisionMissing),
        ("acme/tiny", "main", Secret("hf_wrong"), hub_errors.HubTokenRejected),
        ("not a name", "main", None, hub_errors.HubRepoMissing),
        ("../../etc", "main", None, hub_errors.HubRepoMissing),
    ],
)
async def test_each_refusal_is_its_own(
    hub: HuggingFaceHub, server: HubServer, tiny: Repo, repo: str, revision: str, token: Secret | None,
    expected: type[Exception],
) -> None:  # fmt: skip
    server.repo("acme/private", private=True)
    with pytest.raises(expected):
        await hub.repo(repo, revision, token)


async def test_a_gated_repository_can_be_looked_at_and_not_had(hub: HuggingFaceHub, server: HubServer) -> None:
    server.repo("acme/gated", gated="manual").put("config.json", b"{}")
    assert (await hub.repo("acme/gated")).gating is Gating.MANUAL
    with pytest.raises(hub_errors.HubGated) as anonymous:
        await hub.access("acme/gated")
    assert f"{server.url}/acme/gated" in anonymous.value.remedy
    await hub.access("acme/gated", GOOD)
    server.granted = False
    with pytest.raises(hub_errors.HubGated) as known:
        await hub.access("acme/gated", GOOD)
    assert "your token's account" in known.value.remedy


async def test_a_busy_or_absent_hub_is_an_error_at_once(hub: HuggingFaceHub, server: HubServer) -> None:
    began = time.monotonic()
    server.status = 429
    with pytest.raises(hub_errors.HubBusy) as busy:
        await hub.search(SearchQuery("x"))
    assert busy.value.wait == 1.0
    server.status = 503
    with pytest.raises(hub_errors.HubBusy):
        await hub.repo("acme/tiny")
    client = HuggingFaceHub({"HF_ENDPOINT": "http://127.0.0.1:9"})
    with pytest.raises(hub_errors.HubOffline) as offline:
        await client.search(SearchQuery("x"))
    assert "127.0.0.1:9" in offline.value.summary
    await client.close()
    assert time.monotonic() - began < 8, "the client itself never waits"


async def test_something_that_is_no_hub_is_named_so(hub: HuggingFaceHub, server: HubServer) -> None:
    server.repos["acme/odd"] = Repo(info={"siblings": 7})
    with pytest.raises(hub_errors.HubFailed) as found:
        await hub.repo("acme/odd")
    assert "HF_ENDPOINT" in found.value.remedy


# --- inspecting -------------------------------------------------------------------------------------------


async def test_a_checkpoint_is_understood_without_its_tensors(
    hub: HuggingFaceHub, server: HubServer, tiny: Repo
) -> None:
    tiny.put("tokenizer_config.json", json.dumps({"chat_template": "{% if tools %}<tool_call>{% endif %}"}).encode())
    facts = await hub.repo("acme/tiny")
    asked = sum(each.size for each in tiny.files.values())
    before = server.sent
    reading = await hub.inspect(facts)
    assert isinstance(reading, Ok)
    found = reading.value
    assert (found.architecture, found.weights.complete if found.weights else None) == ("Qwen3ForCausalLM", True)
    assert found.weights is not None
    assert found.weights.size == 2 * (1 << 16)
    assert found.chat is not None
    assert found.chat.tools
    assert (found.findings, COMMIT[:12] in found.source) == ((), True)
    assert server.sent - before <= asked
    assert all(each.range for each in server.requests if "/resolve/" in each.path)


async def test_a_large_header_takes_two_requests_and_no_more_bytes(
    hub: HuggingFaceHub, server: HubServer, tmp_path: Path
) -> None:
    tensors = {f"model.layers.0.block.{at:06d}.weight": ("BF16", [32], 64) for at in range(6000)}
    header = header_of(tensors)
    path = tmp_path / "model.safetensors"
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(len(header) + 6000 * 64)
    repo = server.repo("acme/wide")
    repo.files["model.safetensors"] = Content(path=path, lfs=True)
    repo.put("config.json", json.dumps(CONFIG).encode())
    reading = await hub.inspect(await hub.repo("acme/wide"))
    assert isinstance(reading, Ok)
    assert reading.value.weights is not None
    assert reading.value.weights.tensors == 6000
    assert len([each for each in server.requests if each.cdn]) == 2


HOSTILE = {  # more of them in tests/catalog/models/test_safetensors_header.py
    "2^63": (1 << 63).to_bytes(8, "little") + b"{}",
    "beyond the file": (1 << 20).to_bytes(8, "little") + b"{}",
    "empty": b"",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_header_is_a_finding(hub: HuggingFaceHub, server: HubServer, data: bytes) -> None:
    repo = server.repo("acme/hostile")
    repo.put("config.json", json.dumps(CONFIG).encode())
    repo.put("model.safetensors", data, lfs=True)
    reading = await hub.inspect(await hub.repo("acme/hostile"))
    assert isinstance(reading, Ok)
    assert reading.value.findings
    assert reading.value.weights is None
    assert server.sent < 1 << 20


@pytest.mark.parametrize(
    ("config", "why"), [(b"[]", "config.json"), (b"{", "config.json"), (b"\xff", "UTF-8"), (None, "no config.json")]
)
async def test_without_a_config_there_is_a_reason(
    hub: HuggingFaceHub, server: HubServer, config: bytes | None, why: str
) -> None:
    repo = server.repo("acme/x")
    repo.put("README.md", b"#")
    if config is not None:
        repo.put("config.json", config)
    reading = await hub.inspect(await hub.repo("acme/x"))
    assert isinstance(reading, Missing)
    assert why in reading.reason


async def test_a_shard_that_is_missing_is_a_finding_and_a_server_without_ranges_is_read(
    hub: HuggingFaceHub, server: HubServer, tiny: Repo
) -> None:
    facts = await hub.repo("acme/tiny")
    server.always = Fault(whole=True)
    assert isinstance(await hub.inspect(facts), Ok)
    server.always = None
    del tiny.files["model-00002-of-00002.safetensors"]
    reading = await hub.inspect(await hub.repo("acme/tiny"))
    assert isinstance(reading, Ok)
    assert "model-00002-of-00002.safetensors: is not in the repository" in reading.value.findings


async def test_the_token_never_leaves_the_hub(hub: HuggingFaceHub, server: HubServer, tiny: Repo) -> None:
    await hub.inspect(await hub.repo("acme/tiny", "main", GOOD), GOOD)
    assert any(each.token for each in server.requests if not each.cdn)
    assert [each for each in server.requests if each.cdn]
    assert not any(each.token for each in server.requests if each.cdn)


# --- answers without an end -----------------------------------------------------------------------------------

BLANKS = b" " * (1 << 20)
BOUND = 64 * 1024 * 1024


GZIP = {"Content-Encoding": "gzip"}
FLOODS: dict[str, Callable[[str], Flood]] = {
    "no end": lambda _: Flood(itertools.repeat(BLANKS)),
    "compressed": lambda _: Flood([packed_blanks(500)], GZIP),
    "of a refusal": lambda _: Flood(itertools.repeat(BLANKS), status=404),
    "of a redirect": lambda url: Flood(itertools.repeat(BLANKS), {"Location": f"{url}/"}, 302),
    "compressed redirect": lambda url: Flood(
        [packed_blanks(500)], {"Content-Encoding": "gzip", "Location": f"{url}/"}, 302
    ),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_an_answer_is_read_up_to_a_limit(
    hub: HuggingFaceHub, server: HubServer, flood: Callable[[str], Flood]
) -> None:
    server.flood = flood(server.url)
    tracemalloc.start()
    try:
        with pytest.raises(hub_errors.HubFailed) as caught:
            await hub.repo("acme/tiny")
        assert tracemalloc.get_traced_memory()[1] < 2 * BOUND
    finally:
        tracemalloc.stop()
    assert caught.value.remedy
    assert server.sent < 4 * BOUND, "what the sockets of twenty redirects hold, and no more"


async def test_who_sent_too_much_is_named(hub: HuggingFaceHub, server: HubServer) -> None:
    server.flood = Flood(itertools.repeat(BLANKS))
    with pytest.raises(hub_errors.HubFailed) as caught:
        await hub.repo("acme/tiny")
    assert caught.value.summary == f"{server.url.removeprefix('http://')} sent more than 16.0 MiB as one answer."


def dribble() -> Iterator[bytes]:
    while True:
        yield b" "
        time.sleep(0.02)


@pytest.mark.parametrize(
    "flood",
    [lambda _: Flood(dribble()), lambda url: Flood([b"[]"], {"Link": f'<{url}/api/models?cursor=x>; rel="next"'})],
    ids=["byte by byte", "page by page"],
)
async def test_the_answers_to_a_question_have_an_end(server: HubServer, flood: Callable[[str], Flood]) -> None:
    hub = HuggingFaceHub({**os.environ, "HF_ENDPOINT": server.url}, seconds=0.5)
    server.flood = flood(server.url)
    with pytest.raises(hub_errors.HubOffline):
        await hub.search(SearchQuery())
    await hub.close()
