"""Good starts are remembered with what makes them good, and a preset is pinned to one by its digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET, PublishedPort
from spark_tui.base.errors import ImageNotFound, RefusedError, SparkError, UsageError
from spark_tui.base.finding import Missing, Ok, Severity
from spark_tui.base.host.vitals import GpuReading
from spark_tui.catalog.fit.use.finder import preset_badge
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS, Origin, Preset
from spark_tui.catalog.presets.use.comparing import preset_diff
from spark_tui.catalog.presets.use.pins import ImageMatch, Pins
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.observe.explain.model.starts import MOST_GOOD, StartRecord, digest_for
from spark_tui.observe.explain.model.timeline import StartOutcome
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.model.proof import Area, CaseResult, Proof, Verdict
from spark_tui.observe.results.use import measured_starts
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from tests.bench_kit import SPARK
from tests.fakes_history import FakeHistory
from tests.fakes_host import EPOCH
from tests.kit import IMAGE, Kit
from tests.log_fixtures import read_log

GOOD, OTHER = f"sha256:{'0a' * 32}", f"sha256:{'0b' * 32}"
NAME = "vllm/vllm-openai"
RECIPE = f"""\
# A preset that comes with the program.
model: org/qwen
container: {IMAGE}  # moves
defaults: {{port: 8000, max_model_len: 4096}}
command: vllm serve {{model}} --port {{port}} --max-model-len {{max_model_len}}
"""
START = StartRecord(
    "c1", EPOCH - 9000, "qwen", "qwen", IMAGE, "sha256:1", ready=True, outcome=StartOutcome.STOPPED, seconds=60.0,
    runtime="vllm", image_digest=f"{NAME}@{GOOD}", ended_at=EPOCH - 4000,
)  # fmt: skip
PORT = (PublishedPort(8000, 8000),)
LOG = (*read_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"), "INFO:     Application startup complete.")


class Place(Kit):
    """A core on real preset files, with a history of given starts."""

    def __init__(self, root: Path, *starts: StartRecord, text: str = RECIPE, own: str = "") -> None:
        super().__init__()
        self.own = root / "own"
        builtin = root / "builtin"
        builtin.mkdir()
        (builtin / "qwen.yaml").write_text(text)
        if own:
            self.own.mkdir()
            (self.own / "qwen.yaml").write_text(own)
        self.presets = PresetFiles(builtin, self.own)  # type: ignore[assignment]
        self.recipes = FolderRecipeStore(self.own)
        self.history = self.kept = FakeHistory(*starts)
        self.context = self.opened()

    @property
    def preset(self) -> Preset:
        found = self.presets.load().get("qwen")
        assert found is not None
        return found

    async def pin(self, digest: str = "") -> Preset:
        await self.context[History].load()
        return self.context[Pins].apply(await self.context[Pins].plan(self.preset, digest))

    async def refused(self, digest: str = "") -> SparkError:
        with pytest.raises(SparkError) as caught:
            await self.pin(digest)
        assert not self.own.exists() or len(list(self.own.iterdir())) == 1, "nothing is written"
        return caught.value


def start(**changes: Any) -> StartRecord:
    return replace(START, **changes)


# --- what is remembered -----------------------------------------------------------------------------------


async def test_a_start_remembers_digest_backends_options_kernel_and_driver(tmp_path: Path) -> None:
    kit = Place(tmp_path)
    kit.gpu.value = Ok(GpuReading("NVIDIA GB10", driver="580.95"), 0.0)
    kit.host.identity_value = replace(kit.host.identity_value, kernel="6.14.0-nvidia")
    kit.docker.add_image(IMAGE, digests=(f"mirror/x@{OTHER}", f"{NAME}@{GOOD}"), versions=(("CUDA", "13.0.2"),))
    argv = (
        "vllm",
        "serve",
        "org/qwen",
        "--max-model-len",
        "4096",
        "--port",
        "8000",
        "--api-key",
        "sk-planted0123456789",
    )
    kit.docker.add_container("qwen", ports=PORT, lines=LOG, labels=((LABEL_PRESET, "qwen"),), argv=argv)
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: any(each.image_digest and each.driver for each in kit.kept.known.values()))
    [found] = kit.kept.known.values()
    assert found.good
    assert found.image_digest == f"{NAME}@{GOOD}", "the name that was launched, not the mirror's"
    assert found.flags == ("--max-model-len 4096",)
    assert (found.kernel, found.driver) == ("6.14.0-nvidia", "580.95")
    assert found.backends.attention
    assert ("NVFP4", "moe") in {(form, part) for form, part, _ in found.backends.kernels}
    assert dict(found.backends.versions)["CUDA"] == "13.0.2"
    assert "sk-planted" not in repr(found)


async def test_kernel_and_driver_of_today_are_not_those_of_an_engine_that_has_ended(tmp_path: Path) -> None:
    kit = Place(tmp_path)
    kit.gpu.value = Ok(GpuReading("NVIDIA GB10", driver="580.95"), 0.0)
    kit.docker.add_container("qwen", ports=PORT, lines=LOG, labels=((LABEL_PRESET, "qwen"),))
    kit.docker.end("qwen", 0)
    async with kit.whole():
        await kit.until(lambda: bool(kit.kept.known))
    [found] = kit.kept.known.values()
    assert (found.ready, found.driver) == (True, "")


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"outcome": StartOutcome.READY, "ended_at": None}, True),
        ({"ready": False, "outcome": StartOutcome.FAILED}, False),
        ({"preset": ""}, False),
        ({"outcome": StartOutcome.FAILED, "ended_at": START.at + 90}, False),
        ({"outcome": StartOutcome.FAILED, "ended_at": START.at + 86_400}, True),
    ],
    ids=["stopped", "serving", "never-ready", "not-ours", "crashed-at-once", "crashed-after-a-day"],
)
def test_which_start_is_a_good_one(changes: dict[str, Any], good: bool) -> None:
    assert start(**changes).good is good


async def test_good_starts_are_found_behind_a_crash_loop_and_are_bounded(tmp_path: Path) -> None:
    failed = [
        start(container=f"f{n}", at=EPOCH - 900 + n, ready=False, outcome=StartOutcome.FAILED) for n in range(600)
    ]
    older = [start(container=f"g{n}", at=EPOCH - 90_000 + n) for n in range(MOST_GOOD + 5)]
    kit = Place(tmp_path, *older, *failed, start())
    await kit.context[History].load()
    found = kit.context[Pins].good_starts("qwen")
    assert found[0] == START
    assert len(found) == MOST_GOOD
    assert kit.context[Pins].good_starts("other") == ()


def test_of_several_names_in_registries_the_one_that_was_launched_counts() -> None:
    names = (f"mirror/x@{OTHER}", f"{NAME}@{GOOD}")
    assert digest_for(f"docker.io/{IMAGE}", names) == names[1]
    assert digest_for("ghcr.io/elsewhere:1", names) == names[0]
    assert digest_for("vllm/vllm-openai-cpu:1", (names[1],)) == names[1]
    assert digest_for(IMAGE, ()) == ""


# --- pin --------------------------------------------------------------------------------------------------


async def test_a_built_in_preset_becomes_an_own_copy_at_the_digest_that_served_well(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    found = await kit.pin()
    assert (found.origin, found.reference) == (Origin.USER, f"{IMAGE}@{GOOD}")
    assert (kit.own / "qwen.yaml").read_text() == RECIPE.replace(IMAGE, f"{IMAGE}@{GOOD}")
    assert kit.context.store.world[PRESETS].get("qwen") == found


async def test_an_own_preset_keeps_its_file_and_unpin_gives_it_back(tmp_path: Path) -> None:
    mine = RECIPE.replace("# A preset that comes with the program.", "# Mine.")
    kit = Place(tmp_path, START, own=mine)
    plan = await kit.context[Pins].plan(kit.preset, GOOD)
    assert [line for line in plan.diff if line[0] in "+-"] == [
        f"-container: {IMAGE}  # moves", f"+container: {IMAGE}@{GOOD}  # moves",
    ]  # fmt: skip
    assert not plan.copy
    await kit.pin()
    assert (await kit.refused()).summary == f"qwen is already pinned to {GOOD[:19]}."
    found = kit.context[Pins].apply(kit.context[Pins].unpin_plan(kit.preset))
    assert found.reference == IMAGE
    assert (kit.own / "qwen.yaml").read_text() == mine


async def test_a_preset_that_includes_another_is_pinned_in_its_own_file(tmp_path: Path) -> None:
    kit = Place(tmp_path, START, own="# Mine.\ninclude: qwen\n")
    assert (await kit.pin()).reference == f"{IMAGE}@{GOOD}"
    assert (kit.own / "qwen.yaml").read_text() == f"# Mine.\ncontainer: {IMAGE}@{GOOD}\ninclude: qwen\n"


async def test_an_older_digest_is_chosen_by_its_first_digits_and_any_other_in_full(tmp_path: Path) -> None:
    older = start(container="c0", at=START.at - 5000, image=f"{NAME}:v1", image_digest=f"{NAME}@{OTHER}")
    kit = Place(tmp_path, older, START)
    assert (await kit.pin("0b0b0b0b")).reference == f"{NAME}:v1@{OTHER}", "with the tag that it had"
    unknown = f"sha256:{'0c' * 32}"
    assert (await kit.pin(unknown)).reference == f"{NAME}:v1@{unknown}"
    with pytest.raises(UsageError):
        await kit.pin("0d0d0d0d")
    with pytest.raises(UsageError):
        await kit.pin("sha256:\x1b[31m")


async def test_a_start_recorded_without_a_digest_takes_that_of_its_image(tmp_path: Path) -> None:
    kit = Place(tmp_path, start(image_digest=""))
    kit.docker.add_image("kept:old", id="sha256:1", digests=(f"{NAME}@{GOOD}",))
    assert (await kit.pin()).reference == f"{IMAGE}@{GOOD}"


async def test_what_cannot_be_pinned_says_why_and_what_works(tmp_path: Path) -> None:
    never = Place(tmp_path / "a", start(ready=False))
    assert "spark-tui up qwen" in (await never.refused()).remedy
    built = Place(tmp_path / "b", start(image_digest=""))
    error = await built.refused()
    assert "was built or loaded on this machine" in error.summary
    assert "docker tag sha256:1" in error.remedy
    flow = Place(tmp_path / "c", START, text="{model: org/qwen, container: " + IMAGE + "}\n")
    assert f"container: {IMAGE}@{GOOD}" in (await flow.refused()).remedy
    off = Place(tmp_path / "d")
    off.kept.switch_off("the disk is full")
    assert "the disk is full" in (await off.refused()).summary
    locked = Place(tmp_path / "e", START)
    (tmp_path / "file").touch()
    locked.recipes = FolderRecipeStore(tmp_path / "file/own")
    locked.context = locked.opened()
    assert "cannot be written" in (await locked.refused()).summary


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()


async def test_a_file_that_changed_after_the_plan_is_not_overwritten(tmp_path: Path) -> None:
    kit = Place(tmp_path, START, own=RECIPE)
    await kit.context[History].load()
    plan = await kit.context[Pins].plan(kit.preset)
    (kit.own / "qwen.yaml").write_text(RECIPE + "# edited\n")
    with pytest.raises(RefusedError, match="changed meanwhile"):
        kit.context[Pins].apply(plan)
    assert (kit.own / "qwen.yaml").read_text() == RECIPE + "# edited\n"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (RECIPE, "is not pinned"),
        (RECIPE.replace(IMAGE, f"{NAME}@{GOOD}"), "no tag"),
        (RECIPE + f"metadata: {{spark_tui: {{image_digest: '{GOOD}'}}}}\n", "no tag"),
    ],
)
def test_only_a_pin_with_a_tag_can_be_undone(tmp_path: Path, own: str, says: str) -> None:
    kit = Place(tmp_path, own=own)
    with pytest.raises(RefusedError, match=says):
        kit.context[Pins].unpin_plan(kit.preset)


async def test_a_proof_of_the_pinned_digest_holds_for_the_pinned_preset(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    then = replace(SPARK, preset="qwen", image=IMAGE, image_id="sha256:1", image_digest=f"{NAME}@{GOOD}")
    proof = Proof("one", 1.0, then, (CaseResult("chat.text", Area.TEXT, Verdict.PASS),))
    pinned, other = await kit.pin(), await kit.pin(OTHER)
    badges = [badge.severity for each in (pinned, other) if (badge := preset_badge((proof,), each)) is not None]
    assert badges == [Severity.OK, Severity.WARNING]


def test_results_and_proofs_of_the_same_image_and_options_belong_to_a_start() -> None:
    good = start(flags=("--max-model-len 4096",))
    same = replace(SPARK, preset="qwen", image_id="sha256:1", flags=good.flags)
    proofs = [Proof(id_, 1.0, each, ()) for id_, each in (
        ("same", same), ("image", replace(same, image_id="sha256:2")), ("flags", replace(same, flags=())),
        ("preset", replace(same, preset="other")), ("demo", replace(same, simulated=True)),
    )]  # fmt: skip
    [found] = measured_starts([good], (), proofs)
    assert (found.results, found.proofs) == ((), ("same",))


# --- the image of today -----------------------------------------------------------------------------------


async def test_the_image_of_a_launch_now_is_compared_with_the_one_that_served_well(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    await kit.context[History].load()

    async def match() -> ImageMatch:
        return kit.context[Pins].last_good(kit.preset, await kit.context[Pins].image(kit.preset)).match

    assert await match() is ImageMatch.DIFFERS
    kit.docker.add_image(IMAGE, id="sha256:1")
    assert await match() is ImageMatch.SAME
    kit.docker.go_down()
    assert await match() is ImageMatch.UNKNOWN
    unknown = kit.context[Pins].last_good(kit.preset, Missing("Docker is stopped"))
    assert (unknown.match, unknown.why) == (ImageMatch.UNKNOWN, "Docker is stopped")
    assert kit.context[Pins].last_good(kit.preset, Ok(None, 0.0)).match is ImageMatch.ABSENT
    pinned = replace(kit.preset, image=f"{IMAGE}@{GOOD}")
    assert kit.context[Pins].last_good(pinned, Ok(None, 0.0)).match is ImageMatch.SAME


# --- a launch by digest -----------------------------------------------------------------------------------


async def test_a_pinned_preset_is_pulled_by_digest_launched_and_found_running_without_a_difference(
    tmp_path: Path,
) -> None:
    kit = Place(tmp_path, START)
    preset = await kit.pin()
    kit.docker.add_remote_image(preset.reference, id="sha256:1", digests=(f"{NAME}@{GOOD}",))
    async with kit.supervised():
        await kit.context[Launcher].launch(LaunchRequest(preset, Overrides(), warm=False), kit.report)
        again = await kit.context[Launcher].launch(LaunchRequest(preset, Overrides(), warm=False), kit.report)
    assert again.already_running
    assert kit.docker.calls.count(("pull", preset.reference)) == 1
    [container] = await kit.docker.containers()
    assert (container.image, container.image_id) == (f"{IMAGE}@{GOOD}", "sha256:1")
    image = await kit.docker.image(preset.reference)
    rows = preset_diff(kit.context[Preflight], preset, Overrides(), image, (container,)).differing
    assert "image" not in {row.setting for row in rows}


async def test_a_digest_that_is_here_under_its_tag_is_not_pulled_again(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    kit.docker.add_image(IMAGE, id="sha256:1", digests=(f"{NAME}@{GOOD}",))
    preset = await kit.pin()
    async with kit.supervised():
        await kit.context[Launcher].launch(LaunchRequest(preset, Overrides(), warm=False), kit.report)
    assert "pull" not in dict(kit.docker.calls)


async def test_a_digest_that_is_gone_from_the_registry_fails_the_pull_and_starts_nothing(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    preset = await kit.pin()
    with pytest.raises(ImageNotFound):
        await kit.context[Launcher].launch(LaunchRequest(preset, Overrides()), kit.report)
    assert await kit.docker.containers() == ()
