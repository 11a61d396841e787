"""The table of what is published, as a command and as a page; other machines' figures are no Spark's."""

from __future__ import annotations

import json
from statistics import median

import pytest

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.engine.runtimes import Reference, family, published_facts, published_of, published_words
from spark_tui.observe.results.model.compare import beside, why_not_beside
from spark_tui.observe.results.show import figures_table, of_linear
from spark_tui.tui.format import UNICODE
from spark_tui.tui.widgets.row_list import RowList
from tests.bench_kit import a_run
from tests.cli.world import World
from tests.tui.kit import SIZES
from tests.tui.quiet import text_of, until


def told(*words: str) -> dict[str, list[dict[str, object]]]:
    done = World().run("references", *words, "--json")
    assert done.code == 0, done.err
    found: dict[str, list[dict[str, object]]] = json.loads(done.out)
    return found


def figure(**values: object) -> Reference:
    given = {"model": "a/B-1", "quantization": "NVFP4", "decode_rate": 40.0, "source": "guide", "date": "2026"}
    return Reference(**(given | values))  # type: ignore[arg-type]


# --- the table ----------------------------------------------------------------------------------------------


def test_a_figure_of_another_machine_is_nothing_that_a_spark_is_held_to() -> None:
    known = published_facts()
    elsewhere = [each for each in known.figure if each.machine]
    assert len(elsewhere) > 40 and not any(each.alone for each in elsewhere)
    run = a_run("a", (1, (40.0, 41.0)), (16, (190.0, 191.0)))
    assert not {id(each.reference) for each in beside(run, known.figure, known.source)} & set(map(id, elsewhere))
    assert {why_not_beside(run, each) for each in elsewhere} >= {"of an RTX PRO 6000", "of an RTX 4090"}
    for each in elsewhere:
        assert f"{each.decode_rate:g}" not in dict(published_words(each.model)).get("published", "").split()


def test_the_knee_is_where_its_source_has_it_and_scaling_is_of_linear() -> None:
    knees = {each.model: (each.streams, each.decode_rate) for each in published_facts().figure if each.knee}
    assert knees["gpt-oss-20b-MXFP4"] == (16, 1783) and knees["Nemotron-Super-49B-NVFP4"] == (128, 3269)
    alone, eight, other = figure(), figure(streams=8, decode_rate=160), figure(streams=8, version="0.19")
    assert of_linear((alone, eight, other, figure(streams=0, scaling=36.5))) == (None, 50, None, 36.5)


def test_the_first_token_is_known_by_prompt_and_prefill_of_one_stream() -> None:
    assert figure(prefill_rate=2000.0, input_tokens=1000).first_token == 0.5
    assert figure(prefill_rate=2000.0).first_token is None
    assert figure(prefill_rate=2000.0, input_tokens=1000, streams=2).first_token is None


def test_what_contradicts_a_claim_stands_in_the_table() -> None:
    """TensorRT-LLM is said to be 1.1 times as fast as vLLM: of the figures that its source has of both, most differ."""
    claim = next(each for each in published_facts().claim if "1.1" in each.says)
    ratios = []
    for model in claim.models:
        for each in published_of(model).figure:
            for other in published_of(model).figure:
                same = family(each.model) == family(other.model) and each.quantization == other.quantization
                ours = each.alone and other.alone and each.source == other.source == claim.source
                if same and ours and (each.runtime, other.runtime) == ("trtllm", "vllm"):
                    assert f"{each.decode_rate:g}" in claim.dispute and f"{other.decode_rate:g}" in claim.dispute
                    ratios.append(each.decode_rate / other.decode_rate)
    assert len(ratios) >= 4 and median(ratios) < 1


def test_accuracy_is_a_share_and_the_full_precision_is_near() -> None:
    for each in published_facts().accuracy:
        assert each.scores
        for values in each.scores.values():
            assert 1 <= len(values) <= 2 and all(0 < value < 100 for value in values)
            assert max(values) - min(values) < 4


def test_a_name_of_a_checkpoint_stands_for_its_others() -> None:
    assert published_of("/models/gemma4-coder").accuracy == published_of(
        "sakamakismile/gemma-4-12B-coder-fable5-composer2.5-MTP-NVFP4"
    ).accuracy != ()  # fmt: skip


# --- the command --------------------------------------------------------------------------------------------


def test_the_list_is_of_all_and_is_narrowed_by_words_and_engine() -> None:
    everything = told("list")
    assert len(everything["figures"]) == len(published_facts().figure) == len(told()["figures"])
    assert len(everything["accuracy"]) == len(published_facts().accuracy)
    found = told("list", "QWEN3", "80b", "--engine", "trtllm")["figures"]
    assert found and {each["engine"] for each in found} == {"trtllm"}
    assert all("80B" in str(each["model"]) for each in found)


def test_a_model_is_shown_in_all_its_formats_with_its_sources() -> None:
    found = told("show", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    assert {each["format"] for each in found["figures"]} == {"BF16", "FP8", "NVFP4"}
    assert found["kv_cache"] and found["accuracy"] and "forum" in found["sources"]
    assert told("show", "nemotron-3-nano-30b")["kv_cache"] == found["kv_cache"], "words of a name find it too"


def test_of_what_nothing_is_published_it_says_so() -> None:
    for words in (("show", "acme/none"), ("list", "none-such"), ("list", "gemma", "--engine", "ollama")):
        done = World().run("references", *words)
        assert done.code == 2 and "references list" in done.err


def test_many_streams_that_are_not_counted_are_not_zero() -> None:
    found = figure(streams=0)
    assert figures_table((found,)).rows[0][4].text == "many"
    assert any(each["streams"] is None for each in told("list")["figures"])


# --- the page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_the_page_is_reached_from_bench_and_filtered(size: tuple[int, int]) -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=size) as pilot:
        await pilot.press("7", "t")
        await until(app, lambda: "Models" in text_of(app) and "Speeds" in text_of(app))
        await pilot.press("slash", *"nano-30b", "enter")
        await until(app, lambda: "1 of " in text_of(app))
        assert "Nano-30B" in app.screen.query_one(RowList).key
        await pilot.press("tab", *["pagedown"] * 12)
        await until(app, lambda: "vlaicu.io" in text_of(app), "the sources are the end of the page")
        await pilot.press("escape", "escape", "escape")
        await until(app, lambda: "[7 Bench]" in text_of(app))
