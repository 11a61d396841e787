"""From Ollama to a preset: a real HTTP server with its list, hostile ones, and what is proposed on a Spark."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spark_tui.app.main import run
from spark_tui.base.errors import UsageError
from spark_tui.catalog.fit.use.finder import PresetFinder, Search
from spark_tui.catalog.fit.use.from_ollama import Replacement, replacements
from spark_tui.catalog.fit.use.recommend import SpeedSource, Use, purpose_of
from spark_tui.catalog.models.adapter import ollama as service
from spark_tui.catalog.models.adapter.ollama import HttpOllama, OllamaUnreachable, base_url
from spark_tui.catalog.models.model.ollama import MAX_MODELS, OllamaModel, models_in, same_model
from spark_tui.catalog.presets.use.rights import load_presets
from spark_tui.cli.session import Streams
from spark_tui.observe.engines.use.collectors import Collectors
from tests.catalog.fit.test_recommend import SHIPPED
from tests.kit import Kit


def entry(name: str, size: int, parameters: str, quantization: str = "Q4_K_M") -> dict[str, Any]:
    """As Ollama 0.12 lists a model."""
    details = {"format": "gguf", "parameter_size": parameters, "quantization_level": quantization}
    return {"name": name, "model": name, "size": size, "digest": "0" * 64, "details": details}


GPT = entry("gpt-oss:20b", 13_793_441_244, "20.9B", "MXFP4")
LLAMA = entry("llama3.3:70b", 42_520_413_916, "70.6B")
TINY = entry("smollm:135m", 91_739_413, "134.52M", "F16")


class FakeOllama:
    """Answers `/api/tags` with `body`; the first request line that it got is kept."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        owner = self
        self.paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.paths.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def ollama() -> Iterator[FakeOllama]:
    server = FakeOllama(json.dumps({"models": [GPT, LLAMA, TINY]}).encode())
    yield server
    server.close()


async def test_the_list_is_read_and_nothing_else_is_asked(ollama: FakeOllama) -> None:
    found = await HttpOllama({"OLLAMA_HOST": ollama.address}).models()
    assert [each.name for each in found.models] == ["gpt-oss:20b", "llama3.3:70b", "smollm:135m"]
    assert found.models[0] == OllamaModel("gpt-oss:20b", 13_793_441_244, 20.9e9, "MXFP4")
    assert ollama.paths == ["/api/tags"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 200), (b"[]", 200), (b'{"models": 7}', 200), (b"[" * 100_000, 200), (b"{}", 404), (b"\xff", 200)],
    ids=["empty", "list", "number", "deep", "404", "bytes"],
)
async def test_another_answer_is_an_error_and_never_an_empty_list(body: bytes, status: int) -> None:
    server = FakeOllama(body, status)
    with pytest.raises(OllamaUnreachable):
        await HttpOllama({}).models(server.address)
    server.close()


async def test_no_answer_and_one_without_an_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeOllama(b" " * 100_000)
    monkeypatch.setattr(service, "MAX_BYTES", 10_000)
    with pytest.raises(OllamaUnreachable, match="longer"):
        await HttpOllama({}).models(server.address)
    server.close()
    with pytest.raises(OllamaUnreachable):
        await HttpOllama({}).models(server.address)


