"""Proofs of models that write down speech: the clip that ships, over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import Message
from email.parser import BytesParser

import pytest

from spark_tui.base.checkpoint import CheckpointFacts, ModelKind
from spark_tui.observe.results.model.proof import Proof, Verdict
from spark_tui.use.prove.model.cases import CLIP_WORDS, MOST_MISSED, speech_cases
from tests.use.prove.test_prove_use import Lab

WHISPER = CheckpointFacts(kind=ModelKind.SPEECH, kind_sign="architecture WhisperForConditionalGeneration")
RIGHT = {"text": " Yellow boats passed the old lighthouse on Tuesday morning."}


class SpeechServer:
    """A server of transcriptions, which answers `reply` to a form with a WAV file; `forms` keeps what it was sent."""

    def __init__(self, reply: object, path: str = "/v1/audio/transcriptions") -> None:
        self.reply, self.path, self.port = reply, path, 0
        self.forms: list[dict[str, bytes]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SpeechServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, headers = head.partition(b"\r\n")
        length = int(BytesParser().parsebytes(headers)["content-length"])
        sent = BytesParser().parsebytes(headers + await reader.readexactly(length))
        status, answer = "404 Not Found", {"detail": "Not Found"}
        if line.split()[1].decode() == self.path and sent.is_multipart():
            self.forms.append({name_of(part): content_of(part) for part in sent.get_payload()})  # type: ignore[arg-type]
            status, answer = "200 OK", self.reply  # type: ignore[assignment]
        body = json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()


def name_of(part: Message) -> str:
    return str(part.get_param("name", header="content-disposition"))


def content_of(part: Message) -> bytes:
    return part.get_payload(decode=True)  # type: ignore[return-value]


async def prove(server: SpeechServer, model: str = "acme/x", facts: CheckpointFacts | None = WHISPER) -> Proof:
    async with server.running():
        lab = Lab(server, "--max-num-seqs", "8", model=model, facts=facts)
        try:
            return await lab.prove()
        finally:
            await lab.context.close()


def test_the_clip_is_a_short_wav_file() -> None:
    (case,) = speech_cases()
    assert len(case.question.clip) < 60_000
    with wave.open(io.BytesIO(case.question.clip)) as clip:
        assert (clip.getframerate(), clip.getnchannels()) == (16_000, 1)
        assert 2 < clip.getnframes() / clip.getframerate() < 5


@pytest.mark.parametrize(("model", "facts"), [("acme/x", WHISPER), ("openai/whisper-large-v3", None)])
async def test_a_model_that_writes_down_speech_is_proved_by_the_clip(model: str, facts: CheckpointFacts | None) -> None:
    server = SpeechServer(RIGHT)
    proof = await prove(server, model, facts)
    assert {case.id: case.verdict for case in proof.cases} == {"transcription.words": Verdict.PASS}
    assert "lighthouse" in proof.cases[0].evidence
    assert proof.complete
    (form,) = server.forms
    assert form["model"].strip() == b"qwen"
    assert form["file"] == speech_cases()[0].question.clip


@pytest.mark.parametrize(
    ("reply", "path", "verdict"),
    [
        ({"text": " ".join(CLIP_WORDS[MOST_MISSED:])}, "/v1/audio/transcriptions", Verdict.PASS),
        ({"text": " ".join(CLIP_WORDS[MOST_MISSED + 1 :])}, "/v1/audio/transcriptions", Verdict.FAIL),
        ({"text": ""}, "/v1/audio/transcriptions", Verdict.FAIL),
        ({"text": None}, "/v1/audio/transcriptions", Verdict.FAIL),
        ([], "/v1/audio/transcriptions", Verdict.FAIL),
        (RIGHT, "/v1/elsewhere", Verdict.SKIP),
    ],
)
async def test_most_of_the_words_have_to_be_heard(reply: object, path: str, verdict: Verdict) -> None:
    proof = await prove(SpeechServer(reply, path))
    assert [case.verdict for case in proof.cases] == [verdict]
    assert proof.complete is (verdict is not Verdict.SKIP)
