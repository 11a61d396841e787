"""`registries` on the command line, with real git over HTTP: from adding one to the launch that needs approval."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.presets.test_registries_use import RECIPE
from tests.cli.world import in_process
from tests.git_server import GitServer, Upstream


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "srv")
    yield server
    server.close()


def call(home: Path, *words: str) -> tuple[int, Any, str]:
    """Exit code, the JSON on standard output (`up`: none), standard error."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock"}
    done = in_process((*words, "--json"), env)
    return done.returncode, json.loads(done.stdout) if done.stdout and words[0] != "up" else None, done.stderr


def test_from_adding_a_registry_to_a_launch_that_needs_approval(server: GitServer, tmp_path: Path) -> None:
    upstream = Upstream(server.root / "mine")
    first = upstream.commit({"recipes/small.yaml": RECIPE})
    code, added, _ = call(tmp_path, "registries", "add", "mine", server.url("mine"))
    assert (code, added["commit"], added["moved"]) == (0, first, True)
    assert "mine.small" in {each["id"] for each in call(tmp_path, "presets", "list")[1]}

    code, _, err = call(tmp_path, "up", "mine.small")
    assert (code, json.loads(err.splitlines()[-1])["error"]["id"]) == (4, "recipe_not_reviewed")
    assert call(tmp_path, "registries", "approve", "mine.small")[0] == 0
    code, _, err = call(tmp_path, "up", "mine.small")
    assert code == 3, "approved: now it is Docker that is missing"

    second = upstream.commit({"recipes/small.yaml": RECIPE.replace("vllm serve", "vllm  serve")})
    _, looked, _ = call(tmp_path, "registries", "update", "mine")
    assert (looked["pinned_commit"], looked["commit"], looked["moved"]) == (first, second, False)
    assert call(tmp_path, "registries", "update", "mine", "--to", second[:10])[1]["moved"] is True
    assert call(tmp_path, "up", "mine.small")[0] == 4, "another content is approved anew"
    (pinned,) = call(tmp_path, "registries")[1]
    assert (pinned["commit"], [each["approved"] for each in pinned["recipes"]]) == (second, [False])
    assert call(tmp_path, "registries", "remove", "mine")[0] == 0
    assert call(tmp_path, "registries")[1] == []


def test_without_a_registry_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    done = in_process(("registries",), {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.returncode == 0
    [line] = done.stdout.splitlines()
    assert "spark-tui registries add" in line


def test_three_registries_are_added_and_updated_with_a_diff_and_what_a_recipe_would_run_is_not(
    server: GitServer, tmp_path: Path
) -> None:
    mark = tmp_path / "it-ran"
    hooked = f"{RECIPE}pre_exec:\n  - touch {mark}\npost_exec:\n  - touch {mark}\n"
    upstreams = {name: Upstream(server.root / name) for name in ("one", "two", "three")}
    first = {name: each.commit({"recipes/small.yaml": hooked}) for name, each in upstreams.items()}
    for name in upstreams:
        assert call(tmp_path, "registries", "add", name, server.url(name))[1]["commit"] == first[name]
    listed = {each["id"] for each in call(tmp_path, "presets", "list")[1]}
    assert {f"{name}.small" for name in upstreams} <= listed
    for name, upstream in upstreams.items():
        second = upstream.commit({"recipes/small.yaml": hooked.replace("touch", "rm"), "recipes/new.yaml": RECIPE})
        looked = call(tmp_path, "registries", "update", name)[1]
        assert (looked["pinned_commit"], looked["commit"], looked["moved"]) == (first[name], second, False)
        changed = {each["id"]: each["change"] for each in looked["changes"]}
        assert changed == {f"{name}.small": "changed", f"{name}.new": "added"}
        assert any("rm" in json.dumps(each) for each in looked["changes"]), "what it would run is in the difference"
        assert call(tmp_path, "registries", "update", name, "--to", second)[1]["moved"] is True
        code, _, err = call(tmp_path, "up", f"{name}.small")
        assert (code, json.loads(err.splitlines()[-1])["error"]["id"]) == (4, "recipe_not_reviewed")
    assert [each["commit"] != first[each["id"]] for each in call(tmp_path, "registries")[1]] == [True] * 3
    assert not mark.exists()


def test_a_copy_of_a_recipe_says_when_its_registry_has_another_one(server: GitServer, tmp_path: Path) -> None:
    upstream = Upstream(server.root / "mine")
    upstream.commit({"recipes/small.yaml": RECIPE})
    call(tmp_path, "registries", "add", "mine", server.url("mine"))
    code, report, _ = call(tmp_path, "presets", "import", "mine.small", "--name", "own")
    assert (code, [each["outcome"] for each in report["recipes"]]) == (0, ["imported"])
    shown = call(tmp_path, "presets", "show", "own")[1]
    copied = shown["copy_of"]
    assert (copied["registry"], copied["commit"], shown["drift"]) == ("mine", report["commit"], None)
    second = upstream.commit({"recipes/small.yaml": RECIPE.replace("4096", "8192")})
    looked = call(tmp_path, "registries", "update", "mine")[1]
    assert [each["preset"] for each in looked["outdated_copies"]] == ["own"]
    call(tmp_path, "registries", "update", "mine", "--to", second[:12])
    assert call(tmp_path, "presets", "show", "own")[1]["drift"]["id"] == "copy_outdated"
    (listed,) = (each for each in call(tmp_path, "presets", "list", "own")[1] if each["id"] == "own")
    assert listed["drift"]["id"] == "copy_outdated"
    (check,) = (each for each in call(tmp_path, "doctor")[1]["checks"] if each["id"] == "copies")
    assert check["verdict"] == "WARN"
    assert call(tmp_path, "presets", "import", "mine.small", "--name", "own")[0] == 4, "never replaced unasked"
    assert call(tmp_path, "presets", "import", "mine.small", "--name", "own", "--force")[0] == 0
    assert call(tmp_path, "presets", "show", "own")[1]["drift"] is None
    assert call(tmp_path, "presets", "import", "mine.small", "--name", "../x")[0] == 2


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    assert call(tmp_path, "registries", "update", "none")[0] == 2
    assert call(tmp_path, "registries", "add", "unknown")[0] == 2
    assert call(tmp_path, "registries", "approve", "gpt-oss-20b")[0] == 2
