"""Why a start failed: the steps of a traceback, and the line that decides."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.causes.host import NO_PROGRAM, SAYS_WHY, SIGNS
from spark_tui.observe.explain.model.causes.memory import OUT_OF_MEMORY
from spark_tui.observe.explain.model.line import LineKind, LogRecord, exception_name, parse_line, shown
from spark_tui.observe.explain.model.rules.rule import Broken
from spark_tui.observe.explain.model.timeline import PhaseId, StartFailure
from spark_tui.observe.explain.model.whose import (
    BENCH,
    CONSEQUENCES,
    DETAIL,
    FRAME,
    INTERRUPTED,
    PYDANTIC_TAIL,
    WORKER_FAILED,
    interrupted,
    known_sure,
    last_failure,
)


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


# --- failure ---------------------------------------------------------------------------------------------


MAX_KEPT = 4_000
KEPT_BEFORE, KEPT_AFTER = 300, 12
"""Raw lines kept for the context: a CUDA traceback has about a hundred frames, a Hub error five more lines."""


class _Weight(IntEnum):
    """How well a line decides; a heavier one replaces a lighter one."""

    CONSEQUENCE = 5
    STRAY_EXCEPTION = 10
    ENGINE_GONE = 30
    API_SERVER = 40
    NATIVE = 45
    FATAL_ERROR = 50
    PROCESS_DIED = 60
    WORKER_AT_RUN_TIME = 65
    START_FAILED = 80
    USAGE = 90


# Lines by which llama.cpp ends; what other programs say so too ends nothing until the process has ended.
_OWN_END = lazy_pattern(
    r"main: |srv |start: |load_model: |llama_model_load: |common_init_from_params: |error while handling"
)
_OWN_PROGRAMS = ("vllm", "api_server.py", "sglang", "launch_server.py", "trtllm-serve", "trtllm-build", "llama-server")


# The outermost frame of an engine's own program: vLLM, SGLang, TensorRT-LLM, as a script or as a module.
_MAIN = lazy_pattern(r", in <module>.*$")
_PROGRAMS = ("/vllm", "api_server", "sglang", "launch_server", "trtllm-serve", "tensorrt_llm")


class FailureReader:
    """Reads exceptions and the lines around them; `failure` is the best answer so far.

    Its feeder appends each line to `recent`, hands over the next `room` lines with `below`, and sets `phase`.
    """

    def __init__(self) -> None:
        self.hopeless = False
        """The start is over, also where the reason is only a guess."""
        self.phase: PhaseId | None = None
        """The running phase."""
        self.asked: dict[str, str] = {}
        """The engine's settings, as its log gives them."""
        self.recent: deque[str] = deque(maxlen=KEPT_BEFORE)
        """The last lines as they came, at most MAX_KEPT characters of each."""
        self.room = 0
        """How many of the next lines `below` takes."""
        self._serving = False
        self._chosen: StartFailure | None = None
        self._complete: StartFailure | None = None
        self._weight = 0
        self._worker: LogRecord | None = None
        self._worker_proven = False
        self._stray: LogRecord | None = None
        self._block: Broken | None = None
        self._main_traceback = False
        self._wants_detail = False
        self._before: tuple[str, ...] = ()
        self._after: list[str] = []

    @property
    def failure(self) -> StartFailure | None:
        """The deciding line, with the few around it that help."""
        if self._chosen is not None and self._complete is None:
            line, above = traced(self._chosen.line, self._before)
            lines = deciding_lines(line, above, self._after if above is self._before else ())
            line = better_line(line, lines, above, self._after)
            ended = self._chosen.line if line != self._chosen.line and above is self._before else ""
            chosen = replace(self._chosen, line=line, ended=ended)
            self._complete = replace(
                chosen,
                lines=lines,
                phase=failed_in(
                    self._chosen,
                    line,
                    self._before,
                    self._after,
                    serving=self._serving,
                    starting=self._block is Broken.START_FAILED,
                ),
                asked=tuple(sorted(self.asked.items())),
                module=module_of(above, self._chosen.process),
                frames=frames_of(above, self._chosen.process),
            )
        return self._complete

    @property
    def decided(self) -> bool:
        """There is a failure; the log may not prove it."""
        return self._chosen is not None

    @property
    def certain(self) -> bool:
        """There is a failure, and the log proves it."""
        return self._chosen is not None and not self._chosen.guess

    @property
    def ending(self) -> bool:
        """The traceback by which the engine's main process ends is being read."""
        return self._main_traceback

    def below(self, text: str) -> None:
        """One of the few lines below the deciding one. pydantic names a field on the first, and its error on the
        next."""
        self.room -= 1
        self._after.append(text[:MAX_KEPT])
        self._complete = None
        if len(self._after) == 1 and self._chosen is not None and self._chosen.line.endswith(":"):
            rest = parse_line(text)
            if rest.message.strip() and rest.kind not in (LineKind.TRACEBACK, LineKind.EXCEPTION):
                self._chosen = replace(self._chosen, line=shown(f"{self._chosen.line} {rest.message.strip()}"))
        if self._wants_detail and len(self._after) == 2:
            field, error = (parse_line(line).message for line in self._after)
            if re.fullmatch(r"[\w.]{1,80}", field) and error.startswith("  "):
                self._replace_line(f"{field}: {error.strip()}")

    def _replace_line(self, line: str) -> None:
        self._wants_detail = False
        if self._chosen is not None:
            line = shown(PYDANTIC_TAIL.sub("", line))
            self._chosen, self._complete = replace(self._chosen, line=line), None

    # --- lines that decide ----------------------------------------------------------------------------

    def read(self, sign: Broken, record: LogRecord) -> None:
        worker = self._worker
        match sign:
            case Broken.EXCEPTION:
                self._exception(record)
            case Broken.TRACEBACK:
                if not (_is_core(record.process) or _is_worker(record.process)):
                    self._main_traceback = False
            case Broken.FRAME:  # of the engine's own script: its main process is ending
                if _MAIN.search(record.message) and any(program in record.message for program in _PROGRAMS):
                    self._main_traceback = True
            case Broken.DETAIL:  # `  Value error, ...` below pydantic's ValidationError
                message = record.message.lstrip()
                if self._wants_detail and DETAIL.match(message):
                    self._replace_line(message)
            case Broken.WORKER_FAILED:  # its traceback follows
                self._worker, self._worker_proven = None, True
            case Broken.START_FAILED | Broken.FATAL:  # a worker's exception comes before, the core's own after
                self._block = sign
                if worker is not None:
                    start = sign is Broken.START_FAILED
                    self._decide(worker, _Weight.START_FAILED if start else _Weight.WORKER_AT_RUN_TIME)
            case Broken.PROCESS_DIED if worker is not None and self._worker_proven:
                self._decide(worker, _Weight.WORKER_AT_RUN_TIME)
            case Broken.PROCESS_DIED:
                self._decide(record, _Weight.PROCESS_DIED)
            case Broken.CHILD_DIED:  # SGLang's main process ends: the child's exception, if any, is the reason
                self._decide(self._stray or record, _Weight.ENGINE_GONE)
            case Broken.ENGINE_GONE:
                self._decide(record, _Weight.ENGINE_GONE)
            case Broken.USAGE if not self.certain:
                own = record.message.startswith(_OWN_PROGRAMS)
                self._decide(record, _Weight.USAGE if own else _Weight.CONSEQUENCE, guess=not own)
            case Broken.NATIVE:  # a program that is not Python says why it ends: the first such line decides
                self._decide(record, _Weight.NATIVE, guess=_OWN_END.match(record.message.lstrip()) is None)

    def _exception(self, record: LogRecord) -> None:
        """In its block the engine core names its own exception, unless it only repeats a worker's."""
        if failed := WORKER_FAILED.search(record.message):
            if self._worker is not None or self._worker_proven:
                return
            record = record._replace(message=failed[1])
            if self._block is None:
                self._worker, self._worker_proven = record, True
        main = not (record.source or _is_worker(record.process) or _is_core(record.process))
        ending, self._main_traceback = self._main_traceback, self._main_traceback and not main
        if any(words in record.message for words in CONSEQUENCES):
            self.hopeless = self.hopeless or "Engine core initialization failed" in record.message
            self._decide(record, _Weight.CONSEQUENCE, guess=True)
        elif exception_name(record.message).endswith(INTERRUPTED):
            return
        elif _is_worker(record.process):
            self._worker = record
            if self._block is Broken.START_FAILED and self._weight < _Weight.START_FAILED:
                self._decide(record, _Weight.START_FAILED)
        elif _is_core(record.process) or record.source.startswith("core.py:"):
            if self._block is Broken.START_FAILED:
                own = self._chosen is not None and not _is_worker(self._chosen.process)
                self._decide(record, _Weight.START_FAILED, last_wins=own or not self._worker_proven)
            elif self._block is Broken.FATAL:
                self._decide(record, _Weight.FATAL_ERROR, last_wins=True)
        elif not record.source:
            self._stray = record
            if not self._serving:
                ending = ending and not any(BENCH.search(text) for text in self.recent)
                weight = _Weight.API_SERVER if ending else _Weight.STRAY_EXCEPTION
                self._decide(record, weight, guess=not ending, last_wins=True)

    def _decide(self, record: LogRecord, weight: _Weight, *, guess: bool = False, last_wins: bool = False) -> None:
        if weight < self._weight or (weight == self._weight and not last_wins):
            return
        self._weight = weight
        self._wants_detail = exception_name(record.message).endswith("ValidationError")
        self._before, self._after, self.room = tuple(self.recent), [], KEPT_AFTER
        phase = self.phase
        if self._block is Broken.FATAL and phase in (None, PhaseId.CONTAINER) and step_of(self._before) is None:
            phase = PhaseId.SERVER  # the head of the log is missing: only a core that runs has a fatal error
        self._chosen = StartFailure(shown(record.message), record.process, guess, phase=phase)
        self._complete = None

    def survived(self) -> None:
        """The server is ready: earlier exceptions did not matter."""
        self._serving = True
        if not self.certain:
            self._chosen = self._complete = None
            self._weight, self.room = 0, 0

    def outlived(self) -> str:
        """The server answers after a native end: its runner ended, not itself. Returns the line that decided."""
        if self._chosen is None or self._weight != _Weight.NATIVE:
            return ""
        line, self._chosen, self._complete = self._chosen.line, None, None
        self._serving, self._weight, self.room = True, 0, 0
        return line

    def ended(self, exit_code: int) -> None:
        """The container has ended. Without a reason in the log its last line is a guess."""
        weak = self._chosen is None or (self._chosen.guess and self._weight < _Weight.NATIVE)
        if weak and exit_code != 137:
            self.stopped(engine=True)
        if self._chosen is not None:
            guess = self._chosen.guess and self._weight != _Weight.NATIVE
            self._chosen, self._complete = replace(self._chosen, exit_code=exit_code, guess=guess), None
            return
        last = None if exit_code == 137 else last_words(self.recent)
        if exit_code == 137:  # SIGKILL: GB10 reports OOMKilled=false even when memory was the reason
            line = "killed (exit code 137): out of memory, or stopped by force"
        else:
            line = last.message if last else f"exited with code {exit_code}"
        self._before, self._after, self._complete = tuple(self.recent), [], None
        process = last.process if last else ""
        self._chosen = StartFailure(shown(line), process, guess=True, phase=self.phase, exit_code=exit_code)

    @property
    def interrupted(self) -> str:
        """The line by which a person ended it, as the last one of the log."""
        return "KeyboardInterrupt" if interrupted(tuple(self.recent)) else ""

    def stopped(self, *, engine: bool, serving: bool | None = None) -> bool:
        """The log is over, and no exit code says why: whether it ends in a failure, which then is a guess."""
        lines = tuple(self.recent)
        serving = self._serving = self._serving if serving is None else serving
        found = last_failure(lines, serving=serving, engine=engine)
        if found is None:
            return False
        self._before, self._after, self._complete = lines[: found.at + 1], [*lines[found.at + 1 :][:KEPT_AFTER]], None
        self._chosen = StartFailure(shown(found.record.message), found.record.process, guess=True, phase=self.phase)
        return True


