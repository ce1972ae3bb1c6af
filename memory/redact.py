"""Removes secrets from text before it is stored.

What is covered: private key blocks, tokens with a well-known prefix (OpenAI, Anthropic, AWS, GitHub, GitLab, Google,
Slack, Hugging Face, Stripe, npm, PyPI, ...), JSON web tokens, `Bearer` and `Basic` authorisation values, passwords
inside URLs, literals assigned to names such as `api_key`, `client_secret` or `password`, and the formats of
`memory.detectors` (Azure, Discord, Telegram, Twilio, Mailchimp, Square, Slack web hooks, ...). What is not covered:
anything that does not look like one of these (a bare password in prose, a custom token format, a secret split over
two strings or shown as token ids). This is best effort, not a guarantee: keep secrets out of prompts.
"""

from __future__ import annotations

import re
from typing import Any

from memory.detectors import redact_formats, suspicious

_NAMES = (
    r"(?:api[_-]?key|secret[_-]?key|client[_-]?secret|access[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token"
    r"|private[_-]?key|secret[_-]?access[_-]?key|passw(?:or)?d|passphrase|pwd)"
)
_NAMED = re.compile(rf"(?:[A-Za-z0-9]+[_-])*{_NAMES}", re.I)

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private-key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.S
        ),
    ),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")),
    ("aws-key", re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b")),
    (
        "api-key",
        re.compile(
            r"\b(?:sk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{20,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"
            r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|AIza[A-Za-z0-9_-]{35}"
            r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,}"
            r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_-]{20,}|gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,})"
        ),
    ),
    ("url-password", re.compile(r"(?<=://)(?P<keep>[^\s/:@'\"]*:)[^\s/@'\"]+(?=@)")),
    ("authorization", re.compile(r"(?P<keep>\b(?:[Bb]earer|[Bb]asic)\s+)[A-Za-z0-9._~+/-]{16,}=*")),
    (
        "assigned-secret",
        re.compile(
            rf"(?P<keep>\b(?:[A-Za-z0-9]+[_-])*{_NAMES}[\"']?\s*(?:[:=]|=>)\s*)"
            r"(?:(?P<quote>[\"'])(?=[^\"']*[0-9])[^\"'\s]{8,}(?P=quote)|(?=[^\s\"',;()]*[0-9])[A-Za-z0-9_+/=!@#$%^&*~-]{12,}(?![\w.(\[]))",
            re.I,
        ),
    ),
)

_HINT = re.compile(
    r"PRIVATE KEY|eyJ|AKIA|ASIA|ABIA|ACCA|sk[-_]|rk_|pk_|gh[pousr]_|github_pat_|glpat-|AIza|xox|hf_|npm_|pypi-|SG\."
    r"|ya29|gsk_|xai-|://|[Bb]earer|[Bb]asic|[Kk][Ee][Yy]|[Ss][Ee][Cc][Rr][Ee][Tt]|[Tt][Oo][Kk][Ee][Nn]|[Pp][Aa][Ss][Ss]|[Pp][Ww][Dd]"
)


_SIGNS = (
    "PRIVATE KEY", "eyJ", "AKIA", "ASIA", "ABIA", "ACCA", "sk-", "sk_live", "sk_test", "rk_live", "rk_test", "pk_live",
    "pk_test", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AIza", "xox", "hf_", "npm_", "pypi-",
    "SG.", "ya29", "gsk_", "xai-", "://",
)  # fmt: skip
_WORDS = ("bearer", "basic", "passw", "passphrase", "pwd")
_PAIRED = {"key": ("api", "secret", "access", "private"), "secret": ("client",), "token": ("auth", "access", "refresh")}
"""Last word of a secret's name -> the words before it, joined by `_`, `-` or nothing."""


def may_hold_secret(body: str) -> bool:
    """Return False only when no string and no name in a JSON text can be redacted: plain searches, much faster."""
    if any(sign in body for sign in _SIGNS) or suspicious(body):
        return True
    folded = body.casefold()
    if any(word in folded for word in _WORDS):
        return True
    pairs = ((first, last) for last, firsts in _PAIRED.items() if last in folded for first in firsts if first in folded)
    return any(f"{first}{joint}{last}" in folded for first, last in pairs for joint in ("", "_", "-"))


def redact(text: str) -> str:
    """Return `text` with every recognised secret replaced by `[REDACTED:<what>]`."""
    if _HINT.search(text):
        for name, pattern in _PATTERNS:
            text = pattern.sub(lambda m, name=name: f"{m.groupdict().get('keep') or ''}[REDACTED:{name}]", text)
    return redact_formats(text)


def redact_named(name: str, value: Any) -> Any:
    """Return a JSON value kept under `name`, redacted when the name says secret and the value is text with a digit."""
    if isinstance(value, str) and len(value) >= 8 and any(c.isdigit() for c in value) and _NAMED.fullmatch(name):
        return "[REDACTED:assigned-secret]"
    return value
