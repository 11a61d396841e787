"""A container as a Quadlet: the `.container` file from which Podman's generator makes a systemd service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from spark_tui.domain.engine.container import ContainerSpec, Gpus, Mount, RestartPolicy
from spark_tui.domain.engine.docker_run import canonical, port_value, render_lines, ulimit_value
from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.dialects.yaml_text import comment
from spark_tui.domain.quantities import docker_size

_BARE = re.compile(r"[A-Za-z0-9_./:=@,+-]+")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def word(text: str) -> str:
    """One word of a command line: quoted where needed, `%` (specifiers) and `$` (variables) doubled."""
    return _quoted(text.replace("%", "%%").replace("$", "$$"))


def command_line(words: Iterable[Iterable[str]]) -> str:
    """Groups of words, one group a line."""
    return " \\\n  ".join(" ".join(word(each) for each in group) for group in words)


def plain(text: str) -> str:
    """A value that is read as it stands: a description. Specifiers are doubled, lines joined."""
    return " ".join(text.replace("%", "%%").replace("\\", "/").split())


def _quoted(text: str) -> str:
    if "\0" in text:
        raise UsageError("A word of the command has a NUL character.", "Remove it: no unit can carry it.")
    if _BARE.fullmatch(text):
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char


DOCKER: Final = "/usr/bin/docker"
STOP_SECONDS: Final = 30
RESTART_SECONDS: Final = 30
MOST_STARTS: Final = 3
STARTS_WITHIN_SECONDS: Final = 7200
"""A restart loop leaks GPU mappings and wedges a Spark after some dozens of rounds (eugr/spark-vllm-docker#257)."""


def systemd_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The unit, for /etc/systemd/system/NAME.service. systemd restarts, so Docker does not; the ended container of an
    earlier start is kept until the next one, with its log. Raises UsageError for a container without a name."""
    if not spec.name:
        raise UsageError("A service needs a container's name.", "Give one: --set name=NAME")
    run = render_lines(replace(spec, restart=RestartPolicy()))
    started = command_line([(DOCKER, "run"), *run[1:]])  # in the foreground: systemd watches it
    name = word(spec.name)
    return comment(about) + "\n".join(
        (
            "[Unit]",
            f"Description={plain(f'{spec.name}: {spec.image}')}",
            "Requires=docker.service",
            "Wants=network-online.target",
            "After=docker.service network-online.target",
            f"StartLimitIntervalSec={STARTS_WITHIN_SECONDS}",
            f"StartLimitBurst={MOST_STARTS}",
            "",
            "[Service]",
            "Type=exec",
            "# A pull may take an hour.",
            "TimeoutStartSec=infinity",
            f"ExecStartPre=-{DOCKER} rm {name}",
            f"ExecStart={started}",
            f"ExecStop={DOCKER} stop -t {STOP_SECONDS} {name}",
            f"TimeoutStopSec={2 * STOP_SECONDS}",
            f"Restart={_restart(spec.restart)}",
            f"RestartSec={RESTART_SECONDS}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        )
    )


def _restart(policy: RestartPolicy) -> str:
    return "always" if policy.name in ("always", "unless-stopped") else "on-failure"


CDI_KIND: Final = "nvidia.com/gpu"


def quadlet_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The file, for /etc/containers/systemd/NAME.container. Raises UsageError for a container without a name, and for
    a mount with a colon in its path."""
    if not spec.name:
        raise UsageError("A Quadlet needs a container's name.", "Give one: --set name=NAME")
    spec = canonical(spec)
    return comment(about) + "\n".join(
        (
            "[Unit]",
            f"Description={plain(f'{spec.name}: {spec.image}')}",
            "Wants=network-online.target",
            "After=network-online.target",
            f"StartLimitIntervalSec={STARTS_WITHIN_SECONDS}",
            f"StartLimitBurst={MOST_STARTS}",
            "",
            "[Container]",
            *(f"{key}={value}" for key, value in _container(spec)),
            "",
            "[Service]",
            "# A pull may take an hour.",
            "TimeoutStartSec=infinity",
            f"Restart={'always' if spec.restart.name in ('always', 'unless-stopped') else 'on-failure'}",
            f"RestartSec={RESTART_SECONDS}",
            "",
            "[Install]",
            "WantedBy=multi-user.target default.target",
            "",
        )
    )


def qualified(image: str) -> str:
    """The image's full name: Podman asks which registry a short one is from, and a service cannot ask."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _container(spec: ContainerSpec) -> Iterator[tuple[str, str]]:
    yield "ContainerName", word(spec.name)
    yield "Image", word(qualified(spec.image))
    for device in _gpu_devices(spec.gpus):
        yield "AddDevice", word(device)
    for device in spec.devices:
        yield "AddDevice", word(device)
    if spec.network:
        yield "Network", word(spec.network)
    for port in spec.ports:
        yield "PublishPort", word(port_value(port))
    if spec.shm_size:
        yield "ShmSize", docker_size(spec.shm_size)
    for limit in spec.ulimits:
        yield "Ulimit", word(ulimit_value(limit))
    for mount in spec.mounts:
        yield "Volume", _volume(mount)
    for path in spec.env_files:
        yield "EnvironmentFile", word(path)
    for variable in spec.env:
        yield "Environment", word(f"{variable.name}={variable.value}")
    for key, value in spec.labels:
        yield "Label", word(f"{key}={value}")
    if spec.user:
        yield "User", word(spec.user.partition(":")[0])
    if ":" in spec.user:
        yield "Group", word(spec.user.partition(":")[2])
    for capability in spec.cap_add:
        yield "AddCapability", word(capability)
    if spec.init:
        yield "RunInit", "true"
    for argument in _arguments(spec):
        yield "PodmanArgs", word(argument)
    if spec.command:
        yield "Exec", " ".join(word(each) for each in spec.command)


def _arguments(spec: ContainerSpec) -> Iterator[str]:
    """What Quadlet of Podman 4.9 has no key for."""
    if spec.entrypoint is not None:
        yield f"--entrypoint={''.join(spec.entrypoint)}"
    if spec.ipc:
        yield f"--ipc={spec.ipc}"
    if spec.oom_score_adj:
        yield f"--oom-score-adj={spec.oom_score_adj}"
    for option in spec.security_opt:
        yield f"--security-opt={option}"
    if spec.privileged:
        yield "--privileged"


def _gpu_devices(gpus: Gpus | None) -> tuple[str, ...]:
    if gpus is None:
        return ()
    if gpus.device_ids:
        return tuple(f"{CDI_KIND}={device}" for device in gpus.device_ids)
    return (f"{CDI_KIND}=all",) if gpus.count == -1 else tuple(f"{CDI_KIND}={at}" for at in range(gpus.count))


def _volume(mount: Mount) -> str:
    if ":" in mount.source or ":" in mount.target:
        raise UsageError(f"A Quadlet cannot mount {mount.source}: its path has a colon.", "Rename that folder.")
    return word(f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}")
