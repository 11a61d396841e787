"""What the rules look at: a planned launch, what is known around it, and the settings read out of its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.image import Version, name_of, newest_possible
from spark_tui.domain.presets.options import KNOBS, METHOD, OFF, TOKENS, Speculation, json_parts, speculation_of
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset, RequiredFile
from spark_tui.domain.shell import words_of

Fix: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs as `overrides_from_pairs` takes them; `("without", "quantization")` takes an option out of the command."""


class Severity(StrEnum):
    """ERROR: it would not start, or its answers or its speed would be ruined. WARNING: it is slower, or less safe or
    stable than it need be. NOTE: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Advice:
    """What a rule says of a launch. `evidence` is what it saw, `fix` the change that ends it, empty where none does."""

    severity: Severity
    summary: str
    evidence: str
    remedy: str
    fix: Fix = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """A launch before it happens. None: not known, and what is not known makes no error.

    `engine_version` is what an earlier start of this image said of itself. `sparks` counts the machines that serve
    together. `neighbours_utilization` sums the memory shares of the engines that run already. `missing_files` are
    those of the preset's required files that the store lacks. `has_system_prompt`: one is sent with each chat.
    """

    plan: LaunchPlan
    overrides: Overrides = field(default_factory=Overrides)
    image: ImageFacts | None = None
    engine_version: str = ""
    checkpoint: CheckpointFacts | None = None
    is_spark: bool | None = None
    sparks: int | None = None
    has_hf_token: bool | None = None
    neighbours_utilization: float | None = None
    missing_files: tuple[RequiredFile, ...] | None = None
    has_system_prompt: bool | None = None

    @property
    def preset(self) -> Preset:
        """The preset that is launched."""
        return self.plan.preset


# Images whose start script builds the command from variables: option -> variable.
_BY_ENVIRONMENT: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    (
        "aeon-7/vllm-dflash",
        {
            "--kv-cache-dtype": "KV_CACHE_DTYPE",
            "--gpu-memory-utilization": "GPU_MEMORY_UTILIZATION",
            "--max-model-len": "MAX_MODEL_LEN",
            "--max-num-seqs": "MAX_NUM_SEQS",
            "--max-num-batched-tokens": "MAX_NUM_BATCHED_TOKENS",
        },
    ),
    (
        "avarok/dgx-vllm-nvfp4-kernel",
        {
            "--gpu-memory-utilization": "GPU_MEMORY_UTIL",
            "--max-model-len": "MAX_MODEL_LEN",
            "--max-num-seqs": "MAX_NUM_SEQS",
            "--tensor-parallel-size": "TENSOR_PARALLEL_SIZE",
        },
    ),
)
_SUFFIXES: Final[Mapping[str, int]] = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True, slots=True)
class Case:
    """A situation with its command read. `words` are the command's own, or those of its script; `model` is all that
    names the model, in lower case; `variables` are options that the image's start script takes from its environment,
    none where the command starts the server itself."""

    situation: Situation
    words: tuple[str, ...]
    env: Mapping[str, str]
    model: str
    speculation: Speculation | None
    version_at_most: Version | None
    variables: Mapping[str, str]

    @property
    def preset(self) -> Preset:
        """The preset that is launched."""
        return self.situation.preset

    @property
    def is_vllm(self) -> bool:
        """vLLM on the GPU: what most rules are about."""
        return self.preset.engine == "vllm" and not self.preset.cpu_only

    @property
    def may_be_spark(self) -> bool:
        """Not known to be another machine."""
        return self.situation.is_spark is not False

    def named(self, pattern: str) -> bool:
        """Whether the model's name holds the pattern; `_` and `-` are one."""
        return re.search(pattern, self.model) is not None

    def option(self, name: str) -> str | None:
        """The value of an option, wherever the engine takes it from; None when it is absent."""
        found = vllm.option_value(self.words, name)
        return self.env.get(self.variables.get(name, "")) if found is None else found

    def number(self, name: str) -> float | None:
        """An option as a number, `64k` and `64K` as vLLM reads them; None when it is absent or no number."""
        text = (self.option(name) or "").strip()
        factor = _SUFFIXES.get(text[-1:], 1)
        match = re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text[:-1] if factor > 1 else text)
        return float(match[0]) * factor if match else None

    def integer(self, name: str) -> int | None:
        """An option as a whole number."""
        number = self.number(name)
        return None if number is None else int(number)

    def switch(self, name: str) -> bool | None:
        """Whether a switch is on; None when the command does not say. The last of several counts."""
        negated = "--no-" + name[2:]
        state: bool | None = None
        for word in self.words:
            head, _, value = word.partition("=")
            if vllm.is_spelling(head, name):
                state = value.lower() not in ("false", "0")
            elif vllm.is_spelling(head, negated):
                state = False
        return state

    def parts(self, name: str) -> Mapping[str, Any]:
        """A JSON option as a mapping: the JSON itself, and `--name.key value` parts. Empty for what is no object."""
        return json_parts(self.words, name)

    def setting(self, key: str, value: str) -> Fix:
        """The fix that sets an option, where this image takes it from."""
        variable = self._variable(key)
        return ((f"env.{variable}", value),) if variable else ((key, value),)

    def without(self, key: str) -> Fix:
        """The fix that takes an option out of the command, or empties its variable."""
        variable = self._variable(key)
        return ((f"env.{variable}", ""),) if variable else (("without", key),)

    def _variable(self, key: str) -> str:
        name = vllm.option_of(key) or ""
        return self.variables.get(name, "") if vllm.option_value(self.words, name) is None else ""


