"""How a line is taken apart, and what is masked in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain.logs.line import LineKind, LogRecord, exception_name, parse_line
from spark_tui.domain.secret import mask_secrets
from tests.log_fixtures import log_names, read_log

RECORD, PLAIN, BLANK = LineKind.RECORD, LineKind.PLAIN, LineKind.BLANK
TRACEBACK, EXCEPTION, CONTINUATION = LineKind.TRACEBACK, LineKind.EXCEPTION, LineKind.CONTINUATION
PROGRESS, ACCESS = LineKind.PROGRESS, LineKind.ACCESS

ANATOMY = [
    # vLLM, both eras
    (
        "(EngineCore pid=199) INFO 05-21 21:03:31 [__init__.py:683] Using X for NVFP4 GEMM",
        ("EngineCore", 199, "INFO", "05-21 21:03:31", "__init__.py:683", "Using X for NVFP4 GEMM", RECORD),
    ),
    (
        "WARNING 05-21 21:02:50 [argparse_utils.py:257] With `vllm serve`, you should",
        ("", None, "WARNING", "05-21 21:02:50", "argparse_utils.py:257", "With `vllm serve`, you should", RECORD),
    ),
    (
        "(APIServer pid=1) INFO 11-21 02:59:42 [entrypoints/.../utils/api_utils.py:347] \r",
        ("APIServer", 1, "INFO", "11-21 02:59:42", "entrypoints/.../utils/api_utils.py:347", "", BLANK),
    ),
    (
        "\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-21 02:34:09\x1b[0m "
        "\x1b[90m[x.py:1]\x1b[0m msg\r",
        ("APIServer", 1, "INFO", "11-21 02:34:09", "x.py:1", "msg", RECORD),
    ),
    (
        "(Worker_DP0_TP1_EP1 pid=77) ERROR 11-21 02:34:09 [multiproc_executor.py:953] WorkerProc failed to start.",
        (
            "Worker_DP0_TP1_EP1",
            77,
            "ERROR",
            "11-21 02:34:09",
            "multiproc_executor.py:953",
            "WorkerProc failed to start.",
            RECORD,
        ),
    ),
    (
        "(RayWorkerProc pid=5, ip=10.0.0.2) (Worker pid=7) [Stage-0] INFO 11-21 02:34:09 [x.py:1] nested",
        ("Worker", 7, "INFO", "11-21 02:34:09", "x.py:1", "nested", RECORD),
    ),
    (
        "[node 3] (VllmWorker-0 pid=7) INFO 11-21 02:34:09 [x.py:1] with VLLM_LOGGING_PREFIX",
        ("VllmWorker-0", 7, "INFO", "11-21 02:34:09", "x.py:1", "[node 3] with VLLM_LOGGING_PREFIX", RECORD),
    ),
    (
        "Nov 21 02:16:18 spark-7f3a docker[812]: (APIServer pid=1) INFO 11-21 02:16:18 [x.py:1] from the journal",
        ("APIServer", 1, "INFO", "11-21 02:16:18", "x.py:1", "from the journal", RECORD),
    ),
    (
        "vllm-1  | (APIServer pid=1) INFO 11-21 02:16:18 [x.py:1] from compose",
        ("APIServer", 1, "INFO", "11-21 02:16:18", "x.py:1", "from compose", RECORD),
    ),
    (
        "2026-11-21T02:16:18.123456789Z INFO:     Application startup complete.",
        ("", None, "INFO", "2026-11-21T02:16:18.123456789Z", "uvicorn", "Application startup complete.", RECORD),
    ),
    # carried by others
    (
        "vllm-1  | Traceback (most recent call last):",
        ("", None, "", "", "", "Traceback (most recent call last):", TRACEBACK),
    ),
    ("vllm-1  | ValueError: no", ("", None, "", "", "", "ValueError: no", EXCEPTION)),
    (
        "spark_vllm.1.k2j4@spark-7f3a    | INFO:     Application startup complete.",
        ("", None, "INFO", "", "uvicorn", "Application startup complete.", RECORD),
    ),
    ("Dec 02 02:16:18 spark-7f3a vllm/4f1d2c[812]: Loading weights", ("", None, "", "", "", "Loading weights", PLAIN)),
    (
        "Nov 21 02:16:18.123456 spark-7f3a kernel: NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory",
        ("", None, "", "", "", "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory", PLAIN),
    ),
    (
        "2026-11-21T02:16:18+0000 spark-7f3a docker[812]: (Worker pid=7) INFO 11-21 02:16:18 [x.py:1] short-iso",
        ("Worker", 7, "INFO", "11-21 02:16:18", "x.py:1", "short-iso", RECORD),
    ),
    (
        "Sat 2026-11-21 02:16:18 UTC spark-7f3a docker[812]: (Worker pid=7) INFO 11-21 02:16:18 [x.py:1] short-full",
        ("Worker", 7, "INFO", "11-21 02:16:18", "x.py:1", "short-full", RECORD),
    ),
    (
        "<30>1 2026-11-21T02:16:18.123Z spark docker 812 - - (Worker pid=7) INFO 11-21 02:16:18 [x.py:1] syslog",
        ("Worker", 7, "INFO", "11-21 02:16:18", "x.py:1", "syslog", RECORD),
    ),
    (
        "[pod/vllm-0/vllm] 2026-11-21T02:16:18.123456789Z (Worker pid=7) INFO 11-21 02:16:18 [x.py:1] kubectl",
        ("Worker", 7, "INFO", "11-21 02:16:18", "x.py:1", "kubectl", RECORD),
    ),
    (
        "2026-11-21T02:16:18.123456789Z stderr F ValueError: containerd",
        ("", None, "", "2026-11-21T02:16:18.123456789Z", "", "ValueError: containerd", EXCEPTION),
    ),
    (
        '{"log":"(Worker pid=7) INFO 11-21 02:16:18 [x.py:1] json-file\\n",'
        '"stream":"stdout","time":"2026-11-21T02:16:18Z"}',
        ("Worker", 7, "INFO", "11-21 02:16:18", "x.py:1", "json-file", RECORD),
    ),
    (
        '{"__REALTIME_TIMESTAMP": "1", "MESSAGE": "ValueError: journald", "_PID": "812"}',
        ("", None, "", "", "", "ValueError: journald", EXCEPTION),
    ),
    # Ray
    (
        "(pid=77, ip=10.0.0.2) INFO 11-21 02:34:09 [x.py:1] before the actor has a name",
        ("", 77, "INFO", "11-21 02:34:09", "x.py:1", "before the actor has a name", RECORD),
    ),
    (
        "(ServeReplica:llm:LLMServer:acme/m-1.5 pid=2) (EngineCore pid=3) (RayWorkerProc pid=4) (Worker pid=4) "
        "INFO 11-21 02:34:09 [x.py:1] Ray Serve",
        ("Worker", 4, "INFO", "11-21 02:34:09", "x.py:1", "Ray Serve", RECORD),
    ),
    (
        "[rank0]: torch.distributed.DistNetworkError: no",
        ("rank0", None, "", "", "", "torch.distributed.DistNetworkError: no", EXCEPTION),
    ),
    # continuation lines and tracebacks
    (
        "(EngineCore pid=8) INFO 11-21 02:16:24 [omp.py:185] \tlocal_world_size=1",
        ("EngineCore", 8, "INFO", "11-21 02:16:24", "omp.py:185", " local_world_size=1", CONTINUATION),
    ),
    (
        '(EngineCore pid=8) ERROR 11-21 02:53:24 [core.py:1510]   File "/x/core.py", line 1482, in run_engine_core',
        (
            "EngineCore",
            8,
            "ERROR",
            "11-21 02:53:24",
            "core.py:1510",
            '  File "/x/core.py", line 1482, in run_engine_core',
            TRACEBACK,
        ),
    ),
    (
        "(EngineCore pid=8) ERROR 11-21 02:53:24 [core.py:1510]     raise ValueError(",
        ("EngineCore", 8, "ERROR", "11-21 02:53:24", "core.py:1510", "    raise ValueError(", TRACEBACK),
    ),
    (
        "(EngineCore pid=8) ERROR 11-21 02:53:24 [core.py:1510] ValueError: No available memory",
        ("EngineCore", 8, "ERROR", "11-21 02:53:24", "core.py:1510", "ValueError: No available memory", EXCEPTION),
    ),
    ("Traceback (most recent call last):", ("", None, "", "", "", "Traceback (most recent call last):", TRACEBACK)),
    ("             ^^^^^^", ("", None, "", "", "", "             ^^^^^^", TRACEBACK)),
    ("    sys.exit(main())", ("", None, "", "", "", "    sys.exit(main())", CONTINUATION)),
    (
        "torch.OutOfMemoryError: CUDA out of memory.",
        ("", None, "", "", "", "torch.OutOfMemoryError: CUDA out of memory.", EXCEPTION),
    ),
    (
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
        (
            "",
            None,
            "",
            "",
            "",
            "Exception: WorkerProc initialization failed due to an exception in a background process.",
            EXCEPTION,
        ),
    ),
    (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688",
        (
            "",
            None,
            "",
            "",
            "",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688",
            EXCEPTION,
        ),
    ),
    ("AssertionError", ("", None, "", "", "", "AssertionError", EXCEPTION)),
    (
        "(APIServer pid=1) OSError: [Errno 98] Address already in use",
        ("APIServer", 1, "", "", "", "OSError: [Errno 98] Address already in use", EXCEPTION),
    ),
    # progress
    (
        "(EngineCore pid=199) \rLoading safetensors checkpoint shards:  17% Completed | 1/6 [00:34<02:54, 34.81s]",
        (
            "EngineCore",
            199,
            "",
            "",
            "",
            "Loading safetensors checkpoint shards:  17% Completed | 1/6 [00:34<02:54, 34.81s]",
            PROGRESS,
        ),
    ),
    (
        "\rCapturing CUDA graphs:   0%|          | 0/13 [00:00<?]\rCapturing CUDA graphs: 100%|██| 13/13 [00:01<00:00]",
        ("", None, "", "", "", "Capturing CUDA graphs: 100%|██| 13/13 [00:01<00:00]", PROGRESS),
    ),
    (
        "[AutoTuner]: Tuning fp4_gemm:  50%|█████     | 8/16 [00:00<00:00, 78.46profile/s]",
        (
            "",
            None,
            "",
            "",
            "",
            "[AutoTuner]: Tuning fp4_gemm:  50%|█████     | 8/16 [00:00<00:00, 78.46profile/s]",
            PROGRESS,
        ),
    ),
    (
        "Tuning x: 50%|██ | 8/16 [00:00<00:00](EngineCore pid=9) INFO 05-21 21:10:29 [x.py:1] glued to a bar",
        ("EngineCore", 9, "INFO", "05-21 21:10:29", "x.py:1", "glued to a bar", RECORD),
    ),
    (  # its line has not ended yet
        "(EngineCore pid=9) \rTuning x:   0%|     | 0/16 [00:00<?]\rTuning x:  50%|#####     | 8/16 [00:01<00:0",
        ("EngineCore", 9, "", "", "", "Tuning x:  50%|#####     | 8/16 [00:01<00:0", PROGRESS),
    ),
    (  # wiped before the next line
        "\rFetching 7 files: 100%|######| 7/7 [00:01<00:00]\r              \r(Worker pid=7) INFO 11-21 02:34:09 "
        "[x.py:1] after a bar",
        ("Worker", 7, "INFO", "11-21 02:34:09", "x.py:1", "after a bar", RECORD),
    ),
    (
        "model-00001-of-00004.safetensors:  34%|###4      | 1.69G/4.98G [00:16<00:31, 105MB/s]",
        (
            "",
            None,
            "",
            "",
            "",
            "model-00001-of-00004.safetensors:  34%|###4      | 1.69G/4.98G [00:16<00:31, 105MB/s]",
            PROGRESS,
        ),
    ),
    # uvicorn
    (
        '(APIServer pid=1) INFO:     172.18.0.3:46876 - "GET /v1/models HTTP/1.1" 200 OK',
        ("APIServer", 1, "INFO", "", "uvicorn", '172.18.0.3:46876 - "GET /v1/models HTTP/1.1" 200 OK', ACCESS),
    ),
    (
        "ERROR:    Exception in ASGI application",
        ("", None, "ERROR", "", "uvicorn", "Exception in ASGI application", RECORD),
    ),
    # JSON
    (
        '{"asctime": "2026-11-21 02:35:14,685", "levelname": "INFO", "name": "vllm.v1.core.kv_cache_utils", '
        '"processName": "EngineCore", "process": 28718, "message": "CPU KV cache size: 524,288 tokens", '
        '"vllm_process_name": "EngineCore"}',
        (
            "EngineCore",
            28718,
            "INFO",
            "2026-11-21 02:35:14,685",
            "vllm.v1.core.kv_cache_utils",
            "CPU KV cache size: 524,288 tokens",
            RECORD,
        ),
    ),
    (
        '{"levelname": "INFO", "name": "uvicorn.access", '
        '"message": "127.0.0.1:56054 - \\"GET /health HTTP/1.1\\" 200"}',
        ("", None, "INFO", "", "uvicorn.access", '127.0.0.1:56054 - "GET /health HTTP/1.1" 200', ACCESS),
    ),
    ('{"a": 1}', ("", None, "", "", "", '{"a": 1}', PLAIN)),
    ("{" * 3000, ("", None, "", "", "", "{" * 3000, PLAIN)),
    # foreign loggers
    (
        "(EngineCore pid=199) 2026-05-21 21:10:15,615 - INFO - autotuner.py:457 - flashinfer.jit: [Autotuner]: starts",
        ("EngineCore", 199, "INFO", "2026-05-21 21:10:15,615", "autotuner.py:457", "[Autotuner]: starts", RECORD),
    ),
    (
        "(EngineCore pid=199) [rank0]:W0521 21:08:35.966000 199 site-packages/torch/_inductor/utils.py:1731] "
        "Not enough SMs",
        (
            "EngineCore",
            199,
            "WARNING",
            "0521 21:08:35.966000",
            "site-packages/torch/_inductor/utils.py:1731",
            "Not enough SMs",
            RECORD,
        ),
    ),
    (
        "[W1121 02:23:57.736000 utils.cpp:68] Warning: NUMA binding",
        ("", None, "WARNING", "1121 02:23:57.736000", "utils.cpp:68", "Warning: NUMA binding", RECORD),
    ),
    (
        "spark-7f3a:199:412 [0] NCCL INFO Bootstrap: Using eth0",
        ("", None, "INFO", "", "spark-7f3a:199:412 [0]", "Bootstrap: Using eth0", RECORD),
    ),
    (
        "[TensorRT-LLM][DEBUG] SM121: skipping tile M=128",
        ("", None, "DEBUG", "", "TensorRT-LLM", "SM121: skipping tile M=128", RECORD),
    ),
    (
        "[05/21/2026-21:03:22] [TRT-LLM] [W] Logger level already set",
        ("", None, "WARNING", "05/21/2026-21:03:22", "TRT-LLM", "Logger level already set", RECORD),
    ),
    (
        "[2026-03-11 13:53:21 TP0] Load weight end. elapsed=23.18 s",
        ("TP0", None, "", "2026-03-11 13:53:21", "", "Load weight end. elapsed=23.18 s", RECORD),
    ),
    (
        '[2026-07-27 08:54:36] INFO:     127.0.0.1:58294 - "GET /model_info HTTP/1.1" 200 OK',
        ("", None, "INFO", "2026-07-27 08:54:36", "", '127.0.0.1:58294 - "GET /model_info HTTP/1.1" 200 OK', ACCESS),
    ),
    (
        'time=2026-05-21T21:02:57.123Z level=WARN source=server.go:12 msg="runner exited"',
        ("", None, "WARNING", "2026-05-21T21:02:57.123Z", "server.go:12", "runner exited", RECORD),
    ),
    (
        'time=2026-05-21T21:02:57.123Z level=INFO source=backend.go:310 msg="model \\"weights\\"" size="18.8 GiB"',
        ("", None, "INFO", "2026-05-21T21:02:57.123Z", "backend.go:310", 'model "weights" size="18.8 GiB"', RECORD),
    ),
    (
        '[GIN] 2026/05/21 - 21:03:31 | 200 |  10.58s |  192.168.1.17 | POST     "/api/generate"',
        (
            "",
            None,
            "",
            "2026/05/21 - 21:03:31",
            "GIN",
            '200 |  10.58s |  192.168.1.17 | POST     "/api/generate"',
            ACCESS,
        ),
    ),
    (
        "2026/05/21 21:02:50 routes.go:1331: INFO server config env=map[]",
        ("", None, "INFO", "2026/05/21 21:02:50", "routes.go:1331", "server config env=map[]", RECORD),
    ),
    (
        "[53871] 0.06.903.542 W srv  log_server_r: done request: POST /models/load 172.19.0.1 200",
        (
            "53871",
            None,
            "WARNING",
            "0.06.903.542",
            "",
            "srv  log_server_r: done request: POST /models/load 172.19.0.1 200",
            RECORD,
        ),
    ),
    (
        "[07/24/2026-17:00:16] [TRT-LLM] [RANK 0] [I] Rank 0 uses 8.46 GB for model weights.",
        ("rank0", None, "INFO", "07/24/2026-17:00:16", "TRT-LLM", "Rank 0 uses 8.46 GB for model weights.", RECORD),
    ),
    (
        "(RustFrontend pid=36) INFO 05-27 15:38:24 [server/src/lib.rs:133] starting OpenAI server bind_address=[::]:80",
        (
            "RustFrontend",
            36,
            "INFO",
            "05-27 15:38:24",
            "server/src/lib.rs:133",
            "starting OpenAI server bind_address=[::]:80",
            RECORD,
        ),
    ),
    (
        "2026-05-27T15:38:24.123456Z  WARN vllm_server::http{id=3}: slow",
        ("", None, "WARNING", "2026-05-27T15:38:24.123456Z", "vllm_server::http", "slow", RECORD),
    ),
    (
        "[2026-05-21 21:03:22] spark:199:412 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed",
        ("", None, "WARNING", "2026-05-21 21:03:22", "spark:199:412 [0]", "Call to ibv_open_device failed", RECORD),
    ),
    (
        "[1716325200.123456] [spark:199  :0]     ucp_context.c:1205 UCX  WARN  network device is not available",
        ("", None, "WARNING", "1716325200.123456", "ucp_context.c:1205", "network device is not available", RECORD),
    ),
    (
        "2026-05-21 21:03:22.123 | WARNING  | mod.sub:func:12 - loguru",
        ("", None, "WARNING", "2026-05-21 21:03:22.123", "mod.sub:func:12", "loguru", RECORD),
    ),
    ("WARNING:root:no format", ("", None, "WARNING", "", "root", "no format", RECORD)),
    ("nanobind: leaked 3 instances!", ("", None, "", "", "nanobind", "leaked 3 instances!", RECORD)),
    (
        "/x/dispatcher.py:138: FutureWarning: deprecated",
        ("", None, "WARNING", "", "/x/dispatcher.py:138", "FutureWarning: deprecated", RECORD),
    ),
    (
        "(APIServer pid=1) [transformers] `X` is deprecated.",
        ("APIServer", 1, "", "", "transformers", "`X` is deprecated.", RECORD),
    ),
    (
        "vllm serve: error: unrecognized arguments: --x",
        ("", None, "ERROR", "", "", "vllm serve: error: unrecognized arguments: --x", RECORD),
    ),
    ("Triton is installed.", ("", None, "", "", "", "Triton is installed.", PLAIN)),
    ("a table | with bars", ("", None, "", "", "", "a table | with bars", PLAIN)),
    ("", ("", None, "", "", "", "", BLANK)),
    ("\r\r", ("", None, "", "", "", "", BLANK)),
]


@pytest.mark.parametrize(("text", "parts"), ANATOMY, ids=[text[:50] for text, _ in ANATOMY])
def test_line_anatomy(text: str, parts: tuple[object, ...]) -> None:
    assert tuple(parse_line(text)) == parts


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("(Worker pid=1) WARNING 11-21 02:34:09 [x.py:1] careful", 30),
        ("(Worker pid=1) INFO 11-21 02:34:09 [x.py:1] fine", 20),
        ("ValueError: no", 40),
        ('  File "x.py", line 1, in f', 40),
        ("something", 0),
    ],
)
def test_severity_counts_bare_tracebacks_as_errors(text: str, severity: int) -> None:
    assert parse_line(text).severity == severity


def test_a_json_records_traceback_stays_with_it() -> None:
    record = parse_line('{"message": "failed", "levelname": "ERROR", "exc_info": "Traceback\\nValueError: no"}')
    assert record.message == "failed\nTraceback\nValueError: no"


@pytest.mark.parametrize("name", log_names())
def test_nothing_of_a_real_line_is_lost_or_obeyed(name: str) -> None:
    for text in read_log(name):
        record = parse_line(text)
        assert "\x1b" not in record.message
        assert "\r" not in record.message
        if not text.startswith("{") and "\x1b" not in text and "\r" not in text.rstrip("\r"):
            assert record.message.strip() in text.replace("\t", " ")


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=300))
def test_any_text_gives_a_record(text: str) -> None:
    record = parse_line(text)
    assert "\x1b" not in record.message
    assert isinstance(record, LogRecord)
    assert isinstance(record.severity, int)


_BITS = (
    *(
        "(EngineCore pid=199) ",
        "INFO 05-21 21:03:31 [x.py:1] ",
        "INFO:     ",
        "\x1b[32m",
        "\x1b[0m",
        "\r",
        "\n",
        "{",
        '"message": "',
    ),
    *(
        " 50%|",
        "| 8/16 [",
        "2026-05-21 21:10:15,615 - ",
        "Traceback (most recent call last):",
        "ValueError: ",
        '"}',
        " | ",
    ),
    *(
        '  File "x", line 1',
        "[rank0]:W0521 21:08:35.966000 199 a:1] ",
        "time=2026-05-21T21:02:57Z level=INFO msg=",
        "]",
        "[",
    ),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(_BITS), max_size=12).map("".join))
def test_any_mixture_of_the_known_gives_a_record(text: str) -> None:
    parse_line(text)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_record(data: bytes) -> None:
    assert isinstance(parse_line(data.decode("utf-8", "replace")), LogRecord)
    assert isinstance(parse_line(data.decode("latin-1")), LogRecord)
    mask_secrets(data.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    "unit",
    [
        "(A pid=1) ",
        "[Stage-0] ",
        "x.py:1 ",
        "INFO ",
        " ",
        "^",
        "a.",
        "%|",
        "| ",
        '{"message":',
        "[",
        "1",
        "\r ",
        "INFO: ",
        "a ",
        "~ ",
        "a-1 | ",
        "[pod/a] ",
        "2026-05-21T21:02:50Z ",
        "<30>1 a ",
        "(pid=1) ",
        "WARNING:a:",
        "[rank0]: ",
        'time=2026-05-21 21:02:57 level=INFO msg="',
        "eyJ",
        "--api-key a1b2c3d4e5 ",
        "?sig=abcdefgh",
        "://a:b",
        "api_key=",
        "'",
        '\\"',
        "\x1b[",
        "\t",
        "Error: ",
        ": 1% Completed | 1/1 [",
    ],
)
def test_a_megabyte_costs_no_more_than_its_bytes(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    parse_line(text)
    mask_secrets(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("ValueError: no", "ValueError"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: x", "huggingface_hub.errors.LocalEntryNotFoundError"),
        ("ray.exceptions.RayTaskError(ValueError): x", "ray.exceptions.RayTaskError"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("Error in chat completion stream generator.", ""),
        ("Exception caught. Request id: None", ""),
    ],
)
def test_which_lines_name_an_exception(message: str, name: str) -> None:
    assert exception_name(message) == name


SECRETS = [
    ("'api_key': ['dummy-key'], 'model': 'x'", "'api_key': ['***'], 'model': 'x'"),
    ("'api_key': ['a]b', \"c'd\"], 'z': 1", "'api_key': ['***'], 'z': 1"),
    ("'api_key': ['cut in the mid", "'api_key': ['***']"),
    ("'api_key': 'it\\'s', 'z': 1", "'api_key': '***', 'z': 1"),
    ("'api_key': None, 'hf_token': '***'", "'api_key': None, 'hf_token': '***'"),
    ("vllm serve --api-key abc --model q", "vllm serve --api-key *** --model q"),
    ("vllm serve --api-key=abc --model q", "vllm serve --api-key=*** --model q"),
    ("VLLM_API_KEY=xyz HF_TOKEN=abc", "VLLM_API_KEY=*** HF_TOKEN=***"),
    ('{\\"api_key\\": \\"x\\", \\"b\\": 1}', '{\\"api_key\\": \\"***\\", \\"b\\": 1}'),
    ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
    ("X-Api-Key: abc", "X-Api-Key: ***"),
    ("using hf_abcdefghijklmnopqrstuvwxyzABCDEF01 now", "using hf_*** now"),
    ("key nvapi-abcdefghijklmnopqrstuvwxyz0123", "key nvapi-***"),
    ("http://user:pw@host/x", "http://user:***@host/x"),
    ("'password': 'p w', next", "'password': '***', next"),
    ("vllm serve q --api-key abcdefgh12 ijklmnop34 --model q", "vllm serve q --api-key *** --model q"),
    ("server_args=ServerArgs(api_key='open sesame', host='x')", "server_args=ServerArgs(api_key='***', host='x')"),
    ("GET https://cas.hf.co/x?X-Amz-Signature=0a1b2c3d&b=1", "GET https://cas.hf.co/x?X-Amz-Signature=***&b=1"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijk end", "jwt *** end"),
    # not secrets
    ("use --api-key=KEY to protect it, 1234567890", "use --api-key=*** to protect it, 1234567890"),
    ("Please set a HF_TOKEN to enable higher rate limits", "Please set a HF_TOKEN to enable higher rate limits"),
    (
        "max_num_batched_tokens=32768, 'eos_token': '<|im_end|>'",
        "max_num_batched_tokens=32768, 'eos_token': '<|im_end|>'",
    ),
    ("hf_overrides={'architectures': 1}", "hf_overrides={'architectures': 1}"),
    ("KV cache: 0.3%, 22.4 tokens/s", "KV cache: 0.3%, 22.4 tokens/s"),
    ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
]


@pytest.mark.parametrize(("text", "masked"), SECRETS, ids=[text[:40] for text, _ in SECRETS])
def test_secrets_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@given(
    st.text(
        alphabet=st.characters(exclude_categories=("C", "Z"), exclude_characters="'\"\\[](){},;&"),
        min_size=6,
        max_size=40,
    ),
    st.sampled_from(
        ["'api_key': ['{}']", "'api_key': '{}'", "--api-key {}", "HF_TOKEN={}", '"hf_token": "{}"', "api_key={}"]
    ),
)
def test_a_named_secret_never_survives(secret: str, template: str) -> None:
    masked = mask_secrets(f"non-default args: {template.format(secret)} end")
    assert secret not in masked
    assert masked.endswith(" end")


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing(text: str) -> None:
    once = mask_secrets(text)
    assert mask_secrets(once) == once
