"""The engines' own words: sentences of their sources as they are printed, and what each means.

A traceback ends in the file that raises the sentence; the tables name it.
"""

from __future__ import annotations

from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from tests.cases import all_cases

PACKAGES = "/usr/local/lib/python3.12/dist-packages"

SGLANG = [
    # of 0.4.10 and 0.5.23, below sglang/srt
    ("managers/tp_worker.py", "AssertionError: Memory pool size is too small", "kv_cache_too_small"),
    ("mem_cache/kv_cache_configurator.py", "ValueError: Loaded weights leave no GPU memory for the KV cache under "
     "--mem-fraction-static=0.75. Raise --mem-fraction-static above 0.8", "no_kv_room"),
    ("mem_cache/kv_cache_configurator.py", "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) "
     "state cache. Computed max_mamba_cache_size=0", "no_kv_room"),
    ("mem_cache/kv_cache_configurator.py", "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to "
     "serve any requests. max_mamba_cache_size=2", "kv_cache_too_small"),
    ("mem_cache/pool_host/mha.py", "ValueError: Not enough host memory for MiniMax index-K hierarchical cache. "
     "Requesting 30.00 GB but only have 12.00 GB free.", "out_of_memory_warmup"),
    ("mem_cache/pool_host/common.py", "RuntimeError: cudaHostRegister failed (rc=2, out) at offset=0 size=4096",
     "out_of_memory_warmup"),
    ("arg_groups/validation_hook.py", "AssertionError: Tokenizer worker num must >= 1", "bad_argument"),
    ("arg_groups/kv_cache_hook.py", "ValueError: --prefill-kv-cache-dequant-dtype applies only with "
     "--kv-cache-dtype=nvfp4.", "bad_argument"),
    ("arg_groups/serving_hook.py", "ValueError: SSL key file not found: '/certs/a.pem'. Please check the "
     "--ssl-keyfile path.", "missing_file"),
    ("arg_groups/speculative_hook.py", "ValueError: DSpark could not resolve speculative_num_draft_tokens; set "
     "--speculative-dspark-block-size (= gamma).", "bad_argument"),
    ("utils/server_args_config_parser.py", "ValueError: Config file not found: /etc/sglang.yaml", "missing_file"),
    ("configs/minicpmv4_6.py", "KeyError: \"Unknown text_config model_type: 'qwen9'\"", "unknown_architecture"),
    ("model_loader/utils.py", "ValueError: Cannot find model module. 'FooForCausalLM' is not a registered model in the "
     "Transformers library", "unknown_architecture"),
    ("model_loader/weight_utils.py", "RuntimeError: model.safetensors.index.json references 2 shard file(s) missing "
     "from /models/a (incomplete download?): model-00002.safetensors", "weights_missing"),
    ("model_loader/loader.py", "ValueError: Parameter model.norm.w not found in the model.", "quantization_mismatch"),
    ("models/grok.py", "ValueError: load_weights failed because it did not hit any names.", "quantization_mismatch"),
    ("models/bailing_mm.py", "RuntimeError: Missing required Bailing multimodal weights: vision.proj",
     "weights_missing"),
    ("layers/quantization/__init__.py", "ValueError: Invalid quantization method: nvfp5. Available methods: ['fp8']",
     "unknown_quantization"),
    ("layers/moe/moe_runner/flashinfer_cutlass.py", "RuntimeError: flashinfer_cutlass MoE runner backend requires "
     "flashinfer to be installed.", "missing_module"),
    ("utils/network.py", "OSError: Could not bind port 30000 on any configured address family", "port_in_use"),
    ("utils/common.py", "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is "
     "available.", "no_gpu"),
    ("utils/model_file_verifier.py", "IntegrityError: Integrity check failed: a.safetensors", "weights_corrupt"),
    ("disaggregation/nixl/conn.py", "Exception: NIXL memory registration failed for kv tensors", "nccl"),
    ("distributed/utils.py", "ValueError: len(partitions)=2 does not match pp_size=4.", "too_many_ranks"),
    ("model_executor/runner/decode_cuda_graph_runner.py", "Exception: Capture cuda graph failed: bad launch",
     "kernel_failure"),
    ("entrypoints/engine.py", "RuntimeError: Weight cache daemon for pp_rank=0 tp_rank=0 did not become ready within "
     "600s", "ready_timeout"),
    ("parser/reasoning_parser.py", "ValueError: Unsupported model type: foo", "bad_parser"),
    ("function_call/function_call_parser.py", "ValueError: Unsupported tool_call_parser: foo", "bad_parser"),
    ("models/deepseek_v2.py", "AssertionError: Number of attention heads must be divisible by tp size",
     "too_many_ranks"),
    ("lora/lora.py", "ValueError: LoRA adapter rank 64 exceeds max_lora_rank 32. Please increase --max-lora-rank",
     "bad_argument"),
    ("mem_cache/hiradix_cache.py", "ValueError: HiRadixCache only supports MHA and MLA yet",
     "unsupported_model_feature"),
    ("mem_cache/memory_pool.py", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
     "out_of_memory_warmup"),
    # Python's own words, wherever they are raised; while settings are read they are the cause
    ("layers/linear.py", "TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple", "unknown"),
    ("layers/quantization/fp8.py", "TypeError: Foo.__init__() got an unexpected keyword argument 'a'", "unknown"),
    ("server_args.py", "TypeError: '>' not supported between instances of 'NoneType' and 'int'", "bad_argument"),
    ("managers/scheduler.py", "IndexError: list index out of range", "unknown"),
    ("configs/model_config.py", "RuntimeError: Couldn't determine number of kv heads", "unknown"),
]  # fmt: skip
VLLM = [
    # of 0.33, below vllm
    ("v1/engine/core.py", "RuntimeError: Did not receive response from front-end process within 5 minutes",
     "ready_timeout"),
    ("v1/engine/coordinator.py", "RuntimeError: DP Coordinator process failed to report ZMQ addresses within "
     "timeout=30 seconds during startup.", "ready_timeout"),
    ("utils/network_utils.py", "RuntimeError: Could not find open port after 10 attempts starting from port 8000",
     "port_in_use"),
    ("v1/hisparse/runtime.py", "ValueError: HiSparse pinned host pool needs ~80 GiB but only 12 GiB of RAM is "
     "available. Lower the HiSparseConnector host_pool_gib", "out_of_memory_loading"),
    ("envs.py", "ValueError: VLLM_PORT 'tcp://10.0.0.1:80' appears to be a URI. This may be caused by a Kubernetes "
     "service discovery issue", "bad_argument"),
    ("utils/flashinfer.py", "RuntimeError: FlashInfer sparse MLA decode APIs are not available. Install a FlashInfer "
     "build that includes sparse MLA decode support.", "missing_module"),
    ("plugins/io_processors/__init__.py", "ValueError: No IOProcessor plugins installed but one is required (a).",
     "missing_module"),
    ("v1/engine/utils.py", "AssertionError: The DP master node (ip: 10.0.0.1) is missing or dead", "nccl"),
    ("model_executor/models/registry.py", "ValueError: Cannot find model module. 'FooForCausalLM' is not a registered "
     "model in the Transformers library", "unknown_architecture"),
    ("entrypoints/openai/tool_parsers/abstract_tool_parser.py", "KeyError: \"tool parser 'foo' not found\"",
     "bad_parser"),
    ("lora/worker_manager.py", "ValueError: LoRA rank 64 is greater than max_lora_rank 32.", "bad_argument"),
    ("config/parallel.py", "ValueError: numa_bind_nodes must not be empty.", "bad_argument"),
    ("v1/core/sched/scheduler.py", "AssertionError: Only running requests can be preempted", "unknown"),
]  # fmt: skip
TRTLLM = [
    # of 0.20 to 1.2, below tensorrt_llm
    ("commands/serve.py", "ValueError: No GPU devices found on the node", "no_gpu"),
    ("_torch/models/modeling_auto.py", "ValueError: Unknown architecture for AutoModelForCausalLM: FooForCausalLM",
     "unknown_architecture"),
    ("llmapi/llm_utils.py", "ValueError: Pre-quantized checkpoint must have quant_algo.", "quantization_mismatch"),
    ("llmapi/llm_utils.py", "ValueError: Specified quant_algo=FP8, conflicting with quant_algo=NVFP4 from HF quant "
     "config.", "quantization_mismatch"),
    ("llmapi/llm_utils.py", "NotImplementedError: Unsupported quantization_config: {'quant_method': 'foo'}.",
     "unknown_quantization"),
    ("_torch/pyexecutor/py_executor_creator.py", "ValueError: Unsupported guided decoding backend foo",
     "bad_argument"),
    ("_torch/modules/fused_moe/fused_moe_trtllm_gen.py", "NotImplementedError: TRTLLMGenFusedMoE does not support "
     "SM120 and above.", "unsupported_model_feature"),
    ("_torch/models/modeling_gemma3.py", "AttributeError: 'Gemma3Config' object has no attribute 'rope_scaling'",
     "unknown"),
    ("mapping.py", "ValueError: world_size must equal to tp_size * pp_size * cp_size, but got 1 != 2 * 1 * 1",
     "too_many_ranks"),
    ("_torch/models/checkpoints/hf/weight_loader.py", "RuntimeError: No weight files found in /models/foo.",
     "weights_missing"),
    ("_torch/autotuner.py", "RuntimeError: No valid tactics found for op", "kernel_failure"),
    ("_torch/attention_backend/trtllm.py", "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Deepseek should be "
     "supported by fmha in context part. (/src/tensorrt_llm/cpp/tensorrt_llm/common/attentionOp.cpp:2200)",
     "kernel_failure"),
    ("executor/proxy.py", "RuntimeError: Executor worker died during initialization", "engine_died"),
]  # fmt: skip


