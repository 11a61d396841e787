"""Container images: who uses each, what keeps it from being deleted, and what the registry has by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.container import ContainerFacts, StoredImage
from spark_tui.base.engine.image import familiar, repository, tag_of
from spark_tui.base.engine.runtimes import recognised
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import ImageNotFound, RefusedError, SparkError
from spark_tui.base.feature import Slice
from spark_tui.base.finding import NOT_READ_YET, Finding, Reading, Severity
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.observe.explain.model.starts import StartRecord


class ImageUser(StrEnum):
    """What uses an image. All but a preset that names a tag, and an update, keep it."""

    ENGINE = "container"
    ENDED_ENGINE = "stopped container"
    PIN = "pin"
    LAST_START = "last good start"
    KEPT = "kept"
    """An update kept it, as the way back."""
    PRESET = "preset"


KEPT_TAG = "spark-tui-kept-"
"""Begins the tag that keeps the former image of an update; the preset's name follows."""


def kept_tag(image: str, preset: str) -> str:
    """`vllm/vllm-openai:spark-tui-kept-qwen`, in the repository of `image`: its name by digest stays usable."""
    return f"{repository(image)}:{KEPT_TAG}{preset[:100]}"


_ERROR = Severity.ERROR
_WORDS = {
    ImageUser.ENGINE: "{} runs in it",
    ImageUser.ENDED_ENGINE: "the stopped container {} needs it",
    ImageUser.PIN: "the preset {} pins its digest",
    ImageUser.LAST_START: "the last good start of {} ran in it",
    ImageUser.KEPT: "the way back of the update of {}",
    ImageUser.PRESET: "the preset {} names it",
}
_REMEDIES = {
    ImageUser.ENGINE: "Stop and remove it first: spark-tui down {} --remove",
    ImageUser.ENDED_ENGINE: "Remove the container first: spark-tui down {} --remove",
    ImageUser.PIN: "Pin another digest in the preset {} first.",
    ImageUser.LAST_START: "Launch {} in another image first: what served last is kept.",
}


class ImageUse(Struct, frozen=True):
    """One user by its name."""

    kind: ImageUser
    name: str

    @property
    def keeps(self) -> bool:
        return self.kind not in (ImageUser.PRESET, ImageUser.KEPT)

    @property
    def words(self) -> str:
        """`qwen36 runs in it`."""
        return _WORDS[self.kind].format(self.name)

    @property
    def obstacle(self) -> Finding:
        """Why the image is not deleted; of a user that keeps it."""
        return Finding("in_use", _ERROR, self.words, remedy=_REMEDIES[self.kind].format(self.name), subject=self.name)


class TagState(StrEnum):
    """The tag here beside the registry's."""

    CURRENT = "current"
    MOVED = "moved"
    UNKNOWN = "unknown"
    PINNED = "pinned"
    """Named by its digest, or by a tag of ours: neither can move."""
    LOCAL = "local"
    """Built or loaded on this machine: there is no digest to compare."""
    ABSENT = "absent"
    """Not downloaded."""
    GONE = "gone"
    """The registry has no such tag any more."""
    FAILED = "failed"
    """The registry did not answer, or wants a login."""


class ImageVersion(Struct, frozen=True):
    """A program inside. `source` says who said so: `image`, `start`, `inspected`."""

    title: str
    version: str
    source: str


class ImageEntry(Struct, frozen=True):
    """An image by one of its names: a tag, else `repo@digest`, else its id. `stored` is None for one that a preset
    names and that is not downloaded. `remote` is the registry's digest for the tag, why it is unknown, or None before
    it was asked for. `patches` are those that were seen inside or that a preset with this image asks for, by id:
    PRESENT, `absent`, the other version of a package, or empty before an inspection."""

    name: str
    stored: StoredImage | None = None
    uses: tuple[ImageUse, ...] = ()
    versions: tuple[ImageVersion, ...] = ()
    remote: str | SparkError | None = None
    patches: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """The registry's digest of what is on disk; empty for what was never pulled or pushed."""
        digests = self.stored.digests if self.stored is not None else ()
        own = [each for each in digests if repository(each) == repository(self.name)]
        return next(iter((*own, *digests)), "").partition("@")[2]

    @property
    def state(self) -> TagState:
        if self.stored is None:
            return TagState.ABSENT
        if "@" in self.name or tag_of(self.name).startswith(KEPT_TAG):
            return TagState.PINNED
        if not self.stored.digests:
            return TagState.LOCAL
        if isinstance(self.remote, SparkError):
            return TagState.GONE if isinstance(self.remote, ImageNotFound) else TagState.FAILED
        if self.remote is None:
            return TagState.UNKNOWN
        here = {each.partition("@")[2] for each in self.stored.digests}
        return TagState.CURRENT if self.remote in here else TagState.MOVED

    @property
    def presets(self) -> tuple[str, ...]:
        """Presets that name it, pinned or not."""
        return tuple(use.name for use in self.uses if use.kind in (ImageUser.PRESET, ImageUser.PIN))


