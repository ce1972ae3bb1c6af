"""Made-up secrets of 116 kinds in the shape of the real ones, built from parts so that no scanner takes them for real.

Shapes are from vendors' public documentation. Each entry is a text around one secret.
"""

from __future__ import annotations

import base64
import random

_RNG = random.Random(17)
_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _some(count: int, letters: str = _ALNUM) -> str:
    """Return random characters; the last is a digit."""
    return "".join(_RNG.choice(letters) for _ in range(count - 1)) + "7"


def _hex(count: int) -> str:
    return _some(count, "0123456789abcdef")


def _low(count: int) -> str:
    return _some(count, "abcdefghijklmnopqrstuvwxyz0123456789")


def _uuid() -> str:
    return "-".join(_hex(n) for n in (8, 4, 4, 4, 12))


def _jwt() -> str:
    parts = (b'{"alg":"HS256"}', b'{"sub":"12345678"}')
    return ".".join([*(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts), _some(43)])


def _pem(kind: str) -> str:
    return f"-----BEGIN {kind}PRIVATE " + f"KEY-----\n{_some(64)}\n{_some(64)}\n-----END {kind}PRIVATE " + "KEY-----"


# prefix -> (tail, what may stand around it); the token is prefix + tail
PREFIXED = {
    "aws access key": ("AK" + "IA", _some(16, _ALNUM[:26])),
    "aws session key": ("AS" + "IA", _some(16, _ALNUM[:26])),
    "google api key": ("AI" + "za", _some(35)),
    "google oauth token": ("ya" + "29.", _some(60)),
    "google client secret": ("GOC" + "SPX-", _some(28)),
    "google refresh token": ("1//" + "0", _some(60)),
    "github classic": ("gh" + "p_", _some(36)),
    "github oauth": ("gh" + "o_", _some(36)),
    "github app": ("gh" + "s_", _some(36)),
    "github fine grained": ("github" + "_pat_", _some(82)),
    "gitlab personal": ("gl" + "pat-", _some(20)),
    "gitlab runner": ("GR13" + "48941", _some(20)),
    "gitlab deploy": ("gl" + "dt-", _some(20)),
    "slack bot": ("xo" + "xb-", "123456789012-" + _some(24)),
    "slack app": ("xa" + "pp-", "1-A0B1-" + _some(40)),
    "stripe live": ("sk" + "_live_", _some(24)),
    "stripe restricted": ("rk" + "_live_", _some(24)),
    "stripe webhook": ("wh" + "sec_", _some(32)),
    "square": ("sq0" + "atp-", _some(22)),
    "square new": ("EA" + "AA", _some(60)),
    "openai": ("s" + "k-", _some(48)),
    "openai project": ("sk-" + "proj-", _some(60)),
    "anthropic": ("sk-" + "ant-api03-", _some(90)),
    "openrouter": ("sk-" + "or-v1-", _hex(64)),
    "hugging face": ("h" + "f_", _some(34)),
    "replicate": ("r" + "8_", _some(37)),
    "groq": ("gs" + "k_", _some(52)),
    "xai": ("xa" + "i-", _some(80)),
    "perplexity": ("pp" + "lx-", _some(48)),
    "fireworks": ("f" + "w_", _some(24)),
    "pinecone": ("pc" + "sk_", _some(60)),
    "langsmith": ("lsv2" + "_pt_", _hex(32)),
    "npm": ("np" + "m_", _some(36)),
    "pypi": ("py" + "pi-", _some(90)),
    "rubygems": ("ruby" + "gems_", _hex(48)),
    "docker hub": ("dckr" + "_pat_", _some(27)),
    "terraform cloud": (_some(14) + ".atlas" + "v1.", _some(64)),
    "vault": ("hv" + "s.", _some(90)),
    "doppler": ("dp." + "pt.", _some(43)),
    "databricks": ("da" + "pi", _hex(32)),
    "new relic": ("NR" + "AK-", _some(27, _ALNUM[:26])),
    "grafana service": ("gl" + "sa_", _some(32) + "_" + _hex(8)),
    "grafana cloud": ("gl" + "c_", _some(60)),
    "sentry": ("sn" + "trys_", _some(60)),
    "linear": ("lin_" + "api_", _some(40)),
    "notion": ("nt" + "n_", _some(46)),
    "atlassian": ("ATA" + "TT3", _some(180)),
    "shopify": ("sh" + "pat_", _hex(32)),
    "digitalocean": ("dop" + "_v1_", _hex(64)),
    "heroku": ("HR" + "KU-", _some(60)),
    "netlify": ("nf" + "p_", _some(36)),
    "supabase": ("sb" + "p_", _hex(40)),
    "planetscale": ("pscale" + "_tkn_", _some(43)),
    "postman": ("PM" + "AK-", _hex(24) + "-" + _hex(34)),
    "figma": ("fi" + "gd_", _some(40)),
    "airtable": ("pa" + "t" + _some(14) + ".", _hex(64)),
    "hubspot": ("pat-" + "na1-", _uuid()),
    "tailscale": ("ts" + "key-auth-", _some(16) + "-" + _some(32)),
    "pulumi": ("pu" + "l-", _hex(40)),
    "razorpay": ("rzp" + "_live_", _some(14)),
    "flutterwave": ("FLW" + "SECK-", _some(32) + "-X"),
    "contentful": ("CF" + "PAT-", _some(43)),
    "buildkite": ("bk" + "ua_", _low(40)),
    "circleci": ("CCI" + "PAT_", _some(22) + "_" + _hex(40)),
    "sonar": ("sq" + "u_", _hex(40)),
    "twilio": ("S" + "K", _hex(32)),
    "sendgrid": ("S" + "G.", _some(22) + "." + _some(43)),
    "mailgun": ("ke" + "y-", _hex(32)),
    "mailchimp": (_hex(32), "-us12"),
    "easypost": ("EZ" + "AK", _some(54)),
    "shippo": ("shippo" + "_live_", _hex(40)),
    "plaid": ("access-" + "production-", _uuid()),
    "age": ("AGE-SECRET-" + "KEY-1", _some(58, _ALNUM[:26])),
    "dropbox": ("s" + "l.", _some(130)),
    "braintree": ("access_token$" + "production$", _low(16) + "$" + _hex(32)),
    "artifactory": ("AK" + "C", _some(64)),
    "telegram": ("123456789:", _some(35)),
    "discord": ("M" + _some(23) + "." + _some(6) + ".", _some(27)),
    "mapbox": ("s" + "k.eyJ", _some(60) + "." + _some(22)),
}

