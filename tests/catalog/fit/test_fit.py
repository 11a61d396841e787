"""Does it fit: beside published starts on a GB10, the verdicts one by one, and what always holds."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, ModuleBytes, ModuleClass, WeightSummary
from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.model.fit import Basis, Fit, FitWord, Neighbour, PartId
from spark_tui.catalog.fit.model.request import Measured, request_of
from spark_tui.catalog.fit.model.verdict import auto_share, fit_lines, slices
from spark_tui.catalog.models.model.config import bytes_for, facts_from, facts_of, known_model
from spark_tui.catalog.models.model.weights import decode_read, summarise
from spark_tui.catalog.presets.model.overrides import SHARE, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, plan
from spark_tui.catalog.presets.model.preset import NO_GPU, ContainerOptions, Origin, Preset, PresetFacts, PublishedSpeed
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from tests import TESTS
from tests.cases import all_cases
from tests.checkpoint_families import tensors_of
from tests.fit_kit import fit
from tests.shipped import SHIPPED_FILES

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
BUILTIN = {preset.name: preset for preset in SHIPPED_FILES.load().presets if preset.min_nodes == 1}
POOL = int(121.69 * GIB)
SMALL = int(60.8 * GIB)


def memory(available: float = 117, free: float | None = None, total: int = POOL) -> Ok[MemInfo]:
    room = int(available * GIB)
    return Ok(MemInfo(total=total, free=room if free is None else int(free * GIB), available=room))


def preset(
    command: str = "vllm serve {model}", model: str = "meta-llama/Llama-3.1-8B-Instruct", **facts: object
) -> Preset:
    given_facts = {"total_parameters": 8e9, "quantization": "NVFP4", **facts}
    return Preset("p", Origin.USER, "/p.yaml", model, "vllm/vllm-openai:nightly", command=command,
                  facts=PresetFacts(**given_facts))  # type: ignore[arg-type]  # fmt: skip


def planned(found: Preset, **changes: str) -> LaunchPlan:
    return plan(found, overrides_from_pairs(changes), PATHS)


def grade(found: Fit) -> str:
    """How it goes if it is launched as it is."""
    if found.blocked:
        return "blocked"
    return "unknown" if found.word is FitWord.UNKNOWN else "slow" if found.slow else "ready"


def of(found: Preset, available: float = 117, **changes: str) -> Fit:
    return fit(planned(found, **changes), None, memory(available))


# --- published starts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A start on a GB10, by its log. GiB."""

    name: str
    model: str
    command: str
    weights_on_disk: float
    loaded: float
    cache: float
    tokens: int
    concurrency: float
    graphs: float | None
    source: str


STARTS = (
    Start(
        "Qwen3.6-35B-A3B with MTP", "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm",
        "vllm serve {model} --gpu-memory-utilization 0.8 --max-model-len 262144 --kv-cache-dtype fp8 "
        "--max-num-batched-tokens 32768 --max-num-seqs 10 "
        """--speculative-config '{{"method":"mtp","num_speculative_tokens":3}}'""",
        21.31, 21.42, 64.69, 5_463_232, 20.84, 0.37,
        "vllm/vllm-openai:v0.20.2 on a GB10, 2026-05-21: the whole log",
    ),
    Start(
        "Qwen3.5-122B-A10B NVFP4 with MTP", "Sehyo/Qwen3.5-122B-A10B-NVFP4",
        "vllm serve {model} --gpu-memory-utilization 0.858 --max-model-len 262144 --kv-cache-dtype fp8 "
        """--max-num-seqs 8 --speculative-config '{{"method":"mtp","num_speculative_tokens":1}}'""",
        74.8, 75.17, 24.05, 1_682_090, 6.42, None,
        "Jetson Thor (0.85 of its 122.8 GiB), 2026-04-08; tokens as concurrency times length",
    ),
    Start(
        "Gemma-4-31B-IT NVFP4", "nvidia/Gemma-4-31B-IT-NVFP4",
        "vllm serve {model} --gpu-memory-utilization 0.807 --max-model-len 262144 --kv-cache-dtype fp8 "
        "--max-num-seqs 4",
        30.89, 31.04, 64.21, 0, 0.0, None,
        "Jetson Thor (0.80 of its 122.8 GiB), 2026-04-07: 31.04 GiB of weights, 64.21 GiB for the cache",
    ),
)  # fmt: skip


