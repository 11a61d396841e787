"""The adapter that drops the cache: what it runs, what it refuses, and that nothing it starts can hang it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spark_tui.base.errors import SparkError
from spark_tui.base.host.memory import Access, Route, RouteKind, SystemFile, routes, sudoers_grant
from spark_tui.observe.memory.adapter.drop_caches import SystemCacheDropper
from tests.programs import asked, program

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
async def dropper(tmp_path: Path) -> AsyncIterator[SystemCacheDropper]:
    adapter = SystemCacheDropper(tmp_path, sync_seconds=0.3)
    yield adapter
    await adapter.close()


def by(*argv: str, stdin: str = "") -> Route:
    """A silent route that runs a program of the test's own."""
    return Route(RouteKind.SUDO, argv, stdin)


# --- dropping -------------------------------------------------------------------------------------------


async def test_dirty_pages_are_written_before_the_drop_and_the_value_comes_by_a_pipe(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "sync", "exit 0")
    look = f"if (: < /dev/tty) 2>/dev/null; then echo yes > {tmp_path}/tty; fi"
    program(programs, "writer", f"cat > {tmp_path}/value; {look}")
    assert await dropper.drop(by("writer", "/proc/sys/vm/drop_caches", stdin="3"))
    assert asked(programs) == ["sync ", "writer /proc/sys/vm/drop_caches"]
    assert (tmp_path / "value").read_text() == "3"
    assert not (tmp_path / "tty").exists(), "a child has no terminal to prompt on"


async def test_a_disk_that_takes_too_long_does_not_hold_up_the_drop(
    dropper: SystemCacheDropper, programs: Path
) -> None:
    program(programs, "sync", "exec sleep 30")
    program(programs, "writer", "exit 0")
    assert await dropper.drop(by("writer")) is False
    program(programs, "sync", "exit 0")
    assert await dropper.drop(by("writer")) is True


@pytest.mark.parametrize(
    ("name", "detail"),
    [("sudo", "sudo: a password is required"), ("no-such-program", "no-such-program: No such file or directory")],
)
async def test_a_refusal_carries_the_program_s_own_words_without_control_codes(
    dropper: SystemCacheDropper, programs: Path, name: str, detail: str
) -> None:
    program(programs, "sync", "exit 0")
    program(programs, "sudo", "printf 'one\\nsudo: a \\033[31mpassword is required\\n' >&2; exit 1")
    with pytest.raises(SparkError) as caught:
        await dropper.drop(by(name, "-n", "x"))
    assert caught.value.detail == detail
    assert "sudo sh -c" in caught.value.remedy


@pytest.mark.parametrize("kind", [RouteKind.CONTAINER, RouteKind.PRIVILEGED, RouteKind.TERMINAL])
async def test_what_needs_a_person_is_never_run_silently(dropper: SystemCacheDropper, kind: RouteKind) -> None:
    with pytest.raises(ValueError, match="not a route"):
        await dropper.drop(Route(kind, ("true",)))


# --- what is allowed ------------------------------------------------------------------------------------


@ROOT_ONLY
async def test_root_needs_no_sudo(dropper: SystemCacheDropper) -> None:
    access = await dropper.access()
    assert access.root
    assert routes(access)[0].kind is RouteKind.ROOT


async def test_sudo_is_asked_for_exact_commands_and_never_prompts(
    dropper: SystemCacheDropper, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(programs, "sudo", '[ "$*" = "-n -l /usr/sbin/sysctl -w vm.drop_caches=3" ]')
    program(programs, "systemctl", "exit 0")
    access = await dropper.access()
    assert access == Access(sudo=("/usr/sbin/sysctl", "-w", "vm.drop_caches=3"), has_sudo=True)
    assert all(line.startswith("sudo -n -l ") for line in asked(programs))


async def test_the_unit_counts_once_it_is_installed(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "systemctl", "exit 0")
    assert not (await dropper.access()).unit
    unit = tmp_path / "etc/systemd/system/spark-tui-drop-caches.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    assert (await dropper.access()).unit


# --- the grant ------------------------------------------------------------------------------------------


async def test_visudo_checks_a_draft_that_is_gone_afterwards(dropper: SystemCacheDropper, programs: Path) -> None:
    program(programs, "visudo", "grep -q root \"$2\" || { echo 'x:1:1: syntax error' >&2; exit 1; }")
    assert await dropper.check_grant("nonsense") == "x:1:1: syntax error"
    [line] = asked(programs)
    assert line.startswith("visudo -cf ")
    assert not Path(line.removeprefix("visudo -cf ")).exists()
    assert await dropper.check_grant(sudoers_grant("spark", 1000).text) == ""


@ROOT_ONLY
def test_system_files_are_written_whole_and_root_s_and_removed_again(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path
) -> None:
    program(programs, "systemctl", "exit 0")
    program(programs, "check", "exit 0")
    files = (
        SystemFile(str(tmp_path / "etc/a.service"), "text of a\n"),
        SystemFile(str(tmp_path / "etc/grant"), "text of b\n", "0440", "check -q"),
    )
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a.service").write_text("older")
    assert dropper.write_files(files) == 0
    for file in files:
        status = Path(file.path).stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, int(file.mode, 8))
        assert Path(file.path).read_text() == file.text
    assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == ["a.service", "grant"], "no draft is left"
    assert dropper.remove_files([file.path for file in files]) == 0
    assert list((tmp_path / "etc").iterdir()) == []
    check, *others = asked(programs)
    assert check.startswith(f"check -q {tmp_path}/etc/.spark-tui.")
    assert others == ["systemctl daemon-reload"] * 2
    assert dropper.remove_files([files[1].path]) == 0
    assert asked(programs)[3:] == [], "systemd reads its units again for a unit only"


@ROOT_ONLY
@pytest.mark.parametrize(("path", "check"), [("file/x.service", "true"), ("x.service", "false")])
def test_what_cannot_be_written_or_is_unsound_stops_there(
    dropper: SystemCacheDropper, programs: Path, tmp_path: Path, path: str, check: str
) -> None:
    program(programs, "systemctl", "exit 0")
    (tmp_path / "file").write_text("")
    assert dropper.write_files([SystemFile(str(tmp_path / path), "x", check=check)]) != 0
    assert not (tmp_path / "x.service").exists()
    assert asked(programs) == []
