"""models list, inspect, verify, rm: what a person reads, what a script gets, and how each of them ends."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.container import Mount
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings
from spark_tui.catalog.fit.model.fit import Basis
from spark_tui.catalog.models.adapter.checkpoints import StoreCheckpoints
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from tests.cli.world import TINY, StaticPresets, World
from tests.fakes_hub import FakeDownloader, FakeHub, card
from tests.gguf_files import QWEN, write_gguf
from tests.store_kit import COMMIT, cached, files, local, weights

README = b"---\nlicense: apache-2.0\n---\n# A model\n"
TEMPLATE = b"{% if tools %}<tool_call>{% endif %}{% if enable_thinking %}<think>{% endif %}"


class Store(FolderModelStore):
    """A store that every command may open again: closing a fake world's port ends nothing."""

    async def close(self) -> None:
        return


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = tmp_path / "vllm"
    extra = {"README.md": README, "chat_template.jinja": TEMPLATE}
    cached(store, "acme/tiny-1b", files(size=4000, seed=1) | extra, tree=True)
    content = files(shards=3, seed=2)
    del content["model-00003-of-00003.safetensors"]
    cached(store, "acme/half", content)
    local(store, "own", files(seed=3))
    return store


def world(root: Path, **ports: Any) -> World:
    return World(
        **ports,
        models=Store(root),
        checkpoints=StoreCheckpoints(root),
        presets=StaticPresets(PresetCatalogue((TINY,))),
        paths=HostPaths(str(root), "/caches", "/home/test"),
        settings=Settings(store=root),
    )


def running(found: World, root: Path) -> World:
    found.engine(argv=("vllm", "serve", "acme/tiny-1b"), mounts=(Mount(str(root), "/models"),))
    return found


# --- list -------------------------------------------------------------------------------------------------


def test_the_list_says_how_whole_each_model_is_and_who_uses_it(root: Path) -> None:
    result = running(world(root), root).run("models", "list")
    assert result.code == 0
    assert running(world(root), root).run("models").out == result.out
    rows = [re.split(r"  +", line) for line in result.out.splitlines()]
    assert rows[0] == ["MODEL", "STATE", "SIZE", "READ", "USED BY"]
    assert [(row[0], row[1]) for row in rows[1:]] == [
        ("/models/own", "complete"), ("acme/half", "partial"), ("acme/tiny-1b", "complete"),
    ]  # fmt: skip
    assert rows[3][4] == "tiny-1b, tiny-1b"
    assert f"3 models in {root}:" in result.err
    assert "note: acme/half: model-00003-of-00003.safetensors is missing" in result.err


def test_the_list_as_data(root: Path) -> None:
    found = running(world(root), root).run("models", "list", "--json").json
    assert found["store"] == str(root)
    assert found["disk_bytes"] > 0
    tiny = next(model for model in found["models"] if model["id"] == "acme/tiny-1b")
    assert (tiny["state"], tiny["commit"], tiny["layout"]) == ("complete", COMMIT, "cache")
    assert tiny["engines"] == [{"id": "tiny-1b", "sure": True}]
    assert tiny["presets"] == ["tiny-1b"]
    assert tiny["revisions"][0]["refs"] == ["main"]
    half = next(model for model in found["models"] if model["id"] == "acme/half")
    assert half["revisions"][0]["missing"] == ["model-00003-of-00003.safetensors"]
    expected = (half["revisions"][0]["expected_bytes"], bool(half["revisions"][0]["expected_bytes_reason"]))
    assert expected == (None, True)


def test_without_docker_engines_are_null_with_the_reason(root: Path) -> None:
    found = world(root)
    found.docker.go_down()
    assert "Cannot list engines" in found.run("models").err
    model = found.run("models", "--json").json["models"][0]
    assert (model["engines"], bool(model["engines_reason"])) == (None, True)


def test_an_empty_store_is_no_error(tmp_path: Path) -> None:
    result = world(tmp_path / "none").run("models")
    assert (result.code, result.out) == (0, "")
    assert "the store does not exist yet" in result.err


