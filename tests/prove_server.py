"""An engine that answers every case of a proof rightly over real HTTP, and can be given one fault of a parser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from spark_tui.base.engine.state import Endpoint
from spark_tui.use.prove.model.cases import NEEDLE

PROSE = (
    "A river begins as a thin thread of cold water between stones high in the hills. Rain and melting snow feed it, "
    "so that soon a child could no longer step across. It cuts a narrow valley, falls over ledges and carries gravel "
    "with every flood. Further down other streams join, the slope becomes gentle and wide bends appear among meadows. "
    "Towns grew here because boats could land. Near the coast the current slows, mud settles, and the bed splits into "
    "many arms. Tides push salt far inland, birds rest on the banks, and at last fresh water meets waves."
)
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@dataclass(frozen=True)
class Said:
    """What a sound engine means to answer, before an API gives it its shape."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    finish: str = "stop"
    tokens: int = 12


class ProveServer:
    """`fault` names what is wrong with it; empty: nothing."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.port = 0
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.open = 0
        self.most_open = 0
        self.hanging = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ProveServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.hanging.set()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.lower().split("\r\n")
                length = next(int(line[16:]) for line in lines if line.startswith("content-length:"))
                body = json.loads(await reader.readexactly(length))
                self.requests.append((head.split()[1], body))
                self.open += 1
                self.most_open = max(self.most_open, self.open)
                try:
                    if not await self._answer(head.split()[1], body, reader, writer):
                        return
                finally:
                    self.open -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    async def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        """As an EngineApi answers, without HTTP."""
        asked = json.loads(body)
        self.requests.append((path, asked))
        shape = SHAPES[path](asked, self.fault)
        said = self._faulty(answer_to(shape.prompt, asked), asked, path)
        for event in shape.stream(said) if asked["stream"] else (shape.whole(said),):
            await asyncio.sleep(0)
            yield json.dumps(event)
        if asked["stream"] and shape.done:
            yield "[DONE]"

    async def _answer(
        self, path: str, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection may be used again."""
        count, fault = len(self.requests), self.fault
        if fault == "dies" and count > 20:
            return False
        if fault == "fails" or (path != "/v1/chat/completions" and fault == "chat only"):
            status = "500 Internal Server Error" if fault == "fails" else "404 Not Found"
            await _send(writer, b'{"error": {"message": "broken"}}', status)
            return True
        if fault == "hangs" and count > 1:
            waiting = [
                asyncio.ensure_future(each) for each in (self.hanging.wait(), reader.read())
            ]  # or the client leaves
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
            return False
        if fault == "garbage" and count > 1:
            await _send(writer, b"<html>not json</html>", kind="application/json")
            return True
        shape = SHAPES[path](body, fault)
        said = self._faulty(answer_to(shape.prompt, body), body, path)
        if not body.get("stream"):
            await _send(writer, json.dumps(shape.whole(said)).encode())
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        endless = fault == "endless" and count > 1
        for event in shape.stream(said):
            await _chunk(writer, f"data: {json.dumps(event)}\n\n".encode())
            while endless and not writer.is_closing():
                await _chunk(writer, f"data: {json.dumps(event)}{' ' * 60_000}\n\n".encode())
        if shape.done:
            await _chunk(writer, b"data: [DONE]\n\n")
        await _chunk(writer, b"")
        return True

    def _faulty(self, said: Said, body: dict[str, Any], path: str) -> Said:
        """What this server's parser makes of it."""
        stream, calls = bool(body.get("stream")), said.calls
        markup = "".join(
            f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>" for name, given in calls
        )
        match self.fault:
            case "no tool parser" if calls:
                return replace(said, text=markup, calls=(), finish="stop")
            case "markup in streams" if calls and stream:
                return replace(said, text=markup, calls=(), finish="stop")
            case "raw in responses" if calls and path == "/v1/responses":
                return replace(said, text=markup, calls=(), finish="stop")
            case "calls and markup" if calls:
                return replace(said, text="</tool_call>")
            case "no reasoning parser" if said.reasoning:
                return replace(said, text=f"<think>{said.reasoning}</think>{said.text}", reasoning="")
            case "half a think tag" if said.reasoning:
                return replace(said, text=f"{said.reasoning}</think>{said.text}", reasoning="")
            case "reasoning dropped":
                return replace(said, reasoning="")
            case "always thinks" if not said.reasoning:
                return replace(said, reasoning="Hm, let me think.")
            case "calls lost while thinking" if said.reasoning and calls:
                return replace(said, calls=(), finish="stop")
            case "first call only":
                return replace(said, calls=calls[:1])
            case "numbers as text" if calls and calls[0][0] == "place_order":
                return replace(said, calls=((calls[0][0], calls[0][1] | {"budget": "99.5"}),))
            case "nested object as text" if calls and calls[0][0] == "place_order":
                items = json.dumps(calls[0][1]["items"])
                return replace(said, calls=((calls[0][0], calls[0][1] | {"items": items}),))
            case "booleans as numbers" if calls and calls[0][0] == "place_order":
                return replace(said, calls=((calls[0][0], calls[0][1] | {"express": 1}),))
            case "newlines lost":
                return _changed(said, lambda text: text.replace("\n", " "))
            case "quotes lost":
                return _changed(said, lambda text: text.replace('"', ""))
            case "unicode broken":
                return _changed(said, lambda text: text.encode("ascii", "replace").decode())
            case "entities decoded":
                return _changed(said, lambda text: text.replace("&amp;", "&"))
            case "long text cut":
                return _changed(said, lambda text: text[:400])
            case "wrong tool of many" if len(body.get("tools", ())) == 40 and calls:
                return replace(said, calls=(("check_light", {"number": 1}),))
            case "required ignored" if body.get("tool_choice") in ("required", {"type": "any"}):
                return replace(said, text="Hello!", calls=(), finish="stop")
            case "named ignored" if isinstance(body.get("tool_choice"), dict) and len(body.get("tools", ())) == 2:
                return replace(said, calls=(("get_weather", {"city": "Paris"}),))
            case "none ignored" if body.get("tool_choice") == "none":
                return replace(said, calls=(("get_weather", {"city": "Paris"}),), finish="tool_calls")
            case "finish stop after calls" if calls:
                return replace(said, finish="stop")
            case "schema ignored" if "Ada is" in json.dumps(body):
                return replace(said, text="Ada is 36 years old.")
            case "schema fenced" if "Ada is" in json.dumps(body):
                return replace(said, text=f"```json\n{said.text}\n```")
            case "stop ignored" if body.get("stop") or body.get("stop_sequences"):
                return replace(said, text=", ".join(NUMBERS))
            case "limit ignored" if said.finish == "length":
                return replace(said, tokens=40, finish="stop")
            case "result forgotten" if "17.3" in said.text:
                return replace(said, text="I cannot see the weather.")
            case "loops" if "river" in json.dumps(body):
                return replace(said, text="the water flows to the sea and " * 30)
            case "garbles" if "river" in json.dumps(body):
                return replace(said, text=said.text.replace("a", "\ufffd"))
            case "mixed scripts" if "river" in json.dumps(body):
                return replace(said, text=said.text + " данных 河流 " * 20)
            case "end tokens" if said.text and not calls:
                return replace(said, text=said.text + "<|im_end|>")
            case "not repeatable" if "squares" in json.dumps(body):
                return replace(said, text=f"{said.text} {len(self.requests)}")
            case "forgets long prompts" if NEEDLE in said.text:
                return replace(said, text="No note says that.")
            case "calls lost after long prompts" if calls and len(json.dumps(body)) > 20_000:
                return replace(said, text="Sure.", calls=(), finish="stop")
        return said


