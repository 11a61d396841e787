"""Whose line it is: the end of an engine's log, and other programs in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.causes.host import ABORT, CRASH, FATAL, GPU_FAULT, NAMED, NO_PROGRAM, RAYLET
from spark_tui.observe.explain.model.line import LineKind, LogRecord, exception_name, parse_line

USAGE: Final = r"error: (?:unrecognized arguments|the following arguments are required|argument -)"
"""How argparse refuses an option."""
SHELL: Final = r"(?:Killed|(?:Aborted|Segmentation fault|Bus error|Illegal instruction)(?: \(core dumped\))?)$"
"""How a shell says by which signal its command ended."""
_SHELL: Final = lazy_pattern(rf"{SHELL}|\S{{1,80}}: line \d{{1,5}}: +\d{{1,9}} Killed ")
_CRASH: Final = lazy_pattern(CRASH)
TRT: Final = ("TensorRT-LLM", "TRT-LLM", "TRT")
"""TensorRT-LLM's loggers: C++, Python, and TensorRT's own."""
_TRT_ENDS: Final = lazy_pattern(
    r"Failed to initialize executor|Executor worker |Engine building failed|Hang detected on rank|"
    r"Failed to parse the arguments for the LLM|(?:tensorrt_llm::\S{0,60}TllmException: .{0,40})?Assertion failed: "
)

CONSEQUENCES: Final = (
    "WorkerProc initialization failed",
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "Executor worker returned error",
    "EngineCore failed to start",
    "failed to load all models",
)
"""Lines that only repeat another process's."""
INTERRUPTED: Final = ("KeyboardInterrupt", "SystemExit", "CancelledError")
_LINES: Final = lazy_pattern(  # lines that end a program, or a start, and are no exceptions
    r"(?:docker: )?(?:Error response from daemon|unauthorized|denied): |.{0,80}no matching manifest for |"
    r"(?:Warning +Failed .{1,60}kubelet +)?Failed to pull image |Error: (?:error )?setting up CDI devices: |"
    r".{0,100}Engine (?:core proc \w+|process \(pid \d+\)|loop has) died|"
    r"exec \S{1,200}: exec|.{0,60}pull access denied|"
    r"CUDA error|"
    r"(?:\[[\w\-]{1,20}\] |llama\.cpp: ){0,3}(?!llama_decode: |llama_params_fit|common_fit)(?:llama|ggml|gguf|clip|"
    r"mtmd)_\w+: .{0,80}(?:failed|error)|\[Errno \d+\]|what\(\): |"
    r"(?:\[E \w+\.cpp:\d+\] )?(?:\[c10d\] )?(?:\[Rank \d+\] Watchdog caught|The client socket has timed out)|"
    r"Memory on the node \(IP: |.{0,60}killed due to memory pressure|"
    r"\[PG ID.{0,160}(?:[Tt]imeout|timed out|by watchdog|watchdog (?:hang|got stuck))|Gloo connectFullMesh|"
    r"(?:\[TRT-LLM\] \[E\] )?Failed to initialize executor|Executor worker returned error|\[TensorRT-LLM\]\[ERROR\]|"
    r"(?:Received sigquit|SIGQUIT received)|ptxas (?:fatal|error)|.{0,40}No space left on device|"
    r".{0,40}Disk quota exceeded|Worker proc \S+ died|"
    r"(?:EngineCore|WorkerProc|Scheduler) (?:failed to start|hit an exception|encountered a fatal error)|"
    r"Dumping scheduler output|Exception in worker \w+ while|"
    r"Scheduler or DataParallelController \d{1,9} terminated with|There are not enough slots available|"
    r"(?:An? )?(?:ORTE|PRTE) (?:has lost|daemon has)|(?:Primary|Child) job +(?:\d+ )?terminated normally, but|"
    r"Unhandled error \(suppress with|Rank \d+ scheduler (?:died|is dead)|\(raylet\) .{0,40}(?:died|killed)|"
    r"!!!!!!! Segfault encountered|(?:Value error|Assertion failed), |[\w./\-]{0,60}python[\d.]{0,5}: No module named |"
    r"Fatal Python error: |.{0,80}Out of memory: Killed process \d+ \(|"
    r"(?:\[\d{2,6}\] )?\S{0,200}ggml\S{0,100}:\d+: (?:fatal error|GGML_ASSERT|CUDA error|Remote RPC)|"
    r".{0,200}\bGGML_ASSERT[:(]|Error: (?:CUDA error|ggml_)|MPI_ABORT was invoked on rank|Watchdog timeout \(self|"
    r"(?:\[[\w.\-]{1,60}:\d{1,9} *:\d{1,9}:\d{1,9}\] )?Caught signal \d{1,2} |Initialization failed\. warmup error|"
    r"\| \S{1,60} +\| \d{1,3} +\| UNAVAILABLE: |.{0,40}Value 'sm_\w{1,8}' is not defined|toomanyrequests: |"
    r"(?:docker: )?failed to register layer|Error: model requires more|[*\-] ImportError: |\[sgl_kernel\] CRITICAL|"
    r"nvidia-container-cli: |(?:ROCm|HIP) error|"
    r"Error: (?:listen tcp |digest mismatch|pull model manifest|llama runner|unable to load|max retries|could not |"
    r"write |[45]\d\d )|error: invalid argument|[\w.\-/]{1,200}: error while loading shared libraries|"
    r"(?:gguf|llama|ggml|clip|mtmd)_\w+: .{0,300}(?:invalid|unknown|unsupported|missing|corrupt)|[a-z]{2,14}error: |"
    r"[\w.\-]{0,40}(?:llm|llama|sglang|trt)[\w.\-]{0,40} exited with code [1-9]|"
    r"thread '[^']{1,60}'(?: \(\d+\))? panicked at|invoking the NVIDIA Container Runtime Hook|[Ii]nvalid argument: -|"
    r"(?:[Ee]rror: )?(?:unknown (?:argument|option|flag)|flag provided but not defined): ?'?-|"
    r"[\w./\-]{0,200}python[\d.]{0,5}: Error while finding module specification|"
    r"error: invalid (?:value '|parameter for argument: -)|error(?:: error)? from HF API|common_\w+: .{0,80}error: |"
    r"\S{1,80}: line \d{1,5}: +\d{1,9} Killed |Error: timed out waiting for llama runner|"
    r"(?:\[\d+\][+\-]? +|\S{1,80}: line \d{1,5}: +\d{1,9} )?(?:Killed|Aborted|Segmentation fault|"
    r"Bus error)\b.{1,60}(?:vllm serve|vllm\.|sglang|llama-|trtllm-)|(?:\w+: )?failed to initialize the context: |"
    r"panic: |mpirun noticed that process|ibv_\w+\(.{1,200} failed|failed to copy: |"
    r"(?:error pulling image|failed to resolve reference)|"
    r".{0,80}(?:code=killed, status=9|unit has been killed by the OOM killer|sending SIG(?:TERM|KILL) to process)|"
    r".{0,40}(?:vllm|sglang|trtllm-serve|llama-server|ollama): (?:command )?not found|"
    r"Error: (?:No such option|Got unexpected|Missing |Invalid value|mkdir |open |stat |model |unsupported |invalid |"
    r"no Modelfile)|UNAVAILABLE: (?:Internal|Not found|Invalid argument|Unsupported): |"
    r"ERROR: Head \"https?://[^/ ]{1,100}/v2/"
    rf"|{USAGE}|Capture cuda graph failed: |error: creating server: "
    r"|[\w./\-]{1,120}\.cuh? \d{1,5} - \w|Failed: Cuda error |.{0,40}[Uu]nable to open shared memory object|"
    r"An unexpected system state has occurred\. You"
    rf"|Workspace is locked but allocation|{NO_PROGRAM}|{GPU_FAULT}|\S{{0,200}}{RAYLET}"
    r"|error (?:loading llama server|starting (?:the external )?llama runner)|"
    r"llama runner (?:terminated|stopped with error)|"
    r"[\w.\-/]{0,60}(?:llama|vllm|sglang)[\w.\-]{0,40}: (?:symbol lookup error: |.{0,80}version `GLIBC)|"
    r"Error when loading model: |rocBLAS error: |(?:\w+ )?(?:vLLM|SGLang|sglang|llama-server|[Oo]llama)(?: server)? "
    r"failed to start\b|.{0,100}Shard process was signaled to shutdown with signal|listen tcp \S{3,60}:11434: bind: |"
    r"This kernel only supports sm|Unhandled exception(?:: .{0,60}what\(\): | caught in c10/)|"
    r"ptxas application ptx input.{0,40}error|.{0,80}\bnvcc: not found|"
    r"Timed out after \d{1,6} seconds waiting for clients|"
    rf"{SHELL}|{FATAL}|{NAMED}|{CRASH}"
)
_WITHIN: Final = (
    "Failed to start model server: ",
    "llama_model_load: error loading model: ",
    ": no space left on device",
    "rror response from daemon: ",
    "/docker.sock",
    "nvidia-container-cli: ",
    " - manifest unknown: ",
    "could not select device driver ",
    'no runtime for "nvidia" is configured',
)
"""What also ends a program behind words of its own."""
_LIFE: Final = lazy_pattern(
    r"Application startup complete|throughput: |ready to roll|all slots are idle|Listening on|server is listening|"
    r"log_server_r: (?:done )?request: |done_request: |Decode batch|Prefill batch|llama runner started|"
    r"(?:llm_)?load_tensors: |llama_model_loader: - "
)
_ANSWERED: Final = lazy_pattern(r'HTTP/[\d.]{1,3}" [1-4]\d\d\b|^(?:20\d|4\d\d) \|')
_REQUEST: Final = lazy_pattern(r"(?:\w+/)*(?:serving(?:_\w+)?|\w*connector(?:/\w+)?)\.py:")
"""One request was refused, or its cache not fetched from another engine."""
_TEARDOWN: Final = lazy_pattern(
    r"[Ss]hut|[Tt]erminat|[Ee]xit|[Kk]ill|Parent process|[Dd]ump|died|destroy|No available shared memory|[Ff]ailed"
)
_LOADED: Final = lazy_pattern(
    r"Available plugins for group|All plugins in this group|- \w+ -> |Automatically detected platform"
)
"""What each process of vLLM's says when it imports it: another one begins."""
_GOES_ON: Final = lazy_pattern(
    r"Based on the available|Exit code: -9|Try |Decrease |See stack trace|Please |"
    r"The following component could not be created|The model you are attempting to pull"
)
WORKER_FAILED: Final = lazy_pattern(r"Worker failed with error ['\"](.+)['\"], please check")
_IN_WORKER: Final = lazy_pattern(r"Exception in worker \w+ while processing method \w+: (.+?)(?:, Traceback .*)?$")
DETAIL: Final = lazy_pattern(r"\s*(?:Value error|Assertion failed), .+")
PYDANTIC_TAIL: Final = lazy_pattern(r" \[type=\w+, input_value=.*$")
_PARSED: Final = "Failed to parse the arguments"
"""TensorRT-LLM's line with pydantic's sentences below it."""
_FIELD: Final = lazy_pattern(r"[\w.]{1,80}$")


