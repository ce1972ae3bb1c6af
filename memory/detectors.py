"""Formats of secrets: one `Detector` each, every one of them linear in the length of the text.

What makes them linear is checked by `tests/memory/test_linear.py`. Before its end a pattern repeats at most `LONGEST`
times and never repeats a repetition, so a failed attempt has read a bounded number of characters. Only at its end may
it repeat without bound, and there it cannot fail: what it read is consumed, and `accepts` decides whether it was a
secret. To look ahead behind an unbounded repetition would read the same text again from every start.

Detectors that guess by entropy are left out: they eat hashes, ids and base64.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

LONGEST = 256
"""Repetitions before the end of a pattern, at most."""

Match = re.Match[str]


@dataclass(frozen=True)
class Detector:
    """One format. The group `keep` stays, the rest of a match is replaced."""

    name: str
    pattern: re.Pattern[str]
    signs: tuple[str | re.Pattern[str], ...]
    """One of these is in every text that holds such a secret: looking for them is fast."""
    folded: bool = False
    """Texts among the signs are in lower case and sought without regard to case."""
    accepts: Callable[[Match], bool] = lambda match: True

    def may_find(self, text: str, lower: str) -> bool:
        """Return False only when nothing can be found in a text, given also in lower case."""
        within = lower if self.folded else text
        return any(sign in within if isinstance(sign, str) else sign.search(text) for sign in self.signs)

    def redact(self, text: str) -> str:
        """Return the text with what was found replaced by `[REDACTED:<name>]`."""
        return self.pattern.sub(self._replaced, text)

    def _replaced(self, match: Match) -> str:
        if not self.accepts(match):
            return match[0]
        return f"{match.groupdict().get('keep') or ''}[REDACTED:{self.name}]"


def _next(match: Match) -> str:
    return match.string[match.end() : match.end() + 2]


def _is_token(match: Match) -> bool:
    """Tell whether dotted base64 is a JSON web token: two encoded objects begin it."""
    parts = match[0].split(".")
    if len(parts) < 2:
        return False
    return (len(parts) > 2 and parts[1].startswith("eyJ")) or all(map(_is_json, parts[:2]))


def _is_json(part: str) -> bool:
    try:
        json.loads(base64.urlsafe_b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4)))
    except (ValueError, RecursionError):
        return False
    return True


def _is_assigned(match: Match) -> bool:
    """Tell whether what a secret's name is given is a literal: it has a digit and is no call or attribute."""
    quoted, after = match["quoted"], _next(match)
    if quoted is not None:
        return after[:1] == match["quote"] and any(c.isdigit() for c in quoted)
    is_code = after[:1] in ("(", "[") or (after[:1] == "." and after[1:].isalnum()) or after[:1].isalnum()
    return not is_code and any(c.isdigit() for c in match["bare"])


_PAIRS = {"key": ("api", "secret", "access", "private"), "secret": ("client",), "token": ("auth", "access", "refresh")}
"""Last word of a secret's name -> the words before it, joined by `_`, `-` or nothing."""
_JOINED = tuple(
    first + joint + last
    for last, firsts in _PAIRS.items()
    for first, joint in product(firsts, ("", "_", "-"))
)  # fmt: skip
_WORDS = ("passw", "passphrase", "pwd")
_NAME = rf"(?<![A-Za-z0-9])(?:{'|'.join(_JOINED)}|passw(?:or)?d|passphrase|pwd)"
NAMED = re.compile(rf"{_NAME}\Z", re.I)
"""Ends a name that says secret."""
_TOKEN = "[A-Za-z0-9_-]"


def _format(name: str, pattern: str, *signs: str | re.Pattern[str], flags: int = 0) -> Detector:
    return Detector(name, re.compile(pattern, flags), signs)


