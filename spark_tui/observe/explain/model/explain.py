"""A log explained: its phases, verdicts, the cause of a failure, and findings, in one value. Pure: lines go in.

`LogExplainer` reads any log once with bounded memory; `explain_view` takes an engine under watch.

Outcome, phase, deciding line and cause are promised for the log of an engine that has a table of rules, whole or its
end, and of a kernel's log what happened. Any other text is not recognised.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.state import EngineState, model_argument
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.detectors import kernel_events, of_the_kernel
from spark_tui.base.text import lazy_pattern
from spark_tui.base.untrusted import load_json
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.findings import FindingId, findings
from spark_tui.observe.explain.model.kernels import Fp4Verdict, fp4_verdict
from spark_tui.observe.explain.model.serving import DraftStats, ServingSample, drafting
from spark_tui.observe.explain.model.sizing import GraphMemory, graph_memory
from spark_tui.observe.explain.model.timeline import BootTimeline, PhaseId, PhaseState, StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import Baseline, EngineView, LogContext
from spark_tui.observe.explain.model.whose import SGLANG_HEAD, in_form


class Explanation(Struct, frozen=True):
    """What a log means. `cause` is None unless it failed or was stopped; `lines` is how many were read.

    `kv_percent` and `prefix_hit_percent` are the latest reported figures."""

    engine: str
    timeline: BootTimeline
    fp4: Fp4Verdict
    graphs: GraphMemory
    drafting: DraftStats | None
    cause: Finding | None
    findings: tuple[Finding, ...]
    kv_percent: float | None = None
    prefix_hit_percent: float | None = None
    lines: int = 0
    in_form: bool = True
    """A line has the form that an engine gives its own."""
    kernel: tuple[Finding, ...] = ()
    """What the kernel says in the same text; without an engine the gravest error of it is the cause."""

    @property
    def outcome(self) -> StartOutcome:
        """Ready, failed, stopped or starting. UNKNOWN: no engine's log, by all that was read."""
        outcome = self.timeline.outcome
        if outcome not in (StartOutcome.UNKNOWN, StartOutcome.STARTING):
            return outcome
        if self.cause is not None and self.cause in self.kernel:
            return StartOutcome.FAILED
        begun = any(
            each.state is not PhaseState.PENDING for each in self.timeline.phases if each.id not in _ANY_PROGRAM
        )
        known = (self.engine and self.in_form) or begun or self.findings
        return StartOutcome.STARTING if known else StartOutcome.UNKNOWN

    def judged(self, find_judge: Callable[[], Any], container: ContainerFacts | None = None) -> Explanation:
        """With advice alone that passes the check of the launch that it would make: of the container, or of the command
        that the log repeats. The judge is found when there is something to judge."""
        advice, facts = (self.cause, *self.findings), self.timeline.facts
        proposed = self.engine in ("", "vllm") and any(each is not None and each.change for each in advice)
        judge = find_judge() if proposed else None
        if judge is None:
            return self
        given: tuple[object, ...] = "", facts.model, command_in(self.timeline), ()
        if container is not None:
            model = facts.model or model_argument(container)
            given = container.image, model, container.argv, container.environment
        cause, *found = (judge(*given, each) if each is not None and each.change else each for each in advice)
        return replace(self, cause=cause, findings=tuple(found))

    @property
    def proposal(self) -> Finding | None:
        """The finding whose change would help: the cause, else the worst finding that has one."""
        if self.cause is not None:
            return self.cause if self.cause.change else None
        return next((finding for finding in self.findings if finding.change), None)


def command_in(timeline: BootTimeline) -> tuple[str, ...]:
    """vLLM's command, as far as its log repeats it."""
    facts, failure = timeline.facts, timeline.failure
    given = {key: getattr(facts, key) for key in _REPEATED} | dict(failure.asked if failure is not None else ())
    words = ["vllm", "serve", facts.model or "MODEL"]
    words += [word for key, value in given.items() if value for word in (f"--{key.replace('_', '-')}", str(value))]
    if facts.speculation:
        method, _, tokens = facts.speculation.rpartition(" ")
        config = {"method": method, "num_speculative_tokens": tokens} if method else {"method": tokens}
        words += ["--speculative-config", json.dumps(config)]
    return (*words, *(["--enforce-eager"] if facts.eager else []))


_REPEATED: Final = (
    "quantization", "kv_cache_dtype", "moe_backend", "linear_backend", "gpu_memory_utilization",
    "kv_cache_memory_bytes", "max_num_seqs", "max_model_len", "max_num_batched_tokens",
)  # fmt: skip
_ANY_PROGRAM: Final = (PhaseId.CONTAINER, PhaseId.DOWNLOAD)
"""Phases that the log of any program may show."""


