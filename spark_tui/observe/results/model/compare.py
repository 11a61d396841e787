"""Like with like: what two results have in common, what differs, and what a difference in their numbers then means.

The load (lengths, content, cache, sampling) must be the same, or the numbers measure different things. The engine may
differ: that is what is compared; every difference is named, because each may be the cause.

Published figures are re-expressed facts, each with its source. Names are as the sources write them. Only single figures
are cited from sources that state no licence; djangodevreng's data are under CC BY 4.0, and this selection of them (one,
five and ten streams, prompts and answers of 1024 tokens) is a change of their form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from typing import Final

from msgspec import Struct

from spark_tui.observe.results.model.plan import Conditions, PromptCache, quantization_words
from spark_tui.observe.results.model.record import ConfidenceInterval, deviation, mean_interval, student_t
from spark_tui.observe.results.model.run import BenchRun, Level

SPARK: Final = "DGX Spark"
SCATTER: Final = 0.15
"""How far entries of one model on Spark Arena differ between machines and days."""


class PublishedSource(Struct, frozen=True):
    """Where figures come from. `licence` is that of the data; `not stated` means that single figures are cited."""

    id: str
    title: str
    url: str
    licence: str


class Reference(Struct, frozen=True):
    """One published measurement. `decode_rate` is output tokens per second of all `streams` together after prefill
    (per stream where there is one), `prefill_rate` prompt tokens per second; lengths in tokens, None: not stated.
    `machine` is its kind, `machines` how many served together, `date` as the source dates it."""

    model: str
    quantization: str
    runtime: str
    source: str
    date: str
    version: str = ""
    streams: int = 1
    decode_rate: float | None = None
    prefill_rate: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    machine: str = SPARK
    machines: int = 1
    conditions: str = ""


class PublishedComparison(Struct, frozen=True):
    """A published figure beside one of a run. `ratio` is ours over theirs; `differs` what is not alike, in words."""

    reference: Reference
    source: PublishedSource
    ours: float
    theirs: float
    ratio: float
    differs: tuple[str, ...]

    @property
    def within_scatter(self) -> bool:
        """No further apart than two machines of one kind are."""
        return abs(self.ratio - 1) <= SCATTER


_WORDS: Final = re.compile(r"[a-z0-9.]+")
_FORMATS: Final = frozenset(
    ("nvfp4", "mxfp4", "mxfp8", "fp8", "fp4", "bf16", "w4a16", "w4a4", "w8a8", "awq", "gptq", "int4", "int8", "gguf")
)


def family(model: str) -> frozenset[str]:
    """A model's name as a set of words, without its publisher, its format and what only decorates it:
    `nvidia/Qwen3.6-35B-A3B-NVFP4` and `RedHatAI/Qwen3.6-35B-A3B-FP8` are of one family."""
    words = _WORDS.findall(model.rpartition("/")[2].lower())
    return frozenset(words) - _FORMATS - {"nvidia", "instruct", "it", "hf", "vllm", "spec", "reasoning"}


def beside(
    run: BenchRun, references: Iterable[Reference], sources: Iterable[PublishedSource]
) -> tuple[PublishedComparison, ...]:
    """The published figures that are comparable with this run, the most alike first. None for a simulated run, for a
    machine that is no Spark, or for a run of repeated prompts."""
    if why_none(run):
        return ()
    known, mine = {source.id: source for source in sources}, family(run.conditions.model)
    found = []
    for reference in references:
        if family(reference.model) != mine or reference.decode_rate is None:
            continue
        level = next((each for each in run.sweep if each.streams == reference.streams), None)
        if why_not_beside(run, reference) or level is None:
            continue
        alone = level.decode_rate if level.streams == 1 else None
        ours = alone.p50 if alone is not None else level.output_rate
        if ours is not None:
            differs = tuple(_differences(run, reference))
            theirs = reference.decode_rate
            found.append(PublishedComparison(reference, known[reference.source], ours, theirs, ours / theirs, differs))
    return tuple(sorted(found, key=lambda each: len(each.differs)))


def why_none(run: BenchRun) -> str:
    """Why no published figure at all is comparable with this run; empty where some may be."""
    if run.conditions.simulated:
        return "This run is simulated: it is compared with nothing real."
    if not run.conditions.is_spark:
        return "Published figures are for DGX Sparks; this machine is not one."
    if run.plan.prompt_cache is not PromptCache.COLD:
        return "This run repeated its prompts, published ones did not."
    return ""


def why_not_beside(run: BenchRun, reference: Reference) -> str:
    """Why a figure of the same model is not comparable with this run's; empty where only the streams may differ."""
    conditions = run.conditions
    if reference.machines != 1:
        return f"of {reference.machines} machines"
    if reference.machine != SPARK:
        return f"of a {reference.machine}"
    bits = quantization_words(conditions.model, conditions.quantization)
    if reference.quantization.upper() != bits:
        return f"{reference.quantization}, not {bits or 'a known format'}"
    if reference.runtime != conditions.runtime:
        return f"{reference.runtime}, not {conditions.runtime or 'a known runtime'}"
    return ""


