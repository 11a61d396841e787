"""Docker's Engine API over the simulated containers, as far as the adapter asks."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

from spark_tui.base.engine.container import ContainerSpec, EnvVar, PublishedPort
from spark_tui.base.engine.image import repository
from spark_tui.base.quantities import MIB
from spark_tui.machine.docker.wire import NEVER
from spark_tui.simulator.server import Answer, Request, as_json
from spark_tui.simulator.world import (
    GEMMA_IMAGE,
    NIGHTLY_IMAGE,
    STORE,
    VLLM_IMAGE,
    DemoContainer,
    DemoWorld,
    noise,
)

VERSION: Final = {"Version": "29.2.1", "ApiVersion": "1.52", "MinAPIVersion": "1.44", "Os": "linux", "Arch": "arm64"}
PULL_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.5
_FRAME_SECONDS: Final = 0.1
_BATCH_LINES: Final = 200
_TRUE: Final = ("1", "True")
_LAYERS_MIB: Final = (29, 4, 1, 412, 2210, 98, 1630, 3870, 640, 7, 212, 33)
"""A vLLM image for arm64: some 9 GB in a few large layers."""
_AT_ONCE: Final = 3
_SHARED_BYTES: Final = 6200 * MIB
"""What the images have in common: the base with CUDA and Python."""
_PACKAGES: Final = {
    "vllm": "0.20.2", "torch": "2.9.1+cu130", "cuda": "13.0.2", "nvidia-nccl": "2.28.3", "flashinfer-python": "0.5.3",
    "triton": "3.5.1", "transformers": "4.57.3",
}  # fmt: skip
_LAST_WORDS: Final = (
    (0.2, "(APIServer pid=1) INFO <<time>> [launcher.py:111] Shutting down FastAPI HTTP server."),
    (1.2, "(APIServer pid=1) INFO:     Shutting down"),
    (1.3, "(APIServer pid=1) INFO:     Application shutdown complete."),
)

# `vllm/vllm-openai` images start the server themselves, NGC images a shell.
_ENTRYPOINTS: Final[tuple[tuple[str, list[str], list[str]], ...]] = (
    ("vllm/vllm-openai", ["vllm", "serve"], []),
    ("nvcr.io/nvidia/vllm", ["/opt/nvidia/nvidia_entrypoint.sh"], ["/bin/bash"]),
)


class Refused(Exception):
    """What the daemon does not do: status, and its own sentence."""


class SimulatedDaemon:
    """Containers and images of the simulated Spark. Some images are here from the start; any other has to be pulled
    first."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._clock = world.clock
        self._downloaded = {_tagged(reference) for reference in (VLLM_IMAGE, NIGHTLY_IMAGE, GEMMA_IMAGE)}
        # The nightly of last week lost its tag to the one that is running.
        self._downloaded.add(f"{repository(NIGHTLY_IMAGE)}@sha256:{world.fingerprint('digest', 'last week')}")
        self._names: dict[str, str] = {}
        """Names that were given to images, and those that these have by themselves."""
        self._programs: dict[str, DemoContainer] = {}
        """Containers without a network, which run one program and end: no engines."""
        one = r"/containers/([^/]+)"
        self._routes = (
            ("GET", "/version", self._version),
            ("GET", "/info", self._info),
            ("GET", "/events", self._events),
            ("GET", "/containers/json", self._list),
            ("POST", "/containers/create", self._create),
            ("GET", f"{one}/json", self._inspect),
            ("GET", f"{one}/logs", self._logs),
            ("POST", f"{one}/start", self._start),
            ("POST", f"{one}/stop", self._stop),
            ("POST", f"{one}/restart", self._restart),
            ("POST", f"{one}/rename", self._rename),
            ("POST", f"{one}/wait", self._wait),
            ("DELETE", one, self._remove),
            ("GET", "/system/df", self._images),
            ("POST", "/images/create", self._pull),
            ("GET", "/images/(.+)/json", self._image),
            ("POST", "/images/(.+)/tag", self._tag),
            ("DELETE", "/images/(.+)", self._remove_image),
            ("GET", "/distribution/(.+)/json", self._registry),
        )

    async def answer(self, request: Request) -> Answer:
        self._world.settle()
        path = re.sub(r"^/v[\d.]+", "", request.path)
        for method, pattern, handle in self._routes:
            match = re.fullmatch(pattern, path)
            if match is not None and method == request.method:
                try:
                    return await handle(request, *match.groups())
                except Refused as refusal:
                    return as_json({"message": refusal.args[1]}, refusal.args[0])
        return as_json({"message": "page not found"}, 404)

    async def _version(self, request: Request) -> Answer:
        return as_json(VERSION)

    async def _info(self, request: Request) -> Answer:
        return as_json({"DockerRootDir": "/var/lib/docker"})

    # --- containers -----------------------------------------------------------------------------------

    def _find(self, name: str) -> DemoContainer:
        """By name, id or the beginning of an id."""
        for id_, found in (self._world.containers | self._programs).items():
            if name in (found.name, id_) or (len(name) >= 12 and id_.startswith(name)):
                return found
        raise Refused(404, f"No such container: {name}")

    async def _list(self, request: Request) -> Answer:
        return as_json([{"Id": id_} for id_ in self._world.containers])

    async def _inspect(self, request: Request, name: str) -> Answer:
        return as_json(_inspected(self._find(name)))

    async def _create(self, request: Request) -> Answer:
        body, name = request.json(), request.query.get("name", "")
        image = self._image_facts(body["Image"])
        if body.get("NetworkDisabled"):
            one = self._world.new(ContainerSpec(name, body["Image"]), (), self._clock.now())
            self._programs[one.id] = one
            return as_json({"Id": one.id}, 201)
        self._check_free(name)
        container = self._world.add(_spec(name, body), tuple(image["Config"]["Entrypoint"]), self._clock.now())
        return as_json({"Id": container.id, "Warnings": []}, 201)

    def _check_free(self, name: str) -> None:
        for each in self._world.containers.values():
            if each.name == name:
                raise Refused(
                    409,
                    f'Conflict. The container name "/{name}" is already in use by container "{each.id}". You have to '
                    "remove (or rename) that container to be able to reuse that name.",
                )

    async def _start(self, request: Request, name: str) -> Answer:
        found = self._find(name)
        if found.id in self._programs:
            return Answer(status=204)
        if found.run is not None:
            return Answer(status=304)
        for port in found.ports:
            if self._world.on_port(port.host_port) is not None:
                raise Refused(
                    500,
                    f"driver failed programming external connectivity on endpoint {found.name}: Bind for "
                    f"{port.host_ip}:{port.host_port} failed: port is already allocated",
                )
        self._world.begin(found, self._clock.now())
        return Answer(status=204)

    async def _stop(self, request: Request, name: str) -> Answer:
        now, found = self._clock.now(), self._find(name)
        run = found.run
        if run is None:
            return Answer(status=304)
        served = run.serves(now)
        if served and not found.stopping:
            found.log.cut()
            for after, text in _LAST_WORDS:
                found.log.write(now + after, text)
        found.stopping = True
        self._world.note(found, "kill", now)
        await self._clock.sleep(min(STOP_SECONDS, float(request.query.get("t", "10"))))
        ended = self._world.settle()
        if found.run is run:
            self._world.end(found, ended, 0 if served else 143)
            self._world.note(found, "stop", ended)
        found.stopping = False
        return Answer(status=204)

    async def _restart(self, request: Request, name: str) -> Answer:
        await self._stop(request, name)
        return await self._start(request, name)

    async def _rename(self, request: Request, name: str) -> Answer:
        self._check_free(request.query["name"])
        self._find(name).name = request.query["name"]
        return Answer(status=204)

    async def _wait(self, request: Request, name: str) -> Answer:
        """Of a program, which ends soon."""
        one = self._find(name)
        await self._clock.sleep(STOP_SECONDS)
        one.log.write(self._clock.now(), json.dumps(_PACKAGES))
        one.log.flush(self._clock.now())
        return as_json({"StatusCode": 0})

    async def _remove(self, request: Request, name: str) -> Answer:
        found, now = self._find(name), self._clock.now()
        if self._programs.pop(found.id, None) is not None:
            return Answer(status=204)
        if found.run is not None:
            if request.query.get("force") not in _TRUE:
                raise Refused(
                    409,
                    f'cannot remove container "/{found.name}": container is running: stop the container before '
                    "removing or force remove",
                )
            self._world.end(found, now, 137)
        del self._world.containers[found.id]
        self._world.note(found, "destroy", now)
        return Answer(status=204)

    # --- streams --------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Answer:
        return Answer(self._event_lines(len(self._world.journal)))

    async def _event_lines(self, position: int) -> AsyncGenerator[bytes, None]:
        while True:
            for event in self._world.journal[position:]:
                code = {} if event.exit_code is None else {"exitCode": str(event.exit_code)}
                told = {
                    "Type": "container",
                    "Action": event.action,
                    "time": int(event.at),
                    "timeNano": int(event.at * 1e9),
                    "Actor": {"ID": event.container_id, "Attributes": {"name": event.name, **code}},
                }
                position += 1
                yield json.dumps(told).encode() + b"\n"
            await self._changed(*self._world.containers.values())

    async def _logs(self, request: Request, name: str) -> Answer:
        query, found = request.query, self._find(name)
        lines, begin = found.log.lines, 0
        if since := query.get("since"):
            seconds, _, nanos = since.partition(".")
            stamp = f"{_second(int(seconds))}.{nanos:0<9}Z"
            begin = sum(line.stamp < stamp for line in lines)
        if query.get("tail", "all") != "all":
            begin = max(begin, len(lines) - int(query["tail"]))
        frames = self._log_frames(
            found, begin, follow=query.get("follow") in _TRUE, stamps=query["timestamps"] in _TRUE
        )
        return Answer(frames, kind="application/vnd.docker.multiplexed-stream")

    async def _log_frames(
        self, found: DemoContainer, position: int, *, follow: bool, stamps: bool
    ) -> AsyncGenerator[bytes, None]:
        run, lines = found.run, found.log.lines
        while True:
            while position < len(lines):
                batch = lines[position : position + _BATCH_LINES]
                position += len(batch)
                yield b"".join(_frame(f"{line.stamp} {line.text}" if stamps else line.text) for line in batch)
            if not follow or run is None or found.run is not run:
                return
            await self._changed(found, next_at=found.log.next_at())

    async def _changed(self, *followed: DemoContainer, next_at: float | None = None) -> None:
        """Returns when one of these has ended by itself, when something was done, or at that time."""
        ends = [each.run.exits_at for each in followed if each.run is not None]
        await self._world.until(min((each for each in (*ends, next_at) if each is not None), default=None))
        self._world.settle()

    # --- images ---------------------------------------------------------------------------------------

    async def _image(self, request: Request, reference: str) -> Answer:
        return as_json(self._image_facts(reference))

    def _image_facts(self, asked: str) -> dict[str, Any]:
        reference = self._own_name(asked)
        if _tagged(reference) not in self._downloaded:
            raise Refused(404, f"No such image: {asked}")
        digest = reference.partition("@")[2] or f"sha256:{self._world.fingerprint('digest', reference)}"
        entrypoint, command = next((rest for mark, *rest in _ENTRYPOINTS if mark in reference), [[], []])
        return {
            "Id": self._id_of(reference),
            "Architecture": "arm64",
            "Os": "linux",
            "Size": 2 * sum(_LAYERS_MIB) * MIB,
            "RepoDigests": [f"{repository(reference)}@{digest}"],
            "Config": {"Entrypoint": entrypoint, "Cmd": command, "Env": ["CUDA_VERSION=13.0.2", "NCCL_VERSION=2.28.3"]},
        }

    def _own_name(self, reference: str) -> str:
        """The name by which an image was downloaded, for its id, its digest or another name; empty for an id that none
        has."""
        if reference.startswith("sha256:"):
            return next((each for each in self._downloaded if self._id_of(each) == reference), "")
        reference = self._names.get(_tagged(reference), reference)
        name, _, pinned = reference.partition("@")
        own = f"sha256:{self._world.fingerprint('digest', _tagged(name))}"
        return name if pinned == own else reference

    def _id_of(self, reference: str) -> str:
        return f"sha256:{self._world.fingerprint('image', reference)}"

    async def _images(self, request: Request) -> Answer:
        await self._clock.sleep(_FRAME_SECONDS)
        rows = self._rows()
        alone = sum(row["Size"] - _SHARED_BYTES for row in rows)
        return as_json({"ImageUsage": {"Items": rows, "TotalSize": alone + (_SHARED_BYTES if rows else 0)}})

    def _rows(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for reference in sorted(self._downloaded):
            facts, days = self._image_facts(reference), 9 if "@" in reference else 2 + 20 * noise(reference)
            row = {name: facts[name] for name in ("Id", "RepoDigests", "Size")} | {
                "RepoTags": [],
                "SharedSize": _SHARED_BYTES,
                "Created": int(self._clock.now() - days * 86_400),
            }
            row = found.setdefault(facts["Id"], row)
            row["RepoTags"] += [] if "@" in reference else [reference]
        return list(found.values())

    async def _tag(self, request: Request, reference: str) -> Answer:
        self._image_facts(reference)
        name = f"{request.query['repo']}:{request.query.get('tag') or 'latest'}"
        self._names[name] = self._own_name(reference)
        self._downloaded.add(name)
        return Answer(status=201)

    async def _remove_image(self, request: Request, reference: str) -> Answer:
        identity = self._image_facts(reference)["Id"]
        names = next(row["RepoTags"] for row in self._rows() if row["Id"] == identity)
        using = next((each for each in self._world.containers.values() if each.image_id == identity), None)
        if len(names) < 2 and using is not None:
            raise Refused(
                409,
                f"conflict: unable to delete {reference} (must be forced) - image is being used by stopped container "
                f"{using.id[:12]}",
            )
        removed = self._own_name(reference) if reference.startswith("sha256:") else reference
        self._names.pop(_tagged(removed), None)
        self._downloaded.discard(_tagged(removed))
        return as_json([{"Untagged": removed}])

    async def _registry(self, request: Request, reference: str) -> Answer:
        """The nightly has moved on since."""
        await self._clock.sleep(PULL_SECONDS / 10)
        word = "tomorrow" if reference == NIGHTLY_IMAGE else reference
        return as_json({"Descriptor": {"digest": f"sha256:{self._world.fingerprint('digest', word)}"}})

    async def _pull(self, request: Request) -> Answer:
        name, tag = request.query["fromImage"], request.query["tag"]
        return Answer(self._pull_messages(f"{name}{'@' if tag.startswith('sha256:') else ':'}{tag}"))

    async def _pull_messages(self, reference: str) -> AsyncGenerator[bytes, None]:
        """An image is here after five seconds; a client that goes away leaves it absent."""
        began, share = self._clock.now(), 0.0
        names = [self._world.fingerprint("layer", reference, index)[:12] for index in range(len(_LAYERS_MIB))]
        while share < 1:
            yield _messages(_layer(name, index, share) for index, name in enumerate(names))
            await self._clock.sleep(_FRAME_SECONDS)
            share = (self._clock.now() - began) / PULL_SECONDS
        self._downloaded.add(_tagged(reference))
        done = {"status": f"Status: Downloaded newer image for {reference}"}
        yield _messages([*(_layer(name, index, 2.0) for index, name in enumerate(names)), done])


# --- as Docker writes it ----------------------------------------------------------------------------------


def _spec(name: str, body: Mapping[str, Any]) -> ContainerSpec:
    host = body.get("HostConfig") or {}
    network, entrypoint = host.get("NetworkMode") or "bridge", body.get("Entrypoint")
    # In the host's network a server listens on its own port.
    bindings = host.get("PortBindings") or {
        key: [{"HostPort": key.partition("/")[0]}]
        for key in (body.get("ExposedPorts") or () if network == "host" else ())
    }
    return ContainerSpec(
        name,
        body["Image"],
        tuple(body.get("Cmd") or ()),
        entrypoint=None if entrypoint is None else tuple(filter(None, entrypoint)),
        env=tuple(EnvVar(*each.partition("=")[::2]) for each in body.get("Env") or ()),
        ports=tuple(
            PublishedPort(int(key.partition("/")[0]), int(each["HostPort"] or 0), each.get("HostIp") or "")
            for key, published in bindings.items()
            for each in published
        ),
        network=network,
        labels=tuple((body.get("Labels") or {}).items()),
    )


def _inspected(one: DemoContainer) -> dict[str, Any]:
    last, alive = one.runs[-1] if one.runs else None, one.run is not None
    earlier = one.runs[-2].ended_at if alive and len(one.runs) > 1 else None
    ended = earlier if alive or last is None else last.ended_at
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in one.ports if one.network_mode != "host" else ():
        published = {"HostIp": port.host_ip, "HostPort": str(port.host_port)}
        bindings.setdefault(f"{port.container_port}/{port.protocol}", []).append(published)
    return {
        "Id": one.id,
        "Name": f"/{one.name}",
        "Image": one.image_id,
        "Created": _stamp(one.created_at),
        "Config": {
            "Image": one.image,
            "Entrypoint": None,
            "Cmd": list(one.argv),
            "Tty": False,
            "Labels": dict(one.labels),
            "Env": [f"{name}={value}" for name, value in one.variables],
        },
        "HostConfig": {"NetworkMode": one.network_mode, "PortBindings": bindings},
        "State": {
            "Status": "running" if alive else "exited" if last else "created",
            "Running": alive,
            "Pid": last.pid if alive and last else 0,
            "ExitCode": one.exit_code or 0,
            "StartedAt": _stamp(last.started_at if last else None),
            "FinishedAt": _stamp(ended),
        },
        "Mounts": [{"Type": "bind", "Source": STORE, "Destination": "/models", "RW": True}],
    }


def _stamp(at: float | None) -> str:
    if at is None:
        return NEVER
    seconds, micros = divmod(int(at * 1e6), 1_000_000)  # never later than it was
    return f"{_second(seconds)}.{micros:06d}Z"


def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _frame(text: str) -> bytes:
    payload = f"{text}\n".encode()
    return struct.pack(">BxxxL", 1, len(payload)) + payload


def _messages(found: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\r\n" for each in found)


def _layer(name: str, index: int, share: float) -> dict[str, Any]:
    """One layer when `share` of the pull is over: they come in order, three at a time."""
    size = _LAYERS_MIB[index] * MIB
    steps = len(_LAYERS_MIB) + _AT_ONCE
    done = (share * steps - index) / _AT_ONCE * (0.9 + 0.2 * noise(name))
    if done <= 0:
        status, detail = "Waiting" if share else "Pulling fs layer", {}
    elif done < 0.85:
        status, detail = "Downloading", {"current": int(size * done / 0.85), "total": size}
    else:
        status, detail = "Extracting" if done < 1 else "Pull complete", {}
    return {"id": name, "status": status, "progressDetail": detail}


def _tagged(reference: str) -> str:
    """With its tag: Docker's default is `latest`."""
    return reference if "@" in reference or ":" in reference.rpartition("/")[2] else f"{reference}:latest"
