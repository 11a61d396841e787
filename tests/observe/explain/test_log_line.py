"""How a line is taken apart, and what is masked in it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_tui.base.secret import mask_secrets
from spark_tui.observe.explain.model.line import LogRecord, exception_name, parse_line
from tests.cases import all_cases
from tests.log_fixtures import LOGS, log_names, read_log

ANATOMY = [json.loads(row) for row in (LOGS.parent / "log_lines.jsonl").read_text(encoding="utf-8").splitlines()]
"""Where a line comes from, the line, and process, pid, level, time, source, message and kind as parsed."""


@all_cases(("group", "text", "parts"), [(group, text, parts) for group, text, *parts in ANATOMY])
def test_line_anatomy(group: str, text: str, parts: list[object]) -> None:
    assert list(parse_line(text)) == parts, group


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("(Worker pid=1) WARNING 11-21 02:34:09 [x.py:1] careful", 30),
        ("(Worker pid=1) INFO 11-21 02:34:09 [x.py:1] fine", 20),
        ("ValueError: no", 40),
        ('  File "x.py", line 1, in f', 40),
        ("something", 0),
    ],
)
def test_severity_counts_bare_tracebacks_as_errors(text: str, severity: int) -> None:
    assert parse_line(text).severity == severity


def test_a_json_records_traceback_stays_with_it() -> None:
    record = parse_line('{"message": "failed", "levelname": "ERROR", "exc_info": "Traceback\\nValueError: no"}')
    assert record.message == "failed\nTraceback\nValueError: no"


@all_cases("name", log_names())
def test_nothing_of_a_real_line_is_lost_or_obeyed(name: str) -> None:
    for text in read_log(name):
        record = parse_line(text)
        assert "\x1b" not in record.message
        assert "\r" not in record.message
        if not text.startswith("{") and "\x1b" not in text and "\r" not in text.rstrip("\r"):
            assert record.message.strip() in text.replace("\t", " ")


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=300))
def test_any_text_gives_a_record(text: str) -> None:
    record = parse_line(text)
    assert "\x1b" not in record.message
    assert isinstance(record, LogRecord)
    assert isinstance(record.severity, int)


_BITS = (
    "(EngineCore pid=199) ", "INFO 05-21 21:03:31 [x.py:1] ", "INFO:     ", "\x1b[32m", "\x1b[0m", "\r", "\n", "{",
    '"message": "', " 50%|", "| 8/16 [", "2026-05-21 21:10:15,615 - ", "Traceback (most recent call last):",
    "ValueError: ", '"}', " | ", '  File "x", line 1', "[rank0]:W0521 21:08:35.966000 199 a:1] ",
    "time=2026-05-21T21:02:57Z level=INFO msg=", "]", "[",
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(_BITS), max_size=12).map("".join))
def test_any_mixture_of_the_known_gives_a_record(text: str) -> None:
    parse_line(text)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_record(data: bytes) -> None:
    assert isinstance(parse_line(data.decode("utf-8", "replace")), LogRecord)
    assert isinstance(parse_line(data.decode("latin-1")), LogRecord)
    mask_secrets(data.decode("utf-8", "surrogateescape"))


_UNITS = (
    "(A pid=1) ", "[Stage-0] ", "x.py:1 ", "INFO ", " ", "^", "a.", "%|", "| ", '{"message":', "[", "1", "\r ",
    "INFO: ", "a ", "~ ", "a-1 | ", "2026-05-21T21:02:50Z ", "<30>1 a ", "(pid=1) ", "WARNING:a:",
    "[rank0]: ", 'time=2026-05-21 21:02:57 level=INFO msg="', "eyJ", "--api-key a1b2c3d4e5 ", "?sig=abcdefgh", "://a:b",
    "api_key=", "'", '\\"', "\x1b[", "\t", "Error: ", ": 1% Completed | 1/1 [",
)  # fmt: skip


@all_cases("unit", _UNITS)
def test_a_megabyte_costs_no_more_than_its_bytes(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    parse_line(text)
    mask_secrets(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("ValueError: no", "ValueError"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: x", "huggingface_hub.errors.LocalEntryNotFoundError"),
        ("ray.exceptions.RayTaskError(ValueError): x", "ray.exceptions.RayTaskError"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("Error in chat completion stream generator.", ""),
        ("Exception caught. Request id: None", ""),
    ],
)
def test_which_lines_name_an_exception(message: str, name: str) -> None:
    assert exception_name(message) == name


SECRETS = [
    ("'api_key': ['dummy-key'], 'model': 'x'", "'api_key': ['***'], 'model': 'x'"),
    ("'api_key': ['a]b', \"c'd\"], 'z': 1", "'api_key': ['***'], 'z': 1"),
    ("'api_key': ['cut in the mid", "'api_key': ['***']"),
    ("'api_key': 'it\\'s', 'z': 1", "'api_key': '***', 'z': 1"),
    ("'api_key': None, 'hf_token': '***'", "'api_key': None, 'hf_token': '***'"),
    ("vllm serve --api-key abc --model q", "vllm serve --api-key *** --model q"),
    ("vllm serve --api-key=abc --model q", "vllm serve --api-key=*** --model q"),
    ("VLLM_API_KEY=xyz HF_TOKEN=abc", "VLLM_API_KEY=*** HF_TOKEN=***"),
    ('{\\"api_key\\": \\"x\\", \\"b\\": 1}', '{\\"api_key\\": \\"***\\", \\"b\\": 1}'),
    ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
    ("X-Api-Key: abc", "X-Api-Key: ***"),
    ("using hf_abcdefghijklmnopqrstuvwxyzABCDEF01 now", "using hf_*** now"),
    ("key nvapi-abcdefghijklmnopqrstuvwxyz0123", "key nvapi-***"),
    ("http://user:pw@host/x", "http://user:***@host/x"),
    ("'password': 'p w', next", "'password': '***', next"),
    ("vllm serve q --api-key abcdefgh12 ijklmnop34 --model q", "vllm serve q --api-key *** --model q"),
    ("server_args=ServerArgs(api_key='open sesame', host='x')", "server_args=ServerArgs(api_key='***', host='x')"),
    ("GET https://cas.hf.co/x?X-Amz-Signature=0a1b2c3d&b=1", "GET https://cas.hf.co/x?X-Amz-Signature=***&b=1"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijk end", "jwt *** end"),
    # not secrets
    ("use --api-key=KEY to protect it, 1234567890", "use --api-key=*** to protect it, 1234567890"),
    ("Please set a HF_TOKEN to enable higher rate limits", "Please set a HF_TOKEN to enable higher rate limits"),
    (
        "max_num_batched_tokens=32768, 'eos_token': '<|im_end|>'",
        "max_num_batched_tokens=32768, 'eos_token': '<|im_end|>'",
    ),
    ("hf_overrides={'architectures': 1}", "hf_overrides={'architectures': 1}"),
    ("KV cache: 0.3%, 22.4 tokens/s", "KV cache: 0.3%, 22.4 tokens/s"),
    ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
]


@all_cases(("text", "masked"), SECRETS, ids=[text[:40] for text, _ in SECRETS])
def test_secrets_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@given(
    st.text(
        alphabet=st.characters(exclude_categories=("C", "Z"), exclude_characters="'\"\\[](){},;&"),
        min_size=6,
        max_size=40,
    ),
    st.sampled_from(
        ["'api_key': ['{}']", "'api_key': '{}'", "--api-key {}", "HF_TOKEN={}", '"hf_token": "{}"', "api_key={}"]
    ),
)
def test_a_named_secret_never_survives(secret: str, template: str) -> None:
    line = f"non-default args: {template} end"
    assume(secret not in line)  # `defaul` is a part of the line itself
    masked = mask_secrets(line.format(secret))
    assert secret not in masked
    assert masked.endswith(" end")


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing(text: str) -> None:
    once = mask_secrets(text)
    assert mask_secrets(once) == once
