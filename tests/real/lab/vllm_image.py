"""An image that behaves like vllm/vllm-openai, with vLLM for CPUs inside, and a twin that behaves like NVIDIA's.

Both share every layer; they differ in their entrypoint: `vllm serve` in one, a script that runs its arguments in
the other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.real.lab import debian
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.images import GROUPS, architecture
from tests.real.lab.support import LabFailed, LabUnavailable, Say, fingerprint, fresh_folder, remove_tree, run, tail
from tests.real.lab.wheels import install_wheels

VERSION = "0.32.0"
SERVE_TAG = f"spark-tui/vllm-cpu:{VERSION}"
SHELL_TAG = f"spark-tui/vllm-cpu-shell:{VERSION}"
PYTHON_TAG = "spark-tui/python:1"
RECIPE_LABEL = "spark-tui-lab.recipe"

REQUIREMENTS = Path(__file__).with_name("requirements-vllm-cpu.txt")
TORCH = "torch==2.13.0"
NO_MATCH = "No matching distribution found"

ROOT_PACKAGES = ("python3", "bash", "dash", "coreutils", "util-linux", "grep", "sed", "libstdc++6", "libnuma1")
"""vLLM asks lscpu (util-linux) for the cores; its kernels link against libnuma."""

TRIMMED = ("torch/include", "torch/test", "torch/bin/protoc*", "torch/bin/test_*", "triton", "bin")
"""What no server needs, 400 MB with its .pyc files."""

PASSWD = b"root:x:0:0:root:/root:/bin/bash\n"

VLLM_SCRIPT = """\
#!/usr/bin/python3
import sys

