"""What a preset needs is looked for before anything starts, and keys go where its server reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import Missing, Severity
from spark_tui.base.secret import Secret
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts, RequiredFile
from spark_tui.catalog.presets.use.preflight import Preflight, PreflightStatus
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from tests.kit import PRESET, Kit

PARSER = RequiredFile("parser.py", "org/qwen", "parser.py")
FOLDER = RequiredFile("draft", "org/draft")
PROMPT = RequiredFile("prompts/SYSTEM_PROMPT.txt", "org/qwen", "SYSTEM_PROMPT.txt", for_chat=True)
SCRIPT = RequiredFile("fix.py", url="https://example.org/fix.py")


def needing(*files: RequiredFile, **changes: object) -> Preset:
    return replace(PRESET, facts=PresetFacts(required_files=files), **changes)  # type: ignore[arg-type]


def empty_store() -> Kit:
    kit = Kit()
    kit.host.all_folders = False
    return kit


async def test_a_launch_without_its_files_is_refused_with_the_commands_that_fetch_them() -> None:
    kit = empty_store()
    with pytest.raises(RefusedError, match=r"needs parser\.py, draft, fix\.py") as raised:
        await kit.context[Launcher].launch(LaunchRequest(needing(PARSER, FOLDER, SCRIPT), Overrides()), kit.report)
    assert raised.value.remedy == (
        "Download it first: hf download org/qwen parser.py --local-dir /store"
        " && hf download org/draft --local-dir /store/draft"
        " && curl -fL --create-dirs -o /store/fix.py https://example.org/fix.py"
    )
    assert not kit.docker.created


async def test_files_that_are_there_are_not_spoken_of() -> None:
    kit = empty_store()
    kit.host.files = {Path("/store/parser.py")}
    kit.host.folders = {Path("/store/draft")}
    plan = kit.context[Preflight].dry_plan(needing(PARSER, FOLDER), Overrides())
    assert not any("in the model store" in note for note in plan.notes)
    assert kit.context[Preflight].missing_files(needing(PARSER, FOLDER, SCRIPT)) == (SCRIPT,)


async def checked(kit: Kit, preset: Preset) -> PreflightStatus:
    preflight = kit.context[Preflight]
    return await preflight.check(preflight.dry_plan(preset, Overrides()))


async def test_what_only_the_chat_needs_does_not_keep_an_engine_from_starting() -> None:
    kit = empty_store()
    status = await checked(kit, needing(PROMPT))
    assert not status.runs


async def test_a_model_may_be_a_file() -> None:
    kit = empty_store()
    preset = replace(PRESET, model="/models/m.gguf", runtime="llama-cpp", command="llama-server -m {model}")
    with pytest.raises(RefusedError, match=r"/store/m\.gguf does not exist"):
        await checked(kit, preset)
    kit.host.files = {Path("/store/m.gguf")}
    await checked(kit, preset)
    assert kit.context[Preflight].dry_plan(preset, Overrides()).model == "/models/m.gguf"


async def test_a_file_that_another_tool_has_deleted_is_missed_before_anything_starts() -> None:
    kit = empty_store()
    kit.context.paths = replace(kit.context.paths, tools=("/ollama",))
    preset = replace(PRESET, model="/ollama/blobs/m.gguf", runtime="llama-cpp", command="llama-server -m {model}")
    with pytest.raises(RefusedError, match=r"/ollama/blobs/m\.gguf does not exist"):
        await checked(kit, preset)
    kit.host.files = {Path("/ollama/blobs/m.gguf")}
    await checked(kit, preset)


class AskedCheckpoints:
    """A CheckpointSource that knows none."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def read(self, model: str, revision: str = "") -> Missing:
        del revision
        self.asked.append(model)
        return Missing("none")


async def test_a_model_of_a_mount_outside_the_store_is_looked_for_where_it_lies() -> None:
    kit = empty_store()
    kit.host.folders = {Path("/store/m")}
    own = replace(PRESET, origin=Origin.USER, model="/models/m", mounts=("/data:/models",))
    with pytest.raises(RefusedError, match=r"/data/m does not exist") as raised:
        await checked(kit, own)
    assert "ownload" not in raised.value.remedy
    kit.host.folders = {Path("/data/m")}
    await checked(kit, own)
    source = AskedCheckpoints()
    await replace(kit.context[LaunchChecks], checkpoints=source).judge(own, Overrides())
    assert source.asked == ["/data/m"]


