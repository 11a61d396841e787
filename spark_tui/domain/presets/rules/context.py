"""What the rules look at: a planned launch, what is known around it, and the settings read out of its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from spark_tui.domain.engine.container import ContainerSpec, ImageFacts
from spark_tui.domain.finding import Change, Finding
from spark_tui.domain.host.identity import NOMINAL_MEMORY
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.image import Version, name_of, newest_possible
from spark_tui.domain.presets.invocation import Invocation, number_in, parse
from spark_tui.domain.presets.options import METHOD, OFF, SETTABLE, TOKENS, compact_json
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset, RequiredFile
from spark_tui.domain.presets.speculation import CONFIG, Speculation, speculation_of

# How the models of the guide are recognised: patterns over the model's names, in lower case and with `-` for `_`.
QWEN3_5: Final = r"qwen-?3\.5"
QWEN3_6: Final = r"qwen-?3\.6"
"""Its config has the architecture of Qwen3.5: only the name differs."""
GEMMA_26B: Final = r"(?<!diffusion)gemma-4-26b-a4b\S*nvfp4"
"""The limits are those of the NVFP4 checkpoint; the BF16 one is served on several Sparks."""
GEMMA_CODER: Final = r"gemma-?4-12b-coder|gemma4-coder"
"""The one with a paired draft model in its folder."""

# Images whose start script builds the command from variables: key -> variable.
_BY_ENVIRONMENT: Final[Mapping[str, Mapping[str, str]]] = {
    "aeon-7/vllm-dflash": {
        "kv_cache_dtype": "KV_CACHE_DTYPE",
        "gpu_memory_utilization": "GPU_MEMORY_UTILIZATION",
        "max_model_len": "MAX_MODEL_LEN",
        "max_num_seqs": "MAX_NUM_SEQS",
        "max_num_batched_tokens": "MAX_NUM_BATCHED_TOKENS",
    },
    "avarok/dgx-vllm-nvfp4-kernel": {
        "gpu_memory_utilization": "GPU_MEMORY_UTIL",
        "max_model_len": "MAX_MODEL_LEN",
        "max_num_seqs": "MAX_NUM_SEQS",
        "tensor_parallel": "TENSOR_PARALLEL_SIZE",
    },
}


@dataclass(frozen=True)
class LaunchContext:
    """A launch before it happens. None: not known, and what is not known makes no error.

    `engine_version` is what an earlier start of this image logged. `sparks` counts the machines that serve together,
    `memory_total` is this machine's memory in bytes. `neighbours_utilization` sums the memory shares of the engines
    that run already. `missing_files` are required files that the store lacks. `has_system_prompt`: one is sent with
    each chat.
    """

    plan: LaunchPlan
    overrides: Overrides = field(default_factory=Overrides)
    image: ImageFacts | None = None
    engine_version: str = ""
    checkpoint: CheckpointFacts | None = None
    is_spark: bool | None = None
    sparks: int | None = None
    memory_total: int | None = None
    has_hf_token: bool | None = None
    neighbours_utilization: float | None = None
    missing_files: tuple[RequiredFile, ...] | None = None
    has_system_prompt: bool | None = None

    @property
    def preset(self) -> Preset:
        """The preset that is launched."""
        return self.plan.preset

    @property
    def spec(self) -> ContainerSpec:
        """The container that is launched."""
        return self.plan.spec

    @property
    def total(self) -> int:
        """This machine's memory in bytes; a GB10's nominal one where it was not read."""
        return self.memory_total or NOMINAL_MEMORY

    @property
    def is_vllm(self) -> bool:
        """vLLM on the GPU: what most rules are about."""
        return self.preset.engine == "vllm" and not self.preset.cpu_only

    @property
    def may_be_spark(self) -> bool:
        """Not known to be another machine."""
        return self.is_spark is not False

    # --- what its command says ------------------------------------------------------------------------

    @cached_property
    def env(self) -> Mapping[str, str]:
        """The container's variables."""
        return {variable.name: variable.value for variable in self.spec.env}

    @cached_property
    def _parsed(self) -> tuple[Invocation, Mapping[str, str]]:
        """The command, and the options that the image's start script takes from its environment: none where the
        command starts the server itself."""
        found = parse((*(self.spec.entrypoint or ()), *self.spec.command), self.preset.server.id)
        variables = _BY_ENVIRONMENT.get(name_of(self.spec.image), {})
        if not variables or any(word.rpartition("/")[2] == "vllm" for word in found.words):
            return found, {}
        more = parse(("sh", "-c", self.env.get("VLLM_EXTRA_ARGS", "")))
        return replace(found, arguments=(*found.arguments, *more.arguments)), variables

    @property
    def invocation(self) -> Invocation:
        """The server's command."""
        return self._parsed[0]

    @property
    def variables(self) -> Mapping[str, str]:
        """Options that the image's start script takes from its environment, by key."""
        return self._parsed[1]

    @cached_property
    def speculation(self) -> Speculation | None:
        """How vLLM would draft; None: not at all."""
        return speculation_of(self.invocation, self.env) if self.preset.engine == "vllm" else None

    @cached_property
    def model(self) -> str:
        """All that names the model, in lower case with `-` for `_`: the Hub's name; of a folder in the store, what the
        preset calls it too."""
        preset = self.preset
        names = [preset.model, self.plan.model]
        if preset.model.startswith(("/", "~")):
            names += [preset.name, preset.facts.title]
        return " ".join(names).lower().replace("_", "-")

    @cached_property
    def newest_vllm(self) -> Version | None:
        """The newest vLLM that the image can hold, as far as its name or an earlier log says."""
        return newest_possible(self.spec.image, self.engine_version)

    def named(self, pattern: str) -> bool:
        """Whether the model's name holds the pattern."""
        return re.search(pattern, self.model) is not None

    def value(self, key: str) -> str | None:
        """The value of an option, wherever the engine takes it from; None where it is absent."""
        found = self.invocation.value(key)
        return self.env.get(self.variables.get(key, "")) if found is None else found

    def lower(self, key: str) -> str:
        """The value in lower case; empty where it is absent."""
        return (self.value(key) or "").lower()

    def number(self, key: str) -> float | None:
        """An option as a number, None where it is absent or none."""
        return number_in(self.value(key) or "")

    def integer(self, key: str) -> int | None:
        """An option as a whole number."""
        number = self.number(key)
        return None if number is None else int(number)

    def switch(self, key: str) -> bool | None:
        """Whether a switch is on; None where the command does not say."""
        return self.invocation.switch(key)

    # --- what changes it ------------------------------------------------------------------------------

    def setting(self, key: str, value: object) -> Change:
        """The change that sets an option, where this image takes it from."""
        variable = self._variable(key)
        return ((f"env.{variable}", str(value)),) if variable else ((key, str(value)),)

    def without(self, key: str) -> Change:
        """The change that removes an option from the command, or empties its variable."""
        variable = self._variable(key)
        return ((f"env.{variable}", ""),) if variable else (("without", key),)

    def with_config(self, **changes: object) -> Change:
        """The change that rewrites --speculative-config (None removes a key); none where the image has it elsewhere."""
        if self.speculation is None or self.value(CONFIG) is None:
            return ()
        config = {name: value for name, value in {**self.speculation.config, **changes}.items() if value is not None}
        return ((CONFIG, compact_json(config)),)

    def with_tokens(self, tokens: int) -> Change:
        """The change to that number of drafted tokens; none where the image takes the number elsewhere."""
        return () if self.env.get("DFLASH_DRAFTER") else ((TOKENS, str(tokens)),)

    def without_drafting(self) -> Change:
        """The change that ends speculation, in every spelling."""
        return (("env.DFLASH_DRAFTER", ""),) if self.env.get("DFLASH_DRAFTER") else ((METHOD, OFF),)

    def _variable(self, key: str) -> str:
        return self.variables.get(key, "") if self.invocation.value(key) is None else ""

    def json(self, key: str) -> Mapping[str, Any]:
        """A JSON option as a mapping; empty for what is no object."""
        return self.invocation.json(key)