def _differences(run: BenchRun, reference: Reference) -> list[str]:
    found = []
    if not reference.version:
        found.append("their version is not stated")
    elif reference.version != run.conditions.version:
        ours = run.conditions.version or "a known version"
        found.append(f"{reference.runtime} {reference.version}, not {ours}")
    for what, theirs, planned in (
        ("prompts", reference.input_tokens, run.plan.input_tokens),
        ("answers", reference.output_tokens, run.plan.output_tokens),
    ):
        if theirs is None:
            found.append(f"the length of their {what} is not stated")
        elif theirs != planned:
            found.append(f"{what} of {theirs:,} tokens, not {planned:,}")
    if reference.conditions:
        found.append(reference.conditions)
    if reference.streams > 1:
        found.append("their throughput of several streams may leave prefill out")
    return found


NOT_STATED: Final = "not stated; single figures cited"

SOURCES: Final = (
    PublishedSource(
        "djangodevreng",
        "DGX Spark benchmarks by djangodevreng: 38 runs of llama-benchy 0.4.0",
        "https://github.com/djangodevreng/dgx-spark-benchmarks",
        "CC BY 4.0",
    ),
    PublishedSource(
        "primitivecontext", "A deployment registry of one RTX PRO 6000, one DGX Spark and one RTX 4090", "", NOT_STATED
    ),
    PublishedSource(
        "avarok",
        "README of dgx-vllm, Avarok's image for NVFP4",
        "https://github.com/Avarok-Cybersecurity/dgx-vllm",
        NOT_STATED,
    ),
    PublishedSource("forum-fp4", "NVIDIA's forum: state of FP4/NVFP4 support for DGX Spark in vLLM", "", NOT_STATED),
    PublishedSource("part-25", "DGX Spark series, part 25: Nemotron 3 Nano at 74.75 tok/s", "", NOT_STATED),
    PublishedSource(
        "nvidia",
        "NVIDIA: how DGX Spark's performance enables intensive AI tasks",
        "https://developer.nvidia.com/blog",
        NOT_STATED,
    ),
    PublishedSource("lmsys", "LMSYS: DGX Spark review and its sheet", "https://lmsys.org/blog", NOT_STATED),
    PublishedSource("ggml", "llama.cpp: benches/dgx-spark", "https://github.com/ggml-org/llama.cpp", "MIT"),
    PublishedSource("spark-arena", "Spark Arena's leaderboard", "https://spark-arena.com", NOT_STATED),
    PublishedSource("kubis", "kubis.ai: topology benchmark", "", NOT_STATED),
    PublishedSource(
        "vllm-blog",
        "vLLM blog: vLLM on DGX Spark, 1 June 2026",
        "https://vllm.ai/blog/2026-06-01-vllm-dgx-spark",
        NOT_STATED,
    ),
    PublishedSource("conselara", "conselara.dev: vLLM 0.19 on two Sparks", "", NOT_STATED),
    PublishedSource(
        "elsung",
        "dgx-spark-deepseek-v4-flash by elsung",
        "https://github.com/elsung/dgx-spark-deepseek-v4-flash",
        NOT_STATED,
    ),
)

