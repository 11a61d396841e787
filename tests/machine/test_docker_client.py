"""What this program relies on in the SDK, requests and urllib3 beyond their documentation."""

from __future__ import annotations

from pathlib import Path

import docker
import docker.auth
import pytest
import urllib3.connectionpool
from docker.transport import UnixHTTPAdapter
from docker.transport.unixconn import UnixHTTPConnection
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.machine.docker.client import Chunks, DockerClient
from spark_tui.machine.docker.host import DockerHost


def test_the_private_names_are_still_there(tmp_path: Path) -> None:
    client = DockerClient(DockerHost("/nowhere.sock"), tmp_path / "config.json", version="1.41")
    assert isinstance(client.get_adapter("http+docker://localhost/x"), UnixHTTPAdapter)
    for owner, names in (
        (docker.APIClient, ("_url", "_get", "_raise_for_status", "get_adapter", "_retrieve_server_version")),
        (client, ("_general_configs", "_proxy_configs", "_auth_configs")),
        (UnixHTTPAdapter, ("get_connection_with_tls_context",)),
        (urllib3.connectionpool.HTTPConnectionPool, ("_new_conn",)),
    ):
        assert all(hasattr(owner, name) for name in names)
    assert UnixHTTPConnection("", "/x.sock").unix_socket == "/x.sock"


def test_nothing_is_read_in_the_home_of_whoever_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    config = tmp_path / ".docker" / "config.json"
    config.parent.mkdir()
    config.write_text('{"auths": {"quay.io": "no login"}, "credsStore": "nothing"}', encoding="utf-8")
    ours = tmp_path / "config.json"
    ours.write_text('{"auths": {"registry.invalid": {}}}', encoding="utf-8")
    client = DockerClient(DockerHost("/nowhere.sock"), ours, version="1.41")
    assert not docker.auth.get_config_header(client, "quay.io")


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=8), st.lists(st.integers(0, 200), max_size=6))
def test_a_chunked_body_cut_anywhere_is_the_same(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"%x;note\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    chunks, content, at = Chunks(), b"", 0
    for cut in [*sorted(min(cut, len(body)) for cut in cuts), len(body)]:
        content += chunks.feed(body[at:cut])
        at = cut
    assert content == b"".join(parts)
    assert chunks.ended


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Chunks().feed(b"not a size\r\n")
