"""Findings about how an engine was started: kernels, CUDA graphs, padding, variables."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.engine.finding import Finding, FindingId, Level, Observation
from spark_tui.domain.engine.kernels import Fp4
from spark_tui.domain.engine.sizing import MOST_REQUESTS, GraphState, Pairs, graph_memory
from spark_tui.domain.engine.timeline import EngineFacts, Topic

NOTABLE_PADDING_PERCENT: Final = 5.0


def fp4_path(seen: Observation) -> list[Finding]:
    """Weight-only without intent, and emulation."""
    verdict = seen.fp4
    known = {Fp4.WEIGHT_ONLY_FALLBACK: FindingId.FP4_FALLBACK, Fp4.EMULATION: FindingId.FP4_EMULATION}
    if verdict.verdict not in known:
        return []
    guess = " The checkpoint's own format is not known here: for a W4A16 one this is right." if verdict.guess else ""
    proof = next(iter(verdict.evidence), None)
    summary, remedy = f"FP4 is {verdict.summary}. {verdict.cost}", verdict.advice + guess
    return [Finding.proven(proof, known[verdict.verdict], Level.WARNING, summary, remedy, verdict.override)]


def refused_backends(seen: Observation) -> list[Finding]:
    """A backend that was asked for and is not there."""
    summary = "A kernel that was asked for does not exist for some layers; vLLM chose another."
    remedy = "Leave the backend to vLLM (auto), or use an image that has it."
    lines = seen.facts.proof(Topic.BACKEND_REFUSED)[:1]
    return [Finding.proven(line, FindingId.BACKEND_REFUSED, Level.WARNING, summary, remedy) for line in lines]


def graph_estimate(seen: Observation) -> list[Finding]:
    """CUDA-graph memory misjudged so far that the KV cache has the wrong size."""
    graphs = graph_memory(seen.facts)
    if graphs.state not in (GraphState.OVERCOMMITTED, GraphState.WASTEFUL):
        return []
    level = Level.INFO if graphs.state is GraphState.WASTEFUL else Level.CRITICAL if graphs.grave else Level.WARNING
    danger = " On unified memory that freezes the box when the cache fills." if graphs.grave else ""
    summary = f"CUDA graphs: {graphs.summary}.{danger}"
    proof = next(iter(graphs.evidence), None)
    return [Finding.proven(proof, FindingId.GRAPH_ESTIMATE, level, summary, graphs.remedy, graphs.override)]


def capture_sizes(seen: Observation) -> list[Finding]:
    """Batches beyond the largest captured size run without a graph."""
    for line in seen.facts.proof(Topic.GRAPH_SIZES)[:1]:
        none_left = line.text.startswith(("No valid", "Skipping"))
        if none_left and seen.facts.eager:
            return []
        summary = (
            "No CUDA graphs are captured: every step pays for the launch of each kernel."
            if none_left
            else "CUDA graphs are captured for smaller batches than asked for; larger ones run without, slower."
        )
        level = Level.INFO if line.text.startswith("Truncating") else Level.WARNING
        remedy, override = _graphs_again(line.text, seen.facts)
        return [Finding.proven(line, FindingId.CAPTURE_SIZES_CAPPED, level, summary, remedy, override)]
    return []


def _graphs_again(text: str, facts: EngineFacts) -> tuple[str, Pairs]:
    if text.startswith("Skipping"):
        return "Leave cudagraph_mode to vLLM, unless NONE was meant.", ()
    wanted = facts.max_num_seqs
    fewer: Pairs = (("max_num_seqs", str(wanted // 2)),) if wanted and 1 < wanted <= MOST_REQUESTS else ()
    return "Lower max_num_seqs, or give the engine more memory.", fewer


def eager(seen: Observation) -> list[Finding]:
    """No compile and no graphs, because somebody asked for it. Silent on the CPU, which has no graphs anyway, and about
    an engine that did not come so far."""
    if not seen.facts.eager or seen.facts.device == "cpu" or seen.facts.kv_tokens is None:
        return []
    summary = (
        "Eager by intent (enforce_eager): no torch.compile and no CUDA graphs. It starts sooner and decodes slower."
    )
    remedy = "Leave enforce_eager out once the model works."
    proof = next(iter(seen.facts.proof(Topic.EAGER)), None)
    return [Finding.proven(proof, FindingId.EAGER, Level.INFO, summary, remedy, (("without", "enforce_eager"),))]


def padding(seen: Observation) -> list[Finding]:
    """Layers of unlike kinds leave gaps in the KV cache."""
    share = seen.facts.padding_percent
    if share is None or share < NOTABLE_PADDING_PERCENT:
        return []
    summary = (
        f"Up to {share:g} % of the KV cache is padding: the layers, the drafter's among them, do not group evenly."
    )
    remedy = "Nothing to do while the KV cache is large enough; without speculation there may be less of it."
    proof = next(iter(seen.facts.proof(Topic.PADDING)), None)
    return [Finding.proven(proof, FindingId.PADDING_WASTE, Level.INFO, summary, remedy)]


_INSTEAD: Final = {
    "VLLM_NVFP4_GEMM_BACKEND": "--linear-backend",
    "VLLM_USE_FLASHINFER_MOE_FP4": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP8": "--moe-backend",
    "VLLM_USE_FLASHINFER_MOE_FP16": "--moe-backend",
    "VLLM_FP8_MOE_BACKEND": "--moe-backend",
    "VLLM_FLASHINFER_MOE_BACKEND": "--moe-backend",
    "VLLM_MXFP4_USE_MARLIN": "--moe-backend marlin",
    "VLLM_ATTENTION_BACKEND": "--attention-backend",
    "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
}
"""Options that took the place of variables."""


def unknown_variables(seen: Observation) -> list[Finding]:
    """`VLLM_` variables that this version does not read."""
    names = seen.facts.unknown_environment
    if not names:
        return []
    version = f"vLLM {seen.facts.version}" if seen.facts.version else "This vLLM"
    summary = f"{version} does not read {', '.join(names)}: what they were to set is not set."
    instead = [f"instead of {name} use {_INSTEAD[name]}" for name in names if name in _INSTEAD]
    remedy = f"I{'; '.join(instead)[1:]}." if instead else "Look for a typing error, or take them out of the preset."
    level = Level.WARNING if instead else Level.INFO
    proof = next(iter(seen.facts.proof(Topic.ENVIRONMENT)), None)
    return [Finding.proven(proof, FindingId.UNKNOWN_VARIABLE, level, summary, remedy)]
