"""`images` on the command line: the table and its JSON, moved tags, versions, and the exit codes of every refusal."""

from __future__ import annotations

import json
from typing import Any

from spark_tui.base.errors import RegistryUnauthorized
from tests.cli.world import IMAGE, World, example

OLD, NEW = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
SPARE = "vllm/vllm-openai:v0.19.0"


def world() -> World:
    """The image of the presets, and one that nothing uses."""
    found = example()
    for name, digest in ((IMAGE, OLD), (SPARE, NEW)):
        found.docker.add_image(name, size=20_000_000_000, digests=(f"{name.partition(':')[0]}@{digest}",))
        found.docker.digests[name] = digest
    return found


def listed(found: World, *words: str) -> tuple[int, dict[str, Any]]:
    result = found.run("images", *words, "--json")
    return result.code, {each["id"]: each for each in json.loads(result.out)["images"]}


def test_the_list_has_size_users_and_what_is_not_downloaded() -> None:
    found = world()
    code, images = listed(found)
    assert code == 0
    assert images[IMAGE]["size_bytes"] == 20_000_000_000
    assert {"kind": "preset", "name": "tiny-1b", "keeps": False} in images[IMAGE]["used_by"]
    assert images["acme/big:1"]["downloaded"] is False
    assert images["acme/big:1"]["size_bytes_reason"] == "not downloaded"
    out = found.run("images")
    assert all(word in out.out for word in (IMAGE, SPARE, "18.6 GiB", "tiny-1b"))
    assert f"spark-tui images delete {SPARE}" in out.err


def test_a_moved_tag_is_reported_with_what_to_do() -> None:
    found = world()
    found.docker.digests[IMAGE] = NEW
    code, images = listed(found, "--check")
    assert (code, images[IMAGE]["tag_state"], images[SPARE]["tag_state"]) == (0, "moved", "current")
    assert "spark-tui update " in found.run("images", "--check").err


def test_a_registry_that_refuses_leaves_the_list_and_fails() -> None:
    found = world()
    found.docker.digests[IMAGE] = RegistryUnauthorized("docker.io requires a login.", "docker login")
    code, images = listed(found, "--check")
    assert (code, images[IMAGE]["tag_state"], images[SPARE]["tag_state"]) == (1, "failed", "current")
    assert images[IMAGE]["registry_digest"] is None and images[IMAGE]["error"]["remedy"] == "docker login"
    assert "docker login" in found.run("images", "--check").err


def test_versions_are_read_inside_on_request() -> None:
    found = world()
    found.docker.printed = ('{"vllm": "0.32.0", "torch": "2.9.1"}',)
    result = found.run("images", "--inspect", SPARE, "--json")
    assert result.code == 0
    versions = {each["program"]: (each["version"], each["source"]) for each in json.loads(result.out)["versions"]}
    assert versions == {"vLLM": ("0.32.0", "inspected"), "torch": ("2.9.1", "inspected")}
    assert found.run("images", "--inspect", "acme/big:1").code == 4
    assert found.run("images", "--inspect", "nope").code == 2


def test_deleting_asks_is_refused_for_what_is_used_and_reports_what_it_freed() -> None:
    found = world()
    refused = found.run("images", "delete", IMAGE, "--yes", "--unchecked")
    assert (refused.code, "tiny-1b runs in it" in refused.err) == (4, True)
    dry = found.run("images", "delete", SPARE, "--dry-run", "--unchecked")
    assert (dry.code, "frees at least 14.0 GiB" in dry.out) == (0, True)
    assert found.run("images", "delete", SPARE, "--unchecked", keyboard="n\n").code == 4
    assert found.run("images", "delete", SPARE, "--yes").code == 4, "the history does not say what served last"
    assert found.run("images", "delete", "nope", "--yes").code == 2
    assert found.docker.asked("remove_image") == []
    done = found.run("images", "delete", SPARE, "--yes", "--unchecked", "--json")
    assert (done.code, json.loads(done.out)["freed_bytes"]) == (0, 15_000_000_000)
    assert found.docker.asked("remove_image") == [SPARE]


def test_without_docker_it_is_an_error_and_not_an_empty_list() -> None:
    found = world()
    found.docker.go_down()
    result = found.run("images", "--json")
    assert (result.code, result.out) == (3, "")
    assert json.loads(result.err.splitlines()[-1])["error"]["remedy"]
