"""Failures of what is below the engine: GPU, driver, kernels, files of the image, the shell."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.finding import Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes.cause import (
    CauseId,
    CauseRule,
    FailureContext,
    first_group,
    fix,
    rule,
    setting,
)
from spark_tui.observe.explain.model.causes.network import NETWORK_RULES
from spark_tui.observe.explain.model.sizing import version_of

_EAGER: Final = (("enforce_eager", "true"),)
_WITHOUT_GRAPHS: Final = "Start once with {eager}: if that works, {faulty}. {gb10}"
_SIGNALS: Final = {
    4: "illegal instruction (SIGILL)",
    6: "abort (SIGABRT)",
    7: "bus error (SIGBUS): often /dev/shm was full",
    9: "SIGKILL",
    11: "segmentation fault (SIGSEGV)",
    15: "SIGTERM",
}
_COMPILER: Final = lazy_pattern(
    r"(?:\S{1,200}: )?(?:fatal )?error: .{1,160}|nvcc fatal .{1,120}|Could not find nvcc.{0,100}|"
    r"ptxas .{0,60}error.{1,160}"
)
_TRT_MOE: Final = (
    "Set moe_config.backend to CUTLASS in the options file (extra_llm_api_options): TRTLLM kernels do not run on GB10. "
    "If it is set already, use a newer image."
)
_MOUNT: Final = "Check the path and the preset's volumes: files of the host must be mounted."
# Packages by the name under which Python imports them.
_PACKAGES: Final = {"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def missing_module(match: re.Match[str], _context: FailureContext) -> Finding:
    first = re.split(r"[,\s]+", first_group(match).strip())[0].strip("`'\".")
    package = _PACKAGES.get(first, first.partition(".")[0].replace("_", "-"))
    summary = f"Python package {first} is missing from the image."
    if package in ("vllm", "sglang"):
        return fix(
            summary,
            "Use an image of that engine, or correct the command. Outside a container install it in the environment "
            f"whose Python runs (`pip install {package}`).",
        )
    return fix(
        summary,
        f"Install it before the server starts (`pip install {package} && ...` in the preset's command), or use an "
        "image that has it.",
    )


_FROM: Final = lazy_pattern(
    r"from '(\w{1,60})|module '(\w{1,60})|operator (\w{1,60})::|packages/(\w{1,60})/\S{1,200}: undefined"
)


def incompatible(match: re.Match[str], context: FailureContext) -> Finding:
    """A name is missing from a package, or a library was built against another version of it."""
    found = _FROM.search(match.string)
    package = first_group(found) if found else ""
    which = f" of {package}" if package else ""
    built = " It was built for another version of torch." if "undefined symbol" in match[0] else ""
    return fix(
        f"Two packages in the image are incompatible ({first_group(match)}).{built}",
        f"Use the image as published, without packages installed over it, or {context.names.other}. Outside a "
        "container "
        f"install the version{which} that the engine requires.",
    )


def fp4_kernel(_match: re.Match[str], context: FailureContext) -> Finding:
    """CUTLASS for sm_120 does not run on GB10."""
    if context.engine == "trtllm":
        return fix("TensorRT-LLM's FP4 kernel does not run on this GPU (GB10 is sm_121).", _TRT_MOE)
    version = version_of(context.facts)
    summary = "The CUTLASS kernel for FP4 does not run on this GPU (GB10 is sm_121)."
    if version is not None and version >= (0, 22):
        remedy = f"{context.names.gb10} Until then linear_backend=marlin works, slower."
        return setting(summary, remedy, "linear_backend", "marlin")
    return fix(summary, context.names.gb10)


def no_code(_match: re.Match[str], context: FailureContext) -> Finding:
    """The image's kernels, or its compiler, do not know the GPU."""
    summary = "The image has no code for this GPU (GB10 is sm_121)."
    text = f"{_match.string}\n{context.text}"
    if "ptxas" in text.lower() or "is not defined for option" in text:
        remedy = (
            f"Set env.TRITON_PTXAS_PATH to the CUDA toolkit's ptxas: Triton's own is too old. Or: {context.names.gb10}"
        )
        if "not supported on .target" not in text:
            return fix(summary, remedy)
    if "not supported on .target" in context.text:
        return fix(
            f"{summary} A kernel needs features that GB10 does not have.",
            f"Choose another moe_backend. Or: {context.names.gb10}",
        )
    if deep := re.search(r"(?i:deep_?gemm)", text):
        return fix(f"{summary} {deep[0]} needs another GPU.", f"Set env.VLLM_USE_DEEP_GEMM=0. Or: {context.names.gb10}")
    if re.search(r"(?i:attention|attn|mla\b)", text):
        return fix(summary, f"Choose another attention_backend. Or: {context.names.gb10}")
    return fix(summary, context.names.gb10)


