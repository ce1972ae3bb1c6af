"""Text that is not what it seems: invisible characters, letters dressed up as others, words in a code.

`folded` is what a model reads where a filter of plain words sees something else: compatibility forms and look-alikes
replaced by plain letters. Each of the others returns why a text is refused, or an empty text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable

_HIDDEN = frozenset({"Cf", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories without a glyph: zero-width, bidirectional and tag characters, private use, surrogates, lines."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\u0085")
"""Characters of other categories that show nothing: fillers, joiners, the empty Braille pattern."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: each can carry a byte behind a visible character."""
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")
"""Alphabets with letters that look alike."""
# fmt: off
_ALIKE = str.maketrans(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u043a\u043c\u0442\u0410"
    "\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405\u03b1\u03b5\u03b9\u03ba"
    "\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03c9\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1"
    "\u03a4\u03a5\u03a7\u3002\uff61\u2024\u0589\ufe55\ua789\u2236\uff20",
    "aceopxyijshdqwkmtABEKMHOPCTXYIJSaeikvoptuxwABEZHIKMNOPTYX...::::@",
)
# fmt: on
"""Cyrillic and Greek letters, dots, colons -> the Latin characters that they look like."""
_DRESSED = re.compile(
    r"MATHEMATICAL|FULLWIDTH|CIRCLED|PARENTHESIZED|SQUARED|REGIONAL INDICATOR|BRAILLE|TURNED|SMALL CAPITAL|"
    r"MODIFIER LETTER (?:SMALL|CAPITAL)|SUBSCRIPT SMALL|SUPERSCRIPT LATIN"
)
_FEW = 3
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_BASE32 = re.compile(r"\b[A-Z2-7]{16,}={0,6}|\b[a-z2-7]{24,}={0,6}")
_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2}[ :]?){10,})")
_ESCAPED = re.compile(
    r"(?:\\x[0-9a-fA-F]{2}|\\u\{?[0-9a-fA-F]{2,6}\}?|\\[0-7]{3}|%[0-9a-fA-F]{2}|=[0-9A-F]{2}|&#x?[0-9a-fA-F]+;|"
    r"U\+[0-9A-F]{4,6}\s?){4,}"
)
_ASCII85 = re.compile(r"<~(?:(?!<~).){10,}?~>", re.DOTALL)
_BINARY = re.compile(r"(?:\b[01]{7,8}\b\s?){4,}")
_MORSE = re.compile(r"(?:(?<!\S)[.\-\u2022\u2013]{1,5}(?:\s{1,3}(?:/\s)?|$)){8,}")
_SPACED = re.compile(r"(?:(?<![^\W_])[^\W\d_][ .\-_*|]){6,}")
_CODES = re.compile(r"\b(?:\d{2,3}[ ,]{1,2}){9,}\d{2,3}\b")
# fmt: off
_COMMON = frozenset({
    "a", "after", "all", "always", "an", "and", "any", "at", "be", "before", "by", "call", "copy", "delete",
    "do", "each", "every", "first", "for", "from", "give", "if", "ignore", "in", "into", "is", "it", "mail",
    "money", "never", "not", "obey", "of", "on", "once", "one", "or", "pay", "previous", "rules", "send", "set",
    "system", "task", "the", "their", "then", "this", "to", "use", "when", "with", "without", "you", "your",
})
# fmt: on
"""English words by which a sentence is known."""
_SENTENCE = re.compile(r"[^.!?\n;:]+")


def folded(text: str) -> str:
    """Return the text in plain letters: compatibility forms resolved, look-alikes of Latin letters replaced."""
    return unicodedata.normalize("NFKC", text).translate(_ALIKE)


def squeezed(text: str) -> str:
    """Return the text with every run of blank space as one character: a line break where it holds one."""
    return re.sub(r"\s+", lambda run: "\n" if "\n" in run[0] else " ", text)


