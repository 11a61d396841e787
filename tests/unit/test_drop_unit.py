"""The unit that drops the cache and the rule that lets one user start it: exactly that, and nothing else."""

from __future__ import annotations

import pytest

from spark_tui.domain.host.drop_caches import RULE_FILE, UNIT, UNIT_FILE, Access, RouteKind, routes, unit_files


def test_the_unit_is_the_one_that_the_route_starts() -> None:
    unit, rule = unit_files("spark0")
    assert (unit.path, rule.path) == (UNIT_FILE, RULE_FILE)
    assert unit.path.endswith(f"/{UNIT}")
    [route] = routes(Access(unit=True))
    assert (route.kind, route.argv[-1]) == (RouteKind.UNIT, UNIT)
    assert "sync; echo 3 > /proc/sys/vm/drop_caches" in unit.text


def test_the_rule_lets_one_user_start_one_unit() -> None:
    _, rule = unit_files("spark0")
    conditions = [line.strip(" &(){").removeprefix("if (") for line in rule.text.splitlines() if "==" in line]
    assert conditions == [
        'action.id == "org.freedesktop.systemd1.manage-units"',
        f'action.lookup("unit") == "{UNIT}"',
        'action.lookup("verb") == "start"',
        'subject.user == "spark0"',
    ]
    assert rule.text.count("polkit.Result.YES") == 1
    assert rule.text.count("{") == rule.text.count("}")


@pytest.mark.parametrize("name", ["", 'a"b', "a\\", "a b", "a\nb", "-a", "x" * 100, "*", "a;b", "ü"])
def test_a_name_that_could_break_out_of_the_rule_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a plain user name"):
        unit_files(name)


@pytest.mark.parametrize("name", ["spark0", "first.last@corp.example", "_svc-1"])
def test_names_that_people_have_are_taken_as_they_are(name: str) -> None:
    assert f'"{name}"' in unit_files(name)[1].text