def checkpoint(model: str, gib: float) -> CheckpointFacts:
    """The public config with weights of a size, as headers in the store would tell them."""
    known = known_model(model)
    assert known is not None
    weights = WeightSummary((("U8", int(gib * GIB)),), (), 0, 1)
    return replace(facts_of(known), weights=weights)


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_a_published_start_is_forecast_within_ten_per_cent(start: Start) -> None:
    case = planned(preset(start.command.replace("{{", "{").replace("}}", "}"), start.model))
    found = fit(case, checkpoint(start.model, start.weights_on_disk), memory())
    weights, graphs = found.part(PartId.WEIGHTS), found.part(PartId.GRAPHS)
    assert weights is not None
    assert weights.size == pytest.approx(start.loaded * GIB, rel=0.01), start.source
    assert weights.basis is Basis.FILES
    assert found.kv is not None
    assert found.kv.room == pytest.approx(start.cache * GIB, rel=0.1), start.source
    if start.tokens:
        assert found.kv.tokens == pytest.approx(start.tokens, rel=0.1), start.source
        assert found.kv.concurrency == pytest.approx(start.concurrency, rel=0.1), start.source
    if start.graphs is not None:
        assert graphs is not None
        assert graphs.size == pytest.approx(start.graphs * GIB, rel=0.1), start.source


def test_figures_of_an_earlier_start_replace_estimates() -> None:
    start = STARTS[0]
    case = planned(preset(start.command.replace("{{", "{").replace("}}", "}"), start.model))
    measured = Measured(int(21.42 * GIB), int(64.69 * GIB), int(0.37 * GIB), int(10.87 * GIB), 32768, "yesterday")
    found = fit(case, None, memory(), measured=measured)
    assert found.kv is not None
    assert found.kv.room == pytest.approx(64.69 * GIB, rel=0.001)
    assert {part.basis for part in found.parts[:3]} == {Basis.MEASURED}
    other = fit(planned(case.preset, max_num_batched_tokens="2048"), None, memory(), measured=measured)
    workspace = other.part(PartId.WORKSPACE)
    assert workspace is not None
    assert workspace.basis is Basis.RULE, "measured for other batches"


# --- verdicts ---------------------------------------------------------------------------------------------


