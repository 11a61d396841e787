"""The page cache of this machine's own kernel: dropped as root, by the grant alone, and by a one-shot container.

The grant's tests need sudo, which they install from Debian where it is absent, and take away again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Ok
from spark_tui.base.host.memory import GRANT_FILE, Access, RouteKind, routes, sudoers_grant
from spark_tui.base.quantities import MIB
from spark_tui.base.store import Store
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.machine.procfs import ProcfsHost
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory.adapter.drop_caches import SystemCacheDropper
from spark_tui.observe.memory.use.memory import CacheControl
from tests.fakes_api import FakeEngineApi
from tests.fakes_host import FakeClock, FakeSecrets
from tests.fakes_ports import Ports
from tests.ordinary_user import NOBODY
from tests.real.lab import PrivateEngine
from tests.real.lab.images import BUSYBOX
from tests.real.lab.support import LabFailed, run

CACHED = 512 * MIB
SLACK = 128 * MIB
"""Other tests and the kernel move so much meanwhile."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop the page cache")


def free_now() -> int:
    """MemFree, bytes."""
    reading = ProcfsHost().memory()
    assert isinstance(reading, Ok)
    return reading.value.free


def on_disk(folder: Path) -> bool:
    """Whether files there live in the page cache of a disk, and not in memory alone."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    return kind not in ("tmpfs", "ramfs")


@pytest.fixture
def cached_file() -> Iterator[Path]:
    """Half a GiB of a file in the page cache, dirty: a drop alone would leave it."""
    folder = next((path for path in (Path("/var/tmp"), Path.home(), Path.cwd()) if on_disk(path)), None)
    if folder is None:
        pytest.skip("no folder of this machine is on a disk: there is no page cache to drop")
    path = folder / f"spark-tui-cache-{os.getpid()}"
    try:
        with path.open("wb") as file:
            block = os.urandom(MIB)
            for _ in range(CACHED // MIB):
                file.write(block)
        yield path
    finally:
        path.unlink(missing_ok=True)


@pytest.fixture
async def dropper() -> AsyncIterator[SystemCacheDropper]:
    adapter = SystemCacheDropper()
    yield adapter
    await adapter.close()


# --- root -----------------------------------------------------------------------------------------------


@needs_root
async def test_as_root_memfree_rises_by_what_was_cached(cached_file: Path, dropper: SystemCacheDropper) -> None:
    access = await dropper.access()
    assert access.root
    before, reading = free_now(), ProcfsHost().memory()
    assert isinstance(reading, Ok)
    synced = await dropper.drop(routes(access)[0])
    assert synced
    after = ProcfsHost().memory()
    assert isinstance(after, Ok)
    assert after.value.free - before > CACHED - SLACK
    assert abs(after.value.available - reading.value.available) < CACHED, "usable memory hardly moves"


@needs_root
async def test_as_root_memory_is_compacted(dropper: SystemCacheDropper) -> None:
    from spark_tui.base.host.memory import compact_route

    route = compact_route(await dropper.access())
    assert route is not None
    before = _vmstat("compact_stall") + _vmstat("compact_daemon_wake") + _vmstat("compact_migrate_scanned")
    await dropper.compact(route)
    assert _vmstat("compact_stall") + _vmstat("compact_daemon_wake") + _vmstat("compact_migrate_scanned") >= before


def _vmstat(name: str) -> int:
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


@needs_root
def test_the_command_line_reports_what_was_released(cached_file: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    done = subprocess.run(
        [sys.executable, "-m", "spark_tui", "drop-caches", "--json"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["route"] == "root"
    assert told["released_bytes"] > CACHED - SLACK
    assert told["free_after_bytes"] - told["free_before_bytes"] == told["released_bytes"]
    assert "Available memory is unchanged" in told["sentence"]


# --- an ordinary user, with the grant and nothing else --------------------------------------------------


@pytest.fixture(scope="module")
def sudo() -> Iterator[None]:
    """sudo is here; one that was installed for these tests is removed again."""
    if os.geteuid() != 0:
        pytest.skip("writing a grant needs root")
    if shutil.which("sudo"):
        yield
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", "sudo"], env=environment)
    except LabFailed as error:
        pytest.skip(f"sudo cannot be installed here: {error}")
    try:
        yield
    finally:
        run(["apt-get", "purge", "-y", "-q", "sudo"], env={**environment, "SUDO_FORCE_REMOVE": "yes"})


@pytest.fixture
def grant(sudo: None) -> Iterator[str]:
    """The user `nobody` has the grant, written as `--install` writes it. It is removed afterwards."""
    path = Path(GRANT_FILE)
    if path.exists():
        pytest.skip(f"{path} is this machine's own")
    name = pwd.getpwuid(NOBODY).pw_name
    try:
        assert SystemCacheDropper().write_files([sudoers_grant(name, NOBODY)]) == 0
        yield name
    finally:
        path.unlink(missing_ok=True)


PROBE = """
import asyncio, json, os, subprocess
from spark_tui.base.host.memory import compact_route, routes
from spark_tui.observe.memory.adapter.drop_caches import SystemCacheDropper
os.setgroups([]); os.setgid({gid}); os.setuid({uid})  # now: Python itself may be where others cannot read

