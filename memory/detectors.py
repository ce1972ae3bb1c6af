"""Token formats that detect-secrets knows and `memory.redact` has no pattern of its own for.

Taken are its detectors of one vendor's format each; those that guess by entropy, by keyword or by address are not: they
would eat hashes, ids and base64. Of a detector only the patterns are used: no scan, no settings, no processes, and no
verification, which would send what was found over the network. The package is imported when a text first looks as if it
held such a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import cast

_DETECTORS = {
    "artifactory": "ArtifactoryDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Module of `detect_secrets.plugins` -> detector."""
_LITERALS = (
    "AKC", "AccountKey=", "eyJ", "_authToken=", "hooks.slack.com", "sq0csp-", "GR1348941", "gldt-", "glft-", "glsoat-",
    "glrt-", "glcbt-", "glptt-", "glagent-", "glimt-", "gloas-",
)  # fmt: skip
_SHAPES = tuple(
    re.compile(shape)
    for shape in (
        r":[0-9A-Za-z_-]{35}",  # Telegram
        r"\.[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27}",  # Discord
        r"-us[0-9]",  # Mailchimp
        r"AC[a-z0-9]{32}",  # Twilio
        r"SK[a-z0-9]{32}",
    )
)
"""What has no literal of its own; each begins with one or two characters, which makes a search fast."""
_AROUND = "\"'=: \t\r\n"
_LONG = 20
"""A group of this length is the token itself, a shorter one its prefix."""
_TOO_OPEN = re.compile(r"AP\[", re.A)
"""Artifactory's passwords: `AP`, one of sixteen characters, eight more. Words in capitals look like that."""


def suspicious(text: str) -> bool:
    """Return False only when no detector can find anything: plain searches, much faster than asking them."""
    return any(literal in text for literal in _LITERALS) or any(shape.search(text) for shape in _SHAPES)


def redact_formats(text: str) -> str:
    """Return `text` with every token of a known format replaced by `[REDACTED:<what>]`."""
    if not suspicious(text):
        return text
    for name, pattern, is_one in _patterns():
        text = pattern.sub(lambda m, name=name, is_one=is_one: _cut(m, name) if is_one(m[0]) else m[0], text)
    return text


def _cut(match: re.Match[str], name: str) -> str:
    """Return the match without the token; some patterns take what stands around it along."""
    group = match[1] if match.re.groups else None
    token = group if group and len(group) >= _LONG else match[0].strip(_AROUND)
    return match[0].replace(token, f"[REDACTED:{name}]")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...]:
    """Return (name, pattern, whether a match really is one) of every detector."""
    found: list[tuple[str, re.Pattern[str], Callable[[str], bool]]] = []
    for module, name in _DETECTORS.items():
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        valid = cast(Callable[[str], bool], getattr(detector, "is_formally_valid", lambda _: True))
        patterns = [pattern for pattern in detector.denylist if not _TOO_OPEN.search(pattern.pattern)]
        found += [(module.replace("_", "-"), pattern, valid) for pattern in patterns]
    return tuple(found)
