"""The verdicts as rows for a screen or a terminal: a label, a sentence, how good it is, and the line that proves it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from spark_tui.domain.engine.kernels import Fp4, Fp4Verdict, fp4_verdict
from spark_tui.domain.engine.serving_lines import ServingSample, drafting
from spark_tui.domain.engine.sizing import GraphState, equivalent_utilization, graph_memory, kv_words
from spark_tui.domain.engine.timeline import EngineFacts, Topic


class Tone(StrEnum):
    """How a row is coloured; its words say the same without colour."""

    GOOD = "good"
    PLAIN = "plain"
    QUIET = "quiet"
    WARNING = "warning"
    BAD = "bad"


class VerdictLine(NamedTuple):
    """One row. `line` counts from 0 as the log was read, None where no line proves it."""

    label: str
    text: str
    tone: Tone = Tone.PLAIN
    line: int | None = None


_FP4_TONES: Final = {
    Fp4.NATIVE: Tone.GOOD,
    Fp4.WEIGHT_ONLY_INTENDED: Tone.PLAIN,
    Fp4.WEIGHT_ONLY_FALLBACK: Tone.WARNING,
    Fp4.EMULATION: Tone.BAD,
    Fp4.NOT_FP4: Tone.QUIET,
    Fp4.UNKNOWN: Tone.QUIET,
}
_GRAPH_TONES: Final = {GraphState.OVERCOMMITTED: Tone.BAD, GraphState.WASTEFUL: Tone.WARNING}


def verdict_lines(
    facts: EngineFacts, fp4: Fp4Verdict | None = None, samples: Sequence[ServingSample] = ()
) -> tuple[VerdictLine, ...]:
    """One row per verdict that can be given; nothing is said about what is not known."""
    rows = (
        _fp4(facts, fp4 or fp4_verdict(facts)),
        _other_kernels(facts),
        _attention(facts),
        _kv(facts, samples),
        _kv_dtype(facts),
        _prefix(facts, samples),
        _speculation(facts, samples),
        _graphs(facts),
        _scheduling(facts),
        _utilization(facts),
    )
    return tuple(row for row in rows if row is not None)


def _fp4(facts: EngineFacts, verdict: Fp4Verdict) -> VerdictLine | None:
    if verdict.verdict is Fp4.UNKNOWN and not (facts.kernels or facts.quantization):
        return None
    first = next(iter(verdict.evidence), None)
    doubt = " (the log alone says so)" if verdict.guess and verdict.verdict is Fp4.WEIGHT_ONLY_FALLBACK else ""
    return VerdictLine("FP4", verdict.summary + doubt, _FP4_TONES[verdict.verdict], first.line if first else None)


def _other_kernels(facts: EngineFacts) -> VerdictLine | None:
    """Kernels of other formats: FP8, MXFP8, INT4, and experts in BF16."""
    others = [kernel for kernel in facts.kernels if kernel.format not in ("NVFP4", "MXFP4")]
    if not others:
        return None
    words = ", ".join(
        f"{kernel.format} {'MoE' if kernel.part == 'moe' else kernel.part} {kernel.name}" for kernel in others
    )
    return VerdictLine("Kernels", words, Tone.PLAIN, others[0].line)


def _attention(facts: EngineFacts) -> VerdictLine | None:
    names = facts.attentions or ((facts.attention,) if facts.attention else ())
    return VerdictLine("Attention", ", ".join(names)) if names else None


def _kv(facts: EngineFacts, samples: Sequence[ServingSample]) -> VerdictLine | None:
    words = kv_words(facts)
    if not words:
        return None
    used = next((s.kv_percent for s in reversed(samples) if s.kv_percent is not None), None)
    proof = facts.proof(Topic.KV_SIZE)
    usage = "" if used is None else f"; {used:.3g} % used"
    return VerdictLine("KV cache", words + usage, Tone.PLAIN, proof[0].line if proof else None)


def _kv_dtype(facts: EngineFacts) -> VerdictLine | None:
    dtype = facts.kv_cache_dtype
    return VerdictLine("KV dtype", dtype) if dtype and dtype != "auto" else None


def _prefix(facts: EngineFacts, samples: Sequence[ServingSample]) -> VerdictLine | None:
    if facts.prefix_caching is None:
        return None
    if not facts.prefix_caching:
        return VerdictLine("Prefix", "prefix caching is off", Tone.QUIET)
    hits = next((s.prefix_hit_percent for s in reversed(samples) if s.prefix_hit_percent is not None), None)
    return VerdictLine("Prefix", "prefix caching is on" + ("" if hits is None else f", {hits:.3g} % hit"))


def _speculation(facts: EngineFacts, samples: Sequence[ServingSample]) -> VerdictLine | None:
    drafts = drafting(samples)
    if not facts.speculation and drafts is None:
        return None
    words = [facts.speculation or "drafting"]
    if drafts is not None and drafts.rate is not None:
        words.append(f"{drafts.rate:.0%} accepted")
    if drafts is not None and drafts.tokens_per_step is not None:
        words.append(f"{drafts.tokens_per_step:.2g} tokens per step")
    if len(words) == 1:
        words.append("no acceptance told yet")
    return VerdictLine("Drafting", ", ".join(words), Tone.PLAIN, drafts.line if drafts else None)


def _graphs(facts: EngineFacts) -> VerdictLine | None:
    graphs = graph_memory(facts)
    mode = "" if facts.cudagraph_mode in ("", "NONE") else f" ({facts.cudagraph_mode})"
    if graphs.state is GraphState.UNKNOWN:
        return VerdictLine("Graphs", mode.strip(" ()")) if mode else None
    proof = next(iter(graphs.evidence or facts.proof(Topic.EAGER)), None)
    tone = _GRAPH_TONES.get(graphs.state, Tone.QUIET if graphs.state is GraphState.NONE else Tone.PLAIN)
    return VerdictLine("Graphs", graphs.summary + mode, tone, proof.line if proof else None)


def _scheduling(facts: EngineFacts) -> VerdictLine | None:
    words = []
    if facts.chunked_prefill is not None:
        tokens = f" of {facts.max_num_batched_tokens:,} tokens" if facts.max_num_batched_tokens else ""
        words.append(f"chunked prefill{tokens}" if facts.chunked_prefill else "no chunked prefill")
    if facts.async_scheduling is not None:
        words.append("asynchronous" if facts.async_scheduling else "not asynchronous")
    return VerdictLine("Schedule", ", ".join(words), Tone.QUIET) if words else None


def _utilization(facts: EngineFacts) -> VerdictLine | None:
    suggestion = equivalent_utilization(facts)
    if suggestion is None:
        return None
    proof = facts.proof(Topic.UTILIZATION)
    return VerdictLine("Share", suggestion.text, Tone.QUIET, proof[0].line if proof else None)
