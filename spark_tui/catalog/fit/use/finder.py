"""Presets as candidates: what is known of launching each one here; found by words, use and limits, in any order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ImageFacts, local_model_path
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding, Severity, value_of
from spark_tui.base.store import World
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.use.fit import LaunchChecks, Stored
from spark_tui.catalog.fit.use.recommend import Candidate, Disk, on_cpu, score
from spark_tui.catalog.models.model.store import Completeness
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.command import ToolCalls, settable, tool_calls_of
from spark_tui.catalog.presets.model.library import LibraryView, stored_commit
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS, Preset, Tag
from spark_tui.catalog.presets.use.rights import drifts
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.proof import Badge, Proof, Verdict, badge, changed, moved
from spark_tui.observe.results.model.run import Result
from spark_tui.observe.results.use import Results

_DISK: Final = {
    Completeness.COMPLETE: Disk.YES,
    Completeness.UNREFERENCED: Disk.YES,
    Completeness.PARTIAL: Disk.PARTIAL,
    Completeness.CORRUPT: Disk.CORRUPT,
    Completeness.UNKNOWN: Disk.UNKNOWN,
}
_FIT_ORDER: Final = (
    FitWord.FITS,
    FitWord.FITS_WITH,
    FitWord.FITS_WHEN_STOPPED,
    FitWord.UNKNOWN,
    FitWord.DOES_NOT_FIT,
)
# --- search -----------------------------------------------------------------------------------------------


class Search(Struct, frozen=True):
    """What a person looks for. `context` and `users` are of the launch to judge; None: as each recipe has it."""

    words: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    tools: bool = False
    vision: bool = False
    on_disk: bool = False
    fits: bool = False
    most_bytes: int | None = None
    context: int | None = None
    users: int | None = None
    sort: str = "preset"
    reverse: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether any preset may be left out."""
        return any((self.words, self.tags, self.tools, self.vision, self.on_disk, self.fits, self.most_bytes))

    def names(self, preset: Preset) -> bool:
        """Whether what the recipe says of itself leaves it in: the rest of the search needs a verdict."""
        facts = preset.facts
        return (
            matches(preset, self.words)
            and all(tag in facts.tags for tag in self.tags)
            and (not self.vision or Tag.VISION in facts.tags or "image" in facts.modalities)
        )

    def finds(self, each: Candidate) -> bool:
        """What needs a verdict leaves out none that is not judged yet."""
        return (
            self.names(each.preset)
            and (not self.tools or each.tools.on)
            and (not self.on_disk or each.disk is Disk.YES)
            and (each.judged is None or not self.fits or each.fits)
            and (
                each.judged is None
                or self.most_bytes is None
                or (each.need is not None and each.need <= self.most_bytes)
            )
        )

    def of(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Those that are found, in order; what has no value in the column comes last either way."""
        found = sorted(filter(self.finds, candidates), key=lambda each: order(each.preset))
        if self.sort == "preset":
            return tuple(reversed(found) if self.reverse else found)
        value = SORTS[self.sort]
        known = [each for each in found if value(each) is not None]
        known.sort(key=value, reverse=self.reverse)  # type: ignore[arg-type]
        return (*known, *(each for each in found if value(each) is None))

    def overrides(self, preset: Preset) -> Overrides:
        """The launch to judge. A context beyond what the model has is cut to it."""
        longest = preset.facts.context_tokens
        context = min(self.context, longest) if self.context and longest else self.context
        return Overrides(
            max_model_len=context if context is not None and settable(preset, "max_model_len") else None,
            max_num_seqs=self.users if self.users is not None and settable(preset, "max_num_seqs") else None,
        )


def matches(preset: Preset, words: Iterable[str]) -> bool:
    """Whether every word of the filter (in lower case) occurs in a name, or begins a word of what the recipe says."""
    facts = preset.facts
    names = (
        preset.name,
        facts.title,
        facts.family,
        facts.quantization,
        facts.publisher,
        preset.model,
        preset.runtime,
        preset.image,
        facts.category,
        preset.origin.value,
    )
    name = " ".join(names).lower()
    tags = (tag.replace("-", " ") for tag in facts.tags)
    prose = " ".join((facts.description, *facts.tags, *tags, *facts.modalities, *facts.notes)).lower()
    return all(word in name or re.search(rf"(?<![\w-]){re.escape(word)}", prose) for word in words)


def order(preset: Preset) -> tuple[bool, bool, str, str]:
    """By family; what needs several nodes, and then what needs no GPU, comes last."""
    return (on_cpu(preset), preset.min_nodes > 1, preset.facts.family.lower() or "~", preset.name)


def _down(number: float | None) -> float | None:
    """More comes first."""
    return None if number is None else -number


def _proof_order(proof: Badge) -> tuple[int, int]:
    """What was proved whole, what in part, what is stale, then by failures."""
    order = (Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.ERROR)
    return order.index(proof.severity), len(proof.proof.ids(Verdict.FAIL))


SORTS: Final[Mapping[str, Callable[[Candidate], object | None]]] = {
    "preset": lambda each: each.preset.name,
    "tok_s": lambda each: _down(each.speed),
    "needs": lambda each: each.need,
    "fits": lambda each: _FIT_ORDER.index(each.verdict.word) if each.verdict is not None else None,
    "ctx": lambda each: _down(each.context),
    "disk": lambda each: list(Disk).index(each.disk),
    "tools": lambda each: (not each.tools.on, not each.tools.settable),
    "quant": lambda each: each.preset.facts.quantization.lower() or None,
    "for": lambda each: [list(Tag).index(tag) for tag in each.preset.facts.tags] or None,
    "proved": lambda each: _proof_order(each.proof) if each.proof is not None else None,
    "best": lambda each: _down(score(each)),
}
"""Columns by which presets are sorted, the best first."""


# --- gather -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _tools(preset: Preset) -> ToolCalls:
    return tool_calls_of(preset)


class PresetFinder(Struct):
    """What is known of each preset. Verdicts, speeds and drifts are kept until `forget`."""

    checks: LaunchChecks
    results: Callable[[], Sequence[Result]]
    starts: Callable[[], Sequence[StartRecord]]
    drifts: Callable[[Iterable[Preset]], Mapping[str, Finding]] = lambda _: {}
    _verdicts: dict[tuple[Preset, Overrides], LaunchVerdict | SparkError] = field(default_factory=dict)
    _speeds: Mapping[str, float] | None = None
    _drifts: tuple[tuple[Preset, ...], Mapping[str, Finding]] | None = None

    _image_ids: dict[str, str] = field(default_factory=dict)
    """Of downloaded images, by their references."""

    @classmethod
    def from_context(cls, context: Context) -> PresetFinder:
        return cls(
            context[LaunchChecks],
            context[Results].all if context.ports.has("results") else tuple,
            lambda: context[History].starts,
            partial(drifts, context),
        )

    def forget(self) -> None:
        self._verdicts.clear()
        self._speeds = self._drifts = None

    async def judge(
        self, preset: Preset, search: Search, image: ImageFacts | None = None, stored: Stored | None = None
    ) -> LaunchVerdict | SparkError:
        """The verdict on the launch that the search is about, as it was worked out before or now."""
        key = preset, search.overrides(preset)
        if image is not None:
            self._image_ids[preset.reference] = image.id
        if key not in self._verdicts:
            try:
                plan = self.checks.preflight.dry_plan(*key, image)
                self._verdicts[key] = (await self.checks.planned(plan, stored)).judge()
            except SparkError as error:
                self._verdicts[key] = error
        return self._verdicts[key]

    async def judged(self, world: World, search: Search) -> tuple[Candidate, ...]:
        """Those that are found, each that may be judged first; without Docker images are taken as not downloaded."""
        named = tuple(preset for preset in world[PRESETS].presets if search.names(preset))
        stored = await self.checks.stored(named)
        for preset in named:
            await self.judge(preset, search, stored=stored)
            _tools(preset)  # by the command that was just read
        return search.of(self.candidates(world.having({PRESETS: replace(world[PRESETS], presets=named)}), search))

    def candidates(self, world: World, search: Search) -> tuple[Candidate, ...]:
        """Every preset, with the verdicts that there are."""
        library = value_of(world[LIBRARY])
        running = {view.container.preset for view in value_of(world[ENGINES]) or () if view.container.running}
        served = {each.preset for each in self.starts() if each.ready}
        if self._speeds is None:
            try:
                self._speeds = _own_speeds(self.results())
            except SparkError:  # Bench says why; published speeds are shown
                self._speeds = {}
        speeds = self._speeds
        if self._drifts is None or self._drifts[0] is not world[PRESETS].presets:
            self._drifts = world[PRESETS].presets, self.drifts(world[PRESETS].presets)
        drifts = self._drifts[1]
        return tuple(
            Candidate(
                preset,
                self._verdicts.get((preset, search.overrides(preset))),
                _tools(preset),
                _disk(preset, library),
                preset.name in running,
                preset.name in served,
                speeds.get(preset.name),
                drifts.get(preset.name),
                preset_badge(
                    world[PROOFS],
                    preset,
                    commit=stored_commit(world[LIBRARY], preset.model),
                    image_id=self._image_ids.get(preset.reference, ""),
                )
                if world[PROOFS]
                else None,
            )
            for preset in world[PRESETS].presets
        )


def _disk(preset: Preset, library: LibraryView | None) -> Disk:
    if library is None or preset.engine == "ollama" or preset.mounted_model:
        return Disk.UNKNOWN  # Ollama keeps models in its own way; other folders are not listed
    inside = local_model_path(preset.model) or ""
    folder = inside.partition("/")[0]
    found = library.contents.find(preset.model) or (library.contents.find(folder) if folder else None)
    if found is None:
        return Disk.UNKNOWN if inside.endswith(".gguf") else Disk.NO  # single files are not listed
    return _DISK[found.completeness]


def _own_speeds(results: Sequence[Result]) -> dict[str, float]:
    """The newest measurement of each preset with one stream; `results` are newest first."""
    found: dict[str, float] = {}
    for run in (each.run for each in results if each.run is not None):
        single = next((level for level in run.sweep if level.streams == 1), None)
        if single is not None and single.decode_rate is not None:
            found.setdefault(run.conditions.preset, single.decode_rate.p50)
    return found


def preset_badge(proofs: Sequence[Proof], preset: Preset, *, commit: str = "", image_id: str = "") -> Badge | None:
    """Of what was last proved when it ran from this preset; None when none was. `commit` and `image_id` are what a
    launch would use now, where known."""
    found = next((proof for proof in proofs if proof.conditions.preset == preset.name), None)
    if found is None:
        return None
    then = found.conditions
    pinned = preset.reference.partition("@")[2]
    same = then.image_digest.partition("@")[2] == pinned if pinned else then.image == preset.image
    pulled = bool(image_id and then.image_id) and image_id != then.image_id
    if (preset.image and then.image and not same) or pulled:
        return changed(found, "image")
    revision = preset.model_revision
    if (revision and revision != then.revision) or moved(found, commit):
        return changed(found, "revision")
    return badge(found)
