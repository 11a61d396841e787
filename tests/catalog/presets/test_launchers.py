"""Files that start engines become presets: Compose files, units, Quadlets, scripts, manifests, llama-swap's models."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.engine.runtimes import KeyDelivery
from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.variables import Variables, read_env
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, parse
from spark_tui.catalog.presets.model.dialects.container_files import compose_text, quadlet_text, systemd_text
from spark_tui.catalog.presets.model.dialects.found_files import launcher_of
from spark_tui.catalog.presets.model.dialects.launchers import OUR_IMAGES, NothingBeside
from spark_tui.catalog.presets.model.dialects.recipe_files import to_sparkrun, yaml_text
from spark_tui.catalog.presets.model.dialects.scripts import script_launches
from spark_tui.catalog.presets.model.dialects.unit_files import quadlet_launches, unit_launches
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import MappingValue, Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.use.imports import ImportedRecipe, import_recipes
from tests import TESTS
from tests.cases import all_cases

SHIPPED = tuple(
    each for each in PresetFiles(TESTS.parent / "presets", TESTS / "nowhere").load().presets if each.min_nodes == 1
)
VLLM = "vllm/vllm-openai:nightly"


def imported(folder: Path, files: dict[str, str], **values: str) -> tuple[ImportedRecipe, ...]:
    """What becomes of the first of some files of a folder."""
    home = folder / "home"
    for name, text in files.items():
        path = home / name[2:] if name.startswith("~/") else folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = HostPaths(str(home / "vllm"), str(home / ".cache/spark-tui"), str(home), (1000, 1000))
    store = FolderRecipeStore(folder / "own")
    first = folder / "files" / next(iter(files))
    return import_recipes(store, first, paths=paths, replace=True, values=values).recipes


def launch_of(found: ImportedRecipe, folder: Path) -> ContainerSpec:
    """What a launch of an imported preset asks of Docker."""
    assert found.problem is None, found.problem
    home = folder / "home"
    paths = HostPaths(str(home / "vllm"), str(home / ".cache/spark-tui"), str(home), (1000, 1000))
    document = parse(Path(found.file).read_text(), found.file)
    preset = preset_from(document, name=found.recipe.name, origin=Origin.USER, file=found.file)
    return plan(preset, Overrides(), paths).spec


def words_of(found: ImportedRecipe, folder: Path) -> str:
    return render_text(launch_of(found, folder)).replace(" \\\n ", "").replace(str(folder), "FOLDER")


def compose(service: str, more: str = "") -> str:
    body = "".join(f"    {line}\n" for line in service.strip().splitlines())
    return f"services:\n  chat:\n{body}{more}"


SERVICE = f"image: {VLLM}\ngpus: all\nports: ['8000:8000']\ncommand: --model org/m"

CASES = tomllib.loads((TESTS / "fixtures" / "launchers.toml").read_text())
IMPORTED = {each["kind"]: each for each in CASES["imported"]}
REFUSED = {each["kind"]: each for each in CASES["refused"]}


@pytest.mark.parametrize("kind", IMPORTED)
def test_a_launcher_becomes_the_launch_that_it_is(kind: str, tmp_path: Path) -> None:
    case = IMPORTED[kind]
    (found,) = imported(tmp_path, case["files"], **case.get("given", {}))
    words = words_of(found, tmp_path)
    assert [each for each in case["words"] if (each[1:] in words if each[0] == "!" else each not in words)] == [], words


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_imported_is_refused_once_and_by_name(kind: str, tmp_path: Path) -> None:
    case = REFUSED[kind]
    (found,) = imported(tmp_path, case["files"], **case.get("given", {}))
    message = str(found.problem)
    assert [each for each in case["words"] if each not in message] == [], message
    assert found.problem is not None
    assert found.problem.remedy


@pytest.mark.parametrize(
    "text",
    [
        "M=org/m\nIt's simple. Then:\n\ndocker run --gpus all vllm/vllm-openai:nightly --model $M\n",
        "# Guide\n[Service]\nExecStart=/bin/x\n\n    apiVersion: v1\n",
    ],
)
def test_a_text_that_only_holds_a_piece_of_a_launcher_is_read_as_a_text(text: str, tmp_path: Path) -> None:
    text = text if "docker run" in text else f"Text.\n{text}\ndocker run {VLLM} --model org/m\n"
    (found,) = imported(tmp_path, {"guide.md": text})
    assert launch_of(found, tmp_path).command[:1] == ("org/m",)


def test_services_that_are_no_engines_are_named(tmp_path: Path) -> None:
    more = "  ui: {image: 'ghcr.io/open-webui/open-webui:main', environment: {K: '${OPEN:?x}'}}\n"
    (found,) = imported(tmp_path, {"c.yaml": compose(SERVICE, more)})
    assert any("ui (ghcr.io/open-webui/open-webui:main)" in change for change in found.recipe.changes)


def test_services_with_one_name_are_each_a_preset(tmp_path: Path) -> None:
    more = f"    container_name: llm\n  two: {{image: '{VLLM}', container_name: llm, command: --model org/n}}\n"
    found = imported(tmp_path, {"c.yaml": compose(SERVICE, more)})
    assert [(each.recipe.name, each.recipe.preset and each.recipe.preset.model) for each in found] == [
        ("chat", "org/m"),
        ("two", "org/n"),
    ]


def test_values_are_for_variables_alone(tmp_path: Path) -> None:
    recipe = "model: org/m\ncontainer: vllm/vllm-openai:nightly\ncommand: vllm serve {model}\n"
    with pytest.raises(UsageError, match="--set is for variables"):
        imported(tmp_path, {"r.yaml": recipe}, port="1")


def test_a_link_beside_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / ".env").symlink_to("/etc/hostname")
    (found,) = imported(tmp_path, {"c.yaml": compose(SERVICE)})
    assert "links are not followed" in str(found.problem)


def test_our_images_are_those_of_shipped_presets() -> None:
    assert set(OUR_IMAGES.values()) <= {preset.image for preset in SHIPPED}


# --- there and back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [compose_text, systemd_text, quadlet_text])
@all_cases("preset", SHIPPED, ids=lambda preset: preset.name)
def test_every_shipped_preset_comes_back_from_its_own_export(make: object, preset: Preset, tmp_path: Path) -> None:
    home = tmp_path / "home"
    paths = HostPaths(str(home / "vllm"), str(home / ".cache/spark-tui"), str(home), (1000, 1000))
    keys = str(home / ".local/state/keys.env")  # not there: the file has none of them
    spec = plan(preset, Overrides(api_key=preset.server.key_way is not KeyDelivery.NONE), paths, env_file=keys).spec
    name = {compose_text: "c.yaml", systemd_text: "a.service", quadlet_text: "a.container"}[make]  # type: ignore[index]
    (found,) = imported(tmp_path, {name: make(spec)})  # type: ignore[operator]
    again = launch_of(found, tmp_path)
    restart = again.restart if make is compose_text else spec.restart  # a service restarts it
    expected = replace(spec, labels=(), env_files=())  # keys are written by each launch itself
    assert render_text(replace(again, labels=(), restart=restart)) == render_text(expected)


@all_cases("preset", SHIPPED, ids=lambda preset: preset.name)
def test_every_shipped_preset_comes_back_as_a_recipe_of_sparkrun(preset: Preset, tmp_path: Path) -> None:
    document = parse(Path(preset.file).read_text(), preset.file)
    assert isinstance(document, MappingValue)
    text = yaml_text(to_sparkrun(preset, document, Overrides()).document)
    (found,) = imported(tmp_path, {f"{preset.name}.yaml": text})
    home = tmp_path / "home"
    paths = HostPaths(str(home / "vllm"), str(home / ".cache/spark-tui"), str(home), (1000, 1000))
    own = replace(preset, origin=Origin.USER)  # the parsers of its model family are added to a built-in one alone
    assert render_text(launch_of(found, tmp_path)) == render_text(plan(own, Overrides(), paths).spec)


# --- variables ----------------------------------------------------------------------------------------

NAMES = st.sampled_from(["A", "B_1", "c"])
TEXT = st.text(st.characters(codec="ascii", exclude_characters="$"), max_size=8)


@given(st.dictionaries(NAMES, TEXT), NAMES, TEXT)
def test_compose_fills_in_by_its_rules(values: dict[str, str], name: str, default: str) -> None:
    plain = default.replace("{", "").replace("}", "").replace("\\", "")
    known = Variables(values)
    value = values.get(name)
    assert known.compose(f"${{{name}:-{plain}}}") == (value or plain)
    assert known.compose(f"${{{name}-{plain}}}") == (plain if value is None else value)
    assert known.compose(f"${{{name}:+{plain}}}") == (plain if value else "")
    assert known.compose(f"$${name}") == f"${name}"
    assert known.take_missing() == {}
    assert known.compose(f"${{{name}:?{plain}}}") == (value or "")
    assert known.take_missing() == ({} if value else {name: plain})


@given(st.text(max_size=60))
def test_no_text_breaks_variables(text: str) -> None:
    known = Variables({"A": "x"})
    known.compose(text)
    known.words(text)
    read_env(text, known)


PARTS = """\
if then else fi case in esac a) ;; docker run img " ' $( ` ) ( { } ${A:- $A "${a[@]}" a=( A=1 # && || ; while do done
f() eval ssh <<E E ! 2>&1 & -e vllm serve export %h $$ \\ [Service] ExecStart= Environment= [Container] Image="""


@given(st.lists(st.tuples(st.sampled_from(PARTS.split()), st.sampled_from(["", " ", "\n", "\\\n"])), max_size=40))
def test_no_text_breaks_a_reader(parts: list[tuple[str, str]]) -> None:
    text = "".join(part + after for part, after in parts)
    launcher_of(text)
    for read in (script_launches, unit_launches, quadlet_launches):
        with suppress(PresetError):
            read(text, "/x/a.service", NothingBeside(), {"HOME": "/~"})
