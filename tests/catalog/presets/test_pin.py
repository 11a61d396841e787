"""A pin changes the image in a recipe's text, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.image import short_digest
from spark_tui.base.errors import PresetError
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.preset import MappingValue, Node, pinned_reference, plain, with_image

DIGEST = "sha256:" + "0f" * 32
TEXT = "# Mine.\nmodel: acme/otter  # small\n{}\ncommand: |\n  serve {{model}}\n  container: not this one\n"


def read(text: str) -> Node | None:
    try:
        return parse(text, "here")
    except PresetError:
        return None


def changed(text: str, image: str = f"acme/x:1@{DIGEST}") -> str | None:
    return with_image(text, read(text), image, read)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("container: acme/x:1", "container: acme/x:1@{}"),
        ("container: acme/x:1  # the nightly", "container: acme/x:1@{}  # the nightly"),
        ('container:   "acme/x:1"', "container:   acme/x:1@{}"),
        ("'container': 'acme/x:1' # why", "'container': acme/x:1@{} # why"),
        ("container: acme/x@sha256:" + "a" * 64, "container: acme/x:1@{}"),
    ],
)
def test_the_line_of_the_image_changes_and_every_other_byte_stays(line: str, after: str) -> None:
    assert changed(TEXT.format(line)) == TEXT.format(after.format(DIGEST))


def test_line_ends_are_kept() -> None:
    text = TEXT.format("container: acme/x:1").replace("\n", "\r\n")
    assert changed(text) == text.replace("acme/x:1", f"acme/x:1@{DIGEST}")


def test_a_recipe_that_includes_its_image_gets_a_line_of_its_own() -> None:
    assert changed("# Mine.\ninclude: otter\n") == f"# Mine.\ncontainer: acme/x:1@{DIGEST}\ninclude: otter\n"


@pytest.mark.parametrize(
    "text",
    [
        "{model: a/b, container: acme/x:1}\n",
        "container: >-\n  acme/x:1\nmodel: a/b\n",
        "x: &image acme/x:1\ncontainer: *image\n",
        "container: &image acme/x:1\nother: *image\n",
        "base: &base {container: acme/x:1}\n<<: *base\nmodel: a/b\n",
        "- a\n- list\n",
    ],
)
def test_what_is_no_plain_line_is_left_alone(text: str) -> None:
    assert changed(text) is None


@given(st.text(alphabet="container: acme/x1@#\"'|>-&*!{}[]\n\r \t", max_size=120))
def test_whatever_a_file_holds_only_the_image_can_change(text: str) -> None:
    before, after = read(text), changed(text)
    if after is None:
        return
    now = read(after)
    assert isinstance(before, MappingValue)
    assert isinstance(now, MappingValue)
    assert plain(now) == {e.key: plain(e.node) for e in before.entries} | {"container": f"acme/x:1@{DIGEST}"}


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("vllm/vllm-openai:nightly", "vllm/vllm-openai:nightly@{}"),
        ("ollama/ollama", "ollama/ollama:latest@{}"),
        ("localhost:5000/acme/x:1@sha256:" + "a" * 64, "localhost:5000/acme/x:1@{}"),
        ("acme/x@sha256:" + "a" * 64, "acme/x@{}"),
    ],
)
def test_a_pinned_image_keeps_its_tag_for_the_way_back(image: str, reference: str) -> None:
    assert pinned_reference(image, DIGEST) == reference.format(DIGEST)


def test_a_short_digest_has_twelve_digits() -> None:
    assert short_digest(f"acme/x:1@{DIGEST}") == short_digest(DIGEST) == "sha256:0f0f0f0f0f0f"
