"""A Docker engine in memory, moved on by hand: containers, images, logs, pulls, events, and failures on demand.

    docker = FakeDocker()
    docker.add_image("vllm/vllm-openai:nightly", entrypoint=("vllm", "serve"))
    docker.add_container("qwen36", lines=["INFO ready"])       # runs already
    docker.script("vllm/vllm-openai:nightly", BOOT_LINES)      # what a container made from it writes when it starts
    docker.fail("start", PortInUse("Port 8000 is taken.", "Choose another."))
    docker.write("qwen36", "one more line")                    # followers see it at once
    docker.end("qwen36", exit_code=1)                          # its process ends; followers finish
    docker.go_down()                                           # every call fails, streams break; come_back() ends it

Nothing here waits for time: a test moves the engine on by calling it. Stamps and times come from a counter that starts
at `EPOCH` and advances one millisecond per line or change, so that they are the same in every run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_PORT,
    ContainerEvent,
    ContainerFacts,
    ContainerSpec,
    ContainerStatus,
    DaemonFacts,
    ImageDisk,
    ImageFacts,
    LayerProgress,
    PublishedPort,
    PullProgress,
    StoredImage,
)
from spark_tui.base.errors import (
    ContainerNotFound,
    DaemonNotRunning,
    DockerError,
    ImageInUse,
    ImageNotFound,
    NameInUse,
    SparkError,
    StreamBroken,
)
from spark_tui.base.ports import LogLine

EPOCH = 1_799_996_400.0
"""2027-01-15 07:00:00 UTC, an hour before `tests.fakes_host.FakeClock` starts: the fake engine's first moment."""

DAEMON = DaemonFacts(version="28.5.1", api_version="1.51", os="linux", architecture="aarch64", root="/var/lib/docker")


@dataclass(slots=True)
class _FakeContainer:
    """One container: what Docker says of it, its log, and who waits for it."""

    facts: ContainerFacts
    lines: list[LogLine] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self) -> None:
        """Wakes everyone who waits, and arms the next wait."""
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()


def _names_digest(image: ImageFacts, reference: str) -> bool:
    """Whether `NAME:TAG@DIGEST` or `NAME@DIGEST` is one of its names in registries."""
    name, _, digest = reference.partition("@")
    return bool(digest) and any(
        found.partition("@")[2] == digest and (name == found.partition("@")[0] or
                                               name.startswith(found.partition("@")[0] + ":"))
        for found in image.digests
    )  # fmt: skip


BATCH_LINES = 200
"""A log is handed out in batches of at most this many lines."""


def _microseconds(stamp: str) -> int:
    """Since the epoch; 0 for an empty or unreadable stamp."""
    try:
        at = datetime.fromisoformat(stamp if stamp[-1:] == "Z" or "+" in stamp else f"{stamp}Z")
    except ValueError:
        return 0
    return round(at.timestamp() * 1_000_000)


