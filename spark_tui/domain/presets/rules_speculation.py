"""Rules about speculative decoding of any method, and what changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.json_option import compact
from spark_tui.domain.presets.rules_case import Advice, Case, Fix, Rule, Severity
from spark_tui.domain.presets.speculation import OFF, Speculation

_MANY_SEQUENCES: Final = 8


def with_config(case: Case, spec: Speculation, **changes: object) -> Fix:
    """The fix that rewrites --speculative-config (None takes a key out); none where the image takes it elsewhere."""
    if case.option("--speculative-config") is None:
        return ()
    config = {key: value for key, value in {**spec.config, **changes}.items() if value is not None}
    return (("speculative_config", compact(config)),)


def with_tokens(case: Case, tokens: int) -> Fix:
    """The fix that drafts so many tokens; none where the image takes the number elsewhere."""
    return () if case.env.get("DFLASH_DRAFTER") else (("num_speculative_tokens", str(tokens)),)


def without_drafting(case: Case) -> Fix:
    """The fix that ends speculation, in every spelling."""
    if case.env.get("DFLASH_DRAFTER"):
        return (("env.DFLASH_DRAFTER", ""),)
    return (("speculation", OFF),)


def speculative_config_unreadable(case: Case) -> Advice | None:
    """vLLM ends at once over JSON that it cannot read."""
    text = case.option("--speculative-config")
    if not case.is_vllm or text is None or case.speculation is not None or "$" in text:
        return None
    return Advice(
        Severity.ERROR,
        "--speculative-config is no JSON object.",
        f"--speculative-config {text}",
        """Write for example: speculative_config={"method":"mtp","num_speculative_tokens":1}""",
        without_drafting(case),
    )


def speculation_under_load(case: Case) -> Advice | None:
    """Drafting costs throughput in large batches. --speculative-disable-by-batch-size, the guide's answer, is gone:
    without effect since vLLM 0.10 and refused since 0.17 (vllm#35060)."""
    spec = case.speculation
    sequences = case.integer("--max-num-seqs")
    if spec is None or sequences is None or sequences <= _MANY_SEQUENCES:
        return None
    if "num_speculative_tokens_per_batch_size" in spec.config:
        return None
    return Advice(
        Severity.WARNING,
        "Drafting costs throughput when many requests run at once.",
        f"--max-num-seqs {sequences} with method {spec.method}",
        "For one person or a few set max_num_seqs=4; to serve many, launch without speculation. vLLM 0.24 and newer "
        'can draft less in larger batches: "num_speculative_tokens_per_batch_size":[[1,4,K],[5,64,0]].',
        case.setting("max_num_seqs", "4"),
    )


def speculation_gone_flag(case: Case) -> Advice | None:
    """The guide still names the flag; no vLLM that runs on a Spark knows it."""
    if not case.is_vllm or vllm.option(case.words, "--speculative-disable-by-batch-size") is None:
        return None
    return Advice(
        Severity.ERROR,
        "vLLM knows no --speculative-disable-by-batch-size any more, and ends over it.",
        f"--speculative-disable-by-batch-size {vllm.option(case.words, '--speculative-disable-by-batch-size')}",
        "Leave it out; keep max_num_seqs low, or launch without speculation where many requests run at once.",
        (("without", "speculative_disable_by_batch_size"),),
    )


def speculation_gone_key(case: Case) -> Advice | None:
    """`disable_by_batch_size` in the JSON: unused since vLLM 0.10, unknown since 0.17."""
    spec = case.speculation
    if spec is None or "disable_by_batch_size" not in spec.config:
        return None
    return Advice(
        Severity.WARNING,
        "disable_by_batch_size does nothing in vLLM, and newer ones refuse it.",
        f"--speculative-config {compact(spec.config)}",
        "Leave it out; keep max_num_seqs low, or launch without speculation where many requests run at once.",
        with_config(case, spec, disable_by_batch_size=None),
    )


def gpt_oss_eagle3(case: Case) -> Advice | None:
    """Reported broken for gpt-oss-120b in vLLM (deployment registry, 2026-01)."""
    spec = case.speculation
    if spec is None or spec.method != "eagle3" or not case.named(r"gpt-oss-120b"):
        return None
    return Advice(
        Severity.WARNING,
        "EAGLE-3 was reported broken for gpt-oss-120b in vLLM.",
        f"method {spec.method} with {spec.drafter or 'no drafter'}",
        "Launch without speculation, or check its answers.",
        without_drafting(case),
    )


def ngram_on_prose(case: Case) -> Advice | None:
    """Measured on a Spark: 74.75 tokens/s without, 55.70 with, on essays."""
    spec = case.speculation
    if spec is None or not spec.method.startswith("ngram"):
        return None
    return Advice(
        Severity.NOTE,
        "Drafting by n-grams pays off only where the answer repeats the prompt.",
        f"method {spec.method}",
        "Keep it for edits and extraction; on essays it was a quarter slower than without.",
        without_drafting(case),
    )


RULES: Final[Mapping[str, Rule]] = {
    "speculative_config_unreadable": speculative_config_unreadable,
    "speculation_under_load": speculation_under_load,
    "speculation_gone_flag": speculation_gone_flag,
    "speculation_gone_key": speculation_gone_key,
    "gpt_oss_eagle3": gpt_oss_eagle3,
    "ngram_on_prose": ngram_on_prose,
}
