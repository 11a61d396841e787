"""What a simulated engine is: its model's figures, what its settings change, and the log of its start.

A start is the recorded one of a Spark (`data/boot.tsv`), with another model's figures, kernels and durations in place
of its own. Other servers than vLLM write their own lines, in outline, as they stand in those programs' sources.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from spark_tui.base.checkpoint import BlockCapacity, CheckpointFacts, KvSettings, WeightFormat, kv_layout
from spark_tui.base.quantities import GIB, MIB
from spark_tui.simulator.facts import FACTS, SIZES
from spark_tui.simulator.recording import POOL_GIB, RecordedLog, boot_script, fill, other_script

RECORDED_CHECKPOINT_GIB: Final = 21.31
RECORDED_TOKENS: Final = 32_768
DRAFTING_GAIN: Final = 1.3
_PREFILL: Final = 3000.0
"""Prompt tokens per second of a model that decodes at `_PREFILL_AT`."""
_PREFILL_AT: Final = 42.0
_GENERIC_RATE: Final = 30.0
_GENERIC_GIB: Final = 17.0
_RATES: Final = {
    "DFlash-Qwen3.5-27B": 33.0, "Qwen3.6-35B": 32.2, "gpt-oss-20b": 46.5, "gpt-oss-120b": 55.0, "Gemma-4-26B": 29.9,
    "diffusiongemma": 34.0, "Gemma-4-31B": 6.9, "gemma-4-12B": 17.0, "gemma4-coder": 17.0, "Llama-3.3-70B": 4.6,
    "Mistral-Small-4": 31.1, "Nemotron-3-Nano": 63.1, "Nemotron-Cascade": 62.0, "nemotron3-nano": 74.7,
    "Nemotron-3-Super": 21.4, "Phi-4": 58.0, "Qwen3-8B": 28.5, "Qwen3-30B": 60.1, "Qwen3-Next": 42.0,
    "Qwen3.6-27B": 9.8, "Qwen3.5-27B": 12.0, "Qwen3.5-35B": 29.0, "Laguna": 18.0, "qwen3:32b": 9.5, "smollm2": 61.0,
}  # fmt: skip
"""Tokens per second of one stream without drafts, by a part of the model's name: what people have measured."""
_CONTEXT_GIB, _WORKSPACE_GIB, _PER_TOKEN_MIB = 0.6, 1.9, 0.29
GRAPHS_GIB: Final = 0.37


class BootMarks(NamedTuple):
    """Seconds after the container's start at which memory moves. `load` and `loaded` are the weights."""

    engine: float
    load: float
    loaded: float
    compile: float
    kv: float
    graphs: float
    ready: float