@pytest.mark.parametrize(
    ("runtime", "command", "variable"),
    [
        ("vllm", "vllm serve {model}", "VLLM_API_KEY"),
        ("sglang", "sglang serve --model-path {model}", "SGLANG_API_KEY"),
        ("llama-cpp", "llama-server -m {model}", "LLAMA_API_KEY"),
    ],
)
async def test_the_key_stands_under_the_name_that_the_server_reads(runtime: str, command: str, variable: str) -> None:
    kit = Kit()
    preset = replace(PRESET, runtime=runtime, command=command, defaults=())
    overrides = Overrides(api_key=True)
    plan = kit.context[Preflight].dry_plan(preset, overrides)
    status = await kit.context[Preflight].check(plan)
    first = await kit.context[Preflight].finish(status, plan)
    kept = dict(kit.secrets.files[kit.secrets.path("qwen")])
    assert set(kept) == {variable}
    again = await kit.context[Preflight].finish(status, plan)
    assert kit.secrets.files[kit.secrets.path("qwen")] == kept, "the key is kept"
    assert first.spec == again.spec
    assert kept[variable].reveal() not in repr(first.spec)


async def test_a_preset_that_wants_a_key_gets_one_unasked() -> None:
    kit = Kit()
    preset = replace(PRESET, facts=PresetFacts(wants_key=True))
    plan = kit.context[Preflight].dry_plan(preset, Overrides())
    await kit.context[Preflight].finish(await kit.context[Preflight].check(plan), plan)
    assert set(kit.secrets.files[kit.secrets.path("qwen")]) == {"VLLM_API_KEY"}


async def test_the_hubs_token_stays_at_home_where_nothing_is_fetched_from_the_hub() -> None:
    kit = Kit()
    kit.secrets.token = Secret("hf_planted")
    preset = replace(PRESET, runtime="ollama", model="qwen3:32b", command="ollama serve", defaults=())
    assert kit.context[Preflight].dry_plan(preset, Overrides()).spec.env_files == ()


async def test_a_pinned_image_is_looked_for_and_pulled_by_its_digest() -> None:
    kit = Kit()
    digest = "sha256:" + "0f" * 32
    preset = replace(PRESET, facts=PresetFacts(image_digest=digest))
    plan = kit.context[Preflight].dry_plan(preset, Overrides())
    status = await kit.context[Preflight].check(plan)
    assert plan.spec.image == f"{PRESET.image}@{digest}"
    assert status.image is None


# --- the rules get what this machine knows ----------------------------------------------------------------

SHARED = replace(PRESET, command="", defaults=(("gpu_memory_utilization", 0.6),))


def ids(findings: object) -> set[str]:
    return {finding.id for finding in findings}  # type: ignore[attr-defined]


async def test_a_docker_that_does_not_answer_makes_no_error() -> None:
    kit = Kit(SHARED)
    kit.docker.go_down()
    findings = (await kit.context[LaunchChecks].judge(SHARED, Overrides())).findings
    assert not [finding for finding in findings if finding.severity is Severity.ERROR]


async def test_a_file_that_the_store_lacks_is_named_and_one_that_is_there_is_not() -> None:
    file = RequiredFile("plugins/parser.py", "org/model", "parser.py")
    preset = replace(PRESET, facts=PresetFacts(required_files=(file,)))
    kit = Kit(preset)
    kit.host.all_folders = False
    assert "required_file_missing" in ids((await kit.context[LaunchChecks].judge(preset, Overrides())).findings)
    kit.host.files.add(Path("/store/plugins/parser.py"))
    assert "required_file_missing" not in ids((await kit.context[LaunchChecks].judge(preset, Overrides())).findings)


async def test_a_file_that_only_the_image_could_have_is_looked_for_in_it() -> None:
    kit = Kit()
    preset = replace(PRESET, command=PRESET.command + " --chat-template /opt/calls.jinja")
    await checked(kit, preset)
    kit.docker.printed = ("/opt/calls.jinja",)
    with pytest.raises(RefusedError, match=r"/opt/calls\.jinja"):
        await checked(kit, preset)
    await checked(kit, replace(PRESET, command=PRESET.command + " --chat-template /models/calls.jinja"))
