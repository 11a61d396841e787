"""history --good, presets show, pin and unpin: what is shown, what is written, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles
from spark_tui.observe.explain.model.starts import StartBackends, StartRecord
from spark_tui.observe.explain.model.timeline import StartOutcome
from tests.cli.world import World
from tests.fakes_history import FakeHistory

DIGEST = f"sha256:{'0a' * 32}"
TEXT = "# Mine.\nmodel: acme/otter\ncontainer: acme/vllm:nightly\ncommand: vllm serve {model}\n"
START = StartRecord(
    "c1", 1_799_990_000.5, "otter", "otter", "acme/vllm:nightly", "sha256:1", runtime="vllm", version="0.32.0",
    ready=True, outcome=StartOutcome.STOPPED, seconds=130.0, image_digest=f"acme/vllm@{DIGEST}",
    flags=("--max-model-len 4096",), kernel="6.14.0", driver="580.95",
    backends=StartBackends(("FLASHINFER",), (("NVFP4", "moe", "cutlass \x1b[31m"),), "FULL",
        (("CUDA", "13.0.2"), ("NCCL", "2.28.9"))),
)  # fmt: skip


class Place:
    """One preset of the person's own, with a history of given starts."""

    def __init__(self, root: Path, *starts: StartRecord) -> None:
        self.own = root / "own"
        self.own.mkdir()
        (root / "builtin").mkdir()
        self.file = self.own / "otter.yaml"
        self.file.write_text(TEXT)
        presets: Any = PresetFiles(root / "builtin", self.own)
        self.world = World(presets=presets, recipes=FolderRecipeStore(self.own), history=FakeHistory(*starts))
        self.world.docker.add_image("acme/vllm:nightly", id="sha256:2")

    def run(self, *arguments: str) -> Any:
        return self.world.run(*arguments)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, START, replace(START, container="c2", at=START.at + 900, ready=False,
                                          outcome=StartOutcome.FAILED))  # fmt: skip


def test_good_starts_have_their_digest_and_one_of_a_name_is_shown_in_full(place: Place) -> None:
    heading, row = place.run("history", "--good").out.splitlines()
    assert heading.split() == ["STARTED", "PRESET", "TOOK", "VERSION", "DIGEST", "ATTENTION", "DRIVER", "MEASURED"]
    assert row.split()[2:] == ["otter", "2m10s", "0.32.0", "sha256:0a0a0a0a0a0a", "FLASHINFER", "580.95"]
    page = place.run("history", "--good", "otter").out
    for text in (
        f"acme/vllm@{DIGEST}",
        "vllm 0.32.0, CUDA 13.0.2, NCCL 2.28.9",
        "NVFP4 moe cutlass",
        "6.14.0",
        "--max-model-len",
    ):
        assert text in page
    assert "\x1b" not in page


def test_good_starts_as_data(place: Place) -> None:
    [found] = place.run("history", "--good", "--json").json
    assert found["image_digest"] == f"acme/vllm@{DIGEST}"
    assert (found["good"], found["flags"], found["attention"]) == (True, ["--max-model-len 4096"], ["FLASHINFER"])
    assert (found["host_kernel"], found["driver"]) == ("6.14.0", "580.95")
    assert found["versions"] == {"CUDA": "13.0.2", "NCCL": "2.28.9"}
    assert (found["results"], found["proofs"]) == ([], [])
    assert place.run("history", "--good", "nobody", "--json").json == []
    assert place.run("history", "--good", "--failed").code == 2


def test_show_names_the_last_good_start_and_whether_the_image_has_changed(place: Place) -> None:
    out = place.run("presets", "show", "otter").out
    assert "sha256:0a0a0a0a0a0a" in out
    assert "changed; go back: spark-tui presets pin otter" in " ".join(out.split())
    found = place.run("presets", "show", "otter", "--json").json
    assert (found["last_good_start"]["id"], found["image_match"]) == ("c1", "differs")
    place.world.docker.go_down()
    found = place.run("presets", "show", "otter", "--json").json
    assert found["image_match"] is None
    assert found["image_match_reason"]


def test_pin_writes_the_digest_and_unpin_gives_the_file_back(place: Place) -> None:
    dry = place.run("presets", "pin", "otter", "--dry-run")
    assert (dry.code, place.file.read_text()) == (0, TEXT)
    assert f"+container: acme/vllm:nightly@{DIGEST}" in dry.out
    done = place.run("presets", "pin", "otter", "--json").json
    assert (done["image"], done["file"]) == (f"acme/vllm:nightly@{DIGEST}", str(place.file))
    assert place.file.read_text() == TEXT.replace("nightly", f"nightly@{DIGEST}")
    assert place.run("presets", "show", "otter", "--json").json["image_match"] == "same"
    again = place.run("presets", "pin", "otter")
    assert (again.code, "spark-tui presets unpin otter" in again.err) == (4, True)
    assert place.run("presets", "unpin", "otter").code == 0
    assert place.file.read_text() == TEXT
    assert place.run("presets", "unpin", "otter").code == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("presets", "pin", "otter", "--digest", "nonsense"), 2),
        (("--read-only", "presets", "pin", "otter"), 4),
        (("presets", "pin", "nope"), 2),
    ],
    ids=["no-digest", "read-only", "no-preset"],
)
def test_what_is_refused_changes_no_file(place: Place, arguments: tuple[str, ...], code: int) -> None:
    result = place.run(*arguments)
    assert (result.code, result.out) == (code, "")
    assert place.file.read_text() == TEXT


def test_without_a_good_start_pin_says_how_to_get_one(tmp_path: Path) -> None:
    result = Place(tmp_path).run("presets", "pin", "otter")
    assert (result.code, "spark-tui up otter" in result.err) == (4, True)
