"""One Docker daemon through the SDK, blocking: what runs on the adapter's threads. Failures come out translated.

Wherever the docker program changes what a person wrote before it sends it, this does the same: the rendered command
and the adapter make equal containers.
"""

from __future__ import annotations

import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_tui.base.engine.container import (
    LABEL_TOOL,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageDisk,
    ImageFacts,
)
from spark_tui.base.engine.docker_run import canonical, needs_mount_option, volume_value
from spark_tui.base.engine.image import registry_of, repository, tag_of
from spark_tui.base.errors import (
    ContainerNotFound,
    DockerError,
    ImageNotFound,
    NameInUse,
    PortInUse,
    RegistryUnreachable,
    SparkError,
    UnreachableError,
)
from spark_tui.base.files import read_plain
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.machine.docker.errors import Request, from_message, port_of, translate
from spark_tui.machine.docker.host import DockerHost, config_folder, find_host
from spark_tui.machine.docker.wire import container_facts, image_disk, image_facts

if TYPE_CHECKING:
    from docker import APIClient

    from spark_tui.machine.docker.client import DockerClient, StreamClient

T = TypeVar("T")
PortOwner = Callable[[int], str | None]
ReadFile = Callable[[Path], bytes]

CALL_SECONDS: Final = 30.0
START_SECONDS: Final = 120.0
REGISTRY_SECONDS: Final = 20.0
"""How long the daemon may wait for a registry."""
RUN_SECONDS: Final = 120
"""How long a program of `run_once` may take: Python starts slowly where the disk is busy."""
_RUN_LINES: Final = 50
_RUN_BYTES: Final = 2 * 1024**3
END_SECONDS: Final = 30.0
"""How long an end that the daemon has reported, or a removal in progress, may take to show."""
_POLL_SECONDS: Final = 0.05
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_UNMASKED: Final = "systempaths=unconfined"


