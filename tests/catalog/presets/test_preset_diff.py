"""A preset, a launch and a running container side by side: what differs, and nothing secret."""

from __future__ import annotations

from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_PRESET,
    ContainerFacts,
    ContainerSpec,
    ContainerStatus,
    EnvVar,
    Mount,
    PublishedPort,
)
from spark_tui.catalog.presets.model.diff import SET, DiffRow, diff
from spark_tui.catalog.presets.use.comparing import container_of
from tests.kit import PRESET

SPEC = ContainerSpec(
    name="qwen",
    image="vllm/vllm-openai:nightly",
    command=("vllm", "serve", "org/model", "--max-model-len", "4096", "--enable-x", "--port=8000"),
    env=(EnvVar("VLLM_A", "1"), EnvVar("HF_TOKEN", "hf_secret_value_that_is_long")),
    ports=(PublishedPort(8000, 8000, "127.0.0.1"),),
    mounts=(Mount("/home/u/vllm", "/models"),),
)
RUNNING = ContainerFacts(
    "a" * 64, "qwen", SPEC.image, "", ContainerStatus.RUNNING, argv=SPEC.command, ports=SPEC.ports,
    environment=("VLLM_A", "HF_TOKEN", "PATH", "CUDA_HOME"), mounts=SPEC.mounts, restart_policy="no",
    labels=((LABEL_PRESET, PRESET.name),),
)  # fmt: skip


def row(setting: str, *rows: DiffRow) -> DiffRow:
    return next(found for found in rows if found.setting == setting)


def test_a_container_that_runs_what_the_preset_says_differs_in_nothing() -> None:
    found = diff("p", SPEC, SPEC, RUNNING)
    assert found.differing == ()
    assert row("env VLLM_A", *found.rows).running == SET


def test_what_a_person_changed_and_what_an_older_container_has_stand_side_by_side() -> None:
    launch = replace(SPEC, command=(*SPEC.command[:4], "65536", *SPEC.command[5:]))
    old = replace(RUNNING, argv=(*SPEC.command[:5], "--kv-cache-dtype", "fp8"), image="vllm/vllm-openai:v0.20")
    found = diff("p", SPEC, launch, old)
    assert row("--max-model-len", *found.differing) == DiffRow("--max-model-len", "4096", "65536", "4096")
    assert row("--kv-cache-dtype", *found.differing) == DiffRow("--kv-cache-dtype", None, None, "fp8")
    assert row("--enable-x", *found.differing) == DiffRow("--enable-x", "on", "on", None)
    assert row("image", *found.differing).running == "vllm/vllm-openai:v0.20"


def test_spellings_of_one_option_are_one_setting() -> None:
    other = replace(
        RUNNING, argv=("vllm", "serve", "org/model", "--max_model_len=4096", "--enable-x", "--port", "8000")
    )
    assert diff("p", SPEC, SPEC, other).differing == ()


def test_nothing_secret_is_told() -> None:
    launch = replace(SPEC, command=(*SPEC.command, "--api-key", "sk-very-secret-key"))
    told = repr(diff("p", SPEC, launch, replace(RUNNING, argv=launch.command)))
    assert "very-secret" not in told
    assert "hf_secret" not in told


def test_an_images_own_variables_are_not_listed() -> None:
    assert not any("CUDA_HOME" in found.setting for found in diff("p", SPEC, SPEC, RUNNING).rows)


def test_the_running_container_of_a_preset_is_chosen_before_an_ended_one() -> None:
    ended = replace(RUNNING, name="old", status=ContainerStatus.EXITED)
    assert container_of(PRESET, (ended, RUNNING)) is RUNNING
    assert container_of(PRESET, (ended, RUNNING), "old") is ended
    assert container_of(replace(PRESET, name="other"), (ended, RUNNING)) is None