def test_a_guide_recipe_on_an_idle_spark_is_ready() -> None:
    found = of(BUILTIN["gpt-oss-120b"])
    assert grade(found) == "ready"
    assert found.changes == ()
    assert found.claim == -(-POOL * 85 // 100)
    assert found.left is not None
    assert found.left > 6 * GIB


@all_cases("name", sorted(BUILTIN))
def test_no_shipped_preset_is_blocked_on_an_idle_spark(name: str) -> None:
    assert grade(of(BUILTIN[name])) != "blocked"


def test_vllm_is_refused_at_its_start_when_less_is_available_than_its_share() -> None:
    """`Free memory on device cuda:0 (109.53/121.69 GiB) on startup is less than desired ... (0.91, 110.74 GiB)`."""
    found = of(preset("vllm serve {model} --gpu-memory-utilization 0.91"), 109.53)
    assert grade(found) == "blocked"
    assert found.reasons[0] == (
        "vLLM will refuse to start: it needs 110.7 GiB free (0.91 of 121.7), 109.5 GiB are available."
    )


@pytest.mark.parametrize(
    ("options", "available", "key", "word"),
    [
        ("--gpu-memory-utilization 0.91", 109.53, "gpu_memory_utilization", "Lower"),
        ("--gpu-memory-utilization 0.1 --max-model-len 131072", 117, "gpu_memory_utilization", "Raise"),
        ("--gpu-memory-utilization 0.35 --max-model-len 1000000", 117, "max_model_len", "Shorten"),
    ],
    ids=["lower", "raise", "shorten"],
)
def test_a_blocked_launch_is_ready_with_the_setting_that_is_proposed(
    options: str, available: float, key: str, word: str
) -> None:
    recipe = preset(f"vllm serve {{model}} {options}")
    found = of(recipe, available)
    assert grade(found) == "blocked"
    change = next(each for each in found.changes if each.summary.startswith(word))
    assert key in dict(change.pairs)
    assert grade(of(recipe, available, **dict(change.pairs))) == "ready"


def test_sequences_that_wait_make_it_slow() -> None:
    found = of(BUILTIN["llama-3.3-70b-instruct-nvfp4"])
    assert grade(found) == "slow"
    assert "The KV cache holds 1.6 sequences of full length, 4 are allowed" in found.reasons[0]
    assert "Slow for one stream (up to 6.9 tok/s)" in found.reasons[1]
    assert [change.pairs for change in found.changes] == [(("max_model_len", "50176"),), (("max_num_seqs", "1"),)]


def test_a_default_share_leaves_too_little() -> None:
    found = of(preset())
    assert found.utilization == 0.92
    assert grade(found) == "slow"
    assert "Leaves 1.0 GiB to the system" in found.reasons[0]


def test_the_words_of_a_launch_that_does_not_fit_as_it_is() -> None:
    case = planned(preset("vllm serve {model} --gpu-memory-utilization 0.8"))
    beside = fit(case, None, memory(60), neighbours=[Neighbour("other", int(50 * GIB))])
    assert (beside.word, beside.stops) == (FitWord.FITS_WITH, ("other",))
    assert (beside.text, beside.change) == ("fits with 0.41", ((SHARE, "0.41"),))
    full = fit(case, None, memory(20), neighbours=[Neighbour("large", 90 * GIB), Neighbour("small", 5 * GIB)])
    assert (full.word, full.stops) == (FitWord.FITS_WHEN_STOPPED, ("large",))
    assert full.text == "fits when large stops"
    alone = fit(case, None, memory(20))
    assert (alone.word, alone.text, alone.stops) == (FitWord.DOES_NOT_FIT, "does not fit", ())


def test_what_neighbours_will_take_is_set_aside_and_what_they_hold_is_not_counted_twice() -> None:
    case = planned(preset("vllm serve {model} --gpu-memory-utilization 0.4"))
    serving = fit(case, None, memory(60), neighbours=[Neighbour("other", int(50 * GIB))])
    loading = fit(case, None, memory(60), neighbours=[Neighbour("other", int(10 * GIB), int(40 * GIB))])
    assert (grade(serving), serving.available) == ("ready", 60 * GIB)
    assert (grade(loading), loading.available) == ("blocked", 20 * GIB)
    assert "Stop other (frees 10.0 GiB)." in [change.summary for change in loading.changes]


def test_what_an_engine_holds_that_this_launch_replaces_comes_back() -> None:
    case = planned(preset("vllm serve {model} --gpu-memory-utilization 0.8"))
    assert grade(fit(case, None, memory(15))) == "blocked"
    assert grade(fit(case, None, memory(15), returns=100 * GIB)) == "ready"


def test_page_cache_to_free_is_named_with_its_size() -> None:
    found = fit(planned(preset("vllm serve {model} --gpu-memory-utilization 0.8")), None, memory(117, free=20))
    assert grade(found) == "ready"
    assert found.cache_to_drop == -(-POOL * 8 // 10) - 20 * GIB
    assert found.changes[0].gains == found.cache_to_drop


def test_a_preset_for_the_processor_needs_no_page_cache_freed() -> None:
    case = planned(
        replace(preset("vllm serve {model} --gpu-memory-utilization 0.8"), options=ContainerOptions(gpus=NO_GPU))
    )
    found = fit(case, None, memory(117, free=1))
    assert grade(found) == "ready"
    assert found.cache_to_drop == 0
    assert not [each for each in found.changes if "cache" in each.summary]


def test_a_cache_of_fixed_size_does_not_follow_the_share() -> None:
    found = of(
        preset("vllm serve {model} --gpu-memory-utilization 0.5 --kv-cache-memory-bytes 24G --max-model-len 8192")
    )
    assert found.kv is not None
    assert found.kv.room == 24 * GIB, "G is 1024 to the third, g 1000"
    assert found.claim is not None
    assert found.claim < 0.5 * POOL


def test_other_engines_claim_what_they_need() -> None:
    found = of(BUILTIN["qwen3-30b-a3b-gguf-llama-cpp"])
    assert found.utilization is None
    assert found.claim == found.need


# --- what is not known ----------------------------------------------------------------------------------


def test_an_unknown_model_is_unknown_with_a_lower_bound() -> None:
    found = of(preset("vllm serve {model} --gpu-memory-utilization 0.5", "nobody/new-model"))
    assert grade(found) == "unknown"
    assert [part.id for part in found.unknown] == [PartId.KV]
    assert (found.need, found.need_all, found.kv, found.utilization_needed) == (None, None, None, None)
    assert found.at_least > 7 * GIB


def test_what_is_blocked_for_sure_is_blocked_even_when_parts_are_unknown() -> None:
    assert grade(of(preset(model="nobody/new-model"), 50)) == "blocked"


def test_memory_that_cannot_be_read_leaves_the_needs() -> None:
    found = fit(planned(preset()), None, Missing("no /proc here"))
    assert grade(found) == "unknown"
    assert "no /proc here" in found.reasons[0]
    assert found.need is not None
    assert (found.total, found.available, found.left) == (None, None, None)


def test_a_drafter_that_is_not_here_is_unknown_and_not_free() -> None:
    drafts = 'vllm serve {model} --speculative-config \'{"method":"dflash","model":"nobody/drafter"}\''
    found = of(preset(drafts))
    drafter = found.part(PartId.DRAFTER)
    assert drafter is not None
    assert drafter.size is None
    assert grade(found) == "unknown"
    second = checkpoint("Llama-3.1-8B", 2.0)
    assert grade(fit(planned(preset(drafts)), None, memory(), drafter=second)) != "unknown"


def test_a_published_drafter_is_counted_before_its_download() -> None:
    found = of(BUILTIN["gemma-4-31b-it-dflash"]).part(PartId.DRAFTER)
    assert found is not None
    assert (found.basis, bool(found.size), bool(found.note)) == (Basis.CONFIG, True, True)


# What is kept in 16 bits: of the two that are no fixtures with their lists, as their publishers' files have it.
_KEPT: Final = ("lm_head", "*.linear_attn.*", "*.mlp.gate", "*.shared_expert_gate", "mtp.*", "*visual*")
_LISTS: Final = {
    "nemotron-3-nano-30b-a3b-nvfp4": None,
    "nemotron-3-super-120b-a12b-nvfp4": None,
    "gpt-oss-120b": None,
    "gpt-oss-20b": None,
    "qwen3-next-80b-a3b": (*_KEPT, "*.q_proj", "*.k_proj", "*.v_proj"),
    "qwen3.6-35b-a3b": _KEPT,
}


@all_cases("name", sorted(_LISTS))
def test_what_a_token_reads_before_the_download_is_what_the_files_say(name: str) -> None:
    public, kept = json.loads((TESTS / f"fixtures/models/{name}.json").read_text(encoding="utf-8")), _LISTS[name]
    if kept is not None:
        public["hf_quant"] = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": kept}}
    whole = facts_from(public["config"], source=name)
    weights = summarise(tensors_of(public), layers=whole.layers)
    # the routed experts of this one are one tensor, which a list of modules does not reach
    fused = next(part.wide for part in weights.by_module if part.module is ModuleClass.EXPERTS)
    parts = [
        replace(part, size=round(part.size * 4.5 / 16)) if fused > part.size / 2 and part.wide == fused else part
        for part in weights.by_module
    ]
    read = decode_read(replace(whole, weights=replace(weights, by_module=tuple(parts))))
    known = known_model(name)
    assert known is not None
    assert read is not None
    listed = bytes_for(known.read, f"{name} {'mxfp4' if 'gpt' in name else 'nvfp4'}")
    assert listed is not None
    assert listed.size == pytest.approx(read.size, rel=0.001)
    assert listed.source


def test_a_ceiling_before_the_download_says_where_it_is_from_and_how_far_it_may_be_off() -> None:
    """Published: 44 tok/s of Qwen3.6, 42 of Qwen3-Next, 74.75 of the W4A16; all of it in four bits would allow 162."""
    for name, speed in (
        ("qwen3.6-35b-a3b-nvfp4", 44.32),
        ("qwen3-next-80b-a3b-nvfp4", 42.0),
        ("nemotron3-nano-nvfp4-w4a16", 74.75),
    ):
        found = of(BUILTIN[name])
        assert found.decode is not None
        assert speed < found.decode.paper < 2 * speed
        assert any(found.decode.source in note and "10%" in note for note in found.notes)
    bound = of(BUILTIN["gemma-4-26b-a4b-nvfp4"])
    assert bound.decode is not None
    assert bound.decode.bound
    assert any("not counted" in note for note in bound.notes)


def test_a_partial_checkpoint_does_not_pass_for_a_small_one() -> None:
    whole = checkpoint("meta-llama/Llama-3.1-8B-Instruct", 1.0)
    assert whole.weights is not None
    found = fit(planned(preset()), replace(whole, weights=replace(whole.weights, complete=False)), memory())
    weights = found.part(PartId.WEIGHTS)
    assert weights is not None
    assert weights.basis is Basis.RULE
    assert weights.size is not None
    assert weights.size > 4 * GIB


def test_a_recipe_that_is_wrong_about_its_weights_is_told() -> None:
    recipe = preset(weights_bytes=21_000_000_000)
    found = fit(planned(recipe), checkpoint(recipe.model, 31.0), memory())
    assert found.notes[0] == "The recipe has 19.6 GiB of weights; the checkpoint has 31.0 GiB."


def test_tables_that_an_engine_may_keep_in_a_file_are_named() -> None:
    recipe = preset()
    whole = checkpoint(recipe.model, 20.0)
    assert whole.weights is not None
    parts = (*whole.weights.by_module, ModuleBytes(ModuleClass.TABLE, 8 * GIB, 0))
    found = fit(planned(recipe), replace(whole, weights=replace(whole.weights, by_module=parts)), memory())
    assert any("8.0 GiB" in note and "lookup tables" in note for note in found.notes)
    assert not any("lookup tables" in note for note in fit(planned(recipe), whole, memory()).notes)


# --- the command --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ("--max-num-seqs 4", 4),
        ("--max-num-seqs 256", 51),
        ("--enforce-eager", 0),
        ("--max-cudagraph-capture-size 80", 13),
    ],
)
def test_captured_batch_sizes(options: str, graphs: int) -> None:
    """vLLM 0.20.2 logged PIECEWISE=13 (largest=80), 0.18 PIECEWISE=51 (largest=512)."""
    asked = request_of(planned(preset(f"vllm serve {{model}} --no-enable-prefix-caching {options}")), None)
    assert asked.graphs == graphs
    assert asked.kv.state_mode.value == "none", "without prefix caching one state is kept"


