"""update: a newer image for a preset, tried beside the old one."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, MeasurementVoid, RefusedError, SparkError, UsageError
from spark_tui.base.page import Section
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import command, preset_argument, yes_option
from spark_tui.cli.output import Interrupted, capitals
from spark_tui.cli.session import Session, confirm
from spark_tui.manage.images.show import images as show
from spark_tui.manage.images.use.update import Updater, UpdateRecord, UpdateStage
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.metrics.use.history import keep_void
from spark_tui.observe.results.model.compare import Comparison, SpeedVerdict, compare
from spark_tui.observe.results.model.plan import BenchPlan
from spark_tui.observe.results.model.proof import Proof, changes
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.run.launch.show.progress import followed, may
from spark_tui.use.bench.show import bench as bench_present
from spark_tui.use.bench.show.export import comparison_object
from spark_tui.use.bench.show.ticker import Ticker
from spark_tui.use.bench.use.bench import Benchmark
from spark_tui.use.prove import show as prove_present
from spark_tui.use.prove.use.prove import Prover

_EXAMPLES = """\
  spark-tui update gpt-oss-120b --check          has the tag moved?
  spark-tui update gpt-oss-120b                  try it, then keep or go back
  spark-tui update gpt-oss-120b --bench --prove  measured in both images
  spark-tui update gpt-oss-120b --bench --yes    keep it unless it is slower
  spark-tui update gpt-oss-120b --back           the old image; no network
