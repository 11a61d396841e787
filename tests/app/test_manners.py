"""Manners of every command: what is wrong is said with what to do, data stay data, and no word is cut from a help."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from spark_tui.app.main import cli, run
from tests.cli.world import in_process


def told(line: str, home: Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in the demo, away from any terminal."""
    done = in_process(shlex.split(line), {"HOME": str(home), **environment})
    return done.returncode, done.stdout, done.stderr


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in within(command):
            yield from paths(each, (*path, name))


def within(group: click.Group) -> list[tuple[str, click.Command]]:
    """The commands of a group."""
    context = click.Context(group)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]


COMMANDS = [(path, command) for path, command in paths(cli) if path]
ENGINE, PRESET, MODEL = "qwen3.6-35b", "gpt-oss-120b", "openai/gpt-oss-120b"


# --- help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_list_of_commands_tells_each_in_a_whole_sentence(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    cut = []
    for path, group in [((), cli), *COMMANDS]:
        if isinstance(group, click.Group):
            assert run([*path, "--help"]) == 0, path
            listed = capsys.readouterr().out.partition("Commands:")[2]
            words = " ".join(listed.split())
            for name, command in within(group):
                first = " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
                cut += [] if first in words else [f"{path} {name}: {first}"]
            cut += [f"{path}: a list that ends in ..."] if "..." in listed.partition("Examples:")[0] else []
    assert cut == []


def test_every_command_takes_json_and_demo() -> None:
    wanted = {"as_json", "demo"}
    assert [path for path, command in COMMANDS if wanted - {each.name for each in command.params}] == []


# --- what is wrong ----------------------------------------------------------------------------------------

WRONG = [
    ("presets show gpt-oss-120", 2, "Did you mean gpt-oss-120b"),
    ("presets check nope", 2, "no preset named nope"),
    (f"presets check {PRESET} --set foo", 2, "not of the form key=value"),
    (f"presets check {PRESET} --set foo=1", 2, "Unknown parameter foo"),
    (f"presets diff {PRESET} nope", 2, "spark-tui ps -a"),
    ("presets import nofile.yaml", 2, "nofile.yaml cannot be read"),
    (f"presets export {PRESET} -o /nonexistent/x", 1, "Name another place: -o FILE"),
    ("models inspect org/nope", 2, "spark-tui models inspect org/nope --hub"),
    (f"models inspect {MODEL} --revision nope", 2, "has no revision nope"),
    (f"models verify {MODEL} --revision nope", 2, "has no revision nope"),
    (f"models rm {MODEL} --revision nope --yes", 2, "has no revision nope"),
    ("models search --max-size big", 2, "'big' is not a size. Examples"),
    ("models pull nope", 2, "A repository is named OWNER/NAME."),
    (f"models pull {MODEL} --limit fast", 2, "'fast' is not a size"),
    ("models pause nope", 2, "spark-tui models downloads"),
    ("fit nope", 2, "no preset named nope"),
    (f"up {PRESET} --port 8001", 4, "choose another port, for example 8002"),
    ("down nope", 2, "Known engines: gemma-4-26b, qwen-try, qwen3.6-35b."),
    ("restart nope", 2, "no engine named nope"),
    ("secure nope", 2, "no engine named nope"),
    ("logs nope", 2, "no container named nope"),
    ("explain nofile.log", 2, "There is no file nofile.log"),
    ("explain /", 2, "is a folder"),
    ("history nope", 2, "No start of nope is known"),
    ("chat nope -m x", 2, "no engine named nope"),
    ("drop-caches --install --image cuda", 2, "--image cannot be combined"),
    ("conversations export last --force", 2, "--force needs --output."),
    ("metrics qwen-try", 3, "qwen-try is not serving: failed (exit 1)"),
    ("conversations show nope", 2, "no conversation nope"),
    ("results show nope", 2, "no result nope"),
    ("bench nope", 2, "no engine named nope"),
    (f"bench {ENGINE} --passes 0", 2, "Passes must be 1 to 100, not 0. Change it: --passes."),
    ("drop-caches", 4, "Confirm with --yes"),
    ("guard --status", 4, "Start without --demo"),
    ("doctor --report /nonexistent/x", 1, "Name another place: --report FILE"),
    ("serve --host 0.0.0.0", 4, "--to-network"),
    ("config get nope", 2, "There is no setting `nope`"),
    ("config set theme nope", 4, "A demo changes nothing"),
    ("config unset theme", 4, "A demo changes nothing"),
]


def test_what_is_wrong_is_said_with_what_to_do(tmp_path: Path) -> None:
    faults = []
    for line, code, words in WRONG:
        found, _, err = told(f"--demo {line}", tmp_path)
        errors = [part for part in err.splitlines() if part.startswith("Error: ")]
        said = found == code and words in " ".join(err.split()) and "Traceback" not in err and len(errors) == 1
        if not said or not err.partition(errors[0])[2].strip():  # nothing says what to do next
            faults.append(f"{line}: {found}\n{err}")
    assert faults == [], "\n".join(faults)


def test_with_json_it_is_an_object_on_standard_error(tmp_path: Path) -> None:
    faults = []
    for line, code, _ in WRONG:
        found, out, err = told(f"--demo {line} --json", tmp_path)
        try:
            error = json.loads(err)["error"]
            whole = (found, error["exit_code"]) == (code, code) and error["summary"] and error["remedy"]
            for part in out.splitlines() if not out.startswith(("{\n", "[\n")) else [out]:
                json.loads(part)
        except (ValueError, KeyError) as problem:
            whole = False
            err += repr(problem)
        faults += [] if whole else [f"{line}: {found}\n{out}{err}"]
    assert faults == [], "\n".join(faults)


def test_a_text_without_an_engine_in_it_is_not_taken_for_a_start(tmp_path: Path) -> None:
    (tmp_path / "plain.log").write_text("hello world\n")
    code, _, err = told(f"explain {tmp_path}/plain.log", tmp_path)
    assert code == 0
    assert "No engine's log is recognised in it." in err


def test_a_demo_changes_no_setting_of_the_person(tmp_path: Path) -> None:
    assert told("--demo config set theme spark-light", tmp_path)[0] == 4
    assert not list(tmp_path.rglob("settings.toml"))
    assert told("config set theme spark-light", tmp_path)[0] == 0
    assert list(tmp_path.rglob("settings.toml"))


def test_what_is_missing_of_a_model_is_listed_with_the_command_that_brings_it(tmp_path: Path) -> None:
    _, _, err = told("--demo models list", tmp_path)
    assert "Download the rest: spark-tui models pull nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4" in err
    assert "List files to download again: spark-tui models verify unsloth/Qwen3.6-27B-NVFP4" in err


def test_a_way_to_fit_keeps_what_was_typed_before(tmp_path: Path) -> None:
    _, _, err = told("--demo fit gpt-oss-20b --set max_num_seqs=2 --set gpu_memory_utilization=0.9", tmp_path)
    assert "spark-tui fit gpt-oss-20b --set max_num_seqs=2 --set gpu_memory_utilization=" in err
