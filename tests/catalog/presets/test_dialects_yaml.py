"""What we write as YAML reads back the same, by the parser that sparkrun uses."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.dialects.recipe_files import comment, node_of, yaml_text
from spark_tui.catalog.presets.model.preset import plain
from tests.cases import all_cases
from tests.dialect_fixtures import EUGR, SPARKRUN, document

_TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40) | st.sampled_from(
    ("yes", "No", "null", "~", "1e5", "0x1f", "1:30", "2026-01-01", "-", "- a", "a: b", "a #b", "#", "a\n\n", " a\nb",
     "{a}", "'", '"', "<<", "=", "a\tb", "\x85", "\u2028", "\ufeff", "!x", "&a", "*a", "@a", "%a", "`a", "|", ">", "?")
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_TEXT, _VALUES, max_size=5))
def test_every_document_reads_back_the_same(value: dict[str, object]) -> None:
    text = yaml_text(node_of(value))  # type: ignore[arg-type]
    assert yaml.safe_load(text) == value
    assert plain(parse(text, "r.yaml")) == value


@all_cases("path", (*EUGR, *SPARKRUN), ids=lambda path: path.stem)
def test_real_recipes_written_anew_say_the_same(path: object) -> None:
    found = document(path)  # type: ignore[arg-type]
    assert plain(parse(yaml_text(found), "r.yaml")) == plain(found)


def test_it_is_written_as_people_write_recipes() -> None:
    text = yaml_text(
        node_of(
            {
                "model": "org/Model-8B",
                "description": "One Spark, no cluster",
                "defaults": {"port": 8000, "share": 0.85, "config": '{"method":"mtp"}', "on": True},
                "mods": ["mods/a"],
                "env": {"A": "1", "B": ""},
                "command": "vllm serve {model} \\\n  --port {port}\n",
            }
        )
    )
    assert text == (
        "model: org/Model-8B\n"
        "description: One Spark, no cluster\n"
        "defaults:\n"
        "  port: 8000\n"
        "  share: 0.85\n"
        '  config: \'{"method":"mtp"}\'\n'
        "  'on': true\n"
        "mods:\n"
        "  - mods/a\n"
        "env:\n"
        "  A: '1'\n"
        "  B: ''\n"
        "command: |\n"
        "  vllm serve {model} \\\n"
        "    --port {port}\n"
    )


def test_small_numbers_stay_numbers() -> None:
    assert yaml_text(node_of({"a": 1e-05, "b": 1e300})) == "a: 1.0e-05\nb: 1.0e+300\n"


def test_a_comment_ends_where_its_line_ends() -> None:
    assert comment(("one", "")) == "# one\n#\n"
