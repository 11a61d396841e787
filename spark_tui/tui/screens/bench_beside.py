"""Runs beside others on the Bench screen: this box's earlier ones, what others published, and two side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from spark_tui.core.key_words import key_of
from spark_tui.domain.bench.compare import Comparison, Difference, Verdict, compare
from spark_tui.domain.bench.compare import Row as LevelPair
from spark_tui.domain.bench.conditions import quantization_words
from spark_tui.domain.bench.export import rate
from spark_tui.domain.bench.references import Beside, Reference, family
from spark_tui.domain.bench.result import Result
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.quantities import human_count
from spark_tui.tui import format as fmt
from spark_tui.tui.screens.bench_words import ago, short_model
from spark_tui.tui.widgets.bench_curve import Curves
from spark_tui.tui.widgets.figures import Head
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told

MOST_EARLIER: Final = 6
MOST_PUBLISHED: Final = 8
MOST_DIFFERENCES: Final = 12
INDENT: Final = 2
VERDICTS: Final = {Verdict.FASTER: "$success", Verdict.SLOWER: "$error"}
TOLD: Final = {Verdict.NOT_SHOWN: "none shown", Verdict.UNKNOWN: "too few passes"}
"""These verdicts in fewer words: a line has little room."""
FEW_DIFFERENCES: Final = 2
"""So many stand with A and B themselves, for then they are what tells them apart."""
PAIR_HEADS: Final = (
    Head("tok/s at", right=False), Head("A"), Head("B"), Head("B/A"), Head("95 %", 2),
    Head("difference", 1, right=False),
)  # fmt: skip


def how_to_compare() -> str:
    """What is to be done for two runs to stand here."""
    mark = key_of("mark_run")
    return (
        f"{mark} marks a run as A, {mark} on another one as B: here they stand side by side. In the form that "
        f"{key_of('start_bench')} opens, a second engine is measured in turn with the first, which cancels what drifts."
    )


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier run of the same model beside this one."""

    result: Result
    found: Comparison


def earlier_runs(run: BenchRun, results: Sequence[Result]) -> list[Earlier]:
    """This box's earlier runs of the same model, the newest first, comparable or not."""
    before = [
        result
        for result in results
        if result.run is not None and result.run.at <= run.at and result.run.id not in (run.id, run.pair)
        and result.run.conditions.model == run.conditions.model
    ]  # fmt: skip
    return [Earlier(result, compare(result.run, run)) for result in before[:40] if result.run is not None]


# --- earlier and published ------------------------------------------------------------------------------


def history_parts(run: BenchRun, results: Sequence[Result], now: float) -> list[Part]:
    """This box before: like with like; then what was not compared, and why."""
    found = earlier_runs(run, results)
    like, unlike = (
        [each for each in found if each.found.comparable],
        [each for each in found if not each.found.comparable],
    )
    parts: list[Part] = [_heading("This box before")]
    if not like:
        parts.append(sentence("No earlier run of this model with this load.", "$dim"))
    for each in like[:MOST_EARLIER]:
        parts += _earlier(each, now)
    if len(like) > MOST_EARLIER:
        parts.append(sentence(f"and {len(like) - MOST_EARLIER} more before.", "$dim"))
    if unlike:
        parts += [BLANK, _heading("Not compared: another load")]
        parts += [_unlike(each, now) for each in unlike[:MOST_EARLIER]]
    others = len({result.model for result in results if result.run is not None} - {run.conditions.model})
    if others:
        what = "one other model" if others == 1 else f"{others} other models"
        parts += [BLANK, sentence(f"Runs of {what} are not compared here; m puts any two side by side.", "$dim")]
    return parts


def _earlier(each: Earlier, now: float) -> list[Part]:
    """When, then a line per level in few words, and what else is not the same."""
    head = Content.assemble((ago(now - each.result.at), "bold"), (f"  {each.result.id}", "$dim"))
    parts: list[Part] = [(Content(""), head)]
    parts += [(Content("  "), _pair_words(pair)) for pair in each.found.rows]
    parts.append((Content("  "), _different(each.found.differences)))
    return parts


