"""A real Chromium before the real server: what only a browser can tell.

B1  every page opens without an error on the console, a failed request or one to another host
B2  an open page shows a run that begins elsewhere; a change accepted by keyboard stands in the next run's prompts; a
    rollback makes the snapshot live
B3  planted scripts do not run, whatever the page; at 390 px nothing stands beside the screen, and no text on its label

Where Chromium is missing the tests skip; with EVOLVE_BROWSER=required, as in `.ci/run`, they fail.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.browser import browsing, chromium, inspector
from benchmarks.claims.inspect_1_walk import LATER, workspace
from benchmarks.claims.inspect_3_untrusted import opened
from benchmarks.walk import MORE, PAGES, walk
from benchmarks.xss import WATCH, plant
from tests.evolve.command import evolve, evolve_json

COVERED = """
    [...document.querySelectorAll('td[data-label]')].filter(cell => {
        const label = getComputedStyle(cell, '::before')
        return label.position === 'absolute'
            && parseFloat(getComputedStyle(cell).paddingLeft) < parseFloat(label.width)
    }).map(cell => cell.dataset.label)
"""
"""Labels of cells that their text begins on."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium() is None and os.environ.get("EVOLVE_BROWSER") != "required",
        reason="no Chromium: install Debian's `chromium`, or name one in EVOLVE_CHROMIUM",
    ),
]


def test_a_walk_through_the_page(tmp_path: Path) -> None:
    walked = walk(workspace(tmp_path, quick=True), learning=LATER)
    assert walked.pages >= 16
    assert walked.seen.complaints == walked.seen.failed == walked.seen.foreign == []
    assert walked.live
    assert walked.accepted[0]
    assert walked.injected
    assert walked.rolled_back


def test_planted_scripts_do_not_run(tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    with inspector(tmp_path, "--read-only") as address, browsing(address) as (page, seen):
        page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
        page.add_init_script(WATCH)
        _, ran, shown = opened(page, f"http://{urlsplit(address).netloc}", every=25)
    assert ran == 0
    assert len(shown) > 20
    assert seen.complaints == seen.foreign == seen.dialogs == []


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_stands_beside_a_narrow_screen(learned: Path, dark: bool) -> None:
    evolve(learned, "run", "--limit", "1")
    two = "&".join(f"run={row['run']}" for row in evolve_json(learned, "logs", "list"))
    with inspector(learned) as address, browsing(address, width=390, height=844, dark=dark) as (page, seen):
        home = f"http://{urlsplit(address).netloc}"
        for path in (*PAGES, *MORE, f"/compare?{two}"):
            page.goto(home + path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, path
            assert page.evaluate(COVERED) == [], path
    assert seen.complaints == []
