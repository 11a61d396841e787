"""Excerpts from public threads are explained as well as before: scripts/score_logs.py shows what is missed."""

from __future__ import annotations

import re

from tests.log_score import EXCERPTS, EXPECTED, explained, marks, shares

SCORE = {"outcome": 581, "phase": 240, "verdict": 611, "cause": 575, "line": 573, "remedy": 164, "findings": 126}
"""How many of each facet are right. A higher number is written here too, so that it cannot fall again."""


def test_the_score_does_not_fall() -> None:
    found = shares([mark for name in EXPECTED for mark in marks(name)])
    assert {facet: right for facet, (right, _) in found.items()} == SCORE


def test_each_excerpt_names_its_thread_and_is_labelled() -> None:
    files = {path.stem: path.read_bytes() for path in EXCERPTS.glob("*.log")}
    assert files.keys() == EXPECTED.keys()
    assert all(text.startswith(b"SOURCE: https://") for text in files.values())
    assert all({"outcome", "cause", "line"} <= facts.keys() for facts in EXPECTED.values())


def test_remedies_have_no_option_of_vllm_for_another_engine() -> None:
    foreign = re.compile(r"vLLM|gpu_memory_utilization|enforce_eager|max_model_len|max_num_seqs|tensor_parallel_size")
    others = [told for told in map(explained, EXPECTED) if told.engine not in ("", "vllm")]
    advice = [(told.engine, each) for told in others for each in (told.cause, *told.findings) if each is not None]
    assert len({engine for engine, _ in advice}) >= 4 and len(advice) > 40
    for engine, each in advice:
        own = each.remedy.removeprefix("Serve the model with vLLM")  # another engine is no option of it
        assert not foreign.search(own), (engine, each.remedy)
        assert not any(foreign.fullmatch(key) for key, _ in each.change)
