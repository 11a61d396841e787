"""tune: a measured search for better settings of a preset."""

from __future__ import annotations

from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, UsageError
from spark_tui.catalog.fit.use.fit import observe
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import command, complete, yes_option
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session, confirm
from spark_tui.manage.tune import show as present
from spark_tui.manage.tune.model import TuneGoal, best_settings
from spark_tui.manage.tune.use import DEFAULT_MINUTES, RESUME, TuneProgress, Tuner, TuneRecord
from spark_tui.observe.metrics.use.history import supervised
from spark_tui.use.bench.show.bench import SIMULATED

_EXAMPLES = """\
  spark-tui tune gpt-oss-120b                      one stream, up to 2 hours
  spark-tui tune gpt-oss-120b --for throughput --streams 16 --minutes 60
  spark-tui tune gpt-oss-120b --for context --save gpt-oss-long
  spark-tui tune gpt-oss-120b --resume             after a crash or Ctrl-C
  spark-tui tune gpt-oss-120b --resume --save gpt-fast   save the last result
"""


@command("tune", _EXAMPLES)
@click.argument("name", metavar="PRESET", shell_complete=complete("presets"))
@click.option(
    "--for",
    "goal",
    type=click.Choice([each.value for each in TuneGoal]),
    default="latency",
    help="What to improve.  [latency]",
)
@click.option("--streams", type=click.IntRange(1, 1024), default=8, metavar="N", help="For throughput.  [8]")
@click.option(
    "--minutes",
    type=click.FloatRange(0, 10_000, min_open=True),
    default=None,
    metavar="N",
    help=f"Time for the whole search.  [{DEFAULT_MINUTES:.0f}]",
)
@click.option("--input", "input_tokens", type=int, default=1024, metavar="N", help="Prompt tokens.  [1024]")
@click.option("--output", "output_tokens", type=int, default=128, metavar="N", help="Answer tokens.  [128]")
@click.option("--save", default="", metavar="NAME", help="Write the best settings as a preset of this name.")
@click.option("--resume", is_flag=True, help="Continue the last search for this preset.")
@click.option("--discard", is_flag=True, help="Drop the last search and restore the engine.")
@yes_option
def tune(
    session: Session,
    name: str,
    goal: str,
    minutes: float | None,
    save: str,
    resume: bool,
    discard: bool,
    yes: bool,
    **load: int,
) -> int:
    """Search for the settings that make a preset fastest, by measuring them in turn.

    Changes one setting at a time, against the best so far: drafted tokens, sequences, batched tokens, KV cache type,
    memory share. A trial that fails is a result. The engine that served before is restored at the end.
    """
    if resume and discard:
        raise UsageError("--resume and --discard exclude each other.", "Choose one.")
    progress = _Progress(session)

    async def begin(context: Context) -> TuneRecord:
        preset = find_preset(context, name)
        if not resume and not discard:
            await observe(context, session.err.note)
            return await context[Tuner].plan(
                preset, TuneGoal(goal), minutes=DEFAULT_MINUTES if minutes is None else minutes, **load
            )
        record = context[Tuner].record(preset.name)
        if record is None:
            raise RefusedError(f"No search for {preset.name} to continue.", f"Begin one: spark-tui tune {preset.name}")
        return record

    record = session.run(begin)
    stopped = Interrupted(
        "The search was stopped. The engine of before is restored.", RESUME.format(name=record.preset)
    )
    if discard:
        session.run(lambda context: supervised(context, context[Tuner].discard(record, progress)), changes=True)
        session.done(present.tune_object(record), "Dropped. The engine of before is restored.")
        return ExitCode.DONE
    if not (resume and record.finished):
        question, what = present.question(record)
        session.err.say(what)
        if not resume and not confirm(session, question, yes=yes):
            raise RefusedError("Not started.", f"Measure it as it is: spark-tui bench {record.engine}")
        more = {} if not resume or minutes is None else {"limit": record.spent + 60 * minutes}
        record = session.run(
            lambda context: _search(session, context, record, more, progress),
            changes=True,
            on_interrupt=lambda: stopped,
        )
        session.err.settle()
    return _finish(session, record, save)


def _finish(session: Session, record: TuneRecord, save: str) -> int:
    """Saves the winner where asked, and shows everything."""
    won = best_settings(record.trials)

    async def write(context: Context) -> str:
        about = f"Tuned: {present.winner_text(record)}"
        return (await context[Tuner].save(record, save, about)).file

    saved = session.run(write, changes=True) if save and won else ""
    session.out.json(present.tune_object(record, saved))
    if record.trials:
        session.out.table(present.trial_table(record))
    session.out.page(present.winner_page(record))
    if record.ended:
        session.err.say(f"Ended: {record.ended}.", "dim")
    if saved:
        session.err.say(f"Saved as {saved}. Launch it: spark-tui up {save}")
    elif won:
        session.err.say(f"Save it as a preset: spark-tui tune {record.preset} --resume --save NAME")
    return ExitCode.DONE if record.finished else ExitCode.FAILED


async def _search(
    session: Session, context: Context, record: TuneRecord, more: dict[str, Any], progress: _Progress
) -> TuneRecord:
    if context.demo:
        session.err.say(SIMULATED, "dim")
    await observe(context, session.err.note)
    return await supervised(context, context[Tuner].run(replace(record, **more), progress))


class _Progress(Struct, eq=False):
    """One moving line where a person watches; a line per trial in a pipe."""

    _session: Session
    _trials: int | None = None

    def __call__(self, progress: TuneProgress) -> None:
        err = self._session.err
        if self._session.as_json:
            return
        trials = progress.record.trials
        for trial in trials[len(trials) if self._trials is None else self._trials :]:
            err.say(present.trial_line(trial))
        self._trials = len(trials)
        if err.interactive:
            err.standing(present.progress_line(progress))
