"""What is worth attention about an engine, live or after the fact. Silent when all is well.

Pure functions; evidence is a line of the log where one proves it, so that a log view can jump to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.state import Health
from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.base.quantities import human_duration
from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.cause import FailureContext, Names
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.kernels import Fp4, Fp4Verdict, fp4_verdict
from spark_tui.observe.explain.model.serving import DraftStats, ServingSample, drafting
from spark_tui.observe.explain.model.sizing import MOST_REQUESTS, GraphState, graph_memory, kv_alternatives
from spark_tui.observe.explain.model.timeline import BootTimeline, EngineFacts, Kernel, LogEvidence, StartOutcome, Topic
from spark_tui.observe.explain.model.view import LogContext

INTERVAL_SECONDS: Final = 10.0
"""vLLM's VLLM_LOG_STATS_INTERVAL."""
FROZEN_SECONDS: Final = 120.0
"""A long prefill writes no token: 128k tokens at 1,600 a second take 80 s."""
LONG_WAIT_SECONDS: Final = 60.0
LOW_ACCEPTANCE: Final = 0.1
ENOUGH_DRAFTS: Final = 500
LAST_POSITION: Final = 0.15
GOOD_HEAD: Final = 0.3
"""A first position that is accepted as often makes shorter drafts worthwhile."""
KV_FULL_PERCENT: Final = 95.0
KV_ROOM_PERCENT: Final = 70.0
QUEUE_SAMPLES: Final = 3
LONG_QUEUE: Final = 8
"""With fewer samples: a queue that is longer than this, and than what runs, counts at once."""
ENOUGH_PROMPTS: Final = ((6, 20_000), (4, 100_000))
"""Samples with requests and their prompt tokens: the more tokens, the fewer samples prove something."""
LARGE_BLOCK: Final = 256
BELOW_BASELINE: Final = 0.7
ENOUGH_SINGLE: Final = 3
NOTABLE_PADDING_PERCENT: Final = 5.0


class FindingId(StrEnum):
    """Stable names: scripts may rely on them."""

    HANG = "hang"
    GRAPH_ESTIMATE = "graph_estimate"
    FP4_FALLBACK = "fp4_fallback"
    FP4_EMULATION = "fp4_emulation"
    BACKEND_REFUSED = "backend_refused"
    CAPTURE_SIZES_CAPPED = "capture_sizes_capped"
    ACCEPTANCE_NEAR_ZERO = "acceptance_near_zero"
    DRAFTS_TOO_LONG = "drafts_too_long"
    PREEMPTIONS = "preemptions"
    KV_NEARLY_FULL = "kv_nearly_full"
    WAITING = "waiting"
    BELOW_BASELINE = "below_baseline"
    UNKNOWN_VARIABLE = "unknown_variable"
    PREFIX_CACHE_NEVER_HIT = "prefix_cache_never_hit"
    PADDING_WASTE = "padding_waste"
    WORKER_WAIT = "worker_wait"
    RAY_WAIT = "ray_wait"
    NCCL_WAIT = "nccl_wait"
    NCCL_SOCKET = "nccl_socket"
    DP_WAIT = "dp_wait"
    GROUP_WAIT = "group_wait"
    NO_DRIVER = "no_driver"
    RUNNER_FAILED = "runner_failed"
    EAGER = "eager"
    PROMPT_TRUNCATED = "prompt_truncated"


class Observation(Struct, frozen=True):
    """All that findings are made of; `fp4` is the verdict."""

    facts: EngineFacts
    fp4: Fp4Verdict
    samples: tuple[ServingSample, ...]
    context: LogContext
    failed: bool = False
    """It has a cause, which says the rest."""

    @property
    def names(self) -> Names:
        """What remedies call the engine's options."""
        return FailureContext("", self.context.engine, facts=self.facts).names

    @property
    def whole(self) -> bool:
        """A text by itself, of which nothing is known but its lines."""
        return self.context.now is None and self.context.health is Health.UNKNOWN

    @property
    def throughput(self) -> list[ServingSample]:
        return _throughput(self.samples)


