"""Small images made here: a busybox, and a layered one for watching a pull."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import random
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.real.lab.debian import Toolbox
from tests.real.lab.engine import EngineClient, PrivateEngine
from tests.real.lab.support import run

BUSYBOX = PrivateEngine.busybox
LAYERED = "spark-tui/layered:1"

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Docker's names for machines."""

USERS = b"root:x:0:0:root:/root:/bin/sh\n"
GROUPS = b"root:x:0:\n"


def architecture() -> str:
    """This machine in Docker's words."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def ensure_busybox(engine: EngineClient, toolbox: Toolbox, tag: str = BUSYBOX) -> None:
    """An image with a shell and the usual small programs: 2 MB, starts in well under a second."""
    if not engine.docker("images", "--quiet", tag):
        engine.docker("load", stdin=image_archive([busybox_layer(toolbox)], {"Cmd": ["sh"]}, tag))


def ensure_layered(
    engine: PrivateEngine, toolbox: Toolbox, sizes: Sequence[int], tag: str = LAYERED, *, seed: int = 1
) -> None:
    """A busybox with one more layer of each size in bytes. Their bytes do not compress, so a pull moves them all."""
    if engine.docker("images", "--quiet", tag):
        return
    noise = random.Random(seed)
    extra = [layer({f"data/{number}": noise.randbytes(size)}) for number, size in enumerate(sizes)]
    engine.docker("load", stdin=image_archive([busybox_layer(toolbox), *extra], {"Cmd": ["sh"]}, tag))


def busybox_layer(toolbox: Toolbox) -> bytes:
    """A root file system of one program under all its names."""
    program = toolbox.busybox()
    names = [name for name in run([program, "--list"]).split() if name != "busybox"]
    return layer(
        {"bin/busybox": program.read_bytes(), "etc/passwd": USERS, "etc/group": GROUPS},
        links={f"bin/{name}": "busybox" for name in names},
        folders=("bin", "etc", "root", "tmp", "proc", "sys", "dev"),
    )


def layer(files: Mapping[str, bytes], *, links: Mapping[str, str] | None = None, folders: Sequence[str] = ()) -> bytes:
    """A tar of folders, executable files and symbolic links."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def image_archive(layers: Sequence[bytes], config: Mapping[str, Any], tag: str) -> bytes:
    """What `docker load` reads: layers, an image configuration, and a manifest that binds them."""
    image = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]},
        "history": [{"created_by": "spark-tui lab"} for _ in layers],
    }
    description = json.dumps(image).encode()
    tars = {f"layer{number}.tar": data for number, data in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": list(tars)}]
    files = {"config.json": description, "manifest.json": json.dumps(manifest).encode(), **tars}
    return gzip.compress(layer(files), compresslevel=1)
