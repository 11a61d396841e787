"""Bench: how fast an engine is, alone and under load; earlier runs, other people's figures, two side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.bench import BenchProgress
from spark_tui.domain.bench.compare import Comparison, Difference, Verdict, compare
from spark_tui.domain.bench.compare import Row as LevelPair
from spark_tui.domain.bench.conditions import Conditions, quantization_words
from spark_tui.domain.bench.export import csv_text, load_words, markdown, rate, result_to_json
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.bench.published import Beside, Reference, family
from spark_tui.domain.bench.run import BenchRun, Ending, Result
from spark_tui.domain.bench.server_side import Check
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.quantities import gib, human_count, human_duration
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screens import bench_words as words
from spark_tui.tui.screens.bench_form import BenchForm, BenchOrder
from spark_tui.tui.screens.bench_words import NOT_KNOWN, STYLES, ago, headline, question, short_model, status_word
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.widgets.bench_curve import BenchCurve, Curves
from spark_tui.tui.widgets.line import Figures, Head, Line, entitle
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told
from spark_tui.tui.widgets.row_list import Row, RowList

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
        f"Mark A and B with {mark} to compare. A/B ({key_of('start_bench')}) alternates both engines to cancel drift."
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
    """Earlier runs here: like with like; then what was not compared, and why."""
    found = earlier_runs(run, results)
    like, unlike = (
        [each for each in found if each.found.comparable],
        [each for each in found if not each.found.comparable],
    )
    parts: list[Part] = [_heading("Earlier runs here")]
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
            sentence("Identical machines differ by 15 % from day to day.", "$dim"),
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
        return "Published figures are for DGX Sparks; this machine is not one."
    if run.plan.prompt_cache.value != "cold":
        return "This run repeated its prompts, published ones did not."
    if not any(family(each.model) == family(found.model) for each in references):
        return "No published results for this model."
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
        return f"of {reference.boxes} machines"
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
    paired = "Alternated pass by pass: drift of the machine cancels out."
    apart = "Not alternated: changes of the machine in between affect the ratio."
    parts: list[Part] = [BLANK, sentence(paired if found.paired else apart, "$dim" if found.paired else "$warning")]
    if any(row.verdict is Verdict.NOT_SHOWN for row in found.rows):
        text = "No significant difference. More passes may show one."
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


LABEL_WIDTH = 14


# --- the run --------------------------------------------------------------------------------------------


def head_parts(result: Result, now: float) -> list[Part]:
    """How it ended and what it says, in two or three lines."""
    run, word = result.run, status_word(result)
    when = ago(now - result.at)
    if run is None:
        parts = [(Content(""), Content.assemble((word, STYLES[word]), (f"  {when}", "$dim")))]
        return [*parts, *([sentence(result.reason)] if result.reason else [])]
    lasted = f"{when}, in {human_duration(run.seconds)}"
    head = Content.assemble((word, f"bold {STYLES[word]}"), (f"  {lasted}", "$dim"))
    if run.conditions.simulated:
        head = Content.assemble(head, ("  simulated", "$warning"))
    parts = [(Content(""), head)]
    if reason := run.reason if run.ending is not Ending.COMPLETED else result.reason:
        parts.append(sentence(reason, STYLES[word]))
    if words := headline(run):
        parts.append(sentence(words, "bold"))
    return parts


def box_parts(run: BenchRun) -> list[Part]:
    """Errors and what has to be known first; then the load, memory, power and clock, and what the server says."""
    parts: list[Part] = [BLANK]
    for level in run.levels:
        where = f"prompt of {human_count(level.input_tokens)}" if level.depth else f"{level.streams} streams"
        parts += [(label("error"), told(f"{count} x {text} ({where})", "$error")) for text, count in level.errors]
    parts += [(label("note"), told(caveat, "$warning")) for caveat in run.caveats]
    parts.append((label("workload"), told(load_words(run))))
    if words := ", ".join(box_words(run)):
        parts.append((label("machine"), told(words)))
    judged = [check for check in run.checks if check.agrees is not None]
    return [*parts, *([(label("server says"), _agreement(judged))] if judged else [])]


def box_words(run: BenchRun) -> list[str]:
    """What the box did meanwhile, as far as it reports it."""
    box, words = run.box, []
    if box.used_bytes_most is not None:
        words.append(f"memory {gib(box.used_bytes_most)} GiB used at most")
    if box.usable_bytes_least is not None:
        words.append(f"{gib(box.usable_bytes_least)} GiB usable at least")
    if box.power_watts_mean is not None:
        most = "" if box.power_watts_most is None else f" (most {box.power_watts_most:.0f})"
        words.append(f"GPU {box.power_watts_mean:.0f} W{most}")
    if box.sm_clock_mhz_mean is not None:
        words.append(f"{box.sm_clock_mhz_mean:,.0f} MHz")
    if box.temperature_c_most is not None:
        words.append(f"{box.temperature_c_most} C")
    if box.joules_per_token is not None:
        words.append(f"{box.joules_per_token:.2f} J per token")
    return words


def _agreement(judged: Sequence[Check]) -> Content:
    agreeing = [check.what for check in judged if check.agrees]
    other = [check.what for check in judged if not check.agrees]
    words = [f"the same for {', '.join(agreeing)}"] if agreeing else []
    words += [f"something else for {', '.join(other)}"] if other else []
    return told("; ".join(words), "$warning" if other else "")


def label(text: str) -> Content:
    """What stands on the left of a value."""
    return Content.styled(f"{text:<{LABEL_WIDTH}}", "$dim")


def in_a_line(result: Result, now: float) -> str:
    """`qwen, 2h ago: single 41.3 tok/s, most 156 at 8 streams`: which one it is, before it is deleted."""
    said = headline(result.run) if result.run is not None else result.reason
    head = f"{result.engine or result.model}, {ago(now - result.at)}"
    return f"{head}: {said}" if said else f"{head}: {status_word(result)}"


# --- conditions -----------------------------------------------------------------------------------------


def condition_parts(run: BenchRun) -> list[Part]:
    """Everything that decides the numbers; what is not known says so."""
    found, plan = run.conditions, run.plan
    parts = [_heading("Load"), *_rows(_load(run))]
    parts += [BLANK, _heading("Model and engine"), *_rows(_engine(found))]
    flags = found.flags or ()
    parts += [(label("flags") if not at else label(""), told(flag)) for at, flag in enumerate(flags)]
    parts += [] if flags else [(label("flags"), told("none known", "$dim"))]
    parts += [(label("variables"), told(" ".join(found.environment)))] if found.environment else []
    parts += [BLANK, _heading("Cache"), *_rows(_cache(run, plan))]
    return [*parts, BLANK, _heading("Box"), *_rows(_box(run))]


def _rows(rows: Sequence[tuple[str, str]]) -> list[Part]:
    return [(label(name), told(value) if value else Content.styled(NOT_KNOWN, "$dim")) for name, value in rows]


def _load(run: BenchRun) -> list[tuple[str, str]]:
    plan = run.plan
    depths = ", ".join(human_count(depth) for depth in plan.depths)
    return [
        ("prompts", f"{human_count(plan.input_tokens)} tokens, {plan.content.value}, sent as {plan.form.value}"),
        ("answers", f"{human_count(plan.output_tokens)} tokens each, whatever the model would say (ignore_eos)"),
        ("streams", ", ".join(str(streams) for streams in plan.concurrency) or "none"),
        *([("prefill at", depths)] if depths else []),
        ("passes", f"{plan.passes}, {plan.rounds} requests per stream in each, {plan.warmup} warm-up"),
        ("sampling", "the server's own" if plan.temperature is None else f"temperature {plan.temperature:g}"),
        ("seed", str(plan.seed)),
    ]


def _engine(found: Conditions) -> list[tuple[str, str]]:
    image = found.image_digest or found.image_id
    rows = [
        ("model", found.model),
        ("revision", found.revision),
        ("quantization", quantization_words(found.model, found.quantization)),
        ("runtime", f"{found.runtime} {found.version}".strip()),
        ("image", found.image),
        ("digest", image),
        ("preset", found.preset or "none: launched otherwise"),
        ("context", _tokens(found.context_tokens)),
        ("sequences", "" if found.most_sequences is None else f"{found.most_sequences} at once"),
        ("KV cache", ", ".join(part for part in (_tokens(found.kv_tokens), found.kv_cache_dtype) if part)),
        ("speculation", found.speculation),
        ("attention", found.attention),
        ("FP4 linear", found.linear_kernel),
        ("FP4 MoE", found.moe_kernel),
        ("CUDA graphs", "" if found.eager is None else "off: the engine runs eager" if found.eager else "on"),
        ("had served", "" if found.engine_seconds is None else human_duration(found.engine_seconds)),
    ]  # fmt: skip
    only_if_known = ("speculation", "FP4 linear", "FP4 MoE", "CUDA graphs", "attention")
    return [row for row in rows if row[1] or row[0] not in only_if_known]


def _tokens(count: int | None) -> str:
    return "" if count is None else f"{human_count(count)} tokens"


def _cache(run: BenchRun, plan: BenchPlan) -> list[tuple[str, str]]:
    caching, share = run.conditions.prefix_caching, run.server.cache_hit_share if run.server is not None else None
    cached = sum(level.cached_tokens or 0 for level in run.levels)
    said = "" if share is None else f"{share:.1%} of the prompt tokens found there, by the server"
    told_of = f"{human_count(cached)} prompt tokens cached, by the answers' usage" if cached else ""
    meant = "each prompt new to the engine" if plan.prompt_cache.value == "cold" else "the same prompt again and again"
    return [
        ("prompts", f"{plan.prompt_cache.value}: {meant}"),
        ("prefix cache", "" if caching is None else "on" if caching else "off"),
        ("hits", "; ".join(part for part in (said, told_of) if part)),
    ]


def _box(run: BenchRun) -> list[tuple[str, str]]:
    found, box = run.conditions, run.box
    clock = "" if box.sm_clock_mhz_mean is None else f"{box.sm_clock_mhz_mean:,.0f} MHz in the mean"
    least = "" if box.sm_clock_mhz_least is None else f"{box.sm_clock_mhz_least:,} at least"
    late = run.lateness
    return [
        ("platform", " ".join(part for part in (found.platform, found.hostname) if part)),
        ("GPU", found.gpu),
        ("driver", found.driver),
        ("kernel", found.kernel),
        ("clock", ", ".join(part for part in (clock, least) if part)),
        ("meanwhile", ", ".join(box_words(run))),
        ("time taken to", "" if late is None else f"{late.p99 * 1000:.1f} ms (p99 of the clock's own lateness)"),
        ("measured by", f"spark-tui {found.tool_version}, Python {found.python}".removesuffix(", Python ")),
    ]


PAINT_SECONDS: Final = 1.0
"""A measurement reports several times a second; a person over SSH needs it once."""
AGE_SECONDS: Final = 30.0
"""How old the words on age may be."""
MAX_TITLE: Final = 80


class ProgressLine(Line):
    """How far the measurement is; away while none is under way."""

    def __init__(self, glyphs: Glyphs, *, simulated: bool) -> None:
        super().__init__(id="progress")
        self._glyphs = glyphs
        self._simulated = simulated
        self.progress: BenchProgress | None = None
        self.stopping = False
        self.display = False

    def say(self, width: int) -> Content:
        """A bar, and what is sent just now."""
        lines = words.progress_lines(
            self.progress, self._glyphs, width, stopping=self.stopping, simulated=self._simulated
        )
        return Content("\n").join(lines)


class BenchGround(FrameScreen):
    """Shows what was measured and what is being measured. What keys do is in bench.py."""

    def compose_body(self) -> ComposeResult:
        """Runs on the left, the pages of one on the right; one above the other when it is narrow."""
        glyphs = self.spark.glyphs
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Runs"
                yield Input(placeholder="filter: model, engine, format, status", id="filter", compact=True)
                yield RowList(words.COLUMNS, Content(""), titles=True, gap=1, id="run-list")
            with Container(id="run-pane", classes="pane"):
                yield ProgressLine(glyphs, simulated=self.context.demo)
                with TabbedContent(id="pages"):
                    with TabPane("Run", id="run-page"), VerticalScroll():
                        yield Page(LABEL_WIDTH, id="run-head")
                        yield Figures(id="sweep")
                        yield BenchCurve(glyphs, id="curve")
                        yield Figures(id="depths")
                        yield Page(LABEL_WIDTH, id="run-foot")
                    with TabPane("Conditions", id="conditions-page"), VerticalScroll():
                        yield Page(LABEL_WIDTH, id="conditions")
                    with TabPane("Compare", id="compare-page"), VerticalScroll():
                        yield Page(INDENT, id="compare")
                    with TabPane("A/B", id="pair-page"), VerticalScroll():
                        yield Page(INDENT, id="pair-head")
                        yield Figures(id="pair-levels")
                        yield BenchCurve(glyphs, id="pair-curve")
                        yield Page(INDENT, id="pair-foot")

    def on_mount(self) -> None:
        """Reads the ledger; engines come and go."""
        self._results: tuple[Result, ...] = ()
        self._marked: tuple[str, ...] = ()
        self._progress: BenchProgress | None = None
        self._measured: tuple[str, ...] = ()
        self._plan = BenchPlan()
        self._stop: asyncio.Event | None = None
        self._ended = asyncio.Event()
        self._problems: tuple[str, ...] = ()
        self._shown: object = None
        self._painted_at = float("-inf")
        self._paint_waits = False
        self.query_one("#filter").display = False
        self.bind_slice("engines", lambda _: self._engines_changed())

    def on_screen_resume(self) -> None:
        """Somebody looks: results of the command line are here too."""
        self.read_ledger()
        self._show()

    # --- what there is --------------------------------------------------------------------------------

    @property
    def runs_list(self) -> RowList:
        """The list on the left."""
        return self.query_one("#run-list", RowList)

    @property
    def result(self) -> Result | None:
        """The entry under the cursor; None on one that is being measured."""
        key = self.runs_list.key
        return next((result for result in self._results if result.id == key), None)

    @property
    def marked(self) -> tuple[Result, ...]:
        """The marked entries, A before B."""
        known = {result.id: result for result in self._results}
        return tuple(known[id_] for id_ in self._marked if id_ in known)

    @property
    def measuring(self) -> bool:
        """A measurement is under way."""
        return self._stop is not None

    @work(exit_on_error=False, exclusive=True, group="ledger")
    async def read_ledger(self, select: str = "") -> None:
        """Reads what was kept, in a thread: it is a file that grows. `select` puts the cursor on an entry."""
        try:
            kept = await self.context.in_thread(self.context.results.all)
            problems = self.context.results.problems()
        except SparkError as error:
            self.spark.report(error)
            return
        if problems and problems != self._problems:
            self.notify(f"{len(problems)} results cannot be read. {problems[0]}", severity="warning", markup=False)
        self._results, self._problems = kept, problems
        self._marked = tuple(id_ for id_ in self._marked if any(each.id == id_ for each in kept))
        self._show()
        if select:
            self.runs_list.select(select)

    # --- show -----------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Paints at most once a second: now, or when that second is over."""
        if self._paint_waits:
            return
        left = self._painted_at + PAINT_SECONDS - self.context.clock.monotonic()
        if left <= 0:
            self._show()
        else:
            self._paint_waits = True
            self._show_later(left)

    @work(exit_on_error=False, group="paint")
    async def _show_later(self, seconds: float) -> None:
        await self.context.clock.sleep(seconds)
        self._paint_waits = False
        if self.is_current:
            self._show()

    def _engines_changed(self) -> None:
        """Engines are named while there are no runs, and while one is measured; else only the runs grow older."""
        old = self.context.clock.monotonic() - self._painted_at > AGE_SECONDS
        if old or self.measuring or not self._results:
            self._show_list()

    def _show(self) -> None:
        """List, progress and pages. What has not changed is not repainted."""
        self._show_list()
        self._show_progress()
        self._show_pages()

    def _show_list(self) -> None:
        self._painted_at = self.context.clock.monotonic()
        wanted = self.query_one("#filter", Input).value.lower().split()
        now, results = self.context.clock.now(), self._results
        chosen = [result for result in results if words.matches(result, wanted)]
        rows = [*self._live_rows(), *(words.result_row(each, now, self._mark_of(each.id)) for each in chosen)]
        count = f"{len(chosen)} of {len(results)}" if wanted else str(len(results) or "")
        unread = f", {len(self._problems)} unreadable" if self._problems else ""
        entitle(self.query_one("#list-pane"), f"{count}{unread}", below=True)
        self.runs_list.show(rows, words.empty_text(self.engines(), filtered=bool(wanted and results)))

    def _live_rows(self) -> list[Row]:
        if not self.measuring:
            return []
        views = {view.name: view for view in self.engines()}
        return [words.live_row(name, views.get(name), self._progress, self.spark.glyphs) for name in self._measured]

    def _mark_of(self, id_: str) -> str:
        return "AB"[self._marked.index(id_)] if id_ in self._marked else ""

    def _show_progress(self) -> None:
        line = self.query_one(ProgressLine)
        line.progress, line.stopping = self._progress, self._stop is not None and self._stop.is_set()
        line.display = self.measuring
        line.renew()

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another run."""
        self._show_pages()

    def _show_pages(self) -> None:
        key, result = self.runs_list.key, self.result
        live = key.removeprefix(words.LIVE) if key.startswith(words.LIVE) else ""
        if live:
            self._show_live(live)
        elif result is None:
            self._show_run(None, BenchPlan(concurrency=()), words.Now(), [sentence(words.WHAT, "$dim")])
        else:
            plan = result.run.plan if result.run is not None else BenchPlan(concurrency=())
            self._show_run(result.run, plan, words.Now(), head_parts(result, self.context.clock.now()))
        self._show_beside(result)
        title = live or (result.engine or result.model if result is not None else "")
        entitle(self.query_one("#run-pane"), truncate(clean_line(title), MAX_TITLE))
        self._to_the_top(key)

    def _show_live(self, name: str) -> None:
        run = words.live_run(self._progress, name)
        head = words.headline(run) if run is not None else ""
        parts = [sentence(head, "bold")] if head else []
        self._show_run(run, self._plan, words.now_of(self._progress, name, self.spark.glyphs), parts)

    def _show_run(self, run: BenchRun | None, plan: BenchPlan, now: words.Now, head: list[Part]) -> None:
        self.query_one("#run-head", Page).tell(head)
        self.query_one("#sweep", Figures).tell(words.SWEEP_HEADS, words.sweep_rows(run, plan, now))
        self.query_one("#depths", Figures).tell(words.DEPTH_HEADS, words.depth_rows(run, plan, now))
        self.query_one("#curve", BenchCurve).draw(words.curves_of(run))
        self.query_one("#run-foot", Page).tell(box_parts(run) if run is not None else ())
        self.query_one("#conditions", Page).tell(
            condition_parts(run) if run is not None else [sentence("Known with the first figures.", "$dim")]
        )

    # --- beside others --------------------------------------------------------------------------------

    def _show_beside(self, result: Result | None) -> None:
        """Compares only when something else is to be compared: with many runs that takes a moment."""
        live = self._progress.runs if self._progress is not None and result is None else ()
        ground = (result, self._marked, len(self._results), live)
        if ground == self._shown:
            return
        self._shown = ground
        self._show_compare(result.run if result is not None else None)
        both = len(live) == 2 and all(run.levels for run in live)
        self._show_pair(compare(live[0], live[1]) if both else self._pair(result))

    def _show_compare(self, run: BenchRun | None) -> None:
        page = self.query_one("#compare", Page)
        if run is None:
            page.tell([sentence("Choose a run that was measured.", "$dim")])
            return
        from spark_tui.domain.bench.published import references

        history = history_parts(run, self._results, self.context.clock.now())
        published = published_parts(run, self.context.results.published(run), references())
        page.tell([*history, *published])

    def _pair(self, result: Result | None) -> Comparison | None:
        """The two marked runs; else the one under the cursor with the one that it was measured in turn with."""
        marked = [each.run for each in self.marked if each.run is not None]
        if len(marked) == 2:
            return compare(marked[0], marked[1])
        run = result.run if result is not None else None
        other = next((each.run for each in self._results if run is not None and each.id == run.pair), None)
        if run is None or other is None:
            return None
        known = [each.id for each in self._results]  # the newest first; of a pair the first engine comes first
        first, second = sorted((run, other), key=lambda each: known.index(each.id))
        return compare(first, second)

    def _show_pair(self, found: Comparison | None) -> None:
        head, foot = self.query_one("#pair-head", Page), self.query_one("#pair-foot", Page)
        if found is None:
            marked = self.marked
            told = f"A is {words.short_model(marked[0].model)}, {marked[0].id}. " if marked else ""
            head.tell([sentence(f"{told}{how_to_compare()}", "$dim")])
            foot.tell(())
        else:
            head.tell(pair_head(found, self.context.clock.now()))
            foot.tell(pair_foot(found))
        self.query_one("#pair-levels", Figures).tell(PAIR_HEADS, pair_rows(found) if found is not None else ())
        self.query_one("#pair-curve", BenchCurve).draw(pair_curves(found) if found is not None else Curves())

    # --- pages ----------------------------------------------------------------------------------------

    def _to_the_top(self, key: str) -> None:
        if key != getattr(self, "_top_of", None):
            self._top_of = key
            for scroll in self.query("#pages VerticalScroll"):
                scroll.scroll_home(animate=False)

    def turn(self, step: int) -> None:
        """The next page, or the one before."""
        tabs = self.query_one(TabbedContent)
        names = [str(pane.id) for pane in tabs.query(TabPane)]
        tabs.active = names[(names.index(tabs.active) + step) % len(names)]

    def tell(self, text: str) -> None:
        """A short notice."""
        self.notify(fmt.safe(text).plain, markup=False)


END_SECONDS: Final = 95.0
"""How long leaving the program waits at most for a measurement to keep what it has, and to put an engine back."""
NO_RUN: Final = "Choose a run first."


class BenchScreen(BenchGround):
    """What keys do."""

    SCOPE = Scope.BENCH
    TAB = "show_bench"
    CSS_PATH = "bench.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.BENCH)
    AUTO_FOCUS = "#run-list"

    # --- measure --------------------------------------------------------------------------------------

    def action_start_bench(self) -> None:
        """The form: what is measured, how long it takes, what speaks against it."""
        if self.measuring:
            self.tell(f"A measurement is under way; {key_of('cancel_bench')} ends it, and keeps what it has.")
        elif not words.serving(self.engines()):
            self.tell(words.no_engine(self.engines()))
        else:
            form = BenchForm(self.context, self.engines(), self.spark.selected, self._results)
            self.app.push_screen(form, self._ordered)

    def _ordered(self, order: BenchOrder | None) -> None:
        if order is None or self.measuring:
            return
        if order.sides is None:
            self._begin(order)
            return

        def decided(yes: bool | None) -> None:
            if yes and not self.measuring:
                self._begin(order)

        title, what = question(order.sides, order.plan)
        self.app.push_screen(ConfirmScreen(title, what, verb="Start"), decided)

    def _begin(self, order: BenchOrder) -> None:
        self._stop, self._ended = asyncio.Event(), asyncio.Event()
        self._progress, self._plan = None, order.plan
        other = order.sides[1].name if order.sides is not None else order.other
        self._measured = tuple(dict.fromkeys(name for name in (order.engine, other) if name))
        self.query_one(TabbedContent).active = "pair-page" if order.other else "run-page"
        self._show()
        self.runs_list.select(words.LIVE + order.engine)
        self._measure(order, self._stop)

    @work(exit_on_error=False, group="bench")
    async def _measure(self, order: BenchOrder, stop: asyncio.Event) -> None:
        runs: Sequence[BenchRun] = ()
        try:
            runs = await self._runs(order, stop)
        except SparkError as error:
            self.spark.report(error)
        finally:
            self._stop, self._progress = None, None
            self._ended.set()
        self._told_end(runs)
        kept = next((run.id for run in runs if run.levels), "")
        self.read_ledger(kept)

    async def _runs(self, order: BenchOrder, stop: asyncio.Event) -> Sequence[BenchRun]:
        if order.sides is not None:
            return await self.context.ab_runner.run(order.sides, order.plan, self._report, stop=stop)
        if not order.other:
            return (await self.context.benchmark.run(order.engine, order.plan, self._report, stop=stop),)
        return await self.context.benchmark.versus(order.engine, order.other, order.plan, self._report, stop=stop)

    def _report(self, progress: BenchProgress) -> None:
        self._progress = progress
        if self.is_current:
            self.changed()

    def _told_end(self, runs: Sequence[BenchRun]) -> None:
        """Wherever the person is now, they hear how it ended."""
        for run in runs:
            done, name = run.ending is Ending.COMPLETED, run.conditions.engine
            answered = words.headline(run) or f"{run.counts.complete} requests answered"
            figures = answered if run.counts.complete else "no request came to its end"
            text = f"{name}: {figures}" if done else f"{name}: {run.ending.value}, {run.reason}. Kept: {figures}"
            seconds = 4 if self.is_current else 10  # here the page tells it too, and a notice lies over it
            self.notify(text, severity="information" if done else "warning", timeout=seconds, markup=False)

    def action_cancel_bench(self) -> None:
        """Ends the measurement; what was measured is kept."""
        if self._stop is None:
            self.tell("No measurement is under way.")
        else:
            self._stop.set()
            self._show()

    async def on_unmount(self) -> None:
        """Leaving the program: the measurement ends, and keeps what it has."""
        if self._stop is not None:
            self._stop.set()
            await asyncio.wait((asyncio.ensure_future(self._ended.wait()),), timeout=END_SECONDS)

    # --- compare --------------------------------------------------------------------------------------

    def action_mark_run(self) -> None:
        """Marks A, then B, then anew; a marked one is unmarked."""
        result = self.result
        if result is None or result.run is None:
            self.tell("Only what was measured can be compared." if result is not None else NO_RUN)
            return
        if result.id in self._marked:
            self._marked = tuple(id_ for id_ in self._marked if id_ != result.id)
        else:
            self._marked = (*self._marked[-1:], result.id) if len(self._marked) > 1 else (*self._marked, result.id)
        self._show()
        if len(self._marked) == 2:
            self.query_one(TabbedContent).active = "pair-page"

    # --- give away ------------------------------------------------------------------------------------

    def _chosen(self) -> tuple[Result, ...]:
        """What `y` and `e` speak of: the two marked runs, else the one under the cursor."""
        marked, result = self.marked, self.result
        if len(marked) == 2:
            return marked
        return (result,) if result is not None else ()

    def action_copy_run(self) -> None:
        """The tables as Markdown, to the clipboard."""
        chosen = self._chosen()
        if not chosen:
            self.tell(NO_RUN)
            return
        self.app.copy_to_clipboard(markdown(chosen))
        what = "both marked runs" if len(chosen) == 2 else f"run {chosen[0].id}"
        self.tell(f"Copied {what} as Markdown.")

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_export_runs(self) -> None:
        """Asks which runs and where to, and writes the file."""
        from spark_tui.tui.screens.modals import ChoiceDialog, TextDialog

        chosen, results = self._chosen(), self._results
        if not results:
            self.tell("There is nothing to export yet.")
            return
        if chosen and len(results) > 1:
            first = "The two marked runs" if len(chosen) == 2 else f"This run, {chosen[0].id}"
            choices = (("chosen", first), ("all", f"All {len(results)} runs on this machine"))
            answer = await self.app.push_screen_wait(ChoiceDialog("Export", choices))
            if answer is None:
                return
            results = chosen if answer == "chosen" else results
        hint = "NAME.md is for reading, NAME.csv for a spreadsheet (a line per level), NAME.json has everything."
        path = await self.app.push_screen_wait(TextDialog("Export to a file", hint, placeholder="~/bench.md"))
        if path is None:
            return
        try:
            written = await self.context.user_files.write(path, exported(results, path))
        except SparkError as error:
            self.spark.report(error)
        else:
            self.notify(f"Written: {written}", timeout=10, markup=False)

    def action_delete_run(self) -> None:
        """Asks, and deletes the two marked runs, else the one under the cursor."""
        chosen = self._chosen()
        if not chosen:
            self.tell(NO_RUN)
            return
        question = "Delete both marked runs?" if len(chosen) == 2 else f"Delete run {chosen[0].id}?"
        what = "; and ".join(in_a_line(result, self.context.clock.now()) for result in chosen)

        def decided(yes: bool | None) -> None:
            if yes:
                self._delete(chosen)

        screen = ConfirmScreen(question, f"{what}. The figures are gone for good.", verb="Delete")
        self.app.push_screen(screen, decided)

    @work(exit_on_error=False, group="delete")
    async def _delete(self, chosen: Sequence[Result]) -> None:
        try:
            count = await self.context.in_thread(self.context.results.delete, chosen)
        except SparkError as error:
            self.spark.report(error)
            return
        self.tell(f"Deleted: {count} run{'s' if count != 1 else ''}.")
        self.read_ledger()

    # --- find and read --------------------------------------------------------------------------------

    def action_open_run(self) -> None:
        """Into the page, to scroll; on an empty list the form."""
        if self.runs_list.key:
            tabs = self.query_one(TabbedContent)
            self.query_one(f"#{tabs.active} VerticalScroll").focus()
        elif self.context.settings.read_only:
            self.tell("Read-only: nothing is measured.")
        else:
            self.action_start_bench()

    def action_next_bench_page(self) -> None:
        """The page to the right."""
        self._turn_with_focus(1)

    def action_previous_bench_page(self) -> None:
        """The page to the left."""
        self._turn_with_focus(-1)

    def _turn_with_focus(self, step: int) -> None:
        """Who reads a page goes on reading the next one."""
        reading = not self.runs_list.has_focus
        self.turn(step)
        if reading:
            self.call_after_refresh(self.action_open_run)

    def action_filter_runs(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """The list follows the filter."""
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the list; an empty filter goes away."""
        self._leave_filter(keep=True)

    def _leave_filter(self, *, keep: bool) -> None:
        box = self.query_one("#filter", Input)
        if not keep:
            box.value = ""
        box.display = bool(box.value)
        self.runs_list.focus()

    def key_escape(self) -> None:
        """One step back: from a page to the list, then without the filter, then Home."""
        box = self.query_one("#filter", Input)
        if box.display and (box.has_focus or self.runs_list.has_focus):
            self._leave_filter(keep=False)
        elif not self.runs_list.has_focus:
            self.runs_list.focus()
        else:
            self.spark.switch_mode("home")

    def key_down(self) -> None:
        """From the filter into what it found."""
        if self.query_one("#filter", Input).has_focus:
            self.runs_list.focus()


def exported(results: Sequence[Result], path: str) -> str:
    """The text for a file of that name. Raises UsageError for an ending that is none of the three."""
    ending = path.lower().rpartition(".")[2]
    if ending == "csv":
        return csv_text(results)
    if ending == "json":
        return json.dumps([result_to_json(result) for result in results], indent=2) + "\n"
    if ending in ("md", "markdown"):
        return markdown(results)
    raise UsageError(f"What is to be written to {path} is not clear.", "Let its name end in .md, .csv or .json.")
