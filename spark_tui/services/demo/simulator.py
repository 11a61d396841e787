"""A Docker engine in memory, behind the demo and behind the tests' fake.

What its containers do, and when, is the subclass's: the demo replays recordings by its clock, a test moves its fake on
by hand and makes calls fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from spark_tui.domain.engine.container import ContainerEvent, ContainerFacts, ContainerSpec, ImageFacts
from spark_tui.domain.errors import ContainerNotFound, DockerError, ImageNotFound, NameInUse, SparkError
from spark_tui.services.ports import LogLine

BATCH_LINES: Final = 200
"""A log is handed out in batches of at most this many lines."""


class SimulatedContainer(Protocol):
    """What every simulated container has."""

    @property
    def facts(self) -> ContainerFacts:
        """As Docker reports it."""

    @property
    def lines(self) -> Sequence[LogLine]:
        """What it has written."""


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
    def _created(self, spec: ContainerSpec, image: ImageFacts) -> str:
        """Makes the container and returns its id."""

    @abstractmethod
    def _removed(self, found: C) -> None:
        """Ends and forgets it."""

    @abstractmethod
    def _run_of(self, found: C) -> object:
        """What stands for its present start; None while it does not run."""

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
        """See the port."""
        await self._called("containers")
        return tuple(sorted((found.facts for found in self.all_containers.values()), key=lambda facts: facts.name))

    async def inspect(self, container: str) -> ContainerFacts:
        """See the port."""
        await self._called("inspect", container)
        return self.find(container).facts

    async def image(self, reference: str) -> ImageFacts | None:
        """See the port."""
        await self._called("image", reference)
        return self._image(reference)

    async def create(self, spec: ContainerSpec) -> str:
        """See the port."""
        await self._called("create", spec.name)
        if any(found.facts.name == spec.name for found in self.all_containers.values()):
            raise NameInUse(f"A container named {spec.name} exists.", f"Remove it: docker rm {spec.name}")
        image = self._image(spec.image)
        if image is None:
            raise ImageNotFound(f"The image {spec.image} is not downloaded.", "Pull it first.")
        return self._created(spec, image)

    async def remove(self, container: str, *, force: bool = False) -> None:
        """See the port."""
        await self._called("remove", container)
        found = self.find(container)
        if found.facts.running and not force:
            raise DockerError(f"{found.facts.name} is running.", "Stop it first.")
        self._removed(found)

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """See the port."""
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
        """See the port."""
        await self._called("logs", container)
        found = self.find(container)
        run = self._run_of(found)
        position = first_after(found.lines, since)
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
        """Nothing is kept open."""


def first_after(lines: Iterable[LogLine], since: str) -> int:
    """The index of the first line later than that stamp; 0 for an empty or unreadable one."""
    moment = _microseconds(since)
    return sum(_microseconds(line.stamp) <= moment for line in lines) if moment else 0


def _microseconds(stamp: str) -> int:
    try:
        at = datetime.fromisoformat(stamp if stamp[-1:] == "Z" or "+" in stamp else f"{stamp}Z")
    except ValueError:
        return 0
    return round(at.timestamp() * 1_000_000)
