"""What the Hub's words mean on a Spark: formats, fits, filters, which files, errors with remedies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.errors import ExitCode, SparkError
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.hub import (
    Fits,
    FormatBasis,
    RepoFile,
    SearchHit,
    SearchQuery,
    Sort,
    asked,
    formats_of,
    matches,
    ranked,
    select,
    weights_of,
)
from tests.cases import all_cases

NVFP4, FP8 = WeightFormat.NVFP4, WeightFormat.FP8


def hit(repo: str = "acme/a", **values: object) -> SearchHit:
    return SearchHit(repo, repo.partition("/")[0], **values)  # type: ignore[arg-type]


# --- formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tags", "dtypes", "stated", "found", "basis"),
    [
        ("nvidia/Qwen3.6-27B-NVFP4", (), (), (), (NVFP4,), FormatBasis.NAME),
        ("acme/x", ("fp8", "safetensors"), (), (), (FP8,), FormatBasis.TAGS),
        ("acme/x-NVFP4", ("fp8",), (), (FP8, NVFP4), (FP8, NVFP4), FormatBasis.CONFIG),
        ("openai/gpt-oss-120b", ("mxfp4", "8-bit"), (), (), (WeightFormat.MXFP4,), FormatBasis.TAGS),
        ("acme/plain", (), (("BF16", 10),), (), (WeightFormat.BF16,), FormatBasis.CONFIG),
        ("acme/plain", ("dataset:nvfp4-prompts", "arxiv:2209.05433"), (), (), (), FormatBasis.UNKNOWN),
        ("acme/x-FP8", (), (), (WeightFormat.OTHER,), (FP8,), FormatBasis.NAME),
    ],
)
def test_a_format_is_known_by_config_then_tags_then_name(
    name: str, tags: tuple[str, ...], dtypes: tuple[tuple[str, int], ...], stated: tuple[WeightFormat, ...],
    found: tuple[WeightFormat, ...], basis: FormatBasis,
) -> None:  # fmt: skip
    formats = formats_of(name, tags, dtypes, stated)
    assert (formats.found, formats.basis) == (found, basis)


def test_a_name_that_its_tensors_belie_is_doubted() -> None:
    assert "BF16" in formats_of("acme/Big-NVFP4", (), (("BF16", 10**9),)).doubt
    assert not formats_of("acme/Big-NVFP4", (), (("U8", 10**9), ("BF16", 10**6))).doubt
    assert formats_of("acme/Big-FP8", (), (("BF16", 10**9),)).doubt


# --- sizes ------------------------------------------------------------------------------------------------


def test_weights_are_counted_by_dtype() -> None:
    assert weights_of((("BF16", 1000), ("U8", 500), ("F8_E4M3", 100))) == 2600
    assert weights_of(()) is None
    assert weights_of((("MADE_UP", 5),)) is None


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        (None, Fits.UNKNOWN), (20 * GIB, Fits.YES), (75 * GIB, Fits.YES), (102 * GIB, Fits.TIGHT),
        (107 * GIB, Fits.NO), (240 * GIB, Fits.NO),
    ],
)  # fmt: skip
def test_what_one_spark_holds(size: int | None, fits: Fits) -> None:
    assert hit(weights=size).fits is fits


# --- search -----------------------------------------------------------------------------------------------


@all_cases(
    ("given", "query", "fits"),
    [
        (hit(formats=formats_of("a/x-NVFP4", (), ())), SearchQuery(formats=(NVFP4,)), True),
        (hit(formats=formats_of("a/x-w4a16", (), ())), SearchQuery(formats=(NVFP4,)), True),
        (hit(formats=formats_of("a/x-FP8", (), ())), SearchQuery(formats=(NVFP4,)), False),
        (hit(weights=10), SearchQuery(most_bytes=9), False),
        (hit(weights=9), SearchQuery(most_bytes=9), True),
        (hit(weights=None), SearchQuery(most_bytes=9), True),
        (hit(weights=None), SearchQuery(most_bytes=9, unknown=False), False),
        (hit(weights=300 * GIB), SearchQuery(fits=True), False),
        (hit(weights=102 * GIB), SearchQuery(fits=True), True),
        (hit("NVIDIA/x"), SearchQuery(publisher="nvidia"), True),
        (hit("nvidiafan/x"), SearchQuery(publisher="nvidia"), False),
        (hit(gguf=True), SearchQuery(), False),
        (hit(gguf=True), SearchQuery(gguf=True), True),
    ],
)
def test_filters(given: SearchHit, query: SearchQuery, fits: bool) -> None:
    assert matches(given, query) is fits


def test_a_format_is_asked_for_by_name_and_by_tag() -> None:
    assert asked(SearchQuery("qwen", (NVFP4,))) == (("qwen NVFP4", ""), ("qwen", "nvfp4"))
    assert asked(SearchQuery("qwen")) == (("qwen", ""),)


def test_each_repository_comes_once_in_the_order_asked_for() -> None:
    hits = [hit("a/1", downloads=5, likes=1), hit("a/2", downloads=9), hit("a/1", downloads=5, likes=1)]
    assert [each.repo for each in ranked(hits, SearchQuery())] == ["a/2", "a/1"]
    assert [each.repo for each in ranked(hits, SearchQuery(sort=Sort.LIKES))] == ["a/1", "a/2"]
    assert [each.repo for each in ranked(hits, SearchQuery(sort=Sort.TRENDING, limit=1))] == ["a/1"]


# --- which files ------------------------------------------------------------------------------------------


def files(*paths: str, size: int = 10**9) -> list[RepoFile]:
    return [RepoFile(path, size) for path in paths]


GPT_OSS = files(
    "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json",
    "original/model--00001-of-00007.safetensors", "metal/model.bin", "LICENSE",
)  # fmt: skip


def paths(found: tuple[RepoFile, ...]) -> list[str]:
    return [file.path for file in found]


def test_gpt_oss_is_fetched_once_not_three_times() -> None:
    found = select(GPT_OSS)
    assert paths(found.files) == [
        "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json",
        "LICENSE",
    ]  # fmt: skip
    assert [each.path for each in found.left_out] == ["original/model--00001-of-00007.safetensors", "metal/model.bin"]
    assert not select(GPT_OSS, everything=True).left_out


def test_pytorch_weights_are_left_out_only_beside_safetensors() -> None:
    assert paths(select(files("model.safetensors", "pytorch_model.bin")).files) == ["model.safetensors"]
    assert paths(select(files("pytorch_model.bin")).files) == ["pytorch_model.bin"]
    assert len(select([*files("model.safetensors"), RepoFile("training_args.bin", 5000)]).files) == 2


@pytest.mark.parametrize(
    ("load_format", "kept"),
    [
        ("mistral", ["consolidated.safetensors"]),
        ("safetensors", ["model-00001-of-00001.safetensors"]),
        ("", ["consolidated.safetensors", "model-00001-of-00001.safetensors"]),
        ("auto", ["consolidated.safetensors", "model-00001-of-00001.safetensors"]),
    ],
)
def test_of_mistrals_two_copies_the_one_that_is_loaded_is_fetched(load_format: str, kept: list[str]) -> None:
    found = select(files("consolidated.safetensors", "model-00001-of-00001.safetensors"), load_format=load_format)
    assert paths(found.files) == kept
    assert bool(found.notes) is (len(kept) == 2)


def test_a_gguf_repository_asks_for_a_choice() -> None:
    held = files("a-Q4_K_M.gguf", "a-Q8_0-00001-of-00002.gguf", "a-Q8_0-00002-of-00002.gguf", "mmproj-a.gguf", size=5)
    found = select(held)
    assert found.choices == (("a-Q4_K_M.gguf", 5), ("a-Q8_0-*.gguf", 10))
    assert not found.files
    assert len(select(held, only=["a-Q8_0-*.gguf"]).files) == 2


def test_a_pattern_that_fits_nothing_is_told() -> None:
    assert select(GPT_OSS, only=["*.json", "missing.py"]).missing == ("missing.py",)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a//b", "a/../b", "", "a\0b", "."])
def test_a_path_that_leaves_its_folder_is_never_fetched(path: str) -> None:
    assert not select(files(path), everything=True).files


@given(st.lists(st.text(max_size=30)), st.lists(st.text(max_size=8), max_size=3), st.booleans())
def test_selecting_never_fails_and_never_invents(names: list[str], only: list[str], everything: bool) -> None:
    found = select(files(*names), only=only, everything=everything)
    assert {file.path for file in found.files} <= set(names)


# --- errors -----------------------------------------------------------------------------------------------

HUB = "https://huggingface.co"
EVERY = [
    hub_errors.offline(HUB, "refused"), hub_errors.switched_off(), hub_errors.busy(HUB, 30.0, known=False),
    hub_errors.in_trouble(HUB, 502), hub_errors.gated(HUB, "acme/x", known=False), hub_errors.bad_token(),
    hub_errors.forbidden(HUB, "acme/x"), hub_errors.repo_missing("acme/x", known=False),
    hub_errors.revision_missing("acme/x", "v2"), hub_errors.file_missing("acme/x", "a.py"),
    hub_errors.too_large("a", 60 * GIB), hub_errors.checksum("a", "1", "2"), hub_errors.no_room("/s", 9, 1),
    hub_errors.disk_full("/s"), hub_errors.not_writable("/s", "Permission denied"), hub_errors.strange_answer(HUB, "x"),
    hub_errors.needs_choice("acme/x", ["a.gguf", "b.gguf"]), hub_errors.nothing_to_load("acme/x"),
]  # fmt: skip


@all_cases("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_failure_has_a_sentence_and_a_way_out_and_survives_another_process(error: SparkError) -> None:
    assert error.summary.endswith(".")
    assert error.remedy
    again = hub_errors.error_named(error.id, error.summary, error.remedy, error.detail)
    assert isinstance(error, type(again))
    assert (again.id, str(again)) == (error.id, str(error))


def test_sentences_differ() -> None:
    assert len({error.summary for error in EVERY}) == len(EVERY)


def test_a_gated_repository_names_the_page_to_accept_on() -> None:
    assert f"{HUB}/acme/x" in hub_errors.gated(HUB, "acme/x", known=True).remedy
    assert "HF_TOKEN" in hub_errors.gated(HUB, "acme/x", known=False).remedy
    assert hub_errors.gated(HUB, "acme/x", known=True).exit_code is ExitCode.REFUSED


def test_names_from_outside_are_cleaned() -> None:
    assert "\x1b" not in hub_errors.repo_missing("a\x1b[31m/b\n", known=True).summary