from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
"""

METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
"""The package is called vllm-cpu, but its command line asks for the version of a distribution called vllm."""

SHELL_ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"
SHELL_SCRIPT = """\
#!/bin/bash
echo "== vLLM (CPU), shell entrypoint =="
if [ $# -eq 0 ]; then
  exec /bin/bash
fi
exec "$@"
"""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Containers of the lab have no way out: nothing may wait for an answer from the internet."""

SERVE_CHANGES = ('ENTRYPOINT ["vllm","serve"]', "CMD []", "WORKDIR /vllm-workspace")
SHELL_CHANGES = (f'ENTRYPOINT ["{SHELL_ENTRYPOINT}"]', 'CMD ["/bin/bash"]', "WORKDIR /workspace")

NEEDED_BYTES = 8 * 1024**3
"""The root file system, its copy in the engine, the models, and pip's temporary files."""


def recipe() -> str:
    """The fingerprint of everything that decides what is in the image."""
    return fingerprint(
        REQUIREMENTS.read_bytes(),
        *(TORCH, architecture(), VLLM_SCRIPT, METADATA, SHELL_SCRIPT, str(ENVIRONMENT)),
        *(*ROOT_PACKAGES, *TRIMMED, *SERVE_CHANGES, *SHELL_CHANGES),
    )


def ensure_vllm_images(engine: PrivateEngine, scratch: Path, say: Say) -> None:
    """Builds what is missing or stale of the two images; seconds when nothing is."""
    wanted = recipe()
    if engine.image_label(SERVE_TAG, RECIPE_LABEL) != wanted:
        free = shutil.disk_usage(scratch.parent).free
        if free < NEEDED_BYTES:
            raise LabUnavailable(
                f"{free / 1e9:.0f} GB free in {scratch.parent}, {NEEDED_BYTES / 1e9:.0f} GB needed to build the vLLM "
                "image; free some, or name another folder in SPARK_TUI_LAB"
            )
        RootFs(fresh_folder(scratch), say).build()
        say(f"importing {SERVE_TAG} into the engine")
        import_root(engine, scratch / "root", SERVE_TAG, [*SERVE_CHANGES, f"LABEL {RECIPE_LABEL}={wanted}"])
        remove_tree(scratch)
    if engine.image_label(SHELL_TAG, RECIPE_LABEL) != wanted:
        say(f"deriving {SHELL_TAG}: the same layers, a shell as its entrypoint")
        derive(engine, SERVE_TAG, SHELL_TAG, SHELL_CHANGES)


def ensure_python(engine: PrivateEngine, scratch: Path, say: Say) -> None:
    """An image with Debian's Python alone: half a minute the first time."""
    if not engine.docker("images", "--quiet", PYTHON_TAG):
        say("fetching python3 and its dependencies for an image")
        import_root(engine, unpack_root(("python3",), scratch, say), PYTHON_TAG, ())


def unpack_root(packages: Sequence[str], scratch: Path, say: Say) -> Path:
    """Debian packages and all that they need, unpacked into `scratch`/root."""
    nothing = scratch / "nothing-installed"
    nothing.touch()
    archives = debian.download(packages, scratch / "packages", say, installed=nothing)
    debian.unpack(archives, scratch / "root", c_library=True)
    return scratch / "root"


def import_root(engine: PrivateEngine, root: Path, tag: str, changes: Sequence[str]) -> None:
    """A root file system becomes an image of one layer."""
    environment = [f"ENV {key}={value}" for key, value in ENVIRONMENT.items()]
    flags = [word for change in [*environment, *changes] for word in ("--change", change)]
    with subprocess.Popen(["tar", "--numeric-owner", "-C", root, "-c", "."], stdout=subprocess.PIPE) as source:
        done = subprocess.run(
            ["docker", "import", *flags, "-", tag],
            env=engine.environ(),
            stdin=source.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    if source.returncode or done.returncode:
        raise LabFailed(f"docker import of {tag} failed:\n{tail(done.stderr)}")


def derive(engine: PrivateEngine, base: str, tag: str, changes: Sequence[str]) -> None:
    """An image with another configuration on the same layers. No builder is needed, which not every engine has."""
    container = engine.docker("create", "--network", "none", base)
    try:
        flags = [word for change in changes for word in ("--change", change)]
        engine.docker("commit", *flags, container, tag)
    finally:
        engine.docker("rm", container)


@dataclass(frozen=True)
class RootFs:
    """The image's content while it is put together in `scratch`/root."""

    scratch: Path
    say: Say

    @property
    def root(self) -> Path:
        return self.scratch / "root"

    def build(self) -> None:
        """Debian's Python, the wheels, what makes them look like an image of vLLM, and their .pyc files."""
        self._unpack_debian()
        python = self._python_version()
        packages = self.root / "usr" / "local" / "lib" / f"python{python}" / "dist-packages"
        packages.mkdir(parents=True)
        self._install(packages, python)
        self._write_scripts(packages)
        self.say("compiling Python files, so that containers start fast")
        self._compile(packages)

    def _unpack_debian(self) -> None:
        self.say(f"fetching {', '.join(ROOT_PACKAGES)} and their dependencies for the image")
        unpack_root(ROOT_PACKAGES, self.scratch, self.say)

    def _python_version(self) -> str:
        links = [path.name.removeprefix("python") for path in (self.root / "usr" / "bin").glob("python3.*")]
        version = next((name for name in links if name.count(".") == 1), None)
        if version is None:
            raise LabFailed(f"no python3.N in {self.root}/usr/bin")
        return version

    def _install(self, packages: Path, python: str) -> None:
        pins = len([line for line in REQUIREMENTS.read_text().splitlines() if "==" in line])
        self.say(f"installing {TORCH} and {pins} other wheels for Python {python}")
        torch, others = self.scratch / "torch", self.scratch / "others"
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(self._install_torch, torch, python),
                pool.submit(install_wheels, ["-r", REQUIREMENTS], others, python=python, scratch=self.scratch / "tmp"),
            ]
            for job in jobs:
                job.result()
        for source in (others, torch):
            for entry in source.iterdir():
                if not (packages / entry.name).exists():
                    entry.rename(packages / entry.name)
        for pattern in TRIMMED:
            for path in packages.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _install_torch(self, target: Path, python: str) -> None:
        scratch = self.scratch / "tmp-torch"
        try:
            install_wheels([f"{TORCH}+cpu"], target, python=python, scratch=scratch)
        except LabFailed as error:
            if NO_MATCH not in str(error):
                raise
            self.say(
                f"{TORCH}+cpu is not to be had from this machine's package index: taking the plain {TORCH}. Where that "
                "is a CUDA build, it brings some GB of libraries that nothing uses; pip's own settings "
                "(PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) can name a place that has the CPU build"
            )
            install_wheels([TORCH, "-c", REQUIREMENTS], target, python=python, scratch=scratch, dependencies=True)

    def _write_scripts(self, packages: Path) -> None:
        write_executable(self.root / "usr/local/bin/vllm", VLLM_SCRIPT)
        write_executable(self.root / SHELL_ENTRYPOINT.lstrip("/"), SHELL_SCRIPT)
        described = packages / f"vllm-{VERSION}+cpu.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(METADATA)
        (described / "RECORD").touch()
        (self.root / "etc/passwd").write_bytes(PASSWD)
        (self.root / "etc/group").write_bytes(GROUPS)
        for folder in ("vllm-workspace", "workspace", "root/.cache"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def _compile(self, packages: Path) -> None:
        # compileall's own workers need /dev/shm, which a bare root does not have.
        workers = os.cpu_count() or 1
        folders = sorted((path for path in packages.iterdir() if path.is_dir()), key=python_bytes, reverse=True)
        inside = [f"/{folder.relative_to(self.root)}" for folder in folders]
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._compile_folders, [inside[start::workers] for start in range(workers)]))

    def _compile_folders(self, folders: Sequence[str]) -> None:
        # It ends with an error where a package carries a template or a test that is no Python; those stay as they are.
        command = ["chroot", str(self.root), "/usr/bin/python3", "-m", "compileall", "-qq", *folders]
        subprocess.run(command, capture_output=True, check=False)


def python_bytes(folder: Path) -> int:
    """How much there is to compile in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.py"))


def write_executable(path: Path, text: str) -> None:
    """A script with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def image_size(engine: PrivateEngine, tag: str) -> int:
    """An image's size in bytes."""
    return int(run(["docker", "image", "inspect", "--format", "{{.Size}}", tag], env=engine.environ()))
