"""What an engine was proved to do, and what was asked for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.runtimes import CHAT_PATH, family_of, parsers_of
from spark_tui.base.finding import Severity
from spark_tui.base.untrusted import load_json
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.results.model.plan import Conditions, flags_of
from spark_tui.observe.results.model.run import RunOutcome


class Area(StrEnum):
    TEXT = "text"
    TOOLS = "tools"
    ARGUMENTS = "arguments"
    REASONING = "reasoning"
    STRUCTURE = "structured output"
    LIMITS = "limits"
    QUALITY = "quality"
    DEPTH = "long context"
    VECTORS = "vectors and scores"
    SPEECH = "speech to text"


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    SKIP = "skip"


class Api(StrEnum):
    """The interfaces that agents use: OpenAI's two, and Anthropic's. Those of models without chat: OpenAI's for
    vectors and for speech, Jina's for scores."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    TRANSCRIPTIONS = "transcriptions"


PATHS: Final = {
    Api.CHAT: CHAT_PATH,
    Api.RESPONSES: "/v1/responses",
    Api.MESSAGES: "/v1/messages",
    Api.EMBEDDINGS: "/v1/embeddings",
    Api.RERANK: "/v1/rerank",
    Api.TRANSCRIPTIONS: "/v1/audio/transcriptions",
}
_LINE: Final = "--spark-tui-74d0c1a8e5"
_PART: Final = f"{_LINE}\r\nContent-Disposition: form-data; name={{}}"
"""A part of a form (RFC 7578), up to its name."""
CALL_ID: Final = "call00001"
"""Of the call in a history. Mistral's template takes nine letters and digits only."""


class Tool(Struct, frozen=True):
    """A function that the model may call. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Call(Struct, frozen=True):
    """A call as the server reports it. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Question(Struct, frozen=True):
    """What is asked. `choice` is empty for the model's own, `required`, `none`, or a tool's name. `result` is what the
    call `called` returned. `filler_tokens` of text, or `filler_share` of the context, come before the prompt. Without a
    `temperature` the server's default is used. `thinking` is sent to chat only; None: the model's default. `texts` are
    those to embed, or to score against the prompt, `clip` is a WAV file to write down."""

    prompt: str
    api: Api = Api.CHAT
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    choice: str = ""
    called: Call | None = None
    result: str = ""
    most_tokens: int = 768
    temperature: float | None = None
    thinking: bool | None = None
    schema: Mapping[str, Any] | None = None
    stop: str = ""
    logprobs: int = 0
    filler_tokens: int = 0
    filler_share: float = 0.0
    texts: tuple[str, ...] = ()
    clip: bytes = b""


def request_body(question: Question, model: str, filler: str = "") -> bytes:
    """The JSON body in the shape of the question's API, for a clip a form; `filler` is the long text before the
    prompt."""
    if question.clip:
        head = _PART.format(f'"model"\r\n\r\n{model}\r\n') + _PART.format('"file"; filename="clip.wav"\r\n\r\n')
        return head.encode() + question.clip + f"\r\n{_LINE}--\r\n".encode()
    if question.api in (Api.EMBEDDINGS, Api.RERANK):
        texts: dict[str, Any] = {"input": question.texts}
        if question.api is Api.RERANK:
            texts = {"query": question.prompt, "documents": question.texts}
        return json.dumps({"model": model, **texts}, ensure_ascii=False).encode()
    shape = {Api.CHAT: _chat, Api.RESPONSES: _responses, Api.MESSAGES: _messages}[question.api]
    prompt = f"{filler}\n\n{question.prompt}" if filler else question.prompt
    body = {"model": model, "stream": question.stream, **shape(question, prompt)}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    return json.dumps(body, ensure_ascii=False).encode()


