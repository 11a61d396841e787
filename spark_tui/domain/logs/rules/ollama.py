"""Rules for Ollama, in outline. Texts were read in 0.2 to 0.12.

It is ready as soon as it listens; a model is loaded with the first request for it, which is its warm-up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_tui.domain.logs.line import NUMBER, number
from spark_tui.domain.logs.timeline import PhaseId as P

if TYPE_CHECKING:
    from spark_tui.domain.logs.tracker import BootTracker

_LISTENING = re.compile(r"Listening on (\S{1,100}) \(version ([\w.\-+]{1,60})\)")
_STARTED = re.compile(rf"llama runner started in {NUMBER} seconds")
_SIZE = re.compile(rf'size="{NUMBER} (MiB|GiB)"')
_MODEL = re.compile(r"--model (\S{1,300})")


def is_ollama(boot: BootTracker) -> bool:
    """The line was written by a program in Go."""
    return ".go:" in boot.record.source


def config(boot: BootTracker, message: str) -> None:
    """`server config env="map[...]"`: its first line."""
    if is_ollama(boot) and message.startswith("server config env="):
        boot.new_start(boot.record)
        boot.phases.enter(P.CONFIG)


def listening(boot: BootTracker, message: str) -> None:
    """`Listening on [::]:11434 (version 0.12.3)`."""
    match = _LISTENING.match(message)
    if match and is_ollama(boot):
        boot.learn(version=match[2], url=f"http://{match[1]}")
        boot.phases.enter(P.SERVER)
        boot.ready_now()


def memory(boot: BootTracker, message: str) -> None:
    """`model weights device=CUDA0 size="18.8 GiB"`, `kv cache device=CUDA0 size="936.0 MiB"`."""
    size = _SIZE.search(message)
    if size is None or not is_ollama(boot):
        return
    gib = number(size[1]) / (1024 if size[2] == "MiB" else 1)
    if message.startswith("model weights "):
        boot.learn(load_gib=round(gib, 2))
    elif message.startswith("kv cache "):
        boot.learn(kv_gib=round(gib, 2))


def runner(boot: BootTracker, message: str) -> None:
    """`llama runner started in 9.16 seconds`: a model is loaded."""
    match = _STARTED.match(message)
    if match and is_ollama(boot):
        boot.mark_warm(number(match[1]))