def findings(
    timeline: BootTimeline,
    samples: Sequence[ServingSample] = (),
    context: LogContext | None = None,
    fp4: Fp4Verdict | None = None,
) -> tuple[Finding, ...]:
    """Everything worth saying, the worst first; nothing for a healthy engine. Never raises.

    `samples` come from a `LogTracker`, or from an engine's metrics. A hang is only reported with a `now` (on the clock
    of the samples) and a `health` of OK. `fp4` is the verdict where flags and checkpoint are known; else the log's.
    """
    facts = timeline.facts
    seen = Observation(
        facts,
        fp4 or fp4_verdict(facts),
        tuple(samples),
        context or LogContext(),
        timeline.outcome is StartOutcome.FAILED,
    )
    found = (finding for rule in RULES for finding in rule(seen))
    return tuple(sorted(found, key=lambda finding: finding.severity.rank))


def _finding(
    finding_id: FindingId,
    severity: Severity,
    summary: str,
    remedy: str,
    change: Change = (),
    proof: Sequence[LogEvidence | Kernel | ServingSample | DraftStats] = (),
) -> Finding:
    """With the first line that proves it, where there is one."""
    text, line = (proof[0].text, proof[0].line) if proof else ("", None)
    return Finding(finding_id, severity, summary, (text,) if text else (), remedy, change, line)


# --- how it serves ----------------------------------------------------------------------------------------


def _frozen(seen: Observation) -> list[ServingSample]:
    """The latest samples in which requests ran or waited and no token moved, the last one first."""
    frozen: list[ServingSample] = []
    for sample in reversed(seen.throughput):
        if not (sample.running or sample.waiting) or sample.generation_rate or sample.prompt_rate:
            break
        frozen.append(sample)
    return frozen


def hang(seen: Observation) -> Iterator[Finding]:
    """Requests run or wait, no token moves, and `/health` still says 200. Of a log alone its own lines must span the
    time."""
    frozen = _frozen(seen)
    since = frozen[-1].at if frozen else None
    whole = seen.whole
    now = frozen[0].at if whole and frozen else seen.context.now
    alive = whole or seen.context.health is Health.OK
    if now is None or not alive or since is None or now - since < FROZEN_SECONDS:
        return
    running, still = frozen[0].running or 0, human_duration(now - since)
    count = running or frozen[0].waiting or 0
    beside = "" if whole else ", although /health is OK"
    state = "running" if running else "waiting, none running"
    yield _finding(
        FindingId.HANG,
        Severity.ERROR,
        f"{count} request{'s' * (count != 1)} {state}, no tokens for {still}{beside} (stuck).",
        "Restart the engine. If it happens again: 96 % use at about 20 W in `nvidia-smi` is a stuck kernel or link.",
        proof=frozen[-1:],
    )


_WAITS: Final = {
    Topic.WORKER_WAIT: (
        FindingId.WORKER_WAIT,
        "Workers have not answered for {}.",
        "Normal while kernels compile or tune (CPU busy). Else check each rank's log, and `nvidia-smi`: 96 % use at "
        "about 20 W is a stuck kernel or link. Then stop all ranks and start again.",
    ),
    Topic.RAY_WAIT: (
        FindingId.RAY_WAIT,
        "Ray has waited {} for GPUs.",
        "`ray status` must list every node with its GPU. Set VLLM_HOST_IP and ray's --node-ip-address to each node's "
        "fabric address.",
    ),
    Topic.DP_WAIT: (
        FindingId.DP_WAIT,
        "The data-parallel coordinator has waited {} for the other ranks.",
        "Start the ranks of the other nodes, with the same data_parallel_size, data_parallel_address and port.",
    ),
    Topic.GROUP_WAIT: (
        FindingId.GROUP_WAIT,
        "This rank has waited {} for the others (Gloo, NCCL).",
        "Check the other node: its rank must run, with this master address and port, and no firewall between. "
        "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME must name each node's own fabric interface (`ip -br addr`).",
    ),
    Topic.NCCL_WAIT: (
        FindingId.NCCL_WAIT,
        "NCCL reported a fault between the nodes {} ago.",
        "Check cable, MTU and GID index on both nodes, and the log of the other one: `ping -M do -s 8972 ADDRESS`.",
    ),
}
_CONNECTING: Final = (
    FindingId.NCCL_WAIT,
    "NCCL has been connecting the ranks for {}.",
    "On one machine try env.NCCL_P2P_DISABLE=1 and `--ipc=host`. Between machines check cable, firewall and "
    "NCCL_SOCKET_IFNAME on each node. If it stays stuck: `py-spy dump --pid PID` of a worker.",
)