def explain(
    timeline: BootTimeline, samples: Sequence[ServingSample] = (), context: LogContext | None = None, *, lines: int = 0
) -> Explanation:
    """Everything that can be said about a timeline and the samples after it. Never raises."""
    context = context or LogContext()
    facts = timeline.facts
    fp4 = fp4_verdict(facts, context.checkpoint, context.argv, context.environment)
    ended = timeline.outcome in (StartOutcome.FAILED, StartOutcome.STOPPED) or context.exit_code not in (None, 0)
    found = findings(timeline, samples, context, fp4)
    return Explanation(
        engine=context.engine,
        timeline=timeline,
        fp4=fp4,
        graphs=graph_memory(facts, context.pool_gib),
        drafting=drafting(samples),
        cause=in_one_voice(explain_failure(timeline, context), found) if ended or context.error else None,
        findings=found,
        kv_percent=_latest(samples, "kv_percent"),
        prefix_hit_percent=_latest(samples, "prefix_hit_percent"),
        lines=lines,
    )


_OF_MEMORY: Final = (
    CauseId.KILLED, CauseId.ENGINE_DIED, CauseId.UNKNOWN, CauseId.STOPPED_BY_GUARD, CauseId.OUT_OF_MEMORY_WARMUP,
)  # fmt: skip
"""Ends that memory that was misjudged may have."""


def in_one_voice(cause: Finding | None, found: Sequence[Finding]) -> Finding | None:
    """The cause, with the reason and the advice of a grave finding that explains it: graphs that are misjudged give the
    KV cache more than there is, and a lower share of the memory does not change that."""
    grave = next(
        (each for each in found if each.id == FindingId.GRAPH_ESTIMATE and each.severity is Severity.ERROR), None
    )
    if cause is None or grave is None or cause.id not in _OF_MEMORY:
        return cause
    lines = tuple(dict.fromkeys((*grave.evidence, *cause.evidence)))
    told = f"{cause.summary} {grave.summary}"
    return replace(cause, summary=told, evidence=lines, remedy=grave.remedy, change=grave.change)


def _latest(samples: Sequence[ServingSample], name: str) -> float | None:
    return next((value for sample in reversed(samples) if (value := getattr(sample, name)) is not None), None)


def explain_view(
    view: EngineView,
    *,
    now: float,
    pool_gib: float | None = None,
    taken_ports: Collection[int] = (),
    kernel_lines: tuple[str, ...] = (),
    baseline: Baseline | None = None,
) -> Explanation:
    """Everything that can be said about an engine under watch, now (epoch seconds). An engine that serves has no
    cause; nor has one that a person stopped. One that the memory guard stopped has that."""
    context = LogContext.of(
        view.container,
        health=view.health,
        now=now,
        checkpoint=view.checkpoint,
        pool_gib=pool_gib,
        taken_ports=taken_ports,
    )
    context = replace(context, kernel_lines=kernel_lines, baseline=baseline, guard=view.guard)
    if view.state in (EngineState.SERVING, EngineState.STOPPED) and view.guard is None:
        context = replace(context, exit_code=None, error="")
        return replace(explain(view.timeline, view.samples, context), cause=None)
    return explain(view.timeline, view.samples, context)


# --- a whole log --------------------------------------------------------------------------------------------------

