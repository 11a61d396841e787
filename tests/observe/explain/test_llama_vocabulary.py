"""llama.cpp's and Ollama's own words: each line of an end with its cause, each line of life with its outcome.

The first column names the source file of the program that writes the message (llama.cpp: src/, ggml/src/, common/,
tools/; Ollama: a Go package's file).
"""

from __future__ import annotations

import pytest

from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.model.findings import FindingId
from spark_tui.observe.explain.model.timeline import StartOutcome
from tests.cases import all_cases

HEAD = """build: 6240 (54a241f5) with cc (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0 for aarch64-linux-gnu
main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 19
main: loading model
srv    load_model: loading model '/models/m.gguf'
"""
END = """llama_model_load_from_file_impl: failed to load model
common_init_from_params: failed to load model '/models/m.gguf'
srv    load_model: failed to load model, '/models/m.gguf'
srv    operator(): operator(): cleaning up before exit...
main: exiting due to model loading error
"""
SERVES = HEAD + "main: model loaded\nmain: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
GO = "time=2026-01-26T18:02:21.000Z level="
GIN = '[GIN] 2026/01/26 - 18:02:21 | 500 |  1.2s | 127.0.0.1 | POST     "/api/generate"\n'

# what follows `error loading model: `
LOADER = [
    ("llama-model.cpp", "unknown model architecture: 'qwen35moe'", "unknown_architecture"),
    ("llama-model.cpp", "LLAMA_SPLIT_MODE_TENSOR not implemented for architecture 'x'", "unsupported_model_feature"),
    ("llama-model.cpp", "unable to allocate CUDA0 buffer", "out_of_memory_loading"),
    ("llama-model.cpp", "n_expert must be > 0 for QWEN3MOE", "quantization_mismatch"),
    ("llama-model.cpp", "GLM_DSA architecture requires MLA", "unsupported_model_feature"),
    ("llama-model.cpp", "make_cpu_buft_list: no CPU backend found", "missing_module"),
    (
        "llama.cpp",
        "error loading model hyperparameters: key not found in model: gemma3.attention.layer_norm_rms_epsilon",
        "quantization_mismatch",
    ),
    ("llama.cpp", "CLIP cannot be used as main model, use it with --mmproj instead", "bad_argument"),
    ("llama-vocab.cpp", "error loading model vocabulary: unknown pre-tokenizer type: 'x'", "unknown_architecture"),
    (
        "llama-vocab.cpp",
        "error loading model vocabulary: cannot find tokenizer merges in model file",
        "quantization_mismatch",
    ),
    ("llama-model-loader.cpp", "missing tensor 'blk.0.ssm_dt.bias'", "weights_missing"),
    (
        "llama-model-loader.cpp",
        "done_getting_tensors: wrong number of tensors; expected 292, got 291",
        "quantization_mismatch",
    ),
    ("llama-model-loader.cpp", "tensor 'blk.9.ffn_down.weight' has invalid data", "weights_corrupt"),
    ("llama-model-loader.cpp", "invalid model: tensor 'output.weight' is duplicated", "weights_corrupt"),
    ("llama-model-loader.cpp", "corrupted model: 1086 tensors expected but 731 found", "weights_corrupt"),
    ("llama-model-loader.cpp", "invalid split file: /models/m-00002-of-00004.gguf", "weights_missing"),
    ("llama-model-loader.cpp", "invalid split count, given: 2 splits, but expected 4", "weights_missing"),
    (
        "llama-model-loader.cpp",
        "illegal split file idx: 2 (file: m-00003-of-00004.gguf), model must be loaded with the first split",
        "bad_argument",
    ),
    (
        "llama-model-loader.cpp",
        "failed to find a compatible buffer type for tensor blk.0.ffn_gate_exps.weight",
        "unsupported_model_feature",
    ),
    ("llama-mmap.cpp", "failed to open /models/m.gguf: No such file or directory", "weights_missing"),
    ("llama-mmap.cpp", "failed to open /models/m.gguf: Permission denied", "permission_denied"),
    ("llama-mmap.cpp", "mmap failed: Cannot allocate memory", "out_of_memory_loading"),
    ("llama-mmap.cpp", "read error: Input/output error", "weights_corrupt"),
    ("llama-mmap.cpp", "unexpectedly reached end of file", "weights_corrupt"),
    ("", "vector::_M_range_check: __n (which is 4294967295) >= this->size() (which is 32)", "unknown"),
]
GGUF = [  # gguf.cpp
    ("failed to open GGUF file '/models/m.gguf' (No such file or directory)", "weights_missing"),
    ("failed to open GGUF file '/models/m.gguf' (Permission denied)", "permission_denied"),
    ("invalid magic characters: '<!do', expected 'GGUF'", "weights_corrupt"),
    ("bad GGUF version: 0", "weights_corrupt"),
    ("number of tensors is -1 but must be in [0, 461168601842738790]", "weights_corrupt"),
    ("failed to read key-value pairs", "weights_corrupt"),
    ("failed to read tensor data", "weights_corrupt"),
    ("tensor 'blk.0.x' has offset 4096, expected 8192", "weights_corrupt"),
    ("GGUFv1 is no longer supported, please use a more up-to-date version", "unknown_quantization"),
    ("this GGUF file is version 4 but this software only supports up to version 3", "unknown_quantization"),
    ("tensor 'blk.0.x' has invalid ggml type 40. should be in [0, 40)", "unknown_quantization"),
]
CONTEXT = [  # llama-context.cpp, llama-kv-cache.cpp
    (
        "failed to initialize the context: quantized V cache was requested, but this requires Flash Attention",
        "bad_argument",
    ),
    ("failed to initialize the context: failed to allocate buffer for kv cache", "out_of_memory_warmup"),
    ("failed to initialize the context: failed to allocate compute pp buffers", "out_of_memory_warmup"),
    ("failed to initialize the context: failed to reserve initial output buffer", "out_of_memory_warmup"),
    ("failed to initialize the context: n_seq_max must be <= 256", "bad_argument"),
    ("n_batch and n_ubatch cannot both be zero", "bad_argument"),
    ("SPLIT_MODE_TENSOR requires flash_attn to be enabled", "bad_argument"),
    ("K cache type q4_0 with block size 32 does not divide n_embd_head_k=80", "unsupported_model_feature"),
]
BEFORE = [  # of the command line, and of downloads
    ("arg.cpp", 'error while handling argument "-c": stoi', "bad_argument"),
    ("arg.cpp", 'error while handling argument "--cache-type-k": Unsupported cache type: q3_0', "bad_argument"),
    (
        "arg.cpp",
        "error while handling argument \"--chat-template-file\": error: failed to open file '/x.jinja'",
        "missing_file",
    ),
    ("arg.cpp", "error: the supplied chat template is not supported: chatmll", "bad_argument"),
    ("arg.cpp", "error: --model is required", "bad_argument"),
    ("arg.cpp", "error: failed to download model from Hugging Face", "hub_offline"),
    ("download.cpp", "error: invalid HF repo format, expected <user>/<model>[:quant]", "bad_argument"),
    ("download.cpp", "get_hf_plan: no GGUF files found in repository unsloth/foo", "weights_missing"),
    ("download.cpp", "get_hf_plan: file 'foo.gguf' not found in repository unsloth/foo", "repo_not_found"),
    (
        "download.cpp",
        "common_download_file_single: required file is not available in cache (offline mode): /root/x.gguf",
        "hub_offline",
    ),
    ("download.cpp", "common_pull_file: download failed: Connection (status: -1)", "hub_offline"),
    ("download.cpp", "common_download_file_single: invalid http status code received: 404", "repo_not_found"),
    ("hf-cache.cpp", 'get_repo_files: error: GET failed (404): {"error":"Repository not found"}', "repo_not_found"),
    ("hf-cache.cpp", "get_repo_files: error: HTTPLIB failed: Could not establish connection", "hub_offline"),
]
ABORTS = [
    ("ggml.c", "/app/ggml/src/ggml.c:1736: not enough space in the context's memory pool", "engine_died"),
    (
        "ggml-alloc.c",
        "/app/ggml/src/ggml-alloc.c:257: graph allocation: failed to reserve memory",
        "out_of_memory_warmup",
    ),
    (
        "ggml-backend.cpp",
        "/app/ggml/src/ggml-backend.cpp:898: pre-allocated tensor (cache_k_l0) in a buffer (CUDA0) that cannot run the "
        "operation (CPY)",
        "kernel_failure",
    ),
    (
        "ggml-cuda/fattn-tile.cu",
        "/app/ggml/src/ggml-cuda/fattn-tile.cu:57: Unsupported head size",
        "unsupported_model_feature",
    ),
    (
        "ggml-cuda/getrows.cu",
        "/src/ggml/src/ggml-cuda/getrows.cu:208: get_rows_cuda: unsupported src0 type: q2_K",
        "kernel_failure",
    ),
    (
        "ggml-cuda/common.cuh",
        "ggml/src/ggml-cuda/mma.cuh:100: ERROR: CUDA kernel mul_mat_f has no device code compatible with CUDA arch 600",
        "arch_not_compiled",
    ),
    (
        "llama-context.cpp",
        "/app/src/llama-context.cpp:1100: GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed",
        "engine_died",
    ),
    ("llama-context.cpp", "/app/src/llama-context.cpp:622: fatal error", "engine_died"),
    (
        "llama-kv-cache.cpp",
        "/app/src/llama-kv-cache.cpp:1013: The current KV cache / model configuration does not support K-shift",
        "unsupported_model_feature",
    ),
    ("server-context.cpp", "/app/tools/server/server-context.cpp:2427: pos_min == -1, but n_past > 0", "engine_died"),
]
SERVER = [
    (
        "clip.cpp",
        "clip_init: failed to load model 'mm.gguf': load_hparams: unknown projector type: x\n"
        "mtmd_init_from_file: error: Failed to load CLIP model from mm.gguf\n"
        "srv    load_model: failed to load multimodal model, 'mm.gguf'\nmain: exiting due to model loading error",
        "unknown_architecture",
        "unknown projector type",
    ),
    (
        "mtmd.cpp",
        "mtmd_init_from_file: error: mismatch between text model (n_embd = 4096) and mmproj (n_embd = 5120)\n"
        "srv    load_model: failed to load multimodal model, 'mm.gguf'",
        "quantization_mismatch",
        "mismatch between text model",
    ),
    (
        "llama-adapter.cpp",
        "llama_adapter_lora_init: failed to apply lora adapter: model arch and LoRA arch mismatch\n"
        "common_init_from_params: failed to load lora adapter '/l.gguf'\nmain: exiting due to model loading error",
        "quantization_mismatch",
        "LoRA arch mismatch",
    ),
    (
        "server-context.cpp",
        "srv          init: init: chat template parsing error: Unexpected end of input\n"
        "main: exiting due to model loading error",
        "bad_argument",
        "Unexpected end of input",
    ),
    (
        "server-http.cpp",
        "start: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080\n"
        "main: exiting due to HTTP server error",
        "port_in_use",
        "couldn't bind",
    ),
    (
        "ggml-backend-reg.cpp",
        "llama_model_load_from_file_impl: no backends are loaded. hint: use ggml_backend_load()\n"
        "srv    load_model: failed to load model, '/models/m.gguf'\nmain: exiting due to model loading error",
        "missing_module",
        "no backends",
    ),
    (
        "",
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  Chunk not found\nAborted",
        "engine_died",
        "Chunk not found",
    ),
]
OLLAMA = [  # `Error: ...` of its command
    (
        "llm/server.go",
        "model requires more system memory (48.9 GiB) than is available (11.1 GiB)",
        "out_of_memory_loading",
    ),
    ("llm/server.go", "500 Internal Server Error: memory layout cannot be allocated", "out_of_memory_loading"),
    ("llm/server.go", "llama runner process has terminated: exit status 2", "engine_died"),
    ("llm/server.go", "llama runner process has terminated: signal: killed", "killed"),
    (
        "llm/server.go",
        "llama runner process has terminated: signal: illegal instruction (core dumped)",
        "arch_not_compiled",
    ),
    (
        "llm/server.go",
        "llama runner process has terminated: error loading model: missing tensor 'x'",
        "weights_missing",
    ),
    ("llm/server.go", "500 Internal Server Error: timed out waiting for llama runner to start", "ready_timeout"),
    ("llm/server.go", 'POST predict: Post "http://127.0.0.1:36303/completion": EOF', "engine_died"),
    ("llm/llama_server.go", "llama-server process has terminated: exit status 1", "engine_died"),
    ("llm/llama_server.go", "llama-server reported out-of-memory during startup: x", "out_of_memory_loading"),
    (
        "llm/llama_server.go",
        "model runner has unexpectedly stopped, this may be due to resource limitations",
        "engine_died",
    ),
    ("llm/llama_server.go", "an error was encountered while running the model: unexpected EOF", "engine_died"),
    ("server/images.go", "pull model manifest: file does not exist", "repo_not_found"),
    ("server/images.go", 'pull model manifest: Get "https://registry.ollama.ai/v2/x": EOF', "hub_offline"),
    (
        "server/images.go",
        'pull model manifest: Get "https://registry.ollama.ai/v2/x": dial tcp: lookup x: server misbehaving',
        "hub_offline",
    ),
    (
        "server/images.go",
        'pull model manifest: 400: {"error":"Repository is not GGUF or is not compatible with llama.cpp"}',
        "unsupported_model_feature",
    ),
    (
        "server/images.go",
        'pull model manifest: 400: {"error":"The specified tag is not available in the repository."}',
        "repo_not_found",
    ),
    ("server/download.go", "max retries exceeded: unexpected EOF", "hub_offline"),
    (
        "server/download.go",
        "max retries exceeded: write /x/blobs/sha256-6a-partial: no space left on device",
        "disk_full",
    ),
    ("fs/ggml/ggml.go", "invalid file magic", "weights_corrupt"),
    ("convert/convert.go", "unsupported architecture", "unknown_architecture"),
    ("parser/parser.go", 'command must be one of "from", "license", "template"', "bad_argument"),
    ("parser/parser.go", "no FROM line", "bad_argument"),
    ("cmd/cmd.go", "specified Modelfile wasn't found", "missing_file"),
    ("api/types.go", "unknown parameter 'num_gqa'", "bad_argument"),
]
SLOT = "slot launch_slot_: id  0 | task 0 | processing task\n"
LIFE = [
    (
        "common.cpp",
        "0.05.795.588 I cmn  common_init_: warming up the model with an empty run - please wait ...",
        "starting",
    ),
    ("server-models.cpp", "srv    operator(): instance name=x exited with status 1", "ready"),
    ("server.cpp", "main: server is listening on http://0.0.0.0:8080", "ready"),
    ("server.cpp", "main: router server is listening on http://0.0.0.0:8080", "ready"),
    ("server.cpp (2023)", "llama server listening at http://127.0.0.1:8080", "ready"),
    ("server.cpp (2024)", 'INFO [       main] model loaded | tid="1400" timestamp=1713000000', "ready"),
    ("server.cpp (2024)", '{"tid":"1","level":"INFO","function":"main","line":3057,"msg":"model loaded"}', "ready"),
    ("server-context.cpp", "slot get_availabl: id  3 | task -1 | selected slot by LCP similarity", "ready"),
    ("server-context.cpp", "slot      release: id  3 | task 12 | stop processing: n_tokens = 117", "ready"),
    ("server-context.cpp", SLOT + "srv    send_error: task id = 3, error: Context size has been exceeded.", "ready"),
    ("server-context.cpp", SLOT + "srv  update_slots: Invalid input batch. i = 0, ret = -1", "ready"),
    ("server-http.cpp", "srv  log_server_r: done request: POST /v1/chat/completions 172.17.0.1 200", "ready"),
    ("server-models.cpp", "srv  proxy_reques: proxying request to model qwen on port 43211", "ready"),
    ("llama-context.cpp", "llama_perf_context_print:        eval time =    2000.00 ms /   100 runs", "ready"),
    ("server.cpp", "srv    operator(): operator(): cleaning up before exit...", "stopped"),
    ("server-http.cpp", HEAD + "srv  log_server_r: request: GET /health 127.0.0.1 503", "starting"),
    ("ggml-backend-reg.cpp", "load_backend: loaded CUDA backend from /app/libggml-cuda.so", "starting"),
    ("llama-model.cpp", "print_info: arch                  = qwen3", "starting"),
    ("llama.cpp (2024)", "llm_load_tensors: offloaded 33/33 layers to GPU", "starting"),
    ("common.cpp", "system_info: n_threads = 20 (n_threads_batch = 20) / 20 | CUDA : ARCHS = 1210", "starting"),
    (
        "fit.cpp",
        "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already set by user\n"
        "load_tensors: loading model tensors, this can take a while... (mmap = true)",
        "starting",
    ),
    (
        "ggml-cuda.cu",
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n"
        "load_tensors: loading model tensors, this can take a while... (mmap = true)",
        "starting",
    ),
    (
        "llm/llama_server.go",
        GO + 'INFO source=llama_server.go:1362 msg="llama-server started in 1.26 seconds"',
        "ready",
    ),
    ("llm/server.go", GO + 'WARN source=server.go:134 msg="model request too large for system"', "ready"),
    ("server/routes.go", GO + 'ERROR source=routes.go:462 msg="chat prompt error" error="template: :1"', "ready"),
    ("cmd/cmd.go", "Couldn't find '/root/.ollama/id_ed25519'. Generating new private key.", "starting"),
    (
        "llm/server.go",  # a runner ended, and the server answered
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
        + GO
        + 'ERROR source=sched.go:455 msg="error loading llama server" error="x"\n'
        + GIN,
        "ready",
    ),
]
DAEMON = "Error response from daemon: "
HOOK = (
    DAEMON + "failed to create shim task: OCI runtime create failed: runc create failed: error running hook #0: exit "
    "status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: "
)
NOT_THERE = (
    "\n0.00.1.0 W get_repo_files: failed to resolve commit for a/b"
    "\n0.00.074.625 E llama_model_load_from_file_impl: exactly one out metadata, path_model, and file must be defined"
    "\n0.00.074.638 E common_fit_params: encountered an error while trying to fit params to free device memory: failed "
    "to load model\n0.00.074.658 E srv    load_model: failed to load model, ''"
)
RUNNER = "Error: llama runner process has terminated: "
PASTED = [  # with lines around them, of launchers and of several tries
    ("0.00.073.098 E get_repo_commit: error: GET failed (404): Sorry" + NOT_THERE, "repo_not_found", "(404)"),
    ("0.00.073.098 E get_repo_commit: error: GET failed (401): Invalid" + NOT_THERE, "gated_repo", "(401)"),
    ("0.00.073.098 E get_repo_commit: error: GET failed (429): slow down" + NOT_THERE, "hub_offline", "(429)"),
    ("0.00.073.098 E get_repo_commit: error: GET failed (502): bad gateway" + NOT_THERE, "hub_offline", "(502)"),
    ("common_download_file_single_online: invalid http status code received: 403", "gated_repo", "403"),
    ("common_download_file_single_online: invalid http status code received: 503", "hub_offline", "503"),
    ("pulling manifest\nError: pull model manifest: 429: rate limit", "hub_offline", "429"),
    ("llama_new_context_with_model: n_ctx      = 1048576\n"
     "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 137438953504\n"
     "llama_kv_cache_init: failed to allocate buffer for kv cache", "out_of_memory_warmup", "of size 137438953504"),
    ("llama_init_from_model: flash_attn requires n_embd_head_k == n_embd_head_v - forcing off\n"
     "llama_init_from_model: V cache quantization requires flash_attn\nmain: error: unable to load model",
     "unsupported_model_feature", "V cache quantization requires flash_attn"),
    ("llama_new_context_with_model: V cache quantization requires flash_attn\nmain: error: unable to load model\n"
     "torch version:2.5.1", "bad_argument", "V cache quantization"),
    ("Unsupported KV type combination for head_size 128.\n/src/ggml/src/ggml-cuda/fattn-common.cuh:576: fatal error",
     "unsupported_model_feature", "head_size 128"),
    ("CUDA error: out of memory\n/src/ggml-rpc/ggml-rpc.cpp:615: Remote RPC server crashed or returned malformed "
     "response", "out_of_memory_loading", "CUDA error: out of memory"),
    ("clip_init: failed to load model 'm.gguf': load_hparams: unknown projector type:\n"
     "mtmd_init_from_file: error: Failed to load CLIP model from m.gguf", "unknown_architecture", "projector type:"),
    ("llama_context: constructing llama_context\nterminate called after throwing an instance of "
     "'vk::DeviceLostError'\n  what():  vk::Queue::submit: ErrorDeviceLost\nAborted (core dumped)", "kernel_failure",
     "ErrorDeviceLost"),
    ("ggml_vulkan: Device memory allocation of size 118497280 failed.\n"
     "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\ndouble free or corruption (out)",
     "out_of_memory_loading", "allocation of size"),
    ("ggml_cuda_init: found 1 CUDA devices:\ndouble free or corruption (out)\nAborted (core dumped)", "engine_died",
     "Aborted"),
    ("[51881] srv    load_model: loading model '/m/x.gguf'\n[51881] llama_model_load: error loading model: unable to "
     "allocate CUDA0 buffer\n[51881] srv    load_model: failed to load model, '/m/x.gguf'", "out_of_memory_loading",
     "CUDA0 buffer"),
    ("2026-03-25T19:27:07+02:00 gemma3.server[17276]: llama_model_load: error loading model: unable to allocate CUDA0 "
     "buffer\n2026-03-25T19:27:07+02:00 gemma3.server[17276]: main: exiting due to model loading error",
     "out_of_memory_loading", "CUDA0 buffer"),
    ("rocBLAS error: Cannot read /opt/rocm/TensileLibrary.dat: Illegal seek for GPU arch : gfx1103\n"
     + GO + 'ERROR source=sched.go:443 msg="error loading llama server" error="llama runner process has terminated: '
     'signal: aborted (core dumped)"', "arch_not_compiled", "gfx1103"),
    (RUNNER + "signal: bus error (core dumped)", "engine_died", "bus error"),
    ("Jan 02 10:00:00 box systemd[1]: ollama.service: Main process exited, code=killed, status=11/SEGV",
     "engine_died", "status=11/SEGV"),
    ("Jan 02 10:00:00 box systemd[1]: ollama.service: A process of this unit has been killed by the OOM killer.",
     "killed", "OOM killer"),
    ("\uff1aerror\uff1a" + DAEMON + 'could not select device driver "nvidia" with capabilities: [[gpu]]', "no_gpu",
     "could not select"),
    ("Reason: compose [start] exit status 1. Container a-1 Starting " + HOOK + "initialization error: load library "
     "failed: libnvidia-ml.so.1: cannot open shared object file", "no_gpu", "libnvidia-ml.so.1"),
    ("Unable to start container: " + HOOK + "requirement error: unsatisfied condition: cuda>=12.8", "driver_too_old",
     "cuda>=12.8"),
    ('"msg": "Error starting container 9ab: Internal Server Error (\\"could not select device driver \\"nvidia\\" with '
     'capabilities: [[gpu]]\\")"', "no_gpu", "could not select"),
    ("  Warning  FailedCreatePodSandBox  kubelet  Failed to create pod sandbox: rpc error: code = Unknown desc = "
     'failed to get sandbox runtime: no runtime for "nvidia" is configured', "no_gpu", "no runtime for"),
    ("ollama: symbol lookup error: /usr/lib/ollama/libggml-cuda.so: undefined symbol: ggml_log", "missing_module",
     "symbol lookup error"),
    ("load_tensors:   CPU_Mapped model buffer size = 42000.00 MiB\n....................Killed", "killed", "Killed"),
]  # fmt: skip
PARTLY = [  # the server goes on without the model that it could not run
    "Oct 15 13:21:34 a ollama[1]: 2023/10/15 13:21:34 llama.go:323: llama runner stopped with error: signal: aborted\n"
    "Oct 15 13:21:35 a ollama[1]: [GIN] 2023/10/15 - 13:21:35 | 500 |  412.2ms |       127.0.0.1 | POST     "
    '"/api/generate"',
    '{"level":50,"pid":1,"msg":"time=2025-07-14T19:16:12.750+01:00 level=ERROR source=sched.go:457 '
    'msg=\\"error loading '
    'llama server\\" error=\\"llama runner process has terminated: exit status 2\\"\\n"}\n'
    '{"level":30,"pid":1,"msg":"[GIN] 2025/07/14 - 19:16:12 | 500 |    1.5308332s |       127.0.0.1 | POST     '
    '\\"/api/chat\\"\\n"}',
    "srv  proxy_reques: proxying request to model x on port 51881\n"
    "[51881] CUDA error: an illegal memory access was encountered\n[51881] /src/ggml/src/ggml-cuda/ggml-cuda.cu:107: "
    "CUDA error\nsrv    operator(): instance name=x exited with status 1\n"
    "srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 500",
    "Error: failed to start a llama runner\n"
    '[GIN] 2023/12/15 - 15:32:10 | 200 |     178.535\u00b5s |       127.0.0.1 | HEAD     "/"',
]
CLIENTS = [  # one request, or one who asks
    "Error: could not connect to ollama server, run 'ollama serve' to start it",
    'Error: "qwen3:8b" does not support thinking',
    "Error: server busy, please try again.  maximum pending requests exceeded",
    "Warning: could not connect to a running Ollama instance\nWarning: client version is 0.5.7",
]
OTHERS = [  # compilers and linkers name the same files
    "/src/ggml/src/ggml-cuda/common.cuh:12: error: identifier undefined",
    "ggml/src/ggml.c:1736:21: warning: unused variable 'x'",
    "/usr/bin/ld: llama-context.cpp:12: undefined reference to `foo'",
    "src/llama.cpp:12: warning: x",
    "server.c:1224: bind failed",
    "/build/chat.cpp:88: assertion ok",
    "error: failed to open file '/etc/foo'",
    "INFO [main] request | tid=5",
    "Error: Failed to load model\n    at Object.load (/app/dist/three.js:12:5)",
    "error: Uncaught SIGILL (ILL_ILLOPN) at 0x7f on box pid 1 tid 1",
    "exit code\n-1073741819",
    "Error response from daemon: No such container: nomad_ollama",
    '9:38PM ERR Server error error="record not found" ip=127.0.0.1 method=POST status=500',
    "2025/01/02 10:00:00 download.go:33: fetched part 3 of archive.tar",
    "10:00AM INF Request ip=10.0.0.1 latency=1ms method=GET status=200 url=/healthz",
    "Success! HTTP server listening on port 3000",
    "....Killed",
    '{"level":"error","msg":"2025/01/02 10:00:00 http: proxy error: dial tcp 127.0.0.1:3000: connect: refused"}',
    "main: error: unable to load model repository /etc/x.conf",
    "double free or corruption (out)\nAborted (core dumped)",
    "2026-03-25T19:27:07+02:00 nginx[17276]: [error] 12#12: *1 connect() failed (111: Connection refused)",
    "Error: boom\n- Caused By: TypeError: Cannot read properties of undefined\n    at /app/index.js:3:1",
    "panic: failed to decode config",
]


