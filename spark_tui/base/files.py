"""Private files: written whole or not at all, readable by this user alone, never through a foreign link."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Final

from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.executors import CallPool
from spark_tui.base.ports import LogLine
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.base.secret import mask_secrets
from spark_tui.base.settings import typed_path
from spark_tui.base.text import clean_line, truncate

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
APPEND_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_CHUNK: Final = 1 << 16
MOST_ARCHIVE_BYTES: Final = 1024**3
MOST_STATE_BYTES: Final = MIB


def file_name(name: str) -> str:
    """A container's name as a file name: itself where it is a plain one, else a readable part and a fingerprint, so
    that two names never share a file."""
    if _SAFE_NAME.fullmatch(name):
        return name
    readable = _UNSAFE.sub("-", name).strip("-")[:60] or "unnamed"
    return f"{readable}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def open_plain(path: Path) -> IO[bytes]:
    """A file to read. Raises OSError, also for a pipe or a device, which are refused and not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "Not a plain file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, most: int = MIB) -> bytes:
    """All of a file. Raises OSError, also for one of more bytes."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"too large (more than {human_bytes(most)})", str(path))
    return data


def append_lines(descriptor: int, lines: bytes, *, durable: bool = True) -> int:
    """Adds whole lines to an open, locked file, all or none; returns its size then. What a crash tore off at its end
    gets a line of its own. `durable`: synced to the disk. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        lines = b"\n" + lines
    written = 0
    try:
        while written < len(lines):
            written += os.write(descriptor, lines[written:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    if durable:
        os.fsync(descriptor)
    return size + written


def end_of(path: Path, most: int) -> str:
    """The last bytes of a log, as text. Raises OSError."""
    with open_plain(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most).decode("utf-8", "replace")


def is_locked(path: Path | str) -> bool:
    """Whether a process holds this lock file now, this one included. False for an absent or unreadable file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_whole(
    path: Path,
    chunks: Iterable[bytes],
    *,
    mode: int = FILE_MODE,
    owner: tuple[int, int] | None = None,
    replace: bool = True,
) -> Path:
    """Puts a file in place in one step: a reader sees the old one or the new one. A link in its place is replaced,
    never followed. `owner`: its user and group ids; without them it is this process's.

    Raises OSError, and then nothing has changed; FileExistsError where there is a file and `replace` is false.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)  # fails where there is a file, which a rename would silently replace
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
    return path


class FileLocks:
    """The claims of this process on names in one folder; they end with it. To be used from one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def take(self, name: str) -> bool:
        """False while another process has it. Raises OSError."""
        path = self._path(name)
        while name not in self._held:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(FileNotFoundError):  # its last holder may have just removed it
                    if os.path.samestat(os.fstat(descriptor), path.lstat()):
                        self._held[name] = descriptor
                        return True
            except BlockingIOError:
                return False
            finally:
                if name not in self._held:
                    os.close(descriptor)
        return True

    def release(self, name: str) -> None:
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            self._path(name).unlink(missing_ok=True)
            os.close(descriptor)

    def release_all(self) -> None:
        for name in tuple(self._held):
            self.release(name)

    def in_use(self, name: str) -> bool:
        """Whether any process has it, this one included."""
        return name in self._held or is_locked(self._path(name))


class PrivateFolder:
    """One folder of mode 0700 with files of mode 0600, whatever the umask says."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, name: str, suffix: str = "") -> Path:
        """Where the file for `name` is, or would be."""
        return self.path / (file_name(name) + suffix)

    def write(self, path: Path, chunks: Iterable[bytes]) -> Path:
        """As `write_whole`, in a folder that is made where there is none."""
        self.prepare()
        return write_whole(path, chunks)

    def read(self, path: Path, most: int = _CHUNK) -> bytes | None:
        """A file directly in this folder, of this user, and no link; None when there is none such.

        Raises OSError when there is one that cannot be read.
        """
        if Path(os.path.normpath(path)).parent != Path(os.path.normpath(self.path)):
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            if path.is_symlink():
                return None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), os.getuid()):
                return None
            return os.read(descriptor, most)
        finally:
            os.close(descriptor)

    def prepare(self) -> None:
        """Makes the folder, and private. Raises OSError."""
        self.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        status = self.path.stat()
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            raise PermissionError(1, "this folder belongs to another user", str(self.path))
        if stat.S_IMODE(status.st_mode) != FOLDER_MODE:
            self.path.chmod(FOLDER_MODE)


