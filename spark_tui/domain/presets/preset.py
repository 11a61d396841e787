"""A preset: a sparkrun v2 recipe with our own facts under `metadata`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from spark_tui.domain.errors import PresetError

Scalar: TypeAlias = str | int | float | bool | None


class Origin(StrEnum):
    """Where a preset file lives."""

    BUILTIN = "built in"
    USER = "yours"


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """A published decode speed: tokens per second, under which conditions, and who says so."""

    tokens_per_second: float
    conditions: str
    source: str


@dataclass(frozen=True, slots=True)
class PresetFacts:
    """What is known about the model, from the recipe's `metadata`. Empty or None: not stated."""

    title: str = ""
    description: str = ""
    family: str = ""
    publisher: str = ""
    licence: str = ""
    gated: bool | None = None
    architecture: str = ""
    total_parameters: float | None = None
    active_parameters: float | None = None
    weights_bytes: int | None = None
    context_tokens: int | None = None
    modalities: tuple[str, ...] = ()
    quantization: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    published: tuple[PublishedSpeed, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """`executor_config` of the recipe, as far as a container can carry it. None: our default applies."""

    entrypoint: str | None = None
    shm_size: int | None = None
    ipc: str | None = None
    network: str | None = None
    gpus: str | None = None
    user: str | None = None
    privileged: bool | None = None
    restart_policy: str | None = None
    ulimits: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preset:
    """One usable recipe. `name` is the file's stem and the container's name.

    `command` is the template; `defaults` its values; `env` literal environment. `mounts` are extra
    `source:target[:ro]` lines (our own key, under `metadata`). `unknown` keeps keys that we do not use, so
    that they are shown and survive an export. `hooks` are shown and never run.
    """

    name: str
    origin: Origin
    file: str
    model: str
    image: str
    runtime: str = "vllm"
    model_revision: str = ""
    command: str = ""
    defaults: tuple[tuple[str, Scalar], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    options: ContainerOptions = ContainerOptions()
    facts: PresetFacts = PresetFacts()
    mounts: tuple[str, ...] = ()
    min_nodes: int = 1
    ready_timeout_seconds: float | None = None
    hooks: tuple[str, ...] = ()
    mods: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()

    def default(self, key: str) -> Scalar:
        """The default of a template value, or None."""
        return next((value for name, value in self.defaults if name == key), None)


@dataclass(frozen=True, slots=True)
class PresetCatalogue:
    """Everything found, in name order, and what could not be read."""

    presets: tuple[Preset, ...] = ()
    problems: tuple[PresetError, ...] = ()

    def get(self, name: str) -> Preset | None:
        """The preset of that name, or None."""
        return next((preset for preset in self.presets if preset.name == name), None)
