"""Rules for lines that several runtimes share: bars of Python engines, tracebacks, native programs that end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spark_tui.domain.logs.line import BAR, bar_left, share
from spark_tui.domain.logs.rules.rule import (
    Broken,
    Downloading,
    Enter,
    Fact,
    Finish,
    Known,
    Report,
    Sign,
    Table,
    found,
    table,
    when,
)
from spark_tui.domain.logs.timeline import PhaseId as P


def weights(message: str, known: Known) -> Iterator[Fact]:
    """A bar of shards (`17% Completed | 1/6 [`), a drafter's too, or only the word that weights are loading."""
    if message.startswith("Loading drafter model"):
        yield Enter(P.WEIGHTS)
        yield Sign.DRAFTER  # a drafter of its own may have to be downloaded first
        yield Report(P.WEIGHTS)
        return
    parallel = message.startswith(("Loading weights", "Loading safetensors weights in parallel"))
    if "% Completed |" not in message and not parallel and not message.startswith("Multi-thread"):
        return
    yield Enter(P.WEIGHTS)
    yield Sign.SHARDS
    if bar := BAR.match(message):
        done, total = int(bar[3]), int(bar[4])
        unit = "shards" if "shards" in bar[1] or "Completed" in bar[0] else "weights"
        detail = f"{'drafter ' * known.drafter}{done}/{total} {unit}"
        yield Report(P.WEIGHTS, detail, share(done, total), bar_left(message, bar.end()))


def fetching(message: str, known: Known) -> Iterator[Fact]:
    """The Hub's bar, where an engine shows it: `Fetching 7 files:  29%|██▊       | 2/7 [00:10<00:25,  5.1s/it]`."""
    bar = BAR.match(message)
    if bar and not known.shards_begun:
        done, total = int(bar[3]), int(bar[4])
        progress = share(done, total) if done < total else 1.0
        yield Downloading(f"{done}/{total} files", progress, bar_left(message, bar.end()))


def capturing(message: str, known: Known) -> Iterator[Fact]:
    """A bar of CUDA graphs. vLLM's Model Runner V2 captures once to measure, before the KV cache has its size."""
    phase = P.KV_CACHE if known.facts.kv_tokens is None else P.CAPTURE
    yield Enter(phase)
    if bar := BAR.match(message):
        done, total = int(bar[3]), int(bar[4])
        yield Report(phase, f"{done}/{total} graphs", share(done, total), bar_left(message, bar.end()))


_AUTOTUNE: Final = (
    "[AutoTuner]: ", "[Autotuner]: ", "Autotuning FlashInfer", "Autotuning process starts", "Running FlashInfer",
    "Running autotuner warmup", "JIT kernel warmup starting",
)  # fmt: skip


def autotune(message: str, known: Known) -> Iterator[Fact]:
    """FlashInfer tries its kernels."""
    if message.startswith(("[Autotuner]: Autotuning process ends", "JIT kernel warmup f")):
        if known.facts.kv_tokens is not None:
            yield Finish(P.AUTOTUNE, P.ENGINE_READY)
    elif message.startswith(_AUTOTUNE):
        yield tuning(known)
        if bar := BAR.match(message):
            name = bar[1].rpartition("Tuning ")[2]
            yield Report(P.AUTOTUNE, name[:40], share(int(bar[3]), int(bar[4])))


def tuning(known: Known) -> Enter:
    """Kernels are tuned or warmed up. Before the KV cache has its size that is part of measuring memory."""
    return Enter(P.KV_CACHE if known.facts.kv_tokens is None else P.AUTOTUNE)


def application(message: str, known: Known) -> Iterator[Fact]:
    """uvicorn is up: ready, unless the engine has a line of its own for that."""
    if message.startswith("Application startup complete") and not known.own_ready_line:
        yield Sign.READY


_ENDS: Final = re.compile(
    # llama.cpp
    r"main: exiting due to|(?:srv +)?(?:load_model|start|operator\(\)|main): (?:failed to load model|couldn't bind)"
    r"|llama_model_load: error loading model|common_init_from_params: failed to load model"
    r"|error: invalid argument|error while handling argument|error: unexpected argument"
    # Ollama and other Go and Rust programs
    r"|Error: (?:listen |could not|unable to|No such option|Invalid value|Got unexpected)"
    r"|thread '[^']{1,60}'(?: \(\d+\))? panicked at|panic: |fatal error: "
    # C++, libc, the interpreter
    r"|terminate called (?:after|without)|Fatal Python error: |Segmentation fault|Illegal instruction|Bus error"
    r"|!!!!!!! Segfault encountered"
    # what stands in for the container's command; a shell's complaint is left to the exit code: scripts go on after it
    r"|exec \S{1,200}: (?:exec format error|no such file or directory)"
)


def ends(message: str, known: Known) -> Iterator[Fact]:
    """A program that is not Python says why it ends. While it serves, that is not the end."""
    if not known.serving and _ENDS.match(message):
        yield Broken.NATIVE


ENDINGS: Final = (
    "main: srv start: llama_model_load: common_init_from_params: error: error Error: thread panic: fatal terminate "
    "Fatal Segmentation Illegal Bus !!!!!!! exec"
)
"""First words of lines that `ends` looks at."""

COMMON: Final[Table] = table(
    (ENDINGS, ends),
    ("Traceback", when("Traceback (most recent call last)", Broken.TRACEBACK)),
    ("File", lambda _message, _known: (Broken.FRAME,)),
    ("Value Assertion", lambda _message, _known: (Broken.DETAIL,)),
    ("Fetching", fetching),
)
"""For every runtime, and for a log of an unknown one."""

PYTHON_ENGINE: Final[Table] = table(
    ("Loading Multi-thread", weights),
    ("Capturing", capturing),
    ("[AutoTuner]: [Autotuner]: Autotuning Running JIT", autotune),
    ("Application", application),
    (
        "Prefetching",
        found(
            r"Prefetching checkpoint files: \d{1,3}% \((\d{1,7})/(\d{1,7})\)",  # into the page cache
            lambda m, known: (
                ()
                if known.shards_begun
                else (Report(P.WEIGHTS, f"page cache {m[1]}/{m[2]}", share(int(m[1]), int(m[2]))),)
            ),
        ),
    ),
)
"""For vLLM, SGLang and TensorRT-LLM, which share loaders, FlashInfer and uvicorn."""
