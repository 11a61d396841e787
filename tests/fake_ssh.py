"""A program named `ssh`: it keeps how it was called, and answers for each destination as a test has written."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

_PROGRAM = """#!/bin/sh
# One argument a line would be broken by line breaks in them: each is ended by a NUL.
printf '%s\\0' "$@" > "{folder}/calls/$$.tmp"
env > "{folder}/environment"
mv "{folder}/calls/$$.tmp" "{folder}/calls/$$"
while [ "$1" != "--" ]; do destination=$1; shift; done
cd "{folder}/answers/$(printf '%s' "$destination" | tr '@:/' '___')" 2>/dev/null || {{
    printf 'ssh: Could not resolve hostname %s: Name or service not known\\r\\n' "$destination" >&2
    exit 255
}}
cat err >&2
. ./act
cat out
exit "$(cat code)"
"""

STATUS = {
    "demo": False,
    "host": {"id": "spark-2"},
    "memory": {"total_bytes": 128_500_000_000, "available_bytes": 64_424_509_440},
    "docker": {"version": "28.3.3"},
    "engines": [
        {"id": "qwen3", "state": "ready", "served_name": "qwen", "model": "org/qwen3", "port": 8000},
        {"id": "gemma", "state": "starting", "model": None, "model_reason": "not yet", "port": 8001},
    ],
}
"""What `spark-tui status --json` prints, as far as others read it."""


class FakeSsh:
    """The program in a folder of its own; `environment` puts it first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("bin", "answers", "calls"):
            (folder / name).mkdir(parents=True)
        program = folder / "bin/ssh"
        program.write_text(_PROGRAM.format(folder=shlex.quote(str(folder)).strip("'")))
        program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """A person's environment in which this is the ssh, with a home of its own."""
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        return {"PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}

    def answer(self, destination: str, out: str = "", *, err: str = "", code: int = 0, act: str = "") -> None:
        """From now on that destination answers so; `act` is shell text that runs before it does."""
        name = destination.translate(str.maketrans("@:/", "___"))
        folder = self._folder / "answers" / name
        folder.mkdir(exist_ok=True)
        for part, text in (("out", out), ("err", err), ("code", str(code)), ("act", act)):
            (folder / part).write_text(text)

    def serves(self, destination: str, *, act: str = "", **changes: Any) -> None:
        """That destination has a spark-tui with a status."""
        self.answer(destination, json.dumps(STATUS | changes, indent=2), act=act)

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every call, without the program's name."""
        texts = [call.read_text() for call in (self._folder / "calls").iterdir() if not call.suffix]
        return sorted(text.removesuffix("\0").split("\0") for text in texts)

    @property
    def seen_environment(self) -> str:
        """What the last call found in its environment."""
        return (self._folder / "environment").read_text()

    def hosts(self, text: str) -> None:
        """Writes the settings file's table of hosts."""
        settings = Path(self.environment["HOME"]) / ".config/spark-tui/settings.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"[hosts]\n{text}\n")