Rule: TypeAlias = Callable[[Case], Advice | None]


def case_of(situation: Situation) -> Case:
    """Reads a situation."""
    spec = situation.plan.spec
    env = {variable.name: variable.value for variable in spec.env}
    words = words_of((*(spec.entrypoint or ()), *spec.command))
    variables = next((known for name, known in _BY_ENVIRONMENT if name_of(spec.image) == name), {})
    if any(word.rpartition("/")[2] == "vllm" for word in words):
        variables = {}
    if variables:
        words = (*words, *words_of(("sh", "-c", env.get("VLLM_EXTRA_ARGS", ""))))
    return Case(
        situation=situation,
        words=words,
        env=env,
        model=_model_names(situation),
        speculation=speculation_of(words, env) if situation.preset.engine == "vllm" else None,
        version_at_most=newest_possible(spec.image, situation.engine_version),
        variables=variables,
    )


def _model_names(situation: Situation) -> str:
    """The Hub's name of the model; of a folder in the store, what the preset calls it too."""
    preset = situation.preset
    names = [preset.model, situation.plan.model]
    if preset.model.startswith(("/", "~")):
        names += [preset.name, preset.facts.title]
    return " ".join(names).lower().replace("_", "-")


def stated_by(plan: LaunchPlan) -> dict[str, str]:
    """The settings of `KNOBS` as the planned command has them, by key; those it does not name are left out."""
    case = case_of(Situation(plan))
    found = {key: value for key in KNOBS if (value := _option(case, key))}
    found |= {"name": plan.spec.name, "port": str(plan.host_port)}
    if case.speculation is not None:
        found[METHOD] = case.speculation.method
        found |= {TOKENS: str(case.speculation.tokens)} if case.speculation.tokens is not None else {}
    elif case.is_vllm:
        found[METHOD] = OFF
    return found


def _option(case: Case, key: str) -> str | None:
    if case.preset.engine == "vllm":
        name = vllm.option_of(key)
        return case.option(name) if name else None
    return vllm.option_in(case.words, case.preset.server.spellings(key))


QWEN3_5: Final = r"qwen-?3\.5"
QWEN3_6: Final = r"qwen-?3\.6"
"""Its config bears the architecture of Qwen3.5: only the name tells them apart."""
GEMMA_26B: Final = r"(?<!diffusion)gemma-4-26b-a4b\S*nvfp4"
"""The limits are those of the NVFP4 checkpoint; the BF16 one is served on several Sparks."""
GEMMA_CODER: Final = r"gemma-?4-12b-coder|gemma4-coder"
"""The one with a paired draft model in its folder."""
