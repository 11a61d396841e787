"""Registries of recipes in bare git repositories, fetched by the git program; nothing of them is ever checked out.

Files are written from git's objects one by one: no hook, submodule, link or filter of a repository has any effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.executors import MOST_OUTPUT, NotStarted, OutputTooLong, end_tasks, run_child
from spark_tui.base.files import FOLDER_MODE, read_plain, write_whole
from spark_tui.base.remote import last_line
from spark_tui.base.text import clean, clean_line
from spark_tui.base.untrusted import decode, encode
from spark_tui.catalog.presets.model.registry import GitUnreachable, PinnedRegistry, RegistryTooLarge

FETCH_SECONDS: Final = 120.0
MAX_FETCHED_BYTES: Final = 100 * 1024 * 1024
MAX_FILES: Final = 5_000
MAX_FILE_BYTES: Final = 64 * 1024
MAX_RECIPES_BYTES: Final = 32 * 1024 * 1024
MAX_LISTED_BYTES: Final = 64 * 1024 * 1024
"""Of git's own listings: 100,000 files have about 10 MiB."""
_WATCH_SECONDS: Final = 0.2
_FETCHED: Final = "refs/fetched^{commit}"
_PINS: Final = "pins.json"
_PRESETS: Final = "presets"
_GIT: Final = (
    "git", "-c", "core.hooksPath=/dev/null", "-c", "fetch.recurseSubmodules=false", "-c", "gc.auto=0",
    "-c", "maintenance.auto=false", "-c", "transfer.fsckObjects=false", "-c", "core.fsmonitor=false",
    "-c", "http.followRedirects=initial",
    "-c", "core.bigFileThreshold=1m",  # a larger object is never held in memory: 400 kB can unpack to 400 MB
)  # fmt: skip
_WANTED: Final = re.compile(r"(\.ya?ml|/run\.sh|(^|/)(LICEN[CS]E|COPYING)[^/]*)$")
_SKIPPED: Final = ".skipped"
"""In a tree: which files of the commit are not in it, and why."""
_TOO_LARGE: Final = f"larger than {MAX_FILE_BYTES >> 10} KiB"
_FOLDER_NAME: Final = re.compile(r"[^/\x00-\x1f]{1,200}")


