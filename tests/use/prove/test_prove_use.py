"""Proofs over real HTTP: a sound server passes every case, and each fault of a parser is caught by its case."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.context import Context
from spark_tui.base.engine.container import (
    LABEL_MODEL,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
)
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import MeasurementVoid, UsageError
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import CheckpointSource
from spark_tui.base.settings import Settings
from spark_tui.machine.engine_api import VllmApi
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.proof import Proof, Verdict, changes, parser_advice
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.use.bench.use.bench import Benchmark
from spark_tui.use.prove.model.cases import CASES
from spark_tui.use.prove.use.prove import ProofProgress, Prover, Times
from tests.bench_kit import FakeLoad
from tests.fakes_api import FakeEngineApi
from tests.fakes_docker import FakeDocker
from tests.fakes_host import FakeArchive, FakeGpu, FakeHost, FakeSecrets
from tests.fakes_ports import Absent, Ports
from tests.kit import IMAGE, FixedPresets
from tests.prove_server import ProveServer

PARSERS = ("--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3", "--enable-auto-tool-choice")
ROOMY = Times(30.0, 30.0, None)
"""Seconds that no machine needs here: a case that ends by its time fails its test."""


class RealAnswers(FakeEngineApi):
    """A scripted engine whose answers to a proof come over HTTP."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.http = VllmApi()
        self.late = 0

    async def health(self, endpoint: Endpoint) -> Health:
        """Without an answer in time, as often as `late` says."""
        if self.late:
            self.late -= 1
            return Health.UNKNOWN
        return await super().health(endpoint)

    def ask(self, endpoint: Endpoint, path: str, body: bytes) -> Any:
        return self.http.ask(endpoint, path, body)

    async def close(self) -> None:
        await self.http.close()


class Listener(Protocol):
    """A server on a port of this machine."""

    port: int


class Lab:
    """A core with one engine, `qwen`, which is that server. `facts` are its model's files; None: not in the store."""

    def __init__(
        self,
        server: Listener,
        *flags: str,
        context: int = 40_000,
        model: str = "Qwen/Qwen3.6-35B-A3B",
        facts: CheckpointFacts | None = None,
    ) -> None:
        clock = SystemClock()
        self.docker = FakeDocker()
        self.docker.add_image(IMAGE)
        self.api = api = RealAnswers(clock, Health.OK, (ServedModel("qwen", model, context),))
        known = Missing("not in the model store") if facts is None else Ok(facts)
        ports = Ports(
            clock, self.docker, api, FakeHost(), FakeGpu(), FixedPresets(), FakeSecrets(), FakeArchive(),
            load=FakeLoad(clock), checkpoints=Absent(CheckpointSource, read=known),
        )  # fmt: skip
        self.context = Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))
        self.seen: list[ProofProgress] = []
        labels = (
            (LABEL_PRESET, "qwen"), (LABEL_MODEL, model), (LABEL_SERVED_NAME, "qwen"),
            (LABEL_RUNTIME, "vllm"), (LABEL_PORT, str(server.port)),
        )  # fmt: skip
        argv = ("vllm", "serve", model, *(flags or PARSERS), "--port", "8000")
        self.docker.add_container("qwen", image=IMAGE, labels=labels, argv=argv)

    async def prove(self, **options: Any) -> Proof:
        return await self.context[Prover].run("qwen", self.seen.append, **{"times": ROOMY, **options})


async def prove(fault: str, *flags: str, context: int = 40_000, **options: Any) -> Proof:
    async with ProveServer(fault).running() as server:
        lab = Lab(server, *flags, context=context)
        try:
            return await lab.prove(**options)
        finally:
            await lab.context.close()


async def test_a_sound_server_passes_every_case() -> None:
    proof = await prove("", full=True)
    assert {case.id: case.evidence for case in proof.cases if case.verdict is Verdict.FAIL} == {}
    assert set(proof.ids(Verdict.SKIP)) == {"chat.speculation", "chat.tool.64k"}
    assert proof.complete and proof.judged == len(CASES) - 2
    assert parser_advice(proof) == ()


