"""A ContainerSpec as arguments of the Docker SDK, and as the request that they make.

Wherever the `docker` program changes what a person wrote before it sends it on, this does the same, so that the
rendered command and the adapter make equal containers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.errors import DockerError
from spark_tui.domain.presets.container_spec import ContainerSpec, Gpus, PublishedPort, Ulimit
from spark_tui.domain.presets.docker_run import canonical, needs_mount_option

_HOST_NETWORK: Final = "host"
_UNMASKED: Final = "systempaths=unconfined"


def config_arguments(spec: ContainerSpec, environment: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments of `APIClient.create_container_config`. `environment` is all of it, the env files' included."""
    spec = canonical(spec)
    entrypoint = None if spec.entrypoint is None else [*spec.entrypoint] or [""]  # [""] is how Docker spells "none"
    return {
        "image": spec.image,
        "command": [*spec.command] or None,
        "entrypoint": entrypoint,
        "environment": [*environment],
        "ports": [(port.container_port, port.protocol) for port in spec.ports],
        "labels": dict(spec.labels),
        "user": spec.user or None,
        "detach": True,
    }


def host_arguments(spec: ContainerSpec) -> dict[str, Any]:
    """Keyword arguments of `APIClient.create_host_config`."""
    spec = canonical(spec)
    return {
        "binds": [
            f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
            for mount in spec.mounts
            if not needs_mount_option(mount)
        ]
        or None,
        "mounts": [
            {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
            for mount in spec.mounts
            if needs_mount_option(mount)
        ]
        or None,
        "port_bindings": _bindings(spec.ports) if spec.network != _HOST_NETWORK else None,
        "device_requests": _device_requests(spec),
        "ipc_mode": spec.ipc or None,
        "shm_size": spec.shm_size or None,
        "network_mode": spec.network or None,
        "ulimits": _ulimits(spec.ulimits) or None,
        "restart_policy": {"Name": spec.restart.name, "MaximumRetryCount": spec.restart.maximum_retries},
        "oom_score_adj": spec.oom_score_adj or None,
        "cap_add": _capabilities(spec.cap_add) or None,
        "devices": [device for device in spec.devices if not _is_cdi(device)] or None,
        "security_opt": [_security(option) for option in spec.security_opt if option != _UNMASKED] or None,
        "privileged": spec.privileged,
        "init": True if spec.init else None,
    }


def create_request(spec: ContainerSpec, environment: Sequence[str], api_version: str, proxies: Any) -> dict[str, Any]:
    """The body of `POST /containers/create`. `proxies` is that part of the docker program's settings."""
    from docker.types import ContainerConfig, HostConfig
    from docker.utils.proxy import ProxyConfig

    host = HostConfig(version=api_version, **host_arguments(spec))
    if _UNMASKED in spec.security_opt:
        host["MaskedPaths"], host["ReadonlyPaths"] = [], []
    complete = ProxyConfig.from_dict(proxies).inject_proxy_environment([*environment]) or []
    return dict(ContainerConfig(api_version, host_config=host, **config_arguments(spec, complete)))


def _bindings(ports: Sequence[PublishedPort]) -> dict[str, list[tuple[str, int | None]]]:
    bindings: dict[str, list[tuple[str, int | None]]] = {}
    for port in ports:
        key = f"{port.container_port}/{port.protocol}"
        bindings.setdefault(key, []).append((port.host_ip, port.host_port or None))
    return bindings


def _device_requests(spec: ContainerSpec) -> list[dict[str, Any]] | None:
    """The GPUs as `--gpus` asks for them, and devices by their CDI name (`nvidia.com/gpu=all`)."""
    requests = [] if spec.gpus is None else [_gpu_request(spec.gpus)]
    cdi = [device for device in spec.devices if _is_cdi(device)]
    if cdi:
        requests.append({"Driver": "cdi", "DeviceIDs": cdi})
    return requests or None


def _gpu_request(gpus: Gpus) -> dict[str, Any]:
    count = 0 if gpus.device_ids else gpus.count
    return {"Driver": "", "Count": count, "DeviceIDs": [*gpus.device_ids], "Capabilities": [["gpu"]], "Options": {}}


def _is_cdi(device: str) -> bool:
    return not device.startswith("/") and "/" in device and "=" in device


def _capabilities(names: Sequence[str]) -> list[str]:
    """`ipc_lock` as `CAP_IPC_LOCK`, each once, sorted; ALL takes in every other."""
    spelt = {name.upper() if name.upper().startswith("CAP_") else f"CAP_{name.upper()}" for name in names}
    return ["ALL"] if "CAP_ALL" in spelt else sorted(spelt)


def _ulimits(limits: Sequence[Ulimit]) -> list[dict[str, str | int]]:
    """By name, the last one of a name."""
    last = {limit.name: limit for limit in limits}
    return [{"Name": name, "Soft": last[name].soft, "Hard": last[name].hard} for name in sorted(last)]


def _security(option: str) -> str:
    """A seccomp profile is named by its path and sent as its content."""
    kind, separator, value = option.partition("=") if "=" in option else option.partition(":")
    if kind != "seccomp" or not separator or value in ("unconfined", "builtin"):
        return option
    try:
        return f"seccomp={json.dumps(json.loads(Path(value).read_text('utf-8')), separators=(',', ':'))}"
    except (OSError, ValueError) as error:
        raise DockerError(
            f"The seccomp profile {value} cannot be read.", "It has to be a JSON file.", detail=str(error)
        ) from error
