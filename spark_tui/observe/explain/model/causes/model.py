"""Failures of the model itself: its repository, its files, its architecture, its quantization."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.base.text import truncate
from spark_tui.observe.explain.model.causes.cause import (
    MAX_QUOTED,
    CauseId,
    CauseRule,
    FailureContext,
    first_group,
    fix,
    nearest,
    rule,
    setting,
)

_PATH: Final = r"'([/.~][^']{0,300}|[^'/]{1,100}/[^'/]{1,100}/[^']{1,200})'"
_DOWNLOAD: Final = "Download it again: `spark-tui models pull NAME`."
_MOUNT: Final = (
    "Check the path and the preset's volumes: files of the host must be mounted. Or download the model: "
    "`spark-tui models pull NAME`."
)
_NO_FOLDER: Final = "Model folder {any} not found in the container."
_REPO: Final = re.compile(r"[\w.-]{1,100}/[\w.-]{1,100}")
_LOG_IN: Final = "set HF_TOKEN, or log in with `hf auth login`"
_CHECK_ID: Final = (
    f"Check the model's repository id (OWNER/NAME) and its spelling. For a private or gated one {_LOG_IN}."
)


def bad_repo_id(match: re.Match[str], _context: FailureContext) -> Finding:
    """A path that does not exist is taken for a repository's name."""
    name = match[1]
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        return fix(_NO_FOLDER.format(any=name), _MOUNT)
    return fix(
        f"`{name}` is not a valid repository name.",
        "Use a repository id of the form OWNER/NAME, or the path of a mounted folder.",
    )


def hub_unreachable(match: re.Match[str], context: FailureContext) -> Finding:
    word, name = match[0], context.model
    if word.startswith(("pull", "registry")):
        return fix("The registry cannot be reached.", "Check this machine's network, DNS and proxy, and start again.")
    summary = f"The Hub cannot be reached from the container, and {name} is not fully downloaded."
    pull = f"download the model first: `spark-tui models pull {name if _REPO.fullmatch(name) else 'NAME'}`"
    if "429" in word:
        return fix(f"The Hub's rate limit stopped the download of {name} (429).", f"Wait, {_LOG_IN}, or {pull}.")
    if "Server Error" in word or "imed out" in word:
        return fix(summary, f"Start again later, set env.HF_HUB_DOWNLOAD_TIMEOUT=60, or {pull}.")
    if "SSL" in word or "CERT" in word:
        return fix(
            summary,
            f"Give the container the proxy's certificate (env.REQUESTS_CA_BUNDLE, env.SSL_CERT_FILE), or {pull}.",
        )
    return fix(summary, f"Check this machine's network, DNS and proxy (env.HTTPS_PROXY), or {pull}.")


def missing_shards(match: re.Match[str], context: FailureContext) -> Finding:
    files = re.findall(r"([^/'\"{}]{1,200}\.(?:safetensors|bin|pt|gguf))", match[1])
    named = f": {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""
    one = len(files) == 1
    return fix(
        f"{len(files) or 'Some'} weight file{'' if one else 's'} of {context.model} {'is' if one else 'are'} "
        f"missing{named}.",
        f"The download is incomplete. {_DOWNLOAD}",
    )


def unknown_quantization(match: re.Match[str], context: FailureContext) -> Finding:
    """A method that this vLLM does not have; the line lists those that it has."""
    name, known = first_group(match), (match[2] or "") if match[1] else ""
    near = nearest(name, known)
    summary = f"This {context.names.engine}{context.version} has no quantization method {name}."
    remedy = (
        "Remove `quantization`: the engine reads it from the checkpoint. `modelopt` is for ModelOpt ones (nvidia/...). "
        f"Or use {context.names.newer}."
    )
    if near and near != name:
        return setting(summary, f"Did you mean quantization={near}? {remedy}", "quantization", near)
    return fix(summary, remedy)


def quantization_mismatch(match: re.Match[str], _context: FailureContext) -> Finding:
    return setting(
        f"The checkpoint is quantized with {match[1]}, but the preset sets {match[2]}.",
        f"Set quantization={match[1]}, or remove the option.",
        "quantization",
        match[1],
    )


