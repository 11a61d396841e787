"""Keys and tokens are planted everywhere that they can come from; nothing that goes out may show one.

In: the environment, the token file, the engine's env file, foreign containers' arguments, log lines, error bodies,
recipes. Out: every command's standard output and error, text and JSON; files that are written; the crash trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_API_KEY_FILE, ContainerStatus, PublishedPort
from spark_tui.base.errors import EngineFailed
from spark_tui.base.files import FileLogArchive, PrivateFolder
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.machine.secrets import FileSecrets
from tests.cli.world import BOOT, IMAGE, TINY, Result, World

TOKEN = "hf_PlantedTokenAbCdEfGh0123456789xyz"
KEY = "sk-PlantedKey0123456789abcdefghijkl"
OWN_KEY = "0123456789abcdefPLANTED0123456789abcdef01234567"
BEARER = "PlantedBearer.0123456789-abc"
PASSWORD = "PlantedPassword99"
NEEDLES = ("PlantedToken", "PlantedKey", "PLANTED", "PlantedBearer", "PlantedPassword")

LINES = (
    f"INFO 01-15 07:00:01 [utils.py:253] non-default args: {{'api_key': ['{KEY}'], 'model': 'acme/tiny-1b'}}",
    f"INFO 01-15 07:00:02 [serve.py:9] HF_TOKEN={TOKEN} VLLM_API_KEY={OWN_KEY}",
    f'DEBUG headers: {{"Authorization": "Bearer {BEARER}"}}',
    f"curl -H 'Authorization: Bearer {BEARER}' http://user:{PASSWORD}@proxy:3128/v1/models?token={KEY}",
    f"huggingface_hub.errors.HfHubHTTPError: 401 Client Error: token {TOKEN} is invalid",
    f"ValueError: api_key={KEY} password: '{PASSWORD}' is refused",
)
EXPORTS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return planted(tmp_path)


def planted(tmp_path: Path) -> World:
    environ = {"HF_TOKEN": TOKEN, "VLLM_API_KEY": OWN_KEY}
    secrets = FileSecrets(PrivateFolder(tmp_path / "secrets"), environ, tmp_path)
    archive = FileLogArchive(tmp_path / "logs")
    made = World(secrets=secrets, archive=archive, drive=True)  # type: ignore[arg-type]
    made.presets.catalogue = PresetCatalogue(
        (TINY, replace(TINY, name="leaky", env=(("HF_TOKEN", TOKEN), ("NGC_API_KEY", KEY), ("OK", "1")))),
    )
    made.docker.add_image(IMAGE)
    made.docker.script(IMAGE, (*BOOT, *LINES))
    made.docker.on_start = made.api.serve
    key_file = tmp_path / "secrets" / "tiny-1b.env"
    key_file.parent.mkdir(mode=0o700)
    key_file.write_text(f"HF_TOKEN={TOKEN}\nVLLM_API_KEY={OWN_KEY}\n")
    key_file.chmod(0o600)
    made.engine(lines=(*BOOT, *LINES), more_labels=((LABEL_API_KEY_FILE, str(key_file)),), host_ip="0.0.0.0")
    made.docker.add_container(
        "theirs",
        image=IMAGE,
        argv=("vllm", "serve", "x/y", "--api-key", KEY, "--port", "8001"),
        ports=(PublishedPort(8001, 8001, "0.0.0.0"),),
        environment=("HF_TOKEN", "VLLM_API_KEY"),
        lines=(*BOOT[:2], *LINES),
        status=ContainerStatus.EXITED,
        exit_code=1,
        error=f"OCI runtime: env HF_TOKEN={TOKEN}",
        network_mode="bridge",
    )
    return made


def leaks(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(needle in line for needle in NEEDLES)]


def shows_nothing(result: Result) -> Result:
    assert leaks(result.out) == []
    assert leaks(result.err) == []
    return result


COMMANDS = (
    ("status",),
    ("status", "--plain"),
    ("ps", "-a"),
    ("memory",),
    ("presets", "list"),
    ("presets", "show", "leaky"),
    ("presets", "show", "tiny-1b"),
    ("presets", "check"),
    ("presets", "check", "leaky"),
    ("presets", "diff", "tiny-1b"),
    ("presets", "diff", "tiny-1b", "theirs", "--all"),
    *(("presets", "export", "tiny-1b", "--format", each) for each in EXPORTS),
    *(("presets", "export", "leaky", "--format", each) for each in EXPORTS),
    ("fit", "tiny-1b"),
    ("up", "tiny-1b", "--dry-run", "--expose", "lan"),
    ("up", "leaky", "--dry-run", "--name", "other"),
    ("logs", "tiny-1b"),
    ("logs", "tiny-1b", "--raw", "-t"),
    ("logs", "theirs"),
    ("explain", "tiny-1b"),
    ("explain", "theirs"),
    ("history",),
    ("metrics", "tiny-1b"),
    ("restart", "tiny-1b"),
    ("secure", "theirs"),
    ("secure", "tiny-1b"),
    ("down", "theirs"),
    ("config", "list"),
    ("config", "keys"),
)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_shows_one(tmp_path: Path, as_json: bool) -> None:
    faults = {}
    for number, arguments in enumerate(COMMANDS):
        home = tmp_path / str(number)
        home.mkdir()
        environment = {"HF_TOKEN": TOKEN, "VLLM_API_KEY": OWN_KEY, "HOME": str(home)}
        result = planted(home).run(*arguments, *["--json"] * as_json, environment=environment)
        if shown := leaks(result.out + result.err):
            faults[arguments] = shown
        assert result.out or result.err, f"{arguments}: a command that says nothing proves nothing"
    assert faults == {}


def test_masked_lines_are_still_there(world: World) -> None:
    out = world.run("logs", "tiny-1b").out
    assert out.count("***") >= len(LINES)


def test_a_launch_with_a_key_shows_none_and_writes_it_where_only_its_owner_reads(world: World, tmp_path: Path) -> None:
    arguments = ("up", "tiny-1b", "--name", "fresh", "--port", "8055", "--expose", "lan")
    result = shows_nothing(world.run(*arguments))
    assert result.code == 0, result.err
    path = tmp_path / "secrets" / "fresh.env"
    key = next(line.partition("=")[2] for line in path.read_text().splitlines() if "API_KEY" in line)
    assert path.stat().st_mode & 0o777 == 0o600
    spec = world.docker.created[-1]
    again = world.run(*arguments, "--json")
    for text in (result.out, result.err, again.out, again.err, repr(spec), " ".join(spec.command)):
        assert key not in text
        assert TOKEN not in text


def test_a_key_in_a_recipe_goes_through_the_private_file(world: World, tmp_path: Path) -> None:
    result = shows_nothing(world.run("up", "leaky", "--port", "8066"))
    assert result.code == 0, result.err
    spec = world.docker.created[-1]
    assert leaks(repr(spec)) == []
    assert [variable.name for variable in spec.env if variable.name in ("OK", "HF_TOKEN")] == ["OK"]
    lines = (tmp_path / "secrets" / "leaky.env").read_text().splitlines()
    assert f"HF_TOKEN={TOKEN}" in lines
    assert f"NGC_API_KEY={KEY}" in lines


def test_a_log_that_is_saved_when_its_container_is_replaced_has_none(world: World, tmp_path: Path) -> None:
    world.run("down", "tiny-1b")
    result = world.run("up", "tiny-1b", "--set", "max_model_len=2048", "--replace")
    assert result.code == 0, result.err
    [saved] = (tmp_path / "logs").iterdir()
    assert "***" in saved.read_text()
    assert leaks(saved.read_text()) == []


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_an_error_body_of_the_engine_shows_none(world: World, as_json: bool) -> None:
    world.api.events = (
        EngineFailed(
            f"The engine refused: Incorrect API key provided: {KEY}.",
            "See its log.",
            detail=f'{{"error": {{"message": "Authorization: Bearer {BEARER}", "api_key": "{OWN_KEY}"}}}}',
        ),
    )
    result = shows_nothing(world.run("chat", "tiny-1b", "-m", "Hello", *["--json"] * as_json))
    assert result.code != 0
    assert "refused" in result.err


def test_a_crash_shows_where_it_broke_and_no_secret(tmp_path: Path) -> None:
    program = f"""
import sys
from spark_tui import __main__
from spark_tui.app import main
def run(arguments):
    kept = {TOKEN!r}
    raise RuntimeError(f"401 for Bearer {BEARER} with {{kept}}")
main.run = run
__main__.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "RuntimeError: 401 for Bearer ***" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert leaks(last) == []