class LastFailure(NamedTuple):
    """The record that decides, with its whole message, and the place of its first line."""

    at: int
    record: LogRecord


def last_failure(lines: Sequence[str], *, serving: bool, engine: bool) -> LastFailure | None:
    """The failure that the lines end in; None where they end in life, or in what another program says.

    Of the exceptions since the last sign of life the last one that a rule knows counts, then the last one, then a mere
    consequence. `serving`: only what ends an engine's processes counts. `engine`: the text shows one.
    """
    found: list[LastFailure] = []
    went_on = False
    for at in reversed(range(len(lines))):
        record = parse_line(lines[at])
        went_on = went_on or _WENT_ON.match(record.message) is not None
        if _alive(record):
            break
        sentence, _, trace = record.message.partition("\nTraceback (most recent call last)")
        if trace and not serving and ENGINE_PATH.search(trace):  # a record of JSON, with its traceback
            found.append(LastFailure(at, record._replace(message=sentence)))
        elif _fatal(record) and not (went_on and _reported(record)):
            whole = _whole(record, lines[at + 1 : at + 3])
            if is_ours(whole, lines, at, serving=serving, engine=engine):
                found.append(LastFailure(at, whole))
    return max(found, key=lambda each: (_rank(each.record), each.at), default=None)


_WENT_ON: Final = lazy_pattern(
    r"Load weight (?:begin|end)|(?:KV|Mamba) Cache is allocated|Memory pool end|Capture .{0,30}graph (?:begin|end)|"
    r"max_total_num_tokens=|Rank \d{1,4} uses .{1,20} for model weights|Allocated .{1,40} in paged KV cache"
)
"""Steps of a start, of SGLang and TensorRT-LLM."""