# --- always -------------------------------------------------------------------------------------------------

CASES = {name: planned(found) for name, found in BUILTIN.items()}
LENGTHS = st.integers(1024, 2_000_000)


@given(st.sampled_from(sorted(BUILTIN)), LENGTHS, LENGTHS, st.floats(1, 121))
def test_more_context_never_needs_less_and_never_turns_out_better(name: str, one: int, other: int, room: float) -> None:
    if BUILTIN[name].engine != "vllm":
        return
    try:
        short, long = (planned(BUILTIN[name], max_model_len=str(n)) for n in sorted((one, other)))
    except UsageError:  # a shell script without a place for it
        return
    less, more = fit(short, None, memory(room)), fit(long, None, memory(room))
    assert (less.need or 0) <= (more.need or 0)
    assert less.at_least <= more.at_least
    if grade(less) == "blocked":
        assert grade(more) == "blocked"


@given(st.sampled_from(sorted(BUILTIN)), st.floats(0, 121), st.floats(0, 121), st.integers(0, 100 * GIB))
def test_slices_add_up_to_the_pool_and_unknown_is_never_zero(
    name: str, available: float, free: float, back: int
) -> None:
    found = fit(CASES[name], None, memory(available, min(free, available)), returns=back)
    cut = slices(found)
    assert not cut or (sum(size for _, size in cut), cut[-1][0]) == (POOL, "free")
    assert all(size >= 0 for _, size in cut)
    assert found.at_least == sum(part.size or 0 for part in found.parts)
    assert (found.need is None) == any(part.size is None for part in found.parts)
    for row, part in zip(fit_lines(found), found.parts, strict=False):
        assert (row.value == "?") == (part.size is None)


