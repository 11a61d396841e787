"""The files of the repositories on the simulated Hub. Of each there is only the beginning: no more is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.json import decode, encode

from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.weights import BITS, LENGTH_BYTES
from spark_tui.simulator.facts import SHELF

_EVERYWHERE: Final = {"README.md": 18_204, "tokenizer.json": 12_807_982}
_HEADER_BYTES: Final = 4_096


class ShelfFile(NamedTuple):
    """A file of `size` bytes, of which `data` are the first."""

    size: int
    data: bytes = b""


@cache
def files_on(repo: str) -> Mapping[str, ShelfFile]:
    """The files of a repository in path order; none for one that is not on the Hub. One that the simulation knows by
    its card only has no config."""
    gib, shards = next((card[1:3] for card in SHELF if card[0] == repo), (0.0, 0))
    known = decode((Path(__file__).parent / "data/hub.json").read_bytes()).get(repo, {})
    sizes, made = _EVERYWHERE | known.get("sizes", {}), known.get("files", {})
    found = {path: ShelfFile(size) for path, size in sizes.items()} | {
        path: ShelfFile(len(encode(content)), encode(content)) for path, content in made.items()
    }
    for at in range(1, shards + 1):
        weights = _weights(known["tensors"], at, shards) if known else ShelfFile(int(gib * GIB) // shards)
        found[f"model-{at:05d}-of-{shards:05d}.safetensors"] = weights
    return dict(sorted(found.items())) if shards else {}


def _weights(tensors: Mapping[str, tuple[str, int]], at: int, shards: int) -> ShelfFile:
    """One of the files of weights, the first is 1: its header, with a share of each tensor. `tensors` are dtype and
    bytes by name, in which the number of the file stands for `{}`."""
    header, end = {}, 0
    for name, (dtype, size) in tensors.items():
        width = BITS[dtype] // 8
        begin, count = end, size // width * at // shards - size // width * (at - 1) // shards
        end += count * width
        header[name.format(at)] = {"dtype": dtype, "shape": [count], "data_offsets": [begin, end]}
    text = encode(header).ljust(_HEADER_BYTES - LENGTH_BYTES)
    return ShelfFile(_HEADER_BYTES + end, len(text).to_bytes(LENGTH_BYTES, "little") + text)
