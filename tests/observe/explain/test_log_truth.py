"""No false certainty: what other programs write changes nothing, and a log of another program says nothing."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.state import Health
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.model.serving import KEPT, ServingHistory
from spark_tui.observe.explain.model.timeline import StartOutcome
from spark_tui.observe.explain.model.view import LogContext
from spark_tui.observe.explain.model.whose import in_form
from tests.cases import all_cases
from tests.engine_logs import banner, core, drafts
from tests.log_fixtures import COMPOSED, LOGS, expected, read_composed, run_log
from tests.log_score import EXPECTED, excerpt, explained

SHELL_SAYS = (
    "Killed", "Segmentation fault (core dumped)", "Bus error (core dumped)", "Aborted (core dumped)",
)  # fmt: skip
"""Of the foreign lines those by which a shell speaks of the command above, whichever it was."""
FOREIGN = [
    "error: failed to push some refs to 'origin'",
    "fatal: not a git repository (or any of the parent directories): .git",
    "warning: unused variable: `x`",
    "error[E0425]: cannot find value `x` in this scope",
    'error: could not compile `foo` (bin "foo") due to 1 previous error',
    "main.c:3:10: fatal error: stdio.h: No such file or directory",
    "fatal error: all goroutines are asleep - deadlock!",
    "panic: runtime error: index out of range [3] with length 3",
    "goroutine 1 [running]:",
    "thread 'main' panicked at src/main.rs:4:5:",
    "Invalid argument: --follow",
    "error: invalid value 'sometimes' for '--color <WHEN>'",
    "Error: unknown flag: --dry-runn",
    "flag provided but not defined: -verbose",
    "called `Result::unwrap()` on an `Err` value: Status(404, https://crates.io/api/v1/crates/foo)",
    "cp: error writing '/backup/db.tar': No space left on device",
    "tar: write /var/lib/app/data.db: no space left on device",
    "python3: Error while finding module specification for 'app.main' (ModuleNotFoundError: No module named 'app')",
    "Failed to start model server: bad port",
    "[14:51:59] ValueError: bad value in settings.ini",
    "[worker stdout] [7] error: no such table: users",
    "exec /usr/bin/foo: no such file or directory",
    "exec /docker-entrypoint.sh: exec format error",
    "Segmentation fault (core dumped)",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "  what():  something else",
    "collect2: error: ld returned 1 exit status",
    "make: *** [Makefile:12: all] Error 2",
    "ninja: error: loading 'build.ninja': No such file or directory",
    "pip: error: unrecognized arguments: --foo",
    "curl: error: option --foo: is unknown",
    "train.py: error: the following arguments are required: --data",
    "npm ERR! code ELIFECYCLE",
    "E: Unable to locate package libfoo",
    "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)",
    "2026/11/23 12:00:00 [error] 29#29: *1 connect() failed (111: Connection refused) while connecting to upstream",
    '10.0.0.9 - - [23/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 502 157 "-" "curl/8.5.0"',
    '2026-11-23 12:00:00.123 UTC [1] FATAL:  could not open file "global/pg_filenode.map": Permission denied',
    'FATAL:  password authentication failed for user "postgres"',
    'ERROR:  relation "users" does not exist at character 15',
    "1:M 23 Nov 2026 12:00:00.000 # Fatal error, can't open config file '/etc/redis.conf': No such file or directory",
    "Traceback (most recent call last):",
    '  File "/app/worker.py", line 12, in <module>',
    "ValueError: invalid literal for int() with base 10: 'x'",
    "ModuleNotFoundError: No module named 'requests'",
    "KeyError: 'user_id'",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "FileNotFoundError: [Errno 2] No such file or directory: '/app/config.yaml'",
    "MemoryError",
    "OSError: [Errno 28] No space left on device",
    "Killed",
    "sh: 1: foo: not found",
    "usage: foo [-h] [--bar BAR]",
    "foo: error: argument --bar: invalid int value: 'x'",
    "Error: Cannot find module 'express'",
    "Error response from daemon: No such container: web",
    "Job failed: exit status 1",
]
"""Compilers, git, build logs, nginx, Postgres, Redis, other people's Python, Go, Rust and shells."""

UNRELATED = [line for line in FOREIGN if "exec format" not in line]
"""That one line alone does name a cause: the image is for another processor."""


