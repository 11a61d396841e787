"""A Docker engine in memory: `SimulatedDocker` behind the demo and behind the tests' fake, and the demo's own.

What containers do, and when, is the subclass's: the demo replays recordings by its clock, a test moves its fake on by
hand and makes calls fail.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageDisk,
    ImageFacts,
    LayerProgress,
    PullProgress,
    StoredImage,
)
from spark_tui.domain.errors import (
    ContainerNotFound,
    DockerError,
    ImageInUse,
    ImageNotFound,
    NameInUse,
    PortInUse,
    SparkError,
)
from spark_tui.domain.presets.image import repository
from spark_tui.domain.quantities import MIB
from spark_tui.services.demo.world import GEMMA_IMAGE, NIGHTLY_IMAGE, VLLM_IMAGE, DemoContainer, DemoWorld, noise
from spark_tui.services.ports import LogLine

BATCH_LINES: Final = 200
"""A log is handed out in batches of at most this many lines."""


class SimulatedContainer(Protocol):
    """As Docker reports it, and what it has written."""

    @property
    def facts(self) -> ContainerFacts: ...

    @property
    def lines(self) -> Sequence[LogLine]: ...


C = TypeVar("C", bound=SimulatedContainer)


class SimulatedDocker(ABC, Generic[C]):
    """The part of the ContainerEngine port that does not depend on time."""

    def __init__(self) -> None:
        self.all_containers: dict[str, C] = {}
        """The containers by id."""
        self.journal: list[ContainerEvent | SparkError] = []
        """All events so far; an error breaks the streams of those who follow."""

    @abstractmethod
    async def _called(self, method: str, argument: str = "") -> None:
        """Before every call: brings the containers up to now, or raises."""

    @abstractmethod
    def _image(self, reference: str) -> ImageFacts | None:
        """A local image."""

    @abstractmethod
    async def images(self) -> ImageDisk:
        """See the port."""

    @abstractmethod
    def _image_removed(self, reference: str) -> None:
        """Forgets a local image."""

    @abstractmethod
    def _image_tagged(self, image: ImageFacts, name: str) -> None:
        """Gives a local image one more name."""

    @abstractmethod
    def _created(self, spec: ContainerSpec, image: ImageFacts) -> str:
        """Makes the container and returns its id."""

    @abstractmethod
    def _removed(self, found: C) -> None:
        """Ends and forgets it."""

    @abstractmethod
    def _renamed(self, found: C, name: str) -> None:
        """Gives it that name."""

    @abstractmethod
    def _run_of(self, found: C) -> object:
        """A value of its present start; None while it does not run."""

    @abstractmethod
    async def _changed(self, found: C | None) -> None:
        """Returns when that container, or for None any of them, may have changed."""

    def find(self, container: str) -> C:
        """By name, id or the beginning of an id. Raises ContainerNotFound."""
        for id_, found in self.all_containers.items():
            if container in (found.facts.name, id_) or (len(container) >= 12 and id_.startswith(container)):
                return found
        known = ", ".join(sorted(found.facts.name for found in self.all_containers.values())) or "none"
        raise ContainerNotFound(f"No container named {container}.", f"Containers: {known}.")

    async def containers(self) -> tuple[ContainerFacts, ...]:
        await self._called("containers")
        return tuple(sorted((found.facts for found in self.all_containers.values()), key=lambda facts: facts.name))

    async def inspect(self, container: str) -> ContainerFacts:
        await self._called("inspect", container)
        return self.find(container).facts

    async def image(self, reference: str) -> ImageFacts | None:
        await self._called("image", reference)
        return self._image(reference)

    async def tag_image(self, image: str, name: str) -> None:
        await self._called("tag_image", name)
        found = self._image(image)
        if found is None:
            raise ImageNotFound(f"The image {image} is not downloaded.", "List them: spark-tui images")
        self._image_tagged(found, name)

    async def remove_image(self, reference: str) -> None:
        await self._called("remove_image", reference)
        image = self._image(reference)
        if image is None:
            raise ImageNotFound(f"The image {reference} is not downloaded.", "List them: spark-tui images")
        others = [each for each in (await self.images()).images if each.id == image.id and len(each.tags) > 1]
        if not others and any(found.facts.image_id == image.id for found in self.all_containers.values()):
            raise ImageInUse(f"The image {reference} is in use.", "Remove its containers first.")
        self._image_removed(reference)

    async def create(self, spec: ContainerSpec) -> str:
        await self._called("create", spec.name)
        self._check_free(spec.name)
        image = self._image(spec.image)
        if image is None:
            raise ImageNotFound(f"The image {spec.image} is not downloaded.", "Pull it first.")
        return self._created(spec, image)

    def _check_free(self, name: str) -> None:
        if any(found.facts.name == name for found in self.all_containers.values()):
            raise NameInUse(f"A container named {name} exists.", f"Remove it: docker rm {name}")

    async def rename(self, container: str, name: str) -> None:
        await self._called("rename", container)
        self._check_free(name)
        self._renamed(self.find(container), name)

    async def remove(self, container: str, *, force: bool = False) -> None:
        await self._called("remove", container)
        found = self.find(container)
        if found.facts.running and not force:
            raise DockerError(f"{found.facts.name} is running.", "Stop it first.")
        self._removed(found)

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        await self._called("events")
        position = len(self.journal)
        while True:
            while position < len(self.journal):
                position += 1
                event = self.journal[position - 1]
                if isinstance(event, SparkError):
                    raise event
                yield event
            await self._changed(None)

    async def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        await self._called("logs", container)
        found = self.find(container)
        run, moment = self._run_of(found), _microseconds(since)
        position = sum(_microseconds(line.stamp) <= moment for line in found.lines) if moment else 0
        if tail is not None:
            position = max(position, len(found.lines) - tail)
        while True:
            while position < len(found.lines):
                batch = found.lines[position : position + BATCH_LINES]
                position += len(batch)
                yield batch
            if not follow or run is None or self._run_of(found) is not run:
                return
            await self._changed(found)

    async def close(self) -> None:
        pass


def _microseconds(stamp: str) -> int:
    """Since the epoch; 0 for an empty or unreadable stamp."""
    try:
        at = datetime.fromisoformat(stamp if stamp[-1:] == "Z" or "+" in stamp else f"{stamp}Z")
    except ValueError:
        return 0
    return round(at.timestamp() * 1_000_000)


# --- the demo ---------------------------------------------------------------------------------------------

PULL_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.5
_FRAME_SECONDS: Final = 0.1
_LAYERS_MIB: Final = (29, 4, 1, 412, 2210, 98, 1630, 3870, 640, 7, 212, 33)
"""A vLLM image for arm64: some 9 GB in a few large layers."""
_AT_ONCE: Final = 3
_SHARED_MIB: Final = 6200
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
_ENTRYPOINTS: Final = (
    ("vllm/vllm-openai", ("vllm", "serve"), ()),
    ("nvcr.io/nvidia/vllm", ("/opt/nvidia/nvidia_entrypoint.sh",), ("/bin/bash",)),
)


class DemoDocker(SimulatedDocker[DemoContainer]):
    """Containers of the simulated Spark. `images` are downloaded from the start; any other has to be pulled first."""

    def __init__(self, world: DemoWorld, images: Iterable[str] = ()) -> None:
        self._world = world
        self._clock = world.clock
        self._downloaded = {_tagged(reference) for reference in (VLLM_IMAGE, NIGHTLY_IMAGE, GEMMA_IMAGE, *images)}
        # The nightly of last week lost its tag to the one that is running.
        self._downloaded.add(f"{repository(NIGHTLY_IMAGE)}@sha256:{world.fingerprint('digest', 'last week')}")
        self._names: dict[str, str] = {}
        """Names that were given to images, and those that these have by themselves."""
        self.all_containers, self.journal = world.containers, world.journal

    async def daemon(self) -> DaemonFacts:
        return DaemonFacts("29.2.1", "1.52", "linux", "arm64", "/var/lib/docker")

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """Pulls an image in five seconds; closing the iterator leaves it absent."""
        began = self._clock.now()
        names = [self._world.fingerprint("layer", reference, index)[:12] for index in range(len(_LAYERS_MIB))]
        share = 0.0
        while share < 1:
            layers = tuple(_layer(name, index, share) for index, name in enumerate(names))
            yield PullProgress(reference, layers, f"Pulling from {reference.partition(':')[0]}")
            await self._clock.sleep(_FRAME_SECONDS)
            share = (self._clock.now() - began) / PULL_SECONDS
        self._downloaded.add(_tagged(reference))
        layers = tuple(_layer(name, index, 2.0) for index, name in enumerate(names))
        yield PullProgress(reference, layers, f"Status: Downloaded newer image for {_tagged(reference)}")

    async def start(self, container: str) -> None:
        now = self._world.settle()
        found = self.find(container)
        if found.run is not None:
            return
        for port in found.ports:
            other = self._world.on_port(port.host_port)
            if other is not None:
                raise PortInUse(
                    f"Port {port.host_port} is taken by the container {other.name}.",
                    f"Stop it, or choose another port, for example {port.host_port + 1}.",
                )
        self._world.begin(found, now)

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        now = self._world.settle()
        found = self.find(container)
        run = found.run
        if run is None:
            return
        served = run.serves(now)
        if served and not found.stopping:
            found.log.cut()
            for after, text in _LAST_WORDS:
                found.log.write(now + after, text)
        found.stopping = True
        self._world.note(found, "kill", now)
        await self._clock.sleep(min(STOP_SECONDS, grace_seconds))
        ended = self._world.settle()
        if found.run is run:
            self._world.end(found, ended, 0 if served else 143)
            self._world.note(found, "stop", ended)
        found.stopping = False

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        await self.stop(container, grace_seconds)
        await self.start(container)

    async def images(self) -> ImageDisk:
        await self._clock.sleep(_FRAME_SECONDS)
        found: dict[str, StoredImage] = {}
        for reference, image in ((each, self._image(each)) for each in sorted(self._downloaded)):
            if image is None:
                continue
            days = 9 if "@" in reference else 2 + 20 * noise(reference)
            tags = () if "@" in reference else (reference,)
            made = self._clock.now() - days * 86_400
            one = found.get(image.id, StoredImage(image.id, (), image.digests, made, image.size, _SHARED_MIB * MIB))
            found[image.id] = replace(one, tags=(*one.tags, *tags))
        alone = sum(each.unique or 0 for each in found.values())
        return ImageDisk(tuple(found.values()), alone + (_SHARED_MIB * MIB if found else 0))

    async def registry_digest(self, reference: str) -> str:
        """The nightly has moved on since."""
        await self._clock.sleep(PULL_SECONDS / 10)
        word = "tomorrow" if reference == NIGHTLY_IMAGE else reference
        return f"sha256:{self._world.fingerprint('digest', word)}"

    async def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        await self._clock.sleep(STOP_SECONDS)
        return (json.dumps(_PACKAGES),)

    # --- what the simulator asks ----------------------------------------------------------------------

    async def _called(self, method: str, argument: str = "") -> None:
        self._world.settle()

    def _image(self, reference: str) -> ImageFacts | None:
        if reference.startswith("sha256:"):
            reference = next((each for each in self._downloaded if self._id_of(each) == reference), "")
        else:
            reference = self._names.get(_tagged(reference), reference)
        name, _, pinned = reference.partition("@")
        if pinned and pinned == f"sha256:{self._world.fingerprint('digest', _tagged(name))}":
            reference = name
        if _tagged(reference) not in self._downloaded:
            return None
        digest = reference.partition("@")[2] or f"sha256:{self._world.fingerprint('digest', reference)}"
        found = next((rest for mark, *rest in _ENTRYPOINTS if mark in reference), [(), ()])
        return ImageFacts(
            id=self._id_of(reference),
            reference=reference,
            entrypoint=found[0],
            command=found[1],
            architecture="arm64",
            os="linux",
            size=2 * sum(_LAYERS_MIB) * MIB,
            digest=f"{repository(reference)}@{digest}",
            digests=(f"{repository(reference)}@{digest}",),
            versions=(("CUDA", "13.0.2"), ("NCCL", "2.28.3")),
        )

    def _id_of(self, reference: str) -> str:
        return f"sha256:{self._world.fingerprint('image', reference)}"

    def _image_removed(self, reference: str) -> None:
        self._names.pop(_tagged(reference), None)
        self._downloaded.discard(_tagged(reference))

    def _image_tagged(self, image: ImageFacts, name: str) -> None:
        self._names[_tagged(name)] = image.reference
        self._downloaded.add(_tagged(name))

    def _created(self, spec: ContainerSpec, image: ImageFacts) -> str:
        return self._world.add(spec, image.entrypoint, self._clock.now()).id

    def _removed(self, container: DemoContainer) -> None:
        now = self._clock.now()
        if container.run is not None:
            self._world.end(container, now, 137)
        del self._world.containers[container.id]
        self._world.note(container, "destroy", now)

    def _renamed(self, container: DemoContainer, name: str) -> None:
        container.name = name

    def _run_of(self, container: DemoContainer) -> object:
        return container.run

    async def _changed(self, container: DemoContainer | None) -> None:
        followed = self._world.containers.values() if container is None else (container,)
        moments = [each.run.exits_at for each in followed if each.run is not None]
        if container is not None:
            moments.append(container.log.next_at())
        await self._world.until(min((each for each in moments if each is not None), default=None))
        self._world.settle()


def _layer(name: str, index: int, share: float) -> LayerProgress:
    """One layer when `share` of the pull is over: they come in order, three at a time."""
    size = _LAYERS_MIB[index] * MIB
    steps = len(_LAYERS_MIB) + _AT_ONCE
    done = (share * steps - index) / _AT_ONCE * (0.9 + 0.2 * noise(name))
    if done <= 0:
        return LayerProgress(name, "Waiting" if share else "Pulling fs layer", 0, size)
    if done < 0.85:
        return LayerProgress(name, "Downloading", int(size * done / 0.85), size)
    return LayerProgress(name, "Extracting" if done < 1 else "Pull complete", size, size)


def _tagged(reference: str) -> str:
    """With its tag: Docker's default is `latest`."""
    return reference if "@" in reference or ":" in reference.rpartition("/")[2] else f"{reference}:latest"
