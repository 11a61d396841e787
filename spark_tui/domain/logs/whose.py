"""Whose words a line is by which a program ends: an engine's own, or another program's in the same text.

Exceptions and errors of many programs reach one log or one paste. A line counts as an engine's where its words, the
frames above it or the lines around it say so; each judge below knows one kind of line and leaves the others alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spark_tui.domain.logs.causes.cause import CauseId, CauseRule
from spark_tui.domain.logs.causes.diagnosis import recognise
from spark_tui.domain.logs.causes.host import GPU_FAULT, NO_PROGRAM
from spark_tui.domain.logs.causes.llama_cpp import ABORT, CRASH, FATAL, OWN
from spark_tui.domain.logs.causes.llama_cpp import NAMED as LLAMA_SAYS
from spark_tui.domain.logs.line import LineKind, LogRecord, parse_line
from spark_tui.domain.text import lazy_pattern

# Exceptions of other programs reach the same log: what is ours names an engine, its settings, its libraries or a GPU.
_OURS: Final = lazy_pattern(
    r"CUDA|cud(?:a|nn)[A-Z_]|NCCL|nccl\w+Error|Value 'sm_|[Gg]loo\b|\bIBV?_|Dist(?:Store|Network|Backend)Error|"
    r"TCPStore|torch\.|ptxas|PTXAS|[Tt]riton|sm_?1\d\d|gpu_memory_utilization|GPU memory|KV cache|max_model_len|"
    r"max_num_\w|tensor.parallel|vllm|vLLM|EngineCore|Engine (?:process|loop)|Worker(?:Proc)? |SGLang|sglang|sigquit|"
    r"SIGQUIT|TRT-LLM|TensorRT|[Ee]xecutor worker|llama|GGML|GGUF|ggml|safetensors|[Ss]afetensorError|nvcc|flashinfer|"
    r"FlashInfer|attention backend|quant_|[Cc][Uu][Tt][Ll][Aa][Ss][Ss]|[Ff]lash[ _]?[Aa]ttention|FlashMLA|DeepGEMM|"
    r"\bFA[234] is|fp8e4nv|N[Vv][Ff][Pp]4|M[Xx][Ff][Pp]4|modelopt|quantization method|running Ray instance|"
    r"connect to GCS|Ray (?:does|placement)|[Ll]o[Rr][Aa] (?:rank|weight)|speculative|headdim|[Hh]ead size|"
    r"weights were not initialized|any model weights|RPC call to|EngineArgs|LlmArgs|LLM\.__init__|lm_head|\.experts\.|"
    r"weight_scale|-data-parallel|[Tt]okenizers?\b|sentencepiece|[Cc]hat template|exceeds dimension size|hf\.co|"
    r"hf-mirror|NVML|compute_1\d\d|gpu-architecture|kernel (?:not )?found|CAS service|transformers[.'][\w']{0,20}|"
    r"error: failed to open|enable-lora|radix cache|mamba[-_]|[Ss]peculative decoding|"
    r"For(?:CausalLM|ConditionalGeneration)\b|KV connector|[Pp]refix caching|[Cc]hunked[- _]prefill|"
    r"[Cc][Uu][Dd][Aa][- ]?[Gg]raph|Tokenizer class|V cache|adaptive_verification|mpirun noticed|mpi4py|"
    r"The cluster was started with|caused pair closure|RepositoryNotFoundError|huggingface|gated repo|sgl_kernel|"
    r"Scheduler (?:hit|or Data)|scheduler died|client socket has|Watchdog caught|by watchdog|GGML_ASSERT|ggml_|"
    r"MPI_ABORT|warmup error|Workspace is locked but|LLM engine|"
    r"different model and/or config|ray\.exceptions|tensorrt_llm|no kernel image|Ray killed|\(raylet\)|"
    r"lib(?:nvrtc|cu\w+)\.so|model requires more system memory|for ModelConfig|for VllmConfig|ParallelConfig|"
    r"SpeculativeConfig|architectures|digest mismatch|pull model manifest|version of Ollama|ROCm error|\bhip[A-Z]\w+|"
    r"nvidia-container-cli|\.ollama/|HF API|Cuda error /|\bibv_|exited with code [1-9]|:11434: bind|"
    r"Failed to infer device type|node running low on memory|Segfault encountered|"
    r"(?:Out of memory: )Killed process \d+ \((?:VLLM|vllm|sglang|trtllm|llama|ollama)|\.cuh? \d{1,5} - |"
    r"directory: '(?:ninja|nvcc)'|for the current GPU\. Min|compute capability|kernel only supports sm|rocBLAS error|"
    r"Shard process was|caught in c10/|Scheduler terminated after|left for only one request"
)
_UNIQUE: Final = frozenset((
    CauseId.NO_KV_ROOM, CauseId.KV_CACHE_TOO_SMALL, CauseId.MAX_MODEL_LEN_TOO_LONG, CauseId.UNKNOWN_ARCHITECTURE,
    CauseId.UNKNOWN_QUANTIZATION, CauseId.GATED_REPO, CauseId.WEIGHTS_CORRUPT, CauseId.TOO_MANY_RANKS,
    CauseId.READY_TIMEOUT, CauseId.QUANTIZATION_MISMATCH, CauseId.BAD_PARSER, CauseId.DRIVER_TOO_OLD,
    CauseId.NO_GPU, CauseId.FREE_MEMORY_BELOW_UTILIZATION,
))  # fmt: skip
"""Causes whose sentences no other program writes."""
_PATHS: Final = lazy_pattern(
    r"""["/ ](?:vllm|sglang|tensorrt_llm|flashinfer|triton|torch|huggingface_hub|transformers|openai_harmony)[/"]"""
)
USAGE: Final = r"error: (?:unrecognized arguments|the following arguments are required|argument -)"
"""How argparse refuses an option: whose program it was, only the command above can say."""
LLAMA_FATAL: Final = lazy_pattern(FATAL)
LLAMA_NAMED: Final = lazy_pattern(LLAMA_SAYS)
LLAMA_CRASH: Final = lazy_pattern(CRASH)
LLAMA_OWN: Final = lazy_pattern(OWN)
SHELL: Final = r"(?:Killed|(?:Aborted|Segmentation fault|Bus error|Illegal instruction)(?: \(core dumped\))?)$"
"""How a shell says by which signal its command ended, where it does not name it."""
_SHELL: Final = lazy_pattern(SHELL)
_NEAR: Final = 12
_DAEMON: Final = lazy_pattern(
    r"Error response from daemon|ERROR: Head \"https|no matching manifest|pull access denied|exec format error|"
    r"unauthorized: authentication|toomanyrequests: |failed to register layer|failed to copy: |error pulling image|"
    r"failed to resolve reference| - manifest unknown: |nvidia-container-cli: |NVIDIA Container Runtime Hook|"
    r"unresolvable CDI devices|could not select device driver|"
    rf"no runtime for \"nvidia\"|{NO_PROGRAM}"
)
_DOCKER: Final = (
    "rror response from daemon",
    "nvidia-container-cli: ",
    "select device driver ",
    'no runtime for "nvidia"',
)
"""Its daemon's words and the container toolkit's, also within those of a launcher."""
DEADLY: Final = lazy_pattern(
    r"CUDA error|EngineDeadError|Watchdog caught|Hang detected on rank|Watchdog timeout \(self|warmup error|"
    r"likely discovered a bug in Ray|GCS may have been killed|SIGQUIT|sigquit|address already in use|Worker proc|"
    r"hit an exception|encountered a fatal error|Engine (?:loop has|process \(pid \d+\)) died|"
    r"ggml\S{0,100}:\d+: |GGML_ASSERT\("
    rf"|^(?:{ABORT}|rocBLAS error: )"
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
_BUILD: Final = lazy_pattern(
    r"The command '/bin/sh -c|docker (?:build|buildx)\b|Failed building wheel|subprocess-exited-with-error|"
    r"failed to solve|Building wheel|CMake Error|^g?make(?:\[\d\])?: \*\*\*|^compilation terminated|"
    r"errors? detected in the compilation|^Collecting \S|Requirement already satisfied|Getting requirements to build|"
    r"dependency resolver|metadata-generation-failed|^#\d{1,3} \d{1,5}\.\d|"
    r"(?:^|[\s\"])(?:llamafactory-cli|swift (?:sft|pt|rlhf)|axolotl (?:train|preprocess)|accelerate launch) |"
    r"^\$ (?:hf|huggingface-cli|pip3?|uv|apt|git|conda|curl|cmake|make) |^Cell In\[|^-{2,4}> +\d+ "
)
_REFUSAL: Final = lazy_pattern(
    r"[Ii]nvalid argument: -|(?:[Ee]rror: )?(?:unknown (?:argument|option|flag)|flag provided)|error: invalid value '"
)
"""How programs in C++, Rust and Go refuse an option."""
_LLAMA_REFUSAL: Final = lazy_pattern(r"error: (?:invalid|unknown) argument: -")
_GGML: Final = lazy_pattern(
    r"(?:ggml|llama|gguf|common)_\w+: |load_backend: |  Device \d+: |.{0,60}text_generation_launcher: "
)
_DEVICES: Final = lazy_pattern(
    r"ggml_\w{0,30}(?:_init|_device_init|devices)\w{0,12}: (?!picking|loaded|compiled)|load_backend: |  Device \d+: |"
    r"ggml_vulkan: |.{0,60}text_generation_launcher: "
)
"""What llama.cpp writes before it reads its options: devices and backends."""
_CONFIG: Final = lazy_pattern(
    r"validation errors? for \w{0,40}(?:(?:Model|Vllm|Parallel|Speculative|Cache|Scheduler|Load|LoRA|KVTransfer|"
    r"Compilation|MultiModal)Config|EngineArgs|LlmArgs|ServerArgs)\b"
)
_TYPED: Final = lazy_pattern(
    r"(?:value|type|key|runtime|import|os|assertion|notimplemented|modulenotfound|filenotfound)error: "
)
"""Typed from a screen."""
_CLIENT: Final = lazy_pattern(
    r"ConnectionError: Failed to connect to Ollama|Error: could not connect to |"
    r"(?:openai|litellm|anthropic|ollama|aiohttp|tenacity|gradio|streamlit|instructor|langchain\w*)\.|"
    r"Packages?NotFoundError"
)
"""Exceptions of those who ask an engine, and of package managers."""
COMMAND: Final = lazy_pattern(
    r"(?:^|[\s/])(?:vllm serve|sglang serve|trtllm-serve|llama-server|python[\d.]{0,5} -m (?:sglang\.launch_server|"
    r"vllm\.entrypoints))(?: .{0,200}--|.{0,200}\\$)"
)
"""How a person starts an engine."""
NAMED: Final = lazy_pattern(r"\b(?:vLLM|SGLang|TensorRT-LLM|TRT-LLM)\b")
"""How people write of engines."""
_SCRIPT: Final = lazy_pattern(
    r"[$# ]{0,4}python[\d.]{0,5} +(?!\S{0,200}(?:vllm|sglang|trtllm|llama|api_server|launch_server|serve|"
    r"convert_checkpoint|build\.py +--))[\w./\-]{1,200}\.py\b|"
    r"[$# ]{0,4}(?:[A-Z]\w{0,60}=(?:\"[^\"]{0,200}\"|'[^']{0,200}'|\S{0,200}) +){0,12}(?:llamafactory-cli (?:train|"
    r"export|webui)|accelerate launch|deepspeed |axolotl |streamlit run|jupyter|swift (?:sft|pt|rlhf|export)|"
    r"torchrun (?!.{0,200}(?:vllm|sglang|trtllm|serve)).{0,200}\.py\b)"
)
"""A command of a script's or a trainer's."""
_BACKTRACE: Final = lazy_pattern(
    r"\b(?:tensorrt_llm|vllm|sgl|ggml|llama|c10|at|torch|nccl)(?:::|_\w)|libtorch|libtriton"
)
_TRITON_MODEL: Final = lazy_pattern(
    r"tensorrt_?llm|TensorRT-LLM|TRT-LLM|vllm|triton(?:server)?[\-_]models|tritonserver/"
)
"""A Triton server that serves a language model: it serves many other things."""
_WORDS: Final = lazy_pattern(
    r"\b(?:KV|MoE|MLA|MTP|TP|EP|LoRA|[FfBb][Pp][48]|nvfp4|W\dA\d+|EAGLE\d?|DFLASH|GGUF)\b|[Mm]amba|[Pp]refill|[Dd]raft|"
    r"[Qq]uanti[sz]|[Aa]ttention|\b[Ee]xperts?\b|\bweights?\b|[Cc]heckpoint|hidden[_ ]size|head_?(?:dim|size)|"
    r"num_\w{0,20}heads|\b(?:tp|dp|pp|ep|page|block)_size|[Cc][Uu][Dd][Aa][_ ][Gg]raph|"
    r"max_\w{0,20}(?:tokens|len|seqs|requests|bs)\b|--[a-z]{2,20}(?:-[a-z]{1,20}){1,6}|[Tt]okenizer|"
    r"[Cc]ontext[_ ]length|mem_fraction|\btensors?\b|[Bb]ackend|architecture|Config\b"
)
"""Words of engines; they count where their own lines stand above."""
TRT: Final = ("TensorRT-LLM", "TRT-LLM", "TRT")
"""TensorRT-LLM's loggers: C++, Python, and TensorRT's own."""
_TRT_ENDS: Final = lazy_pattern(
    r"Failed to initialize executor|Executor worker |Engine building failed|Hang detected on rank|"
    r"Failed to parse the arguments for the LLM|(?:tensorrt_llm::\S{0,60}TllmException: .{0,40})?Assertion failed: "
)
_SGLANG_RANK: Final = lazy_pattern(SGLANG_RANK)
_MPI: Final = lazy_pattern(
    r"There are not enough slots available|(?:An? )?(?:ORTE|PRTE) (?:has lost|daemon has)|"
    r"(?:Primary|Child) job +(?:\d+ )?terminated normally, but"
)
"""How Open MPI ends the ranks of TensorRT-LLM, and of many other programs."""
_UNDER_WAY: Final = lazy_pattern(r"^Processed prompts: +\d|\(\w+ pid=\d.{1,200}failed for request ")
_TOOL: Final = lazy_pattern(
    r"(?:cp|mv|ln|rm|tar|rsync|dd|scp|git|ld|gcc|cc1plus|make|curl|wget|npm|apt(?:-get)?|sed|panic): |"
    r"thread '"
)
"""Other programs of a shell, by the name before their errors."""
_OPTION: Final = lazy_pattern(r"(?<![\w\-])--?[a-zA-Z][\w\-]*")


def in_form(text: str) -> bool:
    return _SPEAKS.search(text, 0, 600) is not None


def known_sure(message: str) -> bool:
    known = recognise(message)
    return known is not None and known[0].sure and not known[0].vague


def another_program(lines: Sequence[str]) -> bool:
    """Whether frames show that what failed is a script, a client or a trainer, with no engine in it."""
    frames = [match[1] for text in lines if "File " in text and (match := FRAME.search(text))]
    if any(ENGINE_PATH.search(frame) for frame in frames):
        return any(BENCH.search(text) for text in lines)
    if any(_OTHERS.search(frame) or not _KNOWN_PATH.search(frame) for frame in frames):
        return True
    return any(_BUILD.search(text, 0, 400) or _SCRIPT.match(text) for text in lines)


def request_failed(lines: Sequence[str]) -> bool:
    """Whether an engine's web server logs a request that it could not answer: it serves."""
    head = next((at for at in reversed(range(len(lines))) if "Exception in ASGI application" in lines[at]), None)
    return head is not None and any("File " in text and ENGINE_PATH.search(text) for text in lines[head:])