class Daemon:
    """The daemon that the docker program would use in `environ`. Safe to use from several threads.

    `port_owner` says which process listens on a port of this machine, for the error about a used port. `read_env_file`
    may raise OSError.
    """

    def __init__(
        self, environ: Mapping[str, str], port_owner: PortOwner | None = None, read_env_file: ReadFile = read_plain
    ) -> None:
        self._environ = environ
        self._port_owner = port_owner
        self._read_env_file = read_env_file
        self._lock = threading.Lock()
        self._host: DockerHost | None = None
        self._clients: dict[float, DockerClient] = {}
        self._root = ("", "")
        self._listed: dict[str, ContainerFacts] = {}

    @property
    def host(self) -> DockerHost:
        """Where it listens. Raises DaemonNotRunning."""
        if self._host is None:
            self._host = find_host(self._environ)
        return self._host

    # --- calls ----------------------------------------------------------------------------------------

    def call(self, request: Request, work: Callable[[DockerClient], T], seconds: float = CALL_SECONDS) -> T:
        """`work` on a client whose calls may take `seconds`. Raises SparkError."""
        from spark_tui.machine.docker.client import FAILURES, DockerClient

        try:
            with self._lock:
                version = next((str(client.api_version) for client in self._clients.values()), "")
                if seconds not in self._clients:
                    self._clients[seconds] = DockerClient(self.host, self._config, version=version, timeout=seconds)
                client = self._clients[seconds]
            return work(client)
        except FAILURES as error:
            raise self.translated(error, request) from error

    def stream(self) -> StreamClient:
        """A client for one stream. Raises SparkError."""
        from spark_tui.machine.docker.client import StreamClient

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
    def _config(self) -> Path:
        return config_folder(self._environ) / "config.json"

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
        found = []
        rows = self.call(
            Request("list its containers"), lambda client: [str(row["Id"]) for row in client.containers(all=True)]
        )
        for identity in rows:
            try:
                found.append(self.inspect(identity))
            except ContainerNotFound:
                continue  # removed in between
        self._listed = {facts.id: facts for facts in found}
        return tuple(sorted(found, key=lambda facts: facts.name))

    def listed(self, identity: str) -> ContainerFacts | None:
        """A container by its whole id as `containers` saw it last; None where it did not."""
        return self._listed.get(identity)

    def image(self, reference: str) -> ImageFacts | None:
        if not reference or ".." in reference.split("/"):
            return None
        request = Request(f"look for the image {reference}", image=reference)
        try:
            return self.call(request, lambda client: image_facts(client.inspect_image(reference), reference))  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None

    def images(self) -> ImageDisk:
        request = Request("measure its images")
        return self.call(request, lambda client: image_disk(client.image_disk()), START_SECONDS)

    def registry_digest(self, reference: str) -> str:
        """See the port. A registry that keeps the daemon waiting is no daemon that does not answer."""
        request = Request(f"check {reference}", image=reference, pulling=True)

        def ask(client: DockerClient) -> str:
            with warnings.catch_warnings():  # of a credential helper that is missing, into the middle of the screen
                warnings.simplefilter("ignore")
                found: Mapping[str, Any] = client.inspect_distribution(reference)  # type: ignore[no-untyped-call]
            return str(found["Descriptor"]["digest"])

        try:
            return self.call(request, ask, REGISTRY_SECONDS)
        except UnreachableError as error:
            if isinstance(error, RegistryUnreachable):
                raise
            self.facts()
            raise RegistryUnreachable(
                f"{registry_of(reference)} did not answer in {REGISTRY_SECONDS:.0f} s.",
                "Check the network, then try again.",
                detail=error.detail,
            ) from error

    # --- acting ---------------------------------------------------------------------------------------

    def create(self, spec: ContainerSpec) -> str:
        request = Request(f"create {spec.name or 'a container'}", container=spec.name, image=spec.image)
        environment = _environment(spec, self._environ, self._read_env_file)
        try:
            return self.call(request, lambda client: _create(client, canonical(spec), environment), START_SECONDS)
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

    def tag_image(self, image: str, name: str) -> None:
        """See the port."""
        request = Request(f"name the image {image} {name}", image=image)
        self.call(request, lambda client: client.tag(image, repository(name), tag_of(name)), START_SECONDS)

    def remove_image(self, reference: str) -> None:
        request = Request(f"remove the image {reference}", image=reference)
        self.call(request, lambda client: client.remove_image(reference), START_SECONDS)

    def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        """See the port."""
        request = Request(f"run {argv[0]} in {image}", image=image)

        def run(client: DockerClient) -> tuple[int, bytes]:
            host = client.create_host_config(
                network_mode="none",
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=256,
                mem_limit=_RUN_BYTES,
            )
            made = client.create_container(
                image, entrypoint=[*argv], host_config=host, labels={LABEL_TOOL: "run"}, network_disabled=True
            )
            try:
                client.start(made["Id"])
                code = client.wait(made["Id"], timeout=RUN_SECONDS)["StatusCode"]
                return code, client.logs(made["Id"], stdout=True, stderr=code != 0, tail=_RUN_LINES)
            finally:
                client.remove_container(made["Id"], force=True, v=True)

        try:
            code, output = self.call(request, run, RUN_SECONDS)
        except UnreachableError as error:
            self.facts()
            raise DockerError(
                f"{argv[0]} in {image} did not end in {RUN_SECONDS} s.",
                "Try again when the machine is less busy.",
                detail=error.detail,
            ) from error
        lines = tuple(output.decode("utf-8", "replace").splitlines())
        if code:
            raise DockerError(
                f"{argv[0]} in {image} failed with exit code {code}.",
                "See the detail for what it printed.",
                detail=clean_line(" ".join(lines))[-500:],
            )
        return lines

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
            port = port_of(error.detail) or next((port.host_port for port in facts.ports if port.host_port), None)
            if port is None:
                raise
            owner = clean_line((self._port_owner and self._port_owner(port)) or "another process")
            for other in self.containers():
                if other.id != facts.id and other.running and any(bound.host_port == port for bound in other.ports):
                    owner = f"the container {clean_line(other.name)}"
            raise PortInUse(
                f"Port {port} is taken by {owner}.",
                f"Stop it, or choose another port, for example {port + 1}.",
                detail=error.detail,
            ) from error

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

    def rename(self, container: str, name: str) -> None:
        self.call(Request(f"rename {container}", container=container), lambda client: client.rename(container, name))

    def remove(self, container: str, force: bool) -> None:
        """Returns when it is gone; also when it is removed by another program."""
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


# --- a spec as the SDK takes it ---------------------------------------------------------------------------


