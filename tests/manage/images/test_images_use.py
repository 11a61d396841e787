"""Images: who uses them, moved tags, versions inside, what may be deleted, and every way in which asking fails."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.engine.image import PRESENT, patches, visible_patches
from spark_tui.base.errors import (
    DaemonNotRunning,
    DockerError,
    ImageNotFound,
    RefusedError,
    RegistryUnauthorized,
    RegistryUnreachable,
    SparkError,
    UsageError,
)
from spark_tui.base.finding import Missing, Stale
from spark_tui.catalog.presets.model.preset import Preset, PresetFacts
from spark_tui.manage.images.model import IMAGES, ImageEntry, ImagesView, ImageUser, TagState
from spark_tui.manage.images.show.images import image_page
from spark_tui.manage.images.use.images import Images
from spark_tui.observe.explain.model.starts import StartRecord
from tests.fakes_docker import FakeDocker
from tests.fakes_history import FakeHistory
from tests.kit import IMAGE, PRESET, FixedPresets, Kit

REPO = "vllm/vllm-openai"
OLD, NEW = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
GB = 1000**3


class Shelf(Kit):
    """A Kit with a history, and images of 20 GB of which a quarter is shared."""

    def __init__(self, *presets: Preset, history: FakeHistory | None = None) -> None:
        super().__init__(*presets)
        self.docker = FakeDocker()
        self.history = history or FakeHistory()
        self.context = self.opened()

    @property
    def images(self) -> Images:
        return self.context[Images]

    def image(self, name: str, digest: str = OLD, **changes: object) -> str:
        """A downloaded image; returns its id."""
        return self.docker.add_image(name, size=20 * GB, digests=(f"{name.partition(':')[0]}@{digest}",), **changes).id


def entry_of(view: ImagesView, name: str) -> ImageEntry:
    return next(each for each in view.entries if each.name == name)


def page_text(entry: ImageEntry, view: ImagesView) -> str:
    return "\n".join(row.text for section in image_page(entry, view, 0.0) for row in section.rows)


def started(image_id: str, at: float = 1.0, **changes: object) -> StartRecord:
    return replace(StartRecord("c", at, "qwen", "qwen", image_id=image_id, ready=True), **changes)  # type: ignore[arg-type]


def kinds(entry: ImageEntry) -> list[tuple[ImageUser, str]]:
    return [(use.kind, use.name) for use in entry.uses]


# --- the list ---------------------------------------------------------------------------------------------


async def test_each_image_has_its_users_and_others_are_only_counted() -> None:
    kit = Shelf(PRESET, replace(PRESET, name="other", image="acme/absent:1"))
    id_ = kit.image(IMAGE)
    kit.docker.add_image("postgres:17", size=GB)
    kit.docker.add_container("runs", image_id=id_)
    kit.docker.add_container("ended", image_id=id_, status=ContainerStatus.EXITED)
    kit.history = FakeHistory(started(id_))
    view = await kit.opened()[Images].refresh()
    assert kinds(entry_of(view, IMAGE)) == [
        (ImageUser.ENGINE, "runs"), (ImageUser.ENDED_ENGINE, "ended"), (ImageUser.LAST_START, "qwen"),
        (ImageUser.PRESET, "qwen"),
    ]  # fmt: skip
    absent = entry_of(view, "acme/absent:1")
    assert (absent.stored, absent.state, absent.presets) == (None, TagState.ABSENT, ("other",))
    assert (len(view.entries), view.others, view.other_bytes) == (2, 1, GB)


async def test_shared_layers_count_once_and_what_is_reclaimable_is_the_least() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    kit.image(f"{REPO}:v1")
    view = await kit.images.refresh()
    assert view.layers == 35 * GB, "15 each, and 5 that both have"
    assert view.reclaimable == 15 * GB
    assert [image.tags for image in view.unused] == [(f"{REPO}:v1",)]
    alone = Shelf(replace(PRESET, image="acme/absent:1"))
    alone.image(IMAGE)
    alone.image(f"{REPO}:v1")
    assert (await alone.images.refresh()).reclaimable == 35 * GB, "all of it: the shared part goes too"


async def test_what_docker_did_not_measure_is_unknown_and_not_zero() -> None:
    kit = Shelf(replace(PRESET, image="acme/absent:1"))
    kit.image(IMAGE)
    kit.docker._stored[IMAGE] = replace(kit.docker._stored[IMAGE], shared=None)
    view = await kit.images.refresh()
    assert view.reclaimable is None
    assert (await kit.images.plan_delete(IMAGE)).frees is None


async def test_without_docker_the_list_is_an_error_and_then_out_of_date() -> None:
    kit = Shelf(PRESET)
    kit.docker.go_down()
    with pytest.raises(DaemonNotRunning):
        await kit.images.refresh()
    assert isinstance(kit.context.store.world[IMAGES], Missing)
    kit.docker.come_back()
    await kit.images.refresh()
    kit.docker.go_down()
    with pytest.raises(DaemonNotRunning):
        await kit.images.refresh()
    assert isinstance(kit.context.store.world[IMAGES], Stale)


async def test_names_are_found_by_tag_id_and_digest() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE, id=f"sha256:{'ab' * 32}")
    kit.image("lmsysorg/sglang:nightly", NEW)
    for name in (IMAGE, f"docker.io/{IMAGE}", "vllm-openai:nightly", "abababab", OLD, OLD[7:20], f"{REPO}@{OLD[:19]}"):
        assert (await kit.images.entry(name)).name == IMAGE
    with pytest.raises(UsageError, match="Several"):
        await kit.images.entry("nightly")
    with pytest.raises(UsageError, match="No image"):
        await kit.images.entry("nothing")


# --- tags that moved --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (OLD, TagState.CURRENT),
        (NEW, TagState.MOVED),
        (ImageNotFound("No tag.", "Check it."), TagState.GONE),
        (RegistryUnauthorized("Login.", "Log in."), TagState.FAILED),
        (RegistryUnreachable("Away.", "Wait."), TagState.FAILED),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
async def test_the_registry_says_whether_a_tag_has_moved(answer: str | SparkError, state: TagState) -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    assert entry_of(await kit.images.refresh(), IMAGE).state is TagState.UNKNOWN
    kit.docker.digests[IMAGE] = answer
    assert entry_of(await kit.images.check(), IMAGE).state is state
    assert entry_of(await kit.images.refresh(), IMAGE).state is state, "remembered until it is asked again"


async def test_a_registry_that_is_away_is_asked_once_and_local_images_never() -> None:
    kit = Shelf(PRESET)
    names = [f"{REPO}:v{number}" for number in range(5)]
    for name in names:
        kit.image(name)
        kit.docker.digests[name] = RegistryUnreachable("Away.", "Wait.")
    kit.image("nvcr.io/nvidia/vllm:26.04-py3", NEW)
    kit.docker.digests["nvcr.io/nvidia/vllm:26.04-py3"] = NEW
    kit.docker.add_image("vllm-cpu:own")
    kit.docker.add_image(f"{REPO}@{NEW}", digests=(f"{REPO}@{NEW}",))
    view = await kit.images.check()
    states = {each.name: each.state for each in view.entries if each.stored is not None}
    assert [states[name] for name in names] == [TagState.FAILED] * 5
    assert states["nvcr.io/nvidia/vllm:26.04-py3"] is TagState.CURRENT
    assert (states["vllm-cpu:own"], states[f"{REPO}@{NEW}"]) == (TagState.LOCAL, TagState.PINNED)
    assert len(kit.docker.asked("registry_digest")) == 2


# --- versions inside --------------------------------------------------------------------------------------


async def test_versions_say_where_they_are_from_and_an_inspection_is_remembered() -> None:
    kit = Shelf(PRESET)
    id_ = kit.image(IMAGE, versions=(("CUDA", "12.8"), ("NCCL", "2.27")))
    kit.history = FakeHistory(started(id_, runtime="vllm", version="0.32.0"))
    images = kit.opened()[Images]
    seen = {each.title: (each.version, each.source) for each in (await images.entry(IMAGE)).versions}
    assert seen == {"CUDA": ("12.8", "image"), "NCCL": ("2.27", "image"), "vLLM": ("0.32.0", "start")}
    kit.docker.printed = (
        "a warning", json.dumps({"vllm": "0.33\x1b[31m", "nvidia-nccl": "2.28.3", "torch": "2.9", "x": "y", "cuda": 3}),
    )  # fmt: skip
    await images.inspect(IMAGE)
    for each in (images, kit.opened()[Images]):
        seen = {v.title: (v.version, v.source) for v in (await each.entry(IMAGE)).versions}
        assert seen["vLLM"][0].startswith("0.33") and "\x1b" not in seen["vLLM"][0]
        assert (seen["NCCL"], seen["torch"]) == (("2.28.3", "inspected"), ("2.9", "inspected"))
        assert seen["CUDA"] == ("12.8", "image"), "what was not found inside is not forgotten"


@pytest.mark.parametrize("printed", [(), ("no JSON",), ("[" * 20000,), ("null",)])
async def test_whatever_a_container_prints_is_no_crash(printed: tuple[str, ...]) -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    kit.docker.printed = printed
    if printed == ("null",):
        assert (await kit.images.inspect(IMAGE)).versions == ()
        return
    gc.collect()  # what other tests left has finalizers, which would run, and fail, at the bottom of a deep recursion
    with pytest.raises(DockerError) as caught:
        await kit.images.inspect(IMAGE)
    assert caught.value.remedy


class Interpreter(FakeDocker):
    """Runs the program of an inspection, with what an image has below `site`."""

    site = Path()

    async def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        await super().run_once(image, argv)
        assert argv[0] == "python3"
        code = [sys.executable, "-S", *argv[1:]]
        return tuple(subprocess.check_output(code, text=True, env={"PYTHONPATH": str(self.site)}).splitlines())


def built(site: Path, *patched: str) -> None:
    """The files of an image that the stack of the b12x kernels changes: as they were, or `patched`."""
    for id_, patch in visible_patches().items():
        if id_.startswith("b12x/") and patch.file:
            (site / patch.file).parent.mkdir(parents=True, exist_ok=True)
            text = 'admissible_archs = ["sm_120a"]\nif not arch == Arch.sm_120a:\n'
            text += "Arch.sm_121a = CUTE_DSL_ARCH\n" if id_ in patched else ""
            (site / patch.file).write_text(text)


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


async def test_an_inspection_says_which_patches_are_inside(tmp_path: Path) -> None:
    env = (("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-b12x"),)
    kit = Shelf(replace(PRESET, env=env, mods=("mods/nemotron-nano", "mods/of-nobody")))
    kit.docker = Interpreter()
    kit.context, kit.docker.site = kit.opened(), tmp_path
    kit.image(IMAGE)
    kit.image("vllm/other:1")
    before = entry_of(await kit.images.refresh(), IMAGE)
    layers = ("vllm", "libs", "dsl", "flashinfer")
    assert before.patches == {
        **dict.fromkeys((f"b12x/{each}" for each in layers), ""), "mods/nemotron-nano": "",
    }  # fmt: skip
    built(tmp_path, "b12x/dsl")
    distribution(tmp_path, "nvidia-cutlass-dsl-libs-cu13", "4.5.0")
    distribution(tmp_path, "vllm", "0.22.0")
    seen = await kit.images.inspect(IMAGE)
    assert {each.title: each.version for each in seen.versions} == {"vLLM": "0.22.0"}
    assert {id_: at for id_, at in seen.patches.items() if id_.startswith(("b12x/", "mods/nemotron"))} == {
        "b12x/vllm": PRESENT, "b12x/libs": "4.5.0", "b12x/dsl": PRESENT, "b12x/flashinfer": "absent",
        "mods/nemotron-nano": "absent",
    }  # fmt: skip
    text = page_text(seen, await kit.images.refresh())
    assert "vLLM has it" in text and "accept sm_121" in text and "[ai-muninn.com" in text
    other = await kit.images.inspect("vllm/other:1")
    assert "b12x/dsl" in other.patches, "what somebody patched is shown where no preset asks for it"
    assert not any(patches()[id_].since for id_ in other.patches), "what vLLM has itself is no news"
    again = await kit.opened()[Images].refresh()
    assert entry_of(again, IMAGE).patches == seen.patches, "remembered"


async def test_a_file_that_cannot_be_read_says_nothing_of_its_patch(tmp_path: Path) -> None:
    kit = Shelf(replace(PRESET, env=(("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-b12x"),)))
    kit.docker = Interpreter()
    kit.context, kit.docker.site = kit.opened(), tmp_path
    kit.image(IMAGE)
    built(tmp_path, "b12x/flashinfer")
    file = tmp_path / visible_patches()["b12x/dsl"].file
    file.unlink()
    file.symlink_to(file)
    seen = await kit.images.inspect(IMAGE)
    assert (seen.patches["b12x/dsl"], seen.patches["b12x/flashinfer"]) == ("", PRESENT)


async def test_an_inspection_without_a_history_lasts_while_the_program_runs() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    assert isinstance(kit.history, FakeHistory)
    kit.history.switch_off("the disk is full")
    kit.docker.printed = ('{"vllm": "0.33"}',)
    assert (await kit.images.inspect(IMAGE)).versions[0].version == "0.33"
    with pytest.raises(RefusedError):
        await Shelf(PRESET).images.inspect(IMAGE)


# --- deleting ---------------------------------------------------------------------------------------------


def by_container(kit: Shelf, id_: str) -> None:
    kit.docker.add_container("mine", image_id=id_)


def by_ended_container(kit: Shelf, id_: str) -> None:
    kit.docker.add_container("mine", image_id=id_, status=ContainerStatus.EXITED)


def by_pin(kit: Shelf, id_: str) -> None:
    kit.presets.catalogue = FixedPresets(replace(PRESET, name="mine", facts=PresetFacts(image_digest=OLD))).catalogue


def by_start(kit: Shelf, id_: str) -> None:
    assert isinstance(kit.history, FakeHistory)
    for start in (started(id_), started("sha256:later", 2.0, ready=False)):
        kit.history.add_start(replace(start, container=str(start.at)))


@pytest.mark.parametrize("use", [by_container, by_ended_container, by_pin, by_start], ids=lambda use: use.__name__)
async def test_what_is_used_or_kept_is_not_deleted_and_says_by_whom(use: Callable[[Shelf, str], None]) -> None:
    kit = Shelf(PRESET)
    use(kit, kit.image(IMAGE))
    plan = await kit.images.plan_delete(IMAGE)
    (obstacle,) = plan.obstacles
    assert obstacle.subject in ("mine", "qwen") and obstacle.remedy
    with pytest.raises(RefusedError, match=obstacle.subject):
        await kit.images.delete(plan)
    assert kit.docker.asked("remove_image") == []


async def test_an_image_that_a_preset_only_names_is_deleted_and_the_disk_has_its_room() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    kit.image(f"{REPO}:v1")
    assert isinstance(kit.history, FakeHistory)
    kit.history.add_start(started("sha256:another", 3.0))
    plan = await kit.images.plan_delete(IMAGE)
    assert (plan.frees, plan.entry.presets) == (15 * GB, ("qwen",))
    assert await kit.images.delete(plan) == 15 * GB
    assert entry_of(await kit.images.refresh(), IMAGE).stored is None
    assert kit.docker.asked("remove_image") == [IMAGE]


async def test_one_of_two_names_goes_alone_but_a_pin_keeps_both() -> None:
    kit = Shelf(PRESET)
    for name in (IMAGE, f"{REPO}:kept"):
        kit.image(name, id="sha256:one")
    kit.docker.add_container("mine", image_id="sha256:one")
    plan = await kit.images.plan_delete(IMAGE)
    assert (plan.others, plan.frees, plan.obstacles) == ((f"{REPO}:kept",), 0, ())
    by_pin(kit, "sha256:one")
    assert (await kit.images.plan_delete(IMAGE)).obstacles


async def test_an_image_that_changes_between_question_and_answer_stays() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    plan = await kit.images.plan_delete(IMAGE)
    id_ = kit.image(IMAGE, NEW, id="sha256:new")
    with pytest.raises(RefusedError, match="another image"):
        await kit.images.delete(plan)
    plan = await kit.images.plan_delete(IMAGE)
    kit.docker.add_container("mine", image_id=id_)
    with pytest.raises(RefusedError, match="mine"):
        await kit.images.delete(plan)


async def test_without_a_history_nothing_is_deleted_unless_told_to() -> None:
    kit = Shelf(PRESET)
    kit.image(IMAGE)
    assert isinstance(kit.history, FakeHistory)
    kit.history.switch_off("the disk is full")
    plan = await kit.images.plan_delete(IMAGE)
    assert [each.id for each in plan.obstacles] == ["starts_unknown"]
    with pytest.raises(RefusedError):
        await kit.images.delete(plan)
    assert await kit.images.delete(plan, unchecked=True) == 20 * GB
    with pytest.raises(UsageError, match="not downloaded"):
        await kit.images.plan_delete(IMAGE)
