"""The rules get what this machine knows, and what it does not know makes no error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_tui.domain.finding import Severity
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.preset import PresetFacts, RequiredFile
from tests.core.kit import PRESET, Kit

SHARED = replace(PRESET, command="", defaults=(("gpu_memory_utilization", 0.6),))


def ids(findings: object) -> set[str]:
    return {finding.id for finding in findings}  # type: ignore[attr-defined]


async def test_engines_that_run_count_against_a_launch() -> None:
    kit = Kit(SHARED)
    assert "engines_exceed_machine" not in ids(await kit.context.checks.check(SHARED, Overrides()))
    kit.docker.add_container(
        "other", argv=("vllm", "serve", "org/other", "--gpu-memory-utilization", "0.7"), image="vllm/vllm-openai:x"
    )
    async with kit.supervised():
        await kit.until(lambda: bool(kit.context.supervisor.views()))
        findings = await kit.context.checks.check(SHARED, Overrides())
        assert "engines_exceed_machine" in ids(findings)
        assert "engines_exceed_machine" not in ids(
            await kit.context.checks.check(replace(SHARED, name="other"), Overrides())
        )


async def test_a_docker_that_does_not_answer_makes_no_error() -> None:
    kit = Kit(SHARED)
    kit.docker.go_down()
    findings = await kit.context.checks.check(SHARED, Overrides())
    assert not [finding for finding in findings if finding.severity is Severity.ERROR]


async def test_a_file_that_the_store_lacks_is_named_and_one_that_is_there_is_not() -> None:
    file = RequiredFile("plugins/parser.py", "org/model", "parser.py")
    preset = replace(PRESET, facts=PresetFacts(required_files=(file,)))
    kit = Kit(preset)
    kit.host.all_folders = False
    assert "required_file_missing" in ids(await kit.context.checks.check(preset, Overrides()))
    kit.host.files.add(Path("/store/plugins/parser.py"))
    assert "required_file_missing" not in ids(await kit.context.checks.check(preset, Overrides()))
