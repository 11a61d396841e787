"""Keys and tokens in log text, masked before anyone sees them.

vLLM prints `'api_key': ['secret']` in its start-up line up to 0.25; people paste tokens into environment dumps.
"""

from __future__ import annotations

import re
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
# A signed token of three parts, and what signs a URL: the Hub's and the clouds' download addresses stand in errors.
_JWT = r"\beyJ[\w\-]{10,}\.[\w\-]{10,}\.[\w\-]{6,}"
_SIGNED = r"([?&](?:X-Amz-(?:Signature|Security-Token|Credential)|Signature|sig|token|access_token)=)([^&\s'\"]{6,})"
# `--api-key one two`: vLLM takes several. Only what looks like a key counts as a further one, not the sentence's words.
_FURTHER = r"(--api-key \*\*\*)((?: (?!-)(?=[^\s/]*\d)[^\s/]{8,200})+)"
_URL = r"(://[^/\s:@]{1,64}:)([^@\s/]{1,256})@"
_HARMLESS = frozenset(("None", "null", "True", "False", "true", "false", MASK, "''", '""', "[]", "{}", f"'{MASK}'"))

# One of these stands in every line that can hold such a secret; testing for them is cheaper than the patterns.
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
