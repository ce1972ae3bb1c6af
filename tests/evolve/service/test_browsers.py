"""The pages of `evolve serve`: who logs in sees them, and changes what the token allows.

B1  without a token every page leads to the login; a token for one namespace, or without `read`, opens none
B2  `read` shows, `review` decides on the review page alone, `admin` changes; the journal names the token
B3  a form of another site changes nothing, and a revoked token closes the pages
B4  what one person did is told to that person
B5  a person looks at another namespace, and changes what is known there
"""

from __future__ import annotations

import asyncio
import re
from contextlib import closing
from dataclasses import dataclass
from math import inf
from threading import Event
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse

from evolve.config.file import load_config
from evolve.gates.review_queue import submit
from evolve.inspector.page_context import PageContext
from evolve.inspector.pages import live_page
from evolve.inspector.security import CSP
from evolve.inspector.server import unguarded
from evolve.loop.assembly import open_store
from evolve.service.access import ALIVE, BODY, Guard
from evolve.service.app import Doors
from evolve.service.browsers import Browsers
from memory.records import DeltaOp, Op
from memory.sqlite.sql import sqlite3
from tests.evolve.command import evolve
from tests.evolve.service.conftest import SECRET_RULE, Served

ORIGIN = "http://testserver"
PAGES = ("/", "/runs", "/playbook", "/review", "/snapshots", "/none")


@dataclass
class Person:
    """A browser of its own."""

    http: TestClient

    def log_in(self, token: str) -> int:
        """Send the form of the login; return the status that it comes to."""
        return self.post("/login", token=token)

    def post(self, path: str, *, origin: str = ORIGIN, **fields: str) -> int:
        """Send a form as a page of `origin` would; return the status."""
        answer = self.http.post(path, data=fields, headers={"origin": origin})
        return answer.status_code

    def page(self, path: str) -> str:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def csrf(self, path: str) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.page(path))
        assert found is not None, path
        return found[1]


def person(served: Served, name: str = "", *scopes: str) -> Person:
    """Return a browser; with a name it is logged in."""
    new = Person(TestClient(served.http.app))
    if name:
        assert new.log_in(served.client(name, *scopes, namespace="*").token) == 200
    return new


def test_pages_want_a_token_for_all_namespaces(served: Served) -> None:
    stranger = person(served)
    for path in PAGES:
        answer = stranger.http.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
    assert "Log in" in stranger.page("/runs")
    assert stranger.log_in("evolve_0_x") == 403
    assert stranger.log_in(served.client("tenant", "admin").token) == 403
    assert stranger.log_in(served.client("agent", "report", namespace="*").token) == 403
    assert stranger.http.get("/", follow_redirects=False).status_code == 303
    answer = stranger.http.get("/login")
    assert answer.headers["content-security-policy"] == CSP
    assert stranger.http.get("/static/app.css").status_code == 200


@pytest.mark.parametrize("host", ["x/static", "x/static/", "testserver/review", "127.0.0.1:8765/static/x", ""])
async def test_what_a_client_calls_this_host_opens_nothing(served: Served, host: str) -> None:
    for path in ("/playbook", "/static/../playbook", "//playbook"):
        assert await asked(served.http.app, path, host) != 200


