"""Proofs of models that answer with vectors or scores: dimension, and the order of three known pairs, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_tui.base.engine.runtimes import is_pooling
from spark_tui.observe.results.model.proof import Proof, Verdict
from tests.cases import all_cases
from tests.use.prove.one_answer import OneAnswerServer
from tests.use.prove.test_prove_use import Lab

WORDS = ("bread", "bake", "dough", "france", "paris", "capital", "ship", "float", "hull")
POOLING = ("--runner", "pooling", "--convert", "embed")


def embed(text: str) -> list[float]:
    """By the words that it knows; the last place is the same for all texts."""
    return [float(word in text.lower()) for word in WORDS] + [0.1]


def vectors(body: dict[str, Any], fault: str) -> dict[str, Any]:
    found = [embed(text) for text in body["input"]]
    if fault == "other order":
        found = found[: len(found) // 2] + found[len(found) // 2 :][::-1]
    if fault == "zeros":
        found[0] = [0.0] * len(found[0])
    if fault == "two lengths":
        found[-1] = found[-1][:-1]
    if fault == "one missing":
        found = found[:-1]
    data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(found)]
    return {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 9}}


def scores(body: dict[str, Any], fault: str) -> dict[str, Any]:
    asked = embed(body["query"])
    found = [sum(a * b for a, b in zip(asked, embed(text), strict=True)) for text in body["documents"]]
    if fault == "other order":
        found = [-each for each in found]
    return {"results": [{"index": at, "relevance_score": each} for at, each in enumerate(found)][::-1]}


class PoolingServer(OneAnswerServer):
    """An engine of vectors, of scores or of both; `fault` names what is wrong with it."""

    def __init__(self, *paths: str, fault: str = "") -> None:
        self.paths, self.fault = paths, fault

    def answer(self, path: str, head: bytes, body: bytes) -> tuple[str, object]:
        if path not in self.paths:
            return "400 Bad Request", {"error": {"message": "The model does not support this API"}}
        return "200 OK", (vectors if path.endswith("embeddings") else scores)(json.loads(body), self.fault)


async def prove(*paths: str, fault: str = "") -> Proof:
    async with PoolingServer(*paths, fault=fault).running() as server:
        lab = Lab(server, *POOLING)
        try:
            return await lab.prove()
        finally:
            await lab.context.close()


async def test_an_engine_of_vectors_is_proved_by_dimension_and_order() -> None:
    proof = await prove("/v1/embeddings")
    assert {case.id: case.verdict for case in proof.cases} == {
        "embeddings.dimension": Verdict.PASS,
        "embeddings.order": Verdict.PASS,
        "rerank.order.1": Verdict.SKIP,
        "rerank.order.2": Verdict.SKIP,
        "rerank.order.3": Verdict.SKIP,
    }
    assert "10 dimensions" in proof.cases[0].evidence
    assert proof.complete


async def test_an_engine_of_scores_is_proved_by_the_order_of_three_pairs() -> None:
    proof = await prove("/v1/rerank")
    assert proof.ids(Verdict.PASS) == ("rerank.order.1", "rerank.order.2", "rerank.order.3")
    assert proof.ids(Verdict.SKIP) == ("embeddings.dimension", "embeddings.order")


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("other order", {"embeddings.order", "rerank.order.1", "rerank.order.2", "rerank.order.3"}),
        ("zeros", {"embeddings.dimension", "embeddings.order"}),
        ("two lengths", {"embeddings.dimension", "embeddings.order"}),
        ("one missing", {"embeddings.dimension", "embeddings.order"}),
    ],
)
async def test_each_planted_fault_of_vectors_is_caught(fault: str, failed: set[str]) -> None:
    assert set((await prove("/v1/embeddings", "/v1/rerank", fault=fault)).ids(Verdict.FAIL)) == failed


@all_cases(
    ("words", "pooling"),
    [
        ("vllm serve x --runner pooling --convert embed", True),
        ("vllm serve x --runner=pooling", True),
        ("python -m sglang.launch_server --model x --is-embedding", True),
        ("llama-server -m x.gguf --embeddings", True),
        ("llama-server -m x.gguf --reranking", True),
        ("vllm serve x --runner generate", False),
        ("vllm serve x --served-model-name embeddings", False),
    ],
)
def test_an_engine_without_text_is_told_by_its_options(words: str, pooling: bool) -> None:
    assert is_pooling(words.split()) is pooling
