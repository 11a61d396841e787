"""A ContainerSpec as the SDK takes it.

Wherever the docker program changes what a person wrote before it sends it, this does the same: the rendered command
and the adapter make equal containers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.engine.container import ContainerSpec
from spark_tui.domain.engine.docker_run import canonical, needs_mount_option
from spark_tui.domain.errors import DockerError

if TYPE_CHECKING:
    from docker import APIClient

_UNMASKED: Final = "systempaths=unconfined"


def create_container(client: APIClient, spec: ContainerSpec, environment: list[str]) -> str:
    """Creates it and returns its id. `environment` is complete: the env files' entries too."""
    spec = canonical(spec)
    host = client.create_host_config(**host_arguments(spec))
    if _UNMASKED in spec.security_opt:
        host["MaskedPaths"], host["ReadonlyPaths"] = [], []
    made = client.create_container(
        spec.image,
        [*spec.command] or None,
        # [""] is how Docker spells "no entrypoint"
        entrypoint=None if spec.entrypoint is None else [*spec.entrypoint] or [""],
        environment=environment,
        ports=[(port.container_port, port.protocol) for port in spec.ports],
        labels=dict(spec.labels),
        user=spec.user or None,
        detach=True,
        host_config=host,
        name=spec.name or None,
        use_config_proxy=True,
    )
    return str(made["Id"])


def host_arguments(spec: ContainerSpec) -> dict[str, Any]:
    """Keyword arguments of `APIClient.create_host_config`, for a canonical spec."""
    bindings: dict[str, list[tuple[str, int | None]]] = {}
    for port in spec.ports if spec.network != "host" else ():
        key = f"{port.container_port}/{port.protocol}"
        bindings.setdefault(key, []).append((port.host_ip, port.host_port or None))
    requests: list[dict[str, Any]] = []
    if spec.gpus is not None:
        ids = [*spec.gpus.device_ids]
        count = 0 if ids else spec.gpus.count
        requests.append({"Driver": "", "Count": count, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}})
    cdi = [device for device in spec.devices if _is_cdi(device)]
    if cdi:
        requests.append({"Driver": "cdi", "DeviceIDs": cdi})
    capabilities = {name.upper() if name.upper().startswith("CAP_") else f"CAP_{name.upper()}" for name in spec.cap_add}
    limits = {limit.name: {"Name": limit.name, "Soft": limit.soft, "Hard": limit.hard} for limit in spec.ulimits}
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
        "port_bindings": bindings if spec.network != "host" else None,
        "device_requests": requests or None,
        "ipc_mode": spec.ipc or None,
        "shm_size": spec.shm_size or None,
        "network_mode": spec.network or None,
        "ulimits": [limits[name] for name in sorted(limits)] or None,  # the last one of a name
        "restart_policy": {"Name": spec.restart.name, "MaximumRetryCount": spec.restart.maximum_retries},
        "oom_score_adj": spec.oom_score_adj or None,
        "cap_add": (["ALL"] if "CAP_ALL" in capabilities else sorted(capabilities)) or None,
        "devices": [device for device in spec.devices if not _is_cdi(device)] or None,
        "security_opt": [_security(option) for option in spec.security_opt if option != _UNMASKED] or None,
        "privileged": spec.privileged,
        "init": True if spec.init else None,
    }


def _is_cdi(device: str) -> bool:
    """A CDI name such as `nvidia.com/gpu=all`, and not a path."""
    return not device.startswith("/") and "/" in device and "=" in device


def _security(option: str) -> str:
    """A seccomp profile is named by its path and sent as its content."""
    kind, separator, value = option.partition("=") if "=" in option else option.partition(":")
    if kind != "seccomp" or not separator or value in ("unconfined", "builtin"):
        return option
    try:
        return f"seccomp={json.dumps(json.loads(Path(value).read_text('utf-8')), separators=(',', ':'))}"
    except (OSError, ValueError) as error:
        raise DockerError(
            f"The seccomp profile {value} cannot be read.", "It must be a JSON file.", detail=str(error)
        ) from error


# --- environment --------------------------------------------------------------------------------------


def environment_of(spec: ContainerSpec, environ: Mapping[str, str]) -> list[str]:
    """`NAME=value` entries of the env files and of `-e`. Env files are read here, so that keys travel in the request
    and nowhere else. Raises DockerError, which never shows a value."""
    entries = [entry for path in spec.env_files for entry in read_env_file(path, environ)]
    last = {variable.name: variable.value for variable in spec.env}  # as for the docker program, the last one counts
    return [*entries, *(f"{name}={value}" for name, value in last.items())]


def read_env_file(path: str, environ: Mapping[str, str]) -> list[str]:
    """`NAME=value` entries, by the docker program's rules: no quoting, `#` begins a comment line, a bare NAME takes
    its value from `environ` and is left out where that has none. Raises DockerError, which never shows a value."""

    def bad(number: int, what: str) -> DockerError:
        return DockerError(f"{path}, line {number}, {what}.", "Write each line as NAME=value, without quotes.")

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DockerError(
            f"The environment file {path} cannot be read.",
            "Launch the preset again to write it, or check its owner and mode.",
            detail=f"{type(error).__name__}: {error.strerror}",
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad(content[: error.start].count(b"\n") + 1, "is not UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        entry = line.removesuffix("\r").lstrip()
        if not entry or entry.startswith("#"):
            continue
        name, equals, _ = entry.partition("=")
        if not name or "\0" in entry or any(char.isspace() for char in name):
            raise bad(number, "has no name, or a blank or NUL in it")
        if equals:
            entries.append(entry)
        elif name in environ:
            entries.append(f"{name}={environ[name]}")
    return entries