_RUNS: Final = """
google/gemma-4-26B-A4B-it | BF16 | 2026-08-06 | 0.26.0 | 23.88 2014.62 | 52.22 4262.37 | 90.81 5079.67 | fp8 KV
google/gemma-4-26B-A4B-it | BF16 | 2026-08-16 | 0.26.0 | 24.12 2387.55 | 58.63 4084.82 | 84.56 5077.55 | fp8 KV
nvidia/Gemma-4-26B-A4B-NVFP4 | NVFP4 | 2026-08-06 | 0.26.0 | 29.9 2580.07 | 87.09 5392.52 | 140.63 6273.65 | Marlin, fp8 KV
nvidia/Gemma-4-26B-A4B-NVFP4 | NVFP4 | 2026-08-16 | 0.26.0 | 29.45 3123.2 | 99.32 5532.44 | 135.07 5717.48 | Marlin, fp8 KV
google/gemma-4-31B-it | BF16 | 2026-08-06 | 0.26.0 | 3.67 588.94 | 10.88 749.02 | 18.31 1055.2 | fp8 KV
nvidia/Gemma-4-31B-IT-NVFP4 | NVFP4 | 2026-08-16 | 0.26.0 | 6.92 767.56 | 23.02 859.38 | 36.95 885.95 | Marlin, fp8 KV
google/gemma-4-E2B-it | BF16 | 2026-08-17 | 0.26.0 | 39.62 2542.52 | 160.43 9048.9 | 254.44 12509.86 | fp8 KV
google/gemma-4-E4B-it | BF16 | 2026-08-17 | 0.26.0 | 19.56 2871.46 | 65.79 5275.3 | 134.08 6766.94 | fp8 KV
openai/gpt-oss-20b | MXFP4 | 2026-08-14 | 0.26.0 | 46.47 11792.96 | 129.65 6739.34 | 180.39 7705.55 | fp8 KV
ibm-granite/granite-4.1-8b | BF16 | 2026-08-09 | 0.26.0 | 12.26 2942.64 | 39.69 3351.07 | 60.09 3576.91 | fp8 KV
Kwaipilot/KAT-Coder-V2.5-Dev | BF16 | 2026-08-13 | 0.26.0 | 30.59 1566.38 | 60.16 3272.29 | 75.79 4020.47 | fp8 KV
LiquidAI/LFM2.5-2.6B | BF16 | 2026-08-08 | 0.26.0 | 32.26 17617.01 | 197.17 11850.95 | 369.81 10236.95 | fp8 KV
mistralai/Ministral-3-3B-Instruct-2512 | BF16 | 2026-08-09 | 0.26.0 | 52.04 3024.6 | 194.51 6211.62 | 356.5 10083.28 |
mistralai/Ministral-3-8B-Instruct-2512 | BF16 | 2026-08-07 | 0.26.0 | 25.1 2040.29 | 105.4 4448.88 | 183.89 6678.61 | fp8 KV
mistralai/Mistral-Small-4-119B-2603-NVFP4 | NVFP4 | 2026-08-13 | 0.26.0 | 31.07 2322.26 | 60.79 3433.68 | 80.21 3718.61 | Marlin, fp8 KV
meta-models/Muse-Glimmer-30B | BF16 | 2026-08-12 | 0.26.1rc1.dev608 | 20.72 2153.41 | 55.92 1136.95 | 86.23 1349.33 | speculative
meta-models/Muse-Glimmer-30B | BF16 | 2026-08-12 | 0.26.1rc1.dev608 | 4.28 1570.74 | 20.8 1100.81 | 40.61 1317.97 |
nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 | BF16 | 2026-08-09 | 0.26.0 | 29.27 2388.16 | 54.6 4101.5 | 72.26 5096.37 | fp8 KV
nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8 | FP8 | 2026-08-08 | 0.26.0 | 46.43 1440.91 | 96.16 3261.23 | 129.66 4645.98 | fp8 KV
nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4 | NVFP4 | 2026-08-13 | 0.26.0 | 63.14 2766.01 | 150.46 5175.15 | 206.05 6002.43 | Marlin, fp8 KV
nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16 | BF16 | 2026-08-06 | 0.26.0 | 24.94 3241.16 | 124.73 6254.72 | 224.49 6903.03 | fp8_e4m3 KV
nvidia/NVIDIA-Nemotron-3-Nano-4B-FP8 | FP8 | 2026-08-08 | 0.26.0 | 42.06 1643.61 | 178.26 4616.51 | 308.16 7495.97 | fp8_e4m3 KV
nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16 | BF16 | 2026-08-05 | 0.26.0 | 29.39 2185.1 | 58.64 3868.52 | 73.44 5098.81 |
nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-FP8 | FP8 | 2026-08-06 | 0.26.0 | 56.21 1316.14 | 103.26 3471.76 | 145.09 5866.47 | fp8 KV
nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4 | NVFP4 | 2026-08-07 | 0.26.0 | 64.79 2124.09 | 137.26 3858.98 | 218.91 5744.17 | Marlin
nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4 | NVFP4 | 2026-08-15 | 0.26.0 | 21.47 944.74 | 50.86 1112.58 | 72.58 1129.65 | Marlin, fp8 KV
nvidia/Nemotron-Cascade-2-30B-A3B | BF16 | 2026-08-13 | 0.26.0 | 29.06 2396.11 | 54.7 4107.9 | 75.25 5113.97 | fp8 KV
Qwen/Qwen3.5-0.8B | BF16 | 2026-08-07 | 0.26.0 | 116.03 - | 406.37 25360.95 | 563.69 25275.46 | fp8_e4m3 KV
Qwen/Qwen3.5-2B | BF16 | 2026-08-07 | 0.26.0 | 43.04 24649.46 | 173.43 10075.15 | 321.02 14109.39 | fp8 KV
Qwen/Qwen3.5-4B | BF16 | 2026-08-07 | 0.26.0 | 20.54 2556.15 | 117.89 5463.5 | 216.04 6024.65 | fp8 KV
Qwen/Qwen3.5-9B | BF16 | 2026-08-07 | 0.26.0 | 12.42 1651.31 | 64.89 3198.25 | 122.57 3180.06 | fp8 KV
Qwen/Qwen3.6-27B | BF16 | 2026-08-13 | 0.26.0 | 4.54 955.71 | 20.86 1076.53 | 39.82 1093.72 | fp8 KV
Qwen/Qwen3.6-27B-FP8 | FP8 | 2026-08-14 | 0.26.0 | 7.8 551.9 | 36.8 601.16 | 65.43 586.49 | Marlin, fp8 KV
Qwen/Qwen3.6-35B-A3B | BF16 | 2026-08-08 | 0.26.0 | 30.49 1802.37 | 64.61 3042.99 | 84.61 3279.72 | fp8 KV
Qwen/Qwen3.6-35B-A3B-FP8 | FP8 | 2026-08-14 | 0.26.0 | 51.86 4453.68 | 109.52 3682.23 | 150.15 3849.13 | Marlin, fp8 KV
RedHatAI/Qwen3.6-35B-A3B-NVFP4 | NVFP4 | 2026-08-14 | 0.26.0 | 42.62 6486.84 | 133.38 5200.64 | 196.13 5281.78 | Marlin, fp8 KV
Qwen/Qwen3.8-27B | BF16 | 2026-08-15 | 0.26.0 | 4.5 1094.68 | 20.61 1078.9 | 39.14 1069.15 | fp8 KV
Qwen/Qwen3.8-27B-FP8 | FP8 | 2026-08-15 | 0.26.0 | 7.95 558.56 | 37.54 600.77 | 66.85 606.85 | Marlin, fp8 KV
"""  # noqa: E501
"""One run a line: model, format, date, vLLM's version; then output and prompt tokens per second of one, five and ten
streams together, and how it was served. A prefill rate is left out where the prefix cache made it (above 50,000)."""