class EngineProfile(Struct, frozen=True, dict=True):
    """One start's settings, as its command has them. `environment` has the variables that it was given."""

    runtime: str
    model: str
    argv: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The command's words, also of one that a shell reads."""
        return tuple(
            word for each in self.argv for word in (shlex.split(each) if " " in each and "'" not in each else (each,))
        )

    def option(self, *names: str) -> str:
        """The value that follows an option, or an empty string."""
        for index, word in enumerate(self.words):
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(iter(self.words[index + 1 : index + 2]), "")
        return ""

    def number(self, otherwise: float, *names: str) -> float:
        try:
            return float(self.option(*names))
        except ValueError:
            return otherwise

    # --- the model --------------------------------------------------------------------------------------

    @property
    def facts(self) -> CheckpointFacts | None:
        return FACTS.get(self.model)

    @property
    def checkpoint_gib(self) -> float:
        """What its files have."""
        return SIZES.get(self.model, _GENERIC_GIB)

    @property
    def weights_gib(self) -> float:
        """What its weights take in memory, a drafter's too."""
        return round(self.checkpoint_gib * 1.005, 2)

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        quantization = self.facts.quantization if self.facts is not None else None
        return quantization.formats if quantization is not None else ()

    # --- the settings -----------------------------------------------------------------------------------

    @property
    def context(self) -> int:
        own = self.facts.max_position_embeddings if self.facts is not None else None
        given = dict(self.environment).get("OLLAMA_CONTEXT_LENGTH", "")
        names = ("--max-model-len", "--ctx-size", "--context-length", "--max_seq_len")
        return int(self.number(float(given or own or 32_768), *names))

    @property
    def share(self) -> float:
        """Of the pool, what it may take."""
        names = ("--gpu-memory-utilization", "--mem-fraction-static")
        given = dict(self.environment)
        otherwise = 0.08 if "VLLM_CPU_KVCACHE_SPACE" in given else 0.9 if self.runtime == "vllm" else 0.75
        own = given.get("GPU_MEMORY_UTILIZATION", "")  # of an image whose start script builds the command
        return min(1.0, max(0.02, float(own) if own else self.number(otherwise, *names)))

    @property
    def streams(self) -> int:
        """Requests that are answered at once."""
        otherwise = {"llama-cpp": 1.0, "ollama": 1.0}.get(self.runtime, 256.0)
        return max(1, int(self.number(otherwise, "--max-num-seqs", "--parallel", "--max_batch_size")))

    @property
    def batched_tokens(self) -> int:
        return int(self.number(2048, "--max-num-batched-tokens", "--chunked-prefill-size"))

    @property
    def drafts(self) -> int:
        """Tokens that are drafted per step."""
        found = re.search(r"num_speculative_tokens\W+(\d+)", self.option("--speculative-config", "-sc"))
        return int(found[1]) if found else 0

    @property
    def kv_dtype(self) -> str:
        return self.option("--kv-cache-dtype") or "auto"

    @property
    def moe_backend(self) -> str:
        given = self.option("--moe-backend").upper()
        return {"FLASHINFER": "FLASHINFER_CUTLASS", "AUTO": "", "CUTLASS": "VLLM_CUTLASS"}.get(given, given)

    @property
    def eager(self) -> bool:
        return "--enforce-eager" in self.words

    # --- what follows -----------------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Tokens per second of one stream."""
        lowered = self.model.lower()
        plain: float = next((rate for name, rate in _RATES.items() if name.lower() in lowered), _GENERIC_RATE)
        return plain * (DRAFTING_GAIN if self.drafts else 1.0) * (0.78 if self.eager else 1.0)

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens read per second: more in larger steps, fewer with kernels that compute in 16 bit."""
        steps: float = (max(512, min(self.batched_tokens, RECORDED_TOKENS)) / 8192) ** 0.18
        weak = 0.8 if self.moe_backend == "MARLIN" else 1.0
        return _PREFILL * float((self.rate / _PREFILL_AT) ** 0.8) * steps * weak

    @property
    def workspace_gib(self) -> float:
        """Beside weights and cache: activations, what the allocator keeps, CUDA graphs."""
        return _WORKSPACE_GIB + _PER_TOKEN_MIB * min(self.batched_tokens, RECORDED_TOKENS) / 1024

    @property
    def fixed_gib(self) -> float:
        """All but the cache."""
        return self.weights_gib + self.workspace_gib + _CONTEXT_GIB + GRAPHS_GIB

    @property
    def wanted_kv_gib(self) -> float:
        """The cache that the settings ask for; negative when the share is too small for the weights."""
        if self.runtime in ("llama-cpp", "ollama"):  # as much as the context needs
            return self.context * self.streams / self.capacity(GIB).tokens
        if given := self.option("--kv-cache-memory-bytes"):
            return _bytes(given) / GIB
        return self.share * POOL_GIB - self.fixed_gib

    def capacity(self, kv_bytes: int) -> BlockCapacity:
        """What that much memory holds."""
        layout = None
        if self.facts is not None:
            mtp = bool(self.drafts and self.facts.mtp_layers)
            layout = kv_layout(
                self.facts,
                KvSettings(self.kv_dtype, batched_tokens=self.batched_tokens, draft_tokens=self.drafts, mtp=mtp),
            )
        if layout is not None:
            return layout.capacity(kv_bytes, self.context)
        tokens = int(kv_bytes / (3900 * self.checkpoint_gib))
        return BlockCapacity(tokens // 16, tokens / self.context, tokens, tokens)


def _bytes(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)\s*([kKmMgG]?)i?[bB]?", text)
    scale = {"k": 1024.0, "m": float(MIB), "g": float(GIB)}
    return float(found[1]) * scale.get(found[2].lower(), 1.0) if found is not None else 0.0


# --- vLLM's log -------------------------------------------------------------------------------------------

_CORE: Final = "(EngineCore pid=199)"
_API: Final = "(APIServer pid=1)"
_MEASURED: Final = re.compile(r"<<([ms]):(\d+(?:\.\d+)?)>>")
_FP4: Final = (WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16)


class _Rates(Struct, frozen=True):
    """The recorded start's clock, stretched: pairs of a recorded second and the factor up to it."""

    parts: tuple[tuple[float, float], ...]

    def at(self, recorded: float) -> float:
        """The second of this start."""
        before, now = 0.0, 0.0
        for end, factor in self.parts:
            now += (min(recorded, end) - before) * factor
            before = end
            if recorded <= end:
                break
        return now

    def factor(self, recorded: float) -> float:
        return next((factor for end, factor in self.parts if recorded <= end), 1.0)


