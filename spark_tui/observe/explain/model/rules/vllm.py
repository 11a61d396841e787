"""Rules for vLLM. Texts were read in 0.14 to 0.33; where one has changed, all its forms are here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.line import COUNT, GIB, NUMBER, LineKind, number
from spark_tui.observe.explain.model.rules import rule as r
from spark_tui.observe.explain.model.timeline import Kernel, Topic
from spark_tui.observe.explain.model.timeline import PhaseId as P

MAX_ARGUMENTS: Final = 20_000
MAX_NAMED: Final = 24

# --- banner, arguments, config ----------------------------------------------------------------------------

_VERSION: Final = lazy_pattern(r"\bversion (\S{1,60}?),?(?:\s|$)")
_NCCL: Final = lazy_pattern(r"vLLM is using nccl==(\S{1,20})")
_SERVING: Final = lazy_pattern(r"\b(?:serving model|model  ) ?(\S{1,300})")


def banner(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`version 0.20.2` and `model   X` on rows of the logo, or in one sentence; `vLLM is using nccl==2.28.9`."""
    if found := _NCCL.match(message):
        yield r.learn(nccl=found[1])
        if known.phase in (P.CONFIG, P.ENGINE_INIT, P.CONTAINER):  # silent until all ranks are there
            yield r.EnterPhase(P.ENGINE_INIT)
            yield r.wait(Topic.NCCL_WAIT, message, known)
    if version := _VERSION.search(message):
        certain = "█" in message or message.startswith(("vLLM API server version", "vLLM server version"))
        yield r.NewStart("vllm" if certain else "")
        yield r.EnterPhase(P.CONFIG)
        yield r.learn(version=version[1])
    if serving := _SERVING.search(message):
        yield r.learn(model=serving[1])


_ARGS: Final = {
    "model": lazy_pattern(r"'model': '([^']{1,300})'"),
    "quantization": lazy_pattern(r"'quantization': '([^']{1,60})'"),
    "kv_cache_dtype": lazy_pattern(r"'kv_cache_dtype': '([^']{1,30})'"),
    "method": lazy_pattern(r"'speculative_config': \{[^}]{0,400}?'method': '([^']{1,40})'"),
    "draft": lazy_pattern(r"'speculative_config': \{[^}]{0,400}?'num_speculative_tokens': (\d{1,4})"),
}
_CONFIG: Final = {
    "model": lazy_pattern(r"\bmodel='([^']{1,300})'"),
    "quantization": lazy_pattern(r"\bquantization=([\w.\-]{1,60})"),
    "kv_cache_dtype": lazy_pattern(r"\bkv_cache_dtype=([\w.]{1,30})"),
    "method": lazy_pattern(r"speculative_config=SpeculativeConfig\([^)]{0,600}?method='([^']{1,40})'"),
    "draft": lazy_pattern(r"speculative_config=SpeculativeConfig\([^)]{0,900}?num_spec_tokens=(\d{1,4})"),
    "version": lazy_pattern(r"\(v([^)]{1,60})\)"),
    "max_model_len": lazy_pattern(r"\bmax_seq_len=(\d{1,12})"),
    # No `\b` in front: the line is some kilobytes long, and a literal beginning is found much faster.
    "moe_backend": lazy_pattern(r"moe_backend='([\w\-]{1,60})'"),
    "linear_backend": lazy_pattern(r"linear_backend='([\w\-]{1,60})'"),
    "device": lazy_pattern(r"device_config=(?:device\(type=')?(\w{2,10})"),
    "cudagraph_mode": lazy_pattern(r"'cudagraph_mode': <CUDAGraphMode\.(\w{3,30})"),
    "prefix_caching": lazy_pattern(r"enable_prefix_caching=(True|False)"),
    "chunked_prefill": lazy_pattern(r"enable_chunked_prefill=(True|False)"),
}
# Of the outermost pairs alone: a drafter's settings inside are not the model's.
_OUTER: Final = {
    "gpu_memory_utilization": lazy_pattern(r"'gpu_memory_utilization': (0?\.\d{1,6}|1(?:\.0{1,6})?)(?=[,}])"),
    "kv_cache_memory_bytes": lazy_pattern(r"'kv_cache_memory_bytes': (\d{1,16})(?=[,}])"),
    "max_num_seqs": lazy_pattern(r"'max_num_seqs': (\d{1,9})(?=[,}])"),
    "max_num_batched_tokens": lazy_pattern(r"'max_num_batched_tokens': (\d{1,9})(?=[,}])"),
    "moe_backend": lazy_pattern(r"'moe_backend': '([\w\-]{1,60})'"),
    "linear_backend": lazy_pattern(r"'linear_backend': '([\w\-]{1,60})'"),
    "prefix_caching": lazy_pattern(r"'enable_prefix_caching': (True|False)"),
    "chunked_prefill": lazy_pattern(r"'enable_chunked_prefill': (True|False)"),
}
_KINDS: Final[Mapping[str, type]] = {
    "gpu_memory_utilization": float,
    **dict.fromkeys(("kv_cache_memory_bytes", "max_num_seqs", "max_num_batched_tokens", "max_model_len"), int),
}
# What a remedy needs.
_ASKED: Final = lazy_pattern(
    r"'(port|gpu_memory_utilization|max_num_seqs|max_model_len|tensor_parallel_size|pipeline_parallel_size|"
    r"max_num_batched_tokens|kv_cache_dtype|kv_cache_memory_bytes|quantization|tool_call_parser|reasoning_parser|"
    r"attention_backend|moe_backend|linear_backend|load_format)': '?([\w.\-]{1,60})'?(?=[,}])"
)


