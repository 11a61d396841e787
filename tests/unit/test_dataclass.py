"""A value defined by our decorator behaves as one by the standard decorator."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, field, replace
from typing import Any, ClassVar

import pytest

from spark_tui.domain.dataclass import dataclass
from tests.pty_app import REPOSITORY


@dataclass(frozen=True, slots=True)
class Ours:
    """Documented."""

    LIMIT: ClassVar[int] = 3
    name: str
    size: float | None = None
    tags: list[str] = field(default_factory=list)
    seen: float = field(default=0.0, compare=False, repr=False)
    length: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """Documented."""

    LIMIT: ClassVar[int] = 3
    name: str
    size: float | None = None
    tags: list[str] = field(default_factory=list)
    seen: float = field(default=0.0, compare=False, repr=False)
    length: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


@dataclass(frozen=True, slots=True)
class Single:
    name: str


@dataclass(frozen=True, slots=True)
class Empty: ...


@dataclass(frozen=True, slots=True)
class Below(Ours):
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Keyword:
    name: str
    _: KW_ONLY
    depth: int = 1


def _kind(value: Any) -> str:
    match value:
        case Ours(name, size) | Standard(name, size):
            return f"{name} {size}"
    return ""


def _error(call: Callable[[], object]) -> str:
    with pytest.raises((TypeError, FrozenInstanceError)) as caught:
        call()
    return re.sub("Ours|Standard", "", f"{type(caught.value).__name__} {caught.value}")


@pytest.mark.parametrize(
    "of",
    [
        lambda kind: kind("a", tags=["x"], seen=2.0).size,
        lambda kind: re.sub("^\\w+", "", repr(kind("a", 2.0))),
        lambda kind: kind("a", seen=1.0) == kind("a", seen=2.0),
        lambda kind: kind("a") == kind("b"),
        lambda kind: kind("a") == "a",
        lambda kind: kind("a").tags is kind("a").tags,
        lambda kind: asdict(kind("a")),
        lambda kind: asdict(replace(kind("a"), name="abc")),
        lambda kind: [(each.name, each.type) for each in dataclasses.fields(kind)],
        lambda kind: asdict(pickle.loads(pickle.dumps(kind("ab", 1.0)))),
        lambda kind: asdict(copy.deepcopy(kind("ab", 1.0))),
        lambda kind: _kind(kind("a", 1.0)),
        lambda kind: kind.__match_args__,
        lambda kind: (kind.__doc__, kind.LIMIT, kind.__dataclass_params__.frozen),
        lambda kind: hasattr(kind("a"), "__dict__"),
        lambda kind: (kind("a"), kind.__init__.__annotations__)[1],
        lambda kind: _error(lambda: kind()),
        lambda kind: _error(lambda: kind("a", other=1)),
        lambda kind: _error(lambda: setattr(kind("a"), "name", "b")),
        lambda kind: _error(lambda: delattr(kind("a"), "name")),
        lambda kind: _error(lambda: hash(kind("a"))),
    ],
)
def test_a_value_behaves_as_the_standard_one(of: Callable[[Any], object]) -> None:
    assert of(Ours) == of(Standard)


def test_few_fields_a_base_and_keywords() -> None:
    assert {Single("a"), Single("a"), Single("b")} == {Single("b"), Single("a")}
    assert Empty() == Empty()
    assert Below("a", depth=2) != Below("a")
    assert Below("abc").length == 3
    with pytest.raises(TypeError):
        Keyword("a", 2)  # type: ignore[misc]
    assert repr(Keyword("a", depth=2)) == "Keyword(name='a', depth=2)"


def test_all_values_of_the_program_are_defined_by_it() -> None:
    standard = re.compile(r"^from dataclasses import .*\bdataclass\b", re.M)
    texts = {path: path.read_text(encoding="utf-8") for path in (REPOSITORY / "spark_tui").rglob("*.py")}
    wrong = [str(path) for path, text in texts.items() if "@dataclass(frozen=True, slots=True)" in text]
    assert [path for path in wrong if standard.search(texts[REPOSITORY / path])] == []
