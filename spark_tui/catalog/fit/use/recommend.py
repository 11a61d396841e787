"""Candidates for a purpose, and which are recommended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.engine.runtimes import Reference, family, published_facts, quantization_words
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.quantities import gib, short_tokens
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.presets.model.command import ToolCalls
from spark_tui.catalog.presets.model.preset import Preset, Tag
from spark_tui.catalog.presets.model.rules.image import needs_gpu

if TYPE_CHECKING:
    from spark_tui.observe.results.model.proof import Badge


class Disk(StrEnum):
    """Whether the model is in the store."""

    YES = "yes"
    PARTIAL = "partial"
    CORRUPT = "corrupt"
    NO = "no"
    UNKNOWN = "?"


_CAN_FIT: Final = (FitWord.FITS, FitWord.FITS_WITH)

NO_TOOLS: Final = ToolCalls()


class Candidate(Struct, frozen=True):
    """A preset with what is known of a launch here. `judged` None: not worked out yet; an error: it cannot be launched.

    `own_speed` was measured here with one stream, tokens per second. `served`: an earlier start came to serve.
    `running`: an engine of this preset runs. `drift`: it is a copy, and its registry has another recipe now.
    `proof`: what was proved when it last ran, None: never.
    """

    preset: Preset
    judged: LaunchVerdict | SparkError | None = None
    tools: ToolCalls = NO_TOOLS
    disk: Disk = Disk.UNKNOWN
    running: bool = False
    served: bool = False
    own_speed: float | None = None
    drift: Finding | None = None
    proof: Badge | None = None

    @property
    def verdict(self) -> LaunchVerdict | None:
        return self.judged if isinstance(self.judged, LaunchVerdict) else None

    @property
    def checked(self) -> tuple[Finding, ...] | SparkError | None:
        """What the rules find, or why it cannot be planned."""
        return self.judged.findings if isinstance(self.judged, LaunchVerdict) else self.judged

    @property
    def worst(self) -> Severity | None:
        """The worst of what the rules find, errors and warnings; ERROR where it cannot be launched."""
        if isinstance(self.judged, SparkError):
            return Severity.ERROR
        found = {each.severity for each in self.judged.findings} if self.judged is not None else set()
        return next((each for each in (Severity.ERROR, Severity.WARNING) if each in found), None)

    @property
    def fits(self) -> bool:
        """It can be launched now, maybe with the change that its verdict names."""
        found = self.verdict is not None and self.verdict.word in _CAN_FIT and self.worst is not Severity.ERROR
        return found and not self.lacks_gpu

    @property
    def lacks_gpu(self) -> bool:
        """The machine has none, and the preset needs one."""
        return self.verdict is not None and any(each.id == needs_gpu.__name__ for each in self.verdict.findings)

    @property
    def context(self) -> int | None:
        """Tokens of context of this launch; before it is judged, what the recipe says."""
        if self.verdict is not None and self.verdict.fit.context:
            return self.verdict.fit.context
        own = self.preset.default("max_model_len")
        return own if isinstance(own, int) else self.preset.facts.context_tokens

    @property
    def need(self) -> int | None:
        """Bytes that the launch needs for its users, four at most; None where a part of it is unknown."""
        fit = self.verdict.fit if self.verdict is not None else None
        if fit is None or fit.utilization_needed is None or fit.total is None:
            return fit.need if fit is not None else None
        return int(fit.utilization_needed * fit.total)

    @property
    def published_speed(self) -> float | None:
        """The highest published one, tokens per second."""
        return max((each.tokens_per_second for each in self.preset.facts.published), default=None)

    @property
    def speed(self) -> float | None:
        return self.published_speed if self.own_speed is None else self.own_speed


def on_cpu(preset: Preset) -> bool:
    return preset.facts.category == "cpu" or preset.cpu_only


# --- recommend -------------------------------------------------------------------------------------------


class Use(StrEnum):
    """What a model is wanted for."""

    CHAT = "chat"
    AGENT = "agent"
    BATCH = "batch"
    VISION = "vision"


class SpeedSource(StrEnum):
    """Where a speed is from."""

    MEASURED = "measured here"
    PUBLISHED = "published"
    ESTIMATED = "estimated"


class Purpose(Struct, frozen=True):
    """What presets are judged for: tokens of context, and users at once."""

    use: Use
    context: int | None = None
    users: int | None = None


def purpose_of(use: Use, context: int | None = None, users: int | None = None) -> Purpose:
    """With what the use asks for where nothing is given."""
    wants = _WANTS[use]
    return Purpose(use, context or wants.context, users or wants.users)


class _Wants(Struct, frozen=True):
    """`rate`: tokens per second of one stream beyond which more speed is not felt. `favoured` tags count in favour."""

    rate: float
    context: int | None = None
    users: int | None = None
    favoured: tuple[Tag, ...] = ()


_WANTS: Final[Mapping[Use, _Wants]] = {
    # People read five to ten tokens a second; models that think write many that are not read, as agents do.
    Use.CHAT: _Wants(40.0, 16_384, 1, (Tag.CHAT,)),
    # The system prompts of coding agents alone take 14k to 25k tokens.
    Use.AGENT: _Wants(40.0, 65_536, 2, (Tag.AGENT, Tag.CODING)),
    Use.BATCH: _Wants(math.inf, 8_192, 16),
    Use.VISION: _Wants(40.0, 16_384, 1, (Tag.VISION,)),
}
_SMALLEST: Final = 4e9
"""Parameters that are counted for a model whose size is not stated."""
_PROVED: Final[Mapping[Severity, float]] = {Severity.OK: 1.25, Severity.ERROR: 0.7}
"""By what `prove` found of the preset as it is now; stale and partial proofs count neither way."""
MANY_USERS: Final = 8
"""From this number on, the throughput of many streams counts. The first with one stream may be the last with many."""
_LEAST_GAIN: Final = 2.5
"""How much more many streams give together than one, where nothing is published: of what is, the least is 2.6 (ten
streams of Mistral-Small-4), the most 13 (sixteen of Nemotron-3-Nano)."""
RULE: Final = (
    "Ranked by size (of a mixture the geometric mean of its total and its active parameters) times speed, as far as "
    "the use needs it, times what else stands under why."
)


class Speed(Struct, frozen=True):
    """Tokens per second of all `streams` together: `rate`, its basis and its source."""

    rate: float
    basis: SpeedSource
    source: str
    streams: int = 1

    @property
    def text(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.rate:.0f} tok/s {self.basis.value}{source}"


class Pick(Struct, frozen=True):
    """A preset that serves the purpose; `score` only compares picks of one list, `why` is what it is made of."""

    candidate: Candidate
    score: float
    speed: Speed
    why: str = ""


class LeftOut(Struct, frozen=True):
    candidate: Candidate
    reason: str


def recommend(candidates: Iterable[Candidate], purpose: Purpose) -> tuple[tuple[Pick, ...], tuple[LeftOut, ...]]:
    """The presets that serve a purpose, best first, and the others with the reason. The candidates were judged with the
    purpose's context and users."""
    picks: list[Pick] = []
    others: list[LeftOut] = []
    for each in candidates:
        reason = _against(each, purpose)
        speed = speed_of(each, purpose.users or 1)
        if reason or speed is None:
            others.append(LeftOut(each, reason or "no speed: none is published, and its size per token is not known"))
        else:
            picks.append(Pick(each, *_score(each, speed, purpose.use)))
    picks.sort(key=lambda pick: (-pick.score, pick.candidate.preset.name))
    return tuple(picks), tuple(sorted(others, key=lambda other: other.candidate.preset.name))


