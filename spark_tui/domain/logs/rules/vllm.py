"""Rules for vLLM. Texts were read in 0.14 to 0.33; where one has changed, all its forms are here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spark_tui.domain.logs.line import COUNT, GIB, NUMBER, LineKind, number
from spark_tui.domain.logs.rules.rule import (
    Asked,
    Broken,
    Compiled,
    Enter,
    Fact,
    Finish,
    Interval,
    Known,
    NewStart,
    Past,
    Report,
    RuledOut,
    Sign,
    Table,
    fields_in,
    found,
    keep,
    keeps,
    learn,
    shown,
    table,
    tuning,
    when,
)
from spark_tui.domain.logs.timeline import Kernel, Topic
from spark_tui.domain.logs.timeline import PhaseId as P

MAX_ARGUMENTS: Final = 20_000
MAX_NAMED: Final = 24

# --- banner, arguments, config ----------------------------------------------------------------------------

_VERSION: Final = re.compile(r"\bversion (\S{1,60}?),?(?:\s|$)")
_SERVING: Final = re.compile(r"\b(?:serving model|model  ) ?(\S{1,300})")


def banner(message: str, _known: Known) -> Iterator[Fact]:
    """`version 0.20.2` and `model   X` on rows of the logo, or in one sentence."""
    if version := _VERSION.search(message):
        certain = "█" in message or message.startswith(("vLLM API server version", "vLLM server version"))
        yield NewStart("vllm" if certain else "")
        yield Enter(P.CONFIG)
        yield learn(version=version[1])
    if serving := _SERVING.search(message):
        yield learn(model=serving[1])


_ARGS: Final = {
    "model": re.compile(r"'model': '([^']{1,300})'"),
    "quantization": re.compile(r"'quantization': '([^']{1,60})'"),
    "kv_cache_dtype": re.compile(r"'kv_cache_dtype': '([^']{1,30})'"),
    "method": re.compile(r"'speculative_config': \{[^}]{0,400}?'method': '([^']{1,40})'"),
    "draft": re.compile(r"'speculative_config': \{[^}]{0,400}?'num_speculative_tokens': (\d{1,4})"),
}
_CONFIG: Final = {
    "model": re.compile(r"\bmodel='([^']{1,300})'"),
    "quantization": re.compile(r"\bquantization=([\w.\-]{1,60})"),
    "kv_cache_dtype": re.compile(r"\bkv_cache_dtype=([\w.]{1,30})"),
    "method": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,600}?method='([^']{1,40})'"),
    "draft": re.compile(r"speculative_config=SpeculativeConfig\([^)]{0,900}?num_spec_tokens=(\d{1,4})"),
    "version": re.compile(r"\(v([^)]{1,60})\)"),
    "max_model_len": re.compile(r"\bmax_seq_len=(\d{1,12})"),
    # No `\b` in front: the line is some kilobytes long, and a literal beginning is found much faster.
    "moe_backend": re.compile(r"moe_backend='([\w\-]{1,60})'"),
    "linear_backend": re.compile(r"linear_backend='([\w\-]{1,60})'"),
    "device": re.compile(r"device_config=(?:device\(type=')?(\w{2,10})"),
    "cudagraph_mode": re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w{3,30})"),
    "prefix_caching": re.compile(r"enable_prefix_caching=(True|False)"),
    "chunked_prefill": re.compile(r"enable_chunked_prefill=(True|False)"),
}
# Of the outermost pairs alone: a drafter's settings inside are not the model's.
_OUTER: Final = {
    "gpu_memory_utilization": re.compile(r"'gpu_memory_utilization': (0?\.\d{1,6}|1(?:\.0{1,6})?)(?=[,}])"),
    "kv_cache_memory_bytes": re.compile(r"'kv_cache_memory_bytes': (\d{1,16})(?=[,}])"),
    "max_num_seqs": re.compile(r"'max_num_seqs': (\d{1,9})(?=[,}])"),
    "max_num_batched_tokens": re.compile(r"'max_num_batched_tokens': (\d{1,9})(?=[,}])"),
    "moe_backend": re.compile(r"'moe_backend': '([\w\-]{1,60})'"),
    "linear_backend": re.compile(r"'linear_backend': '([\w\-]{1,60})'"),
    "prefix_caching": re.compile(r"'enable_prefix_caching': (True|False)"),
    "chunked_prefill": re.compile(r"'enable_chunked_prefill': (True|False)"),
}
_KINDS: Final[Mapping[str, type]] = {
    "gpu_memory_utilization": float,
    **dict.fromkeys(("kv_cache_memory_bytes", "max_num_seqs", "max_num_batched_tokens", "max_model_len"), int),
}
# What a remedy needs.
_ASKED: Final = re.compile(
    r"'(port|gpu_memory_utilization|max_num_seqs|max_model_len|tensor_parallel_size|pipeline_parallel_size"
    r"|max_num_batched_tokens|kv_cache_dtype|kv_cache_memory_bytes|quantization|tool_call_parser|reasoning_parser"
    r"|attention_backend|moe_backend|linear_backend|load_format)': '?([\w.\-]{1,60})'?(?=[,}])"
)


def _read(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, Any]:
    """What the patterns find, converted; `method` and `draft` become `speculation`."""
    fields: dict[str, Any] = fields_in(patterns, text)
    method, draft = fields.pop("method", ""), fields.pop("draft", "")
    if method:
        fields["speculation"] = f"{method} {draft}".strip()
    for name, value in fields.items():
        fields[name] = value == "True" if value in ("True", "False") else _KINDS.get(name, str)(value)
    return fields


def arguments(message: str, known: Known) -> Iterator[Fact]:
    """`non-default args: {...}`: what a person asked for."""
    if not message.startswith("non-default args: "):
        return
    outer = _outer_pairs(message)
    yield Enter(P.CONFIG)
    yield Asked(dict(_ASKED.findall(message)))
    yield learn(**_read(_ARGS, message), **_read(_OUTER, outer))
    if "'enforce_eager': True" in outer:
        yield learn(eager=True)
        yield from keep(Topic.EAGER, "enforce_eager: True in the arguments", known)


def _outer_pairs(message: str) -> str:
    """The outermost pairs of a dict in print, without what stands in dicts inside it."""
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


def initializing(message: str, _known: Known) -> Iterator[Fact]:
    """`Initializing a V1 LLM engine (v0.20.2) with config: ...`: what it is really set to."""
    if "LLM engine (v" not in message[:60]:
        return
    yield Enter(P.ENGINE_INIT)
    yield learn(**_read(_CONFIG, message))
    if ", quantization=None," in message:
        yield learn(unquantized=True)
    if "enforce_eager=True" in message:
        yield learn(eager=True)


def architecture(match: re.Match[str], known: Known) -> Iterable[Fact]:
    """The first architecture is the model's, a second one its drafter's."""
    return () if known.facts.architecture else (learn(architecture=match[1]),)


_BATCHED: Final = re.compile(r"max_num_batched_tokens=(\d{1,9})")


def scheduling(message: str, _known: Known) -> Iterator[Fact]:
    if message.startswith("Chunked prefill is enabled"):
        tokens = _BATCHED.search(message)
        yield learn(chunked_prefill=True, **({"max_num_batched_tokens": int(tokens[1])} if tokens else {}))
    elif message.startswith(("Chunked prefill is not supported", "Disabling chunked prefill")):
        yield learn(chunked_prefill=False)
    elif message.startswith("Asynchronous scheduling is "):
        yield learn(async_scheduling="enabled" in message)
    elif message.startswith("Async scheduling ") and "disabled" in message:
        yield learn(async_scheduling=False)
    elif message.startswith(("Prefix caching is not supported", "Disabling prefix caching")) or (
        message.startswith("Hybrid or mamba-based model") and message.rstrip(". ").endswith("disabling")
    ):
        yield learn(prefix_caching=False)
    elif message.startswith("Encoder-decoder models do not support chunked prefill"):
        yield learn(chunked_prefill=False, prefix_caching=False)


def environment(match: re.Match[str], known: Known) -> Iterator[Fact]:
    """`Unknown vLLM environment variable detected: X`."""
    names = known.facts.unknown_environment
    if match[1] not in names and len(names) < MAX_NAMED:
        yield learn(unknown_environment=(*names, match[1]))
        yield from keep(Topic.ENVIRONMENT, match.string, known)


# --- kernels ----------------------------------------------------------------------------------------------

_NAME: Final = r"([A-Za-z][\w.\- /]{1,60}?)"
# Part and format of a kernel by the shape of its line; the first pattern that matches counts.
_KERNELS: Final = (
    ("linear", "", re.compile(rf"Using {_NAME}(?: backend)? for (NVFP4|MXFP4|MXFP6|MXFP8) GEMM")),
    ("linear", "INT4", re.compile(rf"Using {_NAME} for mixed-precision linear")),
    (
        "moe",
        "",
        re.compile(rf"Using '?{_NAME}'? (NvFp4|Mxfp4|MxFp4|MxFp8|Fp8|Int8|WNA16|Unquantized|W4A8) MoE backend"),
    ),
    ("moe", "", re.compile(rf"Using {_NAME} backend for (NvFp4|MxFp4|FP8|Unquantized) MoE")),  # 0.14
    ("moe", "", re.compile(rf"Using {_NAME} for (MXFP4) MoE")),
)
_MOE_OLD_MXFP4: Final = re.compile(
    r"Using (Marlin|Triton|FlashInfer MXFP4 (?:BF16|MXFP8)[\w ]{0,20}) backend(?: for SM\d+)?\.?$"
)
_ATTENTION: Final = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{2,60}) (?:attention backend out of|backend\.?$)"
)
_KV_DTYPE: Final = re.compile(r"Using (\w{2,30}) data type to store kv cache")
_FORMATS: Final = {"unquantized": "BF16", "wna16": "INT4"}


def using(message: str, known: Known) -> Iterator[Fact]:
    """`Using X for NVFP4 GEMM` and its many sisters."""
    if message.startswith("Using max model len "):
        figure = message.rsplit(" ", 1)[-1]
        if figure.isascii() and figure.isdigit() and len(figure) < 12:
            yield learn(max_model_len=int(figure))
    elif message.startswith("Using cache directory"):
        yield Enter(P.COMPILE)
    elif message.startswith("Using FlashInfer autotune cache"):
        yield tuning(known)
    for part, fmt, pattern in _KERNELS:
        if match := pattern.match(message):
            yield from kernel(part, fmt or match[2], match[1], message, known)
            return
    if match := _ATTENTION.match(message):
        names = known.facts.attentions
        if match[1] not in names and len(names) < MAX_NAMED:
            yield learn(attention=known.facts.attention or match[1], attentions=(*names, match[1]))
    elif (match := _MOE_OLD_MXFP4.match(message)) and "mxfp4" in known.facts.quantization:
        yield from kernel("moe", "MXFP4", match[1], message, known)
    elif match := _KV_DTYPE.match(message):
        yield learn(kv_cache_dtype=match[1])
    elif message.startswith(("Using OCP MX emulation", "Using emulation")):
        yield from keep(Topic.EMULATION, message, known)


def kernel(part: str, fmt: str, name: str, message: str, known: Known) -> Iterator[Fact]:
    """A kernel that the log names, each once; the first FP4 one of each part is the model's own."""
    fmt, name, facts = _FORMATS.get(fmt.lower(), fmt.upper()), name.strip(), known.facts
    named = any((k.part, k.format, k.name) == (part, fmt, name) for k in facts.kernels)
    if not named and len(facts.kernels) < MAX_NAMED:
        yield learn(kernels=(*facts.kernels, Kernel(part, fmt, name, shown(message), known.line)))
    field = "fp4_linear" if part == "linear" else "fp4_moe"
    if fmt in ("NVFP4", "MXFP4") and not getattr(facts, field):
        yield learn(**{field: name})


