"""A page of metrics as engines publish it, its families and its quantiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import floor, inf, isfinite
from typing import Final, NamedTuple

from msgspec import Struct, field

from spark_tui.base.engine.runtimes import RUNTIMES


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile (0 to 100) of a sorted sample that is not empty, between its neighbours."""
    rank = (len(ordered) - 1) * percent / 100
    below = floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


class Quantile(Struct, frozen=True):
    """An estimate, and the bucket that it lies in: the true value is above `low` and at most `high`.

    `high` is infinite in the last bucket; `value` is then its lower bound, the least that it can be.
    """

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far off the estimate can be; infinite in the last bucket."""
        return max(self.value - self.low, self.high - self.value)


class Latency(Struct, frozen=True):
    """A distribution over some requests or tokens: estimates in seconds, the exact mean, and how many there were."""

    p50: Quantile
    p95: Quantile
    p99: Quantile
    count: int
    mean: float | None = None


class Histogram(Struct, frozen=True):
    """`counts[i]` observations were at most `bounds[i]`; bounds rise and end with infinity."""

    bounds: Sequence[float]
    counts: Sequence[float]
    sum: float | None = None

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def quantile(self, share: float) -> Quantile | None:
        """The value that `share` (0 to 1) of the observations are at most; None when there was none.

        Observations count as spread evenly over their bucket, as Prometheus's histogram_quantile has it. All
        observations here are durations or sizes: the first bucket begins at 0. The sum of all bounds the largest one,
        and is the only one where there is one.
        """
        if not self.count > 0:
            return None
        if self.count == 1 and self.sum is not None:
            return Quantile(self.sum, self.sum, self.sum)
        most = self._largest()
        rank = share * self.count
        below, low = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                high = max(low, min(bound, most))
                if bound == inf:
                    return Quantile(low, low, high)
                value = low + (bound - low) * max(0.0, rank - below) / (count - below)
                return Quantile(min(value, high), low, high)
            below, low = count, bound
        return None

    def _largest(self) -> float:
        """The most that the largest observation can be: the sum, less what the others are at least."""
        if self.sum is None:
            return inf
        below, low, least, last = 0.0, 0.0, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count > below:
                least, last = least + (count - below) * low, low
            below, low = count, bound
        return self.sum - least + last

    def latency(self) -> Latency | None:
        """p50, p95, p99 and the mean; None when there was no observation."""
        found = self.quantile(0.5), self.quantile(0.95), self.quantile(0.99)
        if found[0] is None or found[1] is None or found[2] is None:
            return None
        mean = None if self.sum is None else self.sum / self.count
        return Latency(found[0], found[1], found[2], round(self.count), mean)


def histogram(counts: Mapping[float, float], total: float | None = None, sum_: float | None = None) -> Histogram | None:
    """From counts by upper bound. `total` counts where the last bucket is missing; None without any bucket.

    A page may be read while it is written: counts that fall from one bound to the next are lifted.
    """
    if inf not in counts and total is not None:
        counts = {**counts, inf: total}
    if not counts:
        return None
    bounds = sorted(counts)
    rising, most = [], 0.0
    for bound in bounds:
        most = max(most, counts[bound])
        rising.append(most)
    return Histogram(tuple(bounds), tuple(rising), sum_)


# --- metrics page ----------------------------------------------------------------------------------------


class Family(StrEnum):
    """What a series counts or measures, whatever its server calls it."""

    STARTED = "process start, seconds since the epoch"
    PROMPT = "prompt tokens"
    PROMPT_COMPUTED = "computed prompt tokens"
    PROMPT_CACHED = "cached prompt tokens"
    GENERATED = "generated tokens"
    GENERATED_AT_END = "generated tokens, counted when a request ends"
    GENERATED_LIVE = "generated tokens, counted by the scheduler"
    STEPS = "forward passes"
    DECODE_SPEED = "tokens per second, by the server"
    RUNNING = "running requests"
    WAITING = "waiting requests"
    WAITING_BY_REASON = "waiting requests, by reason"
    TTFT = "time to first token"
    ITL = "inter-token latency"
    TPOT = "time per output token"
    E2E = "end-to-end latency"
    QUEUE = "queue time"
    KV_USAGE = "KV cache usage"
    KV_TOKENS = "KV cache capacity in tokens"
    KV_TOKENS_AT_MOST = "KV cache capacity by blocks"
    KV_BLOCKS = "KV cache blocks"
    KV_BLOCK_TOKENS = "tokens per KV cache block"
    PREFIX_QUERIES = "prefix cache queries"
    PREFIX_HITS = "prefix cache hits"
    PREFIX_MISSES = "prefix cache misses"
    PREFIX_SHARE = "prefix hit rate, by the server"
    PREEMPTIONS = "preemptions"
    DRAFTS = "drafts"
    DRAFT_TOKENS = "drafted tokens"
    ACCEPTED = "accepted tokens"
    ACCEPTED_BY_POSITION = "accepted tokens by position"
    ACCEPTED_LENGTH = "accepted length, by the server"
    ACCEPTED_SHARE = "acceptance rate, by the server"
    FINISHED = "finished requests, by reason"


class SeriesPart(StrEnum):
    """Which part of its family a series is: its one value, or a part of a histogram."""

    VALUE = "value"
    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"


GAUGES: Final = frozenset(
    (
        Family.STARTED, Family.DECODE_SPEED, Family.RUNNING, Family.WAITING, Family.WAITING_BY_REASON,
        Family.KV_USAGE, Family.KV_TOKENS, Family.KV_TOKENS_AT_MOST, Family.KV_BLOCKS, Family.KV_BLOCK_TOKENS,
        Family.ACCEPTED_LENGTH, Family.ACCEPTED_SHARE, Family.PREFIX_SHARE,
    )
)  # fmt: skip
"""What may fall. Everything else only grows while the server lives."""

SHARES: Final = frozenset(
    (
        Family.STARTED,
        Family.KV_USAGE,
        Family.KV_BLOCK_TOKENS,
        Family.ACCEPTED_LENGTH,
        Family.ACCEPTED_SHARE,
        Family.PREFIX_SHARE,
    )
)
"""Gauges of which two make no sum: of one engine the larger is taken."""


class Slot(NamedTuple):
    """The place of one series. `engine` is one of several engines of a server (data parallel), `"0"` where there is
    one. `label` is the reason or the position that the series is for; `bound` the upper bound of a bucket."""

    family: Family
    part: SeriesPart = SeriesPart.VALUE
    engine: str = "0"
    label: str = ""
    bound: float = 0.0


class Source(NamedTuple):
    """Where a series goes, and the value that it represents where that is not its own (`*_info` series)."""

    slot: Slot
    constant: float | None = None


class _SeriesRule(NamedTuple):
    """`key` is the label that is kept; `only` keeps a series whose key has that value."""

    family: Family
    part: SeriesPart = SeriesPart.VALUE
    key: str = ""
    only: str = ""


CACHE_CONFIG: Final = "vllm:cache_config_info"


def _wanted() -> Iterator[tuple[str, _SeriesRule]]:
    """What each engine's file says of its page."""
    yield "process_start_time_seconds", _SeriesRule(Family.STARTED)
    yield CACHE_CONFIG, _SeriesRule(Family.KV_TOKENS)
    for runtime in RUNTIMES:
        for name, family, *labels in runtime.series:
            yield runtime.series_prefix + name, _SeriesRule(Family[family.upper()], SeriesPart.VALUE, *labels)
        for name, family in runtime.histograms:
            for part in (SeriesPart.BUCKET, SeriesPart.SUM, SeriesPart.COUNT):
                yield f"{runtime.series_prefix}{name}_{part}", _SeriesRule(Family[family.upper()], part)