def _pair_words(pair: LevelPair) -> Content:
    """`8 streams  150 -> 156 tok/s  x1.04 (1.01 to 1.07)  faster`."""
    ratio = "-" if pair.ratio is None else f"x{pair.ratio:.2f}"
    spread = "" if pair.interval is None else f" ({pair.interval.low:.2f} to {pair.interval.high:.2f})"
    return Content.assemble(
        (f"{level_words(pair):<13}", "$dim"),
        f"{rate(pair.first.output_rate):>6} -> {rate(pair.second.output_rate):>6} tok/s  ",
        (f"{ratio}", "bold"), (f"{spread}  ", "$dim"), _verdict(pair.verdict),
    )  # fmt: skip


def _verdict(verdict: Verdict) -> tuple[str, str]:
    return TOLD.get(verdict, verdict.value), VERDICTS.get(verdict, "$dim")


def level_words(pair: LevelPair) -> str:
    """`8 streams`, `prompt 16,384`."""
    if pair.depth:
        return f"prompt {human_count(pair.input_tokens)}"
    return f"{pair.streams} stream{'s' if pair.streams > 1 else ''}"


def _different(differences: Sequence[Difference]) -> Content:
    if not differences:
        return Content.styled("nothing else differs that is known", "$dim")
    shown = "; ".join(difference_words(each) for each in differences[:MOST_DIFFERENCES])
    more = len(differences) - MOST_DIFFERENCES
    return told(f"differs: {shown}{f'; and {more} more' if more > 0 else ''}", "$dim")


def difference_words(difference: Difference) -> str:
    """`version: 0.32.0 -> 0.33.0`."""
    return f"{difference.what}: {difference.first or 'not set'} -> {difference.second or 'not set'}"


def _unlike(each: Earlier, now: float) -> Part:
    why = "; ".join(difference_words(obstacle) for obstacle in each.found.obstacles)
    return Content("  "), told(f"{ago(now - each.result.at)}  {each.result.id}  {why}", "$dim")


def published_parts(run: BenchRun, found: Sequence[Beside], references: Sequence[Reference]) -> list[Part]:
    """What others published: ours over theirs, the source, what is not alike; then what is not compared, and why."""
    parts: list[Part] = [BLANK, _heading("Published by others")]
    if not found:
        parts.append(sentence(why_nothing_published(run, references), "$dim"))
    for each in found[:MOST_PUBLISHED]:
        parts += _published(each)
    if found:
        parts += [
            BLANK,
            sentence("Boxes of one kind differ by 15 % from day to day, even with all else alike.", "$dim"),
        ]
    left_out = _left_out(run, found, references)
    if left_out and not run.conditions.simulated:
        parts += [BLANK, _heading("Published, not compared")]
        parts += [(Content("  "), told(text, "$dim")) for text in left_out[:MOST_PUBLISHED]]
    return parts


def _published(each: Beside) -> list[Part]:
    reference = each.reference
    streams = f"{reference.streams} stream{'s' if reference.streams > 1 else ''}"
    head = Content.assemble(
        (f"{streams:<11}", "$dim"), f"{rate(each.ours):>6} here, {rate(each.theirs):>6} there  ",
        (f"x{each.ratio:.2f}", "bold" if each.within_scatter else "bold $warning"),
        ("  within the scatter" if each.within_scatter else "  beyond the scatter", "$dim"),
    )  # fmt: skip
    source = f"{each.source.title}, {reference.date} ({each.source.licence})"
    parts: list[Part] = [(Content(""), head), (Content("  "), told(source, "$dim"))]
    if each.differs:
        parts.append((Content("  "), told(f"differs: {'; '.join(each.differs)}", "$dim")))
    return parts


def why_nothing_published(run: BenchRun, references: Sequence[Reference]) -> str:
    """Why no published figure stands beside this run."""
    found = run.conditions
    if found.simulated:
        return "This run is simulated: it is compared with nothing real."
    if not found.is_spark:
        return "Published figures are of DGX Sparks, and this box is none."
    if run.plan.prompt_cache.value != "cold":
        return "This run repeated its prompts, published ones did not."
    if not any(family(each.model) == family(found.model) for each in references):
        return "Nobody's figures for this model are known here."
    return "None of the published figures is of the same format, runtime and number of streams."


