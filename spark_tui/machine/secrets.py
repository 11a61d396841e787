"""Keys and tokens: read where the Hugging Face tools keep them, written to env files that only this user can read."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.files import PrivateFolder, open_plain
from spark_tui.base.secret import Secret
from spark_tui.base.text import quoted

_TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_KEY_BYTES: Final = 24
_MOST_TOKEN: Final = 4096
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BREAKS_LINE: Final = re.compile("[\x00\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

_log = logging.getLogger(__name__)


def own_secrets(ports: Any) -> FileSecrets:
    """Those of the person, in the folder for them."""
    return FileSecrets(PrivateFolder(ports.folders.secrets), ports.environ, ports.folders.home)


class FileSecrets:
    """The SecretStore port. `environ` and `home` say where the Hugging Face token is looked for."""

    def __init__(self, folder: PrivateFolder, environ: Mapping[str, str], home: Path) -> None:
        self._folder = folder
        self._environ = environ
        self._home = home

    # --- Hugging Face ---------------------------------------------------------------------------------

    def hf_token(self) -> Secret | None:
        """As huggingface_hub looks for it. A token file that cannot be read (a container that ran as root may have made
        it) is passed over and noted in the log: public models need no token."""

        def cleaned(token: str) -> str:  # as huggingface_hub does it: editors and shells add line ends
            return token.replace("\r", "").replace("\n", "").strip()

        for name in _TOKEN_VARIABLES:
            if token := cleaned(self._environ.get(name, "")):
                return Secret(token)
        for path in self._token_files:
            try:
                with open_plain(path) as file:
                    token = cleaned(file.read(_MOST_TOKEN).decode("utf-8", "replace"))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                _log.warning("The Hugging Face token in %s cannot be read: %s", path, error.strerror or error)
                continue
            if token:
                return Secret(token)
        return None

    @cached_property
    def _token_files(self) -> tuple[Path, ...]:
        files = []
        for variable, below in (("HF_TOKEN_PATH", ""), ("HF_HOME", "token"), ("XDG_CACHE_HOME", "huggingface/token")):
            given = self._environ.get(variable, "")
            if given:
                path = self._home / given[2:] if given.startswith("~/") else Path(given)
                files.append(path / below if below else path)
        return (*files, self._home / ".cache/huggingface/token")

    # --- engines --------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return self._folder.file(name, ".env")

    def api_key(self, path: str) -> Secret | None:
        """The path comes from a container's label, which anyone may have written: nothing outside our own folder is
        opened."""
        try:
            raw = self._folder.read(Path(path))
        except (OSError, ValueError) as error:
            raise SparkError(
                f"The key file {path} cannot be read: {error}.", f"Make it yours and private: chmod 600 {quoted(path)}"
            ) from error
        for line in (raw or b"").decode("utf-8", "replace").splitlines():
            name, equals, value = line.partition("=")
            if equals and name in KEY_VARIABLES and value:
                return Secret(value)
        return None

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        """Docker takes a value literally, up to the end of its line: one that holds a line break would smuggle in
        another variable and is refused (UsageError). Raises SparkError when the file cannot be written."""
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
