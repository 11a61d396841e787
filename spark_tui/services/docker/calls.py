"""The daemon's calls, blocking: what runs on the adapter's pools. Failures come out translated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.engine.container import ContainerFacts, ContainerSpec, Gpus, ImageFacts, PublishedPort, Ulimit
from spark_tui.domain.engine.docker_run import canonical, needs_mount_option
from spark_tui.domain.errors import ContainerNotFound, DockerError, ImageNotFound, NameInUse, PortInUse, SparkError
from spark_tui.domain.text import clean_line
from spark_tui.services.docker.connection import DockerHttp, Query, Refused, config_folder, segment
from spark_tui.services.docker.errors import TRANSPORT_ERRORS, Asked, port_of, translate
from spark_tui.services.docker.facts import container_facts, image_facts

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


def read_env_file(path: str, environ: Mapping[str, str]) -> list[str]:
    """`NAME=value` entries, by the docker program's rules: no quoting, `#` begins a comment line, a bare NAME takes
    its value from `environ` and is left out where that has none. Raises DockerError, which never shows a value.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DockerError(
            f"The environment file {path} cannot be read.",
            "Launch the preset again, which writes it anew; or check its owner and mode.",
            detail=f"{type(error).__name__}: {error.strerror}",
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, content[: error.start].count(b"\n") + 1, "is not UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        entry = _entry(line.removesuffix("\r").lstrip(), environ)
        if entry is None:
            raise _bad(path, number, "has no name, or a blank or NUL in it")
        if entry:
            entries.append(entry)
    return entries


def _entry(line: str, environ: Mapping[str, str]) -> str | None:
    """`NAME=value`; empty for what says nothing, None for what cannot be read."""
    if not line or line.startswith("#"):
        return ""
    name, equals, _ = line.partition("=")
    if not name or "\0" in line or any(char.isspace() for char in name):
        return None
    if equals:
        return line
    return f"{name}={environ[name]}" if name in environ else ""


def _bad(path: str, line: int, what: str) -> DockerError:
    return DockerError(f"{path}, line {line}, {what}.", "Each line has to be NAME=value, without quotes.")


START_SECONDS: Final = 120.0
END_SECONDS: Final = 30.0
"""How long an end that the daemon has reported, or a removal under way, may take to show."""
_POLL_SECONDS: Final = 0.05

PortOwner = Callable[[int], str | None]


def ask(http: DockerHttp, asked: Asked, path: str, query: Query | None = None, *, many: bool = False) -> Any:
    """GET, decoded: an object, or with `many` a list of them."""
    try:
        found = http.json(path, query)
    except (*TRANSPORT_ERRORS, Refused, ValueError) as error:
        raise _failed(error, http, asked) from error
    if not isinstance(found, list if many else dict):
        raise _failed(ValueError(f"unexpected answer to {path}"), http, asked)
    return found


def order(
    http: DockerHttp,
    asked: Asked,
    method: str,
    path: str,
    query: Query | None = None,
    body: object = None,
    *,
    seconds: float = START_SECONDS,
) -> bytes:
    """A request that changes something; the daemon may take `seconds` for it."""
    try:
        return http.call(method, path, query, body, timeout=seconds)
    except (*TRANSPORT_ERRORS, Refused) as error:
        raise _failed(error, http, asked) from error


def _failed(error: Exception, http: DockerHttp, asked: Asked) -> SparkError:
    if isinstance(error, TRANSPORT_ERRORS):
        http.forget_version()  # it may come back as another one
    return translate(error, http.host, asked)


# --- looking ------------------------------------------------------------------------------------------


def inspect(http: DockerHttp, container: str) -> ContainerFacts:
    """One container by name or id."""
    if not container:
        raise ContainerNotFound("No container is named.", "Give a name: spark-tui ps lists them.")
    asked = Asked(f"inspect {container}", container=container)
    return container_facts(ask(http, asked, f"/containers/{segment(container)}/json"))


def containers(http: DockerHttp) -> tuple[ContainerFacts, ...]:
    """All containers in name order."""
    found = []
    for row in ask(http, Asked("list its containers"), "/containers/json", {"all": 1}, many=True):
        try:
            found.append(inspect(http, row["Id"]))
        except ContainerNotFound:
            continue  # removed between the two looks
    return tuple(sorted(found, key=lambda facts: facts.name))


def image(http: DockerHttp, reference: str) -> ImageFacts | None:
    """A local image, or None."""
    if not reference:
        return None
    asked = Asked(f"look for the image {reference}", image=reference)
    try:
        return image_facts(ask(http, asked, f"/images/{segment(reference, safe='/:@')}/json"), reference)
    except ImageNotFound:
        return None


# --- acting -------------------------------------------------------------------------------------------


def create(http: DockerHttp, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
    """Makes the container and returns its id."""
    asked = Asked(f"create {spec.name or 'a container'}", container=spec.name, image=spec.image)
    environment = [entry for path in spec.env_files for entry in read_env_file(path, environ)]
    stated = {variable.name: variable.value for variable in spec.env}  # as for the docker program, the last one counts
    environment += [f"{name}={value}" for name, value in stated.items()]
    try:
        version = http.api_version()
    except (*TRANSPORT_ERRORS, Refused) as error:
        raise _failed(error, http, asked) from error
    body = create_request(spec, environment, version, _proxies(config_folder(environ), environ))
    try:
        answer = order(http, asked, "POST", "/containers/create", {"name": spec.name} if spec.name else None, body)
    except NameInUse as error:
        raise _name_taken(http, error, spec.name) from error
    return str(json.loads(answer)["Id"])


def _proxies(config: Path, environ: Mapping[str, str]) -> Any:
    """What the docker program's settings say about proxies in containers, for this daemon or in general."""
    path = config / "config.json"
    if not path.is_file():
        return {}
    try:
        proxies = json.loads(path.read_text("utf-8")).get("proxies") or {}
    except (OSError, ValueError, AttributeError) as error:
        raise DockerError(f"{path} cannot be read.", "Repair or remove it.", detail=str(error)) from error
    return proxies.get(environ.get("DOCKER_HOST", "")) or proxies.get("default") or {}


def begin(
    http: DockerHttp, container: str, verb: str, query: Query, seconds: float, process_on: PortOwner | None
) -> None:
    """`start` or `restart`."""
    facts = inspect(http, container)
    asked = Asked(f"{verb} {container}", container=container, image=facts.image)
    try:
        order(http, asked, "POST", f"/containers/{facts.id}/{verb}", query, seconds=seconds)
    except PortInUse as error:
        raise _port_taken(http, error, facts, process_on) from error


def stop(http: DockerHttp, container: str, grace_seconds: int) -> None:
    """Returns when it has ended."""
    asked = Asked(f"stop {container}", container=container)
    path = f"/containers/{inspect(http, container).id}/stop"
    order(http, asked, "POST", path, {"t": grace_seconds}, seconds=grace_seconds + START_SECONDS)
    deadline = time.monotonic() + END_SECONDS
    while inspect(http, container).running:
        if time.monotonic() > deadline:
            raise translate(Refused(500, "did not receive an exit event"), http.host, asked)
        time.sleep(_POLL_SECONDS)


def remove(http: DockerHttp, container: str, force: bool) -> None:
    """Returns when it is gone; one that somebody else is removing is waited for."""
    asked = Asked(f"remove {container}", container=container)
    identity = inspect(http, container).id
    try:
        order(http, asked, "DELETE", f"/containers/{identity}", {"force": int(force)})
    except ContainerNotFound:
        return
    except DockerError as error:
        if "already in progress" not in error.detail:
            raise
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        try:
            inspect(http, identity)
        except ContainerNotFound:
            return
        time.sleep(_POLL_SECONDS)
    raise translate(Refused(409, "removal of container is already in progress"), http.host, asked)


# --- by whom ------------------------------------------------------------------------------------------


def _name_taken(http: DockerHttp, error: NameInUse, name: str) -> NameInUse:
    try:
        other = inspect(http, name)
    except ContainerNotFound:
        return error
    return NameInUse(
        f"The name {name} is taken by another container ({other.id[:12]}, {other.status.value}).",
        f"Launch under another name, or remove that one: docker rm {'-f ' if other.running else ''}{name}",
        detail=error.detail,
    )


def _port_taken(http: DockerHttp, error: PortInUse, wanted: ContainerFacts, process_on: PortOwner | None) -> PortInUse:
    asked = [port.host_port for port in wanted.ports if port.host_port]
    port = port_of(error.detail) or next(iter(asked), None)
    if port is None:
        return error
    owner = ""
    for other in containers(http):
        if other.id != wanted.id and other.running and any(bound.host_port == port for bound in other.ports):
            owner = f"the container {clean_line(other.name)}"
    if not owner:
        owner = clean_line((process_on and process_on(port)) or "another process")
    remedy = f"Stop it, or choose another port, for example {port + 1}."
    return PortInUse(f"Port {port} is taken by {owner}.", remedy, detail=error.detail)
