"""Pages of a workspace with several namespaces.

N1  one namespace: nothing to choose; several: the header names them, and the pages show the configured one first
N2  a chosen namespace is shown on all pages of this browser, and of no other
N3  a change is made in the namespace that the page showed: a form of another one is refused, and changes nothing
N4  an unknown namespace is refused; one that is gone from the cookie's workspace is passed over
N5  a page that follows the journal is loaded whole again where another namespace was chosen meanwhile
"""

from __future__ import annotations

import re
from pathlib import Path

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op, Status
from tests.evolve.command import settings
from tests.evolve.inspector.conftest import CHANGES, Visitor, opened

RULE = "Water the ferns of the second floor on Mondays."
PLACE = "team b/second floor"
"""A name that a cookie and an address have to quote."""


def moved_in(visitor: Visitor) -> str:
    """Give the workspace a second namespace that knows one rule; return its id."""
    commit = visitor.desk.store.commit(PLACE, [DeltaOp(op=Op.ADD, payload={"content": RULE})], actor="operator")
    return commit.applied[0].record_id or ""


def choose(visitor: Visitor, name: str, back: str = "playbook") -> str:
    """Send the form of the header; return the page that follows."""
    answer = visitor.client.get("/namespace", params={"name": name, "back": back})
    assert answer.status_code == 200, answer.text
    assert answer.url.path == ("/" if back == "overview" else f"/{back}")
    return answer.text


def _status(visitor: Visitor, record: str) -> Status:
    found = visitor.desk.store.get(record)
    assert found is not None
    return found.status


def csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_there_is_something_to_choose_where_there_are_several(visitor: Visitor) -> None:
    assert 'action="/namespace"' not in visitor.text("/")
    moved_in(visitor)
    page = visitor.text("/playbook")
    assert re.findall(r"<option( selected)?>([^<]+)</option>", page.split("</form>")[0]) == [
        (" selected", "default"),
        ("", PLACE),
    ]
    assert RULE not in page


def test_a_chosen_namespace_is_shown_on_every_page(visitor: Visitor) -> None:
    mine = visitor.text("/playbook")
    moved_in(visitor)
    page = choose(visitor, PLACE)
    assert f"<option selected>{PLACE}</option>" in page
    assert RULE in page
    assert RULE in visitor.text("/")
    assert RULE in visitor.text("/retrieval?q=water+the+ferns")
    another = visitor.client.__class__(visitor.client.app, base_url=str(visitor.client.base_url))
    another.get("/", params={"key": visitor.desk.key})
    assert RULE not in another.get("/playbook").text
    back = choose(visitor, "default")
    assert RULE not in back
    assert re.findall(r'href="(/records/[^"]+)"', back) == re.findall(r'href="(/records/[^"]+)"', mine)


def test_a_form_changes_the_namespace_that_its_page_showed(visitor: Visitor) -> None:
    store = visitor.desk.store
    record = moved_in(visitor)
    before = store.version("default")
    page = choose(visitor, PLACE)
    ours = csrf(visitor.text(f"/records/{record}"))
    choose(visitor, "default")
    answer = visitor.client.post(f"/records/{record}/retire", data={"csrf": ours}, headers=CHANGES)
    assert answer.status_code == 403
    assert "load the page again" in answer.text
    assert _status(visitor, record) is Status.PROVISIONAL
    choose(visitor, PLACE)
    answer = visitor.client.post(f"/records/{record}/retire", data={"csrf": ours, "why": "dry"}, headers=CHANGES)
    assert answer.status_code == 200, page
    assert _status(visitor, record) is Status.RETIRED
    assert store.version("default") == before


def test_the_configured_namespace_can_be_gone_back_to_while_it_is_empty(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    open_store(load_config(folder / "evolve.toml")).close()
    with opened(folder) as visitor:
        moved_in(visitor)
        assert "<option>default</option>" in choose(visitor, PLACE)
        assert "<option selected>default</option>" in choose(visitor, "default")


def test_a_page_that_follows_the_journal_is_loaded_again_after_another_choice(visitor: Visitor) -> None:
    moved_in(visitor)
    (told,) = set(re.findall(r'id="live" hx-headers=\'{"evolve-page": "([0-9a-f]+)"}\'', visitor.text("/playbook")))
    follows = {"hx-request": "true", "evolve-page": told}
    assert 'id="live"' in visitor.client.get("/playbook", headers=follows).text
    choose(visitor, PLACE)
    answer = visitor.client.get("/playbook", headers=follows)
    assert (answer.headers["hx-refresh"], answer.text) == ("true", "")


def test_an_unknown_namespace_is_refused(visitor: Visitor) -> None:
    moved_in(visitor)
    answer = visitor.client.get("/namespace", params={"name": "team c"})
    assert answer.status_code == 404
    assert PLACE in answer.text
    choose(visitor, PLACE, "overview")
    (cookie,) = [each for each in visitor.client.cookies.jar if each.name.startswith("evolve_namespace")]
    visitor.client.cookies.set(cookie.name, "gone", domain=cookie.domain)
    assert "<option selected>default</option>" in visitor.text("/playbook")
