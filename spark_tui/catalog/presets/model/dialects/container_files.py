"""A container as a file for other managers: Compose, systemd with Docker, and Podman's Quadlet.

Each makes the container that `docker run` makes, and raises UsageError for one without a name, which is the service's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec, Gpus, Mount, PublishedPort, RestartPolicy
from spark_tui.base.engine.docker_run import (
    canonical,
    needs_mount_option,
    option_values,
    render_lines,
    restart_value,
)
from spark_tui.base.engine.units import RESTART_SECONDS, START_LIMITS, word
from spark_tui.base.errors import UsageError
from spark_tui.base.quantities import docker_size
from spark_tui.catalog.presets.model.dialects.recipe_files import (
    Value,
    comment,
    node_of,
    yaml_text,
)

DOCKER: Final = "/usr/bin/docker"
CDI_KIND: Final = "nvidia.com/gpu"
STOP_SECONDS: Final = 30


# --- Compose ----------------------------------------------------------------------------------------------


def compose_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """A Compose file, for `docker compose up -d`. Keys stay in their private files (`env_file`), which must be there
    when it is used."""
    if not spec.name:
        raise UsageError("A Compose service needs a name.", "Give one: --set name=NAME")
    return comment(about) + yaml_text(node_of({"services": {spec.name: _compose_service(canonical(spec))}}))


def _compose_service(spec: ContainerSpec) -> dict[str, Value]:
    """The service, by the Compose Specification. Each `$` is doubled: Compose would fill in a variable."""
    service: dict[str, Value] = {
        "image": spec.image,
        "container_name": spec.name,
        "entrypoint": None if spec.entrypoint is None else list(spec.entrypoint),  # an empty list clears the image's
        "command": list(spec.command) or None,
        "environment": {variable.name: variable.value for variable in spec.env} or None,
        "env_file": list(spec.env_files) or None,
        "volumes": [_compose_mount(mount) for mount in spec.mounts] or None,
        "ports": [_compose_port(port) for port in spec.ports] or None,
        "deploy": _compose_gpus(spec.gpus) if spec.gpus else None,
        "ipc": spec.ipc or None,
        "shm_size": docker_size(spec.shm_size) if spec.shm_size else None,
        "network_mode": spec.network or None,
        "ulimits": {limit.name: {"soft": limit.soft, "hard": limit.hard} for limit in spec.ulimits} or None,
        "restart": restart_value(spec.restart) if spec.restart != RestartPolicy() else None,
        "user": spec.user or None,
        "oom_score_adj": spec.oom_score_adj or None,
        "cap_add": list(spec.cap_add) or None,
        "devices": list(spec.devices) or None,
        "security_opt": list(spec.security_opt) or None,
        "privileged": spec.privileged or None,
        "init": spec.init or None,
        "labels": dict(spec.labels) or None,
    }
    return {key: _without_variables(value) for key, value in service.items() if value is not None}


def _compose_gpus(gpus: Gpus) -> dict[str, Value]:
    count: Value = "all" if gpus.count == -1 else gpus.count
    which: dict[str, Value] = {"device_ids": list(gpus.device_ids)} if gpus.device_ids else {"count": count}
    device: Value = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
    return {"resources": {"reservations": {"devices": [device]}}}


def _compose_mount(mount: Mount) -> dict[str, Value]:
    found: dict[str, Value] = {"type": "bind", "source": mount.source, "target": mount.target}
    return {**found, "read_only": True} if mount.read_only else found


def _compose_port(port: PublishedPort) -> dict[str, Value]:
    found: dict[str, Value] = {"target": port.container_port}
    if port.host_port:
        found["published"] = str(port.host_port)
    if port.host_ip:
        found["host_ip"] = port.host_ip
    return {**found, "protocol": port.protocol}


def _without_variables(value: Value) -> Value:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _without_variables(item) for key, item in value.items()}
    return [_without_variables(item) for item in value] if isinstance(value, list) else value


# --- systemd ----------------------------------------------------------------------------------------------


def systemd_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The unit, for /etc/systemd/system/NAME.service. systemd restarts, so Docker does not; the ended container of an
    earlier start is kept until the next one, with its log."""
    if not spec.name:
        raise UsageError("A service needs a container's name.", "Give one: --set name=NAME")
    run = render_lines(replace(spec, restart=RestartPolicy()))
    started = " \\\n  ".join(" ".join(map(word, line)) for line in ((DOCKER, "run"), *run[1:]))
    name = word(spec.name)
    service = (
        "Type=exec",
        *_STARTING,
        f"ExecStartPre=-{DOCKER} rm {name}",
        f"ExecStart={started}",  # in the foreground: systemd watches it
        f"ExecStop={DOCKER} stop -t {STOP_SECONDS} {name}",
        f"TimeoutStopSec={2 * STOP_SECONDS}",
    )
    return comment(about) + _unit(
        spec, ("Requires=docker.service",), "docker.service ", ("[Service]", *service), "multi-user.target"
    )


