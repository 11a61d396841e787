"""Real logs for tests: see tests/fixtures/logs/README.md."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

LOGS = Path(__file__).parent / "fixtures" / "logs"
COMPOSED = LOGS.parent / "logs-composed"
_UVICORN = ("Started server process", "Waiting for application startup", "Application startup complete")


def log_names() -> list[str]:
    """Every file, by name without `.log`."""
    return sorted(path.stem for path in LOGS.glob("*.log"))


def expected(folder: Path) -> list[dict[str, Any]]:
    """What must be read from each log of a folder."""
    return [json.loads(row) for row in (folder / "expected.jsonl").read_text("utf-8").splitlines()]


def read_log(name: str) -> list[str]:
    """Lines without their newline; carriage returns and colours stay. The SOURCE line is not part of the log."""
    with (LOGS / f"{name}.log").open(encoding="utf-8", errors="replace", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    return [line for line in lines if not line.startswith(("SOURCE:", "[...]"))]


def read_composed(name: str) -> list[str]:
    """A log put together from an engine's texts: see tests/fixtures/logs-composed/README.md."""
    with (COMPOSED / f"{name}.log").open(encoding="utf-8", newline="\n") as file:
        return [line.removesuffix("\n") for line in file]


def run_log(name: str) -> list[str]:
    """Both streams of a run in the order in which Docker would have merged them, as far as they can tell."""
    if not (LOGS / f"{name}.stderr.log").exists():
        return read_log(name)
    out, err = read_log(f"{name}.stdout"), read_log(f"{name}.stderr")
    bars = [line for line in err if "% Completed |" in line]
    up = [line for line in err if any(words in line for words in _UVICORN)]
    special = [err.index(line) for line in (*bars, *up)]
    before = err[: min(special)] if special else []
    after = [line for line in err[len(before) :] if line not in bars and line not in up]
    weights = next((i for i, line in enumerate(out) if "Loading weights took" in line), len(out))
    served = max((i for i, line in enumerate(out) if "Route: " in line), default=len(out) - 1) + 1
    return [*before, *out[:weights], *bars, *out[weights:served], *up, *out[served:], *after]


def toml_cases(name: str) -> list[dict[str, Any]]:
    """The cases of a table in tests/fixtures."""
    return tomllib.loads((LOGS.parent / f"{name}.toml").read_text("utf-8"))["case"]
