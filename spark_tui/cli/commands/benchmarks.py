"""Measuring: `bench`, and `results` with its commands."""

from __future__ import annotations

from typing import Any

import click

from spark_tui.cli.commands.frame import command, group, name_argument, yes_option
from spark_tui.cli.session import Session


def _counts(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """`1,2,4,8` as whole numbers."""
    words = [word.strip().replace("_", "") for word in value.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of whole numbers: write it as 1,2,4,8.", ctx, parameter)
    return tuple(int(word) for word in words)


_BENCH_EXAMPLES = """\
  spark-tui bench gpt-oss-120b
  spark-tui bench gpt-oss-120b --concurrency 1,2,4,8,16 --input 2048
  spark-tui bench gpt-oss-120b --concurrency "" --prefill-depths 1024,16384
  spark-tui bench qwen-a --ab qwen-b                 two running engines, in turn
  spark-tui bench qwen-a --ab max_num_seqs=8         as it runs, then with a change
  spark-tui bench qwen-a --ab nemotron-30b           two presets, started in turn
  spark-tui bench gpt-oss-120b --json > run.json
"""


def _options() -> dict[str, str]:
    """The options of this command by the plan's fields: `input_tokens` is `--input`."""
    return {each.name: each.opts[0] for each in click.get_current_context().command.params if each.name}


@command("bench", _BENCH_EXAMPLES)
@name_argument
@click.option("--concurrency", default="1,2,4,8", callback=_counts, metavar="N,N", help="Streams.  [1,2,4,8]")
@click.option("--input", "input_tokens", type=int, default=1024, metavar="N", help="Prompt tokens.  [1024]")
@click.option("--output", "output_tokens", type=int, default=128, metavar="N", help="Answer tokens.  [128]")
@click.option(
    "--prefill-depths", "depths", default="", callback=_counts, metavar="N,N", help="Prompt lengths, one stream."
)
@click.option("--passes", type=int, default=3, metavar="N", help="How often all is repeated.  [3]")
@click.option("--rounds", type=int, default=2, metavar="N", help="Requests per stream and pass.  [2]")
@click.option("--warmup", type=int, default=2, metavar="N", help="Uncounted requests per stream first.  [2]")
@click.option("--content", type=click.Choice(["random", "prose"]), default="random", help="Of the prompts.  [random]")
@click.option("--warm-cache", is_flag=True, help="The same prompt each time: measures the prefix cache.")
@click.option("--as-text", is_flag=True, help="Send prompts as text and not as token ids.")
@click.option("--temperature", type=click.FloatRange(0, 10), default=0.0, metavar="T", help="Of sampling.  [0]")
@click.option("--seed", type=int, default=1, metavar="N", help="Of the prompts.  [1]")
@click.option("--ab", "other", default="", metavar="OTHER", help="In turn with: ENGINE, PRESET, or KEY=VALUE.")
@yes_option
def bench(
    session: Session, name: str, other: str, content: str, warm_cache: bool, as_text: bool, yes: bool, **load: Any
) -> int:
    """Measure how fast an engine is: one stream, several, long prompts.

    Real streaming requests with prompts of an exact length that no cache knows. Latencies as `vllm bench serve`
    defines them. Failed and short requests are told, never averaged away. The result is kept: see `results`.
    """
    from spark_tui.cli.bench import bench as work
    from spark_tui.domain.bench.plan import BenchPlan, Content, PromptCache, PromptForm

    plan = BenchPlan(
        **load,
        content=Content(content),
        prompt_cache=PromptCache.WARM if warm_cache else PromptCache.COLD,
        form=PromptForm.TEXT if as_text else PromptForm.TOKENS,
    )
    return work(session, name, plan, other=other, options=_options(), yes=yes)


@group("results")
def results(session: Session) -> None:
    """What was measured on this box: list, show, compare, export. Without a command: the list."""
    from spark_tui.cli.bench import list_results

    list_results(session)


_STATUSES = ("benchmarked", "working", "pending", "failed")


@command("list", "  spark-tui results list --model qwen\n  spark-tui results --json | jq -r '.[].id'")
@click.option("--model", default="", metavar="TEXT", help="Only models and engines with that in their name.")
@click.option("--status", type=click.Choice(_STATUSES), default=None, help="Only those.")
def results_list(session: Session, model: str, status: str | None) -> None:
    """All results, the newest first."""
    from spark_tui.cli.bench import ListOptions, list_results

    list_results(session, ListOptions(model, status or ""))


@command("show", "  spark-tui results show last")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
def results_show(session: Session, keys: tuple[str, ...]) -> None:
    """A result in full, and what others published for that model."""
    from spark_tui.cli.bench import show_results

    show_results(session, keys)


@command("compare", "  spark-tui results compare 3f2a 9c1b\n  spark-tui results compare last")
@click.argument("first", metavar="ID|ENGINE")
@click.argument("second", required=False, default="", metavar="[ID|ENGINE]")
def results_compare(session: Session, first: str, second: str) -> int:
    """The second beside the first; one alone beside this box's last result of the same model and load.

    Like with like: with another load nothing is compared, and every other difference is named.
    """
    from spark_tui.cli.bench import compare_results

    return compare_results(session, first, second)


@command("export", "  spark-tui results export --format markdown > RESULTS.md")
@click.argument("keys", nargs=-1, metavar="[ID|ENGINE|last]...")
@click.option(
    "--format", "format_", type=click.Choice(["markdown", "csv", "json"]), default="markdown", help="[markdown]"
)
def results_export(session: Session, keys: tuple[str, ...], format_: str) -> None:
    """Results for others, on standard output; all of them when none is named."""
    from spark_tui.cli.bench import export_results

    export_results(session, keys, format_)


@command("mark", '  spark-tui results mark acme/big-70b failed "CUDA driver error 35"')
@click.argument("model")
@click.argument("status", type=click.Choice(_STATUSES[1:]))
@click.argument("reason", required=False, default="")
@click.option("--quantization", default="", metavar="TEXT", help="NVFP4, FP8 ...")
@click.option("--runtime", default="", metavar="TEXT", help="vllm, sglang ...")
def results_mark(session: Session, model: str, status: str, reason: str, quantization: str, runtime: str) -> None:
    """Note that a model works, failed, or is still to be tried."""
    from spark_tui.cli.bench import mark_result

    mark_result(session, model, status, reason, quantization=quantization, runtime=runtime)


@command("rm", "  spark-tui results rm 3f2a\n  spark-tui results rm 3f2a 9c1b --yes")
@click.argument("keys", nargs=-1, required=True, metavar="ID|ENGINE|last...")
@yes_option
def results_rm(session: Session, keys: tuple[str, ...], yes: bool) -> None:
    """Delete results for good; you are asked first."""
    from spark_tui.cli.bench import remove_results

    remove_results(session, keys, yes=yes)


results.add(results_list, results_show, results_compare, results_export, results_mark, results_rm)
