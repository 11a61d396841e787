"""Preset drafts: real checkpoints' configs give launchable presets, what is no chat model is refused, and no config
makes a draft fail in another way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, abilities_of
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.model.draft import Draft, DraftBasis, DraftRefused, DraftSource, draft_of
from spark_tui.catalog.models.model.config import facts_from
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import Origin
from spark_tui.catalog.presets.model.recipe import preset_from
from tests import TESTS
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

FOLDER = TESTS / "fixtures" / "models"
MODELS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
PRESETS = SHIPPED_FILES.load().presets
SPARK = 121 * GIB
TEMPLATE = "{% if tools %}<tool_call><function=x>{% endif %}{% if enable_thinking %}<think>{% endif %}"


def facts(config: dict[str, Any], **more: Any) -> CheckpointFacts:
    return facts_from(config, **more)


def draft(model: str, found: CheckpointFacts | None, **more: Any) -> Draft:
    reading = Missing("it has no config.json") if found is None else Ok(found)
    return draft_of(DraftSource(model, reading, "/models/x", memory=SPARK, **more), PRESETS)


def argv(found: Draft) -> str:
    return " ".join(plan(found.preset, Overrides(), HostPaths("/store", "/caches", "/home/x")).spec.command)


def value(found: Draft, key: str) -> Any:
    return next(each for each in found.values if each.key == key)


@all_cases("name", sorted(MODELS))
def test_a_real_checkpoint_gets_a_preset_that_can_be_launched_and_read_back(name: str) -> None:
    config, hf_quant = MODELS[name]["config"], MODELS[name].get("hf_quant")
    repo = f"someone/{MODELS[name]['repo'].rpartition('/')[2]}-build"
    found = draft(repo, facts(config, hf_quant=hf_quant), weights=20 * GIB)
    assert f"vllm serve {repo} " in argv(found)
    again = preset_from(parse(found.text, "mine.yaml"), name=found.name, origin=Origin.USER, file="")
    assert again == found.preset
    assert repo in found.text.splitlines()[0]
    assert {each.key for each in found.values} >= {"container", "max_model_len", "gpu_memory_utilization"}
    assert ("--trust-remote-code" in argv(found)) is ("auto_map" in config)


def test_image_environment_and_drafting_come_from_the_preset_of_the_same_model() -> None:
    config = MODELS["qwen3.6-35b-a3b"]["config"] | {
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    }
    names = ["model.layers.0.x", "mtp.layers.0.y"]
    found = draft("someone/Qwen3.6-35B-A3B-NVFP4", facts(config, tensor_names=names), weights=21 * GIB)
    like = next(each for each in PRESETS if each.name == "qwen3.6-35b-a3b-nvfp4")
    assert found.preset.image == like.image
    assert found.preset.env == like.env
    assert (value(found, "container").basis, value(found, "container").doubt) == (DraftBasis.FAMILY, "")
    assert "--quantization modelopt" in argv(found)
    assert '"method":"mtp"' in argv(found)
    without = draft("someone/Qwen3.6-35B-A3B-NVFP4", facts(config, tensor_names=names[:1]), weights=21 * GIB)
    assert "speculative" not in argv(without)


def test_an_unknown_family_gets_the_usual_image_and_says_that_it_is_a_guess() -> None:
    found = draft("acme/new-1b", facts({"architectures": ["NewForCausalLM"], "model_type": "new"}))
    assert found.preset.image == "vllm/vllm-openai:nightly"
    assert {each.key for each in found.doubts} >= {"container", "max_model_len", "chat_template"}
    assert "--max-model-len" not in argv(found)
    assert all(each.doubt in " ".join(found.preset.facts.cautions) for each in found.doubts)


def test_parsers_are_those_of_the_chat_template_else_of_the_family() -> None:
    config = MODELS["qwen3-32b-nvfp4"]["config"]
    own = replace(facts(config), chat=abilities_of(TEMPLATE, "qwen3"))
    assert "--tool-call-parser qwen3_coder" in argv(draft("acme/Qwen3-32B-x", own))
    by_family = draft("acme/Qwen3-32B-x", facts(config))
    assert "--tool-call-parser hermes" in argv(by_family)
    assert value(by_family, "tool_calls").basis is DraftBasis.FAMILY
    assert value(by_family, "tool_calls").doubt
    plain = replace(facts(config), chat=abilities_of("{{ messages }}", "qwen3"))
    assert "parser" not in argv(draft("acme/Qwen3-32B-x", plain))


def test_the_context_is_the_configs_maximum_bounded_by_what_fits() -> None:
    small = draft("acme/gpt-oss-20b", facts(MODELS["gpt-oss-20b"]["config"]), weights=13 * GIB)
    assert small.preset.default("max_model_len") == 131072
    large = draft("acme/Llama-3.3-70B", facts(MODELS["llama-3.3-70b-instruct"]["config"]), weights=40 * GIB)
    context = large.preset.default("max_model_len")
    assert isinstance(context, int)
    assert 16384 < context < 131072
    assert context % 1024 == 0
    unknown = draft("acme/Llama-3.3-70B", facts(MODELS["llama-3.3-70b-instruct"]["config"]))
    assert unknown.preset.default("max_model_len") == 32768
    assert value(unknown, "max_model_len").doubt
    huge = draft("acme/Llama-3.3-70B", facts(MODELS["llama-3.3-70b-instruct"]["config"]), weights=140 * GIB)
    assert "do not fit" in value(huge, "max_model_len").doubt


@all_cases(
    ("model", "config", "more", "what"),
    [
        ("acme/x", {"architectures": ["DFlashDraftModel"]}, {}, "drafter"),
        ("acme/x", {"architectures": ["XForCausalLM"], "target_layer_ids": [1]}, {}, "target_layer_ids"),
        ("acme/x", {"architectures": ["Qwen3ForSequenceClassification"]}, {}, "classifier"),
        ("acme/X-Reranker", {"architectures": ["XForCausalLM"]}, {}, "yes and no tokens"),
        ("acme/x-embed", {"architectures": ["XForCausalLM"]}, {"files": {"x-Q8_0.gguf": 9}}, "GGUF"),
        ("acme/x", {"architectures": ["VitsModel"]}, {}, "speech"),
        ("acme/x", {"architectures": ["XForCTC"]}, {"task": "automatic-speech-recognition"}, "speech"),
        ("acme/x", None, {"files": {"model_index.json": 9}}, "image"),
        ("acme/x", None, {"files": {"adapter_config.json": 9, "adapter_model.safetensors": 9}}, "adapter"),
        ("mlx-community/Qwen3-8B-4bit", {"architectures": ["Qwen3ForCausalLM"]}, {}, "MLX"),
        ("acme/x", None, {}, "no config.json"),
        ("acme/x", {}, {}, "no architecture"),
    ],
)
def test_what_is_no_chat_model_is_refused_with_the_reason(
    model: str, config: dict[str, Any] | None, more: dict[str, Any], what: str
) -> None:
    with pytest.raises(DraftRefused, match=what) as refused:
        draft(model, None if config is None else facts(config), **more)
    assert refused.value.remedy


@all_cases(
    ("model", "config", "more", "words"),
    [
        ("Qwen/Qwen3-Embedding-8B", {"architectures": ["Qwen3ForCausalLM"]}, {}, "--runner pooling --convert embed"),
        (
            "acme/x",
            {"architectures": ["XForCausalLM"]},
            {"files": {"modules.json": 9}},
            "--runner pooling --convert embed",
        ),
        ("acme/x", {"architectures": ["XForCausalLM"]}, {"task": "feature-extraction"}, "--convert embed"),
        ("acme/x", {"architectures": ["BertModel"]}, {}, "--runner pooling"),
        ("acme/x", {"architectures": ["XForSequenceClassification"], "num_labels": 1}, {}, "--runner pooling"),
        (
            "Qwen/Qwen3-Reranker-4B",
            {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
            {},
            '"classifier_from_token":["no","yes"]',
        ),
    ],
)
def test_a_model_of_vectors_or_scores_is_served_as_one(
    model: str, config: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    own = replace(facts(config), chat=abilities_of(TEMPLATE, "qwen3"), mtp_layers=1)
    found = draft(model, own, **more)
    assert words in argv(found)
    assert not any(word in argv(found) for word in ("parser", "speculative", "--max-num-seqs"))
    assert preset_from(parse(found.text, "mine.yaml"), name=found.name, origin=Origin.USER, file="") == found.preset


def test_a_model_that_writes_down_speech_is_served_without_a_chats_parts() -> None:
    own = replace(facts({"architectures": ["WhisperForConditionalGeneration"]}), chat=abilities_of(TEMPLATE, "qwen3"))
    found = draft("acme/whisper-x", own)
    assert "vllm serve acme/whisper-x" in " ".join(argv(found).split())
    assert not any(word in argv(found) for word in ("parser", "speculative", "--max-num-seqs", "pooling"))
    assert [each.key for each in found.doubts if each.key == "runner"] == ["runner"]


@all_cases(
    ("method", "named"),
    [("exl3", "TabbyAPI"), ("nf4x8", "nf4x8"), ("mlx", "Apple"), ("hqq", "transformers"), ("", "unknown")],
)
def test_a_format_that_vllm_does_not_read_is_refused_with_what_does(method: str, named: str) -> None:
    config = {"architectures": ["XForCausalLM"], "quantization_config": {"quant_method": method, "bits": 4}}
    with pytest.raises(DraftRefused) as refused:
        draft("acme/x-1b", facts(config))
    assert named in refused.value.summary
    assert "models search" in refused.value.remedy


@all_cases(
    "method", ["fp8", "mxfp4", "awq", "gptq", "compressed-tensors", "bitsandbytes", "auto-round", "modelopt_fp4"]
)
def test_a_format_that_vllm_reads_is_drafted(method: str) -> None:
    config = {"architectures": ["XForCausalLM"], "quantization_config": {"quant_method": method, "bits": 4}}
    assert "vllm serve" in argv(draft("acme/x-1b", facts(config)))


def test_a_familys_own_reasoning_parser_comes_before_the_one_for_any_tags() -> None:
    own = replace(facts({"architectures": ["XForCausalLM"]}), chat=abilities_of("<think>", "x"))
    assert "--reasoning-parser qwen3" in argv(draft("acme/Qwen3.6-27B-x", own))
    assert "--reasoning-parser deepseek_r1" in argv(draft("acme/x-1b", own))


def test_gguf_goes_to_llama_cpp_with_one_of_its_files() -> None:
    names = ("README.md", "Qwen3-32B-Q8_0.gguf", "Qwen3-32B-Q4_K_M.gguf", "mmproj-F16.gguf")
    files = dict.fromkeys(names, 19 * GIB)
    stored = draft("Qwen/Qwen3-32B-GGUF", None, files=files)
    assert stored.preset.engine == "llama-cpp"
    assert stored.preset.model == "/models/x/Qwen3-32B-Q4_K_M.gguf"
    assert [each.key for each in stored.doubts] == ["file"]
    chosen = draft_of(DraftSource("Qwen/Qwen3-32B-GGUF", files=files, file="Qwen3-32B-Q8_0.gguf"), PRESETS)
    assert [(each.repo, each.file) for each in chosen.preset.facts.required_files] == [
        ("Qwen/Qwen3-32B-GGUF", "Qwen3-32B-Q8_0.gguf")
    ]
    assert chosen.preset.model == "/models/Qwen3-32B-Q8_0.gguf"
    split = ("a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf")
    parts = draft_of(DraftSource("acme/a-GGUF", files=dict.fromkeys(split), file="a-Q4_K_M-*.gguf"), PRESETS)
    assert parts.preset.model == f"/models/{split[0]}"
    assert [each.file for each in parts.preset.facts.required_files] == list(split)


def test_a_name_that_is_taken_gets_the_publisher() -> None:
    found = draft("RedHatAI/gpt-oss-20b", facts(MODELS["gpt-oss-20b"]["config"]))
    assert found.name == "gpt-oss-20b-redhatai"


ODD = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**9)
    | st.text(max_size=20)
    | st.lists(st.text(max_size=8), max_size=3)
)
TREE = ODD | st.dictionaries(st.text(max_size=8), ODD, max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.dictionaries(
        st.sampled_from(
            ("architectures", "model_type", "text_config", "quantization_config", "auto_map", "num_hidden_layers",
             "max_position_embeddings", "torch_dtype", "num_nextn_predict_layers")
        ),
        TREE, max_size=5,
    ),
    st.text(max_size=30), st.lists(st.text(max_size=12) | st.just("a.gguf"), max_size=4),
)  # fmt: skip
def test_no_config_makes_a_draft_fail_otherwise_than_by_a_refusal(
    name: str, damage: dict[str, Any], model: str, files: list[str]
) -> None:
    config = {key: item for key, item in (MODELS[name]["config"] | damage).items() if item is not None}
    try:
        found = draft(model or "a/b", facts(config, tensor_names=files), files=dict.fromkeys(files))
    except DraftRefused as refused:
        assert refused.summary
    else:
        assert preset_from(parse(found.text, "x.yaml"), name=found.name, origin=Origin.USER, file="") == found.preset
