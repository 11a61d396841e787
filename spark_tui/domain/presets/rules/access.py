"""Rules about access: who reaches the engine, and what may be fetched from the Hub."""

from __future__ import annotations

from spark_tui.domain.engine.runtimes import KeyWay, is_known
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.command import HOST_NETWORK, LOOPBACK_NAMES
from spark_tui.domain.presets.plan import key_wanted
from spark_tui.domain.presets.rules.context import LaunchContext, Rules
from spark_tui.domain.settings import ExposureChoice

RULES = Rules()


@RULES.add(any_engine=True)
def lan_without_key(launch: LaunchContext) -> Finding | None:
    """Anyone on the network could use the engine, and read its metrics."""
    on_host, host = launch.spec.network == HOST_NETWORK, launch.value("host")
    shared = host not in LOOPBACK_NAMES if on_host else launch.overrides.exposure is ExposureChoice.LAN
    if not shared or key_wanted(launch.preset, launch.overrides):
        return None
    takes_key = is_known(launch.preset.engine) and launch.preset.server.key_way is not KeyWay.NONE
    return Finding(
        "lan_without_key",
        Severity.WARNING,
        "Anyone on the network can use this engine (no API key).",
        (f"--host {host or 'unset'} on the host's network" if on_host else "exposure=lan with api_key=no",),
        "Set api_key=yes, or exposure=local." if takes_key else "Set exposure=local.",
        (("api_key", "yes"),) if takes_key else (("exposure", "local"),),
    )


@RULES.add(any_engine=True)
def gated_without_token(launch: LaunchContext) -> Finding | None:
    """The Hub answers 401 for a gated model; downloaded weights need no token."""
    if launch.preset.facts.gated is not True or launch.has_hf_token is not False or launch.checkpoint is not None:
        return None
    model = launch.preset.model
    return Finding(
        "gated_without_token",
        Severity.ERROR,
        "The model is gated, and there is no Hugging Face token.",
        (f"{model}: gated",),
        f"Accept its licence at huggingface.co/{model}, then set HF_TOKEN or log in with hf.",
    )
