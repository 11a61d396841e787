"""The statements of the five documents that the product grew from, tried on the product as it is.

A row of tests/fixtures/seeds/DOCUMENT.toml is one statement: where it stands, what is run, and what must come out.
`python -m tests.app.test_seeds ID...` prints all that these rows see.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import published_facts
from spark_tui.base.files import SystemUserFiles
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.secret import Secret
from spark_tui.base.settings import Settings
from spark_tui.catalog.models.adapter.checkpoints import StoreCheckpoints
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.machine.docker.errors import from_transport
from spark_tui.machine.docker.host import DockerHost
from spark_tui.manage.doctor.adapter import FileDoctorProbe
from tests import TESTS
from tests.cli.world import TINY, Result, StaticPresets, World, example, in_process
from tests.fake_ssh import FakeSsh
from tests.store_kit import COMMIT, cached

SEEDS: Final = TESTS / "fixtures/seeds"
COMMANDS: Final = TESTS / "fixtures/docker_run/shared.md"
"""The commands of the guide and of the image's page, as they stand there."""
STATEMENTS: Final = {"guide": 86, "thread": 23, "write-up": 22, "image": 17, "registry": 30}
"""How many statements each document makes."""
WANTED: Final = re.compile(r"([^=<>]+)([=<>])(.*)", re.DOTALL)