def _chat(question: Question, prompt: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        function = {"name": call.name, "arguments": call.arguments}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call.id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call.id, "content": question.result},
        ]
    body: dict[str, Any] = {"messages": messages, "max_tokens": question.most_tokens}
    if question.stream:
        body["stream_options"] = {"include_usage": True}
    if question.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in question.tools
        ]
    if question.choice:
        named = {"type": "function", "function": {"name": question.choice}}
        body["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": question.thinking}
    if question.schema is not None:
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if question.stop:
        body["stop"] = [question.stop]
    if question.logprobs:
        body |= {"logprobs": True, "top_logprobs": question.logprobs}
    return body


def _responses(question: Question, prompt: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.id, "output": question.result},
        ]
    body: dict[str, Any] = {"input": items, "max_output_tokens": question.most_tokens, "store": False}
    if question.tools:
        body["tools"] = [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema}
            for tool in question.tools
        ]
    if question.choice:
        named = {"type": "function", "name": question.choice}
        body["tool_choice"] = question.choice if question.choice in ("required", "none") else named
    if question.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": question.schema, "strict": True}}
    return body


def _messages(question: Question, prompt: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if call := question.called:
        use = {"type": "tool_use", "id": call.id, "name": call.name, "input": load_json(call.arguments)}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": question.result}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body: dict[str, Any] = {"messages": messages, "max_tokens": question.most_tokens}
    if question.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in question.tools
        ]
    if question.choice:
        kinds = {"required": "any", "none": "none"}
        named = {"type": "tool", "name": question.choice}
        body["tool_choice"] = {"type": kinds[question.choice]} if question.choice in kinds else named
    if question.stop:
        body["stop_sequences"] = [question.stop]
    return body


# --- proof -----------------------------------------------------------------------------------------------


class CaseResult(Struct, frozen=True):
    """One case. `evidence` is what came, what is wrong, or why it was skipped."""

    id: str
    area: Area
    verdict: Verdict
    evidence: str = ""
    seconds: float = 0.0


class Proof(Struct, frozen=True):
    """One run. `at` is seconds since the epoch, `seconds` its length; `reason` says why it ended early. `commit` is the
    model's current one in the store at that time, empty: unknown."""

    id: str
    at: float
    conditions: Conditions
    cases: tuple[CaseResult, ...]
    ending: RunOutcome = RunOutcome.COMPLETED
    reason: str = ""
    seconds: float = 0.0
    full: bool = False
    commit: str = ""

    def ids(self, verdict: Verdict) -> tuple[str, ...]:
        return tuple(case.id for case in self.cases if case.verdict is verdict)

    @property
    def judged(self) -> int:
        return sum(case.verdict is not Verdict.SKIP for case in self.cases)

    @property
    def complete(self) -> bool:
        """Every case had its turn, and one at the least was judged."""
        return self.ending is RunOutcome.COMPLETED and self.judged > 0


class Identity(NamedTuple):
    """What a proof holds for: when one of these changes, it is stale."""

    model: str
    image: str
    revision: str
    flags: tuple[str, ...]


_NAMES: Final = {"image": "the image", "revision": "the model's revision", "flags": "the settings"}


def identity_of(proof: Proof) -> Identity:
    found = proof.conditions
    return Identity(found.model, found.image_id or found.image, found.revision, found.flags)


def identity_of_engine(view: EngineView) -> Identity:
    command = parse(view.container.argv, view.runtime)
    return Identity(
        view.model,
        view.container.image_id or view.container.image,
        command.value("revision") or "",
        flags_of(command.words),
    )


class Badge(NamedTuple):
    """A proof in a few words."""

    text: str
    severity: Severity
    proof: Proof


def badge(proof: Proof) -> Badge:
    failed = len(proof.ids(Verdict.FAIL))
    if failed:
        return Badge(f"{failed} of {proof.judged} failed", Severity.ERROR, proof)
    if proof.complete:
        return Badge("proved", Severity.OK, proof)
    return Badge(f"partly proved: {proof.judged} of {len(proof.cases)}", Severity.UNKNOWN, proof)


