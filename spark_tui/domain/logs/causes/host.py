"""Failures of what is below the engine: GPU, driver, kernels, network between GPUs, files of the image, the shell."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.logs.causes.cause import Advice, CauseId, Evidence, Rule, rule, says, version_of
from spark_tui.domain.text import truncate

_GB10_IMAGE: Final = (
    "Use an image built for GB10 (CUDA 13, sm_121, arm64): "
    "the vLLM nightly track (cu130-nightly), or NVIDIA's from NGC."
)
_DRIVER: Final = "Update the system (DGX OS brings the driver), or use an image made for an older CUDA."
_SIGNALS: Final = {
    4: "an instruction that this processor does not have (SIGILL)",
    6: "an abort of its own (SIGABRT)",
    7: "a bus error (SIGBUS): often /dev/shm was full",
    9: "SIGKILL",
    11: "a memory fault (SIGSEGV)",
    15: "SIGTERM",
}

# Packages by the name under which Python imports them.
_PACKAGES: Final = {"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def missing_module(match: re.Match[str], _evidence: Evidence) -> Advice:
    """The image lacks a package that the model's own code wants."""
    names = next(group for group in match.groups() if group)
    first = re.split(r"[,\s]+", names.strip())[0].strip("`'\".")
    package = _PACKAGES.get(first, first.partition(".")[0].replace("_", "-"))
    if package in ("vllm", "sglang"):
        return Advice(
            f"The image has no Python package `{package}`.", "Use an image of that engine, or correct the command."
        )
    return Advice(
        f"The image lacks the Python package {first}.",
        f"Install it before the server starts (`pip install {package} && ...` in the preset's command), or use an "
        "image that has it.",
    )