_FIGURES: Final = """
gpt-oss-20b | MXFP4 | llama-cpp | - | 1x1 | 82.74 3670.42 | 2048 128 | nvidia | 2025-10
Llama-3.1-8B | NVFP4 | trtllm | - | 1x1 | 38.65 - | 2048 128 | nvidia | 2025-10
Llama-3.1-8B | FP8 | sglang | - | 1x1 | 20.5 - | 2048 2048 | lmsys | 2025-10
Llama-3.1-70B | FP8 | sglang | - | 1x1 | 2.7 - | 2048 2048 | lmsys | 2025-10
Llama-3.1-70B | Q4_K_M | ollama | - | 1x1 | 4.58 - | - - | lmsys | 2025-10
gpt-oss-20b | MXFP4 | ollama | - | 1x1 | 60.91 2053.98 | - - | lmsys | 2025-10
gpt-oss-120b | MXFP4 | ollama | - | 1x1 | 41.88 - | - - | lmsys | 2025-10
gpt-oss-120b | MXFP4 | sglang | - | 1x64 | 291.65 - | - - | lmsys | 2025-10
Qwen3-32B | Q4_K_M | ollama | - | 1x1 | 9.53 - | - - | lmsys | 2025-10
gpt-oss-120b | MXFP4 | llama-cpp | b7941 | 1x1 | 58.72 - | - 32 | ggml | 2026
gpt-oss-120b | MXFP4 | vllm | - | 1x1 | 58.82 - | - - | spark-arena | 2026-02
gpt-oss-120b | MXFP4 | vllm | - | 2x1 | 75.96 - | - - | spark-arena | 2026-02
Qwen3-Coder-Next | FP8 | sglang | - | 2x1 | 60.51 - | - - | spark-arena | 2026-02
gpt-oss-120b | MXFP4 | vllm | - | 1x1 | 57.5 - | 1024 128 | kubis | 2026-03-22 | eager mode
gpt-oss-120b | MXFP4 | vllm | - | 1x8 | 153.5 - | 1024 128 | kubis | 2026-03-22 | eager mode
gpt-oss-120b | MXFP4 | vllm | - | 1x32 | 318.7 - | 1024 128 | kubis | 2026-03-22 | eager mode
gpt-oss-120b | MXFP4 | vllm | - | 2x1 | 69 - | 1024 128 | kubis | 2026-03-22 | eager mode, TP 2
gpt-oss-120b | MXFP4 | vllm | - | 2x32 | 471.7 - | 1024 128 | kubis | 2026-03-22 | eager mode, TP 2
Nemotron-3-Super-120B-A12B | NVFP4 | vllm | - | 1x1 | 23.2 1884.0 | - - | vllm-blog | 2026-06-01 | a nightly build, decode 22.7 to 23.7 over prompts of 58 to 7234 tokens
Qwen3-235B-A22B | GPTQ-INT4 | vllm | 0.19 | 2x1 | 17 - | - 256 | conselara | 2026-05-03 | TP 2
Qwen3-235B-A22B | GPTQ-INT4 | vllm | 0.19 | 2x4 | 36.4 - | - - | conselara | 2026-05-03 | TP 2
Qwen3-235B-A22B | NVFP4 | trtllm | - | 2x1 | 11.73 - | - - | nvidia | 2025-10
gpt-oss-120b | MXFP4 | vllm | 0.19 | 1x1 | 59 - | - - | conselara | 2026-05-02 | CUDA graphs
Qwen3.6-35B-A3B | NVFP4 | vllm | - | 1x1 | 116.03 1414.86 | 16384 128 | spark-arena | 2026-08-23 | probably with speculative decoding
Qwen3.6-35B-A3B | NVFP4 | vllm | - | 1x2 | 165.88 - | 16384 128 | spark-arena | 2026-08-23 | probably with speculative decoding
Qwen3.6-35B-A3B | NVFP4 | vllm | - | 1x10 | 102.31 - | 16384 128 | spark-arena | 2026-08-25 | probably with speculative decoding, from the middle of the table
DeepSeek-V4-Flash | FP8 | vllm | - | 2x1 | 41 1785.0 | - - | elsung | 2026 | TP 2, a single stream of a pair of machines
Qwen3-0.6B-NVFP4 | NVFP4 | vllm | - | 1x1 | 180 - | - - | primitivecontext | 2026
Qwen3-1.7B-NVFP4 | NVFP4 | vllm | - | 1x1 | 99.7 - | - - | primitivecontext | 2026
Qwen3-30B-A3B-NVFP4 | NVFP4 | trtllm | - | 1x1 | 60.1 - | - - | primitivecontext | 2026
Phi-4-multimodal-instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 58 - | - - | primitivecontext | 2026
Qwen3-4B-Instruct-2507-NVFP4 | NVFP4 | vllm | - | 1x1 | 55.6 - | - - | primitivecontext | 2026
Qwen3-Next-80B-A3B-Instruct-FP8 | FP8 | vllm | - | 1x1 | 42.7 - | - - | primitivecontext | 2026
Qwen2.5-VL-7B-Instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 41.3 - | - - | primitivecontext | 2026
Llama-3.3-70B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 39.9 - | - - | primitivecontext | 2026 | disputed: 273 GB/s read so many weights 8 times a second at most
Qwen3-30B-A3B-FP4 | NVFP4 | trtllm | - | 1x1 | 38.6 - | - - | primitivecontext | 2026
Qwen3-8B-NVFP4 | NVFP4 | vllm | - | 1x1 | 28.5 - | - - | primitivecontext | 2026
Qwen3-8B-NVFP4 | NVFP4 | trtllm | - | 1x1 | 28.2 - | - - | primitivecontext | 2026
Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 27.6 - | - - | primitivecontext | 2026
NVIDIA-Nemotron-Nano-9B-v2-NVFP4 | NVFP4 | vllm | - | 1x1 | 27.3 - | - - | primitivecontext | 2026
Qwen3-14B-NVFP4 | NVFP4 | vllm | - | 1x1 | 20.2 - | - - | primitivecontext | 2026
Phi-4-reasoning-plus-NVFP4 | NVFP4 | trtllm | - | 1x1 | 19.6 - | - - | primitivecontext | 2026
Phi-4-reasoning-plus-NVFP4 | NVFP4 | trtllm | - | 1x1 | 19.4 - | - - | primitivecontext | 2026
Qwen3-14B-FP4 | NVFP4 | trtllm | - | 1x1 | 17 - | - - | primitivecontext | 2026
Qwen3-14B-NVFP4 | NVFP4 | trtllm | - | 1x1 | 17 - | - - | primitivecontext | 2026
Llama-4-Scout-17B-16E-Instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 16.3 - | - - | primitivecontext | 2026
Qwen3-32B-NVFP4 | NVFP4 | vllm | - | 1x1 | 10.2 - | - - | primitivecontext | 2026
DeepSeek-R1-Distill-Qwen-32B-NVFP4 | NVFP4 | vllm | - | 1x1 | 10 - | - - | primitivecontext | 2026
Qwen3-32B-NVFP4 | NVFP4 | trtllm | - | 1x1 | 8.2 - | - - | primitivecontext | 2026
Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 4.8 - | - - | primitivecontext | 2026
Qwen3-Next-80B-A3B-Instruct-FP8 | FP8 | vllm | - | 1x1 | 4.8 - | - - | primitivecontext | 2026
Llama-3.1-70B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 4.6 - | - - | primitivecontext | 2026
Llama-3.3-70B-Instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 3.1 - | - - | primitivecontext | 2026
nvidia/Qwen3.6-35B-A3B-NVFP4 | NVFP4 | vllm | 0.20.1 | 1x1 | 44.32 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
nvidia/Qwen3.6-35B-A3B-NVFP4 | NVFP4 | vllm | 0.20.1 | 1x16 | 363 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
nvidia/Gemma-4-31B-IT-NVFP4 | NVFP4 | vllm | 0.20.1 | 1x1 | 6.85 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
nvidia/Gemma-4-31B-IT-NVFP4 | NVFP4 | vllm | 0.20.1 | 1x16 | 105 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
cybermotaz/nemotron3-nano-nvfp4-w4a16 | NVFP4 | vllm | 0.20.1 | 1x1 | 74.75 - | - 200 | part-25 | 2026-05 | W4A16, b12x kernels, rate with prefill
cybermotaz/nemotron3-nano-nvfp4-w4a16 | NVFP4 | vllm | 0.20.1 | 1x16 | 400 - | - 200 | part-25 | 2026-05 | W4A16, b12x kernels, rate with prefill
Nemotron-3-Nano-30B-A3B | NVFP4 | vllm | 0.20.1 | 1x1 | 58.27 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
Nemotron-3-Nano-30B-A3B | NVFP4 | vllm | 0.20.1 | 1x16 | 786 - | - 200 | part-25 | 2026-05 | b12x kernels, rate with prefill
nvidia/MiniMax-M2.5-NVFP4 | NVFP4 | vllm | - | 2x1 | 12.48 378.87 | 128000 8096 | forum-fp4 | 2026 | CUTLASS kernels, RoCE over 200 Gb/s
Qwen3-Next-80B-A3B-Instruct-AWQ | AWQ | vllm | - | 1x1 | 34 - | - - | avarok | 2026 | NVIDIA's image, 38.2 at most
Qwen3-Next-80B-A3B-Instruct-AWQ | AWQ | vllm | - | 1x1 | 36 - | - - | avarok | 2026 | Avarok's image, 39.7 at most
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 36 - | - - | avarok | 2026 | NVIDIA's image with flashinfer-cutlass, 40.2 at most
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | trtllm | - | 1x1 | 29.6 - | - - | avarok | 2026 | called its ceiling there
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 1.1 - | - - | avarok | 2026 | FP4 converted in Python (v20)
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 35 - | - - | avarok | 2026 | v21, FP4 converted in C++, CUTLASS kernels
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 39.5 - | - - | avarok | 2026 | v21, Marlin for experts
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 40.2 - | - - | avarok | 2026 | v21, Marlin
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | - | 1x1 | 59.9 - | - - | avarok | 2026 | v21, Marlin, MTP with two tokens
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | 0.16.0rc2 | 1x1 | 42 - | - - | avarok | 2026 | v22, Marlin, 47.1 at most
nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 | NVFP4 | vllm | 0.16.0rc2 | 1x1 | 67 - | - - | avarok | 2026 | v22, Marlin, MTP with two tokens, 111.9 at most
"""  # noqa: E501
"""One figure a line: model, format, runtime, its version, machines x streams, output and prompt tokens per second,
prompt and answer in tokens, source, date, conditions. A dash: not stated."""