def shapes_differ(_match: re.Match[str], context: FailureContext) -> Finding:
    """Of a checkpoint, or of the drafter beside it."""
    if "/spec_decode/" in context.text or "/speculative/" in context.text:
        return fix(
            "The drafter's tensors do not fit the engine's (names or shapes).",
            "Use the drafter made for this very model, in a format that this engine reads, or "
            f"{context.names.newer}. The model starts without speculative_config.",
            (("without", "speculative_config"),),
        )
    return wrong_quant(_match, context)


def wrong_quant(_match: re.Match[str], context: FailureContext) -> Finding:
    summary = "The checkpoint's tensors do not match this quantization (names or shapes)."
    if context.engine in ("llama-cpp", "ollama"):
        return fix(summary, f"Use {context.names.newer}, or a GGUF file converted for it.")
    return fix(
        summary,
        "Remove `quantization` for compressed-tensors checkpoints, or use `modelopt` for ModelOpt ones (nvidia/...). "
        f"Or use {context.names.newer}, or another checkpoint.",
    )


def unknown_architecture(match: re.Match[str], context: FailureContext) -> Finding:
    if "TRT-LLM" in match.string:
        return fix(
            f"TensorRT-LLM's tensorrt backend does not support the architecture {first_group(match)}.",
            "Use its PyTorch backend (`--backend pytorch`, the default), which has new models. Else use a newer image.",
        )
    own = "" if context.engine in ("llama-cpp", "ollama", "trtllm") else " Or update transformers in it."
    name = first_group(match).strip("'") or context.facts.architecture or "of this model"
    return fix(
        f"This image{context.version} does not support the architecture {name}.",
        f"Use {context.names.newer}.{own}",
    )