_RESULTS: Final = (CauseId.ENGINE_DIED, CauseId.WEIGHTS_MISSING)
"""Vague, they follow from what stands above."""
_SAYS_MORE: Final = (
    (lazy_pattern(r"AssertionError$"), lazy_pattern(r"^assert .+"), "{line}: {more}"),  # its only words are its code
    (lazy_pattern(r".*device-side assert triggered"), lazy_pattern(r"Assertion `.+"), "{line} ({more})"),
    (lazy_pattern(r"ray\.exceptions\.ActorDied"), lazy_pattern(r"^The actor is dead because.*"), "{line} {more}"),
    (lazy_pattern(r"ptxas fatal"), lazy_pattern(r".*; error  .*"), "{more}"),
    (lazy_pattern(r"terminate called"), lazy_pattern(r"^what\(\): .*"), "{more}"),
    (lazy_pattern(r".*failed to allocate (?:compute buffers?|buffer for)"), lazy_pattern(
        r".*(?:failed to allocate .{0,40}buffer of size|allocating [\d.]{1,12} MiB on device).*"), "{more}"),
    (lazy_pattern(r"(?:[\w.]{0,60}DistBackend|Runtime)Error: NCCL|.{0,40}NCCL error"), lazy_pattern(
        r".*(?:shared memory segment|/dev/shm/nccl-).*|^(?:Last error: ?)?Cuda failure \d{1,4} '.*"), "{more}"),
    (lazy_pattern(r"(?!.*http).*(?:[Gg]ated|[Rr]epository|revision|401 Client)"), lazy_pattern(
        r"^(?:Cannot access gated repo|Repository Not Found|Revision Not Found) for url.*"), "{more}"),
)  # fmt: skip
"""Lines that say less than one near them: what the other one looks like, and how both are shown."""


