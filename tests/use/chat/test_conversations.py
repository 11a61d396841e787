"""Conversations on a real disk: private, append-only, one writer at a time, and only a torn line is ever lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.message import Answer
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.files import SystemUserFiles
from spark_tui.use.chat.adapter import FileConversations
from spark_tui.use.chat.model import records
from spark_tui.use.chat.model.conversation import AnswerOutcome, ChatThread, Exchange

ID = "20260101-000000-abc"


def lines(number: int = 1, question: str = "Why?", answer: str = "Because.") -> list[dict[str, Any]]:
    told = Exchange(number, question, "spark", "qwen", 1.0, Answer(0.0, answer), AnswerOutcome.COMPLETE)
    return [records.asked(told, ()), records.answered(told)]


BEGIN = [records.header(ChatThread(ID, created_at=1.0)), records.title("Kernels")]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[FileConversations]:
    store = FileConversations(folder / "conversations")
    try:
        yield store
    finally:
        await store.close()


async def test_what_is_appended_is_read_and_listed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.summaries() == ()
        await store.append(ID, [*BEGIN, *lines()], durable=True)
        thread = await store.read(ID)
        assert (thread.id, thread.title) == (ID, "Kernels")
        assert thread.exchanges[0].answer.content == "Because."
        [summary] = await store.summaries()
        assert (summary.id, summary.title, summary.exchanges) == (ID, "Kernels", 1)
        assert (summary.models, summary.engines, summary.damaged) == (("qwen",), ("spark",), 0)
        assert (await store.summaries())[0] is summary, "only what has changed is read again"
        await store.append(ID, [records.title("Other")])
        assert (await store.summaries())[0].title == "Other"
        (tmp_path / "conversations" / f"{ID}.jsonl").write_bytes(os.urandom(5000))
        junk = await store.read(ID)
        assert (junk.exchanges, junk.damaged > 0) == ((), True)


async def test_everything_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(tmp_path) as store:
            await store.append(ID, BEGIN)
            await store.keep(ID, b"\x89PNG")
            await store.claim(ID)
            for path in (tmp_path / "conversations").rglob("*"):
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
            assert stat.S_IMODE((tmp_path / "conversations").stat().st_mode) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("torn", [b'{"type":"asked","numb', b"{", b'{"type": "title", "title": "x"', b"\xff\xfe\x00"])
async def test_a_torn_last_line_loses_only_itself(tmp_path: Path, torn: bytes) -> None:
    async with opened(tmp_path) as store:
        await store.append(ID, [*BEGIN, *lines()])
        path = tmp_path / "conversations" / f"{ID}.jsonl"
        with path.open("ab") as file:
            file.write(torn)
        assert len((await store.read(ID)).exchanges) == 1
        await store.append(ID, lines(2, "And?"))
        thread = await store.read(ID)
        assert [each.question for each in thread.exchanges] == ["Why?", "And?"]
        assert thread.damaged == 1
        [summary] = await store.summaries()
        assert summary.damaged == 1


async def test_a_full_disk_adds_nothing_at_all_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store:
        await store.append(ID, [*BEGIN, *lines()])
        before = (tmp_path / "conversations" / f"{ID}.jsonl").read_bytes()
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        try:
            with pytest.raises(SparkError, match="Cannot write") as caught:
                await store.append(ID, lines(2, "x" * 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert caught.value.remedy
        assert (tmp_path / "conversations" / f"{ID}.jsonl").read_bytes() == before


WRITER = """
import asyncio, sys
from pathlib import Path
from spark_tui.use.chat.adapter import FileConversations
def asked(number):
    return {"type": "asked", "number": number, "question": "q" * 3000, "asked_at": 1.0}
