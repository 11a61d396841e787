"""Pulls an image: the daemon's messages per layer, as one progress."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spark_tui.domain.engine.container import LayerProgress, PullProgress
from spark_tui.domain.errors import DockerError
from spark_tui.domain.text import clean_line
from spark_tui.services.docker.calls import image
from spark_tui.services.docker.connection import Aborted, ByteStream, DockerHttp, Refused
from spark_tui.services.docker.errors import (
    TRANSPORT_ERRORS,
    Asked,
    broken,
    from_message,
    from_transport,
    registry_of,
    translate,
)
from spark_tui.services.executors import Handover

_DOWNLOADED: Final = frozenset(("Verifying Checksum", "Download complete", "Extracting", "Pull complete"))
_WAITING: Final = frozenset(("Pulling fs layer", "Waiting", "Retrying", "Downloading"))
_DONE: Final = ("Status: Downloaded newer image", "Status: Image is up to date")


def split_reference(reference: str) -> tuple[str, str]:
    """Name and tag (or digest) as the API wants them; without a tag `latest`, because no tag means all of them."""
    name, at, digest = reference.partition("@")
    if at:
        return name, digest
    head, colon, tag = reference.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (reference, "latest")


class PullTracker:
    """Adds the daemon's messages up."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._layers: dict[str, LayerProgress] = {}
        self._status = f"asking {registry_of(reference)}"
        self.done = False

    def feed(self, message: Mapping[str, Any]) -> None:
        """Takes one message. Raises DockerError (or what it means) when it reports a failure."""
        failure = message.get("error") or (message.get("errorDetail") or {}).get("message")
        if failure:
            raise from_message(str(failure), Asked(f"pull {self._reference}", image=self._reference, pulling=True))
        status, layer = clean_line(str(message.get("status", ""))), message.get("id")
        if layer and "progressDetail" in message:
            self._layer(clean_line(str(layer)), status, message["progressDetail"] or {})
        elif status.startswith(_DONE):
            self.done, self._status = True, status.removeprefix("Status: ")

    def _layer(self, layer: str, status: str, detail: Mapping[str, Any]) -> None:
        before = self._layers.get(layer) or LayerProgress(layer, status)
        current, total = before.current, before.total
        if status == "Downloading":
            current, total = int(detail.get("current") or 0), int(detail.get("total") or 0) or total
        elif status in _DOWNLOADED:
            current = total
        self._layers[layer] = LayerProgress(layer, status, current, total)

    def progress(self) -> PullProgress:
        """The pull so far."""
        layers = tuple(self._layers.values())
        status = self._status
        if layers and not self.done:
            status = "downloading" if any(layer.status in _WAITING for layer in layers) else "extracting"
        return PullProgress(self._reference, layers, status)


class PullReader:
    """Producer of a pull's progress: the latest state replaces one that nobody has taken."""

    def __init__(self, http: DockerHttp, reference: str, config: Path) -> None:
        self._http = http
        self._reference = reference
        self._config = config
        self._stream: ByteStream | None = None
        self._cancelled = False
        self._asked = Asked(f"pull {reference}", image=reference, pulling=True)

    def cancel(self) -> None:
        """Closes the connection, upon which the daemon stops pulling."""
        self._cancelled = True
        stream = self._stream
        if stream is not None:
            stream.abort()

    def run(self, handover: Handover[PullProgress]) -> None:
        """Pulls to the end. Raises ImageNotFound, RegistryUnreachable, RegistryUnauthorized, NoSpaceLeft ..."""
        tracker = PullTracker(self._reference)
        handover.replace(tracker.progress())
        name, tag = split_reference(self._reference)
        headers = registry_headers(registry_of(self._reference), self._config)
        stream = self._stream = self._http.stream("POST", "/images/create", {"fromImage": name, "tag": tag}, headers)
        try:
            if not self._cancelled:
                stream.open()
                self._pump(stream, tracker, handover)
        except Aborted:
            return
        except TRANSPORT_ERRORS as error:
            raise broken(f"The pull of {self._reference}", 0, from_transport(error, self._http.host)) from error
        except (Refused, ValueError) as error:
            raise translate(error, self._http.host, self._asked) from error
        finally:
            stream.close()
        if not (tracker.done or self._cancelled or self._is_here()):
            cause = from_transport(ConnectionResetError("the stream ended early"), self._http.host)
            raise broken(f"The pull of {self._reference}", 0, cause)

    def _pump(self, stream: ByteStream, tracker: PullTracker, handover: Handover[PullProgress]) -> None:
        rest = b""
        while data := stream.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    tracker.feed(json.loads(line))
            handover.replace(tracker.progress())

    def _is_here(self) -> bool:
        """A daemon that does not say so at the end may have pulled it all the same."""
        return image(self._http, self._reference) is not None


def registry_headers(registry: str, config: Path) -> dict[str, str]:
    """The login that the docker program has stored for a registry, by its own files and credential helpers."""
    if not config.is_file():
        return {}
    from docker import auth, errors

    try:
        with warnings.catch_warnings():  # an absent helper is also warned of, into the middle of the screen
            warnings.simplefilter("ignore")
            stored = auth.load_config(str(config)).resolve_authconfig(registry)
    except errors.DockerException as error:
        raise DockerError(
            f"The login for {registry} cannot be read.",
            f"Repair the credential helper that {config} names, or log in again: docker login {registry}",
            detail=clean_line(str(error)),
        ) from error
    return {"X-Registry-Auth": auth.encode_header(stored).decode("ascii")} if stored else {}
