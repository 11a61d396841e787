"""What vLLM, SGLang and TensorRT-LLM say in their own words: sentences of their sources, by what they mean.

Read in vLLM 0.33, SGLang 0.4.10 and 0.5.23, TensorRT-LLM 0.20 to 1.2. What no sentence names, the raising file may:
see `diagnosis`.
"""

from __future__ import annotations

from typing import Final

from spark_tui.observe.explain.model.causes.cause import CauseId, CauseRule, rule
from spark_tui.observe.explain.model.causes.memory import FREE_MEMORY, out_of_memory

_HOST_MEMORY: Final = (
    r"[Nn]ot enough host memory|(?:pinned|host) (?:memory|pool) (?:allocation|needs) .{0,60}(?:null|RAM)|"
    r"cudaHostRegister failed|HostMemAllocator\.alloc returned|hipHostMalloc of"
)
RAYLET: Final = r"/raylet/raylet\(\+?0x[0-9a-f]{1,16}\)"
"""Frames of Ray's own process on a node, as it crashes."""
WAITS_FOR_CORE: Final = ", in wait_for_engine_startup"
"""The frame of vLLM's API server that learns of its core's end."""
_MORE_KV: Final = f"Raise {{memory}}, or lower {{sequences}} or {{context}}. {FREE_MEMORY} first."

