"""Proofs: asks an engine what agents ask, judges the answers, and keeps the verdicts."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import ModelKind
from spark_tui.base.context import Context
from spark_tui.base.engine.runtimes import is_pooling
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import (
    ApiKeyRejected,
    BadRequest,
    ContextOverflow,
    EngineUnreachable,
    NoSuchPath,
    RefusedError,
    SparkError,
    UnreachableError,
    UsageError,
)
from spark_tui.base.executors import in_thread
from spark_tui.base.ports import CheckpointSource, Clock, EngineApi
from spark_tui.base.quantities import human_duration
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.fit.model.draft import DraftRefused, DraftSource, kind_of
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.library import stored_commit
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.plan import Conditions
from spark_tui.observe.results.model.proof import (
    PATHS,
    Api,
    Area,
    CaseResult,
    Proof,
    Question,
    Verdict,
    changes,
    flag_value,
    request_body,
)
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.observe.results.use import ProofStore
from spark_tui.use.bench.use.bench import Benchmark, EngineCheck, finish_when_cancelled, unless_stopped
from spark_tui.use.prove.model.answer import ProveAnswer, read_answer
from spark_tui.use.prove.model.cases import (
    CASES,
    POOLING_CASES,
    VAULT,
    Case,
    SkippedCase,
    Target,
    filler_text,
    filler_tokens,
    judge,
    speech_cases,
)

STREAMS: Final = 4
"""Questions at once: as an agent with some tools of its own."""
END_SECONDS: Final = 5.0
MOST_CHARACTERS: Final = 2_000_000
"""Of one answer, with everything around it: the longest allowed one has 4,096 tokens."""
MOST_SILENT: Final = 3
"""Questions in a row that reach nothing after which the engine is taken for dead."""
LEAST_TOKENS: Final = 64
"""Of an answer, in a short context; elsewhere it may have half of the context at most."""
PROBE_WORDS: Final = 120
TOKENS_PER_WORD: Final = 3.0
"""Of the filler, where a server counts no tokens."""


class Times(Struct, frozen=True):
    """Seconds that one case, one case with a long prompt, and all of them may take; None: no limit."""

    case: float = 60.0
    deep: float = 120.0
    whole: float | None = 150.0


FULL_TIMES: Final = Times(180.0, 900.0, None)


class ProofProgress(Struct, frozen=True):
    """How far a proof is. `cases` are those that are over, in the order of their ends."""

    engine: str
    cases: tuple[CaseResult, ...] = ()
    total: int = 0
    seconds: float = 0.0


OnProgress = Callable[[ProofProgress], None]


class Prover(Struct, frozen=True):
    """Proves engines that serve. Kept proofs are a slice of the World too, the newest first."""

    api: EngineApi
    checkpoints: CheckpointSource
    benchmark: Benchmark
    proofs: ProofStore
    store: Store
    clock: Clock

    @classmethod
    def from_context(cls, context: Context) -> Prover:
        benchmark = context[Benchmark]
        return cls(context.api, context.checkpoints, benchmark, context[ProofStore], context.store, context.clock)

    def kept(self) -> tuple[Proof, ...]:
        """The newest first. Raises SparkError when they cannot be read."""
        return tuple(sorted(self.proofs.all(), key=lambda proof: -proof.at))

    async def run(
        self,
        name: str,
        report: OnProgress,
        *,
        full: bool = False,
        only: Collection[str] = (),
        compiles: bool = True,
        stop: asyncio.Event | None = None,
        times: Times | None = None,
    ) -> Proof:
        """Asks every case, or those whose id begins with one of `only`, and keeps the proof of a run over all. Without
        `compiles` those are left out that may make the engine compile.

        Setting `stop`, or cancelling the task, ends it early with the verdicts so far. Raises UsageError for unknown
        cases, MeasurementVoid where the engine ended or was restarted meanwhile, and the error that says why it cannot
        be asked at all.
        """
        endpoint, conditions = await self.benchmark.target(name)
        cases = [
            case
            for case in await self._cases(conditions)
            if (not only or case.id.startswith(tuple(only))) and (compiles or not case.may_compile)
        ]
        if not cases:
            raise UsageError(f"No case begins with {', '.join(only)}.", "Try chat.tool, responses or messages.")
        ended = stop or asyncio.Event()
        run = _ProveRun(
            self, endpoint, conditions, report, ended, times or (FULL_TIMES if full else Times()), full=full
        )
        with self.benchmark.claim(name):
            return await finish_when_cancelled(run.work(cases, keep=not only and compiles), ended, END_SECONDS)

    async def _cases(self, conditions: Conditions) -> tuple[Case, ...]:
        """By what the engine gives back: its options say that, else its model's own files, else the model's name."""
        if is_pooling(conditions.flags):
            return POOLING_CASES
        facts = await in_thread(self.checkpoints.read, conditions.model, conditions.revision)
        with suppress(DraftRefused):
            if kind_of(DraftSource(conditions.model, facts)) is ModelKind.SPEECH:
                return speech_cases()
        return CASES

    async def asked_again(self, name: str, earlier: Proof, proof: Proof, *, times: Times | None = None) -> Proof:
        """`proof` with the second verdict of each case that passed in `earlier` and fails: models are not repeatable,
        and one failure may be chance. Raises as `run`."""
        broken = changes(earlier, proof).broken
        if not broken:
            return proof
        again = await self.run(name, lambda _: None, full=proof.full, only=broken, times=times)
        second = {case.id: case for case in again.cases if case.id in broken and case.verdict is not Verdict.SKIP}
        return replace(proof, cases=tuple(second.get(case.id, case) for case in proof.cases))

    def baseline(self, conditions: Conditions) -> str:
        """What this model answered to `chat.repeat` when it ran with the other setting of speculation."""
        for proof in self.kept():
            then = proof.conditions
            same = (then.model, then.revision) == (conditions.model, conditions.revision)
            if same and speculates(then) is not speculates(conditions):
                repeat = next((case for case in proof.cases if case.id == "chat.repeat"), None)
                if repeat is not None and repeat.verdict is Verdict.PASS:
                    return repeat.evidence
        return ""


def speculates(conditions: Conditions) -> bool:
    return bool(conditions.speculation) or any(flag.startswith("--speculative") for flag in conditions.flags)


class _ProveRun:
    def __init__(
        self,
        prover: Prover,
        endpoint: Endpoint,
        conditions: Conditions,
        report: OnProgress,
        stop: asyncio.Event,
        times: Times,
        *,
        full: bool,
    ) -> None:
        self._prover = prover
        self._endpoint = endpoint
        self._conditions = conditions
        self._report = report
        self._stop = stop
        self._times = times
        self._clock = prover.clock
        self._began = prover.clock.monotonic()
        self._at = prover.clock.now()
        self._commit = stored_commit(prover.store.world[LIBRARY], conditions.model)
        self._results: list[CaseResult] = []
        self._total = 0
        self._silent = 0
        self._dead = ""
        self._tokens_per_word = TOKENS_PER_WORD
        self._target = Target(
            model=conditions.served_name or conditions.model,
            context_tokens=conditions.context_tokens,
            reasoning_parser=flag_value(conditions.flags, "--reasoning-parser"),
            speculates=speculates(conditions),
            baseline=prover.baseline(conditions),
            full=full,
        )

    async def work(self, cases: Sequence[Case], *, keep: bool) -> Proof:
        self._total = len(cases)
        check = EngineCheck(self._prover.benchmark, self._stop)
        await check.begin(self._conditions.engine)
        async with check.watching():
            if cases[0].area not in (Area.VECTORS, Area.SPEECH):
                await self._probe()
            asking = await unless_stopped(self._ask_all(cases), self._stop)
            if not asking.cancelled():
                asking.result()
            if self._dead:
                raise EngineUnreachable(f"{self._conditions.engine} does not answer any more: {self._dead}", "")
        proof = self._proof(cases)
        if keep and proof.judged:
            self._prover.proofs.add(proof)
            self._prover.store.put(PROOFS, self._prover.kept())
        return proof

    def _proof(self, cases: Sequence[Case]) -> Proof:
        """The verdicts in the order of the table; what had no turn is skipped."""
        done = {result.id: result for result in self._results}
        ending, reason = RunOutcome.COMPLETED, ""
        if self._stop.is_set():
            ending, reason = RunOutcome.CANCELLED, "stopped before its end"
        return Proof(
            id=uuid.uuid4().hex[:10],
            at=self._at,
            conditions=self._conditions,
            cases=tuple(
                done.get(case.id) or CaseResult(case.id, case.area, Verdict.SKIP, reason or "no turn") for case in cases
            ),
            ending=ending,
            reason=reason,
            seconds=self._clock.monotonic() - self._began,
            full=self._target.full,
            commit=self._commit,
        )

    async def _probe(self) -> None:
        """A first question, whose usage gives how many tokens a word of filler has. Raises what keeps it from being
        asked at all; what is wrong with its answer is for the cases to find."""
        question = Question("Reply with one word: ready", most_tokens=8, thinking=False)
        filler = filler_text(PROBE_WORDS)
        try:
            async with asyncio.timeout(self._times.deep):
                answer = await self._answer(question, filler)
        except (UnreachableError, ApiKeyRejected, RefusedError):
            raise
        except (SparkError, TimeoutError):
            return
        if answer.prompt_tokens:
            self._tokens_per_word = answer.prompt_tokens / len(filler.split())

    async def _ask_all(self, cases: Sequence[Case]) -> None:
        """In the order of the table; what may make the engine compile begins when all else is over."""
        deep = deque(case for case in cases if case.area is Area.DEPTH)
        for compiles in (False, True):
            turn = deque(case for case in cases if case.may_compile is compiles and case not in deep)
            await asyncio.gather(*(self._stream(turn) for _ in range(STREAMS)))
        await self._stream(deep)

    async def _stream(self, cases: deque[Case]) -> None:
        while cases and not self._dead:
            case = cases.popleft()
            began = self._clock.monotonic()
            verdict, evidence = await self._verdict(case)
            seconds = self._clock.monotonic() - began
            self._results.append(CaseResult(case.id, case.area, verdict, evidence, round(seconds, 3)))
            self._report(
                ProofProgress(
                    self._conditions.engine, tuple(self._results), self._total, self._clock.monotonic() - self._began
                )
            )

    async def _verdict(self, case: Case) -> tuple[Verdict, str]:
        """Never raises for what a server does."""
        whole, spent = self._times.whole, self._clock.monotonic() - self._began
        if case.full and not self._target.full:
            return Verdict.SKIP, "only in a full run"
        if whole is not None and spent > whole:
            return Verdict.SKIP, f"no time left after {human_duration(whole)}: a full run has no limit"
        seconds = self._times.deep if case.area is Area.DEPTH else self._times.case
        try:
            filler = self._filler(case.question)
            async with asyncio.timeout(seconds):
                answers = [await self._answer(case.question, filler) for _ in range(2 if case.twice else 1)]
        except SkippedCase as skipped:
            return Verdict.SKIP, str(skipped)
        except TimeoutError:
            return Verdict.FAIL, f"the answer did not end within {human_duration(seconds)}"
        except ContextOverflow as error:
            return Verdict.SKIP, error.summary
        except NoSuchPath as error:
            return (Verdict.FAIL if case.question.api is Api.CHAT else Verdict.SKIP), error.summary
        except UnreachableError as error:
            self._silent += 1
            if self._silent >= MOST_SILENT:
                self._dead = error.summary
            return Verdict.FAIL, error.summary
        except SparkError as error:
            # An engine of vectors refuses to score, and the other way round.
            refused = case.area is Area.VECTORS and isinstance(error, BadRequest)
            return Verdict.SKIP if refused else Verdict.FAIL, truncate(
                clean_line(" ".join((error.summary, error.detail)).strip()), 300
            )
        self._silent = 0
        return judge(case, self._target, tuple(answers))

    def _filler(self, question: Question) -> str:
        tokens = filler_tokens(question, self._target)
        return filler_text(round(tokens / self._tokens_per_word), VAULT) if tokens else ""

    async def _answer(self, question: Question, filler: str) -> ProveAnswer:
        room = max((self._target.context_tokens or question.most_tokens * 2) // 2, LEAST_TOKENS)
        question = replace(question, most_tokens=min(question.most_tokens, room))
        body = request_body(question, self._target.model, filler)
        payloads, size = [], 0
        async with aclosing(self._prover.api.ask(self._endpoint, PATHS[question.api], body)) as answer:
            async for payload in answer:
                payloads.append(payload)
                size += len(payload)
                if size > MOST_CHARACTERS:
                    return ProveAnswer(faults=("the answer does not end",))
        return read_answer(question, payloads)