def _absent(profile: EngineProfile) -> tuple[str, ...]:
    """Words of recorded lines that this engine would not write."""
    facts, nvfp4 = profile.facts, any(form in _FP4 for form in profile.formats)
    states, vision = bool(facts and facts.states), bool(facts and "image" in facts.modalities)
    moe = bool(facts is None or facts.is_moe)
    conditions = (
        (False, "downloading weights|Loading safetensors|Mxfp8|`vllm serve`, you should|unauthenticated|w4a4_nvfp4"),
        (bool(profile.drafts), "MTP|speculative\\.py|drafter|min_p and logit_bias|eagle_head"),
        (states, "Mamba|mamba|GDN|padding layers"),
        (vision, "Qwen2VL|vit attention|MMEncoder|Encoder cache|ulti-modal"),
        (nvfp4, "NvFp4|NVFP4|fp4_gemm|utoTuner|utotuner|Autotuning"),
        (moe, "MoE backend|fused_moe|MoEPrepare"),
        (profile.kv_dtype.startswith("fp8"), "Using fp8 data type"),
        ("--enable-auto-tool-choice" in profile.words, '"auto" tool choice'),
        (not profile.eager, "torch.compile|Dynamo|compile range|AOT compiled|max_autotune|raph"),
    )
    return tuple(words for holds, words in conditions if not holds)


def _arguments(profile: EngineProfile) -> str:
    """The arguments as vLLM lists them, read off the command."""
    given, words = [f"'model_tag': '{profile.model}'", f"'model': '{profile.model}'"], profile.words
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            following = next(iter(words[index + 1 : index + 2]), "")
            text = value if equals else "" if following.startswith("--") else following
            plain = re.fullmatch(r"[\d.]+|\{.*\}", text) is not None
            shown = "True" if not text else text if plain else f"'{text}'"
            key = name[2:].replace("-", "_")
            given.append(f"'{key}': [{shown}]" if key == "served_model_name" else f"'{key}': {shown}")
    return f"non-default args: {{<<key>>{', '.join(given)}}}"


def _kernels(profile: EngineProfile) -> Iterator[str]:
    """The kernels that are chosen, where they are others than the recorded ones."""
    backend = profile.moe_backend
    if WeightFormat.MXFP4 in profile.formats:
        yield f"INFO <<time>> [mxfp4.py:166] Using '{backend or 'TRITON'}' Mxfp4 MoE backend."
    elif WeightFormat.FP8 in profile.formats:
        yield "INFO <<time>> [fp8.py:308] Using TRITON Fp8 MoE backend out of potential backends: ['TRITON', 'MARLIN']."
    if backend == "MARLIN" or WeightFormat.NVFP4_W4A16 in profile.formats:
        yield (
            "WARNING <<time>> [marlin_utils_fp4.py:226] Your GPU does not have native support for FP4 computation but "
            "FP4 quantization is being used. Weight-only FP4 compression will be used leveraging the Marlin kernel. "
            "This may degrade performance for compute-heavy workloads."
        )