def read(text: str) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in text.splitlines())
    return reader.explanation()


def ends_with(text: str, cause: str, line: str) -> None:
    told = read(text)
    failure = told.timeline.failure
    assert (told.outcome, str(told.cause.id) if told.cause else "") == (StartOutcome.FAILED, cause), text
    assert told.cause is not None and told.cause.remedy
    assert failure is not None and line in failure.line


@all_cases(("source", "words", "cause"), LOADER)
def test_what_the_loader_says_is_the_cause_wherever_it_is_repeated(source: str, words: str, cause: str) -> None:
    line = f"llama_model_load: error loading model: {words}"
    for text in (
        line,
        f"{HEAD}{line}\n{END}",
        f"{line}\nllama_load_model_from_file: failed to load model\nmain: error: unable to load model",
        f"0.00.123.456 I srv    load_model: loading model 'm.gguf'\n0.00.223.456 E {line}",
        f"Error: llama runner process has terminated: error loading model: {words}",
        "$ ollama run x\nError: 500 Internal Server Error: llama runner process has terminated: error loading model: "
        + words,
    ):
        ends_with(text, cause, words)


@all_cases(("words", "cause"), GGUF)
def test_what_the_reader_of_gguf_files_says_comes_before_the_loader(words: str, cause: str) -> None:
    loader = "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/m.gguf"
    for function in ("gguf_init_from_file_impl", "gguf_init_from_file"):
        ends_with(f"{function}: {words}\n{loader}", cause, words)
        ends_with(f"{HEAD}{function}: {words}\n{loader}\n{END}", cause, words)


