"""What agents cost an engine: with each turn a long prompt comes again, most of which the prefix cache should hold."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.finding import Finding, Severity, value_of
from spark_tui.base.gateway import ClientCosts
from spark_tui.base.graph import seconds_text
from spark_tui.observe.metrics.model.serving import EngineMetrics
from spark_tui.observe.metrics.model.slow import FEW_HITS, KV_TIGHT, request_time

LONG_PROMPT: Final = 4_000
"""Mean tokens of a prompt from which repeating it hurts. Coding agents send 14,000 and more with each turn."""
LEAST_TURNS: Final = 3
_ACCESS: Final = re.compile(
    r"(?P<host>[0-9a-fA-F.:]{2,45}):\d{1,5} - \"POST "
    r"(?P<path>/v1/(?:chat/completions|completions|responses|messages))[ ?]"
)
_CHANGING: Final = "Look for a date, an id or a changing header at the start of the system prompt."
_CHANGING_CLAUDE: Final = "Claude Code: set CLAUDE_CODE_ATTRIBUTION_HEADER=0, or use vLLM above 0.17.1."


class AgentClient(Struct, frozen=True):
    """Requests of one address to one path, by the access log: it has neither User-Agent nor key."""

    host: str
    path: str
    requests: int


class AgentCosts(Struct, frozen=True):
    """Means of a turn over the window: tokens of its prompt, those of them that no cache held, and the seconds until
    they were read. `hits` is a share from 0 to 1. None: not reported."""

    turns: float
    prompt_tokens: float | None
    hits: float | None
    prefilled_tokens: float | None
    seconds: float | None


def clients_of(lines: Iterable[str]) -> tuple[AgentClient, ...]:
    """Who asked, by the access log, the most active first."""
    found = Counter((match["host"], match["path"]) for line in lines if (match := _ACCESS.search(line)))
    return tuple(AgentClient(host, path, count) for (host, path), count in found.most_common())


def agent_costs(metrics: EngineMetrics) -> AgentCosts:
    turns = value_of(metrics.finished_count) or 0.0
    tokens, hits, time = value_of(metrics.prompt_tokens), value_of(metrics.prefix_hits), request_time(metrics)
    prompt = tokens / turns if tokens is not None and turns else None
    again = prompt * (1 - hits) if prompt is not None and hits is not None else None
    return AgentCosts(turns, prompt, hits, again, time.prefill if time is not None else None)


def repeated_prompts(
    costs: AgentCosts, clients: tuple[AgentClient, ...], metrics: EngineMetrics, *, caching: bool | None
) -> Finding | None:
    """Why long prompts are read again in full; None where they are not. `caching`: the engine's prefix caching."""
    prompt, hits = costs.prompt_tokens, costs.hits
    if prompt is None or costs.turns < LEAST_TURNS or prompt < LONG_PROMPT or (hits or 0.0) >= FEW_HITS:
        return None
    cost = f"Prompts of {prompt:,.0f} tokens, {hits or 0:.0%} from the cache"
    cost += f": {seconds_text(costs.seconds)} per turn." if costs.seconds else "."
    capacity, usage = value_of(metrics.kv_capacity_tokens), value_of(metrics.kv_usage)
    evicted = value_of(metrics.preemptions_ever)
    hosts = {client.host for client in clients}
    if caching is False:
        why, remedy = "Prefix caching is off.", "Edit the engine: remove --no-enable-prefix-caching."
    elif evicted or (usage or 0.0) >= KV_TIGHT or (capacity is not None and capacity < 2 * prompt):
        why, remedy = "The KV cache is full: prefixes are evicted.", "Edit the engine: a larger memory share."
    elif len(hosts) > 1 and capacity is not None and capacity < prompt * len(hosts) * 2:
        why = f"{len(hosts)} clients in turn evict each other's prefix."
        remedy = "Edit the engine: a larger memory share, or use one client at a time."
    else:
        why = "The start of the prompt changes with each turn."
        remedy = _CHANGING_CLAUDE if any(client.path == "/v1/messages" for client in clients) else _CHANGING
    return Finding("prefix", Severity.WARNING, f"{why} {cost}", remedy=remedy)


