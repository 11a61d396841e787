"""A log explained: its phases, verdicts, the cause of a failure, and findings, in one value. Pure: lines go in.

`LogExplainer` reads any log once with bounded memory; whoever has a timeline already calls `explain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from spark_tui.domain.engine.state import EngineState, Health
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.logs.causes.diagnosis import Cause, explain_failure
from spark_tui.domain.logs.findings import Baseline, Finding, Level, findings
from spark_tui.domain.logs.kernels import Fp4, Fp4Verdict, fp4_verdict
from spark_tui.domain.logs.serving import Drafting, ServingReader, ServingSample, drafting
from spark_tui.domain.logs.sizing import (
    GraphMemory,
    GraphState,
    KvCapacity,
    Pairs,
    equivalent_utilization,
    graph_memory,
    kv_capacity,
    kv_words,
)
from spark_tui.domain.logs.timeline import BootTimeline, EngineFacts, Outcome, Topic
from spark_tui.domain.logs.tracker import BootTracker
from spark_tui.domain.models.checkpoint import CheckpointFacts


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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the log; everything may be missing.

    `engine` is the runtime (`vllm`, `sglang` ...); `argv` and `environment` are the engine's own (a variable of
    unknown value has an empty one); `exit_code`, `oom_killed` and `error` are Docker's; `now` is on the clock of the
    log's stamps; `pool_gib` is the memory of the machine it runs on.
    """

    engine: str = ""
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    checkpoint: CheckpointFacts | None = None
    ended: bool = False
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    kernel_lines: tuple[str, ...] = ()
    health: Health = Health.UNKNOWN
    now: float | None = None
    baseline: Baseline | None = None
    pool_gib: float | None = None
    taken_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a log means. `cause` is None unless it failed or was stopped."""

    engine: str
    timeline: BootTimeline
    fp4: Fp4Verdict
    kv: KvCapacity
    graphs: GraphMemory
    drafting: Drafting | None
    rows: tuple[VerdictLine, ...]
    cause: Cause | None
    findings: tuple[Finding, ...]
    lines: int = 0
    """How many lines were read."""

    @property
    def outcome(self) -> Outcome:
        """Ready, failed, stopped or starting. A log that shows nothing of a start is one that may yet begin."""
        told = self.timeline.outcome
        return Outcome.STARTING if told is Outcome.UNKNOWN else told


def explain(
    timeline: BootTimeline,
    samples: Sequence[ServingSample] = (),
    around: Surroundings | None = None,
    *,
    lines: int = 0,
) -> Explanation:
    """Everything that can be said about a timeline and the samples after it. Never raises."""
    around = around or Surroundings()
    facts = timeline.facts
    fp4 = fp4_verdict(facts, around.checkpoint, around.argv, around.environment)
    cause = None
    if timeline.outcome in (Outcome.FAILED, Outcome.STOPPED) or around.exit_code not in (None, 0) or around.error:
        cause = explain_failure(
            timeline,
            exit_code=around.exit_code,
            oom_killed=around.oom_killed,
            error=around.error,
            kernel_lines=around.kernel_lines,
            pool_gib=around.pool_gib,
            taken_ports=around.taken_ports,
        )
    found = findings(
        timeline,
        samples,
        health=around.health,
        now=around.now,
        baseline=around.baseline,
        pool_gib=around.pool_gib,
        fp4=fp4,
    )
    return Explanation(
        engine=around.engine,
        timeline=timeline,
        fp4=fp4,
        kv=kv_capacity(facts),
        graphs=graph_memory(facts),
        drafting=drafting(samples),
        rows=verdict_lines(facts, fp4, samples),
        cause=cause,
        findings=found,
        lines=lines,
    )


# --- a whole log --------------------------------------------------------------------------------------------------

_MARKS: Final = (
    (
        "vllm",
        re.compile(r"vLLM|\(APIServer pid=|\(EngineCore|site-packages/vllm/|vllm serve|vllm: error"),
    ),
    ("sglang", re.compile(r"sglang|Load weight begin|fired up and ready to roll|#running-req: ")),
    ("trtllm", re.compile(r"\[TRT-LLM\] \[|trtllm-serve|tensorrt_llm/")),
    ("ollama", re.compile(r"source=\S{1,40}\.go:\d+ msg=|ollama")),
    ("llama-cpp", re.compile(r"llama_model_load|llama_model_loader|llama_context|\bsrv +\w+: |llama-server")),
)
_MARK_LINES: Final = 2_000
"""So many lines are looked at to learn which engine wrote them."""
_DOCKER_JSON: Final = '{"log":"'


class LogExplainer:
    """Feed it a log from its first line; `explanation()` is what it means so far."""

    def __init__(self, started_at: float | None = None) -> None:
        self._tracker = BootTracker(started_at)
        self._serving = ServingReader()
        self._engines: set[str] = set()
        self._lines = 0

    @property
    def lines(self) -> int:
        """How many were read."""
        return self._lines

    @property
    def model(self) -> str:
        """The model as the log names it; empty until it does."""
        return self._tracker.timeline().facts.model

    def feed_many(self, batch: Iterable[tuple[str, str]]) -> None:
        """Lines as `(stamp, text)`; the stamp is RFC 3339 or empty. Docker's own log files (`{"log":...}`) are
        unpacked."""
        lines = [_unpacked(stamp, text) if text.startswith(_DOCKER_JSON) else (stamp, text) for stamp, text in batch]
        self._recognise(lines[: max(0, _MARK_LINES - self._lines)])
        self._lines += len(lines)
        self._tracker.feed_many(lines)
        self._serving.feed_many(lines)

    def _recognise(self, lines: list[tuple[str, str]]) -> None:
        """vLLM's own words decide at once: other engines' libraries speak in its logs too."""
        for _, text in lines:
            if "vllm" in self._engines:
                return
            self._engines.update(name for name, mark in _MARKS if mark.search(text[:2_000]))

    def explanation(self, around: Surroundings | None = None) -> Explanation:
        """What was read so far means, in its surroundings. A container that has ended is said to have."""
        around = around or Surroundings()
        if around.ended:
            self._tracker.container_ended(around.exit_code)
        engine = around.engine or next((name for name, _ in _MARKS if name in self._engines), "")
        told = Surroundings(**{**_fields(around), "engine": engine})
        return explain(self._tracker.timeline(), self._serving.samples, told, lines=self._lines)


def _fields(around: Surroundings) -> dict[str, Any]:
    return {name: getattr(around, name) for name in Surroundings.__dataclass_fields__}


def _unpacked(stamp: str, text: str) -> tuple[str, str]:
    """A line of Docker's json-file driver: its own stamp and text; what it is not stays as it is."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return stamp, text
    said, at = found.get("log"), found.get("time")
    if not isinstance(said, str):
        return stamp, text
    return (at if isinstance(at, str) else stamp), said.rstrip("\n")