@given(st.sampled_from(sorted(BUILTIN)), st.floats(0, 121), st.floats(0, 121))
def test_more_memory_never_turns_out_worse(name: str, one: float, other: float) -> None:
    order = ["blocked", "slow", "unknown", "ready"]
    poor, rich = (grade(fit(CASES[name], None, memory(room))) for room in sorted((one, other)))
    if "unknown" in (poor, rich):
        assert not (poor != "blocked" and rich == "blocked")
    else:
        assert order.index(poor) <= order.index(rich)


@given(st.sampled_from(sorted(BUILTIN)), st.floats(1, 121))
def test_every_change_that_is_a_setting_can_be_made_and_is_never_worse(name: str, room: float) -> None:
    found = fit(CASES[name], None, memory(room))
    for change in found.changes:
        if not change.pairs:
            continue
        again = fit(planned(BUILTIN[name], **dict(change.pairs)), None, memory(room))
        if "Lower the memory share" in change.summary and grade(found) == "blocked" and found.kv is not None:
            assert grade(again) != "blocked", change.summary


# --- the share that a launch needs --------------------------------------------------------------------------


def auto(name: str, available: float, total: int = POOL, **changes: str) -> Fit:
    """The preset with the share that follows from its need."""
    first = fit(planned(BUILTIN[name], **changes), None, memory(available, total=total))
    share = auto_share(first)
    if share is None:
        return first
    overrides = replace(overrides_from_pairs(changes), auto_share=True, gpu_memory_utilization=share)
    return fit(plan(BUILTIN[name], overrides, PATHS), None, memory(available, total=total))


