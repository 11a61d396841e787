"""Rules about how the model is served: parsers, the machines that serve it, who reaches it, and what it needs here."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from spark_tui.domain.engine.container import LOOPBACK
from spark_tui.domain.engine.runtimes import KeyWay, is_known
from spark_tui.domain.presets.invocation import HOST_NETWORK
from spark_tui.domain.presets.overrides import Reach
from spark_tui.domain.presets.plan import STORE_TARGET, key_wanted
from spark_tui.domain.presets.preset import RequiredFile
from spark_tui.domain.presets.rules.context import Advice, Case, Rule, Severity

_LOOPBACKS: Final = (LOOPBACK, "localhost", "::1")
# family -> its name in a model, its reasoning parser, its tool parser (the guide, section 7).
_FAMILIES: Final = (
    ("Qwen", r"qwen", "qwen3", "qwen3_coder"),
    ("Gemma 4", r"gemma-?4|diffusiongemma", "gemma4", "gemma4"),
    ("Nemotron 3", r"nemotron-?3|nemotron-cascade", "nemotron_v3", "qwen3_coder"),
    ("Mistral", r"mistral", "mistral", "mistral"),
    ("Laguna", r"laguna", "poolside_v1", "poolside_v1"),
    ("gpt-oss", r"gpt-oss", "openai_gptoss", "openai"),
)
_REASONING_OF: Final[Mapping[str, str]] = {parser: family for family, _, parser, _ in _FAMILIES}
_TOOLS_OF: Final[Mapping[str, str]] = {
    "gemma4": "Gemma 4",
    "mistral": "Mistral",
    "poolside_v1": "Laguna",
    "openai": "gpt-oss",
    "qwen3_coder": "Qwen",
}
_BORROWED: Final = (("Nemotron 3", "qwen3_coder"),)


# --- parsers ----------------------------------------------------------------------------------------------


def tool_choice_without_parser(case: Case) -> Advice | None:
    """vLLM ends at the start over the one without the other."""
    if not case.is_vllm or not case.switch("--enable-auto-tool-choice"):
        return None
    if case.option("--tool-call-parser") is not None:
        return None
    family = _family(case)
    return Advice(
        Severity.ERROR,
        "--enable-auto-tool-choice needs a --tool-call-parser.",
        "--enable-auto-tool-choice alone",
        f"Set tool_call_parser={family[3]}." if family else "Set the tool_call_parser that the model's card names.",
        case.setting("tool_call_parser", family[3]) if family else (),
    )


def tool_parser_without_choice(case: Case) -> Advice | None:
    """Requests with tools then answer 400: `"auto" tool choice requires --enable-auto-tool-choice`."""
    parser = case.option("--tool-call-parser")
    if not case.is_vllm or parser is None or case.switch("--enable-auto-tool-choice"):
        return None
    return Advice(
        Severity.WARNING,
        "A tool parser without --enable-auto-tool-choice: requests with tools are refused.",
        f"--tool-call-parser {parser}",
        "Set enable_auto_tool_choice=true.",
        case.setting("enable_auto_tool_choice", "true"),
    )


def _family(case: Case) -> tuple[str, str, str, str] | None:
    return next((family for family in _FAMILIES if case.named(family[1])), None)


def parser_of_another_model(case: Case) -> Advice | None:
    """Follow the model's recipe: another family's parser leaves thoughts and calls in the text."""
    family = _family(case)
    if not case.is_vllm or family is None:
        return None
    name, _, reasoning, tools = family
    asked = (
        ("reasoning_parser", case.option("--reasoning-parser") or "", _REASONING_OF, reasoning),
        ("tool_call_parser", case.option("--tool-call-parser") or "", _TOOLS_OF, tools),
    )
    wrong = [
        (key, given, owners[given], own)
        for key, given, owners, own in asked
        if owners.get(given, name) != name and (name, given) not in _BORROWED
    ]
    if not wrong:
        return None
    return Advice(
        Severity.WARNING,
        f"A parser reads the answers of another family ({wrong[0][2]}).",
        ", ".join(f"{key} {given}" for key, given, _, _ in wrong) + f" with {case.preset.model}",
        "Set " + " and ".join(f"{key}={own}" for key, _, _, own in wrong) + ".",
        tuple(pair for key, _, _, own in wrong for pair in case.setting(key, own)),
    )


def _plugins(case: Case) -> tuple[str, ...]:
    given = (case.option("--reasoning-parser-plugin"), case.option("--tool-parser-plugin"))
    return tuple(path for path in given if path)


def _is_plugin(case: Case, file: RequiredFile) -> bool:
    return any(path == posixpath.join(STORE_TARGET, file.target) for path in _plugins(case))


def parser_plugin_missing(case: Case) -> Advice | None:
    """A parser from a file: the file must be named, and lie in the store."""
    absent = tuple(file.target for file in case.situation.missing_files or () if _is_plugin(case, file))
    if absent:
        return Advice(
            Severity.NOTE,
            "The parser that the command names is not in the model store yet.",
            ", ".join(absent),
            _fetched(case),
        )
    if not case.is_vllm or case.option("--reasoning-parser") != "nano_v3" or _plugins(case):
        return None
    return Advice(
        Severity.ERROR,
        "The parser nano_v3 is a file of the model, and the command does not name it.",
        "--reasoning-parser nano_v3 without --reasoning-parser-plugin",
        "Set reasoning_parser_plugin=/models/nano_v3_reasoning_parser.py, and fetch that file into the store.",
        case.setting("reasoning_parser_plugin", "/models/nano_v3_reasoning_parser.py"),
    )


def required_file_missing(case: Case) -> Advice | None:
    """What the command runs or reads; parsers are told above, a system prompt by its model's rule."""
    missing = case.situation.missing_files or ()
    absent = tuple(file.target for file in missing if not file.for_chat and not _is_plugin(case, file))
    if not absent:
        return None
    return Advice(
        Severity.NOTE,
        "The model store lacks what this preset needs to start.",
        ", ".join(absent),
        _fetched(case),
    )