def _create(client: APIClient, spec: ContainerSpec, environment: list[str]) -> str:
    """Creates a canonical spec and returns its id. `environment` is complete: the env files' entries too."""
    host = client.create_host_config(**_host_arguments(spec))
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


def _host_arguments(spec: ContainerSpec) -> dict[str, Any]:
    """Keyword arguments of `APIClient.create_host_config`."""
    bindings: dict[str, list[tuple[str, int | None]]] = {}
    for port in spec.ports if spec.network != "host" else ():
        key = f"{port.container_port}/{port.protocol}"
        bindings.setdefault(key, []).append((port.host_ip, port.host_port or None))
    requests: list[dict[str, Any]] = []
    if spec.gpus is not None:
        ids = [*spec.gpus.device_ids]
        count = 0 if ids else spec.gpus.count
        requests.append({"Driver": "", "Count": count, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}})
    # A CDI name such as `nvidia.com/gpu=all`, and not a path.
    cdi = [device for device in spec.devices if not device.startswith("/") and "/" in device and "=" in device]
    if cdi:
        requests.append({"Driver": "cdi", "DeviceIDs": cdi})
    capabilities = {name.upper() if name.upper().startswith("CAP_") else f"CAP_{name.upper()}" for name in spec.cap_add}
    limits = {limit.name: {"Name": limit.name, "Soft": limit.soft, "Hard": limit.hard} for limit in spec.ulimits}
    mounts = [
        {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
        for mount in spec.mounts
        if needs_mount_option(mount)
    ]
    return {
        "binds": [volume_value(mount) for mount in spec.mounts if not needs_mount_option(mount)] or None,
        "mounts": mounts or None,
        "port_bindings": bindings if spec.network != "host" else None,
        "device_requests": requests or None,
        "ipc_mode": spec.ipc or None,
        "shm_size": spec.shm_size or None,
        "network_mode": spec.network or None,
        "ulimits": [limits[name] for name in sorted(limits)] or None,  # the last one of a name
        "restart_policy": {"Name": spec.restart.name, "MaximumRetryCount": spec.restart.maximum_retries},
        "oom_score_adj": spec.oom_score_adj or None,
        "cap_add": (["ALL"] if "CAP_ALL" in capabilities else sorted(capabilities)) or None,
        "devices": [device for device in spec.devices if device not in cdi] or None,
        "security_opt": [_security(option) for option in spec.security_opt if option != _UNMASKED] or None,
        "privileged": spec.privileged,
        "init": True if spec.init else None,
    }


def _security(option: str) -> str:
    """A seccomp profile is named by its path and sent as its content."""
    kind, separator, value = option.partition("=") if "=" in option else option.partition(":")
    if kind != "seccomp" or not separator or value in ("unconfined", "builtin"):
        return option
    try:
        return f"seccomp={json.dumps(load_json(read_plain(Path(value))), separators=(',', ':'))}"
    except (OSError, ValueError) as error:
        raise DockerError(
            f"The seccomp profile {value} cannot be read.", "It must be a JSON file.", detail=str(error)
        ) from error


def _environment(spec: ContainerSpec, environ: Mapping[str, str], read: ReadFile) -> list[str]:
    """`NAME=value` entries of the env files and of `-e`. Env files are read here, so that keys travel in the request
    and nowhere else. Raises DockerError, which never shows a value."""
    entries = [entry for path in spec.env_files for entry in _env_file(path, environ, read)]
    last = {variable.name: variable.value for variable in spec.env}  # as for the docker program, the last one counts
    return [*entries, *(f"{name}={value}" for name, value in last.items())]


def _env_file(path: str, environ: Mapping[str, str], read: ReadFile) -> list[str]:
    """`NAME=value` entries, by the docker program's rules: no quoting, `#` begins a comment line, a bare NAME takes
    its value from `environ` and is left out where that has none."""

    def bad(number: int, what: str) -> DockerError:
        return DockerError(f"{path}, line {number}, {what}.", "Write each line as NAME=value, without quotes.")

    try:
        content = read(Path(path))
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DockerError(
            f"The environment file {path} cannot be read.",
            "Launch the preset again to write it, or check its owner and mode.",
            detail=f"{type(error).__name__}: {error.strerror}",
        ) from error
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