def test_names_with_control_codes_reach_no_terminal(root: Path) -> None:
    local(root, "bad\x1b[31m\nname", files(), papers=False)
    found = world(root)
    for arguments in (("models",), ("models", "--json"), ("models", "inspect", "bad\x1b[31m\nname")):
        result = found.run(*arguments)
        assert "\x1b" not in result.out + result.err
    assert found.run("models", "verify", "bad\x1b[31m\nname").code == 0


def test_in_the_demo_there_is_an_answer(root: Path) -> None:
    found = World()
    assert found.run("models").code == 0
    assert found.run("models", "rm", "x").code == 2


# --- inspect ----------------------------------------------------------------------------------------------


def test_a_checkpoint_is_shown_in_words_and_figures(root: Path) -> None:
    result = world(root).run("models", "inspect", "acme/tiny-1b")
    assert result.code == 0, result.err
    pairs = dict(
        re.split(r"  +", line, maxsplit=1) for line in result.out.splitlines() if re.match(r"\w.*\S  +\S", line)
    )
    assert pairs["architecture"] == "LlamaForCausalLM (llama)"
    assert pairs["licence"] == "apache-2.0"
    assert pairs["chat"] == "reasoning, tool calls (switched by enable_thinking)"
    assert "--tool-call-parser hermes" in pairs["parsers"]
    assert pairs["KV cache"] == "256 B per token in bfloat16"
    assert "One stream decodes an estimated" in result.out


def test_the_inspection_as_data_with_its_files(root: Path) -> None:
    found = world(root).run("models", "inspect", "acme/tiny-1b", "--json").json
    assert found["checkpoint"]["chat"]["tool_call_parser"] == "hermes"
    assert found["checkpoint"]["licence"] == "apache-2.0"
    assert found["checkpoint"]["kv_bytes_per_token"] == 256
    assert {each["name"] for each in found["files"]} >= {"config.json", "README.md"}
    assert all(each["digest"] for each in found["files"])


def test_a_model_without_its_config_is_shown_as_far_as_known(root: Path) -> None:
    cached(root, "acme/bare", {"model.safetensors": weights(100)})
    result = world(root).run("models", "inspect", "acme/bare")
    assert result.code == 0
    assert "No format information: it has no config.json." in result.err
    found = world(root).run("models", "inspect", "acme/bare", "--json").json
    assert (found["checkpoint"], found["checkpoint_reason"]) == (None, "it has no config.json")


def test_an_unknown_model_is_wrong_usage_with_near_names(root: Path) -> None:
    for command in ("inspect", "verify", "rm"):
        result = world(root).run("models", command, "acme/tiny-1c")
        assert result.code == 2
        assert "Did you mean acme/tiny-1b?" in result.err


# --- verify -----------------------------------------------------------------------------------------------


def damage(root: Path, name: str = "config.json") -> None:
    path = (root / "hub/models--acme--tiny-1b/snapshots" / COMMIT / name).resolve()
    path.write_bytes(path.read_bytes().replace(b"l", b"L"))


def test_damage_is_named_with_the_command_that_fetches_it_again_and_fails(root: Path) -> None:
    sound = world(root).run("models", "verify", "acme/tiny-1b")
    assert (sound.code, sound.out.startswith("All 6 files match the Hub")) == (0, True)
    damage(root)
    result = world(root).run("models", "verify", "acme/tiny-1b")
    assert result.code == 1
    assert result.out.splitlines()[0].startswith("config.json: differs from the Hub (git-sha1 is ")
    again = f"spark-tui models pull acme/tiny-1b --revision {COMMIT} --file config.json --again"
    assert f"Download again: {again}" in result.err
    hub = FakeHub()
    hub.add(card("acme/tiny-1b", *((name, len(body)) for name, body in files(size=4000, seed=1).items())))
    box = world(root, hub=hub, downloader=FakeDownloader(at_once=True), drive=True)
    assert box.run(*shlex.split(again)[1:]).code == 0
    assert isinstance(box.downloader, FakeDownloader)
    (request,) = box.downloader.started
    assert (request.repo, request.revision, request.files, request.again) == (
        "acme/tiny-1b", COMMIT, ("config.json",), True,
    )  # fmt: skip


