"""How llama.cpp and Ollama begin the lines by which they end."""

from __future__ import annotations

from typing import Final

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