def under_way(lines: Sequence[str]) -> bool:
    """Whether there were requests, by vLLM's bar over the prompts of a script, or by one that went wrong."""
    return any(_UNDER_WAY.search(text) for text in lines)


def _was_given(message: str, lines: Sequence[str]) -> bool:
    """Whether the refused options stand in the command above; of one that is missing none does."""
    named = _OPTION.findall(message)
    return not named or any(option in text for option in named for text in lines)


class Ending(NamedTuple):
    """A line that may end a program: its record with the whole message, and its place in the text.

    `serving`: an engine serves already. `docker`: no engine's line is in the text. `ollama`: one of Ollama's is.
    """

    record: LogRecord
    lines: Sequence[str]
    at: int
    serving: bool = False
    docker: bool = False
    ollama: bool = False

    @property
    def message(self) -> str:
        return self.record.message

    @property
    def own(self) -> str:
        """The message of this line alone."""
        return parse_line(self.lines[self.at]).message.strip()

    @property
    def known(self) -> CauseRule | None:
        """The rule that knows the message."""
        found = recognise(self.message)
        return None if found is None else found[0]

    @property
    def inner(self) -> bool:
        """One of an engine's inner processes wrote it."""
        process = self.record.process
        return process.startswith(("EngineCore", "rank")) or "Worker" in process or bool(_SGLANG_RANK.match(process))

    def above(self, count: int) -> Sequence[str]:
        return self.lines[max(0, self.at - count) : self.at]

    def around(self, above: int, below: int) -> Sequence[str]:
        return self.lines[max(0, self.at - above) : self.at + below]


