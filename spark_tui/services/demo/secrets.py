"""The demo's keys: kept in memory, so that trying the program writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_tui.domain.engine.runtimes import KEY_VARIABLES
from spark_tui.domain.secret import Secret
from spark_tui.services.demo.world import DemoWorld

_FOLDER: Final = Path("/home/demo/.config/spark-tui/secrets")


class DemoSecrets:
    """The SecretStore port. Keys are the same for the same seed: they guard nothing."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._files: dict[Path, dict[str, Secret]] = {}
        self._made = 0

    def hf_token(self) -> Secret | None:
        """None: a demo needs none, and must not look for the person's own."""
        return None

    def api_key(self, path: str) -> Secret | None:
        """The key kept for that container, or None."""
        kept = self._files.get(Path(path), {})
        return next((kept[name] for name in KEY_VARIABLES if name in kept), None)

    def path(self, name: str) -> Path:
        """Where the file would be."""
        return _FOLDER / f"{name.replace('/', '-')}.env"

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        """Remembers the values."""
        self._files[self.path(name)] = dict(values)
        return self.path(name)

    def new_key(self) -> Secret:
        """A key that no real engine knows."""
        self._made += 1
        return Secret(f"demo-{self._world.fingerprint('key', self._made)[:40]}")