def _read(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, Any]:
    """What the patterns find, converted; `method` and `draft` become `speculation`."""
    fields: dict[str, Any] = r.fields_in(patterns, text)
    method, draft = fields.pop("method", ""), fields.pop("draft", "")
    if method:
        fields["speculation"] = f"{method} {draft}".strip()
    for name, value in fields.items():
        fields[name] = value == "True" if value in ("True", "False") else _KINDS.get(name, str)(value)
    return fields


def arguments(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`non-default args: {...}`: what a person asked for."""
    if not message.startswith("non-default args: "):
        return
    outer = _outer_pairs(message)
    yield r.EnterPhase(P.CONFIG)
    yield r.StartSettings(dict(_ASKED.findall(message)))
    yield r.learn(**_read(_ARGS, message), **_read(_OUTER, outer))
    if "'enforce_eager': True" in outer:
        yield r.learn(eager=True)
        yield from r.keep(Topic.EAGER, "enforce_eager: True in the arguments", known)


def _outer_pairs(message: str) -> str:
    """The outermost pairs of a dict in print, without the dicts inside it."""
    parts, depth, begun = [], 0, 0
    for brace in re.finditer(r"[{}]", message[:MAX_ARGUMENTS]):
        if brace[0] == "{":
            depth += 1
            if depth == 2:
                parts.append(message[begun : brace.start()])
        else:
            if depth == 2:
                begun = brace.end()
            depth = max(0, depth - 1)
    return "".join(parts) + (message[begun:MAX_ARGUMENTS] if depth < 2 else "")


def initializing(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Initializing a V1 LLM engine (v0.20.2) with config: ...`: what it is really set to."""
    if "LLM engine (v" not in message[:60]:
        return
    yield r.EnterPhase(P.ENGINE_INIT)
    yield r.learn(**_read(_CONFIG, message))
    if ", quantization=None," in message:
        yield r.learn(unquantized=True)
    if "enforce_eager=True" in message:
        yield r.learn(eager=True)
        if "device_config=cuda" in message and not known.facts.proof(Topic.EAGER):
            yield from r.keep(Topic.EAGER, "enforce_eager=True in the configuration", known)


def architecture(match: re.Match[str], known: r.RuleContext) -> Iterable[r.Fact]:
    """The first architecture is the model's, a second one its drafter's."""
    return () if known.facts.architecture else (r.learn(architecture=match[1]),)


_BATCHED: Final = lazy_pattern(r"max_num_batched_tokens=(\d{1,9})")


def scheduling(message: str, _known: r.RuleContext) -> Iterator[r.Fact]:
    if message.startswith("Chunked prefill is enabled"):
        tokens = _BATCHED.search(message)
        yield r.learn(chunked_prefill=True, **({"max_num_batched_tokens": int(tokens[1])} if tokens else {}))
    elif message.startswith(("Chunked prefill is not supported", "Disabling chunked prefill")):
        yield r.learn(chunked_prefill=False)
    elif message.startswith("Asynchronous scheduling is "):
        yield r.learn(async_scheduling="enabled" in message)
    elif message.startswith("Async scheduling ") and "disabled" in message:
        yield r.learn(async_scheduling=False)
    elif message.startswith(("Prefix caching is not supported", "Disabling prefix caching")) or (
        message.startswith("Hybrid or mamba-based model") and message.rstrip(". ").endswith("disabling")
    ):
        yield r.learn(prefix_caching=False)
    elif message.startswith("Encoder-decoder models do not support chunked prefill"):
        yield r.learn(chunked_prefill=False, prefix_caching=False)


def environment(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`Unknown vLLM environment variable detected: X`."""
    names = known.facts.unknown_environment
    if match[1] not in names and len(names) < MAX_NAMED:
        yield r.learn(unknown_environment=(*names, match[1]))
        yield from r.keep(Topic.ENVIRONMENT, match.string, known)


# --- kernels ----------------------------------------------------------------------------------------------

_NAME: Final = r"([A-Za-z][\w.\- /]{1,60}?)"
# Part and format of a kernel by the shape of its line; the first pattern that matches counts.
_KERNELS: Final = (
    ("linear", "", lazy_pattern(rf"Using {_NAME}(?: backend)? for (NVFP4|MXFP4|MXFP6|MXFP8) GEMM")),
    ("linear", "INT4", lazy_pattern(rf"Using {_NAME} for mixed-precision linear")),
    (
        "moe",
        "",
        lazy_pattern(rf"Using '?{_NAME}'? (NvFp4|Mxfp4|MxFp4|MxFp8|Fp8|Int8|WNA16|Unquantized|W4A8) MoE backend"),
    ),
    ("moe", "", lazy_pattern(rf"Using {_NAME} backend for (NvFp4|MxFp4|FP8|Unquantized) MoE")),  # 0.14
    ("moe", "", lazy_pattern(rf"Using {_NAME} for (MXFP4) MoE")),
)
_MOE_OLD_MXFP4: Final = lazy_pattern(
    r"Using (Marlin|Triton|FlashInfer MXFP4 (?:BF16|MXFP8)[\w ]{0,20}) backend(?: for SM\d+)?\.?$"
)
_ATTENTION: Final = lazy_pattern(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{2,60}) (?:attention backend out of|backend\.?$)"
)
_KV_DTYPE: Final = lazy_pattern(r"Using (\w{2,30}) data type to store kv cache")
_FORMATS: Final = {"unquantized": "BF16", "wna16": "INT4"}


def using(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Using X for NVFP4 GEMM` and its many sisters."""
    if message.startswith("Using max model len "):
        figure = message.rsplit(" ", 1)[-1]
        if figure.isascii() and figure.isdigit() and len(figure) < 12:
            yield r.learn(max_model_len=int(figure))
    elif message.startswith("Using cache directory"):
        yield r.EnterPhase(P.COMPILE)
    elif message.startswith("Using FlashInfer autotune cache"):
        yield r.tuning(known)
    for part, fmt, pattern in _KERNELS:
        if match := pattern.match(message):
            yield from kernel(part, fmt or match[2], match[1], message, known)
            return
    if match := _ATTENTION.match(message):
        names = known.facts.attentions
        if match[1] not in names and len(names) < MAX_NAMED:
            yield r.learn(attention=known.facts.attention or match[1], attentions=(*names, match[1]))
    elif (match := _MOE_OLD_MXFP4.match(message)) and "mxfp4" in known.facts.quantization:
        yield from kernel("moe", "MXFP4", match[1], message, known)
    elif match := _KV_DTYPE.match(message):
        yield r.learn(kv_cache_dtype=match[1])
    elif message.startswith(("Using OCP MX emulation", "Using emulation")):
        yield from r.keep(Topic.EMULATION, message, known)


def kernel(part: str, fmt: str, name: str, message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """A kernel that the log names, each once; the first FP4 one of each part is the model's own."""
    fmt, name, facts = _FORMATS.get(fmt.lower(), fmt.upper()), name.strip(), known.facts
    named = any((k.part, k.format, k.name) == (part, fmt, name) for k in facts.kernels)
    if not named and len(facts.kernels) < MAX_NAMED:
        yield r.learn(kernels=(*facts.kernels, Kernel(part, fmt, name, r.shown(message), known.line)))
    field = "fp4_linear" if part == "linear" else "fp4_moe"
    if fmt in ("NVFP4", "MXFP4") and not getattr(facts, field):
        yield r.learn(**{field: name})


def selected(match: re.Match[str], known: r.RuleContext) -> Iterable[r.Fact]:
    """`Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod`."""
    fmt = next((fmt for fmt in ("FP8", "INT8") if fmt in match[1].upper()), "INT4")
    return kernel("linear", fmt, match[1], match.string, known)


# --- weights, compile -------------------------------------------------------------------------------------


def listens(url: str) -> tuple[r.Fact, ...]:
    return r.EnterPhase(P.SERVER), r.learn(url=url[:120]), r.Report(P.SERVER, url[:120])


def loaded(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Model loading took 21.42 GiB memory and 276.7 seconds`."""
    if message.startswith("Model loading took"):
        size = GIB.search(message)
        if size and known.facts.load_gib is None:
            yield r.learn(load_gib=number(size[1]))
        yield r.FinishPhase(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GiB" if size else "")


def warming(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """On the CPU the compile is called a warm-up; kernels are warmed up too, each kind by its own words."""
    if message.startswith("Warming up model for the compilation"):
        yield r.EnterPhase(P.COMPILE)
    elif message.startswith("Warming up done"):
        yield r.Compiled(None)
    elif message.startswith("Warming up "):
        yield r.tuning(known)


# --- memory -----------------------------------------------------------------------------------------------

_SECONDS: Final = lazy_pattern(rf"(?:took|takes) {NUMBER} ?s")
_COMPILATION: Final = lazy_pattern(rf"compilation: {NUMBER} s")
_KV_SIZE: Final = lazy_pattern(rf"KV cache size: {COUNT} tokens")
_CONCURRENCY: Final = lazy_pattern(rf"Maximum concurrency for {COUNT} tokens per request: {NUMBER}x")
_SET_MODE: Final = lazy_pattern(r"setting cudagraph_mode=(\w{3,30})|[Oo]verriding (?:.{0,80} )?to ([A-Z_]{3,30})\b")
_SHARE: Final = r"(\d(?:\.\d{1,6})?)"
_EQUIVALENT: Final = lazy_pattern(
    rf"--gpu-memory-utilization={_SHARE} is equivalent to --gpu-memory-utilization={_SHARE}"
)
_KEEP: Final = lazy_pattern(rf"increas(?:e|ing) --gpu-memory-utilization (?:from {_SHARE} )?to {_SHARE}")


def compiled(message: str, _known: r.RuleContext) -> Iterator[r.Fact]:
    seconds = _SECONDS.search(message)
    if seconds and message.startswith(("torch.compile took", "torch.compile takes")):
        yield r.Compiled(number(seconds[1]))
    elif message.startswith("torch.compile and initial profiling"):
        yield r.Compiled(None)


def kv_memory(gib: str, message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """The KV cache's phase begins with its size."""
    yield r.EnterPhase(P.KV_CACHE)
    yield r.learn(kv_gib=number(gib))
    yield from r.keep(Topic.MEMORY, message, known)


def kv_size(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`GPU KV cache size: 694,656 tokens` and the line about concurrency: one line since 0.29, two before."""
    size, concurrency = _KV_SIZE.search(message), _CONCURRENCY.search(message)
    facts = known.facts
    if concurrency and facts.max_concurrency is None:
        yield r.learn(max_concurrency=number(concurrency[2]))
    if concurrency and facts.max_model_len is None:
        yield r.learn(max_model_len=int(number(concurrency[1])))
    if size:
        tokens = int(number(size[1]))
        if facts.kv_tokens is None:
            yield r.learn(kv_tokens=tokens)
        yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")
    if "KV cache size: " in message[:40] or message.startswith("Maximum concurrency for"):
        yield from r.keep(Topic.KV_SIZE, message, known)


def captured(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Graph capturing finished in 2 secs, took 0.37 GiB`; the size may be negative."""
    if not message.startswith("Graph capturing finished"):
        return
    if known.facts.kv_tokens is None:  # Model Runner V2 captures once to measure
        yield r.Report(P.KV_CACHE, "")
        return
    size = GIB.search(message)
    if size:
        yield r.learn(graph_actual_gib=number(size[1]))
    yield r.FinishPhase(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GiB" if size else "")
    yield from r.keep(Topic.GRAPH_MEMORY, message, known)


def estimated(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`Estimated CUDA graph memory: -0.17 GiB total`: may be negative on unified memory."""
    yield r.EnterPhase(P.KV_CACHE)
    yield r.learn(graph_estimated_gib=number(match[1]))
    yield from r.keep(Topic.GRAPH_ESTIMATE, match.string, known)


def graph_mode(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`CUDAGraphMode.X is not supported with ...; setting cudagraph_mode=PIECEWISE`."""
    if match := _SET_MODE.search(message):
        yield r.learn(cudagraph_mode=match[1] or match[2])
        yield from r.keep(Topic.GRAPH_MODE, message, known)


def overridden(message: str, known: r.RuleContext) -> Iterable[r.Fact]:
    """`Pooling models do not support full cudagraphs. Overriding cudagraph_mode to PIECEWISE.` and its kin."""
    return graph_mode(message, known) if "verriding" in message else ()


def skipping(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    if message.startswith("Skipping FlashInfer autotune because it is disabled"):
        yield r.SkipPhase(P.AUTOTUNE)
    elif message.startswith("Skipping CUDA graph capture"):
        yield r.SkipPhase(P.CAPTURE)
        yield r.learn(cudagraph_mode=known.facts.cudagraph_mode or "NONE")
        yield from r.keep(Topic.GRAPH_SIZES, message, known)


def utilization(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """Whether the graph estimate counts, and the utilization that makes up for it."""
    if "CUDA graph memory profiling" not in message[:60]:
        return
    equivalent, kept = _EQUIVALENT.search(message), _KEEP.search(message)
    asked = equivalent[1] if equivalent else kept[1] if kept else None
    yield r.learn(graph_estimate_applied="profiling is enabled (" in message)
    if asked and known.facts.gpu_memory_utilization is None:
        yield r.learn(gpu_memory_utilization=float(asked))
    if equivalent:
        yield r.learn(utilization_without_estimate=float(equivalent[2]))
    if kept:
        yield r.learn(utilization_with_estimate=float(kept[2]))
    yield from r.keep(Topic.UTILIZATION, message, known)


def pool_memory(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`CUDA graph pool memory: 0.4 GiB (actual), 0.3 GiB (estimated)`: the comparison afterwards."""
    actual, estimate = known.facts.graph_actual_gib, known.facts.graph_estimated_gib
    yield r.learn(
        graph_actual_gib=number(match[1]) if actual is None else actual,
        graph_estimated_gib=number(match[2]) if estimate is None else estimate,
    )
    yield from r.keep(Topic.GRAPH_MEMORY, match.string, known)


_POOL: Final = lazy_pattern(rf"\({NUMBER}/{NUMBER} GiB\)")


def free(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Free memory on device cuda:0 (a/b GiB) on startup ...`, `Free memory grew by ...`."""
    pool = _POOL.search(message, 0, 120)
    if message.startswith("Free memory on device") and pool:
        yield r.learn(device_gib=number(pool[2]))
        yield from r.keep(Topic.MEMORY, message, known)
    elif message.startswith("Free memory grew by"):
        yield from r.keep(Topic.MEMORY, message, known)


def padding(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`Add 3 padding layers, may waste at most 10.00% KV cache memory`."""
    yield r.learn(padding_percent=max(number(match[1]), known.facts.padding_percent or 0.0))
    yield from r.keep(Topic.PADDING, match.string, known)


# --- engine, server, the end ------------------------------------------------------------------------------


def engine_up(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`init engine (profile, create kv cache, warmup model) took 54.93 seconds (compilation: 8.0 s)`."""
    if not message.startswith("init engine (profile"):
        return
    seconds, compilation = _SECONDS.search(message), _COMPILATION.search(message)
    if seconds and known.facts.init_seconds is None:
        yield r.learn(init_seconds=number(seconds[1]))
    if compilation:
        yield r.learn(compile_seconds=number(compilation[1]))
    yield r.FinishPhase(P.ENGINE_READY, P.SERVER, f"init {seconds[1]} s in all" if seconds else "", proven=True)


def statistics(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """Throughput every ten seconds comes from a server that serves."""
    if message.startswith("Engine core proc"):
        yield r.Broken.PROCESS_DIED
    elif "Avg prompt throughput" in message or "Avg generation throughput" in message:
        yield r.Signal.ANSWERS
        if known.record.kind is LineKind.RECORD:
            yield r.Interval(message)


_BACKENDS: Final = (
    "marlin", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cudnn", "flashinfer_cutedsl",
    "flashinfer_b12x", "b12x", "fbgemm", "humming", "emulation", "triton", "deep_gemm", "torch",
)  # fmt: skip
_MODES: Final = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_EAGER: Final = ("Enforce eager set", "Cudagraph is disabled under eager")
_STOPPED: Final = ("Shutting down FastAPI", "API server: s")
"""An API server ends so by a signal only, and then its core; by a failure of its own it signals the core alone."""
_REQUESTS: Final = (
    "Error in chat completion stream generator", "Error in completion stream generator", "Error with model error=",
    "Error in preprocessing prompt", "Error trying to handle streaming tool call", "Error in extracting tool call",
    "Error in applying chat template",
)  # fmt: skip
"""One request failed: the server serves."""
_KV_GIVEN: Final = rf"Initial free memory .*?reserved {NUMBER} GiB"

VLLM: Final[r.Table] = r.table(
    ("▄▄ █▄█▀ vLLM", banner),
    ("non-default", arguments),
    ("Resolved", r.found(r"Resolved architecture: (.{0,120})", architecture)),
    ("Initializing", initializing),
    ("Chunked Asynchronous Async Prefix Disabling Hybrid Encoder-decoder", scheduling),
    ("Unknown", r.found(r"Unknown vLLM environment variable detected: (\w{1,120})", environment)),
    ("Enabling", r.keeps(Topic.SPECULATION, "Enabling num_speculative_tokens > 1")),
    # kernels
    ("Using", using),
    ("Selected", r.found(r"Selected (\w{3,80}) for (\w{3,80})", selected)),
    (
        "Selected Valid Detected",
        r.found(  # the launcher of NVIDIA's NIM images
            r"(?:Selected|Valid) profile: |Detected \d+ compatible profile", lambda *_: (r.EnterPhase(P.CONFIG),)
        ),
    ),
    ("Reducing", r.when("Reducing Torch parallelism from", r.EnterPhase(P.ENGINE_INIT))),
    # `Your GPU does not have native support for FP4 ...`: a Marlin kernel was chosen, no more than that
    ("Your Falling", r.keeps(Topic.WEIGHT_ONLY, ".*native support for FP4|Falling back to Marlin FP4")),
    # `NVFP4 linear falling back to the slow and unoptimized emulation backend ...`
    ("NVFP4 VLLM_BATCH_INVARIANT", r.keeps(Topic.EMULATION, "(?!.*CUTLASS backend).*emulation")),
    # a requested backend is missing: `--linear-backend=X was requested, but no ...`
    (
        "Requested No " + " ".join(f"--linear-backend={backend}" for backend in _BACKENDS),
        r.keeps(
            Topic.BACKEND_REFUSED,
            "Requested FlashInfer backend for NvFp4|No Mxfp4 MoE backend supports|No native MXFP8 MoE backend"
            "|.*was requested, but no",
        ),
    ),
    # `Detected ModelOpt NVFP4 checkpoint (quant_algo=W4A16_NVFP4).`: gone since 0.31
    ("Detected", r.keeps(Topic.CHECKPOINT, "Detected ModelOpt .{0,42}checkpoint")),
    # weights
    ("Starting", r.when("Starting to load model", r.EnterPhase(P.WEIGHTS))),
    ("Loading", r.when("Loading model from scratch", r.EnterPhase(P.WEIGHTS))),
    (
        "Time",
        r.found(
            rf"Time spent downloading weights.*?: {NUMBER} seconds",  # the log is silent while weights download
            lambda m, _known: (r.EnterPhase(P.WEIGHTS), r.SilentPhase(P.DOWNLOAD, number(m[1]), P.WEIGHTS)),
        ),
    ),
    (
        "Filesystem",
        r.found(
            rf".*?Checkpoint size: {NUMBER} GiB",
            lambda m, known: (
                ()
                if known.facts.checkpoint_gib is not None
                else (r.EnterPhase(P.WEIGHTS), r.learn(checkpoint_gib=number(m[1])))
            ),
        ),
    ),
    ("Model", loaded),
    # compile
    ("Starting", r.when("Starting torch.compile", r.EnterPhase(P.COMPILE))),
    ("Dynamo", r.when("Dynamo bytecode", r.EnterPhase(P.COMPILE))),
    ("Cache", r.when("Cache the graph", r.EnterPhase(P.COMPILE))),
    ("Compile", r.when("Compile and warming up", r.EnterPhase(P.COMPILE))),
    ("Compiling", r.when("Compiling a graph", r.EnterPhase(P.COMPILE))),
    ("Compiling", r.when("Compiling model again", r.EnterPhase(P.COMPILE), r.Signal.COMPILED_AGAIN)),
    ("Directly", r.when("Directly load", r.EnterPhase(P.COMPILE), r.Signal.COMPILED_BEFORE)),
    ("torch.compile", compiled),
    ("Initial", r.when("Initial profiling/warmup run took", r.Compiled(None))),
    ("Warming", warming),
    ("Enforce Cudagraph", r.when(_EAGER, r.learn(eager=True))),
    ("Enforce", r.keeps(Topic.EAGER, "Enforce eager set")),
    # memory: the KV cache, measured or given
    ("Available", r.found(rf"Available KV cache memory.*?{NUMBER} GiB", lambda m, k: kv_memory(m[1], m.string, k))),
    ("Initial", r.found(_KV_GIVEN, lambda m, known: kv_memory(m[1], m.string, known))),
    (
        "Explicitly",
        r.found(
            rf"Explicitly set \({NUMBER}/", lambda m, _known: (r.EnterPhase(P.KV_CACHE), r.learn(kv_gib=number(m[1])))
        ),
    ),
    ("GPU CPU XPU Maximum", kv_size),
    (
        "Auto-fit",
        r.found(
            r"Auto-fit max_model_len: .{1,60}? to (\d{1,12}) to fit",
            lambda m, _known: (r.learn(max_model_len=int(m[1])),),
        ),
    ),
    ("Overriding", r.keeps(Topic.BLOCKS, r"Overriding num_gpu_blocks=\d{1,9} with num_gpu_blocks_override")),
    ("Free", free),
    (
        "Applying",
        r.found(
            rf"Applying persisted startup plan.*?kv_cache_memory_bytes=\d{{1,16}} \({NUMBER} GiB\)",
            lambda m, known: (r.learn(kv_gib=number(m[1])), *r.keep(Topic.MEMORY, m.string, known)),
        ),
    ),
    ("Add", r.found(r"Add \d{1,6} padding layers", lambda *_: (r.EnterPhase(P.KV_CACHE),))),
    (
        "Add Padding",
        r.found(rf"(?:Add \d{{1,6}} padding layers, may waste at most|Padding mamba page size by) {NUMBER}%", padding),
    ),
    (
        "Setting",
        r.found(
            r"Setting attention block size to (\d{1,7}) tokens", lambda m, _known: (r.learn(attention_block=int(m[1])),)
        ),
    ),
    # memory: CUDA graphs
    ("Profiling", r.when("Profiling CUDA graph memory", r.EnterPhase(P.KV_CACHE))),
    ("Estimated", r.found(rf"Estimated CUDA graph memory.*?{NUMBER} GiB", estimated)),
    ("CUDA", r.found(rf"CUDA graph pool memory: {NUMBER} GiB \(actual\), {NUMBER} GiB \(estimated\)", pool_memory)),
    ("CUDA In", utilization),
    ("CUDA", r.found("CUDA graphs are not supported", lambda m, known: overridden(m.string, known))),
    ("Dynamic Pooling Cudagraph", overridden),
    (" ".join(f"CUDAGraphMode.{mode}" for mode in _MODES), graph_mode),
    (
        "No",
        r.found(
            r"No available shared memory broadcast block found in (\d{1,5}) second",
            lambda m, known: (r.wait(Topic.WORKER_WAIT, m.string, known, float(m[1]), more=True),),
        ),
    ),
    (
        "Waiting",
        r.found(
            r"Waiting for creating a placement group of specs for (\d{1,6}) second",
            lambda m, known: (r.wait(Topic.RAY_WAIT, m.string, known, float(m[1])),),
        ),
    ),
    (
        "Error: (autoscaler",
        r.found(
            r"(?:\(autoscaler [^()]{1,80}\) )?Error: No available node types can fulfill resource request",
            lambda m, known: (r.EnterPhase(P.ENGINE_INIT), r.wait(Topic.RAY_WAIT, m.string, known)),
        ),
    ),
    ("Waiting", r.when("Waiting for init", r.EnterPhase(P.ENGINE_INIT))),  # message from the front end
    (
        "Waiting",
        r.found(
            "Waiting for READY message from DP Coordinator",  # every ten seconds
            lambda m, known: (r.wait(Topic.DP_WAIT, m.string, known, 10.0, more=True),),
        ),
    ),
    (
        "Waiting",
        r.found(  # the API server's, every ten seconds: the ranks have not met, or NCCL has not joined them
            r"Waiting for \d+ local, \d+ remote core engine proc",
            lambda _m, known: tuple(
                r.wait(each.topic, each.text, known)
                for each in known.facts.waits
                if each.topic in (Topic.GROUP_WAIT, Topic.NCCL_WAIT)
            ),
        ),
    ),
    # a rank joins the others over Gloo or NCCL, and is silent until all are there
    (
        " ".join(f"world_size={ranks}" for ranks in range(2, 17)),
        r.found(
            r"world_size=\d+ rank=\d+ .{0,40}distributed_init_method=tcp://",
            lambda m, known: (
                *(() if known.phase is P.ENGINE_INIT else (r.EnterPhase(P.ENGINE_INIT),)),
                r.wait(Topic.GROUP_WAIT, m.string, known),
            ),
        ),
    ),
    (
        "Capping Truncating No",
        r.keeps(
            Topic.GRAPH_SIZES,
            "Capping cudagraph capture sizes|No valid cudagraph capture sizes|Truncating max_cudagraph_capture",
        ),
    ),
    ("Skipping", skipping),
    ("Graph", captured),
    # engine, server
    ("init", engine_up),
    ("Starting", r.found(r"Starting vLLM (?:API )?server .*?on (\S+)$", lambda m, _known: listens(m[1]))),
    (
        "starting",
        r.found(  # the Rust front end
            r"starting OpenAI server bind_address=(\S{1,100})",
            lambda m, _known: (r.Signal.OWN_READY_LINE, *listens(f"http://{m[1]}")),
        ),
    ),
    ("Launching", r.when("Launching Rust frontend", r.Signal.OWN_READY_LINE)),  # long before: uvicorn will not be heard
    (
        "Supported",
        lambda message, known: (  # the first that the API server says once the engine core is up
            (r.EnterPhase(P.SERVER),)
            if message.startswith("Supported tasks: ") and known.facts.kv_tokens is not None
            else ()
        ),
    ),
    ("OpenAI", r.when("OpenAI server is ready to accept requests", r.Signal.READY)),
    ("Server", r.when("Server is ready to accept requests", r.Signal.READY)),  # gRPC
    ("Engine Avg #", statistics),
    (
        "Sequence",
        r.found(  # up to 0.9
            r"Sequence group \S{1,60} is preempted by", lambda m, _known: (r.Signal.ANSWERS, r.Interval(m.string))
        ),
    ),
    (
        "SpecDecoding",
        lambda message, known: (
            (r.Signal.ANSWERS, r.Interval(message))
            if message.startswith("SpecDecoding metrics") and known.record.kind is LineKind.RECORD
            else ()
        ),
    ),
    # the end
    ("Error", r.when(_REQUESTS, r.Signal.ANSWERS)),
    ("MultiprocExecutor", r.when("MultiprocExecutor got fatal signal", r.Broken.ENGINE_GONE)),
    ("EngineCore", r.when("EngineCore failed to start", r.Broken.START_FAILED)),
    ("EngineCore", r.when("EngineCore encountered a fatal error", r.Broken.FATAL)),
    ("Worker WorkerProc RayWorkerProc", r.found(".*died unexpectedly", lambda _m, _known: (r.Broken.PROCESS_DIED,))),
    ("WorkerProc", r.when(("WorkerProc failed to start", "WorkerProc hit an exception"), r.Broken.WORKER_FAILED)),
    ("MPClient:", r.found(".*engine core exited unexpectedly", lambda _m, _known: (r.Broken.ENGINE_GONE,))),
    ("API Shutting", r.when(_STOPPED, r.Signal.STOPPED)),
    ("EngineCore:", r.when("EngineCore: trigger received signal", r.Signal.SIGNALLED)),
)
