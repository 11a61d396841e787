"""Which phase of a start a failure ended: by the log's own lines, by frames, or by what such a failure usually ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.causes.host import NO_PROGRAM
from spark_tui.observe.explain.model.tail import DETAIL
from spark_tui.observe.explain.model.timeline import PhaseId, StartFailure


def _frames(functions: str, *others: str) -> re.Pattern[str]:
    """A frame in one of the functions (names, or patterns of names, with blanks between), or what `others` match."""
    return lazy_pattern("|".join((rf", in (?:{'|'.join(functions.split())})\b", *others)))


# The step that failed, by its frame: for a log that does not begin at the start, or has too few lines in between. Names
# of functions in vLLM, SGLang, TensorRT-LLM, PyTorch and transformers; a C++ one stands with its class.
_STEPS: Final = (
    (
        PhaseId.CAPTURE,
        _frames(
            r"capture_model capture capture_one_\w+ graph_capture compile_or_warm_up_model _?dummy_sampler_run "
            r"init_(?:device|cuda)_graphs _?capture_\w{0,20}cuda_?graphs _run_cuda_graph_warmup _warmup_and_capture",
            r"cuda_graph_runner\.py",
        ),
    ),
    (PhaseId.AUTOTUNE, _frames(r"\w*autotun\w* kernel_warmup flashinfer_autotune", r"/autotuner\.py")),
    (  # the compiled model is called through wrappers of the compiler, also when it serves
        PhaseId.COMPILE,
        _frames(
            "_run_torch_compile_warmup",
            r"/(?:torch/_(?:inductor|dynamo)|vllm/compilation)/(?![^\"]{1,80}\", line \d{1,6}, in (?:__call__|forward|"
            r"_fn|compile_wrapper|run|call|wrapper)\b)",
        ),
    ),
    (
        PhaseId.KV_CACHE,
        _frames(
            r"get_kv_cache_\w+ determine_(?:num_)?available_\w+ _?initialize_kv_caches? profile_run "
            r"profile_num_available_blocks profile_max_num_token initialize_from_config initialize_cache "
            r"_?allocate_(?:gpu_|kv_)?cache\w* init_memory_pool configure_kv_cache_capacity _create_kv_cache\w*",
            r"llama_(?:new_context_with_model|init_from_model|context|kv_cache\w{0,20}): ",
            "KVCacheManager::(?:KVCacheManager|allocatePools)",
        ),
    ),
    (
        PhaseId.WEIGHTS,
        _frames(
            "_?load_model load_weights _load_module create_weights process_weights_after_loading weight_loader",
            r"llama_model_load: error|clip_(?:init|model_load\w*): ",
        ),
    ),
    (
        PhaseId.ENGINE_INIT,
        _frames(
            r"init_device init_torch_distributed init_worker\w* select_\w{1,40}_backend _init_executor wait_for_ready "
            r"_init_workers\w* _?init_process_group _\w{2,8}_rendezvous_handler get_attn_backend\w* create_executor "
            "init_distributed_environment initialize_model_parallel create_py_executor _setup_engine",
            r"\bengine_core = EngineCore\w*\(",
            "tensorrt_llm::(?:batch_manager::TrtGptModelFactory|executor::Executor::Impl::(?:loadModel|createModel|"
            "initialize))",
        ),
    ),
    (
        PhaseId.CONFIG,
        _frames(
            "create_engine_config create_model_config get_config from_server_args prepare_server_args parse_args "
            r"maybe_override_with_speculators __post_init__ get_tokenizer load_hf_\w+ get_model_config",
            r"/(?:tokenizer_manager|server_args|arg_utils|model_config|llm_args)\.py\", line \d+, in __init__",
            r"/transformers/(?:models/auto/)?(?:configuration|tokenization)_\w+\.py",
        ),
    ),
    (
        PhaseId.SERVER,
        _frames(
            r"run_busy_loop _?process_engine_step output_handler update_from_output event_loop_\w+ run_event_loop "
            r"run_batch get_next_batch_to_run step_with_batch_queue process_batch_result\w* merge_batch filter_batch "
            "alloc_decode prepare_for_(?:decode|extend) engine_step run_engine_loop run_heartbeat_loop exposed_step "
            r"forward_batch_\w*generation _draft_extend_for_\w+ _wait_and_warmup _execute_server_warmup "
            r"create_(?:chat_)?completion chat_completion_\w+_generator _handle_response _executor_loop\w* handle_loop "
            r"_forward_step forward_thread_func\w{0,2} print_exception_wrapper watchdog_thread",
            r"\b(?:scheduler\.event_loop_\w+|engine_core\.run_busy_loop)\(\)",
            r"tensorrt_llm::batch_manager::\w+::(?:forward\w*|updateRequests|decoderSync|rewindKVCache\w+)",
            "(?:server_context|server_context_impl)::update_slots",
        ),
    ),
)

_DUMPED: Final = lazy_pattern(r"(\", line \d{1,6}) in (?=\w)")
"""A frame as Python's faulthandler writes it."""
_STEP_SIGNS: Final = (
    "model_load", "clip_", "llama_new_context", "llama_init_from", "llama_context", "llama_kv_cache", "tensorrt_llm::",
    "KVCacheManager::", "engine_core", "scheduler.event_loop", "::update_slots",
)  # fmt: skip
_ORDER: Final = list(PhaseId)


