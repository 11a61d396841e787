"""Failed starts: real lines from tests/fixtures/failures, within what vLLM prints around them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spark_tui.base.finding import Finding
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.timeline import BootTimeline
from spark_tui.observe.explain.model.tracker import LogTracker
from spark_tui.observe.explain.model.view import LogContext

FAILURES = Path(__file__).parent / "fixtures" / "failures"
SITE = "/usr/local/lib/python3.12/dist-packages/vllm"
POOL_GIB = 121.69


@dataclass(frozen=True)
class Case:
    """One entry of a table: how far the start came, who says the lines, and what they must be explained as.

    `words` are in the summary, `remedy` in the remedy; `override` is what would be applied.
    """

    name: str
    lines: list[str]
    cause: str
    by: str = "log"
    before: list[str] = field(default_factory=list)
    version: str = ""
    args: str = "'port': 8000, 'gpu_memory_utilization': 0.85"
    model: str = "a/b"
    reached: str = "config"
    process: str = "EngineCore"
    frame: str = ""
    exit_code: int | None = None
    words: list[str] = field(default_factory=list)
    override: dict[str, str] = field(default_factory=dict)
    guess: bool = False
    remedy: str = ""
    component: str | None = None

    @property
    def log(self) -> list[str]:
        """The whole log."""
        head = [*self._banner(), *self._reached()] if self.version else []
        return [*head, *self.before, *_SAID_BY[self.by](self)]

    def _banner(self) -> list[str]:
        head = "(APIServer pid=1) INFO 05-21 21:02:50 [utils.py:299]"
        return [
            f"{head}  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {self.version}",
            f"{head}   █▄█▀ █     █     █     █  model   {self.model}",
            f"{head} non-default args: {{'model_tag': '{self.model}', {self.args}, 'model': '{self.model}'}}",
        ]

    def _reached(self) -> list[str]:
        """Lines up to a phase: config, engine_init, weights, kv_cache, capture."""
        steps = {
            "config": [],
            "engine_init": [
                f"Initializing a V1 LLM engine (v{self.version}) with config: model='a/b', max_seq_len=65536"
            ],
            "weights": [
                "Starting to load model a/b...",
                "Filesystem type for checkpoints: EXT4. Checkpoint size: 76.31 GiB. Available RAM: 87.59 GiB.",
            ],
            "kv_cache": ["Model loading took 76.96 GiB memory and 123.456789 seconds"],
            "capture": ["Available KV cache memory: 16.05 GiB", "GPU KV cache size: 694,656 tokens"],
        }
        names = list(steps)[: list(steps).index(self.reached) + 1]
        return [
            f"({self.process} pid=199) INFO 05-21 21:03:00 [x.py:1] {text}" for name in names for text in steps[name]
        ]


def _in_core(case: Case) -> list[str]:
    head = f"({case.process} pid=199) ERROR 05-21 21:06:00 [core.py:1510]"
    return [
        f"{head} EngineCore failed to start.",
        f"{head} Traceback (most recent call last):",
        f'{head}   File "{SITE}/v1/engine/core.py", line 1482, in run_engine_core',
        *([f'{head}   File "{SITE}/{case.frame}'] if case.frame else []),
        *(f"{head} {line}" for line in case.lines),
        *_api_server("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
    ]


def _in_worker(case: Case) -> list[str]:
    head = "(Worker_TP0 pid=260) ERROR 05-21 21:06:00 [multiproc_executor.py:953]"
    repeated = "Exception: WorkerProc initialization failed due to an exception in a background process. "
    return [
        f"{head} WorkerProc failed to start.",
        f"{head} Traceback (most recent call last):",
        f'{head}   File "{SITE}/v1/executor/multiproc_executor.py", line 900, in worker_main',
        *(f"{head} {line}" for line in case.lines),
        *_in_core(Case("", [f"{repeated}See stack trace for root cause."], "")),
    ]


def _api_server(*lines: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/vllm", line 8, in <module>',
        "    sys.exit(main())",
        f'  File "{SITE}/entrypoints/cli/serve.py", line 156, in cmd',
        *lines,
    ]


def _pydantic(case: Case) -> list[str]:
    return _api_server(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        f"  Value error, {case.lines[0]} [type=value_error, input_value=ArgsKwargs((), {{'mode...), input_type=Args]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
    )


_SAID_BY: dict[str, Callable[[Case], list[str]]] = {
    "core": _in_core,
    "worker": _in_worker,
    "api_server": lambda case: _api_server(*case.lines),
    "pydantic": _pydantic,
    "log": lambda case: case.lines,
}


def cases() -> list[Case]:
    """Every table's entries."""
    return [
        Case(**entry)
        for path in sorted(FAILURES.glob("*.toml"))
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    ]


def track(lines: list[str], exit_code: int | None = None) -> BootTimeline:
    """What the log, and then the container's end, say."""
    tracker = LogTracker()
    tracker.feed_many(("", line) for line in lines)
    if exit_code is not None:
        tracker.container_ended(exit_code)
    return tracker.timeline()


def explain(lines: list[str], exit_code: int | None = None) -> Finding:
    """The cause, which there must be."""
    cause = explain_failure(track(lines, exit_code), LogContext(exit_code=exit_code, pool_gib=POOL_GIB))
    assert cause is not None
    return cause
