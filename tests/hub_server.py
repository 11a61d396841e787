"""A Hub on 127.0.0.1: the endpoints that are used of the real one, its answers, and its bad days.

Large files are answered as the Hub does it: a redirect to another host, which must never see a token. `faults` of a
path are used up one by one, each for one request of its bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "1111111111111111111111111111111111111111"
TOKEN = "hf_" + "a" * 34


@dataclass
class Content:
    """One file: bytes, or a file on the disk that may be large and sparse."""

    data: bytes = b""
    path: Path | None = None
    lfs: bool = False
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.sha256:
            self.sha256 = _sha256(self)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path else len(self.data)

    @property
    def blob_id(self) -> str:
        """Git's name for it, or for the LFS pointer that stands for it."""
        data = b"pointer " + self.sha256.encode() if self.lfs else self.data
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob_id

    def read(self, begin: int, end: int) -> bytes:
        if self.path is None:
            return self.data[begin:end]
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), end - begin, begin)


def _sha256(content: Content) -> str:
    found = hashlib.sha256()
    for begin in range(0, content.size, 1 << 23):
        found.update(content.read(begin, min(content.size, begin + (1 << 23))))
    return found.hexdigest()


@dataclass
class Fault:
    """What goes wrong with one request. `cut`: the connection breaks after so many bytes of the body. `status` and
    `headers`: that answer. `rate`: bytes per second. `whole`: a range is answered with everything. `flip`: the first
    byte is another one."""

    cut: int | None = None
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    rate: float | None = None
    whole: bool = False
    flip: bool = False
    hang: bool = False


@dataclass
class Repo:
    """A model repository."""

    files: dict[str, Content] = field(default_factory=dict)
    gated: str | bool = False
    private: bool = False
    commit: str = COMMIT
    info: dict[str, Any] = field(default_factory=dict)

    def put(self, path: str, data: bytes, *, lfs: bool = False) -> None:
        self.files[path] = Content(data, lfs=lfs)


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    range: str
    token: bool
    cdn: bool


@dataclass
class Flood:
    """What the API answers instead: a status, headers, and a body of any length, which ends with the connection."""

    body: Iterable[bytes]
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