def better_line(line: str, lines: Sequence[str], before: Sequence[str], after: Sequence[str]) -> str:
    """Of the lines around one that says little by itself, the nearest that says more."""
    for less, other, told in _SAYS_MORE:
        if less.match(line):
            near = (*reversed(lines), *map(_message, after), *map(_message, reversed(before[-_FAR:])))
            more = next((match[0] for text in near if text != line and (match := other.search(text))), "")
            return shown(told.format(line=line, more=more)) if more else line
    known = recognise(line)
    consequence = known is not None and known[0].vague and known[0].id in _RESULTS
    if not consequence and (known is not None or exception_name(line)):
        return line
    found = [(other, rule[0]) for other in reversed(lines) if (rule := recognise(other)) is not None]
    said = [other for other, rule in found if not rule.vague]
    if not said and consequence:
        loud = (
            each for text in before[-_NEAR:] if (each := parse_line(text)).level not in ("INFO", "DEBUG", "WARNING")
        )
        said = [each.message for each in loud if each.kind is not LineKind.TRACEBACK and known_sure(each.message)][::-1]
    return shown(next(iter((*said, *(other for other, rule in found if rule.id not in _RESULTS), line))))


_NEAR: Final = 12
_FAR: Final = 300
_TRACED: Final = lazy_pattern(r"torch\._dynamo\.exc\.TorchRuntimeError: ")
_GOT: Final = lazy_pattern(r"got (\w{1,60}Error)\((['\"])(.{1,300})\2")


