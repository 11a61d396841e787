"""The lab as a whole: brought up once, shared by all who use it, taken down when the last of them is done."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.real.lab import images, models, vllm_image
from tests.real.lab.cluster import Rig
from tests.real.lab.debian import Toolbox, require_machine
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.registry import PrivateRegistry
from tests.real.lab.support import Say, locked, remove_tree

FOLDER_VARIABLE = "SPARK_TUI_LAB"


def default_root() -> Path:
    """SPARK_TUI_LAB, or a folder in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spark-tui-lab"


@dataclass(frozen=True)
class State:
    """What is there now."""

    engine_pid: int | None
    registry_pid: int | None
    registry_address: str | None
    vllm_image: bool
    models: bool
    kept: bool


class Lab:
    """One engine, one registry, two vLLM images, three models, and twice two hosts to be had besides, in one folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root
        self.toolbox = Toolbox(self.root / "tools")
        self.engine = PrivateEngine(self.root / "engine", self.toolbox)
        self.registry = PrivateRegistry(self.root / "registry", self.toolbox)
        self.rig, self.second_rig = (
            Rig(self.root / name, self.toolbox, self.engine, tools=self.root / "rig/tools")
            for name in ("rig", "second-rig")
        )
        self.store = self.root / "models"
        self._lock = self.root / "lock"
        self._users = self.root / "users"
        self._keep = self.engine.runtime / "keep"

    def model(self, name: str = models.SMOLLM2) -> Path:
        """The folder of a model."""
        return self.store / name

    def up(self, say: Say, *, keep: bool = True) -> None:
        """Brings everything up; what is there already is left as it is.

        keep: whether it stays when the tests that use it end.
        """
        require_machine()
        with locked(self._lock):
            self._up_engine(say)
            self._up_vllm(say)
            if keep:
                self._keep.touch()

    def up_engine(self, say: Say) -> None:
        """Brings up engine, registry and busybox: seconds, even the first time."""
        require_machine()
        with locked(self._lock):
            self._up_engine(say)

    def down(self, say: Say) -> None:
        """Takes everything down. Images and models stay for the next time."""
        require_machine()
        for rig in (self.rig, self.second_rig):
            rig.down()
        with locked(self._lock):
            self._down(say)

    def purge(self, say: Say) -> None:
        """Takes everything down and deletes it."""
        self.down(say)
        say(f"deleting {self.root}")
        remove_tree(self.root)

    def state(self) -> State:
        """What is there now."""
        running = self.engine.running
        registry_pid = self.registry.pid
        tags = (vllm_image.SERVE_TAG, vllm_image.SHELL_TAG)
        labels = {self.engine.image_label(tag, vllm_image.RECIPE_LABEL) for tag in tags} if running else set()
        return State(
            engine_pid=self.engine.pid,
            registry_pid=registry_pid,
            registry_address=None if registry_pid is None else self.registry.address,
            vllm_image=labels == {vllm_image.recipe()},
            models=models.have_models(self.store),
            kept=self._keep.exists(),
        )

    def variables(self) -> dict[str, str]:
        """The environment in which a person or a program works on the lab."""
        found = {
            **self.engine.variables(),
            FOLDER_VARIABLE: str(self.root),
            "SPARK_TUI_STORE": str(self.store),
            "SPARK_TUI_LAB_IMAGE": vllm_image.SERVE_TAG,
        }
        if self.registry.pid is not None:
            found["SPARK_TUI_LAB_REGISTRY"] = self.registry.address
        if (self.toolbox.root / "usr").exists():
            found["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{self.toolbox.root / 'usr' / 'bin'}"
        return found

    @contextlib.contextmanager
    def lease(self, say: Say) -> Iterator[None]:
        """Uses the engine for a while; the last user takes the lab down, unless somebody brought it up to stay."""
        require_machine()
        self.root.mkdir(parents=True, exist_ok=True)
        with self._users.open("a") as users:
            with locked(self._lock):
                fcntl.flock(users, fcntl.LOCK_SH)
                self._up_engine(say)
            try:
                yield
            finally:
                with locked(self._lock):
                    if self._last_user(users.fileno()) and not self._keep.exists():
                        self._down(say)

    def _last_user(self, users: int) -> bool:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _up_engine(self, say: Say) -> None:
        self.toolbox.ensure(say)
        if not self.engine.running:
            say(f"starting a private Docker engine on {self.engine.host}")
            self.engine.start()
            left = self.engine.docker("ps", "--all", "--quiet").split()
            if left:  # of tests that were killed: an engine too many is on every screen of the next ones
                self.engine.docker("rm", "--force", "--volumes", *left)
        if self.registry.pid is None:
            self.registry.start()
            say(f"started a private registry on {self.registry.address}")
        images.ensure_busybox(self.engine, self.toolbox)

    def _up_vllm(self, say: Say) -> None:
        # A build that was killed may have left a pip behind that still writes: no two builds share a folder.
        building = self.root / "building"
        remove_tree(building)
        own = building / str(os.getpid())
        own.mkdir(parents=True)
        vllm_image.ensure_vllm_images(self.engine, own / "image", say)
        models.ensure_models(self.engine, self.store, own / "models", say)
        remove_tree(building)

    def _down(self, say: Say) -> None:
        say("stopping the registry")
        self.registry.stop()
        say("stopping the Docker engine and its containers")
        self.engine.stop()
