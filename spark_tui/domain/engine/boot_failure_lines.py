"""The few lines around a failure that help to decide: chained exceptions, the words of CUDA, NCCL and the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from spark_tui.domain.engine.failures_memory import OUT_OF_MEMORY
from spark_tui.domain.engine.failures_rules import recognise
from spark_tui.domain.engine.log_line import LineKind, LogRecord, exception_name, parse_line
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.text import clean_line

MAX_SHOWN = 2_000
MAX_SEARCHED = 600
MAX_BEFORE, MAX_AFTER = 4, 3

_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# The frame that tells what an engine was doing: reading weights, or measuring and warming up.
_STEP = re.compile(
    r", in (load_model|load_weights|determine_available_memory|profile_run|profile_cudagraph_memory|_dummy_run"
    r"|capture_model|compile_or_warm_up_model|initialize_kv_caches?|_allocate_kv_cache_tensors|kernel_warmup"
    r"|_dummy_sampler_run)\b"
)
_OUT_OF_MEMORY = re.compile(OUT_OF_MEMORY)
# Words of libraries that stand above the exception and say more than it does.
_TELLING = re.compile(
    r"not enough GPU memory|[Oo]ut of memory|NV_ERR_NO_MEMORY|NCCL WARN|ibv_\w+ failed|ptxas (?:fatal|error)"
    r"|no kernel image|only supports sm|error: linker|Cannot access gated repo|[45]\d\d Client Error"
    r"|Repository Not Found|Network is unreachable|Name or service not known|name resolution"
    r"|error loading model|failed to (?:open|load|initialize)|unknown model architecture|what\(\): "
    r"|died unexpectedly|Failed to (?:load model|initialize executor)|Fatal Python error|panicked at"
)
_GOES_ON = re.compile(
    r"Make sure|(?:[45]\d\d) Client Error|Cannot access|Access to model|Repository Not Found|Revision Not Found"
    r"|Please|If you|If this|Check your|`?ptxas`?|ptxas |what\(\): |For debugging|.{0,40}Error"
)


def deciding_lines(line: str, before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The line that decides and, in the log's order, the few around it that say more. Cleaned, masked, no doubles."""
    above = _above(line, before)
    below = _below(after)
    return tuple(dict.fromkeys([*above, line, *below]))


def last_words(recent: Iterable[str]) -> LogRecord | None:
    """Of a log that gives no reason, the line that most likely does: one that is known, an error, the last one."""
    error = last = None
    for text in reversed(list(recent)):
        record = parse_line(text)
        if record.kind in (LineKind.BLANK, LineKind.PROGRESS, LineKind.ACCESS) or _is_noise(text):
            continue
        last = last or record
        if record.level in ("", "ERROR", "CRITICAL") and recognise(record.message):
            return record
        if error is None and record.severity >= 40 and record.kind is not LineKind.TRACEBACK:
            error = record
    return error or last


def second_line(after: Sequence[str]) -> str:
    """`max_model_len` and `  Input should be a valid integer` below pydantic's head, as one sentence."""
    field, said = (parse_line(text).message for text in after[:2])
    if re.fullmatch(r"[\w.]{1,80}", field) and said.startswith("  "):
        return f"{field}: {said.strip()}"
    return ""


def shown(line: str) -> str:
    """A line as a person may see it: no control codes, no secrets."""
    return mask_secrets(clean_line(line).strip())[:MAX_SHOWN]


def _above(line: str, before: Sequence[str]) -> list[str]:
    """Chained exceptions, library words and the telling frame above the deciding line, nearest ones first chosen."""
    found: list[str] = []
    wants_frame, raised, chained = _OUT_OF_MEMORY.search(line) is not None, is_raised(line), False
    for text in reversed(before[: _place_of(line, before)]):
        if len(found) == MAX_BEFORE:
            break
        if wants_frame and "File " in text and _STEP.search(text):
            wants_frame = False
            found.append(shown(parse_line(text).message))
        elif _worth_reading(text[:MAX_SEARCHED]):
            record = parse_line(text)
            said = shown(record.message)
            linked, chained = chained, said.startswith(_CHAINED)
            if (raised and linked and record.kind is LineKind.EXCEPTION) or (
                record.kind is not LineKind.TRACEBACK and _tells(record, said)
            ):
                found.append(said)
    return [said for said in reversed(found) if said != line]


def _tells(record: LogRecord, said: str) -> bool:
    return (not record.level or record.severity >= 30) and _TELLING.search(said) is not None


def is_raised(line: str) -> bool:
    """The line names an exception, or is pydantic's sentence below one."""
    return bool(exception_name(line)) or line.startswith(("Value error, ", "Assertion failed, "))


def _place_of(line: str, before: Sequence[str]) -> int:
    """Where the deciding line stands: the last of them, unless it was decided upon later."""
    needle = line[:60]
    for at in range(len(before) - 1, -1, -1):
        if needle and needle in before[at]:
            return at
    return len(before)


def _worth_reading(text: str) -> bool:
    return "rror" in text or "above exception" in text or _TELLING.search(text) is not None


def _below(after: Sequence[str]) -> list[str]:
    """The rest of an exception that has several lines, as the Hub's have."""
    found: list[str] = []
    for text in after:
        record = parse_line(text)
        if record.kind is LineKind.BLANK:
            continue
        message = record.message.strip()
        if record.level in ("INFO", "DEBUG", "WARNING") or _is_noise(text):  # others go on writing
            continue
        if not _GOES_ON.match(message):
            break
        if record.kind is not LineKind.EXCEPTION:
            found.append(shown(message))
        if len(found) == MAX_AFTER:
            break
    return found


_NOISE = (
    "nanobind:",
    "resource_tracker:",
    "warnings.warn(",
    "Shutting down",
    "Waiting for application shutdown",
    "Application shutdown complete",
    "Finished server process",
    "[shutdown]",
)


def _is_noise(text: str) -> bool:
    """Of a whole line: what stands before a colon may have been taken for its source."""
    return any(words in text for words in _NOISE)
