"""Stores on a real disk: written by the Hub's own client where it can, by hand where something is to go wrong."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "fedcba9876543210fedcba9876543210fedcba98"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096,
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def etag(name: str, data: bytes) -> str:
    """As the Hub names content: weights are LFS files."""
    return sha256(data) if name.endswith((".safetensors", ".gguf", ".bin")) else git_sha1(data)


def weights(size: int, seed: int = 0) -> bytes:
    """A safetensors file of one tensor, with content that no other seed has."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    body = hashlib.shake_128(str(seed).encode()).digest(size)
    return len(header).to_bytes(8, "little") + header + body


def files(size: int = 5000, shards: int = 2, seed: int = 0) -> dict[str, bytes]:
    """A small whole checkpoint."""
    found = {"config.json": json.dumps(CONFIG | {"seed": seed}).encode(), "tokenizer.json": b"{}"}
    for at in range(1, shards + 1):
        found[f"model-{at:05d}-of-{shards:05d}.safetensors"] = weights(size, seed * 100 + at)
    return found


def cached(
    store: Path,
    repo: str,
    content: Mapping[str, bytes],
    *,
    commit: str = COMMIT,
    refs: tuple[str, ...] = ("main",),
    tree: bool = False,
    kind: str = "models",
) -> Path:
    """A repository of the cache, as `hf_hub_download` leaves it: blobs, links to them made by the client's own
    function, refs. With `tree`, the listing that newer clients keep, written by the client."""
    from huggingface_hub.file_download import _create_symlink

    base = store / "hub" / f"{kind}--{repo.replace('/', '--')}"
    (base / "blobs").mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        blob = base / "blobs" / etag(name, data)
        if not blob.exists():
            blob.write_bytes(data)
        pointer = base / "snapshots" / commit / name
        pointer.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(pointer), new_blob=False)
    for ref in refs:
        path = base / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
    if tree:
        write_tree(base, content, commit)
    return base


def write_tree(folder: Path, content: Mapping[str, bytes], commit: str = COMMIT) -> None:
    from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

    entries = {}
    for name, data in content.items():
        big = len(etag(name, data)) == 64
        lfs: dict[str, Any] = {"lfs_sha256": sha256(data), "lfs_size": len(data)} if big else {}
        entries[name] = TreeCacheEntry(size=len(data), blob_id=git_sha1(data), **lfs)
    write_tree_cache(str(folder), commit, entries)


def share(base: Path, data: bytes) -> Path:
    """Moves a blob into the cache's shared blobs, by the client's own function; returns the shared file."""
    from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store, shared_blob_path

    xet = sha256(b"xet" + data)
    hub = base.parent
    arguments = {"blob_path": str(base / "blobs" / sha256(data)), "xet_hash": xet, "cache_dir": str(hub)}
    assert publish_blob_to_shared_store(**arguments, expected_size=len(data))
    return shared_blob_path(hub, xet)


def reuse(base: Path, data: bytes) -> None:
    """Links a repository's blob to the shared file of the same content, by the client's own function."""
    from huggingface_hub.utils._shared_blobs import try_link_from_shared_store

    blob = base / "blobs" / sha256(data)
    blob.unlink()
    xet = sha256(b"xet" + data)
    assert try_link_from_shared_store(
        blob_path=str(blob), xet_hash=xet, cache_dir=str(base.parent), expected_size=len(data)
    )


def local(store: Path, name: str, content: Mapping[str, bytes], *, papers: bool = True, tree: bool = False) -> Path:
    """A folder as `hf download --local-dir` leaves it; its papers are written by the client's own function."""
    from huggingface_hub._local_folder import write_download_metadata

    folder = store / name
    for file, data in content.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if papers:
            write_download_metadata(folder, file, COMMIT, etag(file, data))
    if tree:
        write_tree(folder / ".cache" / "huggingface", content)
    return folder


def disk_usage(folder: Path) -> int:
    """Disk space of the files below a folder, each once, as `du` counts them; folders and links not counted."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        if path.is_file() and not path.is_symlink():
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def age(folder: Path, seconds: float = 3600) -> None:
    """Makes files old, so that nothing looks as if it were being written now."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            status = path.stat()
            os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))
