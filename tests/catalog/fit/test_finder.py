"""The finder: which candidates a search finds, and in which order."""

from __future__ import annotations

from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.errors import PresetError
from spark_tui.base.finding import Missing, Reading, Severity
from spark_tui.catalog.fit.use.finder import PresetFinder, Search, matches
from spark_tui.catalog.fit.use.recommend import Candidate, Disk
from spark_tui.catalog.presets.model.command import ToolCalls
from spark_tui.catalog.presets.model.preset import PresetFacts, PublishedSpeed, Tag
from spark_tui.catalog.presets.use.rights import load_presets
from tests.cases import all_cases
from tests.kit import PRESET, Kit
from tests.shipped import SHIPPED_FILES

SHIPPED = SHIPPED_FILES.load().presets


def made(name: str, speed: float = 0, **facts: object) -> Candidate:
    published = (PublishedSpeed(speed, "one stream", "somebody"),) if speed else ()
    return Candidate(replace(PRESET, name=name, facts=PresetFacts(family=name, published=published, **facts)))  # type: ignore[arg-type]


FAST = made("fast", 80, tags=(Tag.CODING,), context_tokens=8192)
SLOW = made("slow", 20, tags=(Tag.CHAT, Tag.VISION), notes=("It decodes text.",))
PLAIN = replace(made("plain"), disk=Disk.YES, tools=ToolCalls(on=True), judged=PresetError("no", "do", file="x"))
ALL = (SLOW, PLAIN, FAST)


@all_cases(
    ("search", "names"),
    [
        (Search(), "fast plain slow"),
        (Search(reverse=True), "slow plain fast"),
        (Search(sort="tok_s"), "fast slow plain"),
        (Search(sort="tok_s", reverse=True), "slow fast plain"),
        (Search(sort="disk"), "plain fast slow"),
        (Search(words=("cod",)), "fast"),
        (Search(words=("decod",)), "slow"),
        (Search(tags=(Tag.CHAT,)), "slow"),
        (Search(vision=True), "slow"),
        (Search(tools=True), "plain"),
        (Search(on_disk=True), "plain"),
        (Search(fits=True), "fast slow"),  # neither is judged yet
        (Search(most_bytes=1), "fast slow"),
    ],
)
def test_a_search_finds_in_order_and_what_is_unknown_comes_last(search: Search, names: str) -> None:
    assert " ".join(each.preset.name for each in search.of(ALL)) == names


async def test_only_what_the_words_leave_in_is_judged() -> None:
    kit, asked = Kit(*SHIPPED), []

    class Store:
        def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
            asked.append(model)
            return Missing("none")

    kit.context.ports.checkpoints = Store()
    load_presets(kit.context)
    found = await kit.context[PresetFinder].judged(
        kit.context.store.world, Search(words=("gpt-oss",), tags=(Tag.CHAT,))
    )
    assert 0 < len(found) < len(SHIPPED)
    assert all(each.judged is not None for each in found)
    assert set(asked) <= {each.preset.model for each in found}


def test_an_own_measurement_counts_before_a_published_one() -> None:
    assert replace(SLOW, own_speed=90.0).speed == 90
    assert Search(sort="tok_s").of((FAST, replace(SLOW, own_speed=90.0)))[0].preset.name == "slow"


def test_what_cannot_be_launched_is_an_error_and_does_not_fit() -> None:
    assert (PLAIN.worst, PLAIN.fits) == (Severity.ERROR, False)


def test_a_word_finds_every_shipped_preset_with_that_tag() -> None:
    for tag in Tag:
        tagged = {preset.name for preset in SHIPPED if tag in preset.facts.tags}
        assert tagged <= {preset.name for preset in SHIPPED if matches(preset, (tag.value,))}
    coding = {preset.name for preset in SHIPPED if matches(preset, ("cod",))}
    assert {preset.name for preset in SHIPPED if Tag.CODING in preset.facts.tags} <= coding
    assert "qwen3-30b-a3b-nvfp4-trtllm" not in coding, "`decode` is another word"


def test_every_shipped_preset_has_tags_that_its_own_facts_bear_out() -> None:
    for preset in SHIPPED:
        facts = preset.facts
        context = preset.default("max_model_len") or facts.context_tokens
        assert facts.tags, preset.name
        assert (Tag.VISION in facts.tags) == ("image" in facts.modalities), preset.name
        assert (Tag.AUDIO in facts.tags) == ("audio" in facts.modalities), preset.name
        if isinstance(context, int) and Tag.LONG_CONTEXT in facts.tags:
            assert context >= 131_072, preset.name
        if Tag.FAST in facts.tags:
            assert max(each.tokens_per_second for each in facts.published) >= 40, preset.name
        if Tag.SMALL in facts.tags and facts.weights_bytes:
            assert facts.weights_bytes <= 16 * 10**9, preset.name
