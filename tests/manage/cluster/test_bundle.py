"""The running program as one stream: what is in it, and what is not."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from spark_tui import __version__
from spark_tui.catalog.presets.adapter.store import builtin_directory
from spark_tui.manage.cluster.adapter.bundle import InstalledProgram
from spark_tui.manage.cluster.use.install import InstallFailed
from tests.node_ssh import packed_small


def contents(data: bytes) -> tuple[dict[str, object], dict[str, bytes]]:
    """The header, and the files."""
    first, _, rest = data.partition(b"\n")
    size = int(first.partition(b"read(")[2].partition(b")")[0])
    header, _, packed = rest[size:].partition(b"\n")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        files = {each.name: tar.extractfile(each).read() for each in tar.getmembers()}  # type: ignore[union-attr]
    return json.loads(header), files


def test_the_program_its_presets_and_all_its_requirements_are_packed() -> None:
    bundle = InstalledProgram(builtin_directory()).pack()
    header, files = contents(bundle.data)
    names = {part.name.lower().replace("_", "-") for part in bundle.parts}
    assert {"spark-tui", "textual", "linkify-it-py", "msgspec", "pyyaml", "httpcore2", "h11"} <= names
    assert not names & {"pytest", "ruff", "setuptools"}, "extras and what else is installed here stay"
    assert {"spark_tui/__main__.py", "spark_tui/app/control_centre.tcss", "spark_tui/_presets/gpt-oss-20b.yaml"} <= set(
        files
    )
    assert (header["version"], header["files"]) == (__version__, len(files))
    assert {"msgspec", "psutil"} <= set(header["compiled"])  # type: ignore[call-overload]
    assert bundle.unpacked == sum(map(len, files.values()))
    assert not [name for name in files if "__pycache__" in name or ".." in name or name.startswith("/")]


def test_the_same_program_is_packed_the_same_and_another_one_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("model: a/b\n")
    (tmp_path / ".env").write_text("SECRET=1\n")
    first, again = (packed_small(tmp_path).data for _ in range(2))
    assert first == again
    header, files = contents(first)
    assert [name for name in files if name.startswith("spark_tui/_presets/")] == ["spark_tui/_presets/mine.yaml"]
    (tmp_path / "mine.yaml").write_text("model: a/c\n")
    assert contents(packed_small(tmp_path).data)[0]["digest"] != header["digest"]


@pytest.mark.parametrize(
    "installed", [{"direct_url.json": '{"dir_info": {"editable": true}, "url": "file:///x"}', "RECORD": ""}, {}]
)
def test_a_requirement_whose_files_are_unknown_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: dict[str, str]
) -> None:
    info = tmp_path / "click-99.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: click\nVersion: 99.0\n")
    for name, text in installed.items():
        (info / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InstallFailed, match="click is installed") as error:
        InstalledProgram(builtin_directory()).pack()
    assert error.value.remedy