FINDING_TONES: Final = {Level.CRITICAL: Tone.BAD, Level.WARNING: Tone.WARNING, Level.INFO: Tone.PLAIN}
FINDING_LABELS: Final = {Level.CRITICAL: "urgent", Level.WARNING: "warning", Level.INFO: "advice"}


def explain_view(
    view: EngineView,
    *,
    now: float | None = None,
    pool_gib: float | None = None,
    baseline: Baseline | None = None,
    taken_ports: Collection[int] = (),
) -> Explanation:
    """Everything that can be said about an engine now. `now` is epoch seconds, `pool_gib` the machine's memory in GiB,
    `taken_ports` are not proposed in place of one in use. An engine that serves has no cause; nor has one that a
    person stopped."""
    container = view.container
    well = view.state in (EngineState.SERVING, EngineState.STOPPED)
    explanation = explain(
        view.timeline,
        view.samples,
        Surroundings(
            engine=view.runtime,
            argv=container.argv,
            environment=dict.fromkeys(container.environment, ""),
            checkpoint=view.checkpoint,
            ended=not container.running and container.started_at is not None,
            exit_code=None if container.running or well else container.exit_code,
            oom_killed=container.oom_killed,
            error="" if well else container.error,
            health=view.health,
            now=now if container.running else None,
            baseline=baseline,
            pool_gib=pool_gib,
            taken_ports=tuple(taken_ports),
        ),
    )
    return replace(explanation, cause=None) if well else explanation


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that would help, as `overrides_from_pairs` takes it, and what it is for."""

    why: str
    changes: Pairs


def proposal(explanation: Explanation) -> Proposal | None:
    """The change that the cause proposes, else the worst finding that has one."""
    cause = explanation.cause
    if cause is not None:
        return Proposal(cause.summary, cause.override) if cause.override else None
    return next((Proposal(found.summary, found.override) for found in explanation.findings if found.override), None)


def finding_rows(findings: Sequence[Finding], applied: Pairs = (), key: str = "a") -> list[VerdictLine]:
    """A row for what is found, and one for what to do; `applied` are the changes that `key` would make."""
    rows = []
    for found in findings:
        rows.append(VerdictLine(FINDING_LABELS[found.level], found.summary, FINDING_TONES[found.level], found.line))
        if found.remedy:
            rows.append(VerdictLine("do", found.remedy))
        if found.override and found.override == applied:
            rows.append(VerdictLine(f"{key} applies", pairs_text(found.override)))
    return rows


def pairs_text(pairs: Pairs) -> str:
    """`max_model_len=90112 kv_cache_dtype=fp8`."""
    return " ".join(f"{key}={value}" for key, value in pairs)


class LandmarkKind(StrEnum):
    """Why a line is worth a jump."""

    CAUSE = "cause"
    FINDING = "finding"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class Landmark:
    """A line of an engine's log that proves something. `line` is its number in the log buffer."""

    line: int
    kind: LandmarkKind
    text: str
    tone: Tone = Tone.PLAIN


def landmarks(explanation: Explanation, first_line: int, cause_line: int | None = None) -> tuple[Landmark, ...]:
    """The lines that prove cause, findings and verdicts, in the log's order; of several on a line the gravest is told.

    `first_line` is the buffer's number of the line that evidence calls 0, `cause_line` that of the deciding one.
    """
    found: dict[int, Landmark] = {}

    def mark(line: int, kind: LandmarkKind, text: str, tone: Tone) -> None:
        found.setdefault(line, Landmark(line, kind, text, tone))

    if explanation.cause is not None and cause_line is not None:
        mark(cause_line, LandmarkKind.CAUSE, explanation.cause.summary, Tone.BAD)
    for advice in explanation.findings:
        if advice.line is not None:
            mark(first_line + advice.line, LandmarkKind.FINDING, advice.summary, FINDING_TONES[advice.level])
    for row in explanation.rows:
        if row.line is not None:
            mark(first_line + row.line, LandmarkKind.VERDICT, f"{row.label}: {row.text}", row.tone)
    return tuple(sorted(found.values(), key=lambda landmark: landmark.line))
