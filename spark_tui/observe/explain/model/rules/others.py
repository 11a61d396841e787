"""Lines of the engines beside vLLM: SGLang, TensorRT-LLM, llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.line import NUMBER, number
from spark_tui.observe.explain.model.rules import rule as r
from spark_tui.observe.explain.model.serving import RETRACTED
from spark_tui.observe.explain.model.timeline import LogEvidence, Topic
from spark_tui.observe.explain.model.timeline import PhaseId as P

_ARGS: Final = {
    "model": lazy_pattern(r"model_path='([^']{1,300})'"),
    "quantization": lazy_pattern(r"\bquantization='([^']{1,60})'"),
    "kv_cache_dtype": lazy_pattern(r"kv_cache_dtype='([^']{1,30})'"),
    "speculation": lazy_pattern(r"speculative_algorithm='([^']{1,40})'"),
}
_CONTEXT: Final = lazy_pattern(r"\bcontext_len(?:gth)?=(\d{1,12})\b")
_SIZE: Final = lazy_pattern(rf"mem usage={NUMBER} GB")


def arguments(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`server_args=ServerArgs(model_path='...', ...)`, once for each start."""
    yield r.NewStart("sglang")
    yield r.Signal.OWN_READY_LINE  # uvicorn is up before the model answers
    yield r.EnterPhase(P.CONFIG)
    yield r.learn(**r.fields_in(_ARGS, match.string), **_context(match.string))


def _context(message: str) -> dict[str, Any]:
    context = _CONTEXT.search(message)
    return {"max_model_len": int(context[1])} if context else {}


