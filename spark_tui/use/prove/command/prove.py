"""prove: asks an engine what agents ask, and judges its answers."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, UsageError
from spark_tui.base.page import Section
from spark_tui.base.text import same_name
from spark_tui.catalog.presets.use.library import Library
from spark_tui.cli.command import command, optional_engine_argument
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.output import Interrupted, capitals, write_new
from spark_tui.cli.session import Session
from spark_tui.observe.results.model.proof import Proof, Verdict, changes, compared_proof
from spark_tui.use.prove import show as present
from spark_tui.use.prove.use.prove import ProofProgress, Prover

_EXAMPLES = """\
  spark-tui prove qwen3.6-35b
  spark-tui prove qwen3.6-35b --full --junit proof.xml
  spark-tui prove qwen3.6-35b --case chat.tool --case messages
  spark-tui prove qwen3.6-35b --kept                  the last proof, asks nothing
  spark-tui prove qwen3.6-35b --compare last        beside the one before it
"""


@command("prove", _EXAMPLES)
@optional_engine_argument
@click.option("--full", is_flag=True, help="All cases and long contexts, without a time limit.")
@click.option("--case", "only", multiple=True, metavar="ID", help="Only cases whose id begins so; not saved.")
@click.option("--kept", is_flag=True, help="Show the last proof of this engine; asks nothing.")
@click.option("--compare", "other", default="", metavar="ID", help="Compare with a proof, an engine's, or: last.")
@click.option("--junit", "junit", default="", metavar="FILE", help="Write JUnit XML into a new file.")
def prove(session: Session, name: str, full: bool, only: tuple[str, ...], kept: bool, other: str, junit: str) -> int:
    """Prove that an engine does what agents need: tool calls, reasoning, structured output, depth.

    Without NAME: the engine that runs, if it is the only one. Asks through chat, /v1/responses and /v1/messages,
    streaming and not; about two minutes. A model of vectors, scores or speech is asked for those. The result is saved
    with image, model and settings. Exit code 1: a case failed, or the run did not end, or it is void and not saved,
    because the engine ended or was restarted; with --compare: a case fails that passed before.
    """

    def follow(progress: ProofProgress) -> None:
        case = progress.cases[-1]
        if case.verdict is Verdict.FAIL and not session.as_json:
            session.err.say(f"{case.id}: {case.evidence}", "red")
        if session.err.interactive and not session.as_json:
            session.err.standing(present.progress_text(progress))

    if other and (full or only or junit):
        raise UsageError("--compare asks nothing.", "Leave out --full, --case and --junit.")
    name = engine_name(session, name)

    async def work(context: Context) -> tuple[Proof, tuple[Proof, ...]]:
        if kept or other:  # a proof outlives its engine
            proofs = context[Prover].kept()
            engine = same_name(name, [proof.conditions.engine for proof in proofs])
            if not engine:
                engine = (await find_container(context, name)).name
                raise UsageError(f"{engine} was never proved.", f"Prove it: spark-tui prove {engine}")
            return next(proof for proof in proofs if proof.conditions.engine == engine), proofs
        engine = (await find_container(context, name)).name
        if context.ports.has("models"):
            await context[Library].refresh()
        proof = await context[Prover].run(engine, follow, full=full, only=only)
        return proof, context[Prover].kept()

    saved = "" if only or kept or other else f"Verdicts so far are saved: spark-tui prove {name} --kept"
    stopped = Interrupted("The proof was stopped.", saved)
    proof, proofs = session.run(work, on_interrupt=lambda: stopped)
    session.err.settle()
    if other:
        earlier = compared_proof(proof, proofs, other)
        if earlier is None:
            raise UsageError(f"No proof to compare with: {other}.", f"Prove it again: spark-tui prove {name}")
        session.out.answer(present.comparison_object(earlier, proof), present.comparison(earlier, proof))
        return ExitCode.FAILED if changes(earlier, proof).broken else ExitCode.DONE
    session.out.answer(present.proof_object(proof), capitals(present.case_table(proof.cases)))
    session.out.page((Section(rows=present.summary(proof, proofs)),))
    if junit:
        session.err.say(f"written: {write_new(junit, present.junit(proof), '--junit')}", "dim")
    return ExitCode.DONE if proof.complete and not proof.ids(Verdict.FAIL) else ExitCode.FAILED
