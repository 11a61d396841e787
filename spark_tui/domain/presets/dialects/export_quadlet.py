"""A container as a Quadlet: the `.container` file from which Podman's generator makes a systemd service.

For Podman 4.9 and later: what its generator has no key for goes through `PodmanArgs`. GPUs are named by CDI, the way
in which Podman knows them (`nvidia-ctk cdi generate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.container_spec import ContainerSpec, Gpus, Mount
from spark_tui.domain.presets.dialects.export_systemd import (
    MOST_STARTS,
    RESTART_SECONDS,
    STARTS_WITHIN_SECONDS,
)
from spark_tui.domain.presets.dialects.systemd_text import plain, word
from spark_tui.domain.presets.dialects.yaml_text import comment
from spark_tui.domain.presets.docker_run import canonical, port_value, ulimit_value
from spark_tui.domain.quantities import docker_size

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
    """The image's full name: Podman asks which registry a short one is from, and a service has nobody to ask."""
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
