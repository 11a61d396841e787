"""A container as a Compose file: the same container that `docker run` makes, for `docker compose up -d`."""

from __future__ import annotations

from spark_tui.domain.engine.container import ContainerSpec, Gpus, Mount, PublishedPort, RestartPolicy
from spark_tui.domain.engine.docker_run import canonical, restart_value
from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.dialects.yaml_text import Value, comment, node_of, yaml_text
from spark_tui.domain.quantities import docker_size


def compose_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The file. Keys stay in their private files (`env_file`), which must be there when it is used.

    Raises UsageError for a container without a name, which is the service's.
    """
    if not spec.name:
        raise UsageError("A Compose service needs a name.", "Give one: --set name=NAME")
    return comment(about) + yaml_text(node_of({"services": {spec.name: compose_service(spec)}}))


def compose_service(spec: ContainerSpec) -> dict[str, Value]:
    """The service, by the Compose Specification. Each `$` is doubled: Compose would fill in a variable."""
    spec = canonical(spec)
    service: dict[str, Value] = {"image": spec.image, "container_name": spec.name}
    if spec.entrypoint is not None:
        service["entrypoint"] = list(spec.entrypoint)  # an empty list clears the image's
    if spec.command:
        service["command"] = list(spec.command)
    if spec.env:
        service["environment"] = {variable.name: variable.value for variable in spec.env}
    if spec.env_files:
        service["env_file"] = list(spec.env_files)
    if spec.mounts:
        service["volumes"] = [_mount(mount) for mount in spec.mounts]
    if spec.ports:
        service["ports"] = [_port(port) for port in spec.ports]
    service.update(_resources(spec))
    service.update(_privileges(spec))
    if spec.labels:
        service["labels"] = dict(spec.labels)
    return {key: _escaped(value) for key, value in service.items()}


def _resources(spec: ContainerSpec) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if spec.gpus is not None:
        found["deploy"] = {"resources": {"reservations": {"devices": [_gpus(spec.gpus)]}}}
    if spec.ipc:
        found["ipc"] = spec.ipc
    if spec.shm_size:
        found["shm_size"] = docker_size(spec.shm_size)
    if spec.network:
        found["network_mode"] = spec.network
    if spec.ulimits:
        found["ulimits"] = {limit.name: {"soft": limit.soft, "hard": limit.hard} for limit in spec.ulimits}
    if spec.restart != RestartPolicy():
        found["restart"] = restart_value(spec.restart)
    return found


def _privileges(spec: ContainerSpec) -> dict[str, Value]:
    found: dict[str, Value] = {
        "user": spec.user,
        "oom_score_adj": spec.oom_score_adj,
        "cap_add": list(spec.cap_add),
        "devices": list(spec.devices),
        "security_opt": list(spec.security_opt),
        "privileged": spec.privileged,
        "init": spec.init,
    }
    return {key: value for key, value in found.items() if value}


def _gpus(gpus: Gpus) -> dict[str, Value]:
    which: dict[str, Value] = (
        {"device_ids": list(gpus.device_ids)}
        if gpus.device_ids
        else {"count": "all" if gpus.count == -1 else gpus.count}
    )
    return {"driver": "nvidia", **which, "capabilities": ["gpu"]}


def _mount(mount: Mount) -> dict[str, Value]:
    found: dict[str, Value] = {"type": "bind", "source": mount.source, "target": mount.target}
    return {**found, "read_only": True} if mount.read_only else found


def _port(port: PublishedPort) -> dict[str, Value]:
    found: dict[str, Value] = {"target": port.container_port}
    if port.host_port:
        found["published"] = str(port.host_port)
    if port.host_ip:
        found["host_ip"] = port.host_ip
    return {**found, "protocol": port.protocol}


def _escaped(value: Value) -> Value:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value
