"""A log explained: its phases, verdicts, the cause of a failure, and findings, in one value. Pure: lines go in.

`LogExplainer` reads any log once with bounded memory; whoever has a timeline already calls `explain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_tui.domain.engine.boot import BootTracker
from spark_tui.domain.engine.endpoint import Health
from spark_tui.domain.engine.failures import Cause, explain_failure
from spark_tui.domain.engine.findings import Baseline, Finding, findings
from spark_tui.domain.engine.kernels import Fp4Verdict, fp4_verdict
from spark_tui.domain.engine.serving_lines import Drafting, ServingReader, ServingSample, drafting
from spark_tui.domain.engine.sizing import GraphMemory, KvCapacity, graph_memory, kv_capacity
from spark_tui.domain.engine.timeline import BootTimeline, Outcome
from spark_tui.domain.engine.verdict_lines import VerdictLine, verdict_lines
from spark_tui.domain.models.checkpoint import CheckpointFacts


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