def _reported(record: LogRecord) -> bool:
    """An exception that no process says it ends by."""
    return record.kind is LineKind.EXCEPTION and not (record.process or record.source)


def interrupted(lines: Sequence[str]) -> bool:
    """Whether the lines end in the traceback of Ctrl-C, through an engine's code."""
    last = next((text for text in reversed(lines) if text.strip()), "")
    own = parse_line(last).message.strip() == "KeyboardInterrupt"
    return own and any("File " in text and ENGINE_PATH.search(text) for text in lines[-60:])


def _rank(record: LogRecord) -> float:
    message = record.message
    if message == "EOFError" or any(words in message for words in CONSEQUENCES):
        return 0
    if _CRASH.match(message) and "what(): " not in message:  # the system's word for what stands above
        return 0
    if _SHELL.match(message):  # below an exception: what ended the rest
        return 0.5
    if message.startswith("nccl"):  # the second half of torch's message
        return 2
    known = recognise(message)
    if known is None:
        own = record.process.startswith("EngineCore") or "Worker" in record.process
        return 4.5 if own and ": " in message else 3 if ": " in message or "Timeout" not in message else 0
    if known[0].id is CauseId.NCCL and not record.process and not known[0].vague:  # most often it waits for others
        return 4.2
    return 1 if known[0].id is CauseId.ENGINE_DIED else 4 if known[0].vague else 5


