"""One download from its first request to its last link: what the worker process does. Blocks; ends by `Shared.stop`."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.download import DownloadPhase, FileProgress, FileState
from spark_tui.domain.models.hub import RepoFile, select
from spark_tui.domain.secret import Secret
from spark_tui.services.hub.client import commit_of, files_of
from spark_tui.services.hub.places import Place, Places, free_bytes, io_error, made
from spark_tui.services.hub.records import Order
from spark_tui.services.hub.session import HubCall, describe, prepare, token_of, translate
from spark_tui.services.hub.transfer import FileFetch, Shared, Stopped

STREAMS: Final = 4
"""Files at once: enough to fill ten gigabits, few enough for a part of each to be kept."""
_HTTP_BYTES: Final = 50 * 1000**3
"""The Hub hands out larger files by Xet alone (huggingface_hub 2.4: MAX_HTTP_DOWNLOAD_SIZE)."""
_NETWORK_SECONDS: Final = (2.0, 60.0)

R = TypeVar("R")
_log = logging.getLogger(__name__)


class DownloadJob:
    """The work of one download. Its progress may be read from another thread at any time."""

    def __init__(self, order: Order, token: Secret | None, commit: str = "") -> None:
        self._request = order.request
        self._endpoint = order.endpoint
        self._token = token_of(token)
        self._lock = threading.Lock()
        self._progress: dict[str, FileProgress] = {}
        self.shared = Shared(Path(order.store), order.endpoint, token, self)
        self.phase = DownloadPhase.PREPARING
        self.commit = commit
        self.left_out = 0
        self._places = Places(Path(order.store), order.request, commit)

    def report(self, path: str, done: int, state: FileState) -> None:
        """A file's progress."""
        with self._lock:
            before = self._progress.get(path)
            self._progress[path] = FileProgress(path, before.size if before else None, done, state)

    def files(self) -> tuple[FileProgress, ...]:
        """Every file, in path order."""
        with self._lock:
            return tuple(self._progress.values())

    def run(self) -> None:
        """To the end. Raises Stopped, or a SparkError."""
        prepare()
        if self._request.url:  # a file that is not on the Hub
            name = self._request.target
            with self._lock:
                self._progress = {name: FileProgress(name, None)}
            self.phase = DownloadPhase.DOWNLOADING
            file, place = RepoFile(name, None), self._places.single()
            FileFetch(self.shared, file, place, self._request.url, self._call(name), hub=False).run()
            return
        files = self._listed()
        self.phase = DownloadPhase.DOWNLOADING
        self._fetch_all(files)
        self.phase = DownloadPhase.FINISHING
        if self._request.single:
            return
        try:
            # The library itself finds the model whole, without a request; then its name leads to it.
            self._snapshot([_literal(file.path) for file in files], local=True)
            if self._places.in_cache:
                self._places.write_ref()
        except OSError as error:
            raise io_error(error, self._places.folder) from error

    # --- which files --------------------------------------------------------------------------------------

    def _listed(self) -> tuple[RepoFile, ...]:
        """The files to fetch, of the commit that is meant: a resumed download stays with the one that it began with,
        unless that was removed from the Hub meanwhile."""
        begun, entries = bool(self.commit), None
        if self.commit:
            try:
                self.commit, entries = self._patiently(lambda: self._ask(self.commit))
            except hub_errors.HubRevisionMissing:
                self.commit = ""
        if entries is None:
            self.commit, entries = self._patiently(lambda: self._ask(self._request.revision))
        self._places = Places(self.shared.store, self._request, self.commit)
        request = self._request
        found = select(entries, only=request.files, everything=request.everything, load_format=request.load_format)
        if found.missing:
            raise hub_errors.file_missing(request.repo, found.missing[0])
        if found.choices:
            raise hub_errors.needs_choice(request.repo, [name for name, _ in found.choices])
        if not found.files:
            raise hub_errors.nothing_to_load(request.repo)
        self.left_out = len(found.left_out)
        if request.again and not begun:  # an earlier run has dropped them
            self._drop(found.files)
        here = {file.path: self._places.of(file).here(file.size) for file in found.files}
        with self._lock:
            self._progress = {file.path: FileProgress(file.path, file.size, here[file.path]) for file in found.files}
        left = sum(max(0, (file.size or 0) - here[file.path]) for file in found.files)
        try:
            free = free_bytes(self.shared.store)
        except OSError as error:
            raise io_error(error, self.shared.store) from error
        if left and left + hub_errors.KEEP_FREE > free:
            raise hub_errors.no_room(str(self.shared.store), left, free)
        if not request.single:
            # The library writes its listing of the commit, with sizes and hashes for when the Hub is away: it is
            # asked for no file that exists.
            made(self._places.folder)
            self._patiently(lambda: self._snapshot(["\0"]))
        return found.files

    def _ask(self, revision: str) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit, and its files. Both become names of files here: what is no digest is refused."""
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self._endpoint, token=self._token, library_name="spark-tui")
        commit = commit_of(api.model_info(self._request.repo, revision=revision))
        files = files_of(api.list_repo_tree(self._request.repo, recursive=True, revision=commit or revision))
        if not commit or not all(file.digest for file in files):
            raise hub_errors.strange_answer(self._endpoint, "a commit or a file without a digest")
        return commit, files

    def _drop(self, files: Sequence[RepoFile]) -> None:
        """Deletes what is here of these files: it is damaged."""
        for file in files:
            place = self._places.of(file)
            for path in (place.link, place.whole, place.part):
                try:
                    if path is not None:
                        path.unlink(missing_ok=True)
                except OSError as error:
                    raise io_error(error, place.whole) from error

    # --- files --------------------------------------------------------------------------------------------

    def _fetch_all(self, files: Sequence[RepoFile]) -> None:
        """Some at once, small ones first: with its config a model can be understood before its weights are here."""
        waiting: queue.SimpleQueue[RepoFile] = queue.SimpleQueue()
        for file in sorted(files, key=lambda file: ((file.size or 0) > 1 << 20, file.path)):
            waiting.put(file)
        failures: list[BaseException] = []

        def take() -> None:
            try:
                while not failures:
                    self._fetch(waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # noqa: BLE001 - raised below, by the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=take, daemon=True) for _ in range(min(STREAMS, len(files)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not failures:
                thread.join(0.1)
        if failures:  # what went wrong, rather than that it was told to stop; what still arrives is not waited for
            raise next((error for error in failures if not isinstance(error, Stopped)), failures[0])

    def _fetch(self, file: RepoFile) -> None:
        """One file, and the name by which the library finds it."""
        from huggingface_hub import constants, hf_hub_url

        place = self._places.of(file)
        whole = place.is_whole(file.size)
        if not whole and (file.size or 0) > _HTTP_BYTES:
            if constants.HF_HUB_DISABLE_XET or self._request.single:
                raise hub_errors.too_large(file.path, file.size or 0)
            self.report(file.path, 0, FileState.RUNNING)
            self._patiently(lambda: self._library_file(file.path))  # Xet, without a part to resume
        else:
            if not whole:
                url = hf_hub_url(self._request.repo, file.path, revision=self.commit, endpoint=self._endpoint)
                FileFetch(self.shared, file, place, url, self._call(file.path)).run()
            self._name(file, place)
        self.report(file.path, file.size or place.here(None), FileState.DONE)

    def _name(self, file: RepoFile, place: Place) -> None:
        try:
            if place.link is not None:
                if not place.link.exists():
                    self._patiently(lambda: self._library_file(file.path))
            elif not self._request.single:
                self._places.write_metadata(file)
        except OSError as error:
            raise io_error(error, place.link or place.whole) from error

    # --- the library --------------------------------------------------------------------------------------

    def _call(self, file: str = "") -> HubCall:
        revision = self.commit or self._request.revision
        return HubCall(self._endpoint, self._request.repo, revision, file, known=bool(self._token))

    def _library_file(self, path: str) -> None:
        from huggingface_hub import hf_hub_download

        hf_hub_download(
            self._request.repo, path, revision=self.commit, endpoint=self._endpoint, token=self._token, **self._where()
        )

    def _snapshot(self, patterns: list[str], *, local: bool = False) -> None:
        from huggingface_hub import snapshot_download

        snapshot_download(
            self._request.repo, revision=self.commit, endpoint=self._endpoint, allow_patterns=patterns,
            token=self._token, local_files_only=local, **self._where(),
        )  # fmt: skip

    def _where(self) -> dict[str, Any]:
        own = {} if self._places.in_cache else {"local_dir": self._places.folder}
        return {"cache_dir": self._places.hub, **own}

    def _patiently(self, call: Callable[[], R]) -> R:
        """A call that is repeated for as long as the Hub does not answer, or asks for a pause."""
        seconds, most = _NETWORK_SECONDS
        while True:
            self.shared.check()
            try:
                return call()
            except (SparkError, Stopped):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise io_error(error, self.shared.store) from error
                found = translate(error, self._call())
                passing = isinstance(found, (hub_errors.HubOffline, hub_errors.HubBusy))
                if not passing or isinstance(found, hub_errors.HubSwitchedOff):
                    raise found from error
                wait = found.wait if isinstance(found, hub_errors.HubBusy) else None
                _log.warning("%s", describe(error))
                self.shared.pause(found.summary.rstrip("."), wait or seconds)
                seconds = min(most, seconds * 2)


def _literal(path: str) -> str:
    """A path as a pattern that fits nothing else."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
