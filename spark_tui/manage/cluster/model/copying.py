"""Images and models from node to node: what nodes are asked, what they answer, and what one of them needs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.errors import SparkError, UnreachableError
from spark_tui.base.quantities import human_bytes
from spark_tui.base.remote import NOT_FOUND, SSH_FAILED, ClusterNode, last_line
from spark_tui.base.text import clean
from spark_tui.catalog.models.model.hub import KEEP_FREE
from spark_tui.catalog.models.model.store import PARTIAL_FOLDER

RSYNC_INSTALL: Final = "sudo apt install rsync"
_SSH_REFUSED: Final = re.compile(r"Permission denied \(|Host key verification failed|^ssh: ")
_READ: Final = re.compile(r"^[^/]+\.(safetensors|json|bin|pt|pth|gguf|model|tiktoken|txt|jinja|py)$")
"""What an engine reads of a model: weights, settings, tokenizer. Pictures, texts and other formats may differ."""
_LOAD_FACTOR: Final = 2
# moby daemon/images/image_load.go and containerd alike: the archive is on the disk while its layers are unpacked


class CopyFailed(SparkError, id="copy_failed"):
    """A copy ended before its end."""


class FabricUnreachable(UnreachableError, id="fabric_unreachable"):
    """A node does not reach another one through ssh."""


class ReceiverFull(SparkError, id="receiver_full"):
    """The receiving disk is full."""


class TransferCount(Struct):
    """How far a transfer is, written by it. `ended`: all is sent, and the receiver works on it."""

    done: int = 0
    ended: bool = False


class CopyPhase(StrEnum):
    """What a copy does now. LOADING: all is sent, and Docker unpacks it."""

    SENDING = "sending"
    LOADING = "loading"
    CHECKING = "checking"


class ModelFile(Struct, frozen=True):
    """A file below a model's folder. `link`: what a symbolic link holds. `digest`: SHA-256 of a small file that is not
    named by its content."""

    path: str
    size: int = 0
    link: str = ""
    digest: str = ""


class InventoryRequest(Struct, frozen=True):
    """One of them: an image by its reference, a model by its name, or what lies in `folder` of the store."""

    image: str = ""
    model: str = ""
    folder: str = ""


class Inventory(Struct, frozen=True):
    """What a node has of it. `image` None, or `folder` empty: nothing. `place` is the folder of this machine that would
    receive it, with `free` bytes (None: unknown); `problem` says why a model cannot be copied from here."""

    user: str
    place: str
    free: int | None = None
    rsync: bool = False
    image: ImageFacts | None = None
    folder: str = ""
    files: tuple[ModelFile, ...] = ()
    problem: str = ""

    @property
    def found(self) -> bool:
        return self.image is not None or bool(self.folder)


class SendRequest(Struct, frozen=True):
    """An image, or `files` of a `folder` of the store, to `user@address` of the receiving node (`port` 0: ssh's own);
    files go below its folder `place`. `size`: bytes to expect."""

    to: str
    port: int = 0
    image: str = ""
    folder: str = ""
    place: str = ""
    files: tuple[str, ...] = ()
    size: int = 0


class CheckRequest(Struct, frozen=True):
    """Files that were copied into a `folder` of the store, to compare with what they are at the sender."""

    folder: str
    files: tuple[ModelFile, ...]


class Checked(Struct, frozen=True):
    """`damaged` files are other than expected, and those were removed; `hashed` bytes were compared by SHA-256."""

    damaged: tuple[str, ...] = ()
    hashed: int = 0


class Sent(Struct, frozen=True):
    """What went through the wire; of an image the bytes of its archive."""

    bytes: int
    seconds: float


class CopyProgress(Struct, frozen=True):
    """Bytes `done` of `total`, `speed` in bytes per second, `left` in seconds; None where unknown."""

    phase: CopyPhase
    done: int = 0
    total: int | None = None
    speed: float | None = None
    left: float | None = None


# --- what a node needs ------------------------------------------------------------------------------------


def same_image(one: ImageFacts, other: ImageFacts) -> bool:
    """By a digest that both have, else by layers and command. Ids differ between Docker's image stores, and so do the
    digests of an image that was loaded (eugr/spark-vllm-docker#327)."""
    if {each.partition("@")[2] for each in one.digests} & {each.partition("@")[2] for each in other.digests}:
        return True
    facts = [(each.layers, each.entrypoint, each.command, each.architecture) for each in (one, other)]
    return bool(one.layers) and facts[0] == facts[1]


def other_file(
    one: Sequence[tuple[str, int, str]], other: Sequence[tuple[str, int, str]]
) -> tuple[str, int | None, int | None] | None:
    """The first file that an engine reads and that is not the same in both lists of names, bytes and blobs: its name,
    and its bytes in each, None where it is absent. None where all are the same."""
    mine, theirs = ({name: (size, blob) for name, size, blob in files if _READ.search(name)} for files in (one, other))
    for name in sorted({*mine, *theirs}):
        (size, blob), (their_size, their_blob) = (each.get(name, (None, "")) for each in (mine, theirs))
        if size != their_size or (blob and their_blob and blob != their_blob):
            return name, size, their_size
    return None


def missing_files(source: Inventory, target: Inventory) -> tuple[ModelFile, ...]:
    """Files of the source that the target has not, or has with another size or content. Large files count as equal by
    name and size: in the Hub's cache the name of a blob is its content."""
    there = {file.path: file for file in target.files}
    return tuple(file for file in source.files if there.get(file.path) != file)


def room_needed(source: Inventory, files: Sequence[ModelFile]) -> int:
    """Bytes that must be free on the receiving disk: a reserve, and the files, or twice the image."""
    return KEEP_FREE + (_LOAD_FACTOR * source.image.size if source.image else sum(file.size for file in files))


def fabric_address(source: ClusterNode, target: ClusterNode) -> str:
    """The target's address that is nearest to one of the source's (a ring has a subnet for each cable), the first of
    several; empty where it is unknown."""

    def distance(text: str) -> int:
        address = ipaddress.ip_address(text)
        others = (ipaddress.ip_address(each) for each in source.fabric)
        near = (int(address) ^ int(each) for each in others if each.version == address.version)
        return min((each.bit_length() for each in near), default=address.max_prefixlen)

    return min(target.fabric, key=distance, default="")


# --- why a copy ended -------------------------------------------------------------------------------------


def transfer_error(to: str, code: int, err: str, program: str) -> SparkError:
    """For the exit code of ssh, or of an rsync through ssh, and its standard error. `program` is what ran there."""
    message = last_line(err) or f"exit code {code}"
    detail = clean(err)
    if "no space left on device" in err.lower():
        kept = f" What has arrived of a file is kept in {PARTIAL_FOLDER}." if program == "rsync" else ""
        return ReceiverFull(f"The disk of {to} is full.{kept}", "Make room there, then repeat the copy.", detail=detail)
    shells = rf"{program}: (command )?not found|(command not found|Unknown command): {program}"  # sh, bash; zsh, fish
    if code in NOT_FOUND or re.search(shells, err):  # rsync may see a closed pipe before the shell's exit code
        remedy = f"Run on {to}: {RSYNC_INSTALL}" if program == "rsync" else "Put docker on the PATH of ssh there."
        return CopyFailed(f"{program} not found on {to}.", remedy, detail=detail)
    refused = next((line for line in err.splitlines() if _SSH_REFUSED.search(line)), "")
    if code == SSH_FAILED or refused:  # rsync may see a broken pipe before it sees how its ssh ended
        why = last_line(refused) or message
        return FabricUnreachable(f"No ssh to {to}: {why}.", f"Run on the sending node: ssh-copy-id {to}", detail=detail)
    if "is your shell clean" in err:
        quiet = "Silence ~/.bashrc there for shells that are not interactive: case $- in *i*) ;; *) return ;; esac"
        return CopyFailed(f"The login shell of {to} prints text, which breaks {program}.", quiet, detail=detail)
    return CopyFailed(f"{program} on {to} failed: {message}.", "Repeat the copy to continue.", detail=detail)


def room_sentence(name: str, have: Inventory, need: int) -> str:
    """`spark-2 has 3.1 GiB free in /srv/models; 18.4 GiB needed.`"""
    return f"{name} has {human_bytes(have.free or 0)} free in {have.place}; {human_bytes(need)} needed."