def missing_library(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A shared library: the driver's own one is only there with a GPU."""
    return Advice(
        f"The image lacks the library {match[1]}.",
        "It and the engine inside were built for different CUDA versions: use another tag of the image.",
    )


def missing_file(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A file that the command names."""
    name = next((group for group in match.groups() if group), "")
    what = f"The container has no file {name}." if name else "A file that the command names is not in the container."
    return Advice(what, "Check the path and the preset's volumes: a file of the host is only there when it is mounted.")


def missing_command(match: re.Match[str], _evidence: Evidence) -> Advice:
    """The shell or Docker does not find what it should run."""
    name = next((group for group in match.groups() if group), "the command").strip("\"' ")
    return Advice(
        f"The image has no command `{name}`.",
        "Check the preset's image and command: vllm-openai images run `vllm serve` themselves and take only its "
        "arguments, NGC images want the whole command.",
    )


def fp4_kernel(_match: re.Match[str], evidence: Evidence) -> Advice:
    """CUTLASS for sm_120 does not run on GB10."""
    version = version_of(evidence)
    summary = "The CUTLASS kernel for FP4 does not run on this GPU (GB10 is sm_121)."
    if version is not None and version >= (0, 22):
        return Advice(
            summary, f"{_GB10_IMAGE} Until then linear_backend=marlin works, slower.", (("linear_backend", "marlin"),)
        )
    return Advice(summary, _GB10_IMAGE)


def no_kernel(match: re.Match[str], _evidence: Evidence) -> Advice:
    """No kernel of the image takes this format on this machine."""
    kind = next((group for group in match.groups() if group), "")
    return Advice(
        f"No kernel of this image can run the model's {f'{kind} ' if kind else ''}layers on this machine.",
        f"{_GB10_IMAGE} If the preset pins a backend (moe_backend, linear_backend), leave it out.",
    )


def cuda_failed(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A kernel crashed; the context is lost."""
    return Advice(
        f"A GPU kernel failed: {truncate(match[0], 120)}.",
        f"Start once with enforce_eager=true: if that works, compiled kernels or CUDA graphs fail here. {_GB10_IMAGE}",
        (("enforce_eager", "true"),),
    )


def compile_failed(match: re.Match[str], _evidence: Evidence) -> Advice:
    """torch.compile or a JIT build."""
    return Advice(
        f"Compiling a kernel failed: {truncate(match[0], 120)}.",
        "Clear the compile cache (a stale entry of another version breaks a start), or start with enforce_eager=true.",
        (("enforce_eager", "true"),),
    )


def process_died(match: re.Match[str], _evidence: Evidence) -> Advice:
    """A worker is gone; a negative exit code is the signal that ended it."""
    code = int(match[2] or 0)
    name = match[1] or "A worker"
    if code == -9:
        return Advice(
            f"The worker process {name} was killed (SIGKILL).",
            "Most likely memory ran out: free the page cache (key D), start with a lower gpu_memory_utilization, and "
            "look into the kernel log (`journalctl -k`) for the out-of-memory killer.",
        )
    ended = _SIGNALS.get(-code, f"exit code {code}") if code else "without a reason in the log"
    return Advice(
        f"The worker process {name} ended: {ended}.",
        "Look at its last lines above. If it happens again, start with enforce_eager=true or another image tag.",
    )


def too_new_for_driver(match: re.Match[str], _evidence: Evidence) -> Advice:
    """The image's CUDA is newer than the driver."""
    found = next((group for group in match.groups() if group), "")
    return Advice(f"The NVIDIA driver is too old for this image's CUDA{f' (found {found})' if found else ''}.", _DRIVER)


_NO_GPU: Final = says(
    "The container sees no GPU.",
    "Check that `nvidia-smi` works on the host, and that the preset asks for GPUs (`--gpus all`).",
)
_NOT_COMPILED: Final = says("The image holds no code for this machine's GPU (GB10 is sm_121).", _GB10_IMAGE)
_NCCL: Final = says(
    "The GPUs of this start could not talk to one another (NCCL).",
    "On one Spark start with tensor_parallel=1. On several, check the cable and the interface (NCCL_SOCKET_IFNAME), "
    "that no address changed, and start with env.NCCL_DEBUG=INFO for NCCL's own reason.",
)
_ENGINE_DIED: Final = says(
    "The engine core process ended without saying why.",
    "Often it was killed because memory ran out: look into the kernel log (`journalctl -k`), free the page cache "
    "(key D), and start with a lower gpu_memory_utilization.",
)
_CRASHED: Final = says(
    "The engine crashed in native code.",
    "Start once with enforce_eager=true; if it happens again, use another tag of the image.",
)

HOST_RULES: Final[tuple[Rule, ...]] = (
    rule(
        CauseId.DRIVER_TOO_OLD,
        r"NVIDIA driver on your system is too old(?: \(found version (\d{1,8})\))?|driver version is insufficient|"
        r"cudaErrorInsufficientDriver|Error 80[34]\b|unsatisfied condition: cuda ?>= ?([\d.]{1,10})|"
        r"unsupported (?:display driver|toolchain)|forward compatibility was attempted",
        too_new_for_driver,
    ),
    rule(
        CauseId.NO_GPU,
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|"
        r"libcuda\.so(?:\.1)?: cannot open|no CUDA-capable device|could not select device driver|"
        r"nvidia-container-cli: initialization error|Driver Not Loaded|CUDA_ERROR_NO_DEVICE|"
        r"Unexpected error from cudaGetDeviceCount|CUDA unknown error|No supported (?:CUDA )?devices? found",
        _NO_GPU,
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"exec format error|Exec format error",
        says(
            "The image is built for another processor than this one.",
            "A Spark needs arm64 (aarch64) images: choose the tag for it, or a multi-platform one.",
        ),
    ),
    rule(
        CauseId.ARCH_NOT_COMPILED,
        r"no kernel image is available|cudaErrorNoKernelImage|Value 'sm_\w{1,8}' is not defined for option|PTXASError|"
        r"No supported CUDA architectures found|only supports sm_?\d{2,4}|Unsupported gpu architecture 'compute_|"
        r"Failed to open: \S{0,300}sm_?\d{2,4}\w?_\S{0,120}|sm_?\d{2,4}a? is not supported|Illegal instruction|"
        r"is not compatible with the current PyTorch installation",
        _NOT_COMPILED,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Failed to run cutlass FP4 gemm|FP4 gemm Runner\]",
        fp4_kernel,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"Failed to find a kernel that can implement the (\w{1,20}) linear layer|No (\w{1,20}) (?:MoE backend supports|"
        r"kernel backend available)|No valid (\w{1,20}) GEMM backend|no FlashInfer (\w{1,20}) MoE backend supports|"
        r"Forced (\w{1,20}) kernel \S{1,120} is not supported|"
        r"was requested but no '[^']{1,60}' kernel exists for (\w{1,20})",
        no_kernel,
    ),
    rule(
        CauseId.NCCL,
        r"NCCL error|NCCL WARN|nccl\w{1,40}Error|DistBackendError|DistNetworkError|DistStoreError|ibv_\w{1,40} failed|"
        r"ProcessGroupNCCL|Gloo connectFullMesh failed|unhandled (?:cuda|system) error|"
        r"client socket has timed out|NET/IB : ",
        _NCCL,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"unspecified launch failure|illegal memory access|device-side assert|misaligned address|"
        r"CUBLAS_STATUS_\w{1,40}|CUDNN_STATUS_\w{1,40}|Error Internal|CUDA error: [^.]{1,80}|"
        r"CUDA driver error: [^.]{1,80}|Triton Error \[CUDA\][^.]{0,80}|cudaError\w{1,40}",
        cuda_failed,
    ),
    rule(
        CauseId.KERNEL_FAILURE,
        r"InductorError: .{0,200}|BackendCompilerFailed.{0,200}|Ninja build failed.{0,100}|"
        r"Error building extension.{0,100}|"
        r"Could not find nvcc.{0,100}|CompilationError: .{0,100}|torch\._dynamo\.exc\.\w{1,60}.{0,100}",
        compile_failed,
    ),
    rule(
        CauseId.MISSING_MODULE,
        r"were not found in your environment: ([\w., \-]{1,200})|No module named '?([\w.]{1,120})|"
        r"[Pp]lease install (?:the )?`?([\w\-.]{1,60})|pip install (?:--?[\w\-]+ )*[`'\"]?([\w\-.]{1,60})|"
        r"requires the (?!following )`?([\w\-]{1,60})`? (?:package|library)|([\w\-.]{1,60}) is not installed",
        missing_module,
    ),
    rule(CauseId.MISSING_MODULE, r"(lib[\w.+\-]{1,80}): cannot open shared object file", missing_library),
    rule(
        CauseId.MISSING_MODULE,
        r"cannot import name '([\w.]{1,120})'|undefined symbol: (\S{1,80})",
        says(
            "Two packages of the image do not fit together ({0}{1}).",
            "Use the image as it was published, without packages installed over it, or another tag.",
        ),
    ),
    rule(
        CauseId.MISSING_FILE,
        r"exec: \"?([^\":]{1,200})\"?: (?:executable file not found|stat |not found)|"
        r"([^\s:]{1,120}): command not found|"
        r"sh: (?:line \d{1,9}: |\d{1,9}: )?([^:]{1,200}): not found|/env: .?([\w.\-/]{1,100}).?: No such file|"
        r"exec ([^\s:]{1,200}): no such file",
        missing_command,
    ),
    rule(
        CauseId.MISSING_FILE,
        r"([^\s:]{1,200}): (?:cannot execute|Permission denied)(?=$|:)",
        says(
            "`{0}` cannot be run in this container.", "Check the preset's command, and that the file may be executed."
        ),
    ),
    rule(
        CauseId.MISSING_FILE,
        r"supplied chat template (?:path|string \(([^)]{1,200})\))",
        lambda match, _e: Advice(
            f"The chat template {match[1] or 'that the preset names'} is not in the container.",
            "Mount it with the preset's volumes, or leave `chat_template` out: most checkpoints bring their own.",
        ),
    ),
    rule(
        CauseId.MISSING_FILE,
        r"does not appear to have a file named ([\w.\-]{1,120})|No such file or directory: '([^']{1,300})'|"
        r"can't open file '([^']{1,300})'|no (config) file found",
        missing_file,
    ),
    rule(CauseId.MISSING_FILE, r"FileNotFoundError|No such file or directory", missing_file),
    rule(
        CauseId.KILLED,
        r"[Ww]orker proc (\S{1,60}) died unexpectedly \(exit code: (-9)\)",
        process_died,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"(?:[Ww]orker proc|RayWorkerProc) (\S{1,60}) died unexpectedly(?: \(exit code: (-?\d{1,6})\))?",
        process_died,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"RPC call to (\w{1,60}) timed out",
        says(
            "A worker stopped answering ({0} timed out).",
            "It hung or waited for another GPU: start again, with enforce_eager=true if it comes back.",
        ),
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"Fatal Python error|terminate called|[Ss]egmentation fault|Segfault|Bus error|Aborted \(core dumped\)|"
        r"panicked at|Assertion `.{1,200}' failed|GGML_ASSERT",
        _CRASHED,
    ),
    rule(
        CauseId.ENGINE_DIED,
        r"engine core exited unexpectedly|Engine core proc \S{1,60} died unexpectedly|EngineDeadError|"
        r"Received sigquit from a child|llama runner process has terminated|Executor worker returned error|"
        r"Engine core initialization failed|WorkerProc initialization failed",
        _ENGINE_DIED,
    ),
)
