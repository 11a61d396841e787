"""Failures of the model itself: its repository, its files, its architecture, its quantization."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.logs.causes.cause import Advice, CauseId, Evidence, Rule, nearest, rule, says

_HUB_NAME = re.compile(r"https?://[\w.\-]{1,100}/(?:api/models/)?([\w.\-]{1,100}/[\w.\-]{1,100})")
_NEWER_IMAGE: Final = (
    "Use an image with a newer vLLM (the nightly track, or a newer NGC tag), and see whether it lists it."
)
_PATH: Final = r"'([/.~][^']{0,300}|[^'/]{1,100}/[^'/]{1,100}/[^']{1,200})'"
_DOWNLOAD: Final = "Download it again: `spark-tui models pull NAME`."


def model_name(evidence: Evidence) -> str:
    """The model as the Hub's address or the engine names it."""
    found = _HUB_NAME.search(evidence.text)
    return (found[1] if found else evidence.facts.model) or "the model"


def gated(_match: re.Match[str], evidence: Evidence) -> Advice:
    """The Hub wants an accepted licence and a token."""
    name = model_name(evidence)
    return Advice(
        f"{name} is gated, and the Hub gave this container no access to it.",
        f"Accept its licence on its Hub page (https://huggingface.co/{name}), then set HF_TOKEN or log in with "
        "`hf auth login`: spark-tui passes the token on.",
    )


def bad_token(_match: re.Match[str], evidence: Evidence) -> Advice:
    """The token itself is refused."""
    return Advice(
        f"The Hub does not accept this token, so that {model_name(evidence)} could not be read.",
        "Make a new token on the Hub, then set HF_TOKEN or log in with `hf auth login`.",
    )


def repo_not_found(_match: re.Match[str], evidence: Evidence) -> Advice:
    """401 and 404 look alike without a token."""
    return Advice(
        f"The Hub knows no repository {model_name(evidence)}, or does not show it to you.",
        "Check its spelling. For a private or gated one set HF_TOKEN or log in with `hf auth login`.",
    )


def revision_not_found(_match: re.Match[str], evidence: Evidence) -> Advice:
    """The repository is there, the revision is not."""
    return Advice(
        f"{model_name(evidence)} has no such revision on the Hub.", "Correct `revision` in the preset, or leave it out."
    )


