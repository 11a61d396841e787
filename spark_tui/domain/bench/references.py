"""What others published for models on this kind of box, and which of it may stand beside a run: like with like only.

A figure is shown where model, quantization, runtime and number of boxes are the same; what else differs is said with
it. Published figures of one box scatter by 15 % even then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.bench.conditions import quantization_words
from spark_tui.domain.bench.run import BenchRun

SCATTER: Final = 0.15
"""Entries of one model on Spark Arena differ so much between boxes and days."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures come from. `licence` is that of the data; `not stated` means that single figures are cited."""

    id: str
    title: str
    url: str
    licence: str


@dataclass(frozen=True, slots=True)
class Reference:
    """One published measurement. `decode_rate` is output tokens per second of all `streams` together after prefill
    (per stream where there is one), `prefill_rate` prompt tokens per second; lengths in tokens, None: not stated.
    `box` is the machine, `boxes` how many of them served together, `date` as the source dates it."""

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
    box: str = "DGX Spark"
    boxes: int = 1
    conditions: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """A published figure beside one of a run. `ratio` is ours over theirs; `differs` what is not alike, in words."""

    reference: Reference
    source: Source
    ours: float
    theirs: float
    ratio: float
    differs: tuple[str, ...]

    @property
    def within_scatter(self) -> bool:
        """No further apart than two boxes of one kind are."""
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


def beside(run: BenchRun, references: Iterable[Reference], sources: Iterable[Source]) -> tuple[Beside, ...]:
    """The published figures that may stand beside this run, the most alike first. None for a simulated run, for a box
    that is no Spark, or for a run of repeated prompts."""
    conditions = run.conditions
    if conditions.simulated or not conditions.is_spark or run.plan.prompt_cache.value != "cold":
        return ()
    known = {source.id: source for source in sources}
    mine, bits = family(conditions.model), quantization_words(conditions.model, conditions.quantization)
    found = []
    for reference in references:
        if family(reference.model) != mine or reference.boxes != 1 or reference.box != "DGX Spark":
            continue
        if reference.quantization.upper() != bits or reference.runtime != conditions.runtime:
            continue
        found.append(_figure(run, reference, known[reference.source]))
    return tuple(sorted((each for each in found if each is not None), key=lambda each: len(each.differs)))


def _figure(run: BenchRun, reference: Reference, source: Source) -> Beside | None:
    level = next((each for each in run.sweep if each.streams == reference.streams), None)
    if level is None or reference.decode_rate is None:
        return None
    alone = level.streams == 1 and level.decode_rate is not None
    ours = level.decode_rate.p50 if alone and level.decode_rate else level.output_rate
    if ours is None:
        return None
    return Beside(
        reference, source, ours, reference.decode_rate, ours / reference.decode_rate, tuple(_differs(run, reference))
    )


def _differs(run: BenchRun, reference: Reference) -> list[str]:
    plan, conditions = run.plan, run.conditions
    found = []
    if reference.version and reference.version != conditions.version:
        found.append(f"{reference.runtime} {reference.version}, not {conditions.version or 'a known version'}")
    if not reference.version:
        found.append("their version is not stated")
    for what, theirs, ours in (
        ("prompts", reference.input_tokens, plan.input_tokens),
        ("answers", reference.output_tokens, plan.output_tokens),
    ):
        if theirs is None:
            found.append(f"the length of their {what} is not stated")
        elif theirs != ours:
            found.append(f"{what} of {theirs:,} tokens, not {ours:,}")
    if reference.conditions:
        found.append(reference.conditions)
    if reference.streams > 1:
        found.append("their throughput of several streams may leave prefill out")
    return found