def quadlet_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The `.container` file, for /etc/containers/systemd, from which Podman's generator makes a service. Raises
    UsageError also for a mount with a colon in its path."""
    if not spec.name:
        raise UsageError("A Quadlet needs a container's name.", "Give one: --set name=NAME")
    spec = canonical(spec)
    keys = ("[Container]", *(f"{key}={value}" for key, value in _quadlet_keys(spec)))
    return comment(about) + _unit(
        spec, (), "", (*keys, "", "[Service]", *_STARTING), "multi-user.target default.target"
    )


_STARTING: Final = ("# A pull may take an hour.", "TimeoutStartSec=infinity")


def _unit(spec: ContainerSpec, needs: tuple[str, ...], after: str, service: tuple[str, ...], wanted_by: str) -> str:
    restart = "always" if spec.restart.name in ("always", "unless-stopped") else "on-failure"
    # A description is read as it is: specifiers are doubled, lines joined.
    description = " ".join(f"{spec.name}: {spec.image}".replace("%", "%%").replace("\\", "/").split())
    lines = (
        "[Unit]",
        f"Description={description}",
        *needs,
        "Wants=network-online.target",
        f"After={after}network-online.target",
        *START_LIMITS,
        "",
        *service,
        f"Restart={restart}",
        f"RestartSec={RESTART_SECONDS}",
        "",
        "[Install]",
        f"WantedBy={wanted_by}",
    )
    return "".join(f"{line}\n" for line in lines)


_QUADLET_KEYS: Final = {
    "network": "Network", "ports": "PublishPort", "shm_size": "ShmSize", "ulimits": "Ulimit", "mounts": "Volume",
    "env_files": "EnvironmentFile", "env": "Environment", "labels": "Label", "cap_add": "AddCapability",
    "devices": "AddDevice",
}  # fmt: skip


def _quadlet_keys(spec: ContainerSpec) -> Iterator[tuple[str, str]]:
    yield "ContainerName", word(spec.name)
    yield "Image", word(qualified(spec.image))
    gpus = spec.gpus.device_ids if spec.gpus else ()
    if spec.gpus and not gpus:
        gpus = ("all",) if spec.gpus.count == -1 else tuple(map(str, range(spec.gpus.count)))
    for gpu in gpus:
        yield "AddDevice", word(f"{CDI_KIND}={gpu}")
    user, colon, group = spec.user.partition(":")
    if spec.user:
        yield "User", word(user)
    if colon:
        yield "Group", word(group)
    if spec.init:
        yield "RunInit", "true"
    for option, value in option_values(replace(spec, name="", gpus=None, user="", restart=RestartPolicy())):
        if option.field == "mounts" and needs_mount_option(value):
            raise UsageError(f"A Quadlet cannot mount {value.source}: its path has a colon.", "Rename that folder.")
        key, text = _QUADLET_KEYS.get(option.field), option.write(value)
        # Quadlet of Podman 4.9 has no key for the others.
        yield (key, word(text)) if key else ("PodmanArgs", word(f"--{option.names[0]}={text}"))
    if spec.entrypoint is not None:
        yield "PodmanArgs", word(f"--entrypoint={''.join(spec.entrypoint)}")
    if spec.privileged:
        yield "PodmanArgs", "--privileged"
    if spec.command:
        yield "Exec", " ".join(map(word, spec.command))


def qualified(image: str) -> str:
    """The image's full name: Podman asks which registry a short one is from, and a service cannot ask."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"
