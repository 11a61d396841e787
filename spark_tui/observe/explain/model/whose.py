"""Whose words a line is by which a text ends: an engine's, unless one of four judges says otherwise.

An error of one request, of a client, while it serves, or below another program's frames ends no engine. A text that
shows no engine counts only where the line itself names one, or where Docker says why it started none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.causes.host import NO_PROGRAM
from spark_tui.observe.explain.model.causes.llama_cpp import ABORT, FATAL
from spark_tui.observe.explain.model.line import LineKind, LogRecord

_OURS: Final = lazy_pattern(
    r"CUDA|cud(?:a|nn)[A-Z_]|NCCL|nccl\w+Error|Value 'sm_|[Gg]loo\b|\bIBV?_|Dist(?:Store|Network|Backend)Error|"
    r"TCPStore|torch\.|ptxas|PTXAS|[Tt]riton|sm_?1\d\d|gpu_memory_utilization|GPU memory|KV cache|max_model_len|"
    r"max_num_\w|[Tt]ensor.parallel|vllm|vLLM|EngineCore|Engine (?:process|loop)|Worker(?:Proc)? |SGLang|"
    r"sglang|sigquit|"
    r"SIGQUIT|TRT-LLM|TensorRT|[Ee]xecutor worker|llama|GGML|GGUF|ggml|safetensors|[Ss]afetensorError|nvcc|flashinfer|"
    r"FlashInfer|attention backend|quant_|[Cc][Uu][Tt][Ll][Aa][Ss][Ss]|[Ff]lash[ _]?[Aa]ttention|FlashMLA|DeepGEMM|"
    r"N[Vv][Ff][Pp]4|M[Xx][Ff][Pp]4|modelopt|quantization method|"
    r"[Ll]o[Rr][Aa] (?:rank|weight)|speculative|[Hh]ead size|"
    r"weights were not initialized|any model weights|RPC call to|EngineArgs|LlmArgs|lm_head|\.experts\.|"
    r"weight_scale|-data-parallel|[Tt]okenizers?\b|sentencepiece|[Cc]hat template|hf\.co|"
    r"hf-mirror|NVML|compute_1\d\d|gpu-architecture|transformers[.'][\w']{0,20}|"
    r"enable-lora|radix cache|mamba[-_]|[Ss]peculative decoding|"
    r"For(?:CausalLM|ConditionalGeneration)\b|KV connector|[Pp]refix caching|[Cc]hunked[- _]prefill|"
    r"[Cc][Uu][Dd][Aa][- ]?[Gg]raph|Tokenizer class|V cache|adaptive_verification|mpirun noticed|mpi4py|"
    r"The cluster was started with|RepositoryNotFoundError|huggingface|gated repo|sgl_kernel|"
    r"Scheduler (?:hit|or Data)|scheduler died|client socket has|Watchdog caught|by watchdog|GGML_ASSERT|ggml_|"
    r"MPI_ABORT|warmup error|Workspace is locked but|LLM engine|"
    r"ray\.exceptions|tensorrt_llm|no kernel image|Ray killed|\(raylet\)|"
    r"lib(?:nvrtc|cu\w+)\.so|model requires more system memory|for ModelConfig|for VllmConfig|ParallelConfig|"
    r"SpeculativeConfig|architectures|digest mismatch|pull model manifest|version of Ollama|ROCm error|\bhip[A-Z]\w+|"
    r"nvidia-container-cli|\.ollama/|Cuda error /|\bibv_|exited with code [1-9]|:11434: bind|"
    r"Failed to infer device type|Segfault encountered|"
    r"(?:Out of memory: )Killed process \d+ \((?:VLLM|vllm|sglang|trtllm|llama|ollama)|\.cuh? \d{1,5} - |"
    r"directory: '(?:ninja|nvcc)'|compute capability|kernel only supports sm|rocBLAS error|"
    r"Shard process was|caught in c10/|Scheduler terminated after|left for only one request|"
    r"Watchdog timeout \(self|killed due to memory pressure|error: creating server: |remote server shutdown or crash"
)
"""Words of engines, their settings and libraries, for a text without a line of theirs."""
_DAEMON: Final = lazy_pattern(
    r"Error response from daemon|ERROR: Head \"https|no matching manifest|pull access denied|exec format error|"
    r"unauthorized: authentication|toomanyrequests: |failed to register layer|failed to copy: |"
    r"failed to resolve reference| - manifest unknown: |nvidia-container-cli: |NVIDIA Container Runtime Hook|"
    r"unresolvable CDI devices|could not select device driver|"
    rf"no runtime for \"nvidia\"|{NO_PROGRAM}"
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
_ANY_PROGRAM: Final = lazy_pattern(r"error: (?!creating server)")
"""How any program refuses its option or its file."""
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
    if _DAEMON.search(lines[at]):  # its own words, not those of the line below it
        return recognise(message) is not None
    if _ANY_PROGRAM.match(message):
        return False
    return bool(_OURS.search(message, 0, 1_500)) or any(in_form(text) or ENGINE_PATH.search(text) for text in above)
