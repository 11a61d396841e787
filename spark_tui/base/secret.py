"""A value that must never be seen: keys and tokens are wrapped where they enter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

MASK = "***"

_NAMES = (
    "api[-_]?keys?",
    "(?:hf|auth|access|refresh|bearer|secret|session|github|ngc|hub)[-_]token",
    "hugging_?face_(?:hub_)?token",
    "secret[-_]?(?:access[-_]?)?key",
    "client[-_]secret",
    "passw(?:or)?d",
)
# Spelt out in three cases rather than with IGNORECASE, which makes the search four times slower.
_NAME = "|".join((*_NAMES, *(name.upper() for name in _NAMES), "[aA][pP][iI][-_]?Keys?", "Passw(?:or)?d"))

# A value: a bracket with strings in it, a quoted string, one whose quotes are escaped (JSON inside JSON), or a bare
# word. A closing quote or bracket may be missing, because a line can be cut in the middle of a secret.
_SINGLE, _DOUBLE = r"'(?:[^'\\]|\\.)*'?", r'"(?:[^"\\]|\\.)*"?'
_VALUE = (
    rf"""\w*[\[({{](?:[^\])}}'"]|{_SINGLE}|{_DOUBLE})*[\])}}]?|{_SINGLE}|{_DOUBLE}"""
    r"""|\\+"(?:[^"\\]|\\(?!"))*(?:\\+")?|\\+'(?:[^'\\]|\\(?!'))*(?:\\+')?"""
    r"""|[^\s,;)}\]&"'\\]+"""
)
_NAMED = rf"""((?:{_NAME})\\*["']?[ ]{{0,2}}[:=][ ]{{0,2}}|--?(?:{_NAME})[ ]{{1,2}})({_VALUE})"""
_AUTHORIZATION = r"\b((?:[bB]earer|BEARER|[bB]asic) {1,4})([\w\-.~+/=]{6,})"
_SHAPES = (
    r"\b(hf_|sk-|nvapi-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|AIza)"
    r"([A-Za-z0-9](?:[A-Za-z0-9\-]|_(?=[A-Za-z0-9])){15,})"
)
# A signed token of three parts, and what signs a URL: the Hub's and the clouds' download addresses appear in errors.
_JWT = r"\beyJ[\w\-]{10,}\.[\w\-]{10,}\.[\w\-]{6,}"
_SIGNED = r"([?&](?:X-Amz-(?:Signature|Security-Token|Credential)|Signature|sig|token|access_token)=)([^&\s'\"]{6,})"
# `--api-key one two`: vLLM takes several. Only what looks like a key counts as a further one, not the sentence's words.
_FURTHER = r"(--api-key \*\*\*)((?: (?!-)(?=[^\s/]*\d)[^\s/]{8,200})+)"
_URL = r"(://[^/\s:@]{1,64}:)([^@\s/]{1,256})@"
_HARMLESS = frozenset(("None", "null", "True", "False", "true", "false", MASK, "''", '""', "[]", "{}", f"'{MASK}'"))

# One of these is in every line that can hold such a secret; testing for them is cheaper than the patterns.
_NAME_HINTS = ("key", "KEY", "Key", "_token", "_TOKEN", "-token", "ssw", "SSW", "_secret", "-secret", "_SECRET")
_AUTHORIZATION_HINTS = ("earer ", "EARER ", "asic ")
_SHAPE_HINTS = ("hf_", "sk-", "nvapi-", "ghp_", "gho_", "hub_pat_", "glpat-", "xox", "AKIA")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when a hint calls for it: every part of the program imports this, and few texts hold a secret."""
    return re.compile(pattern)


def mask_secrets(text: str) -> str:
    """`text` with the values of keys, tokens and passwords replaced by `***`; most lines come back unchanged.

    Recognised by name (`api_key`, `HF_TOKEN`, `--api-key`, `password` ...), by the Authorization header, by shape
    (`hf_...`, `sk-...`, `nvapi-...`, a JWT) and as the password or the signature of a URL.
    """
    for hint in _NAME_HINTS:
        if hint in text:
            text = _compiled(_NAMED).sub(_masked, text)
            if "--api-key ***" in text:
                text = _compiled(_FURTHER).sub(r"\1", text)
            break
    for hint in _AUTHORIZATION_HINTS:
        if hint in text:
            text = _compiled(_AUTHORIZATION).sub(rf"\1{MASK}", text)
            break
    for hint in _SHAPE_HINTS:
        if hint in text:
            text = _compiled(_SHAPES).sub(rf"\1{MASK}", text)
            break
    if "eyJ" in text:
        text = _compiled(_JWT).sub(MASK, text)
    if "://" not in text:
        return text
    if "=" in text:
        text = _compiled(_SIGNED).sub(rf"\1{MASK}", text)
    if "@" in text:
        text = _compiled(_URL).sub(rf"\1{MASK}@", text)
    return text


def _masked(match: re.Match[str]) -> str:
    name, value = match.groups()
    bare = value.replace("\\", "")
    if bare in _HARMLESS:
        return match.group()
    if bare[0] == "[":
        return f"{name}['{MASK}']"
    quote = next((char for char in bare[:1] if char in "\"'"), "")
    escape = value[: len(value) - len(value.lstrip("\\"))]
    return f"{name}{escape}{quote}{MASK}{escape}{quote}"


_NAMES_NAME = re.compile(
    r"(?:.*_)?(?:API_?KEY|SECRET(?:_KEY)?|ACCESS_KEY|PASSWORD|PASSWD|PRIVATE_KEY)"
    r"|(?:.*_)?(?:HF|HUB|HUGGINGFACE|AUTH|ACCESS|API|BEARER|GITHUB|GH|GITLAB|NGC|WANDB|REGISTRY)_TOKEN"
    r"|TOKEN",
    re.IGNORECASE,
)
# Hugging Face and NVIDIA tokens have a shape of their own.
_NAMES_VALUE = re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,})")


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of that name holds a key: `HF_TOKEN`, `VLLM_API_KEY`; not `eos_token`."""
    return _NAMES_NAME.fullmatch(name.replace("-", "_")) is not None


def holds_secret(text: str) -> bool:
    return _NAMES_VALUE.search(text) is not None


def secret_variables(env: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Those of a recipe's variables that hold a key or token themselves; `$HF_TOKEN` and `{api_key}` only name one."""
    return {
        name: text
        for name, text in env
        if text.strip() and not text.startswith(("$", "{")) and (is_secret_name(name) or holds_secret(text))
    }


SECRET_MASK = "••••••"  # noqa: S105 - not a secret


class Secret:
    """Holds a key. `str`, `repr` and formatting show a mask; `reveal()` is the only way to the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Secret({SECRET_MASK})"

    def __str__(self) -> str:
        return SECRET_MASK