@cache
def references() -> tuple[Reference, ...]:
    found = []
    for line in _RUNS.strip().splitlines():
        model, quantization, date, version, *rates, conditions = (part.strip() for part in line.split("|"))
        for streams, text in zip((1, 5, 10), rates, strict=True):
            decode, prefill = map(_number, text.split())
            found.append(
                Reference(
                    model,
                    quantization,
                    "vllm",
                    "djangodevreng",
                    date,
                    version,
                    streams,
                    decode,
                    prefill,
                    1024,
                    1024,
                    conditions=conditions,
                )
            )
    for line in _FIGURES.strip().splitlines():
        parts = [part.strip() for part in line.split("|")]
        model, quantization, runtime, version, times, rate_texts, lengths, source, date, *more = parts
        machines, streams = map(int, times.split("x"))
        decode, prefill = map(_number, rate_texts.split())
        prompt, answer = (None if text == "-" else int(text) for text in lengths.split())
        found.append(
            Reference(
                model,
                quantization,
                runtime,
                source,
                date,
                version.removeprefix("-"),
                streams,
                decode,
                prefill,
                prompt,
                answer,
                machines=machines,
                conditions=more[0] if more else "",
            )
        )
    return tuple(found)


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


# --- compare ---------------------------------------------------------------------------------------------


