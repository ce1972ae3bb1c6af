"""What only a browser can tell of findings A8: what overlaps, what the keyboard and a finger reach, what axes say.

Where Chromium is missing the tests skip; with EVOLVE_BROWSER=required, as in `.ci/run`, they fail.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from benchmarks.browser import browsing, chromium, inspector
from evolve.config.file import load_config
from evolve.gates import review_queue
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op
from tests.evolve.command import evolve, settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium() is None and os.environ.get("EVOLVE_BROWSER") != "required",
        reason="no Chromium: install Debian's `chromium`, or name one in EVOLVE_CHROMIUM",
    ),
]


@contextmanager
def browser(folder: Path, width: int = 1440) -> Generator[tuple[Page, str]]:
    """Open the inspector of a workspace; yield the page and the inspector's address. It must not complain."""
    with inspector(folder) as address, browsing(address, width=width) as (page, seen):
        yield page, f"http://{urlsplit(address).netloc}"
    assert seen.complaints == []


def first(page: Page, home: str, listing: str, kind: str) -> None:
    """Open the first thing of a kind that a list leads to."""
    page.goto(home + listing)
    page.goto(home + (page.locator(f'main a[href^="/{kind}/"]').first.get_attribute("href") or ""))


def test_a_heading_does_not_run_into_the_button_below_it(learned: Path) -> None:
    with browser(learned) as (page, home):
        first(page, home, "/playbook", "records")
        heading = page.locator("h2", has_text="Change it").bounding_box()
        button = page.locator("button", has_text="Retire").bounding_box()
    assert heading is not None
    assert button is not None
    assert heading["y"] + heading["height"] <= button["y"]


def test_a_word_is_explained_by_keyboard_pointer_and_finger(learned: Path) -> None:
    with browser(learned, width=390) as (page, home):
        page.goto(home + "/retrieval?q=send+a+mail")
        word = page.locator("button.term", has_text="rrf").first
        meaning = page.locator(f"#{word.get_attribute('popovertarget')}")
        assert not meaning.is_visible()
        word.focus()
        page.keyboard.press("Enter")
        assert meaning.is_visible()
        assert "Reciprocal rank fusion" in meaning.inner_text()
        box = meaning.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        page.keyboard.press("Escape")
        assert not meaning.is_visible()
        page.locator("h1").click()
        word.hover()
        assert meaning.is_visible()
        page.locator("h1").hover()
        assert not meaning.is_visible()
        word.click()
        assert meaning.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_word_is_explained_without_a_script(learned: Path) -> None:
    with inspector(learned) as address, browsing(address) as (page, _):
        home = f"http://{urlsplit(address).netloc}"
        cookies = page.context.cookies()
        still = page.context.browser.new_context(java_script_enabled=False) if page.context.browser else None
        assert still is not None
        still.add_cookies([{name: each[name] for name in ("name", "value", "domain", "path")} for each in cookies])  # pyright: ignore
        plain = still.new_page()
        plain.goto(home + "/retrieval?q=send+a+mail")
        word = plain.locator("button.term", has_text="lexical").first
        word.click()
        assert plain.locator(f"#{word.get_attribute('popovertarget')}").is_visible()


def test_tasks_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    folder = settings(tmp_path / "short", tasks=4)
    evolve(folder, "run")
    with browser(folder) as (page, home):
        first(page, home, "/runs", "runs")
        page.wait_for_function("document.querySelector('.chart')._plot?.axes[0]._values?.length > 0")
        ticks = page.evaluate("document.querySelector('.chart')._plot.axes[0]._values")
    assert [tick for tick in ticks if tick] == ["1", "2", "3", "4"]


def test_review_is_worked_through_by_keyboard_alone(learned: Path) -> None:
    config = load_config(learned / "evolve.toml")
    with open_store(config, owner=False) as store:
        ops = [DeltaOp(op=Op.ADD, payload={"content": f"rule number {at}"}) for at in range(3)]
        review_queue.submit(store, config.memory.namespace, "", ops)
    with browser(learned) as (page, home):
        page.goto(home + "/review")
        assert page.evaluate("document.activeElement.matches('article.change')")
        assert "rule number 0" in page.evaluate("document.activeElement.innerText")
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.locator("button", has_text="Accept selected").click()
        page.wait_for_selector("h1:has-text('Accept 2 changes?')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".said")
        assert "2 changes are accepted" in page.locator(".said").inner_text()
        assert page.locator("article.change").count() == 1


def test_the_keyboard_sees_where_it_is(learned: Path) -> None:
    with browser(learned) as (page, home):
        for path in ("/", "/playbook", "/review", "/retrieval?q=mail"):
            page.goto(home + path)
            for _ in range(12):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement === document.body"):
                    break  # behind the last control the browser's own bar has the focus
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", page.evaluate("document.activeElement.outerHTML")
