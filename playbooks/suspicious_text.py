"""Text that is structurally no lesson, whatever it says: it hides, poses as somebody else, or points outside.

Reads one text, in time proportional to its length, and knows nothing of its author. These rules are weak: whoever knows
them writes around them, in other words or another language. They keep out what no honest lesson needs; where a text
came from and what it does when tasks are run are the defence (docs/threat-model.md).
"""

from __future__ import annotations

import re

from playbooks.disguises import dressed, encoded, folded, hidden, squeezed

# fmt: off
_SPEAKERS = "system|assistant|developer|human|user|ai|bot|gpt|chatgpt|claude|gemini|administrator|sysadmin"
_ROLE = re.compile(
    rf"(?:^|[\n.!?>\]|])\s?[<\[#*_`'\"({{-]*\s?(?:{_SPEAKERS})\s?(?:message|prompt|note|instructions?)?\s?[>\]*_`'\")}}]*\s?(?::|->|→|=>)"
    r"|</?\s?(?:system|instructions?|tool_results?|function_results?|assistant|user|human|tool_calls?|function_calls?|think|thinking"
    r"|reasoning|start_of_turn|end_of_turn|turn|bos|eos|pad|unk|s|inst|sys|im_start|im_end)(?:[-_\s][^<>]{0,80})?/?>"
    r"|<\||\|>|<</?\s?SYS|\[/?\s?(?:INST|SYS|system|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\s?\]|\(\s?system\s?\)"
    r"|<extra_id_\d|(?:#|={3}|-{3}|\*{3})\s?(?:system|instructions?|response|human|user|assistant|input)\b"
    r"|['\"]role['\"]\s?:\s?['\"](?:system|assistant|developer|user|tool)\b|(?:^|\n)\s?-?\s?role:\s?(?:system|assistant|developer)\b"
    r"|\b(?:BEGIN|END)\s(?:SYSTEM|INSTRUCTIONS?|PROMPT|OF\s(?:SYSTEM|INSTRUCTIONS?|PROMPT))\b",
    re.IGNORECASE,
)
"""Read in a text whose blank runs are one character long."""
_TOP = (
    "com|org|net|io|example|dev|ai|co|app|info|biz|xyz|ru|cn|uk|de|eu|me|to|sh|gg|ly|site|online|top|club|test|local|"
    "internal|onion"
)
_HOST = r"(?<![a-z0-9.-])[a-z0-9.-]*[a-z0-9-]\."
_ADDRESS = re.compile(
    r"\bh(?:tt|xx)ps?\s?:?//[^\s\"'<>]+|\b[a-z][a-z0-9+.-]{0,40}://[^\s\"'<>]+|\bwww\.[^\s\"'<>]+"
    r"|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|\b(?:\d{1,3}\.){3}\d{1,3}\b"
    r"|(?<![:\w/])//[\w-]+\.[^\s\"'<>)]+|\\\\[\w.-]+\\[\w$.-]+"
    rf"|{_HOST}(?:{_TOP})(?::\d+)?/[^\s\"'<>)]*|{_HOST}(?:com|org|example|xyz|ru|cn|onion)\b(?!\()"
    r"|[\w-]{1,63}(?:\s?(?:\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\))\s?[\w-]+)+|\bxn--[\w.-]+"
    r"|[\w-]{1,63}\s{1,2}dot\s{1,2}(?:com|org|net|io|dev|example|xyz|ru|cn|onion)\b"
    r"|\b(?:mailto|javascript|vbscript|tel|sms):[^\s]+|\bdata:[a-z]+/[^\s]+|\bfile:/[^\s]*|\blocalhost(?::\d+)?\b"
    r"|\[(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}\]|\[::1\]|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b|\b0x[0-9a-f]{40}\b|\bbc1[a-z0-9]{20,}\b"
    r"|(?-i:\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){4,7}\b)",
    re.IGNORECASE,
)
# fmt: on
_LINK = re.compile(r"!?\[[^\]\n]{0,200}\]\(\s*([^)\s]{1,500})|^\s{0,3}\[[^\]\n]{1,100}\]:\s*(\S+)", re.MULTILINE)
"""Links and images of Markdown: what they point at is an address, however short."""
_MARKUP = re.compile(
    r"<!--|<(?:a|base|embed|form|iframe|img|link|meta|object|script|style|svg|video|audio)\b", re.IGNORECASE
)
_FENCE, _HASHES = "```", re.compile(r"(?<!\S)#+")
"""Code stands between two fences, and what follows a hash in it is a comment, not a heading."""
_LITERAL = re.compile(r"\"([^\"\n]*)\"|(?<!\w)'([^'\n]*)'(?!\w)|«([^«»\n]*)»|[“„]([^“„”\n]*)[”“]")
_SHORTEST = 3
_CONDITION = re.compile(
    r"\bfrom\b(?:(?!\bfrom\b)[^,.\n])*?\bon\b"
    r"|\b(?:when(?:ever)?|once|after|if|unless|until|as soon as|starting|next time)\b(?:\s+[^\s,;:!?]+){0,4}",
    re.IGNORECASE,
)
"""`from ... on`, or another condition with the four words after it: among these a call should stand."""
_CALL = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")
_AFTER_CALL = re.compile(r"[\w.]\.\w+:?\s*$")
_BEFORE = 200
"""Characters before a condition in which the call that it follows is looked for."""


def refusal(text: str, known: str = "", *, strict: bool = False) -> str:
    """Return why a text is refused, or an empty text.

    `known` is all that an operator or the environment's own description names: an address there may be named. `strict`
    is for text of little trust: it may quote no other literal than known ones, and depend on nothing but a call.
    """
    plain = folded(text)
    return (
        hidden(text)
        or dressed(text)
        or encoded(text)
        or _posing(plain)
        or _pointing(plain, known)
        or (_bound(text, known) * strict)
    )


def _posing(text: str) -> str:
    parts = text.split(_FENCE)
    parts[1:-1:2] = [_HASHES.sub("", code) for code in parts[1:-1:2]]
    found = _ROLE.search(squeezed(_FENCE.join(parts)))
    return f"content poses as another speaker ({found[0].strip()!r}); say it as a rule" if found else ""


def _pointing(text: str, known: str) -> str:
    if found := _MARKUP.search(text):
        return f"content holds markup ({found[0]!r}), which can hide or load something; write it in words"
    links = ("".join(parts) for parts in _LINK.findall(text))
    for address in (*links, *(found[0] for found in _ADDRESS.finditer(text))):
        if address.rstrip(".,;:)") not in known:
            return f"content names {address!r}, which nobody allowed; an operator can, with gate.static.allow"
    return ""


def _bound(text: str, known: str) -> str:
    for groups in _LITERAL.findall(text):
        literal = "".join(groups)
        if len(literal) >= _SHORTEST and literal not in known:
            what = f"content of little trust names {literal!r}"
            return f"{what}, which nobody allowed; an operator can, with gate.static.allow"
    for found in _CONDITION.finditer(text):
        after_call = _AFTER_CALL.search(text[max(0, found.start() - _BEFORE) : found.start()])
        if not after_call and not _CALL.search(found[0]):
            return f"content of little trust depends on {found[0].strip()[:60]!r}; it may depend on a call only"
    return ""