class ImagesView(Struct, frozen=True):
    """Images of engines, the used ones first. `layers` are the bytes of all local layers, each counted once; `others`
    and `other_bytes` what is not of engines. `starts_unknown` is why no last good start is known, empty where they are.
    """

    entries: tuple[ImageEntry, ...] = ()
    layers: int | None = None
    others: int = 0
    other_bytes: int = 0
    starts_unknown: str = ""

    @property
    def unused(self) -> tuple[StoredImage, ...]:
        """Images of engines that nothing uses, by none of their names."""
        used = {each.stored.id for each in self.entries if each.stored is not None and each.uses}
        found = {each.stored.id: each.stored for each in self.entries if each.stored is not None}
        return tuple(image for id_, image in found.items() if id_ not in used)

    @property
    def reclaimable(self) -> int | None:
        """The least that deleting all unused ones frees: what each has alone, and no less than what remains when every
        other image is counted whole. None: not measured."""
        unused = self.unused
        alone = [image.unique for image in unused]
        if self.layers is None or None in alone:
            return None if unused else 0
        ids = {image.id for image in unused}
        kept = {each.stored.id: each.stored.size for each in self.entries if each.stored and each.stored.id not in ids}
        rest = self.layers - sum(kept.values()) - self.other_bytes
        return min(self.layers, max(sum(filter(None, alone)), rest)) if unused else 0

    def names_of(self, image: StoredImage) -> tuple[str, ...]:
        return tuple(each.name for each in self.entries if each.stored is not None and each.stored.id == image.id)


IMAGES: Final = Slice[Reading[ImagesView]](NOT_READ_YET)


class ImageDeletion(Struct, frozen=True):
    """What deleting an image by one of its names would do. `frees` is the least in bytes, None where Docker did not
    measure; `others` are names that keep it on disk."""

    entry: ImageEntry
    frees: int | None
    others: tuple[str, ...] = ()
    obstacles: tuple[Finding, ...] = ()

    def check(self) -> None:
        """Raises RefusedError while something keeps it."""
        if self.obstacles:
            reasons = "; ".join(each.summary for each in self.obstacles)
            raise RefusedError(f"{self.entry.name} is not deleted: {reasons}.", self.obstacles[0].remedy)


def names(image: StoredImage) -> tuple[str, ...]:
    """Its tags, else one name by digest, else its id."""
    return image.tags or image.digests[:1] or (image.id,)


def last_good(starts: Iterable[StartRecord], presets: Iterable[str]) -> dict[str, StartRecord]:
    """The latest start of each of these presets that served well, by the preset's name."""
    wanted, found = set(presets), dict[str, StartRecord]()
    for start in sorted(starts, key=lambda start: start.at):
        if start.good and start.image_id and start.preset in wanted:
            found[start.preset] = start
    return found


def uses_of(
    image: StoredImage | None,
    name: str,
    containers: Iterable[ContainerFacts],
    presets: Iterable[Preset],
    good: dict[str, StartRecord],
) -> tuple[ImageUse, ...]:
    """Who uses an image by one of its names. Containers, pins and last good starts hold the image itself, by whatever
    name; presets with a tag mean that name."""
    digests = {each.partition("@")[2] for each in image.digests} if image is not None else set()
    id_ = image.id if image is not None else ""
    uses = [
        ImageUse(ImageUser.ENGINE if each.running else ImageUser.ENDED_ENGINE, each.name)
        for each in containers
        if id_ and each.image_id == id_
    ]
    for preset in presets:
        wanted = familiar(preset.reference)
        digest = wanted.partition("@")[2]
        if digest and (digest in digests or wanted == name):
            uses.append(ImageUse(ImageUser.PIN, preset.name))
        elif wanted == name:
            uses.append(ImageUse(ImageUser.PRESET, preset.name))
    if tag_of(name).startswith(KEPT_TAG):
        uses.append(ImageUse(ImageUser.KEPT, tag_of(name).removeprefix(KEPT_TAG)))
    uses += [ImageUse(ImageUser.LAST_START, preset) for preset, start in good.items() if id_ and start.image_id == id_]
    order = list(ImageUser)
    return tuple(sorted(uses, key=lambda use: (order.index(use.kind), use.name)))


def of_engines(image: StoredImage, containers: Sequence[ContainerFacts], repositories: Iterable[str]) -> bool:
    """Whether it is an image of engines: by its names, or by a container of an engine that is made of it."""
    here = {repository(each) for each in (*image.tags, *image.digests)}
    return (
        bool(here & set(repositories))
        or any(recognised(each, ()) for each in here)
        or any(each.image_id == image.id and runtime_of(each) for each in containers)
    )
