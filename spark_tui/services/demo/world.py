"""The simulated Spark that all the demo's ports look at: its containers, and what happens to them in time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from spark_tui.domain.engine.container import ContainerEvent
from spark_tui.domain.errors import ContainerNotFound
from spark_tui.domain.presets.container_spec import (
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_PRESET,
    LABEL_SERVED_NAME,
    LOOPBACK,
    ContainerSpec,
    PublishedPort,
)
from spark_tui.domain.quantities import GIB
from spark_tui.services.demo.container import RECORDED_MODEL, DemoContainer
from spark_tui.services.demo.recording import KV_TOKENS_PER_GIB, POOL_GIB, boot_script, failure_script
from spark_tui.services.demo.run import CPU_BYTES, LEAST_KV_BYTES, Run, fixed_cuda, kv_wanted
from spark_tui.services.ports import Clock

TOTAL_BYTES: Final = 127_535_084 * 1024  # MemTotal of a GB10 with current firmware
BASE_BYTES: Final = int(4.9 * GIB)
"""Kernel, desktop, Docker: what an idle Spark uses."""
HEADROOM_BYTES: Final = 3 * GIB
REPLAY_SPEED: Final = 20.0
VERSION: Final = "0.20.2"
VLLM_IMAGE: Final = "vllm/vllm-openai:v0.20.2-ubuntu2404"
SERVING_NAME: Final = "qwen3.6-35b"
SERVING_PORT: Final = 8001
FAILED_NAME: Final = "qwen-try"
_SERVED_HOURS: Final = 3.2
_FAILED_HOURS: Final = 49.0


class DemoWorld:
    """Time comes from the clock alone: the same clock and the same deeds give the same world."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.seed = seed
        self.began_at = clock.now()
        self.containers: dict[str, DemoContainer] = {}
        self.runs: list[Run] = []
        """All starts ever: memory of one that has ended comes back late."""
        self.chats = 0
        """Answers that stream now."""
        self.journal: list[ContainerEvent] = []
        self._waiters: set[asyncio.Event] = set()
        self._made = 0
        self._furnish()

    def _furnish(self) -> None:
        """What is there when the demo opens: an engine that has served for hours, and a start that failed."""
        serving = self.add(
            ContainerSpec(
                SERVING_NAME,
                VLLM_IMAGE,
                (RECORDED_MODEL, *_arguments(max_model_len=262144, kv_cache_dtype="fp8", gpu_memory_utilization=0.5)),
                ports=(PublishedPort(8000, SERVING_PORT, LOOPBACK),),
                labels=(
                    (LABEL_PRESET, SERVING_NAME),
                    (LABEL_MODEL, RECORDED_MODEL),
                    (LABEL_SERVED_NAME, SERVING_NAME),
                ),
            ),
            ("vllm", "serve"),
            self.began_at - _SERVED_HOURS * 3600,
        )
        self.begin(serving, serving.created_at, speed=1.0, traffic=True)
        failed = self.add(
            ContainerSpec(
                FAILED_NAME,
                VLLM_IMAGE,
                (RECORDED_MODEL, *_arguments(gpu_memory_utilization=0.91)),
                ports=(PublishedPort(8000, 8000, LOOPBACK),),
            ),
            ("vllm", "serve"),
            self.began_at - _FAILED_HOURS * 3600,
        )
        self.begin(failed, failed.created_at, speed=1.0, free_bytes=int(109.53 * GIB))
        self.settle()
        self.journal.clear()

    # --- time -----------------------------------------------------------------------------------------

    def settle(self) -> float:
        """Brings everything up to now, and returns now."""
        now = self.clock.now()
        for container in self.containers.values():
            run = container.run
            if run is not None and run.exits_at is not None and run.exits_at <= now:
                self.end(container, run.exits_at, 1)
            container.log.flush(now)
        return now

    def next_exit(self) -> float | None:
        """When the next container ends by itself; None when none will."""
        runs = [container.run for container in self.containers.values()]
        return min((run.exits_at for run in runs if run is not None and run.exits_at is not None), default=None)

    async def until(self, at: float | None) -> None:
        """Returns at that time, or when somebody does something; None waits for the latter."""
        woken = asyncio.Event()
        self._waiters.add(woken)
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(woken.wait())]
        if at is not None:
            tasks.append(asyncio.ensure_future(self.clock.sleep(max(0.01, at - self.clock.now()))))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiters.discard(woken)
            for task in tasks:
                task.cancel()

    def note(self, container: DemoContainer, action: str, at: float, exit_code: int | None = None) -> None:
        """A line of the event stream; wakes whoever waits."""
        self.journal.append(ContainerEvent(action, container.id, container.name, at, exit_code))
        for waiter in self._waiters:
            waiter.set()

    def wake(self) -> None:
        """Something was written or changed."""
        for waiter in self._waiters:
            waiter.set()

    # --- containers -----------------------------------------------------------------------------------

    def find(self, container: str) -> DemoContainer:
        """By name, id or the beginning of an id. Raises ContainerNotFound."""
        for each in self.containers.values():
            if container in (each.name, each.id) or (len(container) >= 12 and each.id.startswith(container)):
                return each
        known = ", ".join(sorted(each.name for each in self.containers.values())) or "none"
        raise ContainerNotFound(f"There is no container named {container}.", f"Containers here: {known}.")

    def on_port(self, port: int) -> DemoContainer | None:
        """The container that lives and has published that host port."""
        for each in self.containers.values():
            if each.run is not None and any(published.host_port == port for published in each.ports):
                return each
        return None

    def fingerprint(self, *what: object) -> str:
        """64 hexadecimal digits that depend on the seed and the arguments."""
        return hashlib.sha256(repr((self.seed, *what)).encode()).hexdigest()

    def add(self, spec: ContainerSpec, entrypoint: tuple[str, ...], at: float) -> DemoContainer:
        """A container that has not been started."""
        self._made += 1
        first = spec.entrypoint if spec.entrypoint is not None else entrypoint
        container = DemoContainer(
            id=self.fingerprint("container", spec.name, self._made),
            name=spec.name,
            image=spec.image,
            image_id=f"sha256:{self.fingerprint('image', spec.image)}",
            argv=(*first, *spec.command),
            created_at=at,
            labels=spec.labels,
            ports=spec.ports,
            network_mode=spec.network or "bridge",
            environment=tuple(each.name for each in spec.env),
            needs_key=bool(spec.label(LABEL_API_KEY_FILE)),
        )
        self.containers[container.id] = container
        self.note(container, "create", at)
        return container

    def begin(
        self,
        container: DemoContainer,
        at: float,
        *,
        speed: float = REPLAY_SPEED,
        traffic: bool = False,
        free_bytes: int | None = None,
    ) -> None:
        """Starts it. It takes the KV cache that is left, and fails as vLLM does when even the weights do not fit.

        `free_bytes` says what was free in a start that failed in the past.
        """
        room = self._room(at)
        left = room - fixed_cuda() - CPU_BYTES
        fits = free_bytes is None and left >= LEAST_KV_BYTES
        kv = min(kv_wanted(container.utilization), left) if fits else 0
        script = boot_script() if fits else failure_script()
        pid = 4000 + 173 * len(self.runs)
        run = Run(at, speed, script, pid, kv, min(CPU_BYTES, room), fails=not fits, traffic=traffic)
        free = free_bytes if free_bytes is not None else room
        container.runs.append(run)
        container.exit_code = None
        self.runs.append(run)
        container.log.replay(run, _values(container, kv, free))
        self.note(container, "start", at)

    def end(self, container: DemoContainer, at: float, exit_code: int) -> None:
        """Its process has ended."""
        run = container.run
        if run is not None:
            container.log.flush(at)
            container.log.cut()
            run.ended_at, container.exit_code = at, exit_code
            self.note(container, "die", at, exit_code)

    def _room(self, at: float) -> int:
        """Bytes left for a new engine beside all that live, once they are full-grown."""
        others = sum(run.full_size() for run in self.runs if run.ended_at is None)
        late = sum(run.held(at).cuda for run in self.runs if run.ended_at is not None)
        return max(0, TOTAL_BYTES - BASE_BYTES - HEADROOM_BYTES - others - late)


def _arguments(**options: object) -> tuple[str, ...]:
    words = {"served_model_name": SERVING_NAME, **options}
    return tuple(word for key, value in words.items() for word in (f"--{key.replace('_', '-')}", str(value)))


def _values(container: DemoContainer, kv_bytes: int, free_bytes: int) -> Mapping[str, str]:
    """What a replay writes in place of the recorded engine's own values."""
    kv_gib, want_gib = round(kv_bytes / GIB, 2), container.utilization * POOL_GIB
    tokens, length = int(kv_gib * KV_TOKENS_PER_GIB), container.max_model_len
    return {
        "model": container.model,
        "served": container.served_name,
        "key": "'api_key': ['***'], " if container.needs_key else "",
        "len": str(length),
        "len,": f"{length:,}",
        "util": f"{container.utilization:g}",
        "kv_gib": f"{kv_gib:g}",
        "kv_tokens": f"{tokens:,}",
        "concurrency": f"{tokens / length:.2f}",
        "free_gib": f"{min(free_bytes / GIB, want_gib - 1.21):.2f}",
        "want_gib": f"{want_gib:.2f}",
    }
