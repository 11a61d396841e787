"""bench: measures an engine, or two in turn. results: what was measured, compared, exported."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, UsageError
from spark_tui.base.page import Section
from spark_tui.cli.command import command, complete, group, optional_engine_argument, yes_option
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.output import capitals
from spark_tui.cli.session import Session, confirm
from spark_tui.machine.engines import EngineFinder
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import supervised
from spark_tui.observe.results.model.compare import Comparison, compare
from spark_tui.observe.results.model.plan import BenchPlan, Content, PlanError, PromptCache, PromptForm, check_plan
from spark_tui.observe.results.model.run import BenchRun, Result, RunOutcome, Status, result_to_json
from spark_tui.observe.results.use import Results
from spark_tui.use.bench.show import bench as present
from spark_tui.use.bench.show.export import comparison_object, exported, result_object, runs_object
from spark_tui.use.bench.show.ticker import Ticker
from spark_tui.use.bench.use.ab import ABPlanner, Variant, running_engine
from spark_tui.use.bench.use.bench import Benchmark


def _whole_numbers(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """`1,2,4,8` as whole numbers."""
    words = [word.strip().replace("_", "") for word in value.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of whole numbers, like 1,2,4,8.", ctx, parameter)
    return tuple(int(word) for word in words)


_BENCH_EXAMPLES = """\
  spark-tui bench gpt-oss-120b
  spark-tui bench gpt-oss-120b --concurrency 1,2,4,8,16 --input 2048
  spark-tui bench gpt-oss-120b --concurrency "" --prefill-depths 1024,16384
  spark-tui bench qwen-a --ab qwen-b                 two running engines, in turn
  spark-tui bench qwen-a --ab max_num_seqs=8         current settings, then a change
  spark-tui bench qwen-a --ab nemotron-30b           two presets, started in turn
  spark-tui bench qwen-a --ab image=vllm/vllm-openai:nightly
  spark-tui bench gpt-oss-120b --json > run.json