# --- by client, as a gateway sees them ------------------------------------------------------------------

GENERATING: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
"""Paths whose requests have a prompt and an answer."""
FIRST_DEPTH: Final = 256
"""Bytes of the shortest head of a prompt that is compared; each next one is twice as long."""
_LAST_DEPTH: Final = 1024 * 1024
_KIN_BYTES: Final = 1024
_LONG_BYTES: Final = 4 * LONG_PROMPT
"""Of a prompt whose tokens are not reported: about four bytes each."""
_SAME_START: Final = 0.25
"""The share of the shorter prompt from which two begin alike. Heads are compared in powers of two:
half of what is alike counts at least."""
_PRODUCT: Final = re.compile(r"[\w!#$%&'*+.^`|~-]{1,40}", re.ASCII)
UNNAMED: Final = "unnamed"
"""A client without a key and without a usable User-Agent."""


class PromptPrint(Struct, frozen=True):
    """A prompt without its text. `heads` are digests of its first 256, 512, ... bytes, `size` its bytes in all. `kin`
    are digests of the end of its system prompt and of its first message: prompts of one conversation share one, even
    where their starts differ."""

    heads: tuple[str, ...]
    kin: frozenset[str]
    size: int

    def alike(self, other: PromptPrint) -> int:
        """How many bytes at the start are surely the same."""
        same = 0
        for depth, (mine, its) in enumerate(zip(self.heads, other.heads, strict=False)):
            if mine != its:
                break
            same = FIRST_DEPTH << depth
        return same