def _changed(said: Said, change: Any) -> Said:
    def inside(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: inside(item) for key, item in value.items()}
        return change(value) if isinstance(value, str) and len(value) > 12 else value

    return replace(said, calls=tuple((name, inside(arguments)) for name, arguments in said.calls))


def answer_to(prompt: str, body: dict[str, Any]) -> Said:
    """What a good model answers to each prompt of the cases."""
    whole, choice = json.dumps(body), body.get("tool_choice")
    thinks = bool(body.get("chat_template_kwargs", {}).get("enable_thinking"))
    reasoning = "They want a short answer." if thinks else ""
    paris = ("get_weather", {"city": "Paris"})
    if "17.3" in whole:
        return Said("It is 17.3 degrees, with hail.", reasoning)
    if choice == "none":
        return Said("I cannot look that up.", reasoning)
    if isinstance(choice, dict) and choice.get("type") != "any":
        return Said("", reasoning, (("check_door", {"number": 4}),), "tool_calls")
    if "and in Oslo" in prompt:
        return Said("", reasoning, (paris, ("get_weather", {"city": "Oslo"})), "tool_calls")
    if found := re.search(r"lines of ===\.\n===\n(.*)\n===", prompt, re.DOTALL):
        return Said("", reasoning, (("write_file", {"path": "notes.txt", "content": found[1]}),), "tool_calls")
    if "place_order" in prompt:
        return Said("", reasoning, (("place_order", json.loads(prompt[prompt.index("{") :])),), "tool_calls")
    if body.get("tools"):
        return Said("", reasoning, (paris,), "tool_calls")
    if "1 to 200" in prompt:
        return Said("one two three", reasoning, finish="length", tokens=16)
    for part, text in (
        ("pelican", "pelican"), ("17 times 23", "17 times 23 is 391."), ("1 to 9", "one, two, three, four, "),
        ("river", PROSE), ("squares", "1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144"), ("vault", NEEDLE),
        ("Ada is", '{"name": "Ada", "age": 36, "languages": ["French", "Greek"]}'),
    ):  # fmt: skip
        if part in prompt[-200:]:
            return Said(text, reasoning)
    return Said("Hello.", reasoning)


