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
    """One of these is in every text that holds such a secret, and in the text as JSON: looking for them is fast."""
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


_SK = re.compile(rf"sk-(?:(?<![A-Za-z0-9_]sk-)|(?<=\\[bfnrt]sk-)|(?<=\\u[0-9a-f]{{4}}sk-)){_TOKEN}{{20}}")
"""At the beginning of a word, also behind a control character as JSON writes it: `task-1` and `risk-free` hold none."""
_PLAIN = (
    "CCIPAT_", "CFPAT-", "EZAK", "EZTK", "GOCSPX-", "NRAK-", "bkua_", "dckr_pat_", "doo_v1_", "dop_v1_", "dor_v1_",
    "dp.ct.", "dp.pt.", "dp.st.", "figd_", "fw_", "glsa_", "lin_api_", "lsv2_pt_", "lsv2_sk_", "nfp_", "ntn_", "pcsk_",
    "pplx-", "pul-", "r8_", "rubygems_", "sbp_", "shpat_", "shpca_", "shppa_", "shpss_", "shippo_live_", "shippo_test_",
    "sqa_", "sqp_", "squ_", "whsec_",
)  # fmt: skip
"""Prefixes before twenty or more letters and digits."""
_DASHED = (
    "AGE-SECRET-KEY-1", "ATATT3", "ATBB", "ATCTT3", "FLWSECK-", "FLWSECK_TEST-", "HRKU-", "PMAK-",
    "access-development-", "access-production-", "access-sandbox-", "glc_", "hvb.", "hvr.", "hvs.", "pat-eu1-",
    "pat-na1-", "pscale_oauth_", "pscale_pw_", "pscale_tkn_", "sntrys_", "sntryu_", "tskey-api-", "tskey-auth-",
    "tskey-client-", "xapp-",
)  # fmt: skip
"""Prefixes before twenty or more letters, digits, dashes and underscores."""


_SERVICES = ("api", "private", "subscription", "job")
_PARAMETERS = ("secret", "sig", "access_token", "api_key", "apikey", "auth", "password")
_OWNERS = ("app", "aws", "bot", "consumer", "shared", "signing", "webhook", "encryption", "master", "bearer")


def _has_digit(match: Match) -> bool:
    return any(char.isdigit() for char in match[0][-20:])


def _after(name: str, prefixes: tuple[str, ...], tail: str) -> Detector:
    known = "|".join(map(re.escape, prefixes))
    pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{known}){tail}{{20,}}")
    return Detector(name, pattern, prefixes, accepts=_has_digit)