def read(text: str) -> Explanation:
    reader = LogExplainer()
    reader.feed_many(("", line) for line in text.split("\n"))
    return reader.explanation()


def frame(path: str) -> str:
    return f'  File "{path}", line 212, in step\n    self.step()\n'


def sglang(file: str, raised: str) -> str:
    head = "[2025-11-02 10:02:11 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    frames = frame("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py")
    return f"{head}{frames}{frame(f'/sgl-workspace/sglang/python/sglang/srt/{file}')}{raised}\n\n" + (
        "[2025-11-02 10:02:12] Received sigquit from a child process. It usually means the child failed."
    )


def vllm(file: str, raised: str) -> str:
    trace = f"Traceback (most recent call last):\n{frame(f'{PACKAGES}/vllm/{file}')}{raised}"
    lines = ["EngineCore failed to start.", *trace.split("\n")]
    return "\n".join(f"(EngineCore pid=71) ERROR 11-02 10:02:11 [core.py:936] {line}" for line in lines)


def trtllm(file: str, raised: str) -> str:
    stamp, said = "[11/02/2025-10:02:11] [TRT-LLM]", raised.partition(": ")[2]
    return (
        f"{stamp} [I] TensorRT-LLM version: 1.2.0\n{stamp} [E] Failed to initialize executor on rank 0: {said}\n"
        f"{stamp} [E] Traceback (most recent call last):\n{frame(f'{PACKAGES}/tensorrt_llm/{file}')}{raised}\n"
    )