_UNJOINED: Final = lazy_pattern(
    r"Did the remote server shutdown or crash|^(?:\S{0,60}/)?(?:init|bootstrap|group)\.cc:\d{1,5} -> [1-7]\b"
)
"""What torch and NCCL say, as of no error, when they give up a group of ranks."""
_TRITON: Final = lazy_pattern(
    r"\"?(?:ERROR: )?(?:[Ff]ailed to (?:load|create) |Invalid argument: ensemble |Poll failed for model directory)"
)
"""How the Triton server ends the start of a model."""


def _alive(record: LogRecord) -> bool:
    if record.kind is LineKind.ACCESS:
        return record.source == "GIN" or _ANSWERED.search(record.message) is not None
    if _LIFE.search(record.message[:200]):
        return True
    ours = record.level == "INFO" and ".py:" in record.source and not _LOADED.match(record.message)
    return ours and not _TEARDOWN.search(record.message[:300])


def _fatal(record: LogRecord) -> bool:
    if record.level in ("INFO", "DEBUG", "WARNING"):
        return _UNJOINED.search(record.message) is not None
    if _REQUEST.match(record.source) and not DEADLY.search(record.message):
        return False
    if record.source in TRT and record.severity >= 40:
        return known_sure(record.message) or _TRT_ENDS.match(record.message) is not None
    if record.level == "CRITICAL" and record.process and record.source.partition(":")[0].endswith((".cc", ".h")):
        return True  # a check of Ray's that failed, in a worker or beside it
    if ".cc:" in record.source and record.severity >= 40 and _TRITON.match(record.message):
        return True
    if record.kind is LineKind.EXCEPTION:
        return not exception_name(record.message).endswith(INTERRUPTED)
    text = record.message.lstrip()
    return _LINES.match(text) is not None or any(words in text for words in _WITHIN)


def _whole(record: LogRecord, below: Sequence[str]) -> LogRecord:
    """With its continuation on the next two lines: pydantic's sentence in place of its heading, and the rest of a
    sentence."""
    if inner := _IN_WORKER.match(record.message) or WORKER_FAILED.search(record.message):
        return record._replace(message=inner[1])
    message, following = record.message, [parse_line(text) for text in below]
    if exception_name(message).endswith("ValidationError") or message.startswith(_PARSED):
        detail = next((each.message for each in following if DETAIL.match(each.message)), "")
        if not detail and len(following) > 1 and following[1].message.startswith("  ") and _FIELD.match(below[0]):
            detail = f"{following[0].message}: {following[1].message.strip()}"
        message = detail or message
    if DETAIL.match(message) or message is not record.message:
        return record._replace(message=PYDANTIC_TAIL.sub("", message).strip())
    open_ended = (
        message.endswith(":") or "panicked at " in message or message.startswith("Failed to initialize executor")
    )
    for each in following if record.kind is LineKind.EXCEPTION or open_ended else ():
        if (open_ended and each is following[0] and each.message[:1] != "[") or _GOES_ON.match(each.message.strip()):
            message = f"{message} {each.message.strip()}"
    return record._replace(message=message)


# --- whose -----------------------------------------------------------------------------------------------