def engine_badge(proofs: Sequence[Proof], view: EngineView, commit: str = "") -> Badge | None:
    """Of an engine as it is now; None where its model was never proved. `proofs`: the newest first; `commit`: the
    model's in the store now, where known."""
    now = identity_of_engine(view)
    same = [proof for proof in proofs if identity_of(proof).model == now.model]
    if not same:
        return None
    held = next((proof for proof in same if identity_of(proof) == now and not moved(proof, commit)), None)
    return badge(held) if held is not None else _stale(same[0], now)


def _stale(proof: Proof, now: Identity) -> Badge:
    then = identity_of(proof)
    return changed(proof, next((name for name in _NAMES if getattr(then, name) != getattr(now, name)), "revision"))


def changed(proof: Proof, what: str) -> Badge:
    """`what` has changed since: image, revision or flags."""
    return Badge(f"stale: {_NAMES[what]} changed", Severity.WARNING, proof)


def moved(proof: Proof, commit: str) -> bool:
    """Whether the store has another commit of a model that is launched without a revision."""
    return bool(commit and proof.commit) and commit != proof.commit and not proof.conditions.revision


class Changes(NamedTuple):
    """Ids of the cases that fail now and did not then, and of those that pass now and failed then."""

    broken: tuple[str, ...]
    fixed: tuple[str, ...]


def changes(earlier: Proof, later: Proof) -> Changes:
    failed, passes = set(earlier.ids(Verdict.FAIL)), set(earlier.ids(Verdict.PASS))
    return Changes(
        tuple(id_ for id_ in later.ids(Verdict.FAIL) if id_ in passes),
        tuple(id_ for id_ in later.ids(Verdict.PASS) if id_ in failed),
    )


def earlier_proof(proof: Proof, proofs: Sequence[Proof]) -> Proof | None:
    """The last proof of the same model before this one. `proofs`: the newest first."""
    before = (each for each in proofs if each.at < proof.at and each.id != proof.id)
    return next((each for each in before if each.conditions.model == proof.conditions.model), None)


def compared_proof(proof: Proof, proofs: Sequence[Proof], other: str) -> Proof | None:
    """The one to compare a proof with: by its id, by the name of another engine, or `last`: the one before of the same
    model. `proofs`: the newest first."""
    if other == "last":
        return earlier_proof(proof, proofs)
    named = (each for each in proofs if other in (each.id, each.conditions.engine) and each.id != proof.id)
    return next(named, None)


def flag_value(flags: Sequence[str], name: str) -> str:
    """The value of an option in a run's flags; empty without it."""
    return next((flag.partition(" ")[2] for flag in flags if flag.partition(" ")[0] == name), "")


def parser_advice(proof: Proof) -> tuple[str, ...]:
    """Where failures point to a parser: the settings that the model's family needs, if it is known."""
    found = proof.conditions
    known = next((name for name in (found.model, found.served_name, found.preset) if family_of(name)), "")
    parsers = parsers_of(known, found.runtime) if known else None
    family = family_of(known)
    if parsers is None or family is None:
        return ()
    failed = [case for case in proof.cases if case.verdict is Verdict.FAIL]
    calls = any(case.area in (Area.TOOLS, Area.ARGUMENTS) or "tool markup" in case.evidence for case in failed)
    thoughts = any(case.area is Area.REASONING or "reasoning markup" in case.evidence for case in failed)
    advice = []
    for wanted, option, key, failing in (
        (parsers.tool, "--tool-call-parser", "tool_call_parser", calls),
        (parsers.reasoning, "--reasoning-parser", "reasoning_parser", thoughts),
    ):
        now = flag_value(found.flags, option)
        if failing and wanted and now != wanted:
            has = f"it runs with {now}" if now else "none is set"
            advice.append(f"{family.name} models need {key}={wanted}; {has}.")
    return tuple(advice)
