"""The daemon's calls, blocking: what runs on the adapter's pools. Failures come out translated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.engine.container import ContainerFacts, ImageFacts
from spark_tui.domain.errors import ContainerNotFound, DockerError, ImageNotFound, NameInUse, PortInUse, SparkError
from spark_tui.domain.presets.container_spec import ContainerSpec
from spark_tui.domain.text import clean_line
from spark_tui.services.docker_create import create_request
from spark_tui.services.docker_env_file import read_env_file
from spark_tui.services.docker_errors import TRANSPORT_ERRORS, Asked, port_of, translate
from spark_tui.services.docker_facts import container_facts, image_facts
from spark_tui.services.docker_host import config_folder
from spark_tui.services.docker_http import DockerHttp, Query, Refused, segment

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
