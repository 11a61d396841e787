"""How the libraries inside an engine, and other engines, write their lines.

Each pattern may name `time`, `level` (a word or its initial), `source` and `process`; what it does not take is the
message. They are tried in turn, so the ones that say more stand first.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LEVELS: Final = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_SLASHED = r"\d{4}/\d\d/\d\d(?: -)? \d\d:\d\d:\d\d"

_FOREIGN: Final = (
    # torch and glog: `[rank0]:W0521 21:08:35.966000 199 site-packages/torch/x.py:1731] message`
    (
        "[a",
        re.compile(
            r"(?:\[rank\d+\]:)?\[?(?P<level>[VIWEFC])(?P<time>\d{4} [\d:]{8}\.\d{1,9})(?: \d+)? "
            r"(?P<source>\S{1,200}:\d+)\] ?"
        ),
    ),
    # FlashInfer: `2026-05-21 21:10:15,615 - INFO - autotuner.py:457 - flashinfer.jit: message`
    (
        "0",
        re.compile(rf"(?P<time>{_STAMP}) - (?P<level>{LEVELS}) - (?P<source>\S{{1,100}}:\d+) - (?:[\w.]{{1,60}}: )?"),
    ),
    # Ray, logging's and loguru's usual shapes: `2026-05-21 21:02:57,123 INFO worker.py:1821 -- message`
    (
        "0",
        re.compile(
            rf"(?P<time>{_STAMP})[ \t|\-]{{1,4}}\[?(?P<level>{LEVELS})\]?[ \t|:\-]{{1,10}}"
            r"(?:(?P<source>[\w./:<>]{1,100}:\d+) (?:-- |- )?)?"
        ),
    ),
    # NCCL: `host:199:412 [0] misc/ibvwrap.cc:94 NCCL WARN message`, since 2.24 with a time in front
    (
        "[0a",
        re.compile(
            rf"(?:\[(?P<time>{_STAMP})\] )?(?P<source>[\w.\-]{{1,64}}:\d+:\d+ \[\d+\]) (?:[\w./]{{1,80}}:\d+ )?"
            r"NCCL (?P<level>INFO|WARN|TRACE|ERROR) "
        ),
    ),
    # SGLang: `[2026-03-11 13:53:21 TP0] message`
    (
        "[",
        re.compile(
            rf"\[(?P<time>{_STAMP})(?: (?P<process>[A-Z]\w{{0,20}}(?: \w{{1,10}}){{0,5}}))?\] "
            rf"(?:(?P<level>{LEVELS}):? +)?"
        ),
    ),
    # TensorRT-LLM, C++ and Python: `[TensorRT-LLM][INFO] message`, `[05/21/2026-21:03:22] [TRT-LLM] [I] message`
    ("[", re.compile(r"\[(?P<source>TensorRT-LLM)\](?:\[(?P<level>[A-Z]{4,8})\])? ?")),
    (
        "[",
        re.compile(
            r"\[(?P<time>\d\d/\d\d/\d{4}-[\d:]{8})\] \[(?P<source>TRT-LLM)\](?: \[(?P<process>RANK \d{1,4})\])?"
            r" \[(?P<level>[VDIWEF])\] ?"
        ),
    ),
    # llama.cpp with --log-timestamps, a router's child with its port: `[53871] 0.06.903.542 I srv  init: message`
    ("[0", re.compile(r"(?:\[(?P<process>\d{2,5})\] )?(?P<time>\d{1,5}\.\d\d\.\d{3}\.\d{3}) (?P<level>[DIWE]) ")),
    # Go, as Ollama writes it: slog, the old log package, and gin's access lines (their caller looks at those)
    (
        "a",
        re.compile(
            rf"time=(?P<time>{_STAMP}\S{{0,8}}) level=(?P<level>[A-Z]{{4,8}})(?: source=(?P<source>\S{{1,100}}))? msg="
        ),
    ),
    ("0", re.compile(rf"(?P<time>{_SLASHED}) (?P<source>[\w.]{{1,60}}\.go:\d+): (?:(?P<level>[A-Z]{{4,7}}) )?")),
    ("[", re.compile(rf"\[(?P<source>GIN)\] (?P<time>{_SLASHED}) \| +")),
    # Rust's tracing: ` INFO vllm_server::http: message`, its time taken off as a stamp
    (
        " a",
        re.compile(
            r" {0,3}(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) {1,2}(?P<source>[a-z]\w{0,60}(?:::\w{1,60}){0,8})"
            r"(?:\{[^{}]{0,200}\})?: "
        ),
    ),
    # UCX: `[1716325200.123456] [spark:199  :0] ucp_context.c:1205 UCX  WARN  message`
    (
        "[",
        re.compile(
            r"\[(?P<time>\d{10}\.\d{1,9})\] \[[^\]]{1,100}\] +(?P<source>\S{1,100}:\d+) +UCX +(?P<level>[A-Z]{4,5}) +"
        ),
    ),
    # logging without a format: `WARNING:root:message`
    ("a", re.compile(rf"(?P<level>{LEVELS}):(?P<source>[\w.]{{1,80}}):")),
    # Python warnings: `/path/x.py:138: FutureWarning: message`
    (
        "0a/<",
        re.compile(r"(?P<source>[^\s:]{1,300}\.py:\d+|<frozen [\w.]{1,80}>:\d+): (?=(?P<level>\w{0,60}Warning): )"),
    ),
    ("a", re.compile(r"(?=(?P<level>Warning): )")),
    ("[", re.compile(r"\[(?P<source>transformers|huggingface_hub|accelerate|ray|Gloo)\] ")),
    ("a", re.compile(r"(?P<source>nanobind): ")),
    # argparse: `vllm serve: error: unrecognized arguments: --x`
    ("a0", re.compile(r"(?=(?:[\w.\-]{1,40} ){0,2}[\w.\-]{1,40}: (?P<level>error): )")),
)
"""With what such a line may begin: `[`, `0` a digit, a space, another sign as itself, `a` anything else."""
_BY_FIRST: Final = {
    kind: tuple(pattern for kinds, pattern in _FOREIGN if kind in kinds) for kind in ("[", "0", " ", "/", "<", "a")
}
_DIGITS: Final = dict.fromkeys("0123456789", "0")
_WORDS = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG", "VERBOSE": "DEBUG", "error": "ERROR"}
_INITIALS = {"V": "DEBUG", "D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "C": "CRITICAL"}
_KNOWN = frozenset(LEVELS.split("|"))
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')
_ESCAPED = re.compile(r'\\(["\\])')


class Foreign(NamedTuple):
    """A foreign line taken apart, as a LogRecord has it. `access`: it is one HTTP request."""

    process: str
    level: str
    time: str
    source: str
    message: str
    access: bool = False


def parse_foreign(message: str) -> Foreign | None:
    """The line as one of the known loggers writes it; None for any other."""
    first = message[:1]
    for pattern in _BY_FIRST.get(_DIGITS.get(first, first)) or _BY_FIRST["a"]:
        match = pattern.match(message)
        if match:
            found = match.groupdict()
            source = found.get("source") or ""
            said = message[match.end() :]
            return Foreign(
                (found.get("process") or "").replace("RANK ", "rank"),
                level_of(found.get("level") or ""),
                found.get("time") or "",
                source,
                (_unquoted(said) if said[:1] == '"' else said) or message,
                source == "GIN",
            )
    return None


def level_of(word: str) -> str:
    """A level in any spelling as one of DEBUG INFO WARNING ERROR CRITICAL; empty for what is none."""
    if word.endswith("Warning"):
        return "WARNING"
    word = _INITIALS.get(word) or _WORDS.get(word, word)
    return word if word in _KNOWN else ""


def _unquoted(said: str) -> str:
    """`"model weights" device=CUDA0` -> `model weights device=CUDA0`."""
    match = _QUOTED.match(said)
    return said if match is None else _ESCAPED.sub(r"\1", match[1]) + said[match.end() :]
