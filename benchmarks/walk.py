"""A walk through the inspector as a person would take it: every page, a live update, a review, a rollback."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page

from benchmarks.browser import Seen, browsing, inspector
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from memory.records import Trajectory

SCRIPTED = """\
[policy]
name = "evolve.environments.office.worker:worker"
model = "3"
[environment]
name = "office"
deployment = 3
max_steps = 16
[memory]
index = "exact"
[playbook]
reflector = "rules"
curator = "direct"
"""
"""Settings of an office whose scripted worker learns without a model."""
PAGES = ("/", "/runs", "/playbook", "/notebook", "/skills", "/review", "/retrieval", "/policies", "/training")
MORE = ("/exemplars", "/prompt", "/snapshots", "/retrieval?q=send+a+mail", "/playbook?status=all&order=shown&q=mail")


@dataclass
class Walked:
    """What was seen on the way."""

    pages: int
    seen: Seen
    live: bool = False
    """A page showed what another process wrote, without being loaded again."""
    accepted: tuple[str, int] = ("", 0)
    """Id and version of the record that a review by keyboard made."""
    injected: int = 0
    """Episodes of the next run whose prompt held it."""
    rolled_back: bool = False


def command(folder: Path, *arguments: str) -> None:
    """Run an `evolve` command in a workspace, as a process of its own. Raises when it fails."""
    line = [sys.executable, "-m", "evolve.cli.main", "--config", str(folder / "evolve.toml"), *arguments]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)


def walk(folder: Path, *, learning: tuple[str, ...]) -> Walked:
    """Walk through the inspector of a workspace with a run in it; with options `learning` a run finds something new."""
    with inspector(folder) as address, browsing(address) as (page, seen):
        home = f"http://{urlsplit(address).netloc}"
        walked = Walked(0, seen)
        for path in (*PAGES, *MORE, *_found(page, home)):
            page.goto(home + path)
            page.wait_for_selector("h1")
            walked.pages += 1
        walked.live = _live(page, home, folder)
        walked.accepted = _reviewed(page, home, folder, learning)
        walked.injected = _injected_after(folder, walked.accepted, learning)
        walked.rolled_back = _rolled_back(page, home, folder)
    return walked


def _found(page: Page, home: str) -> list[str]:
    """Return a page of each kind that a list leads to."""
    found: list[str] = []
    for path, kinds in (("/runs", ("runs",)), ("/playbook", ("records",)), ("/snapshots", ("diff",))):
        page.goto(home + path)
        found += [link for kind in kinds if (link := _link(page, kind))]
    for path in tuple(found):
        page.goto(home + path)
        found += [link for kind in ("episodes", "verdicts") if (link := _link(page, kind))]
    return list(dict.fromkeys(found))


def _link(page: Page, kind: str) -> str:
    place = page.locator(f'main a[href^="/{kind}/"], main a[href^="/{kind}?"]').first
    return (place.get_attribute("href") or "") if place.count() else ""


def _live(page: Page, home: str, folder: Path) -> bool:
    """Tell whether the open list of runs shows a run that begins elsewhere."""
    page.goto(home + "/runs")
    rows = page.locator("main tbody tr")
    before = rows.count()
    page.evaluate("window.sameDocument = true")
    command(folder, "run", "--limit", "4")
    page.wait_for_function("count => document.querySelectorAll('main tbody tr').length > count", arg=before)
    return bool(page.evaluate("window.sameDocument === true"))


def _reviewed(page: Page, home: str, folder: Path, learning: tuple[str, ...]) -> tuple[str, int]:
    """Accept by keyboard the first waiting change that states something; return the record and version it made."""
    command(folder, "run", *learning, "--review")
    before = _versions(folder)
    page.goto(home + "/review")
    page.wait_for_selector("article.change")
    titles = page.locator("article.change h2").all_inner_texts()
    states = next(at for at, title in enumerate(titles) if title.startswith(("ADD", "EDIT", "SUPERSEDE", "MERGE")))
    for _ in range(states):  # the first has the focus
        page.keyboard.press("j")
    page.keyboard.press("a")
    page.wait_for_selector(".said")
    return next(iter(_versions(folder) - before), ("", 0))


def _versions(folder: Path) -> set[tuple[str, int]]:
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        return {(record.id, record.version) for record in store.view("default").records()}


def _injected_after(folder: Path, record: tuple[str, int], learning: tuple[str, ...]) -> int:
    """Run again; return in how many of the new episodes this version of a record stood in the prompt."""
    before = {each.id for each in _episodes(folder)}
    command(folder, "run", *learning)
    fresh = [each for each in _episodes(folder) if each.id not in before]
    return sum(record in {(item.record_id, item.version) for item in each.injected} for each in fresh)


def _rolled_back(page: Page, home: str, folder: Path) -> bool:
    """Go back to the oldest snapshot that is listed; tell whether what is live now is that."""
    page.goto(home + "/snapshots")
    page.on("dialog", lambda dialog: dialog.accept())
    row = page.locator("main tbody tr").last
    wanted = row.locator('input[name="snapshot"]').get_attribute("value") or ""
    row.locator("button").click()
    page.wait_for_selector(".said")
    said = page.locator(".said").inner_text()
    with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        return "Done" in said and store.snapshot("default").id == wanted.partition("@")[0]


def _episodes(folder: Path) -> tuple[Trajectory, ...]:
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        return store.trajectories(arm="main")