async def test_other_programs_see_that_an_engine_is_proved() -> None:
    async with ProveServer("").running() as server:
        lab, seen = Lab(server), set[tuple[str, ...]]()
        state = lab.context[Benchmark].state
        await lab.context[Prover].run(
            "qwen", lambda _: seen.add(state.claimed("bench-")), only=("chat.tool",), times=ROOMY
        )
        await lab.context.close()
    assert (seen, state.claimed("bench-")) == ({("bench-qwen",)}, ())


async def test_a_case_that_passed_before_is_broken_when_it_fails_twice() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
        try:
            sound = await lab.prove()
            server.fault = "schema ignored"
            faulty = await lab.prove()
            assert "chat.schema" in changes(sound, faulty).broken
            again = await lab.context[Prover].asked_again("qwen", sound, faulty, times=ROOMY)
            assert changes(sound, again).broken == changes(sound, faulty).broken
            server.fault = ""
            asked = len(server.requests)
            again = await lab.context[Prover].asked_again("qwen", sound, faulty, times=ROOMY)
            assert changes(sound, again).broken == () and again.id == faulty.id
            assert len(server.requests) - asked < len(faulty.cases), "only what is in doubt"
            assert await lab.context[Prover].asked_again("qwen", sound, sound) is sound
        finally:
            await lab.context.close()


