"""Two versions of an engine's image in a real registry: from one to the other and back, killed at every step."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from spark_tui.manage.images.model import kept_tag
from tests.pty_app import PtyApp, spark_tui
from tests.real.containers.test_tune import ANSWER
from tests.real.lab import Lab, PrivateEngine, PrivateRegistry
from tests.real.lab.images import busybox_layer, image_archive, layer

pytestmark = pytest.mark.timeout(1200)

NAME = "update-double"
SOURCE = "update-double:local"
SERVER = """\
#!/bin/sh
echo "(APIServer pid=1) INFO 06-03 09:20:00 [api_server.py:1] vLLM API server version {version}"
echo "(EngineCore pid=9) INFO 06-03 09:20:01 [cuda.py:308] Using AttentionBackendEnum.{attention} backend."
echo "(EngineCore pid=9) INFO 06-03 09:20:02 [kv_cache_utils.py:1708] GPU KV cache size: {tokens} tokens"
echo "(APIServer pid=1) INFO:     Application startup complete."
while [ "$1" != --port ]; do shift; done
trap 'exit 0' TERM
export STEP={step}
nc -ll -p "$2" -e answer & wait
"""
"""What stands in for vLLM: it says so in its log, and answers what a launch and a benchmark ask."""
VERSIONS = (("0.31.0", "FLASH_ATTN", "100,000", 8000), ("0.32.0", "FLASHINFER", "120,000", 2000))
"""What differs inside: the version, what it says of itself, and the time of a token in microseconds."""
RECIPE = """\
recipe_version: "2"
model: acme/double
runtime: vllm
container: {image}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: {port}
command: vllm serve {{model}} --port {{port}}
"""


class Gate:
    """A way to Docker's socket on which a program is killed as it asks for a change, or as it is answered.

    A change is a POST or a DELETE. Those of other processes behind the same socket, like the memory guard, pass.
    """

    def __init__(self, target: Path, path: Path) -> None:
        self.host = f"unix://{path}"
        self._target = str(target)
        self._lock = threading.Lock()
        self._pid, self._answered = 0, False
        self._stops: Callable[[str], bool] = _never
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def run(self, start: Callable[[], subprocess.Popen[bytes]], stops: Callable[[str], bool], *, answered: bool) -> int:
        """The exit code of a program that is killed at the first change for which `stops` says so: with `answered`
        Docker has carried it out then, else it never hears of it."""
        with self._lock:
            program = start()
            self._pid, self._stops, self._answered = program.pid, stops, answered
        return program.wait(timeout=240)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            near, _ = listener.accept()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        pid = struct.unpack("3i", near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
            far.connect(self._target)
            last = threading.Event()
            threading.Thread(target=self._answers, args=(far, near, last), daemon=True).start()
            requests = near.makefile("rb")
            while head := b"".join(takewhile(lambda line: line != b"\r\n", requests)):
                length = re.search(rb"(?im)^content-length: (\d+)", head)
                body = requests.read(int(length[1])) if length else b""
                if self._stops_at(pid, head):
                    if not self._answered:
                        os.kill(pid, signal.SIGKILL)
                        return
                    last.set()
                far.sendall(head + b"\r\n" + body)
            far.shutdown(socket.SHUT_RDWR)

    def _stops_at(self, pid: int, head: bytes) -> bool:
        method, path = head.decode().split()[:2]
        with self._lock:
            if method not in ("POST", "DELETE") or pid != self._pid or not self._stops(change_of(method, path)):
                return False
            self._stops = _never
            return True

    def _answers(self, far: socket.socket, near: socket.socket, last: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if last.is_set():
                    os.kill(self._pid, signal.SIGKILL)
                    break
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)


def _never(_: str) -> bool:
    return False


def change_of(method: str, path: str) -> str:
    """`/v1.44/containers/4f2a/start` is `containers start`, `/v1.44/images/4f2a/tag?tag=new` is `images tag new`."""
    where, _, query = path.partition("?")
    verb, tag = re.search(r"/(create|start|stop|rename|tag)$", where), re.search(r"\btag=([\w.-]+)", query)
    words = [where.split("/")[2], verb[1] if verb else method.lower()]
    return " ".join([*words, tag[1]] if tag and words[1] == "tag" else words)


KEPT, NOW = f"images tag {kept_tag('', NAME).removeprefix(':')}", "images tag nightly"
LAUNCH = tuple(f"containers {verb}" for verb in ("stop", "rename", "create", "start"))


@dataclass
class Person:
    """A new user with one preset, whose image is in the registry."""

    lab: Lab
    engine: PrivateEngine
    registry: PrivateRegistry
    environ: dict[str, str]
    image: str
    gate: Gate
    told: Path
    old: str = ""

    def run(self, *words: str) -> str:
        done = subprocess.run(
            spark_tui(*words), env=self.environ, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def publish(self, number: int) -> None:
        """That version under the tag, and no copy of it here."""
        version, attention, tokens, step = VERSIONS[number]
        server = SERVER.format(version=version, attention=attention, tokens=tokens, step=step)
        files = {"bin/vllm": server.encode(), "bin/answer": ANSWER.encode()}
        layers = [busybox_layer(self.lab.toolbox), layer(files)]
        self.engine.docker("load", stdin=image_archive(layers, {"Entrypoint": None}, SOURCE))
        here = self.id_of(self.image)
        self.registry.push(self.engine, SOURCE, self.image.partition("/")[2])
        if here:
            self.engine.docker("tag", here, self.image)
        self.engine.docker("rmi", SOURCE)

    def id_of(self, image: str) -> str:
        return self.engine.docker("images", "--quiet", "--no-trunc", image).strip()

    @property
    def runs(self) -> str:
        """The image of the running engine."""
        found = self.engine.docker("ps", "--quiet", "--filter", f"name=^{NAME}$").split()
        return self.engine.docker("inspect", "--format", "{{.Image}}", *found).strip() if found else ""

    @property
    def containers(self) -> list[str]:
        return self.engine.docker("ps", "--all", "--format", "{{.Names}}", "--filter", f"name={NAME}").split()

    @property
    def tags(self) -> tuple[str, str]:
        """The image of the preset's tag and that of our own."""
        return self.id_of(self.image), self.id_of(kept_tag(self.image, NAME))

    def killed(self, *words: str, spared: Collection[str], answered: bool) -> str:
        """The first change that is not among the `spared`, at which the program was killed; empty where there was none,
        and it came to its end. One on a container that comes after the trial was told begins with `then`."""
        at = ""

        def stops(change: str) -> bool:
            nonlocal at
            change = f"then {change}" if self.trial and "tag" not in change else change
            at = "" if change in spared else change
            return bool(at)

        with self.told.open("wb") as told:
            words = (*spark_tui(*words), "--json")
            environ = {**self.environ, "DOCKER_HOST": self.gate.host}
            code = self.gate.run(
                lambda: subprocess.Popen(words, env=environ, stdout=told, stderr=subprocess.STDOUT),
                stops, answered=answered,
            )  # fmt: skip
        assert code == (-signal.SIGKILL if at else 0), f"{words}: {code}, {at}\n{self.told.read_text()}"
        return at

    @property
    def trial(self) -> dict[str, Any]:
        """What the last one that was killed had told of a trial."""
        lines = [json.loads(line) for line in self.told.read_text().splitlines()]
        return next((each for each in lines if each["type"] == "trial"), {})

    def killed_at(self, step: str) -> None:
        """An update that is killed as soon as it says that this step runs."""
        words = spark_tui("update", NAME, "--keep", "--json")
        with subprocess.Popen(words, env=self.environ, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for line in program.stdout:
                found: dict[str, Any] = json.loads(line)
                if (found.get("id"), found.get("state")) == (step, "running"):
                    os.kill(program.pid, signal.SIGKILL)
                    break
            else:
                pytest.fail(f"the step {step} never ran")

    def goes_back(self, step: str) -> None:
        self.run("update", NAME, "--back")
        assert (self.runs, self.tags) == (self.old, (self.old, "")), f"killed at {step}"
        assert self.containers == [NAME], f"killed at {step}"


@pytest.fixture(scope="module")
def made(
    lab: Lab, engine: PrivateEngine, registry: PrivateRegistry, tmp_path_factory: pytest.TempPathFactory,
    take_port: Callable[[], int],
) -> Iterator[Person]:  # fmt: skip
    """The first version runs, the second one is in the registry."""
    home, image = tmp_path_factory.mktemp("home"), f"{registry.address}/vllm/update-double:nightly"
    presets = home / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE.format(image=image, port=take_port()), encoding="utf-8")
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        **engine.variables(),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HOME": str(home),
        **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(home / "store"),
    }
    gate = Gate(engine.socket, home / "docker.sock")
    made = Person(lab, engine, registry, environ, image, gate, home / "told")
    made.publish(0)
    engine.docker("pull", "--quiet", image)
    made.old = made.id_of(image)
    made.run("up", NAME, "--no-fetch")
    assert json.loads(made.run("update", NAME, "--check", "--json"))["moved"] is False
    made.publish(1)
    yield made
    for each in engine.docker("ps", "--all", "--quiet", "--filter", f"name={NAME}").split():
        engine.docker("rm", "--force", each)
    for id_ in set(engine.docker("images", "--quiet", "--no-trunc", image.rpartition(":")[0]).split()):
        engine.docker("rmi", "--force", id_)