def compiling(match: re.Match[str], context: FailureContext) -> Finding:
    """A compiler's own error says more than what called it."""
    own = _COMPILER.search(context.text)
    what = truncate((own or match)[0].strip(), 160)
    return fix(
        f"Compiling a kernel failed: {what}.",
        f"Clear the compile cache (a stale entry of another version can break a start), or set {context.names.eager}."
        if own is None
        else f"Something that the compiler names is missing from the image. {context.names.gb10}",
        _EAGER if own is None else (),
    )


def process_died(match: re.Match[str], context: FailureContext) -> Finding:
    """A worker is gone; a negative exit code is the signal that ended it."""
    code, name = int(match[2] or 0), match[1] or "worker"
    if code == -9:
        return fix(
            f"Worker process {name} was killed (SIGKILL).",
            f"Most likely out of memory: free the page cache (key D), lower {context.names.memory}, and check the "
            "kernel log (`journalctl -k`) for the out-of-memory killer.",
        )
    ended = _SIGNALS.get(-code, f"exit code {code}") if code else "no reason in the log"
    return fix(
        f"Worker process {name} ended: {ended}.",
        "Check the kernel log (`journalctl -k`) for the out-of-memory killer. If it happens again, set "
        f"{context.names.eager} or use {context.names.other}.",
    )


def too_new_for_driver(match: re.Match[str], _context: FailureContext) -> Finding:
    found = first_group(match)
    return fix(
        f"The NVIDIA driver is too old for this image's CUDA{f' (found {found})' if found else ''}.",
        "Update the NVIDIA driver (DGX OS includes it), or use an image for an older CUDA.",
    )