_WANTED: Final[dict[str, tuple[_SeriesRule, ...]]] = {}
for _name, _rule in _wanted():
    _WANTED[_name] = (*_WANTED.get(_name, ()), _rule)

WANTED_NAMES: Final = frozenset(_WANTED)
"""Names as they stand in the text, suffixes included: whatever begins with another name need not be parsed."""

_RANKS: Final = ("tp_rank", "pp_rank", "moe_ep_rank")


def source_of(name: str, labels: Mapping[str, str]) -> Source | None:
    """Where a series goes; None for one that is not wanted.

    Ranks of one engine (tensor, pipeline and expert parallel) see the same requests: only rank 0 counts.
    """
    if any(labels.get(rank, "0") not in ("", "0") for rank in _RANKS):
        return None
    engine = labels.get("engine") or labels.get("dp_rank") or "0"
    if name == CACHE_CONFIG:
        return _capacity(engine, labels)
    for wanted in _WANTED.get(name, ()):
        label = labels.get(wanted.key, "") if wanted.key else ""
        if wanted.only and label != wanted.only:
            continue
        if wanted.part is SeriesPart.BUCKET:
            bound = _number(labels.get("le", ""))
            return None if bound is None else Source(Slot(wanted.family, SeriesPart.BUCKET, engine, "", bound))
        return Source(Slot(wanted.family, wanted.part, engine, "" if wanted.only else label))
    return None