_ANY_MACHINE: Final = frozenset(
    (
        CauseId.DISK_FULL,
        CauseId.PERMISSION_DENIED,
        CauseId.PORT_IN_USE,
        CauseId.HUB_OFFLINE,
        CauseId.KILLED,
        CauseId.MISSING_FILE,
        CauseId.MISSING_MODULE,
        CauseId.BAD_ARGUMENT,
        CauseId.ENGINE_DIED,
        CauseId.KERNEL_FAILURE,
        CauseId.OUT_OF_MEMORY_LOADING,
        CauseId.OUT_OF_MEMORY_WARMUP,
    )
)
"""What happens to any program, in the same words: such a text must name an engine, or what engines are made of."""
_ENGINES: Final = lazy_pattern(
    r"(?i:vllm|sglang|sigquit|tensorrt|trt|llama|ggml|cuda|nccl|gpu|nvidia|engine|worker|scheduler|huggingface|"
    r"model manifest|triton|ptxas|nvcc|\bmpi)"
)
DEADLY: Final = lazy_pattern(
    r"CUDA error|EngineDeadError|Watchdog caught|Hang detected on rank|Watchdog timeout \(self|"
    r"killed due to memory pressure|warmup error|"
    r"likely discovered a bug in Ray|SIGQUIT|sigquit|address already in use|Worker proc|"
    r"hit an exception|encountered a fatal error|Engine (?:loop has|process \(pid \d+\)) died|"
    r"ggml\S{0,100}:\d+: |GGML_ASSERT\("
    rf"|^(?:{ABORT}|(?:Aborted|Segmentation fault|Bus error|Illegal instruction)(?: \(core dumped\))?$)"
)
FRAME: Final = lazy_pattern(r'File "([^"]{1,400})", line \d{1,7}')
"""A frame of a Python traceback, with its file."""
_KNOWN_PATH: Final = lazy_pattern(
    r"vllm|sglang|tensorrt|trtllm|llama|ollama|flashinfer|triton|/torch/|(?:site|dist)-packages[/\\]|"
    r"[/\\]lib(?:64)?/python3|^<|sgl|deep_?(?:gemm|ep)|huggingface|transformers|[/\\]ray[/\\]|"
    r"[Pp]ython\d*[/\\][Ll]ib[/\\]|^/usr/lib/|entrypoint|serve|[/\\]bin[/\\]ray$"
)
_OTHERS: Final = lazy_pattern(
    r"[/\\]llamafactory[/\\]|convert[-_]hf[-_]to[-_]gguf|"
    r"-packages[/\\](?:litellm|openai|anthropic|langchain\w*|llama_index|gradio|streamlit|open_webui|crewai|autogen\w*|"
    r"diffusers|trl|unsloth\w*|lightning|pytorch_lightning|deepspeed|pip|setuptools|comfy\w*|peft|accelerate|auto_gptq|"
    r"llmcompressor)[/\\]"
)
BENCH: Final = lazy_pattern(r"[/\\](?:benchmarks[/\\]serve|bench_serving)\.py\", line \d{1,6}, in (?!<module>)")
"""The engines' own benchmark, a client."""
ENGINE_PATH: Final = lazy_pattern(r"[/\\](?:vllm|sglang|tensorrt_llm|llama_cpp)[/\\\-]")
SGLANG_RANK: Final = r"(?:[A-Z_]{2,12}\d{1,4} ){0,3}[TDPE]P\d"
"""What SGLang writes before the lines of a scheduler: `TP0`, `ATTN_CP5 TP5`."""
SGLANG_HEAD: Final = rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {SGLANG_RANK}"
_SPEAKS: Final = lazy_pattern(
    r"\(\w+ pid=\d|(?:INFO|ERROR|WARNING|DEBUG) \d\d-\d\d \d\d:|\[TRT-LLM\] \[|\[TensorRT-LLM\]|server_args=|"
    r"source=\S{1,60}\.go:\d|\[GIN\]|"
    r"(?:llama|llm_load|ggml|gguf|load_tensors|load_backend|print_info|system_info|srv|slot)\w*: |"
    r"(?:alloc_compute_meta|load_hparams|clip_\w{3,30}|mtmd_\w{3,40}): |warmup: (?:\*{5}|WARNING: |flash attention is)|"
    r"\b(?:slot|srv) +\w{3,20}: |main: (?:router )?server is listening|llama server listening at|"
    r"(?:main|update_slots|launch_slot_\w{1,20}|print_timings)\] |\"function\":\"(?:main|update_slots)\"|"
    r"Generating new private key|"
    rf"{SGLANG_HEAD}"
    r"|INFO: {4,}|"
    r"model_lifecycle\.cc:\d+\] \"?loading: tensorrt|Inferred chat template|Init torch distributed|checkpoint shards: |"
    r"-packages/(?:vllm|sglang|tensorrt_llm)/[^\s\"]{0,160}(?:\.py(?:\"|:\d)|\.so)|% Completed \||-req: \d|Load weight|"
    r"Avg prompt throughput|(?:INFO|WARN|ERR|VERB) \[ {0,30}\w{2,30}\] .{1,80} \| tid=|"
    r"ttention backend not (?:set|(?:explicitly )?specified)|NvFp4 MoE backend|native support for FP4 computation|"
    r"^\[\w{1,40}\.py:\d{1,6}\] |^Using \w{1,60}Kernel for \w{2,12} GEMM"
)
"""Lines in the form that engines give them; a text that only names an engine has none."""
_CLIENT: Final = lazy_pattern(
    r"Error: could not connect to |"
    r"(?:openai|litellm|anthropic|ollama|aiohttp|tenacity|gradio|streamlit|instructor|langchain\w*)\.|"
    r"Packages?NotFoundError"
)
"""Exceptions of those who ask an engine, and of package managers."""
_ANY_PROGRAM: Final = lazy_pattern(rf"error: (?!creating server)|{GPU_FAULT}")
"""How any program refuses its option or its file, or loses its GPU."""
_SGLANG_RANK: Final = lazy_pattern(SGLANG_RANK)
_UNDER_WAY: Final = lazy_pattern(r"^Processed prompts: +\d|\(\w+ pid=\d.{1,200}failed for request ")
_LLAMA_CPP: Final = lazy_pattern(FATAL)
"""llama.cpp's own sentences, also within another program."""
NEAR: Final = 80
"""Lines above one that are looked at."""