@pytest.mark.parametrize(
    ("name", "total", "available", "changes", "text"),
    [
        ("gpt-oss-20b", POOL, 117, {}, "fits with 0.25"),
        ("gpt-oss-20b", POOL, 117, {"max_model_len": "32768", "max_num_seqs": "1"}, "fits with 0.15"),
        ("gpt-oss-20b", POOL, 117, {"max_num_seqs": "16"}, "fits with 0.56"),
        ("gpt-oss-20b", SMALL, 57, {"max_num_seqs": "2"}, "fits with 0.39"),
        ("gpt-oss-120b", POOL, 117, {}, "fits with 0.74"),
        ("gpt-oss-120b", SMALL, 57, {}, "does not fit"),
        ("qwen3.6-35b-a3b-nvfp4", POOL, 117, {"max_model_len": "65536", "max_num_seqs": "2"}, "fits with 0.22"),
        ("qwen3.6-35b-a3b-nvfp4", POOL, 25, {}, "does not fit"),
        ("qwen3-30b-a3b-gguf-llama-cpp", POOL, 117, {}, "fits"),
    ],
)
def test_the_share_by_machine_model_context_and_users(
    name: str, total: int, available: float, changes: dict[str, str], text: str
) -> None:
    assert auto(name, available, total, **changes).text == text