def selected(match: re.Match[str], known: Known) -> Iterable[Fact]:
    """`Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod`."""
    fmt = next((fmt for fmt in ("FP8", "INT8") if fmt in match[1].upper()), "INT4")
    return kernel("linear", fmt, match[1], match.string, known)


def refused(message: str, known: Known) -> Iterable[Fact]:
    """A backend that was asked for is not there: `--linear-backend=X was requested, but no ...`."""
    if "was requested, but no" in message or message.startswith(
        ("Requested FlashInfer backend for NvFp4", "No Mxfp4 MoE backend supports", "No native MXFP8 MoE backend")
    ):
        return keep(Topic.BACKEND_REFUSED, message, known)
    return ()


def weight_only(message: str, known: Known) -> Iterable[Fact]:
    """`Your GPU does not have native support for FP4 ...`: a Marlin kernel was chosen, no more than that."""
    if "native support for FP4" in message or message.startswith("Falling back to Marlin FP4"):
        return keep(Topic.WEIGHT_ONLY, message, known)
    return ()


def emulation(message: str, known: Known) -> Iterable[Fact]:
    """`NVFP4 linear falling back to the slow and unoptimized emulation backend ...`."""
    if "emulation" in message and "CUTLASS backend" not in message:
        return keep(Topic.EMULATION, message, known)
    return ()