class Try(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A command and what it must say; `published` gives the table of published figures.

    A pattern is PATH=VALUE with * for anything, or PATH<NUMBER, PATH>NUMBER. Paths are those of `--json`: `findings.id`
    is any finding's, `findings[ID].fix` that one's, and `findings` the ids in their order. `text` is what a person
    reads, in one line; `asked` the request that an engine got."""

    run: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    code: int = 0
    stdin: str = ""
    log: str = ""
    """A file of tests/fixtures that is piped in."""
    text: bool = False


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True, eq=False, rename={"tries": "try"}):
    """One statement. `deviates`: the product does otherwise, and this is where it says so."""

    id: str
    place: str
    says: str
    tries: tuple[Try, ...]
    world: str = "spark"
    given: Mapping[str, str] = {}
    """Files in the folder {dir} of the commands."""
    deviates: str = ""


def rows(document: str) -> tuple[Row, ...]:
    """The document's statements."""
    table = tomllib.loads((SEEDS / f"{document}.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["row"], tuple[Row, ...])


# --- what is seen -------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value of all that an answer says."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        names = [str(each.get("id", at)) if isinstance(each, dict) else str(each) for at, each in enumerate(value)]
        yield path, " ".join(names)
        for name, each in zip(names, value, strict=True):
            yield from leaves(each, path)
            if isinstance(each, dict):
                yield from leaves(each, f"{path}[{name}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, one after the other."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].strip()


def seen_in(result: Result, text: bool) -> tuple[tuple[str, str], ...]:
    """What a command said, and what it refused."""
    if text:
        return (("text", " ".join(f"{result.out} {result.err}".split())),)
    found = [leaf for each in documents(result.out) for leaf in leaves(each)]
    for line in result.err.splitlines():
        if line.startswith('{"error"'):
            found += leaves(json.loads(line))
    return tuple(found)


def shows(seen: tuple[tuple[str, str], ...], pattern: str) -> bool:
    """Whether any of it is as the pattern wants it."""
    match = WANTED.fullmatch(pattern)
    assert match is not None, pattern
    path, how, wanted = match[1], match[2], match[3]
    values = [value for at, value in seen if at == path]
    if how == "=":
        form = re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
        return any(form.fullmatch(value) for value in values)
    numbers = [float(value) for value in values if value != "null"]
    return any(each < float(wanted) if how == "<" else each > float(wanted) for each in numbers)


def world_of(own: Path) -> World:
    """A Spark with nothing on it but what was imported."""
    paths = HostPaths("/home/test/vllm", "/caches", "/home/test", (1000, 1000))
    presets = PresetFiles(builtin_directory(), own)
    return World(presets=presets, recipes=FolderRecipeStore(own), paths=paths)  # type: ignore[arg-type]


def published() -> Mapping[str, list[str]]:
    """The figures that runs are set beside, as `MODEL ENGINE MACHINESxSTREAMS TOK/S SOURCE`; `noted` are those of which
    something is said."""
    figures = {}
    for each in published_facts().figure:
        load = f"{each.machines}x{each.streams} {each.decode_rate:g}"
        figures[f"{each.model} {each.runtime} {load} {each.source}"] = each.conditions or each.dispute
    return {"published": list(figures), "noted": [figure for figure, said in figures.items() if said]}


AUDIT: Final = {
    "model.layers.0.linear_attn.in_proj_qkvz.weight": ("BF16", 1.44e9),
    "model.layers.0.linear_attn.out_proj.weight": ("BF16", 480e6),
    "model.layers.0.mlp.gate.weight": ("BF16", 40e6),
    "lm_head.weight": ("BF16", 970e6),
    "model.embed_tokens.weight": ("BF16", 1.02e9),
    "model.layers.0.mlp.experts.0.up_proj.weight": ("U8", 1.7e9 * 256 / 8),
}
"""nvidia/Qwen3.6-35B-A3B-NVFP4 as the write-up's audit of its modules has it: bytes of each kind of layer. All kinds
stand in one layer, because only their sums are published. 1.7e9 bytes of its experts are read for a token."""


def audited(store: Path) -> None:
    """That model in the store: a header of its weights, and nothing behind it."""
    tensors, end = {}, 0
    for name, (dtype, size) in AUDIT.items():
        tensors[name] = {"dtype": dtype, "shape": [int(size) // 2 if dtype == "BF16" else int(size)]}
        tensors[name]["data_offsets"] = [end, end := end + int(size)]
    header = json.dumps(tensors).encode()
    known = json.loads((TESTS / "fixtures/models/qwen3.6-35b-a3b.json").read_text(encoding="utf-8"))
    config = known["config"] | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    base = cached(store, "nvidia/Qwen3.6-35B-A3B-NVFP4", {"config.json": json.dumps(config).encode()})
    with (base / "snapshots" / COMMIT / "model.safetensors").open("wb") as weights:
        weights.write(len(header).to_bytes(8, "little") + header)
        weights.truncate(8 + len(header) + end)


def machine(how: str, folder: Path) -> Callable[[list[str], str | None], Result]:
    """What runs commands on a machine of that kind."""
    if how in ("demo", "home"):  # the real ports: with --demo, or in a home with a cluster of two
        ssh = FakeSsh(folder / "ssh")
        settings = Path(ssh.environment["HOME"]) / ".config/spark-tui/settings.toml"
        settings.parent.mkdir(parents=True)
        node = "{{ssh='nv@spark-{0}',fabric=['192.168.100.{0}'],interfaces=['enP2p1s0f1np1']}}"
        settings.write_text(f"[clusters]\nduo={{nodes=[{node.format(1)},{node.format(2)}]}}\n")
        for each in (1, 2):
            ssh.serves(f"nv@spark-{each}", memory={"total_bytes": 128 * 10**9, "available_bytes": 120 * 10**9})

        def outside(words: list[str], stdin: str | None) -> Result:
            done = in_process(["--demo"] * (how == "demo") + words, ssh.environment, stdin=stdin or "")
            return Result(done.returncode, done.stdout, done.stderr)

        return outside
    (folder / "own").mkdir()
    world = world_of(folder / "own")
    if how == "guide":
        assert world.run("presets", "import", str(folder / COMMANDS.name)).code == 0
    elif how == "token":
        world.secrets.token = Secret("hf_x")
    elif how == "doctor":
        world.doctor = FileDoctorProbe({}, folder)
    elif how == "audited":
        audited(folder)
        world.models, world.checkpoints = FolderModelStore(folder), StoreCheckpoints(folder)
        world.paths, world.settings = HostPaths(str(folder), "/caches", "/home/test"), Settings(store=folder)
    elif how == "refused":
        world.docker.go_down(from_transport(PermissionError(13, "no"), DockerHost("/var/run/docker.sock")))
    elif how == "serving":
        world = example()
        world.drive = True
        facts = replace(TINY.facts, modalities=("text", "image", "audio"))
        world.presets = StaticPresets(PresetCatalogue((replace(TINY, facts=facts),)))

    def inside(words: list[str], stdin: str | None) -> Result:
        if words[0] == "published":
            return Result(0, json.dumps(published()), "")
        world.user_files = SystemUserFiles(folder)  # a command closes what it opened
        result = world.run(*words, stdin=stdin)
        asked = [msgspec.to_builtins({"asked": each}) for each in world.api.asked[-1:]]
        return Result(result.code, "\n".join([result.out, *map(json.dumps, asked)]), result.err)

    return inside


def answers(row: Row, folder: Path) -> Iterator[tuple[Try, Result]]:
    """Each command of the row, one after the other on the same machine."""
    folder.mkdir()
    shutil.copy(COMMANDS, folder)  # in no repository, which would name it by its place there
    for name, text in row.given.items():
        (folder / name).write_bytes(text.encode("latin-1" if name.endswith((".png", ".wav")) else "utf-8"))
    run = machine(row.world, folder)
    for one in row.tries:
        words = shlex.split(one.run.replace("{dir}", str(folder)).replace("{commands}", str(folder / COMMANDS.name)))
        given = (TESTS / "fixtures" / one.log).read_text(encoding="utf-8") if one.log else one.stdin
        yield one, run([*words, *([] if one.text else ["--json"])], given or None)


class Outcome(NamedTuple):
    """A row, what its commands do not say or say though they should not, and all that they say."""

    row: Row
    missed: tuple[str, ...]
    seen: frozenset[tuple[str, str]]


def outcome(row: Row, folder: Path) -> Outcome:
    """The row, tried."""
    missed, everything = list[str](), set[tuple[str, str]]()
    for one, result in answers(row, folder):
        seen = seen_in(result, one.text)
        everything |= set(seen)
        missed += [f"{one.run}: no {each}" for each in one.has if not shows(seen, each)]
        missed += [f"{one.run}: {each}" for each in one.lacks if shows(seen, each)]
        if result.code != one.code:
            missed.append(f"{one.run}: code {result.code}, {result.err}")
    return Outcome(row, tuple(missed), frozenset(everything))


# --- the test -----------------------------------------------------------------------------------------------


def check_rows(tried: Sequence[Outcome]) -> None:
    """Each row is one of its own, and could fail: it wants something, and what it lacks has its place in an answer."""
    assert len({each.row.id for each in tried}) == len(tried)
    places = {path for each in tried for path, _ in each.seen}
    for row in (each.row for each in tried):
        assert row.place and row.says and row.tries, row.id
        wanted = [each for one in row.tries for each in one.has]
        assert wanted, f"{row.id} wants nothing"
        assert not any(shows((), each) for each in wanted), row.id
        lacked = [WANTED.fullmatch(each) for one in row.tries for each in one.lacks]
        assert {each[1] for each in lacked if each is not None} <= places, f"{row.id} lacks what nothing ever says"


@pytest.mark.parametrize("document", STATEMENTS)
def test_what_a_document_states_holds_or_the_product_says_where_it_deviates(document: str, tmp_path: Path) -> None:
    tried = [outcome(row, tmp_path / row.id) for row in rows(document)]
    assert [f"{row.id}: {' | '.join(missed)}" for row, missed, _ in tried if missed] == []
    assert len(tried) == STATEMENTS[document]
    check_rows(tried)


def main(ids: list[str]) -> None:
    """Prints what the named rows see."""
    for row in (row for document in STATEMENTS for row in rows(document) if row.id in ids):
        with tempfile.TemporaryDirectory(prefix="seeds-") as folder:
            for one, result in answers(row, Path(folder, row.id)):
                print(f"$ {one.run}: {result.code}")
                print(*(f"    {path}={value}" for path, value in seen_in(result, one.text)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
