"""The simulated Docker engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    DaemonFacts,
    ImageFacts,
    LayerProgress,
    PullProgress,
)
from spark_tui.domain.errors import DockerError, ImageNotFound, NameInUse, PortInUse
from spark_tui.domain.presets.image import repository
from spark_tui.domain.quantities import MIB
from spark_tui.services.demo.world import VLLM_IMAGE, DemoContainer, DemoWorld, noise
from spark_tui.services.ports import LogLine

PULL_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.5
_BATCH: Final = 500
_FRAME_SECONDS: Final = 0.1
_LAYERS_MIB: Final = (29, 4, 1, 412, 2210, 98, 1630, 3870, 640, 7, 212, 33)
"""A vLLM image for arm64: some 9 GB in a few large layers."""
_AT_ONCE: Final = 3

# `vllm/vllm-openai` images start the server themselves, NGC images a shell.
_ENTRYPOINTS: Final = (
    ("vllm/vllm-openai", ("vllm", "serve"), ()),
    ("nvcr.io/nvidia/vllm", ("/opt/nvidia/nvidia_entrypoint.sh",), ("/bin/bash",)),
)


class DemoDocker:
    """The ContainerEngine port. `images` are here from the start; any other has to be pulled first."""

    def __init__(self, world: DemoWorld, images: Iterable[str] = ()) -> None:
        self._world = world
        self._clock = world.clock
        self._here = {_tagged(reference) for reference in (VLLM_IMAGE, *images)}

    # --- daemon and images ----------------------------------------------------------------------------

    async def daemon(self) -> DaemonFacts:
        """The daemon of a stock DGX OS."""
        return DaemonFacts("29.2.1", "1.52", "linux", "arm64", "/var/lib/docker")

    async def image(self, reference: str) -> ImageFacts | None:
        """A local image, or None."""
        if _tagged(reference) not in self._here:
            return None
        found = next((rest for mark, *rest in _ENTRYPOINTS if mark in reference), [(), ()])
        return ImageFacts(
            id=f"sha256:{self._world.fingerprint('image', reference)}",
            reference=reference,
            entrypoint=found[0],
            command=found[1],
            architecture="arm64",
            os="linux",
            size=2 * sum(_LAYERS_MIB) * MIB,
            digest=f"{repository(reference)}@sha256:{self._world.fingerprint('digest', reference)}",
        )

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """Pulls an image in five seconds; closing the iterator leaves it absent."""
        began = self._clock.now()
        names = [self._world.fingerprint("layer", reference, index)[:12] for index in range(len(_LAYERS_MIB))]
        while (share := (self._clock.now() - began) / PULL_SECONDS) < 1:
            layers = tuple(_layer(name, index, share) for index, name in enumerate(names))
            yield PullProgress(reference, layers, f"Pulling from {reference.partition(':')[0]}")
            await self._clock.sleep(_FRAME_SECONDS)
        layers = tuple(
            LayerProgress(name, "Pull complete", mib * MIB, mib * MIB)
            for name, mib in zip(names, _LAYERS_MIB, strict=True)
        )
        self._here.add(_tagged(reference))
        yield PullProgress(reference, layers, f"Status: Downloaded newer image for {_tagged(reference)}")

    # --- containers -----------------------------------------------------------------------------------

    async def containers(self) -> tuple[ContainerFacts, ...]:
        """All containers, running or not, in name order."""
        self._world.settle()
        return tuple(sorted((each.facts() for each in self._world.containers.values()), key=lambda facts: facts.name))

    async def inspect(self, container: str) -> ContainerFacts:
        """One container by name or id."""
        self._world.settle()
        return self._world.find(container).facts()

    async def create(self, spec: ContainerSpec) -> str:
        """Creates the container and returns its id."""
        now = self._world.settle()
        if any(each.name == spec.name for each in self._world.containers.values()):
            raise NameInUse(f"A container named {spec.name} exists.", "Remove it, or choose another name.")
        image = await self.image(spec.image)
        if image is None:
            raise ImageNotFound(f"The image {spec.image} is not here.", "Pull it first.")
        return self._world.add(spec, image.entrypoint, now).id

    async def start(self, container: str) -> None:
        """Starts it; a running one is no error."""
        now = self._world.settle()
        found = self._world.find(container)
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
        """SIGTERM; returns when it has ended. A stopped one is no error."""
        now = self._world.settle()
        found = self._world.find(container)
        run = found.run
        if run is None:
            return
        served = run.serves(now)
        if served and not found.stopping:
            found.log.cut()
            found.log.write(
                now + 0.2, "(APIServer pid=1) INFO <<time>> [launcher.py:111] Shutting down FastAPI HTTP server."
            )
            found.log.write(now + 1.2, "(APIServer pid=1) INFO:     Shutting down")
            found.log.write(now + 1.3, "(APIServer pid=1) INFO:     Application shutdown complete.")
        found.stopping = True
        self._world.note(found, "kill", now)
        await self._clock.sleep(min(STOP_SECONDS, grace_seconds))
        ended = self._world.settle()
        if found.run is run:
            self._world.end(found, ended, 0 if served else 143)
            self._world.note(found, "stop", ended)
        found.stopping = False

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        """Stop and start."""
        await self.stop(container, grace_seconds)
        await self.start(container)

    async def remove(self, container: str, *, force: bool = False) -> None:
        """Removes a container; its log goes with it."""
        now = self._world.settle()
        found = self._world.find(container)
        if found.run is not None:
            if not force:
                raise DockerError(f"The container {found.name} is running.", "Stop it first.")
            self._world.end(found, now, 137)
        del self._world.containers[found.id]
        self._world.note(found, "destroy", now)

    # --- streams --------------------------------------------------------------------------------------

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Container events from now on."""
        world = self._world
        world.settle()
        position = len(world.journal)
        while True:
            world.settle()
            while position < len(world.journal):
                position += 1
                yield world.journal[position - 1]
            await world.until(world.next_exit())

    async def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        """Batches of log lines, oldest first; with `follow` until the container ends."""
        world = self._world
        world.settle()
        found = world.find(container)
        run = found.run
        position = found.log.position_after(since) if since else 0
        if tail is not None:
            position = max(position, len(found.log.lines) - tail)
        while True:
            world.settle()
            while position < len(found.log.lines):
                batch = found.log.lines[position : position + _BATCH]
                position += len(batch)
                yield batch
            if not follow or run is None or found.run is not run:
                return
            await world.until(_next(found))

    async def close(self) -> None:
        """Nothing is kept open."""


def _next(container: DemoContainer) -> float | None:
    """When the container writes or ends next."""
    run = container.run
    moments = (container.log.next_at(), run.exits_at if run is not None else None)
    return min((moment for moment in moments if moment is not None), default=None)


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