class FileLogArchive:
    """The LogArchive port: one private file per saved log, named after the container and the time (UTC).

    When all together are more than `most_bytes`, the oldest go; the newest always stays.
    """

    def __init__(
        self, folder: Path, *, now: Callable[[], float] = time.time, most_bytes: int = MOST_ARCHIVE_BYTES
    ) -> None:
        self._folder = PrivateFolder(folder)
        self._now = now
        self._most_bytes = most_bytes

    def save(self, name: str, lines: Sequence[LogLine]) -> Path:
        """Lines are kept as the container wrote them, with Docker's time in front. Only secrets are masked."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now()))
        path = self._folder.file(name, f"-{stamp}.log")
        number = 1
        while path.exists():
            number += 1
            path = self._folder.file(name, f"-{stamp}-{number}.log")
        self._folder.write(
            path, (f"{at} {mask_secrets(text)}\n".lstrip(" ").encode("utf-8", "backslashreplace") for at, text in lines)
        )
        found = [(each.stat().st_mtime, each.stat().st_size, each) for each in self._folder.path.glob("*.log")]
        total = sum(size for _, size, _ in found)
        for _, size, old in sorted(found):
            if total > self._most_bytes and old != path:
                old.unlink(missing_ok=True)
                total -= size
        return path


class StateFolder:
    """The StateFiles port in one private folder. Claims are the kernel's: they end with the process that made them."""

    def __init__(self, folder: Path) -> None:
        self._folder = PrivateFolder(folder)
        self._claims = FileLocks(folder)

    def read(self, name: str) -> bytes | None:
        path = self._folder.file(name, ".json")
        try:
            return self._folder.read(path, MOST_STATE_BYTES)
        except OSError as error:
            raise _unreadable(path, error) from error

    def path(self, name: str) -> str:
        return str(self._folder.file(name, ".json"))

    def write(self, name: str, data: bytes) -> None:
        path = self._folder.file(name, ".json")
        try:
            self._folder.write(path, (data,))
            self._sync()
        except OSError as error:
            raise SparkError(f"Cannot write {path}: {error.strerror or error}.", "Free space on that disk.") from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._folder.file(name, ".json").unlink(missing_ok=True)

    def names(self, prefix: str) -> tuple[str, ...]:
        return self._listed(prefix, ".json")

    def claimed(self, prefix: str) -> tuple[str, ...]:
        return tuple(name for name in self._listed(prefix, ".lock") if self._claims.in_use(name))

    def _listed(self, prefix: str, suffix: str) -> tuple[str, ...]:
        try:
            found = os.listdir(self._folder.path)  # noqa: PTH208 - a glob of pathlib's hides what cannot be listed
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise _unreadable(self._folder.path, error) from error
        return tuple(sorted(n.removesuffix(suffix) for n in found if n.startswith(prefix) and n.endswith(suffix)))

    def claim(self, name: str) -> bool:
        file = self._folder.file(name).name
        try:
            self._folder.prepare()
            return not self._claims.in_use(file) and self._claims.take(file)
        except OSError as error:
            place = self._folder.path
            raise SparkError(f"Cannot lock {place}: {error.strerror or error}.", "Free space on that disk.") from error

    def release(self, name: str) -> None:
        self._claims.release(self._folder.file(name).name)

    def _sync(self) -> None:
        """The folder too: a file that was just put in place is found after a power cut."""
        descriptor = os.open(self._folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> SparkError:
    return SparkError(
        f"Cannot read {path}: {error.strerror or error}.", "Make it readable for your user, or delete it."
    )


class ScreenFolder:
    """The ScreenFiles port. A name may begin with a folder: `screenshots/home.svg`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self._folder / name
        return PrivateFolder(path.parent).write(path, (text.encode("utf-8", "replace"),))

    def read(self, name: str) -> str | None:
        path = self._folder / name
        raw = PrivateFolder(path.parent).read(path, 1 << 24)
        return None if raw is None else raw.decode("utf-8", "replace")


class SystemUserFiles:
    """The UserFiles port. Relative paths start in the working directory, `~` is `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._pool = CallPool("user-files", 1)

    async def read(self, path: str, most: int) -> bytes:
        return await self._pool.run(self._read, path, most)

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        return await self._pool.run(self._write, path, text, replace)

    async def close(self) -> None:
        self._pool.close()

    def _read(self, path: str, most: int) -> bytes:
        place, shown = typed_path(path, self._home), truncate(clean_line(path), 200)
        try:
            return read_plain(place, most)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise RefusedError(f"{shown} is {error.strerror}.", "Choose a smaller file.") from None
            raise UsageError(f"{shown} cannot be read: {error.strerror or error}.", "Check its name.") from error

    def _write(self, path: str, text: str, replace: bool) -> str:
        place, shown = typed_path(path, self._home), truncate(clean_line(path), 200)
        if place.is_dir():
            raise UsageError(f"{shown} is a folder.", "Name a file in it.")
        try:
            write_whole(place, (text.encode("utf-8", "replace"),), replace=replace)
        except FileExistsError:
            raise RefusedError(f"{shown} already exists.", "Choose another name.") from None
        except OSError as error:
            raise SparkError(f"Cannot write {shown}: {error.strerror or error}.", "Choose another place.") from error
        return str(place)
