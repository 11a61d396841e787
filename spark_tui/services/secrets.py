"""Keys and tokens: read where the Hugging Face tools keep them, written to env files that only this user can read."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from spark_tui.domain.engine.runtimes import KEY_VARIABLES
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.secret import Secret

_TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_KEY_BYTES: Final = 24
_MOST_TOKEN: Final = 4096
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BREAKS_LINE: Final = re.compile("[\x00\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

_log = logging.getLogger(__name__)


class Folder(Protocol):
    """Private files, as `services.files.PrivateFolder` keeps them."""

    def file(self, name: str, suffix: str = "") -> Path:
        """Where the file for `name` is, or would be."""

    def write(self, path: Path, chunks: Iterable[bytes]) -> Path:
        """Puts a private file in place; raises OSError."""

    def read(self, path: Path) -> bytes | None:
        """A file directly in the folder, or None; raises OSError."""


class FileSecrets:
    """The SecretStore port. `environ` and `home` say where the Hugging Face token is looked for."""

    def __init__(self, folder: Folder, environ: Mapping[str, str], home: Path) -> None:
        self._folder = folder
        self._environ = environ
        self._home = home

    # --- Hugging Face ---------------------------------------------------------------------------------

    def hf_token(self) -> Secret | None:
        """The Hugging Face token: environment first, then the token files, as huggingface_hub looks for it.

        A token file that cannot be read (a container that ran as root may have made it) is passed over and noted in
        the log: public models need no token.
        """
        for name in _TOKEN_VARIABLES:
            token = _stripped(self._environ.get(name, ""))
            if token:
                return Secret(token)
        for path in self._token_files():
            token = _stripped(_token_in(path))
            if token:
                return Secret(token)
        return None

    def _token_files(self) -> Iterator[Path]:
        given = self._environ.get("HF_TOKEN_PATH", "")
        if given:
            yield self._expanded(given)
        for variable, below in (("HF_HOME", ""), ("XDG_CACHE_HOME", "huggingface")):
            folder = self._environ.get(variable, "")
            if folder:
                yield self._expanded(folder) / below / "token"
        yield self._home / ".cache/huggingface/token"

    def _expanded(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    # --- engines --------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """Where the env file of the container `name` is, or would be."""
        return self._folder.file(name, ".env")

    def api_key(self, path: str) -> Secret | None:
        """The engine key kept in an env file that we wrote, or None.

        The path comes from a container's label, which anyone may have written: nothing outside our own folder is
        opened.
        """
        try:
            raw = self._folder.read(Path(path))
        except (OSError, ValueError) as error:
            raise SparkError(
                f"The key file {path} cannot be read: {error}.", f"Make it yours and private: chmod 600 {path}"
            ) from error
        for line in (raw or b"").decode("utf-8", "replace").splitlines():
            name, equals, value = line.partition("=")
            if equals and name in KEY_VARIABLES and value:
                return Secret(value)
        return None

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        """Writes `NAME=value` lines to a private file for the container `name` and returns its path.

        Docker takes a value as it stands, up to the end of its line: one that holds a line break would smuggle in
        another variable and is refused (UsageError). Raises SparkError when the file cannot be written.
        """
        lines = [_line(variable, value) for variable, value in values.items()]
        path = self.path(name)
        try:
            return self._folder.write(path, lines)
        except OSError as error:
            raise SparkError(
                f"The key file {path} cannot be written: {error.strerror or error}.",
                f"Make {path.parent} a folder of yours with room on its disk.",
            ) from error

    def new_key(self) -> Secret:
        """A fresh random API key."""
        return Secret(secrets.token_hex(_KEY_BYTES))


def _line(variable: str, value: Secret) -> bytes:
    if not _VARIABLE.fullmatch(variable):
        raise UsageError(f"{variable!r} cannot name an environment variable.", "Use letters, digits and underscores.")
    if _BREAKS_LINE.search(value.reveal()):
        raise UsageError(f"The value of {variable} holds a line break.", "Enter it again, as one line.")
    try:
        return f"{variable}={value.reveal()}\n".encode()
    except UnicodeEncodeError:
        raise UsageError(f"The value of {variable} is not UTF-8 text.", "Enter it again.") from None


def _token_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_TOKEN).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        _log.warning("The Hugging Face token in %s cannot be read: %s", path, error.strerror or error)
        return ""


def _stripped(token: str) -> str:
    """As huggingface_hub cleans it: editors and shells add line ends."""
    return token.replace("\r", "").replace("\n", "").strip()
