"""Which line decides, what an exit code adds, and what never changes a cause."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.finding import Finding
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure, recognise
from spark_tui.observe.explain.model.causes.memory import utilization_that_fits
from spark_tui.observe.explain.model.sizing import HIGHEST_UTILIZATION
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import LogContext
from tests.cases import all_cases
from tests.failure_logs import Case, cases, explain, track
from tests.log_fixtures import log_names, read_log, run_log

CPU = "vllm-0.32-cpu-"
TABLE = [case for case in cases() if case.version]
NOISE = [
    *(line for line in read_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp") if "Padding" in line or "overridden" in line),
    "(EngineCore pid=199) INFO 05-21 21:03:00 [x.py:1] Free memory on device (110.34/121.69 GiB) on startup.",
    "(EngineCore pid=199) WARNING 05-21 21:03:00 [x.py:1] Low ulimit: OSError: [Errno 24] Too many open files",
    "[rank0]:W0521 21:08:35.966000 199 torch/_inductor/utils.py:1731] Not enough SMs to use max_autotune_gemm",
    "nanobind: leaked 3 instances!",
    "",
]


def test_a_port_of_a_real_log_is_named_and_another_one_proposed() -> None:
    cause = explain(run_log(CPU + "f_port"))
    assert "8130" in cause.summary
    assert cause.change == (("port", "8131"),)
    timeline = track(run_log(CPU + "f_port"))
    other = explain_failure(timeline, LogContext(taken_ports=(8131, 8132)))
    assert other is not None
    assert other.change == (("port", "8133"),)


def test_chained_exceptions_and_what_the_hub_says_below_stand_in_the_logs_order() -> None:
    lines = explain(run_log(CPU + "f_nomodel_on")).evidence
    at = next(i for i, line in enumerate(lines) if line.startswith("OSError: We couldn't connect"))
    assert any("LocalEntryNotFoundError" in line for line in lines[:at])
    assert lines[at + 1].startswith("Check your internet connection")
    assert len(lines) <= 8


# --- which exception decides ------------------------------------------------------------------------------


def core(text: str, level: str = "ERROR", source: str = "core.py:1510", process: str = "EngineCore") -> str:
    return f"({process} pid=199) {level} 05-21 21:06:00 [{source}] {text}"


def test_an_exception_that_a_worker_survived_does_not_explain_what_the_core_died_of() -> None:
    log = [
        core("NVLink detection failed. This is normal if your machine has no NVLink equipped.", process="Worker_TP0"),
        core("pynvml.NVMLError_NotSupported: Not Supported", process="Worker_TP0"),
        core("RuntimeError: NCCL error: unhandled system error", process="Worker_TP0"),
        core("EngineCore failed to start."),
        core("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ]
    assert explain(log).id is CauseId.NO_KV_ROOM


def test_a_worker_that_failed_explains_it_whatever_the_core_repeats() -> None:
    log = [
        core("WorkerProc hit an exception.", process="Worker_TP1"),
        core("torch.OutOfMemoryError: CUDA out of memory.", process="Worker_TP1"),
        core("EngineCore failed to start."),
        core("RuntimeError: Worker failed with error 'CUDA out of memory.', please check the stack trace above"),
        core("RuntimeError: cancelled"),
    ]
    assert explain(log).evidence == ("torch.OutOfMemoryError: CUDA out of memory.",)


def test_a_survived_exception_is_no_failure_once_it_serves() -> None:
    log = [
        "(APIServer pid=1) INFO 05-21 21:02:50 [utils.py:299] vLLM API server version 0.17.1",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3/threading.py", line 1, in run',
        "RuntimeError: NCCL error: unhandled system error",
        "INFO:     Application startup complete.",
    ]
    timeline = track(log)
    assert timeline.outcome is StartOutcome.READY
    assert timeline.failure is None
    assert explain_failure(timeline) is None


def test_out_of_memory_while_serving_is_told_as_such() -> None:
    log = [
        "(APIServer pid=1) INFO 05-21 21:02:50 [utils.py:299] non-default args: {'gpu_memory_utilization': 0.9}",
        "INFO:     Application startup complete.",
        core("EngineCore encountered a fatal error."),
        core("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ]
    cause = explain(log)
    assert cause.id is CauseId.OUT_OF_MEMORY_WARMUP
    assert "while the engine was serving" in cause.summary
    assert cause.change == (("gpu_memory_utilization", "0.85"),)


def test_secrets_and_control_codes_do_not_reach_a_cause() -> None:
    log = ["vllm: error: unrecognized arguments: --api-key sesame\x1b]0;x\x07 hf_abcdefghijklmnopqrstuvwxyz0123"]
    cause = explain(log)
    told = " ".join((cause.summary, cause.remedy, *cause.evidence))
    assert "sesame" not in told
    assert "abcdefghij" not in told
    assert "\x1b" not in told


# --- exit codes, Docker, the kernel -----------------------------------------------------------------------


@all_cases(
    ("code", "cause", "guess", "words"),
    [
        (130, "stopped", False, "stopped"),
        (143, "stopped", False, "stopped"),
        (137, "killed", True, "exit code 137"),
        (132, "arch_not_compiled", True, "SIGILL"),
        (135, "engine_died", True, "SIGBUS"),
        (139, "engine_died", True, "SIGSEGV"),
        (126, "missing_file", True, "126"),
        (127, "missing_file", True, "127"),
        (125, "unknown", True, "Docker"),
        (255, "unknown", True, "255"),
        (1, "unknown", True, "Loading"),
    ],
)
def test_an_exit_code_without_a_reason_in_the_log(code: int, cause: str, guess: bool, words: str) -> None:
    found = explain(["INFO 05-21 21:03:00 [x.py:1] Loading the tokenizer"], code)
    assert (found.id, found.guess) == (cause, guess)
    assert words in found.summary


def test_docker_or_the_kernel_can_prove_that_memory_ran_out() -> None:
    timeline = track([core("Starting to load model x...", level="INFO")], 137)
    by_docker = explain_failure(timeline, LogContext(exit_code=137, oom_killed=True))
    killed = "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB"
    by_kernel = explain_failure(timeline, LogContext(exit_code=137, kernel_lines=(killed,)))
    for cause in (by_docker, by_kernel):
        assert cause is not None
        assert (cause.id, cause.guess) == (CauseId.KILLED, False)


def test_nvrm_lines_are_notes_and_prove_nothing() -> None:
    nvrm = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
    timeline = track(run_log(CPU + "f_port"))
    cause = explain_failure(timeline, LogContext(exit_code=1, kernel_lines=(nvrm, "usb 1-1: new device")))
    assert cause is not None
    assert (cause.id, cause.evidence[-1:]) == (CauseId.PORT_IN_USE, (nvrm,))


def test_docker_says_why_the_container_never_ran() -> None:
    error = 'failed to create task: exec: "vllm": executable file not found in $PATH: unknown'
    cause = explain_failure(EMPTY_TIMELINE, LogContext(exit_code=127, error=error))
    assert cause is not None
    assert (cause.id, cause.evidence) == (CauseId.MISSING_FILE, (error,))
    assert "`vllm`" in cause.summary


def test_an_engine_that_runs_or_starts_has_no_cause() -> None:
    assert explain_failure(EMPTY_TIMELINE) is None
    assert explain_failure(track(run_log(CPU + "dbg"))) is None


def test_a_line_of_another_process_within_what_cxx_says_hides_nothing() -> None:
    said = ["terminate called after throwing an instance of 'c10::AcceleratorError'", "nanobind: leaked 3 instances!"]
    found = explain([*said, "  what():  CUDA error: an illegal memory access was encountered"], 134)
    assert found.id == "kernel_failure"


# --- what never changes -----------------------------------------------------------------------------------


def same(cause: Finding) -> tuple[object, ...]:
    return cause.id, cause.summary, cause.remedy, cause.change, cause.guess


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(TABLE),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(NOISE)), max_size=12),
    st.lists(st.sampled_from(NOISE), max_size=40),
)
def test_noise_does_not_change_the_cause(case: Case, between: list[tuple[int, str]], after: list[str]) -> None:
    banner, log = case.log[:3], case.log[3:]
    told = len(log) if case.by == "log" else next(i for i, line in enumerate(log) if line.endswith("last):"))
    for at, noise in between:  # a traceback is written at one go: noise comes before it and after it
        log.insert(min(at, told), noise)
    assert same(explain([*banner, *log, *after], case.exit_code)) == same(explain(case.log, case.exit_code))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(max_size=200) | st.sampled_from([line for case in cases() for line in case.log]), max_size=30),
    st.none() | st.integers(-5, 300),
    st.text(max_size=80),
    st.booleans(),
)
def test_no_text_makes_it_raise(lines: list[str], code: int | None, error: str, oom_killed: bool) -> None:
    tracker = LogTracker()
    for line in lines:
        tracker.feed(None, line)
        tracker.timeline()
    tracker.container_ended(code)
    kernel = tuple(lines)
    around = LogContext(exit_code=code, oom_killed=oom_killed, error=error, kernel_lines=kernel, pool_gib=0.0)
    cause = explain_failure(tracker.timeline(), around)
    assert cause is None or (cause.summary and cause.remedy)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([line for case in cases() for line in case.lines]), st.data())
def test_a_line_cut_or_with_other_figures_does_not_make_it_raise(line: str, data: st.DataObject) -> None:
    cut = line[: data.draw(st.integers(0, len(line)))]
    figure = data.draw(st.sampled_from(["0", "-1", "999999999999", "0.0", "1e9", "٣"]))
    changed = "".join(figure if char in string.digits and data.draw(st.booleans()) else char for char in line)
    for text in (cut, changed):
        timeline = track([core("EngineCore failed to start."), core(text), text], 1)
        explain_failure(timeline, LogContext(exit_code=1, pool_gib=121.69))


@given(st.floats(0, 2_000), st.floats(1, 2_000))
def test_a_proposed_utilization_leaves_room(free: float, total: float) -> None:
    share = utilization_that_fits(free, total)
    if share is not None:
        assert 0.1 <= share <= HIGHEST_UTILIZATION
        assert share * total <= free


def test_lines_of_healthy_starts_are_no_causes() -> None:
    healthy = {"gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp", CPU + "01-first-start", CPU + "spec.stdout"}
    assert healthy <= set(log_names())
    known = [line for name in healthy for line in read_log(name) if " INFO " in line and recognise(line)]
    assert known == []