ENGINE_RULES: Final[tuple[CauseRule, ...]] = (
    # --- memory ---
    rule(
        CauseId.NO_KV_ROOM,
        r"leave no GPU memory for the KV cache|Not enough GPU memory for hybrid|leaves no allocatable page|"
        r"(?:[Nn]ot enough|[Nn]o|[Ii]nsufficient) (?:free )?(?:GPU |device )?memory (?:left )?(?:to allocate|for|"
        r"available for)(?: the| any)? (?:paged )?KV[- ][Cc]ache",
        "No memory left for the KV cache: weights fill the engine's memory share.",
        f"Raise {{memory}}, or choose a smaller or more quantized model. {FREE_MEMORY} first.",
    ),
    rule(
        CauseId.KV_CACHE_TOO_SMALL,
        r"state cache is too small to serve|cannot fit ONE worst-case request|Memory pool size is too small|"
        r"exceeds the maximum number of tokens (?:that )?the KV cache can hold|"
        r"(?:available for|but only .{1,20} is available for) the KV cache\. Reduce|"
        r"KV cache .{0,60}(?:too small|not (?:large|big) enough)|No space left for only one request",
        "The cache holds less than one sequence.",
        _MORE_KV,
    ),
    CauseRule(CauseId.OUT_OF_MEMORY_LOADING, _HOST_MEMORY, out_of_memory, by_phase=True),
    rule(
        CauseId.MAX_MODEL_LEN_TOO_LONG,
        r"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN|VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "The context asked for is longer than the model's.",
        "Lower {context}. Models with RoPE scaling (YaRN) can exceed it: see the model card.",
        sure=False,
    ),
    # --- missing on the machine ---
    rule(
        CauseId.NO_GPU,
        r"No (?:CUDA|GPU) devices? found|No accelerator \(|nvidia-smi (?:not found|error)|No GPU memory values found",
        "No GPU visible in the container.",
        "Check that `nvidia-smi` works on the host (the driver), and that the preset requests GPUs (`--gpus all`, "
        "NVIDIA Container Toolkit).",
    ),
    rule(
        CauseId.PORT_IN_USE,
        r"Could not (?:bind|find open) port|[Pp]ort \d{2,5} is not available|"
        r"^ValueError: \S{1,40} at \d{2,5} is not available in \d",
        "No free port where the engine listens, or between its processes.",
        "Stop the process that uses it (an older engine? see `spark-tui ps`), or set another port.",
    ),
    rule(
        CauseId.TOO_MANY_RANKS,
        r"There are not enough slots available in the system|MPI_ERR_SPAWN|world_size must (?:be )?equal|"
        r"does not match pp_size=|cannot shard \d{1,4} KV heads|heads must divide .{0,40}tensor parallel|"
        r"not divisible by (?:attn tp|decode_tp_size)",
        "More ranks are asked for than there are, or the model cannot be divided among them.",
        "Set {ranks} to the number of GPUs: 1 on one Spark. With mpirun name each node and its slots "
        "(`-H NODE1:1,NODE2:1`).",
    ),
    rule(
        CauseId.NCCL,
        r"(?:ORTE|PRTE) (?:has lost communication|daemon)|An? (?:ORTE|PRTE) daemon has unexpectedly failed|"
        r"MPI_ERR_(?:TRUNCATE|COMM|PORT|PROC_FAILED)|KVTransferError|NIXL_ERR_\w{1,30}|"
        r"(?:memory registration|register[_ ]memory) (?:returned |\w{0,20} ?)?fail|"
        r"(?:NIXL|Mooncake|mooncake) .{0,80}(?:failed|not (?:start|respond))|DP master node .{0,60}(?:missing|dead)",
        "The nodes lost each other, or never met: {match}.",
        "Check the log of the other node, ssh between them, and the interface (`ip -br addr`; NCCL_SOCKET_IFNAME, "
        "OMPI_MCA_btl_tcp_if_include).",
    ),
    rule(
        CauseId.READY_TIMEOUT,
        r"(?:did not become ready|[Nn]ot ready after waiting|Did not receive response from front-end process|"
        r"failed to report ZMQ addresses) (?:with)?in|Weights are not ready after",
        "A process of the engine was not ready in time.",
        "A full page cache slows down loading: free it first (key D), and wait longer.",
    ),
    # --- files and packages ---
    rule(
        CauseId.WEIGHTS_CORRUPT,
        r"IntegrityError: |(?:header|index) is truncated|magic (?:or version )?does not match|SHA-256 mismatch",
        "A weight file of {model} is truncated or corrupt.",
        "Check it with `spark-tui models verify NAME`, and download it again.",
        sure=False,
    ),
    rule(
        CauseId.WEIGHTS_MISSING,
        r"shard file\(s\) missing|incomplete download|Could not find checkpoint files|shard set is incomplete|"
        r"Missing keys .{1,80} in presharded|no GGUF files found|No weight files found|Missing required .{0,40}weights|"
        r"are not in the checkpoint|missing weights: |Error opening engine file: ?(?:\S{1,200})?|"
        r"(?:rank\d{1,4}\.engine|config\.json) (?:does not exist|not found)|did not initialize all model parameters",
        "Weights are missing: {match}.",
        "Check the path, the preset's volumes and the download (`spark-tui models verify NAME`); build an engine again "
        "where one is named.",
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"must have quant_algo|(conflicting with (?:kv_cache_)?quant_algo=\w{1,30})|"
        r"(?:[Pp]arameter|[Ww]eight) '?\S{1,120}'?(?:\(replaced\))? not found in (?:the )?(?:(?:MTP )?model|"
        r"params_dict)|did not hit any names|is not allowed for pre-quantized checkpoint|"
        r"on rank \d{1,4}: '[\w.]{1,200}\.(?:weight\w{0,30}|\w{0,20}scale\w{0,10}|bias)'|"
        r"[Uu]nexpected shape .{0,80}expected|Expert count mismatch",
        "Checkpoint and quantization do not go together: {match}.",
        "Remove the quantization setting: the engine reads it from the checkpoint. Else use {newer}, or another "
        "checkpoint.",
        sure=False,
    ),
    rule(
        CauseId.QUANTIZATION_MISMATCH,
        r"The value updated is not the same shape as the original|Unsupported \w{1,20} quantized checkpoint format",
        "The quantized checkpoint does not have the form that TensorRT-LLM expects: {match}.",
        "Quantize it again with the ModelOpt of this image, or serve the checkpoint with the PyTorch backend.",
    ),
    rule(
        CauseId.UNKNOWN_QUANTIZATION,
        r"Invalid quantization method: (\w{1,40})|Unsupported quantization_config: (.{1,120})",
        "This {engine} does not know the quantization {any}.",
        "Choose another checkpoint of the model, or use {newer}.",
    ),
    rule(
        CauseId.UNKNOWN_ARCHITECTURE,
        r"Unknown text_config model_type: '?([\w./\-]{1,80})|'?(\w{1,80})'? is not a registered model|"
        r"expected GGUF architecture '[^']{1,60}', got '([^']{1,60})",
        "This image{version} does not support the architecture {any}.",
        "Use {newer}.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"No adapter found for (\S{1,200})",
        "No LoRA adapter at {0}.",
        "Check the adapter's path or repository, and the preset's volumes: adapter_config.json must be there.",
        sure=False,
    ),
    rule(
        CauseId.MISSING_FILE,
        r"(?:[Cc]onfig|certificates?|key) file not found: '?(\S{1,200})|No adapter found for (\S{1,200}?)(?:\.| |$)|"
        r"corpus path does not exist: (\S{1,200})|but it does not exist|Specified template '([^']{1,120})' not found",
        "File {any} not found in the container.",
        "Check the path and the preset's volumes: files of the host must be mounted.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"is already used by a Transformers (?:model|config)",
        "The image's transformers is newer than this {engine}: both bring the same model.",
        "Use {newer}, or install the version of transformers that this {engine} names.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"(?:No such file or directory: |command not found: |exec: )['\"]?(ninja|nvcc|gcc|g\+\+|cc|cicc|ptxas)\b",
        "{0} is not in the image: the engine compiles kernels with it.",
        "Install {0} before the server starts (`pip install ninja`, or the image's CUDA toolkit), or use {newer}.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"requires ([\w\-]{2,40}) to be installed|make sure ([\w\- ]{2,80}) (?:is|are) installed|"
        r"(\w[\w.\- ]{1,60}) (?:is|are) (?:not available|unavailable)[.,;]? Install |"
        r"(\w{2,40}) not available\. Install it|(\w{2,40})(?: or \w{2,40})? is not importable|"
        r"requires (\w{2,40}); install it|(\w{2,40}) is installed with version \S{1,20} which is less than|"
        r"No (IOProcessor) plugins? installed|must be installed before|packages are installed\. Original",
        "The image cannot import what the engine needs: {any}.",
        "Install it before the server starts (`pip install ... && ...` in the preset's command), or use {newer}.",
    ),
    # --- the Triton server ---
    rule(
        CauseId.MISSING_MODULE,
        r"unable to find backend library for backend '(\w{1,40})'|unable to find .{0,40}libtriton_(\w{1,40})\.so",
        "The Triton image has no backend {any}.",
        "Use the image of Triton with TensorRT-LLM (`...-trtllm-python-py3`), and name its backend `tensorrtllm` in "
        "the model's config.pbtxt.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        r"(?:model|engine)[ _](?:dir|path)s? (?:are|is) (?:empty|not set)|backend '?\$\{\w{1,60}\}",
        "A value is missing in the model's config.pbtxt: {match}.",
        "Fill in the template (tools/fill_template.py, or by hand): gpt_model_path, tokenizer_dir, triton_backend.",
        sure=False,
    ),
    # --- kernels and TensorRT engines ---
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"FMHA kernels are not found|Assertion failed: Unsupported architecture|kernel meta info: .{1,200}SM= ?\d",
        "TensorRT-LLM has no attention kernel for this model on this GPU (GB10 is sm_121).",
        "Set another attn_backend, kv_cache_config.dtype: auto and no speculation. {gb10}",
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"engine plan file is not compatible|Version tag does not match|kSERIALIZATION_VERSION",
        "The TensorRT engine was built by another version of TensorRT.",
        "Build the engine again with this image (trtllm-build), or serve the checkpoint with the PyTorch backend.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Could not find any implementation for node|Error Code 10: Internal|No valid tactics? (?:found|available)|"
        r"No available \w{1,20} kernels? (?:is |are )?found",
        "TensorRT has no kernel for a part of the model on this GPU.",
        "Use {newer}, or serve the checkpoint with the PyTorch backend (`trtllm-serve`), which builds no engine.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Assertion failed: (.{1,200}?) \(/\S{1,200}/(?:\w{0,20}[kK]ernels|thop|attentionOp|"
        r"\w{0,20}[pP]lugins?)[/.]\S{1,160}\)",
        "A kernel of TensorRT-LLM refuses this model on this GPU: {0}.",
        "Set another attn_backend or moe_config.backend, kv_cache_config.dtype: auto, or use {newer}.",
        sure=False,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"^[\w./\-]{1,120}\.cuh? \d{1,5} - (.{1,120})",
        "A CUDA kernel of the engine failed on this GPU: {0}.",
        "Set another attention or MoE backend, or use {newer}.",
        sure=False,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Engine building failed",
        "TensorRT could not build the engine.",
        "See the lines above with [TRT] [E]. Use {newer}, or serve the checkpoint with the PyTorch backend.",
        vague=True,
    ),
    rule(
        CauseId.UNSUPPORTED_MODEL_FEATURE,
        r"(\S{1,120}) is (?:an )?(?:unsupported|not (?:a )?supported) LoRA (?:weight|module|layer)|"
        r"supports? (modules_to_save|DoRA|RSLoRA)\b",
        "{engine} cannot apply the LoRA adapter: {any}.",
        "Save the adapter without it (modules_to_save, DoRA, base layers), merge the adapter into the weights, or use "
        "{newer}.",
    ),
    # --- an end without a reason ---
    rule(
        CauseId.ENGINE_DIED,
        RAYLET,
        "Ray's own process on a node crashed (raylet).",
        "Its reason stands above these frames, or in /tmp/ray/session_latest/logs/raylet.err of that node. Check its "
        "memory (`journalctl -k`) and the link, and restart Ray on all nodes.",
        vague=True,
    ),
    rule(
        CauseId.KILLED,
        r"terminated with -9$",
        "A process of the engine was killed (SIGKILL): out of memory, or stopped by force.",
        f"{FREE_MEMORY}. Lower {{memory}} or {{context}}. The kernel log (`journalctl -k`) names the victim.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"HTTPConnectionPool\(host='(?:127\.0\.0\.1|localhost|0\.0\.0\.0|::1)'",
        "The engine's own server did not answer its warm-up request.",
        "The first request compiles kernels: start again (caches stay), with {eager}, or see the lines above.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Executor worker (?:died|initialization error)|DataParallelController \d{1,9} terminated with|"
        r"(?:Primary|Child) job +(?:\d+ )?terminated normally, but|MPI_Abort|"
        r"(?:TokenizerManager|DetokenizerManager|DataParallelController) hit an exception|" + WAITS_FOR_CORE,
        "A process of the engine ended without a reason in the log.",
        "Its reason stands above: explain the whole log. Often out of memory: check `journalctl -k`, free the page "
        "cache (key D), and lower {memory}.",
        vague=True,
    ),
)
"""Tried before the general sentences. `sure` only where no other program would say so."""
