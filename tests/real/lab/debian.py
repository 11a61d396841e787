"""Programs and root file systems out of Debian packages, unpacked into the lab's folder.

Nothing is installed: no package's set-up script runs, so no service starts and the machine stays as it is.
Mirror, suite, keys and proxy are the machine's own, because its own apt does the work.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.lab.support import LabFailed, LabUnavailable, Say, fresh_folder, run

APT = Path("/etc/apt")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

PROGRAMS = {
    "dockerd": ("docker.io",),
    "docker": ("docker-cli", "docker.io"),
    "docker-proxy": ("docker.io",),
    "containerd": ("containerd",),
    "containerd-shim-runc-v2": ("containerd",),
    "runc": ("runc",),
    "ip": ("iproute2",),
    "docker-registry": ("docker-registry",),
    "busybox": ("busybox-static",),
}
"""What the lab runs, and the packages that bring it: the first that the distribution knows is taken."""

NODE_PROGRAMS = {
    "ssh": ("openssh-client",),
    "sshd": ("openssh-server",),
    "ping": ("iputils-ping",),
    "rsync": ("rsync",),
    "ethtool": ("ethtool",),
    "iperf3": ("iperf3",),
}
"""What a node of the rig has besides, in the same way."""

DOCUMENTATION = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info", "./usr/share/perl")
"""Left out of every unpacked package."""

MERGED = ("bin", "sbin", "lib", "lib64")
"""Links into /usr on today's distributions; packages still name both places."""

C_LIBRARY = ("libc6_", "libc-bin_")
"""A root file system needs it; in a toolbox a second one would break the machine's own loader."""

SET_UP_ONLY = ("perl", "usrmerge_", "debconf_", "init-system-helpers_")
"""Dependencies that only the set-up scripts of packages need."""


def require_machine() -> None:
    """`LabUnavailable` where the lab cannot run at all."""
    if os.uname().sysname != "Linux":
        raise LabUnavailable("the lab needs Linux; run it on a Debian or Ubuntu machine or virtual machine")
    if os.geteuid() != 0:
        raise LabUnavailable("a private Docker engine needs root; run it with sudo, or as root in a container or VM")
    missing = [name for name in ("apt-get", "dpkg-deb", "tar") if shutil.which(name) is None]
    if missing:
        raise LabUnavailable(f"{', '.join(missing)} not found; the lab needs Debian or Ubuntu, whose packages it uses")


def download(packages: Sequence[str], into: Path, say: Say, *, installed: Path | None = None) -> list[Path]:
    """The packages and whatever they need beyond what is installed, as .deb files.

    `installed` is a dpkg status file; an empty one asks for everything down to the C library.
    """
    fresh_folder(into / "partial")
    options = [
        "Debug::NoLocking=1",
        "APT::Install-Recommends=0",
        "APT::Sandbox::User=root",
        f"Dir::Cache::archives={into}",
    ]
    if installed is not None:
        options.append(f"Dir::State::status={installed}")
    flags = [word for option in options for word in ("-o", option)]
    fetch = ["apt-get", *flags, "-y", "-q", "--download-only", "--reinstall", "install", *packages]
    try:
        run(fetch, env=apt_environ())
    except LabFailed:
        update_lists(say)
        try:
            run(fetch, env=apt_environ())
        except LabFailed as error:
            raise LabUnavailable(f"apt-get cannot fetch {' '.join(packages)}: {error}") from error
    return sorted(into.glob("*.deb"))


def download_of(suite: str, package: str, folder: Path) -> Path:
    """One package of another suite of Debian, without what it needs: from the machine's own mirrors, with its keys and
    proxy, by lists that are kept in `folder`. `LabUnavailable` where they do not have it."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME", "no codename")
    for name in ("sources", "lists/partial", "archives/partial"):
        fresh_folder(folder / name)
    for at, source in enumerate([APT / "sources.list", *sorted((APT / "sources.list.d").iterdir())]):
        text = source.read_text("utf-8") if source.suffix in (".list", ".sources") and source.is_file() else ""
        if own in text:
            (folder / "sources" / f"{at}{source.suffix}").write_text(re.sub(rf"\b{own}\b", suite, text), "utf-8")
    (folder / "status").touch()
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": folder / "sources",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    try:
        run(["apt-get", *flags, "-q", "update"], env=apt_environ())
        run(["apt-get", *flags, "-q", "download", package], env=apt_environ(), cwd=folder / "archives")
    except LabFailed as error:
        raise LabUnavailable(f"apt-get cannot fetch {package} of {suite}: {error}") from error
    return next((folder / "archives").glob("*.deb"))


def apt_environ() -> dict[str, str]:
    """apt asks nothing and speaks English."""
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def update_lists(say: Say) -> None:
    """Refreshes the machine's package lists."""
    say("the package lists are missing or old: apt-get update")
    try:
        run(["apt-get", "-q", "update"], env=apt_environ())
    except LabFailed as error:
        raise LabUnavailable(f"apt-get cannot refresh its lists; is the network there? {error}") from error