def is_ours(end: Ending) -> bool:
    """Whether an engine's start or life ends by that line. The first judge that has an opinion decides."""
    return next((verdict for judge in _JUDGES if (verdict := judge(end)) is not None), False)


def _by_docker(end: Ending) -> bool | None:
    if not _DAEMON.search(end.message):
        return None
    its_own = any(words in end.message for words in _DOCKER) or end.message.startswith("invoking ")
    alone = end.docker or (its_own and not any(map(in_form, end.lines)))
    return alone and end.known is not None


def _by_a_native_crash(end: Ending) -> bool | None:
    """One of several lines by which a system says that a program crashed, right below llama.cpp's own."""
    if not LLAMA_CRASH.match(end.message):
        return None
    near = [parse_line(text).message for text in end.around(_NEAR, 4)]
    return (sum(map(bool, map(LLAMA_CRASH.match, near))) > 1 and any(map(LLAMA_OWN.match, near))) or None


def _by_the_shell(end: Ending) -> bool | None:
    """Right below an engine's own lines, and above none: it is the command of this terminal that ended."""
    if not _SHELL.match(end.own):
        return None
    return (any(map(in_form, end.above(_NEAR))) and not any(map(in_form, end.lines[end.at + 1 :]))) or None


def _while_serving(end: Ending) -> bool | None:
    """Requests fail without an engine's end; only what ends its processes counts."""
    if not end.serving:
        return None
    if end.message.startswith("Error: "):
        return False
    inner = end.inner or any("hit an exception" in text for text in end.above(80))
    return DEADLY.search(end.message) is not None or (inner and end.record.kind is LineKind.EXCEPTION)


