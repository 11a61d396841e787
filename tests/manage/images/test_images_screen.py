"""Images on screen: the list and an image's page, asking registries, reading versions, deleting, and errors."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.errors import RegistryUnreachable
from spark_tui.catalog.library.screen.models import ModelsScreen
from spark_tui.manage.images.screen import ImagesScreen
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.row_list import RowList
from tests.kit import IMAGE, PRESET
from tests.manage.images.test_images_use import NEW, OLD, Shelf
from tests.tui.kit import MARKUP, SIZES, Sight, seen
from tests.tui.models_kit import page

SPARE = "vllm/vllm-openai:v0.19.0"


@pytest.fixture
def kit() -> Shelf:
    """The preset's image, one that nothing uses, and one that is not downloaded."""
    found = Shelf(PRESET, replace(PRESET, name="other", image="acme/absent:1"))
    for name, digest in ((IMAGE, OLD), (SPARE, NEW)):
        found.image(name, digest)
        found.docker.digests[name] = digest
    return found


async def opened(sight: Sight) -> RowList:
    await sight.press("2", "9")
    sight.on(ImagesScreen)
    await sight.until(lambda: sight.on(ImagesScreen).view is not None)
    return sight.app.screen.query_one("#image-list", RowList)


async def test_the_list_groups_images_and_the_page_names_the_users(kit: Shelf) -> None:
    kit.docker.add_container("runs", image_id=f"sha256:{IMAGE}")
    async with seen(kit, SIZES[0]) as sight:
        await opened(sight)
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen("vllm/vllm-openai:nightly", "18.6 GiB", "In use", "Not used")
        text = page(sight, "image")
        assert all(words in text for words in ("runs runs in it", "1 preset: qwen", "v checks the registry", OLD))
        for back in ("2", "escape"):
            await sight.press(back)
            sight.on(ModelsScreen)
            await sight.press("9")
            sight.on(ImagesScreen)


async def test_a_check_shows_moved_tags_and_why_a_registry_did_not_answer(kit: Shelf) -> None:
    kit.docker.digests[IMAGE] = NEW
    kit.docker.digests[SPARE] = RegistryUnreachable(f"docker.io {MARKUP} is away.", "Check the network.")
    async with seen(kit) as sight:
        rows = await opened(sight)
        await sight.press("v")
        await sight.until_seen("1 tag has moved, 1 unknown", "moved", "failed")
        assert f"{key_of('update_preset')} on " in page(sight, "image")
        rows.select(SPARE)
        await sight.until(lambda: "Check the network." in page(sight, "image"))
        assert MARKUP in page(sight, "image")


async def test_versions_are_read_inside_and_shown_with_their_source(kit: Shelf) -> None:
    kit.docker.printed = ('{"vllm": "0.32.0", "torch": "2.9.1"}',)
    async with seen(kit) as sight:
        await opened(sight)
        await sight.press("Q")
        await sight.until(lambda: "0.32.0  (read inside)" in page(sight, "image"))


async def test_what_is_not_downloaded_is_not_deleted_and_a_key_says_what_can_be(kit: Shelf) -> None:
    async with seen(kit) as sight:
        rows = await opened(sight)
        rows.select("acme/absent:1")
        await sight.press("delete")
        await sight.until_seen("acme/absent:1 is not downloaded.")
        assert "spark-tui images" not in sight.text, "a command is for the shell"


async def test_delete_asks_first_and_refuses_what_is_used(kit: Shelf) -> None:
    kit.docker.add_container("runs", image_id=f"sha256:{IMAGE}")
    async with seen(kit) as sight:
        rows = await opened(sight)
        await sight.press("delete")
        await sight.until_seen("runs runs in it")
        assert kit.docker.asked("remove_image") == []
        rows.select(SPARE)
        await sight.press("delete")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.until_seen("14.0 GiB")
        await sight.press("n")
        assert kit.docker.asked("remove_image") == []
        await sight.press("delete")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press("y")
        await sight.until(lambda: kit.docker.asked("remove_image") == [SPARE])
        await sight.until(lambda: SPARE not in sight.text)


async def test_without_docker_it_says_so_and_a_key_tries_again(kit: Shelf) -> None:
    kit.docker.go_down()
    async with seen(kit) as sight:
        await sight.press("2", "9")
        await sight.until_seen("Cannot reach Docker", "^r tries again")
        assert "systemctl start docker ^r" not in sight.text, "the command is a line of its own"
        kit.docker.come_back()
        await sight.press("ctrl+r")
        await sight.until_seen("vllm/vllm-openai:nightly")


async def test_read_only_reads_and_deletes_nothing(kit: Shelf) -> None:
    kit.context.settings = replace(kit.context.settings, read_only=True)
    async with seen(kit) as sight:
        await opened(sight)
        await sight.press("delete", "Q")
        sight.on(ImagesScreen)
        assert kit.docker.asked("remove_image") == kit.docker.asked("run_once") == []