def traced(line: str, before: Sequence[str]) -> tuple[str, Sequence[str]]:
    """For an error that torch.compile only met while it traced the model, the model's own, and the lines above it."""
    if not _TRACED.match(line):
        return line, before
    first = max(0, len(before) - _TRACE_LINES)
    for at in reversed(range(first, len(before))):
        message = parse_line(before[at]).message if "rror: " in before[at][:MAX_SEARCHED] else ""
        if exception_name(message) and not _TRACED.match(message):
            return shown(message), before[: at + 1]
    got = _GOT.search(line)
    return (f"{got[1]}: {got[3]}", ()) if got else (line, before)


_TRACE_LINES: Final = 200


_STANDARD: Final = lazy_pattern(r"/lib/python3[.\d]*/(?!site-|dist-)|^<")
"""Files of Python's own library."""


_FRAMES: Final = lazy_pattern(r"File \"|\.py:\d{1,6} in |\btorch\.ops\.|Traceback \(most recent")


def frames_of(lines: Sequence[str], process: str = "") -> tuple[str, ...]:
    """The frames of the traceback that ends above the deciding line, innermost first. Of several processes that write
    at once, the one's own."""
    found = [text[:MAX_SEARCHED] for text in reversed(lines) if _FRAMES.search(text, 0, MAX_SEARCHED)]
    own = [text for text in found if process and f"({process} pid=" in text[:200]]
    return tuple(takewhile(lambda text: "Traceback (most" not in text, own or found))


