"""The engines' own HTTP: an OpenAI-compatible server behind each container that serves, at a real one's pace, with its
page of metrics."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

from spark_tui.base.engine.metrics_page import Family, SeriesPart, Slot
from spark_tui.base.engine.runtimes import Runtime, runtime_named
from spark_tui.base.errors import EngineUnreachable
from spark_tui.simulator.metrics import counted
from spark_tui.simulator.recording import CannedAnswer, answers
from spark_tui.simulator.server import Answer, ClosedWithoutAnswer, Request, as_json
from spark_tui.simulator.world import VERSION, DemoContainer, DemoWorld, Run

_PIECE: Final = re.compile(r"\s?[^\W\d_]{1,6}|\s?\d{1,3}|\s+|.", re.DOTALL)
_WORD: Final = re.compile(r"\w+")
TOKENS_PER_STEP: Final = 2.9
FIRST_TOKEN_SECONDS: Final = 0.31
COLD_SECONDS: Final = 2.4
"""The first request of an engine compiles kernels: 25 to 60 s on a real Spark, shortened like its start."""
_CHARACTERS_PER_TOKEN: Final = 4


def canned_answer(prompt: str) -> CannedAnswer:
    """The answer that fits the question's words best; without any such word, one chosen by the prompt alone."""
    words, known = frozenset(_WORD.findall(prompt.lower())), answers()
    best = max(known, key=lambda answer: len(answer.about & words))
    return best if best.about & words else known[zlib.crc32(prompt.encode("utf-8", "replace")) % len(known)]


def tokens_of(text: str) -> list[str]:
    """The text in pieces of about a token each; joined they are the text."""
    return _PIECE.findall(text)


