"""Made-up secrets of many kinds, put together here from parts so that no file holds one."""

from __future__ import annotations

import base64
import random
import string

HEX = "0123456789abcdef" * 8


def letters(count: int) -> str:
    """Return so many letters and digits, drawn from the count."""
    return "".join(random.Random(count).choices(string.ascii_letters + string.digits, k=count))


def _b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


SECRETS: dict[str, tuple[str, str]] = {
    "openai": ("sk-" + "proj-", letters(40)),
    "anthropic": ("sk-" + "ant-api03-", letters(60)),
    "aws id": ("AK" + "IA", letters(16).upper()),
    "aws key": ("aws_secret_" + "access_key = ", letters(40)),
    "github": ("gh" + "p_", letters(36)),
    "github fine": ("github_" + "pat_", letters(60)),
    "gitlab": ("gl" + "pat-", letters(20)),
    "gitlab deploy": ("gl" + "dt-", letters(20)),
    "google": ("AI" + "za", letters(35)),
    "slack": ("xox" + "b-123456789012-", letters(24)),
    "slack hook": ("https://hooks." + "slack.com/services/T0AB12CD3/B0AB12CD3/", letters(24)),
    "hugging face": ("h" + "f_", letters(34)),
    "stripe": ("sk_" + "live_", letters(24)),
    "npm": ("//registry.npmjs.org/:_auth" + "Token=", f"{HEX[:8]}-{HEX[:4]}-{HEX[4:8]}-{HEX[8:12]}-{HEX[:12]}"),
    "pypi": ("py" + "pi-AgEIcHlwaS5vcmc", letters(80)),
    "sendgrid": ("S" + "G." + letters(22) + ".", letters(43)),
    "azure": ("Account" + "Key=", letters(86) + "=="),
    "discord": ("M" + letters(23) + "." + letters(6) + ".", letters(27)),
    "telegram": ("123456789" + ":", letters(35)),
    "twilio": ("S" + "K", HEX[3:35]),
    "mailchimp": (HEX[:32] + "-us", "12"),
    "square": ("sq0" + "csp-", letters(43)),
    "artifactory": ("AK" + "C", letters(60)),
    "signed token": ("ey" + _b64('{"alg":"HS256"}')[2:] + "." + _b64('{"sub":"1234"}') + ".", letters(43)),
    "odd token": (_b64('{"alg":"none"}') + ".", _b64(' {"user":"bob","role":"admin"}')),
    "private key": ("-----BEGIN RSA " + "PRIVATE KEY-----\n", letters(64) + "\n-----END RSA " + "PRIVATE KEY-----"),
    "database": ("postgres://bob:", "s3cr3tpw9" + "@db.example/x"),
    "bearer": ("Authorization: " + "Bearer ", letters(40)),
    "password": ("pass" + "word = '", "hunter2hunter2'"),
}
"""Kind -> what may stay, and the part that must be gone."""


def whole(kind: str) -> str:
    """Return the secret as it would be met."""
    return "".join(SECRETS[kind])


def core(kind: str) -> str:
    """Return a piece of it that may be nowhere."""
    if kind == "mailchimp":
        return HEX[:32]
    return SECRETS[kind][1][:20].rstrip("=@'.").split("@")[0]
