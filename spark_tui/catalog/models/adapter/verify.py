"""Hashes the files of a revision on several threads at once, as fast as the disk gives them, and leaves the page cache
as small as it was: on a Spark that memory is the GPU's."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from msgspec import Struct

from spark_tui.base.checkpoint import CheckpointProblem
from spark_tui.base.executors import ThreadQueue
from spark_tui.catalog.models.adapter.scan import opened, read_header, reason
from spark_tui.catalog.models.model.store import (
    Algorithm,
    FileCheck,
    FileProblem,
    FileVerdict,
    StoredFile,
    VerifyProgress,
)

MOST_THREADS: Final = 4
CHUNK: Final = 1 << 20
_BEHIND: Final = 64 << 20
_REPORT_SECONDS: Final = 0.1


class Job(Struct, frozen=True):
    """One payload to hash, and all files of the revision that are it. `known`: a digest is known."""

    path: str
    files: tuple[StoredFile, ...]
    size: int
    known: bool


class Verification:
    """A producer of VerifyProgress for `StreamThreads`. `base` is the revision's folder; `single`: it is a file."""

    def __init__(
        self, model: str, commit: str, base: str, files: tuple[StoredFile, ...], *, single: bool = False
    ) -> None:
        self._model = model
        self._commit = commit
        self._jobs, self._checks = _planned(base, files, single=single)
        self._total = sum(job.size for job in self._jobs if job.known)
        self._done = 0
        self._name = ""
        self._lock = threading.Lock()
        self._cancelled = threading.Event()

    def run(self, handover: ThreadQueue[VerifyProgress]) -> None:
        """Reports ten times a second until all is hashed."""
        start = time.perf_counter()
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "hash") as pool:
            works = [pool.submit(self._check, job) for job in self._jobs]
            try:
                while wait(works, _REPORT_SECONDS).not_done:
                    handover.replace(self._progress(start))
                for work in works:
                    work.result()
            finally:
                self.cancel()
        handover.replace(self._progress(start, over=True))

    def cancel(self) -> None:
        """Ends the reading at the next chunk."""
        self._cancelled.set()

    def _progress(self, start: float, *, over: bool = False) -> VerifyProgress:
        with self._lock:
            checks = tuple(sorted(self._checks, key=lambda check: check.name)) if over else tuple(self._checks)
            seconds = time.perf_counter() - start
            name = "" if over else self._name
            return VerifyProgress(self._model, self._commit, self._done, self._total, name, checks, seconds, over)

    # --- one payload ----------------------------------------------------------------------------------

    def _check(self, job: Job) -> None:
        if self._cancelled.is_set():
            return
        self._name = job.files[0].name
        try:
            outcome = self._hashed(job)
            checks = [_compared(each, job.size, *outcome) for each in job.files]
        except OSError as error:
            why = reason(error)
            checks = [FileCheck(each.name, FileVerdict.UNREADABLE, job.size, detail=why) for each in job.files]
        with self._lock:
            self._checks += checks

    def _hashed(self, job: Job) -> tuple[FileVerdict | None, dict[Algorithm, str], str]:
        """(a verdict without digests, the digests, the evidence)."""
        expected = {file.expected.algorithm for file in job.files if file.expected is not None}
        wanted = sorted(algorithm for algorithm in expected if algorithm)
        with opened(job.path) as descriptor:
            status = os.fstat(descriptor)
            payload = job.files[0].payload
            if payload is None or f"{status.st_dev}:{status.st_ino}" != payload.key or status.st_size != job.size:
                return FileVerdict.CHANGED, {}, "it is another file by now"
            if not wanted:
                return _structure(descriptor, job)
            hashes = {algorithm: _new_hash(algorithm, job.size) for algorithm in wanted}
            read = self._read(descriptor, list(hashes.values()), job.size)
            after = os.fstat(descriptor)
            if read != job.size or after.st_mtime_ns != status.st_mtime_ns:
                return FileVerdict.CHANGED, {}, "it was written to meanwhile"
            return None, {algorithm: each.hexdigest() for algorithm, each in hashes.items()}, ""

    def _read(self, descriptor: int, hashes: list[hashlib._Hash], size: int) -> int:
        """Feeds a whole file to the hashes; returns how many bytes it had."""
        buffer = bytearray(CHUNK)
        view = memoryview(buffer)
        big = size >= _BEHIND
        done = dropped = 0
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := os.readv(descriptor, [buffer]):
            if self._cancelled.is_set():
                break
            for each in hashes:
                each.update(view[:count])
            done += count
            with self._lock:
                self._done += count
            if big and done - dropped >= _BEHIND:
                os.posix_fadvise(descriptor, dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                dropped = done
        if big:
            os.posix_fadvise(descriptor, dropped, 0, os.POSIX_FADV_DONTNEED)
        return done


def _planned(base: str, files: tuple[StoredFile, ...], *, single: bool) -> tuple[Sequence[Job], list[FileCheck]]:
    """Payloads to hash, the largest first, each once; and the files that need no reading."""
    by_key: dict[str, list[StoredFile]] = {}
    checks = []
    for file in files:
        whole = file.expected.size if file.expected is not None else None
        if file.payload is None:
            unread = file.trouble is FileProblem.UNREADABLE
            verdict = FileVerdict.UNREADABLE if unread else FileVerdict.ABSENT
            checks.append(FileCheck(file.name, verdict, detail=file.trouble))
        elif whole is not None and whole != file.payload.size:
            words = f"{file.payload.size:,} of {whole:,} bytes"
            checks.append(FileCheck(file.name, FileVerdict.SIZE, file.payload.size, detail=words))
        else:
            by_key.setdefault(file.payload.key, []).append(file)
    jobs = []
    for same in by_key.values():
        payload = same[0].payload
        size = payload.size if payload is not None else 0
        known = any(file.expected is not None and file.expected.algorithm for file in same)
        jobs.append(Job(base if single else f"{base}/{same[0].name}", tuple(same), size, known))
    return sorted(jobs, key=lambda job: -job.size), checks


def _new_hash(algorithm: Algorithm, size: int) -> hashlib._Hash:
    if algorithm is Algorithm.SHA256:
        return hashlib.sha256(usedforsecurity=False)
    found = hashlib.sha1(usedforsecurity=False)  # git's name of a blob
    found.update(b"blob %d\0" % size)
    return found


def _compared(
    file: StoredFile, size: int, verdict: FileVerdict | None, digests: dict[Algorithm, str], detail: str
) -> FileCheck:
    algorithm = file.expected.algorithm if file.expected is not None else Algorithm.NONE
    if verdict is not None or file.expected is None or not algorithm:
        return FileCheck(file.name, verdict or FileVerdict.UNTOLD, size, detail=detail)
    found = digests[algorithm]
    if found == file.expected.digest:
        return FileCheck(file.name, FileVerdict.MATCHES, size, algorithm)
    words = f"{algorithm} is {found[:16]}..., the Hub has {file.expected.digest[:16]}..."
    return FileCheck(file.name, FileVerdict.DIFFERS, size, algorithm, words)


def _structure(descriptor: int, job: Job) -> tuple[FileVerdict | None, dict[Algorithm, str], str]:
    """Without a digest, a safetensors file can still be seen to be cut short."""
    if not job.files[0].name.endswith(".safetensors"):
        return FileVerdict.UNTOLD, {}, ""
    found = read_header(descriptor)
    if isinstance(found, CheckpointProblem):
        return FileVerdict.DAMAGED, {}, found.reason
    return FileVerdict.UNTOLD, {}, "its header and length agree"
