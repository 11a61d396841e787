"""What a checkpoint is, as labelled rows: unknown values have none."""

from __future__ import annotations

import pytest

from spark_tui.base.checkpoint import CheckpointFacts, Quantization, WeightFormat
from spark_tui.catalog.models.model.inspection import inspect
from spark_tui.catalog.models.show.inspection import inspection_rows
from spark_tui.simulator.facts import FACTS as KNOWN
from tests.cases import all_cases


def test_of_a_checkpoint_that_tells_nothing_nothing_is_made_up() -> None:
    assert inspection_rows(inspect(CheckpointFacts())) == (("chat", "no chat template"),)


@all_cases("name", KNOWN)
def test_no_line_is_empty_and_each_label_fits_its_column(name: str) -> None:
    for label, value in inspection_rows(inspect(KNOWN[name], name)):
        assert value.strip() == value != ""
        assert len(label) <= 12


def test_what_stays_wide_and_what_that_costs_per_token_is_told() -> None:
    rows = dict(inspection_rows(inspect(KNOWN["openai/gpt-oss-120b"])))
    assert rows["weights"].startswith("MXFP4 (mxfp4), 60.")
    assert "GiB of them 16 bits wide" in rows["decode"]
    assert rows["unquantized"] == "self_attn, lm_head, embed_tokens"
    assert rows["KV cache"] == "36.0 KiB per token in bfloat16"
    assert rows["parsers"].endswith("--tool-call-parser openai")


@pytest.mark.parametrize(
    ("here", "words"),
    [(None, "weights unknown"), (0, "weights missing"), (1, "weights included")],
)
def test_layers_for_drafting_are_told_as_they_are_found(here: int | None, words: str) -> None:
    rows = dict(inspection_rows(inspect(CheckpointFacts(mtp_declared=1, mtp_layers=here))))
    assert words in rows["drafting"]


def test_a_long_list_of_exceptions_is_cut() -> None:
    many = Quantization("modelopt", (WeightFormat.NVFP4,), tuple(f"layer.{at}" for at in range(200)))
    rows = dict(inspection_rows(inspect(CheckpointFacts(quantization=many))))
    assert rows["unquantized"].endswith("layer.5 and 194 more")
