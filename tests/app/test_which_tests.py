"""Which tests a change and a room have."""

from __future__ import annotations

from pathlib import Path

from scripts.changed_tests import touched
from scripts.room_tests import WINGS, folder_of, rooms
from tests.pty_app import REPOSITORY


def test_rooms_by_their_names() -> None:
    known = rooms(REPOSITORY)
    packages = {path.parent.name for path in (REPOSITORY / "spark_tui").glob("*/__init__.py")}
    assert packages == {*WINGS} and {"observe/memory", "manage/cluster"} <= {*known}
    found = [folder_of(word, known) for word in ("memory", "observe/memory", "observe", "base", "memo", "use/memory")]
    assert found == ["tests/observe/memory"] * 2 + ["tests/observe", "tests/base", None, None]
    assert len({each.partition("/")[2] for each in known if "/" in each}) == len(known) - len(WINGS), "one name each"


def test_tests_of_a_change_stand_anywhere(tmp_path: Path) -> None:
    files = {
        "tests/observe/memory/test_guard.py": "from spark_tui.observe.memory import guard\n",
        "tests/observe/memory/test_cache.py": "import json\n",
        "tests/real/test_guard.py": "import spark_tui.observe.memory.guard\n",
        "tests/perf/test_guard.py": "import spark_tui.observe.memory.guard\n",
        "tests/cli/golden/test_golden.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    guard, cache = Path("spark_tui/observe/memory/guard.py"), Path("tests/observe/memory/test_cache.py")
    found = [str(path) for path in touched({guard}, tmp_path)]
    assert found == ["tests/cli/golden/test_golden.py", "tests/observe/memory/test_guard.py"]
    assert touched({cache}, tmp_path) == [cache]
    assert touched({Path("tests/real/test_guard.py")}, tmp_path) == []
