"""One Docker daemon through the SDK, blocking: what runs on the adapter's threads. Failures come out translated."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_tui.domain.engine.container import ContainerFacts, ContainerSpec, DaemonFacts, ImageFacts
from spark_tui.domain.errors import (
    ContainerNotFound,
    DockerError,
    ImageNotFound,
    NameInUse,
    PortInUse,
    SparkError,
    UnreachableError,
)
from spark_tui.domain.text import clean_line
from spark_tui.services.docker.create import create_container, environment_of
from spark_tui.services.docker.errors import Request, from_message, port_of, translate
from spark_tui.services.docker.facts import container_facts, image_facts
from spark_tui.services.docker.host import DockerHost, config_folder, find_host

if TYPE_CHECKING:
    from spark_tui.services.docker.client import DockerClient, StreamClient

T = TypeVar("T")
PortOwner = Callable[[int], str | None]

CALL_SECONDS: Final = 30.0
START_SECONDS: Final = 120.0
END_SECONDS: Final = 30.0
"""How long an end that the daemon has reported, or a removal in progress, may take to show."""
_POLL_SECONDS: Final = 0.05
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Daemon:
    """The daemon that the docker program would use in `environ`. Safe to use from several threads.

    `port_owner` says which process listens on a port of this machine, for the error about a used port.
    """

    def __init__(self, environ: Mapping[str, str], port_owner: PortOwner | None = None) -> None:
        self._environ = environ
        self._port_owner = port_owner
        self._lock = threading.Lock()
        self._host: DockerHost | None = None
        self._clients: dict[float, DockerClient] = {}
        self._root = ("", "")

    @property
    def host(self) -> DockerHost:
        """Where it listens. Raises DaemonNotRunning."""
        if self._host is None:
            self._host = find_host(self._environ)
        return self._host

    # --- calls ----------------------------------------------------------------------------------------

    def call(self, request: Request, work: Callable[[DockerClient], T], seconds: float = CALL_SECONDS) -> T:
        """`work` on a client whose calls may take `seconds`. Raises SparkError."""
        from spark_tui.services.docker.client import FAILURES

        try:
            return work(self._client(seconds))
        except FAILURES as error:
            raise self.translated(error, request) from error

    def stream(self) -> StreamClient:
        """A client for one stream. Raises SparkError."""
        from spark_tui.services.docker.client import StreamClient

        version = self.call(Request("answer"), lambda client: str(client.api_version))
        return StreamClient(self.host, self._config, version=version)

    def translated(self, error: BaseException, request: Request) -> SparkError:
        """The SparkError for a failure of the SDK. After a lost connection the daemon may be another version."""
        found = translate(error, self.host, request)
        if isinstance(found, UnreachableError):
            with self._lock:
                self._clients.clear()
        return found

    @property
    def _config(self) -> Any:
        return config_folder(self._environ) / "config.json"

    def _client(self, seconds: float) -> DockerClient:
        from spark_tui.services.docker.client import DockerClient

        with self._lock:
            version = next((str(client.api_version) for client in self._clients.values()), "")
            if seconds not in self._clients:
                self._clients[seconds] = DockerClient(self.host, self._config, version=version, timeout=seconds)
            return self._clients[seconds]

    # --- reading --------------------------------------------------------------------------------------

    def facts(self) -> DaemonFacts:
        """Its version, and where its data lies."""

        def read(client: DockerClient) -> DaemonFacts:
            found: Mapping[str, Any] = client.version()
            version = found["Version"]
            if self._root[0] != version:  # /info costs the daemon some work, and the folder is fixed while it runs
                self._root = (version, client.info().get("DockerRootDir", ""))
            return DaemonFacts(
                version, found.get("ApiVersion", ""), found.get("Os", ""), found.get("Arch", ""), self._root[1]
            )

        return self.call(Request("report its version"), read)

    def inspect(self, container: str) -> ContainerFacts:
        """One container by name or id. Raises ContainerNotFound."""
        if not _NAME.fullmatch(container):  # the SDK leaves `/` and `..` in a request's path
            raise ContainerNotFound(f"No container named {clean_line(container)}.", "List them: spark-tui ps")
        request = Request(f"inspect {container}", container=container)
        return self.call(request, lambda client: container_facts(client.inspect_container(container)))

    def containers(self) -> tuple[ContainerFacts, ...]:
        """All containers, in name order."""
        found = []
        rows = self.call(
            Request("list its containers"), lambda client: [str(row["Id"]) for row in client.containers(all=True)]
        )
        for identity in rows:
            try:
                found.append(self.inspect(identity))
            except ContainerNotFound:
                continue  # removed in between
        return tuple(sorted(found, key=lambda facts: facts.name))

    def image(self, reference: str) -> ImageFacts | None:
        """A local image, or None."""
        if not reference or ".." in reference.split("/"):
            return None
        request = Request(f"look for the image {reference}", image=reference)
        try:
            return self.call(request, lambda client: image_facts(client.inspect_image(reference), reference))  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None

    # --- acting ---------------------------------------------------------------------------------------

    def create(self, spec: ContainerSpec) -> str:
        """Creates a container and returns its id."""
        request = Request(f"create {spec.name or 'a container'}", container=spec.name, image=spec.image)
        environment = environment_of(spec, self._environ)
        try:
            return self.call(request, lambda client: create_container(client, spec, environment), START_SECONDS)
        except NameInUse as error:
            try:
                other = self.inspect(spec.name)
            except ContainerNotFound:
                raise error from None
            raise NameInUse(
                f"The name {spec.name} is taken by another container ({other.id[:12]}, {other.status.value}).",
                f"Launch under another name, or remove it: docker rm {'-f ' if other.running else ''}{spec.name}",
                detail=error.detail,
            ) from error

    def start(self, container: str) -> None:
        """Starts it. Raises PortInUse with the owner of the port."""
        self._begin(container, "start", lambda client, identity: client.start(identity))

    def restart(self, container: str, grace_seconds: int) -> None:
        """Stops and starts it. Raises PortInUse with the owner of the port."""
        self._begin(container, "restart", lambda client, identity: client.restart(identity, timeout=grace_seconds))

    def _begin(self, container: str, verb: str, act: Callable[[DockerClient, str], object]) -> None:
        facts = self.inspect(container)
        request = Request(f"{verb} {container}", container=container, image=facts.image)
        try:
            self.call(request, lambda client: act(client, facts.id), START_SECONDS)
        except PortInUse as error:
            raise self._port_error(error, facts) from error

    def stop(self, container: str, grace_seconds: int) -> None:
        """Returns when it has ended."""
        request = Request(f"stop {container}", container=container)
        identity = self.inspect(container).id
        self.call(request, lambda client: client.stop(identity, timeout=grace_seconds), START_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        while self.inspect(identity).running:
            if time.monotonic() > deadline:
                raise from_message("did not receive an exit event", request)
            time.sleep(_POLL_SECONDS)

    def remove(self, container: str, force: bool) -> None:
        """Returns when it is gone; also when somebody else removes it."""
        request = Request(f"remove {container}", container=container)
        identity = self.inspect(container).id
        try:
            self.call(request, lambda client: client.remove_container(identity, force=force), START_SECONDS)
        except ContainerNotFound:
            return
        except DockerError as error:
            if "already in progress" not in error.detail:
                raise
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            try:
                self.inspect(identity)
            except ContainerNotFound:
                return
            time.sleep(_POLL_SECONDS)
        raise from_message("removal of container is already in progress", request)

    def _port_error(self, error: PortInUse, wanted: ContainerFacts) -> PortInUse:
        port = port_of(error.detail) or next((port.host_port for port in wanted.ports if port.host_port), None)
        if port is None:
            return error
        owner = clean_line((self._port_owner and self._port_owner(port)) or "another process")
        for other in self.containers():
            if other.id != wanted.id and other.running and any(bound.host_port == port for bound in other.ports):
                owner = f"the container {clean_line(other.name)}"
        return PortInUse(
            f"Port {port} is taken by {owner}.",
            f"Stop it, or choose another port, for example {port + 1}.",
            detail=error.detail,
        )
