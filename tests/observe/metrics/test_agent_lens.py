"""What agents cost an engine: clients by the access log and by the gateway, tokens read again, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok
from spark_tui.base.gateway import ClientCosts
from spark_tui.observe.metrics.model.agents import (
    AgentClient,
    AgentTurn,
    PromptPrint,
    agent_costs,
    clients_of,
    product_of,
    prompt_print,
    read_again,
    repeated_prompts,
    usage_tokens,
)
from spark_tui.observe.metrics.model.serving import EngineMetrics
from spark_tui.observe.metrics.show.metrics import client_object, clients_page, slow_page
from spark_tui.observe.metrics.use.agent_lens import MOST_CLIENTS, OTHERS, AgentLens
from tests.cases import all_cases

NONE = Missing("not reported")
METRICS = EngineMetrics(
    seconds=3600.0, rate_seconds=3600.0,
    **dict.fromkeys(
        (
            "prefill_rate", "decode_rate", "running", "waiting", "ttft", "itl", "e2e", "queue", "kv_usage",
            "kv_capacity_tokens", "prefix_hits", "preemptions", "drafting", "energy", "finished_count",
            "failed_count", "prompt_tokens", "generated_tokens", "preemptions_ever",
        ),
        NONE,
    ),  # type: ignore[arg-type]
)  # fmt: skip
AGENT = replace(
    METRICS, finished_count=Ok(10.0, 0.0), prompt_tokens=Ok(200_000.0, 0.0), prefix_hits=Ok(0.02, 0.0),
    kv_capacity_tokens=Ok(400_000, 0.0), kv_usage=Ok(0.1, 0.0),
)  # fmt: skip
ONE = (AgentClient("10.0.0.2", "/v1/chat/completions", 10),)
CLAUDE = (AgentClient("10.0.0.2", "/v1/messages", 10),)
MANY = tuple(AgentClient(f"10.0.0.{number}", "/v1/responses", 3) for number in range(2, 14))


def test_clients_are_counted_by_address_and_path() -> None:
    lines = [
        '(APIServer pid=1) INFO:     172.17.0.1:51234 - "POST /v1/messages?beta=true HTTP/1.1" 200 OK',
        '(APIServer pid=1) INFO:     172.17.0.1:51299 - "POST /v1/messages HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:4000 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:4000 - "GET /health HTTP/1.1" 200 OK',
        "\x1b[31mPOST /v1/messages of nothing",
    ]
    assert clients_of(lines) == (
        AgentClient("172.17.0.1", "/v1/messages", 2), AgentClient("127.0.0.1", "/v1/chat/completions", 1)
    )  # fmt: skip


def test_tokens_read_again_are_those_that_no_cache_held() -> None:
    costs = agent_costs(AGENT)
    assert (costs.turns, costs.prompt_tokens, costs.prefilled_tokens) == (10, 20_000, 19_600)
    assert agent_costs(METRICS) == type(costs)(0.0, None, None, None, None), "unknown is not zero"


@pytest.mark.parametrize(
    ("metrics", "clients", "caching", "words"),
    [
        (AGENT, ONE, False, "caching is off"),
        (AGENT, ONE, True, "start of the prompt changes"),
        (AGENT, CLAUDE, None, "start of the prompt changes"),
        (AGENT, MANY, True, "12 clients in turn"),
        (replace(AGENT, kv_usage=Ok(0.97, 0.0)), ONE, True, "evicted"),
        (replace(AGENT, preemptions_ever=Ok(3.0, 0.0)), ONE, True, "evicted"),
        (replace(AGENT, kv_capacity_tokens=Ok(30_000, 0.0)), ONE, True, "evicted"),
    ],
)
def test_the_cause_of_repeated_prompts_is_named(
    metrics: EngineMetrics, clients: tuple[AgentClient, ...], caching: bool | None, words: str
) -> None:
    found = repeated_prompts(agent_costs(metrics), clients, metrics, caching=caching)
    assert found is not None and words in found.summary and found.remedy
    assert ("Claude Code" in found.remedy) == (clients == CLAUDE)


@pytest.mark.parametrize(
    "metrics",
    [
        METRICS,
        replace(AGENT, prefix_hits=Ok(0.8, 0.0)),
        replace(AGENT, prompt_tokens=Ok(9_000.0, 0.0)),
        replace(AGENT, finished_count=Ok(2.0, 0.0)),
    ],
    ids=["nothing known", "hits", "short prompts", "two turns"],
)
def test_without_long_repeated_prompts_there_is_no_cause(metrics: EngineMetrics) -> None:
    assert repeated_prompts(agent_costs(metrics), ONE, metrics, caching=True) is None


def test_the_metrics_screen_names_the_cause_beside_what_is_slow() -> None:
    page = slow_page(Ok(AGENT, 0.0), Ok(AGENT, 0.0), NONE)
    assert any("start of the prompt changes" in row.text for row in page[0].rows)
    assert not any("prompt changes" in row.text for row in slow_page(Ok(METRICS, 0.0), Ok(METRICS, 0.0), NONE)[0].rows)


# --- by client, as a gateway sees them --------------------------------------------------------------------

SYSTEM = b"You are a coding agent. " * 2000
TOOLS = b'[{"name": "read"}]'
TASK = b'{"role": "user", "content": "Mend the test."}'


def prompt(turn: int, system: bytes = SYSTEM, task: bytes = TASK) -> PromptPrint:
    """The n-th turn of a conversation: each adds a message."""
    return prompt_print(system, TOOLS, [task, *(b"answer %d" % number * 50 for number in range(turn))])


def asked(
    prompts: list[PromptPrint], *, cached: int | None, tokens: int | None = 12_000, other: bool = False
) -> ClientCosts:  # fmt: skip
    """What a client costs after these turns; `other`: another one asks between them."""
    lens = AgentLens()
    for each in prompts:
        lens.add(AgentTurn("claude-cli", "qwen", "/v1/chat/completions", each, tokens, cached, 0.5))
        if other:
            lens.add(AgentTurn("aider", "qwen", "/v1/chat/completions", prompt(0, b"x" * 90_000), tokens, 0))
    return next(each for each in lens.costs() if each.client == "claude-cli")


GROWING = [prompt(turn) for turn in range(6)]
DATED = [prompt(turn, b"Request %d. " % turn + SYSTEM) for turn in range(6)]
DATED_LATER = [prompt(turn, SYSTEM[:3000] + b"Request %d. " % turn + SYSTEM) for turn in range(6)]
UNRELATED = [prompt(0, b"Document %d. " % number * 3000, b"Sum up %d." % number) for number in range(6)]


@all_cases(
    ("prompts", "cached", "other", "cause"),
    [
        (GROWING, 11_000, False, ""),
        (GROWING, None, False, ""),
        (GROWING, 0, False, "prefix.evicted"),
        (GROWING, 0, True, "prefix.crowded"),
        (DATED, 0, False, "prefix.changed"),
        (DATED, 0, True, "prefix.changed"),
        (DATED, None, False, "prefix.changed"),
        (DATED_LATER, 500, False, "prefix.changed"),
        (DATED, 11_000, False, ""),
        (UNRELATED, 0, False, ""),
        (GROWING[:3], 0, False, ""),
    ],
    ids=["hits", "hits unknown", "evicted", "two clients", "a date first", "a date first, two clients",
         "a date first, hits unknown", "a date later", "the template puts it elsewhere", "unrelated", "two repeats"],
)  # fmt: skip
def test_the_cause_of_a_client_s_prompts_read_again_is_named(
    prompts: list[PromptPrint], cached: int | None, other: bool, cause: str
) -> None:
    found = read_again(asked(prompts, cached=cached, other=other))
    assert (found.id if found is not None else "") == cause
    assert found is None or (found.remedy and "claude-cli" in found.summary)


def test_where_the_prompt_changes_is_named_in_bytes() -> None:
    assert asked(DATED, cached=0).alike_bytes == 0
    assert asked(DATED_LATER, cached=500).alike_bytes == 2048


def test_without_prefix_caching_nothing_is_evicted() -> None:
    assert read_again(asked(GROWING, cached=0), caching=False) is None
    assert read_again(asked(DATED, cached=0), caching=False) is not None


def test_short_prompts_are_no_matter() -> None:
    short = [prompt_print(b"%d" % number * 600, TOOLS, [TASK]) for number in range(6)]
    assert asked(short, cached=0, tokens=800).repeats == 0
    assert asked(short, cached=None, tokens=None).repeats == 0


def test_what_no_engine_reports_is_not_zero() -> None:
    costs = asked(GROWING, cached=None, tokens=None)
    assert (costs.requests, costs.prompt_mean, costs.hits, costs.first_mean) == (6, None, None, 0.5)
    shape = client_object(costs)
    assert shape["prompt_tokens"] is None and shape["cached_prompt_tokens"] is None
    table = clients_page((costs,))[0].table
    assert table is not None and [cell.text for cell in table.rows[0]] == ["claude-cli", "6", "-", "-", "500 ms"]


def test_hits_count_only_requests_whose_cached_tokens_are_reported() -> None:
    lens = AgentLens()
    for cached in (None, 6_000):
        lens.add(AgentTurn("a", "qwen", "/v1/responses", GROWING[0], 12_000, cached))
    assert (lens.costs()[0].hits, lens.costs()[0].prompt_mean) == (0.5, 12_000)


def test_however_many_names_come_the_clients_are_bounded_and_none_is_lost() -> None:
    lens = AgentLens()
    for number in range(500):
        lens.add(AgentTurn("owner", "qwen", "/v1/messages", GROWING[0], 10, 1, 0.1))
        lens.add(AgentTurn(f"bot{number}", "qwen", "/v1/messages", GROWING[0], 10, 1, 0.1))
    found = lens.costs()
    assert len(found) == MOST_CLIENTS + 1
    assert (found[0].client, found[0].requests, found[-1].client) == ("owner", 500, OTHERS)
    assert sum(each.requests for each in found) == 1000
    assert sum(each.prompt_tokens for each in found) == 10_000


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("claude-cli/2.0.1 (external, cli)", "claude-cli"),
        ("codex_cli_rs/0.50.0 (Ubuntu 24.4.0; arm64)", "codex_cli_rs"),
        ("AsyncOpenAI/Python 2.1.0", "AsyncOpenAI"),
        ("", "unnamed"),
        ("\x1b[31mred", "unnamed"),
        ("[bold]x", "unnamed"),
        ("a" * 5000, "a" * 40),
    ],
)
def test_a_program_is_named_by_its_user_agent_s_first_product(user_agent: str, name: str) -> None:
    assert product_of(user_agent) == name


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": 64}}, (90, 64)),
        ({"prompt_tokens": 90, "prompt_tokens_details": None}, (90, None)),
        ({"input_tokens": 90, "input_tokens_details": {"cached_tokens": 0}}, (90, 0)),
        ({"input_tokens": 20, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 6}, (90, 64)),
        ({"input_tokens": 90, "cache_read_input_tokens": None}, (90, None)),
        ({"prompt_tokens": -1, "prompt_tokens_details": {"cached_tokens": True}}, (None, None)),
        ({"prompt_tokens": 1 << 60}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_every_api_s_usage_is_read(usage: Mapping[str, Any], tokens: tuple[int | None, int | None]) -> None:
    assert usage_tokens(usage) == tokens


def test_prints_hold_no_text_and_do_not_depend_on_how_parts_are_cut() -> None:
    whole, cut = prompt_print(b"", b"", [SYSTEM]), prompt_print(SYSTEM[:100], SYSTEM[100:7000], [SYSTEM[7000:]])
    assert whole.heads == cut.heads and whole.size == cut.size == len(SYSTEM)
    assert len(prompt_print(b"", b"", [b"x" * (3 << 20)]).heads) == 13, "its first MiB"
    assert prompt_print(b"", b"", []) == PromptPrint((), frozenset(), 0)