MODEL_RULES: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.GATED_REPO,
        r"(?<!private or )gated repo|GatedRepoError|Access to model \S{1,200} is restricted|awaiting a review",
        "{model} is gated, and this container has no access to it.",
        f"Request access (accept its licence) on https://huggingface.co/{{model}}, then {_LOG_IN}: spark-tui passes "
        "the token on.",
    ),
    rule(
        CauseId.GATED_REPO,
        r"^(?!.*Repository ?Not ?Found).*Invalid (?:username or password|credentials in Authorization|user token)",
        "The Hub rejected the token for {model}.",
        f"Create a new token on the Hub, then {_LOG_IN}.",
    ),
    rule(
        CauseId.GATED_REPO,  # also of clients in Rust: `RequestError(Status(403, Response[status: 403, ...`
        r"\b403 (?:Client Error|Forbidden).{0,200}(?:huggingface\.co|hf\.co|hf-mirror|modelscope)|"
        r"error from HF API, response code: 403|[Ss]tatus(?:[: ]|\(| code:? ?)403\b.{0,200}(?:huggingface\.co|hf\.co)",
        "The Hub refused access to {model} (403): gated, or the token does not cover it.",
        f"Accept its licence on https://huggingface.co/{{model}}, then {_LOG_IN}. A fine-grained token needs "
        "read access to gated repositories.",
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"x509: |tls: failed to verify certificate",
        "The registry's certificate is not trusted in the container: a proxy may have replaced it.",
        "Give the container the proxy's certificate (mount it, and set env.SSL_CERT_FILE), or download elsewhere.",
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"CAS (?:service|[Cc]lient) [Ee]rror|RequestError\(Transport|"
        r"error sending request for url .{0,200}huggingface\.co",
        "The download of {model} from the Hub was interrupted.",
        "Check this machine's network and DNS, and start again: finished parts stay. If the Hub's Xet storage keeps "
        "failing, set env.HF_HUB_DISABLE_XET=1.",
    ),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"error from HF API, response code: 40[14]|http status code received: 40[14]|"
        r"[Ss]tatus(?:[: ]|\(| code:? ?)40[14]\b.{0,200}(?:huggingface\.co|hf\.co)",
        "Repository or file of {model} not found on the Hub, or not visible to you.",
        _CHECK_ID,
    ),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"RevisionNotFoundError|Revision Not Found|is not a valid git identifier",
        "Revision of {model} not found on the Hub.",
        "Correct `revision` in the preset (a branch, tag or commit of the repository), or remove it.",
    ),
    rule(CauseId.WEIGHTS_MISSING, rf"Repo id must be[^:]{{1,120}}: {_PATH}", _NO_FOLDER, _MOUNT),
    rule(
        CauseId.WEIGHTS_MISSING,  # the same words for a folder that is not there and one without a configuration
        rf"Invalid repository ID or local directory specified: {_PATH}",
        "No model in {0}: folder not found in the container, or without config.json.",
        _MOUNT,
    ),
    rule(
        CauseId.REPO_NOT_FOUND,
        r"(?:Repo id must (?:be|use)[^:]{1,200}: |Invalid repository ID or local directory specified: )'([^']{1,300})'",
        bad_repo_id,
    ),
    rule(CauseId.WEIGHTS_MISSING, r"(?:OSError: |^)([/.~]\S{1,300}) is not a local folder", _NO_FOLDER, _MOUNT),
    rule(
        CauseId.REPO_NOT_FOUND,  # 401 and 404 look alike without a token
        r"Repository Not Found|RepositoryNotFoundError|pull model manifest: file does not exist|"
        r"is not a valid model identifier listed on|40[14] Client Error|(?<!Local)Entry ?Not ?Found|"
        r"Error: model ['\"]?[\w.:/\-]{1,120}['\"]? not found",
        "Repository {model} not found on the Hub, or not visible to you.",
        _CHECK_ID,
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"outgoing traffic has been disabled|OfflineModeIsEnabled|offline mode is enabled|"
        r"as `?local_files_only'? ?(?:is|=) ?True",
        "{model} is not downloaded, and Hub access is disabled (HF_HUB_OFFLINE).",
        "Download the model first (`spark-tui models pull NAME`), or set HF_HUB_OFFLINE=0.",
        change=(("env.HF_HUB_OFFLINE", "0"),),
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"[Ww]e couldn't connect to|LocalEntryNotFoundError|cannot find the requested files|NameResolutionError|"
        r"Temporary failure in name resolution|Network is unreachable|[Mm]ax retries exceeded|"
        r"httpx\.(?:Connect|Read)\w{1,20}|5\d\d Server Error.{0,80}https?://|Read timed out|ProxyError|SSLError|"
        r"CERTIFICATE_VERIFY_FAILED|429 Client Error|"
        r"requests\.exceptions\.(?:Connection|Connect|Read|Proxy|SSL)\w{1,20}|client has been closed|"
        r"(?:pull|registry).{0,80}(?:no such host|i/o timeout|connection refused|TLS handshake timeout)|"
        r"ChunkedEncodingError",
        hub_unreachable,
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"error downloading or loading vocab file",
        "The vocabulary of gpt-oss models (tiktoken) could not be downloaded.",
        "Check this machine's network, or mount the files and set env.TIKTOKEN_ENCODINGS_BASE to their folder.",
    ),
    rule(CauseId.WEIGHTS_MISSING, r"Weight files referenced in index but missing: ?(.{0,1500})", missing_shards),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"Cannot find any model weights with `([^`]{1,300})`|"
        r"Can't load (?:the )?[a-z ]{5,20} (?:of|for) '([^']{1,300})'|"
        r"Error no file named .{1,200} found in directory (\S{1,300})|no (Modelfile or safetensors files) found|"
        r"No tokenizer file found in directory: (\S{1,300})|Cannot find any safetensors or bin files in (\S{1,300})",
        "No weight files in {any}.",
        f"Check the folder, or the download. {_DOWNLOAD}",
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"No such file or directory: '([^']{1,300}\.(?:safetensors|gguf|bin|pth?))'|"
        r"(?:gguf_init_from_file\w*|error): failed to open GGUF file '?([^']{1,300}?)'?(?:$| \()|"
        r"(?:model|GGUF) file not found: ?(\S{1,300})?|GGUF files not found in (\S{1,300})",
        lambda match, _context: fix(" ".join(f"Cannot open model file {first_group(match)}".split()) + ".", _MOUNT),
    ),
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"unknown \(magic, version\) combination",
        "The file is no GGUF file: an old GGML one, or something else.",
        "Use a GGUF file of the model (`spark-tui models pull NAME`), or convert it.",
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"[Ff]ailed to map GGUF parameters",
        "This version cannot map all tensors of the GGUF file to the model.",
        "Use {newer}, or the model's safetensors checkpoint: vLLM reads few architectures from GGUF.",
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"failed to load (?:draft |multimodal )?model, '([^']{1,300})'|"
        r"common_init_from_params: failed to load model '([^']{1,300})'",
        "Cannot load model file {any}.",
        _MOUNT,
        vague=True,
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"has invalid ggml type (\d{1,5})|of type (\d{1,3}) \(DEPRECATED\)|"
        r"[Uu]nknown (?:ggml|GGUF|tensor|quant(?:ization)?) type:? '?(\w{1,40})|"
        r"unsupported (?:ggml|tensor|GGUF quantization) type:? '?(\w{1,40})",
        "This build does not know the file's quantization type {any}.",
        "Use {newer}, or a GGUF file with a common type (Q4_K_M, Q8_0).",
    ),
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"Safetensors?Error|[Ee]rror while deserializing header|file not fully covered|InvalidHeaderDeserialization|"
        r"MetadataIncompleteBuffer|digest mismatch|sha256 (?:sum )?mismatch|Consistency check failed|HeaderTooLarge|"
        r"PytorchStreamReader failed|unexpected EOF, expected \d|invalid GGUF magic|UnpicklingError|"
        r"Unable to load weights from pytorch checkpoint|model is corrupted or incomplete|"
        r"data is not within the file bounds|invalid magic|unexpected end of file|failed to read (?:magic|header)",
        "A weight file of {model} is truncated or corrupt.",
        f"Check it with `spark-tui models verify NAME`. {_DOWNLOAD}",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"Tokenizer class (\w{1,80}) does not exist|(untagged enum \w{1,40})|instantiate the (backend tokenizer)",
        "Transformers and tokenizers of this image cannot read the model's tokenizer ({any}).",
        "Use {newer}, or update them in it: `pip install -U transformers tokenizers sentencepiece`.",
    ),
    rule(
        CauseId.UNKNOWN_ARCHITECTURE,
        r"(No model architectures are specified)|(\w{2,80}) has no (?:SGlang|SGLang|vLLM) implementation|"
        r"model type `([^`]{1,120})` but Transformers does not recognize|"
        r"Model architectures \[?\(?([^\])]{1,300})\]?\)? (?:are not supported|failed to be inspected)|"
        r"unknown model architecture: '([^']{1,120})'|unknown (?:projector|vision|audio) type: ?'?([\w.\-]{1,60}|$)|"
        r"model architecture '?(\w{1,120})'? is not supported in TRT-LLM|"
        r"[Uu]nsupported architecture:? ['\"]?(?!sm_)([\w.\-]{1,120})|Unrecognized (?:configuration class|model in)|"
        r"Unknown architecture '?([\w.\-]{1,120})|No processor registered for architecture: \['?([\w.\-]{1,120})|"
        r"Model class (\w{1,80}For\w{1,60}) is not supported|"
        r"KeyError: '(\w{2,80}For(?:CausalLM|ConditionalGeneration))'|"
        r"GGUF model with architecture ([\w.\-]{1,60}) is not supported|"
        r"[Uu]nknown model (?:type|class):? '?([\w.\-]{1,80})|"
        r"[Uu]nsupported model (?:type|architecture|class):? '?([\w.\-]{1,80})|"
        r"unknown (?:pre-)?tokenizer(?: type)?: '?([\w.\-]{1,60})|"
        r"Could not (?:find|import) (?:module|class) (\w{1,80}For\w{1,60})|"
        r"(\w{1,80}For(?:CausalLM|ConditionalGeneration)) has no (?:vLLM|SGLang|TensorRT-LLM) implementation|"
        r"Unknown architecture for AutoModelFor\w{1,40}: (\w{1,80})|"
        r"Model type (\w{1,60}) (?:is )?not (?:supported|recognized)",
        unknown_architecture,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"no (?:module or )?parameter (?:named )?'([^']{0,200}(?:scale|zeros|zp|qweight|packed|g_idx|absmax)\w{0,20})'|"
        r"has no parameter '([^']{1,200})'",
        wrong_quant,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"no module or parameter named '([^']{1,200})' in (\w{1,120})",
        "{engine}'s implementation of the model ({1}) does not know the weight {0}.",
        "Use {newer}, or another checkpoint of the model.",
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"Unknown quantization method: ([\w\-]{1,60})(?:\. Must be one of (\[.{0,1500}))?|"
        r"argument --quantization(?:/-q)?: invalid choice: '([^']{1,60})'",
        unknown_quantization,
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"Found unknown quantization='?(.{1,120}?)'? in config",
        "This {engine} cannot read the checkpoint's quantization: {0}.",
        "Load the checkpoint in its own format (remove config_format, load_format and tokenizer_mode where they are "
        "set), or use {newer}.",
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"quantization method (\S{1,60}) is deprecated",
        "This {engine} no longer supports the quantization method {0}.",
        "Choose another checkpoint of the model, or an older image.",
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
        "The preset sets quantization {0}, but the checkpoint has no configuration for it.",
        "Remove `quantization`: {engine} reads it from the checkpoint.",
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"KeyError: '(?:quant_\w{2,20}|bits|group_size|weight_block_size|config_groups|exclude_modules)'|"
        r"requires the following fields in hf_quant_config|weight_scale .{1,300} was never loaded|"
        r"[Cc]annot find (?:any of )?.{0,60} in the model's quantization config|"
        r"wrong number of tensors; expected \d{1,9}, got \d{1,9}|tensor '[^']{1,120}' has wrong shape|"
        r"ModelOpt currently only supports|Missing 'quant_algo'|Unsupported ModelOpt \w{1,10} quant_algo",
        wrong_quant,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"KeyError: '[\w.]{0,200}(?:layers|blocks|experts)\.\d{1,4}\.[\w.]{1,120}'|"
        r"KeyError: '[\w.]{1,200}\.(?:weight\w{0,30}|\w{0,30}scale\w{0,10}|qweight|qzeros|bias)'|"
        r"Attempted to load weight \(|Tried to load weights? of size|param_data\.shape == loaded_weight\.shape|"
        r"size mismatch for|start \(\d+\) \+ length \(\d+\) exceeds dimension size|"
        r"[Ss]hape mismatch.{0,60}(?:weight|scale|param)|"
        r"(?:weight|param\w{0,10}|scale)\w{0,20} shape.{0,60}(?:mismatch|does not match)|"
        r"not divisible by (?:weight|quantization|the quantization) (?:block|group)|"
        r"Failed to load weights?.{0,60}(?:shape|size)",
        shapes_differ,
        sure=False,
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"weights (?:were|are) not initialized from checkpoints?: ?(.{0,120})|unable to find tensor (\S{1,120})|"
        r"missing tensor '([^']{1,120})'|tensor '([^']{1,120})' not found|"
        r"(?:Missing|missing) (?:keys?|weights?) (.{1,80}) in (?:loaded state|the checkpoint|checkpoint)",
        lambda match, context: fix(
            f"Weights missing from the checkpoint: {truncate(first_group(match), MAX_QUOTED)}.",
            f"Use the mmproj file of this very model, or {context.names.newer}."
            if re.search(r"clip|mmproj", match.string)
            else f"The download may be incomplete, or the checkpoint made for another {context.names.engine} (use "
            f"{context.names.newer}). {_DOWNLOAD}",
        ),
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"requires a newer version of Ollama|pull model manifest: 412",
        "This Ollama is too old for the model.",
        "Install a newer version of Ollama (`curl -fsSL https://ollama.com/install.sh | sh`), or a newer image.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"contains custom code which must be executed|"
        r"(?i:(?:argument|option|pass|set(?:ting)?|with) .?(?:`|--)?trust[_\-]remote[_\-]code\b)|"
        r"requires you to execute the (?:configuration|model|modeling|tokenizer) file",
        "{model} needs its own Python code, which {engine} does not run by default.",
        "Review the code; if you trust it, set trust_remote_code=true.",
        change=(("trust_remote_code", "true"),),
    ),
)