def waits(seen: Observation) -> Iterator[Finding]:
    """A process waits for another one."""
    for each in seen.facts.waits:
        last = each is seen.facts.waits[-1]
        connects = each.topic is Topic.NCCL_WAIT and ("NCCL INFO" in each.text or "using nccl" in each.text)
        finding, summary, remedy = _CONNECTING if connects else _WAITS[each.topic]
        now, since = seen.context.now, each.at
        seconds = each.seconds or (max(0.0, now - since) if now is not None and since is not None else 0.0)
        if (finding is FindingId.NCCL_WAIT and not connects) or seconds >= LONG_WAIT_SECONDS:
            told = summary.format(human_duration(seconds)) if seconds else summary.replace(" {} ago", "")
            yield _finding(finding, Severity.WARNING, told, remedy, proof=(each,))
        elif seen.whole and last and not seen.failed:
            who = "Ray waits for GPUs" if finding is FindingId.RAY_WAIT else "a rank waits for others"
            yield _finding(finding, Severity.INFO, f"The log ends where {who}.", remedy, proof=(each,))


_TOLD: Final = {
    Topic.NO_DRIVER: (
        FindingId.NO_DRIVER,
        "No GPU visible in the container.",
        "Check that `nvidia-smi` works on the host, and that the preset requests GPUs (`--gpus all`).",
    ),
    Topic.BACKEND_REFUSED: (
        FindingId.BACKEND_REFUSED,
        "The requested kernel does not exist for some layers; vLLM chose another.",
        "Set the backend to auto, or use an image that has it.",
    ),
    Topic.NCCL_SOCKET: (
        FindingId.NCCL_SOCKET,
        "NCCL uses TCP on {}, not RDMA: between Sparks that is 10 to 20 times slower.",
        "On one Spark it does not matter. Between several, NCCL_SOCKET_IFNAME and NCCL_IB_HCA must name the ConnectX-7 "
        "ports (`ibdev2netdev`), and the container needs /dev/infiniband: see `spark-tui cluster doctor NAME`.",
    ),
}
_INTERFACE: Final = lazy_pattern(r"\[\d{1,2}\]([\w.\-]{1,40})|$")


def told(seen: Observation) -> Iterator[Finding]:
    """What a line says by itself."""
    for topic, (finding, summary, remedy) in _TOLD.items():
        for line in seen.facts.proof(topic)[:1]:
            named = _INTERFACE.search(line.text)
            where = (named and named[1]) or "Ethernet"
            yield _finding(finding, Severity.WARNING, summary.format(where), remedy, proof=(line,))


def runner_failed(seen: Observation) -> Iterator[Finding]:
    """The server serves, but could not load what was asked for."""
    for line in seen.facts.proof(Topic.RUNNER_FAILED)[-1:] if not seen.failed else ():
        known = recognise(line.text)
        engine = seen.context.engine or "ollama"
        context = FailureContext(line.text, engine, facts=seen.facts)
        why = known[0].told(known[1], context) if known else None
        who = "Ollama" if engine == "ollama" else "The server"
        summary = f"{who} could not load a model. {why.summary if why else ''}".strip()
        remedy = why.remedy if why else f"Use {context.names.newer}, or choose another quantization of the model."
        yield _finding(FindingId.RUNNER_FAILED, Severity.ERROR, summary, remedy, proof=(line,))


_LIMIT: Final = lazy_pattern(r"limit=(\d{1,9}) prompt=(\d{1,9})")


def truncated(seen: Observation) -> Iterator[Finding]:
    """Ollama cuts a prompt that is longer than its context."""
    for line in seen.facts.proof(Topic.TRUNCATED)[-1:]:
        figures = _LIMIT.search(line.text)
        sizes = f": {int(figures[2]):,} tokens, context {int(figures[1]):,}" if figures else ""
        more = f" of at least {figures[2]}" if figures else ""
        yield _finding(
            FindingId.PROMPT_TRUNCATED,
            Severity.WARNING,
            f"Ollama truncated a prompt{sizes}. The rest was not read.",
            f"Set a num_ctx{more} (request option, Modelfile, or OLLAMA_CONTEXT_LENGTH for all models). An embedding "
            "model has a limit of its own: send shorter pieces.",
            proof=(line,),
        )