def checkpoint(message: str, known: Known) -> Iterable[Fact]:
    """`Detected ModelOpt NVFP4 checkpoint (quant_algo=W4A16_NVFP4).`: gone since 0.31."""
    return keep(Topic.CHECKPOINT, message, known) if "checkpoint" in message[:60] else ()


# --- weights, compile -------------------------------------------------------------------------------------


def listens(url: str) -> tuple[Fact, ...]:
    return Enter(P.SERVER), learn(url=url[:120]), Report(P.SERVER, url[:120])


def loaded(message: str, known: Known) -> Iterator[Fact]:
    """`Model loading took 21.42 GiB memory and 276.7 seconds`."""
    if message.startswith("Model loading took"):
        size = GIB.search(message)
        if size and known.facts.load_gib is None:
            yield learn(load_gib=number(size[1]))
        yield Finish(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GiB" if size else "")


def warming(message: str, known: Known) -> Iterator[Fact]:
    """On the CPU the compile is called a warm-up; kernels are warmed up too, each kind by its own words."""
    if message.startswith("Warming up model for the compilation"):
        yield Enter(P.COMPILE)
    elif message.startswith("Warming up done"):
        yield Compiled(None)
    elif message.startswith("Warming up "):
        yield tuning(known)


# --- memory -----------------------------------------------------------------------------------------------

_SECONDS: Final = re.compile(rf"(?:took|takes) {NUMBER} ?s")
_COMPILATION: Final = re.compile(rf"compilation: {NUMBER} s")
_KV_SIZE: Final = re.compile(rf"KV cache size: {COUNT} tokens")
_CONCURRENCY: Final = re.compile(rf"Maximum concurrency for {COUNT} tokens per request: {NUMBER}x")
_SET_MODE: Final = re.compile(r"setting cudagraph_mode=(\w{3,30})|[Oo]verriding (?:.{0,80} )?to ([A-Z_]{3,30})\b")
_SHARE: Final = r"(\d(?:\.\d{1,6})?)"
_EQUIVALENT: Final = re.compile(
    rf"--gpu-memory-utilization={_SHARE} is equivalent to --gpu-memory-utilization={_SHARE}"
)
_KEEP: Final = re.compile(rf"increas(?:e|ing) --gpu-memory-utilization (?:from {_SHARE} )?to {_SHARE}")


def compiled(message: str, _known: Known) -> Iterator[Fact]:
    seconds = _SECONDS.search(message)
    if seconds and message.startswith(("torch.compile took", "torch.compile takes")):
        yield Compiled(number(seconds[1]))
    elif message.startswith("torch.compile and initial profiling"):
        yield Compiled(None)


def kv_memory(gib: str, message: str, known: Known) -> Iterator[Fact]:
    """The KV cache's phase begins with its size."""
    yield Enter(P.KV_CACHE)
    yield learn(kv_gib=number(gib))
    yield from keep(Topic.MEMORY, message, known)


def kv_size(message: str, known: Known) -> Iterator[Fact]:
    """`GPU KV cache size: 694,656 tokens` and the line about concurrency: one line since 0.29, two before."""
    size, concurrency = _KV_SIZE.search(message), _CONCURRENCY.search(message)
    facts = known.facts
    if concurrency and facts.max_concurrency is None:
        yield learn(max_concurrency=number(concurrency[2]))
    if concurrency and facts.max_model_len is None:
        yield learn(max_model_len=int(number(concurrency[1])))
    if size:
        tokens = int(number(size[1]))
        if facts.kv_tokens is None:
            yield learn(kv_tokens=tokens)
        yield Finish(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")
    if "KV cache size: " in message[:40] or message.startswith("Maximum concurrency for"):
        yield from keep(Topic.KV_SIZE, message, known)


def captured(message: str, known: Known) -> Iterator[Fact]:
    """`Graph capturing finished in 2 secs, took 0.37 GiB`; the size may be negative."""
    if not message.startswith("Graph capturing finished"):
        return
    if known.facts.kv_tokens is None:  # Model Runner V2 captures once to measure
        yield Report(P.KV_CACHE, "")
        return
    size = GIB.search(message)
    if size:
        yield learn(graph_actual_gib=number(size[1]))
    yield Finish(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GiB" if size else "")
    yield from keep(Topic.GRAPH_MEMORY, message, known)


def estimated(match: re.Match[str], known: Known) -> Iterator[Fact]:
    """`Estimated CUDA graph memory: -0.17 GiB total`: may be negative on unified memory."""
    yield Enter(P.KV_CACHE)
    yield learn(graph_estimated_gib=number(match[1]))
    yield from keep(Topic.GRAPH_ESTIMATE, match.string, known)


def graph_mode(message: str, known: Known) -> Iterator[Fact]:
    """`CUDAGraphMode.X is not supported with ...; setting cudagraph_mode=PIECEWISE`."""
    if match := _SET_MODE.search(message):
        yield learn(cudagraph_mode=match[1] or match[2])
        yield from keep(Topic.GRAPH_MODE, message, known)


def overridden(message: str, known: Known) -> Iterable[Fact]:
    """`Pooling models do not support full cudagraphs. Overriding cudagraph_mode to PIECEWISE.` and its kin."""
    return graph_mode(message, known) if "verriding" in message else ()


def skipping(message: str, known: Known) -> Iterator[Fact]:
    if message.startswith("Skipping FlashInfer autotune because it is disabled"):
        yield RuledOut(P.AUTOTUNE)
    elif message.startswith("Skipping CUDA graph capture"):
        yield RuledOut(P.CAPTURE)
        yield learn(cudagraph_mode=known.facts.cudagraph_mode or "NONE")
        yield from keep(Topic.GRAPH_SIZES, message, known)


def utilization(message: str, known: Known) -> Iterator[Fact]:
    """Whether the graph estimate counts, and the utilization that makes up for it."""
    if "CUDA graph memory profiling" not in message[:60]:
        return
    equivalent, kept = _EQUIVALENT.search(message), _KEEP.search(message)
    asked = equivalent[1] if equivalent else kept[1] if kept else None
    yield learn(graph_estimate_applied="profiling is enabled (" in message)
    if asked and known.facts.gpu_memory_utilization is None:
        yield learn(gpu_memory_utilization=float(asked))
    if equivalent:
        yield learn(utilization_without_estimate=float(equivalent[2]))
    if kept:
        yield learn(utilization_with_estimate=float(kept[2]))
    yield from keep(Topic.UTILIZATION, message, known)


def pool_memory(match: re.Match[str], known: Known) -> Iterator[Fact]:
    """`CUDA graph pool memory: 0.4 GiB (actual), 0.3 GiB (estimated)`: the comparison afterwards."""
    actual, estimate = known.facts.graph_actual_gib, known.facts.graph_estimated_gib
    yield learn(
        graph_actual_gib=number(match[1]) if actual is None else actual,
        graph_estimated_gib=number(match[2]) if estimate is None else estimate,
    )
    yield from keep(Topic.GRAPH_MEMORY, match.string, known)


_POOL: Final = re.compile(rf"\({NUMBER}/{NUMBER} GiB\)")


def free(message: str, known: Known) -> Iterator[Fact]:
    """`Free memory on device cuda:0 (a/b GiB) on startup ...`, `Free memory grew by ...`."""
    pool = _POOL.search(message, 0, 120)
    if message.startswith("Free memory on device") and pool:
        yield learn(device_gib=number(pool[2]))
        yield from keep(Topic.MEMORY, message, known)
    elif message.startswith("Free memory grew by"):
        yield from keep(Topic.MEMORY, message, known)


def padding(match: re.Match[str], known: Known) -> Iterator[Fact]:
    """`Add 3 padding layers, may waste at most 10.00% KV cache memory`."""
    yield learn(padding_percent=max(number(match[1]), known.facts.padding_percent or 0.0))
    yield from keep(Topic.PADDING, match.string, known)


# --- engine, server, the end ------------------------------------------------------------------------------


def engine_up(message: str, known: Known) -> Iterator[Fact]:
    """`init engine (profile, create kv cache, warmup model) took 54.93 seconds (compilation: 8.0 s)`."""
    if not message.startswith("init engine (profile"):
        return
    seconds, compilation = _SECONDS.search(message), _COMPILATION.search(message)
    if seconds and known.facts.init_seconds is None:
        yield learn(init_seconds=number(seconds[1]))
    if compilation:
        yield learn(compile_seconds=number(compilation[1]))
    yield Finish(P.ENGINE_READY, P.SERVER, proven=True)


def statistics(message: str, known: Known) -> Iterator[Fact]:
    """Throughput every ten seconds comes from a server that serves."""
    if message.startswith("Engine core proc"):
        yield Broken.PROCESS_DIED
    elif "Avg prompt throughput" in message or "Avg generation throughput" in message:
        yield Sign.ANSWERS
        if known.record.kind is LineKind.RECORD:
            yield Interval(message)


def drafts(message: str, known: Known) -> Iterator[Fact]:
    """`SpecDecoding metrics: ...`."""
    if message.startswith("SpecDecoding metrics") and known.record.kind is LineKind.RECORD:
        yield Interval(message)


def worker(message: str, _known: Known) -> Iterator[Fact]:
    if "died unexpectedly" in message:
        yield Broken.PROCESS_DIED
    elif message.startswith(("WorkerProc failed to start", "WorkerProc hit an exception")):
        yield Broken.WORKER_FAILED


def gone(message: str, _known: Known) -> Iterable[Fact]:
    return (Broken.ENGINE_GONE,) if "engine core exited unexpectedly" in message else ()


_BACKENDS: Final = (
    "marlin", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cudnn", "flashinfer_cutedsl",
    "flashinfer_b12x", "b12x", "fbgemm", "humming", "emulation", "triton", "deep_gemm", "torch",
)  # fmt: skip
_MODES: Final = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_EAGER: Final = ("Enforce eager set", "Cudagraph is disabled under eager")
_STOPPED: Final = ("Shutting down FastAPI", "API server: shutdown triggered", "EngineCore: trigger received signal")
_KV_GIVEN: Final = rf"Initial free memory .*?reserved {NUMBER} GiB"

VLLM: Final[Table] = table(
    ("▄▄ █▄█▀ vLLM", banner),
    ("non-default", arguments),
    ("Resolved", found(r"Resolved architecture: (.{0,120})", architecture)),
    ("Initializing", initializing),
    ("Chunked Asynchronous Async Prefix Disabling Hybrid Encoder-decoder", scheduling),
    ("Unknown", found(r"Unknown vLLM environment variable detected: (\w{1,120})", environment)),
    ("Enabling", keeps(Topic.SPECULATION, "Enabling num_speculative_tokens > 1")),
    # kernels
    ("Using", using),
    ("Selected", found(r"Selected (\w{3,80}) for (\w{3,80})", selected)),
    ("Your Falling", weight_only),
    ("NVFP4 VLLM_BATCH_INVARIANT", emulation),
    ("Requested No " + " ".join(f"--linear-backend={backend}" for backend in _BACKENDS), refused),
    ("Detected", found(r"Detected ModelOpt ", lambda m, known: checkpoint(m.string, known))),
    # weights
    ("Starting", when("Starting to load model", Enter(P.WEIGHTS))),
    ("Time", found(
        rf"Time spent downloading weights.*?: {NUMBER} seconds",  # the log is silent while weights download
        lambda m, _known: (Enter(P.WEIGHTS), Past(P.DOWNLOAD, number(m[1]), P.WEIGHTS)),
    )),
    ("Filesystem", found(
        rf".*?Checkpoint size: {NUMBER} GiB",
        lambda m, known: () if known.facts.checkpoint_gib is not None else (learn(checkpoint_gib=number(m[1])),),
    )),
    ("Model", loaded),
    # compile
    ("Starting", when("Starting torch.compile", Enter(P.COMPILE))),
    ("Dynamo", when("Dynamo bytecode", Enter(P.COMPILE))),
    ("Cache", when("Cache the graph", Enter(P.COMPILE))),
    ("Compile", when("Compile and warming up", Enter(P.COMPILE))),
    ("Compiling", when("Compiling a graph", Enter(P.COMPILE))),
    ("Compiling", when("Compiling model again", Enter(P.COMPILE), Sign.COMPILED_AGAIN)),
    ("Directly", when("Directly load", Enter(P.COMPILE), Sign.COMPILED_BEFORE)),
    ("torch.compile", compiled),
    ("Initial", when("Initial profiling/warmup run took", Compiled(None))),
    ("Warming", warming),
    ("Enforce Cudagraph", when(_EAGER, learn(eager=True))),
    ("Enforce", keeps(Topic.EAGER, "Enforce eager set")),
    # memory: the KV cache, measured or given
    ("Available", found(rf"Available KV cache memory.*?{NUMBER} GiB", lambda m, k: kv_memory(m[1], m.string, k))),
    ("Initial", found(_KV_GIVEN, lambda m, known: kv_memory(m[1], m.string, known))),
    ("Explicitly", found(
        rf"Explicitly set \({NUMBER}/", lambda m, _known: (Enter(P.KV_CACHE), learn(kv_gib=number(m[1])))
    )),
    ("GPU CPU XPU Maximum", kv_size),
    ("Auto-fit", found(
        r"Auto-fit max_model_len: .{1,60}? to (\d{1,12}) to fit", lambda m, _known: (learn(max_model_len=int(m[1])),)
    )),
    ("Free", free),
    ("Applying", found(
        rf"Applying persisted startup plan.*?kv_cache_memory_bytes=\d{{1,16}} \({NUMBER} GiB\)",
        lambda m, known: (learn(kv_gib=number(m[1])), *keep(Topic.MEMORY, m.string, known)),
    )),
    ("Add", when("Add ", Enter(P.KV_CACHE))),
    ("Add Padding", found(
        rf"(?:Add \d{{1,6}} padding layers, may waste at most|Padding mamba page size by) {NUMBER}%", padding
    )),
    ("Setting", found(
        r"Setting attention block size to (\d{1,7}) tokens", lambda m, _known: (learn(attention_block=int(m[1])),)
    )),
    # memory: CUDA graphs
    ("Profiling", when("Profiling CUDA graph memory", Enter(P.KV_CACHE))),
    ("Estimated", found(rf"Estimated CUDA graph memory.*?{NUMBER} GiB", estimated)),
    ("CUDA", found(rf"CUDA graph pool memory: {NUMBER} GiB \(actual\), {NUMBER} GiB \(estimated\)", pool_memory)),
    ("CUDA In", utilization),
    ("CUDA", found("CUDA graphs are not supported", lambda m, known: overridden(m.string, known))),
    ("Dynamic Pooling Cudagraph", overridden),
    (" ".join(f"CUDAGraphMode.{mode}" for mode in _MODES), graph_mode),
    ("Capping Truncating No", keeps(
        Topic.GRAPH_SIZES, "Capping cudagraph capture sizes", "No valid cudagraph capture sizes",
        "Truncating max_cudagraph_capture",
    )),
    ("Skipping", skipping),
    ("Graph", captured),
    # engine, server
    ("init", engine_up),
    ("Starting", found(r"Starting vLLM (?:API )?server .*?(\S+)$", lambda m, _known: listens(m[1]))),
    ("starting", found(  # the Rust front end
        r"starting OpenAI server bind_address=(\S{1,100})",
        lambda m, _known: (Sign.OWN_READY_LINE, *listens(f"http://{m[1]}")),
    )),
    ("Launching", when("Launching Rust frontend", Sign.OWN_READY_LINE)),  # long before: uvicorn will not be heard
    ("Supported", lambda message, known: (  # the first that the API server says once the engine core is up
        (Enter(P.SERVER),) if message.startswith("Supported tasks: ") and known.facts.kv_tokens is not None else ()
    )),
    ("OpenAI", when("OpenAI server is ready to accept requests", Sign.READY)),
    ("Server", when("Server is ready to accept requests", Sign.READY)),  # gRPC
    ("Engine #", statistics),
    ("SpecDecoding", drafts),
    # the end
    ("EngineCore", when("EngineCore failed to start", Broken.START_FAILED)),
    ("EngineCore", when("EngineCore encountered a fatal error", Broken.FATAL)),
    ("Worker WorkerProc RayWorkerProc", worker),
    ("MPClient:", gone),
    ("API EngineCore: Shutting", when(_STOPPED, Sign.STOPPED)),
)  # fmt: skip