async def asked(app: Any, path: str, host: str, **headers: str) -> int:
    """Return the status of a request as it comes over the wire, whatever stands in it."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(wire(path, host, **headers), receive, send)
    return int(sent[0]["status"])


def wire(path: str, host: str, **headers: str) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in {"host": host, **headers}.items() if value],
        "server": ("testserver", 80),
    }


def test_who_may_read_sees_and_changes_nothing(served: Served) -> None:
    reader = person(served, "reader", "read")
    assert "read-only" in reader.page("/playbook")
    assert 'method="post"' not in reader.page("/snapshots")
    admin = person(served, "admin", "admin")
    path = "/records/" + _record(served)
    assert reader.post(f"{path}/retire", csrf=admin.csrf(path)) == 403


def test_who_may_review_decides_and_does_no_more(served: Served) -> None:
    number = _waiting(served, "Greet zebras politely.")
    reviewer = person(served, "Bob", "read", "review")
    path = "/records/" + _record(served)
    assert 'method="post"' not in reviewer.page(path)
    csrf = reviewer.csrf("/review")
    assert reviewer.post(f"{path}/retire", csrf=csrf) == 403
    assert reviewer.post(f"/review/{number}/accept", csrf=csrf) == 200
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        (accepted,) = store.events(type="review.accepted")
    assert accepted.data["actor"] == "token:Bob"


def test_who_may_all_changes_and_is_named(served: Served) -> None:
    ann, eve = person(served, "Ann", "admin"), person(served, "Eve", "read")
    key = _record(served)
    assert ann.http.post(
        f"/records/{key}/retire", data={"csrf": ann.csrf(f"/records/{key}")}, headers={"origin": ORIGIN},
        follow_redirects=False,
    ).status_code == 303  # fmt: skip
    assert "Done. The journal has it" not in eve.page("/playbook")
    assert "Done. The journal has it" in ann.page("/playbook")
    assert "Done. The journal has it" not in ann.page("/playbook")
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        assert store.history(key)[-1].data["actor"] == "token:Ann"


def test_a_form_of_another_site_or_person_changes_nothing(served: Served) -> None:
    ann, bea = person(served, "Ann", "admin"), person(served, "Bea", "admin")
    path = "/records/" + _record(served)
    csrf = ann.csrf(path)
    assert ann.post(f"{path}/retire", csrf=csrf, origin="https://elsewhere.example") == 403
    assert ann.post(f"{path}/retire", csrf=bea.csrf(path)) == 403
    assert ann.post(f"{path}/retire", csrf=csrf) == 200


def test_a_person_goes_to_another_namespace(served: Served) -> None:
    ann, bea = person(served, "Ann", "admin"), person(served, "Bea", "read")
    assert SECRET_RULE not in ann.page("/playbook")
    assert ann.http.get("/namespace", params={"name": "b", "back": "playbook"}).status_code == 200
    record = re.search(r'href="(/records/[^"]+)"', ann.page("/playbook"))
    assert record is not None
    assert SECRET_RULE in ann.page(record[1])
    assert SECRET_RULE not in bea.page("/playbook")
    assert ann.post(f"{record[1]}/retire", csrf=ann.csrf(record[1]), why="old") == 200
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        (event,) = store.events(type="knowledge.remove", namespace="b")
    assert event.data["actor"] == "token:Ann"


def test_a_revoked_token_closes_the_pages_and_a_log_out_too(served: Served) -> None:
    ann, bea = person(served, "Ann", "read"), person(served, "Bea", "read")
    evolve(served.folder, "tokens", "revoke", "Ann")
    assert ann.http.get("/runs", follow_redirects=False).status_code == 303
    assert "Log out Bea" in bea.page("/login")
    assert bea.post("/logout") == 200
    assert bea.http.get("/runs", follow_redirects=False).status_code == 303


@pytest.mark.parametrize("ends", ["revoked", "logged out"])
async def test_an_open_page_is_told_nothing_once_its_token_is_revoked_or_logged_out(
    served: Served, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "SILENCE", inf)
    ann = person(served, "Ann", "read")
    begun, told, sent = asyncio.Event(), asyncio.Event(), list[Any]()

    async def receive() -> Any:
        await told.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            (told if begun.is_set() else begun).set()

    page = asyncio.ensure_future(served.http.app(wire("/live", "testserver", cookie=_cookie(ann)), receive, send))
    await asyncio.wait_for(begun.wait(), 60)
    if ends == "revoked":
        await asyncio.to_thread(evolve, served.folder, "tokens", "revoke", "Ann")
    else:
        await asyncio.to_thread(ann.post, "/logout")
        served.client("Bea", "read")  # the journal grows
    await page
    assert [message.get("body", b"") for message in sent[1:]] == [b"retry: 2000\n\n", b""]


async def test_an_open_page_looks_for_its_token_only_before_it_sends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "EVERY", 0.001)
    monkeypatch.setattr(live_page, "SILENCE", 0.004)
    looks, sent = iter([True, True, False]), list[bytes]()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    config = load_config(served.folder / "evolve.toml")
    with open_store(config, read_only=True) as store:
        pages = unguarded(PageContext(config, store, "key", may_look=lambda: next(looks)))
        await pages(wire("/live", "testserver"), receive, send)
    assert sent[1:] == [b"retry: 2000\n\n", *[b": still here\n\n"] * 2, b""]


@pytest.mark.parametrize("path", ["/api/v1/runs", "/runs"])
async def test_who_waits_for_the_journal_keeps_nobody_else_waiting(served: Served, path: str) -> None:
    config, token = load_config(served.folder / "evolve.toml"), served.client("Ann", "read", namespace="*").token
    held, answered = Event(), Event()
    with open_store(config, owner=False) as store:
        desk = PageContext(config, store, "key", read_only=True)
        app = Doors(Guard(PlainTextResponse("ok"), store, lambda _: None), Browsers(unguarded(desk), desk))
        ann = Person(TestClient(app))
        assert ann.log_in(token) == 200

        def hold() -> bool:
            with store.journal.lock:
                held.set()
                return answered.wait(20)

        holding = asyncio.ensure_future(asyncio.to_thread(hold))
        await asyncio.to_thread(held.wait)
        headers = {"authorization": f"Bearer {token}", "cookie": _cookie(ann)}
        waiting = asyncio.ensure_future(asked(app, path, "testserver", **headers))
        await asyncio.sleep(0)
        assert await asked(app, ALIVE, "testserver") == 200
        answered.set()
        assert (await holding, await waiting) == (True, 200)


def test_the_cookie_is_kept_from_scripts_and_from_plain_http_behind_tls(served: Served) -> None:
    token = served.client("Ann", "read", namespace="*").token
    for headers, secure in (({}, False), ({"x-forwarded-proto": "https"}, True)):
        answer = TestClient(served.http.app).post(
            "/login", data={"token": token}, headers={"origin": ORIGIN, **headers}, follow_redirects=False
        )
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert ("secure" in cookie) is secure


def test_a_form_that_is_none_or_too_large_is_refused(served: Served) -> None:
    stranger = person(served)
    for body, status in ((b"nothing of the kind", 400), (b"x" * (BODY + 1), 413)):
        headers = {"origin": ORIGIN, "content-type": "multipart/form-data; boundary=x"}
        answer = stranger.http.post("/login", content=body, headers=headers)
        assert answer.status_code == status, answer.text


def _cookie(person: Person) -> str:
    return "; ".join(f"{name}={value}" for name, value in person.http.cookies.items())


def _record(served: Served) -> str:
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        return store.records("default")[0].id


def _waiting(served: Served, content: str) -> int:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        submit(store, "default", "run", [DeltaOp(op=Op.ADD, payload={"content": content})])
        return store.events(type="review.pending")[0].seq


def test_pages_say_that_the_journal_does_not_answer(served: Served) -> None:
    ann = person(served, "ann", "read")
    with closing(sqlite3.connect(served.folder / ".evolve" / "evolve.db")) as conn:
        conn.execute("ALTER TABLE events RENAME TO away")
        answer = ann.http.get("/runs")
        conn.execute("ALTER TABLE away RENAME TO events")
    assert (answer.status_code, "no such table: events" in answer.text) == (503, True)
    assert ann.page("/runs")
