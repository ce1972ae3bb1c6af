"""Secrets do not reach the disk, and ordinary text comes back unchanged."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from ulid import ULID

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.families import SPLITS
from memory.content import canonical, clean
from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Event, Step, Task, ToolCall, Trajectory
from memory.redact import redact, suspects
from memory.store import Store
from tests.memory import fake_secrets

BODY = "Zq9" * 12
SECRETS = {
    "openai": f"sk-proj-{BODY}",
    "anthropic": f"sk-ant-api03-{BODY}",
    "aws": "AKIA" + "ABCDEFGH12345678",
    "github": f"ghp_{BODY}",
    "gitlab": f"glpat-{BODY}",
    "google": "AIza" + "x" * 35,
    "slack": "xoxb-1234567890-abcdefghij",
    "huggingface": f"hf_{BODY}",
    "stripe": f"sk_live_{BODY}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "cut private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE",
    "bearer": f"Authorization: Bearer {BODY}",
    "bearer without its header": f"sent with Bearer {BODY} in front",
    "url": "postgres://bob:s3cr3t-pw@db.example/x",
    "assigned": 'client_secret = "qwerty-12345-uiop"',
    "environment": "OPENAI_API_KEY=abcdef1234567890abcdef",
    "json": '{"password": "hunter2hunter2"}',
    "netrc": "machine db.example login bob\npassword hunter2hunter2",
}
HARMLESS = [
    "Confirm with payments.confirm(token) before the 2nd call; the token is in the answer.",
    "token='tok-17' is what apps.mail.login returned",
    "page_token = response['next_page_token']",
    "password = contact.password  # from contacts.show(id=12)",
    "apps.mail.login(user, password=get_password('mail'))",
    "https://example.org/a:b@c and mail bob@example.org at 10:30",
    "the API key is needed; the bearer of the letter waits",
    "sk-learn 1.5, risk-free, basic training takes 20 minutes",
    "2026-11-20T10:00:00Z 01JD3Z0000000000000000000A " + "a1" * 32,
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_cut_out_of_the_text_around_it(name: str) -> None:
    cleaned = redact(f"before {SECRETS[name]} after")
    assert "[REDACTED:" in cleaned
    assert cleaned.startswith("before ")
    if name != "cut private key":
        assert cleaned.endswith(" after")
    for piece in (
        "Zq9Zq9",
        "s3cr3t",
        "qwerty",
        "hunter2",
        "MIIEow",
        "b3BlbnNz",
        "ABCDEFGH",
        "c2lnbmF0",
        "abcdef12",
        "xxxxx",
        "abcdefghij",
    ):
        assert piece not in cleaned


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("name", ["task-0", "risk-free-and-without-a-single-number", "disk-7", "Alaska-anchorage-1"])
def test_ordinary_names_make_nobody_look_closer(name: str) -> None:
    assert suspects(canonical({"task": {"id": name}, "steps": [name, f"do {name}"]})) == ()


@pytest.mark.parametrize("before", ["", "\n", "\t", "\x01", "\x1f", "\\", '"', "é ", "("])
def test_a_key_is_found_behind_whatever_json_writes_before_it(before: str) -> None:
    text = before + SECRETS["openai"]
    assert suspects(canonical([text]))
    assert clean([text]) == [f"{before}[REDACTED:api-key]"]


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_slips_through_the_quick_look_at_the_whole(name: str) -> None:
    value = {"steps": [{"reply": f"before {SECRETS[name]} after"}], "usage": {"prompt_tokens": 3, "passed": True}}
    assert suspects(canonical(value))
    assert "[REDACTED:" in clean(value)["steps"][0]["reply"]


@pytest.mark.parametrize("name", ["api_key", "Secret-Key", "clientsecret", "X_AUTH_TOKEN", "passwd", "passphrase"])
def test_no_secret_name_slips_through_either(name: str) -> None:
    assert clean([{"headers": {name: "tok-12345678"}}]) == [{"headers": {name: "[REDACTED:assigned-secret]"}}]


@pytest.mark.parametrize("kind", fake_secrets.SECRETS)
@pytest.mark.parametrize("around", ["it said {} and went on", '{{"answer": "{}"}}', "{}"])
def test_each_kind_is_cut_out_wherever_it_stands(kind: str, around: str) -> None:
    text = around.format(fake_secrets.whole(kind))
    cleaned = redact(text)
    assert fake_secrets.core(kind) not in cleaned
    assert "[REDACTED:" in cleaned
    assert suspects(text)
    assert redact(cleaned) == cleaned
    if around.startswith("it said"):
        assert cleaned.startswith("it said ")
        assert cleaned.endswith(" and went on")


def test_ids_hashes_and_base64_are_left_alone() -> None:
    rng = random.Random(0)
    for _ in range(500):
        data = rng.randbytes(64)
        hashes = [data.hex(), hashlib.sha1(data).hexdigest(), f"sha256:{data[:32].hex()}", f"tr-{data[:10].hex()}@3"]
        ids = [str(ULID.from_bytes(data[:16])), str(UUID(bytes=data[:16])), f"10:{data[0] % 60:02}:00.123456+00:00"]
        harmless = [*hashes, *ids, base64.b64encode(data).decode(), base64.b32encode(data).decode()]
        text = " ".join(harmless)
        assert redact(text) == text
        assert redact(canonical({"ids": harmless})) == canonical({"ids": harmless})


def test_the_documentation_and_the_office_are_left_alone(root: Path) -> None:
    texts = [page.read_text() for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md"))]
    for deployment in range(5):
        office = Office(OfficeConfig(deployment=deployment))
        tasks = [task for split in SPLITS for task in office.tasks(split)]
        texts += [task.model_dump_json() for task in tasks]
        texts += [action.text for task in tasks for action in office.gold(task)]
        texts += [office.describe("full"), office.describe("compact")]
    assert [text for text in texts if redact(text) != text] == []


def test_a_value_without_secrets_is_returned_as_it_is() -> None:
    value = {"task_id": "t-1", "usage": {"prompt_tokens": 3}, "checks": [{"passed": True, "key": "monkey"}]}
    assert clean(value) is value


def test_unstorable_characters_are_replaced_wherever_they_stand() -> None:
    assert clean({"a": ["x\ud800y", "n\x00"]}) == {"a": ["x?y", "n�"]}
    assert clean({1: "a", "b": "c"}) == {"1": "a", "b": "c"}


def test_redaction_is_stable(path: Path) -> None:
    once = {name: redact(secret) for name, secret in SECRETS.items()}
    assert {name: redact(text) for name, text in once.items()} == once


def test_no_secret_reaches_the_file_by_any_door(path: Path, add: Callable[..., DeltaOp]) -> None:
    secret = SECRETS["openai"]
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        store.commit("default", [add(f"use {secret}", reason=f"because {secret}")], actor="t", data={"note": secret})
        store.commit("default", [DeltaOp(op="ADD", kind="nonsense", payload={"content": secret})], actor="t")
        call = ToolCall(id="1", name="login", arguments={"api_key": "abcd-efgh-1234", "user": "bob"})
        step = Step(index=0, action=f"login({secret!r})", tool_calls=(call,))
        trajectory = Trajectory(task=Task(id="t", instruction=secret, metadata={"k": secret}), steps=(step,))
        store.add_trajectory(trajectory)
        store.append(Event(type="note", data={"nested": [{"deep": secret}]}))
        store.put_run("r", {"command": secret})
        stored = store.put_reply("k", {"text": f"key is {secret}", "token_ids": [1, 2, 3], "logprobs": [0.0]})
        assert (stored["token_ids"], stored["logprobs"]) == (None, None)
        found = store.trajectory(trajectory.id)
        assert found is not None
        assert found.steps[0].tool_calls[0].arguments == {"api_key": "[REDACTED:assigned-secret]", "user": "bob"}
    for file in path.parent.iterdir():
        assert BODY.encode() not in file.read_bytes(), file
