"""The simulated Docker engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Final

from spark_tui.domain.engine.container import (
    ContainerSpec,
    DaemonFacts,
    ImageFacts,
    LayerProgress,
    PullProgress,
)
from spark_tui.domain.errors import PortInUse
from spark_tui.domain.presets.image import repository
from spark_tui.domain.quantities import MIB
from spark_tui.services.demo.simulator import SimulatedDocker
from spark_tui.services.demo.world import VLLM_IMAGE, DemoContainer, DemoWorld, noise

PULL_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.5
_FRAME_SECONDS: Final = 0.1
_LAYERS_MIB: Final = (29, 4, 1, 412, 2210, 98, 1630, 3870, 640, 7, 212, 33)
"""A vLLM image for arm64: some 9 GB in a few large layers."""
_AT_ONCE: Final = 3

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
        self._downloaded = {_tagged(reference) for reference in (VLLM_IMAGE, *images)}
        self.all_containers, self.journal = world.containers, world.journal

    async def daemon(self) -> DaemonFacts:
        """The daemon of a stock DGX OS."""
        return DaemonFacts("29.2.1", "1.52", "linux", "arm64", "/var/lib/docker")

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
        self._downloaded.add(_tagged(reference))
        yield PullProgress(reference, layers, f"Status: Downloaded newer image for {_tagged(reference)}")

    async def start(self, container: str) -> None:
        """Starts it; a running one is no error."""
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
        """SIGTERM; returns when it has ended. A stopped one is no error."""
        now = self._world.settle()
        found = self.find(container)
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

    # --- what the simulator asks ----------------------------------------------------------------------

    async def _called(self, method: str, argument: str = "") -> None:
        self._world.settle()

    def _image(self, reference: str) -> ImageFacts | None:
        if _tagged(reference) not in self._downloaded:
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

    def _created(self, spec: ContainerSpec, image: ImageFacts) -> str:
        return self._world.add(spec, image.entrypoint, self._clock.now()).id

    def _removed(self, container: DemoContainer) -> None:
        now = self._clock.now()
        if container.run is not None:
            self._world.end(container, now, 137)
        del self._world.containers[container.id]
        self._world.note(container, "destroy", now)

    def _run_of(self, container: DemoContainer) -> object:
        return container.run

    async def _changed(self, container: DemoContainer | None) -> None:
        world, moment = self._world, self._world.next_exit()
        if container is not None:
            run = container.run
            moments = (container.log.next_at(), run.exits_at if run is not None else None)
            moment = min((each for each in moments if each is not None), default=None)
        await world.until(moment)
        world.settle()


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