TRACED = [
    *((sglang(file, raised), raised, cause) for file, raised, cause in SGLANG),
    *((vllm(file, raised), raised, cause) for file, raised, cause in VLLM),
    *((trtllm(file, raised), raised, cause) for file, raised, cause in TRTLLM),
]


@all_cases(("text", "raised", "cause"), TRACED, ids=[raised[:60] for _, raised, _ in TRACED])
def test_a_traceback_of_a_start_has_its_cause_and_its_line(text: str, raised: str, cause: str) -> None:
    told = read(text)
    assert told.cause is not None
    assert (told.outcome, told.cause.id) == ("failed", cause)
    assert told.timeline.failure is not None
    assert raised.partition(": ")[2][:60] in told.timeline.failure.line
    assert "gpu_memory_utilization" not in told.cause.remedy or text.startswith("(EngineCore")


E = "[11/02/2025-10:02:11] [TRT-LLM] [E] "
CXX = "[TensorRT-LLM][ERROR] Assertion failed: {} (/src/tensorrt_llm/cpp/tensorrt_llm/batch_manager/a.cpp:81)"
TRITON = 'E1102 10:02:11.123456 1 backend_model.cc:692] "ERROR: Failed to create instance: unexpected error when '
LIFECYCLE = 'E0120 08:38:08.425599 2149 model_lifecycle.cc:654] "'
MPI = "$ mpirun -n 2 trtllm-llmapi-launch trtllm-serve a/b --tp_size 2\n"
CORE = "(EngineCore pid=31) ERROR 06-06 06:06:06 [core.py:1101]"
RAY = "[2026-02-02 04:05:06,111"
ASGI = (
    "ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
    f'  File "{PACKAGES}/vllm/entrypoints/openai/serving_chat.py", line 500, in create_chat_completion\n'
)