@pytest.fixture
def person(made: Person) -> Person:
    """The old image runs, and nothing is left of an earlier update."""
    assert (made.runs, made.tags, made.containers) == (made.old, (made.old, ""), [NAME])
    assert json.loads(made.run("update", NAME, "--check", "--json"))["moved"] is True
    return made


def test_killed_at_any_step_it_goes_back(person: Person) -> None:
    person.killed_at("disk")
    assert (person.runs, person.id_of(person.image)) == (person.old, person.old), "nothing was begun, or only written"
    for step in ("memory", "follow", "warm"):  # they change nothing in Docker
        person.killed_at(step)
        assert person.tags == (person.old, person.old), f"killed at {step}: a launch starts the old image"
        person.goes_back(step)
    with PtyApp(spark_tui("update", NAME), env=person.environ) as app:
        app.wait_for("Keep the new image", timeout=120)
        os.kill(app.pid, signal.SIGKILL)
    assert person.tags == (person.old, person.old)
    person.goes_back("the question")
    seen: list[str] = []
    while step := person.killed("update", NAME, "--keep", spared=seen, answered=False):
        person.engine.docker("image", "prune", "--force")
        tagged, kept = person.tags
        assert KEPT in seen or step == KEPT, step
        assert kept == (person.old if KEPT in seen else ""), f"killed at {step}"
        assert NOW in seen or tagged == person.old, f"killed at {step}: a launch starts the old image"
        person.goes_back(step)
        seen.append(step)
    assert {*seen} == {KEPT, "images create", *LAUNCH, NOW, "then containers delete"}
    assert (person.runs, person.containers) == (person.id_of(person.image), [NAME])
    person.goes_back("its end")


