"""The running program with everything it needs, packed for another machine: no package index is asked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shlex
import tarfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

import spark_tui
from spark_tui import __version__
from spark_tui.manage.cluster.use.install import InstallFailed, ProgramBundle, ProgramPart

_NAME: Final = "spark-tui"
_PACKAGE: Final = Path(spark_tui.__file__).resolve().parent
_INSTALLER: Final = Path(__file__).with_name("bundle_installer.py")
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?", re.DOTALL)
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_LEFT_OUT: Final = ("direct_url.json", "RECORD", "INSTALLER", "REQUESTED")
"""Of `*.dist-info`: how it was installed on this machine, which may name private addresses."""
# bash reads a script from a pipe byte by byte, so what follows the first line is left to Python.
_SHELL: Final = """exec "$python" -I -c 'import sys; exec(sys.stdin.buffer.read({size}).decode())'\n"""

Files = dict[str, bytes]
"""The content of each file, by its path below site-packages."""


class InstalledProgram:
    """The ProgramSource port. `presets` is the folder of the built-in ones."""

    def __init__(self, presets: Path) -> None:
        self._presets = presets

    def pack(self) -> ProgramBundle:
        needed, files = _needed(), Files()
        for key, distribution in needed.items():
            files |= self._own(distribution) if key == _NAME else _files(distribution)
        return _bundle(tuple(map(_part, needed.values())), files)

    def _own(self, distribution: metadata.Distribution) -> Files:
        """What runs now, from a checkout too: the package, its presets, and what names its command."""
        info = f"spark_tui-{__version__}.dist-info"
        files: Files = {}
        for text in ("METADATA", "WHEEL", "entry_points.txt"):
            if content := distribution.read_text(text):
                files[f"{info}/{text}"] = content.encode()
        for root, below in ((_PACKAGE, "spark_tui"), (self._presets, "spark_tui/_presets")):
            for path in sorted(root.rglob("*")):
                inside = path.relative_to(root)
                if path.is_file() and _wanted(PurePosixPath(inside)):
                    files[f"{below}/{inside.as_posix()}"] = path.read_bytes()
        return files


def _needed() -> dict[str, metadata.Distribution]:
    """The installed distributions that the program requires, by normalized name, with itself. A requirement that is not
    installed is one for other systems, or the router for replicas, which is optional."""
    try:
        found = {_NAME: metadata.distribution(_NAME)}
    except metadata.PackageNotFoundError:
        raise InstallFailed(
            "This spark-tui runs without being installed: its requirements are unknown.",
            f"Install it here first: pip install {shlex.quote(str(_PACKAGE.parent))}",
        ) from None
    done, wanted = set[tuple[str, str]](), [(_NAME, ""), (_NAME, "router")]
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        for text in found[name].requires or ():
            match = _REQUIREMENT.match(text)
            extras = _EXTRA.findall(text)
            if match is None or (extra not in extras if extras else extra):
                continue
            key = re.sub(r"[-_.]+", "-", match[1]).lower()
            try:
                found.setdefault(key, metadata.distribution(match[1]))
            except metadata.PackageNotFoundError:
                continue
            wanted += [(key, each.strip()) for each in ("", *(match[2] or "").split(","))]
    return found


def _files(distribution: metadata.Distribution) -> Files:
    """A dependency's files. Scripts are left out: spark-tui runs none. Raises InstallFailed where they are unknown."""
    name, editable = distribution.name, '"editable": true' in (distribution.read_text("direct_url.json") or "")
    if distribution.files is None or editable:
        raise InstallFailed(
            f"{name} is installed {'editable' if editable else 'without a list of its files'}: it cannot be copied.",
            "Install spark-tui into a virtual environment of its own with pip, uv or pipx.",
        )
    paths = ((each, Path(str(each.locate()))) for each in distribution.files if _wanted(each))
    return {str(each): path.read_bytes() for each, path in paths if path.is_file()}


def _part(distribution: metadata.Distribution) -> ProgramPart:
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))
    return ProgramPart(distribution.name, distribution.version, tags)


def _wanted(path: PurePosixPath) -> bool:
    """Files of packages: none outside, none compiled by this Python, none hidden."""
    inside = ".." not in path.parts and not path.is_absolute()
    own = path.parent.suffix == ".dist-info" and path.name in _LEFT_OUT
    hidden = any(part.startswith(".") for part in path.parts)
    return inside and not own and not hidden and "__pycache__" not in path.parts and path.suffix != ".pyc"


def _bundle(parts: Sequence[ProgramPart], files: Files) -> ProgramBundle:
    """The same files give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    plain = packed.getvalue()
    tops = (PurePosixPath(name).parts[0] for name in files if name.endswith(".so"))
    header = {
        "version": __version__,
        "digest": hashlib.sha256(plain).hexdigest()[:12],
        "files": len(files),
        "compiled": sorted({top.partition(".")[0] for top in tops if not top.endswith(".libs")}),
    }
    installer = _INSTALLER.read_bytes()
    head = _SHELL.format(size=len(installer)).encode() + installer + json.dumps(header).encode() + b"\n"
    unpacked = sum(map(len, files.values()))
    return ProgramBundle(__version__, tuple(parts), unpacked, head + gzip.compress(plain, 6, mtime=0))
