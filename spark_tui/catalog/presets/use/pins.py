"""Good starts of presets, and pins: an image held at the digest that served well."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.engine.image import digest_of, repository, tag_of
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.ports import ContainerEngine
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.preset import (
    PRESETS,
    Node,
    Origin,
    Preset,
    is_digest,
    pinned_reference,
    with_image,
)
from spark_tui.catalog.presets.use.imports import RecipeStore
from spark_tui.catalog.presets.use.rights import PresetSource, require_reviewed
from spark_tui.observe.explain.model.starts import StartRecord, digest_for
from spark_tui.observe.metrics.use.history import History

LEAST_DIGITS: Final = 6
"""Of a digest that is given in short."""


class ImageMatch(StrEnum):
    """How the image that a launch would use now compares with that of the last good start."""

    SAME = "same"
    DIFFERS = "differs"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class LastGood(Struct, frozen=True):
    """The last good start of a preset, and the image of a launch now; `why` it is unknown or there is none."""

    start: StartRecord | None
    match: ImageMatch = ImageMatch.UNKNOWN
    why: str = ""


class PinPlan(Struct, frozen=True):
    """A change of a preset's image in its file. `before` is the text that it was made of; `copy`: the preset is not the
    person's own, and a copy becomes it. `start` is the good start that the digest is of, where one is."""

    preset: Preset
    reference: str
    before: str
    after: str
    start: StartRecord | None = None

    @property
    def copy(self) -> bool:
        return self.preset.origin is not Origin.USER

    @property
    def diff(self) -> tuple[str, ...]:
        """The lines that change, with one around them, as `diff -u` has them but for its head."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=1)
        return tuple(clean_line(line) for line in lines)[3:]


class Pins(Struct, eq=False):
    """Plans pins and writes them. `reviewed` raises for a registry's preset that the person has not approved."""

    _history: History
    _presets: PresetSource
    _recipes: RecipeStore | None
    _docker: ContainerEngine
    _store: Store
    _reviewed: Callable[[Preset], None]

    @classmethod
    def from_context(cls, context: Context) -> Pins:
        return cls(
            context[History],
            context[PresetSource],
            context.find(RecipeStore),
            context.docker,
            context.store,
            partial(require_reviewed, context),
        )

    # --- good starts ----------------------------------------------------------------------------------

    def good_starts(self, preset: str) -> tuple[StartRecord, ...]:
        """The newest first; the history must be loaded."""
        return self._history.good_starts(preset)

    def last_good(self, preset: Preset, image: Reading[ImageFacts | None]) -> LastGood:
        """The newest good start; `image` is that of a launch now, None where it is not downloaded."""
        start = next(iter(self.good_starts(preset.name)), None)
        if start is None:
            reason = self._history.state.reason
            none = "none yet" if self._history.loaded else "not read yet"
            return LastGood(None, why=f"unknown, the history is off: {reason}" if reason else none)
        if isinstance(image, Missing):
            return LastGood(start, why=image.reason)
        now = image.value
        pinned = digest_of(preset.reference)
        if now is None and not (pinned and pinned == digest_of(start.image_digest)):
            return LastGood(start, ImageMatch.ABSENT)
        same = now is None or now.id == start.image_id
        return LastGood(start, ImageMatch.SAME if same else ImageMatch.DIFFERS)

    async def image(self, preset: Preset) -> Reading[ImageFacts | None]:
        """What `last_good` compares with, asked of Docker where there is a good start."""
        if not self.good_starts(preset.name):
            return Missing("nothing to compare with")
        try:
            return Ok(await self._docker.image(preset.reference), 0.0)
        except SparkError as error:
            return Missing(error.summary)

    # --- pin ------------------------------------------------------------------------------------------

    async def plan(self, preset: Preset, digest: str = "") -> PinPlan:
        """Pins the image of the last good start, or that of `digest` (whole, or the first digits of a good start's).

        Raises RefusedError where no start served well, its image has no digest, or the preset has it already;
        UsageError for a digest that is none.
        """
        starts = self.good_starts(preset.name)
        if digest:
            start, digest = await self._chosen(starts, digest)
        elif starts:
            start = starts[0]
            digest = await self._digest(start)
        else:
            reason = self._history.state.reason
            raise RefusedError(
                f"No good start of {preset.name} is known{f': the history is off, {reason}' if reason else ''}.",
                by_front_end(
                    "Launch it once, or pin a digest with the command line: presets pin --digest.",
                    f"Launch it (spark-tui up {preset.name}), or name one: --digest sha256:...",
                ),
            )
        reference = pinned_reference(start.image if start is not None else preset.image, digest)
        if digest_of(preset.reference) == digest and repository(preset.reference) == repository(reference):
            raise RefusedError(
                f"{preset.name} is already pinned to {digest[:19]}.",
                by_front_end(
                    f"To follow the tag again, press {key_of('pin_preset')} again.",
                    f"Another one: --digest sha256:... To follow the tag: spark-tui presets unpin {preset.name}",
                ),
            )
        self._reviewed(preset)
        return self._changed(preset, reference, start)

    async def _chosen(self, starts: Sequence[StartRecord], digest: str) -> tuple[StartRecord | None, str]:
        """The good start of a digest, and the digest in full."""
        given = digest_of(digest) or digest
        short = given.removeprefix("sha256:").lower()
        for start in starts if len(short) >= LEAST_DIGITS else ():
            known = digest_of(start.image_digest)
            if known.removeprefix("sha256:").startswith(short):
                return start, known
        if not is_digest(given):
            raise UsageError(
                f"{truncate(clean_line(digest), 80)} is no digest of a good start.",
                "Give sha256: and 64 digits, or the first digits of one that spark-tui history --good lists.",
            )
        return None, given

    async def _digest(self, start: StartRecord) -> str:
        """Of a start that was recorded without one, as Docker has it now."""
        found = start.image_digest
        if not found:
            image = await self._docker.image(start.image_id) if start.image_id else None
            found = digest_for(start.image, image.digests) if image is not None else ""
        if not found:
            tag = f"{repository(start.image)}:good"
            raise RefusedError(
                f"The image of the last good start has no registry digest: {clean_line(start.image)} "
                "was built or loaded on this machine.",
                f"Keep it by a tag of its own: docker tag {start.image_id[:19]} {tag}, "
                f"and write container: {tag} into the preset.",
            )
        return digest_of(found)

    def unpin_plan(self, preset: Preset) -> PinPlan:
        """Back to the tag. Raises RefusedError for a preset that is not pinned, or has no tag to go back to."""
        tag = tag_of(preset.image)
        if "@" not in preset.reference:
            raise RefusedError(f"{preset.name} is not pinned.", f"Pin it: spark-tui presets pin {preset.name}")
        if "@" not in preset.image or not tag or preset.facts.image_digest or preset.origin is not Origin.USER:
            where = "image_digest" if preset.facts.image_digest else "container"
            raise RefusedError(
                f"{preset.name} has no tag to go back to: its recipe names the digest alone.",
                f"Change {where} in {preset.file}.",
            )
        return self._changed(preset, f"{repository(preset.image)}:{tag}", None)

    def _changed(self, preset: Preset, reference: str, start: StartRecord | None) -> PinPlan:
        recipes = self._writable()

        def read(text: str) -> Node | None:
            [file] = recipes.given(text, "the changed recipe").files
            return file.document

        found = recipes.recipe(preset.file)
        after = with_image(found.text, found.document, reference, read)
        if after is None:
            raise RefusedError(
                f"The image in {preset.file} is not on a line of its own.",
                f"Write it by hand, at the top level: container: {reference}",
            )
        return PinPlan(preset, reference, found.text, after, start)

    def _writable(self) -> RecipeStore:
        if self._recipes is None:
            raise RefusedError("No preset folder to write to.", "Start without --demo.")
        return self._recipes

    def apply(self, plan: PinPlan) -> Preset:
        """Writes the file: the person's own, or a copy of another preset that takes its place. Raises RefusedError when
        the file has changed meanwhile."""
        recipes, name = self._writable(), plan.preset.name
        own = recipes.own_text(name)
        if own != (None if plan.copy else plan.before):
            raise RefusedError(f"The file of {name} has changed meanwhile.", "Look at it, and pin again.")
        file = recipes.write(name, plan.after, replace=not plan.copy)
        catalogue = self._presets.load()
        self._store.put(PRESETS, catalogue)
        found = catalogue.get(name)
        if found is None or found.reference != plan.reference:
            raise RefusedError(f"{file} was written, and another recipe is used.", "Check: spark-tui presets list")
        return found
