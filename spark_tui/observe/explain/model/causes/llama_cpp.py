"""What llama.cpp and Ollama say in their own words when they fail, by cause: GGUF files, contexts, downloads, kernels.

llama.cpp's `error loading model: X` has the cause of X, also where Ollama repeats it of its runner.
"""

from __future__ import annotations

from typing import Final

from spark_tui.observe.explain.model.causes.cause import CauseId, CauseRule, rule
from spark_tui.observe.explain.model.causes.memory import FREE_MEMORY, out_of_memory

ABORT: Final = (
    r"(?:\[\w{2,20}\] )?(?:\S{0,200}(?:ggml|llama[\-.]|gguf|mtmd|tools/server/)\S{0,120})\.(?:cpp|cuh?|c|h|hpp|"
    r"m):\d{1,6}: (?!\d|warning|error|note|undefined|multiple|fatal error: |In |required|more undefined|Warning|Error)"
)
"""`GGML_ABORT` and `GGML_ASSERT`: file and line of the C++ source, and why; no compiler or linker writes that."""
FATAL: Final = (
    rf"{ABORT}|CUDA error \d{{1,4}} at \S{{1,300}}\.cuh?:\d{{1,6}}: |"
    r"(?:ggml\S{0,60}/)?\S{0,60}\.cuh?:\d{1,6}: ERROR: CUDA kernel"
    r"|(?:main|start): failed to initialize HTTP server|couldn't bind to server socket|"
    r"srv +\w{1,20}: (?:\w{1,20}: )?(?:failed to load \w+ model, |chat template parsing error)|"
    r"(?:get_hf_plan|get_repo_\w{1,20}|curl_perform_with_retry|common_\w{1,40}): .{0,80}(?:no GGUF files found|"
    r"not found in repository|not available in cache|download failed|GET failed|HTTPLIB failed|status code received|"
    r"failed: |failed after)|"
    r"(?:main: error|common_init_\w{1,20}): (?:unable|failed) to (?:load (?:the )?(?:draft )?model(?:$| ')|(?:create|"
    r"init\w{0,6}) (?:the )?(?:context|model|sampl))|llama_new_context_with_model: [KV] cache (?:quantization|type)|"
    r"Unsupported KV type combination for head_size|gguf_init_from_file\w*: invalid magic|"
    r"llama_init_from_model: (?:n_batch|n_ctx|SPLIT_MODE|simultaneous|[KV] cache)|ggml_aligned_malloc: insufficient|"
    r"(?:llama_)?model_load\w{0,12}: no backends are loaded|(?:clip|mtmd)_\w{1,40}: .{0,200}(?:ailed to load|error: )|"
    r"error: (?:the supplied chat template|--model is required|invalid value for n_parallel|invalid HF repo format|"
    r"failed to (?:download model from|get manifest))|"
    r"Error: (?:[45]\d\d [A-Z][\w ]{2,30}: )?(?:llama-server |llama runner |model r(?:equires more system|"
    r"equest too large|unner has)|memory layout cannot|an error was encountered while running the model|POST predict: |"
    r"do load request: |timed out waiting for llama|.{0,60}no longer compatible with your version of Ollama|"
    r"specified Modelfile wasn't|(?:\(line \d{1,5}\): )?command must be one of \"from\"|no FROM line|"
    r"unknown command \"[^\"]{1,60}\" for \"ollama)|\.{5,200}Killed$|"
    r"panic: (?:unable to (?:load model|create llama)|failed to decode batch)|"
    r"[\w.@\-]{0,40}llama[\w.@\-]{0,40}\.service: (?:Main process exited, code=(?:exited|killed|dumped), status=(?!0/|"
    r"15/)\d|A process of this unit has been killed by the OOM)"
)
"""With what only their lines of an end begin, for a text that breaks off there."""
NAMED: Final = (
    r"error: (?:failed to open file '|'[^']{1,200}' does not exist or is not a directory|unable to load model)|"
    r"Error: (?:[45]\d\d [A-Z][\w ]{2,30}: )?(?:unable to load model|unknown (?:parameter '|data type: )|"
    r"invalid (?:model name|file magic)|quantization is only|unsupported )"
)
"""With what those of other programs may begin too: theirs only in a text of theirs."""
CRASH: Final = (
    r"\s*what\(\): |terminate called |"
    r"(?:double free or corruption|free\(\): invalid|malloc\(\): |munmap_chunk\(\)|corrupted (?:size|double)|"
    r"\*\*\* stack smashing)|"
    r"(?:\S{0,80} )?(?:Segmentation fault|Illegal instruction|Aborted|Bus error)(?: +\(core dumped\))?$"
)
"""What the system says of a crash: theirs right below lines of theirs."""
SAYS_WHY: Final = (
    r"(?:llama|ggml|gguf|clip|mtmd|common)_\w{1,60}: .{0,200}(?:fail|error|invalid|unknown|unsupported|bad |mismatch|"
    r"not |no |must |extremely|number of|key '|encountered|duplicate|GGUFv1|this GGUF|insufficient|tensor ')|"
    r"(?:get_hf_plan|get_repo_\w{1,20}|curl_perform_with_retry): |op not supported|chat template parsing error"
)
"""Lines above an end that say more than it does; each holds one of SIGNS."""
SIGNS: Final = ("llama_", "ggml_", "gguf_", "clip_", "mtmd_", "common_", "get_", "curl_", "op not", "chat template")