@pytest.mark.parametrize(("words", "cause"), CONTEXT)
def test_a_context_that_cannot_be_made(words: str, cause: str) -> None:
    line = f"llama_init_from_model: {words}"
    made = "llama_context: constructing llama_context\n"
    failed = "common_init_from_params: failed to create context with model '/models/m.gguf'\n"
    ends_with(line, cause, words)
    ends_with(f"{HEAD}{made}{line}\n{failed}{END}", cause, words)


@all_cases(("source", "line", "cause"), BEFORE)
def test_a_command_line_or_a_download_that_is_refused(source: str, line: str, cause: str) -> None:
    ends_with(f"load_backend: loaded CUDA backend from /app/libggml-cuda.so\n{line}", cause, line)
    ends_with(
        f"llama-1  | load_backend: loaded CPU backend\nllama-1  | {line}\nllama-1 exited with code 1", cause, line
    )


@all_cases(("source", "line", "cause"), ABORTS)
def test_an_abort_is_an_end_also_while_it_serves(source: str, line: str, cause: str) -> None:
    ends_with(line, cause, line)
    ends_with(f"{SERVES}{SLOT}{line}", cause, line)


@pytest.mark.parametrize(("source", "text", "cause", "line"), SERVER)
def test_the_root_decides_and_not_what_follows_from_it(source: str, text: str, cause: str, line: str) -> None:
    ends_with(HEAD + text, cause, line)


@all_cases(("source", "words", "cause"), OLLAMA)
def test_what_ollamas_command_says(source: str, words: str, cause: str) -> None:
    ends_with(f"$ ollama run x\nError: {words}", cause, words)


@all_cases(("text", "cause", "line"), PASTED)
def test_what_people_paste_with_other_lines_around_it(text: str, cause: str, line: str) -> None:
    ends_with(text, cause, line)


@pytest.mark.parametrize("text", PARTLY)
def test_a_server_outlives_a_model_that_it_could_not_run(text: str) -> None:
    told = read(text)
    assert told.outcome is StartOutcome.READY and told.cause is None
    assert [finding.id for finding in told.findings] == [FindingId.RUNNER_FAILED]


@all_cases(("source", "text", "outcome"), LIFE)
def test_lines_of_life(source: str, text: str, outcome: str) -> None:
    assert read(text).outcome.value == outcome


@all_cases("text", [*CLIENTS, *OTHERS])
def test_clients_and_compilers_end_no_engine(text: str) -> None:
    told = read(f"$ ollama run x\n{text}" if text in CLIENTS else text)
    assert told.outcome is not StartOutcome.FAILED
    assert text in CLIENTS or told.outcome is not StartOutcome.READY
    assert told.cause is None
