"""`--env-file`: the file is read here, so that keys travel in the request and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spark_tui.domain.errors import DockerError


def read_env_file(path: str, environ: Mapping[str, str]) -> list[str]:
    """`NAME=value` entries, by the docker program's rules: no quoting, `#` begins a comment line, a bare NAME takes
    its value from `environ` and is left out where that has none. Raises DockerError, which never shows a value.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DockerError(
            f"The environment file {path} cannot be read.",
            "Launch the preset again, which writes it anew; or check its owner and mode.",
            detail=f"{type(error).__name__}: {error.strerror}",
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, content[: error.start].count(b"\n") + 1, "is not UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        entry = _entry(line.removesuffix("\r").lstrip(), environ)
        if entry is None:
            raise _bad(path, number, "has no name, or a blank or NUL in it")
        if entry:
            entries.append(entry)
    return entries


def _entry(line: str, environ: Mapping[str, str]) -> str | None:
    """`NAME=value`; empty for what says nothing, None for what cannot be read."""
    if not line or line.startswith("#"):
        return ""
    name, equals, _ = line.partition("=")
    if not name or "\0" in line or any(char.isspace() for char in name):
        return None
    if equals:
        return line
    return f"{name}={environ[name]}" if name in environ else ""


def _bad(path: str, line: int, what: str) -> DockerError:
    return DockerError(f"{path}, line {line}, {what}.", "Each line has to be NAME=value, without quotes.")
