"""A server that speaks the chat, messages and responses APIs: answers one sentence and records each request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "Recorded answer."
CALL = {"city": "Paris"}


@dataclass(frozen=True)
class Recorded:
    """A request: its path without the query, its Authorization header, and its body."""

    path: str
    authorization: str
    body: dict[str, Any]


@dataclass
class Recorder:
    """What clients asked. `models` are its entries of /v1/models; with `calls` it calls the first tool that is
    offered."""

    models: list[dict[str, Any]]
    calls: bool = False
    key: str = ""
    requests: list[Recorded] = field(default_factory=list)
    url: str = ""

    def asked(self, path: str) -> list[Recorded]:
        return [each for each in self.requests if each.path == path]


def chat(body: dict[str, Any], tool: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    if tool:
        call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": json.dumps(CALL)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tool else "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    head = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": body.get("model", "")}
    return {**head, "choices": [choice], "usage": usage}


def chat_events(body: dict[str, Any]) -> Iterator[str]:
    head = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", "")}
    for delta, reason in (({"role": "assistant", "content": ANSWER}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"


def message(body: dict[str, Any], tool: str) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "text", "text": ANSWER}
    if tool:
        content = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": CALL}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", ""), "content": [content],
        "stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 3},
    }  # fmt: skip


def message_events(body: dict[str, Any]) -> Iterator[str]:
    whole = message(body, "")
    start = {**whole, "content": [], "stop_reason": None}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ):  # fmt: skip
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def response(body: dict[str, Any], tool: str) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
    }  # fmt: skip
    if tool:
        item = {
            "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": json.dumps(CALL),
            "status": "completed",
        }  # fmt: skip
    usage = {
        "input_tokens": 3, "output_tokens": 3, "total_tokens": 6, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": body.get("model")}
    return {**head, "output": [item], "usage": usage}


def response_events(body: dict[str, Any]) -> Iterator[str]:
    whole = response(body, "")
    item = whole["output"][0]
    for event in (
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
         "delta": ANSWER},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ):  # fmt: skip
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


APIS = {
    "/v1/chat/completions": (chat, chat_events),
    "/v1/messages": (message, message_events),
    "/v1/responses": (response, response_events),
}


def tool_of(body: dict[str, Any]) -> str:
    """The name of the first tool that is offered."""
    for each in body.get("tools") or ():
        return str(each.get("name") or each.get("function", {}).get("name", ""))
    return ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: Recorder

    def do_GET(self) -> None:
        if self.path.startswith("/v1/models"):
            self.say(200, {"object": "list", "data": self.recorder.models})
        elif self.path == "/health":
            self.say(200, {})
        else:
            self.say(404, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        except ValueError:
            body = {}
        authorization = self.headers.get("Authorization", "")
        self.recorder.requests.append(Recorded(path, authorization, body))
        if self.recorder.key and authorization != f"Bearer {self.recorder.key}":
            self.say(401, {"error": {"message": "Unauthorized"}})
        elif path == "/v1/messages/count_tokens":
            self.say(200, {"input_tokens": 3})
        elif path not in APIS:
            self.say(404, {"error": {"message": f"no such page: {path}"}})
        elif body.get("stream"):
            self.stream(APIS[path][1](body))
        else:
            self.say(200, APIS[path][0](body, tool_of(body) if self.recorder.calls else ""))

    def say(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            self.wfile.write(event.encode())
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def recording(model: str = "model", context: int = 65536, *, calls: bool = False, key: str = "") -> Iterator[Recorder]:
    """A recorder that listens on a free port of this machine."""
    recorder = Recorder([{"id": model, "object": "model", "max_model_len": context}], calls, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OfRecorder", (Handler,), {"recorder": recorder}))
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