class SimulatedEngines:
    """All of one Spark: the port in the Host header says which is asked."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._warm: list[Run] = [run for run in world.runs if run.traffic]

    async def answer(self, request: Request) -> Answer:
        """Docker's port proxy accepts for a container in which nothing listens yet, and closes without a word. So it is
        here for a port that none has published, too."""
        try:
            container, run = self._world.serving(f"http://{request.headers['host']}")
        except EngineUnreachable:
            raise ClosedWithoutAnswer from None
        runtime, asked = runtime_named(run.profile.runtime), (request.method, request.path)
        given = request.headers.get("authorization", "")
        if container.key and request.path.startswith("/v1/") and given != f"Bearer {container.key}":
            return as_json({"error": "Unauthorized"}, 401)
        if asked == ("POST", runtime.chat_path):
            return self._chat(container, run, request.json())
        content = self._looked_at(container, runtime, request.path) if request.method == "GET" else None
        if content is not None:
            return as_json(content)
        if asked == ("GET", runtime.metrics_path):
            return Answer(page_of_metrics(run, self._world.clock.now()), kind="text/plain; version=0.0.4")
        return as_json({"detail": "Not Found"}, 404)

    def _looked_at(self, container: DemoContainer, runtime: Runtime, path: str) -> dict[str, Any] | None:
        if path == runtime.models_path:
            model = {"id": container.served_name, "object": "model", "owned_by": runtime.id, "root": container.model}
            return {"object": "list", "data": [{**model, "max_model_len": container.max_model_len}]}
        if path in runtime.version_paths:
            return {runtime.version_key: VERSION}
        return {} if path == runtime.health_path else None

    # --- chat -----------------------------------------------------------------------------------------

    def _chat(self, container: DemoContainer, run: Run, body: dict[str, Any]) -> Answer:
        if body["model"] != container.served_name:
            problem = f"The model `{body['model']}` does not exist. Valid aliases: {container.served_name}."
            return as_json({"error": {"message": problem, "type": "NotFoundError", "param": "model", "code": 404}}, 404)
        return Answer(self._counted(container, run, body), kind="text/event-stream; charset=utf-8")

    async def _counted(self, container: DemoContainer, run: Run, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """A canned answer, counted as it streams. A client that goes away frees the slot."""
        world, counters = self._world, run.counters
        began, last = world.clock.now(), world.clock.monotonic()
        texts = [_text(message) for message in body["messages"]]
        prompt_tokens = sum(len(text) // _CHARACTERS_PER_TOKEN + 4 for text in texts) + 8
        world.chats += 1
        counters.running += 1
        sent, reason = 0, "abort"  # the client went away, unless the answer says otherwise
        try:
            async for chunk in self._chunks(container, run, body, prompt_tokens):
                choice: dict[str, Any] = next(iter(chunk["choices"]), {})
                if choice.get("delta") and "role" not in choice["delta"]:
                    now = world.clock.monotonic()
                    if sent:
                        tokens = TOKENS_PER_STEP if run.profile.drafts else 1.0
                        counters.step(1.0, 1 / tokens, (now - last) * tokens)
                    else:
                        counters.ttft.observe(now - last)
                        counters.generated += 1
                    sent, last = sent + 1, now
                reason = choice.get("finish_reason") or reason
                if usage := chunk.get("usage"):
                    counters.prompt(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
                yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
            yield b"data: [DONE]\n\n"
        finally:
            now = world.clock.now()
            counters.running -= 1
            counters.request(reason, now - began)
            world.chats -= 1
            if container.run is run:
                container.log.request_done(now, prompt_tokens, sent, now - began)
                world.wake()

    async def _chunks(
        self, container: DemoContainer, run: Run, body: dict[str, Any], prompt_tokens: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The answer to the last thing that the person said, token by token."""
        clock = self._world.clock
        answer = canned_answer(next((_text(m) for m in reversed(body["messages"]) if m["role"] == "user"), ""))
        silent = (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False
        reasoning = [] if silent or body.get("reasoning_effort") == "none" else tokens_of(answer.reasoning)
        tokens = [*reasoning, *tokens_of(answer.content)]
        count = min(len(tokens), max(0, body.get("max_tokens") or len(tokens)))
        begin = clock.monotonic() + FIRST_TOKEN_SECONDS + prompt_tokens / run.profile.prefill_rate
        if run not in self._warm:
            self._warm.append(run)
            begin += COLD_SECONDS

        def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return {"object": "chat.completion.chunk", "model": container.served_name, "choices": [choice]}

        yield chunk({"role": "assistant", "content": ""})
        for number, token in enumerate(tokens[:count]):
            await clock.sleep(max(0.0, begin + number / run.profile.rate - clock.monotonic()))
            if container.run is not run:
                raise ClosedWithoutAnswer
            yield chunk({"reasoning" if number < len(reasoning) else "content": token})
        yield chunk({}, "stop" if count == len(tokens) else "length")
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": count,
            "total_tokens": prompt_tokens + count,
            "completion_tokens_details": {"reasoning_tokens": min(count, len(reasoning))},
            "prompt_tokens_details": {"cached_tokens": prompt_tokens // 16 * 16 // 2},
        }
        yield {"object": "chat.completion.chunk", "model": container.served_name, "choices": [], "usage": usage}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


# --- metrics ----------------------------------------------------------------------------------------------

_NAMES: Final = {
    Family.STARTED: "process_start_time_seconds", Family.PROMPT: "vllm:prompt_tokens_total",
    Family.PROMPT_COMPUTED: "vllm:prompt_tokens_by_source_total", Family.GENERATED: "vllm:generation_tokens_total",
    Family.RUNNING: "vllm:num_requests_running", Family.WAITING: "vllm:num_requests_waiting",
    Family.WAITING_BY_REASON: "vllm:num_requests_waiting_by_reason", Family.KV_USAGE: "vllm:kv_cache_usage_perc",
    Family.PREFIX_QUERIES: "vllm:prefix_cache_queries_total", Family.PREFIX_HITS: "vllm:prefix_cache_hits_total",
    Family.PREEMPTIONS: "vllm:num_preemptions_total", Family.DRAFTS: "vllm:spec_decode_num_drafts_total",
    Family.DRAFT_TOKENS: "vllm:spec_decode_num_draft_tokens_total",
    Family.ACCEPTED: "vllm:spec_decode_num_accepted_tokens_total",
    Family.ACCEPTED_BY_POSITION: "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    Family.FINISHED: "vllm:request_success_total", Family.TTFT: "vllm:time_to_first_token_seconds",
    Family.ITL: "vllm:inter_token_latency_seconds", Family.E2E: "vllm:e2e_request_latency_seconds",
    Family.QUEUE: "vllm:request_queue_time_seconds", Family.KV_TOKENS: "vllm:cache_config_info",
}  # fmt: skip
"""vLLM's names, which the simulated servers of other makers use too."""
_LABELS: Final = {
    Family.WAITING_BY_REASON: "reason",
    Family.FINISHED: "finished_reason",
    Family.ACCEPTED_BY_POSITION: "position",
}


def page_of_metrics(run: Run, now: float) -> bytes:
    """What a server has counted by then, as Prometheus' text; not to be asked for an earlier time than before."""
    return "".join(_series(counted(run, now))).encode()


def _series(samples: Iterator[tuple[Slot, float]]) -> Iterator[str]:
    for slot, value in samples:
        name, labels, figure = _NAMES[slot.family], {"engine": "0"}, value
        if slot.family is Family.KV_TOKENS:
            labels["kv_cache_size_tokens"], figure = f"{value:.0f}", 1.0
        if slot.family is Family.PROMPT_COMPUTED:
            labels["source"] = "local_compute"
        if slot.part is SeriesPart.BUCKET:
            labels["le"] = "+Inf" if slot.bound == math.inf else repr(slot.bound)
        if slot.family in _LABELS:
            labels[_LABELS[slot.family]] = slot.label
        name += "" if slot.part is SeriesPart.VALUE else f"_{slot.part.value}"
        written = ",".join(f'{key}="{text}"' for key, text in labels.items())
        yield f"{name}{{{written}}} {figure!r}\n"
