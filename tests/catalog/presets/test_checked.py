"""A shipped recipe is called checked where two others, who published it, served it on a Spark."""

from __future__ import annotations

from spark_tui.catalog.fit.show.presets import preset_detail
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

TOLD = {each.name: each for each in SHIPPED_FILES.load().presets if each.facts.checked}


def owner(source: str) -> str:
    assert source.startswith(("github.com/", "forums.developer.nvidia.com/", "jishuzhan.net/")), source
    return source.split(" ")[0].split("/")[1] if source.startswith("github.com/") else source.partition("/")[0]


@all_cases("name", TOLD)
def test_each_source_is_of_another_owner(name: str) -> None:
    sources = TOLD[name].facts.checked
    assert len({owner(each) for each in sources}) == len(sources)


@all_cases("name", TOLD)
def test_one_source_alone_is_said_to_be_one(name: str) -> None:
    alone = len(TOLD[name].facts.checked) == 1
    assert any(each.startswith("Not checked") for each in TOLD[name].facts.cautions) == alone
    assert preset_detail(TOLD[name])["checked"] == list(TOLD[name].facts.checked)