def test_a_verification_as_data_ends_with_its_result(root: Path) -> None:
    damage(root)
    result = world(root).run("models", "verify", "acme/tiny-1b", "--json")
    last = result.json_lines[-1]
    assert result.code == 1
    assert (last["type"], last["verified"], last["fetch_again"]) == ("result", False, ["config.json"])
    assert {each["verdict"] for each in last["files"]} == {"matches", "differs"}


def test_progress_is_a_bar_on_a_terminal_and_plain_lines_in_a_pipe(root: Path) -> None:
    cached(root, "acme/big", files(size=40_000_000, shards=2, seed=9))
    piped = world(root).run("models", "verify", "acme/big")
    assert ("\r" in piped.err, piped.code) == (False, 0)
    shown = world(root).run("models", "verify", "acme/big", tty=True)
    assert shown.err.endswith("\x1b[K") or "%" not in shown.err
    assert "All 4 files" in shown.out


# --- rm ---------------------------------------------------------------------------------------------------


def there(root: Path) -> bool:
    return (root / "hub/models--acme--tiny-1b").exists()


def test_a_dry_run_lists_what_is_deleted_and_freed_and_changes_nothing(root: Path) -> None:
    result = world(root).run("models", "rm", "acme/tiny-1b", "--dry-run")
    assert result.code == 0
    assert world(root).run("models", "rm", "own", "--dry-run", "--json").json["deleted"] is False
    assert result.out.startswith("Deletes acme/tiny-1b and all its files. Frees ")
    assert "  hub/models--acme--tiny-1b" in result.out
    assert there(root)


@pytest.mark.parametrize(
    ("words", "given", "code"),
    [
        ((), {"keyboard": "y\n"}, 4), ((), {"keyboard": "acme/tiny-1b\n"}, 0), ((), {"stdin": ""}, 4),
        (("--yes", "--json"), {"stdin": ""}, 0), (("--yes", "--read-only"), {}, 4),
        (("--dry-run", "--read-only"), {}, 0),
        (("--leftovers", "--revision", "main"), {}, 2),
    ],
    ids=["other word", "name", "no keyboard", "yes", "read-only", "read-only plan", "two extents"],
)  # fmt: skip
def test_a_model_goes_after_its_name_or_yes(root: Path, words: tuple[str, ...], given: Any, code: int) -> None:
    result = world(root).run("models", "rm", "acme/tiny-1b", *words, **given)
    assert result.code == code
    deleted = code == 0 and "--dry-run" not in words
    assert there(root) is not deleted
    if "--json" in words:
        assert (result.json["deleted"], result.json["freed_bytes"] > 0) == (True, True)


def test_an_engine_that_uses_it_prevents_deletion(root: Path) -> None:
    found = running(world(root), root)
    result = found.run("models", "rm", "acme/tiny-1b", "--yes")
    assert result.code == 4
    assert "tiny-1b runs with it" in result.err
    assert "Stop it first: spark-tui down tiny-1b" in result.err
    assert "Would be refused" in found.run("models", "rm", "acme/tiny-1b", "--dry-run").out
    assert there(root)


def test_leftovers_alone(root: Path) -> None:
    blob = root / "hub/models--acme--tiny-1b/blobs" / f"{'b' * 64}.incomplete"
    blob.write_bytes(b"x" * 9000)
    os.utime(blob, (1, 1))
    assert world(root).run("models", "rm", "acme/tiny-1b", "--leftovers", "--yes").code == 0
    assert there(root)
    assert not blob.exists()


# --- draft ------------------------------------------------------------------------------------------------


@pytest.fixture
def drafting(root: Path, tmp_path: Path) -> World:
    own = tmp_path / "presets"
    found = world(root, recipes=FolderRecipeStore(own), hub=FakeHub({"acme/on-hub": card("acme/on-hub")}))
    found.presets = PresetFiles(builtin_directory(), own)  # type: ignore[assignment]
    return found