_SGLANG: Final = lazy_pattern(rf"/sglang/srt/|server_args=ServerArgs\(|ready to roll|^{SGLANG_HEAD}")
"""Its own forms: it imports vLLM's kernels, which write lines of vLLM's."""
_MARKS: Final = (
    (
        "vllm",
        lazy_pattern(
            r"vLLM|\((?:APIServer|EngineCore\w*|(?:Vllm)?Worker\w*) pid=|"
            r"/vllm/(?:v1|engine|entrypoints|worker|executor|model_executor)/|-packages/vllm/|vllm serve|vllm: error|"
            r"gpu_memory_utilization|KV cache memory|multiproc_executor|"
            r"(?:INFO|WARNING|ERROR) \d\d-\d\d [\d:]{8} \[\w{1,60}\.py:\d|\[core\.py:\d"
        ),
    ),
    (
        "sglang",
        lazy_pattern(
            r"sglang|Load weight begin|fired up and ready to roll|#running-req: |"
            rf"{SGLANG_HEAD}|"
            r"ttention backend not (?:explicitly )?specified"
        ),
    ),
    (
        "trtllm",
        lazy_pattern(
            r"\[TRT-LLM\] \[|\[TensorRT-LLM\](?!\[DEBUG\] SM\d)|trtllm-serve|tensorrt_llm[/:]|"
            r"backends/tensorrtllm|inflight_batcher"
        ),
    ),
    (
        "ollama",
        lazy_pattern(
            r"source=\S{1,40}\.go:\d+ msg=|OLLAMA_|Ollama|/\.ollama/|ollama (?:run|pull|serve|create)\b|llama runner |"
            r"\bollama\[\d|id_ed25519'\. Generating"
        ),
    ),
    (
        "llama-cpp",
        lazy_pattern(
            r"llama_model_load|ggml[-_]cuda|libggml|ggml_\w{1,20}_init: found \d|llama_context|\bsrv +\w+(?:\(\))?: |"
            r"llama-server|(?:llm_load|llama_(?:new|init|kv|perf|print))_\w{1,40}: |"
            r"llama server listening|\bslot +\w+: id +\d|\bprint_info: |load_backend: loaded|system_info: n_threads|"
            r"main: (?:router )?server is listening on http|update_slots\b|launch_slot|alloc_compute_meta: |"
            r"warmup: (?:WARNING: )?flash attention|\b(?:clip|mtmd)_(?:init|model_loader)\w{0,20}: "
        ),
    ),
)
_MARK_LINES: Final = 2_000
"""Lines examined to learn which engine wrote them."""
_VLLM_LINES: Final = 200
"""Of these, lines of vLLM may come from kernels that SGLang imports."""
_KERNEL_LINES: Final = 2_000
"""Of these lines the latest are kept."""
_DOCKER_JSON: Final = '{"log":"'


class LogExplainer:
    """Feed it a log from its first line; `explanation()` is what it means so far."""

    def __init__(self, started_at: float | None = None, runtime: str = "") -> None:
        self._tracker = LogTracker(started_at, runtime)
        self._engines: set[str] = set()
        self._in_form = self._decided = False
        """A line is in an engine's form; one is in a form by which the engine is certain."""
        self._kernel: deque[tuple[int, str]] = deque(maxlen=_KERNEL_LINES)
        self.lines = 0
        """How many were read."""

    @property
    def model(self) -> str:
        """The model as the log names it; empty until it does."""
        return self._tracker.timeline().facts.model

    def feed_many(self, batch: Iterable[tuple[str, str]]) -> None:
        """Lines as `(stamp, text)`; the stamp is RFC 3339 or empty. Docker's own log files (`{"log":...}`) are
        unpacked."""
        lines = [_unpacked(stamp, text) if text.startswith(_DOCKER_JSON) else (stamp, text) for stamp, text in batch]
        for at, (_, text) in enumerate(lines[: max(0, _MARK_LINES - self.lines)], self.lines):
            if self._decided or ("vllm" in self._engines and at >= _VLLM_LINES):
                break
            if _SGLANG.search(text, 0, 2_000):
                self._engines, self._decided = {"sglang"}, True
            elif "vllm" not in self._engines:  # its own words decide at once: other engines' libraries log there too
                self._engines.update(name for name, mark in _MARKS if mark.search(text[:2_000]))
        if not self._in_form and self.lines < _MARK_LINES:
            self._in_form = any(in_form(text) for _, text in lines)
        self._kernel.extend((at, text) for at, (_, text) in enumerate(lines, self.lines) if of_the_kernel(text))
        self.lines += len(lines)
        self._tracker.feed_many(lines)

    def explanation(self, context: LogContext | None = None) -> Explanation:
        """What was read so far means, in its context. A container that has ended is said to have; without a context
        the log is a text that is over."""
        if context is None:
            self._tracker.text_ended(engine=bool(self._engines))
            context = LogContext()
        if context.ended:
            self._tracker.container_ended(context.exit_code)
        engine = context.engine or next((name for name, _ in _MARKS if name in self._engines), "")
        tracker = self._tracker
        told = explain(tracker.timeline(), tracker.samples, replace(context, engine=engine), lines=self.lines)
        told = replace(told, kernel=kernel_events(self._kernel))
        if not engine and told.kernel and told.kernel[0].severity is Severity.ERROR:
            told = replace(told, cause=told.kernel[0])
        return told if self._in_form or context.engine else replace(told, in_form=False)


def _unpacked(stamp: str, text: str) -> tuple[str, str]:
    """A line of Docker's json-file driver: its own stamp and text; any other line stays as it is."""
    try:
        found = load_json(text)
    except ValueError:
        return stamp, text
    line, at = found.get("log"), found.get("time")
    if not isinstance(line, str):
        return stamp, text
    return (at if isinstance(at, str) else stamp), line.rstrip("\n")