"""


@command("bench", _BENCH_EXAMPLES)
@optional_engine_argument
@click.option("--concurrency", default="1,2,4,8", callback=_whole_numbers, metavar="N,N", help="Streams.  [1,2,4,8]")
@click.option("--input", "input_tokens", type=int, default=1024, metavar="N", help="Prompt tokens.  [1024]")
@click.option("--output", "output_tokens", type=int, default=128, metavar="N", help="Answer tokens.  [128]")
@click.option(
    "--prefill-depths", "depths", default="", callback=_whole_numbers, metavar="N,N", help="Prompt lengths, one stream."
)
@click.option("--passes", type=int, default=3, metavar="N", help="Repetitions of everything.  [3]")
@click.option("--rounds", type=int, default=2, metavar="N", help="Requests per stream and pass.  [2]")
@click.option("--warmup", type=int, default=2, metavar="N", help="Warm-up requests per stream, not counted.  [2]")
@click.option("--content", type=click.Choice(["random", "prose"]), default="random", help="Prompt text.  [random]")
@click.option("--warm-cache", is_flag=True, help="The same prompt each time: measures the prefix cache.")
@click.option("--as-text", is_flag=True, help="Send prompts as text and not as token ids.")
@click.option("--temperature", type=click.FloatRange(0, 10), default=0.0, metavar="T", help="Sampling.  [0]")
@click.option("--seed", type=int, default=1, metavar="N", help="Seed of the prompts.  [1]")
@click.option(
    "--ab",
    "other",
    default="",
    metavar="OTHER",
    help="A/B with a preset, ENGINE, container=NAME, image=IMAGE or KEY=VALUE.",
)
@yes_option
def bench(
    session: Session, name: str, other: str, content: str, warm_cache: bool, as_text: bool, yes: bool, **load: Any
) -> int:
    """Measure how fast an engine is: one stream, several, long prompts.

    Without NAME: the engine that runs, if it is the only one. Real streaming requests with uncached prompts of
    exact length. Latencies as `vllm bench serve` defines them. Failed and short requests are reported separately.
    The result is saved: see `results`. Void, not saved, exit code 1: the engine ended or was restarted meanwhile.
    """
    plan = BenchPlan(
        **load,
        content=Content(content),
        prompt_cache=PromptCache.WARM if warm_cache else PromptCache.COLD,
        form=PromptForm.TEXT if as_text else PromptForm.TOKENS,
    )
    context = click.get_current_context()
    try:
        check_plan(plan)
    except PlanError as error:
        # The options by the plan's fields: `input_tokens` is `--input`.
        options = {each.name: each.opts[0] for each in context.command.params if each.name in error.fields}
        raise UsageError(
            error.summary, f"{error.remedy.rstrip('.')}: {', '.join(options[f] for f in error.fields)}."
        ) from None
    name, ticker = engine_name(session, name), Ticker(session)
    variants = session.run(partial(_variants, name, other))
    if variants[0].request is not None:
        question, what = present.ab_question((variants[0], variants[1]), plan)
        session.err.say(what)
        if not confirm(session, question, yes=yes):
            raise RefusedError("Not started.", f"To compare with a running engine: spark-tui bench {name} --ab NAME")

    async def work(context: Context) -> tuple[BenchRun, ...]:
        if context.demo:
            session.err.say(present.SIMULATED, "dim")
        measured = context[Benchmark].run(variants, plan, ticker)
        return await (measured if variants[0].request is None else supervised(context, measured))

    runs = session.run(work, on_interrupt=ticker.interrupted)
    session.err.settle()
    found = compare(*runs) if len(runs) == 2 else None
    session.out.json(runs_object(runs, found))

    async def show(context: Context) -> None:
        for run in runs:
            show_run(session, context, run)
        if found is not None:
            show_comparison(session, found)

    session.run(show)
    return ExitCode.DONE if all(run.ending is RunOutcome.COMPLETED for run in runs) else ExitCode.FAILED


async def _variants(name: str, other: str, context: Context) -> tuple[Variant, ...]:
    """What is measured; of an A/B with something that does not run, two launches."""
    container = await find_container(context, name)
    first, running = Variant(container.id), running_engine(other)
    if not other:
        return (first,)
    if not running and "=" not in other:
        found, _ = await context[EngineFinder].find(other)
        running = other if found is not None and found.running else ""
    if running:
        return first, Variant((await find_container(context, running)).id)
    watch = await context[EngineSupervisor].watch(container.id)
    await watch.settled()
    return context[ABPlanner].plan(watch.view(), other)


def show_run(session: Session, context: Context, run: BenchRun) -> None:
    """A run: its tables and figures on stdout; load, errors, caveats and where it is kept on stderr."""
    out, err, conditions = session.out, session.err, run.conditions
    out.line(f"{conditions.engine}  {conditions.model}  {conditions.runtime} {conditions.version}".rstrip())
    err.say(present.load_text(run), "dim")
    for table in (present.sweep_table(run), present.depth_table(run)):
        if table.rows:
            out.table(capitals(table))
    out.lines(text for text in (present.headline(run), present.host_text(run)) if text)
    for text in present.error_texts(run):
        err.say(text, "red")
    if run.ending is not RunOutcome.COMPLETED:
        err.say(f"{run.ending.value}: {run.reason}", "yellow")
    for caveat in run.caveats:
        err.note(caveat)
    if published := context[Results].published(run):
        rows = tuple(row for each in published for row in present.beside_rows(each))
        out.page((Section("Published by others", rows),))
    out.page(present.of_model(run))
    if judged := present.agreement_row(run.checks):
        err.say(f"{judged.label}: {judged.text}", "dim")
    if not context.demo:
        err.say(f"saved as {run.id}: spark-tui results show {run.id}" if run.levels else "not saved", "dim")


def show_comparison(session: Session, found: Comparison) -> None:
    """What two runs say about each other."""
    first, second = found.first, found.second
    session.out.line(f"{second.conditions.engine} ({second.id}) beside {first.conditions.engine} ({first.id})")
    if not found.comparable:
        session.out.lines(f"  not comparable: {present.difference_text(each)}" for each in found.obstacles)
        return
    if verdict := present.pair_verdict(found, "The second"):
        session.out.page((Section(rows=(verdict,)),))
    session.out.table(capitals(present.pair_table(found, "first", "second")))
    session.out.lines(f"  {present.difference_text(each)}" for each in found.differences)
    if not found.paired:
        session.err.note(present.NOT_ALTERNATED)


# --- results --------------------------------------------------------------------------------------------

_STATUSES = tuple(status.value for status in Status)


@group("results")
def results(session: Session) -> None:
    """List, show, compare and export benchmark results. Without a command: the list."""
    list_results(session)


@results.sub("list", "  spark-tui results list --model qwen\n  spark-tui results --json | jq -r '.[].id'")
@click.option("--model", default="", metavar="TEXT", help="Only models and engines with this in their name.")
@click.option("--status", type=click.Choice(_STATUSES), default=None, help="Only results with this status.")
def results_list(session: Session, model: str, status: str | None) -> None:
    """List results, the newest first."""
    list_results(session, model, status or "")


def list_results(session: Session, model: str = "", status: str = "") -> None:
    async def work(context: Context) -> None:
        kept = [
            result
            for result in context[Results].all()
            if model.lower() in f"{result.model} {result.engine}".lower() and status in ("", result.status.value)
        ]
        for problem in context[Results].problems():
            session.err.note(problem)
        session.out.json([result_object(result) for result in kept])
        if kept:
            session.out.table(present.result_table(kept, context.clock.now()))
        else:
            session.err.say("No results yet: spark-tui bench NAME")

    session.run(work)


@results.sub("show", "  spark-tui results show last")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
def show_results(session: Session, keys: tuple[str, ...]) -> None:
    """Show a result in full, with published results for its model."""

    async def work(context: Context) -> None:
        found = [context[Results].find(key) for key in keys or ("last",)]
        objects = [result_object(result, whole=True) for result in found]
        session.out.json(objects[0] if len(objects) == 1 else objects)
        for result in found:
            if result.run is not None:
                show_run(session, context, result.run)
            else:
                session.out.table(present.result_table((result,), context.clock.now()))

    session.run(work)


@results.sub("compare", "  spark-tui results compare 3f2a 9c1b\n  spark-tui results compare last")
@click.argument("first", metavar="ID|ENGINE")
@click.argument("second", required=False, default="", metavar="[ID|ENGINE]")
def compare_results(session: Session, first: str, second: str) -> int:
    """Compare two results, or one with the last result of the same model and load.

    Refuses to compare different loads; every other difference is named. Exit code 1: not comparable.
    """
    found: Comparison = session.run(lambda context: context.in_thread(context[Results].compare, first, second))
    session.out.json(comparison_object(found))
    show_comparison(session, found)
    return ExitCode.DONE if found.comparable else ExitCode.FAILED


@results.sub("export", "  spark-tui results export --format markdown > RESULTS.md")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
@click.option("--format", "format_", type=click.Choice(["markdown", "json"]), default="markdown", help="[markdown]")
def export_results(session: Session, keys: tuple[str, ...], format_: str) -> None:
    """Export results on stdout; all of them when none is named."""

    async def work(context: Context) -> None:
        kept = context[Results].all()
        for problem in context[Results].problems():
            session.err.note(problem)
        found = tuple(context[Results].find(key) for key in keys) if keys else kept
        session.out.as_json |= format_ == "json"
        session.out.json([result_to_json(result) for result in found])
        session.out.write(exported(found, format_))

    session.run(work)


@results.sub("mark", '  spark-tui results mark acme/big-70b failed "CUDA driver error 35"')
@click.argument("model", shell_complete=complete("models"))
@click.argument("status", type=click.Choice(_STATUSES[1:]))
@click.argument("reason", required=False, default="")
@click.option("--quantization", default="", metavar="TEXT", help="NVFP4, FP8 ...")
@click.option("--runtime", default="", metavar="TEXT", help="vllm, sglang ...")
def mark_result(session: Session, model: str, status: str, reason: str, quantization: str, runtime: str) -> None:
    """Record that a model works, failed, or is still to be tried."""

    async def work(context: Context) -> None:
        host = context.host.identity()
        result = context[Results].mark(
            model,
            Status(status),
            quantization=quantization,
            runtime=runtime,
            platform=host.product or host.hostname,
            reason=reason,
        )
        session.out.json(result_object(result))
        session.err.say(f"saved as {result.id}")

    session.run(work)


@results.sub("rm", "  spark-tui results rm 3f2a\n  spark-tui results rm 3f2a 9c1b --yes")
@click.argument("keys", nargs=-1, required=True, metavar="ID|ENGINE|last...")
@yes_option
def remove_results(session: Session, keys: tuple[str, ...], yes: bool) -> None:
    """Delete results for good; asks first."""

    async def find(context: Context) -> tuple[tuple[Result, ...], float]:
        found = {result.id: result for result in (context[Results].find(key) for key in keys)}
        return tuple(found.values()), context.clock.now()

    found, now = session.run(find)
    for result in found:
        session.err.say(f"{result.id}  {present.result_line(result, now)}")
    what = "this result" if len(found) == 1 else f"these {len(found)} results"
    if not confirm(session, f"Delete {what} for good?", yes=yes):
        session.err.say("Nothing was deleted.")
        return
    count = session.run(lambda context: context.in_thread(context[Results].delete, found))
    session.out.json({"id": " ".join(result.id for result in found), "deleted": count})
    session.err.say(f"Deleted: {count} of {len(found)}.")
