"""The directories of the host that containers share."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.errors import UsageError


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Absolute directories of the host: the model store, the compile caches, and the person's home (for `~`)."""

    store: str
    caches: str
    home: str = ""

    def __post_init__(self) -> None:
        for what, path in (("model store", self.store), ("cache folder", self.caches)):
            if not path.startswith("/") or ":" in path:
                raise UsageError(
                    f"The {what} must be an absolute path without a colon; it is {path!r}.",
                    "Correct it in the settings.",
                )