_SECRET = _some(24)
AROUND = {
    "rsa key": (_pem("RSA "), ""),
    "openssh key": (_pem("OPENSSH "), ""),
    "service account": ('"private_key": "' + _pem("").replace("\n", "\\n") + '"', ""),
    "pgp key": ("-----BEGIN PGP PRIVATE " + f"KEY BLOCK-----\n{_some(64)}\n-----END PGP", ""),
    "json web token": (f"token {_jwt()} here", "token"),
    "bearer": (f"Authorization: Bearer {_SECRET}", "Authorization"),
    "basic": (f"Authorization: Basic {base64.b64encode(b'ann:secret1234').decode()}", "Authorization"),
    "authorization token": (f"Authorization: token {_SECRET}", "Authorization"),
    "api key header": (f"X-API-Key: {_SECRET}", "X-API-Key"),
    "private token header": (f"PRIVATE-TOKEN: {_SECRET}", "PRIVATE-TOKEN"),
    "url password": (f"postgres://ann:{_SECRET}@db/x", "postgres://ann"),
    "redis url": (f"redis://:{_SECRET}@cache:6379", "redis://"),
    "mongodb url": (f"mongodb+srv://ann:{_SECRET}@cluster/x", "mongodb+srv"),
    "jdbc": (f"jdbc:sqlserver://db;user=ann;password={_SECRET};encrypt=true", "user=ann"),
    "odbc": (f"Server=db;Uid=ann;Pwd={_SECRET[:9]};", "Uid=ann"),
    "azure storage": (f"AccountName=x;AccountKey={_some(86)}==;", "AccountName"),
    "service bus": (f"Endpoint=sb://x/;SharedAccessKeyName=r;SharedAccessKey={_some(43)}=", "Endpoint"),
    "azure sas": (f"https://x.blob/y?sv=2024&sig={_some(43)}%3D", "https"),
    "azure client secret": (f"{_some(3)}8Q~{_some(34)}", ""),
    "aws secret": (f"aws_secret_access_key = {_some(40)}", "aws_secret_access_key"),
    "api key": (f'api_key = "{_SECRET}"', "api_key"),
    "client secret": (f"client_secret: {_SECRET}", "client_secret"),
    "webhook secret": (f"WEBHOOK_SECRET={_SECRET}", "WEBHOOK_SECRET"),
    "signing key": (f"SIGNING_KEY={_SECRET}", "SIGNING_KEY"),
    "bot token": (f"BOT_TOKEN={_SECRET}", "BOT_TOKEN"),
    "password": (f"password: {_SECRET}", "password"),
    "flag": (f"mysql --password {_SECRET}", "mysql"),
    "netrc": (f"machine x login ann password {_SECRET}", "machine x"),
    "query": (f"https://x/y?a=1&access_token={_SECRET}", "https://x/y"),
    "otpauth": (f"otpauth://totp/x?secret={_some(32, _ALNUM[:26])}", "otpauth"),
    "slack hook": (f"https://hooks.slack.com/services/{_some(9)}/{_some(11)}/{_some(24)}", "hooks"),
    "discord hook": (f"https://discord.com/api/webhooks/123456789012345678/{_some(68)}", "discord"),
    "docker auth": (f'"auth": "{base64.b64encode(b"ann:secret12345").decode()}"', "auth"),
    "shadow": (f"root:$6${_some(8)}${_some(86)}:19000", "root"),
    "bcrypt": (f"ann:$2b$12${_some(53)}", "ann"),
    "session cookie": (f"Cookie: sessionid={_SECRET}{_SECRET}", "Cookie"),
    "npmrc": (f"//registry/:_authToken={_SECRET}", "registry"),
}

HONEST = (
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 69e46c8b1f2d3a4c5e6f708192a3b4c5d6e7f809 of 22 Nov",
    "task 6ba7b810-9dad-11d1-80b4-00c04fd430c8 and id m12",
    "apps.payments.send(to='c5', amount=1250, memo='rent 11')",
    "the token is asked for first: confirm(token) returns it",
    "next_page_token=abc123def456ghi789 and page=2",
    "key-value store; sk-learn, hf_hub and pat-a-cake are no keys",
    "password must have 8 characters; api_key is a parameter",
    "def login(password: str) -> None: ...",
    'the field password = "required" says so, and api_key = "see below" as well',
    "password = required, api_key = none",
    "password = vault2[slot], api_key = keys.first7, passwd = load1(name)",
    "SKU SK1234, EAAA is a grade, s.l. is no address",
    "secret santa at 12:30, the signature of f(x: int) -> str",
    "https://docs.example/guide?page=12&lang=en",
    "the s" + "k_test folder holds tests",
)
