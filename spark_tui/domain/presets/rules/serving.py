"""Rules about how the model is served: parsers, required files, and the machines that serve it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.plan import STORE_TARGET
from spark_tui.domain.presets.preset import RequiredFile
from spark_tui.domain.presets.rules.context import LaunchContext, Rules

RULES = Rules()

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
_NANO_PLUGIN: Final = "/models/nano_v3_reasoning_parser.py"


def _family(launch: LaunchContext) -> tuple[str, str, str, str] | None:
    return next((family for family in _FAMILIES if launch.named(family[1])), None)


@RULES.add()
def tool_choice_without_parser(launch: LaunchContext) -> Finding | None:
    """vLLM exits at the start over the one without the other."""
    if not launch.switch("enable_auto_tool_choice") or launch.value("tool_call_parser") is not None:
        return None
    family = _family(launch)
    return Finding(
        "tool_choice_without_parser",
        Severity.ERROR,
        "--enable-auto-tool-choice needs a --tool-call-parser.",
        ("--enable-auto-tool-choice alone",),
        f"Set tool_call_parser={family[3]}." if family else "Set the tool_call_parser that the model's card names.",
        launch.setting("tool_call_parser", family[3]) if family else (),
    )


@RULES.add()
def tool_parser_without_choice(launch: LaunchContext) -> Finding | None:
    """Requests with tools then answer 400: `"auto" tool choice requires --enable-auto-tool-choice`."""
    parser = launch.value("tool_call_parser")
    if parser is None or launch.switch("enable_auto_tool_choice"):
        return None
    return Finding(
        "tool_parser_without_choice",
        Severity.WARNING,
        "A tool parser without --enable-auto-tool-choice: requests with tools are refused.",
        (f"--tool-call-parser {parser}",),
        "Set enable_auto_tool_choice=true.",
        launch.setting("enable_auto_tool_choice", "true"),
    )


@RULES.add()
def parser_of_another_model(launch: LaunchContext) -> Finding | None:
    """Follow the model's recipe: another family's parser leaves reasoning and calls in the text."""
    family = _family(launch)
    if family is None:
        return None
    name, _, reasoning, tools = family
    asked = (("reasoning_parser", _REASONING_OF, reasoning), ("tool_call_parser", _TOOLS_OF, tools))
    wrong = [
        (key, given, owners[given], own)
        for key, owners, own in asked
        if owners.get(given := launch.value(key) or "", name) != name and (name, given) not in _BORROWED
    ]
    if not wrong:
        return None
    return Finding(
        "parser_of_another_model",
        Severity.WARNING,
        f"A parser is for another model family ({wrong[0][2]}).",
        (", ".join(f"{key} {given}" for key, given, _, _ in wrong) + f" with {launch.preset.model}",),
        "Set " + " and ".join(f"{key}={own}" for key, _, _, own in wrong) + ".",
        tuple(pair for key, _, _, own in wrong for pair in launch.setting(key, own)),
    )


# --- required files ---------------------------------------------------------------------------------------


def _plugins(launch: LaunchContext) -> tuple[str, ...]:
    given = (launch.value("reasoning_parser_plugin"), launch.value("tool_parser_plugin"))
    return tuple(path for path in given if path)


def _is_plugin(launch: LaunchContext, file: RequiredFile) -> bool:
    return any(path == posixpath.join(STORE_TARGET, file.target) for path in _plugins(launch))


def _how_to_download(launch: LaunchContext) -> str:
    return f"A launch downloads it first; or run: spark-tui models pull {launch.preset.name}"


@RULES.add(any_engine=True)
def parser_plugin_missing(launch: LaunchContext) -> Finding | None:
    """A parser from a file: the file must be named, and lie in the store."""
    absent = tuple(file.target for file in launch.missing_files or () if _is_plugin(launch, file))
    if absent:
        return Finding(
            "parser_plugin_missing",
            Severity.INFO,
            "The parser file of the command is not in the model store.",
            (", ".join(absent),),
            _how_to_download(launch),
        )
    if not launch.is_vllm or launch.value("reasoning_parser") != "nano_v3" or _plugins(launch):
        return None
    return Finding(
        "parser_plugin_missing",
        Severity.ERROR,
        "The parser nano_v3 is a file of the model, and the command does not name it.",
        ("--reasoning-parser nano_v3 without --reasoning-parser-plugin",),
        f"Set reasoning_parser_plugin={_NANO_PLUGIN}, and download that file into the store.",
        launch.setting("reasoning_parser_plugin", _NANO_PLUGIN),
    )


@RULES.add(any_engine=True)
def required_file_missing(launch: LaunchContext) -> Finding | None:
    """What the command runs or reads; parser files have the rule above, a system prompt its model's."""
    missing = launch.missing_files or ()
    absent = tuple(file.target for file in missing if not file.for_chat and not _is_plugin(launch, file))
    if not absent:
        return None
    return Finding(
        "required_file_missing",
        Severity.INFO,
        "Files that this preset needs to start are not in the model store.",
        (", ".join(absent),),
        _how_to_download(launch),
    )