def test_ten_thousand_models_and_strange_ones_are_bounded_and_counted() -> None:
    many = [entry(f"m{number}:7b", 1, "7B") for number in range(10_000)]
    found = models_in({"models": many}, "")
    assert (len(found.models), found.left_out) == (MAX_MODELS, 10_000 - MAX_MODELS)
    strange = [7, {}, {"name": ""}, {"name": "\x1b[31mred:7b", "size": -1, "details": []}, {"name": "a", "size": True}]
    found = models_in({"models": strange}, "")
    assert found.left_out == 3
    assert [(each.size, each.parameters) for each in found.models] == [(0, 7e9), (0, None)]
    assert "\x1b" not in found.models[0].name
    assert models_in({"models": None}, "").models == (), "how Ollama may write an empty list"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":9000", "http://127.0.0.1:9000"),
        ("spark-2:9000", "http://spark-2:9000"),
        ("https://llm.example.org", "https://llm.example.org:443"),
        ("http://10.0.0.2", "http://10.0.0.2:80"),
        ("[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_addresses_are_read_as_ollama_reads_them(text: str, address: str) -> None:
    assert base_url(text) == address


@pytest.mark.parametrize("text", ["file:///etc/passwd", "http://u:p@host", "host:port", "a b", "\x1b[0m"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        base_url(text)


@pytest.mark.parametrize(
    ("name", "parameters", "checkpoint", "of", "same"),
    [
        ("gpt-oss:120b", 116.8e9, "openai/gpt-oss-120b", 120e9, True),
        ("llama3.3:70b", 70.6e9, "nvidia/Llama-3.3-70B-Instruct-NVFP4", 70e9, True),
        ("hf.co/unsloth/Qwen3-32B-GGUF:Q4_K_M", 32.8e9, "nvidia/Qwen3-32B-NVFP4", 32.8e9, True),
        ("nemotron-3-nano:30b", 31.6e9, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 30e9, True),
        ("qwen3:30b", 30.5e9, "Qwen/Qwen3-Coder-30B-A3B-Instruct", 30.5e9, False),
        ("qwen3:27b", 27e9, "Qwen/Qwen3.6-27B", 27e9, False),
        ("gpt-oss:20b", 20.9e9, "openai/gpt-oss-120b", 120e9, False),
        ("llama3.3:70b", None, "nvidia/Llama-3.3-70B-Instruct-NVFP4", 70e9, False),
        ("", 70e9, "x/70B", 70e9, False),
    ],
)
def test_the_same_model_has_the_same_name_up_to_its_size_and_as_many_parameters(
    name: str, parameters: float | None, checkpoint: str, of: float, same: bool
) -> None:
    assert same_model(OllamaModel(name, 1, parameters), checkpoint, of) is same


async def proposed() -> dict[str, Replacement]:
    kit = Kit(*SHIPPED)
    await kit.context[Collectors].collect_once()
    load_presets(kit.context)
    purpose = purpose_of(Use.CHAT)
    search = Search(context=purpose.context, users=purpose.users)
    candidates = await kit.context[PresetFinder].judged(kit.context.store.world, search)
    models = models_in({"models": [GPT, LLAMA, TINY]}, "").models
    return {each.model.name: each for each in replacements(models, candidates, purpose)}


async def test_presets_are_proposed_with_both_speeds_and_where_they_are_from() -> None:
    found = await proposed()
    gpt, llama, tiny = found.values()
    assert [pick.candidate.preset.name for pick in gpt.picks][:1] == ["gpt-oss-20b"]
    assert gpt.now is not None
    assert (gpt.now.basis, gpt.now.source.partition(",")[0]) == (SpeedSource.PUBLISHED, "lmsys")
    gain = gpt.gain(gpt.picks[0])
    assert gain == pytest.approx(gpt.picks[0].speed.rate / gpt.now.rate)
    assert llama.now is not None
    assert llama.now.basis is SpeedSource.PUBLISHED or llama.now.rate == pytest.approx(273e9 / LLAMA["size"], rel=0.05)
    assert all(pick.candidate.preset.engine != "ollama" for each in found.values() for pick in each.picks)
    assert (tiny.picks, tiny.now, bool(tiny.reason)) == ((), None, True)


def call(home: Path, *words: str) -> tuple[int, str, str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock"}
    out, err = io.StringIO(), io.StringIO()
    return run(["from-ollama", *words], Streams(io.StringIO(), out, err, env)), out.getvalue(), err.getvalue()


def test_the_command_line_lists_them_and_says_when_ollama_does_not_run(ollama: FakeOllama, tmp_path: Path) -> None:
    code, out, _ = call(tmp_path, "--address", ollama.address, "--json")
    answer = json.loads(out)
    assert code == 0
    assert [each["id"] for each in answer["models"]] == ["gpt-oss:20b", "llama3.3:70b", "smollm:135m"]
    assert all(each["presets"] or each["reason"] for each in answer["models"])
    assert call(tmp_path, "--address", ollama.address)[0] == 0
    ollama.close()
    code, out, err = call(tmp_path, "--address", ollama.address, "--json")
    assert (code, out, json.loads(err.splitlines()[-1])["error"]["id"]) == (3, "", "ollama_unreachable")
