"""What a preset needs in the model store: read from its recipe, and the command that fetches it."""

from __future__ import annotations

import shlex

import pytest

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.fetching import fetch_command
from spark_tui.domain.presets.preset import Origin, Preset, RequiredFile, RequiredStep
from spark_tui.domain.presets.recipe import preset_from
from spark_tui.services.presets.store import parse


def read(own: str) -> Preset:
    text = f"model: org/m\ncontainer: x\nmetadata:\n  spark_tui: {own}\n"
    return preset_from(parse(text, "r.yaml"), name="r", origin=Origin.USER, file="r.yaml")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (RequiredFile("a.py", "org/m", "a.py"), "hf download org/m a.py --local-dir /store"),
        (RequiredFile("p/a.py", "org/m", "a.py"), "hf download org/m a.py --local-dir /store/p"),
        (RequiredFile("p/q/a.py", "org/m", "q/a.py"), "hf download org/m q/a.py --local-dir /store/p"),
        (
            RequiredFile("p/b.py", "org/m", "a.py"),
            "hf download org/m a.py --local-dir /store/p && mv /store/p/a.py /store/p/b.py",
        ),
        (RequiredFile("folder", "org/m"), "hf download org/m --local-dir /store/folder"),
        (
            RequiredFile("fix.py", url="https://example.org/f.py"),
            "curl -fL --create-dirs -o /store/fix.py https://example.org/f.py",
        ),
    ],
)
def test_each_kind_is_fetched_to_its_place(file: RequiredFile, command: str) -> None:
    assert fetch_command(file, "/store") == command


def test_a_store_with_a_blank_in_its_path_is_quoted() -> None:
    command = fetch_command(RequiredFile("folder", "org/m"), "/home/ada/my models")
    assert shlex.split(command)[-1] == "/home/ada/my models/folder"


def test_a_recipe_says_what_it_needs() -> None:
    facts = read(
        "{required_files: [{target: f, repo: org/m}, {target: s.py, url: 'https://e.org/s.py'}, "
        "{target: P.txt, repo: org/m, file: P.txt, for_chat: true}], "
        "required_steps: [{summary: it installs x, command: pip install x}], runs_as_is: true, wants_key: true}"
    ).facts
    assert facts.required_files == (
        RequiredFile("f", "org/m"),
        RequiredFile("s.py", url="https://e.org/s.py"),
        RequiredFile("P.txt", "org/m", "P.txt", for_chat=True),
    )
    assert facts.required_steps == (RequiredStep("it installs x", "pip install x"),)
    assert facts.runs_as_is and facts.wants_key


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("{required_files: [{target: f}]}", "repo"),
        ("{required_files: [{repo: org/m}]}", "target"),
        ("{required_files: [{target: f, repo: org/m, url: 'https://e.org/s'}]}", "not both"),
        ("{required_files: [{target: ../f, repo: org/m}]}", "leaves the model store"),
        ("{required_files: [{target: f, repo: 'org/m; reboot'}]}", "cannot be used"),
        ("{required_files: [{target: f, repo: '-x'}]}", "cannot be used"),
        ("{required_files: [{target: f, repo: org/m, file: '$(reboot)'}]}", "cannot be used"),
        ("{required_files: [{target: f, url: 'http://e.org/s'}]}", "cannot be used"),
        ("{required_files: [{target: f, url: 'https://e.org/s`reboot`'}]}", "cannot be used"),
        ("{required_steps: [{summary: x}]}", "command"),
        ("{image_digest: latest}", "must be a digest"),
        ("{runs_as_is: maybe}", "true or false"),
    ],
)
def test_what_cannot_be_used_is_named(own: str, said: str) -> None:
    with pytest.raises(PresetError) as raised:
        read(own)
    assert said in str(raised.value)
    assert raised.value.remedy