TEXTS = [
    # cpp/tensorrt_llm, from Python, under Triton and alone
    (E + "Failed to initialize executor on rank 0: Specified quant_algo=FP8, conflicting with quant_algo=NVFP4 from "
     "HF quant config.", "failed", "quantization_mismatch"),
    (E + "Failed to initialize executor on rank 0: 'NoneType' object is not iterable", "failed", "unknown"),
    (TRITON + "creating modelInstanceState: " + CXX.format("Not enough memory for KV cache"), "failed", "no_kv_room"),
    (TRITON + "creating modelInstanceState: " + CXX.format("a new check"), "failed", "unknown"),
    ("terminate called after throwing an instance of 'tensorrt_llm::common::TllmException'\n  what():  "
     + CXX.format("FMHA kernels are not found (kernel meta info: SM= 121)"), "failed", "arch_not_compiled"),
    ("[TensorRT-LLM][INFO] Engine version 0.16.0 found in the config file\n[TensorRT-LLM][ERROR] Error opening engine "
     "file: /engines/rank0.engine", "failed", "weights_missing"),
    ("[TensorRT-LLM][ERROR] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
     "stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match.)", "failed",
     "unsupported_model_feature"),
    # TensorRT's builder, and tensorrt_llm/builder.py
    ("[11/02/2025-10:02:11] [TRT-LLM] [I] TensorRT-LLM version: 0.17.0\n[11/02/2025-10:03:11] [TRT] [E] "
     "IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node a.)\n"
     "[11/02/2025-10:03:11] [TRT-LLM] [E] Engine building failed, please check the error log.", "failed",
     "kernel_failure"),
    # llmapi/llm_args.py
    (E + "Failed to parse the arguments for the LLM constructor: 1 validation error for TorchLlmArgs\nmax_seqs\n"
     "  Extra inputs are not permitted [type=extra_forbidden, input_value=3, input_type=int]", "failed",
     "bad_argument"),
    # _torch/pyexecutor/hang_detector.py, while it serves
    ("INFO:     Application startup complete.\n" + E + "Hang detected on rank 0 in PyExecutor.", "failed",
     "engine_died"),
    # serve/openai_server.py: one request
    ("INFO:     10.0.0.2:51432 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n" + E + "Internal server error:  "
     f"Traceback (most recent call last):\n{frame(PACKAGES + '/tensorrt_llm/serve/openai_server.py')}"
     "ValueError: bad request\n", "ready", ""),
    ("[TensorRT-LLM][INFO] MPI size: 1, rank: 0\n[TensorRT-LLM][ERROR] Encountered an error when fetching new request: "
     "Prompt length (9000) exceeds maximum input length (8192).", "ready", ""),
    ("| tensorrt_llm     | 1       | READY  |", "ready", ""),
    # tritonserver's model_lifecycle.cc, model_repository_manager.cc, main.cc
    (LIFECYCLE + "failed to load 'tensorrt_llm' version 1: Invalid argument: unable to find backend library for "
     "backend 'tensorrtllm', try specifying runtime on the model configuration.\"", "failed", "missing_module"),
    (LIFECYCLE + "Invalid argument: ensemble 'ensemble' depends on 'tensorrt_llm' which has no loaded version.\"\n"
     "error: creating server: Internal - failed to load all models", "failed", "unknown"),
    (LIFECYCLE + "failed to load 'resnet50' version 1: Internal: onnx runtime error\"", "", ""),
    # a kernel's own check, without the words of the program
    (f"{E[:-4]}[I] Using Sampler: TorchSampler\ntinygemm2_cuda.cu 64 - invalid argument", "failed", "kernel_failure"),
    # Open MPI around it
    (MPI + "There are not enough slots available in the system to satisfy the 2", "failed", "too_many_ranks"),
    (MPI + "ORTE has lost communication with a remote daemon.", "failed", "nccl"),
    ("Primary job  terminated normally, but 1 process returned", "", ""),
    # sglang/srt/entrypoints/engine.py and http_server.py
    ("[2025-11-02 10:02:11 TP0] Load weight begin. avail mem=108.21 GB\n[2025-11-02 10:04:21] Scheduler or "
     "DataParallelController 213 terminated with -9", "failed", "killed"),
    ("[2025-11-02 10:10:04] Initialization failed. warmup error: Traceback (most recent call last):\n"
     f"{frame('/sgl-workspace/sglang/python/sglang/srt/entrypoints/http_server.py')}requests.exceptions.ReadTimeout: "
     "HTTPConnectionPool(host='127.0.0.1', port=30000): Read timed out. (read timeout=600)", "failed", "engine_died"),
    # commands/build.py; examples of TensorRT-LLM, by a script of the person's
    ("trtllm-build: error: unrecognized arguments: --enable_context_fmha", "failed", "bad_argument"),
    ("[TensorRT-LLM][INFO] Max tokens in paged KV cache: 117760. Allocating 54022635520 bytes.\n"
     "[TensorRT-LLM][WARNING] max_beam_width is not specified, will use default value of 1", "starting", ""),
    # model_executor/cuda_graph_runner.py, and another program's import
    ("[2025-10-21 18:12:02 TP0] Capture cuda graph failed: out of resource: shared memory, Required: 147456", "failed",
     "kernel_failure"),
    ("[2025-10-21 18:12:02 TP0] Load weight begin. avail mem=108.21 GB\nFileNotFoundError: [Errno 2] No such file or "
     "directory: 'ninja'", "failed", "missing_file"),
    # managers/scheduler.py
    ("[2026-03-01 10:00:00 TP0] Watchdog timeout (self.watchdog_last_forward_ct=12, self.cur_batch=None)", "failed",
     "engine_died"),
    # a refused option without a usage block: the command above says whose it was
    ("sglang serve --model-path a/b --served-model-name c\n\nerror: unrecognized arguments: --served-model-name c",
     "failed", "bad_argument"),
    ("error: unrecognized arguments: llama-run -c 2048", "", ""),
    # advice in a person's words is no failure
    ("In vLLM 0.9 the server fails with `ValueError: No available memory for the cache blocks` when the share is too "
     "small.", "", ""),
    ("The vLLM server fails with `ValueError: No available memory for the cache blocks`. This was fixed.", "", ""),
    # Ctrl-C in a start that hangs
    ("[2025-03-18 02:42:29 TP0] sglang is using nccl==2.21.5\nTraceback (most recent call last):\n"
     f"{frame('/sgl-workspace/sglang/python/sglang/srt/managers/detokenizer_manager.py')}KeyboardInterrupt", "stopped",
     "stopped"),
    # managers/model_runner.py: lines of a start without one that names the engine
    ("[2025-11-02 10:02:11 TP0] Memory pool end. avail mem=12.34 GB", "starting", ""),
    # only what a person searched for: the exception, without its traceback
    ("[2025-11-02 10:02:11 TP0] Load weight begin. avail mem=108.21 GB\nAssertionError: hidden_size of the draft and "
     "the target must be equal", "failed", "bad_argument"),
    # a request that fails, of an engine that serves; and one by which it has ended
    (f"{ASGI}ValueError: Out of range float values are not JSON compliant: nan", "ready", ""),
    ("Error in completion stream generator.\nTraceback (most recent call last):\nIndexError: list index out of range",
     "ready", ""),
    ('(APIServer pid=1) INFO:     10.0.0.4:41422 - "GET /health HTTP/1.1" 200 OK', "ready", ""),
    (f"{ASGI}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "failed", "engine_died"),
    (f"{CORE} File \"{PACKAGES}/vllm/v1/attention/backends/flashinfer.py\", line 870, in build\n"
     f"{CORE} ValueError: could not broadcast input array from shape (17,) into shape (16,)\n"
     "(APIServer pid=1) ERROR 06-06 06:06:06 [async_llm.py:744] AsyncLLM output_handler failed.", "failed", "unknown"),
    # what torch.compile met while it traced the model, what it compiled for other sizes, and a compiler without memory
    (f"{CORE} torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: call_function add: "
     "got RuntimeError('The size of tensor a (5120) must match the size of tensor b (4096)')", "failed", "unknown"),
    (f"{CORE} AssertionError: expected size 5120==4096, stride 1==1 at dim=1", "failed", "kernel_failure"),
    (f"{CORE} EngineCore failed to start.\n{CORE} RuntimeError: Ninja build failed. Ninja output:\n"
     f"{CORE} FAILED: allreduce.cuda.o\n{CORE} nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "failed",
     "killed"),
    # Ray's processes in C++
    (f"(EngineCore pid=31) {RAY} C 31 31] core_worker_process.cc:260: Check failed: status.ok() Failed to register "
     "worker to Raylet: IOError: End of file", "failed", "engine_died"),
    (f"(raylet, ip=10.0.0.2) {RAY} E 31 31] (raylet) node_manager.cc:3193: 1 Workers (tasks / actors) killed due to "
     "memory pressure (OOM)", "failed", "killed"),
    (f"{RAY} C 31 31] (raylet) main.cc:1189: Check failed: _s.ok() Bad status", "", ""),
    # an image's entrypoint and a command that do not go together
    ("/opt/nvidia/nvidia_entrypoint.sh: line 67: exec: --model: invalid option", "failed", "bad_argument"),
    # the engine's own benchmark is a client
    (f"  File \"/usr/local/bin/vllm\", line 10, in <module>\n"
     f"  File \"{PACKAGES}/vllm/benchmarks/serve.py\", line 690, in benchmark\n"
     "ValueError: Initial test run failed - Please make sure benchmark arguments are correct.", "starting", ""),
]  # fmt: skip


@all_cases(("text", "outcome", "cause"), TEXTS, ids=[text[-60:] for text, _, _ in TEXTS])
def test_an_engine_s_own_lines_say_how_it_is(text: str, outcome: str, cause: str) -> None:
    told = read(text)
    assert (told.outcome, told.cause.id if told.cause else "") == (outcome or "unknown", cause)


def test_a_setting_that_pydantic_refuses_is_named() -> None:
    told = read(next(text for text, _, _ in TEXTS if "Extra inputs" in text))
    assert told.cause is not None
    assert "max_seqs" in told.cause.summary


READER = frame("/sgl-workspace/sglang/python/sglang/srt/utils/hf_transformers_utils.py")
REPORTED = f"Traceback (most recent call last):\n{READER}ValueError: Unrecognized image processor\n"


def test_an_exception_that_is_only_reported_ends_no_start() -> None:
    begun, later = (f"[2025-11-02 10:02:11 TP0] Load weight {step}. avail mem=108.21 GB" for step in ("begin", "end"))
    assert read(f"{begun}\n{REPORTED}").outcome == "failed"
    assert read(f"{begun}\n{REPORTED}{later}").outcome == "starting"
    ended = f"{begun}\n[2025-11-02 10:02:12 TP1] Scheduler hit an exception: {REPORTED}{later}"
    assert read(ended).outcome == "failed"
