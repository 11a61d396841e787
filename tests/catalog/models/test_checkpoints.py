"""Checkpoints as they lie in a store: whole, partial, damaged, hostile; real files, no tensor is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.finding import Missing, Ok
from spark_tui.catalog.models.adapter.checkpoints import StoreCheckpoints
from tests.gguf_files import QWEN, TENSORS, write_gguf

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "hidden_size": 256, "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
}  # fmt: skip
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = ("model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight")


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def write_tensors(path: Path, sizes: dict[str, int]) -> Path:
    """A sparse safetensors file: real header, tensors that take no disk."""
    header: dict[str, Any] = {}
    at = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    body = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(body).to_bytes(8, "little") + body)
        file.truncate(8 + len(body) + at)
    return path


def local(store: Path, name: str = "tiny", size: int = 1 << 20) -> Path:
    folder = store / name
    write_json(folder / "config.json", CONFIG)
    write_tensors(folder / "model.safetensors", {NAMES[0]: size, NAMES[1]: size})
    return folder


def cached(store: Path, repo: str = "org/name", *, ref: str = "main") -> Path:
    """The Hub's cache: blobs, and a snapshot of links into them."""
    root = store / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    write_json(root / "blobs" / "aaa", CONFIG)
    write_tensors(root / "blobs" / "bbb", dict.fromkeys(NAMES, 1 << 20))
    (snapshot / "config.json").symlink_to("../../blobs/aaa")
    (snapshot / "model.safetensors").symlink_to("../../blobs/bbb")
    (root / "refs").mkdir()
    (root / "refs" / ref).write_text(COMMIT, "utf-8")
    return snapshot


def facts(store: Path, model: str, revision: str = "") -> CheckpointFacts:
    found = StoreCheckpoints(store).read(model, revision)
    assert isinstance(found, Ok), found
    return found.value


def why(store: Path, model: str, revision: str = "") -> str:
    found = StoreCheckpoints(store).read(model, revision)
    assert isinstance(found, Missing), found
    return found.reason


@pytest.mark.parametrize("model", ["/models/tiny", "tiny", "acme/tiny"])
def test_a_folder_of_the_store(tmp_path: Path, model: str) -> None:
    local(tmp_path)
    found = facts(tmp_path, model)
    assert (found.architecture, found.layers, found.mtp_layers) == ("LlamaForCausalLM", 2, 0)
    assert found.weights is not None
    assert (found.weights.size, found.weights.tensors, found.weights.complete) == (2 << 20, 2, True)
    assert found.findings == ()


def test_a_snapshot_of_the_hubs_cache(tmp_path: Path) -> None:
    cached(tmp_path)
    for revision in ("", "main", COMMIT):
        found = facts(tmp_path, "org/name", revision)
        assert found.weights is not None
        assert found.weights.size == 2 << 20


def test_without_main_the_only_snapshot_counts_and_another_revision_is_not_here(tmp_path: Path) -> None:
    cached(tmp_path, ref="other")
    assert facts(tmp_path, "org/name").layers == 2
    assert why(tmp_path, "org/name", "v2") == "revision v2 is not downloaded"


def test_what_is_not_there_says_why(tmp_path: Path) -> None:
    assert why(tmp_path, "org/name") == "not in the model store"
    assert why(tmp_path, "/models/none") == "not in the model store"
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    assert why(tmp_path, "org/name") == "download not started"
    (tmp_path / "empty").mkdir()
    assert why(tmp_path, "/models/empty") == "it has no config.json"
    assert why(tmp_path / "nowhere", "org/name") == "not in the model store"


@pytest.mark.parametrize(
    "model", ["/etc", "/models/../../etc", "../x", "org/..", "org/../../x", "a/b/c", "", "a\0b", "~/x", "/models/\0"]
)
def test_nothing_outside_the_store_is_read(tmp_path: Path, model: str) -> None:
    (tmp_path / "x").mkdir()
    store = tmp_path / "store"
    store.mkdir()
    write_json(tmp_path / "x" / "config.json", CONFIG)
    assert why(store, model)
    (store / "link").symlink_to(tmp_path / "x")
    assert why(store, "/models/link") == "outside of the model store"
    assert why(store, str(tmp_path / "x")) == "outside of the model store"
    assert isinstance(StoreCheckpoints(store, (str(tmp_path),)).read(str(tmp_path / "x")), Ok), "a root of the person's"


def test_a_download_under_way_is_partial_and_names_what_lacks(tmp_path: Path) -> None:
    folder = local(tmp_path)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {NAMES[0]: "model-00001-of-00002.safetensors", "z": "model-00002-of-00002.safetensors"}}
    write_json(folder / "model.safetensors.index.json", index)
    found = facts(tmp_path, "/models/tiny")
    assert found.weights is not None
    assert not found.weights.complete
    assert found.findings == ("model-00002-of-00002.safetensors: is not downloaded",)


def test_the_index_tells_whether_layers_for_drafting_are_there(tmp_path: Path) -> None:
    folder = local(tmp_path)
    write_json(folder / "config.json", {**CONFIG, "num_nextn_predict_layers": 1})
    assert facts(tmp_path, "/models/tiny").mtp_layers == 0
    write_json(folder / "model.safetensors.index.json", {"weight_map": {"mtp.fc.weight": "model.safetensors"}})
    assert facts(tmp_path, "/models/tiny").mtp_layers == 1