FAULTS = {
    "no tool parser": "chat.tool responses.tool messages.tool.stream",
    "markup in streams": "chat.tool.stream !chat.tool",
    "raw in responses": "responses.tool responses.tool.stream !chat.tool",
    "calls and markup": "chat.tool messages.tool",
    "no reasoning parser": "chat.reasoning chat.reasoning.stream !chat.tool",
    "half a think tag": "chat.reasoning !chat.text",
    "reasoning dropped": "chat.reasoning !chat.text",
    "always thinks": "chat.reasoning.off.stream !chat.tool",
    "calls lost while thinking": "chat.reasoning.tool !chat.tool",
    "first call only": "chat.tool.parallel messages.tool.parallel.stream !chat.tool",
    "numbers as text": "chat.arguments.nested !chat.tool",
    "nested object as text": "chat.arguments.nested.stream !chat.tool",
    "booleans as numbers": "chat.arguments.nested !chat.tool",
    "newlines lost": "chat.arguments.newlines.stream !chat.arguments.quotes.stream",
    "quotes lost": "chat.arguments.quotes.stream !chat.arguments.unicode.stream",
    "unicode broken": "chat.arguments.unicode.stream !chat.arguments.quotes.stream",
    "entities decoded": "chat.arguments.markup.stream !chat.arguments.quotes.stream",
    "long text cut": "chat.arguments.long.stream !chat.arguments.quotes.stream",
    "wrong tool of many": "chat.tools.40 !chat.tools.10",
    "required ignored": "chat.tool.required messages.tool.required !chat.tool",
    "named ignored": "chat.tool.named responses.tool.named !chat.tool",
    "none ignored": "chat.tool.none !chat.tool",
    "finish stop after calls": "chat.tool messages.tool !chat.text",
    "schema ignored": "chat.schema responses.schema !chat.text",
    "schema fenced": "chat.schema !chat.text",
    "stop ignored": "chat.stop messages.stop !chat.text",
    "limit ignored": "chat.length responses.length messages.length !chat.text",
    "result forgotten": "chat.tool.result responses.tool.result messages.tool.result !chat.tool",
    "loops": "chat.prose chat.prose.warm !chat.text",
    "garbles": "chat.prose !chat.text",
    "mixed scripts": "chat.prose !chat.text",
    "end tokens": "chat.text messages.text !chat.tool",
    "not repeatable": "chat.repeat !chat.text",
    "forgets long prompts": "chat.needle.25 chat.needle.50 !chat.tool.8k",
    "calls lost after long prompts": "chat.tool.8k !chat.tools.40",
    "same ids": "chat.tool.parallel !chat.tool",
    "no ids": "chat.tool chat.tool.stream !chat.text",
    "arguments cut": "chat.tool !responses.tool",
    "arguments as object": "chat.tool !messages.tool",
    "arguments encoded twice": "chat.tool !messages.tool",
    "usage zero": "chat.text !messages.text",
    "no usage": "chat.text chat.text.stream !messages.text",
    "no logprobs": "chat.logprobs !chat.text",
    "one piece": "chat.text.stream !chat.text",
    "no index": "chat.tool.stream !chat.tool",
    "index zero": "chat.tool.parallel.stream !chat.tool.parallel",
    "name twice": "chat.tool.stream !chat.tool",
    "id changes": "chat.tool.stream !chat.tool",
    "arguments repeated": "chat.tool.stream !chat.tool",
    "no finish": "chat.text.stream !chat.text",
    "late content": "chat.text.stream !chat.text",
    "no done": "chat.text.stream !chat.text",
    "error inside": "chat.text.stream !chat.text",
    "responses deltas differ": "responses.tool.stream !responses.tool",
    "responses never complete": "responses.text.stream !responses.text",
    "messages input as text": "messages.tool !messages.text",
    "messages block not opened": "messages.tool.stream !messages.tool",
    "messages block not closed": "messages.text.stream !messages.text",
    "messages never stop": "messages.text.stream !messages.text",
}
"""Each fault: the cases that it fails, and with `!` one that it must not."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_planted_fault_is_caught_by_its_case(fault: str) -> None:
    wanted = {id_ for id_ in FAULTS[fault].split() if not id_.startswith("!")}
    sound = {id_[1:] for id_ in FAULTS[fault].split() if id_.startswith("!")}
    proof = await prove(fault, only=(*wanted, *sound))
    failed = set(proof.ids(Verdict.FAIL))
    assert wanted <= failed and not sound & failed, dict.fromkeys(("differs",), wanted ^ failed)
    assert sound <= set(proof.ids(Verdict.PASS))


async def test_a_server_without_the_other_apis_is_judged_by_chat_alone() -> None:
    proof = await prove("chat only")
    skipped = proof.ids(Verdict.SKIP)
    assert not proof.ids(Verdict.FAIL)
    assert all(case.id in skipped for case in CASES if case.id.startswith(("responses.", "messages.")))


async def test_a_failing_parser_names_the_one_that_the_family_needs() -> None:
    proof = await prove("no tool parser", "--tool-call-parser", "hermes", only=("chat.tool",))
    assert parser_advice(proof) == ("Qwen models need tool_call_parser=qwen3_coder; it runs with hermes.",)
    proof = await prove("no reasoning parser", "--max-num-seqs", "4", only=("chat.reasoning",))
    assert parser_advice(proof) == ("Qwen models need reasoning_parser=qwen3; none is set.",)


async def test_a_short_context_and_a_long_prompt_without_time_are_skipped() -> None:
    proof = await prove("", context=4096)
    assert {"chat.tool.8k", "chat.needle.90"} <= set(proof.ids(Verdict.SKIP)) | set(proof.ids(Verdict.PASS))
    assert "chat.tool.8k" in proof.ids(Verdict.SKIP)
    proof = await prove("", context=262_144)
    assert set(proof.ids(Verdict.SKIP)) >= {"chat.needle.25", "chat.needle.90", "chat.tool.32k"}


async def test_an_engine_that_answers_nothing_any_more_ends_the_run_and_voids_it() -> None:
    async with ProveServer("dies").running() as server:
        lab = Lab(server)
        with pytest.raises(MeasurementVoid):
            await lab.prove()
        assert len(lab.seen[-1].cases) < len(CASES)
        assert lab.context[Prover].kept() == lab.context.store.world[PROOFS] == ()
        await lab.context.close()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_proof_of_an_engine_that_ended_or_was_restarted_is_void_though_all_is_answered(
    *, restarted: bool
) -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)

        def seen(progress: ProofProgress) -> None:
            if len(progress.cases) == 10 and restarted:
                lab.docker.restart_by_policy("qwen")
            elif len(progress.cases) == 10:
                lab.docker.end("qwen", 137)

        with pytest.raises(MeasurementVoid):
            await lab.context[Prover].run("qwen", seen, times=ROOMY)
        assert lab.context[Prover].kept() == lab.context.store.world[PROOFS] == ()
        now = lab.docker.named("qwen")
        assert now is not None and now.running
        await lab.context.close()


async def test_an_engine_that_does_not_answer_is_an_error_and_nothing_is_kept() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
    with pytest.raises(MeasurementVoid):
        await lab.prove()
    assert lab.context[Prover].kept() == ()
    await lab.context.close()


def compiles(body: dict[str, Any]) -> bool:
    """Whether a request, as the server has it, asks for a grammar, log probabilities or a long prompt."""
    forced = body.get("tool_choice") not in (None, "auto", "none", {"type": "auto"}, {"type": "none"})
    schema = body.get("response_format") or (body.get("text") or {}).get("format")
    return bool(forced or schema or body.get("logprobs")) or len(json.dumps(body)) > 20_000


async def test_what_may_make_an_engine_compile_comes_last_and_is_left_out_on_request() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
        await lab.prove(full=True)
        asked = [compiles(body) for _, body in server.requests]
        assert asked == sorted(asked) and {*asked} == {False, True}
        kept = lab.context[Prover].kept()
        server.requests.clear()
        proof = await lab.prove(compiles=False)
        assert not any(compiles(body) for _, body in server.requests)
        assert proof.complete and lab.context[Prover].kept() == kept, "a part is not kept"
        await lab.context.close()


async def test_an_engine_on_a_busy_machine_may_be_late_to_say_that_it_serves() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
        lab.api.late = 3
        assert (await lab.prove(only=("chat.text",))).ids(Verdict.FAIL) == ()
        await lab.context.close()


@pytest.mark.parametrize("fault", ["fails", "garbage"])
async def test_an_engine_that_only_errs_fails_every_case_and_ends(fault: str) -> None:
    proof = await prove(fault)
    assert proof.ending is RunOutcome.COMPLETED
    assert not proof.ids(Verdict.PASS)


async def test_a_stream_without_an_end_is_cut() -> None:
    proof = await prove("endless", only=("chat.text.stream",))
    assert proof.ids(Verdict.FAIL) == ("chat.text.stream",)


async def test_an_answer_that_never_comes_fails_by_its_time() -> None:
    proof = await prove("hangs", only=("chat.text.stream",), times=Times(0.2, 30.0, None))
    assert proof.ids(Verdict.FAIL) == ("chat.text.stream",)


async def test_a_stop_keeps_the_verdicts_so_far_and_frees_the_server() -> None:
    stop = asyncio.Event()
    async with ProveServer().running() as server:
        lab = Lab(server)

        def seen(progress: ProofProgress) -> None:
            lab.seen.append(progress)
            server.fault = "hangs"
            stop.set()

        proof = await lab.context[Prover].run("qwen", seen, stop=stop, times=ROOMY)
        assert proof.ending is RunOutcome.CANCELLED
        assert len(proof.ids(Verdict.PASS)) >= 1
        assert lab.context[Prover].kept() == (proof,)
        assert lab.context.store.world[PROOFS] == (proof,)
        while server.open:
            await asyncio.sleep(0.01)
        await lab.context.close()


async def test_four_questions_at_most_are_asked_at_once_and_a_part_is_not_kept() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
        proof = await lab.prove(only=("chat.tool",))
        assert server.most_open <= 4
        assert proof.judged and lab.context[Prover].kept() == ()
        assert [seen.total for seen in lab.seen][-1] == len(proof.cases) == len(lab.seen[-1].cases)
        with pytest.raises(UsageError):
            await lab.prove(only=("nothing",))
        await lab.context.close()


async def test_the_answer_with_speculation_is_compared_with_the_one_without() -> None:
    async with ProveServer().running() as server:
        lab = Lab(server)
        plain = await lab.prove()
        assert "chat.speculation" in plain.ids(Verdict.SKIP)
        config = ("--speculative-config", '{"method": "mtp"}')
        faster = Lab(server, *PARSERS, *config)
        faster.context[Prover].proofs.add(plain)
        assert "chat.speculation" in (await faster.prove()).ids(Verdict.PASS)
        other = tuple(
            replace(case, evidence="1, 4, 9, 144") if case.id == "chat.repeat" else case for case in plain.cases
        )
        differs = Lab(server, *PARSERS, *config)
        differs.context[Prover].proofs.add(replace(plain, cases=other))
        later = await differs.prove()
        assert "chat.speculation" in later.ids(Verdict.FAIL)
        assert changes(plain, later).broken == ()
        for each in (lab, faster, differs):
            await each.context.close()