def step_of(lines: Sequence[str]) -> PhaseId | None:
    """What the engine was doing, by the innermost frame that shows it."""
    frames = (
        _DUMPED.sub(r"\1, in ", text, 1)
        for text in reversed(lines)
        if " in " in text or any(sign in text for sign in _STEP_SIGNS)
    )
    return next((phase for text in frames for phase, frame in _STEPS if frame.search(text)), None)


_USUAL: Final = {
    CauseId.BAD_ARGUMENT: PhaseId.CONFIG,
    CauseId.BAD_PARSER: PhaseId.CONFIG,
    CauseId.MAX_MODEL_LEN_TOO_LONG: PhaseId.CONFIG,
    CauseId.UNKNOWN_ARCHITECTURE: PhaseId.CONFIG,
    CauseId.REPO_NOT_FOUND: PhaseId.CONFIG,
    CauseId.GATED_REPO: PhaseId.DOWNLOAD,
    CauseId.HUB_OFFLINE: PhaseId.DOWNLOAD,
    CauseId.QUANTIZATION_MISMATCH: PhaseId.WEIGHTS,
    CauseId.WEIGHTS_CORRUPT: PhaseId.WEIGHTS,
    CauseId.WEIGHTS_MISSING: PhaseId.WEIGHTS,
    CauseId.NO_KV_ROOM: PhaseId.KV_CACHE,
    CauseId.KV_CACHE_TOO_SMALL: PhaseId.KV_CACHE,
    CauseId.PORT_IN_USE: PhaseId.SERVER,
    CauseId.NCCL: PhaseId.ENGINE_INIT,
    CauseId.FREE_MEMORY_BELOW_UTILIZATION: PhaseId.ENGINE_INIT,
    CauseId.DRIVER_TOO_OLD: PhaseId.ENGINE_INIT,
    CauseId.MEMORY_CHANGED_WHILE_PROFILING: PhaseId.KV_CACHE,
    CauseId.TOO_MANY_RANKS: PhaseId.CONFIG,
    CauseId.UNSUPPORTED_MODEL_FEATURE: PhaseId.ENGINE_INIT,
    CauseId.UNKNOWN_QUANTIZATION: PhaseId.CONFIG,
    CauseId.MISSING_MODULE: PhaseId.CONFIG,
}
"""When a cause shows, for a text that shows no step."""


_FETCHED: Final = lazy_pattern(
    r"(?:get_hf_plan|get_repo_\w{1,20}|curl_perform_with_retry|common_(?:download|pull)\w{0,40}): |digest mismatch|"
    r"pull model manifest|/blobs/\S{1,120}(?:partial|incomplete)|\.incomplete\b|-partial\b"
)


_SERVED: Final = lazy_pattern(
    r'AsyncLLM output_handler failed|"POST /v1/\S{1,60} HTTP/1\.1" 500 |INFO: +Waiting for application shutdown'
)
"""Below a failure: its web server was up."""
_SAID: Final = (
    (PhaseId.CONTAINER, lazy_pattern(rf"{NO_PROGRAM}|nvidia-container-cli: |Error response from daemon")),
    (PhaseId.CAPTURE, lazy_pattern(r"stream is capturing|StreamCapture|[Cc]apture (?:cuda|CUDA) graph")),
    (
        PhaseId.SERVER,
        lazy_pattern(
            r"Watchdog timeout|Workspace is locked but|mutable object|object_manager_->|RayChannel\w*Error|"
            r"EngineDeadError"
        ),
    ),
    (PhaseId.CONFIG, DETAIL),
)
"""Sentences that only one step says."""


def _usual_phase(line: str) -> PhaseId | None:
    if said := next((phase for phase, words in _SAID if words.search(line)), None):
        return said
    known = recognise(line)
    if known is not None and _FETCHED.search(line):
        return PhaseId.DOWNLOAD
    usual = _USUAL.get(known[0].id) if known is not None else None
    return usual or (PhaseId.ENGINE_INIT if "creating modelInstanceState" in line else None)


def failed_in(
    chosen: StartFailure, line: str, before: Sequence[str], after: Sequence[str], *, serving: bool, starting: bool
) -> PhaseId | None:
    """The phase that `line` ended: the log's own, a later one that frames show, or the one it usually ends.

    `before` and `after` are the lines around. `serving`: the server was up. `starting`: the engine core says that it
    failed to start.
    """
    phase = chosen.phase
    if phase is None and serving:
        return PhaseId.SERVER
    step = step_of(before) or step_of(after)
    if phase in (None, PhaseId.CONTAINER):
        if any(_SERVED.search(text) for text in after):
            return PhaseId.SERVER
        usual = _usual_phase(line) or _usual_phase(chosen.line)
        phase = usual if usual is PhaseId.DOWNLOAD else step or usual or (PhaseId.ENGINE_INIT if starting else phase)
    elif phase is PhaseId.ENGINE_READY and "KV cache" in chosen.line:  # sized, not yet made
        phase = PhaseId.KV_CACHE
    elif phase is PhaseId.CONFIG:  # lines of a pasted text may be left out, frames seldom are
        phase = step or phase
    elif step is not None and (  # no line announces it; one compiles to measure what is left for the cache
        _ORDER.index(step) > _ORDER.index(phase) or (step, phase) == (PhaseId.COMPILE, PhaseId.KV_CACHE)
    ):
        phase = step
    # what was to be loaded was not there
    return PhaseId.DOWNLOAD if phase is PhaseId.WEIGHTS and _FETCHED.search(line) else phase
