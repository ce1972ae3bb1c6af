"""A real Chromium before a real `evolve ui`: what a page asked for, complained of, or tried to run.

Chromium is Debian's; nothing is downloaded. The inspector runs as a process of its own, as a user starts it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from benchmarks.shell import listening

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""Chromium's own errands are off: what is left of its traffic is the page's."""


def chromium() -> str | None:
    """Return Chromium's path: `EVOLVE_CHROMIUM`, else the first found on the path."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("EVOLVE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@dataclass
class Seen:
    """What a browser reported while it was open."""

    complaints: list[str] = field(default_factory=list)
    """Errors on the console, and exceptions of the page."""
    failed: list[str] = field(default_factory=list)
    """Requests without an answer, or with one from 400 on."""
    foreign: list[str] = field(default_factory=list)
    """Requests that left the inspector."""
    dialogs: list[str] = field(default_factory=list)
    """What popped up; a planted script's sign of life."""


def inspector(folder: Path, *options: str, env: Mapping[str, str] | None = None) -> AbstractContextManager[str]:
    """Start `evolve ui` on a free port over a workspace; give its address, key included. `env` is set on top."""
    return listening(folder, "ui", *options, env=env)


@contextmanager
def browsing(address: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Generator[tuple[Page, Seen]]:
    """Open Chromium at the inspector's address; yield its page and what it reports."""
    seen, home = Seen(), urlsplit(address).netloc
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.on("console", lambda said: seen.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda asked: _outside(asked.url, home, seen))
        page.on("requestfailed", lambda asked: _failed(asked.url, asked.failure or "", seen))
        page.on("response", lambda got: seen.failed.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        page.goto(address)
        try:
            yield page, seen
        finally:
            browser.close()


def _outside(url: str, home: str, seen: Seen) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob") and parts.netloc != home:
        seen.foreign.append(url)


def _failed(url: str, why: str, seen: Seen) -> None:
    """Note a failed request. One that the browser itself breaks off, since its page is left, did not fail."""
    if "ERR_ABORTED" not in why:
        seen.failed.append(f"{why} {url}")