NO_PROGRAM: Final = (
    r"\S{0,60}/(?:(?:ba|da|z)?sh: (?:line \d{1,5}: )?(\S{0,60}/(?:ba|da|z)?sh): cannot execute binary file|"
    r"\S{1,60}\.sh: line \d{1,5}: exec: (--?[\w\-]{0,40}): invalid option)"
)
"""An entrypoint that is a shell with a command that begins with one; one that runs its command, which is an option."""
GPU_FAULT: Final = r"(?:Memory access fault|HW Exception) by GPU |.{0,160}aborting with error : HSA_"
"""How ROCm ends a process."""
HOST_RULES: Final[tuple[CauseRule, ...]] = (
    rule(
        CauseId.DRIVER_TOO_OLD,
        r"NVIDIA driver on your system is too old(?: \(found version (\d{1,8})\))?|driver version is insufficient|"
        r"cudaErrorInsufficientDriver|Error 80[34]\b|unsatisfied condition: cuda ?>= ?([\d.]{1,10})|"
        r"unsupported (?:display driver|toolchain)|forward compatibility was attempted",
        too_new_for_driver,
    ),
    rule(
        CauseId.NO_GPU,
        r"[Dd]river/library version mismatch|Failed to initialize NVML: Driver",
        "The NVIDIA driver was updated while its old module runs.",
        "Reboot: the module that is loaded and the driver's libraries then have one version.",
    ),
    rule(
        CauseId.NO_GPU,
        r"could not select device driver|no runtime for \"nvidia\" is configured|"
        r"unknown or invalid runtime name: nvidia",
        "Docker cannot give GPUs to containers: no NVIDIA runtime.",
        "Install the NVIDIA Container Toolkit (package nvidia-container-toolkit), then `sudo nvidia-ctk runtime "
        "configure --runtime=docker` and `sudo systemctl restart docker`.",
    ),
    rule(
        CauseId.NO_GPU,
        r"failed to fulfil mount request|[Uu]sing requested mode 'cdi'|"
        r"invoking the NVIDIA Container Runtime Hook directly|CDI device injection failed",
        "Docker's GPU hook refuses: the NVIDIA runtime is in CDI mode.",
        "Start the container with the NVIDIA runtime (`--runtime=nvidia` with NVIDIA_VISIBLE_DEVICES=all, or `--device "
        "nvidia.com/gpu=all`). Or: `sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto`.",
    ),
    rule(
        CauseId.NO_GPU,
        r"unresolvable CDI devices",
        "No CDI specification of the GPU: the container cannot get it.",
        "Write one: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` (NVIDIA Container Toolkit), or start "
        "the container with the NVIDIA runtime.",
    ),
    rule(
        CauseId.NO_GPU,
        r"invalid value for main_gpu: -?\d{1,3} \(available devices: 0\)",
        "The build sees no GPU.",
        "Use an image or build with CUDA, start the container with `--gpus all`, and check `nvidia-smi`.",
    ),
    rule(
        CauseId.NO_GPU,
        r"Current node has no GPU available",
        "Ray has no free GPU on this node.",
        "Start Ray there with its GPU (`ray start ... --num-gpus=1`, `--gpus all` for the container), and stop what "
        "Ray still holds it for: `ray status`, `ray stop`.",
    ),
    rule(
        CauseId.NO_GPU,
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|"
        r"lib(?:cuda|nvidia-ml)\.so(?:\.1)?: (?:cannot open|file too short|invalid ELF)|"
        r"invalid device: (?:CUDA|ROCm|Vulkan)\d|Torch not compiled with CUDA|Device string must not be empty|"
        r"Failed to initialize NVML|failed to initialize CUDA|no CUDA-capable device|"
        r"nvidia-container-cli: (?:initialization|detection|device|mount|ldcache) error|NVML: Driver|NVML_ERROR|"
        r"NVMLError|no (?:compatible|usable) (?:GPU|devices?) (?:was |were )?found|libcuda\.so\.1 not found|"
        r"Driver Not Loaded|CUDA_ERROR_NO_DEVICE|Could not initialize Tensile host: No devices found|"
        r"Unexpected error from cudaGetDeviceCount|CUDA unknown error|No supported (?:CUDA )?devices? found",
        "No GPU visible in the container.",
        "Check that `nvidia-smi` works on the host (the driver), and that the preset requests GPUs (`--gpus all`, "
        "NVIDIA Container "
        "Toolkit). Else use an image built for CUDA.",
    ),
    rule(
        CauseId.IMAGE_UNAVAILABLE,
        r"response from daemon: (?:Get|Head) \"https?://[^ ]{1,300} .{0,200}(?:net/http|dial |lookup|EOF|x509|tls:|"
        r"canceled|deadline)|httpReadSeeker|failed to do request|"
        r"failed to resolve reference .{1,200}(?:dial|lookup|timeout|EOF)|error pulling image configuration",
        "The registry of the image cannot be reached.",
        "Check this machine's network, DNS, proxy and IPv6 (`docker info`), and pull the image again: finished "
        "layers stay.",
    ),
    rule(
        CauseId.IMAGE_UNAVAILABLE,
        r"pull access denied for ([^\s,]{1,200})|\bunauthorized: |denied: (?:\{|requested access)|"
        r"(?:Head|Get) \"https?://[^/ ]{1,100}/v2/(\S{1,200})/(?:manifests|blobs)/\S{1,120}\": (?:denied|unauthorized|"
        r"no basic auth)|manifest (?:for )?(\S{0,200}) ?(?:unknown|not found)|invalid reference format|"
        r"failed to resolve reference \"?(\S{1,200}?)\"?: (?:\S{1,200}: )?not found",
        "The registry does not give out the image {any}: wrong name or tag, or no access.",
        "Check the image's name and tag. For a private one: `docker login REGISTRY` (nvcr.io: user $oauthtoken, an "
        "NGC key). "
        "One built here must be on each node.",
    ),
    rule(
        CauseId.IMAGE_UNAVAILABLE,
        r"toomanyrequests|pull rate limit",
        "The registry refuses more downloads for now (rate limit).",
        "Log in (`docker login`), which raises the limit, or wait a few hours.",
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"exec format error|Exec format error|no matching manifest for linux/arm64",
        "The image is built for another processor architecture.",
        "A Spark needs arm64 (aarch64) images: choose the arm64 tag, or a multi-platform one.",
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"Illegal seek for GPU arch|no kernel image is available|cudaErrorNoKernelImage|invalid device function|"
        r"Error in function .{1,300}Unsupported arch|Assertion error .{1,300}(?:Unsupported|unsupported) arch|"
        r"[Mm]in(?:imum)? (?:compute )?capability:? ?\d|"
        r"[Nn]ot (?:supported|implemented) (?:in this architecture|(?:on|for|by) (?:this |the current |"
        r"current )?(?:GPU|device|compute capability|sm_?\d))|"
        r"[Oo]nly supported on .{0,40}(?:Hopper|Blackwell|Ampere|[Cc]ompute capability|SM ?\d|sm_?\d)|"
        r"(?:requires?|needs?) (?:a )?(?:GPUs? (?:with )?)?(?:compute capability|SM ?\d|sm_?\d\d|Hopper|Blackwell|"
        r"SM ?>=)|GPUs? with compute capability|[Uu]nsupported (?:SM|CUDA arch|compute capability|GPU arch)|"
        r"compute capability .{0,40}(?:is )?(?:not|un)supported|"
        r"not implemented for (?:Blackwell|Hopper|Ampere|Ada)|PTX was compiled with an unsupported toolchain|"
        r"Value 'sm_\w{1,8}' is not defined for option|PTXASError|No supported CUDA architectures found|"
        r"only supports sm_?\d{2,4}|Unsupported gpu architecture 'compute_|"
        r"Failed to open: \S{0,300}sm_?\d{2,4}\w?_\S{0,120}|sm_?\d{2,4}a? is not supported|"
        r"[Oo]nly (?:SM|sm_?|compute capability).{0,40}supported|Illegal instruction|"
        r"invalid value for --gpu-architecture|incompatible device, expecting compute|arch to be one of|"
        r"but got Arch\.sm_|[Oo]nly supports? (?:Ampere|Hopper|Blackwell)|Unknown CUDA arch|"
        r"Unsupported architecture sm_|LLVM ERROR: Cannot select|compute capability less than|"
        r"not supported on \.target|is not compatible with the current PyTorch installation|"
        r"CalledProcessError: .{0,120}/ptxas\b|kernel for CUDA device capability",
        no_code,
    ),
    rule(CauseId.KERNEL_FAILURE, r"Failed to run cutlass FP4 gemm|FP4 gemm Runner\]", fp4_kernel),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Failed to find a kernel that can implement the (\w{1,20}) linear layer|"
        r"No (\w{1,20}) (?:MoE backend supports|kernel backend available)|No valid (\w{1,20}) GEMM backend|"
        r"no FlashInfer (\w{1,20}) MoE backend supports|Forced (\w{1,20}) kernel \S{1,120} is not supported|"
        r"was requested but no '[^']{1,60}' kernel exists for (\w{1,20})",
        "No kernel in this image can run the model's {any} layers on this machine.",
        "{gb10} If the preset pins a backend (moe_backend, linear_backend), remove it.",
    ),
    *NETWORK_RULES,
    rule(
        CauseId.KERNEL_FAILURE,
        r"custom_all_reduce\.cuh:\d{1,6} '([^']{1,80})'",
        "vLLM's own all-reduce kernel failed: {0}.",
        "Set disable_custom_all_reduce=true: NCCL then does the same. On GPUs without NVLink it costs little.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Failed: Cuda error (\S{1,200} '[^']{1,80}')",
        "A CUDA call of the engine's kernels failed: {0}.",
        _WITHOUT_GRAPHS,
        change=_EAGER,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"CUDNN_STATUS_\w{1,40}",
        "cuDNN failed: {match}.",
        "Set kv_cache_dtype=auto if it is fp8: some FP8 kernels are for other GPUs. Then try {eager}.",
        change=_EAGER,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"NPU function error: (?:call )?(\w{1,60})|call (aclnn\w{1,60}) failed",
        "A kernel of the NPU failed: {any}.",
        "Use {newer}: CANN and torch_npu must suit each other and this NPU.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Error occurred when running GEMM",
        "A TensorRT-LLM kernel does not run on this GPU.",
        _TRT_MOE,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"name '(sgl_\w{1,60}|\w{0,60}kernel\w{0,40})' is not defined",
        "SGLang's kernel {0} is missing from this image.",
        "Use an image whose sgl-kernel belongs to its SGLang, or start without speculative_algorithm.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"(ptxas application ptx input.{0,40}error.{0,120}|CUDA error \d{1,4} at .{1,200})|"
        r"(NVRTC compilation failed.{0,80}|JIT failed.{0,80}|CUTLASS error.{0,80}|[Nn]o kernel found.{0,80}|"
        r"kernel not found.{0,80})|"
        r"(Failed to (?:initialize|run|configure|launch) .{0,40}(?:GEMM|gemm|cutlass|CUTLASS|kernel).{0,80})|"
        r"^(tvm\.[\w.]{1,60}: .{1,160})|(No suitable kernel.{0,80})|"
        r"Check failed: \(\w{1,20} == cudaSuccess\)(.{0,120})|(too many resources requested for launch)",
        "A GPU kernel failed: {any}.",
        "Set another attention_backend or moe_backend, or start once with {eager}. {gb10}",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Assertion error \((\S{1,200})\): (.{1,200})",
        "A kernel failed its own check: {any}.",
        "Set another attention_backend or moe_backend, or none. {gb10}",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"\S{0,200}ggml\S{0,100}/(\S{1,60}:\d+): fatal error",
        "A kernel of {engine} failed its own check: {0}.",
        "Start once with {eager}, and with an f16 KV cache; else use {newer}.",
        vague=True,  # the line above says which
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"no allocator was set",
        "A Triton kernel needs scratch memory on this GPU, and this engine gives it none.",
        "Use an image with a newer version of the engine: it sets Triton's allocator.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"out of resource: [\w ]{1,30}|unspecified launch failure|illegal memory access|(?:ROCm|HIP) error: [^.]{1,80}|"
        r"hipError\w{1,40}|^RuntimeError: invalid argument$|operation not permitted when stream is capturing|"
        r"device-side assert|misaligned address|Memory access fault by GPU|CUBLAS_STATUS_\w{1,40}|Error Internal|"
        r"CUDA error: [^.]{1,80}|CUDA runtime error in [^.]{1,80}|CUDA driver error: [^.]{1,80}|ErrorDeviceLost|"
        r"VK_ERROR_DEVICE_LOST|Triton Error \[CUDA\][^.]{0,80}|cudaError\w{1,40}",
        "A GPU kernel failed: {match}.",
        _WITHOUT_GRAPHS,
        change=_EAGER,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"(?:CUDA|ROCm) error$|HW Exception by GPU",
        "A GPU kernel failed.",
        _WITHOUT_GRAPHS,
        change=_EAGER,
        vague=True,
    ),
    CauseRule(CauseId.KERNEL_FAILURE, r"PTX codegen error", compiling, vague=True),  # ptxas says why, below
    rule(
        CauseId.KERNEL_FAILURE,
        r"AssertionError: expected size \d{1,9}==.{0,80}|InductorError: .{0,200}|Ptx assembly aborted|"
        r"BackendCompilerFailed.{0,200}|Failed to find C compiler.{0,40}|"
        r"Could not run '[^']{1,80}' with arguments from|[Ll]oad cubin|NVRTC_ERROR\w{0,40}|nvcc fatal.{0,120}|"
        r"Failed to (?:JIT|compile)\b.{0,120}|fatal error: [\w./\-]{1,80}: No such file or directory|"
        r"ld: cannot find -l\w{1,40}|Could not find nvcc.{0,100}|"
        r"CalledProcessError: Command \W{0,4}\S{0,80}(?:gcc|clang|nvcc|ninja|c\+\+)\b|CompilationError: .{0,100}|"
        r"torch\._dynamo\.exc\.\w{1,60}.{0,100}",
        compiling,
    ),
    CauseRule(
        CauseId.KERNEL_FAILURE,
        r"Ninja build failed.{0,100}|Error building extension.{0,100}",
        compiling,
        vague=True,  # the compiler's own words stand below
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"([\w.\-]{2,40}) version \(([\w.+]{1,30})\) does not match ([\w.\-]{2,40}) version \(([\w.+]{1,30})\)",
        "Packages {0} ({1}) and {2} ({3}) do not belong together.",
        "Use the image as published, or install {0} in the version of {2}: `pip install {0}=={3}`.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"Version mismatch: The cluster was started with(.{0,120})",
        "Ray or Python has another version on this node than on the head.",
        "Start the same image on each node: Ray and Python must have the very same version.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r": ([A-Za-z][\w.\-]{1,60}) with minimum required version ([\w.]{1,20}) is not installed",
        "The image's {0} is missing, or older than {1}.",
        "Install it before the server starts (`pip install -U '{0}>={1}' && ...` in the preset's command), or use an "
        "image whose engine and {0} belong together.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"need to have ([\w\-]{2,40})(?: or [\w\-]{2,40})? installed|"
        r"were not found in your environment: ([\w., \-]{1,200})|No module named '?([\w.]{1,120})|"
        r"[Pp]lease install (?:the )?`?([\w\-.]{1,60})|pip install (?:--?[\w\-]+ )*[`'\"]?([\w\-.]{1,60})|"
        r"(\w{1,40}) is not available[.,;:] ?(?:Please |please )?(?:[Ii]nstall|pip)|"
        r"requires the (?!following )`?([\w\-]{1,60})`? (?:package|library)|([\w\-.]{1,60}) is not installed",
        missing_module,
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"(lib[\w.+\-]{1,80}): cannot open shared object file|Library (lib[\w.+\-]{1,80}) is not found",
        "Library {any} is missing.",
        "Install the package with {any}. Where it is one of CUDA's, the engine was built for another CUDA version: use "
        "another tag of the image.",
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"cannot import name '([\w.]{1,120})'|undefined symbol: (\S{1,80})|module '([\w.]{1,80})' has no attribute|"
        r"version `(GLIBC\w*_[\d.]{1,12})' not found|numpy\.(\w{1,30}) size changed|"
        r"'_OpNamespace' '(\w{1,60})' object has no attribute|operator (\w{1,60}::\w{1,80}) does not exist|"
        r"([\w.\-]{1,60})[=><!~]{1,2}\S{1,40} is required|(torchvision)::nms|"
        r"([\w ]{1,40}) were compiled with different CUDA|(Numpy) is not available|"
        r"Could not load any (common_ops) library|[Ff]ailed to import ([\w.]{1,120}) because",
        incompatible,
    ),
    rule(
        CauseId.MISSING_FILE,
        r"exec: \"?([^\":]{1,200})\"?: (?:executable file not found|stat |not found)|"
        r"([^\s:]{1,120}): command not found|sh: (?:line \d{1,9}: |\d{1,9}: )?([^:]{1,200}): not found|"
        r"/env: .?([\w.\-/]{1,100}).?: No such file|exec ([^\s:]{1,200}): no such file",
        "Command `{any}` not found in the image.",
        "Check the preset's image, entrypoint and command: vllm-openai images run `vllm serve` themselves and take "
        "only its arguments, NGC images need the whole command.",
    ),
    rule(
        CauseId.BAD_ARGUMENT,
        NO_PROGRAM,
        "The image's entrypoint and the command do not go together: {any} is no command for it.",
        "Where the entrypoint is a shell, give `-c '...'` alone; where it only runs what it is given (NGC), give the "
        "whole command (`vllm serve MODEL ...`). Or set the container's entrypoint.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"([^\s:]{1,200}): (?:cannot execute|Permission denied)(?=$|:)",
        "Cannot execute `{0}` in the container.",
        "Check the preset's command, and that the file is executable.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"supplied chat template (?:path|string \(([^)]{1,200})\))",
        "The chat template {any} was not found in the container.",
        "Mount it with the preset's volumes, or remove `chat_template`: most checkpoints include one.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"does not appear to have a file named ([\w.\-]{1,120})|No such file or directory: '([^']{1,300})'|"
        r"can't open file '([^']{1,300})'|no (config) file found",
        "File {any} not found in the container.",
        _MOUNT,
    ),
    rule(
        CauseId.MISSING_FILE,
        r"error mounting \"([^\"]{1,200})\"",
        "Docker cannot mount {0}: a folder onto a file, or the other way round.",
        "Correct the preset's volumes: the path on the host must exist and be of the same kind.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"bind source path does not exist: (\S{1,300})",
        "The folder {0} that is to be mounted does not exist on the host.",
        "Correct the preset's volumes, or create it.",
    ),
    rule(
        CauseId.MISSING_FILE,
        r"FileNotFoundError|[Nn]o such file or directory",
        "File named in the command not found in the container.",
        _MOUNT,
    ),
    rule(
        CauseId.KILLED,
        r"(?:[Ww]orker proc|Rank) (\S{1,60}) (?:died unexpectedly|scheduler (?:died|is dead).{0,120}?) ?(?:\(e|"
        r"E)xit code: (-9)\b",
        process_died,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"(?:[Ww]orker proc|RayWorkerProc|Rank) (\S{1,60}) (?:died unexpectedly|"
        r"scheduler died[\w ]{0,30}?)(?: \(exit code: (-?\d{1,6})\))?",
        process_died,
        vague=True,
    ),
    rule(
        CauseId.UNKNOWN,  # vLLM: a kernel wants more at run time than it was measured to need
        r"Workspace is locked but allocation from .?(\S{1,120}:\w{1,60})?",
        "A kernel asked for more working memory than the engine measured at its start ({0}): an error of the engine.",
        "Use {newer}. Until then lower max_num_batched_tokens, or start without speculation and with another "
        "kv_cache_dtype or moe_backend, if they are set.",
    ),
    rule(
        CauseId.UNKNOWN,
        r"res=<Response \[(403|407|50[234])\]>",
        "The server's own warm-up request was answered with {0} by something in between, most often a proxy.",
        "Unset http_proxy and https_proxy for the engine, or set no_proxy=127.0.0.1,localhost,0.0.0.0.",
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Assertion failed: (.{1,200}) \(\S{1,300}\.cu:\d{1,6}\)",
        "A kernel refuses its input: {0}.",
        "Use {newer}; of all-reduce kernels, another number of ranks or a model whose sizes divide.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Caught signal (\d{1,2}) |MPI_ABORT was invoked on rank (\d{1,5})",
        "The engine's process ended by a native crash ({match}).",
        "See the lines above and the backtrace; use {other}, and start once with {eager}.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"(?:[Ss]cheduler|SubprocessWatchdog|Detokenizer) [Ww]atchdog timeout|Watchdog timeout \(self",
        "SGLang's scheduler made no progress, and its watchdog ended it.",
        "A kernel is stuck, or memory ran out: check `journalctl -k`, start once with {eager}, or raise "
        "watchdog_timeout.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"RPC call to (\w{1,60}) timed out",
        "A worker stopped responding ({0} timed out).",
        "Most likely memory ran out, a kernel is stuck, or the link to another node is lost: check "
        "`journalctl -k`, the other node's log and the link; free the page cache (key D).",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"You have likely discovered a bug in Ray|^Check failed: .{1,300}(?:[Rr]aylet|GCS)",
        "A process of Ray failed its own check, and took the engine's workers with it.",
        "Start Ray again on every node (`ray stop`, then `ray start`), with the same version. Without Ray: "
        "distributed_executor_backend=mp, vLLM's own multi-node mode.",
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Bus error|SIGBUS",
        "Bus error: most often the container's shared memory is full.",
        "Start the container with `--ipc=host` or a larger --shm-size (shm_size), on each node.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Fatal Python error|terminate called|[Ss]egmentation fault|Segfault|Aborted \(core dumped\)|panicked at|"
        r"Assertion `.{1,200}' failed|GGML_ASSERT",
        "The engine crashed in native code.",
        "Start once with {eager}; if it happens again, use {other}.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Executor worker returned error",
        "A TensorRT-LLM worker failed while it started.",
        "Its reason stands above, in the lines with [E]: explain the whole log.",
        vague=True,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Hang detected on rank|"
        r"llama(?: runner|-server) process (?:has terminated|no longer running)(?!.{0,80}error loading model)|"
        r"Initialization failed\. (?:Please see|warmup)|Engine (?:loop has|process \(pid \d{1,9}\)) died|"
        r"ray\.exceptions\.(?:Ray(?:Channel|Actor|System)|ActorDied|WorkerCrashed|NodeDied|GetTimeout)\w*|"
        r"\w exited with code [1-9]\d{0,2}$|exited on signal \d|unable to create llama context|"
        r"failed to create context with model|Error: unable to load model|ActorDiedError|EngineCore failed to start|"
        r"(?:Scheduler|WorkerProc|EngineCore) hit an exception|WorkerProc failed to start|Dumping scheduler output|"
        r"Unhandled error \(suppress with|scheduler is dead|A worker died or was killed|^EOFError$|"
        r"Segfault encountered|engine core exited unexpectedly|MultiprocExecutor got fatal signal|"
        r"encountered a fatal error|Engine core proc \S{1,60} died unexpectedly|EngineDeadError|"
        r"Received sigquit from a child|SIGQUIT received|Engine core initialization failed|"
        r"WorkerProc initialization failed|failed to load all models|"
        r"(?:vLLM|SGLang|sglang|llama-server|[Oo]llama)(?: server)? failed to start\b|"
        r"Shard process was signaled to shutdown",
        "The engine core process ended without a reason in the log.",
        "See the lines above in the whole log. Often out of memory: check the kernel log (`journalctl -k`), free the "
        "page cache (key D), and lower {memory}.",
        vague=True,
    ),
)
