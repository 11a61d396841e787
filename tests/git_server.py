"""Real git repositories behind a real smart HTTP server on loopback: `git http-backend` as a CGI program."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

AUTHOR = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@x"}


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    """What git prints; none of this machine's configuration counts."""
    env = {**os.environ, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=folder, env=env, input=given, check=True, capture_output=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


class Upstream:
    """A repository that somebody else works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        git(folder, "config", "http.receivepack", "false")
        git(folder, "config", "uploadpack.allowFilter", "true")

    def commit(self, files: Mapping[str, str | None], *arguments: str) -> str:
        """Writes files (None: removes them) and commits; returns the hash. `--amend` rewrites history."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "a change", *arguments)
        return git(self.folder, "rev-parse", "HEAD")

    def climb_out(self, file: str, name: str) -> None:
        """Commits a tree whose entry `../NAME` has the content of a file: a checkout refuses it."""
        digest = git(self.folder, "rev-parse", f"HEAD:{file}")
        inner = git(self.folder, "mktree", given=f"100644 blob {digest}\t{name}\n".encode())
        listed = git(self.folder, "ls-tree", "HEAD")
        tree = git(self.folder, "mktree", given=f"{listed}\n040000 tree {inner}\t..\n".encode())
        commit = git(self.folder, "commit-tree", tree, "-p", "HEAD", "-m", "a change")
        git(self.folder, "update-ref", "HEAD", commit)


class GitServer:
    """Serves the repositories below a folder as `http://127.0.0.1:PORT/NAME/.git`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests = 0
        self.stalled = threading.Event()
        self._over = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self, b"")

            def do_POST(self) -> None:
                owner.answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{name}/.git"

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.requests += 1
        if self.stalled.is_set():
            self._over.wait(60)
            return
        path, _, query = request.path.partition("?")
        env = {
            **os.environ, "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": request.command, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": request.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [line.partition(": ") for line in head.decode().splitlines()]
        status = next((int(value.split()[0]) for key, _, value in headers if key == "Status"), 200)
        request.send_response(status)
        for key, _, value in headers:
            if key != "Status":
                request.send_header(key, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