OTHERS = re.split(r"^=== .+\n", (LOGS / "unrelated.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]
"""Texts of other programs, each whole."""
QUOTED = ["", "> ", "web-1  | ", "2026-11-23T12:00:00.123456789Z ", "Nov 23 12:00:00 spark foo[1]: "]


def read(lines: list[str], around: LogContext | None = None) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    return reader.explanation(around)


def both(lines: list[str]) -> tuple[Explanation, Explanation]:
    """Of an engine that runs, and of a text that is over. The first changes nothing for the second."""
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    return reader.explanation(LogContext()), reader.explanation()


def logs() -> dict[str, list[str]]:
    """Whole logs, and excerpts that end before a failure."""
    found = {case["log"]: run_log(case["log"]) for case in expected(LOGS)}
    found |= {path.stem: read_composed(path.stem) for path in COMPOSED.glob("*.log")}
    found |= {path.stem: path.read_text("utf-8").splitlines() for path in LOGS.parent.glob("cluster/logs/*.log")}
    pasted = [name for name, facts in EXPECTED.items() if facts["outcome"] in ("starting", "ready")]
    return found | {name: excerpt(name).decode().splitlines() for name in pasted}


@pytest.mark.parametrize("rest", ["", " ", "  ", "   '--x'", "   ''", " \t"])
def test_a_refused_option_that_is_cut_or_quoted_is_explained(rest: str) -> None:
    assert read([f"vllm: error: unrecognized arguments:{rest}"]).outcome == "failed"


PARTS = 3
Place = tuple[int, str]
"""A line of another program, and at which line of a log it stands."""


def places(name: str, lines: list[str]) -> list[list[Place]]:
    """Each line at one place, below the last line or anywhere above; two and two of them together."""
    chance, found = random.Random(name), list[Place]()
    others = [line for text in OTHERS for line in text.splitlines() if line.strip()]
    for foreign in [*FOREIGN, *chance.sample(others, 20)]:
        last = len(lines)
        if foreign in SHELL_SAYS:  # below the last line of an engine it speaks of the engine's own command
            last = max((at for at, text in enumerate(lines) if in_form(text)), default=0)
        found.append((chance.choice((chance.randint(min(1, last), last), last)), foreign))
    above = [each for each in found if each[0] < len(lines)]
    below = [each for each in found if each[0] == len(lines)]
    return [above[at : at + 2] + below[at : at + 2] for at in range(0, max(len(above), len(below)), 2)]


def lives(lines: list[str]) -> tuple[Explanation, Explanation]:
    """Of an engine that runs, and of a text that is over and ends in a sign of life: errors below it would count."""
    running, _ = both(lines)
    return running, read([*lines, *core("Loading weights took 7.63 seconds")])


def changes(lines: list[str], before: tuple[Explanation, ...], tried: list[Place]) -> bool:
    read_as = list(lines)
    for at, line in sorted(tried, key=itemgetter(0), reverse=True):
        read_as.insert(at, line)
    return any(  # what has a cause before is alive by its state, but not as a text that is over
        (now.outcome, now.cause) != (was.outcome, None)
        for was, now in zip(before, lives(read_as), strict=True)
        if was.cause is None
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_a_line_of_another_program_changes_no_outcome(part: int) -> None:
    """Read together; of those that change something each alone."""
    alive = 0
    for name, lines in sorted(logs().items())[part::PARTS]:
        before = lives(lines)
        if before[0].outcome in (StartOutcome.STARTING, StartOutcome.READY):
            alive += 1
            doubtful = [tried for tried in places(name, lines) if changes(lines, before, tried)]
            assert [each for tried in doubtful for each in tried if changes(lines, before, [each])] == [], name
    assert alive > 40


@pytest.mark.parametrize("quote", QUOTED)
def test_a_text_of_another_program_has_no_outcome_and_no_cause(quote: str) -> None:
    assert len(OTHERS) >= 180
    for text in OTHERS:
        for told in both([quote + line for line in text.splitlines()]):
            assert (told.outcome, told.cause) == (StartOutcome.UNKNOWN, None), text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(UNRELATED) | st.text("abcdeEinor :/.-[]()0123", max_size=60), min_size=1, max_size=25))
def test_other_programs_logs_have_no_outcome_and_no_cause(lines: list[str]) -> None:
    for told in both(lines):
        assert (told.outcome, told.cause) == (StartOutcome.UNKNOWN, None), lines


def test_a_command_line_is_refused_by_the_program_of_the_usage_block() -> None:
    block = ["usage: serve.py [-h] [--model MODEL]", "serve.py: error: unrecognized arguments: --modle"]
    assert read(block, LogContext(engine="vllm", ended=True, exit_code=2)).outcome is StartOutcome.FAILED
    assert read(block[1:], LogContext(engine="vllm")).outcome is StartOutcome.STARTING


def test_a_program_s_last_words_count_once_the_process_has_ended() -> None:
    words = ["exec /usr/bin/vllm: no such file or directory"]
    assert read(words, LogContext(engine="vllm")).outcome is StartOutcome.STARTING
    told = read(words, LogContext(engine="vllm", ended=True, exit_code=1))
    assert told.cause is not None
    assert (told.outcome, told.cause.id, told.cause.guess) == (StartOutcome.FAILED, "missing_file", False)


def test_a_later_sign_of_life_clears_an_exception() -> None:
    failed = excerpt("gb10-step-illegal-instruction").decode().splitlines()
    told = read(failed)
    assert told.cause is not None
    assert (told.outcome, told.cause.guess) == (StartOutcome.FAILED, True)
    life = "(EngineCore pid=1) INFO 01-06 23:28:01 [gpu_model_runner.py:1] Starting to load model a/b..."
    assert read([*failed, life]).outcome is StartOutcome.STARTING


def test_an_exception_stops_no_container_that_runs() -> None:
    failed = excerpt("gb10-step-illegal-instruction").decode().splitlines()
    assert read(failed, LogContext(engine="vllm")).outcome is StartOutcome.STARTING
    ended = read(failed, LogContext(engine="vllm", ended=True, exit_code=0))
    assert ended.cause is not None
    assert (ended.outcome, ended.cause.guess) == (StartOutcome.FAILED, True)


PREFIXES = [
    "Nov 21 02:16:18 spark docker[812]: ", "vllm-1  | ", "vllm_engine | ", "vllm.1.k2j@spark    | ",
    "2026-11-23T12:00:00.123456789Z ",
]  # fmt: skip


def test_lines_behind_a_collectors_prefix_are_read_as_they_were() -> None:
    """Every second line ends in a carriage return: with the next prefix it is the others."""
    for name in EXPECTED:
        lines = excerpt(name).decode().splitlines()
        if len(lines) > 1 and lines[0].startswith("("):
            plain = explained(name)
            for number, quote in enumerate(PREFIXES):
                told = read([quote + line + "\r" * ((at + number) % 2) for at, line in enumerate(lines)])
                assert (told.outcome, told.cause and told.cause.id) == (
                    plain.outcome, plain.cause and plain.cause.id
                ), (name, quote)  # fmt: skip


def test_a_line_of_statistics_is_parsed_once() -> None:
    history = ServingHistory()
    for second in range(KEPT + 10):
        history.add(float(second), second, "Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs")
        newest = history.samples[-1]
        assert history.samples[-1] is newest
    before = history.samples
    history.add(999.0, 999, "Engine 000: Avg prompt throughput: 2.0 tokens/s")
    after = history.samples
    assert len(after) == KEPT
    assert all(old is kept for old, kept in zip(before[1:], after[:-1], strict=True))


WAITS = {
    "worker_wait": "No available shared memory broadcast block found in 60 seconds. This typically happens when",
    "ray_wait": "Waiting for creating a placement group of specs for 70 seconds. specs=[{'GPU': 1.0}]",
    "nccl_wait": "spark-a:1:2 [0] transport/net_ib/p2p.cc:651 NCCL WARN NET/IB: Got completion from peer 10.0.0.2",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_is_told_until_there_is_progress(wait: str) -> None:
    begun = core("Initializing a V1 LLM engine (v0.32.0) with config: model='a/b'")
    waiting = [WAITS[wait]] if wait == "nccl_wait" else core(WAITS[wait])
    assert [str(each.id) for each in read([*begun, *waiting, *waiting], LogContext()).findings] == [wait]
    assert not read([*begun, *waiting, *core("Starting to load model a/b...")], LogContext()).findings


def test_a_rank_that_waits_for_the_others_says_how_long() -> None:
    reader, began = LogExplainer(), 1_764_000_000.0
    joins = "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29501 backend=nccl"
    stamp = datetime.fromtimestamp(began, UTC).isoformat()
    reader.feed_many([(stamp, core(joins)[0])])
    for seconds, found in ((30, []), (90, ["1m30s"])):
        told = reader.explanation(LogContext(now=began + seconds)).findings
        assert [words for each in told for words in found if each.id == "group_wait" and words in each.summary] == found
        assert bool(told) is bool(found)
    reader.feed_many([(stamp, core("Starting to load model a/b...")[0])])
    assert not reader.explanation(LogContext(now=began + 600)).findings
    reader.feed_many([(stamp, WAITS["nccl_wait"])])
    assert "5m00s" in reader.explanation(LogContext(now=began + 300)).findings[0].summary


def test_a_text_that_ends_where_ranks_join_says_so_and_a_log_that_grows_waits() -> None:
    joins = "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29501 backend=nccl"
    nccl = "spark-a:7:7 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init"
    for lines, found in (
        (core(joins), ["group_wait"]),
        ([*core(joins), *core("vLLM is using nccl==2.28.9")], ["nccl_wait"]),
        ([*core(joins), f"{nccl} START"], ["nccl_wait"]),
        ([f"{nccl} START", f"{nccl} COMPLETE"], []),
        (["[2026-03-11 13:53:21 TP0] sglang is using nccl==2.28.9"], ["nccl_wait"]),
        (["[2026-03-11 13:53:21 TP0] sglang is using nccl==2.28.9",
          "[2026-03-11 13:53:22 TP0] Init torch distributed ends. mem usage=0.2 GB"], []),
    ):  # fmt: skip
        assert [str(each.id) for each in read(lines).findings] == found, lines
        assert not read(lines, LogContext(health=Health.OK)).findings
    queue = "[2026-03-11 13:53:21 TP0] Decode batch. #running-req: 3, #token: 5, token usage: 0.10, #queue-req: "
    assert [str(each.id) for each in read([f"{queue}9"]).findings] == ["waiting"]
    assert not read([f"{queue}8"]).findings


@all_cases(
    ("said", "phase"),
    [
        ('  File "/x/vllm/v1/worker/gpu_model_runner.py", line 7, in capture_model', "capture"),
        ('  File "/x/torch/_dynamo/utils.py", line 7, in run_node', "compile"),
        ('  File "/x/vllm/v1/engine/core.py", line 7, in _initialize_kv_caches', "kv_cache"),
        ('  File "/x/sglang/srt/model_executor/model_runner.py", line 7, in init_memory_pool', "kv_cache"),
        ('  File "/x/tensorrt_llm/_torch/autotuner.py", line 7, in choose_one', "autotune"),
        ('  File "/x/vllm/v1/executor/multiproc_executor.py", line 7, in wait_for_ready', "engine_init"),
        ('  File "/x/sglang/srt/managers/tokenizer_manager.py", line 7, in __init__', "config"),
        ('  File "/x/sglang/srt/managers/scheduler.py", line 7 in watchdog_thread', "server"),
        ("    engine_core.run_busy_loop()", "server"),
        ("1  0x7f tensorrt_llm::batch_manager::TrtGptModelInflightBatching::decoderSync(int) + 3", "server"),
    ],
)
def test_frames_say_what_failed_where_no_line_does(said: str, phase: str) -> None:
    failure = read(
        ["Traceback (most recent call last):", said, "RuntimeError: CUDA error: unspecified"]
    ).timeline.failure
    assert failure is not None
    assert failure.phase == phase


ENDS = {
    "killed": ["INFO 11-20 11:25:57 gpu_executor.py:102] # GPU blocks: 12391, # CPU blocks: 2730", "Killed", "why?"],
    "nccl": [
        "spark-a:7:7 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<413> failed : timed out",
        "spark-a:7:7 [0] NCCL INFO misc/socket.cc:567 -> 2", "spark-a:7:7 [0] NCCL INFO init.cc:1534 -> 2",
    ],
    "engine_died": [
        "(APIServer pid=9) INFO:     Application startup complete.",
        "(EngineCore pid=4) ERROR 05-25 11:23:35 [core.py:1142] EngineCore encountered a fatal error.",
        "(EngineCore pid=4) ERROR 05-25 11:23:35 [core.py:1142] Traceback (most recent call last):",
    ],
    "no_gpu": [
        '(VllmWorker rank=0 pid=1) ERROR 05-26 04:21:52 [x.py:4]   File "/vllm/gpu_worker.py", line 1, in init_device',
        "(VllmWorker rank=0 pid=1) ERROR 05-26 04:21:52 [x.py:4] RuntimeError: No CUDA GPUs are available",
        "INFO 05-26 04:21:52 [__init__.py:31] Available plugins for group vllm.general_plugins:",
    ],
}  # fmt: skip


def test_an_engine_is_known_by_its_lines_and_not_by_a_mention_of_another() -> None:
    vllm, sglang = core("Starting to load model a/b..."), "[2026-03-11 13:53:21 TP0] Load weight begin. avail mem=9 GB"
    assert read(["sglang works, this does not:", *vllm]).engine == "vllm"
    assert (
        read(["INFO 03-11 13:53:20 [__init__.py:239] Automatically detected platform cuda.", sglang]).engine == "sglang"
    )


@pytest.mark.parametrize("cause", ENDS)
def test_how_a_text_ends_is_a_failure_though_no_line_proves_it(cause: str) -> None:
    told = read(ENDS[cause])
    assert told.cause is not None
    assert (told.outcome, told.cause.id, told.cause.guess) == (StartOutcome.FAILED, cause, True)
    lived = read([*ENDS[cause], *core("Loading weights took 7.63 seconds")])
    assert lived.outcome is not StartOutcome.FAILED


def test_a_removed_option_is_named_with_its_successor_and_a_misspelt_one_with_the_nearest() -> None:
    for option, words in (("--swap-space 16", "removed"), ("--max-modl-len 5", "--max-model-len")):
        cause = read([f"vllm: error: unrecognized arguments: {option}"]).cause
        assert cause is not None
        assert words in cause.remedy


def test_a_native_backend_is_advised_only_if_the_image_offers_it() -> None:
    line = "Using 'MARLIN' NvFp4 MoE backend out of potential backends: [{}]."
    for offered, change in (
        ("'MARLIN', 'VLLM_CUTLASS'", {"moe_backend": "cutlass"}),
        ("'MARLIN', 'FLASHINFER_CUTLASS'", {"moe_backend": "flashinfer_cutlass"}),
        ("'MARLIN', 'EMULATION'", {}),
    ):
        told = read([*banner("0.32.0"), *core(line.format(offered))], LogContext())
        assert dict(told.fp4.change) == change


def test_a_mixed_verdict_names_both_halves() -> None:
    lines = core(
        "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM",
        "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN', 'FLASHINFER_CUTLASS'].",
    )
    summary = read([*banner("0.32.0"), *lines], LogContext()).fp4.summary
    assert "MARLIN" in summary
    assert "FlashInferCutlassNvFp4LinearKernel" in summary


def test_what_a_drafted_token_costs_depends_on_the_method() -> None:
    remedies = set()
    for method in ("mtp", "eagle3", "dflash", "ngram"):
        config = f"'speculative_config': {{'method': '{method}', 'num_speculative_tokens': 4}}"
        told = read([*banner("0.32.0", args=config), drafts(10, 300, 1000, "0.700, 0.400, 0.050, 0.010")], LogContext())
        remedies.add(next(each.remedy for each in told.findings if each.id == "drafts_too_long"))
    assert len(remedies) == 4


def test_variables_that_the_image_sets_are_no_mistake() -> None:
    line = "Unknown vLLM environment variable detected: {}"
    assert not read(core(line.format("VLLM_BUILD_COMMIT")), LogContext()).findings
    assert read(core(line.format("VLLM_FOO")), LogContext()).findings


NAMES = list(EXPECTED)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(["", "> ", "| ", "\t", "x | ", "2026-11-23 12:00:00 "]), st.data())
def test_an_excerpt_cut_anywhere_is_read_without_an_error(name: str, quote: str, data: st.DataObject) -> None:
    text = excerpt(name).decode()
    begin, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    told = read([quote + line for line in text[begin:end].splitlines()])
    assert (told.cause is None) is (told.outcome not in (StartOutcome.FAILED, StartOutcome.STOPPED))


def test_what_cxx_says_of_a_rank_is_the_cause_once_the_container_has_ended() -> None:
    lines = excerpt("cluster-watchdog-allgather").decode().splitlines()
    cause = read(lines, LogContext(ended=True, exit_code=134)).cause
    assert cause is not None
    assert cause.id == "nccl"
    assert "2.29.3" in cause.remedy


def test_an_excerpt_that_is_cut_before_the_exception_failed_all_the_same() -> None:
    head = "(EngineCore pid=4) ERROR 05-20 00:55:13 [core.py:1100]"
    told = read([f"{head} EngineCore failed to start.", f"{head} Traceback (most recent call last):"])
    assert told.cause is not None
    assert (told.outcome, told.cause.id, told.cause.guess) == (StartOutcome.FAILED, "engine_died", True)


def test_a_fault_of_the_gpu_is_the_engine_s_below_its_lines_alone() -> None:
    fault = "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f. Reason: Page not present."
    assert read(["got prompt", fault, "./comfy.sh: line 2:  52 Aborted   (core dumped) python main.py"]).cause is None
    cause = read(
        ["(EngineCore pid=7) INFO 11-02 10:00:00 [gpu_model_runner.py:5] Starting to load model a/b", fault]
    ).cause
    assert cause is not None
    assert cause.id == "kernel_failure"