def loaded(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`Load weight end. ... mem usage=8.80 GB.`"""
    yield r.Signal.OWN_READY_LINE
    size = _SIZE.search(match.string)
    if size:
        yield r.learn(load_gib=number(size[1]))
    yield r.FinishPhase(P.WEIGHTS, P.KV_CACHE, f"{size[1]} GB" if size else "")


def kv_size(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB`, or K and V by themselves."""
    tokens = int(match[1])
    yield r.learn(kv_tokens=tokens)
    if match[2]:
        yield r.learn(kv_gib=number(match[2]))
    elif match[3]:
        yield r.learn(kv_gib=round(number(match[3]) + number(match[4]), 2))
    yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def capture(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Capture cuda graph begin` and `end`, a drafter's too."""
    if "graph begin" in message[:60]:
        yield r.EnterPhase(P.CAPTURE)
    elif "graph end" in message[:60]:
        size = _SIZE.search(message)
        if size:
            yield r.learn(graph_actual_gib=round((known.facts.graph_actual_gib or 0.0) + number(size[1]), 2))
        yield r.FinishPhase(P.CAPTURE, P.ENGINE_READY, f"{size[1]} GB" if size else "")


def totals(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`max_total_num_tokens=2261377, ..., context_len=128000, ...`: a scheduler is done."""
    if known.facts.kv_tokens is None:
        yield r.learn(kv_tokens=int(match[1]))
    yield r.learn(**_context(match.string))
    yield r.FinishPhase(P.ENGINE_READY, P.SERVER, proven=True)


def batch(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`Decode batch, #running-req: 4, ...` of a server that serves, and requests that its full cache pushed out. The
    warm-up has such lines before it is ready."""
    served = message.startswith(("Decode batch", *RETRACTED))
    if not known.own_ready_line and (served or message.startswith("Prefill batch")):
        yield r.Signal.ANSWERS
    if served:
        yield r.Interval(message)


SGLANG: Final[r.Table] = r.table(
    ("Decode Prefill KV", batch),
    ("server_args=", r.found(r"server_args=ServerArgs\(", arguments)),
    ("Init", r.when("Init torch distributed ", r.Signal.OWN_READY_LINE, r.EnterPhase(P.ENGINE_INIT))),  # begin, ends
    ("sglang", r.found("sglang is using nccl==", lambda m, known: (r.wait(Topic.NCCL_WAIT, m.string, known),))),
    ("Load", r.when("Load weight begin", r.Signal.OWN_READY_LINE, r.EnterPhase(P.WEIGHTS))),
    ("Load", r.found("Load weight end", loaded)),
    (
        "KV",
        r.found(
            rf"KV Cache is allocated.*?#tokens: (\d{{1,15}})(?:, KV size: {NUMBER} GB|"
            rf", K size: {NUMBER} GB, V size: {NUMBER} GB)?",
            kv_size,
        ),
    ),
    ("Prefill Decode", r.when(("Prefill transfer failed for", "Decode transfer failed for"), r.Signal.ANSWERS)),
    (
        "Allocating",
        r.found(  # HiCache's, in the machine's memory
            r"Allocating .{1,20} host memory for hierarchical KV cache", lambda *_: (r.EnterPhase(P.KV_CACHE),)
        ),
    ),
    ("Capture", capture),
    ("max_total_num_tokens=", r.found(r"max_total_num_tokens=(\d{1,12}),", totals)),
    ("The", r.when("The server is fired up and ready to roll", r.Signal.READY)),
    ("SIGTERM Gracefully", r.when(("SIGTERM received", "Gracefully exiting"), r.Signal.STOPPED)),
    ("Received", r.when("Received sigquit from a child proces", r.Broken.CHILD_DIED)),
)


# --- trtllm ----------------------------------------------------------------------------------------------


def version(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`TensorRT-LLM version: 1.2.0`: every process says so."""
    if not known.facts.version:
        yield r.NewStart("trtllm", first=False)
        yield r.learn(version=match[1])
        yield r.EnterPhase(P.CONFIG)


def weights(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`Rank 0 uses 8.46 GB for model weights.`"""
    yield r.EnterPhase(P.WEIGHTS)
    if known.facts.load_gib is None:
        yield r.learn(load_gib=number(match[1]))


def allocated(match: re.Match[str], _known: r.RuleContext) -> Iterator[r.Fact]:
    """`[MemUsageChange] Allocated 1.01 GiB for max tokens in paged KV cache (8256).`: first a small one that measures,
    then the real one, which counts."""
    tokens = int(match[2])
    yield r.learn(kv_gib=number(match[1]), kv_tokens=tokens)
    yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY)
    yield r.DescribePhase(P.KV_CACHE, f"{tokens:,} tokens")


_GRAPHS: Final = ("Creating CUDA graph instances", "Run generation-only CUDA graph warmup", "Run generation only")

TRTLLM: Final[r.Table] = r.table(
    ("TensorRT-LLM", r.found(r"TensorRT-LLM version: (?:.* )?(\S{1,60})$", version)),
    ("Rank", r.found(rf"Rank \d{{1,4}} uses {NUMBER} GB for model weights", weights)),
    ("Prefetching", r.found(r"Prefetching [\d.]{1,12} ?GB checkpoint files", lambda *_: (r.EnterPhase(P.WEIGHTS),))),
    ("Allocated", r.found(rf"Allocated {NUMBER} GiB for max tokens in paged KV cache \((\d{{1,12}})\)", allocated)),
    ("Max", r.when(("Max KV cache pages", "Max tokens in paged KV cache"), r.EnterPhase(P.KV_CACHE))),
    ("iter", r.when("iter = ", r.Signal.ANSWERS)),
    ("Creating Run", r.when(_GRAPHS, r.EnterPhase(P.CAPTURE))),
    ("Run", r.when("Run autotuning warmup", r.EnterPhase(P.AUTOTUNE))),
    (
        "Started",
        lambda message, known: (  # uvicorn begins when the model is loaded
            (r.EnterPhase(P.SERVER),)
            if message.startswith("Started server process") and known.phase in (P.CAPTURE, P.AUTOTUNE)
            else ()
        ),
    ),
    # under Triton: the C++ runtime's first lines, the table of loaded models, and a refused request
    ("Encountered", r.when("Encountered an error when fetching new request", r.Signal.ANSWERS)),
    ("MPI Engine", r.when(("MPI size: ", "Engine version "), r.EnterPhase(P.ENGINE_INIT))),
    ("loading:", r.when(("loading: tensorrt_llm", "loading: tensorrtllm"), r.EnterPhase(P.ENGINE_INIT))),
    ("|", r.found(r"\| tensorrt_llm +\| \d{1,4} +\| READY", lambda *_: (r.Signal.READY,))),
)


# --- llama cpp -------------------------------------------------------------------------------------------


_MODEL: Final = lazy_pattern(r"load_model: loading model '([^']{1,300})'")
_URL: Final = lazy_pattern(r"server is listening on (https?://\S{1,100})")
_ANSWERED: Final = lazy_pattern(
    r"srv +(?:(?:log_server_r|done_request): (?:done )?(?:request: )?(?:POST|GET) /\S{1,80} \S{1,60} (?!503)\d{3}|"
    r"(?:params_from_|prompt_save|send_error|send|proxy_reques|get_availabl|ensure_model\w*|update_slots): |"
    r"update:  - |operator\(\): got exception(?!.{0,80}Loading model)|load: spawning)"
)
_CHILD: Final = lazy_pattern(r"srv +[\w():]{1,30} +instance name=\S{1,200} exited with status -?[1-9]")
_BUFFER: Final = lazy_pattern(rf"load_tensors: +\S{{1,40}} model buffer size = +{NUMBER} MiB")
_LAYERS: Final = lazy_pattern(r"load_tensors: offloaded (\d{1,5}/\d{1,5}) layers to GPU")
_LLAMA_CPP_CONTEXT: Final = lazy_pattern(r"n_ctx += (\d{1,12})$")
_MIB: Final = 1024


def build(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`build: 9421 (ed7be1568) with GNU 13.3.0 for Linux aarch64`."""
    if not known.facts.version:
        yield r.NewStart("llama-cpp", first=False)
        yield r.learn(version=f"b{match[1]}")
        yield r.EnterPhase(P.CONFIG)


def program(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """What the program itself says: that it loads, that it has loaded, that it listens."""
    if message.startswith(("main: loading model", "srv")) and "loading model" in message[:60]:
        yield r.EnterPhase(P.WEIGHTS)
        model = _MODEL.search(message)
        if model and not known.facts.model:
            yield r.learn(model=model[1])
    elif "model loaded" in message[:60] or "all slots are idle" in message[:60]:
        yield r.Signal.READY
    elif "cleaning up before exit" in message[:80]:
        yield r.Signal.SIGNALLED
    elif _CHILD.match(message):  # a router's
        yield r.Signal.RUNNER_ENDED
        yield from r.keep(Topic.RUNNER_FAILED, message, known)
    elif _ANSWERED.match(message):
        yield r.Signal.ANSWERS
    elif url := _URL.search(message, 0, 200):
        yield r.learn(url=url[1])
        yield r.Signal.READY


def old_server(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """The server before builds of June 2024, whose lines name the function that wrote them."""
    if " | tid=" in match[0] or known.record.message != match.string or known.record.kind == "record":
        yield r.Signal.READY if match[1] in ("model loaded", "all slots are idle") else r.Signal.ANSWERS


def tensors(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`load_tensors: ...`: the weights."""
    yield r.EnterPhase(P.WEIGHTS)
    if buffer := _BUFFER.match(message):
        yield r.learn(load_gib=round((known.facts.load_gib or 0.0) + number(buffer[1]) / _MIB, 2))
    elif layers := _LAYERS.match(message):
        yield r.Report(P.WEIGHTS, f"{layers[1]} layers on the GPU")


def context(message: str, known: r.RuleContext) -> Iterator[r.Fact]:
    """`llama_context: constructing llama_context`: the weights are in; `n_ctx = 65536`."""
    if "constructing llama_context" in message[:80]:
        gib = known.facts.load_gib
        yield r.FinishPhase(P.WEIGHTS, P.KV_CACHE, f"{gib:g} GiB" if gib is not None else "")
    elif size := _LLAMA_CPP_CONTEXT.search(message, 0, 120):
        yield r.learn(max_model_len=int(size[1]))


def cache(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`llama_kv_cache: size = 384.00 MiB (  4096 cells, ...`: models with windows have two caches."""
    tokens = max(int(match[2]), known.facts.kv_tokens or 0)
    yield r.learn(kv_tokens=tokens, kv_gib=round((known.facts.kv_gib or 0.0) + number(match[1]) / _MIB, 2))
    yield r.FinishPhase(P.KV_CACHE, P.ENGINE_READY, f"{tokens:,} tokens")


def info(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """`print_info: file type = Q4_K - Medium`: what the file says of itself."""
    value = match[2].strip()
    if match[1] == "arch":
        yield r.learn(architecture=value)
    elif match[1] == "file type":
        yield r.learn(quantization=value)
    elif match[1] == "general.name" and not known.facts.model:
        yield r.learn(model=value)
    elif size := re.match(rf"{NUMBER} GiB", value):
        yield r.learn(checkpoint_gib=number(size[1]))


LLAMA_CPP: Final[r.Table] = r.table(
    (
        "build: build_info: common_params_print_info:",
        r.found(r"(?:build(?:_info)?: |common_params_print_info: build )b?(\d{1,6})", build),
    ),
    ("main: srv", program),
    (
        "slot",
        r.found(
            r"slot +(?:launch_slot_|print_timing|update_slots|get_availabl|release|process_\w+|prompt_\w+|"
            r"create_check\w*): ",
            lambda _m, _known: (r.Signal.ANSWERS,),
        ),
    ),
    ("llama", r.when("llama server listening at http", r.Signal.READY)),
    ("Received", r.when("Received second interrupt, terminating", r.Signal.STOPPED)),
    (
        "prompt eval llama_perf_context_print: llama_print_timings: common_perf_print:",
        r.found(
            r"(?:\w{1,40}: +)?(?:prompt )?eval time += +[\d.]{1,14} ms / +\d{1,9} (?:tokens|runs)",
            lambda _m, _known: (r.Signal.ANSWERS,),
        ),
    ),
    (
        "INFO [ model all",
        r.found(  # the server of 2024: `INFO [  main] model loaded | tid=`, or as JSON
            r"(?:INFO \[ *\w{1,30}\] )?"
            r"(model loaded|all slots are idle|slot is processing task|print_timings|kv cache rm|request)"
            r"(?: \| tid=.{1,40} timestamp=|$)",
            old_server,
        ),
    ),
    (
        "slot",
        r.found(r"slot print_timing: .{0,60}draft acceptance(?: rate)? = ", lambda m, _known: (r.Interval(m.string),)),
    ),
    (
        "ggml_cuda_init: warning:",
        r.keeps(Topic.NO_DRIVER, "ggml_cuda_init: failed to initialize CUDA|warning: no usable GPU found"),
    ),
    ("load_tensors:", tensors),
    ("llama_context:", context),
    (
        "llama_kv_cache: llama_kv_cache_unified:",
        r.found(rf"llama_kv_cache\w{{0,20}}: size = +{NUMBER} MiB \( *(\d{{1,12}}) cells", cache),
    ),
    (
        "cmn common_init_from_params:",
        lambda message, _known: (r.EnterPhase(P.ENGINE_READY),) if "warming up the model" in message[:80] else (),
    ),
    ("print_info:", r.found(r"print_info: (arch|file type|file size|general\.name) += (.{1,120})", info)),
)


def _by_go(pattern: str, facts: Callable[[re.Match[str]], Iterable[r.Fact]]) -> r.Rule:
    """A rule for lines that a program in Go wrote."""
    return r.found(pattern, lambda match, known: facts(match) if ".go:" in known.record.source else ())


def runner_ended(match: re.Match[str], known: r.RuleContext) -> Iterator[r.Fact]:
    """Ollama reports that the runner of a model failed; an error, where the process has ended."""
    if ".go:" in known.record.source:
        yield r.Signal.ANSWERS if known.record.level in ("INFO", "WARNING") else r.Signal.RUNNER_ENDED
        yield r.KeepEvidence(LogEvidence(Topic.RUNNER_FAILED, r.shown(match.string)))


def ollama_says(match: re.Match[str], known: r.RuleContext) -> Iterable[r.Fact]:
    return r.keep(Topic.NO_DRIVER, match.string, known) if ".go:" in known.record.source else ()


def client(match: re.Match[str], known: r.RuleContext) -> Iterable[r.Fact]:
    """What `ollama run` prints of a runner that failed; the server's lines may follow."""
    return r.keep(Topic.RUNNER_FAILED, match.string, known)


def ollama_memory(match: re.Match[str]) -> Iterator[r.Fact]:
    """`model weights device=CUDA0 size="18.8 GiB"`, `kv cache device=CUDA0 size="936.0 MiB"`."""
    gib = round(number(match[2]) / (1024 if match[3] == "MiB" else 1), 2)
    yield r.learn(load_gib=gib) if match[1] == "model weights" else r.learn(kv_gib=gib)


OLLAMA: Final[r.Table] = r.table(
    ("server", _by_go(r"server config env=", lambda _m: (r.NewStart("ollama"), r.EnterPhase(P.CONFIG)))),
    (
        "Listening",
        _by_go(
            r"Listening on (\S{1,100}) \(version ([\w.\-+]{1,60})\)",
            lambda m: (
                r.NewStart("ollama", first=False),
                r.learn(version=m[2], url=f"http://{m[1]}"),
                r.EnterPhase(P.SERVER),
                r.Signal.READY,
            ),
        ),
    ),
    ("model kv", _by_go(rf'(model weights|kv cache) .*?size="{NUMBER} (MiB|GiB)"', ollama_memory)),
    (
        "error Load NewLlamaServer post do llama llama-server model runner",
        r.found(
            "error (?:loading llama server|starting (?:the external )?llama runner)|Load failed|NewLlamaServer failed|"
            "post predict|llama runner (?:terminated|exited|process|stopped with error)|"
            "do load request|llama-server terminated|model request too large|model load(?:ing)? failed|runner "
            "(?:crashed|exited|terminated)",
            runner_ended,
        ),
    ),
    (
        "Error:",
        r.found(
            r"Error: (?:[45]\d\d [A-Z][\w ]{2,30}: )?(?:llama runner |llama-server |failed to start a llama runner|"
            r"model runner has unexpectedly|error loading model |POST predict: |do load request: |"
            r"an error was encountered while running the model)",
            client,
        ),
    ),
    ("warning: no", r.found("warning: gpu support may not be|no compatible GPUs were discovered", ollama_says)),
    (
        "inference",
        _by_go(
            r"inference compute.{0,40}library=cpu",
            lambda m: (r.KeepEvidence(LogEvidence(Topic.NO_DRIVER, r.shown(m.string))),),
        ),
    ),
    (
        "input INFO",
        r.found(  # of llama.cpp's server inside it, up to 0.3
            r"(?:INFO \[ {0,20}update_slots\] )?input truncated \| n_ctx=",
            lambda m, _known: (r.Signal.ANSWERS, r.KeepEvidence(LogEvidence(Topic.TRUNCATED, r.shown(m.string)))),
        ),
    ),
    (
        "truncating",
        _by_go(
            "truncating input (?:prompt|messages)",
            lambda m: (r.Signal.ANSWERS, r.KeepEvidence(LogEvidence(Topic.TRUNCATED, r.shown(m.string)))),
        ),
    ),
    (
        "gpu invalid chat",
        _by_go(
            "gpu VRAM usage didn't recover|invalid option provided|chat prompt error", lambda _m: (r.Signal.ANSWERS,)
        ),
    ),
    (
        "llama llama-server",
        _by_go(
            rf"llama(?: runner|-server) started in {NUMBER} seconds",
            lambda m: (r.Signal.ANSWERS, r.Warm(number(m[1]))),
        ),
    ),
)