def mistral_without_system_prompt(case: Case) -> Advice | None:
    """The card: it behaves as meant with the repository's SYSTEM_PROMPT.txt."""
    missing = case.situation.missing_files
    prompt = next((file for file in case.preset.facts.required_files if file.for_chat), None)
    here = prompt is not None and missing is not None and prompt not in missing
    if not case.named(r"mistral-small-4") or case.situation.has_system_prompt or here:
        return None
    return Advice(
        Severity.NOTE,
        "Mistral-Small-4 behaves as meant only with its system prompt.",
        f"no {prompt.target} in the model store" if prompt is not None else "SYSTEM_PROMPT.txt of its repository",
        _fetched(case) if prompt is not None else "Send its text as the system message of each chat.",
    )


def _fetched(case: Case) -> str:
    """How what is missing gets here."""
    return f"A launch fetches it first; by itself: spark-tui models pull {case.preset.name}"


# --- machines ---------------------------------------------------------------------------------------------


def parallel_beyond_machines(case: Case) -> Advice | None:
    """A Spark has one GPU: tensor and pipeline parallel need as many Sparks."""
    if not case.is_vllm or not case.may_be_spark:
        return None
    size = 1
    for option in ("--tensor-parallel-size", "--pipeline-parallel-size"):
        size *= max(1, case.integer(option) or 1)
    sparks = case.situation.sparks
    if size <= (sparks or 1):
        return None
    certain = sparks is not None and case.situation.is_spark is True
    fixes = [("tensor_parallel", "--tensor-parallel-size"), ("pipeline_parallel", "--pipeline-parallel-size")]
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        "The model is spread over more GPUs than there are.",
        f"tensor times pipeline parallel: {size} GPUs; a Spark has one, and "
        + ("it serves alone" if (sparks or 1) == 1 else f"{sparks} serve together"),
        "Set tensor_parallel=1, or link more Sparks.",
        tuple(pair for key, name in fixes if (case.integer(name) or 1) > 1 for pair in case.setting(key, "1")),
    )


def nccl_interface(case: Case) -> Advice | None:
    """The guide, section 12: over Ethernet instead of the QSFP port it is 10 to 20 times slower."""
    size, sparks = case.integer("--tensor-parallel-size") or 1, case.situation.sparks or 1
    if not case.is_vllm or size <= 1 or size > sparks or case.env.get("NCCL_SOCKET_IFNAME"):
        return None
    return Advice(
        Severity.WARNING,
        "NCCL may choose the slow network between the Sparks.",
        f"--tensor-parallel-size {size} without NCCL_SOCKET_IFNAME",
        "Set env.NCCL_SOCKET_IFNAME to the QSFP port (see ibdev2netdev), for example enP2p1s0f1np1.",
    )


# --- access -----------------------------------------------------------------------------------------------


def lan_without_key(case: Case) -> Advice | None:
    """Everyone in the network could use the engine, and read its metrics."""
    overrides, on_host = case.situation.overrides, case.situation.plan.spec.network == HOST_NETWORK
    host = case.option("--host")
    shared = host not in _LOOPBACKS if on_host else overrides.exposure is Reach.LAN
    if not shared or key_wanted(case.preset, overrides):
        return None
    takes_key = is_known(case.preset.engine) and case.preset.server.key_way is not KeyWay.NONE
    return Advice(
        Severity.WARNING,
        "Everyone in the network can use this engine: it has no API key.",
        f"--host {host or 'unset'} on the host's network" if on_host else "exposure=lan with api_key=no",
        "Set api_key=yes, or exposure=local." if takes_key else "Set exposure=local.",
        (("api_key", "yes"),) if takes_key else (("exposure", "local"),),
    )


def gated_without_token(case: Case) -> Advice | None:
    """The Hub answers 401 for a gated model; weights that are here need none."""
    situation = case.situation
    if case.preset.facts.gated is not True or situation.has_hf_token is not False or situation.checkpoint is not None:
        return None
    return Advice(
        Severity.ERROR,
        "The model is gated, and there is no Hugging Face token.",
        f"{case.preset.model}: gated",
        f"Accept its licence at huggingface.co/{case.preset.model}, then set HF_TOKEN or log in with hf.",
    )


ACCESS: Final[Mapping[str, Rule]] = {
    "lan_without_key": lan_without_key,
    "gated_without_token": gated_without_token,
}
RULES: Final[Mapping[str, Rule]] = {
    "tool_choice_without_parser": tool_choice_without_parser,
    "tool_parser_without_choice": tool_parser_without_choice,
    "parser_of_another_model": parser_of_another_model,
    "parser_plugin_missing": parser_plugin_missing,
    "required_file_missing": required_file_missing,
    "mistral_without_system_prompt": mistral_without_system_prompt,
    "parallel_beyond_machines": parallel_beyond_machines,
    "nccl_interface": nccl_interface,
}
