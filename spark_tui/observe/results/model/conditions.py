"""Everything that decides a benchmark's number, besides the load: without it no two numbers may be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.container import LABEL_NODES, LABEL_RAILS, ImageFacts
from spark_tui.base.engine.invocation import parse
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from spark_tui.base.secret import mask_secrets
from spark_tui.observe.explain.model.view import EngineView

_ADDRESS: Final = ("--host", "--port", "--served-model-name", "--api-key", "--uvicorn-log-level")
"""Options that decide no number."""


class Conditions(Struct, frozen=True):
    """The engine and the host as they were. Empty or None: not known. Lengths in tokens.

    `flags` are the engine's options, one `--name value` each, keys masked. `image_id` names the image exactly,
    `image_digest` what its registry calls it. `engine_seconds` is how long it had served. `prefix_caching` is the
    engine's own setting. `nodes` are those of an engine on several, the head first; `rails` the head's devices between
    them, `nccl` the image's version, `bandwidth` what was measured between them last. `simulated` results come from the
    demo and are compared with nothing.
    """

    engine: str
    model: str
    served_name: str = ""
    revision: str = ""
    quantization: str = ""
    runtime: str = ""
    version: str = ""
    image: str = ""
    image_id: str = ""
    image_digest: str = ""
    preset: str = ""
    flags: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    context_tokens: int | None = None
    most_sequences: int | None = None
    kv_tokens: int | None = None
    kv_cache_dtype: str = ""
    speculation: str = ""
    attention: str = ""
    linear_kernel: str = ""
    moe_kernel: str = ""
    eager: bool | None = None
    prefix_caching: bool | None = None
    engine_seconds: float | None = None
    platform: str = ""
    hostname: str = ""
    is_spark: bool = False
    kernel: str = ""
    gpu: str = ""
    driver: str = ""
    tool_version: str = ""
    python: str = ""
    simulated: bool = False
    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    nccl: str = ""
    bandwidth: str = ""


def conditions_of(
    view: EngineView,
    *,
    host: HostIdentity,
    image: ImageFacts | None,
    gpu: GpuReading | None,
    now: float,
    tool_version: str,
    python: str = "",
    context: int | None = None,
    bandwidth: str = "",
    simulated: bool = False,
) -> Conditions:
    """What is known of an engine that serves. `now` is seconds since the epoch, `context` its context length where the
    server reports it, `bandwidth` what was measured between its nodes."""
    container, facts = view.container, view.timeline.facts
    command = parse(container.argv, view.runtime)
    sequences = command.value("max_num_seqs") or ""
    return Conditions(
        engine=view.name,
        model=view.model,
        served_name=view.served_name,
        revision=command.value("revision") or "",
        quantization=facts.quantization or ("none" if facts.unquantized else ""),
        runtime=view.runtime,
        version=view.version or facts.version,
        image=container.image,
        image_id=container.image_id,
        image_digest=image.digest if image else "",
        preset=container.preset,
        flags=flags_of(command.words),
        environment=tuple(sorted(container.environment)),
        context_tokens=context or facts.max_model_len,
        most_sequences=int(sequences) if sequences.isdecimal() and len(sequences) < 10 else None,
        kv_tokens=facts.kv_tokens,
        kv_cache_dtype=facts.kv_cache_dtype or command.value("kv_cache_dtype") or "",
        speculation=facts.speculation,
        attention=facts.attention,
        linear_kernel=facts.fp4_linear,
        moe_kernel=facts.fp4_moe,
        eager=facts.eager or None,
        prefix_caching=facts.prefix_caching,
        engine_seconds=None if container.started_at is None else max(0.0, now - container.started_at),
        platform=host.product,
        hostname=host.hostname,
        is_spark=host.is_spark,
        kernel=host.kernel,
        gpu=gpu.name if gpu else "",
        driver=gpu.driver if gpu else "",
        tool_version=tool_version,
        python=python,
        simulated=simulated,
        nodes=(nodes := container.listed(LABEL_NODES)),
        rails=container.listed(LABEL_RAILS),
        nccl=image.nccl if image and nodes else "",
        bandwidth=bandwidth,
    )


def flags_of(words: Sequence[str]) -> tuple[str, ...]:
    """The options in a command, sorted, each with its values and with keys masked; those of the address left out."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append([name, value] if equals else [name])
        elif found:
            found[-1].append(word)
    kept = [" ".join(each) for each in found if each[0] not in _ADDRESS]
    return tuple(sorted(mask_secrets(text) for text in kept))


def quantization_words(name: str, config: str) -> str:
    """The usual name of a quantization, from the engine's word for it and from the model's name: `NVFP4`, `4.75-bit`.

    The engine names the format's owner (`modelopt`, `compressed-tensors`), which says nothing of the bits: then the
    name of the checkpoint decides.
    """
    for text in (config, name):
        found = _KNOWN.search(text)
        if found:
            return found[0].upper().replace("BFLOAT16", "BF16")
    bits = _BITS.search(name)
    if bits and config != "none":
        return f"{bits[1]}-bit"
    return "BF16" if config == "none" else config


_KNOWN: Final = re.compile(
    r"nvfp4|mxfp4|mxfp8|w4a16|w8a8|fp8|awq|gptq(?:-int4)?|int4|int8|bfloat16|bf16|q\d_k_[msl]|q8_0", re.IGNORECASE
)
_BITS: Final = re.compile(r"(?<![\d.])(\d(?:\.\d+)?)-?bit", re.IGNORECASE)
