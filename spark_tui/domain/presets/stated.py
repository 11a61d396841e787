"""What a launch says of the settings that a person may change, wherever its command or its environment says it."""

from __future__ import annotations

from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.knobs import KNOBS
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.rules_case import Case, Situation, case_of
from spark_tui.domain.presets.speculation import METHOD, OFF, TOKENS


def stated_by(plan: LaunchPlan) -> dict[str, str]:
    """The settings of `KNOBS` as the planned command has them, by key; those it does not name are left out."""
    case = case_of(Situation(plan))
    found = {key: value for key in KNOBS if (value := _option(case, key))}
    found |= {"name": plan.spec.name, "port": str(plan.host_port)}
    if case.speculation is not None:
        found[METHOD] = case.speculation.method
        found |= {TOKENS: str(case.speculation.tokens)} if case.speculation.tokens is not None else {}
    elif case.is_vllm:
        found[METHOD] = OFF
    return found


def _option(case: Case, key: str) -> str | None:
    if case.preset.engine == "vllm":
        name = vllm.option_of(key)
        return case.option(name) if name else None
    return vllm.option_in(case.words, case.preset.server.spellings(key))