class SpeedVerdict(StrEnum):
    """What a comparison of two throughputs shows. `NOT_SHOWN`: the difference is within what repetition scatters."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_SHOWN = "no difference shown"
    UNKNOWN = "too few passes to say"


class Difference(Struct, frozen=True):
    """A condition that is not the same; a value is empty where it is unknown."""

    what: str
    first: str
    second: str


class LevelPair(Struct, frozen=True):
    """One level of both. `ratio` is the second's throughput over the first's, `interval` its 95 % interval."""

    first: Level
    second: Level
    ratio: float | None
    interval: ConfidenceInterval | None
    verdict: SpeedVerdict


class Comparison(Struct, frozen=True):
    """Two runs. `obstacles` are differences of the load: with any of them there are no `rows`. `differences` are those
    of engine and host. `paired`: their passes alternated, which cancels what drifts."""

    first: BenchRun
    second: BenchRun
    obstacles: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[LevelPair, ...]
    paired: bool

    @property
    def comparable(self) -> bool:
        return not self.obstacles


def compare(first: BenchRun, second: BenchRun) -> Comparison:
    """The second beside the first, which is the baseline."""
    obstacles = load_differences(first, second)
    paired = bool(first.pair) and first.pair == second.id and second.pair == first.id
    baseline = {level.key: level for level in first.levels}
    rows = []
    for level in () if obstacles else second.levels:
        before = baseline.get(level.key)
        if before is None:
            continue
        interval = ratio_interval(before.pass_rates, level.pass_rates, paired=paired)
        ratio = level.output_rate / before.output_rate if before.output_rate and level.output_rate is not None else None
        if interval is None:
            verdict = SpeedVerdict.UNKNOWN
        elif interval.low > 1:
            verdict = SpeedVerdict.FASTER
        else:
            verdict = SpeedVerdict.SLOWER if interval.high < 1 else SpeedVerdict.NOT_SHOWN
        rows.append(LevelPair(before, level, ratio, interval, verdict))
    differences = condition_differences(first.conditions, second.conditions)
    return Comparison(first, second, obstacles, differences, tuple(rows), paired)


def load_differences(first: BenchRun, second: BenchRun) -> tuple[Difference, ...]:
    """What keeps the numbers from being compared at all."""
    one, two = first.plan, second.plan
    pairs: list[tuple[str, object, object]] = [
        ("prompts", one.content, two.content),
        ("prompt cache", one.prompt_cache, two.prompt_cache),
        ("prompts sent as", one.form, two.form),
        ("temperature", one.temperature, two.temperature),
        ("output tokens", one.output_tokens, two.output_tokens),
        ("simulated", first.conditions.simulated, second.conditions.simulated),
    ]
    if first.sweep and second.sweep:
        pairs.append(("input tokens", one.input_tokens, two.input_tokens))
    found = _differing(pairs)
    if not found and not {level.key for level in first.levels} & {level.key for level in second.levels}:
        names = [
            " ".join(f"d{level.input_tokens}" if level.depth else f"c{level.streams}" for level in run.levels)
            for run in (first, second)
        ]
        found.append(Difference("levels", names[0] or "none", names[1] or "none"))
    return tuple(found)


_COMPARED = (
    ("revision", "revision"),
    ("runtime", "runtime"),
    ("version", "version"),
    ("image", "image_id"),
    ("KV cache type", "kv_cache_dtype"),
    ("speculation", "speculation"),
    ("attention", "attention"),
    ("FP4 linear kernel", "linear_kernel"),
    ("FP4 MoE kernel", "moe_kernel"),
    ("eager", "eager"),
    ("prefix caching", "prefix_caching"),
    ("context tokens", "context_tokens"),
    ("max_num_seqs", "most_sequences"),
    ("platform", "platform"),
    ("host", "hostname"),
    ("driver", "driver"),
    ("host kernel", "kernel"),
    ("NCCL", "nccl"),
)


def condition_differences(one: Conditions, two: Conditions) -> tuple[Difference, ...]:
    """Every condition that decides numbers and is not the same, flags one by one."""
    first, second = _by_name(one.flags), _by_name(two.flags)
    added, gone = (
        " ".join(sorted(set(after.environment) - set(before.environment))) for before, after in ((one, two), (two, one))
    )
    return tuple(
        _differing(
            [
                ("model", one.model, two.model),
                (
                    "quantization",
                    quantization_words(one.model, one.quantization),
                    quantization_words(two.model, two.quantization),
                ),
                *((what, getattr(one, name), getattr(two, name)) for what, name in _COMPARED),
                ("nodes", ", ".join(one.nodes), ", ".join(two.nodes)),
                ("rails", ", ".join(one.rails), ", ".join(two.rails)),
                *((name, first.get(name), second.get(name)) for name in sorted({*first, *second})),
                ("variables", gone, added),
            ]
        )
    )


def _differing(pairs: Sequence[tuple[str, object, object]]) -> list[Difference]:
    def text(value: object) -> str:
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return [Difference(what, text(one), text(two)) for what, one, two in pairs if text(one) != text(two)]


def _by_name(flags: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition(" ")
        found[name] = f"{found[name]} {value}" if name in found else value or "set"
    return found


def ratio_interval(first: Sequence[float], second: Sequence[float], *, paired: bool) -> ConfidenceInterval | None:
    """The 95 % interval of the ratio of two throughputs, from the logarithms of their passes' rates.

    Alternating passes are compared pair by pair, others by Welch's interval. None for fewer than two passes each.
    """
    if min(len(first), len(second)) < 2 or min(*first, *second) <= 0:
        return None
    one, two = [math.log(rate) for rate in first], [math.log(rate) for rate in second]
    if paired and len(one) == len(two):
        found = mean_interval([after - before for before, after in zip(one, two, strict=True)])
    else:
        found = _welch(one, two)
    return None if found is None else ConfidenceInterval(math.exp(found.low), math.exp(found.high))


def _welch(one: Sequence[float], two: Sequence[float]) -> ConfidenceInterval:
    middle = math.fsum(two) / len(two) - math.fsum(one) / len(one)
    parts = [(deviation(each) ** 2 / len(each), len(each) - 1) for each in (one, two)]
    variance = sum(part for part, _ in parts)
    if not variance:
        return ConfidenceInterval(middle, middle)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(variance)
    return ConfidenceInterval(middle - half, middle + half)