def given_settings(plan: LaunchPlan) -> dict[str, str]:
    """The settable options as a planned command and its environment have them, by key; absent ones are left out."""
    launch = LaunchContext(plan)
    found = {key: value for key in SETTABLE if (value := launch.value(key))}
    found |= {"name": plan.spec.name, "port": str(plan.host_port)}
    if launch.speculation is not None:
        tokens = launch.speculation.tokens
        found |= {METHOD: launch.speculation.method} | ({} if tokens is None else {TOKENS: str(tokens)})
    elif launch.is_vllm:
        found[METHOD] = OFF
    return found


Rule: TypeAlias = Callable[[LaunchContext], Finding | None]


class Rules(dict[str, Rule]):
    """Rules by id, in the order in which they are written. Scripts may rely on the ids."""

    def add(self, *, any_engine: bool = False, spark: bool = False) -> Callable[[Rule], Rule]:
        """Registers a rule under its function's name: for vLLM on the GPU unless `any_engine`; `spark`: only where the
        machine may be a Spark."""

        def register(rule: Rule) -> Rule:
            def guarded(launch: LaunchContext) -> Finding | None:
                skipped = not (any_engine or launch.is_vllm) or (spark and not launch.may_be_spark)
                return None if skipped else rule(launch)

            self[rule.__name__] = guarded
            return rule

        return register
