"""A search on a real engine whose speed is planted by its option: found, one value out of memory, and put back."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pty_app import spark_tui
from tests.real.lab import Lab, PrivateEngine
from tests.real.lab.images import busybox_layer, image_archive, layer

pytestmark = pytest.mark.timeout(600)

NAME = "tune-double"
IMAGE = "tune-double:local"
SERVER = """\
#!/bin/sh
echo "(APIServer pid=1) INFO 06-03 09:20:00 [api_server.py:1] vLLM API server version 0.32.0"
while [ $# -gt 0 ]; do
  case $1 in --port) port=$2 ;; --max-num-seqs) sequences=$2 ;; esac
  shift
done
case $sequences in 4) export STEP=160000 ;; 8) export STEP=40000 ;; *)
  echo "(EngineCore pid=9) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
  exit 1 ;;
esac
echo "(APIServer pid=1) INFO:     Application startup complete."
trap 'exit 0' TERM
nc -ll -p "$port" -e answer & wait
"""
ANSWER = """\
#!/bin/sh
read -r method path protocol
while read -r name value && [ "$name" != "$(printf '\\r')" ]; do
  case $name in [Cc]ontent-[Ll]ength:) size=$(echo "$value" | tr -d '\\r') ;; esac
done
[ -n "$size" ] && head -c "$size" >/dev/null
plain() { printf 'HTTP/1.1 %s\\r\\nContent-Length: %s\\r\\nConnection: close\\r\\n\\r\\n%s' "$1" "${#2}" "$2"; }
piece() { printf '%x\\r\\ndata: %s\\n\\n\\r\\n' "$((${#1} + 8))" "$1"; }
case $path in
  /health) plain '200 OK' '' ;;
  /version) plain '200 OK' '{"version": "0.32.0"}' ;;
  /v1/models) plain '200 OK' '{"object": "list", "data": [{"id": "acme/double", "object": "model"}]}' ;;
  /v1/*)
    printf 'HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\n'
    printf 'Transfer-Encoding: chunked\\r\\n\\r\\n'
    for token in 1 2 3 4 5 6 7 8; do
      usleep "$STEP"
      piece '{"choices": [{"index": 0, "text": " a", "delta": {"content": " a"}, "finish_reason": null}]}'
    done
    piece '{"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "length"}]}'
    piece '{"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 8, "total_tokens": 24}}'
    piece '[DONE]'
    printf '0\\r\\n\\r\\n' ;;
  *) plain '404 Not Found' '{}' ;;
esac
"""
"""What stands in for vLLM: two planted speeds, by the option, and no memory for more."""
RECIPE = f"""\
recipe_version: "2"
model: acme/double
runtime: vllm
container: {IMAGE}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: {{port}}
  max_num_seqs: 4
command: sh -c "exec vllm serve acme/double --port {{{{port}}}} --max-num-seqs {{{{max_num_seqs}}}}"
"""


@pytest.fixture
def environ(lab: Lab, engine: PrivateEngine, tmp_path: Path, free_port: int) -> Iterator[dict[str, str]]:
    """A new user's, with one preset."""
    files = {"bin/vllm": SERVER.encode(), "bin/answer": ANSWER.encode()}
    layers = [busybox_layer(lab.toolbox), layer(files)]
    engine.docker("load", stdin=image_archive(layers, {"Entrypoint": None}, IMAGE))
    presets = tmp_path / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE.format(port=free_port), encoding="utf-8")
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        **engine.variables(),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(tmp_path / "store"),
    }
    engine.try_docker("rm", "--force", NAME)
    engine.try_docker("rmi", "--force", IMAGE)


def run(environ: dict[str, str], *words: str, code: int = 0) -> str:
    done = subprocess.run(
        spark_tui(*words), env=environ, capture_output=True, text=True, timeout=400, check=False
    )  # fmt: skip
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_better_of_two_planted_settings_is_found_in_time_and_saved(
    environ: dict[str, str], engine: PrivateEngine
) -> None:
    run(environ, "up", NAME, "--no-fetch")
    load = ("--for", "throughput", "--streams", "2", "--input", "16", "--output", "8", "--minutes", "6")
    found = json.loads(run(environ, "tune", NAME, *load, "--yes", "--save", "tuned-double", "--json"))
    measured = {trial["value"]: trial["outcome"] for trial in found["trials"] if trial["key"] == "max_num_seqs"}
    assert measured == {"8": "better", "16": "failed"}, json.dumps(found["trials"])
    assert found["settings"] == {"max_num_seqs": "8"}
    assert found["speed"]["low"] > 1.2
    assert found["seconds"] < found["limit_seconds"]
    assert next(each["reason"] for each in found["trials"] if each["value"] == "16")
    command = engine.docker("inspect", "--format", "{{.Args}} {{.State.Running}}", NAME)
    assert "--max-num-seqs 4" in command and "true" in command, "as before"
    words = ("bench", NAME, "--ab", "max_num_seqs=16", "--concurrency", "2", "--input", "16", "--output", "8", "--yes")
    started = time.monotonic()
    assert run(environ, *words, "--passes", "1", code=1)
    assert time.monotonic() - started < 120, "an engine that ended is noticed, and not waited for"
    shown = json.loads(run(environ, "up", "tuned-double", "--dry-run", "--json"))
    assert "--max-num-seqs 8" in shown["docker_run"]
