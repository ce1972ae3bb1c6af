"""Who is let in, and what learned text can do: nothing.

S1  without the key there is no page; the key comes once in the address and is then a cookie that scripts cannot read
S2  another host name, another origin, another site: refused
S3  a form without our token is refused, and every form when read-only; nothing is changed then
S4  every answer forbids inline scripts, foreign sources and frames
S5  text from outside is escaped wherever it is shown
S6  what a form says never becomes an option of a command
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from memory.records import DeltaOp, Op, Status
from tests.evolve.inspector.conftest import CHANGES, HOST, Visitor, opened

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "evaluated-{{ 7 * 7 }}",
    "javascript:alert(1)",
)


def test_without_the_key_there_is_no_page(visitor: Visitor) -> None:
    client = visitor.client
    client.cookies.clear()
    for path in ("/", "/playbook", "/static/app.js", "/live"):
        assert client.get(path).status_code == 403
        assert client.get(path, params={"key": "wrong"}).status_code == 403
    arrived = client.get("/runs", params={"key": visitor.desk.key, "page": 1}, follow_redirects=False)
    assert arrived.headers["location"] == "/runs?page=1"
    cookie = arrived.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example"])
def test_the_key_leads_nowhere_else(path: str, visitor: Visitor) -> None:
    answer = visitor.client.get(f"{HOST}{path}?key={visitor.desk.key}", follow_redirects=False)
    assert not answer.headers.get("location", "/x").startswith(("//", "/\\"))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example:8765", ""])
def test_another_name_is_refused(host: str, visitor: Visitor) -> None:
    assert visitor.client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": HOST, "sec-fetch-site": "cross-site"},
        {"origin": HOST, "sec-fetch-site": "same-site"},
    ],
)
def test_forms_from_elsewhere_are_refused(headers: dict[str, str], visitor: Visitor) -> None:
    record = visitor.first("/playbook", "records")
    answer = visitor.client.post(f"{record}/retire", data={"csrf": visitor.desk.csrf}, headers=headers)
    assert answer.status_code == 403
    assert "retired" not in visitor.text(record).split("History")[0]


@pytest.mark.parametrize("token", ["", "wrong", None])
def test_a_form_needs_our_token(token: str | None, visitor: Visitor) -> None:
    record = visitor.first("/playbook", "records")
    fields = {} if token is None else {"csrf": token}
    assert visitor.client.post(f"{record}/retire", data=fields, headers=CHANGES).status_code == 403


def test_read_only_changes_nothing(learned: Path) -> None:
    with opened(learned, read_only=True) as visitor:
        record = visitor.first("/playbook", "records")
        version = visitor.desk.store.version(visitor.desk.namespace)
        for path in (f"{record}/retire", f"{record}/restore", "/snapshots/rollback", "/policies/rollback"):
            visitor.does(path, 403)
        assert '<button class="danger"' not in visitor.text(record) + visitor.text("/snapshots")
        assert visitor.desk.store.version(visitor.desk.namespace) == version


@pytest.mark.parametrize("path", ["/", "/nosuch", "/static/app.js", "/playbook?page=0"])
def test_every_answer_forbids_what_is_not_ours(path: str, visitor: Visitor) -> None:
    headers = visitor.client.get(path).headers
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_no_template_holds_inline_code(root: Path) -> None:
    for file in (root / "evolve" / "inspector" / "templates").glob("*.html"):
        text = file.read_text()
        assert "|safe" not in text.replace(" ", ""), file
        assert " style=" not in text, file
        assert not any(f" on{event}=" in text for event in ("click", "load", "error", "submit")), file


@pytest.mark.parametrize("payload", PAYLOADS)
def test_learned_text_is_escaped(payload: str, visitor: Visitor) -> None:
    store = visitor.desk.store
    op = DeltaOp(op=Op.ADD, payload={"content": payload, "section": payload}, status=Status.ACTIVE, pinned=True)
    commit = store.commit(visitor.desk.namespace, [op], actor=payload)
    record = f"/records/{commit.results[0].record_id}"
    for path in ("/", "/playbook", record, "/prompt", "/retrieval", "/snapshots"):
        page = visitor.client.get(path, params={"q": payload} if path in ("/playbook", "/retrieval") else None).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "evaluated-49" not in page
        assert 'href="javascript:' not in page


def test_a_version_is_no_option(visitor: Visitor) -> None:
    assert "expected one of" in visitor.does("/policies/promote", 400, version="--unmeasured")
    visitor.does("/policies/delete", 400)


def test_a_page_runs_nothing_that_a_journal_names(visitor: Visitor, tmp_path: Path) -> None:
    store, mark = visitor.desk.store, tmp_path / "ran"
    (episode, *_) = store.trajectories()
    run = store.get_run(episode.run_id) or {}
    planted = {"name": "subprocess:Popen", "args": ["touch", str(mark)]}
    store.put_run("planted", run | {"config": run["config"] | {"environment": planted}})
    store.add_trajectory(episode.model_copy(update={"id": "planted-1", "run_id": "planted"}))
    assert "runs no code that a journal names" in visitor.text("/episodes/planted-1")
    assert not mark.exists()


def test_what_this_version_does_not_read_is_said(visitor: Visitor) -> None:
    store = visitor.desk.store
    (episode, *_) = store.trajectories()
    run = store.get_run(episode.run_id) or {}
    store.put_run("old", run | {"config": run["config"] | {"run": {"gone_key": 1}}})
    store.add_trajectory(episode.model_copy(update={"id": "old-1", "run_id": "old"}))
    assert "this version does not read" in visitor.text("/episodes/old-1")


@pytest.mark.parametrize("other", ["p[0]=1", 'a={"x":1}', "a=b c", "a/b=1", "evolve_1=wrong"])
def test_cookies_of_others_do_not_lock_anybody_out(other: str, visitor: Visitor) -> None:
    own = f"evolve_8765={visitor.desk.key}"
    visitor.client.cookies.clear()
    assert visitor.client.get("/", headers={"cookie": f"{other}; {own}"}).status_code == 200
    assert visitor.client.get("/", headers={"cookie": f"{own}; {other}"}).status_code == 200
    assert visitor.client.get("/", headers={"cookie": other}).status_code == 403


def test_a_ticket_is_spent_by_the_first_who_brings_it(visitor: Visitor) -> None:
    visitor.desk.tickets.add("once")
    visitor.client.cookies.clear()
    assert visitor.client.get("/", params={"key": "once"}).status_code == 200
    visitor.client.cookies.clear()
    assert visitor.client.get("/", params={"key": "once"}).status_code == 403


def test_a_bug_is_answered_under_the_same_rules(learned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(learned) as visitor:
        monkeypatch.setattr(visitor.desk, "config", None)
        quiet = TestClient(
            visitor.client.app, base_url=HOST, raise_server_exceptions=False, cookies=visitor.client.cookies
        )
        answer = quiet.get("/review")
    assert answer.status_code == 500
    assert "script-src 'self';" in answer.headers["content-security-policy"]
    assert "Traceback" not in answer.text