def bad_repo_id(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A path that is not there is taken for a repository's name."""
    name = match[1]
    if is_path(name):
        return no_folder(match, _evidence)
    return Advice(f"`{name}` is no name of a repository.", "Write it as OWNER/NAME.")


def no_folder(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A folder of the host is not mounted, or is spelled otherwise."""
    return Advice(
        f"The container has no folder {match[1]}, from which the model should come.",
        "Check the path and the preset's volumes: a folder of the host is only there when it is mounted.",
    )


def no_model_in(match: re.Match[str], _evidence: Evidence) -> Advice:
    """The same words for a folder that is not there and one without a configuration."""
    return Advice(
        f"The container has no model in {match[1]}: the folder is not there, or holds no config.json.",
        "Check the path and the preset's volumes: a folder of the host is only there when it is mounted.",
    )


def is_path(name: str) -> bool:
    """A path rather than the name of a repository."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def offline(_match: re.Match[str], evidence: Evidence) -> Advice:
    """Forbidden to ask the Hub, and not in the cache."""
    name = model_name(evidence)
    return Advice(
        f"{name} is not in the model store, and the Hub may not be asked (HF_HUB_OFFLINE).",
        f"Download it first (`spark-tui models pull {name}`), or start with HF_HUB_OFFLINE=0.",
        (("env.HF_HUB_OFFLINE", "0"),),
    )


def no_network(_match: re.Match[str], evidence: Evidence) -> Advice:
    """The Hub does not answer, and the store does not have it all."""
    name = model_name(evidence)
    return Advice(
        f"The Hub cannot be reached from the container, and {name} is not complete in the model store.",
        f"Check the network and DNS of this machine, or download it first: `spark-tui models pull {name}`.",
    )


def missing_shards(match: re.Match[str], evidence: Evidence) -> Advice:
    """The index names files that are not there."""
    files = re.findall(r"([^/'\"{}]{1,200}\.(?:safetensors|bin|pt|gguf))", match[1])
    named = f": {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""
    return Advice(
        f"{len(files) or 'Some'} weight file{'s' * (len(files) != 1)} of {model_name(evidence)} "
        f"{'are' if len(files) != 1 else 'is'} missing{named}.",
        f"The download is not complete. {_DOWNLOAD}",
    )


def unknown_quantization(match: re.Match[str], evidence: Evidence) -> Advice:
    """A method that this vLLM does not have; the line lists those that it has."""
    name, known = match[1], match[2] or ""
    near = nearest(name, known)
    summary = f"This vLLM{_version(evidence)} knows no quantization method {name}."
    remedy = (
        "For ModelOpt checkpoints (nvidia/...) it is `modelopt`; for compressed-tensors leave the option out: "
        "vLLM reads the method from the checkpoint."
    )
    if near and near != name:
        return Advice(summary, f"Did you mean quantization={near}? {remedy}", (("quantization", near),))
    return Advice(summary, remedy)


def quantization_mismatch(match: re.Match[str], _evidence: Evidence) -> Advice:
    """The preset says one method, the checkpoint another."""
    real, given = match[1], match[2]
    return Advice(
        f"The checkpoint is quantized with {real}, and the preset asks for {given}.",
        f"Start with quantization={real}, or leave the option out.",
        (("quantization", real),),
    )


def unknown_architecture(match: re.Match[str], evidence: Evidence) -> Advice:
    """A model newer than the image."""
    name = next((group for group in match.groups() if group), "") or evidence.facts.architecture or "of this model"
    return Advice(f"This image{_version(evidence)} does not know the architecture {name.strip(chr(39))}.", _NEWER_IMAGE)


def custom_code(_match: re.Match[str], evidence: Evidence) -> Advice:
    """The repository brings Python code, which must be allowed."""
    return Advice(
        f"{model_name(evidence)} brings its own Python code, which vLLM runs only when it is told to.",
        "Read that code first; if you trust it, start with trust_remote_code=true.",
        (("trust_remote_code", "true"),),
    )


def _version(evidence: Evidence) -> str:
    return f" ({evidence.facts.version})" if evidence.facts.version else ""


_WRONG_QUANT: Final = says(
    "The checkpoint's tensors do not have the names or shapes that this quantization expects.",
    "Leave `quantization` out for compressed-tensors checkpoints, or use `modelopt` for ModelOpt ones (nvidia/...); "
    "an image with a newer vLLM may also read it.",
)

MODEL_RULES: Final[tuple[Rule, ...]] = (
    rule(
        CauseId.GATED_REPO,
        r"gated repo|GatedRepoError|Access to model \S{1,200} is restricted|awaiting a review",
        gated,
    ),
    rule(CauseId.GATED_REPO, r"Invalid (?:username or password|credentials in Authorization|user token)", bad_token),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"RevisionNotFoundError|Revision Not Found|is not a valid git identifier",
        revision_not_found,
    ),
    rule(CauseId.WEIGHTS_MISSING, rf"Repo id must be[^:]{{1,120}}: {_PATH}", no_folder),
    rule(CauseId.WEIGHTS_MISSING, rf"Invalid repository ID or local directory specified: {_PATH}", no_model_in),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"(?:Repo id must (?:be|use)[^:]{1,200}: |Invalid repository ID or local directory specified: )'([^']{1,300})'",
        bad_repo_id,
    ),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"Repository Not Found|RepositoryNotFoundError|is not a valid model identifier listed on|401 Client Error",
        repo_not_found,
    ),
    rule(
        CauseId.HUB_OFFLINE, r"outgoing traffic has been disabled|OfflineModeIsEnabled|offline mode is enabled", offline
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"[Ww]e couldn't connect to|LocalEntryNotFoundError|cannot find the requested files|NameResolutionError|"
        r"Temporary failure in name resolution|Network is unreachable|Max retries exceeded|httpx\.Connect\w{1,20}",
        no_network,
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"Weight files referenced in index but missing: ?(.{0,1500})",
        missing_shards,
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"Cannot find any model weights with `([^`]{1,300})`",
        says("{0} holds no weight files.", f"Check the folder, or the download. {_DOWNLOAD}"),
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"gguf_init_from_file: failed to open GGUF file '?([^']{1,300}?)'?(?:$| \()|"
        r"failed to load model, '([^']{1,300})'|(?:model|GGUF) file not found: ?(\S{1,300})?|"
        r"GGUF files not found in (\S{1,300})",
        lambda match, _e: Advice(
            f"The model file {next((g for g in match.groups() if g), '')} cannot be opened.".replace("  ", " "),
            "Check its path and the preset's volumes: a file of the host is only there when it is mounted.",
        ),
    ),
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"Safetensors?Error|[Ee]rror while deserializing header|file not fully covered|InvalidHeaderDeserialization|"
        r"MetadataIncompleteBuffer|HeaderTooLarge|PytorchStreamReader failed|model is corrupted or incomplete|"
        r"data is not within the file bounds|invalid magic|tensor '[^']{1,200}' has wrong shape",
        lambda _m, evidence: Advice(
            f"A weight file of {model_name(evidence)} is cut off or damaged.",
            f"Check it with `spark-tui models verify NAME`. {_DOWNLOAD}",
        ),
    ),
    rule(
        CauseId.UNKNOWN_ARCHITECTURE,
        r"model type `([^`]{1,120})` but Transformers does not recognize|"
        r"Model architectures \[?\(?([^\])]{1,300})\]?\)? (?:are not supported|failed to be inspected)|"
        r"unknown model architecture: '([^']{1,120})'|Unsupported architecture:? '?([\w.\-]{1,120})|"
        r"Unrecognized (?:configuration class|model in)|Unknown architecture '?([\w.\-]{1,120})",
        unknown_architecture,
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"Unknown quantization method: ([\w\-]{1,60})(?:\. Must be one of (\[.{0,1500}))?|"
        r"argument --quantization(?:/-q)?: invalid choice: '([^']{1,60})'",
        lambda match, evidence: unknown_quantization(
            match if match[1] else re.match(r"([\w.\-]{0,60})()", match[3] or "") or match, evidence
        ),
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"quantization method (\S{1,60}) is deprecated",
        says(
            "This vLLM no longer runs the quantization method {0}.",
            "Choose another checkpoint of the model, or an older image.",
        ),
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"Quantization method specified in the model config \(([\w.\-]{1,60})\) does not match the quantization "
        r"method specified in the `quantization` argument \(([\w.\-]{1,60})\)",
        quantization_mismatch,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"Cannot find the config file for (\S{1,60})",
        says(
            "The preset asks for the quantization {0}, of which the checkpoint has no configuration.",
            "Leave `quantization` out: vLLM reads it from the checkpoint.",
        ),
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"requires the following fields in hf_quant_config|weight_scale .{1,300} was never loaded|"
        r"ModelOpt currently only supports|Missing 'quant_algo'|Unsupported ModelOpt \w{1,10} quant_algo",
        _WRONG_QUANT,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"KeyError: '[\w.]{1,200}\.(?:weight\w{0,30}|\w{0,30}scale\w{0,10}|qweight|qzeros|bias)'|"
        r"Attempted to load weight \(|param_data\.shape == loaded_weight\.shape|size mismatch for",
        _WRONG_QUANT,
        sure=False,
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"weights were not initialized from checkpoint: ?(.{0,120})",
        says(
            "The checkpoint lacks weights that the model needs: {0}.",
            "It may be incomplete, or made for another vLLM. " + _DOWNLOAD,
        ),
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"contains custom code which must be executed|(?:argument|option) `?trust_remote_code=True",
        custom_code,
    ),
)