def acceptance(seen: Observation) -> Iterator[Finding]:
    """Drafts that are thrown away cost time and KV cache."""
    drafts = drafting(seen.samples)
    if drafts is None or drafts.rate is None or drafts.drafted < ENOUGH_DRAFTS:
        return
    llama = drafts.text.startswith("slot ")
    first = max(drafts.positions, default=0.0)  # a long draft has a low rate as a whole, however good its head is
    if drafts.rate < LOW_ACCEPTANCE and first < GOOD_HEAD:
        yield _finding(
            FindingId.ACCEPTANCE_NEAR_ZERO,
            Severity.WARNING,
            f"Acceptance rate is {drafts.rate:.0%} ({drafts.drafted:,} tokens drafted): "
            f"{seen.facts.speculation or 'speculation'} costs more than it gains.",
            "Compare without speculation. Possible causes: drafter of another model, weights lost in quantization, or "
            "unpredictable text.",
            () if llama else (("without", "speculative_config"),),
            (drafts,),
        )
        return
    good = sum(share >= LAST_POSITION for share in drafts.positions)
    if good < len(drafts.positions):
        fewer = max(1, good)
        yield _finding(
            FindingId.DRAFTS_TOO_LONG,
            Severity.INFO,
            f"Drafts beyond position {good} have an acceptance rate below {LAST_POSITION:.0%}.",
            f"Try {'--draft-max ' if llama else 'num_speculative_tokens='}{fewer}: {_cost(seen.facts.speculation)}.",
            () if llama else (("num_speculative_tokens", str(fewer)),),
            (drafts,),
        )


def _cost(method: str) -> str:
    """What one more drafted token costs, by the method of drafting."""
    if method.startswith(("dflash", "dspark", "medusa")):
        return "a block is drafted in one pass, so fewer tokens save verification only"
    if method.startswith(("ngram", "suffix")):
        return "drafting is free, verification is not"
    name = "MTP" if method.startswith("mtp") else "EAGLE" if method.startswith("eagle") else "a drafter"
    return f"with {name} each further token costs a pass"


def preemptions(seen: Observation) -> Iterator[Finding]:
    """Requests were preempted from a full KV cache and recomputed."""
    hit = [sample for sample in seen.samples if sample.preemptions]
    if hit:
        count = sum(sample.preemptions or 0 for sample in hit)
        summary = f"{count:,} request{'s' * (count != 1)} preempted: KV cache full, recomputed."
        yield _finding(FindingId.PREEMPTIONS, Severity.WARNING, summary, *_more_kv(seen), hit[-1:])


def kv_nearly_full(seen: Observation) -> Iterator[Finding]:
    last = next((sample for sample in reversed(seen.samples) if sample.kv_percent is not None), None)
    if last is not None and (last.kv_percent or 0.0) >= KV_FULL_PERCENT:
        summary = f"KV cache is {last.kv_percent:.3g} % full: the next request waits or preempts another."
        yield _finding(FindingId.KV_NEARLY_FULL, Severity.WARNING, summary, *_more_kv(seen), (last,))


def _more_kv(seen: Observation) -> tuple[str, Change]:
    """How to give requests more room: the mildest choice as a change, and all in words."""
    choices = kv_alternatives(seen.facts, seen.context.pool_gib)[::-1]
    if choices:
        return f"Set {'; or '.join(choice.text for choice in choices)}.", choices[0].change
    names = seen.names
    text = f"Lower {names.sequences} or {names.context}, raise {names.memory}, or use an fp8 KV cache."
    return text, _halved(seen)