def score(each: Candidate) -> float | None:
    """That for chat, by the launch that the candidate was judged by; None where it does not serve."""
    purpose, speed = Purpose(Use.CHAT), speed_of(each)
    return None if speed is None or _against(each, purpose) else _score(each, speed, Use.CHAT)[0]


def speed_of(each: Candidate, users: int = 1) -> Speed | None:
    """For many users what is published of many streams of the same model, format and server, else the least that they
    gain; for a few one stream's."""
    one = _of_one(each)
    if users < MANY_USERS:
        return one
    many = _of_many(each.preset, users)
    if many is not None:
        said = (published_facts().source[many.source].title, f"{many.streams or 'many'} streams", many.conditions)
        return Speed(many.decode_rate, SpeedSource.PUBLISHED, ", ".join(filter(None, said)), many.streams or users)
    if one is None:
        return None
    return Speed(one.rate * _LEAST_GAIN, SpeedSource.ESTIMATED, f"{_LEAST_GAIN:g} times one stream: {one.text}", users)


def _of_many(preset: Preset, users: int) -> Reference | None:
    """The throughput published for one Spark nearest to that number of streams, of those as near the lowest."""
    about = family(preset.model), quantization_words(preset.model, preset.facts.quantization), preset.engine
    found = (
        each
        for each in published_facts().figure
        if not each.machine and each.machines == 1 and each.streams != 1 and not (each.dispute or each.drafting)
        if (family(each.model), each.quantization.upper(), each.runtime) == about
    )
    return min(found, key=lambda each: (abs(math.log((each.streams or 1) / users)), each.decode_rate), default=None)