DETECTORS: tuple[Detector, ...] = (
    _format(
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY[A-Z ]{0,20}-----"
        r"(?:[^-]|-(?!----END ))*+(?:-----END [A-Z0-9 ]{0,40}?PRIVATE KEY[A-Z ]{0,20}-----)?",
        "PRIVATE KEY",
    ),
    Detector("jwt", re.compile(rf"(?<![A-Za-z0-9])eyJ{_TOKEN}{{5}}[A-Za-z0-9_.=-]+"), ("eyJ",), accepts=_is_token),
    _format(
        "aws-key",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9_])",
        "AKIA", "ASIA", "ABIA", "ACCA",
    ),
    _format(
        "api-key",
        rf"\b(?:sk-(?:ant-|proj-|svcacct-|or-)?{_TOKEN}{{20,}}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{16,}}"
        rf"|gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_[A-Za-z0-9_]{{30,}}|glpat-{_TOKEN}{{20,}}|AIza{_TOKEN}{{35}}"
        r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,}"
        rf"|SG\.{_TOKEN}{{16,64}}\.{_TOKEN}{{16,}}|ya29\.{_TOKEN}{{20,}}|gsk_[A-Za-z0-9]{{30,}}|xai-[A-Za-z0-9]{{30,}})",
        "sk-", "sk_live", "sk_test", "rk_live", "rk_test", "pk_live", "pk_test", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
        "github_pat_", "glpat-", "AIza", "xox", "hf_", "npm_", "pypi-", "SG.", "ya29", "gsk_", "xai-",
    ),
    Detector(
        "url-password",
        re.compile(r"(?P<keep>://[^\s/:@'\"]{0,200}:)[^\s/@'\"]+"),
        ("://",),
        accepts=lambda match: _next(match)[:1] == "@",
    ),
    Detector(
        "authorization",
        re.compile(r"(?P<keep>\b[Bb](?:earer|asic)\s{1,20}+)[A-Za-z0-9._~+/=-]{16,}"),
        ("bearer", "basic"),
        folded=True,
    ),
    Detector(
        "assigned-secret",
        re.compile(
            rf"(?P<keep>{_NAME}[\"']?\s{{0,20}}+(?:=>|[:=])\s{{0,20}}+(?P<quote>[\"']?))"
            r"(?:(?<=[\"'])(?P<quoted>[^\"'\s]{8,})|(?<![\"'])(?P<bare>[A-Za-z0-9_+/=!@#$%^&*~-]{12,}))",
            re.I,
        ),
        (*_WORDS, *_JOINED),
        folded=True,
        accepts=_is_assigned,
    ),
    Detector(
        "artifactory",
        re.compile(r"(?<![A-Za-z0-9])AKC[A-Za-z0-9]{10,}"),
        ("AKC",),
        accepts=lambda match: _next(match)[:1] not in ("=", "+", "/"),
    ),
    _format("azure-storage-key", r"(?P<keep>AccountKey=)[A-Za-z0-9+/=]{88}", "AccountKey="),
    _format(
        "discord",
        rf"(?<!{_TOKEN})[MNO]{_TOKEN}{{23,25}}\.{_TOKEN}{{6}}\.{_TOKEN}{{27}}",
        re.compile(rf"\.{_TOKEN}{{6}}\.{_TOKEN}{{27}}"),
    ),
    _format(
        "gitlab-token",
        r"(?:GR1348941|gldt-|glft-|glsoat-|glrt-|glptt-|glagent-|glimt-|gloas-|glcbt-)[A-Za-z0-9_-]{20,}",
        "GR1348941", "gldt-", "glft-", "glsoat-", "glrt-", "glptt-", "glagent-", "glimt-", "gloas-", "glcbt-",
    ),
    _format("mailchimp", r"[0-9a-z]{32}-us[0-9]{1,2}", re.compile(r"-us[0-9]")),
    _format("npm", r"(?P<keep>_authToken=\s{0,4}+)[^\s\"']{8,}", "_authToken="),
    _format("slack", r"(?P<keep>https://hooks\.slack\.com/services/)[A-Za-z0-9_/]{20,}", "hooks.slack.com"),
    _format("square-oauth", r"sq0(?:csp|atp)-[0-9A-Za-z_\\-]{22,}", "sq0csp-", "sq0atp-"),
    _format("telegram-token", rf"(?<![0-9])[0-9]{{8,10}}:{_TOKEN}{{35}}", re.compile(rf":{_TOKEN}{{35}}")),
    _format("twilio", r"(?<![A-Za-z0-9])(?:AC|SK)[a-z0-9]{32}(?![A-Za-z0-9])", re.compile(r"(?:AC|SK)[a-z0-9]{32}")),
)  # fmt: skip