# --- the shapes of the three APIs -----------------------------------------------------------------------


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class Chat:
    done = True

    def __init__(self, body: dict[str, Any], fault: str) -> None:
        self.fault, self.body = fault, body
        self.done = fault != "no done"
        self.prompt: str = body["messages"][0]["content"]
        self.usage = {"prompt_tokens": len(self.prompt.split()) * 2, "completion_tokens": 0}

    def _calls(self, said: Said) -> list[dict[str, Any]]:
        ids = ["same"] * 9 if self.fault == "same ids" else [f"call-{number}" for number in range(9)]
        ids = [""] * 9 if self.fault == "no ids" else ids
        found = []
        for id_, (name, arguments) in zip(ids, said.calls, strict=False):
            text: Any = json.dumps(arguments, ensure_ascii=False)
            text = text[:-1] if self.fault == "arguments cut" else text
            text = arguments if self.fault == "arguments as object" else text
            text = json.dumps(text) if self.fault == "arguments encoded twice" else text
            found.append({"id": id_, "type": "function", "function": {"name": name, "arguments": text}})
        return found

    def _usage(self, said: Said) -> dict[str, int]:
        return {**self.usage, "completion_tokens": 0 if self.fault == "usage zero" else said.tokens}

    def _logprobs(self) -> dict[str, Any]:
        wanted = self.body.get("logprobs") and self.fault != "no logprobs"
        return {"logprobs": {"content": [{"token": "a", "logprob": -0.1}]}} if wanted else {}

    def whole(self, said: Said) -> dict[str, Any]:
        message = {"role": "assistant", "content": said.text, "reasoning": said.reasoning}
        choice = {"index": 0, "message": {**message, "tool_calls": self._calls(said)}, "finish_reason": said.finish}
        usage = {} if self.fault == "no usage" else {"usage": self._usage(said)}
        return {"object": "chat.completion", "choices": [{**choice, **self._logprobs()}], **usage}

    def stream(self, said: Said) -> Iterator[dict[str, Any]]:
        def delta(finish: str | None = None, **content: Any) -> dict[str, Any]:
            return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}

        if self.fault == "one piece":
            yield self.whole(said)
            return
        yield delta(role="assistant", content="")
        for half in _halves(said.reasoning):
            yield delta(reasoning=half)
        for half in _halves(said.text):
            yield delta(content=half)
        for number, call in enumerate(self._calls(said)):
            index = {} if self.fault == "no index" else {"index": 0 if self.fault == "index zero" else number}
            first, second = _halves(str(call["function"]["arguments"]))
            name = call["function"]["name"]
            yield delta(tool_calls=[{**index, "id": call["id"], "function": {"name": name, "arguments": first}}])
            again = {"name": name} if self.fault == "name twice" else {}
            id_ = {"id": "other"} if self.fault == "id changes" else {}
            second = first + second if self.fault == "arguments repeated" else second
            yield delta(tool_calls=[{**index, **id_, "function": {**again, "arguments": second}}])
        if self.fault != "no finish":
            yield delta(said.finish)
        if self.fault == "late content":
            yield delta(content="...")
        if self.fault == "error inside":
            yield {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
        if self.fault != "no usage":
            yield {"choices": [], "usage": self._usage(said)}


class Responses:
    done = False

    def __init__(self, body: dict[str, Any], fault: str) -> None:
        self.fault = fault
        self.prompt: str = body["input"][0]["content"]

    def _items(self, said: Said) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if said.reasoning:
            items.append({"type": "reasoning", "content": [{"type": "reasoning_text", "text": said.reasoning}]})
        if said.text:
            items.append({"type": "message", "content": [{"type": "output_text", "text": said.text}]})
        for number, (name, arguments) in enumerate(said.calls):
            call = {"type": "function_call", "call_id": f"call-{number}", "name": name}
            items.append({**call, "arguments": json.dumps(arguments, ensure_ascii=False)})
        return items

    def whole(self, said: Said) -> dict[str, Any]:
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        end = cut if said.finish == "length" else {"status": "completed"}
        usage = {"input_tokens": 9, "output_tokens": said.tokens}
        return {"object": "response", **end, "output": self._items(said), "usage": usage}

    def stream(self, said: Said) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": {"status": "in_progress"}}
        for index, item in enumerate(self._items(said)):
            yield {"type": "response.output_item.added", "output_index": index, "item": {"type": item["type"]}}
            kind, text = "output_text", said.text
            if item["type"] == "function_call":
                kind, text = "function_call_arguments", item["arguments"]
            if self.fault == "responses deltas differ":
                text = text[:-1]
            for half in _halves(text) if item["type"] != "reasoning" else ():
                yield {"type": f"response.{kind}.delta", "output_index": index, "delta": half}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        if self.fault != "responses never complete":
            yield {"type": "response.completed", "response": self.whole(said)}


class Messages:
    done = False

    def __init__(self, body: dict[str, Any], fault: str) -> None:
        self.fault = fault
        self.prompt: str = body["messages"][0]["content"]

    def _blocks(self, said: Said) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if said.reasoning:
            blocks.append({"type": "thinking", "thinking": said.reasoning})
        if said.text:
            blocks.append({"type": "text", "text": said.text})
        for number, (name, arguments) in enumerate(said.calls):
            given = json.dumps(arguments) if self.fault == "messages input as text" else arguments
            blocks.append({"type": "tool_use", "id": f"call-{number}", "name": name, "input": given})
        return blocks

    def _end(self, said: Said) -> str:
        return {"tool_calls": "tool_use", "length": "max_tokens"}.get(said.finish, "end_turn")

    def whole(self, said: Said) -> dict[str, Any]:
        usage = {"input_tokens": 9, "output_tokens": said.tokens}
        return {"type": "message", "content": self._blocks(said), "stop_reason": self._end(said), "usage": usage}

    def stream(self, said: Said) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 0}}}
        kinds = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
        for index, block in enumerate(self._blocks(said)):
            kind, key = kinds.get(block["type"], ("input_json_delta", "partial_json"))
            text = json.dumps(block["input"], ensure_ascii=False) if block["type"] == "tool_use" else block[key]
            empty = {"input": {}} if block["type"] == "tool_use" else {key: ""}
            if self.fault != "messages block not opened":
                yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            for half in _halves(text):
                yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: half}}
            if self.fault != "messages block not closed":
                yield {"type": "content_block_stop", "index": index}
        usage = {"output_tokens": said.tokens}
        yield {"type": "message_delta", "delta": {"stop_reason": self._end(said)}, "usage": usage}
        if self.fault != "messages never stop":
            yield {"type": "message_stop"}


SHAPES: dict[str, Any] = {"/v1/chat/completions": Chat, "/v1/responses": Responses, "/v1/messages": Messages}


async def _send(
    writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK", kind: str = "application/json"
) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()