def hidden(text: str) -> str:
    """Return which character cannot be seen."""
    for char in text:
        control = unicodedata.category(char) == "Cc" and char not in "\n\r\t"
        if control or unicodedata.category(char) in _HIDDEN or char in _BLANK or _SELECTORS.match(char):
            return f"content holds an invisible character (U+{ord(char):04X}); write it without"
    stacked = re.search(r"[^\W\d_]", text) and _stacked(text)
    return f"content piles marks on a letter ({stacked!r}); write it plainly" if stacked else ""


def dressed(text: str) -> str:
    """Return which letters pose as others: two alphabets in a word, or fullwidth, bold, circled, turned letters."""
    for word in re.findall(r"[^\W\d_]{3,}", text):
        scripts = {script for script in _SCRIPTS if any(unicodedata.name(c, "").startswith(script) for c in word)}
        if len(scripts) > 1:
            return f"content mixes alphabets in one word ({word!r}); write it in one"
    odd = [char for char in text if ord(char) > 127 and _DRESSED.search(unicodedata.name(char, ""))]
    if len(odd) >= _FEW:
        return f"content is written in letters that pose as others ({''.join(odd[:8])!r}); write it in plain ones"
    return ""


def encoded(text: str) -> str:
    """Return which code the text holds words in."""
    for pattern, what in (
        (_ESCAPED, "escaped characters"),
        (_ASCII85, "text in base85"),
        (_BINARY, "text in binary digits"),
        (_MORSE, "text in Morse code"),
        (_SPACED, "letters spaced out"),
    ):
        if found := pattern.search(text):
            return f"content holds {what} ({found[0][:24]!r}); write them out"
    for pattern, decode, what in (
        (_BASE64, _from_base64, "base64"),
        (_BASE32, _from_base32, "base32"),
        (_HEX, _from_hex, "hexadecimal"),
        (_CODES, _from_codes, "character codes"),
    ):
        for found in pattern.finditer(text):
            if _reads(decode(found[0])):
                return f"content holds text in {what} ({found[0][:24]!r}); write it out"
    for sentence in _SENTENCE.findall(text):
        if why := _turned(sentence):
            return why
    return ""


def _stacked(text: str) -> str:
    """Return a letter with more marks than any language puts on it, or an empty text."""
    count = 0
    for at, char in enumerate(unicodedata.normalize("NFD", text)):
        count = count + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if count > _FEW:
            return text[max(0, at - count) : at][:_FEW]
    return ""


def _turned(sentence: str) -> str:
    """Return why a sentence is refused that reads as English only letter by letter shifted, or backwards."""
    if _common(sentence) > 0:
        return ""
    readings: tuple[tuple[Callable[[str], str], str], ...] = (
        (lambda text: codecs.encode(text, "rot13"), "rot13"),
        (lambda text: text[::-1], "reverse"),
    )
    for turn, name in readings:
        if _common(turn(sentence)) >= _FEW:
            return f"content holds text in {name} ({sentence.strip()[:24]!r}); write it out"
    return ""


def _common(text: str) -> int:
    return sum(word in _COMMON for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 1)


def _from_base64(run: str) -> bytes:
    body = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(body[: len(body) - len(body) % 4], validate=True)
    except binascii.Error:
        return b""


def _from_base32(run: str) -> bytes:
    body = run.rstrip("=").upper()
    try:
        return base64.b32decode(body[: len(body) - len(body) % 8])
    except binascii.Error:
        return b""


def _from_hex(run: str) -> bytes:
    digits = re.sub(r"[ :]|^0x", "", run)
    return bytes.fromhex(digits[: len(digits) - len(digits) % 2]) if re.search("[a-fA-F]", digits) else b""


def _from_codes(run: str) -> bytes:
    numbers = [int(number) for number in re.findall(r"\d+", run)]
    return bytes(numbers) if all(number < 128 for number in numbers) and _letters(numbers) else b""


def _letters(numbers: list[int]) -> bool:
    return sum(chr(number).isalpha() or number == 32 for number in numbers) > len(numbers) * 0.8


def _reads(data: bytes) -> bool:
    """Tell whether bytes are text: all printable. Names and hashes hardly ever decode to that."""
    return len(data) >= 10 and all(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)