def _folded(name: str, pattern: str, *signs: str, accepts: Callable[[Match], bool] = lambda match: True) -> Detector:
    return Detector(name, re.compile(pattern, re.I), signs, folded=True, accepts=accepts)


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
        _SK, "sk_live", "sk_test", "rk_live", "rk_test", "pk_live", "pk_test", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
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
    _format(
        "evolve-token", rf"evolve_[0-9a-f]{{12}}_{_TOKEN}{{20,}}", re.compile(r"evolve_[0-9a-f]{12}_")
    ),
    _format("npm", r"(?P<keep>_authToken=\s{0,4}+)[^\s\"']{8,}", "_authToken="),
    _format("slack", r"(?P<keep>https://hooks\.slack\.com/services/)[A-Za-z0-9_/]{20,}", "hooks.slack.com"),
    _format("square-oauth", r"sq0(?:csp|atp)-[0-9A-Za-z_\\-]{22,}", "sq0csp-", "sq0atp-"),
    _format("telegram-token", rf"(?<![0-9])[0-9]{{8,10}}:{_TOKEN}{{35}}", re.compile(rf":{_TOKEN}{{35}}")),
    _format("twilio", r"(?<![A-Za-z0-9])(?:AC|SK)[a-z0-9]{32}(?![A-Za-z0-9])", re.compile(r"(?:AC|SK)[a-z0-9]{32}")),
    _after("api-key", _PLAIN, "[A-Za-z0-9]"),
    _after("api-key", _DASHED, _TOKEN),
    _format("api-key", r"(?<![A-Za-z0-9_])rzp_(?:live|test)_[A-Za-z0-9]{14,}", "rzp_live_", "rzp_test_"),
    _format("databricks", r"(?<![A-Za-z0-9_])dapi[0-9a-f]{32,}", "dapi"),
    _format("mailgun", r"(?<![A-Za-z0-9_-])key-[0-9a-f]{32,}", "key-"),
    _format("square-oauth", rf"(?<!{_TOKEN})EAAA{_TOKEN}{{56,}}", "EAAA"),
    _format("google-refresh-token", rf"(?<![\w/])1//0{_TOKEN}{{40,}}", "1//0"),
    _format("dropbox", rf"(?<![\w.])sl\.{_TOKEN}{{120,}}", "sl."),
    _format("airtable", r"(?<![A-Za-z0-9_])pat[A-Za-z0-9]{14}\.[0-9a-f]{64,}", re.compile(r"pat[A-Za-z0-9]{14}\.")),
    _format("terraform", rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{14}}\.atlasv1\.{_TOKEN}{{60,}}", ".atlasv1."),
    _format("mapbox", rf"(?<![A-Za-z0-9_])sk\.eyJ{_TOKEN}{{20,256}}\.{_TOKEN}{{10,}}", "sk.eyJ"),
    _format("braintree", r"access_token\$(?:production|sandbox)\$[0-9a-z$]{30,}", "access_token$"),
    _format("azure-client-secret", r"(?<![A-Za-z0-9_.~-])[A-Za-z0-9_.~-]{3}[0-9]Q~[A-Za-z0-9_.~-]{31,}", "Q~"),
    _format("discord", rf"(?P<keep>/api/webhooks/[0-9]{{15,22}}/){_TOKEN}{{40,}}", "/api/webhooks/"),
    _format(
        "password-hash",
        r"\$(?:1|2[abxy]|5|6|y|apr1)\$[A-Za-z0-9./$=,]{22,}",
        "$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$y$", "$apr1$",
    ),
    _format("docker-auth", r"(?P<keep>\"auth\"\s{0,4}+:\s{0,4}+\")[A-Za-z0-9+/=]{16,}", "\"auth\"", r"\"auth\""),
    _folded(
        "authorization",
        r"(?P<keep>\bauthorization\s{0,3}+:\s{0,3}+[a-z]{2,20}\s{1,3}+)[^\s,;'\"\[]{12,}",
        "authorization",
        accepts=_has_digit,
    ),
    _folded(
        "api-key-header",
        rf"(?P<keep>\b(?:x-(?:api-key|auth-token|vault-token)|(?:{'|'.join(_SERVICES)})-(?:key|token))"
        r"\s{0,3}+:\s{0,3}+)[^\s,;'\"\[]{8,}",
        "x-api-key", "x-auth-token", "x-vault-token", *(f"{a}-{b}" for a in _SERVICES for b in ("key", "token")),
        accepts=_has_digit,
    ),
    _folded(
        "connection-string",
        r"(?P<keep>;(?:password|pwd|sharedaccesskey|accountkey)\s{0,3}+=\s{0,3}+)[^;\s'\"\[]{4,}",
        ";password", ";pwd", ";sharedaccesskey", ";accountkey",
    ),
    _folded(
        "url-secret",
        rf"(?P<keep>[?&](?:{'|'.join(_PARAMETERS)})=)[a-z0-9%._~+/=-]{{12,}}",
        *(f"{sign}{name}=" for sign in "?&" for name in _PARAMETERS),
    ),
    _folded(
        "assigned-secret",
        rf"(?P<keep>(?<![a-z0-9])(?:{'|'.join(_OWNERS)})"
        r"_(?:secret|token|key)\s{0,4}+[:=]\s{0,4}+[\"']?)[a-z0-9_+/=-]{12,}",
        *(f"{first}_{last}" for first in _OWNERS for last in ("secret", "token", "key")),
        accepts=_has_digit,
    ),
    _folded(
        "flag",
        r"(?P<keep>(?<!\S)--(?:password|token|api-key|secret)\s{1,3}+)[^\s'\"<\[$-][^\s'\"]{7,}",
        "--password", "--token", "--api-key", "--secret",
        accepts=_has_digit,
    ),
    _folded("netrc", r"(?P<keep>\blogin\s{1,3}+\S{1,64}+\s{1,3}+password\s{1,3}+)[^\s\[]{4,}", "password"),
    _folded(
        "session-cookie",
        r"(?P<keep>\b(?:sessionid|session|connect\.sid|phpsessid|jsessionid)=)[a-z0-9%._-]{24,}",
        "sessionid=", "session=", "connect.sid=", "phpsessid=", "jsessionid=",
        accepts=_has_digit,
    ),
)  # fmt: skip