"""
_LOAD = BenchPlan(concurrency=(1, 4), passes=2)


@command("update", _EXAMPLES)
@preset_argument
@click.option("--check", "check", is_flag=True, help="Only ask the registry whether the tag has moved.")
@click.option("--bench", "measure", is_flag=True, help="Measure both images by turns (A B B A); restarts the engine.")
@click.option(
    "--passes", type=click.IntRange(2, 20), default=2, metavar="N", help="Passes of --bench in each image.  [2]"
)
@click.option("--prove", "prove", is_flag=True, help="Prove the new image: tool calls, reasoning, depth.")
@click.option("--keep", "keep", is_flag=True, help="Keep the new image if it serves.")
@click.option("--back", "back", is_flag=True, help="Go back to the old image, also after the new one was kept.")
@yes_option
def update(
    session: Session, name: str, check: bool, measure: bool, passes: int, prove: bool, keep: bool, back: bool, yes: bool
) -> int:
    """Try a preset's newer image beside the old one, then keep it or go back.

    The old image gets a tag of its own and stays: going back needs no network. The preset's tag means the old image
    until the new one is kept. --yes keeps the new one unless something got worse or could not be measured (exit code 1:
    it went back). Exit code 1 also where a measurement is void: the engine ended or was restarted meanwhile.
    An interrupted update is continued by the same command.
    """
    if sum((check, keep, back, yes)) > 1:
        raise UsageError("--check, --keep, --back and --yes exclude one another.", "Use one of them.")
    if check:
        return _check(session, name)
    if back:
        return _back(session, name)
    if not (keep or yes) and (session.as_json or session.stdin is None or not session.stdin.isatty()):
        raise RefusedError("Not a terminal: keep the new image or go back?", "Decide with --keep, --yes or --back.")
    if not may(session, "Update", name, yes=yes or keep):
        raise RefusedError("Not started.", f"See what is new: spark-tui update {name} --check")
    record = session.run(
        lambda context: _try(session, context, name), changes=True, on_interrupt=lambda: _stopped(name)
    )
    if record is None:
        return ExitCode.DONE
    found, proofs, void = None, None, ""
    try:
        if measure:
            found = _measure(session, record, replace(_LOAD, passes=passes))
        if prove:
            proofs = _prove(session, record)
        worse = _worse(found, proofs) or "not measured" * (measure and found is None)
    except MeasurementVoid as error:
        worse, void = "void", error.summary
        session.run(partial(keep_void, error))
        session.err.error(error)
    question = f"Keep the new image of {record.preset}? No goes back to the old one."
    if keep or (yes and not worse) or (not yes and confirm(session, question, yes=False)):
        done = _decided(session, record.preset, keep=True)
        session.err.say(f"Kept. Go back at any time: spark-tui update {record.preset} --back")
    else:
        done = _decided(session, record.preset, keep=False)
        session.err.say(
            f"Went back to the old image{f': {worse}' if yes else ''}. Delete the new one: spark-tui images"
        )
    extra: dict[str, Any] = {"void": void} if void else {}
    extra |= {"comparison": comparison_object(found)} if found is not None else {}
    extra |= {"proof": prove_present.comparison_object(*proofs)} if proofs is not None else {}
    _result(session, done, kept=done.stage is UpdateStage.KEPT, **extra)
    return ExitCode.FAILED if void or (yes and worse) else ExitCode.DONE


def _result(session: Session, record: UpdateRecord, **more: Any) -> None:
    session.out.json_line({"type": "result", **show.record_object(record), **more})


def _stopped(name: str) -> Interrupted:
    return Interrupted(
        f"The update of {name} is not finished.",
        f"Continue it:  spark-tui update {name}\nGo back:      spark-tui update {name} --back",
    )


def _check(session: Session, name: str) -> int:
    async def look(context: Context) -> None:
        found = await context[Updater].check(find_preset(context, name))
        session.out.answer(show.check_object(found), show.check_page(found))

    session.run(look)
    return ExitCode.DONE


async def _try(session: Session, context: Context, name: str) -> UpdateRecord | None:
    preset = find_preset(context, name)
    before = context[Updater].record(preset.name)
    if before is not None and before.stage is not UpdateStage.KEPT:
        session.err.say(show.stage_text(before))
    await context[Collectors].collect_once()
    engine = before.engine if before is not None else preset.name
    record = await followed(session, context, engine, partial(context[Updater].run, preset))
    if record is None:
        left = context[Updater].record(preset.name)
        if before is not None and before.stage in (UpdateStage.KEEP, UpdateStage.BACK):
            session.err.say("The interrupted update is finished.")
        else:
            session.err.say(f"{preset.reference} has not moved: nothing to update.")
        result = show.record_object(left) if left is not None else {"id": preset.name, "stage": None}
        session.out.json_line({"type": "result", "moved": False, **result})
        return None
    starts = await context[Updater].starts(record)
    if session.as_json:
        session.out.json_line({"type": "trial", **show.trial_object(record, *starts)})
    session.out.page(show.trial_page(record, *starts))
    return record


def _back(session: Session, name: str) -> int:
    async def work(context: Context) -> None:
        preset = find_preset(context, name).name
        before = context[Updater].record(preset)
        if before is not None:
            session.err.say(show.stage_text(before))
        engine = before.engine if before is not None else preset
        done = await followed(session, context, engine, partial(context[Updater].back, preset))
        _result(session, done, kept=False)
        session.err.say(f"{done.tag} is the old image again ({done.old_digest[:19]}).")

    session.run(work, changes=True, on_interrupt=lambda: _stopped(name))
    return ExitCode.DONE


def _decided(session: Session, name: str, *, keep: bool) -> UpdateRecord:
    async def work(context: Context) -> UpdateRecord:
        record = context[Updater].record(name)
        decide = context[Updater].keep if keep else context[Updater].back
        engine = record.engine if record is not None else name
        return await followed(session, context, engine, partial(decide, name))

    return session.run(work, on_interrupt=lambda: _stopped(name))


# --- measured ---------------------------------------------------------------------------------------------


def _measure(session: Session, record: UpdateRecord, plan: BenchPlan) -> Comparison | None:
    """The old image and the new one by turns; the new one runs when it ends."""
    ticker = Ticker(session)

    async def work(context: Context) -> Comparison | None:
        runs = await context[Updater].measure(
            record, lambda sides: context[Benchmark].run(sides, plan, ticker), lambda _: None
        )
        complete = len(runs) == 2 and all(run.ending is RunOutcome.COMPLETED for run in runs)
        return compare(runs[1], runs[0]) if complete else None

    try:
        found = session.run(work, on_interrupt=lambda: _stopped(record.preset))
    except MeasurementVoid:
        raise
    except SparkError as error:
        session.err.note(f"Not measured: {error.summary} {error.remedy}")
        return None
    session.err.settle()
    if found is not None:
        verdict = bench_present.pair_verdict(found, "The new image")
        session.out.page((Section(rows=(verdict,) if verdict else ()),))
        session.out.table(capitals(bench_present.pair_table(found, "old", "new")))
    else:
        session.err.note("The measurement did not end: its figures are in spark-tui results.")
    return found


def _prove(session: Session, record: UpdateRecord) -> tuple[Proof, Proof] | None:
    """The last proof in the old image and one in the new one, in which a case fails that failed twice; None where
    there is none of the old one."""

    async def work(context: Context) -> tuple[Proof | None, Proof]:
        prover = context[Prover]
        old = (each for each in prover.kept() if each.conditions.preset == record.preset)
        earlier = next((each for each in old if each.conditions.image_id == record.old_id), None)
        proof = await prover.run(record.engine, lambda _: None)
        return earlier, await prover.asked_again(record.engine, earlier, proof) if earlier is not None else proof

    earlier, proof = session.run(work, on_interrupt=lambda: _stopped(record.preset))
    session.out.page((Section(rows=prove_present.summary(proof, ())),))
    if earlier is None:
        session.err.note("No proof of the old image to compare with.")
        return None
    session.out.page(prove_present.comparison(earlier, proof))
    return earlier, proof


def _worse(found: Comparison | None, proofs: tuple[Proof, Proof] | None) -> str:
    """What is worse beyond its error; empty where nothing is."""
    slower = found is not None and any(row.verdict is SpeedVerdict.SLOWER for row in found.rows)
    broken = changes(*proofs).broken if proofs is not None else ()
    return ", ".join((*("slower",) * slower, *(f"{case} fails" for case in broken)))
