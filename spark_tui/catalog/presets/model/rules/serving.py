"""Rules about how the model is served: who reaches it, parsers, required files, and the machines that serve it."""

from __future__ import annotations

import posixpath
from typing import Final

from spark_tui.base.engine.container import STORE_TARGET
from spark_tui.base.engine.image import shown_version
from spark_tui.base.engine.invocation import OFF, TOOLS
from spark_tui.base.engine.runtimes import KeyDelivery, family_of, is_known, makers_of, parser_named
from spark_tui.base.finding import pairs_text
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.command import HOST_NETWORK, LOOPBACK_NAMES
from spark_tui.catalog.presets.model.plan import key_wanted
from spark_tui.catalog.presets.model.preset import RequiredFile
from spark_tui.catalog.presets.model.rules.context import (
    ERROR,
    INFO,
    WARNING,
    LaunchContext,
    Matches,
    RuleMatch,
    RuleTable,
)

RULES: Final = RuleTable()

_NANO_PLUGIN: Final = "/models/nano_v3_reasoning_parser.py"

# --- access -----------------------------------------------------------------------------------------------


@RULES.add(WARNING, "Anyone on the network can use this engine (no API key).", any_engine=True)
def lan_without_key(launch: LaunchContext) -> Matches:
    """Anyone on the network could use the engine, and read its metrics."""
    on_host, host = launch.spec.network == HOST_NETWORK, launch.value("host")
    shared = host not in LOOPBACK_NAMES if on_host else launch.overrides.exposure is ExposureChoice.LAN
    if not shared or key_wanted(launch.preset, launch.overrides):
        return
    takes_key = is_known(launch.preset.engine) and launch.preset.server.key_way is not KeyDelivery.NONE
    yield RuleMatch(
        f"--host {host or 'unset'} on the host's network" if on_host else "exposure=lan with api_key=no",
        (("api_key", "yes"),) if takes_key else (("exposure", "local"),),
        remedy="Set api_key=yes, or exposure=local." if takes_key else "Set exposure=local.",
    )


@RULES.add(ERROR, "The model is gated, and there is no Hugging Face token.", any_engine=True)
def gated_without_token(launch: LaunchContext) -> Matches:
    """The Hub answers 401 for a gated model; downloaded weights need no token."""
    model = launch.preset.model
    if launch.preset.facts.gated is True and launch.has_hf_token is False and launch.checkpoint is None:
        remedy = f"Accept its licence at huggingface.co/{model}, then set HF_TOKEN or log in with hf."
        yield RuleMatch(f"{model}: gated", remedy=remedy)


# --- parsers ----------------------------------------------------------------------------------------------


@RULES.add(
    ERROR,
    "--enable-auto-tool-choice needs a --tool-call-parser.",
    "Set the tool_call_parser that the model's card names.",
)
def tool_choice_without_parser(launch: LaunchContext) -> Matches:
    """vLLM exits at the start over the one without the other."""
    if launch.switch("enable_auto_tool_choice") and launch.value("tool_call_parser") is None:
        family = family_of(launch.model)
        yield RuleMatch(
            "--enable-auto-tool-choice alone",
            launch.setting("tool_call_parser", family.tool) if family else (),
            remedy=f"Set tool_call_parser={family.tool}." if family else "",
        )


@RULES.add(
    WARNING,
    "A tool parser without --enable-auto-tool-choice: requests with tools are refused.",
    "Set enable_auto_tool_choice=true.",
)
def tool_parser_without_choice(launch: LaunchContext) -> Matches:
    """Requests with tools then answer 400: `"auto" tool choice requires --enable-auto-tool-choice`."""
    parser = launch.value("tool_call_parser")
    if parser is not None and not launch.switch("enable_auto_tool_choice"):
        yield RuleMatch(f"--tool-call-parser {parser}", launch.setting("enable_auto_tool_choice", "true"))