def prompt_print(system: bytes, tools: bytes, messages: Sequence[bytes]) -> PromptPrint:
    """The print of a prompt by its parts as they were sent. Only its first MiB is read."""
    whole = hashlib.blake2b(digest_size=8)
    heads: list[str] = []
    read, size = 0, 0
    for part in (system, tools, *messages):
        size += len(part)
        at = 0
        while at < len(part) and (depth := FIRST_DEPTH << len(heads)) <= _LAST_DEPTH:
            piece = part[at : at + depth - read]
            whole.update(piece)
            at, read = at + len(piece), read + len(piece)
            if read == depth:
                heads.append(whole.hexdigest())
    head, first = (system, messages[:1]) if system else (messages[0] if messages else b"", messages[1:2])
    kin = (head[-min(_KIN_BYTES, len(head) // 2) :] if len(head) > 1 else b"", *first)
    kinds = frozenset(hashlib.blake2b(each[:_LAST_DEPTH], digest_size=8).hexdigest() for each in kin if each)
    return PromptPrint(tuple(heads), kinds, size)


def product_of(user_agent: str) -> str:
    """The name of the program in a User-Agent: `claude-cli` of `claude-cli/2.0.1 (external, cli)`; `unnamed` for one
    that has none."""
    found = _PRODUCT.match(user_agent)
    return found[0] if found is not None else UNNAMED


def usage_tokens(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens of the prompt and those of them from the cache, by the usage object of any API; None: not reported.

    OpenAI's counts include cached tokens; Anthropic's `input_tokens` leave them out wherever `cache_read_input_tokens`
    is there (vLLM: PR 40912).
    """
    prompt = _count(usage.get("prompt_tokens"))
    prompt = _count(usage.get("input_tokens")) if prompt is None else prompt
    for details in (usage.get("prompt_tokens_details"), usage.get("input_tokens_details")):
        if isinstance(details, dict) and (cached := _count(details.get("cached_tokens"))) is not None:
            return prompt, cached
    cached = _count(usage.get("cache_read_input_tokens"))
    if prompt is not None and cached is not None:
        prompt += cached + (_count(usage.get("cache_creation_input_tokens")) or 0)
    return prompt, cached


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


class AgentTurn(Struct, frozen=True):
    """A request that an engine answered, as a gateway saw it. None: not reported, or the answer was no stream."""

    client: str
    engine: str
    path: str
    prompt: PromptPrint
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    first_seconds: float | None = None


class Miss(StrEnum):
    """Why a prompt that came before was read again."""

    CHANGED = "changed"
    CROWDED = "crowded"
    EVICTED = "evicted"


class RepeatedPrompt(Struct, frozen=True):
    """A long prompt that continues an earlier one. `miss` None: it came from the cache, or that is unknown. `alike`:
    bytes at its start that came before."""

    miss: Miss | None
    alike: int


def repeat_of(turn: AgentTurn, earlier: Iterable[PromptPrint], *, crowded: bool) -> RepeatedPrompt | None:
    """What became of a prompt after the client's earlier ones; None for a short one or one of another conversation.
    `crowded`: another client asked the engine since."""
    now, tokens = turn.prompt, turn.prompt_tokens
    if tokens < LONG_PROMPT if tokens is not None else now.size < _LONG_BYTES:
        return None
    found = [(now.alike(each), min(each.size, now.size), bool(each.kin & now.kin)) for each in earlier]
    starts = [alike for alike, shorter, _ in found if alike >= _SAME_START * shorter]
    if not starts and not any(kin for _, _, kin in found):
        return None
    hits = turn.cached_tokens / tokens if turn.cached_tokens is not None and tokens else None
    if not starts:
        alike = max(alike for alike, _, kin in found if kin)
        return RepeatedPrompt(Miss.CHANGED if hits is None or hits < FEW_HITS else None, alike)
    alike = max(starts)
    if hits is None or alike < _SAME_START * now.size or hits >= alike / now.size / 2:
        return RepeatedPrompt(None, alike)
    return RepeatedPrompt(Miss.CROWDED if crowded else Miss.EVICTED, alike)


def costs_after(costs: ClientCosts, turn: AgentTurn, repeat: RepeatedPrompt | None) -> ClientCosts:
    """With one turn more, and whether its prompt repeats an earlier one."""
    tokens, cached, first = turn.prompt_tokens, turn.cached_tokens, turn.first_seconds
    known = tokens is not None and cached is not None
    miss = repeat.miss if repeat is not None else None
    return replace(
        costs,
        path=turn.path,
        requests=costs.requests + 1,
        counted_prompts=costs.counted_prompts + (tokens is not None),
        prompt_tokens=costs.prompt_tokens + (tokens or 0),
        cache_known_tokens=costs.cache_known_tokens + (tokens or 0) * known,
        cached_tokens=costs.cached_tokens + (cached or 0) * known,
        timed=costs.timed + (first is not None),
        first_seconds=costs.first_seconds + (first or 0.0),
        repeats=costs.repeats + (repeat is not None),
        changed=costs.changed + (miss is Miss.CHANGED),
        crowded=costs.crowded + (miss is Miss.CROWDED),
        evicted=costs.evicted + (miss is Miss.EVICTED),
        alike_bytes=repeat.alike if repeat is not None and miss is Miss.CHANGED else costs.alike_bytes,
    )


def read_again(costs: ClientCosts, *, caching: bool | None = None) -> Finding | None:
    """Why a client's long prompts are read again; None where the most are not. `caching`: the engine's prefix caching:
    where it is off, nothing is evicted."""
    causes = ((Miss.CHANGED, costs.changed), (Miss.CROWDED, costs.crowded), (Miss.EVICTED, costs.evicted))
    miss, count = max(causes, key=lambda cause: cause[1])
    again = sum(number for _, number in causes)
    if count < LEAST_TURNS or 2 * again < costs.repeats or (caching is False and miss is not Miss.CHANGED):
        return None
    alike = costs.alike_bytes
    why, remedy = {
        Miss.CHANGED: (
            f"changed after {alike:,} bytes" if alike else f"changed in the first {FIRST_DEPTH} bytes",
            _CHANGING_CLAUDE if costs.path == "/v1/messages" else _CHANGING,
        ),
        Miss.CROWDED: (
            "evicted by other clients between turns",
            "Edit the engine: a larger memory share, or use one client at a time.",
        ),
        Miss.EVICTED: (
            "evicted before the next turn",
            "Edit the engine: a larger memory share; check that prefix caching is on.",
        ),
    }[miss]
    summary = f"{costs.client}: {again} of {costs.repeats} long prompts read again, {why}."
    return Finding(f"prefix.{miss.value}", Severity.WARNING, summary, remedy=remedy)