def in_form(text: str) -> bool:
    return _SPEAKS.search(text, 0, 600) is not None


def known_sure(message: str) -> bool:
    known = recognise(message)
    return known is not None and known[0].sure and not known[0].vague


def _names_an_engine(message: str) -> bool:
    """Whether a text without a line of an engine's names one, or fails for what only an engine fails for."""
    if _ENGINES.search(message, 0, 1_500):
        return True
    known = recognise(message)
    return known is not None and known[0].id not in _ANY_MACHINE


def another_program(lines: Sequence[str]) -> bool:
    """Whether frames show that what failed is a script, a client or a trainer, with no engine in it."""
    frames = [match[1] for text in lines if "File " in text and (match := FRAME.search(text))]
    if any(ENGINE_PATH.search(frame) for frame in frames):
        return any(BENCH.search(text) for text in lines)
    return any(_OTHERS.search(frame) or not _KNOWN_PATH.search(frame) for frame in frames)


def request_failed(lines: Sequence[str]) -> bool:
    """Whether an engine's web server logs a request that it could not answer: it serves."""
    head = next((at for at in reversed(range(len(lines))) if "Exception in ASGI application" in lines[at]), None)
    return head is not None and any("File " in text and ENGINE_PATH.search(text) for text in lines[head:])


def under_way(lines: Sequence[str]) -> bool:
    """Whether there were requests, by vLLM's bar over the prompts of a script, or by one that went wrong."""
    return any(_UNDER_WAY.search(text) for text in lines)


def is_ours(record: LogRecord, lines: Sequence[str], at: int, *, serving: bool, engine: bool) -> bool:
    """Whether an engine's start or life ends by line `at`, read as `record` with its whole message.

    `serving`: an engine serves already. `engine`: the text shows one.
    """
    message, process = record.message, record.process
    above = lines[max(0, at - NEAR) : at]
    inner = process.startswith(("EngineCore", "rank")) or "Worker" in process or bool(_SGLANG_RANK.match(process))
    deadly = DEADLY.search(message) is not None
    if serving:  # requests fail without an engine's end: only what ends its processes counts
        inner = inner or any("hit an exception" in text for text in above)
        return deadly or (inner and record.kind is LineKind.EXCEPTION)
    if _LLAMA_CPP.match(message):
        return True
    if _CLIENT.match(message) or (not inner and not deadly and request_failed(above)):
        return False
    if another_program([*above, *lines[at : at + NEAR // 2]] if engine else lines):
        return inner and not process.startswith("rank")
    if engine or inner:
        return True
    if "response from daemon" in lines[at] or "/docker.sock" in lines[at]:
        return recognise(message) is not None
    if _ANY_PROGRAM.match(message):
        return False
    return _names_an_engine(message) or any(in_form(text) or ENGINE_PATH.search(text) for text in above)
