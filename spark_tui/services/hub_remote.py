"""Reads the beginnings of files on the Hub: configs, and headers of weights. Never a tensor, never without bound."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts, CheckpointProblem
from spark_tui.domain.models.hub import RepoFacts
from spark_tui.domain.models.json_keys import MOST_BYTES, BadJson, read_object
from spark_tui.domain.models.parts import (
    CONFIG,
    GENERATION,
    HF_QUANT,
    INDEX,
    MOST_CONFIG_BYTES,
    MOST_TEMPLATE_BYTES,
    TEMPLATE,
    TOKENIZER,
    Parts,
    checkpoint_of,
    weight_files,
)
from spark_tui.domain.models.safetensors_header import LENGTH_BYTES, SafetensorsHeader, header_length, parse_header
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.secret import Secret
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.hub_session import Asked, Unanswered, calling, plain_headers, raise_for_status, words_of

FIRST_BYTES: Final = 256 * 1024
"""Asked for at once: the headers of most files end within it, and then one request is enough."""
MOST_SHARDS: Final = 1_000
READERS: Final = 6


class RemoteFiles:
    """Reads one revision's files by range."""

    def __init__(self, facts: RepoFacts, endpoint: str, token: Secret | None) -> None:
        self._facts = facts
        self._endpoint = endpoint
        self._token = token
        self._sizes = {file.path: file.size for file in facts.files}

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def checkpoint(self) -> Reading[CheckpointFacts]:
        """All that its configs and headers say. Raises the errors of the Hub when nothing can be read at all."""
        if CONFIG not in self:
            return Missing(f"it has no {CONFIG}")
        config = self._object(CONFIG, MOST_CONFIG_BYTES)
        if isinstance(config, CheckpointProblem):
            return Missing(f"{config.file}: {config.reason}")
        problems: list[CheckpointProblem] = []
        index = self._optional(INDEX, MOST_BYTES, problems)
        files = weight_files(index, self._sizes, MOST_SHARDS)
        parts = Parts(
            config,
            hf_quant=self._optional(HF_QUANT, MOST_CONFIG_BYTES, problems),
            generation=self._optional(GENERATION, MOST_CONFIG_BYTES, problems),
            index=index,
            template=self._template(),
            tokenizer=self._optional(TOKENIZER, MOST_CONFIG_BYTES, problems) if TEMPLATE not in self else None,
            licence=self._facts.licence,
            headers=self._headers(files),
            problems=problems,
        )
        source = f"{self._facts.page} at {self._facts.commit[:12] or self._facts.revision}"
        return Ok(checkpoint_of(parts, source))

    def header(self, path: str) -> SafetensorsHeader | CheckpointProblem:
        """One file's tensors. What is wrong with the file is a problem; what is wrong with the Hub is raised."""
        name = truncate(clean_line(path), 80)
        if path not in self:
            return CheckpointProblem(name, "is not in the repository")
        first = self._read(path, 0, FIRST_BYTES)
        length = header_length(first, name)
        if isinstance(length, CheckpointProblem):
            return length
        wanted, size = LENGTH_BYTES + length, self._sizes[path]
        if size is not None and wanted > size:
            return CheckpointProblem(name, f"its header claims {length:,} bytes, the whole file has {size:,}")
        if wanted > len(first):
            first += self._read(path, len(first), wanted - len(first))
        return parse_header(first, file=name, file_size=size)

    # --- one at a time ----------------------------------------------------------------------------------

    def _object(self, path: str, most: int) -> dict[str, Any] | CheckpointProblem:
        data = self._read(path, 0, most + 1)
        if len(data) > most:
            return CheckpointProblem(path, f"larger than {most >> 20} MiB")
        try:
            return read_object(data)
        except BadJson as error:
            return CheckpointProblem(path, str(error))

    def _template(self) -> str | None:
        if TEMPLATE not in self:
            return None
        return self._read(TEMPLATE, 0, MOST_TEMPLATE_BYTES).decode("utf-8", "replace")

    def _optional(self, path: str, most: int, problems: list[CheckpointProblem]) -> dict[str, Any] | None:
        if path not in self:
            return None
        found = self._object(path, most)
        if isinstance(found, CheckpointProblem):
            problems.append(found)
            return None
        return found

    def _read(self, path: str, begin: int, length: int) -> bytes:
        """So many bytes from `begin` on, or as many as there are. Raises SparkError."""
        asked = Asked(self._endpoint, self._facts.repo, revision=self._facts.revision, file=path, token=self._token)
        return calling(asked, lambda: self._ranged(path, begin, length))

    def _ranged(self, path: str, begin: int, length: int) -> bytes:
        from httpx2 import TransportError
        from huggingface_hub import get_session, hf_hub_url

        revision = self._facts.commit or self._facts.revision
        url = hf_hub_url(self._facts.repo, path, revision=revision, endpoint=self._endpoint)
        headers = plain_headers(self._token) | {"Range": f"bytes={begin}-{begin + length - 1}"}
        with get_session().stream("GET", url, headers=headers) as response:
            if response.status_code == 416:
                return b""
            raise_for_status(response)
            skip = begin if response.status_code == 200 else 0  # a server that knows no ranges sends all of it
            if skip > MOST_BYTES:
                raise hub_errors.strange_answer(self._endpoint, "it answers a range with the whole file")
            try:
                return _first_bytes(response, skip, length)
            except TransportError as error:
                raise Unanswered(words_of(error)) from error

    # --- many at once -----------------------------------------------------------------------------------

    def _headers(self, files: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        """In the order of `files`. The first error of the Hub ends it: the others would fail the same way."""
        futures: list[Future[SafetensorsHeader | CheckpointProblem]] = [Future() for _ in files]
        waiting = iter(list(zip(files, futures, strict=True)))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    path, future = next(waiting, ("", None))
                if future is None:
                    return
                try:
                    future.set_result(self.header(path))
                except SparkError as error:
                    future.set_exception(error)
                    return

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(READERS, len(files)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for future in futures:
            if future.done() and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures if future.done()]


def _first_bytes(response: Any, skip: int, length: int) -> bytes:
    parts: list[bytes] = []
    left = skip + length
    for chunk in response.iter_raw():
        parts.append(chunk[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    return b"".join(parts)[skip:]