@RULES.add(WARNING, "A parser is for another model family.", any_engine=True)
def parser_of_another_model(launch: LaunchContext) -> Matches:
    """Follow the model's recipe: another family's parser leaves reasoning and calls in the text. One family may have
    several ways to write calls: Qwen3-Coder writes XML, and Qwen3 JSON."""
    engine, family = launch.preset.engine, family_of(launch.model)
    parsers = family.on(engine) if family is not None else None
    if family is None or parsers is None:
        return
    wrong = [
        (key, given, makers, own)
        for key, own in (("reasoning_parser", parsers.reasoning), ("tool_call_parser", parsers.tool))
        if (makers := makers_of(given := launch.value(key) or "", engine))
        and (parser_named(given, engine) != own if own else family.name not in makers)
    ]
    if wrong:
        known = [(key, own) for key, _, _, own in wrong if own]
        maker = wrong[0][2][0]
        yield RuleMatch(
            ", ".join(f"{key} {given}" for key, given, _, _ in wrong) + f" with {launch.preset.model}",
            tuple(pair for key, own in known for pair in launch.setting(key, own)),
            summary=f"A parser is for other {maker} models."
            if maker == family.name
            else f"A parser is for another model family ({maker}).",
            remedy="Set " + " and ".join(f"{key}={own}" for key, own in known) + "." if known else "Remove the parser.",
        )


@RULES.add(ERROR, "The image's vLLM is older than the parser of this model's tool calls.", "Use a newer image.")
def parser_newer_than_image(launch: LaunchContext) -> Matches:
    """vLLM exits at the start over a parser that it does not have."""
    family, newest = family_of(launch.model), launch.newest_vllm
    if family is None or newest is None or newest[:2] >= family.since:
        return
    if launch.value("tool_call_parser") == family.tool:
        since = ".".join(map(str, family.since))
        yield RuleMatch(
            f"--tool-call-parser {family.tool} needs vLLM {since}; the image has {shown_version(newest)} at most",
            ((TOOLS, OFF),),
            remedy="Use a newer image, or set tool_calls=off.",
        )


# --- required files ---------------------------------------------------------------------------------------


def _plugins(launch: LaunchContext) -> tuple[str, ...]:
    given = (launch.value("reasoning_parser_plugin"), launch.value("tool_parser_plugin"))
    return tuple(path for path in given if path)


def _is_plugin(launch: LaunchContext, file: RequiredFile) -> bool:
    return posixpath.join(STORE_TARGET, file.target) in _plugins(launch)


def _how_to_download(launch: LaunchContext) -> str:
    return f"A launch downloads it first; or run: spark-tui models pull {launch.preset.name}"


@RULES.add(ERROR, "The parser nano_v3 is a file of the model, and the command does not name it.", any_engine=True)
def parser_plugin_missing(launch: LaunchContext) -> Matches:
    """A parser from a file: the file must be named, and be in the store."""
    absent = tuple(file.target for file in launch.missing_files or () if _is_plugin(launch, file))
    if absent:
        summary = "The parser file of the command is not in the model store."
        yield RuleMatch(", ".join(absent), (), INFO, summary, _how_to_download(launch))
    elif launch.is_vllm and launch.value("reasoning_parser") == "nano_v3" and not _plugins(launch):
        yield RuleMatch(
            "--reasoning-parser nano_v3 without --reasoning-parser-plugin",
            launch.setting("reasoning_parser_plugin", _NANO_PLUGIN),
            remedy=f"Set reasoning_parser_plugin={_NANO_PLUGIN}, and download that file into the store.",
        )


@RULES.add(INFO, "Files that this preset needs to start are not in the model store.", any_engine=True)
def required_file_missing(launch: LaunchContext) -> Matches:
    """What the command runs or reads; parser files have the rule above, a system prompt its model's."""
    missing = launch.missing_files or ()
    absent = tuple(file.target for file in missing if not file.for_chat and not _is_plugin(launch, file))
    if absent:
        yield RuleMatch(", ".join(absent), remedy=_how_to_download(launch))


