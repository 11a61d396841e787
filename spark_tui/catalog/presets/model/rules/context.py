"""What the rules look at: a planned launch, what is known around it, and the settings read out of its command; and the
decorator that registers a rule."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.engine.container import ContainerSpec, ImageFacts
from spark_tui.base.engine.image import StartScript, Version, newest_possible, start_script
from spark_tui.base.engine.invocation import (
    METHOD,
    OFF,
    SETTABLE,
    TOKENS,
    TOOLS,
    Invocation,
    compact_json,
    number_in,
    parse,
)
from spark_tui.base.engine.runtimes import is_pooling
from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.base.host.vitals import NOMINAL_MEMORY
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.command import calls_tools
from spark_tui.catalog.presets.model.overrides import CONFIG, Overrides, Speculation, speculation_of
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset, RequiredFile

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
EVIDENCE_CELLS: Final = 200
SENTENCE_CELLS: Final = 400

# How the models of the guide are recognised: patterns over the model's names, in lower case and with `-` for `_`.
QWEN3_5: Final = r"qwen-?3\.5"
QWEN3_6: Final = r"qwen-?3\.6"
"""Its config has the architecture of Qwen3.5: only the name differs."""
GEMMA_26B: Final = r"(?<!diffusion)gemma-4-26b-a4b\S*nvfp4"
"""The limits are those of the NVFP4 checkpoint; the BF16 one is served on several Sparks."""
GEMMA_CODER: Final = r"gemma-?4-12b-coder|gemma4-coder"
"""The one with a paired draft model in its folder."""

# The options by which an engine reads a file or a folder; what it writes, and paths of its API, are none.
_READS_FILE: Final = re.compile(r"template$|plugin$|file$|_certs?$|model|^tokenizer|^mmproj|config$|_options$|^lora")
_WRITES: Final = re.compile(r"log|record|output|slot")
_WEIGHTS: Final = re.compile(r"model|^tokenizer|^mmproj|^lora")
_FILE: Final = re.compile(r"\.{0,2}/[^\s{}]*|[\w./-]+\.(?:jinja2?|py|json|ya?ml|pem|crt|key|gguf)")


class LaunchContext(Struct, frozen=True, dict=True):
    """A launch before it happens. None: not known, and what is not known makes no error.

    `engine_version` is what an earlier start of this image logged. `sparks` counts the machines that serve together,
    `memory_total` is this machine's memory in bytes. `share` is the memory share that the launch needs here now.
    `missing_files` are required files that are not in the store. `has_system_prompt`: one is sent
    with each chat. `failed_here` is why a person marked it as failed on this machine.
    """

    plan: LaunchPlan
    overrides: Overrides = field(default_factory=Overrides)
    image: ImageFacts | None = None
    engine_version: str = ""
    checkpoint: CheckpointFacts | None = None
    is_spark: bool | None = None
    has_gpu: bool | None = None
    sparks: int | None = None
    memory_total: int | None = None
    has_hf_token: bool | None = None
    share: float | None = None
    missing_files: tuple[RequiredFile, ...] | None = None
    has_system_prompt: bool | None = None
    failed_here: str = ""

    @property
    def preset(self) -> Preset:
        return self.plan.preset

    @property
    def spec(self) -> ContainerSpec:
        return self.plan.spec

    @property
    def total(self) -> int:
        """This machine's memory in bytes; a GB10's nominal one where it was not read."""
        return self.memory_total or NOMINAL_MEMORY

    @cached_property
    def is_vllm(self) -> bool:
        """vLLM on the GPU: what most rules are about."""
        return self.preset.engine == "vllm" and not self.preset.cpu_only

    # --- what its command says ------------------------------------------------------------------------

    @cached_property
    def env(self) -> Mapping[str, str]:
        return {variable.name: variable.value for variable in self.spec.env}

    @cached_property
    def described(self) -> StartScript | None:
        """What is known of the image's own start script, whether it runs or not."""
        return start_script(self.spec.image)

    @cached_property
    def script(self) -> StartScript | None:
        """The start script that builds the command from variables; None where the command starts the server itself."""
        if self.described is None:
            return None
        words = parse((*(self.spec.entrypoint or ()), *self.spec.command), self.preset.server.id).words
        return None if self.described.is_without(words) else self.described

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """The variables from which the image's start script builds the command, by option."""
        return self.script.options if self.script is not None else {}

    @cached_property
    def invocation(self) -> Invocation:
        """The server's command, with the arguments that a start script appends."""
        found = parse((*(self.spec.entrypoint or ()), *self.spec.command), self.preset.server.id)
        if self.script is None:
            return found
        more = parse(("sh", "-c", self.env.get(self.script.extra, "")))
        return replace(found, arguments=(*found.arguments, *more.arguments))

    @cached_property
    def _values(self) -> Mapping[str, str]:
        """What `Invocation.value` gives, by option: some fifty rules ask."""
        plain = (each for each in self.invocation.arguments if not each.path and not each.off)
        return {each.key: each.value or "" for each in plain}

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

    @property
    def pools(self) -> bool:
        """Whether it answers with vectors or scores: no token is decoded."""
        return is_pooling(self.invocation.words)

    def named(self, pattern: str) -> bool:
        return re.search(pattern, self.model) is not None

    def value(self, key: str) -> str | None:
        """The value of an option, wherever the engine takes it from, a start script's default included; None where it
        is absent."""
        found, variable = self._values.get(key), self.variables.get(key, "")
        if found is not None or self.script is None or not variable:
            return found
        return self.env.get(variable, self.script.variables[variable].default)

    def lower(self, key: str) -> str:
        """The value in lower case; empty where it is absent."""
        return (self.value(key) or "").lower()

    def number(self, key: str) -> float | None:
        """An option as a number, None where it is absent or no number."""
        return number_in(self.value(key) or "")

    def integer(self, key: str) -> int | None:
        number = self.number(key)
        return None if number is None else int(number)

    def switch(self, key: str) -> bool | None:
        """Whether a switch is on; None where the command does not say."""
        return self.invocation.switch(key)

    def json(self, key: str) -> Mapping[str, Any]:
        """A JSON option as a mapping; empty for what is no object."""
        return self.invocation.json(key)

    @cached_property
    def _unmounted(self) -> list[tuple[str, str]]:
        """The paths that the command reads where no mount is, each with its option."""
        options = (each for each in self.invocation.arguments if each.key and not each.off)
        named = [(each.key, (each.value or "").rpartition("=")[2]) for each in options]  # NAME=PATH of an adapter
        drafter = self.speculation.drafter if self.speculation is not None else ""
        pairs = [("model", self.plan.model), ("draft_model", drafter), *named]
        targets = [each.target.rstrip("/") for each in self.spec.mounts]
        script = " ".join(self.invocation.script)
        return [
            (key, text)
            for key, text in pairs
            if _READS_FILE.search(key) and not _WRITES.search(key)
            if (text.startswith("/") if _WEIGHTS.search(key) else _FILE.fullmatch(text))
            and not any(f"{posixpath.normpath(text)}/".startswith(f"{target}/") for target in targets)
            and script.count(text) < 2  # a script that names it once more makes it itself
        ]

    @property
    def unmounted_weights(self) -> tuple[str, ...]:
        """Models, drafters and adapters by a path that no mount has."""
        return tuple(dict.fromkeys(path for key, path in self._unmounted if _WEIGHTS.search(key)))

    @property
    def unmounted_files(self) -> tuple[str, ...]:
        """Templates, plugins and the like that no mount has: the image must."""
        return tuple(dict.fromkeys(path for key, path in self._unmounted if not _WEIGHTS.search(key)))

    # --- what changes it ------------------------------------------------------------------------------

    def _variable(self, key: str) -> str:
        return self.variables.get(key, "") if self.invocation.value(key) is None else ""

    def setting(self, key: str, value: object) -> Change:
        """The change that sets an option, where this image takes it from."""
        variable = self._variable(key)
        return ((f"env.{variable}" if variable else key, str(value)),)

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