def _by_llama_cpp(end: Ending) -> bool | None:
    """Its own sentences; options that it refuses before anything is loaded; what Ollama's command line prints."""
    message, above = end.message, end.above(8)
    named = LLAMA_NAMED.match(message)
    if LLAMA_FATAL.match(message) or (named and end.ollama and message.startswith("Error: ")):
        return True
    said = (
        (end.ollama and message.startswith("Error: ") and "EADDRINUSE" not in message)
        or _TYPED.match(message)
        or message.startswith(("error: invalid arg", "error: invalid parameter for argument: -"))
    )
    if message.startswith("Error: unknown "):  # every program in Go says so of its options
        said = said and _was_given(message, above)
    loads = any(_GGML.match(text) and not _DEVICES.match(text) for text in above)
    own = _LLAMA_REFUSAL.match(message) or any("text_generation_launcher" in text for text in above)
    refuses = _REFUSAL.match(message) and not loads and (own or _was_given(message, end.above(_NEAR)))
    refused = (named or refuses) and any(_GGML.match(text) for text in above)
    if ((said and not end.docker) or refused or "Failed to start model server: " in message) and known_sure(message):
        return True
    return False if named and message.startswith("error: ") else None


def _by_a_client(end: Ending) -> bool | None:
    return False if _CLIENT.match(end.message) else None


