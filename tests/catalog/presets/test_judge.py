"""One judge of a change: nothing that a log or a rule proposes makes the check of the launch worse."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.catalog.fit.model.fit import Fit, FitChange, FitWord
from spark_tui.catalog.fit.use.fit import advised
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rules.check import SLOWER_ALONE, changed, check, judge, judged
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from spark_tui.observe.explain.model.causes.table import read_parts, read_table
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer, command_in
from tests.cases import all_cases
from tests.catalog.presets.test_rules import A_SPARK, CAUTIONS, PRESETS, WORDS, Caution, situation
from tests.cli.world import World
from tests.engine_logs import banner, core
from tests.failure_logs import cases
from tests.manage.cluster.test_cluster_presets import PRESETS as OF_SEVERAL
from tests.manage.cluster.test_cluster_presets import planned

COMPUTED: list[Change] = [
    (("moe_backend", "flashinfer_cutlass"),),
    (("linear_backend", "flashinfer_cutlass"), ("moe_backend", "flashinfer_cutlass")),
    (("linear_backend", "auto"),),
    (("moe_backend", "cutlass"),),
    (("env.VLLM_USE_FLASHINFER_MOE_FP4", "1"), ("env.VLLM_FLASHINFER_MOE_BACKEND", "throughput")),
    (("env.VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass"),),
    (("env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "1"), ("gpu_memory_utilization", "0.9")),
    (("kv_cache_memory_bytes", "81389630259"), ("gpu_memory_utilization", "0.85")),
    (("gpu_memory_utilization", "0.92"),),
    (("max_model_len", "1024"),),
    (("max_num_seqs", "256"),),
    (("num_speculative_tokens", "1"),),
    (("without", "enforce_eager"),),
    (("port", "8001"),),
]
"""What findings and functions of causes propose, with figures of the kind that they compute."""


def proposals() -> Iterator[Change]:
    """Every change of the tables, with a figure in place of a field, and those of the recorded failures."""
    rules = [rule for rows in read_table().causes.values() for rule in rows]
    rules += list(read_parts().places)
    advice = [row for rows in read_parts().advice.values() for row in rows]
    for table in (*(each.change for each in rules), *(each.change for each in advice)):
        yield tuple((key, "4096" if "{" in value else value) for key, value in table.items())
    yield from (tuple(case.override.items()) for case in cases())
    yield from COMPUTED


PROPOSED = sorted({change for change in proposals() if change})


def on_nodes(preset: Preset) -> LaunchContext:
    """The head of a launch on as many Sparks as the preset needs."""
    return LaunchContext(planned(preset).head.plan, **{**A_SPARK, "sparks": preset.min_nodes})


LAUNCHES = {name: situation(preset) for name, preset in PRESETS.items()}
LAUNCHES |= {name: on_nodes(preset) for name, preset in OF_SEVERAL.items()}


def grave(launch: LaunchContext) -> dict[str, Severity]:
    return {each.id: each.severity for each in check(launch) if each.severity is not Severity.INFO}


def is_worse(before: LaunchContext, after: LaunchContext) -> list[str]:
    """The errors and warnings that were not there, or were less."""
    was = grave(before)
    return [id_ for id_, severity in grave(after).items() if severity.worse_than(was.get(id_, Severity.INFO))]


def against(found: Finding, before: LaunchContext, after: LaunchContext) -> list[str]:
    """What is worse after the advice. The fix of a failure may be slower, where it says so."""
    aside = SLOWER_ALONE if found.severity is Severity.ERROR and "slower" in found.remedy else ()
    return [id_ for id_ in is_worse(before, after) if id_ not in aside]


def advice(change: Change, severity: Severity = Severity.WARNING) -> Finding:
    return Finding("fp4_fallback", severity, "It is bad.", remedy="Set it.", change=change)


@all_cases("name", LAUNCHES)
def test_no_proposal_of_any_cause_makes_the_check_of_any_preset_worse(name: str) -> None:
    launch = LAUNCHES[name]
    before = changed(launch, ()) or launch
    for change in PROPOSED:
        found = judged(advice(change), launch)
        kinds = [found] if found.change == change else [found, judged(advice(change, Severity.ERROR), launch)]
        for found in kinds:
            assert found.remedy
            if found.change:
                overrides_from_pairs(dict(found.change))
                after = changed(launch, found.change)
                assert after is not None and not against(found, before, after), (name, change, found.change)
                assert found.change == change or after.spec != before.spec, "what is on already is not proposed"


@all_cases("name", LAUNCHES)
def test_what_would_make_a_launch_fit_does_not_make_its_check_worse(name: str) -> None:
    launch = LAUNCHES[name]
    before = changed(launch, ()) or launch
    for change in ((("gpu_memory_utilization", "0.97"),), (("max_model_len", "4096"),), (("max_num_seqs", "64"),)):
        found = advised(Fit(FitWord.FITS_WITH, changes=(FitChange("Do it.", change, 1),), change=change), launch)
        for pairs in (found.change, found.changes[0].pairs):
            after = changed(launch, pairs)
            assert after is None or not is_worse(before, after), (name, change, pairs)
        kept = set(change) <= set(found.changes[0].pairs)
        assert (found.changes[0].gains is not None) is kept and (found.change != ()) is kept


def test_every_cause_with_a_change_was_judged() -> None:
    assert len(PROPOSED) > 40
    assert any(judged(advice(change), LAUNCHES[name]).change != change for change in PROPOSED for name in LAUNCHES)


@all_cases("caution", CAUTIONS, ids=[f"{each.id} {each.preset.name}" for each in CAUTIONS])
def test_what_ends_one_finding_brings_no_other(caution: Caution) -> None:
    launch = situation(caution.preset, caution.pairs, {**A_SPARK, **caution.facts})
    for found in check(launch):
        if found.change:
            after = changed(launch, found.change)
            assert after is not None and not is_worse(launch, after), found.id


# --- in the words of the rule -----------------------------------------------------------------------------


def test_the_safer_advice_stands_alone_with_its_reason() -> None:
    launch = situation(PRESETS["qwen3.6-35b-a3b-nvfp4"])
    found = judged(advice((("moe_backend", "flashinfer_cutlass"),)), launch)
    assert found.remedy.startswith("Not moe_backend=flashinfer_cutlass: ") and "froze a Spark" in found.remedy
    assert not found.change, "the recipe has marlin already"
    kept = advice((("max_model_len", "4096"),))
    assert judged(kept, launch) == kept


def test_what_a_rule_asks_for_beside_it_is_set_too() -> None:
    launch = situation(PRESETS["gemma-4-31b-it-nvfp4"])
    found = judged(advice((("tool_call_parser", "hermes"),)), launch)
    assert dict(found.change).get("tool_call_parser") != "hermes"


def test_the_fix_of_a_failure_may_be_slower_and_says_so_once() -> None:
    launch, change = LAUNCHES["gpt-oss-20b"], (("enforce_eager", "true"),)
    failed = advice(change, Severity.ERROR)
    found = judged(failed, launch)
    assert found.change == change and found.remedy.startswith(failed.remedy) and "slower" in found.remedy
    assert judged(found, launch) == found
    slow = judged(advice(change), launch)
    assert dict(slow.change).get("enforce_eager") != "true" and slow.remedy.startswith("Not enforce_eager=true: ")


def test_what_is_not_in_the_command_is_not_removed() -> None:
    launch = LAUNCHES["gpt-oss-20b"]
    assert judged(advice((("without", "quantization"),)), launch).change == ()
    assert judged(advice((("port", "8001"),)), launch).change == (("port", "8001"),)


def test_a_launch_on_two_sparks_is_not_brought_down_to_one() -> None:
    launch = LAUNCHES["minimax-m2.7-awq"]
    assert judged(advice((("tensor_parallel", "4"),)), launch).change == ()
    wide = changed(launch, (("tensor_parallel", "4"), ("pipeline_parallel", "2")))
    assert wide is not None
    found = next(each for each in check(wide) if each.id == "parallel_beyond_machines")
    assert dict(found.change) == {"tensor_parallel": "2", "pipeline_parallel": "1"}


def test_a_change_that_a_command_has_no_place_for_is_not_offered() -> None:
    script = situation(PRESETS["phi-4-multimodal-instruct-nvfp4"])
    assert judged(advice((("linear_backend", "marlin"),)), script).change == ()


# --- a log without a preset ---------------------------------------------------------------------------------


def explained(lines: list[str]) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    return reader.explanation().judged(lambda: judge)


MARLIN = core(
    "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['FLASHINFER_TRTLLM', 'FLASHINFER_CUTLASS', 'MARLIN']."
)


def test_a_log_is_judged_by_the_arguments_that_it_repeats() -> None:
    failed = core(
        'File "/vllm/v1/attention/triton.py", line 1, in forward', "RuntimeError: CUDA error: invalid argument",
        level="ERROR",
    )  # fmt: skip
    found = {}
    for model in ("nvidia/diffusiongemma-26B-A4B-it-NVFP4", "acme/other"):
        told = explained([*banner("0.22.0", model, "'attention_backend': 'TRITON_ATTN'"), *failed])
        assert told.cause is not None
        found[model.partition("/")[0]] = told.cause
    assert dict(found["acme"].change) == {"without": "attention_backend"}
    assert not found["nvidia"].change and "Set attention_backend=TRITON_ATTN" in found["nvidia"].remedy


def test_what_a_log_does_not_repeat_counts_against_nothing() -> None:
    """How many GPUs there are, and how it drafts, may stand in no line."""
    for change in ((("tensor_parallel", "8"),), (("num_speculative_tokens", "3"),)):
        found = advice(change)
        assert judge("", "acme/model", ("vllm", "serve", "acme/model"), (), found) == found
    drafting = banner("0.22.0", "acme/model", "'speculative_config': {'method': 'x y', 'num_speculative_tokens': 3}")
    assert "--speculative-config" in command_in(explained([*drafting, *MARLIN]).timeline)


def test_a_failure_of_a_model_that_cannot_do_what_would_help_says_so() -> None:
    """Its paired draft needs the fp8 cache that a kernel fails with."""
    failed = core(
        'File "/vllm/v1/attention/backends/flashinfer.py", line 1, in forward',
        "RuntimeError: fp8_e4m3 KV cache: FlashInfer attention backend failed", level="ERROR",
    )  # fmt: skip
    told = explained([*banner("0.22.0", "acme/model", "'kv_cache_dtype': 'fp8'"), *failed])
    assert told.cause is not None
    launch = situation(PRESETS["gemma-4-12b-coder-nvfp4-mtp"])
    kept = judged(replace(told.cause, change=(("kv_cache_dtype", "auto"),)), launch)
    assert not kept.change and "fp8" in kept.remedy


def test_nothing_is_judged_where_nothing_is_proposed_or_another_engine_runs() -> None:
    def refused() -> object:
        raise AssertionError("no judge is asked for")

    told = explained([*banner("0.22.0"), *core("Loading weights took 3 seconds")])
    assert told.judged(refused) is told
    assert replace(told, engine="sglang", cause=advice((("port", "1"),))).judged(refused).cause is not None


def test_a_container_is_judged_by_its_own_command() -> None:
    world = World()
    told = {}
    for model in ("nvidia/diffusiongemma-26B-A4B-it-NVFP4", "acme/other"):
        name, failed = model.partition("/")[0], "(EngineCore pid=94) ERROR 04-01 17:00:05 [core.py:1]"
        lines = [
            *banner("0.22.0", model, "'attention_backend': 'TRITON_ATTN'"),
            f'{failed}   File "/vllm/v1/attention/triton.py", line 1, in forward',
            f"{failed} RuntimeError: CUDA error: invalid argument",
        ]
        argv = ("vllm", "serve", model, "--attention-backend", "TRITON_ATTN")
        world.engine(name, port=8009, serving=False, lines=lines, status=ContainerStatus.EXITED, exit_code=1, argv=argv)
        told[name] = world.run("explain", name, "--json").json["failure"]
    assert told["acme"]["override"] == {"without": "attention_backend"}
    assert told["nvidia"]["override"] is None and "Set attention_backend=TRITON_ATTN" in told["nvidia"]["remedy"]


def test_a_command_that_cannot_be_planned_is_not_judged() -> None:
    """spark-tui passes no API key as an argument, and starts no such engine."""
    found = advice((("moe_backend", "flashinfer_cutlass"),))
    words = ("vllm", "serve", "nvidia/Gemma-4-26B-A4B-IT-NVFP4", "--moe-backend", "marlin")
    assert judge("", words[2], (*words, "--api-key", "x"), (), found) == found
    assert judge("", words[2], words, (), found).change == ()


@settings(max_examples=100)
@given(words=WORDS, value=st.text(max_size=60))
def test_no_log_breaks_the_judge(words: list[str], value: str) -> None:
    for change in (COMPUTED[0], (("without", "attention_backend"),)):
        assert judge(value, value, ("vllm", "serve", value, *words), (value,), advice(change)).summary
