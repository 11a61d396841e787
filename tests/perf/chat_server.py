"""A server that streams answers at a steady pace: `chat_server.py RATE TOKENS`. Prints its port first.

What it sends for each token is what vLLM sends, usage on every chunk included; only the text is made up.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

TEXT = """The memory of this machine is one pool, and both processors draw from it: what the page cache holds is not
free for the engine, although the kernel says so. Before a **launch** the cache is dropped, and then `MemAvailable` and
what CUDA reports agree to within some hundred megabytes.

1. Look at the strip: four figures, which never add up to more than there is.
2. Press the key, and read what was released.

```python
def decode_ceiling(bandwidth: float, bytes_per_token: float) -> float:
    return bandwidth / bytes_per_token
```

That is a bound and no forecast. Attention reads its cache too, and a long conversation costs more with every token."""
WORDS = re.findall(r"\s*\w+|\s*[^\w\s]+", TEXT + "\n\n")
"""Tokens are about as long as these."""
PACKETS_PER_SECOND = 200
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
MODELS = {"object": "list", "data": [{"id": "scripted", "root": "scripted", "max_model_len": 262_144}]}


def chunk(number: int, delta: dict[str, str], reason: str | None = None) -> bytes:
    """One event of the stream."""
    told = {
        "id": "chatcmpl-8d29f7e1a2ffae74", "object": "chat.completion.chunk", "created": 1795229217,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, "token_ids": None}],
        "usage": {"prompt_tokens": 40, "total_tokens": 40 + number, "completion_tokens": number},
    }  # fmt: skip
    return f"data: {json.dumps(told)}\n\n".encode()


class Scripted:
    """Answers what the program asks an engine."""

    def __init__(self, rate: float, tokens: int) -> None:
        self._rate = rate
        self._tokens = tokens

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split()[1]
            if path == "/v1/chat/completions":
                writer.write(HEAD.format(kind="text/event-stream").encode())
                await self._stream(writer)
            else:
                told = {"/v1/models": MODELS, "/version": {"version": "0.33.0"}}.get(path, {})
                writer.write(HEAD.format(kind="application/json").encode() + json.dumps(told).encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(chunk(0, {"role": "assistant", "content": ""}))
        loop = asyncio.get_running_loop()
        begun, sent = loop.time(), 0
        while sent < self._tokens and not writer.is_closing():
            due = min(self._tokens, int((loop.time() - begun) * self._rate))
            for number in range(sent, due):
                writer.write(chunk(number + 1, {"content": WORDS[number % len(WORDS)]}))
            sent = due
            await writer.drain()  # one whose reader has left raises here
            await asyncio.sleep(1 / PACKETS_PER_SECOND)
        writer.write(chunk(sent, {}, "stop") + b"data: [DONE]\n\n")


async def main() -> None:
    scripted = Scripted(float(sys.argv[1]), int(sys.argv[2]))
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