def test_a_model_without_a_preset_is_drafted_and_saved(drafting: World, tmp_path: Path) -> None:
    shown = drafting.run("draft", "acme/tiny-1b")
    assert shown.code == 0, shown.err
    assert "hermes" in shown.out
    assert not (tmp_path / "presets").exists()
    data = drafting.run("draft", "acme/tiny-1b", "--save", "mine", "--json").json
    assert (data["id"], data["model"], data["runtime"]) == ("tiny-1b", "acme/tiny-1b", "vllm")
    assert data["saved"] == str(tmp_path / "presets" / "mine.yaml")
    assert {each["basis"] for each in data["values"]} >= {"checkpoint", "default"}
    assert drafting.run("presets", "show", "mine").code == 0
    assert drafting.run("draft", "acme/tiny-1b", "--save", "mine").code == 4
    assert drafting.run("draft", "acme/tiny-1b", "--save", "no name").code == 2


@pytest.mark.parametrize("name", ["/models/qwen-Q4_K_M.gguf", "acme/qwen-GGUF"])
def test_a_gguf_file_is_drafted_and_fitted_by_its_header(drafting: World, root: Path, name: str) -> None:
    write_gguf(root / "qwen-Q4_K_M.gguf", QWEN)
    content = (root / "qwen-Q4_K_M.gguf").read_bytes()
    cached(root, "acme/qwen-GGUF", {"qwen-Q4_K_M.gguf": content, "qwen-Q8_0.gguf": content})
    shown = drafting.run("draft", name, "--save", "mine", "--json")
    assert shown.code == 0, shown.err
    values = {each["id"]: each for each in shown.json["values"]}
    assert (shown.json["runtime"], values["max_model_len"]["basis"]) == ("llama-cpp", "checkpoint")
    assert values["max_model_len"]["value"].startswith("40,960")
    assert "Q4_K_M" in values["quantization"]["value"]
    fit = drafting.run("fit", "mine", "--json").json
    parts = {part["id"]: part for part in fit["parts"]}
    assert {parts[each]["basis"] for each in ("weights", "kv")} == {Basis.FILES}
    assert parts["kv"]["bytes"] == 40960 * 4 * 1024 * 2


DIGEST = "5a" * 32
TOOLS = {"qwen3:8b": "Ollama", "acme/Qwen3-GGUF/Qwen3-Q4_K_M.gguf": "LM Studio"}


@pytest.fixture
def beside_tools(drafting: World, root: Path, tmp_path: Path) -> World:
    """With a GGUF file that Ollama has downloaded, and one of LM Studio's."""
    ollama, studio = tmp_path / "ollama", tmp_path / "lmstudio"
    folders = {str(ollama): "Ollama", str(studio): "LM Studio"}
    layers = [{"mediaType": f"application/vnd.ollama.image.{each}", "digest": f"sha256:{DIGEST}"}
              for each in ("template", "model")]  # fmt: skip
    write_gguf(ollama / f"blobs/sha256-{DIGEST}", QWEN)
    write_gguf(studio / "acme/Qwen3-GGUF/Qwen3-Q4_K_M.gguf", QWEN)
    write_gguf(studio / "acme/Qwen3-GGUF/mmproj-Qwen3.gguf", QWEN)
    for place, text in (
        ("library/qwen3/8b", json.dumps({"layers": layers})),
        ("library/bad/json", "[1"),
        ("library/bad/shape", json.dumps({"layers": [1]})),
        ("library/bad/place", json.dumps({"layers": [layers[1] | {"digest": "sha256:../../secret"}]})),
        ("library/bad/gone", json.dumps({"layers": [layers[1] | {"digest": f"sha256:{'0' * 64}"}]})),
    ):
        manifest = ollama / "manifests/registry.ollama.ai" / place
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(text)
    drafting.models = Store(root, tools=folders)
    drafting.checkpoints = StoreCheckpoints(root, tools=tuple(folders))
    drafting.paths = HostPaths(str(root), "/caches", "/home/test", tools=tuple(folders))
    return drafting


