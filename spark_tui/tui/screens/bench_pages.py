"""The pages of one run on the Bench screen: how it ended and what it says; everything that decides its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from spark_tui.domain.bench.conditions import Conditions, quantization_words
from spark_tui.domain.bench.export import load_words
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.bench.result import Result
from spark_tui.domain.bench.run import BenchRun, Ending
from spark_tui.domain.bench.server_side import Check
from spark_tui.domain.quantities import gib, human_count, human_duration
from spark_tui.tui.screens.bench_words import NOT_KNOWN, STYLES, ago, headline, status_word
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told

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
    parts += [(label("know"), told(caveat, "$warning")) for caveat in run.caveats]
    parts.append((label("load"), told(load_words(run))))
    if words := ", ".join(box_words(run)):
        parts.append((label("box"), told(words)))
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


def _heading(text: str) -> Part:
    return Content(""), Content.styled(text, "bold")


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