class GitRegistries:
    """The Registries port: everything lies below `folder`."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    # --- pins -----------------------------------------------------------------------------------------

    def pins(self) -> tuple[PinnedRegistry, ...]:
        try:
            return decode(read_plain(self._folder / _PINS, MAX_LISTED_BYTES).decode(), tuple[PinnedRegistry, ...])
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            place = self._folder / _PINS
            raise SparkError(
                f"{place} cannot be read: {error}.", "Restore or remove it, then add them again."
            ) from None

    def keep(self, pins: tuple[PinnedRegistry, ...]) -> None:
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            write_whole(self._folder / _PINS, (encode(pins).encode(),))
        except OSError as error:
            raise _not_written(self._folder, error) from error

    def publish(self, name: str, commit: str, presets: Mapping[str, str]) -> None:
        """The preset files of a registry in one step, in place of earlier ones. Folders of other commits go."""
        here = self._folder / _PRESETS / name
        fresh, old = (here.with_name(f".{name}.{word}") for word in ("new", "old"))
        try:
            for left in (fresh, old):
                shutil.rmtree(left, ignore_errors=True)
            fresh.mkdir(mode=FOLDER_MODE, parents=True)
            for preset, text in presets.items():
                write_whole(fresh / f"{preset}.yaml", (text.encode("utf-8"),))
            with contextlib.suppress(FileNotFoundError):
                here.rename(old)
            fresh.rename(here)
            shutil.rmtree(old, ignore_errors=True)
            for tree in (self._folder / "trees" / name).iterdir():
                if tree.name != commit:
                    shutil.rmtree(tree, ignore_errors=True)
        except OSError as error:
            raise _not_written(here, error) from error

    def remove(self, name: str) -> None:
        for place in (self._repository(name), self._folder / _PRESETS / name, self._folder / "trees" / name):
            shutil.rmtree(place, ignore_errors=True)

    def _repository(self, name: str) -> Path:
        return self._folder / f"{name}.git"

    # --- git ------------------------------------------------------------------------------------------

    async def fetch(self, name: str, address: str) -> str:
        repository = self._repository(name)
        if not (repository / "HEAD").exists():
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            await self._git("init", "-q", "--bare", at=repository, address=address)
        fetch = ("fetch", "-q", "--no-tags", "--no-recurse-submodules", "--depth=1")
        limit = f"--filter=blob:limit={MAX_FILE_BYTES}"
        await self._git(
            *fetch, limit, "--no-write-fetch-head", address, "+HEAD:refs/fetched", at=repository, address=address
        )
        return (await self._git("rev-parse", _FETCHED, at=repository, address=address)).strip()

    async def fetched(self, name: str) -> str:
        repository = self._repository(name)
        if not (repository / "HEAD").exists():
            return ""
        try:
            return (await self._git("rev-parse", "-q", "--verify", _FETCHED, at=repository, address=name)).strip()
        except GitUnreachable:
            return ""

    async def _git(self, *arguments: str, at: Path, address: str) -> str:
        """The output of git, which may neither ask nor take more time or room than is set."""
        words = (*_GIT, f"--git-dir={at}", *arguments)
        environment = self._environment(address)
        talk = asyncio.ensure_future(run_child(words, environment, seconds=FETCH_SECONDS, cwd="/"))
        watch = asyncio.ensure_future(_outgrown(at))
        try:
            await asyncio.wait((talk, watch), return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                raise RegistryTooLarge(
                    f"{clean_line(address)} is larger than {MAX_FETCHED_BYTES >> 20} MiB.", "Use a smaller registry."
                )
            ended = await talk
        except NotStarted:
            raise SparkError("The git program is not installed.", "Install it: sudo apt install git") from None
        except TimeoutError:
            raise GitUnreachable(
                f"{clean_line(address)} did not answer within {FETCH_SECONDS:.0f} s.", "Try again later."
            ) from None
        except OutputTooLong:
            raise RegistryTooLarge(
                f"git printed more than {MOST_OUTPUT >> 20} MiB about {clean_line(address)}.", "Use another registry."
            ) from None
        finally:
            await end_tasks(talk, watch)
        if ended.code:
            raise _failed(address, ended.err)
        return ended.out

    def _environment(self, address: str = "") -> dict[str, str]:
        """`address` is what is fetched: a redirect to another protocol is not followed."""
        asks = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "SSH_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": address.partition("://")[0],
        }
        kept = {key: value for key, value in self._environ.items() if not key.startswith("GIT_")}
        return {**kept, **asks, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}

    def tree(self, name: str, commit: str) -> Path:
        folder = self._folder / "trees" / name / commit
        if folder.is_dir():
            return folder
        fresh = folder.with_name(f".{commit}")
        shutil.rmtree(fresh, ignore_errors=True)
        skipped: list[str] = []
        try:
            for path, content in self._blobs(self._repository(name), commit):
                if isinstance(content, str):
                    skipped.append(f"{path}: {content}\n")
                    continue
                place = fresh / path
                place.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                write_whole(place, (content,))
            fresh.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            (fresh / _SKIPPED).write_text("".join(skipped), "utf-8")
            fresh.rename(folder)
        except OSError as error:
            raise _not_written(folder, error) from error
        return folder

    def skipped(self, name: str, commit: str) -> tuple[str, ...]:
        try:
            lines = (self.tree(name, commit) / _SKIPPED).read_text("utf-8").splitlines()
        except OSError:  # a tree that an earlier version has made
            return ()
        return tuple(map(clean_line, lines))

    def _blobs(self, repository: Path, commit: str) -> Iterator[tuple[PurePosixPath, bytes | str]]:
        """Each recipe, script and licence: its content, or why it is left out."""
        listed = self._read(repository, b"", "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
        if len(listed) > MAX_FILES * 20:
            raise RegistryTooLarge(f"The registry holds {len(listed):,} files.", "Use a smaller registry.")
        wanted: list[tuple[PurePosixPath, str]] = []
        for line in filter(None, listed):
            about, _, name = line.partition(b"\t")
            mode, _, digest = about.decode("ascii").split(" ")[:3]
            path = _plain_path(name)
            if path is None or not _WANTED.search(str(path)):
                continue
            if mode in ("100644", "100755"):
                wanted.append((path, digest))
            else:
                yield path, "it is a link"
        if len(wanted) > MAX_FILES:
            raise RegistryTooLarge(
                f"The registry holds {len(wanted):,} recipes and scripts.", "Use a smaller registry."
            )
        sizes = self._read(
            repository, b"", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)"
        ).decode("ascii")
        present = {
            digest: int(size)
            for digest, _, size in (line.partition(" ") for line in sizes.splitlines())
            if size.isdigit() and int(size) <= MAX_FILE_BYTES
        }
        found = [(path, digest) for path, digest in wanted if digest in present]
        yield from ((path, _TOO_LARGE) for path, digest in wanted if digest not in present)
        if sum(present[digest] for _, digest in found) > MAX_RECIPES_BYTES:
            raise RegistryTooLarge(
                f"The recipes and scripts of the registry have more than {MAX_RECIPES_BYTES >> 20} MiB.",
                "Use a smaller registry.",
            )
        asked = "".join(f"{digest}\n" for _, digest in found).encode()
        output = self._read(repository, asked, "cat-file", "--batch")
        at = 0
        for path, _ in found:
            end = output.index(b"\n", at)
            size = int(output[at:end].rpartition(b" ")[2])
            yield path, output[end + 1 : end + 1 + size]
            at = end + 1 + size + 1

    def _read(self, repository: Path, given: bytes, *arguments: str) -> bytes:
        """What git prints of a repository that is here. A small one can list without end: its folders may hold each
        other many times over."""
        words = [*_GIT, f"--git-dir={repository}", *arguments]
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as problems:
            asked.write(given)
            asked.seek(0)
            environment, pipe = self._environment(), subprocess.PIPE
            with subprocess.Popen(words, stdin=asked, stdout=pipe, stderr=problems, env=environment, cwd="/") as git:
                late = threading.Timer(FETCH_SECONDS, git.kill)
                late.start()
                out = git.stdout.read(MAX_LISTED_BYTES + 1) if git.stdout is not None else b""
                late.cancel()
                if len(out) > MAX_LISTED_BYTES:
                    git.kill()
            problems.seek(0)
            problem = last_line(problems.read(MAX_FILE_BYTES).decode("utf-8", "replace")) or "no end of its answer"
        if len(out) > MAX_LISTED_BYTES:
            raise RegistryTooLarge(f"The registry lists more than {MAX_LISTED_BYTES >> 20} MiB.", "Use a smaller one.")
        if git.returncode:
            raise UsageError(f"git cannot read it: {problem}.", "Fetch the registry again.")
        return out


def _plain_path(name: bytes) -> PurePosixPath | None:
    """A path that stays below where it is written; None for any other."""
    try:
        path = PurePosixPath(name.decode("utf-8"))
    except UnicodeDecodeError:
        return None
    parts = path.parts
    safe = all(_FOLDER_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
    return path if parts and safe and not path.is_absolute() and len(parts) <= 12 else None


async def _outgrown(repository: Path) -> None:
    """Returns when the repository has become too large."""
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        size = 0
        for folder, _, files in os.walk(repository):
            for file in files:
                with contextlib.suppress(OSError):
                    size += os.lstat(os.path.join(folder, file)).st_size  # noqa: PTH118 - twice as fast on large trees
        if size > MAX_FETCHED_BYTES:
            return


def _failed(address: str, err: str) -> SparkError:
    message = last_line(err) or "no message"
    if "could not read Username" in err or "Authentication failed" in err or "terminal prompts disabled" in err:
        return GitUnreachable(
            f"{clean_line(address)} asks for a password, or does not exist.",
            "Correct the address, or store the password with git's credential helper.",
            detail=clean(err),
        )
    return GitUnreachable(
        f"git could not fetch {clean_line(address)}: {message}.",
        "Correct the address or the network, then try again.",
        detail=clean(err),
    )


def _not_written(place: Path, error: OSError) -> SparkError:
    return SparkError(
        f"{place} cannot be written: {error.strerror or error}.", "Make room, or see who may write there."
    )