async def main():
    store = FileConversations(Path(sys.argv[1]))
    print(await store.claim(sys.argv[2]), flush=True)
    number = int(sys.argv[3])
    for n in range(int(sys.argv[4])):
        await store.append(sys.argv[2], [asked(number + n)])
    print("done", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


def writer(folder: Path, number: int, count: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(folder), ID, str(number), str(count)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_two_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    folder = tmp_path / "conversations"
    async with opened(tmp_path) as store:
        await store.append(ID, BEGIN)
        processes = [writer(folder, number, 200) for number in (1000, 2000)]
        claims = {said(process) for process in processes}
        assert [said(process) for process in processes] == ["done", "done"]
        assert claims == {"True", "False"}
        thread = await store.read(ID)
        assert len(thread.exchanges) == 400
        assert thread.damaged == 0
        for process in processes:
            process.communicate()


async def test_a_claim_ends_with_the_process_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "conversations"
    async with opened(tmp_path) as store:
        await store.append(ID, BEGIN)
        process = writer(folder, 1, 50)
        assert said(process) == "True"
        assert not await store.claim(ID)
        assert (await store.summaries())[0].in_use
        with pytest.raises(RefusedError, match="Another spark-tui writes"):
            await store.delete(ID)
        assert said(process) == "done"
        process.kill()
        process.communicate()
        assert await store.claim(ID)
        assert len((await store.read(ID)).exchanges) == 50


async def test_two_stores_never_hold_one_claim(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        for _ in range(20):
            got = await asyncio.gather(one.claim(ID), other.claim(ID))
            assert sorted(got) == [False, True]
            await asyncio.gather(one.release(ID), other.release(ID))


async def test_pictures_are_kept_beside_it_and_go_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        name = await store.keep(ID, b"\x89PNG")
        assert await store.keep(ID, b"\x89PNG") == name
        kept = {"file": name, "kind": "image", "media_type": "image/png", "name": "a.png"}
        await store.append(ID, [*BEGIN, {**lines()[0], "attachments": [kept]}])
        assert (await store.read(ID)).exchanges[0].attachments[0].data == b"\x89PNG"
        (tmp_path / "conversations" / f"{ID}.files" / name).unlink()
        assert (await store.read(ID)).exchanges[0].attachments[0].data == b""
        await store.delete(ID)
        assert list((tmp_path / "conversations").iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200, "a\nb", "nope"])
async def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as store:
        for call in (store.read, store.delete):
            with pytest.raises(UsageError, match="There is no conversation"):
                await call(name)


async def test_a_link_in_the_place_of_a_conversation_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"type":"title","title":"secret"}\n')
    async with opened(tmp_path) as store:
        await store.append("other", BEGIN)
        (tmp_path / "conversations" / f"{ID}.jsonl").symlink_to(secret)
        with pytest.raises(SparkError):
            await store.read(ID)
        with pytest.raises(SparkError):
            await store.append(ID, BEGIN)
        assert [each.id for each in await store.summaries()] == ["other"]
        assert len(store.unreadable) == 1
    assert secret.read_text().count("\n") == 1


async def test_what_was_said_is_found_whatever_its_case(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.append(ID, [*BEGIN, *lines(1, "Why?", "x " * 100 + "CUDA \x1b[31mGraphs are" + " y" * 100)])
        [hit] = await store.search("cuda")
        assert (hit.id, hit.number) == (ID, 1)
        assert "CUDA Graphs" in hit.excerpt
        assert hit.excerpt.startswith("... ")
        assert [each.number for each in await store.search("kern")] == [0]
        assert await store.search("absent") == ()
        assert await store.search("  ") == ()


# --- the person's own files ---------------------------------------------------------------------------------


async def test_a_persons_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    files = SystemUserFiles(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    assert await files.read("~/a.txt", 10) == b"hello"
    with pytest.raises(RefusedError, match="more than 4 B"):
        await files.read("~/a.txt", 4)
    os.mkfifo(tmp_path / "pipe")
    for wrong in ("~/nope", "~", "~/pipe", "/dev/zero"):
        with pytest.raises(UsageError):
            await files.read(wrong, 10)
    await files.close()


async def test_an_export_takes_nobodys_place_unasked(tmp_path: Path) -> None:
    files = SystemUserFiles(tmp_path)
    path = Path(await files.write("~/out.md", "one\ud800"))
    assert path.read_text() == "one?"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(RefusedError, match="already exists"):
        await files.write("~/out.md", "two")
    assert json.dumps(path.read_text()) == '"one?"'
    await files.write("~/out.md", "two", replace=True)
    assert path.read_text() == "two"
    for wrong in ("~", "~/no/such/folder.md"):
        with pytest.raises(SparkError):
            await files.write(wrong, "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.md"]
    await files.close()