def module_of(lines: Sequence[str], process: str = "") -> str:
    """The file of the innermost frame above the deciding line; empty where no traceback is near."""
    frames = [match[1] for text in frames_of(lines[-60:], process) if (match := FRAME.search(text))]
    return next((frame for frame in frames if not _STANDARD.search(frame)), frames[0] if frames else "")


def _is_worker(process: str) -> bool:
    """`Worker`, `Worker_TP0`, `VllmWorker-0`, `RayWorkerProc`."""
    return "Worker" in process


def _is_core(process: str) -> bool:
    """`EngineCore`, `EngineCore_DP0`."""
    return process.startswith("EngineCore")


# --- the lines around it ------------------------------------------------------------------------------

MAX_SEARCHED = 600
MAX_BEFORE, MAX_AFTER = 4, 3

_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# The frame that shows what an engine was doing: reading weights, or measuring and warming up.
_STEP = lazy_pattern(
    r", in (load_model|load_weights|determine_available_memory|profile_run|profile_cudagraph_memory|_dummy_run|"
    r"capture_model|compile_or_warm_up_model|initialize_kv_caches?|_allocate_kv_cache_tensors|kernel_warmup|"
    r"_dummy_sampler_run|\w*forward\w*|\w*(?:warmup|cuda_graph)\w*)\b"
)
_DRAFTER = lazy_pattern(r"/(?:spec_decode|speculative)/.{1,80}, in (?:load_\w+|__init__)\b")
_OUT_OF_MEMORY = lazy_pattern(OUT_OF_MEMORY)
# Lines of libraries above the exception that say more than it does.
_SAYS_WHY = lazy_pattern(
    r"ggml\S{0,60}:\d+: |error while loading shared libraries|ROCm error|rocBLAS error: |CUDA error|"
    r"not enough GPU memory|shared memory segment|/dev/shm/nccl-|Cuda error|illegal memory access|"
    r"unknown projector type|[Oo]ut of memory|NV_ERR_NO_MEMORY|NCCL WARN|ibv_\w+ failed|"
    r"ptxas (?:fatal|error|.{0,60}error)|died due to signal|: (?:fatal )?error: |nvcc fatal|no kernel image|"
    r"only supports sm|Cannot access gated repo|[45]\d\d Client Error|Repository Not Found|"
    r"Network is unreachable|Name or service not known|gguf_init_from_file\w*: |error loading model|"
    r"failed to (?:open|load|initialize|allocate)|unknown model architecture|what\(\): |llama_init_from_model: |"
    r"gloo/transport/|Timed out waiting \d{1,9} ?ms for|died unexpectedly|"
    r"Failed to (?:load model|initialize executor)|Fatal Python error|panicked at"
)
_SAYS_NOTHING = lazy_pattern(
    r"exactly one out metadata, path_model|failed to load model(?:,? '[^']{0,300}')?$|"
    r"trying to fit params to free device memory"
)
"""llama.cpp's later words about a model that it could not load."""
_LLAMA_WHY = lazy_pattern(SAYS_WHY)
_CONTINUES = lazy_pattern(
    r"Make sure|(?:[45]\d\d) Client Error|Cannot access|Access to model|Repository Not Found|Revision Not Found|"
    r"Last error:|Please|If you|If this|Check your|`?ptxas`?|ptxas |what\(\): |For debugging|.{0,40}Error"
)
# Of a whole line: the text before a colon may have been parsed as its source.
_NOISE: Final = lazy_pattern(
    r"nanobind:|resource_tracker:|warnings\.warn\(|Shutting down|Waiting for application shutdown|"
    r"Application shutdown complete|Finished server process|\[shutdown\]"
)