def _by_tensorrt_llm(end: Ending) -> bool | None:
    """Its loggers, and Open MPI around its ranks."""
    if end.record.source in TRT:
        return known_sure(end.message) or _TRT_ENDS.match(end.message) is not None
    if _MPI.match(end.message):
        return any("TRT-LLM" in text or "trtllm" in text for text in end.lines)
    return None


def _by_the_machine(end: Ending) -> bool | None:
    """A fault of the GPU, or a signal with its backtrace."""
    if re.match(GPU_FAULT, end.message):
        return any(map(in_form, end.above(80)))
    if "Caught signal" in end.message:
        return any(_BACKTRACE.search(text) for text in end.around(0, 40))
    return None


def _in_a_request(end: Ending) -> bool | None:
    failed = not end.inner and request_failed(end.above(80)) and not DEADLY.search(end.message)
    return False if failed else None


def _by_a_launcher(end: Ending) -> bool | None:
    """Ray's agent of a node; the Triton server."""
    record = end.record
    if record.process == "raylet" and end.known is not None:
        return True
    if end.message.startswith("Unhandled exception: "):  # Ray's
        return None
    server = end.message.startswith("error: creating server: ")  # Triton's alone
    if (not record.process and ".cc:" in record.source) or server:
        return (server and end.docker) or any(_TRITON_MODEL.search(text, 0, 600) for text in end.lines)
    return None