def test_what_other_tools_have_is_listed_and_never_changed(beside_tools: World) -> None:
    others = beside_tools.run("models", "list", "--json").json["other_caches"]
    assert {model["id"]: each["tool"] for each in others for model in each["models"]} == TOOLS
    assert all(model["size_bytes"] > 10_000 for each in others for model in each["models"])
    for name in TOOLS:
        assert name in beside_tools.run("models", "list").out
        assert beside_tools.run("models", "inspect", name, "--json").json["checkpoint"]["context_tokens"] == 40960
        for words in (("rm", name, "--yes"), ("move", name), ("verify", name)):
            assert beside_tools.run("models", *words).code == 2


@pytest.mark.parametrize("name", TOOLS)
def test_llama_cpp_serves_what_another_tool_has_in_its_place(beside_tools: World, name: str) -> None:
    drafted = beside_tools.run("draft", name, "--save", "mine", "--json")
    assert drafted.code == 0, drafted.err
    path = Path(drafted.json["model"])
    assert path.is_file()
    plan = beside_tools.run("up", "mine", "--dry-run", "--json")
    assert f"-v {shlex.quote(f'{path.parent}:/tool-models:ro')}" in plan.json["docker_run"].replace(" \\\n", "")
    assert f"/tool-models/{path.name}" in plan.json["argv"]
    assert str(path.parent) not in plan.json["directories"]
    assert "Fetched first" not in plan.err
    parts = {part["id"]: part for part in beside_tools.run("fit", "mine", "--json").json["parts"]}
    assert {parts[each]["basis"] for each in ("weights", "kv")} == {Basis.FILES}
    used = beside_tools.run("models", "list").out.splitlines()
    assert any(name in line and "mine" in line for line in used)


def test_a_draft_is_saved_and_launched_in_one_command(drafting: World, tmp_path: Path) -> None:
    drafting.drive = True
    drafting.docker.add_image("nvcr.io/nvidia/vllm:26.04-py3")
    drafting.docker.on_start = drafting.api.serve
    result = drafting.run("draft", "acme/tiny-1b", "--launch")
    assert (result.code, result.out.strip()) == (0, "http://127.0.0.1:8000"), result.err
    assert (tmp_path / "presets" / "tiny-1b.yaml").exists()


def test_what_cannot_be_drafted_says_why(drafting: World, root: Path) -> None:
    cached(root, "acme/x-dflash", files())
    for name, code in (("acme/half", 4), ("acme/x-dflash", 4), ("acme/none", 2), ("nothing", 2)):
        result = drafting.run("draft", name)
        assert (result.code, bool(result.err), result.out) == (code, True, ""), name


def test_an_embedding_model_is_drafted_without_a_chats_parts(drafting: World, root: Path) -> None:
    cached(root, "acme/small-vectors", files() | {"modules.json": b"[]"})
    looked = drafting.run("models", "inspect", "acme/small-vectors", "--json").json["checkpoint"]
    assert looked["kind"] == "embedding"
    assert looked["decode_high_tokens_per_second"] is None
    recipe = drafting.run("draft", "acme/small-vectors", "--json").json["recipe"]
    assert "--runner pooling" in recipe
    assert "parser" not in recipe


def test_a_container_started_by_hand_becomes_a_preset_of_its_own_name(drafting: World, root: Path) -> None:
    argv = ("vllm", "serve", "acme/tiny-1b", "--max-model-len", "4096", "--api-key", "sk-verysecret123456")
    drafting.engine("by-hand", argv=argv, labels=(), mounts=(Mount(str(root), "/root/.cache/huggingface"),))
    data = drafting.run("draft", "by-hand", "--json").json
    assert (data["id"], data["model"]) == ("by-hand-2", "acme/tiny-1b")
    assert {each["basis"] for each in data["values"]} == {"container"}
    assert ("max_model_len", "4096") in {(each["id"], each["value"]) for each in data["values"]}
    assert "verysecret" not in str(data)