def _left_out(run: BenchRun, found: Sequence[Beside], references: Sequence[Reference]) -> list[str]:
    """Figures of the same model that are not like this run, each with the reason."""
    used = {id(each.reference) for each in found}
    mine, texts = family(run.conditions.model), []
    for each in references:
        if family(each.model) == mine and id(each) not in used and each.decode_rate is not None:
            where = f"{rate(each.decode_rate)} tok/s, {each.streams} stream{'s' if each.streams > 1 else ''}"
            texts.append(f"{where}, {each.source} {each.date}: {_why_not(run, each)}")
    return list(dict.fromkeys(texts))


def _why_not(run: BenchRun, reference: Reference) -> str:
    found = run.conditions
    if reference.boxes != 1:
        return f"of {reference.boxes} boxes"
    if reference.box != "DGX Spark":
        return f"of a {reference.box}"
    bits = quantization_words(found.model, found.quantization)
    if reference.quantization.upper() != bits:
        return f"{reference.quantization}, not {bits or 'a known format'}"
    if reference.runtime != found.runtime:
        return f"{reference.runtime}, not {found.runtime or 'a known runtime'}"
    return "another number of streams than was measured"


# --- two side by side -----------------------------------------------------------------------------------


def pair_rows(found: Comparison) -> list[tuple[Content, ...]]:
    """A row per level that both have, as PAIR_HEADS."""
    return [_pair_row(pair) for pair in found.rows]


def _pair_row(pair: LevelPair) -> tuple[Content, ...]:
    spread = pair.interval
    return (
        Content(level_words(pair)),
        Content(rate(pair.first.output_rate)),
        Content(rate(pair.second.output_rate)),
        Content.styled("-" if pair.ratio is None else f"{pair.ratio:.3f}", "bold"),
        Content.styled("-" if spread is None else f"{spread.low:.3f}-{spread.high:.3f}", "$dim"),
        Content.styled(*_verdict(pair.verdict)),
    )


def pair_head(found: Comparison, now: float) -> list[Part]:
    """Who A and B are, and whether they can be compared at all."""
    parts: list[Part] = [
        (Content(f"{mark} "), _who(run, now)) for mark, run in (("A", found.first), ("B", found.second))
    ]
    if found.comparable:
        few = found.differences if len(found.differences) <= FEW_DIFFERENCES else ()
        return [*parts, *((Content("  "), told(difference_words(each), "bold")) for each in few)]
    parts += [BLANK, sentence("Not compared: with another load the numbers measure different things.", "$warning")]
    return [*parts, *((Content("  "), told(difference_words(each))) for each in found.obstacles)]


def _who(run: BenchRun, now: float) -> Content:
    words = f"  {ago(now - run.at)}  {run.id}  {short_model(run.conditions.model)}"
    return Content.assemble(fmt.safe(run.conditions.engine, "bold"), fmt.safe(words, "$dim"))


def pair_foot(found: Comparison) -> list[Part]:
    """How they were measured, and every other difference: each may be the cause."""
    paired = "Measured in turn, pass by pass: what drifts on the box cancels."
    apart = "Not measured in turn: what changed on the box in between is in the ratio."
    parts: list[Part] = [BLANK, sentence(paired if found.paired else apart, "$dim" if found.paired else "$warning")]
    if any(row.verdict is Verdict.NOT_SHOWN for row in found.rows):
        text = "None shown: a difference, if there is one, is within what these passes scatter; more passes tell more."
        parts.append(sentence(text, "$dim"))
    if found.comparable and 0 < len(found.differences) <= FEW_DIFFERENCES:
        return parts
    if not found.differences:
        return [*parts, sentence("Nothing else differs that is known.", "$dim")]
    parts += [BLANK, _heading("What differs, A -> B")]
    return [*parts, *((Content("  "), told(difference_words(each))) for each in found.differences)]


def pair_curves(found: Comparison) -> Curves:
    """Both sweeps as a picture; nothing where they are not comparable."""
    if not found.comparable:
        return Curves()
    first, second = found.first, found.second
    return Curves("A", tuple(sorted(first.throughput.items())), "B", tuple(sorted(second.throughput.items())))


def _heading(text: str) -> Part:
    return Content(""), Content.styled(text, "bold")
