"""The lab is what it says: a real engine, a real registry, an image like vLLM's own, a model that answers."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.lab import Lab, PrivateEngine, PrivateRegistry, SlowLink
from tests.real.lab.images import BUSYBOX, LAYERED, ensure_layered
from tests.real.lab.models import NAMES
from tests.real.lab.serving import Lent, Served
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG, SHELL_ENTRYPOINT, SHELL_TAG, VERSION

MakeEngine = Callable[..., PrivateEngine]

NO_DRIVER = 'could not select device driver "" with capabilities: [[gpu]]'
COUNT_ALOUD = "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.05; done"


def firewall() -> str:
    """The rules of the machine's firewall, as far as a program is there to show them."""
    done = subprocess.run("iptables-save 2>/dev/null | grep -v '^#'", shell=True, capture_output=True, text=True)
    return done.stdout


class TestEngine:
    def test_it_answers_on_a_socket_of_its_own(self, engine: PrivateEngine, docker_host: str) -> None:
        assert engine.answers()
        assert docker_host.startswith("unix:///run/spark-tui-lab/")
        assert engine.api("GET", "/version")["Version"]

    def test_it_knows_nothing_of_the_machines_docker(self, engine: PrivateEngine) -> None:
        info = engine.api("GET", "/info")
        assert info["DockerRootDir"] == str(engine.root / "data")

    def test_a_container_runs(self, engine: PrivateEngine) -> None:
        assert engine.docker("run", "--rm", BUSYBOX, "echo", "it works") == "it works"

    def test_gpus_all_is_accepted(self, engine: PrivateEngine, container_name: str) -> None:
        engine.docker("run", "--gpus", "all", "--name", container_name, BUSYBOX, "true")
        requests = engine.api("GET", f"/containers/{container_name}/json")["HostConfig"]["DeviceRequests"]
        assert requests[0]["Count"] == -1
        assert requests[0]["Capabilities"] == [["gpu"]]

    def test_a_published_port_is_reached_from_the_machine(
        self, engine: PrivateEngine, container_name: str, free_port: int
    ) -> None:
        server = "echo hello from inside > /tmp/index.html; exec httpd -f -p 8000 -h /tmp"
        publish = ("--publish", f"127.0.0.1:{free_port}:8000")
        engine.docker("run", "--detach", "--name", container_name, *publish, BUSYBOX, "sh", "-c", server)
        page = b""

        def fetched() -> bool:
            nonlocal page
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/index.html", timeout=1) as response:
                    page = response.read()
            except OSError:
                return False
            return True

        assert wait_until(fetched, 10)
        assert page == b"hello from inside\n"

    def test_without_the_hook_gpus_all_is_refused_as_on_a_machine_without_the_toolkit(
        self, plain_engine: PrivateEngine
    ) -> None:
        refused = plain_engine.try_docker("run", "--rm", "--gpus", "all", plain_engine.busybox, "true")
        assert refused.returncode == 125
        assert NO_DRIVER in refused.stderr

    @pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
    def test_with_live_restore_a_container_outlives_the_daemon(self, make_engine: MakeEngine, crash: bool) -> None:
        engine = make_engine(live_restore=True)
        engine.docker("run", "--detach", "--name", "counter", BUSYBOX, "sh", "-c", COUNT_ALOUD)
        before = engine.api("GET", "/containers/counter/json")["State"]["Pid"]
        daemon = engine.pid
        engine.restart(crash=crash)
        assert engine.pid != daemon
        assert engine.api("GET", "/containers/counter/json")["State"]["Pid"] == before
        lines = engine.docker("logs", "counter").splitlines()
        wait_until(lambda: len(engine.docker("logs", "counter").splitlines()) > len(lines), 5)
        numbers = [int(line.split()[1]) for line in engine.docker("logs", "counter").splitlines()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > len(lines)

    def test_without_live_restore_a_restart_ends_the_container(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        engine.docker("run", "--detach", "--init", "--name", "sleeper", BUSYBOX, "sleep", "1000")
        engine.restart()
        assert engine.api("GET", "/containers/sleeper/json")["State"]["Status"] == "exited"

    def test_an_engine_leaves_nothing_behind(self, make_engine: MakeEngine) -> None:
        rules = firewall()
        engine = make_engine()
        engine.docker("run", "--detach", "--name", "sleeper", BUSYBOX, "sleep", "1000")
        inside = engine.api("GET", "/containers/sleeper/json")["State"]["Pid"]
        assert firewall() == rules
        engine.purge()
        assert not Path(f"/proc/{inside}").exists()
        assert not engine.runtime.exists()
        assert not engine.root.exists()
        assert not Path("/sys/class/net", engine.bridge).exists()
        assert str(engine.root) not in Path("/proc/self/mounts").read_text()


class TestLent:
    """A web server stands for vLLM: what is asked is whether a change is seen."""

    SERVE = "echo > /tmp/health; exec httpd -f -p 8000 -h /tmp"

    def run(self, engine: PrivateEngine, name: str, port: int) -> None:
        publish = ("--publish", f"127.0.0.1:{port}:8000")
        engine.docker("run", "--detach", "--name", name, "--init", *publish, BUSYBOX, "sh", "-c", self.SERVE)

    def test_who_changes_a_shared_engine_is_found_out(
        self, engine: PrivateEngine, container_name: str, free_port: int
    ) -> None:
        self.run(engine, container_name, free_port)
        lent = Lent(engine, Served(container_name, free_port, 0.0))
        assert lent.change() == ""
        engine.docker("stop", container_name)
        assert "is exited" in lent.change()
        engine.docker("start", container_name)
        assert "was started again" in lent.change()
        engine.docker("rm", "--force", container_name)
        assert "is gone" in lent.change()
        self.run(engine, container_name, free_port)
        assert "is another container" in lent.change()

    def test_one_that_runs_and_does_not_answer_is_found_out(
        self, engine: PrivateEngine, container_name: str, free_port: int
    ) -> None:
        engine.docker("run", "--detach", "--name", container_name, "--init", BUSYBOX, "sleep", "1000")
        lent = Lent(engine, Served(container_name, free_port, 0.0), healthy_seconds=0.5)
        assert "does not serve" in lent.change()


class TestPorts:
    def test_a_port_is_never_given_twice(self, take_port: Callable[[], int]) -> None:
        ports = [take_port() for _ in range(5)]
        assert ports == sorted(set(ports))


class TestRegistry:
    def test_an_image_can_be_pushed_and_pulled(self, engine: PrivateEngine, registry: PrivateRegistry) -> None:
        reference = registry.push(engine, BUSYBOX, "test/busybox:pushed")
        assert engine.docker("images", "--quiet", reference) == ""
        engine.docker("pull", reference)
        assert engine.docker("run", "--rm", reference, "echo", "pulled") == "pulled"
        engine.docker("rmi", reference)

    def test_a_locked_registry_refuses_strangers_and_admits_those_who_log_in(
        self, engine: PrivateEngine, locked_registry: PrivateRegistry
    ) -> None:
        reference = locked_registry.push(engine, BUSYBOX, "private/busybox:1")
        refused = engine.try_docker("pull", reference)
        assert refused.returncode == 1
        assert "no basic auth credentials" in refused.stderr
        with locked_registry.logged_in(engine) as config:
            engine.docker("pull", reference, env={"DOCKER_CONFIG": str(config)})
        engine.docker("rmi", reference)

    def test_a_slow_link_stretches_a_pull(self, lab: Lab, engine: PrivateEngine, registry: PrivateRegistry) -> None:
        ensure_layered(engine, lab.toolbox, [400_000, 400_000])
        registry.push(engine, LAYERED, "test/layered:slow")
        engine.docker("rmi", LAYERED)
        with SlowLink(registry.port, 800_000) as link:
            reference = f"{link.address}/test/layered:slow"
            started = time.monotonic()
            engine.docker("pull", reference)
            seconds = time.monotonic() - started
        engine.docker("rmi", reference)
        assert 0.9 < seconds < 20


class TestVllm:
    def test_the_image_starts_vllm_serve_like_the_official_one(self, vllm_lab: Lab) -> None:
        config = vllm_lab.engine.api("GET", f"/images/{SERVE_TAG}/json")["Config"]
        assert config["Entrypoint"] == ["vllm", "serve"]
        assert not config["Cmd"]

    def test_its_twin_starts_a_shell_like_nvidias_and_shares_its_layers(self, vllm_lab: Lab) -> None:
        images = [vllm_lab.engine.api("GET", f"/images/{tag}/json") for tag in (SERVE_TAG, SHELL_TAG)]
        assert images[1]["Config"]["Entrypoint"] == [SHELL_ENTRYPOINT]
        assert images[1]["RootFS"]["Layers"][: len(images[0]["RootFS"]["Layers"])] == images[0]["RootFS"]["Layers"]
        printed = vllm_lab.engine.docker("run", "--rm", SHELL_TAG, "vllm", "--version")
        assert printed.splitlines()[-1] == f"{VERSION}+cpu"

    def test_the_models_are_in_the_store(self, model_store: Path) -> None:
        for name in NAMES:
            assert (model_store / name / "config.json").is_file()
            assert list((model_store / name).glob("*.safetensors"))
