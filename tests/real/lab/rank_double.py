"""A stand-in for vLLM over several nodes that starts in a second, for tests of what is around it.

It takes vLLM's own options: the ranks meet at --master-addr, rank 0 serves once all have joined, and each completion
goes around all ranks by TCP in a message larger than a packet. Each rank keeps a file in /dev/shm. Who waits for
others longer than --distributed-timeout-seconds ends as torch does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import NoReturn

LOAD_SECONDS = 3
TOKEN_SECONDS = 0.01
MESSAGE = b"x" * 5_000
"""One packet where the MTU is 9000, and none that an interface with 1500 takes."""
SHARED = Path(f"/dev/shm/psm_{uuid.uuid4().hex[:8]}")


def main() -> None:
    """Runs one rank until it is stopped, or its connection ends."""
    options = parse()
    SHARED.write_bytes(b"x" * 65536)
    signal.signal(signal.SIGTERM, lambda *_: end(0))
    print(
        f"INFO 11-23 15:00:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0), rank {options.node_rank}", flush=True
    )
    time.sleep(LOAD_SECONDS)
    if options.node_rank:
        work(options)
    else:
        serve(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=29501)
    parser.add_argument("--distributed-timeout-seconds", type=int, default=60)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default="m")
    return parser.parse_known_args()[0]


def end(code: int) -> NoReturn:
    SHARED.unlink()
    os._exit(code)


def failed(why: str) -> NoReturn:
    print(f"ERROR 11-23 15:00:00 [multiproc_executor.py:953] {why}", file=sys.stderr, flush=True)
    end(1)


def work(options: argparse.Namespace) -> None:
    """A headless rank: sends back what it gets."""
    limit = options.distributed_timeout_seconds
    deadline = time.monotonic() + limit
    while True:
        try:
            link = socket.create_connection((options.master_addr, options.master_port), timeout=5)
            break
        except OSError:
            if time.monotonic() > deadline:
                failed(
                    f"torch.distributed.DistNetworkError: The client socket has timed out after {limit}000ms while "
                    f"trying to connect to ({options.master_addr}, {options.master_port})."
                )
            time.sleep(0.2)
    link.settimeout(None)
    while data := link.recv(1 << 16):
        link.sendall(data)
    print("ERROR 11-23 15:00:00 [multiproc_executor.py:1] the head is gone", flush=True)
    end(1)


def serve(options: argparse.Namespace) -> None:
    """The head: waits for the others, then answers."""
    meeting = socket.create_server((options.master_addr, options.master_port))
    meeting.settimeout(limit := options.distributed_timeout_seconds)
    try:
        links = [meeting.accept()[0] for _ in range(options.nnodes - 1)]
    except TimeoutError:
        failed(
            f"torch.distributed.DistStoreError: Timed out after {limit + 1} seconds waiting for clients. "
            f"1/{options.nnodes} clients joined."
        )
    turn, counts = Lock(), {"running": 0, "tokens": 0}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            model = {"object": "list", "data": [{"id": options.served_model_name, "object": "model"}]}
            pages = {
                "/health": "",
                "/version": json.dumps({"version": "0.32.0"}),
                "/v1/models": json.dumps(model),
                "/metrics": f"vllm:num_requests_running {counts['running']}\n"
                f"vllm:generation_tokens_total {counts['tokens']}\n",
            }
            self.answer(pages.get(self.path, ""), "application/json" if "v" in self.path else "text/plain")

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            counts["running"] += 1
            with turn:
                for link in links:
                    link.sendall(MESSAGE)
                    left = len(MESSAGE)
                    while left and (data := link.recv(left)):
                        left -= len(data)
                    if left:
                        os._exit(0)  # as vLLM's API server: 0 although its engine has died
            tokens = int(asked.get("max_tokens") or 1)
            time.sleep(tokens * TOKEN_SECONDS)
            counts["running"] -= 1
            counts["tokens"] += tokens
            if not asked.get("stream"):
                usage = {"prompt_tokens": 1, "completion_tokens": tokens}
                self.answer(json.dumps({"choices": [{"text": "pong"}], "usage": usage}), "application/json")
                return
            delta = {"choices": [{"index": 0, "delta": {"content": "pong"}, "finish_reason": "stop"}]}
            self.answer(f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n", "text/event-stream")

        def answer(self, text: str, kind: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((options.host, options.port), Handler)
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever()