_NEWER: Final = "Use {newer}, or a GGUF file converted for it."
_VERIFY: Final = "Check it with `spark-tui models verify NAME`, and download it again: `spark-tui models pull NAME`."
_NETWORK: Final = (
    "Check this machine's network, DNS and proxy (HTTPS_PROXY in the engine's environment), and start again: finished "
    "parts stay."
)
_REINSTALL: Final = "Install {engine} again as a whole (its libraries belong beside the program), or use {other}."

_STATUS: Final = r"(?:exit(?:ed)? (?:status|code)|exited with(?: code| status)?|[Cc]ode|status)[:=]? ?"

_HTTP: Final = (
    r"(?:GET failed \(|(?:get_hf_plan|get_repo_\w{1,20}|common_\w{1,60}): .{0,120}(?:status code|[Ss]tatus|HTTP|"
    r"response code)(?: received)?:? |error from HF API, response code: |failed to get manifest: )"
)
"""Of llama.cpp's own downloader, before the number."""

LLAMA_RULES: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"(?:rocBLAS error: .{1,300}|hipErrorNoBinaryForGpu.{0,80}|no kernel.{1,60})(gfx\d{3,4})",
        "ROCm's libraries have no code for this GPU ({0}).",
        "Set env.HSA_OVERRIDE_GFX_VERSION to a relative that they have (10.3.0 for gfx103x, 11.0.0 for gfx110x), or "
        "use an image or build for it.",
    ),
    # --- the file
    rule(
        CauseId.PERMISSION_DENIED,
        r"failed to open (?:GGUF file )?'?(/[^' ]{1,300})'?(?:: | \()Permission denied",
        "The engine may not read {0}.",
        "Correct the file's permissions (`sudo chown`, `chmod a+r`), and those of the folders above it.",
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"error loading model: (?:\w{1,40}: )?failed to open (\S{1,300}): No such file",
        "Cannot open model file {0}.",
        "Check the path and, in a container, its mount. Or download the model: `spark-tui models pull NAME`.",
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"invalid split (?:file|count)[^:,]{0,20}[:,] ?(.{1,200})|failed to load GGUF split from (\S{1,200})|"
        r"missing key \S{1,80} in GGUF split (\S{1,200})",
        "A part of the split model is missing or has another name: {any}.",
        "Put all parts (NAME-00001-of-0000N.gguf) into one folder, with the names that they had. Download missing "
        "ones.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"illegal split file",
        "The model is split into parts, and the one given is not the first.",
        "Give the first part: `--model NAME-00001-of-0000N.gguf`. The others are found beside it.",
    ),
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"bad GGUF version|GGUF file version \d{1,12} is extremely large|"
        r"number of (?:tensors|key value pairs) is -?\d{1,20} but|has invalid GGUF type|"
        r"encountered (?:length_error|bad_alloc)|duplicate (?:key|tensor name) '[^']{1,120}' for tensors|"
        r"has offset \d{1,20}, expected|has invalid number of (?:dimensions|elements)|"
        r"tensors? (?:'[^']{1,120}' has|with) invalid data|invalid model: tensor '[^']{1,120}' is duplicated|"
        r"corrupted model: \d{1,9} tensors|unexpectedly reached end of (?:file|buffer)|"
        r"error loading model: read error: (?!Cannot)|exceeds remaining file size|"
        r"^Error: (?:.{0,40}: )?(?:invalid file magic|unsupported content type)",
        "The model file is truncated or damaged: {match}.",
        _VERIFY,
    ),
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"gguf_\w{1,40}: (failed to read (?:key-value pairs|tensor \w{1,20}))",
        "The model file is truncated or damaged: {0}.",
        _VERIFY,
        vague=True,
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"GGUFv1 is no longer|this GGUF file is version \d{1,9} but|"
        r"of type \d{1,4} \([\w ]{1,20}\) has \d{1,9} elements per row, not|^Error: unknown data type: \w{1,20}",
        "{engine} does not know the file's format or one of its types: {match}.",
        "Use {newer}, or a GGUF file with a common type (Q4_K_M, Q8_0).",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"CLIP cannot be used as main model",
        "The file given as the model is a multimodal projector.",
        "Give the language model with `--model`, and this file with `--mmproj`.",
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"error loading model (?:hyperparameters|vocabulary): (?!.{0,40}unknown (?:pre-)?token)(.{1,200})|"
        r"error loading model: (?:error loading model: )?((?:key not found in model|n_expert must be|"
        r"\w{1,40} model cannot have zero experts|missing tensor info).{0,120})",
        "The file's metadata are not those that this {engine} reads: {any}",
        _NEWER,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"(LoRA tensor .{1,120} does not exist in base model|model arch and LoRA arch mismatch|"
        r"has incorrect shape \(hint: maybe wrong base)|(mismatch between text model .{1,40} and mmproj)",
        "The adapter or projector was made for another model: {any}.",
        "Use the LoRA adapter or mmproj file that belongs to this very model.",
    ),
    # --- what this build cannot do
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"draft (?:model )?vocab(?: type)? must match",
        "The draft model has another vocabulary than the model.",
        "Use a draft model of the same family (`--model-draft`), or start without one.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(LLAMA_SPLIT_MODE_TENSOR not implemented.{0,80}|SPLIT_MODE_TENSOR and KV cache quantization not implemented)",
        "This build cannot split this model's tensors among GPUs: {0}.",
        "Set `--split-mode layer`, or keep the KV cache in f16.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"([KV]) cache type (\w{1,10}) with block size \d{1,5} does not divide",
        "The model's heads do not divide into blocks of {1} for the {0} cache.",
        "Set `--cache-type-k f16 --cache-type-v f16` (Ollama: OLLAMA_KV_CACHE_TYPE=f16).",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"flash_attn ((?:is not (?:compatible|supported) with|requires) .{1,80}?) - forcing off",
        "This build has no flash attention for the model or its cache, which a quantized V cache needs: it {0}.",
        "Keep the V cache in f16 (`--cache-type-v f16`; Ollama: OLLAMA_KV_CACHE_TYPE=f16), or use {newer}.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Unsupported KV type combination for head_size (\d{1,5})|^Unsupported KV type combination",
        "This build's flash attention cannot read such a quantized cache with heads of size {0}.",
        "Set `--cache-type-k f16 --cache-type-v f16` (Ollama: OLLAMA_KV_CACHE_TYPE=f16), or start with {eager}.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"does not support K-shift|failed to find a compatible buffer type|architecture requires MLA|"
        r":\d{1,6}: Unsupported head size|:\d{1,6}: not supported by multimodal",
        "This build cannot run the model with these settings: {match}.",
        "Use {newer}. Until then go without context shift, `--cache-type-k`, `--cache-type-v` and `--override-tensor`.",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"no longer compatible with your version of Ollama|not supported by your version of Ollama|"
        r"may be incompatible with your version of Ollama",
        "Model and Ollama do not go together in these versions.",
        "Install a newer Ollama (`curl -fsSL https://ollama.com/install.sh | sh`), and pull the model again: "
        "`ollama pull NAME`.",
        vague=True,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"Repository is not GGUF or is not compatible",
        "The repository holds no GGUF file that llama.cpp reads.",
        "Pull a repository of GGUF files of this model (its name most often ends in -GGUF).",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"no CPU backend found|failed to initialize CPU backend|no backends are loaded|"
        r"failed to find ggml_backend_init|incompatible API version \(backend",
        "Libraries of {engine} are missing or of another version: {match}.",
        _REINSTALL,
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"has no device code compatible with CUDA arch (\d{2,4})|signal: illegal instruction|Uncaught SIGILL|"
        r"code=(?:killed|dumped), status=4/ILL",
        "This build has no code for this GPU or CPU.",
        "{gb10}",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        rf"op not supported [\w\-]{{1,60}} \(|^(?:{ABORT})(?:\w{{1,60}}: )?[Uu]nsupported .{{1,80}}|"
        rf"in a buffer .{{1,40}} cannot run the",
        "The GPU backend cannot run an operation of this model: {match}.",
        "Use {newer}. If a quantized KV cache or `--override-tensor` is set, start without.",
    ),
    rule(
        CauseId.UNKNOWN_ARCHITECTURE,
        r"^Error: .{0,60}unsupported architecture$",
        "Ollama cannot convert or run models of this architecture.",
        "Use {newer}, or pull a GGUF file of the model.",
    ),
    # --- how a process ended
    rule(
        CauseId.MISSING_MODULE,
        r"terminated: exit status 127\b",
        "A library of {engine} is missing or does not fit: {match}.",
        "Install {engine} again as a whole, or use {other}.",
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"terminated: exit status 132\b",
        "This build uses instructions that this processor does not have: {match}.",
        "Use a build for this processor (without AVX2 or AVX-512 where it has none). {gb10}",
    ),
    # --- memory
    CauseRule(
        CauseId.OUT_OF_MEMORY_WARMUP,
        r"failed to (?:initialize memory module|reserve (?:initial output buffer|graph for|memory))|"
        r"not enough space in the buffer",
        out_of_memory,
    ),
    CauseRule(
        CauseId.OUT_OF_MEMORY_LOADING,
        r"error loading model: failed to allocate buffer|ggml_metal\w{0,60}: error: failed to allocate buffer|"
        r"ggml_aligned_malloc: insufficient memory|ggml_backend_\w{1,60}: failed to allocate buffer of size|"
        r"ut-of-memory during startup",
        out_of_memory,
        by_phase=True,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"ggml-(?:cuda|hip|vulkan|sycl)[/\\](\S{1,60}\.c(?:uh?|pp)):\d{1,6}: fatal error",
        "A kernel has no code for this shape, type or GPU ({0}).",
        "Use {newer}. Until then try without flash attention (`-fa off`), or another type of KV cache.",
        vague=True,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"ggml_metal\w{0,60}: error: (.{1,160})",
        "A Metal kernel does not compile, or does not run: {0}.",
        "Use {newer}: its kernels may suit this version of macOS. Else run on the processor (`--n-gpu-layers 0`).",
    ),
    rule(
        CauseId.OUT_OF_MEMORY_LOADING,
        r"stopped due to insufficient system resources|model request too large for system(?!.{0,80}requires more)|"
        r"memory layout cannot be allocated|unable to load full model on GPU",
        "The model needs more memory than there is.",
        f"{FREE_MEMORY}, or choose a smaller or more quantized model{{offload}}.",
    ),
    # --- settings
    rule(
        CauseId.MISSING_FILE,
        r"error: failed to open file '([^']{1,300})'|error: '([^']{1,300})' does not exist or is not a directory|"
        r"(specified Modelfile) wasn't found",
        "File or folder named in the command not found: {any}.",
        "Check the path and, in a container, its mount.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"the supplied chat template is not supported: ?(.{0,80})",
        "llama.cpp knows the chat template {0} only with --jinja.",
        "Add `--jinja`, or name a template of its own: `--chat-template chatml`.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"chat template parsing error: (.{1,160})|common_chat_templates_init: error: (.{1,160})",
        "The model's chat template cannot be read: {any}",
        "Use {newer}, give another one (`--chat-template-file`), or start with `--no-jinja`.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"error: (--model is required|invalid value for n_parallel|invalid HF repo format.{0,80})|"
        r"(n_seq_max must be <= \d{1,9}|n_ctx_seq == 0|n_batch and n_ubatch cannot both be zero|"
        r"n_ctx and model->hparams.n_ctx_train cannot both be zero|SPLIT_MODE_TENSOR requires flash_attn)|"
        r"^Error: (?:400 Bad Request: |\(line \d{1,5}\): )?(command must be one of|no FROM line|"
        r"unknown parameter '[^']{1,60}|unknown command \"[^\"]{1,60}|unknown (?:shorthand )?flag.{1,40}|"
        r"invalid model name|unsupported quantization type \S{1,40}|quantization is only supported.{1,60})",
        "{engine} rejected its settings: {any}.",
        "Correct it: `--parallel`, `--ctx-size`, `--batch-size` and `--flash-attn` as the line says; of Ollama see "
        "`ollama help` and the Modelfile.",
    ),
    # --- downloads
    rule(
        CauseId.GATED_REPO,
        rf"GET failed \(401\)|{_HTTP}(?:403|451)\b",
        "The Hub refused access to {model}: gated, private, or misspelt.",
        "Accept its licence on the Hub, and give a token: HF_TOKEN or `--hf-token`.",
    ),
    rule(
        CauseId.REPO_NOT_FOUND,
        rf"{_HTTP}(?:401|404|410)\b|"
        r"file '([^']{1,200})' not found in repository|The specified tag is not available in the repository",
        "Repository, file or quantization of {model} not found on the Hub.",
        "Check the name: `--hf-repo OWNER/NAME:QUANT`, of Ollama hf.co/OWNER/NAME:QUANT.",
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"no GGUF files found in repository (\S{1,200})",
        "No GGUF files in {0}.",
        "Choose a repository that holds GGUF files of the model (its name most often ends in -GGUF).",
    ),
    rule(
        CauseId.HUB_OFFLINE,
        rf"{_HTTP}429\b|pull model manifest: 429\b",
        "The Hub refuses more requests for now (429, rate limit).",
        "Wait some minutes, and give a token, which raises the limit: HF_TOKEN or `--hf-token`.",
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"not available in cache \(offline mode\)",
        "The model is not downloaded, and the engine is in offline mode.",
        "Start once without `--offline` (LLAMA_OFFLINE), or download the model first.",
    ),
    rule(
        CauseId.HUB_OFFLINE,
        rf"{_HTTP}(?:4[012]\d|5\d\d)\b|"
        r"HTTPLIB failed: .{1,60}|cannot make GET request|"
        r"curl_(?:easy_perform\(\)|perform_with_retry).{0,20} failed.{0,60}|common_\w{1,40}: download failed.{0,60}|"
        r"(?:pull model manifest|max retries exceeded): .{0,200}(?:server misbehaving|deadline exceeded|EOF|"
        r"connection re(?:fused|set)|timeout|no such host|no route|unreachable|: 5\d\d\b)|pull model manifest: 5\d\d",
        "The model could not be downloaded: {match}.",
        _NETWORK,
    ),
    rule(
        CauseId.HUB_OFFLINE,
        r"error: failed to (?:download model from|get manifest)",
        "The model could not be downloaded.",
        _NETWORK,
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Remote RPC server crashed or returned malformed response",
        "The rpc-server of another node ended, or answered with what this build does not understand.",
        "See its log on that node: its reason stands there. All nodes need the same build of llama.cpp.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"(?:an error was encountered while running the model|POST predict|do load request): .{0,120}(?:EOF|reset by|"
        r"forcibly)",
        "Ollama's runner ended during the request.",
        "See why in its log (`journalctl -u ollama`). Often out of memory: lower {context}; else use {newer}.",
        vague=True,
    ),
)
LLAMA_ENDS: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.ENGINE_DIED,
        r"\bmain: (?:exiting due to|error: (?:unable|failed) to (?:load (?:the )?(?:draft )?model|create|init))|"
        r"common_init_\w{1,20}: failed to create context|llama-server process has terminated|"
        r"llama runner (?:terminated|stopped with error)|error starting (?:the external )?llama runner|"
        r"error: Uncaught SIG|model runner has unexpectedly stopped|an error was encountered while running the model|"
        r"^panic: (?:unable to (?:load|create)|failed to decode)|llama_model_loader: failed to load model from|"
        r"^Error: .{0,40}unable to load model|llama\S{0,40}\.service: Main process exited",
        "{engine} ended, or its runner did, without a reason in this line.",
        "See the lines above in the whole log (`journalctl -u ollama`, `docker logs`). Often out of memory: free "
        "the page cache "
        "(key D), and lower {context}; else use {newer}.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"^\s*what\(\): (.{1,200})",
        "The engine crashed in native code: {0}",
        "Start once with {eager}; if it happens again, use {newer}.",
        vague=True,
    ),
    rule(
        CauseId.UNKNOWN,
        r"error loading model: (?:error loading model: )?(.{1,200})",
        "{engine} could not load the model: {0}.",
        _NEWER,
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        rf"{_STATUS}(?:0x)?(?i:c000[0-9a-f]{{4}})\b|(?<!\d)(?:-107374\d{{4}}|322122\d{{4}})$",
        "{engine} crashed in native code: {match}.",
        "Start once with {eager}; if it happens again, update the GPU's driver, or use {newer}.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        rf"^(?:{ABORT})",
        "{engine} stopped itself in its own code.",
        "Start once with {eager}; if it happens again, use {newer}.",
        vague=True,
    ),
)
"""Ends without a reason of their own."""