def deciding_lines(line: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The deciding line and, in the log's order, the few around it that say more. Cleaned, masked, no doubles.

    Above: chained exceptions, library messages and the frame of the step, nearest ones first chosen. Below: the rest
    of an exception that has several lines, as the Hub's have.
    """
    above: list[str] = []
    wants_frame, chained = _OUT_OF_MEMORY.search(line) is not None, False
    drafts = "load weight (" in line or "shape" in line or line.startswith("KeyError: ")
    if line == "AssertionError":  # its only words are its code
        code = next((text for text in map(_message, reversed(before[-6:])) if text.startswith("assert ")), "")
        above = [shown(code)] if code else []
    raised = bool(exception_name(line)) or line.startswith(("Value error, ", "Assertion failed, "))
    needle = line[:60]  # the last line that holds it, unless it was decided upon later
    place = next((at for at in reversed(range(len(before))) if needle and needle in before[at]), len(before))
    for text in reversed(before[:place]):
        if len(above) == MAX_BEFORE:
            break
        if drafts and "File " in text and _DRAFTER.search(text):
            drafts = False
            above.append(shown(parse_line(text).message))
        elif wants_frame and "File " in text and _STEP.search(text):
            wants_frame = False
            above.append(shown(parse_line(text).message))
        elif "rror" in text[:MAX_SEARCHED] or "above exception" in text or _says_why(text[:MAX_SEARCHED]):
            record = parse_line(text)
            message = shown(record.message)
            linked, chained = chained, message.startswith(_CHAINED)
            if _SAYS_NOTHING.search(message):
                continue
            loud = record.kind is not LineKind.TRACEBACK and (not record.level or record.severity >= 30)
            if (raised and linked and record.kind is LineKind.EXCEPTION) or (
                loud and (_says_why(message) or "NCCL WARN" in text)
            ):
                above.append(message)
    below: list[str] = []
    compiled = "Ninja build failed" in line or "Error building extension" in line
    for text in after:
        record = parse_line(text)
        message = record.message.strip()
        if record.kind is LineKind.BLANK or record.level in ("INFO", "DEBUG", "WARNING") or _NOISE.search(text):
            continue  # other processes keep writing
        if len(below) == MAX_AFTER:
            break
        if not _CONTINUES.match(message) and not (compiled and _says_why(message[:MAX_SEARCHED])):
            if compiled:
                continue
            break
        if record.kind is not LineKind.EXCEPTION:
            below.append(shown(message))
    return tuple(dict.fromkeys([*(text for text in reversed(above) if text != line), line, *below]))


def _says_why(text: str) -> bool:
    if _SAYS_WHY.search(text):
        return True
    return any(sign in text for sign in SIGNS) and _LLAMA_WHY.search(text) is not None


def _message(text: str) -> str:
    return parse_line(text).message.strip()


def last_words(recent: Sequence[str]) -> LogRecord | None:
    """Of a log that gives no reason, the line that most likely does: the last recognised one, error, or line."""
    dull = (LineKind.BLANK, LineKind.PROGRESS, LineKind.ACCESS)
    records = [r for text in recent if not _NOISE.search(text) and (r := parse_line(text)).kind not in dull]
    errors = [r for r in records if r.severity >= 40 and r.kind is not LineKind.TRACEBACK]
    known = [r for r in records if r.level in ("", "ERROR", "CRITICAL") and recognise(r.message)]
    return next((found[-1] for found in (known, errors, records) if found), None)