def _of_one(each: Candidate) -> Speed | None:
    """This machine's own measurement, else the lowest published one, because drafts that are accepted in code may not
    be in prose, else what the memory's bandwidth allows."""
    if each.own_speed is not None:
        return Speed(each.own_speed, SpeedSource.MEASURED, "")
    least = min(each.preset.facts.published, key=lambda one: one.tokens_per_second, default=None)
    if least is not None:
        return Speed(least.tokens_per_second, SpeedSource.PUBLISHED, least.source)
    decode = each.verdict.fit.decode if each.verdict is not None else None
    if decode is None:
        return None
    low, high = decode.span()
    bound = "at most: " if decode.bound else ""
    return Speed(low or high / 2, SpeedSource.ESTIMATED, f"{bound}{gib(decode.reads)} GiB read per token")


def _against(each: Candidate, purpose: Purpose) -> str:
    """Why a preset does not serve the purpose; empty if it does."""
    facts, wanted = each.preset.facts, purpose.context
    if each.preset.min_nodes > 1:
        return f"needs {each.preset.min_nodes} Sparks"
    if on_cpu(each.preset):
        return "runs on the CPU"
    if purpose.use is Use.VISION and Tag.VISION not in facts.tags:
        return "does not see images"
    if purpose.use is Use.AGENT and not (each.tools.on or each.tools.settable):
        return "no tool calls"
    if isinstance(each.judged, SparkError):
        return each.judged.summary.rstrip(".")
    if each.verdict is None:
        return "not checked"
    if each.lacks_gpu:
        return "this machine has no NVIDIA GPU"
    if wanted and each.context is not None and each.context < wanted:
        return f"{short_tokens(each.context)} tokens of context, {short_tokens(wanted)} wanted"
    error = next((finding for finding in each.verdict.findings if finding.severity is Severity.ERROR), None)
    if error is not None and error.id not in {finding.id for finding in each.verdict.fit.findings}:
        return error.summary.rstrip(".")
    if each.verdict.word is FitWord.DOES_NOT_FIT:
        return next(iter(each.verdict.fit.reasons), "does not fit").rstrip(".")
    if each.verdict.word is FitWord.UNKNOWN:
        return "its memory need is not known"
    return ""


def _score(each: Candidate, speed: Speed, use: Use) -> tuple[float, Speed, str]:
    """By `RULE`, with the speed and what it is made of."""
    wants, facts, size = _WANTS[use], each.preset.facts, _parameters(each)
    each_rate = speed.rate / speed.streams
    pace = speed.rate / 10 if math.isinf(wants.rate) else min(1.0, each_rate / wants.rate) ** 2
    proved = _PROVED.get(each.proof.severity, 1.0) if each.proof is not None else 1.0
    factors = (
        ("fits when another stops", 0.3, each.verdict is not None and each.verdict.word is FitWord.FITS_WHEN_STOPPED),
        ("image to be built first", 0.05, must_be_built(each)),
        ("licence unknown", 0.85, licence_unknown(each)),
        ("crowded", 0.8, crowded(each)),
        ("warning", 0.85, each.worst is Severity.WARNING),
        ("served here", 1.15, each.served or each.running),
        ("proof", proved, proved != 1.0),
        (f"made for {use.value}", 1.25, bool(set(wants.favoured) & set(facts.tags))),
    )
    counted = [(name, factor) for name, factor, counts in factors if counts]
    wanted = f"{each_rate:.0f} tok/s of {wants.rate:g} wanted"
    reached = f"{speed.rate:.0f} tok/s in all" if math.isinf(wants.rate) else wanted
    why = ", ".join((f"size {size / 1e9:.1f} B", reached, *(f"{name} x{factor:g}" for name, factor in counted)))
    return math.sqrt(size) * pace * math.prod(factor for _, factor in counted), speed, why


def _parameters(each: Candidate) -> float:
    total, active = each.preset.facts.total_parameters, each.preset.facts.active_parameters
    return math.sqrt(total * (active or total)) if total else _SMALLEST


def crowded(each: Candidate) -> bool:
    """It fits, and its KV cache has no room for all users at full context."""
    available = each.verdict.fit.available if each.verdict is not None else None
    return each.need is not None and available is not None and each.need > available


def must_be_built(each: Candidate) -> bool:
    """Its image is not here, and its name is none of a registry's: it is built on the machine."""
    return "/" not in each.preset.image and each.verdict is not None and each.verdict.plan.image is None


def licence_unknown(each: Candidate) -> bool:
    licence = each.preset.facts.licence
    return not licence or licence.startswith("unknown")
