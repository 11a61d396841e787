"""Proofs of models that write down speech: the clip that ships, over HTTP."""

from __future__ import annotations

import io
import wave
from email.message import Message
from email.parser import BytesParser

import pytest

from spark_tui.base.checkpoint import CheckpointFacts, ModelKind
from spark_tui.observe.results.model.proof import Proof, Verdict
from spark_tui.use.prove.model.cases import CLIP_WORDS, MOST_MISSED, speech_cases
from tests.use.prove.one_answer import OneAnswerServer
from tests.use.prove.test_prove_use import Lab

WHISPER = CheckpointFacts(kind=ModelKind.SPEECH, kind_sign="architecture WhisperForConditionalGeneration")
RIGHT = {"text": " Yellow boats passed the old lighthouse on Tuesday morning."}


class SpeechServer(OneAnswerServer):
    """A server of transcriptions, which answers `reply` to a form with a WAV file; `forms` keeps what it was sent."""

    def __init__(self, reply: object, path: str = "/v1/audio/transcriptions") -> None:
        self.reply, self.path = reply, path
        self.forms: list[dict[str, bytes]] = []

    def answer(self, path: str, head: bytes, body: bytes) -> tuple[str, object]:
        sent = BytesParser().parsebytes(head + body)
        if path != self.path or not sent.is_multipart():
            return "404 Not Found", {"detail": "Not Found"}
        self.forms.append({name_of(part): content_of(part) for part in sent.get_payload()})  # type: ignore[arg-type]
        return "200 OK", self.reply


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