VLLM = sorted(name for name, found in BUILTIN.items() if found.engine == "vllm" and "{max_model_len}" in found.command)


@given(st.sampled_from(VLLM), st.integers(2048, 200_000), st.integers(1, 32), st.floats(5, 121))
def test_a_share_that_follows_fits_whenever_it_says_so_and_never_is_below_the_need(
    name: str, context: int, users: int, room: float
) -> None:
    found = auto(name, room, max_model_len=str(context), max_num_seqs=str(users))
    if found.word is FitWord.FITS_WITH:
        assert not found.blocked
        assert found.utilization is not None
        assert (found.left or 0) >= 0
        assert found.need is None or found.need <= found.utilization * POOL
    if found.word in (FitWord.FITS_WHEN_STOPPED, FitWord.DOES_NOT_FIT):
        assert found.blocked


@given(st.sampled_from(VLLM), st.lists(st.integers(2048, 200_000), min_size=2, max_size=2), st.integers(1, 32))
def test_the_share_grows_with_context_and_users(name: str, contexts: list[int], users: int) -> None:
    short, long = sorted(contexts)
    cases = [(short, users), (long, users), (long, users + 1)]
    shares = [auto(name, 117, max_model_len=str(tokens), max_num_seqs=str(n)).utilization or 0 for tokens, n in cases]
    assert shares == sorted(shares)


@given(st.sampled_from(VLLM), st.integers(2048, 200_000), st.integers(1, 8), st.floats(20, 121))
def test_what_can_be_had_can_be_launched(name: str, context: int, users: int, room: float) -> None:
    reach = auto(name, room, max_model_len=str(context), max_num_seqs=str(users)).reach
    if reach is None:
        return
    assert (reach.context_now, reach.users_now) <= (reach.context_alone, reach.users_alone)
    if reach.context_now >= 2048:
        again = auto(name, room, max_model_len=str(reach.context_now), max_num_seqs=str(users))
        assert again.word is FitWord.FITS_WITH


# --- a Spark with 64 GB ---------------------------------------------------------------------------------------


def test_a_64_gb_spark_has_shares_of_its_own_memory() -> None:
    recipe = preset("vllm serve {model} --gpu-memory-utilization 0.6 --max-model-len 8192")
    found = fit(planned(recipe), None, memory(57, total=SMALL))
    assert (grade(found), found.total, found.claim) == ("ready", SMALL, math.ceil(SMALL * 0.6))
    large = fit(planned(BUILTIN["gpt-oss-120b"]), None, memory(57, total=SMALL))
    assert grade(large) == "blocked"
    assert sum(size for _, size in slices(large)) == SMALL


def test_rules_leave_a_64_gb_spark_its_headroom() -> None:
    launch = planned(preset("vllm serve {model} --gpu-memory-utilization 0.85"))
    found = {finding.id: finding for finding in check(LaunchContext(launch, is_spark=True, memory_total=SMALL))}
    assert found["utilization_high"].change == (("gpu_memory_utilization", "0.8"),)
    assert "9.1 GiB left" in found["utilization_high"].evidence[0]
    assert "utilization_high" not in {each.id for each in check(LaunchContext(launch, is_spark=True))}


def test_a_published_figure_above_the_decode_ceiling_says_why() -> None:
    fast = PublishedSpeed(300.0, "one stream", "a blog")
    shown, plain = (of(preset(published=speeds)) for speeds in ((fast,), ()))
    assert any("more than the stored weights allow" in note for note in shown.notes)
    assert not any("more than the stored weights allow" in note for note in plain.notes)
    rates = [[row.value for row in fit_lines(found) if row.label == "Decode"] for found in (shown, plain)]
    assert rates == [["up to 300 tok/s"], ["up to 61 tok/s"]]


@all_cases("name", sorted(BUILTIN))
def test_no_estimate_is_below_a_published_speed(name: str) -> None:
    found = of(BUILTIN[name])
    if found.decode is not None:
        assert found.decode.span(found.published)[1] >= found.published
