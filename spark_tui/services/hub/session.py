"""The connection to the Hub: huggingface_hub's own calls, over a session that never waits without end.

The library repeats failed requests by itself and sleeps in between, where nothing can show it. Here a request is sent
once: the caller decides whether to wait, and says so. `NoResponse` and `RetryLater` carry what happened; they are no
errors of httpx, so that the library lets them through.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.secret import Secret

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0
MOST_WAIT_SECONDS: Final = 3600.0
_SWITCHED_OFF: Final = "HF_HUB_OFFLINE is set"
_RATE: Final = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d{1,6})")

R = TypeVar("R")


class NoResponse(Exception):
    """Nothing came back: no route, a refused connection, a timeout, a connection cut off."""


class RetryLater(Exception):
    """The Hub answered 429 or 5xx. `wait` is in seconds, None when it does not say."""

    def __init__(self, status: int, wait: float | None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.wait = wait


def endpoint_of(environ: Mapping[str, str]) -> str:
    """Where the Hub is: `HF_ENDPOINT`, as the Hugging Face tools have it, without its last slash."""
    told = environ.get("HF_ENDPOINT", "").strip().rstrip("/")
    return told if told.startswith(("http://", "https://")) else DEFAULT_ENDPOINT


@functools.cache
def prepare() -> None:
    """Gives huggingface_hub our session. Once in a process, before its first request."""
    from huggingface_hub import set_client_factory

    set_client_factory(_client)


def _client() -> Any:
    import httpx2

    timeouts = {"connect": CONNECT_SECONDS, "read": READ_SECONDS, "write": READ_SECONDS, "pool": CONNECT_SECONDS}

    class Session(httpx2.Client):
        """One try for each request, with bounds: the library asks for none in places."""

        def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            from huggingface_hub import constants

            if constants.HF_HUB_OFFLINE:
                raise NoResponse(_SWITCHED_OFF)
            request.extensions["timeout"] = timeouts
            try:
                response = super().send(request, **options)
            except httpx2.TransportError as error:
                raise NoResponse(describe(error)) from error
            if response.status_code == 429 or response.status_code >= 500:
                response.close()
                raise RetryLater(response.status_code, pause_asked(response.headers))
            return response

    return Session(follow_redirects=True, limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16))


def describe(error: BaseException) -> str:
    """An exception in words: `ConnectError: [Errno 111] Connection refused`."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def pause_asked(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: by `ratelimit: "api";r=0;t=55` (an IETF draft, which the Hub follows), else `Retry-After`."""
    rate = _RATE.search(headers.get("ratelimit", ""))
    plain = headers.get("retry-after", "").strip()
    seconds = rate[1] if rate else plain
    return min(float(seconds), MOST_WAIT_SECONDS) if seconds.isdigit() and len(seconds) < 8 else None


@dataclass(frozen=True, slots=True)
class HubCall:
    """What a request is about, for its errors. `known`: a token is sent."""

    endpoint: str
    repo: str = ""
    revision: str = "main"
    file: str = ""
    known: bool = False


def plain_headers(token: Secret | None) -> dict[str, str]:
    """For a file's bytes as they are. The session drops the token where the Hub leads to another host."""
    headers = {"User-Agent": "spark-tui", "Accept-Encoding": "identity"}
    return headers | {"Authorization": f"Bearer {token.reveal()}"} if token else headers


def raise_for_status(response: Any) -> None:
    """Raises the library's own error for an answer that is none."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]  # documented, not exported

    hf_raise_for_status(response)


def token_of(token: Secret | None) -> str | bool:
    """As huggingface_hub takes it; False keeps it from looking for one by itself."""
    return token.reveal() if token else False


def calling(asked: HubCall, call: Callable[[], R]) -> R:
    """Runs `call`; whatever the library raises becomes an error with a remedy."""
    try:
        return call()
    except SparkError:
        raise
    except Exception as error:
        raise translate(error, asked) from error


def translate(error: BaseException, asked: HubCall) -> SparkError:
    """An error of the library or of our session, in words."""
    if isinstance(error, NoResponse):
        if str(error) == _SWITCHED_OFF:
            return hub_errors.switched_off()
        return hub_errors.offline(asked.endpoint, str(error))
    if isinstance(error, RetryLater):
        if error.status == 429:
            return hub_errors.busy(asked.endpoint, error.wait, known=asked.known)
        return hub_errors.in_trouble(asked.endpoint, error.status)
    return _from_library(error, asked)


def _from_library(error: BaseException, asked: HubCall) -> SparkError:
    from huggingface_hub import errors

    told = str(getattr(error, "server_message", None) or "")
    match error:
        case errors.GatedRepoError():
            return hub_errors.gated(asked.endpoint, asked.repo, known=asked.known, detail=told)
        case errors.RevisionNotFoundError():
            return hub_errors.revision_missing(asked.repo, asked.revision)
        case errors.EntryNotFoundError():
            return hub_errors.file_missing(asked.repo, asked.file or "of that name")
        case errors.HFValidationError():
            return hub_errors.repo_missing(asked.repo, known=asked.known)
        case errors.HfHubHTTPError():
            pass
        case _:
            return hub_errors.strange_answer(asked.endpoint, describe(error))
    status, code = error.response.status_code, error.response.headers.get("X-Error-Code", "")
    # RepositoryNotFoundError stands for a bare 401 too: with a token, it is the token that is wrong.
    if status == 401 and asked.known and "RepoNotFound" not in code:
        return hub_errors.bad_token(told)
    if status == 403:
        return hub_errors.forbidden(asked.endpoint, asked.repo, told)
    if status in (401, 404):
        return hub_errors.repo_missing(asked.repo, known=asked.known)
    return hub_errors.other(f"{hub_errors.host_of(asked.endpoint)} refused (HTTP {status}).", told or str(error))