class HubServer:
    """Both hosts. `url` is for HF_ENDPOINT."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self.faults: dict[str, list[Fault]] = {}
        self.always: Fault | None = None
        self.flood: Flood | None = None
        self.granted = True
        self.status = 0
        self.down = False
        self.rate: float | None = None
        self.sent = 0
        self._hub = self._serve(cdn=False)
        self._cdn = self._serve(cdn=True)
        self.url = f"http://127.0.0.1:{self._hub.server_address[1]}"
        self.cdn_url = f"http://127.0.0.1:{self._cdn.server_address[1]}"

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, *, cdn: bool) -> ThreadingHTTPServer:
        owner = self

        class Bound(_Handler):
            hub = owner
            is_cdn = cdn

        server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def close(self) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def repo(self, name: str, **attributes: Any) -> Repo:
        return self.repos.setdefault(name, Repo(**attributes))

    def fault(self, path: str, *faults: Fault) -> None:
        """Bad answers for the next requests of a file's bytes."""
        self.faults.setdefault(path, []).extend(faults)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer
    is_cdn = False

    def log_message(self, *_: object) -> None:
        return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def do_HEAD(self) -> None:
        self._any()

    def do_GET(self) -> None:
        self._any()

    def _any(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        token = self.headers.get("Authorization") is not None
        self.hub.requests.append(Request(self.command, path, self.headers.get("Range", ""), token, self.is_cdn))
        if self.hub.down:
            self.close_connection = True
        elif self.hub.status:
            self._answer(self.hub.status, b"{}", {"Retry-After": "1"} if self.hub.status == 429 else {})
        elif self.hub.flood is not None:
            self._flooded(self.hub.flood)
        elif self.is_cdn:
            _, _, repo, name = path.split("/", 3)
            self._bytes(self.hub.repos[repo.replace("--", "/")].files[name], name)
        elif path == "/api/models":
            self._search(parse_qs(parts.query))
        elif path.startswith("/api/models/"):
            self._api(path.removeprefix("/api/models/"))
        elif (found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)) is not None:
            self._resolve(*found.groups())
        else:
            self._answer(404, b"<html>not a Hub</html>", {"Content-Type": "text/html"})

    # --- the API ------------------------------------------------------------------------------------------

    def _allowed(self, name: str, *, files: bool) -> Repo | None:
        """The repository, or None once the refusal is answered, as the Hub words it."""
        repo, sent = self.hub.repos.get(name), self.headers.get("Authorization")
        if sent is not None and sent != f"Bearer {TOKEN}":
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.private and sent is None):
            if sent is None:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            else:
                self._refuse(404, "RepoNotFound", "Repository not found")
        elif files and repo.gated and not (sent and self.hub.granted):
            self._refuse(403 if sent else 401, "GatedRepo", f"Access to model {name} is restricted.")
        else:
            return repo
        return None

    def _api(self, rest: str) -> None:
        name, _, more = ("/".join(rest.split("/")[:2]), "", "/".join(rest.split("/")[2:]))
        repo = self._allowed(name, files=more == "auth-check")
        if repo is None:
            return
        kind, _, revision = more.partition("/")
        if revision not in ("", "main", repo.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif kind == "tree":
            self._json([self._entry(path, content) for path, content in sorted(repo.files.items())])
        elif kind == "auth-check":
            self._json({})
        else:
            self._json({"id": name, "sha": repo.commit, "gated": repo.gated, "private": repo.private, "tags": [],
                        "author": name.partition("/")[0], **repo.info})  # fmt: skip

    def _entry(self, path: str, content: Content) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "oid": content.blob_id, "size": content.size}
        if content.lfs:
            entry["lfs"] = {"oid": content.sha256, "size": content.size, "pointerSize": 134}
        return entry

    def _search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].lower().split()
        tags = set(query.get("filter", []))
        author = query.get("author", [""])[0]
        found = []
        for name, repo in self.hub.repos.items():
            held = set(repo.info.get("tags", ()))
            if all(word in name.lower() for word in words) and tags <= held and name.startswith(author):
                found.append({"id": name, "gated": repo.gated, **repo.info})
        self._json(found[: int(query.get("limit", ["100"])[0])])

    # --- files --------------------------------------------------------------------------------------------

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._allowed(name, files=True)
        if repo is None:
            return
        content = repo.files.get(path)
        if revision not in ("main", repo.commit):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
        elif content is None:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": repo.commit})
        elif not content.lfs:
            self._bytes(content, path, {"X-Repo-Commit": repo.commit})
        else:
            headers = {
                "X-Repo-Commit": repo.commit,
                "X-Linked-Etag": f'"{content.etag}"',
                "X-Linked-Size": str(content.size),
                "Location": f"{self.hub.cdn_url}/cdn/{name.replace('/', '--')}/{path}",
            }
            self._answer(302, b"", headers)

    def _bytes(self, content: Content, path: str, more: dict[str, str] | None = None) -> None:
        fault = Fault()
        if self.command == "GET":
            waiting = self.hub.faults.get(path)
            fault = waiting.pop(0) if waiting else self.hub.always or fault
        if fault.status:
            self._answer(fault.status, b'{"error": "no"}', fault.headers)
            return
        begin, end, size = 0, content.size, content.size
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found and not fault.whole:
            begin, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
            if begin >= size:
                self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
                return
        headers = {"ETag": f'"{content.etag}"', **(more or {})}
        if found and not fault.whole:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        self._head(206 if "Content-Range" in headers else 200, end - begin, headers)
        if self.command == "GET":
            self._body(content, begin, end, fault)

    def _body(self, content: Content, begin: int, end: int, fault: Fault) -> None:
        rate = fault.rate or self.hub.rate
        chunk = 1 << 20 if rate is None else max(1, min(1 << 20, int(rate / 20)))
        stop = end if fault.cut is None else min(end, begin + fault.cut)
        at = begin
        while at < stop:
            data = content.read(at, min(stop, at + chunk))
            if fault.flip and at == begin:
                data = bytes([data[0] ^ 255]) + data[1:]
            self.wfile.write(data)
            self.hub.sent += len(data)
            at += len(data)
            if rate is not None:
                time.sleep(len(data) / rate)
            rate = fault.rate or self.hub.rate
            if self.hub.down:
                stop = at
        if fault.hang:
            time.sleep(60)
        if stop < end:
            self.close_connection = True
            self.connection.close()

    def _flooded(self, flood: Flood) -> None:
        self.close_connection = True
        self.send_response(flood.status)
        for name, value in flood.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in flood.body:
            self.wfile.write(piece)
            self.hub.sent += len(piece)

    # --- answers ------------------------------------------------------------------------------------------

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str, more: dict[str, str] | None = None) -> None:
        headers = {"X-Error-Message": message, **(more or {})} | ({"X-Error-Code": code} if code else {})
        self._answer(status, json.dumps({"error": message}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, len(body), headers)
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


# --- checkpoints ----------------------------------------------------------------------------------------------

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip


def header_of(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A safetensors header: name -> (dtype, shape, bytes), placed one after the other."""
    entries, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def add_checkpoint(repo: Repo, folder: Path, *, shards: int = 2, shard_bytes: int = 1 << 20) -> None:
    """A checkpoint of that size: one tensor of zeros in each shard, sparse on this disk."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for number in range(1, shards + 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        tensor = f"model.layers.{number - 1}.mlp.up_proj.weight"
        header = header_of({tensor: ("BF16", [shard_bytes // 128, 64], shard_bytes // 128 * 128)})
        path = folder / name
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + shard_bytes // 128 * 128)
        repo.files[name] = Content(path=path, lfs=True)
        weight_map[tensor] = name
    repo.put("config.json", json.dumps({**CONFIG, "num_hidden_layers": shards}).encode())
    repo.put("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}).encode())
    repo.put("tokenizer.json", b"{}")
    repo.put("README.md", b"# A model\n")