def test_modelopts_own_file_and_the_sampling_are_read(tmp_path: Path) -> None:
    folder = local(tmp_path)
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    write_json(folder / "hf_quant_config.json", quant)
    write_json(folder / "generation_config.json", {"temperature": 0.6, "top_p": 0.95, "eos_token_id": [1, 2]})
    found = facts(tmp_path, "/models/tiny")
    assert found.quantization is not None
    assert (found.quantization.words, found.quantization.kv_cache) == ("NVFP4 (modelopt)", "fp8")
    assert found.sampling == (("temperature", 0.6), ("top_p", 0.95))


def test_an_answer_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    folder = local(tmp_path)
    source = StoreCheckpoints(tmp_path)
    first = source.read("/models/tiny")
    assert source.read("/models/tiny") is first
    write_json(folder / "config.json", {**CONFIG, "num_hidden_layers": 20})
    again = source.read("/models/tiny")
    assert isinstance(again, Ok)
    assert again.value.layers == 20


# --- hostile stores --------------------------------------------------------------------------------------


def test_loops_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert why(tmp_path, "/models/a")
    folder = local(tmp_path)
    (folder / "generation_config.json").symlink_to("generation_config.json")
    found = facts(tmp_path, "/models/tiny")
    assert "generation_config.json: cannot be read" in found.findings[0]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = local(tmp_path)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    assert "not a file" in facts(tmp_path, "/models/tiny").findings[0]
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert "config.json" in why(tmp_path, "/models/tiny")


@pytest.mark.parametrize("text", ["[]", "{", '{"a":' * 50_000, "\x00"])
def test_a_config_that_is_none_says_why(tmp_path: Path, text: str) -> None:
    local(tmp_path)
    (tmp_path / "tiny" / "config.json").write_text(text, "utf-8")
    assert why(tmp_path, "/models/tiny").startswith("config.json: ")


def test_an_index_that_points_elsewhere_and_a_truncated_file_hold_no_weights(tmp_path: Path) -> None:
    folder = local(tmp_path)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1 << 20)
    found = facts(tmp_path, "/models/tiny")
    assert found.weights is None
    assert "model.safetensors: truncated" in found.findings[0]
    write_json(folder / "model.safetensors.index.json", {"weight_map": {"a": "../../x.safetensors", "b": 7, "c": ".."}})
    assert facts(tmp_path, "/models/tiny").weights is None


def test_names_with_escape_codes_stay_off_the_screen(tmp_path: Path) -> None:
    folder = local(tmp_path)
    (folder / "\x1b[2J\n.safetensors").write_bytes(b"x")
    found = facts(tmp_path, "/models/tiny")
    assert found.weights is not None
    assert not found.weights.complete
    assert "\x1b" not in found.findings[0]
    assert "\n" not in found.findings[0]


def test_three_hundred_shards_are_read_within_a_second_of_processor_time(tmp_path: Path) -> None:
    import time

    folder = tmp_path / "big"
    write_json(folder / "config.json", CONFIG)
    for at in range(300):
        write_tensors(folder / f"model-{at:05}.safetensors", {f"model.layers.0.mlp.experts.{at}.up_proj.weight": 4096})
    start = time.process_time()
    found = facts(tmp_path, "/models/big")
    assert found.weights is not None
    assert found.weights.tensors == 300
    assert time.process_time() - start < 1.0


def test_a_gguf_file_is_read_by_its_path_whole_split_and_as_a_link_of_the_cache(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", QWEN)
    source = StoreCheckpoints(tmp_path)
    found = source.read("/models/m.gguf")
    assert isinstance(found, Ok)
    assert found.value.weights is not None
    assert (found.value.layers, found.value.weights.complete) == (4, True)
    assert source.read("/models/m.gguf") is found, "kept"
    write_gguf(tmp_path / "m.gguf", QWEN, cut=100)
    again = source.read("/models/m.gguf")
    assert isinstance(again, Ok)
    assert again.value.weights is not None
    assert not again.value.weights.complete
    for number, (keys, tensors) in enumerate(((QWEN, TENSORS[:2]), ({}, TENSORS[2:])), 1):
        blob = write_gguf(tmp_path / "hub/models--a--b/blobs" / str(number), keys, tensors)
        link = tmp_path / f"hub/models--a--b/snapshots/c/s-0000{number}-of-00002.gguf"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../blobs/{blob.name}")
    split = source.read("/models/hub/models--a--b/snapshots/c/s-00001-of-00002.gguf")
    assert isinstance(split, Ok)
    assert split.value.weights is not None
    assert (split.value.weights.tensors, split.value.weights.complete) == (len(TENSORS), True)


@pytest.mark.parametrize(
    "model", ["/models/none.gguf", "/models/../x.gguf", "/etc/x.gguf", "/models/pipe.gguf", "m.gguf"]
)
def test_a_gguf_path_that_leads_to_no_file_is_missing(tmp_path: Path, model: str) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert isinstance(StoreCheckpoints(tmp_path).read(model), Missing)
