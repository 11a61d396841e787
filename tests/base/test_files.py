"""Private files are private, whole, and where they should be, whatever the umask or a stranger's link says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import SparkError
from spark_tui.base.files import (
    FileLogArchive,
    PrivateFolder,
    StateFolder,
    end_of,
    file_name,
    open_plain,
    read_plain,
)
from spark_tui.base.ports import LogLine
from tests.ordinary_user import ordinary_user


@pytest.fixture(autouse=True)
def loose_umask() -> Iterator[None]:
    """The worst umask that a shell may have."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("old", [False, True], ids=["new", "open before"])
def test_folder_and_file_are_private_under_a_loose_umask(tmp_path: Path, old: bool) -> None:
    if old:
        (tmp_path / "secrets").mkdir(mode=0o777)
        (tmp_path / "secrets" / "engine.env").write_text("old")
    folder = PrivateFolder(tmp_path / "secrets")
    path = folder.write(folder.file("engine", ".env"), [b"new"])
    assert (mode(path.parent), mode(path), path.read_bytes()) == (0o700, 0o600, b"new")


def test_a_link_in_the_files_place_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = PrivateFolder(tmp_path / "secrets")
    (tmp_path / "secrets").mkdir()
    link = tmp_path / "secrets" / "engine.env"
    link.symlink_to(victim)
    folder.write(link, [b"secret"])
    assert victim.read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_bytes() == b"secret"


def test_a_failure_half_way_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path)
    path = folder.write(folder.file("a"), [b"old"])

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        folder.write(path, chunks())
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_folder_of_another_user_is_refused() -> None:
    with ordinary_user(), pytest.raises(PermissionError):
        PrivateFolder(Path("/")).write(Path("/x"), [b""])


def test_only_plain_files_directly_inside_are_read(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path / "secrets")
    inside = folder.write(folder.file("engine"), [b"mine"])
    outside = tmp_path / "outside"
    outside.write_text("not for you")
    (tmp_path / "secrets" / "link").symlink_to(outside)
    (tmp_path / "secrets" / "folder").mkdir()
    os.mkfifo(tmp_path / "secrets" / "pipe")
    assert folder.read(inside) == b"mine"
    for path in (
        outside,
        tmp_path / "secrets/../outside",
        *(tmp_path / "secrets" / n for n in ("link", "folder", "pipe", "no")),
    ):
        assert folder.read(path) is None


@given(st.text(), st.text())
def test_any_name_becomes_one_safe_component_and_no_two_share_it(one: str, other: str) -> None:
    for name in (file_name(one), file_name(other)):
        assert "/" not in name
        assert "\x00" not in name
        assert not name.startswith(".")
        assert 0 < len(name) <= 120
    assert one == other or file_name(one) != file_name(other)


def test_plain_names_stay_and_hostile_ones_stay_in_the_folder(tmp_path: Path) -> None:
    for name in ("qwen3.6-35b", "a", "A_b.c-d"):
        assert file_name(name) == name
    for name in ("../../etc/passwd", ".hidden", "", "a/b", "-rf", "x" * 300, "name\n"):
        assert PrivateFolder(tmp_path).file(name, ".env").parent == tmp_path


# --- the archive ----------------------------------------------------------------------------------------


def test_a_saved_log_is_private_named_and_complete(tmp_path: Path) -> None:
    archive = FileLogArchive(tmp_path / "logs", now=lambda: 1_795_243_085.0)
    lines = [
        LogLine("2026-11-21T02:34:09.5Z", "INFO ready [/red]"),
        LogLine("", "no stamp \x1b[31m"),
        LogLine("s", "half \ud800 character"),
        LogLine("s", "args: {'api_key': ['sk-planted-secret-value'], 'port': 8000}"),
    ]
    path = archive.save("qwen3.6-35b", lines)
    assert path.name == "qwen3.6-35b-20261121T063805Z.log"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert path.read_text().splitlines() == [
        "2026-11-21T02:34:09.5Z INFO ready [/red]",
        "no stamp \x1b[31m",
        "s half \\ud800 character",
        "s args: {'api_key': ['***'], 'port': 8000}",
    ]
    with pytest.raises(OSError, match="qwen"):
        FileLogArchive(path).save("a", [])


def test_two_logs_of_one_second_are_two_files(tmp_path: Path) -> None:
    archive = FileLogArchive(tmp_path, now=lambda: 0.0)
    paths = {archive.save("a", [LogLine("", str(number))]) for number in range(3)}
    assert sorted(path.read_text() for path in paths) == ["0\n", "1\n", "2\n"]


def test_the_oldest_logs_make_room_and_the_newest_stays_whatever_its_size(tmp_path: Path) -> None:
    archive = FileLogArchive(tmp_path, most_bytes=2_500)
    kept = []
    for number in range(4):
        path = archive.save(f"engine-{number}", [LogLine("", "x" * 1_000)])
        os.utime(path, (number, number))
        kept.append(path)
    assert [path.exists() for path in kept] == [False, False, True, True]
    large = archive.save("large", [LogLine("", "x" * 5_000)])
    assert large.exists()
    assert not any(path.exists() for path in kept)


def test_state_that_cannot_be_read_is_an_error_with_its_file_and_state_that_is_absent_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state = StateFolder(folder)
    state.write("edit-qwen", b"{}")
    folder.chmod(0)
    try:
        with ordinary_user(tmp_path):
            with pytest.raises(SparkError, match=r"state/edit-qwen\.json"):
                state.read("edit-qwen")
            with pytest.raises(SparkError, match="state"):
                state.names("edit-")
    finally:
        folder.chmod(0o700)
    assert (state.read("edit-qwen"), state.names("edit-"), state.names("other-")) == (b"{}", ("edit-qwen",), ())
    absent = StateFolder(tmp_path / "absent")
    assert (absent.read("edit-qwen"), absent.names("edit-")) == (None, ())


def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="Not a plain file"):
            open_plain(path)
    (tmp_path / "file").write_bytes(b"1")
    with open_plain(tmp_path / "file") as file:
        assert file.read() == b"1"


def test_a_file_is_read_whole_up_to_its_limit_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert read_plain(file, 10) == b"0123456789"
    assert end_of(file, 4) == "6789"
    assert end_of(file, 100) == "0123456789"
    with pytest.raises(OSError, match="more than 9 B"):
        read_plain(file, 9)
    with pytest.raises(IsADirectoryError):
        read_plain(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    for read in (read_plain, lambda path: end_of(path, 1)):
        with pytest.raises(IsADirectoryError):
            read(tmp_path / "pipe")
