"""What a preset says, what a launch would use, and what a running container really uses, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.container import ContainerFacts, ContainerSpec, Mount, PublishedPort
from spark_tui.base.secret import SECRET_MASK, holds_secret, is_secret_name
from spark_tui.base.text import clean_line, truncate

MAX_VALUE: Final = 400
ANY_ADDRESS: Final = "*"
ON: Final = "on"
"""The value of an option that has none."""
SET: Final = "set"
"""The value of a variable that Docker does not report, or that is a secret."""


class DiffRow(Struct, frozen=True):
    """One setting; None where it is absent. `running` is None as well where nothing runs: see `Diff.container`."""

    setting: str
    preset: str | None
    launch: str | None
    running: str | None

    def differs(self, *, running: bool) -> bool:
        """Whether the columns say different things; with `running` the container's too. `set` agrees with any value."""
        if self.preset != self.launch:
            return True
        agree = self.launch is not None and self.running is not None and SET in (self.launch, self.running)
        return running and self.launch != self.running and not agree


class Diff(Struct, frozen=True):
    """All settings, in the order of the command. `container` is empty when none of this preset is there."""

    preset: str
    rows: tuple[DiffRow, ...]
    container: str = ""

    @property
    def differing(self) -> tuple[DiffRow, ...]:
        return tuple(row for row in self.rows if row.differs(running=bool(self.container)))


def diff(preset: str, plain: ContainerSpec, launch: ContainerSpec, container: ContainerFacts | None) -> Diff:
    """`plain` is the preset's own spec, `launch` the spec with a person's changes (the same without any)."""
    first, second = _of_spec(plain), _of_spec(launch)
    third = _of_container(container, launch) if container is not None else {}
    names = dict.fromkeys((*first, *second, *third))
    rows = tuple(DiffRow(name, first.get(name), second.get(name), third.get(name)) for name in names)
    return Diff(preset, rows, container.name if container is not None else "")


def _of_spec(spec: ContainerSpec) -> dict[str, str]:
    found = {"image": _shown(spec.image), **_command((*(spec.entrypoint or ()), *spec.command))}
    for variable in spec.env:
        secret = is_secret_name(variable.name) or holds_secret(variable.value)
        found[f"env {variable.name}"] = SET if secret else _shown(variable.value)
    return found | _outside(spec.ports, spec.mounts, spec.restart.name)


def _of_container(facts: ContainerFacts, launch: ContainerSpec) -> dict[str, str]:
    """Variables only as far as the launch names them: an image brings dozens of its own."""
    wanted = {variable.name for variable in launch.env}
    env = {f"env {name}": SET for name in facts.environment if name in wanted}
    outside = _outside(facts.ports, facts.mounts, facts.restart_policy)
    return {"image": _shown(facts.image), **_command(facts.argv), **env, **outside}


def _outside(ports: Iterable[PublishedPort], mounts: Iterable[Mount], restart: str) -> dict[str, str]:
    bound = {f"{port.host_ip or ANY_ADDRESS}:{port.host_port} -> {port.container_port}" for port in ports}
    found = {"port": ", ".join(sorted(bound)) or "none"}
    return found | {f"mount {each.target}": _shown(each.source) for each in mounts} | {"restart": restart or "no"}


def _command(words: Iterable[str]) -> dict[str, str]:
    """`program` up to the first option, and each option with its value; one that comes twice has both."""
    found: dict[str, str] = {}
    name = "program"
    values: list[str] = []

    def close() -> None:
        value = _shown(" ".join(values)) if values else ON
        if is_secret_name(name.lstrip("-")) or holds_secret(value):
            value = SECRET_MASK
        if name != "program" or values:
            found[name] = f"{found[name]}, {value}" if name in found else value

    for word in words:
        if word.startswith("--") and len(word) > 2:
            close()
            option, equals, value = word.partition("=")
            name, values = option.replace("_", "-"), [value] if equals else []
        else:
            values.append(word)
    close()
    return found


def _shown(text: str) -> str:
    return truncate(clean_line(text), MAX_VALUE)