@RULES.add(ERROR, "The command reads a path that nothing brings into the container.", any_engine=True)
def path_not_mounted(launch: LaunchContext) -> Matches:
    """Weights come from the model store or from a mount of the recipe; other files also from the image, or from a mod
    that is not applied."""
    weights, files = launch.unmounted_weights, launch.unmounted_files
    if weights:
        remedy = (
            f"Put it into the model store and name it as {STORE_TARGET}/FOLDER, or name its repository: OWNER/MODEL"
        )
        yield RuleMatch(
            f"{weights[0]}: no mount has it", summary="The model's path is not in the container.", remedy=remedy
        )
    elif files:
        names = ", ".join(files)
        mods = ", ".join(launch.preset.mods)
        why = f"nothing mounts it, and the mods of the recipe ({mods}) are not applied" if mods else "nothing mounts it"
        yield RuleMatch(
            f"{names}: {why}",
            severity=WARNING if mods or launch.image is not None else INFO,
            summary=f"Only the image can have {names}.",
            remedy=f"Put it into the model store and name it as {STORE_TARGET}/NAME, or remove the option.",
        )


@RULES.add(
    INFO,
    "Mistral-Small-4 needs its system prompt to behave as meant.",
    "Send its text as the system message of each chat.",
    any_engine=True,
)
def mistral_without_system_prompt(launch: LaunchContext) -> Matches:
    """The card: it behaves as meant with the repository's SYSTEM_PROMPT.txt."""
    missing = launch.missing_files
    prompt = next((file for file in launch.preset.facts.required_files if file.for_chat), None)
    downloaded = prompt is not None and missing is not None and prompt not in missing
    if not launch.named(r"mistral-small-4") or launch.has_system_prompt or downloaded:
        return
    if prompt is not None:
        yield RuleMatch(f"no {prompt.target} in the model store", remedy=_how_to_download(launch))
    else:
        yield RuleMatch("SYSTEM_PROMPT.txt of its repository")


# --- machines ---------------------------------------------------------------------------------------------


@RULES.add(WARNING, "The model is spread over more GPUs than there are.", spark=True)
def parallel_beyond_machines(launch: LaunchContext) -> Matches:
    """A Spark has one GPU: tensor and pipeline parallel need as many Sparks, and `--nnodes` waits for them."""
    sizes = {key: max(1, launch.integer(key) or 1) for key in ("tensor_parallel", "pipeline_parallel", "nnodes")}
    size, sparks = sizes["tensor_parallel"] * sizes["pipeline_parallel"], launch.sparks or 1
    if max(size, sizes["nnodes"]) <= sparks:
        return
    machines = "1 Spark" if sparks == 1 else f"{sparks} Sparks"
    needs = f"--nnodes {sizes['nnodes']}" if size <= sparks else f"tensor times pipeline parallel: {size} GPUs"
    once = "pipeline_parallel" if sizes["tensor_parallel"] > 1 else ""
    ways = {key: 1 if key == once else sparks for key, asked in sizes.items() if asked > 1}
    change = tuple(pair for key in ways for pair in launch.setting(key, ways[key]))
    yield RuleMatch(
        f"{needs}; {machines} with one GPU each",
        change,
        ERROR if launch.sparks is not None and launch.is_spark is True else None,
        remedy=f"Set {pairs_text(change)}, or link more Sparks.",
    )


@RULES.add(
    WARNING,
    "NCCL may choose the slow network between the Sparks.",
    "Set env.NCCL_SOCKET_IFNAME to the QSFP port (see ibdev2netdev), for example enP2p1s0f1np1.",
)
def nccl_interface(launch: LaunchContext) -> Matches:
    """The guide, section 12: over Ethernet instead of the QSFP port it is 10 to 20 times slower."""
    size = launch.integer("tensor_parallel") or 1
    if 1 < size <= (launch.sparks or 1) and not launch.env.get("NCCL_SOCKET_IFNAME"):
        yield RuleMatch(f"--tensor-parallel-size {size} without NCCL_SOCKET_IFNAME")