def unpack(archives: Sequence[Path], into: Path, *, c_library: bool) -> None:
    """Unpacks packages into a root with a merged /usr."""
    for name in MERGED:
        (into / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (into / name).is_symlink():
            (into / name).symlink_to(f"usr/{name}")
    skipped = SET_UP_ONLY if c_library else SET_UP_ONLY + C_LIBRARY
    excludes = [f"--exclude={path}" for path in DOCUMENTATION]
    for archive in archives:
        if archive.name.startswith(skipped):
            continue
        extract = ["tar", "-x", "-C", str(into), "--keep-directory-symlink", *excludes]
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as source:
            unpacked = subprocess.run(extract, stdin=source.stdout, check=False)
        if source.returncode or unpacked.returncode:
            raise LabFailed(f"{archive.name} does not unpack")


def known(package: str) -> bool:
    """Whether the distribution has the package."""
    done = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    return done.returncode == 0 and bool(done.stdout)


def packages_for(choices: Iterable[Sequence[str]], say: Say) -> list[str]:
    """The distribution's package of each choice."""
    if not known("docker.io"):
        update_lists(say)
    return sorted({next((name for name in names if known(name)), names[-1]) for names in choices})


def is_static(program: Path) -> bool:
    """Whether a program needs no loader, and so runs in an empty container."""
    with program.open("rb") as file:
        return b"/ld-" not in file.read(4096)


@dataclass(frozen=True)
class Toolbox:
    """The programs of the lab: the machine's own where it has them, unpacked packages where not."""

    root: Path
    programs: Mapping[str, Sequence[str]] = field(default_factory=lambda: PROGRAMS)

    def path(self) -> str:
        """PATH for the lab's programs: the machine's first, then the toolbox."""
        own = [str(self.root / "usr" / folder) for folder in ("sbin", "bin")]
        return os.pathsep.join([*SYSTEM_PATH, *own])

    def environ(self) -> dict[str, str]:
        """The environment for the lab's programs, free of the user's own Docker settings."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
        env["PATH"] = self.path()
        libraries = sorted({str(path.parent) for path in (self.root / "usr" / "lib").glob("**/*.so.*")})
        if libraries:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        return env

    def find(self, program: str) -> Path | None:
        """Where a program is, or None."""
        found = shutil.which(program, path=self.path())
        return None if found is None else Path(found)

    def need(self, program: str) -> Path:
        """Where a program is; `LabUnavailable` where it is not."""
        found = self.find(program)
        if found is None:
            raise LabUnavailable(f"{program} not found; bring the lab up first: python -m tests.real.lab up")
        return found

    def busybox(self) -> Path:
        """A busybox without a loader."""
        own = self.root / "usr" / "bin" / "busybox"
        candidates = [own, *(Path(folder) / "busybox" for folder in SYSTEM_PATH)]
        for path in candidates:
            if path.is_file() and is_static(path):
                return path
        raise LabUnavailable("no statically linked busybox; bring the lab up first: python -m tests.real.lab up")

    def missing(self) -> list[str]:
        """The programs that have to be fetched."""
        absent = [name for name in self.programs if name != "busybox" and self.find(name) is None]
        try:
            if "busybox" in self.programs:
                self.busybox()
        except LabUnavailable:
            absent.append("busybox")
        return absent

    def ensure(self, say: Say) -> None:
        """Fetches what is missing."""
        require_machine()
        missing = self.missing()
        if not missing:
            return
        packages = packages_for([self.programs[name] for name in missing], say)
        say(f"fetching {', '.join(missing)} out of Debian packages ({' '.join(packages)}); nothing is installed")
        archives = download(packages, self.root / "packages", say)
        unpack(archives, self.root, c_library=False)
        shutil.rmtree(self.root / "packages")
        still = self.missing()
        if still:
            raise LabUnavailable(f"the packages {' '.join(packages)} did not bring {', '.join(still)}")