async def main():
    dropper = SystemCacheDropper()
    access = await dropper.access()
    told = {{"uid": os.geteuid(), "sudo": access.sudo, "compact": access.sudo_compact}}
    silent = [route for route in routes(access) if route.silent]
    for route in silent[:1]:
        told["kind"] = route.kind.value
        told["synced"] = await dropper.drop(route)
    if compact_route(access):
        await dropper.compact(compact_route(access))
    await dropper.close()
    print(json.dumps(told))

asyncio.run(main())
"""


def as_nobody() -> dict[str, object]:
    """What an ordinary user without any group can do, by the adapter."""
    code = PROBE.format(uid=NOBODY, gid=NOBODY)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_grant_alone_lets_an_ordinary_user_drop_the_cache(grant: str, cached_file: Path) -> None:
    before = free_now()
    told = as_nobody()
    assert told["uid"] == NOBODY
    assert told["sudo"] == ["/usr/bin/tee", "/proc/sys/vm/drop_caches"]
    assert told["compact"] == ["/usr/bin/tee", "/proc/sys/vm/compact_memory"]
    assert told["kind"] == "sudo"
    assert free_now() - before > CACHED - SLACK


def test_without_the_grant_nothing_is_open_and_nothing_prompts(sudo: None) -> None:
    told = as_nobody()
    assert told["sudo"] == []
    assert "kind" not in told


def test_the_grant_is_root_s_and_read_only_and_allows_nothing_else(grant: str) -> None:
    status = Path(GRANT_FILE).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 0, 0o440)
    refused = (
        ["tee", "/etc/passwd"],
        ["/usr/bin/tee", "/proc/sys/vm/drop_caches", "/etc/passwd"],
        ["/usr/bin/tee", "-a", "/proc/sys/vm/drop_caches"],
        ["/usr/bin/tee", "/proc/sys/vm/../../../etc/passwd"],
        ["/usr/bin/id"],
        ["-u", "daemon", "/usr/bin/tee", "/proc/sys/vm/drop_caches"],
    )
    for words in refused:
        done = subprocess.run(
            ["sudo", "-n", *words], user=NOBODY, group=NOBODY, extra_groups=(), input=b"", capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode != 0, words
    assert not list(Path(GRANT_FILE).parent.glob(".spark-tui*")), "no draft is left"


async def test_the_grant_is_sound_and_a_broken_one_is_refused(sudo: None, dropper: SystemCacheDropper) -> None:
    assert await dropper.check_grant(sudoers_grant("nobody", NOBODY).text) == ""
    assert await dropper.check_grant(sudoers_grant("first.last@corp", 4711).text) == ""
    assert await dropper.check_grant("nobody ALL=(root NOPASSWD: /usr/bin/tee\n") != ""
    with contextlib.ExitStack() as stack:
        stack.callback(Path(GRANT_FILE).unlink, missing_ok=True)
        broken = replace(sudoers_grant("nobody", NOBODY), text="nobody ALL=(root NOPASSWD: /usr/bin/tee\n")
        assert dropper.write_files([broken]) != 0
        assert not Path(GRANT_FILE).exists(), "what visudo refuses is never put in place"


def test_a_grant_is_taken_away_again(grant: str, dropper: SystemCacheDropper) -> None:
    assert dropper.remove_files([GRANT_FILE]) == 0
    assert not Path(GRANT_FILE).exists()
    assert as_nobody()["sudo"] == []


# --- a container ----------------------------------------------------------------------------------------


class NoAccess(SystemCacheDropper):
    """A user to whom nothing is allowed but Docker."""

    async def access(self) -> Access:
        return Access()


@needs_root
async def test_an_unprivileged_container_with_that_one_file_drops_the_cache_and_is_gone(
    engine: PrivateEngine, cached_file: Path
) -> None:
    docker = DockerEngine(engine.environ())
    store = Store(SystemClock())
    ports = Ports(SystemClock(), docker, FakeEngineApi(FakeClock()), ProcfsHost(), secrets=FakeSecrets())
    supervisor = EngineSupervisor(ports, store)
    control = CacheControl(NoAccess(), docker, ProcfsHost(), supervisor, store, SystemClock())
    try:
        with pytest.raises(SparkError, match="needs root"):
            await control.drop(image=BUSYBOX)
        result = await control.drop(image=BUSYBOX, consent=True)
        assert result.route is RouteKind.CONTAINER
        assert result.released > CACHED - SLACK
        assert not [each for each in await docker.containers() if each.name == "spark-tui-drop-caches"]
    finally:
        await control.dropper.close()
        await docker.close()