def _replaced(profile: EngineProfile, text: str) -> str:
    """A recorded line with this model's figures."""
    facts = profile.facts
    if "non-default args" in text:
        return f"{text.partition('non-default')[0]}{_arguments(profile)}"
    architecture = (facts.architecture if facts else "") or "LlamaForCausalLM"
    method = profile.option("--quantization") or (facts.quantization.method if facts and facts.quantization else "")
    drafting = f"SpeculativeConfig(method='mtp', num_spec_tokens={profile.drafts})" if profile.drafts else "None"
    text = re.sub(r"SpeculativeConfig\(.*?\)", drafting, text)
    text = text.replace("[...]", f"quantization={method or None}, kv_cache_dtype={profile.kv_dtype}, [...]")
    text = text.replace("Qwen3_5MoeForConditionalGeneration", architecture)
    text = text.replace("max_num_batched_tokens=32768", f"max_num_batched_tokens={profile.batched_tokens}")
    text = text.replace("(1, 32768)", f"(1, {profile.batched_tokens})").replace(
        "21.31 GiB", f"{profile.checkpoint_gib} GiB"
    )
    text = text.replace("Model loading took 21.42", f"Model loading took {profile.weights_gib:g}")
    if profile.moe_backend:
        text = text.replace("Using 'FLASHINFER_CUTLASS' NvFp4", f"Using '{profile.moe_backend}' NvFp4")
    return text


def vllm_start(profile: EngineProfile, ending: Sequence[str] = ()) -> tuple[RecordedLog, BootMarks]:
    """A start of vLLM with its marks. With `ending`, the lines of a failure, it stops where the cache is sized, or,
    for one that begins with `early`, before the weights."""
    facts = profile.facts
    load = profile.checkpoint_gib / RECORDED_CHECKPOINT_GIB
    vision = 1.0 if facts and "image" in facts.modalities else 0.1
    heavy = 0.1 if profile.eager else 0.55 + 0.45 * min(2.0, load)
    rates = _Rates(
        (
            (51.5, 1.0),
            (133.0, 0.03),
            (304.0, load),
            (327.4, 1.0 if profile.drafts else 0.05),
            (341.0, 1.0),
            (449.0, heavy),
            (470.0, 1.0),
            (484.0, vision),
            (10_000.0, 1.0),
        )
    )
    absent = "|".join(_absent(profile))
    lines: list[tuple[float, str]] = []
    early = bool(ending) and ending[0] == "early"
    for recorded, text in boot_script().lines:
        if (early and recorded > 47) or (ending and "Available KV cache memory" in text):
            break
        if not (absent and re.search(absent, text) and "non-default" not in text and "V1 LLM engine" not in text):
            factor = rates.factor(recorded)
            scaled = _MEASURED.sub(lambda mark, factor=factor: f"<<{mark[1]}:{_scaled(mark[2], factor)}>>", text)  # type: ignore[misc]
            lines.append((rates.at(recorded), _replaced(profile, scaled)))
    if not early:
        lines += [(rates.at(51.2), f"{_CORE} {each}") for each in _kernels(profile)]
        lines += _shards(profile, rates.at(133.75), rates.at(303.0))
    lines.sort(key=lambda line: line[0])
    last = lines[-1][0]
    for text in ending[1:] if early else ending:
        last += 0.1
        lines.append((last, text))
    marks = (39.0, 133.0, 327.4, 341.0, 451.0, 468.0, 487.1)
    return RecordedLog(tuple(lines)), BootMarks(*(rates.at(each) for each in marks))


def _scaled(number: str, factor: float) -> str:
    decimals = len(number.partition(".")[2])
    return f"{float(number) * factor:.{decimals}f}"


def _shards(profile: EngineProfile, begin: float, end: float) -> Iterator[tuple[float, str]]:
    """The bar of the checkpoint's files, and what the loader says afterwards."""
    count = max(1, round(profile.checkpoint_gib / 4.4))
    each = (end - begin) / count
    for done in range(count + 1):
        passed, left = each * done, each * (count - done)
        pace = f"<<m:{passed:.0f}>><<<m:{left:.0f}>>, <<s:{each:.2f}>>s/it" if done else "<<m:0>><?, ?it/s"
        bar = f"Loading safetensors checkpoint shards: {100 * done // count:3d}% Completed | {done}/{count} [{pace}]"
        yield begin + passed, f"{_CORE} \r{bar}"
    yield (
        end + 0.5,
        f"{_CORE} INFO <<time>> [default_loader.py:384] Loading weights took <<s:{end - begin:.2f}>> seconds",
    )