def _capacity(engine: str, labels: Mapping[str, str]) -> Source | None:
    """vLLM reports its KV cache in labels. `kv_cache_size_tokens` since 0.25; blocks times their size is too much for a
    hybrid model, whose blocks are not all for tokens."""
    tokens = _number(labels.get("kv_cache_size_tokens", ""))
    if tokens:
        return Source(Slot(Family.KV_TOKENS, engine=engine), tokens)
    size, blocks = _number(labels.get("block_size", "")), _number(labels.get("num_gpu_blocks", ""))
    return Source(Slot(Family.KV_TOKENS_AT_MOST, engine=engine), size * blocks) if size and blocks else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


class MetricPage(Struct, frozen=True):
    """Finite values from zero up, by family and slot. What a server publishes otherwise (NaN, negative) is absent."""

    groups: Mapping[Family, Mapping[Slot, float]] = field(default_factory=dict)

    def has(self, family: Family) -> bool:
        return family in self.groups

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of the server: `("0",)`, or one for each data-parallel rank."""
        found = {slot.engine for group in self.groups.values() for slot in group}
        return tuple(sorted(found, key=lambda engine: (len(engine), engine)))

    def of_engine(self, engine: str) -> MetricPage:
        parts = {
            family: {slot: value for slot, value in group.items() if slot.engine == engine}
            for family, group in self.groups.items()
        }
        return MetricPage({family: part for family, part in parts.items() if part})

    def values(self, family: Family) -> list[float]:
        """The values of its series, in no order; none for a family that is not published."""
        return [value for slot, value in self.groups.get(family, {}).items() if slot.part is SeriesPart.VALUE]

    def total(self, family: Family) -> float | None:
        """The sum over engines and labels; None for a family that is not published."""
        values = self.values(family)
        return sum(values) if values else None

    def by_label(self, family: Family) -> dict[str, float]:
        """Sums over engines, by reason or position; empty for a family that is not published."""
        sums: dict[str, float] = {}
        for slot, value in self.groups.get(family, {}).items():
            sums[slot.label] = sums.get(slot.label, 0.0) + value
        return sums

    def counters(self) -> Iterator[tuple[Slot, float]]:
        """What only grows while the server lives. A histogram's sum is left out: it is a float and may wobble."""
        for family, group in self.groups.items():
            if family not in GAUGES:
                yield from ((slot, value) for slot, value in group.items() if slot.part is not SeriesPart.SUM)


EMPTY_PAGE = MetricPage()


def page_of(samples: Iterable[tuple[Slot, float]]) -> MetricPage:
    """A page from its series. Two of one slot (several models, several API servers) are added up; of shares, which
    make no sum, the larger is taken."""
    groups: dict[Family, dict[Slot, float]] = {}
    for slot, value in samples:
        if not 0.0 <= value < inf:  # NaN is not, either
            continue
        group = groups.setdefault(slot.family, {})
        before = group.get(slot)
        if before is None:
            group[slot] = value
        elif slot.family in SHARES:
            group[slot] = max(before, value)
        elif isfinite(before + value):
            group[slot] = before + value
    return MetricPage(groups)


