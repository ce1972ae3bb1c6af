"""Claim inspect_3: what comes from outside stays text, and requests from outside stay outside.

One hundred payloads stand in task text, actions, observations, checks, reflections, bullets, skills' code, waiting
changes and names. Chromium opens every page that shows them and the exported file; a payload that runs leaves a mark, a
dialog, or a request to another host. Then every form is sent as another site would; as the control, one is sent as the
page itself would. Addresses that are not there are asked for as they stand, `..` included, with the key: none of them
may be turned away for want of one. `--quick`: a fifth of the records are opened.
"""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Page

from benchmarks.browser import browsing, chromium, inspector
from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.walk import MORE, PAGES
from benchmarks.xss import PAYLOADS, ROLLOUTS, TRAINING, WATCH, plant

FORMS = (
    *("/records/{}/retire", "/records/{}/restore", "/records/{}/edit", "/snapshots/rollback", "/policies/promote"),
    *("/policies/rollback", "/review/1/accept", "/review/1/reject", "/review/1/edit", "/review/1/defer"),
)
ORIGINS = ("https://evil.example", "null", "", "http://127.0.0.1:1", "http://localhost.evil.example")
STRANGE = (
    *("/runs/nosuch", "/episodes/../../etc/passwd", "/records/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/static/../server.py"),
    *("/static/%2e%2e/%2e%2e/config.py", "/training/..%2f..%2f..%2fetc%2fpasswd", "/verdicts/-1", "/verdicts/9e9"),
    *("/diff?a=../../x", "/playbook?page=-1", "/playbook?order=;drop", "/nosuch", "/review/x/accept", "/runs/%00"),
)


def opened(page: Page, home: str, every: int) -> tuple[int, int, list[str]]:
    """Open all pages with planted text; return how many, how often one ran, and which held a payload as text."""
    count, ran, shown = 0, 0, set[str]()
    paths = [*PAGES, *MORE, "/runs/run-planted", *(f"/playbook?page={at}&status=all" for at in (1, 2))]
    paths += [f"/episodes/planted-{at}" for at in range(0, len(PAYLOADS), every)]
    paths += ["/skills?page=2", "/notebook", "/retrieval?q=" + "rule"]
    paths += [f"/training/{TRAINING}", f"/rollouts/{TRAINING}", *ROLLOUTS[::every]]
    page.goto(home + "/playbook")
    for listing in ("/playbook?page=1", "/playbook?page=2", "/skills?page=1", "/skills?page=2"):
        page.goto(home + listing)
        links = page.locator('main a[href^="/records/"]').evaluate_all("all => all.map(a => a.getAttribute('href'))")
        paths += links[::every]
    for path in dict.fromkeys(paths):
        page.goto(home + path)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        page.wait_for_timeout(30)
        count += 1
        ran += int(page.evaluate("window.ran || 0"))
        text = page.locator("body").inner_text()
        shown |= {payload for payload in PAYLOADS if payload[:60] in text}
    return count, ran, sorted(shown)


def refused(address: str, record: str) -> tuple[int, int]:
    """Send every form from elsewhere, with the cookie that a browser would send; return (sent, refused)."""
    parts = urlsplit(address)
    home = f"{parts.scheme}://{parts.netloc}"
    sent = turned_away = 0
    with httpx.Client(base_url=home) as client:
        client.get("/", params={"key": parts.query.partition("=")[2]})
        for form in FORMS:
            for origin in ORIGINS:
                headers = {"origin": origin} if origin else {}
                answer = client.post(form.format(record), data={"csrf": "guessed", "text": "x"}, headers=headers)
                sent, turned_away = sent + 1, turned_away + (answer.status_code == 403)
            answer = client.post(form.format(record), data={"csrf": "guessed"}, headers={"origin": home})
            sent, turned_away = sent + 1, turned_away + (answer.status_code == 403)
    return sent, turned_away


def accepted(address: str, record: str) -> bool:
    """Send a form as the page itself does, with the key, its origin and its token; tell whether it did its work."""
    parts = urlsplit(address)
    home = f"{parts.scheme}://{parts.netloc}"
    with httpx.Client(base_url=home) as client:
        client.get("/", params={"key": parts.query.partition("=")[2]})
        page = f"/records/{record}"
        (token, *_) = re.findall(r'name="csrf" value="([^"]+)"', client.get(page).text)
        answer = client.post(f"{page}/retire", data={"csrf": token}, headers={"origin": home})
        return answer.status_code == 303 and f"{page}/restore" in client.get(page).text


def strange(address: str) -> tuple[int, int]:
    """Ask for what is not there; return (asked, answered with a clean 4xx that is not about the key)."""
    parts = urlsplit(address)
    cookie = httpx.get(address).headers["set-cookie"].partition(";")[0]
    clean = 0
    for path in STRANGE:
        status, text = as_it_stands(parts.netloc, path, cookie)
        clean += 400 <= status < 500 and status != 403 and "Traceback" not in text and "root:" not in text
    return len(STRANGE), clean


def as_it_stands(netloc: str, path: str, cookie: str) -> tuple[int, str]:
    """Return the status and the text of the answer to a path that is sent as it stands: httpx takes `..` out of it."""
    with closing(HTTPConnection(netloc, timeout=60)) as connection:
        connection.request("GET", path, headers={"cookie": cookie})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def measured(root: Path, every: int) -> list[Row]:
    """Return the figures."""
    plant(root)
    (root / "evolve.toml").write_text('[policy]\nname = "pocket"\n[memory]\nindex = "exact"\n')
    with inspector(root) as address:
        with browsing(address) as (page, seen):

            def note(dialog: Any) -> None:
                seen.dialogs.append(dialog.message)
                dialog.dismiss()

            page.on("dialog", note)
            page.add_init_script(WATCH)
            home = f"http://{urlsplit(address).netloc}"
            pages, ran, shown = opened(page, home, every)
            page.goto(home + "/playbook")
            link = page.locator('main a[href^="/records/"]').first.get_attribute("href") or ""
        sent, away = refused(address, link.rpartition("/")[2])
        let_in = accepted(address, link.rpartition("/")[2])
        asked, clean = strange(address)
    for text in (*seen.complaints, *seen.foreign, *seen.dialogs):
        print(text)
    return [
        Row("payloads that ran", ran + len(seen.dialogs), exactly(0), n=len(PAYLOADS)),
        Row("payloads that a page was seen to show as text", len(shown), at_least(len(PAYLOADS) // every), n=pages),
        Row("requests to another host", len(seen.foreign), exactly(0), n=pages),
        Row("scripts that only the policy of the page stopped", len(seen.complaints), exactly(0), n=pages),
        Row("forms from elsewhere that were refused, %", 100 * away / sent, exactly(100), n=sent),
        Row("the page's own form that is accepted (control)", int(let_in), exactly(1)),
        Row("addresses that are not there: a clean 4xx, %", 100 * clean / asked, exactly(100), n=asked),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("inspect_3_untrusted", __doc__)
    if chromium() is None:
        raise SystemExit("no Chromium: install Debian's `chromium`, or name one in EVOLVE_CHROMIUM")
    with folder() as root:
        claim.conclude(measured(root, 5 if claim.quick else 1))


if __name__ == "__main__":
    main()