def _halved(seen: Observation) -> Change:
    limit = seen.facts.max_num_seqs
    return (("max_num_seqs", str(limit // 2)),) if limit and 1 < limit <= MOST_REQUESTS else ()


def waiting(seen: Observation) -> Iterator[Finding]:
    """Requests queue, and not only for a moment."""
    last = [sample for sample in seen.samples if sample.waiting is not None][-QUEUE_SAMPLES:]
    few = len(last) < QUEUE_SAMPLES
    long = seen.whole and few and last and (last[-1].waiting or 0) > max(last[-1].running or 0, LONG_QUEUE)
    if (few and not long) or not all(sample.waiting for sample in last) or any(hang(seen)):
        return
    now, limit = last[-1], seen.facts.max_num_seqs
    remedy, change = _more_kv(seen)
    if (now.kv_percent or 0.0) < KV_ROOM_PERCENT:
        room = f"Raise {seen.names.sequences}: the KV cache has room."
        remedy = f"{room} On a Spark each further request slows the others."
        change = (("max_num_seqs", str(limit * 2)),) if limit and limit <= (now.running or 0) <= 1024 else ()
    beside = "" if now.running is None else f", {now.running} running"
    times = "" if few else f" in {QUEUE_SAMPLES} samples in a row"
    summary = f"{now.waiting} request{'s' * (now.waiting != 1)} waiting{beside}{times}."
    yield _finding(FindingId.WAITING, Severity.WARNING, summary, remedy, change, (now,))


def prefix_cache(seen: Observation) -> Iterator[Finding]:
    """Prefix caching is on, many tokens were read, and none was found."""
    measured = [sample for sample in seen.samples if sample.prefix_hit_percent is not None and sample.busy]
    read = sum((sample.prompt_rate or 0.0) * INTERVAL_SECONDS for sample in measured)
    unused = seen.facts.prefix_caching is False or any(sample.prefix_hit_percent for sample in measured)
    enough = any(len(measured) >= samples and read >= tokens for samples, tokens in ENOUGH_PROMPTS)
    if unused or not enough:
        return
    block = seen.facts.attention_block or 0
    why = f" This hybrid model caches only whole blocks of {block:,} tokens." if block > LARGE_BLOCK else ""
    yield _finding(
        FindingId.PREFIX_CACHE_NEVER_HIT,
        Severity.INFO,
        f"No prefix cache hits in about {round(read, -3):,.0f} prompt tokens.{why}",
        "Put constant parts of the prompt first (system prompt, tools, documents), changing ones (time, id) last.",
        proof=measured[-1:],
    )


def below_baseline(seen: Observation) -> Iterator[Finding]:
    """One stream decodes slower than it has on this machine before."""
    was, speed = seen.context.baseline, single_stream_rate(seen.samples)
    if was is not None and speed is not None and speed < BELOW_BASELINE * was.decode_rate:
        runs = f"{was.runs} run{'s' * (was.runs != 1)}"
        yield _finding(
            FindingId.BELOW_BASELINE,
            Severity.WARNING,
            f"1 stream decodes {speed:.1f} tok/s, down from {was.decode_rate:.1f} ({runs}).",
            "Check the GPU's clock and power: a GB10 stuck in low power needs its plug pulled. Then compare kernels "
            "and speculation with the earlier start.",
            proof=seen.throughput[-1:],
        )


def single_stream_rate(samples: Sequence[ServingSample]) -> float | None:
    """Tokens per second of one request, from intervals that it filled: the best of at least three. None: not known.

    An interval in which a request began or ended shows too little, so its neighbours must have one running too.
    """
    measured = _throughput(samples)
    full = [
        sample.generation_rate
        for before, sample, after in zip(measured, measured[1:], measured[2:], strict=False)
        if before.running == sample.running == after.running == 1 and sample.generation_rate
    ]
    return max(full) if len(full) >= ENOUGH_SINGLE else None


def _throughput(samples: Iterable[ServingSample]) -> list[ServingSample]:
    return [sample for sample in samples if sample.running is not None or sample.generation_rate is not None]


# --- how it was started -----------------------------------------------------------------------------------


def fp4_path(seen: Observation) -> Iterator[Finding]:
    """Weight-only without intent, and emulation."""
    verdict = seen.fp4
    known = {Fp4.WEIGHT_ONLY_FALLBACK: FindingId.FP4_FALLBACK, Fp4.EMULATION: FindingId.FP4_EMULATION}
    if verdict.verdict in known:
        guess = " Checkpoint format unknown: for a W4A16 checkpoint this is correct." if verdict.guess else ""
        yield _finding(
            known[verdict.verdict],
            Severity.WARNING,
            f"FP4 is {verdict.summary}. {verdict.cost}",
            verdict.advice + guess,
            verdict.change,
            verdict.evidence,
        )


def graph_estimate(seen: Observation) -> Iterator[Finding]:
    """CUDA-graph memory misjudged so far that the KV cache has the wrong size."""
    graphs = graph_memory(seen.facts, seen.context.pool_gib)
    if graphs.state not in (GraphState.OVERCOMMITTED, GraphState.WASTEFUL):
        return
    severity = Severity.INFO if graphs.state is GraphState.WASTEFUL else Severity.WARNING
    danger = " This can freeze the machine when the cache fills." if graphs.grave else ""
    yield _finding(
        FindingId.GRAPH_ESTIMATE,
        Severity.ERROR if graphs.grave else severity,
        f"CUDA graphs: {graphs.summary}.{danger}",
        graphs.remedy,
        graphs.change,
        graphs.evidence,
    )


def capture_sizes(seen: Observation) -> Iterator[Finding]:
    """Batches beyond the largest captured size run without a graph."""
    for line in seen.facts.proof(Topic.GRAPH_SIZES)[:1]:
        none_left = line.text.startswith(("No valid", "Skipping"))
        if none_left and seen.facts.eager:
            return
        skipped = line.text.startswith("Skipping")
        yield _finding(
            FindingId.CAPTURE_SIZES_CAPPED,
            Severity.INFO if line.text.startswith("Truncating") else Severity.WARNING,
            "No CUDA graphs captured: every step launches each kernel."
            if none_left
            else "CUDA graphs cover smaller batches than requested; larger ones are slower.",
            "Remove cudagraph_mode, unless NONE was intended."
            if skipped
            else f"Lower {seen.names.sequences}, or give the engine more memory.",
            () if skipped else _halved(seen),
            (line,),
        )


def eager(seen: Observation) -> Iterator[Finding]:
    """No compile and no graphs by intent. Silent on the CPU, which has no graphs anyway, and about an engine that did
    not come so far."""
    begun = seen.facts.kv_tokens is not None or seen.samples
    if seen.facts.eager and seen.facts.device != "cpu" and begun:
        yield _finding(
            FindingId.EAGER,
            Severity.INFO,
            "Eager mode (enforce_eager): no torch.compile, no CUDA graphs. Starts sooner, decodes slower.",
            "Remove enforce_eager once the model works.",
            (("without", "enforce_eager"),),
            seen.facts.proof(Topic.EAGER),
        )


def padding(seen: Observation) -> Iterator[Finding]:
    """Layers of unlike kinds leave gaps in the KV cache."""
    share = seen.facts.padding_percent
    if share is not None and share >= NOTABLE_PADDING_PERCENT:
        yield _finding(
            FindingId.PADDING_WASTE,
            Severity.INFO,
            f"Up to {share:g} % of the KV cache is padding: layer sizes (with the drafter's) do not divide evenly.",
            "No action needed while the KV cache is large enough. Without speculation there may be less padding.",
            proof=seen.facts.proof(Topic.PADDING),
        )


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


_BY_IMAGE: Final = ("VLLM_BUILD_", "VLLM_IMAGE_", "VLLM_BASE_", "VLLM_DOCKER_", "VLLM_WHEEL_", "VLLM_COMMIT")
"""Variables that images set themselves."""


def unknown_variables(seen: Observation) -> Iterator[Finding]:
    names = [name for name in seen.facts.unknown_environment if not name.startswith(_BY_IMAGE)]
    if names:
        version = f"vLLM {seen.facts.version}" if seen.facts.version else "This vLLM"
        instead = [f"Instead of {name} use {_INSTEAD[name]}" for name in names if name in _INSTEAD]
        yield _finding(
            FindingId.UNKNOWN_VARIABLE,
            Severity.WARNING if instead else Severity.INFO,
            f"{version} ignores {', '.join(names)}: unknown variable{'s' * (len(names) != 1)}.",
            f"{'. '.join(instead)}." if instead else "Check the spelling, or remove them from the preset.",
            proof=seen.facts.proof(Topic.ENVIRONMENT),
        )


RULES: Final[tuple[Callable[[Observation], Iterable[Finding]], ...]] = (
    hang,
    waits,
    runner_failed,
    truncated,
    told,
    graph_estimate,
    fp4_path,
    capture_sizes,
    acceptance,
    preemptions,
    kv_nearly_full,
    waiting,
    below_baseline,
    unknown_variables,
    prefix_cache,
    padding,
    eager,
)
"""Of findings that matter equally the earlier one is shown first."""