def _by_a_setting(end: Ending) -> bool | None:
    """pydantic's sentence below the name of an engine's configuration."""
    if end.message.startswith("Value error, ") and any(_CONFIG.search(text) for text in end.above(3)):
        return end.known is not None and end.known.sure
    return None


def _by_another_program(end: Ending) -> bool | None:
    if another_program(end.lines if end.docker else end.around(80, 40)):
        return end.inner and not end.record.process.startswith("rank")
    return None


def _by_the_command(end: Ending) -> bool | None:
    """A person's command that starts an engine, without a line of the engine's own around."""
    near = end.above(80)
    if end.message.startswith("Fatal Python error") and any(ENGINE_PATH.search(text) for text in end.around(0, 60)):
        return True
    named = any(COMMAND.search(text, 0, 400) or NAMED.search(text, 0, 400) for text in near)
    alone = named and not any(map(in_form, near)) and not any(map(in_form, end.lines[end.at + 1 : end.at + 40]))
    if re.match(USAGE, end.message) or _REFUSAL.match(end.message):
        return alone and _was_given(end.message, near)
    if any("hit an exception" in text for text in near) or (alone and not _TOOL.match(end.message)):
        return True
    return True if end.message.startswith("Error: ") and any("sage: trtllm-serve" in text for text in near) else None


def _by_its_words(end: Ending) -> bool | None:
    whole = end.message[: len(end.own)] if end.own[-1:].isalnum() else end.message
    if end.inner or end.record.process.startswith(("APIServer", "ApiServer")) or _OURS.search(whole, 0, 1_500):
        return True
    if end.known is not None and end.known.sure and end.known.id in _UNIQUE:
        return True
    raised = end.record.kind is LineKind.EXCEPTION and _WORDS.search(end.own, 0, 600)
    return True if raised and any(map(in_form, end.above(80))) else None


def _by_its_frames(end: Ending) -> bool | None:
    """The traceback right above it goes through an engine or its libraries."""
    for above in reversed(end.above(60)):
        if "File " in above and _PATHS.search(above):
            return True
        if not above.strip(" ^~"):  # where in the line: a forum takes its indent
            continue
        if parse_line(above).kind not in _WITHIN_TRACEBACK:
            return False
    return False


_WITHIN_TRACEBACK: Final = (LineKind.TRACEBACK, LineKind.CONTINUATION, LineKind.BLANK, LineKind.EXCEPTION)
_JUDGES: Final[tuple[Callable[[Ending], bool | None], ...]] = (
    _by_docker, _by_a_native_crash, _by_the_shell, _while_serving, _by_llama_cpp,
    _by_a_client, _by_tensorrt_llm, _by_the_machine, _in_a_request, _by_a_launcher, _by_a_setting, _by_another_program,
    _by_the_command, _by_its_words, _by_its_frames,
)  # fmt: skip
