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
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.models.hub_files import Selection, select
from spark_tui.domain.secret import Secret
from spark_tui.services.hub_answers import commit_of, files_of
from spark_tui.services.hub_download_fetch import FileFetch, Shared, Stopped
from spark_tui.services.hub_download_places import Place, Places, free_bytes, io_error, made
from spark_tui.services.hub_download_records import Order
from spark_tui.services.hub_session import Asked, prepare, token_of, translate, words_of

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
        self._order = order
        self._lock = threading.Lock()
        self._progress: dict[str, FileProgress] = {}
        self.shared = Shared(Path(order.store), order.endpoint, token, self)
        self.phase = DownloadPhase.PREPARING
        self.commit = commit
        self.left_out = 0
        self._places = Places(Path(order.store), order.request, commit)

    # --- what is told -------------------------------------------------------------------------------------

    def tell(self, path: str, done: int, state: FileState) -> None:
        """A file's progress."""
        with self._lock:
            before = self._progress.get(path)
            self._progress[path] = FileProgress(path, before.size if before else None, done, state)

    def files(self) -> tuple[FileProgress, ...]:
        """Every file, in path order."""
        with self._lock:
            return tuple(self._progress.values())

    # --- the work -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end. Raises Stopped, or a SparkError."""
        prepare()
        if self._request.url:
            self._from_web()
            return
        files = self._listed()
        self.phase = DownloadPhase.DOWNLOADING
        self._each(files, self._fetch)
        self.phase = DownloadPhase.FINISHING
        self._finish(files)

    def _from_web(self) -> None:
        """A file that is not on the Hub."""
        name = self._request.target
        with self._lock:
            self._progress = {name: FileProgress(name, None)}
        self.phase = DownloadPhase.DOWNLOADING
        self._one(RepoFile(name, None), self._places.single(), self._request.url, hub=False)

    def _listed(self) -> tuple[RepoFile, ...]:
        """Asks which files there are, once it is settled which commit is meant: an interrupted download goes on with
        the one that it began with."""
        begun = bool(self.commit)
        self.commit, entries = self._settled()
        self._places = Places(self.shared.store, self._request, self.commit)
        selection = select(
            entries, only=self._request.files, everything=self._request.everything,
            load_format=self._request.load_format,
        )  # fmt: skip
        self._check(selection)
        self.left_out = len(selection.left_out)
        if self._request.again and not begun:  # an earlier run has dropped them
            self._drop(selection.files)
        here = {file.path: self._places.of(file).here(file.size) for file in selection.files}
        with self._lock:
            self._progress = {
                file.path: FileProgress(file.path, file.size, here[file.path]) for file in selection.files
            }
        self._need_room(selection.files, here)
        self._keep_listing()
        return selection.files

    def _settled(self) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit that is fetched: that of an earlier run, unless it was taken away while the download rested."""
        if self.commit:
            try:
                return self._patiently(lambda: self._ask(self.commit))
            except hub_errors.HubRevisionMissing:
                self.commit = ""
        return self._patiently(lambda: self._ask(self._request.revision))

    def _ask(self, revision: str) -> tuple[str, tuple[RepoFile, ...]]:
        """The commit, and its files. Both become names of files here: what is no digest is refused."""
        api = self._api()
        commit = commit_of(api.model_info(self._request.repo, revision=revision))
        files = files_of(api.list_repo_tree(self._request.repo, recursive=True, revision=commit or revision))
        if not commit or not all(file.digest for file in files):
            raise hub_errors.strange_answer(self._order.endpoint, "a commit or a file without a digest")
        return commit, files

    def _check(self, selection: Selection) -> None:
        if selection.missing:
            raise hub_errors.file_missing(self._request.repo, selection.missing[0])
        if selection.choices:
            raise hub_errors.needs_choice(self._request.repo, [name for name, _ in selection.choices])
        if not selection.files:
            raise hub_errors.nothing_to_load(self._request.repo)

    def _drop(self, files: Sequence[RepoFile]) -> None:
        """What is here of these files is damaged."""
        for file in files:
            place = self._places.of(file)
            for path in (place.link, place.whole, place.part):
                try:
                    if path is not None:
                        path.unlink(missing_ok=True)
                except OSError as error:
                    raise io_error(error, place.whole) from error

    def _need_room(self, files: Sequence[RepoFile], here: dict[str, int]) -> None:
        left = sum(max(0, (file.size or 0) - here[file.path]) for file in files)
        try:
            free = free_bytes(self.shared.store)
        except OSError as error:
            raise io_error(error, self.shared.store) from error
        if left and left + hub_errors.KEEP_FREE > free:
            raise hub_errors.no_room(str(self.shared.store), left, free)

    def _keep_listing(self) -> None:
        """Has the library write its listing of the commit, which tells sizes and hashes when the Hub is away. It is
        asked for no file that exists."""
        if not self._request.single:
            made(self._places.folder)
            self._patiently(lambda: self._snapshot(["\0"]))

    # --- files --------------------------------------------------------------------------------------------

    def _each(self, files: Sequence[RepoFile], work: Callable[[RepoFile], None]) -> None:
        """Some at once, small ones first: with its config a model can be understood before its weights are here."""
        waiting: queue.SimpleQueue[RepoFile] = queue.SimpleQueue()
        for file in sorted(files, key=lambda file: ((file.size or 0) > 1 << 20, file.path)):
            waiting.put(file)
        failures: list[BaseException] = []

        def take() -> None:
            try:
                while not failures:
                    work(waiting.get_nowait())
            except queue.Empty:
                return
            except BaseException as error:  # noqa: BLE001 - raised below, by the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=take, daemon=True) for _ in range(min(STREAMS, len(files)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                if failures:  # what still arrives is kept; it is not waited for
                    raise _first(failures)
        if failures:
            raise _first(failures)

    def _fetch(self, file: RepoFile) -> None:
        from huggingface_hub import hf_hub_url

        place = self._places.of(file)
        if (file.size or 0) > _HTTP_BYTES and not place.is_whole(file.size):
            self._by_xet(file)
            return
        if not place.is_whole(file.size):
            url = hf_hub_url(self._request.repo, file.path, revision=self.commit, endpoint=self._order.endpoint)
            self._one(file, place, url)
        self._name(file, place)
        self.tell(file.path, file.size or place.here(None), FileState.DONE)

    def _one(self, file: RepoFile, place: Place, url: str, *, hub: bool = True) -> None:
        asked = Asked(
            self._order.endpoint, self._request.repo, revision=self.commit, file=file.path, token=self.shared.token
        )
        FileFetch(self.shared, file, place, url, asked, hub=hub).run()

    def _name(self, file: RepoFile, place: Place) -> None:
        """Gives a whole file the name by which the library finds it."""
        try:
            if place.link is not None:
                if not place.link.exists():
                    self._patiently(lambda: self._library_file(file.path))
            elif not self._request.single:
                self._places.write_metadata(file)
        except OSError as error:
            raise io_error(error, place.link or place.whole) from error

    def _by_xet(self, file: RepoFile) -> None:
        """The library's own way, without a part to go on with."""
        from huggingface_hub import constants

        if constants.HF_HUB_DISABLE_XET or self._request.single:
            raise hub_errors.too_large(file.path, file.size or 0)
        self.tell(file.path, 0, FileState.RUNNING)
        self._patiently(lambda: self._library_file(file.path))
        self.tell(file.path, file.size or 0, FileState.DONE)

    # --- the library --------------------------------------------------------------------------------------

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._order.endpoint, token=token_of(self.shared.token), library_name="spark-tui")

    def _library_file(self, path: str) -> None:
        from huggingface_hub import hf_hub_download

        hf_hub_download(
            self._request.repo, path, revision=self.commit, endpoint=self._order.endpoint,
            token=token_of(self.shared.token), **self._where(),
        )  # fmt: skip

    def _snapshot(self, patterns: list[str], *, local: bool = False) -> str:
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            self._request.repo, revision=self.commit, endpoint=self._order.endpoint, allow_patterns=patterns,
            token=token_of(self.shared.token), local_files_only=local, **self._where(),
        )  # fmt: skip
        return str(found)

    def _where(self) -> dict[str, Any]:
        if self._places.in_cache:
            return {"cache_dir": self._places.hub}
        return {"cache_dir": self._places.hub, "local_dir": self._places.folder}

    def _finish(self, files: Sequence[RepoFile]) -> None:
        """The library itself finds the model whole, without a request; then its name leads to it."""
        if self._request.single:
            return
        try:
            self._snapshot([_literal(file.path) for file in files], local=True)
            if self._places.in_cache:
                self._places.write_ref()
        except OSError as error:
            raise io_error(error, self._places.folder) from error

    def _patiently(self, call: Callable[[], R]) -> R:
        """A call that is repeated for as long as the Hub does not answer, or asks for a pause."""
        seconds, most = _NETWORK_SECONDS
        asked = Asked(
            self._order.endpoint, self._request.repo, revision=self.commit or self._request.revision,
            token=self.shared.token,
        )  # fmt: skip
        while True:
            self.shared.check()
            try:
                return call()
            except (SparkError, Stopped):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise io_error(error, self.shared.store) from error
                found = translate(error, asked)
                if not isinstance(found, (hub_errors.HubOffline, hub_errors.HubBusy)) or "HF_HUB" in found.summary:
                    raise found from error
                wait = found.wait if isinstance(found, hub_errors.HubBusy) else None
                _log.warning("%s", words_of(error))
                self.shared.pause(found.summary.rstrip("."), wait or seconds)
                seconds = min(most, seconds * 2)


def _first(failures: list[BaseException]) -> BaseException:
    """What went wrong, rather than that it was told to stop."""
    return next((error for error in failures if not isinstance(error, Stopped)), failures[0])


def _literal(path: str) -> str:
    """A path as a pattern that fits nothing else."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
