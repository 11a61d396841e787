"""The helper process that sends a benchmark's load: `python -m spark_tui.services.bench.child`.

A process of its own, so that nothing else that this program does (painting a screen, reading a log) delays
the clock when a token arrives. It reads one JSON object per line on standard input, and writes the same:

    {"load": {...}}                      send this; an answer to it ends with {"records": ...}
    {"stop": true}                       cut short what is under way
    {"tick": [done, running, pieces]}    four times a second
    {"records": [[...], ...],            everything that was measured, and how late the clock came to it
     "lateness": [0.0001, ...]}

It ends with its standard input, and so with its parent. Keys come in by that pipe and stand in no argument.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any, Final

from spark_tui.domain.bench.record import record_of, record_to_json
from spark_tui.services.bench.load import ClosedLoop
from spark_tui.services.ports import Load, RequestSpec

TICK_SECONDS: Final = 0.25


def main() -> int:
    """Serves requests until standard input ends."""
    asyncio.run(_serve())
    return 0


async def _serve() -> None:
    orders: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:  # in a thread, which waits in the kernel: lines can be many megabytes long
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(orders.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(orders.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (order := await orders.get()) is not None:
        if "load" in order and not await _send(order, orders):
            return


async def _send(order: dict[str, Any], orders: asyncio.Queue[dict[str, Any] | None]) -> bool:
    """One load, until it has ended; false when standard input has."""
    closed = ClosedLoop(order["base_url"], order["authorization"], load_from_json(order["load"]))
    running = asyncio.create_task(closed.run())
    listening = asyncio.create_task(orders.get())
    connected = True
    while not running.done():
        await asyncio.wait((running, listening), timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            connected = listening.result() is not None
            closed.stop()
            if not connected:
                break
            listening = asyncio.create_task(orders.get())
        tick = closed.tick()
        _write({"tick": [tick.done, tick.running, tick.pieces]})
    listening.cancel()
    records = [record_to_json(record_of(exchange)) for exchange in await running]
    _write({"records": records, "lateness": [round(late, 6) for late in closed.lateness]})
    return connected


def load_to_json(load: Load) -> dict[str, Any]:
    requests = [[spec.number, spec.prompt, spec.input_tokens, spec.output_tokens] for spec in load.requests]
    return {
        "model": load.model, "requests": requests, "streams": load.streams, "temperature": load.temperature,
        "silence_seconds": load.silence_seconds,
    }  # fmt: skip


def load_from_json(value: dict[str, Any]) -> Load:
    requests = tuple(
        RequestSpec(number, prompt if isinstance(prompt, str) else tuple(prompt), asked, output)
        for number, prompt, asked, output in value["requests"]
    )
    return Load(**{**value, "requests": requests})


def _write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
