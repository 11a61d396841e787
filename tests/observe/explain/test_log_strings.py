"""Every text that vLLM logs or raises in twelve versions, in every dress that a log can give it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.line import SEVERITIES, LineKind, exception_name, parse_line
from spark_tui.observe.explain.model.timeline import PhaseId, StartOutcome
from spark_tui.observe.explain.model.tracker import LogTracker
from tests import TESTS
from tests.cases import all_cases

TABLE = TESTS / "fixtures" / "log-strings" / "vllm.txt"
LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
HEAD = "11-21 02:16:18 [core.py:109]"


@dataclass(frozen=True)
class Text:
    """One text with sample values. `level` as it is logged, `raised` the class that it is raised with."""

    message: str
    level: str
    raised: str


def texts() -> Iterator[Text]:
    kind = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("["):
            kind = line[1:-1]
            continue
        message = rendered(line.partition("\t")[2].replace("\\n", "\n"))
        yield Text(message, LEVELS.get(kind, "ERROR"), kind.removeprefix("raise ") if "raise " in kind else "")


def rendered(text: str) -> str:
    """`%s`, `%.2f`, `{name}` and their kin with values of the usual kind."""
    text = re.sub(r"%(?:\(\w+\))?[-+#0 ]?\d*(?:\.\d+)?([sdrifgx%])", lambda m: _VALUES[m[1]], text)
    return re.sub(r"\{\{|\}\}|\{[^{}]*\}", lambda m: {"{{": "{", "}}": "}"}.get(m[0], "value"), text)


_VALUES = {"s": "thing", "d": "3", "r": "'thing'", "i": "3", "f": "1.25", "g": "1.25", "x": "1f", "%": "%"}
ALL = list(texts())
LOGGED = [text for text in ALL if not text.raised]
RAISED = [
    text for text in ALL if re.fullmatch(r"[A-Za-z][\w.]*(?:Error|Exception|Interrupt|InvalidComponent)", text.raised)
]


def old_era(text: Text, message: str) -> str:
    return f"(EngineCore_DP0 pid=8) {text.level} {HEAD} {message}"


DRESSES: dict[str, Callable[[Text, str], str]] = {
    "every line has its process": old_era,
    "before the process has a name": lambda text, message: f"{text.level} {HEAD} {message}",
    "ranks": lambda text, message: f"(Worker_DP0_TP1_EP1 pid=8) {text.level} {HEAD} {message}",
    "ray": lambda text, message: (
        f"(ServeReplica:llm:LLMServer:a/b pid=2) (RayWorkerProc pid=8, ip=10.0.0.2) (Worker pid=8) {text.level} "
        f"{HEAD} {message}"
    ),
    "vllm-omni": lambda text, message: f"(EngineCore pid=8) [Stage-0] {text.level} {HEAD} {message}",
    "debug paths": lambda text, message: (
        f"(EngineCore pid=8) {text.level} 11-21 02:16:18 [model_executor/.../oracle/nvfp4.py:280] {message}"
    ),
    "cyan without a terminal (0.14)": lambda text, message: (
        f"\x1b[0;36m(EngineCore_DP0 pid=8)\x1b[0;0m {text.level} {HEAD} {message}"
    ),
    "a terminal": lambda text, message: (
        f"\x1b[0;36m(EngineCore pid=8)\x1b[0;0m \x1b[32m{text.level}\x1b[0m \x1b[90m11-21 02:16:18\x1b[0m "
        f"\x1b[90m[core.py:109]\x1b[0m {message}\r"
    ),
    "journald": lambda text, message: f"Nov 21 02:16:18 spark docker[812]: {old_era(text, message)}",
    "syslog": lambda text, message: f"<30>1 2026-11-21T02:16:18.1Z spark docker 812 - - {old_era(text, message)}",
    "compose": lambda text, message: f"vllm-1  | {old_era(text, message)}",
    "docker logs -t": lambda text, message: f"2026-11-21T02:16:18.123456789Z {old_era(text, message)}",
}  # fmt: skip


@all_cases("dress", list(DRESSES))
def test_a_logged_text_is_found_again_in_every_dress(dress: str) -> None:
    for text in LOGGED:
        for part in text.message.split("\n"):
            record = parse_line(DRESSES[dress](text, part))
            assert record.message.rstrip() == clean_line(part).rstrip(), text
            assert (record.level, record.pid or 8, record.severity) == (text.level, 8, SEVERITIES[text.level]), text
            assert bool(record.process) == (dress != "before the process has a name")


def test_a_logged_text_is_found_again_as_json() -> None:
    for text in LOGGED:
        line = {
            "asctime": "2026-11-21 02:16:18,685", "levelname": text.level, "name": "vllm.v1", "processName": "Main",
            "process": 8, "message": text.message, "vllm_process_name": "EngineCore",
        }  # fmt: skip
        record = parse_line(json.dumps(line))
        assert (record.process, record.pid, record.level) == ("EngineCore", 8, text.level)
        assert record.message == text.message.rstrip()


@pytest.mark.parametrize("form", ["bare", "in the engine core's block", "behind journald"])
def test_a_raised_text_names_its_exception(form: str) -> None:
    for text in RAISED:
        line = f"{text.raised}: {text.message}".partition("\n")[0]
        if form != "bare":
            line = f"(EngineCore pid=8) ERROR {HEAD} {line}"
        if form == "behind journald":
            line = f"Nov 21 02:16:18 spark docker[812]: {line}"
        record = parse_line(line)
        assert (record.kind, exception_name(record.message)) == (LineKind.EXCEPTION, text.raised), text


def started() -> LogTracker:
    """A start that is at its weights."""
    tracker = LogTracker()
    for message in (
        "vLLM API server version 0.20.0",
        "Initializing a V1 LLM engine (v0.20.0) with config: model='x', ",
        "Starting to load model x...",
    ):
        tracker.feed(None, f"(EngineCore pid=8) INFO {HEAD} {message}")
    return tracker


FATAL = ("EngineCore failed", "EngineCore encountered", "died unexpectedly", "exited unexpectedly")


def test_no_logged_text_alone_makes_a_start_fail() -> None:
    for text in LOGGED:
        tracker = started()
        for dress in ("every line has its process", "journald", "a terminal"):
            tracker.feed(None, DRESSES[dress](text, text.message.replace("\n", " ")))
        timeline = tracker.timeline()
        fatal = any(words in text.message for words in FATAL) or exception_name(text.message)
        assert fatal or timeline.failure is None, text
        assert len(timeline.phases) == len(PhaseId)


NOT_A_CAUSE = (
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "WorkerProc initialization failed",
    "Worker failed with error",
)


def test_what_the_engine_core_raises_at_last_is_why_it_failed() -> None:
    for text in RAISED:
        if text.raised == "KeyboardInterrupt" or any(words in text.message for words in NOT_A_CAUSE):
            continue
        tracker = started()
        for line in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            f"{text.raised}: {text.message}",
        ):
            for part in line.split("\n"):
                tracker.feed(None, f"(EngineCore pid=8) ERROR {HEAD} {part}")
        timeline = tracker.timeline()
        assert timeline.outcome is StartOutcome.FAILED, text
        assert timeline.failure is not None
        assert text.raised in timeline.failure.line or text.message.partition("\n")[0][:40] in timeline.failure.line


def test_the_table_is_whole() -> None:
    assert len(ALL) == 2745
    assert len(RAISED) > 1500