def given_settings(plan: LaunchPlan) -> dict[str, str]:
    """The settable options as a planned command and its environment have them, by key; absent ones are left out."""
    launch = LaunchContext(plan)
    found = {key: value for key in SETTABLE if (value := launch.value(key))}
    found |= {"name": plan.spec.name, "port": str(plan.host_port)}
    found[TOOLS] = "on" if calls_tools(launch.invocation, launch.preset.engine) else OFF
    if launch.speculation is not None:
        tokens = launch.speculation.tokens
        found |= {METHOD: launch.speculation.method} | ({} if tokens is None else {TOKENS: str(tokens)})
    elif launch.is_vllm:
        found[METHOD] = OFF
    return found


# --- rules ------------------------------------------------------------------------------------------------


class RuleMatch(Struct, frozen=True):
    """What a rule saw, the change that ends it, and what differs this time from the rule's own words."""

    evidence: str
    change: Change = ()
    severity: Severity | None = None
    summary: str = ""
    remedy: str = ""


Matches: TypeAlias = Iterator[RuleMatch]
Rule: TypeAlias = Callable[[LaunchContext], Matches]
"""A pure function of a launch that yields at most one match."""


class RuleTable(dict[str, Callable[[LaunchContext], Finding | None]]):
    """Rules by id, in the order in which they are written; each gives its finding in text that is safe to show.
    Scripts may rely on the ids."""

    def add(
        self, severity: Severity, summary: str, remedy: str = "", *, any_engine: bool = False, spark: bool = False
    ) -> Callable[[Rule], Rule]:
        """Registers a rule under its function's name: for vLLM on the GPU unless `any_engine`; `spark`: only where the
        machine may be a Spark."""

        def register(rule: Rule) -> Rule:
            def find(launch: LaunchContext) -> Finding | None:
                skipped = (spark and launch.is_spark is False) or not (any_engine or launch.is_vllm)
                match = None if skipped else next(rule(launch), None)
                if match is None:
                    return None
                return Finding(
                    rule.__name__,
                    match.severity or severity,
                    truncate(clean_line(match.summary or summary), SENTENCE_CELLS),
                    (truncate(clean_line(match.evidence), EVIDENCE_CELLS),),
                    truncate(clean_line(match.remedy or remedy), SENTENCE_CELLS),
                    match.change,
                )

            self[rule.__name__] = find
            return rule

        return register
