"""What to run: five needs on a Spark of 128 GB, one of 64 GB and a busy one, and what each rank rests on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.finding import Ok, Severity
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.catalog.fit.use.finder import PresetFinder, Search
from spark_tui.catalog.fit.use.recommend import (
    MANY_USERS,
    Candidate,
    LeftOut,
    Pick,
    Purpose,
    Speed,
    SpeedSource,
    Use,
    crowded,
    purpose_of,
    recommend,
    speed_of,
)
from spark_tui.catalog.presets.model.preset import Tag
from spark_tui.catalog.presets.use.rights import load_presets
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.results.model.plan import Conditions
from spark_tui.observe.results.model.proof import Badge, Proof
from tests.fakes_host import IDLE_MEMORY
from tests.kit import Kit
from tests.shipped import SHIPPED_FILES

SHIPPED = SHIPPED_FILES.load().presets
NEEDS = (
    purpose_of(Use.CHAT),
    purpose_of(Use.AGENT),
    purpose_of(Use.BATCH),
    purpose_of(Use.VISION),
    purpose_of(Use.AGENT, context=131_072, users=4),
)


async def recommended(
    total: int, free: int, purpose: Purpose, has_gpu: bool | None = None
) -> tuple[tuple[Pick, ...], tuple[LeftOut, ...]]:
    """On a machine of that many GiB, of which so many are available."""
    kit = Kit(*SHIPPED)
    kit.host.identity_value = replace(kit.host.identity_value, has_gpu=has_gpu)
    kit.secrets.token = Secret("hf_made")
    memory = replace(IDLE_MEMORY, total=total * GIB, available=free * GIB, free=free * GIB, cached=0)
    kit.host.memory_value = Ok(replace(memory, active_file=0, inactive_file=0), kit.clock.now())
    await kit.context[Collectors].collect_once()
    load_presets(kit.context)
    search = Search(context=purpose.context, users=purpose.users)
    return recommend(await kit.context[PresetFinder].judged(kit.context.store.world, search), purpose)


@pytest.mark.parametrize("purpose", NEEDS, ids=lambda each: f"{each.use}-{each.context}")
@pytest.mark.parametrize(("total", "free"), [(121, 112), (60, 55), (121, 30)], ids=["128GB", "64GB", "busy"])
async def test_what_is_recommended_serves_the_purpose_here(total: int, free: int, purpose: Purpose) -> None:
    picks, others = await recommended(total, free, purpose)
    assert len(picks) + len(others) == len(SHIPPED)
    assert picks
    for pick in picks:
        each = pick.candidate
        assert each.fits
        assert crowded(each) or (each.need or 0) <= free * GIB
        assert each.context is None or each.context >= (purpose.context or 0)
        assert purpose.use is not Use.AGENT or each.tools.on or each.tools.settable
        assert purpose.use is not Use.VISION or Tag.VISION in each.preset.facts.tags
        assert pick.speed.source
    assert all(each.reason for each in others)
    assert [pick.score for pick in picks] == sorted((pick.score for pick in picks), reverse=True)


async def test_without_a_gpu_nothing_that_needs_one_is_recommended() -> None:
    picks, others = await recommended(121, 112, purpose_of(Use.CHAT), has_gpu=False)
    assert picks == ()
    judged = [each.candidate for each in others if each.candidate.verdict is not None]
    assert {each.lacks_gpu for each in judged} == {True, False}
    assert {each.preset.name for each in judged if not each.lacks_gpu and each.preset.min_nodes == 1} == {"cpu-smollm2"}
    assert not [each for each in judged if each.fits and each.preset.name != "cpu-smollm2"]


async def best(total: int, free: int, purpose: Purpose) -> str:
    return (await recommended(total, free, purpose))[0][0].candidate.preset.name


async def test_the_first_is_the_most_capable_that_is_fast_enough_and_fits() -> None:
    assert await best(121, 112, purpose_of(Use.CHAT)) == "gpt-oss-120b"
    assert await best(60, 55, purpose_of(Use.CHAT)) != "gpt-oss-120b", "it does not fit into 64 GB"
    assert await best(121, 112, purpose_of(Use.VISION)) == "qwen3.6-35b-a3b-nvfp4"


async def test_for_many_users_the_throughput_of_many_streams_counts() -> None:
    """Nano in W4A4 gave 786 tok/s with sixteen streams and 58 with one, in W4A16 400 and 75."""
    picks, _ = await recommended(121, 112, purpose_of(Use.BATCH, users=16))
    speeds = {pick.candidate.preset.name: pick.speed for pick in picks}
    four, sixteen = speeds["nemotron-3-nano-30b-a3b-nvfp4"], speeds["nemotron3-nano-nvfp4-w4a16"]
    assert (four.rate, four.streams, four.basis) == (786, 16, SpeedSource.PUBLISHED)
    assert (sixteen.rate, sixteen.streams) == (400, 16)
    unknown = speeds["phi-4-multimodal-instruct-nvfp4"]
    assert (unknown.basis, unknown.streams) == (SpeedSource.ESTIMATED, 16)
    few = speed_of(picks[0].candidate, MANY_USERS - 1)
    assert few is not None
    assert few.streams == 1
    many = await recommended(121, 112, purpose_of(Use.CHAT, users=16))
    assert "of 40 wanted" in many[0][0].why


async def test_what_has_to_be_built_first_is_not_among_the_first_until_it_is_here() -> None:
    picks, _ = await recommended(121, 112, purpose_of(Use.BATCH, users=16))
    built = [pick for pick in picks if "/" not in pick.candidate.preset.image]
    assert {pick.candidate.preset.name for pick in picks[-2:]} == {pick.candidate.preset.name for pick in built}
    assert all("built first" in pick.why for pick in built)
    one = built[0].candidate
    assert one.verdict is not None
    here = replace(
        one, judged=replace(one.verdict, plan=replace(one.verdict.plan, image=ImageFacts("sha256:1", one.preset.image)))
    )
    again = {pick.candidate.preset.name: pick for pick in recommend([here], purpose_of(Use.BATCH, users=16))[0]}
    assert again[one.preset.name].score > 10 * built[0].score


async def test_each_rank_says_what_it_is_made_of() -> None:
    picks, _ = await recommended(121, 112, purpose_of(Use.CHAT))
    why = {pick.candidate.preset.name: pick.why for pick in picks}
    assert "size 24.7 B" in why["gpt-oss-120b"]
    assert "59 tok/s of 40 wanted" in why["gpt-oss-120b"]
    assert "licence unknown x0.85" in why["qwen3-next-80b-a3b-nvfp4"]
    order = [pick.candidate.preset.name for pick in picks]
    first, slower = order.index("qwen3.6-35b-a3b-nvfp4"), order.index("nemotron-3-super-120b-a12b-nvfp4")
    assert first < order.index("mistral-small-4-119b-nvfp4") < slower


async def test_every_reason_for_leaving_out_is_said() -> None:
    others = {each.candidate.preset.name: each.reason for each in (await recommended(60, 55, purpose_of(Use.AGENT)))[1]}
    assert "2 Sparks" in others["minimax-m2.7-awq"]
    assert "CPU" in others["cpu-smollm2"]
    assert "KV cache" in others["gpt-oss-120b"]
    assert "tool calls" in others["phi-4-multimodal-instruct-nvfp4"]
    assert "context" in others["qwen3-32b-ollama"]


async def test_a_measurement_here_counts_before_what_is_published_and_that_before_an_estimate() -> None:
    picks, _ = await recommended(121, 112, purpose_of(Use.CHAT))
    shipped = {pick.candidate.preset.name: pick for pick in picks}
    published = shipped["gpt-oss-120b"].candidate
    assert shipped["gpt-oss-120b"].speed.basis is SpeedSource.PUBLISHED
    assert shipped["diffusiongemma-26b-a4b-nvfp4"].speed.basis is SpeedSource.ESTIMATED
    measured = replace(published, own_speed=11.0)
    assert speed_of(measured) == Speed(11.0, SpeedSource.MEASURED, "")
    slow = [replace(measured, own_speed=3.0), *(pick.candidate for pick in picks if pick.candidate is not published)]
    assert recommend(slow, purpose_of(Use.CHAT))[0][0].candidate.preset.name != "gpt-oss-120b"


def test_what_could_not_be_judged_is_left_out_with_its_reason() -> None:
    picks, others = recommend([Candidate(SHIPPED[1])], purpose_of(Use.CHAT))
    assert (picks, bool(others[0].reason)) == ((), True)


@pytest.mark.parametrize(
    ("severity", "ahead"),
    [(None, False), (Severity.OK, True), (Severity.UNKNOWN, False), (Severity.WARNING, False), (Severity.ERROR, False)],
)
async def test_of_two_alike_the_proved_one_is_first_and_a_failed_one_last(
    severity: Severity | None, ahead: bool
) -> None:
    (one, *_), _ = await recommended(121, 112, purpose_of(Use.AGENT))
    badge = Badge("", severity, Proof("p", 1.0, Conditions("e", "m"), ())) if severity is not None else None
    first, other = one.candidate, replace(one.candidate, preset=replace(one.candidate.preset, name="zz"), proof=badge)
    picks, _ = recommend((first, other), purpose_of(Use.AGENT))
    assert (picks[0].candidate is other) is ahead
    last = replace(first, proof=Badge("", Severity.ERROR, Proof("p", 1.0, Conditions("e", "m"), ())))
    assert recommend((last, other), purpose_of(Use.AGENT))[0][0].candidate is (
        last if severity is Severity.ERROR else other
    )