# --- failures ---------------------------------------------------------------------------------------------


def _failure(error: str, where: str) -> tuple[str, ...]:
    head = f"{_CORE} ERROR <<time>> [core.py:1136]"
    return (
        f"{head} EngineCore failed to start.",
        f"{head} Traceback (most recent call last):",
        f'{head}   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/{where}',
        f"{head} ValueError: {error}",
        f"{_CORE} Process EngineCore:",
        f"{_API} Traceback (most recent call last):",
        f'{_API}   File "/usr/local/bin/vllm", line 10, in <module>',
        f"{_API}     sys.exit(main())",
        f"{_API} RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
    )


def no_room(profile: EngineProfile, free_gib: float) -> tuple[str, ...]:
    """The share is more than what is free at the start."""
    wanted = profile.share * POOL_GIB
    return (
        "early",
        *_failure(
            f"Free memory on device cuda:0 ({min(free_gib, wanted - 0.05):.2f}/{POOL_GIB} GiB) on startup is less than "
            f"desired GPU memory utilization ({profile.share:g}, {wanted:.2f} GiB). Decrease GPU memory utilization or "
            "reduce GPU memory used by other processes.",
            'worker/worker_base.py", line 317, in init_device',
        ),
    )


def no_cache(profile: EngineProfile) -> tuple[str, ...]:
    """The weights leave the cache too little; empty where it is enough."""
    kv = profile.wanted_kv_gib
    if kv <= 0.05:
        return _failure(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
            "engine.",
            'core/kv_cache_utils.py", line 690, in check_enough_kv_cache_memory',
        )
    capacity = profile.capacity(int(kv * GIB))
    if capacity.concurrency >= 1:
        return ()
    longest = max(16, int(capacity.concurrency * profile.context) // 16 * 16)
    return _failure(
        f"To serve at least one request with the models's max seq len ({profile.context}), "
        f"({kv / max(capacity.concurrency, 0.01):.2f} GiB KV cache is needed, which is larger than the available KV "
        f"cache memory ({kv:.2f} GiB). Based on the available memory, the estimated maximum model length is {longest}. "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        'core/kv_cache_utils.py", line 712, in check_enough_kv_cache_memory',
    )


# --- other servers ----------------------------------------------------------------------------------------


def other_start(profile: EngineProfile, kv_bytes: int) -> tuple[RecordedLog, BootMarks]:
    """A start of SGLang, TensorRT-LLM, llama.cpp or Ollama: their own lines at this start's marks."""
    kv, gib, load = kv_bytes / GIB, profile.checkpoint_gib, 12.0 + 3.2 * profile.checkpoint_gib
    marks = BootMarks(8, 14, 14 + load, 15 + load, 18 + load, 30 + load, 34 + load)
    values = {
        "gib": f"{gib:.2f}",
        "mib": f"{gib * 1024 - 166:.2f}",
        "kv": f"{kv:.2f}",
        "kv_mib": f"{kv * 1024:.2f}",
        "half_mib": f"{kv * 512:.2f}",
        "tokens": str(profile.capacity(kv_bytes).tokens),
        "context": str(profile.context),
        "streams": str(profile.streams),
        "share": f"{profile.share:g}",
        "loaded": f"{118 - gib:.2f}",
        "left": f"{118 - gib - kv:.2f}",
        "load": f"<<s:{load:.2f}>>",
        "took": f"<<s:{marks.ready - marks.load:.2f}>>",
        "quantization": profile.option("--quantization") or "None",
        "dtype": profile.kv_dtype,
        "threads": profile.option("--threads") or "8",
    }
    lines = (
        (getattr(marks, mark) + offset, fill(text, values)) for mark, offset, text in other_script(profile.runtime)
    )
    return RecordedLog(tuple(lines)), marks
