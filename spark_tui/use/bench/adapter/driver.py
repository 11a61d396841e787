"""The LoadDriver of the real world: load by a helper process, and the short questions of a benchmark over httpx2."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from spark_tui.base import executors
from spark_tui.base.engine.answer import api_error
from spark_tui.base.engine.runtimes import runtime_named
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import EngineFailed, EngineUnreachable, SparkError
from spark_tui.base.remote import last_line
from spark_tui.base.untrusted import decode, encode, load_json
from spark_tui.machine.engine_http import ClientPools, authorization, bearer, beginning_of
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadOrder, LoadResult, Tick

ANSWER_SECONDS: Final = 30.0
END_SECONDS: Final = 5.0
"""A helper that has not ended by then is killed."""
_MOST_LINE_BYTES: Final = 512 * 1024 * 1024
_MOST_ANSWER_BYTES: Final = 32 * 1024 * 1024
TOKENIZE_PATH: Final = "/tokenize"
DETOKENIZE_PATH: Final = "/detokenize"


class HttpLoadDriver:
    """The LoadDriver port. The helper process starts with the first load and stays until `close`.

    `command` starts the helper elsewhere than here: in a container beside another client that it is compared with.
    """

    simulated = False

    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = tuple(command) or executors.command("spark_tui.use.bench.adapter.load")
        self._child: asyncio.subprocess.Process | None = None
        self._pools = ClientPools(ANSWER_SECONDS)

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        """Ticks, then the LoadResult. An abandoned generator ends the helper."""
        child = await self._helper()
        order = LoadOrder(load, endpoint.base_url, authorization(endpoint))
        stopper: asyncio.Task[None] | None = None
        ended = False
        try:
            await _send(child, order)
            stopper = asyncio.create_task(_send_stop(child, stop))
            while not ended:
                line = await child.stdout.readline() if child.stdout is not None else b""
                if not line.endswith(b"\n"):
                    raise await self._died(child)
                event: LoadEvent = decode(line, Tick | LoadResult)  # type: ignore[arg-type]  # a union
                ended = isinstance(event, LoadResult)
                yield event
        finally:
            if stopper is not None:
                await executors.end_tasks(stopper)
            if not ended:
                await self._end_child()

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        """`POST /tokenize`, with the text under the engine's own key."""
        body = {"model": model, runtime_named(endpoint.runtime).text_key: text, "add_special_tokens": False}
        answer = await self._post(endpoint, TOKENIZE_PATH, body)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise _not_understood(endpoint, TOKENIZE_PATH)
        length = answer.get("max_model_len")
        return tuple(tokens), length if isinstance(length, int) and not isinstance(length, bool) else None

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str:
        answer = await self._post(endpoint, DETOKENIZE_PATH, {"model": model, "tokens": list(tokens)})
        text = answer.get("prompt", answer.get("content", answer.get("text")))
        if not isinstance(text, str):
            raise _not_understood(endpoint, DETOKENIZE_PATH)
        return text

    async def close(self) -> None:
        await self._end_child()
        await self._pools.close()

    # --- short questions ------------------------------------------------------------------------------

    async def _post(self, endpoint: Endpoint, path: str, body: dict[str, Any]) -> dict[str, Any]:
        import httpx2

        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._pools.of(endpoint).stream(
                    "POST", endpoint.base_url + path, json=body, auth=bearer(endpoint)
                ) as response,
            ):
                page = await beginning_of(response, _MOST_ANSWER_BYTES)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise EngineUnreachable(
                f"The engine at {endpoint.base_url} did not answer {path}.",
                "Is it running and ready? spark-tui ps shows it.",
                detail=type(error).__name__,
            ) from None
        text = page.decode("utf-8", "replace")
        if response.status_code != 200:
            raise api_error(response.status_code, text[:65536], path=path)
        with contextlib.suppress(ValueError):
            answer = load_json(text)
            if isinstance(answer, dict):
                return answer
        raise _not_understood(endpoint, path)

    # --- the helper -----------------------------------------------------------------------------------

    async def _helper(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None:
            return self._child
        try:
            self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": executors.python_path()},
                start_new_session=True,  # Ctrl-C in the terminal is for us, who then ask it to stop
                limit=_MOST_LINE_BYTES,
            )
        except OSError as error:
            raise SparkError(
                f"The helper that sends the load cannot start: {error.strerror or error}.",
                "Check the number of processes and the free memory.",
            ) from error
        return self._child

    async def _died(self, child: asyncio.subprocess.Process) -> SparkError:
        errors = await child.stderr.read() if child.stderr is not None else b""
        code = await child.wait()
        return SparkError(
            "The helper that sends the load has ended.",
            "Measure again. If it stays so, report it with the detail.",
            detail=last_line(errors.decode("utf-8", "replace")) or f"exit code {code}",
        )

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


async def _send(child: asyncio.subprocess.Process, order: LoadOrder) -> None:
    if child.stdin is None:
        return
    with contextlib.suppress(ConnectionError):  # it has ended: the reader of its answers notices, and says why
        child.stdin.write(encode(order).encode() + b"\n")
        await child.stdin.drain()


async def _send_stop(child: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    await stop.wait()
    await _send(child, LoadOrder(None))


def _not_understood(endpoint: Endpoint, path: str) -> EngineFailed:
    return EngineFailed(
        f"{endpoint.base_url}{path} did not answer as an engine does.",
        "Check the address and the port: another program may listen there.",
    )