@RULES.add(any_engine=True)
def mistral_without_system_prompt(launch: LaunchContext) -> Finding | None:
    """The card: it behaves as meant with the repository's SYSTEM_PROMPT.txt."""
    missing = launch.missing_files
    prompt = next((file for file in launch.preset.facts.required_files if file.for_chat), None)
    downloaded = prompt is not None and missing is not None and prompt not in missing
    if not launch.named(r"mistral-small-4") or launch.has_system_prompt or downloaded:
        return None
    return Finding(
        "mistral_without_system_prompt",
        Severity.INFO,
        "Mistral-Small-4 needs its system prompt to behave as meant.",
        (f"no {prompt.target} in the model store" if prompt is not None else "SYSTEM_PROMPT.txt of its repository",),
        _how_to_download(launch) if prompt is not None else "Send its text as the system message of each chat.",
    )


# --- machines ---------------------------------------------------------------------------------------------


@RULES.add(spark=True)
def parallel_beyond_machines(launch: LaunchContext) -> Finding | None:
    """A Spark has one GPU: tensor and pipeline parallel need as many Sparks."""
    sizes = {key: max(1, launch.integer(key) or 1) for key in ("tensor_parallel", "pipeline_parallel")}
    size, sparks = sizes["tensor_parallel"] * sizes["pipeline_parallel"], launch.sparks or 1
    if size <= sparks:
        return None
    certain = launch.sparks is not None and launch.is_spark is True
    machines = "1 Spark" if sparks == 1 else f"{sparks} Sparks"
    return Finding(
        "parallel_beyond_machines",
        Severity.ERROR if certain else Severity.WARNING,
        "The model is spread over more GPUs than there are.",
        (f"tensor times pipeline parallel: {size} GPUs; {machines} with one GPU each",),
        "Set tensor_parallel=1, or link more Sparks.",
        tuple(pair for key, ways in sizes.items() if ways > 1 for pair in launch.setting(key, 1)),
    )


@RULES.add()
def nccl_interface(launch: LaunchContext) -> Finding | None:
    """The guide, section 12: over Ethernet instead of the QSFP port it is 10 to 20 times slower."""
    size = launch.integer("tensor_parallel") or 1
    if size <= 1 or size > (launch.sparks or 1) or launch.env.get("NCCL_SOCKET_IFNAME"):
        return None
    return Finding(
        "nccl_interface",
        Severity.WARNING,
        "NCCL may choose the slow network between the Sparks.",
        (f"--tensor-parallel-size {size} without NCCL_SOCKET_IFNAME",),
        "Set env.NCCL_SOCKET_IFNAME to the QSFP port (see ibdev2netdev), for example enP2p1s0f1np1.",
    )
