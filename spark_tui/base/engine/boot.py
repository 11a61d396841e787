"""Engines that start with the machine: one systemd unit each, and what systemd says of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

_PREFIX: Final = "spark-tui-boot-"
_SUFFIX: Final = ".service"


class BootState(StrEnum):
    """Whether an engine starts with the machine."""

    OFF = "off"
    ENABLED = "enabled"
    FAILED = "failed"


class BootStatus(Struct, frozen=True):
    """What systemd says of one engine's unit. `system`: a unit of the machine, not of the person. `lingers`: the
    person's units start with the machine; else at the first login."""

    name: str
    state: BootState = BootState.OFF
    unit: str = ""
    detail: str = ""
    system: bool = False
    lingers: bool = True

    @property
    def on(self) -> bool:
        return self.state is not BootState.OFF


def unit_name(engine: str) -> str:
    """`spark-tui-boot-qwen3.6-35b.service`. Names of containers are plain enough for it."""
    return f"{_PREFIX}{engine}{_SUFFIX}"


def engine_of(unit: str) -> str:
    """The engine that a unit starts; empty for other units."""
    found = unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)
    return unit[len(_PREFIX) : -len(_SUFFIX)] if found else ""


def read_status(engine: str, properties: Mapping[str, str], *, system: bool, lingers: bool) -> BootStatus:
    """From `systemctl show`: a failed unit is enabled too, and says so."""
    failed = properties.get("ActiveState") == "failed"
    enabled = properties.get("UnitFileState", "").startswith("enabled")
    state = BootState.FAILED if failed else BootState.ENABLED if enabled else BootState.OFF
    result, code = properties.get("Result", ""), properties.get("ExecMainStatus", "")
    detail = "" if not failed else f"exit code {code}" if result == "exit-code" else result
    return BootStatus(engine, state, unit_name(engine), detail, system, lingers or system)
