"""What is structurally no lesson, whatever it says: text that hides, poses as somebody else, or points outside.

Reads one text and knows nothing of its author. These rules are weak: whoever knows them writes around them, in other
words or another language. They keep out what no honest lesson needs; where a text came from and what it does when tasks
are run are the defence (docs/threat-model.md).
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata

_HIDDEN = frozenset({"Cf", "Co", "Cs"})
"""Unicode categories without a glyph: zero-width, bidirectional and tag characters, private use, surrogates."""
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")
"""Alphabets with letters that look alike."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2}[ :]?){10,})")
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|&#x?[0-9a-fA-F]+;){4,}")
_ROLE = re.compile(
    r"(?:^|[\n.!?>\]])\s*[<\[#*]*\s*(?:system|assistant|developer|human|user)\s*(?:message|prompt)?\s*[>\]*]*\s*:"
    r"|</?\s*(?:system|instructions?|tool_result|function_results?|assistant|user)\s*>|\[\s*system\s*\]"
    r"|#{2,}\s*(?:system|instructions?|response)\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+|\bwww\.[^\s\"'<>]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b(?:\d{1,3}\.){3}\d{1,3}\b",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"\"([^\"\n]*)\"|(?<!\w)'([^'\n]*)'(?!\w)|«([^»\n]*)»|[“„]([^”“\n]*)[”“]")
_SHORTEST = 3
_CONDITION = re.compile(
    r"\bfrom\b[^,.\n]*?\bon\b"
    r"|\b(?:when(?:ever)?|once|after|if|unless|until|as soon as|starting|next time)\b(?:\s+[^\s,;:!?]+){0,4}",
    re.IGNORECASE,
)
"""`from ... on`, or another condition with the four words after it: among these a call should stand."""
_CALL = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")


def refusal(text: str, known: str = "", *, strict: bool = False) -> str:
    """Return why a text is refused, or an empty text.

    `known` is all that an operator or the environment's own description names: an address there may be named. `strict`
    is for text of little trust: it may quote no other literal than known ones, and depend on nothing but a call.
    """
    return _hidden(text) or _encoded(text) or _posing(text) or _pointing(text, known) or (_bound(text, known) * strict)


def _hidden(text: str) -> str:
    for char in text:
        if unicodedata.category(char) in _HIDDEN:
            return f"content holds an invisible character (U+{ord(char):04X}); write it without"
    for word in re.findall(r"[^\W\d_]{4,}", text):
        scripts = {script for script in _SCRIPTS if any(unicodedata.name(c, "").startswith(script) for c in word)}
        if len(scripts) > 1:
            return f"content mixes alphabets in one word ({word!r}); write it in one"
    return ""


def _encoded(text: str) -> str:
    if _ESCAPED.search(text):
        return "content holds escaped characters; write them out"
    for run in _BASE64.findall(text):
        if _reads(_from_base64(run)):
            return f"content holds text in base64 ({run[:24]!r}); write it out"
    for run in _HEX.findall(text):
        if re.search("[a-fA-F]", run) and _reads(bytes.fromhex(re.sub(r"[ :]", "", run))):
            return f"content holds text in hexadecimal ({run[:24]!r}); write it out"
    return ""


def _from_base64(run: str) -> bytes:
    body = run.rstrip("=")
    try:
        return base64.b64decode(body[: len(body) - len(body) % 4], validate=True)
    except binascii.Error:
        return b""


def _reads(data: bytes) -> bool:
    """Tell whether bytes are text: all printable. Names and hashes hardly ever decode to that."""
    return len(data) >= 10 and all(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)


def _posing(text: str) -> str:
    found = _ROLE.search(text)
    return f"content poses as another speaker ({found[0].strip()!r}); say it as a rule" if found else ""


def _pointing(text: str, known: str) -> str:
    for found in _ADDRESS.findall(text):
        if found.rstrip(".,;:)") not in known:
            return f"content names {found!r}, which nobody allowed; an operator can, with gate.allow"
    return ""


def _bound(text: str, known: str) -> str:
    for groups in _LITERAL.findall(text):
        literal = "".join(groups)
        if len(literal) >= _SHORTEST and literal not in known:
            return f"content of little trust names {literal!r}, which nobody allowed; an operator can, with gate.allow"
    for found in _CONDITION.finditer(text):
        after_call = re.search(r"[\w.]+\.\w+:?\s*$", text[: found.start()])
        if not after_call and not _CALL.search(found[0]):
            return f"content of little trust depends on {found[0].strip()[:60]!r}; it may depend on a call only"
    return ""
