"""The Prove page of Bench by keys: a proof under way, stopped, failed, stale; its badge on Home and Presets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import TabbedContent

from spark_tui.base.finding import EventKind, Severity
from spark_tui.catalog.fit.use.finder import preset_badge
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.proof import (
    Area,
    CaseResult,
    Proof,
    Verdict,
    badge,
    engine_badge,
    identity_of,
    identity_of_engine,
)
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.tui.modals import ChoiceDialog
from spark_tui.use.prove.screen.bench import BenchScreen
from spark_tui.use.prove.use.prove import Prover
from tests.bench_kit import SPARK
from tests.kit import PRESET
from tests.prove_server import ProveServer
from tests.tui.kit import Sight
from tests.use.bench.test_bench_screen import BenchKit, looking


@asynccontextmanager
async def proving(fault: str = "", size: tuple[int, int] = (120, 36)) -> AsyncIterator[tuple[Sight, BenchScreen]]:
    """The Bench screen with one engine that answers a proof."""
    kit = BenchKit("qwen")
    kit.server = ProveServer(fault)  # type: ignore[attr-defined]
    kit.api.ask = kit.server.ask  # type: ignore[attr-defined]
    async with looking(kit, size) as (sight, bench):
        await sight.until(lambda: bool(bench.offers("prove_engine")))
        yield sight, bench


async def prove(sight: Sight) -> Proof:
    """The first choice of the dialog, to its end."""
    await sight.press("I")
    await sight.until(lambda: isinstance(sight.app.screen, ChoiceDialog))
    await sight.press("enter")
    await sight.until(lambda: bool(sight.app.world[PROOFS]) and not sight.on(BenchScreen).measuring)
    return sight.app.world[PROOFS][0]


async def test_a_proof_by_keys_is_kept_and_shown_with_its_failures_first() -> None:
    async with proving("schema fenced") as (sight, bench):
        await sight.press("right", "right", "right", "right")
        await sight.until_seen("was not proved yet", "I proves it")
        proof = await prove(sight)
        schemas = {f"{api}.schema{end}" for api in ("chat", "responses") for end in ("", ".stream")}
        assert set(proof.ids(Verdict.FAIL)) == schemas
        assert bench.query_one(TabbedContent).active == "prove-page"
        await sight.until_seen(
            f"{len(proof.ids(Verdict.PASS))} of {proof.judged} cases pass", "chat.schema", "not JSON"
        )
        await sight.press("1")
        await sight.until_seen("proof", f"4 of {proof.judged} failed")


async def test_a_proof_is_cancelled_with_c_and_keeps_its_verdicts() -> None:
    async with proving() as (sight, bench):
        reached = asyncio.Event()
        server: Any = sight.kit.server  # type: ignore[attr-defined]

        async def ask(*asked: Any) -> AsyncGenerator[str, None]:
            if len(server.requests) > 8:
                reached.set()
                await asyncio.Event().wait()
            async for payload in server.ask(*asked):
                yield payload

        sight.kit.api.ask = ask  # type: ignore[method-assign, assignment]
        await sight.press("I")
        await sight.until(lambda: isinstance(sight.app.screen, ChoiceDialog))
        await sight.press("enter")
        await sight.until(lambda: reached.is_set() and bench.offers("cancel_bench"))
        await sight.press("I")
        assert sight.app.screen is bench, "one at a time"
        await sight.press("c")
        await sight.until(lambda: bool(sight.app.world[PROOFS]) and not bench.measuring)
        proof = sight.app.world[PROOFS][0]
        assert (proof.ending, bool(proof.ids(Verdict.PASS))) == (RunOutcome.CANCELLED, True)
        assert badge(proof).text.startswith("partly proved")


async def test_a_proof_is_void_where_the_engine_ends_and_it_runs_again() -> None:
    async with proving() as (sight, bench):
        server: Any = sight.kit.server  # type: ignore[attr-defined]

        async def ask(*asked: Any) -> AsyncGenerator[str, None]:
            if len(server.requests) == 8:
                sight.kit.docker.end("qwen", 137)
            async for payload in server.ask(*asked):
                yield payload

        sight.kit.api.ask = ask  # type: ignore[method-assign, assignment]
        await sight.press("I")
        await sight.until(lambda: isinstance(sight.app.screen, ChoiceDialog))
        await sight.press("enter")
        await sight.until(lambda: bool(server.requests) and not bench.measuring)
        assert sight.app.world[PROOFS] == () == sight.kit.context[Prover].kept()
        [event] = [each for each in sight.kit.context.store.world.events if each.kind is EventKind.BENCH]
        assert event.severity is Severity.ERROR
        now = sight.kit.docker.named("qwen")
        assert now is not None and now.running


async def test_an_engine_that_changed_makes_its_proof_stale() -> None:
    async with proving() as (sight, bench):
        proof = await prove(sight)
        view = next(iter(bench.world.known(ENGINES)))
        assert identity_of(proof) == identity_of_engine(view)
        changed = {
            "the image": replace(view, container=replace(view.container, image_id="sha256:other")),
            "the settings": replace(view, container=replace(view.container, argv=(*view.container.argv, "--x", "1"))),
            "the model's revision": replace(
                view, container=replace(view.container, argv=(*view.container.argv, "--revision", "abc"))
            ),
        }
        assert [engine_badge((proof,), each).text for each in (view, *changed.values())] == [  # type: ignore[union-attr]
            "proved", *(f"stale: {what} changed" for what in changed)
        ]  # fmt: skip
        moved = engine_badge((replace(proof, commit="aaaa"),), view, "bbbb")
        assert moved is not None and moved.text == "stale: the model's revision changed"
        assert engine_badge((replace(proof, conditions=replace(proof.conditions, model="org/other")),), view) is None
        await sight.press("1")
        await sight.until_seen("proof", "proved")


def test_a_preset_has_the_badge_of_its_last_run() -> None:
    conditions = replace(SPARK, preset=PRESET.name, image=PRESET.image)
    proof = Proof("one", 1.0, conditions, (CaseResult("chat.text", Area.TEXT, Verdict.PASS),))
    assert preset_badge((), PRESET) is None
    found = preset_badge((proof,), PRESET)
    assert found is not None and found.text == "proved"
    stale = preset_badge((proof,), replace(PRESET, image="vllm/vllm-openai:other"))
    assert stale is not None and stale.text == "stale: the image changed"


PROVED = Proof(
    "one", 1.0, replace(SPARK, preset=PRESET.name, image=PRESET.image, image_id="sha256:one", revision=""),
    (CaseResult("chat.text", Area.TEXT, Verdict.PASS),), commit="aaaa",
)  # fmt: skip


@pytest.mark.parametrize(
    ("proof", "preset", "now", "text"),
    [
        (PROVED, PRESET, {"commit": "aaaa", "image_id": "sha256:one"}, "proved"),
        (PROVED, PRESET, {"commit": "bbbb"}, "stale: the model's revision changed"),
        (PROVED, PRESET, {"image_id": "sha256:two"}, "stale: the image changed"),
        (PROVED, replace(PRESET, model_revision="cccc"), {}, "stale: the model's revision changed"),
        (replace(PROVED, commit=""), PRESET, {"commit": "bbbb"}, "proved"),
        (
            replace(PROVED, conditions=replace(PROVED.conditions, revision="cccc")),
            replace(PRESET, model_revision="cccc"), {"commit": "bbbb"}, "proved",
        ),
    ],
    ids=["same", "model updated", "tag pulled again", "now pinned", "commit unknown", "pinned"],
)  # fmt: skip
def test_a_preset_s_proof_is_stale_when_a_launch_would_run_something_else(
    proof: Proof, preset: Preset, now: dict[str, str], text: str
) -> None:
    found = preset_badge((proof,), preset, **now)
    assert found is not None and found.text == text


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_layout(size: tuple[int, int], snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    async with proving("schema fenced", size) as (sight, _):
        await prove(sight)
        await sight.until_seen("chat.schema", "docker OK", "MEM", "GPU")
        sight.app.clear_notifications()
        for _ in range(5):  # what is read last
            await sight.kit.clock.advance(1.0)
            await sight.pilot.pause()
        picture = sight.app.export_screenshot(title="prove", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