SAME_START_SECONDS = 1.0
"""A process that has begun more than so much later is another one."""


class Snapshot(Struct, frozen=True):
    """A page read `at` monotonic seconds, and what the GPU had drawn until then: `joules`, known for `powered` seconds
    of the time. Both only grow."""

    at: float
    page: MetricPage
    joules: float = 0.0
    powered: float = 0.0

    def of_engine(self, engine: str) -> Snapshot:
        """The part of one engine. Power is one figure for all, so it has none."""
        return Snapshot(self.at, self.page.of_engine(engine))


def restarted(before: MetricPage, after: MetricPage) -> bool:
    """The server was started again between the two: its process is another one, or a counter has fallen."""
    then, now = before.total(Family.STARTED), after.total(Family.STARTED)
    if then is not None and now is not None and now - then > SAME_START_SECONDS:
        return True
    old = dict(before.counters())
    return any(value < old.get(slot, 0.0) for slot, value in after.counters())


class Change(Struct, frozen=True):
    """From one snapshot of a start to a later one of the same; `before` None is the start itself, when all was zero.

    `seconds` is the time between the two; None when it is not known.
    """

    before: Snapshot | None
    after: Snapshot
    seconds: float | None

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Change:
        """Both snapshots are of one start."""
        return cls(before, after, after.at - before.at)

    @property
    def page(self) -> MetricPage:
        return self.after.page

    @property
    def _old(self) -> MetricPage:
        return self.before.page if self.before else EMPTY_PAGE

    def of_engine(self, engine: str) -> Change:
        before = self.before.of_engine(engine) if self.before else None
        return Change(before, self.after.of_engine(engine), self.seconds)

    def grown(self, family: Family) -> float | None:
        """By how much a counter has grown; None for one that is not published."""
        now = self.page.total(family)
        return None if now is None else max(0.0, now - (self._old.total(family) or 0.0))

    def grown_by_label(self, family: Family) -> dict[str, float]:
        """The same for each reason or position."""
        old = self._old.by_label(family)
        return {label: max(0.0, now - old.get(label, 0.0)) for label, now in self.page.by_label(family).items()}

    def rate(self, family: Family) -> float | None:
        """Growth per second; None where it is not published, or over no time."""
        grown = self.grown(family)
        return grown / self.seconds if grown is not None and self.seconds and self.seconds > 0 else None

    @property
    def moved(self) -> bool | None:
        """Whether any counter has grown; None over no time, or for a page without counters."""
        if self.before is None or not self.seconds:
            return None
        old, now = dict(self.before.page.counters()), dict(self.page.counters())
        return any(value > old.get(slot, 0.0) for slot, value in now.items()) if now else None

    def histogram(self, family: Family) -> Histogram | None:
        """What was observed between the two, over all engines; None where it is not published."""
        group = self.page.groups.get(family)
        if group is None:
            return None
        old = self._old.groups.get(family, {})
        parts: dict[SeriesPart, float] = {}
        buckets: dict[float, float] = {}
        having: dict[float, int] = {}
        for slot, value in group.items():
            grown = max(0.0, value - old.get(slot, 0.0))
            if slot.part is SeriesPart.BUCKET:
                buckets[slot.bound] = buckets.get(slot.bound, 0.0) + grown
                having[slot.bound] = having.get(slot.bound, 0) + 1
            else:
                parts[slot.part] = parts.get(slot.part, 0.0) + grown
        # Engines have the same bounds; a bound that not all have is left out.
        most = max(having.values(), default=0)
        buckets = {bound: grown for bound, grown in buckets.items() if having[bound] == most or bound == inf}
        sums = parts.get(SeriesPart.SUM)
        return histogram(buckets, parts.get(SeriesPart.COUNT), sums if sums is not None and isfinite(sums) else None)

    @property
    def joules(self) -> float | None:
        """Energy that the GPU drew; None where its power was not known for most of the time."""
        if self.before is None or not self.seconds:
            return None
        known = self.after.powered - self.before.powered
        return (self.after.joules - self.before.joules) / known * self.seconds if known >= 0.8 * self.seconds else None
