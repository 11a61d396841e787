"""The gateway: what it serves, what it launches, and configurations for others in its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from spark_tui.base.engine.container import LABEL_API_KEY_FILE
from spark_tui.base.gateway import GatewayKey, GatewayStatus, GatewaySwap
from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe, moment
from spark_tui.base.quantities import human_duration
from spark_tui.catalog.presets.model.dialects.recipe_files import node_of, yaml_text
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.observe.metrics.show.metrics import client_object, clients_page

_READY_SECONDS: Final = 1800
"""vLLM on a Spark loads for minutes, and longer while it compiles."""
_STOP_SECONDS: Final = 120
_NO_ESTIMATE: Final = "no earlier start of this preset"


def swap_text(swap: GatewaySwap, now: float) -> str:
    """`qwen: Boot (3 waiting), about 2m10s left`."""
    left = "time unknown" if swap.ready_at is None else f"about {human_duration(max(0.0, swap.ready_at - now))} left"
    waiting = f" ({swap.waiting} waiting)" if swap.waiting else ""
    return f"{swap.target}: {swap.phase.lower()}{waiting}, {left}"


def gateway_rows(status: GatewayStatus | None, now: float) -> tuple[Row, ...]:
    """For a screen: the address, and each launch on request."""
    if status is None:
        return ()
    return (
        Row(f"{status.address}/v1{'' if status.keyed else '  (no keys)'}", "gateway"),
        *(Row(swap_text(each, now), "launch", Tone.WARNING) for each in status.swaps),
    )


def gateway_page(status: GatewayStatus, now: float) -> Page:
    engines = Table(
        (Column("engine"), Column("running", right=True), Column("answered", right=True), Column("names", least=10)),
        tuple(
            cells(
                f"{each.name}{' (pinned)' if each.pinned else ''}",
                str(each.in_flight),
                str(each.answered),
                Cell(", ".join(each.names), Tone.QUIET),
            )
            for each in status.engines
        ),
        empty="No engine serves.",
    )
    peers = Table(
        (Column("gateway"), Column("running", right=True), Column("answered", right=True), Column("serves", least=10)),
        tuple(
            cells(
                each.name,
                str(each.in_flight),
                str(each.answered),
                Cell(each.problem, Tone.WARNING) if each.problem else Cell(", ".join(each.serves), Tone.QUIET),
            )
            for each in status.peers
        ),
    )
    failures = tuple(Row(f"{name}: {why}", "", Tone.BAD) for name, why in status.failures)
    parts = (
        Section("", gateway_rows(status, now)),
        Section("Engines", table=engines),
        Section("Other machines", table=peers if status.peers else None),
        *clients_page(status.clients, engines=True),
        Section("Failed launches", failures),
    )
    return tuple(each for each in parts if each.rows or each.table)


def gateway_object(status: GatewayStatus | None) -> Object:
    if status is None:
        return {"id": "gateway", "running": False}
    return {
        "id": "gateway",
        "running": True,
        "url": f"{status.address}/v1",
        "since": moment(status.since),
        "keyed": status.keyed,
        "engines": [
            {
                "id": each.name,
                "names": list(each.names),
                "requests_running": each.in_flight,
                "requests_answered": each.answered,
                "pinned": each.pinned,
            }
            for each in status.engines
        ],
        "swaps": [
            {
                "id": each.target,
                "phase": each.phase,
                "detail": each.detail,
                "waiting": each.waiting,
                "stopped": list(each.stopped),
                **maybe("ready_at", moment(each.ready_at), _NO_ESTIMATE),
            }
            for each in status.swaps
        ],
        "peers": [
            {
                "id": each.name,
                "url": each.address,
                "serves": list(each.serves),
                "requests_running": each.in_flight,
                "requests_answered": each.answered,
                "problem": each.problem or None,
            }
            for each in status.peers
        ],
        "clients": [client_object(each) for each in status.clients],
        "failures": [{"id": name, "cause": why} for name, why in status.failures],
    }


def key_object(key: GatewayKey) -> Object:
    return {"id": key.client, "added": moment(key.at), "sha256": key.digest[:12]}


# --- other gateways -------------------------------------------------------------------------------------


def llama_swap_config(plans: Iterable[LaunchPlan], ttl_seconds: float) -> str:
    """The YAML of llama-swap: each model is a foreground `spark-tui up`, which waits until memory is back."""
    models: dict[str, Any] = {
        plan.preset.name: {
            "cmd": f"spark-tui up {plan.preset.name} --service --set port=${{PORT}}",
            "cmdStop": f"spark-tui down {plan.spec.name}",
            "proxy": "http://127.0.0.1:${PORT}",
            "checkEndpoint": "/health",
            "ttl": int(ttl_seconds),
            "unloadTimeout": _STOP_SECONDS,
            "useModelName": plan.served_name,
        }
        for plan in plans
    }
    group: dict[str, Any] = {"spark": {"swap": True, "exclusive": True, "members": sorted(models)}}
    return yaml_text(
        node_of({"healthCheckTimeout": _READY_SECONDS, "startPort": 10001, "models": models, "groups": group})
    )


def litellm_config(plans: Iterable[LaunchPlan]) -> str:
    """The YAML of LiteLLM's proxy, which starts no engines. An engine's key is read from its variable."""
    models: list[Any] = [
        {
            "model_name": plan.preset.name,
            "litellm_params": {
                "model": f"hosted_vllm/{plan.served_name}",
                "api_base": f"http://127.0.0.1:{plan.host_port}/v1",
                "api_key": _own_key(plan),
                "timeout": _READY_SECONDS,
                "stream_timeout": _READY_SECONDS,
            },
        }
        for plan in plans
    ]
    about = "# LiteLLM starts no engines: launch each with spark-tui up NAME, or put spark-tui gateway behind it.\n"
    return about + yaml_text(node_of({"model_list": models, "litellm_settings": {"request_timeout": _READY_SECONDS}}))


def _own_key(plan: LaunchPlan) -> str:
    """Where LiteLLM finds the engine's key: in its environment."""
    keyed = plan.spec.label(LABEL_API_KEY_FILE)
    return f"os.environ/{plan.preset.server.key_variable}" if keyed else "none"