class FakeDocker:
    """Implements `spark_tui.base.ports.ContainerEngine`.

    `calls` records what was asked, as `(method, argument)`; `created` keeps every spec. `on_start` is called with the
    facts of each container that starts: the place to bring a fake API up.
    """

    def __init__(self, facts: DaemonFacts = DAEMON) -> None:
        self.all_containers: dict[str, _FakeContainer] = {}
        """The containers by id."""
        self.journal: list[ContainerEvent | SparkError] = []
        """All events so far; an error breaks the streams of those who follow."""
        self.facts = facts
        self.calls: list[tuple[str, str]] = []
        self.created: list[ContainerSpec] = []
        self.on_start: Callable[[ContainerFacts], None] | None = None
        self.exit_code_on_stop = 0
        self.closed = False
        self._images: dict[str, ImageFacts] = {}
        self._stored: dict[str, StoredImage] = {}
        self.digests: dict[str, str | SparkError] = {}
        """What registries have for a tag, or how they fail; other tags are gone there."""
        self.printed: tuple[str, ...] = ("{}",)
        """What programs of `run_once` print."""
        self._remote: dict[str, tuple[ImageFacts, tuple[tuple[LayerProgress, ...], ...]]] = {}
        self._scripts: dict[str, tuple[tuple[str, ...], int | None]] = {}
        self._failures: dict[str, deque[SparkError]] = {}
        self._down: SparkError | None = None
        self._held: dict[str, int] = {}
        self._released = asyncio.Event()
        self._happened = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticks = 0
        self._numbers = 0

    # --- arrange --------------------------------------------------------------------------------------

    def add_image(
        self, reference: str, *, entrypoint: tuple[str, ...] = ("vllm", "serve"), **changes: Any
    ) -> ImageFacts:
        """An image that is here."""
        image = ImageFacts(f"sha256:{reference}", reference, entrypoint, (), self.facts.architecture, "linux")
        self._images[reference] = image = replace(image, **changes)
        tags = () if "@" in reference else (reference,)
        self._stored[reference] = StoredImage(image.id, tags, image.digests, EPOCH, image.size, image.size // 4)
        return image

    def add_remote_image(
        self,
        reference: str,
        stages: Sequence[Sequence[LayerProgress]] = (),
        **changes: Any,
    ) -> ImageFacts:
        """An image that a pull can fetch; each stage is one report of its layers."""
        image = self.add_image(reference, **changes)
        self._image_removed(reference)
        reports = tuple(tuple(stage) for stage in stages) or (
            (LayerProgress("a1", "Downloading", 0, 1000),),
            (LayerProgress("a1", "Downloading", 500, 1000),),
            (LayerProgress("a1", "Pull complete", 1000, 1000),),
        )
        self._remote[reference] = image, reports
        return image

    def add_container(
        self,
        name: str,
        *,
        image: str = "vllm/vllm-openai:nightly",
        status: ContainerStatus = ContainerStatus.RUNNING,
        lines: Iterable[str] = (),
        **changes: Any,
    ) -> ContainerFacts:
        """A container that exists already; `changes` are further fields of ContainerFacts. One that our label gives a
        port publishes it, as a launch does."""
        labelled = dict(changes.get("labels", ())).get(LABEL_PORT, "")
        if labelled and changes.get("network_mode") != "host":
            changes.setdefault("ports", (PublishedPort(8000, int(labelled)),))
        created, started = self._tick(), self._tick()
        facts = ContainerFacts(
            id=self._new_id(name),
            name=name,
            image=image,
            image_id=f"sha256:{image}",
            status=status,
            created_at=created,
            started_at=None if status is ContainerStatus.CREATED else started,
        )
        one = _FakeContainer(replace(facts, **changes))
        self.all_containers[one.facts.id] = one
        self.write(name, *lines)
        return one.facts

    def script(self, image: str, lines: Iterable[str], *, exit_code: int | None = None) -> None:
        """What every container of `image` writes when it starts; with an exit code it ends right after."""
        self._scripts[image] = (tuple(lines), exit_code)

    def fail(self, method: str, *errors: SparkError) -> None:
        """The next calls of that method raise these errors, one each."""
        self._failures.setdefault(method, deque()).extend(errors)

    def hold(self, method: str, *, after: int = 0) -> None:
        """Calls of that method wait until `release`, but for the next so many: a slow daemon."""
        self._held[method] = len(self.asked(method)) + after

    def release(self) -> None:
        """Lets every held call go on."""
        self._held.clear()
        released, self._released = self._released, asyncio.Event()
        released.set()

    # --- what happens to it -----------------------------------------------------------------------------

    def write(self, container: str, *texts: str) -> None:
        """The container writes lines."""
        one = self.find(container)
        one.lines.extend(LogLine(self._stamp(), text) for text in texts)
        one.notify()

    def end(self, container: str, exit_code: int = 0, **changes: Any) -> None:
        """The container's process ends; `changes` are further fields, such as `oom_killed=True`."""
        one = self.find(container)
        self._change(
            one, status=ContainerStatus.EXITED, exit_code=exit_code, finished_at=self._tick(), pid=0, **changes
        )
        self._tell("die", one.facts, exit_code)

    def signal(self, container: str, number: int = 15, *, ago: float = 0.0) -> None:
        """Somebody else has the daemon send a signal, as `docker stop` and `docker kill` do; the process lives on."""
        facts = self.find(container).facts
        self._add(ContainerEvent("kill", facts.id, facts.name, self._now() - ago, signal=number))

    def kill(self, container: str, exit_code: int, number: int = 15) -> None:
        """As `signal`, and the process ends."""
        self.signal(container, number)
        self.end(container, exit_code)

    def restart_by_policy(self, container: str, *lines: str) -> None:
        """The process writes these lines and ends, and the daemon starts it again by itself."""
        one = self.find(container)
        self.write(container, *lines)
        count, ended = one.facts.restart_count + 1, self._tick()
        self._change(one, restart_count=count, finished_at=ended, started_at=self._tick())
        self._tell("start", one.facts)

    def go_down(self, error: SparkError | None = None) -> None:
        """The daemon goes away: calls fail, streams break. Containers are kept."""
        self._down = error or DaemonNotRunning(
            "Cannot reach Docker: nothing listens on its socket.", "Start it: sudo systemctl start docker"
        )
        self._add(StreamBroken("The connection to Docker broke.", "It is tried again."))
        for one in self.all_containers.values():
            one.notify()

    def come_back(self) -> None:
        """The daemon answers again."""
        self._down = None

    # --- look -------------------------------------------------------------------------------------------

    def find(self, container: str) -> _FakeContainer:
        """By name, id or the beginning of an id. Raises ContainerNotFound."""
        for id_, found in self.all_containers.items():
            if container in (found.facts.name, id_) or (len(container) >= 12 and id_.startswith(container)):
                return found
        known = ", ".join(sorted(found.facts.name for found in self.all_containers.values())) or "none"
        raise ContainerNotFound(f"No container named {container}.", f"Containers: {known}.")

    def asked(self, method: str) -> list[str]:
        """The arguments with which a method was called, in order."""
        return [argument for name, argument in self.calls if name == method]

    def named(self, name: str) -> ContainerFacts | None:
        """The container of that name as it is now, without a call being recorded."""
        return next((one.facts for one in self.all_containers.values() if one.facts.name == name), None)

    # --- the port -----------------------------------------------------------------------------------------

    async def daemon(self) -> DaemonFacts:
        await self._called("daemon")
        return self.facts

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

    async def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """See the port: one report per stage of `add_remote_image`; the image is here once the last one was taken."""
        await self._called("pull", reference)
        if reference not in self._remote:
            raise ImageNotFound(f"There is no image {reference}.", "Check its name and tag.")
        image, stages = self._remote[reference]
        for layers in stages:
            yield PullProgress(reference, layers, layers[-1].status if layers else "")
            await self._called("pull_stage", reference)
        self._images[reference] = image
        tags = () if "@" in reference else (reference,)
        self._stored[reference] = StoredImage(image.id, tags, image.digests, EPOCH, image.size)

    async def images(self) -> ImageDisk:
        """Images with the same id are one with several tags; a quarter of each is the same layers."""
        await self._called("images")
        found: dict[str, StoredImage] = {}
        for each in self._stored.values():
            one = found.get(each.id, each)
            found[each.id] = replace(one, tags=tuple(dict.fromkeys((*one.tags, *each.tags))))
        shared = max((each.shared or 0 for each in found.values()), default=0)
        return ImageDisk(tuple(found.values()), shared + sum(each.unique or 0 for each in found.values()))

    async def registry_digest(self, reference: str) -> str:
        await self._called("registry_digest", reference)
        digest = self.digests.get(reference, ImageNotFound(f"No image {reference} there.", "Check its name and tag."))
        if isinstance(digest, SparkError):
            raise digest
        return digest

    async def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        await self._called("run_once", image)
        return self.printed

    def _image_removed(self, reference: str) -> None:
        del self._images[reference], self._stored[reference]

    def _image_tagged(self, image: ImageFacts, name: str) -> None:
        """Another image loses that name, and stays by its id."""
        former = self._images.get(name)
        if former is not None and former.id != image.id:
            self._images[former.id], self._stored[former.id] = former, replace(self._stored[name], tags=())
        stored = next(each for each in self._stored.values() if each.id == image.id)
        self._images[name], self._stored[name] = image, replace(stored, tags=(name,))

    def _created(self, spec: ContainerSpec, image: ImageFacts) -> str:
        self.created.append(spec)
        facts = ContainerFacts(
            id=self._new_id(spec.name),
            name=spec.name,
            image=spec.image,
            image_id=image.id,
            status=ContainerStatus.CREATED,
            argv=(*(image.entrypoint if spec.entrypoint is None else spec.entrypoint), *spec.command),
            labels=spec.labels,
            ports=spec.ports,
            network_mode=spec.network or "bridge",
            environment=tuple(variable.name for variable in spec.env),
            created_at=self._tick(),
            mounts=spec.mounts,
        )
        self.all_containers[facts.id] = _FakeContainer(facts)
        self._tell("create", facts)
        return facts.id

    async def start(self, container: str) -> None:
        await self._called("start", container)
        self._start(self.find(container))

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        await self._called("stop", container)
        one = self.find(container)
        if one.facts.running:
            self.end(one.facts.id, self.exit_code_on_stop)

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        await self._called("restart", container)
        one = self.find(container)
        if one.facts.running:
            self.end(one.facts.id, self.exit_code_on_stop)
        self._start(one)

    async def close(self) -> None:
        self.closed = True

    # --- inside -------------------------------------------------------------------------------------------

    async def _called(self, method: str, argument: str = "") -> None:
        self.calls.append((method, argument))
        number = len(self.asked(method))
        while number > self._held.get(method, number):
            await self._released.wait()
        await asyncio.sleep(0)  # a real call is never answered within the same turn of the loop
        if self._down is not None:
            raise self._down
        failures = self._failures.get(method)
        if failures:
            raise failures.popleft()

    def _image(self, reference: str) -> ImageFacts | None:
        found = (image for image in self._images.values() if reference == image.id or _names_digest(image, reference))
        return self._images.get(reference) or next(found, None)

    def _removed(self, one: _FakeContainer) -> None:
        del self.all_containers[one.facts.id]
        one.facts = replace(one.facts, status=ContainerStatus.EXITED)
        one.notify()
        self._tell("destroy", one.facts)

    def _renamed(self, one: _FakeContainer, name: str) -> None:
        self._change(one, name=name)

    def _run_of(self, one: _FakeContainer) -> object:
        return one if one.facts.running else None

    async def _changed(self, one: _FakeContainer | None) -> None:
        if one is None:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:  # each command has a loop of its own, and an Event belongs to one
                self._loop, self._happened = loop, asyncio.Event()
            await self._happened.wait()
        elif self._down is not None:
            raise StreamBroken("The connection to Docker broke.", "Ask again.")
        else:
            await one.moved.wait()

    def _start(self, one: _FakeContainer) -> None:
        if one.facts.running:
            return
        self._change(one, status=ContainerStatus.RUNNING, started_at=self._tick(), exit_code=None, pid=4242)
        self._tell("start", one.facts)
        if self.on_start is not None:
            self.on_start(one.facts)
        lines, exit_code = self._scripts.get(one.facts.image, ((), None))
        self.write(one.facts.id, *lines)
        if exit_code is not None:
            self.end(one.facts.id, exit_code)

    def _change(self, one: _FakeContainer, **changes: Any) -> None:
        one.facts = replace(one.facts, **changes)
        one.notify()

    def _tell(self, action: str, facts: ContainerFacts, exit_code: int | None = None) -> None:
        self._add(ContainerEvent(action, facts.id, facts.name, self._now(), exit_code))

    def _add(self, event: ContainerEvent | SparkError) -> None:
        self.journal.append(event)
        happened, self._happened = self._happened, asyncio.Event()
        happened.set()

    def _new_id(self, name: str) -> str:
        self._numbers += 1
        return f"{self._numbers:02x}{name.encode().hex()}".ljust(64, "0")[:64]

    def _tick(self) -> float:
        self._ticks += 1
        return self._now()

    def _now(self) -> float:
        return EPOCH + self._ticks / 1000

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._tick(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