def test_killed_at_every_step_in_turn_the_next_one_ends_it_and_so_does_going_back(person: Person) -> None:
    forth, seen, trial = ("update", NAME, "--bench", "--prove", "--keep"), list[str](), dict[str, Any]()
    while step := person.killed(*forth, spared=seen, answered=True):
        seen.append(step)
        person.engine.docker("image", "prune", "--force")
        tagged, kept = person.tags
        assert kept == person.old, f"killed at {step}"
        assert NOW in seen or tagged == person.old, f"killed at {step}: a launch starts the old image"
        trial = person.trial or trial
    assert {*seen} >= {KEPT, "images create", *LAUNCH, *(f"then {each}" for each in LAUNCH), NOW}
    changed = {each["id"]: (each["old"], each["new"]) for each in trial["differences"]}
    assert changed["KV cache"] == ("100,000 tokens", "120,000 tokens")
    assert "FLASHINFER" in changed["attention"][1].upper()
    new = person.id_of(person.image)
    assert new != person.old
    assert (person.runs, person.tags, person.containers) == (new, (new, person.old), [NAME])
    assert json.loads(person.run("update", NAME, "--check", "--json"))["moved"] is False

    person.environ |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    back, going = list[str](), ("update", NAME, "--back")
    while step := person.killed(*going, spared=back, answered=True):
        back.append(step)
        going = ("update", NAME, "--keep" if len(back) % 2 else "--back")  # either one goes on with it
        assert person.id_of(person.image) == person.old, f"killed at {step}: a launch starts the old image"
    assert {*back} == {NOW, *LAUNCH, "containers delete", "images delete"}, "nothing is pulled"
    assert (person.runs, person.tags, person.containers) == (person.old, (person.old, ""), [NAME])
